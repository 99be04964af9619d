//! Runs in wall time and their recordings: the work that belongs to a run, its observations, and the state that it does
//! not change.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvdrive_config::Document;
use kvdrive_content::{Piece, Region};
use kvdrive_host::Calls;
use kvdrive_host::threaded::serve_thread;
use kvdrive_link::recording::Recorder;
use kvdrive_link::shared::ServerConfig;
use kvdrive_link::transfer::method as method_of;
use kvdrive_nvme::Key;
use kvdrive_run::report::{Commands, Report};
use kvdrive_run::wall::connected::{Remote, run_connected};
use kvdrive_run::wall::{Change, WallOptions, open_recorder, replay, run_wall, run_wall_watched, served};
use kvdrive_run::{OnInterval, Watch, run};
use kvdrive_sim::wall::Pace;

fn document(settings: &[&str]) -> Document {
    let mut document = Document::profile("cosmos-plus").expect("the profile exists");
    for setting in settings {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    document
}

fn wall(settings: &[&str], record: Option<&Path>) -> anyhow::Result<Report> {
    let mut document = document(settings);
    document.set("run.clock=wall").expect("a valid setting");
    run_wall(&document, &WallOptions { pace: Pace::Off, record, own_thread: false }, &|_, _| ())
}

const LOADED: [&str; 5] = [
    "workload.name=ycsb-a",
    "workload.num=20000",
    "workload.ops=1000",
    "workload.value_size=1000",
    "host.transfer=piggyback",
];

/// The same operations cross the link by either clock.
#[test]
fn loading_is_not_part_of_a_wall_run() {
    let by_wall = wall(&LOADED, None).expect("it runs");
    let by_model = run(&document(&LOADED), &|_, _| ()).expect("it runs");
    let bytes = |report: &Report| report.counts.of("traffic.payload_bytes") as f64;
    let off = bytes(&by_wall) / bytes(&by_model) - 1.0;
    assert!(off.abs() < 0.02, "{} B, {} B", bytes(&by_wall), bytes(&by_model));
    let (wall, model) = (by_wall.precondition.as_ref(), by_model.precondition.as_ref());
    let (wall, model) = (wall.expect("pairs were loaded"), model.expect("pairs were loaded"));
    assert_eq!((wall.stores, wall.stored_bytes), (model.stores, model.stored_bytes));
    assert!(wall.virtual_ns > Some(0), "{wall:?}");
    // A served drive is not drained, so pages that loading left in buffers are programmed in the run. The sum
    // is the same.
    let all = |loading: u64, run: &Report| (loading + run.counts.of("nand.programs")) as f64;
    let wall = all(wall.counts.of("nand.programs"), &by_wall);
    let model = all(model.counts.of("nand.programs"), &by_model);
    assert!((wall / model - 1.0).abs() < 0.02, "{wall} {model}");
    assert!(by_wall.notes.iter().any(|note| note.contains("left in buffers")), "{:?}", by_wall.notes);
}

/// A replay cannot separate loading from the other operations, and says so; it has the sum of both.
#[test]
fn a_replay_is_loading_and_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("recording");
    let recorded = wall(&LOADED, Some(&path)).expect("it runs");
    let replayed = replay(&path).expect("it can be replayed");
    let loading = recorded.precondition.as_ref().expect("pairs were loaded").counts.of("nand.programs");
    assert_eq!(replayed.counts.of("nand.programs"), loading + recorded.counts.of("nand.programs"));
    assert!(replayed.notes[1].contains("loading is part of it"), "{:?}", replayed.notes);
    // Only the replay reports commands of hosts; the recorded run reports operations instead.
    let answered = recorded.ops.total() + recorded.precondition.as_ref().map_or(0, |loading| loading.stores);
    let all: u64 = replayed.commands.iter().map(|(_, commands)| commands.count).sum();
    assert!(answered > 0 && all >= answered && recorded.commands.is_empty(), "{all} of {answered}");
    assert!(replayed.to_string().contains("COMMANDS"), "{replayed}");
    // A recording with additional bytes, and one with fewer.
    let whole = fs::read(&path).expect("the recording");
    let last_note = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("it can be written");
        replay(&path).expect("it can be replayed").notes.pop().expect("a note")
    };
    assert_eq!(
        last_note(&[&whole[..], b"junk"].concat()),
        "4 bytes after the end of the recording are ignored"
    );
    let (cut, end_frame) = (whole.len() - 3, 5 + 21 + 8);
    let in_a_frame =
        format!("the recording ends at byte {cut}, in the middle of a frame: its run was interrupted; ");
    assert!(last_note(&whole[..cut]).starts_with(&in_a_frame), "{}", last_note(&whole[..cut]));
    let between = last_note(&whole[..whole.len() - end_frame]);
    assert!(between.contains("without the frame that ends a run"), "{between}");
}

