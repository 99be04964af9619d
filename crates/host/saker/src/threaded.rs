//! SAKER on threads: the library that applications link, in front of any drive with queues.
//!
//! ```text
//!  thread: Handle ── Client (what to do) ──► Queue of this thread ──► drive
//!                        ▲                        │
//!                        └── completions, taken by a thread that waits ◄┘
//! ```
//!
//! There is no thread besides the callers'. Completions of a queue are taken by a thread that waits for one
//! of them. A thread that waits for a batch of another thread takes completions from that thread's queue,
//! since its owner may never call again. A taken completion is reported to the core before the next one is
//! taken, so a thread that gets the queue first looks whether its own batch is answered.
//!
//! A [`Handle`] takes completions of at most one queue at a time and sends nothing while it does, so threads
//! do not wait in a circle.
//!
//! When the drive goes off, some batches will never be answered, and some never sent. The first thread that
//! learns of it from a queue notes it for all ([`Threaded`]), each wait looks at that note, and a queue wakes
//! every thread that waits in it: every call of every handle then fails with [`DriveOff`].

use std::collections::BTreeMap;
use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::{Key, Status, StoreOptions};

use crate::batch::{Batch, Payload, Whereabouts};
use crate::client::Client;
use crate::runner::{self, BypassWrite, Runner};
use crate::saker::Saker;
use crate::steps::{Step, Steps};
use crate::sync::{AtomicBool, Mutex, Ordering, RwLock, lock, read_lock, try_lock, write_lock, yield_now};
use crate::writer::{ClientId, Failure};

/// A command for a queue to send.
#[derive(Clone, Copy, Debug)]
pub enum Command<'a> {
    /// A batch command: its value is the first `bytes` bytes of `content`.
    Batch {
        /// The structured value.
        content: &'a Region,
        /// Its size, bytes.
        bytes: u32,
    },
    /// A Store whose value lies in `content` from byte `at` on.
    Store {
        /// The key.
        key: Key,
        /// The region that holds the value.
        content: &'a Region,
        /// The value's first byte in the region.
        at: u32,
        /// Its size, bytes.
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

/// A drive's answer to a command.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The number under which the command was sent.
    pub ticket: u32,
    /// Its status.
    pub status: Status,
    /// DW0: of a batch, the number of requests applied; of a Retrieve, the size of the value in bytes.
    pub dw0: u32,
    /// The value of a Retrieve that succeeded.
    pub value: Region,
}

