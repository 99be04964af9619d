//! Pages of a group: records sorted by hash, and an index of them in the order of keys. Bytes only; no I/O.
//!
//! ```text
//!   data page   head, 16 B: records u16, number of the page u16, group u32, zeros
//!               16 B a record: hash u32, bytes of the value u32, key at u16, value at u16, length of the key u8, kind u8,
//!               rank among the group's keys u16
//!               keys, each with the address of its value (8 B) if that is in the log; then values
//!   index page  4 B a record, in the order of keys: data page u16, place on it u16
//! ```

use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::{Key, Status};

use crate::lsm::entry::{Entry, key_hash};
use crate::value_log::Vaddr;

pub const HEAD_BYTES: u32 = 16;
const RECORD_BYTES: u32 = 16;
const ADDRESS_BYTES: u32 = 8;
pub const INDEX_BYTES: u32 = 4;

/// The hash by which a group is sorted.
#[inline]
pub fn hash_of(key: &Key) -> u32 {
    (key_hash(key) >> 32) as u32
}

/// What a record says of its key.
#[derive(Clone, Debug)]
pub enum Content {
    /// It was deleted.
    Gone,
    /// The value is in the log.
    Logged { address: Vaddr, bytes: u32 },
    /// The value lies in this memory: a page of the group, or values that were fetched.
    Here { region: Rc<Region>, at: u32, bytes: u32 },
}

/// A key and its newest state in a group or a memtable.
#[derive(Clone, Debug)]
pub struct Record {
    pub key: Key,
    pub content: Content,
}

impl Record {
    /// Of an entry of a memtable.
    pub fn of_entry((key, entry): &(Key, Entry)) -> Record {
        let content = match entry.tombstone {
            true => Content::Gone,
            false => Content::Logged { address: entry.address, bytes: entry.bytes },
        };
        Record { key: *key, content }
    }

    /// The bytes in the log that it refers to.
    pub fn logged(&self) -> Option<(Vaddr, u32)> {
        match self.content {
            Content::Logged { address, bytes } if bytes > 0 => Some((address, bytes)),
            _ => None,
        }
    }

    pub fn is_gone(&self) -> bool {
        matches!(self.content, Content::Gone)
    }

    /// Its bytes on a data page.
    pub fn page_bytes(&self) -> u32 {
        let content = match self.content {
            Content::Gone => 0,
            Content::Logged { .. } => ADDRESS_BYTES,
            Content::Here { bytes, .. } => bytes,
        };
        record_bytes(&self.key, content)
    }
}

fn record_bytes(key: &Key, content_bytes: u32) -> u32 {
    RECORD_BYTES + key.len() as u32 + content_bytes
}

/// May a value of this size lie in a group? At least two records fit a page then.
pub fn fits_group(key: &Key, bytes: u32, page_bytes: u32) -> bool {
    record_bytes(key, 0) <= page_bytes
        && bytes <= (page_bytes - HEAD_BYTES) / 2
        && record_bytes(key, bytes) <= (page_bytes - HEAD_BYTES) / 2
}

/// The sizes of records that are to become a group.
#[derive(Clone, Copy, Default)]
pub struct Sizes {
    pub records: u32,
    bytes: u64,
    largest: u32,
}

impl Sizes {
    pub fn add(&mut self, record_bytes: u32) {
        self.records += 1;
        self.bytes += u64::from(record_bytes);
        self.largest = self.largest.max(record_bytes);
    }

    /// The most pages that a group of them takes: each data page but the last has no room for the largest.
    pub fn pages_at_most(&self, page_bytes: u32) -> u32 {
        let filled = u64::from(page_bytes - HEAD_BYTES - self.largest + 1);
        let data = (self.bytes / filled) as u32 + 1;
        data + (self.records * INDEX_BYTES).div_ceil(page_bytes)
    }
}

const GONE: u8 = 0;
const LOGGED: u8 = 1;
const HERE: u8 = 2;

/// A data page being filled.
pub struct DataPage {
    page_bytes: u32,
    used_bytes: u32,
    records: Vec<(u32, u16, Record)>,
}

