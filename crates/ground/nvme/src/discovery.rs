//! The discovery log page (70h): the subsystems of a port, and their addresses.
//!
//! ```text
//!  byte 0        8        16           1024                 2048
//!     +--------+--------+-----------+--------------------+------ ..
//!     | GENCTR | NUMREC | RECFMT, 0 |  entry 0           | entry 1
//!     +--------+--------+-----------+--------------------+------ ..
//! ```

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The header: 1024 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// GENCTR: increases with every change of the log.
    pub generation: U64,
    /// NUMREC: entries.
    pub entries: U64,
    /// RECFMT: 0.
    pub format: U16,
    /// Zero.
    pub reserved_18: [u8; 1006],
}

/// One subsystem at one address: 1024 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// 0: TRTYPE; 3 is TCP.
    pub transport: u8,
    /// 1: ADRFAM; 1 is IPv4, 2 is IPv6.
    pub address_family: u8,
    /// 2: SUBTYPE; 1 another discovery subsystem, 2 an NVM subsystem, 3 this discovery subsystem.
    pub subsystem_type: u8,
    /// 3: TREQ; bits 1:0: secure channel, 00b not said, 01b required, 10b not required.
    pub requirements: u8,
    /// 4: PORTID.
    pub port_id: U16,
    /// 6: CNTLID; FFFFh: the subsystem chooses.
    pub controller_id: U16,
    /// 8: ASQSZ: largest admin queue, at least 32.
    pub admin_entries_max: U16,
    /// 10: EFLAGS and reserved.
    pub reserved_10: [u8; 22],
    /// 32: TRSVCID, ASCII padded with spaces: the TCP port in digits.
    pub service: [u8; 32],
    /// 64.
    pub reserved_64: [u8; 192],
    /// 256: SUBNQN, zero padded.
    pub subsystem_nqn: [u8; 256],
    /// 512: TRADDR, ASCII padded with spaces.
    pub address: [u8; 256],
    /// 768: TSAS; byte 0 of TCP is SECTYPE: 0 no TLS, 1 TLS 1.2, 2 TLS 1.3.
    pub transport_specific: [u8; 256],
}

impl DiscoveryEntry {
    /// TRTYPE: TCP.
    pub const TCP: u8 = 3;
    /// ADRFAM: IPv4.
    pub const IPV4: u8 = 1;
    /// ADRFAM: IPv6.
    pub const IPV6: u8 = 2;
    /// SUBTYPE: an NVM subsystem.
    pub const NVM_SUBSYSTEM: u8 = 2;

    /// TREQ: a secure channel is required.
    pub const SECURE_REQUIRED: u8 = 0b01;
    /// TREQ: whether a secure channel is required is not specified.
    pub const SECURE_NOT_SPECIFIED: u8 = 0b00;
    /// SECTYPE: none.
    pub const NO_TLS: u8 = 0;
    /// SECTYPE: TLS 1.3.
    pub const TLS_1_3: u8 = 2;

    /// An entry of zeros.
    #[must_use]
    pub fn empty() -> DiscoveryEntry {
        DiscoveryEntry::new_zeroed()
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<DiscoveryHeader>() == 1024);
    assert!(offset_of!(DiscoveryHeader, entries) == 8 && offset_of!(DiscoveryHeader, format) == 16);
    assert!(size_of::<DiscoveryEntry>() == 1024);
    assert!(offset_of!(DiscoveryEntry, port_id) == 4 && offset_of!(DiscoveryEntry, admin_entries_max) == 8);
    assert!(offset_of!(DiscoveryEntry, service) == 32 && offset_of!(DiscoveryEntry, subsystem_nqn) == 256);
    assert!(offset_of!(DiscoveryEntry, address) == 512);
    assert!(offset_of!(DiscoveryEntry, transport_specific) == 768);
};
