//! Medium `tags`: literal bytes as bytes, patterns as their descriptors. Made for drives with far more pages
//! than the machine has memory; it returns exactly what was programmed.
//!
//! A page becomes a packed string ([`super::packed`]). Three kinds are kept unpacked and shared with their
//! writer: a region of literal bytes only that is large and mostly filled, a page of items
//! ([`super::items`]), and one whose bytes have not been computed ([`super::deferred`]). Discarded pages keep
//! only their headers, discarded items only their heads. Reading discarded data is a bug of the owner and
//! panics.

use std::rc::Rc;

use kvdrive_content::Region;

use super::data::PageData;
use super::deferred::Deferred;
use super::items::Items;
use super::memory::{Format, Keep, Memory};
use super::packed::{Packed, is_large_and_filled};
use super::{MediaKind, image};
use crate::spare::{BoxedSpare, Spare};

/// The row of `tags` in [`super::MEDIA`].
pub const KIND: MediaKind = MediaKind {
    name: "tags",
    origin: "literal bytes as bytes, generated values as 16-byte descriptors; for very large drives",
    has_file: false,
    open: |geometry, options| Ok(Box::new(Memory::<TagsPage>::new(geometry, options.identity))),
    from_image: |geometry, bytes| Ok(Box::new(image::read::<TagsPage>(geometry, bytes)?)),
};

/// A page as descriptors.
#[derive(Clone)]
pub enum TagsPage {
    /// Header and runs in the packed form.
    Packed(Packed),
    /// The region that was programmed.
    Region(Rc<Region>, BoxedSpare),
    /// The items that were programmed, less those that were discarded.
    Items(Rc<Items>, BoxedSpare),
    /// The content, whose bytes are computed when they are read.
    Deferred(Rc<Deferred>, BoxedSpare),
}

impl Keep for TagsPage {
    const FORMAT: Format = Format::Tags;

    fn keep(data: &PageData, spare: &Spare, scratch: &mut Vec<u8>) -> TagsPage {
        match data {
            PageData::Items(items) => TagsPage::Items(items.clone(), BoxedSpare::new(spare)),
            PageData::Deferred(page) => TagsPage::Deferred(page.clone(), BoxedSpare::new(spare)),
            PageData::Region(region)
                if region.patterns().is_empty() && is_large_and_filled(region.literal()) =>
            {
                TagsPage::Region(region.clone(), BoxedSpare::new(spare))
            }
            data => TagsPage::Packed(Packed::pack(&data.clone().into_region(), spare, scratch)),
        }
    }

    fn data(&self) -> PageData {
        match self {
            TagsPage::Region(region, _) => PageData::Region(region.clone()),
            TagsPage::Items(items, _) => PageData::Items(items.clone()),
            TagsPage::Deferred(page, _) => PageData::Deferred(page.clone()),
            TagsPage::Packed(packed) => {
                let kept = !packed.is_discarded();
                assert!(kept, "page of lpa {} is read after it was discarded", packed.spare().lpa);
                PageData::Packed(packed.clone())
            }
        }
    }

    fn meet(&self) {
        match self {
            TagsPage::Items(items, _) => items.meet(),
            TagsPage::Packed(packed) => packed.meet(),
            TagsPage::Region(..) | TagsPage::Deferred(..) => {}
        }
    }

    fn meet_part(&self, at: u32) -> Option<&Rc<[u8]>> {
        match self {
            TagsPage::Items(items, _) => items.get(at),
            _ => None,
        }
    }

    fn spare(&self) -> Spare {
        match self {
            TagsPage::Region(_, spare) | TagsPage::Items(_, spare) | TagsPage::Deferred(_, spare) => {
                spare.spare()
            }
            TagsPage::Packed(packed) => packed.spare(),
        }
    }

    fn is_lost(&self) -> bool {
        match self {
            TagsPage::Region(_, spare) | TagsPage::Items(_, spare) | TagsPage::Deferred(_, spare) => {
                spare.is_lost()
            }
            TagsPage::Packed(packed) => packed.is_lost(),
        }
    }

    fn let_go(&mut self) {
        *self = TagsPage::Packed(Packed::discarded(&self.spare()));
    }

    fn let_go_part(&mut self, at: u32, bytes: u32) -> bool {
        // If the page is being read, nothing is discarded.
        match self {
            TagsPage::Items(items, _) => Rc::get_mut(items).is_some_and(|items| items.discard(at, bytes)),
            _ => false,
        }
    }

