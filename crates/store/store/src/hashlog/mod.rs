//! `hashlog`: pairs in a log; a hash table in memory finds the newest record of each key.
//!
//! ```text
//!   pages   | segment 0 | segment 1 | segment 2 | ...        a segment is cleaned and given back as a whole
//!            \
//!             | block | block | ...                          a block is written at a time
//!
//!   page    | frame 32 B | synced u64 | life u64 | segment pages u32 | last u32 | records ([`crate::records`])
//! ```
//!
//! Every thread has an open segment of its own, and in it an open page that takes records; a full page is
//! written with its block. *Synced* is the sequence up to which every record was durable when the page was
//! closed. A segment that is reused has another *life*, the sequence of its first record, so that no page of
//! an earlier life is taken for one of this life; its last page says that it is the last, unless it is the
//! last possible one.
//!
//! Recovery reads every page. If a page is missing, torn, or of an earlier life, it is damage if it lies
//! before a page whose records were durable; after all of those, it may be left by a power cut. At the end of a segment
//! the two can be told apart only by a caller that remembers where the open segments ended ([`Store::mark`]).
//!
//! A segment is freed only when its live records have newer copies, these copies and everything newer than
//! any of the segment's records are durable, a record that voids the segment is durable, too (a half-trimmed
//! segment would look damaged), and no reader and no cursor uses it. It is reusable when its trimming is
//! durable. A tombstone stays as long as older values of its key are on pages: the index counts them.
//!
//! An atomic batch is a run of sequence numbers with a first and a last one. It counts if it is complete, or
//! if a page says that a newer record was durable: cleaning removes members later.
//!
//! No structure keeps the order of keys: a cursor copies and sorts the index.

mod cleaning;
mod cursor;
mod options;
mod recovery;
mod shape;
mod state;

use std::cell::RefCell;
use std::rc::Rc;

use kvdrive_declare::{Counters, Counts};
use kvdrive_nvme::Key;

use crate::StoreRow;
use crate::cpu::{FifoLock, Step, Thread};
use crate::frame::{self, Kind};
use crate::pages::{Page, PageId, Purpose};
use crate::records::{Flags, records};
use crate::store::{Applied, Cursor, Ground, Recovered, Space, Store, StoreError, StoreRequest};
use crate::value::{StoredValue, Value};
pub use options::{HashlogOptions, WriteMode};
use shape::{FREE_FOR_DELETES, FREE_FOR_PUTS};
use state::{Block, Entry, HashlogState, Phase, RecordAt, UnderWay};

/// The store's row.
pub const ROW: StoreRow = StoreRow {
    name: "hashlog",
    about: "hash table in memory over a log of blocks, one open block for each thread (SAKER's Hash-store)",
    sections: &["ftl", "store", "hashlog"],
    reclaims: &[],
    steps: &[
        Step::Probe,
        Step::Insert,
        Step::Compare,
        Step::CopyByte,
        Step::ChecksumByte,
        Step::BlockSearch,
        Step::MergeEntry,
    ],
    check: |options, page_bytes, pages, threads| options.hashlog.check(page_bytes, pages, threads),
    fit: |options, page_bytes, pages, threads| options.hashlog.fit(page_bytes, pages, threads),
    layout: |options| kvdrive_declare::image_keys(&options.hashlog),
    log_segment_pages: |options, page_bytes| {
        Some((options.hashlog.segment_bytes / u64::from(page_bytes)) as u32)
    },
    read_cache: None,
    background: |_| None,
    make: |options, ground| Rc::new(Hashlog(Rc::new(Log::new(&options.hashlog, ground)))),
};

/// The store.
struct Hashlog(Rc<Log>);

/// State shared by the store and its cursors.
struct Log {
    ground: Ground,
    options: HashlogOptions,
    state: RefCell<HashlogState>,
    cleaning: FifoLock,
}

impl Log {
    fn new(options: &HashlogOptions, ground: Ground) -> Log {
        let (page_bytes, pages) = (ground.pages.page_bytes(), ground.pages.pages());
        let shape = options.shape(page_bytes, pages, ground.threads);
        let state = RefCell::new(HashlogState::new(shape));
        Log { ground, options: options.clone(), state, cleaning: FifoLock::default() }
    }

    fn work(&self, thread: Thread, steps: &[(Step, u64)]) {
        self.ground.cpu.work(thread, steps);
    }

