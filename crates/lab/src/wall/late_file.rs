//! A file that is not touched before it is known to be wanted.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A file to be written once `started` says so. A drive or a workload that cannot be built leaves what is
/// there: an earlier recording is worth more than a run that never was.
pub(super) struct LateFile {
    path: PathBuf,
    started: Arc<AtomicBool>,
    /// What was written before that.
    held: Vec<u8>,
    file: Option<File>,
}

impl LateFile {
    pub(super) fn new(path: &Path, started: Arc<AtomicBool>) -> LateFile {
        LateFile { path: path.to_owned(), started, held: Vec::new(), file: None }
    }

    /// The file with what was held in it; none before the start.
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
