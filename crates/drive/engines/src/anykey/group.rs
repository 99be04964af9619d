//! A group on flash: what DRAM knows of it, the tags of its pages, and how it is built and read.
//!
//! ```text
//!   tag, 48 bytes in the spare area of every page, little endian
//!    0..4   group              4..6  page of the group      6..8  data pages      8  index pages
//!    9..11  upper 16 bits of the first hash of a data page
//!   11      length of a key   12..28 that key: of even pages the lowest of the group, of odd ones the highest
//!   28..40  bounds of the addresses in the group
//!   40..44  records           44..48 records of deleted keys
//! ```
//!
//! Index pages come first, then data pages. The tags are enough to find a group again after a power cut, with one page of
//! each parity: a group has two pages at least.

use std::cell::Cell;
use std::rc::Rc;

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_content::Region;
use kvdrive_flash::Purpose;
use kvdrive_flash::ftl::Lpa;
use kvdrive_flash::media::PageData;
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::{Sim, TaskCell, join_all};

use super::page::{DataPage, Page, Record, decode_index, encode_index, hash_of};
use crate::lsm::entry::AddressBounds;
use crate::lsm::space::TableSpace;
use crate::value_log::SegmentId;

/// Names a group. Ids ascend, and none is given out twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, BorshSerialize, BorshDeserialize)]
pub struct GroupId(pub u32);

/// The segments of the value log that a group names.
#[derive(Clone, Debug)]
pub enum References {
    /// These, in order; also such as only records name that have gone on to another level.
    Exact(Vec<SegmentId>),
    /// After power-on: any within the bounds.
    Within(AddressBounds),
}

/// What is known of a group without reading it.
#[derive(Clone, Debug)]
pub struct Facts {
    pub id: GroupId,
    pub lowest: Key,
    pub highest: Key,
    pub records: u32,
    /// Records of deleted keys.
    pub gone: u32,
    pub addresses: AddressBounds,
    pub index_pages: u32,
    /// Upper 16 bits of the first hash of each data page; `None`: the page is lost.
    pub first_hashes: Box<[Option<u16>]>,
}

/// A group that exists. Each reader holds an `Rc`: its pages are given back when the last one goes after it was replaced.
pub struct Group {
    pub facts: Facts,
    /// Index pages, then data pages; `None`: not found after a power cut.
    places: Box<[Option<Lpa>]>,
    /// The hashes of its keys in ascending order, if its level keeps them.
    pub hashes: TaskCell<Option<Rc<[u32]>>>,
    pub references: TaskCell<References>,
    space: Rc<TableSpace>,
    is_replaced: Cell<bool>,
}

/// A group in a level: all of it, or its keys above `after`, since the others have gone on to the next level.
#[derive(Clone)]
pub struct Member {
    pub group: Rc<Group>,
    pub after: Option<Key>,
}

impl Member {
    /// May the key be among its records?
    pub fn covers(&self, key: &Key) -> bool {
        let facts = &self.group.facts;
        facts.lowest <= *key && *key <= facts.highest && self.after.is_none_or(|after| after < *key)
    }

    pub fn id(&self) -> GroupId {
        self.group.facts.id
    }

    /// Do both have room for one key?
    pub fn overlaps(&self, other: &Member) -> bool {
        let (ours, theirs) = (&self.group.facts, &other.group.facts);
        ours.lowest <= theirs.highest && theirs.lowest <= ours.highest
    }
}

/// The tag of a page.
#[derive(Clone, Debug)]
pub struct Tag {
    pub id: GroupId,
    pub number: u16,
    pub data_pages: u16,
    pub index_pages: u8,
    pub first_hash: u16,
    pub key: Key,
    pub addresses: AddressBounds,
    pub records: u32,
    pub gone: u32,
}

impl Tag {
    fn encode(&self) -> [u8; 48] {
        let mut bytes = [0; 48];
        bytes[..4].copy_from_slice(&self.id.0.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.number.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.data_pages.to_le_bytes());
        bytes[8] = self.index_pages;
        bytes[9..11].copy_from_slice(&self.first_hash.to_le_bytes());
        bytes[11] = self.key.len() as u8;
        bytes[12..28].copy_from_slice(&self.key.to_array());
        let mut bounds = [0; 12];
        self.addresses.encode(&mut bounds);
        bytes[28..40].copy_from_slice(&bounds);
        bytes[40..44].copy_from_slice(&self.records.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.gone.to_le_bytes());
        bytes
    }

