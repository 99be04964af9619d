//! Sizes at edges, and stores that are full.

use std::collections::BTreeMap;

use kvdrive_content::Pattern;
use kvdrive_nvme::Key;
use kvdrive_sim::Rng;
use kvdrive_store::{STORES, Store, StoreError, StoreOptions, StoreRequest, Value};

use crate::ground::{MAIN, World, value_of};
use crate::small;

fn get(store: &dyn Store, key: &Key) -> Option<Vec<u8>> {
    store.get(MAIN, *key).unwrap().map(|value| value.to_bytes())
}

#[test]
fn values_at_the_edges_of_pages_come_back() {
    for small in small::all() {
        let world = World::new(small.page_bytes, small.pages);
        let mut store = world.open(small.row, &small.options);
        let page = small.page_bytes;
        let keys = [Key::new(&[7]).unwrap(), Key::new(&[7; 16]).unwrap()];
        let sizes = (0..3).chain(page - 100..page + 2).chain(2 * page - 60..2 * page + 2);
        for (number, bytes) in (1..).zip(sizes) {
            let (key, value) = (keys[number as usize % 2], value_of(number, bytes));
            store.put(MAIN, key, Value::from(&value[..])).unwrap();
            assert_eq!(get(&*store, &key), Some(value.clone()), "{} {bytes} B", small.row.name);
            if number % 16 == 0 {
                store.sync(MAIN).unwrap();
                store = world.open(small.row, &small.options);
                assert_eq!(get(&*store, &key), Some(value), "{} {bytes} B", small.row.name);
            }
        }
    }
}

#[test]
fn the_longest_value_comes_back_and_a_longer_one_is_refused() {
    for row in STORES {
        let options = small::for_long_values();
        let world = World::new(4096, 1 << 16);
        let store = world.open(row, &options);
        let most = store.max_value_bytes();
        assert_eq!(most, 2 << 20, "{}", row.name);
        let key = Key::new(&[1; 16]).unwrap();
        for seed in 0..3 {
            let value = Pattern { seed, offset: 0, bytes: most };
            store.put(MAIN, key, Value::from(value)).unwrap();
        }
        let bytes = most + 1;
        let longer = Value::from(Pattern { seed: 1, offset: 0, bytes });
        assert_eq!(store.put(MAIN, key, longer), Err(StoreError::ValueTooLong { bytes, most }));
        store.sync(MAIN).unwrap();
        let store = world.open(row, &options);
        let mut expected = vec![0; most as usize];
        Pattern { seed: 2, offset: 0, bytes: most }.expand(&mut expected);
        assert!(get(&*store, &key) == Some(expected), "{}", row.name);
    }
}

/// A value that is only moved is never expanded.
#[test]
fn patterns_stay_patterns() {
    for small in small::all() {
        let world = World::new(small.page_bytes, small.pages);
        let store = world.open(small.row, &small.options);
        for round in 0..40u64 {
            for number in 0..8u32 {
                let value = Pattern { seed: round, offset: number, bytes: 300 };
                store.put(MAIN, Key::from_u32_be(number), Value::from(value)).unwrap();
            }
        }
        store.sync(MAIN).unwrap();
        for number in 0..8u32 {
            let value = store.get(MAIN, Key::from_u32_be(number)).unwrap().unwrap();
            value.read(0, 300, &mut |piece| match piece {
                kvdrive_content::Piece::Pattern(pattern) => assert_eq!(pattern.seed, 39),
                bytes => panic!("{}: {bytes:?}", small.row.name),
            });
        }
    }
}

/// Puts pairs until there is no room; returns the pairs.
fn fill(store: &dyn Store, bytes: u32) -> BTreeMap<Key, Vec<u8>> {
    let mut pairs = BTreeMap::new();
    for number in 0u64.. {
        let (key, value) =
            (Key::from_u64_be(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)), value_of(number, bytes));
        match store.put(MAIN, key, Value::from(&value[..])) {
            Ok(()) => pairs.insert(key, value),
            Err(StoreError::Full) => return pairs,
            Err(error) => panic!("{error}"),
        };
    }
    unreachable!()
}

