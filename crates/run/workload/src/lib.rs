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
mod readrandom;
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
use kvdrive_sim::Ns;
use kvdrive_spec::Key;

use kvdrive_text::names::no_such;

pub use keys::{KeyFormat, KeyPermutation};
pub use params::{OwnWorkload, PRESETS, Preset, WorkloadParams};
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
    /// Number of this store within the run, after those of the preloaded pairs: two stores of one key differ
    /// in it.
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
    /// The key of its first operation; `None` for a unit, which finds its keys while it runs.
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

    /// Its own counters, over the operations drawn so far: section `workload` of reports. Most workloads have none.
    fn counts(&self) -> Counts {
        Counts::default()
    }

    /// Fraction of its file that has been read, from 0 to 1; `None` if unknown.
    fn read_share(&self) -> Option<f64> {
        None
    }

    /// Departures of this run from what its name promises (a clamped key, for example), one sentence each.
    /// Reports print them.
    fn notes(&self) -> &[String] {
        &[]
    }
}

/// Builds a workload; the error is one line that starts with the parameter at fault.
pub type Build = fn(&WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String>;

/// The choice of a workload's keys, and so the settings that apply to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Each key is unique: `num` has no meaning.
    Unique,
    /// Out of `num`, by the workload's own rule.
    Drawn,
    /// Out of `num`, by `distribution`, which defaults to uniform.
    Spread,
    /// Out of `num` pairs that may be overwritten first, by `distribution`, which defaults to zipfian.
    Asked,
    /// As `Asked`, with the latest keys the most popular, whatever `distribution` says.
    Latest,
}

use Keys::{Asked, Drawn, Latest, Spread, Unique};

/// One workload of the table.
pub struct Row {
    /// Name on the command line.
    pub name: &'static str,
    /// What it does and where it comes from, in one line.
    pub origin: &'static str,
    /// Its values have their own sizes, whatever `value_size` says.
    pub own_sizes: bool,
    /// Its keys have this length, whatever `key_size` says.
    pub own_key_bytes: Option<u32>,
    /// It consists of units ([`Op::Unit`]).
    pub has_units: bool,
    /// The choice of its keys.
    pub keys: Keys,
    /// Settings of `[workload]` that this workload uses and not every workload does, besides those implied by
    /// `keys` and `own_sizes`.
    pub looks_at: &'static [&'static str],
    /// Builds it.
    pub build: Build,
    /// It reads a file and ends with it: its operations are drawn with [`Workload::draw`], all of them unless
    /// `ops` is set. Only `run`, `compare` and `sweep` accept one.
    pub ends: bool,
}

impl Row {
    /// A row without name, origin and build function: stores of `value_size`, each with a unique key.
    pub const PLAIN: Row = Row {
        name: "",
        origin: "",
        own_sizes: false,
        own_key_bytes: None,
        has_units: false,
        keys: Unique,
        looks_at: &[],
        build: |params, _| Err(format!("workload.name: {:?} cannot be built", params.name)),
        ends: false,
    };

    /// Does it use `num`?
    pub fn draws_keys(&self) -> bool {
        self.keys != Unique
    }

    /// Does it use `distribution`, if only to report that its own is another one?
    pub fn has_distribution(&self) -> bool {
        matches!(self.keys, Asked | Latest | Spread)
    }

    /// Its fixed distribution, if it has one.
    pub fn own_distribution(&self) -> Option<&'static str> {
        (self.keys == Latest).then_some("latest")
    }

    /// Its default distribution.
    pub fn usual_distribution(&self) -> &'static str {
        if self.keys == Spread { "uniform" } else { "zipfian" }
    }

    /// Does it use this setting of `[workload]`, which not every workload uses?
    fn looks_at(&self, setting: &str) -> bool {
        match setting {
            "zipf_theta" => self.has_distribution(),
            "overwrites" | "replayed_by" => matches!(self.keys, Asked | Latest),
            setting => self.looks_at.contains(&setting),
        }
    }
}

const FRACTIONS: &[&str] =
    &["read_fraction", "delete_fraction", "exist_fraction", "seek_fraction", "list_fraction", "seek_nexts"];
const PARETO_SIZES: &[&str] =
    &["value_theta", "value_k", "value_sigma", "value_floor_bytes", "mix_max_value_size"];
const MIXGRAPH: &[&str] = &[
    "value_theta",
    "value_k",
    "value_sigma",
    "value_floor_bytes",
    "mix_max_value_size",
    "key_dist_a",
    "key_dist_b",
    "keyrange_dist_a",
    "keyrange_dist_b",
    "keyrange_dist_c",
    "keyrange_dist_d",
    "keyrange_num",
    "iter_theta",
    "iter_k",
    "iter_sigma",
    "mix_max_scan_len",
    "mix_get_ratio",
    "mix_put_ratio",
    "mix_seek_ratio",
];

