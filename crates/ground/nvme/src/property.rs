//! Properties: a controller's registers on a network, read and written by Property Get and Set.
//!
//! ```text
//!  00h  CAP   8 bytes   what the controller can do
//!  08h  VS    4         version of the base specification
//!  14h  CC    4         what the host wants of it
//!  1Ch  CSTS  4         how it is
//!  20h  NSSR  4         reset of the whole subsystem, only if CAP says so
//! ```

use bitfield_struct::bitfield;

/// Offset of the capabilities.
pub const CAP: u32 = 0x00;
/// Offset of the version.
pub const VS: u32 = 0x08;
/// Offset of the configuration.
pub const CC: u32 = 0x14;
/// Offset of the status.
pub const CSTS: u32 = 0x1C;
/// Offset of the subsystem reset.
pub const NSSR: u32 = 0x20;

/// NVMe base specification 2.0, as VS and Identify encode it.
pub const VERSION_2_0: u32 = 0x0002_0000;

/// CAP: what the controller can do.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Capabilities {
    /// MQES: largest I/O queue, 0's based.
    pub entries_max_z: u16,
    /// CQR: queues must be contiguous; on a network always.
    pub contiguous: bool,
    /// AMS: other arbitration.
    #[bits(2)]
    pub arbitration: u8,
    #[bits(5)]
    __: u8,
    /// TO: longest time from enabling to ready, in units of 500 ms.
    pub ready_500ms: u8,
    /// DSTRD: doorbell stride, 0 on a network.
    #[bits(4)]
    pub doorbell_stride: u8,
    /// NSSRS: the subsystem can be reset.
    pub subsystem_reset: bool,
    /// CSS: command sets ([`Capabilities::CSS_NVM`] and following).
    pub command_sets: u8,
    /// BPS.
    pub boot_partitions: bool,
    #[bits(2)]
    pub power_scope: u8,
    /// MPSMIN: smallest memory page, 4096 bytes times 2 to this.
    #[bits(4)]
    pub page_min_log2: u8,
    /// MPSMAX.
    #[bits(4)]
    pub page_max_log2: u8,
    __: u8,
}

impl Capabilities {
    /// CSS bit 0 (CAP bit 37): the NVM command set.
    pub const CSS_NVM: u8 = 1 << 0;
    /// CSS bit 6 (CAP bit 43): I/O command sets as Identify lists them. Without it, hosts use no command set
    /// other than NVM.
    pub const CSS_IO_SETS: u8 = 1 << 6;
}

/// CC: the configuration that the host sets.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Configuration {
    /// EN: enable the controller.
    pub enable: bool,
    #[bits(3)]
    __: u8,
    /// CSS: 110b, all I/O command sets that are supported; 000b, NVM; 111b, admin commands alone.
    #[bits(3)]
    pub command_set: u8,
    /// MPS: memory page, 4096 bytes times 2 to this.
    #[bits(4)]
    pub page_log2: u8,
    /// AMS: arbitration.
    #[bits(3)]
    pub arbitration: u8,
    /// SHN: 01b, shut down; 10b, at once.
    #[bits(2)]
    pub shutdown: u8,
    /// IOSQES: 6 for 64 bytes.
    #[bits(4)]
    pub sqe_log2: u8,
    /// IOCQES: 4 for 16 bytes.
    #[bits(4)]
    pub cqe_log2: u8,
    /// CRIME.
    pub independent_of_media: bool,
    #[bits(7)]
    __: u8,
}

/// CSTS: the state of the controller.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ControllerStatus {
    /// RDY: the controller accepts commands.
    pub ready: bool,
    /// CFS: a fatal error that only a reset clears.
    pub fatal: bool,
    /// SHST: 00b, no shutdown; 01b, under way; 10b, done.
    #[bits(2)]
    pub shutdown: u8,
    /// NSSRO.
    pub subsystem_reset_occurred: bool,
    /// PP.
    pub paused: bool,
    #[bits(26)]
    __: u32,
}

impl ControllerStatus {
    /// SHST: shutdown is done.
    pub const SHUTDOWN_DONE: u8 = 0b10;
}
