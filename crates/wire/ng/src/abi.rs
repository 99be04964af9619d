//! What programs and Linux agreed on for NVMe device nodes: numbers of ioctls, and the structures that their
//! arguments point at.
//!
//! ```text
//!  byte   0       1       4      8     12     16         24       32            36        40..60   64
//!       +------+-------+------+------+------+----------+--------+-------------+---------+--------+---------+--------+
//!       |opcode| flags | nsid | cdw2 | cdw3 | metadata | address| metadata_len| data_len| cdw10-15| timeout | result |
//!       +------+-------+------+------+------+----------+--------+-------------+---------+--------+---------+--------+
//!                                                         72 bytes: result is a u32 at 68; 80 bytes: a u64 at 72
//! ```
//!
//! In the form of vectors `address` points to an array of (address, length), 16 bytes each, and `data_len` counts
//! its entries.

use kvdrive_nvme::Sqe;
use kvdrive_nvme::opcode::FABRICS;
use zerocopy::native_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The letter of NVMe's ioctls: bits 15:8 of a request.
pub const LETTER: u32 = b'N' as u32;

/// Do these 32 bits have the letter of NVMe's ioctls?
pub fn is_nvme(request: u32) -> bool {
    request >> 8 & 0xFF == LETTER
}

/// An ioctl of NVMe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ioctl {
    /// 4E40h: the namespace's identifier is the return value.
    Id,
    /// An admin command.
    Admin(Form),
    /// An I/O command.
    Io(Form),
    /// 40304E42h: blocks alone.
    SubmitIo,
    /// 4E44h.
    Reset,
    /// 4E45h.
    SubsystemReset,
    /// 4E46h.
    Rescan,
}

/// How a command lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// 72 bytes.
    Short,
    /// 80 bytes.
    Long,
    /// 80 bytes, with an array of buffers.
    Vectors,
}

/// Every request and its number.
pub const REQUESTS: [(u32, Ioctl); 10] = [
    (0x4E40, Ioctl::Id),
    (0xC048_4E41, Ioctl::Admin(Form::Short)),
    (0x4030_4E42, Ioctl::SubmitIo),
    (0xC048_4E43, Ioctl::Io(Form::Short)),
    (0x4E44, Ioctl::Reset),
    (0x4E45, Ioctl::SubsystemReset),
    (0x4E46, Ioctl::Rescan),
    (0xC050_4E47, Ioctl::Admin(Form::Long)),
    (0xC050_4E48, Ioctl::Io(Form::Long)),
    (0xC050_4E49, Ioctl::Io(Form::Vectors)),
];

impl Ioctl {
    /// The request of this number.
    pub fn of(number: u32) -> Option<Ioctl> {
        REQUESTS.iter().find(|row| row.0 == number).map(|row| row.1)
    }
}

impl Form {
    /// Size of the structure, bytes.
    pub fn bytes(self) -> usize {
        match self {
            Form::Short => size_of::<Passthrough>() + size_of::<u32>(),
            Form::Long | Form::Vectors => size_of::<Passthrough>() + size_of::<u32>() + size_of::<u64>(),
        }
    }

    /// The address of the result in the structure, and as many of its bytes as fit.
    pub fn result(self, result: u64) -> (u64, Vec<u8>) {
        match self {
            Form::Short => (68, (result as u32).to_ne_bytes().to_vec()),
            Form::Long | Form::Vectors => (72, result.to_ne_bytes().to_vec()),
        }
    }
}

/// What both forms of a command begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Passthrough {
    /// Opcode.
    pub opcode: u8,
    /// Must be 0.
    pub flags: u8,
    reserved: [u8; 2],
    /// Namespace; of a Fabrics command its type.
    pub nsid: U32,
    /// Key bytes 0..8 of a KV command.
    pub cdw2_3: [U32; 2],
    /// Address of metadata.
    pub metadata: U64,
    /// Address of the data, or of the array of buffers.
    pub address: U64,
    /// Bytes of metadata.
    pub metadata_bytes: U32,
    /// Bytes of data, or entries of the array.
    pub data_len: U32,
    /// Command specific; 14 and 15 are key bytes 8..16 of a KV command.
    pub cdw10_15: [U32; 6],
    /// 0: as long as is usual.
    pub timeout_ms: U32,
}

/// One buffer of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IoVector {
    /// Its address.
    pub address: U64,
    /// Its length.
    pub bytes: U64,
}

/// Most buffers of an array (UIO_MAXIOV).
pub const VECTORS_MAX: u32 = 1024;

impl Passthrough {
    /// The entry for the drive; the transport fills in where its data are.
    pub fn entry(&self) -> Sqe {
        let mut sqe = Sqe::new(self.opcode, 0, self.nsid.get());
        let dwords = self.cdw10_15.map(|dword| dword.get().into());
        [sqe.cdw2, sqe.cdw3] = self.cdw2_3.map(|dword| dword.get().into());
        [sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15] = dwords;
        sqe
    }

    /// Do its data, if any, go to the drive? Decided by bit 0 of the opcode, or of the type of a Fabrics command.
    pub fn is_to_drive(&self) -> bool {
        let code = if self.opcode == FABRICS { self.nsid.get() as u8 } else { self.opcode };
        code & 1 != 0
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Passthrough>() == 68);
    assert!(offset_of!(Passthrough, metadata) == 16);
    assert!(offset_of!(Passthrough, data_len) == 36);
    assert!(offset_of!(Passthrough, timeout_ms) == 64);
    assert!(size_of::<IoVector>() == 16);
};
