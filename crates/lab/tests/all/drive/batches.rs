//! Batches on whole drives: every engine by every transfer method against an oracle, and what a power cut
//! leaves of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_device::engines::ENGINES;
use kvdrive_host::modelled::Driver;
use kvdrive_host::{Answer, Call, Client};
use kvdrive_lab::crash::Ledger;
use kvdrive_lab::workload::ValueSpec;
use kvdrive_link::transfer::METHODS;
use kvdrive_sim::{Rng, Sim};
use kvdrive_spec::batch::{BatchBuilder, RequestKind};
use kvdrive_spec::{Key, Status};

use super::bench::{Bench, Oracle, Stored, check_all, document, key, usual_and_flat, value};

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

fn structured(requests: &Requests) -> Vec<u8> {
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
    out[..16].copy_from_slice(&batch.head(false));
    out
}

/// How many requests were carried out, and the status.
fn send(mut driver: &Driver, requests: &Requests) -> (usize, Status) {
    let answer = driver.call(Call::Batch { value: structured(requests) }, &mut Region::new());
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
