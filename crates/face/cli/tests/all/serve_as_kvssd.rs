//! `scripts/kvssd -s SOCKET`: the words with which xNVMe's CI starts a server.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use kvdrive_nvme::{Status, opcode};

use kvdrive_rigs::guest::{DATA_AT, keyed, with_rings};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scripts/kvssd");

#[test]
fn a_server_is_started_by_the_words_of_other_programs() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("kvssd.sock");
    let mut program = Command::new(SCRIPT)
        .arg("-s")
        .arg(&socket)
        .env("KVDRIVE", env!("CARGO_BIN_EXE_kvdrive"))
        .env("XDG_RUNTIME_DIR", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line == "ready"));
    let (mut guest, mut rings) = with_rings(&socket);
    let read = guest.run(&mut rings, &keyed(opcode::RETRIEVE, 2, b"key", DATA_AT, 8192));
    assert_eq!(read.status(), Status::SUCCESS);
    drop(guest);
    // The script became the server: a signal to it ends the server, which removes its socket.
    rustix::process::kill_process(rustix::process::Pid::from_child(&program), rustix::process::Signal::TERM)
        .unwrap();
    // Its report is read, so that it can be written.
    lines.for_each(drop);
    assert!(program.wait().unwrap().success());
    assert!(!socket.exists());
    let without = Command::new(SCRIPT).output().unwrap();
    assert_eq!(without.status.code(), Some(2));
}
