//! A language model's cache on a drive: the operations that follow from the trace, and the drive's answers.

use kvdrive_config::Document;
use kvdrive_run::report::Report;
use kvdrive_run::run;
use kvdrive_workload::kvcache::{ADMISSIONS, LAYOUTS, POLICIES};

/// Two conversations of two blocks, of which they share the first; then the first one with a third block,
/// twice.
const REQUESTS: &str = r#"{"timestamp": 0, "input_length": 1000, "output_length": 9, "hash_ids": [0, 1]}
{"timestamp": 5, "input_length": 700, "output_length": 9, "hash_ids": [0, 2]}
{"timestamp": 5, "input_length": 1500, "output_length": 9, "hash_ids": [0, 1, 3]}
{"timestamp": 40, "input_length": 1500, "output_length": 9, "hash_ids": [0, 1, 3]}
"#;

fn report(sets: &[&str]) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("requests.jsonl");
    std::fs::write(&path, REQUESTS).unwrap();
    let mut document = Document::profile("cosmos-plus").unwrap();
    let trace = format!("workload.trace={}", path.display());
    let own = ["workload.name=kvcache", &trace, "workload.cache_shrink=4096", "workload.verify=values"];
    for set in own.iter().chain(sets) {
        document.set(set).unwrap_or_else(|error| panic!("{set}: {error}"));
    }
    run(&document, &|_, _| {}).unwrap()
}

fn count(report: &Report, name: &str) -> u64 {
    report.counts.section("workload").of(name)
}

#[test]
fn a_request_looks_up_its_prefix_reads_it_and_stores_the_rest() {
    let report = report(&["workload.cache_blocks=0"]);
    assert_eq!((count(&report, "requests"), count(&report, "blocks_asked")), (4, 10));
    assert_eq!((count(&report, "blocks_prefix_hits"), count(&report, "blocks_stored")), (6, 4));
    // Look-ups end at the first missing block; a block of 512 tokens has 131072 x 512 / 4096 bytes.
    assert_eq!((report.ops.exist, report.ops.retrieve, report.ops.store), (1 + 2 + 3 + 3, 6, 4));
    let bytes = |tokens: u64| 32 * (tokens * 4096 / 4096);
    assert_eq!(report.value_bytes.stored, bytes(512 + 488 + 188 + 476));
    assert_eq!(report.ops.errors, 0);
    let verified = report.verified.unwrap();
    assert!(verified.is_whole() && verified.checked >= 6, "{verified:?}");
}

/// What people who serve a language model ask first: how often the cache hits, and the computing it saves.
#[test]
fn the_hit_rate_and_the_saved_prefill_are_told_in_percent() {
    let report = report(&["workload.cache_blocks=0"]);
    let rates = report.cache.as_ref().unwrap();
    // 6 of 10 blocks; 512 of 700, 1000 of 1500 and 1500 of 1500 tokens after 1000 that miss.
    assert_eq!(rates.hit_rate, 0.6);
    assert_eq!(rates.token_hit_rate, count(&report, "tokens_prefix_hits") as f64 / 4700.0);
    let saved = count(&report, "prefill_saved_gflop") as f64 / count(&report, "prefill_gflop") as f64;
    assert!(saved > 0.0 && rates.prefill_saved_rate == saved, "{rates:?}");
    let text = report.to_string();
    let line = format!(
        "cache: 60.00 % of blocks and {:.2} % of tokens hit, which saves {:.2} % of the prefill",
        100.0 * rates.token_hit_rate,
        100.0 * saved
    );
    assert!(text.contains(&line), "{line}: {text}");
}

/// Bytes a day follow from the trace's 40 ms and the model's 131 072 B a token, years from the drive of the profile and its
/// rating, and nothing is said of a drive whose rating nobody published.
#[test]
fn writes_a_day_and_years_are_told_for_a_rated_drive_and_no_years_for_another() {
    let of = |sets: &[&str]| {
        let report = report(&[&["workload.cache_blocks=0"], sets].concat());
        let text = report.to_string();
        (report.cache.clone().unwrap(), report, text)
    };
    let days = 40.0 / 86_400_000.0;
    let (rates, report, text) = of(&[]);
    let tokens = f64::from(512 + 488 + 188 + 476);
    assert_eq!(rates.stored_bytes_a_day, Some(tokens * 131_072.0 / days));
    let capacity = report.counts.of("drive.capacity_bytes") as f64;
    let written = report.value_bytes.stored as f64 / days / capacity;
    assert!((rates.drive_writes_a_day.unwrap() - written).abs() < 1e-9 * written, "{rates:?}");
    assert_eq!(rates.rated_years, None);
    assert!(text.contains("; years: not known") && text.contains("4096 times as large"), "{text}");

    let near = |years: Option<f64>, expected: f64| {
        let years = years.unwrap();
        assert!((years / expected - 1.0).abs() < 1e-9, "{years} {expected}");
    };
    near(of(&["rated.drive_writes=1000"]).0.rated_years, 1000.0 / written / 365.0);
    // 64 GiB of flash are programmed by pages of 16 KiB; of two ratings the earlier end counts.
    let pages = report.counts.of("nand.programs") as f64 / days;
    let by_cycles = 3000.0 * (64u64 << 30) as f64 / (16384.0 * pages) / 365.0;
    near(of(&["rated.erase_cycles=3000"]).0.rated_years, by_cycles);
    let (both, _, text) = of(&["rated.drive_writes=1e6", "rated.erase_cycles=3000"]);
    near(both.rated_years, by_cycles.min(1e6 / written / 365.0));
    assert!(text.contains(&format!("; years: {:.2} as rated", both.rated_years.unwrap())), "{text}");
}

