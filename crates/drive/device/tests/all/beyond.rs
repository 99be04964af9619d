//! Features that no published drive has: chunks after an *express*, quiet commands without a completion, and
//! windows, all as raw entries.

use std::cell::RefCell;
use std::rc::Rc;

use kvdrive_content::Piece;
use kvdrive_device::namespaces::kv::KvNamespace;
use kvdrive_link::{Class, HostMemory, Link, LocalMemory, QueuePair};
use kvdrive_nvme::inline::{chunk, chunks_for, put_tail, put_transfer, put_write};
use kvdrive_nvme::window::{ASK, Grant};
use kvdrive_nvme::{Command, Key, Sqe, Status, Store, StoreOptions, Write, opcode};
use kvdrive_sim::{Rng, Sim};

use super::mock_engine::{Jitter, MockEngine, WINDOW_BYTES};
use super::rig;

struct Rig {
    memory: Rc<LocalMemory>,
    sim: Sim,
    link: Rc<Link>,
    namespace: Rc<KvNamespace<MockEngine>>,
}

fn rig(sim: Sim, contexts: u32, engine: MockEngine) -> Rig {
    let memory = Rc::new(LocalMemory::new());
    let (link, namespace) = rig::start(&sim, memory.clone(), rig::link_config(1), contexts, engine);
    Rig { memory, sim, link, namespace }
}

impl Rig {
    /// Submits entries with one doorbell, runs, and returns the completed commands.
    fn submit(&self, queue: &Rc<QueuePair>, sqes: &[Sqe]) -> Vec<(u16, Status)> {
        sqes.iter().for_each(|sqe| assert!(queue.try_submit(*sqe)));
        self.sim.block_on(|| self.link.ring_submission(queue));
        self.sim.run();
        let completed: Vec<_> = std::iter::from_fn(|| queue.any_completion()).collect();
        self.link.ring_completions(queue, completed.len() as u32);
        completed.iter().map(|cqe| (cqe.cid.get(), cqe.status())).collect()
    }

    /// Submits one entry; returns status and the two dwords of its completion.
    fn one(&self, queue: &Rc<QueuePair>, sqe: Sqe) -> (Status, u32, u32) {
        assert!(queue.try_submit(sqe));
        self.sim.block_on(|| self.link.ring_submission(queue));
        self.sim.run();
        let cqe = queue.any_completion().expect("one completion");
        self.link.ring_completion(queue);
        (cqe.status(), cqe.dw0.get(), cqe.dw1.get())
    }

    /// Stores bytes at an offset of a window.
    fn store_window(&self, generation: u32, at: u32, bytes: &[u8]) {
        let address = u64::from(generation * WINDOW_BYTES + at);
        self.sim.block_on(|| self.link.cxl_store(address, Piece::Bytes(bytes)));
    }

    fn stored(&self, key: Key) -> Option<Vec<u8>> {
        let values = self.namespace.engine().values.borrow();
        values.get(&key).map(|stored| stored.content.to_bytes(stored.bytes))
    }
}

fn key(number: u32) -> Key {
    Key::from_u32_be(number)
}

fn express(cid: u16, number: u32, value: &[u8]) -> Vec<Sqe> {
    let options = StoreOptions::default();
    let command = Command::Express(Store { key: key(number), value_bytes: value.len() as u32, options });
    let mut sqes = vec![command.encode(cid, 1)];
    sqes.extend(value.chunks(64).map(chunk));
    sqes
}

fn write(cid: u16, number: u32, value_bytes: u32, quiet: bool) -> Sqe {
    let mut sqe = Command::Write(Write { key: key(number), value_bytes }).encode(cid, 1);
    put_write(&mut sqe, &[number as u8; 35]);
    if quiet {
        sqe.set_quiet();
    }
    sqe
}

fn transfer(cid: u16, byte: u8, quiet: bool) -> Sqe {
    let mut sqe = Sqe::new(opcode::TRANSFER, cid, 1);
    put_transfer(&mut sqe, &[byte; 56]);
    if quiet {
        sqe.set_quiet();
    }
    sqe
}

