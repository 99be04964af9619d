//! Clients of a function whose messages are wrong, lie about their length, or come too late.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kvdrive_nvme::{Status, opcode, property};
use kvdrive_sim::wall::Stopwatch;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::functions::{beside, serve};
use kvdrive_rigs::guest::{BASE, Doorbell, Guest, PAGE, keyed, memory_file, with_rings};

/// A client that sends arbitrary bytes.
struct Raw(UnixStream);

const EINVAL: u32 = 22;
const EEXIST: u32 = 17;
const EOPNOTSUPP: u32 = 95;

impl Raw {
    fn connect(path: &Path) -> Raw {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Raw(stream)
    }

    fn agreed(path: &Path) -> Raw {
        let mut raw = Raw::connect(path);
        assert_eq!(raw.ask(1, &[&[0; 4][..], b"{}\0"].concat(), &[]).0, 0);
        raw
    }

    /// The same, after the server has noticed that an earlier client has disconnected.
    fn agreed_after_another(path: &Path) -> Raw {
        let begin = Stopwatch::start();
        loop {
            let mut raw = Raw::connect(path);
            let mut header = [0; 16];
            let is_sent = raw.0.write_all(&message(7, 1, 0, &[0; 4])).is_ok();
            if is_sent && raw.0.read_exact(&mut header).is_ok() {
                let bytes = u32::from_ne_bytes(header[4..8].try_into().unwrap()) as usize;
                raw.0.read_exact(&mut vec![0; bytes - 16]).unwrap();
                return raw;
            }
            assert!(begin.seconds() < 20.0, "{} still has its client", path.display());
        }
    }

    fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        let sent = sendmsg(self.0.as_fd(), &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
        assert_eq!(sent.unwrap(), bytes.len());
    }

    /// Sends a message; returns the error number of its reply, and the bytes after the reply's header.
    fn ask(&mut self, command: u16, payload: &[u8], descriptors: &[BorrowedFd<'_>]) -> (u32, Vec<u8>) {
        self.send(&message(7, command, 0, payload), descriptors);
        self.reply(7, command)
    }

    fn reply(&mut self, id: u16, command: u16) -> (u32, Vec<u8>) {
        let mut header = [0; 16];
        self.0.read_exact(&mut header).unwrap();
        let words: Vec<u32> =
            header.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words[0], u32::from(command) << 16 | u32::from(id));
        let mut rest = vec![0; words[1] as usize - 16];
        self.0.read_exact(&mut rest).unwrap();
        assert_eq!(words[2] & 0xF, 1, "a reply");
        assert_eq!(words[2] & 1 << 5 != 0, words[3] != 0, "an error has a number");
        (words[3], rest)
    }

