//! The numbers of a served drive in the formats of Prometheus.
//!
//! Help texts say of each number whether it is counted, modelled or measured. The counters of a drive that was powered
//! on again begin at zero, like those of a restarted process.

use std::collections::BTreeMap;
use std::fmt;

use kvdrive_declare::Form;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::seen::{Seen, SeenCounts, SeenDrive, SeenFault, SeenHost, SeenLatency, SeenResource};

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

struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    /// Every counter, under the names of its section and its own. Times are in seconds here.
    fn counters(&mut self, counts: &SeenCounts) -> fmt::Result {
        let SeenCounts::Declared(sections) = counts else { return Ok(()) };
        for (section, counts) in sections.iter() {
            for values in counts.by_counter() {
                let counter = values[0].counter;
                let name = format!("{section}_{}", counter.name);
                let (name, unit) = match name.strip_suffix("_ns") {
                    Some(name) => (format!("{name}_seconds"), 1e9),
                    None => (name, 1.0),
                };
                let labels = |label| counter.by.map(|by| by.label).zip(label).into_iter().collect();
                let shown = values.iter().filter(|count| !count.is_hidden());
                let values = shown.map(|count| (labels(count.label), count.value as f64 / unit)).collect();
                let help = format!("{} ({})", counter.help.trim_end_matches('.'), counter.kind.name());
                self.write(counter.form, &name, &help, values)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, form: Form, name: &str, help: &str, values: Values<'_>) -> fmt::Result {
        match form {
            Form::Sum => self.family(name, help, values, ConstCounter::new),
            Form::State | Form::Maximum => self.family(name, help, values, ConstGauge::new),
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
            _ => values.iter().try_for_each(|(labels, value)| {
                let labels: Vec<_> = labels.iter().map(|(name, of)| (*name, escaped(of))).collect();
                metric(*value).encode(family.encode_family(&labels)?)
            }),
        }
    }
}

/// The value of a label as both formats write it, which the library leaves to its caller. Hosts and rules are called as
/// their users like.
fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
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

impl Collector for Moment {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Moment { seen, hosts } = self;
        let mut out = Writer(encoder);
        out.counters(&seen.counts)?;
        out.histograms(
            "command_seconds",
            "Time of I/O commands from their last byte to their answer, measured",
            &seen.latencies,
        )?;
        // A host with two controllers is one host.
        let mut failures = BTreeMap::<String, u64>::new();
        for host in hosts {
            *failures.entry(printable(&host.nqn)).or_default() += host.failures;
        }
        let failures =
            failures.iter().map(|(host, count)| (vec![("host", host.as_str())], *count as f64)).collect();
        out.write(Form::State, "host_failures", "Commands that failed, by connected host", failures)?;
        seen.drive.as_ref().map_or(Ok(()), |drive| drive_metrics(&mut out, drive))
    }
}

/// A name that a host or a user chose, without characters that a terminal obeys.
fn printable(name: &str) -> String {
    let shown =
        |char: char| if char.is_control() { char.escape_default().to_string() } else { char.to_string() };
    name.chars().map(shown).collect()
}

fn drive_metrics(out: &mut Writer<'_>, drive: &SeenDrive) -> fmt::Result {
    out.counters(&drive.counts)?;
    let read_only = f64::from(u8::from(drive.read_only.is_some()));
    out.write(Form::State, "read_only", "1 if the drive is read-only", vec![(Vec::new(), read_only)])?;
    out.histograms("drive_command_seconds", "Time of commands in the drive, modelled", &drive.latencies)?;
    if let Some(lateness) = &drive.lateness {
        out.histogram(
            "lateness_seconds",
            "Delay of a paced drive's events after their time in the model, measured",
            lateness,
        )?;
    }
    let resource = |value: fn(&SeenResource) -> f64| -> Values<'_> {
        drive.resources.iter().map(|one| (vec![("resource", one.name.as_str())], value(one))).collect()
    };
    out.write(
        Form::Sum,
        "resource_busy_seconds",
        "Time for which its servers were in use, modelled",
        resource(|one| one.busy_ns as f64 / 1e9),
    )?;
    out.write(
        Form::Sum,
        "resource_queue_seconds",
        "Time for which requests waited for it, modelled",
        resource(|one| one.queue_ns as f64 / 1e9),
    )?;
    out.write(
        Form::State,
        "resource_servers",
        "Number of requests that it serves at once",
        resource(|one| one.servers.into()),
    )?;
    let fault = |value: fn(&SeenFault) -> u64| -> Values<'_> {
        drive
            .faults
            .iter()
            .map(|one| (vec![("rule", one.name.as_str()), ("fault", one.kind.as_str())], value(one) as f64))
            .collect()
    };
    out.write(
        Form::Sum,
        "fault_matches",
        "Operations and commands that fault rules matched, counted",
        fault(|one| one.matched),
    )?;
    out.write(Form::Sum, "fault_strikes", "How often fault rules struck, counted", fault(|one| one.struck))
}

#[cfg(test)]
mod tests {
    use kvdrive_config::{Document, default_profile};
    use kvdrive_declare::{Counters, Sections};
    use kvdrive_device::engines::ENGINES;
    use kvdrive_flash::{NandCounters, Purpose};
    use kvdrive_host::threaded::serve_thread;
    use kvdrive_link::shared::ServerConfig;
    use kvdrive_run::run;
    use kvdrive_run::wall::served;
    use kvdrive_sim::Buckets;
    use kvdrive_sim::wall::Pace;
    use kvdrive_subsystem::subsystem::{OPCODE_PLACES, Served};

