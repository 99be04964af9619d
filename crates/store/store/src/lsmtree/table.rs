//! Tables: sorted runs of pairs on pages, written once.
//!
//! ```text
//!   | data page 0 | data page 1 | ... | meta page 0 | ... |
//!
//!   data   | frame, sequence = table | records ([`crate::records`]) in the order of keys, tombstones included |
//!   meta   | frame, sequence = table | bytes of: blocks u32, per block key bytes u8, key 16 B, page u32; filter |
//!
//!   key bytes: bits 0 to 4; bit 7: its page begins with the rest of the block before
//! ```
//!
//! A block begins with the first record that begins on a page. Values continue from page to page, so a block
//! consists of the pages up to the next block's first page, and includes that page if a value continues
//! there. The pages of a table are runs of free pages; block index and filter are kept in memory as long as
//! the table is in use.

use std::collections::VecDeque;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::Key;

use super::bloom;
use super::memtable::Pair;
use crate::cpu::Thread;
use crate::frame::{self, FRAME_BYTES, Facts, Kind};
use crate::pages::{Page, PageId, PageStore, Purpose};
use crate::records::{Flags, Format, OpenPage, Record, records};
use crate::space::Extent;
use crate::store::StoreError;
use crate::value::{Part, StoredValue, Value};

/// Pages read at a time when a whole table is read.
const READ_AHEAD: u32 = 32;

/// The pages that are read to find a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its first key.
    pub first: Key,
    /// The page on which its first record begins.
    pub page: u32,
    /// That page begins with the end of the block before.
    pub is_shared: bool,
}

/// The blocks of a table in the order of keys.
pub type Blocks = Vec<Block>;

/// A table.
#[derive(Debug)]
pub struct Table {
    /// Its number; a table that was begun later has a higher one.
    pub number: u64,
    /// Lowest key.
    pub min: Key,
    /// Highest key.
    pub max: Key,
    /// Records in it.
    pub entries: u64,
    /// Records of deleted keys.
    pub tombstones: u64,
    /// Data pages.
    pub data_pages: u32,
    /// Bytes in meta pages.
    pub meta_bytes: u32,
    /// Its pages.
    pub extents: Vec<Extent>,
    /// Its blocks.
    pub blocks: Blocks,
    /// The filter: keys that it may have.
    pub filter: Vec<u8>,
}

impl Table {
    /// Pages of all kinds.
    pub fn pages(&self) -> u64 {
        self.extents.iter().map(|extent| u64::from(extent.pages)).sum()
    }

    /// Does it have more tombstones than values? Then the pairs that it deletes take more room than its own pairs,
    /// until they are merged.
    pub fn mostly_deletes(&self) -> bool {
        self.tombstones * 2 > self.entries
    }

    /// Is the key within its bounds?
    pub fn covers(&self, key: &Key) -> bool {
        self.min <= *key && *key <= self.max
    }

    /// Memory of blocks and filter, bytes.
    pub fn memory_bytes(&self) -> u64 {
        (self.blocks.len() * size_of::<Block>() + self.filter.len()) as u64
    }

    /// The pages of the block that may have `key`: the first one, and the one after the last.
    pub fn block_for(&self, key: &Key) -> Option<(u32, u32)> {
        let index = self.blocks.partition_point(|block| block.first <= *key).checked_sub(1)?;
        let end =
            self.blocks.get(index + 1).map_or(self.data_pages, |next| next.page + u32::from(next.is_shared));
        Some((self.blocks[index].page, end))
    }
}

/// Reads pages `from..to` of a table, in whichever runs they are, with their numbers.
pub fn read_pages(
    pages: &Rc<dyn PageStore>,
    thread: Thread,
    extents: &[Extent],
    (from, to): (u32, u32),
    why: Purpose,
) -> Result<Vec<(PageId, Page)>, StoreError> {
    let mut found = Vec::with_capacity((to - from) as usize);
    let mut begin = 0;
    for extent in extents {
        let (low, high) = (from.max(begin), to.min(begin + extent.pages));
        if low < high {
            let first = extent.first.plus((low - begin).into());
            let mut out = Vec::with_capacity((high - low) as usize);
            pages.read(thread, first, high - low, why, &mut out)?;
            found.extend((first.0..).map(PageId).zip(out));
        }
        begin += extent.pages;
    }
    Ok(found)
}

/// Assembles the records of consecutive data pages.
#[derive(Default)]
struct Joining {
    pending: Option<(Record, Vec<Part>)>,
}

