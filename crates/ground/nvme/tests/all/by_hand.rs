//! One command of each kind, byte for byte, as the specification draws it. The bytes are typed in from the
//! drawings, and no function of the crate made them.

use kvdrive_nvme::nvm::{Blocks, NvmCommand, Range};
use kvdrive_nvme::*;
use zerocopy::IntoBytes;

const CID: u16 = 0x1234;
const NSID: u32 = 1;

/// Encodes, compares with the bytes, decodes, compares with the command.
#[track_caller]
fn check(command: Command, expected: [u8; 64]) {
    let sqe = command.encode(CID, NSID);
    assert_eq!(sqe.as_bytes(), &expected);
    assert_eq!(Command::decode(&Sqe::from_bytes(expected)), Ok(command));
}

fn key16() -> Key {
    Key::new(b"0123456789abcdef").unwrap()
}

fn key3() -> Key {
    Key::new(b"key").unwrap()
}

#[test]
fn store() {
    let store = Store {
        key: key16(),
        value_bytes: 0x0102_0304,
        options: StoreOptions { add_only: true, no_compress: true, ..Default::default() },
    };
    let mut expected = [
        0x01, 0x00, 0x34, 0x12, 1, 0, 0, 0, // opcode, flags, CID, NSID
        b'0', b'1', b'2', b'3', b'4', b'5', b'6', b'7', // key 0..7
        0, 0, 0, 0, 0, 0, 0, 0, // metadata pointer
        0, 0, 0, 0, 0, 0, 0, 0, // PRP1
        0, 0, 0, 0, 0, 0, 0, 0, // PRP2
        4, 3, 2, 1, 16, 0b110, 0, 0, // value size, key length, option
        0, 0, 0, 0, 0, 0, 0, 0, // dwords 12, 13
        b'8', b'9', b'a', b'b', b'c', b'd', b'e', b'f', // key 8..15
    ];
    check(Command::Store(store), expected);

    // The data pointer: first two PRP entries, then an SGL descriptor.
    let mut sqe = Command::Store(store).encode(CID, NSID);
    sqe.set_prps(0x0000_7FFF_1234_5000, 0x0000_7FFF_1234_6000);
    expected[24..40].copy_from_slice(&[
        0x00, 0x50, 0x34, 0x12, 0xFF, 0x7F, 0, 0, 0x00, 0x60, 0x34, 0x12, 0xFF, 0x7F, 0, 0,
    ]);
    assert_eq!(sqe.as_bytes(), &expected);
    assert_eq!(sqe.psdt(), Ok(Psdt::Prp));

    sqe.set_sgl(SglDescriptor::data_block(0x0000_7FFF_1234_5001, 0x0102_0304));
    expected[1] = 0x40;
    expected[24..40].copy_from_slice(&[0x01, 0x50, 0x34, 0x12, 0xFF, 0x7F, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0x00]);
    assert_eq!(sqe.as_bytes(), &expected);
    assert_eq!(sqe.psdt(), Ok(Psdt::Sgl));
    assert_eq!(sqe.sgl(), SglDescriptor::data_block(0x0000_7FFF_1234_5001, 0x0102_0304));
    assert_eq!(Command::decode(&sqe), Ok(Command::Store(store)));
}

#[test]
fn retrieve() {
    let options = RetrieveOptions { raw: true };
    check(
        Command::Retrieve { key: key3(), buffer_bytes: 4096, options },
        [
            0x02, 0x00, 0x34, 0x12, 1, 0, 0, 0, //
            b'k', b'e', b'y', 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, //
            0x00, 0x10, 0, 0, 3, 1, 0, 0, // buffer size, key length, option: raw
            0, 0, 0, 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0,
        ],
    );
}

#[test]
fn list() {
    let mut expected = [
        0x06, 0x00, 0x34, 0x12, 1, 0, 0, 0, //
        b'0', b'1', b'2', b'3', b'4', b'5', b'6', b'7', //
        0, 0, 0, 0, 0, 0, 0, 0, //
        0, 0, 0, 0, 0, 0, 0, 0, //
        0, 0, 0, 0, 0, 0, 0, 0, //
        0x00, 0x00, 0x02, 0, 16, 0, 0, 0, // 128 KiB
        0, 0, 0, 0, 0, 0, 0, 0, //
        b'8', b'9', b'a', b'b', b'c', b'd', b'e', b'f',
    ];
    check(Command::List { start: Some(key16()), buffer_bytes: 0x2_0000 }, expected);
    expected[8..16].fill(0);
    expected[44] = 0;
    expected[56..].fill(0);
    check(Command::List { start: None, buffer_bytes: 0x2_0000 }, expected);
}

