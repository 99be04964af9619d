//! Open iterators: a bounded table of cursors. An identifier consists of slot and generation, so the identifier of a
//! closed iterator finds no other one.
//!
//! Until its host closes it, an iterator occupies a place in the table and keeps the flash of pairs that it has yet to
//! return. So that hosts do not wait for each other's iterators, an iterator can be lost (7D4h):
//!
//! ```text
//!   when                  which may be lost
//!   no place is free      one of the queue with most iterators, if the queue that opens one has fewer
//!   no room for a change  any iterator without a command under way
//! ```
//!
//! Of the candidates, the iterator that was not used for longest is lost.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::Status;
use kvdrive_nvme::iter::{IterHeader, pair_at};
use kvdrive_sim::TaskCell;

/// An open iterator: a cursor, and the pairs that it has passed and the host has not received.
pub struct OpenIterator<C> {
    /// Continues after `unsent`.
    pub cursor: C,
    /// The pairs that the host has not received. They are copies in staging memory, because a cursor cannot go back, and
    /// flash must not be held for a host that may never continue.
    pub unsent: Unsent,
}

/// Bytes of staging memory that an open iterator keeps between two answers.
const KEPT_BYTES: u32 = 64 << 10;

/// The next pairs of an iterator, and the status at which it could not continue after them.
#[derive(Default)]
pub struct Unsent {
    /// The pairs, laid out as in an answer.
    answer: Region,
    pairs: VecDeque<UnsentPair>,
    /// Where the last one ends in the answer.
    end: u32,
    refusal: Option<Status>,
}

/// Header and value of one pair.
#[derive(Clone, Copy)]
pub struct UnsentPair {
    /// Bytes of header and whole value.
    pub bytes: u32,
    /// Bytes that the part in the answer was limited to.
    room_bytes: u32,
}

impl UnsentPair {
    /// Does the answer hold the whole pair?
    pub fn is_whole(&self) -> bool {
        self.bytes <= self.room_bytes
    }

    /// Does the answer hold as much of the pair as fits a buffer of `buffer_bytes` bytes?
    pub fn fills(&self, buffer_bytes: u32) -> bool {
        self.bytes.min(buffer_bytes) <= self.room_bytes
    }
}

impl Unsent {
    /// The pair at `index`.
    pub fn pair(&self, index: usize) -> Option<UnsentPair> {
        self.pairs.get(index).copied()
    }

    /// The answer; the first pair is at its front.
    pub fn answer(&self) -> &Region {
        &self.answer
    }

    /// Appends a pair, as much of it as a buffer of `room_bytes` bytes takes; `load` hands out so many bytes of its value.
    ///
    /// # Errors
    /// Those of `load`; no pair is appended then.
    pub fn append(
        &mut self,
        header: IterHeader,
        room_bytes: u32,
        load: impl FnOnce(u32, &mut dyn FnMut(Piece<'_>)) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let mut at = pair_at(self.end);
        let bytes = header.answer_bytes();
        let mut append = |piece: Piece<'_>| {
            self.answer.write(at, piece);
            at += piece.bytes();
        };
        append(Piece::Bytes(header.as_bytes()));
        if !header.tail().is_empty() {
            append(Piece::Bytes(header.tail()));
        }
        load(bytes.min(room_bytes).saturating_sub(header.value_at()), &mut append)?;
        self.end = pair_at(self.end).saturating_add(bytes);
        self.pairs.push_back(UnsentPair { bytes, room_bytes });
        Ok(())
    }

    /// The iterator cannot continue after these pairs.
    pub fn refuse(&mut self, status: Status) {
        self.refusal = Some(status);
    }

    /// Is there a status after the pairs?
    pub fn has_refusal(&self) -> bool {
        self.refusal.is_some()
    }

    /// Takes the status when no pair is left before it: the iterator continues after it, if it can.
    pub fn take_refusal(&mut self) -> Option<Status> {
        self.answer.clear();
        self.refusal.take()
    }

    /// The host has received the first `count` pairs, which end at byte `end` of the answer.
    pub fn sent(&mut self, count: usize, end: u32) {
        self.pairs.drain(..count);
        if self.pairs.is_empty() {
            self.answer.clear_to(KEPT_BYTES);
            self.end = 0;
            return;
        }
        let (from, mut at) = (pair_at(end), 0);
        let mut rest = Region::new();
        self.answer.read(from, self.answer.written_end() - from, &mut |piece| {
            rest.write(at, piece);
            at += piece.bytes();
        });
        self.answer = rest;
        self.end -= from;
    }
}

/// Bits of an identifier that name the slot.
const SLOT_BITS: u32 = 12;

/// Bits of an identifier that name the generation.
const GENERATION_MASK: u32 = u32::MAX >> SLOT_BITS;

enum SlotState<C> {
    Free,
    /// Being opened, or its cursor is out with a command.
    Busy,
    Open(C),
}

struct Slot<C> {
    generation: u32,
    /// The generation that was lost last, until its host has been told.
    lost: Option<u32>,
    state: SlotState<C>,
    /// The session that has it.
    session: u32,
    /// When its last command ended: the number of commands of iterators until then.
    used: u64,
}

impl<C> Slot<C> {
    fn is_open(&self) -> bool {
        matches!(self.state, SlotState::Open(_))
    }