impl Joining {
    /// Takes the records of a page; passes complete ones on.
    fn page(
        &mut self,
        format: &Format,
        number: u64,
        (id, page): (PageId, &Page),
        mut out: impl FnMut(Pair),
    ) -> Result<(), StoreError> {
        let facts = open_data(format, number, id, page)?;
        let mut on_page = records(format, page, id, facts);
        while let Some(record) = on_page.next()? {
            if record.flags.has(Flags::CONTINUES) {
                // A part without its beginning belongs to the block before.
                let Some((first, parts)) = &mut self.pending else { continue };
                parts.push(record.part(page));
                let have: u32 = parts.iter().map(|part| part.bytes).sum();
                if have > first.value_bytes {
                    let what = "has more bytes of a value than its length".into();
                    return Err(StoreError::Damaged { page: id, what });
                }
            } else {
                self.pending = Some((record, vec![record.part(page)]));
            }
            if record.is_ended()
                && let Some((first, parts)) = self.pending.take()
            {
                let key = first.key.expect("a record begins with its key");
                let is_there = !first.flags.has(Flags::TOMBSTONE);
                out((key, is_there.then(|| StoredValue::of_parts(parts))));
            }
        }
        Ok(())
    }
}

/// The block that begins with the first record that begins on this data page; `None`: a value from an earlier
/// page fills the page.
pub fn block_on(
    format: &Format,
    table: &Table,
    number: u32,
    (id, page): (PageId, &Page),
) -> Result<Option<Block>, StoreError> {
    let facts = open_data(format, table.number, id, page)?;
    let (mut on_page, mut is_shared) = (records(format, page, id, facts), false);
    while let Some(record) = on_page.next()? {
        match record.key {
            Some(first) => return Ok(Some(Block { first, page: number, is_shared })),
            None => is_shared = true,
        }
    }
    Ok(None)
}

fn open_data(format: &Format, number: u64, id: PageId, page: &Page) -> Result<Facts, StoreError> {
    let facts = frame::expect(page, id, format.page_bytes, Kind::Table)?;
    // A record's sequence is its table's number.
    if facts.sequence != number {
        let what = format!("is of table {} and not of {number}", facts.sequence);
        return Err(StoreError::Damaged { page: id, what });
    }
    Ok(facts)
}

/// The format of data pages.
pub fn data_format(page_bytes: u32) -> Format {
    Format::new(page_bytes, 0, Kind::Table)
}

/// Finds a key among the pages of a block.
pub fn find_in_block(
    format: &Format,
    table: &Table,
    pages: &[(PageId, Page)],
    key: &Key,
) -> Result<Option<Option<StoredValue>>, StoreError> {
    let mut found: Option<(Flags, Vec<Part>)> = None;
    for (id, page) in pages {
        let facts = open_data(format, table.number, *id, page)?;
        let mut on_page = records(format, page, *id, facts);
        while let Some(record) = on_page.next()? {
            match (&mut found, record.key) {
                (Some((_, parts)), None) => parts.push(record.part(page)),
                (None, Some(other)) if other == *key => {
                    found = Some((record.flags, vec![record.part(page)]));
                }
                (None, Some(other)) if other > *key => return Ok(None),
                _ => continue,
            }
            if record.is_ended()
                && let Some((flags, parts)) = found.take()
            {
                let is_there = !flags.has(Flags::TOMBSTONE);
                return Ok(Some(is_there.then(|| StoredValue::of_parts(parts))));
            }
        }
    }
    Ok(None)
}

/// A sequential read of a table.
pub struct TableStream {
    /// The table.
    pub table: Rc<Table>,
    next_page: u32,
    joining: Joining,
    /// Pairs that have been read and not taken.
    pub ready: VecDeque<Pair>,
    from: Option<Key>,
}

impl TableStream {
    /// A stream from the first pair at or after `from`.
    pub fn new(table: Rc<Table>, from: Option<Key>) -> TableStream {
        let begin = from.and_then(|from| table.block_for(&from)).map_or(0, |(begin, _)| begin);
        TableStream { table, next_page: begin, joining: Joining::default(), ready: VecDeque::new(), from }
    }

    /// Reads until there is a pair, or the table has ended. Returns how many pairs were read.
    pub fn fill(
        &mut self,
        pages: &Rc<dyn PageStore>,
        thread: Thread,
        why: Purpose,
        most: u32,
    ) -> Result<u64, StoreError> {
        let format = data_format(pages.page_bytes());
        let mut count = 0;
        while self.ready.is_empty() && self.next_page < self.table.data_pages {
            let end = (self.next_page + most.min(READ_AHEAD)).min(self.table.data_pages);
            let read = read_pages(pages, thread, &self.table.extents, (self.next_page, end), why)?;
            self.next_page = end;
            for (id, page) in &read {
                let (ready, from) = (&mut self.ready, self.from);
                self.joining.page(&format, self.table.number, (*id, page), |pair| {
                    count += 1;
                    if from.is_none_or(|from| pair.0 >= from) {
                        ready.push_back(pair);
                    }
                })?;
            }
        }
        Ok(count)
    }
}