/// Both commands of a value of 64 B have one identifier, and many values are under way; those of the last values complete
/// after the last arrival of the recording.
#[test]
fn every_command_of_an_inline_value_is_told_with_its_own_opcode() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("recording");
    for depth in [1, 32] {
        let depth = format!("host.depth={depth}");
        let load = ["workload.name=fillseq", "workload.ops=1000", "workload.value_size=64", &depth];
        wall(&[&load[..], &["host.transfer=piggyback"]].concat(), Some(&path)).expect("it runs");
        let replayed = replay(&path).expect("it can be replayed");
        let count = |(name, commands): (&str, &Commands)| (name.to_owned(), commands.count);
        let counts: Vec<_> = replayed.commands.iter().map(count).collect();
        assert_eq!(counts, [("write".to_owned(), 1000), ("transfer".to_owned(), 1000)], "{depth}");
    }
}

/// Inserts stay in the pipeline until its doorbell is rung; the hundreds of nexts after an insert must not
/// add to its latency. On a busy machine a thread waits milliseconds for a core, so one good run of several
/// suffices.
#[test]
fn a_store_does_not_wait_for_later_scans() {
    let settings = ["workload.name=ycsb-e", "workload.num=2000", "workload.ops=600", "host.depth=32"];
    let runs = (0..8).map(|_| {
        let report = wall(&settings, None).expect("it runs");
        ["store", "seek"].map(|kind| report.latency_ns.get(kind).expect("some ran").p50)
    });
    let seen: Vec<[u64; 2]> = runs.collect();
    // A scan has at least a seek, and some thirty scans are under way.
    assert!(seen.iter().any(|[store, seek]| *store < 10 * (*seek).max(1000)), "{seen:?}");
}

/// The store of a read-modify-write waits for its own retrieve and for no other.
#[test]
fn read_modify_writes_go_through_the_pipeline() {
    let settings = ["workload.name=ycsb-f", "workload.num=2000", "workload.ops=2000", "host.depth=32"];
    let report = wall(&settings, None).expect("it runs");
    let ops = &report.ops;
    assert_eq!((ops.retrieve, ops.errors), (2000, 0));
    assert!((900..1100).contains(&ops.store), "{ops:?}");
    assert_eq!(report.value_bytes.stored, ops.store * 32);
    assert_eq!(report.value_bytes.retrieved, ops.retrieve * 32);
}

#[test]
fn a_run_that_does_not_start_leaves_an_earlier_recording() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("recording");
    for settings in [
        ["workload.name=fillrandom", "workload.key_size=1", "workload.ops=10"],
        ["engine.name=plus", "buffer.entries=8", "power.protected_bytes=131072"],
    ] {
        fs::write(&path, "an earlier one").expect("a file");
        wall(&settings, Some(&path)).expect_err("it cannot start");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "an earlier one", "{settings:?}");
        fs::remove_file(&path).expect("it is there");
        wall(&settings, Some(&path)).expect_err("it cannot start");
        assert!(!path.exists(), "{settings:?}");
    }
    let nowhere = folder.path().join("none/recording");
    let error = wall(&["workload.ops=10"], Some(&nowhere)).expect_err("there is no such folder").to_string();
    assert!(error.contains(&nowhere.display().to_string()), "{error}");
}

