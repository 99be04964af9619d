//! The interface of every store, and its errors.

use std::rc::Rc;

use kvdrive_declare::{Counts, Words};
use kvdrive_nvme::{Key, Status};

use crate::cpu::{Cpu, Thread};
use crate::pages::{Page, PageError, PageId, PageStore, Purpose, Trouble};
use crate::value::{StoredValue, Value};

/// The longest value that any store accepts: 2 MiB. A store with few pages may accept less.
pub const MAX_VALUE_BYTES: u32 = 2 << 20;

/// The environment of a store.
#[derive(Clone)]
pub struct Ground {
    /// Its pages, which it owns exclusively.
    pub pages: Rc<dyn PageStore>,
    /// Its processor.
    pub cpu: Rc<dyn Cpu>,
    /// Number of threads that may call, numbered from 0. If the store has background work
    /// ([`crate::StoreRow::background`]), the last [`BACKGROUND_THREADS`] of them run [`run_background`].
    pub threads: u32,
}

impl Ground {
    /// Reads a page for recovery; `None`: a power cut may have torn it.
    ///
    /// Errors: the page is unreadable although it was durably whole.
    pub(crate) fn read_unless_torn(&self, thread: Thread, page: PageId) -> Result<Option<Page>, PageError> {
        let mut out = Vec::with_capacity(1);
        match self.pages.read(thread, page, 1, Purpose::Recovery, &mut out) {
            Ok(()) => Ok(out.pop()),
            Err(PageError { trouble: Trouble::Unreadable, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Why an operation of a store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The pages failed.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A page has the wrong content.
    #[error("page {page}: {what}")]
    Damaged {
        /// The page.
        page: PageId,
        /// The flaw.
        what: String,
    },
    /// Another version of this program wrote a page. It is not damaged, and no recovery may pass over it as over a torn one.
    #[error(
        "page {page}: is of version {found}, which another kvdrive wrote; kvdrive {} reads version {known}",
        env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// The page.
        page: PageId,
        /// Its version.
        found: u8,
        /// The version that this program reads.
        known: u8,
    },
    /// There is no room.
    #[error("the store is full")]
    Full,
    /// Open cursors hold the room that the call needs.
    #[error("open cursors hold the room that is needed")]
    HeldByCursors,
    /// The value is longer than the store accepts.
    #[error("a value of {bytes} B; the longest this store takes has {most} B")]
    ValueTooLong {
        /// Its length.
        bytes: u32,
        /// The longest accepted value, bytes.
        most: u32,
    },
}

impl StoreError {
    /// Does the error concern a page's content, and not the medium?
    pub(crate) fn is_about_content(&self) -> bool {
        let StoreError::Page(PageError { trouble, .. }) = self else {
            return matches!(self, StoreError::Damaged { .. });
        };
        matches!(trouble, Trouble::Unreadable | Trouble::Lost)
    }

    /// Nothing, if a power cut may have left the page like this.
    ///
    /// # Errors
    /// The error, unless it concerns a page's content.
    pub(crate) fn unless_torn<T>(self) -> Result<Option<T>, StoreError> {
        if self.is_about_content() { Ok(None) } else { Err(self) }
    }

    /// The status with which a drive answers.
    pub fn status(&self) -> Status {
        match self {
            StoreError::Page(PageError { trouble: Trouble::Unreadable | Trouble::Lost, .. })
            | StoreError::Damaged { .. }
            | StoreError::Version { .. } => Status::UNRECOVERED_ERROR,
            StoreError::Page(PageError { trouble: Trouble::ReadOnly, .. }) => Status::INTERNAL,
            StoreError::Page(PageError { trouble: Trouble::Status(status), .. }) => *status,
            StoreError::Full => Status::CAPACITY_EXCEEDED,
            StoreError::HeldByCursors => Status::COMMAND_INTERRUPTED,
            StoreError::ValueTooLong { .. } => Status::INVALID_VALUE_SIZE,
        }
    }
}

/// A request of a batch.
#[derive(Clone, Copy, Debug)]
pub enum StoreRequest<'a> {
    /// Stores a value.
    Put(Key, Value<'a>),
    /// Deletes a key.
    Delete(Key),
}

impl<'a> StoreRequest<'a> {
    pub(crate) fn parts(&self) -> (Key, Option<Value<'a>>) {
        match *self {
            StoreRequest::Put(key, value) => (key, Some(value)),
            StoreRequest::Delete(key) => (key, None),
        }
    }
}

/// The result of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Number of requests executed, from the first on.
    pub requests: u32,
    /// Why the next one failed.
    pub error: Option<StoreError>,
}

/// Iterates over the pairs as they were when it was opened. Dropping it releases its resources.
pub trait Cursor {
    /// The next pair.
    fn next(&mut self, thread: Thread) -> Result<Option<(Key, StoredValue)>, StoreError>;
}

/// Findings of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Pages it read.
    pub pages: u64,
    /// Pages that are unreadable or torn and had never become durable.
    pub torn_pages: u64,
    /// Pages that had become durable and have the wrong content. Their data is lost, and reading it is an
    /// error.
    pub lost_pages: u64,
    /// Incomplete records found on pages.
    pub dropped_records: u64,
}

/// Threads for background work: one writes memtables while the other merges.
pub const BACKGROUND_THREADS: u32 = 2;

/// Longest time, in ns, for which background work occupies a core that also serves commands: 50 us, the time
/// of one page read from flash, so a command waits at most as long as for one more read. An operating
/// system's time slices are 3 ms, but its scheduler prefers threads that wake up.
pub const BACKGROUND_SLICE_NS: u64 = 50_000;

/// The cores for background work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum Background {
    /// The cores that serve commands, in slices of [`BACKGROUND_SLICE_NS`].
    #[default]
    Shared,
    /// One dedicated core.
    Own,
}

