//! Value sizes from the generalised Pareto distribution, as RocksDB's mixgraph draws them.
//!
//! [`Pareto`] is the inverse distribution function; [`ParetoSizes`] tabulates it, so that a draw takes a few
//! nanoseconds and needs no power function.

/// Inverse of the generalised Pareto distribution: `theta + sigma * (u^-k - 1) / k`, and `theta - sigma * ln
/// u` at `k = 0`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pareto {
    /// Location.
    pub theta: f64,
    /// Shape.
    pub k: f64,
    /// Scale.
    pub sigma: f64,
}

impl Pareto {
    /// The value, rounded up, below which a share of `1 - u` lies. `None` where the function is infinite (`u
    /// = 0`).
    pub fn ceil(&self, u: f64) -> Option<i64> {
        let x = if self.k == 0.0 {
            self.theta - self.sigma * libm::log(u)
        } else {
            self.theta + self.sigma * (libm::pow(u, -self.k) - 1.0) / self.k
        };
        let x = x.ceil();
        x.is_finite().then_some(x as i64)
    }
}

/// Size in bytes that RocksDB 6.19 uses for an infinite or negative size.
const ODD_SIZE_BYTES: u32 = 10;

/// Buckets of the guide table; a power of two.
const BUCKETS: u64 = 1024;

/// Sizes of the draws `u = index / num`, `index` in `0..num`, under RocksDB's rules: an infinite or negative
/// size becomes 10 B, one above the limit is taken modulo the limit.
///
/// The function decreases with `u`, so a size is found by comparing the index with thresholds; a guide table
/// gives the start, and on average less than one step follows.
#[derive(Clone, Debug)]
pub struct ParetoSizes {
    pareto: Pareto,
    num: u64,
    max_bytes: u32,
    floor_bytes: u32,
    /// `at_least[s]`: indices below it have a size of `s` or more, before the rules.
    at_least: Vec<u64>,
    /// Smallest size within each bucket of indices.
    guide: Vec<u32>,
    /// Indices to buckets: multiply and shift right by 32.
    bucket_scale: u64,
}

impl ParetoSizes {
    /// The table for `num` equally likely draws.
    ///
    /// # Errors
    /// One line if a parameter is invalid.
    pub fn new(pareto: Pareto, num: u64, max_bytes: u32, floor_bytes: u32) -> Result<ParetoSizes, String> {
        // Bounds keep the scaled index in 64 bits and the table small.
        if !(1..=1 << 32).contains(&num) {
            return Err(format!("workload.num: {num}; allowed: 1 to {}", 1u64 << 32));
        }
        if !(1..=1 << 21).contains(&max_bytes) {
            return Err(format!("workload.mix_max_value_size: {max_bytes}; allowed: 1 to {}", 1 << 21));
        }
        if pareto.sigma < 0.0 {
            return Err(format!("workload.value_sigma: {}; allowed: 0 or more", pareto.sigma));
        }
        let raw = |index: u64| pareto.ceil(index as f64 / num as f64).unwrap_or(i64::MAX);
        let mut at_least = Vec::with_capacity(max_bytes as usize + 2);
        let mut end = num;
        for size in 0..=i64::from(max_bytes) + 1 {
            end = partition_point(end, |index| raw(index) >= size);
            at_least.push(end);
        }
        let mut sizes = ParetoSizes {
            pareto,
            num,
            max_bytes,
            floor_bytes,
            at_least,
            guide: Vec::new(),
            bucket_scale: (BUCKETS << 32) / num,
        };
        // Smallest size of bucket b = number of sizes that all of the bucket's indices reach, looked up at
        // the first index after the bucket.
        sizes.guide = (0..BUCKETS)
            .map(|bucket| {
                let last = (((bucket + 1) << 32).div_ceil(sizes.bucket_scale.max(1))).min(num) - 1;
                sizes.at_least.partition_point(|&end| last < end).max(1) as u32 - 1
            })
            .collect();
        Ok(sizes)
    }

    /// Number of equally likely draws.
    pub fn num(&self) -> u64 {
        self.num
    }

    /// Size of a draw in bytes.
    ///
    /// # Panics
    /// Panics if `index` is not below `num`.
    #[inline]
    pub fn size_bytes(&self, index: u64) -> u32 {
        assert!(index < self.num, "draw {index} of {}", self.num);
        let bucket = (index * self.bucket_scale) >> 32;
        let mut size = self.guide[bucket as usize] as usize;
        while self.at_least.get(size + 1).is_some_and(|&end| index < end) {
            size += 1;
        }
        if size as u32 > self.max_bytes || index >= self.at_least[0] {
            return self.odd_size(index);
        }
        (size as u32).max(self.floor_bytes)
    }

