//! A table on flash: the facts about it in DRAM, the tags of its pages, and the two passes over it (write, read in
//! order).
//!
//! ```text
//!   tag, 48 bytes in the spare area of every page, little endian
//!    0..4   table id          4..7  page number within its part
//!    7      part (bits 0-1), footer (bit 2)
//!    8      key length (0: no key)      9..25  first key of the page; in the footer the table's highest key
//!   25..37  address bounds of the page's entries; in the footer the table's
//!   37..48  in the footer: entries u32, data pages u24, index pages u16, Bloom pages u16
//!           elsewhere: the table's age u64, 3 bytes zero
//! ```
//!
//! The footer is on the page that is issued last. The tags are enough to find a table again after a power cut: no page
//! of it has to be read ([`super::recovery`]).

mod in_dram;

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use kvdrive_flash::Purpose;
use kvdrive_flash::ftl::Lpa;
use kvdrive_flash::media::PageData;
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::{Resource, TaskCell};

use super::entry::{AddressBounds, Entry, TableId};
use super::layout::{Build, BuiltPage, KeyClass, Layout, PageBytes, Part, Scan, ScanStep, Start, TableFacts};
use super::memtable::Pair;
use super::space::{PagesUnderWay, TableSpace};

/// Pages of one part that a merge reads side by side.
pub const READ_AHEAD: u32 = 8;
/// Complete pages that a merge writes side by side.
const WRITE_BATCH: usize = 8;
const FOOTER: u8 = 0b100;
/// Above part and footer bit, in the footer: the class of the table's longest key; 0 in tables of earlier versions.
const LONGEST_SHIFT: u32 = 3;

/// Facts about the whole table in the tag of a page. A tag has room for one of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfTable {
    /// On every page but the last one.
    Age(u64),
    /// On the last page.
    Footer {
        /// Keys in the table.
        entries: u32,
        /// Pages of the data part.
        data_pages: u32,
        /// Pages of the index part.
        index_pages: u32,
        /// Pages of the Bloom part.
        bloom_pages: u32,
        /// Its longest key.
        longest: KeyClass,
    },
}

/// The tag of a table page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageTag {
    /// Whose page it is.
    pub table: TableId,
    /// Which part of the table.
    pub part: Part,
    /// Which page of the part.
    pub number: u32,
    /// The first key of the page; in the footer, the highest key of the table.
    pub key: Option<Key>,
    /// Bounds of the addresses in entries of the page; in the footer, in all entries.
    pub addresses: AddressBounds,
    /// About the table.
    pub of_table: OfTable,
}

impl PageTag {
    /// The 48 bytes.
    pub fn encode(&self) -> [u8; 48] {
        assert!(self.number < 1 << 24, "a part has less than 2^24 pages");
        let mut bytes = [0; 48];
        bytes[..4].copy_from_slice(&self.table.0.to_le_bytes());
        bytes[4..7].copy_from_slice(&self.number.to_le_bytes()[..3]);
        bytes[7] = self.part as u8 | if self.is_footer() { FOOTER } else { 0 };
        if let Some(key) = &self.key {
            bytes[8] = key.len() as u8;
            bytes[9..25].copy_from_slice(&key.to_array());
        }
        let mut bounds = [0; 12];
        self.addresses.encode(&mut bounds);
        bytes[25..37].copy_from_slice(&bounds);
        match self.of_table {
            OfTable::Age(age) => bytes[37..45].copy_from_slice(&age.to_le_bytes()),
            OfTable::Footer { entries, data_pages, index_pages, bloom_pages, longest } => {
                bytes[7] |= longest.number() << LONGEST_SHIFT;
                assert!(data_pages < 1 << 24 && index_pages < 1 << 16 && bloom_pages < 1 << 16);
                bytes[37..41].copy_from_slice(&entries.to_le_bytes());
                bytes[41..44].copy_from_slice(&data_pages.to_le_bytes()[..3]);
                bytes[44..46].copy_from_slice(&index_pages.to_le_bytes()[..2]);
                bytes[46..48].copy_from_slice(&bloom_pages.to_le_bytes()[..2]);
            }
        }
        bytes
    }

