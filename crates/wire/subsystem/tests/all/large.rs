//! Values that are larger than the server's memory for data, and parts of values.

use std::net::Shutdown;

use kvdrive_content::{Piece, Region};
use kvdrive_host::tcp::{Data, Error, Initiator, Options as HostOptions, Queue};
use kvdrive_host::{Call, Calls, Client as _};
use kvdrive_nvme::{
    Command, Key, RetrieveOptions, RetrievePart, Status, Store, StoreOptions, StorePart, opcode,
};
use kvdrive_subsystem::subsystem::Options;

use kvdrive_rigs::served::{Backend, Running, serve};
use kvdrive_rigs::wire::{self, Pair, data, units};

const MIB: usize = 1 << 20;

/// The server's memory for data, bytes; a value is larger.
const MEMORY_BYTES: usize = 6 * MIB;

fn server(beside: bool) -> Running {
    let options = Options { transfer_max_bytes: 256 << 20, ..Options::default() };
    let backend = if beside { Backend::Beside(Vec::new()) } else { Backend::Drive(Vec::new()) };
    serve(backend, options, MEMORY_BYTES)
}

fn value(seed: u64, bytes: usize) -> Vec<u8> {
    let mut word = seed;
    let mut value = Vec::with_capacity(bytes + 8);
    while value.len() < bytes {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        value.extend_from_slice(&word.to_le_bytes());
    }
    value.truncate(bytes);
    value
}

fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).unwrap()
}

fn check(queue: &mut Queue, of: &str, expected: &[u8]) {
    let (bytes, found) = queue.retrieve(key(of), 256 << 20).unwrap();
    assert_eq!((bytes as usize, found.len()), (expected.len(), expected.len()), "{of}");
    assert!(found == expected, "{of} has other bytes");
}

fn store_part(queue: &mut Queue, of: &str, whole: u32, at: u32, part: &[u8]) -> Result<(), Error> {
    let store = Store { key: key(of), value_bytes: whole, options: StoreOptions::default() };
    let command = Command::StorePart(StorePart { store, at, bytes: part.len() as u32, stream: 1 });
    queue.execute(command.encode(0, 1), Data::Out(part))?.ok().map(drop)
}

fn retrieve_part(queue: &mut Queue, of: &str, stream: u16, at: u32, bytes: u32) -> Result<Vec<u8>, Error> {
    let (room, options) = (256 << 20, RetrieveOptions::default());
    let command = Command::RetrievePart(RetrievePart { key: key(of), at, bytes, stream, room, options });
    Ok(queue.execute(command.encode(0, 1), Data::In(bytes))?.ok()?.data)
}

fn status<T>(result: Result<T, Error>) -> Option<Status> {
    match result {
        Err(Error::Status(status)) => Some(status),
        _ => None,
    }
}

#[test]
fn a_value_larger_than_the_servers_memory_goes_there_and_comes_back() {
    for beside in [false, true] {
        let server = server(beside);
        for (seed, digests) in [(1, false), (2, true)] {
            let options =
                HostOptions { header_digest: digests, data_digest: digests, ..HostOptions::default() };
            let mut controller = Initiator::connect(server.at, &server.nqn, &options).unwrap();
            let mut queue = controller.io_queue(1, 32).unwrap();
            for bytes in [2 * MIB, 2 * MIB + 1, 3 * MIB, 20 * MIB + 12_345] {
                let value = value(seed, bytes);
                queue.store(key("large"), &value).unwrap();
                check(&mut queue, "large", &value);
                // With less room than the value has bytes, the size is still reported.
                let (size, front) = queue.retrieve(key("large"), 3 << 20).unwrap();
                assert_eq!(size as usize, bytes);
                assert!(front == value[..bytes.min(3 << 20)]);
            }
            queue.store(key("small"), b"small").unwrap();
            check(&mut queue, "small", b"small");
            controller.shut_down().unwrap();
        }
        assert_eq!(server.end().leaked_bytes, 0);
    }
}

#[test]
fn several_large_values_of_one_queue_are_under_way_at_once() {
    let server = server(true);
    let mut controller = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
    let mut queue = controller.io_queue(1, 32).unwrap();
    let values: Vec<Vec<u8>> = (0..6).map(|index| value(index, 5 * MIB + index as usize)).collect();
    for (index, value) in values.iter().enumerate() {
        let store = Store {
            key: key(&index.to_string()),
            value_bytes: value.len() as u32,
            options: StoreOptions::default(),
        };
        queue.submit(Command::Store(store).encode(0, 1), Data::Out(value)).unwrap();
    }
    for _ in &values {
        queue.next_completion().unwrap().ok().unwrap();
    }
    for (index, value) in values.iter().enumerate() {
        check(&mut queue, &index.to_string(), value);
    }
    drop((controller, queue));
    assert_eq!(server.end().leaked_bytes, 0);
}

