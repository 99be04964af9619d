//! The structured value of a batch command: many stores and deletes in one value.
//!
//! ```text
//!  head, 16 bytes
//!  byte 0       4         5       6       8           12         16
//!     +---------+---------+-------+-------+-----------+----------+
//!     |  magic  | version | flags | count |   bytes   | checksum |
//!     | "KVSV"  |    1    |       |       | head and  |  CRC-32C |
//!     |         |         |       |       | requests  |          |
//!     +---------+---------+-------+-------+-----------+----------+
//!
//!  each request, one after the other, unpadded
//!  byte 0      1         2           4             8     8 + KL
//!     +--------+---------+-----------+-------------+-----+-------+
//!     |  kind  | key     | reserved, | value bytes | key | value |
//!     | 1 or 2 | bytes KL| zero      |             |     |       |
//!     +--------+---------+-----------+-------------+-----+-------+
//!
//!  flags: bit 0 atomic, all requests or none; the others are zero
//!  kind: 1 store, 2 delete (its value has 0 bytes)
//! ```
//!
//! The checksum covers heads and keys of all requests in their order, then bytes 0 to 11 of the head. It does not cover
//! value bytes: they are protected as those of a Store are, and a value may still be a description of bytes when the
//! batch is built.
//!
//! A drive applies the requests in their order. DW0 of the completion gives the number of requests applied,
//! whatever the status; for an atomic batch that failed it is 0.
//!
//! This module lays bytes out and reads arbitrary bytes back. It keeps no batch: a [`BatchBuilder`] returns
//! the bytes that come next, and a [`BatchReader`] asks for the few bytes it needs; neither reads values.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute, transmute_ref};

use crate::key::Key;
use crate::status::Status;

/// Bytes of the head of a structured value.
pub const BATCH_HEAD_BYTES: u32 = 16;
/// Bytes of a request without its key and value.
pub const REQUEST_HEAD_BYTES: u32 = 8;
/// Most bytes of a structured value: it is in memory as a whole.
pub const BATCH_BYTES_MAX: u32 = 2 << 20;

/// Most requests in a structured value: its count has 16 bits.
pub const BATCH_REQUESTS_MAX: u32 = u16::MAX as u32;

const MAGIC: [u8; 4] = *b"KVSV";
const VERSION: u8 = 1;
const ATOMIC: u8 = 1 << 0;

/// The head as it lies in the value.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    magic: [u8; 4],
    version: u8,
    flags: u8,
    count: U16,
    bytes: U32,
    checksum: U32,
}

/// The bytes before a request's key.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RequestHead {
    kind: u8,
    key_bytes: u8,
    flags: U16,
    value_bytes: U32,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Head>() == BATCH_HEAD_BYTES as usize && align_of::<Head>() == 1);
    assert!(offset_of!(Head, version) == 4);
    assert!(offset_of!(Head, flags) == 5);
    assert!(offset_of!(Head, count) == 6);
    assert!(offset_of!(Head, bytes) == 8);
    assert!(offset_of!(Head, checksum) == CHECKED_HEAD_BYTES);
    assert!(size_of::<RequestHead>() == REQUEST_HEAD_BYTES as usize && align_of::<RequestHead>() == 1);
    assert!(offset_of!(RequestHead, key_bytes) == 1);
    assert!(offset_of!(RequestHead, flags) == 2);
    assert!(offset_of!(RequestHead, value_bytes) == 4);
};

/// Bytes of the head that the checksum covers.
const CHECKED_HEAD_BYTES: usize = 12;

/// The kind of a request of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RequestKind {
    /// Stores a pair, whether or not the key exists.
    Store = 1,
    /// Removes a pair; succeeds, too, if there is none.
    Delete = 2,
}

/// One request of a batch, and where its value lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Store or delete.
    pub kind: RequestKind,
    /// The key.
    pub key: Key,
    /// First byte of the value, from the beginning of the structured value.
    pub value_at: u32,
    /// Size of the value in bytes; 0 for a delete.
    pub value_bytes: u32,
}

/// Bytes of one request in a structured value.
#[inline]
#[must_use]
pub const fn request_bytes(key_bytes: usize, value_bytes: u32) -> u64 {
    REQUEST_HEAD_BYTES as u64 + key_bytes as u64 + value_bytes as u64
}

/// The bytes before a value: the head of its request and the key.
#[derive(Clone, Copy, Debug)]
pub struct Prefix {
    bytes: [u8; REQUEST_HEAD_BYTES as usize + Key::IDENTITY_BYTES],
    used_bytes: u8,
    tail_bytes: u8,
}

