//! What a command needs of the driver that carries it out, and what it leaves the driver to do: [`CommandSlot`],
//! [`Aftermath`].

use std::task::{Context, Poll};

use kvdrive_content::{Piece, Region};
use kvdrive_link::HostMemory;
use kvdrive_link::transfer::HostWindow;
use kvdrive_spec::{Cqe, Sqe};

use super::slot::IteratorUse;
use crate::answers::{self, IteratorId, Pairs};

/// What a slot offers its command.
#[derive(Clone, Copy)]
pub(crate) struct SlotOffer<'a> {
    pub(crate) cid: u16,
    /// Addresses of its buffer and of the list page that names the buffer's pages.
    pub(crate) buffer: u64,
    pub(crate) list: u64,
    /// Queue entries that the command may use at once.
    pub(crate) entries: u32,
    pub(crate) window: Option<&'a HostWindow>,
    /// Inline commands of a value go together, as far as there are entries, and not each when the one before it
    /// has completed.
    pub(crate) is_together: bool,
}

/// A slot of a queue, as a driver hands it to one command. A driver that waits for its caller returns when a thing
/// is done; the others return [`Poll::Pending`] and are asked again.
pub(crate) trait CommandSlot {
    /// Why the queue cannot be reached.
    type Error;

    /// What the slot offers, and where entries are put that go with the next doorbell.
    fn offer(&mut self) -> (SlotOffer<'_>, &mut Vec<Sqe>);

    /// Takes the queue's sequence: no inline command of others goes between those of this value.
    fn take_sequence(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        unreachable!("{NO_METHOD}")
    }

    /// The last inline command is submitted, or none is: other values may follow.
    fn leave_sequence(&mut self) {}

    /// Puts a value's first bytes into the slot's buffer.
    fn stage(&mut self, _value: Piece<'_>) {
        unreachable!("{NO_METHOD}")
    }

    /// Makes the slot's buffer empty. There is none where data travel beside the entry.
    fn clear(&mut self) {}

    /// Names the first so many bytes of the slot's buffer in a chain of list pages behind its list page
    /// ([`answers::chain`]). Nothing is named where data travel beside the entry.
    fn list(&mut self, _bytes: u32) {}

    /// Stores a value's first bytes into the drive's window.
    fn write_window(&mut self, _address: u64, _value: Piece<'_>) {
        unreachable!("{NO_WINDOW}")
    }

    /// Waits until a value in the window is answered.
    fn wait_for_window(&mut self) {
        unreachable!("{NO_WINDOW}")
    }

    /// There may be room in the window for one that waits.
    fn pass_window(&mut self) {}

    /// Submits the entries that were put out, with one doorbell.
    ///
    /// # Errors
    /// The queue cannot be reached.
    fn submit(&mut self, submission: Submission<'_>) -> Result<(), Self::Error>;

    /// What all completions of the last submission say together, once they have come.
    fn completion(&mut self, context: &mut Context<'_>) -> Poll<Result<Cqe, Self::Error>>;
}

const NO_WINDOW: &str = "this driver offers no window";
const NO_METHOD: &str = "this driver's values travel with their commands";

/// What is submitted besides the entries.
pub(crate) struct Submission<'v> {
    /// How many completions will come.
    pub(crate) completions: u32,
    pub(crate) iterator_use: IteratorUse,
    /// The call's value, and room of an answer in bytes: for queues that carry data beside the entry.
    pub(crate) value: Piece<'v>,
    pub(crate) room: u32,
}

/// Where the data of an answer are.
pub(crate) trait Arrival {
    /// Memory, and the address of its first byte there.
    fn memory(&self) -> (&dyn HostMemory, u64);

    /// How many bytes came; memory that the drive writes is there as a whole.
    fn bytes(&self) -> u32 {
        u32::MAX
    }

    /// Moves the first `bytes` bytes to byte 0 of `into`.
    fn take_value(&self, bytes: u32, into: &mut Region) {
        let (memory, at) = self.memory();
        into.clear();
        answers::copy_in(memory, at, bytes, into);
    }
}

/// Memory that begins at an address.
impl Arrival for (&dyn HostMemory, u64) {
    fn memory(&self) -> (&dyn HostMemory, u64) {
        *self
    }
}

/// What a driver has to do when a call is answered and its slot is free.
pub(crate) enum Aftermath {
    None,
    /// Pairs that were not asked for yet.
    Keep(IteratorId, Pairs),
    /// The caller learns of no iterator, since the answer contradicts itself.
    Close(IteratorId),
    /// The iterator is closed.
    Forget(IteratorId),
}
