//! Layout `sound`: tables of ours, without the limits of the published ones.
//!
//! ```text
//!   data page    entries u16 | restarts u16 | entry ... | free | restart offset u16 ...
//!   entry        key length - 1 and tombstone bit u8 | key | sequence u64 | address u64 | length u32
//!                (key of 128 B and more: 127 and tombstone bit u8 | key length u8 | key | ...)
//!   index page   records u16 | record ...
//!   record       first key of a data page (length u8, its first 16 B) | its address bounds, 2 x 48 bit
//!   Bloom page   a filter of its own: a key belongs to one of them
//! ```
//!
//! Every 16th entry of a data page is a restart point, so that a lookup bisects and then walks at most 15
//! entries. A lookup reads one Bloom page, one index page (chosen by the fence keys in DRAM) and one data
//! page, whatever the size of the table. Address bounds let garbage collection read only the data pages that
//! can name its victim.

use std::ops::Range;
use std::rc::Rc;

use kvdrive_nvme::{Key, Status};

use super::{
    Build, BuiltPage, Damaged, KeyClass, Layout, Lists, PageBytes, Part, ProbeStep, Scan, ScanStep, Start,
    TableShape,
};
use super::{SCAN_CHUNK, TableFacts, View, Want, push_filter};
use crate::lsm::bloom::FilterBuild;
use crate::lsm::entry::{AddressBounds, Entry, TableId};
use crate::lsm::memtable::Pair;
use crate::value_log::Vaddr;

const HEAD_BYTES: usize = 4;
const INDEX_HEAD_BYTES: usize = 2;
const RECORD_BYTES: usize = 1 + Key::IDENTITY_BYTES + 12;
/// Bytes of an entry besides its key.
const FIXED_BYTES: usize = 1 + 8 + 8 + 4;
const TOMBSTONE: u8 = 0x80;
const ENTRIES_PER_RESTART: u16 = 16;
/// An entry with a key of 16 B.
const ENCODED_BYTES: usize = FIXED_BYTES + Key::IDENTITY_BYTES;
/// In the place of a key's length: a byte with the length follows.
const LENGTH_FOLLOWS: u8 = 0x7F;

/// The layout for pages of one size.
pub struct Sound {
    shape: TableShape,
}

impl Sound {
    pub(super) fn new(shape: TableShape) -> Sound {
        assert!(shape.page_bytes <= 1 << 16, "offsets within a page have 16 bits");
        Sound { shape }
    }

    /// Entries of a data page if all keys are as long as these can be, each with the restart offset that it may need.
    fn entries_per_page(&self, longest: KeyClass) -> u32 {
        (self.shape.page_bytes - HEAD_BYTES as u32) / (entry_bytes(longest.most_bytes()) as u32 + 2)
    }

    fn records_per_page(&self) -> u32 {
        (self.shape.page_bytes - INDEX_HEAD_BYTES as u32) / RECORD_BYTES as u32
    }
}

impl Layout for Sound {
    fn accept(&self, key: &Key, _: Vaddr, _: u32) -> Result<(), Status> {
        let fits = key.len() <= Key::IDENTITY_BYTES || self.entries_per_page(KeyClass::of(key)) > 0;
        if fits { Ok(()) } else { Err(Status::INVALID_KEY_SIZE) }
    }

    fn build(&self, most_entries: u32) -> Box<dyn Build> {
        let pages = self.shape.bloom.pages(most_entries.into(), self.shape.page_bytes);
        Box::new(SoundBuild {
            page_bytes: self.shape.page_bytes as usize,
            filter: self.shape.begin_filter(most_entries, pages, pages.max(1)),
            page: DataPage::new(self.shape.page_bytes as usize),
            index: Vec::new(),
            data_pages: 0,
            entries: 0,
            longest: KeyClass::default(),
            last: None,
            addresses: AddressBounds::NONE,
            complete: Vec::new(),
        })
    }

