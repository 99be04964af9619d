//! Pre-shared keys of TLS: one in the interchange format `NVMeTLSkey-1:xx:BASE64:`, and what a host and a
//! subsystem make of it (NVMe TCP transport specification, "TLS PSK and PSK Identity Derivation").
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
use kvdrive_spec::auth::Hash;

use crate::hmac;
use crate::interchange::{self, Frame};
use crate::secret::BadSecret;

const FRAME: Frame =
    Frame { prefix: "NVMeTLSkey-1:", sizes: &[32, 48], form: BadSecret::PskForm, size: BadSecret::PskSize };
/// What the digest of an identity is made with besides both names.
const SALT: &str = "NVMe-over-Fabrics";

/// A configured PSK: what a person gives to both ends.
#[derive(Clone, PartialEq, Eq)]
pub struct Psk {
    /// By which hash the host's name goes into it; none: it is taken as it is.
    hash: Option<Hash>,
    bytes: Vec<u8>,
}

/// How a PSK is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// `NVMe0R..`: by both names.
    Zero,
    /// `NVMe1R..`: by both names and a digest of the PSK, so that two PSKs of the same ends differ in their names.
    One,
}

/// Which reading of HKDF-Expand-Label.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Derivation {
    /// That of RFC 8446 (section 7.1), which the specification asks for.
    #[default]
    Rfc8446,
    /// That of older libnvmes (`--compat` of newer nvme-cli): the length has its lowest byte first, and label and
    /// context are not preceded by theirs.
    Libnvme,
}

/// What TLS is given: the PSK of one host and one subsystem, and its name. It goes with the cipher suite of its hash.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsPsk {
    /// Whose it is.
    pub host_nqn: String,
    /// With whom.
    pub subsystem_nqn: String,
    /// How the host names it in its first message.
    pub identity: String,
    /// SHA-256, of TLS_AES_128_GCM_SHA256, or SHA-384, of TLS_AES_256_GCM_SHA384.
    pub hash: Hash,
    /// As many bytes as the hash has.
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

    /// It in the interchange format.
    #[must_use]
    pub fn to_interchange(&self) -> String {
        interchange::encode(&FRAME, self.hash.map_or(0, |hash| hash as u8), &self.bytes)
    }

    /// The hash of its cipher suite: the one by which it is made, or as long as it.
    #[must_use]
    pub fn suite_hash(&self) -> Hash {
        if self.bytes.len() == Hash::Sha384.bytes() { Hash::Sha384 } else { Hash::Sha256 }
    }

    /// What TLS is given for this host and this subsystem.
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
    /// Label of the module's head. One HMAC is all there is to HKDF-Expand for as many bytes as the hash has.
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

/// It is not shown.
impl fmt::Debug for Psk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PSK of {} bytes", self.bytes.len())
    }
}

/// Its name is, itself it is not.
impl fmt::Debug for TlsPsk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PSK {:?}", self.identity)
    }
}
