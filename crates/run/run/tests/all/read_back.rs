//! Reports that are read back from their JSON, with the counters of every kind of drive.

use kvdrive_config::{Document, default_profile};
use kvdrive_declare::Counter;
use kvdrive_device::engines::{BLOCK, ENGINES};
use kvdrive_run::declared::declared;
use kvdrive_run::report::Report;
use kvdrive_run::run;
use kvdrive_store::STORES;

/// A report of a drive on which something happens in every section that its kind has.
fn report(profile: &str, settings: &[String]) -> Report {
    let small = ["flash.blocks_per_die=64", "workload.num=300", "workload.ops=300", "run.interval_ns=5ms"];
    let mut document = Document::profile(profile).unwrap();
    for setting in small.into_iter().chain(settings.iter().map(String::as_str)) {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    run(&document, &|_, _| {}).unwrap()
}

/// The report is the same again, in memory and in JSON, except for how its document came to its values.
fn assert_is_read_back(report: Report) {
    let json = serde_json::to_string(&report).unwrap();
    let read: Report = serde_json::from_str(&json).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), json);
    assert_eq!(read, Report { set: Vec::new(), ..report });
}

#[test]
fn a_report_of_every_engine_is_read_back_as_it_was() {
    for engine in ENGINES {
        let settings = [format!("engine.name={}", engine.name), "workload.name=ycsb-a".to_owned()];
        assert_is_read_back(report(default_profile(engine.name), &settings));
    }
}

#[test]
fn a_report_of_every_store_on_the_host_and_of_saker_is_read_back_as_it_was() {
    for store in STORES {
        let name = |key: &str| format!("{key}={}", store.name);
        let ycsb = || "workload.name=ycsb-a".to_owned();
        let host = [format!("engine.name={}", BLOCK.name), name("host.store"), ycsb()];
        let on_host = report(default_profile(BLOCK.name), &host);
        for section in ["store", "store_memory"] {
            assert!(!on_host.counts.section(section).is_empty(), "{section}");
        }
        assert_is_read_back(on_host);
        let saker = [name("engine.name"), "saker.enabled=true".to_owned(), ycsb()];
        let with_saker = report(default_profile(store.name), &saker);
        assert!(!with_saker.counts.section("saker").is_empty());
        assert_is_read_back(with_saker);
    }
}

#[test]
fn a_report_with_a_counter_that_is_not_declared_is_refused_with_its_name() {
    let mut json = serde_json::to_value(report("cosmos-plus", &[])).unwrap();
    let read = |json: &serde_json::Value| {
        serde_json::from_value::<Report>(json.clone()).map_err(|error| error.to_string())
    };
    read(&json).unwrap();
    for (section, name, value, problem) in [
        ("nand", "programms", 3.into(), "nand: there is no counter programms"),
        ("nand", "erases", 3.into(), "nand: erases: 3 has no labels"),
        ("sakers", "requests", 3.into(), "sakers: there is no counter requests"),
    ] {
        let sound = json.clone();
        json[section][name] = value;
        assert_eq!(read(&json).unwrap_err(), problem);
        json = sound;
    }
    json["engines"] = "lsm".into();
    assert_eq!(read(&json).unwrap_err(), "engines: no section of counters");
}

/// A report does not say which of two declarations of one name a counter has.
#[test]
fn counters_of_one_name_are_declared_alike() {
    let all = declared().unwrap();
    let name = |place: usize| format!("{}.{}", all[place].section, all[place].counter.name);
    let alike = |counter: &Counter| {
        (counter.unit, counter.kind, counter.form, counter.by.map(|by| (by.label, by.places, by.is_sparse)))
    };
    for place in 0..all.len() {
        let first = (0..place).find(|first| name(*first) == name(place)).unwrap_or(place);
        assert_eq!(alike(all[first].counter), alike(all[place].counter), "{}", name(place));
    }
}