    /// Ensures that records can be appended to a stream, and that `more` further live bytes fit. Leaves
    /// `keep` segments free. Suspends only if it has to clean.
    fn make_room<'a, I: Iterator<Item = (&'a Key, u32)> + Clone>(
        &self,
        thread: Thread,
        stream: usize,
        more: u64,
        keep: u32,
        appended: I,
    ) -> Result<(), StoreError> {
        loop {
            let need = {
                let state = self.state.borrow();
                state.check()?;
                if more > 0 && state.live_bytes + more > state.shape.capacity() {
                    return Err(StoreError::Full);
                }
                match state.segments_for(stream, appended.clone()) {
                    0 => return Ok(()),
                    segments if state.free.len() as u32 >= segments + keep => return Ok(()),
                    segments => segments + keep,
                }
            };
            self.clean(thread, need)?;
        }
    }

    /// Writes the complete blocks of a stream, or all of its closed pages.
    fn write_blocks(&self, thread: Thread, stream: usize, is_all: bool) -> Result<(), StoreError> {
        let why = if stream == self.ground.threads as usize { Purpose::Cleaning } else { Purpose::Log };
        loop {
            let Some(block) = self.state.borrow_mut().take_block(stream, is_all) else { return Ok(()) };
            let bytes = block.run.len() as u64 * u64::from(self.ground.pages.page_bytes());
            self.work(thread, &[(Step::ChecksumByte, bytes)]);
            let first = PageId(block.first.into());
            match self.options.write {
                WriteMode::Wait => {
                    let result = self.ground.pages.write(thread, first, &block.run, why);
                    self.end_write(&block, result.map_err(StoreError::from))?;
                }
                WriteMode::Overlap => {
                    match self.ground.pages.start_write(thread, first, &block.run, why) {
                        Ok(writing) => {
                            self.state.borrow_mut().under_way.push_back(UnderWay { block, writing });
                            // A syncing caller may wait for it.
                            self.ground.cpu.wake();
                        }
                        Err(error) => self.end_write(&block, Err(error.into()))?,
                    }
                    self.finish_writes(thread, self.options.blocks_under_way as usize)?;
                }
            }
        }
    }

    /// Waits for the oldest writes that have no waiter until at most `left` are in flight.
    fn finish_writes(&self, thread: Thread, left: usize) -> Result<(), StoreError> {
        loop {
            let oldest = {
                let mut state = self.state.borrow_mut();
                if state.under_way.len() <= left {
                    return Ok(());
                }
                state.under_way.pop_front().expect("more than none are under way")
            };
            let result = self.ground.pages.finish_write(thread, oldest.writing);
            self.end_write(&oldest.block, result.map_err(StoreError::from))?;
        }
    }

    /// Returns when every write below `mark` has ended, whichever caller began it.
    fn await_writes(&self, thread: Thread, mark: u64) -> Result<(), StoreError> {
        loop {
            self.finish_writes(thread, 0)?;
            if self.state.borrow().are_written(mark) {
                return Ok(());
            }
            self.ground.cpu.wait(thread);
        }
    }

    fn end_write(&self, block: &Block, result: Result<(), StoreError>) -> Result<(), StoreError> {
        let result = self.state.borrow_mut().written(block, result);
        self.ground.cpu.wake();
        result
    }

    /// Makes every record durable that has been appended so far.
    fn sync(&self, thread: Thread) -> Result<(), StoreError> {
        let upto = {
            let state = self.state.borrow();
            state.check()?;
            state.next_sequence - 1
        };
        if upto <= self.state.borrow().synced {
            return Ok(());
        }
        let streams = self.state.borrow().streams.len();
        for stream in 0..streams {
            self.state.borrow_mut().close_page(stream);
            self.write_blocks(thread, stream, true)?;
        }
        let mark = self.state.borrow().write_mark();
        self.await_writes(thread, mark)?;
        self.state.borrow().check()?;
        self.flush(thread)?;
        let mut state = self.state.borrow_mut();
        state.synced = state.synced.max(upto);
        state.counters.syncs += 1;
        if !state.is_recovering {
            state.watermark = state.synced;
        }
        Ok(())
    }

    fn put(
        &self,
        thread: Thread,
        key: Key,
        value: Option<Value<'_>>,
        flags: Flags,
    ) -> Result<(), StoreError> {
        let bytes = value.map_or(0, |value| value.bytes());
        let copied = key.len() as u64 + u64::from(bytes);
        self.work(thread, &[(Step::Probe, 1), (Step::Insert, 1), (Step::CopyByte, copied)]);
        let stream = thread.0 as usize;
        let (more, keep) = match value {
            Some(_) => (self.growth(&key, bytes), FREE_FOR_PUTS),
            None if self.lacks(&key) => return Ok(()),
            None => (0, FREE_FOR_DELETES),
        };
        self.make_room(thread, stream, more, keep, [(&key, bytes)].into_iter())?;
        // Cleaning may have suspended this call, and another call may have deleted the key.
        if value.is_none() && self.lacks(&key) {
            return Ok(());
        }
        let mut state = self.state.borrow_mut();
        state.append(stream, &key, value.as_ref(), flags);
        state.counters.records += 1;
        drop(state);
        self.write_blocks(thread, stream, false)
    }

    /// Has the key no value?
    fn lacks(&self, key: &Key) -> bool {
        self.state.borrow().index.get(key).is_none_or(|entry| entry.value_bytes().is_none())
    }

    /// Growth of live bytes if the key gets a value of this length.
    fn growth(&self, key: &Key, bytes: u32) -> u64 {
        let state = self.state.borrow();
        let old =
            state.index.get(key).map_or(0, |entry| state.shape.charge(key, entry.value_bytes().unwrap_or(0)));
        state.shape.charge(key, bytes).saturating_sub(old)
    }

    /// Executes a batch wholly or not at all.
    fn apply_atomic(&self, thread: Thread, batch: &[StoreRequest<'_>]) -> Result<(), StoreError> {
        let most = self.state.borrow().shape.longest_value();
        let (mut copied, mut more) = (0, 0);
        for (key, value) in batch.iter().map(StoreRequest::parts) {
            let bytes = value.map_or(0, |value| value.bytes());
            if bytes > most {
                return Err(StoreError::ValueTooLong { bytes, most });
            }
            copied += key.len() as u64 + u64::from(bytes);
            more += value.map_or(0, |_| self.growth(&key, bytes));
        }
        let count = batch.len() as u64;
        self.work(thread, &[(Step::Probe, count), (Step::Insert, count), (Step::CopyByte, copied)]);
        let stream = thread.0 as usize;
        let sizes: Vec<_> = batch
            .iter()
            .map(StoreRequest::parts)
            .map(|(key, value)| (key, value.map_or(0, |v| v.bytes())))
            .collect();
        let appended = sizes.iter().map(|(key, bytes)| (key, *bytes));
        let has_puts = batch.iter().any(|request| matches!(request, StoreRequest::Put(..)));
        let keep = if has_puts { FREE_FOR_PUTS } else { FREE_FOR_DELETES };
        self.make_room(thread, stream, more, keep, appended)?;
        // From here on this call does not suspend, so no other caller intervenes.
        let mut put = std::collections::BTreeSet::new();
        let mut effective = Vec::with_capacity(batch.len());
        for (key, value) in batch.iter().map(StoreRequest::parts) {
            match value {
                Some(_) => put.insert(key),
                // An existing tombstone may not be durable when the batch is: it is written again.
                None if !put.contains(&key) && !self.state.borrow().index.contains_key(&key) => continue,
                None => put.remove(&key),
            };
            effective.push((key, value));
        }
        let mut state = self.state.borrow_mut();
        let last = effective.len().saturating_sub(1);
        for (index, (key, value)) in effective.iter().enumerate() {
            let mut flags = if last > 0 { Flags::MEMBER } else { Flags::NONE };
            if last > 0 && index == 0 {
                flags = flags.with(Flags::FIRST);
            }
            if last > 0 && index == last {
                flags = flags.with(Flags::LAST);
            }
            state.append(stream, key, value.as_ref(), flags);
        }
        state.counters.records += effective.len() as u64;
        drop(state);
        self.write_blocks(thread, stream, false)
    }

    /// Reads the value of the record at a position, whose segment the caller has pinned.
    fn load(
        &self,
        thread: Thread,
        place: RecordAt,
        why: Purpose,
    ) -> Result<(Option<Key>, StoredValue), StoreError> {
        let mut pages = Vec::with_capacity(place.pages.into());
        let mut page = place.page;
        let end = place.page + u32::from(place.pages);
        while page < end {
            let in_memory = self.state.borrow().page_in_memory(page);
            match in_memory {
                Some(found) => {
                    pages.push(found);
                    page += 1;
                }
                None => {
                    let state = self.state.borrow();
                    let run =
                        (page..end).take_while(|page| state.page_in_memory(*page).is_none()).count() as u32;
                    drop(state);
                    let mut out = Vec::with_capacity(run as usize);
                    self.ground.pages.read(thread, PageId(page.into()), run, why, &mut out)?;
                    pages.extend(out.into_iter().map(|page| (page, None)));
                    page += run;
                }
            }
        }
        let unread = pages.iter().filter(|(_, open)| open.is_none()).count() as u64;
        let checked = unread * u64::from(self.ground.pages.page_bytes());
        self.work(thread, &[(Step::BlockSearch, 1), (Step::ChecksumByte, checked)]);
        self.collect(place, &pages)
    }

    /// Assembles a value from the pages of its record.
    fn collect(
        &self,
        place: RecordAt,
        pages: &[(Page, Option<frame::Facts>)],
    ) -> Result<(Option<Key>, StoredValue), StoreError> {
        let format = self.state.borrow().shape.format;
        let (mut parts, mut slot) = (Vec::with_capacity(pages.len()), place.slot);
        let (mut key, mut missing) = (None, 0);
        for (number, (page, open)) in (u64::from(place.page)..).zip(pages) {
            let number = PageId(number);
            let facts = match open {
                Some(facts) => *facts,
                None => frame::expect(page, number, format.page_bytes, Kind::Log)?,
            };
            let record = records(&format, page, number, facts).nth(slot)?;
            let is_first = number.0 == u64::from(place.page);
            if record.flags.has(Flags::CONTINUES) == is_first || !is_first && record.value_bytes != missing {
                let what = "has a record of another value".into();
                return Err(StoreError::Damaged { page: number, what });
            }
            key = key.or(record.key);
            missing = record.value_bytes - record.bytes;
            parts.push(record.part(page));
            slot = 0;
        }
        if missing > 0 {
            let page = PageId(u64::from(place.page) + pages.len() as u64);
            return Err(StoreError::Damaged { page, what: "should have the next part of a value".into() });
        }
        Ok((key, StoredValue::of_parts(parts)))
    }

    /// Finds the newest record of a key and pins its segment.
    fn pin(&self, key: &Key) -> Option<RecordAt> {
        let mut state = self.state.borrow_mut();
        let entry = state.index.get(key).copied().filter(|entry| entry.value_bytes().is_some())?;
        let segment = state.shape.segment_of(entry.place.page) as usize;
        state.segments[segment].pins += 1;
        Some(entry.place)
    }

    fn unpin(&self, place: RecordAt) {
        let mut state = self.state.borrow_mut();
        let segment = state.shape.segment_of(place.page) as usize;
        state.segments[segment].pins -= 1;
        let is_awaited = state.segments[segment].pins == 0 && state.segments[segment].phase == Phase::Victim;
        drop(state);
        if is_awaited {
            self.ground.cpu.wake();
        }
    }
}

