//! `trace`: recorded operations, read from a file during the run.
//!
//! A file may be compressed (gzip or zstd, detected by its first bytes) and has one of several formats, also
//! detected by its first bytes unless it is named. A new format is one file with a [`Format`] and one row in
//! [`FORMATS`]. A key of more than 16 B is replaced by a digest with its length ([`Key`]), and the report says so; a value is bytes of the recorded length.
//!
//! [`load`] determines the pairs that are loaded beforehand. Usually there are none, so keys that the trace
//! reads before it stores them are not found.

mod csv;
mod db_bench;
mod load;
mod meta;
mod source;
mod twitter;
mod ycsb;

use std::collections::VecDeque;
use std::path::Path;

use kvdrive_nvme::Key;
use kvdrive_sim::Ns;
use xxhash_rust::xxh3::xxh3_128;

use super::{Op, ValueSpec, Workload, WorkloadParams};
use kvdrive_text::names::no_such;
pub(super) use load::build;
pub(crate) use source::Source;

/// Bytes at the beginning of a file that say which format it has.
const HEAD_BYTES: usize = 8192;
/// How far a time may lie before that of an earlier entry, ns.
const BACKWARD_NS: Ns = 1_000_000_000;
/// Host buffer of a List, bytes.
const LIST_BUFFER_BYTES: u32 = 4096;

/// The operation of one entry of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TraceOp {
    /// Store a value of this many bytes.
    Store(u32),
    Retrieve,
    Delete,
    Exist,
    /// Read the pair at or after the key, and this many more.
    Scan(u32),
    List,
}

/// One entry of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// Its time, in ns from any beginning; `None` if the trace has no times.
    at_ns: Option<Ns>,
    key: Key,
    asked: TraceOp,
    /// Number of repetitions, one after the other.
    times: u64,
}

/// Reads one format.
trait Format: Send {
    /// Reads the next entries, at least one, into `entries`; `false` at the end.
    ///
    /// # Errors
    /// The problem, without the position, which the source knows.
    fn read(&mut self, source: &mut Source, entries: &mut VecDeque<Entry>) -> Result<bool, String>;
}

/// One format of the table.
pub struct FormatRow {
    /// Its name in `workload.trace_format`.
    pub name: &'static str,
    /// The program that writes it, in one line.
    pub origin: &'static str,
    /// A short file in this format.
    pub example: &'static [u8],
    /// Does a file that begins with these bytes have this format?
    is_it: fn(&[u8]) -> bool,
    build: fn() -> Box<dyn Format>,
}

/// Every format, the more certain ones first: a file has the first format that recognises it. A file that no
/// other format recognises is `csv`, the last one.
pub static FORMATS: &[FormatRow] = &[
    FormatRow {
        name: "db_bench",
        origin: "RocksDB's query trace, binary (db_bench --trace_file, DB::StartTrace)",
        example: db_bench::EXAMPLE,
        is_it: db_bench::is_it,
        build: || Box::new(db_bench::DbBench::default()),
    },
    FormatRow {
        name: "meta",
        origin: "CSV with a heading that contains key and op (Meta's CacheLib traces kvcache)",
        example: b"op_time,key,op,op_count,size\n1,7,SET,1,20\n2,7,GET,2,0\n",
        is_it: meta::is_it,
        build: || Box::new(meta::Meta::default()),
    },
    FormatRow {
        name: "ycsb",
        origin: "the output of YCSB's BasicDB: INSERT usertable user1 [ field0=... ]",
        example: b"INSERT usertable user1 [ field0=abc field1= ]\nSCAN usertable user1 5 [ <all fields>]\n",
        is_it: ycsb::is_it,
        build: || Box::new(ycsb::Ycsb),
    },
    FormatRow {
        name: "twitter",
        origin: "time,key,key size,value size,client,operation,TTL (Twitter's cache traces, OSDI'20)",
        example: b"0,nz:u:eeW,10,16,1,get,0\n1,nz,10,1024,2,set,86400\n",
        is_it: twitter::is_it,
        build: || Box::new(twitter::Twitter),
    },
    FormatRow {
        name: "csv",
        origin: "time,op,key,size: ours; time in ns or with a unit, op as store or get, size of stores in bytes",
        example: b"time,op,key,size\n0,store,user17,128\n800,get,user17,\n",
        is_it: |_| true,
        build: || Box::new(csv::Csv),
    },
];

