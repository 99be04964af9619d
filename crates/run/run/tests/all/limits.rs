//! The limit of a run as reported, compared with the effect of moving that limit.

use kvdrive_config::Document;
use kvdrive_run::report::Report;
use kvdrive_run::run;

fn report(profile: &str, settings: &[&str]) -> Report {
    let mut document = Document::profile(profile).expect("the profile exists");
    let common = ["workload.num=5000", "workload.ops=2000", "workload.timed_load=false"];
    for setting in common.iter().chain(settings) {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    run(&document, &|_, _| {}).expect("the run succeeds")
}

fn limit(report: &Report) -> &str {
    &report.limited_by.as_ref().expect("a run in model time has one").key
}

#[test]
fn the_key_that_is_named_is_the_one_that_helps() {
    let reads = |more: &[&str]| report("cosmos-plus", &[&["workload.name=readrandom"], more].concat());
    let alone = reads(&["host.depth=1"]);
    assert_eq!(limit(&alone), "host.depth");
    let deep = reads(&["host.depth=16"]);
    assert_eq!(limit(&deep), "controller.contexts");
    let says = &deep.limited_by.as_ref().unwrap().because;
    assert!(says.contains("on flash reads"), "{says}");
    let deeper = reads(&["host.depth=64"]);
    assert!(deeper.throughput_ops_per_s < 1.01 * deep.throughput_ops_per_s, "depth alone does not help");
    let wide = reads(&["host.depth=16", "controller.contexts=16"]);
    assert!(wide.throughput_ops_per_s > 2.0 * deep.throughput_ops_per_s, "contexts do");
    assert_ne!(limit(&wide), "controller.contexts");
    let paced = reads(&["host.depth=16", "workload.rate_per_s=100"]);
    assert_eq!(limit(&paced), "workload.rate_per_s");
}

/// With SAKER a setting of 0 is one thread.
#[test]
fn threads_that_limit_are_told_as_many_as_there_are() {
    let report = report("cosmos-plus", &["workload.name=fillrandom", "saker.enabled=true"]);
    assert_eq!((limit(&report), &report.limited_by.as_ref().unwrap().value), ("host.threads", &1.into()));
}

/// Clients that are always busy are without due times: not the rate limits, but how many of them there are.
#[test]
fn a_rate_that_the_drive_does_not_keep_up_with_is_not_its_limit() {
    let at = |rate: &str, depth: &str| {
        report("cosmos-plus", &["workload.name=readrandom", &format!("workload.rate_per_s={rate}"), depth])
    };
    let kept = at("100", "host.depth=2");
    assert_eq!(limit(&kept), "workload.rate_per_s");
    let behind = at("1M/s", "host.depth=1");
    assert_eq!(limit(&behind), "host.depth");
    assert!(behind.notes.iter().any(|note| note.contains("did not keep up")), "{:?}", behind.notes);
    assert_eq!(limit(&at("1M/s", "host.depth=16")), "controller.contexts");
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("reads.csv");
    let lines: String = (0..2000).map(|n| format!("{n}us,get,key{n},\n")).collect();
    std::fs::write(&trace, lines).unwrap();
    let trace = format!("workload.trace={}", trace.display());
    let of = |arrivals: &str| report("cosmos-plus", &["workload.name=trace", &trace, arrivals]);
    let behind = of("workload.arrivals=trace");
    assert_eq!(limit(&behind), "host.depth");
    assert!(behind.notes.iter().any(|note| note.contains("did not keep up")), "{:?}", behind.notes);
    assert!(!of("workload.arrivals=fixed").notes.iter().any(|note| note.contains("did not keep up")));
}

/// The host's core has nothing to do while a merge keeps the only context, and the context is idle else.
#[test]
fn resources_that_limit_in_turn_are_told_with_the_key_that_helps() {
    let of = |more: &[&str]| {
        report(
            "cosmos-plus",
            &[&["workload.name=fillrandom", "workload.num=20000", "workload.ops=20000"], more].concat(),
        )
    };
    let deep = of(&["host.depth=16"]);
    assert_eq!(limit(&deep), "host.cores");
    let says = &deep.limited_by.as_ref().unwrap().because;
    assert!(says.contains("in turn with it, contexts are occupied"), "{says}");
    let deeper = of(&["host.depth=64"]);
    assert!(deeper.throughput_ops_per_s < 1.01 * deep.throughput_ops_per_s, "depth alone does not help");
    let wide = of(&["host.depth=16", "host.cores=4"]);
    assert!(wide.throughput_ops_per_s > 1.2 * deep.throughput_ops_per_s, "cores do");
}

#[test]
fn every_kind_of_resource_can_be_the_limit() {
    let of = |profile: &str, more: &[&str]| {
        let report = report(profile, &[&["workload.name=ycsb-a", "host.depth=64"], more].concat());
        limit(&report).to_owned()
    };
    assert_eq!(of("saker-mid", &["controller.io_threads=2"]), "controller.io_threads");
    assert_eq!(of("saker-mid", &["controller.deal_ns=100us"]), "controller.deal_ns");
    assert_eq!(
        of("cosmos-plus", &["controller.decode_store_ns=1ms", "controller.contexts=16"]),
        "controller.cores"
    );
    assert_eq!(of("cosmos-plus", &["host.submit_ns=1ms"]), "host.cores");
}

/// It is occupied all the time, and its core a part of that: commands are fetched by the link.
#[test]
fn the_dispatcher_is_told_as_one() {
    let settings = ["workload.name=fillrandom", "workload.value_size=16", "engine.name=hashlog"];
    let report = report("saker-mid", &[&settings[..], &["host.depth=64"]].concat());
    let limit = report.limited_by.as_ref().expect("a run in model time has a limit");
    assert_eq!(limit.key, "controller.deal_ns");
    assert!(limit.because.starts_with("the dispatcher is occupied "), "{}", limit.because);
}

#[test]
fn shares_of_what_time_went_to_add_up_and_the_busiest_part_is_busier_than_the_mean() {
    let report = report("nvmevirt-970pro", &["workload.name=ycsb-a", "host.depth=8"]);
    for (name, of) in report.occupied.iter() {
        let all: f64 = of.spent.iter().map(|(_, share)| share).sum();
        assert!((all - 1.0).abs() < 1e-9, "{name}: {all}");
        assert!(
            of.occupied_fraction > 0.0 && of.occupied_fraction <= 1.0,
            "{name}: {}",
            of.occupied_fraction
        );
    }
    for name in ["die", "channel"] {
        let resource = report.resources.get(name).unwrap();
        let busiest = resource.busiest_fraction.expect("there are several");
        assert!(busiest > resource.busy_fraction && busiest <= 1.0, "{name}: {busiest}");
    }
    let text = report.to_string();
    assert!(text.contains("limited by ") && text.contains("contexts ("), "{text}");
    let again: Report = serde_json::from_value(serde_json::to_value(&report).unwrap()).unwrap();
    assert_eq!((again.occupied, again.limited_by), (report.occupied, report.limited_by));
}

/// `byte-express` sends values that do not fit its queue by `prp`, and the report says how many.
#[test]
fn values_too_long_for_the_queue_are_told() {
    let told = |queue_entries: u32| {
        let settings = [
            "workload.name=fillrandom",
            "workload.value_size=8000",
            "host.transfer=byte-express",
            &format!("host.queue_entries={queue_entries}"),
        ];
        report("cosmos-plus", &settings).notes.iter().find(|note| note.contains("went by prp")).cloned()
    };
    assert_eq!(told(256), None, "8000 B are 125 chunks");
    let note = told(64).expect("125 chunks do not fit 64 entries");
    assert!(note.starts_with("16.38 MB of values went by prp: in the 64 entries"), "{note}");
}
