//! Layout `published`: tables as the public firmware of the LSM key-value SSD writes them.
//!
//! ```text
//!   Bloom   32 bits a key, 30 probes over the whole part
//!   index   the keys, 4 B each, in order                          page n holds keys n * 4096 ..   (16 KB pages)
//!   data    one entry for each key at the same rank, 8 B each     page n holds entries n * 2048 ..
//!           40-bit byte address | 24-bit length; all ones: removed
//! ```
//!
//! 4096 entries fill 1 + 1 + 2 pages. A lookup reads whole parts, one after the other: Bloom, index, data.
//! Differences from the release: the address is in bytes (the release has 4 KiB units; BandSlim adds a byte offset),
//! and there are tombstones (the release cannot delete).
//!
//! Limits: keys of exactly 4 bytes, 1 TiB of value log, values below 16 MiB. Entries have no sequence number:
//! which of two is newer follows from the order of their tables.

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

use kvdrive_nvme::{Key, Status};

use super::{
    Build, BuiltPage, Damaged, KeyClass, Layout, Lists, PageBytes, Part, ProbeStep, Scan, ScanStep, Start,
    TableShape,
};
use super::{SCAN_CHUNK, TableFacts, Want, push_filter};
use crate::lsm::bloom::FilterBuild;
use crate::lsm::entry::{AddressBounds, Entry, TableId};
use crate::lsm::memtable::Pair;
use crate::value_log::Vaddr;

const KEY_BYTES: u32 = 4;
const ENTRY_BYTES: u32 = 8;
const ADDRESS_BITS: u32 = 40;
/// The first address that does not fit into this many bits.
pub const REACH_BYTES: u64 = 1 << ADDRESS_BITS;
/// Lengths have 24 bits; with all of them set an entry says that its key was removed.
pub const LENGTH_MAX_BYTES: u32 = (1 << 24) - 2;
const REMOVED: u64 = u64::MAX;

/// The layout for pages of one size.
pub struct Published {
    shape: TableShape,
}

impl Published {
    pub(super) fn new(shape: TableShape) -> Published {
        Published { shape }
    }

    fn keys_per_page(&self) -> u32 {
        self.shape.page_bytes / KEY_BYTES
    }

    fn entries_per_page(&self) -> u32 {
        self.shape.page_bytes / ENTRY_BYTES
    }
}

impl Layout for Published {
    fn accept(&self, key: &Key, address: Vaddr, bytes: u32) -> Result<(), Status> {
        if key.len() != KEY_BYTES as usize {
            return Err(Status::INVALID_KEY_SIZE);
        }
        if bytes > LENGTH_MAX_BYTES {
            return Err(Status::INVALID_VALUE_SIZE);
        }
        if address.0 >> ADDRESS_BITS != 0 {
            return Err(Status::CAPACITY_EXCEEDED);
        }
        Ok(())
    }

    fn build(&self, most_entries: u32) -> Box<dyn Build> {
        let pages = self.shape.bloom.pages(most_entries.into(), self.shape.page_bytes);
        Box::new(PublishedBuild {
            filter: self.shape.begin_filter(most_entries, pages, 1),
            keys: PageUnderWay::new(Part::Index, self.shape.page_bytes),
            data: PageUnderWay::new(Part::Data, self.shape.page_bytes),
            entries: 0,
            range: None,
            addresses: AddressBounds::NONE,
            complete: Vec::new(),
        })
    }

    fn pages_at_most(&self, entries: u32, _: KeyClass) -> u32 {
        self.shape.bloom.pages(entries.into(), self.shape.page_bytes)
            + entries.div_ceil(self.keys_per_page())
            + entries.div_ceil(self.entries_per_page())
    }

    fn lists(&self) -> Lists {
        Lists::Nothing
    }

