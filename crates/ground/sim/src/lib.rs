//! Time for a storage model: a single-threaded executor of tasks whose reactor is the clock.
//!
//! Firmware, flash and host code are plain sequential functions. They wait for *time* ([`Sim::sleep`]), for a
//! busy part of the machine ([`Resource`]) or for each other ([`WaitQueue`], [`KeyedLock`]); there is no
//! other reason to wait. A task has a stack of its own, so a function that waits looks like one that does
//! not, and costs nothing where it need not wait. State shared by tasks lies in [`TaskCell`]s, which must not
//! be borrowed across a wait. Two clocks drive the same code:
//!
//! * **virtual**: the loop takes the earliest event, sets `now` and resumes its task. The same program with
//!   the same seed runs the same events in the same order.
//! * **wall** ([`wall`]): the same loop waits until the machine's clock has reached the event, and between
//!   events polls a [`wall::Source`] for arrivals from other threads.
//!
//! This crate knows nothing of storage, except the names of the causes by which occupied time is divided ([`Cause`]). It is the only
//! crate that reads the machine's clock and the only source of randomness ([`Rng::stream`]).

mod agenda;
mod buckets;
mod cell;
mod coroutine;
mod executor;
mod forks;
mod join;
mod lock;
mod occupation;
mod patience;
#[cfg(unix)]
mod processor_time;
mod resource;
mod rng;
mod schedule;
mod slices;
mod statistics;
mod tasks;
mod time_share;
mod trace;
mod turns;
mod wait_queue;
pub mod wall;

pub use buckets::Buckets;
pub use cell::{TaskCell, TaskRef, TaskRefMut};
pub use coroutine::{STACK_BYTES, deepest_stack_bytes};
pub use executor::{ClockHold, Sim, Spending};
pub use forks::ForkCount;
pub use join::{JoinHandle, join_all};
pub use lock::{KeyGuard, KeyedLock, Mutex, MutexGuard};
pub use occupation::{Cause, OccupationStatistics};
#[cfg(unix)]
pub use processor_time::ProcessorTime;
pub use resource::{Core, Resource, ResourceGuard, ResourceStatistics};
pub use rng::Rng;
pub use statistics::{Histogram, Summary};
pub use tasks::TaskKey;
pub use time_share::{TimeShare, idle_or_next};
pub use trace::{Trace, TraceEntry};
pub use wait_queue::WaitQueue;

/// A point in model time, or a span of it, in nanoseconds.
pub type Ns = u64;
