//! The wall clock: the same events, when the machine's clock gets there, and arrivals from other threads.
//!
//! Every arrival is stamped with a model time later than any event that has run (`max(now + 1, wall)`), and
//! runs before everything else of that time. So the events of a wall run are a function of its stamped
//! arrivals alone: feeding the same stamps to a virtual run ([`crate::Sim::sleep_until_external`]) repeats
//! it exactly.
//!
//! Arrivals come from any number of [`Source`]s, which one thread looks at in turn. With nothing due it stays
//! awake for a moment if a core is to spare ([`Patience`]) and then sleeps in one place ([`Rest`]) until one of
//! them has something or the next event is due: no look now and then, so a drive that nobody asks takes
//! nothing of a core. A source that other threads fill has a [`Bell`]; sockets are a source and a place to
//! sleep at once.

#![expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::executor::Sim;
use crate::tasks::TaskKey;
use crate::{Histogram, Ns};

/// How wall time and model time go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// An event runs when the machine's clock has reached its model time.
    Model,
    /// Events run as fast as the machine can; model time jumps.
    Off,
}

/// What a look at the outside brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// Nothing new.
    Nothing,
    /// Something, stamped with the time offered; wake this task for it.
    Woke(TaskKey),
    /// Nobody will ever send again.
    Closed,
}

/// Where arrivals come from. Called on the executor's thread, between events.
pub trait Source {
    /// Takes what has arrived and stamps it with `at`. It is called every few events: a look that costs a
    /// system call may leave some out, as long as [`Source::arm`] finds what it has not taken.
    fn poll(&mut self, at: Ns) -> Polled;
    /// The thread is about to sleep: what arrives from now on has to wake it. Returns how long it may sleep
    /// at most, for the sake of this source ([`Duration::MAX`]: as long as it likes); nothing if something
    /// has arrived since the last look.
    fn arm(&mut self) -> Duration;
    /// The thread is awake again.
    fn disarm(&mut self);
    /// An event of a paced run is carried out so much later than the model has it, by the machine's clock, ns.
    fn ran_late(&mut self, late_ns: Ns) {
        _ = late_ns;
    }
}

/// Where the thread sleeps.
pub trait Rest {
    /// Sleeps until it is woken or `timeout` has passed ([`Duration::MAX`]: until it is woken); it may wake up
    /// for nothing. Who wakes it between [`Source::arm`] and this call makes it return at once.
    fn sleep(&mut self, timeout: Duration);
}

/// Sleeps as threads do; [`std::thread::Thread::unpark`] wakes it.
pub struct Park;

impl Rest for Park {
    fn sleep(&mut self, timeout: Duration) {
        if timeout == Duration::MAX { std::thread::park() } else { std::thread::park_timeout(timeout) }
    }
}

/// A value on cache lines of its own (two: processors fetch them in pairs), so that threads do not disturb
/// each other.
#[repr(align(128))]
#[derive(Default)]
pub struct Apart<T>(pub T);

/// How a thread hears of news from others, asleep or not; it is woken only if it sleeps.
#[derive(Default)]
pub struct Bell {
    /// Grows with everything there is to look at.
    news: Apart<AtomicU64>,
    asleep: Apart<AtomicBool>,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Bell {
    /// A bell that calls `wake` when its thread sleeps.
    pub fn waking(wake: impl Fn() + Send + Sync + 'static) -> Bell {
        let bell = Bell::default();
        bell.set_wake(wake);
        bell
    }

    /// Says how to wake the thread, if nobody has said so yet. Until then nobody is woken.
    pub fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        _ = self.wake.set(Box::new(wake));
    }

    /// There is something to look at.
    pub fn ring(&self) {
        // Sequentially consistent, as in `sleeps`: either the sleeper sees the news or the ringer the sleeper.
        self.news.0.fetch_add(1, Ordering::SeqCst);
        if self.asleep.0.load(Ordering::SeqCst)
            && self.asleep.0.swap(false, Ordering::SeqCst)
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }

    /// How often it rang.
    pub fn news(&self) -> u64 {
        self.news.0.load(Ordering::Acquire)
    }

    /// The thread is about to sleep. It has to look once more before it does: was there a ring since `seen`?
    pub fn sleeps(&self, seen: u64) -> bool {
        self.asleep.0.store(true, Ordering::SeqCst);
        self.news.0.load(Ordering::SeqCst) != seen
    }

