//! Every counter that a report can have counts something: runs on small drives, and for the other counters
//! the tests that see them.

use std::collections::BTreeSet;
use std::fs;

use kvdrive_config::{Document, default_profile, faults};
use kvdrive_declare::Sections;
use kvdrive_run::declared::declared;
use kvdrive_run::run_faulty;

/// 2 x 24 blocks of 8 pages.
const TINY: &[&str] = &[
    "flash.channels=2",
    "flash.dies_per_channel=1",
    "flash.blocks_per_die=24",
    "flash.pages_per_block=8",
    "flash.spare_blocks=0",
];

/// Stores that replace each other, and some retrieves.
const MIXED: &[&str] = &[
    "workload.name=mixed",
    "workload.num=300",
    "workload.ops=3000",
    "workload.read_fraction=0.2",
    "workload.value_size=700",
];

/// Tables and values with hardly any room.
const LSM: &[&str] =
    &["lsm.memtable_entries=32", "gc.segment_pages=2", "buffer.entries=8", "packing.policy=all"];

/// Groups and a log with hardly any room.
const ANYKEY: &[&str] = &[
    "anykey.memtable_entries=32",
    "anykey.group_pages=4",
    "anykey.levels=3",
    "anykey.log_percent=2",
    "gc.segment_pages=2",
    "buffer.entries=8",
    "packing.policy=all",
];

const LEVELED: &[&str] =
    &["lsm.compaction=leveled", "gc.free_segments_low=6", "workload.value_size=1700", "host.depth=16"];

const HASHLOG: &[&str] = &["hashlog.segment_bytes=64KiB", "workload.num=500", "workload.value_size=900"];

const LSMTREE: &[&str] = &[
    "lsmtree.write_buffer_size=16KiB",
    "lsmtree.bloom_bits=10",
    "lsmtree.row_cache_bytes=8KiB",
    "lsmtree.block_cache_bytes=16KiB",
    "lsmtree.level0_slowdown_writes_trigger=4",
    "lsmtree.level0_stop_writes_trigger=5",
];

/// Ends with tables on level 0.
const FEW: &[&str] = &["workload.name=fillrandom", "workload.ops=101", "lsmtree.write_buffer_size=16KiB"];

const BTREE: &[&str] = &["btree.buffer_bytes=64KiB", "btree.checkpoint_bytes=64KiB"];

/// Nodes are split during the run, not by loading.
const GROWING: &[&str] = &["workload.name=fillrandom", "workload.num=3000", "workload.value_size=700"];

const SAKER: &[&str] = &[
    "saker.enabled=true",
    "host.threads=4",
    "saker.containers=shared",
    "saker.cache_bytes=20KiB",
    "workload.value_size=200",
    "workload.sync_every=100",
];

/// Collection of every kind, with memory for few sections.
const HASH: &[&str] = &[
    "flash.channels=2",
    "flash.dies_per_channel=2",
    "flash.blocks_per_die=48",
    "hash.write_buffer_bytes=262144",
    "hash.dram_bytes=65536",
    "hash.gc_workers=4",
    "workload.name=plus-a",
    "workload.key_size=8",
    "workload.value_size=1000",
    "workload.num=14000",
    "workload.overwrites=14000",
    "workload.ops=4000",
];

/// Hash tables whose sections have invalid records.
const SMALL_VALUES: &[&str] =
    &["hash.dram_bytes=1MiB", "workload.value_size=200", "workload.num=50000", "workload.overwrites=70000"];

/// The cache of a language model that has room for little.
const CACHE: &[&str] = &["workload.name=kvcache", "workload.ops=100", "workload.cache_blocks=20"];

/// Values that no engine over pages takes as a whole, and that replace each other.
const DIVIDED: &[&str] =
    &["flash.blocks_per_die=64", "workload.num=4", "workload.ops=40", "workload.value_size=200000"];

/// A store on the host.
const ON_HOST: &[&str] = &["host.threads=4"];

const REFUSED: &str = "[[rule]]\nfault = \"status\"\nopcode = [\"batch\"]\nnth = 3\nstatus = \"81h\"\n";

const FAILING: &str = "[[rule]]\nfault = \"read-error\"\nprobability = 0.02\n\
                       [[rule]]\nfault = \"program-error\"\nprobability = 0.05\n\
                       [[rule]]\nfault = \"erase-error\"\nprobability = 0.2\n";

