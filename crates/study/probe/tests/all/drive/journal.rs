//! A drive whose medium is a file: the checkpoint and the records after it equal the protected image at any
//! time, to the last byte.

use std::path::{Path, PathBuf};

use kvdrive_config::Document;
use kvdrive_device::engines::{ENGINES, EngineRow};
use kvdrive_flash::power::Survivors;
use kvdrive_flash::power::file_log::FileLog;
use kvdrive_nvme::Status;
use kvdrive_run::run;
use kvdrive_sim::{Rng, Sim};

use super::batches::{apply, requests_of, send_as};
use kvdrive_rigs::drive::{Bench, Oracle, check_all, document, step};

/// A small drive of this engine on this file.
fn on_file(row: &EngineRow, path: &Path, more: &[&str]) -> Document {
    let mut settings = vec![
        "media.kind=file".into(),
        format!("media.path={}", path.display()),
        format!("engine.name={}", row.name),
        "flash.blocks_per_die=16".into(),
    ];
    settings.extend(more.iter().map(|set| (*set).to_owned()));
    document(&settings)
}

#[test]
fn records_fold_into_the_present_image() {
    for row in ENGINES {
        let folder = tempfile::tempdir().expect("a folder for the image");
        let path = folder.path().join("drive.img");
        let bench = Bench::new(&on_file(row, &path, &[]), Sim::new());
        let config = bench.config.drive();
        bench.sim.block_on(|| {
            let drive = bench.power_on(None).expect("an empty drive comes up");
            let driver = bench.connect();
            let mut oracle = Oracle::of(&bench);
            let mut rng = Rng::stream(31, "steps");
            for index in 0..2500 {
                step(&driver, &mut oracle, &mut rng, 60, false);
                if index % 20 == 0 {
                    let requests = requests_of(&mut rng, &[0, 16, 300]);
                    match send_as(&driver, &requests, true) {
                        (_, Status::SUCCESS) => apply(&mut oracle.pairs, &requests),
                        refused => assert_eq!(refused, (0, Status::CAPACITY_EXCEEDED), "{}", row.name),
                    }
                }
                if index % 60 == 0 {
                    drive.settle();
                    let found = FileLog::read(&path, drive.identity())
                        .expect("the log is whole")
                        .expect("there is a log");
                    let folded = (row.fold)(&config.of_engine(), &found.image, &found.records);
                    let folded = folded.unwrap_or_else(|error| panic!("{}: {error}", row.name));
                    let present = drive.survivors(&mut rng).protected;
                    assert!(folded == present, "{}: the records are not the image at step {index}", row.name);
                }
            }
            check_all(&driver, &oracle);
            let collected = drive.counts().get("engine.gc_data_superblocks");
            assert!(collected > Some(0) || row.ordered, "{}: nothing was collected", row.name);
        });
        bench.sim.clear();
    }
}

/// A small drive of this engine in this folder, with some pairs: its file, and the document to run it again.
fn used(row: &EngineRow, folder: &Path) -> (PathBuf, Document) {
    let path = folder.join("drive.img");
    let load = ["workload.name=fillseq", "workload.value_size=1000", "workload.ops=300"];
    let document = on_file(row, &path, &load);
    assert_eq!(run(&document, &|_, _| ()).expect("an empty drive comes up").ops.errors, 0);
    (path, document)
}

/// The error names the keys whose values differ between the requested drive and the existing one.
#[test]
fn a_drive_of_another_configuration_is_refused_with_the_keys_that_differ() {
    for (row, other) in ENGINES.iter().zip(ENGINES.iter().cycle().skip(1)) {
        let folder = tempfile::tempdir().expect("a folder for the image");
        let (path, _) = used(row, folder.path());
        let error = run(&on_file(other, &path, &[]), &|_, _| ()).expect_err("another engine").to_string();
        let named = format!("engine.name = {} (here {})", row.name, other.name);
        assert!(error.contains(&named) && !error.contains('\n'), "{error}");
    }
}

/// The logical pages of a drive follow from it, so tables and values would be looked for in other places.
#[test]
fn a_drive_with_another_over_provisioning_is_refused_with_both_values() {
    for row in ENGINES.iter().filter(|row| row.sections.contains(&"ftl")) {
        let folder = tempfile::tempdir().expect("a folder for the image");
        let (path, document) = used(row, folder.path());
        for other in ["0.1", "0.3"] {
            let other_drive = on_file(row, &path, &[&format!("ftl.over_provisioning={other}")]);
            let error = run(&other_drive, &|_, _| ()).expect_err("fewer or more pages").to_string();
            let named = format!("ftl.over_provisioning = 0.2 (here {other})");
            assert!(error.contains(&named) && !error.contains('\n'), "{}: {error}", row.name);
        }
        assert!(run(&document, &|_, _| ()).is_ok(), "{}: nothing has changed", row.name);
    }
}

