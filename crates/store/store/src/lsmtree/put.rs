//! The puts of `lsmtree`: they wait for room in memtable and log, and write the log's pages and the memtable.

use std::rc::Rc;

use kvdrive_nvme::Key;

use super::wal::MOST_UNDER_WAY;
use super::{Failures, Tree};
use crate::cpu::{Step, Thread};
use crate::pages::Purpose;
use crate::records::Flags;
use crate::store::{StoreError, StoreRequest};
use crate::value::StoredValue;

/// The condition for which a put has to wait.
enum Stall {
    No,
    /// The rate is limited.
    Slow,
    /// A job has to end.
    Stop,
    /// There is no room, unless merges make some.
    Full,
}

impl Tree {
    fn stall(&self, records: &[(Key, u32)]) -> Result<Stall, StoreError> {
        let mut state = self.state.borrow_mut();
        state.check()?;
        let most_full = self.options.max_write_buffer_number as usize - 1;
        if self.options.wal {
            let pages = state.wal.pages_for(records.iter().map(|(key, bytes)| (key, *bytes))) + 1;
            if !state.wal.could_have_room(pages) {
                return Err(StoreError::Full);
            }
            if !state.wal.has_room(pages, state.oldest_needed()) {
                if !state.active.is_empty() && state.full.len() < most_full {
                    state.rotate();
                }
                return Ok(Stall::Stop);
            }
        }
        if state.active.bytes.get() >= self.options.write_buffer_size {
            if state.full.len() >= most_full {
                return Ok(Stall::Stop);
            }
            state.rotate();
        }
        let top = state.version.levels[0].len();
        if top >= self.options.level0_stop_writes_trigger as usize {
            return Ok(Stall::Stop);
        }
        let bytes: u64 = records.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
        let free = state.free.pages() * u64::from(self.layout.page_bytes);
        let needed = self.options.reserve_bytes() + 2 * bytes;
        // The reserve suffices for merges of as many tables of level 0 as trigger one. If there is no room
        // for more tables, the put waits for the background.
        let top_bytes = state.version.level_bytes(0, self.layout.page_bytes);
        let is_busy = || state.is_flushing || state.is_merging || self.is_due(&state);
        if free < needed + top_bytes && is_busy() {
            return Ok(Stall::Stop);
        }
        if free < needed {
            return Ok(Stall::Full);
        }
        Ok(match top >= self.options.level0_slowdown_writes_trigger as usize {
            true => Stall::Slow,
            false => Stall::No,
        })
    }

    /// Waits until records may be put. Does not suspend between its last check and its return.
    /// `may_be_refused`: if only the room that puts leave is free.
    fn make_room(
        &self,
        thread: Thread,
        records: &[(Key, u32)],
        may_be_refused: bool,
    ) -> Result<(), StoreError> {
        let (mut is_slowed, mut asked_after, mut merged) = (false, None, 0);
        loop {
            let full = self.state.borrow().full.len();
            match self.stall(records)? {
                Stall::No => return Ok(()),
                Stall::Slow if is_slowed => return Ok(()),
                Stall::Slow => {
                    is_slowed = true;
                    self.state.borrow_mut().counters.slowed_puts += 1;
                    let bytes: u64 =
                        records.iter().map(|(key, bytes)| key.len() as u64 + u64::from(*bytes)).sum();
                    let span_ns = bytes * 1_000_000_000 / self.options.delayed_write_rate;
                    self.ground.cpu.pause(thread, span_ns);
                }
                Stall::Stop => {
                    let (failures, is_new) = {
                        let mut state = self.state.borrow_mut();
                        state.counters.stopped_puts += 1;
                        let Failures { count, last, .. } = &state.failures;
                        let has_failed = asked_after.is_some_and(|then| then < *count);
                        if let (true, Some(error)) = (has_failed, last) {
                            return Err(error.clone());
                        }
                        (*count, state.full.len() > full)
                    };
                    // After each job the background looks for another one, so it is requested once, and again
                    // if this put has filled a memtable: otherwise waiting puts would wake each other for
                    // ever.
                    if is_new || asked_after.is_none() {
                        asked_after.get_or_insert(failures);
                        self.state.borrow_mut().failures.has_given_up = false;
                        self.ground.cpu.wake();
                    }
                    self.ground.cpu.wait(thread);
                }
                Stall::Full => {
                    let before = self.free_bytes();
                    self.reclaim(thread)?;
                    if self.free_bytes() > before {
                        continue;
                    }
                    // Merges make room as long as there are dead entries.
                    merged += 1;
                    let tables = self.state.borrow().version.tables().count();
                    if merged > 4 * tables + 64 || !self.merge_for_room(thread)? {
                        // Deletes continue: in a later merge they meet the pairs that they delete, and both are
                        // dropped. So do puts repeated after a power cut: a merge drops their first copies, if there
                        // are any.
                        if !may_be_refused {
                            return Ok(());
                        }
                        let is_held = !self.state.borrow().obsolete.is_empty();
                        return Err(if is_held { StoreError::HeldByCursors } else { StoreError::Full });
                    }
                }
            }
        }
    }

