//! `fillrandom`: stores of one size, keys out of `num`, uniform unless `distribution` is set. As in
//! `db_bench`, a key may repeat: after `num` uniform stores about 63 % of the keys are present.

use super::choose::Chooser;
use super::{KeyFormat, Op, ValueSpec, Workload, WorkloadParams};
use kvdrive_sim::Rng;

struct FillRandom {
    format: KeyFormat,
    num: u64,
    value_bytes: u32,
    stored: u64,
    chooser: Chooser,
    rng: Rng,
}

pub(super) fn build(params: &WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String> {
    let scrambled = params.scramble.then_some(params.num);
    let chooser = Chooser::new(&params.distribution, params.num, params.zipf_theta, scrambled)?;
    Ok(Box::new(FillRandom {
        format: KeyFormat::new(params.key_size, params.num)?,
        num: params.num,
        value_bytes: params.value_size,
        stored: 0,
        chooser,
        rng: Rng::stream(seed, "workload.keys"),
    }))
}

impl Workload for FillRandom {
    fn next(&mut self) -> Op {
        let version = self.stored;
        self.stored += 1;
        Op::Store {
            key: self.format.key(self.chooser.index(&mut self.rng, self.num)),
            value: ValueSpec { bytes: self.value_bytes, version },
        }
    }
}
