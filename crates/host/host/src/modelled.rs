//! The driver on a modelled core: the host's work takes model time on a core of the profile.
//!
//! One [`Driver`] is one I/O queue pair with as many command slots as its depth. A slot has a command
//! identifier, a DMA buffer and a list page that are set up once, so a command allocates nothing.
//!
//! Inline commands of one queue must follow each other without a gap, so a store that uses several of them
//! holds the queue's sequence until its last one is submitted.
//!
//! A command may be dropped at any moment. The drive continues with it, and its identifier and buffer stay
//! the drive's: a task waits for the completions, and then frees the slot. If a store is dropped between its
//! inline commands, the drive has a part of a value; the task tells the drive to discard it, and no other
//! inline value begins before that. If a SEEK is dropped, its iterator is closed.

mod host;
pub mod saker;

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use kvdrive_content::{Piece, Region};
use kvdrive_link::transfer::{Choice, HostWindow, Progress};
use kvdrive_link::{HostMemory, QueuePair};
use kvdrive_nvme::{Command, Cqe, DRIVE_NSID, PAGE_BYTES, Sqe, Status};
use kvdrive_sim::{Mutex, MutexGuard, TaskCell, WaitQueue};

use crate::Error;
use crate::answers;
pub use crate::answers::{IteratorId, Pair};
use crate::client::{Answer, Call, Calls, Client, Content};
use crate::conversation::course::done;
use crate::conversation::slot::{Arrived, Remaining, Slot};
use crate::conversation::{
    self, Aftermath, CallState, Capabilities, CommandEnd, CommandSlot, Course, SlotOffer, Submission, Until,
    unclaimed,
};
use host::delete_queue;
pub use host::{Host, HostCosts};
pub(crate) use host::{create_queue, identify};

/// What a slot's commands use; set up once, so that a command allocates nothing.
#[derive(Default)]
struct SlotMemory {
    cid: u16,
    buffer: u64,
    list: u64,
    key: u64,
    outbox: Vec<Sqe>,
}

/// A queue pair and its slots. It outlives commands that are dropped.
struct SlottedQueue {
    host: Rc<Host>,
    queue: Rc<QueuePair>,
    /// Number of slots, free or not.
    depth: u32,
    free: TaskCell<Vec<SlotMemory>>,
    freed: WaitQueue,
    /// The drive has a part of a dropped store's value.
    is_torn: Cell<bool>,
    mended: WaitQueue,
    /// `None`: the drive exposes no window.
    window: Option<HostWindow>,
    /// Values that wait for room in the window.
    window_waiting: WaitQueue,
}

impl SlottedQueue {
    /// Gives back the part of the window that a dropped store holds.
    fn end_dropped(&self, progress: &mut Progress, cqe: Option<&Cqe>) {
        let Some(window) = &self.window else { return };
        if progress.claim.is_some() || progress.granted.is_some() {
            progress.end_dropped(window, cqe);
            self.window_waiting.wake_one();
        }
    }

    fn give(&self, memory: SlotMemory) {
        self.free.borrow_mut().push(memory);
        self.freed.wake_one();
    }

    /// The drive has discarded its part of a dropped store's value.
    fn mend(&self) {
        self.is_torn.set(false);
        self.mended.wake_all();
    }
}

/// Typed commands over one queue pair.
pub struct Driver {
    slotted: Rc<SlottedQueue>,
    choice: Box<dyn Choice>,
    /// Held while an inline value is being submitted.
    sequence: Mutex,
    /// Queue entries that each command may use at once: an equal share, so that no command waits for room.
    slots: u32,
}

/// A status is the only error here.
impl Calls for &Driver {
    type Error = Status;

    fn ask<V: Content>(self, call: Call<V>, into: &mut Region) -> Result<Answer, Status> {
        self.carry_out(call, into)
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

    fn call<V: Content>(&mut self, call: Call<V>, into: &mut Region) -> Result<Answer, Error> {
        Ok(self.carry_out(call, into)?)
    }
}

/// A command that was submitted.
pub type Ticket<'d, V> = conversation::Ticket<V, Flight<'d>>;

/// A command under way whose caller waits for it. Dropping it blocks no other command.
pub struct Flight<'a> {
    course: Course<'a>,
    slot: Taken<'a>,
    /// Its slot is free again.
    is_over: bool,
}

