//! The protected image of a hash engine: what survives a power cut besides flash, as plain data and as bytes.
//!
//! It holds what is not on flash yet (open pages, pages whose program has not ended, altered sections,
//! records that are in no invalid page) and what flash does not tell (erase counts and order of free
//! superblocks, positions of streams). `recovery` finds everything else on flash. It could find the directory
//! of sections there, too, but if a page of sections were damaged, an older copy would be taken for the
//! newest.
//!
//! A frame of one part ([`kvdrive_flash::power::frame`]); numbers are little endian.

use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::{Decoder, Region, put_counted, put32, put64};
use kvdrive_flash::PageData;
use kvdrive_flash::power::ImageError;

use super::core::Core;
use super::section::SectionHeader;
use super::space::{KIND_DATA, KIND_MAP, State};

/// Why a page is in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageState {
    /// A stream fills it.
    Open,
    /// Its program is running or waiting.
    Programming,
    /// A power cut tore it; it stays in the buffer until its superblock is collected.
    Stranded,
}

/// A page that is not certainly on flash.
#[derive(Clone, Debug)]
pub(super) struct BufferedPage {
    pub state: PageState,
    pub stream: u8,
    pub first_item: u32,
    pub sequence: u64,
    pub region: Region,
}

/// The decoded image.
#[derive(Debug, Default)]
pub(super) struct Protected {
    pub sequence: u64,
    pub version: u64,
    /// State, kind and erase count of each superblock.
    pub superblocks: Vec<(State, u8, u32)>,
    pub free: Vec<u32>,
    /// Superblock and next grain of each stream.
    pub streams: [Option<(u32, u32)>; 4],
    pub pages: BTreeMap<u32, BufferedPage>,
    /// Location of each section's copy on flash: [`Location::word`](super::layout::Location), 0 for none.
    pub directory: Vec<u64>,
    /// Bytes of the altered sections, by number.
    pub sections: BTreeMap<u64, Vec<u8>>,
    /// Records that are in no invalid page, by superblock.
    pub records: BTreeMap<u32, Vec<u64>>,
}

const NONE: u32 = u32::MAX;

/// A copy of a page as a region.
fn flat(page: &PageData) -> Region {
    Rc::unwrap_or_clone(page.clone().into_region())
}

impl Protected {
    /// The present image of an engine.
    pub fn of(core: &Core) -> Protected {
        let space = &core.space;
        let mut pages = BTreeMap::new();
        let mut streams = [None; 4];
        for (index, stream) in space.streams.borrow().iter().enumerate() {
            streams[index] = stream.superblock.map(|superblock| (superblock, stream.at));
            if let Some(open) = &stream.open {
                let page = BufferedPage {
                    state: PageState::Open,
                    stream: index as u8,
                    first_item: open.first_item,
                    sequence: 0,
                    region: flat(&open.data),
                };
                pages.insert(open.page, page);
            }
        }
        for (page, programming) in space.programming.borrow().iter() {
            let page_of = BufferedPage {
                state: PageState::Programming,
                stream: programming.stream as u8,
                first_item: super::space::first_item(&programming.spare),
                sequence: programming.spare.sequence,
                region: flat(&programming.data),
            };
            pages.insert(*page, page_of);
        }
        for (page, (region, first_item)) in space.stranded.borrow().iter() {
            let page_of = BufferedPage {
                state: PageState::Stranded,
                stream: 0,
                first_item: *first_item,
                sequence: 0,
                region: Region::clone(region),
            };
            pages.insert(*page, page_of);
        }
        let mut sections = BTreeMap::new();
        core.cache.dirty(&mut |id, bytes| drop(sections.insert(id, bytes.to_vec())));
        let mut records = BTreeMap::new();
        if let Some(book) = &core.records {
            book.buffers(&mut |superblock, buffer| drop(records.insert(superblock, buffer.to_vec())));
        }
        Protected {
            sequence: space.sequence.get(),
            version: core.cache.version(),
            superblocks: space.superblocks.borrow().iter().map(|s| (s.state, s.kind, s.epoch)).collect(),
            free: space.free.borrow().iter().copied().collect(),
            streams,
            pages,
            directory: core.cache.locations(),
            sections,
            records,
        }
    }

