//! Host memory of single pages at any address, like that of a real host; and a link over it. Shared by these
//! tests.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::Piece;
use kvdrive_link::{BadAddress, HostMemory, Interrupt, Link, LinkConfig};
use kvdrive_nvme::PAGE_BYTES;
use kvdrive_sim::Sim;

/// Pages by address. Other addresses are not mapped.
#[derive(Default)]
pub struct Scattered(RefCell<BTreeMap<u64, Vec<u8>>>);

impl Scattered {
    /// Maps the zeroed page at `address`.
    pub fn map(&self, address: u64) {
        assert!(address.is_multiple_of(u64::from(PAGE_BYTES)));
        self.0.borrow_mut().insert(address, vec![0; PAGE_BYTES as usize]);
    }

    /// Writes list entries from `address` on, within one page, mapping it if need be.
    pub fn put_list(&self, address: u64, entries: &[u64]) {
        let page = address & !u64::from(PAGE_BYTES - 1);
        if !self.0.borrow().contains_key(&page) {
            self.map(page);
        }
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        self.write(address, Piece::Bytes(&bytes)).expect("one page");
    }

    fn locate(&self, address: u64, bytes: u32) -> Result<(u64, usize), BadAddress> {
        let page = address & !u64::from(PAGE_BYTES - 1);
        let at = (address - page) as usize;
        let inside = at + bytes as usize <= PAGE_BYTES as usize && self.0.borrow().contains_key(&page);
        if inside { Ok((page, at)) } else { Err(BadAddress { address, bytes }) }
    }
}

impl HostMemory for Scattered {
    fn read(&self, address: u64, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) -> Result<(), BadAddress> {
        let (page, at) = self.locate(address, bytes)?;
        sink(Piece::Bytes(&self.0.borrow()[&page][at..at + bytes as usize]));
        Ok(())
    }

    fn write(&self, address: u64, piece: Piece<'_>) -> Result<(), BadAddress> {
        let (page, at) = self.locate(address, piece.bytes())?;
        let mut pages = self.0.borrow_mut();
        let bytes = pages.get_mut(&page).expect("located");
        piece.expand(&mut bytes[at..at + piece.bytes() as usize]);
        Ok(())
    }
}

/// PCIe 2.0 x8 with round numbers for everything but the line.
pub fn config() -> LinkConfig {
    LinkConfig {
        generation: 2,
        lanes: 8,
        max_payload_bytes: 256,
        dma_page_ns: 1_000,
        sqe_fetch_ns: 300,
        cqe_write_ns: 200,
        doorbell_ns: 100,
        interrupt: Interrupt::Msix,
        dma_granularity_bytes: 4096,
        sgl_block_ns: 0,
        sgl_page_saves_ns: 0,
        free_to_host: false,
        cxl_store_ns: 1_000,
        cxl_line_ns: 100,
    }
}

/// A link over `memory`.
pub fn link(sim: &Sim, memory: &Rc<Scattered>) -> Rc<Link> {
    Link::new(sim, config(), memory.clone())
}
