//! Images of earlier versions: a drive made by a version from 0.2.0 on opens in every later 0.x, with all of its pairs.
//!
//! `tests/images/VERSION` has the files of small drives, one of each engine, as a program that was killed left them: image and
//! journal, each compressed. They are never made again; a release adds those of its own version:
//!
//! ```text
//! cargo test -p kvdrive-probe --test all make_images_of_this_version -- --ignored
//! ```
//!
//! A test that fails here says that data of users would be lost by an upgrade. The images stay as they are: the program learns
//! to read them again (`docs/decisions/records.md`).

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use kvdrive_config::Document;
use kvdrive_content::{Piece, Region};
use kvdrive_device::Drive;
use kvdrive_device::engines::ENGINES;
use kvdrive_host::Calls;
use kvdrive_host::modelled::Driver;
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::Sim;

use super::faults::parse;
use kvdrive_rigs::drive::Bench;

/// The drive whose image is kept. These lines are as much a part of the images as their bytes.
const DRIVE: &[&str] = &[
    "media.kind=file",
    "flash.channels=2",
    "flash.dies_per_channel=1",
    "flash.blocks_per_die=24",
    "flash.pages_per_block=8",
    "flash.page_bytes=4096",
    "flash.spare_bytes=256",
    "flash.spare_blocks=2",
    "ftl.gc_low_blocks=2",
    "ftl.over_provisioning=0.2",
    "buffer.entries=12",
    "packing.dlt_entries=8",
    "lsm.memtable_entries=32",
    "lsm.rings=[3, 3, 4, 64]",
    "anykey.memtable_entries=32",
    "anykey.group_pages=4",
    "anykey.levels=3",
    "anykey.log_percent=10",
    "gc.segment_pages=8",
    "gc.free_segments_low=6",
    "gc.free_segments_reserved=3",
    "hash.unit_bytes=1024",
    "hash.write_buffer_bytes=65536",
    "hash.dram_bytes=16384",
    "hash.gc_low_superblocks=6",
    "hash.gc_stall_superblocks=3",
    "store.operations_bytes=131072",
    "controller.max_value_bytes=262144",
];

const PUBLISHED: &str = "lsm-published";
/// What the drives of one engine were set to, by the name of the image; an engine without a row has an image of its name.
const SETTINGS: &[(&str, &[&str])] = &[(
    PUBLISHED,
    &["engine.name=lsm", "lsm.layout=published", "lsm.compaction=leveled", "packing.policy=all"],
)];

/// Keys that were stored, many of them again and again.
const KEYS: u32 = 80;
/// Times that each was.
const ROUNDS: u32 = 5;

/// Keys of every kind of length; the published layout of `lsm` has keys of 4 bytes.
fn key(name: &str, number: u32) -> Key {
    let mut bytes = [0xA5; Key::IDENTITY_BYTES];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    let length = if name == PUBLISHED { 4 } else { [1, 4, 8, 15, 16, 17, 64, 255][number as usize % 8] };
    Key::from_padded(bytes, length).expect("a key's length")
}

/// Values of every kind of size: none, those of less and of more than a page, and one that hash FTLs and stores divide.
fn value(number: u32, round: u32) -> Vec<u8> {
    let bytes = match number {
        77 => 60_000,
        _ => [0, 1, 60, 500, 2000, 4096, 6000][(number + round) as usize % 7],
    };
    format!("{number} in round {round}; ").into_bytes().into_iter().cycle().take(bytes).collect()
}

/// What a key was left with.
fn left(number: u32, last: u32) -> Option<Vec<u8>> {
    (number % 9 != 4).then(|| value(number, last))
}

/// Names of the images that a version keeps.
fn names() -> impl Iterator<Item = &'static str> {
    ENGINES.iter().map(|row| row.name).chain(SETTINGS.iter().map(|(name, _)| *name))
}

