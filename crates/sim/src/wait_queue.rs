//! Tasks that wait for each other, first come first served.
//!
//! A wake-up given to one waiter is a *grant* that cannot be lost: a waiter dropped after it was granted
//! passes the grant on. Everything else that waits ([`crate::Resource`], [`crate::Mutex`],
//! [`crate::KeyedLock`]) stands on this; those hand something over with the grant, so there a dropped
//! waiter gives it back to its owner.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::Ns;
use crate::executor::{Sim, TaskKey};

struct Waiter<T> {
    ticket: u64,
    task: TaskKey,
    tag: T,
}

/// What a waiter was given.
#[derive(Clone, Copy)]
pub(crate) struct Grant {
    ticket: u64,
    /// When it was given.
    pub at: Ns,
    /// The waiter was put to sleep with it, and is polled when that is over.
    pub is_asleep: bool,
}

/// A FIFO of waiting tasks. `T` says what a waiter waits for, where one queue serves several things.
pub struct WaitQueue<T = ()> {
    sim: Sim,
    waiting: RefCell<VecDeque<Waiter<T>>>,
    /// What was granted and not yet noticed by its waiter. Almost always empty or short.
    granted: RefCell<Vec<Grant>>,
    next_ticket: Cell<u64>,
}

impl WaitQueue {
    /// An empty queue on `sim`.
    pub fn new(sim: &Sim) -> WaitQueue {
        WaitQueue::tagged(sim)
    }

    /// Waits until granted by [`WaitQueue::wake_one`] or [`WaitQueue::wake_all`]. The place in the queue is
    /// taken when the future is first polled.
    #[inline]
    pub fn wait(&self) -> Wait<'_> {
        self.place(())
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
        self.grant_asleep(waiter, 0);
    }

    /// Grants a waiter that would do nothing with it but to sleep `span` ns: it need not be woken for that.
    #[inline]
    fn grant_asleep(&self, waiter: &Waiter<T>, span: Ns) {
        let is_asleep = self.sim.wake_asleep(waiter.task, span);
        let grant = Grant { ticket: waiter.ticket, at: self.sim.now(), is_asleep };
        self.granted.borrow_mut().push(grant);
    }
}

impl<T: Copy> WaitQueue<T> {
    /// Grants the longest waiting task and lets it sleep first, as long as `span` says of its tag. Its tag.
    #[inline]
    pub(crate) fn wake_first(&self, span: impl FnOnce(T) -> Ns) -> Option<T> {
        let waiter = self.waiting.borrow_mut().pop_front()?;
        self.grant_asleep(&waiter, span(waiter.tag));
        Some(waiter.tag)
    }

    /// A place in the queue, which is taken when it is first asked for its grant.
    #[inline]
    pub(crate) fn place(&self, tag: T) -> Wait<'_, T> {
        Wait { queue: self, tag, ticket: None }
    }

    /// Waits for a grant that hands something over. If this is dropped between the grant and its next poll,
    /// `give_back` returns what nobody will use.
    pub(crate) fn handover<F: FnMut() + Unpin>(&self, tag: T, give_back: F) -> Handover<'_, T, F> {
        Handover { wait: self.place(tag), give_back }
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
    fn take_grant(&mut self) -> Option<Grant> {
        let ticket = self.ticket?;
        let mut granted = self.queue.granted.borrow_mut();
        let index = granted.iter().position(|grant| grant.ticket == ticket)?;
        self.ticket = None;
        Some(granted.swap_remove(index))
    }

    /// Leaves the queue. If it was granted already, the grant is the caller's to pass on.
    #[inline]
    pub(crate) fn leave(&mut self) -> Option<Grant> {
        if self.ticket.is_none() || self.queue.sim.halted() {
            return None;
        }
        let grant = self.take_grant();
        if grant.is_none() {
            let mut waiting = self.queue.waiting.borrow_mut();
            waiting.retain(|waiter| Some(waiter.ticket) != self.ticket);
            self.ticket = None;
        }
        grant
    }
}

impl<T: Copy> Wait<'_, T> {
    #[inline]
    pub(crate) fn poll_grant(&mut self) -> Poll<Grant> {
        if self.ticket.is_some() {
            return self.take_grant().map_or(Poll::Pending, Poll::Ready);
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
        self.poll_grant().map(|_| ())
    }
}

impl<T> Drop for Wait<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.leave().is_some() {
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
        self.wait.poll_grant().map(|_| ())
    }
}

impl<T, F: FnMut()> Drop for Handover<'_, T, F> {
    #[inline]
    fn drop(&mut self) {
        if self.wait.leave().is_some() {
            (self.give_back)();
        }
    }
}
