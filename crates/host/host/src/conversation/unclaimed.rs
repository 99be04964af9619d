//! Pairs that a NEXT has brought and no caller has taken: the call was dropped before its answer came (a select, a
//! time-out), or the drive sent more pairs than the one that was asked for. The drive has passed these pairs, so the
//! iterator's next pair is taken from here. All drivers of one drive share them, since any of them may use an
//! iterator. This module neither waits nor locks; the drivers do.

use std::collections::VecDeque;

use kvdrive_content::Region;
use kvdrive_link::HostMemory;
use kvdrive_spec::{Cqe, Status};

use crate::answers::{IteratorId, Pair, take_more_pairs, take_pair};

/// An iterator's answer, with the value.
pub(crate) struct Answer {
    pub(crate) pair: Result<Option<Pair>, Status>,
    pub(crate) value: Region,
}

impl Answer {
    /// The answer of a NEXT in the first `came_bytes` bytes of `buffer`, which is not parsed yet.
    pub(crate) fn take(cqe: &Cqe, memory: &dyn HostMemory, buffer: u64, came_bytes: u32) -> VecDeque<Answer> {
        if !cqe.status().is_success() {
            return VecDeque::from([Answer { pair: Err(cqe.status()), value: Region::new() }]);
        }
        let mut value = Region::new();
        let pair = take_pair(cqe, memory, buffer, came_bytes, &mut value);
        let mut answers = Answer::take_more(cqe, memory, buffer, came_bytes);
        answers.push_front(Answer { pair, value });
        answers
    }

    /// The pairs that it has brought besides the first one.
    pub(crate) fn take_more(
        cqe: &Cqe,
        memory: &dyn HostMemory,
        buffer: u64,
        came_bytes: u32,
    ) -> VecDeque<Answer> {
        let pairs = take_more_pairs(cqe, memory, buffer, came_bytes).into_iter();
        pairs.map(|(pair, value)| Answer { pair: pair.map(Some), value }).collect()
    }
}

/// What there is for a call that asks for the next pair.
pub(crate) enum Claimed {
    /// Nothing: the call asks the drive.
    Nothing,
    /// It is on its way: the call waits and asks again.
    Expected,
    Answer(Answer),
}

/// Answers that are kept for a later NEXT.
#[derive(Default)]
pub(crate) struct Unclaimed {
    /// Iterators with a NEXT in progress that was dropped.
    expected: Vec<IteratorId>,
    /// In the order in which they came.
    arrived: VecDeque<(IteratorId, Answer)>,
}

impl Unclaimed {
    /// Notes that the NEXT in progress of `iterator` was dropped.
    pub(crate) fn expect(&mut self, iterator: IteratorId) {
        self.expected.push(iterator);
    }

    /// The answers of a NEXT that was expected have come; `true`: waiting callers have to look. A busy iterator passes
    /// nothing.
    pub(crate) fn arrive(&mut self, iterator: IteratorId, answers: VecDeque<Answer>) -> bool {
        let Some(index) = self.expected.iter().position(|other| *other == iterator) else { return false };
        self.expected.swap_remove(index);
        let answers = answers.into_iter();
        self.keep(iterator, answers.filter(|answer| answer.pair != Err(Status::COMMAND_INTERRUPTED)));
        true
    }

    /// Keeps pairs that were not asked for yet.
    pub(crate) fn keep(&mut self, iterator: IteratorId, answers: impl IntoIterator<Item = Answer>) {
        self.arrived.extend(answers.into_iter().map(|answer| (iterator, answer)));
    }

    /// The iterator is closed, or the drive is off.
    pub(crate) fn forget(&mut self, is_over: impl Fn(IteratorId) -> bool) {
        self.expected.retain(|iterator| !is_over(*iterator));
        self.arrived.retain(|(iterator, _)| !is_over(*iterator));
    }

    /// Is there an answer of `iterator`, or one on its way? Then a call for its next pair does not ask the
    /// drive, and claims the pair as late as possible: a claimed pair is lost with a dropped call.
    pub(crate) fn has(&self, iterator: IteratorId) -> bool {
        self.expected.contains(&iterator) || self.arrived.iter().any(|(other, _)| *other == iterator)
    }

    /// Takes the oldest answer of `iterator`.
    pub(crate) fn claim(&mut self, iterator: IteratorId) -> Claimed {
        if let Some(index) = self.arrived.iter().position(|(other, _)| *other == iterator) {
            let (_, answer) = self.arrived.remove(index).expect("it was found there");
            return Claimed::Answer(answer);
        }
        if self.expected.contains(&iterator) { Claimed::Expected } else { Claimed::Nothing }
    }
}
