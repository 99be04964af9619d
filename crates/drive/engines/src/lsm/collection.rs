//! Garbage collection of the value log, and room in general.
//!
//! The log has value bytes only, so the values of a victim are found through the index: tables whose address bounds
//! touch the victim are scanned for entries that point into it (`gc_index`). Their keys are looked up in one pass over
//! the tables, in which each page is read once. If the newest entry of a key points into the victim, and still does
//! under the key's lock, the value is moved (`value_gc`). After that no newest entry points into the victim, and it is
//! given back as soon as no reader holds it.
//!
//! Victims are the sealed segments with the fewest live bytes. Several are collected together (`gc.victims`), because
//! each collection reads the pages of the index, however few values it moves. They are emptied one after the other.
//!
//! The counters may be too high, because an overwritten value is known to be dead only when a merge sees both entries.
//! So before a drive reports that it is full, it merges its whole index once, and then collects by exact counters.
//!
//! **When the whole index is merged for exact counters.** A merge helps as far as values died since the last one, and
//! stores have written as many bytes as died, at most. It is worth it when the pages that they filled, with those of deleted
//! pairs, reach the pages of the tables ([`Lsm::merge_is_due`]): a merge writes no more pages than that, so such merges
//! program at most one page for each page of values that stores have filled, however full the drive is. Until then,
//! victims are collected that gain little. A drive on which no victim gains anything merges its index in any case.
//! Beside stores, a merge begins before victims gain too little, if stores have filled [`EARLY_PAGES`] times as many
//! pages, and collection goes on during the merge.

use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_flash::Purpose;
use kvdrive_link::Arrival;
use kvdrive_nvme::{Key, Status};

use super::engine::Lsm;
use super::entry::Entry;
use super::futile::Futile;
use crate::ahead::{Work, ahead_segments, slice_ns};
use crate::over_log::IndexOverLog;
use crate::value_log::{Candidate, Head, Use};

/// Collection ahead of need is worth it while it gains at least 1/8 of a segment.
const EAGER_GAIN: u64 = 8;
/// A merge beside stores is worth it while victims gain less than 1/4 of a segment, ...
const EARLY_GAIN: u64 = 4;
/// ... if stores have filled so many times the pages of the tables since the last one.
const EARLY_PAGES: u64 = 4;
/// A drive is full when the best victim gains less than 1/32 of a segment.
const LEAST_GAIN: u64 = 32;

impl Lsm {
    /// Called before a store: keeps the room that the index needs to merge itself. If few segments are free, collects
    /// some that are worth it, or has them collected beside the stores ([`crate::ahead`]). Does not wait for a collection
    /// of another store.
    pub(super) fn keep_room(self: &Rc<Self>) {
        self.keep_room_for_index();
        if !self.gc.enabled {
            return;
        }
        if self.ahead_segments() > 0 {
            return self.work_ahead();
        }
        if self.pool.free_count() >= self.ahead.enough_segments.get() {
            return;
        }
        let Some(_one_at_a_time) = self.collecting.try_lock() else { return };
        // An error here occurs again, and is reported, when collection is the only way to make room.
        self.evacuate_best(EAGER_GAIN);
    }

    /// Does [`Lsm::keep_room`] have anything to do? For almost every store it does not.
    #[inline]
    pub(super) fn is_short_of_room(&self) -> bool {
        !self.has_room_for_entry()
            || self.ahead.is_active()
            || self.pool.free_count() < self.ahead.enough_segments.get()
    }

    /// Is it known that there is room for a store's entry, since the index has not changed since there was? Almost
    /// always.
    #[inline]
    pub(super) fn has_room_for_entry(&self) -> bool {
        self.index_work.get() == self.index.work() && !self.index_short.get()
    }

    fn low_mark(&self) -> u32 {
        let reserve = self.pool.reserve();
        self.gc.free_segments_low.max(reserve.index_segments + reserve.gc_segments + 1)
    }

