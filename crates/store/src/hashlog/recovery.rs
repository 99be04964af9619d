//! What a cut of power left: every page is read, records are entered in the order of their sequence.
//!
//! Pages that were torn, or are missing in front of others, would look damaged as soon as a page says that
//! something newer is certain. So the segments that have any are emptied before pages may say so again.

use std::collections::HashSet;

use kvdrive_spec::Key;

use super::Log;
use super::cleaning::Scanned;
use super::state::{Phase, RecordAt, Stage, Victim};
use crate::cpu::{Step, Thread};
use crate::pages::{PageId, Purpose};
use crate::records::Flags;
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

/// What is known of a segment when its pages were read.
#[derive(Default)]
struct Survey {
    /// Lowest and highest sequence with which a page begins.
    bases: Option<(u64, u64)>,
    /// Pages in it that are missing or torn, the sequence with which the next good one begins, and the error.
    gaps: Vec<(u64, StoreError)>,
    /// Has torn pages or records.
    is_torn: bool,
    /// Nothing in it is newer than a record that voids it.
    is_void: bool,
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
    fn add(&mut self, scanned: Scanned) {
        let mut found = Survey::default();
        let Scanned { whole, broken, bad, holes, pages, .. } = scanned;
        self.recovered.pages += (pages.len() + bad.len()) as u64;
        self.recovered.torn_pages += bad.len() as u64;
        self.recovered.dropped_records += broken.len() as u64;
        self.unread.extend(bad.iter().map(|(page, _)| *page));
        for (_, base, watermark) in &pages {
            let (low, high) = found.bases.unwrap_or((*base, *base));
            found.bases = Some((low.min(*base), high.max(*base)));
            self.watermark = self.watermark.max(*watermark);
            self.newest = self.newest.max(*base);
        }
        let next_base = |page: u32| {
            pages.iter().find(|(number, ..)| *number > page).map_or(u64::MAX, |(_, base, _)| *base)
        };
        let missing = |page: u32| StoreError::Damaged {
            page: PageId(page.into()),
            what: "was written, and there is nothing".into(),
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

    /// Marks the segments that are void.
    fn apply_voids(&mut self) {
        for (segment, sequence) in &self.voids {
            let Some(found) = self.segments.get_mut(*segment as usize) else { continue };
            found.is_void |= found.bases.is_none_or(|(_, highest)| highest < *sequence);
        }
    }

    /// A page that had become certain and is not what it should be.
    fn damage(&self) -> Option<StoreError> {
        let standing = self.segments.iter().filter(|found| !found.is_void);
        let mut gaps = standing.flat_map(|found| &found.gaps);
        gaps.find(|(next, _)| *next <= self.watermark).map(|(_, error)| error.clone())
    }

    /// Batches of which no page says that they are certain: those that are whole, and members of others.
    /// Candidates are in order.
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
    pub(super) fn recover(&self, thread: Thread) -> Result<Recovered, StoreError> {
        let shape = self.state.borrow().shape;
        let mut scanning = Scanning::default();
        for segment in 0..shape.segments {
            let mut scanned = self.scan_segment(thread, segment, Purpose::Recovery)?;
            if let Some(error) = scanned.foreign.take() {
                return Err(error);
            }
            scanned.refuse_lost()?;
            // Where the values are is known; they are not needed in memory.
            scanned.whole.iter_mut().for_each(|whole| whole.parts = Vec::new());
            self.work(thread, &[(Step::MergeEntry, scanned.whole.len() as u64)]);
            scanning.add(scanned);
        }
        scanning.apply_voids();
        if let Some(error) = scanning.damage() {
            return Err(error);
        }
        let is_void = |candidate: &Candidate| {
            scanning.segments[shape.segment_of(candidate.place.page) as usize].is_void
        };
        let mut candidates = std::mem::take(&mut scanning.candidates);
        candidates.retain(|candidate| !is_void(candidate));
        candidates.sort_unstable_by_key(|candidate| candidate.sequence);
        scanning.candidates = candidates;
        let (voids, torn, batches) = self.enter_all(&mut scanning);
        self.work(thread, &[(Step::Insert, scanning.candidates.len() as u64)]);
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

    /// Makes the state of what was found; returns the segments that are void, those that are torn, and the
    /// batches that count because they are whole.
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
            let is_used = found.bases.is_some() || found.is_torn;
            state.segments[segment as usize].phase = match is_used {
                true => Phase::Sealed,
                false => Phase::Free,
            };
            match () {
                () if !is_used => state.free.push_back(segment),
                () if found.is_void => voids.push(segment),
                () if found.is_torn => torn.push(segment),
                () => {}
            }
        }
        (voids, torn, whole)
    }

    /// Trims what earlier cleaning had not finished to trim.
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

    /// Batches that lose members when torn segments are emptied would not be whole after another cut. Their
    /// members are written again before, each by itself.
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
            state.append(cleaner, &member.key, value.as_ref().map(Value::Kept).as_ref(), Flags::NONE);
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