    use super::super::seen::ServerCounters;
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
        let mut io_commands = [0; OPCODE_PLACES];
        io_commands[0x01] = 3;
        let server =
            ServerCounters { has_power: true, power_ons: 2, uptime_ns: 1_500_000_000, snapshot_ns: 2_500 };
        let hosts = Served { io_commands, queues: 4, ..Served::default() };
        let nand = NandCounters::default();
        nand.programs[Purpose::Value.index()].set(7);
        let declared = |section, counts| SeenCounts::Declared(Sections::default().with(section, counts));
        let seen = Seen {
            nqn: "nqn.x".into(),
            nsid: 1,
            counts: SeenCounts::Declared(
                Sections::default().with("server", server.counts()).with("hosts", hosts.counts()),
            ),
            latencies: BTreeMap::from([("store".to_owned(), (&latency).into())]),
            drive: Some(SeenDrive {
                counts: declared("nand", nand.counts()),
                lateness: Some((&latency).into()),
                ..SeenDrive::default()
            }),
            ..Seen::default()
        };
        let older = Format::Text.text(seen.clone(), Vec::new()).unwrap();
        for line in [
            "# HELP kvdrive_hosts_io_commands_total I/O commands of hosts (counted)",
            "# TYPE kvdrive_hosts_io_commands_total counter",
            "kvdrive_hosts_io_commands_total{opcode=\"store\"} 3.0",
            "# TYPE kvdrive_command_seconds histogram",
        ] {
            assert!(older.lines().any(|other| other == line), "{line} is not in\n{older}");
        }
        assert!(!older.contains("# EOF"));
        let text = Format::OpenMetrics.text(seen, Vec::new()).unwrap();
        for line in [
            "# TYPE kvdrive_hosts_io_commands counter",
            "kvdrive_hosts_io_commands_total{opcode=\"store\"} 3.0",
            "kvdrive_nand_programs_total{purpose=\"value\"} 7.0",
            "kvdrive_server_uptime_seconds 1.5",
            "kvdrive_server_snapshot_seconds 0.0000025",
            "kvdrive_hosts_queues_created_total 4.0",
            "# TYPE kvdrive_command_seconds histogram",
            "kvdrive_command_seconds_count{opcode=\"store\"} 4",
            "kvdrive_command_seconds_bucket{le=\"0.000001024\",opcode=\"store\"} 1",
            "kvdrive_command_seconds_bucket{le=\"0.000002048\",opcode=\"store\"} 3",
            "kvdrive_command_seconds_bucket{le=\"+Inf\",opcode=\"store\"} 4",
            "kvdrive_lateness_seconds_bucket{le=\"0.000001024\"} 1",
            "kvdrive_lateness_seconds_count 4",
            "kvdrive_server_power_ons_total 2.0",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    /// Otherwise one host could add metrics, or make every one unreadable.
    #[test]
    fn a_host_is_one_label_whatever_its_name_is() {
        let nqn = "nqn.\u{1b}[2Ja\"} 1\nkvdrive_read_only 1\\".to_owned();
        let hosts = vec![SeenHost { nqn, ..SeenHost::default() }];
        for format in [Format::Text, Format::OpenMetrics] {
            let text = format.text(Seen::default(), hosts.clone()).unwrap();
            let line = r#"kvdrive_host_failures{host="nqn.\\u{1b}[2Ja\"} 1\\nkvdrive_read_only 1\\"} 0.0"#;
            assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
            assert!(!text.contains("\nkvdrive_read_only 1") && !text.contains('\u{1b}'), "{text}");
        }
    }

    /// Every counter of a drive is in its report and in the metrics under the same name.
    #[test]
    fn every_counter_of_every_drive_is_in_reports_and_metrics() {
        for engine in ENGINES {
            let mut document = Document::profile(default_profile(engine.name)).unwrap();
            let name = format!("engine.name={}", engine.name);
            let small = [
                "flash.blocks_per_die=64",
                "workload.name=fillseq",
                "workload.ops=50",
                "workload.value_size=100",
            ];
            for setting in small.into_iter().chain([&*name]) {
                document.set(setting).unwrap();
            }
            let report = serde_json::to_value(run(&document, &|_, _| {}).unwrap()).unwrap();
            let server = ServerConfig { pace: Pace::Off, recorder: None };
            let (connector, serving) =
                serve_thread(server, served(document.config().unwrap(), None)).unwrap();
            let counts = serving.control().look(|_, running| running.snapshot().counts).unwrap();
            drop(connector);
            serving.join();
            let seen = Seen { counts: SeenCounts::Declared(counts.clone()), ..Seen::default() };
            let metrics = Format::Text.text(seen, Vec::new()).unwrap();
            for (section, counts) in counts.iter().filter(|(section, _)| *section != "flash_health") {
                for count in counts.iter() {
                    let name = count.counter.name;
                    assert!(report[section].get(name).is_some(), "{}: no {section}.{name}", engine.name);
                    let metric = format!("kvdrive_{section}_{name}").replace("_ns", "_seconds");
                    assert!(metrics.contains(&format!("# HELP {metric}")), "{}: no {metric}", engine.name);
                }
            }
        }
    }
}
