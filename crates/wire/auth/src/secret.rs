//! A secret in the interchange format: `DHHC-1:xx:BASE64:`. `xx` says whether the secret is the key itself
//! (00) or by which hash the key is derived from it and its owner's name (01, 02, 03); in base 64 are 32, 48
//! or 64 bytes, and their CRC-32 in four more, lowest first.

use std::fmt;
use std::str::FromStr;

use kvdrive_spec::auth::Hash;

use crate::interchange::{self, Frame};

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

/// Why a text is not a secret. Messages do not repeat the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadSecret {
    /// The form is wrong.
    #[error("no secret; it has the form DHHC-1:00:BASE64: (`kvdrive secret dhchap` makes one)")]
    Form,
    /// The hash is unknown.
    #[error("a secret with an unknown hash; there are 00, 01, 02 and 03")]
    Hash,
    /// The part between the colons is not base 64.
    #[error("a secret that is not in base 64")]
    Base64,
    /// The size is wrong.
    #[error("a secret of another size than 32, 48 or 64 bytes")]
    Size,
    /// The checksum is wrong.
    #[error("a secret whose checksum is wrong: a character of it is another one")]
    Checksum,
    /// The form of a PSK is wrong.
    #[error("no PSK; it has the form NVMeTLSkey-1:01:BASE64: (`kvdrive secret psk` makes one)")]
    PskForm,
    /// The hash of a PSK is unknown.
    #[error("a PSK with an unknown hash; there are 00, 01 and 02")]
    PskHash,
    /// The size of a PSK is wrong.
    #[error("a PSK of another size than its hash's: 32 bytes with 01, 48 with 02, either with 00")]
    PskSize,
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
