//! Power cuts at every event. The run goes on; beside it, what would survive at this event is recovered in a
//! fresh drive, which must hold every acknowledged pair with its bytes, the command under way wholly or not
//! at all, and nothing else. Recovery itself is cut at one of its own events now and then.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_device::controller::ENGINES;
use kvdrive_device::flash::FlashPort;
use kvdrive_device::packing::PACKINGS;
use kvdrive_device::power::Survivors;
use kvdrive_host::modelled::Driver;
use kvdrive_lab::config::Document;
use kvdrive_link::transfer::METHODS;
use kvdrive_sim::{Rng, Sim};
use kvdrive_spec::{Key, Status};

use super::bench::{
    Bench, Oracle, ROUND_ROBIN_ON_FLAT, SIZES, Stored, check_all, document, is_value, key, step,
    usual_and_flat, value,
};

/// What the application knows at an event.
#[derive(Clone)]
struct Known {
    acknowledged: Oracle,
    /// The command under way: its key, and the value it gives it (`None`: it deletes it).
    under_way: Option<(Key, Option<Stored>)>,
}

/// Stores and deletes of few keys, so that overwriting, deleting and collecting happen.
fn application(driver: Driver, known: Rc<RefCell<Known>>, ops: u64, small_keys: bool, seed: u64) {
    let mut rng = Rng::stream(seed, "application");
    for _ in 0..ops {
        let key = key(rng.below(12), small_keys);
        let bytes = SIZES[rng.below(SIZES.len() as u64) as usize];
        let stored = rng.below(5).checked_sub(1).map(|_| Stored { version: rng.next_u64(), bytes });
        known.borrow_mut().under_way = Some((key, stored));
        let result = match stored {
            Some(stored) => driver.store(key, Piece::Pattern(value(&key, stored))),
            None => driver.delete(key),
        };
        let mut known = known.borrow_mut();
        known.under_way = None;
        match (result, stored) {
            (Ok(()), Some(stored)) => drop(known.acknowledged.pairs.insert(key, stored)),
            (Ok(()), None) => drop(known.acknowledged.pairs.remove(&key)),
            (Err(Status::CAPACITY_EXCEEDED), Some(_)) => {}
            (Err(status), _) => panic!("{key:?} {stored:?}: {status}"),
        }
    }
}

/// Cuts a run of `ops` commands at every `every`-th event.
fn cut_everywhere(settings: &[String], ops: u64, every: u64, seed: u64) {
    let document = document(settings);
    let small_keys = settings.iter().any(|setting| setting == "lsm.layout=published");
    let bench = Bench::new(&document, Sim::new());
    bench.sim.step_every_event();
    let drive = bench.sim.block_on(|| bench.power_on(None)).expect("an empty drive comes up");
    let driver = bench.sim.block_on(|| bench.connect());
    let known = Known { acknowledged: Oracle::of(&bench), under_way: None };
    let known = Rc::new(RefCell::new(known));
    let known_there = known.clone();
    bench.sim.spawn(move || application(driver, known_there, ops, small_keys, seed));
    let mut rng = Rng::stream(seed, "cuts");
    let first = rng.below(every);
    let mut cuts = 0;
    for event in 0.. {
        if !bench.sim.step() {
            break;
        }
        if event % every == first {
            let survivors = drive.survivors(&mut rng);
            let known = known.borrow().clone();
            let survivors =
                if cuts % 7 == 3 { cut_recovery(&document, survivors, &mut rng) } else { survivors };
            recover_and_check(&document, &survivors, known, small_keys, cuts % 5 == 0, &mut rng);
            cuts += 1;
        }
    }
    assert!(cuts > ops / every, "{cuts} cuts of {ops} commands");
    bench.sim.clear();
}

/// A fresh drive takes what survived, is compared with what was known, and, if `go_on`, works on for a while.
fn recover_and_check(
    document: &Document,
    survivors: &Survivors,
    known: Known,
    small_keys: bool,
    go_on: bool,
    rng: &mut Rng,
) {
    let bench = Bench::new(document, Sim::new());
    bench.sim.block_on(|| {
        let drive = bench.power_on(Some(survivors)).expect("a drive comes back after a power cut");
        let driver = bench.connect();
        let Known { mut acknowledged, under_way } = known;
        if let Some((key, stored)) = under_way {
            settle_under_way(&driver, &mut acknowledged, key, stored);
        }
        check_all(&driver, &acknowledged);
        if go_on {
            for _ in 0..40 {
                step(&driver, &mut acknowledged, rng, 12, small_keys);
            }
            check_all(&driver, &acknowledged);
        }
        // What a recovered drive counts as live is what lives: only images of somebody else's say too little.
        let miscounted = drive.engine_details().into_iter().find(|(name, _)| *name == "miscounted_bytes");
        assert!(miscounted.is_none_or(|(_, bytes)| bytes == 0), "{miscounted:?}");
    });
    bench.sim.clear();
}

