//! A run against a drive on a network: our NVMe/TCP initiator and any target that has a namespace of pairs.
//!
//! The application is the same as in every run in wall time, with a thread and a connection for each of
//! `host.queues`. The inside of the drive is not visible over the network, and is not in the report.

use std::rc::Rc;

use anyhow::Context;
use kvdrive_host::tcp::{Client, Initiator, Options, discover};
use kvdrive_spec::fabrics::DISCOVERY_NQN;
use kvdrive_spec::identify::{self, CSI_KV, KvNamespace, cns};
use kvdrive_spec::property;

use super::threads::{Measured, ThreadDriver, Threads};
use crate::modelled::FinishedRun;
use crate::outcome::Outcome;
use crate::report::Target;
use crate::snapshot::Snapshot;
use crate::watch::Watch;
use kvdrive_config::{Config, Document};

/// MDTS counts pages of this size, bytes (CAP.MPSMIN 0).
const TRANSFER_UNIT_BYTES: u32 = 4096;

/// Address of the drive, and how to connect.
#[derive(Clone, Debug, Default)]
pub struct Remote {
    /// `HOST:PORT`.
    pub address: String,
    /// Name of the subsystem; `None`: the only one that discovery reports there.
    pub nqn: Option<String>,
    /// The namespace; `None`: the first one that has pairs.
    pub nsid: Option<u32>,
    /// How to connect.
    pub options: Options,
    /// Store nothing: read and check what an earlier run of the same workload left.
    pub only_verifies: bool,
}

/// Runs the workload of `document` against a drive on a network.
///
/// # Errors
/// A line with the address: no answer there, no such namespace, or the connection was lost while loading. One that is lost
/// later ends the run with [`FinishedRun::failure`].
pub fn run_connected(
    document: &Document,
    remote: &Remote,
    watch: &Watch<'_>,
) -> anyhow::Result<(Target, FinishedRun)> {
    run_measured(document, remote, watch, &|| ())
}

/// As [`run_connected`]; calls `look` immediately before and after the measured operations.
pub fn run_measured(
    document: &Document,
    remote: &Remote,
    watch: &Watch<'_>,
    look: &dyn Fn(),
) -> anyhow::Result<(Target, FinishedRun)> {
    let mut config = document.config()?;
    let of_threads = [
        ("host.threads", config.host.threads > 0, "each of --queues has a thread and a connection"),
        ("saker.enabled", config.saker.enabled, "SAKER lies in front of drives of this program"),
    ];
    if let Some((key, _, why)) = of_threads.iter().find(|(_, given, _)| *given) {
        anyhow::bail!("{key}: --connect does not look at it; {why}");
    }
    if remote.only_verifies {
        config.workload.verify = "only".into();
    }
    let at = || format!("tcp://{}", remote.address);
    let (mut target, mut initiator, clients) = connect(&config, remote).with_context(at)?;
    let drivers = clients
        .iter()
        .map(|(client, depth)| ThreadDriver { pipeline: Box::new(client.pipeline()), tasks: *depth });
    // The drive may hold pairs of other origin.
    let mut threads = Threads::new(&config, drivers.collect(), true, watch)?;
    (target.loaded_pairs, target.loaded_bytes) = threads.load(&config, watch).with_context(at)?;
    look();
    // The inside of the drive is not seen from here.
    let inside = Rc::new(Snapshot::default);
    let Measured { seen, wall_ns, mut notes, workload, series, verified, failure } =
        threads.measure(&config, inside, watch).with_context(at)?;
    let failure = failure.map(|failure| failure.context(at()));
    notes.extend(failure.as_ref().map(|failure| format!("{failure:#}: this is the report so far")));
    look();
    target.sleeps = clients.iter().map(|(client, _)| client.sleeps()).sum();
    drop(threads);
    drop(clients);
    match initiator.shut_down() {
        Err(_) if failure.is_some() => {}
        ended => ended.with_context(at)?,
    }
    let (latencies, none) = (seen.latencies(), Snapshot::default);
    let (began, ended, drained) = (none(), none(), none());
    let (wall_ns, loading) = (Some(wall_ns), None);
    let outcome =
        Outcome { seen, began, ended, drained, wall_ns, notes, workload, loading, series, verified };
    let report = outcome.into_report(document, &config)?;
    Ok((target, FinishedRun { report, latencies, is_stopped: watch.is_stopped(), failure }))
}

/// Where hosts look for a drive unless they are told otherwise.
const PORT: u16 = 4420;

/// `HOST:PORT` of `tcp://HOST:PORT`.
///
/// # Errors
/// What is allowed.
pub fn address(text: &str) -> Result<String, String> {
    let wrong = || "allowed: tcp://HOST:PORT, as tcp://127.0.0.1:4420 or tcp://[::1]:4420".to_owned();
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
    /// The controller.
    pub initiator: Initiator,
    /// Name of the subsystem.
    pub nqn: String,
    /// What it says that it is.
    pub identity: identify::Controller,
    /// The namespace.
    pub nsid: u32,
    /// What it says of itself.
    pub namespace: KvNamespace,
    /// Most bytes of one command.
    pub transfer_max_bytes: u32,
}

