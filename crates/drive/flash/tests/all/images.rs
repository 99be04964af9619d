//! Media: the pages that they keep, and their images.

use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_flash::bad_blocks::BadBlocks;
use kvdrive_flash::media::{self, MEDIA, MediaOptions};
use kvdrive_flash::{BlockId, Geometry, Media, MediaPage, Ppa, Spare};

use super::flash::{config, open, page, page_of_items, spare};

/// The content of a medium: header, and data as bytes, of every page.
fn content(media: &dyn Media) -> Vec<(MediaPage<Spare>, MediaPage<Vec<u8>>)> {
    let geometry = *media.geometry();
    let data = |ppa| match media.read(ppa) {
        MediaPage::Erased => MediaPage::Erased,
        MediaPage::Damaged => MediaPage::Damaged,
        MediaPage::Programmed(data) => MediaPage::Programmed(data.to_bytes(geometry.page_bytes)),
    };
    (0..geometry.pages() as u32).map(|ppa| (media.read_spare(Ppa(ppa)), data(Ppa(ppa)))).collect()
}

/// A medium with whole, torn, blank and erased pages.
fn furnished(name: &str, geometry: &Geometry, directory: &tempfile::TempDir) -> Box<dyn Media> {
    let mut media = open(name, geometry, directory);
    for ppa in [0, 1, 2, 16, 17, 18, 19, 40] {
        media.program(Ppa(ppa), &page(ppa.into()), &spare(ppa.into()));
    }
    media.program(Ppa(41), &Rc::new(Region::from_bytes(vec![3; 1024])).into(), &spare(41));
    media.program(Ppa(42), &Rc::new(Region::new()).into(), &spare(42));
    media.program(Ppa(44), &page_of_items(), &spare(44));
    media.tear(Ppa(3));
    media.tear(Ppa(17));
    media.blank(Ppa(18));
    media
}

#[test]
fn every_medium_keeps_pages_and_survives_as_an_image() {
    let geometry = config().geometry();
    let mut shown = Vec::new();
    for kind in MEDIA {
        let directory = tempfile::tempdir().unwrap();
        let mut media = furnished(kind.name, &geometry, &directory);
        let seen = content(&*media);
        assert_eq!(
            seen[16],
            (MediaPage::Programmed(spare(16)), MediaPage::Programmed(page(16).to_bytes(1024)))
        );
        assert_eq!(seen[44].1, MediaPage::Programmed(page_of_items().to_bytes(1024)));
        assert_eq!(seen[17], (MediaPage::Damaged, MediaPage::Damaged));
        assert_eq!(seen[18], (MediaPage::Erased, MediaPage::Erased));
        assert_eq!(media.programmed_pages(BlockId(0)), 4);
        assert_eq!(media.programmed_pages(BlockId(10)), 3);
        let image = media.image();
        let again = media::from_image(kind.name, &geometry, &image).unwrap();
        assert_eq!(content(&*again), seen, "{}", kind.name);
        assert_eq!(again.image(), image);
        let fork = media.fork();
        media.erase(BlockId(4));
        assert_eq!(media.read(Ppa(16)), MediaPage::Erased);
        assert_eq!(media.programmed_pages(BlockId(4)), 0);
        media.program(Ppa(16), &page(9), &spare(9));
        assert_eq!(media.read_spare(Ppa(16)), MediaPage::Programmed(spare(9)));
        assert_eq!(content(&*fork), seen, "a fork goes its own way");
        shown.push(seen);
    }
    assert!(shown.windows(2).all(|pair| pair[0] == pair[1]), "media show different content");
}

#[test]
fn a_medium_that_lets_go_of_items_keeps_the_others_and_the_heads() {
    let geometry = config().geometry();
    for kind in MEDIA {
        let directory = tempfile::tempdir().unwrap();
        let mut media = open(kind.name, &geometry, &directory);
        media.program(Ppa(0), &page_of_items(), &spare(0));
        let fork = media.fork();
        // Other users of the page, the fork and readers, do not see the change.
        let before = media.read(Ppa(0));
        media.discard_part(Ppa(0), 316, 184);
        assert_eq!((media.read(Ppa(0)), fork.read(Ppa(0))), (before.clone(), before));
        drop(fork);
        let let_go = media.discard_part(Ppa(0), 316, 184);
        assert!(let_go || kind.name != "tags", "tags keeps no more than it must");
        assert!(!media.discard_part(Ppa(1), 316, 184), "nothing is there");
        let image = media.image();
        // A hint of coming reads changes nothing, whether the page exists or not; items in memory are
        // returned.
        let parts: Vec<_> =
            (0..20).flat_map(|page| [0, 300, 316, 600, 900, 5000].map(|at| (Ppa(page), at))).collect();
        let mut seen = Vec::new();
        media.expect(&parts, &mut |index, item| seen.push((parts[index], item.to_vec())));
        let kept = [(0, 1), (600, 3)].map(|(at, byte)| ((Ppa(0), at), vec![byte; 200]));
        assert_eq!(seen, if let_go { kept.to_vec() } else { Vec::new() });
        assert_eq!(media.image(), image);
        let again = media::from_image(kind.name, &geometry, &image).unwrap();
        assert_eq!(again.image(), image);
        let mut expected = page_of_items().to_bytes(1024);
        if let_go {
            expected[316..500].fill(0);
        }
        assert_eq!(content(&*again)[0], (MediaPage::Programmed(spare(0)), MediaPage::Programmed(expected)));
        assert!(
            matches!(media.read(Ppa(0)), MediaPage::Programmed(page) if page.item(600, 200)[..] == [3; 200])
        );
    }
}

