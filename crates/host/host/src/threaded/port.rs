//! The application's end of one queue pair: command slots under one lock, wakers for completions, and the
//! delivery of completions on the drive's thread. [`crate::conversation`] decides what a completion means and
//! what remains of a dropped command; the thread that took the completion does it.
//!
//! The *sequence* is the right to submit inline commands. A value that needs several holds it until its last
//! one is submitted. If the command is dropped before that, the drive has a part of a value, and is told to
//! discard it before the sequence passes on.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker};

use kvdrive_content::Piece;
use kvdrive_link::HostMemory;
use kvdrive_link::shared::{CompletionSink, PowerOff, SharedBuffer, SharedLink, SharedQueue};
use kvdrive_nvme::{Cqe, PAGE_BYTES, Sqe};
use kvdrive_sim::wall::lock;

use super::tokens::Tokens;
use super::unclaimed::SharedUnclaimed;
use crate::Error;
use crate::answers;
use crate::conversation::slot::{Arrived, IteratorUse, Remaining, Slot};
use crate::conversation::unclaimed;
use crate::conversation::{CommandSlot, SlotOffer, Submission};

/// The sequence is a single token; its number has no meaning.
const SEQUENCE: u16 = 0;

/// One slot, and the waker of its command.
struct SlotEntry {
    slot: Slot,
    waiter: Option<Waker>,
}

struct Slots {
    entries: Vec<SlotEntry>,
    free: Tokens,
    sequence: Tokens,
    off: bool,
    /// A pipeline holds all slots: their completions are collected for it, and its thread may wait for them.
    is_piped: bool,
    finished: Vec<Cqe>,
    collector: Option<Waker>,
    /// The queue has entries whose doorbell has not been rung.
    puts: bool,
}

/// State that the application's threads and the drive's thread share.
pub(super) struct Board {
    slots: Mutex<Slots>,
    /// Scratch space of the drive's thread.
    wakers: Mutex<Vec<Waker>>,
    /// The buffer of each slot; the port maps them.
    buffers: OnceLock<Vec<Arc<SharedBuffer>>>,
    unclaimed: Arc<SharedUnclaimed>,
}

impl Board {
    pub(super) fn new(depth: u32, unclaimed: Arc<SharedUnclaimed>) -> Arc<Board> {
        Arc::new(Board {
            slots: Mutex::new(Slots {
                entries: (0..depth as u16)
                    .map(|cid| SlotEntry { slot: Slot::new(cid), waiter: None })
                    .collect(),
                // Tokens are taken from the end: a lone command always has identifier 0.
                free: Tokens::new((0..depth as u16).rev().collect()),
                sequence: Tokens::new(vec![SEQUENCE]),
                off: false,
                is_piped: false,
                finished: Vec::new(),
                collector: None,
                puts: false,
            }),
            wakers: Mutex::default(),
            buffers: OnceLock::new(),
            unclaimed,
        })
    }

    fn depth(&self) -> usize {
        lock(&self.slots).entries.len()
    }

    /// The answer to a NEXT that was dropped.
    fn answer(&self, cqe: &Cqe, buffer_bytes: u32) -> unclaimed::IteratorAnswer {
        let buffers = self.buffers.get().expect("a port that submits has its buffers");
        unclaimed::answer(cqe, &*buffers[usize::from(cqe.cid.get())], buffer_bytes)
    }
}

impl Slots {
    fn complete(&mut self, board: &Board, queue: &SharedQueue, cqe: &Cqe, wakers: &mut Vec<Waker>) {
        if self.is_piped {
            self.finished.push(*cqe);
            wakers.extend(self.collector.take());
            return;
        }
        let Some(entry) = self.entries.get_mut(usize::from(cqe.cid.get())) else { return };
        match entry.slot.arrived(cqe) {
            Arrived::More => {}
            Arrived::Answered => wakers.extend(entry.waiter.take()),
            Arrived::Left(left) => self.carry_out(board, queue, cqe.cid.get(), left, wakers),
        }
    }

    /// Notes that the command of a slot was dropped.
    fn abandon(&mut self, board: &Board, queue: &SharedQueue, cid: u16, wakers: &mut Vec<Waker>) {
        let entry = &mut self.entries[usize::from(cid)];
        entry.waiter = None;
        if let Some(iterator) = entry.slot.steps() {
            board.unclaimed.expect(iterator);
        }
        let left = entry.slot.abandon();
        self.carry_out(board, queue, cid, left, wakers);
    }

