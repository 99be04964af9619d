//! SAKER on a modelled core: the layer of crate `saker` in front of a [`Driver`], its steps charged to the
//! host's core.
//!
//! ```text
//!  task: Handle ── saker::Client (what to do) ──► Driver (a queue pair) ──► drive
//!                        ▲                              │
//!                        └── answers, taken by the task that waits ◄──┘
//! ```
//!
//! A batch goes by the driver's transfer method, as any value does. Answers are taken by the task of their
//! handle, the oldest first, whenever it waits for one, be it its own or another handle's: a handle that waits
//! for others has nothing under way itself, so nobody waits in a circle.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_saker::{
    Batch, BatchSize, Client as Core, Commit, Config, ConfigError, Ending, Failure, Payload, Read, Saker,
    Step, Steps, Sync, Transaction, Write,
};
use kvdrive_settings::{Rules, TIME};
use kvdrive_sim::{Ns, Sim, WaitQueue};
use kvdrive_spec::{Key, Status, StoreOptions};
use serde::Deserialize;

use super::{Driver, Ticket};
use crate::Error;
use crate::client::{Answer, Call, Client, Content, NoValue};

/// What the steps of SAKER cost on the host's core, ns. Sources are in the profiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct SakerCosts {
    /// Locking and searching a bucket of the pending table.
    pub bucket_ns: Ns,
    /// Putting a request into a container, besides its bytes.
    pub append_ns: Ns,
    /// Closing a container.
    pub close_ns: Ns,
    /// Searching the cache.
    pub cache_probe_ns: Ns,
    /// Putting a pair into the cache, besides its bytes.
    pub cache_insert_ns: Ns,
    /// A pair that leaves the cache for others.
    pub cache_evict_ns: Ns,
    /// Copying 1 KiB.
    pub copy_ns_per_kib: Ns,
}

impl SakerCosts {
    /// Those keys of `[saker]`.
    pub const RULES: Rules = &[
        ("saker.bucket_ns", TIME),
        ("saker.append_ns", TIME),
        ("saker.close_ns", TIME),
        ("saker.cache_probe_ns", TIME),
        ("saker.cache_insert_ns", TIME),
        ("saker.cache_evict_ns", TIME),
        ("saker.copy_ns_per_kib", TIME),
    ];

    fn of(&self, step: Step) -> Ns {
        let copy = |bytes: u32| (u64::from(bytes) * self.copy_ns_per_kib).div_ceil(1024);
        match step {
            Step::Bucket => self.bucket_ns,
            Step::Append { bytes } => self.append_ns + copy(bytes),
            Step::Close => self.close_ns,
            Step::Unpack { bytes } => copy(bytes),
            Step::CacheProbe { bytes } => self.cache_probe_ns + copy(bytes),
            Step::CacheInsert { bytes } => self.cache_insert_ns + copy(bytes),
            Step::CacheEvict { pairs } => self.cache_evict_ns * u64::from(pairs),
        }
    }
}

/// Adds up what a call's steps cost: they are done under locks, so their time is taken behind it.
struct Sum<'a> {
    costs: &'a SakerCosts,
    ns: Ns,
    now_ns: Ns,
}

impl Steps for Sum<'_> {
    fn step(&mut self, step: Step) {
        self.ns += self.costs.of(step);
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }
}

/// What the handles of one host share.
pub struct ModelledSaker {
    saker: Arc<Saker>,
    costs: SakerCosts,
    /// Who waits for an answer that another handle will take.
    answered: WaitQueue,
}

impl ModelledSaker {
    /// SAKER with these settings. A drive that takes no batches needs `batch` = 1.
    ///
    /// # Errors
    /// A setting that cannot be.
    pub fn new(sim: &Sim, config: Config, costs: SakerCosts) -> Result<Rc<ModelledSaker>, ConfigError> {
        Ok(Rc::new(ModelledSaker { saker: Saker::new(config)?, costs, answered: WaitQueue::new(sim) }))
    }

