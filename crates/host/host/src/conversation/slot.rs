//! A command slot: which completions are to come, and what remains to be done after the command is dropped.
//! No I/O, no clock, no lock: a driver reports events and carries out the answers.
//!
//! ```text
//!            submitted(n)            arrived(last of n)               settled
//!   free ─────────────────► under way ─────────────────► answered ─────────────► free
//!                               │ abandoned                  │ abandoned           ▲
//!                               ▼                            ▼                     │
//!                            left: completions to come ──► close what a SEEK opened, and wait
//!                                                      ──► over: torn value, answer of a NEXT ──► free
//! ```
//!
//! A command may be dropped at any moment. Identifier and buffer are the drive's until the last completion,
//! so the slot stays taken; then [`Remaining`] says what remains to be done:
//!
//! * A value that needs several inline commands and was dropped between them has left a part of it in the
//!   drive, which discards it before the next inline value begins (`is_torn`).
//! * An iterator whose SEEK no caller waits for is closed, in the same slot.
//! * The answer of a NEXT without a waiting caller is kept, because the drive has passed that pair
//!   ([`super::unclaimed`]).

use kvdrive_link::transfer::outcome;
use kvdrive_nvme::{Command, Cqe, DRIVE_NSID, Sqe};

use crate::answers::IteratorId;

/// The effect of a command on an iterator, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IteratorUse {
    #[default]
    None,
    /// The iterator that it opens is closed if the command was dropped.
    Opens,
    /// Its answer, at most `buffer_bytes` bytes in the slot's buffer, is kept if the command was dropped.
    Steps { iterator: IteratorId, buffer_bytes: u32 },
}

/// The meaning of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// More completions are to come.
    More,
    /// It was the last one, and a caller waits for the command.
    Answered,
    /// The command was dropped.
    Left(Remaining),
}

/// What remains to be done for a dropped command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remaining {
    /// Nothing, until the next completion comes.
    Wait,
    /// Submit this command in the same slot, and wait.
    Close(Sqe),
    /// All completions have come: the slot is free.
    Over {
        /// The drive has a part of a value that will not be completed, and the slot still has the sequence:
        /// the drive discards that part, and the sequence passes on.
        is_torn: bool,
        /// A pair, or the status in its place, for the next NEXT of this iterator.
        unclaimed: Option<(IteratorId, u32, Cqe)>,
    },
}

/// One slot of a queue pair; see above.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slot {
    cid: u16,
    /// Completions to come of the last submission, and the joint result of those that have come.
    awaited: u32,
    outcome: Option<Cqe>,
    iterator_use: IteratorUse,
    /// The drive has a part of a value, and more is to come. Then the slot has the queue's sequence: the
    /// right to submit inline commands, which a value holds until its last one is submitted.
    is_inside: bool,
    is_abandoned: bool,
}

impl Slot {
    /// A free slot with this command identifier.
    pub(crate) fn new(cid: u16) -> Slot {
        Slot { cid, ..Slot::default() }
    }

    /// Notes that commands with `completions` completions are about to be submitted. `is_inside`: they belong
    /// to a value that holds the sequence.
    pub(crate) fn submitted(&mut self, completions: u32, iterator_use: IteratorUse, is_inside: bool) {
        (self.awaited, self.outcome) = (completions, None);
        (self.iterator_use, self.is_inside) = (iterator_use, is_inside);
    }

    /// Notes that the commands of [`Slot::submitted`] were not submitted; `is_inside`: earlier ones of the
    /// same value were.
    pub(crate) fn withdrawn(&mut self, is_inside: bool) {
        *self = Slot { is_inside: is_inside && self.is_inside, ..Slot::new(self.cid) };
    }

    /// The last inline command of the value is submitted.
    pub(crate) fn leave_sequence(&mut self) {
        self.is_inside = false;
    }

    /// Has the drive a part of a value?
    pub(crate) fn is_inside(&self) -> bool {
        self.is_inside
    }

    /// The completion of a command of this slot.
    pub(crate) fn arrived(&mut self, cqe: &Cqe) -> Arrived {
        let Some(awaited) = self.awaited.checked_sub(1) else { return Arrived::More };
        self.awaited = awaited;
        self.outcome = Some(self.outcome.map_or(*cqe, |first| outcome(first, *cqe)));
        match (awaited, self.is_abandoned) {
            (0, false) => Arrived::Answered,
            (0, true) => Arrived::Left(self.left()),
            (_, false) => Arrived::More,
            (_, true) => Arrived::Left(Remaining::Wait),
        }
    }

    /// The joint result of all completions of the last submission, when they have come.
    pub(crate) fn outcome(&self) -> Option<Cqe> {
        self.outcome.filter(|_| self.awaited == 0)
    }

    /// Notes that the caller has taken the answer: nothing remains to be done.
    pub(crate) fn settled(&mut self) {
        (self.outcome, self.iterator_use) = (None, IteratorUse::None);
    }

    /// The iterator whose next pair is kept if the command is dropped now.
    pub(crate) fn steps(&self) -> Option<IteratorId> {
        match self.iterator_use {
            IteratorUse::Steps { iterator, .. } if self.awaited > 0 || self.outcome.is_some() => {
                Some(iterator)
            }
            _ => None,
        }
    }

