//! NVMe/TCP: the protocol data units that carry capsules and data over a byte stream.
//!
//! ```text
//!  byte 0      1       2      3     4                 HLEN        PDO              PLEN
//!     +------+-------+------+-----+--------+---------+--------+--+--------+--------+
//!     | type | flags | HLEN | PDO |  PLEN  | of type | HDGST  |  | data   | DDGST  |
//!     +------+-------+------+-----+--------+---------+--------+--+--------+--------+
//!                                                     4 bytes if  padding  4 bytes if
//!                                                     flag 0               flag 1
//!
//!  type                  HLEN   direction    fields after byte 8
//!  00h  ICReq            128    to drive     8 PFV  10 HPDA  11 digests  12 MAXR2T
//!  01h  ICResp           128    to host      8 PFV  10 CPDA  11 digests  12 MAXH2CDATA
//!  02h  H2CTermReq        24    to drive     8 FES  10 FEI               and the header it is about
//!  03h  C2HTermReq        24    to host      the same
//!  04h  CapsuleCmd        72    to drive     8 SQE                       and in-capsule data
//!  05h  CapsuleResp       24    to host      8 CQE
//!  06h  H2CData           24    to drive     8 CCCID  10 TTAG  12 DATAO  16 DATAL
//!  07h  C2HData           24    to host      8 CCCID           12 DATAO  16 DATAL
//!  09h  R2T               24    to host      8 CCCID  10 TTAG  12 R2TO   16 R2TL
//! ```
//!
//! PLEN counts everything, digests too. Digests are CRC-32C, little endian: HDGST over HLEN bytes, DDGST over
//! the data. Hosts disagree on data whose length is not a multiple of 4: Linux digests the bytes as they are,
//! SPDK as if they were padded with zeros. The computation of digests is not in this crate.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::cqe::Cqe;
use crate::sqe::Sqe;

/// Types of data units.
pub mod kind {
    /// Initialize connection, request.
    pub const IC_REQ: u8 = 0x00;
    /// Initialize connection, response.
    pub const IC_RESP: u8 = 0x01;
    /// The host ends the connection.
    pub const H2C_TERM_REQ: u8 = 0x02;
    /// The controller ends the connection.
    pub const C2H_TERM_REQ: u8 = 0x03;
    /// A command.
    pub const CAPSULE_CMD: u8 = 0x04;
    /// A response.
    pub const CAPSULE_RESP: u8 = 0x05;
    /// Data to the controller.
    pub const H2C_DATA: u8 = 0x06;
    /// Data to the host.
    pub const C2H_DATA: u8 = 0x07;
    /// Ready to transfer: the host may send data.
    pub const R2T: u8 = 0x09;
}

/// Bits of the flags.
pub mod flag {
    /// A header digest follows the header.
    pub const HEADER_DIGEST: u8 = 1 << 0;
    /// A data digest follows the data.
    pub const DATA_DIGEST: u8 = 1 << 1;
    /// The last data of its R2T, or of its command.
    pub const LAST: u8 = 1 << 2;
    /// C2HData: the command has succeeded and no response will follow. Dword 0 is lost.
    pub const SUCCESS: u8 = 1 << 3;
}

/// Bits of the digests in ICReq and ICResp.
pub mod digests {
    /// Header digests.
    pub const HEADER: u8 = 1 << 0;
    /// Data digests.
    pub const DATA: u8 = 1 << 1;
}

/// FES: why a connection is ended.
pub mod fatal {
    /// An invalid header field; FEI gives the byte.
    pub const INVALID_HEADER: u16 = 0x01;
    /// A data unit out of sequence.
    pub const SEQUENCE: u16 = 0x02;
    /// The header digest is wrong; FEI is the one received.
    pub const HEADER_DIGEST: u16 = 0x03;
    /// Data outside the requested range; FEI gives the byte of the header.
    pub const DATA_OUT_OF_RANGE: u16 = 0x04;
    /// More data than the limit; FEI gives the byte of the header.
    pub const DATA_LIMIT: u16 = 0x05;
    /// An unsupported parameter; FEI gives the byte.
    pub const UNSUPPORTED: u16 = 0x06;
}

/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 4;
/// The only defined version (PFV).
pub const FORMAT_VERSION: u16 = 0;
/// In-capsule data on the admin queue and of Connect may be as long as this, whatever Identify gives.
pub const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;
/// Most bytes of the offending unit's header that a termination repeats.
pub const TERM_HEADER_MAX_BYTES: usize = 128;

