//! Queues as in S3-FIFO (crate `quick_cache`): a pair that was read once is evicted before a pair that was
//! read again.

use kvdrive_nvme::Key;
use quick_cache::sync::Cache as QuickCache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use super::config::{CacheConfig, Charge};
use super::{Cache, KeyHash, Value, Weight};

/// Bytes of a pair from which the initial size of tables is estimated; tables grow with more pairs. If memory
/// is charged, tables begin small.
const fn guessed_pair_bytes(charge: Charge) -> u64 {
    match charge {
        Charge::Content { .. } => 256,
        Charge::Memory => 1024,
    }
}

impl Weighter<Key, Value> for Weight {
    fn weight(&self, key: &Key, value: &Value) -> u64 {
        self.of(key, value)
    }
}

/// Counts evictions.
#[derive(Clone)]
struct Leaving;

impl Lifecycle<Key, Value> for Leaving {
    type RequestState = u32;

    fn on_evict(&self, left: &mut u32, _: Key, _: Value) {
        *left += 1;
    }
}

struct S3Fifo(QuickCache<Key, Value, Weight, KeyHash, Leaving>);

pub(super) fn new(config: &CacheConfig, weight: Weight) -> Box<dyn Cache> {
    let pairs = (config.bytes / guessed_pair_bytes(config.charge)).clamp(64, 1 << 22);
    let options = OptionsBuilder::new()
        .shards(config.shards as usize)
        .estimated_items_capacity(pairs as usize)
        .weight_capacity(config.bytes)
        .build()
        .expect("shards and capacities are given");
    Box::new(S3Fifo(QuickCache::with_options(options, weight, KeyHash::default(), Leaving)))
}

impl Cache for S3Fifo {
    fn get(&self, key: &Key) -> Option<Value> {
        self.0.get(key)
    }

    fn contains(&self, key: &Key) -> bool {
        self.0.contains_key(key)
    }

    fn insert(&self, key: Key, value: Value) -> u32 {
        let mut left = 0;
        self.0.insert_with_lifecycle(key, value, &mut left);
        left
    }

    fn remove(&self, key: &Key) {
        self.0.remove(key);
    }

    fn bytes(&self) -> u64 {
        self.0.weight()
    }
}
