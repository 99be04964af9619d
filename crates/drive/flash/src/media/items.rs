//! A page made of whole items: byte strings that are written, read and freed as one, such as the sections of
//! a hash table. Between and after them, the page is zero.
//!
//! An item is one allocation that the page shares with its writers and readers, so that nothing is copied
//! between a cache, a page being filled, a page in flight and the medium. The owner interprets items; the
//! page only keeps the head of a freed item, because owners find an item by the heads of those before it.

use std::cell::Cell;
use std::hint::black_box;
use std::mem::size_of;
use std::rc::Rc;

use kvdrive_content::{Piece, Region, zeros};

/// Bytes at the start of an item that stay when the rest is freed.
pub const HEAD_BYTES: usize = 16;

/// There can be millions, so an item is no larger than position and reference.
#[derive(Clone)]
enum Item {
    /// Whole.
    Kept { at: u32, bytes: Rc<[u8]> },
    /// Freed, except for its head.
    Gone { at: u32, length: u16, head: [u8; HEAD_BYTES] },
}

const _: () = assert!(size_of::<Item>() == 24);

impl Item {
    fn at(&self) -> u32 {
        match self {
            Item::Kept { at, .. } | Item::Gone { at, .. } => *at,
        }
    }

    fn end(&self) -> u32 {
        match self {
            Item::Kept { at, bytes } => at + bytes.len() as u32,
            Item::Gone { at, length, .. } => at + u32::from(*length),
        }
    }

    /// The bytes that are kept.
    fn bytes(&self) -> &[u8] {
        match self {
            Item::Kept { bytes, .. } => bytes,
            Item::Gone { head, .. } => head,
        }
    }

    /// Frees all but the head; `false` if that was done before. An item shorter than a head, or longer than
    /// `length` can count, is kept.
    fn let_go(&mut self) -> bool {
        if let Item::Kept { at, bytes } = self
            && let Some(head) = bytes.first_chunk()
            && let Ok(length) = u16::try_from(bytes.len())
        {
            *self = Item::Gone { at: *at, length, head: *head };
            return true;
        }
        false
    }
}

/// The items of a page, by position.
#[derive(Clone, Default)]
pub struct Items {
    list: Vec<Item>,
    /// First byte after the last item.
    end: u32,
}

impl Items {
    /// Adds an item at byte `at`.
    ///
    /// # Panics
    /// The item does not lie after the others.
    pub fn push(&mut self, at: u32, bytes: Rc<[u8]>) {
        assert!(at >= self.end, "an item at {at} begins inside another");
        self.end = at + bytes.len() as u32;
        self.list.push(Item::Kept { at, bytes });
    }

    /// No more items will be added.
    pub fn close(&mut self) {
        self.list.shrink_to_fit();
    }

    /// First byte after the last item.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// The first item that ends after byte `at`. Items of one kind have similar lengths, so their share of
    /// the page is near their index in the list; a binary search would touch more memory.
    fn first_after(&self, at: u32) -> usize {
        let count = self.list.len();
        self.first_after_near((u64::from(at) * count as u64 / u64::from(self.end.max(1))) as usize, at)
    }

    /// [`Items::first_after`], searched from `guess` on.
    fn first_after_near(&self, guess: usize, at: u32) -> usize {
        let count = self.list.len();
        let mut index = count.min(guess);
        while index > 0 && self.list[index - 1].end() > at {
            index -= 1;
        }
        while index < count && self.list[index].end() <= at {
            index += 1;
        }
        index
    }

    /// The item at byte `at`, if it is kept.
    pub fn get(&self, at: u32) -> Option<&Rc<[u8]>> {
        match self.list.get(self.first_after(at))? {
            Item::Kept { at: begin, bytes } if *begin == at => Some(bytes),
            _ => None,
        }
    }

    /// The first `count` bytes of the item at byte `at`, if they are kept.
    pub fn beginning(&self, at: u32, count: usize) -> Option<&[u8]> {
        self.beginning_of(self.first_after(at), at, count)
    }

    /// A reader from front to back.
    pub fn forward(&self) -> Forward<'_> {
        Forward { items: self, next: Cell::new(0) }
    }

    fn beginning_of(&self, index: usize, at: u32, count: usize) -> Option<&[u8]> {
        let item = self.list.get(index).filter(|item| item.at() == at)?;
        item.bytes().get(..count)
    }

    /// Touches the memory of the list of items.
    pub fn meet(&self) {
        black_box(self.list.len());
    }

    /// Touches the first bytes of all items.
    pub fn meet_all(&self) {
        self.list.iter().for_each(|item| _ = black_box(item.bytes().first().copied()));
    }

    /// Frees the items that `bytes` bytes from `at` on cover, with or without their heads; the heads stay.
    /// `false` if there was none.
    pub fn discard(&mut self, at: u32, bytes: u32) -> bool {
        let first = self.first_after(at);
        let covered = self.list[first..].iter_mut().take_while(|item| item.end() <= at + bytes);
        let whole = covered.skip_while(|item| item.at() + (HEAD_BYTES as u32) < at);
        let mut any = false;
        for item in whole {
            any |= item.let_go();
        }
        any
    }

    /// Passes `bytes` bytes from `at` on to `sink`.
    ///
    /// # Panics
    /// A part of them was freed.
    pub fn read(&self, at: u32, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        let (mut here, end) = (at, at + bytes);
        for item in self.list[self.first_after(at)..].iter().take_while(|item| item.at() < end) {
            let (from, to) = (item.at().max(here), item.end().min(end));
            zeros(from - here, sink);
            let within = (from - item.at()) as usize..(to - item.at()) as usize;
            let there = item.bytes().get(within);
            sink(Piece::Bytes(there.unwrap_or_else(|| {
                panic!(
                    "byte {} of a page is read after it was discarded",
                    from.max(item.at() + HEAD_BYTES as u32)
                )
            })));
            here = to;
        }
        zeros(end - here, sink);
    }

    /// The page, with zeros for freed parts.
    pub fn unpack(&self) -> Region {
        let mut region = Region::new();
        self.list.iter().for_each(|item| region.write(item.at(), Piece::Bytes(item.bytes())));
        region
    }
}

