//! The driver on a modelled core: the host's work takes model time on a core of the profile.
//!
//! One [`Driver`] is one I/O queue pair with as many command slots as its depth. A slot has a command
//! identifier, a DMA buffer and a list page that are set up once, so a command allocates nothing.
//!
//! Inline commands of one queue must follow each other without a gap, so a store that uses several of them
//! holds the queue's sequence until its last one is submitted.
//!
//! A command may be dropped at any moment. The drive continues with it: a task waits for the completions, and
//! only then is the slot free, because its identifier and buffer belong to the drive until then. A store
//! dropped between its inline commands leaves a part of a value in the drive; the drive is told to discard
//! it, and no other inline value begins before that. An iterator whose SEEK was dropped is closed.

mod host;
pub mod saker;

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_link::pcie::PAGE_BYTES;
use kvdrive_link::transfer::{Choice, HostWindow, Progress};
use kvdrive_link::{HostMemory, QueuePair};
use kvdrive_sim::{Mutex, MutexGuard, TaskCell, WaitQueue};
use kvdrive_spec::{Command, Cqe, Key, Sqe, Status, StoreOptions};

use crate::Error;
use crate::answers::{self, NSID};
pub use crate::answers::{IteratorId, Pair};
use crate::client::{Answer, Call, Client, Content, NoValue};
use crate::course::{Course, Lot, Step, Terms, done};
use crate::slot::{Arrived, Left, Slot, Walk};
use crate::unclaimed;
use host::delete_queue;
pub use host::{Host, HostCosts};
pub(crate) use host::{create_queue, identify};

/// What a slot's commands use: set up once, so that a command allocates nothing.
#[derive(Default)]
struct SlotMemory {
    cid: u16,
    buffer: u64,
    list: u64,
    outbox: Vec<Sqe>,
}

/// A queue pair and its slots: what outlives a command that is dropped.
struct Lane {
    host: Rc<Host>,
    queue: Rc<QueuePair>,
    /// Slots, whether free or not.
    depth: u32,
    free: TaskCell<Vec<SlotMemory>>,
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

    fn give(&self, memory: SlotMemory) {
        self.free.borrow_mut().push(memory);
        self.freed.wake_one();
    }

    /// The drive has given up what it had of a store that was dropped.
    fn mend(&self) {
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

/// The calls of [`Client`], which have no error but a status here.
impl Driver {
    fn call<V: Content>(&self, call: Call<V>, into: &mut Region) -> Result<Answer, Status> {
        self.wait(self.submit(call), into)
    }

    /// [`Client::store`].
    pub fn store(&self, key: Key, value: Piece<'_>) -> Result<(), Status> {
        self.store_with(key, value, StoreOptions::default())
    }

    /// [`Client::store_with`]; such a store goes by `prp`, whatever the driver's method is.
    pub fn store_with(&self, key: Key, value: Piece<'_>, options: StoreOptions) -> Result<(), Status> {
        self.call(Call::Store { key, value, options }, &mut Region::new()).map(|_| ())
    }

    /// [`Client::retrieve`].
    pub fn retrieve(&self, key: Key, into: &mut Region) -> Result<u32, Status> {
        self.call(NoValue::Retrieve { key }, into).map(Answer::value)
    }

    /// [`Client::delete`].
    pub fn delete(&self, key: Key) -> Result<(), Status> {
        self.call(NoValue::Delete { key }, &mut Region::new()).map(|_| ())
    }

    /// [`Client::exist`].
    pub fn exist(&self, key: Key) -> Result<bool, Status> {
        self.call(NoValue::Exist { key }, &mut Region::new()).map(Answer::exists)
    }

    /// [`Client::list`].
    pub fn list(&self, start: Option<Key>, buffer_bytes: u32) -> Result<Vec<Key>, Status> {
        self.call(NoValue::List { start, buffer_bytes }, &mut Region::new()).map(Answer::keys)
    }

    /// [`Client::seek`].
    pub fn seek(&self, key: Option<Key>, into: &mut Region) -> Result<(IteratorId, Option<Pair>), Status> {
        self.call(NoValue::Seek { key }, into).map(Answer::opened)
    }

    /// [`Client::next`].
    pub fn next(&self, iterator: IteratorId, into: &mut Region) -> Result<Option<Pair>, Status> {
        self.call(NoValue::Next { iterator }, into).map(Answer::pair)
    }

    /// [`Client::close`].
    pub fn close(&self, iterator: IteratorId) -> Result<(), Status> {
        self.call(NoValue::Close { iterator }, &mut Region::new()).map(|_| ())
    }
}

impl<'d> Client for &'d Driver {
    type Ticket<V: Content> = Ticket<'d, V>;

    fn submit<V: Content>(&mut self, call: Call<V>) -> Result<Ticket<'d, V>, Error> {
        let driver: &'d Driver = self;
        Ok(driver.submit(call))
    }

    fn wait<V: Content>(&mut self, ticket: Ticket<'d, V>, into: &mut Region) -> Result<Answer, Error> {
        let driver: &'d Driver = self;
        Ok(driver.wait(ticket, into)?)
    }
}

/// A command that was submitted.
#[must_use = "whoever drops it learns nothing of the answer"]
pub struct Ticket<'d, V> {
    call: Call<V>,
    state: State<'d>,
}