#[test]
fn a_full_store_says_so_and_takes_deletes() {
    for small in small::all() {
        for bytes in [0, 16, 200, 900] {
            let world = World::new(small.page_bytes, small.pages);
            let mut store = world.open(small.row, &small.options);
            let mut pairs = fill(&*store, bytes);
            let space = u64::from(small.page_bytes) * small.pages;
            let used = pairs.len() as u64 * u64::from(bytes + 16);
            let name = small.row.name;
            assert!(used * 100 > space * 15, "{name}: {} pairs of {bytes} B in {space} B", pairs.len());
            // The pairs stay, and overwriting is possible again after some deletes.
            let some: Vec<Key> = pairs.keys().step_by(3).copied().collect();
            for key in &some {
                let deleted = store.delete(MAIN, *key);
                deleted.unwrap_or_else(|error| {
                    panic!("{name} {}, {bytes} B: {error}, {:?}", small.label, store.counts())
                });
                pairs.remove(key);
            }
            store.sync(MAIN).unwrap();
            store = world.open(small.row, &small.options);
            for (number, key) in (0..).zip(&some[..some.len() / 2]) {
                let value = value_of(1 << 40 | number, bytes);
                let put = store.put(MAIN, *key, Value::from(&value[..]));
                if put == Err(StoreError::Full) && !small.has_room_at_once {
                    continue;
                }
                put.unwrap_or_else(|error| {
                    panic!("{name} {}, {bytes} B: {error}, {:?}", small.label, store.counts())
                });
                pairs.insert(*key, value);
            }
            for (key, value) in &pairs {
                assert_eq!(get(&*store, key).as_ref(), Some(value), "{name} {bytes} B");
            }
            assert!(some[some.len() / 2..].iter().all(|key| get(&*store, key).is_none()), "{name}");
        }
    }
}

/// An overwrite does not make the tree larger, however long its value is.
#[test]
fn every_pair_of_a_full_btree_can_be_overwritten() {
    for small in small::all().into_iter().filter(|small| small.row.name == "btree") {
        for bytes in [16, 200, small.page_bytes / 2, small.page_bytes, 3 * small.page_bytes] {
            let world = World::new(small.page_bytes, small.pages);
            let mut store = world.open(small.row, &small.options);
            let mut pairs = fill(&*store, bytes);
            for round in 1..4u64 {
                for (number, (key, value)) in (0..).zip(&mut pairs) {
                    *value = value_of(round << 40 | number, bytes);
                    let put = store.put(MAIN, *key, Value::from(&value[..]));
                    put.unwrap_or_else(|error| panic!("{bytes} B, round {round}, pair {number}: {error}"));
                }
            }
            store.sync(MAIN).unwrap();
            store = world.open(small.row, &small.options);
            assert!(pairs.iter().all(|(key, value)| get(&*store, key).as_ref() == Some(value)), "{bytes} B");
            // Deletes still have their pages.
            pairs.keys().for_each(|key| store.delete(MAIN, *key).unwrap());
        }
    }
}

/// A value of more than a quarter of a page has pages of its own. Pairs of 4 KiB on pages of 16 KiB take a page each, so a
/// tree is full of them when their values are a quarter of its bytes, and its count says so. It refuses new keys from
/// then on, and nothing else.
#[test]
fn a_btree_full_of_values_of_4_kib_says_so_and_refuses_new_keys_only() {
    const PAGE_BYTES: u32 = 16 << 10;
    let row = STORES.iter().find(|row| row.name == "btree").unwrap();
    let mut options = StoreOptions::default();
    options.btree.buffer_bytes = 16 * u64::from(PAGE_BYTES);
    options.btree.checkpoint_bytes = 256 << 10;
    let world = World::new(PAGE_BYTES, 320);
    let store = world.open(row, &options);
    let pairs = fill(&*store, 4096);
    let space = store.space();
    assert!(space.live_bytes * 100 >= space.capacity_bytes * 95, "{space:?}");
    let values = pairs.len() as u64 * 4096;
    assert!((20..=25).contains(&(values * 100 / space.capacity_bytes)), "{} pairs, {space:?}", pairs.len());
    let keys: Vec<Key> = pairs.into_keys().collect();
    let mut rng = Rng::stream(3, "overwrites");
    for number in 0..1000 {
        let value = value_of(number, 4096);
        let key = keys[rng.below(keys.len() as u64) as usize];
        store.put(MAIN, key, Value::from(&value[..])).unwrap_or_else(|error| panic!("put {number}: {error}"));
        let new = Key::from_u32_be(number as u32);
        assert_eq!(store.put(MAIN, new, Value::from(&value[..])), Err(StoreError::Full), "put {number}");
        assert_eq!(get(&*store, &key), Some(value));
    }
}

#[test]
fn twenty_overwrites_at_80_percent() {
    for small in small::all() {
        let world = World::new(small.page_bytes, small.pages);
        let most = fill(&*world.open(small.row, &small.options), 100).len();
        let world = World::new(small.page_bytes, small.pages);
        let store = world.open(small.row, &small.options);
        let keys: Vec<Key> = (0..most as u32 * 8 / 10).map(Key::from_u32_be).collect();
        let mut rng = Rng::stream(7, "overwrites");
        let mut newest = vec![0; keys.len()];
        for number in 0..keys.len() as u64 * 20 {
            let at = match number < keys.len() as u64 {
                true => number,
                false => rng.below(keys.len() as u64),
            };
            newest[at as usize] = number;
            let value = value_of(number, 100);
            let put = store.put(MAIN, keys[at as usize], Value::from(&value[..]));
            put.unwrap_or_else(|error| panic!("{} {}: put {number}: {error}", small.row.name, small.label));
        }
        for (key, number) in keys.iter().zip(newest) {
            assert_eq!(get(&*store, key), Some(value_of(number, 100)), "{}", small.row.name);
        }
    }
}

