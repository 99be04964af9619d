//! Several reports as one table: one row for each report, one column for each figure.

mod figures;
mod labels;
mod rows;

use super::stalls::stalls;
use super::table::{fold, percent};
use super::{Report, table};
use figures::{ERRORS, Figure, Kind, VALUE_PAGES, figures};
use kvdrive_text::{WIDTH, grouped, wrap};
use labels::labels;
use rows::{Row, rows};

pub use labels::has_set;

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
    let grouped = rows(reports);
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
    text.push_str(&about(&grouped, &labels, room.min(WIDTH)));
    let (of_labels, of_figures) = widths.split_at(names.len());
    // If columns do not fit side by side, they first lose some of the space between them.
    let labels_width = |gap: usize| of_labels.iter().sum::<usize>() + gap * (names.len().max(1) - 1);
    let fits = |gap: &usize| fold(labels_width(*gap), of_figures, *gap, room).len() == 1;
    let gap = [2, 1].into_iter().find(fits).unwrap_or(2);
    for block in fold(labels_width(gap), of_figures, gap, room) {
        let shown: Vec<usize> = (0..names.len()).chain(block.map(|figure| names.len() + figure)).collect();
        let line = |row: &[String]| {
            let mut line = String::new();
            for &column in &shown {
                let (cell, width) = (&row[column], widths[column]);
                line.push_str(&match column < names.len() {
                    true => format!("{cell:<width$}{:gap$}", ""),
                    false => format!("{cell:>width$}{:gap$}", ""),
                });
            }
            format!("{}\n", line.trim_end())
        };
        let width = shown.iter().map(|column| widths[*column] + gap).sum::<usize>() - gap;
        let rule = "-".repeat(width) + "\n";
        text.push_str(&rule);
        let headings = rows[..2].iter().map(|row| line(row));
        headings.filter(|heading| !heading.trim().is_empty()).for_each(|heading| text.push_str(&heading));
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

/// Which drives they are, and the pairs of the runs: a line for all rows, or one for each group of them.
fn about(rows: &[Row<'_>], labels: &[Vec<String>], room: usize) -> String {
    let mut drives: Vec<String> = Vec::new();
    let mut pairs: Vec<(String, Vec<usize>)> = Vec::new();
    for (row, reports) in rows.iter().enumerate() {
        let report = reports.0[0];
        let drive = report.drive_in_words();
        if !drive.is_empty() && !drives.contains(&drive) {
            drives.push(drive);
        }
        let Some(line) = report.pairs.as_ref().map(|pairs| pairs.in_words()) else { continue };
        match pairs.iter_mut().find(|(known, _)| *known == line) {
            Some((_, rows)) => rows.push(row),
            None => pairs.push((line, vec![row])),
        }
    }
    let of_pairs = |(line, of): (String, Vec<usize>)| match of.len() == rows.len() {
        true => wrap(&line, room),
        false => wrap(&format!("{}: {line}", named(&of, labels)), room),
    };
    let drives = drives.into_iter().map(|drive| wrap(&drive, room));
    drives.chain(pairs.into_iter().map(of_pairs)).collect()
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
