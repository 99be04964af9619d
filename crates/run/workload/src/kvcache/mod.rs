//! `kvcache`: a cache of a language model's attention keys and values on the drive, driven by a trace of
//! requests. It decides which pairs are looked up, read, stored and deleted; the run decides when an
//! operation starts and how long it takes.
//!
//! ```text
//!  request ──► look up: Exist of each block until one is missing ──► Retrieve the blocks found
//!                  (requests.rs)                    (cache.rs)         │
//!  model, layout ──► pairs of a block (objects.rs)                     ▼
//!                          Delete evicted blocks (eviction.rs), Store missing blocks that are admitted (admission.rs)
//! ```
//!
//! The cache keeps its index on the host, so its counters depend on the trace alone, never on the drive. With
//! more than one operation in flight a look-up may overtake an earlier store; reports count the results of
//! the look-ups.

mod admission;
mod cache;
mod eviction;
mod models;
mod objects;
mod requests;
mod unfiltered;

use std::collections::{HashMap, VecDeque};

use kvdrive_declare::{Counters, Counts};
use kvdrive_nvme::Key;
use kvdrive_sim::Ns;

use crate::{Op, ValueSpec, Workload, WorkloadParams};
use cache::{Cache, Step};
use eviction::BlockId;
use kvdrive_text::names::no_such;
use objects::{Object, Shape};
use requests::{Request, Requests};
use unfiltered::Unfiltered;

pub use admission::{ADMISSIONS, Admission, AdmissionRow, Missing};
pub use cache::CacheCounters;
pub use eviction::{POLICIES, PolicyRow};
pub use models::{MODELS, Model};
pub use objects::{LAYOUTS, LayoutRow};
pub use requests::{OWN_TRACES, OwnTrace};
pub use unfiltered::UnfilteredCounters;

const NS_PER_MS: Ns = 1_000_000;

/// The workload.
struct KvCache {
    requests: Requests,
    /// Requests that are left to read; `None`: all.
    requests_left: Option<u64>,
    cache: Cache,
    /// The same cache without admission; `None`: it has none.
    unfiltered: Option<Unfiltered>,
    shape: Shape,
    /// Tokens of each cached block, which determine its pairs.
    tokens: HashMap<BlockId, u64>,
    /// The request that was read last, until all its operations are drawn.
    turn: Option<Turn>,
    /// Operations of the last block of this request, and their start times.
    ready: VecDeque<(Op, Ns)>,
    version: u64,
    tokens_moved: TokenCounters,
    notes: Vec<String>,
}

/// A request on its way through the cache.
struct Turn {
    request: Request,
    /// Blocks before the first missing one.
    found: usize,
    stage: Stage,
    /// Index of the block that is next in this stage.
    index: usize,
}

/// The stages of a request, each of which goes through its blocks in order.
#[derive(Clone, Copy)]
enum Stage {
    /// Exist commands for each block, by its pair that is stored last, until the first missing block.
    LookUp,
    Retrieve,
    /// Missing blocks are stored if they are admitted, and cached ones touched.
    Pass,
}

impl Turn {
    /// The next stage, and the index of the block that is next in it; `None` when the request is done.
    fn next(&mut self) -> Option<(Stage, usize)> {
        loop {
            let blocks = self.request.blocks.len();
            let (end, then) = match self.stage {
                Stage::LookUp => ((self.found + 1).min(blocks), Some(Stage::Retrieve)),
                Stage::Retrieve => (self.found, Some(Stage::Pass)),
                Stage::Pass => (blocks, None),
            };
            if self.index < end {
                self.index += 1;
                return Some((self.stage, self.index - 1));
            }
            (self.stage, self.index) = (then?, 0);
        }
    }
}