/// Engines with settings of runs in model time on each engine's profile, and rules for their faults.
const RUNS: &[(&str, &[&[&str]], &str)] = &[
    ("lsm", &[TINY, MIXED, LSM, LEVELED], ""),
    ("lsm", &[TINY, MIXED, LSM, &["workload.delete_fraction=0.1", "lsm.rings=[3, 3, 4, 64]"]], ""),
    (
        "lsm",
        &[TINY, MIXED, LSM, &["workload.num=100", "flash.spare_blocks=8", "flash.read_retries=2"]],
        FAILING,
    ),
    ("lsm", &[&["workload.name=w-m", "workload.ops=2000", "packing.dlt_entries=2", "buffer.entries=16"]], ""),
    ("lsm", &[TINY, MIXED, LSM, &["lsm.dram_bytes=80KiB", "lsm.pinned_levels=1"]], ""),
    ("anykey", &[TINY, MIXED, ANYKEY], ""),
    ("anykey", &[TINY, MIXED, ANYKEY, &["anykey.write_back=true"]], ""),
    ("anykey", &[TINY, MIXED, ANYKEY, &["workload.num=60", "workload.value_size=9000"]], ""),
    ("hashlog", &[TINY, MIXED, HASHLOG], ""),
    ("hashlog", &[TINY, MIXED, DIVIDED], ""),
    ("lsmtree", &[TINY, MIXED, LSMTREE, &["host.depth=4"]], ""),
    ("btree", &[TINY, MIXED, BTREE], ""),
    ("block", &[TINY, MIXED, HASHLOG, ON_HOST, &["host.store=hashlog"]], ""),
    ("block", &[TINY, MIXED, LSMTREE, ON_HOST, &["host.store=lsmtree"]], ""),
    ("block", &[TINY, MIXED, FEW, ON_HOST, &["host.store=lsmtree"]], ""),
    ("block", &[TINY, MIXED, BTREE, ON_HOST, &["host.store=btree"]], ""),
    ("block", &[MIXED, GROWING, ON_HOST, &["host.store=btree"]], ""),
    ("lsm", &[MIXED, SAKER, &["saker.batch=8", "saker.container_bytes=1200", "saker.admit_bytes=150"]], ""),
    ("lsm", &[MIXED, SAKER, &["saker.batch=4"]], REFUSED),
    ("lsm", &[MIXED, SAKER, &["workload.value_size=5000"]], ""),
    ("lsm", &[MIXED, SAKER, &["saker.containers=own", "saker.batch=0"]], ""),
    ("lsm", &[CACHE], ""),
    ("lsm", &[CACHE, &["workload.cache_admission=second-use"]], ""),
    // Requests of the trace's first moment, and of the next one.
    ("lsm", &[CACHE, &["workload.ops=1000", "workload.cache_shrink=65536"]], ""),
    ("original", &[HASH], ""),
    ("plus", &[HASH, SMALL_VALUES], ""),
    ("hash8", &[HASH], ""),
    ("plus2", &[HASH, &["flash.spare_blocks=50"]], FAILING),
];

/// Counters of rare events: for each of them a test that sees it, and the text in that test.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("engine.anykey_scars", "drive/engines/tests/all/anykey.rs", "scars > 0"),
    ("engine.buffer_forced_out", "drive/engines/tests/all/page_buffer.rs", "statistics().forced_out, 1"),
    ("engine.buffer_waits", "drive/engines/tests/all/page_buffer.rs", "statistics().waits > 0"),
    ("engine.forced_jumps", "drive/engines/tests/all/value_log.rs", "statistics.forced_jumps"),
    ("engine.ftl_lost_pages", "drive/flash/tests/all/ftl.rs", "statistics().lost_pages, 1"),
    ("engine.gc_outrun_moves", "drive/engines/tests/all/hash.rs", "\"gc_outrun_moves\") > 0"),
    ("engine.index_failures", "drive/engines/tests/all/lsm_index_faults.rs", "counters().failures, 1"),
    (
        "engine.interrupted_reservations",
        "drive/engines/tests/all/value_log.rs",
        "statistics().interrupted, 1",
    ),
    ("engine.lost_segments", "drive/device/tests/all/lsm_drive.rs", "detail(\"lost_segments\"), lost"),
    ("engine.miscounted_bytes", "study/probe/src/crash.rs", "live bytes are miscounted"),
    ("saker.closed_by_age", "host/saker/tests/all/counted.rs", "count(Count::ClosedByAge), 1"),
    ("saker.closed_by_drop", "host/saker/tests/all/counted.rs", "count(Count::ClosedByDrop)"),
    ("saker.commits", "host/saker/tests/all/transactions.rs", "count(Count::Commits), all.len()"),
    ("saker.conflicts", "host/saker/tests/all/transactions.rs", "count(Count::Conflicts) > 0"),
    ("saker.pending_bytes", "face/kvdrive/tests/all/saker.rs", "pending_bytes() > 0"),
    ("saker.unsynced", "host/saker/tests/all/counted.rs", "count(Count::Unsynced)"),
];

/// Names of the counters that are above 0 at the end of these runs.
fn moved() -> BTreeSet<String> {
    let mut moved = BTreeSet::new();
    for (engine, settings, rules) in RUNS {
        let mut document = Document::profile(default_profile(engine)).unwrap();
        document.set(&format!("engine.name={engine}")).unwrap();
        for setting in settings.iter().copied().flatten() {
            document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
        }
        let geometry = document.config().unwrap().drive().flash.geometry();
        let rules: Vec<_> = faults::rules("rules", rules, &geometry).unwrap();
        let report =
            run_faulty(&document, &rules, &|_, _| {}).unwrap_or_else(|error| panic!("{settings:?}: {error}"));
        let loading = report.precondition.as_ref().map(|loading| &loading.counts);
        for (section, counts) in loading.into_iter().chain([&report.counts]).flat_map(Sections::iter) {
            let counted = counts.iter().filter(|count| count.value > 0);
            moved.extend(counted.map(|count| format!("{section}.{}", count.counter.name)));
        }
    }
    moved
}

#[test]
fn every_counter_counts_something() {
    let moved = moved();
    let all: BTreeSet<_> =
        declared().unwrap().iter().map(|known| format!("{}.{}", known.section, known.counter.name)).collect();
    let still: Vec<_> = all.difference(&moved).map(String::as_str).collect();
    let elsewhere: Vec<_> = ELSEWHERE.iter().map(|(name, ..)| *name).collect();
    assert_eq!(still, elsewhere, "what none of these runs moves");
    for (name, test, says) in ELSEWHERE {
        let path = format!("{}/../../{test}", env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(text.contains(says), "{name}: {test} does not say {says} any more");
    }
}