#[expect(clippy::large_enum_variant, reason = "a command under way allocates nothing")]
enum State<'d> {
    UnderWay(Flight<'d>),
    /// The next pair of this iterator went to nobody before.
    Unclaimed(IteratorId),
    /// The drive has answered before the last entry was submitted, or was not asked at all.
    Ended(Status),
}

/// How far to go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Until the last entry that must be submitted in turn is in the queue.
    Whole,
    Done,
}

/// A command under way, as long as somebody waits for it. Dropped in the middle it leaves nothing behind that
/// others would wait for.
struct Flight<'a> {
    driver: &'a Driver,
    course: Course<'a>,
    /// Of a store by inline commands, until the last one is in the queue.
    sequence: Option<MutexGuard<'a>>,
    entries: Entries,
    /// Its slot is free again.
    is_over: bool,
}

/// What a command has in its queue, whoever waits for it.
#[derive(Default)]
struct Entries {
    slot: Slot,
    memory: SlotMemory,
    /// Commands in the queue are not rung for.
    is_unrung: bool,
    /// Completions that came and are not acknowledged; the last that came.
    unacknowledged: u32,
    cqe: Option<Cqe>,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let lane = &self.driver.lane;
        let sim = lane.host.link.sim();
        if self.is_over || sim.halted() {
            return;
        }
        let mut entries = std::mem::take(&mut self.entries);
        entries.memory.outbox.clear();
        if let Some(iterator) = entries.slot.steps() {
            lane.host.unclaimed.borrow_mut().expect(iterator);
        }
        if entries.slot.is_inside() {
            lane.is_torn.set(true);
        }
        let progress = self.course.progress();
        match entries.slot.abandon() {
            left @ Left::Over { is_torn: false, .. } => entries.end(lane, progress, left),
            left => {
                let lane = lane.clone();
                sim.spawn(move || entries.carry_out(&lane, progress, left));
            }
        }
    }
}

impl Entries {
    fn completion(&mut self, queue: &QueuePair) -> Arrived {
        let cqe = queue.completion(self.memory.cid);
        self.unacknowledged += 1;
        self.cqe = Some(cqe);
        self.slot.arrived(&cqe)
    }

    /// Waits for what is under way of a command that nobody waits for.
    fn carry_out(mut self, lane: &Lane, progress: Progress, mut left: Left) {
        let Lane { host, queue, .. } = lane;
        if self.is_unrung {
            host.link.ring_submission(queue);
        }
        loop {
            match left {
                Left::Wait => match self.completion(queue) {
                    Arrived::Left(next) => left = next,
                    Arrived::More | Arrived::Answered => unreachable!("nobody waits for it"),
                },
                Left::Close(sqe) => {
                    assert!(queue.try_submit(sqe), "a command of this slot has ended");
                    host.link.ring_submission(queue);
                    left = Left::Wait;
                }
                Left::Over { is_torn, .. } => {
                    if is_torn {
                        self.discard(lane);
                    }
                    return self.end(lane, progress, left);
                }
            }
        }
    }

