//! Creation and deletion of functions and queues at run time.
//!
//! A deleted queue ends when all commands that the drive has taken from it are answered. Entries that were not taken
//! are dropped, completions are discarded, and namespaces give up their state of the queue; after that its identifier
//! is free. Creation takes no time; deletion waits.
//!
//! Hosts create and delete I/O queues by commands of their admin queue: the drive checks the command and
//! executes it here ([`crate::port::Queues`]). [`Link::create_queue`] and [`Link::delete_queue`] do the same
//! without a command: for transports whose hosts use other commands for it, and for tests of higher layers.
//! Functions exist before a host finds them, so no command creates them.

use std::rc::Rc;

use super::Link;
use super::function::{Completion, Function};
use crate::memory::HostMemory;
use crate::queue::{ADMIN_ENTRIES, CompletionRing, Owner, QueuePair};

impl Link {
    /// A new function with an admin queue, whose host has `memory`.
    pub fn create_function(&self, memory: Rc<dyn HostMemory>) -> Rc<Function> {
        let mut functions = self.functions.borrow_mut();
        let number = functions.next_free();
        let id = u16::try_from(number).expect("a function has a number of 16 bits");
        let function = Rc::new(Function::new(&self.sim, id, memory));
        functions.put(number, function.clone());
        drop(functions);
        self.create_queue_of(&function, ADMIN_ENTRIES);
        function
    }

    /// The function that every link has from the start.
    pub fn first_function(&self) -> Rc<Function> {
        self.functions.borrow().get(0).cloned().expect("it is not deleted")
    }

    /// The function that `queue` belongs to. A deleted function has no queues.
    pub fn function_of(&self, queue: &QueuePair) -> Rc<Function> {
        let number = usize::from(queue.function_id());
        self.functions.borrow().get(number).cloned().expect("a queue is of a function that is there")
    }

    /// Deletes a function and all of its queues, the admin queue last. Its number is free when that is done.
    pub fn delete_function(&self, function: &Rc<Function>) {
        let queues: Vec<_> = function.queues.borrow().submission.values().cloned().collect();
        queues.iter().rev().for_each(|queue| self.delete_queue(queue));
        function.queues.borrow_mut().completion.clear();
        self.functions.borrow_mut().remove(usize::from(function.id()));
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
        function: &Function,
        id: u16,
        entries: u32,
        completion: u16,
    ) -> Rc<QueuePair> {
        let (mut queues, mut of_function) = (self.queues.borrow_mut(), function.queues.borrow_mut());
        let completion = of_function.completion.get_mut(&completion).expect("its completion queue is there");
        completion.used_by += 1;
        let ring = completion.ring.clone();
        let session = queues.next_free();
        let owner = Owner { function_id: function.id(), memory: function.memory().clone() };
        let queue = Rc::new(QueuePair::new(&self.sim, owner, id, session as u32, entries, ring));
        queues.put(session, queue.clone());
        let before = of_function.submission.insert(id, queue.clone());
        assert!(before.is_none(), "submission queue {id} is there");
        queue
    }

    /// Deletes a queue pair; returns when nothing is left of it. A queue that was deleted before is not changed. The
    /// completion queue stays as long as other queues complete to it.
    pub fn delete_queue(&self, queue: &Rc<QueuePair>) {
        if self.delete_submission_queue(queue) {
            let (function, completion) = (self.function_of(queue), queue.completion_id());
            let mut of_function = function.queues.borrow_mut();
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
        let function = self.function_of(queue);
        let mut of_function = function.queues.borrow_mut();
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