#[test]
fn chunks_are_taken_with_their_command_or_refused_with_it() {
    let rig = rig(Sim::new(), 1, MockEngine::new(1 << 20));
    let queue = rig.link.create_queue(16);
    let value: Vec<u8> = (0..200u32).map(|at| at as u8).collect();
    let before = rig.link.meter().payload();
    assert_eq!(rig.submit(&queue, &express(7, 1, &value)), [(7, Status::SUCCESS)]);
    let since = rig.link.meter().payload().since(&before);
    assert_eq!((since.total(), since.of(Class::Sqe)), (88 + 4 * 64, 5 * 64));
    assert_eq!(rig.stored(key(1)), Some(value.clone()));
    // One chunk is missing: the command is refused, and the entries after it are commands.
    let mut short = express(8, 2, &value);
    short.pop();
    short.iter_mut().skip(1).for_each(|chunk| *chunk = Command::Exist { key: key(1) }.encode(9, 1));
    let (refused, found) = ((8, Status::COMMAND_SEQUENCE_ERROR), (9, Status::SUCCESS));
    assert_eq!(rig.submit(&queue, &short), [refused, found, found, found]);
    assert_eq!(rig.stored(key(2)), None);
    // More than any queue holds.
    let mut huge = express(10, 3, &[]);
    huge[0].cdw10.set(u32::MAX);
    assert_eq!(rig.submit(&queue, &huge), [(10, Status::INVALID_VALUE_SIZE)]);
    assert_eq!(rig.namespace.engine().open_places.get(), 0);
}

/// Chunks look like any command, queues interleave, contexts overtake each other, and the ring wraps.
#[test]
fn no_chunk_is_ever_taken_for_a_command() {
    for seed in 0..8 {
        let sim = Sim::permuted(seed);
        let rng = RefCell::new(Rng::stream(seed, "jitter"));
        let jitter = Some(Jitter { sim: sim.clone(), rng, below_ns: 3_000 });
        let rig = rig(sim, 4, MockEngine { jitter, ..MockEngine::new(1 << 20) });
        let queues: Vec<_> = (0..3).map(|_| rig.link.create_queue(13)).collect();
        for round in 0..20u32 {
            let bytes = (round * 37) % 500;
            for (lane, queue) in queues.iter().enumerate() {
                // A value whose bytes are deletes of its own key.
                let number = lane as u32;
                let delete = Command::Delete { key: key(number), must_exist: false }.encode(0xEE, 1);
                let value: Vec<u8> = delete.as_bytes().iter().copied().cycle().take(bytes as usize).collect();
                let sqes = express(lane as u16, number, &value);
                assert_eq!(sqes.len() as u32, 1 + chunks_for(bytes));
                sqes.iter().for_each(|sqe| assert!(queue.try_submit(*sqe)));
                let (link, queue) = (rig.link.clone(), queue.clone());
                rig.sim.spawn(move || link.ring_submission(&queue));
            }
            rig.sim.run();
            for (lane, queue) in queues.iter().enumerate() {
                let cqe = queue.any_completion().expect("one completion");
                rig.link.ring_completion(queue);
                assert_eq!((cqe.cid.get(), cqe.status()), (lane as u16, Status::SUCCESS));
                assert!(queue.any_completion().is_none());
                assert_eq!(rig.stored(key(lane as u32)).map(|value| value.len()), Some(bytes as usize));
            }
        }
    }
}

#[test]
fn quiet_commands_are_answered_by_the_last() {
    let rig = rig(Sim::new(), 1, MockEngine::new(1_000));
    let queue = rig.link.create_queue(16);
    let value = [write(1, 1, 100, true), transfer(1, 9, true), transfer(2, 9, false)];
    assert_eq!(rig.submit(&queue, &value), [(2, Status::SUCCESS)]);
    assert_eq!(rig.stored(key(1)), Some([[1; 35].as_slice(), &[9; 65]].concat()));
    // A refusal is reported once, by the first command that is not quiet.
    let too_large =
        [write(1, 2, 1_001, true), transfer(1, 9, true), transfer(3, 9, false), transfer(4, 9, false)];
    let told = [(3, Status::INVALID_VALUE_SIZE), (4, Status::COMMAND_SEQUENCE_ERROR)];
    assert_eq!(rig.submit(&queue, &too_large), told);
    // A quiet write inside a value discards both.
    let broken = [write(1, 3, 100, false), write(2, 4, 50, true), transfer(5, 9, false)];
    assert_eq!(rig.submit(&queue, &broken), [(1, Status::SUCCESS), (5, Status::COMMAND_SEQUENCE_ERROR)]);
    // A *write* reports the refusal like a *transfer*, and passes it on if it is quiet itself.
    let too_large = [write(1, 2, 1_001, true), write(3, 6, 10, false), write(4, 6, 10, false)];
    let told = [(3, Status::INVALID_VALUE_SIZE), (4, Status::SUCCESS)];
    assert_eq!(rig.submit(&queue, &too_large), told);
    let passed_on = [write(1, 2, 1_001, true), write(2, 6, 10, true), write(3, 6, 10, false)];
    assert_eq!(rig.submit(&queue, &passed_on), [(3, Status::INVALID_VALUE_SIZE)]);
    // A quiet command that is invalid breaks into a value, too.
    let mut no_key = write(1, 5, 100, true);
    no_key.cdw11.set(17);
    let broken = [write(1, 3, 100, false), no_key, write(6, 6, 10, false), write(7, 6, 10, false)];
    let told = [(1, Status::SUCCESS), (6, Status::INVALID_FIELD), (7, Status::SUCCESS)];
    assert_eq!(rig.submit(&queue, &broken), told);
    assert_eq!(rig.namespace.engine().open_places.get(), 0);
    // The bit has no meaning in other commands.
    let mut exist = Command::Exist { key: key(6) }.encode(8, 1);
    exist.set_quiet();
    assert_eq!(rig.submit(&queue, &[exist]), [(8, Status::SUCCESS)]);
}

