//! Which core takes which step of a hash engine, and which steps wait for each other.

use kvdrive_engines::Engine;
use kvdrive_engines::firmware::{Cores, Role, Roles};
use kvdrive_engines::hash::{SCHEMES, scheme};
use kvdrive_link::{Arrival, Landing};
use kvdrive_nvme::StoreOptions;
use kvdrive_sim::{Ns, Rng, Sim};

use super::hash::{key, on_cores, store, value};
use super::small_hash::hash_config;

const BUSY_NS: Ns = 1_000_000;

/// Times of a lookup and of a copy into the write buffer while the core of `busy` has other work.
fn beside(roles: Roles, busy: Role) -> (Ns, Ns) {
    let sim = Sim::new();
    let cores = Cores::new(&sim, roles);
    let engine = on_cores(scheme("plus").unwrap(), &sim, "tags", &cores, |_| {}).1;
    let times = sim.block_on(|| {
        let (here, other) = (key(1), key(2));
        store(&engine, here, value(&here, 0, 100), StoreOptions::default()).unwrap();
        let place = engine.reserve(&other, 100, Arrival::Inline).unwrap();
        let core = cores.of(busy).clone();
        let work = sim.spawn(move || core.run(BUSY_NS));
        // The other task begins within this nanosecond.
        sim.sleep(1);
        let began = sim.now();
        assert!(engine.find(here).unwrap().is_some());
        let found = sim.now() - began;
        let began = sim.now();
        engine.copy_in(&place, 0, &[7; 100]);
        let copied = sim.now() - began;
        engine.abandon(place);
        work.join();
        (found, copied)
    });
    sim.clear();
    times
}

#[test]
fn a_core_of_its_own_is_not_waited_for_by_steps_of_other_roles() {
    // A probe, two comparisons of slots, one of keys; a copy of 100 B and its set-up.
    let alone = (300 + 2 * 5 + 100, 50 + 25);
    assert_eq!(beside(Roles::Any(2), Role::Collection), alone, "the pool's other core takes them");
    assert_eq!(beside(Roles::Own, Role::Collection), alone);
    assert_eq!(beside(Roles::Own, Role::Eviction), alone);
    let (found, copied) = beside(Roles::Own, Role::Dispatch);
    assert!(found >= BUSY_NS && copied == alone.1, "{found} {copied}");
    let (found, copied) = beside(Roles::Own, Role::Copy);
    assert!(found == alone.0 && copied > BUSY_NS / 2, "{found} {copied}");
    let (found, copied) = beside(Roles::Any(1), Role::Collection);
    assert!(found >= BUSY_NS && copied == alone.1, "{found} {copied}");
}

#[test]
fn every_step_is_taken_by_the_core_of_its_role() {
    const OPS: u64 = 4000;
    let mut rng = Rng::stream(1, "cores");
    let scheme = scheme("plus").unwrap();
    let sim = Sim::new();
    let cores = Cores::new(&sim, Roles::Own);
    // The cache is so small that sections are evicted.
    let engine = on_cores(scheme, &sim, "tags", &cores, |config| config.dram_bytes = 1 << 10).1;
    sim.block_on(|| {
        for version in 0..OPS {
            let key = key(rng.below(500));
            store(&engine, key, value(&key, version, 1500), StoreOptions::default()).unwrap();
        }
    });
    let costs = hash_config(scheme).costs;
    let busy_ns = |role| cores.of(role).statistics().busy_ns;
    let detail = |name| super::hash::detail(&engine, name);
    let of_lookups = detail("probes") * costs.probe_ns + detail("comparisons") * costs.comparison_ns;
    let of_keys = busy_ns(Role::Dispatch) - of_lookups;
    assert!(of_keys > 0 && of_keys.is_multiple_of(costs.compare_key_ns), "{of_keys}");
    // A copy of one byte per store.
    assert_eq!(busy_ns(Role::Copy), OPS * (costs.copy.setup_ns + 1));
    let collected = busy_ns(Role::Collection) / costs.gc_item_ns;
    let moved = detail("gc_moved_pairs") + detail("gc_moved_sections");
    assert!(moved > 0 && collected >= moved, "{collected} items, {moved} of them moved");
    let written = detail("section_evicted_dirty");
    assert!(written > 0);
    assert_eq!(busy_ns(Role::Eviction), written * costs.evict_ns);
    sim.clear();
}

/// A dead pair delays no command, but collection has read it, and the record that marks it as dead.
#[test]
fn what_collection_spends_on_the_dead_takes_its_core() {
    for scheme in SCHEMES {
        let busy_ns = |dead_item_ns| {
            let sim = Sim::new();
            let cores = Cores::new(&sim, Roles::Own);
            let engine = on_cores(scheme, &sim, "tags", &cores, |config| {
                (config.costs.gc_item_ns, config.costs.dead_item_ns) = (0, dead_item_ns);
            });
            let engine = engine.1;
            sim.block_on(|| {
                let mut rng = Rng::stream(1, "dead");
                for version in 0..4000 {
                    let key = key(rng.below(500));
                    store(&engine, key, value(&key, version, 1500), StoreOptions::default()).unwrap();
                }
            });
            sim.clear();
            cores.of(Role::Collection).statistics().busy_ns
        };
        let (nothing, dead) = (busy_ns(0), busy_ns(100));
        assert!(nothing == 0 && dead > 0 && dead.is_multiple_of(100), "{}: {dead} ns", scheme.name);
    }
}
