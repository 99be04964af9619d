//! The size of a drive in memory: given in bytes, or a part of this machine's memory.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::serve::{Served, serve_by, store_and_retrieve};

fn kvdrive(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvdrive")).args(arguments).output().unwrap()
}

fn report_of(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Serves with messages in a file.
fn serve_into(messages: &Path, more: &[&str]) -> Served {
    let mut shell = Command::new("sh");
    let line = format!("exec \"$0\" \"$@\" 2> '{}'", messages.display());
    shell.args(["-c", &line, env!("CARGO_BIN_EXE_kvdrive")]);
    serve_by(shell, more)
}

/// Ends a server and returns its report.
fn ended(mut served: Served, report: &Path) -> Value {
    let killed = Command::new("kill").arg(served.program.id().to_string()).status().unwrap();
    assert!(killed.success() && served.program.wait().unwrap().success());
    serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap()
}

#[test]
fn a_capacity_is_rounded_said_and_refused_with_what_is_allowed() {
    let work = ["--workload", "fillseq", "--ops", "100", "--json", "-"];
    let rounded = kvdrive(&[&["run", "--capacity", "5.5GB"], &work[..]].concat());
    assert_eq!(report_of(&rounded)["config"]["flash"]["blocks_per_die"], 82);
    let said = String::from_utf8_lossy(&rounded.stderr);
    assert!(said.contains("kvdrive: capacity 5.125 GiB: 82 blocks a die, nearest to 5.5GB\n"), "{said}");
    let compared = kvdrive(&[&["compare", "--capacity", "4GiB,8GiB"], &work[..]].concat());
    let reports = report_of(&compared);
    let blocks = |run: usize| reports[run]["config"]["flash"]["blocks_per_die"].clone();
    assert_eq!([blocks(0), blocks(1)], [64, 128]);
    for command in ["run", "serve", "crash", "bench"] {
        let refused = kvdrive(&[command, "--capacity", "1MiB"]);
        let line = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && line.contains("1MiB; allowed with engine.name = \"lsm\""),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}

/// What a server chose is in its report and its recording, so that a replay has the same drive on every machine.
#[test]
fn a_served_drive_in_memory_takes_a_part_of_it_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let [messages, json] = ["messages", "json"].map(path);
    let [socket, json_text, record] =
        ["socket", "json", "record"].map(|name| path(name).display().to_string());
    let of = ["--control", &socket, "--json", &json_text, "--record", &record];
    let share = kvdrive_run::memory::share().map_or(u64::MAX, |share| share.bytes);

    let served = serve_into(&messages, &of);
    store_and_retrieve(&served);
    let status = kvdrive(&["ctl", "--control", &socket, "--json", "status"]);
    let memory = report_of(&status)["counts"]["process"].clone();
    assert!(memory["resident_bytes"].as_u64().unwrap() > 1 << 20 || !cfg!(target_os = "linux"), "{memory}");
    let report = ended(served, &json);
    let blocks = report["config"]["flash"]["blocks_per_die"].as_u64().unwrap();
    let said = std::fs::read_to_string(&messages).unwrap();
    if share < 64 << 30 {
        assert!(
            blocks < 1024 && blocks * (64 << 20) <= share.max(1 << 30),
            "{blocks} blocks of 64 MiB, {share}"
        );
        let line = said.lines().find(|line| line.starts_with("kvdrive: capacity ")).expect(&said);
        assert!(line.ends_with("; the profile has 64 GiB: --capacity, or --media file"), "{line}");
    }
    let replayed = report_of(&kvdrive(&["replay", &record, "--json", "-"]));
    assert_eq!(replayed["config"]["flash"], report["config"]["flash"]);

    let given = serve_into(&messages, &["--json", &json_text, "--capacity", "1GiB"]);
    let report = ended(given, &json);
    assert_eq!(report["config"]["flash"]["blocks_per_die"], 16);
    assert_eq!(std::fs::read_to_string(&messages).unwrap(), "", "nothing to say");
}

/// Once a drive has been filled, the memory of erased blocks is used again: stores take no more of it, and hardly touch any
/// that the program did not have.
#[test]
fn a_drive_that_has_been_filled_takes_no_more_memory() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let small = ["flash.channels=1", "flash.dies_per_channel=2", "buffer.entries=16", "gc.segment_pages=32"];
    let small = small.iter().flat_map(|set| ["--set", set]);
    let of = ["--control", &socket, "--capacity", "64MiB"].into_iter().chain(small).collect::<Vec<_>>();
    let served = serve_into(&folder.path().join("messages"), &of);
    let address = format!("tcp://{}", served.address);
    let memory_after = |ops: &str| {
        let work = ["--workload", "fillrandom", "--num", "2000", "--value-size", "4KiB", "--depth", "8"];
        let ran =
            kvdrive(&[&["run", "--connect", &address, "--ops", ops], &work[..], &["--json", "-"]].concat());
        assert_eq!(report_of(&ran)["ops"]["errors"], 0);
        let status = kvdrive(&["ctl", "--control", &socket, "--json", "status"]);
        let process = report_of(&status)["counts"]["process"].clone();
        ["resident_bytes", "page_faults"].map(|name| process[name].as_u64().unwrap())
    };
    let [filled_bytes, faults] = memory_after("30k");
    let [bytes, more_faults] = memory_after("30k");
    assert!(bytes < filled_bytes + (8 << 20), "120 MB of stores later: {filled_bytes} B, {bytes} B");
    assert!(more_faults - faults < 30_000 / 4, "a store of 4 KiB touches a page: {}", more_faults - faults);
}
