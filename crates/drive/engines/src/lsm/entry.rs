//! The entry of a key in the index: address and length of its value.
//!
//! ```text
//!   key ──► Entry { address, bytes, sequence, tombstone }
//! ```
//!
//! Also here: [`TableId`], and the trait through which the index reports to the value log that no entry refers to some
//! of its bytes any more. Not here: how an entry is laid out in a table ([`super::layout`]).

use std::ops::Range;

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_nvme::Key;

use crate::value_log::Vaddr;

/// Names a table. Ids are handed out in ascending order and never twice, also not across power cuts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, BorshSerialize, BorshDeserialize)]
pub struct TableId(pub u32);

/// Where the value of a key is, or that there is none any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, BorshSerialize, BorshDeserialize)]
pub struct Entry {
    /// First byte of the value in the value log; without meaning for a tombstone or an empty value.
    pub address: Vaddr,
    /// Length of the value in bytes.
    pub bytes: u32,
    /// Number of the insertion that made the entry. 0 when read from a table of layout `published`, which has
    /// no room for it; nothing but reports may depend on it.
    pub sequence: u64,
    /// The key was removed.
    pub tombstone: bool,
}

impl Entry {
    /// Says that the key was removed by insertion `sequence`.
    pub fn removal(sequence: u64) -> Entry {
        Entry { address: Vaddr(0), bytes: 0, sequence, tombstone: true }
    }

    /// Does it refer to bytes of the value log? Tombstones and empty values do not.
    #[inline]
    pub fn has_bytes(&self) -> bool {
        !self.tombstone && self.bytes > 0
    }

    /// Does it refer to the same bytes of the value log as `other`, which refers to some?
    #[inline]
    pub fn is_same_value(&self, other: &Entry) -> bool {
        self.has_bytes() && self.address == other.address
    }

    /// Does any byte of its value lie in `addresses`?
    #[inline]
    pub fn touches(&self, addresses: &Range<Vaddr>) -> bool {
        self.has_bytes()
            && self.address.0 < addresses.end.0
            && self.address.0 + u64::from(self.bytes) > addresses.start.0
    }
}

/// The smallest range of value-log addresses that covers the values of some entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressBounds {
    /// First byte.
    pub low: u64,
    /// One past the last byte; not above `low` when no entry has bytes.
    pub high: u64,
}

impl AddressBounds {
    /// The bounds of no entry.
    pub const NONE: AddressBounds = AddressBounds { low: AddressBounds::LIMIT, high: 0 };
    /// The bounds of unknown entries (a damaged table).
    pub const ALL: AddressBounds = AddressBounds { low: 0, high: AddressBounds::LIMIT };
    /// Bounds are kept in 48 bits each: 2^32 logical pages of at most 64 KiB.
    const LIMIT: u64 = (1 << 48) - 1;

    /// Widens the bounds so that they cover `entry`.
    #[inline]
    pub fn cover(&mut self, entry: &Entry) {
        if entry.has_bytes() {
            self.low = self.low.min(entry.address.0);
            // A large value may be counted as longer than its first segment, and so beyond all addresses.
            self.high = self.high.max(entry.address.0 + u64::from(entry.bytes)).min(AddressBounds::LIMIT);
        }
    }

    /// Widens the bounds so that they cover `other`.
    pub fn join(&mut self, other: &AddressBounds) {
        self.low = self.low.min(other.low);
        self.high = self.high.max(other.high);
    }

    /// Does any covered byte lie in `addresses`?
    pub fn touches(&self, addresses: &Range<Vaddr>) -> bool {
        self.low < addresses.end.0 && self.high > addresses.start.0
    }

    /// Writes both as 48-bit little-endian numbers.
    pub(crate) fn encode(&self, out: &mut [u8; 12]) {
        out[..6].copy_from_slice(&self.low.to_le_bytes()[..6]);
        out[6..].copy_from_slice(&self.high.to_le_bytes()[..6]);
    }

