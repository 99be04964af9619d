//! `kvdrive run --connect a,b,c`: several served drives as one, and the death of one of them.

use std::io::Read;
use std::process::{Command, Stdio};

use super::serve::{Served, serve};

fn addresses(drives: &[Served]) -> String {
    drives.iter().map(|served| format!("tcp://{}", served.address)).collect::<Vec<_>>().join(",")
}

/// Runs the command with these arguments: returns whether it succeeded, its report as JSON, and its error
/// output.
fn run(at: &str, arguments: &[&str]) -> (bool, serde_json::Value, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kvdrive"))
        .args(["run", "--connect", at, "--json", "-"])
        .args(arguments)
        .output()
        .unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.success(), report, String::from_utf8(output.stderr).unwrap())
}

fn shares(report: &serde_json::Value, counter: &str) -> Vec<u64> {
    let targets = report["targets"].as_array().unwrap();
    targets.iter().map(|target| target["share"][counter].as_u64().unwrap()).collect()
}

#[test]
fn several_drives_are_one_and_the_report_says_what_each_was_asked() {
    let mut drives = [serve(&[]), serve(&[]), serve(&[])];
    let work = ["--workload", "ycsb-a", "--ops", "2000", "--num", "600", "--depth", "8"];
    let (is_well, report, error) =
        run(&addresses(&drives), &[&work[..], &["--verify", "--queues", "2"]].concat());
    assert!(is_well, "{error}");
    let count = |name: &str| report["ops"][name].as_u64().unwrap();
    for (counter, kind) in [("stores", "store"), ("retrieves", "retrieve")] {
        let shares = shares(&report, counter);
        assert_eq!(shares.iter().sum::<u64>(), count(kind), "{shares:?}");
        assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
    }
    assert_eq!(report["verified"]["checked"].as_u64(), Some(count("retrieve")), "{report}");
    let loaded =
        report["targets"].as_array().unwrap().iter().map(|one| one["loaded_pairs"].as_u64().unwrap());
    assert_eq!(loaded.sum::<u64>(), 600, "{report}");

    // Keys are found again, in whichever order the drives are named; scans cover all drives.
    drives.reverse();
    let (is_well, report, error) = run(&addresses(&drives), &[&work[..], &["--verify-only"]].concat());
    assert!(is_well && report["verified"]["checked"] == 600, "{error}");
    let scans = ["--workload", "ycsb-e", "--ops", "100", "--num", "600", "--verify"];
    let (is_well, report, error) = run(&addresses(&drives), &scans);
    assert!(is_well && report["verified"]["checked"].as_u64() > Some(100), "{error} {report}");

    let bench =
        ["bench", "--quick", "--operations", "2000", "--keys", "500", "--value-size", "100", "--connect"];
    let bench =
        Command::new(env!("CARGO_BIN_EXE_kvdrive")).args(bench).arg(addresses(&drives)).output().unwrap();
    let text = String::from_utf8(bench.stdout).unwrap();
    assert!(bench.status.success() && drives.iter().all(|served| text.contains(&served.address)), "{text}");

    let one = format!("tcp://{}", drives[0].address);
    for (at, more, line) in [
        (format!("{one},{one}"), &[][..], "is named twice"),
        (addresses(&drives), &["--nqn", "nqn.x"], "--nqn: each drive of --connect has a name of its own"),
        (
            addresses(&drives),
            &["--set", "workload.atomic=true", "--workload", "tpcc"],
            "workload.atomic: a batch is",
        ),
        (format!("{one},tcp://127.0.0.1:1"), &[], "tcp://127.0.0.1:1: "),
    ] {
        let (is_well, _, error) = run(&at, more);
        assert!(!is_well && error.contains(line) && error.lines().count() == 1, "{line}: {error}");
    }
}

