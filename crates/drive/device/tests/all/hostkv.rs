//! Every store on the host, over a drive of blocks, compared with maps in memory: concurrent threads,
//! reopening, power cuts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_device::DriveConfig;
use kvdrive_flash::power::Survivors;
use kvdrive_host::hostkv::{HostKv, HostKvClient, HostKvConfig};
use kvdrive_host::{Calls, Error};
use kvdrive_nvme::nvm::BLOCK_BYTES;
use kvdrive_nvme::{Key, Status, StoreOptions as Condition};
use kvdrive_sim::{Resource, Rng, Sim, join_all};
use kvdrive_store::{Background, STORES, Step, StoreOptions, StoreRow};

use super::blocks::{Bench, blocks_config};

const THREADS: u32 = 3;
/// Keys of a thread: so few that most stores overwrite.
const KEYS: u64 = 24;

/// Blocks for a store that cleans, merges and checkpoints within some hundred puts.
fn drive_config() -> DriveConfig {
    let mut config = blocks_config(BLOCK_BYTES);
    config.flash.blocks_per_die = 128;
    config
}

fn options(background: Background) -> StoreOptions {
    let mut options = StoreOptions::default();
    options.hashlog.segment_bytes = 8 * 4096;
    options.btree.buffer_bytes = 16 * 4096;
    options.btree.checkpoint_bytes = 60_000;
    let lsmtree = &mut options.lsmtree;
    lsmtree.write_buffer_size = 16 << 10;
    lsmtree.level0_file_num_compaction_trigger = 2;
    lsmtree.level0_slowdown_writes_trigger = 4;
    lsmtree.level0_stop_writes_trigger = 6;
    lsmtree.max_bytes_for_level_base = 64 << 10;
    lsmtree.max_bytes_for_level_multiplier = 4;
    lsmtree.target_file_size_base = 32 << 10;
    lsmtree.background = background;
    options
}

/// A store, and where its background work runs.
#[derive(Clone, Copy)]
struct Variant {
    row: &'static StoreRow,
    background: Background,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, background {:?}", self.row.name, self.background)
    }
}

/// Every store, and those with background work also with threads for it.
fn variants() -> impl Iterator<Item = Variant> {
    let of = |row: &'static StoreRow| {
        let own = (row.background)(&options(Background::Own)).is_some().then_some(Background::Own);
        [Background::Shared].into_iter().chain(own).map(move |background| Variant { row, background })
    };
    STORES.iter().flat_map(of)
}

fn open(bench: &Bench, Variant { row, background }: Variant) -> Rc<HostKv> {
    let core = |thread| Rc::new(Resource::new(&bench.sim, format!("host.core.{thread}"), 1));
    let cores: Vec<_> = (0..THREADS).map(core).collect();
    let options = options(background);
    let costs_ps = [1000; Step::ALL.len()];
    let config = HostKvConfig { row, options: &options, costs_ps, entries: 64, depth: 4 };
    let opened = HostKv::open(bench.blocks(), &cores, &config);
    opened.unwrap_or_else(|error| panic!("{}: {error}", row.name)).0
}

/// A value; `None`: no pair.
type Version = Option<(u64, u32)>;

fn bytes_of(key: Key, (version, bytes): (u64, u32)) -> Vec<u8> {
    let mut content = vec![0; bytes as usize];
    Pattern::of_value(&key, version, bytes).expand(&mut content);
    content
}

/// The versions that each key may have: the last synchronised one, and all later ones, in order.
#[derive(Clone, Default)]
struct Oracle(BTreeMap<Key, Vec<Version>>);

impl Oracle {
    fn now(&self, key: Key) -> Version {
        self.0.get(&key).and_then(|versions| *versions.last()?)
    }

    fn ask(&mut self, key: Key, version: Version) {
        self.0.entry(key).or_insert_with(|| vec![None]).push(version);
    }

    /// All writes of this thread are durable.
    fn sync(&mut self, thread: u64) {
        let of_thread = self.0.range_mut(key_of(thread, 0)..=key_of(thread, KEYS - 1));
        of_thread.for_each(|(_, versions)| drop(versions.drain(..versions.len() - 1)));
    }

