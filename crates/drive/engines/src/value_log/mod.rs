//! The value log: holds value bytes in segments of consecutive logical pages, through the page buffer.
//!
//! ```text
//!   reserve ──► packing policy ──► segment (pool) ──► page (buffer) ──► Place
//!   Place: write ... write, landed, then dropped once the index points at the value
//! ```
//!
//! The log keeps bytes and nothing else: no keys, no headers, no lengths. Its user keeps address and size of each
//! value, reports which bytes become live and which die, and reads with address and size. A segment without live bytes
//! returns to the pool by itself; garbage collection, which moves live values away, is elsewhere
//! ([`ValueLog::for_each_candidate`], [`Head::Gc`]). Values that are larger than the buffer takes at once bypass it and
//! go to segments of their own (`large`).
//!
//! **No task waits for ever.** Pages of values that arrive in commands stay pinned until the host sends the
//! rest. Therefore the host may pin only a share of the buffer; beyond it, stores get
//! [`Status::COMMAND_INTERRUPTED`]. All other pins end by themselves, provided that holders of a [`Place`]
//! call [`Place::landed`] before they wait for anything else. `Log::admits` has the shares. A window stays
//! open until its queue asks for another, possibly for ever, so windows together have half of the host's
//! share ([`WindowShare`]).
//!
//! **Power.** Pages that are not on flash yet are in the protected image ([`ProtectedValueLog`]). Every
//! change goes to the [`RecordSink`], if there is one, when it happens and so before it is acknowledged. A
//! page leaves the image when its program has completed, not when it begins.

mod address;
mod chain;
mod head;
mod large;
mod pin;
mod place;
mod pool;
mod protected;
mod record;
mod restore;
mod segments;
mod shape;

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::{Rc, Weak};

use kvdrive_content::{Piece, Region};
use kvdrive_declare::{By, Counters};
use kvdrive_flash::Purpose;
use kvdrive_nvme::Status;
use kvdrive_sim::{Sim, TaskCell};

use crate::packing::LogView;
use crate::page_buffer::{BufferStatistics, PageBuffer, PageWatch};
use address::page_kind;
pub use address::{VALUE_PAGE_KIND, Vaddr};
pub use chain::{Chain, LARGEST_VALUE_BYTES};
use head::{LogHead, OpenSegment};
pub use large::LargeReader;
use large::Programs;
pub use pin::{PastPin, SnapshotPin};
pub use place::{Place, WindowShare};
pub use pool::{Reserve, SegmentId, SegmentPool, Use};
pub use protected::{DamagedLog, LogImage, ProtectedValueLog};
pub use record::{Head, Record, RecordSink};
use segments::{Life, Segment, Segments};
pub use shape::LogShape;

/// Multi-page values: pages fetched ahead at a time.
const READ_AHEAD_PAGES: u64 = 16;

/// Labels of the counters of each [`Head`].
const HEADS: By = By { label: "head", places: 2, name_of: |head| ["host", "gc"][head], is_sparse: false };

/// Counters of a value log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Counters)]
pub struct ValueLogStatistics {
    /// Values placed in the value log.
    #[counter(name = "values_placed", by = &HEADS)]
    pub values: [u64; 2],
    /// NAND pages opened for values.
    #[counter(name = "value_pages_opened", by = &HEADS)]
    pub pages_opened: [u64; 2],
    /// Bytes of values that firmware copied after DMA, because the packing policy placed them elsewhere.
    #[counter(name = "packing_copied_bytes", by = &HEADS)]
    pub copied_bytes: [u64; 2],
    /// Jumps of the write pointer out of a page that had to leave the buffer before it was full.
    pub forced_jumps: u64,
    /// Jumps of the write pointer because the DMA log table had no free entry.
    pub table_full_jumps: u64,
    /// Segments of the value log that were taken for writing.
    pub segments_opened: u64,
    /// Segments of the value log that were given back.
    pub segments_freed: u64,
    /// Reservations refused because pages that the host keeps pinned took too much of the buffer.
    #[counter(name = "interrupted_reservations")]
    pub interrupted: u64,
    /// Bytes that died in a segment in excess of its count of live bytes. This happens only after recovery from an
    /// image whose count was too low.
    pub miscounted_bytes: u64,
}

