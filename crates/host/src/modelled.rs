//! The driver on a modelled core: what the host does takes model time on a core of the profile.
//!
//! One [`Driver`] is one I/O queue pair with as many command slots as its depth. A slot has a command identifier, a
//! DMA buffer and a list page that are set up once, so a command allocates nothing.
//!
//! Inline commands of one queue must follow each other without a gap, so a store that uses several of them holds the
//! queue's sequence until its last one is submitted.

use std::cell::RefCell;
use std::rc::Rc;

use kvdrive_link::pcie::PAGE_BYTES;
use kvdrive_link::transfer::{Choice, HostWindow, Method, Next, Progress, StoreRequest, outcome, prp};
use kvdrive_link::{HostMemory, Link, LocalMemory, Piece, QueuePair, Region};
use kvdrive_sim::{Mutex, MutexGuard, Ns, Resource, WaitQueue};
use kvdrive_spec::identify::{IDENTIFY_BYTES, KvNamespace};
use kvdrive_spec::{Command, Cqe, Key, RetrieveOptions, Sqe, Status, StoreOptions};
use serde::Deserialize;

use crate::answers::{self, NSID, copy_in, take_keys, take_pair};
pub use crate::answers::{Iterator, Pair};

/// What the host's work costs on its core, ns. Sources are in the profiles.
///
/// A store names the application's own pages, so it pays for pinning and naming them. What a retrieve, a
/// listing or an iterator brings lands in the buffer of a slot, which is pinned and named once: they pay for
/// neither, and the copy from there to the application is not charged. A retrieve is therefore shorter, by up
/// to `dma_setup_ns` + pages x `pin_page_ns`, than that of a driver that reads into its caller's memory.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct HostCosts {
    /// From the application's call to the doorbell, per command.
    pub submit_ns: Ns,
    /// From the completion to the application, per command.
    pub complete_ns: Ns,
    /// Setting up a DMA transfer, per store that has one.
    pub dma_setup_ns: Ns,
    /// Pinning and naming one page of a store for DMA.
    pub pin_page_ns: Ns,
    /// Each further entry that goes with a doorbell, and each further completion that is taken with one.
    pub entry_ns: Ns,
    /// Before a store into a window by CXL.mem.
    pub cxl_setup_ns: Ns,
}

struct Slot {
    cid: u16,
    buffer: u64,
    list: u64,
    outbox: Vec<Sqe>,
}

/// A host: its memory, its core and what its work costs. Drivers of several queues share one.
pub struct Host {
    link: Rc<Link>,
    memory: Rc<LocalMemory>,
    core: Rc<Resource>,
    costs: HostCosts,
    max_value_bytes: u32,
}

impl Host {
    /// Asks the drive what it is (Identify over the admin queue) and remembers its limits.
    pub async fn connect(
        link: Rc<Link>,
        memory: Rc<LocalMemory>,
        core: Rc<Resource>,
        costs: HostCosts,
    ) -> Result<Rc<Host>, Status> {
        let mut host = Host { link, memory, core, costs, max_value_bytes: 0 };
        host.max_value_bytes = host.identify().await?.format().value_max_bytes.get();
        Ok(Rc::new(host))
    }

    /// Identify data of the KV namespace as it is now.
    pub async fn identify(&self) -> Result<KvNamespace, Status> {
        let queue = self.link.admin_queue();
        let buffer = self.memory.map(IDENTIFY_BYTES as u32);
        let sqe = answers::identify_namespace(0, buffer);
        assert!(queue.try_submit(sqe), "the admin queue takes one command at a time");
        self.link.ring_submission(&queue).await;
        let cqe = queue.completion(0).await;
        self.link.ring_completion(&queue);
        if cqe.status().is_success() {
            Ok(answers::take_namespace(&*self.memory, buffer))
        } else {
            Err(cqe.status())
        }
    }

    /// Largest value the drive takes, bytes.
    pub fn max_value_bytes(&self) -> u32 {
        self.max_value_bytes
    }
}

/// Typed commands over one queue pair.
pub struct Driver {
    host: Rc<Host>,
    queue: Rc<QueuePair>,
    choice: Box<dyn Choice>,
    free: RefCell<Vec<Slot>>,
    freed: WaitQueue,
    /// Held while an inline value is being submitted.
    sequence: Mutex,
    /// Queue entries that each command may use at once: an equal share, so that nobody waits for room.
    slots: u32,
    /// `None`: the drive exposes none.
    window: Option<HostWindow>,
    /// Who waits until a value in the window is answered, because it is full.
    window_waiting: WaitQueue,
}

