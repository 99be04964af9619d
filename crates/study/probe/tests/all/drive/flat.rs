//! The same run on flash with every timing: the same operations in different times.

use kvdrive_declare::Counts;
use kvdrive_device::engines::ENGINES;
use kvdrive_flash::timing::TIMINGS;
use kvdrive_host::Calls;
use kvdrive_sim::{Ns, Rng, Sim};

use kvdrive_rigs::drive::{Bench, Oracle, SIZES, Stored, check_one, document, key, store};

/// Longer than any work that a command leaves to be done, ns.
const PATIENCE_NS: Ns = 100_000_000;

/// Flash operations by purpose, and the time when the last one is done.
fn counts(engine: &str, timing: &str) -> (Counts, Ns) {
    // So large that nothing is collected, since the amount of collection beside commands depends on timing.
    let settings = [
        format!("engine.name={engine}"),
        format!("flash.timing={timing}"),
        "flash.blocks_per_die=400".to_owned(),
    ];
    let bench = Bench::new(&document(&settings), Sim::new());
    let counts = bench.sim.block_on(|| {
        let drive = bench.power_on(None).expect("an empty drive comes up");
        let driver = bench.connect();
        let mut oracle = Oracle::of(&bench);
        let mut rng = Rng::stream(1, "steps");
        for _ in 0..400 {
            let key = key(rng.below(60), false);
            match rng.below(8) {
                0 => {
                    driver.delete(key).expect("a delete never fails");
                    oracle.pairs.remove(&key);
                }
                1..=3 => check_one(&driver, &oracle, key),
                _ => {
                    let bytes = SIZES[rng.below(SIZES.len() as u64) as usize];
                    let stored = Stored { version: rng.next_u64(), bytes };
                    store(&driver, &mut oracle, key, stored).expect("there is room");
                }
            }
            // Data on their way to flash are read from memory, so this waits until they have arrived.
            bench.sim.sleep(PATIENCE_NS);
        }
        drive.drain();
        let counts = drive.counts();
        for collected in ["segments_freed", "gc_data_superblocks", "gc_map_superblocks", "cleaned_segments"] {
            assert_eq!(counts.section("engine").get(collected).unwrap_or(0), 0, "{engine}: {collected}");
        }
        counts.section("nand").clone()
    });
    bench.sim.clear();
    (counts, bench.sim.now())
}

#[test]
fn a_run_has_the_same_operations_on_flash_of_every_timing_and_takes_another_time() {
    for engine in ENGINES {
        let [dies, others @ ..] = TIMINGS else { panic!("there is a timing") };
        let usual = counts(engine.name, dies.name);
        for timing in others {
            let other = counts(engine.name, timing.name);
            assert_eq!(other.0, usual.0, "{} on {}", engine.name, timing.name);
            assert_ne!(other.1, usual.1, "{} on {}", engine.name, timing.name);
        }
    }
}
