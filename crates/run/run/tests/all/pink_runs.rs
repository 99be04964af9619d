//! Profile `pink`: the budget of DRAM decides what lookups read.

use kvdrive_config::Document;
use kvdrive_run::report::Report;
use kvdrive_run::run;

/// A drive of 1 GiB with levels of 400, 1 600 and 6 400 entries, loaded in no order and read.
fn report(settings: &[&str]) -> Report {
    let small = [
        "flash.blocks_per_die=8",
        "gc.segment_pages=64",
        "lsm.memtable_entries=100",
        "lsm.rings=[4, 16, 64, 9999]",
        "workload.name=ycsb-a",
        "workload.distribution=uniform",
        "workload.key_size=32",
        "workload.value_size=200",
        "workload.num=8000",
        "workload.ops=8000",
        "workload.verify=values",
    ];
    let mut document = Document::profile("pink").unwrap();
    for setting in small.iter().chain(settings) {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    let report = run(&document, &|_, _| {}).unwrap();
    assert_eq!(report.ops.errors, 0);
    report
}

/// The sum of a counter over all its labels.
fn total(report: &Report, section: &str, counter: &str) -> u64 {
    report.counts.section(section).labels(counter).map(|(_, count)| count).sum()
}

#[test]
fn more_dram_means_fewer_reads_and_never_more_than_the_budget() {
    let mut before = f64::INFINITY;
    for dram_bytes in [1 << 10, 64 << 10, 512 << 10, 64 << 20] {
        let report = report(&[&format!("lsm.dram_bytes={dram_bytes}")]);
        let count = |name: &str| report.counts.of(name);
        assert!(total(&report, "dram", "held") <= dram_bytes, "{dram_bytes}");
        let lookups = total(&report, "engine", "index_dram_lookups");
        let reads = count("nand.reads.lookup") as f64 / lookups as f64;
        assert!(lookups > 1_000 && reads < before, "{dram_bytes} B: {reads} after {before}");
        before = reads;
    }
    assert_eq!(before, 0.0, "the whole index fits");
}

/// n - k - 1 reads of the index, whatever the workload does: 5 levels, the memtable among them.
#[test]
fn a_lookup_reads_at_most_one_page_of_each_level_that_is_not_pinned() {
    for pinned in 0..=3u64 {
        let report = report(&[
            &format!("lsm.pinned_levels={}", pinned + 1),
            // The lists and all upper levels fit, the last one does not.
            "lsm.dram_bytes=524288",
        ]);
        let beyond = (5 - pinned..8).chain([8]).map(|reads| match reads {
            8 => report.counts.of("engine.index_dram_lookups.more"),
            reads => report.counts.of(&format!("engine.index_dram_lookups.{reads}")),
        });
        assert_eq!(beyond.sum::<u64>(), 0, "{pinned} pinned levels");
        assert_eq!(report.counts.of("engine.index_dram_misses.lists"), 0);
    }
}

/// Memtables of keys on levels 1 to 4 after this many of them were flushed: a level that has more than its limit goes
/// whole into the next one.
fn levels_by_the_form(flushes: u32, limits: [u32; 3]) -> [u32; 4] {
    let mut levels = [0; 4];
    for _ in 0..flushes {
        levels[0] += 1;
        for level in 0..3 {
            if levels[level] > limits[level] {
                levels[level + 1] += std::mem::take(&mut levels[level]);
            }
        }
    }
    levels
}

/// Table 1 of the draft at another scale: with k of four levels pinned, about 1 in f^(4-k) lookups reads no page.
#[test]
fn the_share_of_lookups_without_a_read_is_that_of_the_pinned_levels() {
    // A memtable is flushed when the next pair comes, so the last one is not.
    let flushes = 319;
    let levels = levels_by_the_form(flushes, [4, 16, 64]);
    assert_eq!(levels, [4, 15, 60, 240]);
    let of_keys = |settings: &[String]| {
        let own =
            ["workload.name=ycsb-c", "lsm.memtable_entries=16", "workload.num=5120", "workload.ops=20000"];
        let settings: Vec<&str> = own.into_iter().chain(settings.iter().map(String::as_str)).collect();
        report(&settings)
    };
    for pinned in 1..=3 {
        let pinned_levels = format!("lsm.pinned_levels={}", pinned + 1);
        let all = of_keys(&[pinned_levels.clone(), "lsm.dram_bytes=64MiB".into()]);
        // Room for the lists and for these levels, and for no page of another one.
        let bytes = all.counts.of("dram.held.lists") + all.counts.of("dram.held.pinned");
        let run = of_keys(&[pinned_levels, format!("lsm.dram_bytes={bytes}")]);
        let [none, one] = ["0", "1"].map(|n| run.counts.of(&format!("engine.index_dram_lookups.{n}")) as f64);
        let total = total(&run, "engine", "index_dram_lookups") as f64;
        let of_form = f64::from(levels[..pinned].iter().sum::<u32>()) / f64::from(flushes);
        let share = none / total;
        // Four standard deviations of 20 000 lookups.
        let spread = 4.0 * (of_form * (1.0 - of_form) / total).sqrt();
        assert!((share - of_form).abs() < spread, "{pinned} pinned: {share}, not {of_form} +- {spread}");
        let factor = 1.0 / 4f64.powi(4 - pinned as i32);
        assert!(
            share > factor / 1.6 && share < factor * 1.6,
            "{pinned} pinned: {share}, by the factor {factor}"
        );
        assert_eq!(
            pinned == 3,
            none + one == total,
            "with three pinned levels a lookup reads one page at most"
        );
    }
}
