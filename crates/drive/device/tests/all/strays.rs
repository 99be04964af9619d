//! Commands of a wrong host: a data pointer of another kind, an iterator of another queue, memory that does
//! not exist.

use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_device::namespaces::kv::KvNamespace;
use kvdrive_link::{Class, HostMemory, Link, LocalMemory, QueuePair};
use kvdrive_nvme::iter::{IterHeader, pair_at};
use kvdrive_nvme::opcode::{self, Direction, IO_TABLE, direction};
use kvdrive_nvme::{
    Command, Cqe, Key, RetrieveOptions, RetrievePart, Sqe, Status, Store, StoreOptions, StorePart, Write,
};
use kvdrive_sim::Sim;

use super::mock_engine::{MockEngine, Stored};
use super::rig;

const PAGE: u32 = 4096;
/// An address that no host here has mapped.
const NOWHERE: u64 = 0x1000;

struct Rig {
    memory: Rc<LocalMemory>,
    sim: Sim,
    link: Rc<Link>,
    namespace: Rc<KvNamespace<MockEngine>>,
}

fn rig(contexts: u32) -> Rig {
    let (sim, memory) = (Sim::new(), Rc::new(LocalMemory::new()));
    let engine = MockEngine::new(1 << 20);
    let (link, namespace) = rig::start(&sim, memory.clone(), rig::link_config(1), contexts, engine);
    Rig { memory, sim, link, namespace }
}

impl Rig {
    /// Submits one entry and runs until nothing is due.
    fn one(&self, queue: &Rc<QueuePair>, sqe: Sqe) -> Cqe {
        assert!(queue.try_submit(sqe));
        self.sim.block_on(|| self.link.ring_submission(queue));
        self.sim.run();
        let cqe = queue.any_completion().expect("one completion");
        self.link.ring_completion(queue);
        cqe
    }

    fn keep(&self, number: u32, bytes: u32) {
        let stored = Stored { content: Region::from_bytes(vec![number as u8; bytes as usize]), bytes };
        self.namespace.engine().values.borrow_mut().insert(key(number), stored.into());
    }
}

fn key(number: u32) -> Key {
    Key::from_u32_be(number)
}

/// A command that succeeds on a drive with keys 1 and 2 and, for NEXT and the closing, iterator 0.
fn example(opcode: u8) -> Command {
    let (key, value_bytes, buffer_bytes) = (key(1), 3 * PAGE, 3 * PAGE);
    let options = StoreOptions::default();
    match opcode {
        opcode::FLUSH => Command::Flush,
        opcode::STORE => Command::Store(Store { key, value_bytes, options }),
        opcode::RETRIEVE => Command::Retrieve { key, buffer_bytes, options: RetrieveOptions::default() },
        opcode::LIST => Command::List { start: None, buffer_bytes },
        opcode::DELETE => Command::Delete { key, must_exist: true },
        opcode::EXIST => Command::Exist { key },
        opcode::SEEK => Command::Seek { key: None, buffer_bytes },
        opcode::NEXT => Command::Next { iterator: 0, buffer_bytes, pairs_z: 0 },
        opcode::ITER_CLOSE => Command::IterClose { iterator: 0 },
        opcode::WRITE => Command::Write(Write { key, value_bytes: 10 }),
        opcode::HYBRID => Command::Hybrid { key, value_bytes: 3 * PAGE, pages_z: 1 },
        opcode::TRANSFER => Command::Transfer,
        opcode::EXPRESS => Command::Express(Store { key, value_bytes: 0, options }),
        opcode::CXL_STORE => {
            Command::CxlStore { key, value_bytes: 0, window_offset: 0, generation: 0, tail_bytes: 0 }
        }
        opcode::DISCARD => Command::Discard { stream: 0 },
        opcode::STORE_PART => {
            let store = Store { key, value_bytes, options };
            Command::StorePart(StorePart { store, at: 0, bytes: value_bytes, stream: 1 })
        }
        opcode::RETRIEVE_PART => Command::RetrievePart(RetrievePart {
            key,
            at: 0,
            bytes: buffer_bytes,
            stream: 0,
            room: 0,
            options: RetrieveOptions::default(),
        }),
        _ => panic!("an opcode {opcode:02X}h that the test does not know"),
    }
}

