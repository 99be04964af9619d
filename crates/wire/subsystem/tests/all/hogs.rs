//! Many hosts that take all memory they can get and send next to nothing, and one that wants to work: names are free, so
//! the number of names must not matter.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use kvdrive_host::tcp::{Initiator, Options as HostOptions};
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::wall::Stopwatch;
use kvdrive_subsystem::shared::{Core, Use};
use kvdrive_subsystem::subsystem::Options;
use kvdrive_subsystem::tcp::connection::{Connection, Limits};

use kvdrive_rigs::served::{Backend, serve};
use kvdrive_rigs::wire::{address, connect_as, core, data, ic_req, retrieve, set_cc, settle, store, units};

const RESPONSE: u8 = 5;
const DATA: u8 = 7;
const R2T: u8 = 9;

/// As `serve` has it: 48 MiB of these are for transfers, with 192 reserves of 128 KiB, and 16 MiB
/// for capsules, with 128 reserves.
const MEMORY_BYTES: usize = 64 << 20;
const RESERVE_BYTES: usize = 128 << 10;
const VALUE_BYTES: usize = 1 << 20;
/// Letters of names.
const FIRST_NAME: u8 = b'0';

/// Both connections of a host.
struct Host {
    admin: Connection,
    io: Connection,
}

/// A connection from 127.0.0.`from`, which has sent Connect for the admin queue, and the status of the answer.
fn call(core: &mut Core, name: u8, from: u8, key: usize) -> (Connection, u16) {
    let mut admin = Connection::new(key, Limits::default(), address(), core);
    admin.come_from([127, 0, 0, from].into());
    for unit in [ic_req(), connect_as(name, 1, 0, 31, [0xFF, 0xFF])] {
        admin.receive(core, &unit);
        settle(core, &mut admin);
    }
    let answer = admin.output().take_all();
    let status = u16::from_le_bytes(answer[answer.len() - 2..].try_into().unwrap()) >> 1 & 0x7FF;
    (admin, status)
}

impl Host {
    fn new(core: &mut Core, number: u8, from: u8) -> Host {
        let (mut admin, status) = call(core, FIRST_NAME + number, from, 2 * usize::from(number));
        assert_eq!(status, Status::SUCCESS.raw(), "host {number}");
        admin.receive(core, &set_cc(2, "61004600"));
        settle(core, &mut admin);
        let mut io = Connection::new(2 * usize::from(number) + 1, Limits::default(), address(), core);
        io.come_from([127, 0, 0, from].into());
        for unit in [ic_req(), connect_as(FIRST_NAME + number, 1, 1, 127, [number + 1, 0])] {
            io.receive(core, &unit);
            settle(core, &mut io);
        }
        io.output().take_all();
        Host { admin, io }
    }

    /// Sends bytes on the I/O queue; returns the types of the units that came back.
    fn send(&mut self, core: &mut Core, bytes: &[u8]) -> Vec<u8> {
        assert_eq!(self.io.receive(core, bytes), bytes.len());
        settle(core, &mut self.io);
        units(&self.io.output().take_all()).iter().map(|unit| unit[0]).collect()
    }

    /// Asks to store as many large values as the queue takes; returns for how many of them the drive asks.
    fn ask_for_all(&mut self, core: &mut Core) -> usize {
        let value = vec![7; VALUE_BYTES];
        (0..127).map(|cid| self.send(core, &store(cid, &[cid], &value, false)).len()).sum()
    }
}

/// A host that has come last stores and retrieves small values, and a large one.
fn works(core: &mut Core, host: &mut Host, what: &str) {
    let value = vec![1; 16 << 10];
    assert_eq!(host.send(core, &store(1, b"key", &value, false)), [R2T], "{what}");
    assert_eq!(host.send(core, &data(1, 0, 0, &value, true)), [RESPONSE], "{what}");
    assert_eq!(host.send(core, &retrieve(2, b"key", 16 << 10)), [DATA, RESPONSE], "{what}");
    assert_eq!(host.send(core, &store(3, b"large", &vec![2; VALUE_BYTES], false)), [R2T], "{what}");
    let part = vec![2; RESERVE_BYTES];
    for at in (0..VALUE_BYTES).step_by(RESERVE_BYTES) {
        let is_last = at + RESERVE_BYTES == VALUE_BYTES;
        let answer = host.send(core, &data(3, 0, at as u32, &part, true));
        assert_eq!(answer, [if is_last { RESPONSE } else { R2T }], "{what}: from {at} on");
    }
}

