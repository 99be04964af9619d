//! What NEXT answered to nobody: the future that asked was dropped before it learned of it (a select, a
//! time-out). The drive has passed the pair, so the next one that asks for that iterator's next pair gets it
//! from here. Shared by all drivers of one drive, since any of them may use an iterator.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use kvdrive_content::Region;
use kvdrive_spec::Status;

use crate::answers::{Iterator, Pair};

/// An iterator's answer, with the value.
pub(super) struct Answer {
    pub(super) pair: Result<Option<Pair>, Status>,
    pub(super) value: Region,
}

#[derive(Default)]
struct Answers {
    /// Iterators whose NEXT is under way and nobody waits for it.
    expected: Vec<Iterator>,
    /// In the order in which they came.
    arrived: VecDeque<(Iterator, Answer)>,
    waiting: Vec<Waker>,
}

/// The answers that wait for somebody.
#[derive(Default)]
pub(super) struct Unclaimed(Mutex<Answers>);

impl Unclaimed {
    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody waits any more for the NEXT of `iterator` that is under way.
    pub(super) fn expect(&self, iterator: Iterator) {
        self.lock().expected.push(iterator);
    }

    /// One that was expected has come; `wakers` get who waits. An iterator that was busy has passed nothing.
    pub(super) fn arrive(&self, iterator: Iterator, answer: Answer, wakers: &mut Vec<Waker>) {
        let mut answers = self.lock();
        let Some(index) = answers.expected.iter().position(|other| *other == iterator) else { return };
        answers.expected.swap_remove(index);
        if answer.pair != Err(Status::COMMAND_INTERRUPTED) {
            answers.arrived.push_back((iterator, answer));
        }
        wakers.append(&mut answers.waiting);
    }

    /// The iterator is closed, or the drive is off.
    pub(super) fn forget(&self, is_over: impl Fn(Iterator) -> bool) {
        let mut answers = self.lock();
        answers.expected.retain(|iterator| !is_over(*iterator));
        answers.arrived.retain(|(iterator, _)| !is_over(*iterator));
        let waiting = std::mem::take(&mut answers.waiting);
        drop(answers);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Takes the oldest answer of `iterator`, waiting for one that is expected; `None`: there is none.
    pub(super) async fn claim(&self, iterator: Iterator) -> Option<Answer> {
        poll_fn(|context| self.poll(iterator, context)).await
    }

    fn poll(&self, iterator: Iterator, context: &Context<'_>) -> Poll<Option<Answer>> {
        let mut answers = self.lock();
        if let Some(index) = answers.arrived.iter().position(|(other, _)| *other == iterator) {
            return Poll::Ready(answers.arrived.remove(index).map(|(_, answer)| answer));
        }
        if !answers.expected.contains(&iterator) {
            return Poll::Ready(None);
        }
        if !answers.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            answers.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}
