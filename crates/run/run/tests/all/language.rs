//! What a report says first: the drive, the pairs with their sizes, bandwidth, and one line over all operations.

use std::cell::RefCell;
use std::rc::Rc;

use kvdrive_config::{Document, PROFILES};
use kvdrive_run::report::{Report, compare};
use kvdrive_run::{Watch, run, run_watched};

fn document(profile: &str, sets: &[&str]) -> Document {
    let mut document = Document::profile(profile).unwrap();
    for set in sets {
        document.set(set).unwrap_or_else(|error| panic!("{set}: {error}"));
    }
    document
}

fn report(sets: &[&str]) -> Report {
    run(&document("cosmos-plus", sets), &|_, _| {}).unwrap()
}

const SMALL: [&str; 2] = ["workload.ops=300", "workload.num=500"];

fn of(name: &str, further: &[&str]) -> Report {
    report(&[&SMALL, &[name][..], further].concat())
}

/// What a benchmark's name promises is not what its run does: the sizes stand in the first lines.
#[test]
fn a_report_and_a_comparison_say_which_pairs_they_are_of() {
    for (name, further, line) in [
        ("workload.name=ycsb-a", &[][..], "pairs 500, keys 4 B, values 32 B"),
        (
            "workload.name=ycsb-c",
            &["workload.key_size=23", "workload.value_size=1000"],
            "pairs 500, keys 23 B, values 1 000 B",
        ),
        ("workload.name=fillseq", &[], "pairs 300, keys 4 B, values 32 B"),
        ("workload.name=fillrandom", &[], "pairs at most 500, keys 4 B, values 32 B"),
        ("workload.name=w-c", &[], "pairs 300, keys 4 B, values 1."),
    ] {
        let report = of(name, further);
        let text = report.to_string();
        assert!(text.lines().any(|found| found.starts_with(line)), "{line}: {text}");
        let compared = compare(&[report]);
        assert!(compared.lines().any(|found| found.starts_with(line)), "{line}: {compared}");
    }
    let sizes = ["workload.value_size=100", "workload.value_size=200"];
    let text = compare(&sizes.map(|size| of("workload.name=ycsb-a", &[size])));
    assert!(
        text.contains("\n100: pairs 500, keys 4 B, values 100 B\n200: pairs 500, keys 4 B, values 200 B\n"),
        "{text}"
    );
    let pairs = of("workload.name=ycsb-a", &[]).pairs.unwrap();
    assert_eq!((pairs.count, pairs.key_bytes, pairs.value_bytes), (500, Some(4), Some(32)));
    assert_eq!((pairs.stored_mean_bytes, pairs.retrieved_mean_bytes), (Some(32.0), Some(32.0)));
}

#[test]
fn bandwidth_is_bytes_of_values_by_direction_over_the_time_of_the_run() {
    let report = of("workload.name=ycsb-a", &["workload.value_size=1000"]);
    let seconds = report.time.virtual_ns as f64 / 1e9;
    let near = |found: f64, bytes: u64| (found * seconds - bytes as f64).abs() < 1e-3;
    let (bandwidth, values) = (&report.bandwidth_bytes_per_s, &report.value_bytes);
    assert!(values.stored > 0 && values.retrieved > 0);
    assert!(near(bandwidth.stored, values.stored) && near(bandwidth.retrieved, values.retrieved));
    let shown = |bytes: f64| format!("{}/s", kvdrive_text::scaled::bytes(bytes));
    let line = format!("{} {}", shown(bandwidth.stored), shown(bandwidth.retrieved));
    let text = report.to_string();
    assert!(text.contains(&line), "{line}: {text}");
    let compared = compare(std::slice::from_ref(&report));
    assert!(
        compared.contains(&shown(bandwidth.stored)) && compared.contains(&shown(bandwidth.retrieved)),
        "{compared}"
    );
    // The intervals of a run have it as well.
    let lines = Rc::new(RefCell::new(Vec::new()));
    let told = lines.clone();
    let watch = Watch {
        intervals: Some((1_000_000, Rc::new(move |interval| told.borrow_mut().push(interval.to_json())))),
        ..Watch::progress(&|_, _| {})
    };
    run_watched(&document("cosmos-plus", &[&SMALL, &["workload.name=fillseq"][..]].concat()), &[], &watch)
        .unwrap();
    let line = lines.borrow()[0].clone();
    let span_s = (line["ended_ns"].as_f64().unwrap() - line["began_ns"].as_f64().unwrap()) / 1e9;
    let expected = line["value_bytes"]["stored"].as_f64().unwrap() / span_s;
    assert!(
        expected > 0.0
            && (line["bandwidth_bytes_per_s"]["stored"].as_f64().unwrap() / expected - 1.0).abs() < 1e-9
    );
}

