//! Workloads: the operations that an application asks of the drive, one at a time.
//!
//! A workload yields operations by description: a key, a value's length and version. It moves no data, takes
//! no time and knows no drive; the runner expands a [`ValueSpec`] into bytes or into a pattern, and decides
//! when the next operation starts.
//!
//! A new workload is one file with a `build` function and one row in [`WORKLOADS`], which describes its other
//! properties. Every generator is deterministic across machines: integer arithmetic, named random streams,
//! and `libm` where a power or a logarithm is needed.

mod choose;
mod fillrandom;
mod fillseq;
mod keys;
pub mod kvcache;
mod mixed;
mod mixgraph;
mod params;
pub mod precondition;
mod readrandom;
mod rows;
mod sizes;
mod tpcc;
mod trace;
pub mod units;
mod w_a;
mod w_b;
mod w_c;
mod w_d;
mod w_m;
mod ycsb;
mod zipf;

use std::sync::Arc;

use kvdrive_declare::Counts;
use kvdrive_nvme::Key;
use kvdrive_sim::Ns;

use kvdrive_text::names::no_such;

pub use keys::{KeyFormat, KeyPermutation};
pub use params::{OwnWorkload, PRESETS, Preset, WorkloadParams};
pub use rows::{Build, FROM_FILES, Keys, Row, WORKLOADS, all_rows, is_preconditioned, looks_at, row};
pub use sizes::{Pareto, ParetoSizes};
pub use trace::{FORMATS, FormatRow};
pub use zipf::{THETA_MAX, Zipf};

/// The section `[workload]` of a configuration: every setting with its default and the source of it.
pub const DEFAULTS: &str = include_str!("../workload.toml");

/// The value of a store, by description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueSpec {
    /// Length in bytes; zero is valid.
    pub bytes: u32,
    /// Number of this store within the run, counted after the preloaded pairs. It differs between two stores
    /// of one key.
    pub version: u64,
}

/// One operation of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Store a pair, new or not.
    Store {
        /// Key of the pair.
        key: Key,
        /// Its value.
        value: ValueSpec,
    },
    /// Retrieve the value of a key.
    Retrieve {
        /// Key of the pair.
        key: Key,
    },
    /// Read-modify-write: retrieve a value, then store another one. One client does both.
    Modify {
        /// Key of the pair.
        key: Key,
        /// Its new value.
        value: ValueSpec,
    },
    /// Delete a pair.
    Delete {
        /// Key of the pair.
        key: Key,
    },
    /// Ask whether a key exists.
    Exist {
        /// Key of the pair.
        key: Key,
    },
    /// Position an iterator at the first key not below `key`, then step it.
    Seek {
        /// Where the iterator starts.
        key: Key,
        /// How many *next* follow.
        nexts: u32,
    },
    /// List keys in order from `key` on.
    List {
        /// Where the list starts.
        key: Key,
        /// Host buffer size of the List command, in bytes.
        host_buffer_bytes: u32,
    },
    /// Several operations of one client, the later ones depending on the results of the earlier ones;
    /// [`Workload::units`] executes them.
    Unit {
        /// Number of the unit.
        number: u64,
    },
}

impl Op {
    /// The key of its first operation; `None` for a unit, which chooses its keys while it runs.
    pub fn key(&self) -> Option<Key> {
        match *self {
            Op::Store { key, .. }
            | Op::Retrieve { key }
            | Op::Modify { key, .. }
            | Op::Delete { key }
            | Op::Exist { key }
            | Op::Seek { key, .. }
            | Op::List { key, .. } => Some(key),
            Op::Unit { .. } => None,
        }
    }

    /// The operations of its client, one after the other: itself, or the retrieve and the store of a
    /// [`Op::Modify`].
    pub fn steps(self) -> impl Iterator<Item = Op> {
        let (first, second) = match self {
            Op::Modify { key, value } => (Op::Retrieve { key }, Some(Op::Store { key, value })),
            op => (op, None),
        };
        std::iter::once(first).chain(second)
    }
}

/// A stream of operations. A generated stream has no end: the runner decides how many it draws.
pub trait Workload: Send {
    /// The next operation. Allocates nothing.
    fn next(&mut self) -> Op;

    /// The next operation of a workload that may end, and its recorded start, if there is one, in ns after
    /// the start of the first operation; `None` after the last.
    ///
    /// # Errors
    /// The file is damaged: one line with the position.
    fn draw(&mut self) -> Result<Option<(Op, Option<Ns>)>, String> {
        Ok(Some((self.next(), None)))
    }

