//! Batches on whole drives: every engine by every transfer method against an oracle, and what a power cut
//! leaves of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_device::engines::ENGINES;
use kvdrive_host::modelled::Driver;
use kvdrive_host::{Answer, Call, Client};
use kvdrive_lab::crash::Ledger;
use kvdrive_lab::setup;
use kvdrive_lab::workload::ValueSpec;
use kvdrive_link::transfer::METHODS;
use kvdrive_saker::Ending;
use kvdrive_sim::{Rng, Sim, join_all};
use kvdrive_spec::batch::{BatchBuilder, RequestKind};
use kvdrive_spec::{Key, Status};

use super::bench::{Bench, Oracle, Stored, check_all, document, is_value, key, usual_and_flat, value};

type Requests = Vec<(Key, Option<Stored>)>;

/// Stores and deletes of few keys, one key several times among them.
fn any_requests(rng: &mut Rng) -> Requests {
    let request = |rng: &mut Rng| {
        let bytes = [0, 1, 16, 35, 300, 2_000][rng.below(6) as usize];
        let stored = Stored { version: rng.next_u64(), bytes };
        (key(rng.below(20), false), (!rng.one_in(4)).then_some(stored))
    };
    (0..1 + rng.below(12)).map(|_| request(rng)).collect()
}

fn structured(requests: &Requests, atomic: bool) -> Vec<u8> {
    let (mut out, mut batch) = (vec![0; 16], BatchBuilder::new());
    for (key, stored) in requests {
        let mut bytes = vec![0; stored.map_or(0, |stored| stored.bytes as usize)];
        let kind = match stored {
            Some(stored) => {
                value(key, *stored).expand(&mut bytes);
                RequestKind::Store
            }
            None => RequestKind::Delete,
        };
        batch.append(&mut out, kind, *key, &bytes);
    }
    out[..16].copy_from_slice(&batch.head(atomic));
    out
}

/// How many requests were carried out, and the status.
fn send(driver: &Driver, requests: &Requests) -> (usize, Status) {
    send_as(driver, requests, false)
}

