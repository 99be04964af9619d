//! The NAND page buffer: power-protected memory for whole flash pages, write-back, least recently used goes
//! first.
//!
//! A page is *opened* empty, written to while pinned, *closed* when no more bytes will come, and programmed when its
//! entry is needed for another page, or by [`PageBuffer::drain`]. Nothing is programmed because it is full: that is how
//! the published board works (BandSlim).
//!
//! An evicted page gets no more bytes. Pages still being filled are therefore evicted last, and only after
//! the owner was told ([`PageWatch::leaving`]) and has closed them. A page that was drained and then filled
//! further is programmed again under the same address.
//!
//! The buffer does not know the content of pages and keeps no records: it reports changes to its
//! [`PageWatch`]. Tasks that call it must run to their end (a task dropped in the middle of an eviction leaks
//! an entry).

mod entries;

use std::cell::{Cell, OnceCell};
use std::ops::Range;
use std::rc::{Rc, Weak};

use kvdrive_content::{Piece, Region};
use kvdrive_declare::{Counters, Section, Words};
use kvdrive_flash::Purpose;
use kvdrive_flash::ftl::{Ftl, Lpa};
use kvdrive_nvme::Status;
use kvdrive_sim::{Cause, Sim, TaskCell, WaitQueue};

use entries::{Entries, NewPage, Outcome, Program, Victim};
pub use entries::{Hold, PageKind};

/// The buffer's part of a profile: section `[buffer]`.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
#[section("buffer", default)]
pub struct BufferConfig {
    /// NAND pages that fit into the power-protected page buffer.
    #[setting(is = Integer(MIN_ENTRIES as i64, 1 << 20), image)]
    pub entries: u32,
    /// `wait`: a task that needs an entry of the full buffer programs the least recently used page and waits for it, as
    /// on the published board. `overlap`: pages are programmed in the background before their entries are needed.
    pub eviction: Eviction,
}

/// Which task waits when a page must be programmed to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum Eviction {
    /// The task that needs the entry programs the least recently used page and waits for it, as on the published
    /// board.
    Wait,
    /// Programs run in the background, ahead of need; a clean page goes before a dirty one.
    Overlap,
}

/// `Overlap` keeps one entry in this many free, clean or being programmed: 64 of the published board's 512, twice its
/// dies.
const WRITE_AHEAD_SHARE: u32 = 8;

/// Fewest entries a buffer works with: two heads' open pages, one eviction and some readers.
pub const MIN_ENTRIES: u32 = 8;

/// The owner of the pages. Called with no state of the buffer borrowed; must not wait.
pub trait PageWatch {
    /// An empty page has come into the buffer to be filled.
    fn opened(&self, lpa: u32);
    /// A page that is being filled must be evicted. The watch gives up the rest of the page and closes it.
    fn leaving(&self, lpa: u32);
    /// A page whose bytes were all on flash is about to be written to: from now on it is protected by the
    /// buffer.
    fn dirtied(&self, lpa: u32, content: &Region);
    /// A program has completed and flash has all of the page's bytes (or flash is off and the page is gone).
    fn programmed(&self, lpa: u32);
    /// A page that [`PageBuffer::drop_pages`] found in use has now been dropped.
    fn discarded(&self, lpa: u32);
}

/// Counters; pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Counters)]
#[counters(prefix = "buffer_")]
pub struct BufferStatistics {
    /// Empty pages that entered the buffer to be filled.
    pub opened: u64,
    /// Pages read from flash into the buffer.
    pub fetched: u64,
    /// Fetches that found the page in the buffer.
    pub hits: u64,
    /// Pages that were programmed because their entry was needed; pages that a drain programmed are not counted.
    pub evicted_dirty: u64,
    /// Times a task waited for an entry to be released, without programming a page itself.
    pub waits: u64,
    /// Pages that were evicted while they were being filled.
    pub forced_out: u64,
}

/// A page being read; other tasks that need it wait for the first one.
struct ArrivingPage {
    lpa: u32,
    waiting: Cell<u32>,
    waiting_for_host: Cell<u32>,
    result: Cell<Option<Result<u32, Status>>>,
    arrived: WaitQueue,
}

