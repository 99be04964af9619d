//! Atomic batches on whole drives: all of a batch or nothing, on a full drive, after power cuts, and as seen
//! by concurrent readers and writers of the same keys.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_config::setup;
use kvdrive_content::{Piece, Region};
use kvdrive_device::engines::ENGINES;
use kvdrive_host::Calls;
use kvdrive_host::modelled::Driver;
use kvdrive_host::modelled::saker::Handle;
use kvdrive_nvme::identify::{AtomicLimits, BatchLimits};
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_saker::Ending;
use kvdrive_sim::{Rng, Sim, join_all};

use super::batches::{Requests, apply, requests_of, send_as, send_value, structured};
use kvdrive_rigs::drive::{
    Bench, Oracle, Stored, after_a_cut, check_all, config, cut_after_events, cut_again, is_value, key,
    usual_and_flat,
};

/// The limits of atomic batches from Identify. Every engine takes some.
fn atomic_limits(driver: &Driver) -> AtomicLimits {
    batch_limits(driver).atomic.expect("every engine takes atomic batches")
}

fn batch_limits(driver: &Driver) -> BatchLimits {
    driver.host().identify().expect("it answers").vendor.batches().expect("every engine takes batches")
}

/// All of an atomic batch is carried out, or none, also if the drive is too full for its last request.
#[test]
fn an_atomic_batch_is_carried_out_wholly_or_not_at_all() {
    for engine in ENGINES {
        for (seed, settings) in (1..).zip(usual_and_flat(&[&format!("engine.name={}", engine.name)])) {
            let bench = Bench::of(config(&settings), Sim::new());
            bench.sim.block_on(|| {
                let drive = bench.power_on(None).expect("an empty drive comes up");
                let driver = bench.connect();
                let (mut oracle, mut rng) = (Oracle::of(&bench), Rng::stream(seed, "atomic"));
                // Twelve small requests take 13 000 B at most.
                let large_bytes = (atomic_limits(&driver).bytes.min(38_000) - 13_000) / 2;
                let mut refused = 0;
                for round in 0..300u64 {
                    let mut requests = requests_of(&mut rng, &[0, 1, 16, 35, 300, 1_000]);
                    // The drive is filled with pairs that stay, in batches that have other keys, too.
                    let large = Stored { version: round, bytes: large_bytes };
                    requests.extend((0..2).map(|n| (key(1000 + 2 * round + n, false), Some(large))));
                    match send_as(&driver, &requests, true) {
                        (applied, Status::SUCCESS) => {
                            assert_eq!(applied, requests.len());
                            apply(&mut oracle.pairs, &requests);
                        }
                        (applied, Status::CAPACITY_EXCEEDED) => {
                            assert_eq!(applied, 0);
                            refused += 1;
                        }
                        other => panic!("{settings:?}: {other:?}"),
                    }
                    if refused % 8 == 1 {
                        check_all(&driver, &oracle);
                    }
                    if refused == 40 {
                        break;
                    }
                }
                assert!(refused > 0, "{settings:?}: the drive was never full");
                // Deletes succeed nevertheless.
                let keys: Vec<Key> = oracle.pairs.keys().copied().collect();
                for keys in keys[keys.len() / 2..].chunks(10) {
                    let requests: Requests = keys.iter().map(|key| (*key, None)).collect();
                    let answer = send_as(&driver, &requests, true);
                    assert_eq!(answer, (keys.len(), Status::SUCCESS), "{settings:?}");
                    apply(&mut oracle.pairs, &requests);
                }
                check_all(&driver, &oracle);
                drive.drain();
                check_all(&driver, &oracle);
            });
            bench.sim.clear();
        }
    }
}

