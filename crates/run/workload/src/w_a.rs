//! `w-a`: BandSlim's workload A. Stores of one size, 4 B keys ascending.

use super::fillseq::FillSeq;
use super::{Workload, WorkloadParams};

pub(super) fn build(params: &WorkloadParams, _seed: u64) -> Result<Box<dyn Workload>, String> {
    Ok(Box::new(FillSeq::new(params, 4)?))
}
