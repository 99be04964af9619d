//! NVMe/TCP initiator: a host's end of controllers and queues on a network, blocking.
//!
//! ```no_run
//! # use kvdrive_host::tcp::{Error, Initiator, Options};
//! let options = Options::default();
//! let mut controller = Initiator::connect("127.0.0.1:4420", "nqn.2014-08.org.nvmexpress:uuid:...", &options)?;
//! let mut queue = controller.io_queue(1, 128)?;
//! let key = kvdrive_nvme::Key::new(b"key").unwrap();
//! queue.store(key, b"value")?;
//! assert_eq!(queue.retrieve(key, 4096)?.1, b"value");
//! # Ok::<(), Error>(())
//! ```
//!
//! | item | what |
//! |---|---|
//! | [`Initiator`] | a controller: its admin queue, properties, Identify, logs, features |
//! | [`Queue`] | one connection: any command with its data, several at a time; typed KV commands |
//! | [`Queue::into_driver`] | one connection as a [`crate::Driver`] |
//! | [`Authentication`] | the secrets by which host and controller authenticate |
//! | [`Tls`] | the PSK of the TLS on every connection |
//! | [`initiate`] | the controller at an address, and its namespace of pairs |
//! | [`discover`] | the subsystems that a discovery controller reports |
//!
//! Not here: reconnecting, and keep-alive by itself. TLS needs feature `tls`.

mod access;
mod authentication;
mod controller;
mod input;
mod options;
mod queue;
mod socket;
mod wire;

pub use crate::error::Error;
pub(crate) use access::find;
pub use access::{Initiated, connect, initiate};
pub use controller::{Discovered, Initiator, discover};
pub use options::{Authentication, Options, Tls};
pub use queue::{Completed, Data, Queue};
