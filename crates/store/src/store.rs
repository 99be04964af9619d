//! What every store does, and what it may answer.

use std::rc::Rc;

use kvdrive_spec::{Key, Status};
use serde::{Deserialize, Serialize};

use crate::cpu::{Cpu, Thread};
use crate::pages::{Page, PageError, PageId, PageStore, Purpose, Trouble};
use crate::value::{Kept, Value};

/// The longest value any store takes: 2 MiB. One may take less, if its pages are few.
pub const MAX_VALUE_BYTES: u32 = 2 << 20;

/// What a store stands on.
#[derive(Clone)]
pub struct Ground {
    /// Its pages. They are the store's alone.
    pub pages: Rc<dyn PageStore>,
    /// Its processor.
    pub cpu: Rc<dyn Cpu>,
    /// How many threads may call; they are numbered from 0. If the store has work for the background
    /// ([`crate::StoreRow::background`]), the last [`BACKGROUND_THREADS`] are those that [`run_background`].
    pub threads: u32,
}

impl Ground {
    /// Reads a page for recovery; `None`: a cut of power may have torn it.
    ///
    /// Errors: it is certain that it was whole.
    pub(crate) fn read_unless_torn(&self, thread: Thread, page: PageId) -> Result<Option<Page>, PageError> {
        let mut out = Vec::with_capacity(1);
        match self.pages.read(thread, page, 1, Purpose::Recovery, &mut out) {
            Ok(()) => Ok(out.pop()),
            Err(PageError { trouble: Trouble::Unreadable, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Why a store did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Its pages refused.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A page does not hold what was written there.
    #[error("page {page}: {what}")]
    Damaged {
        /// Which page.
        page: PageId,
        /// What is wrong with it.
        what: String,
    },
    /// There is no room for this.
    #[error("the store is full")]
    Full,
    /// There would be room if open cursors did not hold it.
    #[error("open cursors hold the room that is needed")]
    HeldByCursors,
    /// The value is longer than this store takes.
    #[error("a value of {bytes} B; the longest this store takes has {most} B")]
    ValueTooLong {
        /// Its length.
        bytes: u32,
        /// The longest.
        most: u32,
    },
}

impl StoreError {
    /// The status a drive answers with.
    pub fn status(&self) -> Status {
        match self {
            StoreError::Page(PageError { trouble: Trouble::Unreadable | Trouble::Lost, .. })
            | StoreError::Damaged { .. } => Status::UNRECOVERED_ERROR,
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
pub enum Request<'a> {
    /// The key gets this value.
    Put(Key, Value<'a>),
    /// The key has no value any more.
    Delete(Key),
}

impl<'a> Request<'a> {
    pub(crate) fn parts(&self) -> (Key, Option<Value<'a>>) {
        match *self {
            Request::Put(key, value) => (key, Some(value)),
            Request::Delete(key) => (key, None),
        }
    }
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// How many requests, from the first on, were carried out.
    pub requests: u32,
    /// Why the next one was not.
    pub error: Option<StoreError>,
}

/// A walk over the pairs as they were when it was opened. Dropping it gives back what it holds.
pub trait Cursor {
    /// The next pair.
    fn next(&mut self, thread: Thread) -> Result<Option<(Key, Kept)>, StoreError>;
}

/// What a store found when it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Pages it read.
    pub pages: u64,
    /// Pages that cannot be read or were torn, and had never become certain.
    pub torn_pages: u64,
    /// Pages that had become certain and do not hold what they should. What was on them is lost, and asking
    /// for it is an error.
    pub lost_pages: u64,
    /// Records that were on pages, and were not whole.
    pub dropped_records: u64,
}

/// Threads for background work: one writes memtables while the other one merges.
pub const BACKGROUND_THREADS: u32 = 2;

/// Longest time for which background work has a core that serves before whoever serves has it, ns: 50 us, what a
/// page read from flash takes, so it is as if a command had read one page more. A scheduler of an operating
/// system has slices of 3 ms, but lets whoever wakes up go first.
pub const BACKGROUND_SLICE_NS: u64 = 50_000;

/// On whose cores background work is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Background {
    /// On those that serve, in slices of [`BACKGROUND_SLICE_NS`].
    #[default]
    Shared,
    /// On one more, that nobody else has.
    Own,
}

/// Does background work for ever: what a thread for it runs. A job that fails is tried again when somebody asks
/// for it.
pub fn run_background(store: &dyn Store, cpu: &dyn Cpu, thread: Thread) {
    loop {
        do_background(store, thread);
        cpu.wait(thread);
    }
}

/// Does the background work that there is now: for somebody who has no threads for it.
pub fn do_background(store: &dyn Store, thread: Thread) {
    while store.background_due() && store.background_step(thread) == Ok(true) {}
}

/// A key-value store.
///
/// Several threads may be inside a store at once; they alternate where a store calls its pages or its
/// processor. What one call did is seen by every call that begins after it has ended.
pub trait Store {
    /// Finds out what is on the pages; must be the first call. Pages that are all zero are an empty store.
    ///
    /// Errors: a page that had become certain does not hold what it should, or belongs to a store with other
    /// options.
    fn recover(&self, thread: Thread) -> Result<Recovered, StoreError> {
        self.recover_from(thread, &[])
    }

    /// As [`Store::recover`], for somebody who remembers a [`Store::mark`]; empty: nobody does.
    ///
    /// Errors: also that the pages do not have all that was certain at that mark.
    fn recover_from(&self, thread: Thread, mark: &[u8]) -> Result<Recovered, StoreError>;

    /// What to remember of a [`Store::sync`] that has just ended, while no other call runs. Where writes end,
    /// pages cannot tell what was lost from what was never written: an older version of a page may be all
    /// there is. Somebody with memory of his own that survives a cut of power can.
    fn mark(&self) -> Vec<u8>;

    /// Gives `key` this value. It survives a cut of power when a [`Store::sync`] that began afterwards has
    /// ended.
    ///
    /// After [`StoreError::Page`] the value may have been taken or not; after any other error it was not.
    fn put(&self, thread: Thread, key: Key, value: Value<'_>) -> Result<(), StoreError>;

    /// As [`Store::put`], of a pair that was taken before a cut of power, by somebody who has told of it and remembers
    /// it. There was room for it among the others, so it may have what puts leave free, as a delete may: what
    /// recovery has written once more takes room until there is a merge or a checkpoint.
    fn put_again(&self, thread: Thread, key: Key, value: Value<'_>) -> Result<(), StoreError> {
        self.put(thread, key, value)
    }

    /// The value of `key`.
    fn get(&self, thread: Thread, key: Key) -> Result<Option<Kept>, StoreError>;

    /// Takes the value of `key` away; there need not be one.
    fn delete(&self, thread: Thread, key: Key) -> Result<(), StoreError>;

    /// Carries requests out in order and stops at the first that cannot be. An *atomic* batch is carried out
    /// wholly or not at all, to other callers and to a cut of power.
    fn apply(&self, thread: Thread, batch: &[Request<'_>], atomic: bool) -> Applied;

    /// A walk over the pairs there are now, from the first at or after `from`, in the order of keys.
    fn cursor(&self, thread: Thread, from: Option<Key>) -> Result<Box<dyn Cursor>, StoreError>;

    /// Makes certain what every call that has ended did.
    fn sync(&self, thread: Thread) -> Result<(), StoreError>;

    /// Is there work that could be done in the background?
    fn background_due(&self) -> bool {
        false
    }

    /// Does a piece of that work; `false` if there was none. Several threads may do so at once.
    fn background_step(&self, _thread: Thread) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Longest value it takes, bytes.
    fn max_value_bytes(&self) -> u32;

    /// Bytes its pairs take of its pages, and the most that they could take.
    fn space(&self) -> Space;

    /// What it has done to get room back since it was made.
    fn reclaimed(&self) -> Reclaimed {
        Reclaimed::default()
    }

    /// What it counted since it was made, by names of its own. Names that end in `_now` are states.
    fn counters(&self) -> Vec<(&'static str, u64)>;

    /// Memory it takes, in bytes, by names of its own.
    fn dram(&self) -> Vec<(&'static str, u64)>;
}

/// A way to get room back that a store may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// Segments are emptied and given back.
    Segments,
    /// Tables are merged.
    Merges,
}

/// What a store has done to get room back, by [`Reclaim`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Values that were moved out of segments.
    pub values: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Segments that were given back.
    pub segments: u64,
    /// Merges of tables.
    pub merges: u64,
}

/// How full a store is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of pages in use for pairs that are live, as far as the store knows.
    pub live_bytes: u64,
    /// The most there can be.
    pub capacity_bytes: u64,
}

/// Bytes that a [`Store::mark`] has at most: a number, and what is open of each thread and of cleaning.
pub fn most_mark_bytes(threads: u32) -> u64 {
    8 + 16 * u64::from(threads + 1)
}

/// The number that a mark is; 0 if there is none.
pub(crate) fn mark_number(mark: &[u8]) -> u64 {
    mark.first_chunk().map_or(0, |number| u64::from_le_bytes(*number))
}

/// [`Store::apply`] of a batch that need not be atomic.
pub(crate) fn apply_in_order(store: &dyn Store, thread: Thread, batch: &[Request<'_>]) -> Applied {
    for (done, request) in (0..).zip(batch) {
        let result = match *request {
            Request::Put(key, value) => store.put(thread, key, value),
            Request::Delete(key) => store.delete(thread, key),
        };
        if let Err(error) = result {
            return Applied { requests: done, error: Some(error) };
        }
    }
    Applied { requests: batch.len() as u32, error: None }
}
