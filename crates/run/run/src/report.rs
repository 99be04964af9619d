//! The report of a run: every figure by name, as JSON and as tables.
//!
//! Plain data. The runner fills it in; this module counts nothing, computes no model and reads no clock. The
//! text says of every table whether its figures are counted (exact), modelled (times from a profile) or
//! measured (on this machine). A report without fault rules can be read back from its JSON, unchanged; crate
//! `results` relies on that.

mod cache;
mod compare;
mod connected;
mod dram;
pub mod fields;
mod kinds;
mod named;
mod occupied;
mod pairs;
mod stalls;
mod table;
mod text;

use kvdrive_declare::Sections;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::declared;
pub use compare::{compare, compare_in, has_set};
pub use connected::{Connected, Target};
pub use kinds::kind_of;
pub use named::Named;

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Number of the form of its JSON.
    pub format: fields::Format,
    /// Name of the profile on which the configuration is based.
    pub profile: String,
    /// Settings that differ from the profile, `KEY=VALUE` each, for the text: JSON has the whole
    /// configuration.
    #[serde(skip)]
    pub set: Vec<String>,
    /// The whole configuration, as JSON.
    pub config: serde_json::Value,
    /// Name of the requested DRAM point, such as `total-128`; none if bytes were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dram_point: Option<String>,
    /// Seed of every random stream.
    pub seed: u64,
    /// The clock of the run: `virtual` or `wall`.
    pub clock: String,
    /// Revision of the program.
    pub revision: String,
    /// Sources of the times in the profile, as
    /// [`Document::time_sources`](kvdrive_config::Document::time_sources) lists them. Empty when no modelled
    /// time is in the report.
    pub time_sources: String,
    /// Notes: how the workload differs from its source, and how the run ended.
    pub notes: Vec<String>,
    /// Whether it was stopped from outside before its end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_stopped: bool,
    /// Pairs of the workload: their number, and the sizes of keys and values. None for the commands of hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairs: Option<Pairs>,
    /// Operations answered.
    pub ops: Ops,
    /// Operations among them that found no pair, by kind, if there are any: absent keys, seeks past the last
    /// key.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub not_found: Named<u64>,
    /// Bytes of values, as applications count them.
    pub value_bytes: ValueBytes,
    /// Bytes of values that were returned, by kind of operation; they add up to `value_bytes.retrieved`.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub read_bytes: Named<u64>,
    /// Duration of the run.
    pub time: Time,
    /// Operations that were not refused, per second of the run's clock.
    pub throughput_ops_per_s: f64,
    /// Bytes of values per second of the run's clock.
    pub bandwidth_bytes_per_s: Bandwidth,
    /// Latency of each kind of operation that was not refused, in nanoseconds of the run's clock.
    pub latency_ns: Named<Latency>,
    /// Latency of all operations that were not refused together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_all_ns: Option<Latency>,
    /// Commands that the drive completed, by name, if its hosts are not known.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub commands: Named<Commands>,
    /// Units of the workload, by kind: transactions.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub transactions: Named<Transactions>,
    /// Operations over time, if `run.interval_ns` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// The counts of drive, link, host and workload ([`kvdrive_declare::Counters`]), by section; JSON has the
    /// sections beside the other keys. States are those at the end. Section `flash_health` is included if
    /// faults were injected or occurred.
    #[serde(flatten, deserialize_with = "declared::sections")]
    pub counts: Sections,
    /// Hit rate of a language model's cache, the computing that it saves, and its writes; of workload `kvcache`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheRates>,
    /// Bytes moved per byte of value.
    pub amplification: Amplification,
    /// Fault rules, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty", skip_deserializing)]
    pub faults: Vec<Fault>,
    /// Result of checking the values that were read back, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
    /// Cost of loading the drive, if the workload begins with pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precondition: Option<Precondition>,
    /// What limited the throughput of a run in model time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<Limit>,
    /// Contexts and threads of the controller, over the measured operations.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub occupied: Named<Occupied>,
    /// Every resource of the model, over the measured operations; the drain after them is not included.
    pub resources: Named<Resource>,
}

/// Commands of one kind, in ns of model time from where they took effect to their completion; percentiles are
/// accurate to one eighth.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Commands {
    /// Number of commands.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Largest.
    pub max_ns: u64,
}