    /// Called after the index may have changed: merges the whole index if stores have left it less room than it needs.
    pub(super) fn keep_room_for_index(&self) {
        if self.index_work.get() == self.index.work() {
            return;
        }
        let is_short = self.index_stays_short();
        let count_is_due = self.count_is_due();
        if count_is_due && !is_short && self.ahead_segments() > 0 {
            self.ahead.wants_merge.set(true);
        } else if is_short || count_is_due {
            // If another task collects, this check is skipped; the next store checks again.
            let Some(_one_at_a_time) = self.collecting.try_lock() else { return };
            self.compact_for_space();
            self.index_is_short();
        }
        self.index_work.set(self.index.work());
    }

    /// Makes room for a store's entry in the index, wherever its value lies. Errors of [`Lsm::make_room`].
    pub(super) fn make_room_for_entry(&self) -> Result<(), Status> {
        if self.has_room_for_entry() {
            return Ok(());
        }
        self.keep_room_for_index();
        while self.index_is_short() {
            self.make_room()?;
        }
        Ok(())
    }

    /// Has the index less room than stores must leave it, even after the merge beside stores, if there is one?
    fn index_stays_short(&self) -> bool {
        if !self.index_is_short() {
            return false;
        }
        if !self.ahead.is_merging.get() {
            return true;
        }
        self.ahead.hurry(Work::Merge, || self.index.wait_for_merge());
        self.index_is_short()
    }

    /// Has the index less room than stores must leave it?
    pub(super) fn index_is_short(&self) -> bool {
        let needed_pages = self.reserve_for_index();
        let is_short = self.index.pages_available() < needed_pages || !self.index.can_flush_beside(2);
        self.index_short.set(is_short);
        is_short
    }

    /// Sets the number of segments that values leave to the index, for its present state. Returns how many free pages
    /// stores must leave it ([`super::room`]).
    ///
    /// The pages include one segment for collection, which takes a segment before it gives one back. Values leave room
    /// for two more flushes than stores do, because a flush may come before the next check, and count twice.
    fn reserve_for_index(&self) -> u32 {
        if !self.config.flash.enabled {
            return 0;
        }
        let collected_pages = if self.gc.enabled { self.pool.segment_pages() } else { 0 };
        let (for_stores, flush) = self.index.ledger(|ledger| (ledger.for_stores(), ledger.flush()));
        let needed_pages = for_stores + collected_pages;
        let margin = 2 * flush;
        let free_pages = match self.index.beside() {
            None => needed_pages + margin,
            // What it has taken comes back, whether it succeeds or fails.
            Some(beside) => {
                (needed_pages + margin).saturating_sub(beside.taken_pages).max(beside.left_pages() + margin)
            }
        };
        let segments = free_pages.div_ceil(self.pool.segment_pages());
        // The index has its first segment reserved before it has a table. Otherwise values could fill that segment,
        // too, and the drive would stay full after a delete of as many bytes as the next store needs.
        let first = u32::from(!self.index.has_segment());
        self.pool.keep_for_index(segments.max(self.least_index_segments()) + first);
        if self.gc.enabled {
            self.ahead.enough_segments.set(self.low_mark() + self.merge_segments() + 1);
        }
        needed_pages
    }

    /// Called during a collection: merges the whole index if it would otherwise have no room for its next flush. Until
    /// this collection has taken a segment of its own, the check leaves room for that segment, too.
    fn keep_room_to_flush(&self, segments_begun: u64) -> Result<(), Status> {
        let is_short = || {
            let has_segment = self.collected_segments_begun() > segments_begun;
            let segment_pages = if has_segment { 0 } else { self.pool.segment_pages() };
            self.index.pages_available() < self.index.ledger(|ledger| ledger.to_flush()) + segment_pages
        };
        if is_short() {
            self.compact_for_space();
        }
        if is_short() { Err(Status::CAPACITY_EXCEEDED) } else { Ok(()) }
    }

    pub(super) fn least_index_segments(&self) -> u32 {
        self.gc.free_segments_reserved.saturating_sub(self.pool.reserve().gc_segments)
    }

