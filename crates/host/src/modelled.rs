//! The driver on a modelled core: what the host does takes model time on a core of the profile.
//!
//! One [`Driver`] is one I/O queue pair with as many command slots as its depth. A slot has a command
//! identifier, a DMA buffer and a list page that are set up once, so a command allocates nothing.
//!
//! Inline commands of one queue must follow each other without a gap, so a store that uses several of them
//! holds the queue's sequence until its last one is submitted.
//!
//! A command may be dropped at any moment. What the drive has of it goes on: a task waits for the
//! completions, and only then is the slot free, for its identifier and its buffer are the drive's until
//! then. A store that was dropped between its inline commands has left half a value there; the queue is
//! reset, and no other inline value begins before that. An iterator that nobody learns of is closed.

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_link::pcie::PAGE_BYTES;
use kvdrive_link::transfer::{Choice, HostWindow, Method, Next, Progress, StoreRequest, outcome, prp};
use kvdrive_link::{HostMemory, Link, LocalMemory, QueuePair};
use kvdrive_settings::{Rules, TIME};
use kvdrive_sim::{Mutex, MutexGuard, Ns, Resource, TaskCell, WaitQueue};
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
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

impl HostCosts {
    /// Those keys of `[host]`.
    pub const RULES: Rules = &[
        ("host.submit_ns", TIME),
        ("host.complete_ns", TIME),
        ("host.dma_setup_ns", TIME),
        ("host.pin_page_ns", TIME),
        ("host.entry_ns", TIME),
        ("host.cxl_setup_ns", TIME),
    ];
}

#[derive(Default)]
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
    pub fn connect(
        link: Rc<Link>,
        memory: Rc<LocalMemory>,
        core: Rc<Resource>,
        costs: HostCosts,
    ) -> Result<Rc<Host>, Status> {
        let mut host = Host { link, memory, core, costs, max_value_bytes: 0 };
        host.max_value_bytes = host.identify()?.format().value_max_bytes.get();
        Ok(Rc::new(host))
    }

    /// Identify data of the KV namespace as it is now.
    pub fn identify(&self) -> Result<KvNamespace, Status> {
        let queue = self.link.admin_queue();
        let buffer = self.memory.map(IDENTIFY_BYTES as u32);
        let sqe = answers::identify_namespace(0, buffer);
        assert!(queue.try_submit(sqe), "the admin queue takes one command at a time");
        self.link.ring_submission(&queue);
        let cqe = queue.completion(0);
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

/// A queue pair and its slots: what outlives a command that is dropped.
struct Lane {
    host: Rc<Host>,
    queue: Rc<QueuePair>,
    free: TaskCell<Vec<Slot>>,
    freed: WaitQueue,
    /// The drive has half a value of a store that was dropped.
    is_torn: Cell<bool>,
    mended: WaitQueue,
    /// `None`: the drive exposes none.
    window: Option<HostWindow>,
    /// Who waits until a value in the window is answered, because it is full.
    window_waiting: WaitQueue,
}

impl Lane {
    /// What a dropped store has of the window comes back, if it still has something.
    fn end_dropped(&self, progress: &mut Progress, cqe: Option<&Cqe>) {
        let Some(window) = &self.window else { return };
        if progress.claim.is_some() || progress.granted.is_some() {
            window.end_dropped(progress, cqe);
            self.window_waiting.wake_one();
        }
    }

    fn give(&self, slot: Slot) {
        self.free.borrow_mut().push(slot);
        self.freed.wake_one();
    }

    /// The drive has answered all that a store sent before it was dropped, and will get no more of it.
    fn mend(&self) {
        self.host.link.reset(&self.queue);
        self.is_torn.set(false);
        self.mended.wake_all();
    }
}

/// Typed commands over one queue pair.
pub struct Driver {
    lane: Rc<Lane>,
    choice: Box<dyn Choice>,
    /// Held while an inline value is being submitted.
    sequence: Mutex,
    /// Queue entries that each command may use at once: an equal share, so that nobody waits for room.
    slots: u32,
}

/// A command from its slot to its end, and how far it has come. Dropped in the middle it leaves nothing
/// behind that others would wait for.
struct Course<'a> {
    driver: &'a Driver,
    slot: Slot,
    progress: Progress,
    /// Of a store by inline commands, until the last one is in the queue.
    sequence: Option<MutexGuard<'a>>,
    /// Something of it has been in the queue.
    has_begun: bool,
    /// Commands in the queue are not rung for.
    is_unrung: bool,
    /// Completions to come, and those that came and are not acknowledged; the last that came.
    awaited: u32,
    unacknowledged: u32,
    cqe: Option<Cqe>,
    /// It is a SEEK.
    opens_iterator: bool,
}

