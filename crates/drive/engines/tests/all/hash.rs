//! Hash engines against an oracle: every scheme stores, overwrites, deletes, loads and lists while collection
//! runs, on drives so small that every pair is moved.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_engines::Engine;
use kvdrive_engines::firmware::{Cores, Roles};
use kvdrive_engines::hash::{HashConfig, HashEngine, Omissions, SCHEMES, SchemeRow, SecondChance, scheme};
use kvdrive_flash::FlashPort;
use kvdrive_flash::media::{self, MEDIA, MediaKind, MediaOptions};
use kvdrive_link::{Arrival, Landing};
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_sim::{Rng, Sim};

use super::small_hash::{flash_config, hash_config};

pub(super) struct Rig {
    pub(super) sim: Sim,
    pub(super) flash: FlashPort,
    pub(super) engine: HashEngine,
}

pub(super) fn rig(
    scheme: &'static SchemeRow,
    sim: Sim,
    media_name: &str,
    change: impl FnOnce(&mut HashConfig),
) -> Rig {
    let cores = Cores::new(&sim, Roles::Any(4));
    let (flash, engine) = on_cores(scheme, &sim, media_name, &cores, change);
    Rig { sim, flash, engine }
}

pub(super) fn on_cores(
    scheme: &'static SchemeRow,
    sim: &Sim,
    media_name: &str,
    cores: &Cores,
    change: impl FnOnce(&mut HashConfig),
) -> (FlashPort, HashEngine) {
    let flash_config = flash_config();
    let medium =
        (media::kind(media_name).unwrap().open)(&flash_config.geometry(), &MediaOptions::default()).unwrap();
    let flash = FlashPort::new(sim, flash_config, medium);
    let mut config = hash_config(scheme);
    change(&mut config);
    let engine = HashEngine::new(scheme, &config, &flash, cores.clone());
    (flash, engine)
}

pub(super) fn key(number: u64) -> Key {
    // Lengths 2 to 16, some up to 255, and keys that are other keys followed by zeros.
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&(number as u16).to_be_bytes());
    let long = if number.is_multiple_of(11) { (number % 240) as usize } else { 0 };
    Key::from_padded(bytes, 2 + (number % 15) as usize + long).unwrap()
}

pub(super) fn value(key: &Key, version: u64, bytes: u32) -> Pattern {
    Pattern::of_value(key, version, bytes)
}

pub(super) fn store(
    engine: &HashEngine,
    key: Key,
    value: Pattern,
    options: StoreOptions,
) -> Result<(), Status> {
    let place = engine.reserve(&key, value.bytes, Arrival::Dma)?;
    // The first byte is a real one, so that both kinds of content are on flash.
    let mut bytes = vec![0; value.bytes.min(1) as usize];
    value.slice(0, value.bytes.min(1)).expand(&mut bytes);
    engine.copy_in(&place, 0, &bytes);
    let first = bytes.len() as u32;
    engine.dma_in(&place, first, Piece::Pattern(value.slice(first, value.bytes - first)));
    engine.settle(&place);
    engine.commit(key, place, options)
}

pub(super) fn load(engine: &HashEngine, key: Key) -> Result<Option<Vec<u8>>, Status> {
    let Some(found) = engine.find(key)? else { return Ok(None) };
    let bytes = engine.value_bytes(&found);
    let mut region = Region::new();
    let mut at = 0;
    // In two pieces, as from a host with small pages.
    for part in [bytes / 3, bytes - bytes / 3] {
        let mut sink = |piece: Piece<'_>| {
            region.write(at, piece);
            at += piece.bytes();
        };
        engine.load(&found, at_of(part, bytes), part, bytes, &mut sink)?;
    }
    Ok(Some(region.to_bytes(bytes)))
}

fn at_of(part: u32, bytes: u32) -> u32 {
    if part == bytes / 3 && part != bytes - bytes / 3 { 0 } else { bytes / 3 }
}

