//! A run against a drive that is not in this program, or several: on a network, or behind a device of Linux; any
//! that has a namespace of pairs, or with a store on the host (`host.store`) one of blocks.
//!
//! The application is the same as in every run in wall time, with a thread and a queue for each of
//! `host.queues`; with several drives each thread has a queue of every drive. With SAKER a thread has a second
//! queue, for calls that SAKER does not send. The inside of a drive is not visible from here, and is not in the
//! report.

use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use anyhow::Context;
use kvdrive_declare::{Counter, Counters, Counts, Form, Sections};
use kvdrive_host::hostkv::StoreThread;
use kvdrive_host::reach::{Reached, reach, reach_blocks};
pub use kvdrive_host::reach::{Remote, address};
use kvdrive_host::saker::{self, Front, Queues};
use kvdrive_host::spread::{self, Share, Spread, Tally};
use kvdrive_host::{Driver, Error, Pipelined};
use kvdrive_nvme::nvm::{BLOCK_BYTES, NvmNamespace};
use kvdrive_saker::threaded::Threaded;
use kvdrive_saker::{BatchSize, Saker};
use kvdrive_sim::wall::{Stopwatch, lock};

use super::lanes::Sent;
use super::on_host;
use super::threads::{Measured, ThreadDriver, Threads};
use crate::memory::Spending;
use crate::modelled::{FinishedRun, fits};
use crate::outcome::Outcome;
use crate::report::Target;
use crate::snapshot::DriveSnapshot;
use crate::watch::Watch;
use kvdrive_config::{Config, Document, check_load_of};

/// Runs the workload of `document` against a drive that is not in this program, or against several that share the
/// keys ([`kvdrive_host::spread`]). `only_verifies`: stores nothing, and reads and checks the pairs that an earlier
/// run of the same workload stored.
///
/// # Errors
/// A line with the address: no answer there, no such namespace, or the connection was lost while loading. A
/// connection that is lost later ends the run with [`FinishedRun::failure`]; with several drives the others
/// continue, and the failure is reported at the end.
pub fn run_connected(
    document: &Document,
    remotes: &[Remote],
    only_verifies: bool,
    watch: &Watch<'_>,
) -> anyhow::Result<(Vec<Target>, FinishedRun)> {
    run_measured(document, remotes, only_verifies, watch, &|| ())
}

/// As [`run_connected`]; calls `look` immediately before and after the measured operations.
///
/// # Errors
/// As [`run_connected`].
pub fn run_measured(
    document: &Document,
    remotes: &[Remote],
    only_verifies: bool,
    watch: &Watch<'_>,
    look: &dyn Fn(),
) -> anyhow::Result<(Vec<Target>, FinishedRun)> {
    let mut config = document.config()?;
    check(&config, remotes)?;
    if only_verifies {
        config.workload.verify = "only".into();
    }
    let (mut drives, mut drivers) = Drives::connect(&config, remotes, only_verifies)?;
    // The flash of the drives is not visible from here, the size of their namespaces is.
    if config.workload.precondition > 0.0 {
        let room_bytes =
            drives.room_bytes().context("workload.precondition: a drive does not say its size")?;
        config.workload.precondition_bytes = (config.workload.precondition * room_bytes as f64) as u64;
    }
    // The drives may hold pairs from other programs.
    let pipelines = drives.pipelines(&config, &mut drivers)?;
    let mut threads = Threads::new(&config, pipelines, true, Spending::elsewhere(), watch)?;
    let (pairs, bytes) = threads.load_size();
    drives.check_load(pairs, bytes)?;
    let (loaded_pairs, loaded_bytes) =
        threads.load(&config, watch).with_context(|| drives.lost().unwrap_or_else(|| drives.names()))?;
    drives.note_loaded(loaded_pairs, loaded_bytes);
    look();
    // The inside of the drive is not visible from here.
    let inside = Rc::new(DriveSnapshot::default);
    let Measured { seen, wall_ns, mut notes, workload, series, verified, failure, bad_end } =
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
    let mut drained = DriveSnapshot::default();
    drives.count(&mut drained.counts);
    if drives.store.is_some() {
        notes.push(on_host::NOTE.to_owned());
    }
    let targets = drives.end(drivers, failure.is_some())?;
    let latencies = seen.latencies();
    let (wall_ns, is_stopped) = (Some(wall_ns), watch.is_stopped());
    let outcome = Outcome {
        seen,
        drained,
        wall_ns,
        notes,
        is_stopped,
        workload,
        series,
        verified,
        ..Outcome::default()
    };
    let report = outcome.into_report(document, &config)?;
    Ok((targets, FinishedRun { report, latencies, failure: failure.or(bad_end) }))
}