/// All commands of a run whose recording has no room are answered, and its report has them; the error names the file.
#[test]
fn a_recording_without_room_leaves_the_report() {
    let (full, mut document) = (Path::new("/dev/full"), document(&["workload.ops=3000"]));
    document.set("run.clock=wall").expect("a valid setting");
    let options = WallOptions { pace: Pace::Off, record: Some(full), own_thread: false };
    let ran = run_wall_watched(&document, &options, &Watch::progress(&|_, _| ())).expect("it runs");
    assert_eq!((ran.report.ops.store, ran.report.ops.errors), (3000, 0));
    let failure = ran.failure.expect("the recording is not whole").to_string();
    assert!(failure.starts_with("/dev/full: ") && failure.contains("ends before its run"), "{failure}");
    run_wall(&document, &options, &|_, _| ()).expect_err("a caller that asks for the report alone is told");
}

/// Rules that are added and removed while a drive is served, one of which cuts its power: a replay has the
/// same counters, of the drive and of the rules.
#[test]
fn a_replay_has_the_same_faults_at_the_same_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("recording");
    let document = document(&["lsm.memtable_entries=64"]);
    let (recorder, started) = open_recorder(&document, Some(&path)).expect("it can be written");
    started.store(true, Ordering::Release);
    let server = ServerConfig { pace: Pace::Off, recorder };
    let config = document.config().expect("a valid configuration");
    let (connector, serving) = serve_thread(server, served(config, None)).expect("it comes up");
    let method = document.config().expect("a valid configuration").host.transfer;
    let driver = connector.connect(method_of(&method).expect("a row"), 16, 4).expect("it is on");
    let change = |change: Change| serving.control().change(change).expect("it is on").expect("it fits");
    let mut failed = 0;
    for number in 0..3000u32 {
        match number {
            500 => {
                _ = change(Change::AddFaults(
                    "[[rule]]\nfault = \"read-error\"\nprobability = \"20%\"\n\
                 [[rule]]\nfault = \"delay\"\nat = \"command\"\nevery = 3\ndelay_ns = 5000\n"
                        .into(),
                ))
            }
            1500 => _ = change(Change::ClearFaults(Some("delay 2".into()))),
            2000 => {
                _ = change(Change::AddFaults(
                    "[[rule]]\nfault = \"power-cut\"\nat = \"command\"\nafter = 600\n".into(),
                ))
            }
            _ => {}
        }
        let key = Key::from_u32_be(number % 700);
        let value = vec![number as u8; 1 + number as usize % 300];
        failed += u32::from(driver.blocking().store(key, Piece::Bytes(&value)).is_err());
        failed += u32::from(driver.blocking().retrieve(key, &mut Region::new()).is_err());
    }
    assert!(failed > 1000, "the power went: {failed}");
    drop((driver, connector));
    let served = serving.join().into_report(&document, 1.0).expect("a report");
    let replayed = replay(&path).expect("it can be replayed");
    let seen = |report: &Report| {
        let sections = ["nand", "traffic"].map(|section| report.counts.section(section).clone());
        (sections, report.faults.clone())
    };
    assert_eq!(seen(&served), seen(&replayed));
    let struck: Vec<_> = served.faults.iter().map(|fault| (fault.rule.as_str(), fault.struck)).collect();
    assert!(struck[0].1 > 0, "{struck:?}");
    assert_eq!(struck.last(), Some(&("power-cut 1", 1)), "{struck:?}");
}

#[test]
fn a_recording_does_not_choose_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, image) = (folder.path().join("recording"), folder.path().join("image"));
    let text = format!(
        "# recorded with profile cosmos-plus\n[media]\nkind = \"file\"\npath = {:?}\n",
        image.display().to_string()
    );
    drop(Recorder::new(Box::new(fs::File::create(&path).expect("a file")), &text).expect("it is written"));
    let error = replay(&path).expect_err("it is refused").to_string();
    assert!(error.contains("media.kind: a recording does not contain the image file"), "{error}");
    assert!(!image.exists());
}

