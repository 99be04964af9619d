//! A line about means above the 99th percentile: a few operations wait so long that they dominate the mean.

use kvdrive_text::{grouped, wrap};

use super::Report;
use super::table::time;

/// A line for each kind of operation whose mean is above its p99 in one of the reports; empty if there is
/// none.
pub(super) fn stalls(reports: &[Report], room: usize) -> String {
    let kinds = reports.iter().flat_map(|report| report.latency_ns.iter().map(|(kind, _)| kind));
    let mut known: Vec<&str> = Vec::new();
    for kind in kinds {
        if !known.contains(&kind) {
            known.push(kind);
        }
    }
    known.into_iter().map(|kind| stalls_of(reports, kind, room)).collect()
}

fn stalls_of(reports: &[Report], kind: &str, room: usize) -> String {
    let stalled = reports.iter().filter_map(|report| {
        let latency = report.latency_ns.get(kind)?;
        (latency.mean > latency.p99 as f64).then_some((report, latency.max))
    });
    let stalled: Vec<_> = stalled.collect();
    let within = match reports.iter().filter(|report| report.latency_ns.get(kind).is_some()).count() {
        all if all == stalled.len() => String::new(),
        all => format!("in {} of {all} runs, ", stalled.len()),
    };
    said(&stalled, kind, &within, room)
}

/// The same for the commands of a served drive.
pub(super) fn stalls_of_commands(report: &Report, room: usize) -> String {
    let stalled = report.commands.iter().filter(|(_, of)| of.mean_ns > of.p99_ns as f64);
    stalled.map(|(opcode, of)| said(&[(report, of.max_ns)], opcode, "", room)).collect()
}

/// The line for one kind of operation or command: reports in which its mean is above its p99, with its
/// longest wait; `within` tells how many reports these are, unless they are all.
fn said(stalled: &[(&Report, u64)], kind: &str, within: &str, room: usize) -> String {
    let longest = stalled.iter().map(|(_, max)| *max);
    let (Some(least), Some(most)) = (longest.clone().min(), longest.max()) else { return String::new() };
    let [least, most] = [least, most].map(|ns| time(ns as f64));
    let longest = if least == most { most } else { format!("{least} to {most}") };
    let for_what = waits_for(stalled[0].0, kind);
    let line = format!(
        "{within}the mean of {kind} lies above its p99: fewer than 1 in 100 wait for {for_what}, the longest for {longest}"
    );
    wrap(&line, room)
}

/// Kinds of operations and commands that only read; the others change what is stored, and wait for room.
const READS: [&str; 6] = ["retrieve", "retrieve-part", "exist", "list", "seek", "next"];

/// The wait of the longest operations of a kind. Engine `lsm` collects inside the store that needs room, and
/// looks up each value's key in the index.
fn waits_for(report: &Report, kind: &str) -> String {
    let count = |path| report.counts.get(path).unwrap_or(0);
    if READS.contains(&kind) {
        // A store flushes and merges inside its command, and keeps the context that later commands need.
        let ahead = match count("engine.index_flushes") {
            0 => "what is ahead of them on its dies",
            _ => "stores ahead of them that flush and merge the index",
        };
        return format!("reads of flash, and for {ahead}");
    }
    let (reads, moved) = (count("nand.reads.gc_index"), count("engine.gc_moved_pairs"));
    match report.setting("engine", "name").as_str() {
        "lsm" if reads > 0 => format!(
            "collection of the value log ({} index reads to move {} values), flushes and merges",
            grouped(reads),
            grouped(moved)
        ),
        "lsm" => "flushes and merges of the index".to_owned(),
        _ => "flushes, merges and collection".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Commands, Latency};
    use kvdrive_declare::{Counters, Sections};

    #[derive(Counters)]
    struct Flushes {
        /// Memtables that were flushed.
        index_flushes: u64,
    }

    fn report(mean: f64, p99: u64, max: u64) -> Report {
        let latency = Latency { mean, p99, max, ..Latency::default() };
        Report { latency_ns: [("store", latency)].into_iter().collect(), ..Report::default() }
    }

    #[test]
    fn a_mean_above_its_p99_is_explained_with_the_longest_and_others_are_not() {
        let usual = report(30e3, 31_300, 53_000_000);
        assert_eq!(stalls(std::slice::from_ref(&usual), 100), "");
        let text =
            stalls(&[report(52.6e3, 31_300, 160_000_000), usual, report(52.6e3, 31_300, 53_000_000)], 200);
        assert!(
            text.contains("mean of store lies above its p99") && text.contains("53.00 ms to 160.0 ms"),
            "{text}"
        );
    }

    #[test]
    fn a_retrieve_waits_for_reads_and_not_for_merges() {
        let mut report = report(52.6e3, 31_300, 160_000_000);
        let latency = Latency { mean: 52.6e3, p99: 31_300, max: 160_000_000, ..Latency::default() };
        report.latency_ns = [("retrieve", latency)].into_iter().collect();
        let text = stalls(&[report], 200);
        assert!(text.contains("wait for reads of flash") && !text.contains("merges"), "{text}");
    }

    /// With one context, a retrieve waits for the store that holds it.
    #[test]
    fn a_retrieve_behind_a_merge_waits_for_it() {
        let mut report = report(52.6e3, 31_300, 160_000_000);
        let latency = Latency { mean: 52.6e3, p99: 31_300, max: 160_000_000, ..Latency::default() };
        report.latency_ns = [("retrieve", latency)].into_iter().collect();
        report.counts = Sections::default().with("engine", Flushes { index_flushes: 3 }.counts());
        let text = stalls(&[report], 200);
        assert!(text.contains("reads of flash, and for stores ahead of them that flush"), "{text}");
    }

    #[test]
    fn a_command_of_a_served_drive_is_explained_like_an_operation() {
        let slow = Commands {
            count: 90_000,
            mean_ns: 710e3,
            p99_ns: 655_000,
            max_ns: 201_000_000,
            ..Commands::default()
        };
        let usual = Commands { mean_ns: 12e3, ..slow.clone() };
        let commands = [("store", slow.clone()), ("retrieve-part", slow), ("exist", usual)];
        let report = Report { commands: commands.into_iter().collect(), ..Report::default() };
        let text = stalls_of_commands(&report, 200);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            text.contains("mean of store") && text.contains("merges") && text.contains("201.0 ms"),
            "{text}"
        );
        assert!(text.contains("mean of retrieve-part") && text.contains("reads of flash"), "{text}");
        assert_eq!(stalls_of_commands(&Report::default(), 200), "");
    }
}
