//! State that commands and collection of a hash engine share, and the lookup of a key.
//!
//! The hash of a key gives a sequence of probes, each of which leads to a section and a tag. The tag is one
//! slot of the section, or a fingerprint that several slots may have. A lookup follows the sequence until it
//! finds the key, or a section that no store has ever passed with that tag; for every slot with the tag, it
//! reads the pair that the slot points to.
//!
//! A lookup holds no lock. While it reads a flash page, collection may move the pair and another command may
//! replace it; therefore the slot is checked again after every read. The slot of a key is written only under
//! the lock of the key.

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_declare::Counters;
use kvdrive_flash::power;
use kvdrive_flash::{FlashPort, Purpose};
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::{KeyedLock, Ns, Resource, Sim, TaskCell};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::cache::{Budget, Cache, Eviction, Pin, SLOT_BYTES};
use super::change::Change;
use super::config::{Accounting, HashConfig, OPEN_SUPERBLOCKS, SecondChance};
use super::layout::{Grain, Layout};
use super::pair::PairHeader;
use super::protected::Bounds;
use super::records::Records;
use super::scheme::SchemeRow;
use super::section::{Entry, Outlook, Probe};
use super::snapshot::{DetachedPair, Released, Snapshots};
use super::space::{KIND_DATA, KIND_MAP, Limits, Part, ReadHold, Reservations, Space};
use crate::divided::Issued;
use crate::firmware::{Cores, Role};
use crate::{HeldByCursors, Memcpy, Moved};

/// A section that a probe of a lookup led to, pinned.
pub(super) struct Probed {
    pub pin: Pin,
    /// The section.
    pub section: u64,
    /// The tag to look for in it.
    pub tag: u32,
    /// Index of the probe that led here.
    pub probe: u8,
}

/// A pair as it was read: its first read unit.
pub(super) struct PairRead {
    pub header: PairHeader,
    pub grain: Grain,
    /// The read unit the pair begins in.
    pub part: Part,
    pub reader: ReadHold,
}

/// The end of a lookup.
pub(super) enum Lookup {
    /// The key was found, in a slot of the section.
    Found(Probed, u32, PairRead),
    /// The key does not exist. Has the first section of its probe sequence with a vacancy, if there is one.
    Absent(Option<Probed>),
}

/// The purpose of a lookup.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LookupPurpose {
    /// Read: sections that never existed are not created.
    Read,
    /// Store: sections that are passed are marked.
    Store,
}

/// Counters that no other part of the engine has.
#[derive(Default, Counters)]
pub(super) struct HashCounters {
    /// Lookups, those of stores included.
    pub lookups: Cell<u64>,
    /// Sections that lookups examined.
    pub probes: Cell<u64>,
    /// Pairs that a lookup read because their tag matched, and that have another key.
    pub collisions: Cell<u64>,
    /// Slots that lookups compared with the tag of their key.
    pub comparisons: Cell<u64>,
    /// Superblocks of pairs that collection took as victims.
    pub gc_data_superblocks: Cell<u64>,
    /// Superblocks of sections and invalid pages that collection took as victims.
    pub gc_map_superblocks: Cell<u64>,
    /// Sections and invalid pages that collection moved.
    pub gc_moved_sections: Cell<u64>,
    /// Bytes of the moved sections, without padding.
    pub gc_moved_section_bytes: Cell<u64>,
    /// Sections that collection of pairs requested from the cache.
    pub gc_section_fetches: Cell<u64>,
    /// Pages that collection did not read, because nothing on them was valid.
    pub gc_skipped_pages: Cell<u64>,
    /// Pairs that were replaced while collection was about to move them.
    pub gc_outrun_moves: Cell<u64>,
    /// Superblocks in which collection could not read everything.
    pub lost_superblocks: Cell<u64>,
}

/// How the superblocks are used.
#[derive(Counters)]
pub(super) struct Room {
    /// Bytes left empty so that the next item begins at the start of a page or fits into one.
    padded_bytes: u64,
    /// Bytes of grains in use.
    #[counter(state)]
    used_bytes: u64,
    /// Most bytes of grains that may be in use.
    #[counter(state)]
    capacity_bytes: u64,
}

