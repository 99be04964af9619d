//! Hash engines whose power is cut at any event, and again while they recover.

use std::cell::RefCell;
use std::rc::Rc;

use kvdrive_content::Pattern;
use kvdrive_engines::Engine;
use kvdrive_engines::firmware::{Cores, Roles};
use kvdrive_engines::hash::{HashEngine, Omissions, SCHEMES, SchemeRow};
use kvdrive_flash::{FlashPort, media};
use kvdrive_nvme::{Key, StoreOptions};
use kvdrive_sim::{Rng, Sim};

use super::hash::{Oracle, check, detail, expand, key, load, rig, store, value};
use super::small_hash::{flash_config, hash_config};

/// The acknowledged state when the power is cut.
#[derive(Clone, Default)]
struct Known {
    oracle: Oracle,
    /// The operation under way: its key and the value it stores, or deletes.
    under_way: Option<(Key, Option<Pattern>)>,
}

fn apply_known(engine: &HashEngine, seed: u64, ops: u64, known: &RefCell<Known>) {
    let mut rng = Rng::stream(seed, "hash.cut");
    for version in 0..ops {
        let key = key(rng.below(1500));
        if rng.below(5) > 0 {
            let bytes = if rng.one_in(6) { rng.below(9000) } else { rng.below(300) } as u32;
            let new = value(&key, version, bytes);
            known.borrow_mut().under_way = Some((key, Some(new)));
            store(engine, key, new, StoreOptions::default()).unwrap();
            known.borrow_mut().oracle.insert(key, new);
        } else {
            known.borrow_mut().under_way = Some((key, None));
            engine.delete(key).unwrap();
            known.borrow_mut().oracle.remove(&key);
        }
        known.borrow_mut().under_way = None;
    }
}

/// Powers the survivors on with an executor of their own, cuts the power again during recovery, powers them
/// on again and compares them with the known state.
fn revive(scheme: &'static SchemeRow, media_image: &[u8], image: &[u8], known: &Known, seed: u64) {
    let config = hash_config(scheme);
    let open = |sim: &Sim, media_image: &[u8]| {
        let flash_config = flash_config();
        let medium = media::from_image("tags", &flash_config.geometry(), media_image).unwrap();
        (FlashPort::new(sim, flash_config, medium), Cores::new(sim, Roles::Any(4)))
    };
    let first = Sim::new();
    let (flash, cores) = open(&first, media_image);
    let (config_of_task, flash_of_task, image_of_task) = (config.clone(), flash.clone(), image.to_vec());
    first.spawn(move || {
        HashEngine::recover(scheme, &config_of_task, &flash_of_task, cores, &image_of_task).map(|_| ())
    });
    let mut rng = Rng::stream(seed, "hash.second cut");
    for _ in 0..rng.below(400) {
        first.step();
    }
    let media_image = flash.media_image(&mut rng);
    first.clear();
    let sim = Sim::new();
    let (flash, cores) = open(&sim, &media_image);
    sim.block_on(|| {
        let engine = HashEngine::recover(scheme, &config, &flash, cores, image).unwrap();
        let mut oracle = known.oracle.clone();
        if let Some((key, new)) = known.under_way {
            let found = load(&engine, key).unwrap();
            if found == new.as_ref().map(expand) {
                match new {
                    Some(new) => oracle.insert(key, new),
                    None => oracle.remove(&key),
                };
            }
        }
        check(&engine, &oracle);
        // It continues with collection, overwrites, and torn pages.
        let revived = RefCell::new(Known { oracle, under_way: None });
        apply_known(&engine, seed, 150, &revived);
        check(&engine, &revived.into_inner().oracle);
    });
    sim.clear();
}

#[test]
fn a_power_cut_at_any_event_loses_nothing_that_was_acknowledged() {
    // An image does not depend on the omissions of a published emulator; sections that collection leaves clean are in
    // it.
    let omissions = [Omissions::default(), Omissions { gc_leaves_clean: true, ..Omissions::default() }];
    for (scheme, omissions) in
        SCHEMES.iter().flat_map(|scheme| omissions.map(|omissions| (*scheme, omissions)))
    {
        let sim = Sim::new();
        let rig = rig(scheme, sim.clone(), "tags", |config| config.omissions = omissions);
        sim.step_every_event();
        let known = Rc::new(RefCell::new(Known::default()));
        let task = {
            let (engine, known) = (rig.engine.clone(), known.clone());
            sim.spawn(move || apply_known(&engine, 1, 7000, &known))
        };
        let mut rng = Rng::stream(9, "hash.cuts");
        let (mut events, mut cuts) = (0u64, 0u64);
        while task.try_take().is_none() && sim.step() {
            events += 1;
            // Every event at first, then a few.
            if events < 40 || rng.one_in(400) {
                cuts += 1;
                let media_image = rig.flash.media_image(&mut rng);
                revive(scheme, &media_image, &rig.engine.protected_image(), &known.borrow(), cuts);
            }
        }
        println!("{}: {cuts} cuts in {events} events, {:?}", scheme.name, rig.engine.counts());
        assert!(detail(&rig.engine, "gc_moved_pairs") > 0 && cuts > 80, "{}: {cuts}", scheme.name);
        rig.sim.clear();
    }
}
