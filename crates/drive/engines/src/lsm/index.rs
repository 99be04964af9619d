//! The index: one memtable, at most one more that is being written, and levels of tables.
//!
//! ```text
//!   insert ─► active ──full──► frozen ──flush──► level 0 ──merge──► level 1 ──► ...
//!   get    ─► active, frozen, tables newest first
//! ```
//!
//! Insertions and lookups run side by side. Flush and compaction run one at a time, inside the insertion that found the
//! memtable full (as published: the next command waits); insertions beside it continue until the next memtable is full
//! as well (`maintenance.rs`). The table list changes in one step in which no task waits, together with its
//! [`IndexRecord`].
//!
//! The index knows the addresses of values, not their bytes. It reports through [`ValueLiveness`] when the last entry
//! of a value was removed. An engine orders changes of one key by a keyed lock of its own.

use std::cell::Cell;
use std::ops::Range;
use std::rc::{Rc, Weak};

use kvdrive_declare::Counters;
use kvdrive_flash::Purpose;
use kvdrive_flash::ftl::Ftl;
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::{Mutex, Sim, TaskCell};

use super::compaction::{CompactionPolicy, CompactionShape, compaction_row};
use super::config::IndexConfig;
use super::cursor::Snapshot;
use super::entry::{Entry, ValueLiveness, is_current};
use super::layout::{KeyClass, Layout, Start, TableShape, layout_row};
use super::levels::{LeftLevels, Version};
use super::lookup::{self, Search};
use super::memtable::{Memtable, Pair};
use super::recovery::{FoundTables, IndexImage, IndexJournal, IndexRecord, RecoverError};
use super::room::Ledger;
use super::space::{TableDram, TableSpace};
use super::table::{Pull, Table, TableStream};
use crate::dram::{Dram, eviction_row};
use crate::firmware::{Cores, Role};
use crate::value_log::{SegmentPool, Vaddr};

/// The parts below an index.
pub struct IndexParts {
    /// The executor.
    pub sim: Sim,
    /// The firmware cores.
    pub cores: Cores,
    /// Where tables are written. `None` with flash switched off: the memtable grows without end then.
    pub flash: Option<(Ftl, SegmentPool)>,
    /// Bytes of a NAND page.
    pub page_bytes: u32,
    /// Tables that power-protected memory can list while no key is longer than 16 B.
    pub most_tables: u32,
    /// The value log.
    pub values: Rc<dyn ValueLiveness>,
    /// Where changes are recorded.
    pub journal: Rc<dyn IndexJournal>,
}

/// Counters of the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Counters)]
#[counters(prefix = "index_")]
pub struct IndexCounters {
    /// Memtables written as tables of their own. A memtable that is merged together with all tables counts as a merge.
    pub flushes: u64,
    /// Merges of tables.
    pub merges: u64,
    /// Tables that compaction moved to another level without rewriting them.
    pub moves: u64,
    /// Flushes and merges that failed, because there was no room or a page could not be read.
    pub failures: u64,
}

/// A counter of flushes, merges and moves, failed ones included: if it is unchanged, the tables are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IndexWork(u64);

/// What came after a lookup of many keys: the memtables that have been written to flash since then, oldest first. In
/// tables there is nothing else that is newer than the tables of the lookup.
#[derive(Clone, Default)]
pub struct FlushedSince(Rc<FlushedRuns>);

/// Memtables that are on flash now.
type FlushedRuns = TaskCell<Vec<Rc<[Pair]>>>;

/// A merge beside commands, whose flushes pass it.
#[derive(Clone, Copy)]
pub(super) struct Beside {
    /// The most pages that it takes.
    pub most_pages: u32,
    /// Pages that it has taken.
    pub taken_pages: u32,
}

impl Beside {
    /// Pages that it may yet take.
    pub fn left_pages(&self) -> u32 {
        self.most_pages.saturating_sub(self.taken_pages)
    }
}

/// A full memtable on its way to flash.
pub(super) struct Frozen {
    /// See [`ValueLiveness`].
    pub age: u64,
    /// Its entries.
    pub entries: Memtable,
}

