//! The state of the index that survives a power cut, and how the rest is rebuilt.
//!
//! ```text
//!   protected image (DRAM with a capacitor)      memtables, ids and levels of the live tables, two counters
//!   spare areas of table pages (flash)           everything else about a table: which pages, which keys, how many
//! ```
//!
//! The index reports every change as an [`IndexRecord`]; an [`IndexImage`] that applies them stays equal to
//! the index. A table exists from the record that names it on, and in the same record its inputs (tables,
//! memtable) cease to. Pages of tables that no record names, half-written or replaced, are given back.

use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::Decoder;
use kvdrive_flash::ftl::Lpa;
use kvdrive_spec::Key;

use super::entry::{AddressBounds, Entry, TableId};
use super::layout::{Part, TableFacts};
use super::levels::Version;
use super::space::{TABLE_PAGE_KIND, TableSpace};
use super::table::{OfTable, PageTag, Table};
use crate::value_log::Vaddr;

/// The bounds of a table whose keys are not known.
pub(super) const LOWEST_KEY: Key = Key::from_padded([0; 16], 1).expect("one byte is a key");
/// See [`LOWEST_KEY`].
pub(super) const HIGHEST_KEY: Key = Key::from_padded([0xFF; 16], 16).expect("16 bytes are a key");

/// No drive sees so many insertions: numbers for those to come are left.
const MOST_INSERTIONS: u64 = 1 << 60;

/// A change of the index. Records made without a suspension between them belong together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IndexRecord<'a> {
    /// The newest entry of a key went to the memtable; the sequence number in it is the last one given out.
    Inserted {
        /// Which key.
        key: Key,
        /// Its entry.
        entry: Entry,
    },
    /// The memtable is full: its entries are to be written, new ones go to an empty one. From now on it has
    /// this age.
    Frozen(u64),
    /// This id, and with it every lower one, has been given out.
    IdTaken(TableId),
    /// Tables came, went and moved.
    TablesChanged {
        /// New tables and those that moved, with their levels.
        added: &'a [(TableId, u8)],
        /// Tables that are gone (those that moved, too).
        dropped: &'a [TableId],
        /// The frozen memtable is one of the new tables now.
        flushed: bool,
    },
}

/// Where records go.
pub trait IndexJournal {
    /// Called at every change, before it becomes visible.
    fn record(&self, record: IndexRecord<'_>);
}

/// The index's part of the protected image.
#[derive(Clone, Debug, Default, PartialEq)]
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
    pub fn apply(&mut self, record: &IndexRecord<'_>) {
        match *record {
            IndexRecord::Inserted { key, entry } => {
                self.next_sequence = entry.sequence.saturating_add(1);
                self.active.insert(key, entry);
            }
            IndexRecord::Frozen(age) => self.frozen = Some((age, std::mem::take(&mut self.active))),
            IndexRecord::IdTaken(id) => self.next_table = id.0.saturating_add(1),
            IndexRecord::TablesChanged { added, dropped, flushed } => {
                for id in dropped {
                    self.tables.remove(id);
                }
                self.tables.extend(added.iter().copied());
                if flushed {
                    self.frozen = None;
                }
            }
        }
    }

    /// The entries of the memtables.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        let frozen = self.frozen.iter().flat_map(|(_, entries)| entries.values());
        self.active.values().chain(frozen)
    }

    /// The image as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.next_table.to_le_bytes());
        out.extend_from_slice(&self.next_sequence.to_le_bytes());
        out.extend_from_slice(&(self.tables.len() as u32).to_le_bytes());
        for (id, level) in &self.tables {
            out.extend_from_slice(&id.0.to_le_bytes());
            out.push(*level);
        }
        encode_pairs(&self.active, &mut out);
        out.push(self.frozen.is_some().into());
        if let Some((age, pairs)) = &self.frozen {
            out.extend_from_slice(&age.to_le_bytes());
            encode_pairs(pairs, &mut out);
        }
        out
    }

    /// Reads what [`IndexImage::to_bytes`] wrote; `None` if that is not what the bytes are.
    pub fn from_bytes(bytes: &[u8]) -> Option<IndexImage> {
        let mut from = Decoder::new(bytes);
        let (next_table, next_sequence) = (from.u32()?, from.u64()?);
        let mut tables = BTreeMap::new();
        for _ in 0..from.u32()? {
            tables.insert(TableId(from.u32()?), from.u8()?);
        }
        let active = decode_pairs(&mut from)?;
        let frozen = match from.flag()? {
            false => None,
            true => Some((from.u64()?, decode_pairs(&mut from)?)),
        };
        // A table that is yet to come must not get the id of one there is.
        let are_numbered = tables.last_key_value().is_none_or(|(id, _)| id.0 < next_table);
        (from.is_at_end() && are_numbered && next_sequence < MOST_INSERTIONS).then_some(IndexImage {
            active,
            frozen,
            tables,
            next_table,
            next_sequence,
        })
    }
}

