//! Medium `file`: pages at fixed places of an image file. It survives the end of the program at any
//! instruction.
//!
//! ```text
//!   0              4096                     4096 + block_bytes
//!   +--------------+------------------------+------------------------+---
//!   | head, twice  | block 0                | block 1                | ...
//!   +--------------+------------------------+------------------------+---
//!   head:   "KVDRFILE" | version u32 | geometry 7 x u32 | check u64        at 0 and at 2048
//!   epoch:  epoch u64 | check u64                                          at 1024 and at 3072
//!   block:  pages x [header 88 B | header 88 B], rounded up to 4096 | page 0 | page 1 | ...
//! ```
//!
//! The file is as long as its last programmed block and has holes where nothing was programmed.
//!
//! *When is a page programmed?* When one of its two headers fits. Data is written before its headers, so
//! whoever finds the headers finds the data; a program killed in between leaves a page that still reads as
//! erased. Erasing fills the headers of a block with zeros and leaves the data. A page is erased when both
//! its headers are all zero.
//!
//! *The epoch* is that of the last checkpoint that was begun of the protected image beside it
//! ([`crate::power::file_log`]): by it files of different moments are told apart.
//!
//! *`sync`*: waits for the machine's storage between data and headers, and after the headers, so that the
//! same holds when the machine loses power; of a new file for its folder, too.
//!
//! A write that the machine refuses (disk full, I/O error) panics with an [`ImageFailure`]: a drive that
//! cannot keep what it acknowledges must not go on.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::FileExt;
use std::panic::panic_any;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_sim::TaskCell;
use xxhash_rust::xxh3::xxh3_64;

use super::data::PageData;
use super::image::{GEOMETRY_KEYS, geometry_bytes, geometry_fields};
use super::{ImageError, Media, MediaKind, MediaOptions, MediaPage, Opened};
use crate::flash::geometry::{BlockId, Geometry, Ppa};
use crate::flash::spare::{SPARE_USED_BYTES, Spare, data_check};

/// The row of `file` in [`super::MEDIA`].
pub const KIND: MediaKind = MediaKind {
    name: "file",
    origin: "an image file; survives the end of the program, with sync also that of the machine",
    has_file: true,
    open,
    from_image,
};

/// What a drive panics with whose image file the machine does not let it read or write.
#[derive(Clone, Debug)]
pub struct ImageFailure {
    /// The file.
    pub path: PathBuf,
    /// What could not be done, and why.
    pub what: String,
}

const MAGIC: &[u8; 8] = b"KVDRFILE";
const VERSION: u32 = 1;
const HEAD_BYTES: u64 = 4096;
const SECOND_HEAD_AT: usize = 2048;
const EPOCHS_AT: [u64; 2] = [1024, 3072];
const EPOCH_BYTES: usize = 16;
/// Page data starts at a multiple of this, so that it lies in whole pages of the file system.
const ALIGN: u64 = 4096;

/// Where the bytes of the layout are.
enum Backing {
    /// In a file.
    File { file: File, path: PathBuf, sync: bool },
    /// In memory: an image, or a fork.
    Memory(TaskCell<Vec<u8>>),
}

fn fail(path: &Path, what: &str, error: &std::io::Error) -> ! {
    panic_any(ImageFailure { path: path.to_owned(), what: format!("{what}: {error}") })
}

impl Backing {
    fn bytes(&self) -> u64 {
        match self {
            Backing::File { file, .. } => file.metadata().expect("the size of the image file").len(),
            Backing::Memory(bytes) => bytes.borrow().len() as u64,
        }
    }

    /// Fills `out` from byte `at` on; what lies beyond the end reads as zero.
    fn read_at(&self, at: u64, out: &mut [u8]) {
        out.fill(0);
        match self {
            Backing::File { file, path, .. } => {
                let mut done = 0;
                while done < out.len() {
                    match file.read_at(&mut out[done..], at + done as u64) {
                        Ok(0) => return,
                        Ok(count) => done += count,
                        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                        Err(error) => fail(path, "cannot be read", &error),
                    }
                }
            }
            Backing::Memory(bytes) => {
                let bytes = bytes.borrow();
                let from = (at as usize).min(bytes.len());
                let count = out.len().min(bytes.len() - from);
                out[..count].copy_from_slice(&bytes[from..from + count]);
            }
        }
    }