/// Transactions of one kind: several operations of one client, each of which is also counted and timed among
/// the others of its kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transactions {
    /// Committed transactions.
    pub committed: u64,
    /// Transactions that the workload rolls back on purpose.
    pub rolled_back: u64,
    /// Committed transactions per second of the run's clock.
    pub per_s: f64,
    /// From the start of a committed transaction, locks included, to its last answer, in ns of the run's
    /// clock.
    pub latency_ns: Latency,
}

/// A run over time: the operations in each interval of the run's clock, starting with the first measured operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Length of an interval, ns. The last one ends with the run and may be shorter.
    pub interval_ns: u64,
    /// Operations that were not refused.
    pub ops: Vec<u64>,
    /// Committed transactions, if the workload consists of transactions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions: Option<Vec<u64>>,
}

/// Loading a drive with pairs and overwriting them, before anything is measured. Includes programming the
/// pages that this left in buffers; a drive that is served in wall time programs them during the run instead.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Precondition {
    /// Stores.
    pub stores: u64,
    /// Bytes of their values.
    pub stored_bytes: u64,
    /// Model time, the drain at its end included; `None` if loading took no time.
    pub virtual_ns: Option<u64>,
    /// Bytes programmed per byte of value stored; `None` if nothing was stored.
    pub write_amplification: Option<f64>,
    /// The counts of flash and engine.
    #[serde(flatten, deserialize_with = "declared::sections")]
    pub counts: Sections,
}

/// Values read back, compared with those that were stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verified {
    /// Reads that were compared.
    pub checked: u64,
    /// Reads among them that found no pair where none was stored.
    #[serde(default)]
    pub absent: u64,
    /// Reads that returned a value that was not stored.
    pub wrong: u64,
    /// Reads that found no pair although one was stored.
    pub missing: u64,
    /// Reads that were answered with an error and so could not be compared. They count as errors, too.
    pub unread: u64,
    /// Reads of pairs from an earlier life of the drive, for which no expectation exists.
    pub unknown: u64,
    /// Read operations that are not compared: exists and lists, seeks and nexts that found no pair, and
    /// answers of SAKER to one of several threads.
    #[serde(default)]
    pub unchecked: u64,
}

impl Verified {
    /// Whether every value compared is as it was stored.
    pub fn is_whole(&self) -> bool {
        self.wrong == 0 && self.missing == 0 && self.unread == 0
    }
}

/// The effect of one fault rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fault {
    /// The rule's name.
    pub rule: String,
    /// Kind of the fault.
    pub fault: &'static str,
    /// Commands or flash operations that it matched until it was used up.
    pub matched: u64,
    /// How often it struck.
    pub struck: u64,
}

/// Operations, by kind and by whether they failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "one field an operation, named as it is")]
pub struct Ops {
    pub store: u64,
    pub retrieve: u64,
    pub delete: u64,
    pub exist: u64,
    pub list: u64,
    pub seek: u64,
    pub next: u64,
    /// Operations answered with an error, which count as no other kind; a key that is not found is no error.
    pub errors: u64,
}

impl Ops {
    /// Operations that were not refused, by name.
    pub fn by_name(&self) -> [(&'static str, u64); 7] {
        [
            ("store", self.store),
            ("retrieve", self.retrieve),
            ("delete", self.delete),
            ("exist", self.exist),
            ("list", self.list),
            ("seek", self.seek),
            ("next", self.next),
        ]
    }

    /// All operations that were not refused.
    pub fn total(&self) -> u64 {
        self.by_name().into_iter().map(|(_, count)| count).sum()
    }

    /// All operations, refused ones included: the counts of the link include their traffic.
    pub fn answered(&self) -> u64 {
        self.total() + self.errors
    }
}

/// Bytes of values, without keys, padding or headers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ValueBytes {
    /// Of stores that succeeded.
    pub stored: u64,
    /// Of retrieves, seeks and nexts that found a pair.
    pub retrieved: u64,
}

/// Pairs of a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pairs {
    /// Pairs that the operations choose from: those on the drive before them, or the size of the key space. If a workload
    /// chooses no keys, its stores.
    pub count: u64,
    /// Whether there may be fewer, because keys are drawn from a space of this size and may repeat.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_at_most: bool,
    /// Length of a key, bytes; `None`: as the trace has them.
    pub key_bytes: Option<u32>,
    /// Length of a value, bytes; `None`: they differ.
    pub value_bytes: Option<u32>,
    /// Mean length of the values that were stored, bytes; `None`: none was.
    pub stored_mean_bytes: Option<f64>,
    /// Mean length of the values that were returned, bytes; `None`: none was.
    pub retrieved_mean_bytes: Option<f64>,
}