    /// A handle, for one task that has `driver` to itself. The driver needs a slot more than batches may be
    /// under way (`in_flight`).
    pub fn connect<'d>(self: &Rc<Self>, driver: &'d Driver) -> Handle<'d> {
        Handle {
            shared: self.clone(),
            client: self.saker.client(),
            driver,
            under_way: VecDeque::new(),
            failures: Vec::new(),
        }
    }

    /// Settings and counts.
    pub fn saker(&self) -> &Arc<Saker> {
        &self.saker
    }
}

/// One task's way to the drive. What it has written is volatile until [`Handle::sync`]. Whoever is done with it
/// closes it: it may have batches of other handles under way, whose answers nobody else takes.
pub struct Handle<'d> {
    shared: Rc<ModelledSaker>,
    client: Core,
    driver: &'d Driver,
    /// Batches that were sent and whose answers have not been taken, the oldest first.
    under_way: VecDeque<(Arc<Batch>, Ticket<'d, Vec<u8>>)>,
    /// What a range heard of when it synced, until somebody asks.
    failures: Vec<Failure>,
}

impl<'d> Handle<'d> {
    /// Writes a pair.
    ///
    /// # Errors
    /// Of a value too large for a container, and of a condition, what the drive answered.
    pub fn store(&mut self, key: Key, value: Piece<'_>, options: StoreOptions) -> Result<(), Status> {
        self.write(
            |client, steps| client.store(key, value, options, steps),
            |driver| driver.store_with(key, value, options),
        )
    }

    /// Removes a pair; removing what is not there succeeds.
    ///
    /// # Errors
    /// As [`Handle::store`].
    pub fn delete(&mut self, key: Key) -> Result<(), Status> {
        self.write(|client, steps| client.delete(key, steps), |driver| driver.delete(key))
    }

    /// Has SAKER take a write, and sends one that it leaves alone.
    fn write(
        &mut self,
        ask: impl Fn(&mut Core, &mut Sum<'_>) -> Write,
        alone: impl FnOnce(&Driver) -> Result<(), Status>,
    ) -> Result<(), Status> {
        loop {
            match self.charge(&ask) {
                Write::Buffered => return Ok(()),
                Write::Refused(status) => return Err(status),
                Write::Wait(batch) => self.wait_for(&batch),
                Write::Bypass(request) => {
                    let result = alone(self.driver);
                    self.complete(&request, result.map(|()| 1));
                    self.send();
                    return result;
                }
            }
        }
    }

    /// Reads a pair's value to byte 0 of `into`; returns its size.
    ///
    /// # Errors
    /// [`Status::KEY_NOT_FOUND`] and what else the drive answered.
    pub fn retrieve(&mut self, key: Key, into: &mut Region) -> Result<u32, Status> {
        self.read(key, into, |client, into, steps| client.retrieve(key, into, steps))
    }

    /// A transaction: what it writes is carried out wholly or not at all, and only if no other handle has written
    /// what it read ([`kvdrive_saker::transaction`]).
    pub fn transaction<'h>(&'h mut self) -> InTransaction<'h, 'd> {
        InTransaction { transaction: self.client.begin(), handle: self }
    }

