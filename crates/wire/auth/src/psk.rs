//! Pre-shared keys of TLS: a key in the interchange format `NVMeTLSkey-1:xx:BASE64:`, and the keys that a
//! host and a subsystem derive from it (NVMe TCP transport specification, "TLS PSK and PSK Identity
//! Derivation").
//!
//! ```text
//!   configured PSK ── xx 00 ───────────────────────────────► retained PSK
//!                  └─ 01, 02: Label(it, "HostNQN", host) ──►      │
//!                                                                 ├─► digest = base 64 of HMAC(it, "host subsystem NVMe-over-Fabrics")
//!   identity = "NVMe0Rxx host subsystem"                          │
//!           or "NVMe1Rxx host subsystem digest"                   │
//!   TLS PSK = Label(retained PSK, "nvme-tls-psk", context) ◄──────┘     context = the identity, or "xx digest"
//!
//!   Label(key, label, context) = HKDF-Expand-Label(HKDF-Extract(0, key), label, context, as many bytes as the hash)
//! ```

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64, Encoding};
use kvdrive_nvme::auth::Hash;

use crate::hmac;
use crate::interchange::{self, BadSecret, Frame};

const FRAME: Frame =
    Frame { prefix: "NVMeTLSkey-1:", sizes: &[32, 48], form: BadSecret::PskForm, size: BadSecret::PskSize };
/// The constant in the digest of an identity, beside both names.
const SALT: &str = "NVMe-over-Fabrics";

/// A configured PSK: the text that is given to both ends.
#[derive(Clone, PartialEq, Eq)]
pub struct Psk {
    /// Hash by which the host's name is mixed into it; `None`: it is used unchanged.
    hash: Option<Hash>,
    bytes: Vec<u8>,
}

/// Version of a PSK's identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// `NVMe0R..`: contains both names.
    Zero,
    /// `NVMe1R..`: contains both names and a digest of the PSK, so that two PSKs of the same ends have
    /// different identities.
    One,
}

/// Variant of HKDF-Expand-Label.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Derivation {
    /// That of RFC 8446 (section 7.1), which the specification requires.
    #[default]
    Rfc8446,
    /// That of older versions of libnvme (`--compat` of newer nvme-cli): the length has its lowest byte
    /// first, and label and context have no length prefix.
    Libnvme,
}

/// The PSK of one host and one subsystem for TLS, with its identity. The cipher suite must use its hash.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsPsk {
    /// The host.
    pub host_nqn: String,
    /// The subsystem.
    pub subsystem_nqn: String,
    /// Its identity in the host's first message.
    pub identity: String,
    /// SHA-256, of TLS_AES_128_GCM_SHA256, or SHA-384, of TLS_AES_256_GCM_SHA384.
    pub hash: Hash,
    /// The key, as long as the hash.
    pub secret: Vec<u8>,
}

/// Two names that are too long for an identity of version 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the names of host and subsystem are too long for a PSK of version 0, whose identity has at most 255 bytes"
)]
pub struct LongNames;

impl Psk {
    /// A PSK of these bytes.
    ///
    /// # Errors
    /// [`BadSecret::PskHash`], [`BadSecret::PskSize`].
    pub fn new(hash: Option<Hash>, bytes: &[u8]) -> Result<Psk, BadSecret> {
        let fits = match hash {
            None => FRAME.sizes.contains(&bytes.len()),
            Some(Hash::Sha512) => return Err(BadSecret::PskHash),
            Some(hash) => hash.bytes() == bytes.len(),
        };
        if fits { Ok(Psk { hash, bytes: bytes.to_vec() }) } else { Err(BadSecret::PskSize) }
    }

    /// The PSK in the interchange format.
    #[must_use]
    pub fn to_interchange(&self) -> String {
        interchange::encode(&FRAME, self.hash.map_or(0, |hash| hash as u8), &self.bytes)
    }

    /// The hash of its cipher suite: the hash by which it is made, or the one of its length.
    #[must_use]
    pub fn suite_hash(&self) -> Hash {
        if self.bytes.len() == Hash::Sha384.bytes() { Hash::Sha384 } else { Hash::Sha256 }
    }

    /// The PSK that TLS gets for this host and this subsystem.
    ///
    /// # Errors
    /// [`LongNames`].
    pub fn for_tls(
        &self,
        host_nqn: &str,
        subsystem_nqn: &str,
        version: Version,
        derivation: Derivation,
    ) -> Result<TlsPsk, LongNames> {
        let hash = self.suite_hash();
        let retained = match self.hash {
            None => self.bytes.clone(),
            Some(by) => derivation.label(by, &self.bytes, "HostNQN", host_nqn)?,
        };
        let names = format!("{host_nqn} {subsystem_nqn}");
        let number = hash as u8;
        let (identity, context) = match version {
            Version::Zero => {
                let identity = format!("NVMe0R{number:02} {names}");
                (identity.clone(), identity)
            }
            Version::One => {
                let digest = hmac(hash, &retained, &[names.as_bytes(), b" ", SALT.as_bytes()]);
                let digest = Base64::encode_string(&digest);
                (format!("NVMe1R{number:02} {names} {digest}"), format!("{number:02} {digest}"))
            }
        };
        Ok(TlsPsk {
            secret: derivation.label(hash, &retained, "nvme-tls-psk", &context)?,
            host_nqn: host_nqn.to_owned(),
            subsystem_nqn: subsystem_nqn.to_owned(),
            identity,
            hash,
        })
    }
}

impl Derivation {
    /// `Label` of the drawing above. HKDF-Expand for as many bytes as the hash has is a single HMAC.
    fn label(self, hash: Hash, key: &[u8], label: &str, context: &str) -> Result<Vec<u8>, LongNames> {
        let extracted = hmac(hash, &vec![0; hash.bytes()], &[key]);
        let (label, context) = (format!("tls13 {label}"), context.as_bytes());
        // Its length is one byte (RFC 8446, section 7.1).
        let context_bytes = u8::try_from(context.len()).map_err(|_| LongNames)?;
        let bytes = hash.bytes() as u16;
        let info = match self {
            Derivation::Rfc8446 => {
                [&bytes.to_be_bytes()[..], &[label.len() as u8], label.as_bytes(), &[context_bytes], context]
                    .concat()
            }
            Derivation::Libnvme => [&bytes.to_le_bytes()[..], label.as_bytes(), context].concat(),
        };
        Ok(hmac(hash, &extracted, &[&info, &[1]]))
    }
}

impl FromStr for Psk {
    type Err = BadSecret;

    fn from_str(text: &str) -> Result<Psk, BadSecret> {
        let (hash, bytes) = interchange::decode(&FRAME, text)?;
        let hash = match hash {
            Some(0) => None,
            Some(1) => Some(Hash::Sha256),
            Some(2) => Some(Hash::Sha384),
            _ => return Err(BadSecret::PskHash),
        };
        Psk::new(hash, &bytes)
    }
}

/// The key is not printed.
impl fmt::Debug for Psk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PSK of {} bytes", self.bytes.len())
    }
}

/// Prints the identity and not the key.
impl fmt::Debug for TlsPsk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PSK {:?}", self.identity)
    }
}
