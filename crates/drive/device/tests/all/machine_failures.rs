//! Reads, writes and syncs of a drive's files that the operating system refuses, during power-on and a small
//! workload.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_device::engines::ENGINES;
use kvdrive_device::{Drive, DriveConfig};
use kvdrive_flash::power::machine_file::faults::{Call, Fault, arm};
use kvdrive_host::Calls;
use kvdrive_host::modelled::Driver;
use kvdrive_link::{Link, LocalMemory};
use kvdrive_nvme::Status;
use kvdrive_sim::{Rng, Sim};

use super::rig;
use super::small_drives::{config, connect, key};

const KEYS: u64 = 40;
/// Commands of the drive during which calls fail, and commands before them.
const COMMANDS: u32 = 24;
const COMMANDS_BEFORE: u32 = 500;
/// Of many similar calls, every fifth fails. The number is odd because calls of two kinds alternate.
const STEP: usize = 5;

/// A value by its seed and size; `None`: no pair.
type Value = Option<(u64, u32)>;

/// The answers that are allowed for each key: the acknowledged value, and those of later requests that were
/// refused.
#[derive(Clone)]
struct Known(BTreeMap<u64, BTreeSet<Value>>);

impl Known {
    fn new() -> Known {
        Known((0..KEYS).map(|number| (number, BTreeSet::from([None]))).collect())
    }

    /// Stores and deletes; returns every status that was not success.
    fn work(&mut self, driver: &Driver, rng: &mut Rng, commands: u32) -> Vec<Status> {
        let mut refused = Vec::new();
        for _ in 0..commands {
            let number = rng.below(KEYS);
            let value =
                (rng.below(6) > 0).then(|| (rng.next_u64(), [0, 8, 500, 3000, 6000][rng.below(5) as usize]));
            let answer = match value {
                Some(value) => driver.store(key(number), content(number, value)),
                None => driver.delete(key(number)),
            };
            let values = self.0.get_mut(&number).expect("all keys are there");
            if answer.is_ok() {
                values.clear();
            }
            values.insert(value);
            refused.extend(answer.err());
        }
        refused
    }

    /// Reads every pair; returns how many could not be read. All values that are read are right.
    fn check(&self, driver: &Driver, when: &str) -> u32 {
        let (mut into, mut unreadable) = (Region::new(), 0);
        for (number, values) in &self.0 {
            let found = match driver.retrieve(key(*number), &mut into) {
                Ok(bytes) => Some(into.to_bytes(bytes)),
                Err(Status::KEY_NOT_FOUND) => None,
                Err(status) => {
                    assert_eq!(status, Status::UNRECOVERED_ERROR, "{when}: key {number}");
                    unreadable += 1;
                    continue;
                }
            };
            let is_right = values.iter().any(|value| value.map(|value| bytes(*number, value)) == found);
            assert!(
                is_right,
                "{when}: key {number} has {} B, not {values:?}",
                found.map_or(0, |found| found.len())
            );
        }
        unreadable
    }
}

fn content(number: u64, (seed, bytes): (u64, u32)) -> Piece<'static> {
    Piece::Pattern(Pattern::of_value(&key(number), seed, bytes))
}

fn bytes(number: u64, value: (u64, u32)) -> Vec<u8> {
    let mut region = Region::new();
    region.write(0, content(number, value));
    region.to_bytes(value.1)
}

/// Runs `what` on the drive at `path`, if it powers on.
fn powered<T>(config: &DriveConfig, what: impl FnOnce(&Drive, &Driver) -> T) -> Result<T, String> {
    let (sim, memory) = (Sim::new(), Rc::new(LocalMemory::new()));
    let link = Link::new(&sim, rig::link_config(4096), memory.clone());
    let result = sim.block_on(|| {
        let drive = Drive::power_on(&sim, &link, config, None).map_err(|error| error.to_string())?;
        let driver = connect(&sim, &link, &memory);
        Ok(what(&drive, &driver))
    });
    // Otherwise its tasks keep the lock of the files.
    sim.clear();
    result
}

/// A file system in memory: syncing takes no time there.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.expect("a folder")
}

fn copy(from: &Path, to: &Path) {
    for file in std::fs::read_dir(from).expect("a folder").map(|file| file.expect("a file")) {
        std::fs::copy(file.path(), to.join(file.file_name())).expect("a copy");
    }
}

/// A drive in use on files, and its pairs.
struct Prepared {
    config: DriveConfig,
    folder: tempfile::TempDir,
    known: Known,
    /// Files that write failures named.
    failed: RefCell<BTreeSet<String>>,
}

