//! The minimum rate of a host that has something unfinished: data it was asked for, an incomplete unit,
//! answers to read. Each of these holds memory, which a host that moves a byte now and then must not hold for
//! ever.
//!
//! Bytes are counted over windows of some seconds. A host may pause within a window, and a host that is
//! faster on average is never ended. Work that ends within its window is not judged.

/// The minimum rate of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeastRate {
    /// Bytes per second, averaged over a window.
    pub bytes_per_s: u64,
    /// Length of the window, ms.
    pub window_ms: u64,
}

impl Default for LeastRate {
    /// 4 KiB a second over 30 s: less than any network that is used for storage.
    fn default() -> LeastRate {
        LeastRate { bytes_per_s: 4096, window_ms: 30_000 }
    }
}

impl LeastRate {
    /// A host is judged over this part of the window while others wait for the memory that it holds.
    const SOONER: u64 = 6;

    /// The same rate over a shorter window: for a host that holds memory while one that holds less waits for some.
    pub(super) fn sooner(self) -> LeastRate {
        LeastRate { window_ms: self.window_ms / LeastRate::SOONER, ..self }
    }
}

/// Progress of something unfinished.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Progress {
    is_begun: bool,
    /// Start of the window, ms, and bytes moved until then.
    since_ms: u64,
    from_bytes: u64,
}

impl Progress {
    /// Must be called often, with the total of moved bytes. `true`: a window has ended in which too few bytes moved.
    pub(super) fn is_slow(&mut self, is_begun: bool, bytes: u64, now_ms: u64, least: LeastRate) -> bool {
        let was_begun = std::mem::replace(&mut self.is_begun, is_begun);
        let window_ms = now_ms.saturating_sub(self.since_ms);
        if is_begun && was_begun && window_ms <= least.window_ms {
            return false;
        }
        let moved_bytes = bytes - self.from_bytes;
        (self.since_ms, self.from_bytes) = (now_ms, bytes);
        // After a late call, at most two windows of bytes are expected; at any rate, at least one byte.
        let judged_ms = window_ms.min(2 * least.window_ms);
        let least_bytes = least.bytes_per_s.saturating_mul(judged_ms) / 1000;
        is_begun && was_begun && moved_bytes < least_bytes.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: LeastRate = LeastRate { bytes_per_s: 1000, window_ms: 10_000 };

    /// Seconds until a host that moves `bytes` a second is found slow; `None`: not within a minute.
    fn slow_after(bytes: u64) -> Option<u64> {
        let mut progress = Progress::default();
        (0..60).find(|second| progress.is_slow(true, bytes * second, 1000 * second, LEAST))
    }

    #[test]
    fn a_host_has_to_move_the_least_rate_and_not_just_a_byte() {
        assert_eq!([0, 1, 999].map(slow_after), [Some(11); 3]);
        assert_eq!([1000, 100_000].map(slow_after), [None; 2]);
    }

    #[test]
    fn what_ends_within_its_window_is_not_judged() {
        let mut progress = Progress::default();
        for second in 0..600 {
            assert!(!progress.is_slow(second % 8 != 0, 0, 1000 * second, LEAST), "{second} s");
        }
    }
}
