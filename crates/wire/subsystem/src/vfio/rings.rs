//! Submission queues and completion queues: rings in a guest's memory.
//!
//! Heads and tails that the guest writes may be any numbers: one that the ring cannot have is ignored, and reported
//! once. A completion that finds no room is held, and submission queues with this completion queue fetch no more
//! entries.

use std::collections::VecDeque;

use kvdrive_link::BadAddress;
use kvdrive_link::prp::Segments;
use kvdrive_nvme::{Cqe, Sqe};

use super::doorbells::Doorbells;
use super::memory::GuestMemory;
use crate::buffer::Wait;
use crate::namespace::QueueId;

/// A command from its fetching to its completion.
pub struct Command {
    pub cid: u16,
    /// Where the subsystem counts its opcode.
    pub counted_at: u16,
    /// When the subsystem got it, by the clock of the server, ns.
    pub began_ns: u64,
    /// The guest's memory for its answer.
    pub answer: Option<Segments>,
}

/// A command that waits for memory of the server.
pub struct Waiting {
    pub slot: u16,
    pub sqe: Sqe,
    pub bytes: usize,
    /// The guest's memory with its data; `None` for a command with an answer.
    pub data: Option<Segments>,
    /// From when it waits on: that it does.
    pub _wait: Option<Wait>,
}

/// A submission queue.
pub struct SubmissionQueue {
    pub id: u16,
    /// Identifier of its completion queue.
    pub completion: u16,
    /// The number of the queue in the subsystem.
    pub queue: QueueId,
    ring: u64,
    entries: u32,
    head: u32,
    commands: Vec<Option<Command>>,
    free: Vec<u16>,
    pub waiting: Option<Waiting>,
    /// The slot of the admin command that deletes it, which is answered after all commands of the queue.
    pub deleted_by: Option<u16>,
    /// The last tail that was outside of the ring.
    wrong_tail: Option<u32>,
}

/// What fetching brought.
pub enum Fetched {
    Command(Sqe),
    Nothing,
    /// The doorbell has a value that it cannot have, and was not noticed before.
    WrongDoorbell,
}

impl SubmissionQueue {
    pub fn new(id: u16, completion: u16, queue: QueueId, ring: u64, entries: u32) -> SubmissionQueue {
        SubmissionQueue {
            id,
            completion,
            queue,
            ring,
            entries,
            head: 0,
            commands: Vec::new(),
            free: Vec::new(),
            waiting: None,
            deleted_by: None,
            wrong_tail: None,
        }
    }

    /// The head, for completions.
    pub fn head(&self) -> u16 {
        self.head as u16
    }

    fn under_way(&self) -> usize {
        self.commands.len() - self.free.len()
    }

    /// Has every command that was fetched been completed?
    pub fn is_idle(&self) -> bool {
        self.under_way() == 0
    }

    /// Fetches the next entry, if there is one and the queue takes one now.
    ///
    /// # Errors
    /// The ring is not mapped.
    pub fn fetch(&mut self, memory: &GuestMemory, doorbells: &Doorbells) -> Result<Fetched, BadAddress> {
        if self.waiting.is_some() || self.deleted_by.is_some() || self.under_way() >= self.entries as usize {
            return Ok(Fetched::Nothing);
        }
        let tail = doorbells.submission_tail(self.id);
        if tail >= self.entries {
            let is_new = self.wrong_tail.replace(tail) != Some(tail);
            return Ok(if is_new { Fetched::WrongDoorbell } else { Fetched::Nothing });
        }
        if tail == self.head {
            return Ok(Fetched::Nothing);
        }
        let mut bytes = [0; Sqe::BYTES];
        let at = self.ring.checked_add(u64::from(self.head) * Sqe::BYTES as u64);
        let bad = BadAddress { address: self.ring, bytes: Sqe::BYTES as u32 };
        memory.read(at.ok_or(bad)?, &mut bytes)?;
        self.head = (self.head + 1) % self.entries;
        Ok(Fetched::Command(Sqe::from_bytes(bytes)))
    }

