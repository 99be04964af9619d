//! [`Options`]: how a host connects to a controller.

use std::time::Duration;

use kvdrive_auth::psk::{Derivation, Version};
use kvdrive_auth::{Psk, Secret};
use kvdrive_nvme::auth::{Group, Hash};

/// A host's secrets for authentication, and the algorithms that it accepts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Authentication {
    /// The host's secret.
    pub secret: Secret,
    /// The controller's secret, if the controller has to authenticate, too.
    pub controller_secret: Option<Secret>,
    /// Hashes that it accepts.
    pub hashes: Vec<Hash>,
    /// Groups that it accepts.
    pub groups: Vec<Group>,
}

impl From<Secret> for Authentication {
    /// Any hash and any group, and the controller need not authenticate.
    fn from(secret: Secret) -> Authentication {
        let (hashes, groups) = (Hash::ALL.to_vec(), Group::ALL.to_vec());
        Authentication { secret, controller_secret: None, hashes, groups }
    }
}

/// TLS 1.3 with a PSK that the subsystem also has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// The PSK.
    pub psk: Psk,
    /// The version of the PSK's identity.
    pub version: Version,
    /// How the TLS key is derived from the PSK.
    pub derivation: Derivation,
}

impl From<Psk> for Tls {
    /// Identity version 1, as the specification has it.
    fn from(psk: Psk) -> Tls {
        Tls { psk, version: Version::One, derivation: Derivation::Rfc8446 }
    }
}

/// How a host connects.
#[derive(Clone, Debug)]
pub struct Options {
    /// HOSTNQN: the name of this host.
    pub host_nqn: String,
    /// The secrets, used if a controller asks for authentication, and always if the controller has to
    /// authenticate, too.
    pub authentication: Option<Authentication>,
    /// TLS; `None`: plain TCP.
    pub tls: Option<Tls>,
    /// Host identifier.
    pub host_id: [u8; 16],
    /// Ask for header digests.
    pub header_digest: bool,
    /// Ask for data digests.
    pub data_digest: bool,
    /// Compute data digests over the data padded with zeros to a multiple of 4 bytes, as SPDK does, instead of over the
    /// data alone, as Linux does.
    pub padded_digest: bool,
    /// KATO, ms; 0: the controller waits without a limit.
    pub keep_alive_ms: u32,
    /// Put data into the capsule if the controller takes them there.
    pub in_capsule: bool,
    /// Ask for flow control of submission queues.
    pub flow_control: bool,
    /// How long a controller may be silent while the host waits for it, also to connect; `None`: without a
    /// limit.
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
