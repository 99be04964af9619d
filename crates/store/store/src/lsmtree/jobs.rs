//! Background jobs: writing a memtable as a table, and merging tables.

use std::ops::Bound;
use std::rc::Rc;

use super::memtable::Pair;
use super::merging::Merging;
use super::table::{Table, TableStream, TableWriter, bytes_page};
use super::version::{Header, LEVELS, Version, manifest};
use super::{Failures, LsmtreeState, Placed, Tree};
use crate::cpu::{Step, Thread};
use crate::frame::{FRAME_BYTES, Kind};
use crate::pages::{PageId, Purpose};
use crate::store::StoreError;

/// Pairs taken from a memtable at a time.
const PAIRS_AT_ONCE: usize = 256;
/// Pages of a table written at a time.
const PAGES_AT_ONCE: usize = 64;
/// Pages reserved for a table at a time.
const PAGES_TAKEN: u32 = 256;

/// A planned merge.
pub struct Merge {
    /// Tables of the upper level.
    upper: Vec<Rc<Table>>,
    /// Their level.
    level: usize,
    /// Tables of the next level that share keys with them.
    lower: Vec<Rc<Table>>,
    /// Set for an optional merge, which is given up if it would leave fewer free pages.
    keep_pages: Option<u64>,
}

impl Merge {
    /// Most pages that its output takes, while its input is still on pages.
    fn most_pages(&self) -> u64 {
        self.upper.iter().chain(&self.lower).map(|table| table.pages() + 1).sum()
    }
}

impl Tree {
    /// Bytes that a level should not exceed.
    fn level_limit(&self, level: usize) -> u64 {
        let factor = u64::from(self.options.max_bytes_for_level_multiplier);
        self.options.max_bytes_for_level_base.saturating_mul(factor.saturating_pow(level as u32 - 1))
    }

    /// The most needed merge, if one is needed.
    fn choose_merge(&self, state: &LsmtreeState) -> Option<Merge> {
        let version = &*state.version;
        let page_bytes = self.layout.page_bytes;
        let trigger = u64::from(self.options.level0_file_num_compaction_trigger);
        let top = version.levels[0].len() as u64 * 1000 / trigger;
        let score = |level: usize| version.level_bytes(level, page_bytes) * 1000 / self.level_limit(level);
        let deeper = (1..LEVELS - 1).map(|level| (score(level), level));
        let (best, level) = deeper.fold((top, 0), |best, next| if next.0 > best.0 { next } else { best });
        let is_needed = if level == 0 { best >= 1000 } else { best > 1000 };
        if is_needed {
            return Some(merge_of(version, level));
        }
        if state.without_room == Some(state.edition) {
            return None;
        }
        // The merge is optional, so it leaves the room for memtables.
        let keep_pages = Some(self.options.memtables_reserve_bytes() / u64::from(page_bytes));
        merge_of_deletes(version).map(|merge| Merge { keep_pages, ..merge })
    }

    /// Is there a job that no thread is doing, and has none failed since jobs were last requested?
    pub(super) fn is_due(&self, state: &LsmtreeState) -> bool {
        if state.failures.has_given_up {
            return false;
        }
        let can_flush = !state.is_flushing && !state.full.is_empty();
        can_flush || !state.is_merging && self.choose_merge(state).is_some()
    }

    /// Does a job; `false` if no job is left. If the job fails, puts that wait for it get the error.
    pub(super) fn job(&self, thread: Thread) -> Result<bool, StoreError> {
        let result = self.flush_or_merge(thread);
        if let Err(error) = &result {
            let failures = &mut self.state.borrow_mut().failures;
            *failures = Failures { count: failures.count + 1, last: Some(error.clone()), has_given_up: true };
        }
        result
    }

    fn flush_or_merge(&self, thread: Thread) -> Result<bool, StoreError> {
        if self.flush_job(thread)? {
            return Ok(true);
        }
        let merge = {
            let mut state = self.state.borrow_mut();
            let merge = if state.is_merging { None } else { self.choose_merge(&state) };
            state.is_merging |= merge.is_some();
            merge
        };
        self.run_merge(thread, merge)
    }

