//! Engine `lsm`: a value log and an index of addresses into it, joined.
//!
//! ```text
//!   reserve ─► value log (packing, page buffer) ─► place ─► bytes ─► commit: live bytes, then the index
//!   find    ─► pin of the past ─► index ─► value log
//! ```
//!
//! Commands of one key are ordered by a keyed lock, held while the index changes and by garbage collection
//! while it moves a value ([`super::collection`]). No task collects while holding it.
//!
//! This module determines the order of steps, so that a power cut between any two leaves a value whole or absent. A
//! value's bytes are in the protected buffer before its index entry exists, and its bytes count as live before it can
//! be found; a cut between the two leaves live bytes without an entry, which collection finds out.

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_content::Piece;
use kvdrive_declare::{Counters, Counts};
use kvdrive_flash::Purpose;
use kvdrive_flash::ftl::{Ftl, Lpa};
use kvdrive_flash::power::PowerOnError;
use kvdrive_flash::power::{ImageError, Journal, Owner};
use kvdrive_nvme::batch::BATCH_REQUESTS_MAX;
use kvdrive_nvme::identify::AtomicLimits;
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_sim::{KeyedLock, Mutex, Sim, TaskCell};

use super::cursor::Cursor;
use super::entry::Entry;
use super::fit::{self, logical_pages, pool, shape, tables_in_protected_bytes};
use super::futile::Futile;
use super::index::{Index, IndexParts, IndexWork};
use super::journal::{self, Liveness, Protected};
use super::{FoundTables, GcConfig};
use crate::ahead::Ahead;
use crate::config::{EngineConfig, Parts};
use crate::firmware::CopyCosts;
use crate::firmware::{Cores, Role};
use crate::over_log::{IndexOverLog, OverLog};
use crate::page_buffer::PageBuffer;
use crate::value_log::{
    LargeReader, PastPin, Place, SegmentPool, SnapshotPin, VALUE_PAGE_KIND, Vaddr, ValueLog,
};
use crate::{Engine, Gap, GiveUpCursor, HeldByCursors, Memcpy, Moved, PairChange, Utilization};

/// The engine.
pub type LsmEngine = OverLog<Lsm>;

/// The engine's parts, which a task of collection holds, too ([`crate::ahead`]).
pub struct Lsm {
    pub(super) cores: Cores,
    pub(super) copy: CopyCosts,
    pub(super) gc: GcConfig,
    pub(super) index: Index,
    pub(super) log: ValueLog,
    pub(super) pool: SegmentPool,
    pub(super) keys: KeyedLock<Key>,
    /// Held by the task that collects.
    pub(super) collecting: Mutex,
    /// The number of index changes at the last merge of the whole index for space. Without new changes another merge
    /// would gain nothing.
    pub(super) compacted_at: Cell<u64>,
    /// Pages of values that stores had filled by that time; `None` if that was before power-on.
    pub(super) merged_at_pages: Cell<Option<u64>>,
    /// Openings of segments that could not be collected because a page of them, or of a table that names
    /// them, is damaged.
    pub(super) damaged: TaskCell<Vec<u64>>,
    /// Deletes since the whole index was last merged.
    pub(super) deletes: Cell<u64>,
    /// The count of live bytes after the last merge of the whole index.
    pub(super) counted_bytes: Cell<u64>,
    /// See [`Futile`].
    pub(super) futile: Cell<Futile>,
    /// The state of the index when its room was last checked.
    pub(super) index_work: Cell<IndexWork>,
    /// The result of that check: the index had less room than stores must leave it.
    pub(super) index_short: Cell<bool>,
    pub(super) ahead: Ahead,
    pub(super) held_by_cursors: HeldByCursors,
    memcpy: Memcpy,
    pub(super) moved: Moved,
    ftl: Option<Ftl>,
    pub(super) config: EngineConfig,
    owner: Owner,
}

/// A value found: its entry, and the pins that keep it readable.
pub struct Found {
    entry: Entry,
    /// `None` when a cursor or its own segments keep it.
    pin: Option<PastPin>,
    /// The reader of a large value, which is not in the page buffer.
    large: Option<Box<LargeReader>>,
}

/// A walk over the pairs of one moment, whose values stay readable.
pub struct PairCursor {
    cursor: Cursor,
    _pin: SnapshotPin,
}

impl Lsm {
    /// Is the condition of a store met?
    pub(super) fn check_options(&self, key: &Key, options: StoreOptions) -> Result<(), Status> {
        if !options.update_only && !options.add_only {
            return Ok(());
        }
        match self.index.get(key)? {
            Some(_) if options.add_only => Err(Status::KEY_EXISTS),
            None if options.update_only => Err(Status::KEY_NOT_FOUND),
            _ => Ok(()),
        }
    }

