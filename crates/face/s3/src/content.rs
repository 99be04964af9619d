//! The body of a request as the bytes of an object: out of the chunks of `aws-chunked`, and compared with the lengths,
//! digests and checksums that the request gives. What does not agree is found at its end, before an object is made of it.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use base64ct::{Base64, Encoding};
use crc::{CRC_32_ISCSI, CRC_32_ISO_HDLC, CRC_64_NVME, Crc, Digest as CrcDigest};
use hyper::body::{Body, Bytes, Incoming};
use hyper::http::request::Parts;
use md5::Md5;
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::request::header;
use crate::signature::{ChunkSigner, Payload};

/// A body of which nothing came for so long has ended.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Longest line of a chunked body, bytes.
const LINE_MAX_BYTES: usize = 8 << 10;
/// Most bytes of the lines after the last chunk.
const TRAILER_MAX_BYTES: usize = 16 << 10;

static CRC32: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
static CRC32C: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);
static CRC64: Crc<u64> = Crc::<u64>::new(&CRC_64_NVME);

/// A checksum under way.
enum Sum {
    Crc32(CrcDigest<'static, u32>),
    Crc64(CrcDigest<'static, u64>),
    Sha256(Sha256),
}

impl Sum {
    /// By the name of its header, if this door computes it.
    fn of(header: &str) -> Option<Sum> {
        Some(match header {
            "x-amz-checksum-crc32" => Sum::Crc32(CRC32.digest()),
            "x-amz-checksum-crc32c" => Sum::Crc32(CRC32C.digest()),
            "x-amz-checksum-crc64nvme" => Sum::Crc64(CRC64.digest()),
            "x-amz-checksum-sha256" => Sum::Sha256(Sha256::new()),
            _ => return None,
        })
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Sum::Crc32(sum) => sum.update(bytes),
            Sum::Crc64(sum) => sum.update(bytes),
            Sum::Sha256(sum) => sum.update(bytes),
        }
    }

    fn end(self) -> Vec<u8> {
        match self {
            Sum::Crc32(sum) => sum.finalize().to_be_bytes().to_vec(),
            Sum::Crc64(sum) => sum.finalize().to_be_bytes().to_vec(),
            Sum::Sha256(sum) => sum.finalize().to_vec(),
        }
    }
}

/// What is next in the body.
enum Next {
    /// Bytes of the object to the end.
    Plain,
    /// The line before a chunk.
    Line,
    /// That many bytes of a chunk.
    Chunk(u64),
    /// The line's end after a chunk.
    ChunkEnd,
    /// Lines after the last chunk.
    Trailer,
    End,
}

/// A body that is being read.
pub struct Content {
    body: Incoming,
    /// What came and was not used.
    came: Vec<u8>,
    used: usize,
    next: Next,
    /// Bytes of the object, if the request says it.
    expected: Option<u64>,
    length: u64,
    signer: Option<ChunkSigner>,
    /// Digest of the chunk, and the signature that it has to have.
    chunk: Option<(Sha256, String)>,
    sha256: Option<(Sha256, [u8; 32])>,
    md5: Md5,
    content_md5: Option<String>,
    sum: Option<(Sum, String, Option<String>)>,
}

impl Content {
    /// The body of a request.
    ///
    /// # Errors
    /// Its lengths contradict each other.
    pub fn new(parts: &Parts, payload: Payload, body: Incoming) -> Result<Content, Failure> {
        let number = |name: &str| header(parts, name).map(|text| text.parse::<u64>()).transpose();
        let wrong = |name: &str| Failure::invalid(format!("{name} is no number"));
        let decoded =
            number("x-amz-decoded-content-length").map_err(|_| wrong("x-amz-decoded-content-length"))?;
        let length = number("content-length").map_err(|_| wrong("content-length"))?;
        let (next, expected, signer, sha256) = match payload {
            Payload::Plain(digest) => {
                (Next::Plain, length, None, digest.map(|digest| (Sha256::new(), digest)))
            }
            Payload::Chunked(signer) => (Next::Line, decoded, signer, None),
        };
        let given = parts.headers.keys().find_map(|name| {
            let value = header(parts, name.as_str())?.to_owned();
            Some((Sum::of(name.as_str())?, name.as_str().to_owned(), Some(value)))
        });
        let announced = || {
            let name = header(parts, "x-amz-trailer")?.to_ascii_lowercase();
            Some((Sum::of(&name)?, name, None))
        };
        let sum = given.or_else(announced);
        let content_md5 = header(parts, "content-md5").map(str::to_owned);
        let (came, used, length, chunk, md5) = (Vec::new(), 0, 0, None, Md5::new());
        Ok(Content { body, came, used, next, expected, length, signer, chunk, sha256, md5, content_md5, sum })
    }

