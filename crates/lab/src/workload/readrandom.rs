//! `readrandom`: retrieves of keys uniform over `num` preloaded pairs of one size. Every key is found.

use super::{KeyFormat, Op, ValueSpec, Workload, WorkloadParams};
use kvdrive_sim::Rng;
use kvdrive_spec::Key;

struct ReadRandom {
    format: KeyFormat,
    num: u64,
    value_bytes: u32,
    rng: Rng,
}

pub(super) fn build(params: &WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String> {
    Ok(Box::new(ReadRandom {
        format: KeyFormat::new(params.key_size, params.num)?,
        num: params.num,
        value_bytes: params.value_size,
        rng: Rng::stream(seed, "workload.keys"),
    }))
}

impl Workload for ReadRandom {
    fn next(&mut self) -> Op {
        Op::Retrieve { key: self.format.key(self.rng.below(self.num)) }
    }

    fn preload(&self) -> u64 {
        self.num
    }

    fn preload_pair(&self, index: u64) -> (Key, ValueSpec) {
        assert!(index < self.num, "pair {index} of {}", self.num);
        (self.format.key(index), ValueSpec { bytes: self.value_bytes, version: index })
    }
}
