//! Pages of records: keys with the first bytes of their values; heads from the front, values from the back.
//!
//! ```text
//!   +-------+-------+--------+--------+-----+----------------+---------+---------+
//!   | frame | owner | head 0 | head 1 | ... |      free      | value 1 | value 0 |
//!   +-------+-------+--------+--------+-----+----------------+---------+---------+
//!
//!   head    0                                             4               8
//!          +---------------------------------------------+---------------+------------------+
//!          | value bytes : 22 | key bytes - 1 : 4 | flags : 6 | sequence - page's | key, 1 to 16 B   |
//!          +---------------------------------------------+---------------+------------------+
//! ```
//!
//! A key of more than 16 B follows its length, a byte; its head has flag `CONTINUES` and 1 in the place of `key bytes -
//! 1`, where a part of a value has 0.
//!
//! A value that does not fit continues on the next page of its run: its head there has flag `CONTINUES`, no
//! key, and the number of missing bytes in `value bytes`. A part that does not end its value fills its page,
//! so the length of a part is the smaller of the missing bytes and the room left.

use std::borrow::Cow;

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::Key;
use std::rc::Rc;

use crate::frame::{self, FRAME_BYTES, Facts, Kind};
use crate::pages::{Page, PageId};
use crate::store::{MAX_VALUE_BYTES, StoreError};
use crate::value::{Part, Value};

/// Bytes of a head without its key.
pub const HEAD_BYTES: u32 = 8;

/// Bytes of a head with its key.
#[inline]
pub fn head_bytes(key: &Key) -> u32 {
    HEAD_BYTES + u32::from(key.is_long()) + key.len() as u32
}

/// In the word of a head: its key is longer than 16 B.
const LONG_KEY: u32 = Flags::CONTINUES.0 | 1 << KEY_SHIFT;
const KEY_SHIFT: u32 = 22;
const KEY_MASK: u32 = 15 << KEY_SHIFT;

fn has_long_key(word: u32) -> bool {
    word & (Flags::CONTINUES.0 | KEY_MASK) == LONG_KEY
}

const BYTES_MASK: u32 = (1 << 22) - 1;
const _: () = assert!(MAX_VALUE_BYTES <= BYTES_MASK);

/// Flags of a record, as they lie in the upper six bits of its head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// No flags.
    pub const NONE: Flags = Flags(0);
    /// The key was deleted.
    pub const TOMBSTONE: Flags = Flags(1 << 26);
    /// The value started on an earlier page.
    pub const CONTINUES: Flags = Flags(1 << 27);
    /// Member of an atomic batch: all members count, or none.
    pub const MEMBER: Flags = Flags(1 << 28);
    /// First member of its batch.
    pub const FIRST: Flags = Flags(1 << 29);
    /// Last member of its batch.
    pub const LAST: Flags = Flags(1 << 30);

    /// The record contains the position of the value instead of the value (`btree`, whose records are not
    /// members of batches).
    pub const ELSEWHERE: Flags = Flags(1 << 28);
    /// Not a pair: the key is the number of a segment whose older records do not count any more (`hashlog`).
    pub const VOID: Flags = Flags(1 << 31);

    const MASK: u32 = !((1 << 26) - 1);

    /// Both sets of flags.
    #[must_use]
    pub fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Are all of `other` set?
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Layout of pages of records.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of frame and the owner's own head.
    pub start: u32,
    /// Kind of the pages.
    pub kind: Kind,
}

/// Space that a record needs and leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Number of new pages, beyond the open one.
    pub new_pages: u32,
    /// Room left on the last of them, bytes.
    pub room: u32,
}

impl Format {
    /// Format of pages of `kind` whose owner has `own_bytes` bytes after the frame.
    pub fn new(page_bytes: u32, own_bytes: u32, kind: Kind) -> Format {
        Format { page_bytes, start: FRAME_BYTES + own_bytes, kind }
    }

    /// Room for records on an empty page.
    pub fn room(&self) -> u32 {
        self.page_bytes - self.start
    }

    /// The effect of a record on an open page with `room` bytes left (0: no page is open).
    pub fn fit(&self, room: u32, key: &Key, value_bytes: u32) -> Fit {
        let first_head = head_bytes(key);
        let (mut new_pages, mut room) = (0, room);
        if room < first_head + value_bytes.min(1) {
            (new_pages, room) = (1, self.room());
        }
        room -= first_head;
        let here = value_bytes.min(room);
        room -= here;
        let rest = value_bytes - here;
        if rest > 0 {
            let page = self.room() - HEAD_BYTES;
            new_pages += rest.div_ceil(page);
            room = page - (rest - 1) % page - 1;
        }
        Fit { new_pages, room }
    }

