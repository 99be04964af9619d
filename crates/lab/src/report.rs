//! The report of a run: every figure by name, as JSON and as tables.
//!
//! Plain data. The runner fills it in; nothing here counts, computes a model or reads a clock. The text says
//! of every table whether its figures are counted (exact), modelled (times from a profile) or measured (on
//! this machine).

mod compare;
mod connected;
mod dram;
mod table;
mod text;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

pub use compare::{compare, compare_in};
pub use connected::{Connected, Target};

/// Values by name, in the order they were added; a JSON object.
#[derive(Clone, Debug, PartialEq)]
pub struct Named<T>(Vec<(String, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Named(Vec::new())
    }
}

impl<T> Named<T> {
    /// Adds a value behind the others.
    ///
    /// # Panics
    /// When the name is there already.
    pub fn push(&mut self, name: impl Into<String>, value: T) {
        let name = name.into();
        assert!(self.get(&name).is_none(), "{name} twice in a report");
        self.0.push((name, value));
    }

    /// The value of that name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<N: Into<String>, T> FromIterator<(N, T)> for Named<T> {
    fn from_iter<I: IntoIterator<Item = (N, T)>>(pairs: I) -> Self {
        let mut named = Named::default();
        for (name, value) in pairs {
            named.push(name, value);
        }
        named
    }
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// Counts by purpose; the total comes from them, so it cannot disagree. A JSON object with `total` first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ByPurpose(Named<u64>);

impl ByPurpose {
    /// Sum over all purposes.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// Count of one purpose; 0 for one that did not occur.
    pub fn get(&self, purpose: &str) -> u64 {
        self.0.get(purpose).copied().unwrap_or(0)
    }

    /// Purposes and counts in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name, *count))
    }
}

impl<N: Into<String>> FromIterator<(N, u64)> for ByPurpose {
    fn from_iter<I: IntoIterator<Item = (N, u64)>>(pairs: I) -> Self {
        ByPurpose(pairs.into_iter().collect())
    }
}

impl Serialize for ByPurpose {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("total", &self.total())?;
        for (name, count) in self.iter() {
            map.serialize_entry(name, &count)?;
        }
        map.end()
    }
}

/// Whether a count by this name is how something stands at the end (`_now`), or the most that there was since
/// power-on (`most_`), and not what happened in the run.
pub(crate) fn is_state(name: &str) -> bool {
    name.ends_with("_now") || name.starts_with("most_")
}

/// Whether a structure by this name is the most that another one has taken (`_most`), and so part of that.
pub(crate) fn is_part_of_another(name: &str) -> bool {
    name.ends_with("_most")
}

/// Everything a run yields.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Name of the profile the configuration began as.
    pub profile: String,
    /// What is not as in the profile, `KEY=VALUE` each, for the text: JSON has the whole configuration.
    #[serde(skip)]
    pub set: Vec<String>,
    /// The whole configuration, as JSON.
    pub config: serde_json::Value,
    /// Name of the DRAM point that was asked for, as `total-128`; none where bytes were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dram_point: Option<String>,
    /// Seed of every random stream.
    pub seed: u64,
    /// `virtual` or `wall`.
    pub clock: String,
    /// Revision of the program.
    pub revision: String,
    /// Sources of the times in the profile, as
    /// [`Document::time_sources`](crate::config::Document::time_sources) lists them. Empty when no modelled
    /// time is in the report.
    pub time_sources: String,
    /// Departures the workload states.
    pub notes: Vec<String>,
    /// Operations answered.
    pub ops: Ops,
    /// Bytes of values, as applications count them.
    pub value_bytes: ValueBytes,
    /// Bytes of values that came back, by the kind of operation that brought them; together
    /// `value_bytes.retrieved`.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub read_bytes: Named<u64>,
    /// How long it took.
    pub time: Time,
    /// Operations that were not refused, a second of the run's clock.
    pub throughput_ops_per_s: f64,
    /// Latency of each kind of operation that was not refused, in nanoseconds of the run's clock.
    pub latency_ns: Named<Latency>,
    /// Commands that the drive has completed, by name, where its hosts are not known.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub commands: Named<Commands>,
    /// Units of the workload, by kind: transactions.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub transactions: Named<Transactions>,
    /// What was done over time, where `run.interval_ns` asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// Bytes over the link.
    pub traffic: Traffic,
    /// Flash operations.
    pub nand: Nand,
    /// Pages.
    pub pages: Pages,
    /// Copies within the controller's memory.
    pub memcpy: Memcpy,
    /// Bytes moved for a byte of value.
    pub amplification: Amplification,
    /// What the engine counts by names of its own; those that end in `_now` are states at the end.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub engine: Named<u64>,
    /// What a store on the host counts by names of its own, its pages by what was done and why among them;
    /// those that end in `_now` are states at the end.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub store: Named<u64>,
    /// What SAKER counts, if it is there; see [`is_state`].
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub saker: Named<u64>,
    /// What the engine's structures take of the DRAM, in bytes.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub dram: Named<u64>,
    /// Rules by which the drive failed, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// What came of checking the values that were read back, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
    /// How flash holds out, if something was made to fail or did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash_health: Option<FlashHealth>,
    /// What loading the drive took, if the workload begins with pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precondition: Option<Precondition>,
    /// Every resource of the model, over the measured operations: what the drain behind them takes is not in
    /// it.
    pub resources: Named<Resource>,
}

