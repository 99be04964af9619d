//! SAKER on threads: the library that applications link, in front of any drive with queues.
//!
//! ```text
//!  thread: Handle ── Client (what to do) ──► Queue of this thread ──► drive
//!                        ▲                        │
//!                        └── completions, taken by whoever waits ◄────┘
//! ```
//!
//! No thread of its own. Completions of a queue are taken by the thread that waits for one of them, its
//! owner or another one: a thread that must wait for another thread's batch takes that one's completions, for
//! its owner may never call again. Who takes a completion tells the core of it before the next one is taken, so
//! that whoever waits for the queue looks first whether what it waits for has come.
//!
//! A [`Handle`] holds at most one queue's completions at a time and sends nothing while it does: nobody can
//! wait in a circle.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use kvdrive_content::{Piece, Region};
use kvdrive_spec::{Key, Status, StoreOptions};

use crate::batch::{Batch, Payload, Whereabouts};
use crate::client::{Client, Failure, Read, Sync, Write};
use crate::saker::{ClientId, Saker};
use crate::steps::{Step, Steps};
use crate::transaction::{Commit, Ending, Transaction};

/// What a queue is asked to send.
#[derive(Clone, Copy, Debug)]
pub enum Command<'a> {
    /// A batch command: its value is the first `bytes` bytes of `content`.
    Batch {
        /// The structured value.
        content: &'a Region,
        /// Its size.
        bytes: u32,
    },
    /// A Store whose value lies in `content` from byte `at` on.
    Store {
        /// The key.
        key: Key,
        /// Where the value lies.
        content: &'a Region,
        /// Its first byte there.
        at: u32,
        /// Its size.
        bytes: u32,
        /// Options.
        options: StoreOptions,
    },
    /// A Delete.
    Delete {
        /// The key.
        key: Key,
    },
    /// A Retrieve of the whole value.
    Retrieve {
        /// The key.
        key: Key,
    },
    /// An Exist.
    Exist {
        /// The key.
        key: Key,
    },
}

/// What a drive has answered to a command.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The number under which the command was sent.
    pub ticket: u32,
    /// How it went.
    pub status: Status,
    /// DW0: of a batch, requests applied; of a Retrieve, size of the value.
    pub dw0: u32,
    /// Of a Retrieve that succeeded, the value.
    pub value: Region,
}

/// The drive is off: what was sent is not answered, and nothing more can be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the drive is off")]
pub struct DriveOff;

/// A drive that several threads use.
pub trait Drive: Send + std::marker::Sync {
    /// Its queues.
    type Queue: Queue;

    /// A queue for one client.
    ///
    /// # Errors
    /// The drive is off.
    fn queue(&self) -> Result<Self::Queue, DriveOff>;
}

