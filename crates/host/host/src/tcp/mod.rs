//! NVMe/TCP initiator: a host's end of controllers and queues on a network, blocking.
//!
//! ```no_run
//! # use kvdrive_host::tcp::{Error, Initiator, Options};
//! let options = Options::default();
//! let mut controller = Initiator::connect("127.0.0.1:4420", "nqn.2014-08.org.nvmexpress:uuid:...", &options)?;
//! let mut queue = controller.io_queue(1, 128)?;
//! let key = kvdrive_spec::Key::new(b"key").unwrap();
//! queue.store(key, b"value")?;
//! assert_eq!(queue.retrieve(key, 4096)?.1, b"value");
//! # Ok::<(), Error>(())
//! ```
//!
//! | item | what |
//! |---|---|
//! | [`Initiator`] | a controller: its admin queue, properties, Identify, logs, features |
//! | [`Queue`] | one connection: any command with its data, several at a time; typed KV commands |
//! | [`Client`] | one connection as every other [`crate::Client`] |
//! | [`Pipeline`] | a client as [`crate::Pipelined`] |
//! | [`Authentication`] | the secrets by which both ends believe each other |
//! | [`Tls`] | the PSK by which every connection speaks TLS |
//! | [`discover`] | what a discovery controller knows |
//!
//! What it does not do: reconnect, keep alive by itself. TLS is there with feature `tls`.

mod authentication;
mod client;
mod controller;
mod pipeline;
mod queue;
mod wire;

use std::time::Duration;

pub use crate::error::Error;
pub use authentication::Authentication;
pub use client::{Client, Ticket};
pub use controller::{Discovered, Initiator, discover};
pub use pipeline::Pipeline;
pub use queue::{Completed, Data, Queue};

use kvdrive_auth::Psk;
use kvdrive_auth::psk::{Derivation, Version};

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
