//! Bytes that a socket delivers to the initiator, from a controller or from a peer that pretends to be one.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use kvdrive_auth::Secret;
use kvdrive_content::Region;
use kvdrive_host::tcp::{Authentication, Data, Error, Initiator, Options, Queue};
use kvdrive_host::{Call, Client as _};
use kvdrive_nvme::auth::{Content, Group, Hash, Message};
use kvdrive_nvme::discovery::{DiscoveryEntry, DiscoveryHeader};
use kvdrive_nvme::fabrics::nqn_field;
use kvdrive_nvme::iter::IterHeader;
use kvdrive_nvme::tcp::{Header, InitializeResponse, ResponseCapsule, Transfer, flag, kind};
use kvdrive_nvme::{Command, Cqe, Key, RetrieveOptions, Status, Store, StoreOptions, auth, identify};
use zerocopy::{FromZeros, IntoBytes};

/// Bits of the first byte: the digests that the host asks for, and its calls.
const HEADER_DIGEST: u8 = 1;
const DATA_DIGEST: u8 = 1 << 1;
const QUEUE: u8 = 0;
const CONTROLLER: u8 = 1 << 2;
const CLIENT: u8 = 2 << 2;
const AUTHENTICATION: u8 = 3 << 2;
const WANTS: u8 = 3 << 2;

const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:6b766472-6976-4500-8000-000000000001";
/// Number of pieces of the chosen size; the bytes after them arrive at once.
const PIECES: usize = 64;
/// Most bytes after them: the capacity of a socket.
const REST_BYTES: usize = 60 << 10;
/// Size of the host's values, and of its buffers.
const VALUE_BYTES: usize = 9_000;
const ROOM_BYTES: u32 = 4096;
/// Most bytes that the host sends, for any requests of the controller: some commands, both values, and a header for
/// each R2T that fits the input, if each requests one byte.
const SENT_MAX_BYTES: usize = 160 << 10;
/// After this time, nothing more will arrive.
const SILENCE: Duration = Duration::from_millis(1);

fn ic_resp(digests: u8) -> Vec<u8> {
    let mut response = InitializeResponse::new_zeroed();
    (response.header, response.digests) = (Header::new(kind::IC_RESP, 128), digests);
    response.data_max_bytes.set(4096);
    response.as_bytes().to_vec()
}

fn answer(cid: u16, dw0: u32, dw1: u32) -> Vec<u8> {
    let cqe = Cqe::new(cid, Status::SUCCESS).with_result(dw0, dw1);
    ResponseCapsule { header: Header::new(kind::CAPSULE_RESP, 24), cqe }.as_bytes().to_vec()
}

fn transfer(kind: u8, cid: u16, offset: u32, bytes: u32) -> Transfer {
    let mut unit = Transfer::new_zeroed();
    unit.header = Header::new(kind, 24);
    unit.cid.set(cid);
    unit.offset.set(offset);
    unit.length.set(bytes);
    unit
}

fn r2t(cid: u16, offset: u32, bytes: u32) -> Vec<u8> {
    transfer(kind::R2T, cid, offset, bytes).as_bytes().to_vec()
}

fn data(cid: u16, offset: u32, data: &[u8]) -> Vec<u8> {
    let mut unit = transfer(kind::C2H_DATA, cid, offset, data.len() as u32);
    (unit.header.flags, unit.header.data_at) = (flag::LAST, 24);
    unit.header.bytes.set(24 + data.len() as u32);
    [unit.as_bytes(), data].concat()
}

/// Data, and the answer after them.
fn page(bytes: &[u8]) -> Vec<u8> {
    [data(0, 0, bytes), answer(0, 0, 0)].concat()
}

/// The answers on an admin queue up to enabling: Connect, CC, CSTS, Identify.
fn enabled() -> Vec<u8> {
    let mut identity = identify::Controller::new_zeroed();
    identity.controller_id.set(1);
    identity.command_capsule_16b.set(516);
    [answer(0, 1, 0), answer(0, 0, 0), answer(0, 1, 0), page(identity.as_bytes())].concat()
}

