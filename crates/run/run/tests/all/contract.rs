//! The JSON of runs is as its tables of fields say: nothing else is there, and nothing is missing.

use std::cell::RefCell;
use std::rc::Rc;

use kvdrive_config::{Document, faults};
use kvdrive_run::report::fields::{self, documents, schema, violation};
use kvdrive_run::{Watch, run_watched};
use serde_json::{Value, json};

/// The JSON of a run, and of its intervals.
fn ran(profile: &str, rules: &str, sets: &[&str]) -> (Value, Vec<Value>) {
    let mut document = Document::profile(profile).unwrap();
    for set in sets {
        document.set(set).unwrap_or_else(|error| panic!("{set}: {error}"));
    }
    let lines = Rc::new(RefCell::new(Vec::new()));
    let told = lines.clone();
    let watch = Watch {
        intervals: Some((10_000_000, Rc::new(move |interval| told.borrow_mut().push(interval.to_json())))),
        ..Watch::progress(&|_, _| {})
    };
    let geometry = document.config().unwrap().drive().flash.geometry();
    let rules = faults::rules("rules", rules, &geometry).unwrap();
    let ran = run_watched(&document, &rules, &watch).unwrap();
    let lines = lines.take();
    (serde_json::to_value(&ran.report).unwrap(), lines)
}

fn samples() -> (Vec<Value>, Vec<Value>) {
    let small = ["workload.ops=400", "workload.num=300", "flash.blocks_per_die=64"];
    let rule =
        "[[rule]]\nname = \"a\"\nfault = \"status\"\nopcode = \"retrieve\"\nstatus = \"81h\"\nnth = 3\n";
    let with = |sets: &[&'static str]| [&small[..], sets].concat();
    let (mut reports, mut lines) = (Vec::new(), Vec::new());
    for (profile, rules, sets) in [
        (
            "cosmos-plus",
            rule,
            with(&["workload.name=ycsb-e", "workload.verify=values", "run.interval_ns=10ms"]),
        ),
        (
            "cosmos-plus",
            rule,
            with(&["workload.name=mixed", "workload.read_fraction=0.2", "workload.delete_fraction=0.2"]),
        ),
        ("cosmos-plus", "", with(&["workload.name=fillrandom"])),
        ("kvvirt", "", with(&["workload.name=ycsb-a"])),
        ("saker-mid", "", with(&["workload.name=ycsb-a", "saker.enabled=true"])),
        (
            "cosmos-plus",
            "",
            vec!["workload.name=tpcc", "workload.shrink=256", "workload.ops=30", "run.interval_ns=10ms"],
        ),
        (
            "nvmevirt-970pro",
            "",
            vec!["workload.name=kvcache", "workload.cache_shrink=65536", "workload.cache_requests=30"],
        ),
    ] {
        let (report, intervals) = ran(profile, rules, &sets);
        reports.push(report);
        lines.extend(intervals);
    }
    (reports, lines)
}

/// Does a document have a value at this path of a table?
fn has(value: &Value, path: &[&str]) -> bool {
    let Some((part, rest)) = path.split_first() else { return true };
    let is_list = part.ends_with("[]");
    let name = part.trim_end_matches("[]").trim_end_matches('?');
    let below = |value: &Value| match value {
        Value::Array(items) if is_list => items.iter().any(|item| has(item, rest)),
        value => !is_list && has(value, rest),
    };
    match value {
        Value::Object(fields) if name == "*" => fields.values().any(below),
        Value::Object(fields) => fields.get(name).is_some_and(below),
        _ => false,
    }
}

#[test]
fn every_field_of_a_run_has_a_row_and_every_row_a_field() {
    let (reports, lines) = samples();
    assert!(lines.len() > 5);
    for document in documents().iter().filter(|document| document.name != "connected") {
        let (schema, samples) =
            (schema(document).unwrap(), if document.name == "report" { &reports } else { &lines });
        for sample in samples {
            assert_eq!(violation(&schema, sample, document.name), None);
        }
        // What only a point of DRAM, a stop or the commands of hosts bring is checked where these are.
        let elsewhere = ["dram_point", "is_stopped", "commands"];
        for field in
            document.fields.iter().filter(|field| !elsewhere.iter().any(|name| field.path.starts_with(name)))
        {
            let path: Vec<&str> = field.path.split('.').collect();
            assert!(
                samples.iter().any(|sample| has(sample, &path)),
                "{}: no sample has {}",
                document.name,
                field.path
            );
        }
    }
}

/// The checker of the schemas finds what is wrong.
#[test]
fn a_document_that_is_not_as_its_schema_says_is_refused_with_the_place() {
    let document = &documents()[0];
    let schema = schema(document).unwrap();
    let (report, _) = ran("cosmos-plus", "", &["workload.ops=20", "workload.name=ycsb-a", "workload.num=20"]);
    assert_eq!(violation(&schema, &report, "report"), None);
    for (path, wrong, place) in [
        ("/format", json!(2), "report.format: 2 is not 1"),
        ("/ops/store", json!("many"), "report.ops.store: \"many\" is no \"number\""),
        ("/ops/stores", json!(1), "report.ops.stores: no such field"),
        ("/latency_ns/store/p98", json!(1), "report.latency_ns.store.p98: no such field"),
        ("/pairs/key_bytes", json!([]), "report.pairs.key_bytes: [] is no [\"number\",\"null\"]"),
        ("/nand/programs/total", json!("1"), "report.nand.programs.total"),
        ("/nand/wonders", json!(1), "report.nand.wonders: no such field"),
        ("/wonders", json!({}), "report.wonders: no such field"),
    ] {
        let mut report = report.clone();
        let (parent, name) = path.rsplit_once('/').unwrap();
        report.pointer_mut(parent).unwrap()[name] = wrong;
        let found = violation(&schema, &report, "report").unwrap_or_default();
        assert!(found.starts_with(place), "{path}: {found}");
    }
    let mut report = report;
    report["value_bytes"].as_object_mut().unwrap().remove("stored");
    assert_eq!(
        violation(&schema, &report, "report").as_deref(),
        Some("report.value_bytes.stored is missing")
    );
}

#[test]
fn paths_and_units_of_fields_are_of_known_forms() {
    let units = [
        "count",
        "text",
        "flag",
        "any",
        "object",
        "counters",
        "pairs",
        "operations",
        "operations/s",
        "B",
        "B/s",
        "B/B",
        "ns",
        "s",
        "years",
        "share",
        "pages",
        "reads",
        "commands",
        "transactions",
        "transactions/s",
    ];
    for document in documents() {
        let mut paths: Vec<_> = document.fields.iter().map(|field| field.path).collect();
        for field in &document.fields {
            assert!(units.contains(&field.unit.trim_end_matches('?')), "{}: {}", field.path, field.unit);
            assert!(!field.about.is_empty() && !field.about.contains('|'), "{}", field.path);
        }
        paths.sort_unstable();
        let all = paths.len();
        paths.dedup();
        assert_eq!(all, paths.len(), "{}", document.name);
    }
    assert!(fields::page(&documents()).contains("| `bandwidth_bytes_per_s.stored` | B/s | modelled |"));
}
