//! `kvdrive conform` as a program: its lines, its JSON, its exit status; and `ctl format`.

use std::process::{Command, Output};

use super::serve::{serve, store_and_retrieve};

fn kvdrive(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvdrive")).args(words).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_served_drive_passes_and_one_with_a_fault_is_told_by_the_clause() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control").display().to_string();
    let served = serve(&["--control", &control]);
    let target = format!("tcp://{}", served.address);
    let passed = kvdrive(&["conform", &target]);
    let lines = text(&passed);
    assert_eq!(passed.status.code(), Some(0), "{lines}");
    assert!(
        lines.contains("\npass         2.1.5     key-17-store ") && lines.contains(" 0 fail, "),
        "{lines}"
    );

    let fault = ["inject", "status", "--opcode", "list", "--status", "06h"];
    assert!(kvdrive(&[&["ctl", "--control", &control], &fault[..]].concat()).status.success());
    let failed = kvdrive(&["conform", &target, "--only", "list,exist", "--json", "-"]);
    assert_eq!(failed.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert_eq!((&report["format"], report["fail"].as_u64().unwrap() > 5), (&1.into(), true));
    let of = |id: &str| {
        let clauses = report["clauses"].as_array().unwrap();
        clauses.iter().find(|clause| clause["id"] == id).unwrap().clone()
    };
    assert_eq!(
        (&of("list-count")["verdict"], &of("exist-stored")["verdict"]),
        (&"fail".into(), &"pass".into())
    );
    let last = of("list-count")["exchanges"].as_array().unwrap().last().unwrap().clone();
    assert!(last["sqe"].as_str().unwrap().starts_with("06") && last["status"] == 6, "{last}");
}

/// A target that is not there, and words that are wrong, are told apart from a target that fails.
#[test]
fn what_cannot_be_checked_has_a_status_of_its_own() {
    for (words, expected, told) in [
        (&["conform", "tcp://127.0.0.1:1"][..], 2, "tcp://127.0.0.1:1: "),
        (&["conform", "/dev/ng7n1"], 2, "/dev/ng7n1: no such device; `ls /dev/ng*`"),
        (&["conform", "/dev/null"], 2, "/dev/null: it is no device of an NVMe namespace"),
        (&["conform", "--engine", "block"], 2, "takes no pairs"),
        (&["conform", "--only", "nothing"], 2, "no clause and no group"),
    ] {
        let output = kvdrive(words);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), message.contains(told)), (Some(expected), true), "{message}");
    }
}

/// The program that is checked for and the one that checks are one; what is between them is a device of Linux.
#[test]
fn a_device_is_checked_and_run_against_as_an_address_is() {
    let node = ["ng", "--by", "seccomp", "--node", "/dev/ng0n1=kvdrive:cosmos-plus", "--"];
    let on_node = |words: &[&str]| {
        let words = [&node[..], &[env!("CARGO_BIN_EXE_kvdrive")], words].concat();
        let output = kvdrive(&words);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {message}");
        text(&output)
    };
    let lines = on_node(&["conform", "/dev/ng0n1", "--only", "store,statuses"]);
    assert!(lines.contains(" store-over ") && lines.contains(" 0 fail, "), "{lines}");
    let load = ["--workload", "ycsb-a", "--num", "200", "--ops", "500", "--queues", "2", "--json", "-"];
    let report = on_node(&[&["run", "--connect", "/dev/ng0n1"][..], &load].concat());
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["target"]["address"], &report["ops"]["errors"]), (&"/dev/ng0n1".into(), &0.into()));
}

#[test]
fn the_control_socket_erases_a_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control").display().to_string();
    let served = serve(&["--control", &control]);
    store_and_retrieve(&served);
    let drive = kvdrive::connect(&format!("tcp://{}", served.address)).unwrap();
    assert!(drive.exist(b"key").unwrap());
    let output = kvdrive(&["ctl", "--control", &control, "format"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!drive.exist(b"key").unwrap());
    store_and_retrieve(&served);
}
