//! The index: one memtable, at most one more that is being written, and levels of tables.
//!
//! ```text
//!   insert ─► active ──full──► frozen ──flush──► level 0 ──merge──► level 1 ──► ...
//!   get    ─► active, frozen, tables newest first
//! ```
//!
//! Insertions and lookups run side by side. Flush and compaction run one at a time, inside the insertion that found the
//! memtable full (as published: the next command waits); insertions beside it go on until the next memtable is full as
//! well. Changes of the table list happen in one step without an `.await`, together with their [`IndexRecord`].
//!
//! The index knows where values are and nothing of their bytes. It says through [`ValueLiveness`] when it has
//! forgotten one. An engine orders changes of one key by a keyed lock of its own.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use kvdrive_sim::{Mutex, Resource, Sim};
use kvdrive_spec::{Key, Status};

use super::compaction::{Choice, CompactionPolicy, CompactionShape, Merge, compaction_row};
use super::config::IndexConfig;
use super::cursor::Snapshot;
use super::entry::{Entry, TableId, ValueLiveness};
use super::layout::{Layout, Shape, Start, layout_row};
use super::levels::Version;
use super::lookup;
use super::memtable::{Memtable, Pair};
use super::merge::{MergedRuns, Source};
use super::recovery::{FoundTables, IndexImage, IndexJournal, IndexRecord, RecoverError};
use super::space::TableSpace;
use super::table::{Pull, READ_AHEAD, Table, TableStream, TableWriter};
use crate::flash::Purpose;
use crate::ftl::Ftl;
use crate::value_log::{SegmentPool, Vaddr};

/// What an index stands on.
pub struct IndexParts {
    /// The executor.
    pub sim: Sim,
    /// The firmware cores.
    pub cores: Rc<Resource>,
    /// Where tables are written. `None` with flash switched off: the memtable grows without end then.
    pub flash: Option<(Ftl, SegmentPool)>,
    /// Bytes of a NAND page.
    pub page_bytes: u32,
    /// The value log.
    pub values: Rc<dyn ValueLiveness>,
    /// Where changes are recorded.
    pub journal: Rc<dyn IndexJournal>,
}

/// What the index has done so far. Counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexCounters {
    /// Memtables written.
    pub flushes: u64,
    /// Merges done.
    pub merges: u64,
    /// Tables that went down a level as they were.
    pub moves: u64,
    /// Flushes and merges given up for want of space or because a page could not be read.
    pub failures: u64,
}

/// A full memtable on its way to flash.
struct Frozen {
    /// It counts as a table with this id.
    age: TableId,
    entries: Memtable,
}

struct Inner {
    cores: Rc<Resource>,
    space: Option<Rc<TableSpace>>,
    config: IndexConfig,
    layout: Rc<dyn Layout>,
    policy: Box<dyn CompactionPolicy>,
    values: Rc<dyn ValueLiveness>,
    journal: Rc<dyn IndexJournal>,
    active: RefCell<Memtable>,
    /// A sorted copy of `active`, as long as it is one.
    sorted: RefCell<Option<Rc<[Pair]>>>,
    frozen: RefCell<Option<Frozen>>,
    tables: RefCell<Rc<Version>>,
    next_table: Cell<u32>,
    next_sequence: Cell<u64>,
    /// Held by the one that flushes or merges.
    maintenance: Mutex,
    counters: Cell<IndexCounters>,
}

/// The index of one drive; clones are the same index.
#[derive(Clone)]
pub struct Index(Rc<Inner>);

/// Runs to be merged into new tables, and what becomes of them.
struct Rewrite {
    /// Newest first, each with the id it counts as.
    sources: Vec<(TableId, Source)>,
    /// Entries in all of them.
    entries: u64,
    /// Tables that the result replaces.
    inputs: Vec<Rc<Table>>,
    /// The result replaces the frozen memtable.
    flushed: bool,
    /// Tables that may hold older entries than the runs.
    older: Vec<Rc<Table>>,
    to: usize,
    split_entries: Option<u32>,
    purpose: Purpose,
}

