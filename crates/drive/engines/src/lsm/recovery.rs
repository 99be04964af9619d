//! The state of the index that survives a power cut, and how the rest is rebuilt.
//!
//! ```text
//!   protected image (DRAM with a capacitor)      memtables, ids and levels of the live tables, two counters
//!   spare areas of table pages (flash)           everything else about a table: which pages, which keys, how many
//! ```
//!
//! The index reports every change as an [`IndexRecord`]; an [`IndexImage`] that applies them stays equal to the index.
//! A table exists from the record that names it on; the same record ends the existence of its inputs (tables,
//! memtable). Pages of tables that no record names, half-written or replaced, are given back.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_flash::ftl::Lpa;
use kvdrive_nvme::Key;

use super::entry::{AddressBounds, Entry, TableId};
use super::layout::{KeyClass, Lists, Part, TableFacts};
use super::levels::Version;
use super::space::{TABLE_PAGE_KIND, TableSpace};
use super::table::{OfTable, PageTag, Table};

/// The bounds of a table whose keys are not known.
pub(super) const LOWEST_KEY: Key = Key::from_padded([0; 16], 1).expect("one byte is a key");
/// See [`LOWEST_KEY`].
pub(super) const HIGHEST_KEY: Key = Key::HIGHEST;

/// Most insertions: no drive reaches this number. An image with more is refused, so that numbers for later insertions
/// remain.
const MOST_INSERTIONS: u64 = 1 << 60;

/// A change of the index. Records made without a suspension between them belong together.
#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
pub enum IndexRecord<'a> {
    /// The newest entry of a key went to the memtable; the sequence number in it is the last one given out.
    Inserted {
        /// Which key.
        key: Key,
        /// Its entry.
        entry: Entry,
    },
    /// The memtable is full and is frozen, with this age; new entries go to an empty one.
    Frozen(u64),
    /// This id, and with it every lower one, has been given out.
    IdTaken(TableId),
    /// The list of tables has changed.
    TablesChanged {
        /// New and moved tables, with their levels.
        added: Cow<'a, [(TableId, u8)]>,
        /// Tables that were dropped or moved.
        dropped: Cow<'a, [TableId]>,
        /// The new tables contain the frozen memtable.
        flushed: bool,
    },
}

/// Where records go.
pub trait IndexJournal {
    /// Called at every change, before it becomes visible.
    fn record(&self, record: IndexRecord<'_>);
}

/// The index's part of the protected image.
#[derive(Clone, Debug, Default, PartialEq, BorshSerialize, BorshDeserialize)]
pub struct IndexImage {
    /// The memtable.
    pub active: BTreeMap<Key, Entry>,
    /// The memtable that is being written, and its age.
    pub frozen: Option<(u64, BTreeMap<Key, Entry>)>,
    /// Live tables and their levels.
    pub tables: BTreeMap<TableId, u8>,
    /// The lowest table id not given out.
    pub next_table: u32,
    /// The lowest sequence number not given out.
    pub next_sequence: u64,
}

impl IndexImage {
    /// Makes a recorded change.
    ///
    /// # Errors
    /// An insertion with a number that no drive reaches.
    pub fn apply(&mut self, record: IndexRecord<'_>) -> Result<(), &'static str> {
        match record {
            IndexRecord::Inserted { entry, .. } if !is_reached(&entry) => return Err(TOO_MANY),
            IndexRecord::Inserted { key, entry } => {
                self.next_sequence = entry.sequence + 1;
                self.active.insert(key, entry);
            }
            IndexRecord::Frozen(age) => self.frozen = Some((age, std::mem::take(&mut self.active))),
            IndexRecord::IdTaken(id) => self.next_table = id.0.saturating_add(1),
            IndexRecord::TablesChanged { added, dropped, flushed } => {
                for id in dropped.iter() {
                    self.tables.remove(id);
                }
                self.tables.extend(added.iter().copied());
                if flushed {
                    self.frozen = None;
                }
            }
        }
        Ok(())
    }

    /// Refuses an image that no index can have.
    ///
    /// # Errors
    /// What it says that cannot be.
    pub fn check(&self) -> Result<(), &'static str> {
        // A table that is yet to come must not get the id of one there is.
        let are_numbered = self.tables.last_key_value().is_none_or(|(id, _)| id.0 < self.next_table);
        if !are_numbered {
            return Err("the number of a table is out of range");
        }
        let are_reached = self.next_sequence < MOST_INSERTIONS && self.entries().all(is_reached);
        if are_reached { Ok(()) } else { Err(TOO_MANY) }
    }

