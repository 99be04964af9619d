//! The protected image of a hash engine: the state that survives a power cut besides flash, as plain data and as bytes.
//!
//! It holds what is not on flash yet (open pages, pages whose program has not ended, altered sections,
//! records that are in no invalid page) and what flash does not tell (erase counts and order of free
//! superblocks, positions of streams). `recovery` finds everything else on flash. It could find the directory
//! of sections there, too, but if a page of sections were damaged, an older copy would be taken for the
//! newest.
//!
//! [`kvdrive_flash::power::seal`] makes it an image.

use std::collections::BTreeMap;
use std::rc::Rc;

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_content::Region;
use kvdrive_flash::PageData;

use super::core::HashState;
use super::state::{STREAMS, Stream, SuperblockState};
use crate::divided::Issued;

/// Why a page is in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub(super) enum PageState {
    /// A stream fills it.
    Open,
    /// Its program is running or waiting.
    Programming,
    /// A power cut tore it; it stays in the buffer until its superblock is collected.
    Stranded,
}

/// A page that is not certainly on flash.
#[derive(Clone, Debug, BorshSerialize, BorshDeserialize)]
pub(super) struct BufferedPage {
    pub state: PageState,
    pub stream: Stream,
    pub first_item: u32,
    pub sequence: u64,
    pub region: Region,
}

/// The state.
#[derive(Debug, Default, BorshSerialize, BorshDeserialize)]
pub(super) struct Protected {
    pub sequence: u64,
    pub version: u64,
    /// State, kind and erase count of each superblock.
    pub superblocks: Vec<(SuperblockState, u8, u32)>,
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
    /// Names that divided values have.
    pub issued: Issued,
}

/// A copy of a page as a region.
fn flat(page: &PageData) -> Region {
    Rc::unwrap_or_clone(page.clone().into_region())
}

impl Protected {
    /// The present image of an engine.
    pub fn of(core: &HashState) -> Protected {
        let space = &core.space;
        let mut pages = BTreeMap::new();
        let mut streams = [None; 4];
        for (index, stream) in space.streams.borrow().iter().enumerate() {
            streams[index] = stream.superblock.map(|superblock| (superblock, stream.at));
            if let Some(open) = &stream.open {
                let page = BufferedPage {
                    state: PageState::Open,
                    stream: STREAMS[index],
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
                stream: programming.stream,
                first_item: super::space::first_item(&programming.spare),
                sequence: programming.spare.sequence,
                region: flat(&programming.data),
            };
            pages.insert(*page, page_of);
        }
        for (page, (region, first_item)) in space.stranded.borrow().iter() {
            let page_of = BufferedPage {
                state: PageState::Stranded,
                stream: Stream::Data,
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
            issued: core.issued.get(),
        }
    }
}
