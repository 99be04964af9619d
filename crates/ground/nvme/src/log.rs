//! Log pages, and the fields of Get Log Page.
//!
//! | page | structure | bytes |
//! |---|---|---|
//! | 00h | supported pages: 4 bytes each, by their number | 1024 |
//! | 01h | [`ErrorEntry`], newest first | 64 each |
//! | 02h | [`Health`] (SMART) | 512 |
//! | 03h | [`FirmwareSlots`] | 512 |
//! | 04h | changed namespaces: identifiers, 0 ends them | 4096 |
//! | 05h | [`Effects`] of the commands of one command set | 4096 |
//! | 70h | [`crate::discovery`] | 1024 and 1024 an entry |

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::sqe::Sqe;

/// Identifiers of log pages.
pub mod lid {
    /// Supported log pages.
    pub const SUPPORTED: u8 = 0x00;
    /// Errors.
    pub const ERRORS: u8 = 0x01;
    /// SMART, health information.
    pub const HEALTH: u8 = 0x02;
    /// Firmware slots.
    pub const FIRMWARE: u8 = 0x03;
    /// Namespaces that have changed since this page was last read.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands supported and their effects.
    pub const EFFECTS: u8 = 0x05;
    /// Discovery.
    pub const DISCOVERY: u8 = 0x70;
}

/// Bytes of the list of supported log pages.
pub const SUPPORTED_BYTES: usize = 1024;
/// LSUPP, bit 0 of an entry of that list: the page is supported.
pub const PAGE_SUPPORTED: u8 = 1 << 0;

/// Bytes of the list of changed namespaces.
pub const CHANGED_NAMESPACES_BYTES: usize = 4096;

/// The fields of a Get Log Page command.
///
/// ```text
///  dword 10   31:16 NUMDL   15 RAE   14:8 of the page   7:0 page
///  dword 11   31:16 of the page      15:0 NUMDU         dwords 12, 13  LPO, bytes
///  dword 14   31:24 command set      6:0 UUID index
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRequest {
    /// Which page ([`lid`]).
    pub page: u8,
    /// RAE: reading the page does not clear the event that reported it.
    pub retain_event: bool,
    /// NUMD + 1: how many bytes are wanted.
    pub bytes: u64,
    /// LPO: first byte wanted.
    pub offset: u64,
    /// CSI: command set.
    pub command_set: u8,
}

impl LogRequest {
    /// The request in an entry.
    #[must_use]
    pub fn of(sqe: &Sqe) -> LogRequest {
        let (dw10, dw11) = (sqe.cdw10.get(), sqe.cdw11.get());
        let dwords_z = u64::from(dw11 as u16) << 16 | u64::from(dw10 >> 16);
        LogRequest {
            page: dw10 as u8,
            retain_event: dw10 & 1 << 15 != 0,
            bytes: (dwords_z + 1) * 4,
            offset: u64::from(sqe.cdw13.get()) << 32 | u64::from(sqe.cdw12.get()),
            command_set: (sqe.cdw14.get() >> 24) as u8,
        }
    }

    /// Puts the request into an entry. `bytes` is cut to a multiple of 4 and is at least 4.
    pub fn put(&self, sqe: &mut Sqe) {
        let dwords_z = (self.bytes / 4).max(1) - 1;
        let retain = u32::from(self.retain_event) << 15;
        sqe.cdw10 = U32::new((dwords_z as u32) << 16 | retain | u32::from(self.page));
        sqe.cdw11 = U32::new((dwords_z >> 16) as u16 as u32);
        sqe.cdw12 = U32::new(self.offset as u32);
        sqe.cdw13 = U32::new((self.offset >> 32) as u32);
        sqe.cdw14 = U32::new(u32::from(self.command_set) << 24);
    }
}

/// One error: 64 bytes. Earlier errors have a lower count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ErrorEntry {
    /// 0: number of the error in this controller; 0 for an unused entry.
    pub count: U64,
    /// 8: submission queue.
    pub queue_id: U16,
    /// 10: command.
    pub cid: U16,
    /// 12: status, as in a completion entry's last two bytes.
    pub status: U16,
    /// 14: byte and bit of the command that caused the error; FFFFh: not given.
    pub parameter_at: U16,
    /// 16: first logical block.
    pub block: U64,
    /// 24: namespace.
    pub namespace: U32,
    /// 28: vendor's log page, transport, reserved.
    pub reserved_28: [u8; 36],
}

/// SMART, health information (the fields that this drive fills; the others are zero).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Health {
    /// 0: critical warnings; bit 3: read only, bit 0: few spares.
    pub warnings: u8,
    /// 1: composite temperature, kelvin.
    pub temperature_k: U16,
    /// 3: spare blocks left, percent.
    pub spare_percent: u8,
    /// 4: threshold of the warning, percent of spare blocks.
    pub spare_threshold_percent: u8,
    /// 5: used part of the drive's life, percent.
    pub used_percent: u8,
    /// 6.
    pub reserved_6: [u8; 26],
    /// 32: thousands of 512-byte units that hosts have read, rounded up.
    pub read_512k: [U64; 2],
    /// 48: likewise, written.
    pub written_512k: [U64; 2],
    /// 64: commands that read.
    pub read_commands: [U64; 2],
    /// 80: commands that write.
    pub write_commands: [U64; 2],
    /// 96 to 159: busy time, power cycles, hours, shutdowns.
    pub reserved_96: [u8; 64],
    /// 160: reads whose data could not be recovered.
    pub media_errors: [U64; 2],
    /// 176 to 511: error entries, times at high temperatures.
    pub reserved_176: [u8; 336],
}

impl Health {
    /// Critical warning: fewer spare blocks are left than the threshold says.
    pub const FEW_SPARES: u8 = 1 << 0;
    /// Critical warning: everything is read-only.
    pub const READ_ONLY: u8 = 1 << 3;
}

/// Firmware slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FirmwareSlots {
    /// AFI: the slot in use in bits 2:0.
    pub active: u8,
    /// Zero.
    pub reserved_1: [u8; 7],
    /// FRS1 to FRS7, ASCII padded with spaces.
    pub revisions: [[u8; 8]; 7],
    /// Zero.
    pub reserved_64: [u8; 448],
}

/// Commands supported and their effects, of one command set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Effects {
    /// By opcode, of the admin queue.
    pub admin: [U32; 256],
    /// By opcode, of I/O queues.
    pub io: [U32; 256],
    /// Zero.
    pub reserved_2048: [u8; 2048],
}

impl Effects {
    /// CSUPP: the command is supported.
    pub const SUPPORTED: u32 = 1 << 0;
    /// LBCC: the command changes stored content.
    pub const CHANGES_CONTENT: u32 = 1 << 1;
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<ErrorEntry>() == 64);
    assert!(offset_of!(ErrorEntry, status) == 12 && offset_of!(ErrorEntry, namespace) == 24);
    assert!(size_of::<Health>() == 512);
    assert!(offset_of!(Health, temperature_k) == 1);
    assert!(offset_of!(Health, read_512k) == 32 && offset_of!(Health, write_commands) == 80);
    assert!(offset_of!(Health, media_errors) == 160);
    assert!(size_of::<FirmwareSlots>() == 512 && offset_of!(FirmwareSlots, revisions) == 8);
    assert!(size_of::<Effects>() == 4096 && offset_of!(Effects, io) == 1024);
};
