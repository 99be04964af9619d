//! Recovery of `hashlog`: every page is read, and records are entered in the order of their sequence.
//!
//! Torn pages, and gaps before other pages, would look damaged as soon as a page says that newer records are
//! durable. So recovery empties the segments that contain any before pages say so again. Segments that were
//! open at the power cut get a last page.

use std::collections::HashSet;

use kvdrive_content::Region;
use kvdrive_nvme::Key;

use super::Log;
use super::cleaning::Scanned;
use super::shape::{PageFields, SegmentShape};
use super::state::{Mark, OpenSegment, Phase, RecordAt, Stage, Victim};
use crate::cpu::{Step, Thread};
use crate::pages::{PageId, Purpose};
use crate::records::{Flags, OpenPage};
use crate::store::{Recovered, StoreError};
use crate::value::Value;

/// A whole record that may count.
#[derive(Clone, Copy)]
struct Candidate {
    sequence: u64,
    key: Key,
    place: RecordAt,
    value_bytes: Option<u32>,
    flags: Flags,
}

/// Findings about a segment after its pages were read.
#[derive(Default)]
struct Survey {
    /// Highest sequence at the start of one of its pages.
    newest_base: Option<u64>,
    /// Its life.
    life: u64,
    /// Number of pages from the first on without a gap.
    reach: u32,
    /// The page after its last page, unless that one is marked as the last.
    open_at: Option<u32>,
    /// Its missing or torn pages: for each the first sequence of the next valid page, and the error.
    gaps: Vec<(u64, StoreError)>,
    /// Has torn pages or records.
    is_torn: bool,
    /// Sequence of the newest record that voids older records in it.
    void_at: u64,
}

impl Survey {
    /// Is none of its records valid?
    fn is_void(&self) -> bool {
        self.void_at > self.newest_base.unwrap_or_default()
    }
}

#[derive(Default)]
struct Scanning {
    candidates: Vec<Candidate>,
    segments: Vec<Survey>,
    voids: Vec<(u32, u64)>,
    watermark: u64,
    newest: u64,
    unread: HashSet<u32>,
    recovered: Recovered,
}

impl Scanning {
    fn add(&mut self, shape: &SegmentShape, scanned: Scanned) {
        let mut found = Survey::default();
        let Scanned { whole, broken, bad, holes, pages, .. } = scanned;
        self.recovered.pages += (pages.len() + bad.len()) as u64;
        self.recovered.torn_pages += bad.len() as u64;
        self.recovered.dropped_records += broken.len() as u64;
        self.unread.extend(bad.iter().map(|(page, _)| *page));
        for page in &pages {
            found.newest_base = found.newest_base.max(Some(page.base));
            self.watermark = self.watermark.max(page.own.synced);
            self.newest = self.newest.max(page.base);
        }
        let segment = self.segments.len() as u32;
        let first = shape.first_page(segment);
        found.life = pages.first().map_or(0, |page| page.own.life);
        found.reach =
            (first..).zip(&pages).take_while(|(number, page)| *number == page.number).count() as u32;
        let last = pages.last().filter(|last| !last.own.is_last).map(|last| last.number + 1);
        found.open_at = last.filter(|next| *next < shape.first_page(segment + 1));
        let next_base =
            |page: u32| pages.iter().find(|other| other.number > page).map_or(u64::MAX, |other| other.base);
        let missing = |page: u32| StoreError::Damaged {
            page: PageId(page.into()),
            what: "was written, and is blank".into(),
        };
        found.is_torn = !(bad.is_empty() && holes.is_empty() && broken.is_empty());
        found.gaps.extend(holes.iter().map(|page| (next_base(*page), missing(*page))));
        found.gaps.extend(bad.into_iter().map(|(page, error)| (next_base(page), error)));
        found.gaps.extend(broken.into_iter().map(|(place, sequence)| {
            let what = format!("record {} is not whole", place.slot);
            (sequence, StoreError::Damaged { page: PageId(place.page.into()), what })
        }));
        for whole in whole {
            let (record, flags) = (whole.record, whole.record.flags);
            let key = record.key.expect("a whole record has a key");
            self.newest = self.newest.max(record.sequence);
            if flags.has(Flags::VOID) {
                let number = (key.halves().0 >> 32) as u32;
                self.voids.push((number, record.sequence));
                continue;
            }
            let value_bytes = (!flags.has(Flags::TOMBSTONE)).then_some(record.value_bytes);
            let place = whole.place;
            self.candidates.push(Candidate { sequence: record.sequence, key, place, value_bytes, flags });
        }
        self.segments.push(found);
    }

    /// Gives each segment the sequence of the newest record that voids it.
    fn apply_voids(&mut self) {
        for (segment, sequence) in &self.voids {
            let Some(found) = self.segments.get_mut(*segment as usize) else { continue };
            found.void_at = found.void_at.max(*sequence);
        }
    }

