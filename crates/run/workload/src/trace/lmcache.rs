//! LMCache's traces (`lmcache server --trace-output FILE.lct`), of either level. A frame is a length (u32, big endian) and a
//! map in MessagePack; the first one is a head.
//!
//! | level | a record | operations here |
//! |---|---|---|
//! | `events` | what a tier has stored, read and deleted, with sizes | store, retrieve, delete of the tier `l2`, or of `workload.trace_tier` |
//! | `storage` | what was asked of the whole cache, without its answers | `finish_write`: a store of each key that was not stored; `submit_prefetch_task`: exist of each key, and retrieves of the leading ones that were stored |
//!
//! A frame that is cut off at the end, as by the end of the recording program, is skipped and counted.

use std::collections::{HashMap, VecDeque};

use kvdrive_nvme::Key;
use kvdrive_sim::Ns;

use super::msgpack::Value;
use super::source::{ENDS_WITHIN, Source};
use super::tiers::{Done, Tier, put_parts};
use super::{Entry, Format, Head, TraceOp, shortened};

const MAGIC: &[u8] = b"LMCT";
const VERSION: u64 = 1;
/// Bytes within which the magic stands.
const MAGIC_WITHIN: usize = 128;
/// Longest frame, bytes.
const FRAME_MAX_BYTES: u32 = 256 << 20;
/// The tier that is a drive.
const DRIVE: &str = "l2";

/// A head of level `events`, and a batch of a store of 4 KiB by tier l2, 1.5 s later.
pub(super) const EXAMPLE: &[u8] = b"\
    \x00\x00\x00L\x85\xa4type\xa6header\xa5magic\xc4\x04LMCT\xaeformat_version\x01\xa5level\xa6event\
    s\xact_mono_start\xcb\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xc7\x84\xa4type\xa6record\xa6t\
    _mono\xcb?\xf8\x00\x00\x00\x00\x00\x00\xa8qualname\xacevents.batch\xa4args\x83\xaaevent_type\xa5\
    store\xa4tier\xa2l2\xa7entries\x91\x82\xa3key\x85\xaechunk_hash_hex\xa80a0b0c0d\xaamodel_name\
    \xaasome-model\xa7kv_rank\xce\x01\x00\x01\x00\xafobject_group_id\x00\xaacache_salt\xa0\xaasize_b\
    ytes\xcd\x10\x00";

pub(super) struct Lmcache {
    tier: Tier,
    has_head: bool,
    /// Sizes of objects that were stored or are being written, by name.
    sizes: HashMap<Vec<u8>, Object>,
}

#[derive(Clone, Copy, Default)]
struct Object {
    bytes: u64,
    is_stored: bool,
}

impl Lmcache {
    pub(super) fn new(tier: &str) -> Lmcache {
        Lmcache { tier: Tier::new(tier, DRIVE), has_head: false, sizes: HashMap::new() }
    }
}

pub(super) fn is_it(head: Head<'_>) -> Option<bool> {
    let begin = &head.bytes[..head.bytes.len().min(MAGIC_WITHIN)];
    // A length of less than 16 MiB, and a map of up to 15 keys.
    let is_frame = begin.len() > 4 && begin[0] == 0 && begin[4] & 0xf0 == 0x80;
    let has_magic = begin.windows(MAGIC.len()).any(|bytes| bytes == MAGIC);
    (begin.len() == MAGIC_WITHIN || head.is_all || !is_frame && begin.len() > 4)
        .then_some(is_frame && has_magic)
}

/// A value without the tags that say which class of Python it was.
fn plain<'v, 'a>(value: &'v Value<'a>) -> &'v Value<'a> {
    match (value.get("__t__"), value.get("v")) {
        (Some(_), Some(inner)) => plain(inner),
        _ => value,
    }
}

fn field<'v, 'a>(value: &'v Value<'a>, name: &str) -> Result<&'v Value<'a>, String> {
    plain(value).get(name).map(plain).ok_or_else(|| format!("{name}: missing"))
}

