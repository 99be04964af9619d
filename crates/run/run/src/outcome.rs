//! Makes a report from counters and from the observations of applications.

use kvdrive_declare::{Counts, Sections};
use kvdrive_device::engines::ENGINES;
use kvdrive_flash::faults::FaultCount;
use kvdrive_link::transfer::BYTE_EXPRESS;
use kvdrive_nvme::inline::CHUNK_BYTES;
use kvdrive_sim::{Histogram, Ns, Summary};

use super::kinds::{DELETE, EXIST, KINDS, LIST, NEXT, RETRIEVE, SEEK, STORE};
use super::limits;
use super::seen::{Seen, UnitsSeen};
use super::snapshot::DriveSnapshot;
use crate::report::fields::Format;
use crate::report::{self, Named, Report};
use kvdrive_config::{Config, Document};
use kvdrive_text::{grouped, number_of};

/// The results of a run before they are a report.
#[derive(Default)]
pub(crate) struct Outcome {
    pub seen: Seen,
    pub began: DriveSnapshot,
    /// After the last operation: the end of throughput and utilisation.
    pub ended: DriveSnapshot,
    /// After the drain as well: the end of the counters.
    pub drained: DriveSnapshot,
    /// Length of the measured part by the machine's clock, ns; `None`: in model time, which snapshots have.
    pub wall_ns: Option<Ns>,
    pub notes: Vec<String>,
    /// Whether it was stopped from outside before its end.
    pub is_stopped: bool,
    /// Whether operations had due times that the drive did not keep up with; false in wall time.
    pub is_behind: bool,
    /// Counters of the workload.
    pub workload: Counts,
    pub loading: Option<Loading>,
    /// Operations over time, if requested.
    pub series: Option<report::Series>,
    /// Result of checking values, with the first wrong one.
    pub verified: Option<(report::Verified, Option<String>)>,
}

/// The cost of loading a drive and overwriting its pairs.
#[derive(Clone)]
pub(crate) struct Loading {
    pub began: DriveSnapshot,
    pub ended: DriveSnapshot,
    pub stores: u64,
    pub stored_bytes: u64,
}

/// A note for runs that list keys on an engine that does not list them in order.
fn order_of_listing(ops: &report::Ops, engine: &str) -> Option<String> {
    let is_unordered = ENGINES.iter().any(|row| row.name == engine && !row.ordered);
    (is_unordered && ops.list + ops.seek > 0)
        .then(|| format!("{engine} goes through keys in the order of its table, not in theirs"))
}

/// A note for workloads in which one operation counts as several in the report.
fn counting_of_scans(ops: &report::Ops) -> Option<String> {
    (ops.next > 0).then(|| "a scan counts as several operations: its seek, and each of its nexts".to_owned())
}

/// A note for runs whose reads mostly find no pair: those take less time than others.
fn most_were_missed(ops: &report::Ops, not_found: &Named<u64>) -> Option<String> {
    let reads = ops.retrieve + ops.exist + ops.seek;
    let missed: u64 =
        not_found.iter().filter(|(kind, _)| READS.contains(kind)).map(|(_, missed)| missed).sum();
    (2 * missed > reads).then(|| {
        let (missed, reads) = (grouped(missed), grouped(reads));
        format!("{missed} of {reads} reads found nothing: throughput and latency are those of misses")
    })
}

/// A note for runs by `byte-express` some of whose values were too long for the queue, and were sent as by
/// `prp`.
fn too_long_for_the_queue(counts: &Sections, config: &Config) -> Option<String> {
    let bytes = counts.get("traffic.payload_bytes.to_drive").unwrap_or(0);
    (config.host.transfer.method == BYTE_EXPRESS && bytes > 0).then(|| {
        format!(
            "{} of values went by prp: in the {} entries of a queue there was no room for their chunks of {CHUNK_BYTES} B",
            kvdrive_text::scaled::bytes(bytes as f64),
            config.host.queue_entries
        )
    })
}

/// Kinds of operation that read one key.
const READS: [&str; 3] = [KINDS[RETRIEVE], KINDS[EXIST], KINDS[SEEK]];

/// Adds the number of reads that were not compared.
fn with_unchecked(verified: report::Verified, ops: &report::Ops) -> report::Verified {
    let reads = ops.retrieve + ops.exist + ops.list + ops.seek + ops.next;
    report::Verified { unchecked: reads.saturating_sub(verified.checked + verified.unknown), ..verified }
}

/// A note of the first operation that failed.
fn first_error(seen: &Seen) -> Option<String> {
    let error = seen.first_error.as_ref()?;
    Some(format!("first of {}: {error}", number_of(seen.errors, "error")))
}

