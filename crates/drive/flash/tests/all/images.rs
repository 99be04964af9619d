//! Media: the pages that they keep, and their images.

use std::rc::Rc;

use kvdrive_content::Region;
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
        let expected = format!("{name}: an image of version {written}; this program reads version 4");
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
