//! Parameters of all workloads in one flat table: the `[workload]` section of the configuration.
//!
//! Names are `db_bench`'s flags where it has one. Defaults live in `workload.toml`, not here.

use kvdrive_declare::{Rule, Section};

use super::{Row, all_rows};

const FRACTION: Rule = Rule::Number(0.0, 1.0);
const ANY: Rule = Rule::Number(-1e9, 1e9);
const WEIGHT: Rule = Rule::Number(0.0, 1e9);

/// Every parameter a workload may read; each reads its own and ignores the others.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("workload")]
pub struct WorkloadParams {
    /// The workload (`kvdrive list workloads`).
    #[setting(is = Name(|| all_rows().map(|row| row.name).collect()), option = "workload")]
    pub name: String,
    /// Operations of the run (`db_bench`: reads or num), preloading not counted.
    #[setting(is = Integer(1, 1 << 48), option = "ops", shrinks)]
    pub ops: u64,
    /// Size of the key space and number of preloaded pairs, for the workloads that draw keys.
    #[setting(is = Integer(1, 1 << 32), option = "num", shrinks)]
    pub num: u64,
    /// Key length in bytes; after the first 16 bytes a key has zeros. `w-a` to `w-m` always use 4.
    #[setting(is = Integer(1, 255), option = "key-size")]
    pub key_size: u32,
    /// Value length in bytes, for the workloads of one size.
    #[setting(is = Integer(0, VALUE_MAX_BYTES), option = "value-size")]
    pub value_size: u32,
    /// Ratio of common to rare value sizes in `w-b` and `w-c`: `9:1` or `8:1`.
    #[setting(is = Word(&["9:1", "8:1"]))]
    pub large_ratio: String,
    /// Share of retrieves in `mixed`.
    #[setting(is = FRACTION)]
    pub read_fraction: f64,
    /// Share of deletes in `mixed`.
    #[setting(is = FRACTION)]
    pub delete_fraction: f64,
    /// Share of exist queries in `mixed`.
    #[setting(is = FRACTION)]
    pub exist_fraction: f64,
    /// Share of seeks in `mixed`.
    #[setting(is = FRACTION)]
    pub seek_fraction: f64,
    /// Share of lists in `mixed`.
    #[setting(is = FRACTION)]
    pub list_fraction: f64,
    /// *Next* operations after a seek in `mixed` (`db_bench` seek_nexts).
    #[setting(is = Integer(0, 1 << 20))]
    pub seek_nexts: u32,
    /// Factor of the power law of keys in `mixgraph`; 0: uniform keys.
    #[setting(is = WEIGHT)]
    pub key_dist_a: f64,
    /// Exponent of the power law of keys in `mixgraph`; 0: uniform keys.
    #[setting(is = WEIGHT)]
    pub key_dist_b: f64,
    /// First factor of the two-term exponential of key ranges; all four 0: no ranges.
    #[setting(is = ANY)]
    pub keyrange_dist_a: f64,
    /// First exponent of the two-term exponential of key ranges.
    #[setting(is = ANY)]
    pub keyrange_dist_b: f64,
    /// Second factor of the two-term exponential of key ranges.
    #[setting(is = ANY)]
    pub keyrange_dist_c: f64,
    /// Second exponent of the two-term exponential of key ranges.
    #[setting(is = ANY)]
    pub keyrange_dist_d: f64,
    /// Number of key ranges.
    #[setting(is = Integer(1, 1 << 20))]
    pub keyrange_num: u32,
    /// Location of the Pareto distribution of value sizes.
    #[setting(is = ANY)]
    pub value_theta: f64,
    /// Shape of the Pareto distribution of value sizes.
    #[setting(is = ANY)]
    pub value_k: f64,
    /// Scale of the Pareto distribution of value sizes.
    #[setting(is = WEIGHT)]
    pub value_sigma: f64,
    /// Least value size in bytes: 0 in RocksDB 6.19, 10 in newer ones.
    #[setting(is = Integer(0, BATCH_MAX_BYTES))]
    pub value_floor_bytes: u32,
    /// Value sizes above this are taken modulo it, in bytes.
    #[setting(is = Integer(1, BATCH_MAX_BYTES))]
    pub mix_max_value_size: u32,
    /// Location of the Pareto distribution of scan lengths.
    #[setting(is = ANY)]
    pub iter_theta: f64,
    /// Shape of the Pareto distribution of scan lengths.
    #[setting(is = ANY)]
    pub iter_k: f64,
    /// Scale of the Pareto distribution of scan lengths.
    #[setting(is = WEIGHT)]
    pub iter_sigma: f64,
    /// Scan lengths are taken modulo this.
    #[setting(is = Integer(1, 1 << 20))]
    pub mix_max_scan_len: u32,
    /// Weight of retrieves in `mixgraph`.
    #[setting(is = WEIGHT)]
    pub mix_get_ratio: f64,
    /// Weight of stores in `mixgraph`.
    #[setting(is = WEIGHT)]
    pub mix_put_ratio: f64,
    /// Weight of seeks in `mixgraph`.
    #[setting(is = WEIGHT)]
    pub mix_seek_ratio: f64,
    /// Distribution of the keys that `ycsb-`, `plus-`, `fillrandom` and `readrandom` choose: `uniform`, `zipfian`,
    /// `latest`; `usual`: the one of the workload.
    #[setting(is = Word(&["usual", "uniform", "zipfian", "latest"]), option = "distribution")]
    pub distribution: String,
    /// Whether `ycsb-`, `fillrandom` and `readrandom` spread the ranks of `zipfian` over the keys by a hash.
    #[setting(when = &[When::one_of("workload.distribution", &["zipfian"])])]
    pub scramble: bool,
    /// Exponent of `zipfian` and `latest`.
    #[setting(is = Number(0.01, 2.0), when = &[When::one_of("workload.distribution", &["zipfian", "latest"])])]
    pub zipf_theta: f64,
    /// Stores of uniform keys between loading and the first operation of `ycsb-` and `plus-`.
    #[setting(is = Integer(0, 1 << 40), shrinks)]
    pub overwrites: u64,
    /// Bytes of values that are stored before the first operation, as a multiple of the drive's flash: all pairs of the
    /// workload, and then pairs at random. For a drive in its steady state: 2.
    #[setting(is = Number(0.0, 1000.0), option = "precondition")]
    pub precondition: f64,
    /// The same in bytes, once the drive is known.
    #[setting(skip)]
    pub precondition_bytes: u64,
    /// Whether the preloaded pairs are stored and overwritten by the clients of the run, in model time.
    /// Otherwise the firmware and the flash do the same work, but no time passes.
    pub timed_load: bool,
    /// Warehouses of `tpcc`.
    #[setting(is = Integer(1, (1 << 20) - 1))]
    pub warehouses: u32,
    /// `tpcc`: divisor of the number of rows that the specification requires in each table of a warehouse, a power of
    /// two.
    #[setting(is = PowerOfTwo(1, 256))]
    pub shrink: u32,
    /// `tpcc`: whether a New Order writes the rows of STOCK that it reads.
    pub stock_update: bool,
    /// `tpcc`: whether the host keeps the writes of a transaction back until it commits, and then sends them
    /// as one atomic batch, which the drive carries out wholly or not at all. Otherwise each row is a store
    /// of its own.
    pub atomic: bool,
    /// Most pairs of a scan of `ycsb-e`; the seek brings the first.
    #[setting(is = Integer(1, 1 << 20))]
    pub scan_length_max: u32,
    /// Whether a run ends, without an error, at the first store that does not fit any more.
    pub until_full: bool,
    /// Operations that begin in a second, whatever the drive does; 0: each client begins its next one when
    /// its last one has ended.
    #[setting(is = Integer(0, 1_000_000_000), option = "rate")]
    pub rate_per_s: u64,
    /// When operations begin. With `workload.rate_per_s`: equally spaced (`fixed`) or at random (`poisson`).
    /// `trace`: at the times that the trace recorded.
    #[setting(is = Word(&["fixed", "poisson", "trace"]), option = "arrivals", when = &[When::Any(&[When::on("workload.rate_per_s"), When::one_of("workload.arrivals", &["trace"])])])]
    pub arrivals: String,
    /// How many times in a row each rank of a `zipfian` or `latest` distribution is drawn. This stands for
    /// the clients of a published benchmark, which all have one seed and so draw the same ranks.
    #[setting(is = Integer(1, 1024), when = &[When::one_of("workload.distribution", &["zipfian", "latest"])])]
    pub replayed_by: u64,
    /// The run ends when this much of its clock has passed, or after `ops`; 0: after `ops`.
    #[setting(is = Integer(0, 1 << 60), option = "duration", shrinks)]
    pub duration_ns: u64,
    /// Operations of a client between two syncs; 0: it syncs only at the end.
    #[setting(is = Integer(0, 1 << 48), when = &[When::Any(&[When::on("saker.enabled"), When::row("host.store", |name, _| name != "none")])])]
    pub sync_every: u64,
    /// Checks values that are read back: `off`, `values` (each is compared with what was stored), or
    /// `only` (nothing is stored; what an earlier run of the same workload left in an image is read and
    /// checked).
    #[setting(is = Word(&["off", "values", "only"]))]
    pub verify: String,
    /// File of workload `trace`. For `kvcache`: a file, or the name of a trace that comes with the program; empty: the
    /// first of these.
    #[setting(is = Text)]
    pub trace: String,
    /// Format of the trace (`kvdrive list traces`); empty: it is recognised by the beginning of the file.
    #[setting(is = Text)]
    pub trace_format: String,
    /// Tier of a cache whose entries in the trace are operations, for formats that have tiers; empty: the one that is a drive
    /// (`l2`, `Tier-2`); `all`: every one.
    #[setting(is = Text)]
    pub trace_tier: String,
    /// Pairs that are on the drive before a trace begins: `nothing`; `reads:SIZE`, each key that the trace reads before
    /// it stores it, with a value of that size; `keys:NUM:SIZE`, the first NUM keys of `db_bench`; or `trace:FILE`, the
    /// pairs that are left after all operations of that trace.
    #[setting(is = Text, option = "load")]
    pub load: String,
    /// `kvcache`: the language model (`kvdrive list models`).
    #[setting(is = Text)]
    pub cache_model: String,
    /// `kvcache`: layout, that is, which pairs hold a block of tokens (`kvdrive list layouts`).
    #[setting(is = Text)]
    pub cache_objects: String,
    /// `kvcache`: blocks that the cache holds at most; 0: any number.
    #[setting(is = Integer(0, 1 << 40))]
    pub cache_blocks: u64,
    /// `kvcache`: which block is evicted when the cache is full (`kvdrive list policies`).
    #[setting(is = Text)]
    pub cache_policy: String,
    /// `kvcache`: which missing blocks are stored (`kvdrive list admissions`).
    #[setting(is = Text)]
    pub cache_admission: String,
    /// `kvcache`: largest value of a chunk, in the layouts that have chunks.
    #[setting(is = Multiple(4096, 4096, 1 << 28))]
    pub cache_chunk_bytes: u32,
    /// `kvcache`: requests of the trace that are read at most; 0: all.
    #[setting(is = Integer(0, 1 << 40))]
    pub cache_requests: u64,
    /// `kvcache`: divides the size of the model's values, so that a large trace fits on a small drive.
    #[setting(is = Integer(1, 1 << 20))]
    pub cache_shrink: u32,
    /// A workload that is in no table, instead of `name`.
    #[setting(skip)]
    pub own: Option<OwnWorkload>,
}

