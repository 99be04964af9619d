//! The read cache: pairs that were retrieved, in front of the drive.
//!
//! | | who |
//! |---|---|
//! | what enters | [`crate::client`]: values up to `admit_bytes`, unless a write came in between |
//! | what leaves | an eviction policy, one file each: a row of [`EVICTIONS`] |
//!
//! A cache counts the bytes of keys and values, as RocksDB's row cache is charged by them; what its own
//! tables take is not counted.

mod lru;
mod s3_fifo;

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_spec::Key;

use crate::config::CacheConfig;

/// A value that is kept: bytes, or the pattern that stands for them.
#[derive(Clone, Debug)]
pub enum Value {
    /// Real bytes.
    Bytes(Arc<[u8]>),
    /// Bytes by description.
    Pattern(Pattern),
}

impl Value {
    /// A copy of this content.
    pub fn of(piece: Piece<'_>) -> Value {
        match piece {
            Piece::Bytes(bytes) => Value::Bytes(bytes.into()),
            Piece::Pattern(pattern) => Value::Pattern(pattern),
        }
    }

    /// A copy of the first `bytes` bytes of a region. What lies there in several pieces becomes real bytes.
    pub fn of_region(region: &Region, bytes: u32) -> Value {
        let mut whole = None;
        region.read(0, bytes, &mut |piece| {
            if piece.bytes() == bytes {
                whole = Some(Value::of(piece));
            }
        });
        whole.unwrap_or_else(|| Value::Bytes(region.to_bytes(bytes).into()))
    }

    /// Its content.
    pub fn piece(&self) -> Piece<'_> {
        match self {
            Value::Bytes(bytes) => Piece::Bytes(bytes),
            Value::Pattern(pattern) => Piece::Pattern(*pattern),
        }
    }
}

/// What a pair counts.
fn pair_bytes(key: &Key, value: &Value) -> u64 {
    key.len() as u64 + u64::from(value.piece().bytes())
}

/// A cache of pairs. Each call is one step: threads may call as they like.
pub trait Cache: Send + Sync {
    /// The value of a key, which counts as used.
    fn get(&self, key: &Key) -> Option<Value>;
    /// Whether the key is there; that does not count as used.
    fn contains(&self, key: &Key) -> bool;
    /// Puts a pair in, or its new value; returns how many pairs had to leave.
    fn insert(&self, key: Key, value: Value) -> u32;
    /// Takes a pair out, if it is there.
    fn remove(&self, key: &Key);
    /// Bytes of keys and values.
    fn bytes(&self) -> u64;
}

/// An eviction policy.
pub struct EvictionRow {
    /// As the configuration has it.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    make: fn(&CacheConfig) -> Box<dyn Cache>,
}

/// What leaves a full cache.
pub const EVICTIONS: &[EvictionRow] = &[
    EvictionRow { name: "lru", summary: "the pair that was not used for the longest time", make: lru::new },
    EvictionRow {
        name: "s3-fifo",
        summary: "queues that let one-time pairs pass quickly",
        make: s3_fifo::new,
    },
];

/// The cache of these settings, if there is one. The policy is a row of the table.
pub(crate) fn new(config: &CacheConfig) -> Option<Box<dyn Cache>> {
    let row = EVICTIONS.iter().find(|row| row.name == config.eviction)?;
    (config.bytes > 0).then(|| (row.make)(config))
}

/// Hashes keys as the pending table does, so that a model run evicts the same pairs on every machine.
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
