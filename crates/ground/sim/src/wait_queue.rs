//! Tasks that wait for each other, first come, first served.
//!
//! A wake-up given to one waiter is a *grant* that cannot be lost: a waiter that is dropped after it was
//! granted passes the grant on to the next. Everything else that waits ([`crate::Resource`],
//! [`crate::Mutex`], [`crate::KeyedLock`]) is built on this; those hand an object over with the grant, so a
//! dropped waiter gives the object back to its owner.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::Ns;
use crate::executor::Sim;
use crate::tasks::TaskKey;

struct Waiter<T> {
    ticket: u64,
    task: TaskKey,
    tag: T,
}

/// A FIFO of waiting tasks. Where one queue serves several things, the tag `T` says which one a waiter waits
/// for.
pub struct WaitQueue<T = ()> {
    sim: Sim,
    waiting: RefCell<VecDeque<Waiter<T>>>,
    /// Tickets that were granted and not yet noticed by their waiters, and when. Almost always empty or
    /// short.
    granted: RefCell<Vec<(u64, Ns)>>,
    next_ticket: Cell<u64>,
}

impl WaitQueue {
    /// An empty queue on `sim`.
    pub fn new(sim: &Sim) -> WaitQueue {
        WaitQueue::tagged(sim)
    }

    /// Waits until granted by [`WaitQueue::wake_one`] or [`WaitQueue::wake_all`].
    pub fn wait(&self) {
        self.handover((), || {
            self.wake_one();
        });
    }

    /// Grants the task that has waited longest; `false` if no task waits.
    #[inline]
    pub fn wake_one(&self) -> bool {
        self.wake_first(|()| 0).is_some()
    }

    /// Grants all tasks that wait now.
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

    /// Does no task wait?
    pub fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    /// Number of waiting tasks.
    pub fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Grants a waiter that will only sleep for `span` ns now.
    #[inline]
    fn grant(&self, waiter: &Waiter<T>, span: Ns) {
        self.granted.borrow_mut().push((waiter.ticket, self.sim.now()));
        self.sim.wake_to_sleep(waiter.task, span);
    }

    /// Grants the task that has waited longest and returns its tag. If that task will only hold what it is
    /// granted for `span_of(tag)` ns, it is resumed after that span.
    #[inline]
    pub(crate) fn wake_first(&self, span_of: impl FnOnce(&T) -> Ns) -> Option<T> {
        let waiter = self.waiting.borrow_mut().pop_front()?;
        self.grant(&waiter, span_of(&waiter.tag));
        Some(waiter.tag)
    }

    /// Removes the grant of a ticket, if there is one, and returns the time at which it was given.
    #[inline]
    fn take_grant(&self, ticket: u64) -> Option<Ns> {
        let mut granted = self.granted.borrow_mut();
        let index = granted.iter().position(|(other, _)| *other == ticket)?;
        Some(granted.swap_remove(index).1)
    }

    /// Waits for a grant that hands an object over, and returns the time of the grant. If the waiter is
    /// dropped after it was granted and before it was resumed, `give_back` returns the unused object.
    pub(crate) fn handover(&self, tag: T, give_back: impl FnMut()) -> Ns {
        let ticket = self.next_ticket.get();
        self.next_ticket.set(ticket + 1);
        self.waiting.borrow_mut().push_back(Waiter { ticket, task: self.sim.current(), tag });
        let place = InLine { queue: self, ticket, give_back };
        loop {
            self.sim.suspend();
            if let Some(granted_at) = self.take_grant(ticket) {
                std::mem::forget(place);
                return granted_at;
            }
        }
    }
}

impl<T: Copy + Eq> WaitQueue<T> {
    /// Grants the longest waiting task with this tag; `false` if there is none.
    pub(crate) fn wake_tagged(&self, tag: T) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        let found = waiting.iter().position(|waiter| waiter.tag == tag);
        let waiter = found.and_then(|index| waiting.remove(index));
        drop(waiting);
        waiter.map(|waiter| self.grant(&waiter, 0)).is_some()
    }
}

/// A waiter's place in a [`WaitQueue`]; dropping it leaves the queue.
struct InLine<'a, T, F: FnMut()> {
    queue: &'a WaitQueue<T>,
    ticket: u64,
    give_back: F,
}

impl<T, F: FnMut()> Drop for InLine<'_, T, F> {
    fn drop(&mut self) {
        let InLine { queue, ticket, .. } = *self;
        if queue.sim.halted() {
            return;
        }
        if queue.take_grant(ticket).is_some() {
            (self.give_back)();
        } else {
            queue.waiting.borrow_mut().retain(|waiter| waiter.ticket != ticket);
        }
    }
}
