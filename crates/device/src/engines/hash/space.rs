//! Superblocks, the pages that are being filled, and the way back: what is written where, and what may be erased.
//!
//! Four streams append, each to a superblock of its own: pairs and sections, of the host and of garbage collection.
//! Appending takes no time and never waits: it puts the item into the open page of its stream, in power-protected
//! memory; a page that is full is programmed by a task of its own. Whoever produces items waits *before*, for room in
//! that memory ([`Space::host_room`], [`Space::map_room`]) and for free superblocks ([`Space::admit`]).
//!
//! Knows no keys and no slots.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use kvdrive_link::{Piece, Region};
use kvdrive_sim::{Sim, WaitQueue};
use kvdrive_spec::Status;

use super::layout::{Grain, Layout};
use super::validity::Validity;
use crate::flash::{FlashPort, Purpose, Spare};

/// Kind of a page of pairs, in its header.
pub const KIND_DATA: u8 = 1;
/// Kind of a page of sections and invalid records.
pub const KIND_MAP: u8 = 2;
/// Pages of sections in flight before those who evict wait.
const MAP_PAGES_IN_FLIGHT: u32 = 64;

/// Who appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Pairs of the host.
    Data,
    /// Pairs moved by garbage collection.
    DataGc,
    /// Sections and invalid records.
    Map,
    /// Sections and invalid records moved by garbage collection.
    MapGc,
}

/// Every stream.
pub const STREAMS: [Stream; 4] = [Stream::Data, Stream::DataGc, Stream::Map, Stream::MapGc];

impl Stream {
    fn purpose(self) -> Purpose {
        match self {
            Stream::Data => Purpose::Data,
            Stream::DataGc => Purpose::DataGc,
            Stream::Map => Purpose::Map,
            Stream::MapGc => Purpose::MapGc,
        }
    }

    /// Kind of its pages.
    pub fn kind(self) -> u8 {
        match self {
            Stream::Data | Stream::DataGc => KIND_DATA,
            Stream::Map | Stream::MapGc => KIND_MAP,
        }
    }
}

/// What is appended.
#[derive(Clone, Copy)]
pub enum Content<'a> {
    /// Real bytes.
    Bytes(&'a [u8]),
    /// Bytes of a region from some byte on.
    Stored(&'a Region, u32),
}

/// What a superblock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Erased.
    Free,
    /// A stream appends to it.
    Open,
    /// Written to its end, or as far as its stream got.
    Full,
    /// Being collected.
    Victim,
    /// Holds what can neither be read nor moved; never erased, so that it is not mistaken for anything else.
    Lost,
}

/// One superblock.
#[derive(Clone, Copy, Debug)]
pub struct Superblock {
    /// What it is.
    pub state: State,
    /// [`KIND_DATA`] or [`KIND_MAP`]; whatever it was last, when free.
    pub kind: u8,
    /// Valid grains.
    pub valid: u32,
    /// How often it was erased: records of an earlier life do not count.
    pub epoch: u32,
    readers: u32,
    programming: u32,
    /// Pages of it that were torn and live in the buffer.
    stranded: u32,
}

/// The page a stream fills.
pub(super) struct OpenPage {
    pub page: u32,
    pub region: Region,
    /// First grain of the page at which an item begins; the page's grains if none does.
    pub first_item: u32,
    /// Write-buffer bytes that come back when it has been programmed.
    pub credit: u64,
}

#[derive(Default)]
pub(super) struct OpenStream {
    pub superblock: Option<u32>,
    /// Next grain within the superblock.
    pub at: u32,
    pub open: Option<OpenPage>,
}

/// A page whose program has not ended.
#[derive(Clone)]
pub(super) struct Programming {
    pub stream: Stream,
    pub data: Rc<Region>,
    pub spare: Spare,
}

pub(super) struct Job {
    page: u32,
    what: Programming,
    credit: u64,
}

/// Bytes of a page, from flash or from the buffer. Positions are those of the page.
#[derive(Clone)]
pub struct Part {
    region: Rc<Region>,
    /// Where the region begins in the page.
    base: u32,
}

