//! Several sorted runs of entries as one: a heap of their heads, newest run first where keys are equal.
//!
//! Used by flushes and compaction ([`super::index`]) and by cursors ([`super::cursor`]). A run that starts above the
//! present key is not touched: its lower bound stands in for its head until the merge gets there.

use std::rc::Rc;

use kvdrive_spec::{Key, Status};

use super::entry::Entry;
use super::memtable::Pair;
use super::table::{Pull, TableStream};

/// One sorted run.
pub enum Source {
    /// In memory: the run and the position in it.
    Memory(Rc<[Pair]>, usize),
    /// A table.
    Table(TableStream),
}

impl Source {
    fn pull(&mut self) -> Result<Pull, Status> {
        match self {
            Source::Memory(run, next) => match run.get(*next) {
                Some((key, entry)) => {
                    *next += 1;
                    Ok(Pull::Pair(*key, *entry))
                }
                None => Ok(Pull::End),
            },
            Source::Table(stream) => stream.pull(),
        }
    }
}

/// A pair of one of the runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Merged {
    /// Its key.
    pub key: Key,
    /// Its entry.
    pub entry: Entry,
    /// Which run it came from.
    pub source: usize,
    /// No newer run has an entry of this key.
    pub newest: bool,
}

/// The lowest pair of a run that has not been given out.
struct Head {
    key: Key,
    /// `None`: not known yet, `key` is a lower bound.
    entry: Option<Entry>,
    source: usize,
}

impl Head {
    #[inline]
    fn before(&self, other: &Head) -> bool {
        (self.key, self.source) < (other.key, other.source)
    }
}

/// Runs being merged.
pub struct MergedRuns {
    /// Newest first.
    sources: Vec<Source>,
    /// A binary heap, lowest head on top.
    heads: Vec<Head>,
    last: Option<Key>,
}

impl MergedRuns {
    /// Merges runs, newest first, all of them from `from` on (or from their beginning).
    pub fn new(sources: Vec<Source>, from: Option<Key>) -> MergedRuns {
        let lowest = Key::from_padded([0; 16], 1).expect("one byte is a key");
        let from = from.unwrap_or(lowest);
        let bound = |source: &Source| match source {
            Source::Memory(run, next) => run.get(*next).map_or(from, |pair| pair.0),
            Source::Table(stream) => stream.table().facts.min.max(from),
        };
        let head = |(source, run): (usize, &Source)| Head { key: bound(run), entry: None, source };
        let mut heads: Vec<Head> = sources.iter().enumerate().map(head).collect();
        // Ascending order is a heap.
        heads.sort_unstable_by_key(|head| (head.key, head.source));
        MergedRuns { sources, heads, last: None }
    }

    /// The next pair of any run: keys ascend, newer runs first. Reads what has to be read.
    #[inline]
    pub async fn next(&mut self) -> Result<Option<Merged>, Status> {
        loop {
            let Some(top) = self.heads.first() else { return Ok(None) };
            let (key, source) = (top.key, top.source);
            let Some(entry) = top.entry else {
                self.load(source).await?;
                continue;
            };
            // The run's next pair is fetched by the next call, so that an error does not hide this one.
            self.heads[0].entry = None;
            let newest = self.last != Some(key);
            self.last = Some(key);
            return Ok(Some(Merged { key, entry, source, newest }));
        }
    }

    /// Gets the real head of the run on top of the heap.
    #[inline]
    async fn load(&mut self, source: usize) -> Result<(), Status> {
        loop {
            match self.sources[source].pull()? {
                Pull::Pair(key, entry) => {
                    self.heads[0] = Head { key, entry: Some(entry), source };
                    break;
                }
                Pull::End => {
                    self.heads.swap_remove(0);
                    break;
                }
                Pull::Blocked => {
                    if let Source::Table(stream) = &mut self.sources[source] {
                        stream.refill().await?;
                    }
                }
            }
        }
        self.sift_down();
        Ok(())
    }

    #[inline]
    fn sift_down(&mut self) {
        let mut at = 0;
        loop {
            let mut lowest = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heads.len() && self.heads[child].before(&self.heads[lowest]) {
                    lowest = child;
                }
            }
            if lowest == at {
                return;
            }
            self.heads.swap(at, lowest);
            at = lowest;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kvdrive_sim::Sim;
    use proptest::prelude::*;

    use super::*;
    use crate::value_log::Vaddr;

    proptest! {
        #[test]
        fn a_merge_is_the_sorted_union_and_marks_the_newest(
            runs in proptest::collection::vec(proptest::collection::btree_set(0u32..60, 0..30), 0..7),
        ) {
            let mut expected = BTreeMap::new();
            let mut sources = Vec::new();
            for (source, run) in runs.iter().enumerate() {
                let pair = |number: &u32| {
                    let address = Vaddr(source as u64);
                    (Key::from_u32_be(*number), Entry { address, bytes: *number, sequence: 0, tombstone: false })
                };
                expected.extend(run.iter().map(|number| ((*number, source), pair(number).1)));
                sources.push(Source::Memory(run.iter().map(pair).collect(), 0));
            }
            let mut merge = MergedRuns::new(sources, None);
            let mut last = None;
            for ((number, source), entry) in expected {
                let merged = Sim::new().block_on(merge.next()).unwrap();
                let newest = last != Some(number);
                last = Some(number);
                prop_assert_eq!(merged, Some(Merged { key: Key::from_u32_be(number), entry, source, newest }));
            }
            prop_assert_eq!(Sim::new().block_on(merge.next()).unwrap(), None);
        }
    }
}
