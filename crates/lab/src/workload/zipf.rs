//! Zipf-distributed ranks by the method of Gray et al. (SIGMOD'94), as YCSB draws them.
//!
//! Rank 0 is the most popular; rank `i` has weight `1 / (i + 1)^theta`. The method is exact for ranks 0 and 1
//! and a close curve behind. All functions are `libm`'s: the same ranks on every machine.

use kvdrive_sim::Rng;

/// Terms of the zeta sum that are added one by one; the rest is an integral with its first corrections.
const EXACT_TERMS: u64 = 1 << 20;

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

/// The sum of `1 / i^theta` for `i` from 1 to `items`.
fn zeta(items: u64, theta: f64) -> f64 {
    let exact = items.min(EXACT_TERMS);
    let sum: f64 = (1..=exact).map(|rank| term(rank, theta)).sum();
    if exact == items {
        return sum;
    }
    // Euler and Maclaurin from `exact` to `items`; the next correction is below 1e-13.
    let power = |at: f64| libm::pow(at, 1.0 - theta) / (1.0 - theta);
    let (from, to) = (exact as f64, items as f64);
    sum + power(to) - power(from) + (term(items, theta) - term(exact, theta)) / 2.0
}

impl Zipf {
    /// Ranks below `items`.
    ///
    /// # Errors
    /// One line when `theta` is not above 0 and below 1, or there is nothing to draw.
    pub fn new(items: u64, theta: f64) -> Result<Zipf, String> {
        if !(theta > 0.0 && theta < 1.0) {
            return Err(format!("workload.zipf_theta: {theta}; must be above 0 and below 1"));
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
        self.eta = (1.0 - libm::pow(2.0 / self.items as f64, 1.0 - self.theta)) / (1.0 - two / self.zeta);
    }

    /// Draws from `items` items from now on; never fewer than before.
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
        let spread = libm::pow(self.eta * unit - self.eta + 1.0, 1.0 / (1.0 - self.theta));
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
