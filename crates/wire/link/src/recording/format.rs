//! What reader and writer of a recording agree on.

use kvdrive_sim::Ns;

pub(super) const MAGIC: &[u8; 8] = b"KVRECORD";
pub(super) const VERSION: u32 = 1;
pub(super) const FRAME_HEADER_BYTES: usize = 5;
pub(super) const CHECKSUM_BYTES: usize = 8;

pub(super) mod kind {
    pub const QUEUE: u8 = 1;
    pub const COMMANDS: u8 = 2;
    pub const READ: u8 = 3;
    pub const REFUSED: u8 = 4;
    pub const END: u8 = 5;
    pub const RESET: u8 = 6;
    pub const CHANGE: u8 = 7;
}

pub(super) mod piece {
    pub const BYTES: u8 = 0;
    pub const PATTERN: u8 = 1;
}

/// How a recorded run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) power_cut: bool,
    pub(crate) events: u64,
    pub(crate) now: Ns,
    /// Doorbells after the last arrival.
    pub(crate) completion_doorbells: u32,
}
