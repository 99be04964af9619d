//! Commands from the driver to an engine and back: contents, statuses, and every byte that crosses.

use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_device::config::Dispatch;
use kvdrive_device::namespaces::kv::KvNamespace;
use kvdrive_host::Calls;
use kvdrive_host::modelled::{Driver, Host};
use kvdrive_link::transfer::{METHODS, TransferConfig, method};
use kvdrive_link::{Arrival, Class, Link, LocalMemory, QueuePair};
use kvdrive_nvme::inline::{put_transfer, put_write};
use kvdrive_nvme::{Command, Key, Sqe, Status, StoreOptions, Write, opcode};
use kvdrive_sim::{Resource, Rng, Sim, join_all};

use super::mock_engine::{Jitter, MockEngine, Stored};
use super::rig;

pub struct Rig {
    pub sim: Sim,
    pub link: Rc<Link>,
    pub namespace: Rc<KvNamespace<MockEngine>>,
    pub host: Rc<Host>,
}

fn rig_with(sim: Sim, granularity: u32, contexts: u32, engine: MockEngine) -> Rig {
    rig_on(sim, granularity, rig::on_contexts(contexts), engine)
}

pub fn rig_on(sim: Sim, granularity: u32, dispatch: Dispatch, engine: MockEngine) -> Rig {
    let memory = Rc::new(LocalMemory::new());
    let (link, namespace) =
        rig::start_with(&sim, memory.clone(), rig::link_config(granularity), dispatch, engine);
    let core = Rc::new(Resource::new(&sim, "host", 1));
    let host =
        sim.block_on(|| Host::connect(link.clone(), memory, core, rig::HOST_COSTS)).expect("Identify works");
    Rig { sim, link, namespace, host }
}

fn rig() -> Rig {
    let engine = MockEngine { log_arrivals: true, ..MockEngine::new(2 << 20) };
    rig_with(Sim::new(), 4096, 1, engine)
}

impl Rig {
    pub fn driver(&self, name: &str, depth: u32) -> Driver {
        self.driver_with(name, 64, depth)
    }

    pub fn driver_with(&self, name: &str, entries: u32, depth: u32) -> Driver {
        let config = TransferConfig {
            method: name.into(),
            threshold1_bytes: 128,
            threshold2_bytes: 64,
            alpha: 1.0,
            beta: 1.0,
            own: None,
        };
        let choice = method(&config).expect("a row");
        let connect = || Driver::connect(&self.host, choice, entries, depth);
        self.sim.block_on(connect).expect("a queue pair")
    }

    /// Stores `bytes` bytes; returns how many bytes crossed for that.
    fn crossed(&self, driver: &Driver, bytes: u32) -> u64 {
        let before = self.link.meter().payload();
        let value = contents(bytes, 1);
        self.sim.block_on(|| driver.store(key(1), Piece::Bytes(&value))).expect("stored");
        self.sim.run();
        self.link.meter().payload().since(&before).total()
    }

    /// Submits one entry and waits for its status.
    pub fn raw(&self, queue: &Rc<QueuePair>, sqe: Sqe) -> Status {
        self.sim.block_on(|| {
            assert!(queue.try_submit(sqe));
            self.link.ring_submission(queue);
            let cqe = queue.completion(sqe.cid.get());
            self.link.ring_completion(queue);
            cqe.status()
        })
    }

    fn stored(&self, key: Key) -> Option<Vec<u8>> {
        let values = self.namespace.engine().values.borrow();
        values.get(&key).map(|stored| stored.content.to_bytes(stored.bytes))
    }
}

fn key(number: u32) -> Key {
    Key::from_u32_be(number)
}

fn contents(bytes: u32, seed: u64) -> Vec<u8> {
    let mut value = vec![0; bytes as usize];
    Rng::stream(seed, "contents").fill(&mut value);
    value
}

