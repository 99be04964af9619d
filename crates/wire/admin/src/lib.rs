//! The admin command set, as functions of a controller's description; every port answers admin commands
//! through them.
//!
//! | module | command |
//! |---|---|
//! | [`mod@identify`] | Identify: controller, namespaces, their lists and descriptors |
//! | [`log`] | Get Log Page: a file and a row for each page |
//! | [`feature`] | Set and Get Features |
//! | [`format`](mod@format) | Format NVM: checks |
//! | [`queue`] | Create and Delete of I/O queues: checks whether they are possible |
//! | [`mod@event`] | Asynchronous Event Request: which events are reported, and when |
//!
//! Nothing here moves data, waits, or knows the origin of a command. The caller answers what only a namespace
//! knows (CNS 05h and 0Ah, CNS 00h of blocks, feature 20h, log page C0h) and what only a port knows (discovery, its queues, its capsules).

pub mod event;
pub mod feature;
pub mod format;
pub mod identify;
pub mod log;
pub mod queue;

pub use event::{Events, Notice};
pub use feature::{FeatureChange, Features, KeyValue, Limits};
pub use identify::{IdentifyAnswer, identify};
pub use log::{LogAnswer, Logs};

use kvdrive_nvme::Status;

/// Model number reported to hosts.
pub const MODEL: &str = "kvdrive key-value SSD";
/// Firmware revision reported to hosts.
pub const FIRMWARE: &str = env!("CARGO_PKG_VERSION");
/// Failures kept for the error log.
pub const ERRORS_MAX: usize = 64;
/// Changed namespaces that the log can list; above this number it reports "many".
pub const CHANGED_MAX: usize = 1024;

/// Type of a controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControllerKind {
    /// Executes commands to namespaces.
    Io,
    /// Tells hosts where subsystems are.
    Discovery,
}

/// A controller, as reported to its hosts.
#[derive(Clone, Copy, Debug)]
pub struct Controller<'a> {
    /// Its type.
    pub kind: ControllerKind,
    /// CNTLID.
    pub id: u16,
    /// SN of its subsystem.
    pub serial: &'a str,
    /// Name of its subsystem, if that has one.
    pub nqn: Option<&'a str>,
    /// MDTS: most data that a command moves, 4096 bytes times 2 to this; 0: no limit.
    pub transfer_max_log2: u8,
    /// SGLS: supported forms of scatter-gather lists.
    pub sgl: u32,
    /// MAXCMD: most outstanding commands of one queue; 0: not reported.
    pub commands_max: u16,
    /// Supported admin commands besides Identify, Get Log Page, Set and Get Features.
    pub admin_commands: &'a [u8],
    /// I/O commands that its port cannot carry.
    pub refused: &'a [u8],
    /// ONCS: optional commands of its namespaces.
    pub optional_commands: u16,
    /// Sizes of its capsules, if a network is between it and its hosts.
    pub capsules: Option<Capsules>,
    /// Asynchronous Event Requests that may wait at a time.
    pub async_requests: u8,
    /// OAES: events that it reports.
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

/// A namespace, as reported to hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// Its identifier.
    pub nsid: u32,
    /// CSI of its command set: [`kvdrive_nvme::identify::CSI_KV`] or [`kvdrive_nvme::identify::CSI_NVM`].
    pub command_set: u8,
    /// NGUID.
    pub nguid: [u8; 16],
    /// The same as a UUID.
    pub uuid: [u8; 16],
    /// NMIC: may several controllers attach it?
    pub sharing: u8,
    /// NSATTR; bit 0: write protected.
    pub attributes: u8,
    /// Its size in bytes.
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
