//! Processor time: the machine's other clock, which stands still while other programs have the core. For measurements
//! of our own code, never for a run.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Processor time of a thread or of all threads, counted from its creation.
pub struct ProcessorTime {
    clock: ClockId,
    begin: Timespec,
}

impl ProcessorTime {
    /// The processor time of the calling thread.
    pub fn of_thread() -> ProcessorTime {
        ProcessorTime::of(ClockId::ThreadCPUTime)
    }

    /// The processor time of all threads of this program.
    pub fn of_program() -> ProcessorTime {
        ProcessorTime::of(ClockId::ProcessCPUTime)
    }

    fn of(clock: ClockId) -> ProcessorTime {
        ProcessorTime { clock, begin: clock_gettime(clock) }
    }

    /// Nanoseconds since its creation.
    pub fn ns(&self) -> f64 {
        let now = clock_gettime(self.clock);
        (now.tv_sec - self.begin.tv_sec) as f64 * 1e9 + (now.tv_nsec - self.begin.tv_nsec) as f64
    }
}
