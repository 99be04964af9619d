//! Changes of the protected state of a hash engine, and their records: [`super::journal`] applies them to an
//! image.
//!
//! Changes between two suspensions are written together ([`power::Journal`]), so if the process is killed at
//! any instruction, the state on files is one that existed at a suspension. Media that do not outlive the
//! process keep no records.
//!
//! A change is a byte with its kind, then its fields, little endian:
//!
//! ```text
//!    0 Taken       kind u8 | superblock u32
//!    1 State       state u8 | superblock u32
//!    2 Erased      superblock u32
//!    3 Stream      stream u8 | superblock u32 | grain u32
//!    4 Put         stream u8 | page u32 | byte u32 | first item u32 | region
//!    5 Program     page u32 | sequence u64
//!    6 Programmed  page u32
//!    7 Section     bytes u32 | bytes
//!    8 Slot        what u8 | section u64 | slot u32 | tag u32 | grain u64     what is not meant is 0
//!    9 Written     section u64 | location u64
//!   10 Invalid     superblock u32 | record u64
//!   11 Spilled     superblock u32 | count u32
//!   12 Forgotten   superblock u32
//!   13 Moved       section u64 | location u64
//! ```

use std::borrow::Cow;

use kvdrive_content::{Decoder, Region, put_counted, put32, put64};
use kvdrive_flash::power;
use kvdrive_sim::TaskCell;

use super::layout::{Grain, Location};
use super::section::Section;
use super::space::State;

/// The part number of every record; there is only one part.
pub(super) const PART: u8 = 0;

/// A change of a slot of a section in DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alteration {
    /// The slot points at a pair with this tag.
    Set {
        /// Slot within the section.
        slot: u32,
        /// Tag of the pair.
        tag: u32,
        /// Address of the pair.
        grain: Grain,
    },
    /// The pair of the slot is removed.
    Remove {
        /// Slot within the section.
        slot: u32,
    },
    /// A store probed past this tag.
    MarkPassed {
        /// The tag.
        tag: u32,
    },
}

impl Alteration {
    /// Applies the change.
    pub fn apply(self, section: &mut dyn Section) {
        match self {
            Alteration::Set { slot, tag, grain } => section.set(slot, tag, grain),
            Alteration::Remove { slot } => section.remove(slot),
            Alteration::MarkPassed { tag } => section.mark_passed(tag),
        }
    }
}

