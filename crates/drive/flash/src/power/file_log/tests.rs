//! What a log on files detects after its files were changed.

use std::io::ErrorKind;

use super::*;
use crate::identity::IDENTITY_BYTES;
use crate::power::machine_file::faults::{Call, Fault, arm};

const DRIVE: Identity = Identity::from_bytes([7; IDENTITY_BYTES]);

/// The content of the image file and both slots.
type Files = [Option<Vec<u8>>; 3];

fn paths(base: &Path) -> [PathBuf; 3] {
    [base.to_owned(), slot_path(base, 0), slot_path(base, 1)]
}

fn files(base: &Path) -> Files {
    paths(base).map(|path| std::fs::read(path).ok())
}

fn put(base: &Path, files: &Files) {
    for (path, bytes) in paths(base).iter().zip(files) {
        match bytes {
            // A new file: some file systems wait for storage when an existing one is overwritten.
            Some(bytes) => {
                let _ = std::fs::remove_file(path);
                std::fs::write(path, bytes).unwrap();
            }
            None => _ = std::fs::remove_file(path),
        }
    }
}

fn empty() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("drive.img");
    std::fs::write(&base, []).unwrap();
    (folder, base)
}

fn filled() -> (tempfile::TempDir, PathBuf) {
    let (folder, base) = empty();
    let mut log = FileLog::create(&base, DRIVE, ImageMoment::default(), b"checkpoint", false).unwrap();
    log.add(b"first");
    log.write().unwrap();
    log.add(b"");
    log.add(b"third");
    log.write().unwrap();
    log.add(b"never written");
    (folder, base)
}

fn expected() -> Vec<Vec<u8>> {
    vec![b"first".to_vec(), Vec::new(), b"third".to_vec()]
}

#[test]
fn records_come_back_and_a_checkpoint_replaces_them() {
    let (_folder, base) = filled();
    let found = FileLog::read(&base, DRIVE).unwrap().unwrap();
    assert_eq!((found.image.as_slice(), &found.records), (&b"checkpoint"[..], &expected()));
    let mut log = FileLog::create(&base, DRIVE, found.moment(), b"second", true).unwrap();
    log.add(b"after");
    log.write().unwrap();
    let found = FileLog::read(&base, DRIVE).unwrap().unwrap();
    assert_eq!((found.image.as_slice(), found.records), (&b"second"[..], vec![b"after".to_vec()]));
}

/// A backup was put in place while the drive was in use: it is another drive's.
#[test]
fn a_checkpoint_leaves_files_alone_that_have_taken_the_place_of_its_own() {
    for replaced in 0..2 {
        let (folder, base) = empty();
        let mut log = FileLog::create(&base, DRIVE, ImageMoment::default(), b"checkpoint", false).unwrap();
        let path = [base.clone(), log.path.clone()][replaced].clone();
        std::fs::rename(&path, folder.path().join("moved")).unwrap();
        std::fs::write(&path, vec![9; 5000]).unwrap();
        let before = files(&base);
        let error = log.checkpoint(b"second").expect_err("another file is there").to_string();
        assert!(error.starts_with(path.to_str().unwrap()) && error.contains("was removed, moved"), "{error}");
        assert!(files(&base) == before, "{}", path.display());
    }
}

/// The states of the files that a kill can leave between `before` and `after`, where slot `slot` has grown or
/// was rewritten: `begun` is the image before everything else, if it is written first.
fn between(before: &Files, begun: Option<Vec<u8>>, slot: usize, after: &Files) -> Vec<Files> {
    let mut state = before.clone();
    let mut states = vec![state.clone()];
    if begun.is_some() {
        state[0] = begun;
        states.push(state.clone());
    }
    let old = before[slot].as_deref().unwrap_or_default();
    let new = after[slot].as_ref().expect("it was written");
    let kept = if new.starts_with(old) { old.len() } else { 0 };
    for end in kept..=new.len() {
        state[slot] = Some(new[..end].to_vec());
        states.push(state.clone());
    }
    state[0] = after[0].clone();
    states.push(state);
    states.push(after.clone());
    states
}

