//! How fast stores are simulated, on either side of the wire.
//!
//! Each row is a run in model time: stores of 16 B on class Mid with 4 threads. The measured time is that of
//! this thread on a core; it excludes the loading of a workload's pairs and includes power-on.

use std::cell::Cell;

use serde::Serialize;

use super::speed::{Speed, thread_cpu_seconds};
use kvdrive_config::Document;
use kvdrive_run::{Watch, operations, run_counted};
use kvdrive_sim::wall::Stopwatch;

/// A run to be simulated.
struct Row {
    name: &'static str,
    /// Thousands of operations of a run of the usual length.
    thousands: u64,
    set: &'static [&'static str],
}

const COMMON: &[&str] =
    &["host.threads=4", "workload.name=fillrandom", "workload.key_size=8", "workload.value_size=16"];
const ON_HOST: &str = "engine.name=block";
/// A memtable so small that a million pairs are merged several times.
const MERGING: &str = "lsmtree.write_buffer_size=1048576";

const ROWS: &[Row] = &[
    Row { name: "hashlog on the host", thousands: 1000, set: &[ON_HOST, "host.store=hashlog"] },
    Row {
        name: "hashlog, batches of 64",
        thousands: 1000,
        set: &["engine.name=hashlog", "saker.enabled=true", "saker.batch=64"],
    },
    Row { name: "hashlog, single stores", thousands: 1000, set: &["engine.name=hashlog"] },
    Row { name: "lsmtree on the host", thousands: 1000, set: &[ON_HOST, "host.store=lsmtree", MERGING] },
    Row { name: "btree on the host", thousands: 1000, set: &[ON_HOST, "host.store=btree"] },
    Row {
        name: "requests of tpcc",
        thousands: 40,
        set: &[
            ON_HOST,
            "host.store=lsmtree",
            "workload.name=tpcc",
            "workload.shrink=16",
            "workload.warehouses=4",
        ],
    },
];

/// The measured row.
#[derive(Clone, Debug, Serialize)]
pub struct Simulated {
    /// Its name.
    pub name: &'static str,
    /// Operations of the run itself.
    pub speed: Speed,
}

/// Simulates each row once, with the usual number of operations divided by `part`. If `watch` stops it, the
/// rows before are returned.
///
/// # Errors
/// A run fails.
pub fn stores(part: u64, watch: &Watch<'_>) -> anyhow::Result<Vec<Simulated>> {
    let mut all = Vec::with_capacity(ROWS.len());
    for (index, row) in ROWS.iter().enumerate() {
        (watch.progress)(index as u64, ROWS.len() as u64);
        let measured = measure(row, (row.thousands * 1000 / part.max(1)).max(1), watch);
        if watch.is_stopped() {
            return Ok(all);
        }
        all.push(measured?);
    }
    (watch.progress)(ROWS.len() as u64, ROWS.len() as u64);
    Ok(all)
}

fn measure(row: &Row, ops: u64, watch: &Watch<'_>) -> anyhow::Result<Simulated> {
    let mut document = Document::profile("saker-mid")?;
    for setting in COMMON.iter().chain(row.set) {
        document.set(setting)?;
    }
    document.set(&format!("workload.ops={ops}"))?;
    if row.set.iter().all(|set| !set.starts_with("workload.name")) {
        document.set(&format!("workload.num={ops}"))?;
    }
    let loads = operations(&document.config()?)? - ops;
    let stopwatch = Stopwatch::start();
    let now = || (stopwatch.seconds(), thread_cpu_seconds());
    let (began, loaded) = (now(), Cell::new(None));
    let note = |done, _| {
        if loads > 0 && done >= loads && loaded.get().is_none() {
            loaded.set(Some(now()));
        }
    };
    let watch = Watch { stop: watch.stop.clone(), ..Watch::progress(&note) };
    let (report, events) = run_counted(&document, &watch)?;
    let ((from_s, from_cpu_s), (to_s, to_cpu_s)) = (loaded.get().unwrap_or(began), now());
    anyhow::ensure!(report.ops.errors == 0, "{}: {}", row.name, report.notes.join("; "));
    let requests = report.ops.total();
    let cpu_seconds = from_cpu_s.zip(to_cpu_s).map(|(from, to)| to - from);
    let events_each = (loads == 0).then(|| events as f64 / requests.max(1) as f64);
    let speed = Speed::of(requests, vec![to_s - from_s], cpu_seconds.into_iter().collect(), events_each);
    Ok(Simulated { name: row.name, speed })
}
