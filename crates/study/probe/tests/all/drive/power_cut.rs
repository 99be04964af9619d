//! Power cuts at every event ([`kvdrive_probe::crash`]): on every drive, acknowledged data are readable
//! afterwards.

use std::sync::atomic::Ordering;

use kvdrive_config::Document;
use kvdrive_config::faults::rules;
use kvdrive_content::{Pattern, Piece};
use kvdrive_device::engines::ENGINES;
use kvdrive_engines::lsm::compaction::COMPACTIONS;
use kvdrive_engines::lsm::layout::LAYOUTS;
use kvdrive_engines::packing::PACKINGS;
use kvdrive_flash::faults::Rule;
use kvdrive_flash::media::MEDIA;
use kvdrive_host::Calls;
use kvdrive_link::transfer::METHODS;
use kvdrive_probe::crash::{Cuts, Ledger, Trial, Verdict, crash, crash_workload};
use kvdrive_run::Watch;
use kvdrive_sim::{Rng, Sim};
use kvdrive_workload::{Op, ValueSpec, Workload};

use kvdrive_rigs::drive::{
    Bench, LARGE, LARGE_SIZES, LITTLE_DRAM, ROUND_ROBIN_ON_FLAT, SIZES, document, key, usual_and_flat,
};

/// Stores and deletes of few keys, so that pairs are overwritten, deleted and collected.
struct FewKeys {
    rng: Rng,
    small_keys: bool,
    sizes: &'static [u32],
}

impl Workload for FewKeys {
    fn next(&mut self) -> Op {
        let key = key(self.rng.below(12), self.small_keys);
        let bytes = self.sizes[self.rng.below(self.sizes.len() as u64) as usize];
        match self.rng.below(5) {
            0 => Op::Delete { key },
            _ => Op::Store { key, value: ValueSpec { bytes, version: self.rng.next_u64() } },
        }
    }
}

/// A drive with spare blocks has flash that fails.
fn failing(document: &Document, settings: &[String]) -> Vec<Rule> {
    if !settings.iter().any(|setting| setting.starts_with("flash.spare_blocks=")) {
        return Vec::new();
    }
    let text = "[[rule]]\nfault = \"program-error\"\nprobability = 0.1\n\
                [[rule]]\nfault = \"erase-error\"\nprobability = 0.3\n";
    let geometry = document.config().unwrap().drive().flash.geometry();
    rules("faults.toml", text, &geometry).expect("rules")
}

/// Runs `ops` commands, and cuts the power at `cuts`.
fn cut(settings: &[String], ops: u64, cuts: Cuts, seed: u64) -> Verdict {
    let small_keys = settings.iter().any(|setting| setting == "lsm.layout=published");
    let own = [format!("workload.ops={ops}"), format!("run.seed={seed}")];
    let is_large = settings.iter().any(|setting| LARGE.contains(&setting.as_str()));
    let sizes: &'static [u32] = if is_large { &LARGE_SIZES } else { &SIZES };
    let build = move |seed| {
        let workload = FewKeys { rng: Rng::stream(seed, "application"), small_keys, sizes };
        Ok(Box::new(workload) as Box<dyn Workload>)
    };
    let document = document(&[&own, settings].concat());
    let verdict = crash_workload(&document, &failing(&document, settings), cuts, &build).expect("it runs");
    assert_eq!(verdict.lost, None, "{settings:?}");
    assert_eq!(verdict.operations, ops, "{settings:?}");
    verdict
}

/// The same at every `every`-th event.
fn cut_everywhere(settings: &[String], ops: u64, every: u64, seed: u64) {
    let verdict = cut(settings, ops, Cuts::Every(every), seed);
    assert!(verdict.cuts > ops / every, "{} cuts of {ops} commands", verdict.cuts);
}

/// The full product takes long; `cargo test -- --ignored the_full_product` runs it.
#[test]
#[ignore = "minutes: every engine x transfer x packing x medium"]
fn the_full_product() {
    for engine in ENGINES {
        for method in METHODS {
            // Other engines have no packing policy.
            let packings = if engine.sections.contains(&"packing") { PACKINGS } else { &PACKINGS[..1] };
            for packing in packings {
                for medium in MEDIA.iter().filter(|medium| !medium.has_file) {
                    let settings = [
                        format!("engine.name={}", engine.name),
                        format!("host.transfer={}", method.name),
                        format!("packing.policy={}", packing.name),
                        format!("media.kind={}", medium.name),
                    ];
                    cut_everywhere(&settings, 60, 1, 11);
                }
            }
        }
    }
}

#[test]
fn every_event_of_a_short_run() {
    for row in ENGINES {
        let [usual, flat] = usual_and_flat(&[&format!("engine.name={}", row.name)]);
        cut_everywhere(&usual, 40, 1, 1);
        cut_everywhere(&flat, 25, 1, 2);
    }
}

