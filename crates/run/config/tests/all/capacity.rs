//! The size of a drive as a number of bytes, given or chosen.

use kvdrive_config::{Document, Naming, PROFILES, RunOptions, binary};
use kvdrive_device::engines::ENGINES;

const GIB: u64 = 1 << 30;

fn options(given: &[(&str, &str)], sets: &[&str]) -> RunOptions {
    let mut options = given.iter().fold(RunOptions::default(), |all, (name, value)| all.with(name, value));
    sets.iter().for_each(|set| options.set(*set));
    options
}

fn size(document: &Document) -> (u64, u32) {
    let flash = document.config().unwrap().flash;
    (flash.geometry().data_bytes(), flash.blocks_per_die)
}

fn error(options: &RunOptions) -> String {
    options.document().map(drop).unwrap_err().to_string()
}

#[test]
fn a_capacity_is_blocks_of_a_die_rounded_and_said() {
    let eight = options(&[("capacity", "8GiB")], &[]).document().unwrap();
    assert_eq!((size(&eight), eight.rounded_capacity()), ((8 * GIB, 128), None));
    assert!(eight.to_string().contains("blocks_per_die = 128 # [user] instead of 1024"));
    // A block on each of 32 dies is 64 MiB.
    let decimal = options(&[("capacity", "5.5GB")], &[]).document().unwrap();
    assert_eq!(size(&decimal), (82 * (64 << 20), 82));
    let said = decimal.rounded_capacity().unwrap();
    assert_eq!(said, "capacity 5.125 GiB: 82 blocks a die, nearest to 5.5GB");
    for of in [options(&[], &["flash.capacity=8GiB"]), options(&[], &["flash.capacity=8589934592"])] {
        assert_eq!(size(&of.document().unwrap()), (8 * GIB, 128));
    }
}

/// The capacity stays if channels or pages are set beside it, in either order and in a file; blocks contradict it.
#[test]
fn a_capacity_follows_the_division_and_contradicts_blocks() {
    let mut by_file = options(&[("capacity", "8GiB")], &[]);
    by_file.file("a.toml".into(), "flash.channels = 8\n".into());
    let mut in_file = RunOptions::default();
    in_file.file("b.toml".into(), "[flash]\ncapacity = \"8GiB\"\nchannels = 8\n".into());
    for of in [by_file, in_file, options(&[("capacity", "8GiB")], &["flash.channels=8"])] {
        assert_eq!(size(&of.document().unwrap()), (8 * GIB, 64));
    }
    let both = error(&options(&[("capacity", "8GiB")], &["flash.blocks_per_die=7"]));
    assert!(both.contains("--capacity 8GiB sets flash.blocks_per_die too, to another value"), "{both}");
    let same = options(&[("capacity", "8GiB")], &["flash.blocks_per_die=128"]);
    assert_eq!(size(&same.document().unwrap()), (8 * GIB, 128));
    let lists = options(&[("capacity", "4GiB,8GiB")], &[]).documents().unwrap();
    assert_eq!(lists.iter().map(|one| size(one).1).collect::<Vec<_>>(), [64, 128]);
    let shrunk = options(&[("engine", "plus"), ("scale", "1/64"), ("capacity", "8GiB")], &[]);
    assert_eq!(size(&shrunk.document().unwrap()).0, 8 * GIB, "explicit sizes are not shrunk");
}

/// What a refusal allows works, at both ends and on every engine's own profile, and what is below or above does not.
#[test]
fn a_refused_capacity_is_answered_with_the_sizes_that_work() {
    for engine in ENGINES.iter().map(|row| row.name) {
        let of = |size: &str| options(&[("engine", engine), ("capacity", size)], &[]);
        let line = error(&of("1B"));
        assert!(line.starts_with("--capacity 1B: 1B; allowed with engine.name = \""), "{line}");
        let sizes = line.split("flash: ").nth(1).unwrap().replace(' ', "");
        let (least, rest) = sizes.split_once("to").unwrap();
        let (most, step) = rest.split_once(",instepsof").unwrap();
        for end in [least, most] {
            of(end).document().unwrap_or_else(|error| panic!("{engine} {end}: {error}"));
        }
        let [least, most] = [least, most].map(|end| size(&of(end).document().unwrap()).0);
        let step = kvdrive_text::quantity::parse(kvdrive_text::Unit::Bytes, step).unwrap() as u64;
        for beyond in [least - step, most + step] {
            assert_eq!(
                error(&of(&beyond.to_string())).split("; ").nth(1),
                line.split("; ").nth(1),
                "{engine}"
            );
        }
    }
    let keyword = RunOptions::new(Naming::Keyword).with("capacity", "0");
    assert_eq!(error(&keyword), "capacity=\"0\": 0; allowed: a size, as 8GiB");
    let wrong = error(&options(&[("capacity", "many")], &[]));
    assert!(wrong.starts_with("--capacity many: expected a size") && wrong.ends_with("as 8GiB"), "{wrong}");
    let other = error(&options(&[("capacity", "8GiB")], &["host.depth=999"]));
    assert!(other.starts_with("host.depth: 999"), "another mistake is not the capacity's: {other}");
}

#[test]
fn a_drive_in_memory_takes_a_quarter_of_it_unless_size_or_medium_is_given() {
    let fit = |given: &[(&str, &str)], sets: &[&str], memory: u64| {
        let mut document = options(given, sets).document().unwrap();
        let said = document
            .fit_to_memory(memory / 4, "a quarter of this machine's memory", "--capacity, or --media file")
            .unwrap();
        (size(&document).0, said)
    };
    let (bytes, said) = fit(&[], &[], 22 * GIB + 1);
    assert_eq!(bytes, 11 * GIB / 2);
    let line = "capacity 5.5 GiB: a quarter of this machine's memory; the profile has 64 GiB: --capacity, or --media file";
    assert_eq!(said.as_deref(), Some(line));
    assert_eq!(fit(&[], &[], 256 * GIB), (64 * GIB, None), "enough");
    for given in [[("capacity", "16GiB")], [("media", "tags")], [("media", "ram")]] {
        assert_eq!(fit(&given, &[], 4 * GIB).1, None, "{given:?}");
    }
    assert_eq!(
        fit(&[], &["flash.blocks_per_die=1024"], 4 * GIB),
        (64 * GIB, None),
        "given, as the profile has it"
    );
    assert_eq!(fit(&[], &["flash.channels=8"], 4 * GIB), (128 * GIB, None));
    assert_eq!(fit(&[("media", "file")], &["media.path=a"], 4 * GIB), (64 * GIB, None), "not in memory");
    // Every profile has a drive for a machine without memory: the least that its engine works with.
    for profile in PROFILES {
        let mut document = Document::profile(profile.name).unwrap();
        let before = size(&document).0;
        let said = document.fit_to_memory(0, "no memory", "none").unwrap();
        assert!(said.unwrap().contains(": the least with engine.name"), "{}", profile.name);
        assert!(size(&document).0 < before / 4, "{}", profile.name);
    }
}

#[test]
fn a_size_is_shown_in_powers_of_two() {
    let sizes = [1023, 4096, 5632 << 20, 64 << 30, (1 << 20) + 1, 5_500_000_000, (1164 << 30) + (64 << 20)];
    let shown = ["1023 B", "4 KiB", "5.5 GiB", "64 GiB", "1024.001 KiB", "5245.2087 MiB", "1164.0625 GiB"];
    assert_eq!(sizes.map(binary), shown);
}
