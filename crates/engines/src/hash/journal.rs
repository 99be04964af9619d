//! Records that keep a copy of the protected image up to date: every change of what it holds, as one of a few
//! steps.
//!
//! What happens between two waits is written together ([`power::Journal`]), so that a process killed at any
//! instruction leaves a state that was there between two of them. On media that do not outlive the process
//! nothing of this is done.
//!
//! Recovery writes no records of what it finds: the image it began with still stands for it, and a new
//! checkpoint is written before the first command is served. Programs that end meanwhile are recorded, which
//! fits either.
//!
//! A step is a byte that says which, then its numbers, little endian.

use std::collections::BTreeMap;

use kvdrive_content::{Decoder, Region};
use kvdrive_flash::Geometry;
use kvdrive_flash::power::{self, ImageError};
use kvdrive_sim::TaskCell;

use super::cache::Location;
use super::config::HashConfig;
use super::consistency;
use super::image::{BufferedPage, PageState, Protected, put_bytes, put32, put64};
use super::layout::{Grain, Layout};
use super::scheme::SchemeRow;
use super::section::{Entry, Format, Section};
use super::space::{KIND_DATA, KIND_MAP, State, filling};

/// The only part there is.
const PART: u8 = 0;

/// What happens to a slot of a section in DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alteration {
    /// It points at a pair with this tag.
    Set {
        /// Within the section.
        slot: u32,
        /// The pair's.
        tag: u32,
        /// The pair.
        grain: Grain,
    },
    /// Its pair is gone.
    Remove {
        /// Within the section.
        slot: u32,
    },
    /// A store probed past this tag.
    MarkPassed {
        /// What was looked for.
        tag: u32,
    },
}

impl Alteration {
    /// Does it.
    pub fn apply(self, section: &mut dyn Section) {
        match self {
            Alteration::Set { slot, tag, grain } => section.set(slot, tag, grain),
            Alteration::Remove { slot } => section.remove(slot),
            Alteration::MarkPassed { tag } => section.mark_passed(tag),
        }
    }
}

/// One change of the protected state.
#[derive(Clone, Copy)]
pub(super) enum Change<'a> {
    /// The first free superblock is taken for pages of a kind.
    Taken { superblock: u32, kind: u8 },
    /// A superblock is something else now; not free.
    State { superblock: u32, state: State },
    /// It is erased and the last of the free ones.
    Erased { superblock: u32 },
    /// Where a stream goes on.
    Stream { stream: u8, superblock: u32, at: u32 },
    /// Content of `region` from its byte 0 on is put at a byte of a stream's open page. `first_item`: the
    /// page's.
    Put { stream: u8, page: u32, at: u32, first_item: u32, region: &'a Region },
    /// The open page is on its way.
    Program { page: u32, sequence: u64 },
    /// It has arrived.
    Programmed { page: u32 },
    /// A section was altered that is as it was on flash until now: all of it.
    Section { bytes: &'a [u8] },
    /// A slot of an altered section was altered.
    Slot { section: u64, alteration: Alteration },
    /// A section was written: it is on flash, or in an open page.
    Written { section: u64, location: Location },
    /// Collection has moved the copy of a section.
    Moved { section: u64, location: Location },
    /// A record of an invalid pair.
    Invalid { superblock: u32, record: u64 },
    /// The first records of a superblock became an invalid page.
    Spilled { superblock: u32, count: u32 },
    /// A superblock's records are done with.
    Forgotten { superblock: u32 },
}

/// Where changes go.
pub(super) struct ChangeLog {
    records: power::Journal,
    /// The change being described, kept for its memory.
    change: TaskCell<Vec<u8>>,
}

impl ChangeLog {
    /// Into `records`.
    pub fn new(records: power::Journal) -> ChangeLog {
        ChangeLog { records, change: TaskCell::default() }
    }

    /// Does anybody keep the changes? If not, do not describe them.
    pub fn is_kept(&self) -> bool {
        self.records.is_kept()
    }

    /// Notes a change. The caller has asked [`ChangeLog::is_kept`] if describing it takes work.
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

impl Change<'_> {
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
            Change::Put { stream, page, at, first_item, region } => {
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
                put_bytes(out, bytes);
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
            Change::Written { section, location } => {
                out.push(9);
                put64(out, section);
                put64(out, location.word());
            }
            Change::Invalid { superblock, record } => {
                put_all32(out, 10, &[superblock]);
                put64(out, record);
            }
            Change::Spilled { superblock, count } => put_all32(out, 11, &[superblock, count]),
            Change::Forgotten { superblock } => put_all32(out, 12, &[superblock]),
            Change::Moved { section, location } => {
                out.push(13);
                put64(out, section);
                put64(out, location.word());
            }
        }
    }
}

