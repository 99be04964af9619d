//! Sections of `plus`: live entries alone, in two levels (Plus, section IV-B).
//!
//! ```text
//!   root, 256 B                                      leaves, 64 B each
//!   +-----------+-------------------------------+    +------------------------------------+
//!   | header 16 | 60 separators of 4 B, sorted  |    | 8 x (slot u16 | grain, passed u48) | ...
//!   +-----------+-------------------------------+    +------------------------------------+
//! ```
//!
//! Leaf `i` holds, unsorted, the slots above separator `i - 1` up to separator `i`; the last separator is
//! infinite. A section begins with two leaves and grows by one when all are full; at that point, or when a
//! single leaf is full, its entries are sorted and spread evenly. The step to sixty leaves (4 KiB) is the
//! last sort: from then on, the position of an entry follows from its slot, so no separator is searched
//! (described in the paper, missing from its code). Sections never shrink, as published.

use std::hint::black_box;
use std::ops::Range;
use std::rc::Rc;

use super::{
    Entry, Format, HEADER_BYTES, Packed, Probe, Section, SectionHeader, SlotTable, beginning, directory_bytes,
};
use crate::hash::layout::{Grain, Layout};

const ROOT_BYTES: u32 = 256;
const LEAF_BYTES: u32 = 64;
const LEAF_ENTRIES: usize = 8;
const FIRST_LEAVES: usize = 2;
/// Flag in the form byte: entries are at the positions of their slots.
const BY_OFFSET: u8 = 0x80;
/// Bits of an entry below its slot.
const PACKED_BITS: u32 = 48;

/// The format of one drive.
#[derive(Clone, Copy, Debug)]
pub struct LiveFormat {
    grain_bytes: u32,
    max_leaves: u8,
    table: SlotTable,
    directory_bytes: u64,
}

impl LiveFormat {
    /// The format of a drive with this layout.
    pub fn new(layout: &Layout) -> LiveFormat {
        // The root has room for 60 separators.
        let leaves = ((layout.unit_bytes - ROOT_BYTES) / LEAF_BYTES).min(60);
        let table = SlotTable::new(layout.grains(), leaves * LEAF_ENTRIES as u32);
        LiveFormat {
            grain_bytes: layout.grain_bytes,
            max_leaves: leaves as u8,
            table,
            directory_bytes: directory_bytes(layout.grains(), layout.unit_grains),
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
        let mut section = LiveSection { format: *self, bytes: Rc::default() };
        section.spread(&[], FIRST_LEAVES);
        Box::new(section)
    }

    fn encoded_bytes(&self, header: &SectionHeader) -> u32 {
        self.bytes(usize::from(header.form & !BY_OFFSET))
    }

    /// A grain and a length: 5 B on 128 GiB, 6 B on 4 TiB. Plus leaves this table out of its memory
    /// accounting.
    fn directory_bytes(&self) -> u64 {
        self.directory_bytes
    }
}

/// A section of live entries, kept as its bytes on flash; number and version are filled in when it is
/// written. An entry is `slot << 48 | packed`; 0 in its lower part is a free cell.
struct LiveSection {
    format: LiveFormat,
    bytes: Rc<[u8]>,
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

/// The bytes of a separator.
fn separator(last_slot: u16) -> [u8; 4] {
    u32::from(last_slot).to_le_bytes()
}

impl LiveSection {
    /// Its bytes for alteration; shared bytes are copied first.
    fn bytes_mut(&mut self) -> &mut [u8] {
        Rc::make_mut(&mut self.bytes)
    }

    fn leaves(&self) -> usize {
        usize::from(self.bytes[1] & !BY_OFFSET)
    }

    fn is_by_offset(&self) -> bool {
        self.bytes[1] & BY_OFFSET != 0
    }

    /// All cells, free ones included.
    fn entries(&self) -> impl Iterator<Item = u64> + '_ {
        let cells = &self.bytes[ROOT_BYTES as usize..][..self.leaves() * LEAF_BYTES as usize];
        cells.as_chunks::<8>().0.iter().map(|cell| u64::from_le_bytes(*cell))
    }

