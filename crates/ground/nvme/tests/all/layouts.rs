//! Data structures other than commands: lists, iterator answers, Identify, names of statuses.

use kvdrive_nvme::identify::*;
use kvdrive_nvme::iter::IterHeader;
use kvdrive_nvme::list::{ListError, ListReader, ListWriter, entry_bytes};
use kvdrive_nvme::{Key, Status, inline, opcode};
use zerocopy::{FromZeros, IntoBytes};

fn key(bytes: &[u8]) -> Key {
    Key::new(bytes).unwrap()
}

#[test]
fn list_bytes() {
    let mut buffer = [0xEE; 26];
    let mut list = ListWriter::new(&mut buffer);
    assert!(list.push(key(b"a")));
    assert!(list.push(key(b"bb")));
    assert!(list.push(key(b"ccc")));
    assert!(!list.push(key(b"ddddd")), "8 bytes, and 6 are left");
    assert!(list.push(key(b"e")));
    assert_eq!(list.finish(), 24);
    assert_eq!(
        buffer,
        [
            4, 0, 0, 0, //
            1, 0, b'a', 0, //
            2, 0, b'b', b'b', //
            3, 0, b'c', b'c', b'c', 0, 0, 0, //
            1, 0, b'e', 0, //
            0xEE, 0xEE,
        ]
    );
    let read: Result<Vec<Key>, ListError> = ListReader::new(&buffer).unwrap().collect();
    assert_eq!(read.unwrap(), [key(b"a"), key(b"bb"), key(b"ccc"), key(b"e")]);
}

#[test]
fn list_corners() {
    assert_eq!([1, 2, 3, 6, 7, 16].map(entry_bytes), [4, 4, 8, 8, 12, 20]);
    for size in 0..4 {
        let mut buffer = [0xEE; 4];
        let mut list = ListWriter::new(&mut buffer[..size]);
        assert!(!list.push(key(b"a")));
        assert_eq!(list.finish(), size);
        assert_eq!(ListReader::new(&buffer[..size]).err(), Some(ListError::Truncated));
    }
    let read = |data: &[u8]| ListReader::new(data).unwrap().collect::<Vec<_>>();
    assert_eq!(read(&[0; 4]), []);
    assert_eq!(read(&[2, 0, 0, 0, 3, 0, b'a', b'b', b'c']), [Ok(key(b"abc")), Err(ListError::Truncated)]);
    assert_eq!(read(&[1, 0, 0, 0, 3, 0, b'a', b'b']), [Err(ListError::Truncated)]);
    assert_eq!(read(&[9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0]), [Err(ListError::KeyLength(0))]);
    let mut long = [7; 64];
    long[4..6].copy_from_slice(&[17, 0]);
    assert_eq!(read(&long), [Err(ListError::KeyTail)]);
    long[4..6].copy_from_slice(&[0, 1]);
    assert_eq!(read(&long), [Err(ListError::KeyLength(256))]);
}

