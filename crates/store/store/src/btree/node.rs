//! Nodes of the tree, in memory and on their pages.
//!
//! ```text
//!   page   | frame 32 B | level u32 | 0 u32 | records ([`crate::records`]) in the order of keys |
//!
//!   level 0: a record is a pair; one with flag `ELSEWHERE` has instead of its value
//!            | born u64 | value bytes u32 | first page u64, pages u32 | ... |     runs of pages of the value
//!   above:   a record is a child: the lowest key that may be in it, and
//!            | page u64 | born u64 |
//! ```
//!
//! The frame's sequence is the number with which the node, or the long value, was created (*born*). It is
//! unique, and a page is written once for it, so every reference gives page and number: older content of the
//! page is detected.

use kvdrive_content::{Piece, Region, expanding};
use kvdrive_nvme::Key;

use crate::frame::{self, Kind};
use crate::pages::{Page, PageId};
use crate::records::{Flags, Format, OpenPage, head_bytes, records};
use crate::space::Extent;
use crate::store::StoreError;
use crate::value::{StoredValue, Value};

/// Bytes between frame and records.
pub const OWN_BYTES: u32 = 8;
/// Most runs of pages of a value in pages of its own.
pub const MOST_RUNS: usize = 16;

/// Reference to a node: its page and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAt {
    /// Its page.
    pub page: PageId,
    /// Its number.
    pub born: u64,
}

/// Bytes of a reference to a child.
const CHILD_BYTES: u32 = 16;

impl NodeAt {
    fn to_bytes(self) -> [u8; CHILD_BYTES as usize] {
        let mut out = [0; CHILD_BYTES as usize];
        out[..8].copy_from_slice(&self.page.0.to_le_bytes());
        out[8..].copy_from_slice(&self.born.to_le_bytes());
        out
    }

    fn from_bytes(bytes: &[u8]) -> Option<NodeAt> {
        let (page, born) = bytes.split_first_chunk::<8>()?;
        let born = u64::from_le_bytes(born.try_into().ok()?);
        Some(NodeAt { page: PageId(u64::from_le_bytes(*page)), born })
    }
}

/// A value in pages of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// Its number.
    pub born: u64,
    /// Its length.
    pub bytes: u32,
    /// Its pages.
    pub runs: Vec<Extent>,
}

impl Elsewhere {
    /// Number of its pages.
    pub fn pages(&self) -> u32 {
        self.runs.iter().map(|run| run.pages).sum()
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.born.to_le_bytes().to_vec();
        out.extend(self.bytes.to_le_bytes());
        for run in &self.runs {
            out.extend(run.first.0.to_le_bytes());
            out.extend(run.pages.to_le_bytes());
        }
        out
    }

    fn from_bytes(bytes: &[u8]) -> Option<Elsewhere> {
        let (born, rest) = bytes.split_first_chunk::<8>()?;
        let (length, mut rest) = rest.split_first_chunk::<4>()?;
        let mut runs = Vec::new();
        while let Some((first, more)) = rest.split_first_chunk::<8>() {
            let (pages, more) = more.split_first_chunk::<4>()?;
            let first = PageId(u64::from_le_bytes(*first));
            runs.push(Extent { first, pages: u32::from_le_bytes(*pages) });
            rest = more;
        }
        let (born, bytes) = (u64::from_le_bytes(*born), u32::from_le_bytes(*length));
        Some(Elsewhere { born, bytes, runs })
    }
}

/// The item of a key in a node.
#[derive(Clone, Debug)]
pub enum Item {
    /// A value.
    Value(StoredValue),
    /// A value that is too long for a node.
    Elsewhere(Elsewhere),
    /// A node one level below.
    Child(NodeAt),
}

/// Bytes of an entry on its page.
pub fn entry_bytes(key: &Key, item: &Item) -> u32 {
    let item = match item {
        Item::Value(kept) => kept.bytes(),
        Item::Elsewhere(elsewhere) => 12 + 12 * elsewhere.runs.len() as u32,
        Item::Child(_) => CHILD_BYTES,
    };
    head_bytes(key) + item
}

