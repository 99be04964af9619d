//! Reaching a drive that is not in this program, by its address.

use kvdrive_nvme::identify::{self, KvNamespace};

use crate::access::{Access, AccessLimits, Found};
pub use crate::access::{ReachError, Remote};
use crate::driver::Driver;
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

/// A controller of a subsystem that has a namespace of pairs.
pub struct Reached {
    access: Box<dyn Access>,
    /// Name of the subsystem.
    pub nqn: String,
    /// Its Identify data.
    pub identity: identify::Controller,
    /// The namespace.
    pub nsid: u32,
    /// The namespace's Identify data.
    pub namespace: KvNamespace,
    /// Most bytes that one command moves.
    pub transfer_max_bytes: u32,
}

/// Connects to the controller of a drive, without I/O queues.
///
/// # Errors
/// A line without the address: no answer there, no such subsystem or namespace.
pub fn reach(remote: &Remote) -> Result<Reached, ReachError> {
    let found = if remote.is_node() { node::find(remote) } else { tcp::find(remote) }?;
    let Found { access, nqn, identity, nsid, namespace, transfer_max_bytes } = found;
    let by_mdts = match identity.transfer_max_log2 {
        0 => u32::MAX,
        log2 => TRANSFER_UNIT_BYTES.checked_shl(log2.into()).unwrap_or(u32::MAX),
    };
    let transfer_max_bytes = transfer_max_bytes.min(by_mdts);
    Ok(Reached { access, nqn, identity, nsid, namespace, transfer_max_bytes })
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

    /// Asks for `count` I/O queues; returns how many the controller grants.
    ///
    /// # Errors
    /// As above.
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

    /// The driver on I/O queue `number`, of `entries` entries, for `depth` commands at once.
    ///
    /// # Errors
    /// As above.
    pub fn driver(&mut self, number: u16, entries: u16, depth: u32) -> Result<Driver, Error> {
        let (max_value_bytes, transfer_max_bytes) = (self.value_max_bytes(), self.transfer_max_bytes);
        self.access.driver(number, entries, depth, &AccessLimits { max_value_bytes, transfer_max_bytes })
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
