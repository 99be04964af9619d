//! Sections of the hash table: the unit that is cached, written and read. Each FTL has its own format.
//!
//! A slot of the table is empty, a tombstone, or points at a grain. A slot also remembers whether a store
//! ever probed past it (*passed*). Only then does a deleted pair leave a tombstone: otherwise no other probe
//! sequence leads through the slot.
//!
//! The hash of a key gives a sequence of [`Probe`]s. In a table of slots (`SlotTable`) a probe leads to one
//! slot. In a table of buckets it leads to a section, any slot of which may hold the key; the tag is a
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
//! Recovery and garbage collection identify a section by them. The directory has the location of the present
//! copy; versions distinguish copies for tools that inspect a medium.

pub mod bucket;
pub mod fixed;
pub mod live;

use std::rc::Rc;

use strength_reduce::StrengthReducedU64;

use super::layout::Grain;

/// First byte of a section on flash.
pub const SECTION_MARK: u8 = 0x53;
/// Bytes of a [`SectionHeader`].
pub const HEADER_BYTES: usize = 16;

/// The content of a slot of the hash table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// No pair was ever stored here, or none that another probe sequence had to pass.
    Empty,
    /// A pair was deleted; probe sequences continue after it.
    Tombstone,
    /// A pair.
    At(Grain),
}

/// The target of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The section.
    pub section: u64,
    /// The slot or fingerprint to look for.
    pub tag: u32,
}

/// A hash table of slots; each section holds a range of them. Probe `c` is slot `h + c + c^2`.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotTable {
    slots: StrengthReducedU64,
    section_slots: StrengthReducedU64,
}

impl SlotTable {
    pub fn new(slots: u64, section_slots: u32) -> SlotTable {
        SlotTable {
            slots: StrengthReducedU64::new(slots),
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

/// An entry with its passed bit as a number: grain + 2, 1 for a tombstone, or 0 for empty; then the bit.
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

    /// The entry after its pair is deleted.
    pub fn removed(self) -> Packed {
        if self.is_passed() { Packed::new(Entry::Tombstone, true) } else { Packed(0) }
    }
}

/// The first `count` bytes, shared if that is all of them; `None` if there are fewer.
fn beginning(bytes: Rc<[u8]>, count: usize) -> Option<Rc<[u8]>> {
    if bytes.len() == count { Some(bytes) } else { bytes.get(..count).map(Rc::from) }
}

/// The possibilities for a pair that a section does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// A slot that can take it.
    pub vacancy: Option<u32>,
    /// Has a store probed past its tag, or may it have?
    pub goes_on: bool,
}

/// A section in DRAM. Slots are numbered within the section; an entry stays in its slot until it is removed.
/// The default methods are for a `SlotTable` whose tags are slots.
pub trait Section {
    /// Replaces the section by the one at the start of `bytes`, which it may share until it is altered;
    /// `false` if they are no section of its format. The previous content is lost in both cases.
    #[must_use]
    fn load(&mut self, bytes: Rc<[u8]>) -> bool;
    /// Reads its first bytes, as [`std::hint::black_box`] does, to load them into the machine's caches.
    fn meet(&self);
    /// The content of a slot. Adds the number of comparisons to `comparisons`.
    fn get(&self, slot: u32, comparisons: &mut u64) -> Entry;

    /// The first slot from `from` on that may hold a key with this tag, with the pair it points at.
    fn candidate(&self, tag: u32, from: u32, comparisons: &mut u64) -> Option<(u32, Grain)> {
        match (from <= tag).then(|| self.get(tag, comparisons)) {
            Some(Entry::At(grain)) => Some((tag, grain)),
            _ => None,
        }
    }

    /// The possibilities for a new pair with this tag.
    fn outlook(&self, tag: u32) -> Outlook {
        let entry = self.get(tag, &mut 0);
        let vacancy = (!matches!(entry, Entry::At(_))).then_some(tag);
        Outlook { vacancy, goes_on: entry != Entry::Empty }
    }

    /// [`Outlook::vacancy`] while some slots are reserved.
    fn vacancy_besides(&self, tag: u32, is_taken: &dyn Fn(u32) -> bool) -> Option<u32> {
        self.outlook(tag).vacancy.filter(|slot| !is_taken(*slot))
    }

    /// Was [`Section::mark_passed`] called with this tag?
    fn is_passed(&self, tag: u32) -> bool;
    /// Points a slot at a pair with this tag; its passed bit stays.
    fn set(&mut self, slot: u32, tag: u32, grain: Grain);
    /// Notes that a store probed past this tag, which has no vacancy.
    fn mark_passed(&mut self, tag: u32);
    /// Removes the pair of a slot.
    fn remove(&mut self, slot: u32);
    /// Bytes it takes on flash.
    fn bytes(&self) -> u32;

    /// Bytes it uses in the cache.
    fn cached_bytes(&self) -> u32 {
        self.bytes()
    }

    /// Calls `found` with every slot that points at a pair, in slot order.
    fn pairs(&self, found: &mut dyn FnMut(u32, Grain));
    /// Encodes it in [`Section::bytes`] bytes, with this number and version. The section may share the result
    /// until it is altered.
    fn encode(&mut self, id: u64, version: u64) -> Rc<[u8]>;
}

/// The format of a drive's sections.
pub trait Format {
    /// Most slots of a section.
    fn slots(&self) -> u32;
    /// Sections of the drive's table.
    fn sections(&self) -> u64;
    /// The target of probe `number` of a key with this hash.
    fn probe(&self, hash: u64, number: u8) -> Probe;

    /// Can a probe ask for this tag?
    fn is_tag(&self, tag: u32) -> bool {
        tag < self.slots()
    }

    /// The slot at which the listing of a section starts for a key that does not exist.
    fn first_slot(&self, tag: u32) -> u32 {
        tag
    }

    /// A section without pairs.
    fn create(&self) -> Box<dyn Section>;

    /// The section at the start of `bytes`; `None` if they are no section of this format.
    fn decode(&self, bytes: Rc<[u8]>) -> Option<Box<dyn Section>> {
        let mut section = self.create();
        section.load(bytes).then_some(section)
    }

    /// Bytes on flash of the section with `header`.
    fn encoded_bytes(&self, header: &SectionHeader) -> u32;
    /// Bytes of DRAM that a section uses in the directory, cached or not.
    fn directory_bytes(&self) -> u64;
}

/// Bytes of a directory entry if sections begin at one of `places` places and take up to `most_grains` grains
/// (0: all take the same). Its bits: enough to number the places and one more value for a section that was
/// never written; enough for a length; and one that says whether the section is on flash or in the cache.
fn directory_bytes(places: u64, most_grains: u32) -> u64 {
    let bits = |most: u64| u64::BITS - most.leading_zeros();
    u64::from(bits(places) + bits(most_grains.into()) + 1).div_ceil(8)
}

/// The first bytes of every section on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionHeader {
    /// Byte of the format.
    pub form: u8,
    /// Cells of a bucket; 0 if they follow from the form.
    pub cells: u16,
    /// Number of the section.
    pub id: u64,
    /// Number of the version, counted over all sections.
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

    /// The header at the start of `bytes`.
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