impl Index {
    /// An empty index. The settings have passed [`IndexConfig::check`].
    pub fn new(parts: IndexParts, config: IndexConfig) -> Index {
        let image = IndexImage { next_table: 1, next_sequence: 1, ..IndexImage::default() };
        Index::recover(parts, config, image, FoundTables::default()).expect("no table, no contradiction")
    }

    /// The index of a drive that lost its power: `image` is its part of the protected image, `found` what the FTL came
    /// across. The FTL forgets table pages that belong to no table; the pages of those that do are taken from the pool.
    pub fn recover(
        parts: IndexParts,
        config: IndexConfig,
        image: IndexImage,
        found: FoundTables,
    ) -> Result<Index, RecoverError> {
        let IndexParts { sim, cores, flash, page_bytes, values, journal } = parts;
        let row = layout_row(&config.layout).expect("the configuration has been checked");
        let layout: Rc<dyn Layout> = Rc::from((row.build)(Shape { page_bytes, bloom: config.bloom() }));
        let row = compaction_row(&config.compaction).expect("the configuration has been checked");
        let shape =
            CompactionShape { memtable_entries: config.memtable_entries, rings: config.rings.clone() };
        let policy = (row.build)(&shape);
        let space = flash.map(|(ftl, pool)| Rc::new(TableSpace::new(&sim, ftl, pool, page_bytes)));
        let empty = Version::new((0..policy.levels()).map(|level| policy.partitioned(level)));
        let on_flash = found.highest_id().map_or(0, |id| id.0 + 1);
        let tables = match &space {
            Some(space) => found.rebuild(&image, space, layout.covered_by_index_page(), empty)?,
            None => empty,
        };
        let memtable = |pairs: std::collections::BTreeMap<Key, Entry>| {
            let mut memtable = Memtable::new(config.memtable_entries);
            for (key, entry) in pairs {
                memtable.insert(key, entry);
            }
            memtable
        };
        let frozen = image.frozen.map(|(age, pairs)| Frozen { age, entries: memtable(pairs) });
        Ok(Index(Rc::new(Inner {
            active: RefCell::new(memtable(image.active)),
            sorted: RefCell::new(None),
            frozen: RefCell::new(frozen),
            tables: RefCell::new(Rc::new(tables)),
            next_table: Cell::new(image.next_table.max(on_flash)),
            next_sequence: Cell::new(image.next_sequence),
            maintenance: Mutex::new(&sim),
            counters: Cell::default(),
            cores,
            space,
            config,
            layout,
            policy,
            values,
            journal,
        })))
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

    /// The time by which entries are told from stale ones: a segment of the value log that is opened now holds nothing
    /// that an entry of a table below this id can mean. See [`ValueLiveness`].
    pub fn clock(&self) -> TableId {
        TableId(self.0.next_table.get())
    }

    /// Can this pair be indexed? See [`Layout::accept`].
    pub fn accept(&self, key: &Key, address: Vaddr, bytes: u32) -> Result<(), Status> {
        self.0.layout.accept(key, address, bytes)
    }

    /// Makes `address` the place of the value of `key`. The entry it replaces in the memtable is reported dead; one in a
    /// table is when a merge comes across it.
    ///
    /// Errors of [`Index::accept`]; `CAPACITY_EXCEEDED` when the memtable is full and there is no room for a table.
    pub async fn insert(&self, key: Key, address: Vaddr, bytes: u32) -> Result<(), Status> {
        self.accept(&key, address, bytes)?;
        self.put(key, Entry { address, bytes, sequence: 0, tombstone: false }).await
    }

    /// Removes `key`, whether it exists or not: a tombstone. Errors as [`Index::insert`].
    pub async fn remove(&self, key: Key) -> Result<(), Status> {
        self.accept(&key, Vaddr(0), 0)?;
        self.put(key, Entry::removal(0)).await
    }

    async fn put(&self, key: Key, entry: Entry) -> Result<(), Status> {
        let inner = &*self.0;
        inner.cores.run(inner.config.memtable_insert_ns).await;
        while self.is_full() {
            self.make_room().await?;
        }
        let sequence = inner.next_sequence.get();
        inner.next_sequence.set(sequence + 1);
        let entry = Entry { sequence, ..entry };
        inner.journal.record(IndexRecord::Inserted { key, entry });
        *inner.sorted.borrow_mut() = None;
        let replaced = inner.active.borrow_mut().insert(key, entry);
        if let Some(old) = replaced.filter(Entry::has_bytes) {
            inner.values.dead(old.address, old.bytes);
        }
        Ok(())
    }

    /// The newest entry of `key`; `None` if there is none or it is a tombstone.
    ///
    /// `INVALID_KEY_SIZE`, or `UNRECOVERED_ERROR` when a table page that had to be read is damaged.
    pub async fn get(&self, key: &Key) -> Result<Option<Entry>, Status> {
        self.find(key, Purpose::Lookup).await
    }

    async fn find(&self, key: &Key, purpose: Purpose) -> Result<Option<Entry>, Status> {
        let inner = &*self.0;
        self.accept(key, Vaddr(0), 0)?;
        let probe_ns = inner.config.index_probe_ns;
        inner.cores.run(probe_ns).await;
        let newest = match self.find_in_memory(key) {
            Some(entry) => Some(entry),
            None => {
                let tables = inner.tables.borrow().clone();
                lookup::find(&tables, &*inner.layout, key, &inner.cores, probe_ns, purpose).await?
            }
        };
        Ok(newest.filter(|entry| !entry.tombstone))
    }

    fn find_in_memory(&self, key: &Key) -> Option<Entry> {
        let active = self.0.active.borrow().get(key);
        active.or_else(|| self.0.frozen.borrow().as_ref().and_then(|frozen| frozen.entries.get(key)))
    }

    /// The index as it is now.
    pub fn snapshot(&self) -> Snapshot {
        let inner = &*self.0;
        let active = inner.sorted.borrow_mut().get_or_insert_with(|| inner.active.borrow().sorted()).clone();
        let frozen = inner.frozen.borrow();
        let memory = std::iter::once(active).chain(frozen.as_ref().map(|frozen| frozen.entries.sorted()));
        Snapshot::new(inner.layout.clone(), memory.collect(), inner.tables.borrow().clone())
    }

    /// Garbage collection of the value log: every entry that refers to bytes in `addresses`, also those that are not the
    /// newest of their key, in no particular order. Tables whose address bounds do not touch the range are not read.
    ///
    /// `UNRECOVERED_ERROR` when a page that may name such an entry is damaged; the segment cannot be emptied then.
    pub async fn references(&self, addresses: Range<Vaddr>, found: &mut Vec<Pair>) -> Result<(), Status> {
        let inner = &*self.0;
        let tables = inner.tables.borrow().clone();
        found.extend(inner.active.borrow().pairs().iter().filter(|(_, entry)| entry.touches(&addresses)));
        if let Some(frozen) = &*inner.frozen.borrow() {
            let pairs = frozen.entries.pairs().iter().filter(|(_, entry)| entry.touches(&addresses));
            found.extend(pairs.filter(|(_, entry)| inner.values.is_current(entry.address, frozen.age)));
        }
        for table in tables.newest_first().filter(|table| table.facts.addresses.touches(&addresses)) {
            let start = Start::Addresses(addresses.clone());
            let mut stream = TableStream::new(&*inner.layout, table.clone(), start, 1, Purpose::GcIndex);
            loop {
                match stream.pull()? {
                    Pull::Pair(key, entry) => {
                        if entry.touches(&addresses) && inner.values.is_current(entry.address, table.facts.id)
                        {
                            found.push((key, entry));
                        }
                    }
                    Pull::Blocked => stream.refill().await?,
                    Pull::End => break,
                }
            }
        }
        Ok(())
    }

    /// Garbage collection of the value log: lets `key` refer to the copy of its value at `new`, if its newest entry still
    /// refers to `old`. `false` if it does not. The caller holds the lock of the key.
    pub async fn repoint(&self, key: &Key, old: Vaddr, new: Vaddr) -> Result<bool, Status> {
        match self.find(key, Purpose::GcIndex).await? {
            Some(entry) if entry.address == old && entry.has_bytes() => {
                self.insert(*key, new, entry.bytes).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn is_full(&self) -> bool {
        let entries = self.0.active.borrow().len();
        self.0.space.is_some() && entries >= self.0.config.memtable_entries as usize
    }

    /// Flushes and compacts, or waits for the one who does. The memtable need not be empty afterwards.
    async fn make_room(&self) -> Result<(), Status> {
        let _one_at_a_time = self.0.maintenance.lock().await;
        if !self.is_full() {
            return Ok(());
        }
        // Left over from a flush that failed, or from before a power cut.
        self.flush_frozen().await?;
        self.freeze();
        // There is room now. If this flush fails, it is tried again when the memtable is full the next time.
        if self.flush_frozen().await.is_ok() {
            self.compact().await;
        }
        Ok(())
    }

    /// Writes the memtables, merges all tables into one run and drops what no longer means anything: replaced and stale
    /// entries and all tombstones. For a drive that runs out of space.
    ///
    /// `CAPACITY_EXCEEDED` when there is no room for the result beside its inputs; `UNRECOVERED_ERROR` when a table is
    /// damaged. Nothing is lost then.
    pub async fn compact_all(&self) -> Result<(), Status> {
        if self.0.space.is_none() {
            return Ok(());
        }
        let _one_at_a_time = self.0.maintenance.lock().await;
        self.flush_frozen().await?;
        if !self.0.active.borrow().is_empty() {
            self.freeze();
            self.flush_frozen().await?;
        }
        let tables = self.0.tables.borrow().clone();
        let entries = tables.newest_first().map(|table| u64::from(table.facts.entries)).sum();
        let (to, split_entries) = self.0.policy.bottom(entries);
        let inputs: Vec<_> = tables.newest_first().map(|table| table.facts.id).collect();
        let bottom = tables.levels()[to].tables().len();
        let one_run = inputs.len() == bottom && (bottom <= 1 || self.0.policy.partitioned(to));
        if one_run {
            return Ok(());
        }
        self.merge(Merge { inputs, to, split_entries }).await
    }

    /// The memtable stops to take entries; an empty one takes its place.
    fn freeze(&self) {
        let inner = &*self.0;
        let age = TableId(inner.next_table.get());
        inner.next_table.set(age.0 + 1);
        inner.journal.record(IndexRecord::Frozen(age));
        *inner.sorted.borrow_mut() = None;
        let entries = inner.active.replace(Memtable::new(inner.config.memtable_entries));
        let left = inner.frozen.replace(Some(Frozen { age, entries }));
        assert!(left.is_none(), "a memtable is frozen only when the one before it has been written");
    }

    /// Writes the frozen memtable, if there is one, as a table of level 0.
    async fn flush_frozen(&self) -> Result<(), Status> {
        let inner = &*self.0;
        let (age, run) = match &*inner.frozen.borrow() {
            None => return Ok(()),
            Some(frozen) => (frozen.age, frozen.entries.sorted()),
        };
        let rewrite = Rewrite {
            entries: run.len() as u64,
            sources: vec![(age, Source::Memory(run, 0))],
            inputs: Vec::new(),
            flushed: true,
            older: inner.tables.borrow().newest_first().cloned().collect(),
            to: 0,
            split_entries: None,
            purpose: Purpose::Index,
        };
        self.rewrite(rewrite).await?;
        self.count(|counters| counters.flushes += 1);
        Ok(())
    }

    /// Asks the policy until it has no more wishes, or one cannot be fulfilled.
    async fn compact(&self) {
        loop {
            let view = self.0.tables.borrow().view();
            let done = match self.0.policy.choose(&view) {
                Choice::Rest => return,
                Choice::Merge(merge) => self.merge(merge).await,
                Choice::Move { table, to } => {
                    self.move_table(table, to);
                    Ok(())
                }
            };
            match done {
                Ok(()) => {}
                // The policy leaves a damaged table alone the next time it is asked.
                Err(Status::UNRECOVERED_ERROR) => {}
                Err(_) => return,
            }
        }
    }

    fn move_table(&self, id: TableId, to: usize) {
        let inner = &*self.0;
        let present = inner.tables.borrow().clone();
        let table = present
            .newest_first()
            .find(|table| table.facts.id == id)
            .expect("a policy moves what it saw")
            .clone();
        inner.journal.record(IndexRecord::TablesChanged {
            added: &[(id, to as u8)],
            dropped: &[id],
            flushed: false,
        });
        *inner.tables.borrow_mut() = Rc::new(present.changed(&[id], std::iter::once((to, table))));
        self.count(|counters| counters.moves += 1);
    }

    async fn merge(&self, merge: Merge) -> Result<(), Status> {
        let inner = &*self.0;
        let (inputs, older) = inner.tables.borrow().split(&merge.inputs);
        assert_eq!(inputs.len(), merge.inputs.len(), "a policy merges what it saw");
        if inputs.iter().any(|table| table.is_damaged()) {
            return Err(Status::UNRECOVERED_ERROR);
        }
        let stream = |table: &Rc<Table>| {
            let stream = TableStream::new(
                &*inner.layout,
                table.clone(),
                Start::First,
                READ_AHEAD,
                Purpose::Compaction,
            );
            (table.facts.id, Source::Table(stream))
        };
        let rewrite = Rewrite {
            sources: inputs.iter().map(stream).collect(),
            entries: inputs.iter().map(|table| u64::from(table.facts.entries)).sum(),
            inputs,
            flushed: false,
            older,
            to: merge.to,
            split_entries: merge.split_entries,
            purpose: Purpose::Compaction,
        };
        self.rewrite(rewrite).await?;
        self.count(|counters| counters.merges += 1);
        Ok(())
    }

    /// Merges runs into new tables and puts these in the place of the old ones.
    async fn rewrite(&self, rewrite: Rewrite) -> Result<(), Status> {
        let mut dead = Vec::new();
        let inputs = rewrite.inputs.clone();
        let (to, flushed) = (rewrite.to, rewrite.flushed);
        match self.write_run(rewrite, &mut dead).await {
            Ok(outputs) => {
                self.replace(outputs, to, inputs, flushed);
                for (address, bytes) in dead {
                    self.0.values.dead(address, bytes);
                }
                Ok(())
            }
            Err(status) => {
                self.count(|counters| counters.failures += 1);
                Err(status)
            }
        }
    }

    /// Writes what is left of merged runs. Bytes that nobody refers to once the result counts are added to `dead`.
    async fn write_run(&self, rewrite: Rewrite, dead: &mut Vec<(Vaddr, u32)>) -> Result<NewTables, Status> {
        let inner = &*self.0;
        let space = inner.space.as_ref().expect("without flash nothing is ever flushed");
        let pages = match rewrite.flushed {
            true => inner.layout.pages_at_most(rewrite.entries as u32),
            false => rewrite.inputs.iter().map(|table| table.facts.total_pages()).sum(),
        };
        if space.pages_available() < pages {
            return Err(Status::CAPACITY_EXCEEDED);
        }
        let (ages, sources): (Vec<TableId>, Vec<Source>) = rewrite.sources.into_iter().unzip();
        let mut runs = MergedRuns::new(sources, None);
        let mut outputs = NewTables(Vec::new());
        let mut writer: Option<TableWriter> = None;
        let mut left = rewrite.entries;
        while let Some(merged) = runs.next().await? {
            let (key, entry) = (merged.key, merged.entry);
            left -= 1;
            let current = !entry.has_bytes() || inner.values.is_current(entry.address, ages[merged.source]);
            if !merged.newest {
                if current && entry.has_bytes() {
                    dead.push((entry.address, entry.bytes));
                }
                continue;
            }
            // A tombstone is needed while an older table may hold its key. What a stale entry meant has been moved or
            // replaced, so a newer entry of its key is elsewhere.
            let needed = if entry.tombstone {
                rewrite.older.iter().any(|table| table.facts.covers(&key))
            } else {
                current
            };
            if !needed {
                continue;
            }
            let output = match &mut writer {
                Some(output) => output,
                None => {
                    let most = rewrite.split_entries.map_or(left + 1, |split| (left + 1).min(split.into()));
                    writer.insert(self.begin_table(most, space, rewrite.purpose))
                }
            };
            output.push(&key, &entry);
            if output.wants_write() {
                output.write_complete().await?;
            }
            if rewrite.split_entries.is_some_and(|split| output.entries() >= split) {
                let whole = writer.take().expect("it was just written to");
                outputs.0.push(Rc::new(whole.finish().await?));
            }
        }
        if let Some(last) = writer {
            outputs.0.push(Rc::new(last.finish().await?));
        }
        Ok(outputs)
    }

    fn begin_table(&self, most_entries: u64, space: &Rc<TableSpace>, purpose: Purpose) -> TableWriter {
        let inner = &*self.0;
        let id = TableId(inner.next_table.get());
        inner.next_table.set(id.0 + 1);
        inner.journal.record(IndexRecord::IdTaken(id));
        let most_entries = u32::try_from(most_entries).expect("a table has less than 2^32 entries");
        TableWriter::new(
            id,
            &*inner.layout,
            most_entries,
            space,
            purpose,
            &inner.cores,
            inner.config.table_entry_ns,
        )
    }

    /// From here on the new tables count and the old ones do not.
    fn replace(&self, mut outputs: NewTables, to: usize, inputs: Vec<Rc<Table>>, flushed: bool) {
        let inner = &*self.0;
        let outputs = std::mem::take(&mut outputs.0);
        let added: Vec<_> = outputs.iter().map(|table| (table.facts.id, to as u8)).collect();
        let dropped: Vec<_> = inputs.iter().map(|table| table.facts.id).collect();
        inner.journal.record(IndexRecord::TablesChanged { added: &added, dropped: &dropped, flushed });
        let present = inner.tables.borrow().clone();
        let next = present.changed(&dropped, outputs.into_iter().map(|table| (to, table)));
        *inner.tables.borrow_mut() = Rc::new(next);
        if flushed {
            *inner.frozen.borrow_mut() = None;
        }
        inputs.iter().for_each(|table| table.set_obsolete());
    }

    fn count(&self, change: impl FnOnce(&mut IndexCounters)) {
        let mut counters = self.0.counters.get();
        change(&mut counters);
        self.0.counters.set(counters);
    }

    /// What it has done so far.
    pub fn counters(&self) -> IndexCounters {
        self.0.counters.get()
    }

    /// Flash pages that tables occupy, also tables that only a snapshot holds.
    pub fn pages_in_use(&self) -> u32 {
        self.0.space.as_ref().map_or(0, |space| space.pages_in_use())
    }

    /// Pages that must be free for [`Index::compact_all`] to succeed: the index beside itself, and two memtables.
    pub fn pages_to_compact_all(&self) -> u32 {
        self.pages_in_use() + 3 * self.0.layout.pages_at_most(self.0.config.memtable_entries)
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

/// Tables written and not yet part of the index: if they never are, their pages are given back.
struct NewTables(Vec<Rc<Table>>);

impl Drop for NewTables {
    fn drop(&mut self) {
        self.0.iter().for_each(|table| table.set_obsolete());
    }
}
