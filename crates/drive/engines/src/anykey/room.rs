//! Room: what stores leave free, when the log is emptied, and what is tried before a drive is full.
//!
//! Groups and log take segments from one pool. Stores leave the pages with which two memtables can be flushed, and any
//! piece of a compaction carried out ([`super::piece`]); and a part of the pages of groups, because groups that are
//! divided anew are filled between half and whole. So deletes, and compactions, which give room back, find room.

use std::rc::Rc;

use kvdrive_nvme::Status;

use super::engine::AnyKey;
use super::index::Index;
use crate::ahead::ahead_segments;
use crate::value_log::{Candidate, Head, Use};

/// Emptying a segment for room is worth it if 1/8 of it is gained, ...
const EAGER_GAIN: u64 = 8;
/// ... and a drive is full if the best one gains less than 1/32.
const LEAST_GAIN: u64 = 32;

impl Index {
    /// Pages that stores and fetched values leave.
    pub fn spare_pages(&self) -> u32 {
        let group_pages = self.config.group_pages;
        let divided = self.group_pages.get() / group_pages;
        2 * self.flush_pages() + 3 * group_pages + divided
    }
}

impl AnyKey {
    /// Called before a store: empties segments of the log if it is above its share, or if few segments are free; or has
    /// that done beside the stores ([`crate::ahead`]). Does not wait for another store that does.
    pub fn keep_room(self: &Rc<Self>) {
        self.reserve_for_index();
        if !self.config.engines.lsm.gc.enabled {
            return;
        }
        if self.ahead_segments() > 0 {
            return self.work_ahead();
        }
        let is_low = self.pool.free_count() <= self.low_mark();
        let is_wanted = is_low || self.has_grown() && self.segments_above_share() > 0;
        if !is_wanted {
            return;
        }
        let Some(_one_at_a_time) = self.collecting.try_lock() else { return };
        // An error occurs again, and is reported, when this is the only way to make room.
        if is_low && self.empty_best(EAGER_GAIN) {
            return;
        }
        if self.segments_above_share() > 0 {
            self.empty_least_referenced();
        }
    }

    /// Segments that the log has taken for values of the host. Those that emptying a segment fills itself (AnyKey+) are no
    /// reason to empty another one.
    fn host_openings(&self) -> u64 {
        let moved = self.log.frontier(Head::Gc).div_ceil(self.segment_bytes());
        self.log.next_opening().saturating_sub(moved)
    }

    /// Has the log taken a segment since this was last asked?
    fn has_grown(&self) -> bool {
        self.asked_at.replace(self.host_openings()) != self.host_openings()
    }

    /// Begins to empty segments beside stores, if fewer are free than are to be or the log is above its share.
    ///
    /// The task works all the time, not in slices as in `lsm`: it waits for flash, not for the core, and slices that keep up
    /// with the stores make them wait longer (docs/decisions/anykey.md).
    fn work_ahead(self: &Rc<Self>) {
        let ahead = &self.ahead;
        if ahead.is_collecting.get() {
            return;
        }
        let is_low = self.missing_ahead() > 0;
        // Segments become worth it as stores replace values in them, and the log grows by segments.
        let has_grown = self.has_grown();
        let is_worth_it = ahead.idle_since.get().is_none_or(|since| self.host_openings() > since);
        if is_worth_it && (is_low || has_grown && self.segments_above_share() > 0) {
            ahead.is_collecting.set(true);
            let engine = self.clone();
            ahead.spawn(move || engine.collect_ahead());
        }
    }

    fn collect_ahead(&self) {
        let ahead = &self.ahead;
        ahead.idle_since.set(None);
        loop {
            ahead.advance();
            let _one_at_a_time = self.collecting.lock();
            let (is_low, above) = (self.missing_ahead() > 0, self.segments_above_share());
            // With AnyKey+ an emptied segment may leave the log as large as it was.
            let gained = is_low && self.empty_best(EAGER_GAIN)
                || above > 0 && self.empty_least_referenced() && self.segments_above_share() < above;
            if !gained {
                ahead.idle_since.set(Some(self.host_openings()));
                break;
            }
        }
        ahead.is_collecting.set(false);
        ahead.end_task();
    }