    fn entry(&self, cell: usize) -> u64 {
        let at = ROOT_BYTES as usize + 8 * cell;
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("8 bytes"))
    }

    fn set_entry(&mut self, cell: usize, entry: u64) {
        let at = ROOT_BYTES as usize + 8 * cell;
        self.bytes_mut()[at..at + 8].copy_from_slice(&entry.to_le_bytes());
    }

    /// The cells of the leaf that `slot` belongs to; adds the number of comparisons.
    fn leaf(&self, slot: u32, comparisons: &mut u64) -> Range<usize> {
        let separators = self.bytes[HEADER_BYTES..ROOT_BYTES as usize].as_chunks::<4>().0;
        let (mut low, mut high) = (0, self.leaves() - 1);
        while low < high {
            let middle = (low + high) / 2;
            *comparisons += 1;
            let [a, b, ..] = separators[middle];
            // Both outcomes are equally likely, so the bounds are chosen without a branch.
            let is_after = u32::from(u16::from_le_bytes([a, b])) < slot;
            low = if is_after { middle + 1 } else { low };
            high = if is_after { high } else { middle };
        }
        low * LEAF_ENTRIES..(low + 1) * LEAF_ENTRIES
    }

    /// The cell that holds `slot`.
    fn cell(&self, slot: u32, comparisons: &mut u64) -> Option<usize> {
        if self.is_by_offset() {
            *comparisons += 1;
            return (packed_of(self.entry(slot as usize)).0 != 0).then_some(slot as usize);
        }
        self.cell_of_leaf(self.leaf(slot, comparisons), slot, comparisons)
    }

    fn cell_of_leaf(&self, leaf: Range<usize>, slot: u32, comparisons: &mut u64) -> Option<usize> {
        let at = ROOT_BYTES as usize + 8 * leaf.start;
        let cells = self.bytes[at..at + LEAF_BYTES as usize].as_chunks::<8>().0;
        // One bit for each cell, without early exit: the position cannot be predicted.
        let (mut used, mut hits) = (0u32, 0u32);
        for (index, cell) in cells.iter().enumerate() {
            let other = u64::from_le_bytes(*cell);
            let is_used = packed_of(other).0 != 0;
            used |= u32::from(is_used) << index;
            hits |= u32::from(is_used && slot_of(other) == slot) << index;
        }
        // Used cells before the hit were compared, too.
        let compared = used & (hits ^ hits.wrapping_sub(1));
        *comparisons += u64::from(compared.count_ones());
        (hits != 0).then(|| leaf.start + hits.trailing_zeros() as usize)
    }

    /// Inserts a new entry, which belongs into `leaf`.
    fn insert(&mut self, mut leaf: Range<usize>, new: u64) {
        if let Some(cell) = leaf.find(|cell| packed_of(self.entry(*cell)).0 == 0) {
            self.set_entry(cell, new);
            return;
        }
        let mut all = Vec::with_capacity(self.leaves() * LEAF_ENTRIES + 1);
        all.extend(self.entries().filter(|entry| packed_of(*entry).0 != 0));
        all.push(new);
        // The slot is the upper part of an entry and unique, so this sorts by slot.
        all.sort_unstable();
        let full = all.len() > self.leaves() * LEAF_ENTRIES;
        self.spread(&all, self.leaves() + usize::from(full));
    }

