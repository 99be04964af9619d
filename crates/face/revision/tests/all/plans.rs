//! One loop carries out the runs of every command: a caller that ran groups of runs itself would lose the estimate, the
//! progress, the stop and the results that are remembered.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::transports::sources;

/// The functions that run what follows each other on one drive.
const FUNCTIONS: [&str; 2] = ["run_session", "run_session_watched"];
/// Where they are, and the crate that has the loop.
const PLACES: [&str; 2] = ["run/run/src/", "run/results/src/"];
/// A single run, which Python waits for on a thread of its own.
const ALONE: [(&str, usize); 1] = [("bindings/runs.rs", 1)];

fn calls(code: &str) -> usize {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.split(|c| !is_name(c)).filter(|word| FUNCTIONS.contains(word)).count()
}

#[test]
fn one_loop_carries_out_the_runs_of_every_command() {
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = BTreeMap::new();
    for room in ["run", "study", "face", "wire", "trial"] {
        sources(&crates.join(room), &format!("{room}/"), &mut files);
    }
    sources(&crates.join("../bindings/python/src"), "bindings/", &mut files);
    files.retain(|file, _| file.ends_with(".rs") && !file.contains("/tests/"));
    assert!(files.len() > 300, "{} files", files.len());
    for (file, code) in &files {
        let alone = ALONE.iter().find(|(name, _)| name == file).map_or(0, |(_, calls)| *calls);
        let is_there = PLACES.iter().any(|place| file.starts_with(place));
        assert!(is_there || calls(code) == alone, "{file} runs groups of runs itself");
    }
    let loops: Vec<_> = files.iter().filter(|(_, code)| code.contains("self.run_session(")).collect();
    assert_eq!(
        loops.iter().map(|(file, _)| file.as_str()).collect::<Vec<_>>(),
        ["run/results/src/carry_out.rs"]
    );
}

#[test]
fn a_caller_with_a_loop_of_its_own_is_found() {
    assert_eq!(calls("for one in all { kvdrive_run::run_session(&[one], &|_, _| ())?; }"), 1);
    assert_eq!(calls("let runs = run_sessions(all);"), 0);
}
