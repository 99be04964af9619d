//! The state of queues in a namespace of pairs: unfinished values and windows. *transfer* commands of several queues
//! never mix.

use std::cell::Cell;

use kvdrive_link::Session;
use kvdrive_link::transfer::Assembly;
use kvdrive_nvme::Status;
use kvdrive_nvme::window::NO_WINDOW;
use kvdrive_sim::TaskCell;

use super::open_window::OpenWindow;
use super::staging::Staged;

/// State that a queue's inline commands have left.
pub enum Unfinished<P> {
    /// A value that misses bytes.
    Value(Assembly<P>),
    /// A batch that misses bytes.
    Batch(Assembly<Staged, ()>),
    /// A quiet command was refused with this; the next that is not quiet says so.
    Refused(Status),
}

/// State of one queue between its commands.
pub struct QueueState<P, W> {
    pub(super) unfinished: Option<Unfinished<P>>,
    pub(super) window: Option<OpenWindow<W>>,
}

impl<P, W> Default for QueueState<P, W> {
    fn default() -> QueueState<P, W> {
        QueueState { unfinished: None, window: None }
    }
}

/// By the number of the session.
pub struct Sessions<P, W> {
    pub(super) by_number: TaskCell<Vec<QueueState<P, W>>>,
    last_generation: Cell<u32>,
    /// Number of values in windows and of requests for a window.
    uses: Cell<u64>,
}

impl<P, W> Sessions<P, W> {
    /// None has left anything.
    pub fn new() -> Sessions<P, W> {
        Sessions { by_number: TaskCell::default(), last_generation: Cell::new(NO_WINDOW), uses: Cell::new(0) }
    }

    /// The state of a queue, if it has any.
    pub(super) fn of<T>(
        &self,
        session: &Session,
        what: impl FnOnce(&mut QueueState<P, W>) -> T,
    ) -> Option<T> {
        self.by_number.borrow_mut().get_mut(session.number() as usize).map(what)
    }

    /// The state of a queue, to change it.
    pub(super) fn of_new<T>(&self, session: &Session, what: impl FnOnce(&mut QueueState<P, W>) -> T) -> T {
        let index = session.number() as usize;
        let mut by_number = self.by_number.borrow_mut();
        if by_number.len() <= index {
            by_number.resize_with(index + 1, QueueState::default);
        }
        what(&mut by_number[index])
    }

    /// Takes out the value that a queue has begun, or why it was refused.
    pub fn take_unfinished(&self, session: &Session) -> Option<Unfinished<P>> {
        self.of(session, |left| left.unfinished.take()).flatten()
    }

    /// Keeps it until the queue's next inline command.
    pub fn keep_unfinished(&self, session: &Session, unfinished: Unfinished<P>) {
        let before = self.of_new(session, |left| left.unfinished.replace(unfinished));
        assert!(before.is_none(), "session {} would hold two unfinished values", session.number());
    }

    /// Takes everything that a queue which has ended has left.
    pub fn end(&self, session: &Session) -> Option<QueueState<P, W>> {
        self.of(session, std::mem::take)
    }

    /// Counts a use of a window; returns the number of uses so far.
    pub(super) fn count_use(&self) -> u64 {
        self.uses.set(self.uses.get() + 1);
        self.uses.get()
    }

    pub(super) fn uses(&self) -> u64 {
        self.uses.get()
    }

    /// A number that no window has had.
    pub(super) fn next_generation(&self) -> u32 {
        let generation = self.last_generation.get().wrapping_add(1).max(NO_WINDOW + 1);
        self.last_generation.set(generation);
        generation
    }
}
