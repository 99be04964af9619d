//! What the images of drives with default settings record, version by version.
//!
//! Few users name the geometry of their drive: its profile does. `tests/images/VERSION/settings.txt` has, for each profile and
//! each engine, the keys that an image of that version names, with the profile's values. A change of such a value, and a new key
//! without a row for what drives did before (`BEFORE` in `flash/src/power/image_settings.rs`), would have the drives of an
//! upgraded program refuse the images of their users; it fails here by the profile's and the key's name. A better value needs a
//! profile of another name. Values of keys that images do not name may change: every image opens with any of them.
//!
//! The file of a version that is not released yet is made again by
//!
//! ```text
//! cargo test -p kvdrive-probe --test all make_settings_of_this_version -- --ignored
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use kvdrive_config::{Document, PROFILES, default_profile};
use kvdrive_device::engines::ENGINES;
use kvdrive_flash::power::ImageSettings;

use super::versions::{images_of, versions};

const FILE: &str = "settings.txt";

fn file_of(version: &str) -> PathBuf {
    images_of(version).join(FILE)
}

/// What an image names of a drive whose settings are all those of `profile`, except for the engine.
fn settings(profile: &str, engine: Option<&str>) -> (String, ImageSettings) {
    let mut document = Document::profile(profile).unwrap_or_else(|error| panic!("{profile}: {error}"));
    if let Some(engine) = engine {
        let set = document.set(&format!("engine.name={engine}"));
        set.unwrap_or_else(|error| panic!("{profile}, {engine}: {error}"));
    }
    let config = document.config().unwrap_or_else(|error| panic!("{profile}: {error}")).drive();
    (format!("{profile} {}", config.engine), config.image_settings())
}

/// The drives of this program, by profile and engine: each profile with its own engine, and each engine with its default
/// profile.
fn of_this_program() -> BTreeMap<String, ImageSettings> {
    let profiles = PROFILES.iter().map(|profile| settings(profile.name, None));
    let engines = ENGINES.iter().map(|row| settings(default_profile(row.name), Some(row.name)));
    profiles.chain(engines).collect()
}

/// Those of a version, by profile and engine.
fn kept(version: &str) -> BTreeMap<String, ImageSettings> {
    let path = file_of(version);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let drives = text.split("\n\n").map(|drive| {
        let (name, lines) = drive.split_once('\n').expect("a name and its settings");
        let setting = |line: &'static str| line.split_once(" = ").expect("key = value");
        let lines: &'static str = lines.to_owned().leak();
        let settings = lines.lines().map(setting).map(|(key, value)| (key, value.to_owned()));
        (name.to_owned(), ImageSettings::new(settings))
    });
    drives.collect()
}

#[test]
fn a_default_drive_of_an_earlier_version_opens_with_the_defaults_of_this_one() {
    for version in versions() {
        for (drive, of_image) in kept(&version) {
            let (profile, engine) = drive.split_once(' ').expect("a profile and an engine");
            let (_, here) = settings(profile, Some(engine));
            let difference = here.difference(&of_image);
            assert_eq!(
                difference,
                None,
                "{drive} of {version}: its images would be refused (see {})",
                file!()
            );
        }
    }
}

#[test]
fn the_defaults_of_this_version_are_kept() {
    let version = env!("CARGO_PKG_VERSION");
    let (kept, here) = (kept(version), of_this_program());
    let is_kept = |profile: &str| kept.keys().any(|drive| drive.split_once(' ').unwrap().0 == profile);
    let missing: Vec<_> = PROFILES.iter().map(|profile| profile.name).filter(|name| !is_kept(name)).collect();
    assert!(missing.is_empty(), "{missing:?} in {}", file_of(version).display());
    let keys = here.keys().filter(|drive| kept.contains_key(*drive)).count();
    assert!(keys > PROFILES.len(), "{keys} drives are compared");
}

#[test]
#[ignore = "makes the file that a release keeps of its own version"]
fn make_settings_of_this_version() {
    // The record of settings is a length of four bytes and their text.
    let text = |settings: ImageSettings| {
        String::from_utf8(borsh::to_vec(&settings).unwrap().split_off(4)).expect("settings are a text")
    };
    let drives = of_this_program().into_iter().map(|(name, settings)| format!("{name}\n{}", text(settings)));
    let drives: Vec<_> = drives.collect();
    let version = env!("CARGO_PKG_VERSION");
    fs::create_dir_all(images_of(version)).unwrap();
    fs::write(file_of(version), drives.join("\n")).unwrap();
}
