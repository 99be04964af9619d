//! Remembered reports are the computed ones, for exactly the same runs.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use kvdrive_config::Document;
use kvdrive_results::{Conduct, DEFAULT_LIMIT_BYTES, ResultCache, program};
use kvdrive_run::plan::Plan;
use kvdrive_run::report::{Report, compare};
use kvdrive_run::{FinishedRun, Watch};

fn document(settings: &[&str]) -> Document {
    let mut document = Document::profile("cosmos-plus").unwrap();
    for setting in ["workload.name=ycsb-a", "workload.ops=300", "workload.num=100"].iter().chain(settings) {
        document.set(setting).unwrap();
    }
    document
}

/// A folder for a cache.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("results")
    }

    fn cache(&self, program: &str) -> ResultCache {
        ResultCache::open(self.path(), program.to_owned())
    }

    /// The reports of a session, and whether they were computed.
    fn ask(&self, program: &str, documents: &[Document]) -> (Vec<Report>, bool) {
        // Only runs that are computed have progress.
        let is_computed = Cell::new(false);
        let progress = |_, _| is_computed.set(true);
        let runs = self.cache(program).run_session(documents, &Watch::progress(&progress)).unwrap();
        (runs.into_iter().map(|ran| ran.whole().unwrap()).collect(), is_computed.get())
    }

    fn entries(&self) -> Vec<PathBuf> {
        let listed = std::fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut entries: Vec<_> = listed.filter(|path| path.extension().is_some()).collect();
        entries.sort();
        entries
    }
}

fn json(reports: &[Report]) -> String {
    serde_json::to_string(reports).unwrap()
}

#[test]
fn the_second_answer_is_the_first_to_the_byte() {
    let bench = Bench::new();
    for profile in ["cosmos-plus", "kvvirt", "saker-mid"] {
        let mut document = Document::profile(profile).unwrap();
        for setting in ["workload.name=ycsb-a", "workload.ops=300", "workload.num=100", "run.interval_ns=1ms"]
        {
            document.set(setting).unwrap();
        }
        let documents = [document];
        let (first, computed) = bench.ask("p", &documents);
        assert!(computed);
        let (second, computed) = bench.ask("p", &documents);
        assert!(!computed, "{profile}");
        assert_eq!(json(&first), json(&second));
        assert_eq!(first[0].to_string(), second[0].to_string());
        assert_eq!(compare(&first), compare(&second));
        assert_eq!(first, second);
    }
}

#[test]
fn runs_that_follow_each_other_are_one_result() {
    let bench = Bench::new();
    let load = ["workload.timed_load=false", "workload.overwrites=50"];
    let one = |ops: &str| document(&[&load[..], &[ops]].concat());
    let session = [one("workload.ops=200"), one("workload.ops=100")];
    let (first, _) = bench.ask("p", &session);
    let (second, computed) = bench.ask("p", &session);
    assert!(!computed);
    assert_eq!(json(&first), json(&second));
    let (alone, computed) = bench.ask("p", &session[1..]);
    assert!(computed, "alone it runs on another drive");
    assert_ne!(json(&first[1..]), json(&alone));
}

#[test]
fn another_seed_setting_profile_or_program_is_computed() {
    let bench = Bench::new();
    assert!(bench.ask("p", &[document(&[])]).1);
    for settings in [&["run.seed=2"][..], &["host.transfer=prp"], &["workload.ops=301"], &["host.alpha=1.5"]]
    {
        assert!(bench.ask("p", &[document(settings)]).1, "{settings:?}");
        assert!(!bench.ask("p", &[document(settings)]).1, "{settings:?}");
    }
    assert!(bench.ask("q", &[document(&[])]).1, "another program");
    let mut other = Document::profile("gen5-cxl").unwrap();
    other.set("workload.ops=300").unwrap();
    assert!(bench.ask("p", &[other]).1, "another profile");
    assert!(!bench.ask("p", &[document(&[])]).1);
}

