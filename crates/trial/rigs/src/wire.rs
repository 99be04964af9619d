//! Connections without sockets, and units for them typed in from the drawings of the specification.

use std::rc::Rc;

use kvdrive_subsystem::shared::Core;
use kvdrive_subsystem::subsystem::{Address, Event, Options, Subsystem};
use kvdrive_subsystem::tcp::connection::{Connection, Limits};

use crate::memory::Memory;

/// A connection without a socket.
pub struct Wire {
    pub core: Core,
    pub connection: Connection,
    pub memory: Memory,
}

pub fn core(options: Options, memory_bytes: usize) -> (Core, Memory) {
    let memory = Memory::default();
    let mut subsystem = Subsystem::new(options).unwrap();
    subsystem.attach(1, memory.namespace());
    (Core::new(subsystem, memory_bytes), memory)
}

pub fn address() -> Rc<Address> {
    Rc::new(Address {
        transport: 3,
        family: 1,
        address: "127.0.0.1".into(),
        service: "4420".into(),
        is_secure: false,
    })
}

/// Handles the events of the subsystem for this connection.
pub fn settle(core: &mut Core, connection: &mut Connection) {
    loop {
        core.subsystem.poll();
        let Some(event) = core.subsystem.next_event() else { return };
        match event {
            Event::Completed(completion) if connection.queue() == Some(completion.tag.queue) => {
                connection.complete(core, completion);
            }
            Event::Close(queue) if connection.queue() == Some(queue) => connection.end(core),
            _ => {}
        }
    }
}

impl Wire {
    pub fn new(options: Options) -> Wire {
        let (core, memory) = core(options, 4 << 20);
        let connection = Connection::new(0, Limits::default(), address(), &core);
        Wire { core, connection, memory }
    }

    /// Sends bytes; returns the answer.
    pub fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        assert_eq!(self.connection.receive(&mut self.core, bytes), bytes.len());
        settle(&mut self.core, &mut self.connection);
        self.connection.output().take_all()
    }
}

/// Bytes from hexadecimal text; all other characters are skipped.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

pub fn zeros(bytes: usize) -> Vec<u8> {
    vec![0; bytes]
}

/// ICReq without digests.
pub fn ic_req() -> Vec<u8> {
    [hex("00 00 80 00 80 00 00 00  00 00  00  00  00 00 00 00"), zeros(112)].concat()
}

/// Connect, with its 1024 bytes in the capsule.
pub fn connect(cid: u8, queue: u8, entries_z: u8, controller: [u8; 2]) -> Vec<u8> {
    let mut name = b"nqn.2014-08.org.nvmexpress:uuid:6b766472-6976-8500-8000-000000000001".to_vec();
    name.resize(256, 0);
    let mut host = b"nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-00000000000a".to_vec();
    host.resize(256, 0);
    [
        // type, flags, HLEN 72, PDO 72, PLEN 72 + 1024
        hex("04 00 48 48 48 04 00 00"),
        // opcode, SGL, CID, FCTYPE
        hex("7f 40"),
        vec![cid, 0],
        hex("01 000000"),
        zeros(16),
        // offset 0 in the capsule, 1024 bytes, type 01h
        hex("0000000000000000 00040000 000000 01"),
        // RECFMT, QID, SQSIZE, CATTR, reserved, KATO
        hex("0000"),
        vec![queue, 0, entries_z, 0],
        hex("00 00 00000000"),
        zeros(12),
        zeros(16),
        controller.to_vec(),
        zeros(238),
        name,
        host,
        zeros(256),
    ]
    .concat()
}

/// Property Set of CC.
pub fn set_cc(cid: u8, value: &str) -> Vec<u8> {
    [
        hex("04 00 48 00 48 00 00 00  7f 40"),
        vec![cid, 0],
        hex("00 000000"),
        zeros(16),
        zeros(16),
        hex("00000000 14000000"),
        hex(value),
        zeros(12),
    ]
    .concat()
}

/// Asynchronous Event Request: it waits for ever.
pub fn event_request(cid: u8) -> Vec<u8> {
    [
        hex("04 00 48 00 48 00 00 00  0c 40"),
        vec![cid, 0],
        hex("00000000"),
        zeros(16),
        zeros(15),
        hex("5a"),
        zeros(24),
    ]
    .concat()
}

/// Abort of a command of a queue.
pub fn abort(cid: u8, queue: u8, other: u8) -> Vec<u8> {
    let mut unit = event_request(cid);
    unit[8] = 8;
    unit[8 + 40..8 + 44].copy_from_slice(&[queue, 0, other, 0]);
    unit
}

