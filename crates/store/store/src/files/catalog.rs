//! The catalog of files, and the records that change it.

use std::collections::BTreeMap;

use borsh::{BorshDeserialize, BorshSerialize};

use crate::space::Extent;

/// The number of a file, unique for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
pub struct FileId(pub u64);

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

/// A change of the catalog. The first byte of its encoding is the number of its kind.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Record {
    /// A new, empty file.
    Create { file: FileId, name: String } = 1,
    /// A file has grown, and may have been removed since. `extents` replace its runs of pages from number
    /// `from` on; `tail` are its last bytes, which do not fill a page.
    Grow { file: FileId, length: u64, from: u32, extents: Vec<Extent>, tail: Vec<u8> } = 2,
    /// A file was renamed.
    Rename { name: String, to: String } = 3,
    /// A file was removed.
    Remove { name: String } = 4,
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
                    if *from as usize > entry.extents.len() || tail.len() as u64 > *length {
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

#[cfg(test)]
mod tests {
    use kvdrive_record::trial::every_byte;

    use super::*;
    use crate::pages::PageId;

    #[test]
    fn every_byte_of_a_record_is_refused_or_is_another_record() {
        let (file, name) = (FileId(7), "name".to_owned());
        let extents = vec![Extent { first: PageId(8), pages: 9 }];
        every_byte(&Record::Create { file, name: name.clone() });
        every_byte(&Record::Grow { file, length: 10, from: 1, extents, tail: vec![2, 3] });
        every_byte(&Record::Rename { name: name.clone(), to: "another".to_owned() });
        every_byte(&Record::Remove { name });
    }
}
