//! Goldens of both renderings and of the JSON.

use super::*;
use kvdrive_config::Document;
use kvdrive_declare::Counters;
use kvdrive_flash::{NandCounters, Purpose};
use kvdrive_link::{Class, Meter};
use kvdrive_text::WIDTH;

fn latency(mean: f64, [p50, p95, p99, p999, p9999, max]: [u64; 6]) -> Latency {
    Latency { mean, p50, p95, p99, p999, p9999, max }
}

#[derive(Counters)]
struct Pages {
    /// For an engine with a value log.
    value_pages_opened: Option<u64>,
    /// Bytes that were copied.
    memcpy_bytes: u64,
    /// Time of copying, ns.
    #[counter(modelled)]
    memcpy_ns: u64,
}

fn counted(to_drive: u64, value_pages: u64) -> Sections {
    let (link, flash) = (Meter::default(), NandCounters::default());
    link.count(Class::Mmio, 8_000, 56_000);
    link.count(Class::Sqe, 64_000, 108_000);
    link.count(Class::Cqe, 16_000, 40_000);
    link.count(Class::ToDrive, to_drive, to_drive / 10 * 11);
    flash.programs[Purpose::Value.index()].set(value_pages);
    flash.programs[Purpose::Index.index()].set(4);
    flash.reads[Purpose::Lookup.index()].set(10);
    let pages = Pages { value_pages_opened: Some(value_pages), memcpy_bytes: 32_000, memcpy_ns: 940_000 };
    Sections::default()
        .with("traffic", link.counts())
        .with("nand", flash.counts())
        .with("engine", pages.counts())
}

/// A run whose counts can be verified by mental arithmetic: 1000 stores of 32 B, one command each.
fn sample(transfer: &str, packing: &str) -> Report {
    let mut document = Document::profile("cosmos-plus").unwrap();
    document.set(&format!("host.transfer={transfer}")).unwrap();
    document.set(&format!("packing.policy={packing}")).unwrap();
    let inline = transfer != "prp";
    let to_drive = if inline { 0 } else { 4_096_000 };
    let value_pages = if packing == "block" { 250 } else { 2 };
    Report {
        profile: document.profile_name().into(),
        config: document.values(),
        seed: 1,
        clock: "virtual".into(),
        revision: "0123456789ab".into(),
        time_sources: "fit set guess".into(),
        notes: vec!["keys are 16 B, not 48: the KV command set has no longer ones".into()],
        ops: Ops { store: 1000, retrieve: 10, ..Ops::default() },
        value_bytes: ValueBytes { stored: 32_000, retrieved: 320 },
        read_bytes: [("retrieve", 320)].into_iter().collect(),
        time: Time { virtual_ns: 17_400_000, wall_s: 0.001 },
        throughput_ops_per_s: 58_045.9,
        latency_ns: [
            ("store", latency(10_800.0, [10_800, 10_800, 10_900, 610_800, 1_100_000, 1_200_000])),
            ("retrieve", latency(85_123.4, [80_000, 180_000, 180_000, 180_000, 180_000, 180_000])),
        ]
        .into_iter()
        .collect(),
        counts: counted(to_drive, value_pages),
        amplification: Amplification {
            traffic: Some((88_000 + to_drive) as f64 / 32_000.0),
            write: Some((value_pages + 4) as f64 * 16_384.0 / 32_000.0),
        },
        resources: [
            ("firmware core 0", Resource { busy_fraction: 0.34, ..Resource::default() }),
            (
                "die 0",
                Resource { busy_fraction: 0.07, busiest_fraction: Some(0.14), queue_ns_mean: 12_345.6 },
            ),
            ("die 1", Resource::default()),
        ]
        .into_iter()
        .collect(),
        ..Report::default()
    }
}