impl Part {
    /// Hands out bytes that lie in the part.
    pub fn read(&self, at: u32, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        self.region.read(at - self.base, bytes, sink);
    }

    /// Copies bytes that lie in the part.
    pub fn copy_to(&self, at: u32, out: &mut [u8]) {
        self.region.copy_to(at - self.base, out);
    }
}

/// Keeps a superblock from being erased.
pub struct Reader {
    space: Rc<Space>,
    superblock: u32,
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.space.sim.halted() {
            return;
        }
        let mut superblocks = self.space.superblocks.borrow_mut();
        let superblock = &mut superblocks[self.superblock as usize];
        superblock.readers -= 1;
        if superblock.readers == 0 && superblock.state == State::Victim {
            self.space.quiet.wake_all();
        }
    }
}

/// Limits that the configuration sets.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of pairs between arrival and program.
    pub write_buffer_bytes: u64,
    /// Collection runs while so many superblocks are free, or fewer.
    pub low: u32,
    /// Host commands wait while no more are free.
    pub stall: u32,
    /// Valid grains that pairs and sections may have.
    pub valid_grains: u64,
    /// Media may forget dead pages.
    pub discard: bool,
}

/// The space of one drive.
pub struct Space {
    sim: Sim,
    flash: FlashPort,
    pub(super) layout: Layout,
    limits: Limits,
    pub(super) superblocks: RefCell<Vec<Superblock>>,
    pub(super) free: RefCell<VecDeque<u32>>,
    pub(super) streams: RefCell<[OpenStream; 4]>,
    /// Pages whose program has not ended.
    pub(super) programming: RefCell<BTreeMap<u32, Programming>>,
    /// Pages that a power cut tore, with their first item: kept in the buffer until their superblock is collected.
    pub(super) stranded: RefCell<BTreeMap<u32, (Rc<Region>, u32)>>,
    /// Grains appended and grains padded, of pairs and of sections: how much of what is valid repacking could gain.
    packed: [Cell<(u64, u64)>; 2],
    /// Jobs by unit, so that blocks are programmed in order whatever order tasks run in.
    pub(super) jobs: RefCell<Vec<VecDeque<Job>>>,
    pub(super) validity: RefCell<Box<dyn Validity>>,
    /// Valid grains of pairs, and of sections and invalid pages.
    pub(super) valid: [Cell<u64>; 2],
    pub(super) sequence: Cell<u64>,
    buffered_bytes: Cell<u64>,
    map_pages_in_flight: Cell<u32>,
    programmed: WaitQueue,
    /// A superblock became free, or none will.
    pub(super) freed: WaitQueue,
    /// Collection has something to do.
    pub(super) wanted: WaitQueue,
    quiet: WaitQueue,
    /// Collection has found nothing to gain.
    pub(super) exhausted: Cell<bool>,
    /// Nothing is known to be dead yet.
    recovering: Cell<bool>,
    /// Grains that hold nothing because an item did not fit behind them.
    pub(super) padded_grains: Cell<u64>,
}

