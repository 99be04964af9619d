//! A piece of work: records of one range of keys are merged with the group of that range in the level below, and the lists
//! change. A flush and a compaction are rows of pieces, so that none takes more room than two groups and some pages.

use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_flash::Purpose;
use kvdrive_link::Arrival;
use kvdrive_nvme::{Key, Status};

use super::group::GroupId;
use super::group::{Group, Member, References, build};
use super::index::Index;
use super::journal::Change;
use super::levels::{Edit, Level};
use super::page::{Content, Record, Sizes};
use crate::firmware::Role;
use crate::lsm::space::PagesUnderWay;
use crate::value_log::{Head, Place, SegmentId, Vaddr};

/// Most records of a group (AnyKey's code).
const MOST_RECORDS: u32 = 8192;

/// Bytes of the log to which no record refers after a piece.
pub type Dead = Vec<(Key, Vaddr, u32)>;

/// What is done with values of the log.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    /// Values of these segments must leave them.
    pub victims: &'a [SegmentId],
    /// They go back to the log, not into the group.
    pub write_back: bool,
    /// All other values are fetched as well, as far as there is room: the group is of the last level.
    pub fetch_all: bool,
    /// Pages that must be left for others.
    pub spare_pages: u32,
    pub purpose: Purpose,
}

/// Values that were moved, and are in the log until the lists have changed.
#[derive(Default)]
pub struct Moved {
    places: Vec<(Key, Place)>,
    dead: Dead,
}

/// A value of the log that is to be placed elsewhere.
struct Wanted {
    address: Vaddr,
    bytes: u32,
    /// Which record names it.
    record: usize,
    /// It has to leave its segment.
    must: bool,
    /// It goes into the group; otherwise to the end of the log.
    goes_in: bool,
}

impl Index {
    /// Upper records replace lower ones of the same key; records of deleted keys are left out at the bottom.
    pub fn merge(&self, upper: Vec<Record>, lower: Vec<Record>, is_bottom: bool) -> (Vec<Record>, Dead) {
        let (mut merged, mut dead) = (Vec::with_capacity(upper.len() + lower.len()), Dead::new());
        let mut lower = lower.into_iter().peekable();
        for record in upper {
            while let Some(older) = lower.next_if(|older| older.key < record.key) {
                merged.push(older);
            }
            if let Some(older) = lower.next_if(|older| older.key == record.key)
                && let Some((address, bytes)) = older.logged()
                && record.logged().is_none_or(|(newer, _)| newer != address)
            {
                dead.push((older.key, address, bytes));
            }
            merged.push(record);
        }
        merged.extend(lower);
        if is_bottom {
            merged.retain(|record| !record.is_gone());
        }
        self.charge(merged.len());
        (merged, dead)
    }

    /// Takes the firmware time to merge and sort so many records.
    fn charge(&self, records: usize) {
        let ns = records as u64 * self.config.record_ns;
        self.parts.cores.of(Role::Collection).run_noted(ns, "index", "merge and sort records");
    }

    /// Divides records into groups of about the same size.
    fn divide(&self, records: Vec<Record>) -> Vec<Vec<Record>> {
        let page_bytes = self.page_bytes();
        let is_full = |sizes: &Sizes| {
            sizes.records > MOST_RECORDS || sizes.pages_at_most(page_bytes) > self.config.group_pages
        };
        let total: u64 = records.iter().map(|record| u64::from(record.page_bytes())).sum();
        let (mut count, mut sizes) = (1_u64, Sizes::default());
        for record in &records {
            sizes.add(record.page_bytes());
            if is_full(&sizes) {
                count += 1;
                sizes = Sizes::default();
                sizes.add(record.page_bytes());
            }
        }
        let (aim, mut groups) = (total.div_ceil(count), Vec::new());
        let (mut group, mut sizes, mut bytes) = (Vec::new(), Sizes::default(), 0);
        for record in records {
            let mut with = sizes;
            with.add(record.page_bytes());
            if !group.is_empty() && (is_full(&with) || bytes >= aim) {
                groups.push(std::mem::take(&mut group));
                (sizes, bytes) = (Sizes::default(), 0);
            }
            sizes.add(record.page_bytes());
            bytes += u64::from(record.page_bytes());
            group.push(record);
        }
        if !group.is_empty() {
            groups.push(group);
        }
        groups
    }

