//! The cache itself: which blocks are cached, which of them a request finds, and which blocks are stored and deleted
//! for a request. It moves no data and knows no pairs.
//!
//! A request looks its blocks up until one is missing: these are its *prefix* hits. Then every block of the
//! request is passed in order: a cached block is touched (an *any* hit), and a missing block is stored, after
//! another one was evicted if the cache was full. Blocks after the first missing one are touched and not
//! read: attention needs everything before them.

use std::collections::HashSet;

use kvdrive_declare::Counters;

use super::admission::{Admission, Missing};
use super::eviction::{BlockId, Policy};

/// Counters, in blocks unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Counters)]
pub struct CacheCounters {
    /// Requests of the trace.
    pub requests: u64,
    /// Blocks that the requests asked for.
    #[counter(name = "blocks_asked")]
    pub asked: u64,
    /// Hits before the first missing block of a request.
    #[counter(name = "blocks_prefix_hits")]
    pub prefix_hits: u64,
    /// All hits, those after a missing block included.
    #[counter(name = "blocks_any_hits")]
    pub any_hits: u64,
    /// Blocks that were stored.
    #[counter(name = "blocks_stored")]
    pub stores: u64,
    /// Blocks that were deleted to make room.
    #[counter(name = "blocks_deleted")]
    pub deletes: u64,
    /// Missing blocks that `workload.cache_admission` did not let in.
    #[counter(name = "blocks_not_admitted")]
    pub not_admitted: u64,
}

/// The action of the cache for one block of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is cached and stays; this pass moves no data.
    Keep,
    /// It is missing and is stored, after this other block was evicted, if there is one.
    Store(Option<BlockId>),
    /// It is missing and is not stored.
    Pass,
}

/// A cache of blocks.
pub struct Cache {
    /// Most blocks that it holds; `None`: any number.
    capacity: Option<u64>,
    admission: Box<dyn Admission>,
    policy: Box<dyn Policy>,
    held: HashSet<BlockId>,
    counters: CacheCounters,
}

impl Cache {
    /// An empty cache.
    pub fn new(capacity: Option<u64>, admission: Box<dyn Admission>, policy: Box<dyn Policy>) -> Cache {
        Cache { capacity, admission, policy, held: HashSet::new(), counters: CacheCounters::default() }
    }

    /// Starts a request: returns how many of its blocks are found before the first missing one.
    pub fn look_up(&mut self, blocks: &[BlockId]) -> usize {
        let found = blocks.iter().take_while(|block| self.held.contains(block)).count();
        self.counters.requests += 1;
        self.counters.prefix_hits += found as u64;
        found
    }

    /// Handles one block of the request, of `tokens` tokens.
    pub fn pass(&mut self, block: BlockId, tokens: u64) -> Step {
        self.counters.asked += 1;
        if self.held.contains(&block) {
            self.counters.any_hits += 1;
            self.policy.touch(block);
            return Step::Keep;
        }
        if !self.admission.admits(Missing { block, tokens }) {
            self.counters.not_admitted += 1;
            return Step::Pass;
        }
        let is_full = self.capacity.is_some_and(|capacity| self.held.len() as u64 >= capacity);
        let gone = if is_full { self.policy.evict() } else { None };
        if let Some(gone) = gone {
            assert!(self.held.remove(&gone), "block {gone} went and was not held");
            self.counters.deletes += 1;
        }
        self.policy.insert(block);
        self.held.insert(block);
        self.counters.stores += 1;
        Step::Store(gone)
    }

    /// The counters so far.
    pub fn counters(&self) -> CacheCounters {
        self.counters
    }
}