    /// `None` if no page of a group has such a tag.
    pub fn decode(bytes: &[u8; 48]) -> Option<Tag> {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let key = Key::from_padded(std::array::from_fn(|byte| bytes[12 + byte]), bytes[11].into())?;
        let tag = Tag {
            id: GroupId(word(0)),
            number: half(4),
            data_pages: half(6),
            index_pages: bytes[8],
            first_hash: half(9),
            key,
            addresses: AddressBounds::decode(&std::array::from_fn(|byte| bytes[28 + byte])),
            records: word(40),
            gone: word(44),
        };
        let is_page = tag.number < tag.data_pages.saturating_add(tag.index_pages.into());
        (is_page && tag.data_pages > 0 && tag.index_pages > 0).then_some(tag)
    }
}

/// A group that is to be written: its facts, its hashes, and its pages with their tags.
pub struct Built {
    pub facts: Facts,
    pub hashes: Rc<[u32]>,
    pub segments: Vec<SegmentId>,
    pub pages: Vec<(PageData, [u8; 48])>,
}

/// Sorts records, which are in the order of their keys, by hash and fills pages with them.
pub fn build(
    id: GroupId,
    records: Vec<Record>,
    page_bytes: u32,
    segment_of: impl Fn(crate::value_log::Vaddr) -> SegmentId,
) -> Built {
    let (lowest, highest) = (records[0].key, records[records.len() - 1].key);
    let (mut addresses, mut segments) = (AddressBounds::NONE, Vec::new());
    for (address, bytes) in records.iter().filter_map(Record::logged) {
        addresses.join(&AddressBounds { low: address.0, high: address.0 + u64::from(bytes) });
        segments.push(segment_of(address));
    }
    segments.sort_unstable();
    segments.dedup();
    let gone = records.iter().filter(|record| record.is_gone()).count() as u32;
    let count = records.len();
    let mut by_hash: Vec<(u32, u16, Record)> =
        (0..).zip(records).map(|(rank, record)| (hash_of(&record.key), rank, record)).collect();
    by_hash.sort_unstable_by_key(|(hash, rank, _)| (*hash, *rank));
    let hashes = by_hash.iter().map(|(hash, ..)| *hash).collect();
    let mut places = vec![(0, 0); count];
    let (mut data, mut page) = (Vec::new(), DataPage::new(page_bytes));
    for (hash, rank, record) in by_hash {
        if !page.fits(&record) {
            data.push(std::mem::replace(&mut page, DataPage::new(page_bytes)));
        }
        let slot = page.push(hash, rank, record);
        places[usize::from(rank)] = (data.len() as u16, slot);
    }
    data.push(page);
    let index = encode_index(&places, page_bytes);
    let facts = Facts {
        id,
        lowest,
        highest,
        records: count as u32,
        gone,
        addresses,
        index_pages: index.len() as u32,
        first_hashes: data.iter().map(|page| Some((page.first_hash() >> 16) as u16)).collect(),
    };
    let index_pages = index.len() as u16;
    let firsts =
        std::iter::repeat_n(0, index.len()).chain(data.iter().map(DataPage::first_hash)).collect::<Vec<_>>();
    let data = (index_pages..).zip(data).map(|(number, page)| page.encode(id.0, number));
    let regions = index.into_iter().chain(data.collect::<Vec<_>>());
    let pages = (0..).zip(regions).zip(firsts).map(|((number, region), first): ((u16, Region), u32)| {
        let tag = Tag {
            id,
            number,
            data_pages: facts.first_hashes.len() as u16,
            index_pages: index_pages as u8,
            first_hash: (first >> 16) as u16,
            key: if number % 2 == 0 { lowest } else { highest },
            addresses,
            records: count as u32,
            gone,
        };
        (PageData::from(Rc::new(region)), tag.encode())
    });
    let pages = pages.collect();
    Built { facts, hashes, segments, pages }
}

