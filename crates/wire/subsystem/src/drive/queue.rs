//! A queue of the drive: its slots, who gets the completion of each, and what its session has open.

use std::sync::Arc;

use kvdrive_link::shared::{SharedBuffer, SharedQueue};
use kvdrive_nvme::{Cqe, Status, opcode};

use crate::buffer::Buffer;
use crate::namespace::{Completion, Refreshable, Tag};

/// The recipient of a command's completion.
pub(super) enum Recipient {
    Free,
    Host(Tag, Buffer),
    /// The namespace refreshes a report on itself, for a host or without one.
    Itself(Refreshable, Option<(Tag, Buffer)>),
    /// The host's Abort, which waits for the answer of the drive's Abort.
    Abort(Completion),
    /// None: the command closes an iterator of an ended session, or asks for events.
    Cleanup,
    /// The namespace waits for an event of the drive's health.
    Event,
    /// The namespace is erased for somebody who is no host.
    Format,
}

pub(super) struct RingSlot {
    pub(super) recipient: Recipient,
    pub(super) opcode: u8,
    /// For NEXT and close: the iterator.
    pub(super) iterator: u32,
    pub(super) memory: Option<Arc<SharedBuffer>>,
    /// The drive has the memory of the host's bytes until the command completes.
    pub(super) is_lent: bool,
}

pub(super) struct Queue {
    pub(super) queue: Arc<SharedQueue>,
    pub(super) slots: Vec<RingSlot>,
    pub(super) free: Vec<u16>,
    pub(super) is_open: bool,
    pub(super) iterators: Vec<u32>,
    /// A value may have arrived in part, which has to be discarded when the session ends.
    pub(super) has_streams: bool,
}

impl RingSlot {
    /// Returns the memory of the host's bytes to their buffer.
    pub(super) fn give_back(&mut self) {
        if let (true, Some(memory), Recipient::Host(_, data)) =
            (self.is_lent, &self.memory, &mut self.recipient)
        {
            let is_back = memory.exchange(data.lent_memory(), |_| true);
            assert!(is_back, "a drive does not write where it is to read");
        }
        self.is_lent = false;
    }
}

impl Queue {
    pub(super) fn new(queue: Arc<SharedQueue>, slots: u32) -> Queue {
        let slot =
            || RingSlot { recipient: Recipient::Free, opcode: 0, iterator: 0, memory: None, is_lent: false };
        let slots: Vec<RingSlot> = (0..slots).map(|_| slot()).collect();
        let free = (0..slots.len()).rev().map(|slot| slot as u16).collect();
        Queue { queue, slots, free, is_open: true, iterators: Vec::new(), has_streams: false }
    }

    pub(super) fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// Keeps track of the iterators that a session has open.
pub(super) fn note_iterator(iterators: &mut Vec<u32>, opcode: u8, iterator: u32, cqe: &Cqe) {
    let status = cqe.status();
    match opcode {
        opcode::SEEK if status.is_success() => iterators.push(cqe.dw1.get()),
        opcode::ITER_CLOSE if status.is_success() => iterators.retain(|open| *open != iterator),
        opcode::NEXT if status == Status::ITERATOR_LOST => iterators.retain(|open| *open != iterator),
        _ => {}
    }
}
