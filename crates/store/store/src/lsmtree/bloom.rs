//! The filter of a table: the keys that it may contain.

use std::hash::Hasher;

use kvdrive_nvme::Key;

use crate::key_hash::KeyHasher;

/// Hash of a key for a filter.
pub fn hash_of(key: &Key) -> u64 {
    let mut hasher = KeyHasher::default();
    std::hash::Hash::hash(key, &mut hasher);
    hasher.finish()
}

/// A filter for keys with these hashes, with `bits_per_key` bits for each; empty for 0.
pub fn build(hashes: &[u64], bits_per_key: u32) -> Vec<u8> {
    let bits = hashes.len() as u64 * u64::from(bits_per_key);
    let mut filter = vec![0u8; bits.div_ceil(8) as usize];
    for hash in hashes {
        for bit in probes(*hash, filter.len() as u64 * 8, bits_per_key) {
            filter[(bit / 8) as usize] |= 1 << (bit % 8);
        }
    }
    filter
}

/// May the table have the key? `false` is certain; an empty filter says `true`.
pub fn may_have(filter: &[u8], hash: u64, bits_per_key: u32) -> bool {
    let bits = filter.len() as u64 * 8;
    bits == 0 || probes(hash, bits, bits_per_key).all(|bit| filter[(bit / 8) as usize] >> (bit % 8) & 1 == 1)
}

/// The bits of a key: double hashing, with 0.69 probes for each bit per key.
fn probes(hash: u64, bits: u64, bits_per_key: u32) -> impl Iterator<Item = u64> {
    let (mut at, step) = (hash as u32, (hash >> 32) as u32 | 1);
    let count = (bits_per_key * 69 / 100).clamp(1, 30);
    (0..count).map(move |_| {
        at = at.wrapping_add(step);
        (u64::from(at) * bits) >> 32
    })
}
