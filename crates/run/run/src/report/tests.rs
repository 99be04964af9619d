//! Goldens of both renderings and of the JSON.

use super::*;
use kvdrive_config::Document;
use kvdrive_declare::Counters;
use kvdrive_flash::{NandCounters, Purpose};
use kvdrive_link::{Class, Meter};
use kvdrive_text::WIDTH;

mod comparisons;

fn latency(mean: f64, [p50, p95, p99, p999, p9999, max]: [u64; 6]) -> Latency {
    Latency { mean, stdev: mean / 10.0, min: p50 / 2, p50, p95, p99, p999, p9999, max }
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
        pairs: Some(Pairs {
            count: 1000,
            key_bytes: Some(4),
            stored_mean_bytes: Some(32.0),
            retrieved_mean_bytes: Some(32.0),
            ..Pairs::default()
        }),
        value_bytes: ValueBytes { stored: 32_000, retrieved: 320 },
        read_bytes: [("retrieve", 320)].into_iter().collect(),
        time: Time { virtual_ns: 17_400_000, wall_s: 0.001 },
        throughput_ops_per_s: 58_045.9,
        bandwidth_bytes_per_s: Bandwidth { stored: 1_839_080.5, retrieved: 18_390.8 },
        latency_all_ns: Some(latency(11_535.9, [10_800, 10_800, 80_000, 610_800, 1_100_000, 1_200_000])),
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
    cosmos-plus: FPGA board of 2014, one context; a drive of today: --profile nvmevirt-970pro
    pairs 1 000, keys 4 B, values 32 B stored on average, 32 B returned on average
    note: keys are 16 B, not 48: the KV command set has no longer ones
    OPERATIONS           count     values                                                        counted
      store              1 000   32.00 kB
      retrieve              10      320 B
      errors                 0

    THROUGHPUT      operations     stored   returned model time                  modelled: fit set guess
                     58.05 k/s 1.839 MB/s 18.39 kB/s   17.40 ms
      simulated at 1.010 M operations/s, in 1.000 ms of this machine's time                     measured

    LATENCY                                                                      modelled: fit set guess
                    mean    stdev      min      p50      p95      p99    p99.9   p99.99      max
      store     10.80 us 1.080 us 5.400 us 10.80 us 10.80 us 10.90 us 610.8 us 1.100 ms 1.200 ms
      retrieve  85.12 us 8.512 us 40.00 us 80.00 us 180.0 us 180.0 us 180.0 us 180.0 us 180.0 us
      all       11.54 us 1.154 us 5.400 us 10.80 us 10.80 us 80.00 us 610.8 us 1.100 ms 1.200 ms

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
    cosmos-plus: FPGA board of 2014, one context; a drive of today: --profile nvmevirt-970pro
    pairs 1 000, keys 4 B, values 32 B stored on average, 32 B returned on average
    -----------------------------------------------------------------------------------------------
    transfer  packing  operations    store    store payload traffic value     NAND write     stored
                                      mean      p99    B/op    amp. pages programs  amp.
    -----------------------------------------------------------------------------------------------
    prp       block     58.05 k/s 10.80 us 10.90 us 4 142.6   130.8   250      254 130.0 1.839 MB/s
    prp       backfill  58.05 k/s 10.80 us 10.90 us 4 142.6   130.8     2        6 3.072 1.839 MB/s
    piggyback block     58.05 k/s 10.80 us 10.90 us   87.13   2.750   250      254 130.0 1.839 MB/s
    piggyback backfill  58.05 k/s 10.80 us 10.90 us   87.13   2.750     2        6 3.072 1.839 MB/s
    -----------------------------------------------------------------------------------------------
    modelled: fit set guess | operations, store mean, store p99, stored
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
    assert_eq!(
        cells[3..],
        ["85.12", "us", "180.0", "us", "-", "-", "10", "254", "-", "18.39", "kB/s", "-"],
        "{text}"
    );
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
        ("THROUGHPUT      operations     stored   returned  wall time", "measured"),
        ("                 58.05 k/s 1.839 MB/s 18.39 kB/s   1.000 ms", ""),
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
      "format": 1,
      "profile": "cosmos-plus",
      "config": "the whole configuration",
      "seed": 1,
      "clock": "virtual",
      "revision": "0123456789ab",
      "time_sources": "fit set guess",
      "notes": [
        "keys are 16 B, not 48: the KV command set has no longer ones"
      ],
      "pairs": {
        "count": 1000,
        "key_bytes": 4,
        "value_bytes": null,
        "stored_mean_bytes": 32.0,
        "retrieved_mean_bytes": 32.0
      },
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
      "bandwidth_bytes_per_s": {
        "stored": 1839080.5,
        "retrieved": 18390.8
      },
      "latency_ns": {
        "store": {
          "mean": 10800.0,
          "stdev": 1080.0,
          "min": 5400,
          "p50": 10800,
          "p95": 10800,
          "p99": 10900,
          "p999": 610800,
          "p9999": 1100000,
          "max": 1200000
        },
        "retrieve": {
          "mean": 85123.4,
          "stdev": 8512.34,
          "min": 40000,
          "p50": 80000,
          "p95": 180000,
          "p99": 180000,
          "p999": 180000,
          "p9999": 180000,
          "max": 180000
        }
      },
      "latency_all_ns": {
        "mean": 11535.9,
        "stdev": 1153.59,
        "min": 5400,
        "p50": 10800,
        "p95": 10800,
        "p99": 80000,
        "p999": 610800,
        "p9999": 1100000,
        "max": 1200000
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
    let lines: Vec<&str> = text.lines().skip(3).take(4).collect();
    assert!(lines[0].starts_with("set: section.key_0=value_0 section"), "{lines:?}");
    assert!(lines[1].starts_with("     section.key_"), "{lines:?}");
    assert!(lines[2].starts_with("     section.key_8=value_8"), "{lines:?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{lines:?}");
    assert!(!sample("prp", "all").to_string().contains("set:"));
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