struct Buffer {
    sim: Sim,
    ftl: Option<Ftl>,
    eviction: Eviction,
    page_bytes: u32,
    entries: TaskCell<Entries>,
    arriving: TaskCell<Vec<Rc<ArrivingPage>>>,
    /// Signals that an entry was released.
    released: WaitQueue,
    watch: OnceCell<Weak<dyn PageWatch>>,
    statistics: Cell<BufferStatistics>,
}

/// The buffer; clones are the same one.
#[derive(Clone)]
pub struct PageBuffer(Rc<Buffer>);

impl PageBuffer {
    /// A buffer of `entries` pages (at least [`MIN_ENTRIES`]) in front of `ftl`; `None`: flash is switched
    /// off, and evicted pages are lost.
    pub fn new(sim: &Sim, ftl: Option<Ftl>, entries: u32, eviction: Eviction, page_bytes: u32) -> PageBuffer {
        assert!(entries >= MIN_ENTRIES, "a page buffer needs {MIN_ENTRIES} entries, not {entries}");
        PageBuffer(Rc::new(Buffer {
            sim: sim.clone(),
            ftl,
            eviction,
            page_bytes,
            entries: TaskCell::new(Entries::new(entries, page_bytes)),
            arriving: TaskCell::default(),
            released: WaitQueue::new(sim),
            watch: OnceCell::new(),
            statistics: Cell::default(),
        }))
    }

    /// Sets the owner of the pages, once. Without an owner, a page that must leave while it is being filled is closed.
    pub fn set_watch(&self, watch: Weak<dyn PageWatch>) {
        assert!(self.0.watch.set(watch).is_ok(), "a page buffer has one owner");
    }

    fn tell(&self, what: impl FnOnce(&dyn PageWatch)) {
        if let Some(watch) = self.0.watch.get().and_then(Weak::upgrade) {
            what(&*watch);
        }
    }

    /// The flash that it buffers; `None`: flash is switched off.
    pub fn flash(&self) -> Option<&Ftl> {
        self.0.ftl.as_ref()
    }

    /// Entries in all.
    pub fn entries(&self) -> u32 {
        self.0.entries.borrow().count()
    }

    /// A page's size in bytes.
    pub fn page_bytes(&self) -> u32 {
        self.0.page_bytes
    }

    /// Entries in all, those pinned, and those that only the host's next commands can free.
    #[inline]
    pub fn occupancy(&self) -> (u32, u32, u32) {
        let entries = self.0.entries.borrow();
        (entries.count(), entries.pinned(), entries.host_pinned())
    }

    /// Counters so far.
    pub fn statistics(&self) -> BufferStatistics {
        self.0.statistics.get()
    }

    fn count(&self, what: impl FnOnce(&mut BufferStatistics)) {
        let mut statistics = self.0.statistics.get();
        what(&mut statistics);
        self.0.statistics.set(statistics);
    }

    /// Waits until an entry is released.
    pub fn wait_for_release(&self) {
        let _spent = self.0.sim.spend(Cause::Room);
        self.0.released.wait();
    }

    /// Wakes all tasks in [`PageBuffer::wait_for_release`] to check again.
    pub fn wake_waiting(&self) {
        self.0.released.wake_all();
    }

    /// Pins page `lpa` if it is in the buffer, without waiting.
    pub fn try_pin(&self, lpa: u32, hold: Hold) -> Option<Pin> {
        let mut entries = self.0.entries.borrow_mut();
        let slot = entries.find(lpa)?;
        entries.pin(slot, hold);
        Some(self.pin_of(slot, hold))
    }

    /// [`PageBuffer::try_pin`] for a caller that knows the page's entry ([`Pin::slot`]): without a search.
    #[inline]
    pub fn try_pin_at(&self, slot: u32, lpa: u32, hold: Hold) -> Option<Pin> {
        let mut entries = self.0.entries.borrow_mut();
        if !entries.holds(slot, lpa) {
            return None;
        }
        entries.pin(slot, hold);
        Some(self.pin_of(slot, hold))
    }

    fn pin_of(&self, slot: u32, hold: Hold) -> Pin {
        Pin { buffer: self.clone(), slot, hold }
    }