    /// Segments more than the low mark that are to be free.
    fn ahead_segments(&self) -> u32 {
        let gc = &self.config.engines.lsm.gc;
        if gc.enabled { ahead_segments(gc.ahead_segments, self.pool.segments()) } else { 0 }
    }

    /// Segments that are missing of those that are to be free.
    fn missing_ahead(&self) -> u32 {
        (self.low_mark() + self.ahead_segments() + 1).saturating_sub(self.pool.free_count())
    }

    /// Sets the number of segments that values leave to the index.
    pub fn reserve_for_index(&self) {
        // The index has free pages in its own segments, too.
        let to_take = self.pool.free_count().saturating_sub(self.pool.reserve().gc_segments);
        let own = self.index.space.pages_available().saturating_sub(to_take * self.pool.segment_pages());
        let pages = (self.needed_pages() + self.index.flush_pages()).saturating_sub(own);
        let segments = pages.div_ceil(self.pool.segment_pages());
        let least =
            self.config.engines.lsm.gc.free_segments_reserved.saturating_sub(self.pool.reserve().gc_segments);
        self.pool.keep_for_index(segments.max(least) + u32::from(!self.index.space.has_segment()));
    }

    /// Pages that a store must leave the index: one segment more than that, which is taken before one is given back.
    fn needed_pages(&self) -> u32 {
        self.index.spare_pages() + self.pool.segment_pages()
    }

    /// Has the index less room than stores must leave it?
    pub fn is_short(&self) -> bool {
        self.index.space.pages_available() < self.needed_pages()
    }

    fn low_mark(&self) -> u32 {
        let reserve = self.pool.reserve();
        self.config.engines.lsm.gc.free_segments_low.max(reserve.index_segments + reserve.gc_segments + 1)
    }

    /// Segments of the log, with values that groups could take, above its share of the drive.
    fn segments_above_share(&self) -> u32 {
        let share = u64::from(self.pool.segments()) * u64::from(self.config.engines.anykey.log_percent) / 100;
        let staying: u64 = self.index.staying.borrow().values().sum();
        let staying = (staying / self.segment_bytes()) as u32;
        let in_use = u64::from(self.log.segments_in_use().saturating_sub(staying));
        in_use.saturating_sub(share.max(4)) as u32
    }

    pub fn segment_bytes(&self) -> u64 {
        u64::from(self.pool.segment_pages()) * u64::from(self.config.flash.page_bytes)
    }

