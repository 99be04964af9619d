//! SAKER in model time: the bytes of its batches on the link, counted there, and several clients against an
//! oracle.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_device::config::Dispatch;
use kvdrive_host::modelled::saker::{Handle, ModelledSaker, SakerCosts};
use kvdrive_host::{Calls, Error};
use kvdrive_nvme::{Key, Status};
use kvdrive_saker::counters::Count;
use kvdrive_saker::{BatchSize, CacheConfig, Charge, SakerConfig};
use kvdrive_sim::{Rng, Sim};

use super::commands::{Rig, rig_on};
use super::mock_engine::{Jitter, MockEngine};
use super::rig;

const STORES: u64 = 64_000;
const COSTS: SakerCosts = SakerCosts {
    bucket_ns: 50,
    append_ns: 30,
    close_ns: 40,
    cache_probe_ns: 50,
    cache_insert_ns: 80,
    cache_evict_ns: 40,
    copy_ns_per_kib: 100,
};

fn key(number: u64) -> Key {
    Key::from_u64_be(number)
}

/// Payload bytes per store of `fillseq` by one client, with keys of 8 bytes and batches of 64; and its SAKER.
fn fillseq(method: &str, granularity: u32, value_bytes: u32, sync_every: u64) -> (f64, Rc<ModelledSaker>) {
    let rig = rig_on(Sim::new(), granularity, rig::on_contexts(4), MockEngine::new(64 << 10));
    let saker = ModelledSaker::new(&rig.sim, SakerConfig::default(), COSTS).expect("the paper's settings");
    let driver = rig.driver_with(method, 1_400, 34);
    let before = rig.link.meter().payload();
    rig.sim.block_on(|| {
        let mut handle = saker.connect(&driver);
        for number in 0..STORES {
            let value = Piece::Pattern(Pattern::of_value(&key(number), 1, value_bytes));
            handle.store(key(number), value).expect("there is room");
            if sync_every > 0 && (number + 1) % sync_every == 0 {
                assert!(handle.sync().is_empty());
            }
        }
        assert!(handle.sync().is_empty());
    });
    rig.sim.run();
    let stored = rig.stored_pairs();
    assert_eq!(stored.len() as u64, STORES);
    let counts = |count| saker.saker().count(count);
    assert_eq!(counts(Count::Requests) + counts(Count::Bypassed), STORES);
    assert!(saker.saker().most_pending_bytes() <= 33 * 4096);
    (rig.link.meter().payload().since(&before).total() as f64 / STORES as f64, saker)
}

impl Rig {
    fn stored_pairs(&self) -> BTreeMap<Key, Vec<u8>> {
        let values = self.namespace.engine().values.borrow();
        values.iter().map(|(key, stored)| (*key, stored.content.to_bytes(stored.bytes))).collect()
    }
}

#[test]
fn payload_of_a_store_by_prp() {
    let table = [
        (16, 1_000, 65.375),
        (64, 1_255, 82.045625),
        (256, 4_267, 278.955125),
        (1_024, 21_334, 1394.71025),
        (4_096, 0, 4184.0),
    ];
    for (value_bytes, batches, payload) in table {
        let (counted, saker) = fillseq("prp", 4096, value_bytes, 0);
        assert_eq!(counted, payload, "{value_bytes} B");
        assert_eq!(saker.saker().count(Count::Batches), batches, "{value_bytes} B");
    }
    let (counted, saker) = fillseq("prp", 4096, 16, 10);
    assert_eq!(counted, 418.4, "a sync every 10");
    assert_eq!(saker.saker().count(Count::ClosedBySync), STORES / 10);
}

#[test]
fn payload_of_a_store_by_other_methods() {
    for (method, payload) in [("sgl", 33.625), ("byte-express", 34.375), ("piggyback", 52.25)] {
        assert_eq!(fillseq(method, 1, 16, 0).0, payload, "{method}");
    }
}

/// Versions of the keys of all: by key and client the last one, `None` if it was a delete.
type LastOfAll = RefCell<BTreeMap<(u64, u64), Option<Vec<u8>>>>;

/// One of several clients, which knows the pairs that no other one writes.
struct Client<'a> {
    handle: Handle<'a>,
    rng: Rng,
    number: u64,
    own: BTreeMap<Key, Vec<u8>>,
    last_of_all: &'a LastOfAll,
}