    /// The error of a page that had become durable and has the wrong content, if there is one.
    fn damage(&self, shape: &SegmentShape, mark: &Mark) -> Option<StoreError> {
        let numbered = || (0..).zip(&self.segments);
        let standing = || numbered().filter(|(_, found)| !found.is_void());
        let mut gaps = standing().flat_map(|(_, found)| &found.gaps);
        let gap = gaps.find(|(next, _)| *next <= self.watermark).map(|(_, error)| error.clone());
        let missing = |segment: u32, pages: u32| StoreError::Damaged {
            page: PageId((shape.first_page(segment) + pages).into()),
            what: "was durable, and has older content or none".into(),
        };
        // If the segment was emptied after the mark, its pages may be newer or blank.
        let short = |(segment, open): (&u32, &OpenSegment)| {
            let found = self.segments.get(*segment as usize)?;
            let is_then =
                found.newest_base.is_some() && found.life <= open.life && found.void_at <= open.life;
            let reach = if found.life < open.life { 0 } else { found.reach };
            (is_then && reach < open.pages).then(|| missing(*segment, reach))
        };
        let ends_early = |(segment, found): (u32, &Survey)| {
            let is_open = found.open_at.is_some() && found.life <= mark.synced;
            let was_open = mark.open.get(&segment).is_some_and(|open| open.life == found.life);
            (is_open && !was_open).then(|| missing(segment, found.reach))
        };
        gap.or_else(|| mark.open.iter().find_map(short)).or_else(|| standing().find_map(ends_early))
    }

    /// Batches that no page declares durable: the complete ones, and the places of members of incomplete
    /// ones. Candidates are in order of sequence.
    fn batches(&self) -> (Vec<Vec<Candidate>>, Vec<RecordAt>) {
        let (mut whole, mut half) = (Vec::new(), Vec::new());
        let mut batch: Vec<Candidate> = Vec::new();
        for candidate in self.candidates.iter().filter(|candidate| candidate.flags.has(Flags::MEMBER)) {
            if candidate.sequence <= self.watermark {
                continue;
            }
            let follows = batch.last().is_some_and(|last| last.sequence + 1 == candidate.sequence);
            if candidate.flags.has(Flags::FIRST) || !follows {
                half.extend(batch.drain(..).map(|member| member.place));
            }
            batch.push(*candidate);
            if candidate.flags.has(Flags::LAST) {
                match batch[0].flags.has(Flags::FIRST) {
                    true => whole.push(std::mem::take(&mut batch)),
                    false => half.extend(batch.drain(..).map(|member| member.place)),
                }
            }
        }
        half.extend(batch.into_iter().map(|member| member.place));
        (whole, half)
    }
}

impl Log {
    pub(super) fn recover(&self, thread: Thread, mark: &[u8]) -> Result<Recovered, StoreError> {
        let shape = self.state.borrow().shape;
        let mark = match mark {
            [] => None,
            bytes => Some(Mark::of_bytes(bytes).ok_or(StoreError::Damaged {
                page: PageId(0),
                what: "belongs to a log whose mark this program cannot read".into(),
            })?),
        };
        let mark = mark.unwrap_or_default();
        let mut scanning = Scanning { watermark: mark.synced, ..Scanning::default() };
        for segment in 0..shape.segments {
            let mut scanned = self.scan_segment(thread, segment, Purpose::Recovery)?;
            if let Some(error) = scanned.foreign.take() {
                return Err(error);
            }
            scanned.refuse_lost()?;
            // Values are read again when they are needed; here their places suffice.
            scanned.whole.iter_mut().for_each(|whole| whole.parts = Vec::new());
            self.work(thread, &[(Step::MergeEntry, scanned.whole.len() as u64)]);
            scanning.add(&shape, scanned);
        }
        scanning.apply_voids();
        if let Some(error) = scanning.damage(&shape, &mark) {
            return Err(error);
        }
        let is_void = |candidate: &Candidate| {
            scanning.segments[shape.segment_of(candidate.place.page) as usize].is_void()
        };
        let mut candidates = std::mem::take(&mut scanning.candidates);
        candidates.retain(|candidate| !is_void(candidate));
        candidates.sort_unstable_by_key(|candidate| candidate.sequence);
        scanning.candidates = candidates;
        let (voids, torn, batches) = self.enter_all(&mut scanning);
        self.work(thread, &[(Step::Insert, scanning.candidates.len() as u64)]);
        self.end_segments(thread, &scanning.segments)?;
        self.trim_voids(thread, &voids)?;
        self.copy_members(thread, &torn, &batches)?;
        for segment in torn {
            self.repair(thread, segment)?;
        }
        let mut state = self.state.borrow_mut();
        state.is_recovering = false;
        state.watermark = state.synced;
        state.ignored.clear();
        state.unread.clear();
        Ok(scanning.recovered)
    }

