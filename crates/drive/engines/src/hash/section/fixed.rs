//! Sections of `original` and `hash8`: every slot has its entry, used or not (Plus, section III-A).
//!
//! A section fills a read unit: the 16 B header and one number a slot, 4 B wide as in the published code, 8 B
//! where the drive has more grains than 31 bits can name. The header costs four slots of 1024. Behind the number there
//! may be a signature, a part of the hash of the slot's key: a probe whose signature differs has not found its key.

use std::hint::black_box;
use std::rc::Rc;

use super::{
    Entry, Format, HEADER_BYTES, Outlook, Packed, Probe, Section, SectionHeader, SlotTable, beginning,
    directory_bytes,
};
use crate::hash::layout::{Grain, Layout};

/// Grains that 4 B entries can name: 32 bits less the passed bit and two codes.
const NARROW_GRAINS: u64 = (1 << 31) - 2;

/// Bits of a tag for the slot; the signature is above them.
const SLOT_BITS: u32 = 16;

/// Differences between the FTLs with this format.
#[derive(Clone, Copy, Debug)]
pub struct FixedShape {
    /// Bytes of a signature: at most two, for which a tag has room.
    pub signature_bytes: u32,
    /// Grains of the drive for each slot of the table.
    pub grains_per_slot: u64,
}

impl FixedShape {
    /// No signatures, and a slot for each grain.
    pub const PLAIN: FixedShape = FixedShape { signature_bytes: 0, grains_per_slot: 1 };
}

/// The format of one drive.
#[derive(Clone, Copy, Debug)]
pub struct FixedFormat {
    unit_bytes: u32,
    address_bytes: u32,
    signature_bytes: u32,
    table: SlotTable,
    directory_bytes: u64,
}

impl FixedFormat {
    /// The format of a drive with this layout.
    pub fn new(layout: &Layout, shape: FixedShape) -> FixedFormat {
        let FixedShape { signature_bytes, grains_per_slot } = shape;
        let address_bytes = if layout.grains() <= NARROW_GRAINS { 4 } else { 8 };
        let slots = (layout.unit_bytes - HEADER_BYTES as u32) / (address_bytes + signature_bytes);
        FixedFormat {
            unit_bytes: layout.unit_bytes,
            address_bytes,
            signature_bytes,
            table: SlotTable::new(layout.grains().div_ceil(grains_per_slot), slots),
            directory_bytes: directory_bytes(layout.grains() / u64::from(layout.unit_grains), 0),
        }
    }
}

impl Format for FixedFormat {
    fn slots(&self) -> u32 {
        (self.unit_bytes - HEADER_BYTES as u32) / (self.address_bytes + self.signature_bytes)
    }

    fn sections(&self) -> u64 {
        self.table.sections()
    }

    fn probe(&self, hash: u64, number: u8) -> Probe {
        let Probe { section, tag: slot } = self.table.probe(hash, number);
        // The highest bits: the slot follows from the lowest ones.
        let signature = hash.checked_shr(u64::BITS - 8 * self.signature_bytes).unwrap_or(0) as u32;
        Probe { section, tag: signature << SLOT_BITS | slot }
    }

    fn is_tag(&self, tag: u32) -> bool {
        slot_of(tag) < self.slots() && signature_of(tag) >> (8 * self.signature_bytes) == 0
    }

    fn first_slot(&self, tag: u32) -> u32 {
        slot_of(tag)
    }

    fn create(&self) -> Box<dyn Section> {
        let bytes = vec![0; self.unit_bytes as usize];
        let (address_bytes, signature_bytes) = (self.address_bytes as usize, self.signature_bytes as usize);
        Box::new(FixedSection { bytes: bytes.into(), address_bytes, signature_bytes })
    }

    fn encoded_bytes(&self, _header: &SectionHeader) -> u32 {
        self.unit_bytes
    }

    /// The number of a read unit: 4 B on 128 GiB and on 4 TiB.
    fn directory_bytes(&self) -> u64 {
        self.directory_bytes
    }
}

fn slot_of(tag: u32) -> u32 {
    tag & ((1 << SLOT_BITS) - 1)
}

fn signature_of(tag: u32) -> u32 {
    tag >> SLOT_BITS
}

/// A section with an entry for every slot, kept as its bytes on flash; the header is filled in when it is
/// written.
struct FixedSection {
    bytes: Rc<[u8]>,
    address_bytes: usize,
    signature_bytes: usize,
}

impl FixedSection {
    fn at(&self, slot: u32) -> usize {
        HEADER_BYTES + (self.address_bytes + self.signature_bytes) * slot as usize
    }

    fn signature(&self, slot: u32) -> u32 {
        let at = self.at(slot) + self.address_bytes;
        let bytes = &self.bytes[at..at + self.signature_bytes];
        bytes.iter().rev().fold(0, |signature, byte| signature << 8 | u32::from(*byte))
    }

    fn is_wide(&self) -> bool {
        self.address_bytes == 8
    }

    fn packed(&self, slot: u32) -> Packed {
        let at = self.at(slot);
        Packed(if self.is_wide() {
            u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("8 bytes"))
        } else {
            u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("4 bytes")).into()
        })
    }

    fn put(&mut self, slot: u32, packed: Packed) {
        let (at, is_wide) = (self.at(slot), self.is_wide());
        let bytes = Rc::make_mut(&mut self.bytes);
        if is_wide {
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

    fn candidate(&self, tag: u32, from: u32, comparisons: &mut u64) -> Option<(u32, Grain)> {
        let slot = slot_of(tag);
        match (from <= slot).then(|| self.get(slot, comparisons)) {
            Some(Entry::At(grain)) => (self.signature(slot) == signature_of(tag)).then_some((slot, grain)),
            _ => None,
        }
    }

    fn outlook(&self, tag: u32) -> Outlook {
        let slot = slot_of(tag);
        let entry = self.packed(slot).entry();
        let vacancy = (!matches!(entry, Entry::At(_))).then_some(slot);
        Outlook { vacancy, goes_on: entry != Entry::Empty }
    }

    fn set(&mut self, slot: u32, tag: u32, grain: Grain) {
        let passed = self.packed(slot).is_passed();
        self.put(slot, Packed::new(Entry::At(grain), passed));
        let (at, count) = (self.at(slot) + self.address_bytes, self.signature_bytes);
        let signature = signature_of(tag).to_le_bytes();
        Rc::make_mut(&mut self.bytes)[at..at + count].copy_from_slice(&signature[..count]);
    }

    fn is_passed(&self, tag: u32) -> bool {
        self.packed(slot_of(tag)).is_passed()
    }

    fn mark_passed(&mut self, tag: u32) {
        let slot = slot_of(tag);
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
        let slots = (self.bytes.len() - HEADER_BYTES) / (self.address_bytes + self.signature_bytes);
        for slot in 0..slots as u32 {
            if let Entry::At(grain) = self.packed(slot).entry() {
                found(slot, grain);
            }
        }
    }

    fn encode(&mut self, id: u64, version: u64) -> Rc<[u8]> {
        let header = SectionHeader { form: u8::from(self.is_wide()), cells: 0, id, version };
        Rc::make_mut(&mut self.bytes)[..HEADER_BYTES].copy_from_slice(&header.encode());
        self.bytes.clone()
    }
}
