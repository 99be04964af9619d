//! The section cache and the directory, which has the location of every section of the hash table.
//!
//! The directory has one word for each section: never written, on flash at some grain, or in a slot of the
//! cache. Sections are evicted in the order in which they were loaded (FIFO, as published); with a *second
//! chance*, a section that a command used since then stays for another round. With *ways*, a section competes
//! for its place with those of its set alone (`residents.rs`). An evicted section that was altered is appended to
//! the stream of sections, so neighbours in eviction order share a page; there is no other packing.
//!
//! A fetched section is pinned and is not evicted. If everything is pinned, the cache exceeds its budget
//! instead of waiting; `Cache::most_bytes` reports the maximum.
//!
//! In the model, the drive copies sections between flash and DRAM; in the machine's memory, a section shares
//! its bytes with the page that holds it ([`kvdrive_flash::media::items`]). The first alteration of a section
//! makes its copy on flash stale, though the copy keeps its place until the section is written. The stale
//! copy is never read: recovery finds the section in the protected image. So the medium may drop it, and a
//! section that is then the only owner of its bytes is altered in place.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use kvdrive_declare::Counters;
use kvdrive_flash::Purpose;
use kvdrive_flash::power::Journal;
use kvdrive_nvme::Status;
use kvdrive_sim::{Ns, Sim, TaskCell, WaitQueue};

use crate::firmware::Role;
use crate::hash::change::Change;
use crate::hash::layout::Location;
use crate::hash::section::{Format, Section, SectionHeader};
use crate::hash::space::{Reservations, Space};

mod evict;
mod expect;
mod pin;
mod residents;
mod restore;

pub(super) use evict::Eviction;
pub use pin::Pin;
use residents::Residents;

const NEVER: u64 = 0;
const CACHED: u64 = 1 << 63;

/// What the cache keeps for a section besides its bytes: its number, its location on flash and in DRAM, its
/// place in the queue, its state; about 16 B.
pub(super) const SLOT_BYTES: u32 = 16;
/// Evicted section objects kept for reuse.
const SPARE_SECTIONS: usize = 64;

struct Slot {
    id: u64,
    /// `None` while it is being read.
    section: Option<Box<dyn Section>>,
    /// The copy on flash, stale when `dirty`.
    location: Option<Location>,
    dirty: bool,
    /// Collection altered it and left it clean: like a `dirty` section it is newer than its copy, but it is
    /// never written ([`Eviction::gc_leaves_clean`]).
    is_left_clean: bool,
    /// The medium has dropped that copy.
    is_let_go: bool,
    pins: u32,
    /// A command used it since it was loaded or last passed over.
    touched: bool,
}

/// Counters of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Counters)]
#[counters(prefix = "section_")]
pub struct CacheStatistics {
    /// Fetches of a cached section.
    pub hits: u64,
    /// Fetches that read the section from flash.
    pub misses: u64,
    /// Fetches that created the section.
    pub created: u64,
    /// Unaltered sections that were evicted.
    pub evicted_clean: u64,
    /// Altered sections that were evicted and written.
    pub evicted_dirty: u64,
    /// Bytes of sections written.
    pub written_bytes: u64,
    /// Bytes of sections that collection of pairs read, without padding.
    pub gc_read_bytes: u64,
}

/// The share of the DRAM for the cache.
pub(super) struct Budget {
    /// Bytes for sections and for structures that grow with them.
    pub bytes: u64,
    /// Bytes that each section takes in addition to its own.
    pub slot_bytes: u32,
    /// Bytes that the other structures take at present.
    pub besides: Box<dyn Fn() -> u64>,
}

