//! Programs of full pages, and the steps after they end or when a page holds nothing valid any more.

use std::rc::Rc;

use kvdrive_flash::media::items;
use kvdrive_flash::{PageData, Spare};

use super::Space;
use super::stream::OpenPage;
use crate::hash::change::Change;
use crate::hash::layout::Grain;
use crate::hash::section::HEADER_BYTES;
use crate::hash::state::{KIND_MAP, Stream, SuperblockState};

/// A medium that drops an item keeps the header by which collection finds the next item.
const _: () = assert!(HEADER_BYTES <= items::HEAD_BYTES);

/// A page whose program has not ended.
#[derive(Clone)]
pub(in crate::hash) struct Programming {
    pub stream: Stream,
    pub data: PageData,
    pub spare: Spare,
}

pub(in crate::hash) struct Job {
    pub(super) page: u32,
    pub(super) what: Programming,
    pub(super) credit: u64,
}

impl Space {
    /// Starts the program of a page.
    pub(super) fn program(self: &Rc<Self>, stream: Stream, page: OpenPage) {
        let OpenPage { page, mut data, first_item, credit } = page;
        if let PageData::Items(items) = &mut data {
            Rc::make_mut(items).close();
        }
        let superblock = self.layout.superblock_of_page(page);
        let epoch = self.superblocks.borrow()[superblock as usize].epoch;
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        self.journal.append(&Change::Program { page, sequence });
        let spare = spare(stream, page, first_item, sequence, epoch);
        self.start(Job { page, what: Programming { stream, data, spare }, credit });
    }

    /// Hands a job to the unit of its page.
    pub(super) fn start(self: &Rc<Self>, job: Job) {
        let superblock = self.layout.superblock_of_page(job.page);
        self.superblocks.borrow_mut()[superblock as usize].programming += 1;
        self.programming.borrow_mut().insert(job.page, job.what.clone());
        let bytes = self.programming.borrow().len() as u64 * u64::from(self.layout.page_bytes());
        assert!(
            bytes <= self.limits.page_bytes,
            "{bytes} B of pages on their way do not fit the power-protected memory"
        );
        if job.what.stream.kind() == KIND_MAP {
            self.map_pages_in_flight.set(self.map_pages_in_flight.get() + 1);
            self.begun_map_page.set(Some(job.page));
        }
        let unit = self.layout.unit_of_page(job.page) as usize;
        self.jobs.borrow_mut()[unit].push_back(job);
        let space = self.clone();
        self.sim.spawn(move || space.program_next(unit));
    }

    fn program_next(self: Rc<Self>, unit: usize) {
        let job = self.jobs.borrow_mut()[unit].pop_front().expect("as many tasks as jobs");
        let ppa = self.layout.ppa(job.page);
        self.flash.program(ppa, job.what.data, job.what.spare, job.what.stream.purpose());
        let arrived = self.programming.borrow_mut().remove(&job.page);
        self.keep_region(arrived.expect("it was on its way").data);
        self.journal.append(&Change::Programmed { page: job.page });
        let superblock = self.layout.superblock_of_page(job.page);
        let quiet = {
            let mut superblocks = self.superblocks.borrow_mut();
            let superblock = &mut superblocks[superblock as usize];
            superblock.programming -= 1;
            superblock.programming == 0 && superblock.state == SuperblockState::Victim
        };
        if job.what.stream.kind() == KIND_MAP {
            self.map_pages_in_flight.set(self.map_pages_in_flight.get() - 1);
            self.map_room.wake_all();
        }
        if job.credit > 0 {
            self.return_room(job.credit);
        }
        if self.has_gc_room() {
            self.gc_room.wake_all();
        }
        self.discard_if_dead(job.page);
        self.programmed.wake_all();
        if quiet {
            self.quiet.wake_all();
        }
    }

    /// Keeps the memory of a programmed page for reuse, unless the medium or a reader shares it.
    fn keep_region(&self, data: PageData) {
        let mut spare = self.spare_regions.borrow_mut();
        if spare.len() < self.gc_pages_in_flight()
            && let PageData::Region(mut data) = data
            && let Some(region) = Rc::get_mut(&mut data)
        {
            region.clear();
            spare.push(data);
        }
    }

    /// Marks the item at `grain` as invalid.
    pub fn invalidate(&self, grain: Grain, grains: u32) {
        let superblock = self.layout.superblock(grain) as usize;
        let kind = {
            let superblock = &mut self.superblocks.borrow_mut()[superblock];
            superblock.valid =
                superblock.valid.checked_sub(grains).expect("only what is valid becomes invalid");
            superblock.kind
        };
        self.add_valid(kind, -i64::from(grains));
        if self.exhausted.replace(false) {
            self.wanted.wake_all();
        }
        if !self.validity.borrow_mut().invalidate(grain, grains) {
            return;
        }
        let last = Grain(grain.0 + u64::from(grains) - 1);
        for page in self.layout.page(grain)..=self.layout.page(last) {
            self.discard_if_dead(page);
        }
    }

    /// Marks the section or invalid page at `grain` as invalid and drops it: it was replaced, not moved, so no reader
    /// will read it.
    pub fn forget(&self, grain: Grain, grains: u32) {
        self.let_go(grain, grains);
        self.invalidate(grain, grains);
    }

    /// The section or invalid page at `grain` will not be read any more, except for its header, by which
    /// collection finds the next item. `true` if the medium has dropped it.
    pub fn let_go(&self, grain: Grain, grains: u32) -> bool {
        if !self.limits.discard || self.recovering.get() {
            return false;
        }
        let at = self.layout.byte_in_page(grain) + HEADER_BYTES as u32;
        let bytes = grains * self.layout.grain_bytes - HEADER_BYTES as u32;
        self.flash.discard_part(self.layout.ppa(self.layout.page(grain)), at, bytes)
    }

    fn discard_if_dead(&self, page: u32) {
        if !self.limits.discard || self.recovering.get() {
            return;
        }
        let superblock = self.superblocks.borrow()[self.layout.superblock_of_page(page) as usize];
        let first = self.layout.first_grain(page);
        if superblock.readers == 0
            && self.validity.borrow().is_dead(first, self.layout.page_grains)
            && !self.programming.borrow().contains_key(&page)
        {
            self.flash.discard(self.layout.ppa(page));
        }
    }
}

/// Used bytes of the spare area's tag: the first item. What published FTLs keep in the spare area (slots and
/// lengths of pairs) is in the headers of pairs here.
const TAG_USED_BYTES: usize = 4;
const _: () = assert!(TAG_USED_BYTES <= kvdrive_flash::spare::TAG_BYTES);

pub(super) fn spare(stream: Stream, page: u32, first_item: u32, sequence: u64, epoch: u32) -> Spare {
    let mut tag = [0; 48];
    tag[..TAG_USED_BYTES].copy_from_slice(&first_item.to_le_bytes());
    Spare { block_erases: epoch, ..Spare::new(stream.kind(), page.into(), sequence, tag) }
}

/// The first grain of a page at which an item begins, from its header.
pub fn first_item(spare: &Spare) -> u32 {
    u32::from_le_bytes(spare.tag[..TAG_USED_BYTES].try_into().expect("4 bytes"))
}
