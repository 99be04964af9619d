//! The messages of vfio-user: fields and numbers. Integers are in the byte order of the host.
//!
//! ```text
//!   0   id (2)  command (2)  bytes, with this header (4)
//!   8   flags (4): 3:0 command 0, reply 1   4 no reply wanted   5 error    errno (4)
//!  16   what the command has
//! ```
//!
//! Source: the vfio-user specification (QEMU's documentation), and Linux's `vfio.h` for what it takes from there.

use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Begins every message.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    pub id: U16,
    pub command: U16,
    /// Of the whole message.
    pub bytes: U32,
    pub flags: U32,
    pub errno: U32,
}

impl Header {
    pub const BYTES: usize = 16;
    /// Flags: bits 3:0 of a reply.
    pub const REPLY: u32 = 1;
    /// Flags: those bits.
    pub const TYPE: u32 = 0xF;
    /// Flags: no reply is wanted.
    pub const NO_REPLY: u32 = 1 << 4;
    /// Flags: the command failed, for the reason in `errno`.
    pub const ERROR: u32 = 1 << 5;
}

/// Numbers of the commands that this door answers.
pub mod command {
    pub const VERSION: u16 = 1;
    pub const DMA_MAP: u16 = 2;
    pub const DMA_UNMAP: u16 = 3;
    pub const DEVICE_GET_INFO: u16 = 4;
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    pub const DEVICE_SET_IRQS: u16 = 8;
    pub const REGION_READ: u16 = 9;
    pub const REGION_WRITE: u16 = 10;
    pub const DEVICE_RESET: u16 = 13;
}

/// VERSION, without the JSON after it.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Version {
    pub major: U16,
    pub minor: U16,
}

/// DMA_MAP.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmaMap {
    pub argsz: U32,
    pub flags: U32,
    /// Where in the file of the descriptor the memory begins.
    pub offset: U64,
    pub address: U64,
    pub bytes: U64,
}

impl DmaMap {
    pub const READ: u32 = 1 << 0;
    pub const WRITE: u32 = 1 << 1;
}

/// DMA_UNMAP.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmaUnmap {
    pub argsz: U32,
    pub flags: U32,
    pub address: U64,
    pub bytes: U64,
}

impl DmaUnmap {
    /// Flags: everything is unmapped; address and size are 0.
    pub const ALL: u32 = 1 << 1;
}

/// DEVICE_GET_INFO.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceInfo {
    pub argsz: U32,
    pub flags: U32,
    pub regions: U32,
    pub irqs: U32,
}

impl DeviceInfo {
    pub const RESET: u32 = 1 << 0;
    pub const PCI: u32 = 1 << 1;
}

/// DEVICE_GET_REGION_INFO, without the capabilities after it.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegionInfo {
    pub argsz: U32,
    pub flags: U32,
    pub index: U32,
    /// Where the capabilities begin, from the beginning of this structure.
    pub capability_at: U32,
    pub bytes: U64,
    /// Where the region begins in the file of the descriptor.
    pub offset: U64,
}

impl RegionInfo {
    pub const READ: u32 = 1 << 0;
    pub const WRITE: u32 = 1 << 1;
    pub const MMAP: u32 = 1 << 2;
    pub const CAPABILITIES: u32 = 1 << 3;
}

/// The capability that names the one part of a region that can be mapped.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SparseMap {
    pub id: U16,
    pub version: U16,
    pub next: U32,
    pub areas: U32,
    pub reserved: U32,
    pub offset: U64,
    pub bytes: U64,
}

impl SparseMap {
    pub const ID: u16 = 1;
}

/// DEVICE_GET_IRQ_INFO.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IrqInfo {
    pub argsz: U32,
    pub flags: U32,
    pub index: U32,
    pub count: U32,
}

impl IrqInfo {
    pub const EVENTFD: u32 = 1 << 0;
    pub const MASKABLE: u32 = 1 << 1;
    pub const AUTOMASKED: u32 = 1 << 2;
}

/// DEVICE_SET_IRQS, without the data after it.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IrqSet {
    pub argsz: U32,
    pub flags: U32,
    pub index: U32,
    pub start: U32,
    pub count: U32,
}

impl IrqSet {
    pub const DATA_NONE: u32 = 1 << 0;
    pub const DATA_BOOL: u32 = 1 << 1;
    pub const DATA_EVENTFD: u32 = 1 << 2;
    pub const MASK: u32 = 1 << 3;
    pub const UNMASK: u32 = 1 << 4;
    pub const TRIGGER: u32 = 1 << 5;
}

/// REGION_READ and REGION_WRITE, without the data after it.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegionAccess {
    pub offset: U64,
    pub region: U32,
    pub count: U32,
}

/// Indexes of regions, as VFIO numbers those of PCI.
pub mod region {
    pub const BAR0: u32 = 0;
    pub const CONFIG: u32 = 7;
    pub const COUNT: u32 = 9;
}

/// Indexes of interrupts, as VFIO numbers those of PCI.
pub mod irq {
    pub const INTX: u32 = 0;
    pub const MSIX: u32 = 2;
    pub const COUNT: u32 = 5;
}