/// An SGL is never taken for PRPs: the drive reads and writes the memory that the host named, or refuses.
#[test]
fn every_opcode_with_every_kind_of_data_pointer() {
    for (opcode, name, _) in IO_TABLE {
        for psdt in 0..4u8 {
            let rig = rig(1);
            let queue = rig.link.create_queue(8);
            let buffer = rig.memory.map(4 * PAGE);
            (1..3).for_each(|number| rig.keep(number, 3 * PAGE));
            let mut seek = Command::Seek { key: None, buffer_bytes: PAGE }.encode(0, 1);
            seek.set_prps(buffer, 0);
            assert_eq!(rig.one(&queue, seek).status(), Status::SUCCESS);
            let mut sqe = example(opcode).encode(0, 1);
            sqe.flags |= psdt << 6;
            let takes_data = direction(opcode) != Direction::None;
            if takes_data {
                // Two pages of PRPs suffice for a *hybrid*; the others need a list.
                let list = rig.memory.map(PAGE);
                let entries: Vec<u8> =
                    (1..4).flat_map(|page| (buffer + u64::from(page * PAGE)).to_le_bytes()).collect();
                rig.memory.write(list, Piece::Bytes(&entries)).expect("mapped");
                sqe.prp1.set(buffer);
                sqe.prp2.set(match (psdt, opcode) {
                    (0, opcode::HYBRID) => buffer + u64::from(PAGE),
                    (0, _) => list,
                    _ => u64::from(3 * PAGE),
                });
            }
            let before = rig.link.meter().payload();
            let status = rig.one(&queue, sqe).status();
            let moved = rig.link.meter().payload().since(&before);
            let expected = match (opcode, psdt) {
                (opcode::TRANSFER, _) => Status::COMMAND_SEQUENCE_ERROR,
                (opcode::CXL_STORE, _) => Status::STALE_WINDOW,
                (opcode::HYBRID, 1 | 2) => Status::INVALID_FIELD,
                (_, 3) if takes_data => Status::INVALID_FIELD,
                _ => Status::SUCCESS,
            };
            assert_eq!(status, expected, "{name}, {psdt:02b}b");
            if status == Status::INVALID_FIELD {
                let crossed = (moved.of(Class::ToDrive), moved.of(Class::ToHost), moved.of(Class::List));
                assert_eq!(crossed, (0, 0, 0), "{name}, {psdt:02b}b");
            }
            assert_eq!(
                rig.namespace.engine().open_places.get(),
                u32::from(opcode == opcode::HYBRID && psdt == 0)
            );
        }
    }
}

/// The iterator of a SEEK has a number from its completion on. Another host that guesses the number cannot
/// keep its owner from closing it.
#[test]
fn a_failed_seek_leaves_no_iterator_under_any_number() {
    let mut busy = 0;
    for delay_ns in (0..12_000).step_by(100) {
        let rig = rig(2);
        let queues = [rig.link.create_queue(8), rig.link.create_queue(8)];
        let buffer = rig.memory.map(4 * PAGE);
        (1..4).for_each(|number| rig.keep(number, PAGE / 2));
        let mut seek = Command::Seek { key: None, buffer_bytes: PAGE }.encode(0, 1);
        seek.set_prps(NOWHERE, 0);
        let mut guess = Command::Next { iterator: 0, buffer_bytes: PAGE, pairs_z: 0 }.encode(0, 1);
        guess.set_prps(buffer, 0);
        for (number, sqe) in [seek, guess].into_iter().enumerate() {
            let (sim, link, queue) = (rig.sim.clone(), rig.link.clone(), queues[number].clone());
            rig.sim.spawn(move || {
                sim.sleep(number as u64 * delay_ns);
                assert!(queue.try_submit(sqe));
                link.ring_submission(&queue);
            });
        }
        rig.sim.run();
        let [sought, guessed] = queues.each_ref().map(|queue| {
            let cqe = queue.any_completion().expect("one completion");
            rig.link.ring_completion(queue);
            cqe.status()
        });
        assert_eq!(sought, Status::DATA_TRANSFER_ERROR, "{delay_ns} ns");
        assert!([Status::COMMAND_INTERRUPTED, Status::NO_SUCH_ITERATOR].contains(&guessed), "{guessed}");
        busy += u32::from(guessed == Status::COMMAND_INTERRUPTED);
        // All four iterators are free.
        seek.set_prps(buffer, 0);
        for _ in 0..4 {
            assert_eq!(rig.one(&queues[0], seek).status(), Status::SUCCESS, "{delay_ns} ns");
        }
    }
    assert!(busy > 10, "the guess never met the SEEK: {busy}");
}

