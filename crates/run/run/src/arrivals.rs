//! Start times of operations that do not wait for each other: a rate, equally spaced or at random.
//!
//! The latency of such an operation counts from its due time, also if all clients were busy at that time. If it counted
//! from the moment at which a client takes the operation, it would not contain the wait that a slow drive causes.

use kvdrive_sim::{Ns, Rng};

use kvdrive_workload::WorkloadParams;

/// Due times of operations, from 0 on.
pub(crate) struct Arrivals {
    rate_per_s: u64,
    /// Due times drawn so far.
    count: u64,
    /// The last due time, and the random stream for gaps if they are drawn.
    poisson: Option<(f64, Rng)>,
}

impl Arrivals {
    /// The arrivals that `params` asks for; `None` if each client begins an operation when its last one has
    /// ended.
    pub(crate) fn of(params: &WorkloadParams, seed: u64) -> Option<Arrivals> {
        let rate_per_s = params.rate_per_s;
        let rng = || (0.0, Rng::stream(seed, "workload.arrivals"));
        let poisson = (params.arrivals == "poisson").then(rng);
        (rate_per_s > 0).then_some(Arrivals { rate_per_s, count: 0, poisson })
    }

    /// The next due time, ns after the start of the run.
    pub(crate) fn next(&mut self) -> Ns {
        let Some((at_ns, rng)) = &mut self.poisson else {
            let at = u128::from(self.count) * 1_000_000_000 / u128::from(self.rate_per_s);
            self.count += 1;
            return Ns::try_from(at).unwrap_or(Ns::MAX);
        };
        // The gaps of a Poisson process are exponential: minus the logarithm of a uniform number above 0.
        *at_ns -= libm::log(1.0 - rng.unit_f64()) * 1e9 / self.rate_per_s as f64;
        *at_ns as Ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvdrive_config::Document;

    fn arrivals(sets: &[&str], count: usize) -> Vec<Ns> {
        let mut document = Document::profile("cosmos-plus").unwrap();
        sets.iter().for_each(|set| document.set(set).unwrap());
        let mut arrivals = Arrivals::of(&document.config().unwrap().workload, 1).unwrap();
        (0..count).map(|_| arrivals.next()).collect()
    }

    #[test]
    fn a_fixed_rate_does_not_drift() {
        let at = arrivals(&["workload.rate_per_s=300k/s"], 300_001);
        assert_eq!(&at[..4], &[0, 3_333, 6_666, 10_000]);
        assert_eq!(at[300_000], 1_000_000_000);
    }

    #[test]
    fn gaps_at_random_have_the_mean_and_the_spread_of_a_poisson_process() {
        let at = arrivals(&["workload.rate_per_s=1M/s", "workload.arrivals=poisson"], 200_000);
        let gaps: Vec<f64> = at.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 1000.0 - 1.0).abs() < 0.01, "{mean}");
        // The standard deviation of an exponential distribution equals its mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{variance}");
    }
}