/// Commands of one kind, in nanoseconds of model time from where they took effect to their completion; percentiles
/// to within an eighth.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Commands {
    /// How many.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
}

/// Transactions of one kind: several operations of a client, each of which is counted and timed among the
/// others of its kind, too.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Transactions {
    /// Those that were committed.
    pub committed: u64,
    /// Those that were to be rolled back, and were.
    pub rolled_back: u64,
    /// Committed ones a second of the run's clock.
    pub per_s: f64,
    /// From a committed one's beginning, locks included, to its last answer, in ns of the run's clock.
    pub latency_ns: Latency,
}

/// A run over time: what was done in each interval of the run's clock, from the first measured operation on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    /// Length of an interval, in ns. The last one ends with the run and may be shorter.
    pub interval_ns: u64,
    /// Operations that were not refused.
    pub ops: Vec<u64>,
    /// Transactions that were committed, where the workload consists of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions: Option<Vec<u64>>,
}

/// Loading a drive with pairs and overwriting them, before anything is measured. What that left in buffers is
/// programmed at its end and is in it; a drive that is served in wall time programs it in the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Precondition {
    /// Stores.
    pub stores: u64,
    /// Bytes of their values.
    pub stored_bytes: u64,
    /// Model time, the drain at its end included; none if it was done in no time.
    pub virtual_ns: Option<u64>,
    /// Bytes programmed for a byte of value stored; none where no byte was.
    pub write_amplification: Option<f64>,
    /// Flash operations.
    pub nand: Nand,
    /// What the engine counted.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub engine: Named<u64>,
}

/// Values read back, held against what was stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verified {
    /// Reads that were judged.
    pub checked: u64,
    /// Those that brought a value that was not stored.
    pub wrong: u64,
    /// Those that found nothing where something was stored.
    pub missing: u64,
    /// Reads that were answered with an error: nothing is known of them. They are among the errors, too.
    pub unread: u64,
    /// Reads of what the drive brought along from an earlier life, which nobody can judge.
    pub unknown: u64,
}

impl Verified {
    /// Whether everything that was looked at is as it was stored.
    pub fn is_whole(&self) -> bool {
        self.wrong == 0 && self.missing == 0 && self.unread == 0
    }
}

/// What became of one rule by which the drive fails.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fault {
    /// The rule's name.
    pub rule: String,
    /// What kind of fault it is.
    pub fault: &'static str,
    /// Commands or flash operations that it matched, until it was used up.
    pub matched: u64,
    /// How often it struck.
    pub fired: u64,
}

/// How flash holds out, at the end of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlashHealth {
    /// Blocks retired in the life of the drive, spare ones among them.
    pub retired_blocks: u32,
    /// Spare blocks that the drive began with.
    pub spare_blocks: u32,
    /// Those that are left.
    pub spare_blocks_left: u32,
    /// A plane had none left when it needed one: nothing has been written since.
    pub is_read_only: bool,
    /// Programs that failed since power-on.
    pub program_errors: u64,
    /// Erases that failed since power-on.
    pub erase_errors: u64,
    /// Reads that were tried again since power-on, once for each time.
    pub read_retries: u64,
    /// Pages that could not be read since power-on.
    pub read_errors: u64,
}