    /// Makes room when there is none. If open iterators hold the room, they are given up one after the other.
    ///
    /// Errors: `CAPACITY_EXCEEDED` when nothing can be gained; `COMMAND_INTERRUPTED` when cursors that cannot be given
    /// up hold the room until they end.
    pub(super) fn make_room(&self) -> Result<(), Status> {
        self.ahead.hurry(Work::Collect, || self.make_room_now())
    }

    fn make_room_now(&self) -> Result<(), Status> {
        let had_segment = self.pool.may_take(Use::Value);
        let was_short = self.index_is_short();
        // Another task made room while we waited, or the index needs less than it did.
        let has_room =
            || !self.index_is_short() && (was_short || !had_segment && self.pool.may_take(Use::Value));
        if self.index_stays_short() != was_short && has_room() {
            return Ok(());
        }
        while self.ahead.is_collecting.get() {
            self.ahead.wait_for_advance();
            if has_room() {
                return Ok(());
            }
        }
        let _one_at_a_time = self.collecting.lock();
        if has_room() {
            return Ok(());
        }
        let is_short = self.index_is_short();
        loop {
            if is_short && self.compact_for_space()
                || self.evacuate_best(EAGER_GAIN)
                || self.merge_is_due() && self.compact_for_space()
                || self.evacuate_best(LEAST_GAIN)
                || self.compact_for_space()
                || self.evacuate_best(LEAST_GAIN)
            {
                return Ok(());
            }
            let pages_are_held = self.log.has_snapshots() && self.index.pages_held() > 0;
            if !self.log.snapshots_hold_segments() && !pages_are_held {
                return Err(Status::CAPACITY_EXCEEDED);
            }
            if !self.held_by_cursors.give_up_one() {
                return Err(Status::COMMAND_INTERRUPTED);
            }
            if !self.index_is_short() && self.pool.may_take(Use::Value) {
                return Ok(());
            }
        }
    }

    /// Collects the best victims, each of which promises to gain `1/gain` of a segment. `true` if they gained.
    fn evacuate_best(&self, gain: u64) -> bool {
        if !self.gc.enabled {
            return false;
        }
        let victims = self.victims(gain);
        !victims.is_empty() && self.evacuate(&victims).is_ok_and(|gained| gained)
    }

    /// Pages of values that stores have filled.
    fn value_pages_filled(&self) -> u64 {
        self.log.statistics().pages_opened[Head::Host as usize]
    }

    /// Have stores and deletes since the last merge of the whole index paid for another one?
    fn merge_is_due(&self) -> bool {
        self.merge_is_due_after(1)
    }

    /// Have they filled `times` the pages that it takes?
    fn merge_is_due_after(&self, times: u64) -> bool {
        let Some(merged_at) = self.merged_at_pages.get() else { return true };
        let table_pages = u64::from(self.index.pages_in_use());
        // The size of a deleted value is not known: a delete pays for its entry.
        let deleted = self.deletes.get() * table_pages / self.index.entries().max(1);
        self.value_pages_filled() - merged_at + deleted >= times * table_pages
    }

    /// After a delete: when a third of the pairs have been deleted, the whole index is merged, so that space is
    /// reclaimed before the drive is full. The index then has the entries of all pairs and of the deletes, which are a
    /// quarter. The merge costs a constant amount for each of these deletes.
    #[inline]
    pub(super) fn forget_deleted(&self) {
        /// Fewer deletes than this many memtables hold are not worth a merge.
        const LEAST_MEMTABLES: u64 = 4;
        self.keep_room_for_index();
        self.deletes.set(self.deletes.get() + 1);
        let least = LEAST_MEMTABLES * u64::from(self.config.engines.lsm.index.memtable_entries);
        if self.deletes.get() < least || self.deletes.get() < self.index.entries() / 4 {
            return;
        }
        let Some(_one_at_a_time) = self.collecting.try_lock() else { return };
        self.compact_for_space();
    }