pub(super) fn expand(value: &Pattern) -> Vec<u8> {
    let mut bytes = vec![0; value.bytes as usize];
    value.expand(&mut bytes);
    bytes
}

fn list(engine: &HashEngine) -> Vec<Key> {
    let mut cursor = engine.open_cursor(None).unwrap();
    let mut keys = Vec::new();
    while let Some((key, _)) = engine.next(&mut cursor).unwrap() {
        keys.push(key);
    }
    keys.sort_unstable();
    keys
}

pub(super) fn detail(engine: &HashEngine, name: &str) -> u64 {
    engine.counts().of(name)
}

pub(super) type Oracle = BTreeMap<Key, Pattern>;

/// One task with keys of its own.
fn apply(engine: &HashEngine, task: u64, tasks: u64, ops: u64, keys: u64, oracle: &RefCell<Oracle>) {
    let mut rng = Rng::stream(task, "hash.ops");
    for version in 0..ops {
        let key = key(rng.below(keys) * tasks + task);
        let expected = oracle.borrow().get(&key).copied();
        match rng.below(10) {
            0..=4 => {
                let bytes = match rng.below(8) {
                    0 => 0,
                    1 => rng.below(4000) as u32,
                    2 => rng.below(10_000) as u32,
                    _ => rng.below(300) as u32,
                };
                let new = value(&key, version, bytes);
                let options =
                    StoreOptions { add_only: rng.one_in(8), update_only: false, no_compress: false };
                let answer = store(engine, key, new, options);
                if options.add_only && expected.is_some() {
                    assert_eq!(answer, Err(Status::KEY_EXISTS));
                } else {
                    assert_eq!(answer, Ok(()), "key {key} of task {task}");
                    oracle.borrow_mut().insert(key, new);
                }
            }
            5 => {
                engine.delete(key).unwrap();
                oracle.borrow_mut().remove(&key);
            }
            6 => assert_eq!(engine.find(key).unwrap().is_some(), expected.is_some()),
            _ => {
                let loaded = load(engine, key).unwrap();
                assert_eq!(
                    loaded,
                    expected.as_ref().map(expand),
                    "key {key} of task {task}, version {version}"
                );
            }
        }
    }
}

pub(super) fn check(engine: &HashEngine, oracle: &Oracle) {
    for (key, value) in oracle {
        assert_eq!(load(engine, *key).unwrap().as_deref(), Some(&expand(value)[..]), "key {key}");
    }
    assert_eq!(list(engine), oracle.keys().copied().collect::<Vec<_>>());
    let live: u64 = oracle.values().map(|value| u64::from(value.bytes)).sum();
    assert_eq!(engine.utilization().live_bytes, live);
}

pub(super) fn run_oracle(
    scheme: &'static SchemeRow,
    sim: Sim,
    media: &str,
    change: impl FnOnce(&mut HashConfig),
) -> Rig {
    const TASKS: u64 = 8;
    let rig = rig(scheme, sim, media, change);
    let oracle = Rc::new(RefCell::new(Oracle::new()));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (engine, oracle) = (rig.engine.clone(), oracle.clone());
            rig.sim.spawn(move || apply(&engine, task, TASKS, 2500, 120, &oracle))
        })
        .collect();
    rig.sim.block_on(|| {
        for task in tasks {
            task.join();
        }
        let oracle = oracle.take();
        check(&rig.engine, &oracle);
        rig.engine.drain();
        check(&rig.engine, &oracle);
    });
    rig
}

#[test]
fn every_scheme_keeps_what_an_oracle_keeps_while_it_collects() {
    for scheme in SCHEMES {
        // The cache is so small that sections are written, and therefore collected, too.
        let rig = run_oracle(scheme, Sim::new(), "ram", |config| config.dram_bytes = 1 << 10);
        println!("{}: {:?} {:?}", scheme.name, rig.engine.counts(), rig.engine.dram());
        for counter in ["gc_data_superblocks", "gc_map_superblocks", "gc_moved_pairs", "gc_moved_sections"] {
            assert!(detail(&rig.engine, counter) > 0, "{}: {counter} is 0", scheme.name);
        }
        rig.sim.clear();
    }
}