    /// The keys of the memtables.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        let frozen = self.frozen.iter().flat_map(|(_, entries)| entries.keys());
        self.active.keys().chain(frozen)
    }

    /// The entries of the memtables.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        let frozen = self.frozen.iter().flat_map(|(_, entries)| entries.values());
        self.active.values().chain(frozen)
    }
}

const TOO_MANY: &str = "the sequence numbers of the index are out of range";

fn is_reached(entry: &Entry) -> bool {
    entry.sequence < MOST_INSERTIONS - 1
}

/// Why an index could not be built again.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// The image was made with more levels than the configuration has.
    #[error("table {} is on level {level}, but the compaction policy has {levels} levels", .id.0)]
    Level {
        /// The table.
        id: TableId,
        /// Its level in the image.
        level: u8,
        /// Levels there are.
        levels: usize,
    },
    /// Pages of live tables lie where the value log has its data.
    #[error("pages of a live table lie in a segment of the value log")]
    Overlap,
}

/// The table pages that the FTL came across while it rebuilt its map.
#[derive(Default)]
pub struct FoundTables {
    pages: BTreeMap<TableId, Vec<(PageTag, Lpa)>>,
    /// Pages with the right kind and a tag that makes no sense.
    unknown: Vec<Lpa>,
}

impl FoundTables {
    /// Takes note of a live page; `false` if it is not a table page.
    pub fn found(&mut self, lpa: Lpa, kind: u8, tag: &[u8; 48]) -> bool {
        if kind != TABLE_PAGE_KIND {
            return false;
        }
        match PageTag::decode(tag) {
            Some(tag) => self.pages.entry(tag.table).or_default().push((tag, lpa)),
            None => self.unknown.push(lpa),
        }
        true
    }

    /// The highest table id on flash, live or not.
    pub(super) fn highest_id(&self) -> Option<TableId> {
        self.pages.last_key_value().map(|(id, _)| *id)
    }

    /// Builds the tables of the image, claims their pages, and has the FTL forget the pages of all others.
    pub(super) fn rebuild(
        mut self,
        image: &IndexImage,
        space: &Rc<TableSpace>,
        lists: Lists,
        empty: Version,
    ) -> Result<Version, RecoverError> {
        let levels = empty.levels().len();
        let (mut tables, mut lost) = (Vec::new(), Vec::new());
        for (&id, &level) in &image.tables {
            if usize::from(level) >= levels {
                return Err(RecoverError::Level { id, level, levels });
            }
            let pages = self.pages.remove(&id).unwrap_or_default();
            if !space.claim(pages.iter().map(|(_, lpa)| *lpa)) {
                return Err(RecoverError::Overlap);
            }
            let level = usize::from(level);
            match facts_of(id, &pages, lists) {
                Some(facts) => tables.push((level, Rc::new(known_table(facts, &pages, space)))),
                // Without its footer the other pages are of no use. They stay: this table is never dropped.
                None => lost.push((level, lost_facts(id, &pages))),
            }
        }
        for (level, mut facts) in lost {
            if empty.levels()[level].is_partitioned() {
                end_before_next(&mut facts, tables.iter().filter(|(other, _)| *other == level));
            }
            tables.push((level, Rc::new(Table::new(facts, Box::default(), space.clone()))));
        }
        let dead = self.pages.into_values().flatten().map(|(_, lpa)| lpa).chain(self.unknown);
        dead.for_each(|lpa| space.ftl().trim(lpa));
        Ok(empty.changed(&[], tables.into_iter()))
    }
}