impl Drop for Course<'_> {
    fn drop(&mut self) {
        let lane = &self.driver.lane;
        let sim = lane.host.link.sim();
        if sim.halted() {
            return;
        }
        self.slot.outbox.clear();
        let rest = Rest {
            slot: std::mem::take(&mut self.slot),
            progress: self.progress,
            is_torn: self.has_begun && self.sequence.is_some(),
            is_unrung: self.is_unrung,
            awaited: self.awaited,
            unacknowledged: self.unacknowledged,
            cqe: self.cqe,
            opens_iterator: self.opens_iterator,
        };
        if rest.is_torn {
            lane.is_torn.set(true);
        }
        if rest.awaited > 0 || rest.opened().is_some() {
            let lane = lane.clone();
            sim.spawn(move || rest.carry_out(lane));
        } else {
            rest.end(lane);
        }
    }
}

/// What is left of a command that nobody waits for; see [`Course`].
struct Rest {
    slot: Slot,
    progress: Progress,
    is_torn: bool,
    is_unrung: bool,
    awaited: u32,
    unacknowledged: u32,
    cqe: Option<Cqe>,
    opens_iterator: bool,
}

impl Rest {
    /// What its last completion opened.
    fn opened(&self) -> Option<Iterator> {
        self.cqe.filter(|_| self.opens_iterator).and_then(|cqe| Iterator::opened(&cqe))
    }

    fn carry_out(mut self, lane: Rc<Lane>) {
        let Lane { host, queue, .. } = &*lane;
        if self.is_unrung {
            host.link.ring_submission(queue);
        }
        while self.awaited > 0 {
            let cqe = queue.completion(self.slot.cid);
            self.awaited -= 1;
            self.unacknowledged += 1;
            self.cqe = Some(cqe);
        }
        if let Some(iterator) = self.opened() {
            let close = Command::IterClose { iterator: iterator.number() };
            assert!(queue.try_submit(close.encode(self.slot.cid, NSID)), "a command of this slot has ended");
            host.link.ring_submission(queue);
            queue.completion(self.slot.cid);
            self.unacknowledged += 1;
        }
        self.end(&lane);
    }

    /// Nothing of it is under way any more.
    fn end(mut self, lane: &Lane) {
        lane.end_dropped(&mut self.progress, self.cqe.as_ref());
        if self.unacknowledged > 0 {
            lane.host.link.ring_completions(&lane.queue, self.unacknowledged);
        }
        if self.is_torn {
            lane.mend();
        }
        lane.give(self.slot);
    }
}

impl Driver {
    /// A driver with a queue pair of `entries` slots and up to `depth` commands at once.
    pub fn new(host: &Rc<Host>, choice: Box<dyn Choice>, entries: u32, depth: u32) -> Driver {
        assert!(depth < entries, "a queue of {entries} slots holds at most {} commands", entries - 1);
        let sim = host.link.sim();
        let free = (0..depth).map(|cid| new_slot(host, cid as u16)).collect();
        let lane = Lane {
            queue: host.link.create_queue(entries),
            host: host.clone(),
            free: TaskCell::new(free),
            freed: WaitQueue::new(sim),
            is_torn: Cell::new(false),
            mended: WaitQueue::new(sim),
            window: host.link.window_bytes().map(HostWindow::new),
            window_waiting: WaitQueue::new(sim),
        };
        Driver { lane: Rc::new(lane), choice, sequence: Mutex::new(sim), slots: (entries - 1) / depth }
    }