    /// Frees the slot; its next iterator will have another identifier.
    fn free(&mut self) -> SlotState<C> {
        self.generation = self.generation.wrapping_add(1) & GENERATION_MASK;
        std::mem::replace(&mut self.state, SlotState::Free)
    }
}

/// The table.
pub struct Iterators<C> {
    slots: TaskCell<Vec<Slot<C>>>,
    /// Commands of iterators so far.
    commands: Cell<u64>,
}

impl<C> Iterators<C> {
    /// Room for `limit` iterators.
    pub fn new(limit: u32) -> Iterators<C> {
        assert!(limit < 1 << SLOT_BITS, "at most {} iterators", (1 << SLOT_BITS) - 1);
        let slot = |_| Slot { generation: 0, lost: None, state: SlotState::Free, session: 0, used: 0 };
        Iterators { slots: TaskCell::new((0..limit).map(slot).collect()), commands: Cell::new(0) }
    }

    /// Takes a slot for a cursor that a queue's session is opening.
    ///
    /// # Errors
    /// [`Status::TOO_MANY_ITERATORS`] if none is free, and no other session has more than this one.
    pub fn reserve(&self, session: u32) -> Result<usize, Status> {
        let free = self.slots.borrow().iter().position(|slot| matches!(slot.state, SlotState::Free));
        let index = free.or_else(|| self.lose_of_most(session)).ok_or(Status::TOO_MANY_ITERATORS)?;
        let slot = &mut self.slots.borrow_mut()[index];
        (slot.state, slot.session) = (SlotState::Busy, session);
        Ok(index)
    }

    /// The cursor could not be opened.
    pub fn cancel(&self, index: usize) {
        self.slots.borrow_mut()[index].state = SlotState::Free;
    }

    /// Puts the opened cursor into its slot; returns its identifier.
    pub fn fill(&self, index: usize, cursor: C) -> u32 {
        let used = self.next_command();
        let slot = &mut self.slots.borrow_mut()[index];
        (slot.state, slot.used) = (SlotState::Open(cursor), used);
        (slot.generation << SLOT_BITS) | index as u32
    }

    fn next_command(&self) -> u64 {
        self.commands.set(self.commands.get() + 1);
        self.commands.get()
    }

    /// Gives up the iterator that was not used for longest, whichever session has it; `false` if none is open.
    pub fn lose_one(&self) -> bool {
        self.lose(|_| true).is_some()
    }

    /// Gives up an iterator of the session with most iterators, if it has more than `session`.
    fn lose_of_most(&self, session: u32) -> Option<usize> {
        let mut counts = BTreeMap::<u32, usize>::new();
        for slot in self.slots.borrow().iter().filter(|slot| !matches!(slot.state, SlotState::Free)) {
            *counts.entry(slot.session).or_default() += 1;
        }
        let own = counts.get(&session).copied().unwrap_or(0);
        let most = counts.values().copied().max().filter(|most| *most > own)?;
        self.lose(|slot| counts[&slot.session] == most)
    }

    /// Gives up the open iterator that was not used for longest, among those for which `may_be_lost` returns `true`;
    /// returns its slot.
    fn lose(&self, may_be_lost: impl Fn(&Slot<C>) -> bool) -> Option<usize> {
        let mut slots = self.slots.borrow_mut();
        let open = slots.iter().enumerate().filter(|(_, slot)| slot.is_open() && may_be_lost(slot));
        let (index, _) = open.min_by_key(|(_, slot)| slot.used)?;
        slots[index].lost = Some(slots[index].generation);
        let state = slots[index].free();
        drop(slots);
        // Dropping a cursor may free flash, so nothing may be borrowed here.
        drop(state);
        Some(index)
    }

    fn with_slot<T>(
        &self,
        iterator: u32,
        act: impl FnOnce(&mut Slot<C>) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let mut slots = self.slots.borrow_mut();
        let index = (iterator & ((1 << SLOT_BITS) - 1)) as usize;
        let slot = slots.get_mut(index).ok_or(Status::NO_SUCH_ITERATOR)?;
        let generation = iterator >> SLOT_BITS;
        if slot.generation != generation {
            // The host learns of the loss once; after that the identifier is unknown.
            let is_lost = slot.lost.take_if(|lost| *lost == generation).is_some();
            return Err(if is_lost { Status::ITERATOR_LOST } else { Status::NO_SUCH_ITERATOR });
        }
        match slot.state {
            SlotState::Free => Err(Status::NO_SUCH_ITERATOR),
            SlotState::Busy => Err(Status::COMMAND_INTERRUPTED),
            SlotState::Open(_) => act(slot),
        }
    }