/// A trace that is being read.
pub(super) struct Trace {
    /// The setting that names it.
    key: &'static str,
    source: Source,
    format: Box<dyn Format>,
    name: &'static str,
    entries: VecDeque<Entry>,
    /// The time of the first entry, and of the last one.
    begin_ns: Option<Ns>,
    last_ns: Ns,
    wants_times: bool,
    version: u64,
    /// Pairs that are on the drive before the trace begins, with the sizes of their values.
    loaded: Vec<(Key, u32)>,
    notes: Vec<String>,
    has_noted_long_key: bool,
    has_noted_backward: bool,
}

/// Opens the trace at `path`, in the named format; if `format` is empty, the file's first bytes decide.
/// Errors begin with `key`, the setting that names the trace.
fn opened(key: &'static str, path: &str, format: &str) -> Result<Trace, String> {
    let wrong = |error| format!("{key}: {error}");
    let mut source = Source::open(Path::new(path)).map_err(wrong)?;
    let row = match format {
        "" => {
            let head = source.head(HEAD_BYTES).map_err(wrong)?;
            FORMATS.iter().find(|row| (row.is_it)(head)).expect("the last one takes everything")
        }
        name => FORMATS.iter().find(|row| row.name == name).ok_or_else(|| {
            let names: Vec<_> = FORMATS.iter().map(|row| row.name).collect();
            no_such("workload.trace_format", "format of traces", name, &names)
        })?,
    };
    Ok(Trace {
        key,
        notes: vec![format!("operations of {}, read as {}", source.name(), row.name)],
        source,
        format: (row.build)(),
        name: row.name,
        entries: VecDeque::new(),
        begin_ns: None,
        last_ns: 0,
        wants_times: false,
        version: 0,
        loaded: Vec::new(),
        has_noted_long_key: false,
        has_noted_backward: false,
    })
}

impl Trace {
    /// When an entry begins, ns after the first entry. A time up to a second before that of the previous
    /// entry is replaced by the latter, because threads of one program write entries only roughly in the
    /// order of their times; a note says so.
    fn moment(&mut self, at_ns: Option<Ns>) -> Result<Option<Ns>, String> {
        if self.wants_times && at_ns.is_none() {
            return Err(format!("format {} has no times, so workload.arrivals cannot be trace", self.name));
        }
        let begin_ns = *self.begin_ns.get_or_insert(at_ns.unwrap_or(0));
        let before_ns = begin_ns.saturating_add(self.last_ns).saturating_sub(at_ns.unwrap_or(0));
        if self.wants_times && before_ns > BACKWARD_NS {
            let before_s = before_ns as f64 / 1e9;
            return Err(format!("its time lies {before_s:.3} s before that of an earlier operation"));
        }
        if self.wants_times && before_ns > 0 && !self.has_noted_backward {
            self.has_noted_backward = true;
            self.notes.push(format!(
                "an operation whose time lies before that of an earlier one begins with that one; the first is at {}",
                self.source.place()
            ));
        }
        self.last_ns = self.last_ns.max(at_ns.unwrap_or(0).saturating_sub(begin_ns));
        Ok(at_ns.map(|_| self.last_ns))
    }

