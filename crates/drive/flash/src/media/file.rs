//! Medium `file`: pages at fixed positions of an image file. It survives the end of the program at any
//! instruction.
//!
//! ```text
//!   0              4096
//!   +--------------+--------------------------+-----------+-----------+---
//!   | head, twice  | table of bad blocks, 2 x | block 0   | block 1   | ...     the spare blocks come last
//!   +--------------+--------------------------+-----------+-----------+---
//!   head:   "KVDRFILE" | version u32, 4 or 5 | geometry 8 x u32 | check u64
//!           | identity of the drive 16 B | check u64                       at 0 and at 2048
//!   extent: bytes u64 | check u64                                          at 512 and at 2560
//!   moment: begun u64 | checkpoint u64 | groups u64 | check u64            at 1024 and at 3072
//!   table:  as [`crate::bad_blocks`] draws it, rounded up to 4096; zeros before the first one
//!   block:  pages x [header 88 B | header 88 B], rounded up to 4096 | page 0 | page 1 | ...
//! ```
//!
//! *The version* in the head is that of everything in the file. A program that writes any record here in a later form makes
//! the head's version a later one first, so that a program which does not know that form refuses the file by its head.
//! Magic, version, geometry and their check stay where they are in every version. A page or a table of another version under
//! a head of this one is refused as well: from the moment it is met, nothing is written.
//!
//! The file ends after its last programmed block and has holes where nothing was programmed. The *extent* in
//! its head gives that length ([`extent`]): a shorter file was truncated, and is refused unless it is opened
//! read-only. The missing part then reads as erased.
//!
//! *A page that is half empty*, since its values do not fill the sectors that they take, is written without its gaps
//! ([`sectors`]): a header of version 1 says so, and a head of version 5 says that there may be such pages. A file begins with
//! version 4, and its head gets version 5 before the first packed page is written.
//!
//! *When does a page count as programmed?* When one of its two headers is valid. Data is written before its
//! headers, so a page with headers has its data; a program killed in between leaves a page that still reads
//! as erased. An erase fills the headers of a block with zeros and leaves the data. A page is erased if both
//! its headers are all zero.
//!
//! *The moment* records the progress of the protected image beside the file ([`crate::power::file_log`]); it
//! tells files of different moments apart. A checkpoint writes both copies; each group of records writes one
//! of them, alternately: damage to one copy leaves the other, which is one group older.
//!
//! *`sync`* waits for the machine's storage between data and headers, and after the headers, so that the same
//! holds if the machine loses power; for a new file it also syncs the folder.
//!
//! *Reading*: a page that is read and whole is kept in memory ([`cache`], at most `media.cache_bytes`), and so is the check in
//! its header. A page that is damaged in the file while it is kept is found when it is read after it has left memory, or by
//! the next program that opens the file.
//!
//! *I/O errors of the machine*: a page that cannot be read is damaged. When a write fails (disk full, I/O
//! error) the file stays as it is then, and later changes are kept in memory
//! ([`crate::power::machine_file`]).

mod backing;
pub mod cache;
pub mod extent;
mod head;
mod moment;
mod sectors;

use std::cell::Cell;
use std::fs::{OpenOptions, TryLockError};
use std::path::Path;
use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_sim::TaskCell;

use super::data::PageData;
use super::{Media, MediaKind, MediaOptions, MediaPage, MediumError, Opened};
use crate::bad_blocks::{self, BadBlocks};
use crate::geometry::{BlockId, Geometry, Ppa};
use crate::identity::Identity;
use crate::power::machine_file::{self, MachineFile, Shadow, WriteProtection};
use crate::spare::{self, Form, HEADER_BYTES, SPARE_USED_BYTES, Spare, data_check};
use crate::versions::Unread;
use backing::{ALIGN, Backing, UNREADABLE};
use cache::PageCache;
use extent::Extent;
use head::{HEAD_BYTES, HEADS_AT, WITH_PACKED, WITHOUT_PACKED, head};
pub(crate) use moment::MOMENTS_AT;
pub use moment::{ImageMoment, MomentCell};