/// A table that is being written.
pub struct TableWriter {
    format: Format,
    number: u64,
    block_pages: u32,
    bloom_bits: u32,
    /// Its pages.
    pub extents: Vec<Extent>,
    /// Pages begun.
    begun: u32,
    open: Option<OpenPage>,
    /// A record begins on the open page.
    has_begun: bool,
    spare: Region,
    /// Pages to be written.
    pub closed: Vec<(PageId, Page)>,
    blocks: Blocks,
    hashes: Vec<u64>,
    bounds: Option<(Key, Key)>,
    entries: u64,
    tombstones: u64,
}

impl TableWriter {
    /// An empty table.
    pub fn new(page_bytes: u32, number: u64, block_size: u32, bloom_bits: u32) -> TableWriter {
        TableWriter {
            format: data_format(page_bytes),
            number,
            block_pages: block_size.div_ceil(page_bytes),
            bloom_bits,
            extents: Vec::new(),
            begun: 0,
            open: None,
            has_begun: false,
            spare: Region::new(),
            closed: Vec::new(),
            blocks: Vec::new(),
            hashes: Vec::new(),
            bounds: None,
            entries: 0,
            tombstones: 0,
        }
    }

    /// Bytes of its pages so far.
    pub fn bytes(&self) -> u64 {
        u64::from(self.begun) * u64::from(self.format.page_bytes)
    }

    /// Pages that it still needs for one more record and to be finished after that; the caller provides them
    /// before either.
    pub fn missing_pages(&self, key: &Key, value_bytes: u32) -> u32 {
        let room = self.open.as_ref().map_or(0, OpenPage::room);
        let fit = self.format.fit(room, key, value_bytes);
        let blocks = self.blocks.len() as u32 + 1;
        let filter = (self.hashes.len() as u64 + 1) * u64::from(self.bloom_bits) / 8 + 1;
        let meta = meta_pages(self.format.page_bytes, 4 + blocks * BLOCK_BYTES + filter as u32);
        let have: u32 = self.extents.iter().map(|extent| extent.pages).sum();
        (self.begun + fit.new_pages + meta).saturating_sub(have)
    }

    /// Adds pages.
    pub fn give_room(&mut self, extents: Vec<Extent>) {
        for extent in extents {
            match self.extents.last_mut() {
                Some(last) if last.end() == extent.first.0 => last.pages += extent.pages,
                _ => self.extents.push(extent),
            }
        }
    }

    fn page_id(&self, index: u32) -> PageId {
        let mut left = index;
        for extent in &self.extents {
            if left < extent.pages {
                return extent.first.plus(left.into());
            }
            left -= extent.pages;
        }
        unreachable!("pages are there before they are begun")
    }

    fn next_page(&mut self) {
        self.close_page();
        let id = self.page_id(self.begun);
        self.begun += 1;
        self.has_begun = false;
        self.open = Some(OpenPage::new(self.format, id, std::mem::take(&mut self.spare)));
    }

    fn close_page(&mut self) {
        if let Some(open) = self.open.take() {
            let id = open.page;
            let (page, spare) = open.close(&[]);
            self.spare = spare;
            self.closed.push((id, page));
        }
    }

    /// Adds a pair; keys must ascend.
    pub fn add(&mut self, key: &Key, value: Option<&StoredValue>) {
        self.tombstones += u64::from(value.is_none());
        let (empty, flags) = (StoredValue::Bytes(Rc::new([])), Flags::TOMBSTONE);
        let (value, flags) = value.map_or((&empty, flags), |value| (value, Flags::NONE));
        let lent = Value::Stored(value);
        let room = self.open.as_ref().map_or(0, OpenPage::room);
        if room < crate::records::head_bytes(key) + lent.bytes().min(1) {
            self.next_page();
        }
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let page = self.begun - 1;
        if is_first && self.blocks.last().is_none_or(|last| page - last.page >= self.block_pages) {
            let is_shared = self.open.as_ref().is_some_and(|open| open.count() > 0);
            self.blocks.push(Block { first: *key, page, is_shared });
        }
        let open = self.open.as_mut().expect("a page was begun");
        let mut done = open.begin_record(key, &lent, self.number, flags);
        while done < lent.bytes() {
            self.next_page();
            let open = self.open.as_mut().expect("a page was begun");
            done += open.continue_record(&lent, done, self.number);
        }
        if self.bloom_bits > 0 {
            self.hashes.push(bloom::hash_of(key));
        }
        self.bounds = Some((self.bounds.map_or(*key, |(min, _)| min), *key));
        self.entries += 1;
    }