/// A slot that a command holds.
struct Taken<'a> {
    driver: &'a Driver,
    /// Held by a store by inline commands until the last one is in the queue.
    sequence: Option<MutexGuard<'a>>,
    entries: Entries,
}

/// A command's entries in its queue; a dropped command keeps them until its completions have come.
#[derive(Default)]
struct Entries {
    slot: Slot,
    memory: SlotMemory,
    /// Entries in the queue have had no doorbell.
    is_unrung: bool,
    /// Number of completions that are not acknowledged, and the last one that came.
    unacknowledged: u32,
    cqe: Option<Cqe>,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let slotted = &self.slot.driver.slotted;
        let sim = slotted.host.link.sim();
        if self.is_over || sim.halted() {
            return;
        }
        let mut entries = std::mem::take(&mut self.slot.entries);
        entries.memory.outbox.clear();
        if let Some(iterator) = entries.slot.steps() {
            slotted.host.unclaimed.borrow_mut().expect(iterator);
        }
        if entries.slot.is_inside() {
            slotted.is_torn.set(true);
        }
        let progress = self.course.progress();
        match entries.slot.abandon() {
            left @ Remaining::Over { is_torn: false, .. } => entries.end(slotted, progress, left),
            left => {
                let slotted = slotted.clone();
                sim.spawn(move || entries.carry_out(&slotted, progress, left));
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

    /// Ends a dropped command: waits for its completions and does what remains.
    fn carry_out(mut self, slotted: &SlottedQueue, progress: Progress, mut left: Remaining) {
        let SlottedQueue { host, queue, .. } = slotted;
        if self.is_unrung {
            host.link.ring_submission(queue);
        }
        loop {
            match left {
                Remaining::Wait => match self.completion(queue) {
                    Arrived::Left(next) => left = next,
                    Arrived::More | Arrived::Answered => unreachable!("the command is dropped"),
                },
                Remaining::Close(sqe) => {
                    assert!(queue.try_submit(sqe), "a command of this slot has ended");
                    host.link.ring_submission(queue);
                    left = Remaining::Wait;
                }
                Remaining::Over { is_torn, .. } => {
                    if is_torn {
                        self.discard(slotted);
                    }
                    return self.end(slotted, progress, left);
                }
            }
        }
    }

    /// Makes the drive discard the part of a value that it has.
    fn discard(&mut self, slotted: &SlottedQueue) {
        let SlottedQueue { host, queue, .. } = slotted;
        let sqe = Command::Discard { stream: 0 }.encode(self.memory.cid, DRIVE_NSID);
        assert!(queue.try_submit(sqe), "a command of this slot has ended");
        host.link.ring_submission(queue);
        queue.completion(self.memory.cid);
        self.unacknowledged += 1;
    }

    /// Frees the slot of a dropped command, all of whose completions have come.
    fn end(self, slotted: &SlottedQueue, mut progress: Progress, left: Remaining) {
        let host = &*slotted.host;
        let Remaining::Over { is_torn, unclaimed } = left else { unreachable!("all has come") };
        slotted.end_dropped(&mut progress, self.cqe.as_ref());
        if let Some((iterator, buffer_bytes, cqe)) = unclaimed {
            let arrived = (&*host.memory as &dyn HostMemory, self.memory.buffer);
            let answer = unclaimed::answer(&cqe, &arrived, buffer_bytes);
            if host.unclaimed.borrow_mut().arrive(iterator, answer) {
                host.unclaimed_came.wake_all();
            }
        }
        if self.unacknowledged > 0 {
            host.link.ring_completions(&slotted.queue, self.unacknowledged);
        }
        if is_torn {
            slotted.mend();
        }
        slotted.give(self.memory);
    }
}

impl Driver {
    /// A driver with a new queue pair of `entries` slots and up to `depth` commands under way.
    ///
    /// # Errors
    /// The status that the drive answered; [`Status::INVALID_QUEUE_ID`] if it has no free queue identifier.
    pub fn connect(
        host: &Rc<Host>,
        choice: Box<dyn Choice>,
        entries: u32,
        depth: u32,
    ) -> Result<Driver, Status> {
        assert!(depth < entries, "a queue of {entries} slots holds at most {} commands", entries - 1);
        let sim = host.link.sim();
        let free = (0..depth).map(|cid| new_slot(host, cid as u16)).collect();
        let slotted = SlottedQueue {
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
        Ok(Driver {
            slotted: Rc::new(slotted),
            choice,
            sequence: Mutex::new(sim),
            slots: (entries - 1) / depth,
        })
    }

    /// Waits for all commands under way, also dropped ones, and has the drive delete the queue pair. A driver
    /// that is dropped instead leaves the queue pair in the drive.
    ///
    /// # Errors
    /// The status that the drive answered.
    pub fn disconnect(self) -> Result<(), Status> {
        let SlottedQueue { host, queue, depth, free, freed, .. } = &*self.slotted;
        while free.borrow().len() < *depth as usize {
            freed.wait();
        }
        delete_queue(&host.link, queue)
    }

    /// The host this driver belongs to.
    pub fn host(&self) -> &Rc<Host> {
        &self.slotted.host
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let max_value_bytes = self.slotted.host.max_value_bytes;
        let (choice, max_answer_bytes) = (Some(&*self.choice), answers::buffer_bytes(max_value_bytes));
        let at_once_bytes = answers::AT_ONCE_BYTES;
        Capabilities {
            choice,
            entries: self.slots,
            max_value_bytes,
            max_answer_bytes,
            at_once_bytes,
            pairs: 1,
        }
    }

    /// Waits until a value leaves the window.
    fn wait_for_window(&self) {
        self.slotted.window_waiting.wait();
    }

    /// Submits a command, up to its last entry that must be submitted in turn.
    fn submit<V: Content>(&self, call: Call<V>) -> Ticket<'_, V> {
        self.submit_making_room(call, || self.wait_for_window())
    }

    /// As [`Driver::submit`]; `make_room` is called while the window has no room for the value. A task that has
    /// several tickets takes an answer there: a value leaves the window only when its answer is taken.
    #[inline(always)]
    fn submit_making_room<V: Content>(&self, call: Call<V>, make_room: impl FnMut()) -> Ticket<'_, V> {
        let course = match self.begin(&call) {
            Ok(course) => course,
            Err(state) => return Ticket { call, state },
        };
        let mut flight = Flight { course, slot: self.take_slot(), is_over: false };
        let state = match flight.advance(call.value(), Until::Whole, make_room) {
            None => CallState::UnderWay(flight),
            Some((status, _)) => CallState::Ended(status),
        };
        Ticket { call, state }
    }

    #[inline(always)]
    fn begin<V: Content, F>(&self, call: &Call<V>) -> Result<Course<'_>, CallState<F>> {
        let has_unclaimed = |iterator| self.slotted.host.unclaimed.borrow().has(iterator);
        conversation::begin(self.capabilities(), call, call.value().bytes(), has_unclaimed)
    }

