//! Pins of the past: the content of the log at one moment stays readable, though it may die.
//!
//! The pin of a lookup ends with its command. The pin of a snapshot has no time limit, since a host decides when it
//! ends. So no task may wait for it, and space that only such pins hold counts as used
//! ([`ValueLog::snapshots_hold_segments`]). A large value that is read in several commands has no such pin: it keeps
//! its own segments (`large`).

use super::ValueLog;

impl ValueLog {
    /// Keeps everything that is in the log now readable: for a lookup, taken before the index is asked.
    #[inline]
    pub fn pin_all(&self) -> PastPin {
        let moment = self.0.state.borrow_mut().segments.pin();
        PastPin { log: self.clone(), moment }
    }

    /// [`ValueLog::pin_all`] for a snapshot.
    pub fn pin_snapshot(&self) -> SnapshotPin {
        self.0.state.borrow_mut().segments.snapshots += 1;
        SnapshotPin(self.pin_all())
    }

    /// Is a snapshot open?
    pub fn has_snapshots(&self) -> bool {
        self.0.state.borrow().segments.snapshots > 0
    }

    /// Are there dead segments that are not given back because of snapshots, or of values that are read in several
    /// commands?
    pub fn snapshots_hold_segments(&self) -> bool {
        let segments = &self.0.state.borrow().segments;
        segments.snapshots > 0 && segments.has_retired()
            || segments.kept_chains > 0 && segments.has_dead_chain()
    }
}

/// See [`ValueLog::pin_all`].
pub struct PastPin {
    log: ValueLog,
    moment: u64,
}

impl Drop for PastPin {
    #[inline]
    fn drop(&mut self) {
        let log = &self.log.0;
        if log.sim.halted() {
            return;
        }
        let mut state = log.state.borrow_mut();
        state.segments.unpin(self.moment);
        while let Some(id) = state.segments.next_unpinned() {
            drop(state);
            log.give_back(id);
            state = log.state.borrow_mut();
        }
    }
}

/// See [`ValueLog::pin_snapshot`].
pub struct SnapshotPin(PastPin);

impl Drop for SnapshotPin {
    fn drop(&mut self) {
        self.0.log.0.state.borrow_mut().segments.snapshots -= 1;
    }
}