/// The row of `file` in [`super::MEDIA`].
pub const KIND: MediaKind = MediaKind {
    name: "file",
    origin: "an image file; survives the end of the program and, with media.sync, a crash of the machine",
    has_file: true,
    open,
    from_image,
};

/// What a frozen medium keeps.
struct Frozen {
    /// The table at the time of the freeze, and dies that were lost later.
    bad_blocks: BadBlocks,
    /// The whole image, if it is in memory; a file keeps its content, and its shadow has the later changes.
    image: Vec<u8>,
}

/// Pages in the layout of an image file.
pub struct FileMedia {
    geometry: Geometry,
    identity: Identity,
    /// The version in its heads.
    version: Cell<u32>,
    backing: Backing,
    protection: WriteProtection,
    bad_blocks: BadBlocks,
    /// If set, images show the content at the time of the freeze.
    frozen: Option<Frozen>,
    /// A page whose header has another version, and that version.
    foreign: Cell<Option<(Ppa, u8)>>,
    /// Bytes before the first page of a block.
    table_bytes: u64,
    block_bytes: u64,
    /// Pages that were read and checked.
    cache: TaskCell<PageCache>,
    /// Buffer for a page that is written to the file.
    scratch: Vec<u8>,
    /// Buffer for one in its packed form.
    packed: TaskCell<Vec<u8>>,
}

fn open(geometry: &Geometry, options: &MediaOptions) -> Opened {
    let path = options.path.as_deref().ok_or_else(|| MediumError::whole("medium file needs a path"))?;
    let wrong = |error: std::io::Error| MediumError::whole(error.to_string()).at(path);
    let file = open_file(path, options.read_only).map_err(wrong)?;
    let extent = Extent::of(&file).map_err(wrong)?;
    let protection = WriteProtection::default();
    if options.read_only {
        if file.bytes().map_err(wrong)? == 0 {
            return Err(MediumError::whole("it is empty: there is no drive in it").at(path));
        }
        protection.turn_on_as_asked(path);
    } else if let Some(shortened) = extent.shortened(&file).map_err(wrong)? {
        let advice = "put back the whole file, or read what is left of it with media.read_only = true";
        return Err(MediumError::whole(format!("{shortened}: {advice}")).at(path));
    } else if options.sync
        && let Err(error) = machine_file::sync_folder(path)
    {
        protection.turn_on(path, "cannot be synced", &error);
    }
    let (shadow, unreadable) = (Shadow::default(), TaskCell::default());
    let backing = Backing::File { file, sync: options.sync, protection, shadow, extent, unreadable };
    let media = FileMedia::on(geometry, backing, options.identity).map_err(|error| error.at(path))?;
    Ok(Box::new(FileMedia { cache: TaskCell::new(PageCache::new(geometry, options.cache_bytes)), ..media }))
}

/// Opens and locks the file: it belongs to this drive alone until it is closed, also by a kill.
fn open_file(path: &Path, read_only: bool) -> std::io::Result<MachineFile> {
    let mut options = OpenOptions::new();
    options.read(true);
    if read_only {
        // Opening a pipe would wait for a writer.
        if !std::fs::metadata(path)?.is_file() {
            return Err(std::io::Error::other("is no regular file"));
        }
    } else {
        options.write(true).create(true).truncate(false);
    }
    let file = MachineFile::open(path, &options)?;
    match file.lock() {
        Ok(()) if !file.file().metadata()?.is_file() => Err(std::io::Error::other("is no regular file")),
        Ok(()) => Ok(file),
        Err(TryLockError::Error(error)) => Err(error),
        Err(TryLockError::WouldBlock) => Err(std::io::Error::other(
            "another program has it open; end that program or use a copy of the image",
        )),
    }
}

fn from_image(geometry: &Geometry, bytes: &[u8]) -> Opened {
    let backing = Backing::Memory(TaskCell::new(bytes.to_vec()));
    Ok(Box::new(FileMedia::on(geometry, backing, Identity::default())?))
}