    /// Submits a command and waits for its answer. Most calls do both at once: the command stays where it is, while a
    /// ticket, some 400 bytes, would be moved three times.
    #[inline]
    fn carry_out<V: Content>(&self, call: Call<V>, into: &mut Region) -> Result<Answer, Status> {
        let course = match self.begin(&call) {
            Ok(course) => course,
            Err(state) => return self.wait(Ticket { call, state }, into),
        };
        let mut flight = Flight { course, slot: self.take_slot(), is_over: false };
        if let Some((status, _)) = flight.advance(call.value(), Until::Whole, || self.wait_for_window()) {
            return done(status).map(|()| Answer::Done);
        }
        let ended = flight.advance(call.value(), Until::Ended, || self.wait_for_window());
        self.conclude(&mut flight, ended, into)
    }

    /// Does [`Driver::wait`] return without waiting?
    fn has_answer<V>(&self, ticket: &Ticket<'_, V>) -> bool {
        match &ticket.state {
            CallState::UnderWay(flight) => self.slotted.queue.has_completion(flight.slot.entries.memory.cid),
            CallState::Unclaimed(_) | CallState::Ended(_) => true,
        }
    }

    /// Waits for a command's answer; a value is written to `into`. The data of an answer cost no pinning and
    /// no time to take: see [`HostCosts`].
    fn wait<V: Content>(&self, ticket: Ticket<'_, V>, into: &mut Region) -> Result<Answer, Status> {
        self.wait_making_room(ticket, into, || self.wait_for_window())
    }

