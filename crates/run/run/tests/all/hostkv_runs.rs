//! Runs of stores on the host: every row of the table, and settings that such a run refuses.

use std::collections::BTreeSet;
use std::path::Path;

use kvdrive_config::Document;
use kvdrive_run as run;
use kvdrive_run::report::{Report, compare};
use kvdrive_run::wall::{WallOptions, replay, run_wall};
use kvdrive_sim::wall::Pace;
use kvdrive_store::STORES;
use kvdrive_store::lsmtree::LsmtreeOptions;
use kvdrive_workload as workload;

fn document(store: &str, settings: &[&str]) -> Document {
    let mut document = Document::profile("saker-mid").expect("the profile exists");
    let store = format!("host.store={store}");
    let small =
        ["engine.name=block", &store, "flash.blocks_per_die=64", "workload.ops=6000", "workload.num=900"];
    for setting in small.iter().chain(settings) {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    document
}

fn report(store: &str, settings: &[&str]) -> Report {
    let report =
        run::run(&document(store, settings), &|_, _| {}).unwrap_or_else(|error| panic!("{store}: {error:#}"));
    assert_eq!(report.ops.errors, 0, "{store}: {:?}", report.notes);
    report
}

#[test]
fn pages_of_a_store_on_the_host_are_what_crosses_the_link() {
    for row in STORES {
        let settings = ["workload.name=fillrandom", "workload.value_size=16"];
        let first = report(row.name, &settings);
        let written = first.counts.of("store.pages_written");
        assert!(written > 0, "{}", row.name);
        let to_drive = first.counts.of("traffic.payload_bytes.to_drive");
        assert_eq!(to_drive, written * 4096, "{}: nothing was trimmed", row.name);
        assert_eq!(first.counts.of("nand.programs.data"), written, "{}: nothing was collected", row.name);
        assert!(
            first.resources.get("host.core.3").is_some_and(|core| core.busy_fraction > 0.0),
            "{}",
            row.name
        );
        assert!(first.resources.get("host.core.4").is_none(), "{}: four threads", row.name);
        // The same configuration, the same report.
        let mut again = report(row.name, &settings);
        again.time.wall_s = first.time.wall_s;
        assert_eq!(again, first, "{}", row.name);
    }
}

/// Counts of a store, on either side, agree with other counts: its reads with those of flash, its pairs with
/// those of the workload.
#[test]
fn counters_of_stores_are_what_others_counted() {
    let drawn =
        ["workload.name=fillrandom", "workload.value_size=16", "workload.ops=6000", "workload.num=900"];
    let mut counted_pairs = Vec::new();
    for row in STORES {
        let on_host = document(row.name, &drawn);
        let mut workload = workload::build(&on_host.config().unwrap().workload, 1).unwrap();
        let keys: BTreeSet<_> =
            (0..6000).map(|_| workload.next().key().expect("a store has a key")).collect();
        let on_host = report(row.name, &drawn);
        let mut in_drive = Document::profile("saker-mid").expect("the profile exists");
        let engine = format!("engine.name={}", row.name);
        let settings = drawn.into_iter().chain([&engine[..], "flash.blocks_per_die=64"]);
        settings.for_each(|setting| in_drive.set(setting).expect("a setting"));
        let in_drive = run::run(&in_drive, &|_, _| {}).unwrap();
        for counted in [on_host.counts.section("store"), in_drive.counts.section("engine")] {
            // A store that finds existing pairs only by merging does not know their number.
            if let Some(pairs) = counted.get("pairs") {
                assert_eq!(pairs, keys.len() as u64, "{}", row.name);
                counted_pairs.push(row.name);
            }
            if row.name == "hashlog" {
                assert_eq!(counted.get("records"), Some(6000), "nothing was cleaned");
            }
        }
    }
    for store in ["hashlog", "btree"] {
        let sides = counted_pairs.iter().filter(|name| **name == store).count();
        assert_eq!(sides, 2, "{store} counts its pairs on either side");
    }
    let read = ["workload.name=readrandom", "workload.value_size=16", "lsmtree.row_cache_bytes=20000"];
    // Pairs in memtables are not looked up in any cache.
    let tables = ["lsmtree.write_buffer_size=8KiB", "lsmtree.wal=false"];
    let lsmtree = report("lsmtree", &[&read[..], &tables].concat());
    let count = |name: &str| lsmtree.counts.section("store").of(name);
    assert_eq!(count("row_cache_hits") + count("row_cache_misses"), lsmtree.ops.retrieve, "one table a key");
    assert!(count("row_cache_hits") > 100, "{}", count("row_cache_hits"));
    assert_eq!(count("blocks_read"), count("row_cache_misses"));
    let reads = count("pages_read");
    assert_eq!((count("pages_read.lookup"), lsmtree.counts.of("nand.reads")), (count("blocks_read"), reads));
}

/// The intervals of a run add up to the run, and have the requested length.
#[test]
fn a_series_adds_up_to_its_run() {
    let settings = ["workload.name=fillrandom", "workload.value_size=64", "run.interval_ns=100us"];
    let report = report("hashlog", &settings);
    let series = report.series.expect("it was asked for");
    assert_eq!(series.ops.iter().sum::<u64>(), 6000);
    assert_eq!(series.ops.len() as u64, report.time.virtual_ns.div_ceil(100_000));
    assert_eq!((series.interval_ns, series.transactions), (100_000, None));
    assert!(
        series.ops.len() > 5 && series.ops[1..].iter().rev().skip(1).all(|ops| *ops > 100),
        "{:?}",
        series.ops
    );
}

/// Each interval is a row of the report: a run that would have too many ends.
#[test]
fn a_series_of_too_many_intervals_is_refused() {
    let mut document = Document::profile("saker-mid").expect("the profile exists");
    for set in ["workload.name=fillrandom", "workload.ops=100000", "run.interval_ns=1"] {
        document.set(set).expect("a setting");
    }
    let error = kvdrive_run::run(&document, &|_, _| {}).map(drop).unwrap_err().to_string();
    assert_eq!(error, "run.interval_ns: 1; the run has more than 1048576 intervals");
}

/// Buffers of stores shrink with their writes, if a run reads these settings; a size that follows the drive's
/// stays as it is.
#[test]
fn at_a_part_of_its_size_a_store_has_a_part_of_its_buffers() {
    let shrunk = |store: &str| {
        let mut document = Document::profile("saker-mid").expect("the profile exists");
        let sizes =
            ["lsmtree.write_buffer_size=64MiB", "workload.duration_ns=256ms", "lsmtree.row_cache_bytes=32MB"];
        for set in [&format!("host.store={store}")[..], "engine.name=block"].iter().chain(&sizes) {
            document.set(set).expect("a setting");
        }
        document.shrink("1/64".parse().unwrap()).unwrap();
        document.config().unwrap()
    };
    let (btree, lsmtree) = (shrunk("btree"), shrunk("lsmtree"));
    let [of_btree, of_lsmtree] = [&btree, &lsmtree].map(|config| &config.engines.stored.options);
    assert_eq!((of_btree.btree.buffer_bytes, of_btree.btree.checkpoint_bytes), (1 << 20, 1 << 20));
    assert_eq!((of_lsmtree.btree.buffer_bytes, lsmtree.workload.duration_ns), (64 << 20, 4_000_000));
    let LsmtreeOptions { write_buffer_size, max_bytes_for_level_base, row_cache_bytes, .. } =
        of_lsmtree.lsmtree;
    assert_eq!((write_buffer_size, max_bytes_for_level_base, row_cache_bytes), (1 << 20, 0, 500_000));
    assert_eq!(of_btree.lsmtree.write_buffer_size, 64 << 20, "it has no effect");
}

#[test]
fn values_read_back_from_a_store_on_the_host_are_those_that_were_stored() {
    for row in STORES {
        let settings = [
            "workload.name=mixed",
            "workload.read_fraction=0.4",
            "workload.delete_fraction=0.1",
            "workload.seek_fraction=0.05",
            "workload.list_fraction=0.05",
            "workload.value_size=300",
            "workload.verify=values",
            "host.threads=3",
        ];
        let verified = report(row.name, &settings).verified.expect("it was asked for");
        assert!(verified.is_whole() && verified.checked > 1000, "{}: {verified:?}", row.name);
    }
}

/// The cache is searched after the memtables, and a second read of a pair in a table hits it.
#[test]
fn the_row_cache_of_a_store_on_the_host_answers_reads() {
    let settings = [
        "workload.name=readrandom",
        "workload.distribution=zipfian",
        "workload.value_size=200",
        "workload.num=20000",
        "lsmtree.write_buffer_size=64KiB",
    ];
    let caches = ["lsmtree.row_cache_bytes=0", "lsmtree.row_cache_bytes=1MiB"];
    let reports = caches.map(|cache| report("lsmtree", &[&settings[..], &[cache]].concat()));
    let looked_up = |report: &Report| report.counts.of("store.pages_read.lookup");
    let hits = reports[1].counts.of("store.row_cache_hits");
    assert_eq!(reports[0].counts.of("store.row_cache_hits"), 0);
    assert!(hits > 1000, "{hits} hits");
    assert!(looked_up(&reports[1]) + hits <= looked_up(&reports[0]), "a hit reads no page");
    let mean_ns = |report: &Report| report.latency_ns.get("retrieve").expect("it was read").mean;
    assert!(mean_ns(&reports[1]) < mean_ns(&reports[0]));
    // The only visible difference between them is the cache.
    let table = compare(&reports);
    assert!(table.contains("cache") && table.contains("none") && table.contains("1 MiB"), "{table}");
}

/// On a core of its own compaction takes no time of the serving cores, on either side of the wire.
#[test]
fn compaction_on_a_core_of_its_own_leaves_the_other_cores_to_callers() {
    let settings = [
        "workload.name=fillrandom",
        "workload.value_size=100",
        "workload.ops=30000",
        "workload.num=10000",
        "lsmtree.write_buffer_size=64KiB",
        "lsmtree.delayed_write_rate=1099511627776",
        "host.threads=1",
        "controller.io_threads=1",
    ];
    let in_drive = ["host.store=none", "engine.name=lsmtree", "host.depth=4"];
    for (side, core) in [(&[][..], "host.core.background"), (&in_drive, "firmware.background")] {
        let runs = ["shared", "own"].map(|background| {
            let background = format!("lsmtree.background={background}");
            report("lsmtree", &[&settings[..], side, &[&background]].concat())
        });
        let busy = |report: &Report| report.resources.get(core).map(|core| core.busy_fraction);
        assert_eq!(busy(&runs[0]), None, "{core}");
        assert!(busy(&runs[1]).is_some_and(|busy| busy > 0.1), "{core}: {:?}", busy(&runs[1]));
        let [shared, own] = runs.each_ref().map(|report| report.throughput_ops_per_s);
        assert!(own > 1.03 * shared, "{core}: {own} stores a second beside it, {shared} with it");
        // For each of the commands that wait for an I/O thread, one slice of 50 us of each of two threads.
        let longest_ns = runs[0].latency_ns.get("store").expect("it was asked for").max;
        assert!(longest_ns < 500_000, "{core}: a put beside merges took {longest_ns} ns");
        let moved = |report: &Report| report.counts.of("nand.programs");
        assert!(moved(&runs[1]) > moved(&runs[0]) / 3, "{core}: as much is merged, or nearly");
    }
}

/// A run by the machine's clock, of which every value that is read is checked.
fn wall(store: &str, settings: &[&str], record: Option<&Path>) -> Report {
    let checked = ["run.clock=wall", "workload.verify=values"];
    let document = document(store, &[&checked[..], settings].concat());
    let options = WallOptions { pace: Pace::Off, record, own_thread: false };
    let report =
        run_wall(&document, &options, &|_, _| ()).unwrap_or_else(|error| panic!("{store}: {error:#}"));
    assert_eq!(report.ops.errors, 0, "{store}: {:?}", report.notes);
    assert!(
        report.verified.as_ref().is_some_and(|verified| verified.is_whole()),
        "{store}: {:?}",
        report.verified
    );
    report
}

const MIXED: [&str; 4] = [
    "workload.name=mixed",
    "workload.read_fraction=0.4",
    "workload.delete_fraction=0.1",
    "workload.value_size=120",
];

#[test]
fn a_store_on_the_host_runs_by_the_machines_clock() {
    for row in STORES {
        for threads in ["host.threads=1", "host.threads=3"] {
            let report = wall(row.name, &[&MIXED[..], &[threads, "workload.ops=4000"]].concat(), None);
            let checked = report.verified.as_ref().map_or(0, |verified| verified.checked);
            assert!(report.ops.total() == 4000 && checked > 500, "{}: {checked}", row.name);
            let written = report.counts.of("store.pages_written");
            assert!(written > 0 && report.counts.of("nand.programs.data") >= written, "{}", row.name);
            assert!(report.counts.section("store_memory").iter().next().is_some(), "{}", row.name);
        }
        let scans = ["workload.name=ycsb-e", "workload.value_size=100", "workload.ops=300", "host.threads=2"];
        assert!(wall(row.name, &scans, None).ops.next > 300, "{}", row.name);
    }
}

/// One thread does the same in both clocks, except for what a store does beside its calls.
#[test]
fn a_store_on_the_host_does_the_same_work_in_both_clocks() {
    let settings = [&MIXED[..], &["host.threads=1", "host.depth=1", "workload.verify=values"]].concat();
    for row in STORES {
        let config = document(row.name, &settings).config().expect("it is one");
        if (row.background)(&config.engines.stored.options).is_some() {
            continue;
        }
        let (model, wall) = (report(row.name, &settings), wall(row.name, &settings, None));
        assert!(model.counts.section("store").iter().next().is_some(), "{}", row.name);
        assert_eq!(model.counts.section("store"), wall.counts.section("store"), "{}", row.name);
        assert_eq!(model.ops, wall.ops, "{}", row.name);
    }
}

/// The drive's work is in the recording: the commands of the store's queues.
#[test]
fn a_recording_of_a_store_on_the_host_is_replayed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("recording");
    let settings = ["workload.name=fillrandom", "workload.value_size=100", "host.threads=2"];
    let recorded = wall("hashlog", &settings, Some(&path));
    let replayed = replay(&path).expect("it is replayed");
    let written = recorded.counts.of("store.pages_written");
    assert!(written > 0);
    assert_eq!(replayed.counts.of("nand.programs"), recorded.counts.of("nand.programs"));
    let commands = replayed.commands.iter().find(|(name, _)| *name == "write");
    assert!(commands.is_some_and(|(_, of)| of.count > 0), "{:?}", replayed.commands);
}

