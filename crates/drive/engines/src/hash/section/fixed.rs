//! Sections of `original`: every slot has its entry, used or not (Plus, section III-A).
//!
//! A section fills a read unit: the 16 B header and one number a slot, 4 B wide as in the published code, 8 B
//! where the drive has more grains than 31 bits can name. The header costs four slots of 1024.

use std::hint::black_box;
use std::rc::Rc;

use super::{
    Entry, Format, HEADER_BYTES, Packed, Probe, Section, SectionHeader, SlotTable, beginning, directory_bytes,
};
use crate::hash::layout::{Grain, Layout};

/// Grains that 4 B entries can name: 32 bits less the passed bit and two codes.
const NARROW_GRAINS: u64 = (1 << 31) - 2;

/// The format of one drive.
#[derive(Clone, Copy, Debug)]
pub struct FixedFormat {
    unit_bytes: u32,
    entry_bytes: u32,
    table: SlotTable,
    directory_bytes: u64,
}

impl FixedFormat {
    /// The format of a drive with this layout.
    pub fn new(layout: &Layout) -> FixedFormat {
        let entry_bytes = if layout.grains() <= NARROW_GRAINS { 4 } else { 8 };
        let slots = (layout.unit_bytes - HEADER_BYTES as u32) / entry_bytes;
        FixedFormat {
            unit_bytes: layout.unit_bytes,
            entry_bytes,
            table: SlotTable::new(layout, slots),
            directory_bytes: directory_bytes(layout.grains() / u64::from(layout.unit_grains), 0),
        }
    }
}

impl Format for FixedFormat {
    fn slots(&self) -> u32 {
        (self.unit_bytes - HEADER_BYTES as u32) / self.entry_bytes
    }

    fn sections(&self) -> u64 {
        self.table.sections()
    }

    fn probe(&self, hash: u64, number: u8) -> Probe {
        self.table.probe(hash, number)
    }

    fn create(&self) -> Box<dyn Section> {
        let bytes = vec![0; self.unit_bytes as usize];
        Box::new(FixedSection { bytes: bytes.into(), wide: self.entry_bytes == 8 })
    }

    fn encoded_bytes(&self, _header: &SectionHeader) -> u32 {
        self.unit_bytes
    }

    /// The number of a read unit: 4 B on 128 GiB and on 4 TiB.
    fn directory_bytes(&self) -> u64 {
        self.directory_bytes
    }
}

/// A section with an entry for every slot, kept as its bytes on flash; the header is filled in when it is
/// written.
struct FixedSection {
    bytes: Rc<[u8]>,
    wide: bool,
}

impl FixedSection {
    fn entry_bytes(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    fn packed(&self, slot: u32) -> Packed {
        let at = HEADER_BYTES + self.entry_bytes() * slot as usize;
        Packed(if self.wide {
            u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("8 bytes"))
        } else {
            u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("4 bytes")).into()
        })
    }

    fn put(&mut self, slot: u32, packed: Packed) {
        let at = HEADER_BYTES + self.entry_bytes() * slot as usize;
        let bytes = Rc::make_mut(&mut self.bytes);
        if self.wide {
            bytes[at..at + 8].copy_from_slice(&packed.0.to_le_bytes());
        } else {
            let narrow = u32::try_from(packed.0).expect("the format was chosen by the drive's grains");
            bytes[at..at + 4].copy_from_slice(&narrow.to_le_bytes());
        }
    }
}

impl Section for FixedSection {
    fn load(&mut self, bytes: Rc<[u8]>) -> bool {
        if SectionHeader::decode(&bytes).is_none() {
            return false;
        }
        let Some(bytes) = beginning(bytes, self.bytes.len()) else { return false };
        self.bytes = bytes;
        true
    }

    fn meet(&self) {
        black_box(self.bytes[0]);
    }

    fn get(&self, slot: u32, comparisons: &mut u64) -> Entry {
        *comparisons += 1;
        self.packed(slot).entry()
    }

    fn set(&mut self, slot: u32, _tag: u32, grain: Grain) {
        let passed = self.packed(slot).is_passed();
        self.put(slot, Packed::new(Entry::At(grain), passed));
    }

    fn is_passed(&self, slot: u32) -> bool {
        self.packed(slot).is_passed()
    }

    fn mark_passed(&mut self, slot: u32) {
        let packed = self.packed(slot);
        assert!(packed.entry() != Entry::Empty, "an empty slot is never passed");
        self.put(slot, Packed(packed.0 | 1));
    }

    fn remove(&mut self, slot: u32) {
        self.put(slot, self.packed(slot).removed());
    }

    fn bytes(&self) -> u32 {
        self.bytes.len() as u32
    }

    fn pairs(&self, found: &mut dyn FnMut(u32, Grain)) {
        let slots = (self.bytes.len() - HEADER_BYTES) / self.entry_bytes();
        for slot in 0..slots as u32 {
            if let Entry::At(grain) = self.packed(slot).entry() {
                found(slot, grain);
            }
        }
    }

    fn encode(&mut self, id: u64, version: u64) -> Rc<[u8]> {
        let header = SectionHeader { form: u8::from(self.wide), cells: 0, id, version };
        Rc::make_mut(&mut self.bytes)[..HEADER_BYTES].copy_from_slice(&header.encode());
        self.bytes.clone()
    }
}
