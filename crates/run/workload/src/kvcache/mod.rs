//! `kvcache`: a cache of a language model's attention keys and values on the drive, driven by a trace of
//! requests. It decides what is looked up, read, stored and deleted; the run decides when an operation
//! starts, and what it takes.
//!
//! ```text
//!  request ──► look up: Exist of each block until one is missing ──► Retrieve those that are there
//!                  (requests.rs)                    (cache.rs)         │
//!  model, layout ──► pairs of a block (objects.rs)                     ▼
//!                                              Delete what goes (eviction.rs), Store what was missing
//! ```
//!
//! The cache keeps its index on the host, so its counters depend on the trace alone, never on the drive. With
//! more than one operation in flight a look-up may overtake the store before it; reports count what was
//! found.

mod cache;
mod eviction;
mod models;
mod objects;
mod requests;

use std::collections::{HashMap, VecDeque};

use kvdrive_declare::{Counters, Counts};
use kvdrive_sim::Ns;
use kvdrive_spec::Key;

use crate::{Op, ValueSpec, Workload, WorkloadParams};
pub use cache::CacheCounters;
use cache::{Admission, Cache, Step};
use eviction::BlockId;
use kvdrive_text::names::no_such;
use objects::Object;
use requests::Requests;

pub use eviction::{POLICIES, PolicyRow};
pub use models::{MODELS, Model};
pub use objects::{LAYOUTS, LayoutRow};
pub use requests::{OWN_TRACES, OwnTrace};

const NS_PER_MS: u64 = 1_000_000;

/// The workload.
struct KvCache {
    requests: Requests,
    cache: Cache,
    model: &'static Model,
    layout: &'static LayoutRow,
    shrink: u64,
    /// Tokens of each cached block, which determine its pairs.
    tokens: HashMap<BlockId, u64>,
    /// Operations of the requests that were read, and their start times.
    ready: VecDeque<(Op, Ns)>,
    version: u64,
    stored_bytes: u64,
    notes: Vec<String>,
}

pub(super) fn build(params: &WorkloadParams, _seed: u64) -> Result<Box<dyn Workload>, String> {
    let admission = match params.cache_admission.as_str() {
        "all" => Admission::All,
        "second-use" => Admission::SecondUse,
        other => return Err(no_such("workload.cache_admission", "admission", other, &["all", "second-use"])),
    };
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
    Ok(Box::new(KvCache {
        requests: Requests::open(trace)?,
        cache: Cache::new(capacity, admission, (policy.build)(capacity.unwrap_or(u64::MAX))),
        model,
        layout,
        shrink,
        tokens: HashMap::new(),
        ready: VecDeque::new(),
        version: 0,
        stored_bytes: 0,
        notes,
    }))
}

/// The row of a table that has this name.
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
    fn objects(&self, block: BlockId, tokens: u64) -> Vec<Object> {
        self.layout.objects(block, tokens, self.model, self.shrink)
    }

    /// Reads the next request into operations; `false` at the end of the trace.
    fn read_request(&mut self) -> Result<bool, String> {
        let Some(request) = self.requests.next()? else { return Ok(false) };
        let at_ns = request.at_ms.saturating_mul(NS_PER_MS);
        let found = self.cache.look_up(&request.blocks);
        let tokens_of = |index: usize| request.block_tokens(index);
        // The pair that makes a block visible is stored last; a block is present if that pair is.
        let asked = (found + 1).min(request.blocks.len());
        for (index, &block) in request.blocks[..asked].iter().enumerate() {
            let objects = self.objects(block, tokens_of(index));
            let key = objects.last().expect("a block has a pair").key;
            self.ready.push_back((Op::Exist { key }, at_ns));
        }
        for (index, &block) in request.blocks[..found].iter().enumerate() {
            let objects = self.objects(block, tokens_of(index));
            let order = self.layout.read_order(&objects);
            self.ready.extend(order.map(|object| (Op::Retrieve { key: object.key }, at_ns)));
        }
        for (index, &block) in request.blocks.iter().enumerate() {
            if let Step::Store(gone) = self.cache.pass(block) {
                if let Some(gone) = gone {
                    self.delete(gone, at_ns);
                }
                self.store(block, tokens_of(index), at_ns)?;
            }
        }
        Ok(true)
    }

    fn store(&mut self, block: BlockId, tokens: u64, at_ns: Ns) -> Result<(), String> {
        self.tokens.insert(block, tokens);
        for Object { key, bytes } in self.objects(block, tokens) {
            let length =
                u32::try_from(bytes).map_err(|_| format!("a value of {bytes} B; a value has 32 bits"))?;
            let value = ValueSpec { bytes: length, version: self.version };
            self.version += 1;
            self.stored_bytes += bytes;
            self.ready.push_back((Op::Store { key, value }, at_ns));
        }
        Ok(())
    }

    /// Deletes the pairs of a block; first the one that makes it visible.
    fn delete(&mut self, block: BlockId, at_ns: Ns) {
        let tokens = self.tokens.remove(&block).expect("a block that goes was stored");
        let keys: Vec<Key> = self.objects(block, tokens).iter().map(|object| object.key).collect();
        self.ready.extend(keys.into_iter().rev().map(|key| (Op::Delete { key }, at_ns)));
    }
}

impl Workload for KvCache {
    fn next(&mut self) -> Op {
        unreachable!("a trace ends, so operations are drawn")
    }

    fn draw(&mut self) -> Result<Option<(Op, Option<Ns>)>, String> {
        while self.ready.is_empty() {
            if !self.read_request()? {
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
        self.cache.counters().counts().and(&Stored { bytes_stored: self.stored_bytes })
    }
}

/// What went to the drive.
#[derive(Counters)]
struct Stored {
    /// Bytes of the stored blocks.
    #[counter(unit = Bytes)]
    bytes_stored: u64,
}

#[cfg(test)]
mod tests;
