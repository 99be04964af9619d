//! Features: values that a host may set in a controller (Set and Get Features), and asynchronous events.
//!
//! ```text
//!  dword 10 of Set Features   31 SV          7:0 feature      dword 11: the value
//!  dword 10 of Get Features   10:8 SEL       7:0 feature      the value comes in dword 0
//!
//!  dword 0 of an event        23:16 log page to read    15:8 information    2:0 type
//! ```

/// 01h: arbitration.
pub const ARBITRATION: u8 = 0x01;
/// 02h: power management.
pub const POWER: u8 = 0x02;
/// 04h: temperature threshold.
pub const TEMPERATURE: u8 = 0x04;
/// 05h: error recovery.
pub const ERROR_RECOVERY: u8 = 0x05;
/// 07h: number of I/O queues, 0's based: submission queues in 15:0, completion queues in 31:16.
pub const QUEUES: u8 = 0x07;
/// 0Bh: which asynchronous events the host wants.
pub const ASYNC_EVENTS: u8 = 0x0B;
/// 0Fh: keep-alive timeout, ms; 0 for none.
pub const KEEP_ALIVE: u8 = 0x0F;
/// 20h: key value configuration; bit 0, EDNEK: deleting a missing key is an error. Its scope is the namespace, and it
/// survives power cycles and resets (KV command set 4.1.3.1).
pub const KEY_VALUE: u8 = 0x20;
/// 81h: host identifier.
pub const HOST_ID: u8 = 0x81;

/// SV: dword 10 bit 31 of Set Features; the value is to be kept over power cycles.
pub const SAVE: u32 = 1 << 31;
/// EDNEK, bit 0 of [`KEY_VALUE`].
pub const ERROR_ON_MISSING_KEY: u32 = 1;

/// Events: bits of [`ASYNC_EVENTS`], and of OAES in Identify.
pub mod event {
    /// Bit 8: a namespace has changed.
    pub const NAMESPACE_ATTRIBUTES: u32 = 1 << 8;
    /// Bit 31: the discovery log has changed.
    pub const DISCOVERY_LOG: u32 = 1 << 31;

    /// Type 0h, error.
    pub const ERROR: u8 = 0;
    /// Error: a value was written to a doorbell that it cannot have.
    pub const WRONG_DOORBELL_VALUE: u8 = 0x01;
    /// Type 2h, notice.
    pub const NOTICE: u8 = 2;
    /// Type 1h, SMART and health.
    pub const HEALTH: u8 = 1;
    /// Health: the subsystem is not reliable any more, for example because it became read-only.
    pub const UNRELIABLE: u8 = 0x00;
    /// Health: fewer spare blocks are left than the threshold.
    pub const FEW_SPARES: u8 = 0x02;
    /// Notice: namespace attributes changed.
    pub const NAMESPACE_CHANGED: u8 = 0x00;

    /// Dword 0 of a completion that reports an event.
    #[must_use]
    pub const fn dword(kind: u8, information: u8, page: u8) -> u32 {
        (page as u32) << 16 | (information as u32) << 8 | kind as u32
    }
}
