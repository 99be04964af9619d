//! A host that takes all it can get, beside another host: memory is divided among hosts, and a host must make
//! progress with transfers that it has begun. Many such hosts: [`super::hogs`].

use kvdrive_nvme::{Command, Key, SglDescriptor, Status, Store, StoreOptions, StorePart};
use kvdrive_subsystem::shared::{Core, Use};
use kvdrive_subsystem::subsystem::{Event, Options, Reach};
use kvdrive_subsystem::tcp::connection::{Connection, Limits};

use kvdrive_rigs::memory::Memory;
use kvdrive_rigs::wire::{
    abort, address, connect_as, core, data, ic_req, response, retrieve, set_cc, settle, store, units,
};

const VALUE_BYTES: usize = 1 << 20;
/// Six MiB of them are for transfers: three in reserves of 16 KiB, and three for those who want more.
const MEMORY_BYTES: usize = 8 << 20;

/// Both connections of a host.
struct Host {
    admin: Connection,
    io: Connection,
}

impl Host {
    /// A host with a letter as its name, with the controller of this number.
    fn new(core: &mut Core, letter: u8, number: u8) -> Host {
        let [mut admin, mut io] = [0, 1].map(|queue| {
            Connection::new(usize::from(2 * number + queue), Limits::default(), address(), core)
        });
        for unit in [ic_req(), connect_as(letter, 1, 0, 31, [0xFF, 0xFF]), set_cc(2, "61004600")] {
            admin.receive(core, &unit);
            settle(core, &mut admin);
        }
        for unit in [ic_req(), connect_as(letter, 1, 1, 63, [number, 0])] {
            io.receive(core, &unit);
            settle(core, &mut io);
        }
        admin.output().take_all();
        io.output().take_all();
        Host { admin, io }
    }

    /// Sends bytes on the I/O queue; returns the types of the units that came back.
    fn send(&mut self, core: &mut Core, bytes: &[u8]) -> Vec<u8> {
        assert_eq!(self.io.receive(core, bytes), bytes.len());
        settle(core, &mut self.io);
        units(&self.io.output().take_all()).iter().map(|unit| unit[0]).collect()
    }
}

const RESPONSE: u8 = 5;
const DATA: u8 = 7;
const R2T: u8 = 9;

fn two_hosts() -> (Core, Memory, Host, Host) {
    let (mut core, memory) = core(Options::default(), MEMORY_BYTES);
    let (hog, other) = (Host::new(&mut core, b'b', 1), Host::new(&mut core, b'c', 2));
    (core, memory, hog, other)
}

/// Asks to store as many large values as the queue takes, and returns how many of them the drive asks for.
fn ask_for_all(core: &mut Core, hog: &mut Host) -> usize {
    let value = vec![7; VALUE_BYTES];
    (0..63).map(|cid| hog.send(core, &store(cid, &[cid], &value, false)).len()).sum()
}

#[test]
fn a_host_that_takes_all_memory_it_gets_leaves_another_one_as_much() {
    let (mut core, _memory, mut hog, mut other) = two_hosts();
    assert_eq!(ask_for_all(&mut core, &mut hog), 3, "what is common");
    let value = vec![1; 4096];
    assert_eq!(other.send(&mut core, &store(1, b"key", &value, false)), [R2T]);
    assert_eq!(other.send(&mut core, &data(1, 0, 0, &value, true)), [RESPONSE]);
    assert_eq!(other.send(&mut core, &retrieve(2, b"key", 4096)), [DATA, RESPONSE]);
    // A large value moves in parts that its reserve holds.
    let part = vec![2; 16 << 10];
    assert_eq!(other.send(&mut core, &store(3, b"large", &vec![2; VALUE_BYTES], false)), [R2T]);
    for at in (0..VALUE_BYTES).step_by(part.len()) {
        let is_last = at + part.len() == VALUE_BYTES;
        let answer = other.send(&mut core, &data(3, 0, at as u32, &part, true));
        assert_eq!(answer, [if is_last { RESPONSE } else { R2T }], "from {at} on");
    }
    // Waiting commands of `hog` are passed over, and continue with the first of its own buffers that is
    // returned.
    assert_eq!(
        hog.io.retry(&mut core, Use::Transfer).err(),
        Some(kvdrive_subsystem::buffer::NoBuffer::OverShare)
    );
    other.io.end(&mut core);
    other.admin.end(&mut core);
    hog.io.end(&mut core);
    hog.admin.end(&mut core);
    assert_eq!((core.used_bytes(), core.memory(Use::Transfer).line.len()), (0, 0));
}

