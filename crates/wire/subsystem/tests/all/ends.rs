//! Connections that end together with their last bytes: no part of them is left, whichever thread reads
//! sockets. And connections that end with the power of the drive.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use kvdrive_sim::Rng;
use kvdrive_sim::wall::Stopwatch;
use kvdrive_subsystem::subsystem::Options;
use rustix::net::sockopt::set_socket_linger;

use kvdrive_rigs::memory::Memory;
use kvdrive_rigs::served::{Backend, Running, serve};
use kvdrive_rigs::wire::{Wire, connect, event_request, ic_req, set_cc};

/// Connections of each kind.
const CONNECTIONS: u64 = 60;
/// Time in which the server must notice that all of them have ended, s.
const NOTICED_S: f64 = 5.0;

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// FIN.
    Close,
    /// RST.
    Reset,
}

/// When a connection ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    /// With everything that it sends, before any answer is read.
    AnyAnswer,
    /// After all answers have been read, with a command that has none, so that the server sends nothing to a closed
    /// socket.
    NoAnswer,
}

/// An admin queue without keep-alive, enabled: three units, and three answers of [`ANSWERS_BYTES`].
fn enabled() -> Vec<u8> {
    [ic_req(), connect(1, 0, 31, [0xFF, 0xFF]), set_cc(2, "61004600")].concat()
}

const ANSWERS_BYTES: usize = 128 + 24 + 24;

fn send_and_end(server: &Running, first: &[u8], before: Before, end: End) {
    let mut socket = TcpStream::connect(server.at).unwrap();
    // If the server has ended the connection already, the write may fail.
    if before == Before::NoAnswer {
        let mut answers = [0; ANSWERS_BYTES];
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let _ = socket.write_all(first).and_then(|()| socket.read_exact(&mut answers));
        let _ = socket.write_all(&event_request(3));
    } else {
        let _ = socket.write_all(&[first, &event_request(3)].concat());
    }
    if end == End::Reset {
        set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
    }
}

/// Waits until no controller and no connection is left.
#[track_caller]
fn nothing_stays(server: &Running, what: &str) {
    // Connections are accepted in order: when this one is answered, those before it have been.
    let mut last = TcpStream::connect(server.at).unwrap();
    last.write_all(&ic_req()).unwrap();
    last.read_exact(&mut [0; 128]).unwrap();
    drop(last);
    let (clock, mut left) = (Stopwatch::start(), server.left());
    while left != (0, 0) && clock.seconds() < NOTICED_S {
        std::thread::sleep(Duration::from_millis(5));
        left = server.left();
    }
    assert_eq!(left, (0, 0), "controllers and connections after {what}");
}

fn ends_are_noticed(behind: &Backend) {
    let server = serve(behind.clone(), Options::default(), 1 << 20);
    for before in [Before::AnyAnswer, Before::NoAnswer] {
        for end in [End::Close, End::Reset] {
            (0..CONNECTIONS).for_each(|_| send_and_end(&server, &enabled(), before, end));
            nothing_stays(&server, &format!("{end:?}, before {before:?}"));
        }
    }
    // Units with some altered bytes, all at once.
    for seed in 0..CONNECTIONS {
        let mut rng = Rng::stream(seed, "altered-ends");
        let mut bytes = enabled();
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
        }
        send_and_end(&server, &bytes, Before::AnyAnswer, if rng.one_in(2) { End::Close } else { End::Reset });
    }
    nothing_stays(&server, "altered units");
    let end = server.end();
    assert_eq!((end.leaked_bytes, end.controllers), (0, 0));
}

#[test]
fn a_connection_that_ends_with_its_last_bytes_is_noticed_by_a_thread_for_sockets() {
    ends_are_noticed(&Backend::Memory);
}

#[test]
fn a_connection_that_ends_with_its_last_bytes_is_noticed_in_the_loop_of_a_drive() {
    ends_are_noticed(&Backend::Beside(Vec::new()));
}

/// The state of a host's controller ends with the power, also if no turn of the server was between the cut and the return.
#[test]
fn hosts_see_that_the_power_was_gone_although_it_is_back() {
    let mut admin = Wire::new(Options::default());
    admin.send(&ic_req());
    admin.send(&connect(7, 0, 31, [0xFF, 0xFF]));
    let hosts = |admin: &Wire| admin.core.subsystem.hosts(0, 64, 0).0.len();
    assert_eq!(hosts(&admin), 1);
    admin.memory.state.borrow_mut().is_off = true;
    admin.core.subsystem.replace(1, Memory::default().namespace());
    assert_eq!((hosts(&admin), admin.core.subsystem.is_dark()), (0, false));
}