    /// Decodes a tag; `None` if no table page has such a tag.
    pub fn decode(bytes: &[u8; 48]) -> Option<PageTag> {
        let number = |range: std::ops::Range<usize>| {
            let mut wide = [0; 4];
            wide[..range.len()].copy_from_slice(&bytes[range]);
            u32::from_le_bytes(wide)
        };
        let part =
            [Part::Data, Part::Index, Part::Bloom].into_iter().find(|part| *part as u8 == bytes[7] & 0b11)?;
        let longest = KeyClass::new(bytes[7] >> LONGEST_SHIFT)?;
        if bytes[7] & FOOTER == 0 && longest != KeyClass::default() {
            return None;
        }
        let padded: [u8; 16] = std::array::from_fn(|byte| bytes[9 + byte]);
        let key = match bytes[8] {
            0 => None,
            length => Some(Key::from_padded(padded, length.into())?),
        };
        let of_table = if bytes[7] & FOOTER == 0 {
            OfTable::Age(u64::from_le_bytes(std::array::from_fn(|byte| bytes[37 + byte])))
        } else {
            OfTable::Footer {
                entries: number(37..41),
                data_pages: number(41..44),
                index_pages: number(44..46),
                bloom_pages: number(46..48),
                longest,
            }
        };
        let addresses = AddressBounds::decode(&std::array::from_fn(|byte| bytes[25 + byte]));
        Some(PageTag { table: TableId(number(0..4)), part, number: number(4..7), key, addresses, of_table })
    }

    /// Is it on the last page?
    pub fn is_footer(&self) -> bool {
        matches!(self.of_table, OfTable::Footer { .. })
    }
}

/// A table that exists. Each reader holds an `Rc`: a merge that replaced it frees its pages when the last
/// one goes.
pub struct Table {
    /// Its facts.
    pub facts: TableFacts,
    /// Its pages: data, index, Bloom. `None` for a page that was not found after a power cut.
    pages: Box<[Option<Lpa>]>,
    space: Rc<TableSpace>,
    /// Index pages that a lookup has read, as on the medium and unpacked. Later lookups still read the page from flash,
    /// with its time and faults, but need not unpack it again if it has not changed.
    unpacked: TaskCell<Vec<Option<(PageData, PageBytes)>>>,
    obsolete: Cell<bool>,
    damaged: Cell<bool>,
    /// Its level is pinned in DRAM.
    pinned: Cell<bool>,
    /// Its list is in DRAM.
    listed: Cell<bool>,
    list_bytes: u64,
    /// Pages that were just written and are to be pinned.
    written: TaskCell<Vec<(Part, u32, PageData)>>,
}

impl Table {
    /// A table on these pages, in the order data, index, Bloom. If a page of data or index is missing, the table counts
    /// as damaged.
    pub fn new(facts: TableFacts, pages: Box<[Option<Lpa>]>, space: Rc<TableSpace>) -> Table {
        let entries = pages.iter().take(facts.position(Part::Bloom, 0));
        let damaged = pages.is_empty() || entries.into_iter().any(Option::is_none);
        let (unpacked, obsolete) = (TaskCell::default(), Cell::new(false));
        let (pinned, listed, written) = (Cell::new(false), Cell::new(true), TaskCell::default());
        let list_bytes = in_dram::list_bytes(&facts);
        Table {
            facts,
            pages,
            space,
            unpacked,
            obsolete,
            damaged: Cell::new(damaged),
            pinned,
            listed,
            list_bytes,
            written,
        }
    }

    /// Nothing will find it any more.
    pub fn set_obsolete(&self) {
        self.obsolete.set(true);
        if let Some(dram) = self.space.dram() {
            dram.forget(self.name(Part::Data, 0), self.name(Part::Bloom, u32::MAX));
        }
    }

    /// Could some of its entries not be read? Such a table is never rewritten, so that its other entries remain
    /// readable.
    pub fn is_damaged(&self) -> bool {
        self.damaged.get()
    }

    /// Is its footer lost? Then none of its entries can be found, and any key between its bounds may be in it.
    pub fn is_lost(&self) -> bool {
        self.pages.is_empty()
    }

    /// Reads pages of one part side by side.
    pub fn read(
        &self,
        part: Part,
        numbers: std::ops::Range<u32>,
        purpose: Purpose,
    ) -> Result<Vec<PageBytes>, Status> {
        self.read_counted(part, numbers, purpose, &mut 0)
    }

