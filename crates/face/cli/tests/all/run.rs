//! `kvdrive run` as a program: load, checks, logs, and its output when it is stopped.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn kvdrive(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvdrive")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn numbers_have_units_wherever_one_is_asked_for() {
    let output = kvdrive(&[
        "run",
        "--workload",
        "fillseq",
        "--ops",
        "2k",
        "--value-size",
        "1KiB",
        "--rate",
        "10k/s",
        "--duration",
        "100ms",
        "--depth",
        "4",
        "--set",
        "buffer.entries=1k",
        "--set",
        "power.protected_bytes=64MiB",
        "--json",
        "-",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ops"]["store"], 1000);
    assert_eq!(report["config"]["workload"]["value_size"], 1024);
    for (arguments, line) in [
        (["--ops", "1X"], "workload.ops: unknown unit \"X\""),
        (["--value-size", "1k"], "unknown unit \"k\""),
        (["--duration", "10"], "100ms or 10s"),
        (["--rate", "fast"], "workload.rate_per_s"),
        (["--ops", "100G"], "workload.ops: at least 100 000 000 000 values of "),
    ] {
        let output = kvdrive(&[&["run", "--workload", "fillseq"], &arguments[..]].concat());
        assert!(!output.status.success() && text(&output.stderr).contains(line), "{}", text(&output.stderr));
    }
}

#[test]
fn a_check_of_an_image_ends_with_a_status() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("media.path={}", folder.path().join("image").display());
    let image = ["--workload", "fillseq", "--ops", "500", "--media", "file", "--set", &path];
    let run = |more: &[&str]| kvdrive(&[&["run"], &image[..], more].concat());
    assert!(run(&[]).status.success());
    let whole = run(&["--verify-only"]);
    assert!(whole.status.success() && text(&whole.stdout).contains("VERIFIED"), "{}", text(&whole.stderr));
    let other = run(&["--verify-only", "--value-size", "33"]);
    assert_eq!(other.status.code(), Some(1));
    assert!(text(&other.stderr).contains("--verify-only: "), "{}", text(&other.stderr));
    assert!(text(&other.stdout).contains("stored were 33"), "{}", text(&other.stdout));
}

