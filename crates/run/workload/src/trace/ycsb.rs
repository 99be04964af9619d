//! The output of YCSB's `BasicDB` for each operation (`bin/ycsb load basic -P workloads/workloada`):
//!
//! ```text
//!   INSERT usertable user6284781860667377211 [ field0=... field1=... ]
//!   READ usertable user8517097267634966620 [ <all fields>]
//!   SCAN usertable user8517097267634966620 57 [ <all fields>]
//! ```
//!
//! The value of an insert or update consists of its fields together, without their names. Values contain any
//! printable characters; a field begins after a space with `field`, digits and `=`. All other lines, such as
//! the properties before and the statistics after, are skipped. No time is recorded.

use std::collections::VecDeque;

use super::source::Source;
use super::{Entry, Format, TraceOp, number, shortened};

pub(super) struct Ycsb;

const WORDS: [&[u8]; 5] = [b"INSERT ", b"UPDATE ", b"READ ", b"SCAN ", b"DELETE "];

/// A line printed by an operation: its word and the text after it.
fn operation(line: &[u8]) -> Option<(&'static [u8], &[u8])> {
    let word = WORDS.into_iter().find(|word| line.starts_with(word))?;
    Some((word, &line[word.len()..]))
}

pub(super) fn is_it(head: &[u8]) -> bool {
    // Whole lines only: the last one may be cut off.
    let mut lines = head.split(|byte| *byte == b'\n');
    lines.any(|line| operation(line).is_some_and(|(_, rest)| rest.contains(&b'[')))
}

/// Bytes of all values in `field0=... field1=...`.
fn value_bytes(fields: &[u8]) -> usize {
    let (mut bytes, mut at, mut value_begins) = (0, 0, None);
    while at < fields.len() {
        let begins = at == 0 || fields[at - 1] == b' ';
        let name = fields[at..].strip_prefix(b"field").filter(|_| begins);
        let digits = name.map_or(0, |rest| rest.iter().take_while(|byte| byte.is_ascii_digit()).count());
        if digits > 0 && name.is_some_and(|rest| rest.get(digits) == Some(&b'=')) {
            if let Some(from) = value_begins {
                bytes += (at - 1_usize).saturating_sub(from);
            }
            at += b"field".len() + digits + 1;
            value_begins = Some(at);
        } else {
            at += 1;
        }
    }
    bytes + value_begins.map_or(0, |from| fields.len().saturating_sub(from))
}

impl Format for Ycsb {
    fn read(&mut self, source: &mut Source, entries: &mut VecDeque<Entry>) -> Result<bool, String> {
        let Some(line) = source.line()? else { return Ok(false) };
        let Some((word, rest)) = operation(&line) else {
            source.give_back(line);
            return Ok(true);
        };
        let mut words = rest.splitn(3, |byte| *byte == b' ');
        let (_table, key, rest) = (words.next(), words.next().unwrap_or_default(), words.next());
        let rest = rest.unwrap_or_default();
        // Without this, a line that was cut would be an operation on another key.
        if word != b"DELETE " && !rest.ends_with(b"]") {
            return Err(format!("expected [ and ] after the key, got {:?}", shortened(&line)));
        }
        let asked = match word {
            b"READ " => TraceOp::Retrieve,
            b"DELETE " => TraceOp::Delete,
            b"SCAN " => {
                let count: u32 =
                    number("pairs of a scan", rest.split(|byte| *byte == b' ').next().unwrap_or(rest))?;
                TraceOp::Scan(count.saturating_sub(1))
            }
            _ => {
                let fields = rest.strip_prefix(b"[ ").and_then(|rest| rest.strip_suffix(b" ]"));
                let Some(fields) = fields else {
                    return Err(format!("expected [ field0=... ], got {:?}", shortened(rest)));
                };
                TraceOp::Store(value_bytes(fields).try_into().map_err(|_| "a value of 4 GiB or more")?)
            }
        };
        let key = source.key(key)?;
        source.give_back(line);
        entries.push_back(Entry { at_ns: None, key, asked, times: 1 });
        Ok(true)
    }
}
