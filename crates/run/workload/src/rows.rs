//! The table of workloads: description, settings that a workload reads, and the function that builds it.

use Keys::{Asked, Drawn, Latest, Spread, Unique};

use crate::{Workload, WorkloadParams};
use crate::{
    fillrandom, fillseq, kvcache, mixed, mixgraph, readrandom, tpcc, trace, w_a, w_b, w_c, w_d, w_m, ycsb,
};

/// Builds a workload; the error is one line that starts with the parameter at fault.
pub type Build = fn(&WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String>;

/// The choice of a workload's keys, which decides the settings that apply to it.
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
    /// As `Asked`, but the latest keys are the most popular, whatever `distribution` says.
    Latest,
}

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
    /// It consists of units ([`crate::Op::Unit`]), of which the largest needs a batch of so many bytes
    /// ([`WorkloadParams::atomic`]).
    pub unit_bytes: Option<fn(&WorkloadParams) -> u64>,
    /// Nearly all of its operations are scans, each of which holds an iterator of the drive.
    pub scans: bool,
    /// The choice of its keys.
    pub keys: Keys,
    /// It begins with `num` pairs of `value_size`, as every workload with `Asked` or `Latest` keys does.
    pub loads_num: bool,
    /// Settings of `[workload]` that this workload uses and not every workload does, besides those implied by
    /// `keys` and `own_sizes`.
    pub looks_at: &'static [&'static str],
    /// Builds it.
    pub build: Build,
    /// It reads a file and ends with the file: its operations are drawn with [`Workload::draw`], all of them
    /// unless `ops` is set.
    pub ends: bool,
}

impl Row {
    /// A row without name, origin and build function: stores of `value_size`, each with a unique key.
    pub const PLAIN: Row = Row {
        name: "",
        origin: "",
        own_sizes: false,
        own_key_bytes: None,
        unit_bytes: None,
        scans: false,
        keys: Unique,
        loads_num: false,
        looks_at: &[],
        build: |params, _| Err(format!("workload.name: {:?} cannot be built", params.name)),
        ends: false,
    };

    /// Does it use `num`?
    pub fn draws_keys(&self) -> bool {
        self.keys != Unique
    }

