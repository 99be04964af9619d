//! The speed of a drive on a network, and the CPU time at either end: the figures of `kvdrive bench --connect`. All are
//! measured.

use std::cell::RefCell;
use std::fmt;
use std::fs;
use std::path::PathBuf;

use serde::Serialize;

use super::thread_cpu_seconds;
use kvdrive_config::{DEFAULT_PROFILE, Document};
use kvdrive_host::reach::Remote;
use kvdrive_run::Watch;
use kvdrive_run::memory::ProcessMemory;
use kvdrive_run::report::Target;
use kvdrive_run::wall::connected::run_measured;
use kvdrive_text::scaled::{bytes, time};
use kvdrive_text::{grouped, with_decimals};

/// Default size of values, bytes.
pub const DEFAULT_VALUE_BYTES: u32 = 4096;
/// Default number of keys. With as many keys as users have, the drive reads its index from flash; with a
/// thousand keys the whole index is in memory, and the drive answers twice as fast.
pub const DEFAULT_KEYS: u64 = 100_000;
/// The larger depth, at which all operations are carried out. A tenth of them is also carried out at depth 1.
const DEEP: u32 = 32;
/// Most bytes of values under way at once: large values have a smaller depth.
const UNDER_WAY_BYTES: u32 = 64 << 20;
/// A thread that slept less than once in this many operations counts as polling.
const OPERATIONS_PER_SLEEP: f64 = 2.0;

/// A server thread's use of its core during a measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadUse {
    /// Its name.
    pub name: String,
    /// Time on a core, s.
    pub cpu_s: f64,
    /// How often it slept because it had nothing to do.
    pub sleeps: u64,
}

/// One kind of operation at one depth.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `store` or `retrieve`.
    pub operation: &'static str,
    /// Operations under way at once.
    pub depth: u32,
    /// Number of operations.
    pub operations: u64,
    /// Their duration, s.
    pub seconds: f64,
    /// Operations a second.
    pub per_s: f64,
    /// Bytes of values a second, in the direction of the operation.
    pub bandwidth_bytes_per_s: f64,
    /// Median latency, ns.
    pub p50_ns: u64,
    /// 99th percentile of the latency, ns.
    pub p99_ns: u64,
    /// Time that our thread was on a core, s; `None` if the system does not report it.
    pub client_cpu_s: Option<f64>,
    /// How often our thread slept.
    pub client_sleeps: u64,
    /// Threads of the server that did any work; `None` if the server's process is unknown.
    pub server: Option<Vec<ThreadUse>>,
    /// Memory of the server's process at the end, with the page faults of this measurement; `None` if it is unknown.
    pub server_memory: Option<ProcessMemory>,
}

impl Row {
    fn server_cpu_s(&self) -> Option<f64> {
        let threads = self.server.as_ref()?;
        Some(threads.iter().map(|thread| thread.cpu_s).sum())
    }

    fn slept(&self, sleeps: u64) -> bool {
        sleeps as f64 * OPERATIONS_PER_SLEEP > self.operations as f64
    }
}

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Connected {
    /// Revision of this program.
    pub revision: &'static str,
    /// The drives, which share the keys if there are several.
    pub targets: Vec<Target>,
    /// Keys under which the values are stored.
    pub keys: u64,
    /// Size of the values, bytes.
    pub value_bytes: u32,
    /// The server's process, if it is known.
    pub server_pid: Option<u32>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// Use of cores by each thread of a process so far, from `/proc`: the first number of `schedstat` is the time
/// on a core, ns.
fn threads(pid: u32) -> Option<Vec<(PathBuf, ThreadUse)>> {
    let mut threads = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let path = task.ok()?.path();
        // A thread may have ended meanwhile.
        let read = |file: &str| fs::read_to_string(path.join(file)).ok();
        let Some(((name, time), status)) = read("comm").zip(read("schedstat")).zip(read("status")) else {
            continue;
        };
        let cpu_ns: u64 = time.split_whitespace().next()?.parse().ok()?;
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        let name = name.trim().to_owned();
        threads.push((
            path,
            ThreadUse { name, cpu_s: cpu_ns as f64 / 1e9, sleeps: sleeps.trim().parse().ok()? },
        ));
    }
    Some(threads)
}