    /// Longest value, in bytes, that fits into `pages` pages with a key of 16 B.
    pub fn longest_value(&self, pages: u32) -> u32 {
        let page = u64::from(self.room() - HEAD_BYTES);
        let all = (page * u64::from(pages)).saturating_sub(Key::IDENTITY_BYTES as u64);
        all.min(MAX_VALUE_BYTES.into()) as u32
    }
}

/// A page to which records are added.
pub struct OpenPage {
    /// Its number.
    pub page: PageId,
    format: Format,
    region: Region,
    /// Sequence of its first record.
    base: u64,
    count: u16,
    heads_end: u32,
    bodies_begin: u32,
}

impl OpenPage {
    /// An empty page. The memory of `region` is reused.
    pub fn new(format: Format, page: PageId, mut region: Region) -> OpenPage {
        const ZEROS: [u8; 128] = [0; 128];
        region.clear();
        region.write(0, Piece::Bytes(&ZEROS[..format.start as usize]));
        let (heads_end, bodies_begin) = (format.start, format.page_bytes);
        OpenPage { page, format, region, base: 0, count: 0, heads_end, bodies_begin }
    }

    /// Sets the sequence of a page without records.
    pub fn begin_at(&mut self, sequence: u64) {
        assert_eq!(self.count, 0, "the first record of a page gives it its sequence");
        self.base = sequence;
    }

    /// Bytes left for heads and values.
    pub fn room(&self) -> u32 {
        self.bodies_begin - self.heads_end
    }

    /// Number of records.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Is the sequence too far from that of the page's first record for a head?
    pub fn is_too_far(&self, sequence: u64) -> bool {
        self.count > 0 && sequence - self.base > u32::MAX.into()
    }

    /// Adds a record or its first part, and returns the number of value bytes taken. There must be room for
    /// the head and, if the value is not empty, for at least one byte of it.
    pub fn begin_record(&mut self, key: &Key, value: &Value<'_>, sequence: u64, flags: Flags) -> u32 {
        let bytes = value.bytes();
        let of_key = if key.is_long() { LONG_KEY } else { (key.len() as u32 - 1) << KEY_SHIFT };
        self.head(bytes | of_key | flags.0, sequence, Some(key));
        self.body(value, 0, bytes)
    }

    /// Adds another part of a record whose first `from` bytes are on earlier pages.
    pub fn continue_record(&mut self, value: &Value<'_>, from: u32, sequence: u64) -> u32 {
        let missing = value.bytes() - from;
        self.head(missing | Flags::CONTINUES.0, sequence, None);
        self.body(value, from, missing)
    }

    #[inline]
    fn head(&mut self, word: u32, sequence: u64, key: Option<&Key>) {
        if self.count == 0 {
            self.base = sequence;
        }
        let mut head = [0u8; HEAD_BYTES as usize + 1 + Key::IDENTITY_BYTES];
        head[..4].copy_from_slice(&word.to_le_bytes());
        head[4..8].copy_from_slice(&((sequence - self.base) as u32).to_le_bytes());
        let (mut bytes, mut tail_bytes) = (HEAD_BYTES as usize, 0);
        if let Some(key) = key {
            if key.is_long() {
                (head[bytes], tail_bytes) = (key.len() as u8, key.tail_bytes());
                bytes += 1;
            }
            head[bytes..bytes + Key::IDENTITY_BYTES].copy_from_slice(&key.to_array());
            bytes += key.len() - tail_bytes;
        }
        assert!((bytes + tail_bytes) as u32 <= self.room(), "the caller has checked that a head has room");
        self.region.write(self.heads_end, Piece::Bytes(&head[..bytes]));
        self.heads_end += bytes as u32;
        if tail_bytes > 0 {
            const TAIL: [u8; Key::MAX_LEN - Key::IDENTITY_BYTES] = [0; Key::MAX_LEN - Key::IDENTITY_BYTES];
            self.region.write(self.heads_end, Piece::Bytes(&TAIL[..tail_bytes]));
            self.heads_end += tail_bytes as u32;
        }
        self.count += 1;
    }

    #[inline]
    fn body(&mut self, value: &Value<'_>, from: u32, missing: u32) -> u32 {
        let here = missing.min(self.room());
        self.bodies_begin -= here;
        let (region, mut at) = (&mut self.region, self.bodies_begin);
        value.read(from, here, &mut |piece| {
            region.write(at, piece);
            at += piece.bytes();
        });
        here
    }

    /// The finished page, and the memory for the next one. `own` is written after the frame.
    pub fn close(mut self, own: &[u8]) -> (Page, Region) {
        assert_eq!(own.len() as u32, self.format.start - FRAME_BYTES);
        self.region.write(FRAME_BYTES, Piece::Bytes(own));
        let facts = Facts {
            kind: self.format.kind,
            head_bytes: self.heads_end,
            count: self.count,
            sequence: self.base,
        };
        frame::seal(&mut self.region, self.page, self.format.page_bytes, facts);
        // The copy takes only the memory it needs; the returned buffer has the size of a page.
        (Rc::new(self.region.clone()), self.region)
    }

