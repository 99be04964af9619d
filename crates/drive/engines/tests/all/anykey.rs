//! Engine `anykey` beside a map: stores, deletes, batches and walks on a small drive, with the power cut at any event.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_engines::anykey::{AnyKeyConfig, AnyKeyEngine};
use kvdrive_engines::firmware::{CopyCosts, Cores, Roles};
use kvdrive_engines::lsm::{GcConfig, IndexConfig, LsmConfig};
use kvdrive_engines::packing::{PackingConfig, PackingCosts};
use kvdrive_engines::page_buffer::{BufferConfig, Eviction};
use kvdrive_engines::{Engine, EngineConfig, EngineSettings, PairChange, Parts};
use kvdrive_flash::ftl::FtlConfig;
use kvdrive_flash::media::{self, Media, MediaOptions};
use kvdrive_flash::power::{ImageSettings, Journal, NamespaceFeatures, Owner};
use kvdrive_flash::{FlashConfig, FlashPort, Identity, Ppa, Purpose};
use kvdrive_link::{Arrival, Landing};
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_sim::{Rng, Sim};

/// 4 MiB of flash: groups of 8 pages, three levels.
pub fn config(write_back: bool) -> EngineConfig {
    EngineConfig {
        name: "anykey".into(),
        flash: FlashConfig {
            channels: 2,
            dies_per_channel: 2,
            blocks_per_die: 32,
            pages_per_block: 8,
            page_bytes: 4096,
            spare_bytes: 256,
            sense_ns: 36_000,
            program_ns: 185_000,
            erase_ns: 1_000_000,
            transfer_ns_per_kib: 1200,
            ..FlashConfig::default()
        },
        engines: EngineSettings {
            ftl: FtlConfig {
                over_provisioning: 0.2,
                victim: "greedy".into(),
                gc_low_blocks: 2,
                placement_dies: 2,
            },
            lsm: LsmConfig {
                buffer: BufferConfig { entries: 12, eviction: Eviction::Wait },
                packing: PackingConfig {
                    policy: "all".into(),
                    dlt_entries: 8,
                    slots_cross_pages: false,
                    costs: PackingCosts::default(),
                    own: None,
                },
                index: IndexConfig::default(),
                gc: GcConfig {
                    enabled: true,
                    segment_pages: 8,
                    free_segments_low: 6,
                    victims: 2,
                    ahead_segments: 0,
                    free_segments_reserved: 3,
                },
            },
            anykey: AnyKeyConfig {
                group_pages: 8,
                levels: 3,
                memtable_entries: 32,
                log_percent: 10,
                write_back,
                dram_bytes: 4000,
                hash_ns: 79,
                record_ns: 7,
            },
            ..EngineSettings::default()
        },
        runners: 4,
        copy: CopyCosts { setup_ns: 50, ns_per_kib: 250 },
        protected_bytes: 9 << 20,
    }
}

fn parts(sim: &Sim, medium: Box<dyn Media>, config: &EngineConfig) -> Parts {
    let journal = Journal::in_memory(medium.protection());
    Parts {
        sim: sim.clone(),
        cores: Cores::new(sim, Roles::Any(4)),
        flash: FlashPort::new(sim, config.flash.clone(), medium),
        journal,
        owner: Owner {
            identity: Identity::of_seed(7),
            settings: ImageSettings::new([]),
            features: NamespaceFeatures::default(),
        },
        config: config.clone(),
    }
}

/// An empty drive.
pub fn fresh(sim: &Sim, medium: &str, config: &EngineConfig) -> (FlashPort, AnyKeyEngine) {
    let medium =
        (media::kind(medium).unwrap().open)(&config.flash.geometry(), &MediaOptions::default()).unwrap();
    let parts = parts(sim, medium, config);
    (parts.flash.clone(), AnyKeyEngine::power_on(parts, None).unwrap())
}

pub fn key(number: u64) -> Key {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&(number as u16).to_be_bytes());
    let long = if number.is_multiple_of(11) { (number % 240) as usize } else { 0 };
    Key::from_padded(bytes, 2 + (number % 15) as usize + long).unwrap()
}

fn store(engine: &AnyKeyEngine, key: Key, value: Pattern) -> Result<(), Status> {
    let place = engine.reserve(&key, value.bytes, Arrival::Dma)?;
    let mut at = 0;
    while at < value.bytes {
        let part = engine.admit(&place)?.min(value.bytes - at);
        engine.dma_in(&place, at, Piece::Pattern(value.slice(at, part)));
        at += part;
    }
    engine.settle(&place);
    engine.commit(key, place, StoreOptions::default())
}

fn load(engine: &AnyKeyEngine, found: &<AnyKeyEngine as Engine>::Found) -> Result<Vec<u8>, Status> {
    let bytes = engine.value_bytes(found);
    let (mut region, mut at) = (Region::new(), 0);
    engine.load(found, 0, bytes, bytes, &mut |piece| {
        region.write(at, piece);
        at += piece.bytes();
    })?;
    Ok(region.to_bytes(bytes))
}

fn expand(value: &Pattern) -> Vec<u8> {
    let mut bytes = vec![0; value.bytes as usize];
    value.expand(&mut bytes);
    bytes
}

