//! A small drive that collects garbage, flushes and compacts within a few hundred stores, and the oracle for
//! it.

use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_config::setup;
use kvdrive_config::{Config, Document};
use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_device::Drive;
use kvdrive_device::engines::ENGINES;
use kvdrive_flash::power::PowerOnError;
use kvdrive_flash::power::Survivors;
use kvdrive_host::Calls;
use kvdrive_host::modelled::Driver;
use kvdrive_link::{Link, LocalMemory};
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_sim::{Rng, Sim};

/// Settings that make every mechanism run soon: 4 MiB of flash, segments of 128 KiB, 32 entries in the
/// memtable.
const SMALL: &[&str] = &[
    "flash.channels=2",
    "flash.dies_per_channel=1",
    "flash.blocks_per_die=24",
    "flash.pages_per_block=8",
    "ftl.gc_low_blocks=2",
    "ftl.over_provisioning=0.2",
    "buffer.entries=12",
    "packing.dlt_entries=8",
    "lsm.memtable_entries=32",
    "lsm.rings=[3, 3, 4, 64]",
    "anykey.memtable_entries=32",
    "anykey.group_pages=8",
    "anykey.levels=3",
    "anykey.log_percent=10",
    "lsm.iterators=4",
    "gc.segment_pages=8",
    "gc.free_segments_low=6",
    "gc.free_segments_reserved=3",
    "hash.write_buffer_bytes=262144",
    "hash.dram_bytes=16384",
    "hash.gc_low_superblocks=6",
    "hash.gc_stall_superblocks=3",
    "hash.gc_workers=4",
    "store.operations_bytes=131072",
    "controller.max_value_bytes=65536",
    "media.kind=ram",
];

/// A dispatcher with I/O threads in place of contexts, flash on which much of a block may be in flight, and
/// merges beside commands: each of them exposes mistakes of the others.
pub const ROUND_ROBIN_ON_FLAT: &[&str] = &[
    "controller.dispatch=round-robin",
    "controller.io_threads=3",
    "flash.timing=flat",
    "buffer.eviction=overlap",
    "lsmtree.background=own",
];

/// A budget of DRAM for the index of `lsm` that has room for some lists and pages only.
pub const LITTLE_DRAM: [&str; 2] = ["lsm.dram_bytes=30000", "lsm.pinned_levels=2"];

/// `settings` on the usual drive, and together with [`ROUND_ROBIN_ON_FLAT`].
pub fn usual_and_flat(settings: &[&str]) -> [Vec<String>; 2] {
    let usual: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    let flat = usual.iter().cloned().chain(ROUND_ROBIN_ON_FLAT.iter().map(|s| (*s).to_owned())).collect();
    [usual, flat]
}

/// The small drive with `settings` that override its own.
pub fn document<S: AsRef<str>>(settings: &[S]) -> Document {
    let mut document = Document::profile("cosmos-plus").expect("the profile exists");
    for setting in SMALL.iter().copied().chain(settings.iter().map(AsRef::as_ref)) {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    document
}

/// A drive and its host on one executor.
pub struct Bench {
    pub sim: Sim,
    pub link: Rc<Link>,
    pub memory: Rc<LocalMemory>,
    pub config: Config,
}

/// The configuration of the small drive with `settings`. A test that powers on thousands of drives asks once: reading the
/// profile takes longer than the recovery of so small a drive.
pub fn config<S: AsRef<str>>(settings: &[S]) -> Config {
    config_of(&document(settings))
}

fn config_of(document: &Document) -> Config {
    document.config().expect("a test's configuration is valid")
}

impl Bench {
    pub fn new(document: &Document, sim: Sim) -> Bench {
        Bench::of(config_of(document), sim)
    }

    pub fn of(config: Config, sim: Sim) -> Bench {
        let memory = Rc::new(LocalMemory::new());
        let link = Link::new(&sim, config.link.clone(), memory.clone());
        Bench { sim, link, memory, config }
    }

    pub fn power_on(&self, survivors: Option<&Survivors>) -> Result<Drive, PowerOnError> {
        let config = self.config.drive();
        Drive::power_on(&self.sim, &self.link, &config, survivors)
    }

    pub fn connect(&self) -> Driver {
        let cores = setup::cores(&self.config, &self.sim);
        let drivers = setup::drivers(&self.config, &self.link, &self.memory, &cores);
        drivers.expect("a drive and a method").remove(0)
    }
}

/// Runs `prepare` on an empty drive, and then `work`; after every `every` events of it, calls `check` with
/// the survivors of a power cut at that moment.
pub fn cut_after_events(
    config: &Config,
    every: u64,
    prepare: impl FnOnce(&Driver),
    work: impl FnOnce(&Driver) + 'static,
    mut check: impl FnMut(u64, &Survivors),
) {
    let bench = Bench::of(config.clone(), Sim::new());
    let (drive, driver) = bench.sim.block_on(|| {
        let drive = bench.power_on(None).expect("an empty drive comes up");
        let driver = bench.connect();
        prepare(&driver);
        (drive, driver)
    });
    bench.sim.step_every_event();
    bench.sim.spawn(move || work(&driver));
    let mut event = 0;
    while bench.sim.step() {
        event += 1;
        if event % every == 0 {
            check(event, &drive.survivors(&mut Rng::stream(event, "cut")));
        }
    }
    bench.sim.clear();
}

/// The result of `ask` on the drive that is recovered from the survivors.
pub fn after_a_cut<T>(config: &Config, survivors: &Survivors, ask: impl FnOnce(&Driver) -> T) -> T {
    let after = Bench::of(config.clone(), Sim::new());
    let found = after.sim.block_on(|| {
        let _drive = after.power_on(Some(survivors)).expect("it comes up");
        ask(&after.connect())
    });
    after.sim.clear();
    found
}

/// As [`after_a_cut`]; also returns the survivors of that drive after a random event, and at its end.
pub fn cut_again<T: 'static>(
    config: &Config,
    survivors: &Survivors,
    rng: &mut Rng,
    ask: impl FnOnce(&Driver) -> T + 'static,
) -> (T, Survivors, Survivors) {
    let after = Bench::of(config.clone(), Sim::new());
    let (drive, driver) = after.sim.block_on(|| {
        let drive = after.power_on(Some(survivors)).expect("it comes up");
        (drive, after.connect())
    });
    after.sim.step_every_event();
    let asking = after.sim.spawn(move || ask(&driver));
    let mut midway = drive.survivors(rng);
    // Reservoir of one: every event has the same probability of being the cut.
    let mut events = 0;
    while after.sim.step() {
        events += 1;
        if rng.one_in(events) {
            midway = drive.survivors(rng);
        }
    }
    let found = after.sim.block_on(|| asking.join());
    let end = drive.survivors(rng);
    drop(drive);
    after.sim.clear();
    (found, midway, end)
}

