//! The engine: value log and index, joined, as the controller calls them.
//!
//! Commands of one key are ordered by a keyed lock, held while the index changes. Flushes and compactions take no such
//! lock: they change where a pair is, not what it is. A value's bytes are in the protected buffer and count as live
//! before its entry exists; a cut between the two leaves live bytes without an entry, until their segment is emptied.

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_declare::{Counters, Counts};
use kvdrive_flash::Purpose;
use kvdrive_flash::ftl::{Ftl, Lpa};
use kvdrive_flash::power::{ImageError, Owner, PowerOnError};
use kvdrive_nvme::batch::BATCH_REQUESTS_MAX;
use kvdrive_nvme::identify::AtomicLimits;
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_sim::{KeyedLock, Mutex, TaskCell};

use super::cursor::Cursor;
use super::fit::{self, groups_in_protected_bytes};
use super::index::{Index, IndexParts};
use super::journal::{self, Changes, IndexImage, Protected};
use super::page::{Content, Record};
use super::recovery::FoundGroups;
use crate::ahead::Ahead;
use crate::config::{EngineConfig, Parts};
use crate::firmware::{CopyCosts, Cores, Role};
use crate::lsm::fit::{logical_pages, pool, shape};
use crate::over_log::{IndexOverLog, OverLog};
use crate::page_buffer::PageBuffer;
use crate::value_log::{LargeReader, PastPin, Place, SegmentPool, SnapshotPin, Vaddr, ValueLog};
use crate::{Engine, GiveUpCursor, HeldByCursors, Memcpy, PairChange, Utilization};

/// The engine.
pub type AnyKeyEngine = OverLog<AnyKey>;

/// The state of a search for victims that gained nothing: insertions, compactions, and the first victim.
pub type Futile = (u64, u64, Option<u64>);

/// The engine's parts.
pub struct AnyKey {
    pub cores: Cores,
    copy: CopyCosts,
    pub config: EngineConfig,
    pub index: Index,
    pub log: ValueLog,
    pub pool: SegmentPool,
    pub keys: KeyedLock<Key>,
    /// Held by the task that makes room.
    pub collecting: Mutex,
    /// Insertions at the last merge of everything. Without new ones another merge would gain nothing.
    pub compacted_at: Cell<u64>,
    /// Openings of segments that could not be emptied, because a page of them, or of a group that names them, is damaged.
    pub damaged: TaskCell<Vec<u64>>,
    pub futile: Cell<Option<Futile>>,
    /// Openings of segments of the log when its share was last looked at.
    pub asked_at: Cell<u64>,
    /// Deletes since everything was last merged.
    pub deletes: Cell<u64>,
    pub(super) ahead: Ahead,
    pub(super) held_by_cursors: HeldByCursors,
    memcpy: Memcpy,
    ftl: Ftl,
    owner: Owner,
    /// The log holds it by a weak reference.
    _changes: Rc<Changes>,
}

/// A value found, and the pins that keep it readable.
pub struct Found {
    content: FoundIn,
    bytes: u32,
}

enum FoundIn {
    /// In a page of a group.
    Group { region: Rc<Region>, at: u32 },
    /// In the log; without a pin if a cursor, or its own segments, keep it.
    Log { address: Vaddr, pin: Option<PastPin>, large: Option<Box<LargeReader>> },
}

/// A walk over the pairs of one moment, whose values stay readable.
pub struct PairCursor {
    cursor: Cursor,
    _pin: SnapshotPin,
}

impl AnyKey {
    /// Is the condition of a store met?
    pub fn check_options(&self, key: &Key, options: StoreOptions) -> Result<(), Status> {
        if !options.update_only && !options.add_only {
            return Ok(());
        }
        let exists = self.index.get(key)?.is_some_and(|record| !record.is_gone());
        match exists {
            true if options.add_only => Err(Status::KEY_EXISTS),
            false if options.update_only => Err(Status::KEY_NOT_FOUND),
            _ => Ok(()),
        }
    }