impl Client<'_> {
    fn run(mut self) -> BTreeMap<Key, Vec<u8>> {
        for step in 0..400u64 {
            let number = self.rng.below(10);
            let is_of_all = number < 3;
            let key = key(if is_of_all { number } else { 100 * (self.number + 1) + number });
            match self.step(key, is_of_all, step) {
                Some(value) if is_of_all => {
                    self.last_of_all.borrow_mut().insert((number, self.number), value);
                }
                Some(Some(value)) => drop(self.own.insert(key, value)),
                Some(None) => drop(self.own.remove(&key)),
                None => {}
            }
        }
        assert!(self.handle.sync().is_empty());
        self.own
    }

    /// One operation. What it wrote, if it did: a value, or a delete.
    fn step(&mut self, key: Key, is_of_all: bool, step: u64) -> Option<Option<Vec<u8>>> {
        // Sometimes a value that fits no container.
        let bytes = if self.rng.one_in(12) { 500 } else { self.rng.below(60) };
        let value = vec![(self.number * 80 + step % 80) as u8; bytes as usize];
        match self.rng.below(10) {
            0..=4 => {
                self.handle.store(key, Piece::Bytes(&value)).expect("there is room");
                return Some(Some(value));
            }
            5 => {
                self.handle.delete(key).expect("a delete never fails");
                return Some(None);
            }
            6 => assert!(self.handle.sync().is_empty()),
            7 if !is_of_all => assert_eq!(self.handle.exist(key), Ok(self.own.contains_key(&key))),
            _ => {
                let mut into = Region::new();
                let found = match self.handle.retrieve(key, &mut into) {
                    Ok(bytes) => Some(into.to_bytes(bytes)),
                    Err(Error::Status(Status::KEY_NOT_FOUND)) => None,
                    Err(status) => panic!("{status}"),
                };
                assert!(is_of_all || found.as_ref() == self.own.get(&key), "{key}");
            }
        }
        None
    }
}

/// Three clients with keys of their own and shared keys: each reads its own writes, and a shared key ends with the last
/// write of one of them.
#[test]
fn several_clients_read_what_they_wrote() {
    for (seed, method) in [(1, "prp"), (2, "sgl"), (3, "piggyback"), (4, "byte-express")] {
        let sim = Sim::permuted(seed);
        let jitter =
            Some(Jitter { sim: sim.clone(), rng: Rng::stream(seed, "jitter").into(), below_ns: 9_000 });
        let engine = MockEngine { jitter, ..MockEngine::new(64 << 10) };
        let rig = rig_on(sim, 1, Dispatch::RoundRobin { io_threads: 8, deal_ns: 70 }, engine);
        let config = SakerConfig {
            batch: BatchSize::Fixed(6),
            container_bytes: 400,
            in_flight: 3,
            cache: CacheConfig {
                bytes: 2_000,
                charge: Charge::Content { beside: 0 },
                ..SakerConfig::default().cache
            },
            ..SakerConfig::default()
        };
        let saker = ModelledSaker::new(&rig.sim, config, COSTS).expect("settings");
        let drivers: Vec<_> = (0..3).map(|_| rig.driver_with(method, 200, 5)).collect();
        let last_of_all = LastOfAll::default();
        let tasks = drivers.iter().zip(0u64..).map(|(driver, client)| {
            let (saker, last_of_all) = (saker.clone(), &last_of_all);
            move || {
                let rng = Rng::stream(seed, &format!("client {client}"));
                Client {
                    handle: saker.connect(driver),
                    rng,
                    number: client,
                    own: BTreeMap::new(),
                    last_of_all,
                }
                .run()
            }
        });
        let own = rig.sim.block_on(|| kvdrive_sim::join_all(&rig.sim, tasks));
        let (last_of_all, mut stored) = (last_of_all.into_inner(), rig.stored_pairs());
        for number in 0..3 {
            let found = stored.remove(&key(number));
            let known = last_of_all.iter().filter(|((of, _), _)| *of == number);
            assert!(known.clone().any(|(_, value)| *value == found), "{method} {number}");
        }
        assert_eq!(stored, own.into_iter().flatten().collect(), "{method}");
        assert!(saker.saker().count(Count::Bypassed) > 0 && saker.saker().count(Count::CacheHits) > 0);
        assert!(saker.saker().count(Count::ClosedByOrder) > 0 && saker.saker().count(Count::Held) > 0);
    }
}

/// A held batch is sent by the client that gets the answer of the batch before it. Clients without further
/// operations end nevertheless, and the others get their answers.
#[test]
fn a_client_that_ends_takes_the_answers_that_others_wait_for() {
    for seed in 0..24 {
        let sim = Sim::permuted(seed);
        let jitter =
            Some(Jitter { sim: sim.clone(), rng: Rng::stream(seed, "jitter").into(), below_ns: 9_000 });
        let engine = MockEngine { jitter, ..MockEngine::new(64 << 10) };
        let rig = rig_on(sim, 1, Dispatch::RoundRobin { io_threads: 4, deal_ns: 70 }, engine);
        let config = SakerConfig { batch: BatchSize::Fixed(4), in_flight: 2, ..SakerConfig::default() };
        let saker = ModelledSaker::new(&rig.sim, config, COSTS).expect("settings");
        let drivers: Vec<_> = (0..4).map(|_| rig.driver_with("prp", 20, 3)).collect();
        let tasks = drivers.iter().zip(0u64..).map(|(driver, client)| {
            let saker = saker.clone();
            move || {
                let mut handle = saker.connect(driver);
                let mut rng = Rng::stream(seed, &format!("client {client}"));
                for _ in 0..10 + 20 * client {
                    let stored = handle.store(key(rng.below(8)), Piece::Bytes(&[7; 20]));
                    stored.expect("there is room");
                }
                assert!(handle.close().is_empty());
            }
        });
        rig.sim.block_on(|| kvdrive_sim::join_all(&rig.sim, tasks));
        assert!(saker.saker().count(Count::Held) > 0);
        assert_eq!((saker.saker().count(Count::Unsynced), saker.saker().pending_bytes()), (0, 0));
    }
}
