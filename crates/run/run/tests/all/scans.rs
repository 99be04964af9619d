//! Scans in whole runs: pairs that a seek and its nexts return are counted, and a failed scan leaves no
//! iterator open.

use kvdrive_config::Document;
use kvdrive_run::report::Report;
use kvdrive_run::run;
use kvdrive_run::wall::{WallOptions, run_wall};
use kvdrive_sim::wall::Pace;

fn report(clock: &str, settings: &[&str]) -> Report {
    let mut document = Document::profile("cosmos-plus").expect("the profile exists");
    for setting in settings {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    document.set(&format!("run.clock={clock}")).expect("a valid setting");
    let report = if clock == "wall" {
        run_wall(&document, &WallOptions { pace: Pace::Off, record: None, own_thread: false }, &|_, _| ())
    } else {
        run(&document, &|_, _| ())
    };
    report.expect("it runs")
}

const CLOCKS: [&str; 2] = ["virtual", "wall"];

/// Half of the values were evicted from the buffer while flash was off: half of the seeks, and many nexts,
/// are refused. Every seek that succeeds opens an iterator, and the drive has four.
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
/// The first pair of a scan comes with the seek.
#[test]
fn what_a_seek_brings_is_counted() {
    for clock in CLOCKS {
        for nexts in [0, 3] {
            let nexts_setting = format!("workload.seek_nexts={nexts}");
            let report = report(
                clock,
                &[
                    "workload.name=mixed",
                    "workload.read_fraction=0",
                    "workload.seek_fraction=1",
                    "workload.num=1000",
                    "workload.value_size=100",
                    "workload.ops=200",
                    &nexts_setting,
                ],
            );
            let read = &serde_json::to_value(&report).expect("a report is JSON")["read_bytes"];
            assert_eq!(read["seek"], report.ops.seek * 100, "{clock}: {read}");
            let by_next = report.value_bytes.retrieved - report.ops.seek * 100;
            assert_eq!(read["next"].as_u64().unwrap_or(0), by_next, "{clock}: {read}");
            assert!(
                report.ops.seek == 200 && by_next / 100 + 6 > report.ops.next,
                "{clock}: {:?}",
                report.ops
            );
            let text = report.to_string();
            assert!(text.contains("seek                 200   20.00 kB"), "{clock}:\n{text}");
            assert_eq!(
                text.contains("note: a scan counts as several operations"),
                nexts > 0,
                "{clock}:\n{text}"
            );
        }
    }
}

/// In wall time a NEXT brings several pairs.
#[test]
fn scans_return_the_same_pairs_by_either_clock() {
    let settings = [
        "workload.name=mixed",
        "workload.read_fraction=0",
        "workload.seek_fraction=1",
        "workload.seek_nexts=200",
        "workload.num=500",
        "workload.value_size=300",
        "workload.ops=100",
    ];
    let [model, wall] = CLOCKS.map(|clock| report(clock, &settings));
    assert_eq!((model.ops.next, model.ops.errors), (wall.ops.next, 0));
    assert_eq!(model.value_bytes.retrieved, wall.value_bytes.retrieved);
    let has_note =
        |report: &Report| report.notes.iter().any(|note| note.contains("an earlier one had brought"));
    assert!(has_note(&wall) && !has_note(&model), "{:?}", wall.notes);
}
