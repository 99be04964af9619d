//! What admission saves and costs: the same cache once more, with every missing block admitted. It has an index and no
//! pairs, so the drive sees nothing of it. A count of refused blocks would not tell: a block that was refused is missing
//! again at its next request, and one that was stored is not.

use kvdrive_declare::Counters;

use super::cache::{Cache, Step};
use super::eviction::BlockId;
use super::objects::Shape;

/// Counters of the cache that admits every block. With `workload.cache_admission=all` they are those of the cache itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Counters)]
pub struct UnfilteredCounters {
    /// Hits before the first missing block of a request, if every missing block were stored.
    #[counter(name = "blocks_prefix_hits_by_all")]
    pub prefix_hits: u64,
    /// Bytes at the model's size that would be stored if every missing block were.
    #[counter(name = "model_bytes_stored_by_all", unit = Bytes)]
    pub model_bytes: u64,
}

/// The cache that admits every block.
pub struct Unfiltered {
    cache: Cache,
    model_bytes: u64,
}

impl Unfiltered {
    /// `cache` admits every block.
    pub fn new(cache: Cache) -> Unfiltered {
        Unfiltered { cache, model_bytes: 0 }
    }

    /// Starts a request.
    pub fn look_up(&mut self, blocks: &[BlockId]) {
        self.cache.look_up(blocks);
    }

    /// Handles one block of the request, of `tokens` tokens.
    pub fn pass(&mut self, block: BlockId, tokens: u64, shape: &Shape) {
        if let Step::Store(_) = self.cache.pass(block, tokens) {
            self.model_bytes += shape.model_bytes(tokens);
        }
    }

    /// The counters so far.
    pub fn counters(&self) -> UnfilteredCounters {
        UnfilteredCounters { prefix_hits: self.cache.counters().prefix_hits, model_bytes: self.model_bytes }
    }
}