    /// Merges the whole index, if anything was put into it since the last time. That frees table pages and
    /// makes the counters of live bytes exact.
    fn compact_for_space(&self) -> bool {
        let changes = self.index.changes();
        if self.compacted_at.get() == changes {
            return false;
        }
        let done = self.ahead.hurry(Work::Merge, || self.index.compact_all()).is_ok();
        if done {
            self.compacted_at.set(changes);
            self.merged_at_pages.set(Some(self.value_pages_filled()));
            self.reserve_for_index();
        }
        self.deletes.set(0);
        self.note_counted();
        done
    }

    /// The segments whose collection gains most, each at least `1/gain` of a segment, best first; of several equal ones,
    /// the oldest.
    ///
    /// None while open iterators hold dead segments and little else is free: they would hold the victims as well, and
    /// the live values of these would take room that the index needs.
    fn victims(&self, gain: u64) -> Vec<Candidate> {
        if self.log.snapshots_hold_segments() && !self.pool.may_take(Use::Value) {
            return Vec::new();
        }
        let most = if self.log.has_snapshots() { 1 } else { self.gc.victims as usize };
        let segment_bytes = self.segment_bytes();
        let (damaged, futile, live_bytes) = (self.damaged.borrow(), self.futile.get(), self.log.live_bytes());
        let mut best: Vec<Candidate> = Vec::with_capacity(most + 1);
        self.log.for_each_candidate(&mut |candidate| {
            let gains = candidate.live_bytes + segment_bytes / gain <= segment_bytes;
            if !gains
                || futile.rules_out(candidate.live_bytes, live_bytes)
                || damaged.contains(&candidate.opening)
            {
                return;
            }
            let order = |one: &Candidate| (one.live_bytes, one.opening);
            let at = best.partition_point(|other| order(other) < order(&candidate));
            best.insert(at, candidate);
            best.truncate(most);
        });
        best
    }

    pub(super) fn segment_bytes(&self) -> u64 {
        let addresses = self.log.addresses(crate::value_log::SegmentId(0));
        addresses.end.0 - addresses.start.0
    }

    /// Moves the live values of segments elsewhere. `true` if they took less room than the segments.
    ///
    /// Errors: because of a page that cannot be read, a segment is never collected again; without room for the moved
    /// values or their entries, some values stay.
    fn evacuate(&self, victims: &[Candidate]) -> Result<bool, Status> {
        self.keep_room_to_flush(self.collected_segments_begun())?;
        let began = self.log.frontier(Head::Gc);
        let mut pairs = Vec::new();
        let addresses: Vec<_> = victims.iter().map(|victim| self.log.addresses(victim.segment)).collect();
        let result = match self.index.references(&addresses, &mut pairs, &|| self.ahead.step(Work::Collect)) {
            Ok(()) => self.move_values(victims, pairs),
            Err(status) => Err(status),
        };
        match (result, victims) {
            (Ok(()), _) => victims.iter().for_each(|victim| self.log.note_all_dead(victim)),
            (Err(Status::UNRECOVERED_ERROR), [victim]) => self.damaged.borrow_mut().push(victim.opening),
            // One of them, or what names its values, is damaged.
            (Err(Status::UNRECOVERED_ERROR), _) => {
                let each: Vec<_> = victims.chunks(1).map(|victim| self.evacuate(victim)).collect();
                return Ok(each.into_iter().any(|gained| gained == Ok(true)));
            }
            (Err(_), _) => {}
        }
        let taken_bytes = self.log.frontier(Head::Gc) - began;
        let (segment_bytes, all) = (self.segment_bytes(), victims.len() as u64);
        let gained = taken_bytes + segment_bytes / LEAST_GAIN <= all * segment_bytes;
        if !gained {
            let victim_bytes = victims.iter().map(|victim| victim.live_bytes).min().unwrap_or(0);
            self.futile.set(Futile { victim_bytes, live_bytes: self.log.live_bytes() });
        }
        result.map(|()| gained)
    }