#[test]
fn whatever_1_to_64_names_hold_one_more_host_works() {
    for (names, addresses) in
        [(1, 1), (2, 1), (6, 1), (7, 1), (8, 1), (24, 1), (63, 1), (64, 1), (64, 2), (64, 8)]
    {
        let what = format!("{names} names of {addresses} addresses");
        let (mut core, _memory) = core(Options::default(), MEMORY_BYTES);
        let mut hogs: Vec<Host> =
            (0..names).map(|number| Host::new(&mut core, number, number % addresses)).collect();
        let granted: usize = hogs.iter_mut().map(|hog| hog.ask_for_all(&mut core)).sum();
        // All that is common, and the reserve of each that got nothing whole.
        assert_eq!(granted, 24 + usize::from(names).saturating_sub(1), "{what}");
        // The last host is of the address of the others where that has a reserve left.
        let mut last = Host::new(&mut core, names, if names < 64 { 0 } else { 99 });
        works(&mut core, &mut last, &what);
        for host in hogs.iter_mut().chain([&mut last]) {
            host.io.end(&mut core);
            host.admin.end(&mut core);
        }
        assert_eq!((core.used_bytes(), core.memory(Use::Transfer).line.len()), (0, 0), "{what}");
    }
}

/// A batch, whose data cannot be divided; the drive of these tests does not have it, so that its answer is a refusal.
fn batch(cid: u8, bytes: usize) -> Vec<u8> {
    let mut unit = store(cid, &[], &vec![3; bytes], false);
    unit[8] = kvdrive_nvme::opcode::BATCH;
    unit
}

/// Commands that cannot be divided have a turn of their own, one host after the other, whatever others hold; who does
/// not send its data in its turn is ended.
#[test]
fn batches_take_turns_whatever_other_hosts_hold() {
    let (mut core, _memory) = core(Options::default(), MEMORY_BYTES);
    let mut hogs: Vec<Host> = (0..8).map(|number| Host::new(&mut core, number, number)).collect();
    hogs.iter_mut().for_each(|hog| assert!(hog.ask_for_all(&mut core) > 0));
    let [mut one, mut two, mut three] = [8, 9, 10].map(|number| Host::new(&mut core, number, number));
    let asked = |core: &mut Core, host: &mut Host| host.send(core, &batch(1, VALUE_BYTES));
    assert_eq!(asked(&mut core, &mut one), [R2T], "the first has its turn");
    assert!(one.send(&mut core, &batch(2, VALUE_BYTES)).is_empty(), "and only one");
    assert_eq!((asked(&mut core, &mut two), asked(&mut core, &mut three)), (vec![], vec![]));
    let part = vec![3; RESERVE_BYTES];
    let sent: Vec<u8> = (0..VALUE_BYTES)
        .step_by(RESERVE_BYTES)
        .flat_map(|at| one.send(&mut core, &data(1, 0, at as u32, &part, at + RESERVE_BYTES == VALUE_BYTES)))
        .collect();
    assert_eq!(sent, [RESPONSE]);
    let retried = |core: &mut Core, host: &mut Host| {
        let got = host.io.retry(core, Use::Transfer).is_ok();
        let asks = units(&host.io.output().take_all()).iter().map(|unit| unit[0]).collect::<Vec<_>>();
        (got, asks)
    };
    core.memory(Use::Transfer).line.retain(|key| *key != 2 * 9 + 1);
    assert_eq!(retried(&mut core, &mut two), (true, vec![R2T]));
    assert_eq!(retried(&mut core, &mut three), (false, vec![]));
    // It sends fast enough for any connection, and not enough for its turn.
    for second in 0..10 {
        core.now_ms += 1000;
        two.send(&mut core, &data(1, 0, second * 8192, &[3; 8192], false));
        two.io.tick(&mut core);
        assert_eq!(two.io.is_ending(), second >= 5, "{second} s");
        if two.io.is_ending() {
            break;
        }
    }
    assert_eq!(retried(&mut core, &mut three), (true, vec![R2T]));
    assert!(two.io.take_complaint().is_some_and(|line| line.contains("a batch took longer")));
}

#[test]
fn a_host_for_whom_no_reserve_is_left_is_told_so_when_it_connects() {
    let (mut core, _memory) = core(Options::default(), MEMORY_BYTES);
    let mut hosts: Vec<Connection> = Vec::new();
    for name in 0..64 {
        let (host, status) = call(&mut core, FIRST_NAME + name, 1, usize::from(name));
        assert_eq!(status, Status::SUCCESS.raw(), "name {name}");
        hosts.push(host);
    }
    let (mut refused, status) = call(&mut core, FIRST_NAME + 64, 1, 64);
    assert_eq!(status, Status::CONTROLLER_BUSY.raw(), "a 65th name of one address");
    assert!(refused.take_complaint().is_some_and(|line| line.contains("no reserve of memory")));
    // A name that has a reserve may connect again, and so may another address; and whoever leaves makes room.
    hosts.push(call(&mut core, FIRST_NAME, 1, 65).0);
    assert!(hosts[64].queue().is_some());
    let (other, status) = call(&mut core, FIRST_NAME + 64, 2, 66);
    assert_eq!((status, other.queue().is_some()), (Status::SUCCESS.raw(), true));
    drop(other);
    hosts[1].end(&mut core);
    hosts.remove(1);
    let (again, status) = call(&mut core, FIRST_NAME + 65, 1, 67);
    assert_eq!((status, again.queue().is_some()), (Status::SUCCESS.raw(), true));
}