/// A queue pair. Any thread may call, also while another one waits in [`Queue::completion`].
pub trait Queue: Send + std::marker::Sync {
    /// Sends a command under a number that no unanswered command of this queue has; what it names is copied or
    /// pinned. `false`: there is no room, and nothing has happened.
    ///
    /// # Errors
    /// The drive is off.
    fn submit(&self, ticket: u32, command: Command<'_>) -> Result<bool, DriveOff>;

    /// The next completion. Without one: `None` if `wait` is false; else this thread waits, also for ever if
    /// nothing is under way.
    ///
    /// # Errors
    /// The drive is off.
    fn completion(&self, wait: bool) -> Result<Option<Completion>, DriveOff>;
}

/// Why a call has failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The drive answered so, or would have.
    #[error("{0}")]
    Status(#[from] Status),
    /// Requests of this client that were buffered have failed since its last sync.
    #[error("{} requests failed, the first for key {}: {}", .0.len(), .0[0].key, .0[0].status)]
    Failed(Vec<Failure>),
    /// The drive is off.
    #[error(transparent)]
    Off(#[from] DriveOff),
}

/// Where the thread that made a call finds what was answered.
type Slot = Arc<Mutex<Option<Completion>>>;

/// Whose command it is that is under way: a batch's, a call's, or both of a write that goes on its own.
struct Waiting {
    batch: Option<Arc<Batch>>,
    slot: Option<Slot>,
}

/// How a write goes on.
enum Next {
    Done,
    Again,
    Alone(Arc<Batch>),
}

/// A client's queue, and what is under way in it.
struct Carrier<Q> {
    queue: Q,
    /// Held while completions are taken.
    taking: Mutex<()>,
    under_way: Mutex<Vec<Option<Waiting>>>,
    /// Its handle is gone: nothing more is sent here.
    is_left: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<Q: Queue> Carrier<Q> {
    /// Notes that a command goes out; returns its number.
    fn enter(&self, waiting: Waiting) -> u32 {
        let mut under_way = lock(&self.under_way);
        let free = under_way.iter().position(Option::is_none);
        let ticket = free.unwrap_or_else(|| {
            under_way.push(None);
            under_way.len() - 1
        });
        under_way[ticket] = Some(waiting);
        ticket as u32
    }

    fn leave(&self, ticket: u32) -> Waiting {
        lock(&self.under_way)[ticket as usize].take().expect("a completion belongs to a command under way")
    }

    fn has(&self, batch: &Arc<Batch>) -> bool {
        let is_it = |waiting: &Waiting| waiting.batch.as_ref().is_some_and(|other| Arc::ptr_eq(other, batch));
        lock(&self.under_way).iter().flatten().any(is_it)
    }

    /// Nothing was sent here that has not been answered, and nothing will be.
    fn is_over(&self) -> bool {
        self.is_left.load(Ordering::SeqCst) && lock(&self.under_way).iter().all(Option::is_none)
    }
}

/// The time in ns, where requests may grow old.
pub type Clock = Arc<dyn Fn() -> u64 + Send + std::marker::Sync>;

/// SAKER in front of a drive, for threads.
pub struct Threaded<D: Drive> {
    saker: Arc<Saker>,
    drive: D,
    /// A queue outlives its handle, as long as something is under way in it.
    carriers: RwLock<BTreeMap<ClientId, Arc<Carrier<D::Queue>>>>,
    clock: Clock,
}

impl<D: Drive> Threaded<D> {
    /// SAKER in front of `drive`. The clock is asked only if `max_age_ns` is set.
    pub fn new(saker: Arc<Saker>, drive: D, clock: Clock) -> Arc<Threaded<D>> {
        Arc::new(Threaded { saker, drive, carriers: RwLock::default(), clock })
    }

    /// A handle, for one thread. It takes what was answered to handles that are gone, whose queues are given up
    /// then.
    ///
    /// # Errors
    /// The drive is off.
    pub fn connect(self: &Arc<Threaded<D>>) -> Result<Handle<D>, DriveOff> {
        let queue = self.drive.queue()?;
        let carrier = Arc::new(Carrier {
            queue,
            taking: Mutex::default(),
            under_way: Mutex::default(),
            is_left: AtomicBool::new(false),
        });
        let client = self.saker.client();
        let mut carriers = self.carriers.write().unwrap_or_else(PoisonError::into_inner);
        let left: Vec<_> =
            carriers.values().filter(|other| other.is_left.load(Ordering::SeqCst)).cloned().collect();
        carriers.insert(client.id(), carrier.clone());
        drop(carriers);
        let mut handle = Handle { shared: self.clone(), client, carrier };
        for carrier in left {
            while handle.take(&carrier, || false, false)? {}
        }
        handle.send()?;
        self.forget_those_over();
        Ok(handle)
    }

    fn forget_those_over(&self) {
        let mut carriers = self.carriers.write().unwrap_or_else(PoisonError::into_inner);
        carriers.retain(|_, carrier| !carrier.is_over());
    }

    /// What clients share: settings and counts.
    pub fn saker(&self) -> &Arc<Saker> {
        &self.saker
    }

    /// A client's queue; `None`: it is gone, and all that was sent there has been taken.
    fn carrier(&self, id: ClientId) -> Option<Arc<Carrier<D::Queue>>> {
        self.carriers.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }
}

/// Steps take their own time here; only the clock is asked.
struct WallTime<'a>(&'a Clock);

impl Steps for WallTime<'_> {
    #[inline]
    fn step(&mut self, _: Step) {}

    fn now_ns(&self) -> u64 {
        (self.0)()
    }
}

/// One thread's way to the drive. Dropping it leaves what was not synced to the other threads and counts it;
/// [`Handle::close`] syncs.
pub struct Handle<D: Drive> {
    shared: Arc<Threaded<D>>,
    client: Client,
    carrier: Arc<Carrier<D::Queue>>,
}

impl<D: Drive> Handle<D> {
    /// Writes a pair; it is volatile until [`Handle::sync`].
    ///
    /// # Errors
    /// Of a value too large for a container, what the drive answered; the drive is off.
    pub fn store(&mut self, key: Key, value: Piece<'_>) -> Result<(), Error> {
        self.store_with(key, value, StoreOptions::default())
    }

