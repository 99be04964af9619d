//! Reading pages from flash, or from the buffer while they are still there, and holds that keep superblocks
//! from being erased meanwhile.

use std::hint::black_box;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_flash::{PageData, Purpose, Reservation};
use kvdrive_nvme::Status;

use super::Space;
use super::ahead::Reservations;
use super::program::first_item;
use super::stream::filling;
use crate::hash::layout::Grain;
use crate::hash::state::SuperblockState;

/// Bytes of a page, from flash or from the buffer, addressed by their offsets in the page.
#[derive(Clone)]
pub struct Part {
    data: PageData,
    /// Offset of the data in the page.
    base: u32,
}

impl Part {
    /// Passes bytes of the part to `sink`.
    pub fn read(&self, at: u32, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        self.data.read(at - self.base, bytes, sink);
    }

    /// [`PageData::item`] for bytes of the part.
    pub fn item(&self, at: u32, bytes: u32) -> Rc<[u8]> {
        self.data.item(at - self.base, bytes)
    }
}

/// Keeps a superblock from being erased.
pub struct ReadHold {
    space: Rc<Space>,
    superblock: u32,
}

impl Drop for ReadHold {
    fn drop(&mut self) {
        if self.space.sim.halted() {
            return;
        }
        let mut superblocks = self.space.superblocks.borrow_mut();
        let superblock = &mut superblocks[self.superblock as usize];
        superblock.readers -= 1;
        if superblock.readers == 0 && superblock.state == SuperblockState::Victim {
            self.space.quiet.wake_all();
        }
    }
}

impl Space {
    /// Keeps the superblock of `grain` from being erased.
    pub fn pin(self: &Rc<Self>, grain: Grain) -> ReadHold {
        let superblock = self.layout.superblock(grain);
        self.superblocks.borrow_mut()[superblock as usize].readers += 1;
        ReadHold { space: self.clone(), superblock }
    }

    /// Reads bytes `at .. at + bytes` of a page, from the buffer if it is still there. The caller holds a
    /// [`ReadHold`].
    ///
    /// Errors: [`Status::UNRECOVERED_ERROR`].
    pub fn read(&self, page: u32, at: u32, bytes: u32, purpose: Purpose) -> Result<Part, Status> {
        self.read_ahead(page, at, bytes, purpose, &Reservations::default())
    }

    /// Reserves the unit of a page, unless the page is in the buffer.
    pub fn reserve(&self, page: u32) -> Option<Reservation> {
        let is_buffered = self.buffered(page, 0, 0).is_some();
        (!is_buffered).then(|| self.flash.reserve(self.layout.ppa(page)))
    }

    /// What [`Space::read`] would return, at no cost: an emulator looks there before it computes the time.
    /// `None`: unreadable.
    pub fn peek(&self, page: u32, at: u32, bytes: u32) -> Option<Part> {
        self.buffered(page, at, bytes).or_else(|| {
            self.check_own(page)
                .ok()
                .and_then(|()| self.flash.peek(self.layout.ppa(page)))
                .map(|data| Part { data, base: 0 })
        })
    }

    /// As [`Space::read`], on a unit that may have been reserved in advance.
    pub fn read_ahead(
        &self,
        page: u32,
        at: u32,
        bytes: u32,
        purpose: Purpose,
        ahead: &Reservations,
    ) -> Result<Part, Status> {
        if let Some(part) = self.buffered(page, at, bytes) {
            return Ok(part);
        }
        let reserved = ahead.take(page);
        let read = self.flash.read_part_reserved(self.layout.ppa(page), bytes, purpose, reserved);
        self.check_own(page)?;
        Ok(Part { data: read.map_err(|_| Status::UNRECOVERED_ERROR)?, base: 0 })
    }

    /// Errors: [`Status::UNRECOVERED_ERROR`] for a disowned page.
    fn check_own(&self, page: u32) -> Result<(), Status> {
        if self.strangers.borrow().contains(&page) { Err(Status::UNRECOVERED_ERROR) } else { Ok(()) }
    }

