//! Flush and compaction: they move entries from the memtable to flash and from level to level.
//!
//! Both are one operation, [`Index::rewrite`]: merge sorted runs, leave out entries that are not needed any more, write
//! new tables, and replace the sources by them in a single step. It runs under one lock. If it fails, the index stays
//! as it was, and the pages written so far are given back.
//!
//! A merge *beside* commands ([`Index::merge_beside`]) holds that lock at its beginning only. Flushes pass it: they add
//! tables that are newer than its inputs, and merge none. The lists of tables do not know of it, and at its end its
//! result replaces its inputs in whatever list there is by then.

use std::borrow::Cow;
use std::rc::Rc;

use kvdrive_flash::Purpose;
use kvdrive_nvme::{Key, Status};

use super::compaction::{CompactionStep, Merge};
use super::entry::{TableId, is_current};
use super::fit::TABLE_BYTES;
use super::index::{Beside, Frozen, Index};
use super::layout::Start;
use super::memtable::{Memtable, Pair};
use super::merge::{Merged, MergedRuns, Source, Step};
use super::recovery::IndexRecord;
use super::space::TableSpace;
use super::table::{READ_AHEAD, Table, TableStream, TableWriter};
use crate::firmware::Role;
use crate::value_log::Vaddr;

/// Entries that a merge beside commands writes between two pauses.
const ENTRIES_BETWEEN_PAUSES: u32 = 256;

/// Runs to be merged into new tables, and their outcome.
struct Rewrite<'a> {
    /// Newest first, each with its age.
    sources: Vec<(u64, Source)>,
    /// Entries in all of them.
    entries: u64,
    /// Free pages without which it is not worth a try.
    pages: u32,
    /// Tables that the result replaces.
    inputs: Vec<Rc<Table>>,
    /// The memtable that the result replaces, too.
    flushed: Option<Rc<[Pair]>>,
    /// Tables that may hold older entries than the runs.
    older: Vec<Rc<Table>>,
    to: usize,
    split_entries: Option<u32>,
    purpose: Purpose,
    /// Called now and then by a merge beside commands.
    pause: Option<&'a dyn Fn()>,
}

/// Tables written and not yet part of the index: if they never are, their pages are given back.
struct NewTables(Vec<Rc<Table>>);

impl Drop for NewTables {
    fn drop(&mut self) {
        self.0.iter().for_each(|table| table.set_obsolete());
    }
}

/// The outcome of a merge for a pair.
enum Fate {
    Keep,
    Forget,
    /// The entry is dropped, and the bytes that it refers to are dead.
    Bury,
}

impl Index {
    /// Flushes and compacts, or waits for the task that does, when the memtable has no room for `entries` more entries.
    /// It need not be empty afterwards.
    pub(super) fn make_room(&self, entries: u32) -> Result<(), Status> {
        let _one_at_a_time = self.0.maintenance.lock();
        if !self.is_full_for(entries) {
            return Ok(());
        }
        // Left over from a flush that failed, or from before a power cut.
        self.flush_frozen()?;
        self.freeze();
        // There is room now. If this flush fails, it is tried again when the memtable is full the next time.
        if self.flush_frozen().is_ok() && self.0.beside.get().is_none() {
            match self.0.left.leaves.get() {
                true => self.0.left.is_any.set(true),
                false => self.compact(),
            }
        }
        Ok(())
    }

    /// Writes the memtables, merges all tables into one run and drops all entries that are replaced or stale and all
    /// tombstones. For a drive that runs out of space. Does nothing if nothing changed since the last time. A memtable
    /// gets a table of its own only if that leaves room for the merge; else it is merged with the tables.
    ///
    /// `CAPACITY_EXCEEDED` when there is no room for the result beside its inputs; `UNRECOVERED_ERROR` when a
    /// table is damaged. Nothing is lost then.
    pub fn compact_all(&self) -> Result<(), Status> {
        let inner = &*self.0;
        if inner.space.is_none() {
            return Ok(());
        }
        let _after_merges = inner.merging.lock();
        let _one_at_a_time = inner.maintenance.lock();
        self.flush_or_merge()?;
        if !inner.active.borrow().is_empty() {
            self.freeze();
            self.flush_or_merge()?;
        }
        if inner.one_run_at.get() == inner.next_table.get() {
            return Ok(());
        }
        self.merge_all()
    }

    fn flush_or_merge(&self) -> Result<(), Status> {
        match self.flush_frozen() {
            Err(Status::CAPACITY_EXCEEDED) => self.merge_all(),
            flushed => flushed,
        }
    }