/// Operations, by whether and how they were answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "one field an operation, named as it is")]
pub struct Ops {
    pub store: u64,
    pub retrieve: u64,
    pub delete: u64,
    pub exist: u64,
    pub list: u64,
    pub seek: u64,
    pub next: u64,
    /// Operations answered with an error, and among no others; not finding a key is none.
    pub errors: u64,
}

impl Ops {
    /// Operations that were not refused, with their names.
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

    /// All that were not refused.
    pub fn total(&self) -> u64 {
        self.by_name().into_iter().map(|(_, count)| count).sum()
    }

    /// Refused ones as well: what crosses the link for them is counted, too.
    pub fn answered(&self) -> u64 {
        self.total() + self.errors
    }
}

/// Bytes of values, without keys, padding or headers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ValueBytes {
    /// By stores that succeeded.
    pub stored: u64,
    /// By retrieves, seeks and nexts that found something.
    pub retrieved: u64,
}

/// How long the run took.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Time {
    /// Model time.
    pub virtual_ns: u64,
    /// Time of this machine.
    pub wall_s: f64,
    /// Model time that power-on took: finding on flash what an earlier life left there. 0 for a new drive.
    pub recovery_ns: u64,
}

/// Latency of one kind of operation, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: f64,
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

/// Bytes over the link in both accountings.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Traffic {
    /// As the papers count: 64 + 16 + 2 x 4 B a command, 4096 B a page, 68 B a flit.
    pub payload_bytes: TrafficBytes,
    /// With packet and link overhead; of CXL the same 68 B a flit, without flit headers and responses.
    pub wire_bytes: TrafficBytes,
}

/// Bytes of each traffic class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrafficBytes {
    /// Doorbells.
    pub mmio: u64,
    /// Submission entries.
    pub sqe: u64,
    /// Completion entries.
    pub cqe: u64,
    /// PRP and SGL lists.
    pub list: u64,
    /// Data to the drive.
    pub to_drive: u64,
    /// Data to the host.
    pub to_host: u64,
    /// Interrupts.
    pub interrupt: u64,
    /// CXL flits.
    pub cxl: u64,
}

impl TrafficBytes {
    /// Every class with its name.
    pub fn by_name(&self) -> [(&'static str, u64); 8] {
        [
            ("mmio", self.mmio),
            ("sqe", self.sqe),
            ("cqe", self.cqe),
            ("list", self.list),
            ("to_drive", self.to_drive),
            ("to_host", self.to_host),
            ("interrupt", self.interrupt),
            ("cxl", self.cxl),
        ]
    }

    /// Sum over all classes.
    pub fn total(&self) -> u64 {
        self.by_name().into_iter().map(|(_, bytes)| bytes).sum()
    }
}

impl Serialize for TrafficBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([("total", self.total())].into_iter().chain(self.by_name()))
    }
}

/// Flash operations, the drain at the end of the run included.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Nand {
    /// Programmed pages.
    pub programs: ByPurpose,
    /// Read pages.
    pub reads: ByPurpose,
    /// Erased blocks.
    pub erases: u64,
}

/// Pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pages {
    /// Pages of the value log that were opened; none where the engine has no such log.
    pub value_opened: Option<u64>,
}

/// Copies within the controller's memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Memcpy {
    /// Copied bytes.
    pub bytes: u64,
    /// Time they took.
    pub ns: u64,
}

/// Bytes moved for a byte of value stored; none where no byte was.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Amplification {
    /// Payload bytes over the link.
    pub traffic: Option<f64>,
    /// Bytes programmed to flash.
    pub write: Option<f64>,
}

/// One resource of the model, while the operations of the run were done.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Resource {
    /// Share of the time it was in use.
    pub busy_fraction: f64,
    /// Mean time its users waited for it.
    pub queue_ns_mean: f64,
}

impl Report {
    /// How what applications saw came about, for a table's heading.
    fn time_kind(&self) -> String {
        if self.clock == "wall" { "measured".into() } else { self.model_kind() }
    }

    /// How the drive's own times came about, whatever the clock of the run.
    fn model_kind(&self) -> String {
        match self.time_sources.as_str() {
            "" => "modelled".into(),
            sources => format!("modelled: {sources}"),
        }
    }

    /// A value of the configuration as plain text; empty when there is none.
    fn setting(&self, section: &str, key: &str) -> String {
        match self.config.get(section).and_then(|section| section.get(key)) {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        }
    }
}

/// A report as one flat record, for a data frame: what lies in something is named with dots, as
/// `latency_ns.store.p99`; of a list, its parts behind each other.
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
