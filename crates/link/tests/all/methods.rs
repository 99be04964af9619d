//! Which method a value goes by, and what the host halves submit.

use kvdrive_link::Piece;
use kvdrive_link::transfer::{METHODS, Method, Next, Progress, StoreRequest, TransferConfig, method};
use kvdrive_spec::inline::{commands_for, transfers_for};
use kvdrive_spec::{Command, Key, Sqe, Status, StoreOptions, opcode};
use proptest::prelude::*;

fn config(name: &str) -> TransferConfig {
    TransferConfig { method: name.into(), threshold1_bytes: 128, threshold2_bytes: 64, alpha: 1.0, beta: 1.0 }
}

fn build(name: &str) -> Box<dyn Method> {
    method(&config(name)).expect("a row")
}

/// Opcodes a store of `bytes` bytes submits when everything succeeds.
fn submitted(method: &dyn Method, bytes: u32) -> Vec<Sqe> {
    let value = vec![0xA5; bytes as usize];
    let request = StoreRequest {
        key: Key::new(b"key").expect("a key"),
        value: Piece::Bytes(&value),
        options: StoreOptions::default(),
        nsid: 1,
        cid: 3,
        buffer: 0x10_0000,
        list: 0x9000,
    };
    let method = method.pick(bytes);
    let (mut progress, mut outbox, mut all) = (Progress::default(), Vec::new(), Vec::new());
    let mut next = method.begin(&request, &mut progress, &mut outbox);
    while next == Next::Submit {
        all.append(&mut outbox);
        next = method.on_completion(&request, &mut progress, Status::SUCCESS, &mut outbox);
    }
    assert_eq!(next, Next::Done(Status::SUCCESS));
    assert_eq!(progress.sent_bytes, bytes);
    all
}

fn first_opcode(name: &str, bytes: u32) -> u8 {
    submitted(&*build(name), bytes)[0].opcode
}

#[test]
fn every_row_can_be_built_by_its_name_and_no_other() {
    for row in METHODS {
        assert!(method(&config(row.name)).is_some());
        assert!(!row.origin.is_empty());
    }
    assert!(method(&config("pigeon")).is_none());
}

/// t1 = 128, t2 = 64: section 3.2 of the paper with the literal reading of DESIGN section 3.
#[test]
fn adaptive_chooses_by_size() {
    for (bytes, expected) in [
        (0, opcode::WRITE),
        (1, opcode::WRITE),
        (127, opcode::WRITE),
        (128, opcode::STORE),
        (4_095, opcode::STORE),
        (4_096, opcode::STORE),
        (4_097, opcode::HYBRID),
        (4_096 + 63, opcode::HYBRID),
        (4_096 + 64, opcode::STORE),
        (8_191, opcode::STORE),
        (8_192, opcode::STORE),
        (8_193, opcode::HYBRID),
        (2 << 20, opcode::STORE),
    ] {
        assert_eq!(first_opcode("adaptive", bytes), expected, "{bytes} B");
    }
}

#[test]
fn the_knobs_of_adaptive_move_its_thresholds() {
    let weighed = TransferConfig { alpha: 0.5, beta: 2.0, ..config("adaptive") };
    let adaptive = method(&weighed).expect("a row");
    for (bytes, expected) in [
        (63, opcode::WRITE),
        (64, opcode::STORE),
        (4_096 + 127, opcode::HYBRID),
        (4_096 + 128, opcode::STORE),
    ] {
        assert_eq!(submitted(&*adaptive, bytes)[0].opcode, expected, "{bytes} B");
    }
}

#[test]
fn hybrid_needs_whole_pages_and_a_tail() {
    for (bytes, expected) in [
        (0, opcode::STORE),
        (35, opcode::STORE),
        (4_096, opcode::STORE),
        (4_097, opcode::HYBRID),
        (8_191, opcode::HYBRID),
        (8_192, opcode::STORE),
    ] {
        assert_eq!(first_opcode("hybrid", bytes), expected, "{bytes} B");
    }
    let sqes = submitted(&*build("hybrid"), 3 * 4096 + 57);
    let Ok(Command::Hybrid { value_bytes, pages_z, .. }) = Command::decode(&sqes[0]) else {
        panic!("{:?}", sqes[0]);
    };
    assert_eq!((value_bytes, pages_z, sqes.len()), (3 * 4096 + 57, 2, 3));
    assert_eq!((sqes[0].prp1.get(), sqes[0].prp2.get()), (0x10_0000, 0x9000));
}

#[test]
fn pages_are_named_as_prp_asks() {
    for (bytes, prp1, prp2) in [
        (0, 0, 0),
        (1, 0x10_0000, 0),
        (4_096, 0x10_0000, 0),
        (4_097, 0x10_0000, 0x10_1000),
        (8_192, 0x10_0000, 0x10_1000),
        (8_193, 0x10_0000, 0x9000),
    ] {
        let sqes = submitted(&*build("prp"), bytes);
        assert_eq!(sqes.len(), 1);
        assert_eq!((sqes[0].prp1.get(), sqes[0].prp2.get()), (prp1, prp2), "{bytes} B");
    }
    let sqes = submitted(&*build("sgl"), 35);
    assert_eq!((sqes[0].sgl().address.get(), sqes[0].sgl().length.get()), (0x10_0000, 35));
}

proptest! {
    #[test]
    fn a_value_needs_the_commands_its_size_asks_for(bytes in 0u32..20_000) {
        prop_assert_eq!(submitted(&*build("prp"), bytes).len(), 1);
        prop_assert_eq!(submitted(&*build("sgl"), bytes).len(), 1);
        prop_assert_eq!(submitted(&*build("piggyback"), bytes).len() as u32, commands_for(bytes));
        let hybrid = submitted(&*build("hybrid"), bytes).len() as u32;
        let tail = if bytes > 4096 { transfers_for(bytes % 4096) } else { 0 };
        prop_assert_eq!(hybrid, 1 + tail);
    }

    /// What is refused is not continued.
    #[test]
    fn a_refusal_ends_a_store(bytes in 36u32..9_000, row in 0..METHODS.len()) {
        let value = vec![1; bytes as usize];
        let request = StoreRequest {
            key: Key::new(b"k").expect("a key"), value: Piece::Bytes(&value), options: StoreOptions::default(),
            nsid: 1, cid: 0, buffer: 0x1000, list: 0x9000,
        };
        let method = build(METHODS[row].name);
        let method = method.pick(bytes);
        let (mut progress, mut outbox) = (Progress::default(), Vec::new());
        prop_assert_eq!(method.begin(&request, &mut progress, &mut outbox), Next::Submit);
        outbox.clear();
        let next = method.on_completion(&request, &mut progress, Status::CAPACITY_EXCEEDED, &mut outbox);
        prop_assert_eq!(next, Next::Done(Status::CAPACITY_EXCEEDED));
        prop_assert!(outbox.is_empty());
    }
}
