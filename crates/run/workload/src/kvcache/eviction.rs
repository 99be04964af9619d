//! The choice of the block that a cache of a language model evicts when it is full. This is neither a policy
//! of the drive nor SAKER's (`saker/src/cache`): the cache decides on the host, and the drive sees deletes.
//!
//! A policy identifies blocks by number and counts each as one, as published simulations of these traces do.
//! A new policy is one struct with its row in [`POLICIES`].

use std::collections::{BTreeMap, HashMap, VecDeque};

/// Number of a block in its trace.
pub type BlockId = u64;

/// The order in which a cache evicts blocks. It holds every cached block once.
pub trait Policy: Send {
    /// A cached block was requested.
    fn touch(&mut self, block: BlockId);

    /// A block has been added to the cache.
    fn insert(&mut self, block: BlockId);

    /// Removes the block to evict; `None` if the cache is empty.
    fn evict(&mut self) -> Option<BlockId>;
}

/// One policy of the table.
pub struct PolicyRow {
    /// Its name in `workload.cache_policy`.
    pub name: &'static str,
    /// What it evicts first, and its source, in one line.
    pub origin: &'static str,
    /// Builds it for a cache of this many blocks.
    pub build: fn(capacity_blocks: u64) -> Box<dyn Policy>,
}

/// Every policy.
pub static POLICIES: &[PolicyRow] = &[
    PolicyRow {
        name: "lru",
        origin: "the block that was not requested for the longest time",
        build: |_| Box::new(Ordered::new(lru)),
    },
    PolicyRow {
        name: "fifo",
        origin: "the block that was stored first",
        build: |_| Box::new(Ordered::new(fifo)),
    },
    PolicyRow {
        name: "lfu",
        origin: "the block with the fewest requests since it was stored; of several, the least recent",
        build: |_| Box::new(Ordered::new(lfu)),
    },
    PolicyRow {
        name: "s3-fifo",
        origin: "blocks requested once go through a short queue, others through a long one (Yang et al., SOSP'23)",
        build: |capacity_blocks| Box::new(S3Fifo::new(capacity_blocks)),
    },
];

/// State of a block in a policy of the family of [`Ordered`].
#[derive(Clone, Copy)]
struct Use {
    /// Requests since the block was stored, including the one that stored it.
    count: u64,
    /// Times of its storing and of its last request, in accesses of the cache.
    stored: u64,
    touched: u64,
}

/// The rank of a block: the lowest rank is evicted first.
type Rank = fn(Use) -> (u64, u64);

fn lru(block: Use) -> (u64, u64) {
    (block.touched, 0)
}

fn fifo(block: Use) -> (u64, u64) {
    (block.stored, 0)
}

fn lfu(block: Use) -> (u64, u64) {
    (block.count, block.touched)
}

/// Blocks in the order of a rank that an access may change.
struct Ordered {
    rank: Rank,
    accesses: u64,
    uses: HashMap<BlockId, Use>,
    order: BTreeMap<(u64, u64), BlockId>,
}

impl Ordered {
    fn new(rank: Rank) -> Ordered {
        Ordered { rank, accesses: 0, uses: HashMap::new(), order: BTreeMap::new() }
    }
}

impl Policy for Ordered {
    fn touch(&mut self, block: BlockId) {
        self.accesses += 1;
        let uses = self.uses.get_mut(&block).expect("a touched block is cached");
        self.order.remove(&(self.rank)(*uses));
        (uses.count, uses.touched) = (uses.count + 1, self.accesses);
        self.order.insert((self.rank)(*uses), block);
    }

    fn insert(&mut self, block: BlockId) {
        self.accesses += 1;
        let uses = Use { count: 1, stored: self.accesses, touched: self.accesses };
        assert!(self.uses.insert(block, uses).is_none(), "block {block} is cached twice");
        self.order.insert((self.rank)(uses), block);
    }

    fn evict(&mut self) -> Option<BlockId> {
        let (_, block) = self.order.pop_first()?;
        self.uses.remove(&block);
        Some(block)
    }
}

/// Most requests remembered for each block.
const S3_MOST_REQUESTS: u8 = 3;
/// The short queue has one tenth of the cache.
const S3_SHORT_PART: u64 = 10;

/// Three queues: a short one for new blocks, a long one for blocks that were requested again, and the numbers
/// of blocks that left the short one (the *ghosts*). A ghost that is requested again goes to the long queue, and its
/// place among the ghosts is free, as in the authors' program.
struct S3Fifo {
    short_blocks: u64,
    long_blocks: u64,
    short: VecDeque<BlockId>,
    long: VecDeque<BlockId>,
    requests: HashMap<BlockId, u8>,
    /// Ghosts by the eviction that made them ghosts, and that of each.
    ghosts: BTreeMap<u64, BlockId>,
    ghost_since: HashMap<BlockId, u64>,
    evictions: u64,
}