    /// Keeps a command until it is completed; returns its slot.
    pub fn keep(&mut self, command: Command) -> u16 {
        match self.free.pop() {
            Some(slot) => {
                self.commands[usize::from(slot)] = Some(command);
                slot
            }
            None => {
                self.commands.push(Some(command));
                (self.commands.len() - 1) as u16
            }
        }
    }

    /// A command that is kept.
    pub fn command(&mut self, slot: u16) -> Option<&mut Command> {
        self.commands.get_mut(usize::from(slot))?.as_mut()
    }

    /// Where the command with this identifier is kept.
    pub fn slot_of(&self, cid: u16) -> Option<u16> {
        let is_meant = |kept: &Option<Command>| kept.as_ref().is_some_and(|kept| kept.cid == cid);
        self.commands.iter().position(is_meant).map(|slot| slot as u16)
    }

    /// Removes a command that has completed.
    pub fn take(&mut self, slot: u16) -> Option<Command> {
        let command = self.commands.get_mut(usize::from(slot))?.take()?;
        self.free.push(slot);
        Some(command)
    }
}

/// A completion queue.
pub struct CompletionQueue {
    id: u16,
    ring: u64,
    entries: u32,
    tail: u32,
    head: u32,
    phase: bool,
    /// Its interrupt vector; `None`: it raises no interrupt.
    pub vector: Option<u16>,
    /// Completions without room in the ring.
    held: VecDeque<Cqe>,
    /// Entries were written since [`CompletionQueue::take_news`].
    has_news: bool,
    wrong_head: Option<u32>,
}

impl CompletionQueue {
    pub fn new(id: u16, ring: u64, entries: u32, vector: Option<u16>) -> CompletionQueue {
        CompletionQueue {
            id,
            ring,
            entries,
            tail: 0,
            head: 0,
            phase: true,
            vector,
            held: VecDeque::new(),
            has_news: false,
            wrong_head: None,
        }
    }

    /// Are completions held?
    pub fn is_full(&self) -> bool {
        !self.held.is_empty()
    }

    /// Are there entries that the host has not taken?
    pub fn has_unread(&self) -> bool {
        self.tail != self.head
    }

    /// Were entries written since the last call?
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Looks how far the host has read; `false`: it says what cannot be, and did not before.
    pub fn look(&mut self, doorbells: &Doorbells) -> bool {
        let head = doorbells.completion_head(self.id);
        if head == self.head {
            return true;
        }
        let distance = |to: u32| (to + self.entries - self.head) % self.entries;
        if head >= self.entries || distance(head) > distance(self.tail) {
            return self.wrong_head.replace(head) == Some(head);
        }
        self.head = head;
        true
    }

    /// Adds a completion to those that are held.
    pub fn add(&mut self, cqe: Cqe) {
        self.held.push_back(cqe);
    }

    /// Writes the held completions, as far as there is room.
    ///
    /// # Errors
    /// The ring is not mapped.
    pub fn write(&mut self, memory: &GuestMemory) -> Result<(), BadAddress> {
        while let Some(cqe) = self.held.front() {
            let next = (self.tail + 1) % self.entries;
            if next == self.head {
                break;
            }
            let bytes = *cqe.with_phase(self.phase).as_bytes();
            let bad = BadAddress { address: self.ring, bytes: Cqe::BYTES as u32 };
            let at = self.ring.checked_add(u64::from(self.tail) * Cqe::BYTES as u64).ok_or(bad)?;
            let (front, last) = bytes.split_at(12);
            memory.write(at, front)?;
            // The host sees the phase last.
            memory.publish(at + 12, u32::from_le_bytes(last.try_into().expect("four bytes")))?;
            self.held.pop_front();
            self.phase ^= next == 0;
            self.tail = next;
            self.has_news = true;
        }
        Ok(())
    }
}
