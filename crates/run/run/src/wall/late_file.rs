//! A file that is not touched before it is needed.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvdrive_text::output::shown;

/// A file that is opened for writing when `started` is set. If the drive or workload cannot be built, an
/// existing file stays: an earlier recording is worth more than a run that never began. Errors name the file.
pub(super) struct LateFile {
    path: PathBuf,
    started: Arc<AtomicBool>,
    /// Bytes written before the start.
    held: Vec<u8>,
    file: Option<File>,
}

impl LateFile {
    pub(super) fn new(path: &Path, started: Arc<AtomicBool>) -> LateFile {
        LateFile { path: path.to_owned(), started, held: Vec::new(), file: None }
    }

    /// The file, with the bytes from before the start; `None` until then.
    fn open(&mut self) -> io::Result<Option<&mut File>> {
        if self.file.is_none() && self.started.load(Ordering::Acquire) {
            let mut file = File::create(&self.path)?;
            file.write_all(&std::mem::take(&mut self.held))?;
            self.file = Some(file);
        }
        Ok(self.file.as_mut())
    }

    fn named(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", shown(&self.path)))
    }
}

impl Write for LateFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match self.open() {
            Ok(Some(file)) => file.write(bytes),
            Ok(None) => self.held.write(bytes),
            Err(error) => Err(error),
        };
        written.map_err(|error| self.named(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.open().and_then(|file| file.map_or(Ok(()), File::flush));
        flushed.map_err(|error| self.named(error))
    }
}