impl Space {
    /// An empty drive's space.
    pub fn new(flash: &FlashPort, layout: Layout, limits: Limits, validity: Box<dyn Validity>) -> Rc<Space> {
        let sim = flash.sim();
        let superblock = Superblock {
            state: State::Free,
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
            limits,
            superblocks: RefCell::new(vec![superblock; layout.superblocks as usize]),
            free: RefCell::new((0..layout.superblocks).collect()),
            streams: RefCell::default(),
            programming: RefCell::default(),
            stranded: RefCell::default(),
            packed: Default::default(),
            jobs: RefCell::new((0..layout.units()).map(|_| VecDeque::new()).collect()),
            validity: RefCell::new(validity),
            valid: Default::default(),
            sequence: Cell::new(1),
            buffered_bytes: Cell::new(0),
            map_pages_in_flight: Cell::new(0),
            programmed: WaitQueue::new(sim),
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
        pages.any(|superblock| superblock.state == State::Full)
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

    /// DRAM of what knows valid grains, bytes.
    pub fn validity_dram_bytes(&self) -> u64 {
        self.validity.borrow().dram_bytes()
    }

    fn add_valid(&self, kind: u8, grains: i64) {
        let valid = &self.valid[usize::from(kind == KIND_MAP)];
        valid.set(valid.get().checked_add_signed(grains).expect("only what is valid becomes invalid"));
    }

    /// Waits until a host command may take space.
    ///
    /// Errors: [`Status::CAPACITY_EXCEEDED`] when no space comes free any more.
    pub async fn admit(&self) -> Result<(), Status> {
        while self.is_stalled() {
            if self.exhausted.get() {
                return Err(Status::CAPACITY_EXCEEDED);
            }
            self.wanted.wake_all();
            self.freed.wait().await;
        }
        Ok(())
    }

    /// Waits for room in the write buffer for a pair of `bytes` bytes, and takes it.
    pub async fn host_room(&self, bytes: u64) {
        while self.buffered_bytes.get() + bytes > self.limits.write_buffer_bytes {
            self.programmed.wait().await;
        }
        self.buffered_bytes.set(self.buffered_bytes.get() + bytes);
    }

    /// Gives room back that was not used.
    pub fn return_room(&self, bytes: u64) {
        self.buffered_bytes.set(self.buffered_bytes.get() - bytes);
        self.programmed.wake_all();
    }

    /// Waits while too many pages of sections are on their way.
    pub async fn map_room(&self) {
        while self.map_pages_in_flight.get() >= MAP_PAGES_IN_FLIGHT {
            self.programmed.wait().await;
        }
    }

    /// Waits while too many pages are on their way for collection to add to them.
    pub async fn gc_room(&self) {
        while self.programming.borrow().len() as u32 >= 2 * self.layout.units() + MAP_PAGES_IN_FLIGHT {
            self.programmed.wait().await;
        }
    }

    /// Write-buffer bytes in use.
    pub fn buffered_bytes(&self) -> u64 {
        self.buffered_bytes.get()
    }

    /// Appends `bytes` bytes; `None` when the stream needs a superblock it must not have. Items of `in_unit` do not
    /// cross read units.
    pub fn append(
        self: &Rc<Self>,
        stream: Stream,
        content: Content<'_>,
        bytes: u32,
        in_unit: bool,
    ) -> Option<Grain> {
        let grains = self.layout.grains_of(bytes);
        assert!(grains <= self.layout.superblock_grains, "an item of {bytes} B is larger than a superblock");
        let mut streams = self.streams.borrow_mut();
        let open = &mut streams[stream as usize];
        if in_unit {
            let left = self.layout.unit_grains - open.at % self.layout.unit_grains;
            if open.superblock.is_some() && left < grains {
                self.pad(stream, open, left);
            }
        }
        if open.superblock.is_none() || open.at + grains > self.layout.superblock_grains {
            let next = self.take_superblock(stream)?;
            if let Some(full) = open.superblock {
                self.pad(stream, open, self.layout.superblock_grains - open.at);
                self.superblocks.borrow_mut()[full as usize].state = State::Full;
            }
            *open = OpenStream { superblock: Some(next), at: 0, open: None };
        }
        let superblock = open.superblock.expect("opened above");
        let grain = self.layout.grain(superblock, open.at);
        let host_bytes = if stream == Stream::Data { u64::from(grains * self.layout.grain_bytes) } else { 0 };
        let mut done = 0;
        while done < grains {
            let in_page = open.at % self.layout.page_grains;
            let fits = (self.layout.page_grains - in_page).min(grains - done);
            let from = done * self.layout.grain_bytes;
            let count = (fits * self.layout.grain_bytes).min(bytes - from);
            let page = self.open_page(superblock, open);
            put(&mut page.region, in_page * self.layout.grain_bytes, content, from, count);
            if done == 0 {
                page.first_item = page.first_item.min(in_page);
            }
            done += fits;
            if done == grains {
                page.credit += host_bytes;
            }
            open.at += fits;
            self.close_if_full(stream, open);
        }
        self.add_valid(stream.kind(), grains.into());
        self.note_packed(stream.kind(), grains, 0);
        self.superblocks.borrow_mut()[superblock as usize].valid += grains;
        self.validity.borrow_mut().write(grain, grains);
        Some(grain)
    }

    fn open_page<'a>(&self, superblock: u32, open: &'a mut OpenStream) -> &'a mut OpenPage {
        let page = self.layout.first_page(superblock) + open.at / self.layout.page_grains;
        open.open.get_or_insert_with(|| OpenPage {
            page,
            region: Region::new(),
            first_item: self.layout.page_grains,
            credit: 0,
        })
    }