/// Bytes of returned values, by the kinds of operation that occurred.
fn read_bytes(ops: &report::Ops, seen: &Seen) -> Named<u64> {
    let kinds = [(RETRIEVE, ops.retrieve), (SEEK, ops.seek), (NEXT, ops.next)];
    let kinds = kinds.into_iter().filter(|(_, count)| *count > 0);
    kinds.map(|(kind, _)| (KINDS[kind], seen.read_bytes[kind])).collect()
}

fn per_s(amount: u64, span_ns: Ns) -> f64 {
    amount as f64 * 1e9 / span_ns.max(1) as f64
}

fn bandwidth(values: &report::ValueBytes, span_ns: Ns) -> report::Bandwidth {
    report::Bandwidth { stored: per_s(values.stored, span_ns), retrieved: per_s(values.retrieved, span_ns) }
}

/// Number of operations of each kind.
fn operations(seen: &Seen) -> report::Ops {
    let counts = seen.latency.each_ref().map(|histogram| histogram.summary().count);
    report::Ops {
        store: counts[STORE],
        retrieve: counts[RETRIEVE],
        delete: counts[DELETE],
        exist: counts[EXIST],
        list: counts[LIST],
        seek: counts[SEEK],
        next: counts[NEXT],
        errors: seen.errors,
    }
}

impl Outcome {
    pub(crate) fn into_report(self, document: &Document, config: &Config) -> anyhow::Result<Report> {
        let Outcome { seen, began, ended, drained, wall_ns, .. } = self;
        let Outcome { mut notes, is_stopped, is_behind, workload, loading, series, verified, .. } = self;
        let ops = operations(&seen);
        let (verified, first_wrong) = verified.map_or((None, None), |(counts, first)| (Some(counts), first));
        notes.extend(first_wrong.map(|what| format!("first value that was not as stored: {what}")));
        notes.extend(first_error(&seen));
        notes.extend(order_of_listing(&ops, &config.engine.name));
        notes.extend(counting_of_scans(&ops));
        let not_found: Named<u64> =
            KINDS.into_iter().zip(seen.missed).filter(|(_, missed)| *missed > 0).collect();
        notes.extend(most_were_missed(&ops, &not_found));
        let verified = verified.map(|verified| with_unchecked(verified, &ops));
        let span_ns = ended.at - began.at;
        // Times that applications saw are of the clock of the run.
        let seen_ns = wall_ns.unwrap_or(span_ns);
        let mut counts = drained.counts.since(&began.counts);
        notes.extend(too_long_for_the_queue(&counts, config));
        counts.set("workload", workload);
        counts.set("flash_health", health(&drained));
        let programmed = counts.get("nand.programs").unwrap_or(0) * u64::from(config.flash.page_bytes);
        let retrieved = seen.read_bytes.iter().sum();
        let value_bytes = report::ValueBytes { stored: seen.stored_bytes, retrieved };
        let loaded = loading.as_ref().map_or(0, |loading| loading.stores);
        let pairs = report::Pairs::of(config, loaded, &ops, &value_bytes, not_found_pairs(&not_found));
        let (resources, occupied) = (limits::resources(&began, &ended), limits::occupied(&began, &ended));
        let values = document.values();
        // In wall time the clock passes while the drive has nothing to do.
        let limited_by = (wall_ns.is_none() && ops.answered() > 0)
            .then(|| limits::limit(&resources, &occupied, (config, &values), is_behind))
            .flatten();
        Ok(Report {
            format: Format::default(),
            profile: document.profile_name().to_owned(),
            set: user_settings(document),
            config: values,
            dram_point: document.dram_point().map(str::to_owned),
            seed: config.run.seed,
            clock: if wall_ns.is_some() { "wall" } else { "virtual" }.into(),
            revision: crate::revision::of_program().to_owned(),
            time_sources: document.time_sources(),
            notes,
            is_stopped,
            throughput_ops_per_s: per_s(ops.total(), seen_ns),
            bandwidth_bytes_per_s: bandwidth(&value_bytes, seen_ns),
            pairs,
            cache: report::CacheRates::of(config, &counts, value_bytes.stored),
            latency_ns: latencies(&seen.latency),
            latency_all_ns: latency_of_all(&seen.latency),
            commands: Named::default(),
            transactions: transactions(&seen.units, seen_ns),
            series,
            amplification: report::Amplification {
                traffic: per_value_byte(counts.get("traffic.payload_bytes").unwrap_or(0), value_bytes.stored),
                write: per_value_byte(programmed, value_bytes.stored),
            },
            counts,
            faults: drained.faults.into_iter().map(fault).collect(),
            verified,
            precondition: loading.map(|loading| loading.into_report(config)),
            limited_by,
            occupied,
            resources,
            not_found,
            value_bytes,
            read_bytes: read_bytes(&ops, &seen),
            time: report::Time { virtual_ns: span_ns, wall_s: wall_ns.map_or(0.0, |ns| ns as f64 / 1e9) },
            ops,
        })
    }
}