fn put_all32(out: &mut Vec<u8>, code: u8, numbers: &[u32]) {
    out.push(code);
    numbers.iter().for_each(|number| put32(out, *number));
}

/// An image with changes being applied to it.
struct Folding {
    protected: Protected,
    format: Box<dyn Format>,
    /// Altered sections, as [`Protected::sections`] has them as bytes.
    sections: BTreeMap<u64, Box<dyn Section>>,
    layout: Layout,
}

/// Applies journal records to the image of an engine.
///
/// Errors: an image or a record that makes no sense; both have passed their checksums.
pub(super) fn fold(
    scheme: &SchemeRow,
    config: &HashConfig,
    geometry: &Geometry,
    image: &[u8],
    records: &[(u8, Vec<u8>)],
) -> Result<Vec<u8>, ImageError> {
    let layout = Layout::new(*geometry, config.grain_bytes, config.unit_bytes);
    let mut protected = Protected::decode(image)?;
    let format = (scheme.format)(&layout);
    let mut sections = BTreeMap::new();
    for bytes in std::mem::take(&mut protected.sections).into_values() {
        let section = consistency::section(&layout, &*format, &bytes);
        sections.extend([section.ok_or_else(|| ImageError::new(0, "an altered section is no section"))?]);
    }
    let mut folding = Folding { protected, format, sections, layout };
    for (number, (part, payload)) in records.iter().enumerate() {
        let mut reader = Decoder::new(payload);
        while *part != PART || !reader.is_at_end() {
            let known = *part == PART;
            known
                .then(|| folding.apply(&mut reader))
                .flatten()
                .ok_or_else(|| ImageError::new(0, format!("record {number} behind it makes no sense")))?;
        }
    }
    Ok(folding.finish().encode())
}

impl Folding {
    fn finish(self) -> Protected {
        let Folding { mut protected, sections, .. } = self;
        for (id, mut section) in sections {
            protected.sections.insert(id, section.encode(id, protected.version).to_vec());
        }
        protected
    }

    /// Applies one change; `None` when it cannot be.
    fn apply(&mut self, reader: &mut Decoder<'_>) -> Option<()> {
        match reader.u8()? {
            code @ 0..=3 => self.apply_superblock(code, reader),
            code @ 4..=6 => self.apply_page(code, reader),
            code @ (7..=9 | 13) => self.apply_section(code, reader),
            code => self.apply_records(code, reader),
        }
    }

    /// What is known of a superblock, if there is one of that number.
    fn superblock(&mut self, superblock: u32) -> Option<&mut (State, u8, u32)> {
        self.protected.superblocks.get_mut(superblock as usize)
    }

    fn apply_superblock(&mut self, code: u8, reader: &mut Decoder<'_>) -> Option<()> {
        match code {
            0 => {
                let kind = reader.u8().filter(|kind| [KIND_DATA, KIND_MAP].contains(kind))?;
                let superblock = reader.u32()?;
                self.protected.free.first().filter(|free| **free == superblock)?;
                self.protected.free.remove(0);
                let taken = self.superblock(superblock).filter(|taken| taken.0 == State::Free)?;
                (taken.0, taken.1) = (State::Open, kind);
            }
            1 => {
                let state = State::of_code(reader.u8()?)?;
                let superblock = self.superblock(reader.u32()?)?;
                if [state, superblock.0].contains(&State::Free) || state == State::Open {
                    return None;
                }
                superblock.0 = state;
            }
            2 => {
                let superblock = reader.u32()?;
                let erased = self.superblock(superblock).filter(|erased| erased.0 == State::Victim)?;
                erased.0 = State::Free;
                erased.2 = erased.2.checked_add(1)?;
                self.protected.free.push(superblock);
                let first = self.layout.first_page(superblock);
                let pages = first..first + self.layout.superblock_pages;
                self.protected.pages.retain(|page, _| !pages.contains(page));
            }
            _ => {
                let stream = reader.u8()?;
                let (superblock, at) = (reader.u32()?, reader.u32()?);
                self.superblock(superblock).filter(|open| open.0 == State::Open)?;
                let stream = self.protected.streams.get_mut(usize::from(stream))?;
                *stream = Some((superblock, at)).filter(|_| at <= self.layout.superblock_grains);
                stream.as_ref()?;
            }
        }
        Some(())
    }

