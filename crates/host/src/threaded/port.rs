//! The application's end of one queue pair: command slots, who waits for which completion, and what happens
//! to commands that nobody waits for any more.
//!
//! ```text
//!            claim            submit                 completion              drop
//!   free ───────────► Idle ───────────► UnderWay ─────────────► Completed ───────────► free
//!                                          │ drop                                        ▲
//!                                          └────────► Abandoned ── completion ───────────┘
//! ```
//!
//! The *sequence* is the right to submit inline commands. A value that needs several holds it until its last
//! one is submitted. When its owner goes away before that, the drive is left inside an unfinished value;
//! before the sequence passes on, the queue is reset, so that the drive discards it. An iterator whose SEEK
//! nobody waits for is closed; what a NEXT answers that nobody waits for is kept for the next one who asks
//! ([`Unclaimed`]).

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use kvdrive_content::{Piece, Region};
use kvdrive_link::pcie::PAGE_BYTES;
use kvdrive_link::shared::{CompletionSink, PowerOff, SharedBuffer, SharedLink, SharedQueue};
use kvdrive_link::transfer::outcome;
use kvdrive_spec::{Command, Cqe, Sqe};

use super::tokens::Tokens;
use super::unclaimed::{Answer, Unclaimed};
use crate::answers::{self, Iterator, NSID};

/// The sequence is one token; its number says nothing.
const SEQUENCE: u16 = 0;

/// Where one slot's command is.
enum SlotState {
    /// Nothing is under way.
    Idle,
    /// Submitted; who waits for it.
    UnderWay {
        waiter: Option<Waker>,
        awaited: Awaited,
    },
    Completed(Cqe),
    /// A pipeline's: completions are collected in `Slots::finished`.
    Piped,
    /// Submitted, and nobody waits for these completions; it may hold the sequence, or be of an iterator.
    Abandoned {
        holds_sequence: bool,
        walk: Walk,
        completions: u32,
    },
}

/// What a command does with an iterator, if anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Walk {
    #[default]
    None,
    /// What it opens is closed if nobody learns of it.
    Opens,
    /// What it brings, into this much of the slot's buffer, is kept if nobody learns of it.
    Steps { iterator: Iterator, buffer_bytes: u32 },
}

/// Completions of one submission that have not come, and what those say that have.
#[derive(Clone, Copy)]
pub(super) struct Awaited {
    pub(super) completions: u32,
    outcome: Option<Cqe>,
}

impl Awaited {
    pub(super) fn new(completions: u32) -> Awaited {
        Awaited { completions, outcome: None }
    }

    /// Takes one; returns what all say when it was the last.
    pub(super) fn take(&mut self, cqe: &Cqe) -> Option<Cqe> {
        let outcome = self.outcome.map_or(*cqe, |first| outcome(first, *cqe));
        self.outcome = Some(outcome);
        self.completions -= 1;
        (self.completions == 0).then_some(outcome)
    }
}

struct Slots {
    states: Vec<SlotState>,
    free: Tokens,
    sequence: Tokens,
    off: bool,
    /// Completions of piped slots, and who waits for some.
    finished: Vec<Cqe>,
    collector: Option<Waker>,
}

/// What the application's threads and the drive's both touch.
pub(super) struct Board {
    slots: Mutex<Slots>,
    /// Scratch space of the drive's thread.
    wakers: Mutex<Vec<Waker>>,
    /// By slot; the port maps them.
    buffers: OnceLock<Vec<Arc<SharedBuffer>>>,
    unclaimed: Arc<Unclaimed>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    pub(super) fn new(depth: u32, unclaimed: Arc<Unclaimed>) -> Arc<Board> {
        Arc::new(Board {
            slots: Mutex::new(Slots {
                states: (0..depth).map(|_| SlotState::Idle).collect(),
                // The last one is taken first: a lone command always has identifier 0.
                free: Tokens::new((0..depth as u16).rev().collect()),
                sequence: Tokens::new(vec![SEQUENCE]),
                off: false,
                finished: Vec::new(),
                collector: None,
            }),
            wakers: Mutex::default(),
            buffers: OnceLock::new(),
            unclaimed,
        })
    }

