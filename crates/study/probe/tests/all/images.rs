//! Images read from end to end, as `kvdrive check` and `kvdrive dump` do.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use kvdrive_config::{Document, default_profile, setup};
use kvdrive_content::Region;
use kvdrive_device::Drive;
use kvdrive_flash::bad_blocks::BadBlocks;
use kvdrive_flash::power::machine_file::faults::{self, Call, Fault};
use kvdrive_host::Calls;
use kvdrive_link::{Link, LocalMemory};
use kvdrive_nvme::Key;
use kvdrive_probe::image::{PairState, check_image, read_image};
use kvdrive_run::run;
use kvdrive_sim::Sim;

/// A full disk does not prevent reading the image.
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
    assert_eq!((tally.whole, heard, &tally.write_failure), (300, 300, &None), "nothing was to be written");
    assert!(tally.is_whole());
    faults::arm(Some(full));
    let error = read_image(&document, true, &mut |_, _| {}).expect_err("nothing could be deleted");
    faults::arm(None);
    assert!(error.to_string().contains("read-only"), "{error}");
    assert_eq!(read_image(&document, false, &mut |_, _| {}).unwrap().write_failure, None);
}

/// A drive without flash would find no value, and delete all pairs.
#[test]
fn an_image_is_not_read_as_that_of_a_drive_without_flash() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("media.path={}", folder.path().join("image").display());
    let mut document = Document::profile("cosmos-plus").unwrap();
    for set in ["media.kind=file", &path, "workload.name=fillseq", "workload.ops=300"] {
        document.set(set).unwrap();
    }
    run(&document, &|_, _| {}).unwrap();
    let mut without_flash = document.clone();
    without_flash.set("nand.enabled=false").unwrap();
    for removes in [false, true] {
        let error = read_image(&without_flash, removes, &mut |_, _| {}).unwrap_err().to_string();
        assert!(error.starts_with("nand.enabled: false; "), "{error}");
    }
    let tally = read_image(&document, false, &mut |_, _| {}).unwrap();
    assert!((tally.whole, tally.is_whole()) == (300, true), "{tally:?}");
}

/// A page of values is read once in the order of the image, where the order of keys reads it once for each of its pairs. What
/// is found is the same, in the same order.
#[test]
fn a_check_reads_each_page_once_and_finds_what_a_list_finds() {
    let folder = tempfile::tempdir().unwrap();
    let random =
        ["workload.name=fillrandom", "workload.num=100k", "workload.value_size=300", "packing.policy=all"];
    // There is room in memory for the index, and not for the values.
    let small =
        ["buffer.entries=16", "media.cache_bytes=512KiB", "flash.blocks_per_die=64", "gc.segment_pages=16"];
    let (document, files) = filled("lsm", &[&random[..], &small].concat(), folder.path());
    let look = |in_order: bool| {
        let (mut whole, mut found) = (0, Vec::new());
        faults::arm(None);
        let mut each = |key: &Key, state: PairState<'_>| match state {
            PairState::Whole(value) => whole += u64::from(value.len() == 300),
            state => found.push(format!("{key} {state:?}")),
        };
        let tally = match in_order {
            true => check_image(&document, false, &|_| {}, &mut each),
            false => read_image(&document, false, &mut each),
        };
        (tally.unwrap(), whole, found, faults::arm(None)[0])
    };
    let ((listed, heard, none, list_reads), (checked, _, also_none, check_reads)) = (look(false), look(true));
    assert_eq!((heard, &listed), (listed.whole, &checked));
    assert!(
        listed.whole > 2900 && listed.is_whole() && none.is_empty() && also_none.is_empty(),
        "{listed:?}"
    );
    assert!(
        check_reads * 2 < list_reads,
        "{check_reads} reads in the order of the image, {list_reads} by keys"
    );

    let image = files.iter().find(|(path, _)| path.ends_with("image")).unwrap();
    std::fs::write(&image.0, with_damage(&image.1)).unwrap();
    let ((listed, _, by_list, _), (checked, _, by_check, _)) = (look(false), look(true));
    assert!(listed == checked && listed.damaged > 0, "{listed:?} {checked:?}");
    assert_eq!(by_list, by_check);
}

