//! Several reports as one table: one row for each report, one column for each figure.

use super::stalls::stalls;
use super::table::fold;
use super::table::{percent, rate, short, time};
use super::{Latency, Report, table};
use kvdrive_config::{DRAM_KEYS, NO_STORE};
use kvdrive_store::store_row;
use kvdrive_text::{WIDTH, grouped, wrap};
use serde_json::Value;

/// Most settings named in the table; if reports differ in more, the profile, the settings in [`ASKED_FOR`] and
/// those that the user set are named instead.
const SETTINGS: usize = 5;
/// Replaces the keys of a DRAM point if every report has one: its name instead of the bytes.
const DRAM_POINT: &str = "hash.dram";
/// Replaces the key that enables SAKER, and its batch size.
const SAKER: &str = "saker";
/// Replaces the key of the read cache on the host, that of SAKER or of a store.
const CACHE: &str = "cache";
/// Settings that have options of the command line.
const ASKED_FOR: &[&str] = &[
    "workload.name",
    "workload.distribution",
    "engine.name",
    DRAM_POINT,
    "hash.dram_accounting",
    "hash.dram_bytes",
    "media.kind",
    "packing.policy",
    "host.transfer",
    SAKER,
    CACHE,
    "workload.value_size",
];

/// One figure of the table: two lines of heading, and how it is computed from a report.
struct Figure {
    heading: [&'static str; 2],
    kind: Kind,
    read: Read,
    show: fn(f64) -> String,
}

/// How to compute a figure; the function returns none if the report does not have it.
enum Read {
    Report(fn(&Report) -> Option<f64>),
    /// From the latencies of one kind of operation.
    Latency(&'static str, fn(&Latency) -> f64),
}

impl Figure {
    fn of_report(&self, report: &Report) -> Option<f64> {
        match self.read {
            Read::Report(read) => read(report),
            Read::Latency(operation, read) => report.latency_ns.get(operation).map(read),
        }
    }

    /// Mean over the seeds of a row.
    fn of(&self, row: &Row<'_>) -> Option<f64> {
        let sum: Option<f64> = row.0.iter().map(|report| self.of_report(report)).sum();
        sum.map(|sum| sum / row.0.len() as f64)
    }

    /// Half of the range over the seeds of a row, relative to their mean.
    fn spread(&self, row: &Row<'_>) -> Option<f64> {
        let values: Option<Vec<f64>> = row.0.iter().map(|report| self.of_report(report)).collect();
        let (values, mean) = (values.filter(|values| values.len() > 1)?, self.of(row)?);
        let (least, most) = values
            .iter()
            .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
        Some(if mean == 0.0 { 0.0 } else { (most - least) / 2.0 / mean })
    }

    fn cell(&self, row: &Row<'_>) -> String {
        let cell = self.of(row).map_or_else(|| "-".to_owned(), self.show);
        match self.spread(row) {
            Some(spread) => format!("{cell} ±{:.1} %", 100.0 * spread),
            None => cell,
        }
    }
}

/// Reports that differ only in their seeds: one row of the table.
struct Row<'a>(Vec<&'a Report>);

impl Row<'_> {
    /// Was a run of it stopped? The drive may then be in another state than those of the other rows, so its figures are
    /// not compared with theirs.
    fn is_stopped(&self) -> bool {
        self.0.iter().any(|report| report.is_stopped)
    }
}

/// Groups reports into rows, in the order of first occurrence.
fn rows(reports: &[Report]) -> Vec<Row<'_>> {
    let asked = |report: &Report| {
        let mut config = report.config.clone();
        if let Some(seed) = config.pointer_mut("/run/seed") {
            *seed = Value::Null;
        }
        (report.profile.clone(), config, report.dram_point.clone())
    };
    let mut rows: Vec<(_, Row<'_>)> = Vec::new();
    for report in reports {
        let this = asked(report);
        let same_seed = |row: &Row<'_>| row.0.iter().any(|known| known.seed == report.seed);
        match rows.iter_mut().find(|(known, row)| *known == this && !same_seed(row)) {
            Some((_, row)) => row.0.push(report),
            None => rows.push((this, Row(vec![report]))),
        }
    }
    rows.into_iter().map(|(_, row)| row).collect()
}