    fn depth(&self) -> usize {
        lock(&self.slots).states.len()
    }

    /// Keeps what a NEXT brought that nobody waits for.
    fn keep_answer(&self, cqe: &Cqe, iterator: Iterator, buffer_bytes: u32, wakers: &mut Vec<Waker>) {
        let buffers = self.buffers.get().expect("a port that submits has its buffers");
        let buffer = &*buffers[usize::from(cqe.cid.get())];
        let mut value = Region::new();
        let pair = if cqe.status().is_success() {
            answers::take_pair(cqe, buffer, buffer.address(), buffer_bytes, &mut value)
        } else {
            Err(cqe.status())
        };
        self.unclaimed.arrive(iterator, Answer { pair, value }, wakers);
    }
}

impl Slots {
    fn complete(&mut self, board: &Board, queue: &SharedQueue, cqe: &Cqe, wakers: &mut Vec<Waker>) {
        let cid = cqe.cid.get();
        let Some(state) = self.states.get_mut(usize::from(cid)) else { return };
        match state {
            SlotState::Piped => {
                self.finished.push(*cqe);
                wakers.extend(self.collector.take());
            }
            SlotState::UnderWay { waiter, awaited } => {
                if let Some(outcome) = awaited.take(cqe) {
                    wakers.extend(waiter.take());
                    *state = SlotState::Completed(outcome);
                }
            }
            SlotState::Abandoned { completions, .. } if *completions > 1 => *completions -= 1,
            SlotState::Abandoned { walk: Walk::Opens, .. } if cqe.status().is_success() => {
                *state = close_iterator(queue, cqe);
            }
            SlotState::Abandoned { holds_sequence, walk, .. } => {
                let holds_sequence = *holds_sequence;
                if let Walk::Steps { iterator, buffer_bytes } = *walk {
                    board.keep_answer(cqe, iterator, buffer_bytes, wakers);
                }
                *state = SlotState::Idle;
                wakers.extend(self.free.put(cid));
                if holds_sequence {
                    wakers.extend(self.abort_sequence(queue));
                }
            }
            SlotState::Idle | SlotState::Completed(_) => {}
        }
    }

    /// The drive may be inside a value whose rest will not come. Its commands have completed, and so have the
    /// inline commands before them, which it handled first.
    fn abort_sequence(&mut self, queue: &SharedQueue) -> Option<Waker> {
        queue.reset();
        self.sequence.put(SEQUENCE)
    }
}

/// Closes the iterator that the SEEK of `cqe` opened, in the same slot.
fn close_iterator(queue: &SharedQueue, cqe: &Cqe) -> SlotState {
    let iterator = Iterator::of(cqe).number();
    let mut sqes = vec![Command::IterClose { iterator }.encode(cqe.cid.get(), NSID)];
    assert!(queue.submit(&mut sqes, 0), "the entry of the completed command is free");
    SlotState::Abandoned { holds_sequence: false, walk: Walk::None, completions: 1 }
}

impl CompletionSink for Board {
    fn complete(&self, queue: &SharedQueue, cqes: &[Cqe]) {
        let mut wakers = lock(&self.wakers);
        let mut slots = lock(&self.slots);
        cqes.iter().for_each(|cqe| slots.complete(self, queue, cqe, &mut wakers));
        drop(slots);
        wakers.drain(..).for_each(Waker::wake);
    }

    fn power_off(&self) {
        let mut slots = lock(&self.slots);
        slots.off = true;
        let Slots { states, free, sequence, collector, .. } = &mut *slots;
        let mut wakers: Vec<Waker> = free.drain_waiting().chain(sequence.drain_waiting()).collect();
        wakers.extend(collector.take());
        wakers.extend(states.iter_mut().filter_map(|state| match state {
            SlotState::UnderWay { waiter, .. } => waiter.take(),
            _ => None,
        }));
        drop(slots);
        wakers.into_iter().for_each(Waker::wake);
        self.unclaimed.forget(|_| true);
    }
}

