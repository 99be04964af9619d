//! Submission queues and completion queues: rings of entries in host memory, tails and heads.
//!
//! A [`QueuePair`] is a submission queue and the ring that its commands complete to. Several submission
//! queues may complete to one ring, as the specification allows; most have a ring each. The rings are kept in
//! this module: the address that a host gives for them is not used.
//!
//! The host writes entries and publishes them with a doorbell ([`crate::Link::ring_submission`]); the drive
//! takes them in order and posts completions in any order, and the host releases completion slots with the
//! other doorbell.
//!
//! An *express* is taken together with the chunk entries after it, all or none: no chunk is mistaken for a
//! command as long as the host publishes them with it.
//!
//! Commands that carry value bytes inline (*write*, *hybrid*, *transfer*), and the *discard* of an unfinished
//! value, belong together by their order in one queue; so do the stores into one window. Each gets a turn
//! number when it is taken, and the drive handles it when its turn has come, however many firmware contexts
//! work on the queue.
//!
//! Not here: the time and the bytes of a crossing ([`crate::pcie`]), whether a queue may be created (crate
//! `admin`), interrupts.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use kvdrive_nvme::inline::chunks_for;
use kvdrive_nvme::{Cqe, Sqe, opcode};
use kvdrive_sim::{Sim, TaskCell, TaskKey, WaitQueue};

use crate::memory::HostMemory;
use crate::session::Session;

/// Slots of an admin queue.
pub(crate) const ADMIN_ENTRIES: u32 = 32;

/// A command taken from a queue.
pub(crate) struct Taken {
    /// The entry.
    pub(crate) sqe: Sqe,
    /// Its turn among the queue's *write*, *hybrid*, *transfer*, *discard* and CXL store commands; `None` for
    /// all others.
    pub(crate) turn: Option<u64>,
    /// For an *express*, the chunk entries after it; `None` if the host has not published them all, and for
    /// all other commands.
    pub(crate) chunks: Option<Box<[Sqe]>>,
    /// Submission queue head after taking it, for the completion.
    pub(crate) head: u16,
}

/// A completion queue.
pub(crate) struct CompletionRing {
    id: u16,
    entries: u32,
    /// Completions that the host has not read.
    completions: TaskCell<VecDeque<Cqe>>,
    /// Slots that the host has not released.
    unreleased: Cell<u32>,
    /// Slot of the next completion, counted without wrapping.
    slot: Cell<u32>,
    phase: Cell<bool>,
    room: WaitQueue,
}

impl CompletionRing {
    pub(crate) fn new(sim: &Sim, id: u16, entries: u32) -> CompletionRing {
        CompletionRing {
            id,
            entries,
            completions: TaskCell::default(),
            unreleased: Cell::new(0),
            slot: Cell::new(0),
            phase: Cell::new(true),
            room: WaitQueue::new(sim),
        }
    }

    /// The phase of the completion that is posted now: it toggles with every pass over the ring.
    #[inline]
    fn next_phase(&self) -> bool {
        let (slot, phase) = (self.slot.get(), self.phase.get());
        let is_last = slot + 1 == self.entries;
        self.slot.set(if is_last { 0 } else { slot + 1 });
        self.phase.set(phase ^ is_last);
        phase
    }
}

/// The function that a queue belongs to, as far as the queue needs it.
pub(crate) struct Owner {
    pub(crate) function_id: u16,
    /// Where the commands of the queue have their data.
    pub(crate) memory: Rc<dyn HostMemory>,
}

/// A submission queue, and the ring for its completions.
pub struct QueuePair {
    sim: Sim,
    owner: Owner,
    id: u16,
    entries: u32,
    completion: Rc<CompletionRing>,
    /// Entries between head and tail.
    submissions: TaskCell<VecDeque<Sqe>>,
    /// Counts of entries: written by the host, published by a doorbell that has arrived, and taken by the
    /// drive.
    written: Cell<u64>,
    published: Cell<u64>,
    taken: Cell<u64>,
    head: Cell<u16>,
    /// Host tasks waiting for the completion of a command identifier. The vector ends at the highest
    /// identifier that was waited for: a recording may have thousands of queues of 65 536 slots without any
    /// waiting task.
    waiters: TaskCell<Vec<Option<TaskKey>>>,
    session: Session,
    outlet: TaskCell<Option<Outlet>>,
}

