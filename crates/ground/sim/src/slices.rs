//! State of an executor about tasks that do long work in slices. [`crate::turns`] decides when they take turns.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::tasks::TaskKey;

/// Tasks that do much work in slices.
#[derive(Default)]
pub(crate) struct Slices {
    /// A loop is running that gives turns to tasks between two slices.
    pub(crate) gives_turns: Cell<bool>,
    /// Tasks continue after a slice without waiting for a turn.
    pub(crate) stay_in_place: Cell<bool>,
    /// A slice has ended since this was last asked.
    pub(crate) has_ended: Cell<bool>,
    /// Tasks that wait for a turn, longest waiting first.
    pub(crate) waiting: RefCell<VecDeque<TaskKey>>,
}

impl Slices {
    /// Has a task ended a slice of its work since the last call?
    pub(crate) fn take_end(&self) -> bool {
        self.has_ended.take()
    }

    /// Does a task wait for a turn?
    pub(crate) fn are_waiting(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }
}
