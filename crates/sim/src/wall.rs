//! The wall clock: the same events, when the machine's clock gets there, and arrivals from other threads.
//!
//! Every arrival is stamped with a model time later than any event that has run (`max(now + 1, wall)`), and
//! runs before everything else of that time. So the events of a wall run are a function of its stamped
//! arrivals alone: feeding the same stamps to a virtual run ([`crate::Sim::sleep_until_external`]) repeats
//! it exactly.

#![expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]

use std::time::{Duration, Instant};

use crate::executor::{Sim, TaskKey};
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
pub enum Arrival {
    /// Nothing new.
    None,
    /// Something, stamped with the time offered; wake this task for it.
    Some(TaskKey),
    /// Nobody will ever send again.
    Closed,
}

/// Where arrivals come from. Called on the executor's thread, between events.
pub trait Source {
    /// Takes what has arrived and stamps it with `at`.
    fn poll(&mut self, at: Ns) -> Arrival;
    /// Nothing is due: sleep until something arrives or `timeout` has passed.
    fn park(&mut self, timeout: Duration);
}

/// Events between two looks at the source when unpaced.
const EVENTS_PER_LOOK: u32 = 32;
/// Looks without an arrival before the thread is put to sleep: some tens of microseconds, about what waking
/// costs.
const IDLE_LOOKS: u32 = 600;
/// Idle looks between two offers of the core to others: who would send may be waiting for it.
const LOOKS_PER_YIELD: u32 = 100;
/// Waits shorter than this are spun: waking a thread takes longer.
const SPIN: Duration = Duration::from_micros(60);
/// Longest sleep, so that a lost notification costs little.
const LONGEST_PARK: Duration = Duration::from_millis(5);

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

/// Runs until the source is closed and nothing is due any more. Returns how late events ran (wall minus
/// model, ns); empty when unpaced.
pub fn run(sim: &Sim, pace: Pace, source: &mut dyn Source) -> Histogram {
    let start = Instant::now();
    let base = sim.now();
    let mut lateness = Histogram::default();
    let mut idle_looks = 0u32;
    let mut closed = false;
    if pace == Pace::Model {
        sim.step_every_event();
    }
    loop {
        let wall = match pace {
            Pace::Model => base + start.elapsed().as_nanos() as Ns,
            Pace::Off => 0,
        };
        if !closed {
            match source.poll(wall.max(sim.now() + 1)) {
                Arrival::None => idle_looks = idle_looks.saturating_add(1),
                Arrival::Some(task) => {
                    sim.wake_external(task, wall.max(sim.now() + 1));
                    idle_looks = 0;
                }
                Arrival::Closed => closed = true,
            }
        }
        match (sim.next_due(), pace) {
            (None, _) if closed => return lateness,
            (None, _) => wait_for_arrival(source, idle_looks),
            (Some(_), Pace::Off) => run_some(sim),
            (Some(due), Pace::Model) if due <= wall => {
                lateness.record(wall - due);
                sim.step();
            }
            (Some(due), Pace::Model) => wait_until(source, Duration::from_nanos(due - wall)),
        }
        if sim.halted() {
            return lateness;
        }
    }
}

fn run_some(sim: &Sim) {
    for _ in 0..EVENTS_PER_LOOK {
        if !sim.step() {
            return;
        }
    }
}

fn wait_for_arrival(source: &mut dyn Source, idle_looks: u32) {
    if idle_looks > IDLE_LOOKS {
        source.park(LONGEST_PARK);
    } else if idle_looks.is_multiple_of(LOOKS_PER_YIELD) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

fn wait_until(source: &mut dyn Source, wait: Duration) {
    if wait > SPIN {
        source.park((wait - SPIN).min(LONGEST_PARK));
    } else {
        std::hint::spin_loop();
    }
}
