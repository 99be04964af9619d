//! The pairs on the drive before a trace begins (`workload.load`). A trace of a store that had been filled
//! before recording reads keys that it never stores; an empty drive does not have them.
//!
//! The pairs are found by reading a trace once, before the run, and are kept in memory as a key and a size
//! each.

use std::collections::{BTreeMap, BTreeSet};

use kvdrive_spec::Key;
use kvdrive_text::{Unit, number_of, quantity};

use super::{Trace, TraceOp, WorkloadParams, opened};

/// The setting.
const KEY: &str = "workload.load";
const NOTHING: &str = "nothing";
const READS: &str = "reads:";
const TRACE: &str = "trace:";

/// Pairs with the sizes of their values, and a note for the report.
type Loaded = (Vec<(Key, u32)>, Option<String>);

/// The workload: a trace from its first operation on, and the pairs that are on the drive before it.
///
/// # Errors
/// The key to blame, and what is wrong: no such file, no operation in it.
pub(in super::super) fn build(params: &WorkloadParams) -> Result<Trace, String> {
    let (loaded, note) = load(params)?;
    let mut trace = opened("workload.trace", &params.trace, &params.trace_format)?;
    if !trace.fill().map_err(|problem| format!("{}: {problem}", trace.source.place()))? {
        return Err(format!("workload.trace: {}: has no operation", trace.source.name()));
    }
    trace.notes.extend(note);
    Ok(Trace { wants_times: params.arrivals == "trace", version: loaded.len() as u64, loaded, ..trace })
}

/// The pairs that the drive holds at the beginning according to `params`.
fn load(params: &WorkloadParams) -> Result<Loaded, String> {
    let wrong = |problem: String| format!("{KEY}: {problem}");
    let load = params.load.as_str();
    if load == NOTHING {
        return Ok((Vec::new(), None));
    }
    if let Some(path) = load.strip_prefix(TRACE) {
        return opened(KEY, path, "").and_then(left_by);
    }
    let Some(size) = load.strip_prefix(READS) else {
        return Err(wrong(format!("{load:?}; allowed: {NOTHING}, {READS}SIZE, {TRACE}FILE")));
    };
    let bytes = quantity::parse(Unit::Bytes, size).map_err(wrong)?;
    let bytes = u32::try_from(bytes).map_err(|_| wrong(format!("{size}: not the size of a value")))?;
    opened("workload.trace", &params.trace, &params.trace_format).and_then(|trace| reads_of(trace, bytes))
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
