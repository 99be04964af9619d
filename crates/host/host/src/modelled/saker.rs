//! SAKER on a modelled core: the layer of crate `saker` in front of a [`Driver`], its steps charged to the
//! host's core.
//!
//! ```text
//!  task: Handle ── saker::Client (what to do) ──► Driver (a queue pair) ──► drive
//!                        ▲                              │
//!                        └── answers, taken by the task that waits ◄──┘
//! ```
//!
//! A batch uses the driver's transfer method, like any value. The task of a handle collects the handle's
//! answers, oldest first, whenever it waits for one, its own or another handle's. A handle that waits for
//! others has nothing in progress itself, so tasks do not wait in a circle.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use kvdrive_content::Region;
use kvdrive_declare::Section;
use kvdrive_saker::runner::{self, BypassWrite, Runner};
use kvdrive_saker::{
    Batch, BatchSize, Client as Core, Config, ConfigError, Failure, Payload, Saker, Step, Steps,
};
use kvdrive_sim::{Ns, Sim, WaitQueue};
use kvdrive_spec::{Key, Status, StoreOptions};

use super::{Driver, Ticket};
use crate::Error;
use crate::client::{Answer, Call, Calls, Client, Content, NoValue};

/// What the steps of SAKER cost on the host's core, ns. Sources are in the profiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Section)]
#[section("saker")]
pub struct SakerCosts {
    /// Locking and searching a bucket of the pending table.
    #[setting(is = TIME)]
    pub bucket_ns: Ns,
    /// Putting a request into a container, besides its bytes.
    #[setting(is = TIME)]
    pub append_ns: Ns,
    /// Closing a container.
    #[setting(is = TIME)]
    pub close_ns: Ns,
    /// Searching the cache.
    #[setting(is = TIME, when = &[When::on("saker.cache_bytes")])]
    pub cache_probe_ns: Ns,
    /// Putting a pair into the cache, besides its bytes.
    #[setting(is = TIME, when = &[When::on("saker.cache_bytes")])]
    pub cache_insert_ns: Ns,
    /// A pair that leaves the cache for others.
    #[setting(is = TIME, when = &[When::on("saker.cache_bytes")])]
    pub cache_evict_ns: Ns,
    /// Copying 1 KiB.
    #[setting(is = TIME)]
    pub copy_ns_per_kib: Ns,
}

impl SakerCosts {
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

/// Adds up what a call's steps cost: they are done under locks, so their time is taken after the call.
pub struct Sum<'a> {
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
    /// Tasks that wait for an answer that another handle will take.
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

/// One task's way to the drive. What it has written is volatile until [`Handle::sync`]. It is closed at the end: it
/// may have batches of other handles under way, whose answers no other handle takes.
pub struct Handle<'d> {
    shared: Rc<ModelledSaker>,
    client: Core,
    driver: &'d Driver,
    /// Batches that were sent and whose answers have not been taken, the oldest first.
    under_way: VecDeque<(Arc<Batch>, Ticket<'d, Vec<u8>>)>,
    /// What failed when a range synced, until the next sync reports it.
    failures: Vec<Failure>,
}

impl<'d> Handle<'d> {
    /// A transaction: what it writes is carried out wholly or not at all, and only if no other handle has written
    /// what it read ([`kvdrive_saker::transaction`]).
    pub fn transaction<'h>(&'h mut self) -> InTransaction<'h, 'd> {
        InTransaction::begin(self)
    }

    /// Waits until all that this handle wrote before is durable; returns the requests that have failed since the
    /// last time.
    pub fn sync(&mut self) -> Vec<Failure> {
        self.sync_all();
        std::mem::take(&mut self.failures)
    }

    /// Requests of this handle that are not known to be durable.
    pub fn unsynced(&self) -> u64 {
        self.client.unsynced()
    }

    /// Syncs, and takes the answers to all that this handle has sent, of every client; returns the requests that have
    /// failed.
    pub fn close(mut self) -> Vec<Failure> {
        self.sync_all();
        self.take_answers();
        self.failures
    }

    /// Takes the answers to all that this handle has under way, of every client. No other handle takes them: a task
    /// that is about to wait for something outside of SAKER, as for a lock that another task has, calls this first.
    pub fn take_answers(&mut self) {
        // A batch that waited for one of these is sent by the handle that takes the answer.
        while self.take_oldest() {
            self.send_handed_out();
        }
    }

    fn sync_all(&mut self) {
        let failures = runner::sync(self).expect("there is always a way to a modelled drive");
        self.failures.extend(failures);
    }

