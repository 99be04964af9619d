//! [`Access`]: how a drive that is not in this program is reached, before there is a driver: its controller, and
//! the queues that it gives. Each transport to such drives has its own.

use std::io;

use kvdrive_nvme::identify::{self, CSI_KV, CSI_NVM, KvNamespace, cns, namespace_descriptor, nidt};
use zerocopy::FromBytes;

use crate::blocks::blocks_of;
use crate::driver::{BlockDriver, Driver};
use crate::error::Error;
use crate::tcp::Options;

/// The address of a drive, and how to connect to it.
#[derive(Clone, Debug, Default)]
pub struct Remote {
    /// `HOST:PORT`, or the path of a character device of Linux: `/dev/ng0n1`.
    pub address: String,
    /// Name of the subsystem; `None`: the only one that discovery reports there.
    pub nqn: Option<String>,
    /// The namespace; `None`: the first one that has what is wanted, pairs or blocks. A device has one.
    pub nsid: Option<u32>,
    /// How to connect to a drive on a network.
    pub options: Options,
}

impl Remote {
    /// Is it a device of this machine?
    pub fn is_node(&self) -> bool {
        self.address.starts_with('/')
    }

    /// The address as users write it: `tcp://HOST:PORT`, or the path.
    pub fn name(&self) -> String {
        if self.is_node() { self.address.clone() } else { format!("tcp://{}", self.address) }
    }
}

/// Why a drive cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// The subsystem was not named, and discovery does not report exactly one.
    #[error("{0}")]
    Unnamed(String),
    /// The subsystem or namespace of this name did not answer, or answered with an error.
    #[error("{0}")]
    Of(String, #[source] Error),
    /// The device cannot be used: it is not there, is none of a namespace, or may not be used; and what helps.
    #[error("{0}")]
    Device(String),
    /// There is nothing of pairs.
    #[error("{0}")]
    NoPairs(String),
    /// There is nothing of blocks, or they are not of 4096 B.
    #[error("{0}")]
    NoBlocks(String),
    /// The connection failed, or the controller refused.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl ReachError {
    /// The error and its cause, in one line.
    pub fn line(&self) -> String {
        match self {
            ReachError::Of(name, error) => format!("{name}: {error}"),
            error => error.to_string(),
        }
    }
}

impl From<io::Error> for ReachError {
    fn from(error: io::Error) -> ReachError {
        ReachError::Failed(error.into())
    }
}

/// A controller, as one kind of address offers it.
pub(crate) trait Access: Send {
    /// Identify data of the KV namespace as it is now.
    fn identify_namespace(&mut self) -> Result<KvNamespace, Error>;

    /// Asks for `count` I/O queues; returns how many the controller grants.
    fn ask_for_queues(&mut self, count: u16) -> Result<u16, Error>;

    /// Entries of its largest queue.
    fn entries_max(&mut self) -> Result<u16, Error>;

    /// The driver on I/O queue `number`, of `entries` entries, for `depth` commands at once.
    fn driver(
        &mut self,
        number: u16,
        entries: u16,
        depth: u32,
        limits: &AccessLimits,
    ) -> Result<Driver, Error>;

    /// The same for blocks.
    fn blocks(
        &mut self,
        number: u16,
        entries: u16,
        depth: u32,
        size: &BlockSize,
    ) -> Result<BlockDriver, Error>;

    /// Whether header and data digests were negotiated on I/O queues.
    fn digests(&self) -> (bool, bool) {
        (false, false)
    }

    /// Says that this host goes.
    fn leave(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// Limits of the commands of a drive.
pub(crate) struct AccessLimits {
    /// Size of the largest value, bytes.
    pub(crate) max_value_bytes: u32,
    /// Most bytes that one command moves.
    pub(crate) transfer_max_bytes: u32,
}

/// Size of a namespace of blocks, and of its commands.
pub(crate) struct BlockSize {
    /// Blocks of the namespace.
    pub(crate) blocks: u64,
    /// Most blocks of a command.
    pub(crate) most_blocks: u32,
}

/// What a program wants of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// Pairs: the KV command set.
    Pairs,
    /// Blocks of 4096 B: the NVM command set.
    Blocks,
}

impl Wanted {
    /// Its command set.
    pub(crate) fn csi(self) -> u8 {
        match self {
            Wanted::Pairs => CSI_KV,
            Wanted::Blocks => CSI_NVM,
        }
    }

    /// The Identify structure, and the command set of that request, by which a namespace tells what it holds.
    pub(crate) fn structure(self) -> (u8, u8) {
        match self {
            Wanted::Pairs => (cns::CSI_NAMESPACE, CSI_KV),
            Wanted::Blocks => (cns::NAMESPACE, 0),
        }
    }

    /// Does a namespace of these Identify data and [descriptors](cns::NAMESPACE_DESCRIPTORS) have it? A namespace of pairs
    /// answers as one of blocks, too, for hosts that ask for nothing else; so blocks are what has no other descriptor.
    pub(crate) fn is_in(self, page: &[u8], descriptors: &[u8]) -> bool {
        match self {
            Wanted::Pairs => KvNamespace::read_from_bytes(page)
                .is_ok_and(|namespace| namespace.format().value_max_bytes.get() > 0),
            Wanted::Blocks => {
                let of_set = namespace_descriptor(descriptors, nidt::CSI);
                of_set.is_none_or(|csi| csi == [CSI_NVM]) && blocks_of(page).is_ok()
            }
        }
    }
}

/// What was found at an address.
pub(crate) struct Found {
    pub(crate) access: Box<dyn Access>,
    pub(crate) nqn: String,
    pub(crate) identity: identify::Controller,
    pub(crate) nsid: u32,
    /// Identify data of the namespace ([`Wanted::structure`]).
    pub(crate) page: Vec<u8>,
    /// Most bytes of a command besides MDTS.
    pub(crate) transfer_max_bytes: u32,
}
