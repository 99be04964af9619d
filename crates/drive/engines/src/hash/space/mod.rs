//! Superblocks and open pages: where items are written, and when superblocks can be erased again.
//!
//! Four streams append, each to a superblock of its own: pairs and sections, of the host and of garbage
//! collection. Appending takes no time and never waits: it puts the item into the open page of its stream, in
//! power-protected memory (pairs are copied, sections and invalid pages shared:
//! [`kvdrive_flash::media::items`]). A task of its own programs each full page. Callers wait *before* they
//! append: for room in that memory ([`Space::host_room`], [`Space::map_room`], [`Space::gc_room`]) and for
//! free superblocks ([`Space::admit`]).
//!
//! Knows no keys and no slots.
//!
//! | file | what |
//! |---|---|
//! | `stream` | the streams, their open pages, and appending |
//! | `superblock` | states, victims, erases |
//! | `program` | programs of pages |
//! | `read` | pages from flash or buffer, pins |
//! | `restore` | restoring state in recovery |

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_flash::FlashPort;
use kvdrive_flash::power::Journal;
use kvdrive_nvme::Status;
use kvdrive_sim::{Cause, Mutex, Sim, TaskCell, WaitQueue};

use super::layout::Layout;
pub use super::state::{KIND_DATA, KIND_MAP, STREAMS, Stream, SuperblockState};
use super::validity::Validity;

mod ahead;
mod program;
mod read;
mod restore;
mod stream;
mod superblock;

pub use ahead::Reservations;
pub use program::first_item;
pub use read::{Part, ReadHold};
pub use stream::{Content, filling};
pub use superblock::Superblock;

use program::{Job, Programming};
use stream::OpenStream;

/// Limit of pages of sections being programmed; at this limit evictions wait.
pub(super) const MAP_PAGES_IN_FLIGHT: u32 = 64;

/// Limits that the configuration sets.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Limit for bytes of pairs between arrival and the end of their program.
    pub write_buffer_bytes: u64,
    /// The part of them that pairs may take whose bytes have not all arrived.
    pub unfinished_bytes: u64,
    /// Collection runs while this many superblocks or fewer are free.
    pub low: u32,
    /// Host commands wait while this many superblocks or fewer are free.
    pub stall: u32,
    /// Limit for valid grains of pairs and sections.
    pub valid_grains: u64,
    /// Limit for bytes of pages that are open or being programmed.
    pub page_bytes: u64,
    /// May media drop dead pages?
    pub discard: bool,
    /// Weight of a section's valid grain when a victim is chosen; that of a pair is 1.
    pub section_weight: u64,
    /// Reads of victims do not transfer units in which nothing is valid.
    pub skips_dead_units: bool,
}

/// The space of one drive.
pub struct Space {
    sim: Sim,
    flash: FlashPort,
    pub(in crate::hash) layout: Layout,
    limits: Limits,
    journal: Journal,
    pub(in crate::hash) superblocks: TaskCell<Vec<Superblock>>,
    pub(in crate::hash) free: TaskCell<VecDeque<u32>>,
    pub(in crate::hash) streams: TaskCell<[OpenStream; 4]>,
    /// Pages whose program has not ended.
    pub(in crate::hash) programming: TaskCell<BTreeMap<u32, Programming>>,
    /// Pages that a power cut tore, with their first item: they stay in the buffer until their superblock is
    /// collected.
    pub(in crate::hash) stranded: TaskCell<BTreeMap<u32, (Rc<Region>, u32)>>,
    /// Pages with content that was not written there ([`Space::is_own`]); they are treated as damaged.
    strangers: TaskCell<BTreeSet<u32>>,
    /// Grains appended and grains padded, for pairs and for sections: shows what repacking could gain.
    packed: [Cell<(u64, u64)>; 2],
    /// Program and erase jobs by unit, so that blocks are programmed in order, independent of the order in which tasks
    /// run.
    pub(in crate::hash) jobs: TaskCell<Vec<VecDeque<Job>>>,
    pub(in crate::hash) validity: TaskCell<Box<dyn Validity>>,
    /// Valid grains of pairs, and of sections and invalid pages.
    pub(in crate::hash) valid: [Cell<u64>; 2],
    pub(in crate::hash) sequence: Cell<u64>,
    buffered_bytes: Cell<u64>,
    unfinished_bytes: Cell<u64>,
    map_pages_in_flight: Cell<u32>,
    /// The page of sections whose program began last, until it is taken.
    begun_map_page: Cell<Option<u32>>,
    /// A program has ended.
    programmed: WaitQueue,
    /// Wait queues for: room in the write buffer; fewer pages of sections being programmed; fewer pages of
    /// any kind being programmed. They are separate, so that a page wakes only tasks that can proceed.
    host_room: WaitQueue,
    host_turn: Mutex,
    map_room: WaitQueue,
    gc_room: WaitQueue,
    /// Regions of programmed pages, for reuse.
    spare_regions: TaskCell<Vec<Rc<Region>>>,
    /// A superblock was freed, or none will be.
    pub(in crate::hash) freed: WaitQueue,
    /// Collection has work.
    pub(in crate::hash) wanted: WaitQueue,
    quiet: WaitQueue,
    /// Collection found nothing to gain.
    pub(in crate::hash) exhausted: Cell<bool>,
    /// Is recovery under way, so that dead items are not known yet?
    recovering: Cell<bool>,
    /// Grains left empty because the next item did not fit.
    pub(in crate::hash) padded_grains: Cell<u64>,
}