/// Use of the drive's DRAM.
#[derive(Counters)]
#[counters(state, unit = Bytes)]
pub(super) struct Dram {
    /// The section cache. With `hash.dram_accounting=total` this includes the structure that finds a section in it;
    /// with `published` it does not.
    section_cache: u64,
    /// The largest size that the section cache has had.
    #[counter(maximum)]
    section_cache_most: u64,
    /// The directory, which says where each section is.
    directory: u64,
    /// The state of each superblock.
    superblocks: u64,
    /// The record of which grains or pages are valid.
    validity: u64,
    /// Buffers of invalid records.
    invalid_records: u64,
    /// The lists of places on flash to which full buffers of invalid records were written.
    invalid_page_lists: u64,
    /// Pages of the write buffer that are being filled.
    write_buffer: u64,
    /// Pages that are being read or programmed.
    pages_on_their_way: u64,
}

pub(super) fn raise(counter: &Cell<u64>, by: u64) {
    counter.set(counter.get() + by);
}

/// Sections, space and counters of one engine.
pub(super) struct HashState {
    pub sim: Sim,
    pub scheme: &'static SchemeRow,
    pub config: HashConfig,
    bounds: Bounds,
    /// [`HashConfig::largest_value_bytes`].
    pub max_value_bytes: u32,
    pub layout: Layout,
    pub space: Rc<Space>,
    pub cache: Rc<Cache>,
    pub snapshots: Snapshots,
    pub held_by_cursors: HeldByCursors,
    pub records: Option<Rc<Records>>,
    pub cores: Cores,
    pub locks: KeyedLock<Key>,
    pub counters: HashCounters,
    pub memcpy: Memcpy,
    pub moved: Moved,
    /// Value bytes of live pairs.
    pub live_bytes: Cell<u64>,
    /// Regions of appended pairs, for reuse.
    pub regions: TaskCell<Vec<Region>>,
    pub gc_lock: kvdrive_sim::Mutex,
    /// Spends [`super::config::Omissions::gc_page_ns`].
    pub gc_core: Resource,
    /// Tells images of different drives apart.
    pub owner: power::Owner,
    /// Names that divided values have.
    pub issued: Cell<Issued>,
    journal: power::Journal,
}

/// The share of DRAM that sections may take. The other structures take `others` bytes, and the lists of `records`.
fn cache_budget(config: &HashConfig, others: u64, records: Option<Rc<Records>>) -> Budget {
    match config.dram_accounting {
        Accounting::Published => Budget { bytes: config.dram_bytes, slot_bytes: 0, besides: Box::new(|| 0) },
        Accounting::Total => Budget {
            // 0 if the other structures need all of it or more: the report shows that.
            bytes: config.dram_bytes.saturating_sub(others),
            slot_bytes: SLOT_BYTES,
            besides: Box::new(move || records.as_deref().map_or(0, Records::list_bytes)),
        },
    }
}

fn eviction(config: &HashConfig, cores: &Cores) -> Eviction {
    Eviction {
        second_chance: config.second_chance == SecondChance::On,
        ways: config.cache_ways,
        waits: config.omissions.wait_for_eviction,
        gc_leaves_clean: config.omissions.gc_leaves_clean,
        cores: cores.clone(),
        write_ns: config.costs.evict_ns,
        fetch_ns: config.costs.fetch_ns,
    }
}

fn limits(config: &HashConfig, layout: &Layout, bounds: &Bounds) -> Limits {
    let usable = layout.superblocks - config.gc_low_superblocks - OPEN_SUPERBLOCKS - 1;
    let usable_grains = u64::from(usable) * u64::from(layout.superblock_grains);
    Limits {
        page_bytes: bounds.write_buffer_bytes + bounds.page_bytes,
        write_buffer_bytes: config.write_buffer_bytes,
        unfinished_bytes: config.unfinished_bytes(layout),
        low: config.gc_low_superblocks,
        stall: config.gc_stall_superblocks,
        valid_grains: (usable_grains as f64 * (1.0 - config.over_provisioning)) as u64,
        discard: config.discard_invalid,
        section_weight: config.section_weight,
        skips_dead_units: config.gc_skips_dead_units,
    }
}