    fn pages_at_most(&self, entries: u32, longest: KeyClass) -> u32 {
        let data = entries.div_ceil(self.entries_per_page(longest));
        self.shape.bloom.pages(entries.into(), self.shape.page_bytes)
            + data
            + data.div_ceil(self.records_per_page())
    }

    fn lists(&self) -> Lists {
        Lists::IndexPages(self.records_per_page())
    }

    fn scan(&self, table: &TableFacts, start: Start) -> Box<dyn Scan> {
        let plan = match start {
            Start::First => Plan::Walk,
            Start::Key(from) => Plan::Seek { from, index_page: fence_of(table, &from) },
            Start::Addresses(addresses) => Plan::Pick { addresses, index_page: 0, chosen: Vec::new() },
        };
        Box::new(SoundScan {
            data_pages: table.data_pages,
            index_pages: table.index_pages,
            records_per_page: self.records_per_page(),
            plan,
            next: 0,
            page: None,
            given: None,
        })
    }

    fn probe(&self, table: &TableFacts, key: &Key, bloom: bool) -> ProbeStep {
        let (part, number) = if bloom && table.bloom_pages > 0 {
            (Part::Bloom, self.shape.filter(table.bloom_pages, table.bloom_pages).region(key))
        } else {
            (Part::Index, fence_of(table, key))
        };
        ProbeStep::Read(Want { part, pages: number..number + 1, carry: 0 })
    }

    fn judge(
        &self,
        table: &TableFacts,
        key: &Key,
        want: &Want,
        pages: &[PageBytes],
    ) -> Result<ProbeStep, Damaged> {
        let page = pages.first().ok_or(Damaged)?.view();
        match want.part {
            Part::Bloom => {
                let filter = self.shape.filter(table.bloom_pages, table.bloom_pages);
                match filter.may_contain(key, |at| page.array(at).ok().map(|[byte]| byte)) {
                    false => Ok(ProbeStep::Absent),
                    true => Ok(self.probe(table, key, false)),
                }
            }
            Part::Index => match last_record_at_or_below(page, key)? {
                None => Ok(ProbeStep::Absent),
                Some(record) => {
                    let number = want.pages.start * self.records_per_page() + record;
                    if number >= table.data_pages {
                        return Err(Damaged);
                    }
                    Ok(ProbeStep::Read(Want { part: Part::Data, pages: number..number + 1, carry: 0 }))
                }
            },
            Part::Data => {
                let mut walk = PagePosition::seek(page, key)?;
                Ok(match walk.next(page)? {
                    Some((found, entry)) if found == *key => ProbeStep::Found(entry),
                    _ => ProbeStep::Absent,
                })
            }
        }
    }
}

/// The index page where `key` would be.
fn fence_of(table: &TableFacts, key: &Key) -> u32 {
    table.fences.partition_point(|first| first <= key) as u32
}

#[inline]
fn u16_at(page: View<'_>, at: usize) -> Result<u16, Damaged> {
    page.array(at).map(u16::from_le_bytes)
}

/// First key of a record of an index page.
#[inline]
fn first_key_at(page: View<'_>, record: usize) -> Result<Key, Damaged> {
    let [length, key @ ..]: [u8; 1 + Key::IDENTITY_BYTES] =
        page.array(INDEX_HEAD_BYTES + record * RECORD_BYTES)?;
    Key::from_padded(key, length.into()).ok_or(Damaged)
}

/// First key and address bounds of a record of an index page.
fn record_at(page: View<'_>, record: usize) -> Result<(Key, AddressBounds), Damaged> {
    let bytes: [u8; RECORD_BYTES] = page.array(INDEX_HEAD_BYTES + record * RECORD_BYTES)?;
    let (key, bounds) = bytes[1..].split_first_chunk::<16>().ok_or(Damaged)?;
    let key = Key::from_padded(*key, bytes[0].into()).ok_or(Damaged)?;
    Ok((key, AddressBounds::decode(bounds.first_chunk().ok_or(Damaged)?)))
}

