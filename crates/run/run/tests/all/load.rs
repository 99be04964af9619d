//! Load with a rate, a duration, checks, observation and an early stop.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvdrive_config::Document;
use kvdrive_device::engines::ENGINES;
use kvdrive_run::report::{Report, Verified};
use kvdrive_run::{FinishedRun, Watch, run, run_watched};

fn document(sets: &[&str]) -> Document {
    let mut document = Document::profile("cosmos-plus").unwrap();
    let small = ["workload.name=mixed", "workload.num=2000", "workload.ops=4k", "workload.value_size=200"];
    small.iter().chain(sets).for_each(|set| document.set(set).unwrap_or_else(|error| panic!("{error}")));
    document
}

fn report(sets: &[&str]) -> Report {
    run(&document(sets), &|_, _| {}).unwrap()
}

fn error(sets: &[&str]) -> String {
    run(&document(sets), &|_, _| {}).unwrap_err().to_string()
}

#[test]
fn operations_of_a_rate_begin_when_they_are_to_and_not_before() {
    let report = report(&["workload.rate_per_s=2k/s", "host.depth=8"]);
    // The last of 4000 operations begins 1999.5 ms after the first.
    let took = report.time.virtual_ns;
    assert!((1_999_500_000..2_010_000_000).contains(&took), "{took}");
    assert!((report.throughput_ops_per_s / 2000.0 - 1.0).abs() < 0.01);
    assert!(report.notes.iter().any(|note| note.contains("2 000/s, equally spaced")), "{:?}", report.notes);
    assert!(!report.notes.iter().any(|note| note.contains("keep up")), "{:?}", report.notes);
}

/// If a drive cannot keep up, the latency shows it; clients that wait would hide it.
#[test]
fn latency_of_a_rate_counts_from_when_an_operation_was_to_begin() {
    let closed = report(&["workload.read_fraction=0.0"]);
    let rate = 2 * closed.throughput_ops_per_s as u64;
    let open = report(&["workload.read_fraction=0.0", &format!("workload.rate_per_s={rate}")]);
    assert!((0.85..=1.0).contains(&(open.throughput_ops_per_s / closed.throughput_ops_per_s)));
    assert!(open.notes.iter().any(|note| note.contains("did not keep up")), "{:?}", open.notes);
    let max = |report: &Report| report.latency_ns.get("store").unwrap().max;
    // Delay of the last of 4000 operations; about half of the run.
    let last_ns = open.time.virtual_ns - 3999 * 1_000_000_000 / rate;
    assert!(
        max(&open) >= last_ns && last_ns > 10 * max(&closed),
        "{last_ns} {} {}",
        max(&open),
        max(&closed)
    );
    let half = last_ns as f64 / (open.time.virtual_ns as f64 / 2.0);
    assert!((0.8..1.3).contains(&half), "{half}");
}

#[test]
fn arrivals_at_random_wait_for_each_other_where_equally_spaced_ones_do_not() {
    let mean = |arrivals: &str| {
        let arrivals = format!("workload.arrivals={arrivals}");
        let report = report(&["nand.enabled=false", "workload.rate_per_s=5k/s", &arrivals, "host.depth=4"]);
        report.latency_ns.get("retrieve").unwrap().mean
    };
    let (fixed, poisson) = (mean("fixed"), mean("poisson"));
    assert!(poisson > 1.02 * fixed, "{fixed} {poisson}");
    assert_eq!(poisson, mean("poisson"), "the same seed, the same moments");
}

#[test]
fn a_duration_ends_a_run_and_the_report_says_which_end_it_was() {
    for depth in ["host.depth=1", "host.depth=4"] {
        let report = report(&["workload.ops=1M", "workload.duration_ns=20ms", depth]);
        let took = report.time.virtual_ns;
        assert!((20_000_000..25_000_000).contains(&took), "{took}");
        assert!(report.notes.iter().any(|note| note.contains("ended at workload.duration_ns with ")));
        let at_rate = ["workload.ops=1M", "workload.duration_ns=20ms", "workload.rate_per_s=1k/s", depth];
        assert_eq!(self::report(&at_rate).ops.answered(), 20, "one each millisecond, the first at 0");
    }
    // The last of 21 operations is due when the time is over: it alone is not carried out.
    let of_ops = |ops: &str| report(&[ops, "workload.duration_ns=20ms", "workload.rate_per_s=1k/s"]);
    let late = of_ops("workload.ops=21");
    assert_eq!(late.ops.answered(), 20);
    let note = "ended at workload.duration_ns with 20 of 21 operations done";
    assert!(late.notes.iter().any(|found| found == note), "{:?}", late.notes);
    let all = of_ops("workload.ops=20");
    assert!(all.notes.iter().any(|note| note.contains("workload.ops has no more")), "{:?}", all.notes);
    let short = report(&["workload.ops=10", "workload.duration_ns=10s"]);
    assert_eq!(short.ops.answered(), 10);
    assert!(short.notes.iter().any(|note| note.contains("workload.ops has no more")), "{:?}", short.notes);
}