fn send_as(mut driver: &Driver, requests: &Requests, atomic: bool) -> (usize, Status) {
    let answer = driver.call(Call::Batch { value: structured(requests, atomic) }, &mut Region::new());
    match answer.expect("the drive answers") {
        Answer::Applied(applied, status) => (applied as usize, status),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_engine_by_every_transfer_method() {
    for engine in ENGINES {
        for (seed, method) in (0..).zip(METHODS) {
            let settings = [format!("engine.name={}", engine.name), format!("host.transfer={}", method.name)];
            let bench = Bench::new(&document(&settings), Sim::new());
            bench.sim.block_on(|| {
                let drive = bench.power_on(None).expect("an empty drive comes up");
                let driver = bench.connect();
                let (mut oracle, mut rng) = (Oracle::of(&bench), Rng::stream(seed, "batches"));
                for _ in 0..60 {
                    let requests = any_requests(&mut rng);
                    let (applied, status) = send(&driver, &requests);
                    assert!(matches!(status, Status::SUCCESS | Status::CAPACITY_EXCEEDED), "{status}");
                    assert_eq!(applied == requests.len(), status.is_success(), "{settings:?}");
                    for (key, stored) in &requests[..applied] {
                        match stored {
                            Some(stored) => drop(oracle.pairs.insert(*key, *stored)),
                            None => drop(oracle.pairs.remove(key)),
                        }
                    }
                }
                check_all(&driver, &oracle);
                drive.drain();
                check_all(&driver, &oracle);
            });
            bench.sim.clear();
        }
    }
}

/// What an acknowledged batch has stored is there; of one under way each request is whole or absent.
#[test]
fn a_power_cut_at_many_events() {
    for engine in ENGINES {
        for (seed, settings) in (1..).zip(usual_and_flat(&[&format!("engine.name={}", engine.name)])) {
            let document = document(&settings);
            let bench = Bench::new(&document, Sim::new());
            let (drive, driver) = bench.sim.block_on(|| {
                let drive = bench.power_on(None).expect("an empty drive comes up");
                (drive, bench.connect())
            });
            bench.sim.step_every_event();
            let (ledger, sent) = (Rc::new(RefCell::new(Ledger::default())), Rc::new(Cell::new(0)));
            let (known, count) = (ledger.clone(), sent.clone());
            bench.sim.spawn(move || {
                let mut rng = Rng::stream(seed, "batches");
                for _ in 0..25 {
                    // Of a key's versions in one batch a cut may leave any; the ledger has them in order.
                    let requests: Requests =
                        any_requests(&mut rng).into_iter().collect::<BTreeMap<_, _>>().into_iter().collect();
                    let spec = |stored: Stored| ValueSpec { bytes: stored.bytes, version: stored.version };
                    let tickets: Vec<_> = requests
                        .iter()
                        .map(|(key, stored)| known.borrow_mut().begin(*key, stored.map(spec)))
                        .collect();
                    assert_eq!(send(&driver, &requests), (requests.len(), Status::SUCCESS));
                    for ((key, _), ticket) in requests.iter().zip(tickets) {
                        known.borrow_mut().end(*key, ticket, Ok(()));
                    }
                    count.set(count.get() + 1);
                }
            });
            let mut events = 0;
            while bench.sim.step() {
                events += 1;
                if events % 17 != 0 {
                    continue;
                }
                let survivors = drive.survivors(&mut Rng::stream(events, "cut"));
                let after = Bench::new(&document, Sim::new());
                let mut ledger = ledger.borrow().clone();
                after.sim.block_on(|| {
                    let _drive = after.power_on(Some(&survivors)).expect("it comes up");
                    let checked = ledger.check(&after.connect(), false);
                    assert!(checked.is_ok(), "{settings:?}, behind event {events}: {checked:?}");
                });
                after.sim.clear();
            }
            assert_eq!(sent.get(), 25, "{settings:?}");
            bench.sim.clear();
        }
    }
}

fn apply(pairs: &mut BTreeMap<Key, Stored>, requests: &Requests) {
    for (key, stored) in requests {
        match stored {
            Some(stored) => drop(pairs.insert(*key, *stored)),
            None => drop(pairs.remove(key)),
        }
    }
}

/// Does the drive take atomic batches, as Identify says? Those that do not change nothing by one.
fn takes_atomic_batches(bench: &Bench, driver: &Driver) -> bool {
    let says = driver
        .host()
        .identify()
        .expect("it answers")
        .vendor
        .batches()
        .is_some_and(|limits| limits.atomic.is_some());
    let one: Requests = vec![(key(1, false), Some(Stored { version: 1, bytes: 9 }))];
    let expected = if says { (1, Status::SUCCESS) } else { (0, Status::INVALID_FIELD) };
    assert_eq!(send_as(driver, &one, true), expected, "{}", bench.config.engine.name);
    driver.delete(key(1, false)).expect("a delete never fails");
    says
}

/// All of an atomic batch or none, also where the drive is too full for its last request.
#[test]
fn an_atomic_batch_is_carried_out_wholly_or_not_at_all() {
    let mut taking = Vec::new();
    for engine in ENGINES {
        for (seed, settings) in (1..).zip(usual_and_flat(&[&format!("engine.name={}", engine.name)])) {
            let bench = Bench::new(&document(&settings), Sim::new());
            bench.sim.block_on(|| {
                let drive = bench.power_on(None).expect("an empty drive comes up");
                let driver = bench.connect();
                if !takes_atomic_batches(&bench, &driver) {
                    return;
                }
                taking.push(engine.name);
                let (mut oracle, mut rng) = (Oracle::of(&bench), Rng::stream(seed, "atomic"));
                let mut refused = 0;
                for round in 0..250u64 {
                    let mut requests = any_requests(&mut rng);
                    // Pairs that stay fill the drive, in batches that have other keys, too.
                    let large = Stored { version: round, bytes: 12_000 };
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
                }
                assert!(refused > 0, "{settings:?}: the drive was never full");
                check_all(&driver, &oracle);
                drive.drain();
                check_all(&driver, &oracle);
            });
            bench.sim.clear();
        }
    }
    assert!(taking.contains(&"hashlog") && taking.contains(&"lsm"), "{taking:?}");
}

/// Behind a cut at any event the drive has what it had before the batch that was under way, or behind it.
#[test]
fn a_power_cut_leaves_all_of_an_atomic_batch_or_nothing() {
    for engine in ENGINES {
        for (seed, settings) in (1..).zip(usual_and_flat(&[&format!("engine.name={}", engine.name)])) {
            let document = document(&settings);
            let bench = Bench::new(&document, Sim::new());
            let (drive, driver) = bench.sim.block_on(|| {
                let drive = bench.power_on(None).expect("an empty drive comes up");
                (drive, bench.connect())
            });
            if !bench.sim.block_on(|| takes_atomic_batches(&bench, &driver)) {
                continue;
            }
            bench.sim.step_every_event();
            // What was acknowledged, and what it would be behind the batch under way.
            let states = Rc::new(RefCell::new((BTreeMap::new(), None)));
            let sending = states.clone();
            bench.sim.spawn(move || {
                let mut rng = Rng::stream(seed, "atomic");
                for _ in 0..20 {
                    let requests = any_requests(&mut rng);
                    let mut next = sending.borrow().0.clone();
                    apply(&mut next, &requests);
                    sending.borrow_mut().1 = Some(next.clone());
                    assert_eq!(send_as(&driver, &requests, true), (requests.len(), Status::SUCCESS));
                    *sending.borrow_mut() = (next, None);
                }
            });
            let (mut events, mut before, mut behind) = (0, 0, 0);
            while bench.sim.step() {
                events += 1;
                if events % 13 != 0 {
                    continue;
                }
                let survivors = drive.survivors(&mut Rng::stream(events, "cut"));
                let after = Bench::new(&document, Sim::new());
                let (had, next) = states.borrow().clone();
                after.sim.block_on(|| {
                    let _drive = after.power_on(Some(&survivors)).expect("it comes up");
                    let driver = after.connect();
                    let is = |pairs: &BTreeMap<Key, Stored>| {
                        (0..20).map(|number| key(number, false)).all(|key| {
                            let mut region = Region::new();
                            match (driver.retrieve(key, &mut region), pairs.get(&key)) {
                                (Ok(bytes), Some(stored)) => {
                                    bytes == stored.bytes && is_value(&region, &key, *stored)
                                }
                                (Err(Status::KEY_NOT_FOUND), None) => true,
                                _ => false,
                            }
                        })
                    };
                    match next {
                        Some(next) if is(&next) => behind += 1,
                        _ => {
                            assert!(is(&had), "{settings:?}, behind event {events}: neither of the two");
                            before += 1;
                        }
                    }
                });
                after.sim.clear();
            }
            assert!(states.borrow().1.is_none(), "{settings:?}: all were sent");
            assert!(before > 0 && behind > 0, "{settings:?}: {before} before and {behind} behind");
            bench.sim.clear();
        }
    }
}

/// Clients move amounts between accounts by transactions. What one reads of all accounts and commits adds up, and
/// in the end each account has what those that were committed gave it, also behind a power cut.
#[test]
fn transactions_of_several_clients_lose_nothing() {
    const ACCOUNTS: u64 = 4;
    const EACH: u64 = 1_000;
    let mut taking = 0;
    for engine in ENGINES {
        for (seed, mut settings) in (1..).zip(usual_and_flat(&[&format!("engine.name={}", engine.name)])) {
            settings.push("saker.enabled=true".to_owned());
            let document = document(&settings);
            let bench = Bench::new(&document, Sim::permuted(seed));
            let number_in = |result: Result<u32, Status>, into: &Region| {
                let bytes = into.to_bytes(result.expect("every account is there"));
                u64::from_le_bytes(bytes.try_into().expect("a number"))
            };
            let (drive, has) = bench.sim.block_on(|| {
                let drive = bench.power_on(None).expect("an empty drive comes up");
                let driver = bench.connect();
                let takes = takes_atomic_batches(&bench, &driver);
                for account in 0..ACCOUNTS {
                    let bytes = EACH.to_le_bytes();
                    driver.store(key(account, false), Piece::Bytes(&bytes)).expect("there is room");
                }
                (drive, takes)
            });
            if !has {
                continue;
            }
            taking += 1;
            let saker = setup::saker(&bench.config, &bench.sim).expect("settings").expect("it is on");
            let expected = RefCell::new(vec![EACH as i64; ACCOUNTS as usize]);
            let (conflicts, audits) = (Cell::new(0), Cell::new(0));
            let drivers: Vec<Driver> = bench.sim.block_on(|| (0..3).map(|_| bench.connect()).collect());
            let tasks = drivers.iter().zip(0u64..).map(|(driver, client)| {
                let (saker, expected, conflicts, audits) = (&saker, &expected, &conflicts, &audits);
                move || {
                    let mut handle = saker.connect(driver);
                    let mut rng = Rng::stream(seed, &format!("client {client}"));
                    let mut into = Region::new();
                    for _ in 0..60 {
                        let (from, to) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
                        let is_audit = from == to;
                        let mut transaction = handle.transaction();
                        let mut read = |account: u64| {
                            number_in(transaction.retrieve(key(account, false), &mut into), &into)
                        };
                        let found: Vec<u64> = (0..ACCOUNTS)
                            .map(|account| {
                                let is_read = is_audit || [from, to].contains(&account);
                                if is_read { read(account) } else { 0 }
                            })
                            .collect();
                        let amount = rng.below(20).min(found[from as usize]);
                        if !is_audit {
                            for (account, now) in [
                                (from, found[from as usize] - amount),
                                (to, found[to as usize].wrapping_add(amount)),
                            ] {
                                let stored =
                                    transaction.store(key(account, false), Piece::Bytes(&now.to_le_bytes()));
                                stored.expect("it fits");
                            }
                        }
                        match transaction.commit().expect("the drive takes it") {
                            Ending::Conflict => conflicts.set(conflicts.get() + 1),
                            Ending::Committed if is_audit => {
                                assert_eq!(found.iter().sum::<u64>(), ACCOUNTS * EACH, "{}", engine.name);
                                audits.set(audits.get() + 1);
                            }
                            Ending::Committed => {
                                expected.borrow_mut()[from as usize] -= amount as i64;
                                expected.borrow_mut()[to as usize] += amount as i64;
                            }
                        }
                    }
                    assert!(handle.close().is_empty());
                }
            });
            bench.sim.block_on(|| join_all(&bench.sim, tasks));
            assert!(conflicts.get() > 0 && audits.get() > 0, "{settings:?}");
            let survivors = drive.survivors(&mut Rng::stream(seed, "cut"));
            let after = Bench::new(&document, Sim::new());
            after.sim.block_on(|| {
                let _drive = after.power_on(Some(&survivors)).expect("it comes up");
                let (driver, mut into) = (after.connect(), Region::new());
                for (account, expected) in (0..).zip(&*expected.borrow()) {
                    let found = number_in(driver.retrieve(key(account, false), &mut into), &into);
                    assert_eq!(found as i64, *expected, "{settings:?}");
                }
            });
            after.sim.clear();
            drop(drivers);
            bench.sim.clear();
        }
    }
    assert!(taking >= 6, "{taking}");
}
