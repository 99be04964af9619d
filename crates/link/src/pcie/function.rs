//! PCI functions: NVMe controllers as hosts see them. Each has host memory and queue identifiers of its own;
//! link, doorbells' time and the drive behind them are shared.
//!
//! Functions and their queues come and go. A queue that is deleted ends when the commands that the drive has
//! taken from it have been answered: entries that were not taken are dropped, completions go nowhere, what a
//! namespace has of it is given up, and only then its identifier is free. Creating is done before anything is
//! asked of a drive and takes no time; deleting waits.

use std::collections::BTreeSet;
use std::rc::Rc;

use kvdrive_sim::TaskCell;

use super::{ADMIN_ENTRIES, Link};
use crate::memory::HostMemory;
use crate::queue::QueuePair;

/// One NVMe controller.
pub struct Function {
    id: u16,
    memory: Rc<dyn HostMemory>,
    /// By identifier; 0 is the admin queue.
    queues: TaskCell<Numbered<Rc<QueuePair>>>,
}

impl Function {
    /// Its number, from 0 on.
    pub fn id(&self) -> u16 {
        self.id
    }

    pub(super) fn memory(&self) -> &dyn HostMemory {
        &*self.memory
    }

    /// Its admin queue. Panics when the function was deleted.
    pub fn admin_queue(&self) -> Rc<QueuePair> {
        self.queues.borrow().get(0).cloned().expect("the function is there")
    }
}

/// Things with numbers: the lowest that is free for the next one.
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
    /// One more than the highest number there ever was.
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
        let function = Rc::new(Function { id, memory, queues: TaskCell::default() });
        functions.put(number, function.clone());
        drop(functions);
        self.create_queue_of(&function, ADMIN_ENTRIES);
        function
    }

    /// The function that every link has.
    pub fn first_function(&self) -> Rc<Function> {
        self.functions.borrow().get(0).cloned().expect("nobody has deleted it")
    }

    /// Deletes a function and all of its queues, the admin queue last. Its number is free when that is done.
    pub fn delete_function(&self, function: &Rc<Function>) {
        let queues: Vec<_> = function.queues.borrow().places.iter().flatten().cloned().collect();
        queues.iter().rev().for_each(|queue| self.delete_queue(queue));
        self.functions.borrow_mut().remove(usize::from(function.id));
    }

    /// Creates an I/O queue pair of `entries` slots for `function`, with the lowest identifier that is free.
    /// Panics when it has as many as there are identifiers.
    pub fn create_queue_of(&self, function: &Rc<Function>, entries: u32) -> Rc<QueuePair> {
        let (mut queues, mut of_function) = (self.queues.borrow_mut(), function.queues.borrow_mut());
        let (session, number) = (queues.next_free(), of_function.next_free());
        let id = u16::try_from(number).expect("a queue has an identifier of 16 bits");
        let queue = Rc::new(QueuePair::new(&self.sim, function, id, session as u32, entries));
        queues.put(session, queue.clone());
        of_function.put(number, queue.clone());
        queue
    }

    /// Deletes a queue pair; returns when nothing is left of it. One that is deleted already is not deleted
    /// again.
    pub fn delete_queue(&self, queue: &Rc<QueuePair>) {
        let Some(left) = queue.close() else { return };
        self.visible.set(self.visible.get() - left);
        let session = queue.session();
        session.wait_idle();
        let on_end = self.on_end.borrow().clone();
        if let Some(ended) = on_end {
            ended(session);
        }
        self.queues.borrow_mut().remove(session.number() as usize);
        queue.function().queues.borrow_mut().remove(usize::from(queue.id()));
    }
}
