//! Values that an engine stores in parts: small and large ones under the same keys, in batches, in front of
//! iterators, and the visibility of their parts' names to hosts.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_device::engines::{ENGINES, Largest};
use kvdrive_engines::divided::names::Names;
use kvdrive_host::Calls;
use kvdrive_host::modelled::Driver;
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::{Rng, Sim, join_all};

use super::batches::{Requests, apply, send_as};
use kvdrive_rigs::drive::{
    Bench, LARGE, Oracle, Stored, after_a_cut, check_all, check_one, config, cut_after_events, is_value, key,
    value,
};

const LARGE_BYTES: u32 = 200_000;

/// Settings for each engine that divides.
fn each_engine() -> impl Iterator<Item = Vec<String>> {
    let own = ENGINES
        .iter()
        .filter(|row| row.largest == Largest::Divided)
        .map(|row| format!("engine.name={}", row.name));
    own.map(|own| LARGE.iter().map(|set| (*set).to_owned()).chain([own]).collect())
}

fn put(driver: &Driver, oracle: &mut Oracle, key: Key, stored: Stored) {
    let stores = driver.store(key, Piece::Pattern(value(&key, stored)));
    assert_eq!(stores, Ok(()), "{key:?}, {stored:?}");
    oracle.pairs.insert(key, stored);
}

/// A host that uses the name of a part, of a head or of a slot finds no pair and changes nothing.
#[test]
fn names_of_parts_are_no_keys_of_hosts() {
    for settings in each_engine() {
        let bench = Bench::of(config(&settings), Sim::new());
        bench.sim.block_on(|| {
            let drive = bench.power_on(None).expect("an empty drive comes up");
            let (driver, mut oracle) = (bench.connect(), Oracle::of(&bench));
            let of_host = key(1, false);
            put(&driver, &mut oracle, of_host, Stored { version: 1, bytes: LARGE_BYTES });
            let names = Names::of_drive(drive.identity());
            let mut region = Region::new();
            for name in [names.part(0, 0), names.part(0, 1), names.head(0), names.slot(0)] {
                assert_eq!(
                    driver.store(name, Piece::Bytes(b"own")),
                    Err(Status::INVALID_FIELD),
                    "{settings:?}"
                );
                let atomic: Requests = vec![(key(2, false), None), (name, None)];
                assert_eq!(send_as(&driver, &atomic, true), (0, Status::INVALID_FIELD), "{settings:?}");
                assert_eq!(driver.retrieve(name, &mut region), Err(Status::KEY_NOT_FOUND), "{settings:?}");
                assert_eq!(driver.exist(name), Ok(false), "{settings:?}");
                assert_eq!(driver.delete(name), Ok(()), "{settings:?}");
            }
            check_all(&driver, &oracle);
            assert_eq!(drive.counts().section("engine").of("divided_values"), 1, "{settings:?}");
        });
        bench.sim.clear();
    }
}

