//! One call of a client, from its start to its answer: which commands to submit, what completions mean, and
//! what remains when the caller drops the call. No I/O, no clock, no lock.
//!
//! ```text
//!   Call ─► begin ─► Course ─► advance(slot) ─► whole ─► advance(slot) ─► ended ─► conclude ─► Answer, Aftermath
//!             │
//!             └─► the pair is kept here already, or the call is refused
//! ```
//!
//! A driver hands a command a [`CommandSlot`], which puts entries into a queue and brings completions.
//! Drivers differ in nothing else.
//!
//! | file | what it decides |
//! |---|---|
//! | `command_slot` | nothing: what a driver offers a command |
//! | [`course`] | the command of a call, its steps, what its answer says |
//! | [`slot`] | when a slot is free again, and what remains of a dropped command |
//! | [`unclaimed`] | which pairs of an iterator wait for a later NEXT |

mod command_slot;
pub(crate) mod course;
pub(crate) mod slot;
pub(crate) mod unclaimed;

use kvdrive_nvme::Status;

use crate::answers::IteratorId;
use crate::client::{Answer, Call};
pub(crate) use command_slot::{Aftermath, CommandSlot, SlotOffer, Submission};
pub(crate) use course::{Capabilities, CommandEnd, Course, Until};

/// Starts a call with a value of `bytes` bytes: returns its course, or its state if no command is needed.
/// `has_unclaimed`: see [`unclaimed::Unclaimed::has`].
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

/// A call that was submitted; `F` is the driver's part while the call is under way.
#[must_use = "the answer is lost with it"]
pub struct Ticket<V, F> {
    pub(crate) call: Call<V>,
    pub(crate) state: CallState<F>,
}

/// The state of a call.
pub(crate) enum CallState<F> {
    UnderWay(F),
    /// The next pair of this iterator was left by an earlier NEXT.
    Unclaimed(IteratorId),
    /// The drive has answered before the last entry was submitted, or the call needed no command.
    Ended(Status),
}

impl<V, F> Ticket<V, F> {
    /// The iterator, if the call asks for its next pair and that pair may be kept here already.
    pub(crate) fn unclaimed(&self) -> Option<IteratorId> {
        if let CallState::Unclaimed(iterator) = self.state { Some(iterator) } else { None }
    }

    /// The answer, if the call is not under way.
    pub(crate) fn ended(&self) -> Result<Answer, Status> {
        let CallState::Ended(status) = self.state else {
            unreachable!("a claimed pair is answered, or the drive is asked")
        };
        course::done(status).map(|()| Answer::Done)
    }
}
