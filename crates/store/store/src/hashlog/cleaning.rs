//! Cleaning: the segments with the fewest live bytes are emptied; when the copies are durable, they are
//! trimmed and freed.

use kvdrive_nvme::Key;

use super::Log;
use super::shape::{FREE_FOR_RECOVERY, PageFields, SegmentShape};
use super::state::{HashlogState, Phase, RecordAt, Stage, Victim};
use crate::cpu::{Step, Thread};
use crate::frame::{self, Facts, Kind};
use crate::pages::{Page, PageId, Purpose, Trouble};
use crate::records::{Flags, Record, records};
use crate::store::StoreError;
use crate::value::{Part, StoredValue, Value};

/// The key in a void record; only its length matters here.
const VOID_KEY: Key = Key::from_u32_be(0);
/// Most segments emptied before one sync.
const MOST_AT_ONCE: usize = 8;
/// Number of pages read at a time.
pub const SCAN_PAGES: u32 = 64;

/// A complete record of a segment.
pub struct WholeRecord {
    /// Its first head.
    pub record: Record,
    /// Its position.
    pub place: RecordAt,
    /// Its value.
    pub parts: Vec<Part>,
}

/// The content of a segment's pages.
#[derive(Default)]
pub struct Scanned {
    /// Complete records.
    pub whole: Vec<WholeRecord>,
    /// Positions and sequences of incomplete records: of their first heads, and of parts without a first
    /// head.
    pub broken: Vec<(RecordAt, u64)>,
    /// Pages with the wrong content, with the error.
    pub bad: Vec<(u32, StoreError)>,
    /// A valid page that belongs to another store or to one with other options.
    pub foreign: Option<StoreError>,
    /// Blank pages before others.
    pub holes: Vec<u32>,
    /// The readable pages of the segment's last life.
    pub pages: Vec<LogPage>,
}

/// A page of the log, with its header fields.
#[derive(Clone, Copy)]
pub struct LogPage {
    /// Its number.
    pub number: u32,
    /// Sequence of its first record.
    pub base: u64,
    /// The owner's fields.
    pub own: PageFields,
}

impl Scanned {
    /// Refuses a segment with a page that was written whole and cannot be read any more: the page is not
    /// torn, and its content is missing.
    pub fn refuse_lost(&self) -> Result<(), StoreError> {
        let is_lost = |error: &StoreError| matches!(error, StoreError::Page(page) if !matches!(page.trouble, Trouble::Unreadable));
        let lost = self.bad.iter().find(|(_, error)| is_lost(error));
        lost.map_or(Ok(()), |(_, error)| Err(error.clone()))
    }
}

impl HashlogState {
    /// The segments to clean next: those with the fewest live bytes, as many as fit into the free room.
    fn victims_to_be(&self) -> Vec<u32> {
        let sealed = |segment: &&u32| self.segments[**segment as usize].phase == Phase::Sealed;
        let all: Vec<u32> = (0..self.shape.segments).collect();
        let mut candidates: Vec<(u64, u32)> =
            all.iter().filter(sealed).map(|at| (self.segments[*at as usize].live, *at)).collect();
        candidates.sort_unstable();
        let spare = (self.free.len() as u64).saturating_sub(FREE_FOR_RECOVERY.into());
        let room = self.shape.usable() * spare;
        let mut moved = 0;
        candidates
            .into_iter()
            .take(MOST_AT_ONCE)
            .take_while(|(live, _)| {
                moved += live;
                // Cleaning a segment that counts as full gains no room.
                *live < self.shape.usable() && moved <= room
            })
            .map(|(_, segment)| segment)
            .collect()
    }

    /// Victims that are ready for the stage after `stage`.
    fn victims_at(&self, stage: Stage) -> Vec<u32> {
        let oldest_cursor = self.cursors.first_key_value().map_or(u64::MAX, |(opened, _)| *opened);
        let is_held =
            |victim: &Victim| self.segments[victim.segment as usize].pins > 0 || oldest_cursor <= victim.upto;
        let ready = self.victims.iter().filter(|victim| match stage {
            Stage::Emptied => victim.upto <= self.synced,
            Stage::Void => !is_held(victim),
            Stage::Trimmed => true,
        });
        ready.filter(|victim| victim.stage == stage).map(|victim| victim.segment).collect()
    }

