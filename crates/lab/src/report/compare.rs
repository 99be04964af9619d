//! Several reports as one table: a row a report, a column a figure.

use super::table::{percent, rate, ratio, short, time};
use super::{Report, table};
use serde_json::Value;

/// Settings named in the table; where reports differ in more, the profile's name stands for all.
const SETTINGS: usize = 3;

/// One figure of the table: two lines of heading, and how it is read off a report.
struct Figure {
    heading: [&'static str; 2],
    kind: Kind,
    read: fn(&Report) -> f64,
    show: fn(f64) -> String,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Counted,
    Timed,
}

const FIGURES: &[Figure] = &[
    Figure {
        heading: ["operations", ""],
        kind: Kind::Timed,
        read: |report| report.throughput_ops_per_s,
        show: rate,
    },
    Figure {
        heading: ["store", "mean"],
        kind: Kind::Timed,
        read: |report| report.latency_ns.get("store").map_or(0.0, |store| store.mean),
        show: time,
    },
    Figure {
        heading: ["store", "p99"],
        kind: Kind::Timed,
        read: |report| report.latency_ns.get("store").map_or(0.0, |store| store.p99 as f64),
        show: time,
    },
    Figure {
        heading: ["payload", "B/op"],
        kind: Kind::Counted,
        read: |report| {
            let total = report.traffic.payload_bytes.total();
            ratio(total as f64, report.ops.total() as f64)
        },
        show: short,
    },
    Figure {
        heading: ["traffic", "amp."],
        kind: Kind::Counted,
        read: |report| report.amplification.traffic,
        show: short,
    },
    Figure {
        heading: ["value", "pages"],
        kind: Kind::Counted,
        read: |report| report.pages.value_opened as f64,
        show: |pages| table::grouped(pages as u64),
    },
    Figure {
        heading: ["NAND", "programs"],
        kind: Kind::Counted,
        read: |report| report.nand.programs.total() as f64,
        show: |pages| table::grouped(pages as u64),
    },
    Figure {
        heading: ["write", "amp."],
        kind: Kind::Counted,
        read: |report| report.amplification.write,
        show: short,
    },
];

/// Several reports side by side, named by the settings they differ in, and how the best of each figure stands to the first report.
pub fn compare(reports: &[Report]) -> String {
    let Some(first) = reports.first() else {
        return "nothing to compare\n".into();
    };
    let (names, labels) = labels(reports);
    let mut rows: Vec<Vec<String>> = vec![names.clone(), vec![String::new(); names.len()]];
    for figure in FIGURES {
        rows[0].push(figure.heading[0].into());
        rows[1].push(figure.heading[1].into());
    }
    for (report, label) in reports.iter().zip(labels) {
        let figures = FIGURES.iter().map(|figure| (figure.show)((figure.read)(report)));
        rows.push(label.into_iter().chain(figures).collect());
    }
    let columns = rows[0].len();
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    let workload = first.setting("workload", "name");
    let ops = table::grouped(first.ops.total());
    let left = format!("{workload}, {ops} operations, {}", first.profile);
    let right = format!("seed {}, {} clock, {}", first.seed, first.clock, first.revision);
    text.push_str(&table::edges(&left, &right));
    text.push('\n');
    let line = |row: &[String]| {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let padded =
                if column < names.len() { format!("{cell:<width$}  ") } else { format!("{cell:>width$}  ") };
            line.push_str(&padded);
        }
        format!("{}\n", line.trim_end())
    };
    let rule = "-".repeat(widths.iter().sum::<usize>() + 2 * (columns - 1)) + "\n";
    text.push_str(&rule);
    for row in &rows[..2] {
        text.push_str(&line(row));
    }
    text.push_str(&rule);
    for row in &rows[2..] {
        text.push_str(&line(row));
    }
    text.push_str(&rule);
    text.push_str(&legend(first));
    if reports.len() > 1 {
        text.push_str(&against_first(reports));
    }
    text
}

/// Which columns are counted and which are not.
fn legend(first: &Report) -> String {
    let of = |kind: Kind| {
        let mut names: Vec<String> = FIGURES
            .iter()
            .filter(|figure| figure.kind == kind)
            .map(|figure| figure.heading.join(" ").trim_end().to_string())
            .collect();
        names.dedup();
        names.join(", ")
    };
    format!("{} | {}\ncounted | {}\n", first.time_kind(), of(Kind::Timed), of(Kind::Counted))
}

/// Payload and programs of every further report against the first, in percent less.
fn against_first(reports: &[Report]) -> String {
    let (names, labels) = labels(reports);
    let label = |index: usize| {
        if names.is_empty() { String::new() } else { labels[index].join(" ") }
    };
    let width = (1..reports.len()).map(|index| label(index).chars().count()).max().unwrap_or(0);
    let mut text = format!("against {}:\n", label(0));
    let figures = [&FIGURES[3], &FIGURES[6], &FIGURES[1]];
    for (index, report) in reports.iter().enumerate().skip(1) {
        let changes = figures.map(|figure| {
            let (base, now) = ((figure.read)(&reports[0]), (figure.read)(report));
            let heading = figure.heading.join(" ");
            if base == 0.0 {
                return format!("{heading} {:>10}", "-");
            }
            let change = now / base - 1.0;
            let sign = if change > 0.0 { "+" } else { "" };
            format!("{heading} {:>10}", format!("{sign}{}", percent(change)))
        });
        text.push_str(&format!("  {:<width$}   {}\n", label(index), changes.join("   ")));
    }
    text
}

/// Names of the settings in which reports differ, and each report's values of them.
fn labels(reports: &[Report]) -> (Vec<String>, Vec<Vec<String>>) {
    let flat: Vec<Vec<(String, String)>> = reports
        .iter()
        .map(|report| {
            let mut leaves = Vec::new();
            flatten(&report.config, "", &mut leaves);
            leaves
        })
        .collect();
    let value = |report: usize, key: &str| {
        flat[report].iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    };
    let differing: Vec<&str> = flat[0]
        .iter()
        .map(|(key, _)| key.as_str())
        .filter(|key| (1..reports.len()).any(|other| value(other, key) != value(0, key)))
        .collect();
    if differing.is_empty() || differing.len() > SETTINGS {
        let rows = reports.iter().map(|report| vec![report.profile.clone()]).collect();
        return (vec!["profile".into()], rows);
    }
    let rows = (0..reports.len())
        .map(|report| differing.iter().map(|key| value(report, key).unwrap_or("").to_string()).collect())
        .collect();
    // `packing.policy` is known by its section; the other names speak for themselves.
    let name = |key: &&str| match key.split_once('.') {
        Some((section, "policy" | "kind" | "enabled" | "name")) => section.to_string(),
        Some((_, leaf)) => leaf.to_string(),
        None => key.to_string(),
    };
    (differing.iter().map(name).collect(), rows)
}

fn flatten(value: &Value, path: &str, leaves: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let key = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(value, &key, leaves);
            }
        }
        Value::String(text) => leaves.push((path.into(), text.clone())),
        other => leaves.push((path.into(), other.to_string())),
    }
}
