//! Structured values: two byte by byte, and properties for any requests and any bytes.

use kvdrive_nvme::batch::*;
use kvdrive_nvme::identify::{AtomicLimits, BatchLimits, KvNamespace, VendorNamespace};
use kvdrive_nvme::*;
use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::{FromZeros, IntoBytes};

/// "key" = "value", then the deletion of a key of 16 bytes, atomic.
const BY_HAND: [u8; 56] = [
    b'K', b'V', b'S', b'V', 1, 1, 2, 0, // magic, version, flags, count
    56, 0, 0, 0, 0x12, 0x93, 0x87, 0x04, // bytes, checksum
    1, 3, 0, 0, 5, 0, 0, 0, // store, key bytes, reserved, value bytes
    b'k', b'e', b'y', b'v', b'a', b'l', b'u', b'e', //
    2, 16, 0, 0, 0, 0, 0, 0, // delete
    b'0', b'1', b'2', b'3', b'4', b'5', b'6', b'7', //
    b'8', b'9', b'a', b'b', b'c', b'd', b'e', b'f', //
];

/// CRC-32C bit by bit, from its definition: polynomial 82F63B78h reflected, all ones before and after.
fn crc32c_by_definition(bytes: impl Iterator<Item = u8>) -> u32 {
    !bytes.fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 })
    })
}

fn build(requests: &[(Option<Vec<u8>>, Key)], atomic: bool) -> Vec<u8> {
    let mut value = vec![0; BATCH_HEAD_BYTES as usize];
    let mut batch = BatchBuilder::new();
    for (bytes, key) in requests {
        match bytes {
            Some(bytes) => batch.append(&mut value, RequestKind::Store, *key, bytes),
            None => batch.append(&mut value, RequestKind::Delete, *key, &[]),
        }
    }
    assert_eq!(value.len(), batch.bytes() as usize);
    value[..BATCH_HEAD_BYTES as usize].copy_from_slice(&batch.head(atomic));
    value
}

fn check(value: &[u8]) -> Result<(), BatchError> {
    BatchReader::of_bytes(value)?.check()
}

#[test]
fn a_structured_value_byte_by_byte() {
    let keys = [Key::new(b"key").unwrap(), Key::new(b"0123456789abcdef").unwrap()];
    let built = build(&[(Some(b"value".to_vec()), keys[0]), (None, keys[1])], true);
    // Heads and keys in order, without the value, then the head up to its checksum.
    let checked = [&BY_HAND[16..27], &BY_HAND[32..56], &BY_HAND[..12]].concat();
    let checksum = crc32c_by_definition(checked.into_iter());
    assert_eq!(BY_HAND[12..16], checksum.to_le_bytes(), "{checksum:08x}");
    assert_eq!(built, BY_HAND);

    let mut reader = BatchReader::of_bytes(&BY_HAND).unwrap();
    assert_eq!((reader.requests(), reader.bytes(), reader.is_atomic()), (2, 56, true));
    assert_eq!(reader.check(), Ok(()));
    let requests: Result<Vec<Request>, _> = reader.collect();
    assert_eq!(
        requests.unwrap(),
        [
            Request { kind: RequestKind::Store, key: keys[0], value_at: 27, value_bytes: 5 },
            Request { kind: RequestKind::Delete, key: keys[1], value_at: 56, value_bytes: 0 },
        ]
    );
}

/// One byte altered, and the reader's error.
#[test]
fn what_is_wrong_is_named() {
    let altered = |at: usize, to: u8| {
        let mut bytes = BY_HAND;
        bytes[at] = to;
        check(&bytes).unwrap_err()
    };
    assert_eq!(altered(0, b'k'), BatchError::Magic { found: *b"kVSV" });
    assert_eq!(altered(4, 2), BatchError::Version { found: 2 });
    assert_eq!(altered(5, 3), BatchError::Flags { found: 3 });
    assert_eq!(altered(6, 0), BatchError::Empty);
    assert_eq!(altered(6, 1), BatchError::Trailing { bytes: 24, count: 1 });
    assert_eq!(altered(6, 3), BatchError::BeyondEnd { index: 2, at: 56, end: 64, bytes: 56 });
    assert_eq!(altered(8, 55), BatchError::Bytes { said: 55, found: 56 });
    assert!(matches!(altered(12, 0), BatchError::Checksum { .. }));
    assert_eq!(altered(16, 0), BatchError::Kind { index: 0, found: 0 });
    assert_eq!(altered(16, 2), BatchError::DeleteValue { index: 0, found: 5 });
    assert_eq!(altered(17, 0), BatchError::KeyBytes { index: 0 });
    assert_eq!(altered(17, 20), BatchError::KeyTail { index: 0 });
    assert_eq!(altered(19, 1), BatchError::RequestFlags { index: 0, found: 0x100 });
    assert_eq!(
        altered(23, 0xFF),
        BatchError::BeyondEnd { index: 0, at: 16, end: 32 + (0xFF << 24), bytes: 56 }
    );
    assert!(matches!(altered(24, b'K'), BatchError::Checksum { .. }), "a key");
    assert!(matches!(altered(5, 0), BatchError::Checksum { .. }), "no more atomic");
    assert_eq!(check(&BY_HAND[..15]), Err(BatchError::NoHead { bytes: 15 }));
    assert_eq!(check(&BY_HAND[..40]), Err(BatchError::Bytes { said: 56, found: 40 }));
    assert_eq!(altered(17, 0).status(), Status::INVALID_KEY_SIZE);
    assert_eq!(altered(17, 20).status(), Status::INVALID_FIELD);
    assert_eq!(altered(4, 2).status(), Status::INVALID_FIELD);
    // A value's bytes are not checked by the batch.
    let mut bytes = BY_HAND;
    bytes[27] = b'V';
    assert_eq!(check(&bytes), Ok(()));
}

