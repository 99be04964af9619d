//! Time for a storage model: a single-threaded async executor whose reactor is the clock.
//!
//! Firmware, flash and host code are plain sequential `async fn`s. They wait for *time* ([`Sim::sleep`]),
//! for a busy part of the machine ([`Resource`]) or for each other ([`WaitQueue`], [`KeyedLock`]); there is
//! no other reason to wait. Two clocks drive the same code:
//!
//! * **virtual**: the loop takes the earliest event, sets `now` and polls its task. Same program, same
//!   seed, same order, to the last event.
//! * **wall** ([`wall`]): the same loop, but it waits until the machine's clock has reached the event, and
//!   between events looks at a [`wall::Source`] for arrivals from other threads.
//!
//! This crate knows no storage words. It is also the only one that reads the machine's clock and the only
//! source of randomness ([`Rng::stream`]).

mod agenda;
mod executor;
mod lock;
mod resource;
mod rng;
mod statistics;
mod trace;
mod wait_queue;
pub mod wall;

pub use executor::{ClockHold, JoinHandle, Sim, Sleep, TaskKey, join_all};
pub use lock::{KeyGuard, KeyedLock, Mutex, MutexGuard};
pub use resource::{Resource, ResourceGuard, ResourceStatistics, Run};
pub use rng::Rng;
pub use statistics::{Histogram, Summary};
pub use trace::{Trace, TraceEntry};
pub use wait_queue::{Wait, WaitQueue};

/// A point in model time, or a span of it, in nanoseconds.
pub type Ns = u64;
