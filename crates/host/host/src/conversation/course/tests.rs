//! A call step by step: the entries that it submits, and the effect of each completion.

use super::*;
use kvdrive_link::transfer::{METHODS, TransferConfig, method};
use kvdrive_nvme::opcode;

const CAPABILITIES: Capabilities<'static> = Capabilities {
    choice: Some(&prp::Prp),
    entries: 8,
    max_value_bytes: 1 << 16,
    max_answer_bytes: u32::MAX,
    at_once_bytes: answers::AT_ONCE_BYTES,
    pairs: 1,
};
const OFFER: SlotOffer<'static> = SlotOffer {
    cid: 5,
    buffer: 1 << 20,
    list: 1 << 30,
    key: 3 << 30,
    entries: 8,
    window: None,
    is_together: false,
};

fn steps(name: &str, bytes: u32) -> Vec<Step> {
    steps_with(OFFER, name, bytes)
}

/// Every step of a store to a drive that takes everything.
fn steps_with(offer: SlotOffer<'_>, name: &str, bytes: u32) -> Vec<Step> {
    let config = TransferConfig {
        method: name.into(),
        threshold1_bytes: 128,
        threshold2_bytes: 64,
        alpha: 1.0,
        beta: 1.0,
        own: None,
    };
    let choice = method(&config).expect("a row");
    let capabilities = Capabilities { choice: Some(&*choice), entries: offer.entries, ..CAPABILITIES };
    let (key, value) = (Key::from_u32_be(1), vec![7; bytes as usize]);
    let call = Call::Store { key, value: (), options: StoreOptions::default() };
    let mut course = match Course::of(capabilities, &call, bytes) {
        Ok(course) => course,
        Err(status) => return vec![Step::Done(status)],
    };
    let (mut steps, mut outbox) = (Vec::new(), Vec::new());
    let mut step = course.step(&offer, Piece::Bytes(&value), &mut outbox);
    loop {
        steps.push(step);
        step = match step {
            Step::Done(_) => return steps,
            Step::Submit(completions) => {
                assert!(!outbox.is_empty() && completions as usize <= outbox.len(), "{name} {bytes}");
                outbox.clear();
                let cqe = Cqe::new(offer.cid, Status::SUCCESS);
                course.completed(&offer, Piece::Bytes(&value), &cqe, &mut outbox)
            }
            _ => course.step(&offer, Piece::Bytes(&value), &mut outbox),
        };
    }
}

#[test]
fn a_store_takes_the_steps_of_its_method() {
    const DONE: Step = Step::Done(Status::SUCCESS);
    assert_eq!(steps("prp", 5_000), [Step::Stage(5_000), Step::Submit(1), DONE]);
    assert_eq!(steps("prp", 0), [Step::Submit(1), DONE]);
    let one = Step::Submit(1);
    assert_eq!(steps("piggyback", 100), [Step::TakeSequence, one, one, one, DONE]);
    assert_eq!(steps("piggyback-pipelined", 100), [Step::TakeSequence, Step::Submit(3), DONE]);
    assert_eq!(steps("hybrid", 4_100), [Step::TakeSequence, Step::Stage(4_096), one, one, DONE]);
    assert_eq!(steps("cxl", 100), [Step::Stage(100), one, DONE], "no window: by prp");
}

#[test]
fn inline_commands_go_together_as_far_as_there_are_entries() {
    const DONE: Step = Step::Done(Status::SUCCESS);
    let together = |name: &str, bytes: u32| steps_with(SlotOffer { is_together: true, ..OFFER }, name, bytes);
    assert_eq!(together("piggyback", 100), [Step::TakeSequence, Step::Submit(3), DONE]);
    let hybrid = [Step::TakeSequence, Step::Stage(4_096), Step::Submit(2), DONE];
    assert_eq!(together("hybrid", 4_100), hybrid);
    // One command with 35 B and nine with 56 B, of which eight fit at once.
    let rounds = [Step::TakeSequence, Step::Submit(8), Step::Submit(2), DONE];
    assert_eq!(together("piggyback", 35 + 9 * 56), rounds);
    assert_eq!(together("prp", 100), steps("prp", 100));
    for row in METHODS {
        for bytes in [0, 35, 36, 500, 4_097, 12_000] {
            assert_eq!(together(row.name, bytes).last(), Some(&DONE), "{} {bytes}", row.name);
        }
    }
}

#[test]
fn every_method_ends_and_refuses_what_is_too_long() {
    for row in METHODS {
        for bytes in [0, 1, 35, 36, 4_095, 4_096, 4_097, 12_000, 1 << 16] {
            assert_eq!(steps(row.name, bytes).last(), Some(&Step::Done(Status::SUCCESS)));
        }
        assert_eq!(steps(row.name, (1 << 16) + 1), [Step::Done(Status::INVALID_VALUE_SIZE)]);
    }
}

#[test]
fn a_command_that_brings_data_has_an_empty_buffer() {
    let mut outbox = Vec::new();
    let none = Piece::Bytes(&[]);
    let iterator = IteratorId::numbered(4);
    let mut course = Course::of(CAPABILITIES, &Call::<()>::Next { iterator }, 0).unwrap();
    assert_eq!(course.step(&OFFER, none, &mut outbox), Step::Clear);
    assert_eq!(course.step(&OFFER, none, &mut outbox), Step::Submit(1));
    assert_eq!(outbox[0].opcode, opcode::NEXT);
    let buffer_bytes = answers::pair_bytes(CAPABILITIES.max_value_bytes);
    assert_eq!(course.iterator_use(), IteratorUse::Steps { iterator, buffer_bytes });
    let key = Key::from_u32_be(1);
    let mut course = Course::of(CAPABILITIES, &Call::<()>::Delete { key }, 0).unwrap();
    assert_eq!(course.step(&OFFER, none, &mut outbox), Step::Submit(1));
}