#[test]
fn a_wall_run_until_the_drive_is_full_ends_there() {
    let small = ["flash.channels=1", "flash.dies_per_channel=1", "flash.blocks_per_die=32"];
    let work = ["workload.until_full=true", "workload.ops=1000000", "workload.value_size=4096"];
    let report = wall(&[&small[..], &work].concat(), None).expect("it runs");
    assert!((100..1_000_000).contains(&report.ops.store) && report.ops.errors == 0, "{:?}", report.ops);
}

/// A rate, intervals and a series by the machine's clock: the last operation does not begin before its time,
/// and the intervals add up to the run, with one thread and with several.
#[test]
fn operations_begin_at_their_times_in_wall_time() {
    let work = ["workload.name=ycsb-a", "workload.num=500", "workload.ops=400", "workload.verify=values"];
    let times = ["workload.rate_per_s=2k/s", "run.interval_ns=40ms", "host.depth=4", "run.clock=wall"];
    for threads in ["host.threads=0", "host.threads=3"] {
        let document = document(&[&work[..], &times, &[threads]].concat());
        let seen = Rc::new(RefCell::new((0, 0, 0)));
        let count = seen.clone();
        let on_interval: OnInterval = Rc::new(move |interval| {
            let (intervals, ops, end) = &mut *count.borrow_mut();
            assert!(interval.began_ns == *end && interval.ended_ns > *end, "they follow each other");
            *end = interval.ended_ns;
            *intervals += 1;
            *ops += interval.latencies().map(|(_, histogram)| histogram.summary().count).sum::<u64>();
        });
        let watch = Watch { intervals: Some((50_000_000, on_interval)), ..Watch::progress(&|_, _| ()) };
        let options = WallOptions { pace: Pace::Off, record: None, own_thread: false };
        let report = run_wall_watched(&document, &options, &watch).expect("it runs").report;
        assert!(report.verified.as_ref().expect("it was asked for").is_whole(), "{threads}");
        assert!(report.time.wall_s >= 399.0 / 2000.0, "{threads}: {}", report.time.wall_s);
        let (intervals, ops, _) = *seen.borrow();
        assert!(ops == 400 && intervals >= 4, "{threads}: {ops} operations in {intervals} intervals");
        let series = report.series.as_ref().expect("it was asked for");
        assert!(series.ops.iter().sum::<u64>() == 400 && series.ops.len() >= 5, "{threads}: {series:?}");
        assert!(
            report.notes.iter().any(|note| note.starts_with("operations began at 2 000/s")),
            "{:?}",
            report.notes
        );
    }
}

/// An operation that is due long after the run was stopped does not begin, and the run does not wait for it.
#[test]
fn a_stop_ends_the_wait_for_an_operation() {
    const GAP_S: u64 = 20;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gap.csv");
    fs::write(&path, format!("time,op,key,size\n0,store,a,100\n{GAP_S}s,store,b,100\n")).expect("a file");
    let trace = format!("workload.trace={}", path.display());
    let document = document(&[
        "workload.name=trace",
        &trace,
        "workload.arrivals=trace",
        "host.depth=2",
        "run.clock=wall",
    ]);
    let stop = Arc::<AtomicBool>::default();
    let stopped = stop.clone();
    let on_interval: OnInterval = Rc::new(move |_| stopped.store(true, Ordering::Relaxed));
    let intervals = Some((10_000_000, on_interval));
    let watch = Watch { intervals, stop, ..Watch::progress(&|_, _| ()) };
    let options = WallOptions { pace: Pace::Off, record: None, own_thread: false };
    let ran = run_wall_watched(&document, &options, &watch).expect("it runs");
    assert!(ran.report.is_stopped && ran.report.ops.answered() == 1, "{:?}", ran.report.ops);
    assert!(ran.report.time.wall_s < GAP_S as f64, "{} s", ran.report.time.wall_s);
}

