//! The read cache: pairs that were retrieved, in front of the drive.
//!
//! | | where |
//! |---|---|
//! | what enters | [`crate::client`]: values up to `admit_bytes`, unless a write came between question and answer |
//! | what leaves | an eviction policy, one file each: a row of [`EVICTIONS`] |
//!
//! A cache is full by one of two counts ([`Charge`]): the bytes of keys and values and a constant for each
//! pair, as RocksDB charges its row cache, with which studies compare; or all the memory that its pairs take.
//! For pairs of 8 + 16 B the memory is about six times their bytes.

mod config;
mod lru;
mod s3_fifo;

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_nvme::Key;

pub use config::{CacheConfig, Charge};

/// Bytes of the longest value that is kept in place of a pointer to it.
const SHORT_BYTES: usize = 22;

/// A value in the cache: bytes, or the pattern that describes them.
#[derive(Clone, Debug)]
pub enum Value {
    /// A few bytes, in place.
    Short {
        /// How many bytes the value has.
        count: u8,
        /// The value, then zeros.
        bytes: [u8; SHORT_BYTES],
    },
    /// Bytes on the heap.
    Bytes(Arc<[u8]>),
    /// Bytes by description.
    Pattern(Pattern),
}

const _: () = assert!(size_of::<Value>() == 24, "a short value takes no more room than a pointer");

impl Value {
    /// A copy of this content.
    pub fn of(piece: Piece<'_>) -> Value {
        match piece {
            Piece::Bytes(bytes) => Value::of_bytes(bytes),
            Piece::Pattern(pattern) => Value::Pattern(pattern),
        }
    }

    fn of_bytes(bytes: &[u8]) -> Value {
        if bytes.len() > SHORT_BYTES {
            return Value::Bytes(bytes.into());
        }
        let mut short = [0; SHORT_BYTES];
        short[..bytes.len()].copy_from_slice(bytes);
        Value::Short { count: bytes.len() as u8, bytes: short }
    }

    /// A copy of the first `bytes` bytes of a region. If they are in several pieces, patterns are expanded.
    pub fn of_region(region: &Region, bytes: u32) -> Value {
        let mut whole = None;
        region.read(0, bytes, &mut |piece| {
            if piece.bytes() == bytes {
                whole = Some(Value::of(piece));
            }
        });
        whole.unwrap_or_else(|| Value::of_bytes(&region.to_bytes(bytes)))
    }

    /// Its content.
    pub fn piece(&self) -> Piece<'_> {
        match self {
            Value::Short { count, bytes } => Piece::Bytes(&bytes[..usize::from(*count)]),
            Value::Bytes(bytes) => Piece::Bytes(bytes),
            Value::Pattern(pattern) => Piece::Pattern(*pattern),
        }
    }

    /// Its bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        match self.piece() {
            Piece::Bytes(bytes) => bytes.to_vec(),
            Piece::Pattern(pattern) => {
                let mut bytes = vec![0; pattern.bytes as usize];
                pattern.expand(&mut bytes);
                bytes
            }
        }
    }

    /// Memory that it takes besides the enum itself, bytes: the allocation with its reference counts and the
    /// allocator's overhead, rounded as the C library rounds.
    fn heap_bytes(&self) -> u64 {
        match self {
            Value::Bytes(bytes) => (bytes.len() as u64 + 16 + 8).next_multiple_of(16),
            Value::Short { .. } | Value::Pattern(_) => 0,
        }
    }
}

/// The weight of a pair.
#[derive(Clone, Copy)]
struct Weight {
    charge: Charge,
    /// [`EvictionRow::pair_bytes`].
    pair_bytes: u32,
}

impl Weight {
    fn of(self, key: &Key, value: &Value) -> u64 {
        match self.charge {
            Charge::Content { beside } => {
                u64::from(beside) + key.len() as u64 + u64::from(value.piece().bytes())
            }
            Charge::Memory => u64::from(self.pair_bytes) + value.heap_bytes(),
        }
    }
}

/// A cache of pairs. Each call is one step; any thread may call at any time.
pub trait Cache: Send + Sync {
    /// The value of a key; the pair counts as used.
    fn get(&self, key: &Key) -> Option<Value>;
    /// Is the key cached? The pair does not count as used.
    fn contains(&self, key: &Key) -> bool;
    /// Puts a pair in, or its new value; returns how many pairs were evicted.
    fn insert(&self, key: Key, value: Value) -> u32;
    /// Removes a pair, if it is cached.
    fn remove(&self, key: &Key);
    /// Bytes of its pairs, as charged.
    fn bytes(&self) -> u64;
}

/// An eviction policy.
pub struct EvictionRow {
    /// Its name in a configuration.
    pub name: &'static str,
    /// Its description, in a line.
    pub summary: &'static str,
    /// Memory that a pair takes in the policy's tables, its key included, in bytes: measured with tables at
    /// their worst fill. A test compares it with the allocator.
    pub pair_bytes: u32,
    make: fn(&CacheConfig, Weight) -> Box<dyn Cache>,
}

/// Eviction policies: each chooses the pairs to remove from a full cache.
pub static EVICTIONS: &[EvictionRow] = &[
    EvictionRow {
        name: "lru",
        summary: "the pair that was not used for the longest time",
        pair_bytes: 120,
        make: lru::new,
    },
    EvictionRow {
        name: "s3-fifo",
        summary: "queues that let one-time pairs pass quickly",
        pair_bytes: 176,
        make: s3_fifo::new,
    },
];

/// The cache of these settings; `None`: they ask for no cache. The policy is a row of the table.
pub(crate) fn new(config: &CacheConfig) -> Option<Box<dyn Cache>> {
    let row = EVICTIONS.iter().find(|row| row.name == config.eviction)?;
    let weight = Weight { charge: config.charge, pair_bytes: row.pair_bytes };
    (config.bytes > 0).then(|| (row.make)(config, weight))
}

/// Hashes keys as the pending table does, so that a run in model time evicts the same pairs on every machine.
#[derive(Default)]
struct KeyHasher(u64);

type KeyHash = BuildHasherDefault<KeyHasher>;

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    #[inline]
    fn finish(&self) -> u64 {
        let z = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        z ^ (z >> 32)
    }
}

/// The part of a cache that a key belongs to.
fn shard_of(key: &Key, shards: usize) -> usize {
    (crate::table::hash(key) >> 16) as usize % shards
}