    /// `UNRECOVERED_ERROR` for an entry that is not of this log's making, or whose segment an image gave back
    /// too early: pages there are not the log's to read.
    pub(super) fn check_value(&self, entry: &Entry) -> Result<(), Status> {
        let is_there = !entry.has_bytes() || self.log.holds(entry.address, entry.bytes);
        if is_there { Ok(()) } else { Err(Status::UNRECOVERED_ERROR) }
    }

    /// Puts the entry of a value whose bytes are in place into the index. The caller holds the key's lock.
    pub(super) fn point_at(&self, key: Key, address: Vaddr, bytes: u32) -> Result<(), Status> {
        self.log.note_live(address, bytes);
        let inserted = self.index.insert(key, address, bytes);
        if inserted.is_err() {
            self.log.note_dead(address, bytes);
        }
        inserted
    }

    fn commit_once(&self, key: Key, place: &Place, options: StoreOptions) -> Result<(), Status> {
        let _key = self.keys.lock(key);
        self.check_options(&key, options)?;
        self.point_at(key, place.address(), place.bytes())
    }

    fn found(&self, entry: Entry, pin: Option<PastPin>) -> Found {
        // A value that is shorter cannot be large, unless the buffer has become smaller since it was stored.
        let is_packed = !entry.has_bytes() || entry.bytes <= self.log.packed_max_bytes();
        let large = if is_packed { None } else { LargeReader::new(&self.log, entry.address) };
        Found { entry, pin, large: large.map(Box::new) }
    }

    /// Commits like a batch of one: the entry is made and its bytes are counted as live in one step. If there were two
    /// steps, a power cut between them would leave segments that are never given back.
    fn commit_large(&self, key: Key, place: Place, options: StoreOptions) -> Result<(), Status> {
        let placed = [(key, Some(place))];
        self.index.charge_insertions(1);
        loop {
            self.make_room_for_entry()?;
            match self.commit_placed(&placed, true, options) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(Status::CAPACITY_EXCEEDED) => self.make_room()?,
                Err(status) => return Err(status),
            }
        }
    }

    fn delete_once(&self, key: Key, must_exist: bool) -> Result<(), Status> {
        let _key = self.keys.lock(key);
        let options = StoreOptions { update_only: must_exist, ..StoreOptions::default() };
        self.check_options(&key, options)?;
        self.index.remove(key)
    }

    fn remove(&self, key: Key, must_exist: bool) -> Result<(), Status> {
        loop {
            match self.delete_once(key, must_exist) {
                Err(Status::CAPACITY_EXCEEDED) => self.make_room()?,
                deleted => {
                    self.forget_deleted();
                    return deleted;
                }
            }
        }
    }
}

impl IndexOverLog for Lsm {
    fn log(&self) -> &ValueLog {
        &self.log
    }

    fn page_bytes(&self) -> u32 {
        self.config.flash.page_bytes
    }

    #[inline]
    fn copy(&self, bytes: u32) {
        let ns = self.copy.copy_ns(bytes);
        self.memcpy.add(bytes, ns);
        self.cores.of(Role::Copy).run_noted(ns, "controller", "memcpy");
    }

    fn accept(&self, key: &Key, bytes: u32) -> Result<(), Status> {
        self.index.accept(key, Vaddr(0), bytes)
    }

    fn make_ready(self: &Rc<Self>) -> Result<(), Status> {
        if !self.is_short_of_room() {
            return Ok(());
        }
        self.keep_room();
        self.make_room_for_entry()
    }

    fn make_room(&self) -> Result<(), Status> {
        Lsm::make_room(self)
    }
}

impl Engine for LsmEngine {
    type Found = Found;
    type Cursor = PairCursor;
    const ORDERED: bool = true;

    /// All entries of a batch go to one memtable.
    fn atomic_batches(&self) -> Option<AtomicLimits> {
        let requests = self.config.engines.lsm.index.memtable_entries.min(BATCH_REQUESTS_MAX);
        Some(AtomicLimits { requests, bytes: self.log.packed_max_bytes() })
    }

    fn commit_all(&self, changes: Vec<PairChange>) -> Result<(), Status> {
        self.commit_batch(changes)
    }

    fn on_held(&self, give_up: GiveUpCursor) {
        self.held_by_cursors.set(give_up);
    }

    fn commit(&self, key: Key, mut place: Place, options: StoreOptions) -> Result<(), Status> {
        place.landed();
        if place.is_large() {
            place.check_whole()?;
            return self.commit_large(key, place, options);
        }
        loop {
            self.make_room_for_entry()?;
            match self.commit_once(key, &place, options) {
                Err(Status::CAPACITY_EXCEEDED) => self.make_room()?,
                committed => return committed,
            }
        }
    }

