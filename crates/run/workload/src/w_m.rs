//! `w-m`: BandSlim's workload M. Stores of unique 4 B keys whose sizes are those of mixgraph's `All_random`.
//!
//! Only the sizes are mixgraph's: the paper makes every query a PUT. The sizes are drawn from a grid of one
//! million points, the number of the paper's operations, whatever `ops` and `num` are, because the grid
//! determines the largest possible size.

use super::keys::{KeyPermutation, check_unique};
use super::{Op, Pareto, ParetoSizes, ValueSpec, Workload, WorkloadParams};
use kvdrive_sim::Rng;

/// Draws that the sizes are taken from: the operations of the published runs.
const DRAWS: u64 = 1_000_000;

struct MixSizes {
    keys: KeyPermutation,
    sizes: ParetoSizes,
    draws: Rng,
    stored: u64,
}

pub(super) fn build(params: &WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String> {
    check_unique(params.ops)?;
    let pareto = Pareto { theta: params.value_theta, k: params.value_k, sigma: params.value_sigma };
    Ok(Box::new(MixSizes {
        keys: KeyPermutation::new(seed),
        sizes: ParetoSizes::new(pareto, DRAWS, params.mix_max_value_size, params.value_floor_bytes)?,
        draws: Rng::stream(seed, "workload.sizes"),
        stored: 0,
    }))
}

impl Workload for MixSizes {
    fn next(&mut self) -> Op {
        let version = self.stored;
        self.stored += 1;
        let draw = self.draws.below(DRAWS);
        Op::Store {
            key: self.keys.key(version as u32),
            value: ValueSpec { bytes: self.sizes.size_bytes(draw), version },
        }
    }
}