/// Receives completions when they are posted.
pub(crate) type Outlet = Box<dyn Fn(Cqe)>;

impl QueuePair {
    pub(crate) fn new(
        sim: &Sim,
        owner: Owner,
        id: u16,
        session: u32,
        entries: u32,
        completion: Rc<CompletionRing>,
    ) -> QueuePair {
        QueuePair {
            sim: sim.clone(),
            owner,
            id,
            entries,
            completion,
            submissions: TaskCell::default(),
            written: Cell::new(0),
            published: Cell::new(0),
            taken: Cell::new(0),
            head: Cell::new(0),
            waiters: TaskCell::default(),
            session: Session::new(sim, session),
            outlet: TaskCell::default(),
        }
    }

    /// Passes every completion to `outlet` from now on instead of keeping it: a host on another thread reads
    /// its ring at any time, and the time of reading must not influence the drive. Such a host never has more
    /// commands outstanding than the ring has slots, so a slot is always free.
    pub(crate) fn set_outlet(&self, outlet: Outlet) {
        *self.outlet.borrow_mut() = Some(outlet);
    }

    /// Is it the admin queue?
    pub fn is_admin(&self) -> bool {
        self.id == 0
    }

    /// Queue identifier: 0 is the admin queue, I/O queues count from 1.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Slots of its ring; one of them always stays empty.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Identifier of the completion queue that its commands complete to.
    pub fn completion_id(&self) -> u16 {
        self.completion.id
    }

    /// Was it deleted, or is it being deleted?
    pub(crate) fn is_deleted(&self) -> bool {
        self.session.is_closing()
    }

    /// Host: writes an entry at the tail; `false` if the ring is full, or the queue deleted.
    #[must_use]
    pub fn try_submit(&self, sqe: Sqe) -> bool {
        let mut ring = self.submissions.borrow_mut();
        if ring.len() as u32 >= self.entries - 1 || self.session.is_closing() {
            return false;
        }
        ring.push_back(sqe);
        self.written.set(self.written.get() + 1);
        true
    }

    /// The tail that a doorbell rung now would carry.
    pub(crate) fn tail(&self) -> u64 {
        self.written.get()
    }

    /// Makes entries visible when the doorbell for `tail` arrives; returns how many.
    pub(crate) fn publish(&self, tail: u64) -> u64 {
        let before = self.published.get();
        if self.session.is_closing() {
            return 0;
        }
        self.published.set(before.max(tail));
        self.published.get() - before
    }

    /// Drive: is there a published entry?
    #[inline]
    pub(crate) fn has_submission(&self) -> bool {
        self.published.get() > self.taken.get()
    }

    /// Host: waits for the completion of command `cid` and takes it; a deleted queue posts none. The slot
    /// stays used until [`crate::Link::ring_completion`].
    pub fn completion(&self, cid: u16) -> Cqe {
        loop {
            if let Some(cqe) = self.try_completion(cid) {
                return cqe;
            }
            let (mut waiters, index) = (self.waiters.borrow_mut(), usize::from(cid));
            if waiters.len() <= index {
                waiters.resize(index + 1, None);
            }
            waiters[index] = Some(self.sim.current());
            drop(waiters);
            self.sim.suspend();
        }
    }

    /// Is this completion the one of command `cid` of this queue?
    #[inline]
    fn is_of(&self, cqe: &Cqe, cid: u16) -> bool {
        cqe.cid.get() == cid && cqe.sqid.get() == self.id
    }

    /// Host: has command `cid` completed?
    pub fn has_completion(&self, cid: u16) -> bool {
        self.completion.completions.borrow().iter().any(|cqe| self.is_of(cqe, cid))
    }

    /// Host: takes the completion of `cid` if it is posted.
    pub fn try_completion(&self, cid: u16) -> Option<Cqe> {
        let mut ring = self.completion.completions.borrow_mut();
        if self.is_of(ring.front()?, cid) {
            return ring.pop_front();
        }
        let index = ring.iter().position(|cqe| self.is_of(cqe, cid))?;
        ring.remove(index)
    }

    /// Host: takes the oldest completion of its ring, of any command.
    pub fn any_completion(&self) -> Option<Cqe> {
        self.completion.completions.borrow_mut().pop_front()
    }