    fn candidates(&self) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        self.log.for_each_candidate(&mut |candidate| candidates.push(candidate));
        let damaged = self.damaged.borrow();
        candidates.retain(|candidate| !damaged.contains(&candidate.opening));
        candidates
    }

    /// Empties the segments whose live bytes are fewest, if each gains `1/gain` of a segment. `true` if pages were gained.
    fn empty_best(&self, gain: u64) -> bool {
        if !self.config.engines.lsm.gc.enabled {
            return false;
        }
        let most = self.segment_bytes() - self.segment_bytes() / gain;
        let mut victims = self.candidates();
        victims.retain(|candidate| candidate.live_bytes <= most);
        victims.sort_unstable_by_key(|candidate| (candidate.live_bytes, candidate.opening));
        victims.truncate(self.config.engines.lsm.gc.victims as usize);
        let state = (
            self.index.changes(),
            self.index.counters.get().tree_compactions,
            victims.first().map(|v| v.opening),
        );
        if victims.is_empty() || self.futile.replace(Some(state)) == Some(state) {
            return false;
        }
        let before = self.free_pages();
        self.empty(&victims) && self.free_pages() > before && {
            self.futile.set(None);
            true
        }
    }

    /// Empties the segment that the fewest groups refer to. `false`: there is none, or it cannot be emptied.
    fn empty_least_referenced(&self) -> bool {
        let staying = self.index.staying.borrow().clone();
        let half = self.segment_bytes() / 2;
        let mut victims = self.candidates();
        victims.retain(|victim| staying.get(&victim.segment).is_none_or(|bytes| *bytes < half));
        let version = self.index.version.borrow().clone();
        let referring = |victim: &Candidate| {
            version.all().filter(|member| self.index.may_name(member, &[victim.segment])).count()
        };
        let least = victims.into_iter().min_by_key(|victim| (referring(victim), victim.opening));
        least.is_some_and(|victim| self.empty(&[victim]))
    }

    fn empty(&self, victims: &[Candidate]) -> bool {
        let emptied = self.index.empty_segments(victims);
        match emptied {
            Ok(()) => self.index.settle_tree_alone(),
            Err(Status::UNRECOVERED_ERROR) => {
                self.damaged.borrow_mut().extend(victims.iter().map(|victim| victim.opening));
            }
            Err(_) => {}
        }
        emptied.is_ok()
    }

    fn free_pages(&self) -> u32 {
        self.index.space.pages_available() + self.pool.reserve().gc_segments * self.pool.segment_pages()
    }

    /// Makes room for a store's entry in the index.
    pub fn make_room_for_entry(&self) -> Result<(), Status> {
        while self.is_short() {
            self.make_room()?;
        }
        Ok(())
    }

    /// Makes room when there is none. If open iterators hold the room, they are given up one after the other.
    ///
    /// # Errors
    /// `CAPACITY_EXCEEDED` when nothing can be gained; `COMMAND_INTERRUPTED` when cursors that cannot be given up hold the
    /// room until they end.
    pub fn make_room(&self) -> Result<(), Status> {
        let had_segment = self.pool.may_take(Use::Value);
        let was_short = self.is_short();
        let has_room = || !self.is_short() && (was_short || !had_segment && self.pool.may_take(Use::Value));
        while self.ahead.is_collecting.get() {
            self.ahead.wait_for_advance();
            self.reserve_for_index();
            if has_room() {
                return Ok(());
            }
        }
        let _one_at_a_time = self.collecting.lock();
        self.reserve_for_index();
        if has_room() {
            return Ok(());
        }
        loop {
            let before = self.free_pages();
            if self.empty_best(EAGER_GAIN)
                || !self.pool.may_take(Use::Value) && self.index.gather()
                || {
                    self.compact_for_space();
                    self.free_pages() > before
                }
                || self.empty_best(LEAST_GAIN)
            {
                self.reserve_for_index();
                return Ok(());
            }
            self.reserve_for_index();
            if has_room() {
                return Ok(());
            }
            let pages_are_held = self.log.has_snapshots() && self.index.pages_held() > 0;
            if !self.log.snapshots_hold_segments() && !pages_are_held {
                return Err(Status::CAPACITY_EXCEEDED);
            }
            if !self.held_by_cursors.give_up_one() {
                return Err(Status::COMMAND_INTERRUPTED);
            }
            if !self.is_short() && self.pool.may_take(Use::Value) {
                return Ok(());
            }
        }
    }

    /// Merges everything, if anything was put into the index since the last time. What it gains before it fails is gained.
    fn compact_for_space(&self) {
        let changes = self.index.changes();
        if self.compacted_at.get() != changes {
            if self.index.compact_all().is_ok() {
                self.compacted_at.set(changes);
            }
            self.deletes.set(0);
        }
    }

    /// After a delete: when a third of the pairs have been deleted everything is merged, so that space is reclaimed before
    /// the drive is full.
    pub fn forget_deleted(&self) {
        const LEAST_MEMTABLES: u64 = 4;
        self.deletes.set(self.deletes.get() + 1);
        let least = LEAST_MEMTABLES * u64::from(self.config.engines.anykey.memtable_entries);
        if self.deletes.get() < least || self.deletes.get() < self.index.records() / 4 {
            return;
        }
        let Some(_one_at_a_time) = self.collecting.try_lock() else { return };
        self.compact_for_space();
    }
}