impl Prepared {
    fn new(engine: &str) -> Prepared {
        let folder = folder();
        let mut config = config(engine, Some(&folder.path().join("drive.img")));
        config.media.sync = true;
        let mut known = Known::new();
        let used =
            powered(&config, |_, driver| known.work(driver, &mut Rng::stream(1, "before"), COMMANDS_BEFORE));
        assert_eq!(used, Ok(Vec::new()), "{engine}");
        Prepared { config, folder, known, failed: RefCell::default() }
    }

    /// How many calls of each kind a power-on of a copy of it makes.
    fn power_on_calls(&self) -> [u64; 3] {
        let copied = folder();
        copy(self.folder.path(), copied.path());
        let mut config = self.config.clone();
        config.media.path = Some(copied.path().join("drive.img"));
        arm(None);
        powered(&config, |_, _| arm(None)).expect("it comes up")
    }

    /// Runs the workload on a copy of the drive while these calls fail, then reads that copy without
    /// failures. Returns the number of calls of each kind.
    fn fail(&self, call: Call, which: Range<u64>) -> [u64; 3] {
        let when = format!("{} {call:?} {which:?}", self.config.engine);
        let copied = folder();
        copy(self.folder.path(), copied.path());
        let mut config = self.config.clone();
        config.media.path = Some(copied.path().join("drive.img"));
        let mut known = self.known.clone();
        let is_read = call == Call::Read;
        arm(Some(Fault { call, which, error: ErrorKind::StorageFull }));
        let worked = powered(&config, |drive, driver| {
            let refused = known.work(driver, &mut Rng::stream(2, "behind"), COMMANDS);
            let unreadable = known.check(driver, &when);
            (refused, unreadable, drive.write_failure())
        });
        let calls = arm(None);
        match worked {
            // A drive whose newest state cannot be read is refused.
            Err(problem) => assert!(is_read, "{when}: {problem}"),
            // A page of the index has many keys.
            Ok((refused, _, failure)) if is_read => {
                assert!(failure.is_none(), "{when}: {failure:?}");
                assert!(
                    refused.iter().all(|status| *status == Status::UNRECOVERED_ERROR),
                    "{when}: {refused:?}"
                );
            }
            Ok((refused, unreadable, failure)) => {
                assert_eq!(unreadable, 0, "{when}");
                let protected = refused.iter().all(|status| *status == Status::NAMESPACE_WRITE_PROTECTED);
                assert!(protected && (refused.is_empty() || failure.is_some()), "{when}: {refused:?}");
                if let Some(failure) = failure {
                    assert!(failure.what.contains("no storage space"), "{when}: {failure:?}");
                    let file = failure.path.as_ref().and_then(|path| path.file_name()).expect("a file");
                    let file = file.to_string_lossy().into_owned();
                    self.failed.borrow_mut().insert(file);
                }
            }
        }
        let again = powered(&config, |drive, driver| {
            assert_eq!(drive.write_failure(), None);
            let unreadable = known.check(driver, &format!("after {when}"));
            let refused = known.work(driver, &mut Rng::stream(3, "again"), 10);
            (unreadable, refused)
        });
        let (unreadable, refused) = again.unwrap_or_else(|problem| panic!("after {when}: {problem}"));
        assert!(is_read || unreadable == 0 && refused.is_empty(), "after {when}");
        calls
    }
}

/// Each call of power-on and some calls after it fails, alone and with all later calls of its kind: groups,
/// moments and ways to fail take turns.
fn each_fails(call: Call) {
    for row in ENGINES {
        let prepared = Prepared::new(row.name);
        let none = u64::MAX - 1..u64::MAX - 1;
        let calls = prepared.fail(call, none)[call as usize];
        assert!(calls > 20, "{}: {calls} calls", row.name);
        let power_on = prepared.power_on_calls()[call as usize];
        let numbers = (0..power_on).chain((power_on..calls).step_by(STEP));
        for (turn, number) in numbers.enumerate() {
            let end = if turn % 4 < 2 { number + 1 } else { u64::MAX };
            prepared.fail(call, number..end);
        }
        let failed = prepared.failed.borrow();
        assert!(failed.iter().any(|file| file == "drive.img"), "{failed:?}");
        assert!(failed.iter().any(|file| file.contains(".protected-")), "{failed:?}");
    }
}

#[test]
fn a_drive_whose_file_takes_no_write_turns_read_only_and_loses_nothing() {
    each_fails(Call::Write);
}

#[test]
fn a_drive_whose_file_cannot_be_synced_turns_read_only_and_loses_nothing() {
    each_fails(Call::Sync);
}

#[test]
fn a_read_that_fails_costs_what_lies_there_and_never_the_drive() {
    for row in ENGINES {
        let prepared = Prepared::new(row.name);
        let calls = prepared.fail(Call::Read, u64::MAX - 1..u64::MAX - 1)[Call::Read as usize];
        // Of one hash engine each read: some of them, at recovery, once left fewer valid grains than became invalid.
        let step = if row.name == "plus2" { 1 } else { STEP };
        for number in (0..calls).step_by(step) {
            prepared.fail(Call::Read, number..number + 1);
        }
    }
}