impl Group {
    pub fn new(
        facts: Facts,
        places: Box<[Option<Lpa>]>,
        references: References,
        space: Rc<TableSpace>,
    ) -> Group {
        Group {
            facts,
            places,
            hashes: TaskCell::new(None),
            references: TaskCell::new(references),
            space,
            is_replaced: Cell::new(false),
        }
    }

    /// No level has it any more: the last reader gives its pages back.
    pub fn replaced(&self) {
        self.is_replaced.set(true);
    }

    /// Pages that it takes.
    pub fn pages(&self) -> u32 {
        self.places.len() as u32
    }

    /// Does a page of it lie in these?
    pub fn lies_in(&self, pages: &std::ops::Range<u32>) -> bool {
        self.places.iter().flatten().any(|lpa| pages.contains(&lpa.0))
    }

    /// Was a page of it, or all of them, not found after a power cut?
    pub fn has_lost_pages(&self) -> bool {
        self.places.is_empty() || self.places.contains(&None)
    }

    pub fn data_pages(&self) -> u16 {
        self.facts.first_hashes.len() as u16
    }

    /// Reads a data page.
    pub fn data_page(&self, page: u16, purpose: Purpose) -> Result<Page, Status> {
        let number = self.facts.index_pages as usize + usize::from(page);
        let place = self.places.get(number).copied().flatten();
        let region = self.space.read(place, purpose)?.into_region();
        Page::new(region, self.space.page_bytes(), self.facts.id.0, number as u16)
    }

    /// Reads the first page, which a search of the level's list on flash comes by.
    pub fn touch(&self, purpose: Purpose) -> Result<(), Status> {
        self.space.read(self.places.first().copied().flatten(), purpose).map(drop)
    }

    /// Reads the places of its records in the order of keys.
    pub fn index(&self, sim: &Sim, purpose: Purpose) -> Result<Vec<(u16, u16)>, Status> {
        let per_page = (self.space.page_bytes() / super::page::INDEX_BYTES) as usize;
        let read = |number: usize| self.space.read(self.places.get(number).copied().flatten(), purpose);
        let pages = join_all(sim, (0..self.facts.index_pages as usize).map(|number| move || read(number)));
        let (mut places, mut left) = (Vec::new(), self.facts.records as usize);
        for page in pages {
            let region = page?.into_region();
            let here = left.min(per_page);
            places.extend(decode_index(&region, here));
            left -= here;
        }
        let are_right = left == 0 && places.iter().all(|(page, _)| *page < self.data_pages());
        if are_right { Ok(places) } else { Err(Status::UNRECOVERED_ERROR) }
    }

    /// Reads all records, in the order of their keys, and learns what it refers to.
    pub fn load(
        &self,
        sim: &Sim,
        purpose: Purpose,
        segment_of: impl Fn(crate::value_log::Vaddr) -> SegmentId,
    ) -> Result<Vec<Record>, Status> {
        if self.places.is_empty() {
            return Err(Status::UNRECOVERED_ERROR);
        }
        let reads = (0..self.data_pages()).map(|page| move || self.data_page(page, purpose));
        let (mut records, mut hashes, mut segments) = (Vec::new(), Vec::new(), Vec::new());
        for page in join_all(sim, reads) {
            let page = page?;
            for slot in 0..page.records()? {
                let record = page.record(slot)?;
                segments.extend(record.logged().map(|(address, _)| segment_of(address)));
                hashes.push(page.hash(slot)?);
                records.push(record);
            }
        }
        if records.len() != self.facts.records as usize {
            return Err(Status::UNRECOVERED_ERROR);
        }
        records.sort_unstable_by_key(|record| record.key);
        segments.sort_unstable();
        segments.dedup();
        *self.references.borrow_mut() = References::Exact(segments);
        if self.hashes.borrow().is_none() {
            *self.hashes.borrow_mut() = Some(hashes.into());
        }
        Ok(records)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.is_replaced.get() {
            let places: Vec<Lpa> = self.places.iter().copied().flatten().collect();
            self.space.release(&places);
        }
    }
}