/// Connect of another host than in [`connect`], by the last letter of its name.
pub fn connect_as(host: u8, cid: u8, queue: u8, entries_z: u8, controller: [u8; 2]) -> Vec<u8> {
    const LAST_LETTER: usize = 72 + 256 + 256 + 67;
    let mut unit = connect(cid, queue, entries_z, controller);
    assert_eq!(unit[LAST_LETTER], b'a');
    unit[LAST_LETTER] = host;
    unit
}

/// CapsuleResp.
pub fn response(dw0: &str, head: u8, cid: u8, status: &str) -> Vec<u8> {
    [hex("05 00 18 00 18 00 00 00"), hex(dw0), hex("00000000"), vec![head, 0, 0, 0, cid, 0], hex(status)]
        .concat()
}

/// Store of a value, in the capsule or after an R2T.
pub fn store(cid: u8, key: &[u8], value: &[u8], in_capsule: bool) -> Vec<u8> {
    let bytes = (value.len() as u32).to_le_bytes();
    let mut padded = key.to_vec();
    padded.resize(16, 0);
    let unit_bytes = 72 + if in_capsule { value.len() as u32 } else { 0 };
    [
        vec![4, 0, 72, if in_capsule { 72 } else { 0 }],
        unit_bytes.to_le_bytes().to_vec(),
        vec![1, 0x40, cid, 0, 1, 0, 0, 0],
        padded[..8].to_vec(),
        zeros(16),
        bytes.to_vec(),
        vec![0, 0, 0, if in_capsule { 0x01 } else { 0x5A }],
        bytes.to_vec(),
        vec![key.len() as u8, 0, 0, 0],
        zeros(8),
        padded[8..].to_vec(),
        if in_capsule { value.to_vec() } else { Vec::new() },
    ]
    .concat()
}

/// Retrieve, with room for `room` bytes.
pub fn retrieve(cid: u8, key: &[u8], room: u32) -> Vec<u8> {
    let mut unit = store(cid, key, &[], false);
    unit[8] = 2;
    unit[8 + 32..8 + 36].copy_from_slice(&room.to_le_bytes());
    unit[8 + 40..8 + 44].copy_from_slice(&room.to_le_bytes());
    unit
}

/// H2CData.
pub fn data(cid: u8, tag: u16, offset: u32, bytes: &[u8], last: bool) -> Vec<u8> {
    [
        vec![6, if last { 4 } else { 0 }, 24, 24],
        (24 + bytes.len() as u32).to_le_bytes().to_vec(),
        vec![cid, 0],
        tag.to_le_bytes().to_vec(),
        offset.to_le_bytes().to_vec(),
        (bytes.len() as u32).to_le_bytes().to_vec(),
        zeros(4),
        bytes.to_vec(),
    ]
    .concat()
}

/// An admin connection that is enabled, and an I/O queue of 8 entries beside it.
pub struct Pair {
    pub core: Core,
    pub memory: Memory,
    pub admin: Connection,
    pub io: Connection,
}

impl Pair {
    pub fn new(options: Options, memory_bytes: usize) -> Pair {
        let (mut core, memory) = core(options, memory_bytes);
        let mut admin = Connection::new(0, Limits::default(), address(), &core);
        let mut io = Connection::new(1, Limits::default(), address(), &core);
        for unit in [ic_req(), connect(1, 0, 31, [0xFF, 0xFF]), set_cc(2, "61004600")] {
            admin.receive(&mut core, &unit);
            settle(&mut core, &mut admin);
        }
        for unit in [ic_req(), connect(1, 1, 7, [1, 0])] {
            io.receive(&mut core, &unit);
            settle(&mut core, &mut io);
        }
        admin.output().take_all();
        io.output().take_all();
        Pair { core, memory, admin, io }
    }

    /// Sends bytes on the I/O queue; returns the answer.
    pub fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        let taken = self.io.receive(&mut self.core, bytes);
        assert!(taken == bytes.len() || !self.io.wants_input(), "it has to say that it does not go on");
        settle(&mut self.core, &mut self.io);
        self.io.output().take_all()
    }
}

/// The units in the bytes of a connection; panics if they are malformed.
pub fn units(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut units = Vec::new();
    while !bytes.is_empty() {
        let length = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
        let (unit, rest) = bytes.split_at(length);
        units.push(unit);
        bytes = rest;
    }
    units
}
