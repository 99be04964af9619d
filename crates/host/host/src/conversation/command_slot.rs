//! The interface between a command and its driver: what the driver offers ([`CommandSlot`]), and what the
//! driver does after the answer ([`Aftermath`]).

use std::task::{Context, Poll};

use kvdrive_content::Piece;
use kvdrive_link::transfer::HostWindow;
use kvdrive_nvme::{Cqe, Sqe};

use super::slot::IteratorUse;
use crate::answers::{IteratorId, Pairs};

/// The memory and entries that a slot offers its command.
#[derive(Clone, Copy)]
pub(crate) struct SlotOffer<'a> {
    pub(crate) cid: u16,
    /// Addresses of its buffer and of the list page that names the buffer's pages.
    pub(crate) buffer: u64,
    pub(crate) list: u64,
    /// Address of the memory of its key, if that is longer than 16 bytes.
    pub(crate) key: u64,
    /// Queue entries that the command may use at once.
    pub(crate) entries: u32,
    pub(crate) window: Option<&'a HostWindow>,
    /// Inline commands of a value are submitted together, as far as there are entries, instead of each after
    /// the completion of the one before.
    pub(crate) is_together: bool,
}

/// A slot of a queue, as a driver hands it to one command. A driver that may block returns when the step is
/// done; the others return [`Poll::Pending`] and are called again.
pub(crate) trait CommandSlot {
    /// Why the queue cannot be reached.
    type Error;

    /// The slot's offer, and the outbox: entries that the next doorbell publishes.
    fn offer(&mut self) -> (SlotOffer<'_>, &mut Vec<Sqe>);

    /// Takes the queue's sequence: no other inline command comes between those of this value.
    fn take_sequence(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        unreachable!("{NO_METHOD}")
    }

    /// Gives the sequence back, if it is held: the last inline command is submitted, and other values may
    /// follow.
    fn leave_sequence(&mut self) {}

    /// Puts a key of more than 16 bytes into the slot's memory for it.
    fn put_key(&mut self, _key: &[u8]) {
        unreachable!("{NO_METHOD}")
    }

    /// Puts a value's first bytes into the slot's buffer.
    fn stage(&mut self, _value: Piece<'_>) {
        unreachable!("{NO_METHOD}")
    }

    /// Empties the slot's buffer. A queue whose data travel beside the entry has no buffer.
    fn clear(&mut self) {}

    /// Names the first `_bytes` bytes of the slot's buffer in a chain of list pages behind its list page
    /// ([`crate::answers::chain`]). A queue whose data travel beside the entry names nothing.
    fn list(&mut self, _bytes: u32) {}

    /// Stores a value's first bytes into the drive's window.
    fn write_window(&mut self, _address: u64, _value: Piece<'_>) {
        unreachable!("{NO_WINDOW}")
    }

    /// Wakes a value that waits for room in the window.
    fn pass_window(&mut self) {}

    /// Submits the entries of the outbox, with one doorbell.
    ///
    /// # Errors
    /// The queue cannot be reached.
    fn submit(&mut self, submission: Submission<'_>) -> Result<(), Self::Error>;

    /// The joint result of all completions of the last submission, when they have come.
    fn completion(&mut self, context: &mut Context<'_>) -> Poll<Result<Cqe, Self::Error>>;
}

const NO_WINDOW: &str = "this driver offers no window";
const NO_METHOD: &str = "this driver's values travel with their commands";

/// Descriptors that are submitted besides the entries.
pub(crate) struct Submission<'v> {
    /// Number of completions to come.
    pub(crate) completions: u32,
    pub(crate) iterator_use: IteratorUse,
    /// The call's value, and room of an answer in bytes: for queues whose data travel beside the entry.
    pub(crate) value: Piece<'v>,
    pub(crate) room: u32,
}

/// The action of a driver after a call is answered and its slot is free.
pub(crate) enum Aftermath {
    None,
    /// Keep pairs that no call has asked for yet.
    Keep(IteratorId, Pairs),
    /// Close the iterator: its SEEK's answer contradicts itself, so the caller learns of no iterator.
    Close(IteratorId),
    /// Discard the kept answers of this iterator, which is closed.
    Forget(IteratorId),
}