    /// Has the server ended the connection?
    fn is_ended(&mut self) -> bool {
        match self.0.read(&mut [0]) {
            Ok(bytes) => bytes == 0,
            // It had not read all bytes when it closed the socket.
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// The header of a message that claims to have this many bytes.
fn header_of(bytes: u32) -> Vec<u8> {
    [words(&[4 << 16 | 7]), words(&[bytes, 0, 0])].concat()
}

fn message(id: u16, command: u16, flags: u32, payload: &[u8]) -> Vec<u8> {
    let bytes = (16 + payload.len() as u32).to_ne_bytes();
    [&id.to_ne_bytes()[..], &command.to_ne_bytes(), &bytes, &flags.to_ne_bytes(), &[0; 4], payload].concat()
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// DMA_MAP of pages.
fn map(address: u64, bytes: u64) -> Vec<u8> {
    let longs = [0, address, bytes].map(u64::to_ne_bytes).concat();
    [words(&[32, 3]), longs].concat()
}

/// REGION_READ or the front of REGION_WRITE.
fn access(region: u32, at: u64, count: u32) -> Vec<u8> {
    [at.to_ne_bytes().to_vec(), words(&[region, count])].concat()
}

#[test]
fn a_message_that_cannot_be_carried_out_gets_an_error_and_the_next_one_an_answer() {
    let (server, paths, _folder) = serve(beside(), 1);
    let mut raw = Raw::connect(&paths[0]);
    assert_eq!(raw.ask(4, &[0; 16], &[]).0, EINVAL, "before a version was agreed on");
    assert_eq!(raw.ask(1, &[1, 0, 0, 0], &[]).0, EINVAL, "another major version");
    assert_eq!(raw.ask(1, &[0; 2], &[]).0, EINVAL);
    let (errno, version) = raw.ask(1, &[0, 0, 9, 0], &[]);
    assert_eq!((errno, &version[..4], version.last()), (0, &[0, 0, 1, 0][..], Some(&0)));
    assert_eq!(raw.ask(1, &[0; 4], &[]).0, EINVAL, "a second time");
    let file = memory_file(PAGE, true);
    assert_eq!(raw.ask(2, &map(BASE, PAGE), &[file.as_fd()]).0, 0);
    let wrong: [(u16, Vec<u8>, u32); 22] = [
        (0, Vec::new(), EOPNOTSUPP),
        (14, vec![1; 300], EOPNOTSUPP),
        (u16::MAX, vec![1; 70_000], EINVAL),
        (2, map(BASE, PAGE), EEXIST),
        (2, map(BASE + 1, PAGE), EINVAL),
        (2, map(u64::MAX - 0xFFF, PAGE), EINVAL),
        (2, map(0, 0), EINVAL),
        (2, vec![0; 31], EINVAL),
        (3, words(&[24, 0, 5, 0, 4096, 0]), EINVAL),
        (3, words(&[24, 2, 0, 0, 4096, 0]), EINVAL),
        (4, vec![0; 3], EINVAL),
        (5, words(&[32, 0, 9, 0, 0, 0, 0, 0]), EINVAL),
        (7, words(&[16, 0, 5, 0]), EINVAL),
        (8, words(&[20, 0x24, 2, 60, 6]), EINVAL),
        (8, words(&[20, 0x24, 2, u32::MAX, u32::MAX]), EINVAL),
        (9, access(0, 0x3FFC, 8), EINVAL),
        (9, access(0, u64::MAX, 8), EINVAL),
        (9, access(0, 0, u32::MAX), EINVAL),
        (9, access(7, 255, 2), EINVAL),
        (9, access(8, 0, 1), EINVAL),
        (10, access(0, 0, 8), EINVAL),
        (10, access(u32::MAX, 0, 0), EINVAL),
    ];
    for (command, payload, errno) in wrong {
        assert_eq!(raw.ask(command, &payload, &[]).0, errno, "{command}: {payload:?}");
        assert_eq!(raw.ask(4, &words(&[16, 0, 0, 0]), &[]).1, words(&[16, 3, 9, 5]));
    }
    // In pieces, and without a reply.
    for byte in message(7, 4, 0, &[0; 16]) {
        raw.0.write_all(&[byte]).unwrap();
    }
    raw.reply(7, 4);
    raw.send(&message(8, 10, 1 << 4, &[access(7, 4, 2), vec![0; 2]].concat()), &[]);
    raw.send(&message(9, 13, 0, &[]), &[]);
    assert_eq!(raw.reply(9, 13).0, 0);
    // A length that is shorter than the header, and more descriptors than a message may have.
    raw.send(&[0; 16], &[]);
    assert!(raw.is_ended());
    let mut raw = Raw::agreed(&paths[0]);
    raw.send(&message(1, 2, 0, &map(BASE, PAGE)), &[file.as_fd(); 40]);
    assert!(raw.is_ended());
    drop(Guest::boot(&paths[0], Doorbell::InMemory, true));
    let end = server.end();
    assert_eq!((end.leaked_bytes, end.controllers), (0, 0));
}

/// The client leaves after the header, or in the middle of what it has announced.
#[test]
fn a_message_whose_length_is_a_lie_ends_with_its_client() {
    let (server, paths, _folder) = serve(beside(), 2);
    let (mut neighbour, mut rings) = with_rings(&paths[0]);
    for bytes in [0, 1, 15, 17, 21, 0xFFFF, 0x1_0010, 0x1_0011, 0x7FFF_FFFF, u32::MAX - 1, u32::MAX] {
        for follow in [0, 1, 600_000] {
            let mut raw = Raw::agreed_after_another(&paths[1]);
            raw.send(&header_of(bytes), &[]);
            if bytes < 16 {
                assert!(raw.is_ended(), "{bytes} B");
                continue;
            }
            // More than a socket holds: the server has taken the header when this returns.
            let follow = (bytes as usize - 17).min(follow);
            raw.0.write_all(&vec![0xE7; follow]).unwrap();
            let exists = neighbour.run(&mut rings, &keyed(opcode::EXIST, 1, b"key", 0, 0));
            assert_eq!(exists.status(), Status::SUCCESS, "{bytes} B");
        }
    }
    let no_messages = |line: &&String| line.ends_with("it sent no message");
    assert_eq!(server.log.lock().unwrap().iter().filter(no_messages).count(), 3 * 3);
    drop(neighbour);
    let end = server.end();
    assert_eq!((end.leaked_bytes, end.controllers), (0, 0));
}

/// Bytes of a message of 4 GiB come as fast as the server drops them; the neighbour is served meanwhile.
#[test]
fn a_client_in_the_middle_of_a_message_of_4_gib_does_not_hold_the_server() {
    let (server, paths, _folder) = serve(beside(), 2);
    let (mut neighbour, mut rings) = with_rings(&paths[0]);
    let flood = Raw::agreed(&paths[1]);
    flood.send(&header_of(u32::MAX), &[]);
    let (sent, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let piece = vec![0xE7; 1 << 16];
            while !is_over.load(Ordering::Relaxed) && sent.load(Ordering::Relaxed) < u64::from(u32::MAX) {
                (&flood.0).write_all(&piece).unwrap();
                sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
            }
        });
        while sent.load(Ordering::Relaxed) < 1 << 20 {
            std::thread::yield_now();
        }
        for cid in 0..20 {
            let exists = neighbour.run(&mut rings, &keyed(opcode::EXIST, cid, b"key", 0, 0));
            assert_eq!(exists.status(), Status::SUCCESS);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let sent = sent.into_inner();
    assert!(sent < 1 << 31, "20 commands took as long as {sent} B of the other client");
    drop((flood, neighbour));
    assert_eq!(server.end().leaked_bytes, 0);
}

/// As QEMU asks: first with room for the fixed part, then for as much as the reply says.
#[test]
fn a_region_says_where_its_capabilities_would_be_without_room_for_them() {
    let (server, paths, _folder) = serve(beside(), 1);
    let mut raw = Raw::agreed(&paths[0]);
    for (room, bytes) in [(32, 32), (63, 32), (64, 64), (100, 64)] {
        let (errno, reply) = raw.ask(5, &words(&[room, 0, 0, 0, 0, 0, 0, 0]), &[]);
        let fixed: Vec<u32> =
            reply.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
        assert_eq!((errno, reply.len()), (0, bytes), "room for {room}");
        assert_eq!(fixed[..4], [64, 0b1111, 0, 32], "room for {room}");
    }
    let (errno, config) = raw.ask(5, &words(&[32, 0, 7, 0, 0, 0, 0, 0]), &[]);
    assert_eq!((errno, &config[..16]), (0, &words(&[32, 0b11, 7, 0])[..]), "a region without capabilities");
    drop(raw);
    server.end();
}

#[test]
fn a_function_has_one_client_and_the_next_one_finds_it_new() {
    let (server, paths, _folder) = serve(beside(), 1);
    let mut first = Guest::boot(&paths[0], Doorbell::InMemory, true);
    assert!(Raw::connect(&paths[0]).is_ended(), "another one");
    first.create(1, 8, None);
    first.set_register(0x0C, 5);
    drop(first);
    drop(Raw::agreed_after_another(&paths[0]));
    std::thread::sleep(Duration::from_millis(50));
    let mut second = Guest::connect(&paths[0], Doorbell::InMemory, true);
    assert_eq!((second.register(property::CC), second.register(0x0C)), (0, 0));
    second.map();
    second.enable();
    second.create(1, 8, None);
    assert_eq!(server.left().0, 1);
    drop(second);
    server.end();
}
