//! Commands of the modelled host that are dropped in progress: other commands continue, whichever part of the
//! dropped ones the drive has.

use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_device::namespaces::kv::KvNamespace;
use kvdrive_host::Calls;
use kvdrive_host::modelled::{Driver, Host};
use kvdrive_link::transfer::{METHODS, TransferConfig, method};
use kvdrive_link::{Class, Link, LocalMemory};
use kvdrive_nvme::Key;
use kvdrive_sim::{Ns, Resource, Rng, Sim, TaskCell, join_all};

use super::mock_engine::MockEngine;
use super::rig;

struct Rig {
    sim: Sim,
    link: Rc<Link>,
    namespace: Rc<KvNamespace<MockEngine>>,
    driver: Rc<Driver>,
}

fn rig(method_name: &str, contexts: u32, depth: u32) -> Rig {
    rig_with(method_name, contexts, depth, MockEngine::new(1 << 20))
}

fn rig_with(method_name: &str, contexts: u32, depth: u32, engine: MockEngine) -> Rig {
    let (sim, memory) = (Sim::new(), Rc::new(LocalMemory::new()));
    let (link, namespace) = rig::start(&sim, memory.clone(), rig::link_config(64), contexts, engine);
    let core = Rc::new(Resource::new(&sim, "host", 1));
    let host =
        sim.block_on(|| Host::connect(link.clone(), memory, core, rig::HOST_COSTS)).expect("Identify works");
    let config = TransferConfig {
        method: method_name.into(),
        threshold1_bytes: 128,
        threshold2_bytes: 64,
        alpha: 1.0,
        beta: 1.0,
        own: None,
    };
    let choice = method(&config).expect("a row");
    let driver = sim.block_on(|| Driver::connect(&host, choice, 40, depth)).expect("a queue pair");
    let driver = Rc::new(driver);
    Rig { sim, link, namespace, driver }
}

fn key(number: u32) -> Key {
    Key::from_u32_be(number)
}

fn contents(number: u32, bytes: u32) -> Vec<u8> {
    let mut value = vec![0; bytes as usize];
    Rng::stream(number.into(), "contents").fill(&mut value);
    value
}

/// Begins `body` as a task and drops it after `span`; `true` if it had ended by then.
fn drop_after<T: 'static>(sim: &Sim, span: Ns, body: impl FnOnce() -> T + 'static) -> bool {
    let task = sim.spawn(body);
    sim.sleep(span);
    sim.yield_now();
    let has_ended = task.try_take().is_some();
    task.cancel();
    has_ended
}

/// Stored values are whole; dropped ones are whole or absent.
fn check(rig: &Rig, number: u32, bytes: u32, is_there: bool) {
    let mut found = Region::new();
    match rig.driver.retrieve(key(number), &mut found) {
        Ok(size) => assert!(size == bytes && found.to_bytes(bytes) == contents(number, bytes), "{number}"),
        Err(status) => assert!(!is_there, "key {number}: {status}"),
    }
}

/// Drops a store `at` after its start, followed by another store, and waits for all others. `true`: the store
/// had ended before.
fn drop_stores(name: &str, bytes: u32, contexts: u32, depth: u32, at: Ns) -> bool {
    let rig = rig(name, contexts, depth);
    let has_ended = rig.sim.block_on(|| {
        let (driver, sim) = (&rig.driver, &rig.sim);
        let value = |number| contents(number, bytes);
        driver.store(key(1), Piece::Bytes(&value(1))).expect("stored");
        let store = |number| {
            let (driver, dropped) = (driver.clone(), value(number));
            move || driver.store(key(number), Piece::Bytes(&dropped))
        };
        let has_ended = drop_after(sim, at, store(2));
        drop_after(sim, at / 2, store(3));
        let values: Vec<_> = (4..10).map(|number| (number, value(number))).collect();
        let stores = values.iter().map(|(number, value)| || driver.store(key(*number), Piece::Bytes(value)));
        for (stored, number) in join_all(sim, stores).into_iter().zip(4..) {
            assert_eq!(stored, Ok(()), "{name}, {bytes} B, key {number}, dropped at {at}");
        }
        for number in 1..10 {
            check(&rig, number, bytes, number == 1 || number > 3 || number == 2 && has_ended);
        }
        has_ended
    });
    rig.sim.run();
    assert_eq!(rig.namespace.engine().open_places.get(), 0, "{name}, {bytes} B, dropped at {at}");
    has_ended
}

#[test]
fn a_dropped_store_gives_its_slot_back_and_leaves_no_half_value() {
    for row in METHODS {
        for (bytes, contexts, depth) in [(20, 1, 1), (300, 1, 1), (300, 2, 3), (4_160, 2, 3), (9_000, 1, 2)] {
            let (mut at, mut drops) = (0, 0);
            while !drop_stores(row.name, bytes, contexts, depth, at) {
                drops += 1;
                at += 50 + at / 20;
                assert!(at < 10_000_000, "{}, {bytes} B: a store takes no 10 ms", row.name);
            }
            assert!(drops > 10, "{}, {bytes} B: {drops} stores dropped", row.name);
        }
    }
}