    fn write_at(&self, at: u64, data: &[u8]) {
        match self {
            Backing::File { file, path, .. } => {
                file.write_all_at(data, at).unwrap_or_else(|error| fail(path, "cannot be written", &error));
            }
            Backing::Memory(bytes) => {
                let mut bytes = bytes.borrow_mut();
                let end = at as usize + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[at as usize..end].copy_from_slice(data);
            }
        }
    }

    /// Waits until everything written is on the machine's storage, if that was asked for.
    fn settle(&self) {
        if let Backing::File { file, path, sync: true } = self {
            file.sync_data().unwrap_or_else(|error| fail(path, "cannot be synced", &error));
        }
    }
}

/// Pages in the layout of an image file.
pub struct FileMedia {
    geometry: Geometry,
    backing: Backing,
    /// Bytes before the first page of a block.
    table_bytes: u64,
    block_bytes: u64,
    /// A page on its way to the file.
    scratch: Vec<u8>,
}

fn head(geometry: &Geometry) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&geometry_bytes(geometry));
    let check = xxh3_64(&head);
    head.extend_from_slice(&check.to_le_bytes());
    head
}

fn open(geometry: &Geometry, options: &MediaOptions) -> Opened {
    let path = options.path.as_deref().ok_or_else(|| ImageError::whole("medium file needs a path"))?;
    let file = open_file(path).map_err(|error| ImageError::whole(error.to_string()).at(path))?;
    if options.sync {
        sync_folder(path).map_err(|error| ImageError::whole(error.to_string()).at(path))?;
    }
    let backing = Backing::File { file, path: path.to_owned(), sync: options.sync };
    Ok(Box::new(FileMedia::on(geometry, backing).map_err(|error| error.at(path))?))
}

/// The file is this drive's alone until it is closed, also by a kill.
fn open_file(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    match file.try_lock() {
        Ok(()) if !file.metadata()?.is_file() => Err(std::io::Error::other("is no regular file")),
        Ok(()) => Ok(file),
        Err(TryLockError::Error(error)) => Err(error),
        Err(TryLockError::WouldBlock) => Err(std::io::Error::other("another drive has this image")),
    }
}

/// Waits until the machine's storage knows of the file at `path`: a file that was made is only then found
/// after a power cut.
pub fn sync_folder(path: &Path) -> std::io::Result<()> {
    let path = path.canonicalize()?;
    File::open(path.parent().expect("a file is in a folder"))?.sync_all()
}

fn epoch_record(epoch: u64) -> [u8; EPOCH_BYTES] {
    let mut record = [0; EPOCH_BYTES];
    record[..8].copy_from_slice(&epoch.to_le_bytes());
    let check = xxh3_64(&record[..8]);
    record[8..].copy_from_slice(&check.to_le_bytes());
    record
}

/// Notes in an image file that checkpoint `epoch` of its protected image is about to be written.
pub fn write_epoch(path: &Path, epoch: u64) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    EPOCHS_AT.iter().try_for_each(|at| file.write_all_at(&epoch_record(epoch), *at))?;
    file.sync_data()
}

/// The epoch that an image file holds; `None` when it has none that is whole.
pub fn read_epoch(path: &Path) -> std::io::Result<Option<u64>> {
    let file = File::open(path)?;
    let mut newest = None;
    for at in EPOCHS_AT {
        let mut record = [0; EPOCH_BYTES];
        match file.read_exact_at(&mut record, at) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => continue,
            read => read?,
        }
        let epoch = u64::from_le_bytes(record[..8].try_into().expect("8 bytes"));
        newest = newest.max((record == epoch_record(epoch)).then_some(epoch));
    }
    Ok(newest)
}