    /// Does it use `distribution`, even if only to report that its own is another one?
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
    pub(crate) fn looks_at(&self, setting: &str) -> bool {
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
pub static WORKLOADS: &[Row] = &[
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
        loads_num: true,
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
        scans: true,
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
    of_anykey(
        "anykey-kvssd",
        "80 % retrieves, 20 % stores of 4096 B, keys of 16 B (KVSSD; AnyKey's settings)",
        16,
        |params, seed| ycsb::build_sized(ycsb::FIFTH_STORES, [16, 4096], params, seed),
    ),
    of_anykey(
        "anykey-ycsb",
        "80 % retrieves, 20 % stores of 1000 B, keys of 20 B (YCSB; AnyKey's settings)",
        20,
        |params, seed| ycsb::build_sized(ycsb::FIFTH_STORES, [20, 1000], params, seed),
    ),
    of_anykey(
        "anykey-w-pink",
        "80 % retrieves, 20 % stores of 1024 B, keys of 32 B (W-PinK; AnyKey's settings)",
        32,
        |params, seed| ycsb::build_sized(ycsb::FIFTH_STORES, [32, 1024], params, seed),
    ),
    of_anykey(
        "anykey-xbox",
        "80 % retrieves, 20 % stores of 1200 B, keys of 94 B (Xbox; AnyKey's settings)",
        94,
        |params, seed| ycsb::build_sized(ycsb::FIFTH_STORES, [94, 1200], params, seed),
    ),
    of_anykey(
        "anykey-etc",
        "80 % retrieves, 20 % stores of 358 B, keys of 41 B (Facebook's ETC; AnyKey's settings)",
        41,
        |params, seed| ycsb::build_sized(ycsb::FIFTH_STORES, [41, 358], params, seed),
    ),
    of_anykey(
        "anykey-udb",
        "80 % retrieves, 20 % stores of 127 B, keys of 27 B (Facebook's UDB; AnyKey's settings)",
        27,
        |params, seed| ycsb::build_sized(ycsb::FIFTH_STORES, [27, 127], params, seed),
    ),
    of_anykey(
        "anykey-cache",
        "80 % retrieves, 20 % stores of 188 B, keys of 42 B (Twitter's Cache; AnyKey's settings)",
        42,
        |params, seed| ycsb::build_sized(ycsb::FIFTH_STORES, [42, 188], params, seed),
    ),
    of_anykey(
        "anykey-var",
        "80 % retrieves, 20 % stores of 115 B, keys of 35 B (Facebook's VAR; AnyKey's settings)",
        35,
        |params, seed| ycsb::build_sized(ycsb::FIFTH_STORES, [35, 115], params, seed),
    ),
    of_anykey(
        "anykey-crypto2",
        "80 % retrieves, 20 % stores of 110 B, keys of 37 B (Crypto2, Trezor; AnyKey's settings)",
        37,
        |params, seed| ycsb::build_sized(ycsb::FIFTH_STORES, [37, 110], params, seed),
    ),
    of_anykey(
        "anykey-dedup",
        "80 % retrieves, 20 % stores of 44 B, keys of 20 B (IBM's Dedup; AnyKey's settings)",
        20,
        |params, seed| ycsb::build_sized(ycsb::FIFTH_STORES, [20, 44], params, seed),
    ),
    of_anykey(
        "anykey-cache15",
        "80 % retrieves, 20 % stores of 38 B, keys of 38 B (Twitter's Cache15; AnyKey's settings)",
        38,
        |params, seed| ycsb::build_sized(ycsb::FIFTH_STORES, [38, 38], params, seed),
    ),
    of_anykey(
        "anykey-zippydb",
        "80 % retrieves, 20 % stores of 43 B, keys of 48 B (Facebook's ZippyDB; AnyKey's settings)",
        48,
        |params, seed| ycsb::build_sized(ycsb::FIFTH_STORES, [48, 43], params, seed),
    ),
    of_anykey(
        "anykey-crypto1",
        "80 % retrieves, 20 % stores of 50 B, keys of 76 B (Crypto1, BlockStream; AnyKey's settings)",
        76,
        |params, seed| ycsb::build_sized(ycsb::FIFTH_STORES, [76, 50], params, seed),
    ),
    of_anykey(
        "anykey-rtdata",
        "80 % retrieves, 20 % stores of 10 B, keys of 24 B (Microsoft's RTDATA; AnyKey's settings)",
        24,
        |params, seed| ycsb::build_sized(ycsb::FIFTH_STORES, [24, 10], params, seed),
    ),
    Row {
        name: "tpcc",
        origin: "New Order and Payment, 45 to 43, transactions on tables of 8 B keys (TPC-C; SAKER, section 4)",
        own_sizes: true,
        own_key_bytes: Some(8),
        unit_bytes: Some(tpcc::unit_bytes),
        keys: Unique,
        looks_at: &["warehouses", "shrink", "stock_update", "atomic"],
        build: tpcc::build,
        ..Row::PLAIN
    },
];

/// A workload by which AnyKey was judged: keys and values of a production system, Zipfian.
const fn of_anykey(name: &'static str, origin: &'static str, key_bytes: u32, build: Build) -> Row {
    Row {
        name,
        origin,
        own_sizes: true,
        own_key_bytes: Some(key_bytes),
        keys: Asked,
        looks_at: &["scramble"],
        build,
        ..Row::PLAIN
    }
}

/// The workloads that are read from a file and end. They are not rows of [`WORKLOADS`], which are generated
/// and have no end.
pub static FROM_FILES: &[Row] = &[
    Row {
        name: "trace",
        origin: "a recorded trace, as workload trace:FILE",
        own_sizes: true,
        looks_at: &["trace", "trace_format", "trace_tier", "load"],
        build: |params, _| trace::build(params).map(|trace| Box::new(trace) as Box<dyn Workload>),
        ends: true,
        ..Row::PLAIN
    },
    Row {
        name: "kvcache",
        origin: "a language model's cache by a trace of requests (kvdrive list models, layouts, policies, admissions; Mooncake)",
        own_sizes: true,
        own_key_bytes: Some(16),
        looks_at: &[
            "trace",
            "cache_model",
            "cache_objects",
            "cache_blocks",
            "cache_policy",
            "cache_admission",
            "cache_chunk_bytes",
            "cache_requests",
            "cache_shrink",
        ],
        build: kvcache::build,
        ends: true,
        ..Row::PLAIN
    },
];

/// Every workload, including those that are read from a file.
pub fn all_rows() -> impl Iterator<Item = &'static Row> {
    WORKLOADS.iter().chain(FROM_FILES)
}

/// The row called `name`.
pub fn row(name: &str) -> Option<&'static Row> {
    all_rows().find(|row| row.name == name)
}

/// Does a run of this workload begin with a drive whose pairs have been overwritten? Since overwriting takes long, such
/// runs may follow each other on one drive.
pub fn is_preconditioned(params: &WorkloadParams) -> bool {
    params.overwrites > 0 && params.row().is_some_and(|row| row.looks_at("overwrites"))
}

/// Does the workload of this name read the setting of this key? `true` for a workload that is in no table.
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
