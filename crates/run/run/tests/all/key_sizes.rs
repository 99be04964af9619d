//! Keys of more than 16 B, as sizes: every engine, way of transfer and clock takes them, and every byte of them is
//! counted where it moves.

use kvdrive_config::{Document, default_profile};
use kvdrive_device::engines::{BLOCK, ENGINES};
use kvdrive_link::transfer::METHODS;
use kvdrive_run::report::Report;
use kvdrive_run::run;
use kvdrive_run::wall::{WallOptions, run_wall};
use kvdrive_sim::wall::Pace;
use kvdrive_store::STORES;

fn report(profile: &str, settings: &[String]) -> Report {
    let small = [
        "flash.blocks_per_die=64",
        "workload.num=400",
        "workload.ops=600",
        "workload.verify=values",
        // As many as there are scans under way at once.
        "lsm.iterators=1000",
    ];
    let mut document = Document::profile(profile).unwrap();
    for setting in small.into_iter().chain(settings.iter().map(String::as_str)) {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    let report = run(&document, &|_, _| {}).unwrap_or_else(|error| panic!("{settings:?}: {error}"));
    assert_eq!(report.ops.errors, 0, "{settings:?}");
    report
}

fn key_bytes(report: &Report) -> u64 {
    report.counts.of("traffic.payload_bytes.key")
}

#[test]
fn every_engine_takes_keys_of_every_size() {
    for engine in ENGINES {
        for key_size in [17, 40, 128, 255] {
            for workload in ["ycsb-a", "ycsb-e"] {
                let settings = [
                    format!("engine.name={}", engine.name),
                    format!("workload.name={workload}"),
                    format!("workload.key_size={key_size}"),
                    "lsm.layout=sound".to_owned(),
                ];
                let settings = if engine.name == "lsm" { &settings[..] } else { &settings[..3] };
                report(default_profile(engine.name), settings);
            }
        }
    }
}

#[test]
fn a_long_key_crosses_once_for_every_command_that_names_it() {
    for method in METHODS {
        let settings = |key_size: u32| {
            [
                format!("host.transfer={}", method.name),
                format!("workload.key_size={key_size}"),
                "workload.name=fillrandom".to_owned(),
                "workload.value_size=60".to_owned(),
                "lsm.layout=sound".to_owned(),
            ]
        };
        let [short, long] = [16, 40].map(|key_size| report("cosmos-plus", &settings(key_size)));
        assert_eq!(key_bytes(&short), 0, "{}", method.name);
        let asked = if method.by_window { long.ops.store / 10 } else { 0 };
        let times = key_bytes(&long) / 40;
        assert_eq!(key_bytes(&long) % 40, 0);
        // A store by window may have to ask for a window first, by a command with its key.
        assert!((long.ops.store..=long.ops.store + asked).contains(&times), "{}: {times}", method.name);
    }
}

#[test]
fn a_batch_carries_long_keys_in_its_value() {
    let settings = |key_size: u32| {
        [
            "saker.enabled=true".to_owned(),
            "host.transfer=sgl".to_owned(),
            "controller.dma_granularity_bytes=1".to_owned(),
            format!("workload.key_size={key_size}"),
            "workload.name=fillrandom".to_owned(),
            // SAKER stores no pair twice in one container.
            "workload.num=1000000".to_owned(),
            "workload.ops=6000".to_owned(),
            "workload.value_size=16".to_owned(),
            "lsm.layout=sound".to_owned(),
        ]
    };
    let [short, long] = [16, 116].map(|key_size| report("cosmos-plus", &settings(key_size)));
    assert_eq!(key_bytes(&long), 0);
    let to_drive = |report: &Report| report.counts.of("traffic.payload_bytes.to_drive");
    let more = (to_drive(&long) - to_drive(&short)) as f64 / long.ops.store as f64;
    assert!((95.0..105.0).contains(&more), "{more} B a pair");
}

#[test]
fn stores_on_the_host_take_long_keys() {
    for store in STORES {
        let settings = [
            format!("engine.name={}", BLOCK.name),
            format!("host.store={}", store.name),
            "workload.name=ycsb-e".to_owned(),
            "workload.key_size=200".to_owned(),
        ];
        report(default_profile(BLOCK.name), &settings);
    }
}

#[test]
fn longer_keys_take_more_flash_in_an_index_and_beside_values() {
    for (engine, counter) in [("lsm", "index"), ("plus", "value")] {
        let settings = |key_size: u32| {
            vec![
                format!("engine.name={engine}"),
                format!("workload.key_size={key_size}"),
                "workload.name=fillrandom".to_owned(),
                "workload.num=1000000".to_owned(),
                "workload.ops=20000".to_owned(),
                "workload.value_size=100".to_owned(),
            ]
        };
        let programs = |key_size: u32| {
            let mut settings = settings(key_size);
            if engine == "lsm" {
                settings.push("lsm.layout=sound".to_owned());
            }
            report(default_profile(engine), &settings).counts.of("nand.programs")
        };
        let (short, long) = (programs(16), programs(200));
        assert!(long > short + short / 4, "{engine} ({counter}): {short} pages with 16 B, {long} with 200 B");
    }
}

#[test]
fn threads_take_long_keys_in_wall_time() {
    for transfer in ["adaptive", "prp", "byte-express"] {
        let mut document = Document::profile("cosmos-plus").unwrap();
        for set in [
            "run.clock=wall",
            &format!("host.transfer={transfer}"),
            "host.threads=2",
            "workload.name=ycsb-a",
            "workload.num=400",
            "workload.ops=600",
            "workload.key_size=99",
            "lsm.layout=sound",
        ] {
            document.set(set).unwrap_or_else(|error| panic!("{set}: {error}"));
        }
        let options = WallOptions { pace: Pace::Off, record: None, own_thread: false };
        let report = run_wall(&document, &options, &|_, _| ()).unwrap();
        assert_eq!(report.ops.errors, 0);
        assert!(key_bytes(&report) >= 99 * 600, "{transfer}");
    }
}