impl HashState {
    /// An engine on an empty drive.
    ///
    /// Errors: the reason why `protected_bytes` bytes of power-protected memory are too few.
    pub fn new(
        scheme: &'static SchemeRow,
        config: &HashConfig,
        flash: &FlashPort,
        cores: Cores,
        owner: power::Owner,
        journal: power::Journal,
        protected_bytes: u64,
    ) -> Result<Rc<HashState>, String> {
        let geometry = flash.geometry();
        let config = &config.of(scheme);
        config.check(geometry).expect("a configuration is checked when it is loaded");
        let layout = Layout::new(*geometry, config.grain_bytes, config.unit_bytes);
        let format = (scheme.format)(&layout);
        let validity = (scheme.validity)(&layout);
        let records = scheme.records.map(|form| Rc::new(Records::new(&layout, form, &journal)));
        let records_bytes = scheme.records.map_or(0, |form| form.buffer_bytes(&layout));
        let bounds = Bounds::new(config, &layout, &*format, records_bytes, protected_bytes)?;
        let others = validity.dram_bytes()
            + records_bytes
            + bounds.table_bytes
            + bounds.write_buffer_bytes
            + bounds.page_bytes;
        let budget = cache_budget(config, others, records.clone());
        let eviction = eviction(config, &cores);
        let space = Space::new(flash, layout, limits(config, &layout, &bounds), validity, &journal);
        Ok(Rc::new(HashState {
            sim: flash.sim().clone(),
            scheme,
            layout,
            cache: Cache::new(flash.sim(), &space, format, budget, eviction, bounds.altered_bytes, &journal),
            space,
            snapshots: Snapshots::default(),
            held_by_cursors: HeldByCursors::default(),
            records,
            cores,
            locks: KeyedLock::new(flash.sim()),
            counters: HashCounters::default(),
            memcpy: Memcpy::default(),
            moved: Moved::default(),
            live_bytes: Cell::new(0),
            regions: TaskCell::default(),
            gc_lock: kvdrive_sim::Mutex::new(flash.sim()),
            gc_core: Resource::new(flash.sim(), "collection", 1),
            config: config.clone(),
            bounds,
            max_value_bytes: config.largest_value_bytes(&layout),
            owner,
            issued: Cell::default(),
            journal,
        }))
    }

    /// See [`crate::divided::Dividing`].
    pub fn remember(&self, issued: Issued) {
        self.issued.set(issued);
        self.journal.append(&Change::Issued(issued));
    }

    /// The target of probe `number` of `key`.
    pub fn probe(&self, key: &Key, number: u8) -> Probe {
        let bytes = key.to_array();
        let hash = match key.is_long() {
            false => xxh3_64(&bytes[..key.len()]),
            true => xxh3_64_with_seed(&bytes, key.len() as u64),
        } & (u64::MAX >> (64 - self.config.hash_bits));
        self.cache.format().probe(hash, number)
    }

    /// Grains in use: pairs, sections (on flash or in DRAM), invalid pages.
    pub fn used_grains(&self) -> u64 {
        self.used_grains_without(0)
    }

    /// As [`HashState::used_grains`], after `held` grains of pairs are freed.
    fn used_grains_without(&self, held: u64) -> u64 {
        let records = self.records.as_deref().map_or(0, Records::grains);
        let pairs = self.space.with_padding(KIND_DATA, self.space.valid_data() - held);
        pairs + self.space.with_padding(KIND_MAP, self.cache.table_grains()) + records
    }

    /// Is there room for a pair of `grains` grains that replaces one of `old`? Grains that a snapshot may
    /// hold are not counted as freed.
    ///
    /// Errors: [`Status::CAPACITY_EXCEEDED`]; [`Status::COMMAND_INTERRUPTED`] if there will be room once open
    /// cursors end.
    pub fn check_room(&self, grains: u32, old: u32) -> Result<(), Status> {
        let is_full = |old: u32, held: u64| {
            let used = self.used_grains_without(held) + u64::from(grains);
            grains > old && used > self.space.limit_grains() + u64::from(old)
        };
        let given_back = if self.snapshots.is_empty() { old } else { 0 };
        match is_full(given_back, 0) {
            false => Ok(()),
            true if is_full(old, self.snapshots.held_grains(&self.layout)) => Err(Status::CAPACITY_EXCEEDED),
            true => Err(Status::COMMAND_INTERRUPTED),
        }
    }

