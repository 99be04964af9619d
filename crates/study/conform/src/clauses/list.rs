//! List: what it starts with, its order, its padding, and how far it goes.

use std::collections::BTreeSet;

use kvdrive_nvme::{Key, Status};

use super::{Clause, Group, pass};
use crate::ask::{Ask, Outcome, Padding, Why, ensure, is, same, value};
use crate::target::Answer;

const fn row(
    section: &'static str,
    id: &'static str,
    asks: &'static str,
    check: fn(&mut Ask<'_>) -> Outcome,
) -> Clause {
    Clause::of(Group::List, section, id, asks, check)
}

/// Bytes of a buffer for a List.
const ROOM: u32 = 4096;
/// Keys after which a walk over the namespace ends: those of others are not counted to the end.
const WALKED_MAX: usize = 100_000;
const WHO_PADS: &str = "2 + length rounded up to 4: the specification, SPDK, xNVMe's reader, kvdrive; the key alone: \
                        AirMettle; n + n mod 4: QEMU's KV device; FEMU's README contradicts its code";

pub(super) static CLAUSES: &[Clause] = &[
    row("3.2.2", "list-count", "bytes 3:0 count the keys, and whole entries follow", count),
    row("3.2.2", "list-padding", "entries are padded to a multiple of 4 bytes, for keys of 1 to 16", padding)
        .who(WHO_PADS),
    row("2.1.6.2", "list-starts-there", "a List begins with the key it names, if that exists", starts_there)
        .who("all but QEMU's KV device, which begins with its first key if it does not find the named one"),
    row("2.1.6.2", "list-order-constant", "the order is the same again while nothing is stored", constant),
    row("2.1.6.2", "list-absent-start", "from an absent key: success, and the same again", absent)
        .who("where it begins is the vendor's; kvdrive: at the next key in order, or in an unordered table at its place"),
    row("3.2.2", "list-from-front", "key length 0: from the first key on", front)
        .who("not said, and every implementation seen does it"),
    row("2.1.6.2", "list-pages", "Lists that continue at the last key show every key once", pages),
    row("3.2.2", "list-whole-keys", "a buffer that ends inside an entry has whole keys only", whole),
    row("3.2.2", "list-tiny", "a buffer of 4 bytes: 0 keys, success", tiny),
    row("2.1.6.2", "list-deleted", "a deleted key is not listed", deleted),
];

/// Stores a pair for every length of a key for which there is a free key.
fn of_every_length(ask: &mut Ask<'_>) -> Result<Vec<Vec<u8>>, Why> {
    let most = usize::from(ask.facts.namespace.format().key_max_bytes.get()).min(Key::IDENTITY_BYTES);
    let mut keys = Vec::new();
    for len in 1..=most {
        match ask.key(len) {
            Ok(key) => {
                ask.stored(&key, &value(len as u8, 8))?;
                keys.push(key);
            }
            Err(Why::NotOffered(_)) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(keys)
}

/// The keys of a List that has to succeed.
fn keys_of(answer: &Answer) -> Result<Vec<Vec<u8>>, Why> {
    is(answer, Status::SUCCESS, "List")?;
    Padding::Entry.keys(&answer.data).ok_or_else(|| Why::Fail(told_padding(answer)))
}

/// Which padding the data follow instead.
fn told_padding(answer: &Answer) -> String {
    let follows = Padding::ALL.into_iter().skip(1).find(|padding| padding.keys(&answer.data).is_some());
    match follows {
        Some(padding) => format!("the entries are {}", padding.who()),
        None => "the data are no list by any padding that is known".to_owned(),
    }
}

fn count(ask: &mut Ask<'_>) -> Outcome {
    let key = ask.usual_key()?;
    ask.stored(&key, b"value")?;
    let answer = ask.list(&key, ROOM)?;
    is(&answer, Status::SUCCESS, "List")?;
    let count = u32::from_le_bytes(answer.data.get(..4).unwrap_or(&[0; 4]).try_into().expect("4 bytes"));
    ensure((1..=ROOM / 4).contains(&count), || format!("{count} keys are told in {ROOM} B"))?;
    pass()
}

/// Padding of an entry shows at the entry after it, so each length is read with what follows.
fn padding(ask: &mut Ask<'_>) -> Outcome {
    let keys = of_every_length(ask)?;
    for key in &keys {
        let answer = ask.list(key, ROOM)?;
        let listed = keys_of(&answer)?;
        let first = listed.first().map(Vec::as_slice).unwrap_or_default();
        ensure(first == key, || format!("a List from a key of {} B begins with {first:02x?}", key.len()))?;
        let Some(second) = listed.get(1) else { continue };
        // The key that follows must be one, and not the bytes of another reading.
        is(
            &ask.exist(second)?,
            Status::SUCCESS,
            &format!("Exist of the key listed after one of {} B", key.len()),
        )?;
        let at = Padding::Entry.entry_bytes(key.len()) + 4;
        let pad = answer.data.get(4 + 2 + key.len()..at).unwrap_or_default();
        ensure(pad.iter().all(|byte| *byte == 0), || {
            format!("the padding of a key of {} B is {pad:02x?}; expected zeros", key.len())
        })?;
    }
    pass()
}

fn starts_there(ask: &mut Ask<'_>) -> Outcome {
    let mut keys = Vec::new();
    for _ in 0..5 {
        let key = ask.usual_key()?;
        ask.stored(&key, b"value")?;
        keys.push(key);
    }
    for key in keys {
        let listed = keys_of(&ask.list(&key, ROOM)?)?;
        let first = listed.first().map(Vec::as_slice).unwrap_or_default();
        ensure(first == key, || format!("it begins with {first:02x?}; expected {key:02x?}"))?;
    }
    pass()
}

fn twice(ask: &mut Ask<'_>, start: &[u8]) -> Result<(), Why> {
    let (first, second) = (keys_of(&ask.list(start, ROOM)?)?, keys_of(&ask.list(start, ROOM)?)?);
    let told = || format!("{} and {} keys, or in another order", first.len(), second.len());
    ensure(first == second, told)
}

fn constant(ask: &mut Ask<'_>) -> Outcome {
    let keys = of_every_length(ask)?;
    for key in [&[][..]].into_iter().chain(keys.iter().map(Vec::as_slice)) {
        twice(ask, key)?;
    }
    pass()
}

fn absent(ask: &mut Ask<'_>) -> Outcome {
    of_every_length(ask)?;
    let key = ask.usual_key()?;
    twice(ask, &key)?;
    pass()
}

fn front(ask: &mut Ask<'_>) -> Outcome {
    let key = ask.usual_key()?;
    ask.stored(&key, b"value")?;
    let listed = keys_of(&ask.list(&[], ROOM)?)?;
    ensure(!listed.is_empty(), || "no key is listed, and there is one".to_owned())?;
    pass()
}

/// All keys, page by page; `None`: there are too many.
fn walked(ask: &mut Ask<'_>, room: u32) -> Result<Option<Vec<Vec<u8>>>, Why> {
    let mut keys = keys_of(&ask.list(&[], room)?)?;
    loop {
        let Some(last) = keys.last().cloned() else { return Ok(Some(keys)) };
        let page = keys_of(&ask.list(&last, room)?)?;
        ensure(page.first() == Some(&last), || {
            format!("a List from the last key does not begin with it: {page:02x?}")
        })?;
        if page.len() == 1 {
            return Ok(Some(keys));
        }
        keys.extend_from_slice(&page[1..]);
        if keys.len() > WALKED_MAX {
            return Ok(None);
        }
    }
}

fn pages(ask: &mut Ask<'_>) -> Outcome {
    let own = of_every_length(ask)?;
    for room in [96, ROOM] {
        let Some(keys) = walked(ask, room)? else {
            return Err(Why::NotOffered(format!("the namespace has more than {WALKED_MAX} keys")));
        };
        let set: BTreeSet<&Vec<u8>> = keys.iter().collect();
        ensure(set.len() == keys.len(), || {
            format!("{} of {} keys are listed twice", keys.len() - set.len(), keys.len())
        })?;
        let missing = own.iter().find(|key| !set.contains(key));
        ensure(missing.is_none(), || {
            format!("{:02x?} is stored and not listed", missing.unwrap_or(&Vec::new()))
        })?;
    }
    pass()
}

fn whole(ask: &mut Ask<'_>) -> Outcome {
    let key = ask.usual_key()?;
    ask.stored(&key, b"value")?;
    let entry = Padding::Entry.entry_bytes(key.len()) as u32;
    let short = ask.list(&key, entry)?;
    ensure(keys_of(&short)?.is_empty(), || format!("a key of {} B is told in {entry} B", key.len()))?;
    let exact = keys_of(&ask.list(&key, 4 + entry)?)?;
    same(exact.first().map(Vec::as_slice).unwrap_or_default(), &key, "the key that just fits")?;
    pass()
}

fn tiny(ask: &mut Ask<'_>) -> Outcome {
    let key = ask.usual_key()?;
    ask.stored(&key, b"value")?;
    let answer = ask.list(&key, 4)?;
    is(&answer, Status::SUCCESS, "List")?;
    same(&answer.data, &[0; 4], "the number of keys")?;
    pass()
}

fn deleted(ask: &mut Ask<'_>) -> Outcome {
    let (first, second) = (ask.usual_key()?, ask.usual_key()?);
    ask.stored(&first, b"value")?;
    ask.stored(&second, b"value")?;
    is(&ask.delete(&first)?, Status::SUCCESS, "Delete")?;
    let Some(keys) = walked(ask, ROOM)? else {
        return Err(Why::NotOffered(format!("the namespace has more than {WALKED_MAX} keys")));
    };
    ensure(!keys.contains(&first), || "it is".to_owned())?;
    ensure(keys.contains(&second), || "another key is missing".to_owned())?;
    pass()
}