    /// Does what remains of a dropped command. The caller holds the lock that completions take, and rings
    /// after it: until then the drive does not see the entries that are put into the queue here.
    fn carry_out(
        &mut self,
        board: &Board,
        queue: &SharedQueue,
        cid: u16,
        left: Remaining,
        wakers: &mut Vec<Waker>,
    ) {
        match left {
            Remaining::Wait => {}
            Remaining::Close(sqe) => {
                assert!(queue.put(&mut vec![sqe], 0), "the entry of the completed command is free");
                self.puts = true;
            }
            Remaining::Over { is_torn, unclaimed } => {
                if let Some((iterator, buffer_bytes, cqe)) = unclaimed {
                    board.unclaimed.arrive(iterator, board.answer(&cqe, buffer_bytes), wakers);
                }
                wakers.extend(self.free.put(cid));
                if is_torn {
                    // The slot's commands have completed, and so have the inline commands before them, which
                    // the drive handled first.
                    queue.put_reset();
                    self.puts = true;
                    wakers.extend(self.sequence.put(SEQUENCE));
                }
            }
        }
    }
}

impl CompletionSink for Board {
    fn complete(&self, queue: &SharedQueue, cqes: &[Cqe]) {
        let mut wakers = lock(&self.wakers);
        let mut slots = lock(&self.slots);
        cqes.iter().for_each(|cqe| slots.complete(self, queue, cqe, &mut wakers));
        let puts = std::mem::take(&mut slots.puts);
        drop(slots);
        if puts {
            queue.ring();
        }
        wakers.drain(..).for_each(Waker::wake);
    }

    fn power_off(&self) {
        let mut slots = lock(&self.slots);
        slots.off = true;
        let Slots { entries, free, sequence, collector, .. } = &mut *slots;
        let mut wakers: Vec<Waker> = free.drain_waiting().chain(sequence.drain_waiting()).collect();
        wakers.extend(collector.take());
        wakers.extend(entries.iter_mut().filter_map(|entry| entry.waiter.take()));
        drop(slots);
        wakers.into_iter().for_each(Waker::wake);
        self.unclaimed.forget(|_| true);
    }
}

/// Chooses one kind of a board's tokens.
type Select = fn(&mut Slots) -> &mut Tokens;

/// Waits for a token; leaves the waiting line when dropped.
struct Claim<'a> {
    board: &'a Board,
    select: Select,
    ticket: Option<u64>,
}

