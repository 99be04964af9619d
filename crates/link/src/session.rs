//! What the drive has of one queue, from its creation to its end. What commands leave behind between them lies
//! with the namespace, under the session's number.

use std::cell::Cell;

use kvdrive_sim::{Sim, WaitQueue};

/// A queue as the drive knows it: a number, under which a namespace keeps what the queue's commands leave
/// behind between them; whose turn it is among those whose order matters; how many commands are under way.
///
/// Numbers are used again. No other queue gets one before this one has ended, and nothing is kept under it
/// then.
pub struct Session {
    number: u32,
    next: Cell<u64>,
    serving: Cell<u64>,
    waiting: WaitQueue,
    under_way: Cell<u32>,
    /// Its queue is being deleted: whoever does that waits for the last command.
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

    /// A command was taken.
    #[inline]
    pub(crate) fn begin_command(&self) {
        self.under_way.set(self.under_way.get() + 1);
    }

    /// A command that was taken has been answered.
    #[inline]
    pub(crate) fn end_command(&self) {
        self.under_way.set(self.under_way.get() - 1);
        if self.is_closing.get() {
            self.idle.wake_all();
        }
    }

    /// No command is taken any more. `false`: somebody has said so before.
    pub(crate) fn close(&self) -> bool {
        !self.is_closing.replace(true)
    }

    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.get()
    }

    /// Waits until no command is under way.
    pub(crate) fn wait_idle(&self) {
        while self.under_way.get() > 0 {
            self.idle.wait();
        }
    }

    /// A command was taken that has a turn: which one.
    pub(crate) fn give_turn(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    /// Waits for a command's turn.
    pub fn wait_turn(&self, turn: u64) {
        while self.serving.get() != turn {
            self.waiting.wait();
        }
    }

    /// The command whose turn it was is done; the next may come.
    pub fn end_turn(&self) {
        self.serving.set(self.serving.get() + 1);
        self.waiting.wake_all();
    }
}
