//! The NVM command set: numbered blocks (NVM Command Set Specification 1.0). It has the decoding of entries,
//! the ranges of a Dataset Management command, and Identify data of a block namespace.
//!
//! ```text
//!                  6-9        10-11        12                                     11
//!  Flush           -          -            -                                      -
//!  Read, Write     data       first block  15:0 blocks_z   29:26 PRINFO  31:30    -
//!  Write Zeroes    -          first block  15:0 blocks_z   25 DEAC                -
//!  Dataset Mgmt    ranges     (10) 7:0 ranges_z                                   2 deallocate
//!
//!  a range, 16 bytes:   0 attributes (u32)   4 blocks (u32)   8 first block (u64)
//! ```
//!
//! Blocks have no metadata and no protection information: a command that asks to check them is refused. This module
//! checks the fields of an entry; it does not check the namespace, its size, or the data pointer.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::sqe::Sqe;
use crate::status::Status;

/// Flush.
pub const FLUSH: u8 = 0x00;
/// Write.
pub const WRITE: u8 = 0x01;
/// Read.
pub const READ: u8 = 0x02;
/// Write Zeroes.
pub const WRITE_ZEROES: u8 = 0x08;
/// Dataset Management.
pub const DATASET_MANAGEMENT: u8 = 0x09;

/// Every command, and whether it changes stored blocks.
pub const TABLE: [(u8, bool); 5] =
    [(FLUSH, false), (WRITE, true), (READ, false), (WRITE_ZEROES, true), (DATASET_MANAGEMENT, true)];

/// ONCS of a controller with such a namespace: bit 2 Dataset Management, bit 3 Write Zeroes.
pub const OPTIONAL_COMMANDS: u16 = 0b1100;
/// Bytes of a block as a power of two (LBADS): 4096.
pub const BLOCK_BYTES_LOG2: u8 = 12;
/// Bytes of a block.
pub const BLOCK_BYTES: u32 = 1 << BLOCK_BYTES_LOG2;
/// Most ranges of a Dataset Management command.
pub const RANGES_MAX: u32 = 256;

const BLOCKS_MASK: u32 = 0xFFFF;
const PROTECTION_MASK: u32 = 0xF << 26;
const DEALLOCATE: u32 = 1 << 2;

/// A run of consecutive blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// The first one.
    pub first: u64,
    /// Number of blocks.
    pub count: u32,
}

impl Blocks {
    /// Do all of the blocks lie below `size`?
    #[must_use]
    pub fn fit(&self, size: u64) -> bool {
        self.first.checked_add(u64::from(self.count)).is_some_and(|end| end <= size)
    }
}

/// A command of the NVM command set, without its identifier, namespace and data pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NvmCommand {
    /// Make everything written durable.
    Flush,
    /// Blocks from host memory.
    Write(Blocks),
    /// Blocks to host memory.
    Read(Blocks),
    /// Blocks become zeros.
    WriteZeroes(Blocks),
    /// Ranges, listed in host memory, that are not needed any more.
    Deallocate {
        /// 1 to [`RANGES_MAX`].
        ranges: u32,
    },
    /// Dataset Management that only gives hints on how ranges are used: nothing is to be done.
    Hint,
}

impl NvmCommand {
    /// Does the command change stored content? A read-only drive refuses such a command (20h).
    #[must_use]
    pub fn changes_content(&self) -> bool {
        matches!(self, NvmCommand::Write(_) | NvmCommand::WriteZeroes(_) | NvmCommand::Deallocate { .. })
    }

    /// Decodes an entry.
    ///
    /// # Errors
    /// [`Status::INVALID_OPCODE`]; [`Status::INVALID_FIELD`] for a fused command or one that asks for a check
    /// of protection information.
    pub fn decode(sqe: &Sqe) -> Result<NvmCommand, Status> {
        let blocks = Blocks {
            first: u64::from(sqe.cdw10.get()) | u64::from(sqe.cdw11.get()) << 32,
            count: (sqe.cdw12.get() & BLOCKS_MASK) + 1,
        };
        let is_checked = sqe.cdw12.get() & PROTECTION_MASK != 0;
        let command = match sqe.opcode {
            FLUSH => NvmCommand::Flush,
            WRITE => NvmCommand::Write(blocks),
            READ => NvmCommand::Read(blocks),
            WRITE_ZEROES => NvmCommand::WriteZeroes(blocks),
            DATASET_MANAGEMENT if sqe.cdw11.get() & DEALLOCATE == 0 => NvmCommand::Hint,
            DATASET_MANAGEMENT => NvmCommand::Deallocate { ranges: (sqe.cdw10.get() & 0xFF) + 1 },
            _ => return Err(Status::INVALID_OPCODE),
        };
        let moves_blocks = matches!(sqe.opcode, WRITE | READ | WRITE_ZEROES);
        if sqe.fuse() != 0 || moves_blocks && is_checked {
            return Err(Status::INVALID_FIELD);
        }
        Ok(command)
    }

