//! The content of a page as its medium keeps it, or as it is on its way there.

use std::fmt;
use std::rc::Rc;

use kvdrive_content::{Piece, Region, expanding};

use super::deferred::Deferred;
use super::items::{self, Items};
use super::packed::{self, Packed};

/// A page's data. It may be the very memory of the medium; clones share it, and nothing is copied or unpacked
/// before somebody asks for bytes.
#[derive(Clone)]
pub enum PageData {
    /// As a region.
    Region(Rc<Region>),
    /// As descriptors.
    Packed(Packed),
    /// As whole items.
    Items(Rc<Items>),
    /// As what gives its bytes.
    Deferred(Rc<Deferred>),
}

impl PageData {
    /// Hands out `bytes` bytes from `at` on, in order. Reading on behind what was read last is cheapest.
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

    /// The page for somebody who goes through it from front to back.
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

    /// `bytes` bytes from `at` on, as real bytes: the page's own memory where that is one of its items, else
    /// a copy.
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

    /// Looks at the beginnings of its items, if it has some: the machine meets all of them in the time of
    /// one.
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

    /// All of it as a region; zeros for what was let go.
    pub fn into_region(self) -> Rc<Region> {
        match self {
            PageData::Region(region) => region,
            PageData::Packed(packed) => Rc::new(packed.unpack()),
            PageData::Items(items) => Rc::new(items.unpack()),
            PageData::Deferred(page) => page.region().clone(),
        }
    }
}

/// A page that is read from front to back: reading on behind what was read last costs least, anything else is
/// as right.
pub enum Forward<'a> {
    /// As a region: any place is as near as another.
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

/// Equal content, however it is kept.
impl PartialEq for PageData {
    fn eq(&self, other: &PageData) -> bool {
        self.clone().into_region() == other.clone().into_region()
    }
}

impl Eq for PageData {}
