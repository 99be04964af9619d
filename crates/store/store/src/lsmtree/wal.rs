//! The write-ahead log: pages of records in the order of their sequence, written in a ring.
//!
//! ```text
//!   page   | frame 32 B | epoch u64 | position u64 | durable u64 | records ([`crate::records`]) |
//! ```
//!
//! *Position* counts pages from the first one ever; position `p` lies on page `p mod ring`. *Epoch* increases
//! with every recovery, so that a page of an earlier life is not part of the present log. Every position
//! below *durable* was durable when the page was closed. A missing page ends the log, unless a later page
//! says that it was durable.

use std::collections::{BTreeSet, VecDeque};

use kvdrive_content::Region;
use kvdrive_nvme::Key;

use super::layout::Layout;
use crate::frame::Kind;
use crate::pages::{Page, PageId, Writing};
use crate::records::{Flags, Format, OpenPage};
use crate::value::Value;

/// Bytes between frame and records.
pub const OWN_BYTES: u32 = 24;
/// Most pages under way.
pub const MOST_UNDER_WAY: usize = 64;

/// The log in memory.
pub struct Wal {
    /// The format of its pages.
    pub format: Format,
    first: u64,
    ring: u64,
    /// The life of the log.
    pub epoch: u64,
    /// Position of the next page.
    pub next: u64,
    /// Positions below it are durable.
    pub durable: u64,
    open: Option<OpenPage>,
    open_position: u64,
    closed: VecDeque<(u64, Page)>,
    spare: Region,
    /// Positions being written.
    pub writing: BTreeSet<u64>,
    /// Page writes that no thread waits for.
    pub under_way: VecDeque<(u64, Writing)>,
}

impl Wal {
    /// An empty log.
    pub fn new(layout: &Layout) -> Wal {
        Wal {
            format: format(layout.page_bytes),
            first: layout.wal_first,
            ring: layout.wal_pages,
            epoch: 0,
            next: 0,
            durable: 0,
            open: None,
            open_position: 0,
            closed: VecDeque::new(),
            spare: Region::new(),
            writing: BTreeSet::new(),
            under_way: VecDeque::new(),
        }
    }

    /// Pages that these records begin.
    pub fn pages_for<'a>(&self, records: impl Iterator<Item = (&'a Key, u32)>) -> u64 {
        let mut room = self.open.as_ref().map_or(0, OpenPage::room);
        let mut pages = 0;
        for (key, bytes) in records {
            let fit = self.format.fit(room, key, bytes);
            pages += u64::from(fit.new_pages);
            room = fit.room;
        }
        pages
    }

    /// Can `pages` pages be begun while those from `oldest` on are needed?
    pub fn has_room(&self, pages: u64, oldest: u64) -> bool {
        self.next + pages - oldest <= self.ring
    }

    /// Could `pages` pages be begun in an empty log?
    pub fn could_have_room(&self, pages: u64) -> bool {
        pages + 2 <= self.ring
    }

    /// Adds a record.
    pub fn append(&mut self, key: &Key, value: Option<&Value<'_>>, sequence: u64, flags: Flags) {
        let flags = if value.is_some() { flags } else { flags.with(Flags::TOMBSTONE) };
        let value = value.copied().unwrap_or(Value::from(&[][..]));
        let is_too_far = self.open.as_ref().is_some_and(|open| open.is_too_far(sequence));
        let room = self.open.as_ref().map_or(0, OpenPage::room);
        if is_too_far || room < crate::records::head_bytes(key) + value.bytes().min(1) {
            self.next_page();
        }
        let open = self.open.as_mut().expect("a page was begun");
        let mut done = open.begin_record(key, &value, sequence, flags);
        while done < value.bytes() {
            self.next_page();
            let open = self.open.as_mut().expect("a page was begun");
            done += open.continue_record(&value, done, sequence);
        }
    }

    /// The page of a position.
    pub fn page_of(&self, position: u64) -> PageId {
        PageId(self.first + position % self.ring)
    }

    fn next_page(&mut self) {
        self.close_page();
        let id = self.page_of(self.next);
        self.open = Some(OpenPage::new(self.format, id, std::mem::take(&mut self.spare)));
        self.open_position = self.next;
        self.next += 1;
    }

    /// Closes the open page, if there is one; it is to be written.
    pub fn close_page(&mut self) {
        let Some(open) = self.open.take() else { return };
        let mut own = [0; OWN_BYTES as usize];
        own[..8].copy_from_slice(&self.epoch.to_le_bytes());
        own[8..16].copy_from_slice(&self.open_position.to_le_bytes());
        own[16..].copy_from_slice(&self.durable.to_le_bytes());
        let (page, spare) = open.close(&own);
        self.spare = spare;
        self.closed.push_back((self.open_position, page));
    }

    /// The oldest closed pages that are consecutive, and the position of the first one.
    pub fn take_closed(&mut self) -> Option<(u64, Vec<Page>)> {
        let first = self.closed.front()?.0;
        let until_wrap = self.ring - first % self.ring;
        let count = self.closed.len().min(until_wrap as usize);
        self.writing.insert(first);
        Some((first, self.closed.drain(..count).map(|(_, page)| page).collect()))
    }
}

/// The format of the log's pages.
pub fn format(page_bytes: u32) -> Format {
    Format::new(page_bytes, OWN_BYTES, Kind::Wal)
}
