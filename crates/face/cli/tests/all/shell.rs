//! What the command prints about itself: version, completions, pages for man, and suggestions.

use std::process::{Command, Output};

fn kvdrive(arguments: &[&str]) -> Output {
    let caches = env!("CARGO_TARGET_TMPDIR");
    Command::new(env!("CARGO_BIN_EXE_kvdrive"))
        .env("XDG_CACHE_HOME", caches)
        .args(arguments)
        .output()
        .unwrap()
}

fn said(arguments: &[&str]) -> String {
    let output = kvdrive(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refused(arguments: &[&str]) -> String {
    let output = kvdrive(arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn version_has_the_revision() {
    assert!(said(&["--version"]).contains(kvdrive_revision::REVISION));
}

#[test]
fn shells_and_man_are_told_of_every_subcommand() {
    for shell in ["bash", "zsh", "fish"] {
        let script = said(&["completions", shell]);
        assert!(script.contains("verify-only") && script.contains("completions"), "{shell}");
    }
    assert!(said(&["man"]).contains("kvdrive") && said(&["man", "run"]).contains("histogram"));
    assert!(refused(&["man", "runs"]).contains("no subcommand \"runs\"; there are run, "));
}

/// Every name that the program knows and prints in errors is completed.
#[test]
fn completions_complete_values() {
    let bash = said(&["completions", "bash"]);
    let of = |command: &str, option: &str| -> String {
        let section = bash.split(&format!("        kvdrive__{command})\n")).nth(1);
        let section =
            section.or_else(|| bash.split(&format!("        kvdrive__subcmd__{command})\n")).nth(1)).unwrap();
        let after = section.split(&format!("                {option})\n")).nth(1).unwrap();
        after.lines().next().unwrap().to_owned()
    };
    for (option, value) in [
        ("--transfer", "piggyback"),
        ("--workload", "ycsb-a"),
        ("--profile", "pm983"),
        ("--packing", "backfill"),
        ("--engine", "plus2"),
        ("--store", "lsmtree"),
        ("--nand", "off"),
        ("--set", "flash.channels="),
    ] {
        let line = of("run", option);
        assert!(line.contains("compgen -W") && line.contains(value), "{option}: {line}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = said(&["completions", shell]);
        // Scripts for fish have values of options alone.
        let positional = if shell == "fish" { &[][..] } else { &["bandslim-8", "drop-connection"] };
        for value in ["pm983", "piggyback-pipelined"].iter().chain(positional) {
            assert!(script.contains(value), "{shell}: {value}");
        }
    }
    // A list and a trace are taken as before, and a page for man has the groups.
    said(&["run", "--workload", "w-m", "--ops", "100", "--seed", "1,2"]);
    let page = said(&["man", "run"]);
    let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("{what}: {page}"));
    assert!(at(".SH WORKLOAD") < at(".SH DRIVE") && at(".SH NETWORK") < at("Examples:"));
}

#[test]
fn claims_and_figures_list_themselves() {
    let suites = said(&["claims"]);
    for suite in ["bandslim ", "plus ", "plus2 ", "saker ", "kvcache ", "pm983 "] {
        assert!(suites.lines().any(|line| line.starts_with(suite) && line.contains(" claims: ")), "{suites}");
    }
    assert!(said(&["figure"]).contains("bandslim-8  "));
}

/// What a parser says of a text is in words of the option.
#[test]
fn values_that_cannot_be_are_refused_in_plain_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("requests.jsonl");
    std::fs::write(&path, "0,store,a,100\n").unwrap();
    let trace = format!("workload.trace={}", path.display());
    for (arguments, words) in [
        (&["cache", "--limit", "foo"][..], "--limit: foo; allowed: a size above 0, as 64MiB"),
        (&["serve", "--http", "off"], "allowed: an address and a port, as 127.0.0.1:8080"),
        (&["ctl", "power", "cut", "--after", "x"], "allowed: a whole number from 0 on"),
        (&["run", "--workload", "kvcache", "--set", &trace], "line 1: expected {\"timestamp\": "),
    ] {
        let error = refused(arguments);
        assert!(error.contains(words) && error.lines().count() == 1, "{arguments:?}: {error}");
    }
}

/// Without a terminal, the variable COLUMNS says how wide text is.
#[test]
fn columns_are_read_where_there_is_no_terminal() {
    let widest = |columns: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvdrive"));
        let output = command.args(["run", "--ops", "100"]).env("COLUMNS", columns).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| line.chars().count()).max().unwrap()
    };
    assert_eq!((widest("70"), widest("100"), widest("many")), (70, 100, 100));
}

/// Interface, times and year of a drive are what one chooses by.
#[test]
fn profiles_are_listed_with_what_they_are() {
    let profiles = said(&["list", "profiles"]);
    let line =
        |name: &str| profiles.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_owned();
    let end = "FPGA board of 2014; PCIe Gen2 x8; a page is read in 60.00 us, programmed in 509.8 us";
    assert!(line("cosmos-plus ").ends_with(end), "{profiles}");
    assert!(line("saker-low ").contains("PCIe Gen5 x16; a page is read in "), "{profiles}");
}

#[test]
fn a_trace_is_a_workload() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    std::fs::write(&path, "time,op,key,size\n0,store,a,100\n1ms,get,a,\n").unwrap();
    let workload = format!("trace:{}", path.display());
    let report = said(&["run", "--workload", &workload, "--arrivals", "trace", "--json", "-"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["ops"]["store"], &report["ops"]["retrieve"]), (&1.into(), &1.into()));
    assert!(report["time"]["virtual_ns"].as_u64().unwrap() > 1_000_000);
    let text = said(&["run", "--workload", &workload]);
    assert!(text.contains("set: ") && !text.contains("workload.ops"), "{text}");
    let config = folder.path().join("one.toml");
    std::fs::write(&config, "workload.ops = 1\n").unwrap();
    let config = config.display().to_string();
    let one = said(&["run", "--config", &config, "--workload", &workload, "--json", "-"]);
    let one: serde_json::Value = serde_json::from_str(&one).unwrap();
    assert_eq!((&one["ops"]["store"], &one["ops"]["retrieve"]), (&1.into(), &0.into()));
    assert!(said(&["list", "traces"]).contains("twitter"));
    let crashed =
        said(&["crash", "--workload", &workload, "--cuts", "all", "--set", "flash.blocks_per_die=64"]);
    assert!(crashed.contains("2 operations, ") && crashed.contains("nothing is lost"), "{crashed}");
    std::fs::write(&path, "0,store,a,100\n1ms,got,a,\n").unwrap();
    let output = kvdrive(&["run", "--workload", &workload]);
    assert_eq!(output.status.code(), Some(1));
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.contains("store                  1"), "what ran is reported: {report}");
    let error = refused(&["run", "--workload", &workload]);
    assert!(error.contains("trace, line 2: no operation \"got\""), "{error}");
    assert!(refused(&["crash", "--workload", &workload]).contains("trace, line 2: no operation \"got\""));
}

