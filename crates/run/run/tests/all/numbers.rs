//! Counted numbers that must be exact, and modelled ones with the constants of `cosmos-plus`.

use kvdrive_config::Document;
use kvdrive_run::report::Report;
use kvdrive_run::run;

fn report(settings: &[&str]) -> Report {
    let mut document = Document::profile("cosmos-plus").expect("the profile exists");
    for setting in settings {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    run(&document, &|_, _| {}).expect("the run succeeds")
}

fn without_flash(transfer: &str, bytes: u32) -> Report {
    report(&[
        "nand.enabled=false",
        "workload.name=fillseq",
        "workload.ops=200",
        &format!("workload.value_size={bytes}"),
        &format!("host.transfer={transfer}"),
    ])
}

fn payload_of_a_store(transfer: &str, bytes: u32) -> f64 {
    let report = without_flash(transfer, bytes);
    report.counts.of("traffic.payload_bytes") as f64 / report.ops.store as f64
}

/// BandSlim's accounting: 64 + 16 + 2 x 4 bytes a command and 4096 a page.
#[test]
fn payload_bytes_of_a_store() {
    let table: [(&str, u32, f64); 14] = [
        ("prp", 0, 88.0),
        ("prp", 32, 4184.0),
        ("prp", 4096, 4184.0),
        ("prp", 4097, 8280.0),
        ("prp", 8192, 8280.0),
        // Three pages need a list of two entries.
        ("prp", 8193, 88.0 + 3.0 * 4096.0 + 16.0),
        ("piggyback", 4, 88.0),
        ("piggyback", 35, 88.0),
        ("piggyback", 64, 176.0),
        ("piggyback", 128, 264.0),
        ("piggyback", 2048, 3256.0),
        ("piggyback", 4096, 6512.0),
        ("hybrid", 4096 + 32, 4272.0),
        ("sgl", 5000, 88.0 + 8192.0),
    ];
    for (transfer, bytes, expected) in table {
        assert_eq!(payload_of_a_store(transfer, bytes), expected, "{transfer} {bytes} B");
    }
    let reduction = 100.0 * (1.0 - payload_of_a_store("piggyback", 32) / payload_of_a_store("prp", 32));
    assert!((reduction - 97.90).abs() < 0.005, "{reduction}");
}

/// Mean response time of a store in us, flash off.
fn response_us(profile: &str, transfer: &str, bytes: u32, also: &[&str]) -> f64 {
    let mut document = Document::profile(profile).expect("the profile exists");
    let own = [format!("workload.value_size={bytes}"), format!("host.transfer={transfer}")];
    let common = ["nand.enabled=false", "flash.blocks_per_die=64", "workload.name=fillseq", "workload.ops=9"];
    for setting in common.iter().chain(also).copied().chain(own.iter().map(String::as_str)) {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    let report = run(&document, &|_, _| {}).expect("the run succeeds");
    report.latency_ns.get("store").expect("it only stores").mean / 1000.0
}

/// Linux uses SGLs from 32 KiB on. Values of whole pages below that are slower by `sgl`, larger ones are faster.
#[test]
fn an_sgl_pays_from_32_kib_on() {
    for profile in ["cosmos-plus", "gen5-cxl", "gen5-cxl-line", "nvmevirt-970pro"] {
        let saved_us = |kib: u32| {
            let [prp, sgl] = ["prp", "sgl"].map(|transfer| response_us(profile, transfer, kib << 10, &[]));
            prp - sgl
        };
        for kib in [4, 28] {
            assert!(saved_us(kib) < -0.05, "{profile}, {kib} KiB: {} us", saved_us(kib));
        }
        // Line times are rounded up for each DMA.
        assert!(saved_us(32).abs() < 0.01, "{profile}: {} us", saved_us(32));
        assert!(saved_us(36) > 0.05, "{profile}: {} us", saved_us(36));
    }
}

/// Not even if the engine moves single bytes, which saves the line time of the rest of a page.
#[test]
fn bytes_that_are_not_moved_do_not_pay_for_an_sgl() {
    for bytes in [4, 128, 4095, 4097, 28 * 1024 + 1, 32 * 1024 - 1] {
        let exact = ["controller.dma_granularity_bytes=1"];
        let [prp, sgl] = ["prp", "sgl"].map(|transfer| response_us("cosmos-plus", transfer, bytes, &exact));
        assert!(sgl > prp - 0.01, "{bytes} B: {sgl} us by an SGL, {prp} us by PRPs");
    }
}

#[test]
fn what_flash_operations_take_alters_nothing_where_there_are_none() {
    let settings = [
        "flash.sense_ns=1000000",
        "flash.program_ns=1",
        "flash.erase_ns=1",
        "flash.erase_block_bytes=1MiB",
        "flash.transfer_ns_per_kib=1000000",
        "flash.uncharged=[\"program:value\"]",
    ];
    for (enabled, is_same) in [("nand.enabled=false", true), ("nand.enabled=true", false)] {
        // The drive is overwritten and collected.
        let common = [enabled, "workload.name=fillrandom", "workload.num=2000", "workload.ops=20000"];
        let small = ["workload.value_size=4096", "flash.blocks_per_die=8", "flash.pages_per_block=16"];
        let common = [&common[..], &small].concat();
        let usual = report(&common);
        for setting in settings {
            let (key, _) = setting.split_once('=').unwrap();
            let mut document = Document::profile("cosmos-plus").unwrap();
            document.set(enabled).unwrap();
            assert_eq!(document.config().unwrap().ignores(key).is_some(), is_same, "{key} with {enabled}");
            let other = report(&[&common[..], &[setting]].concat());
            assert_eq!(other.time.virtual_ns == usual.time.virtual_ns, is_same, "{setting} with {enabled}");
        }
    }
}

/// The difference between a run of `common` and one that also has `setting`: in time, bytes over the link or
/// programs.
fn differs(common: &[&str], setting: &str) -> bool {
    let [usual, other] = [common.to_vec(), [common, &[setting]].concat()].map(|settings| {
        let report = report(&settings);
        (report.time.virtual_ns, report.counts.of("traffic.payload_bytes"), report.counts.of("nand.programs"))
    });
    usual != other
}

fn is_ignored(common: &[&str], setting: &str) -> bool {
    let mut document = Document::profile("cosmos-plus").unwrap();
    common.iter().for_each(|setting| document.set(setting).unwrap());
    document.config().unwrap().ignores(setting.split_once('=').unwrap().0).is_some()
}

/// Two sizes: one around the first threshold, one with a tail around the second.
#[test]
fn what_a_transfer_method_ignores_alters_nothing_and_what_it_looks_at_does() {
    let settings = [
        "host.alpha=0.25",
        "host.beta=0.25",
        "host.threshold1_bytes=32",
        "host.threshold2_bytes=8",
        "host.cxl_setup_ns=1",
        "link.cxl_store_ns=1",
        "link.cxl_line_ns=1",
    ];
    for row in kvdrive_link::transfer::METHODS {
        let transfer = format!("host.transfer={}", row.name);
        for setting in settings {
            let is_looked_at = ["workload.value_size=100", "workload.value_size=4108"].iter().any(|size| {
                let common = ["nand.enabled=false", "workload.name=w-a", "workload.ops=20", &transfer, size];
                differs(&common, setting)
            });
            assert_eq!(is_ignored(&[&transfer], setting), !is_looked_at, "{setting} with {}", row.name);
        }
    }
}

#[test]
fn what_another_key_turns_off_is_ignored_and_alters_nothing() {
    let drive =
        ["workload.name=mixed", "workload.num=4000", "workload.ops=40000", "workload.value_size=4096"];
    let small = [
        "flash.blocks_per_die=8",
        "flash.pages_per_block=16",
        "gc.segment_pages=32",
        "lsm.memtable_entries=64",
    ];
    for (off, on, setting) in [
        ("gc.enabled=false", "gc.enabled=true", "gc.free_segments_low=50"),
        ("lsm.bloom_bits_per_key=0", "lsm.bloom_bits_per_key=8", "lsm.bloom_hashes=1"),
    ] {
        for (switch, is_same) in [(off, true), (on, false)] {
            let busy = ["host.depth=4", "controller.contexts=4", "workload.delete_fraction=0.3", switch];
            let common = [&drive[..], &small, &busy].concat();
            assert_eq!(is_ignored(&common, setting), is_same, "{setting} with {switch}");
            assert_eq!(differs(&common, setting), !is_same, "{setting} with {switch}");
        }
    }
}

/// In every 28.1 us the host's core works whenever link and drive do not. The drain after the run programs
/// the pages: they are counted, but no resource of the run is busy with them.
#[test]
fn resources_are_of_the_run_and_not_of_its_drain() {
    let report = report(&["workload.ops=1000", "host.transfer=prp", "packing.policy=block"]);
    assert_eq!((report.time.virtual_ns, report.counts.of("nand.programs")), (28_100_000, 250));
    let busy = |name: &str| report.resources.get(name).expect("it is in every report").busy_fraction;
    let host_ns = 940.0 + 1200.0 + 2400.0 + 3000.0 + 8100.0;
    assert!((busy("host.core") - host_ns / 28_100.0).abs() < 1e-9, "{}", busy("host.core"));
    // Requests for an entry and for a page, and a completion: 28, 224 and 44 wire bytes at 4 B/ns.
    assert!((busy("link.up") - (7.0 + 56.0 + 11.0) / 28_100.0).abs() < 1e-9, "{}", busy("link.up"));
    assert_eq!((busy("die"), busy("channel")), (0.0, 0.0));
}

#[test]
fn traffic_of_workload_m() {
    let payload = |transfer: &str| {
        let transfer = format!("host.transfer={transfer}");
        let report = report(&["nand.enabled=false", "workload.ops=200000", &transfer]);
        report.counts.of("traffic.payload_bytes") as f64
    };
    let baseline = payload("prp");
    for (transfer, published_rules) in [("adaptive", 93.24), ("piggyback", 96.95)] {
        let reduction = 100.0 * (1.0 - payload(transfer) / baseline);
        // 1 M stores give it within 0.05; a fifth of them scatters more.
        assert!((reduction - published_rules).abs() < 0.12, "{transfer}: {reduction}");
    }
}

/// Section 3 and figure 8 of the paper, as ratios to the baseline: about half, about equal, worse.
#[test]
fn response_times_without_flash() {
    let mean = |transfer: &str, bytes: u32| {
        let report = without_flash(transfer, bytes);
        report.latency_ns.get("store").expect("stores happened").mean
    };
    for (bytes, low, high) in
        [(4, 0.45, 0.55), (32, 0.5, 0.58), (64, 0.95, 1.1), (128, 1.3, 1.7), (2048, 10.0, 25.0)]
    {
        let ratio = mean("piggyback", bytes) / mean("prp", bytes);
        assert!((low..=high).contains(&ratio), "{bytes} B: {ratio}");
    }
    assert_eq!(mean("prp", 32), 20_000.0, "the fitted scale");
    assert_eq!(mean("piggyback", 32), 10_800.0, "the fitted command");
}

/// Value pages of 1 M stores by a separate model of the packing rules, here for a tenth of the stores.
#[test]
fn value_pages_of_the_packing_policies() {
    let table = [
        ("w-b", [250_000, 14_237, 24_914, 24_914]),
        ("w-c", [250_000, 120_691, 224_981, 224_981]),
        ("w-d", [250_000, 28_952, 138_762, 138_762]),
        ("w-m", [250_000, 2_139, 10_350, 10_325]),
    ];
    for (workload, pages) in table {
        for (policy, expected) in ["block", "all", "selective", "backfill"].into_iter().zip(pages) {
            let report = report(&[
                "nand.enabled=false",
                "workload.ops=100000",
                &format!("workload.name={workload}"),
                &format!("packing.policy={policy}"),
            ]);
            let opened = report.counts.of("engine.value_pages_opened") as f64 * 10.0;
            let off = opened / f64::from(expected) - 1.0;
            assert!(off.abs() < 0.03, "{workload} {policy}: {opened} pages, {expected} expected");
        }
    }
}

/// Same configuration and seed, same report; another medium, same report.
#[test]
fn reports_repeat_to_the_last_digit() {
    let run = |medium: &str| {
        let mut report =
            report(&["workload.ops=20000", &format!("media.kind={medium}"), "flash.blocks_per_die=64"]);
        report.time.wall_s = 0.0;
        report.config = serde_json::Value::Null;
        serde_json::to_string(&report).expect("a report is JSON")
    };
    let first = run("tags");
    assert_eq!(first, run("tags"));
    assert_eq!(first, run("ram"));
}

/// A retrieve of a value that was evicted from the buffer while flash was off is refused with a status.
#[test]
fn evicted_values_are_refused_without_flash() {
    let report = report(&[
        "nand.enabled=false",
        "workload.name=readrandom",
        "workload.num=20000",
        "workload.value_size=4096",
        "workload.ops=2000",
        "packing.policy=block",
    ]);
    assert!(report.ops.errors > 1000 && report.ops.errors < 2000, "{:?}", report.ops);
}

/// A full drive refuses at once: such an operation is no fast store, and no stored value.
#[test]
fn refused_stores_are_counted_as_errors_and_in_no_latency() {
    let full = |until_full: bool| {
        report(&[
            "flash.channels=2",
            "flash.dies_per_channel=2",
            "flash.blocks_per_die=16",
            "flash.pages_per_block=64",
            "gc.segment_pages=64",
            "workload.name=fillseq",
            "workload.value_size=4096",
            "workload.ops=16384",
            &format!("workload.until_full={until_full}"),
        ])
    };
    let (ended, went_on) = (full(true), full(false));
    assert!(ended.ops.errors == 0 && ended.ops.store < 16_000, "{:?}", ended.ops);
    assert_eq!(went_on.ops.store, ended.ops.store);
    assert_eq!(went_on.ops.errors, 16_384 - ended.ops.store);
    assert_eq!(went_on.latency_ns, ended.latency_ns);
    assert!(went_on.throughput_ops_per_s < ended.throughput_ops_per_s);
    let note = went_on.notes.iter().find(|note| note.starts_with("first of ")).expect("a note");
    let key = kvdrive_nvme::Key::from_u32_be(ended.ops.store as u32);
    assert!(note.ends_with(&format!(" errors: store of {key}: capacity exceeded (81h)")), "{note}");
}
