//! A secret in the interchange format: `DHHC-1:xx:BASE64:`. `xx` says whether the secret is the key itself (00) or
//! by which hash the key is made of it and its owner's name (01, 02, 03); in base 64 are 32, 48 or 64 bytes, and
//! their CRC-32 in four more, lowest first.

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64, Encoding};
use kvdrive_spec::auth::Hash;

/// What the key is made with besides the secret and a name.
const SALT: &[u8] = b"NVMe-over-Fabrics";
const CRC_BYTES: usize = 4;
const SIZES: [usize; 3] = [32, 48, 64];

/// A secret of a host or a subsystem.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    hash: Option<Hash>,
    bytes: Vec<u8>,
}

/// Why a text is no secret. It is not repeated here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadSecret {
    /// Its frame.
    #[error("no secret; it has the form DHHC-1:00:BASE64: (`nvme gen-dhchap-key` makes one)")]
    Form,
    /// Its hash.
    #[error("a secret with an unknown hash; there are 00, 01, 02 and 03")]
    Hash,
    /// What is between the colons.
    #[error("a secret that is not in base 64")]
    Base64,
    /// Its size.
    #[error("a secret of another size than 32, 48 or 64 bytes")]
    Size,
    /// Its checksum.
    #[error("a secret whose checksum is wrong: a character of it is another one")]
    Checksum,
}

impl Secret {
    /// A secret of these bytes.
    ///
    /// # Errors
    /// [`BadSecret::Size`].
    pub fn new(hash: Option<Hash>, bytes: &[u8]) -> Result<Secret, BadSecret> {
        if !SIZES.contains(&bytes.len()) {
            return Err(BadSecret::Size);
        }
        Ok(Secret { hash, bytes: bytes.to_vec() })
    }

    /// The key that it is for its owner, `nqn`.
    pub(crate) fn transformed(&self, nqn: &str) -> Vec<u8> {
        match self.hash {
            None => self.bytes.clone(),
            Some(hash) => crate::hmac(hash, &self.bytes, &[nqn.as_bytes(), SALT]),
        }
    }

    /// It in the interchange format.
    #[must_use]
    pub fn to_interchange(&self) -> String {
        let hash = self.hash.map_or(0, |hash| hash as u8);
        let checked = [&self.bytes[..], &crc32fast::hash(&self.bytes).to_le_bytes()].concat();
        format!("DHHC-1:{hash:02x}:{}:", Base64::encode_string(&checked))
    }
}

impl FromStr for Secret {
    type Err = BadSecret;

    fn from_str(text: &str) -> Result<Secret, BadSecret> {
        let rest =
            text.strip_prefix("DHHC-1:").and_then(|rest| rest.strip_suffix(':')).ok_or(BadSecret::Form)?;
        let (hash, encoded) = rest.split_once(':').ok_or(BadSecret::Form)?;
        let hash = match hash {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(BadSecret::Hash),
        };
        let decoded = Base64::decode_vec(encoded).map_err(|_| BadSecret::Base64)?;
        let at = decoded.len().checked_sub(CRC_BYTES).ok_or(BadSecret::Size)?;
        let (bytes, crc) = decoded.split_at(at);
        let secret = Secret::new(hash, bytes)?;
        if crc32fast::hash(bytes).to_le_bytes() != crc {
            return Err(BadSecret::Checksum);
        }
        Ok(secret)
    }
}

/// It is not shown.
impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Secret of {} bytes", self.bytes.len())
    }
}
