//! Sections of the hash table: what is cached, written and read as one. Each FTL brings its own format.
//!
//! A slot of the table is empty, a tombstone, or points at a grain. A slot also remembers whether a store
//! ever probed past it (*passed*): a deleted pair leaves a tombstone only then, since nobody else's probe
//! sequence leads through the slot otherwise.
//!
//! A key's hash gives a sequence of [`Probe`]s. In a table of slots (`SlotTable`) a probe leads to one
//! slot; in a table of buckets it leads to a section, any slot of which may hold the key, and the tag is a
//! fingerprint.
//!
//! On flash every section begins with the same 16 bytes:
//!
//! ```text
//!   0      1      2      4            10               16
//!   +------+------+------+------------+----------------+----
//!   | 53h  | form | cells| section id | version        | the format's own
//!   +------+------+------+------------+----------------+----
//! ```
//!
//! They are what recovery and garbage collection know a section by. Which copy of a section is the present
//! one is the directory's business; versions tell copies apart for whoever looks at a medium from outside.

pub mod bucket;
pub mod fixed;
pub mod live;

use std::rc::Rc;

use strength_reduce::StrengthReducedU64;

use super::layout::{Grain, Layout};

/// First byte of a section on flash.
pub const SECTION_MARK: u8 = 0x53;
/// Bytes of a [`SectionHeader`].
pub const HEADER_BYTES: usize = 16;

/// What a slot of the hash table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// No pair was ever stored here, or none that mattered to another probe sequence.
    Empty,
    /// A pair was deleted; probe sequences go on behind it.
    Tombstone,
    /// A pair.
    At(Grain),
}

/// Where a member of a key's probe sequence leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The section.
    pub section: u64,
    /// What to look for in it: a slot, or a fingerprint.
    pub tag: u32,
}

/// A hash table with one slot a grain, of which each section holds a range. Probe `c` is slot `h + c + c^2`.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotTable {
    slots: StrengthReducedU64,
    section_slots: StrengthReducedU64,
}

impl SlotTable {
    pub fn new(layout: &Layout, section_slots: u32) -> SlotTable {
        SlotTable {
            slots: StrengthReducedU64::new(layout.grains()),
            section_slots: StrengthReducedU64::new(section_slots.into()),
        }
    }

    pub fn sections(&self) -> u64 {
        self.slots.get().div_ceil(self.section_slots.get())
    }

    pub fn probe(&self, hash: u64, number: u8) -> Probe {
        let number = u64::from(number);
        let slot = (hash % self.slots + number + number * number) % self.slots;
        let (section, tag) = StrengthReducedU64::div_rem(slot, self.section_slots);
        Probe { section, tag: tag as u32 }
    }
}

/// An entry with its passed bit as a number: grain + 2, 1 for a tombstone, 0 for nothing; then the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed(pub u64);

impl Packed {
    pub fn new(entry: Entry, passed: bool) -> Packed {
        let code = match entry {
            Entry::Empty => 0,
            Entry::Tombstone => 1,
            Entry::At(grain) => grain.0 + 2,
        };
        Packed(code << 1 | u64::from(passed))
    }

    pub fn entry(self) -> Entry {
        match self.0 >> 1 {
            0 => Entry::Empty,
            1 => Entry::Tombstone,
            code => Entry::At(Grain(code - 2)),
        }
    }

    pub fn is_passed(self) -> bool {
        self.0 & 1 == 1
    }

    /// What is left when the pair is deleted.
    pub fn removed(self) -> Packed {
        if self.is_passed() { Packed::new(Entry::Tombstone, true) } else { Packed(0) }
    }
}

/// The first `count` bytes, shared if they are all; `None` if there are fewer.
fn beginning(bytes: Rc<[u8]>, count: usize) -> Option<Rc<[u8]>> {
    if bytes.len() == count { Some(bytes) } else { bytes.get(..count).map(Rc::from) }
}

/// What a section has to offer for a pair that it does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// A slot in which it may be put.
    pub vacancy: Option<u32>,
    /// Did a store ever probe past its tag, or may it have?
    pub goes_on: bool,
}

/// A section in DRAM. Slots are counted from the section's first one; an entry stays in its slot until it is
/// removed. What the defaults say holds for a `SlotTable`, where a tag is a slot.
pub trait Section {
    /// Becomes the section whose bytes begin `bytes`, and may share them until it is altered; `false` when
    /// they are no section of its format. What it was is lost either way.
    #[must_use]
    fn load(&mut self, bytes: Rc<[u8]>) -> bool;
    /// Looks at its first bytes, as [`std::hint::black_box`] does, for the machine's caches.
    fn meet(&self);
    /// What a slot holds. `comparisons` is raised by the comparisons that finding it took.
    fn get(&self, slot: u32, comparisons: &mut u64) -> Entry;

