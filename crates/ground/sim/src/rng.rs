//! Named, seeded, portable random streams: adding a consumer never shifts the numbers of another one.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// One stream of random numbers (ChaCha8: the same on every machine).
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// The stream `name` of the run's `seed`.
    pub fn stream(seed: u64, name: &str) -> Rng {
        let mut key = [0u8; 32];
        for (lane, bytes) in key.chunks_exact_mut(8).enumerate() {
            let word = xxh3_64_with_seed(name.as_bytes(), seed.wrapping_add((lane as u64) << 56));
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Rng(ChaCha8Rng::from_seed(key))
    }

    /// 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// Uniform in `0..n`, without bias (Lemire's method). `n` must not be 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "nothing lies below 0");
        let mut product = u128::from(self.next_u64()) * u128::from(n);
        if (product as u64) < n {
            let threshold = n.wrapping_neg() % n;
            while (product as u64) < threshold {
                product = u128::from(self.next_u64()) * u128::from(n);
            }
        }
        (product >> 64) as u64
    }

    /// Uniform in `[0, 1)` with 53 bits.
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// True once in `n` times on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