/// Saved bytes are counted beside the same cache without admission: blocks that it refuses are asked for again.
#[test]
fn admission_tells_the_bytes_that_it_saves_and_the_hits_that_it_costs() {
    let of = |admission: &str| {
        let report = report(&["workload.cache_blocks=0", &format!("workload.cache_admission={admission}")]);
        (report.cache.clone().unwrap(), report.to_string())
    };
    let (all, text) = of("all");
    assert_eq!((all.admission_saved_rate, all.hit_rate_by_all), (0.0, all.hit_rate));
    assert!(!text.contains("keeps"), "{text}");
    // Blocks 0, 1 and 3 are asked for again: 512, 512 and 476 tokens are stored, of 512, 488, 188 and 476.
    let (second, text) = of("second-use");
    let saved = 1.0 - f64::from(512 + 512 + 476) / f64::from(512 + 488 + 188 + 476);
    assert!((second.admission_saved_rate - saved).abs() < 1e-12, "{second:?}");
    assert!(second.hit_rate < all.hit_rate && second.hit_rate_by_all == all.hit_rate, "{second:?}");
    assert!(text.contains(
        "admission second-use keeps 9.86 % of the bytes from the drive; with every block 60.00 % hit"
    ));
    let (full, _) = of("full");
    let saved = 1.0 - f64::from(512 + 512) / f64::from(512 + 488 + 188 + 476);
    assert!((full.admission_saved_rate - saved).abs() < 1e-12, "{full:?}");
}

#[test]
fn a_full_cache_deletes_what_its_policy_gives_up_in_every_layout() {
    for layout in LAYOUTS {
        for policy in POLICIES {
            let layout_set = format!("workload.cache_objects={}", layout.name);
            let policy_set = format!("workload.cache_policy={}", policy.name);
            let report = report(&["workload.cache_blocks=2", &layout_set, &policy_set]);
            let (stored, deleted) = (count(&report, "blocks_stored"), count(&report, "blocks_deleted"));
            assert_eq!(stored - deleted, 2, "{} {}", layout.name, policy.name);
            let pairs_a_block = report.ops.store / stored;
            assert_eq!(report.ops.store, stored * pairs_a_block, "{}", layout.name);
            assert_eq!(report.ops.delete, deleted * pairs_a_block, "{}", layout.name);
            let verified = report.verified.unwrap();
            assert!(verified.is_whole(), "{} {}: {verified:?}", layout.name, policy.name);
        }
    }
}

#[test]
fn requests_begin_when_they_came() {
    let closed = report(&["workload.cache_blocks=0"]);
    let timed = report(&["workload.cache_blocks=0", "workload.arrivals=trace"]);
    assert!(closed.time.virtual_ns < 40_000_000 && timed.time.virtual_ns > 40_000_000);
    assert_eq!(closed.counts.section("workload"), timed.counts.section("workload"));
}

#[test]
fn a_run_of_some_requests_ends_after_them_in_every_layout_and_admission() {
    for admission in ADMISSIONS {
        for layout in LAYOUTS {
            let layout_set = format!("workload.cache_objects={}", layout.name);
            let admission_set = format!("workload.cache_admission={}", admission.name);
            let chunk = "workload.cache_chunk_bytes=4096";
            let report = report(&["workload.cache_requests=3", &layout_set, &admission_set, chunk]);
            assert_eq!((count(&report, "requests"), count(&report, "blocks_asked")), (3, 7));
            assert_eq!(report.ops.errors, 0, "{} {}", layout.name, admission.name);
            assert!(report.verified.unwrap().is_whole(), "{} {}", layout.name, admission.name);
        }
    }
}

#[test]
fn a_request_that_is_cut_in_its_middle_is_refused_by_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.jsonl");
    let lines: Vec<&str> = REQUESTS.lines().collect();
    for length in [1, 20, lines[1].len() / 2, lines[1].len() - 1] {
        for rest in ["", "\n", &format!("\n{}\n", lines[2])] {
            std::fs::write(&path, format!("{}\n{}{rest}", lines[0], &lines[1][..length])).unwrap();
            let mut document = Document::profile("cosmos-plus").unwrap();
            let trace = format!("workload.trace={}", path.display());
            for set in ["workload.name=kvcache", &trace, "workload.cache_shrink=4096"] {
                document.set(set).unwrap();
            }
            let error = run(&document, &|_, _| {}).unwrap_err().to_string();
            assert!(error.contains("cut.jsonl, line 2: expected {\"timestamp\": "), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}

#[test]
fn what_no_table_has_is_one_line() {
    let mut document = Document::profile("cosmos-plus").unwrap();
    document.set("workload.name=kvcache").unwrap();
    for (set, starts) in [
        (
            "workload.cache_model=llama-8b",
            "workload.cache_model: no model \"llama-8b\"; did you mean llama-3.1-8b?",
        ),
        ("workload.cache_admission=second", "workload.cache_admission: no admission \"second\""),
    ] {
        let mut document = document.clone();
        document.set(set).unwrap();
        let error = run(&document, &|_, _| {}).unwrap_err().to_string();
        assert!(error.starts_with(starts), "{error}");
    }
}
