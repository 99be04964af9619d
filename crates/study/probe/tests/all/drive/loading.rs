//! Pairs that are loaded in no time are equivalent to stored pairs, on every engine.

use kvdrive_content::Piece;
use kvdrive_device::engines::ENGINES;
use kvdrive_flash::media::{MEDIA, MediaKind};
use kvdrive_nvme::Status;
use kvdrive_sim::{Rng, Sim};

use kvdrive_rigs::drive::{Bench, Oracle, SIZES, Stored, check_all, document, key, step, value};

#[test]
fn loaded_pairs_are_there_and_took_no_time() {
    for (row, sim) in ENGINES.iter().flat_map(|row| [(row, Sim::new()), (row, Sim::permuted(5))]) {
        let bench = Bench::new(&document(&[format!("engine.name={}", row.name)]), sim);
        bench.sim.block_on(|| {
            let drive = bench.power_on(None).expect("an empty drive comes up");
            let driver = bench.connect();
            let mut oracle = Oracle::of(&bench);
            let mut rng = Rng::stream(1, "loaded");
            let began = bench.sim.now();
            let mut pairs = (0..4000).map(|version| {
                let key = key(rng.below(60), false);
                let stored = Stored { version, bytes: SIZES[rng.below(SIZES.len() as u64) as usize] };
                oracle.pairs.insert(key, stored);
                (key, Piece::Pattern(value(&key, stored)))
            });
            drive.load(&mut pairs).expect("60 keys fit");
            assert_eq!(bench.sim.now(), began, "{}", row.name);
            let counts = drive.counts();
            assert!(counts.of("nand.erases") > 0, "{}: flash is programmed, collected and counted", row.name);
            // Identify, and two for the queue pair.
            assert_eq!((counts.of("drive.commands"), bench.link.meter().payload().total() > 0), (3, true));
            check_all(&driver, &oracle);
            for _ in 0..300 {
                step(&driver, &mut oracle, &mut rng, 60, false);
            }
            check_all(&driver, &oracle);
            assert!(bench.sim.now() > began, "{}: the clock goes on after it", row.name);
        });
        bench.sim.clear();
    }
}

#[test]
fn a_load_ends_at_the_first_pair_that_does_not_fit() {
    for row in ENGINES {
        let bench = Bench::new(&document(&[format!("engine.name={}", row.name)]), Sim::new());
        bench.sim.block_on(|| {
            let drive = bench.power_on(None).expect("an empty drive comes up");
            let driver = bench.connect();
            let mut oracle = Oracle::of(&bench);
            let mut pairs = (0..).map(|version| {
                let (key, stored) = (key(version, false), Stored { version, bytes: 4000 });
                oracle.pairs.insert(key, stored);
                (key, Piece::Pattern(value(&key, stored)))
            });
            let (failed, status) = drive.load(&mut pairs).unwrap_err();
            assert_eq!(status, Status::CAPACITY_EXCEEDED, "{}", row.name);
            let stored = oracle.pairs.remove(&failed).expect("it was asked for").version;
            assert!((200..1100).contains(&stored), "{}: {stored} pairs of 4 KB in 6 MiB", row.name);
            oracle.pairs.retain(|_, pair| pair.version < stored);
            check_all(&driver, &oracle);
            let large = Stored { version: 0, bytes: 100_000 };
            let key = key(0, false);
            let mut pairs = std::iter::once((key, Piece::Pattern(value(&key, large))));
            let refused = drive.load(&mut pairs);
            assert_eq!(refused, Err((key, Status::INVALID_VALUE_SIZE)), "{}", row.name);
            check_all(&driver, &oracle);
        });
        bench.sim.clear();
    }
}

/// Medium `tags` uses hints of coming reads (`Engine::expect`), and `ram` ignores them.
#[test]
fn what_a_medium_is_told_ahead_changes_nothing() {
    for row in ENGINES {
        let counted = |medium: &MediaKind| {
            let settings = [format!("engine.name={}", row.name), format!("media.kind={}", medium.name)];
            let bench = Bench::new(&document(&settings), Sim::new());
            let counters = bench.sim.block_on(|| {
                let drive = bench.power_on(None).expect("an empty drive comes up");
                let mut rng = Rng::stream(2, "loaded");
                let mut pairs = (0..6000).map(|version| {
                    let key = key(rng.below(900), false);
                    let stored = Stored { version, bytes: SIZES[rng.below(4) as usize] };
                    (key, Piece::Pattern(value(&key, stored)))
                });
                drive.load(&mut pairs).expect("900 keys fit");
                drive.counts()
            });
            bench.sim.clear();
            counters
        };
        let mut in_memory = MEDIA.iter().filter(|medium| !medium.has_file);
        let first = counted(in_memory.next().expect("there is one"));
        for medium in in_memory {
            assert_eq!(counted(medium), first, "{}, {}", row.name, medium.name);
        }
    }
}
