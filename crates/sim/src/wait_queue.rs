//! Tasks that wait for each other, first come first served.
//!
//! A wake-up given to one waiter is a *grant* that cannot be lost: a waiter dropped after it was granted passes the
//! grant on. Everything else that waits ([`crate::Resource`], [`crate::Mutex`], [`crate::KeyedLock`]) stands on this.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::executor::{Sim, TaskKey};

/// A FIFO of waiting tasks.
pub struct WaitQueue {
    sim: Sim,
    waiting: RefCell<VecDeque<(u64, TaskKey)>>,
    /// Tickets that were granted and not yet noticed by their waiter. Almost always empty or one long.
    granted: RefCell<Vec<u64>>,
    next_ticket: Cell<u64>,
}

impl WaitQueue {
    /// An empty queue on `sim`.
    pub fn new(sim: &Sim) -> WaitQueue {
        WaitQueue {
            sim: sim.clone(),
            waiting: RefCell::default(),
            granted: RefCell::default(),
            next_ticket: Cell::new(0),
        }
    }

    /// Waits until granted by [`WaitQueue::wake_one`] or [`WaitQueue::wake_all`]. The place in the queue is taken
    /// when the future is first polled.
    pub fn wait(&self) -> Wait<'_> {
        Wait {
            queue: self,
            ticket: None,
        }
    }

    /// Grants the longest waiting task; `false` if nobody waits.
    pub fn wake_one(&self) -> bool {
        let Some((ticket, task)) = self.waiting.borrow_mut().pop_front() else {
            return false;
        };
        self.granted.borrow_mut().push(ticket);
        self.sim.wake(task);
        true
    }

    /// Grants everybody who waits now.
    pub fn wake_all(&self) {
        while self.wake_one() {}
    }

    /// Does nobody wait?
    pub fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.borrow().len()
    }
}

/// One task's place in a [`WaitQueue`].
pub struct Wait<'a> {
    queue: &'a WaitQueue,
    ticket: Option<u64>,
}

impl Wait<'_> {
    fn take_grant(&self, ticket: u64) -> bool {
        let mut granted = self.queue.granted.borrow_mut();
        let found = granted.iter().position(|other| *other == ticket);
        found.map(|index| granted.swap_remove(index)).is_some()
    }
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match self.ticket {
            None => {
                let ticket = self.queue.next_ticket.get();
                self.queue.next_ticket.set(ticket + 1);
                self.queue
                    .waiting
                    .borrow_mut()
                    .push_back((ticket, self.queue.sim.current()));
                self.ticket = Some(ticket);
                Poll::Pending
            }
            Some(ticket) if self.take_grant(ticket) => {
                self.ticket = None;
                Poll::Ready(())
            }
            Some(_) => Poll::Pending,
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        if self.queue.sim.halted() {
            return;
        }
        let mut waiting = self.queue.waiting.borrow_mut();
        if let Some(index) = waiting.iter().position(|(other, _)| *other == ticket) {
            waiting.remove(index);
            return;
        }
        drop(waiting);
        if self.take_grant(ticket) {
            self.queue.wake_one();
        }
    }
}