    /// The value of a record; `None`: the key was deleted.
    ///
    /// `UNRECOVERED_ERROR` for an address that is not of this log's making.
    fn found(&self, record: Record, pin: Option<PastPin>) -> Result<Option<Found>, Status> {
        let (content, bytes) = match record.content {
            Content::Gone => return Ok(None),
            Content::Here { region, at, bytes } => (FoundIn::Group { region, at }, bytes),
            Content::Logged { address, bytes } => {
                if bytes > 0 && !self.log.holds(address, bytes) {
                    return Err(Status::UNRECOVERED_ERROR);
                }
                let is_packed = bytes <= self.log.packed_max_bytes();
                let large = if is_packed { None } else { LargeReader::new(&self.log, address) };
                (FoundIn::Log { address, pin, large: large.map(Box::new) }, bytes)
            }
        };
        Ok(Some(Found { content, bytes }))
    }

    fn remove(&self, key: Key, must_exist: bool) -> Result<(), Status> {
        let options = StoreOptions { update_only: must_exist, ..StoreOptions::default() };
        self.commit_together(&[(key, None)], options)?;
        self.forget_deleted();
        Ok(())
    }
}

impl IndexOverLog for AnyKey {
    fn log(&self) -> &ValueLog {
        &self.log
    }

    fn page_bytes(&self) -> u32 {
        self.config.flash.page_bytes
    }

    fn copy(&self, bytes: u32) {
        let ns = self.copy.copy_ns(bytes);
        self.memcpy.add(bytes, ns);
        self.cores.of(Role::Copy).run_noted(ns, "controller", "memcpy");
    }

    fn make_ready(self: &Rc<Self>) -> Result<(), Status> {
        self.keep_room();
        self.make_room_for_entry()
    }

    fn make_room(&self) -> Result<(), Status> {
        AnyKey::make_room(self)
    }
}

impl Engine for AnyKeyEngine {
    type Found = Found;
    type Cursor = PairCursor;
    const ORDERED: bool = true;

