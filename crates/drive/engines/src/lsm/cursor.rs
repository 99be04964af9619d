//! The index as it was at one moment, and walks through it in key order.
//!
//! A snapshot costs a sorted copy of the memtables and a pin on the tables; later insertions, flushes and
//! merges do not change it. It does not pin *values*: a reader of values pins the segments of the value log as
//! well.

use std::rc::Rc;

use kvdrive_flash::Purpose;
use kvdrive_nvme::{Key, Status};

use super::entry::Entry;
use super::layout::{Layout, Start};
use super::levels::Version;
use super::memtable::Pair;
use super::merge::{MergedRuns, Source};
use super::table::TableStream;
use crate::Gap;

/// The index at one moment. Cheap to clone.
#[derive(Clone)]
pub struct Snapshot {
    layout: Rc<dyn Layout>,
    /// Sorted copies of the memtables, newest first.
    memory: Vec<Rc<[Pair]>>,
    tables: Rc<Version>,
}

impl Snapshot {
    pub(super) fn new(layout: Rc<dyn Layout>, memory: Vec<Rc<[Pair]>>, tables: Rc<Version>) -> Snapshot {
        Snapshot { layout, memory, tables }
    }

    /// A cursor before the first key that is not below `from` (`None`: before the first key). Reads nothing
    /// yet.
    pub fn cursor(&self, from: Option<Key>) -> Cursor {
        let memory = self.memory.iter().map(|run| {
            let skip = from.map_or(0, |from| run.partition_point(|(key, _)| *key < from));
            Source::Memory(run.clone(), skip)
        });
        let wanted =
            self.tables.newest_first().filter(|table| from.is_none_or(|from| table.facts.max >= from));
        let tables = wanted.map(|table| {
            // Bisection only where it is needed: a table that starts above the key is read from its
            // beginning.
            let start = from.filter(|from| table.facts.min < *from).map_or(Start::First, Start::Key);
            Source::Table(TableStream::new(&*self.layout, table.clone(), start, 1, Purpose::Cursor))
        });
        let sources = memory.chain(tables).collect();
        Cursor {
            snapshot: self.clone(),
            runs: MergedRuns::new(sources, from),
            from,
            has_lost: false,
            gap: Gap::default(),
        }
    }
}

/// A walk through a [`Snapshot`] in key order. Holds one page of each part of each table it is in.
pub struct Cursor {
    snapshot: Snapshot,
    runs: MergedRuns,
    /// Where it began.
    from: Option<Key>,
    /// A page was passed over, so that keys below `from` may come.
    has_lost: bool,
    /// Keys that the page passed over last may have held.
    gap: Gap,
}

impl Cursor {
    /// Goes to before the first key that is not below `key`.
    pub fn seek(&mut self, key: Key) {
        *self = self.snapshot.cursor(Some(key));
    }

    /// Keys that the last [`Cursor::next_pair`] which failed may have passed over.
    pub fn gap(&self) -> Gap {
        self.gap
    }

    /// The next key whose newest entry is not a tombstone, and that entry.
    ///
    /// `UNRECOVERED_ERROR` when a page is damaged or a table lost: [`Cursor::gap`] has the range of keys that may be
    /// missing. The next call continues after it; entries that it returns may be older than lost ones.
    pub fn next_pair(&mut self) -> Result<Option<Pair>, Status> {
        loop {
            let merged = match self.runs.next_merged() {
                Ok(Some(merged)) => merged,
                Ok(None) => return Ok(None),
                Err(status) => {
                    if status != Status::COMMAND_INTERRUPTED {
                        self.gap = self.runs.gap();
                        self.runs.skip();
                        self.has_lost = true;
                    }
                    return Err(status);
                }
            };
            let is_asked_for = !self.has_lost || self.from.is_none_or(|from| merged.key >= from);
            if is_asked_for && merged.newest && !merged.entry.tombstone {
                let pair: (Key, Entry) = (merged.key, merged.entry);
                return Ok(Some(pair));
            }
        }
    }
}
