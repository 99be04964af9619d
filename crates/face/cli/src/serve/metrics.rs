//! The numbers of a served drive in the formats of Prometheus.
//!
//! Help texts say of each number whether it is counted, modelled or measured. A drive that was powered on
//! again begins from zero, as a process that was started again does.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::seen::{Seen, SeenDrive, SeenFault, SeenHost, SeenLatency, SeenResource};

/// How metrics are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// OpenMetrics 1.0, for clients that accept it.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4, for all others.
    Text,
}

impl Format {
    /// The one for an `Accept` header.
    pub fn accepted_by(accept: &str) -> Format {
        if accept.contains("application/openmetrics-text") { Format::OpenMetrics } else { Format::Text }
    }

    /// Its `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The metrics of one moment.
    pub fn text(self, seen: Seen, hosts: Vec<SeenHost>) -> Result<String, fmt::Error> {
        let text = open_metrics(seen, hosts)?;
        Ok(if self == Format::Text { as_text(&text) } else { text })
    }
}

/// OpenMetrics in the text format, where the name of a counter's family has its ending, too, and the last line is none.
fn as_text(open_metrics: &str) -> String {
    let is_counter = |name: &str| open_metrics.contains(&format!("# TYPE {name} counter\n"));
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines().filter(|line| *line != "# EOF") {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) if is_counter(name) => {
                text += &format!("# {what} {name}_total {rest}");
            }
            _ => text += line,
        }
        text.push('\n');
    }
    text
}

fn open_metrics(seen: Seen, hosts: Vec<SeenHost>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("kvdrive");
    registry.register_collector(Box::new(Moment { seen, hosts }));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Moment {
    seen: Seen,
    hosts: Vec<SeenHost>,
}

/// Values of one metric, each with its labels.
type Values<'a> = Vec<(Vec<(&'static str, &'a str)>, f64)>;

/// The first bucket of histograms ends at two to this, ns.
const SHORTEST: usize = 10;

/// What kind of number a metric is.
#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn write(&mut self, kind: Kind, name: &str, help: &str, values: Values<'_>) -> fmt::Result {
        match kind {
            Kind::Counter => self.family(name, help, values, ConstCounter::new),
            Kind::Gauge => self.family(name, help, values, ConstGauge::new),
        }
    }

    /// Histograms by opcode, in seconds.
    fn histograms(&mut self, name: &str, help: &str, of: &BTreeMap<String, SeenLatency>) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (opcode, latency) in of {
            encode(family.encode_family(&[("opcode", opcode.as_str())])?, latency)?;
        }
        Ok(())
    }

    /// One histogram, in seconds.
    fn histogram(&mut self, name: &str, help: &str, of: &SeenLatency) -> fmt::Result {
        encode(self.0.encode_descriptor(name, help, None, MetricType::Histogram)?, of)
    }

    fn family<M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        values: Values<'_>,
        metric: fn(f64) -> M,
    ) -> fmt::Result {
        let kind = metric(0.0).metric_type();
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        match &values[..] {
            [(labels, value)] if labels.is_empty() => metric(*value).encode(family),
            _ => values
                .iter()
                .try_for_each(|(labels, value)| metric(*value).encode(family.encode_family(labels)?)),
        }
    }
}

fn encode(mut to: MetricEncoder<'_>, of: &SeenLatency) -> fmt::Result {
    // Below a microsecond there is nothing to tell apart.
    let (short, long) = of.by_power_of_two.split_at(SHORTEST.min(of.by_power_of_two.len()));
    let mut buckets = vec![((1u64 << SHORTEST) as f64 / 1e9, short.iter().sum())];
    let limits = (SHORTEST + 1..).map(|power| (1u64 << power) as f64 / 1e9);
    buckets.extend(limits.zip(long.iter().copied()));
    buckets.push((f64::MAX, 0));
    to.encode_histogram::<NoLabelSet>(of.sum_ns as f64 / 1e9, of.count, &buckets, None)
}

fn one<'a>(value: u64) -> Values<'a> {
    vec![(Vec::new(), value as f64)]
}

fn by<'a>(label: &'static str, counts: &'a BTreeMap<String, u64>) -> Values<'a> {
    counts.iter().map(|(name, count)| (vec![(label, name.as_str())], *count as f64)).collect()
}

