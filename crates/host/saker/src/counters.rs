//! What SAKER counts: section `saker` of reports.
//!
//! Each client has its own numbers, which only its thread writes; reading adds them up.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter of SAKER.
#[derive(Clone, Copy, PartialEq, Eq, Debug, kvdrive_declare::Counters)]
#[repr(usize)]
pub enum Count {
    /// Batches answered, those of one request included.
    Batches,
    /// Batches of one request, which were sent as a plain store or delete.
    Singles,
    /// Requests that entered a container.
    Requests,
    /// Requests sent as a command of their own, because they are too large, or conditional with nothing pending.
    Bypassed,
    /// Containers closed because they had `batch` requests.
    FullByCount,
    /// Containers closed because the next request did not fit.
    #[counter(unit = None)]
    FullByBytes,
    /// Containers closed by a sync.
    ClosedBySync,
    /// Containers closed because another client, or a bypass, wrote one of their keys.
    ClosedByOrder,
    /// Containers closed because they were `max_age_ns` old.
    ClosedByAge,
    /// Containers closed because no batch of their sequence was under way.
    ClosedByIdle,
    /// Containers closed because their client was dropped.
    ClosedByDrop,
    /// Batches that, once closed, waited for an older batch with one of their keys.
    Held,
    /// Requests that failed in a batch.
    Failed,
    /// Requests that a dropped client had written and not synced.
    Unsynced,
    /// Times a call had to wait for a batch.
    Waits,
    /// Reads answered from pending requests.
    PendingHits,
    /// Reads answered by the cache.
    CacheHits,
    /// Reads that went to the drive.
    CacheMisses,
    /// Pairs that a retrieve brought into the cache.
    Admitted,
    /// Pairs that were too large for the cache.
    Rejected,
    /// Pairs that did not enter the cache, because their key was written while they were read.
    LostFills,
    /// Pairs that left the cache to make room for others.
    Evicted,
    /// Transactions that were committed.
    Commits,
    /// Transactions that ended because another client had written a pair that they read.
    Conflicts,
}

/// The numbers of one client.
#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; Count::COUNTERS.len()]);

impl Counters {
    /// Adds. Only the thread of the client calls this, or a thread that holds the lock of the sums.
    #[inline]
    pub(crate) fn add(&self, count: Count, number: u64) {
        let counter = &self.0[count as usize];
        counter.store(counter.load(Ordering::Relaxed) + number, Ordering::Relaxed);
    }

    /// Adds the numbers of another client.
    pub(crate) fn add_all(&self, other: &Counters) {
        for (sum, counter) in self.0.iter().zip(&other.0) {
            sum.fetch_add(counter.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The value of the counter at this place.
    pub(crate) fn get(&self, place: usize) -> u64 {
        self.0[place].load(Ordering::Relaxed)
    }
}
