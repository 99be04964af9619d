//! Windows: parts of the drive's page buffer that a host stores into by CXL.mem, and the fields of commands
//! and completions that describe them. (BandSlim's CXL article names the parts; where it is silent, fields
//! and rules are kvdrive's.)
//!
//! A window belongs to one queue. Its *generation* is a number that no other window has, not even a later one
//! over the same memory; 0 means no window. The bytes of window `g` lie at addresses `g * window size ..` of
//! the port, so a store that arrives too late for its window hits nothing.
//!
//! ```text
//!   command                    dword 12                 dword 13
//!   CXL store                  offset of the value      generation
//!   CXL store, dword 12 = ASK  -                        generation the host has, 0 if none
//!   Store (by PRP), a grant    offset                   generation
//!
//!   completion                 dword 0                  dword 1
//!   of CXL store, success      write pointer            generation of the window to use from now on
//!   of CXL store, 7D3h         write pointer            generation of the window to use from now on
//!   of Store, DMA log entry    offset of the value      generation; 0: it did not go into the window
//! ```
//!
//! The write pointer is the first byte after everything in that window. A *grant* says that the host will not
//! store at or after this offset before the command has completed: the drive may put the value there, at a 4
//! KiB boundary. A command that is refused has used no bytes of a window.

use zerocopy::little_endian::U32;

use crate::sqe::Sqe;

/// Offset of a CXL store that carries no value but asks for another window.
pub const ASK: u32 = u32::MAX;
/// The generation that means no window.
pub const NO_WINDOW: u32 = 0;

/// Where a drive may put the value of a Store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Generation of the window.
    pub generation: u32,
    /// First offset that may be used.
    pub from: u32,
}

impl Grant {
    /// The grant in a Store; `None` if there is none.
    #[inline]
    #[must_use]
    pub fn of(sqe: &Sqe) -> Option<Grant> {
        let generation = sqe.cdw13.get();
        (generation != NO_WINDOW).then(|| Grant { generation, from: sqe.cdw12.get() })
    }

    /// Puts the grant into a Store.
    #[inline]
    pub fn put(self, sqe: &mut Sqe) {
        sqe.cdw12 = U32::new(self.from);
        sqe.cdw13 = U32::new(self.generation);
    }
}