    fn scan(&self, table: &TableFacts, start: Start) -> Box<dyn Scan> {
        let (from, search) = match start {
            Start::First | Start::Addresses(_) => (None, 0..0),
            Start::Key(key) => (Some(key), 0..table.index_pages),
        };
        Box::new(PublishedScan {
            entries: table.entries,
            rank: 0,
            from,
            search,
            keys: PartCursor::new(Part::Index, self.keys_per_page()),
            data: PartCursor::new(Part::Data, self.entries_per_page()),
            asked: (Part::Index, 0),
        })
    }

    fn probe(&self, table: &TableFacts, _: &Key, bloom: bool) -> ProbeStep {
        let part = if bloom && table.bloom_pages > 0 { Part::Bloom } else { Part::Index };
        ProbeStep::Read(Want { part, pages: 0..table.pages(part), carry: 0 })
    }

    fn judge(
        &self,
        table: &TableFacts,
        key: &Key,
        want: &Want,
        pages: &[PageBytes],
    ) -> Result<ProbeStep, Damaged> {
        match want.part {
            Part::Bloom => {
                let page_bytes = self.shape.page_bytes as usize;
                let byte_at = |at: usize| {
                    let [byte] = pages.get(at / page_bytes)?.view().array(at % page_bytes).ok()?;
                    Some(byte)
                };
                match self.shape.filter(table.bloom_pages, 1).may_contain(key, byte_at) {
                    false => Ok(ProbeStep::Absent),
                    true => Ok(self.probe(table, key, false)),
                }
            }
            Part::Index => {
                let wanted = number_of(key);
                let key_at = |rank: u32| {
                    let page = pages.get((rank / self.keys_per_page()) as usize).ok_or(Damaged)?;
                    key_on(page, rank % self.keys_per_page())
                };
                let (mut low, mut high) = (0, table.entries);
                while low < high {
                    let middle = low + (high - low) / 2;
                    if key_at(middle)? < wanted { low = middle + 1 } else { high = middle }
                }
                if low == table.entries || key_at(low)? != wanted {
                    return Ok(ProbeStep::Absent);
                }
                Ok(ProbeStep::Read(Want { part: Part::Data, pages: 0..table.data_pages, carry: low }))
            }
            Part::Data => {
                let page = pages.get((want.carry / self.entries_per_page()) as usize).ok_or(Damaged)?;
                let word = word_on(page, want.carry % self.entries_per_page())?;
                Ok(ProbeStep::Found(decode(word)))
            }
        }
    }
}

/// The key as a number; byte order is the order of numbers.
#[inline]
fn number_of(key: &Key) -> u32 {
    (key.halves().0 >> 32) as u32
}

#[inline]
fn key_on(page: &PageBytes, slot: u32) -> Result<u32, Damaged> {
    page.view().array((slot * KEY_BYTES) as usize).map(u32::from_be_bytes)
}

#[inline]
fn word_on(page: &PageBytes, slot: u32) -> Result<u64, Damaged> {
    page.view().array((slot * ENTRY_BYTES) as usize).map(u64::from_le_bytes)
}

/// `count` slots of `N` bytes from `slot` on.
fn slots<const N: usize>(page: &PageBytes, slot: u32, count: u32) -> Result<Cow<'_, [[u8; N]]>, Damaged> {
    page.view().arrays(slot as usize * N, count as usize)
}

#[inline]
fn encode(entry: &Entry) -> u64 {
    if entry.tombstone { REMOVED } else { u64::from(entry.bytes) << ADDRESS_BITS | entry.address.0 }
}

#[inline]
fn decode(word: u64) -> Entry {
    if word == REMOVED {
        return Entry::removal(0);
    }
    let address = Vaddr(word & ((1 << ADDRESS_BITS) - 1));
    Entry { address, bytes: (word >> ADDRESS_BITS) as u32, sequence: 0, tombstone: false }
}

/// The page of a part that is being filled.
struct PageUnderWay {
    part: Part,
    number: u32,
    page_bytes: usize,
    bytes: Vec<u8>,
    first: Option<Key>,
    addresses: AddressBounds,
}

