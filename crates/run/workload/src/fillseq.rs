//! `fillseq`: stores of one size, keys ascending, each once. `db_bench`'s benchmark of that name.

use super::{KeyFormat, Op, ValueSpec, Workload, WorkloadParams};

pub(super) struct FillSeq {
    format: KeyFormat,
    value_bytes: u32,
    stored: u64,
}

impl FillSeq {
    pub(super) fn new(params: &WorkloadParams, key_size: u32) -> Result<FillSeq, String> {
        Ok(FillSeq {
            format: KeyFormat::new(key_size, params.ops)?,
            value_bytes: params.value_size,
            stored: 0,
        })
    }
}

pub(super) fn build(params: &WorkloadParams, _seed: u64) -> Result<Box<dyn Workload>, String> {
    Ok(Box::new(FillSeq::new(params, params.key_size)?))
}

impl Workload for FillSeq {
    fn next(&mut self) -> Op {
        let version = self.stored;
        self.stored += 1;
        Op::Store { key: self.format.key(version), value: ValueSpec { bytes: self.value_bytes, version } }
    }
}
