//! Reads bytes from outside, from the front, and encodes patterns and regions. It does not know what the
//! bytes belong to: images, journals, recordings.
//!
//! ```text
//!   pattern   seed u64 | offset u32 | bytes u32
//!   region    literal bytes u32 | literal | patterns u32 | patterns x (at u32, pattern)
//! ```
//!
//! Numbers are little endian.

use crate::{Pattern, Placed, Region};

/// Reads arbitrary bytes from the front. A read returns `None` if the bytes end too early or cannot be such a
/// value; what was read before stays read.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Decoder<'a> {
    /// Starts at the first of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { bytes, at: 0 }
    }

    /// Number of bytes read so far: the position of the next one.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The bytes that have not been read.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Has everything been read?
    pub fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// The bytes read since position `from`.
    pub fn read_since(&self, from: usize) -> &'a [u8] {
        &self.bytes[from..self.at]
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.rest().get(..count)?;
        self.at += count;
        Some(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = *self.rest().first_chunk::<N>()?;
        self.at += N;
        Some(taken)
    }

    /// A byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// A byte that is 0 or 1.
    pub fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A run of bytes whose length is in the four bytes before them.
    pub fn counted(&mut self) -> Option<&'a [u8]> {
        let count = self.u32()?;
        self.take(count as usize)
    }

    /// A pattern that ends within its stream.
    pub fn pattern(&mut self) -> Option<Pattern> {
        let pattern = Pattern { seed: self.u64()?, offset: self.u32()?, bytes: self.u32()? };
        pattern.offset.checked_add(pattern.bytes)?;
        Some(pattern)
    }

    /// A region whose parts do not overlap.
    pub fn region(&mut self) -> Option<Region> {
        let literal = self.counted()?.to_vec();
        let mut patterns = Vec::new();
        for _ in 0..self.u32()? {
            let placed = Placed { at: self.u32()?, pattern: self.pattern()? };
            placed.at.checked_add(placed.pattern.bytes)?;
            patterns.push(placed);
        }
        Region::from_parts(literal, patterns)
    }
}

/// Appends what [`Decoder::u32`] reads.
pub fn put32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends what [`Decoder::u64`] reads.
pub fn put64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends what [`Decoder::counted`] reads: the number of bytes, then the bytes.
pub fn put_counted(out: &mut Vec<u8>, bytes: &[u8]) {
    put32(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

impl Pattern {
    /// Appends the pattern as [`Decoder::pattern`] reads it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put64(out, self.seed);
        put32(out, self.offset);
        put32(out, self.bytes);
    }
}

impl Region {
    /// Appends the region as [`Decoder::region`] reads it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_counted(out, self.literal());
        put32(out, self.patterns().len() as u32);
        for Placed { at, pattern } in self.patterns() {
            put32(out, *at);
            pattern.encode(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Piece;

    #[test]
    fn a_region_is_read_as_it_was_written_and_not_one_byte_shorter() {
        let mut region = Region::default();
        region.write(3, Piece::Bytes(b"some bytes"));
        region.write(20, Piece::Pattern(Pattern { seed: 7, offset: 5, bytes: 100 }));
        let mut bytes = Vec::new();
        region.encode(&mut bytes);
        let mut whole = Decoder::new(&bytes);
        assert_eq!(whole.region().as_ref(), Some(&region));
        assert!(whole.is_at_end());
        for short in 0..bytes.len() {
            assert_eq!(Decoder::new(&bytes[..short]).region(), None, "{short} bytes of {}", bytes.len());
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let wraps = Pattern { seed: 1, offset: u32::MAX, bytes: 2 };
        let mut bytes = Vec::new();
        wraps.encode(&mut bytes);
        assert_eq!(Decoder::new(&bytes).pattern(), None);
        assert_eq!(Decoder::new(&[2]).flag(), None);
        assert_eq!(Decoder::new(&u32::MAX.to_le_bytes()).counted(), None);
    }
}
