//! A workload behind a drive that was written over before: all pairs are stored, and then pairs at random until the
//! values stored are as many bytes as `workload.precondition` asks. A drive that was never full answers faster, and
//! programs less, than one that has been in use.
//!
//! The pairs are those that the workload preloads; of a workload that draws keys and preloads nothing, its keys in order,
//! with values of `workload.value_size`. A pair that is overwritten keeps its size.

use std::sync::Arc;

use kvdrive_declare::Counts;
use kvdrive_nvme::Key;
use kvdrive_sim::Ns;

use super::choose::fnv64;
use super::units::Units;
use super::{KeyFormat, Op, ValueSpec, Workload, WorkloadParams};

struct Preconditioned {
    inner: Box<dyn Workload>,
    seed: u64,
    pairs: u64,
    stores: u64,
    /// Keys and size of the values if the workload itself preloads nothing.
    own: Option<(KeyFormat, u32)>,
}

/// Number of pairs from which the mean size of a value is taken.
const MEASURED_PAIRS: u64 = 1000;

/// As [`crate::build`], with the stores that `params` asks to come before.
///
/// # Errors
/// As there, or a line: the workload has no pairs to overwrite.
pub fn build(params: &WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String> {
    let workload = super::build(params, seed)?;
    match params.precondition_bytes {
        0 => Ok(workload),
        bytes => precede(workload, params, seed, bytes),
    }
}

/// `inner`, built from `params`, preceded by stores of `bytes` bytes of values.
fn precede(
    inner: Box<dyn Workload>,
    params: &WorkloadParams,
    seed: u64,
    bytes: u64,
) -> Result<Box<dyn Workload>, String> {
    let row = params.known_row()?;
    let refused = |why: &str| Err(format!("workload.precondition: {} {why}", params.name));
    if row.unit_bytes.is_some() {
        return refused("consists of units, whose pairs cannot be overwritten at random");
    }
    let (pairs, own) = match inner.preload() {
        0 if row.draws_keys() => {
            (params.num, Some((KeyFormat::new(params.key_size, params.num)?, params.value_size)))
        }
        0 => return refused("stores keys once, so there are no pairs to overwrite before it"),
        pairs => (pairs, None),
    };
    let mut all = Preconditioned { inner, seed, pairs, stores: pairs, own };
    let measured = pairs.min(MEASURED_PAIRS);
    let measured_bytes: u64 = (0..measured).map(|index| u64::from(all.pair(index).1)).sum();
    if measured_bytes == 0 {
        return refused("has values without bytes, so they fill no drive");
    }
    let stores = u128::from(bytes) * u128::from(measured) / u128::from(measured_bytes);
    all.stores = pairs.max(u64::try_from(stores).unwrap_or(u64::MAX));
    Ok(Box::new(all))
}

impl Preconditioned {
    fn pair(&self, number: u64) -> (Key, u32) {
        match &self.own {
            Some((format, bytes)) => (format.key(number), *bytes),
            None => {
                let (key, value) = self.inner.preload_pair(number);
                (key, value.bytes)
            }
        }
    }

    /// Values of the workload itself come after those that were stored before: no version occurs twice.
    fn after(&self, value: ValueSpec) -> ValueSpec {
        ValueSpec { version: value.version + self.stores, ..value }
    }

    fn moved(&self, op: Op) -> Op {
        match op {
            Op::Store { key, value } => Op::Store { key, value: self.after(value) },
            Op::Modify { key, value } => Op::Modify { key, value: self.after(value) },
            op => op,
        }
    }
}

impl Workload for Preconditioned {
    fn next(&mut self) -> Op {
        let op = self.inner.next();
        self.moved(op)
    }

    fn draw(&mut self) -> Result<Option<(Op, Option<Ns>)>, String> {
        Ok(self.inner.draw()?.map(|(op, at)| (self.moved(op), at)))
    }

    fn preload(&self) -> u64 {
        self.stores
    }

    fn preload_pair(&self, index: u64) -> (Key, ValueSpec) {
        assert!(index < self.stores, "pair {index} of {}", self.stores);
        let number = if index < self.pairs {
            index
        } else {
            // A hash instead of a random stream: the result must not depend on earlier calls.
            let mixed = fnv64(index ^ fnv64(self.seed)) ^ fnv64(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            ((u128::from(mixed) * u128::from(self.pairs)) >> 64) as u64
        };
        let (key, bytes) = self.pair(number);
        (key, ValueSpec { bytes, version: index })
    }

    fn bytes_of(&self, value: &ValueSpec, bytes: &mut Vec<u8>) -> bool {
        match value.version.checked_sub(self.stores) {
            Some(version) => self.inner.bytes_of(&ValueSpec { version, ..*value }, bytes),
            None => false,
        }
    }

    fn units(&self) -> Option<Arc<dyn Units>> {
        self.inner.units()
    }

    fn inserted(&self) -> u64 {
        self.inner.inserted()
    }

    fn counts(&self) -> Counts {
        self.inner.counts()
    }

    fn read_share(&self) -> Option<f64> {
        self.inner.read_share()
    }

    fn notes(&self) -> &[String] {
        self.inner.notes()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn params(name: &str, bytes: u64) -> WorkloadParams {
        let defaults: serde_json::Value = toml_edit::de::from_str(crate::DEFAULTS).unwrap();
        let defaults = kvdrive_declare::read(&kvdrive_declare::Values::new(&defaults)).unwrap();
        let name = name.to_owned();
        let distribution = "uniform".to_owned();
        WorkloadParams { name, distribution, num: 50, value_size: 100, precondition_bytes: bytes, ..defaults }
    }

    /// Every pair is stored once, then pairs at random; the workload's own values are versions after those.
    #[test]
    fn all_pairs_are_stored_and_then_overwritten_until_the_bytes_are_reached() {
        for name in ["fillrandom", "ycsb-a", "readrandom"] {
            let mut workload = build(&params(name, 20_000), 7).unwrap();
            assert_eq!(workload.preload(), 200, "{name}");
            let mut times: BTreeMap<Key, u32> = BTreeMap::new();
            for index in 0..200 {
                let (key, value) = workload.preload_pair(index);
                assert_eq!((value.bytes, value.version), (100, index), "{name}");
                *times.entry(key).or_default() += 1;
                assert!(index != 49 || times.len() == 50, "{name}: {} keys of 50 stores", times.len());
            }
            assert!(times.len() == 50 && times.values().max() < Some(&20), "{name}: {times:?}");
            let stored = std::iter::repeat_with(|| workload.next()).take(200);
            for op in stored.filter(|op| matches!(op, Op::Store { .. })) {
                let Op::Store { key, value } = op else { unreachable!() };
                assert!(times.contains_key(&key) && value.version >= 200, "{name}: {value:?}");
            }
        }
        // Fewer bytes than the pairs have: these are stored all the same.
        assert_eq!(build(&params("fillrandom", 1), 7).unwrap().preload(), 50);
        assert_eq!(build(&params("fillrandom", 0), 7).unwrap().preload(), 0);
    }

    #[test]
    fn a_workload_without_pairs_to_overwrite_is_refused() {
        let refused = |name| build(&params(name, 1), 7).err().expect("it is refused");
        assert!(refused("fillseq").starts_with("workload.precondition: fillseq stores keys once"));
        assert!(refused("tpcc").starts_with("workload.precondition: tpcc consists of units"));
    }
}
