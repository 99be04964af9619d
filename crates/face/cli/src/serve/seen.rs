//! The visible state of a served drive: one snapshot for `ctl status`, metrics, page and `top`.
//!
//! ```text
//!   drive's thread    DriveLook::of    counters and buckets as they lie there   ┐ measured: Seen::snapshot_ns
//!   server's thread   HostsLook::of    the same of what hosts asked for         ┘
//!   thread that asks  SeenDrive, SeenHosts: names, quantiles, text
//! ```

use std::collections::BTreeMap;

use kvdrive_declare::{Counters, Counts, Sections};
use kvdrive_flash::faults::FaultCount;
use kvdrive_flash::power::machine_file::WriteFailure;
use kvdrive_nvme::identify::{CSI_KV, CSI_NVM};
use kvdrive_run::DriveSnapshot;
use kvdrive_run::wall::Running;
use kvdrive_sim::wall::Stopwatch;
use kvdrive_sim::{Buckets, ResourceStatistics};
use kvdrive_subsystem::shared::Core;
use kvdrive_subsystem::subsystem::{HostStatus, OPCODES, Served, opcode_place};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A drive that is served, as it is now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Name of the subsystem.
    pub nqn: String,
    /// The namespace whose drive this is of.
    pub nsid: u32,
    /// The server's process.
    pub pid: u32,
    /// Where it listens.
    pub listening: Vec<String>,
    /// The command that reaches this drive: `kvdrive ctl` with its options.
    pub ctl: String,
    /// Sections `server`, `process` and `hosts`, since the server began.
    pub counts: SeenCounts,
    /// How long I/O commands took in the server by the name of their opcode, from their last byte to their answer:
    /// measured.
    pub latencies: BTreeMap<String, SeenLatency>,
    /// The drive since it was last powered on; `None` without power.
    pub drive: Option<SeenDrive>,
}

/// The server itself.
#[derive(Counters)]
pub struct ServerCounters {
    /// 1 while the drive has power.
    #[counter(state)]
    pub has_power: bool,
    /// How often the drive was powered on.
    pub power_ons: u32,
    /// Time since the server began.
    #[counter(measured, state)]
    pub uptime_ns: u64,
    /// Time that the serving threads spent on collecting these counters.
    #[counter(measured, state)]
    pub snapshot_ns: u64,
}

/// Controllers and memory that hosts use now.
#[derive(Counters)]
#[counters(state)]
pub struct HostsNow {
    /// Controllers that hosts have now.
    controllers: usize,
    /// Memory in use for data that is on its way between hosts and drive.
    buffer_used_bytes: usize,
    /// Limit of the memory for data that is on its way.
    buffer_limit_bytes: usize,
}

/// One drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeenDrive {
    /// What it counts, by section.
    pub counts: SeenCounts,
    /// Why it is read-only, if it is.
    pub read_only: Option<String>,
    /// How long commands took in the drive by the name of their opcode: modelled.
    pub latencies: BTreeMap<String, SeenLatency>,
    /// How much later than the model has them its events were carried out: measured; `None` where it is not paced.
    pub lateness: Option<SeenLatency>,
    /// Firmware cores, link, channels and dies.
    pub resources: Vec<SeenResource>,
    /// Fault rules.
    pub faults: Vec<SeenFault>,
}

/// Counters by section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SeenCounts {
    /// In the server, with their declarations.
    #[serde(skip_deserializing)]
    Declared(Sections),
    /// As JSON: in programs that have asked the server.
    Told(Value),
}

impl Default for SeenCounts {
    fn default() -> SeenCounts {
        SeenCounts::Declared(Sections::default())
    }
}

impl SeenCounts {
    /// The value of `nand.programs`, over its labels; 0 if there is none.
    pub fn of(&self, path: &str) -> u64 {
        let at = self.at(path);
        at.get("total").unwrap_or(&at).as_u64().unwrap_or(0)
    }

    /// The value of each label of a counter.
    pub fn labels(&self, path: &str) -> Vec<(String, u64)> {
        self.rows(path).into_iter().filter(|(name, _)| name != "total").collect()
    }

    /// Every value of a section, or of one counter, under its name there: a sum over labels is `total`.
    pub fn rows(&self, path: &str) -> Vec<(String, u64)> {
        let mut rows = Vec::new();
        flatten(&self.at(path), "", &mut rows);
        rows
    }

    fn at(&self, path: &str) -> Value {
        let told = match self {
            SeenCounts::Declared(counts) => &serde_json::to_value(counts).expect("counts are JSON"),
            SeenCounts::Told(told) => told,
        };
        told.pointer(&format!("/{}", path.replace('.', "/"))).cloned().unwrap_or_default()
    }
}

/// Appends numbers by their dotted names.
fn flatten(value: &Value, name: &str, rows: &mut Vec<(String, u64)>) {
    match value {
        Value::Object(map) => {
            for (part, value) in map {
                let name = if name.is_empty() { part.clone() } else { format!("{name}.{part}") };
                flatten(value, &name, rows);
            }
        }
        value => rows.extend(value.as_u64().map(|number| (name.to_owned(), number))),
    }
}