/// The image of `files` with this moment.
fn with_moment(base: &Path, files: &Files, moment: ImageMoment) -> Option<Vec<u8>> {
    put(base, files);
    MomentCell::of(base).unwrap().write(&moment, false).unwrap();
    std::fs::read(base).ok()
}

/// The checkpoint found, and the number of groups after it.
fn position(base: &Path) -> Option<(u64, u64)> {
    let found = FileLog::read(base, DRIVE).unwrap_or_else(|error| panic!("{error}"))?;
    assert_eq!(found.records.len() as u64, found.groups, "each has one");
    Some((found.epoch, found.groups))
}

#[test]
fn killed_at_any_write_it_goes_on_where_it_was() {
    for sync in [false, true] {
        // The log continues in files of its own.
        let ((_folder, base), (_scene, scene)) = (empty(), empty());
        let mut before = files(&base);
        let mut stood = None;
        let mut log: Option<FileLog> = None;
        for step in 0..9 {
            let present = log.as_ref().map_or(ImageMoment::default(), FileLog::moment);
            let is_checkpoint = step % 4 == 0;
            let next = if is_checkpoint {
                (present.checkpoint + 1, 0)
            } else {
                (present.checkpoint, present.groups + 1)
            };
            match &mut log {
                None => log = Some(FileLog::create(&base, DRIVE, present, b"none", sync).unwrap()),
                Some(log) if is_checkpoint => log.checkpoint(&[step; 9]).unwrap(),
                Some(log) => {
                    log.add(&[step; 5]);
                    log.write().unwrap();
                }
            }
            let after = files(&base);
            let begun = ImageMoment { begun: next.0, ..present };
            let begun = is_checkpoint.then(|| with_moment(&scene, &before, begun)).flatten();
            for state in between(&before, begun, 1 + (next.0 % 2) as usize, &after) {
                put(&scene, &state);
                let found = position(&scene);
                assert!(found == stood || found == Some(next), "step {step}: {found:?} from {stood:?}");
            }
            assert_eq!(position(&base), Some(next));
            (before, stood) = (after, Some(next));
        }
    }
}

#[test]
fn a_log_cut_anywhere_is_refused_and_named() {
    for sync in [false, true] {
        let (_folder, base) = empty();
        let mut log = FileLog::create(&base, DRIVE, ImageMoment::default(), b"checkpoint", sync).unwrap();
        for _ in 0..4 {
            log.add(b"record");
            log.write().unwrap();
        }
        let whole = std::fs::read(slot_path(&base, 1)).unwrap();
        for end in 0..whole.len() {
            std::fs::write(slot_path(&base, 1), &whole[..end]).unwrap();
            let refused =
                FileLog::read(&base, DRIVE).err().unwrap_or_else(|| panic!("cut at {end}")).to_string();
            assert!(refused.contains("group 4 of checkpoint 1"), "{refused}");
        }
        std::fs::remove_file(slot_path(&base, 1)).unwrap();
        assert!(FileLog::read(&base, DRIVE).is_err());
    }
}

/// Variants of the bytes from `from` on, which may be anything: cut off, zeros, or torn inside.
fn torn(whole: &[u8], from: usize) -> Vec<Vec<u8>> {
    let mut torn = Vec::new();
    for end in from..whole.len() {
        let zeros = |to: usize| [&whole[..end], &vec![0; to - end]].concat();
        torn.extend([zeros(end), zeros(whole.len()), zeros(whole.len() + 4096)]);
        let mut hole = whole.to_vec();
        hole[from..=end].fill(0);
        torn.push(hole);
    }
    torn
}

