//! Histogram of time spans, small enough to be copied when a running drive is sampled.

use crate::Ns;

/// Buckets per power of two; a quantile is therefore at most an eighth too large.
const PARTS: u64 = 8;

/// Counts of spans by length. Each span of up to 7 ns has a bucket of its own; above that, each power of two
/// is divided into eight buckets:
///
/// ```text
///   bucket   0 .. 7   8 .. 15      16 .. 23     24 ...
///   from     0 .. 7   8, 9 .. 15   16, 18 ..    32, 36 ...  ns
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u128,
}

fn bucket_of(span: Ns) -> usize {
    if span < PARTS {
        return span as usize;
    }
    let log2 = u64::from(span.ilog2());
    ((log2 - 2) * PARTS + (span >> (log2 - 3)) % PARTS) as usize
}

/// The longest span that falls into a bucket, ns.
fn last_of(bucket: usize) -> Ns {
    let bucket = bucket as u64;
    if bucket < PARTS {
        return bucket;
    }
    let log2 = bucket / PARTS + 2;
    let next = u128::from(PARTS + bucket % PARTS + 1) << (log2 - 3);
    Ns::try_from(next - 1).unwrap_or(Ns::MAX)
}

impl Buckets {
    /// Counts one span.
    pub fn record(&mut self, span: Ns) {
        let bucket = bucket_of(span);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.count += 1;
        self.sum_ns += u128::from(span);
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Buckets) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.count += other.count;
        self.sum_ns += other.sum_ns;
    }

    /// Number of spans.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of the spans, ns.
    pub fn sum_ns(&self) -> Ns {
        Ns::try_from(self.sum_ns).unwrap_or(Ns::MAX)
    }

    /// The span in ns that the fraction `part` (0 to 1) of all spans did not exceed, rounded up to the end of
    /// its bucket; 0 if there are no spans.
    pub fn quantile(&self, part: f64) -> Ns {
        let wanted = ((self.count as f64 * part).ceil() as u64).max(1);
        let mut below = 0;
        let reached = self.counts.iter().position(|count| {
            below += count;
            below >= wanted
        });
        reached.map_or(0, last_of)
    }

    /// Number of spans per power of two: element 0 counts spans of 0 and 1 ns, element `n` spans from 2^n to
    /// 2^(n + 1) - 1 ns.
    pub fn by_power_of_two(&self) -> Vec<u64> {
        let mut powers: Vec<u64> = Vec::new();
        for (bucket, count) in self.counts.iter().enumerate() {
            let power = last_of(bucket).max(1).ilog2() as usize;
            if powers.len() <= power {
                powers.resize(power + 1, 0);
            }
            powers[power] += count;
        }
        powers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_span_is_in_one_bucket_which_is_an_eighth_wide_at_most() {
        let spans = (0..5000).chain((0..64).flat_map(|log2| [1 << log2, (1 << log2) - 1, u64::MAX >> log2]));
        for span in spans {
            let bucket = bucket_of(span);
            assert!(span <= last_of(bucket), "{span}");
            assert!(bucket == 0 || span > last_of(bucket - 1), "{span}");
            assert!(last_of(bucket) - span <= span / 8, "{span}");
        }
    }

    #[test]
    fn quantiles_and_powers_of_two_are_those_of_the_spans() {
        let mut buckets = Buckets::default();
        assert_eq!((buckets.quantile(0.5), buckets.count()), (0, 0));
        (1..=1000).for_each(|span| buckets.record(span));
        assert_eq!((buckets.count(), buckets.sum_ns()), (1000, 500_500));
        for (part, exact) in [(0.5, 500), (0.99, 990), (1.0, 1000)] {
            let found = buckets.quantile(part);
            assert!((exact..=exact + exact / 8).contains(&found), "{part}: {found}");
        }
        assert_eq!(buckets.by_power_of_two(), [1, 2, 4, 8, 16, 32, 64, 128, 256, 489]);
    }
}
