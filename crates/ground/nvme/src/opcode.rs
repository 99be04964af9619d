//! Opcodes of the commands this drive knows, and the data direction in the low bits of each.
//!
//! ```text
//!     7      6 .. 2      1:0
//!   +---+-------------+-------+   00b no data              01b host to controller
//!   | V |  function   |  dir  |   10b controller to host   11b both
//!   +---+-------------+-------+
//!     V = 1: vendor specific (80h..FFh)
//! ```
//!
//! Linux and SPDK rely on bits 1:0 to map the host buffer, so a vendor opcode with wrong bits moves no data
//! on a real host. A *write* or *transfer* carries its bytes inside the entry and has no data buffer: 00b.
//!
//! The released BandSlim code uses A0h to A9h without regard to direction; kvdrive does not use its numbers
//! (the standard has Store and Retrieve already, and the code's *write*, A7h, would announce both
//! directions).

/// Which way the data buffer of a command moves: opcode bits 1:0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// 00b: the command has no data buffer.
    None,
    /// 01b: host to controller.
    ToDrive,
    /// 10b: controller to host.
    ToHost,
    /// 11b: both ways. No command of this drive uses it.
    Both,
}

/// The direction that an opcode's low bits give.
#[inline]
#[must_use]
pub const fn direction(opcode: u8) -> Direction {
    match opcode & 0b11 {
        0b00 => Direction::None,
        0b01 => Direction::ToDrive,
        0b10 => Direction::ToHost,
        _ => Direction::Both,
    }
}

/// Flush: make volatile content durable (base specification, for every command set).
pub const FLUSH: u8 = 0x00;
/// Store: write a key-value pair (KV command set).
pub const STORE: u8 = 0x01;
/// Retrieve: read the value of a key (KV command set).
pub const RETRIEVE: u8 = 0x02;
/// List: read keys from a start key on (KV command set).
pub const LIST: u8 = 0x06;
/// Delete: remove a key-value pair (KV command set).
pub const DELETE: u8 = 0x10;
/// Exist: ask whether a key is there (KV command set).
pub const EXIST: u8 = 0x14;

/// SEEK: open an iterator over a snapshot and read the pair at or after a key (vendor).
pub const SEEK: u8 = 0xA2;
/// NEXT: read the next pair of an iterator (vendor).
pub const NEXT: u8 = 0xA6;
/// Close an iterator (vendor).
pub const ITER_CLOSE: u8 = 0xA4;
/// BandSlim *write*: the first bytes of a value travel inside the entry (vendor).
pub const WRITE: u8 = 0xA8;
/// BandSlim *hybrid*: whole pages by PRP, the tail in *transfer* commands after it (vendor).
pub const HYBRID: u8 = 0xA9;
/// BandSlim *transfer*: further bytes of the value that a *write* or *hybrid* started (vendor).
pub const TRANSFER: u8 = 0xAC;
/// Store whose value follows in the next entries of its queue, 64 bytes each (ByteExpress; vendor).
pub const EXPRESS: u8 = 0xB0;
/// Discard: the value that a *write* or *hybrid* of this queue started will not be completed (vendor).
pub const DISCARD: u8 = 0xB4;
/// Store a value part by part, from its front on; visible with its last byte (vendor).
pub const STORE_PART: u8 = 0xBD;
/// Retrieve a part of a value, from any byte of it on (vendor).
pub const RETRIEVE_PART: u8 = 0xBE;
/// Batch: many stores and deletes in one structured value ([`crate::batch`]; vendor, advertised).
pub const BATCH: u8 = 0xB1;
/// Store of a value that the host has written into the exposed page buffer by CXL.mem (vendor).
pub const CXL_STORE: u8 = 0xB8;

/// Fabrics commands, on any queue of a network transport ([`crate::fabrics`]); FCTYPE gives the direction.
pub const FABRICS: u8 = 0x7F;