impl Claim<'_> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<Result<u16, Error>> {
        let mut slots = lock(&self.board.slots);
        if slots.off {
            return Poll::Ready(Err(PowerOff.into()));
        }
        match (self.select)(&mut slots).poll(&mut self.ticket, context.waker()) {
            Some(token) => Poll::Ready(Ok(token)),
            None => Poll::Pending,
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let next = (self.select)(&mut lock(&self.board.slots)).cancel(ticket);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

/// What a slot's commands use; set up once, so that a command allocates nothing.
struct SlotMemory {
    buffer: Arc<SharedBuffer>,
    list: Arc<SharedBuffer>,
    outbox: Mutex<Vec<Sqe>>,
}

/// One queue pair with its slots.
pub(super) struct Port {
    queue: Arc<SharedQueue>,
    board: Arc<Board>,
    memory: Vec<SlotMemory>,
    /// Queue entries that each command may use at once: an equal share, so that there is always room.
    slots: u32,
}

impl Port {
    /// The port of `queue`, whose completions go to `board`; every slot has a buffer of `buffer_bytes` bytes.
    pub(super) fn new(
        link: &SharedLink,
        queue: Arc<SharedQueue>,
        board: Arc<Board>,
        buffer_bytes: u32,
    ) -> Port {
        let memory: Vec<SlotMemory> = (0..board.depth())
            .map(|_| {
                let buffer = link.memory().map(buffer_bytes);
                let list = link.memory().map(answers::list_bytes(buffer_bytes));
                list.fill(Piece::Bytes(&answers::list_page(buffer.address(), buffer_bytes)));
                SlotMemory { buffer, list, outbox: Mutex::default() }
            })
            .collect();
        let buffers = memory.iter().map(|slot| slot.buffer.clone()).collect();
        assert!(board.buffers.set(buffers).is_ok(), "a board is of one port");
        let slots = (queue.entries() - 1) / memory.len() as u32;
        Port { queue, board, memory, slots }
    }

    pub(super) fn depth(&self) -> u32 {
        self.memory.len() as u32
    }

    /// Queue entries that each command may use at once: an equal share, so that there is always room.
    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    pub(super) fn queue(&self) -> &SharedQueue {
        &self.queue
    }

    pub(super) fn buffer(&self, cid: u16) -> &SharedBuffer {
        &self.memory[usize::from(cid)].buffer
    }

    /// Names the first `bytes` bytes of a slot's buffer in the chain behind its list page, and makes room for
    /// them.
    pub(super) fn list(&self, cid: u16, bytes: u32) {
        let SlotMemory { buffer, list, .. } = &self.memory[usize::from(cid)];
        let chain = list.address() + u64::from(PAGE_BYTES);
        let pages = answers::chain(chain, buffer.address(), bytes);
        list.write(chain, Piece::Bytes(&pages)).expect("a slot's lists are mapped");
        buffer.reserve(bytes);
    }

    /// Fails if the drive's thread has ended.
    pub(super) fn check_power(&self) -> Result<(), Error> {
        if lock(&self.board.slots).off { Err(PowerOff.into()) } else { Ok(()) }
    }

    /// The slot's offer, without a window, which this driver does not reach. Each crossing between threads
    /// costs more than a command, so inline commands of a value go together if several commands share
    /// doorbells anyway; a queue of depth 1 sends them one by one, as published and as the modelled host
    /// does.
    pub(super) fn slot_offer(&self, cid: u16) -> SlotOffer<'static> {
        let SlotMemory { buffer, list, .. } = &self.memory[usize::from(cid)];
        let (buffer, list) = (buffer.address(), list.address());
        SlotOffer { cid, buffer, list, entries: self.slots, window: None, is_together: self.depth() > 1 }
    }

    /// May this thread call the drive?
    pub(super) fn check_thread(&self) -> Result<(), Error> {
        Ok(self.queue.check_thread()?)
    }

    fn begin_claim(&self, select: Select) -> Claim<'_> {
        Claim { board: &self.board, select, ticket: None }
    }

    async fn claim(&self, select: Select) -> Result<u16, Error> {
        self.check_thread()?;
        let mut claim = self.begin_claim(select);
        poll_fn(|context| claim.poll(context)).await
    }

    /// Releases the lock, and rings if entries were put into the queue under it.
    fn ring_for(&self, mut slots: MutexGuard<'_, Slots>) {
        let puts = std::mem::take(&mut slots.puts);
        drop(slots);
        if puts {
            self.queue.ring();
        }
    }

    /// Waits for a free slot.
    pub(super) async fn slot(&self) -> Result<ClaimedSlot<'_>, Error> {
        let cid = self.claim(|slots| &mut slots.free).await?;
        let outbox = std::mem::take(&mut *lock(&self.memory[usize::from(cid)].outbox));
        Ok(ClaimedSlot { port: self, cid, outbox, holds_sequence: false, awaiting: None })
    }

    /// Takes every slot and the sequence for a pipeline, waiting for abandoned commands to end.
    pub(super) async fn take_all(&self) -> Result<(), Error> {
        for _ in 0..self.depth() {
            self.claim(|slots| &mut slots.free).await?;
        }
        self.claim(|slots| &mut slots.sequence).await?;
        lock(&self.board.slots).is_piped = true;
        Ok(())
    }

    /// Moves completions of piped slots to the empty `to`, waiting for the first.
    pub(super) fn poll_finished(&self, context: &Context<'_>, to: &mut Vec<Cqe>) -> Poll<Result<(), Error>> {
        let mut slots = lock(&self.board.slots);
        if !slots.finished.is_empty() {
            std::mem::swap(&mut slots.finished, to);
            return Poll::Ready(Ok(()));
        }
        if slots.off {
            return Poll::Ready(Err(PowerOff.into()));
        }
        slots.collector = Some(context.waker().clone());
        Poll::Pending
    }

    /// Takes the slots back from a pipeline: `slot` returns the state of each, and `batch` are completions
    /// that the pipeline has collected and not looked at, in their order.
    pub(super) fn give_all(&self, mut slot: impl FnMut(u16) -> Slot, batch: impl Iterator<Item = Cqe>) {
        let mut slots = lock(&self.board.slots);
        (slots.is_piped, slots.collector) = (false, None);
        let finished = std::mem::take(&mut slots.finished);
        let (mut wakers, mut is_inside) = (Vec::new(), false);
        for cid in (0..self.depth() as u16).rev() {
            let slot = slot(cid);
            is_inside |= slot.is_inside();
            slots.entries[usize::from(cid)].slot = slot;
            slots.abandon(&self.board, &self.queue, cid, &mut wakers);
        }
        if !is_inside {
            wakers.extend(slots.sequence.put(SEQUENCE));
        }
        for cqe in batch.chain(finished) {
            slots.complete(&self.board, &self.queue, &cqe, &mut wakers);
        }
        self.ring_for(slots);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A claimed slot. Dropping it returns the slot, at once or when its command completes.
pub(super) struct ClaimedSlot<'a> {
    port: &'a Port,
    cid: u16,
    /// Entries to submit next.
    pub(super) outbox: Vec<Sqe>,
    holds_sequence: bool,
    /// Its claim while it waits for the sequence.
    awaiting: Option<Claim<'a>>,
}