    /// Writes a pair if its condition holds.
    ///
    /// # Errors
    /// [`Status::KEY_EXISTS`], [`Status::KEY_NOT_FOUND`]; as [`Handle::store`].
    pub fn store_with(&mut self, key: Key, value: Piece<'_>, options: StoreOptions) -> Result<(), Error> {
        let shared = self.shared.clone();
        loop {
            let write = self.client.store(key, value, options, &mut WallTime(&shared.clock));
            match self.after_write(write)? {
                Next::Done => return Ok(()),
                Next::Again => {}
                Next::Alone(batch) => {
                    let (mut content, bytes) = (Region::new(), value.bytes());
                    content.write(0, value);
                    let store = Command::Store { key, content: &content, at: 0, bytes, options };
                    return self.call(Some(batch), store).map(drop);
                }
            }
        }
    }

    /// Removes a pair; removing what is not there succeeds.
    ///
    /// # Errors
    /// As [`Handle::store`].
    pub fn delete(&mut self, key: Key) -> Result<(), Error> {
        let shared = self.shared.clone();
        loop {
            let write = self.client.delete(key, &mut WallTime(&shared.clock));
            match self.after_write(write)? {
                Next::Done => return Ok(()),
                Next::Again => {}
                Next::Alone(batch) => return self.call(Some(batch), Command::Delete { key }).map(drop),
            }
        }
    }

    /// Reads a pair's value to byte 0 of `into`; returns its size.
    ///
    /// # Errors
    /// [`Status::KEY_NOT_FOUND`] and what else the drive answered; the drive is off.
    pub fn retrieve(&mut self, key: Key, into: &mut Region) -> Result<u32, Error> {
        self.read(key, into, |client, into, steps| client.retrieve(key, into, steps))
    }

    fn read(
        &mut self,
        key: Key,
        into: &mut Region,
        mut ask: impl FnMut(&mut Client, &mut Region, &mut WallTime<'_>) -> Read,
    ) -> Result<u32, Error> {
        let shared = self.shared.clone();
        loop {
            let read = ask(&mut self.client, into, &mut WallTime(&shared.clock));
            self.send()?;
            match read {
                Read::Found(bytes) => return Ok(bytes),
                Read::Missing => return Err(Status::KEY_NOT_FOUND.into()),
                Read::Wait(batch) => self.wait_for(&batch)?,
                Read::Ask(ask) => {
                    let answer = self.call(None, Command::Retrieve { key })?;
                    self.client.fill(ask, &answer.value, answer.dw0, &mut WallTime(&shared.clock));
                    *into = answer.value;
                    return Ok(answer.dw0);
                }
            }
        }
    }

    /// Whether a pair is there.
    ///
    /// # Errors
    /// What the drive answered; the drive is off.
    pub fn exist(&mut self, key: Key) -> Result<bool, Error> {
        let shared = self.shared.clone();
        loop {
            let read = self.client.exist(key, &mut WallTime(&shared.clock));
            self.send()?;
            match read {
                Read::Found(_) => return Ok(true),
                Read::Missing => return Ok(false),
                Read::Wait(batch) => self.wait_for(&batch)?,
                Read::Ask(_) => {
                    return match self.call(None, Command::Exist { key }) {
                        Ok(_) => Ok(true),
                        Err(Error::Status(Status::KEY_NOT_FOUND)) => Ok(false),
                        Err(error) => Err(error),
                    };
                }
            }
        }
    }

    /// A transaction: what it writes is carried out wholly or not at all, and only if nobody else has written what
    /// it read ([`crate::transaction`]).
    pub fn transaction(&mut self) -> InTransaction<'_, D> {
        InTransaction { transaction: self.client.begin(), handle: self }
    }

