//! [`Carrier`]: which thread carries a drive out by its calls, if one does.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use kvdrive_sim::ForkCount;

/// The drive runs in calls of the thread that opened it, and this is another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the drive runs in the thread that opened it, and this is another one")]
pub struct OtherThread;

/// The thread whose calls run the drive; empty if the drive has a thread of its own.
#[derive(Clone, Default)]
pub(super) struct Carrier(Arc<OnceLock<u64>>);

impl Carrier {
    /// May this thread run the drive? Not in a forked child: medium and files belong to the parent.
    pub(super) fn may_run(&self, forks: ForkCount) -> bool {
        self.check().is_ok() && !forks.is_forked()
    }

    /// Has the calls of this thread carry it out from now on.
    pub(super) fn set_here(&self) {
        assert!(self.0.set(this_thread()).is_ok(), "a link is of one drive");
    }

    #[inline]
    pub(super) fn check(&self) -> Result<(), OtherThread> {
        if self.0.get().is_none_or(|carrier| *carrier == this_thread()) { Ok(()) } else { Err(OtherThread) }
    }
}

/// A number that no other thread of this process has or had.
#[inline]
fn this_thread() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    thread_local!(static THIS: Cell<u64> = const { Cell::new(0) });
    match THIS.get() {
        0 => {
            THIS.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
            THIS.get()
        }
        number => number,
    }
}