/// Only the image was copied, or the process was killed twice while it wrote a checkpoint.
#[test]
fn an_image_without_its_protected_memory_is_refused() {
    for row in ENGINES {
        let folder = tempfile::tempdir().expect("a folder for the image");
        let (_, document) = used(row, folder.path());
        let slots = [0, 1].map(|slot| folder.path().join(format!("drive.img.protected-{slot}")));
        let kept = slots.each_ref().map(|slot| std::fs::read(slot).ok());
        slots.iter().for_each(|slot| _ = std::fs::remove_file(slot));
        for _ in 0..3 {
            let refused = run(&document, &|_, _| ()).expect_err("flash alone is no drive").to_string();
            assert!(refused.contains("power-protected memory is missing"), "{}: {refused}", row.name);
            assert!(slots.iter().all(|slot| !slot.exists()), "{}: something would be in the way", row.name);
        }
        for (slot, bytes) in slots.iter().zip(kept) {
            bytes.iter().for_each(|bytes| std::fs::write(slot, bytes).expect("it can be put back"));
        }
        assert!(run(&document, &|_, _| ()).is_ok(), "{}", row.name);
    }
}

#[test]
fn protected_memory_without_its_image_is_refused() {
    for row in ENGINES {
        let folder = tempfile::tempdir().expect("a folder for the image");
        let (path, document) = used(row, folder.path());
        let elsewhere = folder.path().join("elsewhere.img");
        std::fs::rename(&path, &elsewhere).expect("the image goes away");
        for _ in 0..3 {
            let refused = run(&document, &|_, _| ()).expect_err("it names pages that are gone").to_string();
            assert!(refused.contains("is missing or empty"), "{}: {refused}", row.name);
            assert!(!path.exists(), "{}: something would be in the way", row.name);
        }
        std::fs::rename(&elsewhere, &path).expect("it can be put back");
        assert!(run(&document, &|_, _| ()).is_ok(), "{}", row.name);
    }
}

/// A copy of some of the files was restored.
#[test]
fn an_image_and_protected_memory_of_different_moments_are_refused() {
    for row in ENGINES {
        let folder = tempfile::tempdir().expect("a folder for the image");
        let (path, document) = used(row, folder.path());
        let slots = [0, 1].map(|slot| folder.path().join(format!("drive.img.protected-{slot}")));
        let files = || [&path, &slots[0], &slots[1]].map(|file| std::fs::read(file).ok());
        let put = |contents: [&Option<Vec<u8>>; 3]| {
            for (file, bytes) in [&path, &slots[0], &slots[1]].into_iter().zip(contents) {
                match bytes {
                    Some(bytes) => std::fs::write(file, bytes).expect("it can be put back"),
                    None => _ = std::fs::remove_file(file),
                }
            }
        };
        let [old_image, old_slots @ ..] = files();
        assert!(run(&document, &|_, _| ()).is_ok(), "{}", row.name);
        let [new_image, new_slots @ ..] = files();
        for (image, slots) in [(&old_image, &new_slots), (&new_image, &old_slots)] {
            put([image, &slots[0], &slots[1]]);
            let before = files();
            let refused =
                run(&document, &|_, _| ()).expect_err("they know nothing of each other").to_string();
            assert!(refused.contains("not of the same moment"), "{}: {refused}", row.name);
            assert!(files() == before, "{}: something was written", row.name);
        }
        for (image, slots) in [(&old_image, &old_slots), (&new_image, &new_slots)] {
            put([image, &slots[0], &slots[1]]);
            assert!(run(&document, &|_, _| ()).is_ok(), "{}", row.name);
        }
    }
}