impl FileMedia {
    /// The content of `backing`, or a new drive `new` if it is empty.
    fn on(geometry: &Geometry, backing: Backing, new: Identity) -> Result<FileMedia, MediumError> {
        let mut block = vec![0; HEAD_BYTES as usize];
        let unreadable =
            |error: std::io::Error| MediumError::new(0, format!("the head cannot be read: {error}"));
        backing.read_at(0, &mut block).map_err(unreadable)?;
        if let Some((identity, version)) = head::found_in(geometry, &block) {
            let mut media = FileMedia::layout(geometry, backing, identity, version);
            media.bad_blocks = media.read_table()?;
            if media.bad_blocks.is_read_only() {
                media.protection.turn_on_without_spares();
            }
            return Ok(media);
        }
        // A new file, or one whose creator was killed before it had written its heads, and thus anything
        // else.
        if backing.bytes() <= HEAD_BYTES && head::is_unfinished(geometry, &block) {
            let media = FileMedia::layout(geometry, backing, new, WITHOUT_PACKED);
            let head = head(geometry, new, WITHOUT_PACKED);
            block.fill(0);
            HEADS_AT.iter().for_each(|at| block[*at..*at + head.len()].copy_from_slice(&head));
            media.backing.write_at(0, &block);
            media.backing.settle();
            if let Some(failure) = media.backing.protection().reason() {
                return Err(MediumError::whole(failure.what.clone()));
            }
            return Ok(media);
        }
        Err(head::refuse(geometry, &block))
    }

    fn layout(geometry: &Geometry, backing: Backing, identity: Identity, version: u32) -> FileMedia {
        let pages = u64::from(geometry.pages_per_block);
        let table_bytes = (pages * SPARE_USED_BYTES as u64).next_multiple_of(ALIGN);
        let block_bytes = (table_bytes + pages * u64::from(geometry.page_bytes)).next_multiple_of(ALIGN);
        FileMedia {
            geometry: *geometry,
            identity,
            version: Cell::new(version),
            protection: backing.protection(),
            backing,
            bad_blocks: BadBlocks::none(geometry),
            frozen: None,
            foreign: Cell::new(None),
            table_bytes,
            block_bytes,
            cache: TaskCell::new(PageCache::new(geometry, 0)),
            scratch: Vec::new(),
            packed: TaskCell::default(),
        }
    }

    /// Positions of the two copies of the table of bad blocks.
    fn bad_blocks_at(&self) -> [u64; 2] {
        let bytes = BadBlocks::bytes(&self.geometry) as u64;
        [HEAD_BYTES, HEAD_BYTES + bytes.next_multiple_of(ALIGN)]
    }

    /// The table of bad blocks: its first copy, or the second if the first was being written or is damaged.
    fn read_table(&self) -> Result<BadBlocks, MediumError> {
        for at in self.bad_blocks_at() {
            let mut bytes = vec![0; BadBlocks::bytes(&self.geometry)];
            if self.backing.read_at(at, &mut bytes).is_err() {
                continue;
            }
            match BadBlocks::from_bytes(&self.geometry, &bytes) {
                Ok(table) => return Ok(table),
                Err(Unread::Version(found)) => {
                    return Err(MediumError::new(at as usize, bad_blocks::of_another_version(found)));
                }
                Err(Unread::Damaged) => {}
            }
            // The second copy is written after the first: if it is still blank, there was no table before.
            if at > HEAD_BYTES && bytes.iter().all(|byte| *byte == 0) {
                return Ok(BadBlocks::none(&self.geometry));
            }
        }
        Err(MediumError::new(HEAD_BYTES as usize, "the table of bad blocks is damaged, and its copy too"))
    }

    fn block_at(&self, block: BlockId) -> u64 {
        let [first, second] = self.bad_blocks_at();
        second + (second - first) + u64::from(block.0) * self.block_bytes
    }

