//! Crossings of the link: for each kind, its bytes, and the time for which it holds a direction.
//!
//! For CXL.mem, a flit of 68 bytes per cache line is counted, as payload and as wire bytes: the accounting of
//! the published article. Header slots, the share of flow control and the drive's responses are in neither.

use kvdrive_nvme::{Cqe, PAGE_BYTES, Sqe};
use kvdrive_sim::Ns;

use super::config::{LinkConfig, request_wire_bytes};
use crate::meter::Class;

pub(super) const DOORBELL_BYTES: u64 = 4;
/// A CXL flit in the 68-byte mode: a cache line, 2 bytes of protocol identifier and 2 of CRC.
const FLIT_BYTES: u64 = 68;
const LINE_BYTES: u64 = 64;
const INTERRUPT_WIRE_BYTES: u64 = 4;

/// One crossing's bytes and time.
#[derive(Clone, Copy)]
pub(super) struct Crossing {
    pub(super) class: Class,
    pub(super) payload_bytes: u64,
    pub(super) wire_bytes: u64,
    /// Time for which it occupies the direction to the host, ns.
    pub(super) up_ns: Ns,
    /// Time for which it then occupies the direction to the drive, ns.
    pub(super) down_ns: Ns,
    /// Further time, ns.
    pub(super) rest_ns: Ns,
}

impl Crossing {
    /// A posted write by the host.
    pub(super) fn write_down(config: &LinkConfig, class: Class, bytes: u64, rest_ns: Ns) -> Crossing {
        let wire_bytes = config.write_wire_bytes(bytes);
        let down_ns = config.line_ns(wire_bytes);
        Crossing { class, payload_bytes: bytes, wire_bytes, up_ns: 0, down_ns, rest_ns }
    }

    /// A posted write by the drive.
    pub(super) fn write_up(config: &LinkConfig, class: Class, bytes: u64, rest_ns: Ns) -> Crossing {
        let wire_bytes = config.write_wire_bytes(bytes);
        let up_ns = config.line_ns(wire_bytes);
        Crossing { class, payload_bytes: bytes, wire_bytes, up_ns, down_ns: 0, rest_ns }
    }

    /// A read by the drive.
    pub(super) fn read(config: &LinkConfig, class: Class, bytes: u64, rest_ns: Ns) -> Crossing {
        Crossing::reads(config, class, bytes, 1, rest_ns)
    }

    /// `count` consecutive reads of `bytes` bytes each. Line time is rounded up once, for the sum of their
    /// wire bytes.
    pub(super) fn reads(config: &LinkConfig, class: Class, bytes: u64, count: u64, rest_ns: Ns) -> Crossing {
        let wire_bytes = count * config.read_wire_bytes(bytes);
        let up_ns = config.line_ns(count * request_wire_bytes(bytes));
        let down_ns = config.line_ns(wire_bytes) - up_ns;
        Crossing { class, payload_bytes: count * bytes, wire_bytes, up_ns, down_ns, rest_ns }
    }

    /// The host's store of `bytes` bytes at `address` of the CXL.mem port, with the flush of its cache lines: a flit a
    /// line. Reading a line for ownership is not counted.
    pub(super) fn lines(config: &LinkConfig, address: u64, bytes: u32) -> Crossing {
        let lines = ((address % LINE_BYTES) + u64::from(bytes)).div_ceil(LINE_BYTES);
        let flit_bytes = lines * FLIT_BYTES;
        let down_ns = config.line_ns(flit_bytes);
        let all_ns = config.cxl_store_ns + lines * config.cxl_line_ns;
        Crossing {
            class: Class::Cxl,
            payload_bytes: flit_bytes,
            wire_bytes: flit_bytes,
            up_ns: 0,
            down_ns,
            rest_ns: all_ns.saturating_sub(down_ns),
        }
    }
}

/// The crossings that every command makes, computed once: their divisions would be a large part of a
/// command's cost.
pub(super) struct Fixed {
    pub(super) doorbell: Crossing,
    pub(super) sqe: Crossing,
    pub(super) cqe: Crossing,
    pub(super) page_to_drive: Crossing,
    pub(super) page_to_host: Crossing,
    pub(super) interrupt_wire_bytes: u64,
}

impl Fixed {
    pub(super) fn new(config: &LinkConfig) -> Fixed {
        let page_bytes = u64::from(PAGE_BYTES);
        Fixed {
            doorbell: Crossing::write_down(config, Class::Mmio, DOORBELL_BYTES, config.doorbell_ns),
            sqe: Crossing::read(config, Class::Sqe, Sqe::BYTES as u64, config.sqe_fetch_ns),
            cqe: Crossing::write_up(config, Class::Cqe, Cqe::BYTES as u64, config.cqe_write_ns),
            page_to_drive: Crossing::read(config, Class::ToDrive, page_bytes, config.dma_page_ns),
            page_to_host: Crossing::write_up(config, Class::ToHost, page_bytes, config.dma_page_ns),
            interrupt_wire_bytes: config.write_wire_bytes(INTERRUPT_WIRE_BYTES),
        }
    }
}
