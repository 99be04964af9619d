//! How a drive's flash is divided, and the addresses that follow from it.
//!
//! ```text
//!   channel ── die ── plane ── block ── page (data + spare)
//! ```
//!
//! A *unit* runs one operation at a time: one plane of one die (planes of a die are independent here). Dies
//! are numbered channel first, so that neighbouring dies are on different channels:
//!
//! ```text
//!   die  = way * channels + channel          channel = die % channels
//!   BlockId = die * blocks_per_die + block   unit    = die * planes + block % planes
//!   Ppa  = BlockId * pages_per_block + page
//! ```
//!
//! Spare blocks are numbered after all other blocks, unit by unit, so that an address means the same whatever
//! their number:
//!
//! ```text
//!   spare block i of a unit  BlockId = blocks + unit * spare_blocks + i
//! ```
//!
//! Addresses are flat 32-bit numbers: 2^32 - 2 pages of 16 KiB are 64 TiB. No state and no time here.

use serde::{Deserialize, Serialize};

/// Physical page address: a flat number over all pages of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ppa(pub u32);

/// A block: the unit of erasing. A flat number over all blocks of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// The division of a drive's flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// Channels (buses) that move data at the same time.
    pub channels: u32,
    /// Dies on one channel.
    pub dies_per_channel: u32,
    /// Planes of a die, each busy on its own.
    pub planes: u32,
    /// Blocks of one die, all planes together.
    pub blocks_per_die: u32,
    /// Pages of a block, programmed in order.
    pub pages_per_block: u32,
    /// Data bytes of a page.
    pub page_bytes: u32,
    /// Bytes beside the data of a page, for the drive's own header.
    pub spare_bytes: u32,
    /// Spare blocks of a unit, besides those above: each can replace a block of its unit that went bad
    /// ([`crate::bad_blocks`]). No owner of flash addresses them.
    pub spare_blocks: u32,
}

impl Geometry {
    /// Dies of the drive.
    pub fn dies(&self) -> u32 {
        self.channels * self.dies_per_channel
    }

    /// Units of the drive: the number of operations that can sense, program or erase at the same time.
    pub fn units(&self) -> u32 {
        self.dies() * self.planes
    }

    /// Blocks of one unit.
    pub fn blocks_per_unit(&self) -> u32 {
        self.blocks_per_die / self.planes
    }

    /// Blocks of the drive.
    pub fn blocks(&self) -> u32 {
        self.dies() * self.blocks_per_die
    }

    /// Spare blocks of the drive.
    pub fn all_spare_blocks(&self) -> u32 {
        self.units() * self.spare_blocks
    }

    /// Blocks of a medium: those of the drive, followed by the spare blocks, unit by unit.
    pub fn media_blocks(&self) -> u32 {
        self.blocks() + self.all_spare_blocks()
    }

    /// Spare block number `index` of `unit`, `index` below `spare_blocks`.
    pub fn spare_block(&self, unit: u32, index: u32) -> BlockId {
        BlockId(self.blocks() + unit * self.spare_blocks + index)
    }

    /// Pages of the drive.
    pub fn pages(&self) -> u64 {
        u64::from(self.blocks()) * u64::from(self.pages_per_block)
    }

    /// Data bytes of the drive.
    pub fn data_bytes(&self) -> u64 {
        self.pages() * u64::from(self.page_bytes)
    }

    /// The block that holds `ppa`.
    pub fn block_of(&self, ppa: Ppa) -> BlockId {
        BlockId(ppa.0 / self.pages_per_block)
    }

    /// The position of `ppa` within its block.
    pub fn page_of(&self, ppa: Ppa) -> u32 {
        ppa.0 % self.pages_per_block
    }

    /// The die that holds `block`.
    pub fn die_of(&self, block: BlockId) -> u32 {
        block.0 / self.blocks_per_die
    }

    /// The unit that holds `block`.
    pub fn unit_of(&self, block: BlockId) -> u32 {
        self.die_of(block) * self.planes + block.0 % self.blocks_per_die % self.planes
    }