    /// An entry for page `lpa`, which has no bytes on flash: empty, or with its present content if another task opened
    /// it. May wait for a program.
    ///
    /// # Errors
    /// [`Status::COMMAND_INTERRUPTED`] when every entry is pinned.
    pub fn open(&self, lpa: u32, kind: PageKind, hold: Hold) -> Result<Pin, Status> {
        self.bring(lpa, hold, Some(kind), kind.purpose)
    }

    /// The entry of page `lpa`, read from flash if need be.
    ///
    /// # Errors
    /// [`Status::UNRECOVERED_ERROR`] when flash cannot give the page, [`Status::VALUE_NOT_RESIDENT`] when
    /// flash is switched off, [`Status::COMMAND_INTERRUPTED`] when every entry is pinned.
    pub fn fetch(&self, lpa: u32, purpose: Purpose) -> Result<Pin, Status> {
        if let Some(pin) = self.try_pin(lpa, Hold::Drive) {
            self.count(|statistics| statistics.hits += 1);
            return Ok(pin);
        }
        self.bring(lpa, Hold::Drive, None, purpose)
    }

    fn bring(
        &self,
        lpa: u32,
        hold: Hold,
        open_as: Option<PageKind>,
        purpose: Purpose,
    ) -> Result<Pin, Status> {
        if let Some(pin) = self.try_pin(lpa, hold) {
            return Ok(pin);
        }
        let underway = self.0.arriving.borrow().iter().find(|other| other.lpa == lpa).cloned();
        if let Some(arriving) = underway {
            let waiting = if hold == Hold::Host { &arriving.waiting_for_host } else { &arriving.waiting };
            waiting.set(waiting.get() + 1);
            arriving.arrived.wait();
            // The task that read the page has pinned it for this one, so it cannot be evicted in between.
            let slot = arriving.result.get().expect("woken after the page arrived")?;
            return Ok(self.pin_of(slot, hold));
        }
        let arriving = Rc::new(ArrivingPage {
            lpa,
            waiting: Cell::new(0),
            waiting_for_host: Cell::new(0),
            result: Cell::new(None),
            arrived: WaitQueue::new(&self.0.sim),
        });
        self.0.arriving.borrow_mut().push(arriving.clone());
        let found = match open_as {
            Some(kind) => self.take_entry().map(|slot| (slot, NewPage::Empty(kind))),
            None => self.load(lpa, purpose),
        };
        self.0.arriving.borrow_mut().retain(|other| !Rc::ptr_eq(other, &arriving));
        let result = found.map(|(slot, page)| {
            let (host, drive) = (arriving.waiting_for_host.get(), arriving.waiting.get());
            let (host, drive) = match hold {
                Hold::Host => (host + 1, drive),
                Hold::Drive => (host, drive + 1),
            };
            self.count(|statistics| match page {
                NewPage::Empty(_) => statistics.opened += 1,
                _ => statistics.fetched += 1,
            });
            self.0.entries.borrow_mut().install(slot, lpa, page, drive, host);
            slot
        });
        if open_as.is_some() && result.is_ok() {
            self.tell(|watch| watch.opened(lpa));
        }
        arriving.result.set(Some(result));
        arriving.arrived.wake_all();
        self.write_ahead();
        result.map(|slot| self.pin_of(slot, hold))
    }

    fn load(&self, lpa: u32, purpose: Purpose) -> Result<(u32, NewPage), Status> {
        let Some(ftl) = &self.0.ftl else { return Err(Status::VALUE_NOT_RESIDENT) };
        let slot = self.take_entry()?;
        self.0.entries.borrow_mut().begin_load();
        let read = ftl.read(Lpa(lpa), purpose);
        let mut entries = self.0.entries.borrow_mut();
        entries.end_load();
        match read {
            Ok(region) => Ok((slot, NewPage::Stored(region))),
            Err(status) => {
                entries.put_back(slot);
                drop(entries);
                self.0.released.wake_all();
                Err(status)
            }
        }
    }