impl IndexRecord<'_> {
    /// Appends the record as bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            IndexRecord::Inserted { key, entry } => {
                out.push(INSERTED);
                encode_pair(&key, &entry, out);
            }
            IndexRecord::Frozen(age) => {
                out.push(FROZEN);
                out.extend_from_slice(&age.to_le_bytes());
            }
            IndexRecord::IdTaken(id) => {
                out.push(ID_TAKEN);
                out.extend_from_slice(&id.0.to_le_bytes());
            }
            IndexRecord::TablesChanged { added, dropped, flushed } => {
                out.push(TABLES_CHANGED);
                out.push(flushed.into());
                out.extend_from_slice(&(added.len() as u32).to_le_bytes());
                for (id, level) in added {
                    out.extend_from_slice(&id.0.to_le_bytes());
                    out.push(*level);
                }
                for id in dropped {
                    out.extend_from_slice(&id.0.to_le_bytes());
                }
            }
        }
    }
}

// First byte of an encoded record.
const INSERTED: u8 = 1;
const FROZEN: u8 = 2;
const ID_TAKEN: u8 = 3;
const TABLES_CHANGED: u8 = 4;

impl IndexImage {
    /// Makes the change that [`IndexRecord::encode`] wrote; `None`, and nothing changed, if the bytes are no
    /// record.
    pub fn apply_encoded(&mut self, bytes: &[u8]) -> Option<()> {
        let mut from = Decoder::new(bytes);
        let (mut added, mut dropped) = (Vec::new(), Vec::new());
        let record = match from.u8()? {
            INSERTED => {
                let (key, entry) = decode_pair(&mut from)?;
                IndexRecord::Inserted { key, entry }
            }
            FROZEN => IndexRecord::Frozen(from.u64()?),
            ID_TAKEN => IndexRecord::IdTaken(TableId(from.u32()?)),
            TABLES_CHANGED => {
                let flushed = from.flag()?;
                for _ in 0..from.u32()? {
                    added.push((TableId(from.u32()?), from.u8()?));
                }
                while !from.is_at_end() {
                    dropped.push(TableId(from.u32()?));
                }
                IndexRecord::TablesChanged { added: &added, dropped: &dropped, flushed }
            }
            _ => return None,
        };
        from.is_at_end().then(|| self.apply(&record))
    }
}

fn encode_pairs(pairs: &BTreeMap<Key, Entry>, out: &mut Vec<u8>) {
    out.extend_from_slice(&(pairs.len() as u32).to_le_bytes());
    for (key, entry) in pairs {
        encode_pair(key, entry, out);
    }
}

fn encode_pair(key: &Key, entry: &Entry, out: &mut Vec<u8>) {
    out.push(key.len() as u8);
    out.extend_from_slice(&key.to_array()[..key.len()]);
    out.push(entry.tombstone.into());
    out.extend_from_slice(&entry.address.0.to_le_bytes());
    out.extend_from_slice(&entry.bytes.to_le_bytes());
    out.extend_from_slice(&entry.sequence.to_le_bytes());
}

fn decode_pairs(from: &mut Decoder<'_>) -> Option<BTreeMap<Key, Entry>> {
    (0..from.u32()?).map(|_| decode_pair(from)).collect()
}

fn decode_pair(from: &mut Decoder<'_>) -> Option<(Key, Entry)> {
    let length = from.u8()?;
    let key = Key::new(from.take(length.into())?)?;
    let tombstone = from.flag()?;
    let (address, bytes, sequence) = (Vaddr(from.u64()?), from.u32()?, from.u64()?);
    (sequence < MOST_INSERTIONS - 1).then_some((key, Entry { address, bytes, sequence, tombstone }))
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
    /// `covered`: see [`super::layout::Layout::covered_by_index_page`].
    pub(super) fn rebuild(
        mut self,
        image: &IndexImage,
        space: &Rc<TableSpace>,
        covered: Option<u32>,
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
            match facts_of(id, &pages, covered) {
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
fn facts_of(id: TableId, pages: &[(PageTag, Lpa)], covered: Option<u32>) -> Option<TableFacts> {
    let tags = || pages.iter().map(|(tag, _)| tag);
    let footer = tags().find(|tag| tag.is_footer())?;
    let OfTable::Footer { entries, data_pages, index_pages, bloom_pages } = footer.of_table else {
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
    let fences: Option<Rc<[Key]>> = match covered {
        None => Some(Rc::from([])),
        Some(covered) => (1..index_pages)
            .map(|number| first_of(Part::Index, number).or_else(|| first_of(Part::Data, number * covered)))
            .collect(),
    };
    let (max, addresses, fences) = (footer.key?, footer.addresses, fences?);
    Some(TableFacts { id, age, entries, min, max, addresses, data_pages, index_pages, bloom_pages, fences })
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