fn last_record_at_or_below(page: View<'_>, key: &Key) -> Result<Option<u32>, Damaged> {
    let (mut low, mut high) = (0, usize::from(u16_at(page, 0)?));
    while low < high {
        let middle = low + (high - low) / 2;
        if first_key_at(page, middle)? <= *key { low = middle + 1 } else { high = middle }
    }
    Ok(low.checked_sub(1).map(|record| record as u32))
}

/// Bytes of an entry whose key has `key_bytes` bytes.
#[inline]
fn entry_bytes(key_bytes: usize) -> usize {
    FIXED_BYTES + key_bytes + usize::from(key_bytes > usize::from(LENGTH_FOLLOWS))
}

/// The key of the entry at `at` of a data page, the entry's first byte, and where its sequence number begins.
#[inline]
fn key_at(page: View<'_>, at: usize) -> Result<(Key, u8, usize), Damaged> {
    // Sixteen bytes from the key on are always there: what follows it is longer than that.
    let [head, key @ ..]: [u8; 1 + Key::IDENTITY_BYTES] = page.array(at)?;
    let key_bytes = usize::from(head & !TOMBSTONE) + 1;
    if key_bytes > Key::IDENTITY_BYTES {
        return long_key_at(page, at, head);
    }
    Ok((Key::from_padded(key, key_bytes).ok_or(Damaged)?, head, at + 1 + key_bytes))
}

#[cold]
fn long_key_at(page: View<'_>, at: usize, head: u8) -> Result<(Key, u8, usize), Damaged> {
    let (key_bytes, at) = match head & !TOMBSTONE {
        LENGTH_FOLLOWS => {
            let [length] = page.array(at + 1)?;
            (usize::from(length), at + 2)
        }
        short => (usize::from(short) + 1, at + 1),
    };
    Ok((Key::from_padded(page.array(at)?, key_bytes).ok_or(Damaged)?, head, at + key_bytes))
}

/// A position between two entries of a data page.
struct PagePosition {
    at: usize,
    left: u16,
}

impl PagePosition {
    fn first(page: View<'_>) -> Result<PagePosition, Damaged> {
        Ok(PagePosition { at: HEAD_BYTES, left: u16_at(page, 0)? })
    }

    /// Before the first entry whose key is not below `key`.
    fn seek(page: View<'_>, key: &Key) -> Result<PagePosition, Damaged> {
        let (entries, restarts) = (u16_at(page, 0)?, u16_at(page, 2)?);
        let offset = |restart: u16| {
            let back = 2 * usize::from(restart + 1);
            u16_at(page, page.page_bytes().checked_sub(back).ok_or(Damaged)?)
        };
        let (mut low, mut high) = (0, restarts.min(u16::MAX - 1));
        while low < high {
            let middle = low + (high - low) / 2;
            let (first, ..) = key_at(page, offset(middle)?.into())?;
            if first <= *key { low = middle + 1 } else { high = middle }
        }
        let restart = low.saturating_sub(1);
        if restarts == 0 {
            return Err(Damaged);
        }
        let before = restart.checked_mul(ENTRIES_PER_RESTART).ok_or(Damaged)?;
        let mut walk =
            PagePosition { at: offset(restart)?.into(), left: entries.checked_sub(before).ok_or(Damaged)? };
        while walk.left > 0 {
            let (found, _, fixed_at) = key_at(page, walk.at)?;
            if found >= *key {
                break;
            }
            walk.at = fixed_at + FIXED_BYTES - 1;
            walk.left -= 1;
        }
        Ok(walk)
    }

