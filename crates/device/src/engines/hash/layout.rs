//! Addresses of a hash engine: grains, read units, pages and superblocks. Arithmetic only.
//!
//! ```text
//!   superblock   the block with one index in every unit (plane) of the drive: what is opened, collected and erased
//!   page         a flash page; pages of a superblock go round the units: page i lies on unit i % units
//!   unit         4 KiB of a page: what a lookup reads (the papers' "page")
//!   grain        the least space of a pair: 512 B in `original`, 64 B in `plus` and `plus2`
//! ```

use crate::flash::{BlockId, Geometry, Ppa};

/// Address of a grain: a flat number over all grains of the drive, superblock by superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grain(pub u64);

/// How a drive is divided for a hash engine.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    geometry: Geometry,
    /// Bytes of a grain.
    pub grain_bytes: u32,
    /// Bytes of a read unit.
    pub unit_bytes: u32,
    /// Grains of a read unit.
    pub unit_grains: u32,
    /// Grains of a flash page.
    pub page_grains: u32,
    /// Pages of a superblock.
    pub superblock_pages: u32,
    /// Grains of a superblock.
    pub superblock_grains: u32,
    /// Superblocks of the drive.
    pub superblocks: u32,
}

impl Layout {
    /// The layout of a drive. Grains divide units, units divide pages; the configuration was checked for that.
    pub fn new(geometry: Geometry, grain_bytes: u32, unit_bytes: u32) -> Layout {
        assert!(unit_bytes.is_multiple_of(grain_bytes) && geometry.page_bytes.is_multiple_of(unit_bytes));
        let page_grains = geometry.page_bytes / grain_bytes;
        let superblock_pages = geometry.units() * geometry.pages_per_block;
        Layout {
            geometry,
            grain_bytes,
            unit_bytes,
            unit_grains: unit_bytes / grain_bytes,
            page_grains,
            superblock_pages,
            superblock_grains: superblock_pages * page_grains,
            superblocks: geometry.blocks_per_unit(),
        }
    }

    /// Grains of the drive.
    pub fn grains(&self) -> u64 {
        u64::from(self.superblocks) * u64::from(self.superblock_grains)
    }

    /// Units (planes) of the drive: blocks of a superblock.
    pub fn units(&self) -> u32 {
        self.geometry.units()
    }

    /// Bytes of a flash page.
    pub fn page_bytes(&self) -> u32 {
        self.geometry.page_bytes
    }

    /// Grains that `bytes` bytes take.
    pub fn grains_of(&self, bytes: u32) -> u32 {
        bytes.div_ceil(self.grain_bytes)
    }

    /// Grain number `at` of a superblock.
    pub fn grain(&self, superblock: u32, at: u32) -> Grain {
        Grain(u64::from(superblock) * u64::from(self.superblock_grains) + u64::from(at))
    }

    /// The superblock of a grain.
    pub fn superblock(&self, grain: Grain) -> u32 {
        (grain.0 / u64::from(self.superblock_grains)) as u32
    }

    /// The number of a grain within its superblock.
    pub fn within(&self, grain: Grain) -> u32 {
        (grain.0 % u64::from(self.superblock_grains)) as u32
    }

    /// The page of a grain: a flat number over all pages, superblock by superblock.
    pub fn page(&self, grain: Grain) -> u32 {
        (grain.0 / u64::from(self.page_grains)) as u32
    }

    /// Where a grain begins in its page, bytes.
    pub fn byte_in_page(&self, grain: Grain) -> u32 {
        (grain.0 % u64::from(self.page_grains)) as u32 * self.grain_bytes
    }

    /// The first page of a superblock.
    pub fn first_page(&self, superblock: u32) -> u32 {
        superblock * self.superblock_pages
    }

    /// The first grain of a page.
    pub fn first_grain(&self, page: u32) -> Grain {
        Grain(u64::from(page) * u64::from(self.page_grains))
    }

    /// The superblock of a page.
    pub fn superblock_of_page(&self, page: u32) -> u32 {
        page / self.superblock_pages
    }

    /// Which unit a page lies on.
    pub fn unit_of_page(&self, page: u32) -> u32 {
        page % self.superblock_pages % self.units()
    }

    /// Where a page lies on flash.
    pub fn ppa(&self, page: u32) -> Ppa {
        let index = page % self.superblock_pages;
        let block = self.block(self.superblock_of_page(page), index % self.units());
        self.geometry.ppa(block, index / self.units())
    }

    /// The block of a superblock on one unit.
    pub fn block(&self, superblock: u32, unit: u32) -> BlockId {
        self.geometry.block_of_unit(unit, superblock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_superblock_fill_its_blocks_in_order() {
        let geometry = Geometry {
            channels: 2,
            dies_per_channel: 1,
            planes: 2,
            blocks_per_die: 6,
            pages_per_block: 3,
            page_bytes: 8192,
            spare_bytes: 256,
        };
        let layout = Layout::new(geometry, 512, 4096);
        assert_eq!((layout.superblocks, layout.superblock_pages, layout.page_grains), (3, 12, 16));
        let mut next = vec![0; geometry.blocks() as usize];
        for page in 0..36 {
            let ppa = layout.ppa(page);
            let block = geometry.block_of(ppa);
            assert_eq!(geometry.page_of(ppa), next[block.0 as usize]);
            next[block.0 as usize] += 1;
            assert_eq!(geometry.unit_of(block), layout.unit_of_page(page));
            let grain = layout.first_grain(page);
            assert_eq!((layout.page(grain), layout.byte_in_page(grain)), (page, 0));
            assert_eq!(layout.superblock(grain), page / 12);
        }
        assert!(next.iter().all(|pages| *pages == 3));
    }
}