    /// Leaves `grains` grains behind the last item empty.
    fn pad(self: &Rc<Self>, stream: Stream, open: &mut OpenStream, grains: u32) {
        let Some(superblock) = open.superblock else { return };
        self.padded_grains.set(self.padded_grains.get() + u64::from(grains));
        if grains == 0 {
            return;
        }
        self.note_packed(stream.kind(), 0, grains);
        self.validity.borrow_mut().invalidate(self.layout.grain(superblock, open.at), grains);
        let mut left = grains;
        while left > 0 {
            let fits = (self.layout.page_grains - open.at % self.layout.page_grains).min(left);
            // A page that nothing was put into is not programmed: its block is erased as it is.
            open.at += fits;
            left -= fits;
            self.close_if_full(stream, open);
        }
    }

    fn close_if_full(self: &Rc<Self>, stream: Stream, open: &mut OpenStream) {
        if !open.at.is_multiple_of(self.layout.page_grains) {
            return;
        }
        if let Some(page) = open.open.take() {
            self.program(stream, page);
        }
    }

    /// A free superblock for `stream`, if it may have one.
    fn take_superblock(&self, stream: Stream) -> Option<u32> {
        let reserved = if stream == Stream::Data { self.limits.stall } else { 0 };
        let mut free = self.free.borrow_mut();
        if free.len() as u32 <= reserved {
            drop(free);
            self.wanted.wake_all();
            return None;
        }
        let superblock = free.pop_front().expect("not empty");
        let is_low = free.len() as u32 <= self.limits.low;
        let mut superblocks = self.superblocks.borrow_mut();
        let taken = &mut superblocks[superblock as usize];
        assert!(taken.state == State::Free && taken.valid == 0, "superblock {superblock} is not free");
        taken.state = State::Open;
        taken.kind = stream.kind();
        if is_low {
            self.wanted.wake_all();
        }
        Some(superblock)
    }

    /// Starts the program of a page.
    fn program(self: &Rc<Self>, stream: Stream, page: OpenPage) {
        let OpenPage { page, region, first_item, credit } = page;
        let superblock = self.layout.superblock_of_page(page);
        let epoch = self.superblocks.borrow()[superblock as usize].epoch;
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        let spare = spare(stream, page, first_item, sequence, epoch);
        self.start(Job { page, what: Programming { stream, data: Rc::new(region), spare }, credit });
    }

    /// Hands a page to the unit it lies on.
    fn start(self: &Rc<Self>, job: Job) {
        let superblock = self.layout.superblock_of_page(job.page);
        self.superblocks.borrow_mut()[superblock as usize].programming += 1;
        self.programming.borrow_mut().insert(job.page, job.what.clone());
        if job.what.stream.kind() == KIND_MAP {
            self.map_pages_in_flight.set(self.map_pages_in_flight.get() + 1);
        }
        let unit = self.layout.unit_of_page(job.page) as usize;
        self.jobs.borrow_mut()[unit].push_back(job);
        let space = self.clone();
        self.sim.spawn(async move { space.program_next(unit).await });
    }

