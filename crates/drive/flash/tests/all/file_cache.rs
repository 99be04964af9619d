//! Pages of a `file` medium that are kept in memory: the medium answers as one without them, and what happens to its file
//! beside it is found by whoever reads the file.

use std::os::unix::fs::FileExt;
use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_flash::media::{self, MediaOptions, PageData};
use kvdrive_flash::power::machine_file::faults::{Call, Fault, arm};
use kvdrive_flash::{BlockId, FlashConfig, Geometry, Media, MediaPage, Ppa};
use kvdrive_sim::Rng;

use super::flash::{config, page, spare};

fn open_of(geometry: &Geometry, folder: &tempfile::TempDir, cache_bytes: u64) -> Box<dyn Media> {
    let options = MediaOptions { path: Some(folder.path().join("image")), cache_bytes, ..Default::default() };
    (media::kind("file").unwrap().open)(geometry, &options).unwrap()
}

fn open(folder: &tempfile::TempDir, cache_bytes: u64) -> Box<dyn Media> {
    open_of(&config().geometry(), folder, cache_bytes)
}

fn read(media: &dyn Media, ppa: u32) -> MediaPage<(Vec<u8>, bool)> {
    match media.read_with_loss(Ppa(ppa)) {
        MediaPage::Programmed((data, is_lost)) => {
            MediaPage::Programmed((data.to_bytes(media.geometry().page_bytes), is_lost))
        }
        MediaPage::Erased => MediaPage::Erased,
        MediaPage::Damaged => MediaPage::Damaged,
    }
}

/// System calls that read a file.
fn reads_of(work: impl FnOnce()) -> u64 {
    arm(None);
    work();
    arm(None)[0]
}

/// Changes the data of page `ppa` in the file, as a failing disk would.
fn damage(folder: &tempfile::TempDir, ppa: u32) {
    let path = folder.path().join("image");
    let bytes = std::fs::read(&path).unwrap();
    let data = page(ppa.into()).to_bytes(config().geometry().page_bytes);
    let at = bytes.windows(data.len()).position(|there| there == data).expect("the page is in the file");
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[!data[7]], at as u64 + 7).unwrap();
}

#[test]
fn a_page_that_is_kept_costs_no_system_call_and_another_one_a_single_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut media = open(&folder, 64 << 10);
    media.program(Ppa(0), &page(0), &spare(0));
    assert_eq!(reads_of(|| drop(media.read(Ppa(0)))), 1, "its check is known from the program");
    assert_eq!(reads_of(|| drop(media.read(Ppa(0)))), 0);
    drop(media);
    let media = open(&folder, 0);
    assert_eq!(reads_of(|| drop(media.read(Ppa(0)))), 2, "its header, and its data");
    assert_eq!(reads_of(|| drop(media.read(Ppa(0)))), 1, "no page is kept");
}

#[test]
fn damage_behind_a_page_that_is_kept_is_found_by_the_next_program_that_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut media = open(&folder, 64 << 10);
    for ppa in [0, 1] {
        media.program(Ppa(ppa), &page(ppa.into()), &spare(ppa.into()));
    }
    let whole = read(&*media, 0);
    damage(&folder, 0);
    damage(&folder, 1);
    assert_eq!(read(&*media, 0), whole, "it is kept");
    assert_eq!(read(&*media, 1), MediaPage::Damaged, "it is not");
    drop(media);
    let media = open(&folder, 64 << 10);
    assert_eq!([0, 1].map(|ppa| read(&*media, ppa)), [MediaPage::Damaged, MediaPage::Damaged]);
}

#[test]
fn a_sector_that_cannot_be_read_is_a_damaged_page_unless_it_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut media = open(&folder, 64 << 10);
    for ppa in [0, 1] {
        media.program(Ppa(ppa), &page(ppa.into()), &spare(ppa.into()));
    }
    let whole = read(&*media, 0);
    arm(Some(Fault { call: Call::Read, which: 0..u64::MAX, error: std::io::ErrorKind::Other }));
    let under_fault = [0, 1].map(|ppa| read(&*media, ppa));
    arm(None);
    assert_eq!(under_fault, [whole, MediaPage::Damaged]);
    assert_eq!(read(&*media, 1), MediaPage::Damaged, "what could not be read once does not come back");
}

/// Every change of a page reaches the next reader of it, also where pages are written without their gaps.
#[test]
fn a_medium_that_keeps_pages_answers_as_one_that_keeps_none() {
    for page_bytes in [1024, 16_384] {
        changed_at_random(&FlashConfig { page_bytes, ..config() }.geometry());
    }
}

fn changed_at_random(geometry: &Geometry) {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let kept_bytes = 24 * u64::from(geometry.page_bytes);
    let mut pair = [open_of(geometry, &folder, kept_bytes), open_of(geometry, &other, 0)];
    let mut rng = Rng::stream(7, "file cache");
    let pages = u64::from(10 * geometry.pages_per_block);
    for step in 0..3000u64 {
        let [ppa, to, also] = [(); 3].map(|()| rng.below(pages) as u32);
        let (choice, header) = (rng.below(16), spare(step));
        for media in &mut pair {
            let is_erased = |media: &dyn Media, ppa| media.read_spare(ppa) == MediaPage::Erased;
            match (choice, Ppa(ppa), Ppa(to)) {
                (0, ppa, _) => media.tear(ppa),
                (1, ppa, _) => media.flip(ppa),
                (2, ppa, _) => media.blank(ppa),
                (3, ppa, _) => media.erase(geometry.block_of(ppa)),
                (4, ppa, to) if is_erased(&**media, to) => media.copy(ppa, to),
                (5, ppa, _) if is_erased(&**media, ppa) => {
                    let lost = kvdrive_flash::Spare { lost: true, ..header };
                    media.program(ppa, &PageData::Region(Rc::new(Region::new())), &lost);
                }
                (6..=10, ppa, _) if is_erased(&**media, ppa) => media.program(ppa, &page(step), &header),
                _ => {}
            }
        }
        for ppa in [ppa, to, also] {
            assert!(read(&*pair[0], ppa) == read(&*pair[1], ppa), "step {step}, page {ppa}");
        }
    }
    let programmed = |media: &dyn Media| {
        (0..geometry.blocks()).map(|block| media.programmed_pages(BlockId(block))).collect::<Vec<_>>()
    };
    assert_eq!(programmed(&*pair[0]), programmed(&*pair[1]));
}
