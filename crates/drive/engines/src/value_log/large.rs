//! Values that are larger than the page buffer takes at once. Their pages bypass the buffer and go to flash as they
//! fill, and each value has segments of its own.
//!
//! ```text
//!   reserve ─► admit ─► bytes ─► admit ─► bytes ... ─► landed
//!                │                                       └ waits for the last programs: flash has all of it
//!                └ waits while too many programs are under way; takes a segment where the next byte needs one
//! ```
//!
//! The segments of a value are a *chain*: the index knows the address of the first one, and each segment of head
//! [`Head::Large`] records the first segment of its chain and its index in it ([`link`]). The chain is in the protected
//! image with the segments, so that neither the layout of the index nor that of the image changes.
//!
//! It follows that a value that is not committed consists of segments without live bytes, which every recovery gives
//! back; that the segments of a value die together, so garbage collection has nothing to move; and that the rest of the
//! last segment of a value stays unused. Memory holds the page that is being filled of each value, the pages of
//! [`ValueLog::large_pages`] programs of all values together, and one more page for each value that waits for those
//! programs.

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_flash::Purpose;
use kvdrive_flash::ftl::{Lpa, Placement};
use kvdrive_nvme::Status;
use kvdrive_sim::{TaskCell, WaitQueue, join_all};

use super::chain::{Chain, link};
use super::segments::{Life, Segment, Segments};
use super::{Head, Record, SegmentId, Use, Vaddr, ValueLog, page_kind};

/// The part of the log's segments, 1 in this number, that unfinished values may have together. A single one may have
/// more.
const UNFINISHED_ONE_IN: u32 = 4;

/// Programs of all large values of the log.
pub(super) struct Programs {
    under_way: Cell<u32>,
    ended: WaitQueue,
    /// Segments, taken or still to be taken, of unfinished values.
    unfinished_segments: Cell<u32>,
}

impl Programs {
    pub fn new(sim: &kvdrive_sim::Sim) -> Programs {
        Programs { under_way: Cell::new(0), ended: WaitQueue::new(sim), unfinished_segments: Cell::new(0) }
    }
}

/// A large value that is arriving.
pub(super) struct ArrivingLarge {
    segments: TaskCell<Vec<SegmentId>>,
    /// The content so far of the page that is being filled.
    page: TaskCell<Region>,
    received_bytes: Cell<u32>,
    /// There was no room for some of its bytes.
    has_failed: Cell<bool>,
    /// Programs of this value under way.
    programs: Rc<Cell<u32>>,
    /// Its share of [`Programs::unfinished_segments`].
    unfinished_segments: Cell<u32>,
}

impl ArrivingLarge {
    pub fn first(&self) -> SegmentId {
        self.segments.borrow()[0]
    }

    pub fn fail(&self) {
        self.has_failed.set(true);
    }

    pub fn is_whole(&self, bytes: u32) -> bool {
        !self.has_failed.get() && self.received_bytes.get() == bytes
    }
}

impl ValueLog {
    /// Programs of large values that may be under way at once: two for each unit of flash.
    pub fn large_pages(&self) -> u32 {
        let units = self.0.buffer.flash().map_or(1, |ftl| ftl.flash().geometry().units());
        2 * units.max(4)
    }

    /// Segments that a large value of `bytes` bytes has.
    fn segments_of(&self, bytes: u32) -> usize {
        u64::from(bytes).div_ceil(self.0.view.segment_bytes) as usize
    }

    /// Begins a large value: takes its first segment.
    ///
    /// Errors: [`Status::CAPACITY_EXCEEDED`] when no segment is available, or the log has too few for the value.
    pub(super) fn begin_large(&self, bytes: u32) -> Result<ArrivingLarge, Status> {
        let log = &*self.0;
        if self.segments_of(bytes) as u32 >= log.pool.segments() {
            return Err(Status::CAPACITY_EXCEEDED);
        }
        let arriving = ArrivingLarge {
            segments: TaskCell::default(),
            page: TaskCell::default(),
            received_bytes: Cell::new(0),
            has_failed: Cell::new(false),
            programs: Rc::default(),
            unfinished_segments: Cell::new(0),
        };
        self.take_segment(&arriving)?;
        log.state.borrow_mut().statistics.values[Head::Host as usize] += 1;
        Ok(arriving)
    }

