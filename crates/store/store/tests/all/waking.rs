//! Waiting threads are woken: stores with threads for background work, whose pages refuse operations for some
//! time. [`World::alternate`] finds threads that wait for ever, and work that was not announced.

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_store::{Purpose, Store, StoreError, Thread, Value};

use crate::ground::{Refused, THREADS, World, value_of};
use crate::oracle::key_of;
use crate::small::{self, Small};

/// One round of a thread's calls, with its number.
type Task = fn(&dyn Store, Thread, u64) -> Result<(), StoreError>;

fn put(store: &dyn Store, thread: Thread, number: u64) -> Result<(), StoreError> {
    let value = value_of(number, 300);
    store.put(thread, key_of((number * 5 % 97) as u8), Value::from(&value[..]))
}

fn put_and_sync(store: &dyn Store, thread: Thread, number: u64) -> Result<(), StoreError> {
    put(store, thread, number)?;
    store.sync(thread)
}

/// Every thread repeats `task` until it fails, or `most` times; returns the errors.
fn until_it_fails(
    world: &Rc<World>,
    store: &Rc<dyn Store>,
    seed: u64,
    most: u64,
    task: Task,
) -> Vec<StoreError> {
    let failed = Rc::new(Cell::new(Vec::new()));
    let tasks = (0..THREADS).map(Thread).map(|thread| {
        let (store, failed) = (store.clone(), failed.clone());
        Box::new(move || {
            let numbers = (0..most).map(|number| number * 7 + u64::from(thread.0));
            if let Some(error) = numbers.map(|number| task(&*store, thread, number)).find_map(Result::err) {
                let mut all = failed.take();
                all.push(error);
                failed.set(all);
            }
        }) as Box<dyn FnOnce()>
    });
    world.alternate(seed, tasks.collect(), store);
    failed.take()
}

fn with_background() -> impl Iterator<Item = Small> {
    small::all().into_iter().filter(|small| (small.row.background)(&small.options).is_some())
}

fn is_refused(error: &StoreError) -> bool {
    matches!(error, StoreError::Page(_))
}

/// All puts that wait for a job get its error, and for the next put that waits the job is tried again.
#[test]
fn who_waits_for_a_job_hears_that_it_failed_and_the_next_one_has_it_tried_again() {
    for (small, seed) in with_background().flat_map(|small| (0..30).map(move |seed| (small.clone(), seed))) {
        for refused in [
            Refused::Writes(Purpose::Table),
            Refused::Writes(Purpose::Manifest),
            Refused::Writes(Purpose::Compaction),
            Refused::Trims,
        ] {
            let world = World::new(small.page_bytes, small.pages);
            let store = world.open(small.row, &small.options);
            world.refuse(Some(refused));
            let failed = until_it_fails(&world, &store, seed, 400, put);
            let is_certain = matches!(refused, Refused::Writes(Purpose::Table | Purpose::Manifest));
            assert!(failed.iter().all(is_refused), "{failed:?}");
            assert!(!is_certain || failed.len() == THREADS as usize, "{refused:?}: {failed:?}");
            world.refuse(None);
            let failed = until_it_fails(&world, &store, seed, 100, put);
            assert!(failed.is_empty(), "{} {}, {refused:?}: {failed:?}", small.row.name, small.label);
        }
    }
}

/// Threads that synchronise wait for other threads' writes, also if those fail.
#[test]
fn a_sync_does_not_wait_for_a_failed_thread() {
    for (small, seed) in with_background().flat_map(|small| (0..60).map(move |seed| (small.clone(), seed))) {
        for refused in [Refused::Writes(Purpose::Table), Refused::Writes(Purpose::Wal)] {
            let world = World::new(small.page_bytes, small.pages);
            let store = world.open(small.row, &small.options);
            until_it_fails(&world, &store, seed, 10, put_and_sync);
            world.refuse(Some(refused));
            let failed = until_it_fails(&world, &store, !seed, 200, put_and_sync);
            assert!(failed.iter().all(is_refused), "{failed:?}");
            let is_needed = refused != Refused::Writes(Purpose::Wal) || small.options.lsmtree.wal;
            assert!(!is_needed || failed.len() == THREADS as usize, "{refused:?}: {failed:?}");
        }
    }
}

/// With few pages, puts merge to make room; a put that waits for such a merge continues when it fails.
#[test]
fn a_full_store_whose_merges_fail_tells_every_caller() {
    for (small, seed) in with_background().flat_map(|small| (0..20).map(move |seed| (small.clone(), seed))) {
        let world = World::new(small.page_bytes, small.pages);
        let store = world.open(small.row, &small.options);
        let fill: Task = |store, thread, number| {
            let value = value_of(number, 1200);
            store.put(thread, key_of((number % 251) as u8), Value::from(&value[..]))
        };
        let failed = until_it_fails(&world, &store, seed, 2000, fill);
        assert!(failed.iter().all(|error| *error == StoreError::Full), "{failed:?}");
        world.refuse(Some(Refused::Writes(Purpose::Compaction)));
        until_it_fails(&world, &store, !seed, 200, fill);
    }
}

/// Without a log, only a memtable that becomes full announces background work.
#[test]
fn the_background_knows_of_each_memtable_that_is_full() {
    for (small, seed) in with_background().flat_map(|small| (0..40).map(move |seed| (small.clone(), seed))) {
        let world = World::new(small.page_bytes, small.pages);
        let store = world.open(small.row, &small.options);
        // The run ends after each put, sometimes after the put that has filled the memtable.
        for round in 0..12 {
            let failed = until_it_fails(&world, &store, seed ^ round, 1 + seed % 3, put);
            assert!(failed.is_empty(), "{failed:?}");
        }
    }
}

/// A thread that synchronises waits for pages of the log that others write, also for the last ones.
#[test]
fn every_sync_ends() {
    for (small, seed) in with_background().flat_map(|small| (0..300).map(move |seed| (small.clone(), seed))) {
        let world = World::new(small.page_bytes, small.pages);
        let store = world.open(small.row, &small.options);
        let failed = until_it_fails(&world, &store, seed, 1 + seed % 3, put_and_sync);
        assert!(failed.is_empty(), "{failed:?}");
    }
}

/// Small pairs that are synchronised one by one take a page of the log each, so the log is full before a
/// memtable is.
#[test]
fn a_log_that_is_full_asks_for_a_memtable_to_be_written() {
    let tiny: Task = |store, thread, number| {
        store.put(thread, key_of((number % 97) as u8), Value::from(&b"tiny"[..]))?;
        store.sync(thread)
    };
    for (small, seed) in with_background().flat_map(|small| (0..10).map(move |seed| (small.clone(), seed))) {
        let world = World::new(small.page_bytes, small.pages);
        let store = world.open(small.row, &small.options);
        let failed = until_it_fails(&world, &store, seed, 150, tiny);
        assert!(failed.is_empty(), "{failed:?}");
    }
}

/// Failing merges keep no memtable from being written: each one that becomes full makes the background look
/// again.
#[test]
fn memtables_are_written_while_merges_fail() {
    for small in with_background() {
        let world = World::new(small.page_bytes, small.pages);
        let store = world.open(small.row, &small.options);
        let count = |name| store.counts().of(name);
        world.refuse(Some(Refused::Writes(Purpose::Compaction)));
        let mut number = 0;
        while count("flushes") < 4 {
            put(&*store, Thread(0), number).expect("there are few tables");
            number += 1;
        }
        assert_eq!((count("merges"), count("stopped_puts")), (0, 0), "{}", small.label);
    }
}