    /// Waits until all that this handle wrote before is durable.
    ///
    /// # Errors
    /// Every buffered request that has failed since the last sync; the drive is off.
    pub fn sync(&mut self) -> Result<(), Error> {
        let shared = self.shared.clone();
        loop {
            let sync = self.client.sync(&mut WallTime(&shared.clock));
            self.send()?;
            match sync {
                Sync::Wait(batch) => self.wait_for(&batch)?,
                Sync::Done(failures) if failures.is_empty() => return Ok(()),
                Sync::Done(failures) => return Err(Error::Failed(failures)),
            }
        }
    }

    /// Syncs, and ends the handle.
    ///
    /// # Errors
    /// As [`Handle::sync`].
    pub fn close(mut self) -> Result<(), Error> {
        self.sync()
    }

    /// Requests that are not known to be durable.
    pub fn unsynced(&self) -> u64 {
        self.client.unsynced()
    }

    /// Sends every thread's requests that are `max_age_ns` old; returns when the next ones will be, in ns of the
    /// clock. A thread that is in no call sends nothing: whoever wants the bound kept for it calls this.
    ///
    /// # Errors
    /// The drive is off.
    pub fn send_overdue(&mut self) -> Result<Option<u64>, DriveOff> {
        let shared = self.shared.clone();
        let next_ns = self.client.send_overdue(&mut WallTime(&shared.clock));
        self.send()?;
        Ok(next_ns)
    }

    fn after_write(&mut self, write: Write) -> Result<Next, Error> {
        if self.send()? > 0 {
            self.take_what_is_there()?;
        }
        Ok(match write {
            Write::Buffered => Next::Done,
            Write::Refused(status) => return Err(status.into()),
            Write::Bypass(batch) => Next::Alone(batch),
            Write::Wait(batch) => {
                self.wait_for(&batch)?;
                Next::Again
            }
        })
    }

    /// Sends what the core hands out; returns how many batches that was.
    fn send(&mut self) -> Result<u32, DriveOff> {
        let mut sent = 0;
        while let Some(batch) = self.client.next_batch() {
            let waiting = Waiting { batch: Some(batch.clone()), slot: None };
            let content = batch.content();
            let command = match batch.payload() {
                Payload::Batch { bytes, .. } => Command::Batch { content, bytes },
                Payload::Delete { key } => Command::Delete { key },
                Payload::Store { key, at, bytes } => {
                    Command::Store { key, content, at, bytes, options: StoreOptions::default() }
                }
            };
            self.submit(waiting, command)?;
            sent += 1;
        }
        Ok(sent)
    }