/// Every generated workload.
pub const WORKLOADS: &[Row] = &[
    Row {
        name: "fillseq",
        origin: "stores of value_size, keys ascending (db_bench fillseq)",
        keys: Unique,
        build: fillseq::build,
        ..Row::PLAIN
    },
    Row {
        name: "fillrandom",
        origin: "stores of value_size, keys out of num, repeats occur (db_bench fillrandom)",
        keys: Spread,
        looks_at: &["scramble"],
        build: fillrandom::build,
        ..Row::PLAIN
    },
    Row {
        name: "readrandom",
        origin: "retrieves, keys out of num preloaded pairs (db_bench readrandom)",
        keys: Spread,
        looks_at: &["scramble"],
        build: readrandom::build,
        ..Row::PLAIN
    },
    Row {
        name: "mixgraph",
        origin: "get/put/seek with modelled keys and Pareto values (db_bench mixgraph; Cao et al., FAST'20)",
        own_sizes: true,
        keys: Drawn,
        looks_at: MIXGRAPH,
        build: mixgraph::build,
        ..Row::PLAIN
    },
    Row {
        name: "mixed",
        origin: "stores, retrieves, deletes, exists, seeks and lists by fraction, keys uniform over num (ours)",
        keys: Drawn,
        looks_at: FRACTIONS,
        build: mixed::build,
        ..Row::PLAIN
    },
    Row {
        name: "w-a",
        origin: "stores of value_size, 4 B keys ascending (BandSlim workload A)",
        own_key_bytes: Some(4),
        keys: Unique,
        build: w_a::build,
        ..Row::PLAIN
    },
    Row {
        name: "w-b",
        origin: "stores of 8 B and 2 KiB, nine (or eight) to one, unique 4 B keys (BandSlim workload B)",
        own_sizes: true,
        own_key_bytes: Some(4),
        keys: Unique,
        looks_at: &["large_ratio"],
        build: w_b::build,
        ..Row::PLAIN
    },
    Row {
        name: "w-c",
        origin: "stores of 8 B and 2 KiB, one to nine (or eight), unique 4 B keys (BandSlim workload C)",
        own_sizes: true,
        own_key_bytes: Some(4),
        keys: Unique,
        looks_at: &["large_ratio"],
        build: w_c::build,
        ..Row::PLAIN
    },
    Row {
        name: "w-d",
        origin: "stores of 8, 16, 32 ... 2048 B, equally often, unique 4 B keys (BandSlim workload D)",
        own_sizes: true,
        own_key_bytes: Some(4),
        keys: Unique,
        build: w_d::build,
        ..Row::PLAIN
    },
    Row {
        name: "w-m",
        origin: "stores of mixgraph All_random's value sizes, unique 4 B keys (BandSlim workload M)",
        own_sizes: true,
        own_key_bytes: Some(4),
        keys: Unique,
        looks_at: PARETO_SIZES,
        build: w_m::build,
        ..Row::PLAIN
    },
    Row {
        name: "ycsb-a",
        origin: "half retrieves, half stores (YCSB core workload A)",
        keys: Asked,
        looks_at: &["scramble"],
        build: |params, seed| ycsb::build(ycsb::HALF_STORES, params, seed),
        ..Row::PLAIN
    },
    Row {
        name: "ycsb-b",
        origin: "95 % retrieves, 5 % stores (YCSB core workload B)",
        keys: Asked,
        looks_at: &["scramble"],
        build: |params, seed| ycsb::build(ycsb::FEW_STORES, params, seed),
        ..Row::PLAIN
    },
    Row {
        name: "ycsb-c",
        origin: "retrieves (YCSB core workload C)",
        keys: Asked,
        looks_at: &["scramble"],
        build: |params, seed| ycsb::build(ycsb::RETRIEVES, params, seed),
        ..Row::PLAIN
    },
    Row {
        name: "ycsb-d",
        origin: "95 % retrieves of the latest, 5 % inserts (YCSB core workload D)",
        keys: Latest,
        looks_at: &["scramble"],
        build: |params, seed| ycsb::build(ycsb::FEW_INSERTS, params, seed),
        ..Row::PLAIN
    },
    Row {
        name: "ycsb-e",
        origin: "95 % short scans, 5 % inserts (YCSB core workload E)",
        keys: Asked,
        looks_at: &["scramble", "scan_length_max"],
        build: |params, seed| ycsb::build(ycsb::SCANS, params, seed),
        ..Row::PLAIN
    },
    Row {
        name: "ycsb-f",
        origin: "half retrieves, half read-modify-writes (YCSB core workload F)",
        keys: Asked,
        looks_at: &["scramble"],
        build: |params, seed| ycsb::build(ycsb::HALF_MODIFIES, params, seed),
        ..Row::PLAIN
    },
    Row {
        name: "plus-a",
        origin: "half retrieves, half stores (Plus, section V)",
        keys: Asked,
        build: |params, seed| ycsb::build(ycsb::HALF_STORES, params, seed),
        ..Row::PLAIN
    },
    Row {
        name: "plus-b",
        origin: "95 % retrieves, 5 % stores (Plus, section V)",
        keys: Asked,
        build: |params, seed| ycsb::build(ycsb::FEW_STORES, params, seed),
        ..Row::PLAIN
    },
    Row {
        name: "plus-c",
        origin: "retrieves (Plus, section V)",
        keys: Asked,
        build: |params, seed| ycsb::build(ycsb::RETRIEVES, params, seed),
        ..Row::PLAIN
    },
    Row {
        name: "plus-d",
        origin: "95 % retrieves, 5 % stores, both of the latest (Plus, section V)",
        keys: Latest,
        build: |params, seed| ycsb::build(ycsb::FEW_STORES, params, seed),
        ..Row::PLAIN
    },
    Row {
        name: "plus-f",
        origin: "half retrieves, half read-modify-writes (Plus, section V)",
        keys: Asked,
        build: |params, seed| ycsb::build(ycsb::HALF_MODIFIES, params, seed),
        ..Row::PLAIN
    },
    Row {
        name: "tpcc",
        origin: "New Order and Payment, 45 to 43, transactions on tables of 8 B keys (TPC-C; SAKER, section 4)",
        own_sizes: true,
        own_key_bytes: Some(8),
        has_units: true,
        keys: Unique,
        looks_at: &["warehouses", "shrink", "stock_update"],
        build: tpcc::build,
        ends: false,
    },
];

