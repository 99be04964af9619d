//! The index: a memtable, at most one more that is being written, and levels of groups.
//!
//! Insertions and lookups run side by side. Flushes and compactions run one at a time ([`super::work`]), inside the
//! insertion that found the memtable full. The lists of groups change in one step in which no task waits, together with
//! its record.

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;

use kvdrive_declare::Counters;
use kvdrive_flash::ftl::Ftl;
use kvdrive_flash::power::Journal;
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::{Mutex, Sim, TaskCell};

use super::config::AnyKeyConfig;
use super::group::{GroupId, Member};
use super::journal::{Change, GroupsChanged, IndexImage, MOST_GROUPS, Seat, TOO_MANY_GROUPS};
use super::levels::{Edit, Level, Version};
use super::page::{Record, Sizes, fits_group};
use super::recovery::FoundGroups;
use crate::dram::{Dram, eviction_row};
use crate::firmware::{Cores, Role};
use crate::lsm::entry::Entry;
use crate::lsm::memtable::{Memtable, Pair};
use crate::lsm::space::TableSpace;
use crate::value_log::{SegmentId, SegmentPool, Vaddr, ValueLog};

/// Bytes of a list entry beside its two keys and the hashes of its pages (AnyKey's code).
const LIST_BYTES: u64 = 32;
/// Bytes of a list of hashes beside the hashes.
const HASH_LIST_BYTES: u64 = 20;

/// Counters of the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Counters)]
#[counters(prefix = "anykey_")]
pub struct AnyKeyCounters {
    /// Memtables merged into the first level of groups.
    pub flushes: u64,
    /// Groups that were merged into the next level, because their level was above its limit or room was needed.
    pub tree_compactions: u64,
    /// Groups that went to the next level without being rewritten.
    pub moves: u64,
    /// Segments of the value log that were emptied into groups.
    pub log_compactions: u64,
    /// Groups that were rewritten in their level for that.
    pub rewritten_groups: u64,
    /// Values that were fetched from the log into groups.
    pub fetched_values: u64,
    /// Bytes of these values.
    pub fetched_bytes: u64,
    /// Values that went back to the log from a segment that was emptied, since the level of their group was full (AnyKey+).
    pub written_back_values: u64,
    /// Values that went back because they are too large for a group.
    pub moved_values: u64,
    /// Groups that a lookup did not read, because their list of hashes has not the key's.
    pub skipped_groups: u64,
    /// Groups that have become scars since power-on: a page of them could not be read.
    pub scars: u64,
}

/// The state that the drive's DRAM holds of the lists.
#[derive(Clone, Copy, Default)]
pub struct Held {
    /// Entries of a level's list, from its first group on.
    pub lists: usize,
    /// Lists of hashes of a level, from its first group on.
    pub hashes: usize,
}

/// A full memtable on its way into groups.
pub struct Frozen {
    pub pairs: Rc<[Pair]>,
    /// Pairs before this one are in groups.
    pub done: usize,
}

impl Frozen {
    pub fn left(&self) -> &[Pair] {
        &self.pairs[self.done..]
    }

    fn get(&self, key: &Key) -> Option<Entry> {
        let left = self.left();
        left.binary_search_by_key(key, |(key, _)| *key).ok().map(|at| left[at].1)
    }
}

/// The parts below an index.
pub struct IndexParts {
    pub sim: Sim,
    pub cores: Cores,
    pub ftl: Ftl,
    pub pool: SegmentPool,
    pub page_bytes: u32,
    pub log: ValueLog,
    pub journal: Journal,
    /// Groups that power-protected memory can list.
    pub most_groups: u32,
    /// Firmware time to insert into the memtable, and to look into it or into a level, ns.
    pub insert_ns: u64,
    pub probe_ns: u64,
}

/// The index of one drive.
pub struct Index {
    pub parts: IndexParts,
    pub config: AnyKeyConfig,
    pub space: Rc<TableSpace>,
    /// Groups below which each level stays.
    pub limits: Vec<f64>,
    pub active: TaskCell<Memtable>,
    pub frozen: TaskCell<Option<Frozen>>,
    pub version: TaskCell<Rc<Version>>,
    pub held: TaskCell<Vec<Held>>,
    pub next_group: Cell<u32>,
    next_sequence: Cell<u64>,
    /// Held by the task that flushes or compacts.
    pub working: Mutex,
    pub dram: Dram<GroupId, ()>,
    pub counters: Cell<AnyKeyCounters>,
    /// The longest key so far, bytes.
    pub longest: Cell<u32>,
    /// Pages of all groups of the lists.
    pub group_pages: Cell<u32>,
    /// Live bytes, by segment of the log, of values that are too large for groups.
    pub staying: TaskCell<std::collections::BTreeMap<SegmentId, u64>>,
}