    fn advance(&mut self, segments: &[u32], stage: Stage) {
        let moved = self.victims.iter_mut().filter(|victim| segments.contains(&victim.segment));
        moved.for_each(|victim| victim.stage = stage);
    }
}

impl Log {
    /// Cleans until `need` segments are free.
    pub(super) fn clean(&self, thread: Thread, need: u32) -> Result<(), StoreError> {
        let _turn = self.cleaning.take(&self.ground.cpu, thread);
        let most_rounds = 4 * self.state.borrow().shape.segments;
        for _ in 0..most_rounds {
            let (free, is_pending) = {
                let state = self.state.borrow();
                (state.free.len(), !state.victims.is_empty())
            };
            if free as u32 >= need {
                return Ok(());
            }
            // More held segments would use up the room that moving records needs.
            if !is_pending {
                let victims = self.state.borrow().victims_to_be();
                if victims.is_empty() {
                    return Err(StoreError::Full);
                }
                for segment in victims {
                    self.empty_segment(thread, segment, false)?;
                }
            }
            self.sync(thread)?;
            self.give_back(thread)?;
            let (is_pinned, is_held) = {
                let state = self.state.borrow();
                let pinned = |victim: &Victim| state.segments[victim.segment as usize].pins > 0;
                (state.victims.iter().any(pinned), !state.victims.is_empty())
            };
            match () {
                () if self.state.borrow().free.len() > free || !is_held => {}
                () if is_pinned => self.ground.cpu.wait(thread),
                () => return Err(StoreError::HeldByCursors),
            }
        }
        Err(StoreError::Full)
    }

    /// Voids the victims whose copies are durable, trims those that no reader and no cursor uses, and makes
    /// that durable. Only the caller that cleans calls this.
    pub(super) fn give_back(&self, thread: Thread) -> Result<(), StoreError> {
        let emptied = self.state.borrow().victims_at(Stage::Emptied);
        if !emptied.is_empty() {
            let cleaner = {
                let mut state = self.state.borrow_mut();
                for segment in &emptied {
                    let needed = state.segments_for(state.cleaner(), [(&VOID_KEY, 0)].into_iter());
                    if needed as usize > state.free.len() {
                        return Err(StoreError::Full);
                    }
                    state.append_void(*segment);
                }
                let cleaner = state.cleaner();
                state.close_page(cleaner);
                cleaner
            };
            self.write_blocks(thread, cleaner, true)?;
            let mark = self.state.borrow().write_mark();
            self.await_writes(thread, mark)?;
            self.flush(thread)?;
            self.state.borrow_mut().advance(&emptied, Stage::Void);
        }
        let ready = self.state.borrow().victims_at(Stage::Void);
        let shape = self.state.borrow().shape;
        for segment in &ready {
            let first = PageId(shape.first_page(*segment).into());
            self.ground.pages.trim(thread, first, shape.segment_pages, Purpose::Cleaning)?;
        }
        if ready.is_empty() {
            return Ok(());
        }
        self.state.borrow_mut().advance(&ready, Stage::Trimmed);
        self.flush(thread)
    }

    /// Makes writes and trims durable; trimmed segments are free afterwards.
    pub(super) fn flush(&self, thread: Thread) -> Result<(), StoreError> {
        let trimmed = self.state.borrow().victims_at(Stage::Trimmed);
        self.ground.pages.flush(thread, Purpose::Log)?;
        let mut state = self.state.borrow_mut();
        trimmed.into_iter().for_each(|segment| state.free_victim(segment));
        Ok(())
    }

