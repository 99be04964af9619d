//! The threaded runner in front of a drive with I/O threads, which execute in any order and answer from their
//! own threads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::batch::{BatchReader, RequestKind};
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_saker::counters::Count;
use kvdrive_saker::threaded::{Command, Completion, Drive, DriveOff, Error, Handle, Queue, Threaded};
use kvdrive_saker::{BatchSize, SakerConfig};
use kvdrive_sim::Rng;

use crate::drive::{key, saker};

pub enum Work {
    Write(Vec<(Key, Option<Vec<u8>>)>, StoreOptions),
    Retrieve(Key),
    Exist(Key),
}

#[derive(Default)]
pub struct Inside {
    pub pairs: Mutex<BTreeMap<Key, Vec<u8>>>,
    work: Mutex<Vec<(Arc<Ring>, u32, Work)>>,
    has_work: Condvar,
    is_off: AtomicBool,
    /// A batch with this key fails.
    failing: Mutex<Option<Key>>,
    /// Queues that exist now, and the most that existed at a time.
    queues: AtomicU64,
    most_queues: AtomicU64,
}

/// A queue's completions, and the keys of its writes under way.
#[derive(Default)]
pub struct Ring {
    answers: Mutex<VecDeque<Completion>>,
    has_answer: Condvar,
    under_way: AtomicU64,
}

/// A drive with I/O threads; each takes any command.
pub struct IoThreads(Arc<Inside>, Vec<JoinHandle<()>>);

impl IoThreads {
    fn new(threads: u64) -> IoThreads {
        let inside = Arc::<Inside>::default();
        let run = |thread| {
            let inside = inside.clone();
            std::thread::spawn(move || inside.run(Rng::stream(thread, "I/O thread")))
        };
        IoThreads(inside.clone(), (0..threads).map(run).collect())
    }
}