    /// Spreads sorted entries over `leaves` leaves.
    fn spread(&mut self, all: &[u64], leaves: usize) {
        let by_offset = leaves == usize::from(self.format.max_leaves);
        let form = leaves as u8 | if by_offset { BY_OFFSET } else { 0 };
        let header = SectionHeader { form, cells: 0, id: 0, version: 0 };
        let (count, slots) = (self.format.bytes(leaves) as usize, self.format.slots());
        if self.bytes.len() == count {
            self.bytes_mut().fill(0);
        } else {
            self.bytes = vec![0; count].into();
        }
        let (root, cells) = self.bytes_mut().split_at_mut(ROOT_BYTES as usize);
        let (head, separators) = root.split_at_mut(HEADER_BYTES);
        let separators = separators.as_chunks_mut::<4>().0;
        let cells = cells.as_chunks_mut::<8>().0;
        head.copy_from_slice(&header.encode());
        if by_offset {
            separators[..leaves].fill(separator(u16::MAX));
            // Slots come from flash; entries with a slot out of range are dropped.
            let known = all.iter().filter(|entry| slot_of(**entry) < slots);
            known.for_each(|entry| cells[slot_of(*entry) as usize] = entry.to_le_bytes());
            return;
        }
        let mut rest = all;
        // An empty leaf ends where the previous one does.
        let mut end = 0;
        for (leaf, cells) in cells.chunks_exact_mut(LEAF_ENTRIES).take(leaves).enumerate() {
            let (here, after) = rest.split_at(rest.len().div_ceil(leaves - leaf));
            cells.iter_mut().zip(here).for_each(|(cell, entry)| *cell = entry.to_le_bytes());
            end = here.last().map_or(end, |last| slot_of(*last) as u16);
            separators[leaf] = separator(if leaf + 1 < leaves { end } else { u16::MAX });
            rest = after;
        }
    }

    fn put(&mut self, cell: usize, packed: Packed) {
        let slot = slot_of(self.entry(cell));
        self.set_entry(cell, if packed.0 == 0 { 0 } else { entry(slot, packed) });
    }
}

impl Section for LiveSection {
    fn load(&mut self, bytes: Rc<[u8]>) -> bool {
        let Some(header) = SectionHeader::decode(&bytes) else { return false };
        let leaves = usize::from(header.form & !BY_OFFSET);
        let most = usize::from(self.format.max_leaves);
        if leaves < FIRST_LEAVES || leaves > most || (header.form & BY_OFFSET != 0) != (leaves == most) {
            return false;
        }
        let Some(bytes) = beginning(bytes, self.format.bytes(leaves) as usize) else { return false };
        self.bytes = bytes;
        true
    }

    fn meet(&self) {
        black_box(self.bytes[0]);
    }

    fn get(&self, slot: u32, comparisons: &mut u64) -> Entry {
        self.cell(slot, comparisons).map_or(Entry::Empty, |cell| packed_of(self.entry(cell)).entry())
    }

    fn set(&mut self, slot: u32, _tag: u32, grain: Grain) {
        let new = |passed| entry(slot, Packed::new(Entry::At(grain), passed));
        if self.is_by_offset() {
            let passed = packed_of(self.entry(slot as usize)).is_passed();
            return self.set_entry(slot as usize, new(passed));
        }
        let leaf = self.leaf(slot, &mut 0);
        match self.cell_of_leaf(leaf.clone(), slot, &mut 0) {
            Some(cell) => self.set_entry(cell, new(packed_of(self.entry(cell)).is_passed())),
            None => self.insert(leaf, new(false)),
        }
    }

    fn is_passed(&self, slot: u32) -> bool {
        self.cell(slot, &mut 0).is_some_and(|cell| packed_of(self.entry(cell)).is_passed())
    }

    fn mark_passed(&mut self, slot: u32) {
        let cell = self.cell(slot, &mut 0).expect("an empty slot is never passed");
        self.put(cell, Packed(packed_of(self.entry(cell)).0 | 1));
    }

    fn remove(&mut self, slot: u32) {
        let cell = self.cell(slot, &mut 0).expect("only a pair is removed");
        self.put(cell, packed_of(self.entry(cell)).removed());
    }

    fn bytes(&self) -> u32 {
        self.bytes.len() as u32
    }

    fn pairs(&self, found: &mut dyn FnMut(u32, Grain)) {
        let mut pairs: Vec<(u32, Grain)> = self
            .entries()
            .filter_map(|entry| match packed_of(entry).entry() {
                Entry::At(grain) => Some((slot_of(entry), grain)),
                _ => None,
            })
            .collect();
        pairs.sort_unstable();
        for (slot, grain) in pairs {
            found(slot, grain);
        }
    }

