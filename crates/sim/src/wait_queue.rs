//! Tasks that wait for each other, first come first served.
//!
//! A wake-up given to one waiter is a *grant* that cannot be lost: a waiter dropped after it was granted passes the
//! grant on. Everything else that waits ([`crate::Resource`], [`crate::Mutex`], [`crate::KeyedLock`]) stands on this;
//! those hand something over with the grant, so there a dropped waiter gives it back to its owner.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::executor::{Sim, TaskKey};

struct Waiter<T> {
    ticket: u64,
    task: TaskKey,
    tag: T,
}

/// A FIFO of waiting tasks. `T` says what a waiter waits for, where one queue serves several things.
pub struct WaitQueue<T = ()> {
    sim: Sim,
    waiting: RefCell<VecDeque<Waiter<T>>>,
    /// Tickets that were granted and not yet noticed by their waiter. Almost always empty or one long.
    granted: RefCell<Vec<u64>>,
    next_ticket: Cell<u64>,
}

impl WaitQueue {
    /// An empty queue on `sim`.
    pub fn new(sim: &Sim) -> WaitQueue {
        WaitQueue::tagged(sim)
    }

    /// Waits until granted by [`WaitQueue::wake_one`] or [`WaitQueue::wake_all`]. The place in the queue is taken
    /// when the future is first polled.
    #[inline]
    pub fn wait(&self) -> Wait<'_> {
        Wait { queue: self, tag: (), ticket: None }
    }

    /// Grants the longest waiting task; `false` if nobody waits.
    #[inline]
    pub fn wake_one(&self) -> bool {
        let waiter = self.waiting.borrow_mut().pop_front();
        waiter.map(|waiter| self.grant(&waiter)).is_some()
    }

    /// Grants everybody who waits now.
    pub fn wake_all(&self) {
        while self.wake_one() {}
    }
}

impl<T> WaitQueue<T> {
    pub(crate) fn tagged(sim: &Sim) -> WaitQueue<T> {
        WaitQueue {
            sim: sim.clone(),
            waiting: RefCell::new(VecDeque::new()),
            granted: RefCell::default(),
            next_ticket: Cell::new(0),
        }
    }

    /// Does nobody wait?
    pub fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    #[inline]
    fn grant(&self, waiter: &Waiter<T>) {
        self.granted.borrow_mut().push(waiter.ticket);
        self.sim.wake(waiter.task);
    }
}

impl<T: Copy + Eq> WaitQueue<T> {
    /// Grants the longest waiting task with this tag; `false` if there is none.
    pub(crate) fn wake_tagged(&self, tag: T) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        let found = waiting.iter().position(|waiter| waiter.tag == tag);
        let waiter = found.and_then(|index| waiting.remove(index));
        drop(waiting);
        waiter.map(|waiter| self.grant(&waiter)).is_some()
    }

    /// Waits for a grant that hands something over. If this is dropped between the grant and its next poll,
    /// `give_back` returns what nobody will use.
    pub(crate) fn handover<F: FnMut() + Unpin>(&self, tag: T, give_back: F) -> Handover<'_, T, F> {
        let wait = Wait { queue: self, tag, ticket: None };
        Handover { wait, give_back }
    }
}

/// One task's place in a [`WaitQueue`].
pub struct Wait<'a, T = ()> {
    queue: &'a WaitQueue<T>,
    tag: T,
    ticket: Option<u64>,
}

impl<T> Wait<'_, T> {
    /// Takes the grant, if there is one.
    #[inline]
    fn take_grant(&mut self) -> bool {
        let Some(ticket) = self.ticket else {
            return false;
        };
        let mut granted = self.queue.granted.borrow_mut();
        let found = granted.iter().position(|other| *other == ticket);
        if let Some(index) = found {
            granted.swap_remove(index);
            self.ticket = None;
        }
        found.is_some()
    }

    /// Leaves the queue. `true` if it was granted already: the grant is the caller's to pass on.
    #[inline]
    fn leave(&mut self) -> bool {
        if self.ticket.is_none() || self.queue.sim.halted() {
            return false;
        }
        if self.take_grant() {
            return true;
        }
        let mut waiting = self.queue.waiting.borrow_mut();
        waiting.retain(|waiter| Some(waiter.ticket) != self.ticket);
        self.ticket = None;
        false
    }
}

impl<T: Copy> Wait<'_, T> {
    #[inline]
    fn poll_grant(&mut self) -> Poll<()> {
        if self.ticket.is_some() {
            return if self.take_grant() { Poll::Ready(()) } else { Poll::Pending };
        }
        let queue = self.queue;
        let ticket = queue.next_ticket.get();
        queue.next_ticket.set(ticket + 1);
        queue.waiting.borrow_mut().push_back(Waiter { ticket, task: queue.sim.current(), tag: self.tag });
        self.ticket = Some(ticket);
        Poll::Pending
    }
}

impl Future for Wait<'_> {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        self.poll_grant()
    }
}

impl<T> Drop for Wait<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.leave() {
            // Of a queue that hands things over, `Handover` has taken the grant before.
            let next = self.queue.waiting.borrow_mut().pop_front();
            if let Some(waiter) = next {
                self.queue.grant(&waiter);
            }
        }
    }
}

/// See [`WaitQueue::handover`].
pub(crate) struct Handover<'a, T, F: FnMut()> {
    wait: Wait<'a, T>,
    give_back: F,
}

impl<T: Copy + Unpin, F: FnMut() + Unpin> Future for Handover<'_, T, F> {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        self.wait.poll_grant()
    }
}

impl<T, F: FnMut()> Drop for Handover<'_, T, F> {
    #[inline]
    fn drop(&mut self) {
        if self.wait.leave() {
            (self.give_back)();
        }
    }
}
