//! Several sorted runs of entries as one: a heap of their heads, newest run first where keys are equal.
//!
//! Used by flushes and compaction (`maintenance`) and by cursors ([`super::cursor`]). A run that starts above the
//! present key is not touched: its lower bound takes the place of its head until the merge reaches it.

use std::rc::Rc;

use kvdrive_nvme::{Key, Status};

use super::entry::Entry;
use super::layout::SCAN_CHUNK;
use super::memtable::Pair;
use super::recovery::{HIGHEST_KEY, LOWEST_KEY};
use super::table::{Pull, TableStream};
use crate::Gap;

/// One sorted run.
pub enum Source {
    /// In memory: the run and the position in it.
    Memory(Rc<[Pair]>, usize),
    /// A table.
    Table(TableStream),
}

impl Source {
    fn pull(&mut self, out: &mut Vec<Pair>) -> Result<Pull, Status> {
        match self {
            Source::Memory(run, next) => {
                let end = run.len().min(*next + SCAN_CHUNK);
                out.extend_from_slice(&run[*next..end]);
                let pull = if end > *next { Pull::Pairs } else { Pull::End };
                *next = end;
                Ok(pull)
            }
            Source::Table(stream) => stream.pull(out),
        }
    }
}

/// A pair, and the run that it came from.
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

/// The next result of a merge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// The next pair of any run: keys ascend, newer runs first.
    Pair(Merged),
    /// A page has to be read first: [`MergedRuns::refill`].
    Blocked,
    /// That was all.
    End,
}

/// A run, and its pairs that are decoded and not yet returned.
struct Run {
    source: Source,
    pairs: Vec<Pair>,
    next: usize,
}

/// The lowest pair of a run that has not been given out.
#[derive(Clone, Copy)]
struct Head {
    key: Key,
    source: u32,
    /// It is the next of the run's decoded pairs. If not, `key` is a lower bound.
    known: bool,
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
    runs: Vec<Run>,
    /// A binary heap, lowest head on top.
    heads: Vec<Head>,
    last: Option<Key>,
}

impl MergedRuns {
    /// Merges runs, newest first, all of them from `from` on (or from their beginning).
    pub fn new(sources: Vec<Source>, from: Option<Key>) -> MergedRuns {
        let from = from.unwrap_or(LOWEST_KEY);
        let bound = |source: &Source| match source {
            Source::Memory(run, next) => run.get(*next).map_or(from, |pair| pair.0),
            Source::Table(stream) => stream.table().facts.min.max(from),
        };
        let head = |(source, run): (u32, &Source)| Head { key: bound(run), source, known: false };
        let mut heads: Vec<Head> = (0..).zip(&sources).map(head).collect();
        // Ascending order is a heap.
        heads.sort_unstable_by_key(|head| (head.key, head.source));
        let run = |source| Run { source, pairs: Vec::new(), next: 0 };
        MergedRuns { runs: sources.into_iter().map(run).collect(), heads, last: None }
    }

    /// The next pair, if no page has to be read for it.
    // A pair that is not returned through memory is there at once.
    #[inline(always)]
    pub fn step(&mut self) -> Result<Step, Status> {
        loop {
            let Some(top) = self.heads.first_mut() else { return Ok(Step::End) };
            if !top.known {
                if !self.decode()? {
                    return Ok(Step::Blocked);
                }
                continue;
            }
            let source = top.source as usize;
            let run = &mut self.runs[source];
            let (key, entry) = run.pairs[run.next];
            run.next += 1;
            match run.pairs.get(run.next) {
                Some((next, _)) => {
                    top.key = *next;
                    self.sift_down();
                }
                // More is decoded when its turn comes, so that an error there does not hide this pair.
                None => top.known = false,
            }
            let newest = self.last != Some(key);
            self.last = Some(key);
            return Ok(Step::Pair(Merged { key, entry, source, newest }));
        }
    }

    /// Gets the real head of the run on top of the heap. `false` if a page is missing.
    #[inline(never)]
    fn decode(&mut self) -> Result<bool, Status> {
        let top = &mut self.heads[0];
        let run = &mut self.runs[top.source as usize];
        run.pairs.clear();
        run.next = 0;
        match run.source.pull(&mut run.pairs)? {
            Pull::Blocked => return Ok(false),
            Pull::Pairs => (top.key, top.known) = (run.pairs[0].0, true),
            Pull::End => {
                self.heads.swap_remove(0);
            }
        }
        self.sift_down();
        Ok(true)
    }

    /// Reads the page that is missing.
    pub fn refill(&mut self) -> Result<(), Status> {
        let top = self.heads.first().map(|head| head.source as usize);
        match top.map(|source| &mut self.runs[source].source) {
            Some(Source::Table(stream)) => stream.refill(),
            _ => Ok(()),
        }
    }

    /// The keys that the run which has to be read next may still have.
    pub fn gap(&self) -> Gap {
        let Some(top) = self.heads.first() else { return Gap::default() };
        let Source::Table(stream) = &self.runs[top.source as usize].source else { return Gap::default() };
        let last = stream.table().facts.max;
        Gap { first: (top.key != LOWEST_KEY).then_some(top.key), last: (last != HIGHEST_KEY).then_some(last) }
    }

    /// The next page of a run cannot be read: the run continues after it. Later pairs may be older than lost ones, and
    /// may have lower keys than the first key of the merge.
    pub fn skip(&mut self) {
        let top = self.heads.first().map(|head| head.source as usize);
        if let Some(Source::Table(stream)) = top.map(|source| &mut self.runs[source].source) {
            stream.skip();
        }
    }

    /// The next pair, after reading pages if necessary.
    pub fn next_merged(&mut self) -> Result<Option<Merged>, Status> {
        loop {
            match self.step()? {
                Step::Pair(merged) => return Ok(Some(merged)),
                Step::Blocked => self.refill()?,
                Step::End => return Ok(None),
            }
        }
    }

    #[inline]
    fn sift_down(&mut self) {
        let heads = &mut self.heads[..];
        let Some(&sinking) = heads.first() else { return };
        let mut at = 0;
        loop {
            let mut child = 2 * at + 1;
            if child + 1 < heads.len() && heads[child + 1].before(&heads[child]) {
                child += 1;
            }
            if child >= heads.len() || !heads[child].before(&sinking) {
                break;
            }
            heads[at] = heads[child];
            at = child;
        }
        if at > 0 {
            heads[at] = sinking;
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
                let merged = Sim::new().block_on(|| merge.next_merged()).unwrap();
                let newest = last != Some(number);
                last = Some(number);
                prop_assert_eq!(merged, Some(Merged { key: Key::from_u32_be(number), entry, source, newest }));
            }
            prop_assert_eq!(Sim::new().block_on(|| merge.next_merged()).unwrap(), None);
        }
    }
}
