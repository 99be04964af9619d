//! The drive's state of one queue, from its creation to its deletion. A namespace keeps state that outlives a command
//! by the session's number.

use std::cell::Cell;

use kvdrive_sim::{Sim, WaitQueue};

/// A queue as the drive sees it: a number, by which namespaces keep their state of the queue; the turns of commands
/// whose order matters; the number of commands in progress.
///
/// Numbers are reused, but only after the session has ended; then nothing is kept under its number.
pub struct Session {
    number: u32,
    next: Cell<u64>,
    serving: Cell<u64>,
    waiting: WaitQueue,
    under_way: Cell<u32>,
    /// The queue is being deleted, which waits for its last command.
    is_closing: Cell<bool>,
    idle: WaitQueue,
}

impl Session {
    pub(crate) fn new(sim: &Sim, number: u32) -> Session {
        Session {
            number,
            next: Cell::new(0),
            serving: Cell::new(0),
            waiting: WaitQueue::new(sim),
            under_way: Cell::new(0),
            is_closing: Cell::new(false),
            idle: WaitQueue::new(sim),
        }
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Counts a command that was taken.
    #[inline]
    pub(crate) fn begin_command(&self) {
        self.under_way.set(self.under_way.get() + 1);
    }

    /// Counts a command that was answered.
    #[inline]
    pub(crate) fn end_command(&self) {
        self.under_way.set(self.under_way.get() - 1);
        if self.is_closing.get() {
            self.idle.wake_all();
        }
    }

    /// Stops the taking of commands. `false` if that was called before.
    pub(crate) fn close(&self) -> bool {
        !self.is_closing.replace(true)
    }

    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.get()
    }

    /// Waits until no command is in progress.
    pub(crate) fn wait_idle(&self) {
        while self.under_way.get() > 0 {
            self.idle.wait();
        }
    }

    /// Returns the turn of a command that was taken.
    pub(crate) fn give_turn(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    /// Waits for a command's turn.
    pub fn wait_turn(&self, turn: u64) {
        while self.serving.get() != turn {
            self.waiting.wait();
        }
    }

    /// Ends the present turn; the next command's turn begins.
    pub fn end_turn(&self) {
        self.serving.set(self.serving.get() + 1);
        self.waiting.wake_all();
    }
}
