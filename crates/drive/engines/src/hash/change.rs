//! Changes of the protected state of a hash engine, and their records: [`super::journal`] applies them to an
//! image.
//!
//! Changes between two suspensions are written together ([`kvdrive_flash::power::Journal`]), so if the process is killed at
//! any instruction, the state on files is one that existed at a suspension. Media that do not outlive the
//! process keep no records.

use std::borrow::Cow;

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_content::Region;

use super::layout::Grain;
use super::section::Section;
use super::state::{Stream, SuperblockState};
use crate::divided::Issued;

/// A change of a slot of a section in DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
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
#[derive(Clone, BorshSerialize, BorshDeserialize)]
pub(super) enum Change<'a> {
    /// The first free superblock is taken for pages of a kind.
    Taken { superblock: u32, kind: u8 },
    /// A superblock has a new state other than free.
    Superblock { superblock: u32, state: SuperblockState },
    /// A superblock was erased and is the last of the free ones.
    Erased { superblock: u32 },
    /// Present position of a stream.
    Stream { stream: Stream, superblock: u32, at: u32 },
    /// The content of `region` from byte 0 on is put at a byte of a stream's open page. `first_item` is that
    /// of the page.
    Put { stream: Stream, page: u32, at: u32, first_item: u32, region: Cow<'a, Region> },
    /// The program of the open page begins.
    Program { page: u32, sequence: u64 },
    /// The program of a page has ended.
    Programmed { page: u32 },
    /// First alteration of a section since it was written: all of its bytes.
    Section { bytes: Cow<'a, [u8]> },
    /// Change of a slot of an altered section.
    Slot { section: u64, alteration: Alteration },
    /// A section was written, to flash or to an open page: [`super::layout::Location::word`].
    Written { section: u64, location: u64 },
    /// Collection has moved the copy of a section.
    Moved { section: u64, location: u64 },
    /// A record of an invalid pair.
    Invalid { superblock: u32, record: u64 },
    /// The first records of a superblock were written to an invalid page.
    Spilled { superblock: u32, count: u32 },
    /// The records of a superblock are dropped.
    Forgotten { superblock: u32 },
    /// Names that divided values have.
    Issued(Issued),
}