impl S3Fifo {
    fn new(capacity_blocks: u64) -> S3Fifo {
        let short_blocks = (capacity_blocks / S3_SHORT_PART).max(1);
        S3Fifo {
            short_blocks,
            long_blocks: capacity_blocks.saturating_sub(short_blocks).max(1),
            short: VecDeque::new(),
            long: VecDeque::new(),
            requests: HashMap::new(),
            ghosts: BTreeMap::new(),
            ghost_since: HashMap::new(),
            evictions: 0,
        }
    }

    fn becomes_ghost(&mut self, block: BlockId) {
        self.evictions += 1;
        self.ghosts.insert(self.evictions, block);
        self.ghost_since.insert(block, self.evictions);
        while self.ghosts.len() as u64 > self.long_blocks {
            let (_, oldest) = self.ghosts.pop_first().expect("it is longer than its limit");
            self.ghost_since.remove(&oldest);
        }
    }

    fn evict_short(&mut self) -> Option<BlockId> {
        while let Some(block) = self.short.pop_front() {
            if self.requests[&block] > 1 {
                self.requests.insert(block, 0);
                self.long.push_back(block);
                continue;
            }
            self.requests.remove(&block);
            self.becomes_ghost(block);
            return Some(block);
        }
        None
    }

    fn evict_long(&mut self) -> Option<BlockId> {
        while let Some(block) = self.long.pop_front() {
            let requests = self.requests.get_mut(&block).expect("a queued block is counted");
            if *requests == 0 {
                self.requests.remove(&block);
                return Some(block);
            }
            *requests -= 1;
            self.long.push_back(block);
        }
        None
    }
}

impl Policy for S3Fifo {
    fn touch(&mut self, block: BlockId) {
        let requests = self.requests.get_mut(&block).expect("a touched block is cached");
        *requests = (*requests + 1).min(S3_MOST_REQUESTS);
    }

    fn insert(&mut self, block: BlockId) {
        assert!(self.requests.insert(block, 0).is_none(), "block {block} is cached twice");
        match self.ghost_since.remove(&block) {
            Some(since) => {
                self.ghosts.remove(&since);
                self.long.push_back(block);
            }
            None => self.short.push_back(block),
        }
    }

    fn evict(&mut self) -> Option<BlockId> {
        let is_short_first = self.short.len() as u64 >= self.short_blocks;
        let first = if is_short_first { self.evict_short() } else { self.evict_long() };
        first.or_else(|| self.evict_long()).or_else(|| self.evict_short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(policy: &mut dyn Policy) -> Vec<BlockId> {
        std::iter::from_fn(|| policy.evict()).collect()
    }

    fn policy(name: &str) -> Box<dyn Policy> {
        (POLICIES.iter().find(|row| row.name == name).unwrap().build)(4)
    }

    /// Stores 1 to 4, requests 1 three times, then 2, and lists the evicted blocks in order.
    fn order_of(name: &str) -> Vec<BlockId> {
        let mut policy = policy(name);
        (1..=4).for_each(|block| policy.insert(block));
        [1, 1, 1, 2].into_iter().for_each(|block| policy.touch(block));
        held(&mut *policy)
    }

    #[test]
    fn each_policy_gives_blocks_up_in_its_order() {
        assert_eq!(order_of("lru"), [3, 4, 1, 2]);
        assert_eq!(order_of("fifo"), [1, 2, 3, 4]);
        assert_eq!(order_of("lfu"), [3, 4, 2, 1]);
        assert_eq!(order_of("s3-fifo"), [2, 3, 4, 1]);
    }

    /// Ghosts 1 to 4 fill the queue of ghosts; when 1 has returned, there is room for another one, and 2 is still known.
    #[test]
    fn a_ghost_that_returns_leaves_its_place_to_another() {
        let mut policy = S3Fifo::new(5);
        (1..=4).for_each(|block| policy.becomes_ghost(block));
        policy.insert(1);
        policy.becomes_ghost(5);
        policy.insert(2);
        assert_eq!((policy.long, policy.short.len()), (VecDeque::from([1, 2]), 0));
    }

    #[test]
    fn every_policy_gives_up_each_block_once() {
        for row in POLICIES {
            let mut policy = (row.build)(50);
            (0..50).for_each(|block| policy.insert(block));
            (0..200u64).for_each(|step| policy.touch(step * 7 % 50));
            let mut blocks = held(&mut *policy);
            blocks.sort_unstable();
            assert_eq!(blocks, (0..50).collect::<Vec<_>>(), "{}", row.name);
            policy.insert(7);
            assert_eq!((policy.evict(), policy.evict()), (Some(7), None), "{}", row.name);
        }
    }
}
