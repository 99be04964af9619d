//! A cache that is bounded by the bytes of its entries and evicts the least recently used ones.

use std::hash::{BuildHasherDefault, Hash};

use lru::LruCache;

use crate::key_hash::KeyHasher;

/// Entries with the bytes that each counts for.
pub struct ByteLru<K, V> {
    most_bytes: u64,
    bytes: u64,
    entries: LruCache<K, (V, u64), BuildHasherDefault<KeyHasher>>,
}

impl<K: Hash + Eq, V: Clone> ByteLru<K, V> {
    /// An empty cache.
    pub fn new(most_bytes: u64) -> ByteLru<K, V> {
        let entries = LruCache::unbounded_with_hasher(BuildHasherDefault::default());
        ByteLru { most_bytes, bytes: 0, entries }
    }

    /// The value of a key; the entry then counts as used.
    pub fn get(&mut self, key: &K) -> Option<V> {
        self.entries.get(key).map(|(value, _)| value.clone())
    }

    /// Inserts an entry in place of the key's old one, and evicts others until there is room for it.
    pub fn insert(&mut self, key: K, value: V, bytes: u64) {
        self.bytes += bytes;
        if let Some((_, old_bytes)) = self.entries.put(key, (value, bytes)) {
            self.bytes -= old_bytes;
        }
        while self.bytes > self.most_bytes {
            let (_, (_, bytes)) = self.entries.pop_lru().expect("bytes belong to entries");
            self.bytes -= bytes;
        }
    }

    /// Bytes of its entries.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_that_was_not_used_for_longest_leaves_first() {
        let mut cache = ByteLru::new(40);
        cache.insert(1, 'a', 20);
        cache.insert(2, 'b', 20);
        assert_eq!(cache.get(&1), Some('a'));
        cache.insert(3, 'c', 10);
        assert_eq!(cache.get(&2), None, "it was used before the other one");
        assert_eq!((cache.get(&1), cache.get(&3)), (Some('a'), Some('c')));
        assert_eq!(cache.bytes(), 30);
    }

    #[test]
    fn an_entry_counts_once_and_one_that_is_too_large_does_not_stay() {
        let mut cache = ByteLru::new(40);
        cache.insert(1, 'a', 10);
        cache.insert(1, 'b', 15);
        assert_eq!((cache.get(&1), cache.bytes()), (Some('b'), 15));
        cache.insert(2, 'c', 41);
        assert_eq!((cache.get(&2), cache.bytes()), (None, 0));
    }
}