    fn carry_out<V: Content>(&mut self, call: &Call<V>, into: &mut Region) -> Result<Answer, Status> {
        match call {
            Call::Store { key, value, options } => {
                let write = BypassWrite::Store { value: value.piece(), options: *options };
                runner::write(self, *key, write).map(|()| Answer::Done)
            }
            Call::Delete { key } => runner::write(self, *key, BypassWrite::Delete).map(|()| Answer::Done),
            Call::Retrieve { key } => runner::retrieve(self, *key, into).map(Answer::Value),
            Call::Exist { key } => runner::exist(self, *key).map(Answer::Exists),
            // The drive knows nothing of what is pending.
            Call::List { start, buffer_bytes } => {
                self.sync_all();
                self.driver.list(*start, *buffer_bytes).map(Answer::Keys)
            }
            Call::Seek { key } => {
                self.sync_all();
                self.driver.ask(NoValue::Seek { key: *key }, into)
            }
            Call::Next { iterator } => self.driver.ask(NoValue::Next { iterator: *iterator }, into),
            Call::Close { iterator } => self.driver.ask(NoValue::Close { iterator: *iterator }, into),
            // Batches are what this makes.
            Call::Batch { .. } => Err(Status::INVALID_OPCODE),
            // A pending pair is retrieved as a whole, and deleted whether the drive has one or not.
            Call::Remove { .. } | Call::RetrievePart { .. } => Err(Status::INVALID_OPCODE),
        }
    }

    /// Calls SAKER, and takes the time of its steps on the core.
    fn charge<T>(&mut self, call: impl FnOnce(&mut Core, &mut Sum<'_>) -> T) -> T {
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
    fn send_handed_out(&mut self) {
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
        self.charge(|client, steps| client.complete(batch, status, applied, steps));
        self.shared.answered.wake_all();
    }
}

/// A transaction of a handle. Dropping it leaves everything as it was.
pub type InTransaction<'h, 'd> = runner::InTransaction<'h, Handle<'d>>;

impl Runner for Handle<'_> {
    type Steps<'s> = Sum<'s>;
    type Error = Status;

    fn ask<T>(&mut self, call: impl FnOnce(&mut Core, &mut Sum<'_>) -> T) -> T {
        // An adaptive container goes when an answer has come, so each call looks first whether one has.
        let is_adaptive = self.shared.saker.config().batch == BatchSize::Adaptive;
        while is_adaptive && self.under_way.front().is_some_and(|(_, ticket)| self.driver.has_answer(ticket))
        {
            self.take_oldest();
        }
        self.charge(call)
    }

    fn send(&mut self) -> Result<(), Status> {
        self.send_handed_out();
        Ok(())
    }

    fn wait(&mut self, _: &Arc<Batch>) -> Result<(), Status> {
        if !self.take_oldest() {
            self.shared.answered.wait();
        }
        Ok(())
    }

    fn write_bypass(&mut self, batch: Arc<Batch>, key: Key, write: BypassWrite<'_>) -> Result<(), Status> {
        let result = match write {
            BypassWrite::Store { value, options } => self.driver.store_with(key, value, options),
            BypassWrite::Delete => self.driver.delete(key),
        };
        self.complete(&batch, result.map(|()| 1));
        result
    }

    fn retrieve_alone(&mut self, key: Key, into: &mut Region) -> Result<u32, Status> {
        self.driver.retrieve(key, into)
    }

    fn exist_alone(&mut self, key: Key) -> Result<bool, Status> {
        self.driver.exist(key)
    }
}

/// A call that was carried out.
#[must_use = "the answer is lost with it"]
pub struct AnsweredCall<V> {
    result: Result<Answer, Status>,
    value: Region,
    call: PhantomData<V>,
}

/// A call is carried out where it is submitted, as far as the application waits for it. A list or a seek syncs
/// this handle first; what other handles have pending it does not see.
impl Client for Handle<'_> {
    type Ticket<V: Content> = AnsweredCall<V>;

    fn submit<V: Content>(&mut self, call: Call<V>) -> Result<AnsweredCall<V>, Error> {
        let mut value = Region::new();
        Ok(AnsweredCall { result: self.carry_out(&call, &mut value), value, call: PhantomData })
    }

    fn wait<V: Content>(&mut self, ticket: AnsweredCall<V>, into: &mut Region) -> Result<Answer, Error> {
        if let Ok(Answer::Value(_) | Answer::Opened(..) | Answer::Pair(_)) = ticket.result {
            *into = ticket.value;
        }
        Ok(ticket.result?)
    }

    fn call<V: Content>(&mut self, call: Call<V>, into: &mut Region) -> Result<Answer, Error> {
        Ok(self.carry_out(&call, into)?)
    }
}
