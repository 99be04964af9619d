//! The columns of a comparison: which figures there are, and which are shown for a workload.

use super::rows::Row;
use crate::report::table::{bandwidth, rate, short, time};
use crate::report::{Latency, Report};
use kvdrive_text::grouped;

/// One figure of the table: two lines of heading, and how it is computed from a report.
pub(super) struct Figure {
    pub(super) heading: [&'static str; 2],
    pub(super) kind: Kind,
    read: Read,
    show: fn(f64) -> String,
}

/// How to compute a figure; the function returns none if the report does not have it.
enum Read {
    Report(fn(&Report) -> Option<f64>),
    /// From the latencies of one kind of operation.
    Latency(&'static str, fn(&Latency) -> f64),
}

impl Figure {
    fn of_report(&self, report: &Report) -> Option<f64> {
        match self.read {
            Read::Report(read) => read(report),
            Read::Latency(operation, read) => report.latency_ns.get(operation).map(read),
        }
    }

    /// Mean over the seeds of a row.
    pub(super) fn of(&self, row: &Row<'_>) -> Option<f64> {
        let sum: Option<f64> = row.0.iter().map(|report| self.of_report(report)).sum();
        sum.map(|sum| sum / row.0.len() as f64)
    }

    /// Half of the range over the seeds of a row, relative to their mean.
    fn spread(&self, row: &Row<'_>) -> Option<f64> {
        let values: Option<Vec<f64>> = row.0.iter().map(|report| self.of_report(report)).collect();
        let (values, mean) = (values.filter(|values| values.len() > 1)?, self.of(row)?);
        let (least, most) = values
            .iter()
            .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
        Some(if mean == 0.0 { 0.0 } else { (most - least) / 2.0 / mean })
    }

