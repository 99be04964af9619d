//! Where the bytes of a `file` medium are: in its file, with a shadow in memory for bytes that can no longer be
//! written, or all of them in memory. [`super`] knows what they mean.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

use kvdrive_sim::TaskCell;

use super::extent::Extent;
use crate::power::machine_file::{MachineFile, Shadow, WriteProtection};

/// Page data is aligned to this many bytes, so that it lies in whole pages of the file system.
pub(super) const ALIGN: u64 = 4096;
/// The content of a torn header.
pub(super) const UNREADABLE: u8 = 0xA5;

/// The storage of the layout's bytes.
pub(super) enum Backing {
    /// In a file, and in its shadow once writing to the file has failed.
    File {
        file: MachineFile,
        sync: bool,
        protection: WriteProtection,
        shadow: Shadow,
        /// The required and the present length of the file.
        extent: Extent,
        /// Ranges that could not be read once. They are not read again before they are written, so that a
        /// page which recovery took for damaged does not come back.
        unreadable: TaskCell<Vec<Range<u64>>>,
    },
    /// In memory: an image, or a fork.
    Memory(TaskCell<Vec<u8>>),
}

impl Backing {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            // If the length is unknown, it does not limit where pages end.
            Backing::File { file, shadow, .. } => file.bytes().unwrap_or(u64::MAX).max(shadow.end()),
            Backing::Memory(bytes) => bytes.borrow().len() as u64,
        }
    }

    /// Where the last block ends that can hold anything. Unlike [`Backing::bytes`] it costs no system call.
    pub(super) fn end(&self) -> u64 {
        match self {
            Backing::File { extent, shadow, .. } => extent.present().max(shadow.end()),
            Backing::Memory(bytes) => bytes.borrow().len() as u64,
        }
    }

    /// Fills `out` from byte `at` on; bytes after the end read as zero. Ranges that could not be read are not
    /// tried again.
    pub(super) fn read_at(&self, at: u64, out: &mut [u8]) -> std::io::Result<()> {
        let read = self.look_at(at, out);
        if let (Err(_), Backing::File { unreadable, .. }) = (&read, self) {
            let range = at..at + out.len() as u64;
            let mut unreadable = unreadable.borrow_mut();
            if !unreadable.contains(&range) {
                unreadable.push(range);
            }
        }
        read
    }

    /// As [`Backing::read_at`], for a range of which only a part may be needed: a partial read is enough.
    pub(super) fn look_at(&self, at: u64, out: &mut [u8]) -> std::io::Result<()> {
        match self {
            Backing::File { file, shadow, unreadable, .. } => {
                let end = at + out.len() as u64;
                let is_known = unreadable.borrow().iter().any(|known| at < known.end && known.start < end);
                let read = if is_known { Err(ErrorKind::Other.into()) } else { file.read_at(at, out) };
                if shadow.read_over(at, out) { Ok(()) } else { read }
            }
            Backing::Memory(bytes) => {
                out.fill(0);
                let bytes = bytes.borrow();
                let from = (at as usize).min(bytes.len());
                let count = out.len().min(bytes.len() - from);
                out[..count].copy_from_slice(&bytes[from..from + count]);
                Ok(())
            }
        }
    }

    /// Extends the file to byte `end`, before anything is written there.
    pub(super) fn reach(&self, end: u64) {
        if let Backing::File { file, sync, protection, extent, .. } = self
            && !protection.is_on()
            && let Err(error) = extent.grow(file, end, *sync)
        {
            protection.turn_on(file.path(), "cannot be written", &error);
        }
    }

    /// Writes `data` from byte `at` on, unless the file was shortened: a write behind its end would hide that.
    pub(super) fn write_at(&self, at: u64, data: &[u8]) {
        self.write(at, data, true);
    }

    /// As [`Backing::write_at`], directly after it: the length of the file is not asked for again.
    pub(super) fn write_next(&self, at: u64, data: &[u8]) {
        self.write(at, data, false);
    }

    fn write(&self, at: u64, data: &[u8], checks_length: bool) {
        match self {
            Backing::File { file, protection, shadow, extent, unreadable, .. } => {
                let end = at + data.len() as u64;
                unreadable.borrow_mut().retain(|known| known.start < at || end < known.end);
                if !protection.is_on() {
                    let checked = if checks_length { extent.check(file) } else { Ok(()) };
                    match checked.and_then(|()| file.write_at(at, data)) {
                        Ok(()) => return,
                        Err(error) => protection.turn_on(file.path(), "cannot be written", &error),
                    }
                }
                shadow.write_at(file, at, data);
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

    /// Writes to the durable content of a frozen medium: its file, or `frozen`. A file that cannot be written
    /// stays as it is.
    pub(super) fn write_beneath(&self, at: u64, data: &[u8], frozen: &mut Vec<u8>) {
        match self {
            Backing::File { file, sync, protection, .. } => {
                let is_writable = protection.reason().is_none_or(|reason| reason.path.is_none());
                if is_writable && file.write_at(at, data).is_ok() && *sync {
                    // If neither copy has reached the machine's storage, the next power cycle meets the lost
                    // die again.
                    _ = file.sync();
                }
            }
            Backing::Memory(_) => {
                let (at, end) = (at as usize, at as usize + data.len());
                frozen.resize(frozen.len().max(end), 0);
                frozen[at..end].copy_from_slice(data);
            }
        }
    }

    /// If `sync` is set, waits until everything written is on the machine's storage.
    pub(super) fn settle(&self) {
        if let Backing::File { file, sync: true, protection, .. } = self
            && !protection.is_on()
            && let Err(error) = file.sync()
        {
            protection.turn_on(file.path(), "cannot be synced", &error);
        }
    }

    pub(super) fn protection(&self) -> WriteProtection {
        match self {
            Backing::File { protection, .. } => protection.clone(),
            Backing::Memory(_) => WriteProtection::default(),
        }
    }

    /// The file, if it is one.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Backing::File { file, .. } => Some(file.path()),
            Backing::Memory(_) => None,
        }
    }

    /// The durable content, without the shadow.
    pub(super) fn kept(&self) -> Vec<u8> {
        match self {
            Backing::File { file, .. } => {
                let mut bytes = vec![0; file.bytes().unwrap_or(0) as usize];
                for (index, piece) in bytes.chunks_mut(ALIGN as usize).enumerate() {
                    if file.read_at(index as u64 * ALIGN, piece).is_err() {
                        piece.fill(UNREADABLE);
                    }
                }
                bytes
            }
            Backing::Memory(bytes) => bytes.borrow().clone(),
        }
    }
}
