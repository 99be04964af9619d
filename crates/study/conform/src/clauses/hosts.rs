//! Several hosts of one namespace, each with a controller of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use kvdrive_nvme::{Status, opcode};

use super::{Clause, Group, pass};
use crate::ask::{Ask, Outcome, Why, ensure, entry, is, is_one, value};
use crate::target::{Data, NoAnswer, Target};

const fn row(
    section: &'static str,
    id: &'static str,
    asks: &'static str,
    check: fn(&mut Ask<'_>) -> Outcome,
) -> Clause {
    Clause::of(Group::Hosts, section, id, asks, check)
}

/// Retrieves beside the Stores of another host.
const READS: u32 = 300;
/// Bytes of the values that are stored meanwhile: several pages and units of a network.
const BYTES: usize = 24_000;

pub(super) static CLAUSES: &[Clause] = &[
    row("2.1", "hosts-share", "what one host stores, another one finds, lists and deletes", share),
    row(
        "2.1.4",
        "hosts-atomic",
        "a Retrieve beside Stores of the key: a whole value, never a mixture",
        atomic,
    ),
    row(
        "2.1.4",
        "hosts-atomic-delete",
        "a Retrieve beside Stores and Deletes: a whole value, or 87h",
        atomic_delete,
    ),
    row("3.2.5", "hosts-one-adds", "of two hosts that store if absent, one succeeds", one_adds),
];

fn another(ask: &mut Ask<'_>) -> Result<Box<dyn Target>, Why> {
    let other = ask.target().another()?;
    other.ok_or_else(|| Why::NotOffered("there is one host on this way to the namespace".to_owned()))
}

fn share(ask: &mut Ask<'_>) -> Outcome {
    let mut other = another(ask)?;
    let key = ask.usual_key()?;
    let stored = value(1, 3000);
    ask.stored(&key, &stored)?;
    ask.by(&mut *other, |by| {
        by.has(&key, &stored, "Retrieve by the second host")?;
        let answer = by.list(&key, 64)?;
        is(&answer, Status::SUCCESS, "List by the second host")?;
        ensure(answer.data.get(6..6 + key.len()) == Some(&key), || {
            "the second host does not list it".to_owned()
        })?;
        is(&by.delete(&key)?, Status::SUCCESS, "Delete by the second host")
    })?;
    is(&ask.exist(&key)?, Status::KEY_NOT_FOUND, "Exist by the first host")?;
    pass()
}

/// What a host does until it is told to stop; the first way in which it failed.
fn write_on(
    mut target: Box<dyn Target>,
    key: &[u8],
    deletes: bool,
    is_over: &AtomicBool,
) -> Result<Option<Status>, NoAnswer> {
    let nsid = target.nsid();
    let mut name = 0u8;
    while !is_over.load(Ordering::Acquire) {
        name = name.wrapping_add(1);
        let bytes = vec![name; BYTES - usize::from(name) * 7];
        let sqe = entry(opcode::STORE, nsid, key, bytes.len() as u32, 0);
        let mut status = target.io(sqe, Data::Out(&bytes))?.status;
        if deletes && status.is_success() {
            status = target.io(entry(opcode::DELETE, nsid, key, 0, 0), Data::None)?.status;
        }
        if !status.is_success() {
            return Ok(Some(status));
        }
    }
    Ok(None)
}

/// Is it one of the values that [`write_on`] stores?
fn is_whole(data: &[u8]) -> Result<(), Why> {
    let name = data.first().copied().unwrap_or_default();
    let expected = BYTES - usize::from(name) * 7;
    ensure(data.len() == expected, || format!("{} B of value {name}, which has {expected}", data.len()))?;
    let at = data.iter().position(|byte| *byte != name);
    ensure(at.is_none(), || {
        let at = at.unwrap_or_default();
        format!("byte {at} is of value {}, the bytes before it of value {name}", data[at])
    })
}

fn beside(ask: &mut Ask<'_>, deletes: bool) -> Outcome {
    if (ask.facts.value_max_bytes() as usize) < BYTES {
        return Err(Why::NotOffered(format!("values have less than {BYTES} B")));
    }
    let other = another(ask)?;
    let key = ask.usual_key()?;
    ask.stored(&key, &[0; BYTES])?;
    let is_over = AtomicBool::new(false);
    let (mut whole, mut missing) = (0, 0);
    let (read, written) = thread::scope(|scope| {
        let writer = scope.spawn(|| write_on(other, &key, deletes, &is_over));
        let mut read = || {
            for _ in 0..READS {
                let answer = ask.retrieve(&key, BYTES as u32, 0)?;
                if deletes && answer.status == Status::KEY_NOT_FOUND {
                    missing += 1;
                    continue;
                }
                is(&answer, Status::SUCCESS, "Retrieve")?;
                is_whole(&answer.data[..answer.data.len().min(answer.dw0 as usize)])?;
                whole += 1;
            }
            Ok::<(), Why>(())
        };
        let read = read();
        is_over.store(true, Ordering::Release);
        (read, writer.join().expect("a writer does not panic"))
    });
    read?;
    let failed = written?;
    ensure(failed.is_none(), || format!("a Store of the other host: {}", failed.unwrap_or(Status::SUCCESS)))?;
    Ok(if deletes { format!("{whole} whole, {missing} times 87h") } else { format!("{whole} whole") })
}

fn atomic(ask: &mut Ask<'_>) -> Outcome {
    beside(ask, false)
}

fn atomic_delete(ask: &mut Ask<'_>) -> Outcome {
    beside(ask, true)
}

fn one_adds(ask: &mut Ask<'_>) -> Outcome {
    const ROUNDS: usize = 20;
    let mut other = another(ask)?;
    for _ in 0..ROUNDS {
        let key = ask.usual_key()?;
        let sqe = entry(opcode::STORE, ask.nsid(), &key, 8, 0b010);
        let (first, second) = thread::scope(|scope| {
            let second = scope.spawn(|| other.io(sqe, Data::Out(b"second..")));
            (ask.io(sqe, Data::Out(b"first...")), second.join().expect("a host does not panic"))
        });
        let (first, second) = (first?, second?);
        let any = [Status::SUCCESS, Status::KEY_EXISTS];
        is_one(&first, &any, "Store of the first host")?;
        is_one(&second, &any, "Store of the second host")?;
        let added = [&first, &second].iter().filter(|answer| answer.status.is_success()).count();
        ensure(added == 1, || format!("{added} of two Stores succeeded"))?;
        let winner: &[u8] = if first.status.is_success() { b"first..." } else { b"second.." };
        ask.has(&key, winner, "Retrieve after both")?;
    }
    pass()
}
