//! Where the bytes of a `file` medium are: in its file, with a shadow in memory for what that takes no more, or all of
//! them in memory. What they mean is [`super`]'s.

use std::io::ErrorKind;
use std::ops::Range;

use kvdrive_sim::TaskCell;

use super::{ALIGN, UNREADABLE};
use crate::power::machine_file::{MachineFile, Shadow, WriteProtection};

/// Where the bytes of the layout are.
pub(super) enum Backing {
    /// In a file, and when that takes no more, in its shadow.
    File {
        file: MachineFile,
        sync: bool,
        protection: WriteProtection,
        shadow: Shadow,
        /// What could not be read once. It is not read again before it is written, so that a page which
        /// recovery took for damaged does not come back.
        unreadable: TaskCell<Vec<Range<u64>>>,
    },
    /// In memory: an image, or a fork.
    Memory(TaskCell<Vec<u8>>),
}

impl Backing {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            // A length that cannot be had says nothing of where pages end.
            Backing::File { file, shadow, .. } => file.bytes().unwrap_or(u64::MAX).max(shadow.end()),
            Backing::Memory(bytes) => bytes.borrow().len() as u64,
        }
    }

    /// Fills `out` from byte `at` on; what lies beyond the end reads as zero. What cannot be read is not
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

    /// As [`Backing::read_at`], of more than somebody will need: a part of it may be read.
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

    pub(super) fn write_at(&self, at: u64, data: &[u8]) {
        match self {
            Backing::File { file, protection, shadow, unreadable, .. } => {
                let end = at + data.len() as u64;
                unreadable.borrow_mut().retain(|known| known.start < at || end < known.end);
                if !protection.is_on() {
                    match file.write_at(at, data) {
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

    /// Writes to what is there for good beneath a medium that is frozen: its file, or `frozen`. A file that takes
    /// nothing more stays as it is.
    pub(super) fn write_beneath(&self, at: u64, data: &[u8], frozen: &mut Vec<u8>) {
        match self {
            Backing::File { file, sync, protection, .. } => {
                let is_writable = protection.reason().is_none_or(|reason| reason.path.is_none());
                if is_writable && file.write_at(at, data).is_ok() && *sync {
                    // Whoever finds neither copy on the machine's storage meets the die again.
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

    /// Waits until everything written is on the machine's storage, if that was asked for.
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

    /// What is in it for good, beneath its shadow.
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
