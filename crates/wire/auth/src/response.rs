//! The answer to a challenge.
//!
//! ```text
//!   R = HMAC(key, Ca | sequence, 4 bytes | transaction, 2 | concatenation, 1 | "HostHost" | own name | 00h | other name)
//!   Ca = C, or with a group HMAC(H(shared), C)
//! ```
//!
//! The controller says "Controller" instead of "HostHost".

use kvdrive_nvme::auth::Hash;

use crate::secret::Secret;
use crate::{digest, hmac};

/// The end that answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The host, to C1.
    Host,
    /// The controller, to C2.
    Controller,
}

/// All inputs of an answer except the challenge.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The end that answers.
    pub role: Role,
    /// Its secret.
    pub secret: &'a Secret,
    /// Its name.
    pub own_nqn: &'a str,
    /// The name of the other end.
    pub other_nqn: &'a str,
    /// The chosen hash.
    pub hash: Hash,
    /// The result of the key agreement; empty without a group.
    pub shared: &'a [u8],
    /// S1, or S2.
    pub sequence: u32,
    /// T_ID.
    pub transaction: u16,
}

impl Response<'_> {
    /// The answer to `challenge`, without a secure channel (SC_C 0).
    #[must_use]
    pub fn to(&self, challenge: &[u8]) -> Vec<u8> {
        let key = self.secret.transformed(self.own_nqn);
        let augmented = if self.shared.is_empty() {
            challenge.to_vec()
        } else {
            hmac(self.hash, &digest(self.hash, self.shared), &[challenge])
        };
        let who: &[u8] = match self.role {
            Role::Host => b"HostHost",
            Role::Controller => b"Controller",
        };
        let parts: [&[u8]; 8] = [
            &augmented,
            &self.sequence.to_le_bytes(),
            &self.transaction.to_le_bytes(),
            &[0],
            who,
            self.own_nqn.as_bytes(),
            &[0],
            self.other_nqn.as_bytes(),
        ];
        hmac(self.hash, &key, &parts)
    }

    /// Is `response` the answer to `challenge`? Compares in constant time.
    #[must_use]
    pub fn is(&self, response: &[u8], challenge: &[u8]) -> bool {
        let right = self.to(challenge);
        let differs = right.iter().zip(response).fold(0, |differs, (a, b)| differs | a ^ b);
        right.len() == response.len() && std::hint::black_box(differs) == 0
    }
}