    /// All entries of a batch go to one memtable.
    fn atomic_batches(&self) -> Option<AtomicLimits> {
        let requests = self.config.engines.anykey.memtable_entries.min(BATCH_REQUESTS_MAX);
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
        }
        self.commit_together(&[(key, Some(place))], options)
    }

    fn find(&self, key: Key) -> Result<Option<Found>, Status> {
        let pin = self.log.pin_all();
        let Some(record) = self.index.get(&key)? else { return Ok(None) };
        self.found(record, Some(pin))
    }

    fn value_bytes(&self, found: &Found) -> u32 {
        found.bytes
    }

    fn begin_unfinished(&self, place: &Place) -> Result<(), Status> {
        place.begin_unfinished()
    }

    fn outlives_command(&self, found: &mut Found) -> bool {
        match &mut found.content {
            FoundIn::Group { .. } => true,
            FoundIn::Log { pin, large, .. } => {
                let outlives = large.as_mut().is_some_and(|large| large.outlives_command());
                if outlives {
                    *pin = None;
                }
                outlives
            }
        }
    }

    fn load(
        &self,
        found: &Found,
        at: u32,
        bytes: u32,
        until: u32,
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), Status> {
        match &found.content {
            FoundIn::Group { region, at: begin } => {
                region.read(begin + at, bytes, sink);
                Ok(())
            }
            FoundIn::Log { large: Some(large), .. } => large.read(at, bytes, until, sink),
            FoundIn::Log { address, .. } => self.log.read(*address, at, bytes, until, Purpose::Value, sink),
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
        Ok(PairCursor { cursor: self.index.cursor(from), _pin: pin })
    }

    fn next(&self, cursor: &mut PairCursor) -> Result<Option<(Key, Found)>, Status> {
        let Some(record) = cursor.cursor.next_record()? else { return Ok(None) };
        let key = record.key;
        Ok(self.found(record, None)?.map(|found| (key, found)))
    }

    fn drain(&self) {
        self.log.drain();
    }

    fn utilization(&self) -> Utilization {
        let segments = self.pool.segments().saturating_sub(self.config.engines.lsm.gc.free_segments_reserved);
        let capacity_bytes = u64::from(segments) * self.segment_bytes();
        let pages = u64::from(self.index.group_pages.get());
        let in_groups = pages * u64::from(self.config.flash.page_bytes);
        let live_bytes = (self.log.live_bytes() + in_groups).min(capacity_bytes);
        Utilization { live_bytes, capacity_bytes }
    }

    fn max_value_bytes(&self) -> u32 {
        self.log.max_value_bytes()
    }

    fn check(config: &EngineConfig) -> Result<(), PowerOnError> {
        fit::check(config)
    }

    fn image_settings(config: &EngineConfig) -> Vec<(&'static str, String)> {
        fit::image_settings(config)
    }

    fn power_on(parts: Parts, image: Option<&[u8]>) -> Result<AnyKeyEngine, PowerOnError> {
        let protected = image.map(|image| Protected::decode(&parts.config, image)).transpose()?;
        let mut groups = FoundGroups::default();
        let mut strays = Vec::new();
        let ftl = match &protected {
            None => Ftl::new(parts.flash.clone(), &parts.config.engines.ftl),
            Some(protected) => {
                let mut found = |lpa: Lpa, kind: u8, tag: &[u8; 48]| {
                    if !groups.found(lpa, kind, tag) && !protected.values.owns(lpa.0, kind, tag) {
                        strays.push(lpa);
                    }
                };
                Ftl::recover(parts.flash.clone(), &parts.config.engines.ftl, &mut found)
            }
        };
        strays.into_iter().for_each(|lpa| ftl.trim(lpa));
        assemble(parts, ftl, protected, groups)
    }

    fn protected_image(&self) -> Vec<u8> {
        let (values, index) = (self.log.save(), self.index.image());
        Protected { owner: self.owner.clone(), values, index }.encode()
    }

    fn fold(config: &EngineConfig, image: &[u8], records: &[Vec<u8>]) -> Result<Vec<u8>, PowerOnError> {
        journal::fold(config, image, records)
    }

    fn counts(&self) -> Counts {
        let own = Own {
            lost_segments: self.damaged.borrow().len(),
            packing_bytes: self.config.engines.lsm.packing.state_bytes(),
        };
        let counts = self.memcpy.counts().and(&self.log.statistics()).and(&self.log.buffer_statistics());
        let counts = counts.and(&self.index.counters.get()).and(&own).and(self.index.dram.counters());
        counts.and(&self.ftl.statistics())
    }

    fn dram(&self) -> Counts {
        self.index.dram.bytes().counts()
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
}

fn assemble(
    parts: Parts,
    ftl: Ftl,
    protected: Option<Protected>,
    groups: FoundGroups,
) -> Result<AnyKeyEngine, PowerOnError> {
    let Parts { sim, cores, flash: _, journal, owner, config } = parts;
    let pool = pool(&config, logical_pages(&config), Some(ftl.clone()));
    let shape = shape(&config, &pool)?;
    let (page_bytes, buffer) = (config.flash.page_bytes, &config.engines.lsm.buffer);
    let buffer = PageBuffer::new(&sim, Some(ftl.clone()), buffer.entries, buffer.eviction, page_bytes);
    let damaged = |reason: String| ImageError::new(0, reason);
    let (values, image) = protected.map(|protected| (protected.values, protected.index)).unzip();
    let log = match values {
        None => ValueLog::new(&sim, &shape, &pool, &buffer),
        Some(values) => ValueLog::restore(&sim, &shape, &pool, &buffer, values)
            .map_err(|error| damaged(error.to_string()))?,
    };
    let index_parts = IndexParts {
        sim: sim.clone(),
        cores: cores.clone(),
        ftl: ftl.clone(),
        pool: pool.clone(),
        page_bytes,
        log: log.clone(),
        journal: journal.clone(),
        most_groups: groups_in_protected_bytes(&config, &shape)?,
        insert_ns: config.engines.lsm.index.memtable_insert_ns,
        probe_ns: config.engines.lsm.index.index_probe_ns,
    };
    let image =
        image.unwrap_or_else(|| IndexImage { next_group: 1, next_sequence: 1, ..IndexImage::default() });
    let index = Index::recover(index_parts, config.engines.anykey.clone(), image, groups)
        .map_err(|error| damaged(error.to_owned()))?;
    let changes = Rc::new(Changes(journal.clone()));
    if journal.is_kept() {
        log.attach(&changes);
    }
    let engine = AnyKey {
        ahead: Ahead::new(&sim),
        keys: KeyedLock::new(&sim),
        collecting: Mutex::new(&sim),
        compacted_at: Cell::new(u64::MAX),
        damaged: TaskCell::default(),
        futile: Cell::new(None),
        asked_at: Cell::new(0),
        deletes: Cell::new(0),
        held_by_cursors: HeldByCursors::default(),
        memcpy: Memcpy::default(),
        copy: config.copy,
        _changes: changes,
        config,
        owner,
        cores,
        index,
        log,
        pool,
        ftl,
    };
    engine.reserve_for_index();
    Ok(OverLog(Rc::new(engine)))
}