pub(super) struct Inner {
    pub cores: Cores,
    pub space: Option<Rc<TableSpace>>,
    pub config: IndexConfig,
    pub layout: Rc<dyn Layout>,
    pub policy: Box<dyn CompactionPolicy>,
    pub most_tables: u32,
    pub values: Rc<dyn ValueLiveness>,
    pub journal: Rc<dyn IndexJournal>,
    pub active: TaskCell<Memtable>,
    pub frozen: TaskCell<Option<Frozen>>,
    pub tables: TaskCell<Rc<Version>>,
    pub next_table: Cell<u32>,
    pub next_sequence: Cell<u64>,
    /// The longest key that there may be in memtables and tables.
    pub longest: Cell<KeyClass>,
    /// Held by the task that flushes or merges.
    pub maintenance: Mutex,
    /// Held by the task that merges beside commands, and by one that merges everything.
    pub merging: Mutex,
    /// The merge beside commands that is under way. Its inputs are merged by no one else.
    pub beside: Cell<Option<Beside>>,
    /// Merges of levels that flushes leave to a task beside commands.
    pub left: LeftLevels,
    /// Lookups that learn of flushes.
    pub watches: TaskCell<Vec<Weak<FlushedRuns>>>,
    /// The value of `next_table` when all entries were last in one run.
    pub one_run_at: Cell<u32>,
    pub counters: Cell<IndexCounters>,
    pub work: Cell<IndexWork>,
}

/// The index of one drive; clones are the same index.
#[derive(Clone)]
pub struct Index(pub(super) Rc<Inner>);

impl Index {
    /// An empty index. The settings have passed [`IndexConfig::check`].
    pub fn new(parts: IndexParts, config: IndexConfig) -> Index {
        let image = IndexImage { next_table: 1, next_sequence: 1, ..IndexImage::default() };
        Index::recover(parts, config, image, FoundTables::default()).expect("no table, no contradiction")
    }

    /// Restores the index after a power cut: `image` is its part of the protected image, `found` are the pages that the
    /// FTL found. Table pages of no live table are unmapped; pages of live tables are taken from the pool.
    pub fn recover(
        parts: IndexParts,
        config: IndexConfig,
        image: IndexImage,
        found: FoundTables,
    ) -> Result<Index, RecoverError> {
        let IndexParts { sim, cores, flash, page_bytes, most_tables, values, journal } = parts;
        let row = layout_row(&config.layout).expect("the configuration has been checked");
        let layout: Rc<dyn Layout> = Rc::from((row.build)(TableShape { page_bytes, bloom: config.bloom() }));
        let row = compaction_row(&config.compaction).expect("the configuration has been checked");
        let shape =
            CompactionShape { memtable_entries: config.memtable_entries, rings: config.rings.clone() };
        let policy = (row.build)(&shape);
        let row = eviction_row(&config.dram_eviction).expect("the configuration has been checked");
        let dram = || (config.dram_bytes > 0).then(|| Dram::new(config.dram_bytes, row));
        let space = flash.map(|(ftl, pool)| Rc::new(TableSpace::new(&sim, ftl, pool, page_bytes, dram())));
        let empty = Version::new((0..policy.levels()).map(|level| policy.partitioned(level)));
        let on_flash = found.highest_id().map_or(0, |id| id.0.saturating_add(1));
        let tables = match &space {
            Some(space) => found.rebuild(&image, space, layout.lists(), empty)?,
            None => empty,
        };
        let memtable = |pairs: std::collections::BTreeMap<Key, Entry>| {
            let mut memtable = Memtable::new(config.memtable_entries);
            for (key, entry) in pairs {
                memtable.insert(key, entry);
            }
            memtable
        };
        let in_memory = image.keys().map(KeyClass::of);
        let longest = tables.newest_first().map(|table| table.facts.longest).chain(in_memory).max();
        let frozen = image.frozen.map(|(age, pairs)| Frozen { age, entries: memtable(pairs) });
        let index = Index(Rc::new(Inner {
            active: TaskCell::new(memtable(image.active)),
            frozen: TaskCell::new(frozen),
            tables: TaskCell::new(Rc::new(tables)),
            next_table: Cell::new(image.next_table.max(on_flash)),
            next_sequence: Cell::new(image.next_sequence),
            longest: Cell::new(longest.unwrap_or_default()),
            maintenance: Mutex::new(&sim),
            merging: Mutex::new(&sim),
            beside: Cell::new(None),
            left: LeftLevels::default(),
            watches: TaskCell::default(),
            one_run_at: Cell::new(0),
            counters: Cell::default(),
            work: Cell::default(),
            cores,
            space,
            config,
            layout,
            policy,
            most_tables,
            values,
            journal,
        }));
        index.settle_dram();
        Ok(index)
    }

