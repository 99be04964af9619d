//! The tasks of an executor, and which of them is due next: a slab of stacks, an agenda of times to come, and a queue
//! for the present time. What time it is, and who runs, is the executor's.

use std::collections::VecDeque;

use crate::Ns;
use crate::agenda::Agenda;
use crate::coroutine::Coroutine;

/// Names a task for as long as it lives; a key of a task that has ended wakes nobody.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TaskKey {
    slot: u32,
    generation: u32,
}

/// Whoever called [`crate::Sim::block_on`]: it runs on that one's own stack.
pub(crate) const ROOT: TaskKey = TaskKey { slot: u32::MAX, generation: 0 };
/// Nothing of this executor runs.
pub(crate) const NOBODY: TaskKey = TaskKey { slot: u32::MAX, generation: 1 };

/// A task that is due now.
pub(crate) struct Ready {
    pub(crate) order: u64,
    pub(crate) task: TaskKey,
    /// It would only sleep for so long, so it is put away for that without being resumed; 0: it is resumed.
    pub(crate) sleeps: Ns,
}

#[derive(Default)]
pub(crate) struct TaskSlot {
    generation: u32,
    /// `None` while the task runs, and in a free slot. Taken out and put back for every event, so no more than
    /// a pointer is moved.
    pub(crate) coroutine: Option<Box<Coroutine>>,
    /// It is a branch of [`crate::join_all`], whose caller drops it.
    pub(crate) is_branch: bool,
}

#[derive(Default)]
pub(crate) struct Tasks {
    pub(crate) slots: Vec<TaskSlot>,
    free: Vec<u32>,
}

impl Tasks {
    /// A place for a task that is about to begin.
    pub(crate) fn open(&mut self, is_branch: bool) -> TaskKey {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(TaskSlot::default());
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        entry.is_branch = is_branch;
        TaskKey { slot, generation: entry.generation }
    }

    /// The task itself, to let it run; `None` if it has ended or runs.
    #[inline]
    pub(crate) fn take(&mut self, key: TaskKey) -> Option<Box<Coroutine>> {
        let entry = &mut self.slots[key.slot as usize];
        // A slot changes its generation when its task ends, so the key of an ended task finds none.
        if entry.generation == key.generation { entry.coroutine.take() } else { None }
    }

    #[inline]
    pub(crate) fn put(&mut self, key: TaskKey, coroutine: Box<Coroutine>) {
        self.slots[key.slot as usize].coroutine = Some(coroutine);
    }

    #[inline]
    pub(crate) fn close(&mut self, key: TaskKey) {
        let entry = &mut self.slots[key.slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key.slot);
    }
}

/// Who is there, and who is due when.
#[derive(Default)]
pub(crate) struct Schedule {
    pub(crate) agenda: Agenda,
    /// What is due at the present time, in order; empty in permuted mode.
    pub(crate) ready: VecDeque<Ready>,
    pub(crate) tasks: Tasks,
}

/// An event that has come.
pub(crate) struct Due {
    pub(crate) at: Ns,
    pub(crate) task: TaskKey,
    /// See [`Ready`].
    pub(crate) sleeps: Ns,
}

impl Schedule {
    /// Takes the earliest event out.
    #[inline]
    pub(crate) fn pop(&mut self, now: Ns, next_due: Ns) -> Option<Due> {
        if let Some(front) = self.ready.front() {
            // What is ready is of the present time; so an event of the agenda is rarely older.
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
