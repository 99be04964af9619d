//! Which of so many keys an operation takes: `workload.distribution`.

use super::zipf::Zipf;
use kvdrive_sim::Rng;

/// Items YCSB's scrambled Zipfian ranks, whatever the number of keys (its
/// `ScrambledZipfianGenerator.ITEM_COUNT`).
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;

/// A way to choose.
pub(super) enum Chooser {
    Uniform,
    Zipfian(Zipf),
    /// Ranks over many more items than there are keys, hashed onto so many keys.
    Scrambled(Zipf, u64),
    /// The newest key is the most popular one.
    Latest(Zipf),
}

impl Chooser {
    /// The distribution of that name, of `theta`, over `num` keys. With `scrambled` the ranks of `zipfian` are
    /// spread by a hash over so many.
    pub fn new(distribution: &str, num: u64, theta: f64, scrambled: Option<u64>) -> Result<Chooser, String> {
        Ok(match (distribution, scrambled) {
            ("latest", _) => Chooser::Latest(Zipf::new(num, theta)?),
            ("uniform", _) => Chooser::Uniform,
            ("zipfian", Some(expected)) => Chooser::Scrambled(Zipf::new(SCRAMBLED_ITEMS, theta)?, expected),
            ("zipfian", None) => Chooser::Zipfian(Zipf::new(num, theta)?),
            (other, _) => {
                return Err(format!("workload.distribution: {other:?}; there are uniform, zipfian, latest"));
            }
        })
    }

    /// The next key's index, of `pairs` that there are.
    pub fn index(&mut self, rng: &mut Rng, pairs: u64) -> u64 {
        match self {
            Chooser::Uniform => rng.below(pairs),
            Chooser::Zipfian(zipf) => zipf.rank(rng).min(pairs - 1),
            Chooser::Scrambled(zipf, expected) => loop {
                let index = fnv64(zipf.rank(rng)) % *expected;
                if index < pairs {
                    break index;
                }
            },
            Chooser::Latest(zipf) => {
                zipf.grow_to(pairs);
                pairs - 1 - zipf.rank(rng).min(pairs - 1)
            }
        }
    }
}

/// FNV-1a over the eight bytes of a number, lowest first, as YCSB's `Utils.fnvhash64`.
pub(super) fn fnv64(number: u64) -> u64 {
    number
        .to_le_bytes()
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}
