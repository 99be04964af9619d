//! What survives a power cut, and how it leaves the drive and comes back.
//!
//! Two byte strings survive: the medium and the *protected image* (page buffer, memtable records, write
//! pointers, DMA log table, lists of live tables and segments: what the capacitors save). No object survives;
//! the only way back is to power a drive on with both.
//!
//! * A drive on `ram` or `tags` makes its protected image on request.
//! * A drive on `file` also keeps every change of it as a record. Records are written in groups, before a
//!   command is acknowledged and before flash is changed ([`file_log`]), so that killing the process at any
//!   instruction loses nothing and leaves a state that existed between two waits.
//!
//! The image is a frame of parts, each with a checksum. The first part has the settings of the drive
//! ([`Make`]); the others belong to its engine:
//!
//! ```text
//!   0 magic "kvdrvIM3"   8 identity of the drive (16 B)   24 parts (u32)
//!   part:  u32 bytes | u32 crc32c | bytes ...
//! ```

mod error;
pub mod file_log;
pub mod machine_file;
mod make;

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_sim::TaskCell;

use crate::identity::{IDENTITY_BYTES, Identity};
pub use error::PowerOnError;
use file_log::{FileError, FileLog};
use machine_file::{WriteFailure, WriteProtection};
pub use make::Make;

const MAGIC: &[u8; 8] = b"kvdrvIM3";
/// Position of the drive's identity in an image.
pub const IDENTITY_AT: usize = 8;
const PARTS_AT: usize = IDENTITY_AT + IDENTITY_BYTES;
/// Position of the drive's settings in an image.
pub const MAKE_AT: usize = FRAME_BYTES;
const FRAME_BYTES: usize = PARTS_AT + 4;
const PART_HEADER_BYTES: usize = 8;

/// What is left of a drive without power.
#[derive(Clone, Debug)]
pub struct Survivors {
    /// Image of the medium.
    pub media: Vec<u8>,
    /// The protected image.
    pub protected: Vec<u8>,
}

/// A protected image that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("protected image, byte {offset}: {what}")]
pub struct ImageError {
    /// Position in bytes.
    pub offset: usize,
    /// What is wrong.
    pub what: String,
}

impl ImageError {
    /// An error at `offset`.
    pub fn new(offset: usize, what: impl Into<String>) -> ImageError {
        ImageError { offset, what: what.into() }
    }
}

/// The drive to which a protected image belongs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Its settings.
    pub make: Make,
    /// Its identity.
    pub identity: Identity,
}

/// Frames the parts of an image of `owner`.
pub fn frame(owner: &Owner, parts: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&owner.identity.to_bytes());
    out.extend_from_slice(&(parts.len() as u32 + 1).to_le_bytes());
    for part in std::iter::once(owner.make.as_bytes()).chain(parts.iter().map(Vec::as_slice)) {
        out.extend_from_slice(&(part.len() as u32).to_le_bytes());
        out.extend_from_slice(&crc32c::crc32c(part).to_le_bytes());
        out.extend_from_slice(part);
    }
    out
}

/// The owner of a framed image.
pub fn owner_of(bytes: &[u8]) -> Result<Owner, ImageError> {
    unframe(bytes).map(|(owner, _)| owner)
}

/// Decodes a framed image into its owner and the parts of its engine.
pub fn unframe(bytes: &[u8]) -> Result<(Owner, Vec<Vec<u8>>), ImageError> {
    if bytes.len() < FRAME_BYTES || &bytes[..8] != MAGIC {
        return Err(ImageError::new(0, "this is no protected image"));
    }
    let identity = Identity::from_bytes(bytes[IDENTITY_AT..PARTS_AT].try_into().expect("16 bytes"));
    let word = |at: usize| -> Option<u32> {
        bytes.get(at..at + 4).map(|word| u32::from_le_bytes(word.try_into().expect("4 bytes")))
    };
    let count = word(PARTS_AT).expect("the frame is complete");
    let mut parts = Vec::new();
    let mut at = FRAME_BYTES;
    for _ in 0..count {
        let header = word(at).zip(word(at + 4)).ok_or_else(|| ImageError::new(at, "the image ends early"))?;
        let body = at + PART_HEADER_BYTES..(at + PART_HEADER_BYTES).saturating_add(header.0 as usize);
        let part = bytes.get(body.clone()).ok_or_else(|| ImageError::new(at, "the image ends early"))?;
        if crc32c::crc32c(part) != header.1 {
            return Err(ImageError::new(body.start, "a part is damaged"));
        }
        parts.push(part.to_vec());
        at = body.end;
    }
    if at != bytes.len() {
        return Err(ImageError::new(at, "something follows the last part"));
    }
    if parts.is_empty() {
        return Err(ImageError::new(PARTS_AT, "it does not say what its drive is made of"));
    }
    let make = Make::from_bytes(&parts.remove(0))
        .ok_or_else(|| ImageError::new(MAKE_AT, "what its drive is made of is no text"))?;
    Ok((Owner { make, identity }, parts))
}

/// Receives changes of the protected image, one record each. It keeps none, unless the medium outlives the
/// process.
#[derive(Clone, Default)]
pub struct Journal {
    /// Present if the medium outlives the process.
    file: Option<Rc<FileJournal>>,
    /// Turned on when a record or a page could not be written: from then on no change of a pair is
    /// acknowledged.
    protection: WriteProtection,
}

