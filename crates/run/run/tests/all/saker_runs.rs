//! Runs with SAKER in front of the driver: counted traffic, every engine, and settings that are refused.

use kvdrive_config::faults;
use kvdrive_config::{Document, default_profile};
use kvdrive_device::engines::ENGINES;
use kvdrive_flash::faults::Rule;
use kvdrive_link::transfer::METHODS;
use kvdrive_run as run;
use kvdrive_run::report::Report;

fn document(profile: &str, settings: &[&str]) -> Document {
    let mut document = Document::profile(profile).expect("the profile exists");
    for setting in ["saker.enabled=true"].iter().chain(settings) {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    document
}

fn report(profile: &str, settings: &[&str]) -> Report {
    let report = run::run(&document(profile, settings), &|_, _| {})
        .unwrap_or_else(|error| panic!("{settings:?}: {error:#}"));
    assert_eq!(report.ops.errors, 0, "{settings:?}: {:?}", report.notes);
    report
}

fn count(report: &Report, name: &str) -> u64 {
    report.counts.section("saker").of(name)
}

/// One thread stores 64 000 pairs with 8 B keys in sequence; returns payload bytes per store.
fn payload(transfer: &str, value_bytes: u32, sync_every: u32) -> (f64, Report) {
    let settings = [
        "host.threads=1",
        "workload.name=fillseq",
        "workload.ops=64000",
        "workload.key_size=8",
        // Chunks of a batch need 34 entries of the queue, which its commands share.
        "saker.in_flight=16",
        &format!("host.transfer={transfer}"),
        &format!("workload.value_size={value_bytes}"),
        &format!("workload.sync_every={sync_every}"),
    ];
    let report = report("saker-mid", &settings);
    (report.counts.of("traffic.payload_bytes") as f64 / 64_000.0, report)
}

/// A batch of 4184 B by page DMA has as many pairs as go into 4 KiB: 64, 51, 15, 3; none is larger than that.
#[test]
fn payload_of_a_store_with_saker_is_counted() {
    for (value_bytes, sync_every, published) in [
        (16, 0, 65.375),
        (64, 0, 82.045625),
        (256, 0, 278.955125),
        (1024, 0, 1394.71025),
        (4096, 0, 4184.0),
        (16, 10, 418.4),
    ] {
        let (payload_bytes, report) = payload("prp", value_bytes, sync_every);
        assert_eq!(payload_bytes, published, "{value_bytes} B");
        assert_eq!(count(&report, "requests") + count(&report, "bypassed"), 64_000);
        assert_eq!(count(&report, "bypassed"), if value_bytes == 4096 { 64_000 } else { 0 });
        let closed = ["full_by_count", "full_by_bytes", "closed_by_sync", "closed_by_order"];
        let closed: u64 = closed.iter().map(|name| count(&report, name)).sum();
        assert_eq!(closed, count(&report, "batches"), "{value_bytes} B");
        assert!(count(&report, "most_pending_bytes") <= (32 + 1) * 4096);
    }
    for (transfer, published) in [("sgl", 33.625), ("byte-express", 34.375), ("piggyback", 52.25)] {
        assert_eq!(payload(transfer, 16, 0).0, published, "{transfer}");
    }
}

/// Three threads with common keys and small batches, with every engine: every value returned is one that was
/// stored, and the cache is hit.
#[test]
fn values_come_back_from_every_engine_with_saker() {
    let mut closed_by_order = 0;
    for (row, method) in ENGINES.iter().zip(METHODS.iter().cycle()) {
        let settings = [
            &format!("engine.name={}", row.name),
            &format!("host.transfer={}", method.name),
            "host.threads=3",
            "saker.batch=5",
            "saker.cache_bytes=5000",
            "workload.name=mixed",
            "workload.num=300",
            "workload.ops=3000",
            "workload.read_fraction=0.4",
            "workload.exist_fraction=0.05",
            "workload.delete_fraction=0.1",
            "workload.seek_fraction=0.02",
            "workload.seek_nexts=2",
            "workload.list_fraction=0.02",
            "workload.value_size=90",
            "workload.sync_every=100",
            "workload.verify=values",
        ];
        // Listing keys goes through the directory of the whole drive.
        let small = ["flash.channels=2", "flash.dies_per_channel=2", "flash.blocks_per_die=48"];
        let is_large = row.sections.contains(&"hash");
        let settings = [&settings[..], if is_large { &small } else { &[] }].concat();
        let seen = report(default_profile(row.name), &settings);
        let verified = seen.verified.as_ref().expect("it was asked for");
        assert!(verified.is_whole() && verified.checked > 500, "{}: {verified:?}", row.name);
        closed_by_order += count(&seen, "closed_by_order");
        for name in ["cache_hits", "pending_hits", "held", "evicted"] {
            assert!(count(&seen, name) > 0, "{}: {name} {:?}", row.name, seen.counts);
        }
        assert!(count(&seen, "most_pending_bytes") <= 3 * 33 * 4096);
        assert_eq!(count(&seen, "unsynced"), 0);
        // The same configuration, the same report.
        let mut again = report(default_profile(row.name), &settings);
        again.time.wall_s = seen.time.wall_s;
        assert_eq!(again, seen, "{}", row.name);
    }
    assert!(closed_by_order > 0, "threads write each other's open containers");
}

/// Every engine with every transfer method, each with SAKER in front and without it, one operation under way and
/// several: every value returned is one that was stored. Batches of a window fill it, so a batch waits there
/// for the answer to an earlier one, which the same task takes.
#[test]
fn every_engine_and_method_runs_with_saker_and_without_it_at_every_depth() {
    let under_way = [
        ["saker.enabled=true", "saker.batch=16", "saker.in_flight=32"],
        ["saker.enabled=true", "saker.batch=16", "saker.in_flight=1"],
        ["saker.enabled=false", "host.threads=0", "host.depth=8"],
        ["saker.enabled=false", "host.threads=0", "host.depth=1"],
    ];
    for (engine, method) in
        ENGINES.iter().flat_map(|engine| METHODS.iter().map(move |method| (engine, method)))
    {
        for under_way in under_way {
            let small = ["flash.channels=2", "flash.dies_per_channel=2", "flash.blocks_per_die=48"];
            let small = if engine.sections.contains(&"hash") { &small[..] } else { &[] };
            let name = [format!("engine.name={}", engine.name), format!("host.transfer={}", method.name)];
            let settings = [
                &name[0],
                &name[1],
                "workload.name=mixed",
                "workload.num=80",
                "workload.ops=250",
                "workload.read_fraction=0.3",
                "workload.delete_fraction=0.1",
                "workload.value_size=220",
                "workload.verify=values",
            ];
            let seen = report(default_profile(engine.name), &[&settings[..], small, &under_way].concat());
            let verified = seen.verified.as_ref().expect("it was asked for");
            assert!(verified.is_whole() && verified.checked > 20, "{name:?} {under_way:?}: {verified:?}");
            if under_way[0] == "saker.enabled=true" {
                let batches = count(&seen, "batches");
                assert!(batches >= 8, "{name:?} {under_way:?}: {batches}");
            }
        }
    }
}

#[test]
fn an_adaptive_batch_goes_when_nothing_is_under_way() {
    let with = |think_ns: &str| {
        let settings = ["saker.batch=0", "host.threads=1", "workload.name=fillseq", "workload.ops=3000"];
        report("saker-mid", &[&settings[..], &[think_ns]].concat())
    };
    let (busy, idle) = (with("host.think_ns=0"), with("host.think_ns=5us"));
    // A client that is faster than the drive fills its containers; the pairs of a slower one are sent soon.
    assert!(count(&busy, "batches") < 40, "{:?}", busy.counts);
    assert!(count(&idle, "closed_by_idle") > 1000, "{:?}", idle.counts);
    assert_eq!(count(&idle, "full_by_bytes"), 0);
}

/// If a drive refuses a batch, the sync reports it: the batch's requests were answered before.
#[test]
fn what_the_drive_refuses_of_a_batch_is_an_error_of_the_run() {
    let document = document(
        "saker-mid",
        &["host.threads=1", "saker.batch=8", "workload.name=fillseq", "workload.ops=800"],
    );
    let text = "[[rule]]\nfault = \"status\"\nopcode = [\"batch\"]\nnth = 3\nstatus = \"81h\"\n";
    let geometry = document.config().unwrap().drive().flash.geometry();
    let rules: Vec<Rule> = faults::rules("rules", text, &geometry).expect("they can be");
    let report = run::run_faulty(&document, &rules, &|_, _| {}).expect("it runs");
    assert_eq!((report.ops.errors, count(&report, "failed")), (8, 8), "{:?}", report.counts);
}

#[test]
fn what_does_not_go_with_saker_is_refused_in_a_line() {
    let line = |settings: &[&str]| document("saker-mid", settings).config().unwrap_err().to_string();
    for (settings, expected) in [
        (
            &["engine.name=block", "host.store=hashlog"][..],
            "saker.enabled: true; SAKER needs a drive of pairs, and a store on the host has a drive of blocks",
        ),
        (
            &["workload.until_full=true"],
            "saker.enabled: true; SAKER learns only at a sync that a pair did not fit; leave out workload.until_full",
        ),
        (&["host.queue_entries=32"], "saker.in_flight: 32; host.queue_entries of 32 hold 30"),
        (
            &["controller.max_value_bytes=4095"],
            "saker.container_bytes: 4096; controller.max_value_bytes is 4095",
        ),
    ] {
        assert_eq!(line(settings), expected);
    }
    let on = document("saker-mid", &[]).config().unwrap();
    let cached = document("saker-mid", &["saker.cache_bytes=1000"]).config().unwrap();
    let off = Document::profile("saker-mid").unwrap().config().unwrap();
    // The key; is it read with SAKER, with a cache in it, without it?
    for (key, looked_at) in [
        ("saker.enabled", [true, true, true]),
        ("saker.batch", [true, true, false]),
        ("saker.append_ns", [true, true, false]),
        ("saker.cache_bytes", [true, true, false]),
        ("saker.eviction", [false, true, false]),
        ("saker.cache_probe_ns", [false, true, false]),
        ("workload.sync_every", [true, true, false]),
        ("host.depth", [false, false, true]),
        ("host.threads", [true, true, true]),
    ] {
        let seen = [&on, &cached, &off].map(|config| config.ignores(key));
        assert_eq!(seen.each_ref().map(Option::is_none), looked_at, "{key}: {seen:?}");
    }
}

/// Threads without SAKER: operations of one thread share its core and its queue pair.
#[test]
fn threads_of_a_driver_have_a_core_each() {
    let of = |threads: &str| {
        let mut document = Document::profile("cosmos-plus").unwrap();
        for setting in [threads, "host.depth=8", "workload.name=fillseq", "workload.ops=2000"] {
            document.set(setting).unwrap();
        }
        run::run(&document, &|_, _| {}).unwrap()
    };
    let (shared, four) = (of("host.threads=0"), of("host.threads=4"));
    assert!(shared.resources.get("host.core").is_some() && shared.resources.get("host.core.0").is_none());
    assert!(four.resources.get("host.core.3").is_some_and(|core| core.busy_fraction > 0.0));
    assert!(four.resources.get("host.core").is_none() && four.resources.get("host.core.4").is_none());
    assert_eq!(shared.counts.section("traffic"), four.counts.section("traffic"));
}

/// The three classes differ only in their four numbers, and the dispatcher's time is the one solved from the
/// published ratio of class Low: 4 threads, each 0.36 us a pair and 32/4096 of a block that takes 60 us.
#[test]
fn saker_profiles_are_one_drive_and_their_dispatcher_takes_what_was_solved() {
    let of = |name: &str| Document::profile(name).unwrap().config().unwrap();
    let (low, mid, high) = (of("saker-low"), of("saker-mid"), of("saker-high"));
    for other in [&mid, &high] {
        assert_ne!(other.flash.timing.flat, low.flash.timing.flat);
        let mut alike = other.clone();
        alike.flash.timing.flat = low.flash.timing.flat.clone();
        assert_eq!(alike, low);
    }
    let link = low.link.clone();
    let kvdrive_device::config::Dispatch::RoundRobin { deal_ns, .. } = low.controller.dispatch else {
        panic!("a dispatcher deals")
    };
    let fetch_ns = link.sqe_fetch_ns + link.line_ns(link.read_wire_bytes(64));
    let taken_ns = fetch_ns + low.controller.costs.decode_store_ns + deal_ns;
    let mut host = Document::profile("saker-low").unwrap();
    let side = ["engine.name=block", "host.store=hashlog"];
    let pairs =
        ["workload.name=fillrandom", "workload.key_size=16", "workload.value_size=16", "workload.ops=20000"];
    side.iter().chain(&pairs).for_each(|set| host.set(set).unwrap());
    let host_ns_a_pair = 1e9 / run::run(&host, &|_, _| {}).unwrap().throughput_ops_per_s;
    let ratio = taken_ns as f64 / host_ns_a_pair;
    assert!((ratio - 5.5).abs() < 0.05, "{taken_ns} ns of the dispatcher are {ratio} of {host_ns_a_pair}");
}
