//! Flush, tree-triggered and log-triggered compaction. One task at a time ([`Index::working`]).
//!
//! * *Flush*: the memtable's records, with addresses, are merged into the first level.
//! * *Tree*: the level that is fullest by its limit gives neighbouring groups, at a random place, to the next one. The last
//!   level gets the values themselves.
//! * *Log*: groups that name a victim segment of the log are rewritten in their level with the values of that segment,
//!   which is free then. With AnyKey+ such values go back to the log, if the level is nearly full.

use kvdrive_flash::Purpose;
use kvdrive_nvme::Status;

use super::group::{Member, References};
use super::index::Index;
use super::levels::{Edit, Level};
use super::page::Record;
use super::piece::Values;
use crate::value_log::{Candidate, SegmentId};

const NO_VICTIMS: &[SegmentId] = &[];

/// How many times the bytes of keys those of values are, and the share of its limit from which a level has them in the log
/// (AnyKey's code of October 2024).
const SHARES: [(u64, f64); 4] = [(20, 0.0), (10, 0.70), (5, 0.80), (3, 0.90)];

impl Index {
    /// Makes room in the memtable for `entries` entries; another insertion may take it.
    ///
    /// # Errors
    /// `CAPACITY_EXCEEDED`: the memtable has to be written for this, and there is no room for it.
    pub fn make_room_for(&self, entries: u32) -> Result<(), Status> {
        while self.is_full_for(entries) {
            let _working = self.working.lock();
            if !self.is_full_for(entries) {
                break;
            }
            self.flush()?;
            self.settle_tree();
        }
        Ok(())
    }

    /// Writes the memtable. The caller works alone.
    pub fn flush(&self) -> Result<(), Status> {
        self.flush_frozen()?;
        if self.active.borrow().is_empty() {
            return Ok(());
        }
        self.freeze();
        self.flush_frozen()
    }

    fn flush_frozen(&self) -> Result<(), Status> {
        let left = || {
            let frozen = self.frozen.borrow();
            frozen.as_ref().map(|frozen| frozen.left().iter().map(Record::of_entry).collect::<Vec<_>>())
        };
        let Some(upper) = left() else { return Ok(()) };
        let mut done = 0;
        while done < upper.len() {
            done += self.merge_piece(&upper[done..], 0, None, Purpose::Index)?;
        }
        self.count(|counters| counters.flushes += 1);
        Ok(())
    }

    /// Merges the first of `upper` into level `to`; they come from group `from`, or from the frozen memtable. Returns how
    /// many of them.
    fn merge_piece(
        &self,
        upper: &[Record],
        to: usize,
        from: Option<&Member>,
        purpose: Purpose,
    ) -> Result<usize, Status> {
        loop {
            let version = self.version.borrow().clone();
            let (count, groups) = self.next_piece(&version.levels[to], upper);
            let mut lower = Vec::new();
            let mut is_damaged = false;
            for member in &groups {
                match self.load(member, purpose) {
                    Ok(records) => lower.extend(records),
                    Err(Status::UNRECOVERED_ERROR) => {
                        self.make_scar(member, to);
                        is_damaged = true;
                        break;
                    }
                    Err(status) => return Err(status),
                }
            }
            if is_damaged {
                continue;
            }
            let last_key = upper[count - 1].key;
            let merged = self.merge(upper[..count].to_vec(), lower, version.is_bottom(to));
            let mut edit = Edit { to, dropped: groups.iter().map(Member::id).collect(), ..Edit::default() };
            match from {
                Some(from) if count == upper.len() => edit.dropped.push(from.id()),
                Some(from) => edit.trimmed = Some((from.id(), last_key)),
                None => {}
            }
            let flushed = from.is_none().then_some(last_key);
            let is_last = to + 1 == self.config.levels as usize;
            let values = Values {
                victims: NO_VICTIMS,
                write_back: false,
                fetch_all: is_last,
                spare_pages: self.spare_pages(),
                purpose,
            };
            self.finish_piece(merged, edit, flushed, values)?;
            return Ok(count);
        }
    }

    /// The records of a member, in the order of their keys.
    fn load(&self, member: &Member, purpose: Purpose) -> Result<Vec<Record>, Status> {
        let mut records = member.group.load(&self.parts.sim, purpose, |address| self.segment_of(address))?;
        if let Some(after) = member.after {
            records.retain(|record| record.key > after);
        }
        Ok(records)
    }

    /// A page of the group cannot be read: it stays in its level, and nothing is merged with it any more.
    fn make_scar(&self, member: &Member, level: usize) {
        self.count(|counters| counters.scars += 1);
        let edit = Edit { to: level, scarred: Some(member.id()), ..Edit::default() };
        self.install(&edit, None).expect("no group is added");
    }

