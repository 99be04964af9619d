//! `lsmtree`: a log-structured merge tree with its values in the tables, after LevelDB and RocksDB.
//!
//! ```text
//!   pages   | manifest slot 0 | manifest slot 1 | write-ahead log, a ring | tables, anywhere ... |
//! ```
//!
//! A pair goes to the log and to a memtable. A full memtable becomes a table of level 0; tables of level 0,
//! which may overlap, are merged into level 1, and so on down; each level from 1 on is one run of tables that
//! do not overlap. Options have RocksDB's names and defaults, but the block cache is off by default. Block
//! indexes and filters of tables are in memory. Not here: compression, column families.
//!
//! Flushes of memtables and merges are *jobs* of the background ([`Store::background_step`]). A reader or
//! cursor keeps the tables with which it began; pages of tables are freed when no reader uses them and the
//! manifest does not name them.
//!
//! A page contains the number of its table, its edition or its position in the log, so none is mistaken for
//! another. If the newest pages are lost, the others cannot tell where the log ended and which manifest was
//! the newest; a caller can, if it remembers up to which record everything was durable ([`Store::mark`]).

mod bloom;
mod byte_lru;
mod cursor;
mod jobs;
mod layout;
mod memtable;
mod merging;
mod options;
mod put;
mod recovery;
mod table;
mod version;
mod wal;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use kvdrive_declare::{Counters, Counts};
use kvdrive_nvme::Key;

use crate::StoreRow;
use crate::cpu::{FifoLock, Step, Thread};
use crate::pages::{Page, PageId, Purpose};
use crate::space::{Extent, FreePages};
use crate::store::{Applied, Cursor, Ground, Recovered, Space, Store, StoreError, StoreRequest};
use crate::value::{StoredValue, Value};
use byte_lru::ByteLru;
use layout::Layout;
use memtable::Memtable;
pub use options::LsmtreeOptions;
use table::Table;
pub(crate) use table::{bytes_page, page_of_bytes};
use version::{Header, Version};
use wal::Wal;

/// The store's row.
pub const ROW: StoreRow = StoreRow {
    name: "lsmtree",
    about: "memtables, tables and leveled merges, with RocksDB's options (SAKER's LSM-store)",
    sections: &["ftl", "store", "lsmtree"],
    reclaims: &["merges"],
    steps: &[
        Step::MemtableLevel,
        Step::MemtableInsert,
        Step::RowProbe,
        Step::RowInsert,
        Step::CopyByte,
        Step::ChecksumByte,
        Step::BloomCheck,
        Step::IndexSearch,
        Step::BlockSearch,
        Step::BlockInsert,
        Step::MergeEntry,
    ],
    check: |options, page_bytes, pages, _threads| options.lsmtree.check(page_bytes, pages),
    fit: |options, page_bytes, pages, _threads| options.lsmtree.fit(page_bytes, pages),
    layout: |options| kvdrive_declare::image_keys(&options.lsmtree),
    log_segment_pages: |_, _| None,
    read_cache: Some("lsmtree.row_cache_bytes"),
    background: |options| Some(options.lsmtree.background),
    make: |options, ground| Rc::new(Lsmtree(Rc::new(Tree::new(&options.lsmtree, ground)))),
};

/// The store.
struct Lsmtree(Rc<Tree>);

/// State shared by the store and its cursors.
struct Tree {
    ground: Ground,
    options: LsmtreeOptions,
    layout: Layout,
    state: RefCell<LsmtreeState>,
    /// Serialises changes of the set of tables.
    installing: FifoLock,
}

/// Counts since the store was made.
#[derive(Clone, Copy, Debug, Default, Counters)]
struct TreeCounters {
    /// Memtables written as tables.
    flushes: u64,
    /// Merges of tables.
    merges: u64,
    /// Tables that moved down a level without being rewritten.
    moved_tables: u64,
    /// Entries that merges read.
    merged_entries: u64,
    /// Puts that were slowed down because flushes or merges could not keep up.
    slowed_puts: u64,
    /// Puts that waited until flushes or merges had caught up.
    stopped_puts: u64,
    /// Gets answered by the row cache.
    row_cache_hits: u64,
    /// Gets that the row cache could not answer.
    row_cache_misses: u64,
    /// Tables that a get skipped because of their filter.
    filtered_lookups: u64,
    /// Blocks of entries read.
    blocks_read: u64,
    /// Blocks that lookups found in the block cache.
    block_cache_hits: u64,
}

