//! The table of bad blocks: which blocks have gone bad, which spare block replaces each, and which dies are
//! lost.
//!
//! ```text
//!   owner's block 17 ──► medium's block 17            as long as it is good
//!                   └──► spare block 0 of its unit    once it has gone bad
//! ```
//!
//! An owner of flash ([`crate::ftl`], an engine) addresses blocks that do not go bad: the port exchanges a
//! block that goes bad for a spare block of the same unit, so that the same operations can run concurrently
//! as before. A spare block that fails is given up, and the next one replaces it. Every retired block has
//! cost one spare block, so the table is a list of the spare blocks. When a unit has no spare block left, the
//! drive is read-only for good. A lost die has lost its spare blocks with all others; the owner of flash
//! learns of it page by page.
//!
//! *Where it lives.* A medium keeps the table outside of the geometry, as drives keep theirs in blocks that
//! the manufacturer guarantees. There are two copies, written one after the other, so that a power cut leaves
//! the old table or the new one.
//!
//! ```text
//!   0           8                 12        16                      16 + 4 n         16 + 4 (n + m)
//!   +-----------+-----------------+---------+-----------------------+----------------+-----------+
//!   | "KVDBADB2"| flags u32       | n u32   | n x u32               | m x u32        | check u64 |
//!   +-----------+-----------------+---------+-----------------------+----------------+-----------+
//!     flags: bit 0, the drive is read-only
//!     by spare block, unit by unit: FFFFFFFFh free, FFFFFFFEh bad, else the block it stands for
//!     by die, 32 a word from bit 0 on: 1, it answers no more
//! ```

use std::collections::{BTreeMap, BTreeSet};

use xxhash_rust::xxh3::xxh3_64;

use super::geometry::{BlockId, Geometry, Ppa};
use super::versions::{Unread, other_version};

const MAGIC: &[u8; 7] = b"KVDBADB";
/// The version of tables that this program writes and reads, a digit behind the magic. Later versions keep its place, the
/// length of the table and the check at its end.
const VERSION: u8 = 2;
const HEAD_BYTES: usize = 16;
const CHECK_BYTES: usize = 8;
const FLAG_READ_ONLY: u32 = 1;
const FREE: u32 = u32::MAX;
const BAD: u32 = u32::MAX - 1;

/// The use of a spare block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    /// The spare block went bad itself.
    Bad,
    /// The spare block replaces this block.
    For(BlockId),
}

/// The table of one drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadBlocks {
    geometry: Geometry,
    /// By spare block, unit by unit.
    spares: Vec<Use>,
    /// The first free spare block of each unit; a used spare block never becomes free again.
    first_free: Vec<u32>,
    /// The spare block that replaces a block, by that block.
    standing: BTreeMap<u32, BlockId>,
    lost_dies: BTreeSet<u32>,
    is_read_only: bool,
}

impl BadBlocks {
    /// The table of a drive on which nothing has failed.
    pub fn none(geometry: &Geometry) -> BadBlocks {
        BadBlocks {
            geometry: *geometry,
            spares: vec![Use::Free; geometry.all_spare_blocks() as usize],
            first_free: vec![0; geometry.units() as usize],
            standing: BTreeMap::new(),
            lost_dies: BTreeSet::new(),
            is_read_only: false,
        }
    }

    /// Is the table empty: no block retired?
    pub fn is_empty(&self) -> bool {
        self.standing.is_empty()
    }

    /// The medium's block for an owner's block.
    pub fn block(&self, block: BlockId) -> BlockId {
        self.standing.get(&block.0).copied().unwrap_or(block)
    }

    /// The medium's page for an owner's page.
    pub fn page(&self, ppa: Ppa) -> Ppa {
        let block = self.geometry.block_of(ppa);
        self.geometry.ppa(self.block(block), self.geometry.page_of(ppa))
    }

    /// The next free spare block of a unit.
    pub fn free_spare(&self, unit: u32) -> Option<BlockId> {
        let first = self.first_free[unit as usize];
        (first < self.geometry.spare_blocks).then(|| self.geometry.spare_block(unit, first))
    }

    /// Records that a spare block failed before it could replace another block.
    pub fn give_up(&mut self, spare: BlockId) {
        self.set(spare, Use::Bad);
    }

