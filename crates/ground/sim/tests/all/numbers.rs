//! Random streams, histograms and traces.

use kvdrive_sim::{Histogram, Rng, Sim, Summary};
use proptest::prelude::*;

/// Reports depend on these numbers: they must be the same on every machine and in every release.
#[test]
fn streams_are_portable() {
    let mut stream = Rng::stream(1, "golden");
    assert_eq!(
        [stream.next_u64(), stream.next_u64(), stream.next_u64()],
        [12_690_809_536_439_188_360, 11_738_869_375_467_918_001, 14_126_778_869_126_086_867]
    );
    let mut bytes = [0; 5];
    stream.fill(&mut bytes);
    let rest = (stream.next_u32(), stream.below(1_000_000), bytes);
    assert_eq!(rest, (1_726_731_114, 487_967, [28, 118, 120, 220, 164]));
    assert_eq!(stream.unit_f64(), 0.884_719_905_297_243);
}

#[test]
fn streams_of_other_names_and_seeds_are_others() {
    let first = |seed, name| Rng::stream(seed, name).next_u64();
    assert_eq!(first(7, "gc"), first(7, "gc"));
    assert_ne!(first(7, "gc"), first(8, "gc"));
    assert_ne!(first(7, "gc"), first(7, "keys"));
    assert_ne!(first(7, "gc"), first(7 + (1 << 56), "gc"));
}

#[test]
fn below_has_no_bias() {
    let mut rng = Rng::stream(2, "bias");
    // Without rejection, two thirds of the draws below 3 * 2^62 would be multiples of 3.
    let n = 3 << 62;
    let mut counts = [0u32; 3];
    for _ in 0..30_000 {
        let value = rng.below(n);
        assert!(value < n);
        counts[(value % 3) as usize] += 1;
    }
    // 5 standard deviations of a binomial with p = 1/3.
    for count in counts {
        assert!(count.abs_diff(10_000) < 410, "{counts:?}");
    }
    assert_eq!(rng.below(1), 0);
    let ones = (0..30_000).filter(|_| rng.one_in(10)).count();
    assert!(ones.abs_diff(3_000) < 260, "{ones}");
}

#[test]
#[should_panic(expected = "nothing lies below 0")]
fn nothing_lies_below_zero() {
    Rng::stream(1, "x").below(0);
}

#[test]
fn a_histogram_says_what_was_recorded() {
    let mut histogram = Histogram::default();
    assert_eq!(histogram.summary(), Summary::default());
    (1..=1_000).for_each(|value| histogram.record(value));
    let summary = histogram.summary();
    assert_eq!((summary.count, summary.mean), (1_000, 500.5));
    assert_eq!((summary.p50, summary.p99), (500, 990));
    assert_eq!((summary.p999, summary.max), (999, 1_000));
    histogram.record(123_456_789);
    assert_eq!(histogram.summary().max, 123_456_789);
}

#[test]
fn a_histogram_takes_every_value() {
    let mut histogram = Histogram::default();
    histogram.record(0);
    histogram.record(u64::MAX);
    assert_eq!(histogram.summary().max, u64::MAX);
    assert_eq!(histogram.summary().p50, 0);
}

proptest! {
    #[test]
    fn quantiles_are_right_to_three_digits(mut values in proptest::collection::vec(0u64..1 << 40, 1..300)) {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.record(*value));
        values.sort_unstable();
        let summary = histogram.summary();
        for (q, got) in [(0.5, summary.p50), (0.99, summary.p99), (0.999, summary.p999)] {
            let rank = (q * values.len() as f64).ceil().max(1.0) as usize;
            let exact = values[rank - 1];
            prop_assert!(got >= exact && got <= exact + exact / 1_000 + 1, "{q}: {got} for {exact}");
        }
        prop_assert_eq!(summary.max, *values.last().expect("not empty"));
    }
}

#[test]
fn a_trace_records_only_while_it_is_on() {
    let sim = Sim::new();
    let trace = sim.trace();
    trace.note(1, 1, "link", "lost", 0, "");
    trace.start();
    trace.note(9, 2, "link", "late", 64, "sqe");
    trace.note(3, 1, "host", "early", 0, "");
    let entries = trace.take();
    assert!(!trace.is_on());
    assert_eq!(entries.len(), 2);
    assert_eq!((entries[0].what, entries[1].what), ("early", "late"));
    assert!(trace.take().is_empty());
}