    /// Makes a change; if open iterators hold the room that it needs, gives them up one after the other.
    pub fn without_held(&self, change: impl Fn() -> Result<(), Status>) -> Result<(), Status> {
        self.held_by_cursors.make(Status::COMMAND_INTERRUPTED, change)
    }

    /// Limit for altered sections in power-protected memory, bytes.
    pub fn altered_limit_bytes(&self) -> u64 {
        self.bounds.altered_bytes
    }

    /// Waits until a host command may use space.
    ///
    /// Errors: as [`HashState::check_room`], if no space can be freed any more.
    pub fn admit(&self) -> Result<(), Status> {
        self.space.admit().map_err(|status| match self.snapshots.holds_any() {
            true => Status::COMMAND_INTERRUPTED,
            false => status,
        })
    }

    /// Reads the read unit in which the pair at `grain` begins.
    ///
    /// Errors: [`Status::UNRECOVERED_ERROR`], also when no pair begins there.
    pub fn read_pair(&self, grain: Grain, purpose: Purpose) -> Result<PairRead, Status> {
        self.read_pair_ahead(grain, purpose, &Reservations::default())
    }

    fn read_pair_ahead(
        &self,
        grain: Grain,
        purpose: Purpose,
        ahead: &Reservations,
    ) -> Result<PairRead, Status> {
        let reader = self.space.pin(grain);
        let at = self.layout.byte_in_page(grain);
        let unit = self.layout.unit_begin(at);
        let (page, unit_bytes) = (self.layout.page(grain), self.layout.unit_bytes);
        let part = self.space.read_ahead(page, unit, unit_bytes, purpose, ahead)?;
        let left_bytes = unit + self.layout.unit_bytes - at;
        let header = PairHeader::read(left_bytes, |bytes, sink| part.read(at, bytes, sink));
        let header = header.ok_or(Status::UNRECOVERED_ERROR)?;
        Ok(PairRead { header, grain, part, reader })
    }

    /// Spends firmware time; the trace labels it `what`.
    pub fn work(&self, role: Role, span: Ns, what: &'static str) {
        self.cores.of(role).run_noted(span, "hash", what)
    }

    /// Follows the key's probe sequence.
    pub fn walk(&self, key: &Key, purpose: LookupPurpose) -> Result<Lookup, Status> {
        raise(&self.counters.lookups, 1);
        let ahead = if self.config.omissions.reserve_ahead {
            self.reserve_ahead(key)
        } else {
            Reservations::default()
        };
        let mut vacant = None;
        for number in 0..self.config.max_probes {
            let number = number as u8;
            let Probe { section, tag } = self.probe(key, number);
            raise(&self.counters.probes, 1);
            if purpose == LookupPurpose::Read && !self.cache.exists(section) {
                self.work(Role::Dispatch, self.config.costs.probe_ns, "probe");
                return Ok(Lookup::Absent(None));
            }
            let probed = self.spot_ahead(Probe { section, tag }, number, &ahead)?;
            if let Some((slot, pair)) = self.look(key, &probed, &ahead)? {
                return Ok(Lookup::Found(probed, slot, pair));
            }
            if purpose == LookupPurpose::Store {
                self.space.map_room();
            }
            let Outlook { vacancy, goes_on } = probed.pin.outlook(tag);
            if purpose == LookupPurpose::Store && vacancy.is_none() {
                probed.pin.mark_passed(tag);
            } else if vacancy.is_some() {
                vacant = vacant.or(Some(probed));
            }
            if !goes_on && (vacancy.is_some() || purpose == LookupPurpose::Read) {
                return Ok(Lookup::Absent(vacant));
            }
        }
        Ok(Lookup::Absent(vacant))
    }

    /// Fetches the section that probe `number` of a key leads to.
    pub fn probed(&self, probe: Probe, number: u8) -> Result<Probed, Status> {
        self.spot_ahead(probe, number, &Reservations::default())
    }