    /// Takes an open iterator's cursor out for a command. [`Status::COMMAND_INTERRUPTED`], after which the host may try
    /// again: another command has the cursor.
    pub fn take(&self, iterator: u32) -> Result<C, Status> {
        self.with_slot(iterator, |slot| match std::mem::replace(&mut slot.state, SlotState::Busy) {
            SlotState::Open(cursor) => Ok(cursor),
            SlotState::Free | SlotState::Busy => unreachable!("with_slot hands out open slots only"),
        })
    }

    /// Puts a cursor back after [`Iterators::take`].
    pub fn put_back(&self, iterator: u32, cursor: C) {
        let index = (iterator & ((1 << SLOT_BITS) - 1)) as usize;
        let used = self.next_command();
        let slot = &mut self.slots.borrow_mut()[index];
        (slot.state, slot.used) = (SlotState::Open(cursor), used);
    }

    /// Closes an open iterator. Closing a lost one succeeds, too.
    pub fn close(&self, iterator: u32) -> Result<(), Status> {
        let closed = self.with_slot(iterator, |slot| Ok(slot.free()));
        match closed {
            Ok(_) | Err(Status::ITERATOR_LOST) => Ok(()),
            Err(status) => Err(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use kvdrive_nvme::Key;

    use super::*;

    fn append(unsent: &mut Unsent, number: u32, value_bytes: u32, room_bytes: u32) {
        let header = IterHeader::new(Key::from_u32_be(number), value_bytes);
        let load = |bytes: u32, sink: &mut dyn FnMut(Piece<'_>)| {
            sink(Piece::Bytes(&vec![number as u8; bytes as usize]));
            Ok(())
        };
        unsent.append(header, room_bytes, load).unwrap();
    }

    /// The pair as an answer has it.
    fn encoded(number: u32, value_bytes: u32) -> Vec<u8> {
        let header = IterHeader::new(Key::from_u32_be(number), value_bytes);
        [&header.as_bytes()[..], &vec![number as u8; value_bytes as usize]].concat()
    }

    #[test]
    fn pairs_that_were_not_sent_come_to_the_front() {
        let mut unsent = Unsent::default();
        for (number, value_bytes) in [(1, 13), (2, 0), (3, 30)] {
            append(&mut unsent, number, value_bytes, 4096);
        }
        let end = pair_at(encoded(1, 13).len() as u32) + encoded(2, 0).len() as u32;
        unsent.sent(2, end);
        assert_eq!(unsent.answer().to_bytes(54), encoded(3, 30));
        append(&mut unsent, 4, 1, 4096);
        assert_eq!(unsent.answer().to_bytes(81)[54..], [&[0; 2][..], &encoded(4, 1)].concat());
        assert_eq!(unsent.pair(1).map(|pair| pair.bytes), Some(25));
        unsent.sent(2, 81);
        assert!(unsent.pair(0).is_none() && unsent.answer().written_end() == 0);
    }

    #[test]
    fn a_pair_that_was_read_for_less_room_is_not_whole() {
        let mut unsent = Unsent::default();
        append(&mut unsent, 7, 100, 64);
        let pair = unsent.pair(0).unwrap();
        assert!(!pair.is_whole() && pair.fills(64) && !pair.fills(65));
        assert_eq!((pair.bytes, unsent.answer().written_end()), (124, 64));
    }

    #[test]
    fn nothing_is_left_of_a_value_that_could_not_be_read() {
        let mut unsent = Unsent::default();
        let header = IterHeader::new(Key::from_u32_be(1), 10);
        let load = |_: u32, sink: &mut dyn FnMut(Piece<'_>)| {
            sink(Piece::Bytes(&[0xFF; 5]));
            Err(Status::UNRECOVERED_ERROR)
        };
        assert_eq!(unsent.append(header, 4096, load), Err(Status::UNRECOVERED_ERROR));
        unsent.refuse(Status::UNRECOVERED_ERROR);
        assert!(unsent.pair(0).is_none() && unsent.has_refusal());
        assert_eq!(unsent.take_refusal(), Some(Status::UNRECOVERED_ERROR));
        append(&mut unsent, 2, 0, 4096);
        assert_eq!(unsent.answer().to_bytes(40), [&encoded(2, 0)[..], &[0; 16]].concat());
    }
}