/// 21h would mean that the same NEXT may succeed later. Commands that open a cursor themselves may succeed
/// later.
#[test]
fn an_iterator_that_is_lost_is_closed_and_its_host_told_not_to_try_again() {
    let rig = rig(1);
    let queue = rig.link.create_queue(8);
    let buffer = rig.memory.map(PAGE);
    (1..4).for_each(|number| rig.keep(number, 100));
    let [seek, list, next] = [
        Command::Seek { key: None, buffer_bytes: PAGE },
        Command::List { start: None, buffer_bytes: PAGE },
        Command::Next { iterator: 0, buffer_bytes: PAGE, pairs_z: 0 },
    ]
    .map(|command| {
        let mut sqe = command.encode(0, 1);
        sqe.set_prps(buffer, 0);
        sqe
    });
    assert_eq!(rig.one(&queue, seek).status(), Status::SUCCESS);
    assert_eq!(rig.one(&queue, next).status(), Status::SUCCESS);
    rig.namespace.engine().lost_cursors.set(true);
    let lost = rig.one(&queue, next);
    assert_eq!((lost.status(), lost.do_not_retry()), (Status::ITERATOR_LOST, true));
    assert_eq!(rig.one(&queue, next).status(), Status::NO_SUCH_ITERATOR);
    for sqe in [seek, list] {
        let again = rig.one(&queue, sqe);
        assert_eq!((again.status(), again.do_not_retry()), (Status::COMMAND_INTERRUPTED, false));
    }
    rig.namespace.engine().lost_cursors.set(false);
    for _ in 0..4 {
        assert_eq!(rig.one(&queue, seek).status(), Status::SUCCESS, "all four are free");
    }
}

/// One queue has all iterators, and another queue can still open one.
#[test]
fn a_queue_with_all_iterators_gives_one_up_to_another_queue() {
    let rig = rig(1);
    let queues = [8, 8].map(|entries| rig.link.create_queue(entries));
    let buffer = rig.memory.map(PAGE);
    (1..6).for_each(|number| rig.keep(number, 100));
    let ask = |queue: usize, command: Command| {
        let mut sqe = command.encode(0, 1);
        sqe.set_prps(buffer, 0);
        let cqe = rig.one(&queues[queue], sqe);
        (cqe.status(), cqe.dw1.get())
    };
    let seek = |queue| ask(queue, Command::Seek { key: None, buffer_bytes: PAGE });
    let next = |queue, iterator| ask(queue, Command::Next { iterator, buffer_bytes: PAGE, pairs_z: 0 }).0;
    let taken = [0; 4].map(|_| seek(0));
    assert!(taken.iter().all(|(status, _)| *status == Status::SUCCESS));
    let taken = taken.map(|(_, iterator)| iterator);
    assert_eq!(seek(0).0, Status::TOO_MANY_ITERATORS, "they are its own");
    assert_eq!(next(0, taken[0]), Status::SUCCESS);
    let (status, own) = seek(1);
    assert_eq!(status, Status::SUCCESS);
    assert_eq!(next(0, taken[1]), Status::ITERATOR_LOST, "it was not used for longest");
    assert_eq!(next(0, taken[1]), Status::NO_SUCH_ITERATOR, "its host was told");
    for (queue, iterator) in [(0, taken[0]), (0, taken[2]), (0, taken[3]), (1, own)] {
        assert_eq!(next(queue, iterator), Status::SUCCESS);
    }
    assert_eq!(seek(1).0, Status::SUCCESS);
    for queue in [0, 1] {
        assert_eq!(seek(queue).0, Status::TOO_MANY_ITERATORS, "both have two");
    }
    assert_eq!(ask(0, Command::IterClose { iterator: taken[0] }).0, Status::SUCCESS, "it was lost");
}