    /// The most pages that these records take.
    pub fn pages_of(&self, records: &[Record]) -> u32 {
        let mut sizes = Sizes::default();
        records.iter().for_each(|record| sizes.add(record.page_bytes()));
        let pages = sizes.pages_at_most(self.page_bytes());
        pages + 3 * (pages / self.config.group_pages + sizes.records / MOST_RECORDS)
    }

    /// Writes records, which are in the order of their keys, as groups that no list has yet.
    ///
    /// # Errors
    /// `CAPACITY_EXCEEDED`: there is not room enough; nothing stays written.
    fn write(&self, records: Vec<Record>, level: usize, purpose: Purpose) -> Result<Vec<Member>, Status> {
        let page_bytes = self.page_bytes();
        let keeps_hashes = level + 1 < self.config.levels as usize;
        let mut built = Vec::new();
        for records in self.divide(records) {
            let id = GroupId(self.next_group.replace(self.next_group.get() + 1));
            self.parts.journal.append(&Change::IdTaken(id));
            built.push(build(id, records, page_bytes, |address| self.segment_of(address)));
        }
        let pages: usize = built.iter().map(|built| built.pages.len()).sum();
        if pages > self.space.pages_available() as usize {
            return Err(Status::CAPACITY_EXCEEDED);
        }
        let mut under_way = PagesUnderWay::new(self.space.clone());
        let mut groups = Vec::new();
        for built in built {
            let places = under_way.write(built.pages, purpose)?;
            let places = places.iter().map(|lpa| Some(*lpa)).collect();
            let group =
                Group::new(built.facts, places, References::Exact(built.segments), self.space.clone());
            *group.hashes.borrow_mut() = keeps_hashes.then_some(built.hashes);
            groups.push(Member { group: Rc::new(group), after: None });
        }
        under_way.keep();
        Ok(groups)
    }

    /// Writes records into level `edit.to`, changes the lists, and reports dead bytes.
    pub fn finish_piece(
        &self,
        (records, mut dead): (Vec<Record>, Dead),
        mut edit: Edit,
        flushed: Option<Key>,
        values: Values<'_>,
    ) -> Result<(), Status> {
        let mut records = records;
        let moved = self.place_values(&mut records, values)?;
        let written = self.write(records, edit.to, values.purpose).and_then(|groups| {
            edit.added = groups;
            let installed = self.install(&edit, flushed);
            if installed.is_err() {
                edit.added.iter().for_each(|member| member.group.replaced());
            }
            installed
        });
        if let Err(status) = written {
            for (key, place) in &moved.places {
                self.note_dead(key, place.address(), place.bytes());
            }
            return Err(status);
        }
        dead.extend(moved.dead);
        for (key, address, bytes) in dead {
            self.note_dead(&key, address, bytes);
        }
        Ok(())
    }

    /// The values that leave the log or their segment, in the order of the log, so that each of its pages is read once.
    fn wanted_values(&self, records: &[Record], values: Values<'_>) -> Vec<Wanted> {
        let room_pages = self.space.pages_available().saturating_sub(values.spare_pages);
        let room_pages = room_pages.saturating_sub(self.pages_of(records));
        let mut room = u64::from(room_pages) * u64::from(self.page_bytes()) * 3 / 4;
        let mut wanted = Vec::new();
        for (record, found) in records.iter().enumerate() {
            let Some((address, bytes)) = found.logged() else { continue };
            let must = values.victims.contains(&self.segment_of(address));
            let fits = self.fits_group(&found.key, bytes);
            let goes_in = fits && (must && !values.write_back || values.fetch_all && room >= bytes.into());
            if goes_in || must {
                room -= if goes_in { room.min(bytes.into()) } else { 0 };
                wanted.push(Wanted { address, bytes, record, must, goes_in });
            }
        }
        wanted.sort_unstable_by_key(|wanted| wanted.address);
        wanted
    }