    /// Makes `spare` replace `block` from now on. The block that replaced it before has gone bad.
    pub fn replace(&mut self, block: BlockId, spare: BlockId) {
        if let Some(before) = self.standing.insert(block.0, spare) {
            self.give_up(before);
        }
        assert_eq!(self.spares[self.index(spare)], Use::Free, "spare block {} is in use", spare.0);
        self.set(spare, Use::For(block));
    }

    fn set(&mut self, spare: BlockId, used: Use) {
        let index = self.index(spare);
        self.spares[index] = used;
        let each = self.geometry.spare_blocks as usize;
        let of_unit = &self.spares[index / each * each..][..each];
        let first = of_unit.iter().skip(self.first_free[index / each] as usize);
        self.first_free[index / each] += first.take_while(|used| **used != Use::Free).count() as u32;
    }

    /// Marks a die as lost.
    pub fn lose_die(&mut self, die: u32) {
        self.lost_dies.insert(die);
    }

    /// Marks the dies that are lost in another table as lost in this one, too.
    pub fn lose_dies_of(&mut self, other: &BadBlocks) {
        self.lost_dies.extend(&other.lost_dies);
    }

    /// Lost dies.
    pub fn lost_dies(&self) -> &BTreeSet<u32> {
        &self.lost_dies
    }

    /// Records that a unit needed a spare block and had none: nothing is written any more.
    pub fn make_read_only(&mut self) {
        self.is_read_only = true;
    }

    /// Has a unit needed a spare block and had none?
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Spare blocks that are free.
    pub fn free_spares(&self) -> u32 {
        self.spares.iter().filter(|spare| **spare == Use::Free).count() as u32
    }

    /// Retired blocks, including spare blocks: each has used up a spare block.
    pub fn retired(&self) -> u32 {
        self.spares.len() as u32 - self.free_spares()
    }

    fn index(&self, spare: BlockId) -> usize {
        (spare.0 - self.geometry.blocks()) as usize
    }

    /// Size of [`BadBlocks::to_bytes`], whatever the table contains.
    pub fn bytes(geometry: &Geometry) -> usize {
        HEAD_BYTES + (geometry.all_spare_blocks() + die_words(geometry)) as usize * 4 + CHECK_BYTES
    }

    /// The table as media store it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BadBlocks::bytes(&self.geometry));
        out.extend_from_slice(MAGIC);
        out.push(b'0' + VERSION);
        out.extend_from_slice(&(if self.is_read_only { FLAG_READ_ONLY } else { 0 }).to_le_bytes());
        out.extend_from_slice(&(self.spares.len() as u32).to_le_bytes());
        for spare in &self.spares {
            let word = match spare {
                Use::Free => FREE,
                Use::Bad => BAD,
                Use::For(block) => block.0,
            };
            out.extend_from_slice(&word.to_le_bytes());
        }
        let mut dies = vec![0u32; die_words(&self.geometry) as usize];
        self.lost_dies.iter().for_each(|die| dies[(die / 32) as usize] |= 1 << (die % 32));
        dies.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        out.extend_from_slice(&xxh3_64(&out).to_le_bytes());
        out
    }

    /// Reads [`BadBlocks::to_bytes`] of a drive of `geometry`.
    ///
    /// # Errors
    /// The bytes are no table of such a drive, or one of another version.
    pub fn from_bytes(geometry: &Geometry, bytes: &[u8]) -> Result<BadBlocks, Unread> {
        let split = bytes.split_at_checked(BadBlocks::bytes(geometry) - CHECK_BYTES);
        let (body, check) = split.ok_or(Unread::Damaged)?;
        let digit = body.strip_prefix(MAGIC).and_then(<[u8]>::first).filter(|digit| digit.is_ascii_digit());
        match digit {
            Some(digit) if check == xxh3_64(body).to_le_bytes() => match digit - b'0' {
                VERSION => BadBlocks::of_body(geometry, body).ok_or(Unread::Damaged),
                other => Err(Unread::Version(other)),
            },
            _ => Err(Unread::Damaged),
        }
    }

    /// The table in `body`, whose check is right; `None` if it cannot be one of such a drive.
    fn of_body(geometry: &Geometry, body: &[u8]) -> Option<BadBlocks> {
        let word = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().expect("4 bytes"));
        let mut table = BadBlocks::none(geometry);
        if word(8) > FLAG_READ_ONLY || word(12) as usize != table.spares.len() {
            return None;
        }
        table.is_read_only = word(8) == FLAG_READ_ONLY;
        for index in 0..table.spares.len() {
            let spare = BlockId(geometry.blocks() + index as u32);
            match word(HEAD_BYTES + 4 * index) {
                FREE => {}
                BAD => table.give_up(spare),
                block => {
                    let of_its_unit = block < geometry.blocks()
                        && geometry.unit_of(BlockId(block)) == index as u32 / geometry.spare_blocks;
                    if !of_its_unit || table.standing.contains_key(&block) {
                        return None;
                    }
                    table.replace(BlockId(block), spare);
                }
            }
        }
        let dies_at = HEAD_BYTES + 4 * table.spares.len();
        for die in 0..32 * die_words(geometry) {
            if word(dies_at + 4 * (die / 32) as usize) >> (die % 32) & 1 != 0 {
                if die >= geometry.dies() {
                    return None;
                }
                table.lose_die(die);
            }
        }
        Some(table)
    }
}

