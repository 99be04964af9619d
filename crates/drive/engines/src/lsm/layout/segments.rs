//! Layout `segments`: a table is a row of meta segments of one page each, which a list of their first keys in DRAM leads
//! to (PinK, USENIX ATC'20, after its public submission).
//!
//! ```text
//!   data page    entries u16 | offset u16 ... up to byte 1024 | entry ... | free      a meta segment
//!   ... of keys of one length, the first bit of `entries` set:
//!                entries u16 | key length u16 | entry ... | free | bytes of keys behind their 16th
//!   entry        tombstone 1 bit, length 23, address 40 | key (its first 16 B)
//!   index page   two, empty: their tags have the table's lowest key, and its footer with the highest; so each data page
//!                has its own first key in its tag
//! ```
//!
//! Keys of one length need no offsets, and their bytes behind the 16th are zeros: neither takes memory of this program at
//! the end of a page. What fits a page is the same.
//!
//! The header of 1 KiB with an offset for each entry is PinK's; a page of less than 4 KiB has a quarter of it as header.
//! PinK's entry has 4 B beside its key: a unit of 512 B, in whose spare area the length is. The value log here addresses
//! bytes and keeps no lengths, so the entry has 4 B more: a page of 8 KiB has 179 entries of 32 B keys instead of 199.
//!
//! A lookup reads one page of each table. There is no filter, and no bounds of addresses by page: collection reads whole
//! tables.

use std::rc::Rc;

use kvdrive_nvme::{Key, Status};

use super::{
    Build, BuiltPage, Damaged, KeyClass, Layout, Lists, PageBytes, Part, ProbeStep, Scan, ScanStep, Start,
    TableShape,
};
use super::{SCAN_CHUNK, TableFacts, View, Want};
use crate::lsm::entry::{AddressBounds, Entry, TableId};
use crate::lsm::memtable::Pair;
use crate::value_log::Vaddr;

const ADDRESS_BITS: u32 = 40;
/// The first address that an entry cannot hold.
pub const REACH_BYTES: u64 = 1 << ADDRESS_BITS;
const LENGTH_BITS: u32 = 23;
/// Largest length.
pub const LENGTH_MAX_BYTES: u32 = (1 << LENGTH_BITS) - 1;
const TOMBSTONE: u64 = 1 << 63;
/// Bytes of an entry besides its key.
const FIXED_BYTES: usize = 8;
const OFFSET_BYTES: usize = 2;
const HEADER_MAX_BYTES: usize = 1024;
/// In the number of entries: all keys have the length that follows it.
const OF_ONE_LENGTH: u16 = 1 << 15;
/// Where the entries of such a page begin.
const ONE_LENGTH_HEADER_BYTES: usize = 4;

/// The layout for pages of one size.
pub struct Segments {
    page_bytes: usize,
}

impl Segments {
    pub(super) fn new(shape: TableShape) -> Segments {
        Segments { page_bytes: shape.page_bytes as usize }
    }

    /// Entries of a page if all keys are as long as these can be.
    fn entries_per_page(&self, longest: KeyClass) -> usize {
        let room = self.page_bytes - header_bytes(self.page_bytes);
        (room / (FIXED_BYTES + longest.most_bytes())).min(most_entries(self.page_bytes))
    }
}

/// Bytes of the header of a page.
fn header_bytes(page_bytes: usize) -> usize {
    HEADER_MAX_BYTES.min(page_bytes / 4)
}

/// Entries whose offsets the header holds.
fn most_entries(page_bytes: usize) -> usize {
    header_bytes(page_bytes) / OFFSET_BYTES - 1
}

impl Layout for Segments {
    fn accept(&self, key: &Key, address: Vaddr, bytes: u32) -> Result<(), Status> {
        if self.entries_per_page(KeyClass::of(key)) == 0 {
            return Err(Status::INVALID_KEY_SIZE);
        }
        if bytes > LENGTH_MAX_BYTES {
            return Err(Status::INVALID_VALUE_SIZE);
        }
        if address.0 >= REACH_BYTES { Err(Status::CAPACITY_EXCEEDED) } else { Ok(()) }
    }

