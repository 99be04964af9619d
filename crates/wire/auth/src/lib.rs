//! DH-HMAC-CHAP: the computations by which a host and a controller authenticate each other. It contains no
//! messages (crate `nvme` has them), no I/O, and no state of an exchange.
//!
//! ```text
//!   Secret ──transformed(owner's name)──► key ─┐
//!   KeyPair::agree(the other's public value) ──┼─► Response::to(challenge) ──► compared without telling where it differs
//!   both names, sequence, transaction ─────────┘
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`secret`] | a secret in the interchange format `DHHC-1:xx:...:` |
//! | [`agreement`] | key pairs in the groups of RFC 7919; they take milliseconds and belong on a thread of their own |
//! | [`response`] | the answer to a challenge |
//!
//! Arithmetic and hashes come from RustCrypto.

pub mod agreement;
mod interchange;
pub mod psk;
pub mod response;
pub mod secret;
pub mod tls;

pub use agreement::KeyPair;
pub use interchange::BadSecret;
pub use psk::{Psk, TlsPsk};
pub use response::{Response, Role};
pub use secret::Secret;

use kvdrive_nvme::auth::Hash;

/// HMAC of the concatenated `parts`.
fn hmac(hash: Hash, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    use hmac::{Hmac, KeyInit, Mac};
    fn with<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().to_vec()
    }
    match hash {
        Hash::Sha256 => with::<Hmac<sha2::Sha256>>(key, parts),
        Hash::Sha384 => with::<Hmac<sha2::Sha384>>(key, parts),
        Hash::Sha512 => with::<Hmac<sha2::Sha512>>(key, parts),
    }
}

/// The digest of some bytes.
fn digest(hash: Hash, bytes: &[u8]) -> Vec<u8> {
    use sha2::Digest;
    match hash {
        Hash::Sha256 => sha2::Sha256::digest(bytes).to_vec(),
        Hash::Sha384 => sha2::Sha384::digest(bytes).to_vec(),
        Hash::Sha512 => sha2::Sha512::digest(bytes).to_vec(),
    }
}

/// Random bytes of the system.
///
/// # Panics
/// If the system has none.
#[must_use]
pub fn random(bytes: usize) -> Vec<u8> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).expect("the system has random numbers");
    random
}