impl ClaimedSlot<'_> {
    /// The slot's offer, without a window.
    pub(super) fn slot_offer(&self) -> SlotOffer<'static> {
        self.port.slot_offer(self.cid)
    }

    pub(super) fn buffer(&self) -> &SharedBuffer {
        self.port.buffer(self.cid)
    }

    /// Submits the outbox with one doorbell; `completions` completions will come.
    pub(super) fn submit(&mut self, completions: u32, iterator_use: IteratorUse) -> Result<(), Error> {
        let mut slots = lock(&self.port.board.slots);
        if slots.off {
            return Err(PowerOff.into());
        }
        slots.entries[usize::from(self.cid)].slot.submitted(completions, iterator_use, self.holds_sequence);
        drop(slots);
        let quiet = self.outbox.len() as u32 - completions;
        assert!(self.port.queue.submit(&mut self.outbox, quiet), "a port has fewer slots than its queue");
        Ok(())
    }

    /// Waits until the submitted commands have completed, and acknowledges them with one doorbell. The
    /// iterator or pair of the answer then belongs to the caller.
    pub(super) async fn completion(&mut self) -> Result<Cqe, Error> {
        poll_fn(|context| self.poll_completion(context)).await
    }

    fn poll_completion(&mut self, context: &Context<'_>) -> Poll<Result<Cqe, Error>> {
        let mut slots = lock(&self.port.board.slots);
        let off = slots.off;
        let entry = &mut slots.entries[usize::from(self.cid)];
        let Some(cqe) = entry.slot.outcome() else {
            if off {
                return Poll::Ready(Err(PowerOff.into()));
            }
            entry.waiter = Some(context.waker().clone());
            return Poll::Pending;
        };
        entry.slot.settled();
        drop(slots);
        self.port.queue.ring_completion();
        Poll::Ready(Ok(cqe))
    }
}

impl CommandSlot for ClaimedSlot<'_> {
    type Error = Error;

    fn offer(&mut self) -> (SlotOffer<'_>, &mut Vec<Sqe>) {
        (self.port.slot_offer(self.cid), &mut self.outbox)
    }

    fn take_sequence(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let claim = match &mut self.awaiting {
            Some(claim) => claim,
            none => {
                self.port.check_thread()?;
                none.insert(self.port.begin_claim(|slots| &mut slots.sequence))
            }
        };
        let taken = claim.poll(context)?;
        if taken.is_ready() {
            self.awaiting = None;
            self.holds_sequence = true;
        }
        taken.map(|_| Ok(()))
    }

    fn leave_sequence(&mut self) {
        if std::mem::take(&mut self.holds_sequence) {
            let mut slots = lock(&self.port.board.slots);
            slots.entries[usize::from(self.cid)].slot.leave_sequence();
            let next = slots.sequence.put(SEQUENCE);
            drop(slots);
            next.into_iter().for_each(Waker::wake);
        }
    }

    fn stage(&mut self, value: Piece<'_>) {
        self.buffer().fill(value);
    }

    fn clear(&mut self) {
        self.buffer().clear();
    }

    fn list(&mut self, bytes: u32) {
        self.port.list(self.cid, bytes);
    }

    fn submit(&mut self, submission: Submission<'_>) -> Result<(), Error> {
        ClaimedSlot::submit(self, submission.completions, submission.iterator_use)
    }

    fn completion(&mut self, context: &mut Context<'_>) -> Poll<Result<Cqe, Error>> {
        self.poll_completion(context)
    }
}

impl Drop for ClaimedSlot<'_> {
    fn drop(&mut self) {
        let port = self.port;
        self.awaiting = None;
        self.outbox.clear();
        *lock(&port.memory[usize::from(self.cid)].outbox) = std::mem::take(&mut self.outbox);
        let mut wakers = Vec::new();
        let mut slots = lock(&port.board.slots);
        if self.holds_sequence && !slots.entries[usize::from(self.cid)].slot.is_inside() {
            wakers.extend(slots.sequence.put(SEQUENCE));
        }
        slots.abandon(&port.board, &port.queue, self.cid, &mut wakers);
        port.ring_for(slots);
        wakers.into_iter().for_each(Waker::wake);
    }
}