    /// Reads entries until there is one in memory; `false` at the end.
    fn fill(&mut self) -> Result<bool, String> {
        while self.entries.is_empty() {
            if !self.format.read(&mut self.source, &mut self.entries)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Passes the key and the operation of every entry to `each`, up to the end.
    fn each(&mut self, mut each: impl FnMut(Key, TraceOp)) -> Result<(), String> {
        while self.fill().map_err(|problem| format!("{}: {problem}", self.source.place()))? {
            self.entries.drain(..).for_each(|entry| each(entry.key, entry.asked));
        }
        Ok(())
    }

    fn next_entry(&mut self) -> Result<Option<(Op, Option<Ns>)>, String> {
        if !self.fill()? {
            return Ok(None);
        }
        let entry = self.entries.front_mut().expect("there is one");
        entry.times -= 1;
        let Entry { at_ns, key, asked, times } = entry.clone();
        if times == 0 {
            self.entries.pop_front();
        }
        let at = self.moment(at_ns)?;
        let op = match asked {
            TraceOp::Store(bytes) => {
                let version = self.version;
                self.version += 1;
                Op::Store { key, value: ValueSpec { bytes, version } }
            }
            TraceOp::Retrieve => Op::Retrieve { key },
            TraceOp::Delete => Op::Delete { key },
            TraceOp::Exist => Op::Exist { key },
            TraceOp::Scan(nexts) => Op::Seek { key, nexts },
            TraceOp::List => Op::List { key, host_buffer_bytes: LIST_BUFFER_BYTES },
        };
        Ok(Some((op, at)))
    }
}

impl Workload for Trace {
    fn next(&mut self) -> Op {
        unreachable!("a trace may end, so it is drawn from")
    }

    fn draw(&mut self) -> Result<Option<(Op, Option<Ns>)>, String> {
        let next = self.next_entry().map_err(|problem| format!("{}: {problem}", self.source.place()))?;
        if let (Some(place), false) = (&self.source.first_long_key, self.has_noted_long_key) {
            self.has_noted_long_key = true;
            self.notes.push(format!(
                "keys longer than 16 B are a digest of 16 B and zeros, in their length; the first is at {place}"
            ));
        }
        Ok(next)
    }

    fn preload(&self) -> u64 {
        self.loaded.len() as u64
    }

    fn preload_bytes(&self) -> u64 {
        self.loaded.iter().map(|(_, bytes)| u64::from(*bytes)).sum()
    }

    fn preload_pair(&self, index: u64) -> (Key, ValueSpec) {
        let (key, bytes) = self.loaded[index as usize];
        (key, ValueSpec { bytes, version: index })
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn read_share(&self) -> Option<f64> {
        self.source.read_share()
    }
}

impl Source {
    /// The key of these bytes, or if they are too long their digest, as a key of their number of bytes.
    fn key(&mut self, bytes: &[u8]) -> Result<Key, String> {
        if bytes.len() > Key::IDENTITY_BYTES {
            if self.first_long_key.is_none() {
                self.first_long_key = Some(self.place());
            }
            let len = bytes.len().min(Key::MAX_LEN);
            return Ok(Key::from_padded(xxh3_128(bytes).to_be_bytes(), len).expect("a length that keys have"));
        }
        Key::new(bytes).ok_or_else(|| "an empty key".to_owned())
    }
}

/// A number of a field.
fn number<T: std::str::FromStr>(what: &str, field: &[u8]) -> Result<T, String> {
    let text = std::str::from_utf8(field).ok().map(str::trim);
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("{what}: {:?} is not a number in its range", shortened(field)))
}

/// Seconds, with or without decimals, in ns.
fn seconds(field: &[u8]) -> Result<Ns, String> {
    let seconds: f64 = number("time", field)?;
    if !(0.0..1e10).contains(&seconds) {
        return Err(format!("time: {:?} is not a number of seconds in its range", shortened(field)));
    }
    // Whole seconds are converted exactly: a time since 1970 has so many digits that its fraction would lose
    // some.
    Ok(seconds.trunc() as u64 * 1_000_000_000 + (seconds.fract() * 1e9).round() as u64)
}

/// The beginning of a field, for messages; or the length of a field that is not text.
fn shortened(field: &[u8]) -> String {
    let begin = &field[..field.len().min(40)];
    let text = String::from_utf8_lossy(begin).into_owned();
    let is_cut_char = |at: usize| at + 4 > begin.len() && field.len() > begin.len();
    let is_binary = std::str::from_utf8(begin).is_err_and(|error| !is_cut_char(error.valid_up_to()));
    match is_binary || begin.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        true => format!("{} bytes that are not text", field.len()),
        false if field.len() > 40 => text + "...",
        false => text,
    }
}

/// The operation for this word of a cache trace.
fn of_cache(word: &[u8], bytes: impl FnOnce() -> Result<u32, String>) -> Result<TraceOp, String> {
    let lower = word.to_ascii_lowercase();
    match &lower[..] {
        b"get" | b"gets" | b"get_lease" => Ok(TraceOp::Retrieve),
        b"set" | b"set_lease" | b"add" | b"replace" | b"cas" | b"append" | b"prepend" | b"incr" | b"decr" => {
            Ok(TraceOp::Store(bytes()?))
        }
        b"delete" => Ok(TraceOp::Delete),
        _ => Err(format!("unknown operation of a cache: {:?}", shortened(word))),
    }
}

/// The first line of a file, without its end.
fn first_line(head: &[u8]) -> &[u8] {
    head.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii()
}