/// How far one store has come. Dropped in the middle it leaves nothing behind that others would wait for.
struct Course<'a> {
    driver: &'a Driver,
    progress: Progress,
}

impl Drop for Course<'_> {
    fn drop(&mut self) {
        if let (Some(window), Some(claim)) = (&self.driver.window, self.progress.claim) {
            window.end(claim);
            self.driver.window_waiting.wake_one();
        }
    }
}

impl Driver {
    /// A driver with a queue pair of `entries` slots and up to `depth` commands at once.
    pub fn new(host: &Rc<Host>, choice: Box<dyn Choice>, entries: u32, depth: u32) -> Driver {
        assert!(depth < entries, "a queue of {entries} slots holds at most {} commands", entries - 1);
        let sim = host.link.sim();
        let free = (0..depth).map(|cid| new_slot(host, cid as u16)).collect();
        Driver {
            queue: host.link.create_queue(entries),
            host: host.clone(),
            choice,
            free: RefCell::new(free),
            freed: WaitQueue::new(sim),
            sequence: Mutex::new(sim),
            slots: (entries - 1) / depth,
            window: host.link.window_bytes().map(HostWindow::new),
            window_waiting: WaitQueue::new(sim),
        }
    }

    /// The host this driver belongs to.
    pub fn host(&self) -> &Rc<Host> {
        &self.host
    }

    /// Stores a value.
    pub fn store(&self, key: Key, value: Piece<'_>) -> impl Future<Output = Result<(), Status>> {
        self.store_with(key, value, StoreOptions::default())
    }

    /// Stores a value under a condition. Conditions need the option byte, which inline commands use for value bytes:
    /// such a store goes by `prp`.
    pub async fn store_with(&self, key: Key, value: Piece<'_>, options: StoreOptions) -> Result<(), Status> {
        let bytes = value.bytes();
        if bytes > self.host.max_value_bytes {
            return Err(Status::INVALID_VALUE_SIZE);
        }
        let plain = options == StoreOptions::default();
        let method = if plain { self.choice.pick(bytes, self.slots) } else { &prp::Prp };
        let mut slot = match self.try_take_slot() {
            Some(slot) => slot,
            None => self.take_slot().await,
        };
        let request = StoreRequest {
            key,
            value,
            options,
            nsid: NSID,
            cid: slot.cid,
            buffer: slot.buffer,
            list: slot.list,
            slots: self.slots,
            window: self.window.as_ref(),
        };
        let sequence = if method.is_inline() {
            match self.sequence.try_lock() {
                None => Some(self.sequence.lock().await),
                locked => locked,
            }
        } else {
            None
        };
        let status = self.carry_out(method, &request, &mut slot.outbox, sequence).await;
        self.give_slot(slot);
        if status.is_success() { Ok(()) } else { Err(status) }
    }

    /// A store from its first command to its last completion; gives `sequence` back when it may.
    async fn carry_out(
        &self,
        mut method: &dyn Method,
        request: &StoreRequest<'_>,
        outbox: &mut Vec<Sqe>,
        mut sequence: Option<MutexGuard<'_>>,
    ) -> Status {
        let bytes = request.value.bytes();
        let staged_bytes = method.staged_bytes(bytes);
        if staged_bytes > 0 {
            self.stage(request, staged_bytes).await;
        }
        let mut course = Course { driver: self, progress: Progress::default() };
        let progress = &mut course.progress;
        let mut next = method.begin(request, progress, outbox);
        loop {
            let completions = match next {
                Next::Done(status) => return status,
                Next::Submit => 1,
                Next::SubmitForAll(completions) => completions,
                Next::WriteWindow { address, bytes } => {
                    self.write_window(address, request.value.slice(0, bytes)).await;
                    1
                }
                Next::WaitForWindow => {
                    self.window_waiting.wait().await;
                    next = method.begin(request, progress, outbox);
                    if next != Next::WaitForWindow {
                        // There may be room for more than one.
                        self.window_waiting.wake_one();
                    }
                    continue;
                }
                Next::ByPrp => {
                    method = &prp::Prp;
                    if bytes > 0 {
                        self.stage(request, bytes).await;
                    }
                    *progress = Progress::default();
                    next = method.begin(request, progress, outbox);
                    continue;
                }
            };
            self.submit(outbox).await;
            if progress.sent_bytes == bytes {
                // Its last command is in the queue: the next value may follow.
                drop(sequence.take());
            }
            let cqe = self.completed(request.cid, completions).await;
            let had_claim = progress.claim.is_some();
            next = method.on_completion(request, progress, &cqe, outbox);
            if had_claim {
                self.window_waiting.wake_one();
            }
        }
    }