/// A named DRAM budget is a set of values of other keys: of two documents with equal values, one may have the
/// name.
#[test]
fn a_report_names_the_dram_point_that_was_asked_for() {
    let bench = Bench::new();
    let plus = |point: Option<&str>, settings: &[(String, String)]| {
        let mut document = Document::profile("kvvirt").unwrap();
        for setting in ["workload.name=ycsb-a", "workload.ops=300", "workload.num=100"] {
            document.set(setting).unwrap();
        }
        point.iter().for_each(|point| document.set_dram(point).unwrap());
        settings.iter().for_each(|(key, value)| document.set(&format!("{key}={value}")).unwrap());
        document
    };
    let named = plus(Some("total-128"), &[]);
    let by_keys = plus(None, &named.user_settings());
    assert_eq!(named.values(), by_keys.values());
    let (first, _) = bench.ask("p", &[named]);
    let (second, computed) = bench.ask("p", &[by_keys]);
    assert!(!computed);
    assert_eq!((first[0].dram_point.as_deref(), second[0].dram_point.as_deref()), (Some("total-128"), None));
    assert_eq!(first[0].counts, second[0].counts);
}

#[test]
fn a_damaged_entry_is_computed_again() {
    let bench = Bench::new();
    let documents = [document(&[])];
    let (first, _) = bench.ask("p", &documents);
    let entry = bench.entries().remove(0);
    let whole = std::fs::read(&entry).unwrap();
    let is_computed_again = |bytes: &[u8], how: &str| {
        std::fs::write(&entry, bytes).unwrap();
        let (again, computed) = bench.ask("p", &documents);
        assert!(computed, "{how}");
        assert_eq!(again[0].latency_ns, first[0].latency_ns);
        assert!(!bench.ask("p", &documents).1, "the whole entry is back");
    };
    for at in (0..whole.len()).step_by(whole.len() / 12) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        is_computed_again(&bytes, &format!("byte {at} of {}: {:?}", whole.len(), bytes[at] as char));
    }
    for bytes in [0, 1, whole.len() / 2, whole.len() - 1] {
        is_computed_again(&whole[..bytes], &format!("cut at {bytes}"));
    }
    is_computed_again(&[&whole[..], b"x"].concat(), "longer");
    is_computed_again(&[0xff; 100], "no text");
}

#[test]
fn an_entry_under_the_name_of_another_is_not_returned() {
    let bench = Bench::new();
    let (one, other) = ([document(&[])], [document(&["run.seed=2"])]);
    bench.ask("p", &one);
    let first = bench.entries().remove(0);
    bench.ask("p", &other);
    let second = bench.entries().into_iter().find(|entry| *entry != first).unwrap();
    std::fs::copy(&first, &second).unwrap();
    let (reports, computed) = bench.ask("p", &other);
    assert!(computed);
    assert_eq!(reports[0].seed, 2);
}

#[test]
fn an_entry_says_what_it_holds() {
    let bench = Bench::new();
    bench.ask("0123456789", &[document(&["host.transfer=prp"])]);
    let text = std::fs::read_to_string(bench.entries().remove(0)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines.len()), ("kvdrive results 1", 4));
    let key: serde_json::Value = serde_json::from_str(lines[2]).unwrap();
    assert_eq!(key["program"], "0123456789");
    assert_eq!(key["runs"][0]["profile"], "cosmos-plus");
    assert_eq!(key["runs"][0]["config"]["host"]["transfer"], "prp");
}

#[test]
fn what_is_a_function_of_more_is_not_remembered() {
    let bench = Bench::new();
    let image = bench.folder.path().join("drive.img");
    let documents = [document(&["media.kind=file", &format!("media.path={}", image.display())])];
    assert!(bench.ask("p", &documents).1);
    assert!(bench.ask("p", &documents).1, "the image is another one by now");
    assert!(!bench.path().exists());
}

