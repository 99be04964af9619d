//! The JSON that the command writes is as its schemas say, and every document has the number of its form.

use std::process::Command;

use kvdrive_run::report::fields::violation;
use serde_json::Value;

use super::serve::{ctl, serve, store_and_retrieve};

fn said(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_kvdrive")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&said(arguments)).unwrap()
}

fn schema(name: &str) -> Value {
    json(&["list", "--schema", name])
}

#[test]
fn documents_of_the_command_are_as_their_schemas_say() {
    let run = ["--workload", "ycsb-a", "--ops", "300", "--num", "200"];
    let report = json(&[&["run", "--json", "-"], &run[..]].concat());
    assert_eq!(violation(&schema("report"), &report, "report"), None);
    assert_eq!(report["format"], 1);
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().join("lines.jsonl");
    said(&[&["run", "--interval", "10ms", "--interval-file", lines.to_str().unwrap()], &run[..]].concat());
    let lines = std::fs::read_to_string(&lines).unwrap();
    let line: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(violation(&schema("interval"), &line, "interval"), None);
    for command in [&["explain", "store", "--json", "-"][..], &["explain", "retrieve", "--json", "-"]] {
        assert_eq!(violation(&schema("explain"), &json(command), "explain"), None);
    }
    let compared =
        json(&[&["compare", "--no-cache", "--packing", "all,block", "--json", "-"], &run[..]].concat());
    let reports = compared.as_array().unwrap();
    let schema_of_report = schema("report");
    let is_one = |report| violation(&schema_of_report, report, "report").is_none();
    assert!(reports.len() == 2 && reports.iter().all(is_one), "{compared}");
    let records =
        json(&[&["compare", "--no-cache", "--packing", "all,block", "--records", "-"], &run[..]].concat());
    assert_eq!((&records[0]["format"], &records[1]["format"]), (&1.into(), &1.into()));
    let refused =
        Command::new(env!("CARGO_BIN_EXE_kvdrive")).args(["list", "--schema", "reprot"]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("did you mean report?"));
}

/// Lines of sweeps and of dumps, and verdicts of conform.
#[test]
fn lines_are_documents_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (grid, lines, image) = (path("grid.toml"), path("grid.jsonl"), path("drive.img"));
    std::fs::write(
        &grid,
        "set = [\"workload.ops=50\"]\n[grid]\n\"host.transfer\" = [\"prp\", \"piggyback\"]\n",
    )
    .unwrap();
    said(&["sweep", &grid, "--no-cache"]);
    let of_file = std::fs::read_to_string(&lines).unwrap();
    let media = format!("media.path={image}");
    said(&["run", "--workload", "fillseq", "--ops", "3", "--media", "file", "--set", &media]);
    let pairs = said(&["dump", &image]) + &said(&["dump", &image, "--keys"]);
    for (name, lines, count) in [("sweep", of_file, 2), ("pair", pairs, 6)] {
        let schema = schema(name);
        let found: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(found.len(), count, "{lines}");
        for line in found {
            assert_eq!(violation(&schema, &line, name), None, "{line}");
        }
    }
    let conform = json(&["conform", "--only", "list,key-17-store", "--json", "-"]);
    assert_eq!(violation(&schema("conform"), &conform, "conform"), None);
    assert!(conform["clauses"].as_array().is_some_and(|clauses| !clauses.is_empty()), "{conform}");
    let storm = json(&["storm", "--cases", "2", "--json", "-"]);
    assert_eq!(violation(&schema("storm"), &storm, "storm"), None);
    assert_eq!((&storm["cases"], &storm["failed"]), (&2.into(), &Value::Null), "{storm}");
}

#[test]
fn the_state_of_a_served_drive_is_as_its_schema_says() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("drive.sock");
    let served = serve(&["--control", socket.to_str().unwrap()]);
    store_and_retrieve(&served);
    ctl(&socket, &["inject", "status", "--opcode", "retrieve", "--status", "88h", "--nth", "1000000"])
        .unwrap();
    let status: Value = serde_json::from_str(&ctl(&socket, &["--json", "status"]).unwrap()).unwrap();
    assert_eq!(violation(&schema("status"), &status, "status"), None);
    assert_eq!((&status["format"], &status["drive"]["faults"][0]["struck"]), (&1.into(), &0.into()));
    let connect = format!("tcp://{}", served.address);
    let run =
        ["run", "--connect", &connect, "--workload", "ycsb-a", "--ops", "100", "--num", "50", "--json", "-"];
    assert_eq!(violation(&schema("connected"), &json(&run), "connected"), None);
}
