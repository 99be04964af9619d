//! Random streams of commands against a `BTreeMap`, for every row of every table.

use std::rc::Rc;

use kvdrive_device::engines::{ENGINES, EngineRow};
use kvdrive_engines::lsm::compaction::COMPACTIONS;
use kvdrive_engines::lsm::layout::LAYOUTS;
use kvdrive_engines::packing::PACKINGS;
use kvdrive_flash::ftl::victim::VICTIMS;
use kvdrive_flash::media::MEDIA;
use kvdrive_host::Calls;
use kvdrive_link::transfer::METHODS;
use kvdrive_nvme::Status;
use kvdrive_sim::{Rng, Sim};

use kvdrive_rigs::drive::{
    Bench, LARGE, LITTLE_DRAM, Oracle, ROUND_ROBIN_ON_FLAT, check_all, document, step, usual_and_flat,
};

/// Runs `steps` random steps on the small drive with `settings`.
fn random_stream(settings: &[String], steps: u64, seed: u64) {
    let document = document(settings);
    let small_keys = settings.iter().any(|setting| setting == "lsm.layout=published");
    let bench = Bench::new(&document, Sim::new());
    bench.sim.block_on(|| {
        let drive = bench.power_on(None).expect("an empty drive comes up");
        let driver = bench.connect();
        let mut oracle = Oracle::of(&bench);
        let mut rng = Rng::stream(seed, "steps");
        for _ in 0..steps {
            step(&driver, &mut oracle, &mut rng, 60, small_keys);
        }
        check_all(&driver, &oracle);
        drive.drain();
        check_all(&driver, &oracle);
    });
    bench.sim.clear();
}

#[test]
fn every_engine() {
    for row in ENGINES {
        for settings in usual_and_flat(&[&format!("engine.name={}", row.name)]) {
            random_stream(&settings, 1500, 1);
        }
    }
}

/// Values that no engine takes at once, on a drive that is full of them most of the time.
#[test]
fn large_values_in_every_engine() {
    for (seed, row) in ENGINES.iter().enumerate() {
        let engine = format!("engine.name={}", row.name);
        for settings in usual_and_flat(&[&[engine.as_str()], LARGE].concat()) {
            random_stream(&settings, 400, seed as u64);
        }
    }
}

/// Values of several segments, on a drive that is full of them most of the time.
#[test]
fn large_values() {
    for settings in usual_and_flat(LARGE) {
        random_stream(&settings, 600, 7);
        random_stream(
            &[settings, vec!["controller.cores=2".into(), "gc.segment_pages=16".into()]].concat(),
            400,
            8,
        );
    }
    for (seed, row) in METHODS.iter().enumerate() {
        let method = format!("host.transfer={}", row.name);
        let settings = LARGE.iter().map(|set| (*set).to_owned()).chain([method]);
        random_stream(&settings.collect::<Vec<_>>(), 60, seed as u64);
    }
}

#[test]
fn every_transfer_method() {
    for (seed, row) in METHODS.iter().enumerate() {
        random_stream(&[format!("host.transfer={}", row.name)], 600, seed as u64);
    }
}

#[test]
fn every_packing_policy() {
    for (seed, row) in PACKINGS.iter().enumerate() {
        for slots_cross_pages in [false, row.has_slots] {
            let policy = format!("packing.policy={}", row.name);
            let crossing = format!("packing.slots_cross_pages={slots_cross_pages}");
            random_stream(&[policy, crossing], 600, seed as u64);
        }
    }
}

#[test]
fn every_medium_gives_the_same() {
    for row in ENGINES {
        let folder = tempfile::tempdir().expect("a folder for the image");
        let engine = format!("engine.name={}", row.name);
        for kind in MEDIA.iter().filter(|kind| !kind.has_file) {
            random_stream(&[engine.clone(), format!("media.kind={}", kind.name)], 600, 3);
        }
        let path = folder.path().join("drive.img");
        let file = ["media.kind=file".into(), format!("media.path={}", path.display()), engine];
        random_stream(&file, 600, 3);
    }
}

#[test]
fn every_index_layout_and_compaction() {
    for layout in LAYOUTS {
        for compaction in COMPACTIONS {
            let settings =
                [format!("lsm.layout={}", layout.name), format!("lsm.compaction={}", compaction.name)];
            random_stream(&settings, 1000, 4);
            random_stream(&[&settings[..], &LITTLE_DRAM.map(str::to_owned)].concat(), 1000, 4);
        }
    }
}

#[test]
fn overlapping_eviction_and_every_victim_policy() {
    for row in VICTIMS {
        random_stream(&["buffer.eviction=overlap".into(), format!("ftl.victim={}", row.name)], 800, 5);
    }
}

