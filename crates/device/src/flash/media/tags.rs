//! Medium `tags`: literal bytes as bytes, patterns as their descriptors. Made for drives with far more pages than the
//! machine has memory; it reads back exactly what was programmed.
//!
//! A page becomes one packed string of bytes, numbers of variable length (`v`), zeros left out:
//!
//! ```text
//!   kind u8 | flags u8 | v erases | v lpa | v sequence | tag length u8 | tag | run | run | ...
//!   run:  v gap of zeros before it | v (length << 1 | is pattern) | pattern: seed u64, v offset;  literal: the bytes
//! ```
//!
//! A page of literal bytes alone that is large stays the region it is, shared with whoever programmed it. The owner may
//! discard pages: their runs are dropped, and reading them is a bug of the owner and panics.

use std::rc::Rc;

use kvdrive_link::{Pattern, Placed, Region};

use super::memory::{Keep, Memory};
use super::{MediaKind, image};
use crate::flash::spare::{Spare, TAG_BYTES};

/// The row of `tags` in [`super::MEDIA`].
pub const KIND: MediaKind = MediaKind {
    name: "tags",
    origin: "literal bytes as bytes, generated values as 16-byte descriptors; for very large drives",
    open: |geometry, _| Ok(Box::new(Memory::<TagsPage>::new(geometry))),
    from_image: |geometry, bytes| Ok(Box::new(image::read::<TagsPage>(geometry, bytes)?)),
};

/// Literal bytes from which on a page without patterns is kept as it is instead of being copied.
const SHARE_BYTES: usize = 1024;
const FLAG_LOST: u8 = 1;
const FLAG_DISCARDED: u8 = 2;

/// A page as descriptors.
#[derive(Clone)]
pub enum TagsPage {
    /// Header and runs in the packed form.
    Packed(Box<[u8]>),
    /// A region shared with its programmer.
    Shared(Rc<Region>, Box<Spare>),
}

impl Keep for TagsPage {
    const FORMAT: image::Format = image::Format::Tags;

    fn keep(data: &Rc<Region>, spare: &Spare, scratch: &mut Vec<u8>) -> TagsPage {
        if data.patterns().is_empty() && data.literal().len() >= SHARE_BYTES {
            return TagsPage::Shared(data.clone(), Box::new(*spare));
        }
        // Packed elsewhere and copied: a string that shrinks in its place would leave a hole of its former size behind.
        scratch.clear();
        pack_spare(scratch, spare, 0);
        pack_region(scratch, data);
        TagsPage::Packed(scratch.as_slice().into())
    }

    fn data(&self) -> (Rc<Region>, Spare) {
        match self {
            TagsPage::Shared(data, spare) => (data.clone(), **spare),
            TagsPage::Packed(bytes) => {
                let (spare, flags, mut rest) = unpack_spare(bytes);
                assert!(
                    flags & FLAG_DISCARDED == 0,
                    "page of lpa {} is read after it was discarded",
                    spare.lpa
                );
                (Rc::new(unpack_region(&mut rest)), spare)
            }
        }
    }

    fn spare(&self) -> Spare {
        match self {
            TagsPage::Shared(_, spare) => **spare,
            TagsPage::Packed(bytes) => unpack_spare(bytes).0,
        }
    }

    fn let_go(&mut self) {
        let spare = self.spare();
        let mut out = Vec::with_capacity(96);
        pack_spare(&mut out, &spare, FLAG_DISCARDED);
        *self = TagsPage::Packed(out.as_slice().into());
    }

    fn has_data(&self) -> bool {
        match self {
            TagsPage::Shared(..) => true,
            TagsPage::Packed(bytes) => bytes[1] & FLAG_DISCARDED == 0,
        }
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    let mut shift = 0;
    loop {
        let (byte, rest) = bytes.split_first().expect("a packed page is whole");
        *bytes = rest;
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return number;
        }
        shift += 7;
    }
}

fn take_bytes<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

fn pack_spare(out: &mut Vec<u8>, spare: &Spare, flags: u8) {
    out.push(spare.kind);
    out.push(flags | if spare.lost { FLAG_LOST } else { 0 });
    put(out, spare.block_erases.into());
    put(out, spare.lpa);
    put(out, spare.sequence);
    let used = spare.tag.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    out.push(used as u8);
    out.extend_from_slice(&spare.tag[..used]);
}

/// The header, the flags, and the runs behind it.
fn unpack_spare(bytes: &[u8]) -> (Spare, u8, &[u8]) {
    let (kind, flags) = (bytes[0], bytes[1]);
    let mut rest = &bytes[2..];
    let block_erases = take(&mut rest) as u32;
    let lpa = take(&mut rest);
    let sequence = take(&mut rest);
    let used = usize::from(take_bytes(&mut rest, 1)[0]);
    let mut tag = [0; TAG_BYTES];
    tag[..used].copy_from_slice(take_bytes(&mut rest, used));
    let lost = flags & FLAG_LOST != 0;
    (Spare { kind, lost, block_erases, lpa, sequence, tag }, flags, rest)
}

fn pack_region(out: &mut Vec<u8>, data: &Region) {
    let literal = data.literal();
    // End of the run packed last: gaps count from here.
    let mut packed = 0;
    let mut here = 0;
    let pack_literal = |out: &mut Vec<u8>, from: usize, to: usize, packed: &mut usize| {
        let to = to.min(literal.len());
        if from < to && literal[from..to].iter().any(|byte| *byte != 0) {
            put(out, (from - *packed) as u64);
            put(out, ((to - from) as u64) << 1);
            out.extend_from_slice(&literal[from..to]);
            *packed = to;
        }
    };
    for placed in data.patterns() {
        let at = placed.at as usize;
        pack_literal(out, here, at, &mut packed);
        put(out, (at - packed) as u64);
        put(out, u64::from(placed.pattern.bytes) << 1 | 1);
        out.extend_from_slice(&placed.pattern.seed.to_le_bytes());
        put(out, placed.pattern.offset.into());
        packed = at + placed.pattern.bytes as usize;
        here = packed;
    }
    pack_literal(out, here, literal.len(), &mut packed);
}

fn unpack_region(runs: &mut &[u8]) -> Region {
    let mut literal = Vec::new();
    let mut patterns = Vec::new();
    let mut here = 0usize;
    while !runs.is_empty() {
        here += take(runs) as usize;
        let length = take(runs);
        let bytes = (length >> 1) as usize;
        if length & 1 == 1 {
            let seed = u64::from_le_bytes(take_bytes(runs, 8).try_into().expect("8 bytes"));
            let offset = take(runs) as u32;
            patterns.push(Placed { at: here as u32, pattern: Pattern { seed, offset, bytes: bytes as u32 } });
        } else {
            literal.resize(here, 0);
            literal.extend_from_slice(take_bytes(runs, bytes));
        }
        here += bytes;
    }
    Region::from_parts(literal, patterns).expect("patterns were packed in order")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvdrive_link::Piece;

    const PAGE: u32 = 16384;

    fn round_trip(region: Region) -> usize {
        let spare = Spare { lost: true, block_erases: 300, ..Spare::new(3, 1 << 33, 77, [0; 48]) };
        let bytes = region.to_bytes(PAGE);
        let mut page = TagsPage::keep(&Rc::new(region), &spare, &mut Vec::new());
        let (read, header) = page.data();
        assert_eq!(header, spare);
        assert_eq!(read.to_bytes(PAGE), bytes);
        let size = match &page {
            TagsPage::Packed(bytes) => bytes.len(),
            TagsPage::Shared(data, _) => data.literal().len(),
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
}