    /// Fetches values from the log into records, or moves them within the log.
    fn place_values(&self, records: &mut [Record], values: Values<'_>) -> Result<Moved, Status> {
        let (mut moved, mut fetched, mut end) = (Moved::default(), Region::new(), 0);
        let mut fetches = Vec::new();
        for Wanted { address, bytes, record, must, goes_in } in self.wanted_values(records, values) {
            let key = records[record].key;
            let purpose = if must { Purpose::ValueGc } else { values.purpose };
            let placed = match self.fetch((address, bytes), purpose, &mut fetched, end) {
                Ok(()) if goes_in => {
                    fetches.push((record, end, bytes));
                    end += bytes;
                    Ok(())
                }
                Ok(()) => self.write_back(key, &fetched, end, bytes).map(|place| {
                    records[record].content = Content::Logged { address: place.address(), bytes };
                    moved.places.push((key, place));
                }),
                // It stays where it is: whoever asks for it gets the error.
                Err(_) if !must => continue,
                Err(status) => Err(status),
            };
            if let Err(status) = placed {
                self.undo(&moved);
                return Err(status);
            }
            moved.dead.push((key, address, bytes));
        }
        self.count(|counters| {
            let fits = |(key, place): &&(Key, Place)| self.fits_group(key, place.bytes());
            let written_back = moved.places.iter().filter(fits).count();
            counters.written_back_values += written_back as u64;
            counters.moved_values += (moved.places.len() - written_back) as u64;
            counters.fetched_values += fetches.len() as u64;
            counters.fetched_bytes += u64::from(end);
        });
        let region = Rc::new(fetched);
        for (record, at, bytes) in fetches {
            records[record].content = Content::Here { region: region.clone(), at, bytes };
        }
        Ok(moved)
    }

    /// Reads a value of the log to byte `end` of `fetched`.
    fn fetch(
        &self,
        (address, bytes): (Vaddr, u32),
        purpose: Purpose,
        fetched: &mut Region,
        end: u32,
    ) -> Result<(), Status> {
        if !self.parts.log.holds(address, bytes) {
            return Err(Status::UNRECOVERED_ERROR);
        }
        let mut at = end;
        self.parts.log.read(address, 0, bytes, bytes, purpose, &mut |piece: Piece<'_>| {
            fetched.write(at, piece);
            at += piece.bytes();
        })
    }

    fn undo(&self, moved: &Moved) {
        for (key, place) in &moved.places {
            self.note_dead(key, place.address(), place.bytes());
        }
    }

    /// Puts a value at the end of the log.
    fn write_back(&self, key: Key, from: &Region, at: u32, bytes: u32) -> Result<Place, Status> {
        let mut place = self.parts.log.reserve(Head::Gc, bytes, Arrival::Inline)?;
        let mut written = 0;
        from.read(at, bytes, &mut |piece| {
            place.write(written, piece);
            written += piece.bytes();
        });
        place.landed();
        self.note_live(&key, place.address(), bytes);
        Ok(place)
    }

    /// The part of `upper` that is merged in one piece, and the groups of `level` that it is merged with.
    pub fn next_piece(&self, level: &Level, upper: &[Record]) -> (usize, Vec<Member>) {
        let owner = level.owner(&upper[0].key);
        let mut groups: Vec<Member> = level.groups.get(owner).cloned().into_iter().collect();
        // A small group takes its neighbour along, so that groups do not stay small.
        let is_small = groups.first().is_some_and(|first| first.group.pages() < self.config.group_pages / 2);
        if is_small {
            groups.extend(level.groups.get(owner + 1).cloned());
        }
        let bound = level.groups.get(owner + groups.len().max(1)).map(|next| next.group.facts.lowest);
        let end = bound.map_or(upper.len(), |bound| upper.partition_point(|record| record.key < bound));
        let (mut sizes, mut count) = (Sizes::default(), 0);
        for record in &upper[..end.max(1)] {
            sizes.add(record.page_bytes());
            if count > 0 && sizes.pages_at_most(self.page_bytes()) > self.config.group_pages {
                break;
            }
            count += 1;
        }
        // Records beside a group that is large enough become a group of their own.
        let (first, last) = (upper[0].key, upper[count - 1].key);
        let is_beside = |member: &Member| {
            let facts = &member.group.facts;
            last < facts.lowest || first > facts.highest
        };
        if !is_small && groups.iter().all(is_beside) {
            groups.clear();
        }
        (count, groups)
    }

    /// Has the same level an older group that cannot be read and may have one of these keys? Such keys cannot go below it.
    pub fn is_over_scar(&self, level: &Level, member: &Member) -> bool {
        level.scars.iter().any(|scar| scar.overlaps(member))
    }
}
