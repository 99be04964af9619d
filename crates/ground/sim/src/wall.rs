//! The wall clock: events run when the machine's clock reaches their time, and arrivals come from other
//! threads.
//!
//! Every arrival is stamped with a model time later than that of any event that has run (`max(now + 1,
//! wall)`), and runs before all other events of that time. So the events of a wall-clock run are a function
//! of its stamped arrivals alone: a virtual run that is fed the same stamps
//! ([`crate::Sim::sleep_until_external`]) repeats it exactly.
//!
//! Arrivals come from any number of [`Source`]s, which one thread polls in turn. When nothing is due, the
//! thread spins for a moment if a core is to spare ([`Patience`]) and then sleeps in one place ([`Sleeper`])
//! until a source has an arrival or the next event is due. It does not poll while it sleeps, so an idle drive
//! takes no processor time. A source that other threads fill has a [`Bell`]; sockets are a source and a place
//! to sleep at once.

#![expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::executor::Sim;
pub use crate::patience::{Patience, SPIN};
use crate::tasks::TaskKey;
use crate::turns::{GivenTurns, Turns};
use crate::{Histogram, Ns};

/// Locks, even if another holder panicked: for state that is valid between any two statements.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How wall time and model time are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// An event runs when the machine's clock has reached its model time.
    Model,
    /// Events run as fast as the machine can; model time jumps from each event to the next.
    Jump,
    /// As fast as the machine can, and model time stands still as far as the source allows
    /// ([`Sim::hold_clock`]): a step of a task that would only take model time is no event.
    Off,
}

impl Pace {
    /// Does wall time determine when an event runs?
    fn is_paced(self) -> bool {
        self == Pace::Model
    }
}

/// Result of polling a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// Nothing new.
    Nothing,
    /// An arrival, stamped with the time offered; this task is to be woken for it.
    Woke(TaskKey),
    /// The source is closed: nothing more will arrive.
    Closed,
}

/// A source of arrivals. Called on the executor's thread, between events.
pub trait Source {
    /// Takes all arrivals and stamps them with `at`. It is called every few events, so it may leave out arrivals that
    /// only a system call would find, as long as [`Source::arm`] finds them.
    fn poll(&mut self, at: Ns) -> Polled;
    /// The thread is about to sleep: arrivals from now on have to wake it. Returns how long the thread may
    /// sleep at most, as far as this source is concerned ([`Duration::MAX`]: without limit); zero if
    /// something has arrived since the last poll.
    fn arm(&mut self) -> Duration;
    /// The thread is awake again.
    fn disarm(&mut self);
    /// Makes the next poll find all arrivals, including those that only a system call finds. Called when a long task
    /// has ended a slice ([`Sim::end_slice`]), or waits for its turn.
    fn look_closely(&mut self) {}
    /// Reports that an event of a paced run ran `late_ns` after its model time, by the machine's clock.
    fn ran_late(&mut self, late_ns: Ns) {
        _ = late_ns;
    }
}

/// Where the thread sleeps.
pub trait Sleeper {
    /// Sleeps until it is woken or `timeout` has passed ([`Duration::MAX`]: until it is woken); wake-ups may
    /// be spurious. A wake-up between [`Source::arm`] and this call makes it return at once.
    fn sleep(&mut self, timeout: Duration);
}

/// Sleeps by parking the thread; [`std::thread::Thread::unpark`] wakes it.
pub struct Park;

impl Sleeper for Park {
    fn sleep(&mut self, timeout: Duration) {
        if timeout == Duration::MAX { std::thread::park() } else { std::thread::park_timeout(timeout) }
    }
}

/// A value on its own cache lines (two, because processors fetch them in pairs), so that threads do not share
/// lines by accident.
#[repr(align(128))]
#[derive(Default)]
pub struct Apart<T>(pub T);

/// Notifies a thread of news from other threads; the thread is woken only if it sleeps.
#[derive(Default)]
pub struct Bell {
    /// Counts the rings.
    news: Apart<AtomicU64>,
    asleep: Apart<AtomicBool>,
    wake: OnceLock<Wake>,
}

