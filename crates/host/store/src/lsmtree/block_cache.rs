//! The block cache: blocks of tables that lookups have read. It evicts the least recently used block; cursors
//! and merges do not use it.

use std::hash::BuildHasherDefault;
use std::rc::Rc;

use lru::LruCache;

use crate::key_hash::KeyHasher;
use crate::pages::{Page, PageId};

/// The pages of a block with their numbers.
pub type BlockPages = Rc<[(PageId, Page)]>;

/// Blocks by the number of their table and their first page in it. A table's number is never reused, so
/// blocks of a removed table are not found any more, and are evicted like others.
pub struct BlockCache {
    most_bytes: u64,
    page_bytes: u32,
    blocks: LruCache<(u64, u32), BlockPages, BuildHasherDefault<KeyHasher>>,
    bytes: u64,
}

impl BlockCache {
    /// An empty cache.
    pub fn new(most_bytes: u64, page_bytes: u32) -> BlockCache {
        let blocks = LruCache::unbounded_with_hasher(BuildHasherDefault::default());
        BlockCache { most_bytes, page_bytes, blocks, bytes: 0 }
    }

    /// The block, which then counts as used.
    pub fn get(&mut self, table: u64, first: u32) -> Option<BlockPages> {
        self.blocks.get(&(table, first)).cloned()
    }

    /// Inserts a block, and evicts others if there is no room.
    pub fn insert(&mut self, table: u64, first: u32, pages: &BlockPages) {
        self.bytes += self.bytes_of(pages);
        if let Some((_, old)) = self.blocks.push((table, first), pages.clone()) {
            self.bytes -= self.bytes_of(&old);
        }
        while self.bytes > self.most_bytes
            && let Some((_, old)) = self.blocks.pop_lru()
        {
            self.bytes -= self.bytes_of(&old);
        }
    }

    /// Bytes of its pages.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn bytes_of(&self, pages: &BlockPages) -> u64 {
        pages.len() as u64 * u64::from(self.page_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_BYTES: u32 = 512;

    fn block(pages: u64) -> BlockPages {
        (0..pages).map(|page| (PageId(page), Page::default())).collect()
    }

    #[test]
    fn the_block_that_was_not_used_for_longest_leaves_first() {
        let mut cache = BlockCache::new(4 * u64::from(PAGE_BYTES), PAGE_BYTES);
        cache.insert(1, 0, &block(2));
        cache.insert(1, 2, &block(2));
        assert!(cache.get(1, 0).is_some());
        cache.insert(2, 0, &block(1));
        assert!(cache.get(1, 2).is_none(), "it was used before the other one");
        assert!(cache.get(1, 0).is_some() && cache.get(2, 0).is_some());
        assert_eq!(cache.bytes(), 3 * u64::from(PAGE_BYTES));
    }

    #[test]
    fn a_block_counts_once_and_one_that_is_too_large_does_not_stay() {
        let mut cache = BlockCache::new(4 * u64::from(PAGE_BYTES), PAGE_BYTES);
        cache.insert(1, 0, &block(1));
        cache.insert(1, 0, &block(1));
        assert_eq!(cache.bytes(), u64::from(PAGE_BYTES));
        cache.insert(1, 1, &block(5));
        assert_eq!(cache.bytes(), 0);
    }
}
