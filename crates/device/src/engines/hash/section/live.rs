//! Sections of `plus`: live entries alone, in two levels (Plus, section IV-B).
//!
//! ```text
//!   root, 256 B                                      leaves, 64 B each
//!   +-----------+-------------------------------+    +------------------------------------+
//!   | header 16 | 60 separators of 4 B, sorted  |    | 8 x (slot u16 | grain, passed u48) | ...
//!   +-----------+-------------------------------+    +------------------------------------+
//! ```
//!
//! Leaf `i` holds, unsorted, the slots above separator `i - 1` up to separator `i`; the last separator is infinite. A
//! section begins with two leaves and grows by one when all are full; then, and when one leaf alone is full, its
//! entries are sorted and spread evenly. The step to sixty leaves (4 KiB) sorts them for good: from then on an entry
//! lies where its slot says, so that no separator is searched (described in the paper, missing from its code).
//! Sections never shrink, as published.

use super::{Entry, Format, HEADER_BYTES, Packed, Probe, Section, SectionHeader, SlotTable};
use crate::engines::hash::layout::{Grain, Layout};

const ROOT_BYTES: u32 = 256;
const LEAF_BYTES: u32 = 64;
const LEAF_ENTRIES: usize = 8;
const FIRST_LEAVES: usize = 2;
/// In the form byte: entries lie by their slots.
const BY_OFFSET: u8 = 0x80;
/// Bits of an entry below its slot.
const PACKED_BITS: u32 = 48;

/// The format of one drive.
#[derive(Clone, Copy, Debug)]
pub struct LiveFormat {
    grain_bytes: u32,
    max_leaves: u8,
    table: SlotTable,
}

impl LiveFormat {
    /// The format of a drive with this layout.
    pub fn new(layout: &Layout) -> LiveFormat {
        // The root has room for 60 separators.
        let leaves = ((layout.unit_bytes - ROOT_BYTES) / LEAF_BYTES).min(60);
        let table = SlotTable::new(layout, leaves * LEAF_ENTRIES as u32);
        LiveFormat { grain_bytes: layout.grain_bytes, max_leaves: leaves as u8, table }
    }

    fn section(&self) -> LiveSection {
        let leaves = FIRST_LEAVES;
        LiveSection {
            format: *self,
            separators: vec![u16::MAX; leaves],
            entries: vec![0; leaves * LEAF_ENTRIES],
            live: 0,
            by_offset: false,
        }
    }

    fn bytes(&self, leaves: usize) -> u32 {
        (ROOT_BYTES + leaves as u32 * LEAF_BYTES).next_multiple_of(self.grain_bytes)
    }
}

impl Format for LiveFormat {
    fn slots(&self) -> u32 {
        u32::from(self.max_leaves) * LEAF_ENTRIES as u32
    }

    fn sections(&self) -> u64 {
        self.table.sections()
    }

    fn probe(&self, hash: u64, number: u8) -> Probe {
        self.table.probe(hash, number)
    }

    fn create(&self) -> Box<dyn Section> {
        Box::new(self.section())
    }

    fn decode(&self, bytes: &[u8]) -> Option<Box<dyn Section>> {
        let header = SectionHeader::decode(bytes)?;
        let leaves = usize::from(header.form & !BY_OFFSET);
        if leaves < FIRST_LEAVES || leaves > usize::from(self.max_leaves) {
            return None;
        }
        let separators = bytes.get(HEADER_BYTES..ROOT_BYTES as usize)?;
        let entries = bytes.get(ROOT_BYTES as usize..)?.get(..leaves * LEAF_BYTES as usize)?;
        Some(Box::new(LiveSection {
            format: *self,
            separators: separators
                .chunks_exact(4)
                .take(leaves)
                .map(|word| u16::from_le_bytes([word[0], word[1]]))
                .collect(),
            entries: entries
                .chunks_exact(8)
                .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
                .collect(),
            live: header.live,
            by_offset: header.form & BY_OFFSET != 0,
        }))
    }

    fn encoded_bytes(&self, header: &SectionHeader) -> u32 {
        self.bytes(usize::from(header.form & !BY_OFFSET))
    }

    /// 46 bits of grain and 6 of length; Plus leaves this table out of its memory accounting.
    fn directory_bytes(&self) -> u64 {
        7
    }
}

/// A section of live entries. An entry is `slot << 48 | packed`; 0 in its lower part is a free cell.
struct LiveSection {
    format: LiveFormat,
    separators: Vec<u16>,
    entries: Vec<u64>,
    live: u16,
    by_offset: bool,
}

fn entry(slot: u32, packed: Packed) -> u64 {
    assert!(packed.0 >> PACKED_BITS == 0, "a grain address has 46 bits");
    u64::from(slot) << PACKED_BITS | packed.0
}

fn slot_of(entry: u64) -> u32 {
    (entry >> PACKED_BITS) as u32
}

fn packed_of(entry: u64) -> Packed {
    Packed(entry & ((1 << PACKED_BITS) - 1))
}

