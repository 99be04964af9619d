//! Sweeps: rows in order, flat lines, and resumption.

use kvdrive_config::Document;
use kvdrive_declare::Counters;
use kvdrive_experiments::sweep::{Finished, MEASURED, Point, Row, Shard, SweepFile, merge, rows};
use kvdrive_flash::{NandCounters, Purpose};
use kvdrive_run::plan::Plan;
use kvdrive_run::report::Report;
use serde_json::Value;

const SWEEP: &str = "set = [\"workload.ops=100\", \"workload.name=w-a\"]\n[grid]\n\"host.transfer\" = [\"prp\", \"piggyback\"]\nworkload.value_size = [4, \"1KiB\"]\n";

fn sweep() -> Vec<Row> {
    rows("s.toml", SWEEP).unwrap()
}

fn line(row: &Row) -> String {
    let mut report =
        Report { revision: "r".into(), notes: vec!["a".into(), "b".into()], ..Report::default() };
    let flash = NandCounters::default();
    flash.programs[Purpose::Value.index()].set(3);
    report.counts.set("nand", flash.counts());
    row.line(&report).unwrap()
}

#[test]
fn rows_are_every_combination_the_last_key_fastest() {
    let rows = sweep();
    let settings: Vec<String> =
        rows.iter().map(|row| Value::from(row.settings.clone()).to_string()).collect();
    assert_eq!(settings[1], "{\"host.transfer\":\"prp\",\"workload.value_size\":\"1KiB\"}");
    assert_eq!(settings.len(), 4);
    let config = rows[3].document.config().unwrap();
    assert_eq!(
        (config.host.transfer.method.as_str(), config.workload.value_size, config.workload.ops),
        ("piggyback", 1024, 100)
    );
}

#[test]
fn lines_are_flat_objects() {
    let rows = sweep();
    let text = line(&rows[0]);
    assert_eq!(text.matches('\n').count(), 1);
    let object: Value = serde_json::from_str(&text).unwrap();
    let object = object.as_object().unwrap();
    assert!(object.values().all(|value| !value.is_object() && !value.is_array()));
    assert_eq!(object["host.transfer"], "prp");
    assert_eq!(object["nand.programs.value"], 3);
    assert_eq!(object["notes"], "a; b");
    assert!(!object.contains_key("config.host.transfer"));
}

#[test]
fn finished_rows_are_not_run_again() {
    let rows = sweep();
    let whole = line(&rows[2]) + &line(&rows[0]);
    let finished = Finished::read(whole.as_bytes(), &rows).unwrap();
    assert_eq!((finished.whole_bytes, finished.cut_off), (whole.len(), false));
    assert_eq!(finished.config_hashes.len(), 2);
    assert!(finished.config_hashes.contains(&rows[2].config_hash) && finished.revisions.contains("r"));
    // If the last row is cut off anywhere, even within a character, it counts as not run.
    let cut = whole.clone() + "{\"host.transfer\":\"pröp";
    for length in whole.len() + 1..=cut.len() {
        let finished = Finished::read(&cut.as_bytes()[..length], &rows).unwrap();
        assert_eq!(
            (finished.whole_bytes, finished.cut_off, finished.config_hashes.len()),
            (whole.len(), true, 2)
        );
    }
    assert_eq!(Finished::read(b"", &rows).unwrap(), Finished::default());
}

#[test]
fn files_of_other_sweeps_are_refused() {
    let rows = sweep();
    let other = kvdrive_experiments::sweep::rows("o.toml", &SWEEP.replace("100", "200")).unwrap();
    let wrong = |text: String| Finished::read(text.as_bytes(), &rows).unwrap_err().to_string();
    assert_eq!(
        wrong(line(&rows[0]) + &line(&other[0])),
        "line 2: no row of this sweep: written by r, whose configuration differs; use another file"
    );
    assert_eq!(wrong(line(&rows[0]) + &line(&rows[0])), "line 2: a row that was there before");
    assert_eq!(wrong("{}\n".into()), "line 1: no config_hash; not written by a sweep");
    assert!(wrong("not json\n".into()).starts_with("line 1: "));
}

