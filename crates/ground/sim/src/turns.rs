//! Turns in an unpaced loop in wall time: a slice of a long task, then everything else for a while.
//!
//! ```text
//!   slice │ arrivals, answers, short tasks: OTHERS times as long │ slice │ ...      others are at work
//!   slice │ slice │ slice │ ...                                                     they are not
//! ```
//!
//! A slice takes as long as several commands. A host with one command at a time sends the next one after the answer. If
//! a slice began whenever nothing is due, each of its commands would wait for a slice, and a host with many commands
//! would get only the time between slices. So after a slice the loop leaves other work its time even if nothing is due
//! at the moment.

use std::time::{Duration, Instant};

use crate::executor::Sim;

/// Time of other work for the time of a slice, in hundredths. More than 100, because caches are cold after a slice and
/// commands that came during it are answered one by one. With 150 a host with 32 commands under way kept 0.27 to 0.50
/// of its speed (measured).
const OTHERS_PERCENT: u32 = 250;

impl Sim {
    /// Ends a slice of the running task's long work. In an unpaced loop in wall time ([`crate::wall`]) the task waits
    /// here until the loop, after polling for arrivals, gives it a turn again. In a run that is recorded the task's
    /// next sleep lets arrivals in instead, in the same order of events as in the replay
    /// ([`Sim::keep_slices_in_place`]). In model time nothing happens.
    pub fn end_slice(&self) {
        let slices = self.slices();
        if !slices.gives_turns.get() {
            return;
        }
        slices.has_ended.set(true);
        if slices.stay_in_place.get() {
            return self.end_in_place();
        }
        let task = self.current();
        slices.waiting.borrow_mut().push_back(task);
        while slices.waiting.borrow().contains(&task) {
            self.suspend();
        }
    }

    /// From now on no task waits for a turn between two slices: the machine's clock would determine when it continues,
    /// and a replay has only model time.
    pub fn keep_slices_in_place(&self) {
        self.slices().stay_in_place.set(true);
    }

    /// Gives a turn to the task that has waited longest between two slices.
    pub(crate) fn give_turn(&self) {
        let next = self.slices().waiting.borrow_mut().pop_front();
        if let Some(task) = next {
            self.wake(task);
        }
    }
}

/// Tasks that end a slice wait for a turn while this is held.
pub(crate) struct GivenTurns<'a>(&'a Sim);

impl GivenTurns<'_> {
    pub(crate) fn begin(sim: &Sim, gives: bool) -> GivenTurns<'_> {
        sim.slices().gives_turns.set(gives);
        GivenTurns(sim)
    }
}

impl Drop for GivenTurns<'_> {
    fn drop(&mut self) {
        self.0.slices().gives_turns.set(false);
    }
}

/// Whose turn it is.
pub(crate) struct Turns {
    /// When the last slice ended, and how long it took.
    ended: Instant,
    slice: Duration,
    /// Other work has arrived or run since then.
    others_work: bool,
}

impl Turns {
    pub(crate) fn new(now: Instant) -> Turns {
        Turns { ended: now, slice: Duration::ZERO, others_work: false }
    }

    /// A slice that began at `began` has ended.
    pub(crate) fn note_slice(&mut self, began: Instant, now: Instant) {
        *self = Turns { ended: now, slice: now - began, others_work: false };
    }

    /// Is it the turn of the next slice? Called after a poll of all sources; `is_due`: other work can run now.
    pub(crate) fn is_of_slice(&mut self, is_due: bool, now: Instant) -> bool {
        self.others_work |= is_due;
        !self.others_work || now - self.ended >= self.slice * OTHERS_PERCENT / 100
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a time to count from")]
mod tests {
    use super::*;

    fn turns() -> (Turns, impl Fn(u64) -> Instant) {
        let start = Instant::now();
        (Turns::new(start), move |us| start + Duration::from_micros(us))
    }

    #[test]
    fn slices_follow_each_other_while_nothing_else_is_at_work() {
        let (mut turns, at) = turns();
        for slice in 0..10 {
            assert!(turns.is_of_slice(false, at(slice * 100)));
            turns.note_slice(at(slice * 100), at(slice * 100 + 100));
        }
    }

    /// A host with one command at a time sends the next one some time after the answer: its turn continues meanwhile.
    #[test]
    fn others_have_more_time_than_slices_if_they_are_at_work() {
        const COMMAND_US: u64 = 8;
        const BETWEEN_US: u64 = 12;
        let (mut turns, at) = turns();
        let (mut of_slices, mut answers, mut now, mut next_command) = (0, 0, 0, 0);
        while now < 100_000 {
            let is_due = next_command <= now;
            if turns.is_of_slice(is_due, at(now)) {
                let took = 50 + now % 31;
                turns.note_slice(at(now), at(now + took));
                (of_slices, now) = (of_slices + took, now + took);
            } else if is_due {
                now += COMMAND_US;
                (answers, next_command) = (answers + 1, now + BETWEEN_US);
            } else {
                now += 1;
            }
        }
        let alone = now / (COMMAND_US + BETWEEN_US);
        assert!(2 * answers > alone, "{answers} answers, {alone} without slices");
        assert!(4 * of_slices > now, "{of_slices} us of slices in {now}: the long task goes on");
    }
}
