//! Results are remembered from one call of the program to the next.

use std::path::Path;
use std::process::{Command, Output};

fn kvdrive(caches: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvdrive"));
    let output = command.env("XDG_CACHE_HOME", caches).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_second_call_prints_what_the_first_did() {
    let caches = tempfile::tempdir().unwrap();
    let ask = |more: &[&str]| {
        let compare =
            ["compare", "--workload", "w-m", "--ops", "500", "--transfer", "prp,piggyback", "--json", "-"];
        kvdrive(caches.path(), &[&compare[..], more].concat())
    };
    let (first, second) = (ask(&[]), ask(&[]));
    assert!(text(&first.stderr).contains("2 runs: "), "{}", text(&first.stderr));
    assert_eq!(text(&second.stderr), "2 runs, remembered\n");
    assert_eq!(text(&first.stdout), text(&second.stdout));
    // Without the cache the runs are computed, which only their measured time shows.
    let computed = ask(&["--no-cache"]);
    assert!(text(&computed.stderr).contains("2 runs: "), "{}", text(&computed.stderr));
    let [first, computed] = [first, computed].map(|output| {
        let mut reports: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        for report in reports.as_array_mut().unwrap() {
            report["time"]["wall_s"] = 0.into();
        }
        reports
    });
    assert_eq!(first, computed);
    assert_eq!(
        text(&ask(&["--seed", "1,2"]).stderr).lines().next(),
        Some("2 runs and 2 remembered: less than 10 s")
    );
}

#[test]
fn the_cache_says_where_it_is_and_is_cleared() {
    let caches = tempfile::tempdir().unwrap();
    let cache = |more: &[&str]| text(&kvdrive(caches.path(), &[&["cache"], more].concat()).stdout);
    let folder = caches.path().join("kvdrive").join("results");
    assert_eq!(cache(&[]), format!("{}\n0 results, 0.0 MiB of at most 256.0 MiB\n", folder.display()));
    kvdrive(caches.path(), &["compare", "--workload", "w-m", "--ops", "100", "--packing", "all,block"]);
    assert!(cache(&["--limit", "1MiB"]).contains("2 results, 0.0 MiB of at most 1.0 MiB\n"));
    let mut of_nothing = Command::new(env!("CARGO_BIN_EXE_kvdrive"));
    let refused = of_nothing.args(["cache", "--limit", "0"]).env("XDG_CACHE_HOME", caches.path()).output();
    let refused = text(&refused.unwrap().stderr);
    assert!(refused.starts_with("kvdrive: --limit: 0; allowed: a size above 0"), "{refused}");
    assert!(cache(&[]).contains("2 results, 0.0 MiB of at most 1.0 MiB\n"), "nothing was removed");
    assert!(cache(&["--clear"]).starts_with("removed "));
    assert!(cache(&[]).contains("0 results, 0.0 MiB of at most 1.0 MiB\n"));
}
