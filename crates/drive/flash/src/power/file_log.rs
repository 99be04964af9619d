//! The protected image of a drive whose medium is a file: a checkpoint, followed by every later change, in
//! groups. A group is written before the command that made it is acknowledged and before flash is changed. A group is
//! found wholly or not at all: the work between two waits of a task is never found in part.
//!
//! ```text
//!   NAME.protected-0 or -1 (the other slot is gone, or older, or an unfinished checkpoint)
//!
//!   record "kvdrvPL" ([`kvdrive_record`]): number of the checkpoint, identity of the drive, flag sync, image
//!   record "kvdrvGR": number of the group after the checkpoint, records (length u32, bytes) to its end
//!   record "kvdrvGR" ...
//! ```
//!
//! A process that is killed leaves at most one group at the end incomplete: the file is shorter than the
//! group's header says. A machine that loses its power can also leave that group's bytes torn, or zeros if
//! its file system recorded the length before the bytes. Nothing of such a group was acknowledged, and it is
//! dropped: a group that the image's moment (below) does not count, and that is followed by no valid group,
//! since each group waits for the one before it. The same holds for a checkpoint that was begun and never
//! counted. Any other checksum error is damage, and a drive that cannot guarantee its newest stores is not
//! powered on.
//!
//! *Missing data is detected.* The image file's head has a [`ImageMoment`]: checkpoint, number of groups after it,
//! and the checkpoint that was begun last. Everything is written in this order:
//!
//! ```text
//!   checkpoint E+1:  moment (E, n, begun E+1) | slot of E+1 | moment (E+1, 0, begun E+1) | other slot goes
//!   group n:         group n | moment (E, n, begun E) | what follows: acknowledgement, change of flash
//! ```
//!
//! So the moment is never ahead of the log, and after a kill at any instruction it is at most one step older than the
//! log. A log that ends before the moment was truncated, or belongs to an earlier moment; an image whose moment is
//! more than one step older than the log is itself an earlier one; the log may be missing only before the first
//! checkpoint was complete. All other combinations are refused, before anything is written, with both ends named
//! ([`LogError::Apart`]).
//!
//! The moment of a group is 32 B, written in place, without waiting for storage: a second system call for
//! each group. Measured on a virtual machine at 1.7 to 2.2 us, beside 2.3 to 2.9 us for the group itself. A
//! log of fixed length, or a moment written only with every program of flash, would cost next to nothing; but
//! then an older log, or one whose end reads as zeros, would be accepted as long as nothing is programmed,
//! and that can be megabytes of stores.
//!
//! With `sync` a group is on storage before its moment is written, and its moment is on storage before the
//! next change of flash. After the *machine* has lost its power, the moment can be any number of groups
//! behind, between which flash was not changed; the flag `sync` permits that. If such a log is then also
//! truncated by groups since the last change of flash, that is not detected: to detect it, each group would
//! have to wait for storage twice.
//!
//! Only engines know what records and image mean.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use borsh::BorshSerialize;
use kvdrive_record::{Flaw, Form, HEAD_BYTES, RecordError, next, put};

use super::machine_file::{self, MachineFile, read_whole};
use crate::identity::Identity;
use crate::media::file::{ImageMoment, MOMENTS_AT, MomentCell};

const CHECKPOINT: Form = Form { name: "journal of protected memory", magic: b"kvdrvPL", version: 4 };
const GROUP: Form = Form { name: "group of records", magic: b"kvdrvGR", version: 4 };
/// Position of the number of a group in its record.
const SEQUENCE_AT: usize = HEAD_BYTES;
/// Records are folded into a new checkpoint when they reach this size.
const CHECKPOINT_AT_BYTES: u64 = 64 << 20;
/// Groups between two checks that the files are still at their paths.
const GROUPS_A_LOOK: u64 = 16;

/// No log gets this far; a larger epoch is damage. Increments of a valid epoch never overflow.
const EPOCH_LIMIT: u64 = 1 << 63;

/// An error of the operating system.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The error.
    pub error: std::io::Error,
}

impl FileError {
    /// An error of the file at `path`.
    pub fn at(path: &Path) -> impl FnOnce(std::io::Error) -> FileError {
        let path = path.to_owned();
        move |error| FileError { path, error }
    }
}