/// The verdict of a check whose output is not read is not known, and so it is no success.
#[test]
fn a_reader_that_has_gone_away_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image").display().to_string();
    let path = format!("media.path={image}");
    let made = kvdrive(&["run", "--workload", "fillseq", "--ops", "500", "--media", "file", "--set", &path]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    for command in [&["check", &image][..], &["dump", &image], &["list", "profiles"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let program =
            Command::new(env!("CARGO_BIN_EXE_kvdrive")).args(command).stdout(writer).output().unwrap();
        assert_eq!((program.status.code(), text(&program.stderr)), (Some(141), String::new()), "{command:?}");
    }
}

#[test]
fn what_cannot_be_meant_is_refused_with_a_status() {
    let tour = kvdrive(&["--tour-ops", "1000", "run", "--ops", "10"]);
    assert_eq!(tour.status.code(), Some(2), "{}", text(&tour.stdout));
    assert!(text(&tour.stderr).contains("cannot be used with '--tour-ops <N>'"), "{}", text(&tour.stderr));
    let node = ["ng", "--node", "/dev/ng0n1=kvdrive:cosmos-plus", "--by", "seccomp", "--"];
    let nowhere = kvdrive(&[&node[..], &["no-such-program"]].concat());
    assert_eq!(nowhere.status.code(), Some(127), "{}", text(&nowhere.stderr));
    assert!(text(&nowhere.stderr).contains("no-such-program: "), "{}", text(&nowhere.stderr));
}

/// The kernel stops the program at each call, if it can do so as its own driver would.
#[test]
fn a_program_is_supervised_where_signals_cannot_interrupt_a_call() {
    let said = kvdrive(&["ng", "--say", "--node", "/dev/ng0n1=kvdrive:cosmos-plus", "--", "true"]);
    assert!(said.status.success(), "{}", text(&said.stderr));
    let by_seccomp = text(&said.stderr).starts_with("kvdrive: by seccomp; ");
    assert_eq!(by_seccomp, kvdrive_ng::supervise::is_faithful(), "{}", text(&said.stderr));
}

/// Reads that a rule fails are reported, and are no wrong values.
#[test]
fn values_are_compared_although_rules_fail_some_reads() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    std::fs::write(
        &rules,
        "[[rule]]\nfault = \"status\"\nopcode = [\"retrieve\"]\nnth = 3\nstatus = \"88h\"\n",
    )
    .unwrap();
    let load = ["run", "--workload", "ycsb-c", "--num", "100", "--ops", "200", "--verify"];
    let output = kvdrive(&[&load[..], &["--faults", rules.to_str().unwrap(), "--json", "-"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["verified"]["unread"], &report["verified"]["checked"]),
        (&1.into(), &199.into()),
        "{report}"
    );
}

/// Loads of which every operation, or every long transaction, would fail.
#[test]
fn loads_that_cannot_succeed_are_refused_before_they_run() {
    let scans = ["run", "--engine", "lsmtree", "--workload", "ycsb-e", "--num", "1000", "--ops", "300"];
    let refused = kvdrive(&scans);
    let line = text(&refused.stderr);
    assert_eq!((refused.status.code(), line.lines().count()), (Some(2), 1), "{line}");
    assert!(
        line.contains("host.depth: 128; so many scans of ycsb-e") && line.contains("has 100 iterators"),
        "{line}"
    );
    let run = kvdrive(&[&scans[..], &["--depth", "100"]].concat());
    assert!(run.status.success(), "{}", text(&run.stderr));

    let orders = ["run", "--engine", "hashlog", "--saker", "on", "--workload", "tpcc", "--ops", "200"];
    let orders = [&orders[..], &["--set", "workload.warehouses=1", "--set", "workload.atomic=true"]].concat();
    let line = text(&kvdrive(&orders).stderr);
    assert!(line.starts_with("kvdrive: saker.container_bytes: 4096; "), "{line}");
    let needed = line.split("the largest has ").nth(1).unwrap().split(' ').next().unwrap();
    let enough = format!("saker.container_bytes={needed}");
    let run = kvdrive(&[&orders[..], &["--set", &enough]].concat());
    assert!(run.status.success(), "{enough}: {}", text(&run.stderr));
}

/// A rule for stores strikes those whose values travel inside commands, and those alone.
#[test]
fn a_rule_for_stores_strikes_them_however_their_values_travel() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    std::fs::write(&rules, "[[rule]]\nfault = \"status\"\nopcode = \"store\"\nstatus = \"81h\"\n").unwrap();
    let load =
        ["run", "--workload", "fillseq", "--ops", "20", "--faults", rules.to_str().unwrap(), "--json", "-"];
    for (transfer, bytes) in [
        ("piggyback", "100"),
        ("hybrid", "4100"),
        ("byte-express", "100"),
        ("cxl", "100"),
        ("piggyback-cxl", "100"),
        ("prp", "100"),
    ] {
        let output = kvdrive(&[&load[..], &["--transfer", transfer, "--value-size", bytes]].concat());
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let [matched, struck] = ["matched", "struck"].map(|name| report["faults"][0][name].as_u64().unwrap());
        // A store by window whose command is refused is sent again by DMA, and struck again.
        let is_once = matched == 20 || transfer.contains("cxl");
        assert!(is_once && matched >= 20 && matched == struck, "{transfer}: {matched}, {struck}");
        assert_eq!(report["ops"]["errors"].as_u64(), Some(20), "{transfer}");
    }
}