impl Collector for Moment {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        use Kind::{Counter, Gauge};
        let Moment { seen, hosts } = self;
        let mut out = Writer(encoder);
        out.write(Gauge, "power", "1 while the drive has power", one(seen.has_power.into()))?;
        out.write(
            Counter,
            "power_ons",
            "How often the drive was powered on, counted",
            one(seen.lives.into()),
        )?;
        out.write(
            Gauge,
            "uptime_seconds",
            "Time since the server began, measured",
            vec![(Vec::new(), seen.uptime_ms as f64 / 1e3)],
        )?;
        out.write(
            Gauge,
            "snapshot_seconds",
            "What this look took of the threads that serve, measured",
            vec![(Vec::new(), seen.snapshot_ns as f64 / 1e9)],
        )?;
        let asked = &seen.hosts;
        out.write(Gauge, "controllers", "Controllers that hosts have now", one(asked.controllers))?;
        out.write(Counter, "commands", "I/O commands of hosts, counted", by("opcode", &asked.io_commands))?;
        out.write(
            Counter,
            "command_errors",
            "I/O commands that did not succeed, counted",
            one(asked.io_errors),
        )?;
        out.write(
            Counter,
            "admin_commands",
            "Admin and Fabrics commands, counted",
            one(asked.admin_commands),
        )?;
        out.write(
            Counter,
            "written_bytes",
            "Bytes that I/O commands brought, counted",
            one(asked.written_bytes),
        )?;
        out.write(Counter, "read_bytes", "Bytes returned to I/O commands, counted", one(asked.read_bytes))?;
        out.write(
            Gauge,
            "buffer_used_bytes",
            "Memory for data on their way that is given out",
            one(asked.buffer_used_bytes),
        )?;
        out.write(Gauge, "buffer_limit_bytes", "The most there is of it", one(asked.buffer_limit_bytes))?;
        out.write(Counter, "connections", "Connections that hosts had, counted", one(asked.connections))?;
        out.write(
            Counter,
            "authentication_failures",
            "Connections that ended because their host did not authenticate, counted",
            one(asked.authentication_failures),
        )?;
        out.histograms(
            "command_seconds",
            "How long I/O commands took from their last byte to their answer, measured",
            &asked.latencies,
        )?;
        // A host with two controllers is one host.
        let mut failures = BTreeMap::new();
        for host in hosts {
            *failures.entry(host.nqn.clone()).or_default() += host.failures;
        }
        out.write(Gauge, "host_failures", "Commands that failed, by connected host", by("host", &failures))?;
        seen.drive.as_ref().map_or(Ok(()), |drive| drive_metrics(&mut out, drive))
    }
}

fn drive_metrics(out: &mut Writer<'_>, drive: &SeenDrive) -> fmt::Result {
    use Kind::{Counter, Gauge};
    let seconds = |ns: u64| vec![(Vec::new(), ns as f64 / 1e9)];
    out.write(Counter, "model_seconds", "Model time of the drive, modelled", seconds(drive.model_ns))?;
    out.write(
        Gauge,
        "recovery_seconds",
        "Model time that its power-on took, modelled",
        seconds(drive.recovery_ns),
    )?;
    out.write(Gauge, "read_only", "1 if the drive may not write", one(drive.read_only.is_some().into()))?;
    out.write(
        Counter,
        "link_payload_bytes",
        "Bytes over its link as papers count, counted",
        one(drive.payload_bytes),
    )?;
    out.write(
        Counter,
        "link_wire_bytes",
        "Bytes over its link, packets included, counted",
        one(drive.wire_bytes),
    )?;
    out.write(Counter, "nand_programs", "NAND pages programmed, counted", by("purpose", &drive.programs))?;
    out.write(Counter, "nand_reads", "NAND pages read, counted", by("purpose", &drive.reads))?;
    out.write(Counter, "nand_erases", "Blocks erased, counted", one(drive.erases))?;
    out.write(Gauge, "live_bytes", "Bytes of live values", one(drive.live_bytes))?;
    out.write(Gauge, "capacity_bytes", "Bytes of values that fit", one(drive.capacity_bytes))?;
    out.histograms(
        "drive_command_seconds",
        "Model time that commands took in the drive, modelled",
        &drive.latencies,
    )?;
    if let Some(lateness) = &drive.lateness {
        out.histogram(
            "lateness_seconds",
            "How much later than the model has them a paced drive's events were carried out, measured",
            lateness,
        )?;
    }
    let resource = |value: fn(&SeenResource) -> f64| -> Values<'_> {
        drive.resources.iter().map(|one| (vec![("resource", one.name.as_str())], value(one))).collect()
    };
    out.write(
        Counter,
        "resource_busy_seconds",
        "Model time that its servers were held, modelled",
        resource(|one| one.busy_ns as f64 / 1e9),
    )?;
    out.write(
        Counter,
        "resource_queue_seconds",
        "Model time that users waited for it, modelled",
        resource(|one| one.queue_ns as f64 / 1e9),
    )?;
    out.write(Gauge, "resource_servers", "Users it serves at once", resource(|one| one.servers.into()))?;
    let fault = |value: fn(&SeenFault) -> u64| -> Values<'_> {
        drive
            .faults
            .iter()
            .map(|one| (vec![("rule", one.name.as_str()), ("fault", one.kind.as_str())], value(one) as f64))
            .collect()
    };
    out.write(Counter, "fault_matches", "What fault rules matched, counted", fault(|one| one.matched))?;
    out.write(Counter, "fault_hits", "How often fault rules struck, counted", fault(|one| one.fired))
}