/// Small and large values under one key, in every order; an iterator that was opened before returns the
/// values of that time, and the room of replaced values is freed afterwards.
#[test]
fn small_and_large_values_replace_each_other_under_an_iterator() {
    for settings in each_engine() {
        let bench = Bench::of(config(&settings), Sim::new());
        bench.sim.block_on(|| {
            let drive = bench.power_on(None).expect("an empty drive comes up");
            let (driver, mut oracle) = (bench.connect(), Oracle::of(&bench));
            let [large, small] = [LARGE_BYTES, 700];
            for (version, bytes) in [large, small, small, large, large, small].into_iter().enumerate() {
                let stored = Stored { version: version as u64, bytes };
                put(&driver, &mut oracle, key(version as u64 % 5, false), stored);
            }
            let mut before = oracle.clone();
            let mut region = Region::new();
            let (iterator, mut pair) = driver.seek(None, &mut region).expect("an iterator opens");
            for number in 0..5 {
                let bytes = if oracle.pairs[&key(number, false)].bytes == large { small } else { large };
                put(&driver, &mut oracle, key(number, false), Stored { version: 100 + number, bytes });
            }
            driver.delete(key(4, false)).expect("a delete never fails");
            oracle.pairs.remove(&key(4, false));
            check_all(&driver, &oracle);
            while let Some(found) = pair {
                let stored = before.pairs.remove(&found.key).expect("a pair that was there, once");
                assert_eq!(found.value_bytes, stored.bytes, "{settings:?}: {:?}", found.key);
                assert!(is_value(&region, &found.key, stored), "{settings:?}: {:?}", found.key);
                pair = driver.next(iterator, &mut region).expect("the iterator goes on");
            }
            assert_eq!(before.pairs.len(), 0, "{settings:?}: not every pair that was there");
            driver.close(iterator).expect("it closes");
            // Far more than the drive has room for, one after another.
            for version in 0..200 {
                put(&driver, &mut oracle, key(version % 3, false), Stored { version, bytes: large });
                check_one(&driver, &oracle, key(version % 3, false));
            }
            check_all(&driver, &oracle);
            let keys: Vec<Key> = oracle.pairs.keys().copied().collect();
            keys.iter().for_each(|key| driver.delete(*key).expect("a delete never fails"));
            let counts = drive.counts();
            let engine = counts.section("engine");
            assert_eq!((engine.of("divided_values"), engine.of("divided_bytes")), (0, 0), "{settings:?}");
            let of = |name| engine.of(&format!("divided_{name}"));
            assert_eq!(of("removed_parts"), of("stored_parts"), "{settings:?}: parts stayed");
            assert!(of("stored_values") > 200, "{settings:?}");
        });
        bench.sim.clear();
    }
}

/// An atomic batch that deletes a large value, replaces another by a small one and stores a third key: a cut
/// leaves all of it or nothing.
#[test]
fn a_power_cut_leaves_all_of_a_batch_over_large_values_or_nothing() {
    type States = (BTreeMap<Key, Stored>, BTreeMap<Key, Stored>);
    for settings in each_engine() {
        let config = config(&settings);
        let states = Rc::new(RefCell::new(States::default()));
        let [deleted, replaced, new] = [0, 1, 2].map(|number| key(number, false));
        let requests: Requests = vec![
            (deleted, None),
            (replaced, Some(Stored { version: 3, bytes: 300 })),
            (new, Some(Stored { version: 4, bytes: 10 })),
        ];
        let prepare = |driver: &Driver| {
            let mut oracle = Oracle::default();
            put(driver, &mut oracle, deleted, Stored { version: 1, bytes: LARGE_BYTES });
            put(driver, &mut oracle, replaced, Stored { version: 2, bytes: LARGE_BYTES });
            let mut after = oracle.pairs.clone();
            apply(&mut after, &requests);
            *states.borrow_mut() = (oracle.pairs, after);
        };
        let sent = requests.clone();
        let work = move |driver: &Driver| assert_eq!(send_as(driver, &sent, true), (3, Status::SUCCESS));
        let mut found = [0, 0];
        cut_after_events(&config, 1, prepare, work, |event, survivors| {
            let (before, after) = states.borrow().clone();
            let is = |driver: &Driver, pairs: &BTreeMap<Key, Stored>| {
                let mut region = Region::new();
                [deleted, replaced, new].iter().all(|key| {
                    match (driver.retrieve(*key, &mut region), pairs.get(key)) {
                        (Ok(bytes), Some(stored)) => bytes == stored.bytes && is_value(&region, key, *stored),
                        (Err(Status::KEY_NOT_FOUND), None) => true,
                        _ => false,
                    }
                })
            };
            let now = after_a_cut(&config, survivors, |driver| (is(driver, &before), is(driver, &after)));
            match now {
                (true, false) => found[0] += 1,
                (false, true) => found[1] += 1,
                _ => panic!("{settings:?}: after event {event} neither the one nor the other"),
            }
        });
        assert!(found[0] > 0 && found[1] > 0, "{settings:?}: {found:?}");
    }
}