fn from_image(geometry: &Geometry, bytes: &[u8]) -> Opened {
    Ok(Box::new(FileMedia::on(geometry, Backing::Memory(TaskCell::new(bytes.to_vec())))?))
}

impl FileMedia {
    fn on(geometry: &Geometry, backing: Backing) -> Result<FileMedia, ImageError> {
        let media = FileMedia::layout(geometry, backing);
        let head = head(geometry);
        let mut block = vec![0; HEAD_BYTES as usize];
        media.backing.read_at(0, &mut block);
        let whole = |at: usize| block[at..at + head.len()] == head[..];
        if whole(0) || whole(SECOND_HEAD_AT) {
            return Ok(media);
        }
        // A new file, or one whose maker was killed before it had written its heads and thus anything else.
        if media.backing.bytes() <= HEAD_BYTES && head.starts_with(trimmed(&block)) {
            block.fill(0);
            block[..head.len()].copy_from_slice(&head);
            block[SECOND_HEAD_AT..SECOND_HEAD_AT + head.len()].copy_from_slice(&head);
            media.backing.write_at(0, &block);
            media.backing.settle();
            return Ok(media);
        }
        Err(FileMedia::refuse(geometry, &block))
    }

    /// Why `block`, the beginning of a file, is not that of a drive of `geometry`.
    fn refuse(geometry: &Geometry, block: &[u8]) -> ImageError {
        let fields = geometry_fields(geometry);
        let size = MAGIC.len() + 4 + 4 * fields.len();
        for at in [0, SECOND_HEAD_AT] {
            let (body, check) = block[at..at + size + 8].split_at(size);
            if !body.starts_with(MAGIC) || *check != xxh3_64(body).to_le_bytes()[..8] {
                continue;
            }
            let mut numbers = body[MAGIC.len()..]
                .chunks_exact(4)
                .map(|number| u32::from_le_bytes(number.try_into().expect("4 bytes")));
            let version = numbers.next().expect("the head has it");
            if version != VERSION {
                return ImageError::whole(format!(
                    "an image of version {version}; this program reads version {VERSION}: take another path"
                ));
            }
            let names = GEOMETRY_KEYS.iter().zip(numbers).zip(fields);
            let others = names.filter(|((_, of_image), configured)| of_image != configured);
            let others = others.map(|((key, of_image), configured)| {
                format!("flash.{key} {of_image} instead of {configured}")
            });
            return ImageError::whole(format!(
                "a drive of another geometry, {}: set that, or take another path",
                others.collect::<Vec<_>>().join(", ")
            ));
        }
        ImageError::new(0, "this is no image file of a drive; take another path")
    }

    fn layout(geometry: &Geometry, backing: Backing) -> FileMedia {
        let pages = u64::from(geometry.pages_per_block);
        let table_bytes = (pages * SPARE_USED_BYTES as u64).next_multiple_of(ALIGN);
        let block_bytes = (table_bytes + pages * u64::from(geometry.page_bytes)).next_multiple_of(ALIGN);
        FileMedia { geometry: *geometry, backing, table_bytes, block_bytes, scratch: Vec::new() }
    }

    fn block_at(&self, block: BlockId) -> u64 {
        HEAD_BYTES + u64::from(block.0) * self.block_bytes
    }

    fn header_at(&self, ppa: Ppa) -> u64 {
        let page = u64::from(self.geometry.page_of(ppa));
        self.block_at(self.geometry.block_of(ppa)) + page * SPARE_USED_BYTES as u64
    }

    fn data_at(&self, ppa: Ppa) -> u64 {
        let page = u64::from(self.geometry.page_of(ppa));
        self.block_at(self.geometry.block_of(ppa))
            + self.table_bytes
            + page * u64::from(self.geometry.page_bytes)
    }

