//! The tasks of an executor: a slab of coroutines. When they are due is in [`crate::schedule`].

use crate::coroutine::Coroutine;
use crate::occupation::OccupationId;

/// Identifies a task for as long as it lives; waking a task that has ended does nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TaskKey {
    slot: u32,
    generation: u32,
}

/// The caller of [`crate::Sim::block_on`], which runs on its own stack.
pub(crate) const ROOT: TaskKey = TaskKey { slot: u32::MAX, generation: 0 };
/// No task of this executor runs.
pub(crate) const NO_TASK: TaskKey = TaskKey { slot: u32::MAX, generation: 1 };

#[derive(Default)]
pub(crate) struct TaskSlot {
    generation: u32,
    /// `None` while the task runs, and in a free slot. It is taken out and put back for every event, so it is
    /// boxed and only a pointer moves.
    pub(crate) coroutine: Option<Box<Coroutine>>,
    /// The task is a branch of [`crate::join_all`], whose caller drops it.
    pub(crate) is_branch: bool,
    /// The sums to which its time is added; see [`crate::occupation`].
    pub(crate) occupies: OccupationId,
}

#[derive(Default)]
pub(crate) struct Tasks {
    pub(crate) slots: Vec<TaskSlot>,
    free: Vec<u32>,
}

impl Tasks {
    /// Allocates a slot for a task that is about to start.
    pub(crate) fn open(&mut self, is_branch: bool, occupies: OccupationId) -> TaskKey {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(TaskSlot::default());
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        entry.is_branch = is_branch;
        entry.occupies = occupies;
        TaskKey { slot, generation: entry.generation }
    }

    /// Takes the coroutine out, to resume it, and the place of its sums; `None` if the task has ended or runs.
    #[inline]
    pub(crate) fn take(&mut self, key: TaskKey) -> Option<(Box<Coroutine>, OccupationId)> {
        let entry = &mut self.slots[key.slot as usize];
        // A slot's generation changes when its task ends, so the key of an ended task does not match.
        if entry.generation != key.generation {
            return None;
        }
        Some((entry.coroutine.take()?, entry.occupies))
    }

    /// Adds the time of this running task to `place` from now on.
    pub(crate) fn occupy(&mut self, key: TaskKey, place: OccupationId) {
        self.slots[key.slot as usize].occupies = place;
    }

    /// The place of the sums of a task.
    pub(crate) fn occupied_by(&self, key: TaskKey) -> OccupationId {
        let entry = &self.slots[key.slot as usize];
        if entry.generation == key.generation { entry.occupies } else { OccupationId::default() }
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
