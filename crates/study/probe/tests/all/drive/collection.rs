//! Garbage collection under load: a small drive kept 80 % full and overwritten twenty times, and one that is
//! filled, emptied and filled again.

use kvdrive_content::Piece;
use kvdrive_device::engines::ENGINES;
use kvdrive_engines::lsm::compaction::COMPACTIONS;
use kvdrive_engines::lsm::layout::LAYOUTS;
use kvdrive_engines::packing::PACKINGS;
use kvdrive_flash::ftl::victim::VICTIMS;
use kvdrive_flash::power::PowerOnError;
use kvdrive_host::Calls;
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::{Rng, Sim};

use kvdrive_rigs::drive::{Bench, Oracle, Stored, check_all, document, value};

const BYTES: u32 = 1500;

fn store(driver: &kvdrive_host::modelled::Driver, oracle: &mut Oracle, number: u32, version: u64) -> bool {
    store_sized(driver, oracle, number, version, BYTES)
}

fn store_sized(
    driver: &kvdrive_host::modelled::Driver,
    oracle: &mut Oracle,
    number: u32,
    version: u64,
    bytes: u32,
) -> bool {
    let key = Key::from_u32_be(number);
    let stored = Stored { version, bytes };
    match driver.store(key, Piece::Pattern(value(&key, stored))) {
        Ok(()) => {
            oracle.pairs.insert(key, stored);
            true
        }
        Err(Status::CAPACITY_EXCEEDED) => false,
        Err(status) => panic!("store {number}: {status}"),
    }
}

/// Fills an empty drive until it answers 81h; returns the number of pairs.
fn pairs_until_full(settings: &[String]) -> u32 {
    let bench = Bench::new(&document(settings), Sim::new());
    let pairs = bench.sim.block_on(|| {
        let _drive = bench.power_on(None).expect("an empty drive comes up");
        let driver = bench.connect();
        let mut oracle = Oracle::of(&bench);
        let mut number = 0;
        while store(&driver, &mut oracle, number, 0) {
            number += 1;
        }
        check_all(&driver, &oracle);
        number
    });
    bench.sim.clear();
    pairs
}

#[test]
fn eighty_percent_live_overwritten_twenty_times() {
    for row in ENGINES {
        let settings = vec![format!("engine.name={}", row.name), "packing.policy=all".to_owned()];
        let full = pairs_until_full(&settings);
        let live = full * 8 / 10;
        let bench = Bench::new(&document(&settings), Sim::new());
        bench.sim.block_on(|| {
            let drive = bench.power_on(None).expect("an empty drive comes up");
            let driver = bench.connect();
            let mut oracle = Oracle::of(&bench);
            let mut rng = Rng::stream(1, "overwrites");
            for number in 0..live {
                assert!(store(&driver, &mut oracle, number, 0));
            }
            for version in 1..=u64::from(live) * 20 {
                let number = rng.below(u64::from(live)) as u32;
                assert!(
                    store(&driver, &mut oracle, number, version),
                    "full at overwrite {version} of {live}"
                );
            }
            check_all(&driver, &oracle);
            drive.drain();
            let counts = drive.counts();
            let of_gc = |name| -> u64 {
                let purposes = counts.section("nand").labels(name);
                purposes.filter(|(purpose, _)| purpose.contains("gc")).map(|(_, n)| n).sum()
            };
            assert!(of_gc("programs") > 0, "{}: nothing was collected: {counts:?}", row.name);
            assert!(of_gc("reads") > 0, "{}: collected without reading: {counts:?}", row.name);
            let programs = counts.of("nand.programs");
            let written = f64::from(live) * 21.0 * f64::from(BYTES);
            println!(
                "{}: {full} pairs fit, {live} live, write amplification {:.2}, {:?}",
                row.name,
                programs as f64 * f64::from(bench.config.flash.page_bytes) / written,
                counts.section("engine")
            );
        });
        bench.sim.clear();
    }
}

#[test]
fn filled_emptied_and_filled_ten_times() {
    for row in ENGINES {
        let settings = vec![format!("engine.name={}", row.name), "packing.policy=all".to_owned()];
        let bench = Bench::new(&document(&settings), Sim::new());
        bench.sim.block_on(|| {
            let drive = bench.power_on(None).expect("an empty drive comes up");
            let driver = bench.connect();
            let mut fitted = Vec::new();
            for cycle in 0..10 {
                let mut oracle = Oracle::of(&bench);
                let mut number = 0;
                // So many that memory cannot hold all of their deletes.
                while store_sized(&driver, &mut oracle, number, cycle, 1000) {
                    number += 1;
                }
                fitted.push(number);
                check_all(&driver, &oracle);
                let full = drive.utilization();
                for key in oracle.pairs.keys() {
                    driver.delete(*key).expect("a delete never fails for space");
                }
                assert!(
                    drive.utilization().live_bytes < full.live_bytes / 2,
                    "deletes free nothing: {full:?}"
                );
                oracle.pairs.clear();
                check_all(&driver, &oracle);
            }
            let least = fitted.iter().min().expect("ten cycles");
            assert!(*least * 10 >= fitted[0] * 8, "{}: less fits every time: {fitted:?}", row.name);
        });
        bench.sim.clear();
    }
}

