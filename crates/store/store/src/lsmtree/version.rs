//! The set of tables, and the manifest that records it.
//!
//! ```text
//!   slot    | frame, sequence = edition | bytes of the manifest, page after page |
//!
//!   bytes   total u32 | log pages u64 | epoch u64 | log from u64 | next table u64 | last sequence u64 |
//!           in tables u64 | tables u32 | table ...
//!   table   number u64 | level u8 | min | max | entries u64 | tombstones u64 | data pages u32 | meta bytes u32 |
//!           extents u32 | first u64, pages u32 | ...                       min, max: bytes u8, key 16 B
//! ```
//!
//! Edition `e` is written to slot `e mod 2`, after all its tables have become durable.

use std::rc::Rc;

use kvdrive_content::Decoder;
use kvdrive_nvme::Key;

use super::table::Table;
use crate::pages::PageId;
use crate::space::Extent;

/// Levels of tables.
pub const LEVELS: usize = 7;

/// The tables of every level: of level 0 oldest first, of the others by key.
#[derive(Clone, Default)]
pub struct Version {
    /// By level.
    pub levels: [Vec<Rc<Table>>; LEVELS],
}

impl Version {
    /// This version without some tables and with others.
    pub fn changed(&self, removed: &[u64], added: &[(usize, Rc<Table>)]) -> Version {
        let mut version = self.clone();
        for level in &mut version.levels {
            level.retain(|table| !removed.contains(&table.number));
        }
        for (level, table) in added {
            version.levels[*level].push(table.clone());
        }
        version.levels[0].sort_by_key(|table| table.number);
        version.levels[1..].iter_mut().for_each(|level| level.sort_by_key(|table| table.min));
        version
    }

    /// Tables that may have a key, newest first.
    pub fn candidates<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a Rc<Table>> {
        let newest = self.levels[0].iter().rev().filter(|table| table.covers(key));
        let deeper = self.levels[1..].iter().filter_map(|level| {
            let at = level.partition_point(|table| table.max < *key);
            level.get(at).filter(|table| table.covers(key))
        });
        newest.chain(deeper)
    }

    /// Tables of a level that share keys with a range.
    pub fn overlapping(&self, level: usize, min: &Key, max: &Key) -> Vec<Rc<Table>> {
        let shares = |table: &&Rc<Table>| table.min <= *max && *min <= table.max;
        self.levels[level].iter().filter(shares).cloned().collect()
    }

    /// Could a key be in a table below `level`?
    pub fn is_below(&self, level: usize, key: &Key) -> bool {
        self.levels[level + 1..].iter().any(|level| {
            let at = level.partition_point(|table| table.max < *key);
            level.get(at).is_some_and(|table| table.covers(key))
        })
    }

    /// Every table with its level.
    pub fn tables(&self) -> impl Iterator<Item = (usize, &Rc<Table>)> {
        self.levels.iter().enumerate().flat_map(|(at, level)| level.iter().map(move |table| (at, table)))
    }

    /// Bytes of the tables of a level.
    pub fn level_bytes(&self, level: usize, page_bytes: u32) -> u64 {
        self.levels[level].iter().map(|table| table.pages() * u64::from(page_bytes)).sum()
    }
}

/// The fields of a manifest besides its tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Pages of the log; with another number, tables would begin elsewhere.
    pub wal_pages: u64,
    /// The life of the log.
    pub epoch: u64,
    /// First position of the log with a record that is in no table.
    pub wal_from: u64,
    /// Number of the next table.
    pub next_table: u64,
    /// A sequence number that is not lower than any in a table.
    pub sequence: u64,
    /// Every record up to this sequence is in a table.
    pub in_tables: u64,
}

/// The bytes of a manifest.
pub fn manifest(header: &Header, version: &Version) -> Vec<u8> {
    let mut out = vec![0; 4];
    let Header { wal_pages, epoch, wal_from, next_table, sequence, in_tables } = *header;
    for word in [wal_pages, epoch, wal_from, next_table, sequence, in_tables] {
        out.extend(word.to_le_bytes());
    }
    out.extend((version.tables().count() as u32).to_le_bytes());
    for (level, table) in version.tables() {
        out.extend(table.number.to_le_bytes());
        out.push(level as u8);
        for key in [&table.min, &table.max] {
            out.push(key.len() as u8);
            out.extend(key.to_array());
        }
        out.extend(table.entries.to_le_bytes());
        out.extend(table.tombstones.to_le_bytes());
        out.extend(table.data_pages.to_le_bytes());
        out.extend(table.meta_bytes.to_le_bytes());
        out.extend((table.extents.len() as u32).to_le_bytes());
        for extent in &table.extents {
            out.extend(extent.first.0.to_le_bytes());
            out.extend(extent.pages.to_le_bytes());
        }
    }
    let total = out.len() as u32;
    out[..4].copy_from_slice(&total.to_le_bytes());
    out
}

/// Parses a manifest; `None` if it is malformed. The tables have no blocks and filters yet.
pub fn parse_manifest(bytes: &[u8]) -> Option<(Header, Vec<(usize, Table)>)> {
    let mut at = Decoder::new(bytes.get(4..)?);
    let (wal_pages, epoch, wal_from) = (at.u64()?, at.u64()?, at.u64()?);
    let (next_table, sequence, in_tables) = (at.u64()?, at.u64()?, at.u64()?);
    let header = Header { wal_pages, epoch, wal_from, next_table, sequence, in_tables };
    let count = at.u32()?;
    let mut tables = Vec::new();
    for _ in 0..count {
        let (number, level) = (at.u64()?, usize::from(at.u8()?));
        let (min, max) = (key(&mut at)?, key(&mut at)?);
        let (entries, tombstones, data_pages, meta_bytes) = (at.u64()?, at.u64()?, at.u32()?, at.u32()?);
        let mut extents = Vec::new();
        for _ in 0..at.u32()? {
            extents.push(Extent { first: PageId(at.u64()?), pages: at.u32()? });
        }
        if level >= LEVELS || min > max {
            return None;
        }
        let (blocks, filter) = (Vec::new(), Vec::new());
        tables.push((
            level,
            Table { number, min, max, entries, tombstones, data_pages, meta_bytes, extents, blocks, filter },
        ));
    }
    Some((header, tables))
}

fn key(from: &mut Decoder<'_>) -> Option<Key> {
    let len = from.u8()?;
    Key::from_padded(from.array()?, len.into())
}
