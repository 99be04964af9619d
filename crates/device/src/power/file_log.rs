//! The protected image of a drive whose medium is a file: a checkpoint of it, and behind that every change
//! since, in groups that are written before the command that made them is acknowledged and before flash is
//! changed. A group is there wholly or not at all: what happens between two waits is never found in part.
//!
//! ```text
//!   NAME.protected-0 or -1 (the other slot is gone, or older, or an unfinished checkpoint)
//!
//!    0 magic "kvdrvPL2"   8 epoch   16 image bytes   24 header crc32c   28 zero
//!   32 image ...                    image crc32c
//!      group:  0 payload bytes  4 zero  8 sequence  16 header crc32c  20 payload ...  payload crc32c
//!      group ...
//!      payload = records:  part u8 | bytes u32 | bytes ...
//! ```
//!
//! A process that is killed leaves at most one group at the end incomplete: the file is shorter than the
//! group says. Nothing of it was acknowledged and it is dropped. Anything else that does not fit its checksum
//! is damage, and a drive that cannot vouch for its newest stores does not come up.
//!
//! Before a checkpoint is begun its epoch is noted in the image file: an image file has the epoch of its
//! newest finished checkpoint or, if the process was killed then, the next one. Any other is of another
//! moment ([`belongs`]).
//!
//! What the parts' payloads mean is known to the value log and the index.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use super::machine_file::{MachineFile, read_whole};
use crate::flash::media::file::{sync_folder, write_epoch};

const MAGIC: &[u8; 8] = b"kvdrvPL2";
const HEADER_BYTES: usize = 32;
const GROUP_HEADER_BYTES: usize = 20;
const RECORD_HEADER_BYTES: usize = 5;
const CRC_BYTES: usize = 4;
/// Records are folded into a new checkpoint when they take this much.
const CHECKPOINT_AT_BYTES: u64 = 64 << 20;

/// No log gets this far; an epoch beyond it is damage. What comes behind one never overflows.
const EPOCH_LIMIT: u64 = 1 << 63;

/// The operating system refused.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct FileError {
    /// Which file.
    pub path: PathBuf,
    /// What it said.
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
    /// Bytes that do not fit their checksum.
    #[error("{path}: byte {offset}: {what} is damaged; the drive cannot vouch for its newest stores")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What stands there.
        what: &'static str,
    },
}

/// What was found when a log was opened.
pub struct Found {
    /// The checkpoint.
    pub image: Vec<u8>,
    /// Which checkpoint of the log it is.
    pub epoch: u64,
    /// Records behind it: part and payload, in order.
    pub records: Vec<(u8, Vec<u8>)>,
}

