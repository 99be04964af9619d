//! The state of `hashlog` in memory, and all operations on it that do not wait.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use kvdrive_content::{Decoder, Region};
use kvdrive_declare::Counters;
use kvdrive_nvme::Key;

use super::shape::{PageFields, SegmentShape};
use crate::key_hash::KeyMap;
use crate::pages::{Page, PageId, Writing};
use crate::records::{Flags, OpenPage};
use crate::store::StoreError;
use crate::value::Value;

/// The position of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordAt {
    /// Its first page.
    pub page: u32,
    /// The index of its head on that page.
    pub slot: u16,
    /// Number of pages it is on.
    pub pages: u16,
}

/// The index entry of a key.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its newest record.
    pub place: RecordAt,
    value: u32,
    /// Older records of the key with values that are still on pages. While there is one, a tombstone stays.
    pub stale: u32,
}

impl Entry {
    const TOMBSTONE: u32 = 1 << 31;

    /// The entry of a key whose newest record is at `place`.
    pub fn new(place: RecordAt, value_bytes: Option<u32>, stale: u32) -> Entry {
        Entry { place, value: value_bytes.unwrap_or(Entry::TOMBSTONE), stale }
    }

    /// Length of the value; `None` if the key was deleted.
    pub fn value_bytes(&self) -> Option<u32> {
        (self.value != Entry::TOMBSTONE).then_some(self.value)
    }
}

/// Use of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It holds no records.
    Free,
    /// A stream writes to it.
    Open,
    /// Written.
    Sealed,
    /// Its live records were moved; it will be freed.
    Victim,
    /// A page of it cannot be read, so it is left unchanged.
    Damaged,
}

/// A part of the log that is cleaned as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Its use.
    pub phase: Phase,
    /// Bytes of live records, tombstones included.
    pub live: u64,
    /// Readers that pin it.
    pub pins: u32,
}

/// The write position of one thread.
#[derive(Default)]
pub struct Stream {
    segment: Option<u32>,
    /// Its life.
    life: u64,
    /// Next page of the segment, counted from its first.
    next: u32,
    open: Option<OpenPage>,
    /// Pages to be written.
    closed: VecDeque<(u32, Page)>,
    spare: Region,
}

/// Writes in flight.
pub struct Block {
    /// Number of the write.
    pub id: u64,
    /// First page.
    pub first: u32,
    /// The pages.
    pub run: Vec<Page>,
}

/// A write without a waiter.
pub struct UnderWay {
    /// The block; its pages are still needed in memory.
    pub block: Block,
    /// The write.
    pub writing: Writing,
}

/// A segment to which a stream was writing when everything was durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenSegment {
    /// Its life.
    pub life: u64,
    /// Pages that were written.
    pub pages: u32,
}

/// A fact about a moment when everything was durable that the pages alone cannot show: where each stream ended. Every
/// other segment has a last page that says so.
///
/// ```text
///   bytes   synced u64 | of each open segment: number u32, pages u32, life u64
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Every record up to this sequence was durable.
    pub synced: u64,
    /// Segments that were open, by number.
    pub open: BTreeMap<u32, OpenSegment>,
}

impl Mark {
    /// The bytes that a caller keeps.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.synced.to_le_bytes().to_vec();
        for (segment, open) in &self.open {
            out.extend(segment.to_le_bytes());
            out.extend(open.pages.to_le_bytes());
            out.extend(open.life.to_le_bytes());
        }
        out
    }

    /// The mark of these bytes; `None` if they are malformed.
    pub fn of_bytes(bytes: &[u8]) -> Option<Mark> {
        let mut at = Decoder::new(bytes);
        let mut mark = Mark { synced: at.u64()?, open: BTreeMap::new() };
        while !at.is_at_end() {
            let (segment, pages) = (at.u32()?, at.u32()?);
            mark.open.insert(segment, OpenSegment { life: at.u64()?, pages });
        }
        Some(mark)
    }
}

/// A segment whose live records were moved.
pub struct Victim {
    /// Its number.
    pub segment: u32,
    /// When everything up to this sequence is durable, the segment is not needed any more.
    pub upto: u64,
    /// Its records with values, all stale.
    pub keys: Vec<Key>,
    /// Its stage.
    pub stage: Stage,
}

/// Stages of a victim until it is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Its live records have been appended elsewhere.
    Emptied,
    /// A durable record says that its records do not count.
    Void,
    /// It has been trimmed.
    Trimmed,
}