    /// Merges although no level is too large, since every merge drops dead entries. `false` if all pairs are
    /// on one level, where no entry is dead, or if no merge fits into the free pages.
    pub(super) fn merge_for_room(&self, thread: Thread) -> Result<bool, StoreError> {
        if self.flush_job(thread)? {
            return Ok(true);
        }
        let merge = {
            let mut state = self.state.borrow_mut();
            if state.is_merging || state.is_flushing {
                drop(state);
                self.ground.cpu.wait(thread);
                return Ok(true);
            }
            let deepest = (0..LEVELS).rev().find(|level| !state.version.levels[*level].is_empty());
            // Level 0 never counts as the deepest: its tables may share keys.
            let upper = 0..deepest.map_or(0, |deepest| deepest.max(1));
            let used = upper.filter(|level| !state.version.levels[*level].is_empty());
            // A merge begins only if its output fits. (Merges of a full level use the room that puts leave.)
            let mut merges = used.map(|level| merge_of(&state.version, level));
            let merge = merges.find(|merge| merge.most_pages() < state.free.pages());
            state.is_merging |= merge.is_some();
            merge
        };
        self.run_merge(thread, merge)
    }

    fn run_merge(&self, thread: Thread, merge: Option<Merge>) -> Result<bool, StoreError> {
        let Some(merge) = merge else { return Ok(false) };
        let may_fail = merge.keep_pages.is_some();
        let result = self.merge(thread, merge).and_then(|()| self.reclaim(thread));
        let mut state = self.state.borrow_mut();
        state.is_merging = false;
        let has_no_room = may_fail && result == Err(StoreError::Full);
        if has_no_room {
            state.without_room = Some(state.edition);
        }
        drop(state);
        self.ground.cpu.wake();
        if has_no_room { Ok(true) } else { result.map(|()| true) }
    }

    /// Writes the oldest full memtable to a table of level 0; `false` if there is none, or if another thread
    /// is writing it.
    pub(super) fn flush_job(&self, thread: Thread) -> Result<bool, StoreError> {
        let memtable = {
            let mut state = self.state.borrow_mut();
            state.check()?;
            let oldest = if state.is_flushing { None } else { state.full.front().cloned() };
            state.is_flushing |= oldest.is_some();
            oldest
        };
        let Some(memtable) = memtable else { return Ok(false) };
        let result = self.flush_memtable(thread, &memtable);
        self.state.borrow_mut().is_flushing = false;
        self.ground.cpu.wake();
        result.map(|()| true)
    }

    fn flush_memtable(&self, thread: Thread, memtable: &super::Memtable) -> Result<(), StoreError> {
        let (mut output, mut from) = (Output::new(self, thread, 0, Purpose::Table, 0), Bound::Unbounded);
        loop {
            let pairs = memtable.next(from, u64::MAX, PAIRS_AT_ONCE);
            let Some((last, _)) = pairs.last() else { break };
            from = Bound::Excluded(*last);
            self.work(thread, &[(Step::MergeEntry, pairs.len() as u64)]);
            for pair in &pairs {
                output.add(pair, u64::MAX)?;
            }
        }
        let added = output.finish()?;
        self.install(thread, &[], added, true)?;
        self.state.borrow_mut().counters.flushes += 1;
        Ok(())
    }

    fn merge(&self, thread: Thread, merge: Merge) -> Result<(), StoreError> {
        let to = merge.level + 1;
        let removed: Vec<u64> = merge.upper.iter().chain(&merge.lower).map(|table| table.number).collect();
        // A table with tombstones is rewritten: on the last level of their keys they are dropped.
        if let ([only], []) = (&merge.upper[..], &merge.lower[..])
            && only.tombstones == 0
        {
            self.install(thread, &removed, vec![(to, only.clone())], false)?;
            self.state.borrow_mut().counters.moved_tables += 1;
            return Ok(());
        }
        // Newest first: of equal keys, the first one counts.
        let newest_first = merge.upper.into_iter().rev().chain(merge.lower);
        let mut merging = Merging::new(newest_first.map(|table| TableStream::new(table, None)).collect());
        let keep_pages = merge.keep_pages.unwrap_or(0);
        let mut output = Output::new(self, thread, to, Purpose::Compaction, keep_pages);
        while let Some(pair) = merging.next(self, thread, Purpose::Compaction)? {
            let is_needed = pair.1.is_some() || {
                let version = self.state.borrow().version.clone();
                version.is_below(to, &pair.0)
            };
            if is_needed {
                output.add(&pair, self.options.target_file_size_base)?;
            }
        }
        let added = output.finish()?;
        self.install(thread, &removed, added, false)?;
        let mut state = self.state.borrow_mut();
        state.counters.merges += 1;
        state.counters.merged_entries += merging.entries;
        Ok(())
    }