/// An open log.
pub struct FileLog {
    base: PathBuf,
    path: PathBuf,
    file: MachineFile,
    epoch: u64,
    end: u64,
    checkpoint_end: u64,
    sequence: u64,
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
    /// Reads the newest finished checkpoint and its records. `None` when there is no log yet.
    pub fn read(base: &Path) -> Result<Option<Found>, LogError> {
        let mut newest: Option<Found> = None;
        for slot in 0..2 {
            let path = slot_path(base, slot);
            let bytes = match read_whole(&path) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(FileError::at(&path)(error).into()),
            };
            if let Some(found) = parse(&path, &bytes)?
                && newest.as_ref().is_none_or(|other| found.epoch > other.epoch)
            {
                newest = Some(found);
            }
        }
        Ok(newest)
    }

    /// Begins a log of the image file `base` with `image` as its checkpoint. `after` is the epoch of the
    /// newest finished one, 0 if there is none: that one is in the other slot, and stays until the new one is
    /// complete. An unfinished one may be written over.
    pub fn create(base: &Path, after: u64, image: &[u8], sync: bool) -> Result<FileLog, FileError> {
        let epoch = after + 1;
        write_epoch(base, epoch).map_err(FileError::at(base))?;
        let path = slot_path(base, epoch);
        let file = write_checkpoint(&path, epoch, image).map_err(FileError::at(&path))?;
        if sync {
            // Before the other slot goes: neither may be found after a power cut of the machine otherwise.
            sync_folder(&path).map_err(FileError::at(&path))?;
        }
        let end = (HEADER_BYTES + image.len() + CRC_BYTES) as u64;
        let log = FileLog {
            base: base.to_owned(),
            path,
            file,
            epoch,
            end,
            checkpoint_end: end,
            sequence: 0,
            sync,
            group: Vec::new(),
        };
        log.forget_other_slot()?;
        Ok(log)
    }

    fn forget_other_slot(&self) -> Result<(), FileError> {
        let path = slot_path(&self.base, self.epoch + 1);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(FileError { path, error }),
            _ => Ok(()),
        }
    }

    /// A log to which no group can be added.
    #[cfg(test)]
    pub(super) fn on_a_full_disk(base: &Path) -> FileLog {
        std::fs::write(base, []).unwrap();
        let mut log = FileLog::create(base, 0, b"checkpoint", false).unwrap();
        log.file = MachineFile::open(&log.path, OpenOptions::new().read(true)).unwrap();
        log
    }

    /// Puts one record into the next group.
    pub fn add(&mut self, part: u8, payload: &[u8]) {
        if self.group.is_empty() {
            self.group.resize(GROUP_HEADER_BYTES, 0);
        }
        self.group.push(part);
        self.group.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        self.group.extend_from_slice(payload);
    }

    /// Writes the group, if anything is in it; it survives the death of this process when this returns, and
    /// with `sync` that of the host.
    pub fn write(&mut self) -> Result<(), FileError> {
        if self.group.is_empty() {
            return Ok(());
        }
        let payload_bytes = (self.group.len() - GROUP_HEADER_BYTES) as u32;
        let (header, payload) = self.group.split_at_mut(GROUP_HEADER_BYTES);
        header[..4].copy_from_slice(&payload_bytes.to_le_bytes());
        header[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        let crc = crc32c::crc32c(&header[..16]);
        header[16..].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32c::crc32c(payload);
        self.group.extend_from_slice(&crc.to_le_bytes());
        let written = self.file.write_at(self.end, &self.group);
        let synced = written.and_then(|()| if self.sync { self.file.sync() } else { Ok(()) });
        synced.map_err(FileError::at(&self.path))?;
        self.end += self.group.len() as u64;
        self.sequence += 1;
        self.group.clear();
        Ok(())
    }

    /// Have the records grown so long that a new checkpoint is worth it?
    pub fn wants_checkpoint(&self) -> bool {
        self.end - self.checkpoint_end > CHECKPOINT_AT_BYTES
    }

    /// Folds all records into `image`, the present state.
    pub fn checkpoint(&mut self, image: &[u8]) -> Result<(), FileError> {
        *self = FileLog::create(&self.base, self.epoch, image, self.sync)?;
        Ok(())
    }
}

/// Can an image file with this epoch be that of a log whose newest finished checkpoint is `checkpoint`?
pub fn belongs(image_epoch: Option<u64>, checkpoint: u64) -> bool {
    image_epoch.is_some_and(|epoch| epoch == checkpoint || epoch == checkpoint + 1)
}

fn write_checkpoint(path: &Path, epoch: u64, image: &[u8]) -> std::io::Result<MachineFile> {
    let file = MachineFile::open(path, OpenOptions::new().write(true).create(true).truncate(true))?;
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&epoch.to_le_bytes());
    header.extend_from_slice(&(image.len() as u64).to_le_bytes());
    let crc = crc32c::crc32c(&header);
    header.extend_from_slice(&crc.to_le_bytes());
    header.resize(HEADER_BYTES, 0);
    header.extend_from_slice(image);
    header.extend_from_slice(&crc32c::crc32c(image).to_le_bytes());
    file.write_at(0, &header)?;
    file.sync()?;
    Ok(file)
}

