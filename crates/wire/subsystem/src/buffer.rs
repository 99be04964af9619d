//! Memory for the data of commands, within a budget of which each host has a share.
//!
//! A [`Budget`] lends [`Buffer`]s through [`Share`]s; dropping a buffer, on any path, returns its memory. The
//! budget never lends more than its limit, except one buffer ([`Share::take_apart`]). [`crate::sharing`] decides which share gets what.
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
use std::rc::{Rc, Weak};

pub use crate::sharing::NoBuffer;
use crate::sharing::{Common, Holding, Reserves, grant};

/// Smallest size of a buffer's memory, and the unit in which the budget counts.
pub(crate) const UNIT_BYTES: usize = 4096;

struct Pool {
    limit_bytes: usize,
    used_bytes: Cell<usize>,
    reserves: Reserves,
    /// Memory beyond reserves that is lent.
    common_used_bytes: Cell<usize>,
    is_short: Cell<bool>,
    /// A buffer of [`Share::take_apart`] is lent.
    is_apart_lent: Cell<bool>,
    /// Every share that is in use.
    parts: RefCell<Vec<Weak<Part>>>,
    /// How many of them are waited for.
    awaited: Cell<usize>,
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
    reserve_bytes: usize,
    used_bytes: Cell<usize>,
    /// Those who wait for memory of this share.
    waiting: Cell<usize>,
}

impl Part {
    fn holding(&self) -> Holding {
        let (reserve_bytes, used_bytes) = (self.reserve_bytes, self.used_bytes.get());
        Holding { reserve_bytes, used_bytes, wants: self.waiting.get() > 0 }
    }

    /// Counts memory that is lent to the share, or (negative) returned.
    fn count(&self, by: isize) {
        let before = self.holding().common_bytes();
        let add = |cell: &Cell<usize>| cell.set(cell.get().checked_add_signed(by).expect("it was lent"));
        add(&self.used_bytes);
        add(&self.pool.used_bytes);
        let common = &self.pool.common_used_bytes;
        common.set(common.get() + self.holding().common_bytes() - before);
    }
}

/// Counts as one who waits for memory of a share, until it is dropped.
pub struct Wait(Rc<Part>);

impl Drop for Wait {
    fn drop(&mut self) {
        let (waiting, awaited) = (&self.0.waiting, &self.0.pool.awaited);
        waiting.set(waiting.get() - 1);
        awaited.set(awaited.get() - usize::from(waiting.get() == 0));
    }
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
    /// Is it the one that is lent beyond the limit?
    is_apart: bool,
    part: Option<Rc<Part>>,
}

/// The size of the memory of a buffer of `bytes`, and the index of that size.
fn class(bytes: usize) -> (usize, usize) {
    let units = bytes.div_ceil(UNIT_BYTES).next_power_of_two();
    (units.trailing_zeros() as usize, units * UNIT_BYTES)
}