/// Which of a board's tokens.
type Select = fn(&mut Slots) -> &mut Tokens;

/// Waits for a token; leaves the queue when dropped.
struct Claim<'a> {
    board: &'a Board,
    select: Select,
    ticket: Option<u64>,
}

impl Claim<'_> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<Result<u16, PowerOff>> {
        let mut slots = lock(&self.board.slots);
        if slots.off {
            return Poll::Ready(Err(PowerOff));
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

/// What a slot's commands use: set up once, so that a command allocates nothing.
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
                let list = link.memory().map(PAGE_BYTES);
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

    pub(super) fn list_address(&self, cid: u16) -> u64 {
        self.memory[usize::from(cid)].list.address()
    }

    async fn claim(&self, select: Select) -> Result<u16, PowerOff> {
        let mut claim = Claim { board: &self.board, select, ticket: None };
        poll_fn(|context| claim.poll(context)).await
    }

    /// Waits for a free slot.
    pub(super) async fn slot(&self) -> Result<Slot<'_>, PowerOff> {
        let cid = self.claim(|slots| &mut slots.free).await?;
        let outbox = std::mem::take(&mut *lock(&self.memory[usize::from(cid)].outbox));
        Ok(Slot { port: self, cid, outbox, walk: Walk::None, holds_sequence: false })
    }

    /// Takes every slot and the sequence for a pipeline, waiting for abandoned commands to end.
    pub(super) async fn take_all(&self) -> Result<(), PowerOff> {
        for _ in 0..self.depth() {
            self.claim(|slots| &mut slots.free).await?;
        }
        self.claim(|slots| &mut slots.sequence).await?;
        let mut slots = lock(&self.board.slots);
        slots.states.iter_mut().for_each(|state| *state = SlotState::Piped);
        Ok(())
    }

    /// Moves completions of piped slots to the empty `to`, waiting for the first.
    pub(super) fn poll_finished(
        &self,
        context: &Context<'_>,
        to: &mut Vec<Cqe>,
    ) -> Poll<Result<(), PowerOff>> {
        let mut slots = lock(&self.board.slots);
        if !slots.finished.is_empty() {
            std::mem::swap(&mut slots.finished, to);
            return Poll::Ready(Ok(()));
        }
        if slots.off {
            return Poll::Ready(Err(PowerOff));
        }
        slots.collector = Some(context.waker().clone());
        Poll::Pending
    }

    /// Takes a pipeline's slots back. `under_way` tells of each command whether the drive still has it, as
    /// far as the pipeline knows, and how many completions it owes; `inside` is the slot of the value that
    /// the drive has a part of.
    pub(super) fn give_all(&self, under_way: &dyn Fn(u16) -> u32, inside: Option<u16>) {
        let mut slots = lock(&self.board.slots);
        slots.collector = None;
        let finished: Vec<u16> = slots.finished.drain(..).map(|cqe| cqe.cid.get()).collect();
        let (mut wakers, mut kept_sequence) = (Vec::new(), false);
        for cid in (0..self.depth() as u16).rev() {
            let came = finished.iter().filter(|other| **other == cid).count() as u32;
            let completions = under_way(cid).saturating_sub(came);
            if completions > 0 {
                let holds_sequence = inside == Some(cid);
                kept_sequence |= holds_sequence;
                slots.states[usize::from(cid)] =
                    SlotState::Abandoned { holds_sequence, walk: Walk::None, completions };
            } else {
                slots.states[usize::from(cid)] = SlotState::Idle;
                wakers.extend(slots.free.put(cid));
            }
        }
        if !kept_sequence {
            wakers.extend(match inside {
                Some(_) => slots.abort_sequence(&self.queue),
                None => slots.sequence.put(SEQUENCE),
            });
        }
        drop(slots);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A claimed slot. Dropping it gives it back, at once or when its command completes.
pub(super) struct Slot<'a> {
    port: &'a Port,
    cid: u16,
    /// Entries to submit next.
    pub(super) outbox: Vec<Sqe>,
    /// Its command is of an iterator.
    pub(super) walk: Walk,
    holds_sequence: bool,
}