/// A batch with the number of requests, or of bytes, in Identify is taken; one more is not.
#[test]
fn the_largest_atomic_batches_are_those_that_identify_names() {
    for engine in ENGINES {
        let settings = [format!("engine.name={}", engine.name)];
        let bench = Bench::of(config(&settings), Sim::new());
        bench.sim.block_on(|| {
            let _drive = bench.power_on(None).expect("an empty drive comes up");
            let driver = bench.connect();
            let limits = atomic_limits(&driver);
            // 16 B of head, and 8 B for each request, with keys of 4 B.
            let small = |count: u32| (0..count).map(|n| (Key::from_u32_be(n), Some(Vec::new())));
            let most = limits.requests.min((limits.bytes - 16) / 12);
            let answer = send_value(&driver, structured(small(most), true));
            assert_eq!(answer, (most as usize, Status::SUCCESS), "{settings:?}");
            let longest = |more: u32| [(key(0, false), Some(vec![7; (limits.bytes - 32 + more) as usize]))];
            assert_eq!(
                send_value(&driver, structured(longest(0), true)),
                (1, Status::SUCCESS),
                "{settings:?}"
            );
            let refused = (0, Status::INVALID_VALUE_SIZE);
            if limits.bytes < batch_limits(&driver).bytes {
                assert_eq!(send_value(&driver, structured(longest(1), true)), refused, "{settings:?}");
            }
            if most == limits.requests && (most + 1) * 12 + 16 <= limits.bytes {
                assert_eq!(send_value(&driver, structured(small(most + 1), true)), refused, "{settings:?}");
            }
            let mut into = Region::new();
            let there = |key: Key, into: &mut Region| driver.retrieve(key, into);
            assert_eq!(there(Key::from_u32_be(most - 1), &mut into), Ok(0));
            assert_eq!(there(Key::from_u32_be(most), &mut into), Err(Status::KEY_NOT_FOUND));
            assert_eq!(there(key(0, false), &mut into), Ok(limits.bytes - 32));
        });
        bench.sim.clear();
    }
}

/// Key of the pair for which a full drive has no room.
const LARGE: u64 = 3000;

/// The acknowledged state, and the state after the batch in progress.
type States = (BTreeMap<Key, Stored>, Option<BTreeMap<Key, Stored>>);

/// The state of a drive: `true`: that after the batch in progress; `false`: that before it.
fn is_after(driver: &Driver, (had, next): &States) -> Result<bool, String> {
    let is = |pairs: &BTreeMap<Key, Stored>| {
        let mut region = Region::new();
        let mut keys = (0..20).chain([LARGE]).map(|number| key(number, false));
        keys.find_map(|key| match (driver.retrieve(key, &mut region), pairs.get(&key)) {
            (Ok(bytes), Some(stored)) if bytes == stored.bytes && is_value(&region, &key, *stored) => None,
            (Err(Status::KEY_NOT_FOUND), None) => None,
            (answer, _) => Some((key, answer)),
        })
    };
    let not_next = next.as_ref().map(is);
    match (not_next, is(had)) {
        (Some(None), _) => Ok(true),
        (_, None) => Ok(false),
        (after, before) => Err(format!("{before:?} is not as before, {after:?} not as after the batch")),
    }
}

/// Batches with a cut after every `every` events, after some batches without cuts.
struct Run {
    sizes: &'static [u32],
    before: u32,
    batches: u32,
    every: u64,
    /// The drive is full: it has no room for the last request of a batch.
    is_full: bool,
    settings: &'static [&'static str],
}

/// Every event of a short run, in which the memtable is written and the store synchronised; a longer run, in
/// which garbage is collected; and a run on a full drive, on which a batch that a cut interrupted still has
/// no room.
const RUNS: [Run; 3] = [
    Run {
        sizes: &[0, 1, 16, 35, 300, 600],
        before: 9,
        batches: 4,
        every: 1,
        is_full: false,
        settings: &["lsm.memtable_entries=16", "anykey.memtable_entries=16", "store.operations_bytes=16384"],
    },
    Run {
        sizes: &[16, 300, 2_000, 2_400],
        before: 150,
        batches: 40,
        every: 29,
        is_full: false,
        settings: &["flash.blocks_per_die=20"],
    },
    Run { sizes: &[1, 16], before: 2, batches: 4, every: 7, is_full: true, settings: &[] },
];

