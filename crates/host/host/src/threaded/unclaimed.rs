//! [`Unclaimed`] answers of all drivers of one drive, under a lock, and the callers that wait for them.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::answers::IteratorId;
use crate::conversation::unclaimed::{Answer, Claimed, Unclaimed};

#[derive(Default)]
struct State {
    unclaimed: Unclaimed,
    waiting: Vec<Waker>,
}

/// See [`Unclaimed`].
#[derive(Default)]
pub(super) struct SharedUnclaimed(Mutex<State>);

impl SharedUnclaimed {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No caller waits any more for the NEXT of `iterator` that is under way.
    pub(super) fn expect(&self, iterator: IteratorId) {
        self.lock().unclaimed.expect(iterator);
    }

    /// One that was expected has come; `wakers` gets the waiting callers.
    pub(super) fn arrive(&self, iterator: IteratorId, answers: VecDeque<Answer>, wakers: &mut Vec<Waker>) {
        let mut state = self.lock();
        if state.unclaimed.arrive(iterator, answers) {
            wakers.append(&mut state.waiting);
        }
    }

    /// Keeps pairs that a NEXT brought and no caller asked for yet.
    pub(super) fn keep(&self, iterator: IteratorId, answers: VecDeque<Answer>) {
        if !answers.is_empty() {
            self.lock().unclaimed.keep(iterator, answers);
        }
    }

    /// The iterator is closed, or the drive is off.
    pub(super) fn forget(&self, is_over: impl Fn(IteratorId) -> bool) {
        let mut state = self.lock();
        state.unclaimed.forget(is_over);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// [`Unclaimed::has`].
    pub(super) fn has(&self, iterator: IteratorId) -> bool {
        self.lock().unclaimed.has(iterator)
    }

    /// Takes the oldest answer of `iterator`, waiting for one that is expected; `None`: there is none.
    pub(super) async fn claim(&self, iterator: IteratorId) -> Option<Answer> {
        poll_fn(|context| self.poll(iterator, context)).await
    }

    fn poll(&self, iterator: IteratorId, context: &Context<'_>) -> Poll<Option<Answer>> {
        let mut state = self.lock();
        match state.unclaimed.claim(iterator) {
            Claimed::Answer(answer) => return Poll::Ready(Some(answer)),
            Claimed::Nothing => return Poll::Ready(None),
            Claimed::Expected => {}
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            state.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}
