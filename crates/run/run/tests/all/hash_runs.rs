//! Runs of hash engines on a small preconditioned drive: sessions, scale, and the contents of reports.

use kvdrive_config::{Document, Scale};
use kvdrive_declare::Form;
use kvdrive_engines::hash::SCHEMES;
use kvdrive_run::plan::Plan;
use kvdrive_run::report::{Report, compare};
use kvdrive_run::{operations, run, run_session};

/// 24 MiB in 48 superblocks of 512 KiB, two thirds full, every pair overwritten once before anything is
/// measured.
const SMALL: &[&str] = &[
    "flash.channels=2",
    "flash.dies_per_channel=2",
    "flash.blocks_per_die=48",
    "hash.write_buffer_bytes=262144",
    "hash.dram_bytes=65536",
    "hash.gc_workers=4",
    "workload.key_size=8",
    "workload.value_size=1000",
    "workload.num=14000",
    "workload.overwrites=14000",
    "workload.ops=2000",
];

fn kvvirt<'a>(settings: impl IntoIterator<Item = &'a &'a str>) -> Document {
    let mut document = Document::profile("kvvirt").unwrap();
    for set in settings {
        document.set(set).unwrap_or_else(|error| panic!("{error}"));
    }
    document
}

fn small(settings: &[&str]) -> Document {
    kvvirt(SMALL.iter().chain(settings))
}

fn on(engine: &str, workload: &str, distribution: &str) -> Document {
    small(&[
        &format!("engine.name={engine}"),
        &format!("workload.name={workload}"),
        &format!("workload.distribution={distribution}"),
    ])
}

#[test]
fn workloads_follow_each_other_on_a_preconditioned_drive() {
    let documents =
        [on("plus", "plus-a", "uniform"), on("plus", "ycsb-d", "latest"), on("plus", "ycsb-a", "zipfian")];
    let total = operations(&documents[0].config().unwrap()).unwrap() + 4000;
    assert_eq!(total, 14_000 + 14_000 + 3 * 2000);
    let last = std::cell::Cell::new(0);
    let reports = run_session(&documents, &|done, all| {
        assert!(all == total && done >= last.replace(done));
    })
    .unwrap();
    assert_eq!(last.get(), total);
    let alone = run(&documents[0], &|_, _| ()).unwrap();
    let without_wall = |report: &Report| {
        let mut json = serde_json::to_value(report).unwrap();
        json["time"]["wall_s"] = 0.into();
        json
    };
    assert_eq!(without_wall(&alone), without_wall(&reports[0]), "the first run is as it is alone");
    for report in &reports {
        assert_eq!((report.ops.total(), report.ops.errors), (2000, 0));
        let loading = report.precondition.as_ref().unwrap();
        assert_eq!((loading.stores, loading.stored_bytes), (28_000, 28_000_000));
        assert!(
            loading.counts.of("nand.erases") > 0 && loading.write_amplification > Some(1.0),
            "overwrites collect garbage"
        );
    }
    // Inserted pairs are found again: all retrieves of the third run were hits.
    assert_eq!(reports[2].value_bytes.retrieved, reports[2].ops.retrieve * 1000);
    assert!(reports[1].notes.contains(&"after plus-a uniform on the same drive".to_owned()));
    let other = on("original", "plus-a", "uniform");
    let error = run_session(&[documents[0].clone(), other], &|_, _| ()).unwrap_err().to_string();
    assert_eq!(error, "plus-a: runs of one session share all but their workload");
}