/// After a cut the drive has the state before or after the batch that was in progress, and keeps it after
/// another cut.
#[test]
fn a_power_cut_leaves_all_of_an_atomic_batch_or_nothing() {
    for engine in ENGINES {
        for Run { sizes, before, batches, every, is_full, settings } in RUNS {
            let own = format!("engine.name={}", engine.name);
            let settings: Vec<&str> = std::iter::once(own.as_str()).chain(settings.iter().copied()).collect();
            for (seed, settings) in (1..).zip(usual_and_flat(&settings)) {
                let config = config(&settings);
                let states = Rc::new(RefCell::new(States::default()));
                let send_next =
                    move |states: &RefCell<States>, driver: &Driver, rng: &mut Rng, with_large| {
                        let mut requests = requests_of(rng, sizes);
                        if with_large {
                            requests.push((key(LARGE, false), Some(Stored { version: 1, bytes: 24_000 })));
                        }
                        let had = states.borrow().0.clone();
                        let mut next = had.clone();
                        apply(&mut next, &requests);
                        states.borrow_mut().1 = Some(next.clone());
                        let now = match send_as(driver, &requests, true) {
                            (applied, Status::SUCCESS) if applied == requests.len() => next,
                            (0, Status::CAPACITY_EXCEEDED) if with_large => had,
                            other => panic!("{other:?}"),
                        };
                        *states.borrow_mut() = (now, None);
                    };
                let mut rng = Rng::stream(seed, "atomic");
                let prepare = |driver: &Driver| {
                    (0..before).for_each(|_| send_next(&states, driver, &mut rng, false));
                    let value = [7; 12_000];
                    let fill = |number: u64| driver.store(key(1000 + number, false), Piece::Bytes(&value));
                    let end = (0..if is_full { 1000u64 } else { 0 }).map(fill).find(Result::is_err);
                    assert_eq!(end, is_full.then_some(Err(Status::CAPACITY_EXCEEDED)));
                };
                let (sending, mut more) = (states.clone(), Rng::stream(seed, "atomic, cut"));
                let work = move |driver: &Driver| {
                    (0..batches).for_each(|_| send_next(&sending, driver, &mut more, is_full));
                };
                let found = [const { Cell::new(0) }; 2];
                cut_after_events(&config, every, prepare, work, |event, survivors| {
                    let states = states.borrow().clone();
                    let ask = |driver: &Driver| is_after(driver, &states);
                    let place = || format!("{settings:?}, after event {event}");
                    let first =
                        after_a_cut(&config, survivors, ask).unwrap_or_else(|e| panic!("{}: {e}", place()));
                    let count = &found[usize::from(first)];
                    count.set(count.get() + 1);
                    if event % 8 == 0 {
                        let mut rng = Rng::stream(event, "second cut");
                        let known = states.clone();
                        let ask = move |driver: &Driver| is_after(driver, &known);
                        let (then, midway, end) = cut_again(&config, survivors, &mut rng, ask);
                        assert_eq!(then, Ok(first), "{}, once more", place());
                        let ask = |driver: &Driver| is_after(driver, &states);
                        let midway = after_a_cut(&config, &midway, ask);
                        assert!(midway.is_ok(), "{}, cut again: {midway:?}", place());
                        assert_eq!(after_a_cut(&config, &end, ask), Ok(first), "{}, read and cut", place());
                    }
                });
                assert!(states.borrow().1.is_none(), "{settings:?}: all were sent");
                let [before, after] = found.map(Cell::into_inner);
                assert!(
                    before > 0 && (after > 0 || every > 1),
                    "{settings:?}: {before} before and {after} after"
                );
            }
        }
    }
}

/// Batches give some keys one version after another, and make either of two keys exist. A reader of two keys
/// in turn never finds the second one older, and a cursor walks over the pairs of one version.
#[test]
fn readers_find_the_state_before_a_batch_or_after_it() {
    const KEYS: u64 = 5;
    const EITHER: [u64; 2] = [100, 101];
    let batch = |version: u64| {
        let value = [&version.to_le_bytes()[..], &vec![9; (version % 7 * 60) as usize]].concat();
        let all = (0..KEYS).map(move |number| (key(number, false), Some(value.clone())));
        let [gone, there] = [version % 2, 1 - version % 2].map(|which| key(EITHER[which as usize], false));
        structured(all.chain([(gone, None), (there, Some(version.to_le_bytes().to_vec()))]), true)
    };
    let version_in = |into: &Region| u64::from_le_bytes(into.to_bytes(8).try_into().expect("8 bytes"));
    for engine in ENGINES {
        for seed in 1..4 {
            let [_, settings] =
                usual_and_flat(&[&format!("engine.name={}", engine.name), "lsm.memtable_entries=16"]);
            let bench = Bench::of(config(&settings), Sim::permuted(seed));
            let (drive, drivers) = bench.sim.block_on(|| {
                let drive = bench.power_on(None).expect("an empty drive comes up");
                let drivers: Vec<Driver> = (0..4).map(|_| bench.connect()).collect();
                assert_eq!(send_value(&drivers[0], batch(1)).1, Status::SUCCESS);
                (drive, drivers)
            });
            let (done, pairs_read, walks) = (Cell::new(false), Cell::new(0), Cell::new(0));
            let tasks = drivers.iter().zip(0u64..).map(|(driver, number)| {
                let (done, pairs_read, walks, settings) = (&done, &pairs_read, &walks, &settings);
                move || {
                    let (mut rng, mut into) = (Rng::stream(seed, &format!("reader {number}")), Region::new());
                    if number == 0 {
                        for version in 2..120 {
                            assert_eq!(send_value(driver, batch(version)).1, Status::SUCCESS, "{settings:?}");
                        }
                        return done.set(true);
                    }
                    while !done.get() {
                        if number == 3 {
                            let (iterator, mut next) = driver.seek(None, &mut into).expect("it opens");
                            let (mut versions, mut count) = (Vec::new(), 0);
                            while next.is_some() {
                                versions.push(version_in(&into));
                                count += 1;
                                next = driver.next(iterator, &mut into).expect("it goes on");
                            }
                            driver.close(iterator).expect("it is open");
                            versions.dedup();
                            assert_eq!((versions.len(), count), (1, KEYS + 1), "{settings:?}: {versions:?}");
                            walks.set(walks.get() + 1);
                            continue;
                        }
                        let [first, second] = [(); 2].map(|()| {
                            driver.retrieve(key(rng.below(KEYS), false), &mut into).expect("it is there");
                            version_in(&into)
                        });
                        assert!(first <= second, "{settings:?}: {first}, then {second}");
                        pairs_read.set(pairs_read.get() + 1);
                    }
                }
            });
            bench.sim.block_on(|| join_all(&bench.sim, tasks));
            assert!(pairs_read.get() > 100 && walks.get() > 5, "{settings:?}: {pairs_read:?}, {walks:?}");
            drop((drive, drivers));
            bench.sim.clear();
        }
    }
}