#[test]
fn a_file_takes_the_lines_of_one_sweep_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let rows = sweep();
    let mut first = SweepFile::open(&path, &rows).unwrap();
    first.add(&line(&rows[1])).unwrap();
    let error = SweepFile::open(&path, &rows).unwrap_err().to_string();
    assert_eq!(error, format!("{}: another sweep is writing to it", path.display()));
    drop(first);
    let again = SweepFile::open(&path, &rows).unwrap();
    assert!(again.finished().config_hashes.contains(&rows[1].config_hash));
    let said = format!("{}: has rows of r; this is s", path.display());
    assert_eq!((again.remarks("r"), again.remarks("s")), (vec![], vec![said]));
}

#[test]
fn a_point_is_its_row_in_another_process_too() {
    for text in [
        SWEEP,
        "set = [\"workload.preset=plus\", \"workload.name=ycsb-a\", \"workload.distribution=zipfian\"]\n[grid]\nrun.seed = [7]\n\"workload.zipf_theta\" = [0.5, 0.99]\nworkload.num = [100]\n",
        "profile = \"kvvirt\"\n[grid]\n\"hash.dram_accounting\" = [\"total\"]\n\"hash.max_probes\" = [8, 16]\n",
    ] {
        for row in rows("s.toml", text).unwrap_or_else(|error| panic!("{text}: {error}")) {
            let sent = serde_json::to_string(&row.point()).unwrap();
            let there = serde_json::from_str::<Point>(&sent).unwrap().row().unwrap();
            assert_eq!(there.document.config().unwrap(), row.document.config().unwrap());
            assert_eq!(line(&there), line(&row));
        }
    }
    let other = Point { config_hash: "0".repeat(16), ..sweep()[0].point() };
    let error = other.row().unwrap_err().to_string();
    assert!(
        error.contains("is the program the same?") && error.contains("\"host.transfer\":\"prp\""),
        "{error}"
    );
}

#[test]
fn shards_of_any_division_merge_to_the_same_bytes() {
    let mut wall_s = 0.0;
    let mut measured = |row: &Row| {
        wall_s += 1.0;
        let mut report = Report { revision: "r".into(), ..Report::default() };
        report.time.wall_s = wall_s;
        row.line(&report).unwrap()
    };
    let whole: String = sweep().iter().rev().map(&mut measured).collect();
    let expected = merge(&[("whole".into(), whole.into_bytes())], &sweep()).unwrap();
    assert_eq!(expected.lines().count(), 4);
    assert!(!expected.contains(MEASURED));
    for of in 1..=6 {
        let shard = |number: usize| -> Shard { format!("{number}/{of}").parse().unwrap() };
        let files: Vec<(String, Vec<u8>)> = (1..=of)
            .map(|number| {
                let lines: String = shard(number).of(sweep()).iter().map(&mut measured).collect();
                (number.to_string(), lines.into_bytes())
            })
            .rev()
            .collect();
        assert_eq!(merge(&files, &sweep()).unwrap(), expected);
    }
    assert_eq!(Finished::read(expected.as_bytes(), &sweep()).unwrap().config_hashes.len(), 4);
    let file = "2/8".parse::<Shard>().unwrap().file("a/grid.toml".as_ref());
    assert_eq!(file, std::path::Path::new("a/grid.2-of-8.jsonl"));
    for wrong in ["0/4", "5/4", "4", "1/0", "a/b"] {
        assert!(wrong.parse::<Shard>().unwrap_err().contains("I from 1 to N"), "{wrong}");
    }
}

#[test]
fn what_cannot_be_merged_is_told_in_one_line() {
    let rows = sweep();
    let all: Vec<String> = rows.iter().map(line).collect();
    let wrong = |files: &[String]| {
        let files: Vec<_> = files.iter().map(|text| ("f".to_owned(), text.clone().into_bytes())).collect();
        merge(&files, &rows).unwrap_err().to_string()
    };
    let missing = wrong(&[all[0].clone(), all[2].clone() + &all[3]]);
    assert_eq!(
        missing,
        "1 of 4 rows are missing, the first is {\"host.transfer\":\"prp\",\"workload.value_size\":\"1KiB\"}"
    );
    let other = all[0].replace("\"revision\":\"r\"", "\"revision\":\"s\"");
    assert_ne!(other, all[0]);
    assert!(wrong(&[all.concat(), other]).contains("has other numbers than in f"));
    assert!(wrong(&[all.concat() + "{"]).contains("that call has not ended"));
    let twice =
        merge(&[("a".into(), all.concat().into_bytes()), ("b".into(), all[1].clone().into_bytes())], &rows);
    assert_eq!(twice.unwrap().lines().count(), 4);
}