impl Prefix {
    /// The first bytes; after those of a long key come the zeros of [`Prefix::tail`].
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.used_bytes)]
    }

    /// The rest of a key of more than 16 bytes.
    #[inline]
    #[must_use]
    pub fn tail(&self) -> &'static [u8] {
        &KEY_TAIL[..usize::from(self.tail_bytes)]
    }

    /// All of its bytes, in number.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> u32 {
        u32::from(self.used_bytes) + u32::from(self.tail_bytes)
    }
}

/// The bytes of keys after their first 16.
const KEY_TAIL: [u8; Key::MAX_LEN - Key::IDENTITY_BYTES] = [0; Key::MAX_LEN - Key::IDENTITY_BYTES];

/// Builds a structured value in memory of the caller: it returns the bytes that come next.
///
/// ```
/// # use kvdrive_nvme::{Key, batch::{BatchBuilder, BatchReader, RequestKind}};
/// let mut value = vec![0; 16]; // room for the head
/// let mut batch = BatchBuilder::new();
/// batch.append(&mut value, RequestKind::Store, Key::new(b"key").unwrap(), b"value");
/// batch.append(&mut value, RequestKind::Delete, Key::new(b"old").unwrap(), b"");
/// value[..16].copy_from_slice(&batch.head(false));
/// assert_eq!(BatchReader::of_bytes(&value).unwrap().requests(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    count: u32,
    bytes: u32,
    checksum: u32,
}

impl Default for BatchBuilder {
    fn default() -> BatchBuilder {
        BatchBuilder::new()
    }
}

impl BatchBuilder {
    /// No requests yet: the head alone.
    #[must_use]
    pub const fn new() -> BatchBuilder {
        BatchBuilder { count: 0, bytes: BATCH_HEAD_BYTES, checksum: 0 }
    }

    /// Requests so far.
    #[inline]
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes so far, head included.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Adds a request and returns its prefix, to be written at the byte that [`BatchBuilder::bytes`] gave
    /// before the call; the value follows directly after the prefix.
    ///
    /// # Panics
    /// There are more than [`BATCH_REQUESTS_MAX`] requests, a delete has a value, or the bytes exceed 32
    /// bits.
    #[inline]
    pub fn push(&mut self, kind: RequestKind, key: Key, value_bytes: u32) -> Prefix {
        assert!(self.count < BATCH_REQUESTS_MAX, "a batch counts its requests in 16 bits");
        assert!(kind == RequestKind::Store || value_bytes == 0, "a delete has no value");
        let end = u64::from(self.bytes) + request_bytes(key.len(), value_bytes);
        self.bytes = u32::try_from(end).expect("a batch counts its bytes in 32 bits");
        self.count += 1;
        let head = RequestHead {
            kind: kind as u8,
            key_bytes: key.len() as u8,
            flags: U16::ZERO,
            value_bytes: U32::new(value_bytes),
        };
        let mut bytes = [0; REQUEST_HEAD_BYTES as usize + Key::IDENTITY_BYTES];
        let (front, rear) = bytes.split_at_mut(REQUEST_HEAD_BYTES as usize);
        front.copy_from_slice(head.as_bytes());
        rear.copy_from_slice(&key.to_array());
        let tail_bytes = key.tail_bytes() as u8;
        let used_bytes = REQUEST_HEAD_BYTES as u8 + (key.len() as u8 - tail_bytes);
        let prefix = Prefix { bytes, used_bytes, tail_bytes };
        self.checksum = crc32c::crc32c_append(self.checksum, prefix.as_bytes());
        if tail_bytes > 0 {
            self.checksum = crc32c::crc32c_append(self.checksum, prefix.tail());
        }
        prefix
    }

    /// Appends a request of real bytes to `out`, which starts with room for the head.
    ///
    /// # Panics
    /// As [`BatchBuilder::push`], and if `out` does not end where the next request begins.
    pub fn append(&mut self, out: &mut Vec<u8>, kind: RequestKind, key: Key, value: &[u8]) {
        assert_eq!(out.len(), self.bytes as usize, "requests follow each other without a gap");
        let value_bytes = u32::try_from(value.len()).expect("a value's size has 32 bits");
        let prefix = self.push(kind, key, value_bytes);
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(prefix.tail());
        out.extend_from_slice(value);
    }

    /// The head for the requests added so far.
    #[must_use]
    pub fn head(&self, atomic: bool) -> [u8; BATCH_HEAD_BYTES as usize] {
        let mut head = Head {
            magic: MAGIC,
            version: VERSION,
            flags: if atomic { ATOMIC } else { 0 },
            count: U16::new(self.count as u16),
            bytes: U32::new(self.bytes),
            checksum: U32::ZERO,
        };
        head.checksum = U32::new(head_checksum(self.checksum, &head));
        transmute!(head)
    }
}

