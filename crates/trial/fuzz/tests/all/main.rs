//! Runs every target over its seeds and some alterations of them, the same ones each time; and checks the
//! files that cargo-fuzz needs for each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use kvdrive_fuzz::TARGETS;
use kvdrive_fuzz::mutate::mutate;
use kvdrive_sim::Rng;

#[test]
fn seeds_and_altered_seeds_are_taken_or_refused() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seed", target.name);
        for round in 0..seeds.len() as u32 + target.rounds {
            let mut bytes = seeds[round as usize % seeds.len()].clone();
            if round as usize >= seeds.len() {
                mutate(&mut Rng::stream(round.into(), target.name), &mut bytes);
            }
            let ran = catch_unwind(AssertUnwindSafe(|| (target.run)(&bytes)));
            assert!(ran.is_ok(), "{}, round {round}: {bytes:02X?}", target.name);
        }
    }
}

#[test]
fn cargo_fuzz_knows_every_target() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz");
    let manifest = std::fs::read_to_string(format!("{folder}/Cargo.toml")).unwrap();
    for target in TARGETS {
        let path = format!("fuzz_targets/{}.rs", target.name);
        assert!(manifest.contains(&format!("path = \"{path}\"")), "fuzz/Cargo.toml has no {path}");
        let text = std::fs::read_to_string(format!("{folder}/{path}"))
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(text.contains(&format!("target(\"{}\")", target.name)), "{path} runs another target");
    }
    let files = std::fs::read_dir(format!("{folder}/fuzz_targets")).unwrap().count();
    assert_eq!(files, TARGETS.len(), "fuzz_targets has a file of no target");
}

#[test]
fn the_script_lists_every_target() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scripts/fuzz");
    let output = Command::new(script).output().expect("bash runs it");
    let listed = String::from_utf8(output.stdout).unwrap();
    let expected: String =
        TARGETS.iter().map(|target| format!("{}\n    {}\n", target.name, target.about)).collect();
    assert_eq!(listed, expected);
}
