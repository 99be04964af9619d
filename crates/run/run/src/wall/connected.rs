//! A run against a drive on a network, or several: our NVMe/TCP initiator and any target that has a namespace
//! of pairs.
//!
//! The application is the same as in every run in wall time, with a thread and a connection for each of
//! `host.queues`; with several drives each thread has a connection to every drive. The inside of a drive is
//! not visible over the network, and is not in the report.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use kvdrive_declare::Counters;
use kvdrive_host::spread::{self, Share, Spread, Tally};
use kvdrive_host::tcp::{Client, Initiator, Options, discover};
use kvdrive_nvme::fabrics::DISCOVERY_NQN;
use kvdrive_nvme::identify::{self, CSI_KV, KvNamespace, cns};
use kvdrive_nvme::property;

use super::threads::{Measured, ThreadDriver, Threads};
use crate::memory::Spending;
use crate::modelled::{FinishedRun, fits};
use crate::outcome::Outcome;
use crate::report::Target;
use crate::snapshot::DriveSnapshot;
use crate::watch::Watch;
use kvdrive_config::{Config, Document, check_load_of};

/// MDTS counts pages of this size, bytes (CAP.MPSMIN 0).
const TRANSFER_UNIT_BYTES: u32 = 4096;

/// The address of a drive, and how to connect to it.
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
    /// Store nothing: read and check the pairs that an earlier run of the same workload stored.
    pub only_verifies: bool,
}

/// The subsystem was not named, and discovery does not report exactly one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unnamed(String);

impl Unnamed {
    /// Discovery reports these, in one line.
    pub fn several(names: &str) -> Unnamed {
        Unnamed(format!("there are {names}; one has to be named"))
    }
}

/// Runs the workload of `document` against a drive on a network, or against several that share the keys
/// ([`kvdrive_host::spread`]).
///
/// # Errors
/// A line with the address: no answer there, no such namespace, or the connection was lost while loading. A
/// connection that is lost later ends the run with [`FinishedRun::failure`]; with several drives the others
/// continue, and the failure is reported at the end.
pub fn run_connected(
    document: &Document,
    remotes: &[Remote],
    watch: &Watch<'_>,
) -> anyhow::Result<(Vec<Target>, FinishedRun)> {
    run_measured(document, remotes, watch, &|| ())
}

/// As [`run_connected`]; calls `look` immediately before and after the measured operations.
///
/// # Errors
/// As [`run_connected`].
pub fn run_measured(
    document: &Document,
    remotes: &[Remote],
    watch: &Watch<'_>,
    look: &dyn Fn(),
) -> anyhow::Result<(Vec<Target>, FinishedRun)> {
    let mut config = document.config()?;
    check(&config, remotes)?;
    if remotes[0].only_verifies {
        config.workload.verify = "only".into();
    }
    let mut drives = Drives::connect(&config, remotes)?;
    // The drives may hold pairs from other programs.
    let mut threads = Threads::new(&config, drives.pipelines(), true, Spending::elsewhere(), watch)?;
    let (pairs, bytes) = threads.load_size();
    drives.check_load(pairs, bytes)?;
    let (loaded_pairs, loaded_bytes) =
        threads.load(&config, watch).with_context(|| drives.lost().unwrap_or_else(|| drives.names()))?;
    drives.note_loaded(loaded_pairs, loaded_bytes);
    look();
    // The inside of the drive is not visible from here.
    let inside = Rc::new(DriveSnapshot::default);
    let Measured { seen, wall_ns, mut notes, workload, series, verified, failure } =
        threads.measure(&config, inside, watch).with_context(|| drives.names())?;
    look();
    let lost = drives.lost();
    let failure = match (failure, lost) {
        (Some(failure), lost) => {
            let failure = failure.context(lost.unwrap_or_else(|| drives.names()));
            notes.push(format!("{failure:#}: this is the report so far"));
            Some(failure)
        }
        (None, Some(lost)) => {
            let lost = format!("{lost}; commands for its keys failed, and the other drives went on");
            notes.push(lost.clone());
            Some(anyhow::Error::msg(lost))
        }
        (None, None) => None,
    };
    drop(threads);
    let targets = drives.end(failure.is_some())?;
    let latencies = seen.latencies();
    let (wall_ns, is_stopped) = (Some(wall_ns), watch.is_stopped());
    let outcome =
        Outcome { seen, wall_ns, notes, is_stopped, workload, series, verified, ..Outcome::default() };
    let report = outcome.into_report(document, &config)?;
    Ok((targets, FinishedRun { report, latencies, failure }))
}

/// Refuses settings that a run over a network ignores, and workloads that several drives cannot carry out.
fn check(config: &Config, remotes: &[Remote]) -> anyhow::Result<()> {
    let of_threads = [
        ("host.threads", config.host.threads > 0, "each of host.queues has a thread and a connection"),
        ("saker.enabled", config.saker.enabled, "SAKER works only with drives of this program"),
    ];
    if let Some((key, _, why)) = of_threads.iter().find(|(_, given, _)| *given) {
        anyhow::bail!("{key}: a run over a network does not look at it; {why}");
    }
    anyhow::ensure!(
        remotes.len() == 1 || !config.workload.atomic,
        "workload.atomic: a batch is of one drive, and there are {}",
        remotes.len()
    );
    Ok(())
}