pub type Oracle = BTreeMap<Key, Pattern>;

/// Every key is as the map has it, and a walk finds the same.
pub fn check(engine: &AnyKeyEngine, oracle: &Oracle, keys: u64) {
    for key in (0..keys).map(key) {
        let found = engine.find(key).unwrap().map(|found| load(engine, &found).unwrap());
        assert!(found == oracle.get(&key).map(expand), "{key:?}: {:?}", found.map(|found| found.len()));
    }
    for from in [None, Some(key(keys / 2))] {
        let mut cursor = engine.open_cursor(from).unwrap();
        let mut walked = Vec::new();
        while let Some((key, found)) = engine.next(&mut cursor).unwrap() {
            assert!(load(engine, &found).unwrap() == expand(&oracle[&key]), "{key:?}");
            walked.push(key);
        }
        let expected = oracle.keys().copied().filter(|key| from.is_none_or(|from| from <= *key));
        assert_eq!(walked, expected.collect::<Vec<_>>());
    }
}

#[derive(Clone, Default)]
pub struct Known {
    pub oracle: Oracle,
    /// The change under way: all of it or nothing.
    under_way: Vec<(Key, Option<Pattern>)>,
}

impl Known {
    fn done(&mut self) {
        for (key, value) in std::mem::take(&mut self.under_way) {
            match value {
                Some(value) => self.oracle.insert(key, value),
                None => self.oracle.remove(&key),
            };
        }
    }
}

pub fn apply(engine: &AnyKeyEngine, seed: u64, ops: u64, keys: u64, known: &RefCell<Known>) {
    let mut rng = Rng::stream(seed, "anykey.ops");
    for version in 0..ops {
        let key_of = key(rng.below(keys));
        let bytes = match rng.below(40) {
            0 => 0,
            1 => rng.below(30_000) as u32,
            2..=9 => rng.below(3000) as u32,
            _ => rng.below(200) as u32,
        };
        let value = Pattern::of_value(&key_of, version + seed * 100_000, bytes);
        match rng.below(12) {
            0..=7 => {
                known.borrow_mut().under_way = vec![(key_of, Some(value))];
                store(engine, key_of, value).unwrap();
            }
            8..=10 => {
                known.borrow_mut().under_way = vec![(key_of, None)];
                engine.delete(key_of).unwrap();
            }
            _ => {
                let other = key(rng.below(keys));
                let value = Pattern { bytes: value.bytes.min(2000), ..value };
                if other == key_of {
                    continue;
                }
                known.borrow_mut().under_way = vec![(key_of, Some(value)), (other, None)];
                let changes = vec![
                    PairChange { key: key_of, value: Some(expand(&value)) },
                    PairChange { key: other, value: None },
                ];
                engine.commit_all(changes).unwrap();
            }
        }
        known.borrow_mut().done();
    }
}

/// Powers the survivors on, cuts the power again while they come up, and compares them with what is known.
fn revive(config: &EngineConfig, media_image: &[u8], image: &[u8], known: &Known, seed: u64) {
    let open = |sim: &Sim, media_image: &[u8]| {
        parts(sim, media::from_image("tags", &config.flash.geometry(), media_image).unwrap(), config)
    };
    let first = Sim::new();
    let (parts_of_task, image_of_task) = (open(&first, media_image), image.to_vec());
    let flash = parts_of_task.flash.clone();
    first.spawn(move || AnyKeyEngine::power_on(parts_of_task, Some(&image_of_task)).map(|_| ()));
    let mut rng = Rng::stream(seed, "anykey.second cut");
    for _ in 0..rng.below(400) {
        first.step();
    }
    let media_image = flash.media_image(&mut rng);
    first.clear();
    let sim = Sim::new();
    sim.block_on(|| {
        let engine = AnyKeyEngine::power_on(open(&sim, &media_image), Some(image)).unwrap();
        let mut known = known.clone();
        if let Some((key, value)) = known.under_way.first().copied() {
            let found = engine.find(key).unwrap().map(|found| load(&engine, &found).unwrap());
            if found == value.as_ref().map(expand) {
                known.done();
            }
        }
        known.under_way.clear();
        check(&engine, &known.oracle, KEYS);
        let revived = RefCell::new(known);
        apply(&engine, seed, 60, KEYS, &revived);
        check(&engine, &revived.into_inner().oracle, KEYS);
    });
    sim.clear();
}

pub const KEYS: u64 = 900;

/// Every kind of work happens, and the drive has what the map has.
#[test]
fn a_drive_has_what_a_map_has() {
    for (write_back, ahead_segments) in [(false, 0), (true, 0), (false, 2), (true, 2)] {
        let (sim, mut config) = (Sim::new(), config(write_back));
        config.engines.lsm.gc.ahead_segments = ahead_segments;
        sim.block_on(|| {
            let (_, engine) = fresh(&sim, "tags", &config);
            let known = RefCell::default();
            for round in 0..6 {
                apply(&engine, round, 1500, KEYS, &known);
                check(&engine, &known.borrow().oracle, KEYS);
            }
            let counts = engine.counts();
            for name in ["flushes", "tree_compactions", "log_compactions", "fetched_values", "skipped_groups"]
            {
                assert!(counts.of(&format!("anykey_{name}")) > 0, "{name}");
            }
            assert_eq!(counts.of("anykey_written_back_values") > 0, write_back);
            assert_eq!((counts.of("miscounted_bytes"), counts.of("anykey_scars")), (0, 0));
        });
        sim.clear();
    }
}

