//! A file that is not touched before it is needed.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A file that is opened for writing when `started` is set. If the drive or workload cannot be built, an
/// existing file stays: an earlier recording is worth more than a run that never began.
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
}

impl Write for LateFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(file) = self.open()? {
            return file.write(bytes);
        }
        self.held.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.open()?.map_or(Ok(()), File::flush)
    }
}