    /// As [`Table::read`]; `reads` counts the pages that come from flash.
    pub fn read_counted(
        &self,
        part: Part,
        numbers: std::ops::Range<u32>,
        purpose: Purpose,
        reads: &mut u32,
    ) -> Result<Vec<PageBytes>, Status> {
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let from = self.facts.position(part, numbers.start);
        let pages = self.pages.get(from..from + numbers.len()).ok_or(Status::UNRECOVERED_ERROR)?;
        let Some(dram) = self.space.dram() else {
            *reads += pages.len() as u32;
            return self.note_damage(part, self.space.read_all(pages, purpose));
        };
        let held: Vec<_> = numbers.clone().map(|number| dram.find(&self.name(part, number))).collect();
        let missing: Vec<_> =
            pages.iter().zip(&held).filter(|(_, held)| held.is_none()).map(|(page, _)| *page).collect();
        *reads += missing.len() as u32;
        let mut read = self.note_damage(part, self.space.read_all(&missing, purpose))?.into_iter();
        let complete = numbers.zip(held).map(|(number, held)| {
            held.unwrap_or_else(|| {
                let page = read.next().expect("what is not held was read");
                if self.pinned.get() {
                    self.keep(dram, part, number, &page);
                }
                page
            })
        });
        Ok(complete.collect())
    }

    /// Reads one page for a lookup; `reads` counts it if it comes from flash.
    pub fn read_page(
        &self,
        part: Part,
        number: u32,
        purpose: Purpose,
        reads: &mut u32,
    ) -> Result<PageBytes, Status> {
        let page = self.pages.get(self.facts.position(part, number)).ok_or(Status::UNRECOVERED_ERROR)?;
        if let Some(dram) = self.space.dram() {
            if let Some(page) = dram.find(&self.name(part, number)) {
                return Ok(page);
            }
            *reads += 1;
            let data = self.note_damage(part, self.space.read(*page, purpose))?;
            let page = self.space.bytes_of(data);
            self.keep(dram, part, number, &page);
            return Ok(page);
        }
        *reads += 1;
        let data = self.note_damage(part, self.space.read(*page, purpose))?;
        Ok(if part == Part::Index { self.unpack(number, data) } else { self.space.bytes_of(data) })
    }

    fn unpack(&self, number: u32, data: PageData) -> PageBytes {
        let (mut unpacked, number) = (self.unpacked.borrow_mut(), number as usize);
        if unpacked.len() <= number {
            unpacked.resize(number + 1, None);
        }
        match &unpacked[number] {
            Some((before, bytes)) if before.is_same(&data) => bytes.clone(),
            _ => {
                let bytes = self.space.bytes_of(data.clone());
                unpacked[number] = Some((data, bytes.clone()));
                bytes
            }
        }
    }

    /// A table whose entries cannot be read is damaged. A merge does not need its filter.
    fn note_damage<T>(&self, part: Part, read: Result<T, Status>) -> Result<T, Status> {
        if part == Part::Bloom { read } else { read.map_err(|status| self.damage(status)) }
    }

    fn damage(&self, status: Status) -> Status {
        self.damaged.set(true);
        status
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.obsolete.get() {
            let pages: Vec<Lpa> = self.pages.iter().copied().flatten().collect();
            self.space.release(&pages);
        }
    }
}

/// The next item of a [`TableStream`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pull {
    /// More pairs, in key order.
    Pairs,
    /// A page has to be read first: [`TableStream::refill`].
    Blocked,
    /// That was all.
    End,
}

/// The entries of a table in key order. Reads nothing before it is asked for the first one.
pub struct TableStream {
    table: Rc<Table>,
    scan: Box<dyn Scan>,
    purpose: Purpose,
    ahead: u32,
    wanted: Option<(Part, u32)>,
    /// The key that its list has yet to be searched for.
    sought: Option<Key>,
    /// Pages read ahead, by part, in order.
    fetched: VecDeque<(Part, u32, PageBytes)>,
    /// The table is lost, and the stream has yet to report it: an end without an error would hide the loss of its keys.
    is_lost_untold: bool,
}

