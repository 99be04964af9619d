//! Threads in many orders (crate `shuttle`): at every lock and counter of [`crate::sync`] another thread may
//! continue. The drive applies commands under way in any order, and any thread takes the answer to any batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::batch::RequestKind;
use kvdrive_nvme::{Key, Status, StoreOptions};
use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::thread;

use crate::batch::Batch;
use crate::sync::{Mutex, lock};
use crate::{BatchSize, Client, NoSteps, Read, Saker, SakerConfig, Sync, Write};

/// Stores, and deletes without a value.
type Requests = Vec<(Key, Option<Vec<u8>>)>;

/// Runs `test` in `orders` orders, the same ones in every run.
fn in_many_orders(test: impl Fn() + Send + std::marker::Sync + 'static, orders: usize) {
    in_many_orders_by(RandomScheduler::new_from_seed(7, orders), test);
}

fn in_many_orders_by(
    scheduler: impl Scheduler + 'static,
    test: impl Fn() + Send + std::marker::Sync + 'static,
) {
    shuttle::Runner::new(scheduler, shuttle::Config::new()).run(test);
}

#[derive(Default)]
struct Drive {
    pairs: BTreeMap<Key, Vec<u8>>,
    under_way: Vec<(Arc<Batch>, Requests)>,
}

type Shared = Arc<Mutex<Drive>>;

fn key(number: u64) -> Key {
    Key::from_u64_be(number)
}

fn submit(drive: &Shared, batch: Arc<Batch>, requests: Requests) {
    let mut drive = lock(drive);
    for (_, others) in &drive.under_way {
        let shared = others.iter().any(|(key, _)| requests.iter().any(|(other, _)| key == other));
        assert!(!shared, "two batches with one key under way");
    }
    drive.under_way.push((batch, requests));
}

/// Sends the batches that a client hands out.
fn send(client: &mut Client, drive: &Shared) {
    while let Some(batch) = client.next_batch() {
        let value = |at: u32, bytes: u32| {
            let mut value = vec![0; bytes as usize];
            batch.content().copy_to(at, &mut value);
            value
        };
        let requests = batch.requests().iter().map(|request| {
            let value = value(request.value_at, request.value_bytes);
            (request.key, (request.kind == RequestKind::Store).then_some(value))
        });
        submit(drive, batch.clone(), requests.collect());
    }
}

/// Applies a command that is under way and answers it to `client`; `false`: there was none.
fn answer_one(client: &mut Client, drive: &Shared) -> bool {
    let mut state = lock(drive);
    let under_way = state.under_way.len();
    if under_way == 0 {
        return false;
    }
    let at = shuttle::rand::thread_rng().gen_range(0..under_way);
    // It stays under way until it has been answered, like a command whose completion was not read.
    let (batch, requests) = state.under_way[at].clone();
    for (key, value) in requests {
        match value {
            Some(value) => drop(state.pairs.insert(key, value)),
            None => drop(state.pairs.remove(&key)),
        }
    }
    state.under_way.swap_remove(at);
    drop(state);
    client.complete(&batch, Status::SUCCESS, u32::MAX, &mut NoSteps);
    send(client, drive);
    true
}

fn wait(client: &mut Client, drive: &Shared, batch: &Batch) {
    while !batch.is_answered() {
        send(client, drive);
        if !answer_one(client, drive) {
            thread::yield_now();
        }
    }
}

fn put(client: &mut Client, drive: &Shared, number: u64, value: &[u8]) {
    loop {
        let write = client.store(key(number), Piece::Bytes(value), StoreOptions::default(), &mut NoSteps);
        send(client, drive);
        match write {
            Write::Buffered => return,
            Write::Refused(status) => panic!("{status}"),
            Write::Wait(batch) => wait(client, drive, &batch),
            Write::Bypass(batch) => {
                submit(drive, batch.clone(), vec![(key(number), Some(value.to_vec()))]);
                return wait(client, drive, &batch);
            }
        }
    }
}

fn get(client: &mut Client, drive: &Shared, number: u64) -> Option<Vec<u8>> {
    loop {
        let mut into = Region::new();
        let read = client.retrieve(key(number), &mut into, &mut NoSteps);
        send(client, drive);
        match read {
            Read::Found(bytes) => return Some(into.to_bytes(bytes)),
            Read::Missing => return None,
            Read::Wait(batch) => wait(client, drive, &batch),
            Read::Ask(ask) => {
                let value = lock(drive).pairs.get(&key(number)).cloned()?;
                client.fill(ask, &Region::from_bytes(value.clone()), value.len() as u32, &mut NoSteps);
                return Some(value);
            }
        }
    }
}

fn sync(client: &mut Client, drive: &Shared) {
    loop {
        let sync = client.sync(&mut NoSteps);
        send(client, drive);
        match sync {
            Sync::Wait(batch) => wait(client, drive, &batch),
            Sync::Done(failures) => return assert_eq!(failures, []),
        }
    }
}

