//! Statuses of commands that are wrong: all of them are generic (SCT 0).

use kvdrive_nvme::{Sqe, Status, opcode};

use super::{Clause, Group, pass};
use crate::ask::{Ask, Outcome, Why, ensure, entry, is, is_one, value};
use crate::target::Data;

const fn row(
    section: &'static str,
    id: &'static str,
    asks: &'static str,
    check: fn(&mut Ask<'_>) -> Outcome,
) -> Clause {
    Clause::of(Group::Statuses, section, id, asks, check)
}

/// Larger namespaces are not filled, bytes.
const FILLED_MAX_BYTES: u64 = 1 << 30;
/// Values with which a namespace is filled, bytes.
const FILLING_BYTES: u64 = 1 << 20;

pub(super) static CLAUSES: &[Clause] = &[
    row("3.1", "generic", "87h, 89h, 86h have status code type 0", generic)
        .who("QEMU's KV device answers 185h to 189h (SCT 1), xNVMe's test expects one of them"),
    row("2.1.3", "fused", "FUSE bits of a KV command: Invalid Field (02h)", fused),
    row("3.2", "opcode-unknown", "an unknown I/O opcode: Invalid Opcode (01h)", unknown),
    row(
        "3.2",
        "opcode-of-blocks",
        "Compare and Write Zeroes, which KV lacks: Invalid Opcode (01h)",
        of_blocks,
    ),
    row(
        "3.2.1",
        "namespace-missing",
        "each command to NSID FFFFFFFEh: Invalid Namespace (0Bh)",
        no_namespace,
    ),
    row("3.2.1", "namespace-zero", "each command to NSID 0: Invalid Namespace (0Bh)", zero_namespace),
    row("3.2.1", "reserved-dwords", "reserved dwords 12 and 13 are ignored", reserved),
    row("3.1", "capacity", "a full namespace: Capacity Exceeded (81h), and stored values stay", full)
        .destructive(),
];

fn generic(ask: &mut Ask<'_>) -> Outcome {
    let key = ask.usual_key()?;
    let missing = ask.retrieve(&key, 16, 0)?.status;
    ask.stored(&key, b"value")?;
    let exists = ask.store(&key, b"other", 0b010)?.status;
    let no_key = ask.io(entry(opcode::RETRIEVE, ask.nsid(), &[], 16, 0), Data::In(16))?.status;
    for status in [missing, exists, no_key] {
        ensure(status.sct() == 0 && !status.is_success(), || format!("{status}: SCT {}", status.sct()))?;
    }
    pass()
}

fn fused(ask: &mut Ask<'_>) -> Outcome {
    let key = ask.usual_key()?;
    ask.stored(&key, b"value")?;
    for bits in [0b01, 0b10] {
        let mut sqe = entry(opcode::EXIST, ask.nsid(), &key, 0, 0);
        sqe.flags |= bits;
        is(&ask.io(sqe, Data::None)?, Status::INVALID_FIELD, &format!("Exist with FUSE {bits:02b}b"))?;
    }
    pass()
}

fn unknown(ask: &mut Ask<'_>) -> Outcome {
    // Bits 1:0 are 00b: no data.
    let sqe = Sqe::new(0x58, 0, ask.nsid());
    is(&ask.io(sqe, Data::None)?, Status::INVALID_OPCODE, "opcode 58h")?;
    pass()
}

fn of_blocks(ask: &mut Ask<'_>) -> Outcome {
    is(&ask.io(Sqe::new(0x08, 0, ask.nsid()), Data::None)?, Status::INVALID_OPCODE, "Write Zeroes (08h)")?;
    let compare = ask.io(Sqe::new(0x05, 0, ask.nsid()), Data::Out(&[0; 512]))?;
    is(&compare, Status::INVALID_OPCODE, "Compare (05h)")?;
    pass()
}

/// The five commands to another namespace.
fn of_namespace(ask: &mut Ask<'_>, nsid: u32) -> Outcome {
    let key = ask.usual_key()?;
    let bytes = value(1, 16);
    let rows = [
        (opcode::STORE, 16, Data::Out(&bytes)),
        (opcode::RETRIEVE, 64, Data::In(64)),
        (opcode::LIST, 64, Data::In(64)),
        (opcode::DELETE, 0, Data::None),
        (opcode::EXIST, 0, Data::None),
    ];
    for (opcode, size, data) in rows {
        let answer = ask.io(entry(opcode, nsid, &key, size, 0), data)?;
        is_one(
            &answer,
            &[Status::INVALID_NAMESPACE, Status::INVALID_FIELD],
            &format!("opcode {opcode:02X}h"),
        )?;
    }
    pass()
}

fn no_namespace(ask: &mut Ask<'_>) -> Outcome {
    of_namespace(ask, u32::MAX - 1)
}

fn zero_namespace(ask: &mut Ask<'_>) -> Outcome {
    of_namespace(ask, 0)
}

fn reserved(ask: &mut Ask<'_>) -> Outcome {
    let key = ask.usual_key()?;
    let stored = value(1, 32);
    let mut sqe = entry(opcode::STORE, ask.nsid(), &key, 32, 0);
    sqe.cdw12.set(0x5555_5555);
    sqe.cdw13.set(0xAAAA_AAAA);
    let answer = ask.io(sqe, Data::Out(&stored))?;
    if answer.status == Status::INVALID_FIELD {
        return Ok("a drive may check them, and this one does: 02h".to_owned());
    }
    is(&answer, Status::SUCCESS, "Store with bits in dwords 12 and 13")?;
    ask.has(&key, &stored, "Retrieve")?;
    pass()
}

fn full(ask: &mut Ask<'_>) -> Outcome {
    let size = ask.facts.namespace.size_bytes.get();
    if size > FILLED_MAX_BYTES {
        return Err(Why::NotOffered(format!("NSZE is {size} B; no more than {FILLED_MAX_BYTES} are filled")));
    }
    let bytes = FILLING_BYTES.min(ask.facts.value_max_bytes()) as usize;
    let mut keys = Vec::new();
    let refused = loop {
        let key = ask.usual_key()?;
        let answer = ask.store(&key, &value(keys.len() as u8, bytes), 0)?;
        if !answer.status.is_success() {
            break answer;
        }
        keys.push(key);
        ensure(keys.len() as u64 * bytes as u64 <= 2 * size, || "twice NSZE was stored".to_owned())?;
    };
    is(&refused, Status::CAPACITY_EXCEEDED, &format!("Store after {} values of {bytes} B", keys.len()))?;
    for (name, key) in keys.iter().enumerate() {
        ask.has(key, &value(name as u8, bytes), "a value that was stored before")?;
    }
    Ok(format!("{} values of {bytes} B", keys.len()))
}
