//! Garbage collection of the value log, and room in general.
//!
//! The log has value bytes only, so the values of a victim are found through the index: tables whose address bounds
//! touch the victim are scanned for entries that point into it (`gc_index`). Their keys are looked up in one pass over
//! the tables, in which each page is read once. If the newest entry of a key points into the victim, and still does
//! under the key's lock, the value is moved (`value_gc`). After that no newest entry points into the victim, and it is
//! given back as soon as no reader holds it.
//!
//! The victim is the sealed segment with the fewest live bytes. The counters may be too high, because an overwritten
//! value is known to be dead only when a merge sees both entries. So before a drive reports that it is full, it merges
//! its whole index once, and then collects by exact counters.

use kvdrive_content::Region;
use kvdrive_flash::Purpose;
use kvdrive_link::Arrival;
use kvdrive_nvme::{Key, Status};

use super::engine::LsmEngine;
use super::entry::Entry;
use super::futile::Futile;
use crate::value_log::{Candidate, Head, Use};

/// Collection ahead of need is worth it while it gains at least 1/8 of a segment.
const EAGER_GAIN: u64 = 8;
/// A drive is full when the best victim gains less than 1/32 of a segment.
const LEAST_GAIN: u64 = 32;

impl LsmEngine {
    /// Called before a store: keeps the room that the index needs to merge itself, and collects a segment if few are
    /// free and one is worth collecting. Does not wait for a collection of another task.
    pub(super) fn keep_room(&self) {
        self.keep_room_for_index();
        if self.pool.free_count() > self.low_mark() || !self.gc.enabled {
            return;
        }
        let Some(_one_at_a_time) = self.collecting.try_lock() else { return };
        if let Some(victim) = self.victim(EAGER_GAIN) {
            // An error here occurs again, and is reported, when collection is the only way to make room.
            let _ = self.evacuate(victim);
        }
    }

    /// Does [`LsmEngine::keep_room`] have anything to do? For almost every store it does not.
    #[inline]
    pub(super) fn is_short_of_room(&self) -> bool {
        !self.has_room_for_entry() || self.gc.enabled && self.pool.free_count() <= self.low_mark()
    }

    /// Is it known that there is room for a store's entry, since the index has not changed since there was? Almost
    /// always.
    #[inline]
    pub(super) fn has_room_for_entry(&self) -> bool {
        self.index_work.get() == self.index.work() && !self.index_short.get()
    }

    #[inline]
    fn low_mark(&self) -> u32 {
        let reserve = self.pool.reserve();
        self.gc.free_segments_low.max(reserve.index_segments + reserve.gc_segments + 1)
    }

    /// Called after the index may have changed: merges the whole index if stores have left it less room than it needs.
    pub(super) fn keep_room_for_index(&self) {
        if self.index_work.get() == self.index.work() {
            return;
        }
        if self.index_is_short() || self.count_is_due() {
            // If another task collects, this check is skipped; the next store checks again.
            let Some(_one_at_a_time) = self.collecting.try_lock() else { return };
            self.compact_for_space();
            self.index_is_short();
        }
        self.index_work.set(self.index.work());
    }

    /// Makes room for a store's entry in the index, wherever its value lies. Errors of [`LsmEngine::make_room`].
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

