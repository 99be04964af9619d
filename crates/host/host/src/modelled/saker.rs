//! SAKER on a modelled core: the layer of crate `saker` in front of a [`Driver`], its steps charged to the
//! host's core.
//!
//! ```text
//!  task: Handle ── saker::Client (what to do) ──► Driver (a queue pair) ──► drive
//!                        ▲                              │
//!                        └── answers, taken by the task that waits ◄──┘
//! ```
//!
//! A batch uses the driver's transfer method, like any value. While a handle's task waits for an answer, its
//! own or another handle's, it collects the handle's answers, oldest first. A handle that waits for other
//! handles has nothing in progress itself, so tasks do not wait in a circle.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use kvdrive_content::Region;
use kvdrive_declare::Section;
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_saker::runner::{self, BypassWrite, Runner};
use kvdrive_saker::{
    Batch, BatchSize, Client as Core, Failure, Payload, Saker, SakerConfig, SakerConfigError, Step, Steps,
};
use kvdrive_sim::{Ns, Sim, WaitQueue};

use super::{Driver, Ticket};
use crate::Error;
use crate::client::{Answer, Call, Calls, Client, Content, NoValue};

/// Times of SAKER's steps on the host's core, ns. Their sources are in the profiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Section)]
#[section("saker")]
pub struct SakerCosts {
    /// Host core time to lock and search a bucket of the pending table, ns.
    #[setting(is = TIME)]
    pub bucket_ns: Ns,
    /// Host core time to put a request into a container, besides copying its bytes, ns.
    #[setting(is = TIME)]
    pub append_ns: Ns,
    /// Host core time to close a container, ns.
    #[setting(is = TIME)]
    pub close_ns: Ns,
    /// Host core time to search the cache, ns.
    #[setting(is = TIME, when = &[When::on("saker.cache_bytes")])]
    pub cache_probe_ns: Ns,
    /// Host core time to put a pair into the cache, besides copying its bytes, ns.
    #[setting(is = TIME, when = &[When::on("saker.cache_bytes")])]
    pub cache_insert_ns: Ns,
    /// Host core time to remove a pair from the cache to make room, ns.
    #[setting(is = TIME, when = &[When::on("saker.cache_bytes")])]
    pub cache_evict_ns: Ns,
    /// Host core time to copy 1 KiB, ns.
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

/// Adds up the times of a call's steps. Steps run under locks, so their time is taken after the call.
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

/// The state that all handles of one host share.
pub struct ModelledSaker {
    saker: Arc<Saker>,
    costs: SakerCosts,
    /// Tasks that wait for an answer which another handle takes.
    answered: WaitQueue,
}

impl ModelledSaker {
    /// SAKER with these settings. A drive that takes no batches needs `batch` = 1.
    ///
    /// # Errors
    /// A setting is out of its range.
    pub fn new(
        sim: &Sim,
        config: SakerConfig,
        costs: SakerCosts,
    ) -> Result<Rc<ModelledSaker>, SakerConfigError> {
        Ok(Rc::new(ModelledSaker { saker: Saker::new(config)?, costs, answered: WaitQueue::new(sim) }))
    }

    /// A handle for one task, which alone uses `driver`. The driver needs one slot more than the `in_flight`
    /// batches.
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

/// One task's connection to the drive. Its writes are volatile until [`Handle::sync`]. Close a handle at its
/// end: it may have batches of other handles under way, and no other handle takes their answers.
pub struct Handle<'d> {
    shared: Rc<ModelledSaker>,
    client: Core,
    driver: &'d Driver,
    /// Batches that were sent and whose answers have not been taken, the oldest first.
    under_way: VecDeque<(Arc<Batch>, Ticket<'d, Vec<u8>>)>,
    /// Requests that failed when a range synced, until the next sync reports them.
    failures: Vec<Failure>,
}

impl<'d> Handle<'d> {
    /// Begins a transaction: its writes are carried out wholly or not at all, and only if no other handle has
    /// written a pair that it read ([`kvdrive_saker::transaction`]).
    pub fn transaction<'h>(&'h mut self) -> InTransaction<'h, 'd> {
        InTransaction::begin(self)
    }

    /// Waits until all earlier writes of this handle are durable; returns the requests that have failed since
    /// the last sync.
    pub fn sync(&mut self) -> Vec<Failure> {
        self.sync_all();
        std::mem::take(&mut self.failures)
    }

    /// Requests of this handle that are not known to be durable.
    pub fn unsynced(&self) -> u64 {
        self.client.unsynced()
    }

    /// Syncs, and takes the answers to all batches that this handle has sent, for any handle; returns the
    /// requests that have failed.
    pub fn close(mut self) -> Vec<Failure> {
        self.sync_all();
        while self.take_answer() {}
        self.failures
    }

    /// Takes the oldest answer to the batches that this handle has under way, for any handle; `false`: it has none. No
    /// other handle takes them, so a task calls this while it waits for anything outside of SAKER, such as a lock that
    /// another task holds. After each answer the task checks whether it still has to wait: another task that continues
    /// to write can keep one answer ahead for ever.
    pub fn take_answer(&mut self) -> bool {
        if !self.take_oldest() {
            return false;
        }
        // The handle that takes an answer also sends the batch that waited for it.
        self.send_handed_out();
        true
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
            // The drive does not know pending pairs.
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
            // SAKER makes the batches itself.
            Call::Batch { .. } => Err(Status::INVALID_OPCODE),
            // A pending pair is retrieved as a whole, and deleted whether or not the drive has it.
            Call::Remove { .. } | Call::RetrievePart { .. } => Err(Status::INVALID_OPCODE),
        }
    }

    /// Calls SAKER, and then takes the time of the call's steps on the core.
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

    /// Sends the batches that SAKER has handed out.
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
            let ticket = self.driver.submit_making_room(call, || self.make_room());
            self.under_way.push_back((batch, ticket));
        }
    }

    /// Waits for the answer to the oldest batch that this handle has under way; `false`: there is none.
    fn take_oldest(&mut self) -> bool {
        let Some((batch, ticket)) = self.under_way.pop_front() else { return false };
        let answer = self.driver.wait_making_room(ticket, &mut Region::new(), || self.make_room());
        match answer {
            Ok(Answer::Applied(applied, status)) => self.answered(&batch, status, applied),
            answer => self.complete(&batch, answer.map(|_| 1)),
        }
        true
    }

    /// Waits until a value may have left the window. This handle alone uses its driver, so the values there are
    /// those of its own batches, which leave with their answers.
    fn make_room(&mut self) {
        if !self.take_oldest() {
            self.driver.wait_for_window();
        }
    }

    /// Ends a request that was sent outside of a batch.
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
        // An adaptive container is sent when an answer has come, so each call first looks for one.
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
            BypassWrite::Store { value, options } => {
                let (driver, call) = (self.driver, Call::Store { key, value, options });
                let ticket = driver.submit_making_room(call, || self.make_room());
                driver.wait_making_room(ticket, &mut Region::new(), || self.make_room()).map(drop)
            }
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

/// A call is carried out when it is submitted; a write ends when it is pending. A list or a seek syncs this
/// handle first; it does not see pending writes of other handles.
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