/// What is kept in memory hides damage from the program that keeps it, and from no other.
#[test]
fn damage_behind_a_page_that_a_drive_keeps_is_found_by_a_check() {
    let folder = tempfile::tempdir().unwrap();
    let kept = ["workload.value_size=300", "media.cache_bytes=64MiB"];
    let small = ["flash.blocks_per_die=64", "gc.segment_pages=16"];
    let (document, files) = filled("lsm", &[kept, small].concat(), folder.path());
    let image = files.iter().find(|(path, _)| path.ends_with("image")).unwrap();
    let sim = Sim::new();
    let config = document.config().unwrap();
    let served = sim.block_on(|| {
        let memory = Rc::new(LocalMemory::new());
        let link = Link::new(&sim, config.link.clone(), memory.clone());
        let drive = Drive::power_on(&sim, &link, &config.drive(), None).unwrap();
        let drivers = setup::drivers(&config, &link, &memory, &setup::cores(&config, &sim)).unwrap();
        let mut keys = Vec::new();
        drive.list_all(&mut |listed| keys.push(listed.unwrap().0));
        let mut region = Region::new();
        let mut read = || keys.iter().filter(|key| drivers[0].retrieve(**key, &mut region).is_ok()).count();
        let before = read();
        // In place: the drive has the file open.
        let file = std::fs::File::options().write(true).open(&image.0).unwrap();
        file.write_all_at(&with_damage(&std::fs::read(&image.0).unwrap()), 0).unwrap();
        [before, read()]
    });
    sim.clear();
    assert_eq!(served, [PAIRS as usize; 2], "all of it was read before it was damaged");
    let tally = read_image(&document, false, &mut |_, _| {}).unwrap();
    assert!(!tally.is_whole() && tally.damaged + tally.gaps > 0, "{tally:?}");
}

/// An image with three damaged pages.
fn with_damage(image: &[u8]) -> Vec<u8> {
    let is_written = |at: &usize| image[*at..].iter().take(4096).any(|byte| *byte != 0);
    let written: Vec<usize> = (4096..image.len()).step_by(4096).filter(is_written).collect();
    let mut bytes = image.to_vec();
    for third in 1..4 {
        let at = written[written.len() * third / 4];
        bytes[at..][..4096].iter_mut().for_each(|byte| *byte ^= 0x10);
    }
    bytes
}

/// Damaged pages of a drive, and the state of its pairs.
const PAIRS: u64 = 3000;

/// A small drive of `engine` with an image in `folder` and pairs in it: its document, its files and their
/// contents.
fn filled(engine: &str, sets: &[&str], folder: &Path) -> (Document, Vec<(PathBuf, Vec<u8>)>) {
    let row = kvdrive_device::engines::engine_row(engine).unwrap();
    let mut document = Document::profile(default_profile(row.name)).unwrap();
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

/// Flips a bit of one page after another: pairs on other pages are found, and pairs that cannot be found are
/// reported.
#[test]
fn a_damaged_page_costs_what_lies_on_it_and_the_rest_is_listed() {
    let lsm = |layout| {
        let geometry = ["flash.blocks_per_die=64", "flash.pages_per_block=16", "gc.segment_pages=16"];
        // Values take few pages, so that many of the written pages belong to the index.
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
                "{engine} {sets:?}, byte {byte}: nothing is found after a gap, {tally:?}"
            );
            with_gaps += u64::from(tally.gaps > 0);
        }
        assert!(with_gaps > 0, "{engine} {sets:?}: no page of those that were damaged lists keys");
    }
}

/// Hidden pairs are not ignored: an image with a pair that is not whole is not reported as whole.
fn never_whole_without_all_pairs(document: &Document, what: &str) -> bool {
    match read_image(document, false, &mut |_, _| {}) {
        // A drive that is refused says why.
        Err(error) => !error.to_string().is_empty(),
        Ok(tally) => {
            assert!(!tally.is_whole() || tally.whole == PAIRS, "{what}: {tally:?}");
            !tally.is_whole()
        }
    }
}