    /// Has the index less room than stores must leave it?
    pub(super) fn index_is_short(&self) -> bool {
        let needed_pages = self.reserve_for_index();
        let is_short = self.index.pages_available() < needed_pages;
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
        let segments = (needed_pages + margin).div_ceil(self.pool.segment_pages());
        // The index has its first segment reserved before it has a table. Otherwise values could fill that segment,
        // too, and the drive would stay full after a delete of as many bytes as the next store needs.
        let first = u32::from(!self.index.has_segment());
        self.pool.keep_for_index(segments.max(self.least_index_segments()) + first);
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
        let had_segment = self.pool.may_take(Use::Value);
        let was_short = self.index_is_short();
        let _one_at_a_time = self.collecting.lock();
        let is_short = self.index_is_short();
        if !is_short && (was_short || !had_segment && self.pool.may_take(Use::Value)) {
            return Ok(()); // another task made room while we waited, or the index needs less than it did
        }
        loop {
            if is_short && self.compact_for_space()
                || self.evacuate_best(EAGER_GAIN)
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

    /// Collects the best victim if that promises to gain `1/gain` of a segment. `true` if it gained.
    fn evacuate_best(&self, gain: u64) -> bool {
        match self.victim(gain).filter(|_| self.gc.enabled) {
            Some(victim) => self.evacuate(victim).is_ok_and(|gained| gained),
            None => false,
        }
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
        let least = LEAST_MEMTABLES * u64::from(self.config.lsm.index.memtable_entries);
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
        let done = self.index.compact_all().is_ok();
        if done {
            self.compacted_at.set(changes);
            self.reserve_for_index();
        }
        self.deletes.set(0);
        self.note_counted();
        done
    }

    /// The segment whose collection gains most, if that is at least `1/gain` of a segment; of several equal ones, the
    /// oldest.
    ///
    /// `None` while open iterators hold dead segments and little else is free: they would hold the victim as well, and
    /// its live values would take room that the index needs.
    fn victim(&self, gain: u64) -> Option<Candidate> {
        if self.log.snapshots_hold_segments() && !self.pool.may_take(Use::Value) {
            return None;
        }
        let segment_bytes = self.segment_bytes();
        let damaged = self.damaged.borrow();
        let mut best: Option<Candidate> = None;
        self.log.for_each_candidate(&mut |candidate| {
            let better = best.is_none_or(|best| {
                (candidate.live_bytes, candidate.opening) < (best.live_bytes, best.opening)
            });
            if better && !damaged.contains(&candidate.opening) {
                best = Some(candidate);
            }
        });
        let futile = self.futile.get();
        best.filter(|victim| victim.live_bytes + segment_bytes / gain <= segment_bytes)
            .filter(|victim| !futile.rules_out(victim.live_bytes, self.log.live_bytes()))
    }

    pub(super) fn segment_bytes(&self) -> u64 {
        let addresses = self.log.addresses(crate::value_log::SegmentId(0));
        addresses.end.0 - addresses.start.0
    }

    /// Moves the live values of a segment elsewhere. `true` if they took less room than the segment.
    ///
    /// Errors: because of a page that cannot be read, the segment is never collected; without room for the moved values
    /// or their entries, some values stay in it.
    fn evacuate(&self, victim: Candidate) -> Result<bool, Status> {
        let segments_begun = self.collected_segments_begun();
        self.keep_room_to_flush(segments_begun)?;
        let addresses = self.log.addresses(victim.segment);
        let began = self.log.frontier(Head::Gc);
        let mut pairs = Vec::new();
        let result = match self.index.references(addresses, &mut pairs) {
            Ok(()) => self.move_values(&victim, pairs, segments_begun),
            Err(status) => Err(status),
        };
        match result {
            Ok(()) => self.log.note_all_dead(&victim),
            Err(Status::UNRECOVERED_ERROR) => self.damaged.borrow_mut().push(victim.opening),
            Err(_) => {}
        }
        let taken_bytes = self.log.frontier(Head::Gc) - began;
        let gained = taken_bytes + self.segment_bytes() / LEAST_GAIN <= self.segment_bytes();
        if !gained {
            self.futile.set(Futile { victim_bytes: victim.live_bytes, live_bytes: self.log.live_bytes() });
        }
        result.map(|()| gained)
    }

    /// Segments that moved values have taken so far.
    fn collected_segments_begun(&self) -> u64 {
        self.log.frontier(Head::Gc).div_ceil(self.segment_bytes())
    }

    /// Moves the live values of `pairs`. While it runs, all values of the victim may die; the segment is then given
    /// back and may be opened again, so that its addresses mean other values. That is why the number of its opening is
    /// checked.
    fn move_values(
        &self,
        victim: &Candidate,
        mut pairs: Vec<(Key, Entry)>,
        segments_begun: u64,
    ) -> Result<(), Status> {
        let mut content = Region::new();
        let mut work = self.index.work();
        while !pairs.is_empty() {
            // In the order of their keys: each page of the index is read once, until the tables change.
            let seen = self.index.retain_newest(&mut pairs)?;
            // In the order of their addresses: each page of the victim is read once.
            pairs.sort_by_key(|(key, entry)| (entry.address, *key));
            let mut done = 0;
            for (key, entry) in &pairs {
                if work != self.index.work() {
                    self.keep_room_to_flush(segments_begun)?;
                    work = self.index.work();
                }
                let _key = self.keys.lock(*key);
                let Some(is_newest) = self.index.is_newest(key, entry, &seen) else { break };
                if is_newest && self.log.opening_of(entry.address) == Some(victim.opening) {
                    self.move_value(*key, *entry, &mut content)?;
                }
                done += 1;
            }
            pairs.drain(..done);
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