/// `KEY=VALUE` of every key that differs from the profile.
fn user_settings(document: &Document) -> Vec<String> {
    document.user_settings().into_iter().map(|(key, value)| format!("{key}={value}")).collect()
}

impl Report {
    /// Notes in a report how `document` came to its values: reports of documents with equal values differ in
    /// nothing else.
    pub fn describe(&mut self, document: &Document) {
        self.set = user_settings(document);
        self.dram_point = document.dram_point().map(str::to_owned);
        self.time_sources = document.time_sources();
    }
}

impl Loading {
    fn into_report(self, config: &Config) -> report::Precondition {
        let since = self.ended.counts.since(&self.began.counts);
        let programmed = since.of("nand.programs") * u64::from(config.flash.page_bytes);
        let section = |counts: Sections, name| counts.with(name, since.section(name).clone());
        report::Precondition {
            stores: self.stores,
            stored_bytes: self.stored_bytes,
            virtual_ns: config.workload.timed_load.then_some(self.ended.at - self.began.at),
            write_amplification: per_value_byte(programmed, self.stored_bytes),
            counts: ["nand", "engine"].into_iter().fold(Sections::default(), section),
        }
    }
}

fn fault(count: FaultCount) -> report::Fault {
    let FaultCount { name, kind, matched, struck } = count;
    report::Fault { rule: name, fault: kind, matched, struck }
}

/// Health of flash since power-on, if fault rules may strike it or something has failed.
fn health(at_end: &DriveSnapshot) -> Counts {
    let health = at_end.counts.section("flash_health");
    let has_failed =
        health.iter().any(|count| !count.counter.name.starts_with("spare_blocks") && count.value > 0);
    let has_spares = health.get("spare_blocks") == health.get("spare_blocks_left");
    if at_end.faults.is_empty() && !has_failed && has_spares { Counts::default() } else { health.clone() }
}

/// Bytes moved per byte stored; `None` if nothing was stored.
fn per_value_byte(bytes: u64, stored: u64) -> Option<f64> {
    (stored > 0).then(|| bytes as f64 / stored as f64)
}

fn latencies(histograms: &[Histogram; KINDS.len()]) -> Named<report::Latency> {
    let pairs = KINDS.iter().zip(histograms).map(|(name, histogram)| (*name, histogram));
    pairs
        .filter(|(_, histogram)| !histogram.values().is_empty())
        .map(|(name, histogram)| (name, latency(histogram)))
        .collect()
}

fn latency(histogram: &Histogram) -> report::Latency {
    let Summary { mean, p50, p95, p99, p999, p9999, max, .. } = histogram.summary();
    let (stdev, min) = (histogram.values().stdev(), histogram.values().min());
    report::Latency { mean, stdev, min, p50, p95, p99, p999, p9999, max }
}

fn latency_of_all(histograms: &[Histogram; KINDS.len()]) -> Option<report::Latency> {
    let mut all = Histogram::default();
    histograms.iter().filter(|kind| !kind.values().is_empty()).for_each(|kind| all.add(kind));
    (!all.values().is_empty()).then(|| latency(&all))
}

/// Reads that found no pair and so returned no value. An exist returns none anyway.
fn not_found_pairs(not_found: &Named<u64>) -> u64 {
    let kinds = [KINDS[RETRIEVE], KINDS[SEEK], KINDS[NEXT]];
    not_found.iter().filter(|(kind, _)| kinds.contains(kind)).map(|(_, missed)| missed).sum()
}

fn transactions(units: &[UnitsSeen], span_ns: Ns) -> Named<report::Transactions> {
    let of = |units: &UnitsSeen| {
        let committed = units.latency.values().len();
        let per_s = per_s(committed, span_ns);
        let latency_ns = latency(&units.latency);
        (units.kind, report::Transactions { committed, rolled_back: units.rolled_back, per_s, latency_ns })
    };
    let mut of_kinds: Vec<_> = units.iter().map(of).collect();
    // The order is fixed and does not depend on which unit ended first.
    of_kinds.sort_by_key(|(kind, _)| *kind);
    of_kinds.into_iter().collect()
}
