//! `trace`: recorded operations, read from a file during the run.
//!
//! A file may be compressed (gzip or zstd, detected by its first bytes) and has one of several formats, also
//! detected by its first bytes unless it is named. A new format is one file with a [`Format`] and one row in
//! [`FORMATS`]. A key of more than 16 B is replaced by a digest with its length ([`Key`]), and the report says so; a value is bytes of the recorded length.
//!
//! [`load`] determines the pairs that are loaded beforehand. Usually there are none, so keys that the trace
//! reads before it stores them are not found.

mod bytes;
mod csv;
mod db_bench;
mod lmcache;
mod load;
mod meta;
mod mlperf_kv;
mod msgpack;
mod oracle_general;
mod source;
mod tiers;
mod twitter;
mod ycsb;

use std::collections::VecDeque;
use std::path::Path;

use kvdrive_nvme::Key;
use kvdrive_sim::Ns;
use xxhash_rust::xxh3::xxh3_128;

use super::{Op, ValueSpec, Workload, WorkloadParams};
use kvdrive_text::names::no_such;
use kvdrive_text::number_of;
pub(super) use load::build;
pub(crate) use source::Source;

/// Bytes at the beginning of a file that usually say which format it has, and the most that are read to find out.
const HEAD_BYTES: usize = 8192;
const HEAD_MAX_BYTES: usize = source::LINE_MAX_BYTES as usize;
/// How far a time may lie before that of an earlier entry, ns.
const BACKWARD_NS: Ns = 1_000_000_000;
/// Times are below this, s.
const SECONDS_MAX: u64 = 10_000_000_000;
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
    /// Is a record that is cut off at the end of the file skipped, as the programs that read this format do?
    pub ends_anywhere: bool,
    /// Does a file with this beginning have this format? `None`: a longer beginning will say.
    is_it: fn(Head<'_>) -> Option<bool>,
    /// Of entries of several tiers, those of one are operations: of this one, or if it is empty of the tier that is a drive.
    build: fn(&str) -> Box<dyn Format>,
}

/// Every format, in the order in which they are asked: a file has the first one that recognises it. A file that none
/// recognises is read as [`UNKNOWN`].
pub static FORMATS: &[FormatRow] = &[
    FormatRow {
        name: "db_bench",
        origin: "RocksDB's query trace, binary (db_bench --trace_file, DB::StartTrace)",
        example: db_bench::EXAMPLE,
        ends_anywhere: false,
        is_it: db_bench::is_it,
        build: |_| Box::new(db_bench::DbBench::default()),
    },
    FormatRow {
        name: "lmcache",
        origin: "LMCache's .lct, levels storage and events (lmcache server --trace-output)",
        example: lmcache::EXAMPLE,
        ends_anywhere: true,
        is_it: lmcache::is_it,
        build: |tier| Box::new(lmcache::Lmcache::new(tier)),
    },
    FormatRow {
        name: "oracleGeneral",
        origin: "libCacheSim's binary records of 24 B; the first request of an object stores it, others retrieve it",
        example: b"\x01\0\0\0\x07\0\0\0\0\0\0\0\0\x10\0\0\x02\0\0\0\0\0\0\0\
            \x03\0\0\0\x07\0\0\0\0\0\0\0\0\x10\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
        ends_anywhere: false,
        is_it: oracle_general::is_it,
        build: |_| Box::new(oracle_general::OracleGeneral::default()),
    },
    FormatRow {
        name: "csv",
        origin: "time,op,key,size: ours; time in ns or with a unit, op as store or get, size of stores in bytes",
        example: b"time,op,key,size\n0,store,user17,128\n800,get,user17,\n",
        ends_anywhere: false,
        is_it: csv::is_it,
        build: |_| Box::new(csv::Csv::default()),
    },
    FormatRow {
        name: "meta",
        origin: "CSV with a heading that contains key and op (Meta's CacheLib traces kvcache)",
        example: b"op_time,key,op,op_count,size\n1,7,SET,1,20\n2,7,GET,2,0\n",
        ends_anywhere: false,
        is_it: meta::is_it,
        build: |_| Box::new(meta::Meta::default()),
    },
    FormatRow {
        name: "mlperf-kv",
        origin: "CSV with columns Timestamp, Operation, Object_Size_Bytes, Tier, Key (MLPerf Storage's KV cache, --io-trace-log)",
        example: b"Timestamp,Operation,Object_Size_Bytes,Tier,Key,Phase\n0.5,Write,4096,Tier-2,a,Prefill\n",
        ends_anywhere: false,
        is_it: mlperf_kv::is_it,
        build: |tier| Box::new(mlperf_kv::MlperfKv::new(tier)),
    },
    FormatRow {
        name: "twitter",
        origin: "time,key,key size,value size,client,operation,TTL (Twitter's cache traces, OSDI'20)",
        example: b"0,nz:u:eeW,10,16,1,get,0\n1,nz,10,1024,2,set,86400\n",
        ends_anywhere: false,
        is_it: twitter::is_it,
        build: |_| Box::new(twitter::Twitter),
    },
    FormatRow {
        name: "ycsb",
        origin: "the output of YCSB's BasicDB: INSERT usertable user1 [ field0=... ]; an update stores the fields it writes",
        example: b"INSERT usertable user1 [ field0=abc field1= ]\nSCAN usertable user1 5 [ <all fields>]\n",
        ends_anywhere: false,
        is_it: ycsb::is_it,
        build: |_| Box::new(ycsb::Ycsb),
    },
];

