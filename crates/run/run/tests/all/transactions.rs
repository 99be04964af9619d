//! Workloads of units on whole drives: concurrent clients leave a consistent database.

use kvdrive_config::Document;
use kvdrive_run as run;
use kvdrive_run::report::Report;
use kvdrive_run::wall::{WallOptions, run_wall};
use kvdrive_sim::wall::Pace;

/// Small tables, so that clients use the same rows.
const SMALL: &[&str] = &[
    "workload.name=tpcc",
    "workload.shrink=64",
    "workload.warehouses=2",
    "workload.ops=400",
    "flash.blocks_per_die=64",
    "run.interval_ns=1ms",
];

fn document(settings: &[&str]) -> Document {
    document_of("saker-mid", settings)
}

fn document_of(profile: &str, settings: &[&str]) -> Document {
    let mut document = Document::profile(profile).expect("the profile exists");
    for setting in SMALL.iter().chain(settings) {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    document
}

fn report(settings: &[&str]) -> Report {
    run::run(&document(settings), &|_, _| {}).unwrap_or_else(|error| panic!("{settings:?}: {error:#}"))
}

/// Over a drive of pairs and over a store on the host, with several clients.
#[test]
fn clients_at_the_same_time_lose_no_update() {
    let sides: &[&[&str]] = &[
        &["engine.name=hashlog", "host.depth=8"],
        &["engine.name=block", "host.store=lsmtree", "host.threads=4"],
        // A thread that waits for rows has the answers for which the thread that holds the rows waits.
        &["engine.name=hashlog", "saker.enabled=true", "saker.cache_bytes=65536", "host.threads=4"],
    ];
    for side in sides {
        let report = report(side);
        assert_eq!(report.ops.errors, 0, "{side:?}: {:?}", report.notes);
        let [orders, payments] = ["new_order", "payment"]
            .map(|kind| report.transactions.get(kind).unwrap_or_else(|| panic!("{side:?}: no {kind}")));
        let all = orders.committed + orders.rolled_back + payments.committed;
        assert_eq!((all, payments.rolled_back), (400, 0), "{side:?}");
        assert!(orders.latency_ns.p50 > payments.latency_ns.p50, "{side:?}: an order is longer");
        assert!(report.notes.iter().any(|note| note.contains("no update is lost")), "{:?}", report.notes);
        // The checks after the run are not counted in the report.
        assert!(report.ops.retrieve < 400 * 36, "{side:?}: {}", report.ops.retrieve);
        let series = report.series.as_ref().expect("it was asked for");
        let of_series = series.transactions.as_ref().expect("it consists of them").iter().sum::<u64>();
        assert_eq!(of_series, orders.committed + payments.committed, "{side:?}");
        let text = report.to_string();
        assert!(text.contains("TRANSACTIONS"), "{text}");
    }
}

/// In an earlier version, a task that waited for rows took answers as long as there were any. The other task caused new
/// ones until the end of the run, so it did nearly all the work. Stores take so long here that an answer is always
/// outstanding.
#[test]
fn a_task_that_waits_for_rows_gets_them_although_others_go_on_writing() {
    let settings = &[
        "engine.name=lsmtree",
        "saker.enabled=true",
        "saker.cache_bytes=67108864",
        "host.threads=2",
        "workload.shrink=256",
        "workload.ops=1000",
    ];
    let document = document_of("saker-rocksdb", settings);
    let report = run::run(&document, &|_, _| {}).expect("it runs");
    let run_ns = report.counts.of("drive.model_ns");
    for (kind, transactions) in report.transactions.iter() {
        let longest_ns = transactions.latency_ns.max;
        assert!(longest_ns < run_ns / 10, "{kind}: {longest_ns} ns of a run of {run_ns} ns");
    }
}

/// The writes of a transaction are one command then, over the driver and with SAKER in front.
#[test]
fn transactions_as_atomic_batches_lose_no_update_and_take_fewer_commands() {
    let sides: &[&[&str]] = &[
        &["engine.name=hashlog", "host.depth=8"],
        &["engine.name=lsm", "host.depth=8"],
        &["engine.name=plus", "host.depth=8"],
        &["engine.name=hashlog", "saker.enabled=true", "saker.container_bytes=16384", "host.threads=4"],
    ];
    for side in sides {
        let of = |atomic: &str| {
            let report = report(&[side, &[atomic][..]].concat());
            assert_eq!(report.ops.errors, 0, "{side:?}: {:?}", report.notes);
            assert!(report.notes.iter().any(|note| note.contains("no update is lost")), "{:?}", report.notes);
            (report.ops.store, report.counts.of("drive.commands"))
        };
        let ((rows, single), (at_once, batched)) = (of("workload.atomic=false"), of("workload.atomic=true"));
        // If two lines of an order change a row of STOCK, the batch has the row once.
        assert!(at_once <= rows && 10 * at_once > 9 * rows, "{side:?}: {at_once} of {rows} rows");
        let is_batched_anyway = side.contains(&"saker.enabled=true");
        assert!(is_batched_anyway || batched + rows / 2 < single, "{side:?}: {batched} of {single} commands");
    }
}

/// Threads and tasks by the machine's clock use the same rows, too.
#[test]
fn clients_in_wall_time_lose_no_update() {
    let sides: &[&[&str]] = &[
        &["engine.name=hashlog", "host.depth=8"],
        &["engine.name=hashlog", "host.depth=8", "host.threads=2"],
        &["engine.name=hashlog", "host.depth=8", "host.threads=2", "workload.atomic=true"],
        &["engine.name=hashlog", "saker.enabled=true", "saker.cache_bytes=65536", "host.threads=2"],
    ];
    for side in sides {
        let document = document(&[side, &["run.clock=wall", "run.interval_ns=20ms"][..]].concat());
        let options = WallOptions { pace: Pace::Off, record: None, own_thread: false };
        let report =
            run_wall(&document, &options, &|_, _| {}).unwrap_or_else(|error| panic!("{side:?}: {error:#}"));
        assert_eq!(report.ops.errors, 0, "{side:?}: {:?}", report.notes);
        let [orders, payments] = ["new_order", "payment"]
            .map(|kind| report.transactions.get(kind).unwrap_or_else(|| panic!("{side:?}: no {kind}")));
        assert_eq!(orders.committed + orders.rolled_back + payments.committed, 400, "{side:?}");
        assert!(report.notes.iter().any(|note| note.contains("no update is lost")), "{:?}", report.notes);
        let series = report.series.as_ref().expect("it was asked for");
        let of_series = series.transactions.as_ref().expect("it consists of them").iter().sum::<u64>();
        assert_eq!(of_series, orders.committed + payments.committed, "{side:?}");
        assert_eq!(series.ops.iter().sum::<u64>(), report.ops.total(), "{side:?}");
    }
}

/// Data that a drive loses in the middle of a transaction are noticed and reported.
#[test]
fn a_drive_that_fails_leaves_the_rows_unchecked_and_says_so() {
    let rules = "[[rule]]\nfault = \"status\"\nopcode = [\"store\"]\nstatus = \"88h\"\nnth = 20\n";
    let document = document(&["engine.name=hashlog", "host.depth=1"]);
    let geometry = document.config().unwrap().drive().flash.geometry();
    let rules = kvdrive_config::faults::rules("faults.toml", rules, &geometry).unwrap();
    let report = run::run_faulty(&document, &rules, &|_, _| {}).unwrap();
    assert_eq!(report.ops.errors, 1, "{:?}", report.notes);
    assert!(report.notes.iter().any(|note| note.contains("was not checked")), "{:?}", report.notes);
}

#[test]
fn what_units_cannot_do_is_refused_in_a_line() {
    for (setting, problem) in [
        ("workload.timed_load=false", "workload.timed_load: false; rows of tpcc are bytes"),
        ("workload.verify=values", "workload.verify: \"values\"; is for generated values"),
    ] {
        let error = document(&[setting]).config().unwrap_err().to_string();
        assert!(error.starts_with(problem), "{error}");
    }
    let on_host = ["engine.name=block", "host.store=lsmtree", "workload.atomic=true"];
    let error = document(&on_host).config().unwrap_err().to_string();
    assert!(error.starts_with("workload.atomic: true; needs a drive of pairs"), "{error}");
}
