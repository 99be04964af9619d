//! Units typed in from the drawings of the specification, so that initiator and target cannot share a
//! mistake.

use kvdrive_subsystem::shared::Core;
use kvdrive_subsystem::subsystem::Options;
use kvdrive_subsystem::tcp::connection::{Connection, Limits};

use kvdrive_rigs::wire::{Pair, Wire, address, connect, hex, ic_req, response, set_cc, settle, zeros};

/// Property Get of CSTS.
fn get_csts() -> Vec<u8> {
    [hex("04 00 48 00 48 00 00 00  7f 40 0a 00 04 000000"), zeros(32), hex("00000000 1c000000"), zeros(16)]
        .concat()
}

#[test]
fn a_connect_a_store_and_a_retrieve_byte_for_byte() {
    let mut admin = Wire::new(Options::default());
    // ICResp: CPDA 0, no digests, MAXH2CDATA 256 KiB.
    assert_eq!(
        admin.send(&ic_req()),
        [hex("01 00 80 00 80 00 00 00  00 00  00  00  00 00 04 00"), zeros(112)].concat()
    );
    // The controller is number 1; the head is after the first command.
    assert_eq!(admin.send(&connect(7, 0, 31, [0xFF, 0xFF])), response("01000000", 1, 7, "0000"));
    // CAP: 1024 entries, contiguous, 5 s, command sets 37 and 43.
    let get_cap = [
        hex("04 00 48 00 48 00 00 00  7f 40 08 00 04 000000"),
        zeros(32),
        hex("01000000 00000000"),
        zeros(16),
    ]
    .concat();
    let cap = [hex("05 00 18 00 18 00 00 00  ff03010a 20080000  02 00 00 00 08 00 0000")].concat();
    assert_eq!(admin.send(&get_cap), cap);
    assert_eq!(admin.send(&set_cc(9, "61004600")), response("00000000", 3, 9, "0000"));
    assert_eq!(admin.send(&get_csts()), response("01000000", 4, 10, "0000"));

    // The I/O queue is a connection of its own, of the same subsystem.
    let Wire { core, memory, connection: mut admin_connection } = admin;
    let connection = Connection::new(1, Limits::default(), address(), &core);
    let mut io = Wire { core, memory, connection };
    io.send(&ic_req());
    assert_eq!(io.send(&connect(1, 1, 127, [1, 0])), response("01000000", 1, 1, "0000"));
    store_in_a_capsule_and_retrieve(&mut io);
    store_from_host_memory(&mut io);
    retrieve_what_is_missing(&mut io);

    // Shutdown, and the status says that it is done.
    let Wire { mut core, .. } = io;
    let units = [
        (set_cc(11, "61404600"), response("00000000", 5, 11, "0000")),
        (get_csts(), response("09000000", 6, 10, "0000")),
    ];
    for (unit, answer) in units {
        admin_connection.receive(&mut core, &unit);
        settle(&mut core, &mut admin_connection);
        assert_eq!(admin_connection.output().take_all(), answer);
    }
}

fn store_in_a_capsule_and_retrieve(io: &mut Wire) {
    // Store of key "key", value "hello", in the capsule.
    let store = [
        hex("04 00 48 48 4d 00 00 00"),
        hex("01 40 02 00 01000000"),
        b"key\0\0\0\0\0".to_vec(),
        zeros(8),
        hex("0000000000000000 05000000 000000 01"),
        hex("05000000 03 00 0000"),
        zeros(8),
        zeros(8),
        b"hello".to_vec(),
    ]
    .concat();
    assert_eq!(io.send(&store), response("00000000", 2, 2, "0000"));
    assert_eq!(io.memory.state.borrow().pairs.values().next().unwrap(), b"hello");

    // Retrieve of it into 4096 bytes: C2HData with LAST, and dword 0 is the size of the value.
    let retrieve = [
        hex("04 00 48 00 48 00 00 00"),
        hex("02 40 03 00 01000000"),
        b"key\0\0\0\0\0".to_vec(),
        zeros(8),
        hex("0000000000000000 00100000 000000 5a"),
        hex("00100000 03 00 0000"),
        zeros(8),
        zeros(8),
    ]
    .concat();
    let data = [
        hex("07 04 18 18 1d 00 00 00  03 00 0000  00000000  05000000  00000000"),
        b"hello".to_vec(),
        response("05000000", 3, 3, "0000"),
    ]
    .concat();
    assert_eq!(io.send(&retrieve), data);
}

fn store_from_host_memory(io: &mut Wire) {
    // A store of 10 bytes from host memory: R2T, two H2CData, response.
    let store = [
        hex("04 00 48 00 48 00 00 00"),
        hex("01 40 04 00 01000000"),
        b"tag\0\0\0\0\0".to_vec(),
        zeros(8),
        hex("0000000000000000 0a000000 000000 5a"),
        hex("0a000000 03 00 0000"),
        zeros(8),
        zeros(8),
    ]
    .concat();
    let r2t = io.send(&store);
    assert_eq!(r2t[..10], hex("09 00 18 00 18 00 00 00  04 00"));
    assert_eq!(r2t[12..], hex("00000000  0a000000  00000000"));
    let tag = &r2t[10..12];
    let first = [
        hex("06 00 18 18 1c 00 00 00  04 00"),
        tag.to_vec(),
        hex("00000000 04000000 00000000"),
        b"0123".to_vec(),
    ];
    assert!(io.send(&first.concat()).is_empty());
    let last = [
        hex("06 04 18 18 1e 00 00 00  04 00"),
        tag.to_vec(),
        hex("04000000 06000000 00000000"),
        b"456789".to_vec(),
    ];
    assert_eq!(io.send(&last.concat()), response("00000000", 4, 4, "0000"));
}

