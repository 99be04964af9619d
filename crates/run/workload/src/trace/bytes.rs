//! The bytes of a trace's file: what is read ahead to decide on its format, and frames of gzip and zstd.
//!
//! A read may bring less than a decision needs: a pipe brings what its writer has flushed, a compressed file a member at
//! a time. So a decision asks for a number of bytes, and gets fewer only at the end.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// Bytes of a buffered read.
const BUFFER_BYTES: usize = 1 << 16;
/// First bytes of a member of gzip and of a frame of zstd.
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A reader some of whose bytes were read before they were asked for.
pub(super) struct Ahead<R> {
    held: Vec<u8>,
    /// How many of them were taken.
    taken: usize,
    /// An error that came behind them.
    failed: Option<io::Error>,
    rest: BufReader<R>,
}

impl<R: Read> Ahead<R> {
    pub(super) fn new(rest: R) -> Ahead<R> {
        let rest = BufReader::with_capacity(BUFFER_BYTES, rest);
        Ahead { held: Vec::new(), taken: 0, failed: None, rest }
    }

    /// The next bytes, at least `bytes` of them unless the end or an error comes before; and whether it does. They
    /// stay to be read.
    pub(super) fn peek(&mut self, bytes: usize) -> (&[u8], bool) {
        let mut is_all = self.failed.is_some();
        while !is_all && self.held.len() - self.taken < bytes {
            match self.rest.fill_buf() {
                Ok([]) => is_all = true,
                Ok(more) => {
                    let count = more.len();
                    self.held.extend_from_slice(more);
                    self.rest.consume(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => (self.failed, is_all) = (Some(error), true),
            }
        }
        (&self.held[self.taken..], is_all)
    }
}

impl<R: Read> BufRead for Ahead<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.taken < self.held.len() {
            return Ok(&self.held[self.taken..]);
        }
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.rest.fill_buf(),
        }
    }

    fn consume(&mut self, bytes: usize) {
        if self.taken < self.held.len() {
            self.taken += bytes;
            if self.taken == self.held.len() {
                (self.held, self.taken) = (Vec::new(), 0);
            }
        } else {
            self.rest.consume(bytes);
        }
    }
}

impl<R: Read> Read for Ahead<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?.read(buffer)?;
        self.consume(bytes);
        Ok(bytes)
    }
}

/// The text of a file: decompressed if its first bytes say that it is compressed.
pub(super) fn decompressed<R: Read + Send + 'static>(file: R) -> io::Result<Box<dyn Read + Send>> {
    let mut file = Ahead::new(file);
    let is_compressed = frame(file.peek(ZSTD.len()).0).is_some();
    // A file that cannot be read says so here, with its name alone.
    file.fill_buf()?;
    Ok(if is_compressed { Box::new(Frames { now: Now::Between(file), number: 0 }) } else { Box::new(file) })
}

/// What begins with these bytes.
fn frame(head: &[u8]) -> Option<Kind> {
    let skippable = |head: &[u8]| matches!(head, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]);
    match head {
        head if head.starts_with(&GZIP) => Some(Kind::Gzip),
        head if head.starts_with(&ZSTD) => Some(Kind::Zstd),
        head if skippable(head) => Some(Kind::Skipped),
        _ => None,
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Gzip,
    Zstd,
    /// A frame of zstd that decoders skip (RFC 8878, section 3.1.2).
    Skipped,
}

/// Members of gzip and frames of zstd, one after the other.
struct Frames<R: Read> {
    now: Now<R>,
    /// Frames that were begun.
    number: u64,
}

enum Now<R: Read> {
    Gzip(Box<GzDecoder<Ahead<R>>>),
    Zstd(Box<StreamingDecoder<Ahead<R>, FrameDecoder>>),
    Between(Ahead<R>),
    Ended,
}