/// The format as which a file is read that looks like none, so that the message says what was expected.
const UNKNOWN: &str = "csv";

/// The beginning of a file.
#[derive(Clone, Copy)]
struct Head<'a> {
    bytes: &'a [u8],
    /// Whether the file has no more.
    is_all: bool,
}

impl<'a> Head<'a> {
    /// The lines that are complete, without comments, empty lines and a byte order mark.
    fn lines(self) -> impl Iterator<Item = &'a [u8]> {
        let text = self.bytes.strip_prefix(source::MARK).unwrap_or(self.bytes);
        let ends =
            if self.is_all { text.len() } else { text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0) };
        let lines = text[..ends].split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"))
    }

    /// Asks the first line, once it is known.
    fn first_line(self, is_it: impl FnOnce(&[u8]) -> bool) -> Option<bool> {
        match self.lines().next() {
            Some(line) => Some(is_it(line)),
            None => self.is_all.then_some(false),
        }
    }
}

/// The format that a file has, by as much of its beginning as it takes; `None`: it looks like none.
fn recognised(source: &mut Source) -> Result<Option<&'static FormatRow>, String> {
    let mut asked = HEAD_BYTES;
    loop {
        let (bytes, is_all) = source.head(asked)?;
        let head = Head { bytes, is_all: is_all || bytes.len() >= HEAD_MAX_BYTES };
        // The first format that does not say no: another one must not be taken before it is known.
        match FORMATS.iter().map(|row| (row, (row.is_it)(head))).find(|(_, is_it)| *is_it != Some(false)) {
            Some((row, Some(_))) => return Ok(Some(row)),
            Some((_, None)) if !head.is_all => asked = (2 * asked).min(HEAD_MAX_BYTES),
            _ => {
                let compressed = bytes::unread_compression(head.bytes);
                return match compressed {
                    Some(program) => Err(format!(
                        "{}: compressed by {program}; a trace is read plain, or compressed once by gzip or zstd",
                        source.name()
                    )),
                    None => Ok(None),
                };
            }
        }
    }
}

/// A trace that is being read.
pub(super) struct Trace {
    /// The setting that names it.
    key: &'static str,
    source: Source,
    format: Box<dyn Format>,
    name: &'static str,
    /// Why it has this format, unless it was named.
    assumed: Option<&'static str>,
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
    /// How much was skipped when that was noted last, and the place of the note.
    skipped: Option<(u64, usize)>,
}