const fn mean(operation: &'static str) -> Figure {
    let read = Read::Latency(operation, |latency| latency.mean);
    Figure { heading: [operation, "mean"], kind: Kind::Timed, read, show: time }
}

const fn p99(operation: &'static str) -> Figure {
    let read = Read::Latency(operation, |latency| latency.p99 as f64);
    Figure { heading: [operation, "p99"], kind: Kind::Timed, read, show: time }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Counted,
    Timed,
}

const OPERATIONS: Figure = Figure {
    heading: ["operations", ""],
    kind: Kind::Timed,
    read: Read::Report(|report| (report.ops.answered() > 0).then_some(report.throughput_ops_per_s)),
    show: rate,
};
const STORE_MEAN: Figure = mean("store");
const STORE_P99: Figure = p99("store");
const RETRIEVE_MEAN: Figure = mean("retrieve");
const RETRIEVE_P99: Figure = p99("retrieve");
// A scan is a seek and its nexts.
const SEEK_MEAN: Figure = mean("seek");
const SEEK_P99: Figure = p99("seek");
const NEXT_MEAN: Figure = mean("next");
const NEXT_P99: Figure = p99("next");
const PAYLOAD: Figure = Figure {
    heading: ["payload", "B/op"],
    kind: Kind::Counted,
    read: Read::Report(|report| {
        let ops = report.ops.answered();
        let payload = report.counts.get("traffic.payload_bytes").filter(|_| ops > 0)?;
        Some(payload as f64 / ops as f64)
    }),
    show: short,
};
const TRAFFIC: Figure = Figure {
    heading: ["traffic", "amp."],
    kind: Kind::Counted,
    read: Read::Report(|report| report.amplification.traffic),
    show: short,
};
const VALUE_PAGES: Figure = Figure {
    heading: ["value", "pages"],
    kind: Kind::Counted,
    read: Read::Report(|report| report.counts.get("engine.value_pages_opened").map(|pages| pages as f64)),
    show: |pages| grouped(pages as u64),
};
const READS: Figure = Figure {
    heading: ["NAND", "reads"],
    kind: Kind::Counted,
    read: Read::Report(|report| report.counts.get("nand.reads").map(|pages| pages as f64)),
    show: |pages| grouped(pages as u64),
};
const PROGRAMS: Figure = Figure {
    heading: ["NAND", "programs"],
    kind: Kind::Counted,
    read: Read::Report(|report| report.counts.get("nand.programs").map(|pages| pages as f64)),
    show: |pages| grouped(pages as u64),
};
const WRITE_AMPLIFICATION: Figure = Figure {
    heading: ["write", "amp."],
    kind: Kind::Counted,
    read: Read::Report(|report| report.amplification.write),
    show: short,
};
/// An extra column, shown if operations failed.
const ERRORS: Figure = Figure {
    heading: ["errors", ""],
    kind: Kind::Counted,
    read: Read::Report(|report| Some(report.ops.errors as f64)),
    show: |errors| grouped(errors as u64),
};

/// Columns for workloads that store, and the figures compared with the first report below the table.
const STORING: (&[Figure], &[Figure]) = (
    &[OPERATIONS, STORE_MEAN, STORE_P99, PAYLOAD, TRAFFIC, VALUE_PAGES, PROGRAMS, WRITE_AMPLIFICATION],
    &[PAYLOAD, PROGRAMS, STORE_MEAN],
);
/// The same for workloads that also read.
const READING: (&[Figure], &[Figure]) = (
    &[OPERATIONS, RETRIEVE_MEAN, RETRIEVE_P99, STORE_MEAN, STORE_P99, READS, PROGRAMS, WRITE_AMPLIFICATION],
    &[OPERATIONS, READS, PROGRAMS],
);
/// The same for workloads that scan.
const SCANNING: (&[Figure], &[Figure]) = (
    &[OPERATIONS, SEEK_MEAN, SEEK_P99, NEXT_MEAN, NEXT_P99, STORE_MEAN, READS, PROGRAMS, WRITE_AMPLIFICATION],
    &[OPERATIONS, READS, PROGRAMS],
);
/// The same for a mixture of workloads that read and that scan.
const READING_AND_SCANNING: (&[Figure], &[Figure]) = (
    &[
        OPERATIONS,
        RETRIEVE_MEAN,
        RETRIEVE_P99,
        SEEK_MEAN,
        NEXT_MEAN,
        STORE_MEAN,
        READS,
        PROGRAMS,
        WRITE_AMPLIFICATION,
    ],
    &[OPERATIONS, READS, PROGRAMS],
);