/// Small drives of every engine, with layouts and geometries that spread their pairs over many pages.
fn every_engine() -> Vec<(&'static str, Vec<&'static str>)> {
    let geometry = ["flash.blocks_per_die=64", "flash.pages_per_block=16"];
    let mut drives = Vec::new();
    for row in kvdrive_device::engines::ENGINES {
        if row.name == "lsm" {
            for layout in ["lsm.layout=sound", "lsm.layout=published"] {
                for compaction in ["lsm.compaction=tiered", "lsm.compaction=leveled"] {
                    let index = ["gc.segment_pages=16", "lsm.memtable_entries=300", "packing.policy=all"];
                    let sets =
                        [&geometry[..], &index, &[layout, compaction, "workload.value_size=8"]].concat();
                    drives.push((row.name, sets));
                }
            }
        } else if row.sections.contains(&"anykey") {
            let groups = ["anykey.memtable_entries=300", "anykey.group_pages=4", "gc.segment_pages=16"];
            let values = ["packing.policy=all", "workload.value_size=8"];
            drives.push((row.name, [&geometry[..], &groups, &values].concat()));
        } else if kvdrive_engines::hash::scheme(row.name).is_some() {
            let sets = ["flash.blocks_per_die=48", "hash.write_buffer_bytes=262144", "hash.dram_bytes=65536"];
            drives.push((row.name, [&sets[..], &["hash.gc_workers=4", "workload.value_size=200"]].concat()));
        } else {
            drives.push((row.name, [&geometry[..], &["workload.value_size=200"]].concat()));
        }
    }
    drives
}

/// Position of the flash blocks in an image file: their first byte, the bytes of their headers, and the bytes
/// of a block.
fn blocks_of(document: &Document) -> (usize, usize, usize) {
    let geometry = document.config().unwrap().flash.geometry();
    let pages = geometry.pages_per_block as usize;
    let headers = (pages * 176).next_multiple_of(4096);
    let first = 4096 + 2 * BadBlocks::bytes(&geometry).next_multiple_of(4096);
    (first, headers, (headers + pages * geometry.page_bytes as usize).next_multiple_of(4096))
}

#[test]
fn pages_and_blocks_that_are_gone_are_never_passed_over() {
    for (engine, sets) in every_engine() {
        let folder = tempfile::tempdir().unwrap();
        let (document, files) = filled(engine, &sets, folder.path());
        let image = files.iter().find(|(path, _)| path.ends_with("image")).unwrap();
        let (first, header_bytes, block_bytes) = blocks_of(&document);
        let is_written = |at: &usize| image.1[*at..].iter().take(header_bytes).any(|byte| *byte != 0);
        let written: Vec<usize> = (first..image.1.len()).step_by(block_bytes).filter(is_written).collect();
        let mut noticed = 0;
        for at in written.iter().step_by(written.len().div_ceil(12)) {
            for (name, bytes) in [("headers", 4096), ("a page", 4096 + 16384), ("a block", block_bytes)] {
                files.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
                let mut damaged = image.1.clone();
                let end = damaged.len().min(at + bytes);
                damaged[*at..end].fill(0);
                std::fs::write(&image.0, damaged).unwrap();
                let what = format!("{engine} {sets:?}, zeros over {name} at {at}");
                noticed += u32::from(never_whole_without_all_pairs(&document, &what));
            }
        }
        assert!(noticed > 10, "{engine} {sets:?}: only {noticed} losses were noticed");
    }
}

/// Writes the files of an image, and those beside it.
fn put(files: &[(PathBuf, Vec<u8>)]) {
    files.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
}

