//! libCacheSim's binary traces `oracleGeneral`: records of 24 bytes, little endian, without a head.
//!
//! ```text
//!   time u32, s | object u64 | size u32, bytes | number of the next request of this object i64, -1 or the largest: none
//! ```
//!
//! A record is a request to a cache that does not say whether it was there. Here a drive is the cache: the first request
//! of an object stores it, and each further one retrieves it.

use std::collections::{HashSet, VecDeque};

use kvdrive_nvme::Key;

use super::source::Source;
use super::{Entry, Format, Head, TraceOp};

const RECORD_BYTES: usize = 24;
/// Records that are looked at to recognise a file.
const LOOKED_AT: usize = 16;
/// The number of a next request is below this.
const NEXT_MAX: i64 = 1 << 40;
const NS_PER_S: u64 = 1_000_000_000;

#[derive(Default)]
pub(super) struct OracleGeneral {
    stored: HashSet<u64>,
    /// Requests that were read.
    count: i64,
}

struct Record {
    time_s: u32,
    object: u64,
    bytes: u32,
    next: i64,
}

fn record(bytes: &[u8; RECORD_BYTES]) -> Record {
    let (time, rest) = bytes.split_at(4);
    let (object, rest) = rest.split_at(8);
    let (size, next) = rest.split_at(4);
    Record {
        time_s: u32::from_le_bytes(time.try_into().expect("4 bytes")),
        object: u64::from_le_bytes(object.try_into().expect("8 bytes")),
        bytes: u32::from_le_bytes(size.try_into().expect("4 bytes")),
        next: i64::from_le_bytes(next.try_into().expect("8 bytes")),
    }
}

/// May request `next` be the next one of the object of request `number`? They are counted from 1.
fn is_next(number: i64, next: i64) -> bool {
    next == -1 || next == i64::MAX || (number < next && next < NEXT_MAX)
}

/// The file has no mark. Times must not go back, and a next request comes later: of a text, its 8 bytes would be a number
/// beyond all traces.
pub(super) fn is_it(head: Head<'_>) -> Option<bool> {
    let (records, rest) = head.bytes.as_chunks::<RECORD_BYTES>();
    if records.is_empty() || (records.len() < LOOKED_AT && !rest.is_empty()) {
        return head.is_all.then_some(false);
    }
    let mut last_s = 0;
    for (number, bytes) in (1..).zip(records.iter().take(LOOKED_AT)) {
        let Record { time_s, bytes, next, .. } = record(bytes);
        if time_s < last_s || bytes > i32::MAX as u32 || !is_next(number, next) {
            return Some(false);
        }
        last_s = time_s;
    }
    Some(true)
}

impl Format for OracleGeneral {
    fn read(&mut self, source: &mut Source, entries: &mut VecDeque<Entry>) -> Result<bool, String> {
        source.begin_record();
        let mut bytes = [0; RECORD_BYTES];
        if !source.bytes(&mut bytes)? {
            return Ok(false);
        }
        let Record { time_s, object, bytes, next } = record(&bytes);
        self.count += 1;
        if !is_next(self.count, next) {
            return Err(format!(
                "the next request of object {object} is number {next}; this is {}",
                self.count
            ));
        }
        let asked = if self.stored.insert(object) { TraceOp::Store(bytes) } else { TraceOp::Retrieve };
        let at_ns = Some(u64::from(time_s) * NS_PER_S);
        entries.push_back(Entry { at_ns, key: Key::from_u64_be(object), asked, times: 1 });
        Ok(true)
    }
}
