//! Batches by every transfer method: the requests that are carried out, the report of the completion, and arbitrary
//! bytes.

use std::collections::BTreeMap;

use kvdrive_content::Region;
use kvdrive_device::config::Dispatch;
use kvdrive_host::{Answer, Call, Client};
use kvdrive_link::transfer::METHODS;
use kvdrive_nvme::batch::{BatchBuilder, BatchReader, RequestKind};
use kvdrive_nvme::{Command, Key, Sqe, Status, opcode};
use kvdrive_sim::Sim;
use proptest::prelude::*;

use super::commands::{Rig, rig_on};
use super::mock_engine::MockEngine;
use super::rig;

type Requests = Vec<(Key, Option<Vec<u8>>)>;

/// A structured value.
fn structured(requests: &Requests, atomic: bool) -> Vec<u8> {
    let (mut value, mut batch) = (vec![0; 16], BatchBuilder::new());
    for (key, bytes) in requests {
        match bytes {
            Some(bytes) => batch.append(&mut value, RequestKind::Store, *key, bytes),
            None => batch.append(&mut value, RequestKind::Delete, *key, &[]),
        }
    }
    value[..16].copy_from_slice(&batch.head(atomic));
    value
}

fn key(number: u64) -> Key {
    Key::from_u64_be(number)
}

fn rig_of(dispatch: Dispatch, most_places: Option<u32>) -> Rig {
    rig_on(Sim::new(), 1, dispatch, MockEngine { most_places, ..MockEngine::new(64 << 10) })
}

impl Rig {
    /// Sends a batch by a method; returns the number of requests that were carried out, and the status.
    fn batch(&self, method: &str, value: Vec<u8>) -> (u32, Status) {
        let driver = self.driver(method, 2);
        let answer = self.sim.block_on(|| (&driver).call(Call::Batch { value }, &mut Region::new()));
        match answer.expect("a batch that a drive may take is sent") {
            Answer::Applied(requests, status) => (requests, status),
            other => panic!("{other:?}"),
        }
    }

    fn pairs(&self) -> BTreeMap<Key, Vec<u8>> {
        let values = self.namespace.engine().values.borrow();
        values.iter().map(|(key, stored)| (*key, stored.content.to_bytes(stored.bytes))).collect()
    }
}

fn apply(pairs: &mut BTreeMap<Key, Vec<u8>>, requests: &[(Key, Option<Vec<u8>>)]) {
    for (key, value) in requests {
        match value {
            Some(value) => drop(pairs.insert(*key, value.clone())),
            None => drop(pairs.remove(key)),
        }
    }
}

#[test]
fn requests_are_carried_out_in_order_by_every_method() {
    for dispatch in [rig::on_contexts(1), Dispatch::RoundRobin { io_threads: 3, deal_ns: 70 }] {
        for row in METHODS {
            let rig = rig_of(dispatch, None);
            let mut pairs = BTreeMap::new();
            for size in [0u32, 1, 3, 16, 55, 300, 5_000] {
                let value = |n: u64| Some(vec![n as u8 + size as u8; size as usize]);
                // One key twice, one stored and removed, one removed that does not exist.
                let requests = vec![
                    (key(1), value(1)),
                    (key(2), value(2)),
                    (key(1), value(3)),
                    (key(2), None),
                    (Key::new(b"k").unwrap(), value(4)),
                    (key(9), None),
                ];
                let answer = rig.batch(row.name, structured(&requests, false));
                assert_eq!(answer, (6, Status::SUCCESS), "{} {size}", row.name);
                apply(&mut pairs, &requests);
                assert_eq!(rig.pairs(), pairs, "{} {size}", row.name);
            }
            assert_eq!(rig.namespace.engine().open_places.get(), 0);
        }
    }
}

#[test]
fn the_first_request_that_fails_ends_a_batch_and_is_named() {
    for row in METHODS {
        let rig = rig_of(rig::on_contexts(1), None);
        let requests: Requests = (0..5).map(|n| (key(n), Some(vec![n as u8; 20]))).collect();
        rig.namespace.engine().commits_left.set(Some(3));
        assert_eq!(
            rig.batch(row.name, structured(&requests, false)),
            (3, Status::CAPACITY_EXCEEDED),
            "{}",
            row.name
        );
        rig.namespace.engine().commits_left.set(None);
        let mut pairs = BTreeMap::new();
        apply(&mut pairs, &requests[..3]);
        assert_eq!(rig.pairs(), pairs, "{}", row.name);
        assert_eq!(rig.namespace.engine().open_places.get(), 0);
        assert_eq!(rig.batch(row.name, structured(&requests, false)), (5, Status::SUCCESS), "sent again");
    }
}

