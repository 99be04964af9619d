//! Options of `lsmtree`: names and defaults are RocksDB's.

use kvdrive_declare::Section;

use super::layout::Layout;
use crate::frame::FRAME_BYTES;
use crate::store::{Background, MAX_VALUE_BYTES};

/// Bytes of a table in a manifest: 71, and 12 for each of eight runs of pages.
const TABLE_BYTES: u64 = 168;

/// Options of `lsmtree`.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("lsmtree")]
pub struct LsmtreeOptions {
    /// Bytes of a full memtable; 0: 64 MiB, or a 256th of the pages if that is less.
    #[setting(is = Integer(0, 1 << 40), image, shrinks)]
    pub write_buffer_size: u64,
    /// Most memtables, the active one included; a put that would need another one waits.
    #[setting(is = Integer(2, 64), image)]
    pub max_write_buffer_number: u32,
    /// Number of tables on level 0 at which they are merged into level 1.
    #[setting(is = Integer(1, 1 << 16))]
    pub level0_file_num_compaction_trigger: u32,
    /// Number of tables on level 0 at which puts are slowed down.
    #[setting(is = Integer(1, 1 << 16))]
    pub level0_slowdown_writes_trigger: u32,
    /// Number of tables on level 0 at which puts wait.
    #[setting(is = Integer(1, 1 << 16))]
    pub level0_stop_writes_trigger: u32,
    /// Most bytes of puts in a second while puts are slowed down.
    #[setting(is = Integer(1, 1 << 40), unit = Unit::BytesPerSecond)]
    pub delayed_write_rate: u64,
    /// Most bytes of level 1; 0: the bytes of four memtables.
    #[setting(is = Integer(0, 1 << 40), unit = Unit::Bytes, shrinks)]
    pub max_bytes_for_level_base: u64,
    /// How many times as large as the level before it each further level may be.
    #[setting(is = Integer(2, 1000))]
    pub max_bytes_for_level_multiplier: u32,
    /// Bytes of a table that a merge writes; 0: the bytes of a memtable.
    #[setting(is = Integer(0, 1 << 40), unit = Unit::Bytes, image, shrinks)]
    pub target_file_size_base: u64,
    /// Bytes of a block, the part of a table that is read to find a pair; rounded up to whole pages.
    #[setting(is = Integer(1, 1 << 20))]
    pub block_size: u32,
    /// Bits of a table's filter for each key; 0: no filter, as by default in RocksDB.
    #[setting(is = Integer(0, 64))]
    pub bloom_bits: u32,
    /// Bytes of the row cache: pairs found in tables and kept in memory. It is searched after the memtables,
    /// once for each table that may have the key.
    #[setting(is = Integer(0, 1 << 40), shrinks)]
    pub row_cache_bytes: u64,
    /// Bytes that the row cache charges for a pair besides its key and value.
    #[setting(is = Integer(0, 4096), when = &[When::on("lsmtree.row_cache_bytes")])]
    pub row_bytes: u32,
    /// Bytes of the block cache: blocks read for lookups and kept in memory.
    #[setting(is = Integer(0, 1 << 40), shrinks)]
    pub block_cache_bytes: u64,
    /// Whether pairs are written to a log before a table holds them. Without the log, a sync writes a table.
    #[setting(image)]
    pub wal: bool,
    /// `shared`: flushes and merges run on the cores that also serve commands; `own`: on one more core. Meanwhile puts
    /// continue, unless there are too many memtables or tables on level 0.
    pub background: Background,
}

/// What RocksDB's row cache charges for a row besides its key and value (test `a_row_counts_as_in_rocksdb`).
const ROW_BYTES: u32 = 115;

impl Default for LsmtreeOptions {
    fn default() -> Self {
        LsmtreeOptions {
            write_buffer_size: 64 << 20,
            max_write_buffer_number: 2,
            level0_file_num_compaction_trigger: 4,
            level0_slowdown_writes_trigger: 20,
            level0_stop_writes_trigger: 36,
            delayed_write_rate: 16 << 20,
            max_bytes_for_level_base: 256 << 20,
            max_bytes_for_level_multiplier: 10,
            target_file_size_base: 64 << 20,
            block_size: 4096,
            bloom_bits: 0,
            row_cache_bytes: 0,
            row_bytes: ROW_BYTES,
            block_cache_bytes: 0,
            wal: true,
            background: Background::Shared,
        }
    }
}

