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
//! The hash of a key selects a section and a fingerprint; any cell of the section may hold the key. A drive
//! full of one-grain pairs fills its sections to six sevenths, so the length of sections follows the number
//! of pairs and slots need no numbers. If a section is full, it is marked *passed*: the next section takes
//! the pair, and lookups continue there from then on. Nothing else remains of a deleted pair; the next pair
//! takes a freed cell, and free cells at the end are dropped.
//!
//! A pair stays in its cell as long as it exists. Therefore lookups and cursors may wait for flash between
//! two cells.

use std::hint::black_box;
use std::rc::Rc;

use strength_reduce::StrengthReducedU64;

use super::{
    Entry, Format, HEADER_BYTES, Outlook, Probe, Section, SectionHeader, beginning, directory_bytes,
};
use crate::hash::layout::{Grain, Layout};

/// Minimum length of a cell, bytes: 32 bits of address and 16 of fingerprint on 128 GiB of 64 B grains. A
/// smaller drive has longer fingerprints rather than shorter cells, so that it behaves like the large one it
/// stands for.
const CELL_BYTES: u32 = 6;
/// Minimum bits of a fingerprint: one cell in 1024 of other keys has the same one.
const LEAST_TAG_BITS: u32 = 10;
/// Maximum bits of a fingerprint.
const MOST_TAG_BITS: u32 = 32;
/// Flag in the form byte: stores continued in the next section.
const PASSED: u8 = 1;

/// The format of one drive.
#[derive(Clone, Copy, Debug)]
pub struct BucketFormat {
    grain_bytes: u32,
    cell_bytes: u32,
    tag_bits: u32,
    most_cells: u32,
    sections: StrengthReducedU64,
    directory_bytes: u64,
}

impl BucketFormat {
    /// The format of a drive with this layout.
    pub fn new(layout: &Layout) -> BucketFormat {
        let address_bits = 64 - layout.grains().leading_zeros();
        let cell_bytes = (address_bits + LEAST_TAG_BITS).div_ceil(8).max(CELL_BYTES);
        let most_cells = (layout.unit_bytes - HEADER_BYTES as u32) / cell_bytes;
        BucketFormat {
            grain_bytes: layout.grain_bytes,
            cell_bytes,
            tag_bits: (8 * cell_bytes - address_bits).min(MOST_TAG_BITS),
            most_cells,
            sections: StrengthReducedU64::new(layout.grains().div_ceil(most_cells.into())),
            directory_bytes: directory_bytes(layout.grains(), layout.unit_grains),
        }
    }

    fn tag_mask(&self) -> u64 {
        (1 << self.tag_bits) - 1
    }

    fn used_bytes(&self, cells: u32) -> u32 {
        HEADER_BYTES as u32 + cells * self.cell_bytes
    }

    /// Bytes on flash.
    fn bytes(&self, cells: u32) -> u32 {
        self.used_bytes(cells).next_multiple_of(self.grain_bytes)
    }
}

impl Format for BucketFormat {
    fn slots(&self) -> u32 {
        self.most_cells
    }

    fn sections(&self) -> u64 {
        self.sections.get()
    }

    fn probe(&self, hash: u64, number: u8) -> Probe {
        let (tag, section) = StrengthReducedU64::div_rem(hash, self.sections);
        let section = (section + u64::from(number)) % self.sections;
        Probe { section, tag: (tag & self.tag_mask()) as u32 }
    }

    fn is_tag(&self, tag: u32) -> bool {
        u64::from(tag) <= self.tag_mask()
    }

    /// Any cell may come after the key's, so a listing begins with the first cell of the section.
    fn first_slot(&self, _tag: u32) -> u32 {
        0
    }

    fn create(&self) -> Box<dyn Section> {
        Box::new(BucketSection { format: *self, bytes: vec![0; self.bytes(0) as usize].into() })
    }

    fn encoded_bytes(&self, header: &SectionHeader) -> u32 {
        self.bytes(header.cells.into())
    }

    /// A grain and a length: 5 B on 128 GiB, 6 B on 4 TiB.
    fn directory_bytes(&self) -> u64 {
        self.directory_bytes
    }
}

/// A bucket, kept as its bytes on flash; number and version are filled in when it is written. A cell is
/// `grain + 1 << tag bits | tag`; 0 is a free cell.
struct BucketSection {
    format: BucketFormat,
    bytes: Rc<[u8]>,
}

impl BucketSection {
    fn bytes_mut(&mut self) -> &mut [u8] {
        Rc::make_mut(&mut self.bytes)
    }

    /// Cells, free ones included.
    fn count(&self) -> u32 {
        u16::from_le_bytes([self.bytes[2], self.bytes[3]]).into()
    }

    fn cell(&self, slot: u32) -> u64 {
        let (at, length) = (self.format.used_bytes(slot) as usize, self.format.cell_bytes as usize);
        let word = match self.bytes[at..].first_chunk() {
            Some(word) => *word,
            None => {
                let mut word = [0; 8];
                word[..length].copy_from_slice(&self.bytes[at..at + length]);
                word
            }
        };
        u64::from_le_bytes(word) & (u64::MAX >> (64 - 8 * length))
    }