    fn find(&self, key: Key) -> Result<Option<Found>, Status> {
        let pin = self.log.pin_all();
        let Some(entry) = self.index.get(&key)? else { return Ok(None) };
        self.check_value(&entry)?;
        Ok(Some(self.found(entry, Some(pin))))
    }

    fn value_bytes(&self, found: &Found) -> u32 {
        found.entry.bytes
    }

    /// The address on flash; 0 while the value's first page is in the buffer alone.
    fn order_on_flash(&self, found: &Found) -> u64 {
        let Some(ftl) = self.ftl.as_ref().filter(|_| found.entry.has_bytes()) else { return 0 };
        let (address, page_bytes) = (found.entry.address.0, u64::from(ftl.page_bytes()));
        let page = ftl.position(Lpa((address / page_bytes) as u32));
        page.map_or(0, |page| u64::from(page.0) * page_bytes + address % page_bytes)
    }

    fn begin_unfinished(&self, place: &Place) -> Result<(), Status> {
        place.begin_unfinished()
    }

    fn outlives_command(&self, found: &mut Found) -> bool {
        let outlives = found.large.as_mut().is_some_and(|large| large.outlives_command());
        if outlives {
            found.pin = None;
        }
        outlives
    }

    fn load(
        &self,
        found: &Found,
        at: u32,
        bytes: u32,
        until: u32,
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), Status> {
        match &found.large {
            Some(large) => large.read(at, bytes, until, sink),
            None => self.log.read(found.entry.address, at, bytes, until, Purpose::Value, sink),
        }
    }

    fn delete(&self, key: Key) -> Result<(), Status> {
        self.remove(key, false)
    }

    fn delete_existing(&self, key: Key) -> Result<(), Status> {
        self.remove(key, true)
    }

    fn open_cursor(&self, from: Option<Key>) -> Result<PairCursor, Status> {
        let pin = self.log.pin_snapshot();
        Ok(PairCursor { cursor: self.index.snapshot().cursor(from), _pin: pin })
    }

    fn next(&self, cursor: &mut PairCursor) -> Result<Option<(Key, Found)>, Status> {
        let Some((key, entry)) = cursor.cursor.next_pair()? else { return Ok(None) };
        self.check_value(&entry)?;
        Ok(Some((key, self.found(entry, None))))
    }

    fn gap(&self, cursor: &PairCursor) -> Gap {
        cursor.cursor.gap()
    }

    fn drain(&self) {
        self.log.drain();
    }

    fn utilization(&self) -> Utilization {
        // The size of the namespace does not change, however many of its segments the index has at the moment.
        let segments = self.pool.segments().saturating_sub(self.gc.free_segments_reserved);
        let capacity_bytes = u64::from(segments) * self.segment_bytes();
        Utilization { live_bytes: self.log.live_bytes(), capacity_bytes }
    }

    fn max_value_bytes(&self) -> u32 {
        self.log.max_value_bytes().min(self.index.max_value_bytes())
    }

    fn power_on(parts: Parts, image: Option<&[u8]>) -> Result<LsmEngine, PowerOnError> {
        let Parts { sim, cores, flash, journal, owner, config } = parts;
        let protected = image.map(|image| Protected::decode(&config, image)).transpose()?;
        let mut tables = FoundTables::default();
        let mut strays = Vec::new();
        let ftl = match &protected {
            _ if !config.flash.enabled => None,
            None => Some(Ftl::new(flash, &config.engines.ftl)),
            Some(protected) => {
                let mut found = |lpa: Lpa, kind: u8, tag: &[u8; 48]| {
                    if !tables.found(lpa, kind, tag) && !protected.values.owns(lpa.0, kind, tag) {
                        strays.push(lpa);
                    }
                };
                Some(Ftl::recover(flash, &config.engines.ftl, &mut found))
            }
        };
        if let Some(ftl) = &ftl {
            strays.into_iter().for_each(|lpa| ftl.trim(lpa));
        }
        let lsm = Lsm::assemble(sim, cores, (config, owner), journal, ftl, protected, tables)?;
        Ok(OverLog(Rc::new(lsm)))
    }

    fn protected_image(&self) -> Vec<u8> {
        Protected::of(self.owner.clone(), &self.log, &self.index)
    }

    fn fold(config: &EngineConfig, image: &[u8], records: &[Vec<u8>]) -> Result<Vec<u8>, PowerOnError> {
        journal::fold(config, image, records)
    }

    fn check(config: &EngineConfig) -> Result<(), PowerOnError> {
        fit::check(config)
    }

    fn image_settings(config: &EngineConfig) -> Vec<(&'static str, String)> {
        fit::image_settings(config)
    }

