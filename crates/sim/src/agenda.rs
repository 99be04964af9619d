//! What is due, by time and order.
//!
//! Most tasks sleep for a short time: what they are put away for is due before nearly everything else, and
//! soon over. So the events that are due next lie sorted, where a short sleep finds its place in a few
//! steps and leaves without any; all others wait in a heap behind them.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use crate::Ns;
use crate::tasks::TaskKey;

/// How many events lie sorted at most; as many as a place is looked for among.
const NEAR: usize = 32;

/// A task is due.
#[derive(Clone, Copy)]
pub(crate) struct Event {
    pub at: Ns,
    /// Of the same time, the lowest is first.
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

/// Events that are to come. Every event in `near` is due before every one in `far`, and there is one in
/// `near` if there is one at all.
#[derive(Default)]
pub(crate) struct Agenda {
    /// The earliest is the last: it leaves there, and what comes behind all others goes to the front.
    near: VecDeque<Event>,
    far: BinaryHeap<Event>,
}

impl Agenda {
    /// The event that is due first.
    #[inline]
    pub fn first(&self) -> Option<&Event> {
        self.near.back()
    }

    /// Takes an event in.
    #[inline]
    pub fn push(&mut self, event: Event) {
        let key = event.key();
        if self.near.front().is_none_or(|latest| latest.key() < key) {
            return self.push_behind(event);
        }
        if self.near.len() == NEAR {
            // The latest of them gives its place up.
            self.far.extend(self.near.pop_front());
        }
        // Those that are due before it step aside, one after the other: mostly few, or none.
        self.near.push_back(event);
        let mut at = self.near.len() - 1;
        while at > 0 && self.near[at - 1].key() < key {
            self.near[at] = self.near[at - 1];
            at -= 1;
        }
        self.near[at] = event;
    }

    /// Takes an event in that is due behind all near ones.
    #[inline]
    fn push_behind(&mut self, event: Event) {
        let is_next = self.far.peek().is_none_or(|first| event.key() < first.key());
        if self.near.len() < NEAR / 2 && is_next {
            self.near.push_front(event);
        } else {
            self.far.push(event);
        }
    }

    /// Takes the event out that is due first.
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
        /// Spans as programs have them: many short ones, some long, and often several that end at once.
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
                        // As in permuted order: a later event of a time may be first.
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
