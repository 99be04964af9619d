//! A served drive that several programs change at once, or that has lost the reader of its messages, while hosts use it:
//! every call ends, and the drive is there afterwards.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use kvdrive_host::tcp::{Initiator, Options};
use kvdrive_nvme::Key;

use super::serve::{Served, serve, serve_by, store_and_retrieve};

/// Longest time of a call; one that has not ended by then hangs.
const HANGS: Duration = Duration::from_secs(60);

/// Sends a request to the control socket; returns the line of the answer.
fn ask(socket: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(HANGS)).unwrap();
    stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap_or_else(|error| panic!("{request}: {error}"));
    answer
}

/// Connects hosts one after the other, each of which stores a pair; the drive may vanish at any moment.
fn connect_hosts(served: &Served, count: u32) {
    for number in 0..count {
        let Ok(mut host) = Initiator::connect(&served.address[..], &served.nqn, &Options::default()) else {
            continue;
        };
        if let Ok(mut queue) = host.io_queue(1, 32) {
            _ = queue.store(Key::from_u32_be(number), b"value");
        }
    }
}

/// A bad unit of any host is a line of the log.
#[test]
fn a_server_whose_standard_error_has_no_reader_goes_on() {
    for reactors in ["0", "1"] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_kvdrive"));
        program.stderr(Stdio::piped());
        let mut served = serve_by(program, &["--reactors", reactors]);
        drop(served.program.stderr.take());
        let mut stranger = TcpStream::connect(&served.address).unwrap();
        stranger.write_all(&[0xFF; 200]).unwrap();
        let mut answer = Vec::new();
        stranger.read_to_end(&mut answer).unwrap();
        assert_eq!(answer.first(), Some(&3), "a request to end the connection, with the error");
        store_and_retrieve(&served);
        assert_eq!(served.program.try_wait().unwrap(), None, "it is served");
    }
}

#[test]
fn power_cuts_and_returns_of_several_callers_all_end() {
    for reactors in ["0", "1"] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("drive.sock");
        let served = serve(&["--control", socket.to_str().unwrap(), "--reactors", reactors]);
        thread::scope(|scope| {
            for request in [r#"{"do":"power-cut","torn":true}"#, r#"{"do":"power-on"}"#].repeat(2) {
                let socket = &socket;
                scope.spawn(move || (0..40).for_each(|_| drop(ask(socket, request))));
            }
            scope.spawn(|| connect_hosts(&served, 100));
        });
        ask(&socket, r#"{"do":"power-on"}"#);
        store_and_retrieve(&served);
    }
}
