//! The pending table: the place of each key's newest version that the drive may not have yet.
//!
//! One lock a bucket. A bucket also counts the writes that entered it: a reader that asks the drive remembers
//! the count, and the answer enters the cache only if the count is still the same.

use std::sync::Arc;

use kvdrive_nvme::Key;
use kvdrive_nvme::batch::RequestKind;

use crate::batch::Batch;
use crate::sync::{Mutex, MutexGuard, lock};

/// The kind of a key's newest pending version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pending {
    /// A value, which is in the batch.
    Store,
    /// A delete.
    Delete,
    /// A bypass: the drive decides about its condition, or the value is not here.
    Unknown,
}

impl Pending {
    /// The version that a request makes.
    #[inline]
    pub(crate) fn of(kind: RequestKind) -> Pending {
        match kind {
            RequestKind::Store => Pending::Store,
            RequestKind::Delete => Pending::Delete,
        }
    }
}

/// A version's place.
#[derive(Clone)]
pub(crate) struct Newest {
    pub(crate) batch: Arc<Batch>,
    pub(crate) index: u32,
    pub(crate) pending: Pending,
}

#[derive(Default)]
pub(crate) struct Bucket {
    /// Writes that have entered.
    pub(crate) writes: u64,
    entries: Vec<(Key, Newest)>,
}

impl Bucket {
    #[inline]
    pub(crate) fn find(&self, key: &Key) -> Option<&Newest> {
        self.entries.iter().find(|(other, _)| other == key).map(|(_, place)| place)
    }

    /// Makes `place` the newest version of `key`.
    #[inline]
    pub(crate) fn enter(&mut self, key: Key, place: Newest) {
        self.writes += 1;
        match self.entries.iter_mut().find(|(other, _)| *other == key) {
            Some((_, old)) => *old = place,
            None => self.entries.push((key, place)),
        }
    }

    /// Keys with their newest pending versions.
    pub(crate) fn entries(&self) -> &[(Key, Newest)] {
        &self.entries
    }

    /// Notes that the drive has answered that version. Unless a newer one has entered since, the key leaves
    /// the table, and the kind of the version is returned.
    #[inline]
    pub(crate) fn leave(&mut self, key: &Key, batch: &Arc<Batch>, index: u32) -> Option<Pending> {
        let found = self.entries.iter().position(|(other, place)| {
            other == key && Arc::ptr_eq(&place.batch, batch) && place.index == index
        });
        found.map(|at| self.entries.swap_remove(at).1.pending)
    }
}

/// The table.
pub(crate) struct PendingTable {
    buckets: Box<[Mutex<Bucket>]>,
}

/// Mixes a key into 64 bits, for the buckets' index and the cache's tables. It is our own function, so that a
/// run on another machine finds the same buckets.
#[inline]
pub(crate) fn hash(key: &Key) -> u64 {
    let (hi, lo) = key.halves();
    let mut z =
        (hi ^ lo.rotate_left(32)).wrapping_add((key.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    z = (z ^ (z >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    z ^ (z >> 32)
}

impl PendingTable {
    pub(crate) fn new(buckets: u32) -> PendingTable {
        let buckets = buckets.next_power_of_two();
        PendingTable { buckets: (0..buckets).map(|_| Mutex::default()).collect() }
    }

    /// The index of a key's bucket.
    #[inline]
    pub(crate) fn index(&self, key: &Key) -> usize {
        // The high half is used here, since the cache's tables use the low one.
        (hash(key) >> 32) as usize & (self.buckets.len() - 1)
    }

    /// All buckets, locked in order of their indexes, as in every call that locks several.
    pub(crate) fn all(&self) -> Vec<MutexGuard<'_, Bucket>> {
        self.buckets.iter().map(lock).collect()
    }

    #[inline]
    pub(crate) fn bucket(&self, key: &Key) -> MutexGuard<'_, Bucket> {
        self.at(self.index(key))
    }

    #[inline]
    pub(crate) fn at(&self, index: usize) -> MutexGuard<'_, Bucket> {
        lock(&self.buckets[index])
    }
}