/// Bytes that cross for a store, by method and by bytes of its value.
const CROSSED: &[(&str, &[(u32, u64)])] = &[
    (
        "prp",
        &[
            (0, 88),
            (1, 4_184),
            (4_096, 4_184),
            (4_097, 8_280),
            (8_192, 8_280),
            (8_193, 88 + 3 * 4_096 + 2 * 8),
            (2 << 20, 88 + 512 * 4_096 + 511 * 8),
        ],
    ),
    (
        "piggyback",
        &[
            (0, 88),
            (1, 88),
            (35, 88),
            (36, 176),
            (64, 176),
            (91, 176),
            (92, 264),
            (128, 264),
            (2_048, 3_256),
            (4_096, 6_512),
        ],
    ),
    (
        "hybrid",
        &[
            (32, 4_184),
            (4_096, 4_184),
            (4_096 + 32, 4_272),
            (4_096 + 56, 4_272),
            (4_096 + 57, 4_360),
            (8_192 + 1, 8_368),
            (3 * 4_096 + 1, 88 + 3 * 4_096 + 2 * 8 + 88),
        ],
    ),
    ("sgl", &[(0, 88), (1, 4_184), (4_096, 4_184), (4_097, 8_280), (8_193, 88 + 3 * 4_096)]),
    // 80 n + 8, and 64 n + 24; at most 63 commands for one doorbell.
    (
        "piggyback-pipelined",
        &[(0, 88), (35, 88), (36, 168), (91, 168), (128, 248), (2_048, 2_968), (4_096, 74 * 80 + 2 * 8)],
    ),
    (
        "piggyback-pipelined-1",
        &[(0, 88), (35, 88), (36, 152), (91, 152), (128, 216), (2_048, 2_392), (4_096, 74 * 64 + 2 * 24)],
    ),
    // 62 chunks fit after the command; longer values go by PRP.
    (
        "byte-express",
        &[(0, 88), (1, 152), (64, 152), (65, 216), (2_048, 2_136), (62 * 64, 4_056), (62 * 64 + 1, 4_184)],
    ),
    ("adaptive", &[(0, 88), (32, 88), (127, 264), (128, 4_184), (4_096 + 32, 4_272), (4_096 + 64, 8_280)]),
];

/// The numbers of the papers: 64 B a submission entry, 16 B a completion, 4 B a doorbell, 4096 B a page, 8 B
/// a list entry, and lists only if a value needs more than two pages.
#[test]
fn a_store_moves_the_bytes_of_its_method() {
    let rig = rig();
    for (name, table) in CROSSED {
        let driver = rig.driver(name, 1);
        for (bytes, crossed) in *table {
            assert_eq!(rig.crossed(&driver, *bytes), *crossed, "{name}, {bytes} B");
            assert_eq!(rig.stored(key(1)), Some(contents(*bytes, 1)), "{name}, {bytes} B");
        }
    }
}

#[test]
fn an_sgl_moves_its_bytes_rounded_up_to_the_unit_of_the_engine() {
    for (granularity, table) in
        [(4, [(1, 92), (35, 124), (4_097, 88 + 4_100)]), (1, [(1, 89), (35, 123), (4_097, 4_185)])]
    {
        let rig = rig_with(Sim::new(), granularity, 1, MockEngine::new(1 << 20));
        let (sgl, prp) = (rig.driver("sgl", 1), rig.driver("prp", 1));
        for (bytes, crossed) in table {
            assert_eq!(rig.crossed(&sgl, bytes), crossed, "{bytes} B");
            assert_eq!(rig.stored(key(1)), Some(contents(bytes, 1)));
        }
        assert_eq!(rig.crossed(&prp, 1), 4_184, "PRPs move pages");
    }
}

/// 68 bytes a flit and one command; one more command to ask for a window, which only the first value of a
/// size needs: each completion names a window that holds another value of that size.
#[test]
fn a_value_in_a_window_moves_its_flits() {
    for (name, table) in [
        (
            "cxl",
            &[(1, 156), (64, 156), (65, 224), (256, 360), (2_048, 2_264), (4_096, 4_440), (4_097, 8_280)][..],
        ),
        ("adaptive-cxl", &[(0, 88), (1, 156), (127, 224), (128, 4_184), (4_097, 8_280)]),
        (
            "piggyback-cxl",
            &[
                (0, 88),
                (35, 88),
                (36, 156),
                (65, 156),
                (88, 156),
                (89, 224),
                (152, 224),
                (153, 292),
                (4_097, 8_280),
            ],
        ),
    ] {
        let rig = rig();
        let driver = rig.driver(name, 1);
        for (bytes, crossed) in table {
            rig.crossed(&driver, *bytes);
            for round in 0..5 {
                assert_eq!(rig.crossed(&driver, *bytes), *crossed, "{name}, {bytes} B, round {round}");
                assert_eq!(rig.stored(key(1)), Some(contents(*bytes, 1)), "{name}, {bytes} B");
            }
        }
        // The very first value asks for a window.
        let fresh = rig.driver(name, 1);
        let before = rig.link.meter().payload();
        assert_eq!(rig.crossed(&fresh, 100), 2 * 88 + 136, "{name}");
        let since = rig.link.meter().payload().since(&before);
        assert_eq!((since.of(Class::Cxl), since.of(Class::Sqe)), (136, 128));
    }
}