#[test]
fn delete_and_exist() {
    let mut expected = [
        0x10, 0x00, 0x34, 0x12, 1, 0, 0, 0, //
        0xDE, 0xAD, 0xBE, 0xEF, 0, 0, 0, 0, //
        0, 0, 0, 0, 0, 0, 0, 0, //
        0, 0, 0, 0, 0, 0, 0, 0, //
        0, 0, 0, 0, 0, 0, 0, 0, //
        0, 0, 0, 0, 4, 0, 0, 0, //
        0, 0, 0, 0, 0, 0, 0, 0, //
        0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let key = Key::from_u32_be(0xDEAD_BEEF);
    check(Command::Delete { key, must_exist: false }, expected);
    expected[45] = 1;
    check(Command::Delete { key, must_exist: true }, expected);
    (expected[0], expected[45]) = (0x14, 0);
    check(Command::Exist { key }, expected);
}

/// Forty bytes 1, 2, 3 ... 40: 35 in the *write*, 5 in the *transfer*.
#[test]
fn write_and_transfer() {
    let value: Vec<u8> = (1..=40).collect();
    let command = Command::Write(Write { key: key16(), value_bytes: 40 });
    let mut sqe = command.encode(CID, NSID);
    assert_eq!(inline::put_write(&mut sqe, &value), 35);
    assert_eq!(
        sqe.as_bytes(),
        &[
            0xA8, 0x00, 0x34, 0x12, 1, 0, 0, 0, //
            b'0', b'1', b'2', b'3', b'4', b'5', b'6', b'7', //
            1, 2, 3, 4, 5, 6, 7, 8, // dwords 4, 5
            9, 10, 11, 12, 13, 14, 15, 16, // dwords 6, 7
            17, 18, 19, 20, 21, 22, 23, 24, // dwords 8, 9
            40, 0, 0, 0, 16, 25, 26, 27, // value size, key length, then value again
            28, 29, 30, 31, 32, 33, 34, 35, // dwords 12, 13
            b'8', b'9', b'a', b'b', b'c', b'd', b'e', b'f',
        ]
    );
    assert_eq!(Command::decode(&sqe), Ok(command));

    let mut sqe = Command::Transfer.encode(CID, NSID);
    assert_eq!(inline::put_transfer(&mut sqe, &value[35..]), 5);
    assert_eq!(
        sqe.as_bytes(),
        &[
            0xAC, 0x00, 0x34, 0x12, 1, 0, 0, 0, //
            36, 37, 38, 39, 40, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0,
        ]
    );
    assert_eq!(Command::decode(&sqe), Ok(Command::Transfer));
}

/// Two pages and 32 bytes.
#[test]
fn hybrid() {
    check(
        Command::Hybrid { key: key3(), value_bytes: 8224, pages_z: 1 },
        [
            0xA9, 0x00, 0x34, 0x12, 1, 0, 0, 0, //
            b'k', b'e', b'y', 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, //
            0x20, 0x20, 0, 0, 3, 0, 0, 0, //
            1, 0, 0, 0, 0, 0, 0, 0, // pages, 0's based
            0, 0, 0, 0, 0, 0, 0, 0,
        ],
    );
}

#[test]
fn iterators() {
    check(
        Command::Seek { key: Some(key3()), buffer_bytes: 4096 },
        [
            0xA2, 0x00, 0x34, 0x12, 1, 0, 0, 0, //
            b'k', b'e', b'y', 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, //
            0x00, 0x10, 0, 0, 3, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0,
        ],
    );
    let mut expected = [
        0xA6, 0x00, 0x34, 0x12, 1, 0, 0, 0, //
        0, 0, 0, 0, 0, 0, 0, 0, //
        0, 0, 0, 0, 0, 0, 0, 0, //
        0, 0, 0, 0, 0, 0, 0, 0, //
        0, 0, 0, 0, 0, 0, 0, 0, //
        0x00, 0x10, 0, 0, 0, 0, 0, 0, //
        0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, // iterator
        0, 0, 0, 0, 0, 0, 0, 0,
    ];
    check(Command::Next { iterator: 0x1234_5678, buffer_bytes: 4096, pairs_z: 0 }, expected);
    expected[0] = 0xA4;
    expected[41] = 0;
    check(Command::IterClose { iterator: 0x1234_5678 }, expected);
}

#[test]
fn discard() {
    let mut expected = [0; 64];
    expected[..5].copy_from_slice(&[0xB4, 0x00, 0x34, 0x12, 1]);
    check(Command::Discard { stream: 0 }, expected);
}

#[test]
fn cxl_store() {
    check(
        Command::CxlStore {
            key: key3(),
            value_bytes: 100,
            window_offset: 0x0102_0304,
            generation: 7,
            tail_bytes: 0,
        },
        [
            0xB8, 0x00, 0x34, 0x12, 1, 0, 0, 0, //
            b'k', b'e', b'y', 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, //
            100, 0, 0, 0, 3, 0, 0, 0, //
            4, 3, 2, 1, 7, 0, 0, 0, // offset, generation
            0, 0, 0, 0, 0, 0, 0, 0,
        ],
    );
}

#[test]
fn completion() {
    let cqe = Cqe::new(CID, Status::KEY_NOT_FOUND)
        .with_result(0x0102_0304, 5)
        .with_queue(2, 0x0A0B)
        .with_phase(true);
    // Status: DNR 15, SCT 0, SC 87h << 1, phase 1.
    let expected = [4, 3, 2, 1, 5, 0, 0, 0, 0x0B, 0x0A, 2, 0, 0x34, 0x12, 0x0F, 0x81];
    assert_eq!(cqe.as_bytes(), &expected);
    let read = Cqe::from_bytes(expected);
    assert_eq!(read.status(), Status::KEY_NOT_FOUND);
    assert!(read.phase() && read.do_not_retry());

    // SCT 7, SC D3h: 7 << 9 | D3h << 1 | DNR.
    let cqe = Cqe::new(0, Status::STALE_WINDOW);
    assert_eq!(cqe.as_bytes()[14..], [0xA6, 0x8F]);
    let cqe = Cqe::new(0, Status::SUCCESS);
    assert_eq!(cqe.as_bytes(), &[0; 16]);
    assert!(!cqe.do_not_retry());
}

/// Malformed entries, and the status that each must get.
#[test]
fn malformed() {
    let store = Command::Store(Store { key: key3(), value_bytes: 1, options: Default::default() });
    let hybrid = Command::Hybrid { key: key3(), value_bytes: 4097, pages_z: 0 };
    let write = Command::Write(Write { key: key3(), value_bytes: 1 });
    let retrieve = Command::Retrieve { key: key3(), buffer_bytes: 0, options: RetrieveOptions::default() };
    let list = Command::List { start: None, buffer_bytes: 64 };
    // (a good command, the byte to change, its new value, the answer)
    let rows = [
        (store, 0, 0x04, Status::INVALID_OPCODE),
        (store, 0, 0xFF, Status::INVALID_OPCODE),
        (store, 0, 0xA0, Status::INVALID_OPCODE),
        (store, 1, 0x01, Status::INVALID_FIELD), // fused
        (store, 44, 0, Status::INVALID_KEY_SIZE),
        // No address names a key of more than 16 bytes.
        (store, 44, 17, Status::INVALID_FIELD),
        (store, 44, 255, Status::INVALID_FIELD),
        (store, 45, 0b011, Status::INVALID_FIELD), // only replace and only add
        (store, 45, 0b1000, Status::INVALID_FIELD),
        (retrieve, 45, 0b10, Status::INVALID_FIELD),
        (retrieve, 44, 0, Status::INVALID_KEY_SIZE),
        (Command::Delete { key: key3(), must_exist: false }, 44, 0, Status::INVALID_KEY_SIZE),
        (Command::Exist { key: key3() }, 44, 17, Status::INVALID_FIELD),
        (list, 44, 17, Status::INVALID_FIELD),
        (write, 44, 17, Status::INVALID_FIELD),
        (hybrid, 40, 0, Status::INVALID_FIELD), // 4096 bytes: no tail
        (hybrid, 48, 1, Status::INVALID_FIELD), // two pages of 4097 bytes
        (hybrid, 51, 0xFF, Status::INVALID_FIELD),
    ];
    for (good, at, byte, status) in rows {
        let mut bytes = *good.encode(CID, NSID).as_bytes();
        bytes[at] = byte;
        let answer = Command::decode(&Sqe::from_bytes(bytes));
        assert_eq!(answer, Err(status), "{good:?}, byte {at} = {byte:02x}h");
    }
    let mut sqe = store.encode(CID, NSID);
    sqe.flags = 0xC0;
    assert_eq!(sqe.psdt(), Err(Status::INVALID_FIELD));
}

/// Bytes after the key length are not part of the key, with any content.
#[test]
fn key_padding_is_ignored() {
    let mut bytes = *Command::Exist { key: key3() }.encode(CID, NSID).as_bytes();
    bytes[11..16].fill(0xEE);
    bytes[56..].fill(0xEE);
    assert_eq!(Command::decode(&Sqe::from_bytes(bytes)), Ok(Command::Exist { key: key3() }));
}

/// Commands of the NVM command set, byte for byte where they differ from an empty entry.
#[test]
fn blocks() {
    let blocks = Blocks { first: 0x0102_0304_0506_0708, count: 3 };
    let place = [(40, 0x08), (41, 7), (42, 6), (43, 5), (44, 4), (45, 3), (46, 2), (47, 1), (48, 2)];
    let deallocate = [(0, 0x09), (40, 4), (44, 0b100)];
    let with = |opcode: u8| [&[(0, opcode)], &place[..]].concat();
    let rows: [(NvmCommand, Vec<(usize, u8)>); 5] = [
        (NvmCommand::Flush, vec![(0, 0x00)]),
        (NvmCommand::Write(blocks), with(0x01)),
        (NvmCommand::Read(blocks), with(0x02)),
        (NvmCommand::WriteZeroes(blocks), with(0x08)),
        (NvmCommand::Deallocate { ranges: 5 }, deallocate.to_vec()),
    ];
    for (command, bytes) in rows {
        let mut entry = *Sqe::new(0, CID, NSID).as_bytes();
        bytes.iter().for_each(|(at, byte)| entry[*at] = *byte);
        assert_eq!(command.encode(CID, NSID).as_bytes(), &entry, "{command:?}");
        assert_eq!(NvmCommand::decode(&Sqe::from_bytes(entry)), Ok(command));
    }
    let mut entry = NvmCommand::Write(blocks).encode(CID, NSID);
    entry.cdw12.set(0xFFFF);
    assert_eq!(NvmCommand::decode(&entry), Ok(NvmCommand::Write(Blocks { count: 65_536, ..blocks })));
    entry.cdw12.set(1 << 29);
    assert_eq!(NvmCommand::decode(&entry), Err(Status::INVALID_FIELD), "it asks for protection information");
    assert_eq!(
        NvmCommand::decode(&Sqe::new(0x10, CID, NSID)),
        Err(Status::INVALID_OPCODE),
        "Delete is of pairs"
    );
    let range = Range { attributes: 0.into(), blocks: 2.into(), first: 0x0A0B.into() };
    assert_eq!(range.as_bytes(), [0, 0, 0, 0, 2, 0, 0, 0, 0x0B, 0x0A, 0, 0, 0, 0, 0, 0]);
    assert!(!Blocks { first: u64::MAX, count: 1 }.fit(u64::MAX) && Blocks { first: 7, count: 3 }.fit(10));
}

/// A key length of 0 makes a batch of the vendor's stores, and of no other command.
#[test]
fn a_vendor_store_without_a_key_is_a_batch() {
    let value_bytes = 5_000;
    let window = ValueSource::Window { window_offset: 64, generation: 3, tail_bytes: 7 };
    let rows = [
        (opcode::BATCH, ValueSource::Data),
        (opcode::WRITE, ValueSource::Inline),
        (opcode::HYBRID, ValueSource::Hybrid { pages_z: 0 }),
        (opcode::EXPRESS, ValueSource::Chunks),
        (opcode::CXL_STORE, window),
    ];
    for (opcode, source) in rows {
        let mut sqe = Sqe::new(opcode, CID, NSID);
        sqe.cdw10.set(value_bytes);
        if source == window {
            sqe.cdw11.set(7 << 8);
            sqe.cdw12.set(64);
            sqe.cdw13.set(3);
        }
        let command = Command::Batch(Batch { value_bytes, source });
        assert_eq!(Command::decode(&sqe), Ok(command), "{opcode:02x}h");
        assert_eq!(command.encode(CID, NSID).as_bytes(), sqe.as_bytes());
    }
    let mut express = Sqe::new(opcode::EXPRESS, CID, NSID);
    express.cdw11.set(1 << 8);
    assert_eq!(Command::decode(&express), Err(Status::INVALID_FIELD), "a batch has no conditions");
}
