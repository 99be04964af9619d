//! kvdrive's own traces: `time,op,key,size`, one operation per line.
//!
//! ```text
//!   time,op,key,size          a heading may stand first; # begins a comment
//!   0,store,user17,128        time: ns, or with a unit (1.5ms); empty where none is known
//!   800,get,user17,           size: of a store, in bytes, or with a unit; of a scan, pairs after the first
//!   2us,delete,user17
//! ```
//!
//! A key is the text between the commas, byte by byte.

use std::collections::VecDeque;

use super::source::Source;
use super::{Entry, Format, TraceOp, number, shortened};
use kvdrive_text::{Unit, quantity};

pub(super) struct Csv;

impl Format for Csv {
    fn read(&mut self, source: &mut Source, entries: &mut VecDeque<Entry>) -> Result<bool, String> {
        let Some(line) = source.line()? else { return Ok(false) };
        let mut fields = line.split(|byte| *byte == b',');
        let mut field = || fields.next().map(<[u8]>::trim_ascii);
        let (time, op, key, size) = (field(), field(), field(), field().unwrap_or_default());
        if source.is_first() && time == Some(b"time") {
            source.give_back(line);
            return Ok(true);
        }
        let (Some(time), Some(op), Some(key), None) = (time, op, key, field()) else {
            return Err(format!("expected time,op,key,size, got {:?}", shortened(&line)));
        };
        let at_ns = if time.is_empty() { None } else { Some(quantity("time_ns", time)?) };
        let asked = match &op.to_ascii_lowercase()[..] {
            b"store" | b"put" | b"set" | b"insert" | b"update" => {
                let bytes = quantity("size_bytes", size)?;
                TraceOp::Store(u32::try_from(bytes).map_err(|_| format!("size: {bytes} is too large"))?)
            }
            b"retrieve" | b"get" | b"read" => TraceOp::Retrieve,
            b"delete" | b"del" | b"remove" => TraceOp::Delete,
            b"exist" | b"exists" => TraceOp::Exist,
            b"scan" | b"seek" => {
                TraceOp::Scan(if size.is_empty() { 0 } else { number("size of a scan", size)? })
            }
            b"list" => TraceOp::List,
            _ => {
                let words = "store, retrieve, delete, exist, scan or list";
                return Err(format!("no operation {:?}; there are {words}", shortened(op)));
            }
        };
        let key = source.key(key)?;
        source.give_back(line);
        entries.push_back(Entry { at_ns, key, asked, times: 1 });
        Ok(true)
    }
}

fn quantity(key: &str, field: &[u8]) -> Result<u64, String> {
    let text = std::str::from_utf8(field).ok().filter(|text| !text.chars().any(char::is_control));
    let text = text.ok_or_else(|| format!("{}; expected a number", shortened(field)))?;
    let what = key.split('_').next().unwrap_or(key);
    let number = quantity::parse(Unit::of(key), text).map_err(|problem| format!("{what}: {problem}"))?;
    u64::try_from(number).map_err(|_| format!("{what}: {number} is below 0"))
}