    async fn program_next(self: Rc<Self>, unit: usize) {
        let job = self.jobs.borrow_mut()[unit].pop_front().expect("as many tasks as jobs");
        let ppa = self.layout.ppa(job.page);
        self.flash.program(ppa, job.what.data, job.what.spare, job.what.stream.purpose()).await;
        self.programming.borrow_mut().remove(&job.page);
        let superblock = self.layout.superblock_of_page(job.page);
        let quiet = {
            let mut superblocks = self.superblocks.borrow_mut();
            let superblock = &mut superblocks[superblock as usize];
            superblock.programming -= 1;
            superblock.programming == 0 && superblock.state == State::Victim
        };
        if job.what.stream.kind() == KIND_MAP {
            self.map_pages_in_flight.set(self.map_pages_in_flight.get() - 1);
        }
        self.buffered_bytes.set(self.buffered_bytes.get() - job.credit);
        self.discard_if_dead(job.page);
        self.programmed.wake_all();
        if quiet {
            self.quiet.wake_all();
        }
    }

    /// The item at `grain` is no longer needed.
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
        self.validity.borrow_mut().invalidate(grain, grains);
        let last = Grain(grain.0 + u64::from(grains) - 1);
        for page in self.layout.page(grain)..=self.layout.page(last) {
            self.discard_if_dead(page);
        }
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

    /// Keeps the superblock of `grain` from being erased.
    pub fn pin(self: &Rc<Self>, grain: Grain) -> Reader {
        let superblock = self.layout.superblock(grain);
        self.superblocks.borrow_mut()[superblock as usize].readers += 1;
        Reader { space: self.clone(), superblock }
    }

    /// Reads bytes `at .. at + bytes` of a page, from the buffer where it still is. The caller holds a [`Reader`].
    ///
    /// Errors: [`Status::UNRECOVERED_ERROR`].
    pub async fn read(&self, page: u32, at: u32, bytes: u32, purpose: Purpose) -> Result<Part, Status> {
        if let Some(part) = self.buffered(page, at, bytes) {
            return Ok(part);
        }
        let read = self.flash.read_part(self.layout.ppa(page), at, bytes, purpose).await;
        let (region, base) = read.map_err(|_| Status::UNRECOVERED_ERROR)?;
        Ok(Part { region, base })
    }

    fn buffered(&self, page: u32, at: u32, bytes: u32) -> Option<Part> {
        let superblock = self.superblocks.borrow()[self.layout.superblock_of_page(page) as usize];
        if superblock.state != State::Open && superblock.programming == 0 && superblock.stranded == 0 {
            return None;
        }
        if let Some(programming) = self.programming.borrow().get(&page) {
            return Some(Part { region: programming.data.clone(), base: 0 });
        }
        if let Some((region, _)) = self.stranded.borrow().get(&page) {
            return Some(Part { region: region.clone(), base: 0 });
        }
        let streams = self.streams.borrow();
        let open = streams.iter().filter_map(|stream| stream.open.as_ref()).find(|open| open.page == page)?;
        let mut region = Region::new();
        copy(&open.region, at, bytes, &mut region, 0);
        Some(Part { region: Rc::new(region), base: at })
    }

    /// Reads a whole page of a victim with the first item's grain.
    ///
    /// Errors: [`Status::UNRECOVERED_ERROR`].
    pub async fn read_page(&self, page: u32, purpose: Purpose) -> Result<(Rc<Region>, u32), Status> {
        if let Some(stranded) = self.stranded.borrow().get(&page) {
            return Ok(stranded.clone());
        }
        let read = self.flash.read(self.layout.ppa(page), purpose).await;
        let (region, spare) = read.map_err(|_| Status::UNRECOVERED_ERROR)?;
        Ok((region, first_item(&spare)))
    }