    #[inline]
    fn next(&mut self, page: View<'_>) -> Result<Option<(Key, Entry)>, Damaged> {
        if self.left == 0 {
            return Ok(None);
        }
        let (key, head, fixed_at) = key_at(page, self.at)?;
        let fixed: [u8; FIXED_BYTES - 1] = page.array(fixed_at)?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| fixed[at + byte]));
        let entry = Entry {
            sequence: word(0),
            address: Vaddr(word(8)),
            bytes: u32::from_le_bytes(std::array::from_fn(|byte| fixed[16 + byte])),
            tombstone: head & TOMBSTONE != 0,
        };
        self.at = fixed_at + FIXED_BYTES - 1;
        self.left -= 1;
        Ok(Some((key, entry)))
    }
}

/// Sequence number, address and length of an entry.
#[inline]
fn fixed_of(entry: &Entry) -> [u8; FIXED_BYTES - 1] {
    let mut fixed = [0; FIXED_BYTES - 1];
    fixed[..8].copy_from_slice(&entry.sequence.to_le_bytes());
    fixed[8..16].copy_from_slice(&entry.address.0.to_le_bytes());
    fixed[16..].copy_from_slice(&entry.bytes.to_le_bytes());
    fixed
}

/// The data page that is being filled.
struct DataPage {
    page_bytes: usize,
    bytes: Vec<u8>,
    restarts: Vec<u16>,
    entries: u16,
    first: Option<Key>,
    addresses: AddressBounds,
}

impl DataPage {
    fn new(page_bytes: usize) -> DataPage {
        let mut bytes = Vec::with_capacity(page_bytes + ENCODED_BYTES);
        bytes.resize(HEAD_BYTES, 0);
        DataPage {
            page_bytes,
            bytes,
            restarts: Vec::new(),
            entries: 0,
            first: None,
            addresses: AddressBounds::NONE,
        }
    }

    fn fits(&self, key: &Key) -> bool {
        let restart = 2 * usize::from(self.entries.is_multiple_of(ENTRIES_PER_RESTART));
        let used = self.bytes.len() + 2 * self.restarts.len();
        used + entry_bytes(key.len()) + restart <= self.page_bytes && self.entries < u16::MAX
    }

    fn push(&mut self, key: &Key, entry: &Entry) {
        if self.entries.is_multiple_of(ENTRIES_PER_RESTART) {
            self.restarts.push(self.bytes.len() as u16);
        }
        if key.is_long() {
            self.encode_long(key, entry);
        } else {
            let mut encoded = [0u8; ENCODED_BYTES];
            encoded[0] = (key.len() - 1) as u8 | if entry.tombstone { TOMBSTONE } else { 0 };
            encoded[1..17].copy_from_slice(&key.to_array());
            encoded[1 + key.len()..][..FIXED_BYTES - 1].copy_from_slice(&fixed_of(entry));
            // All of it, so that the length is known to the compiler; the next entry takes the rest's place.
            let end = self.bytes.len() + FIXED_BYTES + key.len();
            self.bytes.extend_from_slice(&encoded);
            self.bytes.truncate(end);
        }
        self.addresses.cover(entry);
        self.first.get_or_insert(*key);
        self.entries += 1;
    }

    /// Appends an entry with a key of more than 16 B.
    #[cold]
    fn encode_long(&mut self, key: &Key, entry: &Entry) {
        let tombstone = if entry.tombstone { TOMBSTONE } else { 0 };
        match u8::try_from(key.len() - 1) {
            Ok(length) if length < LENGTH_FOLLOWS => self.bytes.push(length | tombstone),
            _ => self.bytes.extend([LENGTH_FOLLOWS | tombstone, key.len() as u8]),
        }
        self.bytes.extend_from_slice(&key.to_array());
        self.bytes.resize(self.bytes.len() + key.tail_bytes(), 0);
        self.bytes.extend_from_slice(&fixed_of(entry));
    }

    fn finish(self) -> (Vec<u8>, Key, AddressBounds) {
        let mut bytes = self.bytes;
        bytes[..2].copy_from_slice(&self.entries.to_le_bytes());
        bytes[2..4].copy_from_slice(&(self.restarts.len() as u16).to_le_bytes());
        bytes.resize(self.page_bytes, 0);
        for (restart, offset) in self.restarts.iter().enumerate() {
            let at = self.page_bytes - 2 * (restart + 1);
            bytes[at..at + 2].copy_from_slice(&offset.to_le_bytes());
        }
        (bytes, self.first.expect("a data page has at least one entry"), self.addresses)
    }
}

