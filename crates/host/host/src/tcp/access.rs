//! How a drive on a network is reached: discovery, the controller, the namespace.

use kvdrive_nvme::fabrics::DISCOVERY_NQN;
use kvdrive_nvme::identify::{self, CSI_KV, KvNamespace, cns};
use kvdrive_nvme::property;

use super::controller::{Initiator, discover};
use crate::access::{Access, AccessLimits, Found, ReachError, Remote};
use crate::driver::Driver;
use crate::error::Error;

/// A controller, and the namespace of its pairs.
struct NetworkAccess {
    initiator: Initiator,
    nsid: u32,
    digests: (bool, bool),
}

/// A controller that was connected to, and the namespace of its pairs.
pub struct Initiated {
    /// The controller.
    pub initiator: Initiator,
    /// Name of its subsystem.
    pub nqn: String,
    /// Its Identify data.
    pub identity: identify::Controller,
    /// The namespace.
    pub nsid: u32,
    /// The namespace's Identify data.
    pub namespace: KvNamespace,
}

/// The drive at an address of a network.
pub(crate) fn find(remote: &Remote) -> Result<Found, ReachError> {
    let Initiated { initiator, nqn, identity, nsid, namespace } = initiate(remote)?;
    let access = Box::new(NetworkAccess { initiator, nsid, digests: (false, false) });
    Ok(Found { access, nqn, identity, nsid, namespace, transfer_max_bytes: u32::MAX })
}

/// The controller at an address of a network, for programs that send commands of their own;
/// [`mod@crate::reach`] is for drivers.
///
/// # Errors
/// A line without the address: no answer there, no such subsystem or namespace.
pub fn initiate(remote: &Remote) -> Result<Initiated, ReachError> {
    let nqn = match &remote.nqn {
        Some(nqn) => nqn.clone(),
        None => the_subsystem(remote)?,
    };
    let initiator = Initiator::connect(remote.address.as_str(), &nqn, &remote.options);
    let mut initiator = initiator.map_err(|error| ReachError::Of(nqn.clone(), error))?;
    let identity = initiator.identify_controller()?;
    let (nsid, namespace) = namespace(&mut initiator, remote.nsid)?;
    Ok(Initiated { initiator, nqn, identity, nsid, namespace })
}

impl Access for NetworkAccess {
    fn identify_namespace(&mut self) -> Result<KvNamespace, Error> {
        self.initiator.identify_namespace(self.nsid)
    }

    fn ask_for_queues(&mut self, count: u16) -> Result<u16, Error> {
        self.initiator.ask_for_queues(count)
    }

    fn entries_max(&mut self) -> Result<u16, Error> {
        Ok((self.initiator.property(property::CAP)? as u16).saturating_add(1))
    }

    fn driver(
        &mut self,
        number: u16,
        entries: u16,
        depth: u32,
        limits: &AccessLimits,
    ) -> Result<Driver, Error> {
        let mut queue = self.initiator.io_queue(number, entries)?;
        queue.nsid = self.nsid;
        self.digests = queue.digests();
        queue.into_driver(depth, limits.max_value_bytes, limits.transfer_max_bytes)
    }

    fn digests(&self) -> (bool, bool) {
        self.digests
    }

    fn leave(&mut self) -> Result<(), Error> {
        self.initiator.shut_down()
    }
}

/// The name of the subsystem that discovery reports, if there is exactly one.
fn the_subsystem(remote: &Remote) -> Result<String, ReachError> {
    let found = discover(remote.address.as_str(), &remote.options)
        .map_err(|error| ReachError::Unnamed(format!("discovery of the subsystem: {error}")))?;
    let mut names: Vec<_> =
        found.into_iter().map(|entry| entry.nqn).filter(|nqn| nqn != DISCOVERY_NQN).collect();
    names.sort();
    names.dedup();
    match &names[..] {
        [] => Err(ReachError::Unnamed("discovery names no subsystem".to_owned())),
        [nqn] => Ok(nqn.clone()),
        _ => Err(ReachError::Unnamed(format!("there are {}; one has to be named", names.join(", ")))),
    }
}

/// The requested namespace, or the first one that has pairs.
fn namespace(initiator: &mut Initiator, wanted: Option<u32>) -> Result<(u32, KvNamespace), ReachError> {
    let has_pairs = |namespace: &KvNamespace| namespace.format().value_max_bytes.get() > 0;
    if let Some(nsid) = wanted {
        let name = || format!("namespace {nsid}");
        let namespace = initiator.identify_namespace(nsid).map_err(|error| ReachError::Of(name(), error))?;
        return match has_pairs(&namespace) {
            true => Ok((nsid, namespace)),
            false => Err(ReachError::NoPairs(format!("{}: it has no format of pairs", name()))),
        };
    }
    // Asks for the namespaces of the command set if the target supports that, otherwise for all.
    let list = initiator
        .identify(cns::CSI_ACTIVE_NAMESPACES, CSI_KV, 0)
        .or_else(|_| initiator.identify(cns::ACTIVE_NAMESPACES, 0, 0))?;
    let nsids = list.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]));
    let mut seen = 0;
    for nsid in nsids.take_while(|nsid| *nsid != 0) {
        seen += 1;
        if let Ok(namespace) = initiator.identify_namespace(nsid)
            && has_pairs(&namespace)
        {
            return Ok((nsid, namespace));
        }
    }
    Err(ReachError::NoPairs(format!("none of its {seen} namespaces has pairs (command set 1)")))
}