impl Store for Hashlog {
    fn recover_from(&self, thread: Thread, mark: &[u8]) -> Result<Recovered, StoreError> {
        self.0.recover(thread, mark)
    }

    fn mark(&self) -> Vec<u8> {
        self.0.state.borrow().mark().to_bytes()
    }

    fn put(&self, thread: Thread, key: Key, value: Value<'_>) -> Result<(), StoreError> {
        let (bytes, most) = (value.bytes(), self.max_value_bytes());
        if bytes > most {
            return Err(StoreError::ValueTooLong { bytes, most });
        }
        self.0.put(thread, key, Some(value), Flags::NONE)
    }

    fn get(&self, thread: Thread, key: Key) -> Result<Option<StoredValue>, StoreError> {
        self.0.work(thread, &[(Step::Probe, 1)]);
        let Some(place) = self.0.pin(&key) else { return Ok(None) };
        let loaded = self.0.load(thread, place, Purpose::Lookup);
        self.0.unpin(place);
        let (found, value) = loaded?;
        if found != Some(key) {
            let what = format!("record {} is not of key {key}", place.slot);
            return Err(StoreError::Damaged { page: PageId(place.page.into()), what });
        }
        Ok(Some(value))
    }

    fn delete(&self, thread: Thread, key: Key) -> Result<(), StoreError> {
        self.0.put(thread, key, None, Flags::NONE)
    }