fn text<'a>(value: &Value<'a>, name: &str) -> Result<&'a [u8], String> {
    field(value, name)?.bytes().ok_or_else(|| format!("{name}: not a text"))
}

fn number(value: &Value<'_>, name: &str) -> Result<u64, String> {
    field(value, name)?.number().ok_or_else(|| format!("{name}: not a number in its range"))
}

fn list<'v, 'a>(value: &'v Value<'a>, name: &str) -> Result<&'v [Value<'a>], String> {
    field(value, name)?.list().ok_or_else(|| format!("{name}: not a list"))
}

/// The name of an object: all that tells it apart, as LMCache's own adapters write it.
fn name_of(key: &Value<'_>) -> Result<Vec<u8>, String> {
    let hash = match plain(key).get("chunk_hash_hex").and_then(Value::bytes) {
        Some(hex) => hex.to_vec(),
        None => text(key, "chunk_hash")?.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect(),
    };
    let salt = plain(key).get("cache_salt").and_then(Value::bytes).unwrap_or_default();
    let (rank, group) = (number(key, "kv_rank")?, number(key, "object_group_id")?);
    let model = text(key, "model_name")?;
    let numbers = format!("@{rank:08x}@{group}@").into_bytes();
    let mut name = [model, &numbers, &hash].concat();
    if !salt.is_empty() {
        name.push(b'@');
        name.extend_from_slice(salt);
    }
    Ok(name)
}

/// Bytes of an object of this layout: shapes with a type each.
fn bytes_of(layout: &Value<'_>) -> Result<u64, String> {
    let (shapes, types) = (list(layout, "shapes")?, list(layout, "dtypes")?);
    let each = shapes.iter().zip(types).map(|(shape, of)| {
        let numbers = plain(shape).list().ok_or("shapes: not lists")?.iter().map(plain);
        let product = numbers.map(Value::number).try_fold(1u64, |all, one| all.checked_mul(one?));
        let of = plain(of).bytes().ok_or("dtypes: not texts")?;
        product.and_then(|all| all.checked_mul(type_bytes(of))).ok_or("shapes: not numbers in their range")
    });
    each.sum::<Result<u64, &str>>().map_err(str::to_owned)
}

/// Bytes of a number of this type of torch.
fn type_bytes(name: &[u8]) -> u64 {
    match name.strip_prefix(b"torch.").unwrap_or(name) {
        b"float64" | b"double" | b"int64" | b"long" => 8,
        b"float32" | b"float" | b"int32" | b"int" => 4,
        b"float16" | b"half" | b"bfloat16" | b"int16" | b"short" => 2,
        _ => 1,
    }
}

/// Seconds, in ns.
fn time_of(record: &Value<'_>) -> Result<Ns, String> {
    match field(record, "t_mono")? {
        Value::Number(seconds) if (0.0..1e9).contains(seconds) => Ok((seconds * 1e9).round() as Ns),
        _ => Err("t_mono: not a number of seconds in its range".to_owned()),
    }
}

impl Format for Lmcache {
    fn read(&mut self, source: &mut Source, entries: &mut VecDeque<Entry>) -> Result<bool, String> {
        source.begin_record();
        let mut length = [0; 4];
        let cut_off = |problem: String, source: &mut Source| match problem == ENDS_WITHIN {
            true => {
                source.skip("frame that is cut off at the end");
                Ok(false)
            }
            false => Err(problem),
        };
        match source.bytes(&mut length) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(problem) => return cut_off(problem, source),
        }
        let length = u32::from_be_bytes(length);
        if length > FRAME_MAX_BYTES {
            return Err(format!("a frame of {length} bytes; the longest one has {FRAME_MAX_BYTES}"));
        }
        let frame = match source.take(length.into()) {
            Ok(frame) => frame,
            Err(problem) => return cut_off(problem, source),
        };
        let frame = Value::of(&frame)?;
        if !std::mem::replace(&mut self.has_head, true) {
            return check_head(&frame).map(|()| true);
        }
        match text(&frame, "type")? {
            b"record" => self.record(&frame, source, entries).map(|()| true),
            other => Err(format!("a frame of type {:?}; expected record", shortened(other))),
        }
    }
}

