//! One call of a client, from its start to its answer: what it needs submitted, what its completions mean, what
//! is left when its caller drops it. No I/O, no clock, no lock.
//!
//! ```text
//!   Call ─► begin ─► Course ─► advance(slot) ─► whole ─► advance(slot) ─► ended ─► conclude ─► Answer, Aftermath
//!             │
//!             └─► the pair is there already, or the call is refused
//! ```
//!
//! A driver hands a command a [`CommandSlot`], which puts entries into a queue and brings completions; that is all
//! that the drivers differ in.
//!
//! | file | what it decides |
//! |---|---|
//! | [`course`] | the command of a call, its steps, what its answer says |
//! | [`slot`] | when a slot is free again, and what remains of a dropped command |
//! | [`unclaimed`] | which pairs of an iterator wait for a later NEXT |

pub(crate) mod course;
pub(crate) mod slot;
pub(crate) mod unclaimed;

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use kvdrive_content::{Piece, Region};
use kvdrive_link::HostMemory;
use kvdrive_spec::{Cqe, Sqe, Status};

use crate::answers::{self, IteratorId};
use crate::client::{Answer, Call};
pub(crate) use course::{Capabilities, Course, Ended, SlotOffer, Until};
use slot::IteratorUse;

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
    Keep(IteratorId, VecDeque<unclaimed::Answer>),
    /// The caller learns of no iterator, since the answer contradicts itself.
    Close(IteratorId),
    /// The iterator is closed.
    Forget(IteratorId),
}

/// Starts a call with a value of `bytes` bytes: its course, or how it stands without one. `has_unclaimed`: see
/// [`unclaimed::Unclaimed::has`].
pub(crate) fn begin<'m, V, F>(
    capabilities: Capabilities<'m>,
    call: &Call<V>,
    bytes: u32,
    has_unclaimed: impl FnOnce(IteratorId) -> bool,
) -> Result<Course<'m>, CallState<F>> {
    match *call {
        Call::Next { iterator } if has_unclaimed(iterator) => Err(CallState::Unclaimed(iterator)),
        _ => Course::of(capabilities, call, bytes).map_err(CallState::Ended),
    }
}

/// A call that was submitted, with `F` of its driver while it is under way.
#[must_use = "the answer is lost with it"]
pub struct Ticket<V, F> {
    pub(crate) call: Call<V>,
    pub(crate) state: CallState<F>,
}

/// How a call stands.
pub(crate) enum CallState<F> {
    UnderWay(F),
    /// The next pair of this iterator was left by an earlier NEXT.
    Unclaimed(IteratorId),
    /// The drive has answered before the last entry was submitted, or was not asked at all.
    Ended(Status),
}

impl<V, F> Ticket<V, F> {
    /// The iterator, if its next pair is asked for and may be there already.
    pub(crate) fn unclaimed(&self) -> Option<IteratorId> {
        if let CallState::Unclaimed(iterator) = self.state { Some(iterator) } else { None }
    }

    /// The answer, if it is not under way.
    pub(crate) fn ended(&self) -> Result<Answer, Status> {
        let CallState::Ended(status) = self.state else {
            unreachable!("a claimed pair is answered, or the drive is asked")
        };
        course::done(status).map(|()| Answer::Done)
    }
}

/// The result of something that does not leave its caller waiting.
pub(crate) fn at_once<T>(poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> T {
    match poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("this driver waits where it is called"),
    }
}