/// Why a protected image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// It cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Bytes whose checksum is wrong.
    #[error(
        "{path}: byte {offset}: {what} is damaged, so the newest stores may be lost: put back all files of one moment"
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Position in bytes.
        offset: u64,
        /// Name of the content at that position.
        what: &'static str,
    },
    /// Another version of this program wrote it.
    #[error("{path}: {flaw}")]
    Version {
        /// Which file.
        path: PathBuf,
        /// Its version, and the one that this program reads.
        flaw: Flaw,
    },
    /// Image and log belong to two drives.
    #[error(
        "{log}: belongs to drive {found}, and {image} to drive {expected}: put back all files of one drive"
    )]
    Stranger {
        /// The image file.
        image: PathBuf,
        /// The file of the log.
        log: PathBuf,
        /// The drive of the image.
        expected: Identity,
        /// The drive of the log.
        found: Identity,
    },
    /// The image file's moment cannot be read.
    #[error("{image}: byte {at}: the record of the end of {image}.protected-0 or -1 is damaged", at = MOMENTS_AT[0])]
    NoMoment {
        /// The image file.
        image: PathBuf,
    },
    /// No complete checkpoint is found, although there was one.
    #[error(
        "{image}: its drive's power-protected memory is missing: put {image}.protected-{} back, whole, with \
         group {groups} of checkpoint {checkpoint}", checkpoint % 2
    )]
    Missing {
        /// The image file.
        image: PathBuf,
        /// The checkpoint of the image's moment.
        checkpoint: u64,
        /// The last group after that checkpoint.
        groups: u64,
    },
    /// Image and log are of different moments.
    #[error(
        "{image}: is not of the same moment as {log}, which ends with group {} of checkpoint {}, while the image was \
         written after group {} of checkpoint {}: one of them was shortened, restored or copied alone; put back all \
         files of one moment", found.groups, found.checkpoint, expected.groups, expected.checkpoint
    )]
    Apart {
        /// The image file.
        image: PathBuf,
        /// The file of the log.
        log: PathBuf,
        /// The end of the log, according to the image.
        expected: ImageMoment,
        /// The actual end of the log.
        found: ImageMoment,
    },
}

/// The content of an opened log.
pub struct OpenedLog {
    /// The checkpoint.
    pub image: Vec<u8>,
    /// The drive.
    pub identity: Identity,
    /// Number of the checkpoint.
    pub epoch: u64,
    /// Number of groups after it.
    pub groups: u64,
    /// Their records, in order.
    pub records: Vec<Vec<u8>>,
    /// Did groups wait for the machine's storage?
    sync: bool,
    path: PathBuf,
}

impl OpenedLog {
    /// The end of the log.
    pub fn moment(&self) -> ImageMoment {
        ImageMoment { checkpoint: self.epoch, groups: self.groups, begun: self.epoch }
    }

    /// Could a process that was killed at some instruction (or, with `sync`, a machine that lost its power)
    /// have left this log beside an image of `moment`?
    fn belongs(&self, moment: &ImageMoment) -> bool {
        if self.epoch == moment.checkpoint {
            let ahead = self.groups.checked_sub(moment.groups);
            ahead.is_some_and(|groups| groups <= 1 || self.sync)
        } else {
            // It was just complete.
            let is_next = moment.checkpoint.checked_add(1) == Some(self.epoch);
            is_next && moment.begun == self.epoch && self.groups == 0
        }
    }
}

/// An open log.
pub struct FileLog {
    base: PathBuf,
    identity: Identity,
    path: PathBuf,
    file: MachineFile,
    /// The moment in the image file.
    cell: MomentCell,
    epoch: u64,
    end: u64,
    checkpoint_end: u64,
    /// Groups after the checkpoint.
    groups: u64,
    sync: bool,
    /// The record of the next group, without its head.
    group: Vec<u8>,
}

fn slot_path(base: &Path, epoch: u64) -> PathBuf {
    let mut name = base.as_os_str().to_owned();
    name.push(format!(".protected-{}", epoch % 2));
    PathBuf::from(name)
}

impl FileLog {
    /// Reads the newest finished checkpoint of drive `identity` and its records. `None` if there is no log
    /// yet.
    ///
    /// # Errors
    /// The log belongs to another drive, is not as long as the image file `base` says, or one of the files is
    /// damaged.
    pub fn read(base: &Path, identity: Identity) -> Result<Option<OpenedLog>, LogError> {
        let cell = MomentCell::to_read(base).and_then(|cell| cell.read()).map_err(FileError::at(base))?;
        let expected = cell.ok_or_else(|| LogError::NoMoment { image: base.to_owned() })?;
        match FileLog::newest_beside(base, Some(&expected))? {
            None if expected.checkpoint == 0 => Ok(None),
            None => Err(LogError::Missing {
                image: base.to_owned(),
                checkpoint: expected.checkpoint,
                groups: expected.groups,
            }),
            Some(found) if found.identity != identity => Err(LogError::Stranger {
                image: base.to_owned(),
                log: found.path,
                expected: identity,
                found: found.identity,
            }),
            Some(found) if found.belongs(&expected) => Ok(Some(found)),
            Some(found) => Err(LogError::Apart {
                image: base.to_owned(),
                log: found.path.clone(),
                expected,
                found: found.moment(),
            }),
        }
    }