impl Slot<'_> {
    pub(super) fn cid(&self) -> u16 {
        self.cid
    }

    pub(super) fn buffer(&self) -> &SharedBuffer {
        self.port.buffer(self.cid)
    }

    pub(super) fn list_address(&self) -> u64 {
        self.port.list_address(self.cid)
    }

    /// Waits for the sequence.
    pub(super) async fn take_sequence(&mut self) -> Result<(), PowerOff> {
        self.port.claim(|slots| &mut slots.sequence).await?;
        self.holds_sequence = true;
        Ok(())
    }

    /// The last inline command of a value is submitted: others may follow.
    pub(super) fn leave_sequence(&mut self) {
        if std::mem::take(&mut self.holds_sequence) {
            let next = lock(&self.port.board.slots).sequence.put(SEQUENCE);
            next.into_iter().for_each(Waker::wake);
        }
    }

    /// Submits the outbox with one doorbell; so many completions will come.
    pub(super) fn submit(&mut self, completions: u32) -> Result<(), PowerOff> {
        let mut slots = lock(&self.port.board.slots);
        if slots.off {
            return Err(PowerOff);
        }
        slots.states[usize::from(self.cid)] =
            SlotState::UnderWay { waiter: None, awaited: Awaited::new(completions) };
        drop(slots);
        let quiet = self.outbox.len() as u32 - completions;
        assert!(self.port.queue.submit(&mut self.outbox, quiet), "a port has fewer slots than its queue");
        Ok(())
    }

    /// Waits until what was submitted has completed, and acknowledges it with one doorbell.
    pub(super) async fn completion(&mut self) -> Result<Cqe, PowerOff> {
        let board = &self.port.board;
        let cqe = poll_fn(|context| {
            let mut slots = lock(&board.slots);
            let off = slots.off;
            let state = &mut slots.states[usize::from(self.cid)];
            match state {
                SlotState::Completed(cqe) => {
                    let cqe = *cqe;
                    *state = SlotState::Idle;
                    Poll::Ready(Ok(cqe))
                }
                _ if off => Poll::Ready(Err(PowerOff)),
                SlotState::UnderWay { waiter, .. } => {
                    *waiter = Some(context.waker().clone());
                    Poll::Pending
                }
                _ => unreachable!("who waits has submitted"),
            }
        })
        .await?;
        self.port.queue.ring_completion();
        Ok(cqe)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.outbox.clear();
        *lock(&self.port.memory[usize::from(self.cid)].outbox) = std::mem::take(&mut self.outbox);
        let mut slots = lock(&self.port.board.slots);
        let off = slots.off;
        let state = &mut slots.states[usize::from(self.cid)];
        let (holds_sequence, walk) = (self.holds_sequence, self.walk);
        let mut wakers = Vec::new();
        match state {
            SlotState::UnderWay { awaited, .. } => {
                let completions = awaited.completions;
                if let Walk::Steps { iterator, .. } = walk {
                    self.port.board.unclaimed.expect(iterator);
                }
                *state = SlotState::Abandoned { holds_sequence, walk, completions };
                return;
            }
            SlotState::Completed(cqe) if walk == Walk::Opens && cqe.status().is_success() && !off => {
                *state = close_iterator(&self.port.queue, cqe);
                return;
            }
            SlotState::Completed(cqe) => {
                if let Walk::Steps { iterator, buffer_bytes } = walk {
                    self.port.board.unclaimed.expect(iterator);
                    self.port.board.keep_answer(cqe, iterator, buffer_bytes, &mut wakers);
                }
            }
            _ => {}
        }
        *state = SlotState::Idle;
        let next_slot = slots.free.put(self.cid);
        let next_value = if holds_sequence { slots.abort_sequence(&self.port.queue) } else { None };
        drop(slots);
        next_slot.into_iter().chain(next_value).chain(wakers).for_each(Waker::wake);
    }
}