/// Does background work for ever: the body of a background thread. A failed job is tried again when work is
/// requested again.
pub fn run_background(store: &dyn Store, cpu: &dyn Cpu, thread: Thread) {
    loop {
        do_background(store, thread);
        cpu.wait(thread);
    }
}

/// Does all background work that is due now: for callers without background threads.
pub fn do_background(store: &dyn Store, thread: Thread) {
    while store.background_due() && store.background_step(thread) == Ok(true) {}
}

/// A key-value store.
///
/// Several threads may be inside a store at once; they alternate where a store calls its pages or its
/// processor. The effect of a call is visible to every call that begins after it has ended.
pub trait Store {
    /// Recovers the state from the pages; must be the first call. Pages that are all zero are an empty store.
    ///
    /// Errors: a page that had become durable has the wrong content, or belongs to a store with other
    /// options.
    fn recover(&self, thread: Thread) -> Result<Recovered, StoreError> {
        self.recover_from(thread, &[])
    }

    /// As [`Store::recover`], with a remembered [`Store::mark`], which may be empty.
    ///
    /// Errors: also that the pages lack data that was durable at that mark.
    fn recover_from(&self, thread: Thread, mark: &[u8]) -> Result<Recovered, StoreError>;

    /// The mark to keep after a [`Store::sync`] has ended, while no other call runs. At the end of the
    /// written pages, the pages alone cannot tell lost data from data that was never written: an older
    /// version of a page may be all that is left. With the mark, a caller whose memory survives a power cut
    /// can tell.
    fn mark(&self) -> Vec<u8>;

    /// Stores `value` under `key`. It survives a power cut once a [`Store::sync`] that began afterwards has
    /// ended.
    ///
    /// After [`StoreError::Page`] the value may have been stored or not; after any other error it was not.
    fn put(&self, thread: Thread, key: Key, value: Value<'_>) -> Result<(), StoreError>;

    /// As [`Store::put`], for a pair that was accepted before a power cut and is put again by the caller that
    /// logged it. It fitted before, so it may use the room that other puts leave free, as a delete may: data
    /// that recovery has written again takes room until a merge or a checkpoint.
    fn put_again(&self, thread: Thread, key: Key, value: Value<'_>) -> Result<(), StoreError> {
        self.put(thread, key, value)
    }

    /// The value of `key`.
    fn get(&self, thread: Thread, key: Key) -> Result<Option<StoredValue>, StoreError>;

    /// Deletes the value of `key`, if there is one.
    fn delete(&self, thread: Thread, key: Key) -> Result<(), StoreError>;

    /// Executes requests in order and stops at the first that fails. An *atomic* batch is executed wholly or
    /// not at all, as seen by other callers and after a power cut.
    fn apply(&self, thread: Thread, batch: &[StoreRequest<'_>], atomic: bool) -> Applied;

    /// A cursor over the present pairs, from the first at or after `from`, in the order of keys.
    fn cursor(&self, thread: Thread, from: Option<Key>) -> Result<Box<dyn Cursor>, StoreError>;

    /// Makes the effects of every ended call durable.
    fn sync(&self, thread: Thread) -> Result<(), StoreError>;

    /// Is background work due?
    fn background_due(&self) -> bool {
        false
    }

    /// Does one piece of background work; `false` if there was none. Several threads may call it at once.
    fn background_step(&self, _thread: Thread) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Longest accepted value, bytes.
    fn max_value_bytes(&self) -> u32;

    /// Bytes of its pages used by pairs, and the maximum.
    fn space(&self) -> Space;

    /// Its counts since it was created.
    fn counts(&self) -> Counts;

    /// Memory it uses, in bytes.
    fn dram(&self) -> Counts;
}

/// Fill level of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of pages used for live pairs, as far as the store knows.
    pub live_bytes: u64,
    /// The most of these bytes that fits. Pairs that fill their pages badly count with all of them.
    pub capacity_bytes: u64,
}

/// Largest size of a [`Store::mark`] in bytes: a number, and the open pages of each thread and of cleaning.
pub fn most_mark_bytes(threads: u32) -> u64 {
    8 + 16 * u64::from(threads + 1)
}

/// The number in a mark; 0 if there is none.
pub(crate) fn mark_number(mark: &[u8]) -> u64 {
    mark.first_chunk().map_or(0, |number| u64::from_le_bytes(*number))
}

/// [`Store::apply`] of a batch that need not be atomic.
pub(crate) fn apply_in_order(store: &dyn Store, thread: Thread, batch: &[StoreRequest<'_>]) -> Applied {
    for (done, request) in (0..).zip(batch) {
        let result = match *request {
            StoreRequest::Put(key, value) => store.put(thread, key, value),
            StoreRequest::Delete(key) => store.delete(thread, key),
        };
        if let Err(error) = result {
            return Applied { requests: done, error: Some(error) };
        }
    }
    Applied { requests: batch.len() as u32, error: None }
}