    /// Bytes of the object, if the request says it.
    pub fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// The next bytes of the object; `None` after the last.
    ///
    /// # Errors
    /// The body ends early, or is not as it says.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            match self.next {
                Next::End => return Ok(None),
                Next::Plain => {
                    return match self.frame().await? {
                        Some(bytes) => self.took(bytes.to_vec()).map(Some),
                        None => Ok(None),
                    };
                }
                Next::Chunk(left) => {
                    if self.came.len() == self.used && !self.fill().await? {
                        return Err(Failure::incomplete("the body ends within a chunk"));
                    }
                    let bytes = left.min((self.came.len() - self.used) as u64) as usize;
                    let bytes = self.came[self.used..self.used + bytes].to_vec();
                    self.used += bytes.len();
                    let left = left - bytes.len() as u64;
                    self.next = if left == 0 { Next::ChunkEnd } else { Next::Chunk(left) };
                    return self.took(bytes).map(Some);
                }
                Next::ChunkEnd => {
                    if !self.line().await?.is_empty() {
                        return Err(Failure::incomplete("a chunk is longer than it says"));
                    }
                    self.check_chunk()?;
                    self.next = Next::Line;
                }
                Next::Line => self.begin_chunk().await?,
                Next::Trailer => self.trailer().await?,
            }
        }
    }

    /// Takes the line before a chunk.
    async fn begin_chunk(&mut self) -> Result<(), Failure> {
        let line = self.line().await?;
        let (size, rest) = line.split_once(';').unwrap_or((&line, ""));
        let size = Some(size).filter(|size| !size.is_empty() && size.len() <= 16 && !size.starts_with('+'));
        let size = size.and_then(|size| u64::from_str_radix(size, 16).ok());
        let size = size.ok_or_else(|| Failure::incomplete("a chunk without a size"))?;
        let signature = rest.strip_prefix("chunk-signature=").unwrap_or_default();
        self.chunk = self.signer.is_some().then(|| (Sha256::new(), signature.to_owned()));
        if size == 0 {
            self.check_chunk()?;
        }
        self.next = if size == 0 { Next::Trailer } else { Next::Chunk(size) };
        Ok(())
    }

    fn check_chunk(&mut self) -> Result<(), Failure> {
        if let (Some(signer), Some((digest, signature))) = (&mut self.signer, self.chunk.take())
            && !signer.check(&digest.finalize(), &signature)
        {
            return Err(Failure::new(
                "SignatureDoesNotMatch",
                403,
                "the signature of a chunk is not its own",
            ));
        }
        Ok(())
    }

    /// Takes the lines after the last chunk.
    async fn trailer(&mut self) -> Result<(), Failure> {
        let (mut signed, mut bytes) = (Sha256::new(), 0);
        loop {
            // The empty line may be missing.
            if self.came.len() == self.used && !self.fill().await? {
                break;
            }
            let line = self.line().await?;
            bytes += line.len();
            if bytes > TRAILER_MAX_BYTES {
                return Err(Failure::invalid("the lines after the last chunk are too long"));
            }
            let Some((name, value)) = line.split_once(':') else { break };
            if name == "x-amz-trailer-signature" {
                let digest = signed.finalize_reset();
                if self.signer.as_mut().is_some_and(|signer| !signer.check_trailer(&digest, value.trim())) {
                    return Err(Failure::new(
                        "SignatureDoesNotMatch",
                        403,
                        "the signature of the trailer is not its own",
                    ));
                }
                continue;
            }
            signed.update(format!("{}:{}\n", name.to_ascii_lowercase(), value.trim()));
            if let Some((_, expected, given)) = &mut self.sum
                && name.eq_ignore_ascii_case(expected)
            {
                *given = Some(value.trim().to_owned());
            }
        }
        self.next = Next::End;
        Ok(())
    }

    /// Notes bytes of the object.
    fn took(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.length += bytes.len() as u64;
        if self.expected.is_some_and(|expected| self.length > expected) {
            return Err(Failure::invalid("the body is longer than it says"));
        }
        self.md5.update(&bytes);
        if let Some((digest, _)) = &mut self.chunk {
            digest.update(&bytes);
        }
        if let Some((digest, _)) = &mut self.sha256 {
            digest.update(&bytes);
        }
        if let Some((sum, ..)) = &mut self.sum {
            sum.update(&bytes);
        }
        Ok(bytes)
    }

    /// The MD5 of the object, after its last byte.
    ///
    /// # Errors
    /// A length, digest or checksum of the request is not that of the bytes.
    pub fn end(self) -> Result<[u8; 16], Failure> {
        if let Some(expected) = self.expected.filter(|expected| *expected != self.length) {
            return Err(Failure::incomplete(format!("{} of {expected} bytes came", self.length)));
        }
        if self.sha256.is_some_and(|(digest, expected)| digest.finalize()[..] != expected) {
            let message = "the bytes have another SHA-256 than x-amz-content-sha256 says";
            return Err(Failure::new("XAmzContentSHA256Mismatch", 400, message));
        }
        let md5: [u8; 16] = self.md5.finalize().into();
        if self.content_md5.is_some_and(|given| given != Base64::encode_string(&md5)) {
            return Err(Failure::new("BadDigest", 400, "the bytes have another MD5 than Content-MD5 says"));
        }
        match self.sum {
            Some((_, name, None)) => {
                Err(Failure::incomplete(format!("{name} was announced and did not come")))
            }
            Some((sum, name, Some(given))) => {
                let wrong = || {
                    Failure::new(
                        "BadDigest",
                        400,
                        format!("the bytes have another checksum than {name} says"),
                    )
                };
                if Base64::encode_string(&sum.end()) == given { Ok(md5) } else { Err(wrong()) }
            }
            None => Ok(md5),
        }
    }

    /// All of a small body.
    ///
    /// # Errors
    /// It is longer than `most` bytes, or not as the request says.
    pub async fn whole(mut self, most: usize) -> Result<Vec<u8>, Failure> {
        let mut whole = Vec::new();
        while let Some(bytes) = self.next().await? {
            whole.extend(bytes);
            if whole.len() > most {
                return Err(Failure::new(
                    "MalformedXML",
                    400,
                    format!("a body of this kind has at most {most} bytes"),
                ));
            }
        }
        self.end().map(|_| whole)
    }

    /// The next line, without its end.
    async fn line(&mut self) -> Result<String, Failure> {
        loop {
            let came = &self.came[self.used..];
            if let Some(at) = came.windows(2).position(|end| end == b"\r\n") {
                let line = String::from_utf8_lossy(&came[..at]).into_owned();
                self.used += at + 2;
                return Ok(line);
            }
            if came.len() > LINE_MAX_BYTES {
                return Err(Failure::invalid("a line of the chunked body is too long"));
            }
            if !self.fill().await? {
                return Err(Failure::incomplete("the chunked body ends early"));
            }
        }
    }

    /// Reads on; is there more?
    async fn fill(&mut self) -> Result<bool, Failure> {
        self.came.drain(..self.used);
        self.used = 0;
        let frame = self.frame().await?;
        self.came.extend(frame.iter().flatten());
        Ok(frame.is_some())
    }

    async fn frame(&mut self) -> Result<Option<Bytes>, Failure> {
        let silent = || Failure::new("RequestTimeout", 400, "nothing of the body came for 30 s");
        loop {
            let frame = poll_fn(|context| Pin::new(&mut self.body).poll_frame(context));
            let frame = tokio::time::timeout(SILENCE_MAX, frame).await.map_err(|_| silent())?;
            let Some(frame) = frame else { return Ok(None) };
            let frame =
                frame.map_err(|error| Failure::incomplete(format!("the body ends early: {error}")))?;
            if let Ok(bytes) = frame.into_data()
                && !bytes.is_empty()
            {
                return Ok(Some(bytes));
            }
        }
    }
}
