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
        (&["conform", "--engine", "block"], 2, "takes no pairs"),
        (&["conform", "--only", "nothing"], 2, "no clause and no group"),
    ] {
        let output = kvdrive(words);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), message.contains(told)), (Some(expected), true), "{message}");
    }
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