/// One change of the protected state.
#[derive(Clone)]
pub(super) enum Change<'a> {
    /// The first free superblock is taken for pages of a kind.
    Taken { superblock: u32, kind: u8 },
    /// A superblock has a new state other than free.
    State { superblock: u32, state: State },
    /// A superblock was erased and is the last of the free ones.
    Erased { superblock: u32 },
    /// Present position of a stream.
    Stream { stream: u8, superblock: u32, at: u32 },
    /// The content of `region` from byte 0 on is put at a byte of a stream's open page. `first_item` is that
    /// of the page.
    Put { stream: u8, page: u32, at: u32, first_item: u32, region: Cow<'a, Region> },
    /// The program of the open page begins.
    Program { page: u32, sequence: u64 },
    /// The program of a page has ended.
    Programmed { page: u32 },
    /// First alteration of a section since it was written: all of its bytes.
    Section { bytes: &'a [u8] },
    /// Change of a slot of an altered section.
    Slot { section: u64, alteration: Alteration },
    /// A section was written, to flash or to an open page.
    Written { section: u64, location: Location },
    /// Collection has moved the copy of a section.
    Moved { section: u64, location: Location },
    /// A record of an invalid pair.
    Invalid { superblock: u32, record: u64 },
    /// The first records of a superblock were written to an invalid page.
    Spilled { superblock: u32, count: u32 },
    /// The records of a superblock are dropped.
    Forgotten { superblock: u32 },
}

/// The destination of changes.
pub(super) struct ChangeLog {
    records: power::Journal,
    /// Buffer for the encoded change.
    change: TaskCell<Vec<u8>>,
}

impl ChangeLog {
    /// A log that appends to `records`.
    pub fn new(records: power::Journal) -> ChangeLog {
        ChangeLog { records, change: TaskCell::default() }
    }

    /// Are changes kept? If not, callers need not describe them.
    pub fn is_kept(&self) -> bool {
        self.records.is_kept()
    }

    /// Records a change. If describing it takes work, the caller checks [`ChangeLog::is_kept`] first.
    #[inline]
    pub fn note(&self, change: Change<'_>) {
        if self.is_kept() {
            self.append(&change);
        }
    }

    fn append(&self, change: &Change<'_>) {
        let mut encoded = self.change.borrow_mut();
        encoded.clear();
        change.encode(&mut encoded);
        self.records.append(PART, &encoded);
    }
}

impl<'a> Change<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Change::Taken { superblock, kind } => {
                out.extend_from_slice(&[0, kind]);
                put32(out, superblock);
            }
            Change::State { superblock, state } => {
                out.extend_from_slice(&[1, state.code()]);
                put32(out, superblock);
            }
            Change::Erased { superblock } => put_all32(out, 2, &[superblock]),
            Change::Stream { stream, superblock, at } => {
                out.extend_from_slice(&[3, stream]);
                put32(out, superblock);
                put32(out, at);
            }
            Change::Put { stream, page, at, first_item, ref region } => {
                out.extend_from_slice(&[4, stream]);
                put32(out, page);
                put32(out, at);
                put32(out, first_item);
                region.encode(out);
            }
            Change::Program { page, sequence } => {
                put_all32(out, 5, &[page]);
                put64(out, sequence);
            }
            Change::Programmed { page } => put_all32(out, 6, &[page]),
            Change::Section { bytes } => {
                out.push(7);
                put_counted(out, bytes);
            }
            Change::Slot { section, alteration } => {
                let (what, slot, tag, grain) = match alteration {
                    Alteration::Set { slot, tag, grain } => (0, slot, tag, grain.0),
                    Alteration::Remove { slot } => (1, slot, 0, 0),
                    Alteration::MarkPassed { tag } => (2, 0, tag, 0),
                };
                out.extend_from_slice(&[8, what]);
                put64(out, section);
                put32(out, slot);
                put32(out, tag);
                put64(out, grain);
            }
            Change::Written { section, location } => put_location(out, 9, section, location),
            Change::Invalid { superblock, record } => {
                put_all32(out, 10, &[superblock]);
                put64(out, record);
            }
            Change::Spilled { superblock, count } => put_all32(out, 11, &[superblock, count]),
            Change::Forgotten { superblock } => put_all32(out, 12, &[superblock]),
            Change::Moved { section, location } => put_location(out, 13, section, location),
        }
    }

    /// Decodes the next change, without checking that it fits the state.
    pub fn decode(reader: &mut Decoder<'a>) -> Option<Change<'a>> {
        Some(match reader.u8()? {
            0 => {
                let kind = reader.u8()?;
                Change::Taken { superblock: reader.u32()?, kind }
            }
            1 => {
                let state = State::of_code(reader.u8()?)?;
                Change::State { superblock: reader.u32()?, state }
            }
            2 => Change::Erased { superblock: reader.u32()? },
            3 => Change::Stream { stream: reader.u8()?, superblock: reader.u32()?, at: reader.u32()? },
            4 => Change::Put {
                stream: reader.u8()?,
                page: reader.u32()?,
                at: reader.u32()?,
                first_item: reader.u32()?,
                region: Cow::Owned(reader.region()?),
            },
            5 => Change::Program { page: reader.u32()?, sequence: reader.u64()? },
            6 => Change::Programmed { page: reader.u32()? },
            7 => Change::Section { bytes: reader.counted()? },
            8 => {
                let (what, section) = (reader.u8()?, reader.u64()?);
                let (slot, tag, grain) = (reader.u32()?, reader.u32()?, Grain(reader.u64()?));
                let alteration = match what {
                    0 => Alteration::Set { slot, tag, grain },
                    1 => Alteration::Remove { slot },
                    2 => Alteration::MarkPassed { tag },
                    _ => return None,
                };
                Change::Slot { section, alteration }
            }
            9 => Change::Written { section: reader.u64()?, location: Location::of_word(reader.u64()?) },
            10 => Change::Invalid { superblock: reader.u32()?, record: reader.u64()? },
            11 => Change::Spilled { superblock: reader.u32()?, count: reader.u32()? },
            12 => Change::Forgotten { superblock: reader.u32()? },
            13 => Change::Moved { section: reader.u64()?, location: Location::of_word(reader.u64()?) },
            _ => return None,
        })
    }
}

fn put_all32(out: &mut Vec<u8>, code: u8, numbers: &[u32]) {
    out.push(code);
    numbers.iter().for_each(|number| put32(out, *number));
}

fn put_location(out: &mut Vec<u8>, code: u8, section: u64, location: Location) {
    out.push(code);
    put64(out, section);
    put64(out, location.word());
}
