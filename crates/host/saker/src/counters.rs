//! What SAKER counts: one row here is one key `saker.NAME` of a report.
//!
//! Each client has its own numbers, which only its thread writes; reading adds them up.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter of SAKER.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Count {
    /// Batches answered, those of one request included.
    Batches,
    /// Batches of one request, which went as a plain store or delete.
    Singles,
    /// Requests that entered a container.
    Requests,
    /// Requests that went to the drive on their own: too large, or conditional with nothing pending.
    Bypassed,
    /// Containers closed because they had `batch` requests.
    FullByCount,
    /// Containers closed because the next request did not fit.
    FullByBytes,
    /// Containers closed by a sync.
    ClosedBySync,
    /// Containers closed because another client, or a bypass, wrote one of their keys.
    ClosedByOrder,
    /// Containers closed because they were `max_age_ns` old.
    ClosedByAge,
    /// Containers closed because nothing of their lane was under way.
    ClosedByIdle,
    /// Containers closed because their client was dropped.
    ClosedByDrop,
    /// Batches that, once closed, had to wait for an older one with one of their keys.
    Held,
    /// Requests that failed in a batch.
    Failed,
    /// Requests that a dropped client had written and not synced.
    Unsynced,
    /// Times a call had to wait for a batch.
    Waits,
    /// Reads answered from what was pending.
    PendingHits,
    /// Reads answered by the cache.
    CacheHits,
    /// Reads that went to the drive.
    CacheMisses,
    /// Pairs that a retrieve brought into the cache.
    Admitted,
    /// Pairs that were too large for the cache.
    Rejected,
    /// Fills that lost against a write.
    LostFills,
    /// Pairs that left the cache for others.
    Evicted,
    /// Transactions that were committed.
    Commits,
    /// Transactions that ended because another client had written what they read.
    Conflicts,
}

/// Every count with its name, in the order of [`Count`].
pub const COUNTS: [(Count, &str); 24] = [
    (Count::Batches, "batches"),
    (Count::Singles, "singles"),
    (Count::Requests, "requests"),
    (Count::Bypassed, "bypassed"),
    (Count::FullByCount, "full_by_count"),
    (Count::FullByBytes, "full_by_bytes"),
    (Count::ClosedBySync, "closed_by_sync"),
    (Count::ClosedByOrder, "closed_by_order"),
    (Count::ClosedByAge, "closed_by_age"),
    (Count::ClosedByIdle, "closed_by_idle"),
    (Count::ClosedByDrop, "closed_by_drop"),
    (Count::Held, "held"),
    (Count::Failed, "failed"),
    (Count::Unsynced, "unsynced"),
    (Count::Waits, "waits"),
    (Count::PendingHits, "pending_hits"),
    (Count::CacheHits, "cache_hits"),
    (Count::CacheMisses, "cache_misses"),
    (Count::Admitted, "admitted"),
    (Count::Rejected, "rejected"),
    (Count::LostFills, "lost_fills"),
    (Count::Evicted, "evicted"),
    (Count::Commits, "commits"),
    (Count::Conflicts, "conflicts"),
];

const _: () = {
    let mut row = 0;
    while row < COUNTS.len() {
        assert!(COUNTS[row].0 as usize == row, "a row of COUNTS is out of place");
        row += 1;
    }
};

/// The numbers of one client.
#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; COUNTS.len()]);

impl Counters {
    /// Adds. Only the thread of the client calls this, or a thread that holds the lock of the sums.
    #[inline]
    pub(crate) fn add(&self, count: Count, number: u64) {
        let counter = &self.0[count as usize];
        counter.store(counter.load(Ordering::Relaxed) + number, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, count: Count) -> u64 {
        self.0[count as usize].load(Ordering::Relaxed)
    }
}