/// More stores at once than a window has room for: those that find it full wait, and do not replace it while
/// it holds values whose commands have not come.
#[test]
fn a_full_window_is_replaced_when_its_values_have_been_taken() {
    for (name, bytes) in [("cxl", 1_024), ("cxl", 700), ("piggyback-cxl", 1_040), ("adaptive-cxl", 100)] {
        let rig = rig_with(Sim::new(), 4096, 8, MockEngine::new(2 << 20));
        let driver = rig.driver_with(name, 256, 128);
        let before = rig.link.meter().payload();
        let value = contents(bytes, 3);
        rig.sim.block_on(|| {
            let stores = (0..500).map(|number| {
                let (driver, value) = (&driver, &value);
                move || driver.store(key(number), Piece::Bytes(value))
            });
            assert!(join_all(&rig.sim, stores).iter().all(Result::is_ok));
        });
        let since = rig.link.meter().payload().since(&before);
        let entries = since.of(Class::Sqe) / 64;
        assert!(entries < 1_000, "{name}, {bytes} B: {entries} entries for 500 stores");
        assert_eq!(since.of(Class::ToDrive), 0, "{name}, {bytes} B: nothing went by DMA");
        assert!((0..500).all(|number| rig.stored(key(number)).as_ref() == Some(&value)), "{name}");
    }
}

#[test]
fn a_store_dropped_while_its_value_is_placed_keeps_no_window() {
    let rig = rig();
    let driver = Rc::new(rig.driver("cxl", 8));
    let value = contents(1_500, 4);
    rig.sim.block_on(|| {
        driver.store(key(1), Piece::Bytes(&value)).expect("stored");
        for _ in 0..3 {
            // Another task is due, so the store begins and ends while time passes.
            let clock = rig.sim.clone();
            rig.sim.spawn(move || clock.sleep(1));
            let (dropping, dropped) = (driver.clone(), value.clone());
            let store = rig.sim.spawn(move || dropping.store(key(2), Piece::Bytes(&dropped)));
            rig.sim.yield_now();
            assert!(store.try_take().is_none());
            store.cancel();
            for number in 3..9 {
                driver.store(key(number), Piece::Bytes(&value)).expect("stored");
            }
        }
    });
    assert_eq!(rig.stored(key(2)), None);
}

/// The drive may hold larger values than it accepts now: its image was made under another limit.
#[test]
fn a_pair_beyond_the_buffer_of_the_host_is_cut_as_a_retrieve_cuts_it() {
    let rig = rig_with(Sim::new(), 4096, 1, MockEngine::new(4_096));
    let driver = rig.driver("prp", 1);
    let value = contents(10_000, 5);
    let stored = Stored { content: Region::from_bytes(value.clone()), bytes: 10_000 };
    rig.namespace.engine().values.borrow_mut().insert(key(1), stored.into());
    rig.sim.block_on(|| {
        let mut region = Region::new();
        let (iterator, pair) = driver.seek(None, &mut region).expect("open");
        assert_eq!(pair.map(|pair| pair.value_bytes), Some(10_000));
        assert!(region.to_bytes(8_000) == value[..8_000]);
        driver.close(iterator).expect("open");
        assert_eq!(driver.retrieve(key(1), &mut region), Ok(10_000));
        assert!(region.to_bytes(4_096) == value[..4_096]);
    });
}

#[test]
fn the_trace_says_what_the_host_does_before_it_stores_into_a_window() {
    let rig = rig();
    let driver = rig.driver("cxl", 1);
    rig.crossed(&driver, 100);
    rig.sim.trace().start();
    rig.crossed(&driver, 100);
    let steps = rig.sim.trace().take();
    let set_up = steps.iter().find(|step| step.what == "set up a CXL store").expect("it is noted");
    let crossing = steps.iter().find(|step| step.purpose == Class::Cxl.name()).expect("it is noted");
    assert_eq!((set_up.room, set_up.span_ns), ("host", rig::HOST_COSTS.cxl_setup_ns));
    assert_eq!(set_up.at + set_up.span_ns, crossing.at);
}

