//! The method by which a value goes, and the entries that host halves submit.

use kvdrive_content::Piece;
use kvdrive_link::transfer::{
    Choice, HostWindow, METHODS, Next, Progress, StoreRequest, TransferConfig, method,
};
use kvdrive_nvme::inline::{commands_for, transfers_for};
use kvdrive_nvme::{Command, Cqe, Key, Sqe, Status, StoreOptions, opcode};
use proptest::prelude::*;

fn config(name: &str) -> TransferConfig {
    let (threshold1_bytes, threshold2_bytes) = (128, 64);
    TransferConfig {
        method: name.into(),
        threshold1_bytes,
        threshold2_bytes,
        alpha: 1.0,
        beta: 1.0,
        own: None,
    }
}

fn build(name: &str) -> Box<dyn Choice> {
    method(&config(name)).expect("a row")
}

/// Opcodes a store of `bytes` bytes submits when everything succeeds.
fn submitted(choice: &dyn Choice, bytes: u32) -> Vec<Sqe> {
    let value = vec![0xA5; bytes as usize];
    let request = StoreRequest {
        key: Key::new(b"key"),
        key_at: 0,
        value: Piece::Bytes(&value),
        options: StoreOptions::default(),
        nsid: 1,
        cid: 3,
        buffer: 0x10_0000,
        list: 0x9000,
        slots: 255,
        window: None,
    };
    let method = choice.pick(bytes, request.slots);
    let (mut progress, mut outbox, mut all) = (Progress::default(), Vec::new(), Vec::new());
    let mut next = method.begin(&request, &mut progress, &mut outbox);
    while matches!(next, Next::Submit | Next::SubmitForAll(_)) {
        all.append(&mut outbox);
        let cqe = Cqe::new(request.cid, Status::SUCCESS);
        next = method.on_completion(&request, &mut progress, &cqe, &mut outbox);
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

/// t1 = 128 B, t2 = 64 B: section 3.2 of the paper with the literal reading of DESIGN section 3.
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

/// n commands with one doorbell; if other commands are quiet, the last one of each round is not.
#[test]
fn pipelined_commands_go_in_rounds_of_the_slots_there_are() {
    let value = vec![7; 35 + 56 * 9 + 1];
    for (name, completions) in [("piggyback-pipelined", [4, 4, 3]), ("piggyback-pipelined-1", [1, 1, 1])] {
        let choice = build(name);
        let request = StoreRequest {
            key: Key::new(b"key"),
            key_at: 0,
            value: Piece::Bytes(&value),
            options: StoreOptions::default(),
            nsid: 1,
            cid: 9,
            buffer: 0,
            list: 0,
            slots: 4,
            window: None,
        };
        let method = choice.pick(value.len() as u32, request.slots);
        let (mut progress, mut outbox) = (Progress::default(), Vec::new());
        let mut next = method.begin(&request, &mut progress, &mut outbox);
        for (round, completions) in completions.into_iter().enumerate() {
            let expected = if completions == 1 { Next::Submit } else { Next::SubmitForAll(completions) };
            assert_eq!(next, expected, "{name}, round {round}");
            let commands = outbox.len();
            assert_eq!(commands, [4, 4, 3][round]);
            for (index, sqe) in outbox.drain(..).enumerate() {
                assert_eq!(sqe.is_quiet(), name.ends_with('1') && index + 1 < commands);
                assert_eq!(sqe.opcode == opcode::WRITE, round + index == 0);
            }
            let cqe = Cqe::new(9, Status::SUCCESS);
            next = method.on_completion(&request, &mut progress, &cqe, &mut outbox);
        }
        assert_eq!(next, Next::Done(Status::SUCCESS));
    }
}

#[test]
fn chunks_that_the_queue_cannot_hold_are_not_sent() {
    let express = build("byte-express");
    for (bytes, slots, expected) in
        [(0, 1, opcode::EXPRESS), (1, 1, opcode::STORE), (64, 2, opcode::EXPRESS), (65, 2, opcode::STORE)]
    {
        let value = vec![1; bytes];
        let request = StoreRequest {
            key: Key::new(b"key"),
            key_at: 0,
            value: Piece::Bytes(&value),
            options: StoreOptions::default(),
            nsid: 1,
            cid: 0,
            buffer: 0x1000,
            list: 0,
            slots,
            window: None,
        };
        let mut outbox = Vec::new();
        express.pick(bytes as u32, slots).begin(&request, &mut Progress::default(), &mut outbox);
        assert_eq!(outbox[0].opcode, expected, "{bytes} B, {slots} slots");
        assert!(outbox.len() <= slots as usize);
    }
}

proptest! {
    #[test]
    fn a_value_needs_the_commands_its_size_asks_for(bytes in 0u32..20_000) {
        prop_assert_eq!(submitted(&*build("prp"), bytes).len(), 1);
        prop_assert_eq!(submitted(&*build("sgl"), bytes).len(), 1);
        prop_assert_eq!(submitted(&*build("piggyback"), bytes).len() as u32, commands_for(bytes));
        let express = build("byte-express");
        let chunks = bytes.div_ceil(64);
        let entries = if chunks < 255 { 1 + chunks } else { 1 };
        prop_assert_eq!(submitted(&*express, bytes).len() as u32, entries);
        for name in ["piggyback-pipelined", "piggyback-pipelined-1"] {
            prop_assert_eq!(submitted(&*build(name), bytes).len() as u32, commands_for(bytes));
        }
        let hybrid = submitted(&*build("hybrid"), bytes).len() as u32;
        let tail = if bytes > 4096 { transfers_for(bytes % 4096) } else { 0 };
        prop_assert_eq!(hybrid, 1 + tail);
    }

    /// After a refusal no further command is submitted.
    #[test]
    fn a_refusal_ends_a_store(bytes in 36u32..9_000, row in 0..METHODS.len()) {
        let window = HostWindow::new(16_384);
        window.adopt(&Cqe::new(0, Status::STALE_WINDOW).with_result(0, 1));
        let value = vec![1; bytes as usize];
        let request = StoreRequest {
            key: Key::new(b"k"), key_at: 0, value: Piece::Bytes(&value), options: StoreOptions::default(),
            nsid: 1, cid: 0, buffer: 0x1000, list: 0x9000, slots: 60, window: Some(&window),
        };
        let choice = build(METHODS[row].name);
        let method = choice.pick(bytes, request.slots);
        let (mut progress, mut outbox) = (Progress::default(), Vec::new());
        let next = method.begin(&request, &mut progress, &mut outbox);
        prop_assert!(!matches!(next, Next::Done(_) | Next::ByPrp));
        outbox.clear();
        let refused = Cqe::new(0, Status::CAPACITY_EXCEEDED);
        let next = method.on_completion(&request, &mut progress, &refused, &mut outbox);
        prop_assert_eq!(next, Next::Done(Status::CAPACITY_EXCEEDED));
        prop_assert!(outbox.is_empty());
    }
}
