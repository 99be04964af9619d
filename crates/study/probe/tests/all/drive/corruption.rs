//! Every byte of the survivors is altered once: never a panic, never wrong data. A retrieve returns the value
//! or 88h, or the drive is not powered on and reports the position of the damage.

use kvdrive_config::Config;
use kvdrive_device::engines::ENGINES;
use kvdrive_engines::hash;
use kvdrive_flash::power::Survivors;
use kvdrive_host::Calls;
use kvdrive_nvme::Status;
use kvdrive_sim::{Rng, Sim};
use kvdrive_store::store_row;

use kvdrive_rigs::drive::{Bench, Oracle, check_all, check_survivors, config, step};

/// A drive so small that every byte of it can be tried.
fn settings(engine: &str) -> Vec<String> {
    let mut settings = vec![
        format!("engine.name={engine}"),
        "flash.pages_per_block=4".into(),
        "gc.segment_pages=4".into(),
        "flash.blocks_per_die=8".into(),
    ];
    if hash::scheme(engine).is_some() {
        settings.extend([
            "flash.blocks_per_die=12".into(),
            "flash.pages_per_block=8".into(),
            "hash.gc_low_superblocks=3".into(),
            "hash.gc_stall_superblocks=2".into(),
        ]);
    }
    if engine == "anykey" {
        // It leaves room for its largest groups.
        settings.push("flash.blocks_per_die=24".into());
    }
    if store_row(engine).is_some() {
        // Many pages, each of few bytes.
        settings.extend(["flash.page_bytes=4096".into(), "flash.blocks_per_die=40".into()]);
    }
    settings
}

fn a_used_drive(config: &Config) -> (Survivors, Oracle) {
    let bench = Bench::of(config.clone(), Sim::new());
    let result = bench.sim.block_on(|| {
        let drive = bench.power_on(None).expect("an empty drive comes up");
        let driver = bench.connect();
        let mut oracle = Oracle::of(&bench);
        let mut rng = Rng::stream(21, "steps");
        for index in 0..60 {
            step(&driver, &mut oracle, &mut rng, 20, false);
            if index == 40 {
                drive.drain();
            }
        }
        check_all(&driver, &oracle);
        (drive.survivors(&mut rng), oracle)
    });
    bench.sim.clear();
    result
}

/// Recovers `survivors` and compares; `true` if the drive came up.
fn check(config: &Config, survivors: &Survivors, oracle: &Oracle) -> bool {
    let bench = Bench::of(config.clone(), Sim::new());
    let came_up = bench.sim.block_on(|| {
        let Ok(_drive) = bench.power_on(Some(survivors)) else { return false };
        let driver = bench.connect();
        check_survivors(&driver, oracle);
        match driver.list(None, 4096) {
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

/// Flips a bit of every byte of the protected image for which `is_wanted` is true: the drive always notices
/// it.
fn flip_the_protected_image(is_wanted: fn(usize) -> bool) {
    for row in ENGINES {
        let config = config(&settings(row.name));
        let (survivors, oracle) = a_used_drive(&config);
        assert!(check(&config, &survivors, &oracle));
        for at in (0..survivors.protected.len()).filter(|at| is_wanted(*at)) {
            let mut damaged = survivors.clone();
            damaged.protected[at] ^= 1 << (at % 8);
            let noticed = !check(&config, &damaged, &oracle);
            assert!(noticed, "{}: byte {at} of the protected image flipped and was not noticed", row.name);
        }
    }
}

/// The same for the medium, where only data at the damaged place may be lost.
fn flip_the_medium(is_wanted: fn(usize) -> bool) {
    for row in ENGINES {
        let config = config(&settings(row.name));
        let (survivors, oracle) = a_used_drive(&config);
        let mut came_up = 0;
        for at in (0..survivors.media.len()).filter(|at| is_wanted(*at)) {
            let mut damaged = survivors.clone();
            damaged.media[at] ^= 1 << (at % 8);
            came_up += u32::from(check(&config, &damaged, &oracle));
        }
        let name = row.name;
        assert!(came_up > 100, "{name}: only {came_up} drives came up: one bad page must not end a drive");
    }
}

/// All bytes of the frame, many of the records, and a sample of the page content that follows them.
#[test]
fn bytes_of_the_protected_image() {
    flip_the_protected_image(|at| at < 256 || at <= 4096 && at % 13 == 0 || at % 307 == 0);
}

/// Headers and checksums are at the beginning of their pages: a prime step reaches every offset.
#[test]
fn bytes_of_the_medium() {
    flip_the_medium(|at| at < 2048 || at % 1999 == 0);
}

#[test]
#[ignore = "half a minute: every byte, every engine"]
fn every_byte_of_the_protected_image() {
    flip_the_protected_image(|_| true);
}

#[test]
#[ignore = "minutes: every byte, every engine"]
fn every_byte_of_the_medium() {
    flip_the_medium(|_| true);
}
