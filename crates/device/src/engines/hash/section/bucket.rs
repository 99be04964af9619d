//! Sections of `plus2`: a bucket of fingerprinted entries.
//!
//! ```text
//!   header 16 B                     cells of 6 B
//!   +-------------------------+    +------------------------------------------+
//!   | form 1: passed; cells   |    | grain + 1, as wide as the drive asks     |
//!   |                         |    | fingerprint in the bits below it         | ...
//!   +-------------------------+    +------------------------------------------+
//! ```
//!
//! A key's hash names a section and a fingerprint; any cell of the section may hold the key. There are so many sections
//! that a drive full of one-grain pairs fills them to six sevenths, so that their length follows the pairs there are
//! and no slot has to be named. A full section is *passed*: the next section takes the pair, and lookups go on there
//! for good. Nothing else outlives a delete; a cell that becomes free takes the next pair, and free cells at the end
//! are dropped.
//!
//! A cell keeps its pair as long as it exists. That is what lets lookups and cursors wait for flash between two cells.

use std::rc::Rc;

use super::{Entry, Format, HEADER_BYTES, Probe, Section, SectionHeader};
use crate::engines::hash::layout::{Grain, Layout};

/// Least bytes of a cell: 32 bits of address and 16 of fingerprint on 128 GiB of 64 B grains. A smaller drive has longer
/// fingerprints rather than shorter cells, so that it behaves as the large one it stands for.
const CELL_BYTES: u32 = 6;
/// Least bits of a fingerprint: one cell in 1024 is another key's with the same one.
const LEAST_TAG_BITS: u32 = 10;
/// Most bits of a fingerprint.
const MOST_TAG_BITS: u32 = 32;
/// In the form byte: stores went on in the next section.
const PASSED: u8 = 1;

/// The format of one drive.
#[derive(Clone, Copy, Debug)]
pub struct BucketFormat {
    grain_bytes: u32,
    cell_bytes: u32,
    tag_bits: u32,
    most_cells: u32,
    sections: u64,
    directory_bytes: u64,
}

impl BucketFormat {
    /// The format of a drive with this layout.
    pub fn new(layout: &Layout) -> BucketFormat {
        let address_bits = 64 - layout.grains().leading_zeros();
        let cell_bytes = (address_bits + LEAST_TAG_BITS).div_ceil(8).max(CELL_BYTES);
        let most_cells = (layout.unit_bytes - HEADER_BYTES as u32) / cell_bytes;
        // A location: its grain, its grains in a read unit, and whether it is one at all.
        let length_bits = 32 - layout.unit_grains.leading_zeros();
        BucketFormat {
            grain_bytes: layout.grain_bytes,
            cell_bytes,
            tag_bits: (8 * cell_bytes - address_bits).min(MOST_TAG_BITS),
            most_cells,
            sections: layout.grains().div_ceil(most_cells.into()),
            directory_bytes: u64::from(address_bits + length_bits + 1).div_ceil(8),
        }
    }

    fn tag_mask(&self) -> u64 {
        (1 << self.tag_bits) - 1
    }

    fn used_bytes(&self, cells: u32) -> u32 {
        HEADER_BYTES as u32 + cells * self.cell_bytes
    }
}

impl Format for BucketFormat {
    fn slots(&self) -> u32 {
        self.most_cells
    }

    fn sections(&self) -> u64 {
        self.sections
    }

    fn probe(&self, hash: u64, number: u8) -> Probe {
        let tag = ((hash / self.sections) & self.tag_mask()) as u32;
        Probe { section: (hash % self.sections + u64::from(number)) % self.sections, tag }
    }

    fn is_tag(&self, tag: u32) -> bool {
        u64::from(tag) <= self.tag_mask()
    }

    /// Any cell may come after the key's: the listing begins with the section.
    fn first_slot(&self, _tag: u32) -> u32 {
        0
    }

    fn create(&self) -> Box<dyn Section> {
        Box::new(BucketSection { format: *self, cells: Vec::new(), holes: 0, passed: false })
    }

    fn encoded_bytes(&self, header: &SectionHeader) -> u32 {
        self.used_bytes(header.live.into()).next_multiple_of(self.grain_bytes)
    }

    /// Counted to the bit: 5 B on 128 GiB.
    fn directory_bytes(&self) -> u64 {
        self.directory_bytes
    }
}