    fn build(&self, _: u32) -> Box<dyn Build> {
        Box::new(SegmentsBuild {
            page: Segment::new(self.page_bytes),
            firsts: Vec::new(),
            entries: 0,
            last: None,
            longest: KeyClass::default(),
            addresses: AddressBounds::NONE,
            complete: Vec::new(),
        })
    }

    fn pages_at_most(&self, entries: u32, longest: KeyClass) -> u32 {
        entries.div_ceil(self.entries_per_page(longest) as u32) + 2
    }

    fn lists(&self) -> Lists {
        Lists::DataPages
    }

    fn scan(&self, table: &TableFacts, start: Start) -> Box<dyn Scan> {
        let (from, next) = match start {
            Start::Key(from) => (Some(from), segment_of(table, &from)),
            Start::First | Start::Addresses(_) => (None, 0),
        };
        Box::new(SegmentsScan { data_pages: table.data_pages, from, next, page: None })
    }

    fn probe(&self, table: &TableFacts, key: &Key, _: bool) -> ProbeStep {
        let number = segment_of(table, key);
        ProbeStep::Read(Want { part: Part::Data, pages: number..number + 1, carry: 0 })
    }

    fn judge(
        &self,
        table: &TableFacts,
        key: &Key,
        want: &Want,
        pages: &[PageBytes],
    ) -> Result<ProbeStep, Damaged> {
        let page = pages.first().ok_or(Damaged)?.view();
        let at = rank_of(page, key)?;
        if at == entries_of(page)? {
            return Ok(match is_next_lost(table, want.pages.start) {
                true => ProbeStep::Read(Want { pages: want.pages.end..want.pages.end + 1, ..want.clone() }),
                false => ProbeStep::Absent,
            });
        }
        let (found, entry) = entry_at(page, at)?;
        Ok(if found == *key { ProbeStep::Found(entry) } else { ProbeStep::Absent })
    }
}

/// The data page where `key` would be.
fn segment_of(table: &TableFacts, key: &Key) -> u32 {
    table.fences.partition_point(|first| first <= key) as u32
}

/// Was the page after this one not found after a power cut? Its keys then lead to this page (recovery of `lsm`).
fn is_next_lost(table: &TableFacts, number: u32) -> bool {
    let from = number as usize;
    match table.fences.get(from..) {
        Some([next, after, ..]) => next == after,
        Some([next]) => *next == Key::HIGHEST,
        _ => false,
    }
}

fn entries_of(page: View<'_>) -> Result<usize, Damaged> {
    let entries = usize::from(page.array(0).map(u16::from_le_bytes)? & !OF_ONE_LENGTH);
    if entries > most_entries(page.page_bytes()) { Err(Damaged) } else { Ok(entries) }
}

/// Where an entry begins, or the last one ends.
fn offset_of(page: View<'_>, rank: usize) -> Result<usize, Damaged> {
    page.array(OFFSET_BYTES * rank).map(u16::from_le_bytes).map(usize::from)
}

/// Where entry `rank` begins, and the length of its key.
fn place_of(page: View<'_>, rank: usize) -> Result<(usize, usize), Damaged> {
    if page.array(0).map(u16::from_le_bytes)? & OF_ONE_LENGTH != 0 {
        let key_bytes = offset_of(page, 1)?;
        let entry_bytes = FIXED_BYTES + key_bytes.min(Key::IDENTITY_BYTES);
        return Ok((ONE_LENGTH_HEADER_BYTES + rank * entry_bytes, key_bytes));
    }
    let begin = if rank == 0 { header_bytes(page.page_bytes()) } else { offset_of(page, rank)? };
    let end = offset_of(page, rank + 1)?;
    let key_bytes = end.checked_sub(begin + FIXED_BYTES).ok_or(Damaged)?;
    if end > page.page_bytes() { Err(Damaged) } else { Ok((begin, key_bytes)) }
}

fn key_at(page: View<'_>, rank: usize) -> Result<Key, Damaged> {
    let (begin, key_bytes) = place_of(page, rank)?;
    let padded =
        page.array(begin + FIXED_BYTES).or_else(|Damaged| padded_at_end(page, begin + FIXED_BYTES))?;
    Key::from_padded(padded, key_bytes).ok_or(Damaged)
}

