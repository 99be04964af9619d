//! Pages whose content was altered: the store answers an error that names the page, or a value that the key may have.

use std::collections::BTreeSet;

use kvdrive_nvme::Key;
use kvdrive_sim::Rng;
use kvdrive_store::{Store, StoreError, Value};

use crate::ground::{MAIN, World, random_page, value_of};
use crate::small;

/// Does the error name the flaw of the pages?
pub fn is_about_pages(error: &StoreError) -> bool {
    matches!(error, StoreError::Damaged { .. } | StoreError::Page(_))
}

/// Uses a store whose pages may hold arbitrary bytes: every pair was put once, with a value that identifies
/// it.
fn use_it(store: &dyn Store, pairs: u32) {
    if let Err(error) = store.recover(MAIN) {
        assert!(is_about_pages(&error), "{error}");
        return;
    }
    for number in 0..pairs {
        match store.get(MAIN, Key::from_u32_be(number)) {
            Ok(None) => {}
            Ok(Some(value)) => {
                let mine =
                    (0..30).any(|round| value.to_bytes() == value_of((round << 32) | u64::from(number), 50));
                assert!(mine, "pair {number} was never {value:?}");
            }
            Err(error) => assert!(is_about_pages(&error), "{error}"),
        }
    }
    if let Ok(mut cursor) = store.cursor(MAIN, None) {
        while let Ok(Some(_)) = cursor.next(MAIN) {}
    }
    for number in 0..pairs * 4 {
        let value = value_of(u64::from(number), 50);
        if let Err(error) = store.put(MAIN, Key::from_u32_be(number % pairs), Value::from(&value[..])) {
            assert!(is_about_pages(&error) || error == StoreError::Full, "{error}");
        }
    }
    let _ = store.sync(MAIN);
}

fn filled(small: &small::Small, pairs: u32) -> (std::rc::Rc<World>, std::rc::Rc<dyn Store>) {
    let world = World::new(small.page_bytes, small.pages);
    let store = world.open(small.row, &small.options);
    for round in 0..5u64 {
        for number in 0..pairs {
            let value = value_of(round << 32 | u64::from(number), 50);
            store.put(MAIN, Key::from_u32_be(number), Value::from(&value[..])).unwrap();
        }
        store.sync(MAIN).unwrap();
    }
    (world, store)
}

#[test]
fn random_bytes_in_pages_do_no_harm() {
    const PAIRS: u32 = 60;
    for small in small::all() {
        for seed in 0..60 {
            let mut rng = Rng::stream(seed, "random pages");
            let (world, store) = filled(&small, PAIRS);
            let used: Vec<u64> = world.used().iter().map(|(page, _)| *page).collect();
            for _ in 0..=rng.below(4) {
                let page = used[rng.below(used.len() as u64) as usize];
                let region = match rng.below(3) {
                    0 => random_page(&mut rng, small.page_bytes),
                    1 => {
                        // Some bits of the page's content.
                        let (_, content) = &world.used()[used.iter().position(|at| *at == page).unwrap()];
                        let mut bytes = content.to_bytes(small.page_bytes);
                        let at = rng.below(bytes.len() as u64) as usize;
                        bytes[at] ^= 1 << rng.below(8);
                        kvdrive_content::Region::from_bytes(bytes)
                    }
                    _ => {
                        let from = rng.below(used.len() as u64) as usize;
                        (*world.used()[from].1).clone()
                    }
                };
                world.scribble(page, region);
            }
            if seed % 2 == 0 {
                use_it(&*world.make(small.row, &small.options), PAIRS);
            } else {
                // While the store is running.
                for number in 0..PAIRS {
                    match store.get(MAIN, Key::from_u32_be(number)) {
                        Ok(value) => {
                            let newest = value_of(4 << 32 | u64::from(number), 50);
                            assert_eq!(value.map(|value| value.to_bytes()), Some(newest));
                        }
                        Err(error) => assert!(is_about_pages(&error), "{error}"),
                    }
                }
            }
        }
    }
}

/// One altered byte of any page in use causes an error or makes no difference; it never causes another value.
#[test]
fn every_page_in_use_is_checked() {
    const PAIRS: u32 = 40;
    for small in small::all() {
        let (world, _store) = filled(&small, PAIRS);
        let used = world.used();
        let mut noticed = BTreeSet::new();
        for (page, content) in &used {
            let mut bytes = content.to_bytes(small.page_bytes);
            if bytes.iter().all(|byte| *byte == 0) {
                continue;
            }
            let last = bytes.len() - 1;
            bytes[last] ^= 0x10;
            let copy = world.expanded();
            copy.scribble(*page, kvdrive_content::Region::from_bytes(bytes));
            let store = copy.make(small.row, &small.options);
            let Ok(_) = store.recover(MAIN) else {
                noticed.insert(*page);
                continue;
            };
            for number in 0..PAIRS {
                match store.get(MAIN, Key::from_u32_be(number)) {
                    Ok(Some(value)) => {
                        let bytes = value.to_bytes();
                        let rounds = 0..5u64;
                        let mut mine = rounds.map(|round| value_of(round << 32 | u64::from(number), 50));
                        assert!(mine.any(|value| value == bytes), "page {page}, pair {number}");
                    }
                    Ok(None) => {}
                    Err(_) => {
                        noticed.insert(*page);
                    }
                }
            }
        }
        assert!(!noticed.is_empty(), "{}", small.row.name);
    }
}

