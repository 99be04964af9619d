//! What happened, step by step, for `kvdrive explain`. Off by default; then it costs one test of a flag.

use std::cell::{Cell, RefCell};

use crate::Ns;

/// One step: its place, kind, bytes and duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// Model time at which the step began, ns.
    pub at: Ns,
    /// Duration of the step, ns.
    pub span_ns: Ns,
    /// Part of the system: host, link, controller, ...
    pub room: &'static str,
    /// The kind of step.
    pub what: &'static str,
    /// Bytes moved, 0 if none.
    pub bytes: u64,
    /// Purpose (a traffic class, a flash purpose), or empty.
    pub purpose: &'static str,
}

/// A recorder of [`TraceEntry`]s.
#[derive(Default)]
pub struct Trace {
    on: Cell<bool>,
    entries: RefCell<Vec<TraceEntry>>,
}

impl Trace {
    /// Starts recording.
    pub fn start(&self) {
        self.on.set(true);
    }

    /// Stops recording and returns the recorded steps, ordered by time.
    pub fn take(&self) -> Vec<TraceEntry> {
        self.on.set(false);
        let mut entries = self.entries.take();
        entries.sort_by_key(|entry| entry.at);
        entries
    }

    /// Is the trace being recorded?
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.get()
    }

    /// Records one step that began at `at` and took `span_ns`.
    pub fn note(
        &self,
        at: Ns,
        span_ns: Ns,
        room: &'static str,
        what: &'static str,
        bytes: u64,
        purpose: &'static str,
    ) {
        if self.on.get() {
            self.entries.borrow_mut().push(TraceEntry { at, span_ns, room, what, bytes, purpose });
        }
    }
}