#[test]
fn intervals_and_latencies_go_where_they_are_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (lines, log) = (file("lines"), file("log.hlog"));
    let load = ["run", "--workload", "ycsb-a", "--num", "1k", "--ops", "5k", "--interval", "50ms"];
    let output =
        kvdrive(&[&load[..], &["--interval-file", &lines, "--histogram", &log, "--json", "-"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |path: &str| std::fs::read_to_string(Path::new(path)).unwrap();
    let intervals: Vec<serde_json::Value> =
        read(&lines).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ops: u64 = intervals.iter().map(|line| line["ops"].as_u64().unwrap()).sum();
    assert!(ops == 5000 && intervals.len() > 2, "{intervals:?}");
    let tagged = |tag: &str| read(&log).lines().filter(|line| line.starts_with(tag)).count();
    assert_eq!(tagged("Tag=store,"), intervals.len());
    assert_eq!(tagged("Tag=retrieve,"), intervals.len());
    let both = kvdrive(&[&load[..], &["--json", "-"]].concat());
    assert!(text(&both.stderr).contains("--interval: "), "{}", text(&both.stderr));
}

#[test]
fn a_run_that_is_refused_leaves_the_files_of_an_earlier_one() {
    let folder = tempfile::tempdir().unwrap();
    let (lines, log) = (folder.path().join("lines"), folder.path().join("log.hlog"));
    let files = [&lines, &log];
    files.iter().for_each(|path| std::fs::write(path, "an earlier one").unwrap());
    let [lines, log] = files.map(|path| path.display().to_string());
    let given = ["run", "--interval", "1ms", "--interval-file", &lines, "--histogram", &log];
    for refused in [["--pace", "off"], ["--workload", "trace:nowhere"], ["--connect", "tcp://127.0.0.1:1"]] {
        let output = kvdrive(&[&given[..], &refused].concat());
        assert!(!output.status.success(), "{refused:?}");
        for path in files {
            assert_eq!(std::fs::read_to_string(path).unwrap(), "an earlier one", "{refused:?}");
        }
    }
}

#[test]
fn ctrl_c_prints_the_report_so_far_and_says_so() {
    let program = Command::new(env!("CARGO_BIN_EXE_kvdrive"))
        .args(["run", "--workload", "fillseq", "--set", "workload.key_size=8", "--ops", "1G"])
        .args(["--interval", "1ms", "--interval-file", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut program = program.unwrap();
    let mut out = program.stdout.take().unwrap();
    let mut first = [0; 64];
    out.read_exact(&mut first).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(Command::new("kill").args(["-INT", &program.id().to_string()]).status().unwrap().success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(program.wait().unwrap().code(), Some(130));
    assert!(rest.contains("of 1 000 000 000 operations done: this is the report so far"), "{rest}");
    assert!(rest.contains("LATENCY"), "{rest}");
}

/// The comparison so far has the runs under way, as far as they went, and the number of the others.
#[test]
fn ctrl_c_prints_the_comparison_so_far() {
    let program = Command::new(env!("CARGO_BIN_EXE_kvdrive"))
        .args(["compare", "--workload", "fillseq", "--set", "workload.key_size=8", "--ops", "1G"])
        .args(["--depth", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20"])
        .args(["--no-cache", "--json", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let program = program.unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert!(Command::new("kill").args(["-INT", &program.id().to_string()]).status().unwrap().success());
    let output = program.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains(" of 20 runs have a report,"), "{}", text(&output.stderr));
    let reports: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!reports.is_empty());
    for report in &reports {
        assert!(report["ops"]["store"].as_u64() > Some(0), "{report}");
        assert!(report["notes"].to_string().contains("this is the report so far"), "{report}");
    }
}

#[test]
fn latencies_of_every_run_of_a_comparison_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (log, cdf) = (file("log.hlog"), file("cdf.csv"));
    let load = ["--workload", "ycsb-a", "--num", "1k", "--ops", "2k"];
    let files = ["--histogram", &log, "--cdf", &cdf];
    let output = kvdrive(&[&["compare", "--depth", "1,8"], &load[..], &files].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    let tags = ["1.store", "1.retrieve", "2.store", "2.retrieve"];
    assert!(tags.iter().all(|tag| read(&log).contains(&format!("Tag={tag},"))), "{}", read(&log));
    assert!(read(&log).contains("#[run 2: host.depth=8]"), "{}", read(&log));
    let lines: Vec<String> = read(&cdf).lines().map(str::to_owned).collect();
    assert_eq!(lines[0], "run,settings,operation,latency_ns,share");
    for run in ["1,\"host.depth=1\",store,", "2,\"host.depth=8\",retrieve,"] {
        let of_run: Vec<&String> = lines.iter().filter(|line| line.starts_with(run)).collect();
        assert!(!of_run.is_empty() && of_run.last().unwrap().ends_with(",1"), "{run}: {of_run:?}");
    }
    // The same for one run.
    let output = kvdrive(&[&["run", "--cdf", &cdf], &load[..]].concat());
    assert!(output.status.success() && read(&cdf).contains(",store,"), "{}", text(&output.stderr));
}

/// Each of few operations is a step of the distribution: shares grow, and the last one is the whole.
#[test]
fn the_distribution_of_few_operations_has_a_step_for_each_latency_and_ends_at_1() {
    let folder = tempfile::tempdir().unwrap();
    let cdf = folder.path().join("cdf.csv");
    for ops in ["1", "2", "3"] {
        let run =
            ["run", "--workload", "fillseq", "--ops", ops, "--cdf", cdf.to_str().unwrap(), "--json", "-"];
        let output = kvdrive(&run);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = std::fs::read_to_string(&cdf).unwrap();
        let steps: Vec<(f64, f64)> = rows
            .lines()
            .skip(1)
            .map(|line| {
                let mut fields = line.rsplit(',').map(|field| field.parse::<f64>());
                let (share, latency_ns) = (fields.next().unwrap().unwrap(), fields.next().unwrap().unwrap());
                (latency_ns, share)
            })
            .collect();
        assert!((1..=ops.parse().unwrap()).contains(&steps.len()), "{rows}");
        assert!(steps.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1), "{rows}");
        let (largest_ns, all) = *steps.last().unwrap();
        assert_eq!(
            (largest_ns, all),
            (report["latency_ns"]["store"]["max"].as_f64().unwrap(), 1.0),
            "{rows}"
        );
        let mean_ns: f64 = steps
            .iter()
            .scan(0.0, |before, (latency_ns, share)| {
                Some(latency_ns * (share - std::mem::replace(before, *share)))
            })
            .sum();
        let mean = report["latency_ns"]["store"]["mean"].as_f64().unwrap();
        assert!((mean_ns / mean - 1.0).abs() < 0.01, "{mean_ns} {mean}: {rows}");
    }
}

/// A drive that its options describe keeps its size, so pairs that do not fit are refused before a run and its cuts.
#[test]
fn crash_refuses_pairs_that_do_not_fit_its_drive() {
    let crash = |value_size: &str| {
        kvdrive(&[
            "crash",
            "--workload",
            "fillseq",
            "--ops",
            "100",
            "--value-size",
            value_size,
            "--cuts",
            "1",
            "--set",
            "flash.blocks_per_die=64",
        ])
    };
    let refused = crash("100MiB");
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    let line = "kvdrive: workload.ops: at least 100 values of 104 857 600 B are 10.49 GB, and the drive has ";
    assert!(said.starts_with(line) && said.trim_end().ends_with(" of flash"), "{said}");
    assert!(crash("100").status.success());
}

#[test]
fn a_refusal_repeats_no_control_characters() {
    for arguments in
        [["run", "--engine", "\u{1b}[31mred"], ["list", "\u{1b}[31m", "\u{7}"], ["run", "--set", "\u{1b}=1"]]
    {
        let refused = Command::new(env!("CARGO_BIN_EXE_kvdrive")).args(arguments).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success(), "{arguments:?}");
        assert!(said.chars().all(|c| c == '\n' || !c.is_control()), "{said:?}");
        // The argument parser strips control characters from arguments that it repeats.
        assert!(said.contains("\\u{1b}") || arguments[0] == "list", "{said:?}");
    }
}

/// Without memory the program ends at once, for any use of the memory.
#[test]
#[cfg(target_os = "linux")]
fn without_memory_it_ends_and_says_so() {
    let run = |limit_kib: u32| {
        let line = format!("ulimit -v {limit_kib}; exec {} run --ops 2000", env!("CARGO_BIN_EXE_kvdrive"));
        let ended = Command::new("sh").args(["-c", &line]).env("RUST_BACKTRACE", "1").output().unwrap();
        (ended.status.success(), String::from_utf8_lossy(&ended.stderr).into_owned())
    };
    for limit_kib in [60_000, 90_000, 120_000, 180_000] {
        let (is_done, said) = run(limit_kib);
        assert!(is_done || said.contains("memory allocation of "), "{limit_kib} KiB: {said}");
        assert!(!said.contains("panicked"), "{limit_kib} KiB: {said}");
    }
    assert!(!run(60_000).0, "it is not enough");
}

/// Without a path the files of a drive that is cut are among the temporary ones, and none of them stays.
#[test]
fn crash_on_files_needs_no_path() {
    let folder = tempfile::tempdir().unwrap();
    let mut crash = Command::new(env!("CARGO_BIN_EXE_kvdrive"));
    crash.args(["crash", "--media", "file", "--ops", "300", "--cuts", "3"]).env("TMPDIR", folder.path());
    let output = crash.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("power cuts: 3 during the run"), "{}", text(&output.stdout));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A storm prints each case as a command, which `crash` accepts unchanged, with the same verdict.
#[test]
fn a_case_of_a_storm_is_a_command_of_crash() {
    let kvdrive = env!("CARGO_BIN_EXE_kvdrive");
    let out = Command::new(kvdrive).args(["storm", "--cases", "24", "--verbose"]).output().unwrap();
    let out = String::from_utf8(out.stdout).unwrap();
    let commands: Vec<&str> = out.lines().filter_map(|line| Some(line.split_once(": kvdrive ")?.1)).collect();
    assert_eq!(commands.len(), 24, "{out}");
    let without_faults = commands.iter().filter(|command| !command.contains("faults.toml"));
    for command in without_faults.take(4) {
        let again = Command::new("sh").args(["-c", &format!("{kvdrive} {command}")]).output().unwrap();
        let told = String::from_utf8_lossy(&again.stderr);
        // A drive that is too small for its load is no verdict of a storm, and `crash` says what is the matter.
        let is_too_small = told.contains("loading: ") && told.trim_end().ends_with("capacity exceeded (81h)");
        assert!(again.status.success() || is_too_small, "{command}: {told}");
    }
}

#[test]
fn operations_that_fail_are_no_success() {
    let sizes = [
        "flash.channels=1",
        "flash.dies_per_channel=1",
        "flash.blocks_per_die=32",
        "flash.spare_blocks=2",
        "flash.pages_per_block=32",
        "gc.segment_pages=8",
        "buffer.entries=16",
        "ftl.gc_low_blocks=2",
    ];
    let mut small = vec!["run", "--workload", "w-a", "--value-size", "16KiB", "--ops", "1k"];
    small.extend(sizes.iter().flat_map(|size| ["--set", *size]));
    let output = kvdrive(&small);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("of 1 000 operations failed; first of "), "{error}");
    assert!(text(&output.stdout).contains("LATENCY"), "the report is printed all the same");
}