#[test]
fn a_byte_now_and_then_does_not_hold_memory() {
    let (mut core, _memory, mut hog, mut other) = two_hosts();
    ask_for_all(&mut core, &mut hog);
    assert_eq!(other.send(&mut core, &store(1, b"large", &vec![2; VALUE_BYTES], false)), [R2T]);
    // Both send a value: one host a byte every five seconds, the other 8 KiB a second. Retrieves are no
    // progress.
    hog.io.receive(&mut core, &data(0, 0, 0, &[7; 4096], false)[..24]);
    let (mut second, mut sent) = (0, 0);
    while !hog.io.is_ending() {
        assert!(second < 60, "it holds its memory for a minute");
        if second % 5 == 0 {
            hog.io.receive(&mut core, &[7]);
        }
        let piece = data(1, 0, sent, &[2; 8192], false);
        let asked = other.send(&mut core, &piece);
        assert!(asked.is_empty() || asked == [R2T], "{asked:?}");
        sent += 8192;
        second += 1;
        core.now_ms += 1000;
        hog.io.tick(&mut core);
        other.io.tick(&mut core);
    }
    assert!(second > 30, "{second} s");
    assert!(!other.io.is_ending());
    assert_eq!(core.used_bytes(), 16 << 10, "its reserve");
}

/// Responses take no memory that hosts share, so a host that does not read them cannot have many.
#[test]
fn a_host_that_reads_no_answers_is_not_read_from() {
    let (mut core, _memory, mut hog, mut other) = two_hosts();
    let mut commands = 0;
    while hog.io.wants_input() {
        hog.io.receive(&mut core, &retrieve(1, b"absent", 0));
        settle(&mut core, &mut hog.io);
        commands += 1;
        assert!(commands < 10_000, "{} bytes wait for a host that reads nothing", hog.io.output().bytes());
    }
    // More than a queue has entries: a host may send all of them before it reads.
    assert!(commands > 1024, "{commands}");
    assert_eq!(other.send(&mut core, &retrieve(1, b"absent", 0)), [RESPONSE]);
    hog.io.output().take_all();
    assert!(hog.io.wants_input());
    assert_eq!(hog.io.output().head_bytes(), 0);
}

/// The namespace keeps room for an unfinished value, but no data were requested that could be late.
#[test]
fn a_value_in_parts_goes_on_or_its_queue_ends() {
    let (mut core, memory, mut hog, mut other) = two_hosts();
    let part = |at: u32| {
        let store =
            Store { key: Key::new(b"key").unwrap(), value_bytes: 3 * 4096, options: StoreOptions::default() };
        let mut sqe = Command::StorePart(StorePart { store, at, bytes: 4096, stream: 3 }).encode(1, 1);
        sqe.flags |= 0x40;
        sqe.set_sgl(SglDescriptor {
            kind: SglDescriptor::DATA_BLOCK_OFFSET,
            ..SglDescriptor::data_block(0, 4096)
        });
        let bytes = &[5; 4096];
        [&[4, 0, 72, 72], &u32::to_le_bytes(72 + 4096)[..], sqe.as_bytes(), bytes].concat()
    };
    for host in [&mut hog, &mut other] {
        assert_eq!(host.send(&mut core, &part(0)), [RESPONSE]);
    }
    assert_eq!(memory.state.borrow().begun.len(), 1);
    for second in 1..=31 {
        core.now_ms += 1000;
        if second % 20 == 10 {
            assert_eq!(other.send(&mut core, &part(4096 * ((second + 10) / 20))), [RESPONSE]);
        }
        hog.io.tick(&mut core);
        other.io.tick(&mut core);
        assert_eq!((hog.io.is_ending(), other.io.is_ending()), (second > 30, false), "{second} s");
    }
    assert!(hog.io.take_complaint().is_some_and(|line| line.contains("stream 3")));
    // The other host has sent its value, and discards another one: nothing of it is late.
    other.send(&mut core, &part(0));
    let mut discard = Command::Discard { stream: 3 }.encode(1, 1);
    discard.flags |= 0x40;
    let discard = [&[4, 0, 72, 0], &u32::to_le_bytes(72)[..], discard.as_bytes()].concat();
    assert_eq!(other.send(&mut core, &discard), [RESPONSE]);
    core.now_ms += 60_000;
    other.io.tick(&mut core);
    assert!(!other.io.is_ending());
}

