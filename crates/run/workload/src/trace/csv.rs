//! kvdrive's own traces: `time,op,key,size`, one operation per line.
//!
//! ```text
//!   time,op,key,size          a heading may stand before the operations; a line that begins with # is a comment
//!   0,store,user17,128        time: ns, or with a unit (1.5ms); empty where none is known
//!   800,get,user17,           size: of a store, in bytes, or with a unit; of a scan, pairs after the first
//!   2us,delete,user17
//! ```
//!
//! A key is the text between the commas, byte by byte.

use std::collections::VecDeque;

use super::source::Source;
use super::{Entry, Format, Head, TraceOp, number, of_heading, shortened};
use kvdrive_text::{Unit, quantity};

#[derive(Default)]
pub(super) struct Csv {
    /// A line that was no comment has been read: a heading can follow no more.
    has_begun: bool,
}

/// A heading, or an operation with its time before it.
pub(super) fn is_it(head: Head<'_>) -> Option<bool> {
    head.first_line(|line| is_heading(line) || is_operation(line))
}

/// A comment may stand behind a heading.
fn is_heading(line: &[u8]) -> bool {
    let mut fields = line.split(|byte| *byte == b',').map(of_heading);
    (fields.next(), fields.next()) == (Some(b"time".to_vec()), Some(b"op".to_vec()))
}

fn is_operation(line: &[u8]) -> bool {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect();
    let is_time = |time: &[u8]| time.is_empty() || quantity("time_ns", time).is_ok();
    matches!(fields[..], [time, op, _] | [time, op, _, _] if is_time(time) && of_word(op, b"0").is_ok())
}

impl Format for Csv {
    fn read(&mut self, source: &mut Source, entries: &mut VecDeque<Entry>) -> Result<bool, String> {
        let Some(line) = source.line()? else { return Ok(false) };
        let mut fields = line.split(|byte| *byte == b',');
        let mut field = || fields.next().map(<[u8]>::trim_ascii);
        let (time, op, key, size) = (field(), field(), field(), field().unwrap_or_default());
        if !std::mem::replace(&mut self.has_begun, true) && is_heading(&line) {
            source.give_back(line);
            return Ok(true);
        }
        let (Some(time), Some(op), Some(key), None) = (time, op, key, field()) else {
            return Err(format!("expected time,op,key,size, got {:?}", shortened(&line)));
        };
        let at_ns = if time.is_empty() { None } else { Some(quantity("time_ns", time)?) };
        let asked = of_word(op, size)?;
        let key = source.key(key)?;
        source.give_back(line);
        entries.push_back(Entry { at_ns, key, asked, times: 1 });
        Ok(true)
    }
}

/// The operation that a word names, with its size.
fn of_word(word: &[u8], size: &[u8]) -> Result<TraceOp, String> {
    match &word.to_ascii_lowercase()[..] {
        b"store" | b"put" | b"set" | b"insert" | b"update" => {
            let bytes = quantity("size_bytes", size)?;
            Ok(TraceOp::Store(u32::try_from(bytes).map_err(|_| format!("size: {bytes} is too large"))?))
        }
        b"retrieve" | b"get" | b"read" => Ok(TraceOp::Retrieve),
        b"delete" | b"del" | b"remove" => Ok(TraceOp::Delete),
        b"exist" | b"exists" => Ok(TraceOp::Exist),
        b"scan" | b"seek" => {
            Ok(TraceOp::Scan(if size.is_empty() { 0 } else { number("size of a scan", size)? }))
        }
        b"list" => Ok(TraceOp::List),
        _ => {
            let words = "store, retrieve, delete, exist, scan or list";
            Err(format!("no operation {:?}; there are {words}", shortened(word)))
        }
    }
}

fn quantity(key: &str, field: &[u8]) -> Result<u64, String> {
    let text = std::str::from_utf8(field).ok().filter(|text| !text.chars().any(char::is_control));
    let text = text.ok_or_else(|| format!("{}; expected a number", shortened(field)))?;
    let what = key.split('_').next().unwrap_or(key);
    let number = quantity::parse(Unit::of(key), text).map_err(|problem| format!("{what}: {problem}"))?;
    u64::try_from(number).map_err(|_| format!("{what}: {number} is below 0"))
}