    /// Has the drive give up the part of a value that it has.
    fn discard(&mut self, lane: &Lane) {
        let Lane { host, queue, .. } = lane;
        let sqe = Command::Discard.encode(self.memory.cid, NSID);
        assert!(queue.try_submit(sqe), "a command of this slot has ended");
        host.link.ring_submission(queue);
        queue.completion(self.memory.cid);
        self.unacknowledged += 1;
    }

    /// Nothing of it is under way any more.
    fn end(self, lane: &Lane, mut progress: Progress, left: Left) {
        let host = &*lane.host;
        let Left::Over { is_torn, unclaimed } = left else { unreachable!("all has come") };
        lane.end_dropped(&mut progress, self.cqe.as_ref());
        if let Some((iterator, buffer_bytes, cqe)) = unclaimed {
            let answers = unclaimed::Answer::take(&cqe, &*host.memory, self.memory.buffer, buffer_bytes);
            if host.unclaimed.borrow_mut().arrive(iterator, answers) {
                host.unclaimed_came.wake_all();
            }
        }
        if self.unacknowledged > 0 {
            host.link.ring_completions(&lane.queue, self.unacknowledged);
        }
        if is_torn {
            lane.mend();
        }
        lane.give(self.memory);
    }
}

impl Driver {
    /// A driver with a queue pair of `entries` slots, which the drive is asked to create, and up to `depth`
    /// commands at once.
    ///
    /// # Errors
    /// What the drive answered; [`Status::INVALID_QUEUE_ID`] if it has as many queues as there are identifiers.
    pub fn connect(
        host: &Rc<Host>,
        choice: Box<dyn Choice>,
        entries: u32,
        depth: u32,
    ) -> Result<Driver, Status> {
        assert!(depth < entries, "a queue of {entries} slots holds at most {} commands", entries - 1);
        let sim = host.link.sim();
        let free = (0..depth).map(|cid| new_slot(host, cid as u16)).collect();
        let lane = Lane {
            queue: create_queue(&host.link, entries)?,
            host: host.clone(),
            depth,
            free: TaskCell::new(free),
            freed: WaitQueue::new(sim),
            is_torn: Cell::new(false),
            mended: WaitQueue::new(sim),
            window: host.link.window_bytes().map(HostWindow::new),
            window_waiting: WaitQueue::new(sim),
        };
        Ok(Driver { lane: Rc::new(lane), choice, sequence: Mutex::new(sim), slots: (entries - 1) / depth })
    }

    /// Waits for what is under way, of dropped commands too, and has the drive delete the queue pair. A
    /// driver that is dropped instead leaves it there.
    ///
    /// # Errors
    /// What the drive answered.
    pub fn disconnect(self) -> Result<(), Status> {
        let Lane { host, queue, depth, free, freed, .. } = &*self.lane;
        while free.borrow().len() < *depth as usize {
            freed.wait();
        }
        delete_queue(&host.link, queue)
    }

    /// The host this driver belongs to.
    pub fn host(&self) -> &Rc<Host> {
        &self.lane.host
    }