fn retrieve_what_is_missing(io: &mut Wire) {
    // A missing key: 87h, "do not retry".
    let missing = [
        hex("04 00 48 00 48 00 00 00"),
        hex("14 40 05 00 01000000"),
        b"none\0\0\0\0".to_vec(),
        zeros(24),
        hex("00000000 04 00 0000"),
        zeros(16),
    ]
    .concat();
    assert_eq!(io.send(&missing), response("00000000", 5, 5, "0e81"));
}

#[test]
fn digests_are_crc_32c_over_the_header_and_over_the_data_in_both_readings() {
    let mut wire = Wire::new(Options::default());
    let request = [hex("00 00 80 00 80 00 00 00  00 00  00  03  00 00 00 00"), zeros(112)].concat();
    assert_eq!(wire.send(&request)[11], 3);
    // CRC-32C of 32 zeros is 8A9136AAh (RFC 3720, B.4), so the tables are right.
    assert_eq!(crc32c::crc32c(&[0; 32]), 0x8A91_36AA);
    let with_digests = |unit: &[u8], data_crc: Option<u32>| {
        let (header, data) = unit.split_at(72);
        let mut header = header.to_vec();
        header[1] = if data.is_empty() { 1 } else { 3 };
        header[3] = if data.is_empty() { 0 } else { 76 };
        let bytes = 76 + data.len() + if data.is_empty() { 0 } else { 4 };
        header[4..8].copy_from_slice(&(bytes as u32).to_le_bytes());
        let header_crc = crc32c::crc32c(&header).to_le_bytes();
        let data_crc = data_crc.unwrap_or(crc32c::crc32c(data)).to_le_bytes();
        let data_crc = if data.is_empty() { &[][..] } else { &data_crc[..] };
        [&header[..], &header_crc, data, data_crc].concat()
    };
    let answer = wire.send(&with_digests(&connect(7, 0, 31, [0xFF, 0xFF]), None));
    let mut expected = response("01000000", 1, 7, "0000");
    (expected[1], expected[4]) = (1, 28);
    assert_eq!(answer, [expected.clone(), crc32c::crc32c(&expected).to_le_bytes().to_vec()].concat());

    // A header digest that is wrong ends the connection: reason 03h, the digest received, the header.
    let mut spoilt = with_digests(&set_cc(8, "61004600"), None);
    spoilt[75] ^= 0x80;
    let ending = wire.send(&spoilt);
    assert_eq!(ending[..10], hex("03 00 18 00 60 00 00 00  03 00"));
    assert_eq!(ending[10..14], spoilt[72..76]);
    assert_eq!(ending[24..], spoilt[..72]);
    assert!(wire.connection.is_ending());
}

/// An admin command without data: opcode, identifier, dwords 10 and 11.
fn admin(opcode: u8, cid: u8, dwords: &str) -> Vec<u8> {
    let head = [hex("04 00 48 00 48 00 00 00"), vec![opcode, 0x40, cid, 0], zeros(36)].concat();
    [head, hex(dwords), zeros(16)].concat()
}

#[test]
fn an_event_is_told_once_until_its_log_page_is_read() {
    let mut pair = Pair::new(Options::default(), 1 << 20);
    let Pair { core, admin: connection, .. } = &mut pair;
    let mut send = |core: &mut Core, unit: &[u8]| {
        connection.receive(core, unit);
        settle(core, connection);
        connection.output().take_all()
    };
    // No host has asked for events yet.
    core.subsystem.namespace_changed(1);
    assert_eq!(send(core, &admin(0x09, 3, "0b000000 00010000")), response("00000000", 3, 3, "0000"));
    assert!(send(core, &admin(0x0C, 4, "00000000 00000000")).is_empty());
    // A notice, of a namespace, log page 04h.
    core.subsystem.namespace_changed(1);
    assert_eq!(send(core, &[]), response("02000400", 4, 4, "0000"));
    assert!(send(core, &admin(0x0C, 5, "00000000 00000000")).is_empty());
    core.subsystem.namespace_changed(1);
    assert!(send(core, &[]).is_empty(), "it is told already");
    // Get Log Page 04h, 8 bytes: namespace 1; then its change may be reported again.
    let mut read = admin(0x02, 6, "04000100 00000000");
    read[8 + 24..8 + 40].copy_from_slice(&hex("0000000000000000 08000000 000000 5a"));
    let answer = send(core, &read);
    assert_eq!(
        answer[..32],
        hex("07 04 18 18 20000000 0600 0000 00000000 08000000 00000000 01000000 00000000")
    );
    core.subsystem.namespace_changed(1);
    assert_eq!(send(core, &[]), response("02000400", 6, 5, "0000"));
}
