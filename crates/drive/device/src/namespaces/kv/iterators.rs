//! Open iterators: a bounded table of cursors. An identifier is a slot and a generation, so that one of a
//! closed iterator finds nothing.

use std::collections::VecDeque;

use kvdrive_sim::TaskCell;

use kvdrive_content::Region;
use kvdrive_spec::Status;

/// An open iterator: a cursor, and the pairs that it has passed and the host has not received.
pub struct OpenIterator<C> {
    /// Continues after `unsent`.
    pub cursor: C,
    /// The next pairs, or the status at which the iterator could not continue. Staging memory of the answers' size: a
    /// cursor cannot go back, and a pair's place on flash must not be held for a host that may never ask
    /// again.
    pub unsent: VecDeque<Result<PairAnswer, Status>>,
}

/// The answer of SEEK and NEXT for one pair.
pub struct PairAnswer {
    /// Header and value, as far as there was room.
    pub content: Region,
    /// All of it.
    pub bytes: u32,
    /// Room that there was.
    pub room_bytes: u32,
}

impl PairAnswer {
    /// Is all of the answer there that a buffer of `buffer_bytes` bytes has room for?
    pub fn fills(&self, buffer_bytes: u32) -> bool {
        self.bytes.min(buffer_bytes) <= self.room_bytes
    }
}

/// Bits of an identifier that name the slot.
const SLOT_BITS: u32 = 12;

enum Slot<C> {
    Free,
    /// Being opened, or its cursor is out with a command.
    Busy,
    Open(C),
}

/// The table.
pub struct Iterators<C> {
    slots: TaskCell<Vec<(u32, Slot<C>)>>,
}

impl<C> Iterators<C> {
    /// Room for `limit` iterators.
    pub fn new(limit: u32) -> Iterators<C> {
        assert!(limit < 1 << SLOT_BITS, "at most {} iterators", (1 << SLOT_BITS) - 1);
        Iterators { slots: TaskCell::new((0..limit).map(|_| (0, Slot::Free)).collect()) }
    }

    /// Takes a free slot for a cursor that is being opened.
    pub fn reserve(&self) -> Result<usize, Status> {
        let mut slots = self.slots.borrow_mut();
        let free = slots.iter().position(|(_, slot)| matches!(slot, Slot::Free));
        let index = free.ok_or(Status::TOO_MANY_ITERATORS)?;
        slots[index].1 = Slot::Busy;
        Ok(index)
    }

    /// The cursor could not be opened.
    pub fn cancel(&self, index: usize) {
        self.slots.borrow_mut()[index].1 = Slot::Free;
    }

    /// Puts the opened cursor into its slot; returns its identifier.
    pub fn fill(&self, index: usize, cursor: C) -> u32 {
        let mut slots = self.slots.borrow_mut();
        let (generation, slot) = &mut slots[index];
        *slot = Slot::Open(cursor);
        (*generation << SLOT_BITS) | index as u32
    }

    fn with_slot<T>(
        &self,
        iterator: u32,
        act: impl FnOnce(&mut u32, &mut Slot<C>) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let mut slots = self.slots.borrow_mut();
        let index = (iterator & ((1 << SLOT_BITS) - 1)) as usize;
        let (generation, slot) = slots.get_mut(index).ok_or(Status::NO_SUCH_ITERATOR)?;
        if *generation & (u32::MAX >> SLOT_BITS) != iterator >> SLOT_BITS {
            return Err(Status::NO_SUCH_ITERATOR);
        }
        match slot {
            Slot::Free => Err(Status::NO_SUCH_ITERATOR),
            Slot::Busy => Err(Status::COMMAND_INTERRUPTED),
            Slot::Open(_) => act(generation, slot),
        }
    }

    /// Takes an open iterator's cursor out for a command. One that is out already is
    /// [`Status::COMMAND_INTERRUPTED`]: the host may try again.
    pub fn take(&self, iterator: u32) -> Result<C, Status> {
        self.with_slot(iterator, |_, slot| match std::mem::replace(slot, Slot::Busy) {
            Slot::Open(cursor) => Ok(cursor),
            Slot::Free | Slot::Busy => unreachable!("with_slot hands out open slots only"),
        })
    }

    /// Puts a cursor back after [`Iterators::take`].
    pub fn put_back(&self, iterator: u32, cursor: C) {
        let index = (iterator & ((1 << SLOT_BITS) - 1)) as usize;
        self.slots.borrow_mut()[index].1 = Slot::Open(cursor);
    }

    /// Closes an open iterator.
    pub fn close(&self, iterator: u32) -> Result<(), Status> {
        self.with_slot(iterator, |generation, slot| {
            *slot = Slot::Free;
            *generation = generation.wrapping_add(1) & (u32::MAX >> SLOT_BITS);
            Ok(())
        })
    }
}