/// The state of the tree.
#[derive(Counters)]
#[counters(state)]
struct Shape {
    /// Tables on all levels.
    tables: usize,
    /// Tables on level 0.
    level0_tables: usize,
    /// Pages that the store does not use.
    free_pages: u64,
}

/// Memory of the store.
#[derive(Counters)]
#[counters(state, unit = Bytes)]
struct Memory {
    /// Memtables, full ones included.
    memtables: u64,
    /// The positions of the blocks of all tables, and the filters.
    blocks_and_filters: u64,
    /// Pairs of the row cache, as the cache charges them.
    row_cache: u64,
    /// Blocks in the block cache.
    block_cache: u64,
}

/// Failed background jobs. Every caller that was waiting before gets the error of the last one.
#[derive(Default)]
struct Failures {
    count: u64,
    last: Option<StoreError>,
    /// The background is idle until it is requested again; otherwise its threads would wake each other after
    /// each failed job.
    has_given_up: bool,
}

/// The pages of a block with their numbers.
type BlockPages = Rc<[(PageId, Page)]>;

/// The part of the store in memory. A table's number is never reused, so pairs and blocks of a removed table
/// are not found any more in the caches, and are evicted like others.
struct LsmtreeState {
    sequence: u64,
    /// Every record up to this sequence is durable.
    durable: u64,
    active: Rc<Memtable>,
    /// Full memtables, oldest first.
    full: VecDeque<Rc<Memtable>>,
    wal: Wal,
    version: Rc<Version>,
    header: Header,
    edition: u64,
    free: FreePages,
    /// Tables that the manifest does not name any more, and that readers may still be using.
    obsolete: Vec<Rc<Table>>,
    is_flushing: bool,
    is_merging: bool,
    /// Edition of the manifest at which an optional merge found no room.
    without_room: Option<u64>,
    /// The row cache: pairs that lookups have found, by table.
    rows: ByteLru<(u64, Key), StoredValue>,
    /// The block cache: blocks that lookups have read, by table and the block's first page in it. Cursors and
    /// merges do not use it.
    blocks: ByteLru<(u64, u32), BlockPages>,
    failures: Failures,
    /// A write failed: records that were not durable may never become so.
    failed: Option<StoreError>,
    counters: TreeCounters,
}

impl LsmtreeState {
    /// The first position of the log that memtables need.
    fn oldest_needed(&self) -> u64 {
        self.full.front().unwrap_or(&self.active).wal_from
    }

    fn check(&self) -> Result<(), StoreError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Closes the active memtable, which is full, and begins another one.
    fn rotate(&mut self) {
        self.wal.close_page();
        let next = Rc::new(Memtable::new(self.wal.next));
        self.full.push_back(std::mem::replace(&mut self.active, next));
        self.failures.has_given_up = false;
    }

    fn cache_row(&mut self, table: u64, key: Key, value: &StoredValue, options: &LsmtreeOptions) {
        // A pattern counts with its length, as bytes do.
        let (own, content) = match value {
            StoredValue::Pattern(pattern) => (value.clone(), pattern.bytes),
            _ => (StoredValue::Bytes(value.to_bytes().into()), value.bytes()),
        };
        let bytes = u64::from(options.row_bytes) + key.len() as u64 + u64::from(content);
        self.rows.insert((table, key), own, bytes);
    }
}

impl Tree {
    fn new(options: &LsmtreeOptions, ground: Ground) -> Tree {
        let layout = options.layout(ground.pages.page_bytes(), ground.pages.pages());
        let wal = Wal::new(&layout);
        let state = LsmtreeState {
            sequence: 0,
            durable: 0,
            active: Rc::new(Memtable::new(0)),
            full: VecDeque::new(),
            wal,
            version: Rc::default(),
            header: Header::default(),
            edition: 0,
            free: FreePages::default(),
            obsolete: Vec::new(),
            is_flushing: false,
            is_merging: false,
            without_room: None,
            rows: ByteLru::new(options.row_cache_bytes),
            blocks: ByteLru::new(options.block_cache_bytes),
            failures: Failures::default(),
            failed: None,
            counters: TreeCounters::default(),
        };
        Tree {
            ground,
            options: options.clone(),
            layout,
            state: RefCell::new(state),
            installing: FifoLock::default(),
        }
    }

