//! The required length of an image file, stored twice in the head of that file: a shorter file was truncated.
//!
//! ```text
//!   at 512 and at 2560:   bytes u64 | check u64        zeros: not known, as in files of earlier programs
//! ```
//!
//! The file is extended before the record says so, and it never shrinks. A process that is killed at any
//! instruction therefore leaves a file that is at least as long as its record says.

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::power::machine_file::MachineFile;

const RECORDS_AT: [u64; 2] = [512, 2560];
const RECORD_BYTES: usize = 16;

/// The length of a file, and its length before it was truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortened {
    /// Its present length in bytes.
    pub bytes: u64,
    /// Its recorded length in bytes.
    pub before: u64,
}

impl std::fmt::Display for Shortened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "has {} of its {} bytes; its end was cut off", self.bytes, self.before)
    }
}

/// Checks whether the image file at `path` was truncated. Writes nothing.
///
/// # Errors
/// The file cannot be read.
pub fn shortened(path: &Path) -> io::Result<Option<Shortened>> {
    let file = MachineFile::open(path, OpenOptions::new().read(true))?;
    Extent::of(&file)?.shortened(&file)
}

/// The required length of a file, and its present one.
#[derive(Debug, Default)]
pub(super) struct Extent {
    recorded: Cell<u64>,
    /// The length at the opening, with the growth since then. It is kept here because a recovery needs it for every
    /// block, which would be a system call each time.
    present: Cell<u64>,
}

impl Extent {
    /// The record in `file`; the longer one of its two copies, since one may be older.
    pub fn of(file: &MachineFile) -> io::Result<Extent> {
        let mut longest = 0;
        for at in RECORDS_AT {
            let mut record = [0; RECORD_BYTES];
            file.read_at(at, &mut record)?;
            let bytes = u64::from_le_bytes(record[..8].try_into().expect("8 bytes"));
            if record == record_of(bytes) {
                longest = longest.max(bytes);
            }
        }
        Ok(Extent { recorded: Cell::new(longest), present: Cell::new(file.bytes()?) })
    }

    /// The required length in bytes.
    pub fn recorded(&self) -> u64 {
        self.recorded.get()
    }

    pub fn shortened(&self, file: &MachineFile) -> io::Result<Option<Shortened>> {
        let (bytes, before) = (file.bytes()?, self.recorded.get());
        Ok((bytes < before).then_some(Shortened { bytes, before }))
    }

    /// Length of the file in bytes: no block that begins after it holds anything.
    pub fn present(&self) -> u64 {
        self.present.get()
    }

    /// Checks that `file` is still as long as it was made.
    ///
    /// # Errors
    /// It was shortened.
    pub fn check(&self, file: &MachineFile) -> io::Result<()> {
        file.check_length(self.recorded.get())
    }

    /// Makes `file` at least `bytes` long, and then records that in its head.
    pub fn grow(&self, file: &MachineFile, bytes: u64, sync: bool) -> io::Result<()> {
        if bytes <= self.recorded.get() {
            return Ok(());
        }
        self.check(file)?;
        file.grow_to(bytes)?;
        self.present.set(self.present.get().max(bytes));
        if sync {
            file.sync()?;
        }
        RECORDS_AT.iter().try_for_each(|at| file.write_at(*at, &record_of(bytes)))?;
        self.recorded.set(bytes);
        Ok(())
    }
}

fn record_of(bytes: u64) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..8].copy_from_slice(&bytes.to_le_bytes());
    record[8..].copy_from_slice(&xxh3_64(&bytes.to_le_bytes()).to_le_bytes());
    record
}