    fn encode(&mut self, id: u64, version: u64) -> Rc<[u8]> {
        let header = SectionHeader { form: self.bytes[1], cells: 0, id, version };
        self.bytes_mut()[..HEADER_BYTES].copy_from_slice(&header.encode());
        self.bytes.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvdrive_flash::Geometry;

    fn format() -> LiveFormat {
        let geometry = Geometry {
            channels: 1,
            dies_per_channel: 1,
            planes: 1,
            blocks_per_die: 8,
            pages_per_block: 4,
            page_bytes: 4096,
            spare_bytes: 256,
            spare_blocks: 0,
        };
        LiveFormat::new(&Layout::new(geometry, 64, 4096))
    }

    /// All slots in a pseudo-random order.
    fn shuffled() -> impl Iterator<Item = u32> {
        (0..480).map(|index| index * 187 % 480)
    }

    #[test]
    fn an_unknown_form_is_no_section_and_slots_out_of_range_belong_to_none() {
        let format = format();
        let mut section = format.create();
        shuffled().take(472).for_each(|slot| section.set(slot, slot, Grain(u64::from(slot))));
        let bytes = section.encode(1, 1);
        assert_eq!(usize::from(bytes[1]), 59, "one leaf is missing");
        let altered = |at: usize, new: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes[at..at + new.len()].copy_from_slice(new);
            format.decode(bytes.into())
        };
        for form in [0, 1, 60, 61, 0x7F, BY_OFFSET, BY_OFFSET | 59, BY_OFFSET | 60] {
            assert!(altered(1, &[form]).is_none(), "form {form:02x} of {} bytes", bytes.len());
        }
        // The last cell says that it is slot 500 of 480: the step to sixty leaves leaves it out.
        let at = bytes.len() - 8;
        let mut section =
            altered(at, &entry(500, Packed::new(Entry::At(Grain(9)), false)).to_le_bytes()).unwrap();
        let missing: Vec<u32> = (0..480).filter(|slot| section.get(*slot, &mut 0) == Entry::Empty).collect();
        for slot in missing {
            section.set(slot, slot, Grain(u64::from(slot)));
        }
        assert_eq!(section.bytes(), 4096);
        (0..480)
            .for_each(|slot| assert_eq!(section.get(slot, &mut 0), Entry::At(Grain(slot.into())), "{slot}"));
    }

    #[test]
    fn a_section_grows_leaf_by_leaf_and_at_its_full_size_entries_lie_by_their_slots() {
        let format = format();
        let mut section = format.create();
        let mut sizes = vec![section.bytes()];
        for (count, slot) in shuffled().enumerate() {
            section.set(slot, slot, Grain(u64::from(slot) + 1000));
            if *sizes.last().unwrap() != section.bytes() {
                sizes.push(section.bytes());
            }
            // Everything is found after every step, and again after encoding and decoding.
            let bytes = section.encode(7, 9);
            assert_eq!(bytes.len() as u32, section.bytes());
            let header = SectionHeader::decode(&bytes).unwrap();
            assert_eq!((header.id, header.version), (7, 9));
            assert_eq!(format.encoded_bytes(&header), section.bytes());
            let read = format.decode(bytes).unwrap();
            for known in shuffled().take(count + 1).step_by(7) {
                assert_eq!(read.get(known, &mut 0), Entry::At(Grain(u64::from(known) + 1000)), "{known}");
            }
        }
        // 6 grains at first, then one more at a time up to a whole read unit.
        assert_eq!(sizes, (6..=64).map(|grains| grains * 64).collect::<Vec<_>>());
        for slot in 0..480 {
            let mut comparisons = 0;
            assert_eq!(section.get(slot, &mut comparisons), Entry::At(Grain(u64::from(slot) + 1000)));
            assert_eq!(comparisons, 1, "no separator is searched");
        }
        // A full section holds only live entries: it can be emptied and filled again.
        (0..480).for_each(|slot| section.remove(slot));
        assert_eq!((section.bytes(), section.get(5, &mut 0)), (4096, Entry::Empty));
        section.set(5, 5, Grain(1));
        section.mark_passed(5);
        section.remove(5);
        assert_eq!(section.get(5, &mut 0), Entry::Tombstone);
        section.set(5, 5, Grain(2));
        assert_eq!(section.get(5, &mut 0), Entry::At(Grain(2)));
    }
}