    /// Merges the groups of levels that are above their limits into the next ones, the fullest level first.
    pub fn settle_tree(&self) {
        let mut failed = false;
        while !failed {
            let version = self.version.borrow().clone();
            let fullness = |level: usize| version.levels[level].groups.len() as f64 / self.limits[level];
            let fullest = (0..self.limits.len()).max_by(|a, b| fullness(*a).total_cmp(&fullness(*b)));
            let Some(level) = fullest.filter(|level| fullness(*level) > 1.0) else { return };
            let groups = &version.levels[level].groups;
            let surplus = (groups.len() - self.limits[level] as usize).clamp(1, groups.len());
            let first = self.random_place(groups.len() - surplus + 1);
            let mut gave = false;
            for member in &groups[first..first + surplus] {
                match self.push_down(member, level) {
                    Ok(gone) => gave |= gone,
                    Err(_) => failed = true,
                }
            }
            failed |= !gave;
        }
    }

    /// As [`Index::settle_tree`], for a caller that does not work alone yet.
    pub fn settle_tree_alone(&self) {
        let _working = self.working.lock();
        self.settle_tree();
    }

    /// Records in memtables and groups, replaced ones included.
    pub fn records(&self) -> u64 {
        let groups: u64 =
            self.version.borrow().all().map(|member| u64::from(member.group.facts.records)).sum();
        let frozen = self.frozen.borrow().as_ref().map_or(0, |frozen| frozen.left().len());
        groups + (self.active.borrow().len() + frozen) as u64
    }

    /// Pages of groups that only readers hold.
    pub fn pages_held(&self) -> u32 {
        self.space.pages_in_use().saturating_sub(self.group_pages.get())
    }

