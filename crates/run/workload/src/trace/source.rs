//! The source of a trace: a file, compressed or not, read by line or by byte, with the position for messages.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;

use kvdrive_text::output::shown;

/// Longest line, bytes: a longer one would fill the machine's memory.
const LINE_MAX_BYTES: u64 = 16 << 20;

/// A file of a trace.
pub(crate) struct Source {
    name: String,
    input: BufReader<Box<dyn Read + Send>>,
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

/// Frames of zstd, one after the other.
struct Zstd(Frame);

enum Frame {
    Open(Box<StreamingDecoder<BufReader<Counted<File>>, ruzstd::decoding::FrameDecoder>>),
    Between(BufReader<Counted<File>>),
    Ended,
}

impl Read for Zstd {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(&mut self.0, Frame::Ended) {
                Frame::Ended => return Ok(0),
                Frame::Open(mut decoder) => match decoder.read(buffer)? {
                    0 if !buffer.is_empty() => self.0 = Frame::Between(decoder.into_inner()),
                    bytes => {
                        self.0 = Frame::Open(decoder);
                        return Ok(bytes);
                    }
                },
                Frame::Between(mut file) => {
                    if file.fill_buf()?.is_empty() {
                        return Ok(0);
                    }
                    let decoder = StreamingDecoder::new(file).map_err(io::Error::other)?;
                    self.0 = Frame::Open(Box::new(decoder));
                }
            }
        }
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
        let mut file = BufReader::with_capacity(1 << 16, Counted(file, read_bytes.clone()));
        let head = file.fill_buf().map_err(wrong)?;
        let input: Box<dyn Read + Send> = match head {
            [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(file)),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(Zstd(Frame::Between(file))),
            _ => Box::new(file),
        };
        let input = BufReader::with_capacity(1 << 16, input);
        let (line, unit) = (Vec::new(), "line");
        Ok(Source { name, input, line, number: 0, unit, read_bytes, file_bytes, first_long_key: None })
    }

    /// A file that is part of the program, compressed by gzip.
    ///
    /// # Errors
    /// None: the form is that of [`Source::open`].
    pub(crate) fn of_bytes(name: &str, bytes: &'static [u8]) -> Result<Source, String> {
        let read_bytes = Arc::new(AtomicU64::new(0));
        let file = BufReader::with_capacity(1 << 16, Counted(bytes, read_bytes.clone()));
        let input: Box<dyn Read + Send> = Box::new(MultiGzDecoder::new(file));
        Ok(Source {
            name: name.to_owned(),
            input: BufReader::with_capacity(1 << 16, input),
            line: Vec::new(),
            number: 0,
            unit: "line",
            read_bytes,
            file_bytes: Some(bytes.len() as u64),
            first_long_key: None,
        })
    }

    /// Its name, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The first bytes of the source, up to `bytes`; they stay to be read.
    pub(crate) fn head(&mut self, bytes: usize) -> Result<&[u8], String> {
        let name = &self.name;
        let head = self.input.fill_buf().map_err(|error| format!("{name}: {error}"))?;
        Ok(&head[..head.len().min(bytes)])
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
            if line.trim_ascii().is_empty() || line.starts_with(b"#") {
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

    /// Was the last line the first one of the file?
    pub(crate) fn is_first(&self) -> bool {
        self.number == 1
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
                0 => return Err("the file ends in the middle of it".to_owned()),
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
            return Err("the file ends in the middle of it".to_owned());
        }
        Ok(out)
    }
}