/// A node.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Its number.
    pub born: u64,
    /// 0: pairs; above: children.
    pub level: u32,
    /// In the order of keys. The key of a node's first child has no meaning.
    pub entries: Vec<(Key, Item)>,
    /// Bytes of the entries on a page.
    pub bytes: u32,
}

impl Node {
    /// A node of these entries, without a number yet.
    pub fn new(level: u32, entries: Vec<(Key, Item)>) -> Node {
        let bytes = entries.iter().map(|(key, item)| entry_bytes(key, item)).sum();
        Node { born: 0, level, entries, bytes }
    }

    /// Index of `key`, or the index at which it would be inserted.
    pub fn find(&self, key: &Key) -> Result<usize, usize> {
        self.entries.binary_search_by(|(other, _)| other.cmp(key))
    }

    /// Index of the child that may contain `key`.
    pub fn child_for(&self, key: &Key) -> usize {
        self.entries.partition_point(|(first, _)| first <= key).saturating_sub(1)
    }

    /// Reference to a child.
    pub fn child(&self, index: usize) -> NodeAt {
        match self.entries.get(index) {
            Some((_, Item::Child(at))) => *at,
            other => unreachable!("a node above the leaves has children, not {other:?}"),
        }
    }

    /// Sets the item of `key` and returns the one that it replaces.
    pub fn set(&mut self, key: Key, item: Item) -> Option<Item> {
        self.bytes += entry_bytes(&key, &item);
        match self.find(&key) {
            Ok(index) => {
                let old = std::mem::replace(&mut self.entries[index].1, item);
                self.bytes -= entry_bytes(&key, &old);
                Some(old)
            }
            Err(index) => {
                self.entries.insert(index, (key, item));
                None
            }
        }
    }

    /// Inserts an entry before the one at `index`.
    pub fn insert(&mut self, index: usize, key: Key, item: Item) {
        self.bytes += entry_bytes(&key, &item);
        self.entries.insert(index, (key, item));
    }

    /// Removes an entry.
    pub fn remove(&mut self, index: usize) -> Item {
        let (key, item) = self.entries.remove(index);
        self.bytes -= entry_bytes(&key, &item);
        item
    }

    /// Splits off the upper half; if the last entry is the newest, all other entries stay, so that ascending
    /// keys fill their nodes.
    pub fn split(&mut self, newest: usize) -> Node {
        let at = if newest + 1 == self.entries.len() {
            self.entries.len() - 1
        } else {
            let (mut sum, half) = (0, self.bytes / 2);
            let fills = |(key, item): &(Key, Item)| {
                sum += entry_bytes(key, item);
                sum > half
            };
            self.entries.iter().position(fills).unwrap_or(0).clamp(1, self.entries.len() - 1)
        };
        let upper = Node::new(self.level, self.entries.split_off(at));
        self.bytes -= upper.bytes;
        upper
    }

    /// Encodes the node as a page.
    pub fn to_page(&self, format: &Format, page: PageId) -> Page {
        let kind = if self.level == 0 { Kind::Leaf } else { Kind::Inner };
        let mut open = OpenPage::new(Format { kind, ..*format }, page, Region::new());
        // An empty leaf has no record, so its number is set here.
        open.begin_at(self.born);
        for (key, item) in &self.entries {
            match item {
                Item::Value(kept) => open.begin_record(key, &Value::Stored(kept), self.born, Flags::NONE),
                Item::Elsewhere(elsewhere) => {
                    let bytes = elsewhere.to_bytes();
                    open.begin_record(key, &Value::from(&bytes[..]), self.born, Flags::ELSEWHERE)
                }
                Item::Child(child) => {
                    let bytes = child.to_bytes();
                    open.begin_record(key, &Value::from(&bytes[..]), self.born, Flags::NONE)
                }
            };
        }
        let mut own = [0; OWN_BYTES as usize];
        own[..4].copy_from_slice(&self.level.to_le_bytes());
        open.close(&own).0
    }