    /// The first slot from `from` on that may hold a key with this tag, and the pair it points at.
    fn candidate(&self, tag: u32, from: u32, comparisons: &mut u64) -> Option<(u32, Grain)> {
        match (from <= tag).then(|| self.get(tag, comparisons)) {
            Some(Entry::At(grain)) => Some((tag, grain)),
            _ => None,
        }
    }

    /// What becomes of a new pair with this tag.
    fn outlook(&self, tag: u32) -> Outlook {
        let entry = self.get(tag, &mut 0);
        let vacancy = (!matches!(entry, Entry::At(_))).then_some(tag);
        Outlook { vacancy, goes_on: entry != Entry::Empty }
    }

    /// [`Outlook::vacancy`] when some slots will be taken.
    fn vacancy_besides(&self, tag: u32, is_taken: &dyn Fn(u32) -> bool) -> Option<u32> {
        self.outlook(tag).vacancy.filter(|slot| !is_taken(*slot))
    }

    /// Has [`Section::mark_passed`] been here?
    fn is_passed(&self, tag: u32) -> bool;
    /// Makes a slot point at a pair with this tag; its passed bit stays.
    fn set(&mut self, slot: u32, tag: u32, grain: Grain);
    /// Remembers that a store probed past this tag, which has no vacancy.
    fn mark_passed(&mut self, tag: u32);
    /// Takes the pair out of a slot.
    fn remove(&mut self, slot: u32);
    /// Bytes it takes on flash.
    fn bytes(&self) -> u32;

    /// Bytes it takes in the cache.
    fn cached_bytes(&self) -> u32 {
        self.bytes()
    }

    /// Calls `found` with every slot that points at a pair, by slot.
    fn pairs(&self, found: &mut dyn FnMut(u32, Grain));
    /// Its bytes, [`Section::bytes`] of them, under this number and version. Who has them may share them with
    /// it until it is altered.
    fn encode(&mut self, id: u64, version: u64) -> Rc<[u8]>;
}

/// How sections of a drive look.
pub trait Format {
    /// Most slots of a section.
    fn slots(&self) -> u32;
    /// Sections of the drive's table.
    fn sections(&self) -> u64;
    /// Where probe `number` of a key with this hash leads.
    fn probe(&self, hash: u64, number: u8) -> Probe;

    /// Can a probe ask for this tag?
    fn is_tag(&self, tag: u32) -> bool {
        tag < self.slots()
    }

    /// The slot with which the listing of a section begins at a key that is not there.
    fn first_slot(&self, tag: u32) -> u32 {
        tag
    }

    /// A section without pairs.
    fn create(&self) -> Box<dyn Section>;

    /// The section whose bytes begin `bytes`; `None` when they are no section of this format.
    fn decode(&self, bytes: Rc<[u8]>) -> Option<Box<dyn Section>> {
        let mut section = self.create();
        section.load(bytes).then_some(section)
    }

    /// Bytes that the section beginning with `header` takes on flash.
    fn encoded_bytes(&self, header: &SectionHeader) -> u32;
    /// Bytes of DRAM that one section takes in the directory, cached or not.
    fn directory_bytes(&self) -> u64;
}

/// Bytes of an entry of a directory whose sections begin at one of `places` places and take up to
/// `most_grains` grains, 0 where all take as many. As many bits as number the places, and one place more for
/// a section that was never written; as many as a length takes; and one that says whether it is on flash or
/// in the cache.
fn directory_bytes(places: u64, most_grains: u32) -> u64 {
    let bits = |most: u64| u64::BITS - most.leading_zeros();
    u64::from(bits(places) + bits(most_grains.into()) + 1).div_ceil(8)
}

/// The first bytes of every section on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionHeader {
    /// The format's own.
    pub form: u8,
    /// Cells of a bucket; 0 where they follow from the form.
    pub cells: u16,
    /// Number of the section.
    pub id: u64,
    /// Counts the versions of all sections.
    pub version: u64,
}

impl SectionHeader {
    /// Its bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0] = SECTION_MARK;
        out[1] = self.form;
        out[2..4].copy_from_slice(&self.cells.to_le_bytes());
        out[4..10].copy_from_slice(&self.id.to_le_bytes()[..6]);
        out[10..16].copy_from_slice(&self.version.to_le_bytes()[..6]);
        out
    }

    /// The header that begins `bytes`.
    pub fn decode(bytes: &[u8]) -> Option<SectionHeader> {
        let bytes = bytes.first_chunk::<HEADER_BYTES>().filter(|bytes| bytes[0] == SECTION_MARK)?;
        let six = |at: usize| {
            let mut word = [0; 8];
            word[..6].copy_from_slice(&bytes[at..at + 6]);
            u64::from_le_bytes(word)
        };
        Some(SectionHeader {
            form: bytes[1],
            cells: u16::from_le_bytes([bytes[2], bytes[3]]),
            id: six(4),
            version: six(10),
        })
    }
}