/// The command that was under way happened wholly or not at all; the oracle follows what is found.
fn settle_under_way(driver: &Driver, oracle: &mut Oracle, key: Key, stored: Option<Stored>) {
    let mut region = Region::new();
    let found = driver.retrieve(key, &mut region);
    let is = |stored: &Stored| found == Ok(stored.bytes) && is_value(&region, &key, *stored);
    let before = oracle.pairs.get(&key).copied();
    let absent = found == Err(Status::KEY_NOT_FOUND);
    let as_before = before.map_or(absent, |before| is(&before));
    let as_after = stored.map_or(absent, |after| is(&after));
    assert!(as_before || as_after, "{key:?} is neither {before:?} nor {stored:?}: {found:?}");
    if as_before {
        return;
    }
    match stored {
        Some(stored) => drop(oracle.pairs.insert(key, stored)),
        None => drop(oracle.pairs.remove(&key)),
    }
}

/// Begins recovery and cuts it at a random one of its events. Nothing that was protected has been
/// acknowledged anew, so the protected image is the one recovery began with.
fn cut_recovery(document: &Document, survivors: Survivors, rng: &mut Rng) -> Survivors {
    let bench = Rc::new(Bench::new(document, Sim::new()));
    bench.sim.step_every_event();
    let flash: Rc<RefCell<Option<FlashPort>>> = Rc::default();
    let done = Rc::new(Cell::new(false));
    let task = {
        let (bench, flash, done, survivors) = (bench.clone(), flash.clone(), done.clone(), survivors.clone());
        move || {
            let config = kvdrive_lab::setup::drive(&bench.config);
            let watch = |port: &FlashPort| drop(flash.borrow_mut().replace(port.clone()));
            let drive = kvdrive_device::Drive::power_on_watched(
                &bench.sim,
                &bench.link,
                &config,
                Some(&survivors),
                &watch,
            );
            drive.expect("a drive comes back after a power cut");
            done.set(true);
        }
    };
    bench.sim.spawn(task);
    let mut media = survivors.media;
    // Reservoir of one: every event is as likely to be the cut.
    for event in 1.. {
        if !bench.sim.step() || done.get() {
            break;
        }
        let port = flash.borrow().clone();
        if let Some(port) = port
            && rng.one_in(event)
        {
            media = port.media_image(rng);
        }
    }
    bench.sim.clear();
    Survivors { media, protected: survivors.protected }
}

/// The full product takes long; `cargo test -- --ignored the_full_product` runs it.
#[test]
#[ignore = "minutes: every engine x transfer x packing x medium"]
fn the_full_product() {
    for engine in ENGINES {
        for method in METHODS {
            // Hash engines have no packing policy.
            let packings = if engine.ordered { PACKINGS } else { &PACKINGS[..1] };
            for packing in packings {
                for medium in ["ram", "tags"] {
                    let settings = [
                        format!("engine.name={}", engine.name),
                        format!("host.transfer={}", method.name),
                        format!("packing.policy={}", packing.name),
                        format!("media.kind={medium}"),
                    ];
                    cut_everywhere(&settings, 60, 1, 11);
                }
            }
        }
    }
}

#[test]
fn every_event_of_a_short_run() {
    for row in ENGINES {
        let [usual, flat] = usual_and_flat(&[&format!("engine.name={}", row.name)]);
        cut_everywhere(&usual, 40, 1, 1);
        cut_everywhere(&flat, 25, 1, 2);
    }
}

#[test]
fn every_engine() {
    for row in ENGINES {
        for medium in ["ram", "tags"] {
            let settings = [format!("engine.name={}", row.name), format!("media.kind={medium}")];
            cut_everywhere(&settings, 150, 11, 2);
        }
    }
}

#[test]
fn every_transfer_method() {
    for (seed, row) in METHODS.iter().enumerate() {
        cut_everywhere(&[format!("host.transfer={}", row.name)], 60, 7, seed as u64);
    }
}

#[test]
fn every_packing_policy() {
    for (seed, row) in PACKINGS.iter().enumerate() {
        cut_everywhere(&[format!("packing.policy={}", row.name)], 100, 7, seed as u64);
    }
}

#[test]
fn tags_medium_and_every_index_layout() {
    for layout in ["published", "sound"] {
        for compaction in ["tiered", "leveled"] {
            let settings = [
                "media.kind=tags".to_owned(),
                "lsm.memtable_entries=16".to_owned(),
                format!("lsm.layout={layout}"),
                format!("lsm.compaction={compaction}"),
            ];
            cut_everywhere(&settings, 120, 11, 4);
        }
    }
}

/// Enough stores that value log and FTL collect garbage while power fails.
#[test]
fn while_garbage_is_collected() {
    for row in ENGINES {
        let settings = [
            format!("engine.name={}", row.name),
            "lsm.memtable_entries=16".to_owned(),
            "flash.blocks_per_die=16".to_owned(),
        ];
        cut_everywhere(&settings, 700, 197, 5);
        let flat =
            settings.into_iter().chain(ROUND_ROBIN_ON_FLAT.iter().map(|setting| (*setting).to_owned()));
        cut_everywhere(&flat.collect::<Vec<_>>(), 700, 397, 6);
    }
}