    /// Moves the live records of a segment to cleaning's stream. `is_torn`: the segment may have incomplete
    /// pages, and records that never became durable.
    pub(super) fn empty_segment(
        &self,
        thread: Thread,
        segment: u32,
        is_torn: bool,
    ) -> Result<(), StoreError> {
        let scanned = self.scan_segment(thread, segment, Purpose::Cleaning)?;
        let is_whole = scanned.bad.is_empty() && scanned.broken.is_empty();
        if is_torn {
            scanned.refuse_lost()?;
        }
        if !is_torn && !is_whole {
            self.state.borrow_mut().segments[segment as usize].phase = Phase::Damaged;
            return Ok(());
        }
        let keep = if is_torn { 0 } else { FREE_FOR_RECOVERY };
        let copied = self.state.borrow().segments[segment as usize].live;
        let count = scanned.whole.len() as u64;
        self.work(thread, &[(Step::MergeEntry, count), (Step::Probe, count), (Step::CopyByte, copied)]);
        let mut state = self.state.borrow_mut();
        let cleaner = state.cleaner();
        let unreadable = scanned.bad.into_iter().next().map(|(_, error)| error);
        let mut keys: Vec<Key> = Vec::new();
        for WholeRecord { record, place, parts } in scanned.whole {
            let key = record.key.expect("a whole record has a key");
            let is_tombstone = record.flags.has(Flags::TOMBSTONE);
            if record.flags.has(Flags::VOID) || state.ignored.contains(&(place.page, place.slot)) {
                continue;
            }
            if (place.page..).take(place.pages.into()).any(|page| state.unread.contains(&page)) {
                continue;
            }
            if !is_tombstone {
                keys.push(key);
            }
            if state.index.get(&key).is_none_or(|entry| entry.place != place) {
                continue;
            }
            let needed = state.segments_for(cleaner, [(&key, record.value_bytes)].into_iter());
            if needed + keep > state.free.len() as u32 {
                return Err(StoreError::Full);
            }
            let kept = (!is_tombstone).then(|| StoredValue::of_parts(parts));
            let value = kept.as_ref().map(Value::Stored);
            state.append(cleaner, &key, value.as_ref(), Flags::NONE);
            state.counters.moved_records += 1;
            state.counters.moved_bytes += u64::from(record.value_bytes);
        }
        // Recovery found these records, and now their page cannot be read.
        if state.segments[segment as usize].live > 0
            && let Some(error) = unreadable
        {
            return Err(error);
        }
        let upto = state.next_sequence - 1;
        state.segments[segment as usize].phase = Phase::Victim;
        state.victims.push(Victim { segment, upto, keys, stage: Stage::Emptied });
        drop(state);
        self.write_blocks(thread, cleaner, false)
    }

    /// Reads all pages of a segment. Errors are part of the result.
    pub(super) fn scan_segment(
        &self,
        thread: Thread,
        segment: u32,
        why: Purpose,
    ) -> Result<Scanned, StoreError> {
        let shape = self.state.borrow().shape;
        if self.ground.pages.is_blank() {
            return Ok(Scan::of(&shape, Vec::new()));
        }
        let (first, end) = (shape.first_page(segment), shape.first_page(segment + 1));
        // Blank pages are kept only if another page comes after them: most of an empty drive is read once.
        let (mut pages, mut blank_from) = (Vec::new(), None);
        for from in (first..end).step_by(SCAN_PAGES as usize) {
            let count = SCAN_PAGES.min(end - from);
            let mut read_pages = Vec::with_capacity(count as usize);
            let read = self.ground.pages.read(thread, PageId(from.into()), count, why, &mut read_pages);
            if read.is_err() {
                read_pages.clear();
            }
            let has_unwritten = !self.state.borrow().unwritten.is_empty();
            for page in from..from + count {
                let in_memory =
                    if has_unwritten { self.state.borrow().unwritten.get(&page).cloned() } else { None };
                let content = match (in_memory, read_pages.get((page - from) as usize)) {
                    (Some(page), _) => Ok(page),
                    (None, Some(page)) => Ok(page.clone()),
                    // One page of the run cannot be read, so each is read by itself.
                    (None, None) => self.read_page(thread, page, why),
                };
                match content.and_then(|content| open_page(&shape, page, content)) {
                    Ok(None) => drop(blank_from.get_or_insert(page)),
                    opened => {
                        let blank = blank_from.take().unwrap_or(page)..page;
                        pages.extend(blank.map(|blank| (blank, Ok(None))));
                        pages.push((page, opened));
                    }
                }
            }
        }
        Ok(Scan::of(&shape, pages))
    }

    fn read_page(&self, thread: Thread, page: u32, why: Purpose) -> Result<Page, StoreError> {
        let mut out = Vec::with_capacity(1);
        self.ground.pages.read(thread, PageId(page.into()), 1, why, &mut out)?;
        Ok(out.swap_remove(0))
    }
}