struct ValueLogState {
    heads: [LogHead; 2],
    segments: Segments,
    statistics: ValueLogStatistics,
}

struct Log {
    sim: Sim,
    shape: LogShape,
    view: LogView,
    pool: SegmentPool,
    buffer: PageBuffer,
    journal: OnceCell<Weak<dyn RecordSink>>,
    state: TaskCell<ValueLogState>,
    /// Entries that reservations under way will pin, and how many of them for the host.
    promised: Cell<u32>,
    promised_host: Cell<u32>,
    /// Windows that are open, or about to be.
    windows: Cell<u32>,
    large: Programs,
}

/// The value log; clones are the same one.
#[derive(Clone)]
pub struct ValueLog(Rc<Log>);

/// A sealed segment with live bytes that garbage collection could move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub segment: SegmentId,
    /// Bytes in it that are live.
    pub live_bytes: u64,
    /// Number of its opening: the lower, the older. No other segment ever has it.
    pub opening: u64,
}

impl ValueLog {
    /// An empty log.
    pub fn new(sim: &Sim, shape: &LogShape, pool: &SegmentPool, buffer: &PageBuffer) -> ValueLog {
        let state = ValueLogState {
            heads: shape.packings().map(LogHead::new),
            segments: Segments::new(shape.segments),
            statistics: ValueLogStatistics::default(),
        };
        ValueLog::with_state(sim, shape, pool, buffer, state)
    }

    fn with_state(
        sim: &Sim,
        shape: &LogShape,
        pool: &SegmentPool,
        buffer: &PageBuffer,
        state: ValueLogState,
    ) -> ValueLog {
        assert_eq!((shape.segments, shape.page_bytes), (pool.segments(), buffer.page_bytes()));
        assert!(
            shape.page_bytes.is_power_of_two(),
            "page_bytes: {}: addresses are shifted",
            shape.page_bytes
        );
        let log = ValueLog(Rc::new(Log {
            sim: sim.clone(),
            shape: shape.clone(),
            view: shape.view(),
            pool: pool.clone(),
            buffer: buffer.clone(),
            journal: OnceCell::new(),
            state: TaskCell::new(state),
            promised: Cell::new(0),
            promised_host: Cell::new(0),
            windows: Cell::new(0),
            large: Programs::new(sim),
        }));
        let watch: Weak<dyn PageWatch> = Rc::downgrade(&(log.0.clone() as Rc<dyn PageWatch>));
        buffer.set_watch(watch);
        log
    }

