//! Memory for the data of commands, within a budget of which each host has a share.
//!
//! A [`Budget`] lends [`Buffer`]s through [`Share`]s; dropping a buffer, on any path, returns its memory. The
//! budget never lends more than its limit, and never so much to one share that the others are left with less:
//!
//! ```text
//!   bytes lent to the share + bytes it asks for  <=  bytes free afterwards
//! ```
//!
//! A single host therefore gets at most one half, each of two hosts at most one third; with `n` hosts that
//! take all they can get, 1 / (n + 1) of the budget stays free for the next one. A share that holds nothing gets the
//! requested memory as long as that much is free.
//!
//! Returned memory is kept for the next commands. [`Budget::trim`] gives memory that was not needed for a
//! while back to the system.
//!
//! Room for an answer ([`Share::room`]) counts in full, but memory is allocated only when something is written there. A
//! host that does not know the length of a value leaves room for the longest, and most answers bring memory of their
//! own ([`Buffer::give`]).
//!
//! Not here: which commands wait, and in which order.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// Smallest size of a buffer's memory, and the unit in which the budget counts.
const UNIT_BYTES: usize = 4096;

struct Pool {
    limit_bytes: usize,
    used_bytes: Cell<usize>,
    /// Free memory by size; that of an index is `UNIT_BYTES << index`.
    spare: RefCell<Vec<Spare>>,
    spare_bytes: Cell<usize>,
}

/// Free memory of one size.
#[derive(Default)]
struct Spare {
    kept: Vec<Vec<u8>>,
    /// The smallest number of free pieces since the last trim: that many were not needed.
    least: usize,
}

/// Memory that is lent in buffers, up to a limit.
#[derive(Clone)]
pub struct Budget(Rc<Pool>);

/// The part of a budget that one host may use. Clones are the same share.
#[derive(Clone)]
pub struct Share(Rc<Part>);

struct Part {
    pool: Rc<Pool>,
    used_bytes: Cell<usize>,
    /// Connections of the host that wait for memory.
    waiting: Cell<usize>,
}

/// Why a share gets no buffer at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoBuffer {
    /// The share has its full part: some of its own buffers have to be returned first.
    OverShare,
    /// All shares together have taken too much memory.
    NoRoom,
}

/// Memory from a budget. Until it is written, it has the bytes that its previous user left.
pub struct Buffer {
    /// Empty until something is written.
    memory: Vec<u8>,
    bytes: usize,
    /// Index of the size that the budget counts.
    class: usize,
    /// Did an answer bring this memory? Then it may have any length.
    is_given: bool,
    part: Option<Rc<Part>>,
}

/// The size of the memory of a buffer of `bytes`, and the index of that size.
fn class(bytes: usize) -> (usize, usize) {
    let units = bytes.div_ceil(UNIT_BYTES).next_power_of_two();
    (units.trailing_zeros() as usize, units * UNIT_BYTES)
}

impl Budget {
    /// A budget of `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Budget {
        Budget(Rc::new(Pool {
            limit_bytes,
            used_bytes: Cell::new(0),
            spare: RefCell::default(),
            spare_bytes: Cell::new(0),
        }))
    }

    /// Bytes that are lent, counted as the memory of the buffers.
    pub fn used_bytes(&self) -> usize {
        self.0.used_bytes.get()
    }

    /// Bytes that are kept free for the next commands.
    pub fn spare_bytes(&self) -> usize {
        self.0.spare_bytes.get()
    }

    /// Limit of the bytes that can be lent.
    pub fn limit_bytes(&self) -> usize {
        self.0.limit_bytes
    }

    /// A new share, for a host that has none.
    pub fn share(&self) -> Share {
        Share(Rc::new(Part { pool: self.0.clone(), used_bytes: Cell::new(0), waiting: Cell::new(0) }))
    }

    /// Returns memory to the system that was not needed since the last call.
    pub fn trim(&self) {
        for (class, spare) in self.0.spare.borrow_mut().iter_mut().enumerate() {
            spare.kept.truncate(spare.kept.len() - spare.least);
            self.0.spare_bytes.set(self.0.spare_bytes.get() - spare.least * (UNIT_BYTES << class));
            spare.least = spare.kept.len();
        }
    }
}