#[test]
fn a_drive_loaded_in_no_time_is_as_one_that_was_loaded_in_model_time() {
    for engine in SCHEMES.iter().map(|scheme| scheme.name) {
        let run = |timed: bool| {
            let mut document = on(engine, "plus-a", "uniform");
            for set in [
                &*format!("workload.timed_load={timed}"),
                "hash.gc_low_superblocks=4",
                "hash.gc_stall_superblocks=3",
                "hash.dram_bytes=524288",
            ] {
                document.set(set).unwrap();
            }
            let last = std::cell::Cell::new(0);
            let report = run(&document, &|done, _| assert!(done >= last.replace(done))).unwrap();
            assert_eq!(last.get(), 30_000);
            report
        };
        let (timed, at_once) = (run(true), run(false));
        let (a, b) = (timed.precondition.as_ref().unwrap(), at_once.precondition.as_ref().unwrap());
        assert!(a.virtual_ns.unwrap() > 0 && b.virtual_ns.is_none());
        assert_eq!((a.stores, a.stored_bytes), (b.stores, b.stored_bytes));
        assert_eq!((timed.ops.total(), at_once.ops.errors), (at_once.ops.total(), 0));
        // The drives are not equal to the page: clients that do not wait meet in another order, and pin fewer
        // sections.
        let near = |what: &str, a: f64, b: f64| {
            assert!((a / b - 1.0).abs() < 0.03, "{engine}: {what} {a} timed, {b} at once");
        };
        let (written, at_once_written) = (a.write_amplification.unwrap(), b.write_amplification.unwrap());
        near("write amplification of the load", written, at_once_written);
        let used = |report: &Report| report.counts.of("engine.used_bytes") as f64;
        near("bytes in use", used(&timed), used(&at_once));
        assert!(at_once.to_string().contains("untimed"));
    }
}

#[test]
fn drives_are_shared_by_what_is_preconditioned_alike() {
    let mut documents: Vec<Document> = ["plus-a", "plus-c"]
        .into_iter()
        .flat_map(|workload| ["original", "plus"].map(|engine| on(engine, workload, "uniform")))
        .collect();
    documents.push(small(&["workload.name=plus-a", "workload.overwrites=0"]));
    documents.push(small(&["workload.name=plus-c", "workload.overwrites=0"]));
    documents.push(small(&["workload.name=fillseq"]));
    documents.push(small(&["workload.name=plus-c", "hash.dram_bytes=131072"]));
    let shared = Plan::sharing(documents).unwrap();
    assert_eq!(shared.sessions(), [vec![0, 2], vec![1, 3], vec![4], vec![5], vec![6], vec![7]]);
    let sessions = shared.sessions()[..2].iter();
    let ran = sessions.map(|session| run_session(&shared.of(session), &|_, _| ()).unwrap());
    let mut reports: Vec<_> = ran.flatten().collect();
    // In the order of the documents.
    reports.swap(1, 2);
    let names: Vec<_> = reports
        .iter()
        .map(|report| report.config.pointer("/engine/name").unwrap().as_str().unwrap())
        .collect();
    assert_eq!(names, ["original", "plus", "original", "plus"]);
    let table = compare(&reports);
    assert!(
        table.contains("retrieve") && table.contains("against engine original, workload plus-a:"),
        "{table}"
    );
    assert!(table.contains("against engine original, workload plus-c:"), "{table}");
}