    /// Decodes the node of a page, which must be the one that `at` refers to, on `level`.
    ///
    /// # Errors
    /// The page is damaged, or holds another node, another kind or another level.
    pub fn from_page(format: &Format, page: &Page, at: NodeAt, level: u32) -> Result<Node, StoreError> {
        let id = at.page;
        let damaged = |what: &str| StoreError::Damaged { page: id, what: what.into() };
        let kind = if level == 0 { Kind::Leaf } else { Kind::Inner };
        let facts = frame::expect(page, id, format.page_bytes, kind)?;
        if facts.sequence != at.born {
            return Err(damaged(&format!("is node {} and not {}", facts.sequence, at.born)));
        }
        let heads = frame::heads_of(page, format.start.min(facts.head_bytes));
        let own = heads.get(frame::FRAME_BYTES as usize..).and_then(|own| own.first_chunk::<4>());
        if own.map(|own| u32::from_le_bytes(*own)) != Some(level) {
            return Err(damaged(&format!("is a node of another level than {level}")));
        }
        let mut entries: Vec<(Key, Item)> = Vec::with_capacity(facts.count.into());
        let mut on_page = records(format, page, id, facts);
        while let Some(record) = on_page.next()? {
            let key = record.key.filter(|key| entries.last().is_none_or(|(last, _)| last < key));
            let key = key.ok_or_else(|| damaged("its keys are out of order"))?;
            if !record.is_ended() {
                return Err(damaged("has a record that does not fit on it"));
            }
            let bytes = || {
                let mut bytes = vec![0; record.bytes as usize];
                page.read(record.at, record.bytes, &mut expanding(&mut bytes));
                bytes
            };
            let item = match (level, record.flags.has(Flags::ELSEWHERE)) {
                (0, false) => Item::Value(StoredValue::in_page(page, record.at, record.bytes)),
                (0, true) => {
                    Item::Elsewhere(Elsewhere::from_bytes(&bytes()).ok_or_else(|| damaged("points nowhere"))?)
                }
                _ => Item::Child(NodeAt::from_bytes(&bytes()).ok_or_else(|| damaged("points nowhere"))?),
            };
            entries.push((key, item));
        }
        if entries.is_empty() && level > 0 {
            return Err(damaged("is a node without children"));
        }
        Ok(Node { born: facts.sequence, ..Node::new(level, entries) })
    }
}

/// Encodes a value into pages of its own: page and content, in the order of its runs.
pub fn overflow_pages(page_bytes: u32, value: &Value<'_>, at: &Elsewhere) -> Vec<(PageId, Page)> {
    let body = page_bytes - frame::FRAME_BYTES;
    let numbers = at.runs.iter().flat_map(|run| run.first.0..run.end());
    let mut from = 0;
    let mut pages = Vec::new();
    for number in numbers.map(PageId) {
        let bytes = body.min(value.bytes() - from);
        let mut region = Region::new();
        region.write(0, Piece::Bytes(&[0; frame::FRAME_BYTES as usize]));
        let mut end = frame::FRAME_BYTES;
        value.read(from, bytes, &mut |piece| {
            region.write(end, piece);
            end += piece.bytes();
        });
        from += bytes;
        let facts = overflow_facts(at);
        frame::seal(&mut region, number, page_bytes, facts);
        pages.push((number, std::rc::Rc::new(region)));
    }
    pages
}

/// The header fields of a page of a long value.
pub fn overflow_facts(at: &Elsewhere) -> frame::Facts {
    frame::Facts { kind: Kind::OverflowBody, head_bytes: frame::FRAME_BYTES, count: 0, sequence: at.born }
}

/// Number of pages of its own for a value of `bytes` bytes.
pub fn overflow_count(page_bytes: u32, bytes: u32) -> u32 {
    bytes.div_ceil(page_bytes - frame::FRAME_BYTES)
}
