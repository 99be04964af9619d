//! Small drives for tests of the modules above flash.

use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_flash::ftl::{Ftl, FtlConfig, Lpa};
use kvdrive_flash::media::{self, MediaOptions};
use kvdrive_flash::{FlashConfig, FlashPort, Purpose};
use kvdrive_nvme::Status;
use kvdrive_sim::{Ns, Sim};

/// Page size of these drives, bytes.
pub const PAGE_BYTES: u32 = 16384;
/// Least time of a program, ns.
pub const PROGRAM_NS: Ns = 600_000;

/// Four dies of 256 pages.
pub fn flash_config() -> FlashConfig {
    FlashConfig {
        channels: 2,
        dies_per_channel: 2,
        blocks_per_die: 32,
        pages_per_block: 8,
        page_bytes: PAGE_BYTES,
        spare_bytes: 512,
        sense_ns: 60_000,
        program_ns: PROGRAM_NS,
        erase_ns: 3_000_000,
        transfer_ns_per_kib: 2_500,
        ..FlashConfig::default()
    }
}

/// The page mapping of these drives.
pub fn ftl_config() -> FtlConfig {
    FtlConfig { over_provisioning: 0.1, victim: "greedy".to_owned(), gc_low_blocks: 2, placement_dies: 2 }
}

/// A small drive's FTL.
pub fn ftl(sim: &Sim) -> Ftl {
    let config = flash_config();
    let kind = media::kind("tags").unwrap();
    let media = (kind.open)(&config.geometry(), &MediaOptions::default()).unwrap();
    Ftl::new(FlashPort::new(sim, config, media), &ftl_config())
}

/// State below the buffer, which tests read directly.
pub trait BelowBuffer {
    /// Does flash have a version of this page?
    fn is_mapped_page(&self, lpa: u32) -> bool;
    /// The content of the page on flash.
    fn read_page(&self, lpa: u32) -> Result<Rc<Region>, Status>;
}

impl BelowBuffer for Ftl {
    fn is_mapped_page(&self, lpa: u32) -> bool {
        self.is_mapped(Lpa(lpa))
    }
    fn read_page(&self, lpa: u32) -> Result<Rc<Region>, Status> {
        self.read(Lpa(lpa), Purpose::Lookup)
    }
}