    fn submit(&mut self, waiting: Waiting, command: Command<'_>) -> Result<(), DriveOff> {
        let carrier = self.carrier.clone();
        let ticket = carrier.enter(waiting);
        while !carrier.queue.submit(ticket, command)? {
            // Full. Another thread may be taking completions, so this one does not wait for any.
            if !self.take(&carrier, || false, false)? {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Sends a command on its own and waits for its answer.
    fn call(&mut self, batch: Option<Arc<Batch>>, command: Command<'_>) -> Result<Completion, Error> {
        let slot = Slot::default();
        self.submit(Waiting { batch, slot: Some(slot.clone()) }, command)?;
        let carrier = self.carrier.clone();
        loop {
            let answer = lock(&slot).take();
            if let Some(answer) = answer {
                self.send()?;
                return if answer.status.is_success() { Ok(answer) } else { Err(answer.status.into()) };
            }
            self.take(&carrier, || lock(&slot).is_some(), true)?;
            self.send()?;
        }
    }

    /// Waits until a batch has been answered, whoever sends it, and whatever it waits for itself.
    fn wait_for(&mut self, batch: &Arc<Batch>) -> Result<(), DriveOff> {
        let mut current = batch.clone();
        while !batch.is_answered() {
            match current.whereabouts() {
                Whereabouts::Answered => current = batch.clone(),
                Whereabouts::Behind(older) => current = older,
                Whereabouts::With(id) => {
                    let carrier = self.shared.carrier(id).filter(|carrier| carrier.has(&current));
                    match carrier {
                        Some(carrier) => drop(self.take(&carrier, || !carrier.has(&current), true)?),
                        // Its thread is about to send it, or somebody has just heard of it.
                        None => std::thread::yield_now(),
                    }
                }
                // Soon elsewhere; of what was left, here.
                Whereabouts::Open | Whereabouts::Between | Whereabouts::Left => std::thread::yield_now(),
            }
            self.send()?;
        }
        Ok(())
    }

    fn take_what_is_there(&mut self) -> Result<(), DriveOff> {
        let carrier = self.carrier.clone();
        while self.take(&carrier, || false, false)? {}
        self.send().map(drop)
    }

    /// Takes one completion of a queue, unless `is_done` by then; whether it did. Sends nothing.
    fn take(
        &mut self,
        carrier: &Carrier<D::Queue>,
        is_done: impl Fn() -> bool,
        wait: bool,
    ) -> Result<bool, DriveOff> {
        let _taking = match wait {
            true => lock(&carrier.taking),
            false => match carrier.taking.try_lock() {
                Ok(taking) => taking,
                Err(_) => return Ok(false),
            },
        };
        if is_done() {
            return Ok(false);
        }
        let Some(completion) = carrier.queue.completion(wait)? else { return Ok(false) };
        let Waiting { batch, slot } = carrier.leave(completion.ticket);
        if let Some(batch) = batch {
            let is_alone = batch.is_bypass() || batch.requests().len() == 1;
            let applied = if is_alone { u32::from(completion.status.is_success()) } else { completion.dw0 };
            let clock = self.shared.clock.clone();
            self.client.complete(&batch, completion.status, applied, &mut WallTime(&clock));
        }
        if let Some(slot) = slot {
            *lock(&slot) = Some(completion);
        }
        Ok(true)
    }
}

impl<D: Drive> Drop for Handle<D> {
    fn drop(&mut self) {
        self.carrier.is_left.store(true, Ordering::SeqCst);
        self.shared.forget_those_over();
    }
}

/// A transaction of a handle. Dropping it leaves everything as it was.
pub struct InTransaction<'h, D: Drive> {
    handle: &'h mut Handle<D>,
    transaction: Transaction,
}

impl<D: Drive> InTransaction<'_, D> {
    /// The key gets this value, with the commit.
    ///
    /// # Errors
    /// [`Status::INVALID_VALUE_SIZE`]: all that is written would not fit one structured value.
    pub fn store(&mut self, key: Key, value: Piece<'_>) -> Result<(), Error> {
        Ok(self.transaction.store(key, value)?)
    }

    /// The key has no value any more, with the commit.
    ///
    /// # Errors
    /// As [`InTransaction::store`].
    pub fn delete(&mut self, key: Key) -> Result<(), Error> {
        Ok(self.transaction.delete(key)?)
    }

    /// Reads a pair's value to byte 0 of `into`; returns its size.
    ///
    /// # Errors
    /// As [`Handle::retrieve`].
    pub fn retrieve(&mut self, key: Key, into: &mut Region) -> Result<u32, Error> {
        let transaction = &mut self.transaction;
        self.handle.read(key, into, |client, into, steps| client.retrieve_in(transaction, key, into, steps))
    }

    /// Ends it. What it wrote is durable when this returns [`Ending::Committed`].
    ///
    /// # Errors
    /// What the drive answered, and nothing of it was carried out; the drive is off.
    pub fn commit(self) -> Result<Ending, Error> {
        let InTransaction { handle, transaction } = self;
        let shared = handle.shared.clone();
        loop {
            let commit = handle.client.commit(&transaction, &mut WallTime(&shared.clock));
            handle.send()?;
            match commit {
                Commit::Ended(ending) => return Ok(ending),
                Commit::Wait(batch) => handle.wait_for(&batch)?,
                Commit::Sent(sent) => {
                    handle.wait_for(sent.batch())?;
                    return Ok(sent.ending()?);
                }
            }
        }
    }
}