#[test]
fn the_engine_learns_how_a_value_arrives() {
    let rig = rig();
    for (name, bytes, arrival) in [
        ("prp", 10, Arrival::Dma),
        ("sgl", 10, Arrival::Dma),
        ("piggyback", 5_000, Arrival::Inline),
        ("hybrid", 5_000, Arrival::Hybrid),
    ] {
        rig.crossed(&rig.driver(name, 1), bytes);
        assert_eq!(rig.namespace.engine().arrivals.borrow_mut().pop(), Some((bytes, arrival)));
    }
}

#[test]
fn what_is_stored_is_retrieved() {
    let rig = rig();
    for row in METHODS {
        let driver = rig.driver(row.name, 1);
        for bytes in [0, 1, 34, 35, 36, 91, 92, 4_095, 4_096, 4_097, 4_152, 8_192, 8_193, 20_000, 2 << 20] {
            if row.name.starts_with("piggyback") && bytes > 20_000 {
                continue; // 37 449 commands show nothing new
            }
            let value = contents(bytes, 2);
            rig.sim.block_on(|| {
                driver.store(key(7), Piece::Bytes(&value)).expect("stored");
                let mut region = Region::new();
                assert_eq!(driver.retrieve(key(7), &mut region), Ok(bytes), "{}", row.name);
                assert!(region.to_bytes(bytes) == value, "{}, {bytes} B", row.name);
            });
        }
    }
    assert_eq!(rig.namespace.engine().open_places.get(), 0);
}

#[test]
fn a_retrieve_moves_whole_pages_to_the_host() {
    let rig = rig();
    let driver = rig.driver("prp", 1);
    rig.crossed(&driver, 100);
    let before = rig.link.meter().payload();
    let found = rig.sim.block_on(|| driver.retrieve(key(1), &mut Region::new()));
    assert_eq!(found, Ok(100));
    let since = rig.link.meter().payload().since(&before);
    assert_eq!((since.total(), since.of(Class::ToHost)), (88 + 4_096, 4_096));
}

#[test]
fn keys_are_found_listed_walked_and_deleted() {
    let rig = rig();
    let driver = rig.driver("adaptive", 1);
    rig.sim.block_on(|| {
        let mut oracle = BTreeMap::new();
        for number in [5u32, 1, 9, 3, 7] {
            let value = contents(number * 700, u64::from(number));
            driver.store(key(number), Piece::Bytes(&value)).expect("stored");
            oracle.insert(key(number), value);
        }
        assert_eq!(driver.exist(key(3)), Ok(true));
        assert_eq!(driver.exist(key(4)), Ok(false));
        assert_eq!(driver.retrieve(key(4), &mut Region::new()), Err(Status::KEY_NOT_FOUND));
        let all: Vec<Key> = oracle.keys().copied().collect();
        assert_eq!(driver.list(None, 4_096).as_ref(), Ok(&all));
        assert_eq!(driver.list(Some(key(4)), 4_096), Ok(all[2..].to_vec()));
        let mut region = Region::new();
        let (iterator, mut pair) = driver.seek(Some(key(2)), &mut region).expect("open");
        driver.delete(key(9)).expect("deleted");
        driver.delete(key(9)).expect("deleting nothing succeeds");
        for number in [3, 5, 7, 9] {
            let found = pair.expect("the iterator has the state of its opening");
            assert_eq!((found.key, found.value_bytes), (key(number), number * 700));
            assert!(region.to_bytes(found.value_bytes) == oracle[&key(number)]);
            pair = driver.next(iterator, &mut region).expect("open");
        }
        assert_eq!(pair, None);
        driver.close(iterator).expect("open");
        assert_eq!(driver.close(iterator), Err(Status::NO_SUCH_ITERATOR));
        assert_eq!(driver.next(iterator, &mut region), Err(Status::NO_SUCH_ITERATOR));
        assert_eq!(driver.exist(key(9)), Ok(false));
        for _ in 0..4 {
            driver.seek(None, &mut region).expect("four may be open");
        }
        assert_eq!(driver.seek(None, &mut region), Err(Status::TOO_MANY_ITERATORS));
    });
}