#[test]
fn any_altered_byte_of_an_image_is_noticed() {
    let geometry = Geometry { dies_per_channel: 1, ..config().geometry() };
    for kind in MEDIA {
        let directory = tempfile::tempdir().unwrap();
        let mut media = open(kind.name, &geometry, &directory);
        for ppa in 0..3 {
            media.program(Ppa(ppa), &page(ppa.into()), &spare(ppa.into()));
        }
        media.tear(Ppa(3));
        let (seen, image) = (content(&*media), media.image());
        let mut damaged = 0;
        for at in 0..image.len() {
            let mut altered = image.clone();
            altered[at] ^= 1 << (at % 8);
            let Ok(media) = media::from_image(kind.name, &geometry, &altered) else { continue };
            for (now, before) in content(&*media).iter().zip(&seen) {
                assert!(
                    now.0 == before.0 || before.0 == MediaPage::Erased,
                    "{}: header, byte {at}",
                    kind.name
                );
                let kept = now.1 == before.1;
                assert!(kept || now.1 == MediaPage::Damaged, "{}: data, byte {at}", kind.name);
                damaged += usize::from(!kept);
            }
        }
        assert!(damaged > 100, "{}: only {damaged} alterations were noticed", kind.name);
    }
}

#[test]
fn an_image_that_ends_early_is_refused_or_shorter_of_pages() {
    let geometry = config().geometry();
    for kind in MEDIA {
        let directory = tempfile::tempdir().unwrap();
        let media = furnished(kind.name, &geometry, &directory);
        let (seen, image) = (content(&*media), media.image());
        for end in (0..image.len()).step_by(7) {
            let Ok(media) = media::from_image(kind.name, &geometry, &image[..end]) else { continue };
            for (now, before) in content(&*media).iter().zip(&seen) {
                assert!(
                    now.1 == before.1 || !matches!(now.1, MediaPage::Programmed(_)),
                    "{} to {end}",
                    kind.name
                );
            }
        }
    }
}

#[test]
fn images_of_other_drives_are_refused() {
    let (geometry, other) = (config().geometry(), Geometry { pages_per_block: 8, ..config().geometry() });
    for kind in MEDIA {
        let directory = tempfile::tempdir().unwrap();
        let image = furnished(kind.name, &geometry, &directory).image();
        let error = media::from_image(kind.name, &other, &image).err().unwrap();
        assert!(error.to_string().contains("another"), "{error}");
        assert!(media::from_image(kind.name, &geometry, b"something else").is_err());
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("image"), b"#!/bin/sh\n").unwrap();
    let options =
        MediaOptions { path: Some(directory.path().join("image")), sync: false, ..Default::default() };
    let error = (media::kind("file").unwrap().open)(&geometry, &options).err().unwrap();
    let path = directory.path().join("image").display().to_string();
    assert_eq!(
        error.to_string(),
        format!("{path}, byte 0: this is no image file of a drive; use another path")
    );
    assert_eq!(std::fs::read(directory.path().join("image")).unwrap(), b"#!/bin/sh\n", "it was altered");
}

/// One line names the file and the problem.
#[test]
fn an_image_file_that_does_not_fit_says_why() {
    let geometry = config().geometry();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let name = path.display().to_string();
    let refused = |geometry: &Geometry, path: &std::path::Path| {
        let options = MediaOptions { path: Some(path.to_owned()), sync: false, ..Default::default() };
        (media::kind("file").unwrap().open)(geometry, &options).err().unwrap().to_string()
    };
    drop(furnished("file", &geometry, &directory));
    let other = Geometry { pages_per_block: 8, spare_bytes: 4096, ..geometry };
    assert_eq!(
        refused(&other, &path),
        format!(
            "{name}: a drive of another geometry, flash.pages_per_block {} instead of 8, flash.spare_bytes {} instead of \
             4096: set these values, or use another path",
            geometry.pages_per_block, geometry.spare_bytes
        )
    );
    // Heads of earlier versions are shorter, and have their check at another place.
    for (written, has_check) in [(2, false), (7, true)] {
        let mut bytes = std::fs::read(&path).unwrap();
        for at in [0, 2048] {
            bytes[at + 8] = written;
            let check = xxhash_rust::xxh3::xxh3_64(&bytes[at..at + 44]).to_le_bytes();
            bytes[at + 44..at + 52].copy_from_slice(if has_check { &check } else { &[0; 8] });
        }
        std::fs::write(&path, bytes).unwrap();
        let said = refused(&geometry, &path);
        let expected = format!(
            "{name}: is a drive of version {written}, which another kvdrive wrote; kvdrive 0.2.0 reads version 5"
        );
        assert!(said.starts_with(&expected), "{said}");
    }
    let folder = refused(&geometry, directory.path());
    assert!(folder.starts_with(&format!("{}: Is a directory", directory.path().display())), "{folder}");
}

