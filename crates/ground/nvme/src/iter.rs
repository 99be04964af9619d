//! The data that a SEEK or a NEXT returns: one pair or several, in each the key first.
//!
//! ```text
//!  byte 0    2    4            8                        24
//!     +----+----+------------+------------------------+-- ..
//!     | KL | 0  | value size | key, zero padded to 16 | value
//!     +----+----+------------+------------------------+-- ..
//! ```
//!
//! ```text
//!  byte 0                    pair_at(end of the first)
//!     +---------------+-----+---------------+-----+--        A NEXT that asks for several gets those that fit
//!     | first pair    | 0   | second pair   | 0   |  ..      the buffer whole; each begins at a multiple of 8.
//!     +---------------+-----+---------------+-----+--        DW0 is the end of the last one.
//! ```
//!
//! The header has a fixed size, so the value begins at byte 24 and keeps the alignment of the
//! buffer. The rest of a key of more than 16 bytes, zeros, lies between header and value, filled up to a multiple of 8. A buffer that is smaller than the answer gets its first bytes, as with Retrieve; the
//! completion's DW0 says how long the answer is, DW1 which iterator gave it ([`crate::cqe`]).
//! At the end of the data DW0 is 0 and nothing is transferred.
//!
//! A drive keeps a limited number of changes for an iterator. If there were more, NEXT answers 7D4h once: the
//! iterator is closed, and the host may open another one at the last key it received. (A SEEK or List that
//! meets this answers 21h; when it is sent again, it sees the state of that later time.)
//!
//! Layout only: the controller decides what an iterator sees and when it moves.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute, transmute_ref};

use crate::key::Key;

/// The position of the pair that follows a pair which ends at byte `end` of an answer.
#[must_use]
pub const fn pair_at(end: u32) -> u32 {
    end.next_multiple_of(8)
}

/// The bytes before the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IterHeader {
    key_bytes: U16,
    reserved: U16,
    value_bytes: U32,
    key: [u8; Key::IDENTITY_BYTES],
}

impl IterHeader {
    /// Size in bytes, without the rest of a long key.
    pub const BYTES: usize = 24;
    /// Most bytes before a value.
    pub const MOST_BYTES: usize = (Self::BYTES + Key::MAX_LEN - Key::IDENTITY_BYTES).next_multiple_of(8);

    /// The header of the pair of `key` and a value of `value_bytes`.
    #[must_use]
    pub fn new(key: Key, value_bytes: u32) -> IterHeader {
        IterHeader {
            key_bytes: U16::new(key.len() as u16),
            reserved: U16::ZERO,
            value_bytes: U32::new(value_bytes),
            key: key.to_array(),
        }
    }

    /// The header in these bytes. Any bytes can be read; [`IterHeader::key`] checks the key length.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> IterHeader {
        transmute!(bytes)
    }

    /// The bytes as they lie in the buffer.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        transmute_ref!(self)
    }

    /// The key; `None` if the length is invalid.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        Key::from_padded(self.key, usize::from(self.key_bytes.get()))
    }

    /// Size of the whole value in bytes.
    #[must_use]
    pub fn value_bytes(&self) -> u32 {
        self.value_bytes.get()
    }

    /// The bytes between header and value: zeros, the rest of a key of more than 16 bytes.
    #[must_use]
    pub fn tail(&self) -> &'static [u8] {
        const ZEROS: [u8; IterHeader::MOST_BYTES - IterHeader::BYTES] =
            [0; IterHeader::MOST_BYTES - IterHeader::BYTES];
        let rest = usize::from(self.key_bytes.get()).saturating_sub(Key::IDENTITY_BYTES);
        &ZEROS[..rest.next_multiple_of(8).min(ZEROS.len())]
    }

    /// Where the value begins, in bytes from the header's first.
    #[must_use]
    pub fn value_at(&self) -> u32 {
        (Self::BYTES + self.tail().len()) as u32
    }

    /// Size of the whole answer in bytes, header and value, as DW0 gives it. Saturates at the largest number
    /// that DW0 can hold, far above any value of a drive.
    #[must_use]
    pub fn answer_bytes(&self) -> u32 {
        self.value_bytes().saturating_add(self.value_at())
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<IterHeader>() == IterHeader::BYTES);
    assert!(offset_of!(IterHeader, value_bytes) == 4);
    assert!(offset_of!(IterHeader, key) == 8);
};