#[test]
fn conditions_are_kept_and_travel_by_prp() {
    let rig = rig();
    let driver = rig.driver("piggyback", 1);
    let add = StoreOptions { add_only: true, ..StoreOptions::default() };
    let update = StoreOptions { update_only: true, ..StoreOptions::default() };
    rig.sim.block_on(|| {
        let store = |value: &'static [u8], options| driver.store_with(key(1), Piece::Bytes(value), options);
        assert_eq!(store(b"a", update), Err(Status::KEY_NOT_FOUND));
        assert_eq!(store(b"b", add), Ok(()));
        assert_eq!(store(b"c", add), Err(Status::KEY_EXISTS));
        assert_eq!(store(b"d", update), Ok(()));
    });
    assert_eq!(rig.stored(key(1)).as_deref(), Some(&b"d"[..]));
    assert!(rig.namespace.engine().arrivals.borrow().iter().all(|(_, arrival)| *arrival == Arrival::Dma));
    assert_eq!(rig.namespace.engine().open_places.get(), 0);
}

#[test]
fn a_value_that_is_too_large_never_leaves_the_host_and_is_refused_by_the_drive() {
    let rig = rig_with(Sim::new(), 4096, 1, MockEngine::new(10_000));
    let driver = rig.driver("prp", 1);
    let value = contents(10_001, 1);
    let before = rig.link.meter().payload();
    let refused = rig.sim.block_on(|| driver.store(key(1), Piece::Bytes(&value)));
    assert_eq!(refused, Err(Status::INVALID_VALUE_SIZE));
    assert_eq!(rig.link.meter().payload(), before);
    let queue = rig.link.create_queue(8);
    for sqe in [write(1, 10_001), write(1, u32::MAX), hybrid(1, 12_000, 1)] {
        assert_eq!(rig.raw(&queue, sqe), Status::INVALID_VALUE_SIZE);
    }
    assert_eq!(rig.raw(&queue, transfer()), Status::COMMAND_SEQUENCE_ERROR, "nothing was begun");
}

fn write(number: u32, value_bytes: u32) -> Sqe {
    let mut sqe = Command::Write(Write { key: key(number), value_bytes }).encode(0, 1);
    put_write(&mut sqe, &[number as u8; 35]);
    sqe
}

fn transfer() -> Sqe {
    let mut sqe = Sqe::new(opcode::TRANSFER, 0, 1);
    put_transfer(&mut sqe, &[0xEE; 56]);
    sqe
}

fn hybrid(number: u32, value_bytes: u32, pages_z: u32) -> Sqe {
    Command::Hybrid { key: key(number), value_bytes, pages_z }.encode(0, 1)
}

#[test]
fn a_write_inside_a_value_discards_it_and_is_refused_and_the_next_one_works() {
    let rig = rig();
    let queue = rig.link.create_queue(8);
    for intruder in [write(2, 10), hybrid(2, 5_000, 0)] {
        assert_eq!(rig.raw(&queue, write(1, 100)), Status::SUCCESS);
        assert_eq!(rig.namespace.engine().open_places.get(), 1);
        assert_eq!(rig.raw(&queue, intruder), Status::COMMAND_SEQUENCE_ERROR);
        assert_eq!(rig.namespace.engine().open_places.get(), 0, "discarded");
        assert_eq!(rig.raw(&queue, transfer()), Status::COMMAND_SEQUENCE_ERROR, "a stray transfer");
        assert_eq!((rig.stored(key(1)), rig.stored(key(2))), (None, None));
    }
    assert_eq!(rig.raw(&queue, write(2, 10)), Status::SUCCESS);
    assert_eq!(rig.stored(key(2)), Some(vec![2; 10]));
}

#[test]
fn nothing_is_visible_before_the_last_byte_and_other_commands_may_come_between() {
    let rig = rig();
    let queue = rig.link.create_queue(8);
    let exist = Command::Exist { key: key(3) }.encode(0, 1);
    assert_eq!(rig.raw(&queue, write(3, 100)), Status::SUCCESS);
    assert_eq!(rig.raw(&queue, exist), Status::KEY_NOT_FOUND);
    assert_eq!(rig.raw(&queue, transfer()), Status::SUCCESS);
    assert_eq!(rig.raw(&queue, exist), Status::KEY_NOT_FOUND, "9 bytes are missing");
    assert_eq!(rig.raw(&queue, transfer()), Status::SUCCESS);
    assert_eq!(rig.raw(&queue, exist), Status::SUCCESS);
    let expected = [[3; 35].as_slice(), &[0xEE; 65]].concat();
    assert_eq!(rig.stored(key(3)), Some(expected));
}

