//! A run in slices: the counts of each interval of its clock, reported during the run.
//!
//! Counters are those of the drive at the end of an interval; operations and their latencies are those
//! answered in it. The intervals of a run add up to the run, except for the drain after its last operation.

use std::rc::Rc;

use kvdrive_sim::{Histogram, Ns};
use serde_json::{Map, Value, json};

use super::kinds::KINDS;
use super::report::fields::FORMAT;
use super::snapshot::DriveSnapshot;
use super::tally::{Recent, Tally};

/// Called with every interval as it ends.
pub type OnInterval = Rc<dyn Fn(&Interval<'_>)>;

/// One interval of a run.
pub struct Interval<'a> {
    /// Start of the interval, ns after the start of the measured operations.
    pub began_ns: Ns,
    /// End of the interval; see `began_ns`.
    pub ended_ns: Ns,
    /// Bytes of values that were stored.
    pub stored_bytes: u64,
    /// Bytes of values that were returned.
    pub read_bytes: u64,
    pub(super) recent: &'a Recent,
    pub(super) began: &'a DriveSnapshot,
    pub(super) ended: &'a DriveSnapshot,
}

/// The consecutive intervals of one run.
pub(super) struct Slices {
    /// Length of an interval, ns.
    pub length_ns: Ns,
    tell: OnInterval,
    /// Start of the run, and of the present interval with the bytes stored and read before it.
    start_ns: Ns,
    before: DriveSnapshot,
    bytes_before: (u64, u64),
}

impl Slices {
    /// Intervals that start at `began`.
    pub(super) fn new(length_ns: Ns, tell: OnInterval, began: DriveSnapshot) -> Slices {
        Slices { length_ns, tell, start_ns: began.at, before: began, bytes_before: (0, 0) }
    }

    /// End of the present interval.
    pub(super) fn next_end(&self) -> Ns {
        self.before.at.saturating_add(self.length_ns)
    }

    /// Ends the present interval at `now`; `tally` covers the whole run.
    ///
    /// # Panics
    /// Panics if the interval began later.
    pub(super) fn end(&mut self, now: DriveSnapshot, tally: Tally) {
        assert!(now.at >= self.before.at, "an interval from {} to {} ns", self.before.at, now.at);
        if now.at == self.before.at {
            return;
        }
        let Tally { stored_bytes, read_bytes, recent, .. } = tally;
        let bytes = (stored_bytes, read_bytes);
        (self.tell)(&Interval {
            began_ns: self.before.at - self.start_ns,
            ended_ns: now.at - self.start_ns,
            stored_bytes: bytes.0 - self.bytes_before.0,
            read_bytes: bytes.1 - self.bytes_before.1,
            recent: &recent,
            began: &self.before,
            ended: &now,
        });
        (self.before, self.bytes_before) = (now, bytes);
    }
}

impl Interval<'_> {
    /// Latencies of the operations answered in the interval, in ns, by kind; only kinds that occurred.
    pub fn latencies(&self) -> impl Iterator<Item = (&'static str, &Histogram)> {
        let pairs = KINDS.into_iter().zip(&self.recent.latency);
        pairs.filter(|(_, histogram)| histogram.summary().count > 0)
    }

    /// The interval as one line of JSON, with the counters of [`kvdrive_declare::Counters`] by section.
    /// Latencies are in ns.
    pub fn to_json(&self) -> Value {
        let span_s = (self.ended_ns - self.began_ns).max(1) as f64 / 1e9;
        let latency: Map<String, Value> = self
            .latencies()
            .map(|(kind, histogram)| {
                let summary = histogram.summary();
                let kvdrive_sim::Summary { count, mean, p50, p95, p99, p999, p9999, max } = summary;
                let (stdev, min) = (histogram.values().stdev(), histogram.values().min());
                let figures = json!({"count": count, "mean": mean, "stdev": stdev, "min": min, "p50": p50,
                    "p95": p95, "p99": p99, "p999": p999, "p9999": p9999, "max": max});
                (kind.to_owned(), figures)
            })
            .collect();
        let ops: u64 = self.latencies().map(|(_, histogram)| histogram.summary().count).sum();
        let counts = self.ended.counts.since(&self.began.counts);
        let of_gc = |name: &str| -> u64 {
            let is_of_gc = |purpose: &str| purpose.split('_').any(|word| word == "gc");
            let purposes = counts.section("nand").labels(name);
            purposes.filter(|(purpose, _)| is_of_gc(purpose)).map(|(_, count)| count).sum()
        };
        let mut line = json!({
            "format": FORMAT,
            "began_ns": self.began_ns,
            "ended_ns": self.ended_ns,
            "ops": ops,
            "errors": self.recent.errors,
            "throughput_ops_per_s": ops as f64 / span_s,
            "bandwidth_bytes_per_s": {
                "stored": self.stored_bytes as f64 / span_s,
                "retrieved": self.read_bytes as f64 / span_s,
            },
            "value_bytes": {"stored": self.stored_bytes, "retrieved": self.read_bytes},
            "latency_ns": latency,
            "gc": {"programs": of_gc("programs"), "reads": of_gc("reads")},
        });
        let sections = counts.iter().map(|(section, counts)| (section.to_owned(), json!(counts)));
        line.as_object_mut().expect("it is one").extend(sections);
        line
    }
}