    /// Number of pairs that must be in the drive before the first operation: `preload_pair(0)` to
    /// `preload_pair(preload() - 1)`.
    fn preload(&self) -> u64 {
        0
    }

    /// Bytes of the values of these pairs, of a workload whose settings do not say so in advance
    /// ([`WorkloadParams::least_values`]).
    fn preload_bytes(&self) -> u64 {
        0
    }

    /// Preloaded pair number `index`; the same for every call.
    ///
    /// # Panics
    /// `index` is not below [`preload`](Workload::preload).
    fn preload_pair(&self, index: u64) -> (Key, ValueSpec) {
        panic!("pair {index} asked of a workload that preloads nothing")
    }

    /// Writes the bytes of a value to `bytes` and replaces its content; `false`: the value is the pattern of
    /// its key and version.
    fn bytes_of(&self, _value: &ValueSpec, _bytes: &mut Vec<u8>) -> bool {
        false
    }

    /// The executor of the units that it draws, if it draws any.
    fn units(&self) -> Option<Arc<dyn units::Units>> {
        None
    }

    /// Number of pairs added to those that were loaded.
    fn inserted(&self) -> u64 {
        0
    }

    /// Its own counters, over the operations drawn so far: section `workload` of reports. Most workloads have
    /// none.
    fn counts(&self) -> Counts {
        Counts::default()
    }

    /// Fraction of its file that has been read, from 0 to 1; `None` if unknown.
    fn read_share(&self) -> Option<f64> {
        None
    }

    /// Differences between this run and what its name promises (a clamped key, for example), one sentence
    /// each, for reports.
    fn notes(&self) -> &[String] {
        &[]
    }
}

impl WorkloadParams {
    /// The row of the workload, if it exists.
    pub fn row(&self) -> Option<&'static Row> {
        self.own.map(OwnWorkload::row).or_else(|| row(&self.name))
    }

    /// The drive holds at least this many values of `value_size` at some time of the run; with the setting that
    /// determines the number. `None` if none is known in advance.
    pub fn least_values(&self) -> Option<(&'static str, u64)> {
        let row = self.row().filter(|row| self.own.is_none() && !row.own_sizes && !row.ends)?;
        let may_end_early = self.until_full || self.duration_ns > 0;
        match row.keys {
            Keys::Unique => (!may_end_early).then_some(("workload.ops", self.ops)),
            Keys::Asked | Keys::Latest => Some(("workload.num", self.num)),
            Keys::Drawn | Keys::Spread if row.loads_num => Some(("workload.num", self.num)),
            // Keys may repeat: n draws from n keys reach 63 % of them; if draws and keys differ in number, more than
            // 63 % of the lower one. Half of it leaves room for chance.
            Keys::Spread if !may_end_early && self.distribution == "uniform" => {
                let (key, least) = [("workload.ops", self.ops), ("workload.num", self.num)]
                    .into_iter()
                    .min_by_key(|(_, values)| *values)?;
                Some((key, least / 2))
            }
            Keys::Drawn | Keys::Spread => None,
        }
    }

    /// The row of the workload.
    ///
    /// # Errors
    /// One line: the name is unknown.
    pub fn known_row(&self) -> Result<&'static Row, String> {
        self.row().ok_or_else(|| {
            let names: Vec<_> = WORKLOADS.iter().chain(FROM_FILES).map(|row| row.name).collect();
            no_such("workload.name", "workload", &self.name, &names)
        })
    }

    /// Does the workload consist of units?
    pub fn has_units(&self) -> bool {
        self.row().is_some_and(|row| row.unit_bytes.is_some())
    }

    /// Bytes of the batch that its largest unit needs, if it consists of units.
    pub fn unit_bytes(&self) -> Option<u64> {
        self.row()?.unit_bytes.map(|bytes| bytes(self))
    }

    /// Are nearly all of its operations scans?
    pub fn scans(&self) -> bool {
        self.row().is_some_and(|row| row.scans)
    }

    /// Does the workload end by itself?
    pub fn ends(&self) -> bool {
        self.row().is_some_and(|row| row.ends)
    }
}

/// Builds the workload named by `params.name`.
///
/// # Errors
/// One line: the name is unknown, a parameter is invalid for the workload, or its file cannot be opened.
pub fn build(params: &WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String> {
    (params.known_row()?.build)(params, seed)
}