/// Random cuts of the same drive, each during the recovery from the one before.
#[test]
fn parts_of_values_that_were_cut_are_removed_however_often_that_is_cut() {
    for settings in each_engine() {
        let config = config(&settings);
        let prepare = |_: &Driver| ();
        let work = |driver: &Driver| {
            let mut oracle = Oracle::default();
            put(driver, &mut oracle, key(0, false), Stored { version: 1, bytes: LARGE_BYTES });
            put(driver, &mut oracle, key(0, false), Stored { version: 2, bytes: LARGE_BYTES });
        };
        cut_after_events(&config, 97, prepare, work, |event, survivors| {
            let mut rng = Rng::stream(event, "cuts");
            let mut survivors = survivors.clone();
            for _ in 0..3 {
                let ask = |driver: &Driver| driver.exist(key(1, false));
                let (asked, midway, _) = kvdrive_rigs::drive::cut_again(&config, &survivors, &mut rng, ask);
                assert_eq!(asked, Ok(false), "{settings:?}: event {event}");
                survivors = midway;
            }
            let bench = Bench::of(config.clone(), Sim::new());
            bench.sim.block_on(|| {
                let drive = bench.power_on(Some(&survivors)).expect("it comes up");
                let (driver, mut oracle) = (bench.connect(), Oracle::of(&bench));
                let _ = driver.exist(key(0, false));
                // At most one divided value is left.
                let counts = drive.counts();
                let engine = counts.section("engine");
                let values = engine.get("divided_values").unwrap_or(0);
                assert!(values <= 1, "{settings:?}: event {event}");
                for number in 0..8 {
                    put(&driver, &mut oracle, key(number, false), Stored { version: 9, bytes: LARGE_BYTES });
                }
                check_all(&driver, &oracle);
            });
            bench.sim.clear();
        });
    }
}

/// If a key's value changes its size while an iterator or a list is opened, the key is returned once.
#[test]
fn a_key_whose_value_is_being_replaced_is_shown_once() {
    const KEYS: u64 = 6;
    for settings in each_engine() {
        let bench = Bench::of(config(&settings), Sim::new());
        bench.sim.block_on(|| {
            let _drive = bench.power_on(None).expect("an empty drive comes up");
            let (writer, reader, mut oracle) = (bench.connect(), bench.connect(), Oracle::of(&bench));
            for number in 0..KEYS {
                put(&writer, &mut oracle, key(number, false), Stored { version: 0, bytes: LARGE_BYTES });
            }
            let ended = Cell::new(false);
            let write = || {
                for version in 1..40 {
                    let bytes = if version % 2 == 0 { LARGE_BYTES } else { 300 };
                    put(&writer, &mut oracle, key(version / 2 % KEYS, false), Stored { version, bytes });
                }
                ended.set(true);
            };
            let read = || {
                let mut region = Region::new();
                while !ended.get() {
                    let (iterator, mut pair) = reader.seek(None, &mut region).expect("an iterator opens");
                    let mut shown = Vec::new();
                    while let Some(found) = pair {
                        shown.push(found.key);
                        pair = reader.next(iterator, &mut region).expect("the iterator goes on");
                    }
                    reader.close(iterator).expect("it closes");
                    for from in [None, Some(key(1, false))] {
                        let listed = reader.list(from, 4096).expect("a list succeeds");
                        if from.is_none() {
                            shown.extend(listed);
                        } else {
                            assert_eq!(listed.first(), from.as_ref(), "{settings:?}");
                        }
                    }
                    shown.sort_unstable();
                    let expected = (0..KEYS).flat_map(|number| [key(number, false); 2]);
                    let mut expected: Vec<Key> = expected.collect();
                    expected.sort_unstable();
                    assert_eq!(shown, expected, "{settings:?}");
                }
            };
            let tasks: [Box<dyn FnOnce()>; 2] = [Box::new(write), Box::new(read)];
            join_all(&bench.sim, tasks);
        });
        bench.sim.clear();
    }
}