#[test]
fn a_trace_counts_by_its_content() {
    let bench = Bench::new();
    let trace = bench.folder.path().join("ops.csv");
    let documents = [document(&["workload.name=trace", &format!("workload.trace={}", trace.display())])];
    std::fs::write(&trace, "time,op,key,size\n0,store,a,10\n").unwrap();
    assert_eq!(bench.ask("p", &documents).0[0].ops.store, 1);
    assert!(!bench.ask("p", &documents).1);
    std::fs::write(&trace, "time,op,key,size\n0,store,a,10\n1,store,b,10\n").unwrap();
    assert_eq!(bench.ask("p", &documents).0[0].ops.store, 2);
}

#[test]
fn results_that_were_not_used_for_longest_leave() {
    let bench = Bench::new();
    let of_seed = |seed: u64| [document(&[&format!("run.seed={seed}")])];
    bench.ask("p", &of_seed(1));
    let bytes = bench.cache("p").usage().unwrap().bytes;
    bench.cache("p").set_limit(4 * bytes).unwrap();
    for seed in 2..=3 {
        bench.ask("p", &of_seed(seed));
    }
    // One hour between uses: seed 1 longest ago, then 3, then 2.
    for (hours, seed) in [(1, 1), (3, 2), (2, 3)] {
        let text = format!("\"seed\":{seed},");
        let entry =
            bench.entries().into_iter().find(|path| std::fs::read_to_string(path).unwrap().contains(&text));
        let file = std::fs::File::options().append(true).open(entry.unwrap()).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(3600 * hours)).unwrap();
    }
    assert!(!bench.ask("p", &of_seed(1)).1, "used now, so it stays");
    bench.ask("p", &of_seed(4));
    bench.ask("p", &of_seed(5));
    let usage = bench.cache("p").usage().unwrap();
    assert!(usage.bytes <= usage.limit_bytes && usage.entries >= 2, "{usage:?}");
    assert!(!bench.ask("p", &of_seed(1)).1);
    assert!(!bench.ask("p", &of_seed(5)).1);
    assert!(bench.ask("p", &of_seed(3)).1);
}

#[test]
fn a_cache_is_cleared_and_leaves_what_is_not_its_own() {
    let bench = Bench::new();
    bench.ask("p", &[document(&[])]);
    let unfinished = bench.path().join(".unfinished-abc");
    std::fs::write(&unfinished, "of a killed program").unwrap();
    std::fs::write(bench.path().join("notes.txt"), "mine").unwrap();
    assert!(bench.cache("p").clear().unwrap() > 0);
    let left = bench.cache("p").usage().unwrap();
    assert_eq!((left.entries, left.bytes, left.limit_bytes), (0, 0, DEFAULT_LIMIT_BYTES));
    assert!(bench.path().join("notes.txt").exists() && !unfinished.exists());
    assert!(bench.ask("p", &[document(&[])]).1);
}

#[test]
fn a_folder_that_cannot_be_written_costs_no_report() {
    let bench = Bench::new();
    std::fs::write(bench.path(), "a file in its place").unwrap();
    let cache = bench.cache("p");
    let reports = cache.run_session(&[document(&[])], &Watch::progress(&|_, _| ())).unwrap();
    assert_eq!(reports.len(), 1);
    let failure = cache.failure().unwrap();
    assert!(failure.contains("results") && failure.lines().count() == 1, "{failure}");
    let none = ResultCache::none().run_session(&[document(&[])], &Watch::progress(&|_, _| ()));
    assert_eq!(none.unwrap().len(), 1);
}

#[test]
fn an_edited_program_counts_as_one_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kvdrive");
    let of = |content: &str, revision: &str, is_committed: bool| {
        std::fs::write(&file, content).unwrap();
        program(revision, is_committed, &file).unwrap()
    };
    assert_eq!(of("one", "91ba31d8f0", true), of("two", "91ba31d8f0", true));
    let edited = "91ba31d8f0-dirty.1f0c9a34";
    assert_ne!(of("one", edited, false), of("two", edited, false));
    assert_eq!(of("one", edited, false), of("one", edited, false));
    assert_ne!(of("one", "unknown", false), of("two", "unknown", false));
    assert!(program(edited, false, Path::new("/nowhere")).is_err());
    assert!(program("91ba31d8f0", true, Path::new("/nowhere")).is_ok());
}