impl LsmtreeOptions {
    /// Gives the options that are 0 their values for this number of pages.
    pub fn fit(&mut self, page_bytes: u32, pages: u64) {
        const MEMTABLES: u64 = 256;
        let page = u64::from(page_bytes);
        if self.write_buffer_size == 0 {
            let most = LsmtreeOptions::default().write_buffer_size;
            self.write_buffer_size = (pages * page / MEMTABLES).clamp(2 * page, most);
        }
        if self.max_bytes_for_level_base == 0 {
            self.max_bytes_for_level_base = 4 * self.write_buffer_size;
        }
        if self.target_file_size_base == 0 {
            self.target_file_size_base = self.write_buffer_size;
        }
    }

    /// Checks the options for this number of pages. Errors: a line that begins with the key of an option.
    pub fn check(&self, page_bytes: u32, pages: u64) -> Result<(), String> {
        let at_least = |key: &str, value: u64, least: u64| match value < least {
            true => Err(format!("{key}: {value} is less than {least}")),
            false => Ok(()),
        };
        let page = u64::from(page_bytes);
        at_least("write_buffer_size", self.write_buffer_size, 2 * page)?;
        at_least("max_write_buffer_number", self.max_write_buffer_number.into(), 2)?;
        at_least("level0_file_num_compaction_trigger", self.level0_file_num_compaction_trigger.into(), 1)?;
        let trigger = self.level0_file_num_compaction_trigger;
        at_least(
            "level0_slowdown_writes_trigger",
            self.level0_slowdown_writes_trigger.into(),
            trigger.into(),
        )?;
        let slowdown = self.level0_slowdown_writes_trigger;
        at_least("level0_stop_writes_trigger", self.level0_stop_writes_trigger.into(), slowdown.into())?;
        at_least("delayed_write_rate", self.delayed_write_rate, 1)?;
        at_least("max_bytes_for_level_base", self.max_bytes_for_level_base, page)?;
        at_least("max_bytes_for_level_multiplier", self.max_bytes_for_level_multiplier.into(), 2)?;
        at_least("target_file_size_base", self.target_file_size_base, page)?;
        at_least("block_size", self.block_size.into(), 1)?;
        if self.bloom_bits > 64 {
            return Err(format!("bloom_bits: {} is more than 64", self.bloom_bits));
        }
        if pages > u32::MAX.into() {
            return Err(format!("write_buffer_size: {pages} pages are more than this store can number"));
        }
        let least = self.layout(page_bytes, pages).first_free + self.reserve_bytes() / page + 64;
        match pages < least {
            true => Err(format!("write_buffer_size: {pages} pages are too few, {least} are needed")),
            false => Ok(()),
        }
    }

    /// The division of the pages that these options ask for.
    pub(super) fn layout(&self, page_bytes: u32, pages: u64) -> Layout {
        let page = u64::from(page_bytes);
        // As many tables as fit if merges write them at full size, and half as many again for smaller ones;
        // each has a few runs of pages.
        let table_bytes = self.target_file_size_base.min(self.write_buffer_size);
        let tables = pages * page * 3 / 2 / table_bytes;
        let slot_pages = 4 + tables * TABLE_BYTES / (page - u64::from(FRAME_BYTES));
        // Memtables count more bytes than the log needs for them; syncs write pages that are not full, and if
        // the log is short of pages, a memtable is written early.
        let memtables = self.write_buffer_size * u64::from(self.max_write_buffer_number);
        let longest =
            u64::from(MAX_VALUE_BYTES).min(pages * page / 64) / (page - u64::from(FRAME_BYTES) - 64);
        let wal_pages = if self.wal { memtables / page + 2 * longest + 32 } else { 0 };
        let wal_first = 2 * slot_pages;
        Layout { page_bytes, slot_pages, wal_first, wal_pages, first_free: wal_first + wal_pages, pages }
    }

    /// Bytes of pages that puts leave free for writing memtables and for every merge: a merge's input stays
    /// until all of its output is written.
    pub fn reserve_bytes(&self) -> u64 {
        let top = u64::from(self.level0_file_num_compaction_trigger + 1) * self.write_buffer_size
            + 2 * self.max_bytes_for_level_base;
        let table = u64::from(self.max_bytes_for_level_multiplier + 4) * self.target_file_size_base;
        self.memtables_reserve_bytes() + top.max(table) * 2
    }

    /// The part of these for memtables.
    pub fn memtables_reserve_bytes(&self) -> u64 {
        u64::from(self.max_write_buffer_number + 1) * self.write_buffer_size * 3 / 2
    }
}
