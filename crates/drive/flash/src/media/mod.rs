//! Media: where the content of flash pages is kept. Time, statistics and the order of operations belong to
//! the port. A new medium is one file with its row in [`MEDIA`].
//!
//! Every medium can be turned into bytes ([`Media::image`]) and back ([`from_image`]); in tests these bytes survive a
//! power cut. An image from outside may contain anything: reading it gives a [`MediumError`] or pages that are
//! [`MediaPage::Damaged`], never a panic and never changed data. [`image`] draws the format of the media in memory,
//! [`mod@file`] that of a file.

pub mod data;
pub mod deferred;
pub mod file;
pub mod image;
pub mod items;
pub mod memory;
pub mod packed;
pub mod ram;
pub mod tags;

use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::bad_blocks::BadBlocks;
use super::geometry::{BlockId, Geometry, Ppa};
use super::spare::Spare;
use crate::identity::Identity;
use crate::power::machine_file::WriteProtection;
pub use data::{Forward, PageData};
pub use deferred::Deferred;

/// The content of a physical page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediaPage<T> {
    /// Not programmed since the block was erased.
    Erased,
    /// Programmed, and not readable.
    Damaged,
    /// Programmed.
    Programmed(T),
}

/// Keeps the content of pages.
pub trait Media {
    /// The geometry it was made for.
    fn geometry(&self) -> &Geometry;

    /// The drive it was made for.
    fn identity(&self) -> Identity;

    /// Data of a page. Panics for a page that was discarded.
    fn read(&self, ppa: Ppa) -> MediaPage<PageData>;

    /// The header of a page alone. It can be readable when the data is not.
    fn read_spare(&self, ppa: Ppa) -> MediaPage<Spare>;

    /// The data of a page, and whether its content was lost before this copy of it was made ([`Spare::lost`]).
    fn read_with_loss(&self, ppa: Ppa) -> MediaPage<(PageData, bool)>;

    /// Announces that parts of pages, each given with its first byte, will be read soon. Changes nothing: a
    /// medium in memory touches all of them here, so that the processor loads them concurrently. If a part is
    /// an item in memory, `seen` is called with the index of the part and the item; it may only decide what
    /// else to announce.
    fn expect(&self, _parts: &[(Ppa, u32)], _seen: &mut dyn FnMut(usize, &Rc<[u8]>)) {}

    /// Whether it accepts changes. On from the start if its table of bad blocks is read-only.
    fn protection(&self) -> WriteProtection;

    /// Why a drive on it must not be used, if a record of another version was met in it.
    fn foreign(&self) -> Option<MediumError> {
        None
    }

    /// The stored table of bad blocks.
    fn bad_blocks(&self) -> &BadBlocks;

    /// Stores a new table. A power cut leaves either the old or the new one. A frozen medium durably keeps
    /// its table at the time of the freeze, with the dies that this table marks as lost.
    fn set_bad_blocks(&mut self, table: &BadBlocks);

    /// Freezes the durable content: later changes last only until power-off, and [`Media::image`] gives the content of
    /// this moment.
    fn freeze(&mut self);

    /// Programs an erased page.
    fn program(&mut self, ppa: Ppa, data: &PageData, spare: &Spare);

    /// Makes every page of a block erased.
    fn erase(&mut self, block: BlockId);

    /// Number of pages of a block up to the last one that is not erased.
    fn programmed_pages(&self, block: BlockId) -> u32;

    /// Is no page programmed?
    fn is_blank(&self) -> bool {
        (0..self.geometry().blocks()).all(|block| self.programmed_pages(BlockId(block)) == 0)
    }

    /// The owner will not read this page's data any more; a medium may free it. Its header stays.
    fn discard(&mut self, _ppa: Ppa) {}

    /// The owner will not read `bytes` bytes of a page from `at` on any more; a medium may free any of them.
    /// Returns `true` if it did.
    fn discard_part(&mut self, _ppa: Ppa, _at: u32, _bytes: u32) -> bool {
        false
    }

