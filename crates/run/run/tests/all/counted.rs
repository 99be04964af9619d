//! What is counted does not depend on modelled times while one command is in flight, except what engines do beside
//! commands. With several commands, times decide which of them comes first, and counts may move: not tested here.

use std::collections::BTreeMap;

use kvdrive_config::{Document, default_profile};
use kvdrive_declare::Kind;
use kvdrive_device::engines::ENGINES;
use kvdrive_engines::packing::PACKINGS;
use kvdrive_link::transfer::METHODS;
use kvdrive_run::run;

/// The sections whose times are those of parts of the model.
const MODEL: &[&str] = &["host", "link", "controller", "flash", "lsm", "hash", "store", "saker"];

/// Numbers of `values` under their dotted names.
fn flatten(values: &serde_json::Value, name: &str, numbers: &mut Vec<(String, u64)>) {
    if let Some(map) = values.as_object() {
        let dot = if name.is_empty() { "" } else { "." };
        map.iter().for_each(|(key, value)| flatten(value, &format!("{name}{dot}{key}"), numbers));
    } else if let Some(number) = values.as_u64() {
        numbers.push((name.to_owned(), number));
    }
}

/// Every time of the model becomes another one, by factors that have no ratio in common.
fn with_other_times(document: &Document) -> Document {
    let mut numbers = Vec::new();
    flatten(&document.values(), "", &mut numbers);
    let is_time = |key: &str| {
        MODEL.iter().any(|section| key.split('.').next() == Some(section))
            && (key.ends_with("_ns") || key.ends_with("_ns_per_kib"))
    };
    let (mut other, mut changed) = (document.clone(), 0);
    for (index, (key, time)) in numbers.iter().filter(|(key, time)| is_time(key) && *time > 1).enumerate() {
        let (times, of) = [(7, 2), (1, 3), (11, 5), (5, 8)][index % 4];
        let assignment = format!("{key}={}", time * times / of);
        other.set(&assignment).unwrap_or_else(|error| panic!("{assignment}: {error}"));
        changed += 1;
    }
    assert!(changed > 20, "{changed} times of {numbers:?}");
    other
}

/// All counted numbers of a run, loading included, with the model time at its end.
fn counted(document: &Document) -> (BTreeMap<String, u64>, u64) {
    let report = run(document, &|_, _| {}).unwrap_or_else(|error| panic!("{error}"));
    let mut all = BTreeMap::new();
    for (section, counts) in report.counts.iter() {
        for count in counts.iter().filter(|count| count.counter.kind == Kind::Counted) {
            let label = count.label.unwrap_or_default();
            all.insert(format!("{section}.{}.{label}", count.counter.name), count.value);
        }
    }
    (all, report.time.virtual_ns)
}

/// Counters that differ between a run and the same run with other times.
fn moved(settings: &[String]) -> Vec<(String, u64, u64)> {
    let engine = settings[0].strip_prefix("engine.name=").unwrap();
    let mut document = Document::profile(default_profile(engine)).unwrap();
    for setting in settings {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    let ((usual, usual_ns), (other, other_ns)) = (counted(&document), counted(&with_other_times(&document)));
    assert_ne!(usual_ns, other_ns, "{settings:?}: the times matter");
    assert!(usual.len() > 20 && usual.keys().eq(other.keys()), "{settings:?}");
    let differ = usual.iter().filter(|(name, value)| other[*name] != **value);
    differ.map(|(name, value)| (name.clone(), *value, other[name])).collect()
}

fn settings(engine: &str, more: &[&str]) -> Vec<String> {
    let engine = format!("engine.name={engine}");
    std::iter::once(engine.as_str()).chain(more.iter().copied()).map(str::to_owned).collect()
}

/// Counters that times may move by a few in a hundred, with one command in flight, too: a part of these engines works
/// beside commands. While a page waits in memory to be programmed, a retrieve of it reads no flash; a node that changes
/// during a checkpoint is copied.
const BESIDE_COMMANDS: &[(&str, &[&str])] = &[
    ("original", &["engine.comparisons", "nand.reads"]),
    ("plus", &["engine.comparisons", "nand.reads"]),
    ("plus2", &["engine.comparisons", "nand.reads"]),
    ("hash8", &["engine.comparisons", "nand.reads"]),
    ("hashlog", &["nand.programs", "nand.reads"]),
    (
        "btree",
        &[
            "dram.buffer",
            "drive.live_bytes",
            "engine.free_pages",
            "engine.ftl_live_pages",
            "engine.shadowed_nodes",
            "nand.programs",
        ],
    ),
];

#[test]
fn with_one_command_in_flight_counts_of_engines_hardly_depend_on_times() {
    let mixed = ["workload.name=ycsb-a", "workload.num=3000", "workload.ops=3000", "workload.value_size=500"];
    for row in ENGINES.iter().filter(|row| row.name != "block") {
        let known =
            BESIDE_COMMANDS.iter().find(|(name, _)| *name == row.name).map_or(&[][..], |(_, all)| all);
        for (name, usual, other) in moved(&settings(row.name, &mixed)) {
            let is_known = known.iter().any(|known| name.starts_with(&format!("{known}.")));
            assert!(is_known, "{}: {name} is {usual}, and {other} with other times", row.name);
            assert!(usual.abs_diff(other) * 20 <= usual, "{}: {name} is {usual} or {other}", row.name);
        }
    }
}

#[test]
fn with_one_command_in_flight_no_count_of_transfer_or_packing_depends_on_a_time() {
    // `blend` weighs times of copies against those of pages: its choices, and so its pages, may depend on them.
    let packings = PACKINGS.iter().filter(|row| row.name != "blend");
    let packings = packings.map(|row| format!("packing.policy={}", row.name));
    for choice in packings.chain(METHODS.iter().map(|row| format!("host.transfer={}", row.name))) {
        let moved = moved(&settings("lsm", &["workload.name=w-m", "workload.ops=3000", &choice]));
        assert_eq!(moved, [], "{choice}");
    }
}
