//! Applies recorded [`Change`]s to a protected image, one by one, to bring it up to date.
//!
//! Recovery does not record what it finds: the image that it began with still describes that state, and a new
//! checkpoint is written before the first command is served. Programs that end during recovery are recorded, and their
//! records can be applied to either image.

use std::collections::BTreeMap;

use kvdrive_content::Region;
use kvdrive_flash::Geometry;
use kvdrive_flash::power::{ImageError, open, replay, seal};

use super::change::{Alteration, Change};
use super::config::HashConfig;
use super::consistency;
use super::image::{BufferedPage, PageState, Protected};
use super::layout::{Layout, Location};
use super::scheme::SchemeRow;
use super::section::{Entry, Format, Section};
use super::space::filling;
use super::state::{KIND_DATA, KIND_MAP, Stream, SuperblockState};

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
    records: &[Vec<u8>],
) -> Result<Vec<u8>, ImageError> {
    let layout = Layout::new(*geometry, config.grain_bytes, config.unit_bytes);
    let (owner, mut protected) = open::<Protected>(image)?;
    let format = (scheme.format)(&layout);
    let mut sections = BTreeMap::new();
    for section in std::mem::take(&mut protected.sections) {
        sections.extend([consistency::altered_section(&layout, &*format, section)?]);
    }
    let mut folding = Folding { protected, format, sections, layout };
    replay(records, |change| folding.apply(change).ok_or("it does not fit the state"))?;
    Ok(seal(&owner, &folding.finish()))
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
    fn apply(&mut self, change: Change<'_>) -> Option<()> {
        match change {
            Change::Taken { superblock, kind } => self.take(superblock, kind),
            Change::Superblock { superblock, state } => {
                let superblock = self.superblock(superblock)?;
                let may_be =
                    ![state, superblock.0].contains(&SuperblockState::Free) && state != SuperblockState::Open;
                may_be.then(|| superblock.0 = state)
            }
            Change::Erased { superblock } => self.erase(superblock),
            Change::Stream { stream, superblock, at } => {
                self.superblock(superblock).filter(|open| open.0 == SuperblockState::Open)?;
                let fits = at <= self.layout.superblock_grains;
                let stream = self.protected.streams.get_mut(stream as usize)?;
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
                self.sections.extend([consistency::section(&self.layout, &*self.format, &bytes)?]);
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
            Change::Issued(issued) => {
                let follows = issued.follows(&self.protected.issued);
                follows.then(|| self.protected.issued = issued)
            }
        }
    }

    /// The superblock of that number, if it is in range.
    fn known(&self, superblock: u32) -> Option<u32> {
        (superblock < self.layout.superblocks).then_some(superblock)
    }

    /// The image's entry for a superblock, if the number is in range.
    fn superblock(&mut self, superblock: u32) -> Option<&mut (SuperblockState, u8, u32)> {
        self.protected.superblocks.get_mut(superblock as usize)
    }

    fn take(&mut self, superblock: u32, kind: u8) -> Option<()> {
        self.protected.free.first().filter(|free| **free == superblock)?;
        self.protected.free.remove(0);
        let taken = self.superblock(superblock).filter(|taken| taken.0 == SuperblockState::Free)?;
        (taken.0, taken.1) = (SuperblockState::Open, kind);
        [KIND_DATA, KIND_MAP].contains(&kind).then_some(())
    }

    fn erase(&mut self, superblock: u32) -> Option<()> {
        let erased = self.superblock(superblock).filter(|erased| erased.0 == SuperblockState::Victim)?;
        erased.0 = SuperblockState::Free;
        erased.2 = erased.2.checked_add(1)?;
        self.protected.free.push(superblock);
        let first = self.layout.first_page(superblock);
        let pages = first..first + self.layout.superblock_pages;
        self.protected.pages.retain(|page, _| !pages.contains(page));
        Some(())
    }

    fn put(&mut self, stream: Stream, page: u32, at: u32, first_item: u32, content: &Region) -> Option<()> {
        let end = at.checked_add(content.written_end())?;
        if end > self.layout.page_bytes() || first_item > self.layout.page_grains {
            return None;
        }
        let superblock = self.layout.superblock_of_page(page);
        self.superblock(superblock).filter(|open| open.0 == SuperblockState::Open)?;
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

    fn place(&mut self, section: u64, location: u64) -> Option<()> {
        let word = self.protected.directory.get_mut(usize::try_from(section).ok()?)?;
        consistency::is_location(&self.layout, Location::of_word(location)).then(|| *word = location)
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

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use kvdrive_record::trial::every_byte;

    use super::*;
    use crate::divided::Issued;
    use crate::hash::layout::Grain;

    #[test]
    fn every_byte_of_a_change_is_refused_or_is_another_change() {
        let (superblock, page, section, location, record) = (1, 2, 3, 0x0405, 6);
        let region = Region::from_bytes(vec![7, 8]);
        let stream = Stream::MapGc;
        let changes = [
            Change::Taken { superblock, kind: KIND_MAP },
            Change::Superblock { superblock, state: SuperblockState::Lost },
            Change::Erased { superblock },
            Change::Stream { stream, superblock, at: 9 },
            Change::Put { stream, page, at: 9, first_item: 0, region: Cow::Borrowed(&region) },
            Change::Program { page, sequence: 10 },
            Change::Programmed { page },
            Change::Section { bytes: Cow::Borrowed(b"section") },
            Change::Slot { section, alteration: Alteration::Set { slot: 1, tag: 2, grain: Grain(3) } },
            Change::Slot { section, alteration: Alteration::Remove { slot: 1 } },
            Change::Slot { section, alteration: Alteration::MarkPassed { tag: 2 } },
            Change::Written { section, location },
            Change::Moved { section, location },
            Change::Invalid { superblock, record },
            Change::Spilled { superblock, count: 11 },
            Change::Forgotten { superblock },
            Change::Issued(Issued { slots: 12, numbers: 13 }),
        ];
        changes.iter().for_each(every_byte);
        let buffered = BufferedPage {
            state: PageState::Stranded,
            stream,
            first_item: 1,
            sequence: 2,
            region: region.clone(),
        };
        every_byte(&Protected {
            superblocks: vec![(SuperblockState::Open, KIND_DATA, 12)],
            free: vec![13],
            streams: [None, Some((14, 15)), None, None],
            pages: [(16, buffered)].into(),
            directory: vec![17],
            sections: [(18, vec![19])].into(),
            records: [(20, vec![21])].into(),
            issued: Issued { slots: 22, numbers: 23 },
            ..Protected::default()
        });
    }
}
