//! Several callers at once, with a power cut at every change of the pages.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use kvdrive_nvme::Key;
use kvdrive_sim::Rng;
use kvdrive_store::{Store, StoreError, StoreRequest, Thread, Value};
use proptest::prelude::*;

use crate::ground::{Cut, MAIN, THREADS, World, value_of};
use crate::history::History;
use crate::oracle::key_of;
use crate::small::{self, Small};

#[derive(Clone, Debug)]
enum Op {
    Put(u8, u32),
    Delete(u8),
    Get(u8),
    Batch(Vec<(u8, Option<u32>)>),
    Walk,
    Sync,
    Background,
}

fn op() -> impl Strategy<Value = Op> {
    let bytes = prop_oneof![4 => 0u32..40, 2 => 40u32..600, 1 => 600u32..1500];
    let key = || 0u8..16;
    let some = proptest::option::weighted(0.8, 0u32..200);
    prop_oneof![
        12 => (key(), bytes).prop_map(|(key, bytes)| Op::Put(key, bytes)),
        3 => key().prop_map(Op::Delete),
        4 => key().prop_map(Op::Get),
        2 => proptest::collection::vec((key(), some), 2..8).prop_map(Op::Batch),
        1 => Just(Op::Walk),
        1 => Just(Op::Sync),
        1 => Just(Op::Background),
    ]
}

struct Shared {
    world: Rc<World>,
    store: Rc<dyn Store>,
    history: RefCell<History>,
    number: Cell<u64>,
    cursors: Cell<u32>,
}

impl Shared {
    fn change(&self, changes: Vec<(Key, Option<Vec<u8>>)>, call: impl FnOnce() -> Result<(), StoreError>) {
        let is_atomic = changes.len() > 1;
        let begun = self.history.borrow_mut().begin(self.world.tick(), &changes, is_atomic);
        let result = call();
        let at = self.world.tick();
        match result {
            Ok(()) => self.history.borrow_mut().end(at, begun),
            Err(StoreError::HeldByCursors | StoreError::Full) => self.history.borrow_mut().undo(begun),
            Err(error) => panic!("{error}"),
        }
    }

    fn value(&self, bytes: u32) -> Vec<u8> {
        self.number.set(self.number.get() + 1);
        value_of(self.number.get(), bytes)
    }

    fn run(&self, thread: Thread, op: &Op) {
        let store = &*self.store;
        match op {
            Op::Put(key, bytes) => {
                let (key, value) = (key_of(*key), self.value(*bytes));
                self.change(vec![(key, Some(value.clone()))], || {
                    store.put(thread, key, Value::from(&value[..]))
                });
            }
            Op::Delete(key) => {
                self.change(vec![(key_of(*key), None)], || store.delete(thread, key_of(*key)));
            }
            Op::Get(key) => {
                let (key, begin) = (key_of(*key), self.world.tick());
                let value = store.get(thread, key).unwrap().map(|value| value.to_bytes());
                self.history.borrow().check_seen(&key, value.as_deref(), begin, self.world.tick());
            }
            Op::Batch(batch) => {
                let changes: Vec<_> = batch
                    .iter()
                    .map(|(key, bytes)| (key_of(*key), bytes.map(|bytes| self.value(bytes))))
                    .collect();
                self.change(changes.clone(), || {
                    let requests: Vec<StoreRequest<'_>> = changes
                        .iter()
                        .map(|(key, value)| match value {
                            Some(value) => StoreRequest::Put(*key, Value::from(&value[..])),
                            None => StoreRequest::Delete(*key),
                        })
                        .collect();
                    store.apply(thread, &requests, true).error.map_or(Ok(()), Err)
                });
            }
            Op::Walk => self.walk(thread),
            Op::Sync => {
                let begin = self.world.tick();
                if store.sync(thread).is_ok() {
                    self.history.borrow_mut().synced(begin, self.world.tick());
                }
            }
            Op::Background => {
                store.background_step(thread).unwrap();
            }
        }
    }