#[test]
fn what_a_drive_says_of_batches_it_keeps() {
    let rig = rig_of(rig::on_contexts(1), None);
    let limits =
        rig.sim.block_on(|| rig.host.identify()).unwrap().vendor.batches().expect("batches are taken");
    assert_eq!(limits.atomic, None);
    assert_eq!((limits.bytes, limits.requests), (64 << 10, 65_535));
    let requests = vec![(key(1), Some(vec![7; 10]))];
    assert_eq!(rig.batch("prp", structured(&requests, true)), (0, Status::INVALID_FIELD), "atomic");
    let head = 16 + 16;
    let longest = vec![(key(2), Some(vec![7; (64 << 10) - head]))];
    assert_eq!(rig.batch("prp", structured(&longest, false)), (1, Status::SUCCESS));
    // A Store of the standard is refused without a key; the vendor's stores are then batches, here of 0
    // bytes.
    let queue = rig.link.create_queue(16);
    let entry = |opcode| Sqe::new(opcode, 3, 1);
    assert_eq!(rig.raw(&queue, entry(opcode::STORE)), Status::INVALID_KEY_SIZE);
    for opcode in [opcode::BATCH, opcode::WRITE, opcode::EXPRESS] {
        assert_eq!(rig.raw(&queue, entry(opcode)), Status::INVALID_FIELD, "{opcode:02x}h");
    }
    assert_eq!(rig.pairs().len(), 1);
}

#[test]
fn half_a_batch_is_no_batch() {
    let rig = rig_of(rig::on_contexts(1), None);
    let queue = rig.link.create_queue(16);
    let requests = vec![(key(1), Some(vec![7; 40]))];
    let value = structured(&requests, false);
    let begin = || {
        let mut sqe = Sqe::new(opcode::WRITE, 3, 1);
        sqe.cdw10.set(value.len() as u32);
        kvdrive_nvme::inline::put_write(&mut sqe, &value);
        sqe
    };
    let mut rest = Command::Transfer.encode(3, 1);
    kvdrive_nvme::inline::put_transfer(&mut rest, &value[35..]);
    assert_eq!(rig.raw(&queue, begin()), Status::SUCCESS);
    assert!(rig.pairs().is_empty());
    assert_eq!(rig.raw(&queue, begin()), Status::COMMAND_SEQUENCE_ERROR, "that one is gone");
    assert_eq!(rig.raw(&queue, rest), Status::COMMAND_SEQUENCE_ERROR);
    assert_eq!(rig.raw(&queue, begin()), Status::SUCCESS);
    assert_eq!(rig.raw(&queue, rest), Status::SUCCESS);
    assert_eq!(rig.pairs().len(), 1);
}

fn any_requests() -> impl Strategy<Value = Requests> {
    let key = (0u8..3, 1usize..=16).prop_map(|(byte, len)| Key::new(&[byte; 16][..len]).expect("a length"));
    let value = proptest::option::weighted(0.7, proptest::collection::vec(any::<u8>(), 0..120));
    proptest::collection::vec((key, value), 1..12)
}

/// A structured value as it may arrive: as it was built, with a few bytes altered, cut off, or arbitrary.
fn any_value() -> impl Strategy<Value = Vec<u8>> {
    let valid = || any_requests().prop_map(|requests| structured(&requests, false));
    let changes = proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..3);
    let altered = (valid(), changes).prop_map(|(mut value, changes)| {
        for (at, byte) in changes {
            let at = at.index(value.len());
            value[at] = byte;
        }
        value
    });
    let cut = (valid(), any::<proptest::sample::Index>()).prop_map(|(mut value, end)| {
        value.truncate(end.index(value.len()));
        value
    });
    prop_oneof![4 => valid(), 3 => altered, 1 => cut, 1 => proptest::collection::vec(any::<u8>(), 0..200)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_are_carried_out_whole_or_refused_whole(
        values in proptest::collection::vec((0..METHODS.len(), any_value()), 1..8),
        io_threads in 0u32..4,
    ) {
        let threads = Dispatch::RoundRobin { io_threads, deal_ns: 70 };
        let rig = rig_of(if io_threads == 0 { rig::on_contexts(2) } else { threads }, None);
        let mut pairs = BTreeMap::new();
        for (method, value) in values {
            let read = BatchReader::of_bytes(&value).and_then(|mut reader| reader.check().map(|()| reader));
            let expected = match read {
                Err(error) => (0, error.status()),
                Ok(reader) if reader.is_atomic() => (0, Status::INVALID_FIELD),
                Ok(reader) => {
                    let requests: Requests = reader
                        .map(|request| {
                            let request = request.expect("it was checked");
                            let at = request.value_at as usize;
                            let bytes = value[at..at + request.value_bytes as usize].to_vec();
                            (request.key, (request.kind == RequestKind::Store).then_some(bytes))
                        })
                        .collect();
                    apply(&mut pairs, &requests);
                    (requests.len() as u32, Status::SUCCESS)
                }
            };
            prop_assert_eq!(rig.batch(METHODS[method].name, value.clone()), expected);
            prop_assert_eq!(&rig.pairs(), &pairs);
        }
        prop_assert_eq!(rig.namespace.engine().open_places.get(), 0);
    }
}
