//! Scans in whole runs: what a seek and its nexts bring is counted, and a failed one leaves no iterator behind.

use kvdrive_lab::config::Document;
use kvdrive_lab::report::Report;
use kvdrive_lab::run::run;
use kvdrive_lab::wall::{WallOptions, run_wall};
use kvdrive_sim::wall::Pace;

fn report(clock: &str, settings: &[&str]) -> Report {
    let mut document = Document::profile("cosmos-plus").expect("the profile exists");
    for setting in settings {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    document.set(&format!("run.clock={clock}")).expect("a valid setting");
    let report = if clock == "wall" {
        run_wall(&document, &WallOptions { pace: Pace::Off, record: None }, &|_, _| ())
    } else {
        run(&document, &|_, _| ())
    };
    report.expect("it runs")
}

const CLOCKS: [&str; 2] = ["virtual", "wall"];

/// Half of the values left the buffer while flash was off: half of the seeks, and many nexts, are refused. Every seek
/// that succeeds opens an iterator, and there are four.
#[test]
fn a_failed_next_leaves_no_iterator_open() {
    for clock in CLOCKS {
        let report = report(
            clock,
            &[
                "nand.enabled=false",
                "workload.name=ycsb-e",
                "workload.distribution=uniform",
                "workload.num=4000",
                "workload.overwrites=4000",
                "workload.value_size=4096",
                "workload.ops=1000",
                "packing.policy=block",
                "lsm.iterators=4",
            ],
        );
        assert!(report.ops.errors > 100, "{clock}: {:?}", report.ops);
        assert!(report.ops.seek > 100, "{clock}: {:?}", report.ops);
    }
}