struct FileJournal {
    /// `None` for a drive that was read-only from the start.
    log: TaskCell<Option<FileLog>>,
    /// Completions are handed to hosts several at a time, after one call of [`Journal::settle`].
    is_deferred: Cell<bool>,
    /// In that case: commands whose changes are not in the files yet, or never will be, by the number of
    /// their queue's session and their identifier.
    unsettled: TaskCell<Vec<(u32, u16)>>,
}

impl Journal {
    /// A journal into `log`, of a drive with this protection, which is on if there is no log.
    pub fn to_file(log: Option<FileLog>, protection: WriteProtection) -> Journal {
        assert!(log.is_some() || protection.is_on(), "a drive that writes has a log");
        Journal {
            file: Some(Rc::new(FileJournal {
                log: TaskCell::new(log),
                is_deferred: Cell::new(false),
                unsettled: TaskCell::default(),
            })),
            protection,
        }
    }

    /// A journal that keeps no record, of a drive with this protection.
    pub fn in_memory(protection: WriteProtection) -> Journal {
        Journal { file: None, protection }
    }

    /// Are records kept? If not, they need not be made.
    pub fn is_kept(&self) -> bool {
        self.file.is_some()
    }

    /// The log, while the drive may write.
    fn with_log(&self, write: impl FnOnce(&mut FileLog) -> Result<(), FileError>) {
        let Some(journal) = self.file.as_ref().filter(|_| !self.is_protected()) else { return };
        if let Some(log) = &mut *journal.log.borrow_mut()
            && let Err(FileError { path, error }) = write(log)
        {
            self.protection.turn_on(&path, "cannot be written", &error);
        }
    }

    /// Adds one record of `part`; [`Journal::settle`] writes it together with those before it.
    pub fn append(&self, part: u8, payload: &[u8]) {
        self.with_log(|log| {
            log.add(part, payload);
            Ok(())
        });
    }

    /// Writes the records added since the last call, all or nothing. `false`: the drive may not write, and
    /// the changes must not be acknowledged.
    ///
    /// Flash is changed after this, whatever it returns: a medium that must not be written keeps its content.
    pub fn settle(&self) -> bool {
        self.with_log(FileLog::write);
        let may_write = !self.is_protected();
        if let (Some(journal), true) = (&self.file, may_write) {
            journal.unsettled.borrow_mut().clear();
        }
        may_write
    }

    /// Permits completions to be posted before the changes they acknowledge are settled: the code that hands
    /// them to hosts calls [`Journal::settle`] before that, and [`Journal::revokes`] for each if it fails.
    pub fn defer(&self) {
        if let Some(journal) = &self.file {
            journal.is_deferred.set(true);
        }
    }

    /// May a command that is about to be completed be acknowledged? `changes` says whether it changed
    /// anything.
    pub fn acknowledge(&self, queue: u32, cid: u16, changes: impl FnOnce() -> bool) -> bool {
        let deferred = self.file.as_ref().filter(|journal| journal.is_deferred.get() && !self.is_protected());
        let Some(journal) = deferred else { return self.settle() || !changes() };
        if changes() {
            journal.unsettled.borrow_mut().push((queue, cid));
        }
        true
    }

    /// Was the change of this command lost by a failed call of [`Journal::settle`]? Then it must not be
    /// acknowledged. Called once for each completion.
    pub fn revokes(&self, queue: u32, cid: u16) -> bool {
        let Some(journal) = &self.file else { return false };
        let mut unsettled = journal.unsettled.borrow_mut();
        let at = unsettled.iter().position(|command| *command == (queue, cid));
        at.map(|at| unsettled.swap_remove(at)).is_some()
    }

    /// Is the drive read-only, because one of its files, or its flash, could not be written?
    pub fn is_protected(&self) -> bool {
        self.protection.is_on()
    }

    /// Why the drive is read-only, if it is.
    pub fn write_failure(&self) -> Option<WriteFailure> {
        self.protection.reason().cloned()
    }

    /// Is a new checkpoint worth writing?
    pub fn wants_checkpoint(&self) -> bool {
        let wants =
            |journal: &Rc<FileJournal>| journal.log.borrow().as_ref().is_some_and(FileLog::wants_checkpoint);
        !self.is_protected() && self.file.as_ref().is_some_and(wants)
    }

    /// Replaces all records by `image`, the present state.
    pub fn checkpoint(&self, image: &[u8]) {
        self.with_log(|log| log.checkpoint(image));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_was_lost_makes_the_drive_read_only_and_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let log = FileLog::on_a_full_disk(&folder.path().join("drive.img"));
        let protection = WriteProtection::default();
        let journal = Journal::to_file(Some(log), protection.clone());
        assert!(journal.settle() && !protection.is_on(), "nothing is to be written");
        journal.append(1, b"a record");
        assert!(!journal.settle() && !journal.settle() && protection.is_on(), "it is lost for good");
        let failure = journal.write_failure().expect("what happened and where");
        let path = failure.path.as_ref().expect("it is a file");
        assert!(path.ends_with("drive.img.protected-1"), "{failure:?}");
    }
}
