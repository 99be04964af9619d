//! `w-d`: BandSlim's workload D. Stores of unique 4 B keys, nine sizes from 8 B to 2 KiB equally often.

use super::keys::{KeyPermutation, check_unique};
use super::{Op, ValueSpec, Workload, WorkloadParams};
use kvdrive_sim::Rng;

struct NineSizes {
    keys: KeyPermutation,
    sizes: Rng,
    stored: u64,
}

pub(super) fn build(params: &WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String> {
    check_unique(params.ops)?;
    Ok(Box::new(NineSizes {
        keys: KeyPermutation::new(seed),
        sizes: Rng::stream(seed, "workload.sizes"),
        stored: 0,
    }))
}

impl Workload for NineSizes {
    fn next(&mut self) -> Op {
        let version = self.stored;
        self.stored += 1;
        Op::Store {
            key: self.keys.key(version as u32),
            value: ValueSpec { bytes: 8 << self.sizes.below(9), version },
        }
    }
}