/// The workloads that are read from a file and end. They are not rows of [`WORKLOADS`], which are generated
/// and have no end.
pub const FROM_FILES: &[Row] = &[
    Row {
        name: "trace",
        origin: "a recorded trace, as workload trace:FILE",
        own_sizes: true,
        looks_at: &["trace", "trace_format", "load"],
        build: |params, _| trace::build(params).map(|trace| Box::new(trace) as Box<dyn Workload>),
        ends: true,
        ..Row::PLAIN
    },
    Row {
        name: "kvcache",
        origin: "a language model's cache by a trace of requests (kvdrive list models, layouts, policies; Mooncake)",
        own_sizes: true,
        own_key_bytes: Some(16),
        looks_at: &[
            "trace",
            "cache_model",
            "cache_objects",
            "cache_blocks",
            "cache_policy",
            "cache_admission",
            "cache_shrink",
        ],
        build: kvcache::build,
        ends: true,
        ..Row::PLAIN
    },
];

/// Every workload, those that are read from a file among them.
pub fn all_rows() -> impl Iterator<Item = &'static Row> {
    WORKLOADS.iter().chain(FROM_FILES)
}

/// The row called `name`.
pub fn row(name: &str) -> Option<&'static Row> {
    all_rows().find(|row| row.name == name)
}

/// Does a run of this workload begin with a drive whose pairs have been overwritten? That takes long, and
/// such runs may follow each other on one drive.
pub fn is_preconditioned(params: &WorkloadParams) -> bool {
    params.overwrites > 0 && params.row().is_some_and(|row| row.looks_at("overwrites"))
}

/// Does the workload of this name look at the setting of this key? `true` for a workload that is in no table.
pub fn looks_at(workload: &str, key: &str) -> bool {
    let setting = key.strip_prefix("workload.").unwrap_or(key);
    let Some(row) = row(workload) else { return true };
    match setting {
        "value_size" => !row.own_sizes,
        "num" => row.draws_keys(),
        "key_size" => row.own_key_bytes.is_none(),
        "distribution" => row.has_distribution(),
        _ => {
            let is_of_some = all_rows().any(|row| row.looks_at(setting));
            !is_of_some || row.looks_at(setting)
        }
    }
}

impl WorkloadParams {
    /// The row of the workload, if it exists.
    pub fn row(&self) -> Option<&'static Row> {
        self.own.map(OwnWorkload::row).or_else(|| row(&self.name))
    }

    /// Does the workload consist of units?
    pub fn has_units(&self) -> bool {
        self.row().is_some_and(|row| row.has_units)
    }

    /// Does the workload end by itself?
    pub fn ends(&self) -> bool {
        self.row().is_some_and(|row| row.ends)
    }
}

/// Builds the generated workload named by `params.name`.
///
/// # Errors
/// One line: the name is unknown or that of a workload read from a file, or a parameter is invalid for the
/// workload.
pub fn build(params: &WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String> {
    match params.row() {
        Some(row) if row.ends => {
            Err(format!("workload.name: {} ends; only kvdrive run, compare and sweep can read one", row.name))
        }
        _ => open(params, seed),
    }
}

/// As [`build`], and also opens workloads that end: [`Workload::draw`] reports the end, and errors of the
/// file.
///
/// # Errors
/// As [`build`]; or the file cannot be opened.
pub fn open(params: &WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String> {
    match params.row() {
        Some(row) => (row.build)(params, seed),
        None => {
            let names: Vec<_> = WORKLOADS.iter().chain(FROM_FILES).map(|row| row.name).collect();
            Err(no_such("workload.name", "workload", &params.name, &names))
        }
    }
}