    pub(super) fn cell(&self, row: &Row<'_>) -> String {
        let cell = self.of(row).map_or_else(|| "-".to_owned(), self.show);
        match self.spread(row) {
            Some(spread) => format!("{cell} ±{:.1} %", 100.0 * spread),
            None => cell,
        }
    }
}

const fn mean(operation: &'static str) -> Figure {
    let read = Read::Latency(operation, |latency| latency.mean);
    Figure { heading: [operation, "mean"], kind: Kind::Timed, read, show: time }
}

const fn p99(operation: &'static str) -> Figure {
    let read = Read::Latency(operation, |latency| latency.p99 as f64);
    Figure { heading: [operation, "p99"], kind: Kind::Timed, read, show: time }
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Counted,
    Timed,
}

const OPERATIONS: Figure = Figure {
    heading: ["operations", ""],
    kind: Kind::Timed,
    read: Read::Report(|report| (report.ops.answered() > 0).then_some(report.throughput_ops_per_s)),
    show: rate,
};
const STORED: Figure = Figure {
    heading: ["stored", ""],
    kind: Kind::Timed,
    read: Read::Report(|report| {
        (report.value_bytes.stored > 0).then_some(report.bandwidth_bytes_per_s.stored)
    }),
    show: bandwidth,
};
const RETURNED: Figure = Figure {
    heading: ["returned", ""],
    kind: Kind::Timed,
    read: Read::Report(|report| {
        (report.value_bytes.retrieved > 0).then_some(report.bandwidth_bytes_per_s.retrieved)
    }),
    show: bandwidth,
};
const STORE_MEAN: Figure = mean("store");
const STORE_P99: Figure = p99("store");
const RETRIEVE_MEAN: Figure = mean("retrieve");
const RETRIEVE_P99: Figure = p99("retrieve");
// A scan is a seek and its nexts.
const SEEK_MEAN: Figure = mean("seek");
const SEEK_P99: Figure = p99("seek");
const NEXT_MEAN: Figure = mean("next");
const NEXT_P99: Figure = p99("next");
const PAYLOAD: Figure = Figure {
    heading: ["payload", "B/op"],
    kind: Kind::Counted,
    read: Read::Report(|report| {
        let ops = report.ops.answered();
        let payload = report.counts.get("traffic.payload_bytes").filter(|_| ops > 0)?;
        Some(payload as f64 / ops as f64)
    }),
    show: short,
};
const TRAFFIC: Figure = Figure {
    heading: ["traffic", "amp."],
    kind: Kind::Counted,
    read: Read::Report(|report| report.amplification.traffic),
    show: short,
};
pub(super) const VALUE_PAGES: Figure = Figure {
    heading: ["value", "pages"],
    kind: Kind::Counted,
    read: Read::Report(|report| report.counts.get("engine.value_pages_opened").map(|pages| pages as f64)),
    show: |pages| grouped(pages as u64),
};
const READS: Figure = Figure {
    heading: ["NAND", "reads"],
    kind: Kind::Counted,
    read: Read::Report(|report| report.counts.get("nand.reads").map(|pages| pages as f64)),
    show: |pages| grouped(pages as u64),
};
const PROGRAMS: Figure = Figure {
    heading: ["NAND", "programs"],
    kind: Kind::Counted,
    read: Read::Report(|report| report.counts.get("nand.programs").map(|pages| pages as f64)),
    show: |pages| grouped(pages as u64),
};
const WRITE_AMPLIFICATION: Figure = Figure {
    heading: ["write", "amp."],
    kind: Kind::Counted,
    read: Read::Report(|report| report.amplification.write),
    show: short,
};
/// An extra column, shown if operations failed.
pub(super) const ERRORS: Figure = Figure {
    heading: ["errors", ""],
    kind: Kind::Counted,
    read: Read::Report(|report| Some(report.ops.errors as f64)),
    show: |errors| grouped(errors as u64),
};

/// Columns for workloads that store, and the figures compared with the first report below the table.
const STORING: (&[Figure], &[Figure]) = (
    &[
        OPERATIONS,
        STORE_MEAN,
        STORE_P99,
        PAYLOAD,
        TRAFFIC,
        VALUE_PAGES,
        PROGRAMS,
        WRITE_AMPLIFICATION,
        STORED,
    ],
    &[PAYLOAD, PROGRAMS, STORE_MEAN],
);
/// The same for workloads that also read.
const READING: (&[Figure], &[Figure]) = (
    &[
        OPERATIONS,
        RETRIEVE_MEAN,
        RETRIEVE_P99,
        STORE_MEAN,
        STORE_P99,
        READS,
        PROGRAMS,
        WRITE_AMPLIFICATION,
        RETURNED,
        STORED,
    ],
    &[OPERATIONS, READS, PROGRAMS],
);
/// The same for workloads that scan.
const SCANNING: (&[Figure], &[Figure]) = (
    &[
        OPERATIONS,
        SEEK_MEAN,
        SEEK_P99,
        NEXT_MEAN,
        NEXT_P99,
        STORE_MEAN,
        READS,
        PROGRAMS,
        WRITE_AMPLIFICATION,
        RETURNED,
        STORED,
    ],
    &[OPERATIONS, READS, PROGRAMS],
);
/// The same for a mixture of workloads that read and that scan.
const READING_AND_SCANNING: (&[Figure], &[Figure]) = (
    &[
        OPERATIONS,
        RETRIEVE_MEAN,
        RETRIEVE_P99,
        SEEK_MEAN,
        NEXT_MEAN,
        STORE_MEAN,
        READS,
        PROGRAMS,
        WRITE_AMPLIFICATION,
        RETURNED,
        STORED,
    ],
    &[OPERATIONS, READS, PROGRAMS],
);

/// The columns for these reports: a workload reads (or scans) if at least one in ten operations does. The
/// nexts of a scan count as part of it.
pub(super) fn figures(reports: &[Report]) -> (&'static [Figure], &'static [Figure]) {
    let is_often = |report: &Report, count: u64| count * 10 > report.ops.total() - report.ops.next;
    let reads = reports.iter().any(|report| is_often(report, report.ops.retrieve));
    let scans = reports.iter().any(|report| is_often(report, report.ops.seek));
    match (reads, scans) {
        (false, false) => STORING,
        (true, false) => READING,
        (false, true) => SCANNING,
        (true, true) => READING_AND_SCANNING,
    }
}