    /// Programs an erased page with the content of another page; if that is unreadable, the copy is
    /// unreadable, too.
    fn copy(&mut self, from: Ppa, to: Ppa);

    /// Makes a page, programmed or not, unreadable, header and data: the result of an interrupted program or
    /// erase.
    fn tear(&mut self, ppa: Ppa);

    /// Flips a bit of a programmed page's data, so that its check fails. Its header stays intact. Does
    /// nothing to a page that is not programmed.
    fn flip(&mut self, ppa: Ppa);

    /// Makes one page look erased, which an interrupted erase can also cause.
    fn blank(&mut self, ppa: Ppa);

    /// An independent copy, in memory.
    fn fork(&self) -> Box<dyn Media>;

    /// Its whole content as bytes that [`from_image`] takes.
    fn image(&self) -> Vec<u8>;
}

/// Arguments for opening a medium.
#[derive(Clone, Debug, Default)]
pub struct MediaOptions {
    /// The image file; only `file` needs it. Made when it does not exist.
    pub path: Option<PathBuf>,
    /// Wait until the machine has written every page to its own storage; only for `file`.
    pub sync: bool,
    /// Leave the file as it is, and open it even if its end is missing: changes stay in memory. Only for
    /// `file`.
    pub read_only: bool,
    /// Bytes of pages that were read and are kept in memory; only for `file`. 0: none.
    pub cache_bytes: u64,
    /// Identity of a newly created drive.
    pub identity: Identity,
}

/// Bytes that are not an image of a drive, or a file that cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct MediumError {
    /// The file, if it is in one.
    pub path: Option<PathBuf>,
    /// Position in the bytes; `None` if the error is not about one.
    pub offset: Option<u64>,
    /// What is wrong.
    pub what: String,
}

impl MediumError {
    pub(crate) fn new(offset: usize, what: impl Into<String>) -> MediumError {
        MediumError { path: None, offset: Some(offset as u64), what: what.into() }
    }

    /// An error about the whole image, not about a byte of it.
    pub(crate) fn whole(what: impl Into<String>) -> MediumError {
        MediumError { path: None, offset: None, what: what.into() }
    }

    /// Adds the path of the file.
    pub(crate) fn at(self, path: &Path) -> MediumError {
        MediumError { path: Some(path.to_owned()), ..self }
    }
}

impl fmt::Display for MediumError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}", path.display())?,
            None => f.write_str("media image")?,
        }
        if let Some(offset) = self.offset {
            write!(f, ", byte {offset}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// A medium ready for a port, or the reason why not.
pub type Opened = Result<Box<dyn Media>, MediumError>;

/// One kind of medium.
pub struct MediaKind {
    /// Its name in configurations.
    pub name: &'static str,
    /// What it is, in a line.
    pub origin: &'static str,
    /// It is a file of the machine, and outlives the program.
    pub has_file: bool,
    /// Opens one: empty, unless a file exists.
    pub open: fn(&Geometry, &MediaOptions) -> Opened,
    /// Rebuilds one, in memory, from an image.
    pub from_image: fn(&Geometry, &[u8]) -> Opened,
}

/// Every medium there is.
pub static MEDIA: &[MediaKind] = &[ram::KIND, tags::KIND, file::KIND];

/// The medium called `name`.
pub fn kind(name: &str) -> Option<&'static MediaKind> {
    MEDIA.iter().find(|kind| kind.name == name)
}

/// Rebuilds a medium of kind `name` for a drive of `geometry` from the bytes of [`Media::image`].
pub fn from_image(name: &str, geometry: &Geometry, bytes: &[u8]) -> Opened {
    let kind = kind(name).ok_or_else(|| MediumError::whole(format!("no medium is called {name}")))?;
    (kind.from_image)(geometry, bytes)
}
