//! What lookups read with a budget of DRAM.

use kvdrive_declare::Counters;
use kvdrive_engines::lsm::IndexConfig;
use kvdrive_engines::value_log::Vaddr;
use kvdrive_flash::Purpose;
use kvdrive_nvme::Key;

use super::{Stand, config};

/// An index of PinK's kind with 200, 500 and 2000 entries on levels 1 to 3, and 50 in the memtable: keys in the order in
/// which they came.
fn filled_levels(dram_bytes: u64, pinned_levels: u32) -> (Stand, Vec<Key>) {
    let stand = Stand::new(IndexConfig {
        memtable_entries: 100,
        rings: vec![4, 16, 9_999, 9_999],
        dram_bytes,
        pinned_levels,
        ..config("segments", "whole")
    });
    let keys: Vec<_> =
        (1..=2_750u64).map(|number| Key::from_u64_be(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
    for key in &keys {
        stand.sim.block_on(|| stand.index.insert(*key, Vaddr(0), 0)).unwrap();
    }
    (stand, keys)
}

/// Bytes of the lists of [`filled_levels`]: bounds of three tables, and the first keys of 9, 21 and 84 segments of 24
/// entries but the first.
const LIST_BYTES: u64 = 3 * (36 + 16) + (8 + 20 + 83) * 12;

/// The form of the design is the oracle: a key of level i costs a read of each level from the first one that is not
/// pinned to i, so at most n - k - 1 with n levels, the memtable among them, and k pinned ones.
#[test]
fn lookups_read_a_segment_of_each_level_that_is_not_in_dram() {
    // Segments of levels 1 to 3. The two pages of a table that have its bounds are blank and take no DRAM.
    let pages = [9, 21, 84];
    for pinned in 0..=3 {
        let pinned_bytes: u64 = pages[..pinned].iter().map(|pages| 512 * pages).sum();
        let (stand, keys) = filled_levels(LIST_BYTES + pinned_bytes, pinned as u32 + 1);
        let dram = stand.index.dram().expect("it has a budget");
        assert_eq!(dram.bytes().counts().of("held.lists"), LIST_BYTES);
        assert_eq!(dram.bytes().counts().of("held.pinned"), pinned_bytes);
        for key in &keys {
            assert!(stand.sim.block_on(|| stand.index.get(key)).unwrap().is_some());
        }
        let mut expected = [0u64; 4];
        for (level, entries) in (1..).zip([200, 500, 2_000]) {
            expected[usize::saturating_sub(level, pinned)] += entries;
        }
        for (reads, expected) in expected.into_iter().enumerate() {
            let found = dram.counters().counts().of(&format!("index_dram_lookups.{reads}"));
            // Some keys are outside of the bounds of a level above.
            assert!(
                found.abs_diff(expected) <= 20,
                "{pinned} pinned, {reads} reads: {found}, not {expected}"
            );
        }
        assert_eq!(dram.counters().counts().of("index_dram_lookups.4"), 0);
    }
}

/// A number that follows `number` in no order of keys.
fn mixed(number: u64) -> Key {
    Key::from_u64_be(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// The closed form of PinK's table of index reads: with a factor of f between levels, one key in f^(4 - k) is on the k
/// pinned ones of four full levels, whatever the size of a memtable. Here limits of 4, 16 and 64 memtables make levels
/// move as 5, 20 and 80 of them, and the last one has 320: f is 4 or 5.
#[test]
fn the_share_of_pinned_levels_is_that_of_the_size_factors_at_any_scale() {
    const MEMTABLES: u64 = 399;
    for (memtable_entries, pinned, factors) in [(4, 3, 5.), (8, 1, 80.), (8, 2, 20.), (8, 3, 5.), (12, 3, 5.)]
    {
        let filled = |dram_bytes| {
            let rings = vec![4, 16, 64, 9_999];
            let base = config("segments", "whole");
            let config =
                IndexConfig { memtable_entries, rings, dram_bytes, pinned_levels: pinned + 1, ..base };
            let stand = Stand::new(config);
            // One more, with which the last full memtable is written.
            for number in 1..=MEMTABLES * u64::from(memtable_entries) + 1 {
                stand.sim.block_on(|| stand.index.insert(mixed(number), Vaddr(0), 0)).unwrap();
            }
            stand
        };
        // Room for lists and pinned levels, and for nothing else.
        let bytes = filled(1 << 20).index.dram().expect("it has a budget").bytes().counts();
        let stand = filled(bytes.of("held.lists") + bytes.of("held.pinned"));
        let pairs = MEMTABLES * u64::from(memtable_entries);
        let dram = stand.index.dram().expect("it has a budget");
        let lookups_of_all = || {
            let before = dram.counters().counts();
            for number in 1..=pairs {
                assert!(stand.sim.block_on(|| stand.index.get(&mixed(number))).unwrap().is_some());
            }
            let name = |reads| format!("index_dram_lookups.{reads}");
            let count = |reads: u32| dram.counters().counts().of(&name(reads)) - before.of(&name(reads));
            (0..8).map(count).collect::<Vec<_>>()
        };
        // Pages for which there was no room while a level above was merged into theirs come into DRAM.
        lookups_of_all();
        let by_reads = lookups_of_all();
        let share = by_reads[0] as f64 / pairs as f64;
        // All levels but the last lack one memtable. Some keys are outside of the bounds of a level above theirs.
        let expected = 1. / factors - 1. / MEMTABLES as f64;
        let slack = 12. / pairs as f64;
        assert!((share - expected).abs() <= slack, "{memtable_entries}, {pinned}: {share}, not {expected}");
        assert_eq!(by_reads[5 - pinned as usize..].iter().sum::<u64>(), 0, "{by_reads:?}");
    }
}

/// Lookups beside insertions that flush and merge: a level may be replaced between the beginning of a lookup and the
/// search of that level, and its pages are in DRAM no more then.
#[test]
fn a_merge_during_a_lookup_costs_it_no_read_of_a_pinned_level() {
    let stand = Stand::new(IndexConfig {
        memtable_entries: 20,
        rings: vec![4, 16, 9_999],
        dram_bytes: 1 << 14,
        pinned_levels: 3,
        ..config("segments", "whole")
    });
    let counts = || stand.index.dram().expect("it has a budget").counters().counts();
    for number in 1..=2_000 {
        stand.sim.block_on(|| stand.index.insert(mixed(number), Vaddr(0), 0)).unwrap();
    }
    for client in 0..4 {
        let index = stand.index.clone();
        stand.sim.spawn(move || {
            for number in 1..=1_000 {
                match client {
                    0 => index.insert(mixed(2_000 + number), Vaddr(0), 0).unwrap(),
                    _ => assert!(index.get(&mixed(client * 500 + number)).unwrap().is_some()),
                }
            }
        });
    }
    stand.sim.run();
    let by_reads: Vec<_> = (0..4).map(|reads| counts().of(&format!("index_dram_lookups.{reads}"))).collect();
    assert!(by_reads[0] > 20 && by_reads[1] > 500, "{by_reads:?}");
    assert_eq!(by_reads[2..], [0, 0], "with two pinned levels of three, one read at most");
    assert!(stand.index.counters().merges > 100);
}

#[test]
fn a_list_that_does_not_fit_costs_reads_and_no_key() {
    let (stand, keys) = filled_levels(300, 0);
    let dram = stand.index.dram().expect("it has a budget");
    // That of level 1 fits.
    assert_eq!(dram.bytes().counts().of("held.lists"), 36 + 16 + 8 * 12);
    for key in &keys {
        assert!(stand.sim.block_on(|| stand.index.get(key)).unwrap().is_some());
    }
    // Two keys in three lie below level 2, whose 84 pages take 7 reads to search, after 5 of 21 and one of level 1.
    assert!(dram.counters().counts().of("index_dram_lookups.more") > 1_900);
    assert!(dram.counters().counts().of("index_dram_misses.lists") > 4_000);
}

/// A cursor goes to its first key by the lists as a lookup does: 84 segments take 6 or 7 reads to search, and 21 take 5.
#[test]
fn a_cursor_reads_what_a_list_that_is_not_in_dram_would_say() {
    let reads = |dram_bytes| {
        let (stand, _) = filled_levels(dram_bytes, 0);
        let before = stand.port.reads(Purpose::Cursor);
        assert_eq!(stand.walk(&stand.index.snapshot(), 1 << 30, 1).len(), 1);
        stand.port.reads(Purpose::Cursor) - before
    };
    let with_lists = reads(LIST_BYTES);
    assert!((1..=3).contains(&with_lists), "{with_lists}");
    // The page that the search ends at may be one that it has read before.
    let without = reads(300);
    assert!(without >= with_lists + 8, "{without} after {with_lists}");
}

/// A cursor reads tables that have been replaced since it began: nothing would ever drop their pages from DRAM again.
#[test]
fn pages_of_tables_that_are_gone_take_no_dram() {
    let (stand, keys) = filled_levels(1 << 20, 5);
    // All but the two blank ones of each table.
    let pages = || {
        let tables: usize = stand.index.tables_by_level().iter().sum();
        512 * (u64::from(stand.index.pages_in_use()) - 2 * tables as u64)
    };
    let pinned = || stand.index.dram().expect("it has a budget").bytes().counts().of("held.pinned");
    let snapshot = stand.index.snapshot();
    for key in &keys {
        stand.sim.block_on(|| stand.index.insert(*key, Vaddr(0), 0)).unwrap();
    }
    let before = pinned();
    assert_eq!(stand.walk(&snapshot, 0, usize::MAX).len(), keys.len());
    assert_eq!(pinned(), before);
    drop(snapshot);
    assert_eq!(pinned(), pages());
}
