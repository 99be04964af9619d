//! Memory for the data of commands, within a budget.
//!
//! A [`Budget`] gives out [`Buffer`]s of up to a fixed size and takes them back when they are dropped, wherever
//! that happens. It never has more under way than its limit; who gets none has to wait. Memory that came back
//! is kept for the next one, so that a command allocates nothing once the first ones are through.
//!
//! Not here: who waits, and in which order.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// Smallest size of memory behind a buffer, and the unit in which the budget counts.
const UNIT_BYTES: usize = 4096;

struct Pool {
    limit_bytes: usize,
    used_bytes: Cell<usize>,
    /// By size: `UNIT_BYTES << index`.
    spare: RefCell<Vec<Vec<Vec<u8>>>>,
    spare_bytes: Cell<usize>,
}

/// Gives out buffers.
#[derive(Clone)]
pub struct Budget(Rc<Pool>);

/// Some bytes of a budget. Its content is what the last user left, until it is written.
pub struct Buffer {
    memory: Vec<u8>,
    bytes: usize,
    pool: Option<Rc<Pool>>,
}

/// Memory behind a buffer of `bytes`, and which size that is.
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

    /// Bytes given out and not come back, in the memory that they take.
    pub fn used_bytes(&self) -> usize {
        self.0.used_bytes.get()
    }

    /// The most that can be given out.
    pub fn limit_bytes(&self) -> usize {
        self.0.limit_bytes
    }

    /// A buffer of `bytes`; `None` while too much is under way. One of none is always there.
    pub fn take(&self, bytes: usize) -> Option<Buffer> {
        if bytes == 0 {
            return Some(Buffer::empty());
        }
        let (class, memory_bytes) = class(bytes);
        let used_bytes = self.used_bytes().checked_add(memory_bytes)?;
        if used_bytes > self.0.limit_bytes {
            return None;
        }
        self.0.used_bytes.set(used_bytes);
        let mut spare = self.0.spare.borrow_mut();
        let memory = match spare.get_mut(class).and_then(Vec::pop) {
            Some(memory) => {
                self.0.spare_bytes.set(self.0.spare_bytes.get() - memory_bytes);
                memory
            }
            None => vec![0; memory_bytes],
        };
        // Given out and kept together stay within the limit too: memory of another size goes first.
        while self.0.spare_bytes.get() + used_bytes > self.0.limit_bytes {
            let Some((class, kept)) = spare.iter_mut().enumerate().rev().find(|(_, kept)| !kept.is_empty())
            else {
                break;
            };
            kept.pop();
            self.0.spare_bytes.set(self.0.spare_bytes.get() - (UNIT_BYTES << class));
        }
        drop(spare);
        Some(Buffer { memory, bytes, pool: Some(self.0.clone()) })
    }
}

impl Buffer {
    /// A buffer without bytes, of no budget.
    pub fn empty() -> Buffer {
        Buffer { memory: Vec::new(), bytes: 0, pool: None }
    }
}

impl Buffer {
    /// All of its memory, if that is no more than its bytes: for whoever takes the bytes away and brings memory
    /// of the same size back.
    pub(crate) fn whole_memory(&mut self) -> Option<&mut Vec<u8>> {
        (self.bytes == self.memory.len() && self.bytes > 0).then_some(&mut self.memory)
    }

    /// Memory to be brought back into.
    pub(crate) fn lent_memory(&mut self) -> &mut Vec<u8> {
        &mut self.memory
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.bytes]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.bytes]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(pool) = self.pool.take() else { return };
        let memory = std::mem::take(&mut self.memory);
        let (class, memory_bytes) = class(memory.len());
        pool.used_bytes.set(pool.used_bytes.get() - memory_bytes);
        let mut spare = pool.spare.borrow_mut();
        if spare.len() <= class {
            spare.resize_with(class + 1, Vec::new);
        }
        spare[class].push(memory);
        pool.spare_bytes.set(pool.spare_bytes.get() + memory_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_out_and_kept_stays_within_the_limit_and_comes_back() {
        let budget = Budget::new(64 << 10);
        let small: Vec<Buffer> = (0..16).map(|_| budget.take(1).unwrap()).collect();
        assert_eq!(budget.used_bytes(), 64 << 10);
        assert!(budget.take(1).is_none() && budget.take(0).is_some());
        drop(small);
        assert_eq!(budget.used_bytes(), 0);
        let large = budget.take(60 << 10).unwrap();
        assert_eq!((large.len(), budget.used_bytes()), (60 << 10, 64 << 10));
        assert_eq!(budget.0.spare_bytes.get(), 0, "the small ones made room");
    }
}
