//! The pairs on the drive before a trace begins (`workload.load`). A trace of a store that had been filled
//! before recording reads keys that it never stores; an empty drive does not have them.
//!
//! The pairs are found by reading a trace once, before the run, and are kept in memory as a key and a size
//! each.

use std::collections::{BTreeMap, BTreeSet};

use kvdrive_nvme::Key;
use kvdrive_text::{Unit, number_of, quantity};

use super::{Trace, TraceOp, WorkloadParams, opened};
use crate::keys::KeyFormat;

/// The setting.
const KEY: &str = "workload.load";
const NOTHING: &str = "nothing";
const READS: &str = "reads:";
const TRACE: &str = "trace:";
const KEYS: &str = "keys:";
/// Length of the keys of `db_bench`, unless `--key_size` is given to it.
const DB_BENCH_KEY_BYTES: u32 = 16;

/// Pairs with the sizes of their values, and a note for the report.
type Loaded = (Vec<(Key, u32)>, Option<String>);

/// The workload: a trace from its first operation on, and the pairs that are on the drive before it.
///
/// # Errors
/// The key to blame, and what is wrong: no such file, no operation in it.
pub(in super::super) fn build(params: &WorkloadParams) -> Result<Trace, String> {
    let (loaded, note) = load(params)?;
    let mut trace =
        opened("workload.trace", &params.trace, &params.trace_format, &params.trace_tier).and_then(begun)?;
    trace.notes.extend(note);
    Ok(Trace { wants_times: params.arrivals == "trace", version: loaded.len() as u64, loaded, ..trace })
}

/// A trace whose first operation has been read: there is one.
fn begun(mut trace: Trace) -> Result<Trace, String> {
    match trace.fill().map_err(|problem| trace.problem(&problem))? {
        true => Ok(trace),
        false => Err(format!("{}: {}: has no operation", trace.key, trace.source.name())),
    }
}

/// The pairs that the drive holds at the beginning according to `params`.
fn load(params: &WorkloadParams) -> Result<Loaded, String> {
    let wrong = |problem: String| format!("{KEY}: {problem}");
    let load = params.load.as_str();
    if load == NOTHING {
        return Ok((Vec::new(), None));
    }
    if let Some(path) = load.strip_prefix(TRACE) {
        return opened(KEY, path, "", &params.trace_tier).and_then(begun).and_then(left_by);
    }
    if let Some((num, size)) = num_and_size(load) {
        let num = quantity::parse_count(num).map_err(wrong)?;
        return first_keys(num, value_bytes(size).map_err(wrong)?).map_err(wrong);
    }
    let Some(size) = load.strip_prefix(READS) else {
        let allowed = format!("{NOTHING}, {READS}SIZE, {KEYS}NUM:SIZE, {TRACE}FILE");
        return Err(wrong(format!("{load:?}; allowed: {allowed}")));
    };
    let bytes = value_bytes(size).map_err(wrong)?;
    opened("workload.trace", &params.trace, &params.trace_format, &params.trace_tier)
        .and_then(|trace| reads_of(trace, bytes))
}

fn value_bytes(size: &str) -> Result<u32, String> {
    let bytes = quantity::parse(Unit::Bytes, size)?;
    u32::try_from(bytes).map_err(|_| format!("{size}: not the size of a value"))
}

/// The two parts of `keys:NUM:SIZE`.
fn num_and_size(load: &str) -> Option<(&str, &str)> {
    load.strip_prefix(KEYS)?.split_once(':')
}

impl WorkloadParams {
    /// Number of pairs that `load` puts on the drive before a trace, and the size of their values, if the setting itself
    /// says both, so that no file has to be read: `keys:NUM:SIZE`.
    pub fn stated_load(&self) -> Option<(u64, u32)> {
        self.row().filter(|row| row.looks_at("load"))?;
        let (num, size) = num_and_size(&self.load)?;
        Some((quantity::parse_count(num).ok()?, value_bytes(size).ok()?))
    }
}

/// Most keys of a range: their list takes 2 GiB of this machine's memory at most.
const KEYS_MAX: u64 = 1 << 26;

/// The first `num` keys of `db_bench`, which `fillseq` and `fillrandom` store before it records reads.
fn first_keys(num: u64, value_bytes: u32) -> Result<Loaded, String> {
    if !(1..=KEYS_MAX).contains(&num) {
        return Err(format!("{num} keys; allowed: 1 to {KEYS_MAX}"));
    }
    let format = KeyFormat::new(DB_BENCH_KEY_BYTES, num)?;
    let pairs = (0..num).map(|index| (format.key(index), value_bytes)).collect();
    let note = format!("loaded before: {} of {value_bytes} B, the first of db_bench", number_of(num, "pair"));
    Ok((pairs, Some(note)))
}

/// Each key that a trace reads and did not store before.
fn reads_of(mut trace: Trace, value_bytes: u32) -> Result<Loaded, String> {
    let (mut known, mut pairs) = (BTreeSet::new(), Vec::new());
    trace.each(|key, asked| match asked {
        TraceOp::Store(_) => _ = known.insert(key),
        TraceOp::Retrieve | TraceOp::Exist | TraceOp::Scan(_) if known.insert(key) => {
            pairs.push((key, value_bytes));
        }
        _ => {}
    })?;
    let note = format!(
        "loaded before: {} of {value_bytes} B, of the keys that the trace reads before it stores them",
        number_of(pairs.len() as u64, "pair")
    );
    Ok((pairs, Some(note)))
}

/// The pairs that the stores and deletes of a trace leave.
fn left_by(mut trace: Trace) -> Result<Loaded, String> {
    let mut pairs = BTreeMap::new();
    trace.each(|key, asked| match asked {
        TraceOp::Store(bytes) => _ = pairs.insert(key, bytes),
        TraceOp::Delete => _ = pairs.remove(&key),
        _ => {}
    })?;
    let note = format!(
        "loaded before: {}, which the stores of {} leave",
        number_of(pairs.len() as u64, "pair"),
        trace.source.name()
    );
    Ok((pairs.into_iter().collect(), Some(note)))
}