/// Takes a slot apart; `None` for a checkpoint that was never finished.
fn parse(path: &Path, bytes: &[u8]) -> Result<Option<Found>, LogError> {
    let damaged =
        |offset: usize, what| LogError::Damaged { path: path.to_owned(), offset: offset as u64, what };
    if bytes.len() < HEADER_BYTES {
        return Ok(None);
    }
    let padding = &bytes[28..HEADER_BYTES];
    if &bytes[..8] != MAGIC || crc32c::crc32c(&bytes[..24]) != crc_at(bytes, 24) || padding != [0; 4] {
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
    let mut sequence = 0;
    while bytes.len() - at >= GROUP_HEADER_BYTES {
        let header = &bytes[at..at + GROUP_HEADER_BYTES];
        let in_order = number(header, 8) == sequence;
        if crc32c::crc32c(&header[..16]) != crc_at(header, 16) || !in_order {
            return Err(damaged(at, "the header of a group"));
        }
        let payload_at = at + GROUP_HEADER_BYTES;
        let payload_end = payload_at + u32::from_le_bytes(header[..4].try_into().expect("4 bytes")) as usize;
        if bytes.len() < payload_end + CRC_BYTES {
            break; // being written when the process died
        }
        let payload = &bytes[payload_at..payload_end];
        if crc32c::crc32c(payload) != crc_at(bytes, payload_end) {
            return Err(damaged(payload_at, "a group"));
        }
        take_records(payload, &mut records).ok_or_else(|| damaged(payload_at, "a record"))?;
        sequence += 1;
        at = payload_end + CRC_BYTES;
    }
    Ok(Some(Found { image: image.to_vec(), epoch, records }))
}

/// Takes the records of a group apart; `None` when one says it is longer than the group.
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
mod tests {
    use super::*;

    fn filled() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("drive.img");
        std::fs::write(&base, []).unwrap();
        let mut log = FileLog::create(&base, 0, b"checkpoint", false).unwrap();
        log.add(1, b"first");
        log.write().unwrap();
        log.add(2, b"");
        log.add(1, b"third");
        log.write().unwrap();
        log.add(4, b"never written");
        (folder, base)
    }

    fn expected() -> Vec<(u8, Vec<u8>)> {
        vec![(1, b"first".to_vec()), (2, Vec::new()), (1, b"third".to_vec())]
    }

    #[test]
    fn records_come_back_and_a_checkpoint_replaces_them() {
        let (_folder, base) = filled();
        let found = FileLog::read(&base).unwrap().unwrap();
        assert_eq!((found.image.as_slice(), found.records), (&b"checkpoint"[..], expected()));
        let mut log = FileLog::create(&base, found.epoch, b"second", true).unwrap();
        log.add(3, b"after");
        log.write().unwrap();
        let found = FileLog::read(&base).unwrap().unwrap();
        assert_eq!((found.image.as_slice(), found.records), (&b"second"[..], vec![(3, b"after".to_vec())]));
    }

    #[test]
    fn a_log_cut_anywhere_keeps_the_groups_that_were_whole() {
        let (_folder, base) = filled();
        let path = slot_path(&base, 1);
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            match FileLog::read(&base).unwrap() {
                None => assert!(length < HEADER_BYTES + 10 + CRC_BYTES),
                Some(found) => {
                    assert!(expected().starts_with(&found.records), "cut at {length}");
                    assert_ne!(found.records.len(), 2, "cut at {length}: half a group");
                }
            }
        }
    }

    #[test]
    fn a_checkpoint_that_was_cut_anywhere_is_written_over_and_not_the_whole_one_beside_it() {
        let (_folder, base) = filled();
        let first = std::fs::read(slot_path(&base, 1)).unwrap();
        drop(FileLog::create(&base, 1, b"second", false).unwrap());
        let second = std::fs::read(slot_path(&base, 2)).unwrap();
        for length in 0..second.len() {
            std::fs::write(slot_path(&base, 1), &first).unwrap();
            std::fs::write(slot_path(&base, 2), &second[..length]).unwrap();
            let found = FileLog::read(&base).unwrap().expect("the first is whole");
            assert_eq!((found.image.as_slice(), found.epoch), (&b"checkpoint"[..], 1), "cut at {length}");
            let log = FileLog::create(&base, found.epoch, b"third", false).unwrap();
            assert_eq!(log.path, slot_path(&base, 2), "cut at {length}: only the first is whole");
        }
    }

    /// Whoever made it: its checksums fit.
    #[test]
    fn a_checkpoint_that_none_can_follow_is_damage() {
        let (_folder, base) = filled();
        for epoch in [EPOCH_LIMIT + 1, u64::MAX - 1, u64::MAX] {
            drop(write_checkpoint(&slot_path(&base, 0), epoch, b"crafted").unwrap());
            let refused = FileLog::read(&base).err().expect("no epoch can come behind it").to_string();
            assert!(refused.contains("the number of the checkpoint is damaged"), "{refused}");
        }
        drop(write_checkpoint(&slot_path(&base, 0), EPOCH_LIMIT, b"crafted").unwrap());
        let found = FileLog::read(&base).unwrap().unwrap();
        assert!(belongs(Some(EPOCH_LIMIT + 1), found.epoch));
        drop(FileLog::create(&base, found.epoch, b"next", false).unwrap());
    }

    #[test]
    fn a_flipped_byte_is_damage_and_never_another_content() {
        let (_folder, base) = filled();
        let path = slot_path(&base, 1);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            std::fs::write(&path, &bytes).unwrap();
            assert!(FileLog::read(&base).is_err(), "byte {at} flipped and nobody noticed");
        }
    }
}
