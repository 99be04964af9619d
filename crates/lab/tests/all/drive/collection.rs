//! Garbage collection that really runs: a small drive kept 80 % full and overwritten twenty times, and one that is
//! filled, emptied and filled again.

use kvdrive_device::controller::ENGINES;
use kvdrive_link::Piece;
use kvdrive_sim::{Rng, Sim};
use kvdrive_spec::{Key, Status};

use super::bench::{Bench, Oracle, Stored, check_all, document, value};

const BYTES: u32 = 1500;

async fn store(
    driver: &kvdrive_host::modelled::Driver,
    oracle: &mut Oracle,
    number: u32,
    version: u64,
) -> bool {
    let key = Key::from_u32_be(number);
    let stored = Stored { version, bytes: BYTES };
    match driver.store(key, Piece::Pattern(value(&key, stored))).await {
        Ok(()) => {
            oracle.pairs.insert(key, stored);
            true
        }
        Err(Status::CAPACITY_EXCEEDED) => false,
        Err(status) => panic!("store {number}: {status}"),
    }
}

/// Fills an empty drive to 81h; how many pairs that were.
fn pairs_until_full(settings: &[String]) -> u32 {
    let bench = Bench::new(&document(settings), Sim::new());
    let pairs = bench.sim.block_on(async {
        let _drive = bench.power_on(None).await.expect("an empty drive comes up");
        let driver = bench.connect().await;
        let mut oracle = Oracle::of(&bench);
        let mut number = 0;
        while store(&driver, &mut oracle, number, 0).await {
            number += 1;
        }
        check_all(&driver, &oracle).await;
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
        bench.sim.block_on(async {
            let drive = bench.power_on(None).await.expect("an empty drive comes up");
            let driver = bench.connect().await;
            let mut oracle = Oracle::of(&bench);
            let mut rng = Rng::stream(1, "overwrites");
            for number in 0..live {
                assert!(store(&driver, &mut oracle, number, 0).await);
            }
            for version in 1..=u64::from(live) * 20 {
                let number = rng.below(u64::from(live)) as u32;
                assert!(
                    store(&driver, &mut oracle, number, version).await,
                    "full at overwrite {version} of {live}"
                );
            }
            check_all(&driver, &oracle).await;
            drive.drain().await;
            let counters = drive.counters();
            let collected: u64 =
                counters.programs().filter(|(name, _)| name.contains("gc")).map(|(_, n)| n).sum();
            let read: u64 = counters.reads().filter(|(name, _)| name.contains("gc")).map(|(_, n)| n).sum();
            assert!(collected > 0, "{}: nothing was collected: {:?}", row.name, counters);
            assert!(read > 0, "{}: collected without reading: {:?}", row.name, counters);
            let programs: u64 = counters.programs().map(|(_, n)| n).sum();
            let written = f64::from(live) * 21.0 * f64::from(BYTES);
            println!(
                "{}: {full} pairs fit, {live} live, write amplification {:.2}, {:?}",
                row.name,
                programs as f64 * f64::from(bench.config.flash.page_bytes) / written,
                counters.engine
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
        bench.sim.block_on(async {
            let drive = bench.power_on(None).await.expect("an empty drive comes up");
            let driver = bench.connect().await;
            let mut fitted = Vec::new();
            for cycle in 0..10 {
                let mut oracle = Oracle::of(&bench);
                let mut number = 0;
                while store(&driver, &mut oracle, number, cycle).await {
                    number += 1;
                }
                fitted.push(number);
                check_all(&driver, &oracle).await;
                let full = drive.utilization();
                for key in oracle.pairs.keys() {
                    driver.delete(*key).await.expect("a delete never fails for space");
                }
                assert!(
                    drive.utilization().live_bytes < full.live_bytes / 2,
                    "deletes free nothing: {full:?}"
                );
                oracle.pairs.clear();
                check_all(&driver, &oracle).await;
            }
            let least = fitted.iter().min().expect("ten cycles");
            assert!(*least * 10 >= fitted[0] * 8, "{}: less fits every time: {fitted:?}", row.name);
        });
        bench.sim.clear();
    }
}

/// What the index needs for its next merge is kept from values from the first command on, so that a drive that is nearly
/// full can be overwritten on.
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
            left = bench.sim.block_on(async {
                let survivors = left.as_ref().map(|(survivors, _)| survivors);
                let drive = bench.power_on(survivors).await.expect("it comes up");
                if let Some((_, capacity_bytes)) = left {
                    assert_eq!(drive.utilization().capacity_bytes, capacity_bytes, "{} {cut}", row.name);
                }
                let driver = bench.connect().await;
                for number in 0..live {
                    let number = if cut == 0 { number } else { rng.below(u64::from(live)) as u32 };
                    let is_stored = store(&driver, &mut oracle, number, cut).await;
                    assert!(is_stored, "{}: full behind cut {cut}", row.name);
                }
                check_all(&driver, &oracle).await;
                Some((drive.survivors(&mut rng), drive.utilization().capacity_bytes))
            });
            bench.sim.clear();
        }
    }
}

#[test]
fn an_open_iterator_holds_room_and_neither_deletes_nor_the_drive() {
    let settings = vec!["packing.policy=all".to_owned()];
    let live = pairs_until_full(&settings) * 8 / 10;
    let bench = Bench::new(&document(&settings), Sim::new());
    bench.sim.block_on(async {
        let _drive = bench.power_on(None).await.expect("an empty drive comes up");
        let driver = bench.connect().await;
        let mut oracle = Oracle::of(&bench);
        for number in 0..live {
            assert!(store(&driver, &mut oracle, number, 0).await);
        }
        for round in 0..4 {
            let mut region = kvdrive_link::Region::new();
            let (iterator, _) = driver.seek(None, &mut region).await.expect("an iterator opens");
            let mut rng = Rng::stream(round, "overwrites");
            let refused = loop {
                let key = Key::from_u32_be(rng.below(u64::from(live)) as u32);
                let stored = Stored { version: 1 + round, bytes: BYTES };
                match driver.store(key, Piece::Pattern(value(&key, stored))).await {
                    Ok(()) => _ = oracle.pairs.insert(key, stored),
                    Err(status) => break status,
                }
            };
            assert_eq!(refused, Status::COMMAND_INTERRUPTED, "round {round}: what is held comes back");
            for number in 0..150 {
                let key = Key::from_u32_be(number);
                driver.delete(key).await.expect("the index has its room");
                oracle.pairs.remove(&key);
            }
            driver.close(iterator).await.expect("it closes");
            for number in 0..live {
                assert!(store(&driver, &mut oracle, number, 100 + round).await, "round {round}: {number}");
            }
            check_all(&driver, &oracle).await;
        }
    });
    bench.sim.clear();
}