    /// A detached entry. Programs a dirty page first if necessary.
    fn take_entry(&self) -> Result<u32, Status> {
        loop {
            let overlap = self.0.eviction == Eviction::Overlap;
            let victim = self.0.entries.borrow_mut().victim(overlap, self.0.ftl.is_some());
            match victim {
                Victim::Entry(slot) => return Ok(slot),
                Victim::Lost { slot, lpa } => {
                    self.tell(|watch| watch.programmed(lpa));
                    return Ok(slot);
                }
                Victim::Dirty(slot) if overlap => {
                    if self.0.entries.borrow().programming() < self.write_ahead_pages() {
                        self.program_in_background(slot);
                    }
                    self.wait();
                }
                Victim::Dirty(slot) => {
                    let program = self.0.entries.borrow_mut().begin_program(slot);
                    let lpa = program.lpa;
                    self.count(|statistics| statistics.evicted_dirty += 1);
                    self.finish_program(program);
                    if self.0.entries.borrow_mut().take_programmed(slot, lpa) {
                        return Ok(slot);
                    }
                }
                Victim::Filling(slot) => self.force_out(slot),
                Victim::Busy => self.wait(),
                Victim::Pinned => return Err(Status::COMMAND_INTERRUPTED),
            }
        }
    }

    fn wait(&self) {
        self.count(|statistics| statistics.waits += 1);
        self.wait_for_release();
    }

    /// Ends the filling of a page that must leave.
    fn force_out(&self, slot: u32) {
        let lpa = self.0.entries.borrow().lpa(slot);
        self.count(|statistics| statistics.forced_out += 1);
        self.tell(|watch| watch.leaving(lpa));
        if self.0.watch.get().is_none() {
            self.close(lpa);
        }
        let still_filling = self.0.entries.borrow().is_filling(slot);
        assert!(!still_filling, "page {lpa} must leave and its owner would not close it");
    }

    fn finish_program(&self, program: Program) {
        let Program { slot, lpa, region, kind } = program;
        let ftl = self.0.ftl.as_ref().expect("nothing is programmed without flash");
        ftl.write_placed(Lpa(lpa), region, kind.kind, kind.tag, kind.purpose, kind.placement);
        let (stored, outcome) = self.0.entries.borrow_mut().end_program(slot);
        if stored {
            self.tell(|watch| watch.programmed(lpa));
        }
        if let Outcome::Discarded(lpa) = outcome {
            self.tell(|watch| watch.discarded(lpa));
        }
        self.0.released.wake_all();
    }

    fn program_in_background(&self, slot: u32) {
        let program = self.0.entries.borrow_mut().begin_program(slot);
        self.count(|statistics| statistics.evicted_dirty += 1);
        let buffer = self.clone();
        self.0.sim.spawn(move || buffer.finish_program(program));
    }

    fn write_ahead_pages(&self) -> u32 {
        (self.entries() / WRITE_AHEAD_SHARE).max(1)
    }

    /// With `Overlap`: begins programs before their entries are needed.
    fn write_ahead(&self) {
        if self.0.eviction != Eviction::Overlap || self.0.ftl.is_none() {
            return;
        }
        loop {
            let mut entries = self.0.entries.borrow_mut();
            let ready = entries.available() + entries.programming();
            let dirty = entries.oldest_dirty();
            drop(entries);
            let enough = ready >= self.write_ahead_pages();
            match dirty {
                Some(slot) if !enough => self.program_in_background(slot),
                _ => return,
            }
        }
    }

    /// Page `lpa` gets no more bytes. Does nothing when it is not in the buffer.
    pub fn close(&self, lpa: u32) {
        let mut entries = self.0.entries.borrow_mut();
        if let Some(slot) = entries.find(lpa) {
            entries.close(slot);
        }
    }

    /// Programs every page that flash does not have yet; they stay in the buffer, clean. Pages written to
    /// meanwhile may be dirty again at the end.
    pub fn drain(&self) {
        if self.0.ftl.is_none() {
            return;
        }
        let unstored: Vec<(u32, u32)> =
            self.0.entries.borrow().unstored().map(|(lpa, slot, _)| (lpa, slot)).collect();
        let mut begun = Vec::new();
        let mut running = Vec::new();
        for (lpa, slot) in unstored {
            if self.0.entries.borrow().is_programming(slot, lpa) {
                running.push((lpa, slot));
                continue;
            }
            let program = self.0.entries.borrow_mut().begin_program(slot);
            let buffer = self.clone();
            begun.push(self.0.sim.spawn(move || buffer.finish_program(program)));
        }
        for program in begun {
            program.join();
        }
        // Pages whose program ran already may have got bytes after it began, and before this call.
        for (lpa, slot) in running {
            while self.0.entries.borrow().is_programming(slot, lpa) {
                self.wait_for_release();
            }
            if self.0.entries.borrow().is_dirty(slot, lpa) {
                let program = self.0.entries.borrow_mut().begin_program(slot);
                self.finish_program(program);
            }
        }
    }