/// The drive is filled to 81h, changed, emptied and half filled again, twice; the second time the power is
/// cut while it is full.
fn fill_and_empty_twice(settings: &[String], bytes: u32) {
    let name = format!("{settings:?}, {bytes} B");
    let mut oracle = Oracle::default();
    let mut rng = Rng::stream(3, "deletes");
    let mut left = None;
    for life in 0..2 {
        let bench = Bench::new(&document(settings), Sim::new());
        left = bench.sim.block_on(|| {
            let drive = match bench.power_on(left.as_ref()) {
                Err(PowerOnError::Config(line)) if life == 0 && line.contains("gc.segment_pages") => {
                    return None;
                }
                powered => powered.expect("it comes up"),
            };
            let driver = bench.connect();
            let mut full = oracle.pairs.len() as u32;
            while store_sized(&driver, &mut oracle, full, life, bytes) {
                full += 1;
            }
            for version in 0..full.into() {
                let number = rng.below(full.into()) as u32;
                if rng.one_in(3) {
                    let key = Key::from_u32_be(number);
                    assert_eq!(driver.delete(key), Ok(()), "{name}: of {full} pairs, {version} changes");
                    oracle.pairs.remove(&key);
                } else {
                    // The store may be refused.
                    store_sized(&driver, &mut oracle, number, 10 + version, bytes);
                }
            }
            let mut keys: Vec<Key> = oracle.pairs.keys().copied().collect();
            for last in (1..keys.len()).rev() {
                keys.swap(last, rng.below(last as u64 + 1) as usize);
            }
            for key in keys {
                let deleted = driver.delete(key);
                assert_eq!(deleted, Ok(()), "{name}: {} of {full} pairs left", oracle.pairs.len());
                oracle.pairs.remove(&key);
            }
            for half in 0..full / 2 {
                let is_stored = store_sized(&driver, &mut oracle, half, life, bytes);
                assert!(is_stored, "{name}: {half} of {full} pairs are there again");
            }
            check_all(&driver, &oracle);
            let mut again = full / 2;
            while store_sized(&driver, &mut oracle, again, life, bytes) {
                again += 1;
            }
            check_all(&driver, &oracle);
            println!("{name}: {full} pairs fit, and again {again}");
            Some(drive.survivors(&mut rng))
        });
        bench.sim.clear();
        if left.is_none() {
            println!("{name}: too small");
            return;
        }
    }
}

/// Small values fill a small drive with the index, and collection makes many new entries: the index always
/// has room to merge itself.
#[test]
fn a_full_index_takes_every_delete_and_then_stores_again() {
    for row in COMPACTIONS {
        for bytes in [0, 32, 300, 4096] {
            let mut settings = vec!["engine.name=lsm".to_owned(), format!("lsm.compaction={}", row.name)];
            if row.name == "whole" {
                // It keeps no room for a merge of everything, so that five times as many pairs fit.
                settings.push("flash.blocks_per_die=10".to_owned());
            }
            fill_and_empty_twice(&settings, bytes);
        }
    }
}

#[test]
#[ignore = "minutes: random small drives"]
fn any_full_index_takes_every_delete_and_then_stores_again() {
    let mut rng = Rng::stream(4, "drives");
    for _ in 0..100 {
        let mut pick = |of: &[&str]| of[rng.below(of.len() as u64) as usize].to_owned();
        let compactions: Vec<_> = COMPACTIONS.iter().map(|row| row.name).collect();
        let layouts: Vec<_> = LAYOUTS.iter().map(|row| row.name).collect();
        let packings: Vec<_> = PACKINGS.iter().map(|row| row.name).collect();
        let victims: Vec<_> = VICTIMS.iter().map(|row| row.name).collect();
        let settings = [
            format!("flash.channels={}", pick(&["1", "2"])),
            format!("flash.blocks_per_die={}", pick(&["8", "16", "24", "40"])),
            format!("flash.pages_per_block={}", pick(&["4", "8", "16"])),
            format!("ftl.over_provisioning={}", pick(&["0.1", "0.2", "0.4"])),
            format!("lsm.layout={}", pick(&layouts)),
            format!("lsm.compaction={}", pick(&compactions)),
            format!("lsm.memtable_entries={}", pick(&["16", "32", "100", "500"])),
            format!("lsm.rings={}", pick(&["[3, 3, 4, 64]", "[3, 3, 3, 200]", "[4, 16, 128, 1024]"])),
            format!("packing.policy={}", pick(&packings)),
            format!("ftl.victim={}", pick(&victims)),
            format!("gc.enabled={}", pick(&["true", "true", "true", "false"])),
            format!("gc.segment_pages={}", pick(&["2", "4", "8", "16"])),
            format!("gc.free_segments_low={}", pick(&["2", "3", "6"])),
            format!("gc.free_segments_reserved={}", pick(&["1", "2", "3"])),
        ];
        let bytes = pick(&["0", "8", "32", "100", "300", "1000", "4096", "20000"]);
        let settings = [&["engine.name=lsm".to_owned()], &settings[..]].concat();
        if document(&settings).config().is_ok() {
            fill_and_empty_twice(&settings, bytes.parse().expect("a number"));
        }
    }
}