#[test]
fn a_power_cut_at_any_event_loses_nothing_that_was_acknowledged() {
    for (write_back, ahead_segments) in [(false, 2), (true, 0)] {
        let (sim, mut config) = (Sim::new(), config(write_back));
        config.engines.lsm.gc.ahead_segments = ahead_segments;
        let (flash, engine) = sim.block_on(|| fresh(&sim, "tags", &config));
        let engine = Rc::new(engine);
        sim.step_every_event();
        let known = Rc::new(RefCell::new(Known::default()));
        let task = {
            let (engine, known) = (engine.clone(), known.clone());
            sim.spawn(move || apply(&engine, 1, 5000, KEYS, &known))
        };
        let mut rng = Rng::stream(9, "anykey.cuts");
        let (mut events, mut cuts) = (0u64, 0u64);
        while task.try_take().is_none() && sim.step() {
            events += 1;
            if events < 20 || rng.one_in(450) {
                cuts += 1;
                let media_image = flash.media_image(&mut rng);
                revive(&config, &media_image, &engine.protected_image(), &known.borrow(), cuts);
            }
        }
        println!("{cuts} cuts in {events} events");
        assert!(engine.counts().of("anykey_log_compactions") > 0 && cuts > 40, "{cuts}");
        sim.clear();
    }
}

/// Keys that cannot be read; every other one is as the map has it.
fn damaged_keys(engine: &AnyKeyEngine, oracle: &Oracle) -> usize {
    let is_damaged = |key: &Key| match engine.find(*key).map(|found| found.map(|found| load(engine, &found)))
    {
        Err(status) | Ok(Some(Err(status))) => {
            assert_eq!(status, Status::UNRECOVERED_ERROR, "{key:?}");
            true
        }
        Ok(found) => {
            assert!(found.map(Result::unwrap) == oracle.get(key).map(expand), "{key:?}");
            false
        }
    };
    (0..KEYS).map(key).filter(is_damaged).count()
}

/// Keys of a walk, and pages that it passed over.
fn walk(engine: &AnyKeyEngine) -> (Vec<Key>, u32) {
    let (mut cursor, mut walked, mut gaps) = (engine.open_cursor(None).unwrap(), Vec::new(), 0);
    loop {
        match engine.next(&mut cursor) {
            Ok(Some((key, _))) => walked.push(key),
            Ok(None) => return (walked, gaps),
            Err(status) => {
                assert_eq!(status, Status::UNRECOVERED_ERROR);
                gaps += 1;
                assert!(gaps < 100, "a walk goes on behind a page");
            }
        }
    }
}

/// Whichever pages are damaged: an answer is right or 88h, a walk without a gap has every key, stores go on, and all of that
/// still holds after the next power-on.
#[test]
fn a_damaged_page_costs_its_keys_and_nothing_else() {
    let config = config(false);
    let (mut damaged, mut with_gaps, mut scars) = (0, 0, 0);
    for offset in 0..6 {
        let sim = Sim::new();
        let (flash, engine) = sim.block_on(|| fresh(&sim, "ram", &config));
        let known = RefCell::default();
        let mut rng = Rng::stream(1, "anykey.damage");
        let (media_image, image) = sim.block_on(|| {
            apply(&engine, 3, 900, KEYS, &known);
            let pages = (offset..config.flash.geometry().pages() as u32).step_by(17).map(Ppa);
            let is_written = |page: &Ppa| flash.read(*page, Purpose::Recovery).is_ok();
            pages.filter(is_written).for_each(|page| flash.damage(page));
            damaged += damaged_keys(&engine, &known.borrow().oracle);
            let (walked, gaps) = walk(&engine);
            with_gaps += gaps;
            assert!(gaps > 0 || walked.iter().eq(known.borrow().oracle.keys()), "{offset}");
            apply(&engine, 4, 500, KEYS, &known);
            damaged_keys(&engine, &known.borrow().oracle);
            scars += engine.counts().of("anykey_scars");
            (flash.media_image(&mut rng), engine.protected_image())
        });
        sim.clear();
        let sim = Sim::new();
        let medium = media::from_image("ram", &config.flash.geometry(), &media_image).unwrap();
        sim.block_on(|| {
            let engine = AnyKeyEngine::power_on(parts(&sim, medium, &config), Some(&image)).unwrap();
            damaged_keys(&engine, &known.borrow().oracle);
            apply(&engine, 5, 300, KEYS, &known);
            damaged_keys(&engine, &known.borrow().oracle);
            walk(&engine);
        });
        sim.clear();
    }
    assert!(damaged > 0 && with_gaps > 0 && scars > 0, "{damaged} keys, {with_gaps} gaps, {scars} scars");
}