#[test]
fn one_line_of_latency_is_of_all_operations() {
    let report = of("workload.name=ycsb-a", &[]);
    let all = report.latency_all_ns.as_ref().unwrap();
    let (store, retrieve) =
        (&report.latency_ns.get("store").unwrap(), &report.latency_ns.get("retrieve").unwrap());
    let sum = store.mean * report.ops.store as f64 + retrieve.mean * report.ops.retrieve as f64;
    assert!((all.mean * report.ops.total() as f64 / sum - 1.0).abs() < 1e-9);
    assert_eq!((all.min, all.max), (store.min.min(retrieve.min), store.max.max(retrieve.max)));
    for latency in [all, store, retrieve] {
        assert!(0 < latency.min && latency.min <= latency.p50 && latency.p50 <= latency.max, "{latency:?}");
        assert!(latency.stdev <= (latency.max - latency.min) as f64, "{latency:?}");
    }
    // The two kinds take different times, so all together spread more than either mean differs from the other.
    assert!(
        all.stdev > 0.0 && all.stdev >= (store.mean - retrieve.mean).abs() / 2.5,
        "{all:?} {store:?} {retrieve:?}"
    );
    assert!(report.to_string().lines().any(|line| line.starts_with("  all ")));
    assert!(!of("workload.name=fillseq", &[]).to_string().contains("\n  all "), "of one kind");
}

#[test]
fn the_first_lines_say_what_drive_it_is() {
    let text = of("workload.name=fillseq", &[]).to_string();
    let line = "cosmos-plus: FPGA board of 2014, one context; a drive of today: --profile nvmevirt-970pro";
    assert_eq!(text.lines().nth(2), Some(line), "{text}");
    for profile in PROFILES {
        assert!(!profile.device.is_empty(), "{}", profile.name);
    }
    let sets = [&SMALL, &["workload.name=fillseq"][..]].concat();
    let reports =
        ["cosmos-plus", "nvmevirt-970pro"].map(|profile| run(&document(profile, &sets), &|_, _| {}).unwrap());
    let text = compare(&reports);
    assert!(
        text.contains(line) && text.contains("\nnvmevirt-970pro: consumer SSD of 2018, 32 contexts\n"),
        "{text}"
    );
}

/// Columns that follow from the profile or from the workload say nothing; what was asked for stays.
#[test]
fn a_comparison_of_profiles_has_no_column_that_follows_from_another() {
    let mut reports = Vec::new();
    for profile in ["cosmos-plus", "kvvirt"] {
        for workload in ["workload.name=ycsb-a", "workload.name=ycsb-d"] {
            let sets = [&SMALL, &[workload][..], &["flash.blocks_per_die=64"]].concat();
            reports.push(run(&document(profile, &sets), &|_, _| {}).unwrap());
        }
    }
    let text = compare(&reports);
    let heading = text.lines().find(|line| line.starts_with("profile")).unwrap();
    assert!(heading.split_whitespace().take(3).eq(["profile", "workload", "operations"]), "{text}");
    assert!(text.lines().all(|line| !line.trim().is_empty()), "{text}");
    reports[0].set = vec!["engine.name=lsm".into()];
    let text = compare(&reports);
    let heading = text.lines().find(|line| line.starts_with("profile")).unwrap();
    assert!(heading.contains("engine"), "{text}");
}