#[test]
fn every_value_that_comes_back_is_checked_with_all_engines_and_clients_at_once() {
    for row in ENGINES {
        let is_hash = row.sections.contains(&"hash");
        let (engine, profile) = (row.name, if is_hash { "kvvirt" } else { "cosmos-plus" });
        let mut document = Document::profile(profile).unwrap();
        document.set(&format!("engine.name={engine}")).unwrap();
        if profile == "kvvirt" {
            document.set("workload.preset=plus").unwrap();
            document.shrink("1/256".parse().unwrap()).unwrap();
        }
        for set in [
            "workload.name=mixed",
            "workload.num=50",
            "workload.overwrites=0",
            "workload.timed_load=true",
            "workload.ops=3k",
            "workload.value_size=300",
            "workload.delete_fraction=0.1",
            "workload.seek_fraction=0.05",
            "workload.verify=values",
            "host.depth=16",
            "host.queues=4",
        ] {
            document.set(set).unwrap();
        }
        let report = run(&document, &|_, _| {}).unwrap();
        let verified = report.verified.clone().unwrap();
        assert!(verified.is_whole() && verified.unknown == 0, "{engine}: {verified:?} {:?}", report.notes);
        let (retrieved, passed) = (report.ops.retrieve, report.ops.next);
        assert!(verified.checked >= retrieved && passed > 500, "{engine}: {verified:?}");
        assert!(report.to_string().contains("VERIFIED"));
    }
    assert_eq!(report(&[]).verified, None);
}

/// Values that are written to flash while they arrive, before anything is measured.
#[test]
fn large_values_are_loaded_and_come_back() {
    let large = ["workload.name=readrandom", "workload.num=6", "workload.ops=12", "workload.value_size=3MiB"];
    let report = report(&[&large[..], &["workload.verify=values", "workload.timed_load=false"]].concat());
    assert_eq!((report.ops.errors, report.ops.retrieve), (0, 12));
    assert_eq!(report.verified.map(|verified| verified.wrong), Some(0));
}

#[test]
fn a_check_of_an_image_reads_it_and_finds_what_is_not_as_it_was_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("media.path={}", folder.path().join("image").display());
    let sets = |more: &[&str]| -> Vec<String> {
        let image = ["media.kind=file", &path, "workload.num=300", "workload.ops=500"];
        image.iter().chain(more).map(|set| (*set).to_owned()).collect()
    };
    let run_on = |more: &[&str]| {
        let sets = sets(more);
        report(&sets.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let fills = ["workload.name=fillrandom"];
    assert_eq!(run_on(&fills).ops.store, 500);
    let check = |more: &[&str]| run_on(&[&fills[..], &["workload.verify=only"], more].concat());
    let report = check(&[]);
    let verified = report.verified.unwrap();
    // 500 stores over 300 keys leave about 300 (1 - e^-5/3) of them.
    assert!(verified.is_whole() && (220..270).contains(&verified.checked), "{verified:?}");
    assert_eq!((report.ops.store, report.counts.of("nand.programs.value")), (0, 0), "it stores nothing");
    let longer = check(&["workload.ops=520"]).verified.unwrap();
    assert!(longer.missing + longer.wrong > 0, "20 stores of these were never done: {longer:?}");
    let other = check(&["workload.value_size=201"]);
    assert_eq!(other.verified.as_ref().unwrap().wrong, verified.checked, "all are of another size");
    assert!(other.notes.iter().any(|note| note.contains("200 bytes; stored were 201")), "{:?}", other.notes);
    // A run that continues with the image does not check pairs that it did not store.
    let goes_on = run_on(&["workload.read_fraction=0.9", "workload.verify=values", "workload.name=mixed"]);
    assert!(goes_on.verified.unwrap().is_whole());
}

#[test]
fn what_cannot_be_checked_is_refused_by_its_key() {
    assert!(
        error(&["workload.verify=only"]).contains("workload.verify: \"only\"; reads the pairs of an image")
    );
}

#[test]
fn intervals_add_up_to_the_run_and_alter_nothing() {
    let document = document(&["host.depth=4", "workload.ops=20k"]);
    let alone = run(&document, &|_, _| {}).unwrap();
    let lines = Rc::new(RefCell::new(Vec::new()));
    let taken = lines.clone();
    let watch = Watch {
        intervals: Some((10_000_000, Rc::new(move |interval| taken.borrow_mut().push(interval.to_json())))),
        ..Watch::progress(&|_, _| {})
    };
    let FinishedRun { report, latencies, .. } = run_watched(&document, &[], &watch).unwrap();
    assert!(!report.is_stopped);
    let same = |mut report: Report| {
        report.time.wall_s = 0.0;
        serde_json::to_value(report).unwrap()
    };
    let lines = lines.borrow();
    let sum =
        |path: &str| lines.iter().map(|line| line.pointer(path).unwrap().as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum("/ops"), report.ops.total());
    assert_eq!(sum("/value_bytes/stored"), report.value_bytes.stored);
    assert_eq!(sum("/value_bytes/retrieved"), report.value_bytes.retrieved);
    assert_eq!(sum("/traffic/payload_bytes/total"), report.counts.of("traffic.payload_bytes"));
    assert!(
        sum("/nand/programs/total") > 0 && sum("/nand/programs/total") <= report.counts.of("nand.programs")
    );
    assert_eq!(latencies.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), ["store", "retrieve"]);
    let spans: Vec<(u64, u64)> = lines
        .iter()
        .map(|line| (line["began_ns"].as_u64().unwrap(), line["ended_ns"].as_u64().unwrap()))
        .collect();
    assert!(spans.len() > 10, "{spans:?}");
    assert!(spans.windows(2).all(|pair| pair[0].1 == pair[1].0), "one after the other: {spans:?}");
    assert!(spans[..spans.len() - 1].iter().all(|(began, ended)| ended - began == 10_000_000));
    assert_eq!(spans.last().unwrap().1, report.time.virtual_ns);
    assert_eq!(same(report), same(alone));
}

