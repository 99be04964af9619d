//! The protected image of a drive whose medium is a file: a checkpoint, followed by every later change, in
//! groups. A group is written before the command that made it is acknowledged and before flash is changed. A
//! group is found wholly or not at all: what happens between two waits of a task is never found in part.
//!
//! ```text
//!   NAME.protected-0 or -1 (the other slot is gone, or older, or an unfinished checkpoint)
//!
//!    0 magic "kvdrvPL3"   8 epoch   16 image bytes   24 identity of the drive (16 B)
//!   40 flags u32 (1: sync)   44 header crc32c
//!   48 image ...                    image crc32c
//!      group:  0 payload bytes  4 zero  8 sequence  16 header crc32c  20 payload ...  payload crc32c
//!      group ...
//!      payload = records:  part u8 | bytes u32 | bytes ...
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
//! *Missing data is detected.* The image file's head has a [`Moment`]: checkpoint, number of groups after it,
//! and the checkpoint that was begun last. Everything is written in this order:
//!
//! ```text
//!   checkpoint E+1:  moment (E, n, begun E+1) | slot of E+1 | moment (E+1, 0, begun E+1) | other slot goes
//!   group n:         group n | moment (E, n, begun E) | what follows: acknowledgement, change of flash
//! ```
//!
//! So the moment is never ahead of the log, and a kill at any instruction leaves it at most one step behind.
//! A log that ends before the moment was truncated, or belongs to an earlier moment; an image whose moment is
//! more than one step behind the log is itself an earlier one; the log may be missing only before the first
//! checkpoint was complete. All other combinations are refused, before anything is written, with both ends
//! named ([`LogError::Apart`]).
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
//! The value log and the index know what the payloads of the parts mean.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use super::machine_file::{self, MachineFile, read_whole};
use crate::identity::{IDENTITY_BYTES, Identity};
use crate::media::file::{MOMENTS_AT, Moment, MomentCell};

const MAGIC: &[u8; 8] = b"kvdrvPL3";
const IDENTITY_AT: usize = 24;
const FLAGS_AT: usize = IDENTITY_AT + IDENTITY_BYTES;
const HEADER_BYTES: usize = 48;
/// Bytes of the header that its checksum covers.
const CHECKED_BYTES: usize = HEADER_BYTES - CRC_BYTES;
/// Flag of a header: groups wait for the machine's storage.
const FLAG_SYNC: u32 = 1;
const GROUP_HEADER_BYTES: usize = 20;
const RECORD_HEADER_BYTES: usize = 5;
const CRC_BYTES: usize = 4;
/// Records are folded into a new checkpoint when they reach this size.
const CHECKPOINT_AT_BYTES: u64 = 64 << 20;

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
    #[error("{path}: byte {offset}: {what} is damaged; the drive cannot vouch for its newest stores")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Position in bytes.
        offset: u64,
        /// What is stored there.
        what: &'static str,
    },
    /// Image and log belong to two drives.
    #[error("{log}: is of drive {found}, and {image} of drive {expected}: put back all files of one drive")]
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
    #[error("{image}: byte {at}: what tells how far {image}.protected-0 or -1 had come is damaged", at = MOMENTS_AT[0])]
    NoMoment {
        /// The image file.
        image: PathBuf,
    },
    /// No complete checkpoint is found, although there was one.
    #[error(
        "{image}: a drive is on it, whose power-protected memory is missing: {image}.protected-{}, whole, with group \
         {groups} of checkpoint {checkpoint}", checkpoint % 2
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
         written after group {} of checkpoint {}: one of them was shortened, put back or copied alone; put back all \
         files of one moment", found.groups, found.checkpoint, expected.groups, expected.checkpoint
    )]
    Apart {
        /// The image file.
        image: PathBuf,
        /// The file of the log.
        log: PathBuf,
        /// The end of the log, according to the image.
        expected: Moment,
        /// The actual end of the log.
        found: Moment,
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
    /// Their records: part and payload, in order.
    pub records: Vec<(u8, Vec<u8>)>,
    /// Did groups wait for the machine's storage?
    sync: bool,
    path: PathBuf,
}

impl OpenedLog {
    /// The end of the log.
    pub fn moment(&self) -> Moment {
        Moment { checkpoint: self.epoch, groups: self.groups, begun: self.epoch }
    }