    /// Segments that moved values have taken so far.
    fn collected_segments_begun(&self) -> u64 {
        self.log.frontier(Head::Gc).div_ceil(self.segment_bytes())
    }

    /// Moves the live values of `pairs`. While it runs, all values of a victim may die; the segment is then given back
    /// and may be opened again, so that its addresses mean other values. That is why the numbers of the openings are
    /// checked.
    ///
    /// Each victim is given back before the values of the next one need a segment, so there is room for one at a time.
    fn move_values(&self, victims: &[Candidate], mut pairs: Vec<(Key, Entry)>) -> Result<(), Status> {
        let mut content = Region::new();
        let (mut work, mut present) = (self.index.work(), None);
        let mut segments_begun = self.collected_segments_begun();
        // In the order of their keys: each page of the index is read once.
        let since = self.index.retain_newest(&mut pairs, &|| self.ahead.step(Work::Collect))?;
        // In the order of their addresses: each page of the victims is read once.
        pairs.sort_by_key(|(key, entry)| (entry.address, *key));
        for (key, entry) in &pairs {
            let segment = self.log.segment_of(entry.address);
            let before = present.replace(segment);
            let is_next = before != Some(segment);
            if is_next {
                // No newest entry points into the victim before this one any more.
                victims.iter().filter(|victim| before == Some(victim.segment)).for_each(|emptied| {
                    self.log.note_all_dead(emptied);
                    self.ahead.advance();
                });
                segments_begun = self.collected_segments_begun();
            }
            if is_next || work != self.index.work() {
                self.keep_room_to_flush(segments_begun)?;
                work = self.index.work();
            }
            self.ahead.step(Work::Collect);
            let _key = self.keys.lock(*key);
            let opening = self.log.opening_of(entry.address);
            if self.index.is_newest(key, entry, &since)
                && victims.iter().any(|victim| opening == Some(victim.opening))
            {
                self.move_value(*key, *entry, &mut content)?;
            }
        }
        Ok(())
    }

    /// The caller holds the key's lock, and the key's newest entry is `entry`.
    fn move_value(&self, key: Key, entry: Entry, content: &mut Region) -> Result<(), Status> {
        self.check_value(&entry)?;
        content.clear();
        let mut at = 0;
        let mut keep = |piece: kvdrive_content::Piece<'_>| {
            content.write(at, piece);
            at += piece.bytes();
        };
        let bytes = entry.bytes;
        self.log.read(entry.address, 0, bytes, bytes, Purpose::ValueGc, &mut keep)?;
        let mut place = self.log.reserve(Head::Gc, entry.bytes, Arrival::Inline)?;
        self.copy(entry.bytes);
        let mut at = 0;
        content.read(0, entry.bytes, &mut |piece| {
            place.write(at, piece);
            at += piece.bytes();
        });
        place.landed();
        self.point_at(key, place.address(), entry.bytes)?;
        self.moved.add(entry.bytes.into());
        Ok(())
    }
}

/// Collection and merges beside stores ([`crate::ahead`]).
impl Lsm {
    /// Called before a store: begins to merge if a merge is wanted, and to collect if fewer segments are free than are to
    /// be; grants a slice if one is due.
    fn work_ahead(self: &Rc<Self>) {
        let ahead = &self.ahead;
        self.ask_for_merge();
        let missing = self.missing_ahead();
        let wants_all = ahead.wants_merge.get();
        if (wants_all || self.index.is_level_waiting()) && !ahead.is_merging.replace(true) {
            ahead.is_merging_all.set(wants_all);
            let lsm = self.clone();
            match wants_all {
                true => {
                    ahead.wants_merge.set(false);
                    ahead.spawn(move || lsm.merge_ahead());
                }
                false => ahead.spawn(move || lsm.merge_levels_ahead()),
            }
        }
        // Segments become worth collecting as stores replace values in them.
        let is_worth_it = || {
            let since = ahead.idle_since.get();
            since
                .is_none_or(|since| self.value_pages_filled() >= since + u64::from(self.pool.segment_pages()))
        };
        if missing > 0 && is_worth_it() && !ahead.is_collecting.replace(true) {
            let lsm = self.clone();
            ahead.spawn(move || lsm.collect_ahead());
        }
        ahead.grant(|usual_ns| {
            let is_merging_all = ahead.is_merging.get() && ahead.is_merging_all.get();
            let merge_segments = if is_merging_all { self.merge_segments() } else { 0 };
            let to_merge = slice_ns(usual_ns, self.missing(merge_segments), merge_segments);
            let to_collect = slice_ns(usual_ns, missing, self.ahead_segments());
            (to_merge.max(to_collect), missing >= self.ahead_segments())
        });
    }

