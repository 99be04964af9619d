//! `readrandom`: retrieves of keys out of `num` preloaded pairs of one size, uniform unless `distribution` is
//! set. Every key is found.

use super::choose::Chooser;
use super::{KeyFormat, Op, ValueSpec, Workload, WorkloadParams};
use kvdrive_nvme::Key;
use kvdrive_sim::Rng;

struct ReadRandom {
    format: KeyFormat,
    num: u64,
    value_bytes: u32,
    chooser: Chooser,
    rng: Rng,
}

pub(super) fn build(params: &WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String> {
    let scrambled = params.scramble.then_some(params.num);
    let chooser = Chooser::new(&params.distribution, params.num, params.zipf_theta, scrambled)?;
    Ok(Box::new(ReadRandom {
        format: KeyFormat::new(params.key_size, params.num)?,
        num: params.num,
        value_bytes: params.value_size,
        chooser,
        rng: Rng::stream(seed, "workload.keys"),
    }))
}

impl Workload for ReadRandom {
    fn next(&mut self) -> Op {
        Op::Retrieve { key: self.format.key(self.chooser.index(&mut self.rng, self.num)) }
    }

    fn preload(&self) -> u64 {
        self.num
    }

    fn preload_pair(&self, index: u64) -> (Key, ValueSpec) {
        assert!(index < self.num, "pair {index} of {}", self.num);
        (self.format.key(index), ValueSpec { bytes: self.value_bytes, version: index })
    }
}