pub(super) fn build(params: &WorkloadParams, _seed: u64) -> Result<Box<dyn Workload>, String> {
    let admission =
        named("workload.cache_admission", "admission", &params.cache_admission, ADMISSIONS, |row| row.name)?;
    let policy = named("workload.cache_policy", "policy", &params.cache_policy, POLICIES, |row| row.name)?;
    let model = named("workload.cache_model", "model", &params.cache_model, MODELS, |row| row.name)?;
    let layout = named("workload.cache_objects", "layout", &params.cache_objects, LAYOUTS, |row| row.name)?;
    let capacity = (params.cache_blocks > 0).then_some(params.cache_blocks);
    let trace = if params.trace.is_empty() { OWN_TRACES[0].name } else { &params.trace };
    let shrink = u64::from(params.cache_shrink.max(1));
    let mut notes = vec![format!("requests of {trace} to {}; objects: {}", model.name, layout.name)];
    if shrink > 1 {
        notes.push(format!("values are 1/{shrink} of the model's"));
    }
    let new_policy = || (policy.build)(capacity.unwrap_or(u64::MAX));
    let all = &ADMISSIONS[0];
    let unfiltered = (admission.name != all.name)
        .then(|| Unfiltered::new(Cache::new(capacity, (all.build)(), new_policy())));
    Ok(Box::new(KvCache {
        requests: Requests::open(trace)?,
        requests_left: (params.cache_requests > 0).then_some(params.cache_requests),
        cache: Cache::new(capacity, (admission.build)(), new_policy()),
        unfiltered,
        shape: Shape { layout, model, shrink, chunk_bytes: u64::from(params.cache_chunk_bytes) },
        tokens: HashMap::new(),
        turn: None,
        ready: VecDeque::new(),
        version: 0,
        tokens_moved: TokenCounters::default(),
        notes,
    }))
}

/// The row of a table with this name.
fn named<Row>(
    key: &str,
    kind: &str,
    name: &str,
    rows: &'static [Row],
    name_of: fn(&Row) -> &'static str,
) -> Result<&'static Row, String> {
    rows.iter().find(|row| name_of(row) == name).ok_or_else(|| {
        let names: Vec<&str> = rows.iter().map(name_of).collect();
        no_such(key, kind, name, &names)
    })
}

impl KvCache {
    /// Looks up the next request; `None` at the end of the trace.
    fn begin_request(&mut self) -> Result<Option<Turn>, String> {
        if self.requests_left == Some(0) {
            return Ok(None);
        }
        let has_begun = self.requests.unit().is_some();
        let Some(request) = self.requests.next()? else { return Ok(None) };
        if let Some(unit) = self.requests.unit().filter(|_| !has_begun) {
            self.notes.push(format!("the times of the trace are {unit}; they count from its first request"));
        }
        self.requests_left = self.requests_left.map(|left| left - 1);
        let found = self.cache.look_up(&request.blocks);
        if let Some(unfiltered) = &mut self.unfiltered {
            unfiltered.look_up(&request.blocks);
        }
        self.tokens_moved.note(&request, found, self.shape.model);
        Ok(Some(Turn { request, found, stage: Stage::LookUp, index: 0 }))
    }

    /// Turns the next block of a request into operations, so that only these are in memory, however long the
    /// request is. `false` at the end of the trace.
    fn advance(&mut self) -> Result<bool, String> {
        let turn = match self.turn.take() {
            Some(turn) => Some(turn),
            None => self.begin_request()?,
        };
        let Some(mut turn) = turn else { return Ok(false) };
        let Some((stage, index)) = turn.next() else { return Ok(true) };
        let at_ns = turn.request.at_ns;
        let (block, tokens) = (turn.request.blocks[index], turn.request.block_tokens(index));
        match stage {
            Stage::LookUp => {
                let objects = self.shape.objects(block, tokens);
                let key = objects.last().expect("a block has a pair").key;
                self.ready.push_back((Op::Exist { key }, at_ns));
            }
            Stage::Retrieve => {
                let objects = self.shape.objects(block, tokens);
                let order = self.shape.layout.read_order(&objects);
                self.ready.extend(order.map(|object| (Op::Retrieve { key: object.key }, at_ns)));
            }
            Stage::Pass => {
                if let Some(unfiltered) = &mut self.unfiltered {
                    unfiltered.pass(block, tokens, &self.shape);
                }
                if let Step::Store(gone) = self.cache.pass(block, tokens) {
                    if let Some(gone) = gone {
                        self.delete(gone, at_ns);
                    }
                    self.store(block, tokens, at_ns)?;
                }
            }
        }
        self.turn = Some(turn);
        Ok(true)
    }