fn config(batch: BatchSize) -> SakerConfig {
    let mut config =
        SakerConfig { batch, buckets: 2, in_flight: 2, container_bytes: 100, ..SakerConfig::default() };
    (config.cache.bytes, config.cache.charge) = (1000, crate::Charge::Content { beside: 0 });
    config
}

/// Threads write the same keys crosswise, some values too large for a container, and read them; in the end
/// the drive has the values that were readable last.
fn writers(config: SakerConfig, threads: u64) {
    let saker = Saker::new(config).unwrap();
    let drive = Shared::default();
    let run = |who: u64| {
        let (mut client, drive) = (saker.client(), drive.clone());
        thread::spawn(move || {
            for step in 0..3u64 {
                // Each thread goes through the keys in another order.
                let number = (step * (who + 1) + who) % 3;
                let value =
                    [vec![who as u8, step as u8], vec![0; if step == 2 { 100 * who as usize } else { 0 }]];
                put(&mut client, &drive, number, &value.concat());
                let own = 10 + who;
                put(&mut client, &drive, own, &[step as u8]);
                let found = get(&mut client, &drive, own);
                assert_eq!(found, Some(vec![step as u8]), "no other client writes this key");
                get(&mut client, &drive, (number + 1) % 3);
            }
            if who == 0 {
                sync(&mut client, &drive);
                assert_eq!(lock(&drive).pairs[&key(10)], [2]);
            }
            client
        })
    };
    let running: Vec<_> = (0..threads).map(run).collect();
    let mut clients: Vec<Client> = running.into_iter().map(|thread| thread.join().unwrap()).collect();
    let readable: Vec<_> = (0..3).map(|number| get(&mut clients[0], &drive, number)).collect();
    clients.iter_mut().for_each(|client| sync(client, &drive));
    let stored = |number| lock(&drive).pairs.get(&key(number)).cloned();
    assert_eq!((0..3).map(stored).collect::<Vec<_>>(), readable);
    // Cache and drive have the same values.
    let cached: Vec<_> = (0..3).map(|number| get(&mut clients[0], &drive, number)).collect();
    assert_eq!(cached, readable);
    assert_eq!(saker.pending_bytes(), 0);
}

#[test]
fn writers_of_the_same_keys() {
    in_many_orders(|| writers(config(BatchSize::Fixed(3)), 3), 1500);
}

#[test]
fn writers_of_the_same_keys_with_few_switches() {
    in_many_orders_by(PctScheduler::new_from_seed(7, 4, 1500), || writers(config(BatchSize::Fixed(2)), 2));
}

#[test]
fn adaptive_writers() {
    in_many_orders(|| writers(config(BatchSize::Adaptive), 2), 1000);
}

#[test]
fn writers_of_one_container() {
    let shared = || SakerConfig { containers: crate::Containers::Shared, ..config(BatchSize::Fixed(3)) };
    in_many_orders(move || writers(shared(), 2), 1000);
}

/// One thread retrieves while another one writes: when both are done, the cache has the drive's version or
/// none.
#[test]
fn a_fill_beside_a_write() {
    let run = || {
        let saker = Saker::new(config(BatchSize::Fixed(1))).unwrap();
        let drive = Shared::default();
        lock(&drive).pairs.insert(key(1), b"old".to_vec());
        let (mut reader, mut writer, read, written) =
            (saker.client(), saker.client(), drive.clone(), drive.clone());
        let reading = thread::spawn(move || get(&mut reader, &read, 1).unwrap());
        let writing = thread::spawn(move || {
            put(&mut writer, &written, 1, b"new");
            sync(&mut writer, &written);
            assert_eq!(get(&mut writer, &written, 1).unwrap(), b"new", "after its own write");
        });
        let found = reading.join().unwrap();
        assert!(found == b"old" || found == b"new");
        writing.join().unwrap();
        assert_eq!(get(&mut saker.client(), &drive, 1).unwrap(), b"new");
    };
    in_many_orders(run, 3000);
}

/// A client is dropped while another one writes the same key: no write is lost, and no client waits for ever.
#[test]
fn a_client_is_dropped_beside_another() {
    let run = || {
        let saker = Saker::new(config(BatchSize::Fixed(3))).unwrap();
        let drive = Shared::default();
        let (mut a, mut b, to_drive) = (saker.client(), saker.client(), drive.clone());
        let dropped = thread::spawn(move || {
            put(&mut a, &to_drive, 1, b"a");
            put(&mut a, &to_drive, 2, b"a");
        });
        put(&mut b, &drive, 1, b"b");
        put(&mut b, &drive, 3, b"b");
        sync(&mut b, &drive);
        dropped.join().unwrap();
        // This call takes over the batches that are left.
        assert_eq!(get(&mut b, &drive, 2).unwrap(), b"a");
        while answer_one(&mut b, &drive) {}
        assert_eq!(saker.pending_bytes(), 0);
        assert_eq!(lock(&drive).pairs.len(), 3);
    };
    in_many_orders(run, 2000);
}

mod ends;