    /// The pairs that must exist if no write is uncertain.
    fn pairs(&self) -> Vec<(Key, Vec<u8>)> {
        let known = self.0.keys().filter_map(|key| Some((*key, bytes_of(*key, self.now(*key)?))));
        known.collect()
    }
}

fn key_of(thread: u64, number: u64) -> Key {
    Key::from_u32_be((thread * 1000 + number) as u32)
}

fn found(client: &HostKvClient, key: Key) -> Option<Vec<u8>> {
    let (mut client, mut into) = (client, Region::new());
    match client.retrieve(key, &mut into) {
        Ok(bytes) => Some(into.to_bytes(bytes)),
        Err(Error::Status(Status::KEY_NOT_FOUND)) => None,
        Err(error) => panic!("{key:?}: {error}"),
    }
}

/// One random call of a thread; the oracle is updated before.
fn step(mut client: &HostKvClient, thread: u64, oracle: &RefCell<Oracle>, rng: &mut Rng) {
    let key = key_of(thread, rng.below(KEYS));
    match rng.below(16) {
        0..=8 => {
            let stored = (rng.next_u64(), [0, 16, 300, 300, 4096, 9000][rng.below(6) as usize]);
            oracle.borrow_mut().ask(key, Some(stored));
            let pattern = Pattern::of_value(&key, stored.0, stored.1);
            let bytes = bytes_of(key, stored);
            let piece =
                if stored.0.is_multiple_of(2) { Piece::Pattern(pattern) } else { Piece::Bytes(&bytes) };
            client.store(key, piece).expect("there is room");
        }
        9..=10 => {
            oracle.borrow_mut().ask(key, None);
            client.delete(key).expect("a delete succeeds");
        }
        11 => {
            client.sync().expect("the drive answers");
            oracle.borrow_mut().sync(thread);
        }
        12 => {
            let expected = oracle.borrow().now(key).is_some();
            assert_eq!(client.exist(key), Ok(expected), "{key:?}");
        }
        _ => {
            let expected = oracle.borrow().now(key).map(|stored| bytes_of(key, stored));
            assert!(found(client, key) == expected, "{key:?}");
        }
    }
}

/// Every pair, by an iterator.
fn all_pairs(mut client: &HostKvClient) -> Vec<(Key, Vec<u8>)> {
    let (mut pairs, mut into) = (Vec::new(), Region::new());
    let (iterator, mut pair) = client.seek(None, &mut into).expect("an iterator opens");
    while let Some(found) = pair {
        pairs.push((found.key, into.to_bytes(found.value_bytes)));
        pair = client.next(iterator, &mut into).expect("it goes on");
    }
    client.close(iterator).expect("it is open");
    assert_eq!(client.close(iterator), Err(Error::Status(Status::NO_SUCH_ITERATOR)));
    assert_eq!(client.next(iterator, &mut into), Err(Error::Status(Status::NO_SUCH_ITERATOR)));
    pairs
}

fn recovered<T>(survivors: &Survivors, row: Variant, look: impl FnOnce(&HostKvClient) -> T) -> T {
    let again = Bench::new(Sim::new());
    let seen = again.sim.block_on(|| {
        let _drive = again.power_on(&drive_config(), Some(survivors));
        look(&open(&again, row).client(0))
    });
    again.sim.clear();
    seen
}

/// Three threads at once; then the pairs by an iterator and a list, in a second store on the same blocks, and
/// after a power cut.
#[test]
fn every_store_finds_what_threads_put() {
    for (row, seed) in variants().flat_map(|row| [0, 1].map(|seed| (row, seed))) {
        let bench = Bench::new(if seed == 0 { Sim::new() } else { Sim::permuted(seed) });
        bench.sim.block_on(|| {
            let drive = bench.power_on(&drive_config(), None);
            let (kv, oracle) = (open(&bench, row), RefCell::new(Oracle::default()));
            let threads = (0..THREADS).map(|thread| {
                let (kv, oracle) = (&kv, &oracle);
                move || {
                    let mut rng = Rng::stream(seed * 10 + u64::from(thread), "hostkv");
                    let client = kv.client(thread);
                    (0..250).for_each(|_| step(&client, thread.into(), oracle, &mut rng));
                    client.sync().expect("the drive answers");
                }
            });
            join_all(&bench.sim, threads);
            let expected = oracle.borrow().pairs();
            let client = kv.client(0);
            assert!(all_pairs(&client) == expected, "{}", row);
            let keys: Vec<Key> = expected.iter().map(|(key, _)| *key).collect();
            assert_eq!((&client).list(None, 1 << 16).as_ref(), Ok(&keys), "{}", row);
            assert_eq!((&client).list(Some(keys[3]), 4 + 4 * 8).as_deref(), Ok(&keys[3..7]), "{}", row);
            let again = open(&bench, row).client(0);
            assert!(all_pairs(&again) == expected, "{}, opened again", row);
            let survivors = drive.survivors(&mut Rng::stream(seed, "survivors"));
            assert!(recovered(&survivors, row, all_pairs) == expected, "{}, after a cut", row);
            let (written, programs) =
                (kv.counts().of("pages_written"), drive.counts().of("nand.programs.data"));
            assert!(written > 0 && programs >= written, "{}: {written}, {programs} programs", row);
        });
        bench.sim.clear();
    }
}