    /// The channel that leads to `block`.
    pub fn channel_of(&self, block: BlockId) -> u32 {
        self.die_of(block) % self.channels
    }

    /// Page `page` of `block`.
    pub fn ppa(&self, block: BlockId, page: u32) -> Ppa {
        Ppa(block.0 * self.pages_per_block + page)
    }

    /// Block number `index` of `unit`, `index` below [`Geometry::blocks_per_unit`].
    pub fn block_of_unit(&self, unit: u32, index: u32) -> BlockId {
        BlockId(unit / self.planes * self.blocks_per_die + index * self.planes + unit % self.planes)
    }

    /// Checks the geometry. The error names a field and its allowed values.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let sizes = [
            ("channels", self.channels, 1, 1024),
            ("dies_per_channel", self.dies_per_channel, 1, 1024),
            ("planes", self.planes, 1, 16),
            ("blocks_per_die", self.blocks_per_die, 1, 1 << 24),
            ("pages_per_block", self.pages_per_block, 1, 1 << 16),
            ("page_bytes", self.page_bytes, 512, 1 << 20),
            ("spare_bytes", self.spare_bytes, 0, 1 << 20),
            ("spare_blocks", self.spare_blocks, 0, 1 << 16),
        ];
        for (name, value, low, high) in sizes {
            if value < low || value > high {
                return Err((name, format!("is {value}, must be {low} to {high}")));
            }
        }
        if !self.blocks_per_die.is_multiple_of(self.planes) {
            return Err(("blocks_per_die", format!("must be a multiple of the {} planes", self.planes)));
        }
        let blocks_per_die =
            u64::from(self.blocks_per_die) + u64::from(self.planes) * u64::from(self.spare_blocks);
        let dies = u64::from(self.channels) * u64::from(self.dies_per_channel);
        let pages = dies * blocks_per_die * u64::from(self.pages_per_block);
        if pages > u64::from(u32::MAX) - 1 {
            return Err((
                "blocks_per_die",
                format!("gives {pages} pages, must be less than 2^32 - 1 in all"),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_split_and_join() {
        let geometry = Geometry {
            channels: 4,
            dies_per_channel: 2,
            planes: 2,
            blocks_per_die: 6,
            pages_per_block: 5,
            page_bytes: 4096,
            spare_bytes: 256,
            spare_blocks: 2,
        };
        geometry.check().unwrap();
        assert_eq!(
            (geometry.dies(), geometry.units(), geometry.blocks(), geometry.pages()),
            (8, 16, 48, 240)
        );
        let mut seen = vec![false; geometry.blocks() as usize];
        for unit in 0..geometry.units() {
            for index in 0..geometry.blocks_per_unit() {
                let block = geometry.block_of_unit(unit, index);
                assert_eq!(geometry.unit_of(block), unit);
                assert_eq!(geometry.die_of(block), unit / 2);
                assert!(!std::mem::replace(&mut seen[block.0 as usize], true));
                let ppa = geometry.ppa(block, 3);
                assert_eq!((geometry.block_of(ppa), geometry.page_of(ppa)), (block, 3));
            }
        }
        assert!(seen.iter().all(|seen| *seen));
        assert_eq!((geometry.spare_block(0, 0), geometry.spare_block(15, 1)), (BlockId(48), BlockId(79)));
        assert_eq!(geometry.media_blocks(), 80);
        // Neighbouring dies are on different channels.
        assert_eq!(geometry.channel_of(BlockId(0)), 0);
        assert_eq!(geometry.channel_of(BlockId(6)), 1);
        assert_eq!(geometry.channel_of(BlockId(4 * 6)), 0);
    }

    #[test]
    fn a_drive_beyond_32_bit_pages_is_refused() {
        let geometry = Geometry {
            channels: 16,
            dies_per_channel: 16,
            planes: 1,
            blocks_per_die: 1 << 20,
            pages_per_block: 256,
            page_bytes: 4096,
            spare_bytes: 256,
            spare_blocks: 2,
        };
        assert_eq!(geometry.check().unwrap_err().0, "blocks_per_die");
    }
}
