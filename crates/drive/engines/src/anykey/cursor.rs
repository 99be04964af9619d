//! Walks through the index as it was at one moment, in the order of keys.
//!
//! A group is entered by its index, which has the place of each record in the order of keys; its data pages are read as
//! the walk comes to them, and kept until it leaves the group. A group above the present key is not touched.

use std::rc::Rc;

use kvdrive_flash::Purpose;
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::Sim;

use super::group::Member;
use super::index::Index;
use super::page::{Page, Record};
use crate::lsm::memtable::Pair;

/// One sorted run of records.
enum Run {
    /// In memory: the run and the position in it.
    Memory(Rc<[Pair]>, usize),
    /// Groups that share no key: those that are left, the last one first, and the one that the walk is in.
    Groups(Vec<Member>, Option<Walk>),
}

/// A walk through a group.
struct Walk {
    member: Member,
    /// Data page and place of the records, in the order of keys.
    places: Vec<(u16, u16)>,
    next: usize,
    pages: Vec<Loaded>,
}

#[derive(Clone)]
enum Loaded {
    Not,
    Page(Page),
    Damaged,
}

/// The lowest key of a run that has not been given out.
enum Head {
    /// No key of the run is lower.
    Bound(Key),
    Record(Record),
    End,
}

/// A walk. It holds its groups, and pages of one group of each level.
pub struct Cursor {
    sim: Sim,
    runs: Vec<(Run, Head)>,
    from: Option<Key>,
    last: Option<Key>,
}

impl Index {
    /// A cursor before the first key that is not below `from`. Reads nothing yet.
    pub fn cursor(&self, from: Option<Key>) -> Cursor {
        let active = self.active.borrow_mut().sorted();
        let frozen = self.frozen.borrow().as_ref().map(|frozen| (frozen.pairs.clone(), frozen.done));
        let memory = std::iter::once((active, 0)).chain(frozen).map(|(run, done)| {
            let skip = from.map_or(0, |from| run.partition_point(|(key, _)| *key < from));
            Run::Memory(run, skip.max(done))
        });
        let version = self.version.borrow().clone();
        let is_wanted = |member: &&Member| from.is_none_or(|from| member.group.facts.highest >= from);
        let levels = version.levels.iter().flat_map(|level| {
            let groups = level.groups.iter().rev().filter(is_wanted).cloned().collect();
            let scars = level.scars.iter().filter(is_wanted);
            std::iter::once(Run::Groups(groups, None))
                .chain(scars.map(|scar| Run::Groups(vec![scar.clone()], None)))
                .collect::<Vec<_>>()
        });
        let runs = memory.chain(levels).map(|run| {
            let head = run.bound();
            (run, head)
        });
        Cursor { sim: self.parts.sim.clone(), runs: runs.collect(), from, last: None }
    }
}

impl Cursor {
    /// The next key that was not deleted, and its record.
    ///
    /// # Errors
    /// `UNRECOVERED_ERROR`: a page cannot be read. The next call continues after it.
    pub fn next_record(&mut self) -> Result<Option<Record>, Status> {
        loop {
            let lowest =
                (0..self.runs.len()).filter_map(|run| self.runs[run].1.key().map(|key| (key, run))).min();
            let Some((key, at)) = lowest else { return Ok(None) };
            let (run, head) = &mut self.runs[at];
            let Head::Record(record) = std::mem::replace(head, Head::End) else {
                // If it fails, the walk goes on behind what cannot be read.
                let after = self.last;
                let pulled = run.pull(&self.sim, self.from);
                *head = match &pulled {
                    Ok(Some(record)) => Head::Record(record.clone()),
                    Ok(None) => run.bound(),
                    Err(_) => run.bound_after(key),
                };
                pulled?;
                // A run that continues after a damaged page may come with keys that were given out.
                if let (Head::Record(record), Some(after)) = (&*head, after)
                    && record.key <= after
                {
                    *head = run.bound_after(record.key);
                }
                continue;
            };
            *head = run.bound_after(record.key);
            let is_newest = self.last.is_none_or(|last| last < record.key);
            if is_newest {
                self.last = Some(record.key);
                if !record.is_gone() {
                    return Ok(Some(record));
                }
            }
        }
    }
}

impl Head {
    fn key(&self) -> Option<Key> {
        match self {
            Head::Bound(key) => Some(*key),
            Head::Record(record) => Some(record.key),
            Head::End => None,
        }
    }
}

impl Run {
    /// Where it goes on, as far as that is known without a read.
    fn bound(&self) -> Head {
        match self {
            Run::Memory(run, next) => run.get(*next).map_or(Head::End, |(key, _)| Head::Bound(*key)),
            Run::Groups(_, Some(walk)) => Head::Bound(walk.member.group.facts.lowest),
            Run::Groups(left, None) => {
                left.last().map_or(Head::End, |member| Head::Bound(member.group.facts.lowest))
            }
        }
    }