/// The last bytes of a page, zero padded.
#[cold]
fn padded_at_end(page: View<'_>, from: usize) -> Result<[u8; Key::IDENTITY_BYTES], Damaged> {
    let mut padded = [0; Key::IDENTITY_BYTES];
    for (at, byte) in (from..page.page_bytes()).zip(&mut padded) {
        [*byte] = page.array(at)?;
    }
    Ok(padded)
}

fn entry_at(page: View<'_>, rank: usize) -> Result<(Key, Entry), Damaged> {
    let (begin, _) = place_of(page, rank)?;
    let word = page.array(begin).map(u64::from_le_bytes)?;
    let key = key_at(page, rank)?;
    if word & TOMBSTONE != 0 {
        return Ok((key, Entry::removal(0)));
    }
    let address = Vaddr(word & (REACH_BYTES - 1));
    Ok((key, Entry { address, bytes: (word >> ADDRESS_BITS) as u32, sequence: 0, tombstone: false }))
}

/// Rank of the first entry that is not below `key`.
fn rank_of(page: View<'_>, key: &Key) -> Result<usize, Damaged> {
    let (mut low, mut high) = (0, entries_of(page)?);
    while low < high {
        let middle = low + (high - low) / 2;
        if key_at(page, middle)? < *key { low = middle + 1 } else { high = middle }
    }
    Ok(low)
}

/// The page that is being filled.
struct Segment {
    page_bytes: usize,
    /// Entries, each with the first 16 B of its key at most.
    entries: Vec<u8>,
    /// Lengths of their keys.
    lengths: Vec<u8>,
    /// Bytes that header and entries take on the page.
    taken: usize,
    first: Option<Key>,
    addresses: AddressBounds,
}

impl Segment {
    fn new(page_bytes: usize) -> Segment {
        let (entries, lengths, taken) = (Vec::new(), Vec::new(), header_bytes(page_bytes));
        Segment { page_bytes, entries, lengths, taken, first: None, addresses: AddressBounds::NONE }
    }

    fn fits(&self, key: &Key) -> bool {
        self.taken + FIXED_BYTES + key.len() <= self.page_bytes
            && self.lengths.len() < most_entries(self.page_bytes)
    }

    fn push(&mut self, key: &Key, entry: &Entry) {
        let word = match entry.tombstone {
            true => TOMBSTONE,
            false => u64::from(entry.bytes) << ADDRESS_BITS | entry.address.0,
        };
        self.entries.extend_from_slice(&word.to_le_bytes());
        self.entries.extend_from_slice(&key.to_array()[..key.len().min(Key::IDENTITY_BYTES)]);
        self.lengths.push(key.len() as u8);
        self.taken += FIXED_BYTES + key.len();
        self.first.get_or_insert(*key);
        self.addresses.cover(entry);
    }

    fn finish(self) -> (Vec<u8>, Key, AddressBounds) {
        let first = self.first.expect("a segment has at least one entry");
        let bytes = match self.lengths.iter().all(|length| *length == self.lengths[0]) {
            true => self.of_one_length(),
            false => self.with_offsets(),
        };
        (bytes, first, self.addresses)
    }

    fn of_one_length(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ONE_LENGTH_HEADER_BYTES + self.entries.len());
        bytes.extend_from_slice(&(self.lengths.len() as u16 | OF_ONE_LENGTH).to_le_bytes());
        bytes.extend_from_slice(&u16::from(self.lengths[0]).to_le_bytes());
        bytes.extend_from_slice(&self.entries);
        bytes
    }

    fn with_offsets(&self) -> Vec<u8> {
        let mut bytes = vec![0; header_bytes(self.page_bytes)];
        bytes[..OFFSET_BYTES].copy_from_slice(&(self.lengths.len() as u16).to_le_bytes());
        let mut from = 0;
        for (rank, length) in self.lengths.iter().map(|length| usize::from(*length)).enumerate() {
            let to = from + FIXED_BYTES + length.min(Key::IDENTITY_BYTES);
            bytes.extend_from_slice(&self.entries[from..to]);
            bytes.resize(bytes.len() + length.saturating_sub(Key::IDENTITY_BYTES), 0);
            // A page of 64 KiB ends at 0.
            let end = (bytes.len() as u16).to_le_bytes();
            bytes[OFFSET_BYTES * (rank + 1)..][..OFFSET_BYTES].copy_from_slice(&end);
            from = to;
        }
        bytes
    }
}

