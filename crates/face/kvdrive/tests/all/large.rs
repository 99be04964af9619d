//! Values that are larger than what the drive's power-protected memory takes at once.

use kvdrive::Drive;

/// Bytes that differ from value to value, and from page to page of one.
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

#[test]
fn every_transfer_method_brings_a_large_value() {
    for row in kvdrive_link::transfer::METHODS {
        let drive = kvdrive::build().transfer(row.name).open().unwrap();
        let bytes = 2 * MIB + 4096 + 77;
        drive.store(b"large", &value(7, bytes)).unwrap();
        check(&drive, b"large", Some(&value(7, bytes)));
    }
}

/// A drive of 256 MiB: what replaced values have taken comes back, as often as it is needed.
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