/// The host asks again for the pair that did not arrive, with memory that exists.
#[test]
fn a_pair_that_did_not_get_to_the_host_is_the_next_one_again() {
    let rig = rig(1);
    let queue = rig.link.create_queue(8);
    let buffer = rig.memory.map(2 * PAGE);
    (1..6).for_each(|number| rig.keep(number, PAGE));
    let ask = |command: Command, address: u64| {
        let mut sqe = command.encode(0, 1);
        sqe.set_prps(address, address + u64::from(PAGE));
        let cqe = rig.one(&queue, sqe);
        let mut key = Region::new();
        let read = &mut |piece: Piece<'_>| key.write(0, piece);
        rig.memory.read(buffer, IterHeader::BYTES as u32, read).expect("mapped");
        let header = key.to_bytes(IterHeader::BYTES as u32).try_into().expect("its size");
        (cqe.status(), IterHeader::from_bytes(header).key())
    };
    let seek = Command::Seek { key: None, buffer_bytes: 2 * PAGE };
    let next = |buffer_bytes| Command::Next { iterator: 0, buffer_bytes, pairs_z: 0 };
    assert_eq!(ask(seek, buffer), (Status::SUCCESS, Some(key(1))));
    for (address, status) in [
        (NOWHERE, Status::DATA_TRANSFER_ERROR),
        (buffer + 2, Status::PRP_OFFSET_INVALID),
        (NOWHERE, Status::DATA_TRANSFER_ERROR),
    ] {
        assert_eq!(ask(next(2 * PAGE), address), (status, Some(key(1))));
    }
    assert_eq!(rig.namespace.engine().loads.borrow().len(), 2, "it is read once");
    assert_eq!(ask(next(2 * PAGE), buffer), (Status::SUCCESS, Some(key(2))));
    // Room for less of the pair suffices; room for more than was read does not.
    assert_eq!(ask(next(2 * PAGE), NOWHERE).0, Status::DATA_TRANSFER_ERROR);
    assert_eq!(ask(next(PAGE), buffer), (Status::SUCCESS, Some(key(3))));
    assert_eq!(ask(next(PAGE), NOWHERE).0, Status::DATA_TRANSFER_ERROR);
    assert_eq!(ask(next(2 * PAGE), buffer).0, Status::ITERATOR_LOST);
    assert_eq!(ask(next(2 * PAGE), buffer).0, Status::NO_SUCH_ITERATOR);
}

/// The cursor has passed a pair that cannot be read now: the same command would return the pair after it.
#[test]
fn a_pair_that_cannot_be_read_now_ends_the_iterator_and_not_in_silence() {
    let rig = rig(1);
    let queue = rig.link.create_queue(8);
    let buffer = rig.memory.map(PAGE);
    (1..4).for_each(|number| rig.keep(number, 100));
    let [seek, next] = [
        Command::Seek { key: None, buffer_bytes: PAGE },
        Command::Next { iterator: 0, buffer_bytes: PAGE, pairs_z: 0 },
    ]
    .map(|command| {
        let mut sqe = command.encode(0, 1);
        sqe.set_prps(buffer, 0);
        sqe
    });
    rig.namespace.engine().busy_loads.set(1);
    assert_eq!(rig.one(&queue, seek).status(), Status::COMMAND_INTERRUPTED);
    assert_eq!(rig.one(&queue, seek).status(), Status::SUCCESS);
    rig.namespace.engine().busy_loads.set(1);
    assert_eq!(rig.one(&queue, next).status(), Status::ITERATOR_LOST);
    assert_eq!(rig.one(&queue, next).status(), Status::NO_SUCH_ITERATOR);
}

/// A value is not loaded beyond the host's room, and the engine knows from the first page on how far the load
/// will go.
#[test]
fn a_value_is_loaded_as_far_as_the_host_has_room() {
    let rig = rig(1);
    let queue = rig.link.create_queue(8);
    let buffer = rig.memory.map(2 * PAGE);
    rig.keep(1, 1 << 20);
    let header = IterHeader::BYTES as u32;
    let table = [
        (
            Command::Seek { key: None, buffer_bytes: 2 * PAGE },
            vec![(0, 2 * PAGE - header, 2 * PAGE - header)],
        ),
        (Command::Seek { key: None, buffer_bytes: header }, vec![(0, 0, 0)]),
        (Command::Seek { key: None, buffer_bytes: 3 }, vec![(0, 0, 0)]),
        (
            Command::Retrieve { key: key(1), buffer_bytes: 5_000, options: RetrieveOptions::default() },
            vec![(0, PAGE, 5_000), (PAGE, 5_000 - PAGE, 5_000)],
        ),
    ];
    for (command, loads) in table {
        let mut sqe = command.encode(0, 1);
        sqe.set_prps(buffer, buffer + u64::from(PAGE));
        let cqe = rig.one(&queue, sqe);
        let whole = (1 << 20) + if sqe.opcode == opcode::SEEK { header } else { 0 };
        assert_eq!((cqe.status(), cqe.dw0.get()), (Status::SUCCESS, whole));
        assert_eq!(rig.namespace.engine().loads.take(), loads, "{command:?}");
    }
}