impl TableStream {
    /// Reads `table` from `start` on, `ahead` pages of a part at a time.
    pub fn new(
        layout: &dyn Layout,
        table: Rc<Table>,
        start: Start,
        ahead: u32,
        purpose: Purpose,
    ) -> TableStream {
        let sought = if let Start::Key(key) = &start { Some(*key) } else { None };
        let scan = layout.scan(&table.facts, start);
        let (is_lost_untold, fetched) = (table.is_lost(), VecDeque::new());
        TableStream { table, scan, purpose, ahead, wanted: None, sought, fetched, is_lost_untold }
    }

    /// Appends some of the next pairs to `out`, if no page has to be read for them.
    ///
    /// `UNRECOVERED_ERROR` when a page cannot be decoded or the whole table is lost; [`TableStream::skip`] continues
    /// after it.
    pub fn pull(&mut self, out: &mut Vec<Pair>) -> Result<Pull, Status> {
        if self.is_lost_untold {
            return Err(Status::UNRECOVERED_ERROR);
        }
        loop {
            let step = self.scan.step(out).map_err(|damaged| self.table.damage(damaged.into()))?;
            match step {
                ScanStep::Entries => return Ok(Pull::Pairs),
                ScanStep::End => return Ok(Pull::End),
                ScanStep::Read(part, number) => {
                    let found = self.fetched.iter().position(|page| (page.0, page.1) == (part, number));
                    match found.and_then(|index| self.fetched.remove(index)) {
                        Some((_, _, page)) => self.scan.give(page),
                        None => {
                            self.wanted = Some((part, number));
                            return Ok(Pull::Blocked);
                        }
                    }
                }
            }
        }
    }

    /// Reads the page that is missing and those after it.
    pub fn refill(&mut self) -> Result<(), Status> {
        if let Some(key) = self.sought.take() {
            self.table.search_list(&key, self.purpose, &mut 0)?;
        }
        let Some((part, number)) = self.wanted.take() else { return Ok(()) };
        let end = self.table.facts.pages(part).min(number + self.ahead);
        if number >= end {
            return Err(self.table.damage(Status::UNRECOVERED_ERROR));
        }
        let pages = self.table.read(part, number..end, self.purpose)?;
        let mut pages = (number..).zip(pages);
        if let Some((_, page)) = pages.next() {
            self.scan.give(page);
        }
        self.fetched.extend(pages.map(|(number, page)| (part, number, page)));
        Ok(())
    }

    /// The page that is missing cannot be read: the scan continues after it ([`Scan::skip`]), and after the end of a
    /// table that is lost.
    pub fn skip(&mut self) {
        self.wanted = None;
        if !std::mem::take(&mut self.is_lost_untold) {
            self.scan.skip();
        }
    }

    /// The table being read.
    pub fn table(&self) -> &Rc<Table> {
        &self.table
    }
}

/// Writes a table, page by page, as its entries come. Dropped before the end, it gives its pages back.
pub struct TableWriter {
    builder: Box<dyn Build>,
    output: Output,
    entries: u32,
    /// Pages that the builder has complete.
    complete: usize,
    core: Rc<Resource>,
    entry_ns: u64,
    charged: u32,
}

/// The pages of a table under way.
struct Output {
    id: TableId,
    age: u64,
    pages: PagesUnderWay,
    written: Vec<(Part, u32, Lpa)>,
    /// The pages themselves, if they are to be pinned.
    kept: Option<Vec<(Part, u32, PageData)>>,
    purpose: Purpose,
}

impl TableWriter {
    /// Begins table `id` of at most `most_entries` entries; each costs `entry_ns` of `core`'s time.
    pub fn new(
        (id, age): (TableId, u64),
        layout: &dyn Layout,
        most_entries: u32,
        space: &Rc<TableSpace>,
        purpose: Purpose,
        core: &Rc<Resource>,
        entry_ns: u64,
    ) -> TableWriter {
        let pages = PagesUnderWay::new(space.clone());
        let output = Output { id, age, pages, written: Vec::new(), kept: None, purpose };
        TableWriter {
            builder: layout.build(most_entries),
            output,
            entries: 0,
            complete: 0,
            core: core.clone(),
            entry_ns,
            charged: 0,
        }
    }

    /// Keeps the pages that it writes, to pin them.
    pub fn keep_pages(&mut self) {
        self.output.kept = Some(Vec::new());
    }