    /// Once for each segment that stores fill: wants a merge if one helps before segments are missing.
    fn ask_for_merge(&self) {
        let (ahead, filled) = (&self.ahead, self.value_pages_filled());
        if filled < ahead.asked_at.get() + u64::from(self.pool.segment_pages()) {
            return;
        }
        ahead.asked_at.set(filled);
        if !ahead.is_merging.get()
            && self.missing(self.merge_segments()) > 0
            && self.merge_is_due_after(EARLY_PAGES)
            && self.victims(EARLY_GAIN).is_empty()
        {
            ahead.wants_merge.set(true);
        }
    }

    #[inline]
    fn ahead_segments(&self) -> u32 {
        if self.gc.enabled { ahead_segments(self.gc.ahead_segments, self.pool.segments()) } else { 0 }
    }

    /// Free segments more than the low mark, below which the index is merged beside stores: enough to store on while it
    /// is merged, which takes the longer the more pairs a drive has. 0: the store that needs room merges.
    #[inline]
    fn merge_segments(&self) -> u32 {
        match self.ahead_segments() {
            0 => 0,
            ahead => ahead + self.pool.segments() / 32,
        }
    }

    /// Segments that are missing of those that are to be free.
    fn missing_ahead(&self) -> u32 {
        self.missing(self.ahead_segments())
    }

    /// Free segments that are missing if there are to be more than `wanted` above the low mark.
    fn missing(&self, wanted: u32) -> u32 {
        (self.low_mark() + wanted + 1).saturating_sub(self.pool.free_count())
    }

    fn collect_ahead(&self) {
        let ahead = &self.ahead;
        ahead.idle_since.set(None);
        self.index.leave_levels(true);
        while self.missing_ahead() > 0 {
            ahead.step(Work::Collect);
            ahead.advance();
            let _one_at_a_time = self.collecting.lock();
            if self.merge_is_due() && self.victims(EAGER_GAIN).is_empty() && !ahead.is_merging.get() {
                ahead.wants_merge.set(true);
            }
            let is_low = self.pool.free_count() <= self.low_mark();
            let gained = self.evacuate_best(EAGER_GAIN) || is_low && self.evacuate_best(LEAST_GAIN);
            if !gained {
                ahead.idle_since.set(Some(self.value_pages_filled()));
                break;
            }
        }
        self.index.leave_levels(false);
        ahead.is_collecting.set(false);
        ahead.end_task();
    }

    /// Merges levels as the policy asks, which flushes have left out.
    fn merge_levels_ahead(&self) {
        // If it fails, the next flush tries again, or the store that needs room merges everything.
        let _ = self.index.merge_levels_beside(&|| self.ahead.step(Work::Merge));
        self.ahead.is_merging.set(false);
        self.ahead.end_task();
    }

    fn merge_ahead(&self) {
        let filled = self.value_pages_filled();
        self.deletes.set(0);
        // If it fails, for lack of room or because of a damaged page, the next try waits for as many stores.
        let _ = self.index.merge_beside(&|| self.ahead.step(Work::Merge));
        self.merged_at_pages.set(Some(filled));
        self.note_counted();
        self.ahead.idle_since.set(None);
        self.ahead.is_merging.set(false);
        self.ahead.end_task();
    }
}