/// The pairs of an answer of `end` bytes: number of the key and size of the value, whose bytes are checked.
fn pairs_in(rig: &Rig, buffer: u64, end: u32) -> Vec<(u32, u32)> {
    let (mut answer, mut at) = (Region::new(), 0);
    let read = &mut |piece: Piece<'_>| {
        answer.write(at, piece);
        at += piece.bytes();
    };
    rig.memory.read(buffer, end, read).expect("mapped");
    let (bytes, mut at, mut pairs) = (answer.to_bytes(end), 0, Vec::new());
    while at < bytes.len() {
        let (header, rest) = bytes[at..].split_first_chunk().expect("a header is whole");
        let header = IterHeader::from_bytes(*header);
        let number = (1..100).find(|number| Some(key(*number)) == header.key()).expect("a key of ours");
        let value = &rest[..header.value_bytes() as usize];
        assert!(value.iter().all(|byte| u32::from(*byte) == number), "pair {number}");
        pairs.push((number, header.value_bytes()));
        at = pair_at(at as u32 + header.answer_bytes()) as usize;
    }
    pairs
}

/// Several pairs in one answer: as many as were asked for, exist and fit as a whole; no failure makes the
/// drive skip one.
#[test]
fn a_next_brings_as_many_pairs_as_were_asked_for_and_fit() {
    let rig = rig(1);
    let queue = rig.link.create_queue(8);
    let buffer = rig.memory.map(2 * PAGE);
    let sizes = [1, 100, 33, 0, 3000, 2000, 5000, 8, 8, 7, 7];
    (1..).zip(sizes).for_each(|(number, bytes)| rig.keep(number, bytes));
    let ask = |command: Command, address: u64| {
        let mut sqe = command.encode(0, 1);
        sqe.set_prps(address, address + u64::from(PAGE));
        rig.one(&queue, sqe)
    };
    let next = |pairs| {
        let command = Command::Next { iterator: 0, buffer_bytes: 2 * PAGE, pairs_z: pairs - 1 };
        let cqe = ask(command, buffer);
        (cqe.status().is_success()).then(|| pairs_in(&rig, buffer, cqe.dw0.get())).ok_or(cqe.status())
    };
    let seek = Command::Seek { key: None, buffer_bytes: 2 * PAGE };
    assert!(ask(seek, buffer).status().is_success());
    assert_eq!(next(3), Ok(vec![(2, 100), (3, 33), (4, 0)]));
    // The fourth pair does not fit, and is returned next, though it was read already.
    assert_eq!(next(60), Ok(vec![(5, 3000), (6, 2000)]));
    // Pairs that the host did not receive are returned again, with pairs that were read after them.
    let lost = Command::Next { iterator: 0, buffer_bytes: 2 * PAGE, pairs_z: 1 };
    assert_eq!(ask(lost, NOWHERE).status(), Status::DATA_TRANSFER_ERROR);
    assert_eq!(next(2), Ok(vec![(7, 5000), (8, 8)]));
    assert_eq!(next(1), Ok(vec![(9, 8)]));
    let reads = rig.namespace.engine().loads.borrow().len();
    assert_eq!(reads, 9, "each is read once");
    assert_eq!(next(u16::MAX), Ok(vec![(10, 7), (11, 7)]));
    assert_eq!(next(5), Ok(vec![]), "the end");
}

/// The first pair is returned, and later failures do not take it back.
#[test]
fn a_pair_that_cannot_be_read_ends_an_answer_before_it() {
    let rig = rig(1);
    let queue = rig.link.create_queue(8);
    let buffer = rig.memory.map(PAGE);
    (1..5).for_each(|number| rig.keep(number, 100));
    let ask = |command: Command| {
        let mut sqe = command.encode(0, 1);
        sqe.set_prps(buffer, 0);
        let cqe = rig.one(&queue, sqe);
        (cqe.status().is_success()).then(|| pairs_in(&rig, buffer, cqe.dw0.get())).ok_or(cqe.status())
    };
    assert_eq!(ask(Command::Seek { key: None, buffer_bytes: PAGE }), Ok(vec![(1, 100)]));
    let next = |pairs_z| Command::Next { iterator: 0, buffer_bytes: PAGE, pairs_z };
    // The second of the pairs that follow cannot be read; the first of them was read before.
    let lost = next(0).encode(0, 1);
    let status = {
        let mut sqe = lost;
        sqe.set_prps(NOWHERE, 0);
        rig.one(&queue, sqe).status()
    };
    assert_eq!(status, Status::DATA_TRANSFER_ERROR);
    rig.namespace.engine().busy_loads.set(1);
    assert_eq!(ask(next(3)), Ok(vec![(2, 100)]));
    assert_eq!(ask(next(3)), Err(Status::ITERATOR_LOST));
    assert_eq!(ask(next(3)), Err(Status::NO_SUCH_ITERATOR));
}