    /// Extends the file to the end of a block before any of the block is written.
    fn reach(&self, block: BlockId) {
        self.backing.reach(self.block_at(block) + self.block_bytes);
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

    /// The data of a page, if they have the check `check`.
    fn data(&self, ppa: Ppa, check: u64, form: Form) -> Option<Rc<Region>> {
        let mut memory = self.cache.borrow_mut().memory();
        let (region, mut data) = (Rc::get_mut(&mut memory).expect("memory without a use"), Vec::new());
        region.exchange(&mut data);
        let is_whole = match form {
            Form::Plain => {
                let is_read = self.backing.read_at(self.data_at(ppa), &mut data).is_ok();
                is_read && data_check(ppa, &data) == check
            }
            Form::Packed => self.unpack(ppa, check, &mut data),
        };
        region.exchange(&mut data);
        if !is_whole {
            self.cache.borrow_mut().give_back(memory);
            return None;
        }
        Some(memory)
    }

    /// Reads a packed page into `page`; `false`: it has not the check `check`.
    fn unpack(&self, ppa: Ppa, check: u64, page: &mut [u8]) -> bool {
        let mut packed = self.packed.borrow_mut();
        packed.resize(sectors::most_bytes(page.len()), 0);
        let is_read = self.backing.read_at(self.data_at(ppa), &mut packed).is_ok();
        let bytes = sectors::packed_bytes(&packed, page.len()).filter(|_| is_read);
        bytes.is_some_and(|bytes| data_check(ppa, &packed[..bytes]) == check)
            && sectors::unpack(&packed, page)
    }

    /// Before the first packed page: the heads say that there may be some.
    fn permit_packed(&self) {
        if self.version.get() == WITH_PACKED {
            return;
        }
        let head = head(&self.geometry, self.identity, WITH_PACKED);
        for at in HEADS_AT {
            self.backing.write_at(at as u64, &head);
            self.backing.settle();
        }
        self.version.set(WITH_PACKED);
    }

    /// Writes a page: its data, and then the two copies of its header.
    fn write_page(&self, ppa: Ppa, data: &[u8], header: [u8; HEADER_BYTES]) {
        self.backing.write_at(self.data_at(ppa), data);
        self.backing.settle();
        self.backing.write_next(self.header_at(ppa), &[header, header].concat());
        self.backing.settle();
    }

    /// A page is about to change.
    fn forget(&self, ppa: Ppa) {
        self.cache.borrow_mut().forget(ppa, self.geometry.block_of(ppa));
    }

    fn header(&self, ppa: Ppa) -> MediaPage<(Spare, u64, Form)> {
        let mut headers = [0; SPARE_USED_BYTES];
        if self.backing.read_at(self.header_at(ppa), &mut headers).is_err() {
            return MediaPage::Damaged;
        }
        match Spare::decode_pair(ppa, &headers) {
            Ok(found) => MediaPage::Programmed(found),
            Err(Unread::Version(found)) => {
                self.foreign.set(Some(self.foreign.get().unwrap_or((ppa, found))));
                self.protection
                    .turn_on_at_version(self.backing.path(), spare::of_another_version(ppa, found));
                MediaPage::Damaged
            }
            Err(Unread::Damaged) if headers.iter().all(|byte| *byte == 0) => MediaPage::Erased,
            Err(Unread::Damaged) => MediaPage::Damaged,
        }
    }
}

impl Media for FileMedia {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn read(&self, ppa: Ppa) -> MediaPage<PageData> {
        match self.read_with_loss(ppa) {
            MediaPage::Programmed((data, _)) => MediaPage::Programmed(data),
            MediaPage::Erased => MediaPage::Erased,
            MediaPage::Damaged => MediaPage::Damaged,
        }
    }

    fn read_spare(&self, ppa: Ppa) -> MediaPage<Spare> {
        match self.header(ppa) {
            MediaPage::Programmed((spare, ..)) => MediaPage::Programmed(spare),
            MediaPage::Erased => MediaPage::Erased,
            MediaPage::Damaged => MediaPage::Damaged,
        }
    }

