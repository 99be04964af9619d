//! The admin command set, as functions of what a controller is: whoever has hosts, by whatever port, answers
//! them from here.
//!
//! | module | command |
//! |---|---|
//! | [`mod@identify`] | Identify: controller, namespaces, their lists and descriptors |
//! | [`log`] | Get Log Page: errors, health, firmware, changed namespaces, effects |
//! | [`feature`] | Set and Get Features |
//! | [`queue`] | Create and Delete of I/O queues: whether it can be |
//! | [`mod@event`] | Asynchronous Event Request: what is told, and when |
//!
//! Nothing in here moves data, waits, or knows where a command came from. What only a namespace can say of
//! itself (CNS 05h, and 00h of blocks) and what only a port knows (discovery, its queues, its capsules) is left
//! to who asks.

pub mod event;
pub mod feature;
pub mod identify;
pub mod log;
pub mod queue;

pub use event::{Events, Notice};
pub use feature::{Change, Features, Limits};
pub use identify::{Answer, identify};
pub use log::Logs;

use kvdrive_spec::Status;

/// What hosts see as the model.
pub const MODEL: &str = "kvdrive key-value SSD";
/// What hosts see as the revision of the firmware.
pub const FIRMWARE: &str = env!("CARGO_PKG_VERSION");
/// Errors that are kept for the log.
pub const ERRORS_MAX: usize = 64;
/// Changed namespaces that the log can name; beyond them it says "many".
pub const CHANGED_MAX: usize = 1024;

/// What a controller is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Commands to namespaces.
    Io,
    /// Telling hosts where subsystems are.
    Discovery,
}

/// A controller, as its hosts are told of it.
#[derive(Clone, Copy, Debug)]
pub struct Controller<'a> {
    /// What it is for.
    pub kind: Kind,
    /// CNTLID.
    pub id: u16,
    /// SN of its subsystem.
    pub serial: &'a str,
    /// Name of its subsystem, if that has one.
    pub nqn: Option<&'a str>,
    /// MDTS: most data that a command moves, 4096 bytes times 2 to this; 0: no limit.
    pub transfer_max_log2: u8,
    /// SGLS: which scatter-gather lists it takes.
    pub sgl: u32,
    /// MAXCMD: commands of one queue under way at a time; 0: it does not say.
    pub commands_max: u16,
    /// Admin commands that it knows besides Identify, Get Log Page and the two of features.
    pub admin_commands: &'a [u8],
    /// I/O commands that its port cannot carry.
    pub refused: &'a [u8],
    /// ONCS: optional commands of its namespaces.
    pub optional_commands: u16,
    /// What its capsules carry, if a network is between it and its hosts.
    pub capsules: Option<Capsules>,
    /// Asynchronous Event Requests that may wait at a time.
    pub async_requests: u8,
    /// OAES: events that it tells of.
    pub async_events: u32,
    /// Its namespaces, by identifier.
    pub namespaces: &'a [Namespace],
}

/// Capsules of a fabric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capsules {
    /// Most data in the capsule of a command.
    pub data_bytes: u32,
}

/// A namespace, as hosts are told of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// Its identifier.
    pub nsid: u32,
    /// CSI of its command set: [`kvdrive_spec::identify::CSI_KV`] or [`kvdrive_spec::identify::CSI_NVM`].
    pub command_set: u8,
    /// NGUID.
    pub nguid: [u8; 16],
    /// The same as a UUID.
    pub uuid: [u8; 16],
    /// NMIC: may several controllers have it?
    pub sharing: u8,
    /// NSATTR; bit 0: write protected.
    pub attributes: u8,
    /// Bytes that it has room for.
    pub size_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
}

impl<'a> Controller<'a> {
    /// The namespace that a command names.
    ///
    /// # Errors
    /// [`Status::INVALID_NAMESPACE`]: there is none.
    pub fn namespace(&self, nsid: u32) -> Result<&'a Namespace, Status> {
        let named = self.namespaces.iter().find(|namespace| namespace.nsid == nsid);
        named.ok_or(Status::INVALID_NAMESPACE)
    }
}