impl Budget {
    /// A budget of `limit_bytes`, of which these reserves are a part.
    pub fn new(limit_bytes: usize, reserves: Reserves) -> Budget {
        assert!(reserves.bytes * reserves.count <= limit_bytes, "reserves are a part of the budget");
        Budget(Rc::new(Pool {
            limit_bytes,
            used_bytes: Cell::new(0),
            reserves,
            common_used_bytes: Cell::new(0),
            is_short: Cell::new(false),
            is_apart_lent: Cell::new(false),
            parts: RefCell::default(),
            awaited: Cell::new(0),
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

    /// How many shares can have a reserve.
    pub fn reserves(&self) -> usize {
        self.0.reserves.count
    }

    /// A new share. Whoever takes reserves counts them ([`Budget::reserves`]).
    pub fn share(&self, has_reserve: bool) -> Share {
        let pool = self.0.clone();
        let reserve_bytes = if has_reserve { pool.reserves.bytes } else { 0 };
        let part = Rc::new(Part { pool, reserve_bytes, used_bytes: Cell::new(0), waiting: Cell::new(0) });
        let mut parts = self.0.parts.borrow_mut();
        parts.retain(|part| part.strong_count() > 0);
        parts.push(Rc::downgrade(&part));
        Share(part)
    }

    /// Memory has come back: it is for everybody again, until a share needs more than is free.
    pub fn note_returned(&self) {
        self.0.is_short.set(false);
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
        let pool = &self.0.pool;
        let (class, memory_bytes) = class(bytes);
        let common = Common {
            bytes: pool.limit_bytes - pool.reserves.bytes * pool.reserves.count,
            used_bytes: pool.common_used_bytes.get(),
            is_short: pool.is_short.get(),
        };
        // Nobody else's wish matters as long as nobody else waits.
        let parts = pool.parts.borrow();
        let parts = if self.others_wait() { &parts[..] } else { &[] };
        let others = parts.iter().filter_map(Weak::upgrade);
        let others = others.filter(|part| !Rc::ptr_eq(part, &self.0)).map(|part| part.holding());
        match grant(common, self.0.holding(), memory_bytes, others) {
            Ok(_) => self.0.count(memory_bytes as isize),
            Err(refused) => {
                pool.is_short.set(pool.is_short.get() || refused == NoBuffer::NoRoom);
                return Err(refused);
            }
        }
        Ok(self.unfilled(bytes, class))
    }

    /// A buffer of `bytes` beyond the limit, for a command whose data cannot be divided: one at a time is lent, to a share
    /// that holds nothing, so that every such command has its turn whatever others hold. Its bytes count as those of any
    /// other buffer.
    ///
    /// # Errors
    /// The share holds something, or this buffer is lent.
    pub fn take_apart(&self, bytes: usize) -> Result<Buffer, NoBuffer> {
        let is_lent = &self.0.pool.is_apart_lent;
        if self.used_bytes() > 0 || is_lent.get() {
            return Err(NoBuffer::NoRoom);
        }
        is_lent.set(true);
        let (class, memory_bytes) = class(bytes);
        self.0.count(memory_bytes as isize);
        let mut buffer = self.unfilled(bytes, class);
        buffer.is_apart = true;
        buffer.fill_room();
        Ok(buffer)
    }

    /// A buffer of this share whose bytes are counted, and which has no memory yet.
    fn unfilled(&self, bytes: usize, class: usize) -> Buffer {
        let part = Some(self.0.clone());
        Buffer { memory: Vec::new(), bytes, class, is_given: false, is_apart: false, part }
    }

    /// Bytes lent to this share.
    pub fn used_bytes(&self) -> usize {
        self.0.used_bytes.get()
    }

    /// Most bytes that it gets whatever others hold.
    pub fn reserve_bytes(&self) -> usize {
        self.0.reserve_bytes
    }

    /// Counts one more who waits for memory of this share.
    pub fn wait(&self) -> Wait {
        let Part { waiting, pool, .. } = &*self.0;
        pool.awaited.set(pool.awaited.get() + usize::from(waiting.get() == 0));
        waiting.set(waiting.get() + 1);
        Wait(self.0.clone())
    }

    fn others_wait(&self) -> bool {
        self.0.pool.awaited.get() > usize::from(self.is_awaited())
    }

    /// Does a share that holds less memory than this one wait for more?
    pub fn keeps_others_waiting(&self) -> bool {
        let own_bytes = self.used_bytes();
        let poorer = |part: &Weak<Part>| {
            let holding = part.upgrade().map(|part| part.holding());
            holding.is_some_and(|holding| holding.wants && holding.used_bytes < own_bytes)
        };
        own_bytes > 0 && self.others_wait() && self.0.pool.parts.borrow().iter().any(poorer)
    }

    /// Does anybody wait for memory of this share?
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
        Buffer { memory: Vec::new(), bytes: 0, class: 0, is_given: false, is_apart: false, part: None }
    }

    /// A buffer that belongs to no budget: for data of which something else limits how many there are.
    pub(crate) fn unbudgeted(bytes: usize) -> Buffer {
        Buffer { memory: vec![0; bytes], bytes, class: 0, is_given: false, is_apart: false, part: None }
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
            part.count(memory_bytes as isize - (UNIT_BYTES << self.class) as isize);
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
        if self.is_apart {
            part.pool.is_apart_lent.set(false);
        }
        part.count(-((UNIT_BYTES << self.class) as isize));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A budget with two reserves of 4 KiB, or of none.
    fn budget(limit_bytes: usize, has_reserves: bool) -> Budget {
        Budget::new(limit_bytes, Reserves { bytes: UNIT_BYTES, count: if has_reserves { 2 } else { 0 } })
    }

    #[test]
    fn what_is_lent_and_kept_stays_within_the_limit_and_comes_back() {
        let budget = budget(64 << 10, false);
        let small: Vec<Buffer> = (0..16).map(|_| budget.share(false).take(1).unwrap()).collect();
        assert_eq!(budget.used_bytes(), 64 << 10);
        let other = budget.share(false);
        assert_eq!(other.take(1).err(), Some(NoBuffer::NoRoom));
        assert!(other.take(0).is_ok());
        drop(small);
        budget.note_returned();
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
    fn hosts_have_equal_parts_whoever_came_first() {
        let budget = budget(122 * 4096, true);
        let hosts = [budget.share(true), budget.share(true)];
        let mut first = all(&hosts[0]);
        assert_eq!(first.len(), 121, "all but the other's reserve");
        let reserve = all(&hosts[1]);
        assert_eq!(reserve.len(), 1);
        let waits = hosts.each_ref().map(Share::wait);
        assert!(hosts[0].keeps_others_waiting() && !hosts[1].keeps_others_waiting());
        // Whatever the first returns goes to the second until both have the same.
        let mut second = Vec::new();
        while first.pop().is_some() && hosts[0].take(1).is_err() {
            budget.note_returned();
            second.extend(hosts[1].take(1));
        }
        assert_eq!((first.len(), second.len() + reserve.len()), (60, 61));
        drop(waits);
        assert!(hosts[1].take(4096).is_ok(), "nobody waits any more");
    }

    #[test]
    fn memory_that_is_short_is_kept_for_the_one_that_waits_and_reserves_stay() {
        let budget = budget(18 * 4096, true);
        let (rich, poor) = (budget.share(true), budget.share(true));
        let mut held = all(&rich);
        assert_eq!(poor.take(8 * 4096).err(), Some(NoBuffer::NoRoom));
        let _wait = poor.wait();
        held.truncate(14);
        assert_eq!(rich.take(1).err(), Some(NoBuffer::OverShare), "what came back is not for the first");
        assert!(poor.take(4096).is_ok());
        held.truncate(10);
        budget.note_returned();
        assert!(poor.take(8 * 4096).is_ok());
    }

    #[test]
    fn an_answer_in_the_memory_of_a_longer_one_counts_as_that_memory() {
        let budget = budget(4 << 20, false);
        let share = budget.share(false);
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
        let budget = budget(4 << 20, false);
        let share = budget.share(false);
        let mut written = share.room(1 << 20).unwrap();
        let mut given = share.room(1 << 20).unwrap();
        assert_eq!((written.len(), budget.used_bytes(), share.used_bytes()), (1 << 20, 2 << 20, 2 << 20));
        assert_eq!((&*written, &*given), (&[][..], &[][..]), "no memory yet");
        assert_eq!(share.room(4 << 20).map(|_| ()), Err(NoBuffer::OverShare));
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
        let budget = budget(64 << 10, false);
        let share = budget.share(false);
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