    /// From now on every change is recorded. Called once, by an owner that has [`ValueLog::save`]d the state
    /// before and that keeps the journal (which may keep the log) as long as it uses the log.
    pub fn attach<J: RecordSink + 'static>(&self, journal: &Rc<J>) {
        let journal: Weak<dyn RecordSink> = Rc::downgrade(&(journal.clone() as Rc<dyn RecordSink>));
        assert!(self.0.journal.set(journal).is_ok(), "a value log has one journal");
    }

    /// Largest value that goes through the page buffer, in bytes; larger ones go past it ([`LargeReader`]).
    pub fn packed_max_bytes(&self) -> u32 {
        self.0.shape.packed_max_bytes
    }

    /// Largest value, in bytes: it leaves the reserves of an empty log free; without flash, large values are not
    /// possible.
    pub fn max_value_bytes(&self) -> u32 {
        let LogShape { packed_max_bytes, large_max_bytes, .. } = self.0.shape;
        if self.0.buffer.flash().is_some() { large_max_bytes } else { packed_max_bytes }
    }

    /// Hands out `bytes` bytes of the value at `address`, from its byte `at` on and in order. They are a part of a read
    /// that goes from the value's front to its byte `until`. The caller holds a [`PastPin`] or the value cannot die
    /// meanwhile.
    ///
    /// # Errors
    /// As [`PageBuffer::fetch`].
    pub fn read(
        &self,
        address: Vaddr,
        at: u32,
        bytes: u32,
        until: u32,
        purpose: Purpose,
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), Status> {
        // An iterator calls this for every pair, so there are no divisions: a page is a power of two of bytes.
        let page_bytes = u64::from(self.0.shape.page_bytes);
        let page_of = |address: u64| address >> page_bytes.trailing_zeros();
        let mut from = address.0 + u64::from(at);
        let end = from + u64::from(bytes);
        let first = page_of(address.0);
        let last = page_of((address.0 + u64::from(until)).saturating_sub(1));
        while from < end {
            let (lpa, within) = (page_of(from), from & (page_bytes - 1));
            // At the front of each stretch of pages, whichever call reaches it.
            let begins = from == address.0 || within == 0;
            if begins && last > lpa && (lpa - first).is_multiple_of(self.ahead_pages()) {
                self.read_ahead(lpa, last, purpose);
            }
            let take = (page_bytes - within).min(end - from);
            let pin = self.0.buffer.fetch(lpa as u32, purpose)?;
            pin.read(within as u32, take as u32, sink);
            from += take;
        }
        Ok(())
    }

    /// Pages that are fetched ahead at a time.
    fn ahead_pages(&self) -> u64 {
        READ_AHEAD_PAGES.min(u64::from(self.0.buffer.entries()) / 8).max(1)
    }

    /// Brings the next pages of a long value into the buffer side by side. Pins none: readers that each hold
    /// some pages and wait for more could block each other.
    fn read_ahead(&self, first: u64, last: u64, purpose: Purpose) {
        let stop = (first + self.ahead_pages()).min(last + 1);
        let fetches = (first..stop).map(|lpa| {
            let buffer = &self.0.buffer;
            move || {
                // The fetch that needs the page meets the error again and reports it.
                drop(buffer.fetch(lpa as u32, purpose));
            }
        });
        kvdrive_sim::join_all(&self.0.sim, fetches);
    }

    /// Programs every buffered page; see [`PageBuffer::drain`].
    pub fn drain(&self) {
        self.0.buffer.drain();
    }

    /// Marks `bytes` bytes at `address` as live. To be called before a lookup can find the value there, and
    /// while its [`Place`] is held.
    #[inline]
    pub fn note_live(&self, address: Vaddr, bytes: u32) {
        if bytes == 0 {
            return;
        }
        let segment = self.segment_of(address);
        let mut state = self.0.state.borrow_mut();
        if state.segments.get(segment).head == Head::Large {
            drop(state);
            return self.note_large_live(address, bytes);
        }
        state.segments.add_live(segment, bytes);
        drop(state);
        self.0.record(|| Record::Live { segment, change: i64::from(bytes) });
    }

    /// `bytes` bytes at `address` are not live any more. To be called after the value cannot be found there
    /// by new lookups; those under way hold a [`PastPin`].
    #[inline]
    pub fn note_dead(&self, address: Vaddr, bytes: u32) {
        if bytes == 0 {
            return;
        }
        let segment = self.segment_of(address);
        let head = self.0.state.borrow().segments.get(segment).head;
        if head == Head::Large {
            self.end_large_live(address, bytes);
        } else {
            self.end_live(segment, u64::from(bytes));
        }
    }

    /// Marks the whole segment of `victim` as dead, whatever its count says: garbage collection found no key that
    /// points into it. Does nothing while values are arriving there, or if the segment was returned meanwhile and has
    /// another use.
    pub fn note_all_dead(&self, victim: &Candidate) {
        let state = self.0.state.borrow();
        let known = state.segments.get(victim.segment);
        let (rest, is_victim) = (known.live_bytes, known.opening == victim.opening);
        if is_victim && known.life == Life::Sealed && known.places == 0 && rest > 0 {
            drop(state);
            self.end_live(victim.segment, rest);
        }
    }

    fn end_live(&self, segment: SegmentId, bytes: u64) {
        let (died, spent) = self.0.state.borrow_mut().segments.end_live(segment, bytes);
        if died > 0 {
            self.0.record(|| Record::Live { segment, change: -(died as i64) });
        }
        if spent {
            self.0.retire(segment);
        }
    }

    /// Bytes that are live, all in all.
    pub fn live_bytes(&self) -> u64 {
        self.0.state.borrow().segments.live_bytes
    }

    /// Sealed segments with live bytes, in the order of their ids.
    pub fn for_each_candidate(&self, found: &mut dyn FnMut(Candidate)) {
        let state = self.0.state.borrow();
        for (id, segment) in state.segments.known() {
            if segment.life == Life::Sealed && segment.places == 0 && !large::stays(segment) {
                let Segment { live_bytes, opening, .. } = *segment;
                found(Candidate { segment: id, live_bytes, opening });
            }
        }
    }

    /// Segments that hold values or take them.
    pub fn segments_in_use(&self) -> u32 {
        self.0.state.borrow().segments.known().count() as u32
    }

    /// Is there a value of `bytes` bytes at `address`, as far as the log knows? For an entry that a
    /// [`PastPin`] keeps readable there is, unless the image or the table it came from was
    /// crafted.
    pub fn holds(&self, address: Vaddr, bytes: u32) -> bool {
        let state = self.0.state.borrow();
        let first = self.segment_of(address);
        if first.0 >= self.0.shape.segments {
            return false;
        }
        let segment = state.segments.get(first);
        let is_there = !matches!(segment.life, Life::Absent | Life::Dying(_));
        is_there
            && match segment.head {
                Head::Large => self.holds_large(&state.segments, address, bytes),
                Head::Host | Head::Gc => self.0.shape.has_room_at(address, bytes),
            }
    }

    /// The segment of an address.
    #[inline]
    pub fn segment_of(&self, address: Vaddr) -> SegmentId {
        // Called for every merged entry, so it is fast: divisions by powers of two are shifts, and the remaining
        // division has 32 bits.
        let shape = &self.0.shape;
        let page = (address.0 >> shape.page_bytes.trailing_zeros()) as u32;
        SegmentId(match shape.segment_pages.is_power_of_two() {
            true => page >> shape.segment_pages.trailing_zeros(),
            false => page / shape.segment_pages,
        })
    }

    /// The end of a head in its linear space: all bytes that it has taken, gaps included.
    pub fn frontier(&self, head: Head) -> u64 {
        self.0.state.borrow().heads[head as usize].packing.frontier()
    }

    /// The number that the next opening of a segment will get.
    pub fn next_opening(&self) -> u64 {
        self.0.state.borrow().segments.next_opening
    }

    /// The number of the opening of the segment that holds `address`; `None` if it is not in use.
    #[inline]
    pub fn opening_of(&self, address: Vaddr) -> Option<u64> {
        let id = self.segment_of(address);
        if id.0 >= self.0.shape.segments {
            return None;
        }
        let state = self.0.state.borrow();
        let segment = state.segments.get(id);
        matches!(segment.life, Life::Open | Life::Sealed).then_some(segment.opening)
    }

    /// The addresses of a segment.
    pub fn addresses(&self, segment: SegmentId) -> Range<Vaddr> {
        let bytes = self.0.view.segment_bytes;
        let first = u64::from(segment.0) * bytes;
        Vaddr(first)..Vaddr(first + bytes)
    }

    /// Counters so far.
    pub fn statistics(&self) -> ValueLogStatistics {
        let state = self.0.state.borrow();
        let [host, gc] = &state.heads;
        ValueLogStatistics {
            forced_jumps: host.forced_jumps + gc.forced_jumps,
            table_full_jumps: host.packing.table_full_jumps() + gc.packing.table_full_jumps(),
            miscounted_bytes: state.segments.miscounted_bytes,
            ..state.statistics
        }
    }

    /// Counters of the page buffer so far.
    pub fn buffer_statistics(&self) -> BufferStatistics {
        self.0.buffer.statistics()
    }

    /// The protected image as it is now.
    pub fn save(&self) -> ProtectedValueLog {
        let log = &self.0;
        let state = log.state.borrow();
        let mut packings = log.shape.packings();
        for (copy, head) in packings.iter_mut().zip(&state.heads) {
            let understood = copy.restore(&head.packing.save());
            assert!(understood, "a packing policy does not understand itself");
        }
        let mut pages = BTreeMap::new();
        log.buffer.for_each_unstored(&mut |lpa, region| {
            pages.insert(lpa, region.clone());
        });
        let mut segments = state.segments.known().map(|(id, segment)| (id, *segment));
        ProtectedValueLog::of(&log.shape, packings, state.segments.next_opening, &mut segments, pages)
    }
}