impl PageUnderWay {
    fn new(part: Part, page_bytes: u32) -> PageUnderWay {
        let page_bytes = page_bytes as usize;
        let bytes = Vec::with_capacity(page_bytes);
        PageUnderWay { part, number: 0, page_bytes, bytes, first: None, addresses: AddressBounds::NONE }
    }

    /// Hands out the page if nothing more fits on it.
    fn take_if_full(&mut self) -> Option<BuiltPage> {
        (self.bytes.len() == self.page_bytes).then(|| self.take())
    }

    fn take(&mut self) -> BuiltPage {
        let bytes = std::mem::replace(&mut self.bytes, Vec::with_capacity(self.page_bytes));
        let addresses = std::mem::replace(&mut self.addresses, AddressBounds::NONE);
        self.number += 1;
        let first = self.first.take().expect("a page that is full or the last one has an entry");
        BuiltPage::new(self.part, self.number - 1, bytes, first, addresses)
    }
}

struct PublishedBuild {
    filter: FilterBuild,
    keys: PageUnderWay,
    data: PageUnderWay,
    entries: u32,
    range: Option<(Key, Key)>,
    addresses: AddressBounds,
    complete: Vec<BuiltPage>,
}

impl Build for PublishedBuild {
    fn push(&mut self, key: &Key, entry: &Entry) -> usize {
        self.complete.extend(self.keys.take_if_full());
        self.complete.extend(self.data.take_if_full());
        self.keys.first.get_or_insert(*key);
        self.keys.bytes.extend_from_slice(&number_of(key).to_be_bytes());
        self.data.first.get_or_insert(*key);
        self.data.bytes.extend_from_slice(&encode(entry).to_le_bytes());
        self.data.addresses.cover(entry);
        self.addresses.cover(entry);
        self.filter.add(key);
        self.entries += 1;
        self.range = Some((self.range.map_or(*key, |range| range.0), *key));
        self.complete.len()
    }

    fn complete(&mut self) -> &mut Vec<BuiltPage> {
        &mut self.complete
    }

    fn finish(mut self: Box<Self>, id: TableId, age: u64, out: &mut Vec<BuiltPage>) -> TableFacts {
        let (min, max) = self.range.expect("a table has at least one entry");
        out.append(&mut self.complete);
        let bloom_pages = self.filter.pages();
        push_filter(self.filter, out);
        out.push(self.keys.take());
        out.push(self.data.take());
        TableFacts {
            id,
            age,
            entries: self.entries,
            min,
            max,
            addresses: self.addresses,
            data_pages: self.data.number,
            index_pages: self.keys.number,
            bloom_pages,
            fences: Rc::from([]),
            longest: KeyClass::default(),
        }
    }
}

/// A page of one part and the place on it that comes next.
struct PartCursor {
    part: Part,
    per_page: u32,
    page: u32,
    slot: u32,
    held: Option<(u32, PageBytes)>,
}

impl PartCursor {
    fn new(part: Part, per_page: u32) -> PartCursor {
        PartCursor { part, per_page, page: 0, slot: 0, held: None }
    }

    fn go_to(&mut self, rank: u32) {
        (self.page, self.slot) = (rank / self.per_page, rank % self.per_page);
    }

    /// Slots from the present one to the end of the page.
    fn left(&self) -> u32 {
        self.per_page - self.slot
    }

    /// Goes on by `count` slots, at most to the end of the page.
    fn advance(&mut self, count: u32) {
        self.slot += count;
        if self.slot == self.per_page {
            (self.page, self.slot) = (self.page + 1, 0);
        }
    }

    #[inline]
    fn held(&self, number: u32) -> Option<&PageBytes> {
        self.held.as_ref().filter(|(held, _)| *held == number).map(|(_, page)| page)
    }

    /// Requests a page; the old one is dropped first, so that a cursor never holds two.
    fn ask(&mut self, number: u32) -> ScanStep {
        self.held = None;
        ScanStep::Read(self.part, number)
    }
}