/// How long operations took, ns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeenLatency {
    /// How many there were.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
    /// Median, at most an eighth too large, as are the others.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Place `n` counts durations from 2^n up to, but not including, 2^(n + 1); the first place counts 0, too.
    pub by_power_of_two: Vec<u64>,
}

impl From<&Buckets> for SeenLatency {
    fn from(buckets: &Buckets) -> SeenLatency {
        SeenLatency {
            count: buckets.count(),
            sum_ns: buckets.sum_ns(),
            p50_ns: buckets.quantile(0.5),
            p99_ns: buckets.quantile(0.99),
            p999_ns: buckets.quantile(0.999),
            by_power_of_two: buckets.by_power_of_two(),
        }
    }
}

/// Latencies by the places of their opcodes, under the names of these.
fn seen_latencies<'a>(of: impl Iterator<Item = (u16, &'a Buckets)>) -> BTreeMap<String, SeenLatency> {
    let mut named: BTreeMap<&str, Buckets> = BTreeMap::new();
    of.for_each(|(place, buckets)| {
        named.entry((OPCODES.name_of)(usize::from(place))).or_default().add(buckets)
    });
    named.into_iter().map(|(name, buckets)| (name.to_owned(), (&buckets).into())).collect()
}

/// What a resource did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeenResource {
    /// Its name.
    pub name: String,
    /// Sum over its servers of the time they were held, ns.
    pub busy_ns: u64,
    /// Sum over its users of the time they waited, ns.
    pub queue_ns: u64,
    /// How often it was used.
    pub uses: u64,
    /// How many users it serves at once.
    pub servers: u32,
}

/// What became of a fault rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeenFault {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Commands or operations that it matched while it was not used up.
    pub matched: u64,
    /// How often it struck.
    pub struck: u64,
}

/// A host that is connected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeenHost {
    /// Its name.
    pub nqn: String,
    /// CNTLID.
    pub controller: u16,
    /// `io`, or `discovery`.
    pub kind: String,
    /// I/O queues that it has.
    pub io_queues: u32,
    /// The address of the server that the host used.
    pub reached_at: String,
    /// Has it shown that it knows its secret?
    pub authenticated: bool,
    /// Does it speak TLS?
    pub tls: bool,
    /// Time since its last command, ms.
    pub silent_ms: u64,
    /// Commands of it that failed.
    pub failures: u64,
}

/// A copy of the raw state of a server, taken on its thread.
pub struct HostsLook {
    served: Served,
    latencies: BTreeMap<u16, Buckets>,
    now: HostsNow,
    spent_ns: u64,
}

impl HostsLook {
    /// The counters of the subsystem of `core`.
    pub fn of(core: &Core) -> HostsLook {
        let clock = Stopwatch::start();
        let look = HostsLook {
            served: core.subsystem.served().clone(),
            latencies: core.latencies.clone(),
            now: HostsNow {
                controllers: core.subsystem.controllers(),
                buffer_used_bytes: core.used_bytes(),
                buffer_limit_bytes: core.limit_bytes(),
            },
            spent_ns: 0,
        };
        HostsLook { spent_ns: clock.ns(), ..look }
    }

    /// What it took of the server's thread.
    pub fn spent_ns(&self) -> u64 {
        self.spent_ns
    }

    /// Counters of the hosts' commands, and the present state of hosts.
    pub fn counts(&self) -> Counts {
        self.served.counts().and(&self.now)
    }

    /// How long I/O commands took.
    pub fn latencies(&self) -> BTreeMap<String, SeenLatency> {
        seen_latencies(self.latencies.iter().map(|(place, buckets)| (*place, buckets)))
    }
}

impl From<HostStatus> for SeenHost {
    fn from(host: HostStatus) -> SeenHost {
        SeenHost {
            nqn: host.host_nqn,
            controller: host.controller,
            kind: if host.is_discovery { "discovery" } else { "io" }.to_owned(),
            io_queues: host.io_queues,
            authenticated: host.is_authenticated,
            tls: host.reached_at.is_secure,
            reached_at: host.reached_at.to_string(),
            silent_ms: host.silent_ms,
            failures: host.failures,
        }
    }
}

/// A copy of the raw state of a drive, taken on its thread.
pub struct DriveLook {
    snapshot: DriveSnapshot,
    write_failure: Option<WriteFailure>,
    latencies: BTreeMap<u8, Buckets>,
    /// CSI of what the drive takes.
    command_set: u8,
    lateness: Buckets,
    spent_ns: u64,
}

impl DriveLook {
    /// The counters of the drive.
    pub fn of(running: &Running) -> DriveLook {
        let clock = Stopwatch::start();
        let look = DriveLook {
            snapshot: running.snapshot(),
            write_failure: running.drive().write_failure(),
            latencies: running.latencies(),
            // Only pairs have a largest value.
            command_set: running.drive().value_max_bytes().map_or(CSI_NVM, |_| CSI_KV),
            lateness: running.lateness(),
            spent_ns: 0,
        };
        DriveLook { spent_ns: clock.ns(), ..look }
    }

