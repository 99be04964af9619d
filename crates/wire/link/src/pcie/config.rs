//! The link's part of a profile, and the wire bytes and line time of a crossing that follow from it.
//!
//! Wire bytes are those of the transaction and data link layers:
//!
//! ```text
//!   memory write   | framing, sequence, LCRC 8 | header 16 | data <= max payload |
//!   memory read    | framing, sequence, LCRC 8 | header 16 |                        one per 512 bytes
//!   completion     | framing, sequence, LCRC 8 | header 12 | data <= max payload |
//!   Ack, UpdateFC  | 8 each, one of both for every 4 packets: 4 bytes a packet (an assumption)
//! ```

use kvdrive_declare::{Section, Words};
use kvdrive_sim::Ns;

use crate::transfer::{BY_WINDOW, PAIRS};

const LINK_LAYER_BYTES: u64 = 8 + 4;
const REQUEST_HEADER_BYTES: u64 = 16;
const COMPLETION_HEADER_BYTES: u64 = 12;
const READ_REQUEST_BYTES: u64 = 512;

/// The link's part of a profile: section `[link]`.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("link", default)]
pub struct LinkConfig {
    /// PCIe generation, 1 to 5.
    #[setting(is = Integer(1, 5))]
    pub generation: u32,
    /// Lanes, 1 to 16.
    #[setting(is = PowerOfTwo(1, 16))]
    pub lanes: u32,
    /// Largest payload of one packet in bytes.
    #[setting(is = PowerOfTwo(128, 4096))]
    pub max_payload_bytes: u32,
    /// Time to move one page by DMA, besides its line time, ns. A part of a page takes as long: no source gives a
    /// shorter time, and a smaller constant would only make byte-exact DMA look better.
    #[setting(is = TIME)]
    pub dma_page_ns: Ns,
    /// Round trip of fetching a submission entry or a list page, besides its line time, ns.
    #[setting(is = TIME)]
    pub sqe_fetch_ns: Ns,
    /// Latency of a completion entry, besides its line time, ns.
    #[setting(is = TIME)]
    pub cqe_write_ns: Ns,
    /// Time from the host's store to a doorbell until the drive sees it, besides its line time, ns.
    #[setting(is = TIME)]
    pub doorbell_ns: Ns,
    /// `msix`: the drive sends an interrupt with each completion; `none`: the host polls.
    pub interrupt: Interrupt,
    /// Unit in which the DMA engine moves bytes for an SGL: 4096, 4 or 1. PRPs always move whole pages. A small unit
    /// saves bytes and their line time, but nothing of `link.dma_page_ns` and `link.sgl_block_ns`.
    #[setting(is = OneOf(&[1, 4, 4096]), key = "controller.dma_granularity_bytes")]
    pub dma_granularity_bytes: u32,
    /// Time to set up a DMA that a data block of an SGL describes, besides that of its pages, ns: what enabling SGLs costs.
    /// Data of network hosts, whose only descriptors are SGLs, do not take it.
    #[setting(is = TIME)]
    pub sgl_block_ns: Ns,
    /// Time by which a whole page of such a DMA takes less than `link.dma_page_ns`, ns; at most that. The engine goes on
    /// in consecutive memory, whereas by PRPs each page is a DMA.
    #[setting(is = TIME)]
    pub sgl_page_saves_ns: Ns,
    /// Whether data to the host cross the link in no time, only to study a published emulator. Their bytes are still
    /// counted.
    pub free_to_host: bool,
    /// Time that the host waits for a store by CXL.mem and its flush, besides the time of each cache line, ns.
    #[setting(is = TIME, when = &[PAIRS, BY_WINDOW])]
    pub cxl_store_ns: Ns,
    /// Time that the host waits for each cache line of a store by CXL.mem, ns.
    #[setting(is = TIME, when = &[PAIRS, BY_WINDOW])]
    pub cxl_line_ns: Ns,
}

/// Does the drive send an interrupt with each completion?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum Interrupt {
    /// No: the host polls.
    None,
    /// It does.
    Msix,
}

impl LinkConfig {
    /// Data rate of all lanes after line coding, in kB/s (PCI Express base specification: 8b/10b for
    /// generations 1 and 2, 128b/130b from generation 3 on).
    fn rate_kb_s(&self) -> u64 {
        let lane = match self.generation {
            1 => 250_000,
            2 => 500_000,
            3 => 984_615,
            4 => 1_969_231,
            _ => 3_938_462,
        };
        lane * u64::from(self.lanes)
    }

    /// Time of `wire_bytes` on the line, ns, rounded up.
    pub fn line_ns(&self, wire_bytes: u64) -> Ns {
        (wire_bytes * 1_000_000).div_ceil(self.rate_kb_s())
    }

    fn packets(&self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.max_payload_bytes))
    }

    /// Wire bytes of a posted write of `bytes`.
    pub fn write_wire_bytes(&self, bytes: u64) -> u64 {
        bytes + self.packets(bytes) * (REQUEST_HEADER_BYTES + LINK_LAYER_BYTES)
    }

    /// Wire bytes of a read of `bytes`: requests in one direction, completions with data in the other.
    pub fn read_wire_bytes(&self, bytes: u64) -> u64 {
        let completions = self.packets(bytes) * (COMPLETION_HEADER_BYTES + LINK_LAYER_BYTES);
        request_wire_bytes(bytes) + bytes + completions
    }
}

/// Wire bytes of the requests of a read of `bytes`.
pub(super) fn request_wire_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(READ_REQUEST_BYTES) * (REQUEST_HEADER_BYTES + LINK_LAYER_BYTES)
}