    fn work(&self, thread: Thread, steps: &[(Step, u64)]) {
        self.ground.cpu.work(thread, steps);
    }

    fn free_bytes(&self) -> u64 {
        self.state.borrow().free.pages() * u64::from(self.layout.page_bytes)
    }

    fn get(&self, thread: Thread, key: &Key) -> Result<Option<StoredValue>, StoreError> {
        let mut levels = 0;
        let (in_memory, version) = {
            let state = self.state.borrow();
            let mut memtables = std::iter::once(&state.active).chain(state.full.iter().rev());
            let found = memtables.find_map(|memtable| {
                levels += memtable.levels(self.options.write_buffer_size);
                memtable.get(key)
            });
            (found, state.version.clone())
        };
        if levels > 0 {
            self.work(thread, &[(Step::MemtableLevel, levels)]);
        }
        if let Some(found) = in_memory {
            return Ok(found);
        }
        let hash = bloom::hash_of(key);
        for table in version.candidates(key) {
            if let Some(found) = self.get_from(thread, table, key, hash)? {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The value of a key in a table; `Some(None)`: deleted there.
    fn get_from(
        &self,
        thread: Thread,
        table: &Rc<Table>,
        key: &Key,
        hash: u64,
    ) -> Result<Option<Option<StoredValue>>, StoreError> {
        let has_rows = self.options.row_cache_bytes > 0;
        if has_rows {
            self.work(thread, &[(Step::RowProbe, 1)]);
            let mut state = self.state.borrow_mut();
            if let Some(row) = state.rows.get(&(table.number, *key)) {
                state.counters.row_cache_hits += 1;
                return Ok(Some(Some(row)));
            }
            state.counters.row_cache_misses += 1;
        }
        if !table.filter.is_empty() {
            self.work(thread, &[(Step::BloomCheck, 1)]);
            if !bloom::may_have(&table.filter, hash, self.options.bloom_bits) {
                self.state.borrow_mut().counters.filtered_lookups += 1;
                return Ok(None);
            }
        }
        let Some(block) = table.block_for(key) else { return Ok(None) };
        let pages = self.block(thread, table, block)?;
        let format = table::data_format(self.layout.page_bytes);
        let found = table::find_in_block(&format, table, &pages, key)?;
        if let (Some(Some(value)), true) = (&found, has_rows) {
            self.work(thread, &[(Step::RowInsert, 1), (Step::CopyByte, value.bytes().into())]);
            self.state.borrow_mut().cache_row(table.number, *key, value, &self.options);
        }
        Ok(found)
    }

    /// The pages of a block to search, from the cache or from the store's pages.
    fn block(&self, thread: Thread, table: &Rc<Table>, block: (u32, u32)) -> Result<BlockPages, StoreError> {
        let cached = self.state.borrow_mut().blocks.get(&(table.number, block.0));
        if let Some(pages) = cached {
            self.state.borrow_mut().counters.block_cache_hits += 1;
            self.work(thread, &[(Step::IndexSearch, 1), (Step::BlockSearch, 1)]);
            return Ok(pages);
        }
        let pages: BlockPages =
            table::read_pages(&self.ground.pages, thread, &table.extents, block, Purpose::Lookup)?.into();
        let bytes = pages.len() as u64 * u64::from(self.layout.page_bytes);
        self.work(thread, &[(Step::IndexSearch, 1), (Step::BlockSearch, 1), (Step::ChecksumByte, bytes)]);
        self.state.borrow_mut().counters.blocks_read += 1;
        if self.options.block_cache_bytes > 0 {
            self.work(thread, &[(Step::BlockInsert, 1)]);
            self.state.borrow_mut().blocks.insert((table.number, block.0), pages.clone(), bytes);
        }
        Ok(pages)
    }

    fn max_value_bytes(&self) -> u32 {
        let ring = self.layout.wal_pages.saturating_sub(8) as u32 / 2;
        let by_log = wal::format(self.layout.page_bytes).longest_value(ring);
        if self.options.wal { by_log } else { crate::MAX_VALUE_BYTES }
    }

    /// Takes pages for tables.
    fn take_pages(&self, pages: u32) -> Result<Vec<Extent>, StoreError> {
        self.state.borrow_mut().free.take_runs(pages, usize::MAX).ok_or(StoreError::Full)
    }

    /// Frees the pages of tables without users.
    fn reclaim(&self, thread: Thread) -> Result<(), StoreError> {
        loop {
            let table = {
                let mut state = self.state.borrow_mut();
                let unused = state.obsolete.iter().position(|table| Rc::strong_count(table) == 1);
                match unused {
                    Some(index) => state.obsolete.swap_remove(index),
                    None => return Ok(()),
                }
            };
            for extent in &table.extents {
                let trimmed = self.ground.pages.trim(thread, extent.first, extent.pages, Purpose::Compaction);
                self.state.borrow_mut().free.give(*extent);
                trimmed?;
            }
        }
    }
}

/// A table and its level.
type Placed = (usize, Rc<Table>);

impl Store for Lsmtree {
    fn recover_from(&self, thread: Thread, mark: &[u8]) -> Result<Recovered, StoreError> {
        self.0.recover(thread, mark)
    }

    fn mark(&self) -> Vec<u8> {
        self.0.state.borrow().durable.to_le_bytes().to_vec()
    }

    fn put(&self, thread: Thread, key: Key, value: Value<'_>) -> Result<(), StoreError> {
        self.0.apply(thread, &[StoreRequest::Put(key, value)], true)
    }

    fn put_again(&self, thread: Thread, key: Key, value: Value<'_>) -> Result<(), StoreError> {
        self.0.apply(thread, &[StoreRequest::Put(key, value)], false)
    }

    fn get(&self, thread: Thread, key: Key) -> Result<Option<StoredValue>, StoreError> {
        self.0.get(thread, &key)
    }

    fn delete(&self, thread: Thread, key: Key) -> Result<(), StoreError> {
        self.0.apply(thread, &[StoreRequest::Delete(key)], false)
    }

    fn apply(&self, thread: Thread, batch: &[StoreRequest<'_>], atomic: bool) -> Applied {
        if atomic {
            let has_puts = batch.iter().any(|request| matches!(request, StoreRequest::Put(..)));
            let error = if batch.is_empty() { None } else { self.0.apply(thread, batch, has_puts).err() };
            return Applied { requests: if error.is_none() { batch.len() as u32 } else { 0 }, error };
        }
        crate::store::apply_in_order(self, thread, batch)
    }

    fn cursor(&self, thread: Thread, from: Option<Key>) -> Result<Box<dyn Cursor>, StoreError> {
        Ok(Box::new(cursor::LsmtreeCursor::open(&self.0, thread, from)))
    }

    fn sync(&self, thread: Thread) -> Result<(), StoreError> {
        self.0.sync(thread)
    }

    fn background_due(&self) -> bool {
        self.0.is_due(&self.0.state.borrow())
    }

    fn background_step(&self, thread: Thread) -> Result<bool, StoreError> {
        self.0.job(thread)
    }

    fn max_value_bytes(&self) -> u32 {
        self.0.max_value_bytes()
    }

    fn space(&self) -> Space {
        let page = u64::from(self.0.layout.page_bytes);
        let all = (self.0.layout.pages - self.0.layout.first_free) * page;
        let capacity_bytes = all.saturating_sub(self.0.options.reserve_bytes());
        Space { live_bytes: all - self.0.free_bytes(), capacity_bytes }
    }

    fn counts(&self) -> Counts {
        let state = self.0.state.borrow();
        let version = &state.version;
        let (tables, level0_tables) = (version.tables().count(), version.levels[0].len());
        state.counters.counts().and(&Shape { tables, level0_tables, free_pages: state.free.pages() })
    }

    fn dram(&self) -> Counts {
        let state = self.0.state.borrow();
        let full: u64 = state.full.iter().map(|memtable| memtable.bytes.get()).sum();
        let memory = Memory {
            memtables: full + state.active.bytes.get(),
            blocks_and_filters: state.version.tables().map(|(_, table)| table.memory_bytes()).sum(),
            row_cache: state.rows.bytes(),
            block_cache: state.blocks.bytes(),
        };
        memory.counts()
    }
}