/// Connects to the controller of a drive, without I/O queues.
///
/// # Errors
/// A line without the address: no answer there, no such subsystem or namespace.
pub fn reach(remote: &Remote) -> anyhow::Result<Reached> {
    let nqn = match &remote.nqn {
        Some(nqn) => nqn.clone(),
        None => the_subsystem(remote)?,
    };
    let initiator = Initiator::connect(remote.address.as_str(), &nqn, &remote.options);
    let mut initiator = initiator.with_context(|| nqn.clone())?;
    let identity = initiator.identify_controller()?;
    let (nsid, namespace) = namespace(&mut initiator, remote.nsid)?;
    let transfer_max_bytes = match identity.transfer_max_log2 {
        0 => u32::MAX,
        log2 => TRANSFER_UNIT_BYTES.checked_shl(log2.into()).unwrap_or(u32::MAX),
    };
    Ok(Reached { initiator, nqn, identity, nsid, namespace, transfer_max_bytes })
}

/// Clients, each with how many operations it has under way at once.
type Clients = Vec<(Client, u32)>;

/// Connects the I/O queues of the run, each for so many operations at once, and reports what the drive is.
fn connect(config: &Config, remote: &Remote) -> anyhow::Result<(Target, Initiator, Clients)> {
    let Reached { mut initiator, nqn, identity, nsid, namespace, transfer_max_bytes } = reach(remote)?;
    let format = namespace.format();
    let queues = u16::try_from(config.host.queues.min(config.host.depth)).unwrap_or(u16::MAX);
    let granted = initiator.ask_for_queues(queues)?;
    anyhow::ensure!(granted >= queues, "host.queues: {queues}; it gives a host {granted}");
    let most = (initiator.property(property::CAP)? as u16).saturating_add(1);
    // The smallest queues that hold the depth: a ring keeps one entry empty.
    let entries = config.host.depth.div_ceil(queues.into()).saturating_add(1).max(2);
    let entries = u16::try_from(entries).ok().filter(|entries| *entries <= most).with_context(|| {
        format!(
            "host.depth: {} on {queues} queues; those of this controller have {most} entries",
            config.host.depth
        )
    })?;
    let (mut clients, mut digests) = (Vec::new(), (false, false));
    for number in 0..u32::from(queues) {
        // Operations are spread evenly.
        let depth =
            config.host.depth / u32::from(queues) + u32::from(number < config.host.depth % u32::from(queues));
        let mut queue = initiator.io_queue(number as u16 + 1, entries)?;
        queue.nsid = nsid;
        digests = queue.digests();
        let client = Client::new(queue, depth, format.value_max_bytes.get(), transfer_max_bytes);
        clients.push((client, depth));
    }
    let text = |field: &[u8]| String::from_utf8_lossy(field).trim_end_matches([' ', '\0']).to_owned();
    let target = Target {
        address: remote.address.clone(),
        nqn,
        model: text(&identity.model),
        serial: text(&identity.serial),
        firmware: text(&identity.firmware),
        nsid,
        value_max_bytes: format.value_max_bytes.get(),
        transfer_max_bytes: (identity.transfer_max_log2 > 0).then_some(transfer_max_bytes),
        connections: u32::from(queues),
        depth: config.host.depth,
        header_digests: digests.0,
        data_digests: digests.1,
        ..Target::default()
    };
    Ok((target, initiator, clients))
}

/// The name of the subsystem that discovery reports, if there is exactly one.
fn the_subsystem(remote: &Remote) -> anyhow::Result<String> {
    let found =
        discover(remote.address.as_str(), &remote.options).context("discovery (--nqn leaves it out)")?;
    let mut names: Vec<_> =
        found.into_iter().map(|entry| entry.nqn).filter(|nqn| nqn != DISCOVERY_NQN).collect();
    names.sort();
    names.dedup();
    match &names[..] {
        [] => anyhow::bail!("discovery tells of no subsystem"),
        [nqn] => Ok(nqn.clone()),
        _ => anyhow::bail!("there are {}; say which with --nqn", names.join(", ")),
    }
}

/// The requested namespace, or the first one that has pairs.
fn namespace(initiator: &mut Initiator, wanted: Option<u32>) -> anyhow::Result<(u32, KvNamespace)> {
    let identified = |initiator: &mut Initiator, nsid| {
        let namespace = initiator.identify_namespace(nsid)?;
        anyhow::ensure!(namespace.format().value_max_bytes.get() > 0, "it has no format of pairs");
        Ok(namespace)
    };
    if let Some(nsid) = wanted {
        return Ok((nsid, identified(initiator, nsid).with_context(|| format!("--nsid {nsid}"))?));
    }
    // Asks for the namespaces of the command set if the target supports that, otherwise for all.
    let list = initiator
        .identify(cns::CSI_ACTIVE_NAMESPACES, CSI_KV, 0)
        .or_else(|_| initiator.identify(cns::ACTIVE_NAMESPACES, 0, 0))?;
    let nsids = list.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]));
    let mut seen = 0;
    for nsid in nsids.take_while(|nsid| *nsid != 0) {
        seen += 1;
        if let Ok(namespace) = identified(initiator, nsid) {
            return Ok((nsid, namespace));
        }
    }
    anyhow::bail!("none of its {seen} namespaces has pairs (command set 1)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_tcp_and_has_a_port() {
        assert_eq!(address("tcp://127.0.0.1:4421").unwrap(), "127.0.0.1:4421");
        assert_eq!(address("tcp://drive").unwrap(), "drive:4420");
        assert_eq!(address("tcp://[::1]").unwrap(), "[::1]:4420");
        assert_eq!(address("tcp://[::1]:1").unwrap(), "[::1]:1");
        for wrong in ["127.0.0.1:4420", "rdma://127.0.0.1:4420", "tcp://", "tcp://a:b", "tcp://a:"] {
            assert!(address(wrong).unwrap_err().contains("allowed: tcp://HOST:PORT"), "{wrong}");
        }
    }
}
