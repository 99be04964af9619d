//! The form of the state that a drive keeps outside of flash pages: protected images, their journals, tables of a
//! medium.
//!
//! A record is a head and a body. The body is a value in the encoding of borsh, derived from its type: numbers
//! little endian in their full width, lengths and counts `u32`, a byte for a variant or a flag. A value has one
//! encoding, so bytes that were altered are refused or are another value of the type.
//!
//! ```text
//!   0         7             8                16               20               24
//!   +---------+-------------+----------------+----------------+----------------+-----------+
//!   | magic   | version     | body bytes u64 | body crc32c    | head crc32c    | body ...  |
//!   +---------+-------------+----------------+----------------+----------------+-----------+
//!     7 B       one digit                                       of bytes 0..20
//! ```
//!
//! Readers are strict: bytes after the end, lengths beyond the input, unknown versions, variants and flags are
//! errors, and no more memory is taken than the input justifies. What a value means, and whether its numbers fit
//! a drive, its owner checks.

pub mod trial;

use borsh::{BorshDeserialize, BorshSerialize};

/// Bytes of a head.
pub const HEAD_BYTES: usize = 24;
const VERSION_AT: usize = 7;
const BODY_CHECK_AT: usize = 16;
const HEAD_CHECK_AT: usize = 20;

/// One kind of record.
#[derive(Debug)]
pub struct Form {
    /// What it is, for messages: "protected image".
    pub name: &'static str,
    /// Its first bytes, in every version.
    pub magic: &'static [u8; VERSION_AT],
    /// The version that this program writes and reads, 0 to 9.
    pub version: u8,
}

/// Why bytes are not the record, or not the value, that they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{flaw}")]
pub struct RecordError {
    /// Position of the flaw in bytes.
    pub at: usize,
    /// What is wrong there.
    pub flaw: Flaw,
}

/// What is wrong with bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// The bytes do not begin like any version of the record.
    #[error("is no {0}")]
    Foreign(&'static str),
    /// The record has a version that this program does not read.
    #[error("is a {name} of version {found}, which another kvdrive wrote; kvdrive {} reads version {known}", env!("CARGO_PKG_VERSION"))]
    Version {
        /// Name of the form.
        name: &'static str,
        /// Version of the bytes.
        found: u8,
        /// The version that this program reads.
        known: u8,
    },
    /// The bytes end before the record does.
    #[error("the {0} ends early")]
    Short(&'static str),
    /// A checksum does not match.
    #[error("the {0} is damaged: a checksum does not match")]
    Checksum(&'static str),
    /// The body does not decode to a value of the type.
    #[error("{0}")]
    Body(String),
    /// Bytes follow the record.
    #[error("something follows its end")]
    Trailing,
}

impl Form {
    /// A record of this form.
    pub fn seal<T: BorshSerialize + ?Sized>(&self, body: &T) -> Vec<u8> {
        let mut record = begin();
        put(&mut record, body);
        self.finish(&mut record);
        record
    }

    /// Fills in the head of a record that [`begin`] began and to which its body was added.
    pub fn finish(&self, record: &mut [u8]) {
        let (head, body) = record.split_at_mut(HEAD_BYTES);
        head[..VERSION_AT].copy_from_slice(self.magic);
        head[VERSION_AT] = b'0' + self.version;
        head[VERSION_AT + 1..BODY_CHECK_AT].copy_from_slice(&(body.len() as u64).to_le_bytes());
        head[BODY_CHECK_AT..HEAD_CHECK_AT].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
        let check = crc32c::crc32c(&head[..HEAD_CHECK_AT]);
        head[HEAD_CHECK_AT..].copy_from_slice(&check.to_le_bytes());
    }

    /// The value of a record. The record must be all of `bytes`.
    ///
    /// # Errors
    /// `bytes` are not such a record: position and flaw.
    pub fn open<T: BorshDeserialize>(&self, bytes: &[u8]) -> Result<T, RecordError> {
        let body = self.take_all(bytes)?;
        decode(body).map_err(|error| RecordError { at: HEAD_BYTES + error.at, ..error })
    }

    /// The body of a record. The record must be all of `bytes`.
    ///
    /// # Errors
    /// `bytes` are not one whole record.
    pub fn take_all<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], RecordError> {
        let mut rest = bytes;
        let body = self.take(&mut rest)?;
        match rest {
            [] => Ok(body),
            _ => Err(RecordError { at: bytes.len() - rest.len(), flaw: Flaw::Trailing }),
        }
    }

    /// Takes the record at the front off `bytes` and returns its body.
    ///
    /// # Errors
    /// There is no whole record; `bytes` stay as they are.
    pub fn take<'a>(&self, bytes: &mut &'a [u8]) -> Result<&'a [u8], RecordError> {
        let body_bytes = self.body_bytes(bytes)?;
        let (head, rest) = bytes.split_at(HEAD_BYTES);
        let split = usize::try_from(body_bytes).ok().and_then(|body_bytes| rest.split_at_checked(body_bytes));
        let (body, after) = split.ok_or(RecordError { at: bytes.len(), flaw: Flaw::Short(self.name) })?;
        if crc32c::crc32c(body).to_le_bytes() != head[BODY_CHECK_AT..HEAD_CHECK_AT] {
            return Err(RecordError { at: HEAD_BYTES, flaw: Flaw::Checksum(self.name) });
        }
        *bytes = after;
        Ok(body)
    }

    /// Length of the body of the record at the front of `bytes`, by its head, which is checked. The body may be
    /// missing.
    ///
    /// # Errors
    /// There is no whole head.
    pub fn body_bytes(&self, bytes: &[u8]) -> Result<u64, RecordError> {
        let (name, known) = (self.name, self.version);
        let error = |at, flaw| Err(RecordError { at, flaw });
        let common = bytes.len().min(VERSION_AT);
        if bytes[..common] != self.magic[..common] {
            return error(0, Flaw::Foreign(name));
        }
        match bytes.get(VERSION_AT) {
            Some(found) if *found == b'0' + known => {}
            Some(found) if found.is_ascii_digit() => {
                return error(VERSION_AT, Flaw::Version { name, found: found - b'0', known });
            }
            Some(_) => return error(VERSION_AT, Flaw::Checksum(name)),
            None => {}
        }
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
            return error(bytes.len(), Flaw::Short(name));
        };
        let (checked, check) = head.split_at(HEAD_CHECK_AT);
        if crc32c::crc32c(checked).to_le_bytes() != check {
            return error(HEAD_CHECK_AT, Flaw::Checksum(name));
        }
        Ok(u64::from_le_bytes(head[VERSION_AT + 1..BODY_CHECK_AT].try_into().expect("8 bytes")))
    }
}