struct SoundBuild {
    page_bytes: usize,
    filter: FilterBuild,
    page: DataPage,
    /// First key and bounds of every data page that is complete.
    index: Vec<(Key, AddressBounds)>,
    data_pages: u32,
    entries: u32,
    longest: KeyClass,
    /// Highest key so far.
    last: Option<Key>,
    addresses: AddressBounds,
    complete: Vec<BuiltPage>,
}

impl SoundBuild {
    fn end_page(&mut self) {
        let page = std::mem::replace(&mut self.page, DataPage::new(self.page_bytes));
        let (bytes, first, addresses) = page.finish();
        self.addresses.join(&addresses);
        self.index.push((first, addresses));
        let number = self.data_pages;
        self.data_pages += 1;
        self.complete.push(BuiltPage::new(Part::Data, number, bytes, first, addresses));
    }
}

impl Build for SoundBuild {
    fn push(&mut self, key: &Key, entry: &Entry) -> usize {
        if !self.page.fits(key) {
            self.end_page();
        }
        self.page.push(key, entry);
        self.filter.add(key);
        self.entries += 1;
        self.longest = self.longest.max(KeyClass::of(key));
        self.last = Some(*key);
        self.complete.len()
    }

    fn complete(&mut self) -> &mut Vec<BuiltPage> {
        &mut self.complete
    }

    fn finish(mut self: Box<Self>, id: TableId, age: u64, out: &mut Vec<BuiltPage>) -> TableFacts {
        let max = self.last.expect("a table has at least one entry");
        self.end_page();
        let min = self.index[0].0;
        out.append(&mut self.complete);
        let bloom_pages = self.filter.pages();
        push_filter(self.filter, out);
        let records_per_page = (self.page_bytes - INDEX_HEAD_BYTES) / RECORD_BYTES;
        let mut fences = Vec::new();
        for (number, records) in (0..).zip(self.index.chunks(records_per_page)) {
            let mut bytes = Vec::with_capacity(INDEX_HEAD_BYTES + records.len() * RECORD_BYTES);
            bytes.extend_from_slice(&(records.len() as u16).to_le_bytes());
            for (first, addresses) in records {
                let mut bounds = [0; 12];
                addresses.encode(&mut bounds);
                bytes.push(first.len() as u8);
                bytes.extend_from_slice(&first.to_array());
                bytes.extend_from_slice(&bounds);
            }
            if number > 0 {
                fences.push(records[0].0);
            }
            out.push(BuiltPage::new(Part::Index, number, bytes, records[0].0, AddressBounds::NONE));
        }
        TableFacts {
            id,
            age,
            entries: self.entries,
            min,
            max,
            addresses: self.addresses,
            data_pages: self.data_pages,
            index_pages: fences.len() as u32 + 1,
            bloom_pages,
            fences: Rc::from(fences),
            longest: self.longest,
        }
    }
}

/// Which data pages a scan visits.
enum Plan {
    /// All from `next` on.
    Walk,
    /// First find the page where `from` would be, by way of this index page.
    Seek { from: Key, index_page: u32 },
    /// Then begin on that page, `next`, at the first entry that is not below `from`.
    Arrive { from: Key },
    /// First collect the pages whose bounds touch the addresses, from this index page on.
    Pick { addresses: Range<Vaddr>, index_page: u32, chosen: Vec<u32> },
    /// Then visit them, from the end of the list.
    Visit { chosen: Vec<u32> },
}

struct SoundScan {
    data_pages: u32,
    index_pages: u32,
    records_per_page: u32,
    plan: Plan,
    /// The data page to visit next.
    next: u32,
    /// The data page being walked, and the place on it.
    page: Option<(PageBytes, PagePosition)>,
    /// The page that was asked for.
    given: Option<PageBytes>,
}