    /// It is awake.
    pub fn is_awake(&self) {
        self.asleep.0.store(false, Ordering::SeqCst);
    }
}

/// Events between two looks at the sources when unpaced.
const EVENTS_PER_LOOK: u32 = 32;
/// How long a thread that waits stays awake: about what waking it would take. Waits for the clock that are
/// shorter are spun, too.
const SPIN: Duration = Duration::from_micros(60);
/// Looks between two readings of the clock, each of which takes as long as some looks.
const LOOKS_PER_READING: u32 = 8;
/// Two looks of a thread that does nothing but look are never so far apart, unless somebody else had its core.
const GAP: Duration = Duration::from_micros(200);
/// How long a thread sleeps at once after it had to share its core: this the first time, and twice as long each
/// time that it finds itself disturbed again, up to the second.
const FIRST_HASTE: Duration = Duration::from_millis(20);
const LONGEST_HASTE: Duration = Duration::from_secs(1);
/// A thread that has spun so long without being disturbed has a core to itself.
const UNDISTURBED: Duration = Duration::from_millis(10);

/// How long a thread that waits for others stays awake. Where a core is to spare, spinning for a moment
/// answers sooner than sleeping; where others wait for that core it is the other way about: a thread that
/// used its share up by spinning waits milliseconds for the next one, and a sleeper is let in when it wakes
/// up. Which of the two it is, the clock tells: a gap between two looks was somebody else's.
pub struct Patience {
    /// There is one core only: whoever is waited for needs it.
    alone: bool,
    /// Looks since the clock was read.
    looks: u32,
    /// Since when it spins, and the last look.
    spinning: Option<(Instant, Instant)>,
    undisturbed: Duration,
    haste: Duration,
    hasty_until: Option<Instant>,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            alone: std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1),
            looks: 0,
            spinning: None,
            undisturbed: Duration::ZERO,
            haste: FIRST_HASTE,
            hasty_until: None,
        }
    }
}

impl Patience {
    /// Nothing has come. `true`: look again at once; `false`: sleep.
    pub fn look_again(&mut self) -> bool {
        if self.spinning.is_some() && self.looks < LOOKS_PER_READING {
            self.looks += 1;
            return true;
        }
        self.looks = 0;
        !self.alone && self.look_again_at(Instant::now())
    }

    fn look_again_at(&mut self, now: Instant) -> bool {
        let Some((began, last)) = self.spinning else {
            let may_spin = self.hasty_until.is_none_or(|until| now >= until);
            self.spinning = may_spin.then_some((now, now));
            return may_spin;
        };
        if now - last >= GAP {
            self.hasty_until = Some(now + self.haste);
            self.haste = (self.haste * 2).min(LONGEST_HASTE);
            self.undisturbed = Duration::ZERO;
            self.spinning = None;
            return false;
        }
        self.spinning = Some((began, now));
        if now - began < SPIN {
            return true;
        }
        self.end();
        false
    }

    /// Something has come, or the thread has slept.
    #[inline]
    pub fn end(&mut self) {
        let Some((began, last)) = self.spinning.take() else { return };
        self.undisturbed += last - began;
        if self.undisturbed >= UNDISTURBED {
            self.undisturbed = Duration::ZERO;
            self.haste = FIRST_HASTE;
        }
    }
}

