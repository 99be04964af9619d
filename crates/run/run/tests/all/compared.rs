//! A comparison names each row by what distinguishes it, and compares it with one row.

use kvdrive_config::Document;
use kvdrive_run::report::{Report, compare};
use kvdrive_run::run;

fn report(profile: &str, settings: &[&str]) -> Report {
    let mut document = Document::profile(profile).unwrap();
    for setting in ["workload.ops=200", "workload.num=200"].iter().chain(settings) {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    run(&document, &|_, _| {}).unwrap()
}

/// The rows of the first block of the table, without its heading.
fn labels(text: &str) -> Vec<String> {
    let rows = text.lines().skip_while(|line| !line.starts_with("---")).skip(1);
    let rows = rows.skip_while(|line| !line.starts_with("---")).skip(1);
    let rows = rows.take_while(|line| !line.starts_with("---"));
    rows.map(|row| row.split("  ").take_while(|cell| !cell.contains("/s")).collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn rows_of_several_profiles_are_told_apart_by_what_was_set() {
    let depths = ["host.depth=1", "host.depth=4"];
    let of = |profile| depths.map(|depth| report(profile, &["workload.name=ycsb-a", depth]));
    let text = compare(&[of("cosmos-plus"), of("saker-mid")].concat());
    let mut known = labels(&text);
    assert_eq!(known.len(), 4, "{text}");
    known.sort();
    known.dedup();
    assert_eq!(known.len(), 4, "{text}");
    assert!(text.contains("depth"), "{text}");
}

#[test]
fn keys_of_one_name_have_their_sections_and_rows_of_one_base_stand_together() {
    let of = |workload, cores| {
        report(
            "cosmos-plus",
            &[&format!("workload.name={workload}"), &format!("host.cores={cores}"), "controller.contexts=2"],
        )
    };
    let mut reports = vec![of("ycsb-a", 1), of("ycsb-c", 1), of("ycsb-a", 2), of("ycsb-c", 2)];
    reports.push(report(
        "cosmos-plus",
        &["workload.name=ycsb-a", "controller.cores=2", "controller.contexts=2"],
    ));
    let text = compare(&reports);
    assert!(text.contains("host.cores") && text.contains("controller.cores"), "{text}");
    let bases = text.lines().filter(|line| line.starts_with("against ")).count();
    assert_eq!(bases, 2, "{text}");
}
