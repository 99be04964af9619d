//! Images read from end to end, as `kvdrive check` and `kvdrive dump` do.

use std::path::{Path, PathBuf};

use kvdrive_flash::power::machine_file::faults::{self, Call, Fault};
use kvdrive_lab::config::Document;
use kvdrive_lab::image::{PairState, read_image};
use kvdrive_lab::run::run;

/// A full disk keeps nobody from reading what is on it.
#[test]
fn an_image_that_takes_no_write_is_read_all_the_same_and_not_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("media.path={}", folder.path().join("image").display());
    let mut document = Document::profile("cosmos-plus").unwrap();
    for set in ["media.kind=file", &path, "workload.name=fillseq", "workload.ops=300"] {
        document.set(set).unwrap();
    }
    run(&document, &|_, _| {}).unwrap();
    let full = Fault { call: Call::Write, which: 0..u64::MAX, error: std::io::ErrorKind::StorageFull };
    faults::arm(Some(full.clone()));
    let mut heard = 0;
    let tally = read_image(&document, false, &mut |_, found| {
        heard += u64::from(matches!(found, PairState::Whole(_)));
    })
    .expect("it is read");
    assert_eq!((tally.whole, heard), (300, 300));
    let failure = tally.write_failure.as_ref().expect("it is said").to_string();
    assert!(tally.is_whole() && failure.contains("image") && failure.contains("read-only"), "{failure}");
    faults::arm(Some(full));
    let error = read_image(&document, true, &mut |_, _| {}).expect_err("nothing could be deleted");
    faults::arm(None);
    assert!(error.to_string().contains("read-only"), "{error}");
    assert_eq!(read_image(&document, false, &mut |_, _| {}).unwrap().write_failure, None);
}

/// Pairs of a drive whose pages are damaged.
const PAIRS: u64 = 3000;

/// A small drive of `engine` with an image in `folder`, its pairs stored: how it is described, its files and what
/// they hold.
fn filled(engine: &str, sets: &[&str], folder: &Path) -> (Document, Vec<(PathBuf, Vec<u8>)>) {
    let row = kvdrive_device::engines::engine_row(engine).unwrap();
    let mut document = Document::profile(row.profile).unwrap();
    let (engine, path) =
        (format!("engine.name={engine}"), format!("media.path={}", folder.join("image").display()));
    let small = [&engine, &path, "media.kind=file", "flash.channels=2", "flash.dies_per_channel=2"];
    let load = ["workload.name=fillseq", "workload.ops=3000", "workload.key_size=4"];
    for set in small.iter().chain(&load).chain(sets) {
        document.set(set).unwrap_or_else(|error| panic!("{set}: {error}"));
    }
    run(&document, &|_, _| {}).unwrap();
    let paths = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    (document, paths.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect())
}

/// A bit of one page after the other: what lies on other pages is found, and what is not found is said.
#[test]
fn a_damaged_page_costs_what_lies_on_it_and_the_rest_is_listed() {
    let lsm = |layout| {
        let geometry = ["flash.blocks_per_die=64", "flash.pages_per_block=16", "gc.segment_pages=16"];
        // Values take few pages, so that many of those that are written are the index's.
        let index = [layout, "lsm.memtable_entries=300", "packing.policy=all", "workload.value_size=8"];
        ("lsm", [&geometry[..], &index].concat())
    };
    let hash = |engine| {
        let sets = ["flash.blocks_per_die=48", "hash.write_buffer_bytes=262144", "hash.dram_bytes=65536"];
        (engine, [&sets[..], &["hash.gc_workers=4", "workload.value_size=200"]].concat())
    };
    let drives =
        [lsm("lsm.layout=sound"), lsm("lsm.layout=published"), hash("original"), hash("plus"), hash("plus2")];
    for (engine, sets) in drives {
        let folder = tempfile::tempdir().unwrap();
        let (document, files) = filled(engine, &sets, folder.path());
        let image = files.iter().find(|(path, _)| path.ends_with("image")).unwrap();
        let is_written = |at: &usize| image.1[*at..].iter().take(4096).any(|byte| *byte != 0);
        let written: Vec<usize> = (4096..image.1.len()).step_by(4096).filter(is_written).collect();
        let mut with_gaps = 0;
        for at in written.iter().step_by(written.len().div_ceil(12)) {
            files.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
            let mut bytes = image.1.clone();
            let byte = (*at..*at + 4096).find(|byte| bytes[*byte] != 0).unwrap();
            bytes[byte] ^= 0x10;
            std::fs::write(&image.0, &bytes).unwrap();
            let tally = read_image(&document, false, &mut |_, _| {}).unwrap();
            let is_all_listed = tally.whole + tally.damaged == PAIRS;
            assert!(tally.gaps > 0 || is_all_listed, "{engine} {sets:?}, byte {byte}: {tally:?}");
            assert!(
                tally.whole > 0,
                "{engine} {sets:?}, byte {byte}: nothing is found behind a gap, {tally:?}"
            );
            with_gaps += u64::from(tally.gaps > 0);
        }
        assert!(with_gaps > 0, "{engine} {sets:?}: no page of those that were damaged lists keys");
    }
}