    /// Makes a new version durable. `is_flush`: it has the oldest full memtable as a table.
    pub(super) fn install(
        &self,
        thread: Thread,
        removed: &[u64],
        added: Vec<Placed>,
        is_flush: bool,
    ) -> Result<(), StoreError> {
        let _turn = self.installing.take(&self.ground.cpu, thread);
        let (version, header) = {
            let state = self.state.borrow();
            let version = state.version.changed(removed, &added);
            let mut header = state.header;
            header.sequence = state.sequence;
            if is_flush {
                header.wal_from = state.full.get(1).unwrap_or(&state.active).wal_from;
                header.in_tables = state.full[0].newest.get();
            }
            (version, header)
        };
        self.ground.pages.flush(thread, Purpose::Manifest)?;
        if let Err(error) = self.write_manifest(thread, &header, &version) {
            // `Full` means that no slot was written; after any other error a slot may name the new tables.
            if error == StoreError::Full {
                let mut state = self.state.borrow_mut();
                let is_new = |table: &Table| !removed.contains(&table.number);
                let new = added.iter().filter(|(_, table)| is_new(table));
                new.flat_map(|(_, table)| &table.extents).for_each(|extent| state.free.give(*extent));
            }
            return Err(error);
        }
        let mut state = self.state.borrow_mut();
        // Other jobs may have taken table numbers meanwhile.
        state.header = Header { next_table: state.header.next_table, ..header };
        let is_kept = |number: u64| added.iter().any(|(_, table)| table.number == number);
        let gone: Vec<Rc<Table>> = state
            .version
            .tables()
            .filter(|(_, table)| removed.contains(&table.number) && !is_kept(table.number))
            .map(|(_, table)| table.clone())
            .collect();
        state.obsolete.extend(gone);
        state.version = Rc::new(version);
        if is_flush {
            state.full.pop_front();
        }
        Ok(())
    }

    pub(super) fn write_manifest(
        &self,
        thread: Thread,
        header: &Header,
        version: &Version,
    ) -> Result<(), StoreError> {
        let (page_bytes, edition) = (self.layout.page_bytes, self.state.borrow().edition + 1);
        let bytes = manifest(header, version);
        let first = PageId(edition % 2 * self.layout.slot_pages);
        let chunks = bytes.chunks((page_bytes - FRAME_BYTES) as usize);
        if chunks.len() as u64 > self.layout.slot_pages {
            return Err(StoreError::Full);
        }
        let ids = (first.0..).map(PageId);
        let page = |(id, chunk)| bytes_page(page_bytes, id, Kind::Manifest, edition, chunk);
        let run: Vec<_> = ids.zip(chunks).map(page).collect();
        self.ground.pages.write(thread, first, &run, Purpose::Manifest)?;
        self.ground.pages.flush(thread, Purpose::Manifest)?;
        self.state.borrow_mut().edition = edition;
        Ok(())
    }
}

/// The merge of a level into the next one: of level 0 all tables; of a deeper level one table, for which the ratio of
/// the bytes in the next level to its own bytes is smallest.
fn merge_of(version: &Version, level: usize) -> Merge {
    let tables = &version.levels[level];
    if level == 0 {
        let upper = tables.clone();
        let min = upper.iter().map(|table| table.min).min().expect("level 0 has tables");
        let max = upper.iter().map(|table| table.max).max().expect("level 0 has tables");
        return Merge { lower: version.overlapping(1, &min, &max), upper, level, keep_pages: None };
    }
    let cost = |table: &&Rc<Table>| {
        let lower = version.overlapping(level + 1, &table.min, &table.max);
        let pages: u64 = lower.iter().map(|table| table.pages()).sum();
        (pages * 1000 / table.pages(), table.number)
    };
    let cheapest = tables.iter().min_by_key(cost).expect("the level has tables");
    let lower = version.overlapping(level + 1, &cheapest.min, &cheapest.max);
    Merge { upper: vec![cheapest.clone()], level, lower, keep_pages: None }
}