fn check_head(head: &Value<'_>) -> Result<(), String> {
    if text(head, "type")? != b"header" || text(head, "magic")? != MAGIC {
        return Err("expected a head of LMCache's traces (LMCT)".to_owned());
    }
    match number(head, "format_version")? {
        VERSION => Ok(()),
        version => Err(format!("version {version} of the format; version {VERSION} is read")),
    }
}

impl Lmcache {
    fn record(
        &mut self,
        record: &Value<'_>,
        source: &mut Source,
        entries: &mut VecDeque<Entry>,
    ) -> Result<(), String> {
        let (at_ns, args) = (Some(time_of(record)?), field(record, "args")?);
        let name = text(record, "qualname")?;
        match name.rsplit(|byte| *byte == b'.').next().unwrap_or(name) {
            b"batch" => self.batch(args, at_ns, source, entries),
            b"reserve_write" => {
                let bytes = bytes_of(field(args, "layout_desc")?)?;
                for key in list(args, "keys")? {
                    self.sizes.entry(name_of(key)?).or_default().bytes = bytes;
                }
                Ok(())
            }
            b"finish_write" => {
                for key in list(args, "keys")? {
                    let name = name_of(key)?;
                    let object = self.sizes.entry(name.clone()).or_default();
                    if !std::mem::replace(&mut object.is_stored, true) {
                        put_parts(source, entries, &name, Done::Stored, object.bytes, at_ns)?;
                    }
                }
                Ok(())
            }
            b"submit_prefetch_task" => self.prefetch(args, at_ns, source, entries),
            // Answers and ends of other calls ask nothing of a drive.
            _ => Ok(()),
        }
    }

    /// Level `events`.
    fn batch(
        &mut self,
        args: &Value<'_>,
        at_ns: Option<Ns>,
        source: &mut Source,
        entries: &mut VecDeque<Entry>,
    ) -> Result<(), String> {
        let done = match text(args, "event_type")? {
            b"store" => Done::Stored,
            b"access" => Done::Retrieved,
            b"delete" => Done::Deleted,
            b"config" => return Ok(()),
            other => {
                return Err(format!("event_type: {:?}; there are store, access, delete", shortened(other)));
            }
        };
        let tier = text(args, "tier")?;
        for entry in list(args, "entries")? {
            if !self.tier.takes(tier, source) {
                continue;
            }
            let name = name_of(field(entry, "key")?)?;
            // Only a store has its size.
            let bytes = match done {
                Done::Stored => number(entry, "size_bytes")?,
                _ => self.sizes.get(&name).map_or(0, |object| object.bytes),
            };
            put_parts(source, entries, &name, done, bytes, at_ns)?;
            match done {
                Done::Stored => _ = self.sizes.insert(name, Object { bytes, is_stored: true }),
                Done::Deleted => _ = self.sizes.remove(&name),
                Done::Retrieved => {}
            }
        }
        Ok(())
    }

    /// Level `storage`: a look-up of all keys, and retrieves of those before the first that is missing.
    fn prefetch(
        &mut self,
        args: &Value<'_>,
        at_ns: Option<Ns>,
        source: &mut Source,
        entries: &mut VecDeque<Entry>,
    ) -> Result<(), String> {
        if plain(args).get("skip_l2") == Some(&Value::Flag(true)) {
            return Ok(());
        }
        let mut names = Vec::new();
        for group in list(field(args, "spec")?, "key_groups")? {
            for key in list(group, "keys")? {
                names.push(name_of(key)?);
            }
        }
        for name in &names {
            let key: Key = source.key(name)?;
            entries.push_back(Entry { at_ns, key, asked: TraceOp::Exist, times: 1 });
        }
        for name in &names {
            match self.sizes.get(name) {
                Some(object) if object.is_stored => {
                    put_parts(source, entries, name, Done::Retrieved, object.bytes, at_ns)?;
                }
                _ => break,
            }
        }
        Ok(())
    }
}