/// Opens the trace at `path`, in the named format; if `format` is empty, the file's beginning decides. `tier`: see
/// [`FormatRow`].
/// Errors begin with `key`, the setting that names the trace.
fn opened(key: &'static str, path: &str, format: &str, tier: &str) -> Result<Trace, String> {
    let wrong = |error| format!("{key}: {error}");
    let mut source = Source::open(Path::new(path)).map_err(wrong)?;
    let named = |name: &str| {
        FORMATS.iter().find(|row| row.name == name).ok_or_else(|| {
            let names: Vec<_> = FORMATS.iter().map(|row| row.name).collect();
            no_such("workload.trace_format", "format of traces", name, &names)
        })
    };
    let (row, assumed) = match format {
        "" => match recognised(&mut source).map_err(wrong)? {
            Some(row) => (row, Some("which its beginning looks like")),
            None => (named(UNKNOWN)?, Some("since its beginning is of no format")),
        },
        name => (named(name)?, None),
    };
    Ok(Trace {
        key,
        notes: vec![format!("operations of {}, read as {}", source.name(), row.name)],
        source,
        format: (row.build)(tier),
        name: row.name,
        assumed,
        entries: VecDeque::new(),
        begin_ns: None,
        last_ns: 0,
        wants_times: false,
        version: 0,
        loaded: Vec::new(),
        has_noted_long_key: false,
        has_noted_backward: false,
        skipped: None,
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

    /// A problem of the line or record that was read last: its place, and which format it was read as.
    fn problem(&self, problem: &str) -> String {
        let named = self.assumed.map_or_else(String::new, |why| {
            format!(" (read as {}, {why}; workload.trace_format names another)", self.name)
        });
        format!("{}: {problem}{named}", self.source.place())
    }

    /// Notes what was skipped so far.
    fn note_skipped(&mut self) {
        let skipped = self.source.skipped();
        let all: u64 = skipped.values().sum();
        if all == self.skipped.map_or(0, |(noted, _)| noted) {
            return;
        }
        let each: Vec<_> = skipped.iter().map(|(what, count)| number_of(*count, what)).collect();
        let note = format!("skipped: {}", each.join(", "));
        let at = match self.skipped {
            Some((_, at)) => at,
            None => {
                self.notes.push(String::new());
                self.notes.len() - 1
            }
        };
        self.notes[at] = note;
        self.skipped = Some((all, at));
    }

    /// Passes the key and the operation of every entry to `each`, up to the end.
    fn each(&mut self, mut each: impl FnMut(Key, TraceOp)) -> Result<(), String> {
        while self.fill().map_err(|problem| self.problem(&problem))? {
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
        let next = self.next_entry().map_err(|problem| self.problem(&problem));
        self.note_skipped();
        let next = next?;
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

/// Seconds, with or without decimals, in ns. The digits are read one by one: a time since 1970 has more of them than a
/// floating-point number.
fn seconds(field: &[u8]) -> Result<Ns, String> {
    let wrong = || format!("time: {:?} is not a number of seconds in its range", shortened(field));
    let text = std::str::from_utf8(field).map(str::trim).map_err(|_| wrong())?;
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if text.is_empty() || text == "." || !are_digits(whole) || !are_digits(part) {
        // With an exponent, or nothing of the kind.
        let seconds: f64 = number("time", field)?;
        return if (0.0..1e10).contains(&seconds) {
            Ok((seconds * 1e9).round() as u64)
        } else {
            Err(wrong())
        };
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| wrong())? };
    if whole >= SECONDS_MAX {
        return Err(wrong());
    }
    let digit = |at: usize| part.as_bytes().get(at).map_or(0, |digit| u64::from(digit - b'0'));
    let ns = (0..9).fold(0, |ns, at| 10 * ns + digit(at));
    Ok(whole * 1_000_000_000 + ns + u64::from(digit(9) >= 5))
}

/// The beginning of a field, for messages; or the length of a field that is not text.
pub(crate) fn shortened(field: &[u8]) -> String {
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

/// A name of a heading, as it is compared: without quotes and in small letters.
fn of_heading(name: &[u8]) -> Vec<u8> {
    let name = name.trim_ascii();
    let unquoted = name.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\""));
    unquoted.unwrap_or(name).trim_ascii().to_ascii_lowercase()
}
