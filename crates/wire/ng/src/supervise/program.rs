//! The memory of a supervised program, as the answer to one of its calls sees it: it is read as long as the call waits,
//! and what is written is kept until all of it is known.
//!
//! ```text
//!   read  ─► the system copies ─► does the call still wait? ─► bytes, or ESRCH
//!   write ─► kept ─► deliver: does the call still wait? ─► the system copies, piece by piece
//! ```
//!
//! Between the last look and the copy a signal may come all the same; where the system waits killable, only one that ends
//! the thread.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::kernel;
use crate::memory::Memory;

/// Bytes and their address in the program.
pub(super) type Piece = (u64, Vec<u8>);

/// The memory behind a call.
pub(super) struct Program<'a> {
    /// The thread that made the call.
    thread: i32,
    listener: &'a OwnedFd,
    id: u64,
    /// What was read, if it is to be compared with what a later call would read.
    read: Option<RefCell<Vec<Piece>>>,
    kept: RefCell<Vec<Piece>>,
    is_gone: Cell<bool>,
}

impl<'a> Program<'a> {
    /// That of the call `id` of `thread`.
    pub fn new(thread: i32, listener: &'a OwnedFd, id: u64, remembers: bool) -> Program<'a> {
        let read = remembers.then(RefCell::default);
        Program { thread, listener, id, read, kept: RefCell::default(), is_gone: Cell::new(false) }
    }

    /// Did the call end before all that it reads was read? Then nothing was carried out.
    pub fn is_gone(&self) -> bool {
        self.is_gone.get()
    }

    /// Does the thread still wait for the answer?
    pub fn still_waits(&self) -> bool {
        kernel::still_waits(self.listener, self.id)
    }

    /// The bytes that were read, and those that are to be written.
    pub fn pieces(&self) -> (Vec<Piece>, Vec<Piece>) {
        let read = self.read.as_ref().map(RefCell::take).unwrap_or_default();
        (read, self.kept.borrow().clone())
    }

    /// Does the program have these bytes at these places, except where `written` may have changed them?
    pub fn has(&self, read: &[Piece], written: &[Piece]) -> bool {
        read.iter().all(|(address, bytes)| {
            let mut now = vec![0; bytes.len()];
            if self.copy(*address, &mut now).is_err() {
                return false;
            }
            let is_written =
                |at: u64| written.iter().any(|(from, bytes)| at.wrapping_sub(*from) < bytes.len() as u64);
            let differ = (0..bytes.len()).filter(|at| now[*at] != bytes[*at]);
            differ.into_iter().all(|at| is_written(address.wrapping_add(at as u64)))
        })
    }

    /// Keeps the bytes that an earlier call was to write.
    pub fn adopt(&self, pieces: &[Piece]) {
        self.kept.replace(pieces.to_vec());
    }

    /// Writes what was kept.
    ///
    /// # Errors
    /// EFAULT: there is no such memory. ESRCH: the call does not wait any more.
    pub fn deliver(&self) -> Result<(), Errno> {
        for (address, bytes) in &*self.kept.borrow() {
            if !self.still_waits() {
                return Err(Errno::SRCH);
            }
            kernel::write_memory(self.thread, *address, bytes)?;
        }
        Ok(())
    }

    fn copy(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        let copied = kernel::read_memory(self.thread, address, into);
        if self.still_waits() {
            return copied;
        }
        self.is_gone.set(true);
        Err(Errno::SRCH)
    }
}

impl Memory for Program<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.copy(address, into)?;
        if let Some(read) = &self.read {
            read.borrow_mut().push((address, into.to_vec()));
        }
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        self.kept.borrow_mut().push((address, from.to_vec()));
        Ok(())
    }

    /// Checks only whether both ends can be read, because the system has no call for more.
    fn expect(&self, address: u64, bytes: u64) -> Result<(), Errno> {
        let last = bytes.checked_sub(1).and_then(|last| address.checked_add(last)).ok_or(Errno::FAULT)?;
        self.copy(address, &mut [0])?;
        self.copy(last, &mut [0])
    }
}
