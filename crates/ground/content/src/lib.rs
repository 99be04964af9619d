//! The content of values: bytes, or the description of bytes that a workload generator made.
//!
//! A [`Pattern`] names a part of an endless pseudo-random byte stream. It is carried from host memory through
//! DMA, page buffer, flash and garbage collection as 16 bytes, cut and joined like the bytes it stands for,
//! and expanded only where real bytes are needed (a `ram` or `file` medium, an application that reads them).
//! Meters always use its length.
//!
//! A [`Region`] is a fixed-size piece of memory (a NAND page, a page-buffer entry, a host buffer) whose
//! content is a mixture of both. It does not know the meaning of the bytes.
//!
//! A [`Decoder`] reads both, and numbers, from untrusted bytes.

mod decode;

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_nvme::Key;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use decode::Decoder;

/// Bytes `offset .. offset + bytes` of the stream `seed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, BorshSerialize)]
pub struct Pattern {
    /// Identifies the stream.
    pub seed: u64,
    /// First byte within the stream.
    pub offset: u32,
    /// Length in bytes.
    pub bytes: u32,
}

impl Pattern {
    /// The whole value of version `version` of `key` in generated workloads.
    pub fn of_value(key: &Key, version: u64, bytes: u32) -> Pattern {
        let mut name = [0u8; 16];
        key.copy_to(&mut name);
        let (len, tail) = (key.len().min(name.len()), key.tail_bytes() as u64);
        Pattern { seed: xxh3_64_with_seed(&name[..len], version ^ tail << 48), offset: 0, bytes }
    }

    /// The `bytes` bytes from `at` on. Panics if they are not all inside.
    pub fn slice(&self, at: u32, bytes: u32) -> Pattern {
        assert!(at.checked_add(bytes).is_some_and(|end| end <= self.bytes), "slice {at}+{bytes} of {self:?}");
        Pattern { seed: self.seed, offset: self.offset + at, bytes }
    }

    /// Writes the bytes that the pattern stands for. `out` must have its length.
    pub fn expand(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.bytes as usize, "a pattern expands to its own length");
        let (mut index, within) = (self.offset / 8, (self.offset % 8) as usize);
        let mut rest = out;
        if within > 0 {
            let (now, later) = rest.split_at_mut(rest.len().min(8 - within));
            now.copy_from_slice(&stream_word(self.seed, index).to_le_bytes()[within..within + now.len()]);
            index += 1;
            rest = later;
        }
        let (words, tail) = rest.as_chunks_mut::<8>();
        for word in words {
            *word = stream_word(self.seed, index).to_le_bytes();
            index += 1;
        }
        if !tail.is_empty() {
            // Byte by byte: the few bytes are not worth a call.
            let last = stream_word(self.seed, index).to_le_bytes();
            tail.iter_mut().zip(last).for_each(|(byte, of_word)| *byte = of_word);
        }
    }

    fn continues(&self, next: &Pattern) -> bool {
        self.seed == next.seed && self.offset + self.bytes == next.offset
    }
}

/// Word `index` of a stream (SplitMix64 over a counter).
fn stream_word(seed: u64, index: u32) -> u64 {
    let mut z = seed.wrapping_add(u64::from(index).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A piece of content.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// Real bytes.
    Bytes(&'a [u8]),
    /// Bytes by their description.
    Pattern(Pattern),
}

impl Piece<'_> {
    /// Length in bytes, in either form.
    pub fn bytes(&self) -> u32 {
        match self {
            Piece::Bytes(bytes) => bytes.len() as u32,
            Piece::Pattern(pattern) => pattern.bytes,
        }
    }

    /// The `bytes` bytes from `at` on.
    pub fn slice(&self, at: u32, bytes: u32) -> Piece<'_> {
        match self {
            Piece::Bytes(all) => Piece::Bytes(&all[at as usize..(at + bytes) as usize]),
            Piece::Pattern(pattern) => Piece::Pattern(pattern.slice(at, bytes)),
        }
    }

    /// Writes its bytes to `out`, which must have its length.
    pub fn expand(&self, out: &mut [u8]) {
        match self {
            Piece::Bytes(bytes) => out.copy_from_slice(bytes),
            Piece::Pattern(pattern) => pattern.expand(out),
        }
    }
}

/// Passes `bytes` zeros to `sink`.
pub fn zeros(bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut missing = bytes as usize;
    while missing > 0 {
        let take = missing.min(ZEROS.len());
        sink(Piece::Bytes(&ZEROS[..take]));
        missing -= take;
    }
}

