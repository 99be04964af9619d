//! Values that are larger than the drive's power-protected memory takes at once.

use kvdrive::Drive;

/// Bytes that differ between values, and between pages of one value.
fn value(seed: u64, bytes: usize) -> Vec<u8> {
    let mut words = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut value = Vec::with_capacity(bytes + 8);
    while value.len() < bytes {
        words = words.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        value.extend_from_slice(&words.to_le_bytes());
    }
    value.truncate(bytes);
    value
}

fn check(drive: &Drive, key: &[u8], expected: Option<&[u8]>) {
    let found = drive.get(key).unwrap();
    let is_same = found.as_deref() == expected;
    let sizes = (found.map(|value| value.len()), expected.map(<[u8]>::len));
    assert!(is_same, "key {key:02x?}: {sizes:?}");
}

const MIB: usize = 1 << 20;

#[test]
fn values_of_many_segments_are_kept_replaced_and_deleted() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    let sizes = [2 * MIB, 2 * MIB + 1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 9 * MIB + 5000, 33 * MIB];
    for (index, bytes) in sizes.into_iter().enumerate() {
        drive.store(&[index as u8], &value(index as u64, bytes)).unwrap();
    }
    for (index, bytes) in sizes.into_iter().enumerate() {
        check(&drive, &[index as u8], Some(&value(index as u64, bytes)));
    }
    drive.store(&[5], &value(50, 3 * MIB)).unwrap();
    drive.store(&[6], b"short").unwrap();
    drive.delete(&[4]).unwrap();
    check(&drive, &[4], None);
    check(&drive, &[5], Some(&value(50, 3 * MIB)));
    check(&drive, &[6], Some(b"short"));
}

#[test]
fn a_value_outlives_a_power_cut_and_half_of_one_leaves_nothing() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    drive.store(b"whole", &value(1, 20 * MIB)).unwrap();
    drive.store(b"gone", &value(2, 20 * MIB)).unwrap();
    drive.delete(b"gone").unwrap();
    let drive = drive.cut_power(true).unwrap().power_on().unwrap();
    check(&drive, b"whole", Some(&value(1, 20 * MIB)));
    check(&drive, b"gone", None);
    drive.store(b"whole", &value(3, 5 * MIB)).unwrap();
    let drive = drive.cut_power(true).unwrap().power_on().unwrap();
    check(&drive, b"whole", Some(&value(3, 5 * MIB)));
}

/// Values of 16 MiB and more in every engine, as programs use them: whole, part by part, replaced by small
/// ones and deleted, with a power cut after each.
#[test]
fn every_engine_has_values_of_16_mebibytes_and_more() {
    let engines = kvdrive_device::engines::ENGINES.iter().map(|row| row.name);
    for engine in engines {
        let mut drive = kvdrive::build().engine(engine).open().unwrap();
        let sizes = [16 * MIB, 16 * MIB - 1, 21 * MIB + 77];
        for (index, bytes) in sizes.into_iter().enumerate() {
            drive.store(&[index as u8], &value(index as u64, bytes)).unwrap();
        }
        for (index, bytes) in sizes.into_iter().enumerate() {
            check(&drive, &[index as u8], Some(&value(index as u64, bytes)));
        }
        let part = drive.get_part(&[2], 20 << 20, u32::MAX).unwrap().unwrap();
        assert_eq!(part.value_bytes as usize, sizes[2], "{engine}");
        assert!(part.bytes == value(2, sizes[2])[20 * MIB..], "{engine}");
        drive = drive.cut_power(true).unwrap().power_on().unwrap();
        check(&drive, &[2], Some(&value(2, sizes[2])));
        drive.store(&[0], b"short").unwrap();
        drive.delete(&[1]).unwrap();
        drive.store(&[2], &value(9, 16 * MIB + 1)).unwrap();
        drive = drive.cut_power(true).unwrap().power_on().unwrap();
        check(&drive, &[0], Some(b"short"));
        check(&drive, &[1], None);
        let pairs: Vec<_> = drive.pairs().unwrap().map(|pair| pair.unwrap()).collect();
        assert_eq!(pairs.len(), 2, "{engine}");
        assert!(pairs.iter().any(|(key, found)| key == &[2] && *found == value(9, 16 * MIB + 1)), "{engine}");
        let too_long = vec![0; (256 << 20) + 1];
        let refused = drive.store(b"long", &too_long).unwrap_err().to_string();
        assert!(refused.contains("a value has at most 268435456 bytes here"), "{engine}: {refused}");
    }
}