struct PublishedScan {
    entries: u32,
    /// Rank of the next entry.
    rank: u32,
    /// Entries below this key are to be passed over before anything else.
    from: Option<Key>,
    /// Index pages among which `from` is still to be found, by bisection.
    search: Range<u32>,
    keys: PartCursor,
    data: PartCursor,
    asked: (Part, u32),
}

impl PublishedScan {
    fn ask(&mut self, part: Part, number: u32) -> ScanStep {
        self.asked = (part, number);
        if part == Part::Index { self.keys.ask(number) } else { self.data.ask(number) }
    }

    /// Goes to the first entry whose key is not below `from`. `Some` if a page is missing.
    fn seek(&mut self, from: Key) -> Result<Option<ScanStep>, Damaged> {
        let wanted = number_of(&from);
        // The last index page whose first key is not above the wanted one, or the first page.
        while self.search.len() > 1 {
            let middle = self.search.start + (self.search.end - self.search.start) / 2;
            let Some(page) = self.keys.held(middle) else { return Ok(Some(self.ask(Part::Index, middle))) };
            let first = key_on(page, 0)?;
            self.search = if first <= wanted { middle..self.search.end } else { self.search.start..middle };
        }
        let number = self.search.start;
        let Some(page) = self.keys.held(number) else { return Ok(Some(self.ask(Part::Index, number))) };
        let before = number * self.keys.per_page;
        let (mut low, mut high) = (0, self.keys.per_page.min(self.entries - before));
        while low < high {
            let middle = low + (high - low) / 2;
            // Compared as keys: `from` may have another length than the keys here.
            let key = Key::from_u32_be(key_on(page, middle)?);
            if key < from { low = middle + 1 } else { high = middle }
        }
        self.rank = before + low;
        self.keys.go_to(self.rank);
        self.data.go_to(self.rank);
        self.from = None;
        Ok(None)
    }
}

impl Scan for PublishedScan {
    fn step(&mut self, out: &mut Vec<Pair>) -> Result<ScanStep, Damaged> {
        if let Some(from) = self.from
            && let Some(missing) = self.seek(from)?
        {
            return Ok(missing);
        }
        if self.rank >= self.entries {
            return Ok(ScanStep::End);
        }
        let Some(keys) = self.keys.held(self.keys.page) else {
            return Ok(self.ask(Part::Index, self.keys.page));
        };
        let Some(data) = self.data.held(self.data.page) else {
            return Ok(self.ask(Part::Data, self.data.page));
        };
        let left = self.keys.left().min(self.data.left()).min(self.entries - self.rank);
        let count = left.min(SCAN_CHUNK as u32);
        let keys = slots::<4>(keys, self.keys.slot, count)?;
        let words = slots::<8>(data, self.data.slot, count)?;
        out.extend(keys.iter().zip(&*words).map(|(key, word)| {
            (Key::from_u32_be(u32::from_be_bytes(*key)), decode(u64::from_le_bytes(*word)))
        }));
        self.rank += count;
        self.keys.advance(count);
        self.data.advance(count);
        Ok(ScanStep::Entries)
    }

    fn give(&mut self, page: PageBytes) {
        let (part, number) = self.asked;
        if part == Part::Index {
            self.keys.held = Some((number, page))
        } else {
            self.data.held = Some((number, page))
        }
    }

    fn skip(&mut self) {
        self.rank = match self.from.take() {
            // Where the key would be is not known: on the first page that may have it, at the earliest. If that page is
            // lost, the key is after it.
            Some(_) if self.asked.1 > self.search.start => self.search.start * self.keys.per_page,
            Some(_) => (self.search.start + 1) * self.keys.per_page,
            None if self.asked.0 == Part::Index => self.rank + self.keys.left(),
            None => self.rank + self.data.left(),
        };
        self.keys.go_to(self.rank);
        self.data.go_to(self.rank);
    }
}
