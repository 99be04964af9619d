//! Keys, values and buffers at their limits.

use kvdrive_nvme::{Key, Status, opcode};

use super::{Clause, Group, pass};
use crate::ask::{Ask, Outcome, Why, ensure, entry, is, is_one, same, value};
use crate::target::{Data, UNTOUCHED};

const fn row(
    section: &'static str,
    id: &'static str,
    asks: &'static str,
    check: fn(&mut Ask<'_>) -> Outcome,
) -> Clause {
    Clause::of(Group::Sizes, section, id, asks, check)
}

/// Larger values than this are not tried, bytes.
const TRIED_MAX_BYTES: u64 = 16 << 20;
const WHO_LONG: &str = "the specification and FEMU: 02h; QEMU's KV device, xNVMe's test and many others: 86h";
const WHO_NONE: &str = "not said; 86h is not in the tables of Delete and Exist; kvdrive: 86h for all four";

pub(super) static CLAUSES: &[Clause] = &[
    row(
        "2.1.5",
        "key-lengths",
        "keys of 1 to KVKML bytes, also with zero bytes, are stored and found",
        key_lengths,
    ),
    row("2.1.5", "key-17-store", "Store with key length 17 or 255: Invalid Field (02h)", |ask| {
        long_key(ask, opcode::STORE)
    })
    .who(WHO_LONG),
    row("2.1.5", "key-17-retrieve", "Retrieve likewise", |ask| long_key(ask, opcode::RETRIEVE)).who(WHO_LONG),
    row("2.1.5", "key-17-list", "List likewise", |ask| long_key(ask, opcode::LIST)).who(WHO_LONG),
    row("2.1.5", "key-17-delete", "Delete likewise", |ask| long_key(ask, opcode::DELETE)).who(WHO_LONG),
    row("2.1.5", "key-17-exist", "Exist likewise", |ask| long_key(ask, opcode::EXIST)).who(WHO_LONG),
    row("3.1", "key-0-store", "Store with key length 0: Invalid Key Size (86h)", |ask| {
        no_key(ask, opcode::STORE)
    }),
    row("3.1", "key-0-retrieve", "Retrieve likewise", |ask| no_key(ask, opcode::RETRIEVE)),
    row("-", "key-0-delete", "Delete with key length 0 fails", |ask| no_key_at_all(ask, opcode::DELETE))
        .who(WHO_NONE),
    row("-", "key-0-exist", "Exist with key length 0 fails", |ask| no_key_at_all(ask, opcode::EXIST))
        .who(WHO_NONE),
    row("3.1", "key-above-kvkml", "a key above a KVKML below 16: Invalid Key Size (86h)", above_kvkml),
    row("2.1.5", "key-rest-ignored", "bytes after the key's length are not part of the key", rest_ignored),
    row("4.1.5.1", "value-max", "a value of KVVML bytes is stored and returned", value_max),
    row("3.1", "value-above-kvvml", "a value of KVVML + 1 bytes: Invalid Value Size (85h)", above_kvvml),
    row("3.2.5", "value-sizes", "values around 4, 16, 512, 4096 bytes come back as they were", value_sizes),
    row("3.2.3", "retrieve-short", "a buffer of n - 1 bytes gets the beginning; DW0 is n", |ask| {
        room(ask, -1)
    })
    .who("QEMU's KV device answers DW0 = 0; AirMettle's and SPDK's example rely on it"),
    row("3.2.3", "retrieve-exact", "a buffer of n bytes gets all; DW0 is n", |ask| room(ask, 0)),
    row("3.2.3", "retrieve-long", "a buffer of n + 1 bytes gets n; DW0 is n", |ask| room(ask, 1)),
    row("3.2.3", "retrieve-one", "a buffer of 1 byte gets the first; DW0 is n", |ask| room_of(ask, 1)),
    row("3.2.3", "retrieve-none", "a buffer of 0 bytes gets nothing; DW0 is n", |ask| room_of(ask, 0)),
    row("3.2.3", "retrieve-raw", "option bit 8 (raw) changes nothing where nothing is compressed", raw),
    row("3.1", "retrieve-missing", "Retrieve of a missing key: 87h", missing),
];

fn key_lengths(ask: &mut Ask<'_>) -> Outcome {
    let most = usize::from(ask.facts.namespace.format().key_max_bytes.get()).min(Key::IDENTITY_BYTES);
    let mut keys = Vec::new();
    let mut skipped = Vec::new();
    for len in 1..=most {
        match ask.key(len) {
            Ok(key) => {
                ask.stored(&key, &value(len as u8, 10 + len))?;
                keys.push(key);
            }
            Err(Why::NotOffered(_)) => skipped.push(len.to_string()),
            Err(why) => return Err(why),
        }
    }
    for key in &keys {
        ask.has(key, &value(key.len() as u8, 10 + key.len()), &format!("the key of {} B", key.len()))?;
    }
    if skipped.is_empty() { pass() } else { Ok(format!("no free key of {} B", skipped.join(", "))) }
}

/// A command with a key length that no key has.
fn long_key(ask: &mut Ask<'_>, opcode: u8) -> Outcome {
    let bytes = value(1, 16);
    let mut told = String::new();
    for len in [17, 255] {
        let data = match opcode {
            opcode::STORE => Data::Out(&bytes),
            opcode::RETRIEVE | opcode::LIST => Data::In(64),
            _ => Data::None,
        };
        let size =
            if let Data::None = data { 0 } else { 16.max(if opcode == opcode::STORE { 16 } else { 64 }) };
        let sqe = entry(opcode, ask.nsid(), &vec![0x55; len], size, 0);
        let answer = ask.io(sqe, data)?;
        if answer.status == Status::INVALID_KEY_SIZE {
            return Err(Why::Fail(format!("key length {len}: {}; the specification has 02h", answer.status)));
        }
        is(&answer, Status::INVALID_FIELD, &format!("key length {len}"))?;
        told.clear();
    }
    Ok(told)
}

fn without_key(ask: &mut Ask<'_>, opcode: u8) -> Result<crate::target::Answer, Why> {
    let bytes = value(1, 16);
    let (data, size) = match opcode {
        opcode::STORE => (Data::Out(&bytes[..]), 16),
        opcode::RETRIEVE => (Data::In(64), 64),
        _ => (Data::None, 0),
    };
    ask.io(entry(opcode, ask.nsid(), &[], size, 0), data)
}

fn no_key(ask: &mut Ask<'_>, opcode: u8) -> Outcome {
    let answer = without_key(ask, opcode)?;
    is_one(&answer, &[Status::INVALID_KEY_SIZE, Status::INVALID_FIELD], "key length 0")?;
    if answer.status == Status::INVALID_FIELD { Ok("answered with 02h".to_owned()) } else { pass() }
}

fn no_key_at_all(ask: &mut Ask<'_>, opcode: u8) -> Outcome {
    let answer = without_key(ask, opcode)?;
    ensure(!answer.status.is_success(), || "it succeeded".to_owned())?;
    Ok(format!("answered with {}", answer.status))
}

fn above_kvkml(ask: &mut Ask<'_>) -> Outcome {
    let most = usize::from(ask.facts.namespace.format().key_max_bytes.get());
    if most >= Key::IDENTITY_BYTES {
        return Err(Why::NotOffered("KVKML is 16, the most there is".to_owned()));
    }
    let key = ask.key(most + 1)?;
    is(&ask.store(&key, b"value", 0)?, Status::INVALID_KEY_SIZE, "Store")?;
    pass()
}

fn rest_ignored(ask: &mut Ask<'_>) -> Outcome {
    let most = usize::from(ask.facts.namespace.format().key_max_bytes.get());
    let key = ask.key(most.min(12))?;
    let stored = value(1, 20);
    let mut sqe = entry(opcode::STORE, ask.nsid(), &key, stored.len() as u32, 0);
    let mut padded = [0xEE; 16];
    padded[..key.len()].copy_from_slice(&key);
    sqe.set_key_bytes(padded);
    is(&ask.io(sqe, Data::Out(&stored))?, Status::SUCCESS, "Store with other bytes after the key")?;
    ask.has(&key, &stored, "Retrieve with zeros after the key")?;
    pass()
}

/// The longest value, if it is not too long to be tried.
fn longest(ask: &Ask<'_>) -> Result<usize, Why> {
    let most = ask.facts.value_max_bytes();
    if most > TRIED_MAX_BYTES {
        return Err(Why::NotOffered(format!("{most} B; no more than {TRIED_MAX_BYTES} are tried")));
    }
    Ok(most as usize)
}

fn value_max(ask: &mut Ask<'_>) -> Outcome {
    let bytes = longest(ask)?;
    let key = ask.usual_key()?;
    let stored = value(1, bytes);
    let answer = ask.store(&key, &stored, 0)?;
    if answer.status == Status::CAPACITY_EXCEEDED {
        return Err(Why::NotOffered(format!("there is no room for {bytes} B: 81h")));
    }
    is(&answer, Status::SUCCESS, &format!("Store of {bytes} B"))?;
    let found = ask.retrieve(&key, bytes as u32, 0)?;
    is(&found, Status::SUCCESS, "Retrieve")?;
    ensure(found.dw0 as usize == bytes, || format!("DW0 is {}; expected {bytes}", found.dw0))?;
    same(&found.data, &stored, "the value")?;
    Ok(format!("{bytes} B"))
}

fn above_kvvml(ask: &mut Ask<'_>) -> Outcome {
    let most = u64::from(ask.facts.namespace.format().value_max_bytes.get());
    let bytes = longest(ask)?;
    let key = ask.usual_key()?;
    if bytes as u64 == ask.facts.transfer_max_bytes || (bytes as u64) < most {
        // MDTS is no larger, so such a value cannot be sent: the size alone says it.
        let sqe = entry(opcode::STORE, ask.nsid(), &key, most as u32 + 1, 0);
        let answer = ask.io(sqe, Data::Out(&value(1, bytes)))?;
        is_one(
            &answer,
            &[Status::INVALID_VALUE_SIZE, Status::INVALID_FIELD, Status::SGL_LENGTH_INVALID],
            "Store",
        )?;
        is(&ask.exist(&key)?, Status::KEY_NOT_FOUND, "Exist after it")?;
        return Ok(format!("MDTS is as small; with dword 10 of KVVML + 1: {}", answer.status));
    }
    let answer = ask.store(&key, &value(1, bytes + 1), 0)?;
    is(&answer, Status::INVALID_VALUE_SIZE, &format!("Store of {} B", bytes + 1))?;
    is(&ask.exist(&key)?, Status::KEY_NOT_FOUND, "Exist after it")?;
    pass()
}

fn value_sizes(ask: &mut Ask<'_>) -> Outcome {
    let most = ask.facts.value_max_bytes() as usize;
    let key = ask.usual_key()?;
    let near = [1, 3, 4, 5, 15, 16, 17, 511, 512, 513, 4095, 4096, 4097, 8191, 8192, 8193, 10_000];
    for bytes in near.into_iter().filter(|bytes| *bytes <= most) {
        let stored = value(bytes as u8, bytes);
        ask.stored(&key, &stored)?;
        ask.has(&key, &stored, &format!("the value of {bytes} B"))?;
    }
    pass()
}

fn room(ask: &mut Ask<'_>, more: i32) -> Outcome {
    const BYTES: i32 = 1001;
    room_for(ask, BYTES as usize, (BYTES + more) as u32)
}

fn room_of(ask: &mut Ask<'_>, bytes: u32) -> Outcome {
    room_for(ask, 1001, bytes)
}

/// Retrieve of a value into a buffer of `room` bytes.
fn room_for(ask: &mut Ask<'_>, bytes: usize, room: u32) -> Outcome {
    let key = ask.usual_key()?;
    let stored = value(1, bytes);
    ask.stored(&key, &stored)?;
    let answer = ask.retrieve(&key, room, 0)?;
    is(&answer, Status::SUCCESS, "Retrieve")?;
    ensure(answer.dw0 as usize == bytes, || format!("DW0 is {}; the value has {bytes} B", answer.dw0))?;
    let front = bytes.min(room as usize);
    same(answer.data.get(..front).unwrap_or(&answer.data), &stored[..front], "the data")?;
    let rest = answer.data.get(front..).unwrap_or_default();
    ensure(rest.iter().all(|byte| *byte == UNTOUCHED || *byte == 0), || "bytes follow the value".to_owned())?;
    pass()
}

fn raw(ask: &mut Ask<'_>) -> Outcome {
    let key = ask.usual_key()?;
    let stored = value(1, 300);
    ask.stored(&key, &stored)?;
    let answer = ask.retrieve(&key, 300, 1)?;
    is(&answer, Status::SUCCESS, "Retrieve with option bit 8")?;
    same(&answer.data, &stored, "the data")?;
    pass()
}

fn missing(ask: &mut Ask<'_>) -> Outcome {
    let key = ask.usual_key()?;
    is(&ask.retrieve(&key, 64, 0)?, Status::KEY_NOT_FOUND, "Retrieve")?;
    pass()
}