#[test]
fn a_wrong_sweep_is_one_line() {
    let wrong = |text: &str| {
        let error = rows("s.toml", text).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    assert_eq!(wrong("[gird]\n"), "s.toml:1: gird: unknown key; a sweep has profile, set and [grid]");
    for (text, begin) in [
        ("\ngird = 1\n", "s.toml:2: gird: "),
        ("[grid]\n\"host.depth\" = [2]\n\"host.dept\" = [1]\n", "s.toml:3: host.dept: "),
        ("[grid]\nhost.transfer = []\n", "s.toml:2: host.transfer: "),
        ("set = [\n  \"host.depth=0\",\n]\n[grid]\n\"run.seed\" = [1]\n", "s.toml:2: "),
        ("profile = 3\n", "s.toml:1: profile: "),
        // A comment above may have the same text.
        ("# \"host.depth=0\" is refused\n[grid]\n\"host.depth\" = [0]\n", "s.toml:3: host.depth: "),
        (
            "# not \"run.seed=x\"\nset = [\n\"run.seed=x\"]\n[grid]\nhost.depth = [1]\n",
            "s.toml:3: run.seed: ",
        ),
        ("[grid.host]\n# depth = [0]\ndepth = [0]\n", "s.toml:3: host.depth: "),
        ("set = []\n[grid]\n", "s.toml:2: [grid]: "),
        // The same key in both: the wrong value is named.
        ("set = [\n\"run.seed=x\"]\n[grid]\nrun.seed = [1]\n", "s.toml:2: run.seed: "),
        ("set = [\n\"run.seed=1\"]\n[grid]\nrun.seed = [\"x\"]\n", "s.toml:4: run.seed: "),
        ("\nset = [\"run.seed=1\", \"host.depth=0\"]\n[grid]\n\"run.seed\" = [1]\n", "s.toml:2: "),
    ] {
        assert!(wrong(text).starts_with(begin), "{}", wrong(text));
    }
    assert!(wrong("").contains("[grid]: missing or empty"));
    assert!(wrong("[grid]\n\"host.transfer\" = []\n").contains("at least one value"));
    assert!(wrong("[grid]\n\"host.transfer\" = \"prp\"\n").contains("expected [VALUE, ...]"));
    assert!(
        wrong("[grid]\n\"host.transport\" = [\"prp\"]\n")
            .contains("unknown key; did you mean host.transfer?")
    );
    assert!(wrong("[grid]\n\"host.depth\" = [1, 1]\n").contains("two combinations are the same run"));
    let ignored = wrong("[grid]\n\"workload.distribution\" = [\"uniform\", \"zipfian\"]\n");
    assert!(ignored.contains("workload.distribution: workload.name=w-m does not look at it"), "{ignored}");
    let ignored = wrong("set = [\"engine.name=plus\"]\n[grid]\n\"packing.policy\" = [\"all\"]\n");
    assert!(ignored.contains("packing.policy: engine.name=plus does not look at it"), "{ignored}");
    let ignored = wrong("set = [\"nand.enabled=false\"]\n[grid]\n\"flash.sense_ns\" = [1, 2]\n");
    assert!(ignored.contains("flash.sense_ns: nand.enabled=false does not look at it"), "{ignored}");
    let ignored = wrong("[grid]\n\"hash.max_probes\" = [1, 2]\n");
    assert!(ignored.contains("hash.max_probes: engine.name=lsm does not look at it"), "{ignored}");
    let some = "[grid]\n\"workload.name\" = [\"w-a\", \"w-d\"]\nworkload.value_size = [4]\n";
    assert!(wrong(some).contains("workload.value_size: workload.name=w-d does not look at it"));
    let ignored = wrong("set = [\"host.alpha=2\"]\n[grid]\n\"host.transfer\" = [\"prp\", \"sgl\"]\n");
    assert!(ignored.contains("set \"host.alpha=2\": host.transfer=prp does not look at it"), "{ignored}");
    // One row that reads the setting suffices.
    rows("s.toml", "set = [\"host.alpha=2\"]\n[grid]\n\"host.transfer\" = [\"prp\", \"adaptive\"]\n")
        .unwrap();
    let both = wrong("set = [\"run.seed=2\", \"run.seed=3\"]\n[grid]\n\"host.depth\" = [2, 3]\n");
    assert!(both.contains("set \"run.seed=3\": set \"run.seed=2\" sets run.seed too"), "{both}");
    assert!(wrong("[grid\n").starts_with("s.toml:1: "));
    assert!(wrong("profile = \"x\"\n[grid]\n\"host.depth\" = [1]\n").contains("no such profile"));
    let many = (1..=1500).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    assert!(
        wrong(&format!("[grid]\n\"host.depth\" = [{many}]\n\"run.seed\" = [{many}]\n"))
            .contains("at most 1000000")
    );
}

#[test]
fn a_sweep_begins_with_the_drive_of_its_engine() {
    let profile = |text: &str| rows("s.toml", text).unwrap()[0].document.profile_name();
    let grid = "[grid]\n\"host.depth\" = [1]\n";
    assert_eq!(profile(grid), "cosmos-plus");
    assert_eq!(profile(&format!("set = [\"engine.name=plus\"]\n{grid}")), "kvvirt");
    let named = format!("profile = \"kvvirt\"\nset = [\"engine.name=lsm\"]\n{grid}");
    assert_eq!(profile(&named), "kvvirt");
    // The error comes before any row is run.
    let impossible = format!("set = [\"power.protected_bytes=1MiB\"]\n{grid}");
    let error = rows("s.toml", &impossible).unwrap_err().to_string();
    assert!(error.contains("set power.protected_bytes to at least "), "{error}");
}

/// Name of the folder in which relative paths begin.
fn folder_name() -> String {
    let folder = std::env::current_dir().unwrap();
    folder.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn rows_that_would_share_an_image_file_are_refused() {
    let wrong = |text: &str| rows("s.toml", text).unwrap_err().to_string();
    let on_file = "set = [\"media.kind=file\", \"media.path=a\"]\n[grid]\n";
    let error = wrong(&format!("{on_file}workload.ops = [4, 8]\n"));
    assert_eq!(error, "s.toml:1: media.kind: 2 drives on one image file, a; take ram or tags");
    assert_eq!(rows("s.toml", &format!("{on_file}workload.ops = [4]\n")).unwrap().len(), 1);
    assert_eq!(rows("s.toml", &format!("{on_file}media.path = [\"a\", \"b\"]\n")).unwrap().len(), 2);
    let spellings = wrong(&format!("{on_file}media.path = [\"a\", \"../{}/a\"]\n", folder_name()));
    assert_eq!(spellings, error);
}

#[test]
fn many_runs_are_in_model_time_and_on_drives_of_their_own() {
    let refused = |sets: &[&str]| {
        let mut document = Document::profile("cosmos-plus").unwrap();
        sets.iter().for_each(|set| document.set(set).unwrap());
        Plan::apart(vec![document.clone(), document]).check().unwrap_err().to_string()
    };
    let clock = "run.clock: \"wall\" is for kvdrive run alone";
    assert_eq!(refused(&["run.clock=wall", "workload.ops=1"]), clock);
    // The medium is never created: the path is that of a folder.
    let image = refused(&["media.kind=file", "media.path=/", "workload.ops=1"]);
    assert_eq!(image, "media.kind: 2 drives on one image file, /; take ram or tags");
    let wall = SWEEP.replace("workload.ops=100", "run.clock=wall");
    let line = 1 + wall.lines().position(|line| line.contains("run.clock")).unwrap();
    assert_eq!(rows("s.toml", &wall).unwrap_err().to_string(), format!("s.toml:{line}: {clock}"));
}