/// A batch against a store whose condition is that its key exists, or does not: whichever comes first, the
/// batch's value is the last. After a power cut, batches and stores of shared keys are as before it: there is
/// one order of them.
#[test]
fn batches_and_stores_of_one_key_are_ordered() {
    for engine in ENGINES {
        for seed in 1..4 {
            let [_, settings] = usual_and_flat(&[&format!("engine.name={}", engine.name)]);
            let config = config(&settings);
            let bench = Bench::of(config.clone(), Sim::permuted(seed));
            let (drive, drivers) = bench.sim.block_on(|| {
                let drive = bench.power_on(None).expect("an empty drive comes up");
                (drive, [(); 3].map(|()| bench.connect()))
            });
            let mut rng = Rng::stream(seed, "races");
            let answers = RefCell::new(Vec::new());
            for round in 0..60 {
                let (raced, other) = (key(1000 + round % 9, false), key(round % 20, false));
                let is_store = rng.one_in(2);
                let [is_long, delay_ns] = [rng.below(3), rng.below(12_000)];
                let options =
                    StoreOptions { add_only: is_store, update_only: !is_store, ..StoreOptions::default() };
                bench.sim.block_on(|| {
                    let [batching, storing, mixing] = &drivers;
                    match is_store {
                        true => batching.delete(raced).expect("a delete never fails"),
                        false => batching.store(raced, Piece::Bytes(b"first")).expect("there is room"),
                    }
                    let own = is_store.then(|| vec![1; 500 * is_long as usize]);
                    let shared = vec![round as u8; 30];
                    let value = structured([(other, Some(shared)), (raced, own.clone())], true);
                    let tasks: [Box<dyn FnOnce() + '_>; 3] = [
                        Box::new(|| assert_eq!(send_value(batching, value).1, Status::SUCCESS)),
                        Box::new(|| {
                            bench.sim.sleep(delay_ns);
                            let stored = storing.store_with(raced, Piece::Bytes(b"theirs"), options);
                            answers.borrow_mut().push(stored);
                        }),
                        Box::new(|| {
                            bench.sim.sleep(delay_ns / 2);
                            mixing.store(other, Piece::Bytes(b"third")).expect("there is room");
                        }),
                    ];
                    join_all(&bench.sim, tasks);
                    let mut into = Region::new();
                    let found = batching.retrieve(raced, &mut into).map(|bytes| into.to_bytes(bytes));
                    assert_eq!(found, own.ok_or(Status::KEY_NOT_FOUND), "{settings:?}, round {round}");
                });
            }
            let answers = answers.into_inner();
            for answer in [Ok(()), Err(Status::KEY_EXISTS), Err(Status::KEY_NOT_FOUND)] {
                assert!(answers.contains(&answer), "{settings:?}: never {answer:?}");
            }
            let all = |driver: &Driver| {
                let mut into = Region::new();
                let mut value =
                    |number| driver.retrieve(key(number, false), &mut into).map(|bytes| into.to_bytes(bytes));
                (0..20).map(&mut value).collect::<Vec<_>>()
            };
            let here = bench.sim.block_on(|| all(&drivers[0]));
            let survivors = drive.survivors(&mut Rng::stream(seed, "cut"));
            assert_eq!(after_a_cut(&config, &survivors, all), here, "{settings:?}");
            drop((drive, drivers));
            bench.sim.clear();
        }
    }
}