    /// Forgets pages, written to flash or not, because their segment is free. Returns how many are still in use,
    /// because they are being programmed or pinned; [`PageWatch::discarded`] is called for each of them later.
    pub fn drop_pages(&self, lpas: Range<u32>) -> u32 {
        let in_use = self.0.entries.borrow_mut().drop_pages(lpas);
        self.0.released.wake_all();
        in_use
    }

    /// Pages that a power cut must not lose because flash does not have their present content, by address.
    pub fn for_each_unstored(&self, found: &mut dyn FnMut(u32, &Region)) {
        for (lpa, _, region) in self.0.entries.borrow().unstored() {
            found(lpa, region);
        }
    }

    /// After a power cut: restores a page of the protected image. `false` if there is no room, or the page is in the
    /// buffer already.
    pub fn restore(&self, lpa: u32, kind: PageKind, content: Region, filling: bool) -> bool {
        let mut entries = self.0.entries.borrow_mut();
        if entries.find(lpa).is_some() {
            return false;
        }
        let Victim::Entry(slot) = entries.victim(true, true) else { return false };
        entries.install(slot, lpa, NewPage::Unstored(kind, Rc::new(content)), 0, 0);
        if filling {
            entries.reopen(slot);
        }
        true
    }

    #[inline]
    fn write_to(&self, slot: u32, at: u32, piece: Piece<'_>) {
        let end = u64::from(at) + u64::from(piece.bytes());
        assert!(end <= u64::from(self.0.page_bytes), "{at}+{} is beyond a page", piece.bytes());
        let mut entries = self.0.entries.borrow_mut();
        if entries.is_clean(slot) {
            let (lpa, content) = (entries.lpa(slot), entries.region(slot).clone());
            drop(entries);
            self.tell(|watch| watch.dirtied(lpa, &content));
            drop(content);
            entries = self.0.entries.borrow_mut();
        }
        entries.write(slot, at, piece);
    }
}

/// A page that stays in the buffer for as long as this is held.
pub struct Pin {
    buffer: PageBuffer,
    slot: u32,
    hold: Hold,
}

impl Pin {
    /// Its entry: see [`PageBuffer::try_pin_at`].
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Its logical page.
    pub fn lpa(&self) -> u32 {
        self.buffer.0.entries.borrow().lpa(self.slot)
    }

    /// Puts `piece` at byte `at` of the page.
    #[inline]
    pub fn write(&self, at: u32, piece: Piece<'_>) {
        self.buffer.write_to(self.slot, at, piece);
    }

    /// Marks the page as holding a value, even if no byte of it was written: unwritten bytes read as zeros, and the
    /// page goes to flash like any other.
    pub fn claim(&self) {
        let entries = self.buffer.0.entries.borrow();
        let is_untouched = entries.is_clean(self.slot) && entries.region(self.slot).written_end() == 0;
        drop(entries);
        if is_untouched {
            self.buffer.write_to(self.slot, 0, Piece::Bytes(&[]));
        }
    }

    /// Hands out `bytes` bytes of the page from `at` on.
    pub fn read(&self, at: u32, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        let region = self.buffer.0.entries.borrow().region(self.slot).clone();
        region.read(at, bytes, sink);
    }

    /// Ends the filling of the page; see [`PageBuffer::close`].
    pub fn close(&self) {
        self.buffer.0.entries.borrow_mut().close(self.slot);
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        let buffer = &self.buffer.0;
        if buffer.sim.halted() {
            return;
        }
        let outcome = buffer.entries.borrow_mut().unpin(self.slot, self.hold);
        if outcome == Outcome::InUse {
            return;
        }
        if let Outcome::Discarded(lpa) = outcome {
            self.buffer.tell(|watch| watch.discarded(lpa));
        }
        if !buffer.released.is_empty() {
            buffer.released.wake_all();
        }
    }
}
