//! One caller: a store behaves as a `BTreeMap`, across recoveries, with any content of its pages.

use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::Pattern;
use kvdrive_nvme::Key;
use kvdrive_store::{Cursor, Store, StoreError, StoreRequest, Value};
use proptest::prelude::*;

use crate::ground::{MAIN, World, value_of};
use crate::small::{self, Small};

#[derive(Clone, Debug)]
enum Op {
    Put(u8, u32, bool),
    Delete(u8),
    Get(u8),
    Batch(Vec<(u8, Option<u32>)>, bool),
    /// Opens a cursor, or reads on with it.
    Cursor(Option<u8>),
    Step(u8),
    Sync,
    Recover(bool),
}

fn op() -> impl Strategy<Value = Op> {
    let bytes = prop_oneof![4 => 0u32..40, 2 => 40u32..600, 1 => 600u32..1500];
    let key = || 0u8..40;
    let some = proptest::option::weighted(0.8, 0u32..60);
    prop_oneof![
        12 => (key(), bytes, any::<bool>()).prop_map(|(key, bytes, is_pattern)| Op::Put(key, bytes, is_pattern)),
        4 => key().prop_map(Op::Delete),
        4 => key().prop_map(Op::Get),
        2 => (proptest::collection::vec((key(), some), 0..12), any::<bool>())
            .prop_map(|(batch, atomic)| Op::Batch(batch, atomic)),
        1 => proptest::option::of(key()).prop_map(Op::Cursor),
        4 => (1u8..6).prop_map(Op::Step),
        1 => Just(Op::Sync),
        1 => any::<bool>().prop_map(Op::Recover),
    ]
}

/// Keys of 1 to 16 bytes that are prefixes of each other.
pub fn key_of(number: u8) -> Key {
    let mut bytes = [number / 16; 16];
    bytes[0] = number % 4;
    let len = 1 + usize::from(number % 16);
    // Some are longer than an identity; among them are keys that differ in their length alone.
    Key::from_padded(bytes, if number.is_multiple_of(7) { 16 + usize::from(number % 240) } else { len })
        .unwrap()
}

/// Pairs that a cursor has yet to return, last first.
type Pairs = Vec<(Key, Vec<u8>)>;

struct Run {
    small: Small,
    world: Rc<World>,
    store: Rc<dyn Store>,
    model: BTreeMap<Key, Vec<u8>>,
    cursor: Option<(Box<dyn Cursor>, Pairs)>,
    number: u64,
}

impl Run {
    fn new(small: Small) -> Run {
        let world = World::new(small.page_bytes, small.pages);
        let store = world.open(small.row, &small.options);
        Run { small, world, store, model: BTreeMap::new(), cursor: None, number: 0 }
    }

    /// A call that may fail because the cursor holds the store's room: then it is made again without a
    /// cursor.
    fn call<T>(&mut self, call: &dyn Fn(&dyn Store) -> Result<T, StoreError>) -> T {
        match call(&*self.store) {
            Err(StoreError::HeldByCursors) if self.cursor.take().is_some() => call(&*self.store).unwrap(),
            result => result.unwrap(),
        }
    }

    fn put(&mut self, key: Key, bytes: u32, is_pattern: bool) {
        self.number += 1;
        let pattern = Pattern { seed: self.number, offset: 3, bytes };
        let mut value = value_of(self.number, bytes);
        if is_pattern {
            pattern.expand(&mut value);
        }
        let lent = value.clone();
        self.call(&|store| {
            let value = if is_pattern { Value::from(pattern) } else { Value::from(&lent[..]) };
            store.put(MAIN, key, value)
        });
        self.model.insert(key, value);
    }

    fn batch(&mut self, batch: &[(u8, Option<u32>)], atomic: bool) {
        let mut values = Vec::new();
        for (key, bytes) in batch {
            self.number += 1;
            values.push((key_of(*key), bytes.map(|bytes| value_of(self.number, bytes))));
        }
        let requests: Vec<StoreRequest<'_>> = values
            .iter()
            .map(|(key, value)| match value {
                Some(value) => StoreRequest::Put(*key, Value::from(&value[..])),
                None => StoreRequest::Delete(*key),
            })
            .collect();
        let mut applied = self.store.apply(MAIN, &requests, atomic);
        if applied.error == Some(StoreError::HeldByCursors) && self.cursor.take().is_some() {
            applied = self.store.apply(MAIN, &requests, atomic);
        }
        assert_eq!((applied.requests, applied.error), (requests.len() as u32, None));
        drop(requests);
        for (key, value) in values {
            match value {
                Some(value) => self.model.insert(key, value),
                None => self.model.remove(&key),
            };
        }
    }

    fn step(&mut self, steps: u8) {
        let Some((cursor, rest)) = &mut self.cursor else { return };
        for _ in 0..steps {
            let next = cursor.next(MAIN).unwrap().map(|(key, value)| (key, value.to_bytes()));
            assert_eq!(next, rest.pop());
        }
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Put(key, bytes, is_pattern) => self.put(key_of(*key), *bytes, *is_pattern),
            Op::Delete(key) => {
                self.call(&|store| store.delete(MAIN, key_of(*key)));
                self.model.remove(&key_of(*key));
            }
            Op::Get(key) => {
                let found = self.store.get(MAIN, key_of(*key)).unwrap().map(|value| value.to_bytes());
                assert_eq!(found.as_ref(), self.model.get(&key_of(*key)));
            }
            Op::Batch(batch, atomic) => self.batch(batch, *atomic),
            Op::Cursor(from) => {
                let from = from.map(key_of);
                let cursor = self.store.cursor(MAIN, from).unwrap();
                let pairs = self.model.iter().filter(|(key, _)| from.is_none_or(|from| **key >= from));
                let mut rest: Pairs = pairs.map(|(key, value)| (*key, value.clone())).collect();
                rest.reverse();
                self.cursor = Some((cursor, rest));
            }
            Op::Step(steps) => self.step(*steps),
            Op::Sync => self.call(&|store| store.sync(MAIN)),
            Op::Recover(is_expanded) => {
                self.cursor = None;
                self.store.sync(MAIN).unwrap();
                if *is_expanded {
                    self.world = self.world.expanded();
                }
                self.store = self.world.open(self.small.row, &self.small.options);
                self.check_all();
            }
        }
    }

    fn check_all(&self) {
        let mut cursor = self.store.cursor(MAIN, None).unwrap();
        let mut all = BTreeMap::new();
        while let Some((key, value)) = cursor.next(MAIN).unwrap() {
            assert!(all.last_key_value().is_none_or(|(last, _)| *last < key), "keys ascend");
            all.insert(key, value.to_bytes());
        }
        assert_eq!(all, self.model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn a_store_is_a_map(ops in proptest::collection::vec(op(), 1..250)) {
        for small in small::all() {
            let mut run = Run::new(small);
            ops.iter().for_each(|op| run.run(op));
            run.step(255);
            run.run(&Op::Recover(false));
        }
    }
}
