//! Keys of any length. A drive takes keys of 1 to 16 bytes; a longer one is a *name*, whose pair is stored under a
//! digest of it.
//!
//! | key of the caller | key on the drive | value on the drive |
//! |---|---|---|
//! | 1 to 16 bytes | the same bytes | the value |
//! | 17 to 65 535 bytes | the first 16 bytes of its SHA-256 | `kvN1`, length of the name (32 bits, little-endian), name, value |
//!
//! The name is stored before the value so that one command reads it. A store under a name first asks the drive to add
//! the pair only; if the drive has one, its name is compared before it is replaced. A pair of another name is never
//! returned, replaced or removed ([`Error::OtherName`]). `exist` trusts the digest.

use kvdrive_content::Region;
use kvdrive_nvme::Key;
use sha2::{Digest, Sha256};

use crate::error::{Error, whole};

/// Longest name in bytes.
pub(crate) const NAME_MAX_BYTES: usize = u16::MAX as usize;
/// Marks a value that begins with its name.
const MARK: [u8; 4] = *b"kvN1";

/// A key of a caller, as the drive gets it.
#[derive(Clone, Copy)]
pub(crate) struct Named<'n> {
    pub(crate) key: Key,
    /// `None`: the key itself.
    name: Option<&'n [u8]>,
}

impl<'n> Named<'n> {
    /// # Errors
    /// [`Error::KeySize`].
    pub(crate) fn of(given: &'n [u8]) -> Result<Named<'n>, Error> {
        // A name whose bytes behind the 16th are zeros is a name, too: it is not a key that is long as a size.
        match Key::new(given).filter(|key| !key.is_long()) {
            Some(key) => Ok(Named { key, name: None }),
            None if given.is_empty() || given.len() > NAME_MAX_BYTES => Err(Error::KeySize(given.len())),
            None => Ok(Named { key: digest(given), name: Some(given) }),
        }
    }

    /// Is the key on the drive a digest?
    pub(crate) fn is_digest(&self) -> bool {
        self.name.is_some()
    }

    /// Bytes of the value on the drive before the caller's.
    pub(crate) fn front_bytes(&self) -> u32 {
        self.name.map_or(0, |name| front_bytes(name.len()))
    }

    /// # Errors
    /// [`Error::ValueSize`]: a value of `bytes` bytes is too long for a drive that takes `most`.
    pub(crate) fn check_size(&self, bytes: usize, most: u32) -> Result<(), Error> {
        let most = most.saturating_sub(self.front_bytes());
        if bytes <= most as usize { Ok(()) } else { Err(Error::ValueSize { key: self.key, bytes, most }) }
    }

    /// The caller's value in one of `bytes` bytes that the drive has brought.
    ///
    /// # Errors
    /// [`Error::ValueCutShort`], [`Error::OtherName`].
    pub(crate) fn value_of(&self, call: &'static str, bytes: u32, value: &Region) -> Result<Vec<u8>, Error> {
        let mut bytes = whole(call, self.key, bytes, value)?;
        if self.is_digest() {
            if !bytes.starts_with(&self.front()) {
                return Err(Error::OtherName { call, key: self.key });
            }
            bytes.drain(..self.front_bytes() as usize);
        }
        Ok(bytes)
    }

    /// What stands before the caller's value.
    pub(crate) fn front(&self) -> Vec<u8> {
        let mut front = Vec::new();
        self.put_front(&mut front);
        front
    }

    /// Appends what stands before the caller's value.
    pub(crate) fn put_front(&self, to: &mut Vec<u8>) {
        if let Some(name) = self.name {
            to.extend(MARK);
            to.extend((name.len() as u32).to_le_bytes());
            to.extend(name);
        }
    }
}

fn front_bytes(name: usize) -> u32 {
    (MARK.len() + size_of::<u32>() + name) as u32
}

/// The key under which a drive has the pair of a name that is longer than a key.
fn digest(name: &[u8]) -> Key {
    let digest = Sha256::digest(name);
    Key::new(&digest[..Key::IDENTITY_BYTES]).expect("a key's size")
}

/// Does a value begin with `front`, as that of a name does?
pub(crate) fn has_front(value: &Region, front: &[u8]) -> bool {
    let mut there = vec![0; front.len()];
    value.copy_to(0, &mut there);
    there == front
}

/// The name and the value of a pair of the drive; `None`: it is no pair of a name.
pub(crate) fn split(key: &[u8], value: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (bytes, rest) = value.strip_prefix(&MARK)?.split_first_chunk()?;
    let (name, value) = rest.split_at_checked(u32::from_le_bytes(*bytes) as usize)?;
    let named = Named::of(name).ok().filter(Named::is_digest)?;
    (named.key.to_vec() == *key).then(|| (name.to_vec(), value.to_vec()))
}
