//! Keys from numbers: RocksDB's layout of an index in a key, and a seeded bijection for unique random-looking
//! keys.
//!
//! The choice of the next key belongs to each workload.

use kvdrive_nvme::Key;
use kvdrive_sim::Rng;

/// Longest key, in bytes.
const KEY_MAX_BYTES: u32 = Key::MAX_LEN as u32;
/// Bits that tell keys apart.
const IDENTITY_BITS: u32 = 8 * Key::IDENTITY_BYTES as u32;

/// Encodes an index as a key of a fixed length: big endian in the first (at most) eight bytes, followed by
/// ASCII `0`, as in `db_bench`, so that keys sort in the order of their indices; zeros follow the first 16 bytes, as in
/// every key ([`Key`]).
#[derive(Clone, Copy, Debug)]
pub struct KeyFormat {
    key_bytes: usize,
    /// Left shift that brings the index's digits to the front of 16 bytes.
    shift: u32,
    /// The filling after the digits.
    filling: u128,
}

impl KeyFormat {
    /// The format of keys of `key_size` bytes that can name `num` pairs.
    ///
    /// # Errors
    /// One line if there are no keys of this length, or if it is too short for `num` different keys.
    pub fn new(key_size: u32, num: u64) -> Result<KeyFormat, String> {
        if !(1..=KEY_MAX_BYTES).contains(&key_size) {
            return Err(format!("workload.key_size: {key_size} B; a key has 1 to {KEY_MAX_BYTES} B"));
        }
        if key_size < 8 && num > 1 << (8 * key_size) {
            return Err(format!(
                "workload.key_size: {key_size} B cannot name {num} pairs; at most {}",
                1u64 << (8 * key_size)
            ));
        }
        let digits = key_size.min(8);
        Ok(KeyFormat {
            key_bytes: key_size as usize,
            shift: IDENTITY_BITS - 8 * digits,
            filling: u128::from_be_bytes([b'0'; 16]) >> (8 * digits),
        })
    }

    /// The key of an index.
    #[inline]
    pub fn key(&self, index: u64) -> Key {
        let padded = u128::from(index) << self.shift | self.filling;
        Key::from_padded(padded.to_be_bytes(), self.key_bytes).expect("a length that keys have")
    }
}

/// A seeded bijection of the 32-bit numbers: every key once, in an order without pattern.
///
/// BandSlim stores "unique 4 B hashed keys"; a hash would repeat some. Multiplication by an odd number and `x
/// ^= x >> n` are both invertible modulo 2^32, and so is any chain of them.
#[derive(Clone, Copy, Debug)]
pub struct KeyPermutation {
    offset: u32,
    odd: [u32; 2],
}

impl KeyPermutation {
    /// Number of keys before the first repetition.
    pub const KEYS: u64 = 1 << 32;

    /// The permutation of a seed.
    pub fn new(seed: u64) -> KeyPermutation {
        let mut rng = Rng::stream(seed, "workload.keys");
        KeyPermutation { offset: rng.next_u32(), odd: [rng.next_u32() | 1, rng.next_u32() | 1] }
    }

    /// The key at a position, 4 bytes big-endian.
    #[inline]
    pub fn key(&self, position: u32) -> Key {
        Key::from_u32_be(self.permute(position))
    }

    #[inline]
    fn permute(&self, position: u32) -> u32 {
        let mut x = position.wrapping_add(self.offset);
        for odd in self.odd {
            x ^= x >> 16;
            x = x.wrapping_mul(odd);
        }
        x ^= x >> 15;
        // A fixed multiplier that mixes well (golden ratio) after the seeded ones, so that a bad seed gives
        // no pattern either.
        x = x.wrapping_mul(0x9e37_79b1);
        x ^ (x >> 16)
    }
}

/// Refuses more stores than a permutation has keys.
pub(super) fn check_unique(ops: u64) -> Result<(), String> {
    if ops > KeyPermutation::KEYS {
        return Err(format!(
            "workload.ops: {ops}; there are only {} different 4 B keys",
            KeyPermutation::KEYS
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_big_endian_and_padded_as_db_bench_does() {
        let key = |size, index| KeyFormat::new(size, 200).unwrap().key(index);
        assert_eq!(key(4, 0x0102), Key::new(&[0, 0, 1, 2]).unwrap());
        assert_eq!(key(10, 7), Key::new(&[0, 0, 0, 0, 0, 0, 0, 7, b'0', b'0']).unwrap());
    }

    #[test]
    fn a_short_key_cannot_name_many_pairs() {
        assert!(KeyFormat::new(1, 256).is_ok());
        assert_eq!(
            KeyFormat::new(1, 257).unwrap_err(),
            "workload.key_size: 1 B cannot name 257 pairs; at most 256"
        );
        assert!(KeyFormat::new(0, 1).is_err());
        assert!(KeyFormat::new(256, 1).is_err());
    }

    #[test]
    fn a_long_key_is_its_first_16_bytes_and_zeros() {
        let key = |size| KeyFormat::new(size, 200).unwrap().key(7);
        assert_eq!(key(48).to_vec(), [&key(16).to_vec()[..], &[0; 32]].concat());
        assert_eq!(key(255).len(), 255);
    }

    /// The position of a permuted number, computed backwards step by step, which is possible only for a
    /// bijection.
    fn position(permutation: &KeyPermutation, permuted: u32) -> u32 {
        // Newton's iteration doubles the right bits of an inverse modulo 2^32.
        let inverse =
            |odd: u32| (0..5).fold(odd, |x, _| x.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(x))));
        let unshift = |x: u32, n: u32| (0..32 / n).fold(x, |y, _| x ^ (y >> n));
        let mut x = unshift(permuted, 16).wrapping_mul(inverse(0x9e37_79b1));
        x = unshift(x, 15);
        for odd in permutation.odd.iter().rev() {
            x = unshift(x.wrapping_mul(inverse(*odd)), 16);
        }
        x.wrapping_sub(permutation.offset)
    }

    #[test]
    fn the_permutation_repeats_nothing() {
        for seed in 0..20 {
            let permutation = KeyPermutation::new(seed);
            for sample in 0..50_000u32 {
                let place = sample.wrapping_mul(85_899);
                assert_eq!(position(&permutation, permutation.permute(place)), place);
            }
        }
    }
}
