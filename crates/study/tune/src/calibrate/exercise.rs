//! Calls that are timed: kinds of them, the steps they take, and the data they work on.

use std::collections::BTreeMap;

use kvdrive_nvme::Key;
use kvdrive_sim::{ProcessorTime, Rng};
use kvdrive_text::grouped;

/// Bytes of a key: that of SAKER's experiments.
pub(super) const KEY_BYTES: u64 = 8;
/// Calls of one repetition, unless the working set is too small.
const CALLS: u64 = 40_000;

/// The data of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct WorkingSet {
    /// Pairs in a store, and in the cache.
    pub pairs: u64,
    /// Bytes of each value.
    pub value_bytes: u32,
    /// How often each kind of call is measured.
    pub repetitions: u32,
}

impl WorkingSet {
    /// Calls of one repetition.
    pub(super) fn calls(&self) -> u64 {
        CALLS.min(self.pairs)
    }

    /// A summary for a reader.
    pub(super) fn describe(&self, pairs: u64, of: &str) -> String {
        format!("{} pairs of {KEY_BYTES} + {} B {of}", grouped(pairs), self.value_bytes)
    }
}

/// Steps by the key of their cost, and the number of times that each was done.
pub(super) type Steps = BTreeMap<&'static str, f64>;

/// Time of one call and its steps: the mean of a repetition.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub ns: f64,
    pub steps: Steps,
}

impl Sample {
    /// Times `calls` calls; `steps` returns the steps that they took.
    pub fn of(calls: u64, mut call: impl FnMut(u64), steps: impl FnOnce() -> Steps) -> Sample {
        let begin = ProcessorTime::of_thread();
        for number in 0..calls {
            call(number);
        }
        let ns = begin.ns() / calls as f64;
        let mut steps = steps();
        steps.values_mut().for_each(|count| *count /= calls as f64);
        Sample { ns, steps }
    }

    /// The difference to the sample of other calls.
    pub fn minus(mut self, other: &Sample) -> Sample {
        self.ns -= other.ns;
        for (step, count) in &other.steps {
            *self.steps.entry(step).or_default() -= count;
        }
        self
    }
}

/// A kind of call from which a step's cost is found.
pub(super) struct Exercise {
    /// The key of the cost.
    pub cost: &'static str,
    /// Its working set, in words.
    pub working_set: String,
    /// Makes one repetition; the first one warms caches up.
    pub repeat: Box<dyn FnMut() -> Sample>,
}

impl Exercise {
    pub fn new(
        cost: &'static str,
        working_set: String,
        repeat: impl FnMut() -> Sample + 'static,
    ) -> Exercise {
        Exercise { cost, working_set, repeat: Box::new(repeat) }
    }
}

/// The key of a number. Different numbers have different keys, in no order and at unequal distances: with
/// equal distances all nodes of a tree would fill at the same time.
pub(super) fn key_of(number: u64) -> Key {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    Key::from_u64_be(mixed ^ (mixed >> 31))
}

/// Keys of `count` numbers from `from` to below `to`, drawn at random.
pub(super) fn random_keys(count: u64, from: u64, to: u64) -> Vec<Key> {
    let mut rng = Rng::stream(1, "calibrate");
    (0..count).map(|_| key_of(from + rng.below(to - from))).collect()
}