/// Synchronised writes survive; no key returns an older value, or one that was never written.
#[test]
fn what_was_synchronised_survives_a_power_cut_of_the_drive() {
    for row in variants() {
        let bench = Bench::new(Sim::permuted(3));
        bench.sim.step_every_event();
        let (drive, kv) = bench.sim.block_on(|| {
            let drive = bench.power_on(&drive_config(), None);
            (drive, open(&bench, row))
        });
        let oracle = Rc::new(RefCell::new(Oracle::default()));
        for thread in 0..THREADS {
            let (client, oracle) = (kv.client(thread), oracle.clone());
            bench.sim.spawn(move || {
                let mut rng = Rng::stream(thread.into(), "cut");
                loop {
                    step(&client, thread.into(), &oracle, &mut rng);
                }
            });
        }
        let mut rng = Rng::stream(1, "cut");
        let mut synchronised = 0;
        for event in 0..40_000u32 {
            assert!(bench.sim.step(), "the threads are stuck");
            if event % 997 == 0 {
                let (survivors, known) = (drive.survivors(&mut rng), oracle.borrow().clone());
                recovered(&survivors, row, |client| {
                    for (key, versions) in &known.0 {
                        let found = found(client, *key);
                        let is_one = |version: &Version| version.map(|it| bytes_of(*key, it)) == found;
                        assert!(versions.iter().any(is_one), "{}, event {event}: {key:?}", row);
                        synchronised += u32::from(versions.len() == 1);
                    }
                    let known_keys: Vec<Key> = known.0.keys().copied().collect();
                    let pairs = all_pairs(client);
                    assert!(pairs.iter().all(|(key, _)| known_keys.contains(key)), "{}", row);
                });
            }
        }
        assert!(synchronised > 100, "{}: {synchronised} keys were certain at a cut", row);
        bench.sim.clear();
    }
}

#[test]
fn what_a_store_cannot_do_is_refused() {
    for row in variants() {
        let bench = Bench::new(Sim::new());
        bench.sim.block_on(|| {
            let drive = bench.power_on(&drive_config(), None);
            let kv = open(&bench, row);
            let client = kv.client(1);
            let mut client = &client;
            let (key, value) = (key_of(0, 1), Piece::Bytes(b"value"));
            for condition in [
                Condition { update_only: true, ..Condition::default() },
                Condition { add_only: true, ..Condition::default() },
            ] {
                let refused = client.store_with(key, value, condition);
                assert_eq!(refused, Err(Error::Status(Status::INVALID_FIELD)), "{}", row);
            }
            let long = vec![7; kv.max_value_bytes() as usize + 1];
            let refused = client.store(key, Piece::Bytes(&long));
            assert_eq!(refused, Err(Error::Status(Status::INVALID_VALUE_SIZE)), "{}", row);
            assert_eq!(client.exist(key), Ok(false), "{}", row);
            // As long as there is room, and no longer.
            let long = vec![8; 20_000];
            let full =
                (0..5_000u64).find_map(|number| client.store(key_of(1, number), Piece::Bytes(&long)).err());
            assert_eq!(full, Some(Error::Status(Status::CAPACITY_EXCEEDED)), "{}", row);
            assert!(found(client, key_of(1, 0)) == Some(long), "{}", row);
            drop(drive);
        });
        bench.sim.clear();
    }
}