    /// Its bytes, without a frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put64(&mut out, self.sequence);
        put64(&mut out, self.version);
        put32(&mut out, self.superblocks.len() as u32);
        for (state, kind, epoch) in &self.superblocks {
            out.extend_from_slice(&[state.code(), *kind]);
            put32(&mut out, *epoch);
        }
        put32(&mut out, self.free.len() as u32);
        self.free.iter().for_each(|superblock| put32(&mut out, *superblock));
        for stream in &self.streams {
            let (superblock, at) = stream.unwrap_or((NONE, 0));
            put32(&mut out, superblock);
            put32(&mut out, at);
        }
        put32(&mut out, self.pages.len() as u32);
        for (number, page) in &self.pages {
            put32(&mut out, *number);
            out.extend_from_slice(&[page.state as u8, page.stream]);
            put32(&mut out, page.first_item);
            put64(&mut out, page.sequence);
            page.region.encode(&mut out);
        }
        put32(&mut out, self.directory.len() as u32);
        self.directory.iter().for_each(|word| put64(&mut out, *word));
        put32(&mut out, self.sections.len() as u32);
        self.sections.values().for_each(|section| put_counted(&mut out, section));
        put32(&mut out, self.records.len() as u32);
        for (superblock, records) in &self.records {
            put32(&mut out, *superblock);
            put32(&mut out, records.len() as u32);
            records.iter().for_each(|record| put64(&mut out, *record));
        }
        out
    }

    /// Decodes an image without its frame.
    pub fn decode(bytes: &[u8]) -> Result<Protected, ImageError> {
        let mut from = Decoder::new(bytes);
        let protected =
            protected(&mut from).ok_or_else(|| ImageError::new(from.at(), "the image contradicts itself"))?;
        if !from.is_at_end() {
            return Err(ImageError::new(from.at(), "something follows the last record"));
        }
        Ok(protected)
    }
}

fn protected(from: &mut Decoder<'_>) -> Option<Protected> {
    let mut protected = Protected { sequence: from.u64()?, version: from.u64()?, ..Protected::default() };
    for _ in 0..from.u32()? {
        let state = State::of_code(from.u8()?)?;
        let kind = from.u8().filter(|kind| [KIND_DATA, KIND_MAP].contains(kind))?;
        protected.superblocks.push((state, kind, from.u32()?));
    }
    for _ in 0..from.u32()? {
        protected.free.push(from.u32()?);
    }
    for stream in &mut protected.streams {
        let (superblock, at) = (from.u32()?, from.u32()?);
        *stream = (superblock != NONE).then_some((superblock, at));
    }
    for _ in 0..from.u32()? {
        let number = from.u32()?;
        let state = match from.u8()? {
            0 => PageState::Open,
            1 => PageState::Programming,
            2 => PageState::Stranded,
            _ => return None,
        };
        let stream = from.u8().filter(|stream| *stream < 4)?;
        let page = BufferedPage {
            state,
            stream,
            first_item: from.u32()?,
            sequence: from.u64()?,
            region: from.region()?,
        };
        protected.pages.insert(number, page);
    }
    for _ in 0..from.u32()? {
        protected.directory.push(from.u64()?);
    }
    for _ in 0..from.u32()? {
        let bytes = from.counted()?;
        protected.sections.insert(SectionHeader::decode(bytes)?.id, bytes.to_vec());
    }
    for _ in 0..from.u32()? {
        let superblock = from.u32()?;
        let count = from.u32()?;
        let records = (0..count).map(|_| from.u64()).collect::<Option<Vec<u64>>>()?;
        protected.records.insert(superblock, records);
    }
    Some(protected)
}
