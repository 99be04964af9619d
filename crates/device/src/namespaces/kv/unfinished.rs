//! Values of which only a part has arrived, one per submission queue at most: *transfer* commands of several
//! queues never mix.

use kvdrive_sim::TaskCell;

use kvdrive_link::Session;
use kvdrive_link::transfer::Assembly;
use kvdrive_spec::Status;

/// What a queue's inline commands have left behind.
pub enum Unfinished<P, B> {
    /// A value that misses bytes.
    Value(Assembly<P>),
    /// A batch that misses bytes.
    Batch(Assembly<B, ()>),
    /// A quiet command was refused with this; the next that is not quiet says so.
    Refused(Status),
}

/// By queue.
pub struct UnfinishedValues<P, B> {
    by_queue: TaskCell<Vec<Option<Unfinished<P, B>>>>,
}

impl<P, B> UnfinishedValues<P, B> {
    /// None.
    pub fn new() -> UnfinishedValues<P, B> {
        UnfinishedValues { by_queue: TaskCell::new(Vec::new()) }
    }

    /// Takes out what `queue` has left.
    pub fn take(&self, session: &Session) -> Option<Unfinished<P, B>> {
        self.by_queue.borrow_mut().get_mut(session.number() as usize)?.take()
    }

    /// Keeps it until the queue's next inline command.
    pub fn keep(&self, session: &Session, unfinished: Unfinished<P, B>) {
        let index = session.number() as usize;
        let mut by_queue = self.by_queue.borrow_mut();
        if by_queue.len() <= index {
            by_queue.resize_with(index + 1, || None);
        }
        let before = by_queue[index].replace(unfinished);
        assert!(before.is_none(), "session {index} would hold two unfinished values");
    }
}