    fn header(&self, ppa: Ppa) -> MediaPage<(Spare, u64)> {
        let mut headers = [0; SPARE_USED_BYTES];
        self.backing.read_at(self.header_at(ppa), &mut headers);
        match Spare::decode_pair(ppa, &headers) {
            Some(found) => MediaPage::Programmed(found),
            None if headers.iter().all(|byte| *byte == 0) => MediaPage::Erased,
            None => MediaPage::Damaged,
        }
    }
}

fn trimmed(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}

impl Media for FileMedia {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&self, ppa: Ppa) -> MediaPage<PageData> {
        let (_, check) = match self.header(ppa) {
            MediaPage::Programmed(found) => found,
            MediaPage::Erased => return MediaPage::Erased,
            MediaPage::Damaged => return MediaPage::Damaged,
        };
        let mut data = vec![0; self.geometry.page_bytes as usize];
        self.backing.read_at(self.data_at(ppa), &mut data);
        if data_check(ppa, &data) != check {
            return MediaPage::Damaged;
        }
        MediaPage::Programmed(PageData::Region(Rc::new(Region::from_bytes(data))))
    }

    fn read_spare(&self, ppa: Ppa) -> MediaPage<Spare> {
        match self.header(ppa) {
            MediaPage::Programmed((spare, _)) => MediaPage::Programmed(spare),
            MediaPage::Erased => MediaPage::Erased,
            MediaPage::Damaged => MediaPage::Damaged,
        }
    }

    fn program(&mut self, ppa: Ppa, data: &PageData, spare: &Spare) {
        self.scratch.resize(self.geometry.page_bytes as usize, 0);
        data.copy_to(0, &mut self.scratch);
        let header = spare.encode(ppa, data_check(ppa, &self.scratch));
        let mut headers = [0; SPARE_USED_BYTES];
        headers[..header.len()].copy_from_slice(&header);
        headers[header.len()..].copy_from_slice(&header);
        self.backing.write_at(self.data_at(ppa), &self.scratch);
        self.backing.settle();
        self.backing.write_at(self.header_at(ppa), &headers);
        self.backing.settle();
    }

    fn erase(&mut self, block: BlockId) {
        let headers = vec![0; self.geometry.pages_per_block as usize * SPARE_USED_BYTES];
        self.backing.write_at(self.block_at(block), &headers);
        self.backing.settle();
    }

    fn is_blank(&self) -> bool {
        let end = self.backing.bytes();
        let mut blocks =
            (0..self.geometry.blocks()).map(BlockId).take_while(|block| self.block_at(*block) < end);
        blocks.all(|block| self.programmed_pages(block) == 0)
    }

    fn programmed_pages(&self, block: BlockId) -> u32 {
        if self.block_at(block) >= self.backing.bytes() {
            return 0;
        }
        let mut headers = vec![0; self.geometry.pages_per_block as usize * SPARE_USED_BYTES];
        self.backing.read_at(self.block_at(block), &mut headers);
        let last = headers.iter().rposition(|byte| *byte != 0);
        last.map_or(0, |last| (last / SPARE_USED_BYTES) as u32 + 1)
    }

    fn tear(&mut self, ppa: Ppa) {
        self.backing.write_at(self.header_at(ppa), &[0xA5; SPARE_USED_BYTES]);
    }

    /// One bit, in a byte that the page's address chooses.
    fn flip(&mut self, ppa: Ppa) {
        if let MediaPage::Programmed(_) = self.read(ppa) {
            let at = self.data_at(ppa) + u64::from(ppa.0 % self.geometry.page_bytes);
            let mut byte = [0];
            self.backing.read_at(at, &mut byte);
            self.backing.write_at(at, &[byte[0] ^ 1 << (ppa.0 % 8)]);
        }
    }

    fn blank(&mut self, ppa: Ppa) {
        self.backing.write_at(self.header_at(ppa), &[0; SPARE_USED_BYTES]);
    }

    fn fork(&self) -> Box<dyn Media> {
        Box::new(FileMedia::layout(&self.geometry, Backing::Memory(TaskCell::new(self.image()))))
    }

    fn image(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.backing.bytes() as usize];
        self.backing.read_at(0, &mut bytes);
        bytes
    }
}