/// Seconds until a silent host that holds memory is disconnected.
fn silent_for(other_waits: bool) -> u64 {
    let (mut core, _memory) = core(Options::default(), MEMORY_BYTES);
    let [mut silent, mut other] = [0, 1].map(|number| Host::new(&mut core, number, number));
    silent.ask_for_all(&mut core);
    if other_waits {
        // One of its values moves, and the other one waits.
        let value = vec![2; VALUE_BYTES];
        let asked = [1, 2].map(|cid| other.send(&mut core, &store(cid, &[cid], &value, false)));
        assert_eq!(asked, [vec![R2T], vec![]]);
    }
    let from_ms = core.now_ms;
    while !silent.io.is_ending() {
        core.now_ms += 500;
        silent.io.tick(&mut core);
        assert!(core.now_ms < 60_000);
    }
    (core.now_ms - from_ms) / 1000
}

#[test]
fn a_host_that_is_silent_is_ended_sooner_while_a_poorer_one_waits() {
    assert_eq!((silent_for(false), silent_for(true)), (31, 6));
}

/// A host that sends a little of each of many values, over a socket.
struct Hog {
    _admin: TcpStream,
    io: TcpStream,
    unread: Vec<u8>,
    /// Bytes sent of each value for which the drive has asked, by its tag and command.
    sent: BTreeMap<(u16, u8), u32>,
}

impl Hog {
    fn new(at: SocketAddr, letter: u8, controller: u8) -> Hog {
        let mut admin = TcpStream::connect(at).unwrap();
        admin.write_all(&[ic_req(), connect_as(letter, 1, 0, 31, [0xFF, 0xFF])].concat()).unwrap();
        admin.read_exact(&mut [0; 128 + 24]).unwrap();
        admin.write_all(&set_cc(2, "61004600")).unwrap();
        admin.read_exact(&mut [0; 24]).unwrap();
        let mut io = TcpStream::connect(at).unwrap();
        io.write_all(&[ic_req(), connect_as(letter, 1, 1, 128, [controller, 0])].concat()).unwrap();
        io.read_exact(&mut [0; 128 + 24]).unwrap();
        let value = vec![7; VALUE_BYTES];
        (0..128).for_each(|cid| io.write_all(&store(cid, &[cid], &value, false)).unwrap());
        io.set_nonblocking(true).unwrap();
        Hog { _admin: admin, io, unread: Vec::new(), sent: BTreeMap::new() }
    }

    /// Sends `bytes` of each value for which the drive has asked.
    fn trickle(&mut self, bytes: usize) {
        let mut piece = [0; 4096];
        match self.io.read(&mut piece) {
            Ok(read) => self.unread.extend_from_slice(&piece[..read]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        while self.unread.len() >= 24 {
            let unit: Vec<u8> = self.unread.drain(..24).collect();
            assert_eq!(unit[0], R2T);
            let at = u32::from_le_bytes(unit[12..16].try_into().unwrap());
            self.sent.insert((u16::from_le_bytes([unit[10], unit[11]]), unit[8]), at);
        }
        for ((tag, cid), sent) in &mut self.sent {
            let unit = data(*cid, *tag, *sent, &vec![7; bytes], false);
            self.io.write_all(&unit).unwrap();
            *sent += bytes as u32;
        }
    }
}

/// 8 names that each ask to store 128 values of 1 MiB, and send 4800 B a second of each for which the drive has asked: a
/// further host had no answer in 65 s.
#[test]
fn eight_hosts_that_trickle_do_not_stop_a_ninth() {
    let options = Options { transfer_max_bytes: 256 << 20, ..Options::default() };
    let server = serve(Backend::Memory, options, MEMORY_BYTES);
    let mut hogs: Vec<Hog> = (0..8).map(|number| Hog::new(server.at, b'0' + number, number + 1)).collect();
    hogs.iter_mut().for_each(|hog| hog.trickle(4));
    let (done, is_done) = std::sync::mpsc::channel();
    let (at, nqn) = (server.at, server.nqn.clone());
    let ninth = std::thread::spawn(move || {
        let mut host = Initiator::connect(at, &nqn, &HostOptions::default()).unwrap();
        let mut queue = host.io_queue(1, 32).unwrap();
        for bytes in [16 << 10, 16 << 10, 1 << 20, 2 << 20, 5 << 20, 100] {
            let value: Vec<u8> = (0..bytes).map(|at: u32| (at % 251) as u8).collect();
            queue.store(Key::from_u32_be(bytes), &value).unwrap();
            if bytes <= 16 << 10 {
                assert!(queue.retrieve(Key::from_u32_be(bytes), bytes).unwrap().1 == value);
            }
        }
        done.send(()).unwrap();
    });
    let clock = Stopwatch::start();
    while is_done.recv_timeout(Duration::from_millis(100)).is_err() {
        assert!(clock.ns() < 20_000_000_000, "the ninth host has no answer");
        hogs.iter_mut().for_each(|hog| hog.trickle(480));
    }
    ninth.join().unwrap();
    drop(hogs);
    server.end();
}