    /// Could a process that was killed at some instruction (or, with `sync`, a machine that lost its power)
    /// have left this log beside an image of `moment`?
    fn belongs(&self, moment: &Moment) -> bool {
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
    /// Header and records of the next group.
    group: Vec<u8>,
}

fn slot_path(base: &Path, epoch: u64) -> PathBuf {
    let mut name = base.as_os_str().to_owned();
    name.push(format!(".protected-{}", epoch % 2));
    PathBuf::from(name)
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn crc_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + CRC_BYTES].try_into().expect("4 bytes"))
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
    fn newest_beside(base: &Path, moment: Option<&Moment>) -> Result<Option<OpenedLog>, LogError> {
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
        after: Moment,
        image: &[u8],
        sync: bool,
    ) -> Result<FileLog, FileError> {
        let epoch = after.checkpoint + 1;
        let cell = MomentCell::of(base).map_err(FileError::at(base))?;
        cell.write(&Moment { begun: epoch, ..after }, true).map_err(FileError::at(base))?;
        let path = slot_path(base, epoch);
        let file = write_checkpoint(&path, identity, epoch, image, sync).map_err(FileError::at(&path))?;
        if sync {
            // Before the other slot is removed: otherwise neither may be found after a power cut of the
            // machine.
            machine_file::sync_folder(&path).map_err(FileError::at(&path))?;
        }
        let moment = Moment { checkpoint: epoch, groups: 0, begun: epoch };
        cell.write(&moment, sync).map_err(FileError::at(base))?;
        let end = (HEADER_BYTES + image.len() + CRC_BYTES) as u64;
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
            FileLog::create(base, Identity::default(), Moment::default(), b"checkpoint", false).unwrap();
        log.file = MachineFile::open(&log.path, OpenOptions::new().read(true)).unwrap();
        log
    }

    /// Adds one record to the next group.
    pub fn add(&mut self, part: u8, payload: &[u8]) {
        if self.group.is_empty() {
            self.group.resize(GROUP_HEADER_BYTES, 0);
        }
        self.group.push(part);
        self.group.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        self.group.extend_from_slice(payload);
    }

    /// Writes the group, if it is not empty; when this returns, the group survives the end of this process,
    /// and with `sync` a power cut of the machine.
    pub fn write(&mut self) -> Result<(), FileError> {
        if self.group.is_empty() {
            return Ok(());
        }
        let payload_bytes = (self.group.len() - GROUP_HEADER_BYTES) as u32;
        let (header, payload) = self.group.split_at_mut(GROUP_HEADER_BYTES);
        header[..4].copy_from_slice(&payload_bytes.to_le_bytes());
        header[8..16].copy_from_slice(&self.groups.to_le_bytes());
        let crc = crc32c::crc32c(&header[..16]);
        header[16..].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32c::crc32c(payload);
        self.group.extend_from_slice(&crc.to_le_bytes());
        let written = self.file.write_at(self.end, &self.group);
        let synced = written.and_then(|()| if self.sync { self.file.sync() } else { Ok(()) });
        synced.map_err(FileError::at(&self.path))?;
        self.end += self.group.len() as u64;
        self.groups += 1;
        self.group.clear();
        self.cell.step(&self.moment()).map_err(FileError::at(&self.base))
    }

    /// The end of the log.
    fn moment(&self) -> Moment {
        Moment { checkpoint: self.epoch, groups: self.groups, begun: self.epoch }
    }

    /// Have the records grown so long that a new checkpoint is worth writing?
    pub fn wants_checkpoint(&self) -> bool {
        self.end - self.checkpoint_end > CHECKPOINT_AT_BYTES
    }

    /// Folds all records into `image`, the present state.
    pub fn checkpoint(&mut self, image: &[u8]) -> Result<(), FileError> {
        *self = FileLog::create(&self.base, self.identity, self.moment(), image, self.sync)?;
        Ok(())
    }
}

fn write_checkpoint(
    path: &Path,
    identity: Identity,
    epoch: u64,
    image: &[u8],
    sync: bool,
) -> std::io::Result<MachineFile> {
    let file = MachineFile::open(path, OpenOptions::new().write(true).create(true).truncate(true))?;
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&epoch.to_le_bytes());
    header.extend_from_slice(&(image.len() as u64).to_le_bytes());
    header.extend_from_slice(&identity.to_bytes());
    header.extend_from_slice(&(if sync { FLAG_SYNC } else { 0 }).to_le_bytes());
    let crc = crc32c::crc32c(&header);
    header.extend_from_slice(&crc.to_le_bytes());
    header.extend_from_slice(image);
    header.extend_from_slice(&crc32c::crc32c(image).to_le_bytes());
    file.write_at(0, &header)?;
    file.sync()?;
    Ok(file)
}