/// The merge of tables that are mostly tombstones with the tables below, uppermost level first. No other
/// merge would move them down before the store is full.
fn merge_of_deletes(version: &Version) -> Option<Merge> {
    let is_one = |table: &&Rc<Table>| table.mostly_deletes();
    let level = (0..LEVELS - 1).find(|level| version.levels[*level].iter().any(|table| is_one(&table)))?;
    if level == 0 {
        return Some(merge_of(version, level));
    }
    let table = version.levels[level].iter().find(is_one)?;
    let lower = version.overlapping(level + 1, &table.min, &table.max);
    Some(Merge { upper: vec![table.clone()], level, lower, keep_pages: None })
}

/// Tables that a job is writing.
struct Output<'a> {
    tree: &'a Tree,
    thread: Thread,
    level: usize,
    why: Purpose,
    /// Free pages that it leaves.
    keep_pages: u64,
    writer: Option<TableWriter>,
    done: Vec<Placed>,
}

impl<'a> Output<'a> {
    fn new(tree: &'a Tree, thread: Thread, level: usize, why: Purpose, keep_pages: u64) -> Output<'a> {
        Output { tree, thread, level, why, keep_pages, writer: None, done: Vec::new() }
    }

    /// Adds a pair; begins another table when the present one has `most` bytes.
    fn add(&mut self, (key, value): &Pair, most: u64) -> Result<(), StoreError> {
        if self.writer.as_ref().is_some_and(|writer| writer.bytes() >= most) {
            self.end_table()?;
        }
        let (tree, options) = (self.tree, &self.tree.options);
        let writer = self.writer.get_or_insert_with(|| {
            let number = {
                let mut state = tree.state.borrow_mut();
                state.header.next_table += 1;
                state.header.next_table
            };
            TableWriter::new(tree.layout.page_bytes, number, options.block_size, options.bloom_bits)
        });
        let missing = writer.missing_pages(key, value.as_ref().map_or(0, |value| value.bytes()));
        if missing > 0 {
            // Long runs while there are any, since a table of many short runs makes a long manifest.
            let free = tree.state.borrow().free.pages().saturating_sub(self.keep_pages);
            let share = (free / 8).min(PAGES_TAKEN.into()) as u32;
            if free < missing.into() {
                return Err(self.give_up(StoreError::Full));
            }
            match tree.take_pages(missing.max(share)) {
                Ok(extents) => writer.give_room(extents),
                Err(error) => return Err(self.give_up(error)),
            }
        }
        writer.add(key, value.as_ref());
        if writer.closed.len() >= PAGES_AT_ONCE {
            self.write_closed()?;
        }
        Ok(())
    }

    fn write_closed(&mut self) -> Result<(), StoreError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let closed = std::mem::take(&mut writer.closed);
        let bytes = closed.len() as u64 * u64::from(self.tree.layout.page_bytes);
        self.tree.work(self.thread, &[(Step::CopyByte, bytes), (Step::ChecksumByte, bytes)]);
        let mut result = Ok(());
        let mut under_way = Vec::new();
        for run in closed.chunk_by(|(a, _), (b, _)| a.plus(1) == *b) {
            let pages: Vec<_> = run.iter().map(|(_, page)| page.clone()).collect();
            match self.tree.ground.pages.start_write(self.thread, run[0].0, &pages, self.why) {
                Ok(writing) => under_way.push(writing),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        for writing in under_way {
            result = result.and(self.tree.ground.pages.finish_write(self.thread, writing));
        }
        result.map_err(|error| self.give_up(error.into()))
    }

    fn end_table(&mut self) -> Result<(), StoreError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let (table, spare) = writer.finish();
        let table = Rc::new(table);
        let mut state = self.tree.state.borrow_mut();
        spare.into_iter().for_each(|extent| state.free.give(extent));
        drop(state);
        self.done.push((self.level, table));
        self.write_closed()?;
        self.writer = None;
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Placed>, StoreError> {
        self.end_table()?;
        Ok(self.done)
    }

    /// Gives the output up and frees its pages.
    fn give_up(&mut self, error: StoreError) -> StoreError {
        let mut state = self.tree.state.borrow_mut();
        let begun = self.writer.take().into_iter().flat_map(|writer| writer.extents);
        let done = self.done.drain(..).flat_map(|(_, table)| table.extents.clone());
        begun.chain(done).for_each(|extent| state.free.give(extent));
        error
    }
}