#[cfg(test)]
mod tests {
    use kvdrive_sim::Buckets;

    use super::*;

    #[test]
    fn open_metrics_are_for_clients_that_accept_them() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert_eq!(Format::accepted_by(prometheus), Format::OpenMetrics);
        for accept in ["", "*/*", "text/plain", "text/html,application/xhtml+xml"] {
            assert_eq!(Format::accepted_by(accept), Format::Text, "{accept:?}");
        }
        assert!(Format::Text.content_type().starts_with("text/plain"));
    }

    #[test]
    fn metrics_have_help_type_and_labels() {
        let mut latency = Buckets::default();
        [700, 1_500, 1_600, 900_000].into_iter().for_each(|span_ns| latency.record(span_ns));
        let drive = SeenDrive {
            programs: BTreeMap::from([("value".to_owned(), 7)]),
            lateness: Some((&latency).into()),
            ..SeenDrive::default()
        };
        let seen = Seen {
            nqn: "nqn.x".into(),
            nsid: 1,
            pid: 1,
            ctl: String::new(),
            listening: Vec::new(),
            has_power: true,
            lives: 2,
            uptime_ms: 1_500,
            snapshot_ns: 2_500,
            hosts: super::super::seen::SeenHosts {
                controllers: 0,
                io_commands: BTreeMap::from([("store".to_owned(), 3)]),
                io_errors: 0,
                admin_commands: 0,
                written_bytes: 0,
                read_bytes: 0,
                latencies: BTreeMap::from([("store".to_owned(), (&latency).into())]),
                connections: 4,
                buffer_used_bytes: 0,
                buffer_limit_bytes: 0,
                authentication_failures: 0,
            },
            drive: Some(drive),
        };
        let older = Format::Text.text(seen.clone(), Vec::new()).unwrap();
        for line in [
            "# HELP kvdrive_commands_total I/O commands of hosts, counted",
            "# TYPE kvdrive_commands_total counter",
            "kvdrive_commands_total{opcode=\"store\"} 3.0",
            "# TYPE kvdrive_command_seconds histogram",
        ] {
            assert!(older.lines().any(|other| other == line), "{line} is not in\n{older}");
        }
        assert!(!older.contains("# EOF"));
        let text = Format::OpenMetrics.text(seen, Vec::new()).unwrap();
        for line in [
            "# TYPE kvdrive_commands counter",
            "kvdrive_commands_total{opcode=\"store\"} 3.0",
            "kvdrive_nand_programs_total{purpose=\"value\"} 7.0",
            "kvdrive_uptime_seconds 1.5",
            "kvdrive_snapshot_seconds 0.0000025",
            "kvdrive_connections_total 4.0",
            "# TYPE kvdrive_command_seconds histogram",
            "kvdrive_command_seconds_count{opcode=\"store\"} 4",
            "kvdrive_command_seconds_bucket{le=\"0.000001024\",opcode=\"store\"} 1",
            "kvdrive_command_seconds_bucket{le=\"0.000002048\",opcode=\"store\"} 3",
            "kvdrive_command_seconds_bucket{le=\"+Inf\",opcode=\"store\"} 4",
            "kvdrive_lateness_seconds_bucket{le=\"0.000001024\"} 1",
            "kvdrive_lateness_seconds_count 4",
            "kvdrive_power_ons_total 2.0",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