    /// Sizes that the table does not hold: above the limit, negative, infinite. They are a few draws in ten
    /// thousand.
    #[cold]
    fn odd_size(&self, index: u64) -> u32 {
        let size = match self.pareto.ceil(index as f64 / self.num as f64) {
            Some(size) if size >= 0 => (size % i64::from(self.max_bytes)) as u32,
            _ => ODD_SIZE_BYTES,
        };
        size.max(self.floor_bytes)
    }
}

/// First index below `end` for which a predicate that turns from true to false once is false.
fn partition_point(end: u64, mut holds: impl FnMut(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_RANDOM: Pareto = Pareto { theta: 0.0, k: 0.2615, sigma: 25.45 };

    fn by_formula(pareto: Pareto, num: u64, max_bytes: u32, index: u64) -> u32 {
        match pareto.ceil(index as f64 / num as f64) {
            Some(size) if size < 0 => 10,
            Some(size) if size > i64::from(max_bytes) => (size % i64::from(max_bytes)) as u32,
            Some(size) => size as u32,
            None => 10,
        }
    }

    #[test]
    fn the_table_is_the_formula() {
        let cases = [
            (ALL_RANDOM, 100_000, 1024),
            (Pareto { k: 0.0, ..ALL_RANDOM }, 10_007, 1024),
            (Pareto { k: -0.4, ..ALL_RANDOM }, 4_096, 64),
            (Pareto { theta: -20.0, ..ALL_RANDOM }, 5_000, 300),
            (Pareto { sigma: 0.0, k: 0.0, theta: 0.0 }, 1_000, 1024),
            (ALL_RANDOM, 3, 1024),
            (ALL_RANDOM, 1, 1),
        ];
        for (pareto, num, max_bytes) in cases {
            let sizes = ParetoSizes::new(pareto, num, max_bytes, 0).unwrap();
            for index in 0..num {
                assert_eq!(
                    sizes.size_bytes(index),
                    by_formula(pareto, num, max_bytes, index),
                    "{pareto:?} {index}/{num}"
                );
            }
        }
    }

    /// Published: 69.1 % of the values up to 35 B, mean 34.9 B, maximum 1022 B; the other points are an
    /// independent derivation of the same distribution on the same grid.
    #[test]
    fn all_random_is_the_published_distribution() {
        let num = 1_000_000;
        let sizes = ParetoSizes::new(ALL_RANDOM, num, 1024, 0).unwrap();
        let mut count = vec![0u64; 1025];
        for index in 0..num {
            count[sizes.size_bytes(index) as usize] += 1;
        }
        let below = |size: usize| count[..=size].iter().sum::<u64>() as f64 / num as f64;
        let mean = (0..=1024u64).map(|s| s * count[s as usize]).sum::<u64>() as f64 / num as f64;
        assert!((mean - 34.865).abs() < 0.0005, "mean {mean}");
        assert_eq!(count.iter().rposition(|&n| n > 0), Some(1022));
        let points = [
            (8, 0.261, 0.0005),
            (16, 0.441, 0.0005),
            (32, 0.663, 0.0005),
            (34, 0.682, 0.0005),
            (35, 0.691, 0.0005),
            (36, 0.700, 0.0005),
            (56, 0.824, 0.0005),
            (64, 0.855, 0.0005),
            (91, 0.920, 0.0005),
            (127, 0.959, 0.0005),
            (147, 0.970, 0.0005),
            (256, 0.993, 0.0005),
            (512, 0.9992, 0.00005),
        ];
        for (size, share, tolerance) in points {
            assert!((below(size) - share).abs() <= tolerance, "<= {size}: {}", below(size));
        }
    }

    #[test]
    fn the_newer_floor_raises_the_mean() {
        let num = 1_000_000;
        let sizes = ParetoSizes::new(ALL_RANDOM, num, 1024, 10).unwrap();
        let total: u64 = (0..num).map(|i| u64::from(sizes.size_bytes(i))).sum();
        let mean = total as f64 / num as f64;
        assert!((mean - 36.39).abs() < 0.005, "mean {mean}");
    }

    #[test]
    fn unusable_parameters_are_named() {
        let bad = |pareto, num, max| ParetoSizes::new(pareto, num, max, 0).unwrap_err();
        assert!(bad(ALL_RANDOM, 0, 1024).starts_with("workload.num: 0"));
        assert!(bad(ALL_RANDOM, 10, 0).starts_with("workload.mix_max_value_size: 0"));
        let falling = Pareto { sigma: -1.0, ..ALL_RANDOM };
        assert!(bad(falling, 10, 10).starts_with("workload.value_sigma: -1"));
    }
}
