//! [`Board`]: the command slots of one queue under one lock, and the wakers of those that wait for
//! completions. [`crate::conversation`] decides what a completion means and what remains of a dropped command;
//! the thread that brings the completion does it, by the transport's [`Remainder`].
//!
//! The *sequence* is the right to submit inline commands. A value that needs several holds it until its last
//! one is submitted. If the command is dropped before that, the drive has a part of a value, and is told to
//! discard it before the sequence passes on.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use kvdrive_nvme::Cqe;
use kvdrive_sim::wall::lock;

use super::remainder::Remainder;
use super::tokens::Tokens;
use super::unclaimed::SharedUnclaimed;
use crate::Error;
use crate::conversation::slot::{Arrived, IteratorUse, Remaining, Slot};
use crate::conversation::unclaimed;

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
    /// Why no completion will come any more.
    off: Option<Error>,
    /// A pipeline holds all slots: their completions are collected for it, and its thread may wait for them.
    is_piped: bool,
    finished: Vec<Cqe>,
    collector: Option<Waker>,
    /// The queue has entries whose doorbell has not been rung.
    puts: bool,
}

/// State that the threads of an application and whoever brings completions share.
pub(crate) struct Board {
    slots: Mutex<Slots>,
    /// Scratch space of the thread that brings completions.
    wakers: Mutex<Vec<Waker>>,
    unclaimed: Arc<SharedUnclaimed>,
}

impl Board {
    pub(crate) fn new(depth: u32, unclaimed: Arc<SharedUnclaimed>) -> Arc<Board> {
        Arc::new(Board {
            slots: Mutex::new(Slots {
                entries: (0..depth as u16)
                    .map(|cid| SlotEntry { slot: Slot::new(cid), waiter: None })
                    .collect(),
                // Tokens are taken from the end: a lone command always has identifier 0.
                free: Tokens::new((0..depth as u16).rev().collect()),
                sequence: Tokens::new(vec![SEQUENCE]),
                off: None,
                is_piped: false,
                finished: Vec::new(),
                collector: None,
                puts: false,
            }),
            wakers: Mutex::default(),
            unclaimed,
        })
    }

    pub(super) fn depth(&self) -> u32 {
        lock(&self.slots).entries.len() as u32
    }

    pub(super) fn unclaimed(&self) -> &SharedUnclaimed {
        &self.unclaimed
    }

    /// Commands have completed, in this order.
    pub(crate) fn complete(&self, wire: &dyn Remainder, cqes: &[Cqe]) {
        let mut wakers = lock(&self.wakers);
        let mut slots = lock(&self.slots);
        cqes.iter().for_each(|cqe| slots.complete(self, wire, cqe, &mut wakers));
        let puts = std::mem::take(&mut slots.puts);
        drop(slots);
        if puts {
            wire.ring();
        }
        wakers.drain(..).for_each(Waker::wake);
    }

    /// The drive is gone, or the wire is broken: outstanding commands will never complete. The first reason
    /// counts.
    pub(crate) fn fail(&self, error: Error) {
        let mut slots = lock(&self.slots);
        slots.off.get_or_insert(error);
        let Slots { entries, free, sequence, collector, .. } = &mut *slots;
        let mut wakers: Vec<Waker> = free.drain_waiting().chain(sequence.drain_waiting()).collect();
        wakers.extend(collector.take());
        wakers.extend(entries.iter_mut().filter_map(|entry| entry.waiter.take()));
        drop(slots);
        wakers.into_iter().for_each(Waker::wake);
        self.unclaimed.forget(|_| true);
    }

    /// Fails if no completion will come any more.
    pub(super) fn check(&self) -> Result<(), Error> {
        lock(&self.slots).off.clone().map_or(Ok(()), Err)
    }

