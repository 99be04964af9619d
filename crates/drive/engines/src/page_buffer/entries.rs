//! The entries of the page buffer: the page and state of each, and the choice of victims. No time and no I/O.
//!
//! An entry is always in exactly one of these places:
//!
//! * the free stack;
//! * *detached*: taken by a task that will put a page there;
//! * resident and on a list;
//! * resident and on no list: being programmed, or pinned.
//!
//! There are three lists, each in order of last use: pages still being filled, and of the others the clean
//! and the dirty ones. Pages being filled are evicted last, since an evicted page gets no more bytes and its
//! rest is lost.
//!
//! A pinned page stays on its list until a search for a victim meets it, and returns to its list with its
//! last unpin. Thus a store into the page of the previous store touches no list.

mod resident;

use std::ops::Range;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_flash::Purpose;
use kvdrive_flash::ftl::Placement;

use resident::Resident;

/// What ends a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The drive releases it by itself.
    Drive,
    /// Only another command of the host releases it: a value that arrives in commands.
    Host,
}

/// The kind of an owner's pages, for reports and in their spare area.
#[derive(Clone, Copy, Debug)]
pub struct PageKind {
    /// Why it is programmed.
    pub purpose: Purpose,
    /// Page kind in the spare area.
    pub kind: u8,
    /// Tag in the spare area.
    pub tag: [u8; 48],
    /// The pages with which it is freed.
    pub placement: Placement,
}

/// No entry, no page.
const NONE: u32 = u32::MAX;

/// The kind of an entry without a page.
const NO_KIND: PageKind =
    PageKind { purpose: Purpose::Value, kind: 0, tag: [0; 48], placement: Placement::Alone };

/// How an entry's bytes relate to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// Flash has them (or there are none).
    Clean,
    /// Newer than flash.
    Dirty,
    /// Newer than flash, and a program of exactly these bytes is running.
    Programming,
    /// As `Programming`, and written to since it began.
    Redirtied,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Filling,
    Clean,
    Dirty,
}

#[derive(Clone, Copy)]
struct Ends {
    newest: u32,
    oldest: u32,
    length: u32,
}

struct Entry {
    lpa: u32,
    content: Content,
    /// Will get more bytes; see [`Entries::close`].
    filling: bool,
    /// Its segment was dropped, so the page is dropped as soon as it is not in use.
    doomed: bool,
    pins: u32,
    host_pins: u32,
    list: Option<List>,
    newer: u32,
    older: u32,
    last_use: u64,
    kind: PageKind,
    region: Rc<Region>,
}

/// The result of a search for an entry for another page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    /// A detached entry.
    Entry(u32),
    /// A detached entry whose page, unstored, is lost: flash is off.
    Lost { slot: u32, lpa: u32 },
    /// This entry, after its page has been programmed.
    Dirty(u32),
    /// Only pages being filled are left; this is the least recently used one.
    Filling(u32),
    /// Nothing until a running program or read ends.
    Busy,
    /// Nothing: every entry is pinned.
    Pinned,
}

/// The effect of the end of a pin or a program on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is still in use.
    InUse,
    /// It can be evicted.
    Idle,
    /// Its page was dropped, because its segment was.
    Discarded(u32),
}

/// A program that has begun.
pub(super) struct Program {
    pub slot: u32,
    pub lpa: u32,
    pub region: Rc<Region>,
    pub kind: PageKind,
}

pub(super) struct Entries {
    page_bytes: u32,
    entries: Vec<Entry>,
    resident: Resident,
    free: Vec<u32>,
    lists: [Ends; 3],
    /// Detached entries whose page is being read.
    loading: u32,
    /// Entries being programmed.
    programming: u32,
    pinned: u32,
    host_pinned: u32,
    uses: u64,
}

impl Entries {
    pub fn new(count: u32, page_bytes: u32) -> Entries {
        let entry = |_| Entry {
            lpa: NONE,
            content: Content::Clean,
            filling: false,
            doomed: false,
            pins: 0,
            host_pins: 0,
            list: None,
            newer: NONE,
            older: NONE,
            last_use: 0,
            kind: NO_KIND,
            region: Rc::default(),
        };
        Entries {
            page_bytes,
            entries: (0..count).map(entry).collect(),
            resident: Resident::default(),
            free: (0..count).rev().collect(),
            lists: [Ends { newest: NONE, oldest: NONE, length: 0 }; 3],
            loading: 0,
            programming: 0,
            pinned: 0,
            host_pinned: 0,
            uses: 0,
        }
    }

