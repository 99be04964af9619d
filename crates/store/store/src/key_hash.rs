//! Hashing of keys, the same on every machine.

use std::hash::{BuildHasherDefault, Hasher};

use kvdrive_nvme::Key;

/// A map by key. No code may depend on the order of its entries.
pub type KeyMap<T> = std::collections::HashMap<Key, T, BuildHasherDefault<KeyHasher>>;

/// Folds the words of a key into one by multiplication.
#[derive(Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = fold(self.0 ^ word ^ 0x9E37_79B9_7F4A_7C15, 0xA24B_AED4_963E_E407);
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.0 ^= u64::from(byte);
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    #[inline]
    fn finish(&self) -> u64 {
        fold(self.0, 0xD6E8_FEB8_6659_FD93)
    }
}

/// Both halves of the 128-bit product, combined by exclusive or.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}