#[test]
fn what_is_unknown_is_refused_with_what_may_have_been_meant() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, "host.depth = 0\n").unwrap();
    let mine = path.display().to_string();
    for (arguments, line) in [
        (["--workload", "ycbs-a"], "did you mean ycsb-a?"),
        (["--transfer", "piggyback2"], "did you mean piggyback?"),
        (["--packing", "bakcfill"], "did you mean backfill?"),
        (["--profile", "cosmos"], "did you mean cosmos-plus?"),
        (["--profile", "mine.toml"], "--config mine.toml lays a file over a profile"),
        (["--config", &mine], "mine.toml:1: host.depth: 0; allowed: "),
    ] {
        let error = refused(&[&["run"], &arguments[..]].concat());
        assert!(error.contains(line), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let printed = refused(&["config", "--workload", "ycbs-a"]);
    assert!(printed.contains("did you mean ycsb-a?"), "{printed}");
}

/// In every command: a setting without effect is a mistake of the user.
#[test]
fn a_setting_that_a_command_does_not_look_at_is_refused_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let none = folder.path().join("none").display().to_string();
    let alpha = ["--transfer", "piggyback", "--set", "host.alpha=2"];
    let transfer = ["--set", "host.transfer=piggyback"];
    let table = ["--set", "packing.policy=all", "--set", "packing.dlt_entries=4"];
    for (command, given) in [
        (&["run", "--ops", "10"][..], &alpha[..]),
        (&["run", "--ops", "10"], &table),
        (&["compare", "--ops", "10"], &table),
        (&["explain", "store"], &alpha),
        (&["crash", "--ops", "10", "--cuts", "1"], &alpha),
        (&["crash", "--ops", "10", "--cuts", "1"], &table),
        (&["crash", "--workload", "w-m", "--ops", "10", "--cuts", "1"], &["--value-size", "33"]),
        (&["check", &none], &transfer),
        (&["dump", &none], &table),
        (&["serve", "--listen", "tcp://127.0.0.1:0", "--json", "/"], &transfer),
        (&["serve", "--listen", "tcp://127.0.0.1:0", "--json", "/"], &table),
    ] {
        let error = refused(&[command, given].concat());
        let last = given[given.len() - 2..].join(" ");
        let name = if given[0] == "--value-size" { given[0] } else { &last };
        assert!(error.starts_with(&format!("kvdrive: {name}: ")), "{command:?} {given:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn an_unknown_figure_or_suite_is_refused_with_what_may_have_been_meant() {
    assert!(refused(&["figure", "bandslim8"]).contains("did you mean bandslim-8?"));
    assert!(refused(&["claims", "bandslm"]).contains("did you mean bandslim?"));
}

/// A measurement takes minutes, so a file that cannot be written is found before it.
#[test]
fn bench_refuses_a_file_that_cannot_be_written_before_it_measures() {
    let output =
        kvdrive(&["bench", "--quick", "--stores", "100", "--pairs", "100", "--json", "/nowhere/bench.json"]);
    assert!(!output.status.success());
    assert!(output.stdout.is_empty(), "it has measured: {}", String::from_utf8_lossy(&output.stdout));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("/nowhere/bench.json: "), "{error}");
}

#[test]
fn runs_that_compare_cannot_do_are_refused_before_it_says_how_long_they_take() {
    let arguments = ["compare", "--clock", "wall", "--workload", "w-m,ycsb-a", "--ops", "10"];
    let output = Command::new(env!("CARGO_BIN_EXE_kvdrive")).args(arguments).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error, "kvdrive: run.clock: \"wall\" is for kvdrive run alone\n");
    assert!(!output.status.success() && output.stdout.is_empty());
}

#[test]
fn help_of_compare_says_that_options_take_lists() {
    let help = said(&["compare", "--help"]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        help.contains("Every option takes a list, as --transfer prp,piggyback, and so does --set"),
        "{help}"
    );
}

#[test]
fn several_seeds_are_a_mean_and_a_spread_and_records_are_flat() {
    let run = ["--workload", "w-m", "--ops", "2k", "--seed", "1,2,3"];
    assert!(said(&[&["run"], &run[..]].concat()).contains("seeds 1, 2, 3,"));
    let lists = ["--packing", "all,backfill", "--records", "-"];
    let records = said(&[&["compare"], &run[..], &lists[..]].concat());
    let records: Vec<serde_json::Map<String, serde_json::Value>> = serde_json::from_str(&records).unwrap();
    let of = |seed: u64| records.iter().filter(|record| record["seed"] == seed).count();
    assert_eq!((records.len(), of(1), of(2), of(3)), (6, 2, 2, 2));
    assert!(records[0]["latency_ns.store.p99"].is_number());
    let refused = refused(&[&["run", "--interval", "1ms"], &run[..]].concat());
    assert!(refused.contains("--seed: --interval"), "{refused}");
}