/// Opcodes of the admin queue (NVMe base specification).
pub mod admin {
    /// Delete I/O Submission Queue.
    pub const DELETE_IO_SQ: u8 = 0x00;
    /// Create I/O Submission Queue.
    pub const CREATE_IO_SQ: u8 = 0x01;
    /// Get Log Page.
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Delete I/O Completion Queue.
    pub const DELETE_IO_CQ: u8 = 0x04;
    /// Create I/O Completion Queue.
    pub const CREATE_IO_CQ: u8 = 0x05;
    /// Identify.
    pub const IDENTIFY: u8 = 0x06;
    /// Abort.
    pub const ABORT: u8 = 0x08;
    /// Set Features.
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features.
    pub const GET_FEATURES: u8 = 0x0A;
    /// Asynchronous Event Request.
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0C;
    /// Keep Alive.
    pub const KEEP_ALIVE: u8 = 0x18;
    /// Format NVM.
    pub const FORMAT: u8 = 0x80;
}

/// Name and direction of every I/O opcode that all drives of this project answer, ascending.
pub const IO_TABLE: [(u8, &str, Direction); 17] = [
    (FLUSH, "flush", Direction::None),
    (STORE, "store", Direction::ToDrive),
    (RETRIEVE, "retrieve", Direction::ToHost),
    (LIST, "list", Direction::ToHost),
    (DELETE, "delete", Direction::None),
    (EXIST, "exist", Direction::None),
    (SEEK, "seek", Direction::ToHost),
    (ITER_CLOSE, "iter-close", Direction::None),
    (NEXT, "next", Direction::ToHost),
    (WRITE, "write", Direction::None),
    (HYBRID, "hybrid", Direction::ToDrive),
    (TRANSFER, "transfer", Direction::None),
    (EXPRESS, "express", Direction::None),
    (DISCARD, "discard", Direction::None),
    (CXL_STORE, "cxl-store", Direction::None),
    (STORE_PART, "store-part", Direction::ToDrive),
    (RETRIEVE_PART, "retrieve-part", Direction::ToHost),
];

/// Opcodes that a drive may lack: Identify tells a host whether they are supported
/// ([`crate::identify::VendorNamespace`]). If one is not, it is an invalid opcode.
pub const ADVERTISED_TABLE: [(u8, &str, Direction); 1] = [(BATCH, "batch", Direction::ToDrive)];

/// The name of an I/O opcode; `None` if it is unknown.
#[must_use]
pub fn name(opcode: u8) -> Option<&'static str> {
    IO_TABLE.iter().chain(&ADVERTISED_TABLE).find(|row| row.0 == opcode).map(|row| row.1)
}

// The opcode bits must match the table, the rows must ascend, and only Flush and the five commands of the KV command
// set may lie below the vendor range.
const _: () = {
    let mut row = 0;
    while row < IO_TABLE.len() {
        let (opcode, _, promised) = IO_TABLE[row];
        assert!(direction(opcode) as u8 == promised as u8, "opcode bits 1:0 are not the direction");
        assert!(row == 0 || IO_TABLE[row - 1].0 < opcode, "opcodes do not ascend");
        assert!((opcode >= 0x80) == (row >= 6), "vendor opcodes start at 80h");
        row += 1;
    }
    let mut row = 0;
    while row < ADVERTISED_TABLE.len() {
        let (opcode, _, promised) = ADVERTISED_TABLE[row];
        assert!(direction(opcode) as u8 == promised as u8, "opcode bits 1:0 are not the direction");
        assert!(opcode >= 0x80, "vendor opcodes start at 80h");
        row += 1;
    }
    assert!(matches!(direction(admin::IDENTIFY), Direction::ToHost));
    assert!(matches!(direction(admin::GET_LOG_PAGE), Direction::ToHost));
    assert!(matches!(direction(admin::CREATE_IO_SQ), Direction::ToDrive));
    assert!(matches!(direction(admin::CREATE_IO_CQ), Direction::ToDrive));
};
