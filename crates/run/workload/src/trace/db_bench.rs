//! RocksDB's query trace, which `db_bench --trace_file` and `DB::StartTrace` write (versions 0.1 and 0.2 of
//! its format). Numbers are little endian; a string has its length before it, in groups of seven bits.
//!
//! ```text
//!   record   time u64 (us) | type u8 | payload bytes u32 | payload
//!   begin    1: "feedcafedeadbeef\tTrace Version: 0.2\t..."          end  2
//!   write    3: a write batch: sequence u64 | count u32 | tag u8 ...
//!   get      4: column family u32 | key                             seek  5, 6: the same
//!   multiget 13: how many u32 | column families | keys
//! ```
//!
//! From 0.2 on a payload of types 3 and above begins with 8 bytes of flags, one for each part that follows.
//! All column families are one here. A merge is a store of its operand, an entity of columns a store of all of them in
//! RocksDB's form; a timed put is a store without its time. Range deletes, which the KV command set does not have, are
//! skipped and counted. A trace may follow a trace in one file.

use std::collections::VecDeque;

use super::source::Source;
use super::{Entry, Format, Head, TraceOp};

const MAGIC: &[u8] = b"feedcafedeadbeef";
/// Time, type, length.
const HEADER_BYTES: usize = 13;
/// The time behind the value of a timed put.
const TIME_BYTES: usize = 8;
const BEGIN: u8 = 1;
const END: u8 = 2;
const WRITE: u8 = 3;
const GET: u8 = 4;
const SEEK: u8 = 5;
const SEEK_FOR_PREVIOUS: u8 = 6;
const MULTI_GET: u8 = 13;

/// Parts of a payload of version 0.2, by their bits, in the order they stand in.
const PARTS: u32 = 11;
const WRITE_BATCH: u32 = 1;
const GET_KEY: u32 = 3;
const SEEK_KEY: u32 = 5;
const MULTI_GET_KEYS: u32 = 10;
/// Fields of four bytes; the others are strings.
const NUMBERS: [u32; 3] = [2, 4, 8];

/// The beginning of a trace, and a get of `key`, 10 us later.
pub(super) const EXAMPLE: &[u8] = b"\x40\x42\x0f\0\0\0\0\0\x01\x5b\0\0\0\
    feedcafedeadbeef\tTrace Version: 0.2\tRocksDB Version: 6.20\tFormat: Timestamp OpType Payload\n\
    \x4a\x42\x0f\0\0\0\0\0\x04\x10\0\0\0\x0c\0\0\0\0\0\0\0\0\0\0\0\x03key";

#[derive(Default)]
pub(super) struct DbBench {
    /// Payloads begin with flags.
    has_flags: bool,
    has_begun: bool,
}

pub(super) fn is_it(head: Head<'_>) -> Option<bool> {
    let is_short = head.bytes.len() < HEADER_BYTES + MAGIC.len() && !head.is_all;
    let payload = head.bytes.get(HEADER_BYTES..).unwrap_or_default();
    (!is_short).then(|| payload.starts_with(MAGIC))
}

/// The contents of a payload: a write batch, and keys of gets and seeks.
struct Parts<'a> {
    batch: Option<&'a [u8]>,
    keys: Vec<&'a [u8]>,
}

/// The unread rest of a payload.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("the record is shorter than its fields")?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number of four bytes.
    fn fixed(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.bytes(4)?.try_into().expect("four bytes were taken")))
    }

    /// A number in groups of seven bits, the lowest first.
    fn varint(&mut self) -> Result<u32, String> {
        let mut number: u64 = 0;
        for group in 0..5 {
            let byte = self.bytes(1)?[0];
            number |= u64::from(byte & 0x7f) << (7 * group);
            if byte < 0x80 {
                return u32::try_from(number).map_err(|_| "a length of 4 GiB or more".to_owned());
            }
        }
        Err("a length of more than five bytes".to_owned())
    }

    fn string(&mut self) -> Result<&'a [u8], String> {
        let bytes = self.varint()?;
        self.bytes(bytes as usize)
    }
}

impl DbBench {
    /// The parts of a payload.
    fn payload<'a>(&self, kind: u8, payload: &'a [u8]) -> Result<Parts<'a>, String> {
        let mut rest = Rest(payload);
        if !self.has_flags {
            if kind == WRITE {
                return Ok(Parts { batch: Some(payload), keys: Vec::new() });
            }
            rest.fixed()?;
            return Ok(Parts { batch: None, keys: vec![rest.string()?] });
        }
        let flags = rest.bytes(8)?.try_into().map(u64::from_le_bytes).expect("eight bytes were taken");
        let mut parts = Parts { batch: None, keys: Vec::new() };
        for part in (0..PARTS).filter(|part| flags >> part & 1 == 1) {
            if NUMBERS.contains(&part) {
                rest.fixed()?;
                continue;
            }
            if part == 0 {
                continue;
            }
            let string = rest.string()?;
            match part {
                WRITE_BATCH => parts.batch = Some(string),
                GET_KEY | SEEK_KEY => parts.keys.push(string),
                MULTI_GET_KEYS => {
                    let mut strings = Rest(string);
                    while !strings.0.is_empty() {
                        parts.keys.push(strings.string()?);
                    }
                }
                _ => {}
            }
        }
        Ok(parts)
    }
}