    /// Reads the bytes that [`AddressBounds::encode`] wrote.
    pub(crate) fn decode(bytes: &[u8; 12]) -> AddressBounds {
        let number = |part: &[u8]| {
            let mut wide = [0; 8];
            wide[..6].copy_from_slice(part);
            u64::from_le_bytes(wide)
        };
        AddressBounds { low: number(&bytes[..6]), high: number(&bytes[6..]) }
    }
}

/// Calls of the index to the value log, which implements them.
///
/// An overwritten key keeps its old entry in an old table until a merge drops it. By then garbage collection may have
/// emptied and reused the segment that the entry refers to, because it moves only the value of the *newest* entry of a
/// key. Such an entry is *stale*: its bytes were given up together with the segment, and must not be counted as dead
/// again. To recognise stale entries, openings of segments are numbered, and every table records the number of openings
/// when it was begun (its *age*): if the segment was opened later, an entry of the table refers to an earlier use of
/// the segment.
pub trait ValueLiveness {
    /// An entry that referred to these bytes was removed, and no other entry refers to them.
    fn dead(&self, address: Vaddr, bytes: u32);

    /// The number that the next opening of a segment will get.
    fn next_opening(&self) -> u64;

    /// The number of the last opening of the segment that holds `address`; `None` if the segment is free.
    fn opening_of(&self, address: Vaddr) -> Option<u64>;
}

/// Does an entry in a table of this age refer to the bytes that are at `address` now? Otherwise it is stale.
#[inline]
pub fn is_current(values: &dyn ValueLiveness, address: Vaddr, age: u64) -> bool {
    values.opening_of(address).is_some_and(|opening| opening < age)
}

/// 64 well-mixed bits of a key: two folded multiplications, a few ns.
#[inline]
pub fn key_hash(key: &Key) -> u64 {
    let (hi, lo) = key.halves();
    let first = fold(hi ^ 0x9E37_79B9_7F4A_7C15, lo.rotate_left(32) ^ 0xD6E8_FEB8_6659_FD93);
    fold(first ^ lo ^ key.len() as u64, 0xA24B_AED4_963E_E407)
}

/// Both halves of the 128-bit product, added without carry.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_cover_values_and_nothing_of_tombstones() {
        let mut bounds = AddressBounds::NONE;
        bounds.cover(&Entry::removal(1));
        assert!(!bounds.touches(&(Vaddr(0)..Vaddr(u64::MAX))));
        bounds.cover(&Entry { address: Vaddr(100), bytes: 50, sequence: 1, tombstone: false });
        bounds.cover(&Entry { address: Vaddr(10), bytes: 0, sequence: 1, tombstone: false });
        assert!(bounds.touches(&(Vaddr(149)..Vaddr(150))));
        assert!(!bounds.touches(&(Vaddr(150)..Vaddr(160))));
        assert!(!bounds.touches(&(Vaddr(0)..Vaddr(100))));
        let mut bytes = [0; 12];
        for bounds in [bounds, AddressBounds::NONE, AddressBounds::ALL] {
            bounds.encode(&mut bytes);
            assert_eq!(AddressBounds::decode(&bytes), bounds);
        }
    }

    #[test]
    fn hashes_spread_over_their_low_and_high_bits() {
        let mut low = [0u32; 64];
        let mut high = [0u32; 64];
        for number in 0..64_000u32 {
            let hash = key_hash(&Key::from_u32_be(number));
            low[(hash & 63) as usize] += 1;
            high[(hash >> 58) as usize] += 1;
        }
        for count in low.into_iter().chain(high) {
            assert!((800..1200).contains(&count), "{count} of 64000 keys in one of 64 buckets");
        }
        assert_ne!(key_hash(&Key::new(b"a").unwrap()), key_hash(&Key::new(b"a\0").unwrap()));
    }
}