    fn apply(&self, thread: Thread, batch: &[StoreRequest<'_>], atomic: bool) -> Applied {
        if atomic {
            let error = self.0.apply_atomic(thread, batch).err();
            return Applied { requests: if error.is_none() { batch.len() as u32 } else { 0 }, error };
        }
        crate::store::apply_in_order(self, thread, batch)
    }

    fn cursor(&self, thread: Thread, from: Option<Key>) -> Result<Box<dyn Cursor>, StoreError> {
        Ok(Box::new(cursor::HashlogCursor::open(&self.0, thread, from)))
    }

    fn sync(&self, thread: Thread) -> Result<(), StoreError> {
        self.0.sync(thread)
    }

    fn max_value_bytes(&self) -> u32 {
        self.0.state.borrow().shape.longest_value()
    }

    fn space(&self) -> Space {
        let state = self.0.state.borrow();
        Space { live_bytes: state.live_bytes, capacity_bytes: state.shape.capacity() }
    }

    fn counts(&self) -> Counts {
        let state = self.0.state.borrow();
        state.counters.counts().and(&state::Filled { pairs: state.pairs, free_segments: state.free.len() })
    }

    fn dram(&self) -> Counts {
        let state = self.0.state.borrow();
        let slot = size_of::<(Key, Entry)>() + 1;
        let page = state.shape.format.page_bytes as usize;
        let memory = state::Memory {
            index: state.index.capacity() * 8 / 7 * slot,
            open_blocks: (state.streams.len() + state.unwritten.len()) * page,
            segments: state.segments.len() * size_of::<state::Segment>(),
        };
        memory.counts()
    }
}
