//! [`Options`]: how a host connects to a controller.

use std::time::Duration;

use kvdrive_auth::psk::{Derivation, Version};
use kvdrive_auth::{Psk, Secret};
use kvdrive_spec::auth::{Group, Hash};

/// By what a host authenticates, and what it would take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Authentication {
    /// The host's secret.
    pub secret: Secret,
    /// The controller's: it has to authenticate, too.
    pub controller_secret: Option<Secret>,
    /// Hashes that may be chosen from.
    pub hashes: Vec<Hash>,
    /// Groups that may be chosen from.
    pub groups: Vec<Group>,
}

impl From<Secret> for Authentication {
    /// Any hash and any group, and the controller need not authenticate.
    fn from(secret: Secret) -> Authentication {
        let (hashes, groups) = (Hash::ALL.to_vec(), Group::ALL.to_vec());
        Authentication { secret, controller_secret: None, hashes, groups }
    }
}

/// TLS 1.3, by a PSK that the subsystem has, too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// The PSK.
    pub psk: Psk,
    /// How it is named.
    pub version: Version,
    /// What is made of it.
    pub derivation: Derivation,
}

impl From<Psk> for Tls {
    /// Named by version 1, as the specification has it.
    fn from(psk: Psk) -> Tls {
        Tls { psk, version: Version::One, derivation: Derivation::Rfc8446 }
    }
}

/// How to connect.
#[derive(Clone, Debug)]
pub struct Options {
    /// HOSTNQN: the name of this host.
    pub host_nqn: String,
    /// By what it authenticates where a controller asks for that, and always if the controller has to, too.
    pub authentication: Option<Authentication>,
    /// Speak TLS; none: do not.
    pub tls: Option<Tls>,
    /// Host identifier.
    pub host_id: [u8; 16],
    /// Ask for header digests.
    pub header_digest: bool,
    /// Ask for data digests.
    pub data_digest: bool,
    /// Compute data digests as if zeros filled the data up to a multiple of 4, as SPDK does, and not over the
    /// bytes as they are, as Linux does.
    pub padded_digest: bool,
    /// KATO, ms; 0: the controller waits for ever.
    pub keep_alive_ms: u32,
    /// Put data into the capsule where the controller takes them there.
    pub in_capsule: bool,
    /// Ask for flow control of submission queues.
    pub flow_control: bool,
    /// How long a controller that is waited for may be silent, connecting included; none: for ever.
    pub silence: Option<Duration>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            host_nqn: "nqn.2014-08.org.nvmexpress:uuid:6b766472-6976-8500-8000-0000000000ff".into(),
            authentication: None,
            tls: None,
            host_id: *b"kvdrive-host-001",
            header_digest: false,
            data_digest: false,
            padded_digest: false,
            keep_alive_ms: 0,
            in_capsule: true,
            flow_control: true,
            silence: Some(Duration::from_secs(30)),
        }
    }
}
