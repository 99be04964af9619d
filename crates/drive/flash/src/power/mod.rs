//! The state that survives a power cut: how it is saved and restored.
//!
//! Two byte strings survive: the medium and the *protected image* (page buffer, memtable records, write
//! pointers, DMA log table, lists of live tables and segments: the state that capacitors save). No object survives; the
//! only way back is to power a drive on with both.
//!
//! * A drive on `ram` or `tags` makes its protected image on request.
//! * A drive on `file` also keeps every change of it as a record. Records are written in groups, before a
//!   command is acknowledged and before flash is changed ([`file_log`]), so that killing the process at any
//!   instruction loses nothing and leaves a state that existed between two waits.
//!
//! The image is a record ([`kvdrive_record`]): identity and settings of the drive ([`Owner`]), then the state of
//! its engine. Both are values of types; a change of a type is a new version of [`IMAGE`].

mod error;
pub mod file_log;
mod image_settings;
pub mod machine_file;
mod owner;

use std::cell::Cell;
use std::fmt::Display;
use std::rc::Rc;

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_record::{Form, HEAD_BYTES, RecordError};
use kvdrive_sim::TaskCell;

use crate::identity::IDENTITY_BYTES;
pub use error::PowerOnError;
use file_log::{FileError, FileLog};
pub use image_settings::ImageSettings;
use machine_file::{WriteFailure, WriteProtection};
pub use owner::{NamespaceFeatures, Owner};

/// The form of a protected image.
pub const IMAGE: Form = Form { name: "protected image", magic: b"kvdrvIM", version: 5 };
/// Position of the drive's identity in an image.
pub const IDENTITY_AT: usize = HEAD_BYTES;
/// Position of the drive's settings in an image.
pub const SETTINGS_AT: usize = IDENTITY_AT + IDENTITY_BYTES;

/// The state that remains of a drive after a power cut.
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

impl From<RecordError> for ImageError {
    fn from(RecordError { at, flaw }: RecordError) -> ImageError {
        ImageError::new(at, flaw.to_string())
    }
}

/// The image of a drive whose engine has this state.
pub fn seal<S: BorshSerialize>(owner: &Owner, state: &S) -> Vec<u8> {
    IMAGE.seal(&(owner, state))
}

/// The owner of an image, and the state of its engine.
///
/// # Errors
/// It is damaged, or of another version, or of an engine with a state of another type.
pub fn open<S: BorshDeserialize>(image: &[u8]) -> Result<(Owner, S), ImageError> {
    Ok(IMAGE.open(image)?)
}

/// The owner of an image, whatever the state of its engine is.
///
/// # Errors
/// It is damaged, or of another version.
pub fn owner_of(image: &[u8]) -> Result<Owner, ImageError> {
    let mut body = IMAGE.take_all(image)?;
    kvdrive_record::next(&mut body).map_err(|error| ImageError { offset: HEAD_BYTES, ..error.into() })
}

/// Has every record of a journal applied to an image, in order.
///
/// # Errors
/// The first record that does not decode or does not fit.
pub fn replay<R: BorshDeserialize, E: Display>(
    records: &[Vec<u8>],
    mut apply: impl FnMut(R) -> Result<(), E>,
) -> Result<(), ImageError> {
    for (number, record) in records.iter().enumerate() {
        let wrong = |at, what: &dyn Display| ImageError::new(at, format!("record {number} after it: {what}"));
        let record = kvdrive_record::decode(record).map_err(|error| wrong(error.at, &error.flaw))?;
        apply(record).map_err(|error| wrong(0, &error))?;
    }
    Ok(())
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
    /// A journal into `log`. Without a log, the drive is write-protected.
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

    /// Adds a record, if records are kept; [`Journal::settle`] writes it together with those before it.
    #[inline]
    pub fn append<R: BorshSerialize + ?Sized>(&self, record: &R) {
        if self.is_kept() {
            self.with_log(|log| {
                log.add(record);
                Ok(())
            });
        }
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

    /// Turns the drive read-only if one of its files was removed, moved, replaced or shortened. Writing looks for that too,
    /// but not every time; this call is for the end of a drive, so that it is reported then at the latest.
    pub fn check_files(&self) {
        self.with_log(|log| log.check_there());
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

    /// Did a failed call of [`Journal::settle`] lose the change of this command? Then the command must not be
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
    use crate::identity::Identity;

    #[test]
    fn a_record_that_was_lost_makes_the_drive_read_only_and_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let log = FileLog::on_a_full_disk(&folder.path().join("drive.img"));
        let protection = WriteProtection::default();
        let journal = Journal::to_file(Some(log), protection.clone());
        assert!(journal.settle() && !protection.is_on(), "nothing is to be written");
        journal.append(b"a record");
        assert!(!journal.settle() && !journal.settle() && protection.is_on(), "it is lost for good");
        let failure = journal.write_failure().expect("what happened and where");
        let path = failure.path.as_ref().expect("it is a file");
        assert!(path.ends_with("drive.img.protected-1"), "{failure:?}");
    }

    #[test]
    fn every_byte_of_an_image_counts() {
        let owner = Owner {
            identity: Identity::of_seed(1),
            settings: ImageSettings::new([("engine.name", "lsm".to_owned())]),
            features: NamespaceFeatures::default(),
        };
        kvdrive_record::trial::every_byte_of_a_record(&IMAGE, &(owner.clone(), vec![1u8, 2, 3]));
        let image = seal(&owner, &vec![1u8, 2, 3]);
        assert_eq!((owner_of(&image), open(&image)), (Ok(owner.clone()), Ok((owner, vec![1u8, 2, 3]))));
    }

    /// The head of version 3: the magic with its digit, identity, parts.
    #[test]
    fn an_image_of_version_3_is_refused_as_that() {
        let earlier = [&b"kvdrvIM3"[..], &[7; IDENTITY_BYTES], &2u32.to_le_bytes(), &[0; 50]].concat();
        let refused = owner_of(&earlier).unwrap_err().to_string();
        let expected =
            "protected image, byte 7: is a protected image of version 3, which another kvdrive wrote";
        assert!(refused.starts_with(expected), "{refused}");
    }
}