/// How often a language model's cache had what was asked, and what its stores do to the drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheRates {
    /// Part of the blocks asked for that were cached behind no missing block, from 0 to 1.
    pub hit_rate: f64,
    /// Part of the input tokens in these blocks, from 0 to 1.
    pub token_hit_rate: f64,
    /// Part of the floating-point operations of prefilling that these blocks save, from 0 to 1.
    pub prefill_saved_rate: f64,
    /// Bytes at the model's size that are stored in a day, at the pace of the trace; `None`: it has no times.
    pub stored_bytes_a_day: Option<f64>,
    /// Bytes stored in a day over the capacity of the drive, both as in this run; `None`: the trace has no times.
    pub drive_writes_a_day: Option<f64>,
    /// Years until the writing is done that the drive is rated for (`rated.drive_writes`, `rated.erase_cycles`: the earlier
    /// end), a year being 365 days; `None`: no rating is known, or the trace has no times.
    pub rated_years: Option<f64>,
    /// Part of the bytes that are not stored because of `workload.cache_admission`, of those that a cache which stores every
    /// missing block would store, from 0 to 1; below 0: more are stored.
    pub admission_saved_rate: f64,
    /// Hit rate of that cache.
    pub hit_rate_by_all: f64,
}

/// Bytes of values per second, by direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// Of stores that succeeded.
    pub stored: f64,
    /// Of retrieves, seeks and nexts that found a pair.
    pub retrieved: f64,
}

/// Duration of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// Model time, ns.
    pub virtual_ns: u64,
    /// Measured time of this machine, s.
    pub wall_s: f64,
}

/// Latency of one kind of operation, or of all, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation, to three digits.
    pub stdev: f64,
    /// Smallest, to three digits.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// 99.99th percentile.
    pub p9999: u64,
    /// Largest.
    pub max: u64,
}

/// Bytes moved per byte of value stored; `None` if nothing was stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Amplification {
    /// Payload bytes over the link.
    pub traffic: Option<f64>,
    /// Bytes programmed to flash.
    pub write: Option<f64>,
}

/// One resource of the model, during the operations of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    /// Fraction of the time in which it was in use.
    pub busy_fraction: f64,
    /// The fraction of the busiest of its parts (dies, channels), if it has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busiest_fraction: Option<f64>,
    /// Mean time that its users waited for it, ns.
    pub queue_ns_mean: f64,
}

/// Tasks of the controller that carry out commands, one after another, over the operations of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Occupied {
    /// Their number.
    pub tasks: u32,
    /// Fraction of their time in which they had a command.
    pub occupied_fraction: f64,
    /// Fractions of the time with a command, by cause ([`kvdrive_sim::Cause`]).
    pub spent: Named<f64>,
}

/// What limited a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The setting that changes it.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// The evidence.
    pub because: String,
}

impl Report {
    /// Whether times that applications saw are modelled or measured, for a table's heading.
    fn time_kind(&self) -> String {
        if self.clock == "wall" { "measured".into() } else { self.model_kind() }
    }

    /// Whether the drive's own times are modelled, for any clock of the run.
    fn model_kind(&self) -> String {
        match self.time_sources.as_str() {
            "" => "modelled".into(),
            sources => format!("modelled: {sources}"),
        }
    }

    /// A value of the configuration as plain text; empty if there is none.
    fn setting(&self, section: &str, key: &str) -> String {
        match self.config.get(section).and_then(|section| section.get(key)) {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        }
    }
}

/// A report as one flat record, for a data frame: nested names are joined by dots, as in
/// `latency_ns.store.p99`; elements of a list are concatenated.
pub fn record(report: &Report) -> serde_json::Map<String, Value> {
    let mut record = serde_json::Map::new();
    flatten(serde_json::to_value(report).expect("a report is JSON"), "", &mut record);
    record
}

fn flatten(value: Value, path: &str, record: &mut serde_json::Map<String, Value>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let path = if path.is_empty() { name } else { format!("{path}.{name}") };
                flatten(value, &path, record);
            }
        }
        Value::Array(parts) => {
            let text = |part: &Value| part.as_str().map_or_else(|| part.to_string(), str::to_owned);
            let parts: Vec<_> = parts.iter().map(text).collect();
            record.insert(path.to_owned(), parts.join("; ").into());
        }
        value => {
            record.insert(path.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests;
