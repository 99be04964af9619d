//! Settings of the read cache.

/// What counts towards the bytes of the read cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Charge {
    /// Key and value, and so many bytes besides: studies compare caches by it, RocksDB's row cache among them. With none, a
    /// cache of small pairs takes several times its bytes of memory.
    Content {
        /// Bytes of a pair besides its key and value.
        beside: u32,
    },
    /// All memory that the pairs take: a cache of 4 MiB takes 4 MiB.
    Memory,
}

/// Settings of the read cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// Its size in bytes, counted as `charge` says; 0: there is none.
    pub bytes: u64,
    /// The bytes that a pair counts for.
    pub charge: Charge,
    /// Values above this many bytes do not enter.
    pub admit_bytes: u32,
    /// Which pairs leave: a row of [`super::EVICTIONS`].
    pub eviction: String,
    /// Parts with a lock and a share of the bytes each. One makes what leaves independent of hashes.
    pub shards: u32,
}
