//! A drive on a file that is reopened with another value of any key: it is refused, or all stored pairs are
//! found as before. Keys that only other engines read have no effect.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::rc::Rc;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_device::Drive;
use kvdrive_device::engines::{ENGINES, EngineRow};
use kvdrive_host::Calls;
use kvdrive_host::modelled::Driver;
use kvdrive_link::{Link, LocalMemory};
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::{Rng, Sim};

use kvdrive_config::{Document, rules, setup};

use super::extremes::{extremes, small};

/// Tables of few entries, and keys that collide.
const SMALL: &[&str] = &[
    "media.kind=file",
    "flash.blocks_per_die=32",
    "lsm.memtable_entries=32",
    "lsm.rings=[3, 3, 4, 64]",
    "buffer.entries=64",
    "hash.hash_bits=5",
    "hash.max_probes=64",
    "hash.write_buffer_bytes=262144",
];

/// The stored pairs: number of bytes, and the seed of their content. `None`: deleted.
type Stored = BTreeMap<Key, Option<(u32, u64)>>;

/// Does this engine read the section? `None`: no drive reads it.
fn reads(engine: &EngineRow, section: &str) -> Option<bool> {
    let is_of_engines = ENGINES.iter().any(|row| row.sections.contains(&section));
    match section {
        "controller" | "flash" | "power" => Some(true),
        _ => is_of_engines.then(|| engine.sections.contains(&section)),
    }
}

fn on_file(engine: &str, folder: &Path) -> Document {
    let mut document = small(engine);
    let path = format!("media.path={}", folder.join("drive.img").display());
    for setting in SMALL.iter().copied().chain([path.as_str()]) {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    document
}

/// Does `work` on the drive; or returns the line that says why it is refused.
fn with_drive(document: &Document, work: impl FnOnce(Driver)) -> Result<(), String> {
    let config = document.config().map_err(|error| error.to_string())?;
    let sim = Sim::new();
    let memory = Rc::new(LocalMemory::new());
    let link = Link::new(&sim, config.link.clone(), memory.clone());
    let worked = sim.block_on(|| {
        let drive = Drive::power_on(&sim, &link, &config.drive(), None);
        let _drive = drive.map_err(|error| error.to_string())?;
        let drivers = setup::drivers(&config, &link, &memory, &setup::cores(&config, &sim));
        work(drivers.expect("a drive and a method").remove(0));
        Ok(())
    });
    sim.clear();
    worked
}

fn fill(driver: &Driver) -> Stored {
    let mut rng = Rng::stream(1, "reopened");
    let mut stored = Stored::new();
    for seed in 0..400 {
        let key = Key::from_u32_be(rng.below(150) as u32);
        if rng.one_in(8) {
            driver.delete(key).expect("a delete succeeds");
            stored.insert(key, None);
        } else {
            let bytes = rng.below(3000) as u32;
            let value = Pattern::of_value(&key, seed, bytes);
            driver.store(key, Piece::Pattern(value)).expect("a store succeeds");
            stored.insert(key, Some((bytes, seed)));
        }
    }
    stored
}

fn check(driver: &Driver, stored: &Stored) {
    let mut region = Region::new();
    for (key, stored) in stored {
        match (driver.retrieve(*key, &mut region), *stored) {
            (Err(Status::KEY_NOT_FOUND), None) => {}
            (Ok(found), Some((bytes, seed))) if found == bytes => {
                let mut expected = vec![0; bytes as usize];
                Pattern::of_value(key, seed, bytes).expand(&mut expected);
                assert_eq!(region.to_bytes(bytes), expected, "{key:?}");
            }
            (found, _) => panic!("{key:?} is {found:?} and was stored as {stored:?}"),
        }
    }
}

/// The problem of a copy of the drive in `folder` when `setting` is applied to its configuration.
fn problem_of(engine: &str, folder: &Path, stored: &Stored, setting: &str, is_read: bool) -> Option<String> {
    let copy = tempfile::tempdir().expect("a folder for the copy");
    for file in std::fs::read_dir(folder).expect("the folder is there") {
        let file = file.expect("the folder can be listed");
        std::fs::copy(file.path(), copy.path().join(file.file_name())).expect("a file can be copied");
    }
    let mut document = on_file(engine, copy.path());
    if document.set(setting).is_err() || document.config().is_err() {
        return None;
    }
    let opened = catch_unwind(AssertUnwindSafe(|| with_drive(&document, |driver| check(&driver, stored))));
    match opened {
        Ok(Ok(())) => None,
        Ok(Err(line)) if is_read => (line.lines().count() != 1).then_some(line),
        Ok(Err(line)) => Some(format!("refused: {line}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            Some(text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default())
        }
    }
}

#[test]
fn a_drive_with_another_setting_is_refused_or_holds_what_it_held() {
    let mut problems = Vec::new();
    for row in ENGINES {
        let folder = tempfile::tempdir().expect("a folder for the image");
        let mut stored = Stored::new();
        with_drive(&on_file(row.name, folder.path()), |driver| stored = fill(&driver))
            .expect("an empty drive comes up");
        let as_before = problem_of(row.name, folder.path(), &stored, "run.seed=1", false);
        assert_eq!(as_before, None, "{}", row.name);
        for (key, rule) in rules() {
            let section = key.split('.').next().unwrap_or(key);
            let Some(is_read) = reads(row, section) else { continue };
            // Times do not decide which pairs are found.
            if key.contains("_ns") || key.ends_with("_ps") {
                continue;
            }
            // For keys that the drive ignores one value suffices, since each drive waits for the machine's
            // storage.
            let values = extremes(rule);
            for value in values.iter().take(if is_read { values.len() } else { 1 }) {
                let setting = format!("{key}={value}");
                let problem = problem_of(row.name, folder.path(), &stored, &setting, is_read);
                problems.extend(problem.map(|problem| format!("{}, {setting}: {problem}", row.name)));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
