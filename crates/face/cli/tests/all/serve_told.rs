//! What `kvdrive serve` and `ctl` tell their user: files that fail, rules that matched nothing, servers that are stopped.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use kvdrive_host::tcp::{Initiator, Options};
use kvdrive_nvme::Key;

use super::serve::{Served, ctl, run_against, serve, serve_by, store_and_retrieve};

/// A server whose terminal is closed ends as at TERM: it drains, reports, and removes its socket.
#[test]
fn a_server_whose_terminal_is_closed_drains() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("drive.sock");
    // Tests that are themselves run under nohup hand its ignored signal on.
    let mut plain = Command::new("env");
    plain.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_kvdrive")]).stdin(Stdio::null());
    let mut served = serve_by(plain, &["--control", socket.to_str().unwrap()]);
    store_and_retrieve(&served);
    let signal = |served: &Served| {
        assert!(
            Command::new("kill").args(["-HUP", &served.program.id().to_string()]).status().unwrap().success()
        );
    };
    signal(&served);
    let mut report = String::new();
    served.output.read_to_string(&mut report).unwrap();
    assert!(served.program.wait().unwrap().success(), "{report}");
    assert!(report.contains("  store        1\n") && !socket.exists(), "{report}");
    // Under nohup the end of the terminal does not concern it.
    let mut nohup = Command::new("nohup");
    nohup.arg(env!("CARGO_BIN_EXE_kvdrive")).stdin(Stdio::null()).stderr(Stdio::null());
    let mut served = serve_by(nohup, &[]);
    signal(&served);
    store_and_retrieve(&served);
    assert!(served.program.try_wait().unwrap().is_none());
}

/// `ctl` does not wait for ever for a server that is stopped.
#[test]
fn a_stopped_server_is_said_to_be_one() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("drive.sock");
    let served = serve(&["--control", socket.to_str().unwrap()]);
    let signal = |name: &str| {
        assert!(
            Command::new("kill").args([name, &served.program.id().to_string()]).status().unwrap().success()
        );
    };
    signal("-STOP");
    let error = ctl(&socket, &["status"]).unwrap_err();
    signal("-CONT");
    assert!(error.contains("has not answered for 10 s") && error.lines().count() == 1, "{error}");
    assert!(ctl(&socket, &["status"]).is_ok());
}

/// What a served drive cannot write is in the log when it happens, and not only at the end.
#[test]
fn files_that_take_no_write_are_in_the_log_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("drive.img");
    let path = format!("media.path={}", image.display());
    let on_file = ["--media", "file", "--set", &path, "--set", "flash.blocks_per_die=64"];
    for more in [&on_file[..], &["--record", "/dev/full"]] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_kvdrive"));
        program.stderr(Stdio::piped());
        let mut served = serve_by(program, more);
        let mut log = BufReader::new(served.program.stderr.take().unwrap());
        store_and_retrieve(&served);
        let is_file = more.contains(&"file");
        if is_file {
            std::fs::remove_file(&image).unwrap();
        }
        // A recording is buffered, and a drive looks for its files now and then.
        let mut host = Initiator::connect(&served.address[..], &served.nqn, &Options::default()).unwrap();
        let mut queue = host.io_queue(1, 32).unwrap();
        for number in 0..2000 {
            let _ = queue.store(Key::from_u32_be(number), &[7; 4000]);
        }
        let expected =
            if is_file { "drive.img: cannot be written" } else { "--record /dev/full: No space left" };
        let mut said = String::new();
        while !said.contains(expected) {
            assert_ne!(log.read_line(&mut said).unwrap(), 0, "{said}");
        }
        assert!(served.program.try_wait().unwrap().is_none(), "it serves on");
    }
}

/// Rules match what hosts send, whatever room they have for an answer, and are named at the end if they matched nothing.
#[test]
fn a_rule_for_retrieves_strikes_those_of_our_own_hosts_and_one_without_a_match_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("drive.sock");
    let mut program = Command::new(env!("CARGO_BIN_EXE_kvdrive"));
    program.stderr(Stdio::piped());
    let mut served = serve_by(program, &["--control", socket.to_str().unwrap()]);
    let work = ["--workload", "ycsb-c", "--num", "1000", "--ops", "100"];
    run_against(&served, &work).unwrap();
    ctl(&socket, &["inject", "drop-connection", "--opcode", "retrieve", "--nth", "3"]).unwrap();
    ctl(&socket, &["inject", "status", "--opcode", "delete", "--status", "81h"]).unwrap();
    let error = run_against(&served, &work).unwrap_err();
    assert!(error.contains("closed the connection"), "{error}");
    let table = ctl(&socket, &["faults"]).unwrap();
    let row = table.lines().find(|line| line.starts_with("drop-connection 1")).unwrap();
    assert!(row.split_whitespace().last() == Some("1") && table.contains("struck"), "{table}");
    // What hosts cannot see, or send, is said at once.
    let error = ctl(&socket, &["inject", "status", "--opcode", "hybrid", "--status", "81h"]).unwrap_err();
    assert!(error.contains("never matches"), "{error}");
    let error = ctl(&socket, &["inject", "lose", "--namespace", "2"]).unwrap_err();
    assert!(error.contains("never matches"), "{error}");
    let output = Command::new(env!("CARGO_BIN_EXE_kvdrive"))
        .args(["ctl", "--control", socket.to_str().unwrap(), "inject", "delay", "--delay", "2s"])
        .output()
        .unwrap();
    let note = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && note.contains("--pace off") && note.contains("late"), "{note}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "delay 1\n");
    ctl(&socket, &["drain"]).unwrap();
    let mut said = String::new();
    served.program.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("fault rule \"status 1\" has matched nothing"), "{said}");
    assert!(!said.contains("drop-connection"), "{said}");
}
