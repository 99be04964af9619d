//! What the drive has of one queue, from its creation to its end.

use std::cell::Cell;

use kvdrive_sim::{Sim, WaitQueue};

/// A queue as the drive knows it: a number, under which a namespace keeps what the queue's commands leave
/// behind between them, and whose turn it is among those whose order matters.
///
/// No other queue has the number before this one has ended, and by then nothing is kept under it any more.
pub struct Session {
    number: u32,
    next: Cell<u64>,
    serving: Cell<u64>,
    waiting: WaitQueue,
}

impl Session {
    pub(crate) fn new(sim: &Sim, number: u32) -> Session {
        Session { number, next: Cell::new(0), serving: Cell::new(0), waiting: WaitQueue::new(sim) }
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
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
