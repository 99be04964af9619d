//! Layout of the pages of `lsmtree`.

/// The division of the pages: manifest slots, log, tables.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of one of the two manifest slots, which begin at page 0.
    pub slot_pages: u64,
    /// First page of the write-ahead log.
    pub wal_first: u64,
    /// Pages of the log, used as a ring.
    pub wal_pages: u64,
    /// First page of tables.
    pub first_free: u64,
    /// All pages.
    pub pages: u64,
}
