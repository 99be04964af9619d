//! Store: its options with and without a pair, overwriting, values of zero bytes.

use kvdrive_nvme::Status;

use super::{Clause, Group, pass};
use crate::ask::{Ask, Outcome, Why, ensure, is, is_one, value};

const fn row(
    section: &'static str,
    id: &'static str,
    asks: &'static str,
    check: fn(&mut Ask<'_>) -> Outcome,
) -> Clause {
    Clause::of(Group::Store, section, id, asks, check)
}

/// Bits 8, 9 and 10 of dword 11, as bits of its second byte.
const IF_EXISTS: u8 = 0b001;
const IF_ABSENT: u8 = 0b010;
const PLAIN: u8 = 0b100;

pub(super) static CLAUSES: &[Clause] = &[
    row("3.2.5", "store-new", "a Store of a new key; Retrieve returns its value", new),
    row("3.2.5", "store-over", "a Store of a known key replaces the value, longer or shorter", over),
    row("2.1", "store-nothing", "a value may have 0 bytes: Exist 00h, Retrieve success, DW0 0", nothing)
        .who("SPDK's API refuses such a Store in the host"),
    row("2.1", "store-length-is-key", "the same bytes with another length are another key", length_is_key),
    row("3.2.5", "store-if-exists", "option bit 8: 87h without a pair, else replaces", if_exists),
    row("3.2.5", "store-if-absent", "option bit 9: 89h with a pair, else stores", if_absent),
    row("3.2.5", "store-no-compress", "option bit 10 changes nothing that a host sees", no_compress)
        .who("SPDK: \"do not compress\"; xNVMe and QEMU's KV device call the same bit \"compress\""),
    row("3.2.5", "store-if-exists-plain", "option bits 8 and 10 together", |ask| {
        conditional(ask, IF_EXISTS | PLAIN)
    }),
    row("3.2.5", "store-if-absent-plain", "option bits 9 and 10 together", |ask| {
        conditional(ask, IF_ABSENT | PLAIN)
    }),
    row("3.2.5", "store-both", "option bits 8 and 9: 87h, 89h or 02h, and nothing is stored", both)
        .who("no text says which; kvdrive: 02h; taken word by word, 87h without a pair and 89h with one"),
    row("3.2.5", "store-all-options", "option bits 8, 9 and 10: as bits 8 and 9", |ask| refused(ask, 0b111)),
    row("3.2.5", "store-refused-keeps", "a refused Store leaves the old value as it was", refused_keeps),
];

fn new(ask: &mut Ask<'_>) -> Outcome {
    let key = ask.usual_key()?;
    let stored = value(1, 100);
    ask.stored(&key, &stored)?;
    ask.has(&key, &stored, "Retrieve after Store")?;
    pass()
}

fn over(ask: &mut Ask<'_>) -> Outcome {
    let key = ask.usual_key()?;
    for (name, bytes) in [(1, 100), (2, 700), (3, 3), (4, 100)] {
        let stored = value(name, bytes);
        ask.stored(&key, &stored)?;
        ask.has(&key, &stored, "Retrieve after Store over an older value")?;
    }
    pass()
}

fn nothing(ask: &mut Ask<'_>) -> Outcome {
    let key = ask.usual_key()?;
    ask.stored(&key, &[])?;
    is(&ask.exist(&key)?, Status::SUCCESS, "Exist")?;
    let answer = ask.retrieve(&key, 16, 0)?;
    is(&answer, Status::SUCCESS, "Retrieve")?;
    ensure(answer.dw0 == 0, || format!("DW0 of Retrieve is {}; expected 0", answer.dw0))?;
    pass()
}

fn length_is_key(ask: &mut Ask<'_>) -> Outcome {
    let most = usize::from(ask.facts.namespace.format().key_max_bytes.get());
    if most < 13 {
        return Err(Why::NotOffered(format!("keys have at most {most} B here")));
    }
    let short = ask.key(12)?;
    let long = [&short[..], &[0]].concat();
    is(&ask.exist(&long)?, Status::KEY_NOT_FOUND, "Exist of the key with a zero byte more")?;
    ask.own(&long);
    ask.stored(&short, &value(1, 10))?;
    is(&ask.exist(&long)?, Status::KEY_NOT_FOUND, "Exist of the longer key after Store of the shorter")?;
    ask.stored(&long, &value(2, 20))?;
    ask.has(&short, &value(1, 10), "the shorter key")?;
    ask.has(&long, &value(2, 20), "the longer key")?;
    pass()
}

/// A Store with one of the conditions, without and with a pair.
fn conditional(ask: &mut Ask<'_>, option: u8) -> Outcome {
    let key = ask.usual_key()?;
    let (first, second) = (value(1, 50), value(2, 60));
    let wants_pair = option & IF_EXISTS != 0;
    let answer = ask.store(&key, &first, option)?;
    if wants_pair {
        is(&answer, Status::KEY_NOT_FOUND, "without a pair")?;
        is(&ask.exist(&key)?, Status::KEY_NOT_FOUND, "Exist after the refused Store")?;
        ask.stored(&key, &first)?;
    } else {
        is(&answer, Status::SUCCESS, "without a pair")?;
    }
    ask.has(&key, &first, "Retrieve")?;
    let answer = ask.store(&key, &second, option)?;
    let (expected, now) = if wants_pair { (Status::SUCCESS, &second) } else { (Status::KEY_EXISTS, &first) };
    is(&answer, expected, "with a pair")?;
    ask.has(&key, now, "Retrieve after the second Store")?;
    pass()
}

fn if_exists(ask: &mut Ask<'_>) -> Outcome {
    conditional(ask, IF_EXISTS)
}

fn if_absent(ask: &mut Ask<'_>) -> Outcome {
    conditional(ask, IF_ABSENT)
}

fn no_compress(ask: &mut Ask<'_>) -> Outcome {
    let key = ask.usual_key()?;
    for stored in [vec![7; 4000], value(1, 500)] {
        is(&ask.store(&key, &stored, PLAIN)?, Status::SUCCESS, "Store")?;
        ask.has(&key, &stored, "Retrieve")?;
    }
    pass()
}

fn both(ask: &mut Ask<'_>) -> Outcome {
    refused(ask, IF_EXISTS | IF_ABSENT)
}

/// A Store that no pair can satisfy.
fn refused(ask: &mut Ask<'_>, option: u8) -> Outcome {
    let key = ask.usual_key()?;
    let any = [Status::KEY_NOT_FOUND, Status::KEY_EXISTS, Status::INVALID_FIELD];
    let without = ask.store(&key, &value(1, 30), option)?;
    is_one(&without, &any, "without a pair")?;
    is(&ask.exist(&key)?, Status::KEY_NOT_FOUND, "Exist after the refused Store")?;
    ask.stored(&key, &value(2, 40))?;
    let with = ask.store(&key, &value(1, 30), option)?;
    is_one(&with, &any, "with a pair")?;
    ask.has(&key, &value(2, 40), "Retrieve after the refused Store")?;
    Ok(format!("without a pair {:02X}h, with one {:02X}h", without.status.sc(), with.status.sc()))
}

fn refused_keeps(ask: &mut Ask<'_>) -> Outcome {
    let key = ask.usual_key()?;
    let stored = value(1, 5000);
    ask.stored(&key, &stored)?;
    for bytes in [0, 1, 4096, 6000] {
        is(&ask.store(&key, &value(2, bytes), IF_ABSENT)?, Status::KEY_EXISTS, "Store if absent")?;
        ask.has(&key, &stored, "Retrieve after it")?;
    }
    pass()
}