/// Directory and cache of one drive.
pub struct Cache {
    sim: Sim,
    space: Rc<Space>,
    format: Box<dyn Format>,
    journal: Journal,
    directory: TaskCell<Vec<u64>>,
    slots: TaskCell<Vec<Slot>>,
    free: TaskCell<Vec<u32>>,
    residents: TaskCell<Residents>,
    budget: Budget,
    eviction: Eviction,
    /// Evicted sections that collection had altered, with their content: [`Eviction::gc_leaves_clean`].
    left_clean: TaskCell<BTreeMap<u64, Rc<[u8]>>>,
    /// Firmware time of written sections that is still to be spent, ns.
    owed_ns: Cell<Ns>,
    /// Limit for the bytes of altered sections, and their present bytes.
    altered_limit_bytes: u64,
    altered_bytes: Cell<u64>,
    /// Slots in the order of first alteration; some of them have been written since.
    altered: TaskCell<VecDeque<u32>>,
    bytes: Cell<u64>,
    most_bytes: Cell<u64>,
    /// Number of alterations of sections.
    alterations: Cell<u64>,
    /// Version number for the next section that is written.
    version: Cell<u64>,
    loaded: WaitQueue,
    /// Grains of all sections at their present size.
    table_grains: Cell<u64>,
    statistics: Cell<CacheStatistics>,
    /// Evicted section objects, for the next loads.
    spare: TaskCell<Vec<Box<dyn Section>>>,
}

impl Cache {
    /// A cache within `budget`, over a table without sections.
    pub(super) fn new(
        sim: &Sim,
        space: &Rc<Space>,
        format: Box<dyn Format>,
        budget: Budget,
        eviction: Eviction,
        altered_limit_bytes: u64,
        journal: &Journal,
    ) -> Rc<Cache> {
        let sections = format.sections();
        Rc::new(Cache {
            sim: sim.clone(),
            space: space.clone(),
            format,
            journal: journal.clone(),
            directory: TaskCell::new(vec![NEVER; sections as usize]),
            slots: TaskCell::default(),
            free: TaskCell::default(),
            residents: TaskCell::new(Residents::new(eviction.ways)),
            budget,
            eviction,
            left_clean: TaskCell::default(),
            owed_ns: Cell::new(0),
            altered_limit_bytes,
            altered_bytes: Cell::new(0),
            altered: TaskCell::default(),
            bytes: Cell::new(0),
            most_bytes: Cell::new(0),
            alterations: Cell::new(0),
            version: Cell::new(1),
            loaded: WaitQueue::new(sim),
            table_grains: Cell::new(0),
            statistics: Cell::default(),
            spare: TaskCell::default(),
        })
    }

    /// The format of sections.
    pub fn format(&self) -> &dyn Format {
        &*self.format
    }

    /// Number of sections in the table.
    pub fn sections(&self) -> u64 {
        self.directory.borrow().len() as u64
    }

    /// Was a section ever created?
    pub fn exists(&self, id: u64) -> bool {
        self.directory.borrow()[id as usize] != NEVER
    }

    /// Number of alterations of sections. While it stays the same, a pinned section is unchanged.
    pub fn alterations(&self) -> u64 {
        self.alterations.get()
    }

    /// Counters of the cache.
    pub fn statistics(&self) -> CacheStatistics {
        self.statistics.get()
    }

    /// Grains of all sections, those in DRAM at their present size.
    pub fn table_grains(&self) -> u64 {
        self.table_grains.get()
    }

    fn add_table(&self, bytes: i64) {
        let grains = bytes / i64::from(self.space.layout.grain_bytes);
        let table = self.table_grains.get().checked_add_signed(grains);
        self.table_grains.set(table.expect("sections only leave the table they were added to"));
    }

    /// Bytes of sections at present, and the maximum so far.
    pub fn bytes(&self) -> (u64, u64) {
        (self.bytes.get(), self.most_bytes.get())
    }

    /// Budget at present, bytes.
    pub fn budget_bytes(&self) -> u64 {
        self.budget.bytes.saturating_sub((self.budget.besides)())
    }

    /// Bytes of the budget that a section uses.
    fn charge(&self, section: &dyn Section) -> u32 {
        section.cached_bytes() + self.budget.slot_bytes
    }

    /// Bytes of DRAM the directory takes in the drive.
    pub fn directory_dram_bytes(&self) -> u64 {
        self.sections() * self.format.directory_bytes()
    }