/// A row of a program that brings its own workload, and so not in [`WORKLOADS`](super::WORKLOADS).
#[derive(Clone, Copy)]
pub struct OwnWorkload(&'static Row);

impl OwnWorkload {
    /// The row.
    pub fn row(self) -> &'static Row {
        self.0
    }
}

impl From<&'static Row> for OwnWorkload {
    fn from(row: &'static Row) -> OwnWorkload {
        OwnWorkload(row)
    }
}

impl PartialEq for OwnWorkload {
    fn eq(&self, other: &OwnWorkload) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl std::fmt::Debug for OwnWorkload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnWorkload({})", self.0.name)
    }
}

/// A published set of workload flags.
pub struct Preset {
    /// Name, as in `workload.preset=NAME`.
    pub name: &'static str,
    /// What it is, in one line.
    pub origin: &'static str,
    /// Keys of the `[workload]` section with their values as TOML.
    pub sets: &'static [(&'static str, &'static str)],
}

/// The four models RocksDB publishes for its trace `ZippyDB` (RocksDB wiki, benchmarking with mixgraph; Cao
/// et al., FAST'20), and the runs of the Plus paper.
///
/// The models differ in the choice of keys. `num` and `ops` are not changed: the published 50 M pairs and 420
/// M queries take long. The sine of the query rate is left out: operations here follow each other
/// without a rate.
pub static PRESETS: &[Preset] = &[
    Preset {
        name: "all_random",
        origin: "uniform keys",
        sets: &[
            ("name", "\"mixgraph\""),
            ("key_size", "48"),
            ("key_dist_a", "0.0"),
            ("key_dist_b", "0.0"),
            ("keyrange_dist_a", "0.0"),
            ("keyrange_dist_b", "0.0"),
            ("keyrange_dist_c", "0.0"),
            ("keyrange_dist_d", "0.0"),
            ("keyrange_num", "1"),
        ],
    },
    Preset {
        name: "all_dist",
        origin: "keys by a power law",
        sets: &[
            ("name", "\"mixgraph\""),
            ("key_size", "48"),
            ("key_dist_a", "0.002312"),
            ("key_dist_b", "0.3467"),
            ("keyrange_dist_a", "0.0"),
            ("keyrange_dist_b", "0.0"),
            ("keyrange_dist_c", "0.0"),
            ("keyrange_dist_d", "0.0"),
            ("keyrange_num", "1"),
        ],
    },
    Preset {
        name: "prefix_random",
        origin: "30 key ranges by a two-term exponential, uniform keys within a range",
        sets: &[
            ("name", "\"mixgraph\""),
            ("key_size", "48"),
            ("key_dist_a", "0.0"),
            ("key_dist_b", "0.0"),
            ("keyrange_dist_a", "14.18"),
            ("keyrange_dist_b", "-2.917"),
            ("keyrange_dist_c", "0.0164"),
            ("keyrange_dist_d", "-0.08082"),
            ("keyrange_num", "30"),
        ],
    },
    Preset {
        name: "prefix_dist",
        origin: "30 key ranges by a two-term exponential, keys within a range by a power law",
        sets: &[
            ("name", "\"mixgraph\""),
            ("key_size", "48"),
            ("key_dist_a", "0.002312"),
            ("key_dist_b", "0.3467"),
            ("keyrange_dist_a", "14.18"),
            ("keyrange_dist_b", "-2.917"),
            ("keyrange_dist_c", "0.0164"),
            ("keyrange_dist_d", "-0.08082"),
            ("keyrange_num", "30"),
        ],
    },
    Preset {
        name: "plus",
        origin: "the pairs, overwrites and operations of the Plus paper, at full size (section V-B)",
        sets: &[
            ("name", "\"plus-a\""),
            ("ops", "10000000"),
            ("num", "100000000"),
            ("overwrites", "100000000"),
            ("timed_load", "false"),
            ("key_size", "8"),
            ("value_size", "1000"),
            ("distribution", "\"uniform\""),
        ],
    },
];
