//! Bytes as a drive meets them: commands of a host, and the changed survivors of a power cut.

use std::cell::RefCell;
use std::collections::BTreeMap;

use kvdrive_device::engines::ENGINES;
use kvdrive_flash::power::Survivors;
use kvdrive_nvme::Sqe;
use kvdrive_sim::{Rng, Sim};

use crate::wire::entry_seeds;
use kvdrive_rigs::drive::{Bench, Oracle, check_one, check_survivors, document, step};

/// Bit of flags: an entry that gets no completion.
const QUIET: u8 = 1 << 2;
/// An alteration: a position, modulo the length, and the new content.
const ALTERATION_BYTES: usize = 4;
const PROTECTED: u8 = 0x80;

fn settings(engine: usize) -> [String; 1] {
    [format!("engine.name={}", ENGINES[engine % ENGINES.len()].name)]
}

/// An engine, and entries as hosts write them.
pub fn command_seeds() -> Vec<Vec<u8>> {
    let entries = entry_seeds().concat();
    (0..ENGINES.len() as u8).map(|engine| [vec![engine], entries.clone()].concat()).collect()
}

/// Submits each 64 bytes to a drive with the engine that the first byte selects. Each command must be completed once;
/// afterwards the pairs that a host had stored before, under keys that no entry names, must still exist.
pub fn commands(bytes: &[u8]) {
    let Some((engine, entries)) = bytes.split_first() else { return };
    let bench = Bench::new(&document(&settings((*engine).into())), Sim::new());
    bench.sim.block_on(|| {
        let _drive = bench.power_on(None).expect("an empty drive comes up");
        let driver = bench.connect();
        let mut oracle = Oracle::of(&bench);
        let mut rng = Rng::stream(3, "steps");
        (0..30).for_each(|_| step(&driver, &mut oracle, &mut rng, 8, false));
        let queue = bench.link.create_queue(4);
        for bytes in entries.as_chunks::<{ Sqe::BYTES }>().0.iter().take(20) {
            let mut sqe = Sqe::from_bytes(*bytes);
            sqe.flags &= !QUIET;
            // Its key is not the oracle's: keys of the oracle have at most 16 bytes, whose second half is a
            // small number.
            if oracle.pairs.keys().any(|key| key.to_array()[..4] == bytes[8..12]) {
                continue;
            }
            assert!(queue.try_submit(sqe), "one command at a time fits");
            bench.link.ring_submission(&queue);
            let mut looks = 0;
            let cqe = loop {
                if let Some(cqe) = queue.any_completion() {
                    break cqe;
                }
                bench.sim.sleep(1000);
                looks += 1;
                assert!(looks < 1_000_000, "no answer to {bytes:02X?}");
            };
            bench.link.ring_completion(&queue);
            assert_eq!(cqe.cid, sqe.cid, "a completion of another command");
        }
        oracle.pairs.keys().for_each(|key| check_one(&driver, &oracle, *key));
    });
    bench.sim.clear();
}

/// An engine without an alteration; an engine with some.
pub fn survivor_seeds() -> Vec<Vec<u8>> {
    let engines = 0..ENGINES.len() as u8;
    let altered = |engine| vec![engine, 0, 1, 2, 0x40, PROTECTED, 3, 4, 1];
    engines.clone().map(|engine| vec![engine]).chain(engines.map(altered)).collect()
}

thread_local! {
    /// The survivors of a used drive of each engine, and its pairs.
    static USED: RefCell<BTreeMap<usize, (Survivors, Oracle)>> = const { RefCell::new(BTreeMap::new()) };
}

fn a_used_drive(engine: usize) -> (Survivors, Oracle) {
    let bench = Bench::new(&document(&settings(engine)), Sim::new());
    let used = bench.sim.block_on(|| {
        let drive = bench.power_on(None).expect("an empty drive comes up");
        let driver = bench.connect();
        let mut oracle = Oracle::of(&bench);
        let mut rng = Rng::stream(21, "steps");
        (0..60).for_each(|_| step(&driver, &mut oracle, &mut rng, 20, false));
        drive.drain();
        (drive.survivors(&mut rng), oracle)
    });
    bench.sim.clear();
    used
}

/// Powers a drive on with changed survivors: a value is the stored one, or 88h, or the drive is not powered
/// on and gives the reason. Nothing panics.
pub fn survivors(bytes: &[u8]) {
    let Some((engine, alterations)) = bytes.split_first() else { return };
    let engine = usize::from(*engine) % ENGINES.len();
    let (mut survivors, oracle) =
        USED.with_borrow_mut(|used| used.entry(engine).or_insert_with(|| a_used_drive(engine)).clone());
    for &[high, middle, low, exchanged] in alterations.as_chunks::<ALTERATION_BYTES>().0 {
        let is_protected = high & PROTECTED != 0;
        let image = if is_protected { &mut survivors.protected } else { &mut survivors.media };
        let at = u32::from_be_bytes([0, high & !PROTECTED, middle, low]) as usize % image.len();
        image[at] ^= exchanged;
    }
    let bench = Bench::new(&document(&settings(engine)), Sim::new());
    bench.sim.block_on(|| {
        let Ok(_drive) = bench.power_on(Some(&survivors)) else { return };
        let driver = bench.connect();
        check_survivors(&driver, &oracle);
    });
    bench.sim.clear();
}