    fn read_with_loss(&self, ppa: Ppa) -> MediaPage<(PageData, bool)> {
        let found = self.cache.borrow_mut().find(ppa);
        if let Some(page) = found {
            return MediaPage::Programmed((PageData::Region(page), false));
        }
        let block = self.geometry.block_of(ppa);
        let known = self.cache.borrow().check(ppa, block);
        let (is_lost, check, form) = match known {
            Some(check) => (false, check, Form::Plain),
            None => match self.header(ppa) {
                MediaPage::Programmed((spare, check, form)) => (spare.lost, check, form),
                MediaPage::Erased => return MediaPage::Erased,
                MediaPage::Damaged => return MediaPage::Damaged,
            },
        };
        let Some(page) = self.data(ppa, check, form) else { return MediaPage::Damaged };
        let mut cache = self.cache.borrow_mut();
        if !is_lost {
            if form == Form::Plain {
                cache.note_check(ppa, block, check);
            }
            cache.keep(ppa, page.clone());
        }
        MediaPage::Programmed((PageData::Region(page), is_lost))
    }

    fn protection(&self) -> WriteProtection {
        self.protection.clone()
    }

    fn foreign(&self) -> Option<MediumError> {
        let (ppa, found) = self.foreign.get()?;
        let error = MediumError::whole(spare::of_another_version(ppa, found));
        Some(match self.backing.path() {
            Some(path) => error.at(path),
            None => error,
        })
    }

    fn bad_blocks(&self) -> &BadBlocks {
        &self.bad_blocks
    }

    fn set_bad_blocks(&mut self, table: &BadBlocks) {
        let places = self.bad_blocks_at();
        match &mut self.frozen {
            None => places.iter().for_each(|at| {
                self.backing.write_at(*at, &table.to_bytes());
                self.backing.settle();
            }),
            Some(frozen) => {
                frozen.bad_blocks.lose_dies_of(table);
                let table = frozen.bad_blocks.to_bytes();
                places.iter().for_each(|at| self.backing.write_beneath(*at, &table, &mut frozen.image));
            }
        }
        self.bad_blocks = table.clone();
    }

    /// Writes to a file whose protection is on stay in its shadow anyway.
    fn freeze(&mut self) {
        let image = match &self.backing {
            Backing::Memory(bytes) => bytes.borrow().clone(),
            Backing::File { .. } => Vec::new(),
        };
        self.frozen = Some(Frozen { bad_blocks: self.bad_blocks.clone(), image });
    }

    fn program(&mut self, ppa: Ppa, data: &PageData, spare: &Spare) {
        let block = self.geometry.block_of(ppa);
        self.reach(block);
        self.scratch.resize(self.geometry.page_bytes as usize, 0);
        data.copy_to(0, &mut self.scratch);
        let mut packed = self.packed.borrow_mut();
        let (data, checked, form) = match sectors::pack(&self.scratch, &mut packed) {
            Some(bytes) => (&packed[..], &packed[..bytes], Form::Packed),
            None => (&self.scratch[..], &self.scratch[..], Form::Plain),
        };
        let check = data_check(ppa, checked);
        self.forget(ppa);
        if form == Form::Packed {
            self.permit_packed();
        }
        self.write_page(ppa, data, spare.encode_in(form, ppa, check));
        if !spare.lost && form == Form::Plain {
            self.cache.borrow_mut().note_check(ppa, block, check);
        }
    }

    fn erase(&mut self, block: BlockId) {
        let headers = vec![0; self.geometry.pages_per_block as usize * SPARE_USED_BYTES];
        self.reach(block);
        let pages = (0..self.geometry.pages_per_block).map(|page| self.geometry.ppa(block, page));
        self.cache.borrow_mut().forget_block(pages, block);
        self.backing.write_at(self.block_at(block), &headers);
        self.backing.settle();
    }

    fn is_blank(&self) -> bool {
        let end = self.backing.end();
        let mut blocks =
            (0..self.geometry.blocks()).map(BlockId).take_while(|block| self.block_at(*block) < end);
        blocks.all(|block| self.programmed_pages(block) == 0)
    }