/// All steps that a published emulator leaves out.
const OMISSIONS: Omissions = Omissions {
    wait_for_program: true,
    wait_for_eviction: true,
    gc_leaves_clean: true,
    reserve_ahead: true,
    gc_page_ns: 40_000,
};

#[test]
fn what_an_emulator_leaves_out_alters_times_and_no_pair() {
    for scheme in SCHEMES {
        let little = |config: &mut HashConfig| config.dram_bytes = 1 << 10;
        let usual = run_oracle(scheme, Sim::new(), "tags", little);
        for seed in 0..2 {
            let rig = run_oracle(scheme, Sim::permuted(seed), "tags", |config| {
                little(config);
                config.omissions = OMISSIONS;
            });
            let share_dirty = |engine: &HashEngine| {
                let [clean, dirty] = ["section_evicted_clean", "section_evicted_dirty"];
                detail(engine, dirty) as f64 / (detail(engine, dirty) + detail(engine, clean)) as f64
            };
            let (less, more) = (share_dirty(&rig.engine), share_dirty(&usual.engine));
            assert!(less < more, "{}: {less} dirty where collection leaves clean, {more}", scheme.name);
            assert!(rig.sim.now() > usual.sim.now(), "{}: waits take time", scheme.name);
            rig.sim.clear();
        }
        usual.sim.clear();
    }
}

/// Time of reading `key`, ns, a little after another task began to read another key.
fn read_ns(rig: &Rig, other: Option<Key>, key: Key) -> u64 {
    let is_there = |engine: &HashEngine, key| assert!(engine.find(key).unwrap().is_some());
    let other = other.map(|other| {
        let engine = rig.engine.clone();
        rig.sim.spawn(move || is_there(&engine, other))
    });
    rig.sim.block_on(|| {
        rig.sim.sleep(1_000);
        let began = rig.sim.now();
        is_there(&rig.engine, key);
        let took = rig.sim.now() - began;
        other.into_iter().for_each(|other| other.join());
        took
    })
}

/// The last of several colliding keys is many reads away. An emulator that books all reads when the command
/// arrives makes commands for the later dies wait for the earlier reads, too.
#[test]
fn a_lookup_that_books_ahead_takes_the_dies_of_other_keys_pairs_as_well() {
    for scheme in ["original", "plus"].map(|name| scheme(name).unwrap()) {
        let longest_wait = |reserve_ahead| {
            let rig = rig(scheme, Sim::new(), "tags", |config| {
                (config.omissions.reserve_ahead, config.dram_bytes) = (reserve_ahead, 1 << 20);
                config.hash_bits = 1;
            });
            let mut keys: Vec<Key> = (0..16).map(key).collect();
            rig.sim.block_on(|| {
                for key in &keys {
                    // One pair a page, so that pairs are on all dies.
                    store(&rig.engine, *key, value(key, 1, 4000), StoreOptions::default()).unwrap();
                }
                rig.engine.drain();
            });
            keys.sort_by_cached_key(|key| read_ns(&rig, None, *key));
            let (near, far) = (&keys[..2], keys[15]);
            let waits = near.iter().map(|near| read_ns(&rig, Some(far), *near)).max();
            rig.sim.clear();
            waits.unwrap()
        };
        let (usual, ahead) = (longest_wait(false), longest_wait(true));
        assert!(ahead > usual + flash_config().sense_ns, "{}: {ahead} ns, {usual} as usual", scheme.name);
    }
}