    /// A cursor returns the pairs of one moment during its opening.
    fn walk(&self, thread: Thread) {
        self.cursors.set(self.cursors.get() + 1);
        let begin = self.world.tick();
        let mut cursor = self.store.cursor(thread, None).unwrap();
        let end = self.world.tick();
        let mut found = Vec::new();
        while let Some((key, value)) = cursor.next(thread).unwrap() {
            found.push((key, value.to_bytes()));
        }
        assert!(found.is_sorted_by(|a, b| a.0 < b.0), "keys ascend");
        let history = self.history.borrow();
        for key in history.keys() {
            let value = found.iter().find(|(found, _)| found == key).map(|(_, value)| &value[..]);
            history.check_seen(key, value, begin, end);
        }
    }
}

/// Runs the operations, dealt to threads, and checks the pairs at the end.
fn run(small: &Small, ops: &[Op], seed: u64, is_cut: bool) -> (Rc<Shared>, Vec<Cut>) {
    let world = World::new(small.page_bytes, small.pages);
    let store = world.open(small.row, &small.options);
    let shared = Rc::new(Shared {
        world: world.clone(),
        store,
        history: RefCell::default(),
        number: Cell::new(0),
        cursors: Cell::new(0),
    });
    if is_cut {
        world.collect_cuts();
    }
    let mut tasks: Vec<Box<dyn FnOnce()>> = Vec::new();
    for thread in 0..THREADS {
        let of_thread: Vec<Op> =
            ops.iter().skip(thread as usize).step_by(THREADS as usize).cloned().collect();
        let shared = shared.clone();
        tasks.push(Box::new(move || of_thread.iter().for_each(|op| shared.run(Thread(thread), op))));
    }
    world.alternate(seed, tasks, &shared.store);
    let cuts = world.take_cuts();
    let now = world.tick();
    let history = shared.history.borrow();
    for key in history.keys() {
        let value = shared.store.get(MAIN, *key).unwrap().map(|value| value.to_bytes());
        history.check_seen(key, value.as_deref(), now, now);
    }
    drop(history);
    (shared, cuts)
}

/// Checks the pairs of a recovered store against those that it may have.
fn check_cut(small: &Small, shared: &Shared, cut: &Cut, world: &Rc<World>) {
    let store = world.make(small.row, &small.options);
    if let Err(error) = store.recover(MAIN) {
        panic!("{} {} after a cut at {}: {error}", small.row.name, small.label, cut.at);
    }
    let get = |key: &Key| store.get(MAIN, *key).unwrap().map(|value| value.to_bytes());
    shared.history.borrow().check_recovered(cut.at, &get);
    // It continues from there, and its answers stay the same later.
    let before: Vec<_> = shared.history.borrow().keys().map(|key| (*key, get(key))).collect();
    let (key, value) = (key_of(200), value_of(u64::MAX, 100));
    store.put(MAIN, key, Value::from(&value[..])).unwrap();
    store.sync(MAIN).unwrap();
    let again = world.open(small.row, &small.options);
    let get = |key: &Key| again.get(MAIN, *key).unwrap().map(|value| value.to_bytes());
    assert_eq!(get(&key), Some(value));
    for (key, value) in before {
        assert_eq!(get(&key), value, "{key} is another one after a second recovery");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn callers_alternate(ops in proptest::collection::vec(op(), 1..400), seed in any::<u64>()) {
        for small in small::all() {
            run(&small, &ops, seed, false);
        }
    }

    #[test]
    fn power_is_cut_at_every_change(ops in proptest::collection::vec(op(), 1..160), seed in any::<u64>()) {
        for small in small::all() {
            let (shared, cuts) = run(&small, &ops, seed, true);
            for (number, cut) in (0..).zip(&cuts) {
                check_cut(&small, &shared, cut, &cut.world(&shared.world, seed ^ number));
            }
        }
    }

    #[test]
    fn recovery_is_cut_again(ops in proptest::collection::vec(op(), 40..160), seed in any::<u64>()) {
        for small in small::all() {
            let (shared, cuts) = run(&small, &ops, seed, true);
            let mut rng = Rng::stream(seed, "which cuts");
            for _ in 0..cuts.len().min(4) {
                let cut = &cuts[rng.below(cuts.len() as u64) as usize];
                let world = cut.world(&shared.world, rng.next_u64());
                world.collect_cuts();
                world.make(small.row, &small.options).recover(MAIN).unwrap();
                for again in world.take_cuts() {
                    check_cut(&small, &shared, cut, &again.world(&world, rng.next_u64()));
                }
            }
        }
    }
}
