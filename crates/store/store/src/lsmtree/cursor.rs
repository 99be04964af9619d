//! A cursor of `lsmtree`: memtables as of a sequence number, and the tables of one version.

use std::collections::VecDeque;
use std::ops::Bound;
use std::rc::Rc;

use kvdrive_nvme::Key;

use super::Tree;
use super::memtable::{Memtable, Pair};
use super::table::{Table, TableStream};
use crate::cpu::{Step, Thread};
use crate::pages::Purpose;
use crate::store::{Cursor, StoreError};
use crate::value::StoredValue;

/// Pairs taken from a memtable at a time.
const PAIRS_AT_ONCE: usize = 16;
/// Pages of a table read at a time.
const PAGES_AT_ONCE: u32 = 4;

/// A run of pairs in order.
enum Source {
    Memory {
        memtable: Rc<Memtable>,
        from: Bound<Key>,
        ready: VecDeque<Pair>,
    },
    /// Tables that follow each other; the first one is being read.
    Tables {
        streams: VecDeque<TableStream>,
    },
}

/// Position of a cursor.
pub struct LsmtreeCursor {
    tree: Rc<Tree>,
    upto: u64,
    /// Newest first.
    sources: Vec<Source>,
}

impl LsmtreeCursor {
    /// A cursor over the present pairs.
    pub fn open(tree: &Rc<Tree>, thread: Thread, from: Option<Key>) -> LsmtreeCursor {
        let (upto, sources) = {
            let state = tree.state.borrow();
            let start = from.map_or(Bound::Unbounded, Bound::Included);
            let memtables = std::iter::once(&state.active).chain(state.full.iter().rev());
            let memory = memtables.map(|memtable| Source::Memory {
                memtable: memtable.clone(),
                from: start,
                ready: VecDeque::new(),
            });
            let walk = |tables: &mut dyn Iterator<Item = &Rc<Table>>| {
                let wanted = tables.filter(|table| from.is_none_or(|from| table.max >= from));
                Source::Tables {
                    streams: wanted.map(|table| TableStream::new(table.clone(), from)).collect(),
                }
            };
            let top = state.version.levels[0].iter().rev().map(|table| walk(&mut std::iter::once(table)));
            let deeper = state.version.levels[1..].iter().map(|level| walk(&mut level.iter()));
            (state.sequence, memory.chain(top).chain(deeper).collect())
        };
        let walk = LsmtreeCursor { tree: tree.clone(), upto, sources };
        tree.work(thread, &[(Step::IndexSearch, walk.sources.len() as u64)]);
        walk
    }
}

impl Source {
    fn fill(&mut self, tree: &Tree, thread: Thread, upto: u64) -> Result<(), StoreError> {
        match self {
            Source::Memory { memtable, from, ready } => {
                if ready.is_empty() {
                    ready.extend(memtable.next(*from, upto, PAIRS_AT_ONCE));
                    if let Some((last, _)) = ready.back() {
                        *from = Bound::Excluded(*last);
                    }
                }
            }
            Source::Tables { streams } => {
                while let Some(stream) = streams.front_mut() {
                    let read = stream.fill(&tree.ground.pages, thread, Purpose::Cursor, PAGES_AT_ONCE)?;
                    if read > 0 {
                        tree.work(thread, &[(Step::MergeEntry, read)]);
                    }
                    if !stream.ready.is_empty() {
                        break;
                    }
                    streams.pop_front();
                }
            }
        }
        Ok(())
    }

    fn ready(&mut self) -> Option<&mut VecDeque<Pair>> {
        match self {
            Source::Memory { ready, .. } => Some(ready),
            Source::Tables { streams } => streams.front_mut().map(|stream| &mut stream.ready),
        }
    }
}

impl Cursor for LsmtreeCursor {
    fn next(&mut self, thread: Thread) -> Result<Option<(Key, StoredValue)>, StoreError> {
        loop {
            for source in &mut self.sources {
                source.fill(&self.tree, thread, self.upto)?;
            }
            let heads = self.sources.iter_mut().filter_map(|source| source.ready()?.front());
            let Some(lowest) = heads.map(|(key, _)| *key).min() else { return Ok(None) };
            let mut newest = None;
            for ready in self.sources.iter_mut().filter_map(Source::ready) {
                if ready.front().is_some_and(|(key, _)| *key == lowest) {
                    let pair = ready.pop_front();
                    newest = newest.or(pair);
                }
            }
            if let Some((key, Some(value))) = newest {
                return Ok(Some((key, value)));
            }
        }
    }
}