impl Index {
    /// The index of this image; `found` are the pages that the FTL found.
    ///
    /// # Errors
    /// The image contradicts itself or the flash.
    pub fn recover(
        parts: IndexParts,
        config: AnyKeyConfig,
        image: IndexImage,
        found: FoundGroups,
    ) -> Result<Index, &'static str> {
        let space =
            TableSpace::new(&parts.sim, parts.ftl.clone(), parts.pool.clone(), parts.page_bytes, None);
        let space = Rc::new(space);
        let on_flash = found.highest_id().map_or(0, |id| id.0.saturating_add(1));
        if on_flash > MOST_GROUPS {
            return Err(TOO_MANY_GROUPS);
        }
        let version = found.rebuild(&image, &space, config.levels)?;
        let mut active = Memtable::new(config.memtable_entries);
        let longest = image.active.keys().chain(image.frozen.keys()).map(|key| key.len() as u32).max();
        image.active.into_iter().for_each(|(key, entry)| _ = active.insert(key, entry));
        let frozen: Rc<[Pair]> = image.frozen.into_iter().collect();
        let budget = if config.dram_bytes == 0 { u64::MAX } else { config.dram_bytes };
        let index = Index {
            limits: limits(&parts.pool, &config),
            active: TaskCell::new(active),
            frozen: TaskCell::new((!frozen.is_empty()).then_some(Frozen { pairs: frozen, done: 0 })),
            version: TaskCell::new(Rc::new(version)),
            held: TaskCell::default(),
            next_group: Cell::new(image.next_group.max(on_flash).max(1)),
            next_sequence: Cell::new(image.next_sequence.max(1)),
            working: Mutex::new(&parts.sim),
            dram: Dram::new(budget, eviction_row("fifo").expect("a row")),
            counters: Cell::default(),
            longest: Cell::new(longest.unwrap_or(0)),
            group_pages: Cell::new(0),
            staying: TaskCell::default(),
            space,
            parts,
            config,
        };
        index.settle();
        Ok(index)
    }

    /// Its part of the protected image.
    pub fn image(&self) -> IndexImage {
        let version = self.version.borrow().clone();
        let seats = (0..).zip(&version.levels).flat_map(|(number, level): (u8, &Rc<Level>)| {
            let seat = move |is_scar| {
                move |member: &Member| (member.id(), Seat { level: number, after: member.after, is_scar })
            };
            level.groups.iter().map(seat(false)).chain(level.scars.iter().map(seat(true)))
        });
        IndexImage {
            active: self.active.borrow().pairs().iter().copied().collect(),
            frozen: self.frozen.borrow().iter().flat_map(|frozen| frozen.left().iter().copied()).collect(),
            groups: seats.collect(),
            next_group: self.next_group.get(),
            next_sequence: self.next_sequence.get(),
        }
    }

    pub fn page_bytes(&self) -> u32 {
        self.parts.page_bytes
    }

    pub fn segment_of(&self, address: Vaddr) -> SegmentId {
        self.parts.log.segment_of(address)
    }

    /// Counts something.
    pub fn count(&self, change: impl FnOnce(&mut AnyKeyCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// May a value of this size lie in a group?
    pub fn fits_group(&self, key: &Key, bytes: u32) -> bool {
        fits_group(key, bytes, self.page_bytes())
    }

    /// Does the memtable need to be written before it takes `entries` more entries?
    pub fn is_full_for(&self, entries: u32) -> bool {
        self.active.borrow().len() as u32 + entries > self.config.memtable_entries
    }

    /// Takes the firmware time of `count` insertions.
    pub fn charge_insertions(&self, count: u32) {
        let ns = u64::from(count) * (self.parts.insert_ns + self.config.hash_ns);
        self.parts.cores.of(Role::Dispatch).run_noted(ns, "index", "insert into the memtable");
    }

    /// Insertions and removals so far.
    pub fn changes(&self) -> u64 {
        self.next_sequence.get()
    }

    /// Puts entries into the memtable in one step; it must have room for all of them. Counts the bytes of values as live
    /// before.
    pub fn put_together(&self, entries: impl Iterator<Item = (Key, Entry)>) {
        // No task may suspend while this is held.
        let step = TaskCell::new(());
        let _one_step = step.borrow();
        for (key, entry) in entries {
            if entry.has_bytes() {
                self.note_live(&key, entry.address, entry.bytes);
            }
            let sequence = self.next_sequence.replace(self.next_sequence.get() + 1);
            let entry = Entry { sequence, ..entry };
            self.longest.set(self.longest.get().max(key.len() as u32));
            self.parts.journal.append(&Change::Inserted(key, entry));
            let replaced = self.active.borrow_mut().insert(key, entry);
            if let Some(old) = replaced.filter(Entry::has_bytes) {
                self.note_dead(&key, old.address, old.bytes);
            }
        }
    }

    /// Bytes at `address` are a value's.
    pub fn note_live(&self, key: &Key, address: Vaddr, bytes: u32) {
        self.parts.log.note_live(address, bytes);
        if !self.fits_group(key, bytes) {
            *self.staying.borrow_mut().entry(self.segment_of(address)).or_default() += u64::from(bytes);
        }
    }

    /// No entry and no record refers to the bytes at `address` any more.
    pub fn note_dead(&self, key: &Key, address: Vaddr, bytes: u32) {
        if !self.fits_group(key, bytes) {
            let (mut staying, segment) = (self.staying.borrow_mut(), self.segment_of(address));
            let left = staying.get(&segment).map_or(0, |left| left.saturating_sub(bytes.into()));
            if left > 0 {
                staying.insert(segment, left)
            } else {
                staying.remove(&segment)
            };
        }
        self.parts.log.note_dead(address, bytes);
    }

    /// The newest entry in the memtables.
    pub fn find_in_memory(&self, key: &Key) -> Option<Entry> {
        let active = self.active.borrow().get(key);
        active.or_else(|| self.frozen.borrow().as_ref().and_then(|frozen| frozen.get(key)))
    }

    /// Freezes the memtable.
    pub fn freeze(&self) {
        let mut active = self.active.borrow_mut();
        let pairs = active.sorted();
        *active = Memtable::new(self.config.memtable_entries);
        self.parts.journal.append(&Change::Frozen);
        *self.frozen.borrow_mut() = Some(Frozen { pairs, done: 0 });
    }

    /// Changes the lists of groups, in memory and in the image.
    ///
    /// # Errors
    /// `CAPACITY_EXCEEDED`: power-protected memory cannot list as many groups.
    pub fn install(&self, edit: &Edit, flushed: Option<Key>) -> Result<(), Status> {
        let version = self.version.borrow().clone();
        let groups = version.all().count() + edit.added.len();
        if !edit.added.is_empty() && groups > self.parts.most_groups as usize + edit.dropped.len() {
            return Err(Status::CAPACITY_EXCEEDED);
        }
        let added: Vec<GroupId> = edit.added.iter().map(Member::id).collect();
        self.parts.journal.append(&Change::Groups(GroupsChanged {
            added: Cow::Borrowed(&added),
            to: edit.to as u8,
            dropped: Cow::Borrowed(&edit.dropped),
            trimmed: edit.trimmed,
            moved: edit.moved,
            scarred: edit.scarred,
            flushed,
        }));
        for member in version.all().filter(|member| edit.dropped.contains(&member.id())) {
            member.group.replaced();
        }
        *self.version.borrow_mut() = Rc::new(version.changed(edit));
        if let Some(key) = flushed {
            let mut frozen = self.frozen.borrow_mut();
            let is_done = frozen.as_mut().is_none_or(|frozen| {
                frozen.done = frozen.pairs.partition_point(|(pair, _)| *pair <= key);
                frozen.left().is_empty()
            });
            if is_done {
                *frozen = None;
            }
        }
        self.settle();
        Ok(())
    }

    /// Divides DRAM among lists and lists of hashes, upper levels first.
    fn settle(&self) {
        let version = self.version.borrow().clone();
        self.group_pages.set(version.all().map(|member| member.group.pages()).sum());
        let list = |member: &Member| {
            let facts = &member.group.facts;
            (facts.lowest.len() + facts.highest.len() + 2 * facts.first_hashes.len()) as u64 + LIST_BYTES
        };
        let groups = || version.levels.iter().flat_map(|level| &level.groups);
        self.dram.let_filters_go();
        let lists = self.dram.hold_lists(groups().map(list));
        let upper = &version.levels[..version.levels.len() - 1];
        let hash_list = |member: &Member| u64::from(member.group.facts.records) * 4 + HASH_LIST_BYTES;
        let hashes = self.dram.hold_filters(upper.iter().flat_map(|level| &level.groups).map(hash_list));
        let (mut lists, mut hashes) = (lists, hashes);
        let share = |left: &mut usize, level: &Level| {
            let held = level.groups.len().min(*left);
            *left -= held;
            held
        };
        let held = version
            .levels
            .iter()
            .map(|level| Held { lists: share(&mut lists, level), hashes: share(&mut hashes, level) });
        *self.held.borrow_mut() = held.collect();
    }

    /// The most pages that the records of a full memtable take in groups of their own.
    pub fn flush_pages(&self) -> u32 {
        let mut sizes = Sizes::default();
        let key =
            Key::from_padded([0; 16], self.longest.get().clamp(1, 255) as usize).expect("a length of keys");
        let content = super::page::Content::Logged { address: Vaddr(0), bytes: 1 };
        let record = Record { key, content }.page_bytes();
        sizes.add(record);
        let pages = sizes.pages_at_most(self.page_bytes());
        let per_page = (self.page_bytes() - super::page::HEAD_BYTES) / (record + super::page::INDEX_BYTES);
        pages + self.config.memtable_entries.div_ceil(per_page.max(1)) + 2
    }
}

/// Groups of each level but the last: powers of the largest factor, in steps of 0.05, by which all levels fit nine tenths
/// of the drive.
fn limits(pool: &SegmentPool, config: &AnyKeyConfig) -> Vec<f64> {
    let pages = f64::from(pool.segments()) * f64::from(pool.segment_pages());
    let groups = pages * 0.9 / f64::from(config.group_pages);
    let power = |factor: f64, exponent: u32| (0..exponent).fold(1.0, |product, _| product * factor);
    let mut steps = 40_u32;
    while power(f64::from(steps + 1) / 20.0, config.levels) <= groups {
        steps += 1;
    }
    (1..config.levels).map(|level| power(f64::from(steps) / 20.0, level)).collect()
}