/// If the pages refuse calls, the error is returned, nothing panics, and data in memory can still be read.
#[test]
fn pages_that_refuse_are_errors() {
    for small in small::all() {
        for call in [0, 1, 2, 5, 9, 20, 50] {
            let world = World::new(small.page_bytes, small.pages);
            let store = world.open(small.row, &small.options);
            world.fail_from(call);
            let mut error = None;
            for number in 0..4000u64 {
                let value = value_of(number, 100);
                let key = Key::from_u32_be(number as u32 % 100);
                let put = store.put(MAIN, key, Value::from(&value[..]));
                // A store that has room for all pairs in memory calls its pages only in a sync.
                let synced = if number % 100 == 99 { store.sync(MAIN) } else { Ok(()) };
                if let Err(why) = put.and(synced) {
                    error = Some(why);
                    break;
                }
            }
            assert!(matches!(error, Some(StoreError::Page(_))), "{} {call}: {error:?}", small.row.name);
        }
    }
}

/// The index of a table can be rebuilt from its data pages, so a lost index costs no pair.
#[test]
fn a_table_without_its_index_has_all_of_its_pairs() {
    /// Byte 3 of a page is its kind: 4 is the index of a table.
    const INDEX: u8 = 4;
    const PAIRS: u32 = 60;
    for small in small::all().into_iter().filter(|small| small.row.name == "lsmtree") {
        let (world, store) = filled(&small, PAIRS);
        let mark = store.mark();
        drop(store);
        let is_index = |(_, content): &(u64, kvdrive_store::Page)| content.to_bytes(4)[3] == INDEX;
        let indexes: Vec<u64> = world.used().into_iter().filter(is_index).map(|(page, _)| page).collect();
        assert!(!indexes.is_empty(), "{}: there are tables", small.label);
        for page in indexes {
            let altered = world.copied();
            altered.lose(page);
            let store = altered.make(small.row, &small.options);
            let recovered = store.recover_from(MAIN, &mark);
            recovered.unwrap_or_else(|error| panic!("{}: refused for page {page}: {error}", small.label));
            for number in 0..PAIRS {
                let newest = value_of(4 << 32 | u64::from(number), 50);
                let value = store.get(MAIN, Key::from_u32_be(number)).unwrap();
                assert_eq!(value.map(|value| value.to_bytes()), Some(newest), "{}: {number}", small.label);
            }
            let mut cursor = store.cursor(MAIN, None).unwrap();
            let listed = std::iter::from_fn(|| cursor.next(MAIN).unwrap()).count();
            assert_eq!(listed, PAIRS as usize, "{}: page {page}", small.label);
        }
    }
}

/// The page as a later version of this program might write it: only the version differs, and the check of its head is right.
fn of_a_later_version(content: &kvdrive_content::Region, page_bytes: u32) -> kvdrive_content::Region {
    let mut bytes = content.to_bytes(page_bytes);
    let head_bytes = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
    bytes[2] += 1;
    let mut checked = bytes[..head_bytes].to_vec();
    checked[24..32].fill(0);
    bytes[24..28].copy_from_slice(&crc32c::crc32c(&checked).to_le_bytes());
    kvdrive_content::Region::from_bytes(bytes)
}

/// Recovery passes over pages that a power cut has torn. A page of a later version is none of these: whichever page it is, the
/// store says so when it meets it, and no pair is missing without an error.
#[test]
fn a_page_of_a_later_version_is_never_taken_for_a_torn_one() {
    const PAIRS: u32 = 40;
    for small in small::all() {
        let (world, _store) = filled(&small, PAIRS);
        let (mut refused, mut pages) = (0, 0);
        for (page, content) in world.used() {
            if content.to_bytes(2) != *b"kv" {
                continue;
            }
            pages += 1;
            let copy = world.expanded();
            copy.scribble(page, of_a_later_version(&content, small.page_bytes));
            let store = copy.make(small.row, &small.options);
            match store.recover(MAIN) {
                Err(error) => {
                    assert!(
                        matches!(error, StoreError::Version { .. }),
                        "{}, page {page}: {error}",
                        small.row.name
                    );
                    assert!(
                        error.to_string().contains("is of version 3, which another kvdrive wrote"),
                        "{error}"
                    );
                    refused += 1;
                }
                Ok(_) => {
                    for number in 0..PAIRS {
                        match store.get(MAIN, Key::from_u32_be(number)) {
                            Ok(value) => {
                                let newest = value_of(4 << 32 | u64::from(number), 50);
                                let value = value.map(|value| value.to_bytes());
                                assert_eq!(value, Some(newest), "{}, page {page}", small.row.name);
                            }
                            Err(error) => assert!(matches!(error, StoreError::Version { .. }), "{error}"),
                        }
                    }
                }
            }
        }
        assert!(refused > 0, "{}: none of {pages} pages was met", small.row.name);
    }
}