struct Wake {
    call: Box<dyn Fn() + Send + Sync>,
    /// Is it called only by the first ring of a sleep? Otherwise each ring calls it.
    is_once: bool,
}

impl Bell {
    /// A bell that calls `wake` when its thread sleeps.
    pub fn waking(wake: impl Fn() + Send + Sync + 'static) -> Bell {
        let bell = Bell::default();
        bell.set_wake(wake);
        bell
    }

    /// Sets how to wake the thread, if that is not set yet. Until then a ring wakes no thread.
    pub fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        _ = self.wake.set(Wake { call: Box::new(wake), is_once: true });
    }

    /// Sets the function that each ring calls, from any thread, while the thread is asleep; does nothing if one is set.
    /// For a drive that runs in calls of one thread: a ring of that thread must run the drive even if another thread
    /// has rung before.
    pub fn set_call(&self, call: impl Fn() + Send + Sync + 'static) {
        _ = self.wake.set(Wake { call: Box::new(call), is_once: false });
    }

    /// Announces that a source has news.
    pub fn ring(&self) {
        // Sequentially consistent, as in `sleeps`: either the sleeper sees the news or the ringer sees the
        // sleeper.
        self.news.0.fetch_add(1, Ordering::SeqCst);
        if self.asleep.0.load(Ordering::SeqCst)
            && let Some(wake) = self.wake.get()
            && (!wake.is_once || self.asleep.0.swap(false, Ordering::SeqCst))
        {
            (wake.call)();
        }
    }

    /// Number of rings so far.
    pub fn news(&self) -> u64 {
        self.news.0.load(Ordering::Acquire)
    }

    /// Announces that the thread is about to sleep. Returns whether there was a ring since `seen`; then the thread must
    /// poll once more first.
    pub fn sleeps(&self, seen: u64) -> bool {
        self.asleep.0.store(true, Ordering::SeqCst);
        self.news.0.load(Ordering::SeqCst) != seen
    }

    /// Announces that the thread is awake.
    pub fn is_awake(&self) {
        self.asleep.0.store(false, Ordering::SeqCst);
    }
}

/// Steps between two polls of the sources when unpaced.
const STEPS_PER_LOOK: u32 = 32;
/// Events of one such step. A task may continue in place as long as no other event is due. Without this bound, a long
/// command would delay the sources until it ends.
const EVENTS_PER_STEP: u64 = 16;
/// Steps that use up their events may run for this long before the sources are polled.
const LONG_STEPS: Duration = Duration::from_micros(100);
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

/// The date by the machine's clock, in UTC: `22 Nov 2026`. For measurements that are written to a file.
pub fn today() -> String {
    let whole = httpdate::fmt_http_date(SystemTime::now());
    // `Sun, 22 Nov 2026 19:51:13 GMT`, of fixed width (RFC 9110, 5.6.7).
    whole[5..16].to_owned()
}

/// What a run in wall time did besides its events.
#[derive(Default)]
pub struct WallRun {
    /// How late events ran, wall minus model, ns; empty when unpaced.
    pub lateness: Histogram,
    /// Number of times the thread slept.
    pub sleeps: u64,
}

/// Runs until all sources are closed and no event is left.
pub fn run(sim: &Sim, pace: Pace, sources: &mut [&mut dyn Source], rest: &mut dyn Sleeper) -> WallRun {
    let start = Instant::now();
    let base = sim.now();
    let mut ran = WallRun::default();
    let mut patience = Patience::default();
    let mut outside = Outside::new(sources);
    let mut turns = Turns::new(start);
    let _given = GivenTurns::begin(sim, !pace.is_paced());
    if pace.is_paced() {
        sim.step_every_event();
    }
    loop {
        let wall = match pace {
            Pace::Model => base + start.elapsed().as_nanos() as Ns,
            Pace::Jump | Pace::Off => 0,
        };
        if outside.look(sim, wall.max(sim.now() + 1)) {
            patience.end();
        }
        // `None`: the thread has something to do. Otherwise how long it may wait for it.
        let wait = match (sim.next_due(), pace) {
            (None, _) if !sim.slices().are_waiting() => match outside.is_closed() {
                true => return ran,
                false => Some(Duration::MAX),
            },
            (Some(due), Pace::Model) if due <= wall => {
                ran.lateness.record(wall - due);
                outside.sources.iter_mut().for_each(|source| source.ran_late(wall - due));
                sim.step();
                None
            }
            (Some(due), Pace::Model) => Some(Duration::from_nanos(due - wall)),
            (due, _) => {
                go_on(sim, due.is_some(), &mut turns, &mut outside);
                None
            }
        };
        if sim.halted() {
            return ran;
        }
        let Some(wait) = wait else { continue };
        // The end of a long wait for the clock is spun, because sleepers wake up late.
        let timeout = match wait {
            Duration::MAX => wait,
            wait if wait > SPIN => wait - SPIN,
            wait => wait,
        };
        let spins = match wait {
            Duration::MAX => patience.look_again(),
            wait => wait <= SPIN && patience.look_again_until_due(),
        };
        if spins {
            std::hint::spin_loop();
            continue;
        }
        ran.sleeps += u64::from(outside.sleep(rest, timeout));
        patience.end();
    }
}