/// All pairs are deleted and put again, repeatedly: the room of deleted pairs is always freed.
#[test]
fn what_was_deleted_gives_its_room_back() {
    for small in small::all() {
        let world = World::new(small.page_bytes, small.pages);
        let most = fill(&*world.open(small.row, &small.options), 60).len() as u64 * 7 / 10;
        let world = World::new(small.page_bytes, small.pages);
        let store = world.open(small.row, &small.options);
        for round in 0..12u64 {
            let key = |number: u64| Key::from_u64_be(round << 32 | number);
            for number in 0..most {
                let put = store.put(MAIN, key(number), Value::from(&value_of(number, 60)[..]));
                put.unwrap_or_else(|error| {
                    panic!("{} {}: round {round}: {error}, {:?}", small.row.name, small.label, store.counts())
                });
            }
            assert_eq!(get(&*store, &key(most / 2)), Some(value_of(most / 2, 60)));
            for number in 0..most {
                let deleted = store.delete(MAIN, key(number));
                deleted.unwrap_or_else(|error| {
                    panic!("{} {}: round {round}: {error}, {:?}", small.row.name, small.label, store.counts())
                });
            }
        }
        assert!(store.cursor(MAIN, None).unwrap().next(MAIN).unwrap().is_none());
    }
}

#[test]
fn options_that_make_no_sense_are_named() {
    for row in STORES {
        let error = (row.check)(&StoreOptions::default(), 4096, 3, 4).unwrap_err();
        assert!(error.contains(": "), "{}: {error}", row.name);
    }
}

/// The nodes of a tree then split at their ends, where the parents' keys bound them least.
#[test]
fn keys_come_in_any_order() {
    for small in small::all() {
        let orders: [fn(u32) -> u32; 3] = [|n| n, |n| 400 - n, |n| if n % 2 == 0 { n } else { 400 - n }];
        for order in orders {
            let world = World::new(small.page_bytes, small.pages);
            let store = world.open(small.row, &small.options);
            for number in 0..400 {
                let value = value_of(u64::from(number), 16);
                store.put(MAIN, Key::from_u32_be(order(number)), Value::from(&value[..])).unwrap();
            }
            store.sync(MAIN).unwrap();
            let store = world.open(small.row, &small.options);
            for number in 0..400 {
                let found = get(&*store, &Key::from_u32_be(order(number)));
                assert_eq!(found, Some(value_of(u64::from(number), 16)), "{} {number}", small.row.name);
            }
        }
    }
}

/// A store on few pages, with pairs as large as fit: deletes free their room while they run, and the same
/// number of pairs fits every time.
#[test]
fn filled_and_emptied_ten_times() {
    const PAGE_BYTES: u32 = 16 << 10;
    const PAGES: u64 = 320;
    for row in STORES {
        let mut options = StoreOptions::default();
        (options.hashlog.block_bytes, options.hashlog.segment_bytes) = (0, 0);
        options.lsmtree.write_buffer_size = 0;
        (options.lsmtree.max_bytes_for_level_base, options.lsmtree.target_file_size_base) = (0, 0);
        (row.fit)(&mut options, PAGE_BYTES, PAGES, crate::ground::THREADS);
        let world = World::new(PAGE_BYTES, PAGES);
        let store = world.open(row, &options);
        let mut fitted = Vec::new();
        for cycle in 0..10u64 {
            let mut number = 0u32;
            loop {
                let pattern = Pattern { seed: cycle, offset: 0, bytes: 1000 };
                match store.put(MAIN, Key::from_u32_be(number), Value::from(pattern)) {
                    Ok(()) => number += 1,
                    Err(StoreError::Full) => break,
                    Err(error) => panic!("{}: {error}", row.name),
                }
                if number.is_multiple_of(64) {
                    store.sync(MAIN).unwrap();
                }
            }
            fitted.push(number);
            let full = store.space().live_bytes;
            for number in 0..number {
                store.delete(MAIN, Key::from_u32_be(number)).unwrap();
            }
            let empty = store.space().live_bytes;
            assert!(empty < full / 2, "{}: {full} B when full, {empty} B when empty", row.name);
        }
        let least = fitted.iter().min().unwrap();
        assert!(*least * 10 >= fitted[0] * 9, "{}: {fitted:?}", row.name);
    }
}

