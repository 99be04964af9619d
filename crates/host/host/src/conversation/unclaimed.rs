//! Pairs that a NEXT has brought and no caller has taken: the call was dropped before its answer came (a
//! select, a time-out), or the drive sent more pairs than the one that was asked for. The drive has passed
//! these pairs, so the iterator's next pair is taken from here. All drivers of one drive share them, since
//! any of them may use an iterator. This module neither waits nor locks; the drivers do.

use std::collections::VecDeque;

use kvdrive_content::Region;
use kvdrive_nvme::{Cqe, Status};

use super::course::done;
use crate::answers::{AnswerData, IteratorId, Pair, Pairs};

/// The answer of a NEXT.
pub(crate) type IteratorAnswer = Result<Pairs, Status>;

/// The answer to `cqe`, of which at most `room` bytes have `arrived`.
pub(crate) fn answer(cqe: &Cqe, arrived: &(impl AnswerData + ?Sized), room: u32) -> IteratorAnswer {
    done(cqe.status()).map(|()| Pairs::of(cqe, arrived, room))
}

/// The answer to a call for the next pair; `None` after the last one.
pub(crate) type NextPair = Result<Option<Pair>, Status>;

/// A pair or status that is kept for a call that asks for the next pair.
pub(crate) enum Claimed {
    /// Nothing: the call asks the drive.
    Nothing,
    /// The answer to a dropped NEXT is on its way: the call waits and claims again.
    Expected,
    Pair(NextPair),
}

/// Answers that are kept for a later NEXT.
#[derive(Default)]
pub(crate) struct Unclaimed {
    /// Iterators with a NEXT in progress that was dropped.
    expected: Vec<IteratorId>,
    /// Answers in the order in which they came.
    arrived: VecDeque<(IteratorId, IteratorAnswer)>,
}

impl Unclaimed {
    /// Notes that the NEXT in progress of `iterator` was dropped.
    pub(crate) fn expect(&mut self, iterator: IteratorId) {
        self.expected.push(iterator);
    }

    /// The answer to an expected NEXT has come; `true`: waiting callers claim again. An iterator that was
    /// busy (COMMAND INTERRUPTED) has passed no pair, so nothing is kept.
    pub(crate) fn arrive(&mut self, iterator: IteratorId, answer: IteratorAnswer) -> bool {
        let Some(index) = self.expected.iter().position(|other| *other == iterator) else { return false };
        self.expected.swap_remove(index);
        if !matches!(answer, Err(Status::COMMAND_INTERRUPTED)) {
            self.arrived.push_back((iterator, answer));
        }
        true
    }

    /// Keeps pairs that no call has asked for yet.
    pub(crate) fn keep(&mut self, iterator: IteratorId, pairs: Pairs) {
        if !pairs.is_empty() {
            self.arrived.push_back((iterator, Ok(pairs)));
        }
    }

    /// Drops everything of iterators for which `is_over` holds: they are closed, or the drive is off.
    pub(crate) fn forget(&mut self, is_over: impl Fn(IteratorId) -> bool) {
        self.expected.retain(|iterator| !is_over(*iterator));
        self.arrived.retain(|(iterator, _)| !is_over(*iterator));
    }

    fn oldest(&self, iterator: IteratorId) -> Option<usize> {
        self.arrived.iter().position(|(other, _)| *other == iterator)
    }

    /// Is an answer of `iterator` kept or on its way? Then a call for its next pair does not ask the drive,
    /// and claims the pair as late as possible: a claimed pair is lost with a dropped call.
    pub(crate) fn has(&self, iterator: IteratorId) -> bool {
        self.expected.contains(&iterator) || self.oldest(iterator).is_some()
    }

    /// Takes the next pair of `iterator`, and moves its value to `into`.
    pub(crate) fn claim(&mut self, iterator: IteratorId, into: &mut Region) -> Claimed {
        let Some(index) = self.oldest(iterator) else {
            return if self.expected.contains(&iterator) { Claimed::Expected } else { Claimed::Nothing };
        };
        let (pair, is_over) = match &mut self.arrived[index].1 {
            Ok(pairs) => (pairs.next(into), pairs.is_empty()),
            Err(status) => (Err(*status), true),
        };
        if is_over {
            self.arrived.remove(index);
        }
        Claimed::Pair(pair)
    }

    /// Takes all pairs of the oldest answer of `iterator`.
    pub(crate) fn take(&mut self, iterator: IteratorId) -> Pairs {
        let Some(index) = self.oldest(iterator).filter(|index| self.arrived[*index].1.is_ok()) else {
            return Pairs::default();
        };
        let (_, answer) = self.arrived.remove(index).expect("it was found there");
        answer.unwrap_or_default()
    }
}
