//! Exist and Delete.

use kvdrive_nvme::Status;

use super::{Clause, Group, pass};
use crate::ask::{Ask, Outcome, ensure, is, value};

pub(super) static CLAUSES: &[Clause] = &[
    Clause::of(Group::Exist, "3.2.4", "exist-stored", "Exist of a stored key: 00h", |ask| {
        let key = ask.usual_key()?;
        ask.stored(&key, b"value")?;
        is(&ask.exist(&key)?, Status::SUCCESS, "Exist")?;
        pass()
    }),
    Clause::of(Group::Exist, "3.2.4", "exist-missing", "Exist of a missing key: 87h", |ask| {
        let key = ask.usual_key()?;
        is(&ask.exist(&key)?, Status::KEY_NOT_FOUND, "Exist")?;
        pass()
    }),
    Clause::of(Group::Exist, "3.2.4", "exist-empty", "Exist of a value of 0 bytes: 00h", |ask| {
        let key = ask.usual_key()?;
        ask.stored(&key, &[])?;
        is(&ask.exist(&key)?, Status::SUCCESS, "Exist")?;
        pass()
    }),
    Clause::of(Group::Delete, "3.2.1", "delete-removes", "after a Delete: Exist and Retrieve 87h", removes),
    Clause::of(
        Group::Delete,
        "4.1.3.1",
        "delete-missing",
        "a Delete of a missing key: 00h, or 87h with EDNEK",
        missing,
    ),
    Clause::of(Group::Delete, "3.2.1", "delete-then-store", "a deleted key can be stored again", again),
    Clause::of(
        Group::Delete,
        "3.2.1",
        "delete-one",
        "a Delete leaves keys of the same bytes and another length",
        one,
    ),
    Clause::of(
        Group::Delete,
        "2.1.1",
        "delete-frees",
        "NUSE is not larger after a Delete than before the Store",
        frees,
    )
    .who("a drive that counts what is not collected yet tells it later; kvdrive: as far as the engine knows"),
];

fn removes(ask: &mut Ask<'_>) -> Outcome {
    for bytes in [0, 1, 100, 5000] {
        let key = ask.usual_key()?;
        ask.stored(&key, &value(1, bytes))?;
        is(&ask.delete(&key)?, Status::SUCCESS, "Delete")?;
        is(&ask.exist(&key)?, Status::KEY_NOT_FOUND, "Exist after Delete")?;
        is(&ask.retrieve(&key, 64, 0)?, Status::KEY_NOT_FOUND, "Retrieve after Delete")?;
    }
    pass()
}

fn missing(ask: &mut Ask<'_>) -> Outcome {
    let feature = ask.key_value_feature(0)?;
    let is_error = feature.status.is_success() && feature.dw0 & 1 == 1;
    let key = ask.usual_key()?;
    let expected = if is_error { Status::KEY_NOT_FOUND } else { Status::SUCCESS };
    is(&ask.delete(&key)?, expected, if is_error { "EDNEK is 1" } else { "EDNEK is 0" })?;
    Ok(format!("EDNEK is {}", u8::from(is_error)))
}

fn again(ask: &mut Ask<'_>) -> Outcome {
    let key = ask.usual_key()?;
    for name in 0..3 {
        ask.stored(&key, &value(name, 200))?;
        ask.has(&key, &value(name, 200), "Retrieve")?;
        is(&ask.delete(&key)?, Status::SUCCESS, "Delete")?;
    }
    pass()
}

fn one(ask: &mut Ask<'_>) -> Outcome {
    let most = usize::from(ask.facts.namespace.format().key_max_bytes.get());
    let short = ask.key(most.min(12))?;
    let mut longer = short.clone();
    if most > short.len() {
        longer.push(0);
        is(&ask.exist(&longer)?, Status::KEY_NOT_FOUND, "Exist of the longer key")?;
        ask.own(&longer);
        ask.stored(&longer, b"longer")?;
    }
    ask.stored(&short, b"shorter")?;
    is(&ask.delete(&short)?, Status::SUCCESS, "Delete")?;
    if longer.len() > short.len() {
        ask.has(&longer, b"longer", "the longer key after Delete of the shorter")?;
    }
    pass()
}

fn frees(ask: &mut Ask<'_>) -> Outcome {
    const BYTES: usize = 20_000;
    let key = ask.usual_key()?;
    let before = ask.namespace()?.used_bytes.get();
    ask.stored(&key, &value(1, BYTES.min(ask.facts.value_max_bytes() as usize)))?;
    let with = ask.namespace()?.used_bytes.get();
    is(&ask.delete(&key)?, Status::SUCCESS, "Delete")?;
    let after = ask.namespace()?.used_bytes.get();
    ensure(after <= with, || format!("{before} B before, {with} with the pair, {after} after its Delete"))?;
    Ok(format!("NUSE {before} B before, {with} with a pair, {after} after its Delete"))
}
