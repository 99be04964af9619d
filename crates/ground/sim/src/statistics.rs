//! Latency histograms and the figures that reports print of them.

use crate::Ns;

/// Values with three significant digits (HDR histogram), plus their exact sum.
#[derive(Clone)]
pub struct Histogram {
    values: hdrhistogram::Histogram<u64>,
    sum: u128,
    max: Ns,
}

/// The figures of a histogram that reports print, all in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Number of values.
    pub count: u64,
    /// Exact mean.
    pub mean: f64,
    /// Median, three digits.
    pub p50: Ns,
    /// 95th percentile, three digits.
    pub p95: Ns,
    /// 99th percentile, three digits.
    pub p99: Ns,
    /// 99.9th percentile, three digits.
    pub p999: Ns,
    /// 99.99th percentile, three digits.
    pub p9999: Ns,
    /// Exact maximum.
    pub max: Ns,
}

impl Default for Histogram {
    fn default() -> Self {
        let values = hdrhistogram::Histogram::new(3).expect("three digits are a valid precision");
        Histogram { values, sum: 0, max: 0 }
    }
}

impl Histogram {
    /// Counts one value.
    pub fn record(&mut self, value: Ns) {
        self.values.record(value).expect("an auto-resizing histogram takes every value");
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Histogram) {
        self.values.add(&other.values).expect("an auto-resizing histogram takes every value");
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// The underlying histogram, for tools that use the `hdrhistogram` crate.
    pub fn values(&self) -> &hdrhistogram::Histogram<u64> {
        &self.values
    }

    /// The figures so far; all zero when nothing was recorded.
    pub fn summary(&self) -> Summary {
        let count = self.values.len();
        if count == 0 {
            return Summary::default();
        }
        let quantile = |q| self.values.value_at_quantile(q).min(self.max);
        Summary {
            count,
            mean: self.sum as f64 / count as f64,
            p50: quantile(0.5),
            p95: quantile(0.95),
            p99: quantile(0.99),
            p999: quantile(0.999),
            p9999: quantile(0.9999),
            max: self.max,
        }
    }
}
