//! Zipf-distributed ranks by the method of Gray et al. (SIGMOD'94), as YCSB draws them.
//!
//! Rank 0 is the most popular; rank `i` has weight `1 / (i + 1)^theta`. The method is exact for ranks 0 and 1
//! and a close curve after them, for any theta: where theta is 1, powers become logarithms. All functions are
//! `libm`'s: the same ranks on every machine.

use std::collections::BTreeMap;
use std::sync::Mutex;

use kvdrive_sim::Rng;

/// Terms of the zeta sum that are added one by one; the rest is an integral with its first corrections.
const EXACT_TERMS: u64 = 1 << 20;

/// The largest exponent: above it, one rank in two is rank 0.
pub const THETA_MAX: f64 = 2.0;

/// Draws ranks.
pub struct Zipf {
    items: u64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

fn term(rank: u64, theta: f64) -> f64 {
    1.0 / libm::pow(rank as f64, theta)
}

/// Long sums that were computed, by items and the bits of theta: one takes 0.1 s, and every run of a
/// comparison needs the same sum.
static LONG_SUMS: Mutex<BTreeMap<(u64, u64), f64>> = Mutex::new(BTreeMap::new());

/// [`zeta_sum`], remembered if it is long.
fn zeta(items: u64, theta: f64) -> f64 {
    if items < EXACT_TERMS {
        return zeta_sum(items, theta);
    }
    // A forked child that inherits the lock as taken computes the sum again, and does not wait.
    let of = (items, theta.to_bits());
    let known = LONG_SUMS.try_lock().ok().and_then(|known| known.get(&of).copied());
    known.unwrap_or_else(|| {
        let sum = zeta_sum(items, theta);
        if let Ok(mut known) = LONG_SUMS.try_lock() {
            known.insert(of, sum);
        }
        sum
    })
}

/// The sum of `1 / i^theta` for `i` from 1 to `items`.
fn zeta_sum(items: u64, theta: f64) -> f64 {
    let exact = items.min(EXACT_TERMS);
    let sum: f64 = (1..=exact).map(|rank| term(rank, theta)).sum();
    if exact == items {
        return sum;
    }
    // Euler and Maclaurin from `exact` to `items`; the next correction is below 1e-13.
    let power = |at: f64| match theta == 1.0 {
        true => libm::log(at),
        false => libm::pow(at, 1.0 - theta) / (1.0 - theta),
    };
    let (from, to) = (exact as f64, items as f64);
    sum + power(to) - power(from) + (term(items, theta) - term(exact, theta)) / 2.0
}

impl Zipf {
    /// Ranks below `items`.
    ///
    /// # Errors
    /// One line if `theta` is not above 0 and at most [`THETA_MAX`], or `items` is 0.
    pub fn new(items: u64, theta: f64) -> Result<Zipf, String> {
        if !(theta > 0.0 && theta <= THETA_MAX) {
            return Err(format!("workload.zipf_theta: {theta}; must be above 0 and at most {THETA_MAX}"));
        }
        if items == 0 {
            return Err("workload.num: 0; a Zipf distribution needs a key".into());
        }
        let mut zipf = Zipf { items, theta, zeta: zeta(items, theta), eta: 0.0 };
        zipf.set_eta();
        Ok(zipf)
    }

    fn set_eta(&mut self) {
        let two = 1.0 + term(2, self.theta);
        let rest = 1.0 - two / self.zeta;
        self.eta = match self.theta == 1.0 {
            true => libm::log(self.items as f64 / 2.0) / rest,
            false => (1.0 - libm::pow(2.0 / self.items as f64, 1.0 - self.theta)) / rest,
        };
    }

    /// Draws from `items` items from now on, which must not be fewer than before.
    pub fn grow_to(&mut self, items: u64) {
        if items <= self.items {
            return;
        }
        for rank in self.items + 1..=items {
            self.zeta += term(rank, self.theta);
        }
        self.items = items;
        self.set_eta();
    }