impl Space {
    /// The space of an empty drive.
    pub(super) fn new(
        flash: &FlashPort,
        layout: Layout,
        limits: Limits,
        validity: Box<dyn Validity>,
        journal: &Journal,
    ) -> Rc<Space> {
        let sim = flash.sim();
        let superblock = Superblock {
            state: SuperblockState::Free,
            kind: KIND_DATA,
            valid: 0,
            epoch: 0,
            readers: 0,
            programming: 0,
            stranded: 0,
        };
        Rc::new(Space {
            sim: sim.clone(),
            flash: flash.clone(),
            layout,
            journal: journal.clone(),
            limits,
            superblocks: TaskCell::new(vec![superblock; layout.superblocks as usize]),
            free: TaskCell::new((0..layout.superblocks).collect()),
            streams: TaskCell::default(),
            programming: TaskCell::default(),
            stranded: TaskCell::default(),
            strangers: TaskCell::default(),
            packed: Default::default(),
            jobs: TaskCell::new((0..layout.units()).map(|_| VecDeque::new()).collect()),
            validity: TaskCell::new(validity),
            valid: Default::default(),
            sequence: Cell::new(1),
            buffered_bytes: Cell::new(0),
            unfinished_bytes: Cell::new(0),
            map_pages_in_flight: Cell::new(0),
            begun_map_page: Cell::new(None),
            programmed: WaitQueue::new(sim),
            host_room: WaitQueue::new(sim),
            host_turn: Mutex::new(sim),
            map_room: WaitQueue::new(sim),
            gc_room: WaitQueue::new(sim),
            spare_regions: TaskCell::default(),
            freed: WaitQueue::new(sim),
            wanted: WaitQueue::new(sim),
            quiet: WaitQueue::new(sim),
            exhausted: Cell::new(false),
            recovering: Cell::new(false),
            padded_grains: Cell::new(0),
        })
    }

    /// Free superblocks.
    pub fn free_superblocks(&self) -> u32 {
        self.free.borrow().len() as u32
    }

    /// Should collection run?
    pub fn is_low(&self) -> bool {
        self.free_superblocks() <= self.limits.low
            || (!self.stranded.borrow().is_empty() && self.has_full_stranded())
    }

    /// Is there a superblock with torn pages that can be collected?
    fn has_full_stranded(&self) -> bool {
        let superblocks = self.superblocks.borrow();
        let stranded = self.stranded.borrow();
        let mut pages =
            stranded.keys().map(|page| superblocks[self.layout.superblock_of_page(*page) as usize]);
        pages.any(|superblock| superblock.state == SuperblockState::Full)
    }

    /// Do host commands wait?
    pub fn is_stalled(&self) -> bool {
        self.free_superblocks() <= self.limits.stall
    }

