//! The submission queue entry: 64 bytes, sixteen dwords.
//!
//! ```text
//!  byte  dword
//!     0    0    opcode | flags | CID         flags: 7:6 PSDT, 5:3 reserved, 2 quiet (vendor), 1:0 FUSE
//!     4    1    NSID
//!     8   2,3   key bytes 0..7               (KV commands)
//!    16   4,5   metadata pointer             a key of more than 16 bytes, inline value in a *write*
//!    24   6,7   PRP1     \ data pointer:     two PRP entries, or one SGL descriptor:
//!    32   8,9   PRP2     /                     address (8), length (4), reserved (3), kind (1)
//!    40   10    value size, or buffer size   in bytes
//!    44   11    key length (1), option (1), reserved (2)
//!    48   12    command specific
//!    52   13    command specific
//!    56  14,15  key bytes 8..15              (KV commands)
//! ```
//!
//! Key bytes are in memory order: key byte 0 is the lowest byte of dword 2.
//!
//! This module knows fields and bytes; [`crate::command`] knows what a command means, and [`crate::inline`]
//! what a *write* or *transfer* carries. It walks no PRP or SGL list.

use bitfield_struct::bitfield;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute, transmute_mut, transmute_ref};

/// NSID of the namespace of pairs that a drive has, and its drivers address. A server gives it another number for hosts.
pub const DRIVE_NSID: u32 = 1;

use crate::key::Key;
use crate::status::Status;

/// Byte 1 of an entry.
#[bitfield(u8)]
struct Flags {
    #[bits(2)]
    fuse: u8,
    quiet: bool,
    #[bits(3)]
    __: u8,
    #[bits(2)]
    psdt: u8,
}

/// PRP or SGL for data transfer: flags bits 7:6, what bytes 24..40 are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Psdt {
    /// 00b: two PRP entries.
    Prp = 0b00,
    /// 01b: one SGL descriptor; metadata, if any, is one buffer. What Fabrics hosts send.
    Sgl = 0b01,
    /// 10b: one SGL descriptor; metadata by an SGL too. KV has no metadata: same as [`Psdt::Sgl`].
    SglMetadata = 0b10,
}

/// A submission queue entry as it lies in host memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Sqe {
    /// Opcode ([`crate::opcode`]).
    pub opcode: u8,
    /// FUSE in bits 1:0, quiet in bit 2, PSDT in bits 7:6.
    pub flags: u8,
    /// Command identifier, the host's choice, unique among a queue's outstanding commands.
    pub cid: U16,
    /// Namespace identifier.
    pub nsid: U32,
    /// Key bytes 0..3.
    pub cdw2: U32,
    /// Key bytes 4..7.
    pub cdw3: U32,
    /// Metadata pointer, low half.
    pub cdw4: U32,
    /// Metadata pointer, high half.
    pub cdw5: U32,
    /// Data pointer, first half: PRP entry 1, or the address of an SGL descriptor.
    pub prp1: U64,
    /// Data pointer, second half: PRP entry 2 (a page or a list), or length and kind of an SGL
    /// descriptor.
    pub prp2: U64,
    /// Value size or host buffer size in bytes.
    pub cdw10: U32,
    /// Key length in bits 7:0, option in bits 15:8.
    pub cdw11: U32,
    /// Command specific.
    pub cdw12: U32,
    /// Command specific.
    pub cdw13: U32,
    /// Key bytes 8..11.
    pub cdw14: U32,
    /// Key bytes 12..15.
    pub cdw15: U32,
}

impl Sqe {
    /// Size in bytes.
    pub const BYTES: usize = 64;

    /// An entry with these three fields; all others are zero.
    #[inline]
    #[must_use]
    pub fn new(opcode: u8, cid: u16, nsid: u32) -> Sqe {
        let mut sqe = Sqe::from_bytes([0; Self::BYTES]);
        sqe.opcode = opcode;
        sqe.cid = U16::new(cid);
        sqe.nsid = U32::new(nsid);
        sqe
    }