    fn at(&mut self, slot: u32) -> &mut Entry {
        &mut self.entries[slot as usize]
    }

    pub fn count(&self) -> u32 {
        self.entries.len() as u32
    }

    pub fn pinned(&self) -> u32 {
        self.pinned
    }

    pub fn host_pinned(&self) -> u32 {
        self.host_pinned
    }

    /// Entries that can be reused without a program, not counting that some may be pinned.
    pub fn available(&self) -> u32 {
        self.free.len() as u32 + self.lists[List::Clean as usize].length
    }

    /// Entries being programmed.
    pub fn programming(&self) -> u32 {
        self.programming
    }

    #[inline]
    pub fn find(&self, lpa: u32) -> Option<u32> {
        self.resident.find(lpa)
    }

    /// Does `slot` hold page `lpa`?
    #[inline]
    pub fn holds(&self, slot: u32, lpa: u32) -> bool {
        self.entries[slot as usize].lpa == lpa
    }

    pub fn lpa(&self, slot: u32) -> u32 {
        self.entries[slot as usize].lpa
    }

    pub fn region(&self, slot: u32) -> &Rc<Region> {
        &self.entries[slot as usize].region
    }

    #[inline]
    pub fn pin(&mut self, slot: u32, hold: Hold) {
        let entry = &mut self.entries[slot as usize];
        self.pinned += u32::from(entry.pins == 0);
        entry.pins += 1;
        if hold == Hold::Host {
            self.host_pinned += u32::from(entry.host_pins == 0);
            entry.host_pins += 1;
        }
    }

    #[inline]
    pub fn unpin(&mut self, slot: u32, hold: Hold) -> Outcome {
        let entry = &mut self.entries[slot as usize];
        assert!(entry.pins > 0, "page {} is not pinned", entry.lpa);
        entry.pins -= 1;
        if hold == Hold::Host {
            entry.host_pins -= 1;
            self.host_pinned -= u32::from(entry.host_pins == 0);
        }
        if entry.pins > 0 {
            return Outcome::InUse;
        }
        self.pinned -= 1;
        match entry.list {
            Some(list) if self.lists[list as usize].newest == slot => Outcome::Idle,
            Some(list) => {
                self.unlink(slot);
                self.link(slot, list);
                Outcome::Idle
            }
            None => self.settle(slot),
        }
    }

    /// Puts a resident entry on the list for its state.
    fn settle(&mut self, slot: u32) -> Outcome {
        let entry = self.at(slot);
        if entry.pins > 0 || matches!(entry.content, Content::Programming | Content::Redirtied) {
            return Outcome::InUse;
        }
        if entry.doomed {
            let lpa = entry.lpa;
            self.detach(slot);
            self.put_back(slot);
            return Outcome::Discarded(lpa);
        }
        let list = match entry.content {
            _ if entry.filling => List::Filling,
            Content::Clean => List::Clean,
            _ => List::Dirty,
        };
        self.link(slot, list);
        Outcome::Idle
    }

    fn link(&mut self, slot: u32, list: List) {
        self.uses += 1;
        let (uses, ends) = (self.uses, self.lists[list as usize]);
        let entry = self.at(slot);
        entry.list = Some(list);
        entry.last_use = uses;
        entry.newer = NONE;
        entry.older = ends.newest;
        if ends.newest != NONE {
            self.at(ends.newest).newer = slot;
        }
        let ends = &mut self.lists[list as usize];
        ends.newest = slot;
        ends.length += 1;
        if ends.oldest == NONE {
            ends.oldest = slot;
        }
    }

    fn unlink(&mut self, slot: u32) {
        let entry = self.at(slot);
        let Some(list) = entry.list.take() else { return };
        let (newer, older) = (entry.newer, entry.older);
        if newer == NONE {
            self.lists[list as usize].newest = older;
        } else {
            self.at(newer).older = older;
        }
        if older == NONE {
            self.lists[list as usize].oldest = newer;
        } else {
            self.at(older).newer = newer;
        }
        self.lists[list as usize].length -= 1;
    }