    /// The host this driver belongs to.
    pub fn host(&self) -> &Rc<Host> {
        &self.lane.host
    }

    /// Stores a value.
    pub fn store(&self, key: Key, value: Piece<'_>) -> Result<(), Status> {
        self.store_with(key, value, StoreOptions::default())
    }

    /// Stores a value under a condition. Conditions need the option byte, which inline commands use for
    /// value bytes: such a store goes by `prp`.
    pub fn store_with(&self, key: Key, value: Piece<'_>, options: StoreOptions) -> Result<(), Status> {
        let bytes = value.bytes();
        if bytes > self.lane.host.max_value_bytes {
            return Err(Status::INVALID_VALUE_SIZE);
        }
        let plain = options == StoreOptions::default();
        let method = if plain { self.choice.pick(bytes, self.slots) } else { &prp::Prp };
        let mut course = self.begin();
        if method.is_inline() {
            course.sequence = Some(self.sequence.lock());
            while self.lane.is_torn.get() {
                self.lane.mended.wait();
            }
        }
        let slot = &course.slot;
        let request = StoreRequest {
            key,
            value,
            options,
            nsid: NSID,
            cid: slot.cid,
            buffer: slot.buffer,
            list: slot.list,
            slots: self.slots,
            window: self.lane.window.as_ref(),
        };
        let status = self.carry_out(method, &request, &mut course);
        if status.is_success() { Ok(()) } else { Err(status) }
    }

    /// A store from its first command to its last completion; gives the sequence back when it may.
    fn carry_out(
        &self,
        mut method: &dyn Method,
        request: &StoreRequest<'_>,
        course: &mut Course<'_>,
    ) -> Status {
        let bytes = request.value.bytes();
        let staged_bytes = method.staged_bytes(bytes);
        if staged_bytes > 0 {
            self.stage(request, staged_bytes);
        }
        let mut next = method.begin(request, &mut course.progress, &mut course.slot.outbox);
        loop {
            let completions = match next {
                Next::Done(status) => {
                    drop(course.sequence.take());
                    return status;
                }
                Next::Submit => 1,
                Next::SubmitForAll(completions) => completions,
                Next::WriteWindow { address, bytes } => {
                    self.write_window(address, request.value.slice(0, bytes));
                    1
                }
                Next::WaitForWindow => {
                    self.lane.window_waiting.wait();
                    next = method.begin(request, &mut course.progress, &mut course.slot.outbox);
                    if next != Next::WaitForWindow {
                        // There may be room for more than one.
                        self.lane.window_waiting.wake_one();
                    }
                    continue;
                }
                Next::ByPrp => {
                    method = &prp::Prp;
                    if bytes > 0 {
                        self.stage(request, bytes);
                    }
                    course.progress = Progress::default();
                    next = method.begin(request, &mut course.progress, &mut course.slot.outbox);
                    continue;
                }
            };
            self.submit(course, completions);
            if course.progress.sent_bytes == bytes {
                // Its last command is in the queue: the next value may follow.
                drop(course.sequence.take());
            }
            let cqe = self.completed(course);
            let had_claim = course.progress.claim.is_some();
            next = method.on_completion(request, &mut course.progress, &cqe, &mut course.slot.outbox);
            if had_claim {
                self.lane.window_waiting.wake_one();
            }
        }
    }

