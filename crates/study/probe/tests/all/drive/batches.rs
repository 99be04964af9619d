//! Batches on whole drives: every engine by every transfer method against an oracle, and the state after a
//! power cut. Batches that are carried out as a whole or not at all: `atomic_batches`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_device::engines::ENGINES;
use kvdrive_host::modelled::Driver;
use kvdrive_host::{Answer, Call, Client};
use kvdrive_link::transfer::METHODS;
use kvdrive_nvme::batch::{BatchBuilder, RequestKind};
use kvdrive_nvme::{Key, Status};
use kvdrive_probe::crash::Ledger;
use kvdrive_sim::{Rng, Sim};
use kvdrive_workload::ValueSpec;

use kvdrive_rigs::drive::{
    Bench, Oracle, Stored, after_a_cut, check_all, config, cut_after_events, key, usual_and_flat, value,
};

pub type Requests = Vec<(Key, Option<Stored>)>;

/// Stores and deletes of few keys, some of them several times.
fn any_requests(rng: &mut Rng) -> Requests {
    requests_of(rng, &[0, 1, 16, 35, 300, 2_000])
}

/// As [`any_requests`], with values of these sizes.
pub fn requests_of(rng: &mut Rng, sizes: &[u32]) -> Requests {
    let request = |rng: &mut Rng| {
        let bytes = sizes[rng.below(sizes.len() as u64) as usize];
        let stored = Stored { version: rng.next_u64(), bytes };
        (key(rng.below(20), false), (!rng.one_in(4)).then_some(stored))
    };
    (0..1 + rng.below(12)).map(|_| request(rng)).collect()
}

/// A structured value of these requests: keys, and their values or `None` for a delete.
pub fn structured(requests: impl IntoIterator<Item = (Key, Option<Vec<u8>>)>, atomic: bool) -> Vec<u8> {
    let (mut out, mut batch) = (vec![0; 16], BatchBuilder::new());
    for (key, value) in requests {
        let kind = if value.is_some() { RequestKind::Store } else { RequestKind::Delete };
        batch.append(&mut out, kind, key, &value.unwrap_or_default());
    }
    out[..16].copy_from_slice(&batch.head(atomic));
    out
}

fn bytes_of(key: &Key, stored: Stored) -> Vec<u8> {
    let mut bytes = vec![0; stored.bytes as usize];
    value(key, stored).expand(&mut bytes);
    bytes
}

/// Number of requests that were carried out, and the status.
fn send(driver: &Driver, requests: &Requests) -> (usize, Status) {
    send_as(driver, requests, false)
}

pub fn send_as(driver: &Driver, requests: &Requests, atomic: bool) -> (usize, Status) {
    let with_bytes = requests.iter().map(|(key, stored)| (*key, stored.map(|stored| bytes_of(key, stored))));
    send_value(driver, structured(with_bytes, atomic))
}

pub fn send_value(mut driver: &Driver, value: Vec<u8>) -> (usize, Status) {
    let answer = driver.call(Call::Batch { value }, &mut Region::new());
    match answer.expect("the drive answers") {
        Answer::Applied(applied, status) => (applied as usize, status),
        other => panic!("{other:?}"),
    }
}

/// Applies requests to pairs.
pub fn apply(pairs: &mut BTreeMap<Key, Stored>, requests: &[(Key, Option<Stored>)]) {
    for (key, stored) in requests {
        match stored {
            Some(stored) => drop(pairs.insert(*key, *stored)),
            None => drop(pairs.remove(key)),
        }
    }
}

#[test]
fn every_engine_by_every_transfer_method() {
    for engine in ENGINES {
        for (seed, method) in (0..).zip(METHODS) {
            let settings = [format!("engine.name={}", engine.name), format!("host.transfer={}", method.name)];
            let bench = Bench::of(config(&settings), Sim::new());
            bench.sim.block_on(|| {
                let drive = bench.power_on(None).expect("an empty drive comes up");
                let driver = bench.connect();
                let (mut oracle, mut rng) = (Oracle::of(&bench), Rng::stream(seed, "batches"));
                for _ in 0..60 {
                    let requests = any_requests(&mut rng);
                    let (applied, status) = send(&driver, &requests);
                    assert!(matches!(status, Status::SUCCESS | Status::CAPACITY_EXCEEDED), "{status}");
                    assert_eq!(applied == requests.len(), status.is_success(), "{settings:?}");
                    apply(&mut oracle.pairs, &requests[..applied]);
                }
                check_all(&driver, &oracle);
                drive.drain();
                check_all(&driver, &oracle);
            });
            bench.sim.clear();
        }
    }
}

/// All requests of an acknowledged batch are stored; of a batch under way, each request is whole or absent.
#[test]
fn a_power_cut_at_many_events() {
    for engine in ENGINES {
        for (seed, settings) in (1..).zip(usual_and_flat(&[&format!("engine.name={}", engine.name)])) {
            let config = config(&settings);
            let (ledger, sent) = (Rc::new(RefCell::new(Ledger::default())), Rc::new(Cell::new(0)));
            let (known, count) = (ledger.clone(), sent.clone());
            let work = move |driver: &Driver| {
                let mut rng = Rng::stream(seed, "batches");
                for _ in 0..25 {
                    // A cut may leave any version of a key in one batch; the ledger has them in order.
                    let requests: Requests =
                        any_requests(&mut rng).into_iter().collect::<BTreeMap<_, _>>().into_iter().collect();
                    let spec = |stored: Stored| ValueSpec { bytes: stored.bytes, version: stored.version };
                    let writings: Vec<_> = requests
                        .iter()
                        .map(|(key, stored)| known.borrow_mut().history.begin_write(*key, stored.map(spec)))
                        .collect();
                    assert_eq!(send(driver, &requests), (requests.len(), Status::SUCCESS));
                    for ((key, _), writing) in requests.iter().zip(writings) {
                        known.borrow_mut().history.end_write(key, writing, Ok(()));
                    }
                    count.set(count.get() + 1);
                }
            };
            cut_after_events(
                &config,
                17,
                |_| (),
                work,
                |event, survivors| {
                    let mut ledger = ledger.borrow().clone();
                    let checked = after_a_cut(&config, survivors, |driver| ledger.check(driver, false));
                    assert!(checked.is_ok(), "{settings:?}, after event {event}: {checked:?}");
                },
            );
            assert_eq!(sent.get(), 25, "{settings:?}");
        }
    }
}
