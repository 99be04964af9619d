//! A run over time, for its report: how much was done in each interval of its clock (`run.interval_ns`).
//!
//! Who wants latencies and flash by interval has them as they end ([`super::intervals`]); here are counts alone,
//! which a report keeps and a figure draws.

use kvdrive_sim::Ns;

use super::Seen;
use crate::report::Series;

/// The intervals of one run, one behind the other.
pub(super) struct Sampler {
    /// When the interval that goes on began.
    began: Ns,
    /// What was done before it.
    before: Done,
    series: Series,
}

/// What was done since the run began.
#[derive(Clone, Copy, Default)]
struct Done {
    ops: u64,
    transactions: u64,
}

impl Done {
    fn of(seen: &Seen) -> Done {
        Done {
            ops: seen.latency.iter().map(|kind| kind.values().len()).sum(),
            transactions: seen.units.iter().map(|units| units.latency.values().len()).sum(),
        }
    }
}

impl Sampler {
    /// Intervals of `interval_ns` from `began` on. `has_units`: the workload consists of transactions.
    pub(super) fn new(interval_ns: Ns, began: Ns, has_units: bool) -> Sampler {
        let transactions = has_units.then(Vec::new);
        let series = Series { interval_ns, ops: Vec::new(), transactions };
        Sampler { began, before: Done::default(), series }
    }

    /// When the interval that goes on is to end.
    pub(super) fn next_end(&self) -> Ns {
        self.began.saturating_add(self.series.interval_ns)
    }

    /// The interval that goes on has ended `now`, with what was `seen` in the whole run.
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

    /// What it has.
    pub(super) fn take(&mut self) -> Series {
        std::mem::take(&mut self.series)
    }
}
