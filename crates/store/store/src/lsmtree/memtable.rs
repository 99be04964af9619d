//! Pairs that are not in tables yet, in all their versions.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;

use kvdrive_nvme::Key;

use crate::value::StoredValue;

/// A key with its value; `None`: deleted.
pub type Pair = (Key, Option<StoredValue>);

/// Bytes of memory of a pair beside its key and value: a node's share of links, its sequence number and
/// lengths. RocksDB 7.8.3 takes 29 B in its arena with values of 16 B, 36 B with values of 128 B (measured).
const PAIR_BYTES: u64 = 32;

/// Bytes of a full memtable for which the cost of a search was measured: RocksDB's default.
const MEASURED_BYTES: u64 = 64 << 20;

/// Values by key, newest first.
type Versions = BTreeMap<(Key, Reverse<u64>), Option<StoredValue>>;

/// A memtable. Cursors share it, and see the versions up to their sequence number.
pub struct Memtable {
    versions: RefCell<Versions>,
    /// Bytes charged for its pairs.
    pub bytes: Cell<u64>,
    /// Position in the log at which its records begin.
    pub wal_from: u64,
    /// Sequence of its newest record.
    pub newest: Cell<u64>,
}

impl Memtable {
    /// An empty memtable.
    pub fn new(wal_from: u64) -> Memtable {
        Memtable { versions: RefCell::default(), bytes: Cell::new(0), wal_from, newest: Cell::new(0) }
    }

    /// Has it no pairs?
    pub fn is_empty(&self) -> bool {
        self.versions.borrow().is_empty()
    }

    /// Steps of a search of it ([`Step::MemtableLevel`](crate::Step)): none if it is empty. Experiments scale memtables down
    /// with everything else, so one that is full at `full_bytes` takes the steps of one of 64 MiB that is as full.
    pub fn levels(&self, full_bytes: u64) -> u64 {
        let pairs = self.versions.borrow().len() as u64;
        let alike = u128::from(pairs) * u128::from(MEASURED_BYTES) / u128::from(full_bytes.max(1));
        let bits = u64::from(u128::BITS - alike.leading_zeros());
        bits * bits
    }

    /// Adds a version.
    pub fn insert(&self, key: Key, sequence: u64, value: Option<StoredValue>) {
        let bytes = value.as_ref().map_or(0, |value| u64::from(value.bytes()));
        self.bytes.set(self.bytes.get() + PAIR_BYTES + key.len() as u64 + bytes);
        self.newest.set(self.newest.get().max(sequence));
        self.versions.borrow_mut().insert((key, Reverse(sequence)), value);
    }

    /// The newest version of a key.
    pub fn get(&self, key: &Key) -> Option<Option<StoredValue>> {
        let versions = self.versions.borrow();
        let (found, value) = versions.range((*key, Reverse(u64::MAX))..).next()?;
        (found.0 == *key).then(|| value.clone())
    }

    /// Up to `most` pairs in order after `after` (or from `from` on): of each key the newest version that is
    /// not newer than `upto`.
    pub fn next(&self, from: Bound<Key>, upto: u64, most: usize) -> Vec<Pair> {
        let versions = self.versions.borrow();
        let start = match from {
            Bound::Included(key) => Bound::Included((key, Reverse(u64::MAX))),
            Bound::Excluded(key) => Bound::Excluded((key, Reverse(0))),
            Bound::Unbounded => Bound::Unbounded,
        };
        let mut pairs: Vec<Pair> = Vec::new();
        for ((key, sequence), value) in versions.range((start, Bound::Unbounded)) {
            if sequence.0 > upto || pairs.last().is_some_and(|(last, _)| last == key) {
                continue;
            }
            if pairs.len() == most {
                break;
            }
            pairs.push((*key, value.clone()));
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RocksDB 7.8.3's memtables of 100 to 466 033 pairs of 8 + 16 B took 0.57 to 3.43 us a search, 7 to 12 ns a level.
    #[test]
    fn an_empty_memtable_is_searched_in_no_time_and_a_fuller_one_in_more() {
        let memtable = Memtable::new(0);
        let mut found = Vec::new();
        for number in 0..2000u64 {
            found.push(memtable.levels(MEASURED_BYTES));
            memtable.insert(Key::from_u64_be(number), number, None);
        }
        assert_eq!([found[0], found[1], found[100], found[1000]], [0, 1, 49, 100]);
        assert!(found.is_sorted());
        // 2000 pairs in a 256th of the memory are as full as 512 000 are.
        assert_eq!(memtable.levels(MEASURED_BYTES / 256), 19 * 19);
        assert_eq!(memtable.levels(0), memtable.levels(1), "no division by zero");
    }
}
