//! Who looks on while a run goes, and may end it: progress, intervals, Ctrl-C.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvdrive_sim::Ns;

use super::Progress;
use super::intervals::Interval;

/// Hears of every interval as it ends.
pub type OnInterval = Rc<dyn Fn(&Interval<'_>)>;

/// What a run tells, and whom it asks whether to go on.
pub struct Watch<'a> {
    /// How far it is.
    pub progress: Progress<'a>,
    /// Set by whoever wants it to end; what was done until then is reported.
    pub stop: Arc<AtomicBool>,
    /// Length of an interval, and who hears of them.
    pub intervals: Option<(Ns, OnInterval)>,
}

impl<'a> Watch<'a> {
    /// Nothing but progress.
    pub fn progress(progress: Progress<'a>) -> Watch<'a> {
        Watch { progress, stop: Arc::default(), intervals: None }
    }

    /// Has somebody asked for the end?
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