/// The columns for these reports: a workload reads (or scans) if at least one in ten operations does. The
/// nexts of a scan count as part of it.
fn figures(reports: &[Report]) -> (&'static [Figure], &'static [Figure]) {
    let is_often = |report: &Report, count: u64| count * 10 > report.ops.total() - report.ops.next;
    let reads = reports.iter().any(|report| is_often(report, report.ops.retrieve));
    let scans = reports.iter().any(|report| is_often(report, report.ops.seek));
    match (reads, scans) {
        (false, false) => STORING,
        (true, false) => READING,
        (false, true) => SCANNING,
        (true, true) => READING_AND_SCANNING,
    }
}

/// Several reports side by side, named by the settings in which they differ, with the best of each figure
/// relative to the first report.
pub fn compare(reports: &[Report]) -> String {
    compare_in(reports, WIDTH)
}

/// As [`compare`], for `room` columns of text: columns that do not fit go below, with the names of the rows
/// again.
pub fn compare_in(reports: &[Report], room: usize) -> String {
    let Some(first) = reports.first() else {
        return "nothing to compare\n".into();
    };
    let grouped = self::rows(reports);
    let firsts: Vec<Report> = grouped.iter().map(|row| row.0[0].clone()).collect();
    let (names, labels) = labels(&firsts);
    let (shown, _) = figures(reports);
    let failed = reports.iter().any(|report| report.ops.errors > 0).then_some(&ERRORS);
    let has_value_pages =
        reports.iter().any(|report| report.counts.get("engine.value_pages_opened").is_some());
    let shown = shown.iter().filter(|figure| has_value_pages || figure.heading != VALUE_PAGES.heading);
    let shown: Vec<&Figure> = shown.chain(failed).collect();
    let mut rows: Vec<Vec<String>> = vec![names.clone(), vec![String::new(); names.len()]];
    for figure in &shown {
        rows[0].push(figure.heading[0].into());
        rows[1].push(figure.heading[1].into());
    }
    for (row, label) in grouped.iter().zip(&labels) {
        let cells = shown.iter().map(|figure| figure.cell(row));
        rows.push(label.iter().cloned().chain(cells).collect());
    }
    let columns = rows[0].len();
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = heading(first, &names, &grouped, room.min(WIDTH));
    let (of_labels, of_figures) = widths.split_at(names.len());
    let labels_width = of_labels.iter().sum::<usize>() + 2 * (names.len().max(1) - 1);
    for block in fold(labels_width, of_figures, 2, room) {
        let shown: Vec<usize> = (0..names.len()).chain(block.map(|figure| names.len() + figure)).collect();
        let line = |row: &[String]| {
            let mut line = String::new();
            for &column in &shown {
                let (cell, width) = (&row[column], widths[column]);
                line.push_str(&match column < names.len() {
                    true => format!("{cell:<width$}  "),
                    false => format!("{cell:>width$}  "),
                });
            }
            format!("{}\n", line.trim_end())
        };
        let width = shown.iter().map(|column| widths[*column] + 2).sum::<usize>() - 2;
        let rule = "-".repeat(width) + "\n";
        text.push_str(&rule);
        rows[..2].iter().for_each(|row| text.push_str(&line(row)));
        text.push_str(&rule);
        rows[2..].iter().for_each(|row| text.push_str(&line(row)));
        text.push_str(&rule);
    }
    text.push_str(&legend(reports, &shown, room));
    text.push_str(&stalls(reports, room));
    if grouped.iter().any(|row| row.0.len() > 1) {
        text.push_str(&wrap(
            "means over the seeds | ± half of the difference between the smallest and the largest",
            room,
        ));
    }
    text.push_str(&different_profiles(&firsts, room));
    text.push_str(&notes(&grouped, &labels, room));
    if grouped.len() > 1 {
        text.push_str(&against_first(reports, &grouped, (&names, &labels), room));
    }
    text
}

