//! What traces of caches with several tiers have in common: a tier that is chosen, and objects that are longer than a
//! drive's values.

use std::collections::VecDeque;

use kvdrive_sim::Ns;

use super::source::Source;
use super::{Entry, TraceOp};

/// The largest part of an object, bytes. A longer object has several parts, each with a key of its own.
pub(super) const PART_BYTES: u64 = 64 << 20;
/// Most bytes of an object; more are taken for a damaged file.
const OBJECT_MAX_BYTES: u64 = 1 << 40;
/// The name of a tier that takes all entries.
const ALL: &str = "all";
/// What reports call the entries of other tiers.
const OTHERS: &str = "entry of another tier";

/// What is done with an object.
#[derive(Clone, Copy)]
pub(super) enum Done {
    Stored,
    Retrieved,
    Deleted,
}

/// The tier whose entries are operations.
pub(super) struct Tier(String);

impl Tier {
    /// The tier called `named`, or the one that is a drive.
    pub(super) fn new(named: &str, drive: &str) -> Tier {
        Tier(if named.is_empty() { drive.to_owned() } else { named.to_owned() })
    }

    /// Is an entry of `tier` an operation? The report says how many are not.
    pub(super) fn takes(&self, tier: &[u8], source: &mut Source) -> bool {
        let is_it = self.0 == ALL || tier.eq_ignore_ascii_case(self.0.as_bytes());
        if !is_it {
            source.skip(OTHERS);
        }
        is_it
    }
}

/// The operations of an object of `bytes` bytes.
///
/// # Errors
/// There is no such object.
pub(super) fn put_parts(
    source: &mut Source,
    entries: &mut VecDeque<Entry>,
    name: &[u8],
    done: Done,
    bytes: u64,
    at_ns: Option<Ns>,
) -> Result<(), String> {
    if bytes > OBJECT_MAX_BYTES {
        return Err(format!("an object of {bytes} bytes"));
    }
    let parts = bytes.div_ceil(PART_BYTES).max(1);
    for part in 0..parts {
        let asked = match done {
            Done::Stored => TraceOp::Store((bytes - part * PART_BYTES).min(PART_BYTES) as u32),
            Done::Retrieved => TraceOp::Retrieve,
            Done::Deleted => TraceOp::Delete,
        };
        let key = match parts {
            1 => source.key(name)?,
            _ => source.key(&[name, b"#", part.to_string().as_bytes()].concat())?,
        };
        entries.push_back(Entry { at_ns, key, asked, times: 1 });
    }
    Ok(())
}
