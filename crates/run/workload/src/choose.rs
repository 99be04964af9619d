//! Choice of the key of an operation: `workload.distribution`.

use super::zipf::Zipf;
use kvdrive_sim::Rng;

/// Number of items of YCSB's scrambled Zipfian, whatever the number of keys (its
/// `ScrambledZipfianGenerator.ITEM_COUNT`).
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;

/// A distribution of keys, and the number of repetitions of each drawn rank.
pub(super) struct Chooser {
    distribution: Distribution,
    /// Number of times in a row that each rank is returned.
    replicas: u64,
    /// The last rank, and how many more times it will be returned.
    rank: (u64, u64),
}

enum Distribution {
    Uniform,
    Zipfian(Zipf),
    /// Ranks of many more items than there are keys, hashed onto this number of keys.
    Scrambled(Zipf, u64),
    /// The newest key is the most popular one.
    Latest(Zipf),
}

impl Chooser {
    /// The distribution of that name, with exponent `theta`, over `num` keys. With `scrambled`, the ranks of
    /// `zipfian` are spread by a hash over that number of keys.
    ///
    /// # Errors
    /// One line: no distribution has that name, or [`Zipf::new`] refuses `theta` or `num`.
    pub fn new(distribution: &str, num: u64, theta: f64, scrambled: Option<u64>) -> Result<Chooser, String> {
        let distribution = match (distribution, scrambled) {
            ("latest", _) => Distribution::Latest(Zipf::new(num, theta)?),
            ("uniform", _) => Distribution::Uniform,
            ("zipfian", Some(expected)) => {
                Distribution::Scrambled(Zipf::new(SCRAMBLED_ITEMS, theta)?, expected)
            }
            ("zipfian", None) => Distribution::Zipfian(Zipf::new(num, theta)?),
            (other, _) => {
                return Err(format!("workload.distribution: {other:?}; there are uniform, zipfian, latest"));
            }
        };
        Ok(Chooser { distribution, replicas: 1, rank: (0, 0) })
    }

    /// Models `clients` clients that draw the same ranks at the same pace: each rank is returned that many
    /// times in a row. Uniform keys are drawn by each client independently.
    pub fn replayed_by(self, clients: u64) -> Chooser {
        Chooser { replicas: clients, ..self }
    }

    /// The index of the next key among `pairs` present pairs.
    pub fn index(&mut self, rng: &mut Rng, pairs: u64) -> u64 {
        let (replicas, last) = (self.replicas, &mut self.rank);
        let mut rank = |zipf: &Zipf| {
            if last.1 == 0 {
                *last = (zipf.rank(rng), replicas);
            }
            last.1 -= 1;
            last.0
        };
        match &mut self.distribution {
            Distribution::Uniform => rng.below(pairs),
            Distribution::Zipfian(zipf) => rank(zipf).min(pairs - 1),
            Distribution::Scrambled(zipf, expected) => loop {
                let index = scrambled(rank(zipf)) % *expected;
                if index < pairs {
                    break index;
                }
            },
            Distribution::Latest(zipf) => {
                zipf.grow_to(pairs);
                pairs - 1 - rank(zipf).min(pairs - 1)
            }
        }
    }
}

/// The position to which YCSB spreads a rank: its `Utils.fnvhash64`, which returns the absolute value of a
/// Java `long`.
fn scrambled(rank: u64) -> u64 {
    fnv64(rank).cast_signed().unsigned_abs()
}

/// FNV-1a over the eight bytes of a number, lowest first.
pub(super) fn fnv64(number: u64) -> u64 {
    number
        .to_le_bytes()
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by hand from the Java source: as a `long`, the hashes of the first three are negative.
    #[test]
    fn ranks_are_scrambled_as_ycsb_does() {
        let cases = [
            (0, 6_284_781_860_667_377_211),
            (1, 8_517_097_267_634_966_620),
            (12_345, 1_792_800_413_050_876_852),
            (4, 3_232_700_585_171_816_769),
            (5, 1_000_385_178_204_227_360),
        ];
        for (rank, hash) in cases {
            assert_eq!(scrambled(rank), hash, "{rank}");
        }
    }
}