fn head_checksum(of_requests: u32, head: &Head) -> u32 {
    let bytes: &[u8; BATCH_HEAD_BYTES as usize] = transmute_ref!(head);
    crc32c::crc32c_append(of_requests, &bytes[..CHECKED_HEAD_BYTES])
}

/// What is wrong with a structured value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchError {
    /// Fewer bytes than a head has.
    #[error("a structured value of {bytes} bytes; its head alone has 16")]
    NoHead {
        /// The bytes there are.
        bytes: u32,
    },
    /// The first bytes are not those of a structured value.
    #[error("bytes {found:02x?} where a structured value begins with \"KVSV\"")]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// A version this code does not know.
    #[error("version {found} of the structured value; 1 is known")]
    Version {
        /// The version found.
        found: u8,
    },
    /// Reserved bits of the head are set.
    #[error("flags {found:02X}h of the structured value; only bit 0 has a meaning")]
    Flags {
        /// The flags.
        found: u8,
    },
    /// The head gives another size than the value has.
    #[error("a structured value that says {said} bytes has {found}")]
    Bytes {
        /// The size in the head.
        said: u32,
        /// The size of the value.
        found: u32,
    },
    /// A batch without requests.
    #[error("a structured value without requests")]
    Empty,
    /// A request's head, key or value ends beyond the value.
    #[error("request {index}, at byte {at}, ends at byte {end}; the structured value has {bytes}")]
    BeyondEnd {
        /// Which request, from 0.
        index: u32,
        /// The byte at which it begins.
        at: u32,
        /// The byte at which it would end.
        end: u64,
        /// Bytes of the structured value.
        bytes: u32,
    },
    /// Neither store nor delete.
    #[error("request {index} is of kind {found}; 1 is store and 2 is delete")]
    Kind {
        /// Which request, from 0.
        index: u32,
        /// The kind found.
        found: u8,
    },
    /// A key of no bytes.
    #[error("request {index} has a key of 0 bytes; a key has 1 to 255")]
    KeyBytes {
        /// Which request, from 0.
        index: u32,
    },
    /// A long key that is more than a size.
    #[error("request {index} has a key with other bytes than zeros after the first 16")]
    KeyTail {
        /// Which request, from 0.
        index: u32,
    },
    /// Reserved bits of a request are set.
    #[error("request {index} has flags {found:04X}h; none has a meaning")]
    RequestFlags {
        /// Which request, from 0.
        index: u32,
        /// The flags.
        found: u16,
    },
    /// A delete with a value.
    #[error("request {index} is a delete with a value of {found} bytes")]
    DeleteValue {
        /// Which request, from 0.
        index: u32,
        /// The size found.
        found: u32,
    },
    /// Bytes after the last request.
    #[error("{bytes} bytes after the last of {count} requests")]
    Trailing {
        /// How many bytes.
        bytes: u32,
        /// How many requests the head counts.
        count: u32,
    },
    /// The checksum of heads and keys is wrong.
    #[error("checksum {said:08x} in the head of a structured value whose heads and keys have {found:08x}")]
    Checksum {
        /// The checksum in the head.
        said: u32,
        /// The checksum of the bytes.
        found: u32,
    },
}

impl BatchError {
    /// The status that a drive answers: [`Status::INVALID_KEY_SIZE`] for a key length, else
    /// [`Status::INVALID_FIELD`].
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            BatchError::KeyBytes { .. } => Status::INVALID_KEY_SIZE,
            _ => Status::INVALID_FIELD,
        }
    }
}

/// Iterates over the requests of a structured value, wherever its bytes are: `read(at, out)` fills `out` with
/// the bytes from `at` on. It is asked for heads and keys only, never for bytes beyond the given size.
///
/// [`BatchReader::check`] reads all requests and compares the checksum. A drive does that before it applies
/// the first request; then the reader yields the requests as an iterator. After an error it yields nothing
/// more.
#[derive(Clone, Debug)]
pub struct BatchReader<R> {
    read: R,
    head: Head,
    /// Position and index of the next request.
    at: u32,
    index: u32,
    /// Checksum of the requests read so far.
    checksum: u32,
}

impl BatchReader<()> {
    /// Reads the structured value in `bytes`.
    ///
    /// # Errors
    /// As [`BatchReader::new`].
    pub fn of_bytes(bytes: &[u8]) -> Result<BatchReader<impl FnMut(u32, &mut [u8]) + Clone>, BatchError> {
        let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        BatchReader::new(size, move |at, out: &mut [u8]| {
            out.copy_from_slice(&bytes[at as usize..at as usize + out.len()]);
        })
    }
}