/// A page that is not blank, with its fields.
type Opened = Option<(LogPage, Page, Facts)>;

fn open_page(shape: &SegmentShape, number: u32, page: Page) -> Result<Opened, StoreError> {
    if frame::is_blank(&page) {
        return Ok(None);
    }
    let id = PageId(number.into());
    let facts = frame::open(&page, id, shape.format.page_bytes)?;
    let heads = frame::heads_of(&page, facts.head_bytes);
    let own = PageFields::of_heads(&heads).ok_or_else(|| StoreError::Damaged {
        page: id,
        what: "ends before the fields of its segment".into(),
    })?;
    drop(heads);
    Ok(Some((LogPage { number, base: facts.sequence, own }, page, facts)))
}

/// The records of a segment, page by page.
#[derive(Default)]
struct Scan {
    found: Scanned,
    pending: Option<WholeRecord>,
}

impl Scan {
    /// Scans the pages of a segment, in order.
    fn of(shape: &SegmentShape, pages: Vec<(u32, Result<Opened, StoreError>)>) -> Scanned {
        let opened = pages.iter().filter_map(|(_, page)| page.as_ref().ok()?.as_ref());
        let life = opened.map(|(page, ..)| page.own.life).max().unwrap_or_default();
        let mut scan = Scan::default();
        for (number, page) in pages {
            match page {
                Ok(Some((page, ..))) if page.own.life < life => {
                    let what = format!("is of life {} of its segment, whose life is {life}", page.own.life);
                    scan.gap(number, StoreError::Damaged { page: PageId(number.into()), what });
                }
                Ok(Some((page, content, facts))) => {
                    if let Err(error) = scan.page(shape, page, &content, facts) {
                        scan.found.foreign.get_or_insert(error);
                    }
                }
                Ok(None) => {
                    scan.break_pending();
                    scan.found.holes.push(number);
                }
                Err(error) => match error.clone().unless_torn::<()>() {
                    Ok(_) => scan.gap(number, error),
                    Err(foreign) => drop(scan.found.foreign.get_or_insert(foreign)),
                },
            }
        }
        scan.break_pending();
        let last = scan.found.pages.last().map(|page| page.number);
        scan.found.holes.retain(|hole| last.is_some_and(|last| *hole < last));
        scan.found
    }

    fn gap(&mut self, number: u32, error: StoreError) {
        self.break_pending();
        self.found.bad.push((number, error));
    }

    fn page(
        &mut self,
        shape: &SegmentShape,
        page: LogPage,
        content: &Page,
        facts: Facts,
    ) -> Result<(), StoreError> {
        let id = PageId(page.number.into());
        frame::expect_kind(facts, id, Kind::Log)?;
        let segment_pages = page.own.segment_pages;
        if segment_pages != shape.segment_pages {
            let what =
                format!("was written with segments of {segment_pages} pages, not {}", shape.segment_pages);
            return Err(StoreError::Damaged { page: id, what });
        }
        self.found.pages.push(page);
        let mut on_page = records(&shape.format, content, id, facts);
        while let Some(record) = on_page.next()? {
            self.record(page.number, content, record);
        }
        Ok(())
    }

    fn record(&mut self, page_number: u32, page: &Page, record: Record) {
        let place = RecordAt { page: page_number, slot: record.slot, pages: 1 };
        if record.flags.has(Flags::CONTINUES) {
            let missing = self.pending.as_ref().map(|whole| {
                let have: u32 = whole.parts.iter().map(|part| part.bytes).sum();
                (whole.record.value_bytes - have, whole.record.sequence)
            });
            if record.slot != 0 || missing != Some((record.value_bytes, record.sequence)) {
                self.break_pending();
                self.found.broken.push((place, record.sequence));
                return;
            }
        } else {
            self.break_pending();
            self.pending =
                Some(WholeRecord { record, place: RecordAt { pages: 0, ..place }, parts: Vec::new() });
        }
        let Some(mut whole) = self.pending.take() else { return };
        whole.place.pages += 1;
        whole.parts.push(record.part(page));
        if record.is_ended() { self.found.whole.push(whole) } else { self.pending = Some(whole) }
    }

    fn break_pending(&mut self) {
        if let Some(whole) = self.pending.take() {
            self.found.broken.push((whole.place, whole.record.sequence));
        }
    }
}