#[test]
fn other_commands_that_are_dropped_give_their_slot_back() {
    let bytes = 5_000;
    for at in (0..20_000).step_by(130) {
        let rig = rig("prp", 1, 1);
        rig.sim.block_on(|| {
            let (driver, sim) = (&rig.driver, &rig.sim);
            driver.store(key(1), Piece::Bytes(&contents(1, bytes))).expect("stored");
            drop_after(sim, at, {
                let driver = driver.clone();
                move || driver.retrieve(key(1), &mut Region::new())
            });
            drop_after(sim, at, {
                let driver = driver.clone();
                move || driver.exist(key(1))
            });
            drop_after(sim, at, {
                let driver = driver.clone();
                move || driver.list(None, 4096)
            });
            check(&rig, 1, bytes, true);
            assert_eq!(driver.list(None, 4096), Ok(vec![key(1)]));
        });
    }
}

#[test]
fn a_seek_that_is_dropped_leaves_no_iterator() {
    for at in (0..12_000).step_by(110) {
        let rig = rig("prp", 2, 2);
        rig.sim.block_on(|| {
            let (driver, sim) = (&rig.driver, &rig.sim);
            driver.store(key(1), Piece::Bytes(&contents(1, 100))).expect("stored");
            let mut opened = 0;
            for _ in 0..6 {
                let driver = driver.clone();
                opened += u32::from(drop_after(sim, at, move || driver.seek(None, &mut Region::new())));
            }
            // The drive has four iterators.
            let mut into = Region::new();
            for _ in opened..4 {
                let (_, pair) = driver.seek(None, &mut into).expect("those that were dropped are closed");
                assert_eq!(pair.map(|pair| pair.key), Some(key(1)));
            }
        });
    }
}

/// The drive has passed the pair of a dropped NEXT; the next NEXT returns it.
#[test]
fn a_next_that_is_dropped_loses_no_pair() {
    const PAIRS: u32 = 8;
    let mut dropped = 0;
    for at in (0..6_000).step_by(90) {
        let rig = rig("prp", 2, 2);
        rig.sim.block_on(|| {
            let (driver, sim) = (&rig.driver, &rig.sim);
            for number in 0..PAIRS {
                driver.store(key(number), Piece::Bytes(&contents(number, 100))).expect("stored");
            }
            let (iterator, first) = driver.seek(None, &mut Region::new()).expect("it has an iterator");
            let seen: Rc<TaskCell<Vec<_>>> = Rc::new(TaskCell::new(vec![(first, contents(0, 100))]));
            let next = || {
                let (driver, seen) = (driver.clone(), seen.clone());
                move || {
                    let mut into = Region::new();
                    let pair = driver.next(iterator, &mut into).expect("the iterator is open");
                    seen.borrow_mut().push((pair, into.to_bytes(100)));
                }
            };
            for turn in 0.. {
                if turn % 3 == 2 {
                    next()();
                } else {
                    dropped += u32::from(!drop_after(sim, at, next()));
                }
                if seen.borrow().last().is_some_and(|(pair, _)| pair.is_none()) {
                    break;
                }
            }
            let seen = seen.take();
            assert_eq!(seen.len() as u32, PAIRS + 1, "dropped after {at}");
            for ((pair, value), number) in seen.into_iter().zip(0..PAIRS) {
                assert_eq!(pair.map(|pair| pair.key), Some(key(number)), "dropped after {at}");
                assert!(value == contents(number, 100), "the value of key {number}, dropped after {at}");
            }
            assert_eq!(driver.close(iterator), Ok(()));
        });
    }
    assert!(dropped > 200, "{dropped} dropped");
}

/// Queue entries of small stores into a window, after a large store by DMA that was dropped `at` after its
/// start. `None`: the large store had ended before.
fn entries_after_a_drop(at: Ns) -> Option<u64> {
    let engine = MockEngine { window_bytes: 65_536, ..MockEngine::new(1 << 20) };
    let rig = rig_with("adaptive-cxl", 2, 2, engine);
    let small = contents(1, 50);
    rig.sim.block_on(|| {
        rig.driver.store(key(1), Piece::Bytes(&small)).expect("it opens a window");
        let (driver, large) = (rig.driver.clone(), contents(2, 4_000));
        if drop_after(&rig.sim, at, move || driver.store(key(2), Piece::Bytes(&large))) {
            return None;
        }
        rig.sim.sleep(1_000_000);
        let before = rig.link.meter().payload();
        for number in 0..200 {
            rig.driver.store(key(3 + number), Piece::Bytes(&small)).expect("stored");
        }
        Some(rig.link.meter().payload().since(&before).of(Class::Sqe) / 64)
    })
}

#[test]
fn what_was_granted_of_a_window_to_a_dropped_store_comes_back() {
    let entries: Vec<u64> = (0..).step_by(97).map_while(entries_after_a_drop).collect();
    assert!(entries.len() > 20, "{entries:?}");
    // 200 values of a cache line each; if the window had ended at the grant, it would have to be replaced.
    assert!(entries.iter().all(|entries| *entries == 200), "{entries:?}");
}
