//! What survives a power cut, and how it gets out of the drive and back.
//!
//! Two byte strings survive: the medium and the *protected image* (page buffer, memtable records, write
//! pointers, DMA log table, lists of live tables and segments: what the capacitors save). No object crosses;
//! the only way back is [`crate::Drive::power_on`] with both.
//!
//! * A drive on `ram` or `tags` makes its protected image when asked ([`crate::Drive::survivors`]).
//! * A drive on `file` also keeps every change of it as a record. They are written in groups, before a
//!   command is acknowledged and before flash is changed ([`file_log`]), so that killing the process at any
//!   instruction loses nothing and leaves a state that was there between two waits.
//!
//! The image is a frame of parts, one for each owner, each under a checksum:
//!
//! ```text
//!   0 magic "kvdrvIM2"   8 fingerprint of the configuration   16 identity of the drive (16 B)
//!   32 parts (u32)
//!   part:  u32 bytes | u32 crc32c | bytes ...
//! ```

pub mod file_log;

use std::panic::panic_any;
use std::rc::Rc;

use file_log::{FileError, FileLog};
use kvdrive_sim::TaskCell;

use crate::flash::media::file::ImageFailure;
use crate::identity::{IDENTITY_BYTES, Identity};

const MAGIC: &[u8; 8] = b"kvdrvIM2";
pub(crate) const IDENTITY_AT: usize = 16;
const PARTS_AT: usize = IDENTITY_AT + IDENTITY_BYTES;
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
    /// Where.
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

/// Whose a protected image is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Of the configuration: [`crate::drive::fingerprint`].
    pub fingerprint: u64,
    /// The drive.
    pub identity: Identity,
}

/// Frames the parts of an image of `owner`'s.
pub fn frame(owner: &Owner, parts: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&owner.fingerprint.to_le_bytes());
    out.extend_from_slice(&owner.identity.to_bytes());
    out.extend_from_slice(&(parts.len() as u32).to_le_bytes());
    for part in parts {
        out.extend_from_slice(&(part.len() as u32).to_le_bytes());
        out.extend_from_slice(&crc32c::crc32c(part).to_le_bytes());
        out.extend_from_slice(part);
    }
    out
}

/// Whose a framed image is.
pub fn owner_of(bytes: &[u8]) -> Result<Owner, ImageError> {
    if bytes.len() < FRAME_BYTES || &bytes[..8] != MAGIC {
        return Err(ImageError::new(0, "this is no protected image"));
    }
    let fingerprint = u64::from_le_bytes(bytes[8..IDENTITY_AT].try_into().expect("8 bytes"));
    let identity = bytes[IDENTITY_AT..PARTS_AT].try_into().expect("16 bytes");
    Ok(Owner { fingerprint, identity: Identity::from_bytes(identity) })
}

/// Takes a framed image apart, into its owner and its parts. It must be of a drive with the same
/// `fingerprint`.
pub fn unframe(fingerprint: u64, bytes: &[u8]) -> Result<(Owner, Vec<Vec<u8>>), ImageError> {
    let word = |at: usize| -> Option<u32> {
        bytes.get(at..at + 4).map(|word| u32::from_le_bytes(word.try_into().expect("4 bytes")))
    };
    let owner = owner_of(bytes)?;
    if owner.fingerprint != fingerprint {
        return Err(ImageError::new(8, "it was made by a drive of another configuration"));
    }
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
    Ok((owner, parts))
}

/// Where changes of the protected image go, one record each. Nowhere, unless the medium outlives the process.
#[derive(Clone, Default)]
pub struct Journal(Option<Rc<TaskCell<FileJournal>>>);

struct FileJournal {
    log: FileLog,
    /// Why records could not be written. From then on nothing may be acknowledged.
    failed: Option<FileError>,
}

impl Journal {
    /// A journal into `log`.
    pub fn to_file(log: FileLog) -> Journal {
        Journal(Some(Rc::new(TaskCell::new(FileJournal { log, failed: None }))))
    }

    /// Does anybody keep the records? If not, do not make them.
    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Keeps one record of `part`; it is written with those before it by [`Journal::settle`].
    pub fn append(&self, part: u8, payload: &[u8]) {
        if let Some(journal) = &self.0 {
            journal.borrow_mut().log.add(part, payload);
        }
    }

    /// Writes what was kept since the last time, all or nothing. `false`: a record has been lost, now or
    /// earlier, and nothing may be acknowledged any more.
    pub fn settle(&self) -> bool {
        let Some(journal) = &self.0 else { return true };
        let mut journal = journal.borrow_mut();
        if journal.failed.is_none() {
            journal.failed = journal.log.write().err();
        }
        journal.failed.is_none()
    }

    /// [`Journal::settle`], before flash is changed.
    ///
    /// Panics with an [`ImageFailure`] when a record has been lost: the newest state that can be found again
    /// may need what would be erased. Refusing commands is not enough, since collection goes on without them.
    pub fn settle_before_change(&self) {
        if self.settle() {
            return;
        }
        let journal = self.0.as_ref().expect("only a journal that is kept fails").borrow();
        let FileError { path, error } = journal.failed.as_ref().expect("it has failed");
        panic_any(ImageFailure { path: path.clone(), what: format!("cannot be written: {error}") })
    }

    /// Is a new checkpoint worth its writing?
    pub fn wants_checkpoint(&self) -> bool {
        self.0.as_ref().is_some_and(|journal| journal.borrow().log.wants_checkpoint())
    }

    /// Why records could not be written, if that has happened.
    pub fn take_failure(&self) -> Option<FileError> {
        self.0.as_ref().and_then(|journal| journal.borrow_mut().failed.take())
    }

    /// Replaces all records by `image`, the present state.
    pub fn checkpoint(&self, image: &[u8]) {
        let Some(journal) = &self.0 else { return };
        let mut journal = journal.borrow_mut();
        if let Err(error) = journal.log.checkpoint(image) {
            journal.failed = Some(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flash_is_not_changed_behind_a_record_that_was_lost() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::to_file(FileLog::on_a_full_disk(&folder.path().join("drive.img")));
        assert!(journal.settle(), "nothing is to be written");
        journal.settle_before_change();
        journal.append(1, b"a record");
        assert!(!journal.settle() && !journal.settle(), "it is lost for good");
        let change = std::panic::AssertUnwindSafe(|| journal.settle_before_change());
        let stopped = std::panic::catch_unwind(change).expect_err("an erase would lose more");
        let failure = stopped.downcast::<ImageFailure>().expect("what happened and where");
        assert!(failure.path.ends_with("drive.img.protected-1"), "{failure:?}");
    }
}