impl DataPage {
    pub fn new(page_bytes: u32) -> DataPage {
        DataPage { page_bytes, used_bytes: HEAD_BYTES, records: Vec::new() }
    }

    pub fn fits(&self, record: &Record) -> bool {
        self.used_bytes + record.page_bytes() <= self.page_bytes
    }

    /// Adds a record and says at which place it is.
    pub fn push(&mut self, hash: u32, rank: u16, record: Record) -> u16 {
        self.used_bytes += record.page_bytes();
        self.records.push((hash, rank, record));
        self.records.len() as u16 - 1
    }

    pub fn first_hash(&self) -> u32 {
        self.records.first().map_or(0, |(hash, ..)| *hash)
    }

    /// The page `number` of group `id`.
    pub fn encode(self, id: u32, number: u16) -> Region {
        let count = self.records.len() as u32;
        let mut bytes = vec![0; (HEAD_BYTES + count * RECORD_BYTES) as usize];
        bytes[..2].copy_from_slice(&(count as u16).to_le_bytes());
        bytes[2..4].copy_from_slice(&number.to_le_bytes());
        bytes[4..8].copy_from_slice(&id.to_le_bytes());
        let mut keys_at = Vec::with_capacity(count as usize);
        for (_, _, record) in &self.records {
            keys_at.push(bytes.len() as u32);
            bytes.extend_from_slice(&record.key.to_array()[..record.key.len().min(Key::IDENTITY_BYTES)]);
            bytes.resize(bytes.len() + record.key.tail_bytes(), 0);
            if let Content::Logged { address, .. } = &record.content {
                bytes.extend_from_slice(&address.0.to_le_bytes());
            }
        }
        let mut value_at = bytes.len() as u32;
        let mut values = Vec::new();
        for (slot, (hash, rank, record)) in self.records.iter().enumerate() {
            let (kind, value_bytes) = match &record.content {
                Content::Gone => (GONE, 0),
                Content::Logged { bytes, .. } => (LOGGED, *bytes),
                Content::Here { region, at, bytes } => {
                    values.push((value_at, region.clone(), *at, *bytes));
                    (HERE, *bytes)
                }
            };
            let head = &mut bytes[(HEAD_BYTES + slot as u32 * RECORD_BYTES) as usize..][..16];
            head[..4].copy_from_slice(&hash.to_le_bytes());
            head[4..8].copy_from_slice(&value_bytes.to_le_bytes());
            head[8..10].copy_from_slice(&(keys_at[slot] as u16).to_le_bytes());
            head[10..12].copy_from_slice(&(value_at as u16).to_le_bytes());
            head[12] = record.key.len() as u8;
            head[13] = kind;
            head[14..16].copy_from_slice(&rank.to_le_bytes());
            if kind == HERE {
                value_at += value_bytes;
            }
        }
        let mut page = Region::from_bytes(bytes);
        for (to, region, at, bytes) in values {
            let mut to = to;
            region.read(at, bytes, &mut |piece: Piece<'_>| {
                page.write(to, piece);
                to += piece.bytes();
            });
        }
        page
    }
}

/// A data page that was read.
#[derive(Clone)]
pub struct Page {
    region: Rc<Region>,
    page_bytes: u32,
}

/// A record's head.
#[derive(Clone, Copy)]
struct Head {
    hash: u32,
    value_bytes: u32,
    key_at: u32,
    value_at: u32,
    key_bytes: usize,
    kind: u8,
}

impl Page {
    /// # Errors
    /// `UNRECOVERED_ERROR`: it is not page `number` of group `id`.
    pub fn new(region: Rc<Region>, page_bytes: u32, id: u32, number: u16) -> Result<Page, Status> {
        let page = Page { region, page_bytes };
        let is_it = page.array(2) == Ok(number.to_le_bytes()) && page.array(4) == Ok(id.to_le_bytes());
        if is_it { Ok(page) } else { Err(Status::UNRECOVERED_ERROR) }
    }

    fn array<const N: usize>(&self, at: u32) -> Result<[u8; N], Status> {
        if at + N as u32 > self.page_bytes {
            return Err(Status::UNRECOVERED_ERROR);
        }
        let mut array = [0; N];
        let there = self.region.literal().get(at as usize..).unwrap_or_default();
        let there = &there[..there.len().min(N)];
        array[..there.len()].copy_from_slice(there);
        Ok(array)
    }