/// Refuses settings that a run over a network ignores, and workloads that several drives cannot carry out.
fn check(config: &Config, remotes: &[Remote]) -> anyhow::Result<()> {
    anyhow::ensure!(
        config.host.threads == 0 || config.saker.enabled || config.has_store_on_host(),
        "host.threads: a run over a network does not look at it; each of host.queues has a thread and a connection"
    );
    let several = remotes.len();
    anyhow::ensure!(
        several == 1 || !config.workload.atomic,
        "workload.atomic: a batch is of one drive, and there are {several}"
    );
    anyhow::ensure!(
        several == 1 || !config.has_store_on_host(),
        "host.store: \"{}\"; a store has the blocks of one drive, and there are {several}",
        config.host.store
    );
    Ok(())
}

/// A controller that was reached.
#[derive(Clone)]
enum Way {
    Pairs(Arc<Mutex<Reached>>),
    Blocks(Arc<Mutex<Reached<NvmNamespace>>>),
}

impl Way {
    fn leave(&self) -> Result<(), Error> {
        match self {
            Way::Pairs(reached) => lock(reached).leave(),
            Way::Blocks(reached) => lock(reached).leave(),
        }
    }
}

/// A drive of the run.
struct Connected {
    target: Target,
    /// `None`: it could not be reached.
    reached: Option<Way>,
    is_ordered: bool,
    /// Size of the namespace; 0: not known.
    size_bytes: u64,
    /// How long it may be silent.
    silence: Option<Duration>,
}

/// By drive: a driver for each thread; none for a drive that could not be reached.
type Drivers = Vec<Vec<Driver>>;

/// SAKER in front of the drive, and where its queues keep why they failed.
struct InFront {
    threaded: Arc<Threaded<Queues>>,
    failure: Arc<OnceLock<Error>>,
}

impl InFront {
    /// Another handle.
    fn front(&self, name: &str) -> anyhow::Result<Front> {
        let off = || self.failure.get().map_or(name.to_owned(), |error| format!("{name}: {error}"));
        Ok(Front::new(self.threaded.connect().with_context(off)?, self.failure.clone()))
    }
}

/// SAKER in front of a drive with this many queues: another one for each of its handles. `None`: it was not reached.
fn in_front(config: &Config, drive: &Connected, queues: usize) -> anyhow::Result<Option<InFront>> {
    let Some(Way::Pairs(reached)) = drive.reached.clone() else { return Ok(None) };
    let depth = config.saker.in_flight + 1;
    let made = Mutex::new(queues as u16);
    let queues = Queues::new(move || {
        let mut made = lock(&made);
        *made += 1;
        let mut reached = lock(&reached);
        let entries = entries_of(depth, reached.entries_max()?).unwrap_or(u16::MAX);
        reached.driver(*made, entries, depth)
    });
    let (failure, clock) = (queues.failure(), Stopwatch::start());
    let saker = Saker::new(config.saker.settings())?;
    Ok(Some(InFront { threaded: Threaded::new(saker, queues, Arc::new(move || clock.ns())), failure }))
}