/// The port at which hosts look for a drive by default.
const PORT: u16 = 4420;

/// `HOST:PORT` of `tcp://HOST:PORT`.
///
/// # Errors
/// The text is neither: a line says which forms are allowed.
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

/// A drive of the run.
struct Connected {
    target: Target,
    /// `None`: it could not be reached.
    initiator: Option<Initiator>,
    /// A connection for each thread.
    clients: Vec<Client>,
    is_ordered: bool,
    /// Size of the namespace; 0: not known.
    size_bytes: u64,
    /// How long it may be silent.
    silence: Option<Duration>,
}

/// The drives of the run.
struct Drives {
    drives: Vec<Connected>,
    /// Operations that each thread has under way at once.
    depths: Vec<u32>,
    spread: Spread,
    /// With several drives, the counts of each thread's pipeline.
    tallies: Vec<Tally>,
}

impl Drives {
    /// Connects the I/O queues of the run to all drives.
    ///
    /// # Errors
    /// A line with the address of a drive that cannot be reached. If several drives are only read back, that
    /// drive counts as lost instead, unless none can be reached.
    fn connect(config: &Config, remotes: &[Remote]) -> anyhow::Result<Drives> {
        let addresses: Vec<&str> = remotes.iter().map(|remote| remote.address.as_str()).collect();
        let spread = Spread::new(&addresses).map_err(anyhow::Error::msg)?;
        let queues = config.host.queues.min(config.host.depth);
        // Operations under way are spread evenly.
        let depth = |number| config.host.depth / queues + u32::from(number < config.host.depth % queues);
        let depths: Vec<u32> = (0..queues).map(depth).collect();
        let (mut drives, mut failure) = (Vec::new(), None);
        for remote in remotes {
            match connect(config, remote, &depths).with_context(|| format!("tcp://{}", remote.address)) {
                Ok(connected) => drives.push(connected),
                Err(error) if remote.only_verifies && remotes.len() > 1 => {
                    let lost = Some(format!("{:#}", error.root_cause()));
                    let target = Target { address: remote.address.clone(), lost, ..Target::default() };
                    let (initiator, clients, silence) = (None, Vec::new(), None);
                    let (is_ordered, size_bytes) = (true, 0);
                    drives.push(Connected { target, initiator, clients, is_ordered, size_bytes, silence });
                    failure = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        let all = Drives { drives, depths, spread, tallies: Vec::new() };
        if let Some(room_bytes) = all.room_bytes().filter(|_| config.workload.verify != "only") {
            config.check_room_of(room_bytes, all.drives.len())?;
        }
        match failure {
            Some(error) if all.drives.iter().all(|drive| drive.initiator.is_none()) => Err(error),
            _ => Ok(all),
        }
    }

    /// Bytes of all namespaces; `None`: one does not say its size.
    fn room_bytes(&self) -> Option<u64> {
        self.drives.iter().map(|drive| Some(drive.size_bytes).filter(|bytes| *bytes > 0)).sum()
    }

    /// Refuses pairs to load whose values do not fit.
    fn check_load(&self, pairs: u64, load_bytes: u64) -> anyhow::Result<()> {
        let Some(room_bytes) = self.room_bytes() else { return Ok(()) };
        Ok(check_load_of(pairs, load_bytes, room_bytes, self.drives.len())?)
    }

    /// A pipeline for each thread.
    fn pipelines(&mut self) -> Vec<ThreadDriver<'static>> {
        let Drives { drives, depths, spread, tallies } = self;
        let pipeline = |(number, tasks): (usize, &u32)| -> ThreadDriver<'static> {
            if let [drive] = &drives[..] {
                return ThreadDriver { pipeline: Box::new(drive.clients[number].pipeline()), tasks: *tasks };
            }
            let clients: Vec<_> = drives.iter().map(|drive| drive.clients.get(number).cloned()).collect();
            let is_ordered = drives.iter().all(|drive| drive.is_ordered);
            let silence = drives.iter().find_map(|drive| drive.silence);
            let pipeline = spread::Pipeline::new(spread.clone(), &clients, *tasks, is_ordered, silence);
            tallies.push(pipeline.tally());
            ThreadDriver { pipeline: Box::new(pipeline), tasks: *tasks }
        };
        depths.iter().enumerate().map(pipeline).collect()
    }

    /// Counts of each drive since the last call; empty for a single drive.
    fn shares(&self) -> Vec<Share> {
        let mut shares = vec![Share::default(); self.drives.len()];
        for tally in &self.tallies {
            shares.iter_mut().zip(tally.take()).for_each(|(sum, share)| sum.add(&share));
        }
        shares
    }

    /// Notes which pairs were loaded.
    fn note_loaded(&mut self, pairs: u64, bytes: u64) {
        let shares = self.shares();
        for (drive, share) in self.drives.iter_mut().zip(shares) {
            let of_several = (share.stores, share.stored_bytes);
            let loaded = if self.tallies.is_empty() { (pairs, bytes) } else { of_several };
            (drive.target.loaded_pairs, drive.target.loaded_bytes) = loaded;
        }
    }

    /// The lost drives and their errors, in a line.
    fn lost(&self) -> Option<String> {
        let mut lost: Vec<Option<String>> =
            self.drives.iter().map(|drive| drive.target.lost.clone()).collect();
        for tally in &self.tallies {
            for (known, error) in lost.iter_mut().zip(tally.lost()) {
                *known = known.take().or(error.map(|error| error.to_string()));
            }
        }
        let line = |(drive, lost): (&Connected, Option<String>)| {
            Some(format!("tcp://{} was lost: {}", drive.target.address, lost?))
        };
        let lines: Vec<_> = self.drives.iter().zip(lost).filter_map(line).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }

    /// The addresses.
    fn names(&self) -> String {
        let name = |drive: &Connected| format!("tcp://{}", drive.target.address);
        self.drives.iter().map(name).collect::<Vec<_>>().join(", ")
    }

    /// Disconnects from the drives; returns each with its identity and counts. `has_failed`: a drive was
    /// lost.
    fn end(mut self, has_failed: bool) -> anyhow::Result<Vec<Target>> {
        let shares = self.shares();
        for (number, (drive, share)) in self.drives.iter_mut().zip(shares).enumerate() {
            let target = &mut drive.target;
            target.sleeps = drive.clients.iter().map(Client::sleeps).sum();
            if !self.tallies.is_empty() {
                target.share = Some(share.counts());
                let lost = self.tallies.iter().find_map(|tally| tally.lost()[number].clone());
                target.lost = target.lost.take().or(lost.map(|error| error.to_string()));
            }
            drive.clients.clear();
            // A lost drive would be waited for.
            let there = drive.initiator.as_mut().filter(|_| target.lost.is_none());
            match there.map(Initiator::shut_down) {
                Some(Err(error)) if !has_failed => {
                    return Err(error).with_context(|| format!("tcp://{}", target.address));
                }
                _ => {}
            }
        }
        // With several drives a thread sleeps for all of them together.
        self.drives[0].target.sleeps += self.tallies.iter().map(Tally::sleeps).sum::<u64>();
        Ok(self.drives.into_iter().map(|drive| drive.target).collect())
    }
}

/// Connects a queue for each thread, with its number of operations under way, and identifies the drive.
fn connect(config: &Config, remote: &Remote, depths: &[u32]) -> anyhow::Result<Connected> {
    let Reached { mut initiator, nqn, identity, nsid, namespace, transfer_max_bytes } = reach(remote)?;
    let format = namespace.format();
    fits(&config.workload, format.value_max_bytes.get(), "this drive")?;
    let queues = u16::try_from(depths.len()).unwrap_or(u16::MAX);
    let granted = initiator.ask_for_queues(queues)?;
    anyhow::ensure!(granted >= queues, "host.queues: {queues}; it gives a host {granted}");
    let most = (initiator.property(property::CAP)? as u16).saturating_add(1);
    // The smallest queues that hold the depth: a ring has one entry that stays empty.
    let entries = config.host.depth.div_ceil(queues.into()).saturating_add(1).max(2);
    let entries = u16::try_from(entries).ok().filter(|entries| *entries <= most).with_context(|| {
        format!(
            "host.depth: {} on {queues} queues; those of this controller have {most} entries",
            config.host.depth
        )
    })?;
    let (mut clients, mut digests) = (Vec::new(), (false, false));
    for (number, depth) in (1..=queues).zip(depths) {
        let mut queue = initiator.io_queue(number, entries)?;
        queue.nsid = nsid;
        digests = queue.digests();
        clients.push(Client::new(queue, *depth, format.value_max_bytes.get(), transfer_max_bytes));
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
    let (initiator, silence) = (Some(initiator), remote.options.silence);
    let (is_ordered, size_bytes) = (namespace.vendor.is_ordered(), namespace.size_bytes.get());
    Ok(Connected { target, initiator, clients, is_ordered, size_bytes, silence })
}

/// The name of the subsystem that discovery reports, if there is exactly one.
fn the_subsystem(remote: &Remote) -> anyhow::Result<String> {
    let found = discover(remote.address.as_str(), &remote.options)
        .map_err(|error| Unnamed(format!("discovery of the subsystem: {error}")))?;
    let mut names: Vec<_> =
        found.into_iter().map(|entry| entry.nqn).filter(|nqn| nqn != DISCOVERY_NQN).collect();
    names.sort();
    names.dedup();
    match &names[..] {
        [] => Err(Unnamed("discovery names no subsystem".to_owned()))?,
        [nqn] => Ok(nqn.clone()),
        _ => Err(Unnamed::several(&names.join(", ")))?,
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
        return Ok((nsid, identified(initiator, nsid).with_context(|| format!("namespace {nsid}"))?));
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
