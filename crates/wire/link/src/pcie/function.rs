//! PCI functions: NVMe controllers as hosts see them. Each has its own host memory and queue identifiers; all
//! share the link, the time of doorbells and the drive.
//!
//! Functions and their queues are created and deleted at run time. A deleted queue ends when the commands
//! that the drive has taken from it have been answered: entries that were not taken are dropped, completions
//! are discarded, a namespace's state of it is given up, and only then its identifier is free. Creation takes
//! no time; deletion waits.
//!
//! Hosts create and delete I/O queues by commands of their admin queue: the drive checks the command and
//! executes it here ([`crate::port::Queues`]). [`Link::create_queue`] and [`Link::delete_queue`] do the same
//! without a command: for transports whose hosts use other commands for it, and for tests of higher layers.
//! Functions exist before a host finds them, so no command creates them.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kvdrive_sim::{Mutex, TaskCell};

use super::{ADMIN_ENTRIES, Link};
use crate::memory::HostMemory;
use crate::queue::{CompletionRing, QueuePair};

/// One NVMe controller.
pub struct Function {
    id: u16,
    memory: Rc<dyn HostMemory>,
    queues: TaskCell<OfFunction>,
    administration: Mutex,
}

/// Queues of a function by identifier; identifier 0 is the admin queue.
#[derive(Default)]
struct OfFunction {
    submission: BTreeMap<u16, Rc<QueuePair>>,
    completion: BTreeMap<u16, Completion>,
}

/// A completion queue, and how many submission queues complete to it.
struct Completion {
    ring: Rc<CompletionRing>,
    used_by: usize,
}

impl OfFunction {
    /// Does a submission queue complete to `completion`?
    fn is_used(&self, completion: u16) -> bool {
        self.completion.get(&completion).is_some_and(|queue| queue.used_by > 0)
    }

    /// The lowest identifier that neither kind of queue uses; `None` if all are used.
    fn next_free(&self) -> Option<u16> {
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
    /// Its number, from 0 on.
    pub fn id(&self) -> u16 {
        self.id
    }

    pub(super) fn memory(&self) -> &dyn HostMemory {
        &*self.memory
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

/// Numbered objects: a new one gets the lowest free number.
pub(super) struct Numbered<T> {
    places: Vec<Option<T>>,
    free: BTreeSet<usize>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        Numbered { places: Vec::new(), free: BTreeSet::new() }
    }
}

impl<T> Numbered<T> {
    /// One more than the highest number ever used.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<&T> {
        self.places.get(number)?.as_ref()
    }

    fn next_free(&self) -> usize {
        self.free.first().copied().unwrap_or(self.places.len())
    }

    fn put(&mut self, number: usize, thing: T) {
        if !self.free.remove(&number) {
            self.places.push(None);
        }
        self.places[number] = Some(thing);
    }

    fn remove(&mut self, number: usize) {
        self.places[number] = None;
        self.free.insert(number);
    }
}

impl Link {
    /// A new function with an admin queue, whose host has `memory`.
    pub fn create_function(&self, memory: Rc<dyn HostMemory>) -> Rc<Function> {
        let mut functions = self.functions.borrow_mut();
        let number = functions.next_free();
        let id = u16::try_from(number).expect("a function has a number of 16 bits");
        let function = Rc::new(Function {
            id,
            memory,
            queues: TaskCell::default(),
            administration: Mutex::new(&self.sim),
        });
        functions.put(number, function.clone());
        drop(functions);
        self.create_queue_of(&function, ADMIN_ENTRIES);
        function
    }

    /// The function that every link has from the start.
    pub fn first_function(&self) -> Rc<Function> {
        self.functions.borrow().get(0).cloned().expect("it is not deleted")
    }

    /// Deletes a function and all of its queues, the admin queue last. Its number is free when that is done.
    pub fn delete_function(&self, function: &Rc<Function>) {
        let queues: Vec<_> = function.queues.borrow().submission.values().cloned().collect();
        queues.iter().rev().for_each(|queue| self.delete_queue(queue));
        function.queues.borrow_mut().completion.clear();
        self.functions.borrow_mut().remove(usize::from(function.id));
    }

    /// Creates an I/O queue pair of `entries` slots for `function`, with the lowest free identifier. Panics
    /// if no identifier is free.
    pub fn create_queue_of(&self, function: &Rc<Function>, entries: u32) -> Rc<QueuePair> {
        let free = function.queues.borrow().next_free();
        let id = free.expect("a queue has an identifier of 16 bits");
        self.create_completion_queue(function, id, entries);
        self.create_submission_queue(function, id, entries, id)
    }

    /// Creates a completion queue. Panics if the identifier is used.
    pub(super) fn create_completion_queue(&self, function: &Function, id: u16, entries: u32) {
        let ring = Rc::new(CompletionRing::new(&self.sim, id, entries));
        let before = function.queues.borrow_mut().completion.insert(id, Completion { ring, used_by: 0 });
        assert!(before.is_none(), "completion queue {id} is there");
    }

    /// Creates a submission queue whose commands complete to queue `completion`. Panics if the identifier is
    /// used, or if there is no such completion queue.
    pub(super) fn create_submission_queue(
        &self,
        function: &Rc<Function>,
        id: u16,
        entries: u32,
        completion: u16,
    ) -> Rc<QueuePair> {
        let (mut queues, mut of_function) = (self.queues.borrow_mut(), function.queues.borrow_mut());
        let completion = of_function.completion.get_mut(&completion).expect("its completion queue is there");
        completion.used_by += 1;
        let ring = completion.ring.clone();
        let session = queues.next_free();
        let queue = Rc::new(QueuePair::new(&self.sim, function, id, session as u32, entries, ring));
        queues.put(session, queue.clone());
        let before = of_function.submission.insert(id, queue.clone());
        assert!(before.is_none(), "submission queue {id} is there");
        queue
    }

    /// Deletes a queue pair; returns when nothing is left of it. A queue that was deleted before is left
    /// alone. The completion queue stays as long as other queues complete to it.
    pub fn delete_queue(&self, queue: &Rc<QueuePair>) {
        if self.delete_submission_queue(queue) {
            let (mut of_function, completion) = (queue.function().queues.borrow_mut(), queue.completion_id());
            if !of_function.is_used(completion) {
                of_function.completion.remove(&completion);
            }
        }
    }

    /// Deletes a submission queue; returns when nothing is left of it. `false` if it was deleted before.
    pub(super) fn delete_submission_queue(&self, queue: &Rc<QueuePair>) -> bool {
        let Some(left) = queue.close() else { return false };
        self.visible.set(self.visible.get() - left);
        let session = queue.session();
        self.ready.borrow_mut().set(session.number() as usize, false);
        session.wait_idle();
        let on_end = self.on_end.borrow().clone();
        if let Some(ended) = on_end {
            ended(session);
        }
        self.queues.borrow_mut().remove(session.number() as usize);
        let mut of_function = queue.function().queues.borrow_mut();
        of_function.submission.remove(&queue.id());
        if let Some(completion) = of_function.completion.get_mut(&queue.completion_id()) {
            completion.used_by -= 1;
        }
        true
    }

    /// Deletes a completion queue that no submission queue uses.
    pub(super) fn delete_completion_queue(&self, function: &Function, id: u16) {
        let mut queues = function.queues.borrow_mut();
        assert!(!queues.is_used(id), "completion queue {id} has a submission queue");
        queues.completion.remove(&id);
    }
}
