//! The log of MLPerf Storage's KV cache benchmark (`--io-trace-log`): CSV with a heading that contains `Timestamp` (s),
//! `Operation`, `Object_Size_Bytes`, `Tier` and `Key`, in any order. Its objects are whole files of up to some GB.
//!
//! Only the lines of one tier are operations of a drive: `Tier-2`, unless `workload.trace_tier` names another one.

use std::collections::VecDeque;

use super::source::Source;
use super::tiers::{Done, Tier, put_parts};
use super::{Entry, Format, Head, number, of_heading, seconds, shortened};

/// The tier that is a drive.
const DRIVE: &str = "Tier-2";

/// The index of each column in a line.
struct Columns {
    time: usize,
    operation: usize,
    size: usize,
    tier: usize,
    key: usize,
    /// Columns of the heading.
    all: usize,
}

pub(super) struct MlperfKv {
    columns: Option<Columns>,
    tier: Tier,
}

impl MlperfKv {
    pub(super) fn new(tier: &str) -> MlperfKv {
        MlperfKv { columns: None, tier: Tier::new(tier, DRIVE) }
    }
}

fn columns(heading: &[u8]) -> Option<Columns> {
    let names: Vec<Vec<u8>> = heading.split(|byte| *byte == b',').map(of_heading).collect();
    let at = |name: &[u8]| names.iter().position(|known| known == name);
    Some(Columns {
        time: at(b"timestamp")?,
        operation: at(b"operation")?,
        size: at(b"object_size_bytes")?,
        tier: at(b"tier")?,
        key: at(b"key")?,
        all: names.len(),
    })
}

pub(super) fn is_it(head: Head<'_>) -> Option<bool> {
    head.first_line(|line| columns(line).is_some())
}

/// The benchmark's documents name operations in several ways.
fn done(word: &[u8]) -> Result<Done, String> {
    match &word.to_ascii_lowercase()[..] {
        b"write" | b"put" | b"store" | b"save" | b"set" => Ok(Done::Stored),
        b"read" | b"get" | b"retrieve" | b"load" => Ok(Done::Retrieved),
        b"delete" | b"evict" | b"remove" => Ok(Done::Deleted),
        _ => Err(format!("no operation {:?}; there are write, read and delete", shortened(word))),
    }
}

impl Format for MlperfKv {
    fn read(&mut self, source: &mut Source, entries: &mut VecDeque<Entry>) -> Result<bool, String> {
        let Some(line) = source.line()? else { return Ok(false) };
        let Some(columns) = &self.columns else {
            self.columns = columns(&line);
            let found = shortened(&line);
            source.give_back(line);
            let expected = "a heading with Timestamp, Operation, Object_Size_Bytes, Tier and Key";
            return self
                .columns
                .is_some()
                .then_some(true)
                .ok_or(format!("expected {expected}, got {found:?}"));
        };
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect();
        if fields.len() < columns.all {
            let (found, all) = (fields.len(), columns.all);
            return Err(format!("{found} of {all} fields, {:?}", shortened(&line)));
        }
        if self.tier.takes(fields[columns.tier], source) {
            let done = done(fields[columns.operation])?;
            let bytes: u64 = number("Object_Size_Bytes", fields[columns.size])?;
            let at_ns = Some(seconds(fields[columns.time])?);
            put_parts(source, entries, fields[columns.key], done, bytes, at_ns)?;
        }
        drop(fields);
        source.give_back(line);
        Ok(true)
    }
}
