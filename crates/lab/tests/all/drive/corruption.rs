//! Every byte of what survived, flipped once: never a panic, never wrong data. A retrieve answers the value, 88h, or
//! the drive does not come up and says where the damage is.

use kvdrive_device::power::Survivors;
use kvdrive_link::Region;
use kvdrive_sim::{Rng, Sim};
use kvdrive_spec::Status;

use super::bench::{Bench, Oracle, check_all, document, is_value, step};

const SETTINGS: &[&str] = &["flash.blocks_per_die=8", "flash.pages_per_block=4", "gc.segment_pages=4"];

fn a_used_drive() -> (Survivors, Oracle) {
    let bench = Bench::new(&document(SETTINGS), Sim::new());
    let result = bench.sim.block_on(async {
        let drive = bench.power_on(None).await.expect("an empty drive comes up");
        let driver = bench.connect().await;
        let mut oracle = Oracle::default();
        let mut rng = Rng::stream(21, "steps");
        for index in 0..60 {
            step(&driver, &mut oracle, &mut rng, 20, false).await;
            if index == 40 {
                drive.drain().await;
            }
        }
        check_all(&driver, &oracle).await;
        (drive.survivors(&mut rng), oracle)
    });
    bench.sim.clear();
    result
}

/// Recovers `survivors` and compares; `true` if the drive came up.
fn check(survivors: &Survivors, oracle: &Oracle) -> bool {
    let bench = Bench::new(&document(SETTINGS), Sim::new());
    let came_up = bench.sim.block_on(async {
        let Ok(_drive) = bench.power_on(Some(survivors)).await else { return false };
        let driver = bench.connect().await;
        let mut region = Region::new();
        for (key, stored) in &oracle.pairs {
            match driver.retrieve(*key, &mut region).await {
                Ok(bytes) => {
                    assert!(
                        bytes == stored.bytes && is_value(&region, key, *stored),
                        "wrong data for {key:?}"
                    );
                }
                Err(Status::UNRECOVERED_ERROR) => {}
                Err(status) => panic!("{key:?} answers {status}"),
            }
        }
        match driver.list(None, 4096).await {
            Ok(keys) => {
                assert!(keys.iter().all(|key| oracle.pairs.contains_key(key)), "a key appeared: {keys:?}")
            }
            Err(Status::UNRECOVERED_ERROR) => {}
            Err(status) => panic!("a list answers {status}"),
        }
        true
    });
    bench.sim.clear();
    came_up
}

#[test]
fn every_byte_of_the_protected_image() {
    let (survivors, oracle) = a_used_drive();
    assert!(check(&survivors, &oracle));
    // Most of the image is page content: every byte of the frame and the records, a sample of the rest.
    for at in 0..survivors.protected.len() {
        if at > 4096 && at % 101 != 0 {
            continue;
        }
        let mut damaged = survivors.clone();
        damaged.protected[at] ^= 1 << (at % 8);
        assert!(!check(&damaged, &oracle), "byte {at} of the protected image flipped and nobody noticed");
    }
}

#[test]
fn bytes_of_the_medium() {
    let (survivors, oracle) = a_used_drive();
    let step = (survivors.media.len() / 3000).max(1);
    let mut came_up = 0;
    let mut at = 0;
    while at < survivors.media.len() {
        let mut damaged = survivors.clone();
        damaged.media[at] ^= 1 << (at % 8);
        came_up += u32::from(check(&damaged, &oracle));
        // Headers and checksums lie at the beginning of things: prime steps visit every offset.
        at += if at < 2048 { 1 } else { step | 1 };
    }
    assert!(came_up > 100, "only {came_up} drives came up: one bad page must not end a drive");
}