/// A file system may record a length before it has the bytes.
#[test]
fn a_group_or_checkpoint_that_was_torn_and_never_promised_is_dropped() {
    for sync in [false, true] {
        let ((_folder, base), (_scene, scene)) = (empty(), empty());
        let mut log = FileLog::create(&base, DRIVE, ImageMoment::default(), b"checkpoint", sync).unwrap();
        let mut before = files(&base);
        for step in 1..8 {
            let stood = (log.epoch, log.groups);
            let begun = ImageMoment { begun: log.epoch + 1, ..log.moment() };
            if step % 3 == 0 {
                log.checkpoint(&[step; 9]).unwrap();
                before[0] = with_moment(&scene, &before, begun);
            } else {
                log.add(b"a record");
                log.write().unwrap();
            }
            let after = files(&base);
            let slot = 1 + (log.epoch % 2) as usize;
            let from = if step % 3 == 0 { 0 } else { before[slot].as_ref().expect("it is there").len() };
            for bytes in torn(after[slot].as_ref().expect("it is there"), from) {
                let mut state = before.clone();
                state[slot] = Some(bytes);
                put(&scene, &state);
                assert_eq!(position(&scene), Some(stood), "step {step}");
            }
            before = after;
        }
    }
}

/// With `sync` the moment may be older than the log: a group that follows shows that the damaged one was complete.
#[test]
fn a_damaged_group_that_another_follows_is_no_torn_one() {
    let (_folder, base) = empty();
    let mut log = FileLog::create(&base, DRIVE, ImageMoment::default(), b"checkpoint", true).unwrap();
    let earlier = std::fs::read(&base).unwrap();
    let mut ends = Vec::new();
    for _ in 0..3 {
        log.add(b"a record");
        log.write().unwrap();
        ends.push(log.end as usize);
    }
    std::fs::write(&base, earlier).unwrap();
    let whole = std::fs::read(slot_path(&base, 1)).unwrap();
    for at in log.checkpoint_end as usize..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        std::fs::write(slot_path(&base, 1), bytes).unwrap();
        assert_eq!(FileLog::read(&base, DRIVE).is_ok(), at >= ends[1], "byte {at} of {ends:?}");
    }
}

/// All pairs of an image and a log of one life: those that a kill can leave are accepted, and no others.
#[test]
fn an_image_fits_the_log_of_its_moment_and_of_the_next() {
    for sync in [false, true] {
        let (_folder, base) = empty();
        let mut log = FileLog::create(&base, DRIVE, ImageMoment::default(), b"image", sync).unwrap();
        let mut moments = vec![(log.moment(), files(&base))];
        for step in 1..12 {
            if step % 5 == 0 {
                log.checkpoint(&[step]).unwrap();
            } else {
                log.add(b"record");
                log.write().unwrap();
            }
            moments.push((log.moment(), files(&base)));
        }
        for (image, of_image) in &moments {
            for (log, of_log) in &moments {
                put(&base, &[of_image[0].clone(), of_log[1].clone(), of_log[2].clone()]);
                let ahead = log.groups.checked_sub(image.groups);
                let fits =
                    log.checkpoint == image.checkpoint && ahead.is_some_and(|ahead| ahead <= 1 || sync);
                assert_eq!(FileLog::read(&base, DRIVE).is_ok(), fits, "image {image:?}, log {log:?}");
            }
        }
    }
}

#[test]
fn either_copy_of_the_moment_may_be_damaged_and_not_both() {
    let (_folder, base) = filled();
    let whole = std::fs::read(&base).unwrap();
    for at in 0..MOMENTS_AT[1] as usize - MOMENTS_AT[0] as usize {
        let [first, second] = MOMENTS_AT.map(|copy| copy as usize + at);
        if whole.get(second).is_none() {
            break;
        }
        for damaged in [vec![first], vec![second], vec![first, second]] {
            let mut bytes = whole.clone();
            damaged.iter().for_each(|at| bytes[*at] ^= 4);
            std::fs::write(&base, bytes).unwrap();
            assert_eq!(FileLog::read(&base, DRIVE).is_ok(), damaged.len() == 1, "{damaged:?}");
        }
    }
}