    /// The newest finished checkpoint, whether or not it belongs to an image.
    pub fn newest(base: &Path) -> Result<Option<OpenedLog>, LogError> {
        FileLog::newest_beside(base, None)
    }

    /// As `newest`. A torn end that the `moment` of its image does not count was never acknowledged.
    fn newest_beside(base: &Path, moment: Option<&ImageMoment>) -> Result<Option<OpenedLog>, LogError> {
        let mut newest: Option<OpenedLog> = None;
        let unfinished = moment.filter(|moment| moment.begun != moment.checkpoint);
        for slot in 0..2 {
            let path = slot_path(base, slot);
            let bytes = match read_whole(&path) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(FileError::at(&path)(error).into()),
            };
            let promised = |epoch| match moment {
                Some(moment) if moment.checkpoint == epoch => moment.groups,
                _ => u64::MAX,
            };
            let found = match parse(&path, &bytes, promised) {
                Err(LogError::Damaged { .. }) if unfinished.is_some_and(|it| it.begun % 2 == slot) => None,
                parsed => parsed?,
            };
            if let Some(found) = found
                && newest.as_ref().is_none_or(|other| found.epoch > other.epoch)
            {
                newest = Some(found);
            }
        }
        Ok(newest)
    }

    /// Creates a log of drive `identity`, whose image file is `base`, with `image` as its checkpoint. `after`
    /// is the end of the present log, or the initial moment if there is none: that log is in the other slot,
    /// and stays until the new one is complete. An unfinished one may be overwritten.
    pub fn create(
        base: &Path,
        identity: Identity,
        after: ImageMoment,
        image: &[u8],
        sync: bool,
    ) -> Result<FileLog, FileError> {
        let epoch = after.checkpoint + 1;
        let cell = MomentCell::of(base).map_err(FileError::at(base))?;
        cell.write(&ImageMoment { begun: epoch, ..after }, true).map_err(FileError::at(base))?;
        let path = slot_path(base, epoch);
        let written = write_checkpoint(&path, identity, epoch, image, sync);
        let (file, end) = written.map_err(FileError::at(&path))?;
        if sync {
            // Before the other slot is removed: otherwise neither may be found after a power cut of the
            // machine.
            machine_file::sync_folder(&path).map_err(FileError::at(&path))?;
        }
        let moment = ImageMoment { checkpoint: epoch, groups: 0, begun: epoch };
        cell.write(&moment, sync).map_err(FileError::at(base))?;
        let log = FileLog {
            base: base.to_owned(),
            identity,
            path,
            file,
            cell,
            epoch,
            end,
            checkpoint_end: end,
            groups: 0,
            sync,
            group: Vec::new(),
        };
        log.forget_other_slot()?;
        Ok(log)
    }

    fn forget_other_slot(&self) -> Result<(), FileError> {
        let path = slot_path(&self.base, self.epoch + 1);
        match machine_file::remove(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(FileError { path, error }),
            _ => Ok(()),
        }
    }

    /// A log to which no group can be added.
    #[cfg(test)]
    pub(super) fn on_a_full_disk(base: &Path) -> FileLog {
        std::fs::write(base, []).unwrap();
        let mut log =
            FileLog::create(base, Identity::default(), ImageMoment::default(), b"checkpoint", false).unwrap();
        log.file = MachineFile::open(&log.path, OpenOptions::new().read(true)).unwrap();
        log
    }

    /// Adds one record to the next group.
    pub fn add<R: BorshSerialize + ?Sized>(&mut self, record: &R) {
        if self.group.is_empty() {
            self.group.resize(HEAD_BYTES, 0);
            put(&mut self.group, &self.groups);
        }
        let length_at = self.group.len();
        put(&mut self.group, &0u32);
        put(&mut self.group, record);
        let length = (self.group.len() - length_at - size_of::<u32>()) as u32;
        self.group[length_at..][..size_of::<u32>()].copy_from_slice(&length.to_le_bytes());
    }

    /// Writes the group, if it is not empty; when this returns, the group survives the end of this process,
    /// and with `sync` a power cut of the machine.
    pub fn write(&mut self) -> Result<(), FileError> {
        if self.group.is_empty() {
            return Ok(());
        }
        if self.groups.is_multiple_of(GROUPS_A_LOOK) {
            self.check_there()?;
        }
        GROUP.finish(&mut self.group);
        let written =
            self.file.check_length(self.end).and_then(|()| self.file.write_at(self.end, &self.group));
        let synced = written.and_then(|()| if self.sync { self.file.sync() } else { Ok(()) });
        synced.map_err(FileError::at(&self.path))?;
        self.end += self.group.len() as u64;
        self.groups += 1;
        self.group.clear();
        self.cell.step(&self.moment()).map_err(FileError::at(&self.base))
    }

    /// Checks that its file and the image file are still at their paths, and its file as long as it was written.
    ///
    /// # Errors
    /// What happened to one of them.
    pub fn check_there(&self) -> Result<(), FileError> {
        self.file.check_there(self.end).map_err(FileError::at(&self.path))?;
        self.cell.check_there().map_err(FileError::at(&self.base))
    }

    /// The end of the log.
    fn moment(&self) -> ImageMoment {
        ImageMoment { checkpoint: self.epoch, groups: self.groups, begun: self.epoch }
    }

    /// Have the records grown so long that a new checkpoint is worth writing?
    pub fn wants_checkpoint(&self) -> bool {
        self.end - self.checkpoint_end > CHECKPOINT_AT_BYTES
    }

    /// Folds all records into `image`, the present state.
    pub fn checkpoint(&mut self, image: &[u8]) -> Result<(), FileError> {
        // A checkpoint opens files by their paths, where another drive's may be by now.
        self.check_there()?;
        *self = FileLog::create(&self.base, self.identity, self.moment(), image, self.sync)?;
        Ok(())
    }
}