/// Counts since the store was made.
#[derive(Clone, Copy, Debug, Default, Counters)]
pub struct StoreCounters {
    /// Records appended for callers.
    pub records: u64,
    /// Records moved by cleaning.
    pub moved_records: u64,
    /// Bytes of the values of moved records.
    pub moved_bytes: u64,
    /// Segments cleaned.
    pub cleaned_segments: u64,
    /// Syncs that had something to make durable.
    pub syncs: u64,
}

/// How full the store is.
#[derive(Counters)]
#[counters(state)]
pub struct Filled {
    /// Pairs in the store.
    pub pairs: u64,
    /// Segments that can be written.
    pub free_segments: usize,
}

/// Memory of the store.
#[derive(Counters)]
#[counters(state, unit = Bytes)]
pub struct Memory {
    /// The hash table of all keys.
    pub index: usize,
    /// Blocks that are being filled or written.
    pub open_blocks: usize,
    /// The state of each segment.
    pub segments: usize,
}

/// All state of a store.
pub struct HashlogState {
    /// How the pages are divided.
    pub shape: SegmentShape,
    /// The newest record of every key.
    pub index: KeyMap<Entry>,
    /// One for each thread; the last one is cleaning's.
    pub streams: Vec<Stream>,
    /// All segments.
    pub segments: Vec<Segment>,
    /// Free segments, in the order in which they became free.
    pub free: VecDeque<u32>,
    /// Pages that are closed, and not known to be written.
    pub unwritten: HashMap<u32, Page>,
    /// Number of the next record.
    pub next_sequence: u64,
    /// Every record up to this one is durable.
    pub synced: u64,
    /// The value of `synced` that is written to pages. During recovery it lags.
    pub watermark: u64,
    /// Sum of live bytes over segments.
    pub live_bytes: u64,
    /// Keys that have a value.
    pub pairs: u64,
    /// Segments that are being freed.
    pub victims: Vec<Victim>,
    /// Open cursors by the sequence at which they were opened.
    pub cursors: BTreeMap<u64, u32>,
    /// Writes that have begun and not ended.
    pub writes: BTreeSet<u64>,
    next_write: u64,
    /// Writes that no thread waits for.
    pub under_way: VecDeque<UnderWay>,
    /// A write failed: records that were not durable may never become so.
    pub failed: Option<StoreError>,
    /// Torn pages are being removed: pages must not yet contain the durable position.
    pub is_recovering: bool,
    /// Records that recovery found invalid.
    pub ignored: HashSet<(u32, u16)>,
    /// Pages that recovery could not read: their records do not count, even if they can be read later.
    pub unread: HashSet<u32>,
    /// Counts.
    pub counters: StoreCounters,
}

impl HashlogState {
    /// The state of blank pages.
    pub fn new(shape: SegmentShape) -> HashlogState {
        let segment = Segment { phase: Phase::Free, live: 0, pins: 0 };
        HashlogState {
            shape,
            index: KeyMap::default(),
            streams: (0..=shape.threads).map(|_| Stream::default()).collect(),
            segments: vec![segment; shape.segments as usize],
            free: VecDeque::new(),
            unwritten: HashMap::new(),
            next_sequence: 1,
            synced: 0,
            watermark: 0,
            live_bytes: 0,
            pairs: 0,
            victims: Vec::new(),
            cursors: BTreeMap::new(),
            writes: BTreeSet::new(),
            next_write: 0,
            under_way: VecDeque::new(),
            failed: None,
            is_recovering: false,
            ignored: HashSet::new(),
            unread: HashSet::new(),
            counters: StoreCounters::default(),
        }
    }

    /// The index of cleaning's stream.
    pub fn cleaner(&self) -> usize {
        self.shape.threads as usize
    }