    /// Retrieves a value into `into`, from its byte 0; returns the value's size.
    pub async fn retrieve(&self, key: Key, into: &mut Region) -> Result<u32, Status> {
        let buffer_bytes = self.host.max_value_bytes;
        let command = Command::Retrieve { key, buffer_bytes, options: RetrieveOptions::default() };
        let (cqe, ()) = self
            .with_data(command, buffer_bytes, |cqe, memory, buffer| {
                into.clear();
                copy_in(memory, buffer, cqe.dw0.get().min(buffer_bytes), into);
            })
            .await?;
        Ok(cqe.dw0.get())
    }

    /// Removes a pair; removing what is not there succeeds.
    pub async fn delete(&self, key: Key) -> Result<(), Status> {
        self.without_data(Command::Delete { key }).await.map(|_| ())
    }

    /// Is there a pair?
    pub async fn exist(&self, key: Key) -> Result<bool, Status> {
        match self.without_data(Command::Exist { key }).await {
            Ok(_) => Ok(true),
            Err(Status::KEY_NOT_FOUND) => Ok(false),
            Err(status) => Err(status),
        }
    }

    /// Keys from `start` on (`None`: from the first), in the drive's order, as many as fit `buffer_bytes`.
    pub async fn list(&self, start: Option<Key>, buffer_bytes: u32) -> Result<Vec<Key>, Status> {
        let buffer_bytes = buffer_bytes.min(answers::buffer_bytes(self.host.max_value_bytes));
        let command = Command::List { start, buffer_bytes };
        let (_, keys) = self
            .with_data(command, buffer_bytes, |_, memory, buffer| take_keys(memory, buffer, buffer_bytes))
            .await?;
        keys
    }

    /// Opens an iterator on the pairs as they are now and reads the first one at or after `key`. `None` when there is
    /// none; the iterator is open all the same.
    pub async fn seek(
        &self,
        key: Option<Key>,
        into: &mut Region,
    ) -> Result<(Iterator, Option<Pair>), Status> {
        let buffer_bytes = answers::pair_bytes(self.host.max_value_bytes);
        let (cqe, pair) = self
            .with_data(Command::Seek { key, buffer_bytes }, buffer_bytes, |cqe, memory, buffer| {
                take_pair(cqe, memory, buffer, buffer_bytes, into)
            })
            .await?;
        let iterator = Iterator::of(&cqe);
        if pair.is_err() {
            self.close(iterator).await?;
        }
        Ok((iterator, pair?))
    }

    /// The iterator's next pair; `None` behind the last.
    pub async fn next(&self, iterator: Iterator, into: &mut Region) -> Result<Option<Pair>, Status> {
        let buffer_bytes = answers::pair_bytes(self.host.max_value_bytes);
        let command = Command::Next { iterator: iterator.number(), buffer_bytes };
        let (_, pair) = self
            .with_data(command, buffer_bytes, |cqe, memory, buffer| {
                take_pair(cqe, memory, buffer, buffer_bytes, into)
            })
            .await?;
        pair
    }

    /// Closes an iterator.
    pub async fn close(&self, iterator: Iterator) -> Result<(), Status> {
        self.without_data(Command::IterClose { iterator: iterator.number() }).await.map(|_| ())
    }

    /// Puts the first `bytes` bytes of a value into the slot's buffer, as an application that hands over a pointer
    /// has them there already: only pinning and naming the pages takes time.
    async fn stage(&self, request: &StoreRequest<'_>, bytes: u32) {
        self.host.memory.clear(request.buffer);
        self.host
            .memory
            .write(request.buffer, request.value.slice(0, bytes))
            .expect("a slot's buffer is mapped");
        self.pin(bytes).await;
    }