    /// Makes one run of all tables and the frozen memtable.
    fn merge_all(&self) -> Result<(), Status> {
        let inner = &*self.0;
        let tables = inner.tables.borrow().clone();
        let frozen = inner.frozen.borrow_mut().as_mut().map(|frozen| (frozen.age, frozen.entries.sorted()));
        let inputs: Vec<_> = tables.newest_first().map(|table| table.facts.id).collect();
        if !inputs.is_empty() || frozen.is_some() {
            let unwritten = frozen.as_ref().map_or(0, |(_, run)| run.len() as u64);
            let entries: u64 = tables.newest_first().map(|table| u64::from(table.facts.entries)).sum();
            let (to, split_entries) = inner.policy.bottom(entries + unwritten);
            self.merge(Merge { inputs, to, split_entries }, frozen)?;
        }
        inner.one_run_at.set(inner.next_table.get());
        Ok(())
    }

    /// The memtable stops to take entries; an empty one takes its place.
    fn freeze(&self) {
        let inner = &*self.0;
        let age = inner.values.next_opening();
        inner.journal.record(IndexRecord::Frozen(age));
        let entries = inner.active.replace(Memtable::new(inner.config.memtable_entries));
        let left = inner.frozen.replace(Some(Frozen { age, entries }));
        assert!(left.is_none(), "a memtable is frozen only when the one before it has been written");
    }

    /// Writes the frozen memtable, if there is one, as a table of level 0. `CAPACITY_EXCEEDED` if there would
    /// not be room to merge everything after it, with two more memtables: that is how a delete comes through
    /// when nothing else does. A merge beside commands keeps the pages that it may yet take.
    fn flush_frozen(&self) -> Result<(), Status> {
        let inner = &*self.0;
        let (age, run) = match &mut *inner.frozen.borrow_mut() {
            None => return Ok(()),
            Some(frozen) => (frozen.age, frozen.entries.sorted()),
        };
        if !self.can_flush_beside(1) {
            return Err(Status::CAPACITY_EXCEEDED);
        }
        let entries = run.len() as u64;
        let rewrite = Rewrite {
            sources: vec![(age, Source::Memory(run.clone(), 0))],
            entries,
            pages: self.ledger(|ledger| ledger.to_flush()),
            inputs: Vec::new(),
            flushed: Some(run),
            older: inner.tables.borrow().newest_first().cloned().collect(),
            to: 0,
            split_entries: None,
            purpose: Purpose::Index,
            pause: None,
        };
        self.rewrite(rewrite)?;
        self.count(|counters| counters.flushes += 1);
        self.check_room();
        Ok(())
    }

    /// Carries out steps of the policy until there are no more, or one fails.
    fn compact(&self) {
        let mut failed = None;
        loop {
            let view = self.0.tables.borrow().view();
            let choice = self.0.policy.choose(&view);
            if failed.as_ref() == Some(&choice) {
                return;
            }
            match choice.clone() {
                CompactionStep::Rest => return,
                CompactionStep::Move { table, to } => self.move_table(table, to),
                CompactionStep::Merge(merge) => match self.merge(merge, None) {
                    Ok(()) => {}
                    // A table turned out to be damaged: now that this is known there may be something else to
                    // do.
                    Err(Status::UNRECOVERED_ERROR) => failed = Some(choice),
                    Err(_) => return,
                },
            }
        }
    }

    fn move_table(&self, id: TableId, to: usize) {
        let inner = &*self.0;
        let present = inner.tables.borrow().clone();
        let table = present.newest_first().find(|table| table.facts.id == id);
        let table = table.expect("a policy moves what it saw").clone();
        let (added, dropped) = (Cow::Owned(vec![(id, to as u8)]), Cow::Owned(vec![id]));
        inner.journal.record(IndexRecord::TablesChanged { added, dropped, flushed: false });
        *inner.tables.borrow_mut() = Rc::new(present.changed(&[id], std::iter::once((to, table))));
        self.settle_dram();
        self.count(|counters| counters.moves += 1);
    }

    /// Merges tables, and the frozen memtable along with all of them.
    fn merge(&self, merge: Merge, frozen: Option<(u64, Rc<[Pair]>)>) -> Result<(), Status> {
        self.merge_planned(self.plan(&merge, frozen)?)
    }

    fn merge_planned(&self, rewrite: Rewrite<'_>) -> Result<(), Status> {
        self.rewrite(rewrite)?;
        self.count(|counters| counters.merges += 1);
        self.check_room();
        Ok(())
    }