    /// A copy for readers, and its header fields.
    pub fn snapshot(&self) -> (Page, Facts) {
        let facts = Facts {
            kind: self.format.kind,
            head_bytes: self.heads_end,
            count: self.count,
            sequence: self.base,
        };
        (Rc::new(self.region.clone()), facts)
    }
}

/// A record, or a part of one, on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Index of its head in the page.
    pub slot: u16,
    /// Its key; `None` for a continued part.
    pub key: Option<Key>,
    /// Its flags.
    pub flags: Flags,
    /// Its sequence number.
    pub sequence: u64,
    /// Bytes of the value from this page on, including later pages.
    pub value_bytes: u32,
    /// First byte of this page's part.
    pub at: u32,
    /// Length of this page's part.
    pub bytes: u32,
}

impl Record {
    /// This page's part of the value.
    pub fn part(&self, page: &Page) -> Part {
        Part { page: page.clone(), at: self.at, bytes: self.bytes }
    }

    /// Does the value end on this page?
    pub fn is_ended(&self) -> bool {
        self.bytes == self.value_bytes
    }
}

/// The records of a page, in order.
pub struct Records<'a> {
    page: PageId,
    page_bytes: u32,
    heads: Cow<'a, [u8]>,
    at: usize,
    facts: Facts,
    slot: u16,
    bodies_begin: u32,
}

/// The records of a page that [`frame::open`] or [`OpenPage::snapshot`] has described.
pub fn records<'a>(format: &Format, region: &'a Region, page: PageId, facts: Facts) -> Records<'a> {
    Records {
        page,
        page_bytes: format.page_bytes,
        heads: frame::heads_of(region, facts.head_bytes),
        at: format.start as usize,
        facts,
        slot: 0,
        bodies_begin: format.page_bytes,
    }
}

impl Records<'_> {
    /// The next record. Errors name the page.
    pub fn next(&mut self) -> Result<Option<Record>, StoreError> {
        if self.slot == self.facts.count {
            return Ok(None);
        }
        let record = self.decode().ok_or(StoreError::Damaged {
            page: self.page,
            what: format!("record {} does not fit on it", self.slot),
        })?;
        self.slot += 1;
        Ok(Some(record))
    }

    /// The record with this index, which must not have been passed.
    pub fn nth(&mut self, slot: u16) -> Result<Record, StoreError> {
        while self.slot < slot.min(self.facts.count) && self.skip().is_some() {
            self.slot += 1;
        }
        let found = if self.slot == slot { self.next()? } else { None };
        found.ok_or_else(|| StoreError::Damaged { page: self.page, what: format!("has no record {slot}") })
    }

    /// Skips a record without reading its key.
    #[inline]
    fn skip(&mut self) -> Option<()> {
        let word = self.heads.get(self.at..)?.first_chunk::<4>()?;
        let word = u32::from_le_bytes(*word);
        self.at += HEAD_BYTES as usize;
        self.at += match Flags(word).has(Flags::CONTINUES) {
            false => (word >> KEY_SHIFT & 15) as usize + 1,
            true if has_long_key(word) => 1 + usize::from(*self.heads.get(self.at)?),
            true => 0,
        };
        let room = self.bodies_begin.checked_sub(self.facts.head_bytes)?;
        self.bodies_begin -= (word & BYTES_MASK).min(room);
        Some(())
    }

    #[inline]
    fn decode(&mut self) -> Option<Record> {
        let head = self.heads.get(self.at..self.at + HEAD_BYTES as usize)?;
        let word = u32::from_le_bytes(head[..4].try_into().ok()?);
        let delta = u32::from_le_bytes(head[4..].try_into().ok()?);
        let mut flags = Flags(word & Flags::MASK);
        self.at += HEAD_BYTES as usize;
        let mut len = (word >> KEY_SHIFT & 15) as usize + 1;
        if has_long_key(word) {
            flags = Flags(flags.0 & !Flags::CONTINUES.0);
            len = usize::from(*self.heads.get(self.at)?);
            self.at += 1;
        }
        let mut key = None;
        if !flags.has(Flags::CONTINUES) {
            key = Some(Key::new(self.heads.get(self.at..self.at + len)?)?);
            self.at += len;
        }
        let value_bytes = word & BYTES_MASK;
        let bytes = value_bytes.min(self.bodies_begin.checked_sub(self.facts.head_bytes)?);
        self.bodies_begin -= bytes;
        assert!(self.bodies_begin <= self.page_bytes);
        let sequence = self.facts.sequence.checked_add(delta.into())?;
        Some(Record { slot: self.slot, key, flags, sequence, value_bytes, at: self.bodies_begin, bytes })
    }
}
