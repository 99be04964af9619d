//! Streams: each appends items to its own superblock and open page.

use std::borrow::Cow;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_flash::{Forward, PageData};

use super::Space;
use crate::hash::change::Change;
use crate::hash::layout::Grain;
use crate::hash::state::{KIND_MAP, STREAMS, Stream, SuperblockState};

/// Content to append.
#[derive(Clone, Copy)]
pub enum Content<'a> {
    /// A whole section or invalid page; it does not cross read units. The page shares it.
    Item(&'a Rc<[u8]>),
    /// A pair: bytes of a region from an offset on.
    Stored(&'a Region, u32),
    /// A pair: bytes of a page from an offset on.
    Kept(&'a Forward<'a>, u32),
}

/// The page that a stream fills.
pub(in crate::hash) struct OpenPage {
    pub page: u32,
    /// Items, or a region if it holds pairs or comes from an image.
    pub data: PageData,
    /// First grain of the page at which an item begins; the page's grains if none does.
    pub first_item: u32,
    /// Write-buffer bytes that are freed after its program.
    pub credit: u64,
}

#[derive(Default)]
pub(in crate::hash) struct OpenStream {
    pub superblock: Option<u32>,
    /// Next grain within the superblock.
    pub at: u32,
    pub open: Option<OpenPage>,
}

impl Space {
    /// Appends `bytes` bytes; `None` if the stream needs a superblock and may not take one.
    pub fn append(self: &Rc<Self>, stream: Stream, content: Content<'_>, bytes: u32) -> Option<Grain> {
        let grains = self.layout.grains_of(bytes);
        assert!(grains <= self.layout.superblock_grains, "an item of {bytes} B is larger than a superblock");
        let mut streams = self.streams.borrow_mut();
        let open = &mut streams[stream as usize];
        if let Content::Item(_) = content {
            let left = self.layout.left_in_unit(open.at);
            if open.superblock.is_some() && left < grains {
                self.pad(stream, open, left);
            }
        }
        if open.superblock.is_none() || open.at + grains > self.layout.superblock_grains {
            let next = self.take_superblock(stream)?;
            if let Some(full) = open.superblock {
                self.pad(stream, open, self.layout.superblock_grains - open.at);
                self.set_state(full, SuperblockState::Full);
            }
            *open = OpenStream { superblock: Some(next), at: 0, open: None };
        }
        let superblock = open.superblock.expect("opened above");
        let grain = self.layout.grain(superblock, open.at);
        let mut done = 0;
        while done < grains {
            let (index, in_page) = self.layout.in_page(open.at);
            let left = self.layout.page_grains - in_page;
            let fits = left.min(grains - done);
            let from = done * self.layout.grain_bytes;
            let count = (fits * self.layout.grain_bytes).min(bytes - from);
            let page = self.open_page(stream, self.layout.first_page(superblock) + index, open);
            put(&mut page.data, in_page * self.layout.grain_bytes, content, from, count);
            if done == 0 {
                page.first_item = page.first_item.min(in_page);
            }
            if self.journal.is_kept() {
                let mut region = Region::new();
                copy(&mut region, 0, content, from, count);
                let (page, first_item, at) = (page.page, page.first_item, in_page * self.layout.grain_bytes);
                let region = Cow::Borrowed(&region);
                self.journal.append(&Change::Put { stream, page, at, first_item, region });
            }
            if stream == Stream::Data {
                // Counted page by page: less than a page is left of a pair's room after it is appended.
                page.credit += u64::from(fits * self.layout.grain_bytes);
            }
            done += fits;
            open.at += fits;
            if fits == left {
                self.close(stream, open);
            }
        }
        self.note_place(stream, superblock, open.at);
        self.add_valid(stream.kind(), grains.into());
        self.note_packed(stream.kind(), grains, 0);
        self.superblocks.borrow_mut()[superblock as usize].valid += grains;
        self.validity.borrow_mut().write(grain, grains);
        Some(grain)
    }

    fn open_page<'a>(&self, stream: Stream, page: u32, open: &'a mut OpenStream) -> &'a mut OpenPage {
        open.open.get_or_insert_with(|| OpenPage {
            page,
            data: match stream.kind() {
                KIND_MAP => PageData::Items(Rc::default()),
                _ => PageData::Region(self.spare_regions.borrow_mut().pop().unwrap_or_default()),
            },
            first_item: self.layout.page_grains,
            credit: 0,
        })
    }

    /// Leaves `grains` grains after the last item empty.
    fn pad(self: &Rc<Self>, stream: Stream, open: &mut OpenStream, grains: u32) {
        let Some(superblock) = open.superblock else { return };
        self.padded_grains.set(self.padded_grains.get() + u64::from(grains));
        if grains == 0 {
            return;
        }
        self.note_packed(stream.kind(), 0, grains);
        self.validity.borrow_mut().invalidate(self.layout.grain(superblock, open.at), grains);
        let mut missing = grains;
        while missing > 0 {
            let left = self.layout.left_in_page(open.at);
            let fits = left.min(missing);
            // A page without content is not programmed: its block is erased as it is.
            open.at += fits;
            missing -= fits;
            if fits == left {
                self.close(stream, open);
            }
        }
        self.note_place(stream, superblock, open.at);
    }

    fn note_place(&self, stream: Stream, superblock: u32, at: u32) {
        self.journal.append(&Change::Stream { stream, superblock, at });
    }

    /// Closes the open page and starts its program.
    fn close(self: &Rc<Self>, stream: Stream, open: &mut OpenStream) {
        if let Some(page) = open.open.take() {
            self.program(stream, page);
        }
    }

    /// Fills up the open pages and waits until everything is on flash.
    pub fn drain(self: &Rc<Self>) {
        for stream in STREAMS {
            let mut streams = self.streams.borrow_mut();
            let open = &mut streams[stream as usize];
            if open.open.is_some() {
                let left = self.layout.left_in_page(open.at);
                self.pad(stream, open, left);
            }
        }
        while !self.programming.borrow().is_empty() {
            self.programmed.wait();
        }
    }
}

/// A sink that puts pieces into a region, from an offset on.
pub fn filling(region: &mut Region, mut at: u32) -> impl FnMut(Piece<'_>) + '_ {
    move |piece| {
        region.write(at, piece);
        at += piece.bytes();
    }
}

/// Puts `bytes` bytes of the content, from offset `from` on, into an open page.
fn put(page: &mut PageData, at: u32, content: Content<'_>, from: u32, bytes: u32) {
    match (page, content) {
        (PageData::Items(items), Content::Item(item)) => {
            assert_eq!((from, bytes as usize), (0, item.len()), "an item lies in one page");
            Rc::make_mut(items).push(at, item.clone());
        }
        (PageData::Region(region), content) => copy(Rc::make_mut(region), at, content, from, bytes),
        _ => panic!("a page that is being filled is a region, or items alone"),
    }
}

fn copy(region: &mut Region, at: u32, content: Content<'_>, from: u32, bytes: u32) {
    match content {
        Content::Item(all) => region.write(at, Piece::Bytes(&all[from as usize..(from + bytes) as usize])),
        Content::Stored(source, base) => source.read(base + from, bytes, &mut filling(region, at)),
        Content::Kept(source, base) => source.read(base + from, bytes, &mut filling(region, at)),
    }
}