/// A value; its bytes follow from its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    pub version: u64,
    pub bytes: u32,
}

/// The pairs that must be on the drive.
#[derive(Clone, Default, Debug)]
pub struct Oracle {
    pub pairs: BTreeMap<Key, Stored>,
    /// The engine lists keys in an order of its own.
    pub unordered: bool,
    /// Values have [`LARGE_SIZES`].
    pub is_large: bool,
}

impl Oracle {
    /// An empty oracle for an empty drive.
    pub fn of(bench: &Bench) -> Oracle {
        let row = ENGINES.iter().find(|row| row.name == bench.config.engine.name).expect("a known engine");
        let is_large = bench.config.controller.max_value_bytes > 1 << 16;
        Oracle { pairs: BTreeMap::new(), unordered: !row.ordered, is_large }
    }

    fn any_size(&self, rng: &mut Rng) -> u32 {
        let sizes: &[u32] = if self.is_large { &LARGE_SIZES } else { &SIZES };
        sizes[rng.below(sizes.len() as u64) as usize]
    }
}

pub fn value(key: &Key, stored: Stored) -> Pattern {
    Pattern::of_value(key, stored.version, stored.bytes)
}

/// Do the first bytes of `region` equal the value?
pub fn is_value(region: &Region, key: &Key, stored: Stored) -> bool {
    let mut expected = vec![0; stored.bytes as usize];
    value(key, stored).expand(&mut expected);
    region.to_bytes(stored.bytes) == expected
}

/// Sizes around every edge of transfer and packing.
pub const SIZES: [u32; 17] =
    [0, 1, 8, 35, 36, 56, 91, 92, 127, 128, 500, 2048, 4095, 4096, 4097, 4096 + 32, 20_000];

/// Sizes, most of which exceed the bytes that the page buffer takes at once on the drive with [`LARGE`]: around three
/// pages, which is that limit, and around segments.
pub const LARGE_SIZES: [u32; 10] =
    [8, 4096, 49_152, 49_153, 65_536, 131_071, 131_072, 131_073, 300_000, 500_000];

/// The small drive takes values of several segments, and has room for some of them.
pub const LARGE: &[&str] = &["controller.max_value_bytes=524288", "flash.blocks_per_die=64"];

/// Keys of mixed lengths, for engines that take them; `small` keys have 4 bytes.
pub fn key(number: u64, small: bool) -> Key {
    match number % 3 {
        _ if small => Key::from_u32_be(number as u32),
        0 => Key::from_u64_be(number),
        1 => Key::from_u32_be(number as u32),
        _ => {
            let mut bytes = [7; 16];
            bytes[8..].copy_from_slice(&number.to_be_bytes());
            Key::new(&bytes).expect("16 bytes are a key")
        }
    }
}

