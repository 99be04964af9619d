//! What a store stands on: numbered pages.
//!
//! On a host they are the blocks of a block namespace, in a drive the logical pages of a flash translation
//! layer; a store cannot tell. What pages keep is a [`Region`]: real bytes, or patterns that stand for them.

use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_spec::Status;

use crate::cpu::Thread;

/// The number of a page, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u64);

impl PageId {
    /// The page `pages` further on.
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

/// The content of a page. Shared, not copied, between a store and what keeps it.
pub type Page = Rc<Region>;

/// Why a store reads or writes. Every call says it, reports break their counts down by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Purpose {
    /// Pairs as they arrive: log blocks of `hashlog`.
    Log,
    /// The write-ahead log of `lsmtree`.
    Wal,
    /// A memtable becomes a table.
    Table,
    /// Tables are merged.
    Compaction,
    /// Which tables there are.
    Manifest,
    /// Nodes of `btree`, read or written on behalf of a pair.
    Node,
    /// Values in pages of their own.
    Overflow,
    /// Nodes and roots that are written so that what is in memory becomes durable.
    Checkpoint,
    /// A pair is looked up.
    Lookup,
    /// A cursor goes on.
    Cursor,
    /// Live pairs are moved out of space that is mostly dead.
    Cleaning,
    /// A store finds out what is on its pages.
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

/// What pages did not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("page {page}: {trouble}")]
pub struct PageError {
    /// The first page it is about.
    pub page: PageId,
    /// What is the matter.
    pub trouble: Trouble,
}

/// Why pages refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// It was written and cannot be read any more, or a cut of power has torn it.
    #[error("cannot be read")]
    Unreadable,
    /// It was written whole and cannot be read any more. Pages that say so are never torn: where a cut of
    /// power meets a write, they are as before or as afterwards.
    #[error("is lost")]
    Lost,
    /// Nothing more can be written.
    #[error("is read-only")]
    ReadOnly,
    /// The other side of a wire answered with this status.
    #[error("{0}")]
    Status(Status),
}

/// A write that has been started; [`PageStore::finish_write`] takes it.
#[derive(Debug)]
#[must_use = "a write that nobody finishes may have failed unseen"]
pub struct Writing(pub u64);

/// Pages.
///
/// **Every method may suspend its caller**: others then call the same store, and this store, before it
/// returns. No `RefCell` may be borrowed across a call.
///
/// What a cut of power leaves: writes and trims are certain once a [`PageStore::flush`] that began after they
/// had ended has ended. Of those that are not, each page is as it was, as it should become, or *torn*: then a
/// read fails, or, if the page is real bytes only, gives a mixture of both. Which pages, in which order, is
/// nobody's choice.
pub trait PageStore {
    /// Bytes of a page: a power of two from 512 to 32 768.
    fn page_bytes(&self) -> u32;

    /// How many there are.
    fn pages(&self) -> u64;

    /// Is it certain that nothing was ever written? Then nobody has to look at them one by one.
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

    /// Starts to write a run of consecutive pages. What is read of them before the write is finished is old
    /// or new.
    fn start_write(
        &self,
        thread: Thread,
        first: PageId,
        run: &[Page],
        why: Purpose,
    ) -> Result<Writing, PageError>;

    /// Returns when a write is done. Writes may be finished in any order.
    fn finish_write(&self, thread: Thread, writing: Writing) -> Result<(), PageError>;

    /// What `count` pages from `first` on hold is not needed any more. They read as zero afterwards.
    fn trim(&self, thread: Thread, first: PageId, count: u32, why: Purpose) -> Result<(), PageError>;

    /// Makes certain what was written and trimmed.
    fn flush(&self, thread: Thread, why: Purpose) -> Result<(), PageError>;
}

/// Pages that are shared.
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