/// A drive of this engine on `path` after some stores: the content of its files after each store. The files
/// of the last moment stay there.
fn moments(row: &EngineRow, path: &Path, stores: u32) -> Vec<Files> {
    let bench = Bench::new(&on_file(row, path, &[]), Sim::new());
    let moments = bench.sim.block_on(|| {
        let drive = bench.power_on(None).expect("an empty drive comes up");
        let driver = bench.connect();
        let mut oracle = Oracle::of(&bench);
        let mut rng = Rng::stream(33, "steps");
        let mut moments = Vec::new();
        for _ in 0..stores {
            step(&driver, &mut oracle, &mut rng, 60, false);
            drive.settle();
            moments.push(Files::of(path));
        }
        moments
    });
    bench.sim.clear();
    moments
}

/// The content of the files of a drive: the image and both slots of its protected memory.
#[derive(Clone, PartialEq)]
struct Files([Option<Vec<u8>>; 3]);

impl Files {
    fn paths(path: &Path) -> [PathBuf; 3] {
        ["", ".protected-0", ".protected-1"].map(|end| PathBuf::from(format!("{}{end}", path.display())))
    }

    fn of(path: &Path) -> Files {
        Files(Files::paths(path).map(|file| std::fs::read(file).ok()))
    }

    fn put(&self, path: &Path) {
        for (file, bytes) in Files::paths(path).iter().zip(&self.0) {
            match bytes {
                Some(bytes) => std::fs::write(file, bytes).expect("it can be put back"),
                None => _ = std::fs::remove_file(file),
            }
        }
    }

    /// The slot that exists.
    fn slot(&mut self) -> &mut Option<Vec<u8>> {
        self.0[1..].iter_mut().find(|slot| slot.is_some()).expect("a drive that was on has one")
    }
}

/// Powers a drive on with these files; returns its error if it is refused. It has altered no file then.
fn refusal(document: &Document, path: &Path, files: &Files) -> Option<String> {
    files.put(path);
    let bench = Bench::new(document, Sim::new());
    let refused = bench.sim.block_on(|| bench.power_on(None).err().map(|error| error.to_string()));
    bench.sim.clear();
    assert!(refused.is_none() || Files::of(path) == *files, "{refused:?}, and something was written");
    refused
}

/// Two drives of one configuration with the same history: they differ only in their identities.
#[test]
fn files_of_another_drive_are_refused() {
    for row in ENGINES {
        let folder = tempfile::tempdir().expect("a folder for the images");
        let [(files, who), (others, other)] = ["one.img", "another.img"].map(|name| {
            let path = folder.path().join(name);
            let files = moments(row, &path, 40).pop().expect("there were stores");
            let bench = Bench::new(&on_file(row, &path, &[]), Sim::new());
            let drive = bench.sim.block_on(|| bench.power_on(None)).expect("its own files");
            bench.sim.clear();
            (files, drive.identity().to_string())
        });
        assert_ne!(who, other, "{}", row.name);
        let path = folder.path().join("mixed.img");
        let document = on_file(row, &path, &[]);
        let ([image, ..], [_, slots @ ..]) = (files.0.clone(), others.0);
        let [first, second] = slots;
        let refused = refusal(&document, &path, &Files([image, first, second]));
        let refused = refused.unwrap_or_else(|| panic!("{}: it came up", row.name));
        assert!(refused.contains(&who) && refused.contains(&other), "{}: {refused}", row.name);
        assert_eq!(refusal(&document, &path, &files), None, "{}: its own, elsewhere", row.name);
    }
}

/// The same for drives in memory, which are distinguished by their seeds.
#[test]
fn survivors_of_another_drive_are_refused() {
    for row in ENGINES {
        let settings = |seed: u64| [format!("engine.name={}", row.name), format!("run.seed={seed}")];
        let [one, another] = [1, 2].map(|seed| {
            let bench = Bench::new(&document(&settings(seed)), Sim::new());
            let survivors = bench.sim.block_on(|| {
                let drive = bench.power_on(None).expect("an empty drive comes up");
                let (driver, mut oracle) = (bench.connect(), Oracle::of(&bench));
                let mut rng = Rng::stream(seed, "steps");
                for _ in 0..40 {
                    step(&driver, &mut oracle, &mut rng, 60, false);
                }
                let namespace = driver.host().identify().expect("it says");
                assert_eq!(namespace.nguid, drive.identity().to_bytes(), "Identify tells who it is");
                (drive.survivors(&mut rng), drive.identity().to_string())
            });
            bench.sim.clear();
            survivors
        });
        let come_up = |media: &Survivors, protected: &Survivors| {
            let bench = Bench::new(&document(&settings(1)), Sim::new());
            let both = Survivors { media: media.media.clone(), protected: protected.protected.clone() };
            let came = bench.sim.block_on(|| bench.power_on(Some(&both)).map(|drive| drive.identity()));
            bench.sim.clear();
            came.map(|identity| identity.to_string()).map_err(|error| error.to_string())
        };
        let refused = come_up(&one.0, &another.0).expect_err("they are two drives'");
        assert!(refused.contains(&one.1) && refused.contains(&another.1), "{}: {refused}", row.name);
        assert_eq!(come_up(&another.0, &another.0), Ok(another.1), "{}: whatever the seed", row.name);
    }
}

