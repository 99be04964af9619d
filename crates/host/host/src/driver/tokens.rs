//! A few tokens that are handed out in the order of requests: command slots, the right to submit inline
//! commands. Not a lock itself: it is used under one.

use std::collections::VecDeque;
use std::task::Waker;

/// Tokens, and the queue of waiting tasks. A token that is given back goes straight to the first waiting
/// task, so no task overtakes another.
#[derive(Default)]
pub(super) struct Tokens {
    free: Vec<u16>,
    next_ticket: u64,
    /// Ordered by ticket, and so by time.
    waiting: VecDeque<(u64, Waker)>,
    /// Tokens that were handed to waiting tasks, which have not polled since.
    granted: Vec<(u64, u16)>,
}

impl Tokens {
    pub(super) fn new(free: Vec<u16>) -> Tokens {
        Tokens { free, ..Tokens::default() }
    }

    /// Takes a token or waits; `ticket` is the caller's place in the queue, and is cleared with success.
    pub(super) fn poll(&mut self, ticket: &mut Option<u64>, waker: &Waker) -> Option<u16> {
        let Some(own) = *ticket else {
            if let Some(token) = self.free.pop() {
                return Some(token);
            }
            *ticket = Some(self.next_ticket);
            self.waiting.push_back((self.next_ticket, waker.clone()));
            self.next_ticket += 1;
            return None;
        };
        if let Some(index) = self.granted.iter().position(|(other, _)| *other == own) {
            *ticket = None;
            return Some(self.granted.swap_remove(index).1);
        }
        if let Ok(index) = self.waiting.binary_search_by_key(&own, |(other, _)| *other) {
            self.waiting[index].1.clone_from(waker);
        }
        None
    }

    /// Gives a token back; returns the waker of the task that now has it.
    #[must_use]
    pub(super) fn put(&mut self, token: u16) -> Option<Waker> {
        match self.waiting.pop_front() {
            Some((ticket, waker)) => {
                self.granted.push((ticket, token));
                Some(waker)
            }
            None => {
                self.free.push(token);
                None
            }
        }
    }

    /// Leaves the queue; returns the waker of the task that gets the granted token instead.
    #[must_use]
    pub(super) fn cancel(&mut self, ticket: u64) -> Option<Waker> {
        if let Some(index) = self.granted.iter().position(|(other, _)| *other == ticket) {
            let (_, token) = self.granted.swap_remove(index);
            return self.put(token);
        }
        self.waiting.retain(|(other, _)| *other != ticket);
        None
    }

    /// The waker of the first waiting task.
    pub(super) fn first_waiting(&self) -> Option<Waker> {
        self.waiting.front().map(|(_, waker)| waker.clone())
    }

    /// The wakers of all waiting tasks, when there are no more tokens to come.
    pub(super) fn drain_waiting(&mut self) -> impl Iterator<Item = Waker> + '_ {
        self.waiting.drain(..).map(|(_, waker)| waker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_to_the_first_waiter_or_the_next_when_it_leaves() {
        let waker = Waker::noop();
        let mut tokens = Tokens::new(vec![7]);
        let (mut first, mut second, mut third) = (None, None, None);
        assert_eq!(tokens.poll(&mut first, waker), Some(7));
        assert_eq!(tokens.poll(&mut second, waker), None);
        assert_eq!(tokens.poll(&mut third, waker), None);
        assert!(tokens.put(7).is_some());
        let mut late = None;
        assert_eq!(tokens.poll(&mut late, waker), None, "the token belongs to the second already");
        assert!(tokens.cancel(second.unwrap()).is_some());
        assert_eq!(tokens.poll(&mut third, waker), Some(7));
        assert!(tokens.cancel(late.unwrap()).is_none());
        assert!(tokens.put(7).is_none());
        assert_eq!(tokens.poll(&mut first, waker), Some(7));
    }
}