#[test]
fn a_namespace_says_which_batches_it_takes() {
    let mut namespace = KvNamespace::new_zeroed();
    assert_eq!(namespace.vendor.batches(), None, "without the tag");
    namespace.vendor = VendorNamespace::new(None);
    assert_eq!(namespace.vendor.batches(), None);
    let atomic = Some(AtomicLimits { requests: 3, bytes: 0x0506 });
    let limits = BatchLimits { requests: 256, bytes: 0x0102_0304, atomic };
    namespace.vendor = VendorNamespace::new(Some(limits));
    assert_eq!(namespace.vendor.batches(), Some(limits));
    let expected = *b"kvdrive\0\x03\0\xFF\0\x04\x03\x02\x01\x02\0\0\0\x06\x05\0\0\0";
    assert_eq!(namespace.as_bytes()[3840..3865], expected);
    let limits = BatchLimits { atomic: None, ..limits };
    namespace.vendor = VendorNamespace::new(Some(limits));
    assert_eq!(namespace.vendor.batches(), Some(limits));
    namespace.vendor.tag[0] = b'K';
    assert_eq!(namespace.vendor.batches(), None, "another vendor's bits");
    assert_eq!(opcode::name(opcode::BATCH), Some("batch"));
}

fn requests() -> impl Strategy<Value = Vec<(Option<Vec<u8>>, Key)>> {
    let key = vec(any::<u8>(), 1..=16).prop_map(|bytes| Key::new(&bytes).unwrap());
    vec((proptest::option::weighted(0.8, vec(any::<u8>(), 0..40)), key), 1..40)
}

proptest! {
    #[test]
    fn requests_come_back(requests in requests(), atomic: bool) {
        let value = build(&requests, atomic);
        prop_assert_eq!(check(&value), Ok(()));
        let mut reader = BatchReader::of_bytes(&value).unwrap();
        prop_assert_eq!((reader.requests() as usize, reader.is_atomic()), (requests.len(), atomic));
        for (bytes, key) in &requests {
            let request = reader.next().unwrap().unwrap();
            let (kind, of_value) = match bytes {
                Some(bytes) => (RequestKind::Store, bytes.as_slice()),
                None => (RequestKind::Delete, &[][..]),
            };
            prop_assert_eq!((request.kind, request.key), (kind, *key));
            let end = request.value_at + request.value_bytes;
            prop_assert_eq!(&value[request.value_at as usize..end as usize], of_value);
        }
        prop_assert_eq!(reader.next(), None);
    }

    /// With any alteration: no panic, no more requests than counted, and none beyond the end.
    #[test]
    fn altered_values_are_walked_or_refused(
        requests in requests(),
        alterations in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut value = build(&requests, false);
        let original = value.clone();
        for (at, to) in &alterations {
            // Most alterations hit the first bytes, where the structure is.
            let at = at.index(value.len());
            value[at] = *to;
        }
        value.truncate(cut.map_or(value.len(), |at| at.index(value.len() + 1)));
        if let Ok(reader) = BatchReader::of_bytes(&value) {
            let count = reader.requests() as usize;
            let mut read = 0;
            for request in reader {
                read += 1;
                if let Ok(Request { value_at, value_bytes, .. }) = request {
                    prop_assert!(u64::from(value_at) + u64::from(value_bytes) <= value.len() as u64);
                }
            }
            prop_assert!(read <= count);
        }
        if check(&value) == Ok(()) {
            // The structure is unchanged, so only values may differ.
            prop_assert_eq!(value.len(), original.len());
            prop_assert_eq!(&value[..16], &original[..16]);
        }
    }

    #[test]
    fn any_bytes_are_walked_or_refused(head: bool, bytes in vec(prop_oneof![0..4u8, any::<u8>()], 0..200)) {
        let mut bytes = bytes;
        if head && bytes.len() >= 16 {
            // A valid head, followed by arbitrary request bytes.
            bytes[..6].copy_from_slice(b"KVSV\x01\x00");
            let size = bytes.len() as u32;
            bytes[8..12].copy_from_slice(&size.to_le_bytes());
        }
        if let Ok(reader) = BatchReader::of_bytes(&bytes) {
            prop_assert!(reader.requests() > 0);
            reader.for_each(drop);
        }
        let _ = check(&bytes);
    }
}