/// Writes the checkpoint of a new log; returns its file, and where the first group begins.
fn write_checkpoint(
    path: &Path,
    identity: Identity,
    epoch: u64,
    image: &[u8],
    sync: bool,
) -> std::io::Result<(MachineFile, u64)> {
    let file = MachineFile::open(path, OpenOptions::new().write(true).create(true).truncate(true))?;
    let record = CHECKPOINT.seal(&(epoch, identity, sync, image));
    file.write_at(0, &record)?;
    file.sync()?;
    Ok((file, record.len() as u64))
}

/// Decodes a slot; `None` for a checkpoint that was never finished. `promised`: the number of groups that
/// must follow a checkpoint; after them one group may be torn.
fn parse(path: &Path, bytes: &[u8], promised: impl Fn(u64) -> u64) -> Result<Option<OpenedLog>, LogError> {
    let damaged =
        |offset: usize, what| LogError::Damaged { path: path.to_owned(), offset: offset as u64, what };
    let mut rest = bytes;
    let mut body = match CHECKPOINT.take(&mut rest) {
        Ok(body) => body,
        Err(_) if bytes.len() < HEAD_BYTES => return Ok(None),
        Err(RecordError { flaw: Flaw::Short(_), .. }) => return Ok(None),
        Err(RecordError { flaw: flaw @ Flaw::Version { .. }, .. }) => {
            return Err(LogError::Version { path: path.to_owned(), flaw });
        }
        Err(RecordError { at, .. }) => return Err(damaged(at, "the checkpoint")),
    };
    let checkpoint = next(&mut body).ok().filter(|_| body.is_empty());
    let (epoch, identity, sync, image): (u64, Identity, bool, Vec<u8>) =
        checkpoint.ok_or_else(|| damaged(HEAD_BYTES, "the checkpoint"))?;
    if epoch > EPOCH_LIMIT {
        return Err(damaged(HEAD_BYTES, "the number of the checkpoint"));
    }
    let (mut records, mut groups) = (Vec::new(), 0);
    while rest.len() >= HEAD_BYTES {
        let at = bytes.len() - rest.len();
        match take_group(&mut rest, groups, &mut records) {
            Ok(()) => groups += 1,
            Err(RecordError { flaw: Flaw::Short(_), .. }) => break, // being written when the process died
            Err(_) if groups >= promised(epoch) && !is_followed(&bytes[at + 1..], groups) => break,
            Err(error) => return Err(damaged(at + error.at, "a group")),
        }
    }
    Ok(Some(OpenedLog { image, identity, epoch, groups, records, sync, path: path.to_owned() }))
}

/// Decodes group `sequence` at the start of `bytes`, which are then those after it.
fn take_group(bytes: &mut &[u8], sequence: u64, records: &mut Vec<Vec<u8>>) -> Result<(), RecordError> {
    let mut body = GROUP.take(bytes)?;
    if next::<u64>(&mut body)? != sequence {
        return Err(RecordError { at: SEQUENCE_AT, flaw: Flaw::Foreign(GROUP.name) });
    }
    while !body.is_empty() {
        records.push(next(&mut body)?);
    }
    Ok(())
}

/// Does a group after `sequence` start anywhere in `bytes`?
fn is_followed(bytes: &[u8], sequence: u64) -> bool {
    let most = bytes.len() as u64;
    (0..bytes.len()).map(|at| &bytes[at..]).any(|here| {
        let number =
            here.get(SEQUENCE_AT..).and_then(|body| body.first_chunk()).map(|word| u64::from_le_bytes(*word));
        let ahead = number.map_or(0, |number| number.wrapping_sub(sequence));
        (1..=most).contains(&ahead) && GROUP.body_bytes(here).is_ok()
    })
}

#[cfg(test)]
mod tests;