/// The counters of several parts without labels, as one: a maximum is the highest, the others are sums.
fn joined(parts: impl Iterator<Item = Counts>) -> Counts {
    let mut all: Vec<(&'static Counter, u64)> = Vec::new();
    for count in parts.flat_map(|part| part.iter().copied().collect::<Vec<_>>()) {
        match all.iter_mut().find(|(counter, _)| counter.name == count.counter.name) {
            Some((counter, value)) if counter.form == Form::Maximum => *value = count.value.max(*value),
            Some((_, value)) => *value += count.value,
            None => all.push((count.counter, count.value)),
        }
    }
    let mut counts = Counts::default();
    for (counter, value) in all {
        counts.put(counter, &value);
    }
    counts
}

/// The drives of the run.
struct Drives {
    drives: Vec<Connected>,
    /// Operations that each thread has under way at once.
    depths: Vec<u32>,
    spread: Spread,
    /// With several drives, the counts of each thread's pipeline.
    tallies: Vec<Tally>,
    /// SAKER in front of each drive that was reached, if it is on.
    saker: Vec<Option<InFront>>,
    /// The store on the host, over the only drive.
    store: Option<StoreThread<Sent>>,
}

/// Operations that each thread has under way at once.
fn depths(config: &Config) -> Vec<u32> {
    if config.saker.enabled || config.has_store_on_host() {
        return vec![1; config.queue_pairs() as usize];
    }
    let queues = config.host.queues.min(config.host.depth);
    // Operations under way are spread evenly.
    let depth = |number| config.host.depth / queues + u32::from(number < config.host.depth % queues);
    (0..queues).map(depth).collect()
}

impl Drives {
    /// Connects the I/O queues of the run to all drives.
    ///
    /// # Errors
    /// A line with the address of a drive that cannot be reached. If several drives are only read back, that
    /// drive counts as lost instead, unless none can be reached.
    fn connect(
        config: &Config,
        remotes: &[Remote],
        only_verifies: bool,
    ) -> anyhow::Result<(Drives, Drivers)> {
        let addresses: Vec<&str> = remotes.iter().map(|remote| remote.address.as_str()).collect();
        let spread = Spread::new(&addresses).map_err(anyhow::Error::msg)?;
        let depths = depths(config);
        if config.has_store_on_host() {
            let (drive, store) = connect_store(config, &remotes[0]).with_context(|| remotes[0].name())?;
            let (drives, tallies) = (vec![drive], Vec::new());
            let all = Drives { drives, depths, spread, tallies, saker: Vec::new(), store: Some(store) };
            return Ok((all, vec![Vec::new()]));
        }
        let (mut drives, mut drivers, mut failure) = (Vec::new(), Vec::new(), None);
        for remote in remotes {
            match connect(config, remote, &depths).with_context(|| remote.name()) {
                Ok((connected, of_threads)) => {
                    drives.push(connected);
                    drivers.push(of_threads);
                }
                Err(error) if only_verifies && remotes.len() > 1 => {
                    let lost = Some(format!("{:#}", error.root_cause()));
                    let target = Target { address: remote.address.clone(), lost, ..Target::default() };
                    let (reached, silence) = (None, None);
                    let (is_ordered, size_bytes) = (true, 0);
                    drives.push(Connected { target, reached, is_ordered, size_bytes, silence });
                    drivers.push(Vec::new());
                    failure = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        let all = Drives { drives, depths, spread, tallies: Vec::new(), saker: Vec::new(), store: None };
        if let Some(room_bytes) = all.room_bytes().filter(|_| config.workload.verify != "only") {
            config.check_room_of(room_bytes, all.drives.len())?;
        }
        match failure {
            Some(error) if all.drives.iter().all(|drive| drive.reached.is_none()) => Err(error),
            _ => Ok((all, drivers)),
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
    fn pipelines<'d>(
        &mut self,
        config: &Config,
        drivers: &'d mut Drivers,
    ) -> anyhow::Result<Vec<ThreadDriver<'d>>> {
        if let Some(store) = &self.store {
            let thread =
                |tasks: &u32| ThreadDriver { pipeline: Box::new(store.pipeline(*tasks)), tasks: *tasks };
            return Ok(self.depths.iter().map(thread).collect());
        }
        let name = self.names();
        if config.saker.enabled {
            let in_front = |drive| in_front(config, drive, self.depths.len());
            self.saker = self.drives.iter().map(in_front).collect::<anyhow::Result<_>>()?;
        }
        if drivers.len() == 1 {
            let drivers = &mut drivers[0];
            let saker = self.saker.first().and_then(Option::as_ref);
            let of_thread = |(driver, tasks): (&'d mut Driver, &u32)| -> anyhow::Result<ThreadDriver<'d>> {
                let tasks = *tasks;
                let pipeline: Box<dyn Pipelined<Sent> + Send + 'd> = match saker {
                    Some(saker) => Box::new(saker::Pipeline::new(saker.front(&name)?, driver)),
                    None => Box::new(driver.pipeline()?),
                };
                Ok(ThreadDriver { pipeline, tasks })
            };
            return drivers.iter_mut().zip(&self.depths).map(of_thread).collect();
        }
        let is_ordered = self.drives.iter().all(|drive| drive.is_ordered);
        let silence = self.drives.iter().find_map(|drive| drive.silence);
        let mut of_drives: Vec<_> = drivers.iter_mut().map(|drivers| drivers.iter_mut()).collect();
        let mut pipelines = Vec::new();
        for tasks in &self.depths {
            let of_thread: Vec<_> = of_drives.iter_mut().map(Iterator::next).collect();
            let pipeline =
                spread::Pipeline::new(self.spread.clone(), of_thread, *tasks, is_ordered, silence)?;
            self.tallies.push(pipeline.tally());
            let pipeline: Box<dyn Pipelined<Sent> + Send + 'd> = match self.saker.is_empty() {
                true => Box::new(pipeline),
                false => {
                    let named = self.saker.iter().zip(&self.drives);
                    let front = |(saker, drive): (&Option<InFront>, &Connected)| {
                        saker.as_ref().map(|saker| saker.front(&drive.target.name())).transpose()
                    };
                    let fronts = named.map(front).collect::<anyhow::Result<Vec<_>>>()?;
                    Box::new(spread::Fronted::new(self.spread.clone(), fronts, pipeline))
                }
            };
            pipelines.push(ThreadDriver { pipeline, tasks: *tasks });
        }
        Ok(pipelines)
    }

    /// Sets the counters of SAKER and of a store on the host.
    fn count(&self, counts: &mut Sections) {
        let sakers = self.saker.iter().flatten().map(|saker| saker.threaded.saker().counts());
        counts.set("saker", joined(sakers));
        if let Some(store) = &self.store {
            let (of_store, memory) = store.counts();
            counts.set("store", of_store);
            counts.set("store_memory", memory);
        }
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
            Some(format!("{} was lost: {}", drive.target.name(), lost?))
        };
        let lines: Vec<_> = self.drives.iter().zip(lost).filter_map(line).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }

    /// The addresses.
    fn names(&self) -> String {
        let name = |drive: &Connected| drive.target.name();
        self.drives.iter().map(name).collect::<Vec<_>>().join(", ")
    }

    /// Disconnects from the drives; returns each with its identity and counts. `has_failed`: a drive was
    /// lost.
    fn end(self, drivers: Drivers, has_failed: bool) -> anyhow::Result<Vec<Target>> {
        let shares = self.shares();
        let Drives { drives, tallies, saker, store, .. } = self;
        // Their queues end before their controller is shut down.
        drop((saker, store));
        let mut targets = Vec::new();
        for (number, ((drive, share), drivers)) in drives.into_iter().zip(shares).zip(drivers).enumerate() {
            let Connected { mut target, reached, .. } = drive;
            target.sleeps = drivers.iter().map(Driver::sleeps).sum();
            if !tallies.is_empty() {
                target.share = Some(share.counts());
                let lost = tallies.iter().find_map(|tally| tally.lost()[number].clone());
                target.lost = target.lost.take().or(lost.map(|error| error.to_string()));
            }
            drop(drivers);
            // A lost drive would be waited for.
            let there = reached.filter(|_| target.lost.is_none());
            match there.map(|reached| reached.leave()) {
                Some(Err(error)) if !has_failed => return Err(error).with_context(|| target.name()),
                _ => {}
            }
            targets.push(target);
        }
        // With several drives a thread sleeps for all of them together.
        targets[0].sleeps += tallies.iter().map(Tally::sleeps).sum::<u64>();
        Ok(targets)
    }
}

/// Entries of the smallest queue that holds `depth` commands: a ring has one entry that stays empty. `None`: the
/// largest has fewer.
fn entries_of(depth: u32, most: u16) -> Option<u16> {
    u16::try_from(depth.saturating_add(1).max(2)).ok().filter(|entries| *entries <= most)
}

/// Connects the I/O queues of a drive, one for each of `depths`.
fn connect(config: &Config, remote: &Remote, depths: &[u32]) -> anyhow::Result<(Connected, Vec<Driver>)> {
    let mut reached = reach(remote)?;
    fits(&config.workload, reached.value_max_bytes(), "this drive")?;
    let queues = u16::try_from(depths.len()).unwrap_or(u16::MAX);
    // SAKER has a queue of its own for each thread.
    let (asked, what) = match config.saker.enabled {
        true => (queues.saturating_mul(2), "host.threads, each with two queues"),
        false => (queues, "host.queues"),
    };
    let granted = reached.ask_for_queues(asked)?;
    anyhow::ensure!(granted >= asked, "{what}: {queues}; it gives a host {granted}");
    if config.saker.enabled {
        check_batches(config, &reached)?;
    }
    let most = reached.entries_max()?;
    let saker_depth = if config.saker.enabled { config.saker.in_flight + 1 } else { 1 };
    let deepest = depths.iter().copied().max().unwrap_or(1).max(saker_depth);
    let entries = entries_of(deepest, most).with_context(|| {
        let asked = match config.saker.enabled {
            true => format!("saker.in_flight: {}", config.saker.in_flight),
            false => format!("host.depth: {} on {queues} queues", config.host.depth),
        };
        format!("{asked}; those of this controller have {most} entries")
    })?;
    let mut drivers = Vec::new();
    for (number, depth) in (1..=queues).zip(depths) {
        drivers.push(reached.driver(number, entries, *depth)?);
    }
    let value_max_bytes = reached.value_max_bytes();
    let depth = depths.iter().sum();
    let target = Target { value_max_bytes, depth, ..target_of(remote, &reached, asked) };
    let (is_ordered, size_bytes) =
        (reached.namespace.vendor.is_ordered(), reached.namespace.size_bytes.get());
    let (reached, silence) = (Some(Way::Pairs(Arc::new(Mutex::new(reached)))), remote.options.silence);
    Ok((Connected { target, reached, is_ordered, size_bytes, silence }, drivers))
}

/// What a report says of a drive with `connections` I/O queues.
fn target_of<N>(remote: &Remote, reached: &Reached<N>, connections: u16) -> Target {
    let text = |field: &[u8]| String::from_utf8_lossy(field).trim_end_matches([' ', '\0']).to_owned();
    let (digests, identity) = (reached.digests(), &reached.identity);
    Target {
        address: remote.address.clone(),
        nqn: reached.nqn.clone(),
        model: text(&identity.model),
        serial: text(&identity.serial),
        firmware: text(&identity.firmware),
        nsid: reached.nsid,
        transfer_max_bytes: Some(reached.transfer_max_bytes).filter(|bytes| *bytes < u32::MAX),
        connections: connections.into(),
        header_digests: digests.0,
        data_digests: digests.1,
        ..Target::default()
    }
}

/// The store on the host over the blocks of a drive, with a queue for each of its threads.
fn connect_store(config: &Config, remote: &Remote) -> anyhow::Result<(Connected, StoreThread<Sent>)> {
    let mut reached = reach_blocks(remote)?;
    let store = on_host::described(config, reached.blocks())?;
    let (asked, name) = (store.queues() as u16, store.row.name);
    let granted = reached.ask_for_queues(asked)?;
    anyhow::ensure!(
        granted >= asked,
        "host.threads: {}; store {name} needs {asked} queues, and the drive gives a host {granted}",
        store.threads
    );
    let (depth, most) = (on_host::block_depth(config), reached.entries_max()?);
    let entries = entries_of(depth, most).with_context(|| {
        format!("host.depth: {depth} on a queue; those of this controller have {most} entries")
    })?;
    let drivers = (1..=asked).map(|number| reached.driver(number, entries, depth));
    let drivers = drivers.collect::<Result<Vec<_>, _>>()?;
    let store = on_host::open(store, drivers, reached.is_blank())?;
    let (value_max_bytes, depth) = (kvdrive_store::MAX_VALUE_BYTES, config.queue_pairs());
    let target = Target { value_max_bytes, depth, ..target_of(remote, &reached, asked) };
    let (is_ordered, size_bytes) = (true, reached.blocks() * u64::from(BLOCK_BYTES));
    let (reached, silence) = (Some(Way::Blocks(Arc::new(Mutex::new(reached)))), remote.options.silence);
    Ok((Connected { target, reached, is_ordered, size_bytes, silence }, store))
}

/// Refuses batches that the drive does not take.
fn check_batches(config: &Config, reached: &Reached) -> anyhow::Result<()> {
    let settings = config.saker.settings();
    let takes = reached.namespace.vendor.batches();
    let most_bytes = takes.map_or(reached.value_max_bytes(), |limits| limits.bytes);
    anyhow::ensure!(
        takes.is_some() || settings.batch == BatchSize::Fixed(1),
        "saker.batch: this drive takes no batches; 1 sends every write as a command of its own"
    );
    anyhow::ensure!(
        settings.container_bytes <= most_bytes,
        "saker.container_bytes: {}; a batch of this drive has at most {most_bytes} bytes",
        settings.container_bytes
    );
    Ok(())
}