/// The room that the index needs for its next merge is kept free from the first command on, so that a nearly
/// full drive can still be overwritten.
#[test]
fn a_drive_that_comes_up_again_offers_as_much_as_before() {
    for row in ENGINES {
        let settings = ["packing.policy=all", "lsm.memtable_entries=512"].map(str::to_owned);
        let settings = [&settings[..], &[format!("engine.name={}", row.name)]].concat();
        let live = pairs_until_full(&settings) * 8 / 10;
        let mut oracle = Oracle::of(&Bench::new(&document(&settings), Sim::new()));
        let mut left = None;
        let mut rng = Rng::stream(2, "overwrites");
        for cut in 0..4 {
            let bench = Bench::new(&document(&settings), Sim::new());
            left = bench.sim.block_on(|| {
                let survivors = left.as_ref().map(|(survivors, _)| survivors);
                let drive = bench.power_on(survivors).expect("it comes up");
                if let Some((_, capacity_bytes)) = left {
                    assert_eq!(drive.utilization().capacity_bytes, capacity_bytes, "{} {cut}", row.name);
                }
                let driver = bench.connect();
                for number in 0..live {
                    let number = if cut == 0 { number } else { rng.below(u64::from(live)) as u32 };
                    let is_stored = store(&driver, &mut oracle, number, cut);
                    assert!(is_stored, "{}: full after cut {cut}", row.name);
                }
                check_all(&driver, &oracle);
                Some((drive.survivors(&mut rng), drive.utilization().capacity_bytes))
            });
            bench.sim.clear();
        }
    }
}

/// A host that opens an iterator and never reads it delays no other host: no command is answered 21h.
#[test]
fn an_iterator_that_holds_the_room_of_changes_is_lost() {
    for row in ENGINES {
        let settings = vec![format!("engine.name={}", row.name), "packing.policy=all".to_owned()];
        let live = pairs_until_full(&settings) * 8 / 10;
        let bench = Bench::new(&document(&settings), Sim::new());
        bench.sim.block_on(|| {
            let _drive = bench.power_on(None).expect("an empty drive comes up");
            let driver = bench.connect();
            let mut oracle = Oracle::of(&bench);
            let mut lost = 0;
            for number in 0..live {
                assert!(store(&driver, &mut oracle, number, 0));
            }
            for round in 0..2 {
                let mut region = kvdrive_content::Region::new();
                let iterators = [0; 3].map(|_| driver.seek(None, &mut region).expect("an iterator opens").0);
                let mut rng = Rng::stream(round, "overwrites");
                for number in 0..2 * live {
                    let key = rng.below(u64::from(live)) as u32;
                    assert!(store(&driver, &mut oracle, key, 1 + round), "{}: overwrite {number}", row.name);
                }
                for number in 0..150 {
                    let key = Key::from_u32_be(number);
                    driver.delete(key).expect("the index has its room");
                    oracle.pairs.remove(&key);
                }
                for iterator in iterators {
                    let next = driver.next(iterator, &mut region);
                    lost += u32::from(next.err() == Some(Status::ITERATOR_LOST));
                    let closed = driver.close(iterator);
                    assert!([Ok(()), Err(Status::NO_SUCH_ITERATOR)].contains(&closed), "{closed:?}");
                }
                for number in 0..live {
                    assert!(
                        store(&driver, &mut oracle, number, 100 + round),
                        "{} {round}: {number}",
                        row.name
                    );
                }
                check_all(&driver, &oracle);
            }
            if row.name == "lsm" {
                assert_eq!(lost, 6, "each of them held what died after it was opened");
            }
        });
        bench.sim.clear();
    }
}
