//! Invalid records of `plus` and `plus2`: the pairs of a superblock that are no longer valid (Plus, section
//! IV-A).
//!
//! Every superblock has a buffer in power-protected DRAM. A full buffer is written as an *invalid page* among
//! the sections; the superblock keeps a list of its invalid pages, which garbage collection reads before it
//! reads the pairs.
//!
//! ```text
//!   0      1   2       4            8       12       16
//!   +------+---+-------+------------+-------+--------+--------------------------------------------
//!   | 49h  | 0 | count | superblock | epoch | serial | count x (slot, low 40 bits << 24 | grain in superblock)
//!   +------+---+-------+------------+-------+--------+--------------------------------------------
//! ```
//!
//! The epoch is that of the superblock: an invalid page from before an erase of the superblock does not apply after it.
//! A record takes 8 B as published; the 16 B header takes the place of two records. [`RecordsForm`] has the lengths of
//! buffers and records; bytes of a record after the first three are never read.

use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;

use kvdrive_declare::Counters;
use kvdrive_flash::Purpose;
use kvdrive_flash::power::Journal;
use kvdrive_nvme::Status;
use kvdrive_sim::TaskCell;

use super::change::Change;
use super::layout::{Grain, Layout};
use super::scheme::RecordsForm;
use super::space::{Content, Space, Stream};

/// First byte of an invalid page.
pub const RECORDS_MARK: u8 = 0x49;
const HEADER_BYTES: usize = 16;
const GRAIN_BITS: u32 = 24;
/// Bytes of an entry in the list of a superblock's invalid pages: 40 bits of grain address, enough for 4 TiB
/// and more.
const LIST_ENTRY_BYTES: u64 = 5;

/// The header of an invalid page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordsHeader {
    /// The superblock of the pairs.
    pub superblock: u32,
    /// Erase count of the superblock.
    pub epoch: u32,
    /// Number of the page among those of one epoch.
    pub serial: u32,
    /// Number of records.
    pub count: u16,
}

impl RecordsHeader {
    /// The header at the start of `bytes`.
    pub fn decode(bytes: &[u8]) -> Option<RecordsHeader> {
        let bytes = bytes.first_chunk::<HEADER_BYTES>().filter(|bytes| bytes[0] == RECORDS_MARK)?;
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let count = u16::from_le_bytes([bytes[2], bytes[3]]);
        Some(RecordsHeader { superblock: word(4), epoch: word(8), serial: word(12), count })
    }
}

/// The grain of a record, within its superblock.
pub(super) fn grain_of(record: u64) -> u64 {
    record & ((1 << GRAIN_BITS) - 1)
}

#[derive(Default)]
struct Book {
    buffer: Vec<u64>,
    pages: Vec<Grain>,
    /// Serial of the next page of this epoch.
    serial: u32,
}

/// Cost of invalid pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Counters)]
#[counters(prefix = "invalid_")]
pub struct RecordsStatistics {
    /// Bytes of invalid pages written for the first time.
    pub written_bytes: u64,
    /// Bytes of invalid pages that collection wrote again.
    pub moved_bytes: u64,
    /// Bytes of invalid pages read.
    pub read_bytes: u64,
}

/// The invalid records of one drive.
pub struct Records {
    layout: Layout,
    record_bytes: usize,
    /// Bytes of a buffer and of an invalid page; whole grains.
    page_bytes: u32,
    /// Records of a page.
    capacity: usize,
    books: TaskCell<Vec<Book>>,
    /// Number of invalid pages of all superblocks.
    pages: Cell<u64>,
    statistics: TaskCell<RecordsStatistics>,
    journal: Journal,
}

impl Records {
    /// Empty records.
    pub(super) fn new(layout: &Layout, form: RecordsForm, journal: &Journal) -> Records {
        assert!(layout.superblock_grains <= 1 << GRAIN_BITS, "a record has 24 bits for a grain");
        assert!(form.record_bytes * 8 >= GRAIN_BITS, "a record has the bits of a grain at least");
        let page_bytes = form.page_bytes(layout);
        let record_bytes = form.record_bytes as usize;
        Records {
            layout: *layout,
            record_bytes,
            page_bytes,
            capacity: (page_bytes as usize - HEADER_BYTES) / record_bytes,
            books: TaskCell::new((0..layout.superblocks).map(|_| Book::default()).collect()),
            pages: Cell::new(0),
            statistics: TaskCell::default(),
            journal: journal.clone(),
        }
    }

    /// Cost so far.
    pub fn statistics(&self) -> RecordsStatistics {
        *self.statistics.borrow()
    }

    /// Grains of all invalid pages on flash.
    pub fn grains(&self) -> u64 {
        self.pages.get() * u64::from(self.page_grains())
    }

    /// Bytes of an invalid page.
    pub fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// Grains of an invalid page.
    pub fn page_grains(&self) -> u32 {
        self.layout.grains_of(self.page_bytes)
    }

    /// DRAM of the lists of invalid pages, bytes; it grows with the pages.
    pub fn list_bytes(&self) -> u64 {
        LIST_ENTRY_BYTES * self.pages.get()
    }

    /// Notes that the pair of `slot` at `grain` is no longer valid. While too many pages of sections are
    /// being programmed, buffers grow: a snapshot can release any number of pairs at once.
    pub fn add(&self, space: &Rc<Space>, slot: u64, grain: Grain) {
        let superblock = self.layout.superblock(grain);
        let record = slot << GRAIN_BITS | u64::from(self.layout.within(grain));
        self.journal.append(&Change::Invalid { superblock, record });
        let full = {
            let book = &mut self.books.borrow_mut()[superblock as usize];
            book.buffer.push(record);
            book.buffer.len() >= self.capacity
        };
        if full && space.has_map_room() {
            self.flush(space, superblock);
        }
    }