impl Log {
    #[inline]
    fn record<'a>(&self, record: impl FnOnce() -> Record<'a>) {
        if let Some(journal) = self.journal.get().and_then(Weak::upgrade) {
            journal.record(record());
        }
    }

    /// Retires a spent segment, and gives it back unless the past needs it.
    fn retire(&self, id: SegmentId) {
        if self.state.borrow_mut().segments.retire(id) {
            self.give_back(id);
        }
    }

    fn give_back(&self, id: SegmentId) {
        self.record(|| Record::SegmentFreed { segment: id });
        let in_use = self.buffer.drop_pages(self.pool.lpas(id));
        let gone = {
            let mut state = self.state.borrow_mut();
            state.statistics.segments_freed += 1;
            state.segments.forget(id, in_use)
        };
        if gone {
            self.pool.free(id);
        }
    }

    fn retire_all(&self, spent: Vec<SegmentId>) {
        spent.into_iter().for_each(|id| self.retire(id));
    }

    /// Closes the pages and seals the segments that the head has passed. Returns those to be retired, once no
    /// state is borrowed.
    #[must_use]
    fn close_passed(&self, head: &mut LogHead, segments: &mut Segments) -> Vec<SegmentId> {
        let mut spent = Vec::new();
        let oldest_open = self.view.page_start(head.packing.oldest_open());
        let page_bytes = u64::from(self.view.page_bytes);
        let segment_bytes = self.view.segment_bytes;
        while let Some(&OpenSegment { base, id }) = head.window.front() {
            let stop = oldest_open.min(base + segment_bytes);
            let first_lpa = self.pool.lpas(id).start;
            while head.open_from < stop {
                if head.open_from >= base {
                    self.buffer.close(first_lpa + ((head.open_from - base) / page_bytes) as u32);
                }
                head.open_from += page_bytes;
            }
            if oldest_open < base + segment_bytes {
                break;
            }
            head.window.pop_front();
            segments.seal(id);
            self.record(|| Record::SegmentSealed { segment: id });
            if segments.is_spent(id) {
                spent.push(id);
            }
        }
        head.open_from = head.open_from.max(oldest_open);
        spent
    }
}