    fn store(&mut self, block: BlockId, tokens: u64, at_ns: Ns) -> Result<(), String> {
        self.tokens.insert(block, tokens);
        self.tokens_moved.stored += tokens;
        self.tokens_moved.model_bytes_stored += self.shape.model_bytes(tokens);
        for Object { key, bytes } in self.shape.objects(block, tokens) {
            let length =
                u32::try_from(bytes).map_err(|_| format!("a value of {bytes} B; a value has 32 bits"))?;
            let value = ValueSpec { bytes: length, version: self.version };
            self.version += 1;
            self.tokens_moved.bytes_stored += bytes;
            self.ready.push_back((Op::Store { key, value }, at_ns));
        }
        Ok(())
    }

    /// Deletes the pairs of a block, first the pair that makes the block visible.
    fn delete(&mut self, block: BlockId, at_ns: Ns) {
        let tokens = self.tokens.remove(&block).expect("a block that goes was stored");
        let keys: Vec<Key> = self.shape.objects(block, tokens).iter().map(|object| object.key).collect();
        self.ready.extend(keys.into_iter().rev().map(|key| (Op::Delete { key }, at_ns)));
    }
}

impl Workload for KvCache {
    fn next(&mut self) -> Op {
        unreachable!("a trace ends, so operations are drawn")
    }

    fn draw(&mut self) -> Result<Option<(Op, Option<Ns>)>, String> {
        while self.ready.is_empty() {
            if !self.advance()? {
                return Ok(None);
            }
        }
        Ok(self.ready.pop_front().map(|(op, at)| (op, Some(at))))
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn read_share(&self) -> Option<f64> {
        self.requests.read_share()
    }

    fn counts(&self) -> Counts {
        let own = || UnfilteredCounters {
            prefix_hits: self.cache.counters().prefix_hits,
            model_bytes: self.tokens_moved.model_bytes_stored,
        };
        let unfiltered = self.unfiltered.as_ref().map_or_else(own, Unfiltered::counters);
        self.cache.counters().counts().and(&self.tokens_moved).and(&unfiltered)
    }
}

/// Totals of the requests: tokens, the computing that cached ones save, and the duration of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Counters)]
pub struct TokenCounters {
    /// Time of the last request after the first one, ms.
    #[counter(state)]
    pub trace_ms: u64,
    /// Input tokens of the requests.
    #[counter(name = "tokens_asked")]
    pub asked: u64,
    /// Tokens of prefix hits.
    #[counter(name = "tokens_prefix_hits")]
    pub prefix_hits: u64,
    /// Tokens of stored blocks.
    #[counter(name = "tokens_stored")]
    pub stored: u64,
    /// Floating-point operations of prefilling all inputs whole, in units of 10^9 (`models.rs` has the
    /// formula).
    pub prefill_gflop: u64,
    /// Floating-point operations that prefix hits save, in units of 10^9.
    pub prefill_saved_gflop: u64,
    /// Bytes of the stored blocks.
    #[counter(unit = Bytes)]
    pub bytes_stored: u64,
    /// The same at the model's size, which `workload.cache_shrink` does not divide.
    #[counter(unit = Bytes)]
    pub model_bytes_stored: u64,
}

impl TokenCounters {
    /// Counts a request of whose blocks the first `found` are cached.
    fn note(&mut self, request: &Request, found: usize, model: &Model) {
        let cached: u64 = (0..found).map(|index| request.block_tokens(index)).sum();
        self.trace_ms = request.at_ns / NS_PER_MS;
        self.asked += request.input_tokens;
        self.prefix_hits += cached;
        self.prefill_gflop = self.prefill_gflop.saturating_add(model.prefill_gflop(request.input_tokens));
        self.prefill_saved_gflop = self.prefill_saved_gflop.saturating_add(model.prefill_gflop(cached));
    }
}

#[cfg(test)]
mod tests;