    /// A place below `places`, by the number of compactions: the same run compacts the same groups.
    fn random_place(&self, places: usize) -> usize {
        let counters = self.counters.get();
        let turn = counters.tree_compactions + counters.moves + counters.flushes;
        let mixed = (turn + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((u128::from(mixed ^ (mixed >> 29)) * places as u128) >> 64) as usize
    }

    /// Merges a group into the level below its own. `false`: it stays, since older keys of its level cannot be read, or it
    /// is not there any more.
    fn push_down(&self, member: &Member, level: usize) -> Result<bool, Status> {
        let version = self.version.borrow().clone();
        let here = &version.levels[level];
        let Some(member) = here.groups.iter().find(|other| other.id() == member.id()) else {
            return Ok(false);
        };
        if self.is_over_scar(here, member) {
            return Ok(false);
        }
        let to = level + 1;
        if self.moves_as_it_is(member, &version.levels[to], to, version.is_bottom(to)) {
            self.install(&Edit { to, moved: Some(member.id()), ..Edit::default() }, None)?;
            self.count(|counters| counters.moves += 1);
            return Ok(true);
        }
        let upper = match self.load(member, Purpose::Compaction) {
            Ok(upper) => upper,
            Err(Status::UNRECOVERED_ERROR) => {
                self.make_scar(member, level);
                return Ok(true);
            }
            Err(status) => return Err(status),
        };
        let mut done = 0;
        while done < upper.len() {
            done += self.merge_piece(&upper[done..], to, Some(member), Purpose::Compaction)?;
        }
        self.count(|counters| counters.tree_compactions += 1);
        Ok(true)
    }

    /// Has the next level nothing that has to be merged with the group, and nothing in the group to be fetched or
    /// forgotten there?
    fn moves_as_it_is(&self, member: &Member, below: &Level, to: usize, is_bottom: bool) -> bool {
        let is_last = to + 1 == self.config.levels as usize;
        let has_references = match &*member.group.references.borrow() {
            References::Exact(segments) => !segments.is_empty(),
            References::Within(bounds) => bounds.high > bounds.low,
        };
        let is_large = member.group.pages() >= self.config.group_pages / 2;
        let is_changed_there = is_last && has_references || is_bottom && member.group.facts.gone > 0;
        !is_changed_there
            && (is_large || below.groups.is_empty())
            && !below.groups.iter().any(|other| other.overlaps(member))
    }

    /// Merges everything into the last level, which drops replaced and deleted pairs. `Ok` even if some groups cannot go
    /// down.
    pub fn compact_all(&self) -> Result<(), Status> {
        let _working = self.working.lock();
        self.flush()?;
        for level in 0..self.limits.len() {
            let groups = self.version.borrow().levels[level].groups.clone();
            for member in groups {
                self.push_down(&member, level)?;
            }
        }
        Ok(())
    }

    /// Empties segments of the log into the groups that name them. Flushes and compactions of stores may come between two
    /// groups.
    ///
    /// # Errors
    /// A page cannot be read, so a victim is not free; there is no room.
    pub fn empty_segments(&self, victims: &[Candidate]) -> Result<(), Status> {
        let mut segments: Vec<SegmentId> = victims.iter().map(|victim| victim.segment).collect();
        segments.sort_unstable();
        {
            let _working = self.working.lock();
            if self.memtables_name(&segments) {
                self.flush()?;
            }
        }
        // What names a victim on one level may have been merged into the next one before its turn: it is found there. No
        // new record names one, since the victims are sealed.
        while let Some((level, member)) = self.naming(&segments) {
            let _working = self.working.lock();
            let is_there = {
                let version = self.version.borrow();
                let here = version.levels[level].groups.iter().find(|other| other.id() == member.id());
                here.is_some_and(|here| here.after == member.after)
            };
            if is_there {
                self.rewrite(&member, level, &segments)?;
            }
        }
        let version = self.version.borrow().clone();
        let scars = || version.levels.iter().flat_map(|level| &level.scars);
        if scars().any(|member| self.may_name(member, &segments)) {
            return Err(Status::UNRECOVERED_ERROR);
        }
        for victim in victims {
            // All its values may have died meanwhile, and the segment has others by now.
            let start = self.parts.log.addresses(victim.segment).start;
            if self.parts.log.opening_of(start) == Some(victim.opening) {
                self.staying.borrow_mut().remove(&victim.segment);
                self.parts.log.note_all_dead(victim);
            }
        }
        self.count(|counters| counters.log_compactions += victims.len() as u64);
        Ok(())
    }

    /// The first group that may name one of these segments, and its level.
    fn naming(&self, segments: &[SegmentId]) -> Option<(usize, Member)> {
        let version = self.version.borrow();
        let mut levels = version.levels.iter().enumerate();
        levels.find_map(|(level, list)| {
            let member = list.groups.iter().find(|member| self.may_name(member, segments))?;
            Some((level, member.clone()))
        })
    }

    /// Writes the groups of the last segment that is not full again, on free pages of the others. `true`: a segment is free.
    pub fn gather(&self) -> bool {
        let _working = self.working.lock();
        let Some((last, elsewhere)) = self.space.last_open() else { return false };
        let (pages, free_before) = (self.parts.pool.lpas(last), self.parts.pool.free_count());
        let version = self.version.borrow().clone();
        let levels = version.levels.iter().enumerate();
        let members = levels.flat_map(|(level, list)| list.groups.iter().map(move |member| (level, member)));
        let there: Vec<_> = members.filter(|(_, member)| member.group.lies_in(&pages)).collect();
        let needed: u32 = there.iter().map(|(_, member)| member.group.pages() + 1).sum();
        if needed > elsewhere {
            return false;
        }
        let all_written = there.into_iter().all(|(level, member)| self.rewrite(member, level, &[]).is_ok());
        drop(version);
        all_written && self.parts.pool.free_count() > free_before
    }

    fn memtables_name(&self, segments: &[SegmentId]) -> bool {
        let names = |entry: &crate::lsm::entry::Entry| {
            entry.has_bytes() && segments.contains(&self.segment_of(entry.address))
        };
        let frozen = self.frozen.borrow();
        let mut left = frozen.iter().flat_map(|frozen| frozen.left());
        left.any(|(_, entry)| names(entry))
            || self.active.borrow().pairs().iter().any(|(_, entry)| names(entry))
    }

    /// May a record of the group refer to one of these segments?
    pub fn may_name(&self, member: &Member, segments: &[SegmentId]) -> bool {
        if member.group.pages() == 0 {
            // Nothing of it was found, so nobody will follow its addresses.
            return false;
        }
        match &*member.group.references.borrow() {
            References::Exact(named) => segments.iter().any(|segment| named.binary_search(segment).is_ok()),
            References::Within(bounds) => {
                segments.iter().any(|segment| bounds.touches(&self.parts.log.addresses(*segment)))
            }
        }
    }

    /// Writes a group again in its level, with the values that it has in the victims.
    fn rewrite(&self, member: &Member, level: usize, victims: &[SegmentId]) -> Result<(), Status> {
        let version = self.version.borrow().clone();
        let records = match self.load(member, Purpose::GcIndex) {
            Ok(records) => records,
            Err(Status::UNRECOVERED_ERROR) => {
                self.make_scar(member, level);
                return Ok(());
            }
            Err(status) => return Err(status),
        };
        if !victims.is_empty() && !self.may_name(member, victims) {
            return Ok(());
        }
        let edit = Edit { to: level, dropped: vec![member.id()], ..Edit::default() };
        let values = Values {
            victims,
            write_back: self.writes_back(&records, level, version.levels[level].groups.len()),
            fetch_all: level + 1 == self.config.levels as usize,
            spare_pages: self.spare_pages(),
            purpose: Purpose::Compaction,
        };
        self.count(|counters| counters.rewritten_groups += 1);
        self.finish_piece(self.merge(records, Vec::new(), false), edit, None, values)
    }

    /// AnyKey+: is the level so full that values are better off in the log? The share of its limit depends on how large
    /// values are beside their keys; never in the last level.
    fn writes_back(&self, records: &[Record], level: usize, groups: usize) -> bool {
        let Some(limit) = self.limits.get(level).filter(|_| self.config.write_back) else { return false };
        let logged =
            || records.iter().filter_map(|record| Some((record.key.len() as u64, record.logged()?.1)));
        let keys: u64 = logged().map(|(key, _)| key).sum();
        let values: u64 = logged().map(|(_, value)| u64::from(value)).sum();
        let is_above = |times: u64| values > times * keys;
        let share = SHARES.iter().find(|(times, _)| is_above(*times)).map_or(1.0, |(_, share)| *share);
        groups as f64 >= limit * share
    }
}
