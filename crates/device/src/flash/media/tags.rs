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
//! A page of literal bytes alone that is large and mostly filled stays the region it is, shared with whoever programmed
//! it. The owner may discard pages: their runs are dropped, and reading them is a bug of the owner and panics.

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
/// Literal bytes are looked at so many at a time: where all are zero they are a gap.
const STRETCH_BYTES: usize = 32;
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
        if data.patterns().is_empty() && is_large_and_filled(data.literal()) {
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
                let (spare, flags, rest) = unpack_spare(bytes);
                assert!(
                    flags & FLAG_DISCARDED == 0,
                    "page of lpa {} is read after it was discarded",
                    spare.lpa
                );
                (Rc::new(unpack_part(rest, 0, u32::MAX)), spare)
            }
        }
    }

    fn part(&self, at: u32, bytes: u32) -> (Rc<Region>, u32) {
        match self {
            TagsPage::Shared(data, _) => (data.clone(), 0),
            TagsPage::Packed(packed) => {
                let (spare, flags, rest) = unpack_spare(packed);
                assert!(
                    flags & FLAG_DISCARDED == 0,
                    "page of lpa {} is read after it was discarded",
                    spare.lpa
                );
                (Rc::new(unpack_part(rest, at, at + bytes)), at)
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

/// Is so much of `literal` not zero that packing it would save less than half?
fn is_large_and_filled(literal: &[u8]) -> bool {
    let filled = || literal.chunks(STRETCH_BYTES).filter(|stretch| !is_zero(stretch)).count();
    literal.len() >= SHARE_BYTES && 2 * filled() * STRETCH_BYTES >= literal.len()
}

/// Every page is looked through when it is programmed: sixteen bytes at a time.
#[inline]
fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
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

/// What a run looks like, apart from its content.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    /// Zeros between the run before and this one.
    gap: u32,
    bytes: u32,
    /// `Some`: the pattern's offset in its stream.
    pattern: Option<u32>,
}

impl Shape {
    fn content_bytes(&self) -> usize {
        if self.pattern.is_some() { 8 } else { self.bytes as usize }
    }

    fn pack(&self, out: &mut Vec<u8>) {
        put(out, self.gap.into());
        put(out, u64::from(self.bytes) << 1 | u64::from(self.pattern.is_some()));
        if let Some(offset) = self.pattern {
            put(out, offset.into());
        }
    }

    fn unpack(bytes: &mut &[u8]) -> Shape {
        let gap = take(bytes) as u32;
        let length = take(bytes);
        let pattern = (length & 1 == 1).then(|| take(bytes) as u32);
        Shape { gap, bytes: (length >> 1) as u32, pattern }
    }
}

/// A run of a region: its shape and its content.
enum Content<'a> {
    Seed(u64),
    Literal(&'a [u8]),
}

fn runs(data: &Region) -> Vec<(Shape, Content<'_>)> {
    let literal = data.literal();
    let mut runs = Vec::with_capacity(2 * data.patterns().len() + 1);
    // End of the run before: gaps count from here.
    let mut packed = 0;
    let mut here = 0;
    let push_literal = |runs: &mut Vec<_>, from: usize, to: usize, packed: &mut usize| {
        let mut rest = literal.get(from..to.min(literal.len())).unwrap_or_default();
        let mut at = from;
        while !rest.is_empty() {
            let stretches = |zero: bool| rest.chunks(STRETCH_BYTES).take_while(move |it| is_zero(it) == zero);
            let bytes = stretches(false).map(<[u8]>::len).sum::<usize>();
            if bytes > 0 {
                let zeros = rest.iter().position(|byte| *byte != 0).expect("the first stretch has one");
                let shape = Shape {
                    gap: (at + zeros - *packed) as u32,
                    bytes: (bytes - zeros) as u32,
                    pattern: None,
                };
                runs.push((shape, Content::Literal(&rest[zeros..bytes])));
                *packed = at + bytes;
            }
            let passed = bytes.max(stretches(true).map(<[u8]>::len).sum());
            at += passed;
            rest = &rest[passed..];
        }
    };
    for placed in data.patterns() {
        let at = placed.at as usize;
        push_literal(&mut runs, here, at, &mut packed);
        let shape = Shape {
            gap: (at - packed) as u32,
            bytes: placed.pattern.bytes,
            pattern: Some(placed.pattern.offset),
        };
        runs.push((shape, Content::Seed(placed.pattern.seed)));
        packed = at + placed.pattern.bytes as usize;
        here = packed;
    }
    push_literal(&mut runs, here, literal.len(), &mut packed);
    runs
}

fn pack_region(out: &mut Vec<u8>, data: &Region) {
    let runs = runs(data);
    let mut at = 0;
    while at < runs.len() {
        let repeats = |period: usize| {
            let shape = |index: usize| runs.get(index).map(|(shape, _)| *shape);
            let more = (at + period..runs.len()).take_while(|index| shape(*index) == shape(index - period));
            1 + more.count() / period
        };
        let pairs = if at + 1 < runs.len() { repeats(2) } else { 0 };
        let (period, count) = if pairs > 1 { (2, pairs) } else { (1, repeats(1)) };
        put(out, (count as u64) << 1 | (period as u64 - 1));
        runs[at..at + period].iter().for_each(|(shape, _)| shape.pack(out));
        for (_, content) in &runs[at..at + period * count] {
            match content {
                Content::Seed(seed) => out.extend_from_slice(&seed.to_le_bytes()),
                Content::Literal(bytes) => out.extend_from_slice(bytes),
            }
        }
        at += period * count;
    }
}

/// Bytes `from .. to` of the packed runs, as a region that begins at `from`.
fn unpack_part(mut runs: &[u8], from: u32, to: u32) -> Region {
    let mut literal = Vec::new();
    let mut patterns = Vec::new();
    let mut here = 0;
    while !runs.is_empty() && here < to {
        let head = take(&mut runs);
        let mut shapes: [Option<Shape>; 2] = [None; 2];
        for shape in shapes.iter_mut().take(1 + (head & 1) as usize) {
            *shape = Some(Shape::unpack(&mut runs));
        }
        let shapes = || shapes.iter().flatten();
        let span: u32 = shapes().map(|shape| shape.gap + shape.bytes).sum();
        let content_bytes: usize = shapes().map(Shape::content_bytes).sum();
        let count = (head >> 1) as u32;
        // Repetitions that end before `from`.
        let skipped = from.saturating_sub(here).checked_div(span).unwrap_or(0).min(count);
        here += skipped * span;
        runs = &runs[skipped as usize * content_bytes..];
        for repetition in skipped..count {
            if here >= to {
                // Nothing behind is wanted either: where the group ends does not matter.
                runs = &runs[(count - repetition) as usize * content_bytes..];
                break;
            }
            for shape in shapes() {
                here += shape.gap;
                let content = take_bytes(&mut runs, shape.content_bytes());
                let (first, last) = (here.max(from), (here + shape.bytes).min(to));
                if first < last {
                    let (at, skip) = (first - from, first - here);
                    match shape.pattern {
                        None => {
                            literal.resize(at as usize, 0);
                            literal.extend_from_slice(&content[skip as usize..(last - here) as usize]);
                        }
                        Some(offset) => {
                            let seed = u64::from_le_bytes(content.try_into().expect("8 bytes"));
                            let pattern = Pattern { seed, offset: offset + skip, bytes: last - first };
                            patterns.push(Placed { at, pattern });
                        }
                    }
                }
                here += shape.bytes;
            }
        }
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
        for (at, count) in [(0, 4096), (90, 200), (4096, 4096), (5100, 100), (12288, 4096), (16383, 1)] {
            let (part, base) = page.part(at, count);
            let mut out = vec![0; count as usize];
            part.copy_to(at - base, &mut out);
            assert_eq!(out, bytes[at as usize..(at + count) as usize], "{count} bytes from {at}");
        }
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