    /// See [`super::Place::begin_unfinished`].
    pub(super) fn begin_unfinished_large(&self, value: &ArrivingLarge, bytes: u32) -> Result<(), Status> {
        let (own, of_all) = (self.segments_of(bytes) as u32, &self.0.large.unfinished_segments);
        let others = of_all.get();
        if others > 0 && others + own > self.0.pool.segments() / UNFINISHED_ONE_IN {
            return Err(Status::COMMAND_INTERRUPTED);
        }
        of_all.set(others + own);
        value.unfinished_segments.set(own);
        Ok(())
    }

    fn take_segment(&self, value: &ArrivingLarge) -> Result<(), Status> {
        let log = &*self.0;
        let id = log.pool.alloc(Use::Value).ok_or(Status::CAPACITY_EXCEEDED)?;
        let mut parts = value.segments.borrow_mut();
        parts.push(id);
        let base = link(parts[0], parts.len() - 1);
        let mut state = log.state.borrow_mut();
        let opening = state.segments.open(id, Head::Large, base);
        // No other value is placed in it.
        state.segments.seal(id);
        state.segments.add_place(id);
        state.statistics.segments_opened += 1;
        log.record(|| Record::SegmentOpened { segment: id, head: Head::Large, base, opening });
        log.record(|| Record::SegmentSealed { segment: id });
        Ok(())
    }

    /// How many bytes of a value of `bytes` may come next: up to the end of a page. Waits while too many programs are
    /// under way.
    ///
    /// Errors: [`Status::CAPACITY_EXCEEDED`] when the next byte needs a segment and none is available.
    pub(super) fn admit_large(&self, value: &ArrivingLarge, bytes: u32) -> Result<u32, Status> {
        let log = &*self.0;
        let at = value.received_bytes.get();
        let segments = value.segments.borrow().len() as u64;
        if u64::from(at) == segments * log.view.segment_bytes && at < bytes {
            self.take_segment(value)?;
        }
        let most = self.large_pages();
        while log.large.under_way.get() >= most {
            log.large.ended.wait();
        }
        let page_bytes = log.shape.page_bytes;
        Ok((page_bytes - at % page_bytes).min(bytes - at))
    }

    /// Takes the next bytes, which have been admitted.
    pub(super) fn write_large(&self, value: &ArrivingLarge, at: u32, piece: Piece<'_>) {
        if value.has_failed.get() {
            return;
        }
        let page_bytes = self.0.shape.page_bytes;
        assert_eq!(at, value.received_bytes.get(), "a large value arrives in order");
        let within = at % page_bytes;
        assert!(within + piece.bytes() <= page_bytes, "bytes come as they were admitted");
        let mut page = value.page.borrow_mut();
        if within == 0 && matches!(piece, Piece::Bytes(_)) {
            page.reserve(page_bytes);
        }
        page.write(within, piece);
        drop(page);
        value.received_bytes.set(at + piece.bytes());
        if within + piece.bytes() == page_bytes {
            self.program_large(value, (at / page_bytes) as usize);
        }
    }

    /// Starts the program of the page that was filled.
    fn program_large(&self, value: &ArrivingLarge, number: usize) {
        let log = &*self.0;
        let content = std::mem::take(&mut *value.page.borrow_mut());
        let Some(ftl) = log.buffer.flash().cloned() else { return };
        let segment_pages = log.shape.segment_pages as usize;
        let segment = value.segments.borrow()[number / segment_pages];
        let first = value.first();
        let lpa = log.pool.lpas(segment).start + (number % segment_pages) as u32;
        let (opening, of_first) = {
            let mut state = log.state.borrow_mut();
            state.statistics.pages_opened[Head::Host as usize] += 1;
            (state.segments.get(segment).opening, state.segments.get(first).opening)
        };
        let kind = page_kind(Head::Large, opening, u32::MAX);
        // All segments of the value are freed together, and its programs are under way on all dies.
        let placement = Placement::TogetherWide(of_first);
        let (own, this) = (value.programs.clone(), self.clone());
        own.set(own.get() + 1);
        log.large.under_way.set(log.large.under_way.get() + 1);
        log.sim.spawn(move || {
            ftl.write_placed(Lpa(lpa), Rc::new(content), kind.kind, kind.tag, kind.purpose, placement);
            own.set(own.get() - 1);
            let programs = &this.0.large;
            programs.under_way.set(programs.under_way.get() - 1);
            programs.ended.wake_all();
        });
    }