    /// Retrieves a value into `into`, from its byte 0; returns the value's size.
    pub fn retrieve(&self, key: Key, into: &mut Region) -> Result<u32, Status> {
        let buffer_bytes = self.lane.host.max_value_bytes;
        let command = Command::Retrieve { key, buffer_bytes, options: RetrieveOptions::default() };
        let (cqe, ()) = self.with_data(command, buffer_bytes, |cqe, memory, buffer| {
            into.clear();
            copy_in(memory, buffer, cqe.dw0.get().min(buffer_bytes), into);
        })?;
        Ok(cqe.dw0.get())
    }

    /// Removes a pair; removing what is not there succeeds.
    pub fn delete(&self, key: Key) -> Result<(), Status> {
        self.without_data(Command::Delete { key }).map(|_| ())
    }

    /// Is there a pair?
    pub fn exist(&self, key: Key) -> Result<bool, Status> {
        match self.without_data(Command::Exist { key }) {
            Ok(_) => Ok(true),
            Err(Status::KEY_NOT_FOUND) => Ok(false),
            Err(status) => Err(status),
        }
    }

    /// Keys from `start` on (`None`: from the first), in the drive's order, as many as fit `buffer_bytes`.
    pub fn list(&self, start: Option<Key>, buffer_bytes: u32) -> Result<Vec<Key>, Status> {
        let buffer_bytes = buffer_bytes.min(answers::buffer_bytes(self.lane.host.max_value_bytes));
        let command = Command::List { start, buffer_bytes };
        let (_, keys) = self
            .with_data(command, buffer_bytes, |_, memory, buffer| take_keys(memory, buffer, buffer_bytes))?;
        keys
    }

    /// Opens an iterator on the pairs as they are now and reads the first one at or after `key`. `None`
    /// when there is none; the iterator is open all the same.
    pub fn seek(&self, key: Option<Key>, into: &mut Region) -> Result<(Iterator, Option<Pair>), Status> {
        let buffer_bytes = answers::pair_bytes(self.lane.host.max_value_bytes);
        let (cqe, pair) =
            self.with_data(Command::Seek { key, buffer_bytes }, buffer_bytes, |cqe, memory, buffer| {
                take_pair(cqe, memory, buffer, buffer_bytes, into)
            })?;
        let iterator = Iterator::of(&cqe);
        if pair.is_err() {
            self.close(iterator)?;
        }
        Ok((iterator, pair?))
    }

    /// The iterator's next pair; `None` behind the last.
    pub fn next(&self, iterator: Iterator, into: &mut Region) -> Result<Option<Pair>, Status> {
        let buffer_bytes = answers::pair_bytes(self.lane.host.max_value_bytes);
        let command = Command::Next { iterator: iterator.number(), buffer_bytes };
        let (_, pair) = self.with_data(command, buffer_bytes, |cqe, memory, buffer| {
            take_pair(cqe, memory, buffer, buffer_bytes, into)
        })?;
        pair
    }

    /// Closes an iterator.
    pub fn close(&self, iterator: Iterator) -> Result<(), Status> {
        self.without_data(Command::IterClose { iterator: iterator.number() }).map(|_| ())
    }

    /// Puts the first `bytes` bytes of a value into the slot's buffer, as an application that hands over a
    /// pointer has them there already: only pinning and naming the pages takes time.
    fn stage(&self, request: &StoreRequest<'_>, bytes: u32) {
        let memory = &self.lane.host.memory;
        memory.clear(request.buffer);
        memory.write(request.buffer, request.value.slice(0, bytes)).expect("a slot's buffer is mapped");
        self.pin(bytes);
    }

    fn pin(&self, bytes: u32) {
        let pages = u64::from(bytes.div_ceil(PAGE_BYTES));
        let host = &self.lane.host;
        let span = host.costs.dma_setup_ns + host.costs.pin_page_ns * pages;
        host.core.run_noted(span, "host", "name and pin pages");
    }

