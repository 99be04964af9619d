//! Common part of the media that live in memory: pages per block, allocated as they are programmed. A drive
//! that is mostly empty costs 24 B per block.
//!
//! A [`Keep`] decides how one page is kept: [`super::ram`] and [`super::tags`] have one each.

use std::hint::black_box;
use std::rc::Rc;

use super::data::PageData;
use super::{CACHE_LINE_BYTES, Media, MediaPage, image};
use crate::bad_blocks::BadBlocks;
use crate::geometry::{BlockId, Geometry, Ppa};
use crate::identity::Identity;
use crate::power::machine_file::WriteProtection;
use crate::spare::Spare;

/// One page as a medium keeps it.
pub trait Keep: Clone + 'static {
    /// Format of its images.
    const FORMAT: image::Format;

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
    /// By block, the pages up to the last one that is not erased.
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

impl<K: Keep> Media for Memory<K> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn read(&self, ppa: Ppa) -> MediaPage<PageData> {
        match self.cell(ppa) {
            None | Some(Cell::Blank) => MediaPage::Erased,
            Some(Cell::Torn | Cell::Unreadable(_)) => MediaPage::Damaged,
            Some(Cell::Held(page)) => MediaPage::Programmed(page.data()),
        }
    }

    fn read_spare(&self, ppa: Ppa) -> MediaPage<Spare> {
        match self.cell(ppa) {
            None | Some(Cell::Blank) => MediaPage::Erased,
            Some(Cell::Torn) => MediaPage::Damaged,
            Some(Cell::Unreadable(spare)) => MediaPage::Programmed(**spare),
            Some(Cell::Held(page)) => MediaPage::Programmed(page.spare()),
        }
    }

    fn expect(&self, parts: &[(Ppa, u32)], seen: &mut dyn FnMut(usize, &Rc<[u8]>)) {
        let held = |(index, (ppa, at)): (usize, &(Ppa, u32))| match self.cell(*ppa) {
            Some(Cell::Held(page)) => Some((index, page, *at)),
            _ => None,
        };
        // Each step is done for all parts before the next step, so that the processor waits for several cache
        // misses at once.
        let held: Vec<(usize, &K, u32)> = parts.iter().enumerate().filter_map(held).collect();
        held.iter().for_each(|(_, page, _)| page.meet());
        let mut items = Vec::with_capacity(held.len());
        for (index, page, at) in &held {
            items.extend(page.meet_part(*at).map(|item| (*index, item)));
        }
        for (_, item) in &items {
            item.iter().step_by(CACHE_LINE_BYTES).for_each(|byte| _ = black_box(*byte));
        }
        items.iter().for_each(|(index, item)| seen(*index, item));
    }

    fn protection(&self) -> WriteProtection {
        self.protection.clone()
    }

    fn bad_blocks(&self) -> &BadBlocks {
        &self.bad_blocks
    }

    fn set_bad_blocks(&mut self, table: &BadBlocks) {
        self.bad_blocks = table.clone();
        if let Some(frozen) = &mut self.frozen {
            frozen.bad_blocks.lose_dies_of(table);
        }
    }

    fn freeze(&mut self) {
        self.frozen = Some(Box::new(self.clone()));
    }

    fn program(&mut self, ppa: Ppa, data: &PageData, spare: &Spare) {
        let page = K::keep(data, spare, &mut self.scratch);
        self.set(ppa, Cell::Held(page));
    }

    fn erase(&mut self, block: BlockId) {
        self.blocks[block.0 as usize] = Vec::new();
    }

    fn programmed_pages(&self, block: BlockId) -> u32 {
        self.blocks[block.0 as usize].len() as u32
    }

    fn discard(&mut self, ppa: Ppa) {
        if let Some(Cell::Held(held)) = self.cell_mut(ppa) {
            held.let_go();
        }
    }

    fn discard_part(&mut self, ppa: Ppa, at: u32, bytes: u32) -> bool {
        match self.cell_mut(ppa) {
            Some(Cell::Held(held)) => held.let_go_part(at, bytes),
            _ => false,
        }
    }

    fn copy(&mut self, from: Ppa, to: Ppa) {
        let cell = self.cell(from).cloned().unwrap_or(Cell::Blank);
        self.set(to, cell);
    }

    fn tear(&mut self, ppa: Ppa) {
        self.set(ppa, Cell::Torn);
    }

    /// Pages in memory have no check before they become an image: the flip is recorded instead.
    fn flip(&mut self, ppa: Ppa) {
        if let Some(Cell::Held(page)) = self.cell(ppa) {
            let spare = Box::new(page.spare());
            self.set(ppa, Cell::Unreadable(spare));
        }
    }

    fn blank(&mut self, ppa: Ppa) {
        if self.cell(ppa).is_some() {
            self.set(ppa, Cell::Blank);
        }
    }

    fn fork(&self) -> Box<dyn Media> {
        match &self.frozen {
            Some(frozen) => Box::new((**frozen).clone()),
            None => Box::new(self.clone()),
        }
    }

    fn image(&self) -> Vec<u8> {
        image::write(self.frozen.as_deref().unwrap_or(self))
    }
}