fn in_window(number: u32, bytes: u32, at: u32, generation: u32) -> Sqe {
    let (value_bytes, window_offset) = (bytes, at);
    Command::CxlStore { key: key(number), value_bytes, window_offset, generation, tail_bytes: 0 }.encode(0, 1)
}

#[test]
fn a_window_takes_each_byte_once_and_passes_when_the_host_asks_for_another() {
    let rig = rig(Sim::new(), 2, MockEngine::new(1 << 20));
    let queue = rig.link.create_queue(8);
    assert_eq!(rig.link.window_bytes(), Some(WINDOW_BYTES));
    assert_eq!(rig.one(&queue, in_window(1, 10, 0, 0)), (Status::STALE_WINDOW, 0, 1), "none was open");
    rig.store_window(1, 100, &[5; 70]);
    assert_eq!(rig.stored(key(1)), None, "bytes without a command belong to no value");
    assert_eq!(rig.one(&queue, in_window(1, 70, 100, 1)), (Status::SUCCESS, 170, 1));
    assert_eq!(rig.stored(key(1)), Some(vec![5; 70]));
    for (at, bytes) in [(100, 70), (169, 1), (0, 101), (4_000, 97), (u32::MAX - 1, 50)] {
        assert_eq!(rig.one(&queue, in_window(2, bytes, at, 1)).0, Status::INVALID_FIELD, "{bytes} B at {at}");
    }
    // The tail of a value comes with its command.
    rig.store_window(1, 192, &[6; 64]);
    let mut tailed = in_window(3, 74, 192, 1);
    tailed.cdw11.set(tailed.cdw11.get() | 10 << 8);
    put_tail(&mut tailed, &[7; 10]);
    assert_eq!(rig.one(&queue, tailed), (Status::SUCCESS, 266, 1));
    assert_eq!(rig.stored(key(3)), Some([[6; 64].as_slice(), &[7; 10]].concat()));
    // A value of 0 bytes takes no room, whichever place it names.
    assert_eq!(rig.one(&queue, in_window(5, 0, 300, 1)), (Status::SUCCESS, 266, 1));
    assert_eq!(rig.stored(key(5)), Some(Vec::new()));
    // A new window. A store that comes too late for the old one has no effect.
    assert_eq!(rig.one(&queue, in_window(2, 10, ASK, 1)), (Status::STALE_WINDOW, 0, 2));
    rig.store_window(1, 0, &[9; 64]);
    rig.store_window(7, 0, &[9; 64]);
    assert_eq!(
        rig.one(&queue, in_window(2, 10, 0, 1)),
        (Status::STALE_WINDOW, 0, 2),
        "and its command neither"
    );
    assert_eq!(rig.one(&queue, in_window(2, 10, 0, 2)), (Status::SUCCESS, 10, 2));
    assert_eq!(rig.stored(key(2)), Some(vec![0; 10]));
    // If another value of the same size would not fit, the completion names a fresh window.
    assert_eq!(rig.one(&queue, in_window(2, 2_100, 10, 2)), (Status::SUCCESS, 0, 3));
    // Queues do not share windows.
    let other = rig.link.create_queue(8);
    assert_eq!(rig.one(&other, in_window(4, 10, 0, 3)), (Status::STALE_WINDOW, 0, 4));
    assert_eq!(rig.one(&queue, in_window(4, 10, 0, 4)), (Status::STALE_WINDOW, 0, 3));
    rig.sim.block_on(|| rig.link.delete_queue(&queue));
    let queue = rig.link.create_queue(8);
    assert_eq!(
        rig.one(&queue, in_window(4, 10, 0, 3)),
        (Status::STALE_WINDOW, 0, 5),
        "it ended with its queue"
    );
    assert_eq!(rig.namespace.engine().open_places.get(), 0);
}

