//! A key: 1 to 255 opaque bytes, compared in byte order. The first 16 are its identity; a longer key has zeros
//! after them.
//!
//! ```text
//!   key bytes   6b 65 79              "key", length 3
//!   hi          0x6b65790000000000    bytes 0..7, big endian, zero padded
//!   lo          0x0000000000000000    bytes 8..15
//!   len         3
//! ```
//!
//! The KV command set has keys of 1 to 16 bytes. Longer ones are ours: they are keys *as sizes*, for workloads whose
//! keys are longer than those of the command set. Everything that has a size (wire, flash, DRAM) counts [`Key::len`]
//! bytes, and the bytes after the 16th are zeros by definition, so a key takes no more memory of the program. A program's
//! own long key has no place here: it is stored under a digest ("Plug it in" of the README).
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
    /// The longest key in bytes; its length has 8 bits on the wire.
    pub const MAX_LEN: usize = 255;
    /// Bytes that tell keys of one length apart, and the longest key of the KV command set.
    pub const IDENTITY_BYTES: usize = 16;
    /// The highest key.
    pub const HIGHEST: Key = Key { hi: u64::MAX, lo: u64::MAX, len: Self::MAX_LEN as u8 };

    /// The key with these bytes; `None` if there are none, more than [`Key::MAX_LEN`], or others than zeros after the
    /// first [`Key::IDENTITY_BYTES`].
    #[inline]
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Key> {
        let (identity, tail) = bytes.split_at(bytes.len().min(Self::IDENTITY_BYTES));
        if tail.iter().any(|byte| *byte != 0) {
            return None;
        }
        let mut padded = [0; Self::IDENTITY_BYTES];
        padded[..identity.len()].copy_from_slice(identity);
        Self::from_padded(padded, bytes.len())
    }

    /// The key of `len` bytes that begins with `padded`. If it is shorter than that, the bytes after it are ignored, as a
    /// drive must; if it is longer, zeros follow. `None` if `len` is 0 or more than [`Key::MAX_LEN`].
    #[inline]
    #[must_use]
    pub const fn from_padded(padded: [u8; 16], len: usize) -> Option<Key> {
        if len == 0 || len > Self::MAX_LEN {
            return None;
        }
        let mut kept = u128::from_be_bytes(padded);
        if len < Self::IDENTITY_BYTES {
            kept &= u128::MAX << (128 - 8 * len);
        }
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
        if len > Self::IDENTITY_BYTES || bytes[len - 1] == 0 {
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

    /// Is it longer than a key of the KV command set?
    #[inline]
    #[must_use]
    pub const fn is_long(&self) -> bool {
        self.len as usize > Self::IDENTITY_BYTES
    }

    /// Its bytes after the first [`Key::IDENTITY_BYTES`], all zeros.
    #[inline]
    #[must_use]
    pub const fn tail_bytes(&self) -> usize {
        (self.len as usize).saturating_sub(Self::IDENTITY_BYTES)
    }

    /// All of its bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = self.to_array().to_vec();
        bytes.resize(self.len(), 0);
        bytes
    }

    /// Passes its bytes to `read`.
    #[inline]
    pub fn with_bytes<T>(&self, read: impl FnOnce(&[u8]) -> T) -> T {
        if self.is_long() {
            return read(&self.to_vec());
        }
        read(&self.to_array()[..self.len()])
    }

    /// Its first bytes, zero padded to 16.
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

/// In records: length (u8), then the key's bytes, at most 16.
impl BorshSerialize for Key {
    fn serialize<W: Write>(&self, writer: &mut W) -> Result<()> {
        let mut bytes = [0; 1 + Self::IDENTITY_BYTES];
        bytes[0] = self.len;
        bytes[1..].copy_from_slice(&self.to_array());
        writer.write_all(&bytes[..1 + self.len().min(Self::IDENTITY_BYTES)])
    }
}

impl BorshDeserialize for Key {
    fn deserialize_reader<R: Read>(reader: &mut R) -> Result<Key> {
        let len = usize::from(u8::deserialize_reader(reader)?);
        let mut padded = [0; Self::IDENTITY_BYTES];
        reader.read_exact(&mut padded[..len.min(Self::IDENTITY_BYTES)])?;
        Key::from_padded(padded, len).ok_or_else(|| Error::new(ErrorKind::InvalidData, "a key is empty"))
    }
}

/// The bytes in hexadecimal, two digits each: `6b6579`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_bytes(|bytes| bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}