    /// The budget of DRAM, if there is one.
    pub fn dram(&self) -> Option<&TableDram> {
        self.0.space.as_ref().and_then(|space| space.dram())
    }

    /// The index's part of the protected image, as it is now.
    pub fn image(&self) -> IndexImage {
        let inner = &*self.0;
        let levels = inner.tables.borrow().clone();
        let tables = (0..)
            .zip(levels.levels())
            .flat_map(|(level, tables)| tables.tables().iter().map(move |table| (table.facts.id, level)));
        let frozen = inner.frozen.borrow();
        IndexImage {
            active: inner.active.borrow().pairs().iter().copied().collect(),
            frozen: frozen
                .as_ref()
                .map(|frozen| (frozen.age, frozen.entries.pairs().iter().copied().collect())),
            tables: tables.collect(),
            next_table: inner.next_table.get(),
            next_sequence: inner.next_sequence.get(),
        }
    }

    /// Can this pair be indexed? See [`Layout::accept`].
    ///
    /// `CAPACITY_EXCEEDED`, too, if the key is longer than all before it, and there would not be room enough for tables
    /// of such keys ([`super::room`]), or for memtables of them in power-protected memory.
    #[inline]
    pub fn accept(&self, key: &Key, address: Vaddr, bytes: u32) -> Result<(), Status> {
        self.0.layout.accept(key, address, bytes)?;
        let longest = KeyClass::of(key);
        if longest > self.0.longest.get() { self.accept_longest(longest) } else { Ok(()) }
    }

    #[cold]
    fn accept_longest(&self, longest: KeyClass) -> Result<(), Status> {
        let before = self.0.longest.replace(longest);
        let has_pages = self.pages_available() >= self.ledger(|ledger| ledger.for_stores());
        if !has_pages || self.check_list(0, 1).is_err() {
            self.0.longest.set(before);
            return Err(Status::CAPACITY_EXCEEDED);
        }
        Ok(())
    }

    /// Largest value that an entry can name, in bytes.
    pub fn max_value_bytes(&self) -> u32 {
        layout_row(&self.0.config.layout).map_or(u32::MAX, |row| row.max_value_bytes)
    }

    /// Makes `address` the place of the value of `key`. If it replaces an entry in the memtable, that one is reported
    /// dead at once; an entry in a table is reported when a merge sees it.
    ///
    /// Errors of [`Index::accept`]; `CAPACITY_EXCEEDED` when the memtable is full and there is no room for a
    /// table.
    pub fn insert(&self, key: Key, address: Vaddr, bytes: u32) -> Result<(), Status> {
        self.accept(&key, address, bytes)?;
        self.put(key, Entry { address, bytes, sequence: 0, tombstone: false })
    }

    /// Removes `key`, whether it exists or not: a tombstone. Errors as [`Index::insert`].
    pub fn remove(&self, key: Key) -> Result<(), Status> {
        self.accept(&key, Vaddr(0), 0)?;
        self.put(key, Entry::removal(0))
    }

    fn put(&self, key: Key, entry: Entry) -> Result<(), Status> {
        self.charge_insertions(1);
        self.make_room_for(1)?;
        self.put_now(key, entry);
        Ok(())
    }

    /// Takes the firmware time of `count` insertions.
    pub(super) fn charge_insertions(&self, count: u32) {
        let insert_ns = u64::from(count) * self.0.config.memtable_insert_ns;
        self.0.cores.of(Role::Dispatch).run_noted(insert_ns, "index", "insert into the memtable");
    }

    /// Makes room in the memtable for this number of entries; another insertion may take it.
    ///
    /// `CAPACITY_EXCEEDED` if the memtable has to be written for this and there is no room for a table.
    pub(super) fn make_room_for(&self, entries: u32) -> Result<(), Status> {
        while self.is_full_for(entries) {
            self.make_room(entries)?;
        }
        Ok(())
    }

    /// Puts entries into the memtable in one step; it must have room for all of them ([`Index::make_room_for`]). Calls
    /// `before` with each entry before it is inserted.
    pub(super) fn put_together(
        &self,
        entries: impl ExactSizeIterator<Item = (Key, Entry)>,
        before: impl Fn(&Entry),
    ) {
        assert!(!self.is_full_for(entries.len() as u32), "the memtable has room for all of them");
        // No task may suspend while this is held.
        let step = TaskCell::new(());
        let _one_step = step.borrow();
        for (key, entry) in entries {
            before(&entry);
            self.put_now(key, entry);
        }
    }