    async fn pin(&self, bytes: u32) {
        let pages = u64::from(bytes.div_ceil(PAGE_BYTES));
        let span = self.host.costs.dma_setup_ns + self.host.costs.pin_page_ns * pages;
        self.host.core.run_noted(span, "host", "name and pin pages").await;
    }

    /// The core copies the value and waits until its lines are flushed.
    async fn write_window(&self, address: u64, piece: Piece<'_>) {
        let (sim, began) = (self.host.link.sim(), self.host.link.sim().now());
        let _core = self.host.core.acquire().await;
        let span = self.host.costs.cxl_setup_ns;
        if span > 0 {
            sim.sleep(span).await;
            sim.trace().note(began, sim.now() - began, "host", "set up a CXL store", 0, "");
        }
        self.host.link.cxl_store(address, piece).await;
    }

    async fn submit(&self, outbox: &mut Vec<Sqe>) {
        let further = outbox.len() as u64 - 1;
        let span = self.host.costs.submit_ns + further * self.host.costs.entry_ns;
        if !self.host.core.pass_noted(span, "host", "submit") {
            self.host.core.run_noted(span, "host", "submit").await;
        }
        for sqe in outbox.drain(..) {
            assert!(self.queue.try_submit(sqe), "a driver never has more commands than its queue has slots");
        }
        if !self.host.link.ring_at_once(&self.queue) {
            self.host.link.wait_to_ring(&self.queue).await;
        }
    }

    /// Waits for so many completions of `cid` and acknowledges them; returns what they say together.
    async fn completed(&self, cid: u16, completions: u32) -> Cqe {
        let mut cqe = self.queue.completion(cid).await;
        if !self.host.core.pass_noted(self.host.costs.complete_ns, "host", "complete") {
            self.host.core.run_noted(self.host.costs.complete_ns, "host", "complete").await;
        }
        for _ in 1..completions {
            cqe = outcome(cqe, self.queue.completion(cid).await);
            self.host.core.run_noted(self.host.costs.entry_ns, "host", "complete one more").await;
        }
        self.host.link.ring_completions(&self.queue, completions);
        cqe
    }

    async fn without_data(&self, command: Command) -> Result<Cqe, Status> {
        let mut slot = self.take_slot().await;
        slot.outbox.push(command.encode(slot.cid, NSID));
        self.submit(&mut slot.outbox).await;
        let cqe = self.completed(slot.cid, 1).await;
        self.give_slot(slot);
        if cqe.status().is_success() { Ok(cqe) } else { Err(cqe.status()) }
    }

    /// A command that brings data to the slot's buffer; `take` reads it before the slot is used again.
    /// Nothing is pinned for it, and taking takes no time: see [`HostCosts`].
    async fn with_data<T>(
        &self,
        command: Command,
        buffer_bytes: u32,
        take: impl FnOnce(&Cqe, &dyn HostMemory, u64) -> T,
    ) -> Result<(Cqe, T), Status> {
        let mut slot = self.take_slot().await;
        self.host.memory.clear(slot.buffer);
        let mut sqe = command.encode(slot.cid, NSID);
        prp::point_at(&mut sqe, slot.buffer, slot.list, buffer_bytes);
        slot.outbox.push(sqe);
        self.submit(&mut slot.outbox).await;
        let cqe = self.completed(slot.cid, 1).await;
        let success = cqe.status().is_success();
        let taken = success.then(|| take(&cqe, &*self.host.memory, slot.buffer));
        self.give_slot(slot);
        taken.map(|taken| (cqe, taken)).ok_or(cqe.status())
    }

    async fn take_slot(&self) -> Slot {
        loop {
            if let Some(slot) = self.try_take_slot() {
                return slot;
            }
            self.freed.wait().await;
        }
    }

    #[inline]
    fn try_take_slot(&self) -> Option<Slot> {
        self.free.borrow_mut().pop()
    }

    fn give_slot(&self, slot: Slot) {
        self.free.borrow_mut().push(slot);
        self.freed.wake_one();
    }
}

fn new_slot(host: &Host, cid: u16) -> Slot {
    let bytes = answers::buffer_bytes(host.max_value_bytes);
    let buffer = host.memory.map(bytes);
    let list = host.memory.map(PAGE_BYTES);
    host.memory
        .write(list, Piece::Bytes(&answers::list_page(buffer, bytes)))
        .expect("a slot's list is mapped");
    Slot { cid, buffer, list, outbox: Vec::new() }
}
