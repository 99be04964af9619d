//! `mixed`: every kind of operation by its fraction; the rest are stores. Keys are uniform over `num`
//! preloaded pairs of one size.
//!
//! A deleted key may be requested again; the drive decides whether it is found.

use super::{KeyFormat, Op, ValueSpec, Workload, WorkloadParams};
use kvdrive_nvme::Key;
use kvdrive_sim::Rng;

/// Host buffer of a List, in bytes: one memory page, as small hosts use it.
const LIST_BUFFER_BYTES: u32 = 4096;

struct Mixed {
    format: KeyFormat,
    num: u64,
    value_bytes: u32,
    seek_nexts: u32,
    /// Upper ends of the draws for retrieve, delete, exist, seek and list; a store is above them.
    ends: [u64; 5],
    stored: u64,
    keys: Rng,
    kinds: Rng,
}

pub(super) fn build(params: &WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String> {
    let fractions = [
        params.read_fraction,
        params.delete_fraction,
        params.exist_fraction,
        params.seek_fraction,
        params.list_fraction,
    ];
    let mut sum = 0.0;
    let ends = fractions.map(|fraction| {
        sum += fraction;
        (sum * (1u64 << 32) as f64).round() as u64
    });
    // The sum of ten times 0.1 is slightly above 1, and must be accepted.
    if sum > 1.0 + 1e-9 {
        return Err(format!("workload.read_fraction: the fractions of mixed sum to {sum}; at most 1"));
    }
    Ok(Box::new(Mixed {
        format: KeyFormat::new(params.key_size, params.num)?,
        num: params.num,
        value_bytes: params.value_size,
        seek_nexts: params.seek_nexts,
        ends,
        stored: params.num,
        keys: Rng::stream(seed, "workload.keys"),
        kinds: Rng::stream(seed, "workload.kinds"),
    }))
}

impl Workload for Mixed {
    fn next(&mut self) -> Op {
        let key = self.format.key(self.keys.below(self.num));
        let draw = u64::from(self.kinds.next_u32());
        match self.ends.iter().position(|&end| draw < end) {
            Some(0) => Op::Retrieve { key },
            Some(1) => Op::Delete { key },
            Some(2) => Op::Exist { key },
            Some(3) => Op::Seek { key, nexts: self.seek_nexts },
            Some(_) => Op::List { key, host_buffer_bytes: LIST_BUFFER_BYTES },
            None => {
                let version = self.stored;
                self.stored += 1;
                Op::Store { key, value: ValueSpec { bytes: self.value_bytes, version } }
            }
        }
    }

    fn preload(&self) -> u64 {
        self.num
    }

    fn preload_pair(&self, index: u64) -> (Key, ValueSpec) {
        assert!(index < self.num, "pair {index} of {}", self.num);
        (self.format.key(index), ValueSpec { bytes: self.value_bytes, version: index })
    }
}