/// The difference for each thread that did any work.
fn between(before: &[(PathBuf, ThreadUse)], after: Vec<(PathBuf, ThreadUse)>) -> Vec<ThreadUse> {
    let since = |(path, now): (PathBuf, ThreadUse)| {
        let was = before.iter().find(|(known, _)| *known == path);
        let (cpu_s, sleeps) = was.map_or((0.0, 0), |(_, was)| (was.cpu_s, was.sleeps));
        ThreadUse { name: now.name, cpu_s: now.cpu_s - cpu_s, sleeps: now.sleeps - sleeps }
    };
    after.into_iter().map(since).filter(|thread| thread.cpu_s > 0.0).collect()
}

/// Depths for values of this size, each with a divisor of the number of operations.
fn depths(value_bytes: u32) -> Vec<(u32, u64)> {
    match (UNDER_WAY_BYTES / value_bytes.max(1)).clamp(1, DEEP) {
        1 => vec![(1, 1)],
        deep => vec![(1, 10), (deep, 1)],
    }
}

/// Stores and retrieves values of `value_bytes` bytes under `keys` keys on drives on a network: `operations`
/// operations at depth 32 (less for large values), and a tenth of them at depth 1. Before the retrieves every
/// key is stored once, which is not measured. `server_pid` is the process of a server on this machine.
///
/// If `watch` stops a measurement or the connection fails, the figures are those of the measurements before it, with
/// the error if there is one.
///
/// # Errors
/// There is no drive, or the drive refused an operation.
pub fn connected(
    remotes: &[Remote],
    value_bytes: u32,
    operations: u64,
    keys: u64,
    server_pid: Option<u32>,
    watch: &Watch<'_>,
) -> anyhow::Result<(Connected, Option<anyhow::Error>)> {
    let mut rows = Vec::new();
    let (mut targets, mut failure) = (Vec::new(), None);
    'rows: for (depth, part) in depths(value_bytes) {
        for (operation, workload) in [("store", "fillrandom"), ("retrieve", "readrandom")] {
            let operations = (operations / part).max(1);
            let mut document = Document::profile(DEFAULT_PROFILE)?;
            for setting in [
                format!("workload.name={workload}"),
                format!("workload.ops={operations}"),
                format!("workload.num={keys}"),
                format!("workload.value_size={value_bytes}"),
                format!("host.depth={depth}"),
                "run.clock=wall".into(),
            ] {
                document.set(&setting)?;
            }
            let moments = RefCell::new(Vec::new());
            let look = || {
                let memory = server_pid.map(ProcessMemory::of);
                moments.borrow_mut().push((thread_cpu_seconds(), server_pid.and_then(threads), memory));
            };
            let (found, ran) = match run_measured(&document, remotes, false, watch, &look) {
                Ok((found, ran)) if ran.failure.is_none() && !ran.report.is_stopped => (found, ran),
                Ok((_, ran)) => {
                    failure = ran.failure;
                    break 'rows;
                }
                // The connection failed while the keys were stored before the retrieves.
                Err(error) if !rows.is_empty() => {
                    failure = (!watch.is_stopped()).then_some(error);
                    break 'rows;
                }
                Err(error) => return Err(error),
            };
            let errors = ran.report.ops.errors;
            anyhow::ensure!(errors == 0, "{errors} operations failed: {}", ran.report.notes.join("; "));
            let [(client_before, server_before, memory_before), (client_after, server_after, memory_after)] =
                <[_; 2]>::try_from(moments.into_inner()).map_err(|_| anyhow::anyhow!("two moments"))?;
            let server = server_before.zip(server_after).map(|(before, after)| between(&before, after));
            targets = found;
            rows.push(Row {
                operation,
                depth,
                operations,
                seconds: ran.report.time.wall_s,
                per_s: ran.report.throughput_ops_per_s,
                bandwidth_bytes_per_s: match operation {
                    "store" => ran.report.bandwidth_bytes_per_s.stored,
                    _ => ran.report.bandwidth_bytes_per_s.retrieved,
                },
                p50_ns: ran.report.latency_ns.get(operation).map_or(0, |latency| latency.p50),
                p99_ns: ran.report.latency_ns.get(operation).map_or(0, |latency| latency.p99),
                client_cpu_s: client_before.zip(client_after).map(|(before, after)| after - before),
                client_sleeps: targets.iter().map(|target| target.sleeps).sum(),
                server,
                server_memory: memory_before.zip(memory_after).map(|(before, after)| after.since(&before)),
            });
        }
    }
    let revision = kvdrive_run::revision::of_program();
    Ok((Connected { revision, targets, keys, value_bytes, server_pid, rows }, failure))
}