/// Runs some events, or a slice of a long task, or waits for others whose turn it is.
fn go_on(sim: &Sim, is_due: bool, turns: &mut Turns, outside: &mut Outside<'_, '_>) {
    let slice_began =
        sim.slices().are_waiting().then(Instant::now).filter(|now| turns.is_of_slice(is_due, *now));
    if slice_began.is_some() {
        sim.give_turn();
    } else if !is_due {
        std::hint::spin_loop();
        return outside.look_closely();
    }
    let has_ended = run_some(sim);
    if let Some(began) = slice_began {
        turns.note_slice(began, Instant::now());
    }
    if has_ended || slice_began.is_some() {
        outside.look_closely();
    }
}

/// All sources, and which of them are closed.
struct Outside<'a, 'b> {
    sources: &'a mut [&'b mut dyn Source],
    closed: Vec<bool>,
}

impl<'a, 'b> Outside<'a, 'b> {
    fn new(sources: &'a mut [&'b mut dyn Source]) -> Outside<'a, 'b> {
        Outside { closed: vec![false; sources.len()], sources }
    }

    fn is_closed(&self) -> bool {
        self.closed.iter().all(|closed| *closed)
    }

    /// Polls every source; `true` if there are arrivals.
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

    fn look_closely(&mut self) {
        self.sources.iter_mut().for_each(|source| source.look_closely());
    }

    /// Sleeps, unless something has arrived since the last poll; returns whether it had.
    fn sleep(&mut self, rest: &mut dyn Sleeper, timeout: Duration) -> bool {
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

/// Runs, unpaced, until nothing is due and the source has no arrivals; then arms the source. `true`: the source is
/// closed, or the power was cut. For a thread that does other work and calls this again when the source rings.
pub fn run_until_idle(sim: &Sim, source: &mut dyn Source) -> bool {
    let _given = GivenTurns::begin(sim, true);
    source.disarm();
    loop {
        let is_closed = match source.poll(sim.now() + 1) {
            Polled::Nothing => false,
            Polled::Woke(task) => {
                sim.wake_external(task, sim.now() + 1);
                false
            }
            Polled::Closed => true,
        };
        if sim.next_due().is_some() && !sim.halted() {
            if run_some(sim) {
                source.look_closely();
            }
        } else if sim.slices().are_waiting() && !sim.halted() {
            sim.give_turn();
        } else if is_closed || sim.halted() {
            return true;
        } else if !source.arm().is_zero() {
            return false;
        } else {
            source.disarm();
        }
    }
}

/// Runs some events; `true`: the last one ended a slice of a long command. The clock is read only after long steps.
fn run_some(sim: &Sim) -> bool {
    let mut began = None;
    for _ in 0..STEPS_PER_LOOK {
        let before = sim.events();
        sim.bound_step(EVENTS_PER_STEP);
        if !sim.step() {
            return false;
        }
        if sim.slices().take_end() {
            return true;
        }
        if sim.events() - before >= EVENTS_PER_STEP {
            let now = Instant::now();
            if now - *began.get_or_insert(now) >= LONG_STEPS {
                return false;
            }
        }
    }
    false
}
