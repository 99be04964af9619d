//! Least recently used, by bytes: as RocksDB's row cache, which the paper uses.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kvdrive_nvme::Key;
use lru::LruCache;

use super::config::CacheConfig;
use super::{Cache, KeyHash, Value, Weight, shard_of};

struct Lru {
    shards: Box<[Mutex<Shard>]>,
    /// Most bytes of a shard.
    most_bytes: u64,
    weight: Weight,
}

struct Shard {
    pairs: LruCache<Key, Value, KeyHash>,
    bytes: u64,
}

pub(super) fn new(config: &CacheConfig, weight: Weight) -> Box<dyn Cache> {
    let shard =
        |_| Mutex::new(Shard { pairs: LruCache::unbounded_with_hasher(KeyHash::default()), bytes: 0 });
    let most_bytes = config.bytes / u64::from(config.shards);
    Box::new(Lru { shards: (0..config.shards).map(shard).collect(), most_bytes, weight })
}

impl Lru {
    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        self.shards[shard_of(key, self.shards.len())].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache for Lru {
    fn get(&self, key: &Key) -> Option<Value> {
        self.shard(key).pairs.get(key).cloned()
    }

    fn contains(&self, key: &Key) -> bool {
        self.shard(key).pairs.contains(key)
    }

    fn insert(&self, key: Key, value: Value) -> u32 {
        let mut shard = self.shard(&key);
        let bytes = self.weight.of(&key, &value);
        if let Some(old) = shard.pairs.put(key, value) {
            shard.bytes -= self.weight.of(&key, &old);
        }
        shard.bytes += bytes;
        let mut left = 0;
        while shard.bytes > self.most_bytes {
            let (key, value) = shard.pairs.pop_lru().expect("bytes belong to pairs");
            shard.bytes -= self.weight.of(&key, &value);
            left += 1;
        }
        left
    }

    fn remove(&self, key: &Key) {
        let mut shard = self.shard(key);
        if let Some(old) = shard.pairs.pop(key) {
            shard.bytes -= self.weight.of(key, &old);
        }
    }

    fn bytes(&self) -> u64 {
        let bytes = |shard: &Mutex<Shard>| shard.lock().unwrap_or_else(PoisonError::into_inner).bytes;
        self.shards.iter().map(bytes).sum()
    }
}