    /// The 64 bytes as they lie in memory.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        transmute_ref!(self)
    }

    /// The 64 bytes as they lie in memory, to be written to.
    #[inline]
    #[must_use]
    pub fn as_mut_bytes(&mut self) -> &mut [u8; Self::BYTES] {
        transmute_mut!(self)
    }

    /// The entry in these 64 bytes. Any bytes are an entry.
    #[inline]
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Sqe {
        transmute!(bytes)
    }

    /// The form of the data pointer.
    ///
    /// # Errors
    /// [`Status::INVALID_FIELD`] for the reserved value 11b.
    #[inline]
    pub fn psdt(&self) -> Result<Psdt, Status> {
        match Flags::from_bits(self.flags).psdt() {
            0b00 => Ok(Psdt::Prp),
            0b01 => Ok(Psdt::Sgl),
            0b10 => Ok(Psdt::SglMetadata),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// FUSE, flags bits 1:0: 0 for a command on its own.
    #[inline]
    #[must_use]
    pub fn fuse(&self) -> u8 {
        Flags::from_bits(self.flags).fuse()
    }

    /// Flags bit 2, which NVMe reserves: a *write*, *hybrid* or *transfer* with this bit gets no completion.
    /// Unless its status is success, the next such command of the queue without the bit reports it. Other
    /// commands ignore the bit.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        Flags::from_bits(self.flags).quiet()
    }

    /// Asks for no completion; see [`Sqe::is_quiet`].
    #[inline]
    pub fn set_quiet(&mut self) {
        self.flags = Flags::from_bits(self.flags).with_quiet(true).into_bits();
    }

    /// Makes the data pointer two PRP entries: bus addresses, in bytes.
    #[inline]
    pub fn set_prps(&mut self, prp1: u64, prp2: u64) {
        self.flags = Flags::from_bits(self.flags).with_psdt(Psdt::Prp as u8).into_bits();
        self.prp1 = U64::new(prp1);
        self.prp2 = U64::new(prp2);
    }

    /// Makes the data pointer this SGL descriptor.
    #[inline]
    pub fn set_sgl(&mut self, descriptor: SglDescriptor) {
        self.flags = Flags::from_bits(self.flags).with_psdt(Psdt::Sgl as u8).into_bits();
        [self.prp1, self.prp2] = transmute!(descriptor);
    }

    /// The data pointer, read as an SGL descriptor. Meaningful only if [`Sqe::psdt`] says that it is one.
    #[inline]
    #[must_use]
    pub fn sgl(&self) -> SglDescriptor {
        transmute!([self.prp1, self.prp2])
    }

    /// The sixteen key bytes, in key order, whatever the key length says.
    #[inline]
    #[must_use]
    pub fn key_bytes(&self) -> [u8; 16] {
        transmute!([self.cdw2, self.cdw3, self.cdw14, self.cdw15])
    }

    /// Does it name a key of more than 16 bytes, in a command that names a key?
    #[inline]
    #[must_use]
    pub fn has_long_key(&self) -> bool {
        (self.cdw11.get() & 0xFF) as usize > Key::IDENTITY_BYTES
    }

    /// Address of a key of more than 16 bytes in host memory: the metadata pointer, which other entries do not use.
    #[inline]
    #[must_use]
    pub fn key_address(&self) -> u64 {
        u64::from(self.cdw5.get()) << 32 | u64::from(self.cdw4.get())
    }

    /// Names the memory of a key of more than 16 bytes.
    #[inline]
    pub fn set_key_address(&mut self, address: u64) {
        self.cdw4 = U32::new(address as u32);
        self.cdw5 = U32::new((address >> 32) as u32);
    }

    /// Writes the sixteen key bytes; the key length (byte 44) is not touched.
    #[inline]
    pub fn set_key_bytes(&mut self, bytes: [u8; 16]) {
        [self.cdw2, self.cdw3, self.cdw14, self.cdw15] = transmute!(bytes);
    }
}

/// An SGL descriptor: 16 bytes.
///
/// ```text
///  byte   0           8          12           15
///       +-----------+----------+------------+------------------+
///       |  address  |  length  |  reserved  | type 7:4 sub 3:0 |
///       +-----------+----------+------------+------------------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SglDescriptor {
    /// Bus address of the data, or an offset, depending on the kind.
    pub address: U64,
    /// Length in bytes.
    pub length: U32,
    /// Zero.
    pub reserved: [u8; 3],
    /// Type in bits 7:4, subtype in bits 3:0.
    pub kind: u8,
}

impl SglDescriptor {
    /// Size in bytes.
    pub const BYTES: usize = 16;
    /// Data block (type 0h) by address (subtype 0h): `length` bytes of host memory.
    pub const DATA_BLOCK: u8 = 0x00;
    /// Data block (type 0h) by offset (subtype 1h): `length` bytes in the capsule.
    pub const DATA_BLOCK_OFFSET: u8 = 0x01;
    /// Segment (type 2h): more descriptors lie at `address`, and more segments may follow.
    pub const SEGMENT: u8 = 0x20;
    /// Last segment (type 3h): the last descriptors lie at `address`.
    pub const LAST_SEGMENT: u8 = 0x30;
    /// Transport data block (type 5h, subtype Ah): the transport knows the location (Fabrics).
    pub const TRANSPORT: u8 = 0x5A;

    /// A data block of `length` bytes at bus address `address`.
    #[inline]
    #[must_use]
    pub fn data_block(address: u64, length: u32) -> SglDescriptor {
        SglDescriptor {
            address: U64::new(address),
            length: U32::new(length),
            reserved: [0; 3],
            kind: Self::DATA_BLOCK,
        }
    }

    /// `length` bytes that lie in the capsule, after the entry.
    #[inline]
    #[must_use]
    pub fn in_capsule(length: u32) -> SglDescriptor {
        SglDescriptor { kind: Self::DATA_BLOCK_OFFSET, ..Self::data_block(0, length) }
    }

    /// `length` bytes that the transport transfers on request.
    #[inline]
    #[must_use]
    pub fn transport(length: u32) -> SglDescriptor {
        SglDescriptor { kind: Self::TRANSPORT, ..Self::data_block(0, length) }
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Sqe>() == Sqe::BYTES && align_of::<Sqe>() == 1);
    assert!(offset_of!(Sqe, cid) == 2);
    assert!(offset_of!(Sqe, nsid) == 4);
    assert!(offset_of!(Sqe, cdw2) == 8);
    assert!(offset_of!(Sqe, cdw4) == 16);
    assert!(offset_of!(Sqe, prp1) == 24);
    assert!(offset_of!(Sqe, prp2) == 32);
    assert!(offset_of!(Sqe, cdw10) == 40);
    assert!(offset_of!(Sqe, cdw11) == 44);
    assert!(offset_of!(Sqe, cdw12) == 48);
    assert!(offset_of!(Sqe, cdw13) == 52);
    assert!(offset_of!(Sqe, cdw14) == 56);
    assert!(offset_of!(Sqe, cdw15) == 60);
    assert!(size_of::<SglDescriptor>() == SglDescriptor::BYTES);
    assert!(offset_of!(SglDescriptor, length) == 8);
    assert!(offset_of!(SglDescriptor, kind) == 15);
};
