//! Parameters of all workloads in one flat table: the `[workload]` section of the configuration.
//!
//! Names are `db_bench`'s flags where it has one. Defaults live in `profiles/workload.toml`, not here.

use serde::{Deserialize, Serialize};

use super::Row;

/// Every parameter a workload may read; each reads its own and ignores the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadParams {
    /// Name in [`WORKLOADS`](super::WORKLOADS).
    pub name: String,
    /// Operations of the run (`db_bench`: reads or num), preloading not counted.
    pub ops: u64,
    /// Size of the key space and number of preloaded pairs, for the workloads that draw keys.
    pub num: u64,
    /// Key length in bytes; `w-a` to `w-m` always use 4.
    pub key_size: u32,
    /// Value length in bytes, for the workloads of one size.
    pub value_size: u32,
    /// Common to rare sizes in `w-b` and `w-c`: `9:1` or `8:1`.
    pub large_ratio: String,
    /// Share of retrieves in `mixed`.
    pub read_fraction: f64,
    /// Share of deletes in `mixed`.
    pub delete_fraction: f64,
    /// Share of exist queries in `mixed`.
    pub exist_fraction: f64,
    /// Share of seeks in `mixed`.
    pub seek_fraction: f64,
    /// Share of lists in `mixed`.
    pub list_fraction: f64,
    /// *Next* operations behind a seek in `mixed` (`db_bench` seek_nexts).
    pub seek_nexts: u32,
    /// Factor of the power law of keys in `mixgraph`; 0: uniform keys.
    pub key_dist_a: f64,
    /// Exponent of the power law of keys in `mixgraph`; 0: uniform keys.
    pub key_dist_b: f64,
    /// First factor of the two-term exponential of key ranges; all four 0: no ranges.
    pub keyrange_dist_a: f64,
    /// First exponent of the two-term exponential of key ranges.
    pub keyrange_dist_b: f64,
    /// Second factor of the two-term exponential of key ranges.
    pub keyrange_dist_c: f64,
    /// Second exponent of the two-term exponential of key ranges.
    pub keyrange_dist_d: f64,
    /// Number of key ranges.
    pub keyrange_num: u32,
    /// Location of the Pareto distribution of value sizes.
    pub value_theta: f64,
    /// Shape of the Pareto distribution of value sizes.
    pub value_k: f64,
    /// Scale of the Pareto distribution of value sizes.
    pub value_sigma: f64,
    /// Least value size in bytes: 0 in RocksDB 6.19, 10 in newer ones.
    pub value_floor_bytes: u32,
    /// Value sizes above this are taken modulo it, in bytes.
    pub mix_max_value_size: u32,
    /// Location of the Pareto distribution of scan lengths.
    pub iter_theta: f64,
    /// Shape of the Pareto distribution of scan lengths.
    pub iter_k: f64,
    /// Scale of the Pareto distribution of scan lengths.
    pub iter_sigma: f64,
    /// Scan lengths are taken modulo this.
    pub mix_max_scan_len: u32,
    /// Weight of retrieves in `mixgraph`.
    pub mix_get_ratio: f64,
    /// Weight of stores in `mixgraph`.
    pub mix_put_ratio: f64,
    /// Weight of seeks in `mixgraph`.
    pub mix_seek_ratio: f64,
    /// Which keys `ycsb-`, `plus-`, `fillrandom` and `readrandom` choose: `uniform`, `zipfian`, `latest`.
    pub distribution: String,
    /// Whether `ycsb-`, `fillrandom` and `readrandom` spread the ranks of `zipfian` over the keys by a hash.
    pub scramble: bool,
    /// Exponent of `zipfian` and `latest`.
    pub zipf_theta: f64,
    /// Stores of uniform keys between loading and the first operation of `ycsb-` and `plus-`.
    pub overwrites: u64,
    /// Whether pairs are loaded and overwritten by the measured clients, in model time. Otherwise the drive
    /// has them at once: its firmware and its flash do all the work, and no time passes
    /// ([`kvdrive_device::Drive::load`]).
    pub timed_load: bool,
    /// Warehouses of `tpcc`.
    pub warehouses: u32,
    /// `tpcc`: tables of a warehouse have so many times fewer rows than the specification asks for; a power of
    /// two.
    pub shrink: u32,
    /// `tpcc`: whether a New Order writes the rows of STOCK that it reads.
    pub stock_update: bool,
    /// Most pairs of a scan of `ycsb-e`; the seek brings the first.
    pub scan_length_max: u32,
    /// Whether a run ends, without an error, at the first store that does not fit any more.
    pub until_full: bool,
    /// Operations that begin in a second, whatever the drive does; 0: each client begins its next one when its
    /// last one has ended.
    pub rate_per_s: u64,
    /// When operations begin: of a rate, `fixed`, equally spaced, or `poisson`, at random; of a trace, `trace`,
    /// when they did.
    pub arrivals: String,
    /// Clients that draw the same ranks of a `zipfian` or `latest` distribution, as those of a published client
    /// do, whose generators all have one seed: each rank comes so many times in a row.
    pub replayed_by: u64,
    /// The run ends when this much of its clock has passed, or behind `ops`; 0: behind `ops`.
    pub duration_ns: u64,
    /// Operations of a client between two syncs; 0: it syncs at the end alone.
    pub sync_every: u64,
    /// What is made of values that are read back: `off`, `values` (each is held against what was stored), or
    /// `only` (nothing is stored; what an earlier run of the same workload left in an image is read and
    /// checked).
    pub verify: String,
    /// File of workload `trace`.
    pub trace: String,
    /// Name in [`FORMATS`](super::FORMATS); empty: told by how the file begins.
    pub trace_format: String,
    /// A workload that is in no table, instead of `name`.
    #[serde(skip)]
    pub own: Option<OwnWorkload>,
}

/// A row that [`WORKLOADS`](super::WORKLOADS) does not have, of a program that brings its own.
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
/// The models differ in how keys are chosen. `num` and `ops` stay as they are: the published 50 M pairs and
/// 420 M queries take long. Their keys are 48 B long, which the KV command set does not have: `mixgraph`
/// clamps them to 16 B and notes it. The sine of the query rate is left out: operations here follow each
/// other, they have no rate.
pub const PRESETS: &[Preset] = &[
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
