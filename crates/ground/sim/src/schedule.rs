//! What an executor has to run, in order: an agenda of future events, and a queue of tasks that are ready now. The
//! executor itself keeps the clock and the running task.

use std::collections::VecDeque;

use crate::Ns;
use crate::agenda::Agenda;
use crate::tasks::{TaskKey, Tasks};

/// A task that is due at the present time.
pub(crate) struct Ready {
    pub(crate) order: u64,
    pub(crate) task: TaskKey,
    /// The task would only sleep for this many ns, so it is scheduled for then without being resumed; 0: it
    /// is resumed.
    pub(crate) sleeps: Ns,
}

/// All tasks, and the events at which they are due.
#[derive(Default)]
pub(crate) struct Schedule {
    pub(crate) agenda: Agenda,
    /// Tasks that are due at the present time, in order; empty in permuted mode.
    pub(crate) ready: VecDeque<Ready>,
    pub(crate) tasks: Tasks,
}

/// An event that is due.
pub(crate) struct Due {
    pub(crate) at: Ns,
    pub(crate) task: TaskKey,
    /// See [`Ready`].
    pub(crate) sleeps: Ns,
}

impl Schedule {
    /// Removes the earliest event.
    #[inline]
    pub(crate) fn pop(&mut self, now: Ns, next_due: Ns) -> Option<Due> {
        if let Some(front) = self.ready.front() {
            // Ready tasks are due at the present time, so an event of the agenda is rarely earlier.
            let other_first =
                next_due == now && self.agenda.first().is_some_and(|first| first.order < front.order);
            if !other_first {
                let Ready { task, sleeps, .. } = *front;
                self.ready.pop_front();
                return Some(Due { at: now, task, sleeps });
            }
        }
        self.agenda.pop().map(|event| Due { at: event.at, task: event.task, sleeps: 0 })
    }
}
