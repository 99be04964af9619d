//! Engine `anykey` with less DRAM than its lists want: what that costs a lookup, and that nothing else depends on it.

use std::cell::RefCell;

use kvdrive_engines::Engine;
use kvdrive_engines::anykey::AnyKeyEngine;
use kvdrive_flash::{FlashPort, Purpose};
use kvdrive_sim::Sim;

use super::anykey::{KEYS, apply, check, config, fresh, key};

const LEVELS: u64 = 3;
/// Least bytes of a list: 32 beside its keys and hashes (docs/decisions/anykey.md).
const LIST_BYTES: u64 = 32 + 2 + 2 + 2;

/// A drive that has been stored on and deleted from for a while, and has what a map has.
fn worn(sim: &Sim, dram_bytes: u64, write_back: bool) -> (FlashPort, AnyKeyEngine) {
    let mut config = config(write_back);
    config.engines.anykey.dram_bytes = dram_bytes;
    let (flash, engine) = fresh(sim, "tags", &config);
    let known = RefCell::default();
    apply(&engine, 1, 3000, KEYS, &known);
    check(&engine, &known.borrow().oracle, KEYS);
    (flash, engine)
}

/// Lookups of every key, which are there or not: flash reads on their behalf, the most of one of them, and lookups that
/// went beyond memtables.
fn reads_of_lookups(flash: &FlashPort, engine: &AnyKeyEngine) -> (u64, u64, u64) {
    let read = || flash.reads(Purpose::Lookup);
    let beyond = || (0..9).map(|reads| engine.counts().of(&lookups(reads))).sum::<u64>();
    let (before, lookups_before, mut most) = (read(), beyond(), 0);
    for key in (0..KEYS).map(key) {
        let here = read();
        engine.find(key).unwrap();
        most = most.max(read() - here);
    }
    (read() - before, most, beyond() - lookups_before)
}

fn lookups(reads: u32) -> String {
    match reads {
        8 => "index_dram_lookups.more".into(),
        reads => format!("index_dram_lookups.{reads}"),
    }
}

/// With all lists and lists of hashes a lookup reads one page, with the lists alone one of each level, and without any of
/// them the steps of a bisection of each level as well.
#[test]
fn a_lookup_reads_what_dram_does_not_hold() {
    for write_back in [false, true] {
        let sim = Sim::new();
        sim.block_on(|| {
            let all = worn(&sim, 0, write_back).1;
            let held = |engine: &AnyKeyEngine, kind: &str| engine.dram().of(&format!("held.{kind}"));
            let (lists, hashes) = (held(&all, "lists"), held(&all, "filters"));
            assert!(lists > 1000 && hashes > 500, "{lists} B of lists, {hashes} B of hashes");
            // Two pages are read where equal hashes meet at the front of a page: no lookup meets them on two levels.
            let steps = 1 + (lists / LIST_BYTES).ilog2() as u64;
            let bounds = [
                (0, 2),
                (lists, LEVELS + 1),
                (lists / 2, LEVELS + 1 + 2 * steps),
                (1, LEVELS * (1 + steps) + 1),
            ];
            let mut before = 0;
            for (dram_bytes, bound) in bounds {
                let (flash, engine) = worn(&sim, dram_bytes, write_back);
                let (reads, most, beyond) = reads_of_lookups(&flash, &engine);
                assert!(most <= bound, "{dram_bytes} B: a lookup read {most} pages, not at most {bound}");
                assert!(reads > before, "{dram_bytes} B: {reads} reads, {before} with more DRAM");
                assert!(beyond > 100 && engine.counts().of("anykey_scars") == 0);
                let (here, hashed) = (held(&engine, "lists"), held(&engine, "filters"));
                assert!(
                    dram_bytes == 0 || here + hashed <= dram_bytes,
                    "{here} + {hashed} of {dram_bytes} B"
                );
                let misses = engine.counts().of("index_dram_misses.lists");
                assert_eq!(misses > 0, here < lists, "lists are missed where they are not held");
                before = reads;
            }
        });
        sim.clear();
    }
}

/// A walk goes by the index of each group in the order of keys, so it needs no list: the same pages with and without.
#[test]
fn a_walk_reads_the_same_pages_whatever_dram_holds() {
    let reads = [0, 1].map(|dram_bytes| {
        let sim = Sim::new();
        let reads = sim.block_on(|| {
            let (flash, engine) = worn(&sim, dram_bytes, false);
            let read = |purpose: Purpose| flash.reads(purpose);
            let before = (read(Purpose::Cursor), read(Purpose::Lookup));
            let mut found = 0;
            for from in (0..KEYS).step_by(90).map(key) {
                let (mut cursor, mut last) = (engine.open_cursor(Some(from)).unwrap(), None);
                while let Some((key, _)) = engine.next(&mut cursor).unwrap() {
                    assert!(from <= key && last.is_none_or(|last| last < key), "{key:?} after {last:?}");
                    (last, found) = (Some(key), found + 1);
                }
            }
            assert!(found > 1000, "{found} pairs");
            assert_eq!(read(Purpose::Lookup), before.1, "a walk looks nothing up");
            (read(Purpose::Cursor) - before.0, found)
        });
        sim.clear();
        reads
    });
    assert!(reads[0] == reads[1] && reads[0].0 > 0, "{reads:?}");
}