    fn counts(&self) -> Counts {
        let own = Own {
            lost_segments: self.damaged.borrow().len(),
            packing_bytes: self.config.engines.lsm.packing.state_bytes(),
            ftl_copied_value_pages: self.ftl.as_ref().map_or(0, |ftl| ftl.copied_pages_of(VALUE_PAGE_KIND)),
        };
        let counts = self.memcpy.counts().and(&self.moved).and(&self.log.statistics());
        let counts = counts.and(&self.log.buffer_statistics()).and(&self.index.counters());
        let counts = counts.and(&self.ahead.counters()).and(&own);
        let counts = self.index.dram().iter().fold(counts, |counts, dram| counts.and(dram.counters()));
        self.ftl.iter().fold(counts, |counts, ftl| counts.and(&ftl.statistics()))
    }

    fn dram(&self) -> Counts {
        self.index.dram().map(|dram| dram.bytes().counts()).unwrap_or_default()
    }
}

/// Counters of the engine itself.
#[derive(Counters)]
struct Own {
    /// Segments in which collection could not read every value. They are not collected again.
    lost_segments: usize,
    /// Power-protected bytes of packing: pointers, and the DMA log table of policies that keep one.
    #[counter(state)]
    packing_bytes: u64,
    /// Pages of values among the `ftl_copied_pages`; the others are pages of the index.
    ftl_copied_value_pages: u64,
}

impl Lsm {
    fn assemble(
        sim: Sim,
        cores: Cores,
        (config, owner): (EngineConfig, Owner),
        journal: Journal,
        ftl: Option<Ftl>,
        protected: Option<Protected>,
        tables: FoundTables,
    ) -> Result<Lsm, PowerOnError> {
        let pool = pool(&config, logical_pages(&config), ftl.clone());
        let shape = shape(&config, &pool)?;
        let (page_bytes, buffer) = (config.flash.page_bytes, &config.engines.lsm.buffer);
        let buffer = PageBuffer::new(&sim, ftl.clone(), buffer.entries, buffer.eviction, page_bytes);
        let damaged = |reason: String| ImageError::new(0, reason);
        let (values, image) = protected.map(|protected| (protected.values, protected.index)).unzip();
        let log = match values {
            None => ValueLog::new(&sim, &shape, &pool, &buffer),
            Some(values) => ValueLog::restore(&sim, &shape, &pool, &buffer, values)
                .map_err(|error| damaged(error.to_string()))?,
        };
        let liveness = Rc::new(Liveness::new(log.clone(), journal.clone()));
        let parts = IndexParts {
            sim: sim.clone(),
            cores: cores.clone(),
            flash: ftl.clone().map(|ftl| (ftl, pool.clone())),
            page_bytes,
            most_tables: tables_in_protected_bytes(&config, &shape)?,
            values: liveness.clone(),
            journal: liveness.clone(),
        };
        let (index_config, is_new) = (config.engines.lsm.index.clone(), image.is_none());
        let index = match image {
            None => Index::new(parts, index_config),
            Some(image) => Index::recover(parts, index_config, image, tables)
                .map_err(|error| damaged(error.to_string()))?,
        };
        if journal.is_kept() {
            log.attach(&liveness);
        }
        let engine = Lsm {
            ahead: Ahead::new(&sim),
            keys: KeyedLock::new(&sim),
            collecting: Mutex::new(&sim),
            compacted_at: Cell::new(u64::MAX),
            merged_at_pages: Cell::new(None),
            damaged: TaskCell::default(),
            deletes: Cell::new(0),
            counted_bytes: Cell::new(0),
            futile: Cell::default(),
            index_work: Cell::default(),
            index_short: Cell::new(false),
            held_by_cursors: HeldByCursors::default(),
            memcpy: Memcpy::default(),
            moved: Moved::default(),
            ftl,
            copy: config.copy,
            gc: config.engines.lsm.gc.clone(),
            config,
            owner,
            cores,
            index,
            log,
            pool,
        };
        engine.index_is_short();
        if is_new {
            engine.check_segments()?;
        }
        Ok(engine)
    }

    /// Checks that the drive has segments enough. Besides its reserves it needs two segments that packing may hold
    /// open; with fewer, a full drive could stay full after all values are deleted.
    fn check_segments(&self) -> Result<(), PowerOnError> {
        let (segments, reserve) = (self.pool.segments(), self.pool.reserve());
        let least = reserve.index_segments + reserve.gc_segments + 2;
        if segments >= least {
            return Ok(());
        }
        let pages = self.pool.segment_pages();
        Err(PowerOnError::Config(format!(
            "gc.segment_pages: {pages} pages make {segments} segments of the drive; with this index it needs {least}"
        )))
    }
}