#[test]
fn half_a_value_is_never_seen_and_ends_with_its_queue() {
    let server = server(true);
    let mut controller = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
    let mut queue = controller.io_queue(1, 32).unwrap();
    let (old, new) = (value(1, 4 * MIB), value(2, 12 * MIB));
    queue.store(key("kept"), &old).unwrap();
    let whole = new.len() as u32;
    for at in [0, MIB, 2 * MIB] {
        store_part(&mut queue, "kept", whole, at as u32, &new[at..at + MIB]).unwrap();
    }
    check(&mut queue, "kept", &old);
    // A part that does not follow ends the value, and no part follows that.
    let gap = store_part(&mut queue, "kept", whole, 4 << 20, &new[..MIB]);
    assert_eq!(status(gap), Some(Status::COMMAND_SEQUENCE_ERROR));
    let late = store_part(&mut queue, "kept", whole, 3 << 20, &new[..MIB]);
    assert_eq!(status(late), Some(Status::COMMAND_SEQUENCE_ERROR));
    // Lengths that contradict each other.
    assert_eq!(status(store_part(&mut queue, "kept", 100, 50, &new[..51])), Some(Status::INVALID_FIELD));
    let beyond = store_part(&mut queue, "kept", u32::MAX, 0, &new[..MIB]);
    assert_eq!(status(beyond), Some(Status::INVALID_VALUE_SIZE));
    store_part(&mut queue, "kept", whole, 0, &new[..MIB]).unwrap();
    drop((controller, queue));

    let mut controller = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
    let mut queue = controller.io_queue(1, 32).unwrap();
    check(&mut queue, "kept", &old);
    let late = store_part(&mut queue, "kept", whole, 1 << 20, &new[..MIB]);
    assert_eq!(status(late), Some(Status::COMMAND_SEQUENCE_ERROR));
    for (at, part) in (0u32..).step_by(MIB).zip(new.chunks(MIB)) {
        store_part(&mut queue, "kept", whole, at, part).unwrap();
    }
    check(&mut queue, "kept", &new);
    drop((controller, queue));
    assert_eq!(server.end().leaked_bytes, 0);
}

