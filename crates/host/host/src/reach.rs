//! Reaching a drive that is not in this program, by its address.

use kvdrive_nvme::identify::{self, IDENTIFY_BYTES, KvNamespace};
use kvdrive_nvme::nvm::{BLOCK_BYTES, NvmNamespace};
use zerocopy::{FromBytes, IntoBytes};

use crate::access::{Access, AccessLimits, BlockSize, Found, Wanted};
pub use crate::access::{ReachError, Remote};
use crate::blocks::{blocks_of, most_blocks_of};
use crate::driver::{BlockDriver, Driver};
use crate::error::Error;
use crate::{node, tcp};

/// MDTS counts pages of this size, bytes (CAP.MPSMIN 0).
const TRANSFER_UNIT_BYTES: u32 = 4096;
/// The port at which hosts look for a drive by default.
const PORT: u16 = 4420;

/// The address `address` of a [`Remote`], as users write it.
pub fn named(address: &str) -> String {
    Remote { address: address.to_owned(), ..Remote::default() }.name()
}

/// The address of a [`Remote`] from `tcp://HOST:PORT` or `/dev/ngXnY`.
///
/// # Errors
/// The text is neither: a line says which forms are allowed.
pub fn address(text: &str) -> Result<String, String> {
    let wrong = || {
        "allowed: tcp://HOST:PORT, as tcp://127.0.0.1:4420 or tcp://[::1]:4420; /dev/ngXnY, as /dev/ng0n1"
            .to_owned()
    };
    if text.starts_with("/") {
        return Ok(text.to_owned());
    }
    let rest = text.strip_prefix("tcp://").filter(|rest| !rest.is_empty()).ok_or_else(wrong)?;
    let after_host = rest.rsplit_once(']').map_or(rest, |(_, after)| after);
    match after_host.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_err() => Err(wrong()),
        Some(_) => Ok(rest.to_owned()),
        None => Ok(format!("{rest}:{PORT}")),
    }
}

/// A controller of a subsystem that has a namespace of pairs, or with [`NvmNamespace`] of blocks.
pub struct Reached<N = KvNamespace> {
    access: Box<dyn Access>,
    /// Name of the subsystem.
    pub nqn: String,
    /// Its Identify data.
    pub identity: identify::Controller,
    /// The namespace.
    pub nsid: u32,
    /// The namespace's Identify data.
    pub namespace: N,
    /// Most bytes that one command moves.
    pub transfer_max_bytes: u32,
}

/// Connects to the controller of a drive of pairs, without I/O queues.
///
/// # Errors
/// A line without the address: no answer there, no such subsystem or namespace.
pub fn reach(remote: &Remote) -> Result<Reached, ReachError> {
    find(remote, Wanted::Pairs)
}

/// The same for a drive of blocks of 4096 B.
///
/// # Errors
/// As [`reach`].
pub fn reach_blocks(remote: &Remote) -> Result<Reached<NvmNamespace>, ReachError> {
    find(remote, Wanted::Blocks)
}

fn find<N: FromBytes>(remote: &Remote, wanted: Wanted) -> Result<Reached<N>, ReachError> {
    const { assert!(size_of::<N>() == IDENTIFY_BYTES) };
    let found = if remote.is_node() { node::find(remote, wanted) } else { tcp::find(remote, wanted) }?;
    let Found { access, nqn, identity, nsid, page, transfer_max_bytes } = found;
    let namespace = N::read_from_bytes(&page).expect("Identify data has its size");
    let by_mdts = match identity.transfer_max_log2 {
        0 => u32::MAX,
        log2 => TRANSFER_UNIT_BYTES.checked_shl(log2.into()).unwrap_or(u32::MAX),
    };
    let transfer_max_bytes = transfer_max_bytes.min(by_mdts);
    Ok(Reached { access, nqn, identity, nsid, namespace, transfer_max_bytes })
}

impl Reached<NvmNamespace> {
    /// How many blocks there are.
    pub fn blocks(&self) -> u64 {
        blocks_of(self.namespace.as_bytes()).expect("it was found by them")
    }

    /// Are all blocks known to be zero: is none in use, and do those read as zeros?
    pub fn is_blank(&self) -> bool {
        const READ_ZEROS: u8 = 0b001;
        self.namespace.used_blocks.get() == 0 && self.namespace.deallocated & 0b111 == READ_ZEROS
    }

    /// The driver on I/O queue `number`, of `entries` entries, for `depth` commands at once.
    ///
    /// # Errors
    /// The status, or the connection failed.
    pub fn driver(&mut self, number: u16, entries: u16, depth: u32) -> Result<BlockDriver, Error> {
        let most = most_blocks_of(self.identity.as_bytes()).min(self.transfer_max_bytes / BLOCK_BYTES).max(1);
        self.access.blocks(number, entries, depth, &BlockSize { blocks: self.blocks(), most_blocks: most })
    }
}

impl Reached {
    /// Size of the largest value that the namespace takes, bytes.
    pub fn value_max_bytes(&self) -> u32 {
        self.namespace.format().value_max_bytes.get()
    }

    /// Identify data of the namespace as it is now.
    ///
    /// # Errors
    /// The status, or the connection failed; so it is for the calls below.
    pub fn identify_namespace(&mut self) -> Result<KvNamespace, Error> {
        self.access.identify_namespace()
    }

    /// The driver on I/O queue `number`, of `entries` entries, for `depth` commands at once.
    ///
    /// # Errors
    /// As above.
    pub fn driver(&mut self, number: u16, entries: u16, depth: u32) -> Result<Driver, Error> {
        let (max_value_bytes, transfer_max_bytes) = (self.value_max_bytes(), self.transfer_max_bytes);
        self.access.driver(number, entries, depth, &AccessLimits { max_value_bytes, transfer_max_bytes })
    }
}

impl<N> Reached<N> {
    /// Asks for `count` I/O queues; returns how many the controller grants.
    ///
    /// # Errors
    /// The status, or the connection failed; so it is for the calls below.
    pub fn ask_for_queues(&mut self, count: u16) -> Result<u16, Error> {
        self.access.ask_for_queues(count)
    }

    /// Entries of the largest queue of the controller.
    ///
    /// # Errors
    /// As above.
    pub fn entries_max(&mut self) -> Result<u16, Error> {
        self.access.entries_max()
    }

    /// Whether header and data digests were negotiated on I/O queues.
    pub fn digests(&self) -> (bool, bool) {
        self.access.digests()
    }

    /// Says that this host goes.
    ///
    /// # Errors
    /// As above.
    pub fn leave(&mut self) -> Result<(), Error> {
        self.access.leave()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_tcp_and_has_a_port_or_is_a_device() {
        assert_eq!(address("tcp://127.0.0.1:4421").unwrap(), "127.0.0.1:4421");
        assert_eq!(address("tcp://drive").unwrap(), "drive:4420");
        assert_eq!(address("tcp://[::1]").unwrap(), "[::1]:4420");
        assert_eq!(address("tcp://[::1]:1").unwrap(), "[::1]:1");
        assert_eq!(address("/dev/ng0n1").unwrap(), "/dev/ng0n1");
        for wrong in ["127.0.0.1:4420", "rdma://127.0.0.1:4420", "tcp://", "tcp://a:b", "tcp://a:"] {
            assert!(address(wrong).unwrap_err().contains("allowed: tcp://HOST:PORT"), "{wrong}");
        }
        assert_eq!([named("a:4420"), named("/dev/ng0n1")], ["tcp://a:4420", "/dev/ng0n1"]);
    }
}
