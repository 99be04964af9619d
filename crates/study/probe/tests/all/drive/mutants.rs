//! `crash` notices mistakes of recovery, and a storm's cases pass.

use kvdrive_device::engines::ENGINES;
use kvdrive_probe::crash::mutants::MUTANTS;
use kvdrive_probe::crash::{Cuts, Trial, Verdict};
use kvdrive_probe::storm::{Case, Failure, SMALL, shrunk};

use kvdrive_rigs::drive::document;

/// A small drive of `engine` with a load under which it flushes, merges, collects and synchronises.
fn worked(engine: &str) -> kvdrive_config::Document {
    let engine = format!("engine.name={engine}");
    let load = ["workload.name=ycsb-a", "workload.num=200", "workload.ops=800", "workload.value_size=300"];
    document(&[&[engine.as_str()], &load[..]].concat())
}

#[test]
fn every_mistake_of_recovery_is_found_on_every_engine() {
    for row in ENGINES {
        for mutant in MUTANTS {
            let trial = Trial { beside: true, mutant: Some(mutant), ..Trial::new(&[], Cuts::Random(40)) };
            let verdict = trial.run(&worked(row.name)).unwrap();
            assert!(
                verdict.lost.is_some() || verdict.spoilt == 0,
                "{}: {} is not found, {verdict:?}",
                row.name,
                mutant.name
            );
        }
    }
}

#[test]
fn drives_that_come_back_work_on_and_come_back_again() {
    for row in ENGINES {
        let trial = Trial { beside: true, lives: 4, ..Trial::new(&[], Cuts::Random(40)) };
        let verdict = trial.run(&worked(row.name)).unwrap();
        assert_eq!(verdict.lost, None, "{}", row.name);
        assert!(verdict.further_cuts > 2, "{}: {verdict:?}", row.name);
    }
}

/// A killed process leaves a drive on a file, at any event: the drive is recovered, continues and is killed
/// again.
#[test]
fn drives_on_files_come_back_from_what_a_kill_leaves() {
    let folder = tempfile::tempdir().expect("a folder for images");
    let path = format!("media.path={}", folder.path().join("drive.img").display());
    let mut further_cuts = 0;
    for row in ENGINES {
        let mut document = worked(row.name);
        [path.as_str(), "media.kind=file"].iter().for_each(|set| document.set(set).expect("a setting"));
        let trial = Trial { beside: true, lives: 3, ..Trial::new(&[], Cuts::Random(8)) };
        let verdict = trial.run(&document).unwrap();
        assert_eq!((verdict.lost, verdict.cuts), (None, 8), "{}", row.name);
        assert!(verdict.keys_checked >= 8 * 200, "{}", row.name);
        further_cuts += verdict.further_cuts;
    }
    // One recovered drive in five continues: of eight of one engine, sometimes none.
    assert!(further_cuts as usize > ENGINES.len() / 2, "{further_cuts}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0, "copies are gone");
}

#[test]
fn cases_of_a_storm_hold_and_are_the_same_each_time() {
    for seed in 1..=12 {
        let case = Case::of_seed(seed);
        assert_eq!(case, Case::of_seed(seed));
        let verdict = case.run().unwrap_or_else(|what| panic!("{case:?}: {what}"));
        if seed <= 3 {
            assert_eq!(case.run(), Ok(verdict), "{case:?}");
        }
    }
}

/// A drive without room for the pairs that a workload begins with is no case; any other refusal during
/// loading is a failure.
#[test]
fn only_a_drive_without_room_may_refuse_what_is_loaded() {
    let case = |sets: &[&str]| Case {
        seed: 0,
        engine: ENGINES[0].name,
        sets: SMALL
            .iter()
            .chain(&["flash.blocks_per_die=24", "workload.ops=50"])
            .chain(sets)
            .map(|set| (*set).to_owned())
            .collect(),
        faults: "",
        cuts: 1,
        lives: 1,
    };
    let full = case(&["workload.name=ycsb-a", "workload.num=2000", "workload.value_size=9000"]);
    assert_eq!(full.run(), Ok(Verdict::default()));
    // This workload has sizes of its own, and most of them exceed the limit of a drive.
    let sets = [
        "workload.name=mixgraph",
        "workload.num=50",
        "workload.value_size=8",
        "controller.max_value_bytes=8",
    ];
    let failed = case(&sets).run().unwrap_err();
    assert!(failed.starts_with("loading: "), "{failed}");
}

/// So many programs fail that the drive runs out of spare blocks while batches come: it refuses them, and
/// keeps its pairs.
#[test]
fn a_drive_that_becomes_write_protected_under_batches_loses_nothing() {
    let sets = [
        "flash.dies_per_channel=1",
        "store.operations_bytes=131072",
        "host.transfer=piggyback-pipelined",
        "workload.name=fillrandom",
        "workload.num=336",
        "workload.ops=1209",
        "workload.value_size=9000",
        "saker.enabled=true",
    ];
    let case = Case {
        seed: 1,
        engine: "lsmtree",
        sets: sets.map(str::to_owned).to_vec(),
        faults: "[[rule]]\nfault = \"program-error\"\nprobability = 0.02\n",
        cuts: 4,
        lives: 3,
    };
    case.run().unwrap();
}

/// A store's recovery trims pages of an unfinished cleaning. Collection erased such pages before recovery had
/// ended, so after a cut of that recovery the next one missed pages that the image named, and the drive did
/// not power on.
#[test]
fn what_a_recovery_trims_is_on_flash_until_it_has_ended() {
    let of_clients = [
        "ftl.gc_low_blocks=2",
        "run.seed=2014943930",
        "workload.name=ycsb-b",
        "flash.blocks_per_die=32",
        "workload.num=108",
        "workload.ops=1210",
        "workload.value_size=1000",
        "controller.contexts=2",
        "host.depth=4",
        "host.queues=2",
    ];
    let of_saker = [
        "flash.pages_per_block=8",
        "run.seed=67689111",
        "workload.name=w-d",
        "flash.blocks_per_die=24",
        "workload.ops=1108",
        "controller.contexts=4",
        "saker.enabled=true",
    ];
    for (sets, lives) in [(&of_clients[..], 2), (&of_saker[..], 3)] {
        let small = ["flash.channels=2", "flash.dies_per_channel=1", "store.operations_bytes=131072"];
        let sets = small.iter().chain(sets).map(|set| (*set).to_owned()).collect();
        let case = Case { seed: 1, engine: "hashlog", sets, faults: "", cuts: 6, lives };
        case.run().unwrap_or_else(|what| panic!("{case:?}: {what}"));
    }
}

/// A case whose drive is invalid: it fails at once, and few settings remain.
#[test]
fn a_case_that_fails_is_shrunk_to_what_fails() {
    let mut case = Case { cuts: 1, ..Case::of_seed(3) };
    case.faults = "[[rule]]\nfault = \"no-such-fault\"\n";
    let (what, settings) = (case.run().unwrap_err(), case.sets.len());
    // A command has other defaults than a profile for these.
    let is_given = |set: &&String| ["workload.num=", "workload.ops="].iter().any(|key| set.starts_with(key));
    let given: Vec<String> = case.sets.iter().filter(is_given).cloned().collect();
    assert!(!given.is_empty(), "{case:?}");
    let least = shrunk(Failure { case, what }, 200);
    assert!(least.case.sets.len() < settings / 2, "{least:?}");
    assert!(given.iter().all(|set| least.case.sets.contains(set)), "{least:?}");
    assert!(least.what.contains("no-such-fault"), "{least:?}");
}