struct SegmentsBuild {
    page: Segment,
    /// First key of every page that is complete.
    firsts: Vec<Key>,
    entries: u32,
    last: Option<Key>,
    longest: KeyClass,
    addresses: AddressBounds,
    complete: Vec<BuiltPage>,
}

impl SegmentsBuild {
    fn end_page(&mut self) {
        let next = Segment::new(self.page.page_bytes);
        let (bytes, first, addresses) = std::mem::replace(&mut self.page, next).finish();
        self.addresses.join(&addresses);
        let number = self.firsts.len() as u32;
        self.firsts.push(first);
        self.complete.push(BuiltPage::new(Part::Data, number, bytes, first, addresses));
    }
}

impl Build for SegmentsBuild {
    fn push(&mut self, key: &Key, entry: &Entry) -> usize {
        if !self.page.fits(key) {
            self.end_page();
        }
        self.page.push(key, entry);
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
        out.append(&mut self.complete);
        let min = self.firsts[0];
        out.extend(
            [0, 1].map(|number| BuiltPage::new(Part::Index, number, Vec::new(), min, AddressBounds::NONE)),
        );
        TableFacts {
            id,
            age,
            entries: self.entries,
            min,
            max,
            addresses: self.addresses,
            data_pages: self.firsts.len() as u32,
            index_pages: 2,
            bloom_pages: 0,
            fences: Rc::from(&self.firsts[1..]),
            longest: self.longest,
        }
    }
}

struct SegmentsScan {
    data_pages: u32,
    /// The key that the next page is to be searched for.
    from: Option<Key>,
    /// The data page to visit next.
    next: u32,
    /// The page that is being walked, and the rank of its next entry.
    page: Option<(PageBytes, usize)>,
}

impl Scan for SegmentsScan {
    fn step(&mut self, out: &mut Vec<Pair>) -> Result<ScanStep, Damaged> {
        if let Some((page, rank)) = &mut self.page {
            let view = page.view();
            if let Some(from) = self.from.take() {
                *rank = rank_of(view, &from)?;
            }
            let end = entries_of(view)?.min(*rank + SCAN_CHUNK);
            if *rank < end {
                for at in *rank..end {
                    out.push(entry_at(view, at)?);
                }
                *rank = end;
                return Ok(ScanStep::Entries);
            }
            self.page = None;
        }
        if self.next == self.data_pages {
            return Ok(ScanStep::End);
        }
        self.next += 1;
        Ok(ScanStep::Read(Part::Data, self.next - 1))
    }

    fn give(&mut self, page: PageBytes) {
        self.page = Some((page, 0));
    }

    fn skip(&mut self) {
        (self.page, self.from) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::tests::build;
    use super::*;
    use crate::lsm::bloom::BloomConfig;

    #[test]
    fn keys_of_one_length_take_less_memory_and_as_many_pages() {
        let bloom = BloomConfig { bits_per_key: 0, hashes: 1 };
        let layout = Segments::new(TableShape { page_bytes: 8192, bloom });
        for (lengths, memory) in [([32, 32], 4000..=4 + 179 * 24), ([31, 33], 8000..=8192)] {
            let pairs: BTreeMap<_, _> = (1..=1000)
                .map(|number: u64| {
                    let padded = (u128::from(number) << 64 | u128::MAX >> 64).to_be_bytes();
                    let key = Key::from_padded(padded, lengths[number as usize % 2]).unwrap();
                    (key, Entry { address: Vaddr(512 * number), bytes: 984, sequence: 0, tombstone: false })
                })
                .collect();
            let held = build(&layout, 8192, &pairs);
            // 179 entries a page.
            assert_eq!(held.facts.data_pages, 6);
            let first = held.pages[&(Part::Data, 0)].view();
            assert_eq!(entries_of(first).ok(), Some(179));
            assert!(memory.contains(&first.bytes.len()), "{lengths:?}: {}", first.bytes.len());
            assert!(held.scan(&layout, Start::First).into_iter().eq(pairs));
        }
    }
}