    /// The core copies the value and waits until its lines are flushed.
    fn write_window(&self, address: u64, piece: Piece<'_>) {
        let host = &self.lane.host;
        let (sim, began) = (host.link.sim(), host.link.sim().now());
        let _core = host.core.acquire();
        let span = host.costs.cxl_setup_ns;
        if span > 0 {
            sim.sleep(span);
            sim.trace().note(began, sim.now() - began, "host", "set up a CXL store", 0, "");
        }
        host.link.cxl_store(address, piece);
    }

    /// Puts what is in the outbox into the queue; so many completions are to come.
    fn submit(&self, course: &mut Course<'_>, completions: u32) {
        let Lane { host, queue, .. } = &*self.lane;
        let further = course.slot.outbox.len() as u64 - 1;
        let span = host.costs.submit_ns + further * host.costs.entry_ns;
        host.core.run_noted(span, "host", "submit");
        for sqe in course.slot.outbox.drain(..) {
            assert!(queue.try_submit(sqe), "a driver never has more commands than its queue has slots");
        }
        (course.has_begun, course.is_unrung, course.awaited) = (true, true, completions);
        course.cqe = None;
        host.link.ring_submission(queue);
        course.is_unrung = false;
    }

    /// Waits for the completions to come and acknowledges them; returns what they say together.
    fn completed(&self, course: &mut Course<'_>) -> Cqe {
        let Lane { host, .. } = &*self.lane;
        let mut cqe = self.completion(course);
        host.core.run_noted(host.costs.complete_ns, "host", "complete");
        while course.awaited > 0 {
            cqe = outcome(cqe, self.completion(course));
            host.core.run_noted(host.costs.entry_ns, "host", "complete one more");
        }
        host.link.ring_completions(&self.lane.queue, std::mem::take(&mut course.unacknowledged));
        cqe
    }

    fn completion(&self, course: &mut Course<'_>) -> Cqe {
        let cqe = self.lane.queue.completion(course.slot.cid);
        course.awaited -= 1;
        course.unacknowledged += 1;
        course.cqe = Some(cqe);
        cqe
    }

    fn without_data(&self, command: Command) -> Result<Cqe, Status> {
        let mut course = self.begin();
        course.slot.outbox.push(command.encode(course.slot.cid, NSID));
        self.submit(&mut course, 1);
        let cqe = self.completed(&mut course);
        if cqe.status().is_success() { Ok(cqe) } else { Err(cqe.status()) }
    }

    /// A command that brings data to the slot's buffer; `take` reads it before the slot is used again.
    /// Nothing is pinned for it, and taking takes no time: see [`HostCosts`].
    fn with_data<T>(
        &self,
        command: Command,
        buffer_bytes: u32,
        take: impl FnOnce(&Cqe, &dyn HostMemory, u64) -> T,
    ) -> Result<(Cqe, T), Status> {
        let memory = &self.lane.host.memory;
        let mut course = self.begin();
        course.opens_iterator = matches!(command, Command::Seek { .. });
        let Slot { cid, buffer, list, .. } = course.slot;
        memory.clear(buffer);
        let mut sqe = command.encode(cid, NSID);
        prp::point_at(&mut sqe, buffer, list, buffer_bytes);
        course.slot.outbox.push(sqe);
        self.submit(&mut course, 1);
        let cqe = self.completed(&mut course);
        // What it opened is the caller's.
        course.cqe = None;
        let success = cqe.status().is_success();
        let taken = success.then(|| take(&cqe, &**memory, buffer));
        taken.map(|taken| (cqe, taken)).ok_or(cqe.status())
    }

    /// Begins a command when there is a slot for it.
    fn begin(&self) -> Course<'_> {
        let slot = loop {
            let free = self.lane.free.borrow_mut().pop();
            match free {
                Some(slot) => break slot,
                None => self.lane.freed.wait(),
            }
        };
        Course {
            driver: self,
            slot,
            progress: Progress::default(),
            sequence: None,
            has_begun: false,
            is_unrung: false,
            awaited: 0,
            unacknowledged: 0,
            cqe: None,
            opens_iterator: false,
        }
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