fn challenged() -> Vec<u8> {
    let challenge = [7; 32];
    let (hash, group) = (Hash::Sha256, Group::Null);
    let challenge = Content::Challenge { hash, group, sequence: 5, challenge: &challenge, public: &[] };
    let success = Content::Success1 { hash_bytes: 32, response: Some(&[9; 32]) };
    let message = |content| page(&Message { transaction: 1, content }.encode());
    let connected = answer(0, 1 | auth::REQUIRED, 0);
    [connected, answer(0, 0, 0), message(challenge), answer(0, 0, 0), message(success), answer(0, 0, 0)]
        .concat()
}

/// The bytes that a controller sends, for each call of the host; the second byte is the size of pieces.
pub fn initiator_seeds() -> Vec<Vec<u8>> {
    let stored = [r2t(0, 0, 4096), r2t(0, 4096, VALUE_BYTES as u32 - 4096), answer(0, 0, 0)].concat();
    let halves = [data(1, 0, &[5; 1000]), data(1, 1000, &[6; 24]), answer(1, 1024, 0)].concat();
    let queue = [stored, halves, answer(2, 0, 0), answer(3, 0, 0)].concat();
    let mut header = DiscoveryHeader::new_zeroed();
    header.entries.set(1);
    let mut entry = DiscoveryEntry::new_zeroed();
    entry.subsystem_nqn = nqn_field(NQN).expect("it is short");
    let log = [page(header.as_bytes()), page(entry.as_bytes())].concat();
    let namespace = page(identify::KvNamespace::new_zeroed().as_bytes());
    let controller = [enabled(), log, namespace, answer(0, 7, 0)].concat();
    let key = Key::from_u32_be(5);
    let mut pair = IterHeader::new(key, 4).as_bytes().to_vec();
    pair.extend_from_slice(b"pair");
    let (bytes, list) = (pair.len() as u32, [1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 5]);
    let client = [
        [data(0, 0, &pair), answer(0, bytes, 3)].concat(),
        [data(1, 0, &list), answer(1, 1, 0)].concat(),
        [data(1, 0, &[pair.clone(), pair].concat()), answer(1, bytes, 3)].concat(),
        answer(0, 0, 3),
    ];
    // A store that is requested by one R2T after the other: it once took unlimited memory.
    let again = r2t(0, 0, VALUE_BYTES as u32).repeat(400);
    [
        (QUEUE, 200, 0, queue.clone()),
        (QUEUE, 6, 0, queue),
        (QUEUE, 255, 0, again),
        (CONTROLLER, 100, 0, controller),
        (CLIENT, 40, 0, client.concat()),
        (AUTHENTICATION, 90, 0, challenged()),
        (QUEUE | HEADER_DIGEST | DATA_DIGEST, 90, 3, answer(0, 0, 0)),
    ]
    .map(|(first, piece, digests, bytes)| [vec![first, piece], ic_resp(digests), bytes].concat())
    .to_vec()
}

/// A connected pair of sockets that preserve pieces, as a network may deliver them; an empty piece is the
/// end.
fn sockets() -> (TcpStream, UnixDatagram) {
    let (host, controller) = UnixDatagram::pair().expect("two sockets");
    controller.set_nonblocking(true).expect("an open socket");
    // The calls that an initiator makes on its socket work on any connected socket.
    (TcpStream::from(OwnedFd::from(host)), controller)
}