/// The common header of every unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// Type ([`kind`]).
    pub kind: u8,
    /// Flags ([`flag`]).
    pub flags: u8,
    /// HLEN: bytes of the header, without its digest.
    pub header_bytes: u8,
    /// PDO: where the data begin; 0 without data.
    pub data_at: u8,
    /// PLEN: bytes of the whole unit.
    pub bytes: U32,
}

impl Header {
    /// Size in bytes.
    pub const BYTES: usize = 8;

    /// A header without digests and data: the whole unit is `bytes` long.
    #[must_use]
    pub fn new(kind: u8, bytes: usize) -> Header {
        Header { kind, flags: 0, header_bytes: bytes as u8, data_at: 0, bytes: U32::new(bytes as u32) }
    }
}

/// ICReq: the first unit on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InitializeRequest {
    /// Common header.
    pub header: Header,
    /// PFV.
    pub format_version: U16,
    /// HPDA: data to the host begin at multiples of 4 bytes times this, 0's based.
    pub data_alignment_z: u8,
    /// Which digests the host wants ([`digests`]).
    pub digests: u8,
    /// MAXR2T: how many R2Ts of one command may be outstanding, 0's based.
    pub r2t_max_z: U32,
    /// Zero.
    pub reserved: [u8; 112],
}

/// ICResp: the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InitializeResponse {
    /// Common header.
    pub header: Header,
    /// PFV.
    pub format_version: U16,
    /// CPDA: data to the controller begin at multiples of 4 bytes times this, 0's based. Linux requires 0.
    pub data_alignment_z: u8,
    /// The digests that will be used.
    pub digests: u8,
    /// MAXH2CDATA: most data in one H2CData, bytes; at least 4096, a multiple of 4.
    pub data_max_bytes: U32,
    /// Zero.
    pub reserved: [u8; 112],
}

/// CapsuleCmd, without in-capsule data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CommandCapsule {
    /// Common header.
    pub header: Header,
    /// The command.
    pub sqe: Sqe,
}

/// CapsuleResp.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ResponseCapsule {
    /// Common header.
    pub header: Header,
    /// The completion; its phase is 0.
    pub cqe: Cqe,
}

/// H2CData, C2HData and R2T, whose fields have the same positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Transfer {
    /// Common header.
    pub header: Header,
    /// CCCID: the command.
    pub cid: U16,
    /// TTAG: the R2T, as the controller named it; zero in C2HData.
    pub tag: U16,
    /// DATAO or R2TO: first byte within the command's data.
    pub offset: U32,
    /// DATAL or R2TL: how many bytes.
    pub length: U32,
    /// Zero.
    pub reserved: [u8; 4],
}

/// H2CTermReq and C2HTermReq, without the header they are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Termination {
    /// Common header.
    pub header: Header,
    /// FES: why ([`fatal`]).
    pub reason: U16,
    /// FEI: details of the reason.
    pub information: U32,
    /// Zero.
    pub reserved: [u8; 10],
}

/// HLEN of a type; `None` if there is no such type.
#[must_use]
pub const fn header_bytes(kind: u8) -> Option<u8> {
    match kind {
        kind::IC_REQ | kind::IC_RESP => Some(128),
        kind::CAPSULE_CMD => Some(72),
        kind::H2C_TERM_REQ
        | kind::C2H_TERM_REQ
        | kind::CAPSULE_RESP
        | kind::H2C_DATA
        | kind::C2H_DATA
        | kind::R2T => Some(24),
        _ => None,
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Header>() == Header::BYTES);
    assert!(offset_of!(Header, bytes) == 4);
    assert!(size_of::<InitializeRequest>() == 128 && size_of::<InitializeResponse>() == 128);
    assert!(offset_of!(InitializeRequest, digests) == 11);
    assert!(offset_of!(InitializeRequest, r2t_max_z) == 12);
    assert!(offset_of!(InitializeResponse, data_max_bytes) == 12);
    assert!(size_of::<CommandCapsule>() == 72 && offset_of!(CommandCapsule, sqe) == 8);
    assert!(size_of::<ResponseCapsule>() == 24 && offset_of!(ResponseCapsule, cqe) == 8);
    assert!(size_of::<Transfer>() == 24);
    assert!(offset_of!(Transfer, cid) == 8);
    assert!(offset_of!(Transfer, tag) == 10);
    assert!(offset_of!(Transfer, offset) == 12);
    assert!(offset_of!(Transfer, length) == 16);
    assert!(size_of::<Termination>() == 24);
    assert!(offset_of!(Termination, reason) == 8 && offset_of!(Termination, information) == 10);
};