#[test]
fn a_shortened_image_is_refused_and_read_as_far_as_it_goes_when_asked() {
    for (engine, sets) in every_engine() {
        let folder = tempfile::tempdir().unwrap();
        let (mut document, files) = filled(engine, &sets, folder.path());
        let image = files.iter().find(|(path, _)| path.ends_with("image")).unwrap();
        let (mut read, mut refused) = (0, 0);
        for part in 1..10 {
            let bytes = image.1.len() * part / 10;
            put(&files);
            std::fs::File::options().write(true).open(&image.0).unwrap().set_len(bytes as u64).unwrap();
            let what = format!("{engine} {sets:?}, cut to {bytes} bytes");
            document.set("workload.verify=only").unwrap();
            let error = run(&document, &|_, _| {}).err().unwrap_or_else(|| panic!("{what}: it is served"));
            let error = format!("{error:#}");
            assert!(
                error.contains(&format!("has {bytes} of its {} bytes", image.1.len())),
                "{what}: {error}"
            );
            assert_eq!(image.0.metadata().unwrap().len(), bytes as u64, "{what}: it has grown again");
            match read_image(&document, false, &mut |_, _| {}) {
                Ok(tally) => {
                    read += 1;
                    assert!(!tally.is_whole() && tally.shortened.is_some(), "{what}: {tally:?}");
                    assert!(tally.whole < PAIRS || tally.damaged + tally.lost == 0, "{what}: {tally:?}");
                }
                Err(error) => {
                    refused += 1;
                    let error = format!("{error:#}");
                    let says = ["cut off", "put back the whole file"];
                    assert!(says.iter().all(|part| error.contains(part)), "{what}: {error}");
                    assert_eq!(error.matches("cut off").count(), 1, "{what}: {error}");
                }
            }
            assert_eq!(image.0.metadata().unwrap().len(), bytes as u64, "{what}: a check has changed it");
        }
        println!("{engine} {sets:?}: {read} read, {refused} refused");
    }
}

/// A check leaves every file unchanged, and needs no permission to write.
#[test]
fn a_check_changes_no_file() {
    for (engine, sets) in every_engine() {
        let folder = tempfile::tempdir().unwrap();
        let (document, files) = filled(engine, &sets, folder.path());
        let tally = read_image(&document, false, &mut |_, _| {}).unwrap();
        assert_eq!((tally.whole, tally.is_whole()), (PAIRS, true), "{engine} {sets:?}: {tally:?}");
        for (path, bytes) in &files {
            assert!(std::fs::read(path).unwrap() == *bytes, "{engine}: {} was changed", path.display());
        }
    }
}

#[test]
fn a_pipe_is_refused_as_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let mut document = Document::profile("cosmos-plus").unwrap();
    for set in ["media.kind=file", &format!("media.path={}", pipe.display())] {
        document.set(set).unwrap();
    }
    let error = read_image(&document, false, &mut |_, _| {}).unwrap_err().to_string();
    assert!(error.contains("is no regular file"), "{error}");
}

#[test]
fn an_empty_file_has_never_been_a_drive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty");
    std::fs::write(&path, []).unwrap();
    let mut document = Document::profile("cosmos-plus").unwrap();
    for set in ["media.kind=file", &format!("media.path={}", path.display())] {
        document.set(set).unwrap();
    }
    let error = read_image(&document, false, &mut |_, _| {}).unwrap_err().to_string();
    assert!(error.contains("it is empty: there is no drive in it"), "{error}");
}

/// The protected image of an earlier version: its head begins with the same letters and ends with the
/// version's number.
#[test]
fn an_image_of_an_earlier_version_is_refused_with_that_version() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let mut document = Document::profile("cosmos-plus").unwrap();
    let image = format!("media.path={}", path.display());
    for set in ["media.kind=file", &image, "workload.name=fillseq", "workload.ops=300"] {
        document.set(set).unwrap();
    }
    run(&document, &|_, _| {}).unwrap();
    let logs = ["image.protected-0", "image.protected-1"].map(|name| folder.path().join(name));
    let log = logs.iter().find(|log| log.exists()).expect("one of them counts");
    let mut earlier = std::fs::read(log).unwrap();
    earlier[..8].copy_from_slice(b"kvdrvPL3");
    std::fs::write(log, &earlier).unwrap();
    let error = read_image(&document, false, &mut |_, _| {}).unwrap_err().to_string();
    let expected = "is a journal of protected memory of version 3, which another kvdrive wrote";
    assert!(error.contains(".protected-") && error.contains(expected), "{error}");
    assert_eq!(std::fs::read(log).unwrap(), earlier, "it stays as it is");
}
