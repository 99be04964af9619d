//! The source of a trace: a file, compressed or not, read by line or by byte, with the position for messages.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvdrive_text::output::shown;

use super::bytes::{Ahead, decompressed};

/// Longest line, bytes: a longer one would fill the machine's memory.
pub(super) const LINE_MAX_BYTES: u64 = 16 << 20;
pub(super) const ENDS_WITHIN: &str = "the file ends in the middle of it";
/// The byte order mark of UTF-8.
pub(super) const MARK: &[u8] = b"\xef\xbb\xbf";

/// A file of a trace.
pub(crate) struct Source {
    name: String,
    input: Ahead<Box<dyn Read + Send>>,
    /// The line that was read last, without its end.
    line: Vec<u8>,
    /// Number of the line, or of the record in binary formats, from 1 on.
    number: u64,
    unit: &'static str,
    /// Bytes of the file that were read, and its size if it has an end.
    read_bytes: Arc<AtomicU64>,
    file_bytes: Option<u64>,
    /// Position of the first key that was too long.
    pub(crate) first_long_key: Option<String>,
    skipped: BTreeMap<&'static str, u64>,
}

/// Counts the bytes that are read from a file.
struct Counted<R>(R, Arc<AtomicU64>);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.0.read(buffer)?;
        self.1.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

impl Source {
    /// Opens a file.
    ///
    /// # Errors
    /// One line that names it.
    pub(crate) fn open(path: &Path) -> Result<Source, String> {
        let name = shown(path);
        let wrong = |error: io::Error| format!("{name}: {error}");
        let file = File::open(path).map_err(wrong)?;
        let known = file.metadata().map_err(wrong)?;
        if known.is_dir() {
            return Err(format!("{name}: a folder"));
        }
        let file_bytes = known.is_file().then_some(known.len());
        let read_bytes = Arc::new(AtomicU64::new(0));
        let input = decompressed(Counted(file, read_bytes.clone())).map_err(wrong)?;
        Ok(Source::new(name, input, read_bytes, file_bytes))
    }

    /// A file that is part of the program, compressed.
    ///
    /// # Errors
    /// None: the form is that of [`Source::open`].
    pub(crate) fn of_bytes(name: &str, bytes: &'static [u8]) -> Result<Source, String> {
        let read_bytes = Arc::new(AtomicU64::new(0));
        let input = decompressed(Counted(bytes, read_bytes.clone())).map_err(|error| error.to_string())?;
        Ok(Source::new(name.to_owned(), input, read_bytes, Some(bytes.len() as u64)))
    }

    fn new(
        name: String,
        input: Box<dyn Read + Send>,
        read_bytes: Arc<AtomicU64>,
        file_bytes: Option<u64>,
    ) -> Source {
        Source {
            name,
            input: Ahead::new(input),
            line: Vec::new(),
            number: 0,
            unit: "line",
            read_bytes,
            file_bytes,
            first_long_key: None,
            skipped: BTreeMap::new(),
        }
    }

    /// Its name, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The bytes before the first line, at least `bytes` of them unless the file has fewer; and whether these are all.
    /// They stay to be read.
    ///
    /// # Errors
    /// The file cannot be read from its beginning.
    pub(crate) fn head(&mut self, bytes: usize) -> Result<(&[u8], bool), String> {
        let name = &self.name;
        if self.input.peek(1).0.is_empty() {
            self.input.fill_buf().map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(self.input.peek(bytes))
    }

    /// Skips the byte order mark that some editors put before a text; it is no part of it.
    pub(crate) fn skip_mark(&mut self) {
        if self.input.peek(MARK.len()).0.starts_with(MARK) {
            self.input.consume(MARK.len());
        }
    }

    /// Counts something that the trace has and a drive of pairs does not; the report says how many.
    pub(crate) fn skip(&mut self, what: &'static str) {
        *self.skipped.entry(what).or_default() += 1;
    }

    /// What was skipped, by name.
    pub(crate) fn skipped(&self) -> &BTreeMap<&'static str, u64> {
        &self.skipped
    }

    /// Fraction of the file that was read, from 0 to 1; `None` for a pipe.
    pub(crate) fn read_share(&self) -> Option<f64> {
        self.file_bytes.map(|bytes| self.read_bytes.load(Ordering::Relaxed) as f64 / bytes.max(1) as f64)
    }

    /// The place of the line or record that was read last.
    pub(crate) fn place(&self) -> String {
        format!("{}, {} {}", self.name, self.unit, self.number)
    }

    /// The next line that is neither empty nor a comment (`#`), without its end; `None` at the end. The
    /// caller gets the buffer itself: [`Source::give_back`] returns it for reuse.
    pub(crate) fn line(&mut self) -> Result<Option<Vec<u8>>, String> {
        self.line_unless(|line| line.starts_with(b"#"))
    }

    /// The next line that is neither empty nor one that `is_comment`, as [`Source::line`].
    pub(crate) fn line_unless(
        &mut self,
        is_comment: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Vec<u8>>, String> {
        if self.number == 0 {
            self.skip_mark();
        }
        loop {
            let mut line = std::mem::take(&mut self.line);
            line.clear();
            self.number += 1;
            let read = (&mut self.input).take(LINE_MAX_BYTES).read_until(b'\n', &mut line);
            if read.map_err(|error| error.to_string())? == 0 {
                return Ok(None);
            }
            if line.len() as u64 == LINE_MAX_BYTES && !line.ends_with(b"\n") {
                return Err(format!("longer than {} MiB", LINE_MAX_BYTES >> 20));
            }
            while line.last().is_some_and(|last| matches!(last, b'\n' | b'\r')) {
                line.pop();
            }
            if line.trim_ascii().is_empty() || is_comment(&line) {
                self.line = line;
                continue;
            }
            return Ok(Some(line));
        }
    }

    /// Takes the buffer of a line back, for reuse.
    pub(crate) fn give_back(&mut self, line: Vec<u8>) {
        self.line = line;
    }

    /// Notes that a new record of a binary format begins.
    pub(crate) fn begin_record(&mut self) {
        (self.number, self.unit) = (self.number + 1, "record");
    }

    /// Fills `out`; `false` if the file has ended.
    ///
    /// # Errors
    /// The file ends within `out`.
    pub(crate) fn bytes(&mut self, out: &mut [u8]) -> Result<bool, String> {
        let mut done = 0;
        while done < out.len() {
            match self.input.read(&mut out[done..]).map_err(|error| error.to_string())? {
                0 if done == 0 => return Ok(false),
                0 => return Err(ENDS_WITHIN.to_owned()),
                bytes => done += bytes,
            }
        }
        Ok(true)
    }

    /// The next `bytes` bytes. Memory is allocated as bytes are read, so a wrong length in a damaged file
    /// allocates nothing.
    ///
    /// # Errors
    /// The file has fewer.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        (&mut self.input).take(bytes).read_to_end(&mut out).map_err(|error| error.to_string())?;
        if (out.len() as u64) < bytes {
            return Err(ENDS_WITHIN.to_owned());
        }
        Ok(out)
    }
}