/// Records cross page ends; a lookup still reads only the pages of one block: of a block of one page, this page, and
/// the next block's first page if the block ends there.
#[test]
fn a_lookup_in_a_table_reads_a_block_and_not_its_neighbours() {
    let row = STORES.iter().find(|row| row.name == "lsmtree").unwrap();
    let mut options = StoreOptions::default();
    let lsmtree = &mut options.lsmtree;
    lsmtree.write_buffer_size = 64 << 10;
    lsmtree.max_bytes_for_level_base = 256 << 10;
    lsmtree.target_file_size_base = 64 << 10;
    for (bytes, block_size, most_each) in [(32, 4096, 2.0), (1000, 4096, 2.0), (32, 16_384, 5.0)] {
        options.lsmtree.block_size = block_size;
        let world = World::new(4096, 4096);
        let store = world.open(row, &options);
        let key = |number: u64| Key::new(&u128::from(number).to_be_bytes()).unwrap();
        for number in 0..2000 {
            let value = value_of(number, bytes);
            store.put(MAIN, key(number * 7 % 2000), Value::from(&value[..])).unwrap();
        }
        let read = || (world.read.borrow()["lookup"], counter(&*store, "blocks_read"));
        get(&*store, &key(1));
        let before = read();
        for number in 0..2000 {
            assert!(get(&*store, &key(number)).is_some());
        }
        let (pages, blocks) = (read().0 - before.0, read().1 - before.1);
        let each = pages as f64 / blocks as f64;
        assert!(blocks > 500 && each <= most_each, "{bytes} B: {pages} pages for {blocks} blocks, {each}");
    }
}

fn counter(store: &dyn Store, name: &str) -> u64 {
    store.counts().of(name)
}

/// Atomic batches until there is no room, then batches of deletes alone: refused batches have changed
/// nothing, and the deletes succeed.
#[test]
fn a_refused_atomic_batch_leaves_all_as_it_was() {
    for small in small::all() {
        let world = World::new(small.page_bytes, small.pages);
        let store = world.open(small.row, &small.options);
        let name = format!("{} {}", small.row.name, small.label);
        let (mut pairs, mut rng, mut refused) = (BTreeMap::new(), Rng::stream(11, "batches"), 0);
        for round in 0u64.. {
            // New keys, and one in four of the keys that may exist: put again or deleted.
            let key = |number: u64| Key::from_u64_be(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let requests: Vec<(Key, Option<Vec<u8>>)> = (0..12)
                .map(|index| match rng.below(4) {
                    0 if rng.one_in(2) => (key(rng.below(12 * (round + 1))), None),
                    0 => (key(rng.below(12 * (round + 1))), Some(value_of(round, 50))),
                    _ => (key(12 * round + index), Some(value_of(round, 30))),
                })
                .collect();
            match apply_all(&*store, &requests) {
                Ok(()) => requests.into_iter().for_each(|(key, value)| match value {
                    Some(value) => drop(pairs.insert(key, value)),
                    None => drop(pairs.remove(&key)),
                }),
                Err(error) => {
                    assert_eq!(error, StoreError::Full, "{name}");
                    refused += 1;
                    check_all(&*store, &pairs, &name);
                }
            }
            if refused == 20 {
                break;
            }
        }
        let keys: Vec<Key> = pairs.keys().step_by(2).copied().collect();
        for keys in keys.chunks(6) {
            let requests: Vec<_> = keys.iter().map(|key| (*key, None)).collect();
            apply_all(&*store, &requests).unwrap_or_else(|error| panic!("{name}: deletes: {error}"));
            keys.iter().for_each(|key| drop(pairs.remove(key)));
        }
        check_all(&*store, &pairs, &name);
    }
}

/// Applies an atomic batch.
fn apply_all(store: &dyn Store, requests: &[(Key, Option<Vec<u8>>)]) -> Result<(), StoreError> {
    let requests: Vec<StoreRequest<'_>> = requests
        .iter()
        .map(|(key, value)| match value {
            Some(value) => StoreRequest::Put(*key, Value::from(&value[..])),
            None => StoreRequest::Delete(*key),
        })
        .collect();
    store.apply(MAIN, &requests, true).error.map_or(Ok(()), Err)
}

fn check_all(store: &dyn Store, pairs: &BTreeMap<Key, Vec<u8>>, name: &str) {
    let mut cursor = store.cursor(MAIN, None).expect("it opens");
    let mut found = BTreeMap::new();
    while let Some((key, value)) = cursor.next(MAIN).expect("it goes on") {
        found.insert(key, value.to_bytes());
    }
    assert_eq!(found.len(), pairs.len(), "{name}");
    assert!(found == *pairs, "{name}: values");
}
