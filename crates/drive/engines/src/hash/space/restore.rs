//! Restoring the space in recovery, from the protected image and flash.

use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_flash::{FlashPort, Spare};

use super::Space;
use super::program::{Job, Programming, spare};
use super::stream::{OpenPage, OpenStream};
use crate::hash::layout::Grain;
use crate::hash::state::{Stream, SuperblockState};

impl Space {
    /// The flash itself.
    pub(in crate::hash) fn flash(&self) -> &FlashPort {
        &self.flash
    }

    /// Starts with the state in an image.
    pub(in crate::hash) fn restore(
        &self,
        sequence: u64,
        superblocks: &[(SuperblockState, u8, u32)],
        free: Vec<u32>,
        streams: &[Option<(u32, u32)>; 4],
    ) {
        self.recovering.set(true);
        self.sequence.set(sequence);
        for (here, (state, kind, epoch)) in self.superblocks.borrow_mut().iter_mut().zip(superblocks) {
            (here.state, here.kind, here.epoch) = (*state, *kind, *epoch);
        }
        *self.free.borrow_mut() = free.into();
        for (here, stream) in self.streams.borrow_mut().iter_mut().zip(streams) {
            if let Some((superblock, at)) = stream {
                *here = OpenStream { superblock: Some(*superblock), at: *at, open: None };
            }
        }
    }

    /// Number of grains written to a superblock: the position of its stream, or all.
    pub(in crate::hash) fn written_grains(&self, superblock: u32) -> u32 {
        let streams = self.streams.borrow();
        let open = streams.iter().find(|open| open.superblock == Some(superblock));
        open.map_or(self.layout.superblock_grains, |open| open.at)
    }

    /// Does power-protected memory have room for `pages` pages being programmed?
    pub(in crate::hash) fn has_room_for(&self, pages: usize) -> bool {
        pages as u64 * u64::from(self.layout.page_bytes()) <= self.limits.page_bytes
    }

    /// Restores an open page. Its bytes do not count for the write buffer.
    pub(in crate::hash) fn restore_open(&self, page: u32, stream: Stream, first_item: u32, region: Region) {
        self.streams.borrow_mut()[stream as usize].open =
            Some(OpenPage { page, data: Rc::new(region).into(), first_item, credit: 0 });
    }

    /// Programs a page whose program had not begun.
    pub(in crate::hash) fn restart(
        self: &Rc<Self>,
        page: u32,
        stream: Stream,
        first_item: u32,
        sequence: u64,
        region: Region,
    ) {
        let epoch = self.superblocks.borrow()[self.layout.superblock_of_page(page) as usize].epoch;
        let spare = spare(stream, page, first_item, sequence, epoch);
        let data = Rc::new(region).into();
        self.start(Job { page, what: Programming { stream, data, spare }, credit: 0 });
    }

    /// Keeps a torn page in the buffer.
    pub(in crate::hash) fn strand(&self, page: u32, region: Rc<Region>, first_item: u32) {
        self.superblocks.borrow_mut()[self.layout.superblock_of_page(page) as usize].stranded += 1;
        self.stranded.borrow_mut().insert(page, (region, first_item));
    }

    /// Notes a valid item that recovery has found.
    pub(in crate::hash) fn found(&self, grain: Grain, grains: u32) {
        let superblock = self.layout.superblock(grain) as usize;
        let kind = {
            let superblock = &mut self.superblocks.borrow_mut()[superblock];
            superblock.valid += grains;
            superblock.kind
        };
        self.add_valid(kind, grains.into());
        self.validity.borrow_mut().write(grain, grains);
    }

    /// Notes an invalid item that recovery has found. `false`: something else is there, which is a
    /// contradiction.
    #[must_use]
    pub(in crate::hash) fn found_dead(&self, grain: Grain, grains: u32) -> bool {
        let mut validity = self.validity.borrow_mut();
        let can_be = validity.can_invalidate(grain, grains);
        if can_be {
            validity.invalidate(grain, grains);
        }
        can_be
    }

    /// Was a page of `kind` with this header written to this place, in the present life of its superblock? If not, it
    /// is unknown which item it has replaced, and the item that should be there is lost.
    pub(in crate::hash) fn is_own(&self, page: u32, kind: u8, spare: &Spare) -> bool {
        let epoch = self.superblocks.borrow()[self.layout.superblock_of_page(page) as usize].epoch;
        let is_here = (spare.kind, spare.lpa, spare.block_erases) == (kind, page.into(), epoch);
        is_here && spare.sequence < self.sequence.get()
    }

    /// Marks a page whose content on flash was not written there, or could not be counted: it is never read in this life.
    pub(in crate::hash) fn disown(&self, page: u32) {
        self.strangers.borrow_mut().insert(page);
    }

    /// Ends recovery: collection starts from the beginning. Superblocks without valid items are collected first, and so
    /// erased again; items that could not be read in another life are tried again.
    pub(in crate::hash) fn settle_states(&self) {
        self.recovering.set(false);
        for superblock in self.superblocks.borrow_mut().iter_mut() {
            if matches!(superblock.state, SuperblockState::Victim | SuperblockState::Lost) {
                superblock.state = SuperblockState::Full;
            }
        }
    }
}