#[test]
fn iterator_answer() {
    let header = IterHeader::new(key(b"key"), 0x0102);
    let expected = [
        3, 0, 0, 0, 2, 1, 0, 0, //
        b'k', b'e', b'y', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(header.as_bytes(), &expected);
    let read = IterHeader::from_bytes(expected);
    assert_eq!((read.key(), read.value_bytes()), (Some(key(b"key")), 0x0102));
    assert_eq!(read.answer_bytes(), 24 + 0x0102);
    assert!(header.tail().is_empty());
    for (len, value_at) in [(16, 24), (17, 32), (24, 32), (25, 40), (255, 264)] {
        let header = IterHeader::new(Key::from_padded([7; 16], len).unwrap(), 5);
        assert_eq!((header.value_at(), header.answer_bytes()), (value_at, value_at + 5), "{len} B");
        assert_eq!(header.tail().len() as u32, value_at - 24);
        assert_eq!(IterHeader::from_bytes(*header.as_bytes()).key(), Key::from_padded([7; 16], len));
    }
    assert_eq!(IterHeader::MOST_BYTES, 264);
    assert_eq!(IterHeader::from_bytes([0; 24]).key(), None);
    assert_eq!(IterHeader::from_bytes([0xFF; 24]).key(), None);
    assert_eq!(IterHeader::from_bytes([0xFF; 24]).answer_bytes(), u32::MAX);
}

#[test]
fn identify_kv_namespace() {
    let mut namespace = KvNamespace::new_zeroed();
    namespace.size_bytes.set(0x0102_0304_0506_0708);
    namespace.used_bytes.set(9);
    namespace.format_current = 1;
    namespace.formats[1].key_max_bytes.set(16);
    namespace.formats[1].value_max_bytes.set(0x0020_0000);
    namespace.formats[1].keys_max.set(0x0A0B_0C0D);
    let bytes = namespace.as_bytes();
    assert_eq!(bytes[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(bytes[16], 9);
    assert_eq!(bytes[88..104], [16, 0, 0, 0, 0, 0, 0x20, 0, 0xD, 0xC, 0xB, 0xA, 0, 0, 0, 0]);
    assert_eq!(namespace.format().value_max_bytes.get(), 0x0020_0000);
    // The index has four bits, so no byte reads past the formats.
    namespace.format_current = 0xFF;
    assert_eq!(namespace.format().key_max_bytes.get(), 0);
}

#[test]
fn identify_descriptors_and_text() {
    let data = namespace_descriptors(CSI_KV, [0xAA; 16], [0xBB; 16]);
    assert_eq!(data[..9], [4, 1, 0, 0, 1, 3, 16, 0, 0]);
    assert_eq!(data[9..25], [0xBB; 16]);
    assert_eq!(data[25..29], [2, 16, 0, 0]);
    assert_eq!(data[29..45], [0xAA; 16]);
    assert!(data[45..].iter().all(|&byte| byte == 0));
    let of = |data, kind| namespace_descriptor(data, kind);
    assert_eq!((of(&data, nidt::CSI), of(&data, nidt::NGUID)), (Some(&[CSI_KV][..]), Some(&[0xAA; 16][..])));
    // None of that type, a list that ends in the middle of one, and no list.
    assert_eq!((of(&data, nidt::EUI64), of(&data[..20], nidt::UUID), of(&[], nidt::CSI)), (None, None, None));

    assert_eq!(&ascii_padded::<8>("kvdrive"), b"kvdrive ");
    assert_eq!(&ascii_padded::<4>("kvdrive"), b"kvdr");
    assert_eq!(&ascii_padded::<4>("a\u{e9}\n"), b"a?? ");
}

#[test]
fn status_names() {
    assert_eq!(Status::KEY_NOT_FOUND.to_string(), "key does not exist (87h)");
    assert_eq!(Status::INVALID_FIELD.to_string(), "invalid field in command (02h)");
    assert_eq!(Status::STALE_WINDOW.to_string(), "stale window (7D3h)");
    assert_eq!(Status::new(7, 0xFF).to_string(), "status 7FFh");
    assert_eq!(Status::new(7, 0xD3), Status::STALE_WINDOW);
    for row in Status::table() {
        assert_eq!(row.status.name(), Some(row.name));
        assert_eq!(row.status.is_success(), row.status == Status::SUCCESS);
    }
}

#[test]
fn opcode_names() {
    assert_eq!(opcode::name(0xAC), Some("transfer"));
    assert_eq!(opcode::name(0x00), Some("flush"));
    assert_eq!(opcode::name(0x03), None);
}

/// Entries a value needs, from the paper (128 B are 192 B of entries) and its formula.
#[test]
fn commands_per_value() {
    let rows = [
        (0, 1),
        (1, 1),
        (35, 1),
        (36, 2),
        (64, 2),
        (91, 2),
        (92, 3),
        (128, 3),
        (147, 3),
        (148, 4),
        (2048, 37),
        (4096, 74),
    ];
    for (value_bytes, commands) in rows {
        assert_eq!(inline::commands_for(value_bytes), commands, "{value_bytes} B");
    }
    assert_eq!(inline::commands_for(u32::MAX), 1 + (u32::MAX - 35).div_ceil(56));
    assert_eq!([0, 1, 56, 57].map(inline::transfers_for), [0, 1, 1, 2]);
}
