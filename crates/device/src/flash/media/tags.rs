//! Medium `tags`: literal bytes as bytes, patterns as their descriptors. Made for drives with far more pages than the
//! machine has memory; it reads back exactly what was programmed.
//!
//! A page becomes a packed string ([`super::packed`]). A page of literal bytes alone that is large and mostly filled stays
//! the region it is, shared with whoever programmed it, until its owner discards half of it ([`super::thin`]). Discarded
//! pages keep their headers alone. Reading what was discarded is a bug of the owner and panics.

use std::rc::Rc;

use kvdrive_link::Region;

use super::data::PageData;
use super::memory::{Keep, Memory};
use super::packed::{Packed, is_large_and_filled};
use super::thin::{GRAIN_BYTES, Grains, Thin};
use super::{MediaKind, image};
use crate::flash::spare::Spare;

/// The row of `tags` in [`super::MEDIA`].
pub const KIND: MediaKind = MediaKind {
    name: "tags",
    origin: "literal bytes as bytes, generated values as 16-byte descriptors; for very large drives",
    open: |geometry, _| Ok(Box::new(Memory::<TagsPage>::new(geometry))),
    from_image: |geometry, bytes| Ok(Box::new(image::read::<TagsPage>(geometry, bytes)?)),
};

/// A page as descriptors.
#[derive(Clone)]
pub enum TagsPage {
    /// Header and runs in the packed form.
    Packed(Packed),
    /// Many literal bytes.
    Literal(Box<LiteralPage>),
}

/// A page of literal bytes alone.
#[derive(Clone)]
pub struct LiteralPage {
    spare: Spare,
    /// The region that was programmed, or what is left of it.
    data: PageData,
    /// Grains that the data holds, and those of them that are not discarded.
    held: u32,
    wanted: Grains,
}

impl LiteralPage {
    fn new(data: &Rc<Region>, spare: &Spare) -> LiteralPage {
        let held = data.written_end().div_ceil(GRAIN_BYTES);
        LiteralPage { spare: *spare, data: PageData::Region(data.clone()), held, wanted: Grains::all(held) }
    }

    /// Takes out what is not wanted any more each time it is half of what is held: a byte is copied twice at most.
    fn discard(&mut self, at: u32, bytes: u32) {
        self.wanted.remove(at, bytes);
        if 2 * self.wanted.count() <= self.held {
            let data = self.data.clone();
            self.data = PageData::Thin(Thin::new(&self.wanted, |at, bytes, sink| data.read(at, bytes, sink)));
            self.held = self.wanted.count();
        }
    }
}

impl Keep for TagsPage {
    const FORMAT: image::Format = image::Format::Tags;

    fn keep(data: &Rc<Region>, spare: &Spare, scratch: &mut Vec<u8>) -> TagsPage {
        if data.patterns().is_empty() && is_large_and_filled(data.literal()) {
            TagsPage::Literal(Box::new(LiteralPage::new(data, spare)))
        } else {
            TagsPage::Packed(Packed::pack(data, spare, scratch))
        }
    }

    fn data(&self) -> PageData {
        match self {
            TagsPage::Literal(page) => page.data.clone(),
            TagsPage::Packed(packed) => {
                let kept = !packed.is_discarded();
                assert!(kept, "page of lpa {} is read after it was discarded", packed.spare().lpa);
                PageData::Packed(packed.clone())
            }
        }
    }

    fn spare(&self) -> Spare {
        match self {
            TagsPage::Literal(page) => page.spare,
            TagsPage::Packed(packed) => packed.spare(),
        }
    }

    fn let_go(&mut self) {
        *self = TagsPage::Packed(Packed::discarded(&self.spare()));
    }

    fn let_go_part(&mut self, at: u32, bytes: u32) {
        if let TagsPage::Literal(page) = self {
            page.discard(at, bytes);
        }
    }

    fn has_data(&self) -> bool {
        match self {
            TagsPage::Literal(_) => true,
            TagsPage::Packed(packed) => !packed.is_discarded(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvdrive_link::{Pattern, Piece};

    const PAGE: u32 = 16384;

    fn round_trip(region: Region) -> usize {
        let spare = Spare { lost: true, block_erases: 300, ..Spare::new(3, 1 << 33, 77, [0; 48]) };
        let bytes = region.to_bytes(PAGE);
        let mut page = TagsPage::keep(&Rc::new(region), &spare, &mut Vec::new());
        assert_eq!(page.spare(), spare);
        let read = page.data();
        assert_eq!(read.to_bytes(PAGE), bytes);
        assert_eq!(read.clone().into_region().to_bytes(PAGE), bytes);
        for (at, count) in [(0, 4096), (90, 200), (4096, 4096), (5100, 100), (12288, 4096), (16383, 1)] {
            let mut out = vec![0; count as usize];
            read.copy_to(at, &mut out);
            assert_eq!(out, bytes[at as usize..(at + count) as usize], "{count} bytes from {at}");
        }
        let size = match &page {
            TagsPage::Packed(packed) => packed.packed_bytes(),
            TagsPage::Literal(page) => (page.held * GRAIN_BYTES) as usize,
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
