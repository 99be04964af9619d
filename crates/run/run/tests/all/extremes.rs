//! Every number at the limits of its rule, alone and combined with others: the run succeeds or returns one
//! line that names a key. It never panics.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kvdrive_declare::Rule;
use kvdrive_device::engines::ENGINES;
use kvdrive_run::run;
use kvdrive_run::wall::{WallOptions, run_wall};
use kvdrive_sim::Rng;
use kvdrive_sim::wall::Pace;
use kvdrive_store::{STORES, store_row};

use kvdrive_config::{Config, Document, rules};

/// Numbers that only decide how much memory or time a run takes.
const AMOUNTS: &[&str] = &[
    "workload.ops",
    "workload.num",
    "workload.overwrites",
    "workload.seek_nexts",
    // How often a drive is written over first.
    "workload.precondition",
    // The series has a row for each interval: with intervals of 1 ns, one for each nanosecond of the run.
    "run.interval_ns",
];

/// A small drive, so that a run of it is short.
const SMALL: &[&str] = &[
    "flash.channels=2",
    "flash.dies_per_channel=2",
    "flash.blocks_per_die=64",
    "flash.pages_per_block=16",
    "gc.segment_pages=16",
    "workload.name=mixed",
    "workload.num=60",
    "workload.ops=300",
    "workload.delete_fraction=0.1",
    "workload.list_fraction=0.1",
    "workload.seek_fraction=0.1",
    "workload.value_size=3000",
];

pub fn small(engine: &str) -> Document {
    let mut document = Document::profile("cosmos-plus").expect("the profile exists");
    for setting in SMALL {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    document.set(&format!("engine.name={engine}")).expect("an engine");
    document
}

/// Values at and near the ends of a rule. Large upper ends would only take memory.
pub fn extremes(rule: &Rule) -> Vec<String> {
    match rule {
        Rule::Integer(low, high) => [*low, low + 1, low + 2, low + 7, low + 30, low + 1000, *high]
            .iter()
            .filter(|n| *n <= high && **n < 5000)
            .map(i64::to_string)
            .collect(),
        Rule::PowerOfTwo(low, high) => [*low, 2 * low, *high].iter().map(i64::to_string).collect(),
        Rule::Multiple(of, low, high) => {
            [*low, low + of, low + 2 * of, *high].iter().map(i64::to_string).collect()
        }
        Rule::OneOf(list) => list.iter().map(i64::to_string).collect(),
        Rule::Number(low, high) => {
            [*low, (low + high) / 2.0, *high].iter().map(|x| format!("{x:?}")).collect()
        }
        Rule::Positive => ["1e-300", "0.5", "1e300"].map(str::to_owned).into(),
        Rule::Word(list) => list.iter().map(|word| (*word).to_owned()).collect(),
        Rule::Row(names) => names().into_iter().map(str::to_owned).collect(),
        Rule::Flag => ["true", "false"].map(str::to_owned).into(),
        Rule::Integers(length, low, _) => {
            [*low, low + 40].iter().map(|n| format!("{:?}", vec![*n; *length])).collect()
        }
        Rule::Parsed(..) => vec!["[]".to_owned()],
        Rule::Text | Rule::Name(_) => Vec::new(),
    }
}

fn settings() -> Vec<String> {
    let rows = rules().filter(|(key, _)| !AMOUNTS.contains(key) && *key != "run.clock");
    rows.flat_map(|(key, rule)| extremes(rule).into_iter().map(move |value| format!("{key}={value}")))
        .collect()
}

/// Runs with `settings`; returns the message of a panic, if there was one.
fn panic_of(engine: &str, settings: &[String]) -> Option<String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut document = small(engine);
        for setting in settings {
            if document.set(setting).is_err() {
                return Ok(());
            }
        }
        kvdrive_run::run(&document, &|_, _| {}).map(|_| ())
    }));
    match outcome {
        Ok(Ok(())) => None,
        Ok(Err(error)) => {
            let line = format!("{error:#}");
            let names_a_key = rules().any(|(key, _)| line.contains(key));
            (line.lines().count() != 1 || !names_a_key).then_some(line)
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            Some(text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default())
        }
    }
}