    /// The error of all writes after a write has failed.
    pub fn check(&self) -> Result<(), StoreError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Number of free segments that a stream takes if these records are appended to it in order.
    pub fn segments_for<'a>(&self, stream: usize, records: impl Iterator<Item = (&'a Key, u32)>) -> u32 {
        let stream = &self.streams[stream];
        let mut room = self.open_room(stream);
        let mut left = stream.segment.map_or(0, |_| self.shape.segment_pages - stream.next);
        let mut segments = 0;
        for (key, bytes) in records {
            let mut fit = self.shape.format.fit(room, key, bytes);
            if fit.new_pages > left {
                fit = self.shape.format.fit(0, key, bytes);
                segments += 1;
                left = self.shape.segment_pages;
            }
            left -= fit.new_pages;
            room = fit.room;
        }
        segments
    }

    fn open_room(&self, stream: &Stream) -> u32 {
        stream.open.as_ref().filter(|open| !open.is_too_far(self.next_sequence)).map_or(0, OpenPage::room)
    }

    /// Appends a record and makes it the newest of its key. The caller has reserved [`HashlogState::segments_for`]
    /// it.
    pub fn append(&mut self, stream: usize, key: &Key, value: Option<&Value<'_>>, flags: Flags) {
        let (bytes, sequence) = (value.map_or(0, Value::bytes), self.next_sequence);
        self.next_sequence += 1;
        self.begin_page(stream, key, bytes);
        let (value_or_none, flags) = match value {
            Some(value) => (*value, flags),
            None => (Value::from(&[][..]), flags.with(Flags::TOMBSTONE)),
        };
        let open = self.streams[stream].open.as_mut().expect("a page was begun");
        let (page, slot) = (open.page.0 as u32, open.count());
        let (mut done, mut pages) = (open.begin_record(key, &value_or_none, sequence, flags), 1);
        while done < bytes {
            self.next_page(stream);
            let open = self.streams[stream].open.as_mut().expect("a page was begun");
            done += open.continue_record(&value_or_none, done, sequence);
            pages += 1;
        }
        self.enter(key, RecordAt { page, slot, pages }, value.map(Value::bytes));
    }

    /// Appends a record that makes all older records of a segment invalid.
    pub fn append_void(&mut self, segment: u32) {
        let (stream, key, sequence) = (self.cleaner(), Key::from_u32_be(segment), self.next_sequence);
        self.next_sequence += 1;
        self.begin_page(stream, &key, 0);
        let open = self.streams[stream].open.as_mut().expect("a page was begun");
        open.begin_record(&key, &Value::from(&[][..]), sequence, Flags::VOID);
    }

    /// Ensures that the record begins on the open page and ends in the same segment.
    fn begin_page(&mut self, stream: usize, key: &Key, bytes: u32) {
        let at = &self.streams[stream];
        let room = self.open_room(at);
        let fit = self.shape.format.fit(room, key, bytes);
        if at.segment.is_none() || fit.new_pages > self.shape.segment_pages - at.next {
            self.leave_segment(stream);
            let segment = self.free.pop_front().expect("an append reserves its segments first");
            self.segments[segment as usize].phase = Phase::Open;
            let at = &mut self.streams[stream];
            // The life is the sequence of the record that follows, which has been taken already.
            (at.segment, at.life, at.next) = (Some(segment), self.next_sequence - 1, 0);
            self.next_page(stream);
        } else if room < crate::records::head_bytes(key) + bytes.min(1) {
            self.next_page(stream);
        }
    }

    fn next_page(&mut self, stream: usize) {
        self.close_page(stream);
        let at = &mut self.streams[stream];
        let segment = at.segment.expect("a page is in a segment");
        let page = self.shape.first_page(segment) + at.next;
        at.next += 1;
        let spare = std::mem::take(&mut at.spare);
        at.open = Some(OpenPage::new(self.shape.format, PageId(page.into()), spare));
    }

    /// Closes the open page of a stream, if it has one; the page is to be written.
    pub fn close_page(&mut self, stream: usize) {
        self.close_page_as(stream, false);
    }

    fn close_page_as(&mut self, stream: usize, is_last: bool) {
        let (synced, segment_pages) = (self.watermark, self.shape.segment_pages);
        let at = &mut self.streams[stream];
        let Some(open) = at.open.take() else { return };
        let own = PageFields { synced, life: at.life, segment_pages, is_last };
        let number = open.page.0 as u32;
        let (page, spare) = open.close(&own.to_bytes());
        at.spare = spare;
        at.closed.push_back((number, page.clone()));
        self.unwritten.insert(number, page);
    }

    /// Closes the segment of a stream. Its last page is marked as the last, or is the last that fits.
    /// The segment has at least two pages, so that if one is lost, the other shows that it is missing.
    fn leave_segment(&mut self, stream: usize) {
        let at = &self.streams[stream];
        let needs_page = at.open.is_none() || at.next == 1;
        if at.segment.is_some() && needs_page && at.next < self.shape.segment_pages {
            self.next_page(stream);
            let sequence = self.next_sequence - 1;
            self.streams[stream].open.as_mut().expect("a page was begun").begin_at(sequence);
        }
        self.close_page_as(stream, true);
        if let Some(segment) = self.streams[stream].segment.take() {
            self.segments[segment as usize].phase = Phase::Sealed;
        }
    }

    /// Pages of a stream to be written: a whole block, or with `is_all` fewer pages, too.
    pub fn take_block(&mut self, stream: usize, is_all: bool) -> Option<Block> {
        let closed = &mut self.streams[stream].closed;
        let first = closed.front()?.0;
        let run = (first..).zip(closed.iter()).take_while(|(expected, (page, _))| expected == page).count();
        if run < self.shape.block_pages as usize && run == closed.len() && !is_all {
            return None;
        }
        let run = closed.drain(..run).map(|(_, page)| page).collect();
        let id = self.next_write;
        self.next_write += 1;
        self.writes.insert(id);
        Some(Block { id, first, run })
    }

    /// Notes that a write has ended.
    pub fn written(&mut self, block: &Block, result: Result<(), StoreError>) -> Result<(), StoreError> {
        self.writes.remove(&block.id);
        if let Err(error) = &result {
            self.failed.get_or_insert(error.clone());
            return result;
        }
        (block.first..).take(block.run.len()).for_each(|page| {
            self.unwritten.remove(&page);
        });
        Ok(())
    }

    /// Have all writes ended that had begun when `mark` was taken ([`HashlogState::write_mark`])?
    pub fn are_written(&self, mark: u64) -> bool {
        self.writes.first().is_none_or(|oldest| *oldest >= mark)
    }

    /// The number of the next write.
    pub fn write_mark(&self) -> u64 {
        self.next_write
    }

    /// Notes that a record has become the newest of its key.
    pub fn enter(&mut self, key: &Key, place: RecordAt, value_bytes: Option<u32>) {
        let charge = self.shape.charge(key, value_bytes.unwrap_or(0));
        self.live_bytes += charge;
        self.segments[self.shape.segment_of(place.page) as usize].live += charge;
        self.pairs += u64::from(value_bytes.is_some());
        let mut stale = 0;
        if let Some(entry) = self.index.get(key).copied() {
            stale = entry.stale + u32::from(entry.value_bytes().is_some());
            self.forget(key, &entry);
        }
        match value_bytes {
            None if stale == 0 => self.drop_tombstone(key, place),
            _ => {
                self.index.insert(*key, Entry::new(place, value_bytes, stale));
            }
        }
    }

    /// Notes that the record of an entry is not live any more.
    pub fn forget(&mut self, key: &Key, entry: &Entry) {
        let charge = self.shape.charge(key, entry.value_bytes().unwrap_or(0));
        self.live_bytes -= charge;
        self.segments[self.shape.segment_of(entry.place.page) as usize].live -= charge;
        self.pairs -= u64::from(entry.value_bytes().is_some());
    }

    fn drop_tombstone(&mut self, key: &Key, place: RecordAt) {
        self.forget(key, &Entry::new(place, None, 0));
        self.index.remove(key);
    }

    /// Frees a victim whose records are off the pages, and removes tombstones that were kept only because of
    /// them.
    pub fn free_victim(&mut self, segment: u32) {
        let Some(index) = self.victims.iter().position(|victim| victim.segment == segment) else { return };
        let victim = self.victims.swap_remove(index);
        for key in victim.keys {
            let entry = self.index.get_mut(&key).expect("a key with a stale record has an entry");
            entry.stale -= 1;
            if let Entry { place, stale: 0, .. } = *entry
                && entry.value_bytes().is_none()
            {
                self.drop_tombstone(&key, place);
            }
        }
        assert_eq!(self.segments[segment as usize].live, 0, "nothing in a freed segment is live");
        self.segments[segment as usize].phase = Phase::Free;
        self.free.push_back(segment);
        self.counters.cleaned_segments += 1;
    }

    /// The mark to remember after a sync has ended.
    pub fn mark(&self) -> Mark {
        let open =
            |stream: &Stream| Some((stream.segment?, OpenSegment { life: stream.life, pages: stream.next }));
        Mark { synced: self.synced, open: self.streams.iter().filter_map(open).collect() }
    }

    /// A page that is in memory; for a stream's open page a copy as it is now, with its header fields.
    pub fn page_in_memory(&self, page: u32) -> Option<(Page, Option<crate::frame::Facts>)> {
        if let Some(page) = self.unwritten.get(&page) {
            return Some((page.clone(), None));
        }
        let open = self.streams.iter().filter_map(|stream| stream.open.as_ref());
        open.filter(|open| open.page.0 == u64::from(page))
            .map(|open| open.snapshot())
            .map(|(p, f)| (p, Some(f)))
            .next()
    }
}
