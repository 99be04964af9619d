//! A run over time, for its report: how much was done in each interval of its clock (`run.interval_ns`).
//!
//! Latencies and flash operations by interval are reported as intervals end ([`super::intervals`]); this
//! module has only counts, which a report keeps and a figure draws.

use kvdrive_sim::Ns;

use super::tally::Tally;
use crate::report::Series;

/// Most intervals of a series, so that a report does not fill memory.
pub(super) const INTERVALS_MAX: usize = 1 << 20;

/// The consecutive intervals of one run.
pub(super) struct Sampler {
    /// Start of the present interval.
    began: Ns,
    /// Operations and transactions before it.
    before: (u64, u64),
    series: Series,
}

impl Sampler {
    /// Intervals of `interval_ns` that start at `began`. `has_units`: the workload consists of transactions.
    pub(super) fn new(interval_ns: Ns, began: Ns, has_units: bool) -> Sampler {
        let transactions = has_units.then(Vec::new);
        let series = Series { interval_ns, ops: Vec::new(), transactions };
        Sampler { began, before: (0, 0), series }
    }

    /// End of the present interval.
    pub(super) fn next_end(&self) -> Ns {
        self.began.saturating_add(self.series.interval_ns)
    }

    /// Has the series as many intervals as it may have?
    pub(super) fn is_full(&self) -> bool {
        self.series.ops.len() >= INTERVALS_MAX
    }

    /// Ends the present interval at `now`; `tally` covers the whole run.
    pub(super) fn end(&mut self, now: Ns, tally: &Tally) {
        if now == self.began {
            return;
        }
        self.series.ops.push(tally.ops - self.before.0);
        if let Some(transactions) = &mut self.series.transactions {
            transactions.push(tally.transactions - self.before.1);
        }
        (self.began, self.before) = (now, (tally.ops, tally.transactions));
    }

    /// Takes the series of all intervals.
    pub(super) fn take(&mut self) -> Series {
        std::mem::take(&mut self.series)
    }
}
