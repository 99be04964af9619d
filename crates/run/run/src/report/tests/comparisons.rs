//! What the text of a comparison says of its rows, beside the golden.

use super::*;

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
        let rows: Vec<Vec<&str>> = text
            .lines()
            .skip_while(|line| !line.starts_with("----"))
            .skip(1)
            .take(2)
            .map(|row| row.split_whitespace().collect())
            .collect();
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