#[test]
fn long_runs_begin_first_and_remembered_ones_last() {
    let bench = Bench::new();
    let of = |ops: u64| document(&[&format!("workload.ops={ops}")]);
    let documents = [of(100), of(40_000_000), of(20_000_000), of(20_000_001)];
    bench.ask("p", &documents[..1]);
    let ahead = bench.cache("p").ahead(&Plan::apart(documents.to_vec())).unwrap();
    assert_eq!(ahead.sessions, [[1], [3], [2], [0]]);
    assert_eq!(ahead.to_run().len(), 3);
    let (alone, two) = (ahead.seconds_on(1), ahead.seconds_on(2));
    assert!((alone / two - 2.0).abs() < 0.01, "40 beside 20 and 20 M: {alone}, {two}");
    assert!(ahead.in_words(2).starts_with("3 runs and 1 remembered: about "), "{}", ahead.in_words(2));
    let all = bench.cache("p").ahead(&Plan::apart(documents[..1].to_vec())).unwrap();
    assert_eq!(all.in_words(2), "1 run, remembered");
}

#[test]
fn a_run_takes_as_long_as_it_took_under_another_revision() {
    let bench = Bench::new();
    let documents = [document(&[])];
    let (reports, _) = bench.ask("p", &documents);
    let ahead = |documents: &[Document]| bench.cache("q").ahead(&Plan::apart(documents.to_vec())).unwrap();
    let guess = ahead(&[document(&["run.seed=2"])]).seconds_on(1);
    let ahead = ahead(&documents);
    assert_eq!(ahead.seconds_on(1), reports[0].time.wall_s);
    assert_ne!(ahead.seconds_on(1), guess);
    assert_eq!(ahead.to_run(), [[0]]);
}

/// Two threads, a session of two runs, and one remembered: each outcome comes once, with the report of its own run.
#[test]
fn a_plan_is_carried_out_once_whoever_asks_and_a_failure_ends_it() {
    let bench = Bench::new();
    let of = |ops: u64| document(&[&format!("workload.ops={ops}")]);
    let load = ["workload.timed_load=false", "workload.overwrites=1"];
    let mut plan = Plan::apart(vec![of(100), of(200)]);
    let both = [["workload.ops=30"], ["workload.ops=40"]].map(|ops| document(&[&load[..], &ops].concat()));
    assert_eq!(plan.add(both.to_vec()).unwrap(), (vec![2, 3], true));
    assert_eq!(plan.add(both.to_vec()).unwrap(), (vec![2, 3], false));
    bench.ask("p", &[of(200)]);
    let cache = bench.cache("p");
    let stop = Arc::new(AtomicBool::new(false));
    let told = Mutex::new(BTreeSet::new());
    let progress = |run, _, _| _ = told.lock().unwrap().insert(run);
    let conduct = Conduct { threads: 2, stop: stop.clone(), progress: &progress };
    let order = cache.ahead(&plan).unwrap();
    let reports = cache.reports(&plan, &order, &conduct).unwrap();
    let ops: Vec<_> = reports.iter().map(|report| report.as_ref().unwrap().ops.total()).collect();
    assert_eq!(ops, [100, 200, 30, 40]);
    assert_eq!(*told.lock().unwrap(), BTreeSet::from([0, 2]), "a session is told of by its first run");
    assert!(cache.ahead(&plan).unwrap().to_run().is_empty());

    let seen = Mutex::new(Vec::new());
    let first = |run: usize, ended: anyhow::Result<FinishedRun>| {
        seen.lock().unwrap().push((run, ended.is_ok()));
        anyhow::bail!("enough")
    };
    let alone = Conduct { threads: 1, stop: stop.clone(), progress: &progress };
    let error = cache.carry_out(&plan, &order, &alone, &first).unwrap_err();
    assert_eq!((error.to_string().as_str(), seen.lock().unwrap().len()), ("enough", 1));
    stop.store(true, Ordering::Relaxed);
    assert!(cache.reports(&plan, &order, &conduct).unwrap().iter().all(Option::is_none));
}