    /// Records on it.
    pub fn records(&self) -> Result<u16, Status> {
        self.array(0).map(u16::from_le_bytes)
    }

    fn head(&self, slot: u16) -> Result<Head, Status> {
        let head: [u8; 16] = self.array(HEAD_BYTES + u32::from(slot) * RECORD_BYTES)?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let half = |at: usize| u32::from(u16::from_le_bytes([head[at], head[at + 1]]));
        Ok(Head {
            hash: word(0),
            value_bytes: word(4),
            key_at: half(8),
            value_at: half(10),
            key_bytes: usize::from(head[12]),
            kind: head[13],
        })
    }

    pub fn hash(&self, slot: u16) -> Result<u32, Status> {
        self.array(HEAD_BYTES + u32::from(slot) * RECORD_BYTES).map(u32::from_le_bytes)
    }

    fn key_of(&self, head: &Head) -> Result<Key, Status> {
        if head.key_at + head.key_bytes as u32 > self.page_bytes {
            return Err(Status::UNRECOVERED_ERROR);
        }
        let mut padded = [0; Key::IDENTITY_BYTES];
        let there = self.region.literal().get(head.key_at as usize..).unwrap_or_default();
        let there = &there[..there.len().min(padded.len()).min(head.key_bytes)];
        padded[..there.len()].copy_from_slice(there);
        Key::from_padded(padded, head.key_bytes).ok_or(Status::UNRECOVERED_ERROR)
    }

    pub fn key(&self, slot: u16) -> Result<Key, Status> {
        self.key_of(&self.head(slot)?)
    }

    /// The record at `slot`, whose value stays on the page.
    pub fn record(&self, slot: u16) -> Result<Record, Status> {
        let head = self.head(slot)?;
        let key = self.key_of(&head)?;
        let bytes = head.value_bytes;
        let content = match head.kind {
            GONE => Content::Gone,
            LOGGED => {
                let address = self.array(head.key_at + head.key_bytes as u32).map(u64::from_le_bytes)?;
                Content::Logged { address: Vaddr(address), bytes }
            }
            HERE if head.value_at.checked_add(bytes).is_some_and(|end| end <= self.page_bytes) => {
                Content::Here { region: self.region.clone(), at: head.value_at, bytes }
            }
            _ => return Err(Status::UNRECOVERED_ERROR),
        };
        Ok(Record { key, content })
    }

    /// The record of `key`, and whether the page before may have it, since hashes of both meet there.
    pub fn find(&self, key: &Key, hash: u32) -> Result<(Option<Record>, bool), Status> {
        let records = self.records()?;
        let (mut low, mut high) = (0, records);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.hash(middle)? < hash { low = middle + 1 } else { high = middle }
        }
        for slot in low..records {
            let head = self.head(slot)?;
            if head.hash != hash {
                break;
            }
            if self.key_of(&head)? == *key {
                return Ok((Some(self.record(slot)?), false));
            }
        }
        Ok((None, low == 0))
    }
}

/// The index pages of a group, from data page and place of each record in the order of keys.
pub fn encode_index(places: &[(u16, u16)], page_bytes: u32) -> Vec<Region> {
    let per_page = (page_bytes / INDEX_BYTES) as usize;
    let encode = |places: &[(u16, u16)]| {
        let bytes = places.iter().flat_map(|(page, slot)| {
            let ([a, b], [c, d]) = (page.to_le_bytes(), slot.to_le_bytes());
            [a, b, c, d]
        });
        Region::from_bytes(bytes.collect())
    };
    places.chunks(per_page).map(encode).collect()
}

/// The places on an index page.
pub fn decode_index(region: &Region, records: usize) -> impl Iterator<Item = (u16, u16)> + '_ {
    let bytes = region.literal();
    (0..records).map(move |index| {
        let byte = |at: usize| bytes.get(index * INDEX_BYTES as usize + at).copied().unwrap_or(0);
        (u16::from_le_bytes([byte(0), byte(1)]), u16::from_le_bytes([byte(2), byte(3)]))
    })
}