#[test]
fn a_file_is_there_when_it_is_opened_again() {
    let geometry = config().geometry();
    let directory = tempfile::tempdir().unwrap();
    let seen = content(&*furnished("file", &geometry, &directory));
    let options =
        MediaOptions { path: Some(directory.path().join("image")), sync: true, ..Default::default() };
    let mut again = (media::kind("file").unwrap().open)(&geometry, &options).unwrap();
    assert_eq!(content(&*again), seen);
    again.program(Ppa(43), &page(43), &spare(43));
    let error = (media::kind("file").unwrap().open)(&geometry, &options).err().unwrap().to_string();
    assert!(
        error.ends_with("another program has it open; end that program or use a copy of the image"),
        "{error}"
    );
    drop(again);
    assert_eq!(open("file", &geometry, &directory).read_spare(Ppa(43)), MediaPage::Programmed(spare(43)));
}

/// Makes both headers of a page in an image those of version 2.
fn of_a_later_version(image: &mut [u8], ppa: Ppa) {
    let written = spare(ppa.0.into()).encode(ppa, 0);
    let found = image.windows(72).position(|bytes| bytes == &written[..72]);
    let first = found.expect("the page is in the image");
    for header in image[first..].chunks_exact_mut(88).take(2) {
        header[3] = 2;
        let check = xxhash_rust::xxh3::xxh3_64_with_seed(&header[..80], ppa.0.into());
        header[80..].copy_from_slice(&check.to_le_bytes());
    }
}

#[test]
fn a_page_of_a_later_version_is_named_and_ends_writing() {
    let geometry = config().geometry();
    let expected =
        "page 40 is a page of version 2, which another kvdrive wrote; kvdrive 0.2.0 reads version 1";
    for kind in MEDIA {
        let directory = tempfile::tempdir().unwrap();
        let mut image = furnished(kind.name, &geometry, &directory).image();
        of_a_later_version(&mut image, Ppa(40));
        match media::from_image(kind.name, &geometry, &image) {
            Err(error) => assert!(error.to_string().ends_with(expected), "{error}"),
            Ok(media) => {
                assert_eq!(media.foreign(), None, "it was not met yet");
                assert_eq!(media.read_spare(Ppa(0)), MediaPage::Programmed(spare(0)));
                assert_eq!(media.read_spare(Ppa(40)), MediaPage::Damaged);
                assert!(media.foreign().unwrap().to_string().ends_with(expected));
            }
        }
        if !kind.has_file {
            continue;
        }
        let path = directory.path().join("image");
        std::fs::write(&path, &image).unwrap();
        let mut media = open(kind.name, &geometry, &directory);
        assert_eq!(media.read(Ppa(40)), MediaPage::Damaged);
        media.program(Ppa(43), &page(43), &spare(43));
        media.erase(BlockId(0));
        assert!(media.protection().is_on() && media.foreign().is_some());
        drop(media);
        assert!(std::fs::read(&path).unwrap() == image, "the file was changed");
    }
}

#[test]
fn a_table_of_bad_blocks_of_a_later_version_is_named() {
    let geometry = config().geometry();
    for kind in MEDIA {
        let directory = tempfile::tempdir().unwrap();
        let mut media = furnished(kind.name, &geometry, &directory);
        let table = BadBlocks::none(&geometry);
        media.set_bad_blocks(&table);
        let mut image = media.image();
        let bytes = table.to_bytes();
        while let Some(at) = image.windows(bytes.len()).position(|there| there == bytes) {
            let later = &mut image[at..at + bytes.len()];
            later[7] = b'3';
            let (body, check) = later.split_at_mut(bytes.len() - 8);
            check.copy_from_slice(&xxhash_rust::xxh3::xxh3_64(body).to_le_bytes());
        }
        let error = media::from_image(kind.name, &geometry, &image).err().unwrap().to_string();
        let expected = "is a table of bad blocks of version 3, which another kvdrive wrote; kvdrive 0.2.0 reads version 2";
        assert!(error.ends_with(expected), "{}: {error}", kind.name);
    }
}

#[test]
fn a_medium_in_memory_of_a_later_version_is_named() {
    let geometry = config().geometry();
    for kind in MEDIA.iter().filter(|kind| !kind.has_file) {
        let mut image = open(kind.name, &geometry, &tempfile::tempdir().unwrap()).image();
        image[10] = 1;
        // Magic, format, geometry, identity, number of blocks; then their check.
        let check = xxhash_rust::xxh3::xxh3_64(&image[..64]).to_le_bytes();
        image[64..72].copy_from_slice(&check);
        let error = media::from_image(kind.name, &geometry, &image).err().unwrap().to_string();
        assert!(
            error.contains("byte 10: is a medium in memory of version 1, which another kvdrive"),
            "{error}"
        );
    }
}