#[test]
fn unfinished_values_of_queues_do_not_mix_and_end_with_a_discard_or_their_queue() {
    let rig = rig();
    let queues = [rig.link.create_queue(8), rig.link.create_queue(8)];
    assert_eq!(rig.raw(&queues[0], write(1, 60)), Status::SUCCESS);
    assert_eq!(rig.raw(&queues[1], write(2, 60)), Status::SUCCESS);
    assert_eq!(rig.raw(&queues[1], transfer()), Status::SUCCESS);
    assert_eq!((rig.stored(key(1)).is_some(), rig.stored(key(2)).is_some()), (false, true));
    for _ in 0..2 {
        assert_eq!(
            rig.raw(&queues[0], Command::Discard { stream: 0 }.encode(0, 1)),
            Status::SUCCESS,
            "or nothing to discard"
        );
        assert_eq!(rig.namespace.engine().open_places.get(), 0);
    }
    assert_eq!(rig.raw(&queues[0], transfer()), Status::COMMAND_SEQUENCE_ERROR);
    assert_eq!(rig.raw(&queues[1], write(3, 60)), Status::SUCCESS);
    assert_eq!(rig.namespace.engine().open_places.get(), 1);
    rig.sim.block_on(|| rig.link.delete_queue(&queues[1]));
    assert_eq!(rig.namespace.engine().open_places.get(), 0);
    let next = rig.link.create_queue(8);
    assert_eq!(next.id(), queues[1].id());
    assert_eq!(rig.raw(&next, transfer()), Status::COMMAND_SEQUENCE_ERROR, "it is another one");
}

#[test]
fn a_failed_dma_leaves_nothing() {
    let rig = rig();
    let queue = rig.link.create_queue(8);
    let mut store = Command::Store(kvdrive_nvme::Store {
        key: key(1),
        value_bytes: 5_000,
        options: StoreOptions::default(),
    })
    .encode(0, 1);
    store.set_prps(0x1000, 0x2000);
    assert_eq!(rig.raw(&queue, store), Status::DATA_TRANSFER_ERROR);
    let mut tail = hybrid(1, 5_000, 0);
    tail.set_prps(0x1000, 0);
    assert_eq!(rig.raw(&queue, tail), Status::DATA_TRANSFER_ERROR);
    assert_eq!(rig.raw(&queue, transfer()), Status::COMMAND_SEQUENCE_ERROR);
    assert_eq!(rig.namespace.engine().open_places.get(), 0);
    assert!(rig.namespace.engine().values.borrow().is_empty());
}

/// Drivers of several queues, several commands at once each, several contexts or I/O threads, an engine that
/// takes time, events of one time in any order: every value is the last one stored under its key.
#[test]
fn stores_side_by_side_do_not_mix() {
    let threads = |io_threads| Dispatch::RoundRobin { io_threads, deal_ns: 100 };
    let dispatches = [rig::on_contexts(4), threads(1), rig::on_contexts(4), threads(3)];
    for (seed, dispatch) in (0..12).zip(dispatches.into_iter().cycle()) {
        let sim = Sim::permuted(seed);
        let rng = Rng::stream(seed, "jitter").into();
        let jitter = Some(Jitter { sim: sim.clone(), rng, below_ns: 5_000 });
        let rig = rig_on(sim, 1, dispatch, MockEngine { jitter, ..MockEngine::new(1 << 20) });
        let drivers: Vec<Driver> = METHODS.iter().map(|row| rig.driver(row.name, 4)).collect();
        let lanes = (0..drivers.len() as u32 * 4).map(|lane| {
            let driver = &drivers[lane as usize / 4];
            move || {
                for round in 0..6u32 {
                    let bytes = (lane * 1_009 + round * 2_741) % 9_000;
                    let value = contents(bytes, u64::from(lane * 6 + round));
                    driver.store(key(lane), Piece::Bytes(&value)).expect("stored");
                    let mut region = Region::new();
                    assert_eq!(driver.retrieve(key(lane), &mut region), Ok(bytes));
                    assert!(region.to_bytes(bytes) == value, "seed {seed}, lane {lane}, round {round}");
                }
            }
        });
        rig.sim.block_on(|| join_all(&rig.sim, lanes));
        assert_eq!(rig.namespace.engine().open_places.get(), 0);
    }
}
