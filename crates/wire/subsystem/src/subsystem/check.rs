//! The check of a host's reply: the expensive part of an authentication, which [`super::keys`] has its thread compute.

use std::sync::Arc;

use kvdrive_auth::{KeyPair, Psk, Response, Role, Secret};
use kvdrive_nvme::auth::{Hash, Reason};

/// A host that may connect to a subsystem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// NQN of the host.
    pub nqn: String,
    /// Secret with which the host authenticates; `None`: it need not.
    pub secret: Option<Secret>,
    /// Secret with which the subsystem authenticates, if the host asks for that.
    pub controller_secret: Option<Secret>,
    /// PSK for TLS; if set, the host has to use TLS.
    pub psk: Option<Psk>,
}

impl From<&str> for Host {
    fn from(nqn: &str) -> Host {
        Host { nqn: nqn.to_owned(), secret: None, controller_secret: None, psk: None }
    }
}

/// Both ends and their secrets.
pub(super) struct Names {
    pub(super) host: Host,
    pub(super) subsystem: String,
}

/// The check of a reply: a key agreement, and one or two HMACs.
pub(super) struct Check {
    pub(super) names: Names,
    pub(super) pair: Arc<KeyPair>,
    pub(super) hash: Hash,
    pub(super) transaction: u16,
    pub(super) sequence: u32,
    pub(super) challenge: Vec<u8>,
    pub(super) response: Vec<u8>,
    /// C2 and S2.
    pub(super) theirs: Option<(Vec<u8>, u32)>,
    pub(super) public: Vec<u8>,
}

/// The result of a check: our own response if the host asked for one, or why authentication failed.
pub(super) type Checked = Result<Option<Vec<u8>>, Reason>;

impl Check {
    pub(super) fn run(&self) -> Checked {
        let Host { nqn, secret, controller_secret, .. } = &self.names.host;
        let shared = self.pair.agree(&self.public).map_err(|_| Reason::Payload)?;
        let of_host = Response {
            role: Role::Host,
            secret: secret.as_ref().ok_or(Reason::Failed)?,
            own_nqn: nqn,
            other_nqn: &self.names.subsystem,
            hash: self.hash,
            shared: &shared,
            sequence: self.sequence,
            transaction: self.transaction,
        };
        if !of_host.is(&self.response, &self.challenge) {
            return Err(Reason::Failed);
        }
        let Some((challenge, sequence)) = &self.theirs else { return Ok(None) };
        let ours = Response {
            role: Role::Controller,
            secret: controller_secret.as_ref().ok_or(Reason::Failed)?,
            own_nqn: &self.names.subsystem,
            other_nqn: nqn,
            sequence: *sequence,
            ..of_host
        };
        Ok(Some(ours.to(challenge)))
    }
}
