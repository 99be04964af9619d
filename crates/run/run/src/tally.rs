//! Sums of the work of applications, of one thread or of several.

use kvdrive_sim::Histogram;

use super::kinds::KINDS;

/// What applications saw in the present interval.
#[derive(Default)]
pub(crate) struct Recent {
    pub latency: [Histogram; KINDS.len()],
    pub errors: u64,
}

impl Recent {
    /// Adds the observations of another thread.
    pub(crate) fn add(&mut self, other: &Recent) {
        for (all, of) in self.latency.iter_mut().zip(&other.latency) {
            all.add(of);
        }
        self.errors += other.errors;
    }
}

/// The work since the start of a run, and the observations of applications in the present interval.
#[derive(Default)]
pub(crate) struct Tally {
    pub stored_bytes: u64,
    pub read_bytes: u64,
    pub ops: u64,
    pub transactions: u64,
    pub recent: Box<Recent>,
}

impl Tally {
    /// Adds the work of another thread.
    pub(crate) fn add(&mut self, other: &Tally) {
        self.stored_bytes += other.stored_bytes;
        self.read_bytes += other.read_bytes;
        self.ops += other.ops;
        self.transactions += other.transactions;
        self.recent.add(&other.recent);
    }
}
