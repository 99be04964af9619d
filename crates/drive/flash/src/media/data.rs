//! The content of a page, as a medium keeps it or as it is passed to a medium.

use std::fmt;
use std::rc::Rc;

use kvdrive_content::{Piece, Region, expanding};

use super::deferred::Deferred;
use super::items::{self, Items};
use super::packed::{self, Packed};

/// A page's data. It may be the memory of the medium itself; clones share it, and nothing is copied or
/// unpacked before bytes are read.
#[derive(Clone)]
pub enum PageData {
    /// As a region.
    Region(Rc<Region>),
    /// As descriptors.
    Packed(Packed),
    /// As whole items.
    Items(Rc<Items>),
    /// As a function that computes its bytes.
    Deferred(Rc<Deferred>),
}

impl PageData {
    /// Passes `bytes` bytes from `at` on to `sink`, in order. Continuing where the last read ended is
    /// cheapest.
    pub fn read(&self, at: u32, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        match self {
            PageData::Region(region) => region.read(at, bytes, sink),
            PageData::Packed(packed) => packed.read(at, bytes, sink),
            PageData::Items(items) => items.read(at, bytes, sink),
            PageData::Deferred(page) => page.region().read(at, bytes, sink),
        }
    }

    /// Writes `out.len()` bytes from `at` on as real bytes.
    pub fn copy_to(&self, at: u32, out: &mut [u8]) {
        if let PageData::Items(items) = self
            && let Some(bytes) = items.beginning(at, out.len())
        {
            return out.copy_from_slice(bytes);
        }
        self.read(at, out.len() as u32, &mut expanding(out));
    }

    /// A reader that goes through the page from front to back.
    pub fn forward(&self) -> Forward<'_> {
        match self {
            PageData::Region(region) => Forward::Region(region),
            PageData::Packed(packed) => Forward::Packed(packed.forward()),
            PageData::Items(items) => Forward::Items(items.forward()),
            PageData::Deferred(page) => Forward::Region(page.region()),
        }
    }

    /// The first `size` bytes as real bytes.
    pub fn to_bytes(&self, size: u32) -> Vec<u8> {
        let mut out = vec![0; size as usize];
        self.copy_to(0, &mut out);
        out
    }

    /// `bytes` bytes from `at` on, as real bytes: the page's own memory if they are one of its items, else a
    /// copy.
    pub fn item(&self, at: u32, bytes: u32) -> Rc<[u8]> {
        if let PageData::Items(items) = self
            && let Some(item) = items.get(at).filter(|item| item.len() == bytes as usize)
        {
            return item.clone();
        }
        let mut copy = vec![0; bytes as usize];
        self.copy_to(at, &mut copy);
        copy.into()
    }

    /// Touches the first bytes of all items, if there are some: the processor then loads them concurrently.
    pub fn meet_items(&self) {
        if let PageData::Items(items) = self {
            items.meet_all();
        }
    }

    /// One more than the highest byte written.
    pub fn written_end(&self) -> u32 {
        match self {
            PageData::Region(region) => region.written_end(),
            PageData::Packed(packed) => packed.unpack().written_end(),
            PageData::Items(items) => items.end(),
            PageData::Deferred(page) => page.bytes(),
        }
    }

    /// Is it the very memory that `other` is? Then it has the same bytes; if not, it may have them all the same.
    pub fn is_same(&self, other: &PageData) -> bool {
        match (self, other) {
            (PageData::Region(one), PageData::Region(other)) => Rc::ptr_eq(one, other),
            (PageData::Packed(one), PageData::Packed(other)) => one.is_same(other),
            (PageData::Items(one), PageData::Items(other)) => Rc::ptr_eq(one, other),
            (PageData::Deferred(one), PageData::Deferred(other)) => Rc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// All of it as a region; freed parts read as zeros.
    pub fn into_region(self) -> Rc<Region> {
        match self {
            PageData::Region(region) => region,
            PageData::Packed(packed) => Rc::new(packed.unpack()),
            PageData::Items(items) => Rc::new(items.unpack()),
            PageData::Deferred(page) => page.region().clone(),
        }
    }
}

/// A reader from front to back: continuing after the last read is cheapest; any other position is correct,
/// too.
pub enum Forward<'a> {
    /// As a region: every position costs the same.
    Region(&'a Region),
    /// As descriptors.
    Packed(packed::Forward<'a>),
    /// As whole items.
    Items(items::Forward<'a>),
}

impl Forward<'_> {
    /// [`PageData::read`].
    pub fn read(&self, at: u32, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        match self {
            Forward::Region(region) => region.read(at, bytes, sink),
            Forward::Packed(packed) => packed.read(at, bytes, sink),
            Forward::Items(items) => items.read(at, bytes, sink),
        }
    }

    /// [`PageData::copy_to`].
    pub fn copy_to(&self, at: u32, out: &mut [u8]) {
        if let Forward::Items(items) = self
            && let Some(bytes) = items.beginning(at, out.len())
        {
            return out.copy_from_slice(bytes);
        }
        self.read(at, out.len() as u32, &mut expanding(out));
    }
}

impl From<Rc<Region>> for PageData {
    fn from(region: Rc<Region>) -> PageData {
        PageData::Region(region)
    }
}

impl fmt::Debug for PageData {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.clone().into_region().fmt(out)
    }
}

/// Equal content, in whatever form it is kept.
impl PartialEq for PageData {
    fn eq(&self, other: &PageData) -> bool {
        self.clone().into_region() == other.clone().into_region()
    }
}

impl Eq for PageData {}