    /// Grains that may be valid at most.
    pub fn limit_grains(&self) -> u64 {
        self.limits.valid_grains
    }

    /// Valid grains of pairs.
    pub fn valid_data(&self) -> u64 {
        self.valid[0].get()
    }

    /// DRAM for tracking valid grains, bytes.
    pub fn validity_dram_bytes(&self) -> u64 {
        self.validity.borrow().dram_bytes()
    }

    fn add_valid(&self, kind: u8, grains: i64) {
        let valid = &self.valid[usize::from(kind == KIND_MAP)];
        valid.set(valid.get().checked_add_signed(grains).expect("only what is valid becomes invalid"));
    }

    /// Waits until a host command may use space.
    ///
    /// Errors: [`Status::CAPACITY_EXCEEDED`] if no space can be freed any more.
    pub fn admit(&self) -> Result<(), Status> {
        while self.is_stalled() {
            if self.exhausted.get() {
                return Err(Status::CAPACITY_EXCEEDED);
            }
            self.wanted.wake_all();
            let _spent = self.sim.spend(Cause::Room);
            self.freed.wait();
        }
        Ok(())
    }

    /// Takes `bytes` bytes of the write buffer's share for unfinished pairs. `false`: the share is used up.
    pub fn begin_unfinished(&self, bytes: u64) -> bool {
        let unfinished = self.unfinished_bytes.get() + bytes;
        let fits = unfinished <= self.limits.unfinished_bytes;
        if fits {
            self.unfinished_bytes.set(unfinished);
        }
        fits
    }

    /// Returns them, after the host has sent the rest of a pair or given it up.
    pub fn end_unfinished(&self, bytes: u64) {
        self.unfinished_bytes.set(self.unfinished_bytes.get() - bytes);
    }

    /// Waits for room in the write buffer for a pair of `bytes` bytes, and takes it. First come, first
    /// served.
    pub fn host_room(&self, bytes: u64) {
        let _spent = self.sim.spend(Cause::Room);
        let _turn = self.host_turn.lock();
        while self.buffered_bytes.get() + bytes > self.limits.write_buffer_bytes {
            self.host_room.wait();
        }
        self.buffered_bytes.set(self.buffered_bytes.get() + bytes);
    }

    /// Returns unused room.
    pub fn return_room(&self, bytes: u64) {
        self.buffered_bytes.set(self.buffered_bytes.get() - bytes);
        self.host_room.wake_all();
    }

    /// Waits for the end of the program of a page, if it is in progress.
    pub fn page_programmed(&self, page: u32) {
        while self.programming.borrow().contains_key(&page) {
            let _spent = self.sim.spend(Cause::Program);
            self.programmed.wait();
        }
    }

    /// Takes the page of sections whose program began last.
    pub fn take_begun_map_page(&self) -> Option<u32> {
        self.begun_map_page.take()
    }

    /// Waits while too many pages of sections are being programmed. Callers alter or evict sections right
    /// after this without suspension, so only one caller at a time adds pages.
    pub fn map_room(&self) {
        while !self.has_map_room() {
            let _spent = self.sim.spend(Cause::Room);
            self.map_room.wait();
        }
    }

    /// Would [`Space::map_room`] return at once?
    pub fn has_map_room(&self) -> bool {
        self.map_pages_in_flight.get() < MAP_PAGES_IN_FLIGHT
    }

    /// Waits while too many pages are being programmed for collection to add more.
    pub fn gc_room(&self) {
        while !self.has_gc_room() {
            self.gc_room.wait();
        }
    }

    /// Would [`Space::gc_room`] return at once?
    pub fn has_gc_room(&self) -> bool {
        self.programming.borrow().len() < self.gc_pages_in_flight()
    }

    /// Limit of pages being programmed for collection.
    fn gc_pages_in_flight(&self) -> usize {
        (2 * self.layout.units() + MAP_PAGES_IN_FLIGHT) as usize
    }

    /// Write-buffer bytes in use.
    pub fn buffered_bytes(&self) -> u64 {
        self.buffered_bytes.get()
    }
}
