//! The steps of SAKER's work, so that a model can charge time for it.
//!
//! A call reports its steps while it runs, some of them under a lock: a runner adds them up and takes their
//! time after the call has returned.

/// One step of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A bucket of the pending table was locked and searched.
    Bucket,
    /// A request was put into a container.
    Append {
        /// Bytes copied: head, key and value.
        bytes: u32,
    },
    /// A container was closed and its head written.
    Close,
    /// A pending value was read.
    Unpack {
        /// Bytes of the value.
        bytes: u32,
    },
    /// The cache was searched; after a hit, the value was copied.
    CacheProbe {
        /// Bytes of the value; 0 for a miss.
        bytes: u32,
    },
    /// A pair was put into the cache, or its value replaced.
    CacheInsert {
        /// Bytes of the value.
        bytes: u32,
    },
    /// Pairs were evicted from the cache.
    CacheEvict {
        /// Number of pairs.
        pairs: u32,
    },
}

/// The receiver of steps; it also knows the time.
pub trait Steps {
    /// A step was done. Locks may be held, so this must not wait.
    fn step(&mut self, step: Step);

    /// The time in ns; asked only if `max_age_ns` is not 0.
    fn now_ns(&self) -> u64 {
        0
    }
}

/// Steps that are not charged: they take their own time.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSteps;

impl Steps for NoSteps {
    #[inline]
    fn step(&mut self, _: Step) {}
}