    /// Called after the last byte of a value: waits until all of its pages are on flash.
    pub(super) fn land_large(&self, value: &ArrivingLarge) {
        let page_bytes = self.0.shape.page_bytes;
        let received = value.received_bytes.get();
        if !received.is_multiple_of(page_bytes) && value.page.borrow().written_end() > 0 {
            self.program_large(value, (received / page_bytes) as usize);
        }
        while value.programs.get() > 0 {
            self.0.large.ended.wait();
        }
        let chain: Chain = value.segments.borrow().as_slice().into();
        self.0.state.borrow_mut().segments.chains.insert(chain);
    }

    /// Ends the arrival of a value, committed or not. Segments without live bytes are given back.
    pub(super) fn end_large(&self, value: &ArrivingLarge) {
        let log = &self.0;
        let unfinished = &log.large.unfinished_segments;
        unfinished.set(unfinished.get() - value.unfinished_segments.take());
        let ended: Vec<SegmentId> = value.segments.borrow().clone();
        let mut state = log.state.borrow_mut();
        let spent: Vec<SegmentId> = ended.into_iter().filter(|id| state.segments.end_place(*id)).collect();
        drop(state);
        log.retire_all(spent);
    }

    /// The chain of the value at `address`, if it is a large value.
    pub fn chain_at(&self, address: Vaddr) -> Option<Chain> {
        let first = self.segment_of(address);
        let state = self.0.state.borrow();
        let is_large = first.0 < self.0.shape.segments && state.segments.get(first).head == Head::Large;
        if is_large { state.segments.chains.of(first).cloned() } else { None }
    }

    /// See [`ValueLog::note_live`].
    pub(super) fn note_large_live(&self, address: Vaddr, bytes: u32) {
        let chain = self.chain_at(address).expect("a value that is committed has landed");
        for (segment, bytes) in self.parts(&chain, bytes) {
            self.0.state.borrow_mut().segments.add_live(segment, bytes);
            self.0.record(|| Record::Live { segment, change: i64::from(bytes) });
        }
    }

    /// See [`ValueLog::note_dead`]. The bytes of all segments are uncounted before the first segment is given back,
    /// because giving back may write to files.
    pub(super) fn end_large_live(&self, address: Vaddr, bytes: u32) {
        let Some(chain) = self.chain_at(address) else {
            self.0.state.borrow_mut().segments.miscounted_bytes += u64::from(bytes);
            return;
        };
        let mut spent = Vec::new();
        for (segment, bytes) in self.parts(&chain, bytes) {
            let (died, is_spent) = self.0.state.borrow_mut().segments.end_live(segment, u64::from(bytes));
            self.0.record(|| Record::Live { segment, change: -(died as i64) });
            spent.extend(is_spent.then_some(segment));
        }
        self.0.retire_all(spent);
    }

    /// Is there a large value of `bytes` bytes at `address`, as far as the log knows?
    pub(super) fn holds_large(&self, segments: &Segments, address: Vaddr, bytes: u32) -> bool {
        let first = self.segment_of(address);
        let is_at_front = address.0.is_multiple_of(self.0.view.segment_bytes);
        let chain = segments.chains.of(first);
        is_at_front && chain.is_some_and(|chain| chain.len() == self.segments_of(bytes))
    }

    /// How many bytes of a value of `bytes` bytes lie in each segment of its chain.
    pub(super) fn parts<'a>(
        &self,
        chain: &'a Chain,
        bytes: u32,
    ) -> impl Iterator<Item = (SegmentId, u32)> + use<'a> {
        let segment_bytes = self.0.view.segment_bytes;
        let part = move |index: usize| {
            u64::from(bytes).saturating_sub(index as u64 * segment_bytes).min(segment_bytes) as u32
        };
        chain.iter().enumerate().map(move |(index, id)| (*id, part(index)))
    }
}

/// A page, or why it cannot be read.
type ReadPage = Result<Rc<Region>, Status>;

/// Keeps the segments of one large value, also if the value dies. Unlike a pin of a snapshot, it keeps no other
/// segments.
struct KeptChain {
    log: ValueLog,
    chain: Chain,
}

