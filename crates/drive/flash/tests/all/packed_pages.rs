//! Pages of a `file` medium that are written without their gaps: how many bytes that takes, and which program opens the file.

use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_flash::media::{self, MediaOptions, PageData};
use kvdrive_flash::power::machine_file::faults::{arm, written_bytes};
use kvdrive_flash::{BlockId, FlashConfig, Media, MediaPage, Ppa};

use super::flash::{config, spare};

const PAGE_BYTES: u32 = 16_384;

fn large_pages() -> FlashConfig {
    FlashConfig { page_bytes: PAGE_BYTES, ..config() }
}

fn open(folder: &tempfile::TempDir) -> Box<dyn Media> {
    let options = MediaOptions { path: Some(folder.path().join("image")), ..Default::default() };
    (media::kind("file").unwrap().open)(&large_pages().geometry(), &options).unwrap()
}

/// A page whose four sectors hold a value of `bytes` bytes each.
fn page(seed: u8, bytes: usize) -> PageData {
    let mut region = Region::new();
    (0..4).for_each(|sector| region.write(sector * 4096, Piece::Bytes(&vec![seed | 1; bytes])));
    Rc::new(region).into()
}

fn read(media: &dyn Media, ppa: u32) -> Vec<u8> {
    match media.read(Ppa(ppa)) {
        MediaPage::Programmed(data) => data.to_bytes(PAGE_BYTES),
        other => panic!("page {ppa}: {other:?}"),
    }
}

/// The version in each of the two heads.
fn versions(folder: &tempfile::TempDir) -> [u8; 2] {
    let bytes = std::fs::read(folder.path().join("image")).unwrap();
    [bytes[8], bytes[2048 + 8]]
}

#[test]
fn a_page_takes_the_bytes_of_its_values_and_two_writes() {
    let folder = tempfile::tempdir().unwrap();
    let mut media = open(&folder);
    // The first page of a block makes the file longer, and the first packed one changes the head.
    for ppa in [0, 4] {
        media.program(Ppa(ppa), &page(1, 10), &spare(ppa.into()));
    }
    let sizes = [(1, 100), (2, 1000), (3, 1100), (5, 2040), (6, 3000), (7, 4096)];
    let headers = 2 * 88;
    for ((ppa, bytes), expected) in sizes.into_iter().zip([4096, 4096, 8192, 8192, 16_384, 16_384]) {
        let (_, before) = (arm(None), written_bytes());
        media.program(Ppa(ppa), &page(ppa as u8, bytes), &spare(ppa.into()));
        assert_eq!((arm(None)[1], written_bytes() - before), (2, expected + headers), "values of {bytes} B");
    }
    drop(media);
    let media = open(&folder);
    for (ppa, bytes) in sizes {
        assert!(read(&*media, ppa) == page(ppa as u8, bytes).to_bytes(PAGE_BYTES), "values of {bytes} B");
    }
}

/// An earlier program refuses a file with packed pages by its head, and opens one without.
#[test]
fn a_head_gets_its_later_version_before_the_first_packed_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let mut media = open(&folder);
    media.program(Ppa(0), &page(1, 4096), &spare(0));
    media.erase(BlockId(4));
    drop(media);
    assert_eq!(versions(&folder), [4, 4], "nothing in it is packed");
    let early = std::fs::read(&path).unwrap();
    let mut media = open(&folder);
    assert!(read(&*media, 0) == page(1, 4096).to_bytes(PAGE_BYTES));
    media.program(Ppa(1), &page(3, 100), &spare(1));
    assert_eq!(versions(&folder), [5, 5]);
    drop(media);

    // The program was killed after it had written the first head: the second follows before any packed page.
    let late = std::fs::read(&path).unwrap();
    let mut between = early;
    between[..100].copy_from_slice(&late[..100]);
    std::fs::write(&path, between).unwrap();
    let mut media = open(&folder);
    assert!(read(&*media, 0) == page(1, 4096).to_bytes(PAGE_BYTES));
    assert_eq!(versions(&folder), [5, 4]);
    media.program(Ppa(1), &page(5, 100), &spare(1));
    assert_eq!(versions(&folder), [5, 5]);
    drop(media);

    // One head is damaged.
    for at in [20, 2048 + 20] {
        let mut damaged = late.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        let media = open(&folder);
        assert!(read(&*media, 1) == page(3, 100).to_bytes(PAGE_BYTES));
    }
}

#[test]
fn a_flipped_bit_of_a_packed_page_is_found_and_a_copy_of_it_stays_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let mut media = open(&folder);
    for ppa in 0..3 {
        media.program(Ppa(ppa), &page(ppa as u8, 100), &spare(ppa.into()));
    }
    media.copy(Ppa(0), Ppa(16));
    assert!(read(&*media, 16) == page(0, 100).to_bytes(PAGE_BYTES));
    media.flip(Ppa(1));
    media.flip(Ppa(1));
    media.copy(Ppa(1), Ppa(17));
    assert_eq!([1, 17].map(|ppa| media.read(Ppa(ppa))), [MediaPage::Damaged, MediaPage::Damaged]);
    drop(media);
    // Any byte that a value uses, or that says how many there are.
    let path = folder.path().join("image");
    let whole = std::fs::read(&path).unwrap();
    let packed = [[100, 0].repeat(4), vec![2 | 1; 400]].concat();
    let at = whole.windows(packed.len()).position(|there| there == packed).expect("page 2 is in the file");
    for byte in (0..packed.len()).step_by(7) {
        let mut damaged = whole.clone();
        damaged[at + byte] ^= 0x40;
        std::fs::write(&path, damaged).unwrap();
        assert_eq!(open(&folder).read(Ppa(2)), MediaPage::Damaged, "byte {byte}");
    }
}