    /// As [`Driver::wait`]; `make_room` as in [`Driver::submit_making_room`]: a value whose window was replaced
    /// is placed again.
    #[inline(always)]
    fn wait_making_room<V: Content>(
        &self,
        ticket: Ticket<'_, V>,
        into: &mut Region,
        make_room: impl FnMut(),
    ) -> Result<Answer, Status> {
        let (mut ticket, host) = (ticket, &self.slotted.host);
        while let Some(iterator) = ticket.unclaimed() {
            if let Some(pair) = host.claim(iterator, into) {
                return pair.map(Answer::Pair);
            }
            ticket = self.submit(ticket.call);
        }
        let Ticket { call, state: CallState::UnderWay(mut flight) } = ticket else { return ticket.ended() };
        let ended = flight.advance(call.value(), Until::Ended, make_room);
        self.conclude(&mut flight, ended, into)
    }

    /// The answer of a command that has `ended`, whose slot is free then.
    #[inline(always)]
    fn conclude(
        &self,
        flight: &mut Flight<'_>,
        ended: CommandEnd,
        into: &mut Region,
    ) -> Result<Answer, Status> {
        let (host, (status, cqe)) = (&self.slotted.host, ended.expect("it has ended"));
        // The iterator or pair of the answer belongs to the caller.
        flight.slot.entries.slot.settled();
        let arrived = (&*host.memory as &dyn HostMemory, flight.slot.entries.memory.buffer);
        let (answer, aftermath) = flight.course.conclude(status, &cqe, &arrived, into);
        flight.end();
        match aftermath {
            Aftermath::Close(iterator) => self.close(iterator)?,
            Aftermath::Forget(iterator) => host.forget(iterator),
            Aftermath::Keep(iterator, more) => host.unclaimed.borrow_mut().keep(iterator, more),
            Aftermath::None => {}
        }
        answer
    }

    /// Takes a slot; waits until one is free.
    fn take_slot(&self) -> Taken<'_> {
        let memory = loop {
            let free = self.slotted.free.borrow_mut().pop();
            match free {
                Some(memory) => break memory,
                None => self.slotted.freed.wait(),
            }
        };
        let entries = Entries { slot: Slot::new(memory.cid), memory, ..Entries::default() };
        Taken { driver: self, sequence: None, entries }
    }
}

impl Flight<'_> {
    /// Carries the command out until `until`. While the window has no room for its value, `make_room` is
    /// called: it returns when another value may have left the window. All other waits are in the slot.
    #[inline(always)]
    fn advance(&mut self, value: Piece<'_>, until: Until, mut make_room: impl FnMut()) -> CommandEnd {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match self.course.advance(&mut self.slot, value, until, &mut context) {
                Poll::Ready(Ok(ended)) => return ended,
                Poll::Ready(Err(none)) => match none {},
                Poll::Pending => make_room(),
            }
        }
    }

    /// Frees the slot: all completions have come, and the answer is taken.
    fn end(&mut self) {
        let (slotted, entries) = (&self.slot.driver.slotted, &mut self.slot.entries);
        assert_eq!(entries.unacknowledged, 0, "the task of a command acknowledges its completions");
        slotted.end_dropped(&mut self.course.progress(), entries.cqe.as_ref());
        entries.memory.outbox.clear();
        slotted.give(std::mem::take(&mut entries.memory));
        self.is_over = true;
    }
}

