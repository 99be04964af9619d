//! The report of a run against one or several drives on a network: the observations of its application. The inside of a
//! drive is not visible over the network.

use kvdrive_declare::Counts;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::Report;
use super::fields::Format;
use super::table::{Table, bytes, edges};
use super::text::Text;
use kvdrive_text::{WIDTH, grouped, number_of, wrap};

/// What the report lacks, for its text.
const UNKNOWN: &str = "not known here: traffic over the drive's link, flash operations, amplification, its own \
                       clock; of a drive of kvdrive serve, kvdrive ctl status has them, and its report at the end";

/// The drive on the network, or behind a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Target {
    /// `HOST:PORT`, or the path of a device, as requested.
    pub address: String,
    /// Name of the subsystem.
    pub nqn: String,
    /// Model number (MN).
    pub model: String,
    /// Serial number (SN).
    pub serial: String,
    /// Firmware revision (FR).
    pub firmware: String,
    /// Identifier of the namespace.
    pub nsid: u32,
    /// Longest value that it accepts, bytes.
    pub value_max_bytes: u32,
    /// Most data that a command moves, bytes; `None`: no limit.
    pub transfer_max_bytes: Option<u32>,
    /// I/O queues; each has a connection and a thread.
    pub connections: u32,
    /// Operations in progress at once, over all connections.
    pub depth: u32,
    /// Header digests, as negotiated.
    pub header_digests: bool,
    /// Data digests, as negotiated.
    pub data_digests: bool,
    /// Pairs that were stored before the measured operations.
    pub loaded_pairs: u64,
    /// Bytes of their values.
    pub loaded_bytes: u64,
    /// How often a thread slept because no completion had arrived, loading included; it polled otherwise.
    pub sleeps: u64,
    /// Of several drives that share the keys: counts of this one's commands in the measured operations
    /// ([`kvdrive_host::spread::Share`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Counts>,
    /// Of several drives: the error by which this one was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// The result of a run against `targets`; of `report`, only what the application saw is filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Connected {
    /// The drives, one or several that share the keys.
    pub targets: Vec<Target>,
    /// The run.
    pub report: Report,
}

impl Connected {
    /// The report as tables that fit `room` columns.
    pub fn in_columns(&self, room: usize) -> String {
        let Connected { targets, report } = self;
        let text = Text { report, room: room.min(WIDTH) };
        let names: Vec<_> = targets.iter().map(Target::name).collect();
        let depth = targets.iter().map(|target| target.depth).max().unwrap_or(0);
        let what = format!("{} | {} | depth {depth}", text.setting("workload", "name"), names.join(", "));
        let how = format!("seed {}, {} clock, {}", report.seed, report.clock, report.revision);
        let mut lines = edges(&what, &how, text.room) + "\n" + &"-".repeat(text.room) + "\n";
        lines.push_str(&text.settings());
        lines.push_str(&text.pairs());
        let reached = targets.iter().filter(|target| target.connections > 0);
        let is_one = targets.len() == 1;
        let notes = reached.flat_map(|target| target.notes(is_one)).chain(report.notes.iter().cloned());
        notes.for_each(|note| lines.push_str(&wrap(&format!("note: {note}"), text.room)));
        lines
            + &text.throughput()
            + &text.latency()
            + &self.shares(text.room)
            + &text.transactions()
            + &text.verified()
            + wrap(UNKNOWN, text.room).trim_end()
            + "\n"
    }

    /// Counts of commands of each of several drives.
    fn shares(&self, room: usize) -> String {
        let headings = ["stores", "retrieves", "deletes", "others", "failed", "stored", "returned"];
        let mut table = Table::new("DRIVES", &headings, "counted");
        for target in &self.targets {
            let Some(share) = &target.share else { return String::new() };
            let count = |name: &str| grouped(share.of(name));
            let amount = |name: &str| bytes(share.of(name) as f64);
            let counts = ["stores", "retrieves", "deletes", "others", "failed"].map(count);
            let amounts = ["stored_bytes", "retrieved_bytes"].map(amount);
            table.row(&target.address, &[&counts[..], &amounts].concat());
        }
        table.finish(room)
    }
}

impl Target {
    /// The address as users write it.
    pub fn name(&self) -> String {
        kvdrive_host::reach::named(&self.address)
    }

    /// The notes of a drive; with several drives, with its name.
    fn notes(&self, is_one: bool) -> Vec<String> {
        let digests = match (self.header_digests, self.data_digests) {
            (false, false) => "no digests",
            (true, false) => "header digests",
            (false, true) => "data digests",
            (true, true) => "header and data digests",
        };
        let most = self
            .transfer_max_bytes
            .map_or_else(String::new, |most| format!(", {} a command", bytes(f64::from(most))));
        let of = format!("{} at namespace {} of {}", self.model, self.nsid, self.nqn);
        let mut notes = vec![
            if is_one { of } else { format!("{}: {of}", self.address) },
            format!(
                "values to {}{most}; connections: {}, {digests}; threads slept {}, and spun otherwise",
                bytes(f64::from(self.value_max_bytes)),
                self.connections,
                number_of(self.sleeps, "time")
            ),
        ];
        if self.loaded_pairs > 0 {
            let (pairs, values) = (number_of(self.loaded_pairs, "pair"), bytes(self.loaded_bytes as f64));
            notes.push(format!("loaded first, not measured: {pairs}, {values} of values"));
        }
        notes
    }
}

impl Serialize for Connected {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Connected { targets, report } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("format", &Format::default())?;
        match &targets[..] {
            [target] => map.serialize_entry("target", target)?,
            targets => map.serialize_entry("targets", targets)?,
        }
        map.serialize_entry("workload", &report.config.get("workload"))?;
        map.serialize_entry("seed", &report.seed)?;
        map.serialize_entry("clock", &report.clock)?;
        map.serialize_entry("revision", &report.revision)?;
        map.serialize_entry("notes", &report.notes)?;
        map.serialize_entry("pairs", &report.pairs)?;
        map.serialize_entry("ops", &report.ops)?;
        map.serialize_entry("value_bytes", &report.value_bytes)?;
        map.serialize_entry("read_bytes", &report.read_bytes)?;
        map.serialize_entry("wall_s", &report.time.wall_s)?;
        map.serialize_entry("throughput_ops_per_s", &report.throughput_ops_per_s)?;
        map.serialize_entry("bandwidth_bytes_per_s", &report.bandwidth_bytes_per_s)?;
        map.serialize_entry("latency_ns", &report.latency_ns)?;
        map.serialize_entry("latency_all_ns", &report.latency_all_ns)?;
        if !report.transactions.is_empty() {
            map.serialize_entry("transactions", &report.transactions)?;
        }
        if let Some(series) = &report.series {
            map.serialize_entry("series", series)?;
        }
        let saker = report.counts.section("saker");
        if !saker.is_empty() {
            map.serialize_entry("saker", saker)?;
        }
        map.serialize_entry("verified", &report.verified)?;
        map.end()
    }
}