const ACCOUNTS: u64 = 4;
/// What is in each account at the beginning.
const EACH: u64 = 1_000;

fn number_in(result: Result<u32, Status>, into: &Region) -> u64 {
    let bytes = into.to_bytes(result.expect("every account is there"));
    u64::from_le_bytes(bytes.try_into().expect("a number"))
}

/// What the clients of one drive have committed.
struct Committed {
    expected: RefCell<Vec<i64>>,
    conflicts: Cell<u32>,
    audits: Cell<u32>,
}

/// One transaction: an amount goes from one account to another one; or, if both are the same, all are read.
fn transfer(handle: &mut Handle<'_>, rng: &mut Rng, committed: &Committed) {
    let mut into = Region::new();
    let (from, to) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
    let is_audit = from == to;
    let mut transaction = handle.transaction();
    let mut read = |account: u64| number_in(transaction.retrieve(key(account, false), &mut into), &into);
    let found: Vec<u64> = (0..ACCOUNTS)
        .map(|account| {
            let is_read = is_audit || [from, to].contains(&account);
            if is_read { read(account) } else { 0 }
        })
        .collect();
    let amount = rng.below(20).min(found[from as usize]);
    if !is_audit {
        for (account, now) in
            [(from, found[from as usize] - amount), (to, found[to as usize].wrapping_add(amount))]
        {
            let stored = transaction.store(key(account, false), Piece::Bytes(&now.to_le_bytes()));
            stored.expect("it fits");
        }
    }
    match transaction.commit().expect("the drive takes it") {
        Ending::Conflict => committed.conflicts.set(committed.conflicts.get() + 1),
        Ending::Committed if is_audit => {
            assert_eq!(found.iter().sum::<u64>(), ACCOUNTS * EACH);
            committed.audits.set(committed.audits.get() + 1);
        }
        Ending::Committed => {
            committed.expected.borrow_mut()[from as usize] -= amount as i64;
            committed.expected.borrow_mut()[to as usize] += amount as i64;
        }
    }
}

/// Clients move amounts between accounts by transactions. The accounts that a committed transaction has read
/// add up, and in the end each account has the sum of the committed transfers, also after a power cut.
#[test]
fn transactions_of_several_clients_lose_nothing() {
    for engine in ENGINES {
        for (seed, mut settings) in (1..).zip(usual_and_flat(&[&format!("engine.name={}", engine.name)])) {
            settings.push("saker.enabled=true".to_owned());
            let config = config(&settings);
            let bench = Bench::of(config.clone(), Sim::permuted(seed));
            let drive = bench.sim.block_on(|| {
                let drive = bench.power_on(None).expect("an empty drive comes up");
                let driver = bench.connect();
                for account in 0..ACCOUNTS {
                    let bytes = EACH.to_le_bytes();
                    driver.store(key(account, false), Piece::Bytes(&bytes)).expect("there is room");
                }
                drive
            });
            let saker = setup::saker(&bench.config, &bench.sim).expect("settings").expect("it is on");
            let committed = Committed {
                expected: vec![EACH as i64; ACCOUNTS as usize].into(),
                conflicts: Cell::new(0),
                audits: Cell::new(0),
            };
            let drivers: Vec<Driver> = bench.sim.block_on(|| (0..3).map(|_| bench.connect()).collect());
            let tasks = drivers.iter().zip(0u64..).map(|(driver, client)| {
                let (saker, committed) = (&saker, &committed);
                move || {
                    let mut handle = saker.connect(driver);
                    let mut rng = Rng::stream(seed, &format!("client {client}"));
                    (0..60).for_each(|_| transfer(&mut handle, &mut rng, committed));
                    assert!(handle.close().is_empty());
                }
            });
            bench.sim.block_on(|| join_all(&bench.sim, tasks));
            assert!(committed.conflicts.get() > 0 && committed.audits.get() > 0, "{settings:?}");
            let survivors = drive.survivors(&mut Rng::stream(seed, "cut"));
            after_a_cut(&config, &survivors, |driver| {
                let mut into = Region::new();
                for (account, expected) in (0..).zip(&*committed.expected.borrow()) {
                    let found = number_in(driver.retrieve(key(account, false), &mut into), &into);
                    assert_eq!(found as i64, *expected, "{settings:?}");
                }
            });
            drop(drivers);
            bench.sim.clear();
        }
    }
}