impl<R: Read> Frames<R> {
    /// The next frame of a file, or its end.
    fn begin(&mut self, mut file: Ahead<R>) -> io::Result<Now<R>> {
        let head = file.peek(ZSTD.len()).0;
        if head.is_empty() {
            // An error that came behind the last frame.
            file.fill_buf()?;
            return Ok(Now::Ended);
        }
        self.number += 1;
        let number = self.number;
        let wrong = |what: &str| io::Error::other(format!("frame {number} of the compressed file: {what}"));
        match frame(head) {
            Some(Kind::Gzip) => Ok(Now::Gzip(Box::new(GzDecoder::new(file)))),
            Some(Kind::Zstd) => {
                let decoder = StreamingDecoder::new(file).map_err(|error| wrong(&error.to_string()))?;
                Ok(Now::Zstd(Box::new(decoder)))
            }
            Some(Kind::Skipped) => {
                let mut head = [0; 8];
                let cut = || wrong("it ends in the middle");
                file.read_exact(&mut head).map_err(|_| cut())?;
                let length = u32::from_le_bytes(head[4..].try_into().expect("four bytes"));
                let skipped = io::copy(&mut (&mut file).take(length.into()), &mut io::sink())?;
                if skipped < length.into() { Err(cut()) } else { Ok(Now::Between(file)) }
            }
            // Tapes and block devices fill the last block with zeros; gzip ignores them as well.
            None if is_zeros(&mut file)? => Ok(Now::Ended),
            None => Err(wrong("neither gzip nor zstd")),
        }
    }
}

/// Has the rest of a file only zeros?
fn is_zeros<R: Read>(file: &mut Ahead<R>) -> io::Result<bool> {
    loop {
        let rest = file.fill_buf()?;
        if rest.is_empty() {
            return Ok(true);
        }
        if rest.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        let bytes = rest.len();
        file.consume(bytes);
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let (bytes, decoder) = match std::mem::replace(&mut self.now, Now::Ended) {
                Now::Ended => return Ok(0),
                Now::Between(file) => {
                    self.now = self.begin(file)?;
                    continue;
                }
                Now::Gzip(mut decoder) => (decoder.read(buffer)?, Now::Gzip(decoder)),
                Now::Zstd(mut decoder) => (decoder.read(buffer)?, Now::Zstd(decoder)),
            };
            self.now = match decoder {
                decoder if bytes > 0 || buffer.is_empty() => decoder,
                Now::Gzip(decoder) => Now::Between(decoder.into_inner()),
                Now::Zstd(decoder) => Now::Between(decoder.into_inner()),
                other => other,
            };
            if bytes > 0 || buffer.is_empty() {
                return Ok(bytes);
            }
        }
    }
}

/// The program that compressed a file with this beginning, if it is one whose output is not read.
pub(super) fn unread_compression(head: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 6] = [
        (b"\xfd7zXZ\0", "xz"),
        (b"BZh", "bzip2"),
        (b"\x04\x22\x4d\x18", "lz4"),
        (b"PK\x03\x04", "zip"),
        (&GZIP, "gzip, twice"),
        (&ZSTD, "zstd, twice"),
    ];
    known.into_iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that brings one byte at a time, and fails at its end.
    struct Trickle(Vec<u8>, bool);

    impl Read for Trickle {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.is_empty() {
                true if self.1 => Err(io::Error::other("the cable")),
                true => Ok(0),
                false => {
                    buffer[0] = self.0.remove(0);
                    Ok(1)
                }
            }
        }
    }

    #[test]
    fn what_was_looked_at_is_read_afterwards_and_so_is_the_error_behind_it() {
        let mut ahead = Ahead::new(Trickle(b"abcdef".to_vec(), true));
        assert_eq!(ahead.peek(4), (&b"abcd"[..], false));
        let mut two = [0; 2];
        ahead.read_exact(&mut two).unwrap();
        assert_eq!(ahead.peek(100), (&b"cdef"[..], true));
        let mut rest = Vec::new();
        assert!(ahead.read_to_end(&mut rest).is_err());
        assert_eq!((&two, &rest[..]), (b"ab", &b"cdef"[..]));
    }
}