impl fmt::Display for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Connected { revision, targets, keys, value_bytes, rows, server_pid } = self;
        writeln!(
            f,
            "{} at {}, {} B, {} keys; {revision}, measured",
            targets.first().map_or("", |target| &target.model),
            targets.iter().map(|target| format!("tcp://{}", target.address)).collect::<Vec<_>>().join(", "),
            grouped((*value_bytes).into()),
            grouped(*keys)
        )?;
        writeln!(
            f,
            "{:<10}{:>6}{:>11}{:>13}{:>11}{:>15}{:>15}{:>15}",
            "", "depth", "/s", "values", "p50", "server CPU/op", "/server CPU s", "client CPU/op"
        )?;
        let unknown = || "-".to_owned();
        for row in rows {
            let us = |seconds: f64| format!("{} us", with_decimals(seconds * 1e6 / row.operations as f64, 2));
            let thousands = |rate: f64| format!("{} k", with_decimals(rate / 1e3, 1));
            let server = row.server_cpu_s();
            writeln!(
                f,
                "{:<10}{:>6}{:>11}{:>13}{:>11}{:>15}{:>15}{:>15}",
                row.operation,
                row.depth,
                thousands(row.per_s),
                format!("{}/s", bytes(row.bandwidth_bytes_per_s)),
                time(row.p50_ns as f64),
                server.map_or_else(unknown, us),
                server.map_or_else(unknown, |cpu_s| thousands(row.operations as f64 / cpu_s)),
                row.client_cpu_s.map_or_else(unknown, us)
            )?;
        }
        for row in rows {
            let said =
                |name: &str, sleeps| format!("{name} {}", if row.slept(sleeps) { "slept" } else { "spun" });
            let mut who = vec![said("client", row.client_sleeps)];
            let threads = row.server.iter().flatten();
            who.extend(threads.map(|thread| {
                format!("{} ({} s)", said(&thread.name, thread.sleeps), with_decimals(thread.cpu_s, 2))
            }));
            writeln!(f, "  {} at depth {}: {}", row.operation, row.depth, who.join(", "))?;
        }
        for row in rows {
            let Some(memory) = &row.server_memory else { continue };
            writeln!(
                f,
                "  {} at depth {}: the server has {} resident, {} in huge pages; {} page faults/op",
                row.operation,
                row.depth,
                bytes(memory.resident_bytes as f64),
                bytes(memory.huge_page_bytes as f64),
                with_decimals(memory.page_faults as f64 / row.operations as f64, 4)
            )?;
        }
        if server_pid.is_none() {
            writeln!(f, "  the server's CPU time is not known: give its control socket or process id")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_did_is_what_it_did_in_between() {
        let of = |number: u32, cpu_s: f64, sleeps: u64| {
            (PathBuf::from(number.to_string()), ThreadUse { name: format!("t{number}"), cpu_s, sleeps })
        };
        let before = [of(1, 1.0, 10), of(2, 5.0, 7)];
        let used = between(&before, vec![of(1, 3.0, 14), of(2, 5.0, 7), of(3, 0.5, 1)]);
        assert_eq!(used, [of(1, 2.0, 4).1, of(3, 0.5, 1).1], "who did nothing is not named");
    }
}