/// Two windows for three queues: a window in use stays with its queue, and an idle one goes to the queue
/// without a window.
#[test]
fn an_idle_window_goes_to_a_queue_that_asks_and_one_in_use_does_not() {
    let engine = MockEngine { most_windows: Some(2), ..MockEngine::new(1 << 20) };
    let rig = rig(Sim::new(), 2, engine);
    let queues = [0; 3].map(|_| rig.link.create_queue(8));
    let ask = |queue: usize, generation| rig.one(&queues[queue], in_window(9, 10, ASK, generation));
    assert_eq!(ask(0, 0), (Status::STALE_WINDOW, 0, 1));
    assert_eq!(ask(1, 0), (Status::STALE_WINDOW, 0, 2));
    for round in 0..40 {
        assert_eq!(ask(2, 0).0, Status::COMMAND_INTERRUPTED, "both are in use");
        for queue in [0, 1] {
            let store = in_window(queue as u32, 10, 64 * round, queue as u32 + 1);
            assert_eq!(rig.one(&queues[queue], store).0, Status::SUCCESS);
        }
    }
    // Queue 0 has no further value to store.
    let mut refused = 0;
    while ask(2, 0) == (Status::COMMAND_INTERRUPTED, 0, 0) {
        refused += 1;
        let store = in_window(1, 10, 64 * (39 + refused), 2);
        assert_eq!(rig.one(&queues[1], store).0, Status::SUCCESS, "the one that is used stays");
        assert!(refused < 20, "queue 0 keeps a window that it does not use");
    }
    assert!(refused > 10, "{refused}: a short pause does not cost a queue its window");
    assert_eq!(rig.one(&queues[2], in_window(3, 10, 0, 3)), (Status::SUCCESS, 10, 3));
    assert_eq!(rig.one(&queues[0], in_window(0, 10, 3_000, 1)).0, Status::COMMAND_INTERRUPTED);
    assert_eq!(rig.namespace.engine().open_places.get(), 0);
}

/// The refusal names no place, so the host places its next value where the refused one would have been.
#[test]
fn a_granted_store_that_is_refused_leaves_the_window_as_it_was() {
    let rig = rig(Sim::new(), 2, MockEngine::new(1 << 20));
    let queue = rig.link.create_queue(8);
    let buffer = rig.memory.map(4_096);
    assert_eq!(rig.one(&queue, in_window(1, 10, ASK, 0)), (Status::STALE_WINDOW, 0, 1));
    let update_only = StoreOptions { update_only: true, ..StoreOptions::default() };
    for (options, from, status) in [
        (update_only, buffer, Status::KEY_NOT_FOUND),
        (StoreOptions::default(), buffer + 2, Status::PRP_OFFSET_INVALID),
        (StoreOptions::default(), 1 << 60, Status::DATA_TRANSFER_ERROR),
    ] {
        let mut sqe = Command::Store(Store { key: key(1), value_bytes: 100, options }).encode(0, 1);
        sqe.set_prps(from, 0);
        Grant { generation: 1, from: 0 }.put(&mut sqe);
        assert_eq!(rig.one(&queue, sqe), (status, 0, 0));
        assert_eq!(rig.namespace.engine().open_places.get(), 0);
    }
    assert_eq!(rig.one(&queue, in_window(2, 100, 0, 1)), (Status::SUCCESS, 100, 1), "it is all free");
}

#[test]
fn a_granted_store_lands_in_the_window_and_says_where() {
    let rig = rig(Sim::new(), 2, MockEngine::new(1 << 20));
    let queue = rig.link.create_queue(8);
    let buffer = rig.memory.map(8_192);
    rig.memory.write(buffer, Piece::Bytes(&[3; 5_000])).expect("mapped");
    let store = |number: u32, value_bytes: u32, generation: u32, from: u32| {
        let options = StoreOptions::default();
        let mut sqe = Command::Store(Store { key: key(number), value_bytes, options }).encode(0, 1);
        sqe.set_prps(buffer, buffer + 4096);
        Grant { generation, from }.put(&mut sqe);
        sqe
    };
    let elsewhere = (Status::SUCCESS, 0, 0);
    assert_eq!(rig.one(&queue, store(1, 100, 1, 0)), elsewhere, "there is no window");
    assert_eq!(rig.one(&queue, in_window(2, 10, ASK, 0)), (Status::STALE_WINDOW, 0, 1));
    assert_eq!(rig.one(&queue, store(1, 5_000, 1, 0)), elsewhere, "it would not fit");
    assert_eq!(rig.one(&queue, store(1, 100, 9, 0)), elsewhere, "another window");
    assert_eq!(rig.one(&queue, store(1, 100, 1, u32::MAX)), elsewhere, "beyond its end");
    assert_eq!(rig.one(&queue, store(3, 100, 1, 0)), (Status::SUCCESS, 0, 1));
    assert_eq!(rig.stored(key(3)), Some(vec![3; 100]));
    assert_eq!(rig.one(&queue, in_window(4, 10, 50, 1)).0, Status::INVALID_FIELD, "it is taken");
    assert_eq!(rig.one(&queue, store(1, 100, 1, 0)), elsewhere, "the only slot is taken");
    assert_eq!(rig.namespace.engine().open_places.get(), 0);
}