    fn has_data(&self) -> bool {
        match self {
            TagsPage::Region(..) | TagsPage::Items(..) | TagsPage::Deferred(..) => true,
            TagsPage::Packed(packed) => !packed.is_discarded(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvdrive_content::{Pattern, Piece};

    const PAGE: u32 = 16384;

    fn round_trip(region: Region) -> usize {
        let spare = Spare { lost: true, block_erases: 300, ..Spare::new(3, 1 << 33, 77, [0; 48]) };
        let bytes = region.to_bytes(PAGE);
        let mut page = TagsPage::keep(&Rc::new(region).into(), &spare, &mut Vec::new());
        assert_eq!(page.spare(), spare);
        let read = page.data();
        assert_eq!(read.to_bytes(PAGE), bytes);
        assert_eq!(read.clone().into_region().to_bytes(PAGE), bytes);
        for (at, count) in [(0, 4096), (90, 200), (4096, 4096), (5100, 100), (12288, 4096), (16383, 1)] {
            let mut out = vec![0; count as usize];
            read.copy_to(at, &mut out);
            assert_eq!(out, bytes[at as usize..(at + count) as usize], "{count} bytes from {at}");
        }
        // In steps from front to back, over bytes that are not read, and again from the front.
        for step in [1, 7, 21, 512, 1024, 3000] {
            let forward = read.forward();
            for at in (0..PAGE - 40).step_by(step).chain([90, 16000, 0]) {
                for (at, count) in [(at, 21), (at + 13, 8), (at + 13, 20)] {
                    let mut out = vec![0; count];
                    forward.copy_to(at, &mut out);
                    assert_eq!(out, bytes[at as usize..at as usize + count], "{count} bytes from {at}");
                }
            }
        }
        let size = match &page {
            TagsPage::Packed(packed) => packed.packed_bytes(),
            _ => page.data().written_end() as usize,
        };
        page.let_go();
        assert!(!page.has_data());
        assert_eq!(page.spare(), spare);
        size
    }

    #[test]
    fn pages_come_back_as_they_were() {
        round_trip(Region::new());
        let mut mixed = Region::new();
        mixed.write(100, Piece::Bytes(&[7; 300]));
        mixed.write(200, Piece::Pattern(Pattern { seed: 9, offset: 5, bytes: 50 }));
        mixed.write(5000, Piece::Pattern(Pattern { seed: 10, offset: 0, bytes: 1000 }));
        mixed.write(6100, Piece::Bytes(&[1, 2, 3]));
        round_trip(mixed);
        assert_eq!(round_trip(Region::from_bytes(vec![5; PAGE as usize])), PAGE as usize);
    }

    #[test]
    fn a_page_of_items_is_shared_until_unread_items_are_discarded() {
        let mut items = Items::default();
        let strings: Vec<Rc<[u8]>> = (1..=3).map(|byte| vec![byte; 1000].into()).collect();
        (0..).zip(&strings).for_each(|(slot, string)| items.push(slot * 1024, string.clone()));
        let spare = Spare::new(3, 5, 77, [0; 48]);
        let programmed = PageData::Items(Rc::new(items));
        let mut page = TagsPage::keep(&programmed, &spare, &mut Vec::new());
        assert!(Rc::ptr_eq(&page.data().item(1024, 1000), &strings[1]));
        assert_eq!(*page.data().item(1024, 500), [2; 500]);
        assert!(!page.let_go_part(1024 + 16, 984), "it is not the medium's alone yet");
        drop(programmed);
        let reader = page.data();
        assert!(!page.let_go_part(1024 + 16, 984), "a reader still has it");
        assert_eq!(*reader.item(1024, 1000), [2; 1000]);
        drop(reader);
        assert!(page.let_go_part(1024 + 16, 984));
        assert_eq!(Rc::strong_count(&strings[1]), 1);
        let mut head = [0; 16];
        page.data().copy_to(1024, &mut head);
        assert_eq!((head, page.has_data(), page.spare()), ([2; 16], true, spare));
        assert!(Rc::ptr_eq(&page.data().item(2048, 1000), &strings[2]));
        page.let_go();
        assert!(!page.has_data() && Rc::strong_count(&strings[2]) == 1);
    }

    #[test]
    fn bytes_are_worked_out_once_when_they_are_asked_for() {
        let asked = Rc::new(std::cell::Cell::new(0));
        let count = asked.clone();
        let work = move || {
            count.set(count.get() + 1);
            vec![9; 512]
        };
        let spare = Spare::new(3, 5, 77, [0; 48]);
        let programmed = PageData::Deferred(Rc::new(Deferred::new(512, Box::new(work))));
        let mut page = TagsPage::keep(&programmed, &spare, &mut Vec::new());
        assert_eq!((programmed.written_end(), page.has_data(), asked.get()), (512, true, 0));
        let mut out = [0; 16];
        page.data().copy_to(500, &mut out);
        assert_eq!(out, [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 0]);
        assert_eq!(page.data().into_region().to_bytes(512), [9; 512]);
        assert_eq!(asked.get(), 1);
        page.let_go();
        assert_eq!((page.has_data(), page.spare()), (false, spare));
    }

    #[test]
    fn short_literals_in_slots_take_their_bytes() {
        let mut region = Region::new();
        for slot in 0..4u8 {
            region.write(u32::from(slot) * 4096, Piece::Bytes(&[slot + 1; 45]));
        }
        assert!(round_trip(region) < 300);
    }

    #[test]
    fn four_generated_values_a_page_take_few_bytes() {
        let mut region = Region::new();
        for slot in 0..4 {
            region.write(
                slot * 4096,
                Piece::Pattern(Pattern { seed: u64::MAX - u64::from(slot), offset: 0, bytes: 1000 }),
            );
        }
        assert!(round_trip(region) < 80);
    }

    #[test]
    fn pairs_of_one_size_take_their_header_and_eight_bytes() {
        // 15 pairs of 13 + 1000 B with 1024 B between their beginnings, as a hash engine lays them.
        let mut region = Region::new();
        for slot in 0..15u32 {
            let mut header = [0x47, 0, 0xE8, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            header[9..].copy_from_slice(&(slot * 0x0101_0101).to_be_bytes());
            region.write(slot * 1024, Piece::Bytes(&header));
            let seed = u64::from(slot).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            region.write(slot * 1024 + 13, Piece::Pattern(Pattern { seed, offset: 0, bytes: 1000 }));
        }
        let size = round_trip(region);
        assert!(size <= 15 * 21 + 40, "{size}");
    }
}
