//! Addresses of a hash engine: grains, read units, pages and superblocks. Arithmetic only.
//!
//! ```text
//!   superblock   the block with one index in every unit (plane) of the drive: what is opened, collected and erased
//!   page         a flash page; pages of a superblock go round the units: page i lies on unit i % units
//!   unit         4 KiB of a page: what a lookup reads (the papers' "page")
//!   grain        the least space of a pair: 512 B in `original`, 64 B in `plus` and `plus2`
//! ```

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_flash::{BlockId, Geometry, Ppa};
use strength_reduce::{StrengthReducedU32, StrengthReducedU64};

/// Address of a grain: a flat number over all grains of the drive, superblock by superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
pub struct Grain(pub u64);

/// Low bits of a directory word on flash: the number of grains of the section.
const GRAINS_BITS: u32 = 8;

/// Location of a section on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// First grain.
    pub grain: Grain,
    /// Number of grains.
    pub grains: u32,
}

impl Location {
    /// The location as a number, which is never 0.
    pub(super) fn word(self) -> u64 {
        self.grain.0 << GRAINS_BITS | u64::from(self.grains)
    }

    /// The location for a number.
    pub(super) fn of_word(word: u64) -> Location {
        Location { grain: Grain(word >> GRAINS_BITS), grains: (word & ((1 << GRAINS_BITS) - 1)) as u32 }
    }
}

/// Division of a drive into grains, read units, pages and superblocks.
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
    by: Divisors,
}

/// Divisors of addresses, as multiplications and shifts: divisions took a tenth of the machine's time for a
/// store.
#[derive(Clone, Copy, Debug)]
struct Divisors {
    grain_bytes: StrengthReducedU32,
    unit_bytes: StrengthReducedU32,
    unit_grains: StrengthReducedU32,
    page_grains: StrengthReducedU64,
    superblock_pages: StrengthReducedU32,
    superblock_grains: StrengthReducedU64,
    units: StrengthReducedU32,
}

impl Layout {
    /// The layout of a drive. The configuration has been checked: grains divide units, units divide pages.
    pub fn new(geometry: Geometry, grain_bytes: u32, unit_bytes: u32) -> Layout {
        assert!(unit_bytes.is_multiple_of(grain_bytes) && geometry.page_bytes.is_multiple_of(unit_bytes));
        let page_grains = geometry.page_bytes / grain_bytes;
        let superblock_pages = geometry.units() * geometry.pages_per_block;
        let (unit_grains, superblock_grains) = (unit_bytes / grain_bytes, superblock_pages * page_grains);
        let by = Divisors {
            grain_bytes: StrengthReducedU32::new(grain_bytes),
            unit_bytes: StrengthReducedU32::new(unit_bytes),
            unit_grains: StrengthReducedU32::new(unit_grains),
            page_grains: StrengthReducedU64::new(page_grains.into()),
            superblock_pages: StrengthReducedU32::new(superblock_pages),
            superblock_grains: StrengthReducedU64::new(superblock_grains.into()),
            units: StrengthReducedU32::new(geometry.units()),
        };
        Layout {
            geometry,
            grain_bytes,
            unit_bytes,
            unit_grains,
            page_grains,
            superblock_pages,
            superblock_grains,
            superblocks: geometry.blocks_per_unit(),
            by,
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
        (bytes + self.grain_bytes - 1) / self.by.grain_bytes
    }

    /// Grain number `at` of a superblock.
    pub fn grain(&self, superblock: u32, at: u32) -> Grain {
        Grain(u64::from(superblock) * u64::from(self.superblock_grains) + u64::from(at))
    }

    /// The superblock of a grain.
    pub fn superblock(&self, grain: Grain) -> u32 {
        (grain.0 / self.by.superblock_grains) as u32
    }

    /// The number of a grain within its superblock.
    pub fn within(&self, grain: Grain) -> u32 {
        (grain.0 % self.by.superblock_grains) as u32
    }

    /// The page of a grain: a flat number over all pages, superblock by superblock.
    pub fn page(&self, grain: Grain) -> u32 {
        (grain.0 / self.by.page_grains) as u32
    }

    /// Offset of a grain in its page, bytes.
    pub fn byte_in_page(&self, grain: Grain) -> u32 {
        (grain.0 % self.by.page_grains) as u32 * self.grain_bytes
    }

    /// Offset of the read unit that holds byte `at` of a page, bytes.
    pub fn unit_begin(&self, at: u32) -> u32 {
        at / self.by.unit_bytes * self.unit_bytes
    }

    /// Page, counted from the superblock's first, and place in it of grain number `at` of a superblock.
    pub fn in_page(&self, at: u32) -> (u32, u32) {
        let (page, grain) = StrengthReducedU64::div_rem(at.into(), self.by.page_grains);
        (page as u32, grain as u32)
    }

    /// Grains from grain number `at` of a superblock to the end of its page: all of them where a page begins.
    pub fn left_in_page(&self, at: u32) -> u32 {
        self.page_grains - self.in_page(at).1
    }

    /// Grains from grain number `at` of a superblock, or of a page, to the end of its read unit.
    pub fn left_in_unit(&self, at: u32) -> u32 {
        self.unit_grains - at % self.by.unit_grains
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
        page / self.by.superblock_pages
    }

    /// Which unit a page lies on.
    pub fn unit_of_page(&self, page: u32) -> u32 {
        page % self.by.superblock_pages % self.by.units
    }

    /// Where a page lies on flash.
    pub fn ppa(&self, page: u32) -> Ppa {
        let (superblock, index) = StrengthReducedU32::div_rem(page, self.by.superblock_pages);
        let (row, unit) = StrengthReducedU32::div_rem(index, self.by.units);
        self.geometry.ppa(self.block(superblock, unit), row)
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
            spare_blocks: 0,
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
            assert_eq!(layout.superblock_of_page(page), page / 12);
            assert_eq!(layout.in_page(layout.within(grain)), (page % 12, 0));
        }
        assert!(next.iter().all(|pages| *pages == 3));
    }
}