    /// Writes closed pages of the log; waits until at most `most_under_way` are under way.
    fn write_wal(&self, thread: Thread, most_under_way: usize) -> Result<(), StoreError> {
        loop {
            let taken = self.state.borrow_mut().wal.take_closed();
            let Some((first, run)) = taken else { break };
            let bytes = run.len() as u64 * u64::from(self.layout.page_bytes);
            self.work(thread, &[(Step::ChecksumByte, bytes)]);
            let page = self.state.borrow().wal.page_of(first);
            match self.ground.pages.start_write(thread, page, &run, Purpose::Wal) {
                Ok(writing) => self.state.borrow_mut().wal.under_way.push_back((first, writing)),
                Err(error) => return self.end_wal_write(first, Err(error.into())),
            }
            self.ground.cpu.wake();
        }
        loop {
            let oldest = {
                let mut state = self.state.borrow_mut();
                if state.wal.under_way.len() <= most_under_way {
                    return Ok(());
                }
                state.wal.under_way.pop_front().expect("more than none are under way")
            };
            let result = self.ground.pages.finish_write(thread, oldest.1);
            self.end_wal_write(oldest.0, result.map_err(StoreError::from))?;
        }
    }

    fn end_wal_write(&self, first: u64, result: Result<(), StoreError>) -> Result<(), StoreError> {
        let mut state = self.state.borrow_mut();
        state.wal.writing.remove(&first);
        if let Err(error) = &result {
            state.failed.get_or_insert(error.clone());
        }
        drop(state);
        self.ground.cpu.wake();
        result
    }

    /// Makes the memtables durable.
    pub(super) fn sync(&self, thread: Thread) -> Result<(), StoreError> {
        self.state.borrow().check()?;
        let upto = self.state.borrow().sequence;
        match self.options.wal {
            true => self.sync_wal(thread)?,
            false => self.flush_all(thread)?,
        }
        let mut state = self.state.borrow_mut();
        state.durable = state.durable.max(upto);
        Ok(())
    }

    /// Makes the log durable.
    fn sync_wal(&self, thread: Thread) -> Result<(), StoreError> {
        let upto = {
            let mut state = self.state.borrow_mut();
            state.wal.close_page();
            state.wal.next
        };
        if self.state.borrow().wal.durable >= upto {
            return Ok(());
        }
        loop {
            self.write_wal(thread, 0)?;
            self.state.borrow().check()?;
            if self.state.borrow().wal.writing.first().is_none_or(|oldest| *oldest >= upto) {
                break;
            }
            self.ground.cpu.wait(thread);
        }
        self.ground.pages.flush(thread, Purpose::Wal)?;
        let mut state = self.state.borrow_mut();
        state.wal.durable = state.wal.durable.max(upto);
        Ok(())
    }

    /// Writes every memtable to a table.
    pub(super) fn flush_all(&self, thread: Thread) -> Result<(), StoreError> {
        let last = {
            let mut state = self.state.borrow_mut();
            if !state.active.is_empty() {
                state.rotate();
            }
            state.full.back().cloned()
        };
        let Some(last) = last else { return Ok(()) };
        while self.state.borrow().full.iter().any(|full| Rc::ptr_eq(full, &last)) {
            if !self.flush_job(thread)? {
                self.ground.cpu.wait(thread);
            }
        }
        Ok(())
    }

    pub(super) fn apply(
        &self,
        thread: Thread,
        batch: &[StoreRequest<'_>],
        may_be_refused: bool,
    ) -> Result<(), StoreError> {
        let most = self.max_value_bytes();
        let mut records = Vec::with_capacity(batch.len());
        for (key, value) in batch.iter().map(StoreRequest::parts) {
            let bytes = value.map_or(0, |value| value.bytes());
            if bytes > most {
                return Err(StoreError::ValueTooLong { bytes, most });
            }
            records.push((key, bytes));
        }
        let count = batch.len() as u64;
        let copied: u64 = records.iter().map(|(key, bytes)| key.len() as u64 + u64::from(*bytes)).sum();
        self.work(thread, &[(Step::MemtableInsert, count), (Step::CopyByte, copied * 2)]);
        self.make_room(thread, &records, may_be_refused)?;
        {
            let mut guard = self.state.borrow_mut();
            let state = &mut *guard;
            for (index, (key, value)) in batch.iter().map(StoreRequest::parts).enumerate() {
                state.sequence += 1;
                let mut flags = if batch.len() > 1 { Flags::MEMBER } else { Flags::NONE };
                if batch.len() > 1 && index == 0 {
                    flags = flags.with(Flags::FIRST);
                }
                if batch.len() > 1 && index + 1 == batch.len() {
                    flags = flags.with(Flags::LAST);
                }
                if self.options.wal {
                    state.wal.append(&key, value.as_ref(), state.sequence, flags);
                }
                state.active.insert(key, state.sequence, value.as_ref().map(StoredValue::of));
            }
        }
        self.write_wal(thread, MOST_UNDER_WAY)?;
        if self.is_due(&self.state.borrow()) {
            self.ground.cpu.wake();
        }
        Ok(())
    }
}