/// Its checksums are valid.
#[test]
fn a_checkpoint_that_none_can_follow_is_damage() {
    let (_folder, base) = empty();
    for epoch in [EPOCH_LIMIT + 1, u64::MAX - 1, u64::MAX] {
        drop(write_checkpoint(&slot_path(&base, 0), DRIVE, epoch, b"crafted", false).unwrap());
        let refused = FileLog::read(&base, DRIVE).err().expect("no epoch can come after it").to_string();
        assert!(refused.contains("the number of the checkpoint is damaged"), "{refused}");
    }
    drop(write_checkpoint(&slot_path(&base, 0), DRIVE, EPOCH_LIMIT, b"crafted", false).unwrap());
    let moment = ImageMoment { checkpoint: EPOCH_LIMIT, groups: 0, begun: EPOCH_LIMIT };
    MomentCell::of(&base).unwrap().write(&moment, false).unwrap();
    let found = FileLog::read(&base, DRIVE).unwrap().unwrap();
    drop(FileLog::create(&base, DRIVE, found.moment(), b"next", false).unwrap());
}

#[test]
fn a_flipped_byte_is_damage_and_never_another_content() {
    let (_folder, base) = filled();
    let path = slot_path(&base, 1);
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        std::fs::write(&path, &bytes).unwrap();
        assert!(FileLog::read(&base, DRIVE).is_err(), "byte {at} flipped and was not noticed");
    }
}

/// The effect of `write` on a log with one group while call `number` of this kind fails.
fn failing(
    base: &Path,
    call: Call,
    number: u64,
    write: fn(&mut FileLog) -> Result<(), FileError>,
) -> Option<PathBuf> {
    std::fs::write(base, []).unwrap();
    let mut log = FileLog::create(base, DRIVE, ImageMoment::default(), b"checkpoint", true).unwrap();
    log.add(b"first");
    log.write().unwrap();
    log.add(b"second");
    arm(Some(Fault { call, which: number..u64::MAX, error: ErrorKind::StorageFull }));
    let written = write(&mut log);
    arm(None);
    written.err().map(|error| error.path)
}

/// First the group, then the moment: the failing file is named, and earlier content is kept.
#[test]
fn each_call_of_a_group_or_checkpoint_may_fail_and_its_file_is_named() {
    let (_folder, base) = empty();
    let (old, new) = (slot_path(&base, 1), slot_path(&base, 0));
    let group = |call, number| failing(&base, call, number, FileLog::write);
    for (call, number, file, groups) in
        [(Call::Write, 0, &old, 1), (Call::Sync, 0, &old, 2), (Call::Write, 1, &base, 2)]
    {
        assert_eq!(group(call, number).as_ref(), Some(file), "{call:?} {number}");
        assert_eq!(position(&base), Some((1, groups)), "{call:?} {number}");
    }
    assert_eq!(group(Call::Write, 2), None);
    let checkpoint = |log: &mut FileLog| log.checkpoint(b"next");
    let writes = [(&base, false), (&base, false), (&new, false), (&base, true), (&base, true), (&old, true)];
    let syncs = [(&base, false), (&new, true), (&new, true), (&base, true)];
    for (call, files) in [(Call::Write, &writes[..]), (Call::Sync, &syncs[..])] {
        for (number, (file, is_new)) in files.iter().enumerate() {
            let named = failing(&base, call, number as u64, checkpoint);
            assert_eq!(named.as_ref(), Some(*file), "{call:?} {number}");
            let found = if *is_new { (2, 0) } else { (1, 1) };
            assert_eq!(position(&base), Some(found), "{call:?} {number}");
        }
        assert_eq!(failing(&base, call, files.len() as u64, checkpoint), None);
    }
}

/// Version 3 had another head.
#[test]
fn a_log_of_an_earlier_version_is_refused_with_its_number() {
    let (_folder, base) = filled();
    let path = slot_path(&base, 1);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[7] = b'3';
    std::fs::write(&path, &bytes).unwrap();
    let refused = FileLog::read(&base, DRIVE).err().expect("it cannot be read").to_string();
    assert!(
        refused.contains("protected-1: is a journal of protected memory of version 3, which"),
        "{refused}"
    );
}