impl Pool {
    /// Takes memory of one size from the free list, or allocates it.
    fn memory(&self, class: usize) -> Vec<u8> {
        let mut spare = self.spare.borrow_mut();
        let kept = spare.get_mut(class).and_then(|spare| {
            let memory = spare.kept.pop();
            spare.least = spare.least.min(spare.kept.len());
            memory
        });
        let Some(memory) = kept else { return vec![0; UNIT_BYTES << class] };
        self.spare_bytes.set(self.spare_bytes.get() - memory.len());
        memory
    }

    /// Frees unused memory, the largest size first, until lent and unused memory together are within the
    /// limit.
    fn drop_spare(&self) {
        let mut spare = self.spare.borrow_mut();
        while self.spare_bytes.get() + self.used_bytes.get() > self.limit_bytes {
            let Some(of) = spare.iter_mut().rev().find(|of| !of.kept.is_empty()) else { return };
            let bytes = of.kept.pop().map_or(0, |memory| memory.len());
            of.least = of.least.min(of.kept.len());
            self.spare_bytes.set(self.spare_bytes.get() - bytes);
        }
    }
}

impl Share {
    /// A buffer of `bytes`; a request for 0 bytes always succeeds.
    ///
    /// # Errors
    /// The reason why the share gets none at present.
    pub fn take(&self, bytes: usize) -> Result<Buffer, NoBuffer> {
        let mut buffer = self.room(bytes)?;
        buffer.fill_room();
        Ok(buffer)
    }

    /// As [`Share::take`], for an answer: it counts like a buffer, and takes memory when it is first written to.
    ///
    /// # Errors
    /// As [`Share::take`].
    pub fn room(&self, bytes: usize) -> Result<Buffer, NoBuffer> {
        if bytes == 0 {
            return Ok(Buffer::empty());
        }
        let Part { pool, used_bytes, .. } = &*self.0;
        let (class, memory_bytes) = class(bytes);
        let free_bytes = pool.limit_bytes - pool.used_bytes.get();
        let left_bytes = free_bytes.checked_sub(memory_bytes);
        if used_bytes.get() > 0 && left_bytes.is_none_or(|left| used_bytes.get() + memory_bytes > left) {
            return Err(NoBuffer::OverShare);
        }
        if left_bytes.is_none() {
            return Err(NoBuffer::NoRoom);
        }
        pool.used_bytes.set(pool.used_bytes.get() + memory_bytes);
        used_bytes.set(used_bytes.get() + memory_bytes);
        Ok(Buffer { memory: Vec::new(), bytes, class, is_given: false, part: Some(self.0.clone()) })
    }

    /// Bytes lent to this share.
    pub fn used_bytes(&self) -> usize {
        self.0.used_bytes.get()
    }

    /// Counts a connection that begins (or ceases) to wait for memory of this share.
    pub fn note_waiting(&self, waits: bool) {
        let waiting = self.0.waiting.get();
        self.0.waiting.set(if waits { waiting + 1 } else { waiting - 1 });
    }

    /// Does a connection wait for memory of this share?
    pub fn is_awaited(&self) -> bool {
        self.0.waiting.get() > 0
    }

    /// Is the share also in use by another connection or buffer than the caller?
    pub fn is_shared(&self) -> bool {
        Rc::strong_count(&self.0) > 1
    }
}

impl Buffer {
    /// A buffer of 0 bytes that belongs to no budget.
    pub fn empty() -> Buffer {
        Buffer { memory: Vec::new(), bytes: 0, class: 0, is_given: false, part: None }
    }