/// A drive whose image or journal is removed notices that: writes that it acknowledged later would be lost
/// with the process.
#[test]
fn a_drive_whose_files_are_removed_turns_read_only() {
    for (row, part) in ENGINES.iter().zip(["drive.img", ".protected-"].into_iter().cycle()) {
        let mut prepared = Prepared::new(row.name);
        let folder = prepared.folder.path().to_owned();
        let known = &mut prepared.known;
        let failure = powered(&prepared.config, |drive, driver| {
            let mut rng = Rng::stream(6, "before and after");
            assert!(known.work(driver, &mut rng, 20).is_empty(), "{}", row.name);
            remove(&folder, part);
            let refused = known.work(driver, &mut rng, 100);
            assert!(refused.contains(&Status::NAMESPACE_WRITE_PROTECTED), "{}: {refused:?}", row.name);
            assert_eq!(known.check(driver, "the removal"), 0, "{}", row.name);
            drive.write_failure().expect("it says why").to_string()
        });
        let failure = failure.expect("it came up");
        assert!(failure.contains(part) && failure.contains("was removed"), "{failure}");
    }
}

/// A drive whose image or journal is cut off notices that at its next write, before that write makes the file long
/// again: everything stored later would be acknowledged and lost.
#[test]
fn a_drive_whose_files_are_cut_off_turns_read_only() {
    for (row, part) in ENGINES.iter().zip(["drive.img", ".protected-"].into_iter().cycle()) {
        let mut prepared = Prepared::new(row.name);
        let folder = prepared.folder.path().to_owned();
        let known = &mut prepared.known;
        let failure = powered(&prepared.config, |drive, driver| {
            let mut rng = Rng::stream(6, "before and after");
            assert!(known.work(driver, &mut rng, 20).is_empty(), "{}", row.name);
            for file in files(&folder, part) {
                let file = std::fs::OpenOptions::new().write(true).open(file).expect("it is there");
                let bytes = file.metadata().expect("it is a file").len();
                file.set_len(bytes - 1).expect("it can be cut off");
            }
            let refused = known.work(driver, &mut rng, 100);
            assert!(refused.contains(&Status::NAMESPACE_WRITE_PROTECTED), "{}: {refused:?}", row.name);
            drive.write_failure().expect("it says why").to_string()
        });
        let failure = failure.expect("it came up");
        assert!(failure.contains(part) && failure.contains("was shortened"), "{failure}");
    }
}

/// A drive that ends soon after the removal, before it writes for the next time it looks.
#[test]
fn the_removal_of_a_file_is_noticed_when_the_drive_ends() {
    for part in ["drive.img", ".protected-"] {
        let mut prepared = Prepared::new("lsm");
        let folder = prepared.folder.path().to_owned();
        let known = &mut prepared.known;
        let failure = powered(&prepared.config, |drive, driver| {
            assert!(known.work(driver, &mut Rng::stream(6, "before"), 20).is_empty());
            remove(&folder, part);
            drive.drain();
            drive.write_failure().expect("it says why").to_string()
        });
        let failure = failure.expect("it came up");
        assert!(failure.contains(part) && failure.contains("was removed"), "{failure}");
    }
}

/// Removes the files of a drive whose names contain `part`.
fn remove(folder: &Path, part: &str) {
    files(folder, part).for_each(|file| std::fs::remove_file(file).expect("it can be removed"));
}

fn files(folder: &Path, part: &str) -> impl Iterator<Item = PathBuf> {
    let files = std::fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").path());
    let is_meant =
        move |file: &PathBuf| file.file_name().is_some_and(|name| name.to_string_lossy().contains(part));
    files.filter(is_meant)
}

/// The protected image is beside the file that the link names.
#[test]
fn a_drive_is_the_same_through_a_symbolic_link() {
    let prepared = Prepared::new("lsm");
    let mut config = prepared.config.clone();
    let link = prepared.folder.path().join("link.img");
    std::os::unix::fs::symlink("drive.img", &link).expect("a link");
    config.media.path = Some(link);
    let unreadable = powered(&config, |_, driver| prepared.known.check(driver, "by the link"));
    assert_eq!(unreadable, Ok(0));
    // A drive that was made through a link is the same without the link.
    let folder = folder();
    let (link, path) = (folder.path().join("link.img"), folder.path().join("new.img"));
    std::os::unix::fs::symlink("new.img", &link).expect("a link");
    let mut known = Known::new();
    for path in [link, path] {
        config.media.path = Some(path);
        let mut rng = Rng::stream(5, "links");
        let used =
            powered(&config, |_, driver| (known.check(driver, "at first"), known.work(driver, &mut rng, 50)));
        assert_eq!(used, Ok((0, Vec::new())));
    }
}