#[test]
fn text() {
    insta::assert_snapshot!(sample("piggyback", "backfill"), @r#"
    w-m | cosmos-plus | piggyback | backfill                         seed 1, virtual clock, 0123456789ab
    ----------------------------------------------------------------------------------------------------
    note: keys are 16 B, not 48: the KV command set has no longer ones
    OPERATIONS           count     values                                                        counted
      store              1 000   32.00 kB
      retrieve              10      320 B
      errors                 0

    THROUGHPUT      operations model time                                        modelled: fit set guess
                     58.05 k/s   17.40 ms
      simulated at 1.010 M operations/s, in 1.000 ms of this machine's time                     measured

    LATENCY                                                                      modelled: fit set guess
                          mean        p50        p95        p99      p99.9     p99.99        max
      store           10.80 us   10.80 us   10.80 us   10.90 us   610.8 us   1.100 ms   1.200 ms
      retrieve        85.12 us   80.00 us   180.0 us   180.0 us   180.0 us   180.0 us   180.0 us

    TRAFFIC            payload       B/op      share       wire       B/op                       counted
      mmio            8.000 kB      7.921     9.09 %   56.00 kB      55.45
      sqe             64.00 kB      63.37    72.73 %   108.0 kB      106.9
      cqe             16.00 kB      15.84    18.18 %   40.00 kB      39.60
      total           88.00 kB      87.13   100.00 %   204.0 kB      202.0

    NAND              programs      share      reads      share                                  counted
      value                  2    33.33 %
      index                  4    66.67 %
      lookup                                      10   100.00 %
      total                  6                    10
      erases                 0
      value pages            2

    AMPLIFICATION      traffic      write     copied  copied/op                                  counted
                         2.750      3.072   32.00 kB    31.68 B

    ENGINE                       count     per op                                                counted
      value_pages_opened             2      0.002
      memcpy_bytes              32 000      31.68
      memcpy_ns (modelled)     940 000      930.7

    RESOURCES                busy    busiest  mean wait                          modelled: fit set guess
      firmware core 0     34.00 %                  0 ns
      die 0                7.00 %    14.00 %   12.35 us
    "#);
}

#[test]
fn comparison() {
    let reports: Vec<_> = ["prp", "piggyback"]
        .iter()
        .flat_map(|transfer| ["block", "backfill"].map(|packing| sample(transfer, packing)))
        .collect();
    insta::assert_snapshot!(compare(&reports), @r#"
    w-m, 1 000 000 operations, cosmos-plus                           seed 1, virtual clock, 0123456789ab
    ---------------------------------------------------------------------------------------------
    transfer   packing   operations     store     store  payload  traffic  value      NAND  write
                                         mean       p99     B/op     amp.  pages  programs   amp.
    ---------------------------------------------------------------------------------------------
    prp        block      58.05 k/s  10.80 us  10.90 us  4 142.6    130.8    250       254  130.0
    prp        backfill   58.05 k/s  10.80 us  10.90 us  4 142.6    130.8      2         6  3.072
    piggyback  block      58.05 k/s  10.80 us  10.90 us    87.13    2.750    250       254  130.0
    piggyback  backfill   58.05 k/s  10.80 us  10.90 us    87.13    2.750      2         6  3.072
    ---------------------------------------------------------------------------------------------
    modelled: fit set guess | operations, store mean, store p99
    counted | payload B/op, traffic amp., value pages, NAND programs, write amp.
    note: keys are 16 B, not 48: the KV command set has no longer ones
    against transfer prp, packing block:
      prp backfill         payload B/op     0.00 %   NAND programs   -97.64 %   store mean     0.00 %
      piggyback block      payload B/op   -97.90 %   NAND programs     0.00 %   store mean     0.00 %
      piggyback backfill   payload B/op   -97.90 %   NAND programs   -97.64 %   store mean     0.00 %
    "#);
}

#[test]
fn a_column_is_as_wide_as_its_widest_cell() {
    let mut table = table::Table::new("T", &["one", "two"], "counted");
    for cells in [["1.0 KiB", "left out"], ["12 345 024.0 MiB", "1 024.0 MiB"], ["", "2 B"]] {
        table.row("row", &cells.map(str::to_owned));
    }
    let text = table.finish(WIDTH);
    let ends: Vec<usize> = text.lines().skip(1).map(|line| line.chars().count()).collect();
    assert!(ends[0] == ends[1] && ends[1] == ends[2] && ends[0] > 40, "{text}");
    let heading = text.lines().next().expect("a heading");
    assert_eq!(heading.find("two").map(|at| at + 3), Some(ends[0]), "{text}");
}

/// At a scale, rows are named by the DRAM point and not by the bytes that it amounts to.
#[test]
fn a_comparison_names_dram_points_as_they_were_asked_for() {
    let at = |point: &str, further: &[&str]| {
        let mut document = Document::profile("kvvirt").unwrap();
        document.set_dram(point).unwrap();
        document.set("workload.preset=plus").unwrap();
        document.shrink("1/256".parse().unwrap()).unwrap();
        further.iter().for_each(|set| document.set(set).unwrap());
        Report {
            config: document.values(),
            dram_point: document.dram_point().map(str::to_owned),
            ..sample("prp", "block")
        }
    };
    let text = compare(&[at("published", &[]), at("total-128", &[]), at("total-256", &[])]);
    for line in ["dram       operations", "published   58.05 k/s", "total-128   58.05 k/s", "  total-256   "]
    {
        assert!(text.lines().any(|row| row.starts_with(line)), "{line}: {text}");
    }
    assert!(!text.contains("dram_bytes"), "{text}");
    let altered = ["hash.dram_bytes=1MiB"];
    let text = compare(&[at("published", &altered), at("total-128", &altered)]);
    assert!(text.contains("dram_accounting") && !text.contains("total-128"), "laid over: {text}");
}

/// A workload that scans is compared by its scans, also together with workloads that do not scan.
#[test]
fn a_comparison_shows_the_scans_of_a_workload_that_scans() {
    let mut scans = sample("prp", "block");
    scans.ops = Ops { store: 50, seek: 950, next: 50_000, ..Ops::default() };
    let latency = |mean: f64| latency(mean, [1, 1, 2 * mean as u64, 3, 3, 4]);
    scans.latency_ns =
        [("store", latency(10_800.0)), ("seek", latency(31_200.0)), ("next", latency(17_000.0))]
            .into_iter()
            .collect();
    let headings = |text: &str| -> Vec<String> {
        let rows: Vec<Vec<&str>> =
            text.lines().skip(2).take(2).map(|row| row.split_whitespace().collect()).collect();
        vec![rows[0].join(" "), rows[1].join(" ")]
    };
    let cells = |text: &str| -> Vec<String> {
        let rows = text.lines().filter(|line| line.contains(" k/s "));
        rows.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let text = compare(&[scans.clone()]);
    let expected = ["operations seek seek next next store NAND NAND write", "mean p99 mean p99 mean reads"];
    assert!(headings(&text)[0].ends_with(expected[0]), "{text}");
    assert!(headings(&text)[1].starts_with(expected[1]), "{text}");
    assert!(cells(&text)[0].contains("31.20 us 62.40 us 17.00 us 34.00 us 10.80 us"), "{text}");
    let mut reads = sample("prp", "backfill");
    reads.ops = Ops { store: 500, retrieve: 500, ..Ops::default() };
    let text = compare(&[reads, scans]);
    assert!(headings(&text)[0].contains("retrieve retrieve seek next store"), "{text}");
    assert!(cells(&text)[0].contains("85.12 us 180.0 us - - 10.80 us"), "{text}");
    assert!(cells(&text)[1].contains("- - 31.20 us 17.00 us 10.80 us"), "{text}");
}

/// Rows with failed operations look fast, so failures get a column; notes common to all runs are printed
/// once.
#[test]
fn a_comparison_shows_errors_and_notes() {
    let reports: Vec<_> = ["block", "backfill"].iter().map(|packing| sample("prp", packing)).collect();
    assert!(!compare(&reports).contains("errors"));
    let mut reports = reports;
    reports[1].ops.errors = 1234;
    reports[1].notes.push(format!("first of 1234 errors: {}", "a long story ".repeat(10)));
    let text = compare(&reports);
    let rows: Vec<&str> = text.lines().filter(|line| line.contains(" k/s ")).collect();
    assert!(rows[0].ends_with(" 0") && rows[1].ends_with(" 1 234"), "{text}");
    assert_eq!(text.matches("note: keys are 16 B").count(), 1, "{text}");
    assert!(text.contains("\nnote: keys are 16 B"), "what every row says is of no row: {text}");
    let story = text.lines().skip_while(|line| !line.starts_with("note on backfill: first of 1234 errors"));
    let story: Vec<&str> = story.take(2).collect();
    assert!(story.iter().all(|line| line.chars().count() <= WIDTH), "{text}");
    assert!(story[1].starts_with("    "), "{text}");
}

/// A note names its rows by a setting that only they have in common, or else one by one.
#[test]
fn a_note_names_the_rows_it_is_about() {
    let mut reports: Vec<Report> = ["prp", "piggyback"]
        .iter()
        .flat_map(|transfer| ["block", "all", "backfill"].map(|packing| sample(transfer, packing)))
        .collect();
    for (row, note) in [(1, "of all"), (4, "of all"), (3, "of one"), (0, "of two"), (5, "of two")] {
        reports[row].notes.push(note.into());
    }
    let text = compare(&reports);
    for line in [
        "note on all: of all",
        "note on piggyback block: of one",
        "note on prp block, piggyback backfill: of two",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
}

/// A figure without a denominator is a dash, such as amplification if nothing was stored.
#[test]
fn a_figure_of_nothing_is_a_dash() {
    let mut report = sample("prp", "block");
    report.ops.store = 0;
    report.value_bytes.stored = 0;
    report.latency_ns = report
        .latency_ns
        .iter()
        .filter(|(kind, _)| *kind != "store")
        .map(|(kind, latency)| (kind, latency.clone()))
        .collect();
    report.amplification = Amplification::default();
    let text = report.to_string();
    let figures = text.lines().skip_while(|line| !line.starts_with("AMPLIFICATION")).nth(1).unwrap();
    assert_eq!(figures.split_whitespace().collect::<Vec<_>>(), ["-", "-", "32.00", "kB", "3.200", "kB"]);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["amplification"], serde_json::json!({"traffic": null, "write": null}));
    let text = compare(&[report.clone()]);
    let row = text.lines().find(|line| line.contains(" k/s ")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[3..], ["85.12", "us", "180.0", "us", "-", "-", "10", "254", "-"], "{text}");
    let text = compare(&[sample("prp", "block"), report]);
    assert!(text.contains("NAND reads     0.00 %"), "{text}");
}

#[test]
fn value_pages_are_those_of_an_engine_with_a_value_log() {
    let mut hash = sample("prp", "block");
    hash.config["engine"]["name"] = "plus".into();
    let pages = Pages { value_pages_opened: None, memcpy_bytes: 0, memcpy_ns: 0 };
    hash.counts.set("engine", pages.counts());
    let lsm = sample("prp", "block");
    assert!(lsm.to_string().contains("value pages") && !hash.to_string().contains("value pages"));
    let json = serde_json::to_value(&hash).unwrap();
    assert_eq!(json["engine"], serde_json::json!({"memcpy_bytes": 0, "memcpy_ns": 0}));
    assert!(!compare(&[hash.clone()]).contains("value pages"));
    let both = compare(&[lsm, hash]);
    let row = both.lines().find(|line| line.starts_with("plus")).expect(&both);
    assert!(row.split_whitespace().collect::<Vec<_>>().join(" ").contains(" - 254 "), "{both}");
}

#[test]
fn a_wall_run_measures_what_applications_saw_and_models_the_drive() {
    let mut report = sample("prp", "block");
    report.clock = "wall".into();
    let text = report.to_string();
    for (what, kind) in [
        ("THROUGHPUT      operations  wall time", "measured"),
        ("                 58.05 k/s   1.000 ms", ""),
        ("  the drive's own clock went on by 17.40 ms", "modelled: fit set guess"),
        ("LATENCY", "measured"),
        ("RESOURCES", "modelled: fit set guess"),
    ] {
        let line = text.lines().find(|line| line.starts_with(what));
        assert!(line.is_some_and(|line| line.ends_with(kind)), "{what}: {line:?}\n{text}");
    }
}

#[test]
fn nothing_is_wider_than_a_terminal() {
    let mut report = sample("prp", "block");
    report.time_sources = "fit set guess user".into();
    report.ops.store = 123_456_789_012;
    report.counts = counted(u64::MAX / 1000, 123_456_789_012);
    for line in report.to_string().lines().chain(compare(&[sample("piggyback", "selective")]).lines()) {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
}

#[test]
fn json_has_the_promised_keys() {
    let mut json = serde_json::to_value(sample("prp", "all")).unwrap();
    json["config"] = "the whole configuration".into();
    insta::assert_json_snapshot!(json, @r#"
    {
      "profile": "cosmos-plus",
      "config": "the whole configuration",
      "seed": 1,
      "clock": "virtual",
      "revision": "0123456789ab",
      "time_sources": "fit set guess",
      "notes": [
        "keys are 16 B, not 48: the KV command set has no longer ones"
      ],
      "ops": {
        "store": 1000,
        "retrieve": 10,
        "delete": 0,
        "exist": 0,
        "list": 0,
        "seek": 0,
        "next": 0,
        "errors": 0
      },
      "value_bytes": {
        "stored": 32000,
        "retrieved": 320
      },
      "read_bytes": {
        "retrieve": 320
      },
      "time": {
        "virtual_ns": 17400000,
        "wall_s": 0.001
      },
      "throughput_ops_per_s": 58045.9,
      "latency_ns": {
        "store": {
          "mean": 10800.0,
          "p50": 10800,
          "p95": 10800,
          "p99": 10900,
          "p999": 610800,
          "p9999": 1100000,
          "max": 1200000
        },
        "retrieve": {
          "mean": 85123.4,
          "p50": 80000,
          "p95": 180000,
          "p99": 180000,
          "p999": 180000,
          "p9999": 180000,
          "max": 180000
        }
      },
      "traffic": {
        "payload_bytes": {
          "total": 4184000,
          "mmio": 8000,
          "sqe": 64000,
          "cqe": 16000,
          "list": 0,
          "to_drive": 4096000,
          "to_host": 0,
          "interrupt": 0,
          "cxl": 0,
          "key": 0
        },
        "wire_bytes": {
          "total": 4709600,
          "mmio": 56000,
          "sqe": 108000,
          "cqe": 40000,
          "list": 0,
          "to_drive": 4505600,
          "to_host": 0,
          "interrupt": 0,
          "cxl": 0,
          "key": 0
        }
      },
      "nand": {
        "programs": {
          "total": 6,
          "value": 2,
          "index": 4
        },
        "reads": {
          "total": 10,
          "lookup": 10
        },
        "erases": {
          "total": 0
        }
      },
      "engine": {
        "value_pages_opened": 2,
        "memcpy_bytes": 32000,
        "memcpy_ns": 940000
      },
      "amplification": {
        "traffic": 130.75,
        "write": 3.072
      },
      "resources": {
        "firmware core 0": {
          "busy_fraction": 0.34,
          "queue_ns_mean": 0.0
        },
        "die 0": {
          "busy_fraction": 0.07,
          "busiest_fraction": 0.14,
          "queue_ns_mean": 12345.6
        },
        "die 1": {
          "busy_fraction": 0.0,
          "queue_ns_mean": 0.0
        }
      }
    }
    "#);
}

#[test]
#[should_panic(expected = "store twice")]
fn a_name_is_there_once() {
    let _: Named<u64> = [("store", 1), ("store", 2)].into_iter().collect();
}

#[test]
fn what_is_not_as_in_the_profile_stands_under_the_head() {
    let set = (0..9).map(|number| format!("section.key_{number}=value_{number}")).collect();
    let text = Report { set, ..sample("prp", "all") }.to_string();
    let lines: Vec<&str> = text.lines().skip(2).take(4).collect();
    assert!(lines[0].starts_with("set: section.key_0=value_0 section"), "{lines:?}");
    assert!(lines[1].starts_with("     section.key_"), "{lines:?}");
    assert!(lines[2].starts_with("     section.key_8=value_8"), "{lines:?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{lines:?}");
    assert!(!sample("prp", "all").to_string().contains("set:"));
}

/// The heading has the operations that all runs have in common: those of a trace are counted, and runs of
/// different lengths have none.
#[test]
fn the_heading_of_a_comparison_has_the_operations_of_every_run() {
    let of = |name: &str, ops: u64, packing: &str| {
        let mut report = sample("prp", packing);
        report.config["workload"]["name"] = name.into();
        report.config["workload"]["ops"] = ops.into();
        report
    };
    let heading = |reports: &[Report]| compare(reports).lines().next().unwrap().to_owned();
    assert!(heading(&[of("w-m", 100, "all"), of("w-m", 200, "all")]).starts_with("w-m, cosmos-plus  "));
    let of_traces = heading(&[of("trace", 1 << 48, "block"), of("trace", 1 << 48, "all")]);
    assert!(of_traces.starts_with("trace, 1 010 operations, cosmos-plus  "), "{of_traces}");
}

/// Ctrl-C ends each run of a comparison at another operation.
#[test]
fn a_comparison_of_runs_that_were_stopped_says_so_and_compares_only_the_others() {
    let packings = ["block", "all", "selective", "backfill"];
    let of = |stopped: &[&str]| {
        let reports = packings.map(|packing| {
            let is_stopped = stopped.contains(&packing);
            let mut report = Report { is_stopped, ..sample("prp", packing) };
            report.config["workload"]["ops"] = 1000.into();
            report
        });
        compare(&reports)
    };
    let whole = of(&[]);
    assert!(whole.starts_with("w-m, 1 000 operations, ") && !whole.contains("not compared"), "{whole}");
    let one = of(&["all"]);
    assert!(one.starts_with("w-m, at most 1 000 operations, "), "{one}");
    let factors = |text: &str| text.lines().filter(|line| line.contains("NAND programs ")).count();
    assert_eq!((factors(&whole), factors(&one)), (3, 2), "{one}");
    assert!(one.contains("not compared, since they ended before their last operation: all\n"), "{one}");
    let all = of(&["block", "backfill"]);
    assert!(!all.contains("against ") && factors(&all) == 0, "{all}");
    assert!(all.contains("before their last operation: block; backfill\n"), "{all}");
}

/// Reports that differ in their seeds are one row, with their mean and their spread.
#[test]
fn reports_that_differ_in_their_seeds_are_one_row() {
    let seeded = |seed: u64, throughput: f64, packing: &str| {
        let mut report = sample("prp", packing);
        report.config["run"]["seed"] = seed.into();
        Report { seed, throughput_ops_per_s: throughput, ..report }
    };
    let reports = [
        seeded(1, 10_000.0, "block"),
        seeded(1, 20_000.0, "all"),
        seeded(2, 12_000.0, "block"),
        seeded(2, 20_000.0, "all"),
        seeded(3, 11_000.0, "block"),
        seeded(3, 20_000.0, "all"),
    ];
    let text = compare(&reports);
    let rows: Vec<&str> = text.lines().filter(|line| line.contains(" k/s ")).collect();
    assert_eq!(rows.len(), 2, "{text}");
    assert!(rows[0].contains("11.00 k/s ±9.1 %") && rows[1].contains("20.00 k/s ±0.0 %"), "{text}");
    assert!(text.contains("seeds 1, 2, 3,") && text.contains("means over the seeds"), "{text}");
    let twice = compare(&[seeded(1, 1.0, "block"), seeded(1, 2.0, "block")]);
    assert!(!twice.contains("±"), "the same run twice is two rows: {twice}");
}

#[test]
fn drives_of_different_profiles_are_said_to_be() {
    let other = Report { profile: "kvvirt".into(), ..sample("piggyback", "block") };
    let text = compare(&[sample("prp", "block"), other]);
    assert!(text.contains("drives of different profiles"), "{text}");
    assert!(text.contains("cosmos-plus, kvvirt"), "{text}");
    assert!(!compare(&[sample("prp", "block"), sample("prp", "all")]).contains("different profiles"));
}

#[test]
fn a_record_is_flat_and_has_everything() {
    let report = sample("prp", "block");
    let record = record(&report);
    assert!(record.values().all(|value| !value.is_object() && !value.is_array()));
    assert_eq!(record["latency_ns.store.p9999"], 1_100_000);
    assert_eq!(record["config.workload.name"], "w-m");
    assert_eq!(record["nand.programs.total"], 254);
    assert!(record["notes"].as_str().unwrap().starts_with("keys are 16 B"));
}

/// At any width, no line is wider than that, every number stands with its unit, and none is missing.
#[test]
fn tables_fit_the_room_there_is() {
    let reports: Vec<_> = ["prp", "piggyback"].iter().map(|method| sample(method, "backfill")).collect();
    let cells = |text: &str| {
        let mut cells: Vec<String> = ["58.05 k/s", "10.80 us", "10.90 us", "610.8 us", "1.200 ms", "63.64"]
            .into_iter()
            .filter(|cell| text.contains(cell))
            .map(str::to_owned)
            .collect();
        cells.sort();
        cells
    };
    let (wide, wide_table) = (reports[1].in_columns(100), compare_in(&reports, 100));
    assert_eq!(wide, reports[1].to_string());
    for room in [60, 70, 80, 100, 160] {
        let (report, compared) = (reports[1].in_columns(room), compare_in(&reports, room));
        for line in report.lines().chain(compared.lines()) {
            assert!(line.chars().count() <= room, "{room}: {line:?}");
        }
        assert_eq!((cells(&report), cells(&compared)), (cells(&wide), cells(&wide_table)), "{room}");
    }
    assert_eq!(compare_in(&reports, 160), wide_table, "what fits is not stretched");
    // Each group of columns repeats the names of the rows.
    let narrow = compare_in(&reports, 60);
    assert!(narrow.lines().filter(|line| line.starts_with("piggyback ")).count() > 1, "{narrow}");
}