fn document(name: &str, path: &Path) -> Document {
    let mut document = Document::profile("cosmos-plus").expect("the profile exists");
    let engine = format!("engine.name={name}");
    let of_name = SETTINGS.iter().find(|(other, _)| *other == name).map(|(_, settings)| settings.to_vec());
    let path = format!("media.path={}", path.display());
    let of_name = of_name.unwrap_or_else(|| vec![&engine]);
    for setting in DRIVE.iter().copied().chain(of_name).chain([&path[..]]) {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    document
}

fn store(name: &str, driver: &Driver, number: u32, round: u32) {
    driver.store(key(name, number), Piece::Bytes(&value(number, round))).expect("there is room");
}

/// Every key is as the rounds to `last` left it, and List has the keys that are there and no other.
fn check(name: &str, driver: &Driver, last: u32) {
    let mut there = Vec::new();
    for number in 0..KEYS {
        let key = key(name, number);
        let mut region = Region::new();
        let found = driver.retrieve(key, &mut region).map(|bytes| region.to_bytes(bytes));
        let expected = left(number, last);
        there.extend(expected.is_some().then_some(key));
        match found {
            Ok(found) => assert!(Some(&found) == expected.as_ref(), "{name}: key {number}"),
            Err(status) => {
                assert_eq!((status, expected), (Status::KEY_NOT_FOUND, None), "{name}: key {number}");
            }
        }
    }
    let mut listed = driver.list(None, 1 << 16).expect("a list");
    listed.sort_unstable();
    there.sort_unstable();
    assert_eq!(listed, there, "{name}");
}

fn with_drive<T>(document: &Document, with: impl FnOnce(&Drive, &Driver) -> T) -> Result<T, String> {
    let bench = Bench::new(document, Sim::new());
    let result = bench.sim.block_on(|| {
        let drive = bench.power_on(None).map_err(|error| error.to_string())?;
        Ok(with(&drive, &bench.connect()))
    });
    bench.sim.clear();
    result
}

pub(super) fn images_of(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images").join(version)
}

/// The kept files of a drive, by the rest of their name: "" and ".protected-1".
fn kept(version: &str, name: &str) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for file in fs::read_dir(images_of(version)).expect("the images of this version") {
        let path = file.expect("a file").path();
        let file_name = path.file_name().and_then(|name| name.to_str()).expect("a plain name").to_owned();
        let rest = file_name.strip_prefix(&format!("{name}.img")).and_then(|rest| rest.strip_suffix(".gz"));
        if let Some(rest) = rest {
            let mut bytes = Vec::new();
            let packed = fs::File::open(&path).expect("it is there");
            GzDecoder::new(packed).read_to_end(&mut bytes).expect("it was packed");
            files.insert(rest.to_owned(), bytes);
        }
    }
    files
}

/// Unpacks the image `name`, and returns its path.
fn unpack(version: &str, name: &str, folder: &Path) -> PathBuf {
    let path = folder.join(format!("{name}.img"));
    let files = kept(version, name);
    assert!(files.contains_key(""), "there is no image of {name} by {version}");
    for (rest, bytes) in files {
        fs::write(format!("{}{rest}", path.display()), bytes).expect("there is room");
    }
    path
}

pub(super) fn versions() -> Vec<String> {
    let folders = fs::read_dir(images_of("")).expect("images are kept");
    let mut versions: Vec<_> =
        folders.map(|folder| folder.unwrap().file_name().into_string().expect("a version")).collect();
    versions.sort();
    versions
}

#[test]
fn a_drive_of_an_earlier_version_opens_with_every_pair_and_goes_on() {
    for version in versions() {
        for name in names() {
            let is_kept = !kept(&version, name).is_empty();
            if !is_kept && version != env!("CARGO_PKG_VERSION") {
                continue; // The engine is younger.
            }
            let folder = tempfile::tempdir().expect("a folder for the image");
            let document = document(name, &unpack(&version, name, folder.path()));
            let opened = with_drive(&document, |drive, driver| {
                let retired = drive.flash_health().retired_blocks;
                assert_eq!(
                    retired, 1,
                    "{name} of {version}: its table of bad blocks has the block that failed"
                );
                check(name, driver, ROUNDS - 1);
                for number in 0..KEYS {
                    match left(number, ROUNDS) {
                        Some(_) => store(name, driver, number, ROUNDS),
                        None => {
                            driver.delete(key(name, number)).expect("deleting what is not there is no error")
                        }
                    }
                }
            });
            opened.unwrap_or_else(|error| panic!("{name} of {version}: {error}"));
            let again = with_drive(&document, |_, driver| check(name, driver, ROUNDS));
            again.unwrap_or_else(|error| panic!("{name} of {version}, written to since: {error}"));
        }
    }
}

/// A release that forgets its images cannot be upgraded from with confidence.
#[test]
fn this_version_keeps_an_image_of_every_engine() {
    let version = env!("CARGO_PKG_VERSION");
    assert!(versions().iter().any(|other| other == version), "images of {version}: see the top of this file");
    for name in names() {
        let files = kept(version, name);
        assert!(files.len() >= 2, "{name}: an image and its journal, not {:?}", files.keys());
    }
}

/// Gives both headers of a programmed page, the first of the last block in use, the version 2 and the check that belongs to
/// it.
fn make_a_page_later(image: &mut [u8]) {
    let check = |header: &[u8], ppa| xxhash_rust::xxh3::xxh3_64_with_seed(&header[..80], ppa).to_le_bytes();
    let places = (4096..image.len()).step_by(4096);
    let pages = || (0..1 << 10).step_by(8);
    let found = places.flat_map(|at| pages().map(move |ppa| (at, ppa)));
    let found = found.filter(|(at, _)| image[*at] == b'P');
    let is_header = |(at, ppa): &(usize, u64)| image[at + 80..at + 88] == check(&image[*at..], *ppa);
    let (at, ppa) = found.filter(is_header).last().expect("a page was programmed");
    for header in image[at..].chunks_exact_mut(88).take(2) {
        header[3] = 2;
        let check = check(header, ppa);
        header[80..].copy_from_slice(&check);
    }
}