    /// Puts an entry into the memtable, which has room.
    fn put_now(&self, key: Key, entry: Entry) {
        let inner = &*self.0;
        let sequence = inner.next_sequence.get();
        inner.next_sequence.set(sequence + 1);
        let entry = Entry { sequence, ..entry };
        inner.journal.record(IndexRecord::Inserted { key, entry });
        let replaced = inner.active.borrow_mut().insert(key, entry);
        if let Some(old) = replaced.filter(Entry::has_bytes) {
            inner.values.dead(old.address, old.bytes);
        }
    }

    /// The newest entry of `key`; `None` if there is none or it is a tombstone.
    ///
    /// Errors: `INVALID_KEY_SIZE`; `UNRECOVERED_ERROR` if a table page that has to be read is damaged.
    pub fn get(&self, key: &Key) -> Result<Option<Entry>, Status> {
        let inner = &*self.0;
        inner.layout.accept(key, Vaddr(0), 0)?;
        let probe_ns = inner.config.index_probe_ns;
        inner.cores.of(Role::Dispatch).run_noted(probe_ns, "index", "look into the memtable");
        let newest = match self.find_in_memory(key) {
            Some(entry) => Some(entry),
            None => self.find_in_tables(key)?,
        };
        Ok(newest.filter(|entry| !entry.tombstone))
    }

    /// The newest entry of `key` in tables. Pinned levels are searched first, and a merge that replaces one of them
    /// meanwhile costs no read: the search begins again with the tables that are there now.
    fn find_in_tables(&self, key: &Key) -> Result<Option<Entry>, Status> {
        let inner = &*self.0;
        let (core, probe_ns) = (inner.cores.of(Role::Dispatch), inner.config.index_probe_ns);
        let mut reads = 0;
        let ended = loop {
            let tables = inner.tables.borrow().clone();
            let layout = &*inner.layout;
            match lookup::find(&tables, layout, key, core, probe_ns, Purpose::Lookup, &mut reads) {
                Ok(Search::Overtaken) => {}
                Ok(Search::Ended(newest)) => break Ok(newest),
                Err(status) => break Err(status),
            }
        };
        if let Some(dram) = self.dram() {
            dram.note_lookup(reads);
        }
        ended
    }

    fn find_in_memory(&self, key: &Key) -> Option<Entry> {
        let active = self.0.active.borrow().get(key);
        active.or_else(|| self.0.frozen.borrow().as_ref().and_then(|frozen| frozen.entries.get(key)))
    }

    /// The index as it is now.
    pub fn snapshot(&self) -> Snapshot {
        let inner = &*self.0;
        let active = inner.active.borrow_mut().sorted();
        let frozen = inner.frozen.borrow_mut().as_mut().map(|frozen| frozen.entries.sorted());
        let memory = std::iter::once(active).chain(frozen);
        Snapshot::new(inner.layout.clone(), memory.collect(), inner.tables.borrow().clone())
    }

    /// For garbage collection of the value log: finds every entry that refers to bytes in one of the ranges of
    /// `addresses`, including entries that are not the newest of their key, in no particular order. Tables whose address
    /// bounds touch no range are not read.
    ///
    /// Calls `pause` between two reads.
    ///
    /// `UNRECOVERED_ERROR` when a page that may name such an entry is damaged; the segment cannot be emptied
    /// then.
    pub fn references(
        &self,
        addresses: &[Range<Vaddr>],
        found: &mut Vec<Pair>,
        pause: &dyn Fn(),
    ) -> Result<(), Status> {
        let inner = &*self.0;
        let touches = |entry: &Entry| addresses.iter().any(|range| entry.touches(range));
        let low = addresses.iter().map(|range| range.start).min().unwrap_or(Vaddr(0));
        let high = addresses.iter().map(|range| range.end).max().unwrap_or(Vaddr(0));
        let tables = inner.tables.borrow().clone();
        found.extend(inner.active.borrow().pairs().iter().filter(|(_, entry)| touches(entry)));
        if let Some(frozen) = &*inner.frozen.borrow() {
            let pairs = frozen.entries.pairs().iter().filter(|(_, entry)| touches(entry));
            found.extend(pairs.filter(|(_, entry)| is_current(&*inner.values, entry.address, frozen.age)));
        }
        // The entries of a lost table cannot be found again: no value has to stay for them.
        let readable = tables.newest_first().filter(|table| !table.is_lost());
        let is_touched =
            |table: &&Rc<Table>| addresses.iter().any(|range| table.facts.addresses.touches(range));
        for table in readable.filter(is_touched) {
            let start = Start::Addresses(low..high);
            let mut stream = TableStream::new(&*inner.layout, table.clone(), start, 1, Purpose::GcIndex);
            let mut pairs = Vec::new();
            loop {
                match stream.pull(&mut pairs)? {
                    Pull::Pairs => found.extend(pairs.drain(..).filter(|(_, entry)| {
                        touches(entry) && is_current(&*inner.values, entry.address, table.facts.age)
                    })),
                    Pull::Blocked => {
                        pause();
                        stream.refill()?;
                    }
                    Pull::End => break,
                }
            }
        }
        Ok(())
    }