#[test]
fn every_number_at_its_ends() {
    let panics: Vec<String> = settings()
        .into_iter()
        .filter_map(|setting| {
            let engine = match setting.split_once('.') {
                Some(("hash", _)) => "plus",
                Some(("anykey", _)) => "anykey",
                Some(("store", _)) => STORES[0].name,
                Some((section, _)) if let Some(row) = store_row(section) => row.name,
                _ => "lsm",
            };
            let panic = panic_of(engine, std::slice::from_ref(&setting))?;
            Some(format!("{setting}: {panic}"))
        })
        .collect();
    assert!(panics.is_empty(), "{}", panics.join("\n"));
}

#[test]
fn numbers_at_their_ends_together() {
    let all = settings();
    let mut rng = Rng::stream(1, "extremes");
    for _ in 0..400 {
        let chosen: Vec<String> =
            (0..2 + rng.below(5)).map(|_| all[rng.below(all.len() as u64) as usize].clone()).collect();
        let engine = ENGINES[rng.below(ENGINES.len() as u64) as usize].name;
        if let Some(panic) = panic_of(engine, &chosen) {
            panic!("{engine}, {chosen:?}: {panic}");
        }
    }
}

/// A key without a field would be accepted and have no effect.
#[test]
fn every_key_alters_the_typed_configuration() {
    let usual = |dispatch: &str| {
        let mut document = Document::profile("cosmos-plus").expect("the profile exists");
        document.set(&format!("controller.dispatch={dispatch}")).expect("a way of dispatching");
        document
    };
    let alters = |document: &Document, setting: &str| {
        let values = |document: &Document| Config::of_values(&document.values());
        let mut altered = document.clone();
        // A value that conflicts with others was read, too.
        altered.set(setting).is_ok() && values(&altered) != values(document)
    };
    let dispatches = ["context", "round-robin"].map(usual);
    for (key, rule) in rules() {
        let mut tried = extremes(rule);
        match rule {
            Rule::Parsed(..) => tried.push("[\"read:data_gc\"]".to_owned()),
            Rule::Text | Rule::Name(_) => tried.push("other".to_owned()),
            _ => {}
        }
        let settings = tried.iter().map(|value| format!("{key}={value}"));
        let is_read =
            settings.into_iter().any(|set| dispatches.iter().any(|document| alters(document, &set)));
        assert!(is_read, "{key}");
    }
}

/// A run of which every store would fail says the limit instead, in both clocks.
#[test]
fn values_that_the_drive_does_not_take_are_refused_with_its_limit() {
    /// The configuration itself refuses values that have no room on flash.
    const ROOM: &[&str] = &["workload.num=1", "workload.ops=1"];
    let layout = "lsm.layout=published";
    let cases = [
        ("lsm", layout, "16777215", "16777215; engine lsm on this drive takes values to 16777214"),
        ("plus", "workload.num=1", "20000000", "20000000; engine plus on this drive takes values to "),
        ("btree", "workload.num=1", "20000000", "20000000; engine btree on this drive takes values to "),
    ];
    for (engine, setting, value_size, says) in cases {
        let mut document = small(engine);
        let size = format!("workload.value_size={value_size}");
        for setting in [ROOM, &[setting, &*size]].concat() {
            document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
        }
        let own_thread = |own_thread| WallOptions { pace: Pace::Off, record: None, own_thread };
        let answers = [
            run(&document, &|_, _| {}),
            run_wall(&document, &own_thread(false), &|_, _| {}),
            run_wall(&document, &own_thread(true), &|_, _| {}),
        ];
        for answer in answers {
            let error = answer.map(drop).expect_err("no value fits").to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