    /// Takes the page out of an entry.
    fn detach(&mut self, slot: u32) {
        self.unlink(slot);
        let entry = self.at(slot);
        let lpa = std::mem::replace(&mut entry.lpa, NONE);
        entry.content = Content::Clean;
        entry.filling = false;
        entry.doomed = false;
        let was = self.resident.remove(lpa);
        assert_eq!(was, Some(slot), "page {lpa} is not where it was");
    }

    /// Gives a detached entry back.
    pub fn put_back(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// The least recently used page of a list that is not pinned.
    fn oldest(&mut self, list: List) -> Option<u32> {
        loop {
            let oldest = self.lists[list as usize].oldest;
            if oldest == NONE {
                return None;
            }
            if self.at(oldest).pins == 0 {
                return Some(oldest);
            }
            self.unlink(oldest);
        }
    }

    pub fn oldest_dirty(&mut self) -> Option<u32> {
        self.oldest(List::Dirty)
    }

    /// An entry for another page: a free one, or else that of the least recently used page. With `prefer_clean` a clean
    /// page goes before an older dirty one. `program`: dirty pages must be programmed before they leave.
    pub fn victim(&mut self, prefer_clean: bool, program: bool) -> Victim {
        if let Some(slot) = self.free.pop() {
            return Victim::Entry(slot);
        }
        let (clean, dirty) = (self.oldest(List::Clean), self.oldest(List::Dirty));
        let last_use = |slot: u32| self.entries[slot as usize].last_use;
        let slot = match (clean, dirty) {
            (Some(clean), Some(dirty)) if prefer_clean || last_use(clean) < last_use(dirty) => clean,
            (_, Some(dirty)) if program => return Victim::Dirty(dirty),
            (_, Some(slot)) => {
                let lpa = self.lpa(slot);
                self.detach(slot);
                return Victim::Lost { slot, lpa };
            }
            (Some(clean), None) => clean,
            (None, None) => {
                return match self.oldest(List::Filling) {
                    Some(filling) => Victim::Filling(filling),
                    None if self.loading + self.programming > 0 => Victim::Busy,
                    None => Victim::Pinned,
                };
            }
        };
        self.detach(slot);
        Victim::Entry(slot)
    }

    /// After its program: takes the entry of `lpa`, unless the page is in use again.
    pub fn take_programmed(&mut self, slot: u32, lpa: u32) -> bool {
        let entry = &self.entries[slot as usize];
        let idle = entry.lpa == lpa && entry.list == Some(List::Clean) && entry.pins == 0;
        if idle {
            self.detach(slot);
        }
        idle
    }

    /// A page is on its way into a detached entry.
    pub fn begin_load(&mut self) {
        self.loading += 1;
    }

    pub fn end_load(&mut self) {
        self.loading -= 1;
    }

    /// Puts a page into a detached entry, pinned `pins` times for the drive and `host_pins` times for the
    /// host.
    pub fn install(&mut self, slot: u32, lpa: u32, new: NewPage, pins: u32, host_pins: u32) {
        let entry = self.at(slot);
        assert_eq!(entry.lpa, NONE, "the entry is detached");
        entry.lpa = lpa;
        match new {
            NewPage::Empty(kind) => {
                entry.kind = kind;
                entry.filling = true;
                match Rc::get_mut(&mut entry.region) {
                    Some(region) => region.clear(), // not shared: its memory is reused
                    None => entry.region = Rc::default(),
                }
            }
            NewPage::Stored(region) => entry.region = region,
            NewPage::Unstored(kind, region) => {
                entry.kind = kind;
                entry.content = Content::Dirty;
                entry.region = region;
            }
        }
        entry.pins = pins + host_pins;
        entry.host_pins = host_pins;
        self.pinned += u32::from(pins + host_pins > 0);
        self.host_pinned += u32::from(host_pins > 0);
        let before = self.resident.insert(lpa, slot);
        assert_eq!(before, None, "page {lpa} is in the buffer already");
        self.settle(slot);
    }

    /// Does the page's content have to enter the protected image before a write to it?
    #[inline]
    pub fn is_clean(&self, slot: u32) -> bool {
        self.entries[slot as usize].content == Content::Clean
    }

    #[inline]
    pub fn write(&mut self, slot: u32, at: u32, piece: Piece<'_>) {
        let entry = &mut self.entries[slot as usize];
        assert!(entry.pins > 0, "page {} is written to and not pinned", entry.lpa);
        match entry.content {
            Content::Dirty | Content::Redirtied => {}
            Content::Programming => entry.content = Content::Redirtied,
            Content::Clean => {
                self.unlink(slot); // the end of its last pin puts it on the list where it belongs
                self.at(slot).content = Content::Dirty;
            }
        }
        let entry = &mut self.entries[slot as usize];
        // A running program keeps the bytes with which it began.
        let region = Rc::make_mut(&mut entry.region);
        if region.literal().is_empty() && matches!(piece, Piece::Bytes(_)) {
            region.reserve(self.page_bytes);
        }
        region.write(at, piece);
    }

    /// The page will get no more bytes; it may leave like any other.
    pub fn close(&mut self, slot: u32) {
        let entry = self.at(slot);
        if !std::mem::replace(&mut entry.filling, false) {
            return;
        }
        if entry.list.is_some() {
            self.unlink(slot);
            self.settle(slot);
        }
    }

    /// The page will get more bytes (this is needed only after a power cut; otherwise a page is filling from
    /// its opening on).
    pub fn reopen(&mut self, slot: u32) {
        self.unlink(slot);
        self.at(slot).filling = true;
        self.settle(slot);
    }

    pub fn is_filling(&self, slot: u32) -> bool {
        self.entries[slot as usize].filling
    }

    /// Begins to program the present content of a dirty page.
    pub fn begin_program(&mut self, slot: u32) -> Program {
        self.unlink(slot);
        self.programming += 1;
        let entry = self.at(slot);
        assert_eq!(entry.content, Content::Dirty, "page {} needs no program", entry.lpa);
        entry.content = Content::Programming;
        Program { slot, lpa: entry.lpa, region: entry.region.clone(), kind: entry.kind }
    }

    /// Ends it. The flag says whether flash has now all the page's bytes and may keep them.
    pub fn end_program(&mut self, slot: u32) -> (bool, Outcome) {
        self.programming -= 1;
        let entry = self.at(slot);
        entry.content = match entry.content {
            Content::Programming => Content::Clean,
            Content::Redirtied => Content::Dirty,
            other => panic!("page {} was {other:?} at the end of its program", entry.lpa),
        };
        let stored = entry.content == Content::Clean && !entry.doomed;
        (stored, self.settle(slot))
    }

    /// Drops the pages of a segment without writing them. Pages in use are dropped when their use ends;
    /// returns their number.
    pub fn drop_pages(&mut self, lpas: Range<u32>) -> u32 {
        let slots: Vec<u32> = self.resident.within(lpas).collect();
        let mut in_use = 0;
        for slot in slots {
            self.unlink(slot);
            self.at(slot).doomed = true;
            in_use += u32::from(self.settle(slot) == Outcome::InUse);
        }
        in_use
    }

    /// Pages that are newer than their copy on flash, in ascending order: a power cut must not lose them.
    pub fn unstored(&self) -> impl Iterator<Item = (u32, u32, &Rc<Region>)> {
        let is_unstored =
            |entry: &Entry| entry.lpa != NONE && entry.content != Content::Clean && !entry.doomed;
        let all = (0..).zip(&self.entries).filter(|(_, entry)| is_unstored(entry));
        let mut unstored: Vec<_> = all.map(|(slot, entry)| (entry.lpa, slot, &entry.region)).collect();
        unstored.sort_unstable_by_key(|(lpa, ..)| *lpa);
        unstored.into_iter()
    }

    /// Is a program of page `lpa` running in `slot`?
    pub fn is_programming(&self, slot: u32, lpa: u32) -> bool {
        let entry = &self.entries[slot as usize];
        entry.lpa == lpa && matches!(entry.content, Content::Programming | Content::Redirtied)
    }

    /// Does `slot` hold page `lpa` with bytes that no program has taken yet?
    pub fn is_dirty(&self, slot: u32, lpa: u32) -> bool {
        let entry = &self.entries[slot as usize];
        entry.lpa == lpa && entry.content == Content::Dirty
    }
}

/// The new contents of an entry.
pub(super) enum NewPage {
    /// Nothing yet; it will be filled.
    Empty(PageKind),
    /// The contents on flash.
    Stored(Rc<Region>),
    /// Contents of the protected image that are not on flash.
    Unstored(PageKind, Rc<Region>),
}