    /// Merges all tables into one run beside commands, and then what the policy asks for, since flushes that passed
    /// merged nothing. Memtables stay as they are. Calls `pause` now and then, with no lock held that a flush needs.
    ///
    /// Errors as [`Index::compact_all`].
    pub(super) fn merge_beside(&self, pause: &dyn Fn()) -> Result<(), Status> {
        let inner = &*self.0;
        if inner.space.is_none() {
            return Ok(());
        }
        let _one_merge = inner.merging.lock();
        let everything = |index: &Index| {
            let tables = index.0.tables.borrow().clone();
            let inputs: Vec<_> = tables.newest_first().map(|table| table.facts.id).collect();
            let entries = tables.newest_first().map(|table| u64::from(table.facts.entries)).sum();
            let (to, split_entries) = index.0.policy.bottom(entries);
            (!inputs.is_empty()).then_some(Merge { inputs, to, split_entries })
        };
        self.merge_one_beside(&everything, pause)?;
        self.merge_by_policy_beside(pause)
    }

    /// From now on, flushes leave merges of levels to [`Index::merge_levels_beside`], or not any more.
    pub fn leave_levels(&self, leaves_levels: bool) {
        self.0.left.leaves.set(leaves_levels);
    }

    /// Has a flush left merges of levels?
    pub fn is_level_waiting(&self) -> bool {
        self.0.left.is_any.get()
    }

    /// Merges what the policy asks for beside commands. Calls `pause` as [`Index::merge_beside`].
    ///
    /// Errors as [`Index::compact_all`].
    pub fn merge_levels_beside(&self, pause: &dyn Fn()) -> Result<(), Status> {
        self.0.left.is_any.set(false);
        let _one_merge = self.0.merging.lock();
        self.merge_by_policy_beside(pause)
    }

    fn merge_by_policy_beside(&self, pause: &dyn Fn()) -> Result<(), Status> {
        let by_policy = |index: &Index| loop {
            let choice = index.0.policy.choose(&index.0.tables.borrow().view());
            match choice {
                CompactionStep::Merge(merge) => return Some(merge),
                CompactionStep::Move { table, to } => index.move_table(table, to),
                CompactionStep::Rest => return None,
            }
        };
        while self.merge_one_beside(&by_policy, pause)? {}
        Ok(())
    }

    /// Carries out the merge that `choose` returns. `false` if it returns none.
    fn merge_one_beside(
        &self,
        choose: &dyn Fn(&Index) -> Option<Merge>,
        pause: &dyn Fn(),
    ) -> Result<bool, Status> {
        /// Flushes for which there must be room, so that some can pass.
        const FLUSHES: u32 = 4;
        let inner = &*self.0;
        let planned = {
            let _no_flush = inner.maintenance.lock();
            let Some(merge) = choose(self) else { return Ok(false) };
            let rewrite = Rewrite { pause: Some(pause), ..self.plan(&merge, None)? };
            inner.beside.set(Some(Beside { most_pages: rewrite.pages, taken_pages: 0 }));
            rewrite
        };
        let merged = match self.can_flush_beside(FLUSHES) {
            true => self.merge_planned(planned),
            false => Err(Status::CAPACITY_EXCEEDED),
        };
        inner.beside.set(None);
        self.note_work();
        merged.map(|()| true)
    }

