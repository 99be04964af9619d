//! Operations in seconds.

use serde::{Deserialize, Serialize};

/// Several runs of the same operations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Speed {
    /// Operations of each run: stores, except for the hash engine.
    pub operations: u64,
    /// Seconds of each run.
    pub seconds: Vec<f64>,
    /// Operations a second of the fastest run.
    pub per_s: f64,
    /// For each run, the time that its thread was on a core, s; empty if the system does not report it, and
    /// in wall time, where threads poll while they wait for each other.
    pub cpu_seconds: Vec<f64>,
    /// Operations a CPU second, in the run that took the fewest CPU seconds.
    pub per_cpu_s: Option<f64>,
    /// Events of the simulation for each operation; `None` in wall time, where waiting takes events, too, and
    /// if a load ran at the same time.
    pub events_each: Option<f64>,
}

impl Speed {
    pub(super) fn of(
        operations: u64,
        seconds: Vec<f64>,
        cpu_seconds: Vec<f64>,
        events_each: Option<f64>,
    ) -> Speed {
        let least = |seconds: &[f64]| seconds.iter().copied().reduce(f64::min);
        let rate = |seconds: f64| operations as f64 / seconds;
        Speed {
            operations,
            per_s: least(&seconds).map_or(0.0, rate),
            per_cpu_s: least(&cpu_seconds).map(rate),
            seconds,
            cpu_seconds,
            events_each,
        }
    }
}

/// Time that the calling thread was on a core, s: the first number of Linux's `schedstat`, which is in ns.
pub(super) fn thread_cpu_seconds() -> Option<f64> {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let on_core_ns: u64 = statistics.split_whitespace().next()?.parse().ok()?;
    Some(on_core_ns as f64 / 1e9)
}