/// Why a table of version `found` is refused.
pub(crate) fn of_another_version(found: u8) -> String {
    other_version("table of bad blocks", found, VERSION)
}

/// Words of the table that have a bit for each die.
fn die_words(geometry: &Geometry) -> u32 {
    geometry.dies().div_ceil(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        Geometry {
            channels: 2,
            dies_per_channel: 1,
            planes: 1,
            blocks_per_die: 4,
            pages_per_block: 8,
            page_bytes: 512,
            spare_bytes: 192,
            spare_blocks: 2,
        }
    }

    #[test]
    fn a_block_is_what_stands_for_it() {
        let mut table = BadBlocks::none(&geometry());
        assert_eq!((table.block(BlockId(5)), table.free_spare(1)), (BlockId(5), Some(BlockId(10))));
        table.replace(BlockId(5), BlockId(10));
        assert_eq!(table.page(Ppa(5 * 8 + 3)), Ppa(10 * 8 + 3));
        assert_eq!((table.retired(), table.free_spares()), (1, 3));
        // The block that replaced it fails, too.
        table.replace(BlockId(5), BlockId(11));
        assert_eq!((table.block(BlockId(5)), table.free_spare(1)), (BlockId(11), None));
        assert_eq!((table.retired(), table.free_spare(0)), (2, Some(BlockId(8))));
        table.give_up(BlockId(8));
        table.lose_die(1);
        table.make_read_only();
        assert_eq!(BadBlocks::from_bytes(&geometry(), &table.to_bytes()), Ok(table));
    }

    #[test]
    fn bytes_of_no_table_are_refused() {
        let mut table = BadBlocks::none(&geometry());
        table.replace(BlockId(5), BlockId(10));
        let good = table.to_bytes();
        for at in 0..good.len() {
            let mut altered = good.clone();
            altered[at] ^= 1;
            assert_eq!(BadBlocks::from_bytes(&geometry(), &altered), Err(Unread::Damaged), "byte {at}");
            assert_eq!(BadBlocks::from_bytes(&geometry(), &good[..at]), Err(Unread::Damaged), "{at} bytes");
        }
        // Complete but wrong tables: a block of another unit, a block twice, one beyond the drive, an unknown
        // flag, a die too many.
        for words in [[(16, 5)].as_slice(), &[(16, 1), (20, 1)], &[(24, 8)], &[(8, 2)], &[(32, 4)]] {
            let mut crafted = BadBlocks::none(&geometry()).to_bytes();
            let end = crafted.len() - CHECK_BYTES;
            for (at, word) in words {
                crafted[*at..*at + 4].copy_from_slice(&u32::to_le_bytes(*word));
            }
            let check = xxh3_64(&crafted[..end]).to_le_bytes();
            crafted[end..].copy_from_slice(&check);
            assert_eq!(BadBlocks::from_bytes(&geometry(), &crafted), Err(Unread::Damaged), "{words:?}");
        }
    }

    #[test]
    fn a_table_of_a_later_version_is_called_that() {
        let mut later = BadBlocks::none(&geometry()).to_bytes();
        later[MAGIC.len()] = b'3';
        let end = later.len() - CHECK_BYTES;
        let check = xxh3_64(&later[..end]).to_le_bytes();
        later[end..].copy_from_slice(&check);
        assert_eq!(BadBlocks::from_bytes(&geometry(), &later), Err(Unread::Version(3)));
    }
}
