//! Values of which only a part has arrived, one per submission queue at most: *transfer* commands of several queues
//! never mix.

use std::cell::RefCell;

use kvdrive_link::QueuePair;
use kvdrive_link::transfer::Assembly;

/// Unfinished values by queue.
pub struct Unfinished<P> {
    by_queue: RefCell<Vec<Option<Assembly<P>>>>,
}

impl<P> Unfinished<P> {
    /// None.
    pub fn new() -> Unfinished<P> {
        Unfinished { by_queue: RefCell::new(Vec::new()) }
    }

    /// Takes the unfinished value of `queue` out.
    pub fn take(&self, queue: &QueuePair) -> Option<Assembly<P>> {
        self.by_queue.borrow_mut().get_mut(usize::from(queue.id()))?.take()
    }

    /// Keeps `assembly` until the queue's next inline command.
    pub fn keep(&self, queue: &QueuePair, assembly: Assembly<P>) {
        let index = usize::from(queue.id());
        let mut by_queue = self.by_queue.borrow_mut();
        if by_queue.len() <= index {
            by_queue.resize_with(index + 1, || None);
        }
        let before = by_queue[index].replace(assembly);
        assert!(before.is_none(), "queue {} would hold two unfinished values", queue.id());
    }
}
