//! Observing and stopping a run: progress, intervals, Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvdrive_sim::Ns;

pub use super::intervals::OnInterval;

/// Callback for progress: operations done and operations in all, loading included.
pub type Progress<'a> = &'a dyn Fn(u64, u64);

/// Progress of the measured operations of a run, in the drive's own terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunProgress {
    /// Operations answered, counted.
    pub ops: u64,
    /// Model time since the first measured operation, ns.
    pub model_ns: Ns,
    /// NAND pages programmed since then, counted.
    pub programs: u64,
    /// Payload bytes over the link since then, counted as the papers do.
    pub payload_bytes: u64,
}

/// A run was stopped from outside before there was anything to report: it was still loading.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Stopped(pub String);

/// The observer of a run.
pub struct Watch<'a> {
    /// Called with the progress.
    pub progress: Progress<'a>,
    /// Called as often, with the progress of measured operations in model time.
    pub going: Option<&'a dyn Fn(RunProgress)>,
    /// When set, the run stops; the report covers the operations until then.
    pub stop: Arc<AtomicBool>,
    /// Length of an interval in ns, and the callback for intervals.
    pub intervals: Option<(Ns, OnInterval)>,
}

impl<'a> Watch<'a> {
    /// An observer of progress only.
    pub fn progress(progress: Progress<'a>) -> Watch<'a> {
        Watch { progress, going: None, stop: Arc::default(), intervals: None }
    }

    /// Was the run asked to stop?
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
