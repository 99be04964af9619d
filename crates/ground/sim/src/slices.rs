//! Tasks that do much work in slices, as an executor keeps them; when they take turns is in [`crate::turns`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::tasks::TaskKey;

/// Tasks that do much work in slices.
#[derive(Default)]
pub(crate) struct Slices {
    /// A loop gives turns to those between two slices.
    pub(crate) gives_turns: Cell<bool>,
    /// Tasks go on between two slices without a turn.
    pub(crate) stay_in_place: Cell<bool>,
    /// A slice has ended since this was last asked.
    pub(crate) has_ended: Cell<bool>,
    /// Tasks that wait for a turn, the one first that has waited longest.
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