/// A host with all connections would keep every other host out.
#[test]
fn connections_are_shared_by_host() {
    let (mut core, _memory) = core(Options::default(), MEMORY_BYTES);
    let limits = Limits { connections_max: 16, ..Limits::default() };
    let mut connect = |letter: u8| {
        let mut admin = Connection::new(0, limits, address(), &core);
        for unit in [ic_req(), connect_as(letter, 1, 0, 31, [0xFF, 0xFF])] {
            admin.receive(&mut core, &unit);
            settle(&mut core, &mut admin);
        }
        let answers = admin.output().take_all();
        let status = answers[answers.len() - 2..].to_vec();
        (admin.queue().is_some(), u16::from_le_bytes([status[0], status[1]]) >> 1 & 0x7FF, admin)
    };
    let hogs: Vec<_> =
        std::iter::from_fn(|| Some(connect(b'b')).filter(|(is_queue, ..)| *is_queue)).collect();
    assert_eq!(hogs.len(), 8, "a half");
    let (_, status, _) = connect(b'b');
    assert_eq!(status, Status::CONTROLLER_BUSY.raw());
    let others: Vec<_> =
        std::iter::from_fn(|| Some(connect(b'c')).filter(|(is_queue, ..)| *is_queue)).collect();
    assert_eq!(others.len(), 4, "a half of the rest");
    assert!(connect(b'd').0, "there is one left for the next");
    for (_, _, mut queue) in hogs {
        queue.abandon(&mut core);
    }
    drop(others);
}

#[test]
fn a_command_that_waits_for_memory_is_aborted() {
    let (mut core, memory, mut hog, _other) = two_hosts();
    assert_eq!(ask_for_all(&mut core, &mut hog), 3);
    // Command 9 waits; command 1 was asked for its data; command 99 does not exist.
    for (cid, aborted) in [(9, true), (9, false), (1, false), (99, false)] {
        let reach = if aborted { Reach::Aborted } else { Reach::Kept };
        hog.admin.receive(&mut core, &abort(cid, 1, cid));
        let Some(Event::Abort { by, queue, cid: of }) = core.subsystem.next_event() else {
            panic!("an Abort")
        };
        assert_eq!((Some(queue), of, by.dw0), (hog.io.queue(), u16::from(cid), 1));
        assert_eq!(hog.io.abort(&mut core, of), reach, "command {cid}");
        let expected = if aborted { response("00000000", 64, 9, "0e00") } else { Vec::new() };
        let answered = hog.io.output().take_all();
        assert_eq!(answered.get(20..), expected.get(20..), "command {cid}: 07h");
        hog.admin.complete(&mut core, by);
    }
    hog.io.end(&mut core);
    assert_eq!((core.used_bytes(), core.memory(Use::Transfer).line.len()), (0, 0));
    assert!(memory.state.borrow().pairs.is_empty());
}