    /// Its size, or the room that it is.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Has it no byte?
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Allocates the memory for which it is charged, if it has none yet.
    fn fill_room(&mut self) {
        if let (Some(part), true) = (&self.part, self.memory.is_empty()) {
            self.memory = part.pool.memory(self.class);
            part.pool.drop_spare();
        }
    }

    /// Replaces the buffer's memory and content by `memory`, which must not be larger than its room. From now on the
    /// buffer counts with the size of that memory.
    pub(crate) fn give(&mut self, mut memory: Vec<u8>) {
        assert!(memory.len() <= self.bytes, "an answer has no more than its room");
        self.return_memory();
        // A short answer may come in memory of a larger capacity. All capacity counts, so capacity beyond the room is
        // given back.
        memory.shrink_to(UNIT_BYTES << self.class);
        let (class, memory_bytes) = class(memory.capacity().max(1));
        if let Some(part) = &self.part {
            let less_bytes = (UNIT_BYTES << self.class) - memory_bytes;
            part.used_bytes.set(part.used_bytes.get() - less_bytes);
            part.pool.used_bytes.set(part.pool.used_bytes.get() - less_bytes);
        }
        (self.memory, self.class, self.is_given) = (memory, class, true);
    }

    /// Gives its memory back for the next commands; memory that came with an answer is freed instead, since each
    /// answer brings its own and they would pile up.
    fn return_memory(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        let (Some(part), false) = (&self.part, memory.is_empty() || self.is_given) else { return };
        let (class, memory_bytes) = (self.class, memory.len());
        let mut spare = part.pool.spare.borrow_mut();
        if spare.len() <= class {
            spare.resize_with(class + 1, Spare::default);
        }
        spare[class].kept.push(memory);
        part.pool.spare_bytes.set(part.pool.spare_bytes.get() + memory_bytes);
    }

    /// Zeroes the bytes from `from` to `to`, which it has room for.
    pub(crate) fn zero(&mut self, from: usize, to: usize) {
        if self.memory.len() < to {
            self.memory.resize(to, 0);
        }
        self.memory[from..to].fill(0);
    }

    /// All memory of the buffer, if that is no more than its bytes: for a caller that takes the memory
    /// away and later returns memory of the same size.
    pub(crate) fn whole_memory(&mut self) -> Option<&mut Vec<u8>> {
        (self.bytes == self.memory.len() && self.bytes > 0).then_some(&mut self.memory)
    }