    /// The full superblock that gains most when its items are packed anew, of `kind` if given: at least a read unit. One
    /// with torn pages comes first.
    pub fn victim(&self, kind: Option<u8>) -> Option<u32> {
        let superblocks = self.superblocks.borrow();
        let density = [KIND_DATA, KIND_MAP].map(|kind| self.density(kind));
        let candidates = superblocks.iter().enumerate().filter(|(_, superblock)| {
            superblock.state == State::Full
                && superblock.programming == 0
                && kind.is_none_or(|kind| superblock.kind == kind)
        });
        // Collecting writes what is valid, and padding between it.
        let cost = |superblock: &Superblock| {
            if superblock.stranded > 0 {
                return 0;
            }
            let (appended, padded) = density[usize::from(superblock.kind == KIND_MAP)];
            u64::from(superblock.valid) * (appended + padded) / appended
        };
        let costs = candidates.map(|(index, superblock)| (cost(superblock), index as u32));
        let (cost, victim) = costs.min()?;
        let most = self.layout.superblock_grains - self.layout.unit_grains;
        (cost <= u64::from(most)).then_some(victim)
    }

    /// Grains appended and padded of a kind; never zero.
    fn density(&self, kind: u8) -> (u64, u64) {
        let (appended, padded) = self.packed[usize::from(kind == KIND_MAP)].get();
        (appended.max(1), padded)
    }

    /// Grains that `grains` grains of a kind take with the padding between items.
    pub fn with_padding(&self, kind: u8, grains: u64) -> u64 {
        let (appended, padded) = self.density(kind);
        (u128::from(grains) * u128::from(appended + padded) / u128::from(appended)) as u64
    }

    fn note_packed(&self, kind: u8, appended: u32, padded: u32) {
        let packed = &self.packed[usize::from(kind == KIND_MAP)];
        let (mut all, mut lost) = packed.get();
        all += u64::from(appended);
        lost += u64::from(padded);
        // Recent items count more: halve both now and then.
        if all > 64 * u64::from(self.layout.superblock_grains) {
            (all, lost) = (all / 2, lost / 2);
        }
        packed.set((all, lost));
    }

    // --- what recovery needs ---

    /// The flash itself.
    pub(super) fn flash(&self) -> &FlashPort {
        &self.flash
    }