/// Several tasks on several queues and firmware contexts, each with keys of its own.
fn concurrent_stream(sim: Sim, settings: &[&str], seed: u64) {
    let mut all = vec!["controller.contexts=4", "controller.cores=2", "host.queues=2", "host.depth=4"];
    all.extend(settings);
    let document = document(&all);
    let bench = Bench::new(&document, sim);
    bench.sim.block_on(|| {
        let drive = bench.power_on(None).expect("an empty drive comes up");
        let drivers = [Rc::new(bench.connect()), Rc::new(bench.connect())];
        let tasks = (0..4usize).map(|task| {
            let driver = drivers[task % 2].clone();
            move || {
                let mut oracle = Oracle::default();
                let mut rng = Rng::stream(seed, &format!("task {task}"));
                for _ in 0..250 {
                    own_step(&driver, &mut oracle, &mut rng, task as u64);
                }
                oracle
            }
        });
        let oracles = kvdrive_sim::join_all(&bench.sim, tasks);
        let mut oracle = Oracle::of(&bench);
        oracle.pairs.extend(oracles.into_iter().flat_map(|other| other.pairs));
        check_all(&drivers[0], &oracle);
        drive.drain();
        check_all(&drivers[1], &oracle);
    });
    bench.sim.clear();
}

/// A step on keys that no other task touches.
fn own_step(driver: &kvdrive_host::modelled::Driver, oracle: &mut Oracle, rng: &mut Rng, task: u64) {
    use kvdrive_rigs::drive::{SIZES, Stored, check_one, store};
    let key = kvdrive_nvme::Key::from_u32_be((task as u32) << 16 | rng.below(15) as u32);
    match rng.below(8) {
        0..=4 => {
            let bytes = SIZES[rng.below(SIZES.len() as u64) as usize];
            let stored = Stored { version: rng.next_u64(), bytes };
            match store(driver, oracle, key, stored) {
                // The buffer may be full of unfinished values from other queues: the host tries again.
                Ok(()) | Err(Status::COMMAND_INTERRUPTED | Status::CAPACITY_EXCEEDED) => {}
                Err(status) => panic!("store of {bytes} bytes: {status}"),
            }
        }
        5 => {
            driver.delete(key).expect("a delete never fails");
            oracle.pairs.remove(&key);
        }
        _ => check_one(driver, oracle, key),
    }
}

#[test]
fn several_queues_and_contexts() {
    for method in METHODS {
        concurrent_stream(Sim::new(), &[&format!("host.transfer={}", method.name)], 6);
    }
    for packing in PACKINGS {
        concurrent_stream(Sim::new(), &[&format!("packing.policy={}", packing.name)], 7);
    }
}

/// Commands of one value (*write*, *transfer*) come by several I/O threads, in any order of events.
#[test]
fn several_queues_and_io_threads() {
    for (seed, method) in (0..).zip(METHODS) {
        let method = format!("host.transfer={}", method.name);
        concurrent_stream(Sim::permuted(seed), &[ROUND_ROBIN_ON_FLAT, &[&method]].concat(), 6);
    }
    for (seed, engine) in (0..).zip(ENGINES) {
        let engine = format!("engine.name={}", engine.name);
        concurrent_stream(Sim::permuted(seed), &[ROUND_ROBIN_ON_FLAT, &[&engine]].concat(), 7);
    }
}

#[test]
fn no_result_depends_on_the_order_of_events_of_one_time() {
    for seed in 0..6 {
        concurrent_stream(Sim::permuted(seed), &[], 8 + seed);
        for method in METHODS.iter().filter(|method| method.by_window) {
            let transfer = format!("host.transfer={}", method.name);
            concurrent_stream(Sim::permuted(seed), &[&transfer, "host.depth=8"], 8 + seed);
        }
    }
}

#[test]
fn an_iterator_shows_the_state_at_its_creation() {
    for row in ENGINES {
        iterate_while_storing(row);
    }
}

