//! Commands of many runs or measurements, when Ctrl-C or a lost connection ends them: what is known is shown.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::serve::{ctl, serve};

/// A command that runs, and its standard error.
struct Begun {
    program: Child,
    errors: BufReader<std::process::ChildStderr>,
    said: String,
}

fn begin(arguments: &[&str]) -> Begun {
    let program = Command::new(env!("CARGO_BIN_EXE_kvdrive"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut program = program.unwrap();
    let errors = BufReader::new(program.stderr.take().unwrap());
    Begun { program, errors, said: String::new() }
}

impl Begun {
    /// Waits for a line of standard error that contains `word`: from then on Ctrl-C is noticed.
    fn wait_for(&mut self, word: &str) {
        while !self.said.contains(word) {
            assert_ne!(self.errors.read_line(&mut self.said).unwrap(), 0, "it ended: {}", self.said);
        }
    }

    /// Sends Ctrl-C; returns status, standard output and standard error.
    fn interrupt(mut self) -> (Option<i32>, String, String) {
        let id = self.program.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let mut out = String::new();
        self.program.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.errors.read_to_string(&mut self.said).unwrap();
        (self.program.wait().unwrap().code(), out, self.said)
    }
}

#[test]
fn a_sweep_says_how_many_rows_are_done_and_keeps_no_row_of_a_stopped_run() {
    let folder = tempfile::tempdir().unwrap();
    let grid = folder.path().join("grid.toml");
    let text = "set = [\"workload.name=fillseq\", \"workload.key_size=8\"]\n\n[grid]\n\"workload.ops\" = [10, 1000000000]\n";
    std::fs::write(&grid, text).unwrap();
    let mut sweep = begin(&["sweep", grid.to_str().unwrap(), "--no-cache", "--jobs", "2"]);
    sweep.wait_for("2 runs:");
    let rows = folder.path().join("grid.jsonl");
    while std::fs::read_to_string(&rows).is_ok_and(|rows| rows.is_empty()) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (status, _, said) = sweep.interrupt();
    assert_eq!(status, Some(130), "{said}");
    assert!(said.contains("stopped; 1 of 2 rows done in ") && said.contains("command continues"), "{said}");
    assert_eq!(std::fs::read_to_string(&rows).unwrap().lines().count(), 1, "{said}");
}

#[test]
fn claims_whose_runs_have_ended_are_judged() {
    let mut claims = begin(&["claims", "bandslim", "--quick", "--no-cache", "--jobs", "1"]);
    claims.wait_for(" runs:");
    let (status, out, said) = claims.interrupt();
    assert_eq!(status, Some(130), "{said}");
    assert!(said.contains("claims are judged, whose runs have ended; nothing is remembered"), "{said}");
    assert!(!out.contains("panicked") && !said.contains("panicked"), "{said}");
}

/// The figure in a file of the reader's own: its first series has ended while the second one runs.
#[test]
fn a_figure_has_the_series_whose_runs_have_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (file, svg) = (folder.path().join("own.toml"), folder.path().join("own.svg"));
    let figure = r#"
id = "own"
source = "here"
title = "Two lengths"
group = "paper"
[[grid]]
name = "sizes"
ops = 10
full_ops = 10
set = ["workload.name=fillseq", "workload.key_size=8"]
points = { label = "value size [B]", key = "workload.value_size", values = [4, 8] }
series = [{ name = "Short", set = [] }, { name = "Endless", set = ["workload.ops=1000000000"] }]
[[grid.panel]]
id = "a"
title = "Traffic"
y = "traffic.payload_bytes.total / ops.store"
unit = "B/store"
kind = "counted"
"#;
    std::fs::write(&file, figure).unwrap();
    let arguments =
        ["figure", file.to_str().unwrap(), "--svg", svg.to_str().unwrap(), "--no-cache", "--jobs", "3"];
    let mut figure = begin(&arguments);
    figure.wait_for("4 runs:");
    // The longest runs begin first: two jobs have the endless ones, the third the short ones.
    std::thread::sleep(Duration::from_secs(3));
    let (status, out, said) = figure.interrupt();
    assert_eq!(status, Some(130), "{said}");
    assert!(said.contains("stopped; 1 of 2 series are drawn, whose runs have ended; nothing"), "{said}");
    assert!(out.contains("Short") && out.contains("Traffic"), "{out}");
    assert!(std::fs::read_to_string(&svg).unwrap().contains("Short"));
}

#[test]
fn an_interrupted_report_writes_its_page_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let mut report = begin(&["report", "bandslim", "--quick", "--no-cache", "--jobs", "1", "--out", out]);
    report.wait_for(" runs:");
    let (status, _, said) = report.interrupt();
    assert_eq!(status, Some(130), "{said}");
    assert!(said.contains("series are drawn, whose runs have ended; nothing is remembered"), "{said}");
    let page = std::fs::read_to_string(folder.path().join("index.html")).unwrap();
    assert!(page.contains("This page is of an interrupted call"), "{page}");
    assert!(std::fs::read_to_string(folder.path().join("claims.json")).unwrap().starts_with('['));
}

