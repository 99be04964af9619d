//! The data a List command returns: the number of keys, then the keys.
//!
//! ```text
//!  byte 0       4                                4 + roundup4(2 + KL)
//!     +---------+----+-----------+---------+----+-- ..
//!     |   NRK   | KL | key       | padding | KL | key
//!     +---------+----+-----------+---------+----+-- ..
//!       4 bytes   2    KL bytes    zero, to a multiple of 4 of (2 + KL)
//! ```
//!
//! NRK counts the keys returned in this buffer. Each entry, length field included, is rounded up to four
//! bytes, as the specification is quoted; some drives pad the key alone. A listing ends where the next entry
//! would not fit. The drive decides which keys, and in which order; this module lays them out and reads them
//! back.

use crate::key::Key;

/// Bytes before the first entry.
pub const LIST_HEADER_BYTES: usize = 4;

const KEY_LENGTH_BYTES: usize = 2;

/// Bytes of the entry for a key of `key_bytes`.
#[inline]
#[must_use]
pub const fn entry_bytes(key_bytes: usize) -> usize {
    (KEY_LENGTH_BYTES + key_bytes).next_multiple_of(4)
}

/// Lays keys out in a buffer of the size the host gave.
#[derive(Debug)]
pub struct ListWriter<'a> {
    buffer: &'a mut [u8],
    used_bytes: usize,
    keys: u32,
}

impl<'a> ListWriter<'a> {
    /// An empty list in `buffer`, which may be of any size.
    #[must_use]
    pub fn new(buffer: &'a mut [u8]) -> ListWriter<'a> {
        ListWriter { buffer, used_bytes: LIST_HEADER_BYTES, keys: 0 }
    }

    /// Adds a key; returns `false` and changes nothing if it does not fit.
    pub fn push(&mut self, key: Key) -> bool {
        let end = self.used_bytes + entry_bytes(key.len());
        let Some(entry) = self.buffer.get_mut(self.used_bytes..end) else {
            return false;
        };
        let (length, bytes) = entry.split_at_mut(KEY_LENGTH_BYTES);
        length.copy_from_slice(&(key.len() as u16).to_le_bytes());
        let of_identity = key.len().min(Key::IDENTITY_BYTES);
        bytes[..of_identity].copy_from_slice(&key.to_array()[..of_identity]);
        bytes[of_identity..].fill(0);
        self.used_bytes = end;
        self.keys += 1;
        true
    }

    /// Keys so far.
    #[must_use]
    pub fn keys(&self) -> u32 {
        self.keys
    }

    /// Writes the number of keys; returns the bytes used. A buffer too small for that number gets
    /// as much of it as fits.
    pub fn finish(self) -> usize {
        let header_bytes = self.buffer.len().min(LIST_HEADER_BYTES);
        self.buffer[..header_bytes].copy_from_slice(&self.keys.to_le_bytes()[..header_bytes]);
        self.used_bytes.min(self.buffer.len())
    }
}

/// Why list data cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ListError {
    /// The data ends inside the header or inside an entry.
    #[error("list data ends before the keys it announces")]
    Truncated,
    /// A key length outside 1 to 255.
    #[error("list data has a key of {0} bytes; a key has 1 to 255")]
    KeyLength(u16),
    /// A long key that is more than a size.
    #[error("list data has a key with other bytes than zeros after the first 16")]
    KeyTail,
}

/// Reads the keys of a list, in the order they lie there. After an error it yields nothing more.
#[derive(Clone, Debug)]
pub struct ListReader<'a> {
    rest: &'a [u8],
    keys_left: u32,
}

impl<'a> ListReader<'a> {
    /// The list in `data`.
    ///
    /// # Errors
    /// [`ListError::Truncated`] if there is no room for the number of keys.
    pub fn new(data: &'a [u8]) -> Result<ListReader<'a>, ListError> {
        let (header, rest) = data.split_first_chunk().ok_or(ListError::Truncated)?;
        Ok(ListReader { rest, keys_left: u32::from_le_bytes(*header) })
    }

    /// Keys that the list announces and that have not been read.
    #[must_use]
    pub fn keys_left(&self) -> u32 {
        self.keys_left
    }

    fn read(&mut self) -> Result<Key, ListError> {
        let (length, after) = self.rest.split_first_chunk().ok_or(ListError::Truncated)?;
        let length = u16::from_le_bytes(*length);
        let key_bytes = usize::from(length);
        if key_bytes == 0 || key_bytes > Key::MAX_LEN {
            return Err(ListError::KeyLength(length));
        }
        let bytes = after.get(..key_bytes).ok_or(ListError::Truncated)?;
        let key = Key::new(bytes).ok_or(ListError::KeyTail)?;
        // A buffer may end right after the last key: its padding may be missing.
        self.rest = self.rest.get(entry_bytes(key_bytes)..).unwrap_or_default();
        Ok(key)
    }
}

impl Iterator for ListReader<'_> {
    type Item = Result<Key, ListError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.keys_left = self.keys_left.checked_sub(1)?;
        let key = self.read();
        if key.is_err() {
            self.keys_left = 0;
        }
        Some(key)
    }
}