/// Effects of a write batch on keys, one after the other; `None` for one that a drive of pairs does not have.
fn each_write<'a>(
    batch: &'a [u8],
    mut wrote: impl FnMut(&'a [u8], Option<TraceOp>) -> Result<(), String>,
) -> Result<(), String> {
    let mut rest = Rest(batch);
    rest.bytes(8)?;
    rest.fixed()?;
    while !rest.0.is_empty() {
        let tag = rest.bytes(1)?[0];
        // Tags of another column family than the first have its number.
        let tag = match tag {
            0x04 | 0x05 | 0x06 | 0x08 | 0x0e | 0x10 | 0x17 | 0x19 => {
                rest.varint()?;
                match tag {
                    0x04 => 0x00,
                    0x05 => 0x01,
                    0x06 => 0x02,
                    0x08 => 0x07,
                    0x0e => 0x0f,
                    0x10 => 0x11,
                    0x17 => 0x16,
                    _ => 0x18,
                }
            }
            tag => tag,
        };
        match tag {
            // Delete, single delete, delete with a timestamp (in its key).
            0x00 | 0x07 | 0x14 => wrote(rest.string()?, Some(TraceOp::Delete))?,
            // Put, merge, put of a blob's place, put of an entity of columns.
            0x01 | 0x02 | 0x11 | 0x16 => {
                let (key, value) = (rest.string()?, rest.string()?);
                wrote(key, Some(TraceOp::Store(value.len() as u32)))?;
            }
            // A timed put: the time of the write stands behind the value.
            0x18 => {
                let (key, value) = (rest.string()?, rest.string()?);
                let bytes = value.len().checked_sub(TIME_BYTES).ok_or("a timed put without a time")?;
                wrote(key, Some(TraceOp::Store(bytes as u32)))?;
            }
            0x0f => {
                let first = rest.string()?;
                rest.string()?;
                wrote(first, None)?;
            }
            // The commit of a transaction, with its timestamp.
            0x15 => {
                rest.string()?;
                rest.string()?;
            }
            // Data for the log; the end of a prepared transaction, its commit, its rollback.
            0x03 | 0x0a | 0x0b | 0x0c => {
                rest.string()?;
            }
            // The begin of a prepared transaction; no operation.
            0x09 | 0x0d | 0x12 | 0x13 => {}
            tag => return Err(format!("a write batch with the unknown tag {tag:02x}h")),
        }
    }
    Ok(())
}

impl Format for DbBench {
    fn read(&mut self, source: &mut Source, entries: &mut VecDeque<Entry>) -> Result<bool, String> {
        source.begin_record();
        let mut header = [0; HEADER_BYTES];
        if !source.bytes(&mut header)? {
            return Ok(false);
        }
        let micros = u64::from_le_bytes(header[..8].try_into().expect("eight of them"));
        let kind = header[8];
        let length = u32::from_le_bytes(header[9..].try_into().expect("four of them"));
        let payload = source.take(length.into())?;
        let at_ns = Some(micros.saturating_mul(1000));
        match kind {
            BEGIN if !self.has_begun && payload.starts_with(MAGIC) => {
                let version = |text: &[u8]| payload.windows(text.len()).any(|found| found == text);
                self.has_flags = !version(b"Trace Version: 0.1\t");
                self.has_begun = true;
            }
            _ if !self.has_begun => return Err("it does not begin like a trace of RocksDB".to_owned()),
            END => self.has_begun = false,
            WRITE | GET | SEEK | SEEK_FOR_PREVIOUS | MULTI_GET => {
                let Parts { batch, keys } = self.payload(kind, &payload)?;
                let asked =
                    if kind == GET || kind == MULTI_GET { TraceOp::Retrieve } else { TraceOp::Scan(0) };
                for key in keys {
                    entries.push_back(Entry { at_ns, key: source.key(key)?, asked, times: 1 });
                }
                each_write(batch.unwrap_or(&[0; 12]), |key, asked| {
                    match asked {
                        Some(asked) => {
                            entries.push_back(Entry { at_ns, key: source.key(key)?, asked, times: 1 });
                        }
                        None => source.skip("range delete"),
                    }
                    Ok(())
                })?;
            }
            _ => return Err(format!("a record of type {kind}, which is no query")),
        }
        Ok(true)
    }
}
