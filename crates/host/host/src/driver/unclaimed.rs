//! [`Unclaimed`] answers of all drivers of one drive under a lock, and the callers that wait for them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use kvdrive_content::Region;

use crate::answers::{IteratorId, Pairs};
use crate::conversation::unclaimed::{Claimed, IteratorAnswer, NextPair, Unclaimed};

#[derive(Default)]
struct UnclaimedState {
    unclaimed: Unclaimed,
    waiting: Vec<Waker>,
}

/// See [`Unclaimed`].
#[derive(Default)]
pub(crate) struct SharedUnclaimed(Mutex<UnclaimedState>);

impl SharedUnclaimed {
    fn lock(&self) -> MutexGuard<'_, UnclaimedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No caller waits any more for the NEXT of `iterator` that is under way.
    pub(super) fn expect(&self, iterator: IteratorId) {
        self.lock().unclaimed.expect(iterator);
    }

    /// The answer to an expected NEXT has come; `wakers` gets the waiting callers.
    pub(super) fn arrive(&self, iterator: IteratorId, answer: IteratorAnswer, wakers: &mut Vec<Waker>) {
        let mut state = self.lock();
        if state.unclaimed.arrive(iterator, answer) {
            wakers.append(&mut state.waiting);
        }
    }

    /// Keeps pairs that a NEXT brought and no call has asked for yet.
    pub(super) fn keep(&self, iterator: IteratorId, pairs: Pairs) {
        self.lock().unclaimed.keep(iterator, pairs);
    }

    /// Drops everything of iterators for which `is_over` holds: they are closed, or the drive is off.
    pub(super) fn forget(&self, is_over: impl Fn(IteratorId) -> bool) {
        let mut state = self.lock();
        state.unclaimed.forget(is_over);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Has all waiting callers look again.
    pub(super) fn wake(&self) {
        let waiting = std::mem::take(&mut self.lock().waiting);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// [`Unclaimed::has`].
    pub(super) fn has(&self, iterator: IteratorId) -> bool {
        self.lock().unclaimed.has(iterator)
    }

    /// [`Unclaimed::take`].
    pub(super) fn take(&self, iterator: IteratorId) -> Pairs {
        self.lock().unclaimed.take(iterator)
    }

    /// Takes the next pair of `iterator`, waiting for an expected one; `None`: none is kept or expected.
    pub(super) fn poll(
        &self,
        iterator: IteratorId,
        into: &mut Region,
        context: &Context<'_>,
    ) -> Poll<Option<NextPair>> {
        let mut state = self.lock();
        match state.unclaimed.claim(iterator, into) {
            Claimed::Pair(pair) => return Poll::Ready(Some(pair)),
            Claimed::Nothing => return Poll::Ready(None),
            Claimed::Expected => {}
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            state.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}