    /// Notes that the command was dropped.
    pub(crate) fn abandon(&mut self) -> Remaining {
        self.is_abandoned = true;
        if self.awaited > 0 { Remaining::Wait } else { self.left() }
    }

    /// The state that remains when all completions have come.
    fn left(&mut self) -> Remaining {
        let (iterator_use, outcome) = (std::mem::take(&mut self.iterator_use), self.outcome.take());
        let unclaimed = match (iterator_use, outcome) {
            (IteratorUse::Opens, Some(cqe)) if cqe.status().is_success() => {
                self.awaited = 1;
                let iterator = IteratorId::of(&cqe).number();
                return Remaining::Close(Command::IterClose { iterator }.encode(self.cid, DRIVE_NSID));
            }
            (IteratorUse::Steps { iterator, buffer_bytes }, Some(cqe)) => Some((iterator, buffer_bytes, cqe)),
            _ => None,
        };
        let is_torn = self.is_inside;
        *self = Slot::new(self.cid);
        Remaining::Over { is_torn, unclaimed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvdrive_nvme::Status;

    const CID: u16 = 3;

    fn ok() -> Cqe {
        Cqe::new(CID, Status::SUCCESS).with_result(0, 7)
    }

    fn over(is_torn: bool) -> Remaining {
        Remaining::Over { is_torn, unclaimed: None }
    }

    fn submitted(completions: u32, iterator_use: IteratorUse, is_inside: bool) -> Slot {
        let mut slot = Slot::new(CID);
        slot.submitted(completions, iterator_use, is_inside);
        slot
    }

    #[test]
    fn a_slot_is_the_drives_until_the_last_completion() {
        let mut slot = submitted(3, IteratorUse::None, false);
        assert_eq!(slot.arrived(&ok()), Arrived::More);
        assert_eq!((slot.abandon(), slot.outcome()), (Remaining::Wait, None));
        assert_eq!(slot.arrived(&ok()), Arrived::Left(Remaining::Wait));
        assert_eq!(slot.arrived(&ok()), Arrived::Left(over(false)));
        assert_eq!(slot.arrived(&ok()), Arrived::More, "nothing of it is under way");
    }

    #[test]
    fn a_value_is_torn_from_its_first_command_to_its_last() {
        assert_eq!(Slot::new(CID).abandon(), over(false));
        for (leaves, is_torn) in [(false, true), (true, false)] {
            let mut slot = submitted(1, IteratorUse::None, true);
            if leaves {
                slot.leave_sequence();
            }
            assert_eq!(slot.abandon(), Remaining::Wait);
            assert_eq!(slot.arrived(&ok()), Arrived::Left(over(is_torn)));
        }
    }

    #[test]
    fn what_was_not_submitted_tears_only_what_was_begun_before() {
        for begun in [false, true] {
            let mut slot = submitted(2, IteratorUse::None, true);
            slot.withdrawn(begun);
            assert_eq!(slot.abandon(), over(begun));
        }
    }

    #[test]
    fn an_iterator_that_nobody_learns_of_is_closed() {
        for answered in [false, true] {
            let mut slot = submitted(1, IteratorUse::Opens, false);
            if answered {
                assert_eq!(slot.arrived(&ok()), Arrived::Answered);
            }
            let mut left = slot.abandon();
            if !answered {
                assert_eq!((left, slot.arrived(&ok())), (Remaining::Wait, Arrived::Left(closed())));
                left = closed();
            }
            assert_eq!(left, closed());
            assert_eq!(slot.arrived(&ok()), Arrived::Left(over(false)));
        }
        let mut refused = submitted(1, IteratorUse::Opens, false);
        assert_eq!(refused.abandon(), Remaining::Wait);
        let full = Cqe::new(CID, Status::CAPACITY_EXCEEDED);
        assert_eq!(refused.arrived(&full), Arrived::Left(over(false)));
        let mut settled = submitted(1, IteratorUse::Opens, false);
        assert_eq!(settled.arrived(&ok()), Arrived::Answered);
        settled.settled();
        assert_eq!(settled.abandon(), over(false), "its caller has it");
    }

    fn closed() -> Remaining {
        Remaining::Close(
            Command::IterClose { iterator: IteratorId::of(&ok()).number() }.encode(CID, DRIVE_NSID),
        )
    }

    #[test]
    fn a_pair_that_nobody_learns_of_is_left_with_its_iterator() {
        let iterator = IteratorId::numbered(9);
        assert_eq!(Slot::new(CID).steps(), None, "nothing has been asked");
        let mut slot = submitted(1, IteratorUse::Steps { iterator, buffer_bytes: 100 }, false);
        assert_eq!(slot.steps(), Some(iterator));
        assert_eq!(slot.abandon(), Remaining::Wait);
        let unclaimed = Some((iterator, 100, ok()));
        assert_eq!(slot.arrived(&ok()), Arrived::Left(Remaining::Over { is_torn: false, unclaimed }));
    }
}