/// Steps take the time of the host's core.
impl CommandSlot for Taken<'_> {
    type Error = Infallible;

    /// Inline commands are submitted one by one, as published.
    fn offer(&mut self) -> (SlotOffer<'_>, &mut Vec<Sqe>) {
        let SlotMemory { cid, buffer, list, key, ref mut outbox } = self.entries.memory;
        let (entries, window) = (self.driver.slots, self.driver.slotted.window.as_ref());
        (SlotOffer { cid, buffer, list, key, entries, window, is_together: false }, outbox)
    }

    fn take_sequence(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.sequence = Some(self.driver.sequence.lock());
        while self.driver.slotted.is_torn.get() {
            self.driver.slotted.mended.wait();
        }
        Poll::Ready(Ok(()))
    }

    fn leave_sequence(&mut self) {
        self.entries.slot.leave_sequence();
        drop(self.sequence.take());
    }

    /// Takes no time: the slot's memory is pinned once, and a key is short.
    fn put_key(&mut self, key: &[u8]) {
        let host = &self.driver.slotted.host;
        host.memory.write(self.entries.memory.key, Piece::Bytes(key)).expect("a slot's key is mapped");
    }

    /// The application hands over a pointer to its bytes: only pinning and naming the pages takes time.
    fn stage(&mut self, value: Piece<'_>) {
        let (host, buffer) = (&self.driver.slotted.host, self.entries.memory.buffer);
        host.memory.clear(buffer);
        host.memory.write(buffer, value).expect("a slot's buffer is mapped");
        let pages = u64::from(value.bytes().div_ceil(PAGE_BYTES));
        let span = host.costs.dma_setup_ns + host.costs.pin_page_ns * pages;
        host.core.run_noted(span, "host", "name and pin pages");
    }

    fn clear(&mut self) {
        self.driver.slotted.host.memory.clear(self.entries.memory.buffer);
    }

    /// Takes no time: the time of a store for pinning includes it, and other commands take neither.
    fn list(&mut self, bytes: u32) {
        let SlotMemory { buffer, list, .. } = self.entries.memory;
        let chain = list + u64::from(PAGE_BYTES);
        let pages = answers::chain(chain, buffer, bytes);
        let memory = &self.driver.slotted.host.memory;
        memory.write(chain, Piece::Bytes(&pages)).expect("a slot's lists are mapped");
    }

    /// The core copies the value and waits until its lines are flushed.
    fn write_window(&mut self, address: u64, value: Piece<'_>) {
        let host = &self.driver.slotted.host;
        let (sim, began) = (host.link.sim(), host.link.sim().now());
        let _core = host.core.acquire();
        let span = host.costs.cxl_setup_ns;
        if span > 0 {
            sim.sleep(span);
            sim.trace().note(began, sim.now() - began, "host", "set up a CXL store", 0, "");
        }
        host.link.cxl_store(address, value);
    }

    fn pass_window(&mut self) {
        self.driver.slotted.window_waiting.wake_one();
    }

    fn submit(&mut self, submission: Submission<'_>) -> Result<(), Infallible> {
        let SlottedQueue { host, queue, .. } = &*self.driver.slotted;
        let entries = &mut self.entries;
        let further = entries.memory.outbox.len() as u64 - 1;
        let span = host.costs.submit_ns + further * host.costs.entry_ns;
        host.core.run_noted(span, "host", "submit");
        for sqe in entries.memory.outbox.drain(..) {
            assert!(queue.try_submit(sqe), "a driver never has more commands than its queue has slots");
        }
        entries.slot.submitted(submission.completions, submission.iterator_use, self.sequence.is_some());
        (entries.is_unrung, entries.cqe) = (true, None);
        host.link.ring_submission(queue);
        entries.is_unrung = false;
        Ok(())
    }

    /// Waits for the completions to come and acknowledges them.
    fn completion(&mut self, _: &mut Context<'_>) -> Poll<Result<Cqe, Infallible>> {
        let SlottedQueue { host, queue, .. } = &*self.driver.slotted;
        let entries = &mut self.entries;
        let mut arrived = entries.completion(queue);
        host.core.run_noted(host.costs.complete_ns, "host", "complete");
        while arrived == Arrived::More {
            arrived = entries.completion(queue);
            host.core.run_noted(host.costs.entry_ns, "host", "complete one more");
        }
        host.link.ring_completions(queue, std::mem::take(&mut entries.unacknowledged));
        Poll::Ready(Ok(entries.slot.outcome().expect("the last completion has come")))
    }
}

fn new_slot(host: &Host, cid: u16) -> SlotMemory {
    let bytes = answers::buffer_bytes(host.max_value_bytes);
    let buffer = host.memory.map(bytes);
    let list = host.memory.map(answers::list_bytes(bytes));
    host.memory
        .write(list, Piece::Bytes(&answers::list_page(buffer, bytes)))
        .expect("a slot's list is mapped");
    SlotMemory { cid, buffer, list, key: answers::key_at(list, bytes), outbox: Vec::new() }
}