    fn terms(&self) -> Terms<'_> {
        let max_value_bytes = self.lane.host.max_value_bytes;
        Terms { choice: &*self.choice, entries: self.slots, max_value_bytes, pairs: 1 }
    }

    /// What a slot offers its command. Inline commands go one by one, as published.
    fn lot(&self, cid: u16, buffer: u64, list: u64) -> Lot<'_> {
        let window = self.lane.window.as_ref();
        Lot { cid, buffer, list, entries: self.slots, window, is_together: false }
    }

    /// Submits a command, up to the last entry of it that must be submitted in turn.
    fn submit<V: Content>(&self, call: Call<V>) -> Ticket<'_, V> {
        let host = &self.lane.host;
        if let Call::Next { iterator } = call
            && host.unclaimed.borrow().has(iterator)
        {
            return Ticket { call, state: State::Unclaimed(iterator) };
        }
        let course = match Course::of(self.terms(), &call) {
            Ok(course) => course,
            Err(status) => return Ticket { call, state: State::Ended(status) },
        };
        let mut flight = self.begin(course);
        let value = call.value();
        let step = flight.step(value);
        let state = match self.follow(&mut flight, value, step, Until::Whole) {
            None => State::UnderWay(flight),
            Some(status) => State::Ended(status),
        };
        Ticket { call, state }
    }

    /// Would [`Driver::wait`] find something there already?
    fn has_answer<V>(&self, ticket: &Ticket<'_, V>) -> bool {
        match &ticket.state {
            State::UnderWay(flight) => self.lane.queue.has_completion(flight.entries.memory.cid),
            State::Unclaimed(_) | State::Ended(_) => true,
        }
    }

    /// Waits for a command's answer; a value comes into `into`. Nothing is pinned for what an answer brings,
    /// and taking it takes no time: see [`HostCosts`].
    fn wait<V: Content>(&self, ticket: Ticket<'_, V>, into: &mut Region) -> Result<Answer, Status> {
        let mut ticket = ticket;
        while let State::Unclaimed(iterator) = ticket.state {
            if let Some(answer) = self.lane.host.claim(iterator) {
                *into = answer.value;
                return answer.pair.map(Answer::Pair);
            }
            ticket = self.submit(ticket.call);
        }
        let Ticket { call, state: State::UnderWay(mut flight) } = ticket else {
            let State::Ended(status) = ticket.state else { unreachable!("it is asked of the drive") };
            return done(status).map(|()| Answer::Done);
        };
        let value = call.value();
        let cqe = self.completed(&mut flight);
        let step = flight.completed(value, &cqe);
        let ended = self.follow(&mut flight, value, step, Until::Done);
        let status = ended.expect("who waits is told the status");
        let cqe = flight.entries.slot.outcome().expect("the last completion has come");
        // What it opened or brought is the caller's.
        flight.entries.slot.settled();
        let host = &self.lane.host;
        let answer = flight.course.answer(status, &cqe, &*host.memory, flight.entries.memory.buffer, into);
        let opened = flight.course.walk() == Walk::Opens && status.is_success();
        flight.end();
        match call {
            Call::Seek { .. } if opened && answer.is_err() => self.close(IteratorId::of(&cqe))?,
            Call::Close { iterator } => host.forget(iterator),
            _ => {}
        }
        answer
    }

    /// Does what steps say. `None`: the last entry of the command is in the queue.
    fn follow<'a>(
        &'a self,
        flight: &mut Flight<'a>,
        value: Piece<'_>,
        mut step: Step,
        until: Until,
    ) -> Option<Status> {
        loop {
            step = match step {
                Step::Done(status) => {
                    flight.leave_sequence();
                    return Some(status);
                }
                Step::Submit(completions) => {
                    self.send(flight, completions);
                    if flight.course.is_whole(value.bytes()) {
                        // The next value may follow.
                        flight.leave_sequence();
                        if until == Until::Whole {
                            return None;
                        }
                    }
                    let cqe = self.completed(flight);
                    flight.completed(value, &cqe)
                }
                other => {
                    self.prepare(flight, value, other);
                    flight.step_behind(other, value)
                }
            };
        }
    }

    /// What a command needs before it can be submitted.
    fn prepare<'a>(&'a self, flight: &mut Flight<'a>, value: Piece<'_>, step: Step) {
        let buffer = flight.entries.memory.buffer;
        match step {
            Step::TakeSequence => {
                flight.sequence = Some(self.sequence.lock());
                while self.lane.is_torn.get() {
                    self.lane.mended.wait();
                }
            }
            Step::Stage(bytes) => self.stage(buffer, value.slice(0, bytes)),
            Step::Clear => self.lane.host.memory.clear(buffer),
            Step::WriteWindow { address, bytes } => self.write_window(address, value.slice(0, bytes)),
            Step::WaitForWindow => self.lane.window_waiting.wait(),
            Step::Submit(_) | Step::Done(_) => unreachable!("no preparations"),
        }
    }

    /// Puts the first bytes of a value into the slot's buffer, as an application that hands over a pointer has
    /// them there already: only pinning and naming the pages takes time.
    fn stage(&self, buffer: u64, piece: Piece<'_>) {
        let memory = &self.lane.host.memory;
        memory.clear(buffer);
        memory.write(buffer, piece).expect("a slot's buffer is mapped");
        self.pin(piece.bytes());
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
    fn send(&self, flight: &mut Flight<'_>, completions: u32) {
        let Lane { host, queue, .. } = &*self.lane;
        let entries = &mut flight.entries;
        let further = entries.memory.outbox.len() as u64 - 1;
        let span = host.costs.submit_ns + further * host.costs.entry_ns;
        host.core.run_noted(span, "host", "submit");
        for sqe in entries.memory.outbox.drain(..) {
            assert!(queue.try_submit(sqe), "a driver never has more commands than its queue has slots");
        }
        entries.slot.submitted(completions, flight.course.walk(), flight.sequence.is_some());
        (entries.is_unrung, entries.cqe) = (true, None);
        host.link.ring_submission(queue);
        entries.is_unrung = false;
    }

    /// Waits for the completions to come and acknowledges them; returns what they say together.
    fn completed(&self, flight: &mut Flight<'_>) -> Cqe {
        let Lane { host, queue, .. } = &*self.lane;
        let entries = &mut flight.entries;
        let mut arrived = entries.completion(queue);
        host.core.run_noted(host.costs.complete_ns, "host", "complete");
        while arrived == Arrived::More {
            arrived = entries.completion(queue);
            host.core.run_noted(host.costs.entry_ns, "host", "complete one more");
        }
        host.link.ring_completions(queue, std::mem::take(&mut entries.unacknowledged));
        entries.slot.outcome().expect("the last completion has come")
    }

    /// Begins a command when there is a slot for it.
    fn begin<'a>(&'a self, course: Course<'a>) -> Flight<'a> {
        let memory = loop {
            let free = self.lane.free.borrow_mut().pop();
            match free {
                Some(memory) => break memory,
                None => self.lane.freed.wait(),
            }
        };
        let entries = Entries { slot: Slot::new(memory.cid), memory, ..Entries::default() };
        Flight { driver: self, course, sequence: None, entries, is_over: false }
    }
}

