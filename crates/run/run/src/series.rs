//! A run over time, for its report: how much was done in each interval of its clock (`run.interval_ns`).
//!
//! Latencies and flash operations by interval are reported as intervals end ([`super::intervals`]); here are
//! only counts, which a report keeps and a figure draws.

use kvdrive_sim::Ns;

use super::Seen;
use crate::report::Series;

/// The consecutive intervals of one run.
pub(super) struct Sampler {
    /// Start of the present interval.
    began: Ns,
    /// What was done before it.
    before: Done,
    series: Series,
}

/// What was done since the start of the run.
#[derive(Clone, Copy, Default)]
struct Done {
    ops: u64,
    transactions: u64,
}

/// Most intervals of a series: more are more memory than a report is worth.
pub(super) const INTERVALS_MAX: usize = 1 << 20;

impl Done {
    fn of(seen: &Seen) -> Done {
        Done {
            ops: seen.latency.iter().map(|kind| kind.values().len()).sum(),
            transactions: seen.units.iter().map(|units| units.latency.values().len()).sum(),
        }
    }
}

impl Sampler {
    /// Intervals of `interval_ns` that start at `began`. `has_units`: the workload consists of transactions.
    pub(super) fn new(interval_ns: Ns, began: Ns, has_units: bool) -> Sampler {
        let transactions = has_units.then(Vec::new);
        let series = Series { interval_ns, ops: Vec::new(), transactions };
        Sampler { began, before: Done::default(), series }
    }

    /// End of the present interval.
    pub(super) fn next_end(&self) -> Ns {
        self.began.saturating_add(self.series.interval_ns)
    }

    /// Has the series as many intervals as it may have?
    pub(super) fn is_full(&self) -> bool {
        self.series.ops.len() >= INTERVALS_MAX
    }

    /// Ends the present interval at `now`; `seen` covers the whole run.
    pub(super) fn end(&mut self, now: Ns, seen: &Seen) {
        if now == self.began {
            return;
        }
        let done = Done::of(seen);
        self.series.ops.push(done.ops - self.before.ops);
        if let Some(transactions) = &mut self.series.transactions {
            transactions.push(done.transactions - self.before.transactions);
        }
        (self.began, self.before) = (now, done);
    }

    /// Takes the series of all intervals.
    pub(super) fn take(&mut self) -> Series {
        std::mem::take(&mut self.series)
    }
}