/// The check of model time, which notices errors: a drive that corrupts values it reads is detected.
#[test]
fn what_comes_back_in_wall_time_is_checked() {
    let work = ["workload.name=ycsb-a", "workload.num=200", "workload.ops=2000", "host.depth=8"];
    let report = wall(&[&work[..], &["workload.verify=values"]].concat(), None).expect("it runs");
    let verified = report.verified.expect("it was asked for");
    assert!(verified.is_whole() && verified.checked == report.ops.retrieve, "{verified:?}");
    // With another value size, the pairs on the same files are not those of the run.
    let folder = tempfile::tempdir().expect("a folder");
    let path = format!("media.path={}", folder.path().join("d.img").display());
    let on_file = [&work[..], &["media.kind=file", &path]].concat();
    wall(&on_file, None).expect("it runs");
    let only = |more: &[&str]| {
        let settings = [&on_file[..], &["workload.verify=only"], more].concat();
        wall(&settings, None).expect("it runs").verified.expect("it was asked for")
    };
    assert!(only(&[]).is_whole());
    let other = only(&["workload.value_size=33"]);
    assert_eq!((other.checked, other.wrong), (200, 200), "{other:?}");
}

/// Threads with SAKER in front, by the machine's clock: all writes reported as stored are stored, and their
/// batches are counted.
#[test]
fn saker_on_threads_in_wall_time() {
    for (batch, transfer) in [(0, "prp"), (16, "piggyback")] {
        let settings = [
            "saker.enabled=true",
            &format!("saker.batch={batch}"),
            &format!("host.transfer={transfer}"),
            "saker.cache_bytes=65536",
            "host.threads=2",
            "workload.name=ycsb-a",
            "workload.num=2000",
            "workload.ops=20000",
            "workload.value_size=40",
            "workload.sync_every=1000",
            "workload.verify=values",
        ];
        let report = wall(&settings, None).expect("it runs");
        assert_eq!((report.ops.errors, report.ops.total()), (0, 20_000), "{:?}", report.notes);
        let verified = report.verified.expect("it was asked for");
        assert!(verified.is_whole() && verified.checked > 1000, "{verified:?}");
        let count = |name: &str| report.counts.section("saker").of(name);
        assert_eq!(count("requests"), report.ops.store, "of the run, without loading");
        assert!(count("batches") < count("requests"), "{} batches", count("batches"));
        assert!(count("cache_hits") + count("pending_hits") > 0);
    }
}

/// Without SAKER each thread has a queue pair, too.
#[test]
fn threads_have_a_queue_pair_each_in_wall_time() {
    let settings = ["host.threads=3", "host.depth=8", "workload.name=ycsb-a", "workload.verify=values"];
    let small = ["workload.num=2000", "workload.ops=10000", "workload.value_size=40"];
    let report = wall(&[&settings[..], &small].concat(), None).expect("it runs");
    assert_eq!((report.ops.errors, report.ops.total()), (0, 10_000), "{:?}", report.notes);
    assert!(report.verified.expect("it was asked for").is_whole());
    let refused = wall(&["host.queues=2"], None).expect_err("it is refused").to_string();
    assert!(refused.starts_with("host.queues: 2; in wall time each thread has a queue pair"), "{refused}");
}

/// Settings that only the other end reads, or neither end; refused before a connection is made.
#[test]
fn what_a_run_over_a_network_does_not_look_at_is_refused() {
    let remote = Remote { address: "127.0.0.1:1".into(), ..Remote::default() };
    let mut document = Document::profile("cosmos-plus").expect("the profile exists");
    ["run.clock=wall", "host.threads=2"].iter().for_each(|set| document.set(set).expect("a setting"));
    let error = run_connected(&document, std::slice::from_ref(&remote), false, &Watch::progress(&|_, _| ()))
        .err()
        .expect("refused");
    let line = "host.threads: a run over a network does not look at it";
    assert!(error.to_string().starts_with(line), "{error}");
}
