//! `w-c`: BandSlim's workload C, the reverse of B. Stores of unique 4 B keys, mostly 2 KiB values and some of
//! 8 B.

use super::w_b::{LARGE_BYTES, SMALL_BYTES, TwoSizes};
use super::{Workload, WorkloadParams};

pub(super) fn build(params: &WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String> {
    Ok(Box::new(TwoSizes::new(params, seed, LARGE_BYTES, SMALL_BYTES)?))
}