/// The machine's clock, counted in ns from its creation, for measured figures in reports.
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// Nanoseconds since the start.
    pub fn ns(&self) -> Ns {
        self.0.elapsed().as_nanos() as Ns
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// The day by the machine's clock, in UTC: `22 Nov 2026`. For what is measured and goes into a file.
pub fn today() -> String {
    let whole = httpdate::fmt_http_date(SystemTime::now());
    // `Sun, 22 Nov 2026 19:51:13 GMT`, of fixed width (RFC 9110, 5.6.7).
    whole[5..16].to_owned()
}

/// What a run in wall time did besides its events.
#[derive(Default)]
pub struct Ran {
    /// How late events ran, wall minus model, ns; empty when unpaced.
    pub lateness: Histogram,
    /// How often the thread slept.
    pub sleeps: u64,
}

/// Runs until all sources are closed and nothing is due any more.
pub fn run(sim: &Sim, pace: Pace, sources: &mut [&mut dyn Source], rest: &mut dyn Rest) -> Ran {
    let start = Instant::now();
    let base = sim.now();
    let mut ran = Ran::default();
    let mut patience = Patience::default();
    let mut outside = Outside { closed: vec![false; sources.len()], sources };
    if pace == Pace::Model {
        sim.step_every_event();
    }
    loop {
        let wall = match pace {
            Pace::Model => base + start.elapsed().as_nanos() as Ns,
            Pace::Off => 0,
        };
        if outside.look(sim, wall.max(sim.now() + 1)) {
            patience.end();
        }
        // `None`: the thread has something to do. Otherwise how long it may wait for it.
        let wait = match (sim.next_due(), pace) {
            (None, _) if outside.is_closed() => return ran,
            (None, _) => Some(Duration::MAX),
            (Some(_), Pace::Off) => {
                run_some(sim);
                None
            }
            (Some(due), Pace::Model) if due <= wall => {
                ran.lateness.record(wall - due);
                outside.sources.iter_mut().for_each(|source| source.ran_late(wall - due));
                sim.step();
                None
            }
            (Some(due), Pace::Model) => Some(Duration::from_nanos(due - wall)),
        };
        if sim.halted() {
            return ran;
        }
        let Some(wait) = wait else { continue };
        // The end of a long wait for the clock is spun: sleepers wake up late.
        let timeout = match wait {
            Duration::MAX => wait,
            wait if wait > SPIN => wait - SPIN,
            wait => wait,
        };
        if (wait == Duration::MAX || wait <= SPIN) && patience.look_again() {
            std::hint::spin_loop();
            continue;
        }
        ran.sleeps += u64::from(outside.sleep(rest, timeout));
        patience.end();
    }
}

/// All sources, and which of them are closed.
struct Outside<'a, 'b> {
    sources: &'a mut [&'b mut dyn Source],
    closed: Vec<bool>,
}

impl Outside<'_, '_> {
    fn is_closed(&self) -> bool {
        self.closed.iter().all(|closed| *closed)
    }

    /// Looks at every source; `true` if something has arrived.
    fn look(&mut self, sim: &Sim, at: Ns) -> bool {
        let mut any = false;
        for (source, closed) in self.sources.iter_mut().zip(&mut self.closed).filter(|(_, closed)| !**closed)
        {
            match source.poll(at) {
                Polled::Nothing => {}
                Polled::Woke(task) => {
                    sim.wake_external(task, at);
                    any = true;
                }
                Polled::Closed => *closed = true,
            }
        }
        any
    }

    /// Sleeps, unless something has arrived since the last look; did it?
    fn sleep(&mut self, rest: &mut dyn Rest, timeout: Duration) -> bool {
        let mut most = timeout;
        for (source, _) in self.sources.iter_mut().zip(&self.closed).filter(|(_, closed)| !**closed) {
            most = most.min(source.arm());
        }
        if !most.is_zero() {
            rest.sleep(most);
        }
        for (source, _) in self.sources.iter_mut().zip(&self.closed).filter(|(_, closed)| !**closed) {
            source.disarm();
        }
        !most.is_zero()
    }
}

fn run_some(sim: &Sim) {
    for _ in 0..EVENTS_PER_LOOK {
        if !sim.step() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_disturbed_stops_spinning_and_tries_again_later() {
        let start = Instant::now();
        let at = |us: u64| start + Duration::from_micros(us);
        let mut patience = Patience { alone: false, ..Patience::default() };
        // Undisturbed: for as long as waking takes, again and again.
        for round in [0, 1_000] {
            assert!((0..60).all(|us| patience.look_again_at(at(round + us))));
            assert!(!patience.look_again_at(at(round + 60)));
        }
        // Disturbed: not again for 20 ms, then for 40.
        assert!(patience.look_again_at(at(2_000)));
        assert!(!patience.look_again_at(at(2_500)));
        assert!(!patience.look_again_at(at(22_499)));
        assert!(patience.look_again_at(at(22_500)));
        assert!(!patience.look_again_at(at(24_000)));
        assert!(!patience.look_again_at(at(63_999)));
        assert!(patience.look_again_at(at(64_000)));
        patience.end();
        // 10 ms without a disturbance, whatever ended the spins: it has a core to itself.
        for round in 0..200 {
            assert!((0..=55).all(|us| patience.look_again_at(at(100_000 + round * 1_000 + us))));
            patience.end();
        }
        assert_eq!(patience.haste, FIRST_HASTE);
    }
}
