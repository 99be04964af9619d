//! [`Function`]: an NVMe controller as hosts see it, with its queues. Each has its own host memory and queue identifiers; all
//! share the link, the time of doorbells and the drive. How they come and go is in [`creation`](super::creation).

use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_sim::{Mutex, Sim, TaskCell};

use crate::memory::HostMemory;
use crate::queue::{CompletionRing, QueuePair};

/// One NVMe controller.
pub struct Function {
    id: u16,
    memory: Rc<dyn HostMemory>,
    pub(super) queues: TaskCell<OfFunction>,
    administration: Mutex,
}

/// Queues of a function by identifier; identifier 0 is the admin queue.
#[derive(Default)]
pub(super) struct OfFunction {
    pub(super) submission: BTreeMap<u16, Rc<QueuePair>>,
    pub(super) completion: BTreeMap<u16, Completion>,
}

/// A completion queue, and how many submission queues complete to it.
pub(super) struct Completion {
    pub(super) ring: Rc<CompletionRing>,
    pub(super) used_by: usize,
}

impl OfFunction {
    /// Does a submission queue complete to `completion`?
    pub(super) fn is_used(&self, completion: u16) -> bool {
        self.completion.get(&completion).is_some_and(|queue| queue.used_by > 0)
    }

    /// The lowest identifier that neither kind of queue uses; `None` if all are used.
    pub(super) fn next_free(&self) -> Option<u16> {
        let count = self.submission.len();
        let is_dense = |last: Option<&u16>| last.is_none_or(|last| usize::from(*last) < count);
        if is_dense(self.submission.keys().last()) && is_dense(self.completion.keys().last()) {
            // All lower identifiers are used.
            return u16::try_from(count).ok();
        }
        let is_there = |id: &u16| self.submission.contains_key(id) || self.completion.contains_key(id);
        (0..=u16::MAX).find(|id| !is_there(id))
    }
}

impl Function {
    /// A function without queues.
    pub(super) fn new(sim: &Sim, id: u16, memory: Rc<dyn HostMemory>) -> Function {
        Function { id, memory, queues: TaskCell::default(), administration: Mutex::new(sim) }
    }

    /// Its number, from 0 on.
    pub fn id(&self) -> u16 {
        self.id
    }

    pub(super) fn memory(&self) -> &Rc<dyn HostMemory> {
        &self.memory
    }

    /// Its admin queue. Panics if the function was deleted.
    pub fn admin_queue(&self) -> Rc<QueuePair> {
        self.queue(0).expect("the function is there")
    }

    /// The submission queue with this identifier, to which its doorbell belongs.
    pub fn queue(&self, id: u16) -> Option<Rc<QueuePair>> {
        self.queues.borrow().submission.get(&id).cloned()
    }

    /// Held while a command is outstanding in its admin queue, if several tasks are its host.
    pub fn administration(&self) -> &Mutex {
        &self.administration
    }

    /// The lowest identifier that no queue uses; a host knows which ones it has created. `None`: all are
    /// used.
    pub fn free_id(&self) -> Option<u16> {
        self.queues.borrow().next_free()
    }

    /// Does it have an I/O queue of any kind?
    pub(super) fn has_io_queues(&self) -> bool {
        let queues = self.queues.borrow();
        queues.submission.len() > 1 || queues.completion.len() > 1
    }

    /// Does it have a completion queue with this identifier? `Some(true)`: it has, and a submission queue
    /// completes to it.
    pub(super) fn completion_queue(&self, id: u16) -> Option<bool> {
        let queues = self.queues.borrow();
        queues.completion.contains_key(&id).then(|| queues.is_used(id))
    }
}