impl LiveSection {
    /// The cells of the leaf that `slot` belongs to, and the comparisons that took.
    fn leaf(&self, slot: u32, comparisons: &mut u64) -> std::ops::Range<usize> {
        let (mut low, mut high) = (0, self.separators.len() - 1);
        while low < high {
            let middle = (low + high) / 2;
            *comparisons += 1;
            if u32::from(self.separators[middle]) < slot {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low * LEAF_ENTRIES..(low + 1) * LEAF_ENTRIES
    }

    /// The cell that holds `slot`.
    fn cell(&self, slot: u32, comparisons: &mut u64) -> Option<usize> {
        if self.by_offset {
            *comparisons += 1;
            return (packed_of(self.entries[slot as usize]).0 != 0).then_some(slot as usize);
        }
        let leaf = self.leaf(slot, comparisons);
        let mut cells = self.entries[leaf.clone()].iter();
        let found = cells.position(|other| {
            let used = packed_of(*other).0 != 0;
            *comparisons += u64::from(used);
            used && slot_of(*other) == slot
        });
        found.map(|cell| leaf.start + cell)
    }

    fn insert(&mut self, slot: u32, packed: Packed) {
        self.live += 1;
        let new = entry(slot, packed);
        if self.by_offset {
            self.entries[slot as usize] = new;
            return;
        }
        let leaf = self.leaf(slot, &mut 0);
        let free = self.entries[leaf.clone()].iter().position(|other| packed_of(*other).0 == 0);
        if let Some(cell) = free {
            self.entries[leaf.start + cell] = new;
            return;
        }
        let mut all: Vec<u64> = self.entries.iter().copied().filter(|e| packed_of(*e).0 != 0).collect();
        all.push(new);
        all.sort_unstable_by_key(|entry| slot_of(*entry));
        let full = all.len() > self.entries.len();
        self.spread(&all, self.separators.len() + usize::from(full));
    }

    /// Lays sorted entries out over `leaves` leaves.
    fn spread(&mut self, all: &[u64], leaves: usize) {
        self.entries = vec![0; leaves * LEAF_ENTRIES];
        self.separators = vec![u16::MAX; leaves];
        if leaves == usize::from(self.format.max_leaves) {
            self.by_offset = true;
            for entry in all {
                self.entries[slot_of(*entry) as usize] = *entry;
            }
            return;
        }
        let mut rest = all;
        for leaf in 0..leaves {
            let (here, behind) = rest.split_at(rest.len().div_ceil(leaves - leaf));
            self.entries[leaf * LEAF_ENTRIES..][..here.len()].copy_from_slice(here);
            if leaf + 1 < leaves {
                // An empty leaf ends where the one before it does.
                let before = if leaf == 0 { 0 } else { u32::from(self.separators[leaf - 1]) };
                self.separators[leaf] = here.last().map_or(before, |last| slot_of(*last)) as u16;
            }
            rest = behind;
        }
    }

    fn put(&mut self, cell: usize, packed: Packed) {
        let slot = slot_of(self.entries[cell]);
        self.entries[cell] = if packed.0 == 0 { 0 } else { entry(slot, packed) };
        self.live -= u16::from(packed.0 == 0);
    }
}

impl Section for LiveSection {
    fn get(&self, slot: u32, comparisons: &mut u64) -> Entry {
        self.cell(slot, comparisons).map_or(Entry::Empty, |cell| packed_of(self.entries[cell]).entry())
    }

    fn set(&mut self, slot: u32, _tag: u32, grain: Grain) {
        match self.cell(slot, &mut 0) {
            Some(cell) => {
                let passed = packed_of(self.entries[cell]).is_passed();
                self.put(cell, Packed::new(Entry::At(grain), passed));
            }
            None => self.insert(slot, Packed::new(Entry::At(grain), false)),
        }
    }

    fn mark_passed(&mut self, slot: u32) {
        let cell = self.cell(slot, &mut 0).expect("an empty slot is never passed");
        self.put(cell, Packed(packed_of(self.entries[cell]).0 | 1));
    }

    fn remove(&mut self, slot: u32) {
        let cell = self.cell(slot, &mut 0).expect("only a pair is removed");
        self.put(cell, packed_of(self.entries[cell]).removed());
    }

    fn bytes(&self) -> u32 {
        self.format.bytes(self.separators.len())
    }

    fn pairs(&self, found: &mut dyn FnMut(u32, Grain)) {
        let mut pairs: Vec<(u32, Grain)> = self
            .entries
            .iter()
            .filter_map(|entry| match packed_of(*entry).entry() {
                Entry::At(grain) => Some((slot_of(*entry), grain)),
                _ => None,
            })
            .collect();
        pairs.sort_unstable();
        for (slot, grain) in pairs {
            found(slot, grain);
        }
    }

    fn encode(&self, id: u64, version: u64, out: &mut Vec<u8>) {
        let start = out.len();
        let form = self.separators.len() as u8 | if self.by_offset { BY_OFFSET } else { 0 };
        out.extend_from_slice(&SectionHeader { form, live: self.live, id, version }.encode());
        for separator in &self.separators {
            out.extend_from_slice(&u32::from(*separator).to_le_bytes());
        }
        out.resize(start + ROOT_BYTES as usize, 0);
        for entry in &self.entries {
            out.extend_from_slice(&entry.to_le_bytes());
        }
        out.resize(start + self.bytes() as usize, 0);
    }
}