/// Properties that all reports have in common: workload and settings.
fn heading(first: &Report, names: &[String], rows: &[Row<'_>], room: usize) -> String {
    let mut common = Vec::new();
    if !names.contains(&"workload".to_owned()) {
        common.push(first.setting("workload", "name").to_owned());
    }
    let ops = operations(first);
    if rows.iter().flat_map(|row| &row.0).all(|report| operations(report) == ops) {
        let most = if rows.iter().any(Row::is_stopped) { "at most " } else { "" };
        common.push(format!("{most}{} operations", grouped(ops)));
    }
    if !names.contains(&"profile".to_owned()) {
        common.push(first.profile.clone());
    }
    let left = common.join(", ");
    let mut seeds: Vec<u64> = rows.iter().flat_map(|row| row.0.iter().map(|report| report.seed)).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let several = if rows.iter().any(|row| row.0.len() > 1) { "seeds" } else { "seed" };
    let seeds = match several {
        "seeds" => seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
        _ => first.seed.to_string(),
    };
    let right = format!("{several} {seeds}, {} clock, {}", first.clock, first.revision);
    table::edges(&left, &right, room) + "\n"
}

/// The operations that a run was asked for; those that it did, if its workload, its drive or a time determined them.
fn operations(report: &Report) -> u64 {
    let ends = kvdrive_workload::row(&report.setting("workload", "name")).is_some_and(|row| row.ends);
    let is_timed = report.setting("workload", "duration_ns") != "0";
    let is_open = ends || is_timed || report.setting("workload", "until_full") == "true";
    let asked = report.setting("workload", "ops").parse().ok().filter(|_| !is_open);
    asked.unwrap_or(report.ops.total())
}

/// Notes of the runs. A note of several runs is printed once, with the rows it concerns unless it concerns
/// all.
fn notes(rows: &[Row<'_>], labels: &[Vec<String>], room: usize) -> String {
    let mut notes: Vec<(&String, Vec<usize>)> = Vec::new();
    for (row, reports) in rows.iter().enumerate() {
        for note in reports.0.iter().flat_map(|report| &report.notes) {
            match notes.iter_mut().find(|(known, _)| *known == note) {
                Some((_, rows)) if rows.contains(&row) => {}
                Some((_, rows)) => rows.push(row),
                None => notes.push((note, vec![row])),
            }
        }
    }
    let all = rows.len();
    let line = |(note, rows): (&String, Vec<usize>)| match rows.len() == all {
        true => wrap(&format!("note: {note}"), room.min(WIDTH)),
        false => wrap(&format!("note on {}: {note}", named(&rows, labels)), room.min(WIDTH)),
    };
    notes.into_iter().map(line).collect()
}

/// Names rows by a setting that only they have in common, such as a workload; otherwise one by one.
fn named(rows: &[usize], labels: &[Vec<String>]) -> String {
    let first = &labels[rows[0]];
    let agree = |column: &usize| rows.iter().all(|row| labels[*row][*column] == first[*column]);
    let common: Vec<usize> = (0..first.len()).filter(agree).collect();
    let is_like_them = |label: &&Vec<String>| common.iter().all(|column| label[*column] == first[*column]);
    if labels.iter().filter(is_like_them).count() == rows.len() {
        common.iter().map(|column| first[*column].as_str()).collect::<Vec<_>>().join(" ")
    } else {
        rows.iter().map(|row| labels[*row].join(" ")).collect::<Vec<_>>().join(", ")
    }
}

/// Which columns are counted, modelled or measured.
fn legend(reports: &[Report], shown: &[&Figure], room: usize) -> String {
    let of = |kind: Kind| {
        let mut names: Vec<String> = shown
            .iter()
            .filter(|figure| figure.kind == kind)
            .map(|figure| figure.heading.join(" ").trim_end().to_string())
            .collect();
        names.dedup();
        names.join(", ")
    };
    let mut kinds: Vec<String> = Vec::new();
    for kind in reports.iter().map(|report| report.time_kind().to_string()) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    wrap(&format!("{} | {}", kinds.join("; "), of(Kind::Timed)), room)
        + &wrap(&format!("counted | {}", of(Kind::Counted)), room)
}

/// Some figures of every further report relative to the first one with the same workload, in percent.
fn against_first(
    reports: &[Report],
    rows: &[Row<'_>],
    (names, labels): (&[String], &[Vec<String>]),
    room: usize,
) -> String {
    // A number alone does not say which setting it is of.
    let named = |index: usize| match (names, &labels[index][..]) {
        ([_], [value]) if value.parse::<f64>().is_err() => value.clone(),
        (names, values) => {
            let each = names.iter().zip(values).map(|(name, value)| format!("{name} {value}"));
            each.collect::<Vec<_>>().join(", ")
        }
    };
    let label = |index: usize| labels[index].join(" ");
    let width = (1..rows.len()).map(|index| label(index).chars().count()).max().unwrap_or(0);
    let (_, held) = figures(reports);
    let asked = |report: &Report| ["name", "distribution"].map(|key| report.setting("workload", key));
    let base_of =
        |row: &Row<'_>| rows.iter().position(|first| asked(first.0[0]) == asked(row.0[0])).unwrap_or(0);
    let mut text = String::new();
    let mut last_base = None;
    let mut by_base: Vec<_> = rows.iter().map(|row| (base_of(row), row)).enumerate().collect();
    by_base.sort_by_key(|(_, (base, _))| *base);
    for (index, (base, row)) in by_base {
        if base == index || row.is_stopped() || rows[base].is_stopped() {
            continue;
        }
        if last_base.replace(base) != Some(base) {
            text.push_str(&format!("against {}:\n", named(base)));
        }
        let changes = held.iter().map(|figure| {
            let heading = figure.heading.join(" ");
            let base = figure.of(&rows[base]).filter(|base| *base != 0.0);
            let Some((base, now)) = base.zip(figure.of(row)) else {
                return format!("{heading} {:>10}", "-");
            };
            let change = now / base - 1.0;
            let sign = if change > 0.0 { "+" } else { "" };
            format!("{heading} {:>10}", format!("{sign}{}", percent(change)))
        });
        let changes: Vec<String> = changes.collect();
        let wide = format!("  {:<width$}   {}\n", label(index), changes.join("   "));
        if wide.chars().count() <= room + 1 || room >= WIDTH {
            text.push_str(&wide);
        } else {
            // Rows are listed below each other, each with its number.
            text.push_str(&format!("  {}\n", label(index)));
            changes.iter().for_each(|change| text.push_str(&format!("    {change}\n")));
        }
    }
    if rows.iter().any(Row::is_stopped) {
        let stopped = (0..rows.len()).filter(|index| rows[*index].is_stopped());
        let stopped = stopped.map(named).collect::<Vec<_>>().join("; ");
        let why = "not compared, since they ended before their last operation";
        text.push_str(&wrap(&format!("{why}: {stopped}"), room.min(WIDTH)));
    }
    text
}

/// A note if drives differ in more than the chosen settings.
fn different_profiles(reports: &[Report], room: usize) -> String {
    let mut profiles: Vec<&str> = reports.iter().map(|report| report.profile.as_str()).collect();
    profiles.dedup();
    profiles.sort_unstable();
    profiles.dedup();
    if profiles.len() < 2 {
        return String::new();
    }
    let problem = "these are drives of different profiles: their flash, link and firmware differ as well";
    wrap(&format!("note: {problem} ({}); give one profile to all", profiles.join(", ")), room.min(WIDTH))
}

/// The settings in which reports differ, and the values of each report.
fn labels(reports: &[Report]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut flat: Vec<Vec<(String, String)>> = reports
        .iter()
        .map(|report| {
            let mut leaves = Vec::new();
            flatten(&report.config, "", &mut leaves);
            leaves
        })
        .collect();
    let points: Option<Vec<&String>> = reports.iter().map(|report| report.dram_point.as_ref()).collect();
    for (leaves, point) in flat.iter_mut().zip(points.into_iter().flatten()) {
        let at = leaves.iter().position(|(key, _)| DRAM_KEYS.contains(&key.as_str()));
        leaves.retain(|(key, _)| !DRAM_KEYS.contains(&key.as_str()));
        leaves.insert(at.unwrap_or(0), (DRAM_POINT.into(), point.clone()));
    }
    flat.iter_mut().for_each(place_cache);
    flat.iter_mut().for_each(place_store);
    flat.iter_mut().for_each(place_saker);
    let value = |report: usize, key: &str| {
        flat[report].iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    };
    // Some reports have keys that do not apply to the others.
    let widest = flat.iter().max_by_key(|leaves| leaves.len()).expect("there is a report");
    let differing: Vec<&str> = widest
        .iter()
        .map(|(key, _)| key.as_str())
        .filter(|key| (1..reports.len()).any(|other| value(other, key) != value(0, key)))
        .collect();
    let is_summed_up = differing.is_empty() || differing.len() > SETTINGS;
    let is_asked = |key: &str| ASKED_FOR.contains(&key) || reports.iter().any(|report| has_set(report, key));
    let differing: Vec<&str> = differing.into_iter().filter(|key| !is_summed_up || is_asked(key)).collect();
    let rows = (0..reports.len())
        .map(|report| {
            let profile = is_summed_up.then(|| reports[report].profile.clone());
            let values = differing.iter().map(|key| value(report, key).unwrap_or("").to_string());
            profile.into_iter().chain(values).collect()
        })
        .collect();
    // `packing.policy` is known by its section; other settings are known by their names, if these are different.
    let short = |key: &str| match key.split_once('.') {
        Some((section, "policy" | "kind" | "enabled" | "name")) => section.to_string(),
        Some((_, leaf)) => leaf.to_string(),
        None => key.to_string(),
    };
    let name = |key: &&str| match differing.iter().filter(|other| short(other) == short(key)).count() {
        1 => short(key),
        _ => key.to_string(),
    };
    (is_summed_up.then(|| "profile".into()).into_iter().chain(differing.iter().map(name)).collect(), rows)
}

/// Did the user set this key for the run of a report?
pub fn has_set(report: &Report, key: &str) -> bool {
    report.set.iter().any(|set| set.split_once('=').is_some_and(|(set, _)| set == key))
}

/// Replaces the key of the cache's bytes by the name of the layer that has the cache.
fn place_cache(leaves: &mut Vec<(String, String)>) {
    let value = |key: &str| leaves.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str());
    let of_store = value("host.store").and_then(store_row).map(|row| row.read_cache);
    let of_saker = || (value("saker.enabled") == Some("true")).then_some("saker.cache_bytes");
    let key = of_store.unwrap_or_else(of_saker);
    let bytes = key.and_then(value).and_then(|bytes| bytes.parse().ok()).unwrap_or(0_u64);
    let shown = match bytes {
        0 => "none".to_owned(),
        bytes if bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        bytes => format!("{bytes} B"),
    };
    let at = leaves.iter().position(|(known, _)| known == "saker.batch").unwrap_or(leaves.len());
    leaves.insert(at, (CACHE.into(), shown));
    leaves.retain(|(known, _)| key != Some(known));
}

/// Settings of SAKER are dropped if it is off; if it is on, the batch size represents it.
fn place_saker(leaves: &mut Vec<(String, String)>) {
    let value = |key: &str| leaves.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone());
    let Some(at) = leaves.iter().position(|(key, _)| key == "saker.enabled") else { return };
    let batch = match (value("saker.enabled").as_deref(), value("saker.batch").as_deref()) {
        (Some("true"), Some("0")) => "adaptive".to_owned(),
        (Some("true"), Some(requests)) => format!("batch {requests}"),
        _ => {
            leaves.retain(|(key, _)| !key.starts_with("saker."));
            "off".to_owned()
        }
    };
    leaves.retain(|(key, _)| !["saker.enabled", "saker.batch"].contains(&key.as_str()));
    leaves.insert(at.min(leaves.len()), (SAKER.into(), batch));
}

/// The name of a store on the host takes the place of the engine, since the drive below it has blocks.
fn place_store(leaves: &mut Vec<(String, String)>) {
    let Some(at) = leaves.iter().position(|(key, _)| key == "host.store") else { return };
    let (_, store) = leaves.remove(at);
    if store != NO_STORE
        && let Some((_, engine)) = leaves.iter_mut().find(|(key, _)| key == "engine.name")
    {
        *engine = format!("{store} on host");
    }
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
