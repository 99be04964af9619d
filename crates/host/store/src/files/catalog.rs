//! The catalog of files, and the records that change it.
//!
//! ```text
//!   record   kind u8 | ...                                  numbers are little endian, text is bytes u32 and those
//!   create   1 | file u64 | name                            an empty file; one that had the name loses it
//!   grow     2 | file u64 | length u64 | from u32 | extents u32 | extents x (first u64, pages u32) | tail
//!   rename   3 | name | new name                            a file that had the new name loses it
//!   remove   4 | name
//! ```
//!
//! *Grow*: the runs of pages from number `from` on are replaced by these, the file has this length, and its
//! last bytes, which do not fill a page, are the tail.

use std::collections::BTreeMap;

use kvdrive_content::Decoder;

use super::FileId;
use crate::pages::PageId;
use crate::space::Extent;

/// A file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Its pages, all of them full except perhaps the last.
    pub extents: Vec<Extent>,
    /// Its length in bytes, including the tail.
    pub length: u64,
    /// Its last bytes, if they are not on its pages.
    pub tail: Vec<u8>,
}

impl Entry {
    /// Bytes that are on pages.
    pub fn on_pages(&self) -> u64 {
        self.length - self.tail.len() as u64
    }

    /// Pages `from..to` of it, as runs.
    pub fn runs(&self, from: u64, to: u64) -> Vec<Extent> {
        let (mut runs, mut begin) = (Vec::new(), 0);
        for extent in &self.extents {
            let end = begin + u64::from(extent.pages);
            let (low, high) = (from.max(begin), to.min(end));
            if low < high {
                runs.push(Extent { first: extent.first.plus(low - begin), pages: (high - low) as u32 });
            }
            begin = end;
        }
        runs
    }

    /// Removes the pages after the first `pages`.
    pub fn cut(&mut self, pages: u64) -> Vec<Extent> {
        let all = self.extents.iter().map(|extent| u64::from(extent.pages)).sum();
        let spare = self.runs(pages, all);
        self.extents = self.runs(0, pages);
        spare
    }
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A new, empty file.
    Create { file: FileId, name: String },
    /// A file has grown. It may have been removed since.
    Grow { file: FileId, length: u64, from: u32, extents: Vec<Extent>, tail: Vec<u8> },
    /// A file was renamed.
    Rename { name: String, to: String },
    /// A file was removed.
    Remove { name: String },
}

/// The catalog of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    /// Files by name.
    pub names: BTreeMap<String, FileId>,
    /// Their pages and lengths.
    pub entries: BTreeMap<FileId, Entry>,
}

impl Catalog {
    /// Applies a change; returns the file that has lost its name by it. `None`: the change is impossible.
    pub fn apply(&mut self, record: &Record) -> Option<Option<(FileId, Entry)>> {
        match record {
            Record::Create { file, name } => {
                self.entries.insert(*file, Entry::default());
                let before = self.names.insert(name.clone(), *file);
                Some(before.and_then(|before| self.take(before)))
            }
            Record::Grow { file, length, from, extents, tail } => {
                if let Some(entry) = self.entries.get_mut(file) {
                    if *from as usize > entry.extents.len() {
                        return None;
                    }
                    entry.extents.truncate(*from as usize);
                    entry.extents.extend(extents);
                    (entry.length, entry.tail) = (*length, tail.clone());
                }
                Some(None)
            }
            Record::Rename { name, to } => {
                let file = self.names.remove(name)?;
                let before = self.names.insert(to.clone(), file);
                Some(before.filter(|before| *before != file).and_then(|before| self.take(before)))
            }
            Record::Remove { name } => {
                let file = self.names.remove(name)?;
                Some(self.take(file))
            }
        }
    }

    fn take(&mut self, file: FileId) -> Option<(FileId, Entry)> {
        self.entries.remove(&file).map(|entry| (file, entry))
    }

    /// Records that rebuild this catalog from an empty one.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        self.names.iter().flat_map(|(name, file)| {
            let Entry { extents, length, tail } = self.entries[file].clone();
            let create = Record::Create { file: *file, name: name.clone() };
            [create, Record::Grow { file: *file, length, from: 0, extents, tail }]
        })
    }
}

impl Record {
    /// Encodes the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let counted = |out: &mut Vec<u8>, bytes: &[u8]| {
            out.extend((bytes.len() as u32).to_le_bytes());
            out.extend(bytes);
        };
        match self {
            Record::Create { file, name } => {
                out.push(1);
                out.extend(file.0.to_le_bytes());
                counted(out, name.as_bytes());
            }
            Record::Grow { file, length, from, extents, tail } => {
                out.push(2);
                out.extend(file.0.to_le_bytes());
                out.extend(length.to_le_bytes());
                out.extend(from.to_le_bytes());
                out.extend((extents.len() as u32).to_le_bytes());
                for extent in extents {
                    out.extend(extent.first.0.to_le_bytes());
                    out.extend(extent.pages.to_le_bytes());
                }
                counted(out, tail);
            }
            Record::Rename { name, to } => {
                out.push(3);
                counted(out, name.as_bytes());
                counted(out, to.as_bytes());
            }
            Record::Remove { name } => {
                out.push(4);
                counted(out, name.as_bytes());
            }
        }
    }

    /// Decodes a record; `None` if the bytes are invalid.
    pub fn decode(from: &mut Decoder<'_>) -> Option<Record> {
        let name = |from: &mut Decoder<'_>| String::from_utf8(from.counted()?.to_vec()).ok();
        Some(match from.u8()? {
            1 => Record::Create { file: FileId(from.u64()?), name: name(from)? },
            2 => {
                let (file, length, first) = (FileId(from.u64()?), from.u64()?, from.u32()?);
                let mut extents = Vec::new();
                for _ in 0..from.u32()? {
                    extents.push(Extent { first: PageId(from.u64()?), pages: from.u32()? });
                }
                let tail = from.counted()?.to_vec();
                if tail.len() as u64 > length {
                    return None;
                }
                Record::Grow { file, length, from: first, extents, tail }
            }
            3 => Record::Rename { name: name(from)?, to: name(from)? },
            4 => Record::Remove { name: name(from)? },
            _ => return None,
        })
    }
}