    /// Announces reads of these grains: [`kvdrive_flash::FlashPort::expect`].
    pub fn expect(&self, grains: &[Grain], seen: &mut dyn FnMut(usize, &Rc<[u8]>)) {
        let part =
            |grain: &Grain| (self.layout.ppa(self.layout.page(*grain)), self.layout.byte_in_page(*grain));
        let parts: Vec<_> = grains.iter().map(part).collect();
        self.flash.expect(&parts, seen);
    }

    /// Announces that the items at these grains will become invalid.
    pub fn expect_invalid(&self, grains: impl Iterator<Item = Grain>) {
        let (validity, superblocks) = (self.validity.borrow(), self.superblocks.borrow());
        for grain in grains {
            validity.meet(grain);
            black_box(superblocks[self.layout.superblock(grain) as usize].valid);
        }
    }

    fn buffered(&self, page: u32, at: u32, bytes: u32) -> Option<Part> {
        let superblock = self.superblocks.borrow()[self.layout.superblock_of_page(page) as usize];
        if superblock.state != SuperblockState::Open
            && superblock.programming == 0
            && superblock.stranded == 0
        {
            return None;
        }
        if let Some(programming) = self.programming.borrow().get(&page) {
            return Some(Part { data: programming.data.clone(), base: 0 });
        }
        if let Some((region, _)) = self.stranded.borrow().get(&page) {
            return Some(Part { data: region.clone().into(), base: 0 });
        }
        let streams = self.streams.borrow();
        let open = streams.iter().filter_map(|stream| stream.open.as_ref()).find(|open| open.page == page)?;
        if let PageData::Items(_) = open.data {
            return Some(Part { data: open.data.clone(), base: 0 });
        }
        // A copy, because the stream continues to write into the region while the reader may wait.
        let mut region = Region::new();
        open.data.read(at, bytes, &mut filling(&mut region, 0));
        Some(Part { data: Rc::new(region).into(), base: at })
    }

    /// Reads a page of a victim and the grain of its first item: the whole page, or only the units in which
    /// something is valid.
    ///
    /// Errors: [`Status::UNRECOVERED_ERROR`].
    pub fn read_page(&self, page: u32, purpose: Purpose) -> Result<(PageData, u32), Status> {
        if let Some((region, first_item)) = self.stranded.borrow().get(&page) {
            return Ok((region.clone().into(), *first_item));
        }
        let bytes = match self.limits.skips_dead_units {
            true => self.live_bytes(page),
            false => self.layout.page_bytes(),
        };
        let read = self.flash.read_with_spare(self.layout.ppa(page), bytes, purpose);
        self.check_own(page)?;
        let (data, spare) = read.map_err(|_| Status::UNRECOVERED_ERROR)?;
        Ok((data, first_item(&spare)))
    }

    /// Bytes of the units of a page in which something is valid.
    fn live_bytes(&self, page: u32) -> u32 {
        let (first, unit_grains) = (self.layout.first_grain(page).0, self.layout.unit_grains);
        let validity = self.validity.borrow();
        let units = (0..self.layout.page_bytes() / self.layout.unit_bytes).map(u64::from);
        let unit = |index: u64| Grain(first + index * u64::from(unit_grains));
        let live = units.filter(|index| !validity.is_dead(unit(*index), unit_grains)).count();
        live as u32 * self.layout.unit_bytes
    }

    /// A page that is in the buffer, with its first item.
    pub(in crate::hash) fn buffered_page(&self, page: u32) -> Option<(PageData, u32)> {
        if let Some((region, first_item)) = self.stranded.borrow().get(&page) {
            return Some((region.clone().into(), *first_item));
        }
        if let Some(programming) = self.programming.borrow().get(&page) {
            return Some((programming.data.clone(), first_item(&programming.spare)));
        }
        let streams = self.streams.borrow();
        let open = streams.iter().filter_map(|stream| stream.open.as_ref()).find(|open| open.page == page)?;
        Some((open.data.clone(), open.first_item))
    }
}
