//! The header of every page of every store.
//!
//! ```text
//!    0      2         3      4            6       8      16         24           28           32
//!   +------+---------+------+------------+-------+------+----------+------------+------------+-------- ... --------+
//!   | "kv" | version | kind | head bytes | count | page | sequence | head check | body check | heads |     | bodies |
//!   +------+---------+------+------------+-------+------+----------+------------+------------+-------- ... --------+
//!     2 B    u8        u8     u16          u16     u64    u64        u32          u32         .. head bytes      .. page end
//! ```
//!
//! The frame, its version and the head check have the same places in every version. All numbers are little endian. *Heads* are written by the store itself; *bodies* are bytes of values. The
//! head check (crc32c, with its own four bytes and those of the body check taken as zero) covers the page up
//! to `head bytes`. The body check covers the bytes after it and is never 0: a 0 says that the page was
//! written with patterns in it. Patterns describe bytes that do not exist until they are expanded, so no
//! checksum covers them; the pages' medium guarantees them.

use std::borrow::Cow;

use kvdrive_content::{Piece, Region};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::pages::PageId;
use crate::store::StoreError;

/// Bytes of the head of a page.
pub const FRAME_BYTES: u32 = 32;

const MAGIC: [u8; 2] = *b"kv";
const VERSION: u8 = 2;

/// Kinds of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Records in the order of arrival: `hashlog`.
    Log = 1,
    /// The write-ahead log of `lsmtree`.
    Wal = 2,
    /// Records of a table.
    Table = 3,
    /// Index and filter of a table.
    TableMeta = 4,
    /// The list of tables.
    Manifest = 5,
    /// Pairs of a tree.
    Leaf = 6,
    /// Keys and children of a tree.
    Inner = 7,
    /// A value in pages of its own: their positions, and its first bytes.
    OverflowHead = 8,
    /// Bytes of such a value.
    OverflowBody = 9,
    /// A root slot.
    Root = 10,
    /// The list of files.
    Journal = 11,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Frame {
    magic: [u8; 2],
    version: u8,
    kind: u8,
    head_bytes: U16,
    count: U16,
    page: U64,
    sequence: U64,
    head_check: U32,
    body_check: U32,
}

const _: () = assert!(size_of::<Frame>() == FRAME_BYTES as usize);

impl Frame {
    fn check(&self, heads: &[u8]) -> u32 {
        let bare = Frame { head_check: U32::ZERO, body_check: U32::ZERO, ..*self };
        crc32c::crc32c_append(crc32c::crc32c(bare.as_bytes()), heads)
    }
}

/// The fields of a page's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The kind of the page.
    pub kind: Kind,
    /// Bytes of frame and heads.
    pub head_bytes: u32,
    /// Number of heads; the owner defines their kind.
    pub count: u16,
    /// An increasing number; the owner defines its meaning.
    pub sequence: u64,
}

/// Writes the header of a page whose heads and bodies are in place; the heads end at `facts.head_bytes`.
pub fn seal(region: &mut Region, page: PageId, page_bytes: u32, facts: Facts) {
    let mut frame = Frame {
        magic: MAGIC,
        version: VERSION,
        kind: facts.kind as u8,
        head_bytes: U16::new(facts.head_bytes as u16),
        count: U16::new(facts.count),
        page: U64::new(page.0),
        sequence: U64::new(facts.sequence),
        head_check: U32::ZERO,
        body_check: U32::new(body_check(region, facts.head_bytes, page_bytes).unwrap_or(0)),
    };
    let check = frame.check(&heads_of(region, facts.head_bytes)[FRAME_BYTES as usize..]);
    frame.head_check = U32::new(check);
    region.write(0, Piece::Bytes(frame.as_bytes()));
}

/// The check of the bytes after the heads; `None` if a part of them is a pattern.
fn body_check(region: &Region, from: u32, page_bytes: u32) -> Option<u32> {
    if region.patterns().last().is_some_and(|last| last.at + last.pattern.bytes > from) {
        return None;
    }
    let mut check = 0;
    region.read(from, page_bytes - from, &mut |piece| {
        if let Piece::Bytes(bytes) = piece {
            check = crc32c::crc32c_append(check, bytes);
        }
    });
    Some(check.max(1))
}

/// The first `bytes` bytes of a page: borrowed if they are stored as bytes.
pub fn heads_of(region: &Region, bytes: u32) -> Cow<'_, [u8]> {
    let is_literal = region.patterns().first().is_none_or(|first| first.at >= bytes);
    match region.literal().get(..bytes as usize) {
        Some(heads) if is_literal => Cow::Borrowed(heads),
        _ => Cow::Owned(region.to_bytes(bytes)),
    }
}

/// Is the page empty?
pub fn is_blank(region: &Region) -> bool {
    region.patterns().is_empty() && region.literal().iter().all(|byte| *byte == 0)
}

/// Decodes the header of a page. Errors name the page; a page of another version is none that is damaged.
pub fn open(region: &Region, page: PageId, page_bytes: u32) -> Result<Facts, StoreError> {
    let damaged = |what: &str| StoreError::Damaged { page, what: what.into() };
    let heads = heads_of(region, FRAME_BYTES);
    let frame = Frame::read_from_bytes(&heads).unwrap_or_else(|_| Frame::new_zeroed());
    if frame.magic != MAGIC {
        let what = if is_blank(region) { "is blank" } else { "is not a page of a store" };
        return Err(damaged(what));
    }
    let head_bytes = u32::from(frame.head_bytes.get());
    if !(FRAME_BYTES..=page_bytes).contains(&head_bytes) {
        return Err(damaged("the length of its head is out of range"));
    }
    let heads = heads_of(region, head_bytes);
    if frame.check(&heads[FRAME_BYTES as usize..]) != frame.head_check.get() {
        return Err(damaged("the checksum of its head is wrong"));
    }
    if frame.version != VERSION {
        return Err(StoreError::Version { page, found: frame.version, known: VERSION });
    }
    if frame.page.get() != page.0 {
        return Err(damaged(&format!("has the header of page {}", frame.page)));
    }
    let stored = frame.body_check.get();
    if stored != 0 && body_check(region, head_bytes, page_bytes).is_some_and(|check| check != stored) {
        return Err(damaged("the checksum of its values is wrong"));
    }
    let kind = kind_of(frame.kind).ok_or_else(|| damaged("is of an unknown kind"))?;
    Ok(Facts { kind, head_bytes, count: frame.count.get(), sequence: frame.sequence.get() })
}

/// As [`open`], and the page must be of this kind.
pub fn expect(region: &Region, page: PageId, page_bytes: u32, kind: Kind) -> Result<Facts, StoreError> {
    let facts = open(region, page, page_bytes)?;
    expect_kind(facts, page, kind)?;
    Ok(facts)
}

/// Checks that the page is of this kind.
pub fn expect_kind(facts: Facts, page: PageId, kind: Kind) -> Result<(), StoreError> {
    if facts.kind == kind {
        return Ok(());
    }
    let what = format!("is a page of kind {:?} where one of kind {kind:?} belongs", facts.kind);
    Err(StoreError::Damaged { page, what })
}

fn kind_of(number: u8) -> Option<Kind> {
    const KINDS: [Kind; 11] = [
        Kind::Log,
        Kind::Wal,
        Kind::Table,
        Kind::TableMeta,
        Kind::Manifest,
        Kind::Leaf,
        Kind::Inner,
        Kind::OverflowHead,
        Kind::OverflowBody,
        Kind::Root,
        Kind::Journal,
    ];
    KINDS.into_iter().find(|kind| *kind as u8 == number)
}