    /// The place into which a caller of [`Buffer::whole_memory`] returns memory.
    pub(crate) fn lent_memory(&mut self) -> &mut Vec<u8> {
        &mut self.memory
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.bytes.min(self.memory.len())]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.fill_room();
        let bytes = self.bytes.min(self.memory.len());
        &mut self.memory[..bytes]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.return_memory();
        let Some(part) = self.part.take() else { return };
        let memory_bytes = UNIT_BYTES << self.class;
        part.used_bytes.set(part.used_bytes.get() - memory_bytes);
        part.pool.used_bytes.set(part.pool.used_bytes.get() - memory_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_and_kept_stays_within_the_limit_and_comes_back() {
        let budget = Budget::new(64 << 10);
        let small: Vec<Buffer> = (0..16).map(|_| budget.share().take(1).unwrap()).collect();
        assert_eq!(budget.used_bytes(), 64 << 10);
        let other = budget.share();
        assert_eq!(other.take(1).err(), Some(NoBuffer::NoRoom));
        assert!(other.take(0).is_ok());
        drop(small);
        assert_eq!((budget.used_bytes(), budget.spare_bytes()), (0, 64 << 10));
        let large = other.take(60 << 10).unwrap();
        assert_eq!((large.len(), budget.used_bytes()), (60 << 10, 64 << 10));
        assert_eq!(budget.spare_bytes(), 0, "the small ones made room");
    }

    /// The buffers of a host that takes all it can get.
    fn all(share: &Share) -> Vec<Buffer> {
        std::iter::from_fn(|| share.take(4096).ok()).collect()
    }

    #[test]
    fn however_much_some_hosts_take_another_one_has_as_much() {
        let budget = Budget::new(120 * 4096);
        let hogs = [budget.share(), budget.share()];
        let first = all(&hogs[0]);
        assert_eq!(first.len(), 60, "a half");
        let second = all(&hogs[1]);
        assert_eq!(second.len(), 30, "as much as is free then");
        assert_eq!(hogs[0].take(1).err(), Some(NoBuffer::OverShare));
        let third = budget.share();
        assert!(third.take(30 * 4096).is_err(), "in memory, that is 32 units");
        assert_eq!(third.take(16 * 4096).map(|buffer| buffer.len()).ok(), Some(16 * 4096));
        drop(first);
        assert_eq!(all(&hogs[0]).len(), 45);
        drop(second);
    }

    #[test]
    fn an_answer_in_the_memory_of_a_longer_one_counts_as_that_memory() {
        let budget = Budget::new(4 << 20);
        let share = budget.share();
        let longer = || {
            let mut memory = Vec::with_capacity(64 << 10);
            memory.push(1);
            memory
        };
        let (mut much, mut little) = (share.room(1 << 20).unwrap(), share.room(100).unwrap());
        much.give(longer());
        assert_eq!(budget.used_bytes(), (64 << 10) + 4096);
        little.give(longer());
        assert_eq!((budget.used_bytes(), little.memory.capacity()), ((64 << 10) + 4096, 4096));
        drop((much, little));
        assert_eq!((budget.used_bytes(), share.used_bytes()), (0, 0));
    }

    #[test]
    fn room_counts_in_full_until_an_answer_brings_its_own_memory() {
        let budget = Budget::new(4 << 20);
        let share = budget.share();
        let mut written = share.room(1 << 20).unwrap();
        let mut given = share.room(1 << 20).unwrap();
        assert_eq!((written.len(), budget.used_bytes(), share.used_bytes()), (1 << 20, 2 << 20, 2 << 20));
        assert_eq!((&*written, &*given), (&[][..], &[][..]), "no memory yet");
        assert_eq!(share.room(1 << 20).map(|_| ()), Err(NoBuffer::OverShare));
        given.give(vec![7; 4097]);
        assert_eq!((&*given, given.len()), (&[7; 4097][..], 1 << 20));
        assert_eq!((budget.used_bytes(), share.used_bytes()), ((1 << 20) + 8192, (1 << 20) + 8192));
        given.zero(4097, 4100);
        assert_eq!(given[4096..], [7, 0, 0, 0]);
        written[5] = 1;
        assert_eq!((written.len(), written[5]), (1 << 20, 1));
        drop(given);
        assert_eq!((budget.used_bytes(), budget.spare_bytes()), (1 << 20, 0), "its own memory is not kept");
        drop(written);
        assert_eq!((budget.used_bytes(), share.used_bytes(), budget.spare_bytes()), (0, 0, 1 << 20));
        let mut with_memory = share.take(8192).unwrap();
        with_memory.give(vec![9; 3]);
        assert_eq!(
            (&*with_memory, budget.used_bytes(), budget.spare_bytes()),
            (&[9; 3][..], 4096, (1 << 20) + 8192)
        );
        drop(with_memory);
        let mut nothing = share.room(100).unwrap();
        nothing.give(Vec::new());
        assert_eq!((nothing.len(), budget.used_bytes()), (100, 4096));
    }

    #[test]
    fn memory_that_is_not_needed_goes_back_to_the_system() {
        let budget = Budget::new(64 << 10);
        let share = budget.share();
        let two = [share.take(4096), share.take(4096)];
        drop(two);
        budget.trim();
        assert_eq!(budget.spare_bytes(), 8192, "both were needed");
        drop(share.take(4096));
        budget.trim();
        assert_eq!(budget.spare_bytes(), 4096, "one was");
        budget.trim();
        assert_eq!(budget.spare_bytes(), 0);
        drop(share.take(4096));
        assert_eq!((budget.spare_bytes(), budget.used_bytes()), (4096, 0));
    }
}