    fn spot_ahead(
        &self,
        Probe { section, tag }: Probe,
        number: u8,
        ahead: &Reservations,
    ) -> Result<Probed, Status> {
        let pin = self.cache.fetch_ahead(section, Purpose::Map, ahead)?;
        Ok(Probed { pin, section, tag, probe: number })
    }

    /// Reads the pairs with the probed's tag until one has the key; returns its slot, and the pair.
    fn look(
        &self,
        key: &Key,
        probed: &Probed,
        ahead: &Reservations,
    ) -> Result<Option<(u32, PairRead)>, Status> {
        let costs = &self.config.costs;
        let mut from = 0;
        let mut work = costs.probe_ns;
        loop {
            let seen = self.cache.alterations();
            let (candidate, comparisons) = probed.pin.candidate(probed.tag, from);
            raise(&self.counters.comparisons, comparisons);
            work += comparisons * costs.comparison_ns;
            if work > 0 {
                self.work(Role::Dispatch, std::mem::take(&mut work), "probe");
            }
            let Some((slot, grain)) = candidate else { return Ok(None) };
            from = slot;
            let is_there = || self.cache.alterations() == seen || probed.pin.get(slot) == Entry::At(grain);
            if !is_there() {
                // Moved or replaced while the core worked; its page may have been dropped.
                continue;
            }
            let pair = self.read_pair_ahead(grain, Purpose::Lookup, ahead);
            if !is_there() {
                // Moved or replaced while it was read: check the slot again.
                continue;
            }
            let pair = pair?;
            self.work(Role::Dispatch, costs.compare_key_ns, "compare keys");
            // While the core worked, only a delete and a store together can have given this slot to another
            // key; then the pair read here is the answer as of before them.
            if pair.header.key == *key {
                return Ok(Some((slot, pair)));
            }
            raise(&self.counters.collisions, 1);
            if costs.collision_ns > 0 {
                self.work(Role::Dispatch, costs.collision_ns, "collision");
            }
            from = slot + 1;
        }
    }

    /// Notes that the pair of `header` at `grain`, found in a slot of `section`, is replaced or deleted.
    pub fn drop_pair(&self, header: &PairHeader, grain: Grain, section: u64, slot: u32) {
        self.live_bytes.set(self.live_bytes.get() - u64::from(header.value_bytes));
        if self.snapshots.is_empty() {
            self.invalidate_pair(header, grain, section, slot);
        } else {
            if !self.snapshots.note((section, slot), Some((grain, header))) {
                self.invalidate_pair(header, grain, section, slot);
            }
            self.drop_released(self.snapshots.give_up_large());
        }
    }

    /// Frees pairs that no snapshot holds any more.
    pub fn drop_released(&self, released: Released) {
        for (grain, DetachedPair { header, slot: (section, slot), .. }) in released {
            self.invalidate_pair(&header, grain, section, slot);
        }
    }

    fn invalidate_pair(&self, header: &PairHeader, grain: Grain, section: u64, slot: u32) {
        let grains = self.layout.grains_of(header.pair_bytes());
        self.space.invalidate(grain, grains);
        if let Some(records) = &self.records {
            let table_slot = section * u64::from(self.cache.format().slots()) + u64::from(slot);
            records.add(&self.space, table_slot, grain);
        }
    }

    pub fn room(&self) -> Room {
        let grain_bytes = u64::from(self.layout.grain_bytes);
        Room {
            padded_bytes: self.space.padded_grains.get() * grain_bytes,
            used_bytes: self.used_grains() * grain_bytes,
            capacity_bytes: self.space.limit_grains() * grain_bytes,
        }
    }

    pub fn dram(&self) -> Dram {
        let directory = self.cache.directory_dram_bytes();
        Dram {
            section_cache: self.cache.budget_bytes(),
            section_cache_most: self.cache.bytes().1,
            directory,
            superblocks: self.bounds.table_bytes - directory,
            validity: self.space.validity_dram_bytes(),
            invalid_records: self.bounds.records_bytes,
            invalid_page_lists: self.records.as_deref().map_or(0, Records::list_bytes),
            write_buffer: self.bounds.write_buffer_bytes,
            pages_on_their_way: self.bounds.page_bytes,
        }
    }
}