    fn read(
        &mut self,
        key: Key,
        into: &mut Region,
        mut ask: impl FnMut(&mut Core, &mut Region, &mut Sum<'_>) -> Read,
    ) -> Result<u32, Status> {
        loop {
            match self.charge(|client, steps| ask(client, into, steps)) {
                Read::Found(bytes) => return Ok(bytes),
                Read::Missing => return Err(Status::KEY_NOT_FOUND),
                Read::Wait(batch) => self.wait_for(&batch),
                Read::Ask(ask) => {
                    let bytes = self.driver.retrieve(key, into)?;
                    self.charge(|client, steps| client.fill(ask, into, bytes, steps));
                    return Ok(bytes);
                }
            }
        }
    }

    /// Is there a pair?
    ///
    /// # Errors
    /// What the drive answered.
    pub fn exist(&mut self, key: Key) -> Result<bool, Status> {
        loop {
            match self.charge(|client, steps| client.exist(key, steps)) {
                Read::Found(_) => return Ok(true),
                Read::Missing => return Ok(false),
                Read::Wait(batch) => self.wait_for(&batch),
                Read::Ask(_) => return self.driver.exist(key),
            }
        }
    }

    /// Waits until all that this handle wrote before is durable; returns the requests that have failed since the
    /// last time.
    pub fn sync(&mut self) -> Vec<Failure> {
        self.sync_all();
        std::mem::take(&mut self.failures)
    }

    /// Syncs, and takes the answers to all that this handle has sent, for whomever; returns the requests that have
    /// failed.
    pub fn close(mut self) -> Vec<Failure> {
        self.sync_all();
        self.take_answers();
        self.failures
    }

    /// Takes the answers to all that this handle has under way, for whomever. Nobody else takes them: a task that is
    /// about to wait for something that is not SAKER's, as for a lock that another one has, does this first.
    pub fn take_answers(&mut self) {
        // A batch that waited behind one of these is sent by who hears of it.
        while self.take_oldest() {
            self.send();
        }
    }

    fn sync_all(&mut self) {
        loop {
            match self.charge(|client, steps| client.sync(steps)) {
                Sync::Done(failures) => return self.failures.extend(failures),
                Sync::Wait(batch) => self.wait_for(&batch),
            }
        }
    }

    fn carry_out<V: Content>(&mut self, call: &Call<V>, into: &mut Region) -> Result<Answer, Status> {
        match call {
            Call::Store { key, value, options } => {
                self.store(*key, value.piece(), *options).map(|()| Answer::Done)
            }
            Call::Delete { key } => self.delete(*key).map(|()| Answer::Done),
            Call::Retrieve { key } => self.retrieve(*key, into).map(Answer::Value),
            Call::Exist { key } => self.exist(*key).map(Answer::Exists),
            // The drive knows nothing of what is pending.
            Call::List { start, buffer_bytes } => {
                self.sync_all();
                self.driver.list(*start, *buffer_bytes).map(Answer::Keys)
            }
            Call::Seek { key } => {
                self.sync_all();
                self.driver.call(NoValue::Seek { key: *key }, into)
            }
            Call::Next { iterator } => self.driver.call(NoValue::Next { iterator: *iterator }, into),
            Call::Close { iterator } => self.driver.call(NoValue::Close { iterator: *iterator }, into),
            // Batches are what this makes.
            Call::Batch { .. } => Err(Status::INVALID_OPCODE),
        }
    }

    /// Calls SAKER, takes the time of its steps on the core, and sends what it hands out.
    fn charge<T>(&mut self, call: impl FnOnce(&mut Core, &mut Sum<'_>) -> T) -> T {
        // An adaptive container goes when an answer has come, so somebody has to look whether one has.
        let is_adaptive = self.shared.saker.config().batch == BatchSize::Adaptive;
        while is_adaptive && self.under_way.front().is_some_and(|(_, ticket)| self.driver.has_answer(ticket))
        {
            self.take_oldest();
        }
        let answer = self.charge_alone(call);
        self.send();
        answer
    }

    fn charge_alone<T>(&mut self, call: impl FnOnce(&mut Core, &mut Sum<'_>) -> T) -> T {
        let host = self.driver.host();
        let mut sum = Sum { costs: &self.shared.costs, ns: 0, now_ns: host.link.sim().now() };
        let answer = call(&mut self.client, &mut sum);
        let ns = sum.ns;
        if ns > 0 {
            host.core.run_noted(ns, "saker", "buffer and cache");
        }
        answer
    }

    /// Sends what SAKER has handed out.
    fn send(&mut self) {
        while let Some(batch) = self.client.next_batch() {
            let in_flight = self.shared.saker.config().in_flight as usize;
            while self.under_way.len() >= in_flight {
                self.take_oldest();
            }
            let content = |at: u32, bytes: u32| {
                let mut value = vec![0; bytes as usize];
                batch.content().copy_to(at, &mut value);
                value
            };
            let call = match batch.payload() {
                Payload::Batch { bytes, .. } => Call::Batch { value: content(0, bytes) },
                Payload::Delete { key } => Call::Delete { key },
                Payload::Store { key, at, bytes } => {
                    Call::Store { key, value: content(at, bytes), options: StoreOptions::default() }
                }
            };
            let ticket = self.driver.submit(call);
            self.under_way.push_back((batch, ticket));
        }
    }

    /// Waits until a batch has been answered, whoever sends it, and whatever it waits for itself.
    fn wait_for(&mut self, batch: &Arc<Batch>) {
        while !batch.is_answered() {
            if self.take_oldest() {
                self.send();
            } else {
                self.shared.answered.wait();
            }
        }
    }

    /// Waits for the answer to the oldest batch that this handle has under way; `false`: there is none.
    fn take_oldest(&mut self) -> bool {
        let Some((batch, ticket)) = self.under_way.pop_front() else { return false };
        let answer = self.driver.wait(ticket, &mut Region::new());
        match answer {
            Ok(Answer::Applied(applied, status)) => self.answered(&batch, status, applied),
            answer => self.complete(&batch, answer.map(|_| 1)),
        }
        true
    }

    /// A request on its own was answered.
    fn complete(&mut self, batch: &Arc<Batch>, applied: Result<u32, Status>) {
        let (status, applied) =
            applied.map_or_else(|status| (status, 0), |applied| (Status::SUCCESS, applied));
        self.answered(batch, status, applied);
    }

    fn answered(&mut self, batch: &Arc<Batch>, status: Status, applied: u32) {
        self.charge_alone(|client, steps| client.complete(batch, status, applied, steps));
        self.shared.answered.wake_all();
    }
}

/// A transaction of a handle. Dropping it leaves everything as it was.
pub struct InTransaction<'h, 'd> {
    handle: &'h mut Handle<'d>,
    transaction: Transaction,
}

impl InTransaction<'_, '_> {
    /// The key gets this value, with the commit.
    ///
    /// # Errors
    /// [`Status::INVALID_VALUE_SIZE`]: all that is written would not fit one structured value.
    pub fn store(&mut self, key: Key, value: Piece<'_>) -> Result<(), Status> {
        self.transaction.store(key, value)
    }

    /// The key has no value any more, with the commit.
    ///
    /// # Errors
    /// As [`InTransaction::store`].
    pub fn delete(&mut self, key: Key) -> Result<(), Status> {
        self.transaction.delete(key)
    }

    /// Reads a pair's value to byte 0 of `into`; returns its size.
    ///
    /// # Errors
    /// As [`Handle::retrieve`].
    pub fn retrieve(&mut self, key: Key, into: &mut Region) -> Result<u32, Status> {
        let transaction = &mut self.transaction;
        self.handle.read(key, into, |client, into, steps| client.retrieve_in(transaction, key, into, steps))
    }

    /// Ends it. What it wrote is durable when this returns [`Ending::Committed`].
    ///
    /// # Errors
    /// What the drive answered, and nothing of it was carried out.
    pub fn commit(self) -> Result<Ending, Status> {
        let InTransaction { handle, transaction } = self;
        loop {
            match handle.charge(|client, steps| client.commit(&transaction, steps)) {
                Commit::Ended(ending) => return Ok(ending),
                Commit::Wait(batch) => handle.wait_for(&batch),
                Commit::Sent(sent) => {
                    handle.wait_for(sent.batch());
                    return sent.ending();
                }
            }
        }
    }
}

/// A call that was carried out.
#[must_use = "whoever drops it learns nothing of the answer"]
pub struct Ended<V> {
    result: Result<Answer, Status>,
    value: Region,
    call: PhantomData<V>,
}

/// A call is carried out where it is submitted, as far as the application waits for it. A list or a seek syncs
/// this handle first; what other handles have pending it does not see.
impl Client for Handle<'_> {
    type Ticket<V: Content> = Ended<V>;

    fn submit<V: Content>(&mut self, call: Call<V>) -> Result<Ended<V>, Error> {
        let mut value = Region::new();
        Ok(Ended { result: self.carry_out(&call, &mut value), value, call: PhantomData })
    }

    fn wait<V: Content>(&mut self, ticket: Ended<V>, into: &mut Region) -> Result<Answer, Error> {
        if let Ok(Answer::Value(_) | Answer::Opened(..) | Answer::Pair(_)) = ticket.result {
            *into = ticket.value;
        }
        Ok(ticket.result?)
    }

    fn call<V: Content>(&mut self, call: Call<V>, into: &mut Region) -> Result<Answer, Error> {
        Ok(self.carry_out(&call, into)?)
    }
}