    /// A merge of tables, and of the frozen memtable along with all of them.
    fn plan(&self, merge: &Merge, frozen: Option<(u64, Rc<[Pair]>)>) -> Result<Rewrite<'static>, Status> {
        let inner = &*self.0;
        let (inputs, older) = inner.tables.borrow().split(&merge.inputs);
        assert_eq!(inputs.len(), merge.inputs.len(), "a policy merges what it saw");
        if inputs.iter().any(|table| table.is_damaged()) {
            return Err(Status::UNRECOVERED_ERROR);
        }
        let stream = |table: &Rc<Table>| {
            let (start, purpose) = (Start::First, Purpose::Compaction);
            let stream = TableStream::new(&*inner.layout, table.clone(), start, READ_AHEAD, purpose);
            (table.facts.age, Source::Table(stream))
        };
        let unwritten = frozen.as_ref().map_or(0, |(_, run)| run.len() as u32);
        let entries =
            inputs.iter().map(|table| u64::from(table.facts.entries)).sum::<u64>() + u64::from(unwritten);
        let pages_now = inputs.iter().map(|table| table.facts.total_pages()).sum::<u32>()
            + inner.layout.pages_at_most(unwritten, inner.longest.get());
        let flushed = frozen.as_ref().map(|(_, run)| run.clone());
        let memory = frozen.map(|(age, run)| (age, Source::Memory(run, 0)));
        Ok(Rewrite {
            sources: memory.into_iter().chain(inputs.iter().map(stream)).collect(),
            entries,
            pages: self.ledger(|ledger| ledger.run(entries, pages_now, merge.split_entries)),
            inputs,
            flushed,
            older,
            to: merge.to,
            split_entries: merge.split_entries,
            purpose: Purpose::Compaction,
            pause: None,
        })
    }

    /// Merges runs into new tables and puts these in the place of the old ones.
    fn rewrite(&self, mut rewrite: Rewrite<'_>) -> Result<(), Status> {
        let mut dead = Vec::new();
        match self.write_run(&mut rewrite, &mut dead) {
            Ok(outputs) => {
                self.replace(outputs, &rewrite);
                // Meanwhile a segment may have been collected and opened again.
                let values = &*self.0.values;
                for (address, bytes, _) in dead.into_iter().filter(|dead| is_current(values, dead.0, dead.2))
                {
                    values.dead(address, bytes);
                }
                Ok(())
            }
            Err(status) => {
                self.count(|counters| counters.failures += 1);
                Err(status)
            }
        }
    }

    /// Writes the remaining entries of merged runs. Bytes without an entry in the result are added to `dead`, with the
    /// age of the run that referred to them.
    fn write_run(
        &self,
        rewrite: &mut Rewrite<'_>,
        dead: &mut Vec<(Vaddr, u32, u64)>,
    ) -> Result<NewTables, Status> {
        let inner = &*self.0;
        let space = inner.space.as_ref().expect("without flash nothing is ever flushed");
        if self.pages_available() < rewrite.pages {
            return Err(Status::CAPACITY_EXCEEDED);
        }
        let (ages, sources): (Vec<u64>, Vec<Source>) =
            std::mem::take(&mut rewrite.sources).into_iter().unzip();
        let mut runs = MergedRuns::new(sources, None);
        let mut outputs = NewTables(Vec::new());
        let mut writer: Option<TableWriter> = None;
        let split = rewrite.split_entries.unwrap_or(u32::MAX);
        let mut left = rewrite.entries;
        loop {
            let merged = match runs.step()? {
                Step::Pair(merged) => merged,
                Step::Blocked => {
                    runs.refill()?;
                    continue;
                }
                Step::End => break,
            };
            let most = left.min(split.into()).max(1) as u32;
            left = left.saturating_sub(1);
            match self.judge(&merged, ages[merged.source], &rewrite.older) {
                Fate::Keep => {}
                Fate::Forget => continue,
                Fate::Bury => {
                    dead.push((merged.entry.address, merged.entry.bytes, ages[merged.source]));
                    continue;
                }
            }
            let output = match &mut writer {
                Some(output) => output,
                None => {
                    self.check_list(rewrite.inputs.len(), outputs.0.len() + 1)?;
                    writer.insert(self.begin_table(most, space, rewrite)?)
                }
            };
            output.push(&merged.key, &merged.entry);
            if output.entries() == split {
                let whole = writer.take().expect("it has just been written to");
                outputs.0.push(Rc::new(whole.finish()?));
            } else if output.wants_write() {
                output.write_complete()?;
            }
            if let Some(pause) = rewrite.pause {
                self.pause_merge(&outputs, writer.as_mut(), pause);
            }
        }
        if let Some(last) = writer {
            outputs.0.push(Rc::new(last.finish()?));
        }
        Ok(outputs)
    }

    /// Called by a merge beside commands after each entry that it keeps.
    fn pause_merge(&self, outputs: &NewTables, writer: Option<&mut TableWriter>, pause: &dyn Fn()) {
        let is_due = |writer: &TableWriter| writer.entries().is_multiple_of(ENTRIES_BETWEEN_PAUSES);
        if writer.as_ref().is_some_and(|writer| !is_due(writer)) {
            return;
        }
        let finished = outputs.0.iter().map(|table| table.facts.total_pages()).sum::<u32>();
        let unfinished = writer.map_or(0, |writer| {
            writer.charge();
            writer.pages_written()
        });
        let beside = self.0.beside.get();
        self.0.beside.set(beside.map(|beside| Beside { taken_pages: finished + unfinished, ..beside }));
        self.note_work();
        pause();
    }

    /// What becomes of a pair of a run of this age, with `older` tables below.
    #[inline]
    fn judge(&self, merged: &Merged, age: u64, older: &[Rc<Table>]) -> Fate {
        let entry = &merged.entry;
        if entry.has_bytes() {
            // The value of a stale entry was moved or replaced: a newer entry of its key is elsewhere.
            match (is_current(&*self.0.values, entry.address, age), merged.newest) {
                (false, _) => Fate::Forget,
                (true, false) => Fate::Bury,
                (true, true) => Fate::Keep,
            }
        } else if !merged.newest
            || entry.tombstone && !older.iter().any(|table| table.facts.covers(&merged.key))
        {
            // A tombstone is needed as long as an older table may hold its key.
            Fate::Forget
        } else {
            Fate::Keep
        }
    }

    /// `CAPACITY_EXCEEDED` if power-protected memory has no room to list the tables after `fewer` of them were replaced
    /// by `more` new ones, beside two memtables of the longest keys.
    pub(super) fn check_list(&self, fewer: usize, more: usize) -> Result<(), Status> {
        let inner = &*self.0;
        let tails = (inner.longest.get().most_bytes() - Key::IDENTITY_BYTES) as u64;
        let of_tails = (2 * u64::from(inner.config.memtable_entries) * tails).div_ceil(TABLE_BYTES);
        let tables = self.tables_by_level().iter().sum::<usize>() - fewer + more;
        let has_room = tables as u64 + of_tails <= inner.most_tables.into();
        if has_room { Ok(()) } else { Err(Status::CAPACITY_EXCEEDED) }
    }

    /// `INTERNAL` when there is no table id left.
    fn begin_table(
        &self,
        most_entries: u32,
        space: &Rc<TableSpace>,
        rewrite: &Rewrite,
    ) -> Result<TableWriter, Status> {
        let inner = &*self.0;
        let id = TableId(inner.next_table.get());
        inner.next_table.set(id.0.checked_add(1).ok_or(Status::INTERNAL)?);
        inner.journal.record(IndexRecord::IdTaken(id));
        let name = (id, inner.values.next_opening());
        let entry_ns = inner.config.table_entry_ns;
        let core = inner.cores.of(Role::Collection);
        let is_pinned = space.dram().is_some() && rewrite.to < inner.config.pinned_levels as usize;
        let purpose = if is_pinned { Purpose::Pinned } else { rewrite.purpose };
        let mut writer = TableWriter::new(name, &*inner.layout, most_entries, space, purpose, core, entry_ns);
        if is_pinned {
            writer.keep_pages();
        }
        Ok(writer)
    }

    /// Replaces the sources of a rewrite by the new tables.
    fn replace(&self, mut outputs: NewTables, rewrite: &Rewrite<'_>) {
        let inner = &*self.0;
        let to = rewrite.to;
        let outputs = std::mem::take(&mut outputs.0);
        let added: Vec<_> = outputs.iter().map(|table| (table.facts.id, to as u8)).collect();
        let dropped: Vec<_> = rewrite.inputs.iter().map(|table| table.facts.id).collect();
        let flushed = rewrite.flushed.is_some();
        inner.journal.record(IndexRecord::TablesChanged {
            added: Cow::Borrowed(&added),
            dropped: Cow::Borrowed(&dropped),
            flushed,
        });
        let present = inner.tables.borrow().clone();
        let next = present.changed(&dropped, outputs.into_iter().map(|table| (to, table)));
        *inner.tables.borrow_mut() = Rc::new(next);
        if let Some(run) = &rewrite.flushed {
            *inner.frozen.borrow_mut() = None;
            self.note_flushed(run);
        }
        rewrite.inputs.iter().for_each(|table| table.set_obsolete());
        self.settle_dram();
    }

    /// After the tables have changed: which lists and which levels are in DRAM.
    pub(super) fn settle_dram(&self) {
        let inner = &*self.0;
        let Some(dram) = inner.space.as_ref().and_then(|space| space.dram()) else { return };
        let tables = inner.tables.borrow().clone();
        let mut listed = dram.hold_lists(tables.newest_first().map(|table| table.list_bytes()));
        for (level, tables) in (0..).zip(tables.levels()) {
            for table in tables.tables().iter().rev() {
                table.set_in_dram(dram, listed > 0, level < inner.config.pinned_levels);
                listed = listed.saturating_sub(1);
            }
        }
    }
}