/// The drive is off: commands under way are not answered, and no more can be sent.
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
///
/// When the drive goes off, waiting threads are woken. From then on a queue answers every call with
/// [`DriveOff`], except that it may still hand out completions that came before.
pub trait Queue: Send + std::marker::Sync {
    /// Sends a command under a number that no unanswered command of this queue has; its content is copied or
    /// pinned. `false`: there is no room, and nothing was sent.
    ///
    /// # Errors
    /// The drive is off.
    fn submit(&self, ticket: u32, command: Command<'_>) -> Result<bool, DriveOff>;

    /// The next completion. If there is none: `None` if `wait` is false; else this thread waits, for ever if
    /// nothing is under way.
    ///
    /// # Errors
    /// The drive is off.
    fn completion(&self, wait: bool) -> Result<Option<Completion>, DriveOff>;
}

/// Why a call has failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The status that the drive answered, or would have answered.
    #[error("{0}")]
    Status(#[from] Status),
    /// Buffered requests of this client have failed since its last sync.
    #[error("{} requests failed, the first for key {}: {}", .0.len(), .0[0].key, .0[0].status)]
    Failed(Vec<Failure>),
    /// The drive is off.
    #[error(transparent)]
    Off(#[from] DriveOff),
}

/// Where a calling thread finds its answer.
type Slot = Arc<Mutex<Option<Completion>>>;

/// A command under way: of a batch, of a call, or of both for a bypass.
struct Waiting {
    batch: Option<Arc<Batch>>,
    slot: Option<Slot>,
}

/// A client's queue, and its commands under way.
struct Carrier<Q> {
    queue: Q,
    /// Held by the thread that takes completions.
    taking: Mutex<()>,
    under_way: Mutex<Vec<Option<Waiting>>>,
    /// Its handle was dropped: no more commands are sent here.
    is_left: AtomicBool,
}

impl<Q: Queue> Carrier<Q> {
    /// Notes that a command is sent; returns its number.
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

    /// Are all its commands answered, and will no more be sent?
    fn is_over(&self) -> bool {
        self.is_left.load(Ordering::SeqCst) && lock(&self.under_way).iter().all(Option::is_none)
    }
}

/// The time in ns, used for `max_age_ns`.
pub type Clock = Arc<dyn Fn() -> u64 + Send + std::marker::Sync>;

/// SAKER in front of a drive, for threads.
pub struct Threaded<D: Drive> {
    saker: Arc<Saker>,
    drive: D,
    /// The queue of each client. A queue outlives its handle until its last command has completed.
    carriers: RwLock<BTreeMap<ClientId, Arc<Carrier<D::Queue>>>>,
    clock: Clock,
    /// A queue has found the drive off: unanswered commands will not be answered.
    is_off: AtomicBool,
}

impl<D: Drive> Threaded<D> {
    /// SAKER in front of `drive`. The clock is read only if `max_age_ns` is not 0.
    pub fn new(saker: Arc<Saker>, drive: D, clock: Clock) -> Arc<Threaded<D>> {
        Arc::new(Threaded {
            saker,
            drive,
            carriers: RwLock::default(),
            clock,
            is_off: AtomicBool::new(false),
        })
    }

    /// A handle for one thread. First it takes the completions of dropped handles, and drops their queues.
    ///
    /// # Errors
    /// The drive is off.
    pub fn connect(self: &Arc<Threaded<D>>) -> Result<Handle<D>, DriveOff> {
        let queue = self.noted(self.drive.queue())?;
        let carrier = Arc::new(Carrier {
            queue,
            taking: Mutex::default(),
            under_way: Mutex::default(),
            is_left: AtomicBool::new(false),
        });
        let client = self.saker.client();
        let mut carriers = write_lock(&self.carriers);
        let left: Vec<_> =
            carriers.values().filter(|other| other.is_left.load(Ordering::SeqCst)).cloned().collect();
        carriers.insert(client.id(), carrier.clone());
        drop(carriers);
        let mut handle = Handle { shared: self.clone(), client, carrier };
        for carrier in left {
            while handle.take(&carrier, || false, false)? {}
        }
        handle.send_handed_out()?;
        self.forget_those_over();
        Ok(handle)
    }

    fn forget_those_over(&self) {
        let mut carriers = write_lock(&self.carriers);
        carriers.retain(|_, carrier| !carrier.is_over());
    }

    /// What clients share: settings and counts.
    pub fn saker(&self) -> &Arc<Saker> {
        &self.saker
    }

    /// Fails if the drive is known to be off.
    fn check(&self) -> Result<(), DriveOff> {
        if self.is_off.load(Ordering::SeqCst) { Err(DriveOff) } else { Ok(()) }
    }

    /// Notes for all handles if a queue says that the drive is off.
    fn noted<T>(&self, answer: Result<T, DriveOff>) -> Result<T, DriveOff> {
        if answer.is_err() {
            self.is_off.store(true, Ordering::SeqCst);
        }
        answer
    }

    /// A client's queue; `None`: it was dropped after its last completion.
    fn carrier(&self, id: ClientId) -> Option<Arc<Carrier<D::Queue>>> {
        read_lock(&self.carriers).get(&id).cloned()
    }
}

/// Steps take their own time here; only the clock is used.
pub struct WallTime<'a>(&'a Clock);

impl Steps for WallTime<'_> {
    #[inline]
    fn step(&mut self, _: Step) {}

