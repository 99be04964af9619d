//! `fillrandom`: stores of one size, keys uniform over `num`. As in `db_bench`, a key may come again: after
//! `num` stores about 63 % of the keys are there.

use super::{KeyFormat, Op, ValueSpec, Workload, WorkloadParams};
use kvdrive_sim::Rng;

struct FillRandom {
    format: KeyFormat,
    num: u64,
    value_bytes: u32,
    stored: u64,
    rng: Rng,
}

pub(super) fn build(params: &WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String> {
    Ok(Box::new(FillRandom {
        format: KeyFormat::new(params.key_size, params.num)?,
        num: params.num,
        value_bytes: params.value_size,
        stored: 0,
        rng: Rng::stream(seed, "workload.keys"),
    }))
}

impl Workload for FillRandom {
    fn next(&mut self) -> Op {
        let version = self.stored;
        self.stored += 1;
        Op::Store {
            key: self.format.key(self.rng.below(self.num)),
            value: ValueSpec { bytes: self.value_bytes, version },
        }
    }
}