    /// For garbage collection of the value log: keeps those of `pairs` whose entry is the newest of its key, in the
    /// order of their keys. [`Index::is_newest`] says whether one of them still is. Calls `pause` between two keys.
    ///
    /// `UNRECOVERED_ERROR` when a table page that had to be read is damaged.
    pub fn retain_newest(&self, pairs: &mut Vec<Pair>, pause: &dyn Fn()) -> Result<FlushedSince, Status> {
        let inner = &*self.0;
        pairs.sort_by_key(|(key, entry)| (*key, entry.address));
        let (core, probe_ns) = (inner.cores.of(Role::Dispatch), inner.config.index_probe_ns);
        core.run_noted(pairs.len() as u64 * probe_ns, "index", "look into the memtable");
        // No suspension here, so memtables and tables are those of one moment.
        let tables = inner.tables.borrow().clone();
        let since = FlushedSince::default();
        inner.watches.borrow_mut().push(Rc::downgrade(&since.0));
        pairs
            .retain(|(key, entry)| self.find_in_memory(key).is_none_or(|newest| newest.is_same_value(entry)));
        let on_flash = |(key, _): &&Pair| self.find_in_memory(key).is_none();
        let keys: Vec<Key> = pairs.iter().filter(on_flash).map(|(key, _)| *key).collect();
        let probe = (core.as_ref(), probe_ns);
        let found = lookup::find_all(&tables, &*inner.layout, &keys, probe, Purpose::GcIndex, pause)?;
        let mut found = keys.iter().zip(found).peekable();
        pairs.retain(|(key, entry)| match found.next_if(|(found, _)| *found == key) {
            Some((_, newest)) => newest.is_some_and(|newest| newest.is_same_value(entry)),
            None => true,
        });
        Ok(since)
    }

    /// Is `entry`, which [`Index::retain_newest`] has kept, still the newest of its key? A newer one is in a memtable,
    /// or was in one that has been flushed since.
    pub fn is_newest(&self, key: &Key, entry: &Entry, since: &FlushedSince) -> bool {
        let inner = &*self.0;
        let probe_ns = inner.config.index_probe_ns;
        inner.cores.of(Role::Dispatch).run_noted(probe_ns, "index", "look into the memtable");
        let in_run =
            |run: &Rc<[Pair]>| run.binary_search_by_key(key, |(key, _)| *key).ok().map(|at| run[at].1);
        let newest = self.find_in_memory(key).or_else(|| since.0.borrow().iter().rev().find_map(in_run));
        newest.is_none_or(|newest| newest.is_same_value(entry))
    }

    /// Tells lookups of a memtable that is in a table now.
    pub(super) fn note_flushed(&self, run: &Rc<[Pair]>) {
        self.0.watches.borrow_mut().retain(|watch| match watch.upgrade() {
            Some(since) => {
                since.borrow_mut().push(run.clone());
                true
            }
            None => false,
        });
    }

    /// Insertions and removals so far.
    pub fn changes(&self) -> u64 {
        self.0.next_sequence.get()
    }

    /// Must the memtable be written before it takes `entries` more entries? Without flash it grows instead.
    ///
    /// # Panics
    /// Not even an empty memtable takes `entries` entries.
    pub(super) fn is_full_for(&self, entries: u32) -> bool {
        let (there, most) = (self.0.active.borrow().len() as u32, self.0.config.memtable_entries);
        assert!(entries <= most, "a memtable takes {most} entries, not {entries}");
        self.0.space.is_some() && there + entries > most
    }