    /// Starts where an image says.
    pub(super) fn restore(
        &self,
        sequence: u64,
        superblocks: &[(State, u8, u32)],
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

    /// Takes an open page back. Its bytes owe the write buffer nothing.
    pub(super) fn restore_open(&self, page: u32, stream: u8, first_item: u32, region: Region) {
        self.streams.borrow_mut()[usize::from(stream)].open =
            Some(OpenPage { page, region, first_item, credit: 0 });
    }

    /// Programs a page whose program had not begun.
    pub(super) fn restart(
        self: &Rc<Self>,
        page: u32,
        stream: Stream,
        first_item: u32,
        sequence: u64,
        region: Region,
    ) {
        let epoch = self.superblocks.borrow()[self.layout.superblock_of_page(page) as usize].epoch;
        let spare = spare(stream, page, first_item, sequence, epoch);
        self.start(Job { page, what: Programming { stream, data: Rc::new(region), spare }, credit: 0 });
    }

    /// Keeps a torn page in the buffer.
    pub(super) fn strand(&self, page: u32, region: Rc<Region>, first_item: u32) {
        self.superblocks.borrow_mut()[self.layout.superblock_of_page(page) as usize].stranded += 1;
        self.stranded.borrow_mut().insert(page, (region, first_item));
    }

    /// A page that is in the buffer, with its first item.
    pub(super) fn buffered_page(&self, page: u32) -> Option<(Rc<Region>, u32)> {
        if let Some(stranded) = self.stranded.borrow().get(&page) {
            return Some(stranded.clone());
        }
        if let Some(programming) = self.programming.borrow().get(&page) {
            return Some((programming.data.clone(), first_item(&programming.spare)));
        }
        let streams = self.streams.borrow();
        let open = streams.iter().filter_map(|stream| stream.open.as_ref()).find(|open| open.page == page)?;
        Some((Rc::new(open.region.clone()), open.first_item))
    }

    /// Recovery has found something valid.
    pub(super) fn found(&self, grain: Grain, grains: u32) {
        let superblock = self.layout.superblock(grain) as usize;
        let kind = {
            let superblock = &mut self.superblocks.borrow_mut()[superblock];
            superblock.valid += grains;
            superblock.kind
        };
        self.add_valid(kind, grains.into());
        self.validity.borrow_mut().write(grain, grains);
    }

    /// Recovery has found something that is not valid.
    pub(super) fn found_dead(&self, grain: Grain, grains: u32) {
        self.validity.borrow_mut().invalidate(grain, grains);
    }

    /// After recovery: collection begins anew. What holds nothing valid is collected first, and so erased again.
    pub(super) fn settle_states(&self) {
        self.recovering.set(false);
        for superblock in self.superblocks.borrow_mut().iter_mut() {
            if superblock.state == State::Victim {
                superblock.state = State::Full;
            }
        }
    }

    /// Waits until nobody reads or programs a victim.
    pub async fn wait_quiet(&self, superblock: u32) {
        loop {
            let now = self.superblocks.borrow()[superblock as usize];
            if now.readers == 0 && now.programming == 0 {
                return;
            }
            self.quiet.wait().await;
        }
    }

    /// Erases a victim without valid grains and makes it free.
    pub async fn erase(self: &Rc<Self>, superblock: u32, purpose: Purpose) {
        self.wait_quiet(superblock).await;
        let erases: Vec<_> = (0..self.layout.units())
            .map(|unit| {
                let (flash, block) = (self.flash.clone(), self.layout.block(superblock, unit));
                self.sim.spawn(async move { flash.erase(block, purpose).await })
            })
            .collect();
        for erase in erases {
            erase.join().await;
        }
        self.validity.borrow_mut().reset(superblock);
        let first = self.layout.first_page(superblock);
        self.stranded
            .borrow_mut()
            .retain(|page, _| !(first..first + self.layout.superblock_pages).contains(page));
        {
            let mut superblocks = self.superblocks.borrow_mut();
            let erased = &mut superblocks[superblock as usize];
            assert!(
                erased.valid == 0 && erased.state == State::Victim,
                "superblock {superblock} holds valid grains"
            );
            erased.state = State::Free;
            erased.epoch += 1;
            erased.stranded = 0;
        }
        self.free.borrow_mut().push_back(superblock);
        self.exhausted.set(false);
        self.freed.wake_all();
    }

    /// Fills the open pages up and waits until everything is on flash.
    pub async fn drain(self: &Rc<Self>) {
        for stream in STREAMS {
            let mut streams = self.streams.borrow_mut();
            let open = &mut streams[stream as usize];
            if open.open.is_some() {
                let left = self.layout.page_grains - open.at % self.layout.page_grains;
                self.pad(stream, open, left);
            }
        }
        while !self.programming.borrow().is_empty() {
            self.programmed.wait().await;
        }
    }
}

fn spare(stream: Stream, page: u32, first_item: u32, sequence: u64, epoch: u32) -> Spare {
    let mut tag = [0; 48];
    tag[..4].copy_from_slice(&first_item.to_le_bytes());
    Spare { block_erases: epoch, ..Spare::new(stream.kind(), page.into(), sequence, tag) }
}

/// The first grain of a page at which an item begins, from its header.
pub fn first_item(spare: &Spare) -> u32 {
    u32::from_le_bytes(spare.tag[..4].try_into().expect("4 bytes"))
}

/// Copies bytes between regions.
pub fn copy(from: &Region, at: u32, bytes: u32, to: &mut Region, mut to_at: u32) {
    from.read(at, bytes, &mut |piece| {
        to.write(to_at, piece);
        to_at += piece.bytes();
    });
}

fn put(region: &mut Region, at: u32, content: Content<'_>, from: u32, bytes: u32) {
    match content {
        Content::Bytes(all) => region.write(at, Piece::Bytes(&all[from as usize..(from + bytes) as usize])),
        Content::Stored(source, base) => copy(source, base + from, bytes, region, at),
    }
}
