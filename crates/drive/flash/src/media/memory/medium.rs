//! The calls of a medium, on pages in memory.

use std::hint::black_box;
use std::rc::Rc;

use super::{Cell, Keep, Memory};
use crate::bad_blocks::BadBlocks;
use crate::geometry::{BlockId, Geometry, Ppa};
use crate::identity::Identity;
use crate::media::data::PageData;
use crate::media::packed::CACHE_LINE_BYTES;
use crate::media::{Media, MediaPage, image};
use crate::power::machine_file::WriteProtection;
use crate::spare::Spare;

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

    fn read_with_loss(&self, ppa: Ppa) -> MediaPage<(PageData, bool)> {
        match self.cell(ppa) {
            None | Some(Cell::Blank) => MediaPage::Erased,
            Some(Cell::Torn | Cell::Unreadable(_)) => MediaPage::Damaged,
            Some(Cell::Held(page)) => MediaPage::Programmed((page.data(), page.is_lost())),
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
