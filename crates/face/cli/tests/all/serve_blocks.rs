//! `kvdrive serve` with blocks, and a store on the host over them: `kvdrive run --connect --side host`.

use kvdrive_host::blocks::{Block, BlockCall};
use kvdrive_nvme::nvm::Blocks;
use serde_json::Value;

use super::serve::{ctl, run_against, serve};

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

/// The library's connection: each queue once, of a drive that says what it has, and whose server names what blocks are
/// asked.
#[test]
fn a_program_reads_and_writes_served_blocks_and_status_says_read_and_write() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("drive.sock");
    let served = serve(&["--engine", "block", "--capacity", "384MiB", "--control", socket.to_str().unwrap()]);
    let at = format!("tcp://{}", served.address);
    let refused = kvdrive::connect(&at).map(drop).unwrap_err().to_string();
    assert!(refused.contains("it has blocks, in which a store on the host keeps pairs"), "{refused}");
    let drive = kvdrive::connect_blocks(&at).unwrap();
    assert!(drive.is_blank());
    let (first, second) = (drive.blocks().unwrap(), drive.blocks().unwrap());
    let written = [Block::new(kvdrive_content::Region::from_bytes(vec![7; 4096]))];
    first.call(BlockCall::Write { first: 5, blocks: &written }).unwrap();
    let read = |first, count| second.call(BlockCall::Read(Blocks { first, count })).unwrap();
    assert_eq!(read(5, 1)[0].to_bytes(4096), [7; 4096]);
    assert_eq!(read(6, 1)[0].to_bytes(4096), [0; 4096]);
    assert!(!kvdrive::connect_blocks(&at).unwrap().is_blank());
    let status = ctl(&socket, &["--json", "status"]).unwrap();
    let status: Value = serde_json::from_str(&status).unwrap();
    let commands = &status["counts"]["hosts"]["io_commands"];
    assert_eq!((commands["write"].as_u64(), commands["read"].as_u64()), (Some(1), Some(2)), "{commands}");
    assert!(commands.get("store").is_none() && commands.get("retrieve").is_none(), "{commands}");
    for of in [&status["latencies"], &status["drive"]["latencies"]] {
        assert_eq!((of["write"]["count"].as_u64(), of["read"]["count"].as_u64()), (Some(1), Some(2)), "{of}");
    }
    let pairs = serve(&[]);
    let refused = kvdrive::connect_blocks(&format!("tcp://{}", pairs.address)).map(drop).unwrap_err();
    assert!(refused.to_string().contains("it has pairs, which need no store on the host"), "{refused}");
    let mut queues = Vec::new();
    let none_left = loop {
        match drive.blocks() {
            Ok(driver) => queues.push(driver),
            Err(error) => break error,
        }
    };
    assert!(matches!(none_left, kvdrive::Error::NoQueue(_)) && !queues.is_empty(), "{none_left}");
}