    /// The thread that brought completions stops: one that waits for each kind of thing looks again, and brings
    /// them in its place.
    pub(super) fn hand_over(&self) {
        let slots = lock(&self.slots);
        let of_slots = slots.entries.iter().find_map(|entry| entry.waiter.clone());
        let wakers = [of_slots, slots.free.first_waiting(), slots.sequence.first_waiting()];
        drop(slots);
        wakers.into_iter().flatten().for_each(Waker::wake);
        self.unclaimed.wake();
    }

    /// Notes that commands of a slot are about to be submitted.
    ///
    /// # Errors
    /// No completion would come.
    pub(super) fn submitted(
        &self,
        cid: u16,
        completions: u32,
        iterator_use: IteratorUse,
        is_inside: bool,
    ) -> Result<(), Error> {
        let mut slots = lock(&self.slots);
        if let Some(error) = &slots.off {
            return Err(error.clone());
        }
        slots.entries[usize::from(cid)].slot.submitted(completions, iterator_use, is_inside);
        Ok(())
    }

    /// The joint result of a slot's commands, when all have completed; the iterator or pair of the answer then
    /// belongs to the caller.
    pub(super) fn poll_completion(&self, cid: u16, context: &Context<'_>) -> Poll<Result<Cqe, Error>> {
        let mut slots = lock(&self.slots);
        let Slots { entries, off, .. } = &mut *slots;
        let entry = &mut entries[usize::from(cid)];
        match (entry.slot.outcome(), off) {
            (Some(cqe), _) => {
                entry.slot.settled();
                Poll::Ready(Ok(cqe))
            }
            (None, Some(error)) => Poll::Ready(Err(error.clone())),
            (None, None) => {
                entry.waiter = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The last inline command of a slot's value is submitted: the sequence passes on.
    pub(super) fn leave_sequence(&self, cid: u16) {
        let mut slots = lock(&self.slots);
        slots.entries[usize::from(cid)].slot.leave_sequence();
        let next = slots.sequence.put(SEQUENCE);
        drop(slots);
        next.into_iter().for_each(Waker::wake);
    }

    /// Takes back a slot, whose command may be under way.
    pub(super) fn give(&self, wire: &dyn Remainder, cid: u16, holds_sequence: bool) {
        let mut wakers = Vec::new();
        let mut slots = lock(&self.slots);
        if holds_sequence && !slots.entries[usize::from(cid)].slot.is_inside() {
            wakers.extend(slots.sequence.put(SEQUENCE));
        }
        slots.abandon(self, wire, cid, &mut wakers);
        let puts = std::mem::take(&mut slots.puts);
        drop(slots);
        if puts {
            wire.ring();
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// A pipeline has taken every slot and the sequence.
    pub(super) fn begin_piped(&self) {
        lock(&self.slots).is_piped = true;
    }

    /// Moves completions of piped slots to the empty `to`, waiting for the first.
    pub(super) fn poll_finished(&self, context: &Context<'_>, to: &mut Vec<Cqe>) -> Poll<Result<(), Error>> {
        let mut slots = lock(&self.slots);
        if !slots.finished.is_empty() {
            std::mem::swap(&mut slots.finished, to);
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = &slots.off {
            return Poll::Ready(Err(error.clone()));
        }
        slots.collector = Some(context.waker().clone());
        Poll::Pending
    }

    /// Takes the slots back from a pipeline: `slot` returns the state of each, and `batch` are completions
    /// that the pipeline has collected and not looked at, in their order.
    pub(super) fn give_all(
        &self,
        wire: &dyn Remainder,
        mut slot: impl FnMut(u16) -> Slot,
        batch: impl Iterator<Item = Cqe>,
    ) {
        let mut slots = lock(&self.slots);
        (slots.is_piped, slots.collector) = (false, None);
        let finished = std::mem::take(&mut slots.finished);
        let (mut wakers, mut is_inside) = (Vec::new(), false);
        for cid in (0..slots.entries.len() as u16).rev() {
            let slot = slot(cid);
            is_inside |= slot.is_inside();
            slots.entries[usize::from(cid)].slot = slot;
            slots.abandon(self, wire, cid, &mut wakers);
        }
        if !is_inside {
            wakers.extend(slots.sequence.put(SEQUENCE));
        }
        for cqe in batch.chain(finished) {
            slots.complete(self, wire, &cqe, &mut wakers);
        }
        let puts = std::mem::take(&mut slots.puts);
        drop(slots);
        if puts {
            wire.ring();
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Slots {
    fn complete(&mut self, board: &Board, wire: &dyn Remainder, cqe: &Cqe, wakers: &mut Vec<Waker>) {
        if self.is_piped {
            self.finished.push(*cqe);
            wakers.extend(self.collector.take());
            return;
        }
        let Some(entry) = self.entries.get_mut(usize::from(cqe.cid.get())) else { return };
        match entry.slot.arrived(cqe) {
            Arrived::More => {}
            Arrived::Answered => wakers.extend(entry.waiter.take()),
            Arrived::Left(left) => self.carry_out(board, wire, cqe.cid.get(), left, wakers),
        }
    }

    /// Notes that the command of a slot was dropped.
    fn abandon(&mut self, board: &Board, wire: &dyn Remainder, cid: u16, wakers: &mut Vec<Waker>) {
        let entry = &mut self.entries[usize::from(cid)];
        entry.waiter = None;
        if let Some(iterator) = entry.slot.steps() {
            board.unclaimed.expect(iterator);
        }
        let left = entry.slot.abandon();
        self.carry_out(board, wire, cid, left, wakers);
    }

    /// Does what remains of a dropped command. The caller holds the lock that completions take, and rings
    /// after it: until then the drive does not see the entries that are put into the queue here.
    fn carry_out(
        &mut self,
        board: &Board,
        wire: &dyn Remainder,
        cid: u16,
        left: Remaining,
        wakers: &mut Vec<Waker>,
    ) {
        match left {
            Remaining::Wait => {}
            Remaining::Close(sqe) => {
                wire.put(sqe);
                self.puts = true;
            }
            Remaining::Over { is_torn, unclaimed } => {
                if let Some((iterator, buffer_bytes, cqe)) = unclaimed {
                    wire.answer(cid, &mut |arrived| {
                        let came_bytes = buffer_bytes.min(arrived.bytes());
                        let answer = unclaimed::answer(&cqe, arrived, came_bytes);
                        board.unclaimed.arrive(iterator, answer, wakers);
                    });
                }
                wakers.extend(self.free.put(cid));
                if is_torn {
                    // The slot's commands have completed, and so have the inline commands before them, which
                    // the drive handled first.
                    wire.put_discard();
                    self.puts = true;
                    wakers.extend(self.sequence.put(SEQUENCE));
                }
            }
        }
    }
}

/// The kind of a board's tokens.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    Slot,
    Sequence,
}

impl Slots {
    fn tokens(&mut self, wanted: Wanted) -> &mut Tokens {
        match wanted {
            Wanted::Slot => &mut self.free,
            Wanted::Sequence => &mut self.sequence,
        }
    }
}

/// Waits for a token; leaves the waiting line when dropped.
pub(super) struct Claim<'a> {
    board: &'a Board,
    wanted: Wanted,
    ticket: Option<u64>,
}

impl<'a> Claim<'a> {
    pub(super) fn begin(board: &'a Board, wanted: Wanted) -> Claim<'a> {
        Claim { board, wanted, ticket: None }
    }

    pub(super) fn poll(&mut self, context: &Context<'_>) -> Poll<Result<u16, Error>> {
        let mut slots = lock(&self.board.slots);
        if let Some(error) = &slots.off {
            return Poll::Ready(Err(error.clone()));
        }
        match slots.tokens(self.wanted).poll(&mut self.ticket, context.waker()) {
            Some(token) => Poll::Ready(Ok(token)),
            None => Poll::Pending,
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let next = lock(&self.board.slots).tokens(self.wanted).cancel(ticket);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}
