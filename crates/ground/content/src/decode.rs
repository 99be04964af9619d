//! Reads bytes from outside, from the front. It does not know the meaning of the bytes. Where bytes are the encoding of
//! a value, [`kvdrive_record`] reads them; patterns and regions are such values.
//!
//! ```text
//!   pattern   seed u64 | offset u32 | bytes u32
//!   region    literal bytes u32 | literal | patterns u32 | patterns x (at u32, pattern)
//! ```

use borsh::BorshDeserialize;
use borsh::io::{Read, Result};
use kvdrive_record::impossible;

use crate::{Pattern, Placed, Region};

/// Reads arbitrary bytes from the front. A read returns `None` if the bytes end too early or cannot be such a
/// value; values read before that stay consumed.
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
        kvdrive_record::decode(self.take(16)?).ok()
    }
}

/// Refuses a pattern that does not end within its stream.
impl BorshDeserialize for Pattern {
    fn deserialize_reader<R: Read>(reader: &mut R) -> Result<Pattern> {
        let (seed, offset, bytes) = <(u64, u32, u32)>::deserialize_reader(reader)?;
        let ends = offset.checked_add(bytes).is_some();
        let pattern = Pattern { seed, offset, bytes };
        if ends { Ok(pattern) } else { Err(impossible("a pattern ends beyond its stream")) }
    }
}

/// Refuses patterns that overlap.
impl BorshDeserialize for Region {
    fn deserialize_reader<R: Read>(reader: &mut R) -> Result<Region> {
        let (literal, patterns) = <(Vec<u8>, Vec<Placed>)>::deserialize_reader(reader)?;
        Region::from_parts(literal, patterns).ok_or_else(|| impossible("patterns of a region overlap"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Piece;

    #[test]
    fn every_byte_of_a_region_is_refused_or_is_another_region() {
        let mut region = Region::default();
        region.write(3, Piece::Bytes(b"some bytes"));
        region.write(20, Piece::Pattern(Pattern { seed: 7, offset: 5, bytes: 100 }));
        region.write(120, Piece::Pattern(Pattern { seed: 8, offset: 5, bytes: 100 }));
        kvdrive_record::trial::every_byte(&region);
        kvdrive_record::trial::every_byte(&kvdrive_nvme::Key::from_u64_be(77));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let wraps = kvdrive_record::encode(&(1u64, u32::MAX, 2u32));
        assert_eq!(Decoder::new(&wraps).pattern(), None);
        assert_eq!(Decoder::new(&u32::MAX.to_le_bytes()).counted(), None);
    }
}
