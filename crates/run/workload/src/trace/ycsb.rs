//! The output of YCSB's `BasicDB` for each operation (`bin/ycsb load basic -P workloads/workloada`):
//!
//! ```text
//!   INSERT usertable user6284781860667377211 [ field0=... field1=... ]
//!   READ usertable user8517097267634966620 [ <all fields>]
//!   SCAN usertable user8517097267634966620 57 [ <all fields>]
//! ```
//!
//! The value of an insert or update consists of the fields that it writes, without their names: an update of one field
//! stores that field alone, where a binding of a store that has no fields would write the record again. Values contain
//! any printable characters; a field begins after a space with a prefix, digits and `=`. The prefix is `field`, or that
//! of the line's first field (YCSB's `fieldnameprefix`). All other lines, such as the properties before and the
//! statistics after, are skipped. No time is recorded.

use std::collections::VecDeque;

use super::source::Source;
use super::{Entry, Format, Head, TraceOp, number, shortened};

pub(super) struct Ycsb;

const WORDS: [&[u8]; 5] = [b"INSERT ", b"UPDATE ", b"READ ", b"SCAN ", b"DELETE "];

/// A line printed by an operation: its word and the text after it.
fn operation(line: &[u8]) -> Option<(&'static [u8], &[u8])> {
    let word = WORDS.into_iter().find(|word| line.starts_with(word))?;
    Some((word, &line[word.len()..]))
}

/// Other lines may stand before the first operation, as many as there are properties.
pub(super) fn is_it(head: Head<'_>) -> Option<bool> {
    let is_operation = |line: &[u8]| {
        operation(line).is_some_and(|(word, rest)| match word {
            b"DELETE " => rest.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).count() == 2,
            _ => rest.contains(&b'['),
        })
    };
    if head.lines().any(is_operation) { Some(true) } else { head.is_all.then_some(false) }
}

/// The prefix of the first field's name; `None` if there is no field.
fn prefix(fields: &[u8]) -> Option<&[u8]> {
    let name = &fields[..fields.iter().position(|byte| *byte == b'=')?];
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let prefix = &name[..name.len() - digits];
    (digits > 0 && !prefix.contains(&b' ')).then_some(prefix)
}

/// Bytes of all values in `field0=... field1=...`; `None` if it does not begin with a field.
fn value_bytes(fields: &[u8]) -> Option<usize> {
    let prefix = prefix(fields)?;
    let (mut bytes, mut at, mut value_begins) = (0, 0, None);
    while at < fields.len() {
        let begins = at == 0 || fields[at - 1] == b' ';
        let name = fields[at..].strip_prefix(prefix).filter(|_| begins);
        let digits = name.map_or(0, |rest| rest.iter().take_while(|byte| byte.is_ascii_digit()).count());
        if digits > 0 && name.is_some_and(|rest| rest.get(digits) == Some(&b'=')) {
            if let Some(from) = value_begins {
                bytes += (at - 1_usize).saturating_sub(from);
            }
            at += prefix.len() + digits + 1;
            value_begins = Some(at);
        } else {
            at += 1;
        }
    }
    Some(bytes + value_begins.map_or(0, |from| fields.len().saturating_sub(from)))
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
                let Some(bytes) = fields.and_then(value_bytes) else {
                    return Err(format!("expected [ field0=... ], got {:?}", shortened(rest)));
                };
                TraceOp::Store(bytes.try_into().map_err(|_| "a value of 4 GiB or more")?)
            }
        };
        let key = source.key(key)?;
        source.give_back(line);
        entries.push_back(Entry { at_ns: None, key, asked, times: 1 });
        Ok(true)
    }
}
