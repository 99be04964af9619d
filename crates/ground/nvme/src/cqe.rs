//! The completion queue entry: 16 bytes.
//!
//! ```text
//!  byte   0        4        8        10       12      14
//!       +--------+--------+--------+--------+-------+--------+
//!       |  DW0   |  DW1   |  SQHD  |  SQID  |  CID  | status |
//!       +--------+--------+--------+--------+-------+--------+
//!
//!  status   15    14    13:12   11:9   8:1    0
//!         +-----+------+-----+-------+------+-------+
//!         | DNR | more | CRD |  SCT  |  SC  | phase |
//!         +-----+------+-----+-------+------+-------+
//! ```
//!
//! The meaning of DW0 and DW1 depends on the command:
//!
//! | command | DW0 | DW1 |
//! |---|---|---|
//! | Retrieve | full size of the value in bytes, also when the buffer was smaller | 0 |
//! | List | number of keys returned | 0 |
//! | SEEK, NEXT | full size of the answer in bytes ([`crate::iter`]); 0: no pair left | number of the iterator |
//! | batch | requests applied, in order, whatever the status ([`crate::batch`]) | 0 |
//! | CXL store, Store with a grant | see [`crate::window`] | |
//! | others | 0 | 0 |
//!
//! Not here: the ring of entries, and the toggling of the phase.

use bitfield_struct::bitfield;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute, transmute_ref};

use crate::status::Status;

/// The last two bytes of an entry.
#[bitfield(u16)]
struct StatusField {
    phase: bool,
    sc: u8,
    #[bits(3)]
    sct: u8,
    #[bits(2)]
    command_retry_delay: u8,
    more: bool,
    do_not_retry: bool,
}

/// A completion queue entry as it lies in host memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cqe {
    /// Command specific; see the module.
    pub dw0: U32,
    /// Command specific; see the module.
    pub dw1: U32,
    /// Submission queue head: how far the controller has fetched.
    pub sqhd: U16,
    /// Submission queue identifier.
    pub sqid: U16,
    /// The identifier the host gave the command.
    pub cid: U16,
    status_field: U16,
}

impl Cqe {
    /// Size in bytes.
    pub const BYTES: usize = 16;

    /// The completion of command `cid` with `status`, phase 0, all other fields 0. "Do not retry" follows
    /// from the status.
    #[inline]
    #[must_use]
    pub fn new(cid: u16, status: Status) -> Cqe {
        let field = StatusField::new()
            .with_sc(status.sc())
            .with_sct(status.sct())
            .with_do_not_retry(status.do_not_retry());
        Cqe {
            dw0: U32::ZERO,
            dw1: U32::ZERO,
            sqhd: U16::ZERO,
            sqid: U16::ZERO,
            cid: U16::new(cid),
            status_field: U16::new(field.into_bits()),
        }
    }

    /// Sets the command's result in DW0 and DW1.
    #[inline]
    #[must_use]
    pub fn with_result(mut self, dw0: u32, dw1: u32) -> Cqe {
        self.dw0 = U32::new(dw0);
        self.dw1 = U32::new(dw1);
        self
    }

    /// Sets the submission queue that is answered, and that queue's head.
    #[inline]
    #[must_use]
    pub fn with_queue(mut self, sqid: u16, sqhd: u16) -> Cqe {
        self.sqid = U16::new(sqid);
        self.sqhd = U16::new(sqhd);
        self
    }

    /// Sets the phase bit.
    #[inline]
    #[must_use]
    pub fn with_phase(mut self, phase: bool) -> Cqe {
        self.status_field = U16::new(self.field().with_phase(phase).into_bits());
        self
    }

    /// Status code type and status code.
    #[inline]
    #[must_use]
    pub fn status(&self) -> Status {
        let field = self.field();
        Status::new(field.sct(), field.sc())
    }

    /// Phase bit: it toggles with every pass over the ring, so that the host recognises new entries.
    #[inline]
    #[must_use]
    pub fn phase(&self) -> bool {
        self.field().phase()
    }

    /// "Do not retry": the same command would fail again.
    #[inline]
    #[must_use]
    pub fn do_not_retry(&self) -> bool {
        self.field().do_not_retry()
    }

    /// The 16 bytes as they lie in memory.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        transmute_ref!(self)
    }

    /// The entry in these 16 bytes. Any bytes are an entry.
    #[inline]
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Cqe {
        transmute!(bytes)
    }

    #[inline]
    fn field(&self) -> StatusField {
        StatusField::from_bits(self.status_field.get())
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Cqe>() == Cqe::BYTES);
    assert!(offset_of!(Cqe, dw1) == 4);
    assert!(offset_of!(Cqe, sqhd) == 8);
    assert!(offset_of!(Cqe, sqid) == 10);
    assert!(offset_of!(Cqe, cid) == 12);
    assert!(offset_of!(Cqe, status_field) == 14);
};