    /// The next rank.
    pub fn rank(&self, rng: &mut Rng) -> u64 {
        let unit = rng.unit_f64();
        let scaled = unit * self.zeta;
        if scaled < 1.0 || self.items == 1 {
            return 0;
        }
        if scaled < 1.0 + term(2, self.theta) {
            return 1;
        }
        // From 2 / items, where rank 2 begins, to 1.
        let spread = match self.theta == 1.0 {
            true => libm::exp(self.eta * (unit - 1.0)),
            false => libm::pow(self.eta * unit - self.eta + 1.0, 1.0 / (1.0 - self.theta)),
        };
        ((self.items as f64 * spread) as u64).min(self.items - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_the_one_ycsb_has_as_a_constant() {
        // ScrambledZipfianGenerator.ZETAN for 10^10 items and 0.99.
        assert!((zeta(10_000_000_000, 0.99) - 26.469_028_201_783_02).abs() < 1e-6);
    }

    /// A forked child may inherit the lock as taken by a thread that it does not have.
    #[test]
    fn a_sum_does_not_wait_for_the_lock_of_the_known_ones() {
        let _held = LONG_SUMS.lock();
        assert_eq!(zeta(EXACT_TERMS, 0.9), zeta_sum(EXACT_TERMS, 0.9));
    }

    #[test]
    fn popularity_is_that_of_the_fact_sheet() {
        // n = 10^8, theta 0.99: hottest key 4.8 %, top 1000 37 %, top million 74 %, top ten million 87 %.
        let zipf = Zipf::new(100_000_000, 0.99).unwrap();
        let mut rng = Rng::stream(1, "test");
        let draws = 200_000;
        let mut below = [0u32; 4];
        let limits = [1, 1_000, 1_000_000, 10_000_000];
        for _ in 0..draws {
            let rank = zipf.rank(&mut rng);
            assert!(rank < 100_000_000);
            for (count, limit) in below.iter_mut().zip(limits) {
                *count += u32::from(rank < limit);
            }
        }
        for (count, percent) in below.iter().zip([4.8, 37.0, 74.0, 87.0]) {
            let share = 100.0 * f64::from(*count) / f64::from(draws);
            assert!((share - percent).abs() < 1.5, "{share} % for {percent} %");
        }
    }

    /// The shares of the first ranks, against the sums themselves, below, at and above 1.
    #[test]
    fn every_exponent_has_the_shares_of_its_sum() {
        const ITEMS: u64 = 100_000;
        for theta in [0.5, 0.99, 1.0, 1.000_001, 1.2, 2.0] {
            let zipf = Zipf::new(ITEMS, theta).unwrap();
            let mut rng = Rng::stream(1, "test");
            let ranks: Vec<u64> = (0..200_000).map(|_| zipf.rank(&mut rng)).collect();
            for first in [1, 2, 10, 100, 1000, 10_000] {
                let expected = zeta(first, theta) / zeta(ITEMS, theta);
                let found = ranks.iter().filter(|rank| **rank < first).count() as f64 / ranks.len() as f64;
                assert!((found - expected).abs() < 0.025, "{theta}: {found} below {first}, {expected}");
            }
            assert!(ranks.iter().all(|rank| *rank < ITEMS), "{theta}");
        }
        let sum: f64 = (1..=3_000_000).map(|rank| term(rank, 1.0)).sum();
        assert!((zeta(3_000_000, 1.0) - sum).abs() < 1e-9);
        assert!(Zipf::new(10, 2.1).is_err() && Zipf::new(10, f64::NAN).is_err());
    }

    #[test]
    fn growing_is_the_same_as_beginning_larger() {
        let mut grown = Zipf::new(1000, 0.99).unwrap();
        grown.grow_to(5000);
        let fresh = Zipf::new(5000, 0.99).unwrap();
        assert!((grown.zeta - fresh.zeta).abs() < 1e-9);
        let (mut one, mut other) = (Rng::stream(1, "test"), Rng::stream(1, "test"));
        assert!((0..1000).all(|_| grown.rank(&mut one) == fresh.rank(&mut other)));
    }
}
