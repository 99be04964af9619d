//! The section cache of hash engines with sets, and the firmware's time to fetch a section and to move a
//! value.

use kvdrive_engines::Engine;
use kvdrive_engines::hash::{SCHEMES, SecondChance, scheme};
use kvdrive_nvme::StoreOptions;
use kvdrive_sim::Sim;

use super::hash::{detail, key, load, rig, run_oracle, store, value};

#[test]
fn sets_alter_times_and_no_pair() {
    for scheme in SCHEMES {
        for (seed, ways, second_chance) in
            [(0, 1, SecondChance::Off), (1, 1, SecondChance::On), (2, 3, SecondChance::On)]
        {
            let rig = run_oracle(scheme, Sim::permuted(seed), "ram", |config| {
                (config.dram_bytes, config.cache_ways, config.second_chance) = (2 << 10, ways, second_chance);
            });
            for counter in ["section_misses", "section_evicted_dirty", "gc_moved_sections"] {
                assert!(detail(&rig.engine, counter) > 0, "{}, {ways} ways: {counter} is 0", scheme.name);
            }
            rig.sim.clear();
        }
    }
}

#[test]
fn fetching_a_section_and_moving_a_value_take_what_is_said() {
    let times = |fetch_ns, staging_ns_per_kib| {
        let rig = rig(scheme("plus2").unwrap(), Sim::new(), "tags", |config| {
            // The cache keeps no section.
            (config.dram_bytes, config.second_chance) = (0, SecondChance::Off);
            (config.costs.fetch_ns, config.costs.staging_ns_per_kib) = (fetch_ns, staging_ns_per_kib);
        });
        let times = rig.sim.block_on(|| {
            let (first, other) = (key(1), key(2));
            let began = rig.sim.now();
            store(&rig.engine, first, value(&first, 1, 2048), StoreOptions::default()).unwrap();
            let stored = rig.sim.now() - began;
            rig.engine.drain();
            store(&rig.engine, other, value(&other, 1, 0), StoreOptions::default()).unwrap();
            rig.engine.drain();
            let began = rig.sim.now();
            assert_eq!(load(&rig.engine, first).unwrap().unwrap().len(), 2048);
            (stored, rig.sim.now() - began)
        });
        rig.sim.clear();
        times
    };
    let (stored, loaded) = times(0, 0);
    assert_eq!(
        times(0, 1000),
        (stored + 2000, loaded + 2001),
        "two KiB; loaded in two parts, each rounded up"
    );
    assert_eq!(times(5000, 0), (stored, loaded + 5000), "a new section is not fetched");
}