#[test]
fn a_calibration_has_the_steps_measured_so_far_and_writes_no_file_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let costs = folder.path().join("costs.toml");
    let calibrate =
        ["calibrate", "--pairs", "1000", "--repetitions", "1000000", "--out", costs.to_str().unwrap()];
    let calibrate = begin(&calibrate);
    std::thread::sleep(Duration::from_secs(2));
    let (status, out, said) = calibrate.interrupt();
    assert_eq!(status, Some(130), "{said}");
    assert!(
        said.contains("these are the steps measured so far") && out.contains("working set"),
        "{said}{out}"
    );
    assert!(!costs.exists());
}

/// There is nothing to report yet, but a script has to see that it was Ctrl-C.
#[test]
fn a_run_that_is_stopped_while_loading_has_the_status_of_ctrl_c() {
    let run = begin(&["run", "--workload", "ycsb-c", "--num", "10M", "--value-size", "100", "--ops", "1"]);
    std::thread::sleep(Duration::from_secs(2));
    let (status, out, said) = run.interrupt();
    assert_eq!((status, out.as_str()), (Some(130), ""), "{said}");
    assert!(said.contains("stopped while loading, with ") && said.lines().count() == 1, "{said}");
}

#[test]
fn a_benchmark_has_the_figures_measured_so_far() {
    let bench =
        begin(&["bench", "--stores", "3000", "--pairs", "1000000000000", "--scale", "1/256", "--json", "-"]);
    std::thread::sleep(Duration::from_secs(6));
    let (status, out, said) = bench.interrupt();
    assert_eq!(status, Some(130), "{said}");
    assert!(said.contains("stopped; these are the figures measured so far"), "{said}");
    assert!(
        out.contains("\"simulated\"") && !out.contains("\"memory\"") && !out.contains("\"idle\""),
        "{out}"
    );
}

/// The connection is lost at a retrieve: the stores before it have been measured.
#[test]
fn a_benchmark_of_a_served_drive_has_the_rows_before_a_lost_connection() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("drive.sock");
    let served = serve(&["--control", socket.to_str().unwrap()]);
    ctl(&socket, &["inject", "drop-connection", "--opcode", "retrieve", "--nth", "5"]).unwrap();
    let connect = format!("tcp://{}", served.address);
    let mut bench = begin(&["bench", "--connect", &connect, "--operations", "2000", "--keys", "100"]);
    let mut out = String::new();
    bench.program.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    bench.errors.read_to_string(&mut bench.said).unwrap();
    assert_eq!(bench.program.wait().unwrap().code(), Some(1), "{}", bench.said);
    assert!(bench.said.contains(&served.address), "{}", bench.said);
    assert!(out.contains("store ") && !out.contains("retrieve"), "{out}");
}