#[test]
fn reports_have_what_the_engine_counts_and_the_dram_it_takes() {
    let report = run(&on("plus", "plus-a", "uniform"), &|_, _| ()).unwrap();
    let count = |name: &str| report.counts.section("engine").of(name);
    // A read-modify-write is not one operation here: every operation looks a key up once, and takes one more
    // probe for each collision.
    assert!(count("lookups") >= 2000 && count("probes") == count("lookups") + count("collisions"));
    let used = count("used_bytes");
    assert!(used > 14_000 * 1013 && used < count("capacity_bytes"), "{used}");
    assert_eq!(report.counts.get("dram.section_cache"), Some(65_536));
    assert_eq!(report.counts.get("dram.write_buffer"), Some(262_144));
    assert_eq!(report.counts.get("engine.value_pages_opened"), None);
    let text = report.to_string();
    for part in ["\nPRECONDITION ", "\nENGINE ", "\nDRAM ", "1 344.0 MiB", "left out"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

/// The cache gets the DRAM that the other structures leave, and a cached section takes 16 B besides its
/// bytes.
#[test]
fn a_budget_for_everything_is_for_everything() {
    for scheme in SCHEMES {
        let engine = scheme.name;
        // Room for every section, with either accounting.
        let with = |accounting: &str, dram_bytes: u64| {
            let mut document = on(engine, "plus-a", "uniform");
            document.set(&format!("hash.dram_accounting={accounting}")).unwrap();
            document.set(&format!("hash.dram_bytes={dram_bytes}")).unwrap();
            run(&document, &|_, _| ()).unwrap()
        };
        let (published, total) = (with("published", 8 << 20), with("total", 16 << 20));
        let of = |report: &Report, name: &str| report.counts.section("dram").of(name);
        let parts = total.counts.section("dram").iter().filter(|count| count.counter.form == Form::State);
        let all: u64 = parts.map(|count| count.value).sum();
        assert_eq!(all, 16 << 20, "{engine}");
        let lists = of(&total, "invalid_page_lists");
        // A superblock of 512 pairs fills a buffer of 165 records, an eighth of a read unit, and none of 510.
        let has_small_buffers = scheme.records.is_some_and(|form| form.unit_buffers > 1);
        assert_eq!(lists > 0, has_small_buffers, "{engine}: {lists}");
        let created = |report: &Report| {
            report.precondition.as_ref().unwrap().counts.of("engine.section_created")
                + report.counts.of("engine.section_created")
        };
        let (most, published_most) = (of(&total, "section_cache_most"), of(&published, "section_cache_most"));
        assert_eq!(created(&total), created(&published), "{engine}");
        assert_eq!(most, published_most + 16 * created(&total), "{engine}");
    }
}

#[test]
fn a_scale_shrinks_drive_load_and_dram_together() {
    let shrunk = |scale: &str, dram: &str| {
        let mut document = Document::profile("kvvirt").unwrap();
        document.set_dram(dram).unwrap();
        document.set("workload.preset=plus").unwrap();
        document.shrink(scale.parse().unwrap()).unwrap();
        document.config().unwrap()
    };
    let full = shrunk("1", "published");
    assert_eq!((full.flash.blocks_per_die, full.workload.num), (16_384, 100_000_000));
    assert_eq!((full.workload.ops, full.workload.overwrites), (10_000_000, 100_000_000));
    assert_eq!((full.engines.hash.gc_low_superblocks, full.engines.hash.dram_bytes), (8, 128 << 20));
    let part = shrunk("1/64", "published");
    assert_eq!((part.flash.blocks_per_die, part.workload.num), (256, 1_562_500));
    assert_eq!((part.workload.ops, part.workload.overwrites), (156_250, 1_562_500));
    assert_eq!((part.engines.hash.gc_low_superblocks, part.engines.hash.gc_stall_superblocks), (4, 3));
    assert_eq!((part.engines.hash.dram_bytes, part.engines.hash.write_buffer_bytes), (2 << 20, 4 << 20));
    // The write buffer and pages on their way to flash are part of this budget and keep their size: 4 MiB,
    // and 426 pages.
    let kept = (4 << 20) + 426 * (32 << 10);
    assert_eq!(shrunk("1/64", "total-256").engines.hash.dram_bytes, ((256 << 20) - kept) / 64 + kept);
    for wrong in ["2", "1/3", "1/512", "0", "1/0", "1/", "x"] {
        let error = wrong.parse::<Scale>().unwrap_err();
        assert_eq!(error, format!("\"{wrong}\": expected 1, or 1/2, 1/4, ... 1/256"));
    }
    assert_eq!(["1", "1/64"].map(|text| text.parse::<Scale>().unwrap().to_string()), ["1", "1/64"]);
    let error = Document::profile("kvvirt").unwrap().set_dram("much").unwrap_err().to_string();
    assert_eq!(error, "DRAM point: \"much\"; there are published, total-128, total-256");
}

#[test]
fn each_omission_of_the_published_emulator_reaches_the_drive() {
    // Half empty and one command at a time: nothing is collected, so only the switch makes a difference.
    let with = |workload: &str, set: &str| {
        let quiet = [
            "engine.name=original",
            "workload.num=6000",
            "workload.overwrites=0",
            "workload.distribution=uniform",
            "host.depth=1",
        ];
        let report = run(&small(&[&quiet[..], &[workload, set]].concat()), &|_, _| ()).unwrap();
        assert_eq!((report.ops.errors, report.counts.of("nand.erases")), (0, 0), "{set}");
        let kind = if workload.ends_with('c') { "retrieve" } else { "store" };
        report.latency_ns.get(kind).unwrap().mean
    };
    let retrieve = with("workload.name=plus-c", "run.seed=1");
    for free in ["link.free_to_host=true", "flash.uncharged=[\"read:lookup\"]", "flash.sense_ns=25330"] {
        let now = with("workload.name=plus-c", free);
        assert!(now < retrieve, "{free}: {now} instead of {retrieve}");
    }
    let now = with("workload.name=plus-c", "hash.collision_ns=21500");
    assert!(now > retrieve, "some lookups meet another key: {now} instead of {retrieve}");
    let store = with("workload.name=fillseq", "run.seed=1");
    let now = with("workload.name=fillseq", "hash.wait_for_program=true");
    // A program of 185 us and its transfer, once in 32 stores.
    assert!(now > store + 1000.0, "stores that fill a page wait: {now} instead of {store}");
    let mut document = Document::profile("kvvirt").unwrap();
    let error = document.set("flash.uncharged=[\"write:data\"]").unwrap_err().to_string();
    assert!(error.ends_with("a list of OPERATION:PURPOSE[:CHANNEL], as [\"read:data_gc\"]"), "{error}");
}

/// The least that an engine's error says it needs.
fn least_protected_bytes(document: &Document) -> u64 {
    let mut document = document.clone();
    document.set("power.protected_bytes=1000000").unwrap();
    let refused = run(&document, &|_, _| ()).expect_err("a megabyte is too little").to_string();
    let needed = refused.split("to at least ").nth(1);
    needed.and_then(|bytes| bytes.parse().ok()).unwrap_or_else(|| panic!("{refused}"))
}

/// Sections change faster than few dies can write them, and collection moves pairs of 1 MB: writers wait for
/// the protected memory that holds their pages meanwhile.
#[test]
fn pages_on_their_way_fit_the_least_protected_memory() {
    let small_pairs =
        ["workload.name=fillseq", "workload.ops=60000", "workload.num=60000", "workload.value_size=40"];
    let large_pairs = [
        "workload.name=plus-a",
        "workload.distribution=uniform",
        "workload.num=150",
        "workload.overwrites=600",
        "workload.ops=100",
        "workload.value_size=1000000",
        "flash.blocks_per_die=40",
    ];
    for engine in SCHEMES.iter().map(|scheme| scheme.name) {
        for pairs in [&small_pairs[..], &large_pairs[..]] {
            let drive = [
                "flash.channels=1",
                "flash.dies_per_channel=4",
                "flash.blocks_per_die=1024",
                "flash.pages_per_block=64",
                "workload.key_size=8",
                "hash.dram_bytes=134217728",
                "buffer.entries=16",
            ];
            let mut document = kvvirt(drive.iter().chain(pairs));
            document.set(&format!("engine.name={engine}")).unwrap();
            let bytes = least_protected_bytes(&document);
            document.set(&format!("power.protected_bytes={bytes}")).unwrap();
            let report = run(&document, &|_, _| ()).unwrap_or_else(|error| panic!("{engine}: {error}"));
            assert_eq!(report.ops.errors, 0, "{engine}");
            let is_large = pairs.len() == large_pairs.len();
            assert_eq!(
                report.counts.get("engine.gc_moved_pairs").is_some_and(|moved| moved > 0),
                is_large,
                "{engine}"
            );
        }
    }
}

/// One die, blocks of few pages, and the minimum of everything else.
const TINY: &[&str] = &[
    "flash.channels=1",
    "flash.dies_per_channel=1",
    "flash.page_bytes=4096",
    "flash.spare_bytes=256",
    "buffer.entries=16",
    "hash.gc_low_superblocks=6",
    "hash.gc_stall_superblocks=3",
    "power.protected_bytes=67108864",
];

/// Configurations that once failed, each with its failure.
const FOUND: &[(&str, &[&str])] = &[
    (
        "a store wrote every section of its probe sequence, and began anew when that had taken all space",
        &[
            "engine.name=original",
            "flash.channels=2",
            "flash.blocks_per_die=29",
            "flash.pages_per_block=4",
            "flash.page_bytes=8192",
            "flash.program_ns=0",
            "flash.sense_ns=1000000",
            "hash.write_buffer_bytes=24576",
            "hash.dram_bytes=4096",
            "hash.grain_bytes=32",
            "hash.unit_bytes=1024",
            "hash.gc_stall_superblocks=2",
            "hash.gc_low_superblocks=3",
            "hash.gc_workers=8",
            "hash.over_provisioning=0.0",
            "hash.hash_bits=6",
            "hash.max_probes=256",
            "power.protected_bytes=8388608",
            "hash.discard_invalid=false",
            "controller.roles=any",
            "host.depth=600",
            "host.transfer=hybrid",
            "workload.name=ycsb-a",
            "workload.value_size=21",
            "workload.num=12902",
            "workload.ops=2000",
            "workload.timed_load=false",
            "run.seed=270",
        ],
    ),
    (
        "sections that had been pinned left all at once, into more pages than protected memory holds",
        &[
            "engine.name=original",
            "flash.blocks_per_die=512",
            "flash.pages_per_block=256",
            "host.depth=2000",
            "host.queue_entries=4096",
            "controller.contexts=2000",
            "controller.roles=any",
            "hash.dram_bytes=0",
            "hash.write_buffer_bytes=65536",
            "hash.gc_workers=1",
            "workload.name=mixed",
            "workload.delete_fraction=1.0",
            "workload.read_fraction=0.0",
            "workload.exist_fraction=0.0",
            "workload.list_fraction=0.0",
            "workload.seek_fraction=0.0",
            "workload.value_size=100",
            "workload.num=30000",
            "workload.ops=10000",
            "workload.timed_load=false",
        ],
    ),
    (
        "the last pages of many small superblocks were on their way at once",
        &[
            "engine.name=plus2",
            "flash.blocks_per_die=4096",
            "flash.pages_per_block=8",
            "host.depth=256",
            "controller.contexts=256",
            "hash.write_buffer_bytes=16777216",
            "hash.gc_low_superblocks=64",
            "hash.gc_stall_superblocks=32",
            "workload.name=fillseq",
            "workload.value_size=3600",
            "workload.ops=10000",
        ],
    ),
    (
        "values whose chunks had come with them were refused as unfinished",
        &[
            "engine.name=plus",
            "flash.blocks_per_die=512",
            "flash.pages_per_block=64",
            "host.depth=64",
            "host.queues=64",
            "host.transfer=byte-express",
            "controller.contexts=64",
            "hash.write_buffer_bytes=8192",
            "workload.name=fillseq",
            "workload.value_size=30",
            "workload.ops=3000",
        ],
    ),
];

#[test]
fn what_random_configurations_found_stays_mended() {
    for (what, settings) in FOUND {
        let document = kvvirt(TINY.iter().chain(*settings));
        let report = run(&document, &|_, _| ()).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(report.ops.errors, 0, "{what}: {:?}", report.notes);
    }
}

/// Recovery reads the drive in several passes if the cache's DRAM, in which it keeps its bits, is too small
/// for one.
#[test]
fn a_drive_with_hardly_any_dram_comes_up_again() {
    for engine in SCHEMES.iter().map(|scheme| scheme.name) {
        let folder = tempfile::tempdir().unwrap();
        let drive = [
            "flash.blocks_per_die=64",
            "flash.pages_per_block=4",
            "hash.grain_bytes=512",
            "hash.write_buffer_bytes=65536",
            "hash.dram_bytes=4",
            "media.kind=file",
            "workload.name=fillseq",
            "workload.value_size=400",
            "workload.ops=200",
        ];
        let mut document = kvvirt(TINY.iter().chain(&drive));
        document.set(&format!("engine.name={engine}")).unwrap();
        document.set(&format!("media.path={}", folder.path().join("drive.img").display())).unwrap();
        for _ in 0..2 {
            let report = run(&document, &|_, _| ()).unwrap_or_else(|error| panic!("{engine}: {error}"));
            assert_eq!(report.ops.errors, 0, "{engine}");
        }
    }
}
