//! Who looks on while a run goes, and may end it: progress, intervals, Ctrl-C.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvdrive_sim::Ns;

use super::Progress;
use super::intervals::Interval;

/// Hears of every interval as it ends.
pub type OnInterval = Rc<dyn Fn(&Interval<'_>)>;

/// How the measured operations of a run go, in the drive's own terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Going {
    /// Operations that were answered, counted.
    pub ops: u64,
    /// Model time since they began, ns.
    pub model_ns: Ns,
    /// NAND pages that were programmed meanwhile, counted.
    pub programs: u64,
    /// Bytes over the link meanwhile as the papers count them, counted.
    pub payload_bytes: u64,
}

/// What a run tells, and whom it asks whether to go on.
pub struct Watch<'a> {
    /// How far it is.
    pub progress: Progress<'a>,
    /// Hears, as often, how measured operations go in model time.
    pub going: Option<&'a dyn Fn(Going)>,
    /// Set by whoever wants it to end; what was done until then is reported.
    pub stop: Arc<AtomicBool>,
    /// Length of an interval, and who hears of them.
    pub intervals: Option<(Ns, OnInterval)>,
}

impl<'a> Watch<'a> {
    /// Nothing but progress.
    pub fn progress(progress: Progress<'a>) -> Watch<'a> {
        Watch { progress, going: None, stop: Arc::default(), intervals: None }
    }

    /// Has somebody asked for the end?
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