impl KeptChain {
    /// Keeps the segments of `chain`; `None` if the value is dead already.
    fn of(log: &ValueLog, chain: &Chain) -> Option<KeptChain> {
        let segments = &mut log.0.state.borrow_mut().segments;
        let lives = |id: &SegmentId| {
            let segment = segments.get(*id);
            segment.life == Life::Sealed && segment.live_bytes > 0
        };
        if !chain.iter().all(lives) {
            return None;
        }
        chain.iter().for_each(|id| segments.add_place(*id));
        segments.kept_chains += 1;
        Some(KeptChain { log: log.clone(), chain: chain.clone() })
    }
}

impl Drop for KeptChain {
    fn drop(&mut self) {
        let log = &self.log.0;
        if log.sim.halted() {
            return;
        }
        let mut state = log.state.borrow_mut();
        state.segments.kept_chains -= 1;
        let spent = self.chain.iter().copied().filter(|id| state.segments.end_place(*id)).collect();
        drop(state);
        log.retire_all(spent);
    }
}

/// Reads a large value from its front to its end, some pages side by side.
pub struct LargeReader {
    log: ValueLog,
    chain: Chain,
    /// Keeps the chain between two commands, if several commands read the value.
    kept: Option<KeptChain>,
    /// The pages that were read last, and the number of the first of them.
    window: TaskCell<(u32, Vec<ReadPage>)>,
}

impl LargeReader {
    /// A reader of the value at `address`, which the caller keeps readable; `None` if it is not a large value.
    pub fn new(log: &ValueLog, address: Vaddr) -> Option<LargeReader> {
        let chain = log.chain_at(address)?;
        Some(LargeReader { log: log.clone(), chain, kept: None, window: TaskCell::default() })
    }

    /// See [`crate::Engine::outlives_command`].
    pub fn outlives_command(&mut self) -> bool {
        if self.kept.is_none() {
            self.kept = KeptChain::of(&self.log, &self.chain);
        }
        self.kept.is_some()
    }

    /// Hands out `bytes` bytes from `at` on, in order; the whole reading ends at byte `until`
    /// ([`crate::Engine::load`]).
    ///
    /// # Errors
    /// [`Status::UNRECOVERED_ERROR`] for a page that cannot be read, [`Status::VALUE_NOT_RESIDENT`] without flash.
    pub fn read(
        &self,
        at: u32,
        bytes: u32,
        until: u32,
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), Status> {
        let page_bytes = self.log.0.shape.page_bytes;
        let (mut at, end) = (at, at + bytes);
        while at < end {
            let take = (page_bytes - at % page_bytes).min(end - at);
            self.page(at / page_bytes, until.div_ceil(page_bytes))?.read(at % page_bytes, take, sink);
            at += take;
        }
        // The reading has ended: drop its pages.
        if end >= until {
            self.window.borrow_mut().1 = Vec::new();
        }
        Ok(())
    }

    /// A page of the value; reads the pages after it, up to page `stop`, at the same time.
    fn page(&self, number: u32, stop: u32) -> ReadPage {
        let found = {
            let window = self.window.borrow();
            let (first, pages) = &*window;
            number.checked_sub(*first).and_then(|index| pages.get(index as usize)).cloned()
        };
        if let Some(page) = found {
            return page;
        }
        let log = &*self.log.0;
        let ftl = log.buffer.flash().ok_or(Status::VALUE_NOT_RESIDENT)?;
        let segment_pages = log.shape.segment_pages;
        let read = |page: u32| {
            let segment = self.chain.get((page / segment_pages) as usize);
            move || {
                let segment = *segment.ok_or(Status::UNRECOVERED_ERROR)?;
                ftl.read(Lpa(log.pool.lpas(segment).start + page % segment_pages), Purpose::Value)
            }
        };
        let last = stop.max(number + 1).min(number + self.log.large_pages());
        let pages = join_all(&log.sim, (number..last).map(read));
        let page = pages[0].clone();
        *self.window.borrow_mut() = (number, pages);
        page
    }
}

/// Must collection leave this segment alone?
pub(super) fn stays(segment: &Segment) -> bool {
    segment.head == Head::Large && segment.life == Life::Sealed
}