    /// Counts an attempt to flush, merge or move tables. Room and tables have another [`IndexWork`] then.
    pub(super) fn count(&self, change: impl FnOnce(&mut IndexCounters)) {
        self.note_work();
        let mut counters = self.0.counters.get();
        change(&mut counters);
        self.0.counters.set(counters);
    }

    /// Notes that room or tables have changed.
    pub(super) fn note_work(&self) {
        self.0.work.set(IndexWork(self.0.work.get().0 + 1));
    }

    /// Number of the state of its tables: it changes with every flush, merge or move that was tried.
    pub(super) fn work(&self) -> IndexWork {
        self.0.work.get()
    }

    /// Its counts so far.
    pub fn counters(&self) -> IndexCounters {
        self.0.counters.get()
    }

    /// Flash pages that tables occupy, also tables that only a snapshot holds.
    pub fn pages_in_use(&self) -> u32 {
        self.0.space.as_ref().map_or(0, |space| space.pages_in_use())
    }

    /// Flash pages that new tables could take now. A merge beside commands gives the pages that it has taken back if it
    /// fails, and those of its inputs, which are no fewer, if it succeeds.
    pub fn pages_available(&self) -> u32 {
        let Some(space) = &self.0.space else { return u32::MAX };
        let available = space.pages_available();
        available + self.0.beside.get().map_or(0, |beside| beside.taken_pages)
    }

    /// The merge beside commands that is under way.
    pub(super) fn beside(&self) -> Option<Beside> {
        self.0.beside.get()
    }

    /// Are there free pages for this number of flushes, besides those that a merge beside commands may yet take?
    pub(super) fn can_flush_beside(&self, flushes: u32) -> bool {
        let (Some(space), Some(beside)) = (&self.0.space, self.0.beside.get()) else { return true };
        let flush_pages = self.ledger(|ledger| ledger.flush());
        space.pages_available() >= beside.left_pages() + flushes * flush_pages
    }

    /// Waits for the end of a merge beside commands.
    pub(super) fn wait_for_merge(&self) {
        drop(self.0.merging.lock());
    }

    /// Has it a segment, or no flash?
    pub(super) fn has_segment(&self) -> bool {
        self.0.space.as_ref().is_none_or(|space| space.has_segment())
    }

    /// Use and state of the pages of the index, passed to `read`.
    pub(super) fn ledger<T>(&self, read: impl FnOnce(&Ledger<'_>) -> T) -> T {
        let inner = &*self.0;
        let (mut table_entries, mut table_pages, mut is_damaged) = (0, 0, false);
        for table in inner.tables.borrow().newest_first() {
            table_entries += u64::from(table.facts.entries);
            table_pages += table.facts.total_pages();
            is_damaged |= table.is_damaged();
        }
        read(&Ledger {
            pages_at_most: &|entries| inner.layout.pages_at_most(entries, inner.longest.get()),
            split_entries: &|entries| inner.policy.bottom(entries).1,
            memtable_entries: inner.config.memtable_entries,
            table_entries,
            table_pages,
            is_damaged,
        })
    }

    /// After a flush or a merge: [`Ledger::check`].
    pub(super) fn check_room(&self) {
        let held = self.pages_held();
        let available = self.0.space.as_ref().map_or(u32::MAX, |space| space.pages_available());
        self.ledger(|ledger| ledger.check(available, held));
    }

    /// Pages in use that are in no table of the index: readers hold them, or a merge has written them.
    pub fn pages_held(&self) -> u32 {
        self.pages_in_use().saturating_sub(self.ledger(|ledger| ledger.table_pages))
    }

    /// Tables by level.
    pub fn tables_by_level(&self) -> Vec<usize> {
        self.0.tables.borrow().levels().iter().map(|level| level.tables().len()).collect()
    }

    /// Entries in memtables and tables, replaced ones and tombstones included.
    pub fn entries(&self) -> u64 {
        let tables: u64 =
            self.0.tables.borrow().newest_first().map(|table| u64::from(table.facts.entries)).sum();
        let frozen = self.0.frozen.borrow().as_ref().map_or(0, |frozen| frozen.entries.len());
        tables + (self.0.active.borrow().len() + frozen) as u64
    }
}