/// A sink that writes the pieces to `out` as real bytes, one after the other.
pub fn expanding(out: &mut [u8]) -> impl FnMut(Piece<'_>) + '_ {
    let mut done = 0;
    move |piece| {
        let end = done + piece.bytes() as usize;
        piece.expand(&mut out[done..end]);
        done = end;
    }
}

/// A pattern at a position of a [`Region`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Placed {
    /// First byte within the region.
    pub at: u32,
    /// The pattern.
    pub pattern: Pattern,
}

impl Placed {
    fn end(&self) -> u32 {
        self.at + self.pattern.bytes
    }
}

/// A fixed-size piece of memory. Bytes that were never written are zero.
///
/// `literal` holds real bytes from 0 up to the highest one ever written; `patterns`, sorted and disjoint, lie
/// on top.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize)]
pub struct Region {
    literal: Vec<u8>,
    patterns: Vec<Placed>,
}

impl Region {
    /// All zero. Takes no memory until it is written.
    pub fn new() -> Region {
        Region::default()
    }

    /// A region of real bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> Region {
        Region { literal: bytes, patterns: Vec::new() }
    }

    /// A region rebuilt from [`Region::literal`] and [`Region::patterns`]; `None` if the patterns overlap,
    /// are out of order, are empty, or end beyond the 32-bit positions.
    pub fn from_parts(literal: Vec<u8>, patterns: Vec<Placed>) -> Option<Region> {
        let ends = |Placed { at, pattern: Pattern { offset, bytes, .. } }: &Placed| {
            *bytes > 0 && at.checked_add(*bytes).is_some() && offset.checked_add(*bytes).is_some()
        };
        let sorted = || patterns.windows(2).all(|pair| pair[0].end() <= pair[1].at);
        let fits = patterns.iter().all(ends) && sorted();
        fits.then_some(Region { literal, patterns })
    }

    /// The real bytes; bytes after them that no pattern covers are zero.
    pub fn literal(&self) -> &[u8] {
        &self.literal
    }

    /// The patterns on top of the literal bytes, by position.
    pub fn patterns(&self) -> &[Placed] {
        &self.patterns
    }

    /// One more than the highest byte written.
    pub fn written_end(&self) -> u32 {
        let literal = self.literal.len() as u32;
        self.patterns.last().map_or(literal, |last| last.end().max(literal))
    }

    /// Exchanges the content for `bytes` without a copy. Returns `false` and exchanges nothing if the region
    /// contains patterns.
    pub fn exchange(&mut self, bytes: &mut Vec<u8>) -> bool {
        if self.patterns.is_empty() {
            std::mem::swap(&mut self.literal, bytes);
        }
        self.patterns.is_empty()
    }

    /// Makes all bytes zero and keeps the memory for the next content.
    pub fn clear(&mut self) {
        self.literal.clear();
        self.patterns.clear();
    }

    /// As [`Region::clear`], but keeps no more memory than for `bytes` real bytes, about.
    pub fn clear_to(&mut self, bytes: u32) {
        self.clear();
        if self.literal.capacity() / 2 > bytes as usize {
            self.literal = Vec::new();
        }
    }

    /// Allocates room for real bytes up to `bytes`, so that writes up to there do not reallocate.
    pub fn reserve(&mut self, bytes: u32) {
        let more = (bytes as usize).saturating_sub(self.literal.len());
        self.literal.reserve_exact(more);
    }

    /// Writes `piece` at byte `at`, over the present content.
    pub fn write(&mut self, at: u32, piece: Piece<'_>) {
        let bytes = piece.bytes();
        if bytes == 0 {
            return;
        }
        // Most content is appended, or, where a page is filled from its end, prepended.
        let is_behind = self.patterns.last().is_none_or(|last| last.end() <= at);
        if !is_behind && self.patterns[0].at < at + bytes {
            self.cut_patterns(at, at + bytes);
        }
        match piece {
            Piece::Bytes(new) => {
                let (from, to) = (at as usize, at as usize + new.len());
                if from == self.literal.len() {
                    self.literal.extend_from_slice(new);
                } else {
                    if self.literal.len() < to {
                        self.literal.resize(to, 0);
                    }
                    self.literal[from..to].copy_from_slice(new);
                }
            }
            Piece::Pattern(pattern) => self.place(Placed { at, pattern }),
        }
    }

    fn place(&mut self, new: Placed) {
        // Most patterns are appended or prepended.
        let index = match &self.patterns[..] {
            [.., last] if last.at < new.at => self.patterns.len(),
            [first, ..] if first.at < new.at => self.patterns.partition_point(|placed| placed.at < new.at),
            _ => 0,
        };
        if index > 0 {
            let before = &mut self.patterns[index - 1];
            if before.end() == new.at && before.pattern.continues(&new.pattern) {
                before.pattern.bytes += new.pattern.bytes;
                return;
            }
        }
        self.patterns.insert(index, new);
    }

    /// Removes the parts of patterns within `from..to`; the remaining parts stay.
    fn cut_patterns(&mut self, from: u32, to: u32) {
        let first = self.patterns.partition_point(|placed| placed.end() <= from);
        let last = first + self.patterns[first..].iter().take_while(|placed| placed.at < to).count();
        if first == last {
            return;
        }
        let left = self.patterns[first];
        let right = self.patterns[last - 1];
        let mut rests = Vec::new();
        if left.at < from {
            rests.push(Placed { at: left.at, pattern: left.pattern.slice(0, from - left.at) });
        }
        if right.end() > to {
            let rest = right.pattern.slice(to - right.at, right.end() - to);
            rests.push(Placed { at: to, pattern: rest });
        }
        self.patterns.splice(first..last, rests);
    }

    /// Passes `bytes` bytes from `at` on to `sink`, in order, in as few pieces as they are kept in.
    pub fn read(&self, at: u32, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        let end = at + bytes;
        let mut here = at;
        let mut index = self.patterns.partition_point(|placed| placed.end() <= at);
        while here < end {
            match self.patterns.get(index).filter(|placed| placed.at < end) {
                Some(placed) if placed.at <= here => {
                    let stop = placed.end().min(end);
                    sink(Piece::Pattern(placed.pattern.slice(here - placed.at, stop - here)));
                    here = stop;
                    index += 1;
                }
                next => {
                    let stop = next.map_or(end, |placed| placed.at);
                    self.read_literal(here, stop, sink);
                    here = stop;
                }
            }
        }
    }

    fn read_literal(&self, from: u32, to: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        let (from, to) = (from as usize, to as usize);
        let kept = self.literal.len().min(to);
        if from < kept {
            sink(Piece::Bytes(&self.literal[from..kept]));
        }
        zeros((to - from.max(kept).min(to)) as u32, sink);
    }

    /// Writes `out.len()` bytes from `at` on as real bytes.
    pub fn copy_to(&self, at: u32, out: &mut [u8]) {
        self.read(at, out.len() as u32, &mut expanding(out));
    }

    /// The first `size` bytes as real bytes.
    pub fn to_bytes(&self, size: u32) -> Vec<u8> {
        let mut out = vec![0; size as usize];
        self.copy_to(0, &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Write {
        Bytes(u32, Vec<u8>),
        Pattern(u32, Pattern),
    }

    fn write() -> impl Strategy<Value = Write> {
        prop_oneof![
            (0u32..200, proptest::collection::vec(any::<u8>(), 0..60))
                .prop_map(|(at, b)| Write::Bytes(at, b)),
            (0u32..200, any::<u64>(), 0u32..50, 0u32..60).prop_map(|(at, seed, offset, bytes)| {
                Write::Pattern(at, Pattern { seed, offset, bytes })
            }),
        ]
    }

    #[test]
    fn patterns_that_no_region_has_make_none() {
        let placed = |at, offset, bytes| Placed { at, pattern: Pattern { seed: 1, offset, bytes } };
        let is_one = |patterns: &[Placed]| Region::from_parts(vec![7], patterns.to_vec()).is_some();
        assert!(is_one(&[]) && is_one(&[placed(0, 0, 5), placed(5, 9, 1)]));
        assert!(!is_one(&[placed(0, 0, 0)]), "empty");
        assert!(!is_one(&[placed(u32::MAX, 0, 1)]) && !is_one(&[placed(0, u32::MAX, 1)]), "too long");
        assert!(!is_one(&[placed(0, 0, 5), placed(4, 0, 1)]), "overlapping");
        assert!(!is_one(&[placed(5, 0, 1), placed(0, 0, 1)]), "out of order");
    }

    proptest! {
        #[test]
        fn a_region_is_the_bytes_written_to_it(writes in proptest::collection::vec(write(), 0..20), at in 0u32..260) {
            let mut region = Region::new();
            let mut model = vec![0u8; 260];
            for write in &writes {
                let (at, piece) = match write {
                    Write::Bytes(at, bytes) => (*at, Piece::Bytes(bytes)),
                    Write::Pattern(at, pattern) => (*at, Piece::Pattern(*pattern)),
                };
                region.write(at, piece);
                piece.expand(&mut model[at as usize..(at + piece.bytes()) as usize]);
            }
            prop_assert_eq!(&region.to_bytes(260), &model);
            let mut tail = vec![0; 260 - at as usize];
            region.copy_to(at, &mut tail);
            prop_assert_eq!(&tail, &model[at as usize..]);
            let parts = Region::from_parts(region.literal().to_vec(), region.patterns().to_vec());
            prop_assert_eq!(parts, Some(region));
        }
    }
}