impl PageWatch for Log {
    fn opened(&self, lpa: u32) {
        let mut state = self.state.borrow_mut();
        let head = state.segments.get(self.pool.segment_of(lpa)).head;
        state.statistics.pages_opened[head as usize] += 1;
    }

    fn leaving(&self, lpa: u32) {
        let id = self.pool.segment_of(lpa);
        let mut state = self.state.borrow_mut();
        let ValueLogState { heads, segments, .. } = &mut *state;
        let Segment { life, head: head_name, base, .. } = *segments.get(id);
        let page_end = base + u64::from(lpa - self.pool.lpas(id).start + 1) * u64::from(self.view.page_bytes);
        let head = &mut heads[head_name as usize];
        let mut spent = Vec::new();
        if life == Life::Open && page_end > head.packing.oldest_open() {
            head.forced_jumps += 1;
            head.packing.skip_to(page_end);
            self.record(|| Record::Skipped { head: head_name, at: page_end });
            spent = self.close_passed(head, segments);
        }
        drop(state);
        self.buffer.close(lpa);
        self.retire_all(spent);
    }

    fn dirtied(&self, lpa: u32, content: &Region) {
        self.record(|| Record::PageDirtied { lpa, content: std::borrow::Cow::Borrowed(content) });
    }

    fn programmed(&self, lpa: u32) {
        self.record(|| Record::PageProgrammed { lpa });
    }

    fn discarded(&self, lpa: u32) {
        let id = self.pool.segment_of(lpa);
        let gone = self.state.borrow_mut().segments.page_gone(id);
        if gone {
            self.pool.free(id);
        }
    }
}