    /// Prefetches the entries of pairs that will become invalid soon, with [`std::hint::black_box`].
    pub fn expect(&self, pairs: &[Grain]) {
        let books = self.books.borrow();
        let book = |pair: &Grain| &books[self.layout.superblock(*pair) as usize];
        pairs.iter().for_each(|pair| _ = black_box(book(pair).buffer.last()));
    }

    /// Writes a buffer as an invalid page. Without space for it the buffer grows: no record may be lost.
    fn flush(&self, space: &Rc<Space>, superblock: u32) {
        let epoch = space.superblocks.borrow()[superblock as usize].epoch;
        let book = &mut self.books.borrow_mut()[superblock as usize];
        let records = &book.buffer[..self.capacity];
        let mut bytes = Vec::with_capacity(self.page_bytes as usize);
        bytes.extend_from_slice(&[RECORDS_MARK, 0]);
        bytes.extend_from_slice(&(records.len() as u16).to_le_bytes());
        for word in [superblock, epoch, book.serial] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for record in records {
            bytes.extend_from_slice(&record.to_le_bytes()[..self.record_bytes]);
        }
        bytes.resize(self.page_bytes as usize, 0);
        if let Some(page) = space.append(Stream::Map, Content::Item(&bytes.into()), self.page_bytes) {
            book.pages.push(page);
            book.serial += 1;
            self.pages.set(self.pages.get() + 1);
            book.buffer.drain(..self.capacity);
            self.journal.append(&Change::Spilled { superblock, count: self.capacity as u32 });
            self.statistics.borrow_mut().written_bytes += u64::from(self.page_bytes);
        }
    }

    /// The invalid grains of a victim that are recorded at present, one bit for each grain.
    pub fn gather(&self, space: &Rc<Space>, superblock: u32) -> Result<Vec<u64>, Status> {
        let mut dead = vec![0; self.layout.superblock_grains.div_ceil(64) as usize];
        let mut mark = |record: u64| {
            let grain = grain_of(record);
            // A page from outside can hold any record.
            if let Some(word) = dead.get_mut((grain / 64) as usize) {
                *word |= 1 << (grain % 64);
            }
        };
        let pages = self.books.borrow()[superblock as usize].pages.clone();
        let epoch = space.superblocks.borrow()[superblock as usize].epoch;
        for page in pages {
            // Only collection of the page's own superblock moves it; collection is one task, so the page
            // stays now.
            let _reader = space.pin(page);
            let at = self.layout.byte_in_page(page);
            let unit = self.layout.unit_begin(at);
            let read = space.read(self.layout.page(page), unit, self.layout.unit_bytes, Purpose::InvalidMap);
            let bytes = read?.item(at, self.page_bytes);
            self.statistics.borrow_mut().read_bytes += u64::from(self.layout.unit_bytes);
            let header = RecordsHeader::decode(&bytes).filter(|header| header.superblock == superblock);
            let header = header.ok_or(Status::UNRECOVERED_ERROR)?;
            if header.epoch == epoch {
                let records = bytes[HEADER_BYTES..].chunks_exact(self.record_bytes).take(header.count.into());
                records
                    .for_each(|record| mark(u32::from_le_bytes([record[0], record[1], record[2], 0]).into()));
            }
        }
        self.books.borrow()[superblock as usize].buffer.iter().for_each(|record| mark(*record));
        Ok(dead)
    }

    /// Drops the records of a superblock that holds no valid pairs any more.
    pub fn clear(&self, space: &Space, superblock: u32) {
        let book = std::mem::take(&mut self.books.borrow_mut()[superblock as usize]);
        self.journal.append(&Change::Forgotten { superblock });
        self.pages.set(self.pages.get() - book.pages.len() as u64);
        for page in book.pages {
            space.forget(page, self.page_grains());
        }
    }

    /// Is the invalid page at `page` in the list of its superblock?
    pub fn is_listed(&self, header: &RecordsHeader, page: Grain) -> bool {
        self.books.borrow().get(header.superblock as usize).is_some_and(|book| book.pages.contains(&page))
    }

    /// Notes that garbage collection has moved an invalid page.
    pub fn relocate(&self, header: &RecordsHeader, from: Grain, to: Grain) {
        let mut books = self.books.borrow_mut();
        let pages = &mut books[header.superblock as usize].pages;
        let place = pages.iter_mut().find(|page| **page == from).expect("only listed pages are moved");
        *place = to;
        self.statistics.borrow_mut().moved_bytes += u64::from(self.page_bytes);
    }

    /// Calls `found` with each superblock and its buffered records, for the protected image.
    pub(super) fn buffers(&self, found: &mut dyn FnMut(u32, &[u64])) {
        for (superblock, book) in self.books.borrow().iter().enumerate() {
            if !book.buffer.is_empty() {
                found(superblock as u32, &book.buffer);
            }
        }
    }

    /// Restores a buffer.
    pub(super) fn restore_buffer(&self, superblock: u32, records: Vec<u64>) {
        self.books.borrow_mut()[superblock as usize].buffer = records;
    }

    /// Restores an invalid page that was found on flash.
    pub(super) fn restore_page(&self, header: &RecordsHeader, page: Grain) {
        let book = &mut self.books.borrow_mut()[header.superblock as usize];
        book.pages.push(page);
        book.serial = book.serial.max(header.serial + 1);
        self.pages.set(self.pages.get() + 1);
    }
}
