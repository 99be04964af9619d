//! Layout of the pages of `lsmtree`.

use super::options::LsmtreeOptions;
use crate::frame::FRAME_BYTES;
use crate::store::MAX_VALUE_BYTES;

/// Bytes of a table in a manifest: 71, and 12 for each of eight runs of pages.
const TABLE_BYTES: u64 = 168;

/// The division of the pages: manifest slots, log, tables.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of one of the two manifest slots, which begin at page 0.
    pub slot_pages: u64,
    /// First page of the write-ahead log.
    pub wal_first: u64,
    /// Its pages, used in turn.
    pub wal_pages: u64,
    /// First page of tables.
    pub first_free: u64,
    /// All pages.
    pub pages: u64,
}

impl Layout {
    /// The layout that options ask for.
    pub fn new(options: &LsmtreeOptions, page_bytes: u32, pages: u64) -> Layout {
        let page = u64::from(page_bytes);
        // As many tables as fit if merges write them of full size, half as many again for the others, each
        // with a few runs of pages.
        let table_bytes = options.target_file_size_base.min(options.write_buffer_size);
        let tables = pages * page * 3 / 2 / table_bytes;
        let slot_pages = 4 + tables * TABLE_BYTES / (page - u64::from(FRAME_BYTES));
        // Memtables are counted with more than a log needs for them; syncs leave pages that are not full, and
        // when the log is short of pages, a memtable is written early.
        let memtables = options.write_buffer_size * u64::from(options.max_write_buffer_number);
        let longest =
            u64::from(MAX_VALUE_BYTES).min(pages * page / 64) / (page - u64::from(FRAME_BYTES) - 64);
        let wal_pages = if options.wal { memtables / page + 2 * longest + 32 } else { 0 };
        let wal_first = 2 * slot_pages;
        Layout { page_bytes, slot_pages, wal_first, wal_pages, first_free: wal_first + wal_pages, pages }
    }
}