#[test]
fn every_transfer_method_brings_a_large_value() {
    for row in kvdrive_link::transfer::METHODS {
        let drive = kvdrive::build().transfer(row.name).open().unwrap();
        let bytes = 2 * MIB + 4096 + 77;
        drive.store(b"large", &value(7, bytes)).unwrap();
        check(&drive, b"large", Some(&value(7, bytes)));
    }
}

/// A drive of 256 MiB: the room of replaced values is freed, as often as it is needed.
#[test]
fn a_small_drive_takes_large_values_for_ever() {
    let drive = kvdrive::build().set("flash.blocks_per_die", 8).set("flash.spare_blocks", 0).open().unwrap();
    for round in 0..8 {
        for key in 0..4 {
            drive.store(&[key], &value(round * 4 + u64::from(key), 25 * MIB)).unwrap();
        }
    }
    for key in 0..4 {
        check(&drive, &[key], Some(&value(28 + u64::from(key), 25 * MIB)));
    }
    let full = (4..=255).find_map(|key| drive.store(&[key], &value(u64::from(key), 25 * MIB)).err());
    assert_eq!(full.unwrap().status(), Some(kvdrive::Status::CAPACITY_EXCEEDED));
    drive.delete(&[0]).unwrap();
    drive.store(&[0], &value(99, 25 * MIB)).unwrap();
    check(&drive, &[0], Some(&value(99, 25 * MIB)));
    check(&drive, &[3], Some(&value(31, 25 * MIB)));
}

/// An iterator of the drive brings a little more than 2 MiB of a value: the library reads the other bytes.
#[test]
fn pairs_have_their_whole_values_or_are_left_out() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    let sizes = [5 * MIB, 7, 2 * MIB + 4072, 2 * MIB + 4073, 9 * MIB];
    for (index, bytes) in sizes.into_iter().enumerate() {
        drive.store(&[index as u8], &value(index as u64, bytes)).unwrap();
    }
    let mut pairs = drive.pairs().unwrap();
    for index in [0, 1, 2] {
        let (key, found) = pairs.next().unwrap().unwrap();
        assert_eq!((&key[..], found.len()), (&[index][..], sizes[usize::from(index)]));
        assert!(found == value(u64::from(index), found.len()), "key {index}");
    }
    // The value is read when its turn comes; a removed pair has no value any more.
    drive.delete(&[3]).unwrap();
    drive.store(&[4], &value(40, 8 * MIB)).unwrap();
    let (key, found) = pairs.next().unwrap().unwrap();
    assert_eq!((&key[..], found.len()), (&[4][..], 8 * MIB));
    assert!(found == value(40, 8 * MIB));
    assert!(pairs.next().is_none());
    drop(pairs);
    let mut found = drive.pairs_with_prefix(&[0]).unwrap();
    assert!(found.next().unwrap().unwrap().1 == value(0, 5 * MIB));
}

/// A drive file that is opened again with a smaller limit.
#[test]
fn a_value_beyond_the_limit_of_now_is_an_error_and_comes_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("drive");
    let drive = kvdrive::build().file(&file).open().unwrap();
    drive.store(b"large", &value(1, 5 * MIB)).unwrap();
    drive.close().unwrap();
    let drive = kvdrive::build().file(&file).set("controller.max_value_bytes", 1 << 20).open().unwrap();
    let error = drive.get(b"large").unwrap_err();
    assert_eq!(error.to_string(), "get of key 6c61726765: only 1048576 of the value's 5242880 bytes arrived");
    assert_eq!(drive.pairs().unwrap().next(), Some(Err(error.clone())));
    let mut client = drive.client().unwrap();
    let mut pipeline = client.pipeline().unwrap();
    pipeline.get(b"large").unwrap();
    assert_eq!(pipeline.next_ended().unwrap().unwrap().result, Err(error));
    drop(pipeline);
    let part = client.get_part(b"large", 4 << 20, 1 << 20).unwrap().unwrap();
    assert!(part.bytes == value(1, 5 * MIB)[4 * MIB..]);
}