    pub(crate) fn release_completions(&self, count: u32) {
        let ring = &self.completion;
        let used = ring.unreleased.get();
        assert!(used >= count, "queue {}: a completion slot was released that was not used", self.id);
        ring.unreleased.set(used - count);
        for _ in 0..count {
            ring.room.wake_one();
        }
    }

    /// Number of the function that the queue belongs to.
    pub(crate) fn function_id(&self) -> u16 {
        self.owner.function_id
    }

    /// The memory of its host.
    #[inline]
    pub(crate) fn memory(&self) -> &dyn HostMemory {
        &*self.owner.memory
    }

    /// Drive: stops taking commands and posting completions. Returns the number of entries that are dropped;
    /// `None` if the queue was closed before.
    pub(crate) fn close(&self) -> Option<u64> {
        if !self.session.close() {
            return None;
        }
        self.submissions.borrow_mut().clear();
        let left = self.published.get() - self.taken.get();
        self.taken.set(self.published.get());
        self.completion.room.wake_all();
        Some(left)
    }

    /// The drive's state of the queue.
    #[inline]
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Drive: takes the oldest published entry and its turn, and for an *express* its chunks. There must be
    /// an entry.
    #[inline]
    pub(crate) fn take_submission(&self) -> Taken {
        let sqe = self.submissions.borrow_mut().pop_front().expect("published entries are in the ring");
        self.advance(1);
        self.session.begin_command();
        let (mut turn, mut chunks) = (None, None);
        if !self.is_admin() {
            match sqe.opcode {
                opcode::WRITE | opcode::HYBRID | opcode::TRANSFER | opcode::DISCARD | opcode::CXL_STORE => {
                    turn = Some(self.session.give_turn());
                }
                opcode::EXPRESS => chunks = self.take_chunks(chunks_for(sqe.cdw10.get())),
                _ => {}
            }
        }
        Taken { sqe, turn, chunks, head: self.head.get() }
    }

    /// Drive: takes published command `cid` from among the entries, and returns the queue's head after that. Entries
    /// that belong together, and commands without an answer, are not taken.
    pub(crate) fn withdraw(&self, cid: u16) -> Option<u16> {
        let mut ring = self.submissions.borrow_mut();
        let published = (self.published.get() - self.taken.get()) as usize;
        let mut at = 0;
        while at < published {
            let sqe = &ring[at];
            at += match sqe.opcode {
                _ if self.is_admin() => return None,
                opcode::EXPRESS => 1 + chunks_for(sqe.cdw10.get()) as usize,
                opcode::WRITE | opcode::HYBRID | opcode::TRANSFER | opcode::DISCARD | opcode::CXL_STORE => 1,
                opcode::STORE_PART | opcode::RETRIEVE_PART => 1,
                _ if sqe.cid.get() != cid || sqe.is_quiet() => 1,
                _ => {
                    ring.remove(at);
                    self.advance(1);
                    return Some(self.head.get());
                }
            };
        }
        None
    }

    /// Takes the next `count` entries if that many are published.
    fn take_chunks(&self, count: u32) -> Option<Box<[Sqe]>> {
        if self.published.get() - self.taken.get() < u64::from(count) {
            return None;
        }
        let chunks = self.submissions.borrow_mut().drain(..count as usize).collect();
        self.advance(count);
        Some(chunks)
    }

    fn advance(&self, count: u32) {
        self.taken.set(self.taken.get() + u64::from(count));
        let head = u32::from(self.head.get()) + count;
        self.head.set(if head < self.entries { head } else { head - self.entries } as u16);
    }

    /// Drive: posts a completion to the ring, after waiting for a free slot, and wakes the task that waits
    /// for it.
    #[inline]
    pub(crate) fn post(&self, cqe: Cqe) {
        if self.session.is_closing() {
            return;
        }
        if let Some(outlet) = &*self.outlet.borrow() {
            return outlet(cqe.with_phase(self.completion.next_phase()));
        }
        let ring = &*self.completion;
        while ring.unreleased.get() >= ring.entries - 1 {
            ring.room.wait();
            if self.session.is_closing() {
                return;
            }
        }
        ring.unreleased.set(ring.unreleased.get() + 1);
        let phase = ring.next_phase();
        ring.completions.borrow_mut().push_back(cqe.with_phase(phase));
        let waiter = self.waiters.borrow_mut().get_mut(usize::from(cqe.cid.get())).and_then(Option::take);
        if let Some(task) = waiter {
            self.sim.wake(task);
        }
    }
}