#[test]
fn parts_of_a_stream_are_of_one_value_and_others_of_the_present_one() {
    let server = server(true);
    let mut controller = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
    let mut queue = controller.io_queue(1, 32).unwrap();
    let (old, new) = (value(1, 3 * MIB), value(2, 3 * MIB + 5));
    queue.store(key("k"), &old).unwrap();
    assert!(retrieve_part(&mut queue, "k", 7, 0, 4096).unwrap() == old[..4096]);
    queue.store(key("k"), &new).unwrap();
    assert!(retrieve_part(&mut queue, "k", 7, 4096, 1 << 20).unwrap() == old[4096..4096 + MIB]);
    for at in [0, 1, 100_000, 3 * MIB, 3 * MIB + 5] {
        let part = retrieve_part(&mut queue, "k", 0, at as u32, 8192).unwrap();
        assert!(part == new[at..new.len().min(at + 8192)], "at {at}");
    }
    let beyond = retrieve_part(&mut queue, "k", 0, (3 << 20) + 6, 4096);
    assert_eq!(status(beyond), Some(Status::INVALID_FIELD));
    let unknown = retrieve_part(&mut queue, "k", 9, 4096, 4096);
    assert_eq!(status(unknown), Some(Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(status(retrieve_part(&mut queue, "absent", 0, 0, 4096)), Some(Status::KEY_NOT_FOUND));
    drop((controller, queue));
    assert_eq!(server.end().leaked_bytes, 0);
}

/// Values about as large as the largest answer of an iterator: the bytes that came are right, and so is their
/// number.
#[test]
fn an_iterator_says_how_many_bytes_of_a_value_came() {
    let server = server(true);
    let mut controller = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
    let queue = controller.io_queue(1, 32).unwrap();
    let driver = queue.into_driver(4, 256 << 20, 256 << 20).unwrap();
    let mut client = driver.blocking();
    let sizes = [2 * MIB - 24, 2 * MIB - 23, 2 * MIB, 2 * MIB + 4072, 2 * MIB + 4073, 5 * MIB];
    for (number, bytes) in (0..).zip(sizes) {
        client.store(Key::from_u32_be(number), Piece::Bytes(&value(number.into(), bytes))).unwrap();
    }
    let mut into = Region::new();
    let (iterator, mut pair) = client.seek(None, &mut into).unwrap();
    for (number, bytes) in (0..).zip(sizes) {
        let found = pair.expect("a pair is left");
        assert_eq!((found.key, found.value_bytes as usize), (Key::from_u32_be(number), bytes));
        let came = into.written_end();
        assert!(
            into.to_bytes(came) == value(number.into(), bytes)[..came as usize],
            "{bytes} bytes: {came} came"
        );
        assert_eq!((came, came as usize), (found.came_bytes, bytes.min(2 * MIB - 24)), "{bytes} bytes");
        pair = client.next(iterator, &mut into).unwrap();
    }
    assert_eq!(pair, None);
    client.close(iterator).unwrap();
    drop((driver, controller));
    assert_eq!(server.end().leaked_bytes, 0);
}

/// A part that is refused on its way to the drive (aborted, no slot, a fault rule) leaves nothing begun
/// there.
#[test]
fn a_part_that_is_refused_before_the_drive_gives_its_stream_up() {
    let options = Options { transfer_max_bytes: 256 << 20, ..Options::default() };
    let mut pair = Pair::new(options, 16 << 20);
    pair.memory.state.borrow_mut().refused_at = Some(1 << 20);
    let value = vec![1; 3 * MIB];
    let mut answer = pair.send(&wire::store(3, b"large", &value, false));
    for at in [0, MIB] {
        assert_eq!(pair.memory.state.borrow().begun.len(), usize::from(at > 0));
        let unit = units(&answer)[0].to_vec();
        assert_eq!(unit[0], 9, "an R2T");
        let tag = u16::from_le_bytes([unit[10], unit[11]]);
        answer.clear();
        for from in (at..at + MIB).step_by(256 << 10) {
            let is_last = from + (256 << 10) == at + MIB;
            let part = &value[from..from + (256 << 10)];
            answer.extend(pair.send(&data(3, tag, from as u32, part, is_last)));
        }
    }
    let unit = units(&answer)[0];
    let status = u16::from_le_bytes([unit[22], unit[23]]) >> 1;
    assert_eq!((unit[0], status), (5, Status::COMMAND_INTERRUPTED.raw()), "an answer");
    assert!(pair.memory.state.borrow().begun.is_empty(), "the drive keeps nothing of it");
}

#[test]
fn a_large_value_counts_as_one_command_and_its_time_is_recorded() {
    let server = server(true);
    let mut controller = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
    let mut queue = controller.io_queue(1, 32).unwrap();
    let value = value(1, 5 * MIB);
    queue.store(key("large"), &value).unwrap();
    check(&mut queue, "large", &value);
    store_part(&mut queue, "own", 2 << 20, 0, &value[..MIB]).unwrap();
    drop((controller, queue));
    let end = server.end();
    let expected = [(opcode::STORE, 1), (opcode::RETRIEVE, 1), (opcode::STORE_PART, 1), (opcode::DISCARD, 0)];
    for (opcode, count) in expected {
        assert_eq!(end.served.io_commands[usize::from(opcode)], count, "{opcode:02X}h");
        assert_eq!(end.timed.get(&u16::from(opcode)).copied().unwrap_or(0), count, "{opcode:02X}h");
    }
    assert_eq!(end.served.io_commands[usize::from(opcode::RETRIEVE_PART)], 0);
}

/// If a client's socket fails while it closes the iterator of a dropped SEEK, the client gets its slot back,
/// and each later call returns the error.
#[test]
fn a_socket_that_fails_under_a_dropped_call_is_an_error_of_each_later_one() {
    let server = server(true);
    let mut controller = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
    let queue = controller.io_queue(1, 32).unwrap();
    let socket = queue.socket().try_clone().unwrap();
    let driver = queue.into_driver(1, 256 << 20, 256 << 20).unwrap();
    let mut client = driver.blocking();
    client.store(key("k"), Piece::Bytes(b"v")).unwrap();
    drop(client.submit(Call::<&[u8]>::Seek { key: None }).unwrap());
    // Its answer can be read, but no bytes can be sent.
    while socket.peek(&mut [0]).is_err() {
        std::thread::yield_now();
    }
    socket.shutdown(Shutdown::Write).unwrap();
    for _ in 0..3 {
        assert!(client.exist(key("k")).is_err());
    }
    drop((driver, controller));
    server.end();
}