impl SoundScan {
    fn next_page(&mut self) -> Option<u32> {
        match &mut self.plan {
            Plan::Visit { chosen } => chosen.pop(),
            _ if self.next < self.data_pages => {
                self.next += 1;
                Some(self.next - 1)
            }
            _ => None,
        }
    }

    /// Uses the page just given. If it was not a data page, returns the step that reads the next page.
    fn proceed(&mut self) -> Result<Option<ScanStep>, Damaged> {
        let given = self.given.take();
        match (&mut self.plan, given) {
            (Plan::Seek { index_page, .. }, None) => {
                return Ok(Some(ScanStep::Read(Part::Index, *index_page)));
            }
            (Plan::Seek { from, index_page }, Some(page)) => {
                let record = last_record_at_or_below(page.view(), from)?.unwrap_or(0);
                self.next = *index_page * self.records_per_page + record;
                self.plan = Plan::Arrive { from: *from };
                if self.next >= self.data_pages {
                    return Err(Damaged);
                }
            }
            (Plan::Arrive { .. }, None) => return Ok(Some(ScanStep::Read(Part::Data, self.next))),
            (Plan::Arrive { from }, Some(page)) => {
                let walk = PagePosition::seek(page.view(), from)?;
                self.page = Some((page, walk));
                self.next += 1;
                self.plan = Plan::Walk;
            }
            (Plan::Pick { index_page, chosen, .. }, None) if *index_page == self.index_pages => {
                chosen.reverse();
                self.plan = Plan::Visit { chosen: std::mem::take(chosen) };
            }
            (Plan::Pick { index_page, .. }, None) => {
                return Ok(Some(ScanStep::Read(Part::Index, *index_page)));
            }
            (Plan::Pick { addresses, index_page, chosen }, Some(page)) => {
                for record in 0..u16_at(page.view(), 0)? {
                    let (_, bounds) = record_at(page.view(), record.into())?;
                    let number = *index_page * self.records_per_page + u32::from(record);
                    if bounds.touches(addresses) && number < self.data_pages {
                        chosen.push(number);
                    }
                }
                *index_page += 1;
            }
            (Plan::Walk | Plan::Visit { .. }, None) => {
                let next = self.next_page();
                return Ok(Some(next.map_or(ScanStep::End, |number| ScanStep::Read(Part::Data, number))));
            }
            (Plan::Walk | Plan::Visit { .. }, Some(page)) => {
                let walk = PagePosition::first(page.view())?;
                self.page = Some((page, walk));
            }
        }
        Ok(None)
    }
}

impl Scan for SoundScan {
    fn step(&mut self, out: &mut Vec<Pair>) -> Result<ScanStep, Damaged> {
        loop {
            if let Some((page, walk)) = &mut self.page {
                let (page, before) = (page.view(), out.len());
                while out.len() < before + SCAN_CHUNK
                    && let Some(pair) = walk.next(page)?
                {
                    out.push(pair);
                }
                if out.len() > before {
                    return Ok(ScanStep::Entries);
                }
                self.page = None;
            }
            if let Some(step) = self.proceed()? {
                return Ok(step);
            }
        }
    }

    fn give(&mut self, page: PageBytes) {
        self.given = Some(page);
    }

    fn skip(&mut self) {
        (self.given, self.page) = (None, None);
        match &mut self.plan {
            // The place of the key is unknown: the scan begins at the first data page of the lost index page.
            Plan::Seek { index_page, .. } => {
                self.next = *index_page * self.records_per_page;
                self.plan = Plan::Walk;
            }
            Plan::Arrive { .. } => {
                self.next += 1;
                self.plan = Plan::Walk;
            }
            Plan::Pick { index_page, .. } => *index_page += 1,
            // The scan moved past the page when it requested it.
            Plan::Walk | Plan::Visit { .. } => {}
        }
    }
}