    fn now_ns(&self) -> u64 {
        (self.0)()
    }
}

/// One thread's connection to the drive. Dropping it leaves unsynced writes to the other threads and counts
/// them; [`Handle::close`] syncs.
pub struct Handle<D: Drive> {
    shared: Arc<Threaded<D>>,
    client: Client,
    carrier: Arc<Carrier<D::Queue>>,
}

impl<D: Drive> Handle<D> {
    /// Writes a pair; it is volatile until [`Handle::sync`].
    ///
    /// # Errors
    /// The status of a value too large for a container; the drive is off.
    pub fn store(&mut self, key: Key, value: Piece<'_>) -> Result<(), Error> {
        self.store_with(key, value, StoreOptions::default())
    }

    /// Writes a pair if its condition holds.
    ///
    /// # Errors
    /// [`Status::KEY_EXISTS`] or [`Status::KEY_NOT_FOUND`]; as [`Handle::store`].
    pub fn store_with(&mut self, key: Key, value: Piece<'_>, options: StoreOptions) -> Result<(), Error> {
        runner::write(self, key, BypassWrite::Store { value, options })
    }

    /// Removes a pair; removing an absent pair succeeds.
    ///
    /// # Errors
    /// As [`Handle::store`].
    pub fn delete(&mut self, key: Key) -> Result<(), Error> {
        runner::write(self, key, BypassWrite::Delete)
    }

    /// Reads a pair's value to byte 0 of `into`; returns its size in bytes.
    ///
    /// # Errors
    /// [`Status::KEY_NOT_FOUND`] or another status of the drive; the drive is off.
    pub fn retrieve(&mut self, key: Key, into: &mut Region) -> Result<u32, Error> {
        runner::retrieve(self, key, into)
    }

    /// Asks whether there is a pair.
    ///
    /// # Errors
    /// The status that the drive answered; the drive is off.
    pub fn exist(&mut self, key: Key) -> Result<bool, Error> {
        runner::exist(self, key)
    }