impl Flight<'_> {
    fn step(&mut self, value: Piece<'_>) -> Step {
        let SlotMemory { cid, buffer, list, ref mut outbox } = self.entries.memory;
        let lot = self.driver.lot(cid, buffer, list);
        self.course.step(&lot, value, outbox)
    }

    /// The next step behind one that has been done.
    fn step_behind(&mut self, done: Step, value: Piece<'_>) -> Step {
        let step = self.step(value);
        if done == Step::WaitForWindow && step != Step::WaitForWindow {
            // There may be room for more than one.
            self.driver.lane.window_waiting.wake_one();
        }
        step
    }

    fn completed(&mut self, value: Piece<'_>, cqe: &Cqe) -> Step {
        let SlotMemory { cid, buffer, list, ref mut outbox } = self.entries.memory;
        let lot = self.driver.lot(cid, buffer, list);
        let had_claim = self.course.progress().claim.is_some();
        let step = self.course.completed(&lot, value, cqe, outbox);
        if had_claim {
            self.driver.lane.window_waiting.wake_one();
        }
        step
    }

    /// All has come, its answer is taken, and nothing of it is left but the slot.
    fn end(mut self) {
        let lane = &self.driver.lane;
        assert_eq!(self.entries.unacknowledged, 0, "who waits for a command acknowledges its completions");
        lane.end_dropped(&mut self.course.progress(), self.entries.cqe.as_ref());
        self.entries.memory.outbox.clear();
        lane.give(std::mem::take(&mut self.entries.memory));
        self.is_over = true;
    }

    /// The next value may be submitted.
    fn leave_sequence(&mut self) {
        self.entries.slot.leave_sequence();
        drop(self.sequence.take());
    }
}

fn new_slot(host: &Host, cid: u16) -> SlotMemory {
    let bytes = answers::buffer_bytes(host.max_value_bytes);
    let buffer = host.memory.map(bytes);
    let list = host.memory.map(PAGE_BYTES);
    host.memory
        .write(list, Piece::Bytes(&answers::list_page(buffer, bytes)))
        .expect("a slot's list is mapped");
    SlotMemory { cid, buffer, list, outbox: Vec::new() }
}
