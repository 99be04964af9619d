//! A key of the KV command set: 1 to 16 opaque bytes, compared in byte order.
//!
//! ```text
//!   key bytes   6b 65 79              "key", length 3
//!   hi          0x6b65790000000000    bytes 0..7, big endian, zero padded
//!   lo          0x0000000000000000    bytes 8..15
//!   len         3
//! ```
//!
//! Zero bytes are legal inside a key, and the same bytes with another length are another key
//! (`61` and `61 00` differ). Because padding is zero and the length comes last, comparing
//! `(hi, lo, len)` is exactly the lexicographic comparison of the byte strings: two integer
//! compares in place of a `memcmp`.
//!
//! Not here: hashing (each engine has its own) and where a key sits in an entry ([`crate::sqe`]).

use std::fmt;

use borsh::io::{Error, ErrorKind, Read, Result, Write};
use borsh::{BorshDeserialize, BorshSerialize};

/// A key of 1 to [`Key::MAX_LEN`] bytes. Ordered as its bytes are ordered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    // The order of the fields is the order of comparison.
    hi: u64,
    lo: u64,
    len: u8,
}

#[expect(clippy::len_without_is_empty, reason = "a key has at least one byte, so there is nothing to ask")]
impl Key {
    /// The longest key in bytes (KV command set: a key has at most 16 bytes).
    pub const MAX_LEN: usize = 16;

    /// The key with these bytes; `None` if there are none or more than [`Key::MAX_LEN`].
    #[inline]
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Key> {
        if bytes.is_empty() || bytes.len() > Self::MAX_LEN {
            return None;
        }
        let mut padded = [0; Self::MAX_LEN];
        padded[..bytes.len()].copy_from_slice(bytes);
        Self::from_padded(padded, bytes.len())
    }

    /// The key in the first `len` bytes of `padded`; the bytes after them are ignored, as a drive must.
    /// `None` if `len` is 0 or more than [`Key::MAX_LEN`].
    #[inline]
    #[must_use]
    pub const fn from_padded(padded: [u8; 16], len: usize) -> Option<Key> {
        if len == 0 || len > Self::MAX_LEN {
            return None;
        }
        let kept = u128::from_be_bytes(padded) & (u128::MAX << (128 - 8 * len));
        Some(Key { hi: (kept >> 64) as u64, lo: kept as u64, len: len as u8 })
    }

    /// The 4-byte key that holds `number` big endian, so that keys sort in the order of their numbers.
    #[inline]
    #[must_use]
    pub const fn from_u32_be(number: u32) -> Key {
        Key { hi: (number as u64) << 32, lo: 0, len: 4 }
    }

    /// The 8-byte key that holds `number` big endian, so that keys sort in the order of their numbers.
    #[inline]
    #[must_use]
    pub const fn from_u64_be(number: u64) -> Key {
        Key { hi: number, lo: 0, len: 8 }
    }

    /// The highest key below this one; `None` below the lowest.
    #[must_use]
    pub fn predecessor(&self) -> Option<Key> {
        let (mut bytes, len) = (self.to_array(), self.len());
        if bytes[len - 1] == 0 {
            return Key::from_padded(bytes, len - 1);
        }
        bytes[len - 1] -= 1;
        bytes[len..].fill(0xFF);
        Key::from_padded(bytes, Self::MAX_LEN)
    }

    /// Length in bytes, 1 to [`Key::MAX_LEN`].
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// The key's bytes, zero padded; the first [`Key::len`] are the key.
    #[inline]
    #[must_use]
    pub const fn to_array(&self) -> [u8; 16] {
        (((self.hi as u128) << 64) | self.lo as u128).to_be_bytes()
    }

    /// Writes [`Key::to_array`] to `out`.
    #[inline]
    pub const fn copy_to(&self, out: &mut [u8; 16]) {
        *out = self.to_array();
    }

    /// Bytes 0..7 and bytes 8..15, each big endian and zero padded: for hashes and indexes that
    /// work on integers. The length is not in it.
    #[inline]
    #[must_use]
    pub const fn halves(&self) -> (u64, u64) {
        (self.hi, self.lo)
    }
}

/// The bytes in hexadecimal, two digits each: `6b6579`.
/// In records: length (u8), then the key's bytes.
impl BorshSerialize for Key {
    fn serialize<W: Write>(&self, writer: &mut W) -> Result<()> {
        let mut bytes = [0; 1 + Self::MAX_LEN];
        bytes[0] = self.len;
        bytes[1..].copy_from_slice(&self.to_array());
        writer.write_all(&bytes[..1 + self.len()])
    }
}

impl BorshDeserialize for Key {
    fn deserialize_reader<R: Read>(reader: &mut R) -> Result<Key> {
        let len = usize::from(u8::deserialize_reader(reader)?);
        let mut padded = [0; Self::MAX_LEN];
        let bytes =
            padded.get_mut(..len).ok_or_else(|| Error::new(ErrorKind::InvalidData, "a key is too long"))?;
        reader.read_exact(bytes)?;
        Key::from_padded(padded, len).ok_or_else(|| Error::new(ErrorKind::InvalidData, "a key is empty"))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_array()[..self.len()].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}