    /// Begins a transaction: its writes are carried out wholly or not at all, and only if no other handle has
    /// written a pair that it read ([`crate::transaction`]).
    pub fn transaction(&mut self) -> InTransaction<'_, D> {
        InTransaction::begin(self)
    }

    /// Waits until all earlier writes of this handle are durable.
    ///
    /// # Errors
    /// Every buffered request that has failed since the last sync; the drive is off.
    pub fn sync(&mut self) -> Result<(), Error> {
        let failures = runner::sync(self)?;
        if failures.is_empty() { Ok(()) } else { Err(Error::Failed(failures)) }
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

    /// Sends every thread's requests that are `max_age_ns` old; returns when the next ones will be, in ns of
    /// the clock. A thread that makes no call sends nothing, so a program that relies on the bound calls
    /// this.
    ///
    /// # Errors
    /// The drive is off.
    pub fn send_overdue(&mut self) -> Result<Option<u64>, DriveOff> {
        let next_ns = self.ask(|client, steps| client.send_overdue(steps));
        self.send_handed_out()?;
        Ok(next_ns)
    }

    /// Sends the batches that the core hands out; returns their number.
    fn send_handed_out(&mut self) -> Result<u32, DriveOff> {
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
        while !self.shared.noted(carrier.queue.submit(ticket, command))? {
            // The queue is full. Another thread may be taking the completions, so this one does not wait for
            // any.
            if !self.take(&carrier, || false, false)? {
                yield_now();
            }
        }
        Ok(())
    }

    /// Sends a command of its own and waits for the answer.
    fn carry_out(&mut self, batch: Option<Arc<Batch>>, command: Command<'_>) -> Result<Completion, Error> {
        let slot = Slot::default();
        self.submit(Waiting { batch, slot: Some(slot.clone()) }, command)?;
        let carrier = self.carrier.clone();
        loop {
            let answer = lock(&slot).take();
            if let Some(answer) = answer {
                self.send_handed_out()?;
                return if answer.status.is_success() { Ok(answer) } else { Err(answer.status.into()) };
            }
            self.take(&carrier, || lock(&slot).is_some(), true)?;
            self.send_handed_out()?;
        }
    }

    /// Takes one completion of a queue unless `is_done`; returns whether it took one. Sends nothing.
    fn take(
        &mut self,
        carrier: &Carrier<D::Queue>,
        is_done: impl Fn() -> bool,
        wait: bool,
    ) -> Result<bool, DriveOff> {
        let _taking = match wait {
            true => lock(&carrier.taking),
            false => match try_lock(&carrier.taking) {
                Some(taking) => taking,
                None => return Ok(false),
            },
        };
        if is_done() {
            return Ok(false);
        }
        let Some(completion) = self.shared.noted(carrier.queue.completion(wait))? else { return Ok(false) };
        let Waiting { batch, slot } = carrier.leave(completion.ticket);
        if let Some(batch) = batch {
            let is_alone = batch.is_bypass() || batch.requests().len() == 1;
            let applied = if is_alone { u32::from(completion.status.is_success()) } else { completion.dw0 };
            self.ask(|client, steps| client.complete(&batch, completion.status, applied, steps));
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

/// A transaction of a handle. Dropping it changes nothing.
pub type InTransaction<'h, D> = runner::InTransaction<'h, Handle<D>>;

impl<D: Drive> Runner for Handle<D> {
    type Steps<'s> = WallTime<'s>;
    type Error = Error;

    fn ask<T>(&mut self, call: impl FnOnce(&mut Client, &mut WallTime<'_>) -> T) -> T {
        call(&mut self.client, &mut WallTime(&self.shared.clock))
    }

    fn send(&mut self) -> Result<(), Error> {
        if self.send_handed_out()? > 0 {
            // Answers to earlier batches may have come meanwhile and released further ones.
            let carrier = self.carrier.clone();
            while self.take(&carrier, || false, false)? {}
            self.send_handed_out()?;
        }
        Ok(())
    }

    fn wait(&mut self, batch: &Arc<Batch>) -> Result<(), Error> {
        self.shared.check()?;
        let mut current = batch.clone();
        while let Whereabouts::WaitsFor(older) = current.whereabouts() {
            current = older;
        }
        let carrier = match current.whereabouts() {
            Whereabouts::With(id) => self.shared.carrier(id).filter(|carrier| carrier.has(&current)),
            _ => None,
        };
        match carrier {
            Some(carrier) => drop(self.take(&carrier, || !carrier.has(&current), true)?),
            // Another thread is about to close or send it, or has just taken its completion; if a dropped
            // client has left it, the next call of this thread sends it.
            None => yield_now(),
        }
        Ok(())
    }

    fn write_bypass(&mut self, batch: Arc<Batch>, key: Key, write: BypassWrite<'_>) -> Result<(), Error> {
        let mut content = Region::new();
        let command = match write {
            BypassWrite::Delete => Command::Delete { key },
            BypassWrite::Store { value, options } => {
                content.write(0, value);
                Command::Store { key, content: &content, at: 0, bytes: value.bytes(), options }
            }
        };
        self.carry_out(Some(batch), command).map(drop)
    }

    fn retrieve_alone(&mut self, key: Key, into: &mut Region) -> Result<u32, Error> {
        let answer = self.carry_out(None, Command::Retrieve { key })?;
        *into = answer.value;
        Ok(answer.dw0)
    }

    fn exist_alone(&mut self, key: Key) -> Result<bool, Error> {
        match self.carry_out(None, Command::Exist { key }) {
            Ok(_) => Ok(true),
            Err(Error::Status(Status::KEY_NOT_FOUND)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
