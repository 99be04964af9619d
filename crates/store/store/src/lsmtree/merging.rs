//! A merge of several streams of tables: yields the lowest key, and of equal keys the pair of the newest
//! table.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use kvdrive_nvme::Key;

use super::Tree;
use super::memtable::Pair;
use super::table::TableStream;
use crate::cpu::{Step, Thread};
use crate::pages::Purpose;
use crate::store::StoreError;

/// Streams that are merged.
pub struct Merging {
    /// Newest first: of equal keys, the first one counts.
    runs: Vec<TableStream>,
    /// The next key of each stream that has read one, with the stream's index.
    heads: BinaryHeap<Reverse<(Key, usize)>>,
    /// Indexes of the streams that have to read before the next pair is known, in their order.
    empty: Vec<usize>,
    /// Pairs that were read.
    pub entries: u64,
}

impl Merging {
    /// A merge of streams, the newest first.
    pub fn new(runs: Vec<TableStream>) -> Merging {
        Merging {
            heads: BinaryHeap::with_capacity(runs.len()),
            empty: (0..runs.len()).collect(),
            runs,
            entries: 0,
        }
    }

    /// The next pair.
    pub fn next(&mut self, tree: &Tree, thread: Thread, why: Purpose) -> Result<Option<Pair>, StoreError> {
        let empty = std::mem::take(&mut self.empty);
        for run in &empty {
            let stream = &mut self.runs[*run];
            let read = stream.fill(&tree.ground.pages, thread, why, u32::MAX)?;
            if read > 0 {
                self.entries += read;
                tree.work(thread, &[(Step::MergeEntry, read)]);
            }
            if let Some((key, _)) = stream.ready.front() {
                self.heads.push(Reverse((*key, *run)));
            }
        }
        self.empty = empty;
        self.empty.clear();
        let Some(Reverse((lowest, run))) = self.heads.pop() else { return Ok(None) };
        let found = self.take(run);
        while let Some(Reverse((key, older))) = self.heads.peek().copied()
            && key == lowest
        {
            self.heads.pop();
            self.take(older);
        }
        Ok(found)
    }

    /// Takes a stream's pair; the pair after it becomes a head, or has to be read.
    fn take(&mut self, run: usize) -> Option<Pair> {
        let ready = &mut self.runs[run].ready;
        let pair = ready.pop_front();
        match ready.front() {
            Some((key, _)) => self.heads.push(Reverse((*key, run))),
            None => self.empty.push(run),
        }
        pair
    }
}
