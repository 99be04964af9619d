//! YCSB's core workloads (Cooper et al., SoCC'10), and those that the client of Plus runs under the same letters.
//!
//! | letter | `ycsb-` | `plus-` |
//! |---|---|---|
//! | a | 50 % retrieve, 50 % store | the same |
//! | b | 95 % retrieve, 5 % store | the same |
//! | c | retrieve | the same |
//! | d | 95 % retrieve of the latest, 5 % insert | 95 % retrieve, 5 % store, both of the latest |
//! | e | 95 % scan of 1 to `scan_length_max` pairs, 5 % insert | not run by the paper |
//! | f | 50 % retrieve, 50 % retrieve and store of one key | the same |
//!
//! Workloads `anykey-`, with 80 % retrieves and 20 % stores, are those by which AnyKey was judged: each has the key and value
//! sizes of a production system.
//!
//! `num` pairs are loaded in the order of their keys, then `overwrites` stores of uniform keys precondition
//! the drive. `distribution` chooses keys: `uniform`, `zipfian`, `latest`; letter d is always `latest`. With
//! `scramble`, `ycsb-` spreads the Zipfian's ranks over the keys by a hash, as YCSB does; `plus-` never does
//! (its client's rank is the key).
//!
//! If pairs are inserted, the hash spreads ranks over all loaded keys and twice the expected number of new
//! ones, and if a drawn pair does not exist yet, another one is drawn (`CoreWorkload.nextKeynum`). A hash
//! over the existing keys alone would move the hot keys with every insert.
//!
//! A read-modify-write is one operation of one client, a retrieve and then a store; each of them is counted.
//! The seek of a scan brings its first pair.

use super::choose::{Chooser, fnv64};
use super::{KeyFormat, Op, ValueSpec, Workload, WorkloadParams};
use kvdrive_nvme::Key;
use kvdrive_sim::Rng;

/// The mix of one letter, in shares of 100. The rest are retrieves.
#[derive(Clone, Copy)]
pub(super) struct Mix {
    stores: u64,
    inserts: u64,
    scans: u64,
    modifies: u64,
}

const NOTHING: Mix = Mix { stores: 0, inserts: 0, scans: 0, modifies: 0 };
pub(super) const HALF_STORES: Mix = Mix { stores: 50, ..NOTHING };
pub(super) const FEW_STORES: Mix = Mix { stores: 5, ..NOTHING };
pub(super) const FIFTH_STORES: Mix = Mix { stores: 20, ..NOTHING };
pub(super) const RETRIEVES: Mix = NOTHING;
pub(super) const FEW_INSERTS: Mix = Mix { inserts: 5, ..NOTHING };
pub(super) const SCANS: Mix = Mix { inserts: 5, scans: 95, ..NOTHING };
pub(super) const HALF_MODIFIES: Mix = Mix { modifies: 50, ..NOTHING };

struct Ycsb {
    mix: Mix,
    format: KeyFormat,
    loaded: u64,
    overwrites: u64,
    /// Pairs that exist: loaded and inserted.
    pairs: u64,
    value_bytes: u32,
    scan_length_max: u32,
    version: u64,
    chooser: Chooser,
    keys: Rng,
    kinds: Rng,
    seed: u64,
    notes: Vec<String>,
}

/// As [`build`], with keys and values of these sizes.
pub(super) fn build_sized(
    mix: Mix,
    [key_size, value_size]: [u32; 2],
    params: &WorkloadParams,
    seed: u64,
) -> Result<Box<dyn Workload>, String> {
    build(mix, &WorkloadParams { key_size, value_size, ..params.clone() }, seed)
}

/// The workload of a row with this mix, which also decides whether keys are the latest and may be scrambled.
pub(super) fn build(mix: Mix, params: &WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String> {
    let row = params.row().ok_or("workload.name: no such workload")?;
    let scramble = params.scramble && row.looks_at("scramble");
    let inserts = if mix.inserts > 0 { params.ops } else { 0 };
    let expected = params.num.saturating_add(params.ops.saturating_mul(2 * mix.inserts) / 100);
    let distribution = row.own_distribution().unwrap_or(&params.distribution);
    let chooser = Chooser::new(distribution, params.num, params.zipf_theta, scramble.then_some(expected))?;
    let chooser = chooser.replayed_by(params.replayed_by);
    let mut notes = Vec::new();
    if mix.modifies > 0 {
        notes.push("a read-modify-write is one operation; its retrieve and its store count each".to_owned());
    }
    Ok(Box::new(Ycsb {
        mix,
        format: KeyFormat::new(params.key_size, params.num + inserts)?,
        loaded: params.num,
        overwrites: params.overwrites,
        pairs: params.num,
        value_bytes: params.value_size,
        scan_length_max: params.scan_length_max,
        version: params.num + params.overwrites,
        chooser,
        keys: Rng::stream(seed, "workload.keys"),
        kinds: Rng::stream(seed, "workload.kinds"),
        seed,
        notes,
    }))
}

impl Ycsb {
    fn choose(&mut self) -> Key {
        let index = self.chooser.index(&mut self.keys, self.pairs);
        self.format.key(index)
    }

    fn new_value(&mut self) -> ValueSpec {
        let value = ValueSpec { bytes: self.value_bytes, version: self.version };
        self.version += 1;
        value
    }
}

impl Workload for Ycsb {
    fn next(&mut self) -> Op {
        let Mix { stores, inserts, scans, modifies } = self.mix;
        let draw = self.kinds.below(100);
        if draw < inserts {
            let key = self.format.key(self.pairs);
            self.pairs += 1;
            return Op::Store { key, value: self.new_value() };
        }
        let key = self.choose();
        let draw = draw - inserts;
        if draw < stores {
            Op::Store { key, value: self.new_value() }
        } else if draw < stores + scans {
            let nexts = self.kinds.below(self.scan_length_max.into()) as u32;
            Op::Seek { key, nexts }
        } else if draw < stores + scans + modifies {
            Op::Modify { key, value: self.new_value() }
        } else {
            Op::Retrieve { key }
        }
    }

    fn preload(&self) -> u64 {
        self.loaded + self.overwrites
    }

    fn preload_pair(&self, index: u64) -> (Key, ValueSpec) {
        assert!(index < self.preload(), "pair {index} of {}", self.preload());
        let number = if index < self.loaded {
            index
        } else {
            // A hash instead of a random stream: the result must not depend on earlier calls.
            let mixed = fnv64(index ^ fnv64(self.seed)) ^ fnv64(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            ((u128::from(mixed) * u128::from(self.loaded)) >> 64) as u64
        };
        (self.format.key(number), ValueSpec { bytes: self.value_bytes, version: index })
    }

    fn inserted(&self) -> u64 {
        self.pairs - self.loaded
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}
