//! Common part of the media that live in memory: pages per block, allocated as they are programmed. A drive
//! that is mostly empty costs 24 B per block.
//!
//! A [`Keep`] decides how one page is kept: [`super::ram`] and [`super::tags`] have one each. The calls of the flash
//! port are in [`medium`], the form of such a medium in files in [`super::image`].

mod medium;

use std::rc::Rc;

use super::data::PageData;
use crate::bad_blocks::BadBlocks;
use crate::geometry::{Geometry, Ppa};
use crate::identity::Identity;
use crate::power::machine_file::WriteProtection;
use crate::spare::Spare;

/// Format of a page's data in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As real bytes.
    Bytes = 1,
    /// As literal bytes and pattern descriptors.
    Tags = 2,
}

/// One page as a medium keeps it.
pub trait Keep: Clone + 'static {
    /// Format of its images.
    const FORMAT: Format;

    /// Stores a page. `scratch` is a reusable buffer.
    fn keep(data: &PageData, spare: &Spare, scratch: &mut Vec<u8>) -> Self;
    /// The data. Panics if it was freed.
    fn data(&self) -> PageData;
    /// Touches the memory that locates its parts, as [`std::hint::black_box`] does: to load the processor's
    /// caches.
    fn meet(&self) {}
    /// Touches the memory of the part at byte `at`. Returns the part if it is kept as one item.
    fn meet_part(&self, _at: u32) -> Option<&Rc<[u8]>> {
        None
    }
    /// Its header.
    fn spare(&self) -> Spare;
    /// Does its header say that its content is lost? Lookups ask that of every page: without fetching the header from
    /// memory.
    fn is_lost(&self) -> bool;
    /// Frees the data if that saves memory. The header stays.
    fn let_go(&mut self);
    /// Frees a part of the data if that saves memory; returns whether it did.
    fn let_go_part(&mut self, _at: u32, _bytes: u32) -> bool {
        false
    }
    /// Is the data still kept?
    fn has_data(&self) -> bool;
}

/// State of a page that is not after the last programmed page of its block.
#[derive(Clone)]
pub(super) enum Cell<K> {
    /// Looks erased (after an interrupted erase).
    Blank,
    /// Neither header nor data can be read.
    Torn,
    /// The header can be read, the data cannot.
    Unreadable(Box<Spare>),
    /// Readable.
    Held(K),
}

/// Pages in memory, each as a `K`.
#[derive(Clone)]
pub struct Memory<K> {
    pub(super) geometry: Geometry,
    pub(super) identity: Identity,
    /// For each block, its pages up to the last one that is not erased.
    pub(super) blocks: Vec<Vec<Cell<K>>>,
    pub(super) bad_blocks: BadBlocks,
    protection: WriteProtection,
    /// The content at the time of the freeze.
    frozen: Option<Box<Memory<K>>>,
    scratch: Vec<u8>,
}

impl<K: Keep> Memory<K> {
    /// A fresh drive.
    pub fn new(geometry: &Geometry, identity: Identity) -> Memory<K> {
        Memory::with(BadBlocks::none(geometry), geometry, identity)
    }

    /// A drive that has only this table of bad blocks.
    pub(super) fn with(bad_blocks: BadBlocks, geometry: &Geometry, identity: Identity) -> Memory<K> {
        let protection = WriteProtection::default();
        if bad_blocks.is_read_only() {
            protection.turn_on_without_spares();
        }
        Memory {
            geometry: *geometry,
            identity,
            blocks: vec![Vec::new(); geometry.media_blocks() as usize],
            bad_blocks,
            protection,
            frozen: None,
            scratch: Vec::new(),
        }
    }

    fn cell(&self, ppa: Ppa) -> Option<&Cell<K>> {
        let (block, page) = (self.geometry.block_of(ppa), self.geometry.page_of(ppa));
        self.blocks[block.0 as usize].get(page as usize)
    }

    fn cell_mut(&mut self, ppa: Ppa) -> Option<&mut Cell<K>> {
        let (block, page) = (self.geometry.block_of(ppa), self.geometry.page_of(ppa));
        self.blocks[block.0 as usize].get_mut(page as usize)
    }

    fn set(&mut self, ppa: Ppa, cell: Cell<K>) {
        let (block, page) = (self.geometry.block_of(ppa), self.geometry.page_of(ppa) as usize);
        let pages = &mut self.blocks[block.0 as usize];
        while pages.len() < page {
            pages.push(Cell::Blank);
        }
        if page == pages.len() {
            pages.push(cell);
        } else {
            pages[page] = cell;
        }
    }
}