    fn cells(&self, from: u32) -> impl Iterator<Item = (u32, u64)> + '_ {
        (from..self.count()).map(|slot| (slot, self.cell(slot)))
    }

    fn put(&mut self, slot: u32, cell: u64) {
        let (at, length) = (self.format.used_bytes(slot) as usize, self.format.cell_bytes as usize);
        self.bytes_mut()[at..at + length].copy_from_slice(&cell.to_le_bytes()[..length]);
    }

    /// Drops cells at the end, or adds free ones.
    fn resize(&mut self, count: u32) {
        let kept = self.format.used_bytes(count.min(self.count())) as usize;
        let length = self.format.bytes(count) as usize;
        if length != self.bytes.len() {
            let mut bytes = Vec::with_capacity(length);
            bytes.extend_from_slice(&self.bytes[..kept]);
            bytes.resize(length, 0);
            self.bytes = bytes.into();
        }
        let bytes = self.bytes_mut();
        bytes[kept..].fill(0);
        bytes[2..4].copy_from_slice(&(count as u16).to_le_bytes());
    }

    fn grain(&self, cell: u64) -> Grain {
        Grain((cell >> self.format.tag_bits).wrapping_sub(1))
    }
}

impl Section for BucketSection {
    fn load(&mut self, bytes: Rc<[u8]>) -> bool {
        let Some(header) = SectionHeader::decode(&bytes) else { return false };
        let count = u32::from(header.cells);
        if count > self.format.most_cells {
            return false;
        }
        let Some(bytes) = beginning(bytes, self.format.bytes(count) as usize) else { return false };
        self.bytes = bytes;
        true
    }

    fn meet(&self) {
        black_box(self.bytes[0]);
    }

    fn get(&self, slot: u32, comparisons: &mut u64) -> Entry {
        *comparisons += 1;
        match (slot < self.count()).then(|| self.cell(slot)) {
            None | Some(0) => Entry::Empty,
            Some(cell) => Entry::At(self.grain(cell)),
        }
    }

    fn candidate(&self, tag: u32, from: u32, comparisons: &mut u64) -> Option<(u32, Grain)> {
        let mask = self.format.tag_mask();
        let found = self.cells(from).find(|(_, cell)| cell & mask == u64::from(tag) && *cell != 0);
        let end = found.map_or(self.count(), |(slot, _)| slot + 1);
        *comparisons += u64::from(end.saturating_sub(from));
        found.map(|(slot, cell)| (slot, self.grain(cell)))
    }

    fn outlook(&self, tag: u32) -> Outlook {
        let free = self.cells(0).find(|(_, cell)| *cell == 0).map(|(slot, _)| slot);
        let vacancy = free.or_else(|| Some(self.count()).filter(|count| *count < self.format.most_cells));
        Outlook { vacancy, goes_on: self.is_passed(tag) }
    }

    fn vacancy_besides(&self, _tag: u32, is_taken: &dyn Fn(u32) -> bool) -> Option<u32> {
        let is_free = |slot: &u32| *slot >= self.count() || self.cell(*slot) == 0;
        (0..self.format.most_cells).filter(is_free).find(|slot| !is_taken(*slot))
    }

    fn is_passed(&self, _tag: u32) -> bool {
        self.bytes[1] & PASSED != 0
    }

    fn set(&mut self, slot: u32, tag: u32, grain: Grain) {
        assert!(slot < self.format.most_cells, "a section takes a read unit at most");
        if slot >= self.count() {
            self.resize(slot + 1);
        }
        self.put(slot, (grain.0 + 1) << self.format.tag_bits | u64::from(tag));
    }

    fn mark_passed(&mut self, tag: u32) {
        assert!(self.outlook(tag).vacancy.is_none(), "a section with a vacancy is never passed");
        self.bytes_mut()[1] |= PASSED;
    }

    fn remove(&mut self, slot: u32) {
        assert!(self.cell(slot) != 0, "only a pair is removed");
        self.put(slot, 0);
        let used = (0..self.count()).rev().find(|slot| self.cell(*slot) != 0);
        let count = used.map_or(0, |last| last + 1);
        if count < self.count() {
            self.resize(count);
        }
    }

    fn bytes(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// On flash it takes whole grains; in the cache it takes only its cells.
    fn cached_bytes(&self) -> u32 {
        self.format.used_bytes(self.count())
    }

    fn pairs(&self, found: &mut dyn FnMut(u32, Grain)) {
        let used = self.cells(0).filter(|(_, cell)| *cell != 0);
        used.for_each(|(slot, cell)| found(slot, self.grain(cell)));
    }

    fn encode(&mut self, id: u64, version: u64) -> Rc<[u8]> {
        let header = SectionHeader { form: self.bytes[1] & PASSED, cells: self.count() as u16, id, version };
        self.bytes_mut()[..HEADER_BYTES].copy_from_slice(&header.encode());
        self.bytes.clone()
    }
}
