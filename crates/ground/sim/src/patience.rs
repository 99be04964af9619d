//! [`Patience`]: whether a thread that waits for another one spins or sleeps.

#![expect(clippy::disallowed_methods, reason = "it measures waits by the machine's clock")]

use std::time::{Duration, Instant};

/// How long a waiting thread spins: about the time that waking it would take. Shorter waits for the clock are
/// spun, too.
pub const SPIN: Duration = Duration::from_micros(60);
/// Polls between two readings of the clock, each of which takes as long as several polls.
const LOOKS_PER_READING: u32 = 16;
/// Two polls of a thread that only polls are never this far apart, unless another thread had its core.
const GAP: Duration = Duration::from_micros(200);
/// How long a thread does not spin after another thread took its core: this long the first time, and twice as
/// long each time that it is disturbed again, up to one second.
const FIRST_HASTE: Duration = Duration::from_millis(20);
const LONGEST_HASTE: Duration = Duration::from_secs(1);
/// A wait for a group that takes this long costs more to spin than to sleep and be woken.
const LONG_GROUP: Duration = Duration::from_micros(20);
/// Of so many waits for groups one is spun, to see how long they are now: a sleeper learns that with the time of its
/// wake-up only.
const GROUPS_A_LOOK: u32 = 16;
/// A thread that has spun for this long without being disturbed has a core to itself.
const UNDISTURBED: Duration = Duration::from_millis(10);

/// Decides how long a waiting thread stays awake. If a core is free and the wait is shorter than a wake-up, spinning
/// answers sooner than sleeping; otherwise it wastes a core:
///
/// * A thread whose last waits took longer than a wake-up, on average, sleeps at once.
/// * A thread that shares its core sleeps at once, for a while: if it used up its time slice by spinning, it would wait
///   milliseconds for the next one, but a sleeper gets the core when it is woken. A gap between two polls reveals that
///   the core is shared.
pub struct Patience {
    /// There is only one core, which the other thread needs.
    alone: bool,
    /// Polls since the clock was last read.
    looks: u32,
    /// While the thread spins: when the wait began, and when the clock was last read.
    spinning: Option<(Instant, Instant)>,
    /// While the thread sleeps: when the wait began.
    asleep_since: Option<Instant>,
    /// Moving average of the last waits, less the time of waking up.
    usual_wait: Duration,
    undisturbed: Duration,
    haste: Duration,
    hasty_until: Option<Instant>,
    /// Waits for groups so far, and whether the last of them that was measured was long.
    groups: u32,
    groups_are_long: bool,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            alone: std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1),
            looks: 0,
            spinning: None,
            asleep_since: None,
            usual_wait: Duration::ZERO,
            undisturbed: Duration::ZERO,
            haste: FIRST_HASTE,
            hasty_until: None,
            groups: 0,
            groups_are_long: false,
        }
    }
}

impl Patience {
    /// Nothing has arrived, and it is not known when something will. `true`: poll again at once; `false`: sleep.
    pub fn look_again(&mut self) -> bool {
        self.may_spin(self.usual_wait <= SPIN)
    }

    /// As [`Patience::look_again`], in a wait for a group of completions, while the other end has more to do: the thread
    /// may come late, and sleeps where that takes less processor time than spinning. Such a wait ends with
    /// [`Patience::end_group`].
    pub fn look_again_for_group(&mut self) -> bool {
        self.spins_for_group() && self.look_again()
    }

    fn spins_for_group(&self) -> bool {
        self.spinning.is_some() || !self.groups_are_long || self.groups.is_multiple_of(GROUPS_A_LOOK)
    }

    /// A group has arrived.
    pub fn end_group(&mut self) {
        self.groups = self.groups.wrapping_add(1);
        match (self.spinning, self.asleep_since) {
            (Some((began, last)), _) => self.groups_are_long = last - began >= LONG_GROUP,
            (None, Some(_)) => self.groups_are_long = true,
            (None, None) => {}
        }
        self.end();
    }

    /// The next event is due sooner than a wake-up takes. `true`: poll again at once; `false`: sleep.
    pub(crate) fn look_again_until_due(&mut self) -> bool {
        self.may_spin(true)
    }

    fn may_spin(&mut self, is_short: bool) -> bool {
        if self.spinning.is_some() && self.looks < LOOKS_PER_READING {
            self.looks += 1;
            return true;
        }
        self.looks = 0;
        !self.alone && self.may_spin_at(is_short, Instant::now())
    }