#[test]
fn every_engine() {
    for row in ENGINES {
        for medium in MEDIA.iter().filter(|medium| !medium.has_file) {
            let settings = [format!("engine.name={}", row.name), format!("media.kind={}", medium.name)];
            cut_everywhere(&settings, 150, 11, 2);
        }
    }
}

/// The same values in every engine, with small ones between them.
#[test]
fn while_large_values_arrive_in_every_engine() {
    for (seed, row) in ENGINES.iter().enumerate() {
        let engine = format!("engine.name={}", row.name);
        let [usual, flat] = usual_and_flat(&[&[engine.as_str()], LARGE].concat());
        cut_everywhere(&usual, 40, 71, seed as u64);
        let beside = ["host.depth=4".to_owned(), "host.queues=2".to_owned()];
        cut_everywhere(&[&flat[..], &beside].concat(), 40, 101, seed as u64);
        let folder = tempfile::tempdir().expect("a folder for images");
        let path = format!("media.path={}", folder.path().join("drive.img").display());
        let on_file = ["media.kind=file".to_owned(), path];
        cut_everywhere(&[&usual[..], &on_file].concat(), 20, 107, seed as u64);
    }
}

/// Values that are written to flash while they arrive: each is complete afterwards, or the one before it is.
#[test]
fn while_large_values_arrive() {
    for (seed, settings) in usual_and_flat(LARGE).into_iter().enumerate() {
        cut_everywhere(&settings, 60, 19, seed as u64);
        let beside = ["host.depth=4".to_owned(), "host.queues=2".to_owned()];
        cut_everywhere(&[&settings[..], &beside].concat(), 60, 23, seed as u64);
        cut_everywhere(&[&settings[..], &["media.kind=tags".to_owned()]].concat(), 40, 29, seed as u64);
        let folder = tempfile::tempdir().expect("a folder for images");
        let path = format!("media.path={}", folder.path().join("drive.img").display());
        let on_file = ["media.kind=file".to_owned(), path];
        cut_everywhere(&[&settings[..], &on_file].concat(), 40, 31, seed as u64);
    }
}

#[test]
fn every_transfer_method() {
    for (seed, row) in METHODS.iter().enumerate() {
        cut_everywhere(&[format!("host.transfer={}", row.name)], 60, 13, seed as u64);
    }
}

#[test]
fn every_packing_policy() {
    for (seed, row) in PACKINGS.iter().enumerate() {
        let policy = format!("packing.policy={}", row.name);
        let crossing = format!("packing.slots_cross_pages={}", row.has_slots && seed % 2 == 0);
        cut_everywhere(&[policy, crossing], 100, 7, seed as u64);
    }
}

#[test]
fn tags_medium_and_every_index_layout() {
    for layout in LAYOUTS {
        for compaction in COMPACTIONS {
            let settings = [
                "media.kind=tags".to_owned(),
                "lsm.memtable_entries=16".to_owned(),
                format!("lsm.layout={}", layout.name),
                format!("lsm.compaction={}", compaction.name),
            ];
            cut_everywhere(&settings, 120, 11, 4);
            cut_everywhere(&[&settings[..], &LITTLE_DRAM.map(str::to_owned)].concat(), 120, 17, 5);
        }
    }
}

/// Enough stores for value log and FTL to collect garbage while the power is cut.
#[test]
fn while_garbage_is_collected() {
    for row in ENGINES {
        let settings = [
            format!("engine.name={}", row.name),
            "lsm.memtable_entries=16".to_owned(),
            "flash.blocks_per_die=16".to_owned(),
        ];
        cut_everywhere(&settings, 700, 197, 5);
        let flat =
            settings.into_iter().chain(ROUND_ROBIN_ON_FLAT.iter().map(|setting| (*setting).to_owned()));
        cut_everywhere(&flat.collect::<Vec<_>>(), 700, 397, 6);
    }
}

/// During retirements: with spare blocks for all of them, and with one per unit, after which the drive is
/// read-only.
#[test]
fn while_blocks_are_retired() {
    for row in ENGINES {
        for (spare_blocks, every) in [(500, 29), (1, 31)] {
            let engine = format!("engine.name={}", row.name);
            let spare = format!("flash.spare_blocks={spare_blocks}");
            let [usual, flat] = usual_and_flat(&[&engine, &spare, "buffer.entries=8"]);
            cut_everywhere(&usual, 150, every, 7);
            cut_everywhere(&flat, 150, every, 8);
        }
    }
}

/// Several commands are under way at once, some of them for one key.
#[test]
fn at_depth_eight() {
    for row in ENGINES {
        let settings = [format!("engine.name={}", row.name), "host.depth=8".into(), "host.queues=2".into()];
        cut_everywhere(&settings, 200, 23, 6);
    }
}