/// Room for a head, to which a body is added with [`put`]; [`Form::finish`] makes it a record.
pub fn begin() -> Vec<u8> {
    vec![0; HEAD_BYTES]
}

/// Appends a value.
pub fn put<T: BorshSerialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    value.serialize(out).expect("memory takes all bytes, and no list of a drive has 2^32 items");
}

/// The bytes of a value, without a head.
pub fn encode<T: BorshSerialize + ?Sized>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, value);
    out
}

/// Decodes a value. Its encoding must be all of `bytes`.
///
/// # Errors
/// `bytes` are not the encoding of a value: position and flaw.
pub fn decode<T: BorshDeserialize>(bytes: &[u8]) -> Result<T, RecordError> {
    let mut rest = bytes;
    let value = next(&mut rest).map_err(|error| RecordError { at: bytes.len() - rest.len(), ..error })?;
    match rest {
        [] => Ok(value),
        _ => Err(RecordError { at: bytes.len() - rest.len(), flaw: Flaw::Trailing }),
    }
}

/// Decodes the value at the front of `bytes`, and removes its encoding from them.
///
/// # Errors
/// There is no value; the error has no position.
pub fn next<T: BorshDeserialize>(bytes: &mut &[u8]) -> Result<T, RecordError> {
    T::deserialize(bytes).map_err(|error| RecordError { at: 0, flaw: Flaw::Body(error.to_string()) })
}

/// The error for a value that was decoded and is impossible, for handwritten [`BorshDeserialize`].
pub fn impossible(what: &str) -> borsh::io::Error {
    borsh::io::Error::new(borsh::io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: Form = Form { name: "test record", magic: b"kvdrvTS", version: 4 };

    #[derive(BorshSerialize, BorshDeserialize, Debug, PartialEq)]
    enum Kind {
        Empty,
        Named { name: String, flag: bool },
    }

    fn sample() -> (u64, Vec<Kind>) {
        (77, vec![Kind::Empty, Kind::Named { name: "a name".into(), flag: true }])
    }

    #[test]
    fn every_byte_of_a_record_counts() {
        trial::every_byte_of_a_record::<(u64, Vec<Kind>)>(&FORM, &sample());
        trial::every_byte(&sample());
    }

    #[test]
    fn a_record_of_an_earlier_version_is_called_that() {
        let mut earlier = FORM.seal(&sample());
        earlier[VERSION_AT] = b'3';
        let error = FORM.open::<(u64, Vec<Kind>)>(&earlier).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("is a test record of version 3, which another kvdrive wrote; kvdrive"),
            "{error}"
        );
        assert_eq!(
            FORM.take(&mut &b"kvdrvTS3"[..]).unwrap_err().at,
            VERSION_AT,
            "its head may be another one"
        );
        assert_eq!(FORM.take(&mut &b"kvdrvXX4"[..]).unwrap_err().flaw, Flaw::Foreign("test record"));
        assert_eq!(FORM.take(&mut &b"kvd"[..]).unwrap_err().flaw, Flaw::Short("test record"));
    }

    #[test]
    fn records_follow_each_other() {
        let two = [FORM.seal(&1u8), FORM.seal(&2u8)].concat();
        let mut rest = &two[..];
        assert_eq!((FORM.take(&mut rest), FORM.take(&mut rest)), (Ok(&[1][..]), Ok(&[2][..])));
        assert!(rest.is_empty());
        assert_eq!(FORM.open::<u8>(&two).unwrap_err(), RecordError { at: 25, flaw: Flaw::Trailing });
    }
}
