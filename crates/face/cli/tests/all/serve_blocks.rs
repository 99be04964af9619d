//! `kvdrive serve` with blocks, and a store on the host over them: `kvdrive run --connect --side host`.

use serde_json::Value;

use super::serve::{run_against, serve};

const WORK: [&str; 8] = ["--workload", "ycsb-a", "--ops", "2000", "--num", "500", "--depth", "4"];

/// Two lives of a served drive of blocks: what the first run's store wrote, the second one reads back.
#[test]
fn a_store_on_the_host_runs_over_a_served_drive_of_blocks_and_outlives_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("media.path={}", folder.path().join("blocks.img").display());
    let blocks = ["--engine", "block", "--capacity", "384MiB", "--media", "file", "--set", &path];
    let mut served = serve(&blocks);
    let error = run_against(&served, &WORK).unwrap_err();
    assert!(error.contains("none of its 1 namespaces has pairs") && error.lines().count() == 1, "{error}");
    let on_host = ["--store", "hashlog", "--side", "host", "--threads", "2"];
    let json = |served: &_, more: &[&str]| -> Value {
        let text = run_against(served, &[&WORK[..], &on_host, more, &["--json", "-"]].concat()).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let report = json(&served, &["--verify"]);
    let count = |name: &str| report["ops"][name].as_u64().unwrap();
    assert_eq!((count("store") + count("retrieve"), count("errors")), (2000, 0), "{report}");
    assert_eq!(report["verified"]["checked"].as_u64(), Some(count("retrieve")), "{report}");
    assert!(report["target"]["connections"].as_u64() >= Some(2), "{report}");
    // Killed, not ended: what the run's last sync covered is in the file.
    served.program.kill().unwrap();
    served.program.wait().unwrap();
    let served = serve(&blocks);
    let read_back = json(&served, &["--verify-only"]);
    assert_eq!(read_back["verified"]["checked"], 500, "{read_back}");
    // Another store does not take these blocks for its own.
    let other = ["--store", "btree", "--side", "host"];
    let error = run_against(&served, &[&WORK[..], &other].concat()).unwrap_err();
    assert!(
        error.contains("the blocks hold something, and no btree") && error.lines().count() == 1,
        "{error}"
    );
}

#[test]
fn a_drive_of_pairs_is_refused_to_a_store_on_the_host_and_what_it_needs_is_said() {
    let served = serve(&[]);
    for (more, line) in [
        (&["--store", "hashlog", "--side", "host"][..], "has blocks of 4096 B (command set 0)"),
        (
            &["--store", "hashlog", "--side", "disk"],
            "--side: the drive of --connect is configured by its server",
        ),
        (&["--store", "hashlog"], "--store: the drive of --connect is configured by its server"),
    ] {
        let error = run_against(&served, &[&WORK[..], more].concat()).unwrap_err();
        assert!(error.contains(line) && error.lines().count() == 1, "{more:?}: {error}");
    }
}