#[test]
fn units_that_collection_leaves_in_the_die_take_no_channel() {
    for scheme in SCHEMES {
        let channel_ns = |gc_skips_dead_units| {
            let rig = run_oracle(scheme, Sim::new(), "tags", |config| {
                (config.dram_bytes, config.gc_skips_dead_units) = (1 << 10, gc_skips_dead_units);
            });
            let [_, (_, channels)] = rig.flash.resources();
            rig.sim.clear();
            channels.busy_ns
        };
        let (usual, skipping) = (channel_ns(false), channel_ns(true));
        // Where whole pages are counted, a unit's own count is unknown.
        let knows_units = scheme.name != "plus2";
        assert_eq!(skipping < usual, knows_units, "{}: {skipping} ns, {usual} as usual", scheme.name);
    }
}

/// Eviction of sections and the choice of victims are policies, not format: every combination works.
#[test]
fn policies_can_be_had_with_every_format() {
    for scheme in SCHEMES {
        let with = |section_weight, second_chance| {
            let rig = run_oracle(scheme, Sim::new(), "tags", |config| {
                config.dram_bytes = 1 << 10;
                (config.section_weight, config.second_chance) = (section_weight, second_chance);
            });
            rig.sim.clear();
            rig.engine.counts()
        };
        let as_designed = with(0, SecondChance::Usual);
        let said = if scheme.second_chance { SecondChance::On } else { SecondChance::Off };
        assert_eq!(with(scheme.section_weight, said), as_designed, "{}", scheme.name);
        let other = if scheme.second_chance { SecondChance::Off } else { SecondChance::On };
        assert_ne!(with(scheme.section_weight, other), as_designed, "{}: second chance", scheme.name);
        assert_ne!(with(16, said), as_designed, "{}: section weight", scheme.name);
    }
}

#[test]
fn the_order_of_events_of_one_time_does_not_matter() {
    for scheme in SCHEMES {
        for seed in 0..3 {
            run_oracle(scheme, Sim::permuted(seed), "tags", |_| {}).sim.clear();
        }
    }
}

#[test]
fn colliding_keys_are_told_apart_and_deletes_keep_them_reachable() {
    for scheme in SCHEMES {
        // 480 keys have eight slots to begin in: chains are long, and 81h is not answered before 64 probes
        // each.
        let rig = run_oracle(scheme, Sim::new(), "tags", |config| {
            config.hash_bits = 6;
            config.max_probes = 256;
        });
        assert!(detail(&rig.engine, "collisions") > 1000, "{}", scheme.name);
        rig.sim.clear();
    }
}

#[test]
fn a_probe_sequence_that_is_full_answers_81h_and_reuses_tombstones() {
    for scheme in SCHEMES {
        let rig = rig(scheme, Sim::new(), "tags", |config| {
            config.hash_bits = 1;
            config.max_probes = 3;
        });
        rig.sim.block_on(|| {
            let engine = &rig.engine;
            let mut stored = Vec::new();
            let mut refused = 0;
            // Two sequences of three slots or three buckets.
            for number in 0.. {
                if refused == 10 {
                    break;
                }
                match store(engine, key(number), value(&key(number), 0, 20), StoreOptions::default()) {
                    Ok(()) => stored.push(key(number)),
                    Err(status) => {
                        assert_eq!(status, Status::CAPACITY_EXCEEDED);
                        refused += 1;
                    }
                }
            }
            assert!(stored.len() >= 4);
            engine.delete(stored[0]).unwrap();
            assert!(engine.find(stored[0]).unwrap().is_none());
            for key in &stored[1..] {
                assert!(engine.find(*key).unwrap().is_some(), "{}: {key} after a deleted key", scheme.name);
            }
            let again = store(engine, stored[0], value(&stored[0], 1, 20), StoreOptions::default());
            assert_eq!(again, Ok(()), "{}: the tombstone's place is free", scheme.name);
            stored.sort_unstable();
            assert_eq!(list(engine), stored);
        });
        rig.sim.clear();
    }
}