/// Stores a value, one time in eight under a condition: if it does not hold, the store must not succeed.
/// Other refusals are returned, since the drive may be full.
pub fn store(driver: &Driver, oracle: &mut Oracle, key: Key, stored: Stored) -> Result<(), Status> {
    let plain = StoreOptions::default();
    let exists = oracle.pairs.contains_key(&key);
    let (options, unmet) = match stored.version % 16 {
        0 => (StoreOptions { add_only: true, ..plain }, exists.then_some(Status::KEY_EXISTS)),
        1 => (StoreOptions { update_only: true, ..plain }, (!exists).then_some(Status::KEY_NOT_FOUND)),
        _ => (plain, None),
    };
    let answer = driver.store_with(key, Piece::Pattern(value(&key, stored)), options);
    match (answer, unmet) {
        (Ok(()), None) => {
            oracle.pairs.insert(key, stored);
            Ok(())
        }
        (Ok(()), Some(status)) => panic!("{key:?} was stored; its condition says {status}"),
        (Err(status), Some(unmet)) if status == unmet => Ok(()),
        (refused, _) => refused,
    }
}

/// One random step on `keys` keys, checked against the oracle.
pub fn step(driver: &Driver, oracle: &mut Oracle, rng: &mut Rng, keys: u64, small_keys: bool) {
    let key = key(rng.below(keys), small_keys);
    match rng.below(20) {
        0..=10 => {
            let bytes = oracle.any_size(rng);
            let stored = Stored { version: rng.next_u64(), bytes };
            match store(driver, oracle, key, stored) {
                Ok(()) | Err(Status::CAPACITY_EXCEEDED) => {}
                Err(status) => panic!("store of {bytes} bytes: {status}"),
            }
        }
        11..=12 => {
            driver.delete(key).expect("a delete never fails");
            oracle.pairs.remove(&key);
        }
        13..=17 => check_one(driver, oracle, key),
        18 => assert_eq!(driver.exist(key), Ok(oracle.pairs.contains_key(&key))),
        _ => check_list(driver, oracle, Some(key)),
    }
}

pub fn check_one(driver: &Driver, oracle: &Oracle, key: Key) {
    let mut region = Region::new();
    match (driver.retrieve(key, &mut region), oracle.pairs.get(&key)) {
        (Ok(bytes), Some(stored)) => {
            assert_eq!(bytes, stored.bytes, "size of {key:?}");
            assert!(is_value(&region, &key, *stored), "value of {key:?}");
        }
        (Err(Status::KEY_NOT_FOUND), None) => {}
        (found, expected) => panic!("{key:?}: found {found:?}, expected {expected:?}"),
    }
}

/// Every pair of the oracle is as stored, or is answered 88h (it cannot be read any more).
pub fn check_survivors(driver: &Driver, oracle: &Oracle) {
    let mut region = Region::new();
    for (key, stored) in &oracle.pairs {
        match driver.retrieve(*key, &mut region) {
            Ok(bytes) => {
                assert!(bytes == stored.bytes && is_value(&region, key, *stored), "wrong data for {key:?}");
            }
            Err(Status::UNRECOVERED_ERROR) => {}
            Err(status) => panic!("{key:?} answers {status}"),
        }
    }
}

/// Lists from `start` with a small buffer, list by list, and compares with the oracle.
pub fn check_list(driver: &Driver, oracle: &Oracle, start: Option<Key>) {
    let mut listed = Vec::new();
    let mut from = start;
    loop {
        let page = driver.list(from, 200).expect("a list succeeds");
        let fresh: Vec<Key> = page.iter().copied().filter(|key| Some(key) != listed.last()).collect();
        if fresh.is_empty() {
            break;
        }
        listed.extend(fresh);
        from = listed.last().copied();
    }
    if oracle.unordered {
        let mut sorted = listed.clone();
        sorted.sort_unstable();
        match start {
            None => assert_eq!(sorted, oracle.pairs.keys().copied().collect::<Vec<_>>()),
            Some(start) => {
                assert!(
                    sorted.windows(2).all(|pair| pair[0] != pair[1]),
                    "a key is listed twice: {listed:?}"
                );
                assert!(
                    sorted.iter().all(|key| oracle.pairs.contains_key(key)),
                    "not all of {listed:?} exist"
                );
                assert!(
                    !oracle.pairs.contains_key(&start) || listed.first() == Some(&start),
                    "{start:?}: {listed:?}"
                );
            }
        }
        return;
    }
    let expected: Vec<Key> =
        oracle.pairs.keys().copied().filter(|key| start.is_none_or(|s| *key >= s)).collect();
    assert_eq!(listed, expected, "keys from {start:?}");
}

/// Asserts that the drive has exactly the pairs of the oracle.
pub fn check_all(driver: &Driver, oracle: &Oracle) {
    for key in oracle.pairs.keys() {
        check_one(driver, oracle, *key);
    }
    check_list(driver, oracle, None);
}