impl<R: FnMut(u32, &mut [u8])> BatchReader<R> {
    /// Reads the structured value of `bytes` bytes through `read`.
    ///
    /// # Errors
    /// What is wrong with the head; the requests have not been read.
    pub fn new(bytes: u32, mut read: R) -> Result<BatchReader<R>, BatchError> {
        if bytes < BATCH_HEAD_BYTES {
            return Err(BatchError::NoHead { bytes });
        }
        let mut raw = [0; BATCH_HEAD_BYTES as usize];
        read(0, &mut raw);
        let head: Head = transmute!(raw);
        if head.magic != MAGIC {
            return Err(BatchError::Magic { found: head.magic });
        }
        if head.version != VERSION {
            return Err(BatchError::Version { found: head.version });
        }
        if head.flags & !ATOMIC != 0 {
            return Err(BatchError::Flags { found: head.flags });
        }
        if head.bytes.get() != bytes {
            return Err(BatchError::Bytes { said: head.bytes.get(), found: bytes });
        }
        if head.count.get() == 0 {
            return Err(BatchError::Empty);
        }
        Ok(BatchReader { read, head, at: BATCH_HEAD_BYTES, index: 0, checksum: 0 })
    }

    /// Requests that the head counts.
    #[must_use]
    pub fn requests(&self) -> u32 {
        u32::from(self.head.count.get())
    }

    /// Size of the structured value in bytes, head included.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.head.bytes.get()
    }

    /// All requests or none.
    #[must_use]
    pub fn is_atomic(&self) -> bool {
        self.head.flags & ATOMIC != 0
    }

    /// Reads all requests, from the first, whatever was read before.
    ///
    /// # Errors
    /// The first thing that is wrong: with a request, after the last request, or with the checksum.
    pub fn check(&mut self) -> Result<(), BatchError> {
        (self.at, self.index, self.checksum) = (BATCH_HEAD_BYTES, 0, 0);
        while self.index < self.requests() {
            self.request()?;
        }
        if self.at != self.bytes() {
            return Err(BatchError::Trailing { bytes: self.bytes() - self.at, count: self.requests() });
        }
        let (said, found) = (self.head.checksum.get(), head_checksum(self.checksum, &self.head));
        if said != found {
            return Err(BatchError::Checksum { said, found });
        }
        (self.at, self.index, self.checksum) = (BATCH_HEAD_BYTES, 0, 0);
        Ok(())
    }

    fn request(&mut self) -> Result<Request, BatchError> {
        let (index, at, bytes) = (self.index, self.at, self.bytes());
        let beyond = |end: u64| match end > u64::from(bytes) {
            true => Err(BatchError::BeyondEnd { index, at, end, bytes }),
            false => Ok(()),
        };
        beyond(u64::from(at) + u64::from(REQUEST_HEAD_BYTES))?;
        let mut prefix = [0; REQUEST_HEAD_BYTES as usize + Key::MAX_LEN];
        let (raw, key) = prefix.split_at_mut(REQUEST_HEAD_BYTES as usize);
        (self.read)(at, raw);
        let head = RequestHead::read_from_bytes(raw).expect("a request's head has its size");
        let (key_bytes, value_bytes) = (usize::from(head.key_bytes), head.value_bytes.get());
        if key_bytes == 0 {
            return Err(BatchError::KeyBytes { index });
        }
        let kind = match head.kind {
            1 => RequestKind::Store,
            2 => RequestKind::Delete,
            found => return Err(BatchError::Kind { index, found }),
        };
        if head.flags.get() != 0 {
            return Err(BatchError::RequestFlags { index, found: head.flags.get() });
        }
        if kind == RequestKind::Delete && value_bytes != 0 {
            return Err(BatchError::DeleteValue { index, found: value_bytes });
        }
        beyond(u64::from(at) + request_bytes(key_bytes, value_bytes))?;
        (self.read)(at + REQUEST_HEAD_BYTES, &mut key[..key_bytes]);
        let key = Key::new(&key[..key_bytes]).ok_or(BatchError::KeyTail { index })?;
        let value_at = at + REQUEST_HEAD_BYTES + key_bytes as u32;
        self.checksum =
            crc32c::crc32c_append(self.checksum, &prefix[..REQUEST_HEAD_BYTES as usize + key_bytes]);
        (self.at, self.index) = (value_at + value_bytes, index + 1);
        Ok(Request { kind, key, value_at, value_bytes })
    }
}

impl<R: FnMut(u32, &mut [u8])> Iterator for BatchReader<R> {
    type Item = Result<Request, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.index == self.requests() {
            return None;
        }
        let request = self.request();
        if request.is_err() {
            self.index = self.requests();
        }
        Some(request)
    }
}
