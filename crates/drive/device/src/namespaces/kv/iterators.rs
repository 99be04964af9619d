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

use kvdrive_sim::TaskCell;

use kvdrive_content::Region;
use kvdrive_spec::Status;

/// An open iterator: a cursor, and the pairs that it has passed and the host has not received.
pub struct OpenIterator<C> {
    /// Continues after `unsent`.
    pub cursor: C,
    /// The next pairs, or the status at which the iterator could not continue. They are copies in staging memory,
    /// because a cursor cannot go back, and flash must not be held for a host that may never continue.
    pub unsent: VecDeque<Result<PairAnswer, Status>>,
}

/// The answer of SEEK and NEXT for one pair.
pub struct PairAnswer {
    /// Header and value, as far as there was room.
    pub content: Region,
    /// Bytes of the whole answer, header and value.
    pub bytes: u32,
    /// Bytes that `content` was limited to.
    pub room_bytes: u32,
}

impl PairAnswer {
    /// Does `content` hold as much of the answer as fits a buffer of `buffer_bytes` bytes?
    pub fn fills(&self, buffer_bytes: u32) -> bool {
        self.bytes.min(buffer_bytes) <= self.room_bytes
    }
}

/// Bits of an identifier that name the slot.
const SLOT_BITS: u32 = 12;

/// Bits of an identifier that name the generation.
const GENERATION_MASK: u32 = u32::MAX >> SLOT_BITS;

enum State<C> {
    Free,
    /// Being opened, or its cursor is out with a command.
    Busy,
    Open(C),
}

struct Slot<C> {
    generation: u32,
    /// The generation that was lost last, until its host has been told.
    lost: Option<u32>,
    state: State<C>,
    /// The session that has it.
    session: u32,
    /// When its last command ended: the number of commands of iterators until then.
    used: u64,
}

impl<C> Slot<C> {
    fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Frees the slot; its next iterator will have another identifier.
    fn free(&mut self) -> State<C> {
        self.generation = self.generation.wrapping_add(1) & GENERATION_MASK;
        std::mem::replace(&mut self.state, State::Free)
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
        let slot = |_| Slot { generation: 0, lost: None, state: State::Free, session: 0, used: 0 };
        Iterators { slots: TaskCell::new((0..limit).map(slot).collect()), commands: Cell::new(0) }
    }

    /// Takes a slot for a cursor that a queue's session is opening.
    ///
    /// # Errors
    /// [`Status::TOO_MANY_ITERATORS`] if none is free, and no other session has more than this one.
    pub fn reserve(&self, session: u32) -> Result<usize, Status> {
        let free = self.slots.borrow().iter().position(|slot| matches!(slot.state, State::Free));
        let index = free.or_else(|| self.lose_of_most(session)).ok_or(Status::TOO_MANY_ITERATORS)?;
        let slot = &mut self.slots.borrow_mut()[index];
        (slot.state, slot.session) = (State::Busy, session);
        Ok(index)
    }

    /// The cursor could not be opened.
    pub fn cancel(&self, index: usize) {
        self.slots.borrow_mut()[index].state = State::Free;
    }

    /// Puts the opened cursor into its slot; returns its identifier.
    pub fn fill(&self, index: usize, cursor: C) -> u32 {
        let used = self.next_command();
        let slot = &mut self.slots.borrow_mut()[index];
        (slot.state, slot.used) = (State::Open(cursor), used);
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
        for slot in self.slots.borrow().iter().filter(|slot| !matches!(slot.state, State::Free)) {
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
            State::Free => Err(Status::NO_SUCH_ITERATOR),
            State::Busy => Err(Status::COMMAND_INTERRUPTED),
            State::Open(_) => act(slot),
        }
    }

    /// Takes an open iterator's cursor out for a command. [`Status::COMMAND_INTERRUPTED`], after which the host may try
    /// again: another command has the cursor.
    pub fn take(&self, iterator: u32) -> Result<C, Status> {
        self.with_slot(iterator, |slot| match std::mem::replace(&mut slot.state, State::Busy) {
            State::Open(cursor) => Ok(cursor),
            State::Free | State::Busy => unreachable!("with_slot hands out open slots only"),
        })
    }

    /// Puts a cursor back after [`Iterators::take`].
    pub fn put_back(&self, iterator: u32, cursor: C) {
        let index = (iterator & ((1 << SLOT_BITS) - 1)) as usize;
        let used = self.next_command();
        let slot = &mut self.slots.borrow_mut()[index];
        (slot.state, slot.used) = (State::Open(cursor), used);
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