#[test]
fn a_full_drive_answers_81h_keeps_what_it_has_and_takes_more_after_deletes() {
    for scheme in SCHEMES {
        for bytes in [40, 900, 6000] {
            let rig = rig(scheme, Sim::new(), "tags", |_| {});
            rig.sim.block_on(|| fill_and_empty(&rig.engine, scheme, bytes));
            rig.sim.clear();
        }
    }
}

/// Without over-provisioning the drive is full when only the reserve of collection is free and no superblock
/// has invalid data.
#[test]
fn collection_with_every_victim_full_answers_81h_and_goes_on_after_deletes() {
    for scheme in SCHEMES {
        for bytes in [40, 900] {
            let rig = rig(scheme, Sim::new(), "tags", |config| config.over_provisioning = 0.0);
            rig.sim.block_on(|| fill_and_empty(&rig.engine, scheme, bytes));
            rig.sim.clear();
        }
    }
}

/// Pairs over two pages, so that collection waits for the second page while other tasks store the same keys.
#[test]
fn a_key_overwritten_while_its_pair_is_moved_keeps_the_newer_value() {
    const KEYS: u64 = 300;
    for scheme in SCHEMES {
        let rig = rig(scheme, Sim::new(), "tags", |_| {});
        let versions = Rc::new(RefCell::new(vec![0u64; KEYS as usize]));
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let (engine, versions) = (rig.engine.clone(), versions.clone());
                rig.sim.spawn(move || {
                    let mut rng = Rng::stream(task, "hash.overwrites");
                    for version in 1..700 {
                        let number = rng.below(KEYS / 8) * 8 + task;
                        let value = value(&numbered(number), version, 6000);
                        store(&engine, numbered(number), value, StoreOptions::default()).unwrap();
                        versions.borrow_mut()[number as usize] = version;
                    }
                })
            })
            .collect();
        rig.sim.block_on(|| {
            for task in tasks {
                task.join();
            }
            for (number, version) in (0..).zip(versions.take()).filter(|(_, version)| *version > 0) {
                let expected = expand(&value(&numbered(number), version, 6000));
                assert_eq!(load(&rig.engine, numbered(number)).unwrap(), Some(expected), "{number}");
            }
        });
        assert!(detail(&rig.engine, "gc_outrun_moves") > 0, "{}: collection was never outrun", scheme.name);
        rig.sim.clear();
    }
}

fn numbered(number: u64) -> Key {
    Key::from_u64_be(number)
}

fn fill_and_empty(engine: &HashEngine, scheme: &SchemeRow, bytes: u32) {
    let put = |number: u64, version: u64| {
        let key = numbered(number);
        store(engine, key, value(&key, version, bytes), StoreOptions::default())
    };
    let mut count = 0;
    while let answer = put(count, 0)
        && answer.is_ok()
    {
        count += 1;
    }
    assert_eq!(put(count, 0), Err(Status::CAPACITY_EXCEEDED));
    let filled =
        f64::from(bytes + 13).max(f64::from(scheme.grain_bytes)) * count as f64 / (32.0 * 128.0 * 1024.0);
    println!("{} {bytes} B: {count} pairs, {:.0} % of the drive", scheme.name, 100.0 * filled);
    assert!(filled > 0.4, "{} {bytes} B: only {count} pairs", scheme.name);
    // Overwrites take no more room than they free.
    for number in 0..count {
        assert_eq!(put(number * 7919 % count, 1), Ok(()), "{} {bytes} B: overwrite {number}", scheme.name);
    }
    for number in (0..count).step_by(3) {
        engine.delete(numbered(number)).unwrap();
    }
    for number in 0..count {
        let expected = (number % 3 != 0).then(|| expand(&value(&numbered(number), 1, bytes)));
        assert_eq!(load(engine, numbered(number)).unwrap(), expected);
    }
    for number in 0..count / 4 {
        assert_eq!(put(count + number, 2), Ok(()), "{} {bytes} B: room after deletes", scheme.name);
    }
}