#[test]
fn how_a_run_goes_is_told_and_alters_nothing() {
    let document = document(&["host.depth=4", "workload.ops=20k"]);
    let told = RefCell::new(Vec::new());
    let going = |going| told.borrow_mut().push(going);
    let watch = Watch { going: Some(&going), ..Watch::progress(&|_, _| {}) };
    let mut report = run_watched(&document, &[], &watch).unwrap().report;
    let told = told.into_inner();
    assert!(told.len() > 1, "{told:?}");
    assert!(told.windows(2).all(|pair| pair[0].ops <= pair[1].ops && pair[0].model_ns <= pair[1].model_ns));
    let last = told.last().unwrap();
    // Progress is reported in steps, so the last operations may be missing from it.
    assert!(last.ops > 10_000 && last.ops <= 20_000, "{last:?}");
    assert!(last.model_ns > 0 && last.model_ns <= report.time.virtual_ns);
    assert!(last.programs > 0 && last.programs <= report.counts.of("nand.programs"));
    assert!(last.payload_bytes > 0 && last.payload_bytes <= report.counts.of("traffic.payload_bytes"));
    let mut alone = run(&document, &|_, _| {}).unwrap();
    (report.time.wall_s, alone.time.wall_s) = (0.0, 0.0);
    assert_eq!(report, alone);
}

#[test]
fn a_run_that_is_stopped_reports_what_was_done() {
    for depth in ["host.depth=1", "host.depth=4"] {
        let document = document(&["workload.ops=1M", depth]);
        let stop = Arc::new(AtomicBool::new(false));
        let progress = |done: u64, _: u64| {
            if done > 20_000 {
                stop.store(true, Ordering::Relaxed);
            }
        };
        let watch = Watch { stop: stop.clone(), ..Watch::progress(&progress) };
        let ran = run_watched(&document, &[], &watch).unwrap();
        let done = ran.report.ops.answered();
        assert!(ran.report.is_stopped && (18_000..50_000).contains(&done), "{done}");
        let note = "of 1 000 000 operations done: this is the report so far";
        assert!(ran.report.notes.iter().any(|found| found.ends_with(note)), "{:?}", ran.report.notes);
        // The result equals the beginning of the whole run.
        let ops = format!("workload.ops={done}");
        let beginning = report(&[&ops, depth]);
        assert_eq!(beginning.ops.answered(), done);
        if depth == "host.depth=1" {
            assert_eq!(beginning.latency_ns, ran.report.latency_ns);
        }
    }
}

#[test]
fn nothing_that_was_checked_is_whole_if_a_read_was_not_answered() {
    assert!(Verified { checked: 7, unknown: 1, ..Verified::default() }.is_whole());
    for broken in [
        Verified { wrong: 1, ..Verified::default() },
        Verified { missing: 1, ..Verified::default() },
        Verified { unread: 1, ..Verified::default() },
    ] {
        assert!(!broken.is_whole(), "{broken:?}");
    }
}
