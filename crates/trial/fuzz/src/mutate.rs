//! Random alterations, for tests without cargo-fuzz: a few at a time, of the kinds that a fuzzer tries, too.

use kvdrive_sim::Rng;

/// Numbers at which lengths and offsets commonly go wrong.
const EDGES: [u64; 8] = [0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFF_FFFF, u64::MAX];

/// One to four alterations of `bytes`: bits flipped, a byte or a number replaced, a part cut out, doubled or
/// exchanged with another, the end cut off.
pub fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.below(3) {
        if bytes.is_empty() {
            bytes.push(rng.next_u32() as u8);
        }
        let at = rng.below(bytes.len() as u64) as usize;
        let end = (at + 1 + rng.below(16) as usize).min(bytes.len());
        match rng.below(8) {
            0 | 1 => bytes[at] ^= 1 << rng.below(8),
            2 => bytes[at] = rng.next_u32() as u8,
            3 => {
                let number = EDGES[rng.below(EDGES.len() as u64) as usize].to_le_bytes();
                let width = [1, 2, 4, 8][rng.below(4) as usize].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
            4 => drop(bytes.drain(at..end)),
            5 => {
                let part = bytes[at..end].to_vec();
                let to = rng.below(bytes.len() as u64 + 1) as usize;
                bytes.splice(to..to, part);
            }
            6 => {
                let other = rng.below(bytes.len() as u64) as usize;
                bytes.swap(at, other);
            }
            _ => bytes.truncate(at),
        }
    }
}