    /// The section, from the cache or from flash; a section that never existed is created.
    ///
    /// Errors: [`Status::UNRECOVERED_ERROR`] when it cannot be read.
    pub fn fetch(self: &Rc<Self>, id: u64, purpose: Purpose) -> Result<Pin, Status> {
        self.fetch_ahead(id, purpose, &Reservations::default())
    }

    /// As [`Cache::fetch`], for a lookup that may have reserved the unit in advance.
    pub fn fetch_ahead(
        self: &Rc<Self>,
        id: u64,
        purpose: Purpose,
        ahead: &Reservations,
    ) -> Result<Pin, Status> {
        let pin = loop {
            let word = self.directory.borrow()[id as usize];
            if word & CACHED != 0 {
                let slot = (word & !CACHED) as u32;
                if self.slots.borrow()[slot as usize].section.is_some() {
                    self.count(|s| s.hits += 1);
                    // Collection visits all pairs alike, so its use of a section is no second chance.
                    if purpose != Purpose::GcMap {
                        self.slots.borrow_mut()[slot as usize].touched = true;
                    }
                    break self.pin(slot);
                }
                self.loaded.wait();
                continue;
            }
            if word == NEVER {
                if !self.space.has_map_room() {
                    self.space.map_room();
                    continue;
                }
                self.count(|s| s.created += 1);
                break self.create(id, purpose);
            }
            break self.load(id, Location::of_word(word), purpose, ahead)?;
        };
        if self.owed_ns.get() > 0 {
            self.take_owed();
        }
        Ok(pin)
    }

    /// Spends the firmware time of sections that were written where suspension is not allowed.
    fn take_owed(&self) {
        self.eviction.cores.of(Role::Eviction).run_noted(self.owed_ns.take(), "hash", "write sections");
    }

    fn pin(self: &Rc<Self>, slot: u32) -> Pin {
        self.slots.borrow_mut()[slot as usize].pins += 1;
        Pin { cache: self.clone(), slot }
    }

    fn create(self: &Rc<Self>, id: u64, purpose: Purpose) -> Pin {
        let section = self.format.create();
        let begun = self.make_room(id, self.charge(&*section).into());
        self.add_table(section.bytes().into());
        let slot = self.insert(id, Some(section), None);
        let pin = self.pin(slot);
        self.enqueue(slot);
        self.wait_for_eviction(begun, purpose);
        pin
    }

    /// Makes a command wait for the page that its eviction filled, if that is configured.
    fn wait_for_eviction(&self, begun: Option<u32>, purpose: Purpose) {
        if let Some(page) = begun.filter(|_| self.eviction.waits && purpose == Purpose::Map) {
            self.space.page_programmed(page);
        }
    }

    fn load(
        self: &Rc<Self>,
        id: u64,
        location: Location,
        purpose: Purpose,
        ahead: &Reservations,
    ) -> Result<Pin, Status> {
        self.count(|s| s.misses += 1);
        let slot = self.insert(id, None, Some(location));
        let section = self.read(id, location, purpose, ahead);
        self.space.map_room();
        self.loaded.wake_all();
        match section {
            Ok(section) => {
                if purpose == Purpose::GcMap {
                    self.count(|s| s.gc_read_bytes += u64::from(section.bytes()));
                }
                let begun = self.make_room(id, self.charge(&*section).into());
                self.slots.borrow_mut()[slot as usize].section = Some(section);
                let pin = self.pin(slot);
                self.enqueue(slot);
                self.wait_for_eviction(begun, purpose);
                Ok(pin)
            }
            Err(status) => {
                let location = self.slots.borrow()[slot as usize].location.expect("it was on flash");
                self.directory.borrow_mut()[id as usize] = location.word();
                self.free.borrow_mut().push(slot);
                Err(status)
            }
        }
    }