fn iterate_while_storing(row: &EngineRow) {
    let engine = row.name;
    use kvdrive_rigs::drive::{Stored, is_value, key, value};
    let mut settings = vec!["lsm.iterators=4".to_owned(), format!("engine.name={engine}")];
    if kvdrive_engines::hash::scheme(engine).is_some() {
        settings.push("flash.blocks_per_die=14".into());
    }
    if engine == "anykey" {
        // Its compaction keeps more room free, and an iterator that holds what it needs is lost.
        settings.push("flash.blocks_per_die=28".into());
    }
    let document = document(&settings);
    let bench = Bench::new(&document, Sim::new());
    bench.sim.block_on(|| {
        let drive = bench.power_on(None).expect("an empty drive comes up");
        let driver = bench.connect();
        let mut oracle = Oracle::of(&bench);
        let mut rng = Rng::stream(9, "steps");
        for _ in 0..200 {
            step(&driver, &mut oracle, &mut rng, 40, false);
        }
        let mut before = oracle.clone();
        let ordered = !before.unordered;
        let mut region = kvdrive_content::Region::new();
        let (iterator, mut pair) = driver.seek(None, &mut region).expect("an iterator opens");
        while let Some(found) = pair {
            let next = if ordered { *before.pairs.keys().next().expect("one more") } else { found.key };
            let stored = before.pairs.remove(&next).expect("a pair that was there, once");
            assert_eq!((found.key, found.value_bytes), (next, stored.bytes), "{engine}");
            assert!(is_value(&region, &found.key, stored), "{engine}: value of {:?}", found.key);
            for _ in 0..25 {
                let key = key(rng.below(40), false);
                let stored = Stored { version: rng.next_u64(), bytes: 3000 };
                match driver.store(key, kvdrive_content::Piece::Pattern(value(&key, stored))) {
                    Ok(()) => drop(oracle.pairs.insert(key, stored)),
                    // The room that the iterator holds is freed when it is closed.
                    Err(Status::CAPACITY_EXCEEDED | Status::COMMAND_INTERRUPTED) => {}
                    Err(status) => panic!("store: {status}"),
                }
            }
            pair = driver.next(iterator, &mut region).unwrap_or_else(|status| panic!("{engine}: {status}"));
        }
        assert!(before.pairs.is_empty(), "{engine}: not every pair that was there");
        driver.close(iterator).expect("it closes");
        check_all(&driver, &oracle);
        for way in row.reclaims {
            assert!(drive.counts().section("engine").of(way) > 0, "{engine}: no {way} meanwhile");
        }
    });
    bench.sim.clear();
}

/// With less protected memory than it needs, a hash engine reports how much it needs; with exactly that it
/// works, and the survivors fit.
#[test]
fn hash_engines_do_with_the_protected_memory_they_ask_for() {
    for row in kvdrive_engines::hash::SCHEMES {
        let settings = |protected_bytes: u64| {
            document(&[
                format!("engine.name={}", row.name),
                format!("power.protected_bytes={protected_bytes}"),
                "hash.dram_bytes=262144".into(),
            ])
        };
        let refused = settings(300_000).config().expect_err("too little").to_string();
        let needed = refused.split("to at least ").nth(1);
        let needed: u64 = needed.and_then(|number| number.parse().ok()).expect(&refused);
        let bench = Bench::new(&settings(needed), Sim::new());
        bench.sim.block_on(|| {
            let drive = bench.power_on(None).expect("enough");
            let driver = bench.connect();
            let mut oracle = Oracle::of(&bench);
            let mut rng = Rng::stream(12, "steps");
            for _ in 0..1500 {
                step(&driver, &mut oracle, &mut rng, 400, false);
                let saved = drive.survivors(&mut rng).protected.len() as u64;
                assert!(saved <= needed, "{}: {saved} B of {needed}", row.name);
            }
            check_all(&driver, &oracle);
        });
        bench.sim.clear();
    }
}

/// A list is not limited like a value: it holds keys, however short the values of a drive are.
#[test]
fn lists_hold_keys_whatever_the_largest_value() {
    use kvdrive_rigs::drive::{Stored, key};
    for row in ENGINES {
        let settings = [
            format!("engine.name={}", row.name),
            "controller.max_value_bytes=1".into(),
            "workload.value_size=0".into(),
        ];
        let bench = Bench::new(&document(&settings), Sim::new());
        bench.sim.block_on(|| {
            let _drive = bench.power_on(None).expect("an empty drive comes up");
            let driver = bench.connect();
            let mut oracle = Oracle::of(&bench);
            for number in 0..50 {
                let stored = Stored { version: 5, bytes: number as u32 % 2 };
                let answer = kvdrive_rigs::drive::store(&driver, &mut oracle, key(number, false), stored);
                assert_eq!(answer, Ok(()), "{}", row.name);
            }
            check_all(&driver, &oracle);
        });
        bench.sim.clear();
    }
}

/// Refused at power-on, too, by the key that the user knows.
#[test]
fn what_an_engine_cannot_work_with_is_refused_by_its_key() {
    type Change = fn(&mut kvdrive_device::drive::DriveConfig);
    let no_flash: Change = |config| config.flash.enabled = false;
    let large_pages: Change = |config| config.flash.page_bytes = 262_144;
    for (engine, change, line) in [
        ("lsm", large_pages, "flash.page_bytes: 262144; allowed with engine.name = \"lsm\""),
        ("original", no_flash, "nand.enabled: false; engine original"),
        ("plus2", no_flash, "nand.enabled: false; engine plus2"),
    ] {
        let bench = Bench::new(&document(&[format!("engine.name={engine}")]), Sim::new());
        let mut config = bench.config.drive();
        change(&mut config);
        let power_on = || kvdrive_device::Drive::power_on(&bench.sim, &bench.link, &config, None);
        let refused = bench.sim.block_on(power_on).err().expect("it is refused").to_string();
        assert!(refused.starts_with(line), "{refused}");
        bench.sim.clear();
    }
}