/// SAKER in front: pairs that a sync has made durable exist, in the version of the last write before the sync
/// or a later one.
#[test]
fn with_saker_in_front() {
    for (seed, batch) in [1, 4, 64, 0].into_iter().enumerate() {
        for engine in ["lsm", "hashlog"] {
            let settings = [
                format!("engine.name={engine}"),
                format!("saker.batch={batch}"),
                "saker.enabled=true".to_owned(),
                "saker.container_bytes=2000".to_owned(),
                "saker.in_flight=3".to_owned(),
                "host.threads=3".to_owned(),
                "workload.sync_every=7".to_owned(),
            ];
            cut_everywhere(&settings, 150, 5, seed as u64);
        }
    }
}

/// Random choices at a cut depend on its event alone.
#[test]
fn one_cut_is_repeated_without_the_others() {
    let settings = ["host.depth=4".to_owned()];
    let all = cut(&settings, 40, Cuts::Random(30), 7);
    assert_eq!((all.cuts, cut(&settings, 40, Cuts::Random(30), 7)), (30, all.clone()));
    let one = cut(&settings, 40, Cuts::At(all.events / 2), 7);
    assert_eq!((one.cuts, one.events), (1, all.events));
}

#[test]
fn a_cut_after_the_end_of_the_run_is_refused_with_the_number_of_its_events() {
    let document = document(&["workload.ops=20"]);
    let events = crash(&document, &[], Cuts::Rules).expect("it runs").events;
    assert_eq!(crash(&document, &[], Cuts::At(events)).expect("the last event").cuts, 1);
    let error = crash(&document, &[], Cuts::At(events + 1)).unwrap_err().to_string();
    assert_eq!(error, format!("event {}: the run has {events} events", events + 1));
}

#[test]
fn a_run_that_is_stopped_has_a_verdict_of_what_was_done() {
    let document = document(&["workload.ops=20"]);
    let watch = Watch::progress(&|_, _| {});
    watch.stop.store(true, Ordering::Relaxed);
    let verdict = Trial::new(&[], Cuts::At(1)).run_watched(&document, &watch).expect("it is no error");
    assert_eq!((verdict.events, verdict.cuts, verdict.lost), (0, 0, None));
}

#[test]
fn progress_is_of_the_run_that_is_cut() {
    let progress = std::cell::RefCell::new(Vec::new());
    let note = |done, total| progress.borrow_mut().push((done, total));
    let document = document(&["workload.ops=20"]);
    Trial::new(&[], Cuts::Random(4)).run_watched(&document, &Watch::progress(&note)).expect("it runs");
    let progress = progress.borrow();
    assert_eq!(progress.len(), 4, "once a cut, and not while events are counted: {progress:?}");
    assert!(progress.is_sorted() && progress.iter().all(|(_, total)| *total == 20), "{progress:?}");
}

/// At places that a rule names, during programs and erases, with workloads of the table.
#[test]
fn where_rules_cut() {
    for (torn, at) in [("true", "program"), ("false", "program"), ("true", "erase"), ("false", "erase")] {
        let document = document(&[
            "workload.name=ycsb-a",
            "workload.num=60",
            "workload.ops=1200",
            "workload.value_size=16000",
        ]);
        let text = format!("[[rule]]\nfault = \"power-cut\"\nat = \"{at}\"\ntorn = {torn}\ntimes = 5\n");
        let geometry = document.config().unwrap().drive().flash.geometry();
        let rules = rules("faults.toml", &text, &geometry).expect("a rule");
        let verdict = crash(&document, &rules, Cuts::Rules).expect("it runs");
        assert_eq!((verdict.lost, verdict.cuts), (None, 5), "torn {torn} at {at}");
    }
}

/// A checker that accepted everything would pass all tests above.
#[test]
fn what_is_lost_is_told() {
    let bench = Bench::new(&document::<&str>(&[]), Sim::new());
    bench.sim.block_on(|| {
        let _drive = bench.power_on(None).expect("an empty drive comes up");
        let driver = bench.connect();
        let value = |version| ValueSpec { bytes: 300, version };
        let store = |ledger: &mut Ledger, number, version| {
            ledger.history.settle(key(number, true), Some(value(version)));
        };
        let mut known = Ledger::default();
        for number in 0..3 {
            let key = key(number, true);
            driver.store(key, Piece::Pattern(Pattern::of_value(&key, number, 300))).expect("there is room");
            store(&mut known, number, number);
        }
        assert_eq!(known.clone().check(&driver, false), Ok((3, 0)));
        let told = |known: &Ledger, change: &dyn Fn(&mut Ledger)| {
            let mut ledger = known.clone();
            change(&mut ledger);
            ledger.check(&driver, false).expect_err("something is wrong")
        };
        let missing = told(&known, &|ledger| store(ledger, 3, 3));
        assert!(missing.starts_with("00000003: key does not exist (87h); it may have"), "{missing}");
        let old = told(&known, &|ledger| store(ledger, 2, 7));
        assert!(old.starts_with("00000002: 300 bytes; it may have"), "{old}");
        let alien = told(&Ledger::default(), &|ledger| {
            store(ledger, 0, 0);
            store(ledger, 1, 1);
        });
        assert_eq!(alien, "00000002: is listed and not there");
    });
    bench.sim.clear();
}