    /// The entry of command `cid` for namespace `nsid`; the caller sets its data pointer.
    #[must_use]
    pub fn encode(&self, cid: u16, nsid: u32) -> Sqe {
        let mut sqe = Sqe::new(self.opcode(), cid, nsid);
        match *self {
            NvmCommand::Flush | NvmCommand::Hint => {}
            NvmCommand::Write(blocks) | NvmCommand::Read(blocks) | NvmCommand::WriteZeroes(blocks) => {
                assert!((1..=BLOCKS_MASK + 1).contains(&blocks.count), "{} blocks", blocks.count);
                sqe.cdw10.set(blocks.first as u32);
                sqe.cdw11.set((blocks.first >> 32) as u32);
                sqe.cdw12.set(blocks.count - 1);
            }
            NvmCommand::Deallocate { ranges } => {
                assert!((1..=RANGES_MAX).contains(&ranges), "{ranges} ranges");
                sqe.cdw10.set(ranges - 1);
                sqe.cdw11.set(DEALLOCATE);
            }
        }
        sqe
    }

    /// The opcode of this command.
    #[must_use]
    pub fn opcode(&self) -> u8 {
        match self {
            NvmCommand::Flush => FLUSH,
            NvmCommand::Write(_) => WRITE,
            NvmCommand::Read(_) => READ,
            NvmCommand::WriteZeroes(_) => WRITE_ZEROES,
            NvmCommand::Deallocate { .. } | NvmCommand::Hint => DATASET_MANAGEMENT,
        }
    }
}

/// One range of a Dataset Management command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Range {
    /// How the range is used: a hint.
    pub attributes: U32,
    /// Blocks.
    pub blocks: U32,
    /// The first one.
    pub first: U64,
}

impl Range {
    /// Size in bytes.
    pub const BYTES: usize = size_of::<Range>();

    /// The blocks it names.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        Blocks { first: self.first.get(), count: self.blocks.get() }
    }
}

/// One LBA format: 4 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BlockFormat {
    /// MS: bytes of metadata.
    pub metadata_bytes: U16,
    /// LBADS: bytes of a block, a power of two.
    pub block_bytes_log2: u8,
    /// RP: relative performance in bits 1:0, 00b the best.
    pub performance: u8,
}

/// Block namespace (CNS 00h). Sizes are in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NvmNamespace {
    /// 0: NSZE, size.
    pub size_blocks: U64,
    /// 8: NCAP, blocks that may be allocated.
    pub capacity_blocks: U64,
    /// 16: NUSE, blocks allocated.
    pub used_blocks: U64,
    /// 24: NSFEAT, features.
    pub features: u8,
    /// 25: NLBAF, number of formats, 0's based.
    pub formats_z: u8,
    /// 26: FLBAS, index of the present format in bits 3:0.
    pub format_current: u8,
    /// 27: MC, DPC, DPS, NMIC, RESCAP, FPI.
    pub reserved_27: [u8; 6],
    /// 33: DLFEAT. Bits 2:0, the content of a deallocated block: 001b zeros. Bit 3, Write Zeroes may deallocate.
    pub deallocated: u8,
    /// 34 to 103.
    pub reserved_34: [u8; 70],
    /// 104: NGUID, globally unique identifier.
    pub nguid: [u8; 16],
    /// 120: EUI64, extended unique identifier.
    pub eui64: [u8; 8],
    /// 128: LBAF0 to LBAF15.
    pub formats: [BlockFormat; 16],
    /// 192 to 4095: further formats, reserved, vendor specific.
    pub reserved_192: [u8; 3904],
}

impl NvmNamespace {
    /// DLFEAT: deallocated blocks read zeros, and Write Zeroes may deallocate.
    pub const DEALLOCATED_READ_ZEROS: u8 = 0b1001;
}

const _: () = {
    assert!(size_of::<Range>() == 16);
    assert!(size_of::<BlockFormat>() == 4);
    assert!(size_of::<NvmNamespace>() == crate::identify::IDENTIFY_BYTES);
    assert!(core::mem::offset_of!(NvmNamespace, format_current) == 26);
    assert!(core::mem::offset_of!(NvmNamespace, deallocated) == 33);
    assert!(core::mem::offset_of!(NvmNamespace, nguid) == 104);
    assert!(core::mem::offset_of!(NvmNamespace, formats) == 128);
};