/// With and without pages on flash, cut off anywhere: the missing bytes were acknowledged.
#[test]
fn protected_memory_that_was_cut_off_is_refused() {
    for (row, stores) in ENGINES.iter().flat_map(|row| [(row, 12), (row, 150)]) {
        let folder = tempfile::tempdir().expect("a folder for the image");
        let path = folder.path().join("drive.img");
        let document = on_file(row, &path, &[]);
        let whole = moments(row, &path, stores).pop().expect("there were stores");
        let bytes = whole.clone().slot().clone().expect("there is one");
        let ends = (0..bytes.len()).rev();
        for end in ends.clone().take(50).chain(ends.step_by(bytes.len() / 50)).chain([0]) {
            let mut cut = whole.clone();
            cut.slot().as_mut().expect("there is one").truncate(end);
            let refused = refusal(&document, &path, &cut);
            let what = format!("{}, {stores} stores, {end} of {} bytes", row.name, bytes.len());
            let refused = refused.unwrap_or_else(|| panic!("{what}: it came up"));
            let says =
                ["not of the same moment", "memory is missing"].iter().any(|says| refused.contains(says));
            assert!(says && refused.contains("group"), "{what}: {refused}");
        }
        let mut gone = whole.clone();
        *gone.slot() = None;
        let refused = refusal(&document, &path, &gone).expect("nothing of it is left");
        assert!(refused.contains("memory is missing"), "{}: {refused}", row.name);
        assert_eq!(refusal(&document, &path, &whole), None, "{}", row.name);
    }
}

/// The remains of an unacknowledged group after a machine lost its power: its length without its bytes.
#[test]
fn a_group_that_was_torn_and_never_promised_is_dropped() {
    for row in ENGINES {
        let folder = tempfile::tempdir().expect("a folder for the image");
        let path = folder.path().join("drive.img");
        let document = on_file(row, &path, &["media.sync=true"]);
        let moments = moments(row, &path, 30);
        let mut torn = 0;
        for pair in moments.windows(2) {
            let (mut before, mut after) = (pair[0].clone(), pair[1].clone());
            let (begin, whole) = (before.slot().clone().expect("one"), after.slot().clone().expect("one"));
            if begin.len() < whole.len() && whole.starts_with(&begin) {
                for kept in [begin.len(), begin.len() + 10, begin.len() + 25] {
                    let zeros = vec![0; whole.len() - kept + 100];
                    *before.slot() = Some([&whole[..kept], &zeros[..]].concat());
                    assert_eq!(refusal(&document, &path, &before), None, "{}: {kept} bytes", row.name);
                    torn += 1;
                }
            }
        }
        assert!(torn > 10, "{}: {torn} groups", row.name);
    }
}

/// Image and protected memory of two moments of one life, between which no checkpoint was made.
#[test]
fn files_of_two_moments_of_one_life_are_refused() {
    for row in ENGINES {
        let folder = tempfile::tempdir().expect("a folder for the image");
        let path = folder.path().join("drive.img");
        let document = on_file(row, &path, &[]);
        let moments = moments(row, &path, 120);
        let last = moments.last().expect("there were stores");
        // Not the moments right before it: retrieves write nothing, and a kill may leave the last group
        // without its mark.
        for (number, earlier) in moments.iter().enumerate().take(100).step_by(9) {
            let [image, slots @ ..] = last.0.clone();
            let [old_image, old_slots @ ..] = earlier.0.clone();
            for (what, image, [first, second]) in [("log", image, old_slots), ("image", old_image, slots)] {
                let refused = refusal(&document, &path, &Files([image, first, second]));
                let refused = refused.unwrap_or_else(|| panic!("{}: {what} of step {number}", row.name));
                assert!(refused.contains("not of the same moment"), "{}: {refused}", row.name);
            }
            assert_eq!(refusal(&document, &path, earlier), None, "{}: all of step {number}", row.name);
        }
    }
}