    /// Adds an entry; keys ascend.
    #[inline]
    pub fn push(&mut self, key: &Key, entry: &Entry) {
        self.complete = self.builder.push(key, entry);
        self.entries += 1;
    }

    /// Entries so far.
    #[inline]
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Are there enough complete pages to write?
    #[inline]
    pub fn wants_write(&self) -> bool {
        self.complete >= WRITE_BATCH
    }

    /// Writes the complete pages. `CAPACITY_EXCEEDED` when there is no room; the writer is to be dropped
    /// then.
    pub fn write_complete(&mut self) -> Result<(), Status> {
        self.charge();
        let pages = std::mem::take(self.builder.complete());
        self.complete = 0;
        self.output.write(pages, None)
    }

    /// Writes the rest. The table exists from now on, but the index does not know of it yet.
    pub fn finish(mut self) -> Result<Table, Status> {
        self.charge();
        let TableWriter { builder, mut output, .. } = self;
        let mut pages = Vec::new();
        let facts = builder.finish(output.id, output.age, &mut pages);
        output.write(pages, Some(&facts))?;
        output.written.sort_unstable();
        let pages = output.written.iter().map(|(_, _, lpa)| Some(*lpa)).collect();
        let space = output.pages.keep();
        let table = Table::new(facts, pages, space);
        *table.written.borrow_mut() = output.kept.unwrap_or_default();
        Ok(table)
    }

    /// Pages written so far.
    pub fn pages_written(&self) -> u32 {
        self.output.written.len() as u32
    }

    /// Takes the firmware time of the entries that have not been charged yet.
    pub fn charge(&mut self) {
        let span = u64::from(self.entries - self.charged) * self.entry_ns;
        self.charged = self.entries;
        self.core.run_noted(span, "index", "write entries of a table");
    }
}

impl Output {
    /// Writes pages with their tags; with `end`, the last one gets the footer.
    fn write(&mut self, pages: Vec<BuiltPage>, end: Option<&TableFacts>) -> Result<(), Status> {
        let count = pages.len();
        let mut contents = Vec::with_capacity(count);
        let mut names = Vec::with_capacity(count);
        for (index, page) in pages.into_iter().enumerate() {
            let facts = end.filter(|_| index + 1 == count);
            let tag = PageTag {
                table: self.id,
                part: page.part,
                number: page.number,
                key: facts.map_or(page.first, |facts| Some(facts.max)),
                addresses: facts.map_or(page.addresses, |facts| facts.addresses),
                of_table: facts.map_or(OfTable::Age(self.age), |facts| OfTable::Footer {
                    entries: facts.entries,
                    data_pages: facts.data_pages,
                    index_pages: facts.index_pages,
                    bloom_pages: facts.bloom_pages,
                    longest: facts.longest,
                }),
            };
            if let Some(kept) = self.kept.as_mut().filter(|_| !page.is_blank) {
                kept.push((page.part, page.number, page.data.clone()));
            }
            names.push((page.part, page.number));
            contents.push((page.data, tag.encode()));
        }
        let places = self.pages.write(contents, self.purpose)?;
        self.written.extend(names.into_iter().zip(places).map(|((part, number), lpa)| (part, number, *lpa)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_come_back_and_other_bytes_are_refused() {
        let footer = OfTable::Footer {
            entries: 1 << 30,
            data_pages: 77,
            index_pages: 3,
            bloom_pages: 0,
            longest: KeyClass::LONGEST,
        };
        let key = Key::new(b"sixteen bytes...");
        let addresses = AddressBounds { low: 5, high: 1 << 47 };
        for of_table in [OfTable::Age(1 << 50), footer] {
            let tag =
                PageTag { table: TableId(9), part: Part::Index, number: 70_000, key, addresses, of_table };
            assert_eq!(PageTag::decode(&tag.encode()), Some(tag));
        }
        assert_eq!(PageTag::decode(&[0xFF; 48]), None);
        let mut bytes = [0; 48];
        bytes[7] = 1 << LONGEST_SHIFT;
        assert_eq!(PageTag::decode(&bytes), None, "only a footer has the longest key");
        bytes[7] = FOOTER | KeyClass::COUNT << LONGEST_SHIFT;
        assert_eq!(PageTag::decode(&bytes), None, "a key has at most 255 bytes");
    }
}
