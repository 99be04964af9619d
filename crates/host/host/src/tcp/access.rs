//! How a drive on a network is reached: discovery, the controller, the namespace.

use kvdrive_nvme::fabrics::DISCOVERY_NQN;
use kvdrive_nvme::identify::{self, KvNamespace, cns};
use kvdrive_nvme::property;
use zerocopy::FromBytes;

use super::controller::{Initiator, discover};
use super::queue::Queue;
use crate::access::{Access, AccessLimits, BlockSize, Found, ReachError, Remote, Wanted};
use crate::driver::{BlockDriver, Driver};
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
pub(crate) fn find(remote: &Remote, wanted: Wanted) -> Result<Found, ReachError> {
    let (initiator, nqn, identity, (nsid, page)) = of_wanted(remote, wanted)?;
    let access = Box::new(NetworkAccess { initiator, nsid, digests: (false, false) });
    Ok(Found { access, nqn, identity, nsid, page, transfer_max_bytes: u32::MAX })
}

/// The controller at an address of a network, for programs that send commands of their own;
/// [`mod@crate::reach`] is for drivers.
///
/// # Errors
/// A line without the address: no answer there, no such subsystem or namespace.
pub fn initiate(remote: &Remote) -> Result<Initiated, ReachError> {
    let (initiator, nqn, identity, (nsid, page)) = of_wanted(remote, Wanted::Pairs)?;
    let namespace = KvNamespace::read_from_bytes(&page).expect("it was found by its data");
    Ok(Initiated { initiator, nqn, identity, nsid, namespace })
}

/// The controller at an address of a network whatever its namespaces hold, and the name of its subsystem.
///
/// # Errors
/// A line without the address: no answer there, no such subsystem.
pub fn connect(remote: &Remote) -> Result<(Initiator, String), ReachError> {
    let nqn = match &remote.nqn {
        Some(nqn) => nqn.clone(),
        None => the_subsystem(remote)?,
    };
    let initiator = Initiator::connect(remote.address.as_str(), &nqn, &remote.options);
    Ok((initiator.map_err(|error| ReachError::Of(nqn.clone(), error))?, nqn))
}

/// A namespace with its Identify data.
type NamedPage = (u32, Vec<u8>);
/// The controller, the name of its subsystem, its Identify data, and the namespace with its own.
type Connection = (Initiator, String, identify::Controller, NamedPage);

fn of_wanted(remote: &Remote, wanted: Wanted) -> Result<Connection, ReachError> {
    let (mut initiator, nqn) = connect(remote)?;
    let identity = initiator.identify_controller()?;
    let namespace = namespace(&mut initiator, remote.nsid, wanted)?;
    Ok((initiator, nqn, identity, namespace))
}

impl NetworkAccess {
    /// An I/O queue whose commands are for the namespace.
    fn queue(&mut self, number: u16, entries: u16) -> Result<Queue, Error> {
        let mut queue = self.initiator.io_queue(number, entries)?;
        queue.nsid = self.nsid;
        self.digests = queue.digests();
        Ok(queue)
    }
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
        let queue = self.queue(number, entries)?;
        queue.into_driver(depth, limits.max_value_bytes, limits.transfer_max_bytes)
    }

    fn blocks(
        &mut self,
        number: u16,
        entries: u16,
        depth: u32,
        size: &BlockSize,
    ) -> Result<BlockDriver, Error> {
        let port = self.queue(number, entries)?.into_port(depth)?;
        Ok(BlockDriver::new(port, size.blocks, size.most_blocks, None))
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

/// The requested namespace, or the first one that has what is wanted.
fn namespace(initiator: &mut Initiator, asked: Option<u32>, wanted: Wanted) -> Result<NamedPage, ReachError> {
    let lacking = |line| match wanted {
        Wanted::Pairs => ReachError::NoPairs(line),
        Wanted::Blocks => ReachError::NoBlocks(line),
    };
    if let Some(nsid) = asked {
        let name = || format!("namespace {nsid}");
        let found = has(initiator, nsid, wanted).map_err(|error| ReachError::Of(name(), error))?;
        let what =
            if wanted == Wanted::Pairs { "it has no format of pairs" } else { "it has no blocks of 4096 B" };
        return found.map(|page| (nsid, page)).ok_or_else(|| lacking(format!("{}: {what}", name())));
    }
    let (seen, found) = first_with(initiator, wanted)?;
    if let Some(found) = found {
        return Ok(found);
    }
    let (what, other) = match wanted {
        Wanted::Pairs => ("pairs (command set 1)", Wanted::Blocks),
        Wanted::Blocks => ("blocks of 4096 B (command set 0)", Wanted::Pairs),
    };
    let instead = match first_with(initiator, other) {
        Ok((_, Some(_))) if other == Wanted::Blocks => {
            "; it has blocks, in which a store on the host keeps pairs (kvdrive run --side host --store hashlog)"
        }
        Ok((_, Some(_))) => "; it has pairs, which need no store on the host",
        _ => "",
    };
    Err(lacking(format!("none of its {seen} namespaces has {what}{instead}")))
}

/// How many namespaces were looked at, and the first one that has what is wanted.
fn first_with(initiator: &mut Initiator, wanted: Wanted) -> Result<(u32, Option<NamedPage>), ReachError> {
    // Asks for the namespaces of the command set if the target supports that, otherwise for all.
    let list = initiator
        .identify(cns::CSI_ACTIVE_NAMESPACES, wanted.csi(), 0)
        .or_else(|_| initiator.identify(cns::ACTIVE_NAMESPACES, 0, 0))?;
    let nsids = list.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]));
    let mut seen = 0;
    for nsid in nsids.take_while(|nsid| *nsid != 0) {
        seen += 1;
        if let Ok(Some(page)) = has(initiator, nsid, wanted) {
            return Ok((seen, Some((nsid, page))));
        }
    }
    Ok((seen, None))
}

/// The Identify data of the namespace, if it has what is wanted.
fn has(initiator: &mut Initiator, nsid: u32, wanted: Wanted) -> Result<Option<Vec<u8>>, Error> {
    let (structure, csi) = wanted.structure();
    let page = initiator.identify(structure, csi, nsid)?;
    let descriptors = match wanted {
        Wanted::Pairs => Vec::new(),
        Wanted::Blocks => initiator.identify(cns::NAMESPACE_DESCRIPTORS, 0, nsid).unwrap_or_default(),
    };
    Ok(wanted.is_in(&page, &descriptors).then_some(page))
}
