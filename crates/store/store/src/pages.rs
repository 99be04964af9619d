//! The pages on which a store works.
//!
//! On a host they are the blocks of a block namespace, in a drive the logical pages of a flash translation
//! layer; a store cannot tell the difference. The content of a page is a [`Region`]: real bytes, or patterns
//! that stand for them.

use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_content::Region;
use kvdrive_nvme::Status;

use crate::cpu::Thread;

/// The number of a page, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
pub struct PageId(pub u64);

impl PageId {
    /// The page `pages` pages later.
    #[must_use]
    pub fn plus(self, pages: u64) -> PageId {
        PageId(self.0 + pages)
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The content of a page. Shared, not copied, between a store and its pages.
pub type Page = Rc<Region>;

/// The purpose of a read or write. Every call has one, and reports break their counts down by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Purpose {
    /// Pairs as they arrive: log blocks of `hashlog`.
    Log,
    /// The write-ahead log of `lsmtree`.
    Wal,
    /// A memtable is written as a table.
    Table,
    /// Tables are merged.
    Compaction,
    /// The list of tables.
    Manifest,
    /// Nodes of `btree`, read or written on behalf of a pair.
    Node,
    /// Values in pages of their own.
    Overflow,
    /// Nodes and roots written to make the state in memory durable.
    Checkpoint,
    /// A pair is looked up.
    Lookup,
    /// A cursor advances.
    Cursor,
    /// Live pairs are moved out of space that is mostly dead.
    Cleaning,
    /// Recovery reads the pages.
    Recovery,
}

impl Purpose {
    /// Every purpose with its name in reports, in the order of the enum.
    pub const ALL: [(Purpose, &'static str); 12] = [
        (Purpose::Log, "log"),
        (Purpose::Wal, "wal"),
        (Purpose::Table, "table"),
        (Purpose::Compaction, "compaction"),
        (Purpose::Manifest, "manifest"),
        (Purpose::Node, "node"),
        (Purpose::Overflow, "overflow"),
        (Purpose::Checkpoint, "checkpoint"),
        (Purpose::Lookup, "lookup"),
        (Purpose::Cursor, "cursor"),
        (Purpose::Cleaning, "cleaning"),
        (Purpose::Recovery, "recovery"),
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        Purpose::ALL[self as usize].1
    }
}

/// A failure of the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("page {page}: {trouble}")]
pub struct PageError {
    /// The first page concerned.
    pub page: PageId,
    /// The kind of failure.
    pub trouble: Trouble,
}

/// Kinds of failures of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The page was written and cannot be read any more, or a power cut has torn it.
    #[error("cannot be read")]
    Unreadable,
    /// The page was written whole and cannot be read any more. Pages with this error are never torn: a power
    /// cut leaves a page as before or as after the write.
    #[error("is lost")]
    Lost,
    /// No more writes are possible.
    #[error("is read-only")]
    ReadOnly,
    /// The drive answered with this status.
    #[error("{0}")]
    Status(Status),
}

/// A started write; [`PageStore::finish_write`] takes it.
#[derive(Debug)]
#[must_use = "a write that is not finished may have failed unseen"]
pub struct Writing(pub u64);

/// Numbered pages.
///
/// **Every method may suspend its caller**: other threads may call the same pages, and the same store, before
/// it returns. No `RefCell` may be borrowed across a call.
///
/// Writes and trims survive a power cut if a [`PageStore::flush`] that began after they had ended has ended.
/// Each page of another write has its old content, its new content, or is *torn*: then a read fails, or, if the page
/// contains only real bytes, returns a mixture of both. Any of these pages may be affected, in any order.
pub trait PageStore {
    /// Bytes of a page: a power of two from 512 to 32 768.
    fn page_bytes(&self) -> u32;

    /// Number of pages.
    fn pages(&self) -> u64;

    /// Is it known that no page was ever written? Then the pages need not be read.
    fn is_blank(&self) -> bool {
        false
    }

    /// Reads `count` pages from `first` on and appends them to `out`. A page that was never written, or was
    /// trimmed, is zero.
    fn read(
        &self,
        thread: Thread,
        first: PageId,
        count: u32,
        why: Purpose,
        out: &mut Vec<Page>,
    ) -> Result<(), PageError>;

    /// Writes a run of consecutive pages and returns when it is done.
    fn write(&self, thread: Thread, first: PageId, run: &[Page], why: Purpose) -> Result<(), PageError> {
        let writing = self.start_write(thread, first, run, why)?;
        self.finish_write(thread, writing)
    }

    /// Starts to write a run of consecutive pages. A read of them before the write is finished returns old or
    /// new content.
    fn start_write(
        &self,
        thread: Thread,
        first: PageId,
        run: &[Page],
        why: Purpose,
    ) -> Result<Writing, PageError>;

    /// Returns when a write has ended. Writes may be finished in any order.
    fn finish_write(&self, thread: Thread, writing: Writing) -> Result<(), PageError>;

    /// Discards the content of `count` pages from `first` on. They read as zero afterwards.
    fn trim(&self, thread: Thread, first: PageId, count: u32, why: Purpose) -> Result<(), PageError>;

    /// Makes all ended writes and trims durable.
    fn flush(&self, thread: Thread, why: Purpose) -> Result<(), PageError>;
}

/// Shared pages.
impl<D: Deref<Target: PageStore>> PageStore for D {
    fn page_bytes(&self) -> u32 {
        (**self).page_bytes()
    }

    fn pages(&self) -> u64 {
        (**self).pages()
    }

    fn is_blank(&self) -> bool {
        (**self).is_blank()
    }

    fn read(
        &self,
        thread: Thread,
        first: PageId,
        count: u32,
        why: Purpose,
        out: &mut Vec<Page>,
    ) -> Result<(), PageError> {
        (**self).read(thread, first, count, why, out)
    }

    fn start_write(
        &self,
        thread: Thread,
        first: PageId,
        run: &[Page],
        why: Purpose,
    ) -> Result<Writing, PageError> {
        (**self).start_write(thread, first, run, why)
    }

    fn finish_write(&self, thread: Thread, writing: Writing) -> Result<(), PageError> {
        (**self).finish_write(thread, writing)
    }

    fn trim(&self, thread: Thread, first: PageId, count: u32, why: Purpose) -> Result<(), PageError> {
        (**self).trim(thread, first, count, why)
    }

    fn flush(&self, thread: Thread, why: Purpose) -> Result<(), PageError> {
        (**self).flush(thread, why)
    }
}