#[test]
fn what_does_not_go_with_a_store_on_the_host_is_refused_in_a_line() {
    let refused = |settings: &[&str]| {
        let mut document = Document::profile("saker-mid").expect("the profile exists");
        settings.iter().for_each(|setting| document.set(setting).expect("a setting"));
        document.config().expect_err("it is refused").to_string()
    };
    let stores: Vec<_> = STORES.iter().map(|row| row.name).collect();
    let takes_no_pairs =
        format!("engine.name: \"block\" takes no pairs; host.store may be {}", stores.join(", "));
    for (settings, line) in [
        (vec!["engine.name=block"], takes_no_pairs.as_str()),
        (
            vec!["host.store=btree"],
            "host.store: \"btree\" needs a drive of blocks; engine.name is \"lsm\", set it to \"block\"",
        ),
        (
            vec!["engine.name=block", "host.store=btree", "run.clock=wall", "saker.enabled=true"],
            "saker.enabled: true; SAKER needs a drive of pairs, and a store on the host has a drive of blocks",
        ),
        (
            vec!["engine.name=block", "host.store=btree", "host.threads=1", "host.depth=2000"],
            "host.depth: 2000; host.threads and host.queue_entries hold 1023",
        ),
    ] {
        assert_eq!(refused(&settings), line);
    }
    let on_host = document("hashlog", &[]).config().expect("it is one");
    let in_drive = Document::profile("saker-mid").and_then(|profile| profile.config()).expect("it is one");
    let in_store = {
        let mut stored = Document::profile("saker-mid").expect("the profile exists");
        stored.set("engine.name=hashlog").expect("a setting");
        stored.config().expect("it is one")
    };
    // The key; is it read by hashlog on the host, by engine lsm, by hashlog in the drive?
    for (key, looked_at) in [
        ("host.threads", [true, true, true]),
        ("ftl.over_provisioning", [true, true, true]),
        ("host.queues", [false, false, false]),
        ("host.cores", [false, false, false]),
        ("host.transfer", [false, true, true]),
        ("packing.policy", [false, true, false]),
        ("lsm.memtable_entries", [false, true, false]),
        ("buffer.entries", [false, true, false]),
        ("store.probe_ps", [true, false, true]),
        ("store.split_ps", [false, false, false]),
        ("store.operations_bytes", [false, false, true]),
        ("hashlog.segment_bytes", [true, false, true]),
        ("hashlog.blocks_under_way", [false, false, false]),
    ] {
        let seen = [&on_host, &in_drive, &in_store].map(|config| config.ignores(key));
        assert_eq!(seen.each_ref().map(Option::is_none), looked_at, "{key}: {seen:?}");
    }
    let btree = document("btree", &[]).config().expect("it is one");
    assert!(btree.ignores("hashlog.segment_bytes").is_some(), "of another store");
    assert_eq!(btree.ignores("store.split_ps"), None);
}