/// Items, with the position after the last read.
pub struct Forward<'a> {
    items: &'a Items,
    next: Cell<usize>,
}

impl Forward<'_> {
    /// [`Items::beginning`].
    pub fn beginning(&self, at: u32, count: usize) -> Option<&[u8]> {
        let index = self.items.first_after_near(self.next.get(), at);
        self.next.set(index + 1);
        self.items.beginning_of(index, at, count)
    }

    /// [`Items::read`].
    pub fn read(&self, at: u32, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        self.items.read(at, bytes, sink);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvdrive_content::expanding;

    fn item(byte: u8, length: usize) -> Rc<[u8]> {
        vec![byte; length].into()
    }

    /// Items of 100, 64 and 20 bytes with gaps of 0, 28 and 8 bytes before them.
    fn page() -> Items {
        let mut items = Items::default();
        for (at, byte, length) in [(0, 1, 100), (128, 2, 64), (200, 3, 20)] {
            items.push(at, item(byte, length));
        }
        items.close();
        items
    }

    fn read(items: &Items, at: u32, bytes: u32) -> Vec<u8> {
        let mut out = vec![0xEE; bytes as usize];
        items.read(at, bytes, &mut expanding(&mut out));
        out
    }

    #[test]
    fn a_page_reads_as_the_region_it_is() {
        let items = page();
        let region = items.unpack();
        assert_eq!((items.end(), region.written_end()), (220, 220));
        for at in 0..260 {
            for bytes in [0, 1, 27, 28, 29, 100, 300] {
                let mut expected = vec![0; bytes as usize];
                region.copy_to(at, &mut expected);
                assert_eq!(read(&items, at, bytes), expected, "{bytes} bytes from {at}");
            }
        }
    }

    #[test]
    fn an_item_is_the_memory_that_was_put_there() {
        let mut items = Items::default();
        let (first, second) = (item(7, 40), item(8, 40));
        items.push(64, first.clone());
        items.push(128, second.clone());
        let copy = items.clone();
        assert!(Rc::ptr_eq(items.get(64).unwrap(), &first));
        assert_eq!(Rc::strong_count(&first), 3);
        assert!(items.get(65).is_none() && items.get(0).is_none());
        assert!(items.discard(64 + 16, 24) && !items.discard(64 + 16, 24));
        assert!(items.get(64).is_none());
        assert_eq!(Rc::strong_count(&first), 2, "the copy goes its own way");
        assert!(Rc::ptr_eq(copy.get(64).unwrap(), &first) && Rc::ptr_eq(items.get(128).unwrap(), &second));
    }

    #[test]
    fn what_is_let_go_leaves_its_head_and_nothing_else_changes() {
        let mut items = page();
        // Not the whole item, and a range that starts before its head.
        assert!(!items.discard(128 + 16, 40) && !items.discard(50, 60));
        assert!(items.get(0).is_some() && items.get(128).is_some());
        items.discard(128 + 16, 48);
        assert!(items.get(0).is_some() && items.get(128).is_none() && items.get(200).is_some());
        assert_eq!(read(&items, 100, 44), [vec![0; 28], vec![2; 16]].concat());
        assert_eq!(read(&items, 192, 40), [vec![0; 8], vec![3; 20], vec![0; 12]].concat());
        let mut expected = page().unpack().to_bytes(220);
        expected[128 + 16..192].fill(0);
        assert_eq!(items.unpack().to_bytes(220), expected);
        // All remaining items, heads included, and freed ones again.
        items.discard(0, 1000);
        assert_eq!(read(&items, 200, 16), [3; 16]);
        assert_eq!((items.get(0), items.get(200)), (None, None));
    }

    #[test]
    #[should_panic(expected = "byte 144 of a page is read after it was discarded")]
    fn what_was_let_go_cannot_be_read() {
        let mut items = page();
        items.discard(144, 48);
        read(&items, 90, 60);
    }

    #[test]
    #[should_panic(expected = "an item at 219 begins inside another")]
    fn items_do_not_overlap() {
        page().push(219, item(1, 1));
    }
}