/// A record of a version that this program does not know is refused by its name, whichever record of an image it is, and the
/// files stay as they are.
#[test]
fn an_image_of_a_later_version_is_refused_by_name() {
    let version = env!("CARGO_PKG_VERSION");
    for name in names() {
        let folder = tempfile::tempdir().expect("a folder for the image");
        let path = unpack(version, name, folder.path());
        let here = document(name, &path);
        let log = [0, 1].map(|slot| PathBuf::from(format!("{}.protected-{slot}", path.display())));
        let log = log.into_iter().find(|log| log.exists()).expect("a journal");
        let refused = |file: &Path, at: usize, expected: &str| {
            let good = fs::read(file).unwrap();
            let mut later = good.clone();
            // Head 5 is that of a file with packed pages, which this program reads.
            later[at] += if file == path { 2 } else { 1 };
            if file == path {
                // Both heads, and the checks that hold in every version.
                let (first, second) = later.split_at_mut(2048);
                let check = xxhash_rust::xxh3::xxh3_64(&first[..44]).to_le_bytes();
                first[44..52].copy_from_slice(&check);
                second[..60].copy_from_slice(&first[..60]);
            }
            fs::write(file, &later).unwrap();
            let error = with_drive(&here, |_, _| ()).expect_err(expected);
            assert!(
                error.contains(expected) && error.contains("which another kvdrive wrote"),
                "{name}: {error}"
            );
            assert!(error.contains(&format!("kvdrive {version} reads version")), "{name}: {error}");
            assert!(fs::read(file).unwrap() == later, "{name}: the file was changed");
            fs::write(file, good).unwrap();
        };
        refused(&path, 8, "is a drive of version 6");
        refused(&log, 7, "is a journal of protected memory of version 5");
        with_drive(&here, |_, driver| check(name, driver, ROUNDS - 1)).expect("unchanged, it opens");
        let folder = tempfile::tempdir().expect("a folder for the image");
        let path = unpack(version, name, folder.path());
        let document = document(name, &path);
        let mut later = fs::read(&path).unwrap();
        make_a_page_later(&mut later);
        fs::write(&path, &later).unwrap();
        let error = with_drive(&document, |_, _| ()).expect_err(name);
        assert!(error.contains("is a page of version 2, which another kvdrive wrote"), "{name}: {error}");
        // The journal was begun anew before a page was read, which the moment in the head shows.
        assert!(fs::read(&path).unwrap()[4096..] == later[4096..], "{name}: a page was changed");
    }
}

#[test]
#[ignore = "makes the images that a release keeps of its own version, once"]
fn make_images_of_this_version() {
    let to = images_of(env!("CARGO_PKG_VERSION"));
    assert!(!to.join("lsm.img.gz").exists(), "images of a version are made once: {}", to.display());
    fs::create_dir_all(&to).unwrap();
    let folder = tempfile::tempdir().expect("a folder for the image");
    for name in names() {
        let path = folder.path().join(format!("{name}.img"));
        let document = document(name, &path);
        let made = with_drive(&document, |drive, driver| {
            let rule = "[[rule]]\nfault = \"program-error\"\nafter = 20\ntimes = 1\n";
            drive.faults().set(&parse(&document, rule).expect("a rule"), 1);
            for round in 0..ROUNDS {
                for number in 0..KEYS {
                    store(name, driver, number, round);
                }
                for number in (0..KEYS).filter(|number| left(*number, round).is_none()) {
                    driver.delete(key(name, number)).expect("it is there");
                }
            }
            assert!(drive.settle(), "everything is in the files");
            assert_eq!(drive.flash_health().retired_blocks, 1, "{name}: a block has failed");
            check(name, driver, ROUNDS - 1);
            for file in fs::read_dir(folder.path()).unwrap() {
                // As they are now: the end of a program that is killed.
                let from = file.unwrap().path();
                let file_name = from.file_name().unwrap().to_str().unwrap();
                if file_name.starts_with(&format!("{name}.img")) {
                    let packed = fs::File::create(to.join(format!("{file_name}.gz"))).unwrap();
                    let mut packer = GzEncoder::new(packed, Compression::best());
                    packer.write_all(&fs::read(&from).unwrap()).unwrap();
                    packer.finish().unwrap();
                }
            }
        });
        made.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
