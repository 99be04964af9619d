//! A secret in the interchange format: `DHHC-1:xx:BASE64:`. `xx` says whether the secret is the key itself
//! (00) or by which hash the key is derived from it and its owner's name (01, 02, 03); in base 64 are 32, 48
//! or 64 bytes, and their CRC-32 in four more, lowest first.

use std::fmt;
use std::str::FromStr;

use kvdrive_nvme::auth::Hash;

use crate::interchange::{self, BadSecret, Frame};

const FRAME: Frame =
    Frame { prefix: "DHHC-1:", sizes: &[32, 48, 64], form: BadSecret::Form, size: BadSecret::Size };
/// The constant in the key derivation, beside the secret and a name.
const SALT: &[u8] = b"NVMe-over-Fabrics";

/// A secret of a host or a subsystem.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    hash: Option<Hash>,
    bytes: Vec<u8>,
}

impl Secret {
    /// A secret of these bytes.
    ///
    /// # Errors
    /// [`BadSecret::Size`].
    pub fn new(hash: Option<Hash>, bytes: &[u8]) -> Result<Secret, BadSecret> {
        if !FRAME.sizes.contains(&bytes.len()) {
            return Err(BadSecret::Size);
        }
        Ok(Secret { hash, bytes: bytes.to_vec() })
    }

    /// The key derived from the secret for its owner `nqn`.
    pub(crate) fn transformed(&self, nqn: &str) -> Vec<u8> {
        match self.hash {
            None => self.bytes.clone(),
            Some(hash) => crate::hmac(hash, &self.bytes, &[nqn.as_bytes(), SALT]),
        }
    }

    /// The secret in the interchange format.
    #[must_use]
    pub fn to_interchange(&self) -> String {
        interchange::encode(&FRAME, self.hash.map_or(0, |hash| hash as u8), &self.bytes)
    }
}

impl FromStr for Secret {
    type Err = BadSecret;

    fn from_str(text: &str) -> Result<Secret, BadSecret> {
        let (hash, bytes) = interchange::decode(&FRAME, text)?;
        let hash = match hash {
            Some(0) => None,
            Some(hash) => Some(Hash::of(hash).ok_or(BadSecret::Hash)?),
            None => return Err(BadSecret::Hash),
        };
        Secret::new(hash, &bytes)
    }
}

/// The secret is not printed.
impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Secret of {} bytes", self.bytes.len())
    }
}