    fn programmed_pages(&self, block: BlockId) -> u32 {
        if self.block_at(block) >= self.backing.end() {
            return 0;
        }
        let mut headers = vec![0; self.geometry.pages_per_block as usize * SPARE_USED_BYTES];
        if self.backing.look_at(self.block_at(block), &mut headers).is_err() {
            // A page that cannot be read is unknown, and so not erased.
            let pages = (0..self.geometry.pages_per_block).rev();
            let last = pages.map(|page| self.geometry.ppa(block, page));
            let last = last.into_iter().find(|ppa| self.header(*ppa) != MediaPage::Erased);
            return last.map_or(0, |ppa| self.geometry.page_of(ppa) + 1);
        }
        let last = headers.iter().rposition(|byte| *byte != 0);
        last.map_or(0, |last| (last / SPARE_USED_BYTES) as u32 + 1)
    }

    fn copy(&mut self, from: Ppa, to: Ppa) {
        let (spare, check, form) = match self.header(from) {
            MediaPage::Programmed(found) => found,
            MediaPage::Erased => return,
            MediaPage::Damaged => return self.tear(to),
        };
        let page_bytes = self.geometry.page_bytes as usize;
        let mut data = std::mem::take(&mut self.scratch);
        data.resize(if form == Form::Packed { sectors::most_bytes(page_bytes) } else { page_bytes }, 0);
        let is_read = self.backing.read_at(self.data_at(from), &mut data).is_ok();
        // What is no packed page is copied as it is, as a damaged one.
        let bytes = match form {
            Form::Plain => page_bytes,
            Form::Packed => sectors::packed_bytes(&data, page_bytes).unwrap_or(data.len()),
        };
        let is_whole = is_read && data_check(from, &data[..bytes]) == check;
        let check = data_check(to, &data[..bytes]);
        self.reach(self.geometry.block_of(to));
        self.forget(to);
        if form == Form::Packed {
            self.permit_packed();
        }
        self.write_page(to, &data, spare.encode_in(form, to, if is_whole { check } else { !check }));
        self.scratch = data;
    }

    fn tear(&mut self, ppa: Ppa) {
        self.reach(self.geometry.block_of(ppa));
        self.forget(ppa);
        self.backing.write_at(self.header_at(ppa), &[UNREADABLE; SPARE_USED_BYTES]);
    }

    /// Flips one bit, in a byte that depends on the page's address.
    fn flip(&mut self, ppa: Ppa) {
        let MediaPage::Programmed((_, check, form)) = self.header(ppa) else { return };
        let page_bytes = self.geometry.page_bytes as usize;
        let mut data =
            vec![0; if form == Form::Packed { sectors::most_bytes(page_bytes) } else { page_bytes }];
        // A page that cannot be read is damaged already, and one that is damaged stays so.
        if self.backing.read_at(self.data_at(ppa), &mut data).is_err() {
            return;
        }
        let bytes = match form {
            Form::Plain => Some(page_bytes),
            Form::Packed => sectors::packed_bytes(&data, page_bytes),
        };
        if let Some(bytes) = bytes.filter(|bytes| data_check(ppa, &data[..*bytes]) == check) {
            let at = ppa.0 as usize % bytes;
            self.forget(ppa);
            self.backing.write_at(self.data_at(ppa) + at as u64, &[data[at] ^ 1 << (ppa.0 % 8)]);
        }
    }

    fn blank(&mut self, ppa: Ppa) {
        self.forget(ppa);
        self.backing.write_at(self.header_at(ppa), &[0; SPARE_USED_BYTES]);
    }

    fn fork(&self) -> Box<dyn Media> {
        let image = Backing::Memory(TaskCell::new(self.image()));
        let mut fork = FileMedia::layout(&self.geometry, image, self.identity, self.version.get());
        fork.bad_blocks = self.bad_blocks.clone();
        Box::new(fork)
    }

    fn image(&self) -> Vec<u8> {
        if let Some(frozen) = &self.frozen {
            return match &self.backing {
                Backing::Memory(_) => frozen.image.clone(),
                Backing::File { .. } => self.backing.kept(),
            };
        }
        let mut bytes = vec![0; self.backing.bytes() as usize];
        for (index, piece) in bytes.chunks_mut(ALIGN as usize).enumerate() {
            if self.backing.read_at(index as u64 * ALIGN, piece).is_err() {
                piece.fill(UNREADABLE); // neither erased nor a header
            }
        }
        bytes
    }
}
