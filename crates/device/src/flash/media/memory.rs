//! What the media that live in memory share: pages per block, taken as they are programmed. A drive that is mostly
//! empty costs 24 B a block.
//!
//! How one page is kept is the business of a [`Keep`]: [`super::ram`] and [`super::tags`] have one each.

use std::rc::Rc;

use super::data::PageData;
use super::{Media, MediaPage, image};
use crate::flash::geometry::{BlockId, Geometry, Ppa};
use crate::flash::spare::Spare;

/// Steps from a page's place in its block to the bytes of one of its parts; see [`Keep::meet`].
const MEET_STEPS: u32 = 4;

/// One page as a medium keeps it.
pub trait Keep: Clone + 'static {
    /// Which format its images have.
    const FORMAT: image::Format;

    /// Takes a page in. `scratch` is anybody's between two calls.
    fn keep(data: &PageData, spare: &Spare, scratch: &mut Vec<u8>) -> Self;
    /// Its data. Panics when it was let go.
    fn data(&self) -> PageData;
    /// Looks at where the part at byte `at` is kept, one step further each time, from 0 to [`MEET_STEPS`]. What it finds is
    /// handed to [`std::hint::black_box`], so that it is really looked at.
    fn meet(&self, _at: u32, _step: u32) {}
    /// The item at byte `at`, if it is kept as one.
    fn item(&self, _at: u32) -> Option<&Rc<[u8]>> {
        None
    }
    /// Its header.
    fn spare(&self) -> Spare;
    /// Lets the data go if that saves something. The header stays.
    fn let_go(&mut self);
    /// Lets a part of the data go if that saves something, and says whether it did.
    fn let_go_part(&mut self, _at: u32, _bytes: u32) -> bool {
        false
    }
    /// Is the data still there?
    fn has_data(&self) -> bool;
}

/// State of a page that is not beyond the last programmed one of its block.
#[derive(Clone)]
pub(super) enum Cell<K> {
    /// Looks erased (after an interrupted erase).
    Blank,
    /// Neither header nor data can be read.
    Torn,
    /// The header can be read, the data cannot.
    Unreadable(Box<Spare>),
    /// Whole.
    Held(K),
}

/// Pages in memory, each as a `K`.
#[derive(Clone)]
pub struct Memory<K> {
    pub(super) geometry: Geometry,
    /// By block, the pages up to the last one that is not erased.
    pub(super) blocks: Vec<Vec<Cell<K>>>,
    scratch: Vec<u8>,
}

impl<K: Keep> Memory<K> {
    /// A fresh drive.
    pub fn new(geometry: &Geometry) -> Memory<K> {
        let blocks = vec![Vec::new(); geometry.blocks() as usize];
        Memory { geometry: *geometry, blocks, scratch: Vec::new() }
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
        let held = |ppa: &Ppa| match self.cell(*ppa) {
            Some(Cell::Held(page)) => Some(page),
            _ => None,
        };
        for step in 0..MEET_STEPS {
            for (page, at) in parts.iter().filter_map(|(ppa, at)| held(ppa).zip(Some(at))) {
                page.meet(*at, step);
            }
        }
        for (index, (ppa, at)) in parts.iter().enumerate() {
            held(ppa).and_then(|page| page.item(*at)).into_iter().for_each(|item| seen(index, item));
        }
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

    fn tear(&mut self, ppa: Ppa) {
        self.set(ppa, Cell::Torn);
    }

    fn blank(&mut self, ppa: Ppa) {
        if self.cell(ppa).is_some() {
            self.set(ppa, Cell::Blank);
        }
    }

    fn fork(&self) -> Box<dyn Media> {
        Box::new(self.clone())
    }

    fn image(&self) -> Vec<u8> {
        image::write(self)
    }
}