    fn may_spin_at(&mut self, is_short: bool, now: Instant) -> bool {
        let Some((began, last)) = self.spinning else {
            let may_spin = is_short && self.hasty_until.is_none_or(|until| now >= until);
            if may_spin {
                self.spinning = Some((now, now));
            } else {
                self.asleep_since = Some(now);
            }
            return may_spin;
        };
        if now - last >= GAP {
            self.hasty_until = Some(now + self.haste);
            self.haste = (self.haste * 2).min(LONGEST_HASTE);
            self.undisturbed = Duration::ZERO;
        } else if now - began < SPIN {
            self.spinning = Some((began, now));
            return true;
        } else {
            self.note_undisturbed(now - began);
        }
        self.spinning = None;
        self.asleep_since = Some(began);
        false
    }

    /// Something has arrived, or the thread has slept.
    #[inline]
    pub fn end(&mut self) {
        if let Some((began, last)) = self.spinning.take() {
            self.note_undisturbed(last - began);
            self.note_wait(last - began);
        } else if let Some(began) = self.asleep_since.take() {
            self.note_wait((Instant::now() - began).saturating_sub(SPIN));
        }
    }

    fn note_wait(&mut self, wait: Duration) {
        self.usual_wait = (self.usual_wait * 7 + wait.min(SPIN * 16)) / 8;
    }

    fn note_undisturbed(&mut self, span: Duration) {
        self.undisturbed += span;
        if self.undisturbed >= UNDISTURBED {
            self.undisturbed = Duration::ZERO;
            self.haste = FIRST_HASTE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `Patience`, and a clock that a test sets, in us after its start.
    fn patience() -> (Patience, impl Fn(u64) -> Instant) {
        let start = Instant::now();
        (Patience { alone: false, ..Patience::default() }, move |us| start + Duration::from_micros(us))
    }

    fn look(patience: &mut Patience, now: Instant) -> bool {
        patience.may_spin_at(patience.usual_wait <= SPIN, now)
    }

    #[test]
    fn a_thread_that_is_disturbed_stops_spinning_and_tries_again_later() {
        let (mut patience, at) = patience();
        // Undisturbed: it spins for as long as waking takes, again and again.
        for round in [0, 1_000] {
            assert!((0..60).all(|us| look(&mut patience, at(round + us))));
            assert!(!look(&mut patience, at(round + 60)));
        }
        // Disturbed: it does not spin for 20 ms, the next time for 40 ms.
        assert!(look(&mut patience, at(2_000)));
        assert!(!look(&mut patience, at(2_500)));
        assert!(!look(&mut patience, at(22_499)));
        assert!(look(&mut patience, at(22_500)));
        assert!(!look(&mut patience, at(24_000)));
        assert!(!look(&mut patience, at(63_999)));
        assert!(look(&mut patience, at(64_000)));
        patience.end();
        // 10 ms without a disturbance, whatever ended the spins: the thread has a core to itself.
        for round in 0..200 {
            assert!((0..=55).all(|us| look(&mut patience, at(100_000 + round * 1_000 + us))));
            patience.end();
        }
        assert_eq!(patience.haste, FIRST_HASTE);
    }

    #[test]
    fn a_thread_whose_waits_are_long_sleeps_at_once_and_spins_again_when_they_are_short() {
        let (mut patience, at) = patience();
        assert!(look(&mut patience, at(0)));
        patience.end();
        for _ in 0..8 {
            patience.note_wait(Duration::from_millis(1));
        }
        assert!(!look(&mut patience, at(1_000)), "spinning would take a core for nothing");
        // It has slept, and was woken sooner than a wake-up takes.
        let mut sleeps = 0;
        while patience.usual_wait > SPIN {
            patience.note_wait(Duration::from_micros(5));
            sleeps += 1;
        }
        assert!((2..40).contains(&sleeps), "{sleeps}");
        assert!(look(&mut patience, at(2_000)));
    }

    #[test]
    fn a_thread_sleeps_for_long_groups_and_looks_now_and_then_whether_they_still_are() {
        let (mut patience, at) = patience();
        let wait = |patience: &mut Patience, began: u64, us: u64| {
            let spins = patience.spins_for_group();
            let looks_on = spins && (0..=us).all(|passed| look(patience, at(began + passed)));
            patience.end_group();
            looks_on
        };
        let spun = (0..64).filter(|round| wait(&mut patience, round * 1_000, 45)).count();
        assert_eq!(spun, 1 + 3, "the first one, and one of sixteen");
        let spun = (64..128).filter(|round| wait(&mut patience, round * 1_000, 5)).count();
        assert_eq!(spun, 64, "short ones from the next look on");
    }
}