/// The facts of a table by its pages' tags; `None` if too many pages are lost to tell where a key would be.
fn facts_of(id: TableId, pages: &[(PageTag, Lpa)], lists: Lists) -> Option<TableFacts> {
    let tags = || pages.iter().map(|(tag, _)| tag);
    let footer = tags().find(|tag| tag.is_footer())?;
    let OfTable::Footer { entries, data_pages, index_pages, bloom_pages, longest } = footer.of_table else {
        return None;
    };
    if data_pages == 0 || index_pages == 0 {
        return None;
    }
    let age = tags().find_map(|tag| match tag.of_table {
        OfTable::Age(age) => Some(age),
        OfTable::Footer { .. } => None,
    })?;
    let first_of = |part, number| {
        tags()
            .find(|tag| tag.part == part && tag.number == number && !tag.is_footer())
            .and_then(|tag| tag.key)
    };
    // The first page of either part has the lowest key, unless it carries the footer.
    let min = first_of(Part::Data, 0).or_else(|| first_of(Part::Index, 0))?;
    let fences: Option<Rc<[Key]>> = match lists {
        Lists::Nothing => Some(Rc::from([])),
        Lists::IndexPages(covered) => (1..index_pages)
            .map(|number| first_of(Part::Index, number).or_else(|| first_of(Part::Data, number * covered)))
            .collect(),
        Lists::DataPages => Some(first_keys(data_pages, |number| first_of(Part::Data, number))),
    };
    let (max, addresses, fences) = (footer.key?, footer.addresses, fences?);
    Some(TableFacts {
        id,
        age,
        entries,
        min,
        max,
        addresses,
        data_pages,
        index_pages,
        bloom_pages,
        fences,
        longest,
    })
}

/// First keys of the pages after the first. A lost page gets the key of the page after it, or above the last page the
/// highest key: its own keys are then looked for on the page before, whose layout knows by the equal keys that more
/// pages may have them.
fn first_keys(pages: u32, first_of: impl Fn(u32) -> Option<Key>) -> Rc<[Key]> {
    let mut next = HIGHEST_KEY;
    let mut firsts: Vec<Key> = (1..pages)
        .rev()
        .map(|number| {
            next = first_of(number).unwrap_or(next);
            next
        })
        .collect();
    firsts.reverse();
    firsts.into()
}

/// Stands for a table whose footer is lost. Its lowest key is known if the first page of its data or index was
/// found; every higher key may be in it.
fn lost_facts(id: TableId, pages: &[(PageTag, Lpa)]) -> TableFacts {
    let is_first = |tag: &&PageTag| tag.part != Part::Bloom && tag.number == 0 && !tag.is_footer();
    let min = pages.iter().map(|(tag, _)| tag).find(is_first).and_then(|tag| tag.key);
    TableFacts {
        id,
        age: 0,
        entries: 0,
        min: min.unwrap_or(LOWEST_KEY),
        max: HIGHEST_KEY,
        addresses: AddressBounds::ALL,
        data_pages: 0,
        index_pages: 1,
        bloom_pages: 0,
        fences: Rc::from([]),
        // It is never written again.
        longest: KeyClass::default(),
    }
}

/// Narrows a lost table of a level whose tables share no key: it ends before the next one begins. Without its
/// own lowest key it could lie before or after any of `others`.
fn end_before_next<'a>(facts: &mut TableFacts, others: impl Iterator<Item = &'a (usize, Rc<Table>)>) {
    let above = others.map(|(_, table)| table.facts.min).filter(|min| *min > facts.min);
    if facts.min != LOWEST_KEY
        && let Some(max) = above.min().and_then(|next| next.predecessor())
    {
        facts.max = max;
    }
}

fn known_table(facts: TableFacts, pages: &[(PageTag, Lpa)], space: &Rc<TableSpace>) -> Table {
    let mut places = vec![None; facts.total_pages() as usize].into_boxed_slice();
    for (tag, lpa) in pages {
        if tag.number < facts.pages(tag.part) {
            places[facts.position(tag.part, tag.number)] = Some(*lpa);
        }
    }
    Table::new(facts, places, space.clone())
}