/// Decodes a slot; `None` for a checkpoint that was never finished. `promised`: the number of groups that
/// must follow a checkpoint; after them one group may be torn.
fn parse(path: &Path, bytes: &[u8], promised: impl Fn(u64) -> u64) -> Result<Option<OpenedLog>, LogError> {
    let damaged =
        |offset: usize, what| LogError::Damaged { path: path.to_owned(), offset: offset as u64, what };
    if bytes.len() < HEADER_BYTES {
        return Ok(None);
    }
    if &bytes[..8] != MAGIC || crc32c::crc32c(&bytes[..CHECKED_BYTES]) != crc_at(bytes, CHECKED_BYTES) {
        return Err(damaged(0, "the header"));
    }
    let epoch = number(bytes, 8);
    if epoch > EPOCH_LIMIT {
        return Err(damaged(8, "the number of the checkpoint"));
    }
    let image_end = (HEADER_BYTES as u64).saturating_add(number(bytes, 16));
    if (bytes.len() as u64) < image_end.saturating_add(CRC_BYTES as u64) {
        return Ok(None);
    }
    let image_end = image_end as usize;
    let image = &bytes[HEADER_BYTES..image_end];
    if crc32c::crc32c(image) != crc_at(bytes, image_end) {
        return Err(damaged(HEADER_BYTES, "the checkpoint"));
    }
    let mut records = Vec::new();
    let mut at = image_end + CRC_BYTES;
    let mut groups = 0;
    while bytes.len() - at >= GROUP_HEADER_BYTES {
        match take_group(&bytes[at..], groups) {
            Ok(None) => break, // being written when the process died
            Ok(Some(payload)) => {
                let payload_at = at + GROUP_HEADER_BYTES;
                take_records(payload, &mut records).ok_or_else(|| damaged(payload_at, "a record"))?;
                groups += 1;
                at = payload_at + payload.len() + CRC_BYTES;
            }
            Err(_) if groups >= promised(epoch) && !is_followed(&bytes[at + 1..], groups) => break,
            Err((offset, what)) => return Err(damaged(at + offset, what)),
        }
    }
    let identity = bytes[IDENTITY_AT..FLAGS_AT].try_into().expect("16 bytes");
    let identity = Identity::from_bytes(identity);
    let sync = bytes[FLAGS_AT..CHECKED_BYTES] == FLAG_SYNC.to_le_bytes();
    Ok(Some(OpenedLog {
        image: image.to_vec(),
        identity,
        epoch,
        groups,
        records,
        sync,
        path: path.to_owned(),
    }))
}

/// The sequence number in the header of a group, if `bytes` start with one.
fn group_header(bytes: &[u8]) -> Option<u64> {
    let header = bytes.get(..GROUP_HEADER_BYTES)?;
    (crc32c::crc32c(&header[..16]) == crc_at(header, 16)).then(|| number(header, 8))
}

/// The payload of group `sequence` at the start of `bytes`; `None` if they end inside it. Errors: position
/// and name of what does not match.
fn take_group(bytes: &[u8], sequence: u64) -> Result<Option<&[u8]>, (usize, &'static str)> {
    if group_header(bytes) != Some(sequence) {
        return Err((0, "the header of a group"));
    }
    let payload_bytes = u32::from_le_bytes(bytes[..4].try_into().expect("4 bytes")) as usize;
    let payload_end = GROUP_HEADER_BYTES + payload_bytes;
    if bytes.len() < payload_end + CRC_BYTES {
        return Ok(None);
    }
    let payload = &bytes[GROUP_HEADER_BYTES..payload_end];
    if crc32c::crc32c(payload) != crc_at(bytes, payload_end) {
        return Err((GROUP_HEADER_BYTES, "a group"));
    }
    Ok(Some(payload))
}

/// Does a group after `sequence` start anywhere in `bytes`?
fn is_followed(bytes: &[u8], sequence: u64) -> bool {
    let most = bytes.len() as u64;
    (0..bytes.len().saturating_sub(GROUP_HEADER_BYTES)).any(|at| {
        let ahead = number(bytes, at + 8).wrapping_sub(sequence);
        (1..=most).contains(&ahead) && group_header(&bytes[at..]).is_some()
    })
}

/// Decodes the records of a group; `None` if a record is longer than the rest of the group.
fn take_records(mut group: &[u8], records: &mut Vec<(u8, Vec<u8>)>) -> Option<()> {
    while !group.is_empty() {
        let (header, rest) = group.split_at_checked(RECORD_HEADER_BYTES)?;
        let bytes = u32::from_le_bytes(header[1..].try_into().expect("4 bytes"));
        let (payload, rest) = rest.split_at_checked(bytes as usize)?;
        records.push((header[0], payload.to_vec()));
        group = rest;
    }
    Some(())
}

#[cfg(test)]
mod tests;