impl Drop for IoThreads {
    fn drop(&mut self) {
        self.0.turn_off();
        self.1.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

impl Inside {
    fn turn_off(&self) {
        let work = self.work.lock().unwrap();
        self.is_off.store(true, Ordering::SeqCst);
        for (ring, ..) in work.iter() {
            ring.has_answer.notify_all();
        }
        self.has_work.notify_all();
    }

    fn run(&self, mut rng: Rng) {
        let mut work = self.work.lock().unwrap();
        while !self.is_off.load(Ordering::SeqCst) {
            if work.is_empty() {
                work = self.has_work.wait(work).unwrap();
                continue;
            }
            let at = rng.below(work.len() as u64) as usize;
            let (ring, ticket, what) = work.swap_remove(at);
            drop(work);
            let (status, dw0, value) = self.execute(what);
            ring.answers.lock().unwrap().push_back(Completion { ticket, status, dw0, value });
            ring.has_answer.notify_all();
            work = self.work.lock().unwrap();
        }
    }

    fn execute(&self, work: Work) -> (Status, u32, Region) {
        let mut pairs = self.pairs.lock().unwrap();
        let found = |key: &Key| pairs.get(key).cloned().ok_or(Status::KEY_NOT_FOUND);
        match work {
            Work::Retrieve(key) => match found(&key) {
                Ok(value) => (Status::SUCCESS, value.len() as u32, Region::from_bytes(value)),
                Err(status) => (status, 0, Region::new()),
            },
            Work::Exist(key) => {
                (found(&key).map_or_else(|status| status, |_| Status::SUCCESS), 0, Region::new())
            }
            Work::Write(requests, options) => {
                let failing = *self.failing.lock().unwrap();
                for (applied, (key, value)) in requests.into_iter().enumerate() {
                    if options.add_only && pairs.contains_key(&key) {
                        return (Status::KEY_EXISTS, 0, Region::new());
                    }
                    if failing == Some(key) {
                        return (Status::CAPACITY_EXCEEDED, applied as u32, Region::new());
                    }
                    match value {
                        Some(value) => drop(pairs.insert(key, value)),
                        None => drop(pairs.remove(&key)),
                    }
                }
                (Status::SUCCESS, u32::MAX, Region::new())
            }
        }
    }
}

pub struct RingQueue(Arc<Inside>, Arc<Ring>);

/// Commands that fit a queue.
const ROOM: u64 = 4;

impl Drive for IoThreads {
    type Queue = RingQueue;

    fn queue(&self) -> Result<RingQueue, DriveOff> {
        let queues = self.0.queues.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most_queues.fetch_max(queues, Ordering::SeqCst);
        Ok(RingQueue(self.0.clone(), Arc::default()))
    }
}

impl Drop for RingQueue {
    fn drop(&mut self) {
        self.0.queues.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Queue for RingQueue {
    fn submit(&self, ticket: u32, command: Command<'_>) -> Result<bool, DriveOff> {
        let RingQueue(inside, ring) = self;
        if inside.is_off.load(Ordering::SeqCst) {
            return Err(DriveOff);
        }
        if ring.under_way.load(Ordering::SeqCst) >= ROOM {
            return Ok(false);
        }
        let value = |content: &Region, at: u32, bytes: u32| {
            let mut value = vec![0; bytes as usize];
            content.copy_to(at, &mut value);
            value
        };
        let plain = StoreOptions::default();
        let what = match command {
            Command::Retrieve { key } => Work::Retrieve(key),
            Command::Exist { key } => Work::Exist(key),
            Command::Delete { key } => Work::Write(vec![(key, None)], plain),
            Command::Store { key, content, at, bytes, options } => {
                Work::Write(vec![(key, Some(value(content, at, bytes)))], options)
            }
            Command::Batch { content, bytes } => {
                let mut reader = BatchReader::new(bytes, |at, out| content.copy_to(at, out)).unwrap();
                reader.check().unwrap();
                let requests = reader.map(|request| {
                    let request = request.unwrap();
                    let value = value(content, request.value_at, request.value_bytes);
                    (request.key, (request.kind == RequestKind::Store).then_some(value))
                });
                Work::Write(requests.collect(), plain)
            }
        };
        ring.under_way.fetch_add(1, Ordering::SeqCst);
        inside.work.lock().unwrap().push((ring.clone(), ticket, what));
        inside.has_work.notify_one();
        Ok(true)
    }

    fn completion(&self, wait: bool) -> Result<Option<Completion>, DriveOff> {
        let RingQueue(inside, ring) = self;
        let mut answers = ring.answers.lock().unwrap();
        loop {
            if let Some(completion) = answers.pop_front() {
                ring.under_way.fetch_sub(1, Ordering::SeqCst);
                return Ok(Some(completion));
            }
            if inside.is_off.load(Ordering::SeqCst) {
                return Err(DriveOff);
            }
            if !wait {
                return Ok(None);
            }
            // The wait ends after 20 ms, to look whether the drive is off.
            answers = ring.has_answer.wait_timeout(answers, std::time::Duration::from_millis(20)).unwrap().0;
        }
    }
}

pub fn open(config: SakerConfig, io_threads: u64) -> (Arc<Threaded<IoThreads>>, Arc<Inside>) {
    let drive = IoThreads::new(io_threads);
    let inside = drive.0.clone();
    (Threaded::new(saker(config), drive, Arc::new(|| 0)), inside)
}

fn get(handle: &mut Handle<IoThreads>, number: u64) -> Option<Vec<u8>> {
    let mut into = Region::new();
    match handle.retrieve(key(number), &mut into) {
        Ok(bytes) => Some(into.to_bytes(bytes)),
        Err(Error::Status(Status::KEY_NOT_FOUND)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Four threads write keys of their own and common ones, read, delete and sync.
fn busy(config: SakerConfig, seed: u64) {
    let (threaded, inside) = open(config, 8);
    let run = |who: u64| {
        let (threaded, inside) = (threaded.clone(), inside.clone());
        std::thread::spawn(move || {
            let mut handle = threaded.connect().unwrap();
            let mut rng = Rng::stream(seed * 100 + who, "thread");
            let mut own = BTreeMap::new();
            for step in 0..1500u64 {
                let number = 1000 * (who + 1) + rng.below(20);
                let mut value = step.to_le_bytes().to_vec();
                value.resize(8 + [0, 20, 100, 5000][rng.below(4) as usize], who as u8);
                match rng.below(10) {
                    0..4 => {
                        handle.store(key(number), Piece::Bytes(&value)).unwrap();
                        own.insert(number, value);
                    }
                    4 => {
                        handle.delete(key(number)).unwrap();
                        own.remove(&number);
                    }
                    5 => handle.store(key(rng.below(10)), Piece::Bytes(&value)).unwrap(),
                    6 => drop(get(&mut handle, rng.below(10))),
                    7 => assert_eq!(handle.exist(key(number)).unwrap(), own.contains_key(&number)),
                    8 if rng.one_in(20) => {
                        handle.sync().unwrap();
                        let pairs = inside.pairs.lock().unwrap();
                        let mine = key(1000 * (who + 1))..key(1000 * (who + 2));
                        let stored: Vec<_> = pairs.range(mine).map(|(_, value)| value).collect();
                        assert_eq!(stored, own.values().collect::<Vec<_>>());
                    }
                    _ => assert_eq!(get(&mut handle, number), own.get(&number).cloned()),
                }
            }
            handle
        })
    };
    let running: Vec<_> = (0..4).map(run).collect();
    let mut handles: Vec<_> = running.into_iter().map(|thread| thread.join().unwrap()).collect();
    let readable: Vec<_> = (0..10).map(|number| get(&mut handles[0], number)).collect();
    // A thread that syncs takes the completions of idle threads' queues.
    handles.iter_mut().for_each(|handle| handle.sync().unwrap());
    let stored = |number| inside.pairs.lock().unwrap().get(&key(number)).cloned();
    assert_eq!((0..10).map(stored).collect::<Vec<_>>(), readable);
    assert_eq!(threaded.saker().pending_bytes(), 0);
}

#[test]
fn busy_threads() {
    let batches = [BatchSize::Fixed(1), BatchSize::Fixed(8), BatchSize::Fixed(64), BatchSize::Adaptive];
    for (seed, batch) in batches.into_iter().enumerate() {
        let mut config = SakerConfig { batch, in_flight: 6, ..SakerConfig::default() };
        config.cache.charge = kvdrive_saker::Charge::Content { beside: 0 };
        config.cache.bytes = 2000;
        busy(config, seed as u64);
    }
}

#[test]
fn busy_threads_of_one_container() {
    busy(SakerConfig { containers: kvdrive_saker::Containers::Shared, ..SakerConfig::default() }, 9);
}

/// The batch's owner makes no call: a thread that needs the key gets the batch answered nevertheless.
#[test]
fn an_idle_threads_batch() {
    let (threaded, inside) = open(SakerConfig { batch: BatchSize::Fixed(2), ..SakerConfig::default() }, 2);
    let (mut idle, mut busy) = (threaded.connect().unwrap(), threaded.connect().unwrap());
    for number in [1, 2, 3] {
        idle.store(key(number), Piece::Bytes(b"idle")).unwrap();
    }
    for number in [1, 3] {
        busy.store(key(number), Piece::Bytes(b"busy")).unwrap();
    }
    busy.sync().unwrap();
    assert_eq!(inside.pairs.lock().unwrap()[&key(1)], b"busy");
    assert_eq!(inside.pairs.lock().unwrap()[&key(3)], b"busy");
    assert_eq!(idle.unsynced(), 0);
    // Both store large values, crosswise.
    idle.store(key(1), Piece::Bytes(b"small")).unwrap();
    busy.store(key(1), Piece::Bytes(&[1; 5000])).unwrap();
    assert_eq!(get(&mut idle, 1), Some(vec![1; 5000]));
}

#[test]
fn failures_are_named() {
    let (threaded, inside) = open(SakerConfig::default(), 2);
    *inside.failing.lock().unwrap() = Some(key(2));
    let mut handle = threaded.connect().unwrap();
    for number in [1, 2, 3] {
        handle.store(key(number), Piece::Bytes(b"v")).unwrap();
    }
    let Err(Error::Failed(failures)) = handle.sync() else { panic!("two requests fail") };
    assert_eq!(failures.iter().map(|failure| failure.key).collect::<Vec<_>>(), [key(2), key(3)]);
    let text = Error::Failed(failures).to_string();
    assert_eq!(text, "2 requests failed, the first for key 0000000000000002: capacity exceeded (81h)");
    let large = handle.store(key(2), Piece::Bytes(&[0; 5000]));
    assert_eq!(large, Err(Error::Status(Status::CAPACITY_EXCEEDED)), "at once, to its caller");
    let add = StoreOptions { add_only: true, ..StoreOptions::default() };
    let added = handle.store_with(key(1), Piece::Bytes(b"w"), add);
    assert_eq!(added, Err(Error::Status(Status::KEY_EXISTS)));
    handle.sync().unwrap();
    handle.close().unwrap();
}

#[test]
fn a_dropped_handle_and_a_drive_that_goes_off() {
    let (threaded, inside) = open(SakerConfig::default(), 2);
    let (mut dropped, mut other) = (threaded.connect().unwrap(), threaded.connect().unwrap());
    dropped.store(key(1), Piece::Bytes(b"v")).unwrap();
    drop(dropped);
    assert_eq!(threaded.saker().count(Count::Unsynced), 1);
    assert_eq!(get(&mut other, 1), Some(b"v".to_vec()));
    other.store(key(1), Piece::Bytes(b"w")).unwrap();
    other.sync().unwrap();
    assert_eq!(inside.pairs.lock().unwrap()[&key(1)], b"w");
    other.store(key(2), Piece::Bytes(b"v")).unwrap();
    inside.turn_off();
    assert_eq!(other.sync(), Err(Error::Off(DriveOff)));
    assert_eq!(other.sync(), Err(Error::Off(DriveOff)), "it does not become durable by asking again");
    assert_eq!(other.unsynced(), 1);
}

/// Threads begin and end with handles of their own, some of which are dropped with batches in containers,
/// under way or held until batches of others are answered. No remaining thread waits for them in vain, and
/// their queues are dropped, too.
#[test]
fn handles_that_end_leave_no_waiter_and_no_queue() {
    const THREADS: u64 = 4;
    let config = SakerConfig { batch: BatchSize::Fixed(3), in_flight: 2, ..SakerConfig::default() };
    let (threaded, inside) = open(config, 2);
    let (ended, has_ended) = std::sync::mpsc::channel();
    for who in 0..THREADS {
        let (threaded, ended) = (threaded.clone(), ended.clone());
        std::thread::spawn(move || {
            let mut rng = Rng::stream(who, "thread");
            for life in 0..150u64 {
                let mut handle = threaded.connect().unwrap();
                for _ in 0..rng.below(12) {
                    let value = (life << 8 | who).to_le_bytes();
                    match rng.below(6) {
                        0 => drop(get(&mut handle, rng.below(6))),
                        1 => handle.delete(key(rng.below(6))).unwrap(),
                        2 => handle.store(key(rng.below(6)), Piece::Bytes(&[7; 5000])).unwrap(),
                        3 => handle.sync().unwrap(),
                        _ => handle.store(key(rng.below(6)), Piece::Bytes(&value)).unwrap(),
                    }
                }
                if rng.one_in(2) {
                    handle.close().unwrap();
                }
            }
            ended.send(()).unwrap();
        });
    }
    for _ in 0..THREADS {
        let waited = has_ended.recv_timeout(std::time::Duration::from_secs(60));
        waited.expect("no thread waits for ever, and none fails");
    }
    // The next handle finds the batches that the others had sent, and sends those that they had not.
    let mut last = threaded.connect().unwrap();
    for number in 0..6 {
        let readable = get(&mut last, number);
        last.store(key(number), Piece::Bytes(b"last")).unwrap();
        last.sync().unwrap();
        assert_eq!(get(&mut last, number), Some(b"last".to_vec()), "it was {readable:?}");
    }
    drop(last);
    let most = inside.most_queues.load(Ordering::SeqCst);
    assert!(most <= 4 * THREADS, "{most} queues at a time for {THREADS} threads");
    assert!(inside.queues.load(Ordering::SeqCst) <= 1, "of one that was left and not yet found idle");
    assert!(
        threaded.saker().count(Count::Unsynced) > 0,
        "some were dropped with writes that were not waited for"
    );
}
