//! Settings of the read cache.

/// What counts towards the bytes of the read cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Charge {
    /// Key, value and a constant of bytes for each pair: studies compare caches by it, also with RocksDB's
    /// row cache. With a constant of 0, a cache of small pairs takes several times its bytes of memory.
    Content {
        /// Bytes charged for a pair besides its key and value.
        beside: u32,
    },
    /// All memory that a pair takes: a cache of 4 MiB takes 4 MiB.
    Memory,
}

/// Settings of the read cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// Its size in bytes, counted as `charge` says; 0: no cache.
    pub bytes: u64,
    /// How the bytes of a pair are counted.
    pub charge: Charge,
    /// Values above this many bytes do not enter.
    pub admit_bytes: u32,
    /// The policy that chooses pairs to evict: a row of [`super::EVICTIONS`].
    pub eviction: String,
    /// Parts that have a lock and an equal share of the bytes. With one part, evictions do not depend on
    /// hashes.
    pub shards: u32,
}