    /// What it took of the drive's thread.
    pub fn spent_ns(&self) -> u64 {
        self.spent_ns
    }
}

impl From<DriveLook> for SeenDrive {
    fn from(look: DriveLook) -> SeenDrive {
        let DriveLook { snapshot, write_failure, latencies, command_set, lateness, .. } = look;
        let latencies = latencies.iter().map(|(opcode, span)| (opcode_place(*opcode, command_set), span));
        let resource = |(name, statistics): (String, ResourceStatistics)| {
            let ResourceStatistics { busy_ns, queue_ns, uses, servers } = statistics;
            SeenResource { name, busy_ns, queue_ns, uses, servers }
        };
        SeenDrive {
            counts: SeenCounts::Declared(snapshot.counts),
            read_only: write_failure.map(|failure| failure.to_string()),
            latencies: seen_latencies(latencies),
            lateness: (lateness.count() > 0).then(|| (&lateness).into()),
            resources: snapshot.resources.into_iter().map(resource).collect(),
            faults: snapshot.faults.into_iter().map(SeenFault::from).collect(),
        }
    }
}

impl From<FaultCount> for SeenFault {
    fn from(count: FaultCount) -> SeenFault {
        let FaultCount { name, kind, matched, struck } = count;
        SeenFault { name, kind: kind.to_owned(), matched, struck }
    }
}

#[cfg(test)]
mod tests {
    use kvdrive_config::Document;
    use kvdrive_host::threaded::serve_thread;
    use kvdrive_link::shared::{Controlled, ServerConfig};
    use kvdrive_nvme::opcode;
    use kvdrive_run::wall::served;
    use kvdrive_sim::wall::Pace;
    use kvdrive_subsystem::subsystem::OPCODE_PLACES;

    use super::*;

    #[test]
    fn opcodes_that_have_no_name_are_one_row() {
        let counts = Served { io_commands: [1; OPCODE_PLACES], ..Served::default() }.counts();
        let named: BTreeMap<_, _> = counts.labels("io_commands").collect();
        let known = (0..=u8::MAX).filter(|code| opcode::name(*code).is_some()).count();
        // Blocks have five, of which pairs have a flush and (of values in the queue) a write, too.
        let (names, others) = (known + 3 + 1, OPCODE_PLACES as u64 - known as u64 - 5);
        assert_eq!((named.len(), named["other"], named["flush"]), (names, others, 2));
        let mut one = Buckets::default();
        one.record(100);
        let latencies = seen_latencies((0..OPCODE_PLACES as u16).map(|place| (place, &one)));
        assert_eq!((latencies.len(), latencies["other"].count), (names, others));
        assert_eq!(latencies["other"].sum_ns, 100 * latencies["other"].count);
    }

    /// The shortest of this many looks counts, so that other work on the machine does not.
    const LOOKS: usize = 200;
    const MOST_NS: u64 = 50_000;

    /// Spans of every length, in every bucket there is.
    fn fill(mut record: impl FnMut(u64)) {
        (0..64).for_each(|log2| (0..8).for_each(|part| record((1 << log2) | (part << log2 >> 3))));
    }

    #[test]
    fn a_look_at_a_drive_takes_less_of_its_thread_than_one_event_may_be_late() {
        let config = Document::profile("cosmos-plus").unwrap().config().unwrap();
        let server = ServerConfig { pace: Pace::Off, recorder: None };
        let (connector, serving) = serve_thread(server, served(config, None)).unwrap();
        let least = |is_full: bool| {
            let look = move |running: &Running| {
                if is_full {
                    (0..16).for_each(|opcode| fill(|span| running.note_latency(opcode, span)));
                    fill(|late_ns| running.note_lateness(late_ns));
                }
                DriveLook::of(running)
            };
            let looks = (0..LOOKS).map(|_| serving.control().look(move |_, running| look(running)).unwrap());
            let seen: Vec<_> = looks.map(|look| (look.spent_ns(), SeenDrive::from(look))).collect();
            let (_, last) = seen.last().unwrap();
            // All opcodes without a name are one.
            let named = (0..16).filter(|opcode| opcode::name(*opcode).is_some()).count();
            assert_eq!(last.latencies.len(), if is_full { named + 1 } else { 0 });
            assert_eq!(last.lateness.is_some(), is_full);
            seen.iter().map(|(spent_ns, _)| *spent_ns).min().unwrap()
        };
        let (empty_ns, full_ns) = (least(false), least(true));
        println!("a look: {empty_ns} ns, with full histograms {full_ns} ns");
        assert!(
            (1..MOST_NS).contains(&empty_ns) && (1..MOST_NS).contains(&full_ns),
            "{empty_ns}, {full_ns} ns"
        );
        drop(connector);
        serving.join();
    }
}