/// Pairs that the other drives acknowledged are readable, during the run and when they are read back.
#[test]
fn one_of_several_drives_dies_and_the_others_lose_nothing() {
    let mut drives = [serve(&[]), serve(&[]), serve(&[])];
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("report.json");
    let work = ["--workload", "ycsb-a", "--num", "2000", "--ops", "40k", "--depth", "8"];
    let mut run_of_three = Command::new(env!("CARGO_BIN_EXE_kvdrive"))
        .args(["run", "--connect", &addresses(&drives), "--verify", "--json", json.to_str().unwrap()])
        .args(work)
        .args(["--interval", "5ms", "--interval-file", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = run_of_three.stdout.take().unwrap();
    out.read_exact(&mut [0; 64]).unwrap();
    drives[1].program.kill().unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let output = run_of_three.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    let line = format!("tcp://{} was lost: ", drives[1].address);
    assert!(error.contains(&line) && error.lines().count() == 1, "{error}");
    assert!(rest.contains("the other drives went on") && rest.contains("DRIVES"), "{rest}");

    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let failed = shares(&report, "failed");
    assert!(failed[0] == 0 && failed[1] > 0 && failed[2] == 0, "{failed:?}");
    assert_eq!(report["ops"]["errors"].as_u64(), Some(failed[1]), "{report}");
    let lost = |report: &serde_json::Value| {
        let targets = report["targets"].as_array().unwrap();
        targets.iter().map(|target| target.get("lost").is_some()).collect::<Vec<_>>()
    };
    assert_eq!(lost(&report), [false, true, false]);
    let verified = |report: &serde_json::Value, name: &str| report["verified"][name].as_u64().unwrap();
    assert_eq!((verified(&report, "wrong"), verified(&report, "missing")), (0, 0), "{report}");
    assert!(verified(&report, "unread") > 0 && verified(&report, "checked") > 5_000, "{report}");

    // The remaining drives are read back without it.
    let (is_well, report, error) = run(&addresses(&drives), &[&work[..], &["--verify-only"]].concat());
    assert!(!is_well && error.contains(&line), "{error}");
    assert_eq!(lost(&report), [false, true, false]);
    assert_eq!((verified(&report, "wrong"), verified(&report, "missing")), (0, 0), "{report}");
    assert_eq!(verified(&report, "checked") + verified(&report, "unread"), 2000, "{report}");
    assert!(verified(&report, "checked") > 1000, "{report}");
}

/// A run of which some stores would fail begins on none of the drives.
#[test]
fn values_that_one_of_the_drives_does_not_take_are_refused_with_its_limit() {
    let drives = [serve(&[]), serve(&["--set", "lsm.layout=published"])];
    let work = ["--workload", "fillrandom", "--ops", "4", "--num", "4", "--value-size", "16MiB"];
    let (is_well, _, error) = run(&addresses(&drives), &work);
    assert!(!is_well);
    let says =
        format!("tcp://{}: workload.value_size: 16777216; this drive takes values to", drives[1].address);
    assert!(error.contains(&says) && error.contains("16777214"), "{error}");
}

#[test]
fn pairs_that_the_drives_have_no_room_for_are_refused_before_one_is_stored() {
    let drives = [serve(&[]), serve(&[])];
    let work = ["--workload", "fillseq", "--ops", "1M", "--value-size", "1MB"];
    let (is_well, _, error) = run(&addresses(&drives), &work);
    assert!(!is_well);
    let says = "workload.ops: at least 1 000 000 values of 1 000 000 B are 1.000 TB, and the drives have ";
    assert!(error.contains(says), "{error}");
    let (is_well, report, error) =
        run(&addresses(&drives), &["--workload", "ycsb-c", "--num", "10", "--ops", "10"]);
    assert!(is_well && report["ops"]["retrieve"] == 10, "{error}");
}

/// A batch has pairs of one drive, so each drive has a SAKER of its own.
#[test]
fn saker_is_in_front_of_each_of_several_drives() {
    let mut drives = [serve(&[]), serve(&[]), serve(&[])];
    let work = ["--workload", "ycsb-a", "--ops", "2000", "--num", "600"];
    let saker = ["--saker", "on", "--batch", "16"];
    let two_threads = [&work[..], &saker, &["--threads", "2", "--verify", "--seed", "7"]].concat();
    let (is_well, report, error) = run(&addresses(&drives), &two_threads);
    assert!(is_well, "{error}");
    let count = |name: &str| report["ops"][name].as_u64().unwrap();
    assert_eq!(report["verified"]["checked"].as_u64(), Some(count("retrieve")), "{report}");
    for (counter, kind) in [("stores", "store"), ("retrieves", "retrieve")] {
        let shares = shares(&report, counter);
        assert_eq!(shares.iter().sum::<u64>(), count(kind), "{shares:?}");
        assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
    }
    let batches = report["saker"]["batches"].as_u64().unwrap();
    assert!(batches > 0 && batches < count("store") + 600, "{report}");
    // Every pair is on its drive, not pending, and where a run without SAKER looks for it; scans cover all drives. One
    // thread alone stores in the order that the second run expects.
    let (is_well, _, error) = run(&addresses(&drives), &[&work[..], &saker].concat());
    assert!(is_well, "{error}");
    let (is_well, read_back, error) = run(&addresses(&drives), &[&work[..], &["--verify-only"]].concat());
    assert!(is_well && read_back["verified"]["checked"] == 600, "{error}");
    let scans = ["--workload", "ycsb-e", "--ops", "100", "--num", "600", "--verify"];
    let (is_well, scanned, error) = run(&addresses(&drives), &[&scans[..], &saker].concat());
    assert!(is_well && scanned["verified"]["checked"].as_u64() > Some(100), "{error} {scanned}");
    // Without one of them, the pairs of the others are read.
    drives[1].program.kill().unwrap();
    drives[1].program.wait().unwrap();
    let (is_well, rest, error) = run(&addresses(&drives), &[&work[..], &saker, &["--verify-only"]].concat());
    let checked = rest["verified"]["checked"].as_u64().unwrap();
    assert!(!is_well && (1..600).contains(&checked), "{error} {rest}");
}