    /// The table, with its last pages in `closed`; also returns the pages that it does not need.
    pub fn finish(&mut self) -> (Table, Vec<Extent>) {
        self.close_page();
        let filter = bloom::build(&self.hashes, self.bloom_bits);
        let mut meta = (self.blocks.len() as u32).to_le_bytes().to_vec();
        for Block { first, page, is_shared } in &self.blocks {
            let long = if first.len() as u8 & SHARED == 0 { 0 } else { LONG };
            meta.push(first.len() as u8 & !SHARED | if *is_shared { SHARED } else { 0 });
            meta.extend(first.to_array());
            meta.extend((page | long).to_le_bytes());
        }
        meta.extend(&filter);
        let data_pages = self.begun;
        let page_bytes = self.format.page_bytes;
        for chunk in meta.chunks((page_bytes - FRAME_BYTES) as usize) {
            let id = self.page_id(self.begun);
            self.begun += 1;
            self.closed.push((id, bytes_page(page_bytes, id, Kind::TableMeta, self.number, chunk)));
        }
        let spare = self.cut_extents();
        let (min, max) = self.bounds.expect("a table has a pair");
        let table = Table {
            number: self.number,
            min,
            max,
            entries: self.entries,
            tombstones: self.tombstones,
            data_pages,
            meta_bytes: meta.len() as u32,
            extents: std::mem::take(&mut self.extents),
            blocks: std::mem::take(&mut self.blocks),
            filter,
        };
        (table, spare)
    }

    /// Cuts the extents after the pages that were begun; returns the others.
    fn cut_extents(&mut self) -> Vec<Extent> {
        let (mut left, mut spare) = (self.begun, Vec::new());
        self.extents.retain_mut(|extent| {
            let kept = extent.pages.min(left);
            left -= kept;
            if kept < extent.pages {
                spare.push(Extent { first: extent.first.plus(kept.into()), pages: extent.pages - kept });
            }
            extent.pages = kept;
            kept > 0
        });
        spare
    }
}

const BLOCK_BYTES: u32 = 1 + 16 + 4;
/// Flag beside the key's length: the block's page begins with the end of the block before.
const SHARED: u8 = 1 << 7;
/// Bit of the page's number: the key is longer than 127 B, and `SHARED` has the place of that bit of its length.
const LONG: u32 = 1 << 31;

/// Number of meta pages for `bytes` bytes.
pub fn meta_pages(page_bytes: u32, bytes: u32) -> u32 {
    bytes.div_ceil(page_bytes - FRAME_BYTES)
}

/// A page of plain bytes after its frame.
pub fn bytes_page(page_bytes: u32, id: PageId, kind: Kind, sequence: u64, bytes: &[u8]) -> Page {
    let mut region = Region::new();
    region.write(0, Piece::Bytes(&[0; FRAME_BYTES as usize]));
    region.write(FRAME_BYTES, Piece::Bytes(bytes));
    let facts = Facts { kind, head_bytes: FRAME_BYTES, count: 0, sequence };
    frame::seal(&mut region, id, page_bytes, facts);
    Rc::new(region)
}

/// The bytes of a page made by [`bytes_page`].
pub fn page_of_bytes(
    page_bytes: u32,
    (id, page): (PageId, &Page),
    kind: Kind,
    sequence: u64,
) -> Result<Vec<u8>, StoreError> {
    let facts = frame::expect(page, id, page_bytes, kind)?;
    if facts.sequence != sequence {
        let what = format!("is of number {} and not of {sequence}", facts.sequence);
        return Err(StoreError::Damaged { page: id, what });
    }
    Ok(page.to_bytes(page_bytes)[FRAME_BYTES as usize..].to_vec())
}

/// Blocks and filter from the bytes of meta pages; `None` if these are malformed.
pub fn parse_meta(bytes: &[u8], data_pages: u32) -> Option<(Blocks, Vec<u8>)> {
    let (count, mut rest) = bytes.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count);
    let mut blocks = Blocks::new();
    for _ in 0..count {
        let (block, more) = rest.split_at_checked(BLOCK_BYTES as usize)?;
        let page = u32::from_le_bytes(block[17..].try_into().ok()?);
        let (long, page) = (if page & LONG == 0 { 0 } else { SHARED }, page & !LONG);
        let (key_bytes, is_shared) = (block[0] & !SHARED | long, block[0] & SHARED != 0);
        let first = Key::from_padded(block[1..17].try_into().ok()?, key_bytes.into())?;
        let is_next = blocks.last().is_none_or(|last| last.first < first && last.page < page);
        if !is_next || page >= data_pages {
            return None;
        }
        blocks.push(Block { first, page, is_shared });
        rest = more;
    }
    Some((blocks, rest.to_vec()))
}
