//! `w-b`: BandSlim's workload B. Stores of unique 4 B keys, mostly 8 B values and some of 2 KiB.
//!
//! The paper says nine to one; its published code draws one of nine numbers, which is eight to one. The first
//! is the default.

use super::keys::{KeyPermutation, check_unique};
use super::{Op, ValueSpec, Workload, WorkloadParams};
use kvdrive_sim::Rng;

/// The small size of workloads B and C, in bytes.
pub(super) const SMALL_BYTES: u32 = 8;
/// The large size of workloads B and C, in bytes.
pub(super) const LARGE_BYTES: u32 = 2048;

/// Two sizes, the rare one once in `one_in` stores.
pub(super) struct TwoSizes {
    common_bytes: u32,
    rare_bytes: u32,
    one_in: u64,
    keys: KeyPermutation,
    sizes: Rng,
    stored: u64,
}

impl TwoSizes {
    pub(super) fn new(
        params: &WorkloadParams,
        seed: u64,
        common_bytes: u32,
        rare_bytes: u32,
    ) -> Result<TwoSizes, String> {
        check_unique(params.ops)?;
        let one_in = match params.large_ratio.as_str() {
            "9:1" => 10,
            "8:1" => 9,
            other => {
                return Err(format!("workload.large_ratio: {other:?}; allowed: \"9:1\", \"8:1\""));
            }
        };
        Ok(TwoSizes {
            common_bytes,
            rare_bytes,
            one_in,
            keys: KeyPermutation::new(seed),
            sizes: Rng::stream(seed, "workload.sizes"),
            stored: 0,
        })
    }
}

pub(super) fn build(params: &WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String> {
    Ok(Box::new(TwoSizes::new(params, seed, SMALL_BYTES, LARGE_BYTES)?))
}

impl Workload for TwoSizes {
    fn next(&mut self) -> Op {
        let version = self.stored;
        self.stored += 1;
        let rare = self.sizes.below(self.one_in) == 0;
        Op::Store {
            key: self.keys.key(version as u32),
            value: ValueSpec { bytes: if rare { self.rare_bytes } else { self.common_bytes }, version },
        }
    }
}
