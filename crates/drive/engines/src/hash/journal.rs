//! Applies recorded [`Change`]s to a protected image, one by one, to bring it up to date.
//!
//! Recovery records nothing of what it finds: the image it began with still describes that, and a new
//! checkpoint is written before the first command is served. Programs that end meanwhile are recorded, which
//! fits both images.

use std::collections::BTreeMap;

use kvdrive_content::{Decoder, Region};
use kvdrive_flash::Geometry;
use kvdrive_flash::power::ImageError;

use super::change::{Alteration, Change, PART};
use super::config::HashConfig;
use super::consistency;
use super::image::{BufferedPage, PageState, Protected};
use super::layout::{Layout, Location};
use super::scheme::SchemeRow;
use super::section::{Entry, Format, Section};
use super::space::{KIND_DATA, KIND_MAP, State, filling};

/// An image with changes being applied to it.
struct Folding {
    protected: Protected,
    format: Box<dyn Format>,
    /// Altered sections, decoded from [`Protected::sections`].
    sections: BTreeMap<u64, Box<dyn Section>>,
    layout: Layout,
}

/// Applies journal records to the image of an engine.
///
/// Errors: an image or a record that makes no sense although its checksum fits.
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
                .ok_or_else(|| ImageError::new(0, format!("record {number} after it makes no sense")))?;
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

    /// Applies one change; `None` if it does not fit the state.
    fn apply(&mut self, reader: &mut Decoder<'_>) -> Option<()> {
        match Change::decode(reader)? {
            Change::Taken { superblock, kind } => self.take(superblock, kind),
            Change::State { superblock, state } => {
                let superblock = self.superblock(superblock)?;
                let may_be = ![state, superblock.0].contains(&State::Free) && state != State::Open;
                may_be.then(|| superblock.0 = state)
            }
            Change::Erased { superblock } => self.erase(superblock),
            Change::Stream { stream, superblock, at } => {
                self.superblock(superblock).filter(|open| open.0 == State::Open)?;
                let fits = at <= self.layout.superblock_grains;
                let stream = self.protected.streams.get_mut(usize::from(stream))?;
                fits.then(|| *stream = Some((superblock, at)))
            }
            Change::Put { stream, page, at, first_item, region } => {
                self.put(stream, page, at, first_item, &region)
            }
            Change::Program { page, sequence } => {
                let page = self.protected.pages.get_mut(&page)?;
                if page.state != PageState::Open || sequence != self.protected.sequence {
                    return None;
                }
                (page.state, page.sequence) = (PageState::Programming, sequence);
                self.protected.sequence = sequence.checked_add(1)?;
                Some(())
            }
            Change::Programmed { page } => {
                let page = self.protected.pages.remove(&page)?;
                (page.state == PageState::Programming).then_some(())
            }
            Change::Section { bytes } => {
                self.sections.extend([consistency::section(&self.layout, &*self.format, bytes)?]);
                Some(())
            }
            Change::Slot { section, alteration } => self.alter(section, alteration),
            Change::Written { section, location } => {
                self.place(section, location)?;
                self.sections.remove(&section)?;
                self.protected.version = self.protected.version.checked_add(1)?;
                Some(())
            }
            Change::Moved { section, location } => self.place(section, location),
            Change::Invalid { superblock, record } => {
                let is_record = consistency::is_record(&self.layout, record);
                let records = self.protected.records.entry(self.known(superblock)?).or_default();
                is_record.then(|| records.push(record))
            }
            Change::Spilled { superblock, count } => self.spill(superblock, count),
            Change::Forgotten { superblock } => {
                self.protected.records.remove(&self.known(superblock)?);
                Some(())
            }
        }
    }

    /// The superblock of that number, if it is in range.
    fn known(&self, superblock: u32) -> Option<u32> {
        (superblock < self.layout.superblocks).then_some(superblock)
    }

    /// The image's entry for a superblock, if the number is in range.
    fn superblock(&mut self, superblock: u32) -> Option<&mut (State, u8, u32)> {
        self.protected.superblocks.get_mut(superblock as usize)
    }

    fn take(&mut self, superblock: u32, kind: u8) -> Option<()> {
        self.protected.free.first().filter(|free| **free == superblock)?;
        self.protected.free.remove(0);
        let taken = self.superblock(superblock).filter(|taken| taken.0 == State::Free)?;
        (taken.0, taken.1) = (State::Open, kind);
        [KIND_DATA, KIND_MAP].contains(&kind).then_some(())
    }

    fn erase(&mut self, superblock: u32) -> Option<()> {
        let erased = self.superblock(superblock).filter(|erased| erased.0 == State::Victim)?;
        erased.0 = State::Free;
        erased.2 = erased.2.checked_add(1)?;
        self.protected.free.push(superblock);
        let first = self.layout.first_page(superblock);
        let pages = first..first + self.layout.superblock_pages;
        self.protected.pages.retain(|page, _| !pages.contains(page));
        Some(())
    }

    fn put(&mut self, stream: u8, page: u32, at: u32, first_item: u32, content: &Region) -> Option<()> {
        self.protected.streams.get(usize::from(stream))?;
        let end = at.checked_add(content.written_end())?;
        if end > self.layout.page_bytes() || first_item > self.layout.page_grains {
            return None;
        }
        let superblock = self.layout.superblock_of_page(page);
        self.superblock(superblock).filter(|open| open.0 == State::Open)?;
        let page = self.protected.pages.entry(page).or_insert_with(|| BufferedPage {
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
        Some(())
    }

    fn alter(&mut self, section: u64, alteration: Alteration) -> Option<()> {
        let section = self.sections.get_mut(&section)?;
        let fits = match alteration {
            Alteration::Set { slot, tag, grain } => {
                self.format.is_tag(tag) && grain.0 < self.layout.grains() && slot < self.format.slots()
            }
            Alteration::Remove { slot } => {
                slot < self.format.slots() && matches!(section.get(slot, &mut 0), Entry::At(_))
            }
            Alteration::MarkPassed { tag } => {
                self.format.is_tag(tag) && section.outlook(tag).vacancy.is_none()
            }
        };
        fits.then(|| alteration.apply(&mut **section))
    }

    fn place(&mut self, section: u64, location: Location) -> Option<()> {
        let word = self.protected.directory.get_mut(usize::try_from(section).ok()?)?;
        consistency::is_location(&self.layout, location).then(|| *word = location.word())
    }

    fn spill(&mut self, superblock: u32, count: u32) -> Option<()> {
        let superblock = self.known(superblock)?;
        let buffer = self.protected.records.get_mut(&superblock)?;
        let count = count as usize;
        if count > buffer.len() {
            return None;
        }
        buffer.drain(..count);
        if buffer.is_empty() {
            self.protected.records.remove(&superblock);
        }
        Some(())
    }
}
