//! Future events, ordered by time and order of scheduling.
//!
//! Most tasks sleep for a short time, so most new events are due before nearly all others and leave soon. The
//! events that are due next are therefore kept sorted: a short sleep finds its place in a few steps and is
//! removed in constant time. All other events wait in a heap.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use crate::Ns;
use crate::tasks::TaskKey;

/// Most events kept sorted in `near`; also the most that are compared to find a place.
const NEAR: usize = 32;

/// A task to be resumed at a given time.
#[derive(Clone, Copy)]
pub(crate) struct Event {
    pub at: Ns,
    /// Orders events of the same time: the lowest runs first.
    pub order: u64,
    pub task: TaskKey,
}

impl Event {
    /// Time and order in one number: a comparison without a branch.
    #[inline]
    pub fn key(&self) -> u128 {
        u128::from(self.at) << 64 | u128::from(self.order)
    }
}

/// The earliest event is the greatest: `BinaryHeap` gives out the greatest first.
impl Ord for Event {
    #[inline]
    fn cmp(&self, other: &Event) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for Event {
    #[inline]
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Event {}

/// Future events. Every event in `near` is due before every event in `far`, and `near` is empty only if `far`
/// is empty too.
#[derive(Default)]
pub(crate) struct Agenda {
    /// Sorted with the earliest event last: pops take from the back, and the latest event is at the front.
    near: VecDeque<Event>,
    far: BinaryHeap<Event>,
}

impl Agenda {
    /// The event that is due first.
    #[inline]
    pub fn first(&self) -> Option<&Event> {
        self.near.back()
    }

    /// Adds an event.
    #[inline]
    pub fn push(&mut self, event: Event) {
        let key = event.key();
        if self.near.front().is_none_or(|latest| latest.key() < key) {
            return self.push_after(event);
        }
        if self.near.len() == NEAR {
            // `near` is full: its latest event moves to `far`.
            self.far.extend(self.near.pop_front());
        }
        // Events that are due earlier are moved aside, one after the other: mostly few, or none.
        self.near.push_back(event);
        let mut at = self.near.len() - 1;
        while at > 0 && self.near[at - 1].key() < key {
            self.near[at] = self.near[at - 1];
            at -= 1;
        }
        self.near[at] = event;
    }

    /// Adds an event that is due after all events in `near`.
    #[inline]
    fn push_after(&mut self, event: Event) {
        let is_next = self.far.peek().is_none_or(|first| event.key() < first.key());
        if self.near.len() < NEAR / 2 && is_next {
            self.near.push_front(event);
        } else {
            self.far.push(event);
        }
    }

    /// Removes the earliest event.
    #[inline]
    pub fn pop(&mut self) -> Option<Event> {
        let event = self.near.pop_back();
        if self.near.is_empty() && !self.far.is_empty() {
            self.refill();
        }
        event
    }

    fn refill(&mut self) {
        for next in std::iter::from_fn(|| self.far.pop()).take(NEAR / 2) {
            self.near.push_front(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Sim;

    proptest! {
        /// Spans as programs have them: many short ones, some long ones, and often several that end at the
        /// same time.
        #[test]
        fn events_leave_by_time_and_order(
            steps in prop::collection::vec(prop_oneof![
                3 => (0u64..20).prop_map(Some),
                1 => (0u64..2000).prop_map(Some),
                3 => Just(None),
            ], 0..600)
        ) {
            let task = Sim::new().current();
            let mut agenda = Agenda::default();
            let mut oracle = std::collections::BTreeSet::new();
            let (mut now, mut order) = (0, 0);
            for step in steps.into_iter().chain(std::iter::repeat_n(None, 600)) {
                match step {
                    Some(span) => {
                        // As in a permuted executor: of two events of one time, the one added later may run
                        // first.
                        order = (order + 7919) % 10007;
                        agenda.push(Event { at: now + span, order, task });
                        oracle.insert((now + span, order));
                    }
                    None => {
                        let event = agenda.pop().map(|event| (event.at, event.order));
                        prop_assert_eq!(event, oracle.pop_first());
                        now = event.map_or(now, |(at, _)| at);
                    }
                }
                let first = agenda.first().map(|event| (event.at, event.order));
                prop_assert_eq!(first, oracle.first().copied());
            }
        }
    }
}
