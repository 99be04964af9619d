//! Images on files: which pairs are whole and which are damaged (`kvdrive check`, `kvdrive dump`), and what becomes of a
//! drive whose files cannot be written or are gone. No damage is hidden.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::serve::{serve_by, store_and_retrieve};

fn kvdrive(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvdrive")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A drive of 64 MiB: its image fits into memory.
const SMALL: [&str; 10] = [
    "--set",
    "flash.channels=2",
    "--set",
    "flash.dies_per_channel=2",
    "--set",
    "flash.blocks_per_die=64",
    "--set",
    "flash.pages_per_block=16",
    "--set",
    "gc.segment_pages=16",
];

/// An image with 3000 values of 200 B.
fn image(folder: &Path) -> PathBuf {
    let path = folder.join("image");
    let set = format!("media.path={}", path.display());
    let run = ["run", "--workload", "fillseq", "--value-size", "200", "--ops", "3k", "--media", "file"];
    let output = kvdrive(&[&run[..], &SMALL, &["--set", &set]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    path
}

fn dump(image: &Path) -> (BTreeMap<String, serde_json::Value>, Option<i32>) {
    let output = kvdrive(&[&["dump", image.to_str().unwrap()], &SMALL[..]].concat());
    let lines = text(&output.stdout);
    let pairs = lines.lines().map(|line| {
        let pair: serde_json::Value = serde_json::from_str(line).unwrap();
        (pair["key"].as_str().unwrap().to_owned(), pair)
    });
    (pairs.collect(), output.status.code())
}

#[test]
fn an_image_is_checked_dumped_and_a_damaged_one_never_looks_whole() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path());
    let name = image.to_str().unwrap();
    let check = |more: &[&str]| kvdrive(&[&["check", name], &SMALL[..], more].concat());
    let whole = check(&[]);
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    assert!(text(&whole.stdout).contains("3 000 pairs whole, 600 000 bytes; 0 damaged, 0 lost"));
    let (pairs, status) = dump(&image);
    assert_eq!((pairs.len(), status), (3000, Some(0)));
    assert!(pairs.values().all(|pair| pair["bytes"] == 200), "{pairs:?}");
    // One byte of one value, at its place in the file.
    let value = pairs["00000007"]["value"].as_str().unwrap();
    let digits = value.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    let value: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
    let mut bytes = std::fs::read(&image).unwrap();
    let at = bytes.windows(200).position(|window| window == value).expect("values lie in the image");
    bytes[at + 100] ^= 1;
    std::fs::write(&image, &bytes).unwrap();
    let damaged = check(&[]);
    assert_eq!(damaged.status.code(), Some(1));
    assert!(text(&damaged.stdout).contains("00000007  damaged: "), "{}", text(&damaged.stdout));
    let (pairs, status) = dump(&image);
    let count = pairs.values().filter(|pair| pair.get("damaged").is_some()).count();
    assert!(status == Some(1) && pairs.len() == 3000 && count > 0, "{status:?} {count}");
    let repaired = check(&["--repair"]);
    assert_eq!(repaired.status.code(), Some(1), "what was lost is not whole");
    let said = text(&repaired.stdout);
    assert_eq!(said.matches("  damaged: ").count(), count, "each one is named");
    assert!(said.contains(&format!("; {count} damaged pairs deleted")), "{said}");
    let after = check(&[]);
    assert!(after.status.success(), "{}", text(&after.stdout));
    assert!(text(&after.stdout).contains(&(kvdrive_text::number_of(3000 - count as u64, "pair") + " whole")));
}

/// A run that stores nothing writes no file.
#[test]
fn a_read_only_image_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("media.path={}", image(folder.path()).display());
    let read = [
        "run",
        "--verify-only",
        "--workload",
        "fillseq",
        "--value-size",
        "200",
        "--ops",
        "3k",
        "--media",
        "file",
    ];
    for clock in ["virtual", "wall"] {
        let sets = ["--set", &path, "--set", "media.read_only=true", "--clock", clock];
        let output = kvdrive(&[&read[..], &SMALL, &sets].concat());
        assert!(output.status.success(), "{clock}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains("VERIFIED"), "{}", text(&output.stdout));
    }
}

/// With few changes before and after, so that the journal had no reason to look.
#[test]
fn a_served_drive_whose_file_was_removed_says_so_at_its_end() {
    for removed in ["image", "image.protected-0"] {
        let folder = tempfile::tempdir().unwrap();
        let path = format!("media.path={}", folder.path().join("image").display());
        let mut program = Command::new(env!("CARGO_BIN_EXE_kvdrive"));
        program.stderr(Stdio::piped());
        let mut served = serve_by(program, &[&["--media", "file", "--set", &path][..], &SMALL].concat());
        store_and_retrieve(&served);
        std::fs::remove_file(folder.path().join(removed)).unwrap();
        let ended = Command::new("kill").arg(served.program.id().to_string()).status().unwrap();
        assert!(ended.success());
        let (mut report, mut said) = (String::new(), String::new());
        served.output.read_to_string(&mut report).unwrap();
        served.program.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(served.program.wait().unwrap().code(), Some(1), "{said}");
        let line = format!("/{removed}: cannot be written: the file was removed");
        assert!(said.contains(&line) && said.lines().count() == 1, "{said}");
        assert!(report.contains("  store        1\n"), "{report}");
    }
}

#[test]
fn what_is_no_image_is_refused_in_a_line_and_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let none = folder.path().join("none");
    let random = folder.path().join("random");
    std::fs::write(&random, [7; 10_000]).unwrap();
    for (path, line) in [
        (&none, "there is no such image"),
        (&random, "random"),
        (&folder.path().to_owned(), "a folder; an image is a file"),
    ] {
        for command in ["check", "dump"] {
            let output = kvdrive(&[command, path.to_str().unwrap()]);
            let error = text(&output.stderr);
            assert!(!output.status.success() && error.contains(line), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
    assert!(!none.exists());
}
