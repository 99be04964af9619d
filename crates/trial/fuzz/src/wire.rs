//! Bytes as crate `nvme` decodes them.

use kvdrive_nvme::batch::{BATCH_HEAD_BYTES, BatchBuilder, BatchError, BatchReader, RequestKind};
use kvdrive_nvme::fabrics::{Fabrics, fctype_of};
use kvdrive_nvme::{Command, DRIVE_NSID, Key, RetrieveOptions, Sqe, Store, StoreOptions};

/// Entries as a host encodes them.
pub fn entry_seeds() -> Vec<Vec<u8>> {
    let key = Key::from_u64_be(0x6B65_795F_3132_3334);
    let store = Store { key, value_bytes: 100, options: StoreOptions::default() };
    let commands = [
        Command::Store(store),
        Command::Retrieve { key, buffer_bytes: 4096, options: RetrieveOptions::default() },
        Command::Delete { key, must_exist: true },
        Command::Exist { key },
        Command::List { start: Some(key), buffer_bytes: 4096 },
    ];
    let pairs = commands.iter().map(|command| command.encode(7, DRIVE_NSID).as_bytes().to_vec());
    let fabrics = [
        Fabrics::PropertyGet { offset: 0x1C, wide: false },
        Fabrics::PropertySet { offset: 0x14, wide: false, value: 0x0046_0061 },
    ];
    pairs.chain(fabrics.iter().map(|command| command.encode(7).as_bytes().to_vec())).collect()
}

/// Decodes each 64 bytes as a command for pairs and as a Fabrics command. A decoded command has the same
/// meaning after it is encoded again.
pub fn entries(bytes: &[u8]) {
    for bytes in bytes.as_chunks::<{ Sqe::BYTES }>().0 {
        let sqe = Sqe::from_bytes(*bytes);
        if let Ok(command) = Command::decode(&sqe) {
            let mut entry = command.encode(sqe.cid.get(), DRIVE_NSID);
            if sqe.has_long_key() {
                entry.set_key_address(sqe.key_address());
            }
            let again = Command::decode(&entry);
            assert_eq!(format!("{again:?}"), format!("{:?}", Ok::<_, ()>(&command)), "{bytes:02X?}");
        }
        _ = fctype_of(&sqe);
        if let Ok(command) = Fabrics::decode(&sqe) {
            let again = Fabrics::decode(&command.encode(sqe.cid.get()));
            assert_eq!(format!("{again:?}"), format!("{:?}", Ok::<_, ()>(&command)), "{bytes:02X?}");
        }
    }
}

/// A batch of two stores and a delete, and an atomic one.
pub fn batch_seeds() -> Vec<Vec<u8>> {
    [false, true]
        .map(|is_atomic| {
            let (mut value, mut batch) = (vec![0; BATCH_HEAD_BYTES as usize], BatchBuilder::new());
            let key = Key::from_u32_be;
            batch.append(&mut value, RequestKind::Store, key(1), b"first value");
            batch.append(&mut value, RequestKind::Delete, key(2), &[]);
            batch.append(&mut value, RequestKind::Store, Key::from_u64_be(3), &[7; 300]);
            value[..BATCH_HEAD_BYTES as usize].copy_from_slice(&batch.head(is_atomic));
            value
        })
        .to_vec()
}

/// Decodes a structured value; if only its checksum is wrong, decodes it again with the correct checksum, as
/// an attacker would send it.
pub fn batch(bytes: &[u8]) {
    let Err(BatchError::Checksum { found, .. }) = read(bytes) else { return };
    let mut mended = bytes.to_vec();
    let at = BATCH_HEAD_BYTES as usize - size_of_val(&found);
    mended[at..BATCH_HEAD_BYTES as usize].copy_from_slice(&found.to_le_bytes());
    read(&mended).expect("the checksum that was found is the right one");
}

fn read(bytes: &[u8]) -> Result<(), BatchError> {
    let mut reader = BatchReader::of_bytes(bytes)?;
    reader.check()?;
    // Valid: a host builds the same value from these requests.
    let (mut value, mut batch) = (vec![0; BATCH_HEAD_BYTES as usize], BatchBuilder::new());
    let is_atomic = reader.is_atomic();
    for request in reader {
        let request = request.expect("it was checked");
        let content = &bytes[request.value_at as usize..][..request.value_bytes as usize];
        batch.append(&mut value, request.kind, request.key, content);
    }
    value[..BATCH_HEAD_BYTES as usize].copy_from_slice(&batch.head(is_atomic));
    assert_eq!(value, bytes, "a whole structured value is written in one way");
    Ok(())
}