/// Brings the bytes in pieces to a host that makes calls. Each error is described in one line; for any requests of a
/// controller, the host keeps and sends no more than its values.
pub fn initiator(bytes: &[u8]) {
    let Some((&[first, piece], bytes)) = bytes.split_first_chunk() else { return };
    let (socket, controller) = sockets();
    let in_pieces = bytes.len().min(PIECES * (1 + usize::from(piece)));
    let (pieces, rest) = bytes.split_at(in_pieces);
    let rest = &rest[..rest.len().min(REST_BYTES)];
    let pieces = pieces.chunks(1 + usize::from(piece)).chain([rest, &[], &[]]);
    // If the socket is full, the host sees an end somewhere.
    pieces.take_while(|piece| controller.send(piece).is_ok()).count();
    let secret = Secret::new(None, &[1; 32]).expect("32 bytes are a secret");
    let authentication = Authentication {
        controller_secret: Some(secret.clone()),
        groups: vec![Group::Null],
        ..Authentication::from(secret)
    };
    let options = Options {
        header_digest: first & HEADER_DIGEST != 0,
        data_digest: first & DATA_DIGEST != 0,
        in_capsule: false,
        authentication: (first & WANTS == AUTHENTICATION).then_some(authentication),
        silence: Some(SILENCE),
        ..Options::default()
    };
    let ended = match first & WANTS {
        QUEUE => commands(socket, &options),
        CLIENT => calls(socket, &options),
        _ => questions(socket, &options),
    };
    if let Err(error) = ended {
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
    let mut sent = 0;
    while let Ok(bytes) = controller.recv(&mut [0; 128 << 10]) {
        sent += bytes;
    }
    assert!(sent <= SENT_MAX_BYTES, "{sent} bytes were sent");
}

/// Several commands in flight on a queue.
fn commands(socket: TcpStream, options: &Options) -> Result<(), Error> {
    let mut queue = Queue::on(socket, NQN, options)?;
    let (key, nsid) = (Key::from_u32_be(7), 1);
    let store = |value_bytes| Command::Store(Store { key, value_bytes, options: StoreOptions::default() });
    let retrieve = Command::Retrieve { key, buffer_bytes: ROOM_BYTES, options: RetrieveOptions::default() };
    queue.submit(store(VALUE_BYTES as u32).encode(0, nsid), Data::Out(&[1; VALUE_BYTES]))?;
    queue.submit(retrieve.encode(0, nsid), Data::In(ROOM_BYTES))?;
    queue.submit(Command::Exist { key }.encode(0, nsid), Data::None)?;
    queue.submit(store(300).encode(0, nsid), Data::Out(&[2; 300]))?;
    while queue.under_way() > 0 {
        let completed = queue.next_completion();
        assert!(queue.unsent_bytes() <= SENT_MAX_BYTES, "{} bytes wait", queue.unsent_bytes());
        assert!(completed?.data.len() <= ROOM_BYTES as usize);
    }
    Ok(())
}

/// A client's calls, whose answers are decoded.
fn calls(socket: TcpStream, options: &Options) -> Result<(), Error> {
    const MAX_VALUE_BYTES: u32 = 1 << 16;
    let queue = Queue::on(socket, NQN, options)?;
    let driver = queue.into_driver(4, MAX_VALUE_BYTES, ROOM_BYTES)?;
    let mut client = driver.blocking();
    let (mut into, key) = (Region::new(), Key::from_u32_be(7));
    let seek = client.submit(Call::<&[u8]>::Seek { key: None })?;
    let list = client.submit(Call::<&[u8]>::List { start: None, buffer_bytes: ROOM_BYTES })?;
    let (iterator, _) = client.wait(seek, &mut into)?.opened();
    // The controller gives the number of keys; the client must check that they are present.
    let keys = client.wait(list, &mut into)?.keys();
    assert!(keys.len() <= ROOM_BYTES as usize / 4);
    for _ in 0..3 {
        client.call(Call::<&[u8]>::Next { iterator }, &mut into)?;
    }
    let bytes = client.call(Call::retrieve(key), &mut into)?.value();
    _ = (bytes, client.call(Call::<&[u8]>::Exist { key }, &mut into)?);
    Ok(())
}

/// Enables a controller and reads all of its properties and pages.
fn questions(socket: TcpStream, options: &Options) -> Result<(), Error> {
    let mut controller = Initiator::on(socket, NQN, options)?;
    let found = controller.discovered()?;
    assert!(found.iter().all(|found| found.nqn.len() < 256));
    controller.identify_namespace(1)?;
    assert!(controller.ask_for_queues(8)? > 0);
    controller.keep_alive()?;
    controller.shut_down()
}
