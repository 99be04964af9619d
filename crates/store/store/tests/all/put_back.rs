//! Pages that hold earlier content, or none, as a translation layer finds them when the header of the newest version
//! cannot be read. The store is refused, or reports which pairs are lost; an earlier value, or a deleted pair, is never
//! returned as valid.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kvdrive_nvme::Key;
use kvdrive_sim::Rng;
use kvdrive_store::{Page, Store, Value};

use crate::damage::is_about_pages;
use crate::ground::{MAIN, World, value_of};
use crate::small::{self, Small};

const KEYS: u32 = 40;
/// Lives of a store before its pages are altered.
const LIVES: u64 = 3;

type Pairs = BTreeMap<Key, Vec<u8>>;

/// The value under each key, or `None` if the store cannot tell it.
fn pairs_of(store: &dyn Store) -> Vec<(Key, Option<Option<Vec<u8>>>)> {
    let get = |key| match store.get(MAIN, key) {
        Ok(value) => Some(value.map(|value| value.to_bytes())),
        Err(error) => {
            assert!(is_about_pages(&error), "{error}");
            None
        }
    };
    (0..KEYS).map(Key::from_u32_be).map(|key| (key, get(key))).collect()
}

/// Puts and deletes, with a sync now and then.
fn live(store: &dyn Store, rng: &mut Rng, life: u64, pairs: &mut Pairs) {
    for step in 0..400 {
        let key = Key::from_u32_be(rng.below(KEYS.into()) as u32);
        if rng.one_in(4) {
            store.delete(MAIN, key).unwrap();
            pairs.remove(&key);
        } else {
            let bytes = [0, 10, 60, 200, 700][rng.below(5) as usize];
            let value = value_of(life << 32 | step, bytes);
            store.put(MAIN, key, Value::from(&value[..])).unwrap();
            pairs.insert(key, value);
        }
        if rng.one_in(20) {
            store.sync(MAIN).unwrap();
        }
    }
}

/// The pages of a used store, its pairs, and its mark.
fn lived(small: &Small, seed: u64) -> (Rc<World>, Pairs, Vec<u8>) {
    let world = World::new(small.page_bytes, small.pages);
    world.remember_versions();
    let mut rng = Rng::stream(seed, "lives");
    let (mut pairs, mut mark) = (Pairs::new(), Vec::new());
    for life in 0..LIVES {
        let store = world.make(small.row, &small.options);
        store.recover_from(MAIN, &mark).unwrap();
        // Writes that were not durable when the previous life ended may be lost.
        pairs = pairs_of(&*store)
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.expect("nothing is lost")?)))
            .collect();
        live(&*store, &mut rng, life, &mut pairs);
        if life + 1 == LIVES || rng.one_in(2) {
            store.sync(MAIN).unwrap();
            mark = store.mark();
        }
    }
    (world, pairs, mark)
}

/// Uses a store of which a page was altered; `true` if it reports a loss.
fn is_noticed(small: &Small, world: &Rc<World>, mark: &[u8], pairs: &Pairs, what: &str) -> bool {
    let store = world.make(small.row, &small.options);
    if let Err(error) = store.recover_from(MAIN, mark) {
        assert!(is_about_pages(&error), "{what}: {error}");
        return true;
    }
    let mut is_noticed = false;
    for (key, value) in pairs_of(&*store) {
        let Some(value) = value else {
            is_noticed = true;
            continue;
        };
        assert!(value.as_ref() == pairs.get(&key), "{what}: {key:?} has a value from before");
    }
    let mut seen = BTreeSet::new();
    let mut cursor = store.cursor(MAIN, None).unwrap();
    loop {
        match cursor.next(MAIN) {
            Ok(Some((key, value))) => {
                assert_eq!(Some(&value.to_bytes()), pairs.get(&key), "{what}: a cursor finds {key:?}");
                seen.insert(key);
            }
            Ok(None) => {
                assert_eq!(seen.len(), pairs.len(), "{what}: a cursor passes pairs over");
                break;
            }
            Err(_) => {
                is_noticed = true;
                break;
            }
        }
    }
    is_noticed
}

#[test]
fn an_older_version_of_a_page_is_never_taken_for_the_newest() {
    for small in small::all() {
        let mut noticed = 0;
        for seed in 0..4 {
            let (world, pairs, mark) = lived(&small, seed);
            assert!(!is_noticed(&small, &world.copied(), &mark, &pairs, "as it was"), "{}", small.label);
            // Trimmed pages stay blank, on either side of the wire.
            let is_used = |(_, content): &(u64, Page)| content.written_end() > 0;
            let used: BTreeSet<u64> =
                world.used().into_iter().filter(is_used).map(|(page, _)| page).collect();
            let is_before = |version: &(u64, Page)| used.contains(&version.0) && is_used(version);
            let before = world.versions().into_iter().filter(is_before);
            let mut versions: Vec<(u64, Option<Page>)> =
                before.map(|(page, content)| (page, Some(content))).collect();
            versions.extend(used.iter().map(|page| (*page, None)));
            let mut rng = Rng::stream(seed, "versions");
            for _ in 0..150 {
                let (page, content) = &versions[rng.below(versions.len() as u64) as usize];
                let altered = world.copied();
                match content {
                    Some(content) => altered.scribble(*page, (**content).clone()),
                    None => altered.lose(*page),
                }
                let how = if content.is_some() { "is older" } else { "is lost" };
                let what = format!("{} {}, seed {seed}, page {page} {how}", small.row.name, small.label);
                noticed += u32::from(is_noticed(&small, &altered, &mark, &pairs, &what));
            }
        }
        assert!(noticed > 20, "{} {}: {noticed}", small.row.name, small.label);
    }
}