    /// Reads a section. Like the published FTLs it reads the whole read unit.
    fn read(
        &self,
        id: u64,
        location: Location,
        purpose: Purpose,
        ahead: &Reservations,
    ) -> Result<Box<dyn Section>, Status> {
        let layout = &self.space.layout;
        let _reader = self.space.pin(location.grain);
        let at = layout.byte_in_page(location.grain);
        let unit = layout.unit_begin(at);
        let page = layout.page(location.grain);
        let part = self.space.read_ahead(page, unit, layout.unit_bytes, purpose, ahead)?;
        if self.eviction.fetch_ns > 0 {
            let role = if purpose == Purpose::GcMap { Role::Collection } else { Role::Dispatch };
            self.eviction.cores.of(role).run_noted(self.eviction.fetch_ns, "hash", "fetch section");
        }
        let bytes = part.item(at, location.grains * layout.grain_bytes);
        let mut section = self.spare_section();
        let is_it = SectionHeader::decode(&bytes).is_some_and(|header| header.id == id);
        let newer = if is_it { self.left_clean.borrow_mut().remove(&id) } else { None };
        if newer.is_some() {
            let slot = self.directory.borrow()[id as usize] & !CACHED;
            self.slots.borrow_mut()[slot as usize].is_left_clean = true;
        }
        if is_it && section.load(newer.unwrap_or(bytes)) {
            Ok(section)
        } else {
            Err(Status::UNRECOVERED_ERROR)
        }
    }

    /// A section object for reuse, if there is one.
    fn spare_section(&self) -> Box<dyn Section> {
        self.spare.borrow_mut().pop().unwrap_or_else(|| self.format.create())
    }

    fn insert(&self, id: u64, section: Option<Box<dyn Section>>, location: Option<Location>) -> u32 {
        let new = Slot {
            id,
            section,
            location,
            dirty: false,
            is_left_clean: false,
            is_let_go: false,
            pins: 0,
            touched: false,
        };
        let mut slots = self.slots.borrow_mut();
        let slot = match self.free.borrow_mut().pop() {
            Some(slot) => {
                slots[slot as usize] = new;
                slot
            }
            None => {
                slots.push(new);
                slots.len() as u32 - 1
            }
        };
        self.directory.borrow_mut()[id as usize] = CACHED | u64::from(slot);
        slot
    }

    fn enqueue(&self, slot: u32) {
        let bytes =
            self.slots.borrow()[slot as usize].section.as_ref().map_or(0, |section| self.charge(&**section));
        self.grow(i64::from(bytes));
        let id = self.slots.borrow()[slot as usize].id;
        self.residents.borrow_mut().enter(id, slot);
    }

    fn grow(&self, by: i64) {
        let bytes = self.bytes.get().checked_add_signed(by).expect("what leaves was there");
        self.bytes.set(bytes);
        self.most_bytes.set(self.most_bytes.get().max(bytes));
    }

    /// Location of a section's copy on flash; `None` if it has none.
    pub fn location(&self, id: u64) -> Option<Location> {
        let word = *self.directory.borrow().get(id as usize)?;
        match word {
            NEVER => None,
            word if word & CACHED != 0 => self.slots.borrow()[(word & !CACHED) as usize].location,
            word => Some(Location::of_word(word)),
        }
    }

    /// Is the section altered? Then its copy on flash is never read.
    pub fn is_altered(&self, id: u64) -> bool {
        let word = self.directory.borrow()[id as usize];
        word & CACHED != 0 && self.slots.borrow()[(word & !CACHED) as usize].dirty
    }

    /// Notes that garbage collection has moved a section's copy on flash.
    pub fn relocate(&self, id: u64, to: Location) {
        self.journal.append(&Change::Moved { section: id, location: to.word() });
        let word = &mut self.directory.borrow_mut()[id as usize];
        if *word & CACHED != 0 {
            let slot = &mut self.slots.borrow_mut()[(*word & !CACHED) as usize];
            slot.location = Some(to);
            slot.is_let_go = false;
        } else {
            *word = to.word();
        }
    }

    fn count(&self, raise: impl FnOnce(&mut CacheStatistics)) {
        let mut statistics = self.statistics.get();
        raise(&mut statistics);
        self.statistics.set(statistics);
    }
}