    fn apply_page(&mut self, code: u8, reader: &mut Decoder<'_>) -> Option<()> {
        match code {
            4 => {
                let stream = reader.u8().filter(|stream| *stream < 4)?;
                let (number, at, first_item) = (reader.u32()?, reader.u32()?, reader.u32()?);
                let content = reader.region()?;
                let end = at.checked_add(content.written_end())?;
                if end > self.layout.page_bytes() || first_item > self.layout.page_grains {
                    return None;
                }
                let superblock = self.layout.superblock_of_page(number);
                self.superblock(superblock).filter(|open| open.0 == State::Open)?;
                let page = self.protected.pages.entry(number).or_insert_with(|| BufferedPage {
                    state: PageState::Open,
                    stream,
                    first_item,
                    sequence: 0,
                    region: Region::new(),
                });
                if (page.state, page.stream) != (PageState::Open, stream) {
                    return None;
                }
                page.first_item = first_item;
                content.read(0, content.written_end(), &mut filling(&mut page.region, at));
            }
            5 => {
                let page = self.protected.pages.get_mut(&reader.u32()?)?;
                let sequence = reader.u64()?;
                if page.state != PageState::Open || sequence != self.protected.sequence {
                    return None;
                }
                (page.state, page.sequence) = (PageState::Programming, sequence);
                self.protected.sequence = sequence.checked_add(1)?;
            }
            _ => {
                let page = self.protected.pages.remove(&reader.u32()?)?;
                if page.state != PageState::Programming {
                    return None;
                }
            }
        }
        Some(())
    }

    fn apply_section(&mut self, code: u8, reader: &mut Decoder<'_>) -> Option<()> {
        match code {
            7 => {
                let bytes = reader.counted()?;
                self.sections.extend([consistency::section(&self.layout, &*self.format, bytes)?]);
            }
            8 => self.apply_slot(reader)?,
            code => {
                let (section, word) = (reader.u64()?, reader.u64()?);
                if !consistency::is_location(&self.layout, Location::of_word(word)) {
                    return None;
                }
                if code == 9 {
                    self.sections.remove(&section)?;
                    self.protected.version = self.protected.version.checked_add(1)?;
                }
                *self.protected.directory.get_mut(usize::try_from(section).ok()?)? = word;
            }
        }
        Some(())
    }

    fn apply_slot(&mut self, reader: &mut Decoder<'_>) -> Option<()> {
        let what = reader.u8()?;
        let section = self.sections.get_mut(&reader.u64()?)?;
        let (slot, tag, grain) = (reader.u32()?, reader.u32()?, Grain(reader.u64()?));
        let (alteration, fits) = match what {
            0 => {
                let fits = self.format.is_tag(tag) && grain.0 < self.layout.grains();
                (Alteration::Set { slot, tag, grain }, fits && slot < self.format.slots())
            }
            1 => {
                let fits = slot < self.format.slots() && matches!(section.get(slot, &mut 0), Entry::At(_));
                (Alteration::Remove { slot }, fits)
            }
            2 => {
                let fits = self.format.is_tag(tag) && section.outlook(tag).vacancy.is_none();
                (Alteration::MarkPassed { tag }, fits)
            }
            _ => return None,
        };
        fits.then(|| alteration.apply(&mut **section))
    }

    fn apply_records(&mut self, code: u8, reader: &mut Decoder<'_>) -> Option<()> {
        let superblock = reader.u32().filter(|superblock| *superblock < self.layout.superblocks)?;
        let records = &mut self.protected.records;
        match code {
            10 => {
                let record = reader.u64().filter(|record| consistency::is_record(&self.layout, *record))?;
                records.entry(superblock).or_default().push(record);
            }
            11 => {
                let buffer = records.get_mut(&superblock)?;
                let count = reader.u32()? as usize;
                if count > buffer.len() {
                    return None;
                }
                buffer.drain(..count);
                if buffer.is_empty() {
                    records.remove(&superblock);
                }
            }
            12 => drop(records.remove(&superblock)),
            _ => return None,
        }
        Some(())
    }
}