/// A bucket. A cell is `grain + 1 << tag bits | tag`; 0 is a free one.
struct BucketSection {
    format: BucketFormat,
    cells: Vec<u64>,
    /// Free cells among them.
    holes: u32,
    passed: bool,
}

impl BucketSection {
    fn grain(&self, cell: u64) -> Grain {
        Grain((cell >> self.format.tag_bits).wrapping_sub(1))
    }
}

impl Section for BucketSection {
    fn load(&mut self, bytes: Rc<[u8]>) -> bool {
        let Some(header) = SectionHeader::decode(&bytes) else { return false };
        let count = u32::from(header.live);
        let used = HEADER_BYTES..self.format.used_bytes(count) as usize;
        let Some(bytes) = bytes.get(used).filter(|_| count <= self.format.most_cells) else { return false };
        let cell = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        self.cells.clear();
        self.cells.extend(bytes.chunks_exact(self.format.cell_bytes as usize).map(cell));
        self.holes = self.cells.iter().filter(|cell| **cell == 0).count() as u32;
        self.passed = header.form & PASSED != 0;
        true
    }

    fn get(&self, slot: u32, comparisons: &mut u64) -> Entry {
        *comparisons += 1;
        match self.cells.get(slot as usize) {
            None | Some(0) => Entry::Empty,
            Some(cell) => Entry::At(self.grain(*cell)),
        }
    }

    fn candidate(&self, tag: u32, from: u32, comparisons: &mut u64) -> Option<(u32, Grain)> {
        let mask = self.format.tag_mask();
        let rest = self.cells.get(from as usize..).unwrap_or_default();
        let place = rest.iter().position(|cell| cell & mask == u64::from(tag) && *cell != 0);
        *comparisons += place.map_or(rest.len(), |place| place + 1) as u64;
        place.map(|place| (from + place as u32, self.grain(rest[place])))
    }

    fn vacancy(&self, _tag: u32) -> Option<u32> {
        if self.holes > 0 {
            return self.cells.iter().position(|cell| *cell == 0).map(|slot| slot as u32);
        }
        let count = self.cells.len() as u32;
        (count < self.format.most_cells).then_some(count)
    }

    fn goes_on(&self, _tag: u32) -> bool {
        self.passed
    }

    fn set(&mut self, slot: u32, tag: u32, grain: Grain) {
        let slot = slot as usize;
        while slot >= self.cells.len() {
            self.cells.push(0);
            self.holes += 1;
        }
        self.holes -= u32::from(self.cells[slot] == 0);
        self.cells[slot] = (grain.0 + 1) << self.format.tag_bits | u64::from(tag);
        assert!(self.cells.len() as u32 <= self.format.most_cells, "a section takes a read unit at most");
    }

    fn mark_passed(&mut self, tag: u32) {
        assert!(self.vacancy(tag).is_none(), "a section with a vacancy is never passed");
        self.passed = true;
    }

    fn remove(&mut self, slot: u32) {
        assert!(self.cells[slot as usize] != 0, "only a pair is removed");
        self.cells[slot as usize] = 0;
        self.holes += 1;
        while self.cells.last() == Some(&0) {
            self.cells.pop();
            self.holes -= 1;
        }
    }

    fn bytes(&self) -> u32 {
        self.cached_bytes().next_multiple_of(self.format.grain_bytes)
    }

    /// Grains are for flash; what is cached takes no more than it holds.
    fn cached_bytes(&self) -> u32 {
        self.format.used_bytes(self.cells.len() as u32)
    }

    fn pairs(&self, found: &mut dyn FnMut(u32, Grain)) {
        let used = self.cells.iter().enumerate().filter(|(_, cell)| **cell != 0);
        used.for_each(|(slot, cell)| found(slot as u32, self.grain(*cell)));
    }

    fn encode(&mut self, id: u64, version: u64) -> Rc<[u8]> {
        let mut out = Vec::with_capacity(self.bytes() as usize);
        let form = if self.passed { PASSED } else { 0 };
        out.extend_from_slice(&SectionHeader { form, live: self.cells.len() as u16, id, version }.encode());
        for cell in &self.cells {
            out.extend_from_slice(&cell.to_le_bytes()[..self.format.cell_bytes as usize]);
        }
        out.resize(self.bytes() as usize, 0);
        out.into()
    }
}