    /// As [`Run::bound`], of a run that has given out `key`.
    fn bound_after(&self, key: Key) -> Head {
        match self.bound() {
            Head::Bound(bound) => Head::Bound(bound.max(key)),
            head => head,
        }
    }

    /// Its next record that is not below `from`; `None`: the group has none left.
    fn pull(&mut self, sim: &Sim, from: Option<Key>) -> Result<Option<Record>, Status> {
        match self {
            Run::Memory(run, next) => {
                let pair = run.get(*next);
                *next += 1;
                Ok(pair.map(Record::of_entry))
            }
            Run::Groups(left, walk) => {
                let here = match walk {
                    Some(walk) => walk,
                    None => {
                        let Some(member) = left.pop() else { return Ok(None) };
                        walk.insert(Walk::enter(sim, member, from)?)
                    }
                };
                let pulled = here.pull(from);
                if matches!(pulled, Ok(None)) {
                    *walk = None;
                }
                pulled
            }
        }
    }
}

impl Walk {
    /// Before the first record of the group that is not below `from`.
    fn enter(sim: &Sim, member: Member, from: Option<Key>) -> Result<Walk, Status> {
        let group = &member.group;
        if group.facts.first_hashes.is_empty() {
            return Err(Status::UNRECOVERED_ERROR);
        }
        let mut pages = vec![Loaded::Not; group.data_pages().into()];
        let places = match group.index(sim, Purpose::Cursor) {
            Ok(places) => places,
            Err(_) => places_by_keys(&member, &mut pages),
        };
        let mut walk = Walk { places, next: 0, pages, member };
        let lowest = walk.member.group.facts.lowest;
        let begins_above = from.is_none_or(|from| from <= lowest) && walk.member.after.is_none();
        if !begins_above {
            walk.next = walk.bisect(from);
        }
        Ok(walk)
    }

    fn is_wanted(&self, key: &Key, from: Option<Key>) -> bool {
        from.is_none_or(|from| from <= *key) && self.member.after.is_none_or(|after| after < *key)
    }

    /// The first record that is wanted; 0 if a page that has to be read for that is damaged.
    fn bisect(&mut self, from: Option<Key>) -> usize {
        let (mut low, mut high) = (0, self.places.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let (page, slot) = self.places[middle];
            match self.page(page).and_then(|page| page.key(slot)) {
                Ok(key) if self.is_wanted(&key, from) => high = middle,
                Ok(_) => low = middle + 1,
                Err(_) => return 0,
            }
        }
        low
    }

    fn page(&mut self, number: u16) -> Result<&Page, Status> {
        let loaded = self.pages.get_mut(usize::from(number)).ok_or(Status::UNRECOVERED_ERROR)?;
        if let Loaded::Not = loaded {
            *loaded = match self.member.group.data_page(number, Purpose::Cursor) {
                Ok(page) => Loaded::Page(page),
                Err(_) => Loaded::Damaged,
            };
        }
        match loaded {
            Loaded::Page(page) => Ok(page),
            _ => Err(Status::UNRECOVERED_ERROR),
        }
    }

    fn pull(&mut self, from: Option<Key>) -> Result<Option<Record>, Status> {
        while let Some(&(page, slot)) = self.places.get(self.next) {
            let record = self.page(page).and_then(|page| page.record(slot));
            match record {
                Ok(record) => {
                    self.next += 1;
                    if self.is_wanted(&record.key, from) {
                        return Ok(Some(record));
                    }
                }
                Err(status) => {
                    // Each damaged page is reported once.
                    self.places =
                        self.places[self.next..].iter().copied().filter(|(at, _)| *at != page).collect();
                    self.next = 0;
                    return Err(status);
                }
            }
        }
        Ok(None)
    }
}

/// The places of a group whose index cannot be read: from its data pages. One place stands for all of a damaged page.
fn places_by_keys(member: &Member, pages: &mut [Loaded]) -> Vec<(u16, u16)> {
    let mut places = Vec::new();
    for (number, loaded) in (0..).zip(pages) {
        let page = member.group.data_page(number, Purpose::Cursor);
        let keys = page.as_ref().map_err(|status| *status).and_then(|page| {
            (0..page.records()?)
                .map(|slot| page.key(slot).map(|key| (key, number, slot)))
                .collect::<Result<Vec<_>, _>>()
        });
        match (page, keys) {
            (Ok(page), Ok(keys)) => {
                *loaded = Loaded::Page(page);
                places.extend(keys);
            }
            _ => {
                *loaded = Loaded::Damaged;
                places.push((member.group.facts.lowest, number, 0));
            }
        }
    }
    places.sort_unstable();
    places.into_iter().map(|(_, page, slot)| (page, slot)).collect()
}