#[test]
fn the_largest_and_the_smallest_value_fit() {
    for scheme in SCHEMES {
        let rig = rig(scheme, Sim::new(), "ram", |_| {});
        rig.sim.block_on(|| {
            let engine = &rig.engine;
            let most = engine.max_value_bytes();
            assert!(most > 10_000, "{}: {most}", scheme.name);
            for (number, bytes) in [(1, most), (2, 0), (3, most - 1), (4, 1)] {
                let value = value(&key(number), 0, bytes);
                assert_eq!(store(engine, key(number), value, StoreOptions::default()), Ok(()));
                assert_eq!(load(engine, key(number)).unwrap(), Some(expand(&value)));
            }
            let refused = engine.reserve(&key(5), most + 1, Arrival::Dma).map(|_| ());
            assert_eq!(refused, Err(Status::INVALID_VALUE_SIZE));
            let update = StoreOptions { update_only: true, ..StoreOptions::default() };
            let absent = store(engine, key(6), value(&key(6), 0, 5), update);
            assert_eq!(absent, Err(Status::KEY_NOT_FOUND));
            // The room of refused stores is free again: the buffer's capacity is stored many times over.
            for _ in 0..200 {
                store(engine, key(6), value(&key(6), 0, most / 2), update).unwrap_err();
            }
        });
        rig.sim.clear();
    }
}

#[test]
fn every_medium_gives_the_same_report() {
    for scheme in SCHEMES {
        let reported = |medium: &MediaKind| {
            let rig = run_oracle(scheme, Sim::new(), medium.name, |_| {});
            rig.sim.clear();
            let reads: Vec<_> = kvdrive_flash::Purpose::ALL
                .iter()
                .map(|(purpose, _)| (rig.flash.reads(*purpose), rig.flash.programs(*purpose)))
                .collect();
            (rig.sim.now(), rig.engine.counts(), reads)
        };
        let mut in_memory = MEDIA.iter().filter(|medium| !medium.has_file);
        let first = reported(in_memory.next().expect("there is one"));
        for medium in in_memory {
            assert_eq!(reported(medium), first, "{}, {}", scheme.name, medium.name);
        }
    }
    assert!(scheme("plus").is_some() && scheme("no such").is_none());
}

/// At the point where commands begin to wait, collection of pairs takes a superblock, and may take another
/// one for the sections that it alters, before it turns to sections. It turns to them at half the number that is kept
/// free, so that a scaled drive, which keeps three free, does not turn to them with every victim.
#[test]
fn sections_come_first_when_half_of_what_is_kept_free_is_left() {
    let critical = |gc_stall_superblocks| {
        HashConfig { gc_stall_superblocks, ..hash_config(SCHEMES[0]) }.critical_superblocks()
    };
    assert_eq!([2, 3, 4, 8].map(critical), [1, 1, 2, 2], "published drives stop commands at 2 and at 4");
}

#[test]
fn each_engine_can_have_the_stall_that_was_published_for_it() {
    let stall = |gc_stall_superblocks, gc_low_superblocks| {
        SCHEMES
            .iter()
            .map(|scheme| {
                let config =
                    HashConfig { gc_stall_superblocks, gc_low_superblocks, ..hash_config(scheme) }.of(scheme);
                config.check(&flash_config().geometry()).unwrap();
                (scheme.name, config.gc_stall_superblocks)
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(stall(0, 8), [("original", 2), ("plus", 4), ("plus2", 4), ("hash8", 2)]);
    assert_eq!(
        stall(0, 4),
        [("original", 2), ("plus", 3), ("plus2", 3), ("hash8", 2)],
        "it lies below where collection begins"
    );
    assert_eq!(stall(3, 8), [("original", 3), ("plus", 3), ("plus2", 3), ("hash8", 3)]);
}