    /// Builds the state from the candidates; returns the segments that are void, those that are torn, and the
    /// batches that count because they are complete.
    fn enter_all(&self, scanning: &mut Scanning) -> (Vec<u32>, Vec<u32>, Vec<Vec<Candidate>>) {
        let mut state = self.state.borrow_mut();
        let (whole, half) = scanning.batches();
        scanning.recovered.dropped_records += half.len() as u64;
        for place in half {
            scanning.segments[state.shape.segment_of(place.page) as usize].is_torn = true;
            state.ignored.insert((place.page, place.slot));
        }
        for candidate in &scanning.candidates {
            if !state.ignored.contains(&(candidate.place.page, candidate.place.slot)) {
                state.enter(&candidate.key, candidate.place, candidate.value_bytes);
            }
        }
        state.unread = std::mem::take(&mut scanning.unread);
        state.next_sequence = scanning.newest + 1;
        (state.synced, state.watermark) = (scanning.watermark, scanning.watermark);
        state.is_recovering = true;
        let (mut voids, mut torn) = (Vec::new(), Vec::new());
        for (segment, found) in (0..).zip(&scanning.segments) {
            let is_used = found.newest_base.is_some() || found.is_torn;
            state.segments[segment as usize].phase = match is_used {
                true => Phase::Sealed,
                false => Phase::Free,
            };
            match () {
                () if !is_used => state.free.push_back(segment),
                () if found.is_void() => voids.push(segment),
                () if found.is_torn => torn.push(segment),
                () => {}
            }
        }
        (voids, torn, whole)
    }

    /// Writes a last page to the segments that were open; they get no more records.
    fn end_segments(&self, thread: Thread, segments: &[Survey]) -> Result<(), StoreError> {
        let (shape, synced) = {
            let state = self.state.borrow();
            (state.shape, state.watermark)
        };
        for found in segments.iter().filter(|found| !found.is_void() && !found.is_torn) {
            let (Some(number), Some(sequence)) = (found.open_at, found.newest_base) else { continue };
            let id = PageId(number.into());
            let mut last = OpenPage::new(shape.format, id, Region::new());
            last.begin_at(sequence);
            let own =
                PageFields { synced, life: found.life, segment_pages: shape.segment_pages, is_last: true };
            let (page, _) = last.close(&own.to_bytes());
            self.ground.pages.write(thread, id, &[page], Purpose::Recovery)?;
        }
        self.ground.pages.flush(thread, Purpose::Recovery)?;
        Ok(())
    }

    /// Trims void segments that earlier cleaning has not trimmed.
    fn trim_voids(&self, thread: Thread, voids: &[u32]) -> Result<(), StoreError> {
        {
            let mut state = self.state.borrow_mut();
            for segment in voids {
                state.segments[*segment as usize].phase = Phase::Victim;
                state.victims.push(Victim {
                    segment: *segment,
                    upto: 0,
                    keys: Vec::new(),
                    stage: Stage::Void,
                });
            }
        }
        if voids.is_empty() { Ok(()) } else { self.give_back(thread) }
    }

    /// Writes members of batches again, one by one, before torn segments are emptied: a batch that lost a
    /// member by that would be incomplete after another power cut.
    fn copy_members(
        &self,
        thread: Thread,
        torn: &[u32],
        batches: &[Vec<Candidate>],
    ) -> Result<(), StoreError> {
        let shape = self.state.borrow().shape;
        let is_torn = |member: &Candidate| torn.contains(&shape.segment_of(member.place.page));
        for member in batches.iter().filter(|batch| batch.iter().any(is_torn)).flatten() {
            if self.state.borrow().index.get(&member.key).is_none_or(|entry| entry.place != member.place) {
                continue;
            }
            let value = match member.value_bytes {
                Some(_) => Some(self.load(thread, member.place, Purpose::Recovery)?.1),
                None => None,
            };
            let mut state = self.state.borrow_mut();
            let cleaner = state.cleaner();
            let bytes = member.value_bytes.unwrap_or(0);
            let needed = state.segments_for(cleaner, [(&member.key, bytes)].into_iter());
            if needed as usize > state.free.len() {
                return Err(StoreError::Full);
            }
            state.append(cleaner, &member.key, value.as_ref().map(Value::Stored).as_ref(), Flags::NONE);
        }
        self.sync(thread)
    }

    /// Empties a torn segment.
    fn repair(&self, thread: Thread, segment: u32) -> Result<(), StoreError> {
        self.empty_segment(thread, segment, true)?;
        self.sync(thread)?;
        self.give_back(thread)
    }
}
