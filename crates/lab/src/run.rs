//! One run, or several behind each other: a drive, a host and workloads in model time, and the reports of
//! what happened.
//!
//! ```text
//!   power on ─► connect ─► load ─► drain ─► ┌ measured: tasks take operations, each waits for its own ┐ ─► drain ─► report
//!                                            └──────────────── a session: once for each of its runs ◄──────────────────┘
//! ```
//!
//! Counters of the report cover the measured operations and the drain behind them; latency, throughput and
//! how busy resources were cover the operations alone. As many tasks run as `host.depth` says, spread over
//! `host.queues` queue pairs, or of a store on the host one for each of `host.threads`; each does its next operation when its last one has completed and the host's own
//! work between two is done. The same tasks load the pairs that a workload begins with, and overwrite them as
//! often as it asks, or they are put into the drive in no time (`workload.timed_load`); what that took is in
//! the report, too.

mod arrivals;
mod histogram_log;
mod intervals;
mod outcome;
mod scan;
mod seen;
mod verify;
mod watch;

use std::cell::{Cell, OnceCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_device::{Counters, Drive};
use kvdrive_engines::KNOWN_AHEAD;
use kvdrive_flash::FlashHealth;
use kvdrive_flash::faults::{FaultCount, Rule};
use kvdrive_host::hostkv::{HostKv, HostKvClient};
use kvdrive_host::modelled::{Driver, Host, Pair};
use kvdrive_host::{Client, Error};
use kvdrive_link::{Link, LocalMemory, Traffic};
use kvdrive_sim::wall::Stopwatch;
use kvdrive_sim::{Histogram, Ns, Resource, Sim, TaskCell, WaitQueue};
use kvdrive_spec::{Key, Status};

use crate::config::{Config, Document};
use crate::report::{self, Report, grouped};
use crate::setup;
use crate::workload::{self, Op, ValueSpec, Workload, WorkloadParams};
use arrivals::Arrivals;
pub use histogram_log::HistogramLog;
pub use intervals::Interval;
use intervals::Slices;
pub(crate) use scan::{Scan, answered};
pub(crate) use seen::{DELETE, EXIST, KINDS, LIST, RETRIEVE, STORE, Seen};
use verify::{ReadBack, Reading, Verifier, Writing};
pub use watch::{OnInterval, Watch};

/// Operations between two calls of a progress hook.
const PROGRESS_STEP: u64 = 8192;

/// Who wants to know how far a run is: operations done (loading included) and in all.
pub type Progress<'a> = &'a dyn Fn(u64, u64);

/// Runs what `document` describes.
pub fn run(document: &Document, progress: Progress<'_>) -> anyhow::Result<Report> {
    run_counted(document, progress).map(|(report, _)| report)
}

/// As [`run`], with rules by which the drive fails. They hold from the first measured operation on: what a
/// workload begins with is loaded without them.
pub fn run_faulty(document: &Document, rules: &[Rule], progress: Progress<'_>) -> anyhow::Result<Report> {
    run_watched(document, rules, &Watch::progress(progress)).map(|ran| ran.report)
}

/// A run that has ended.
pub struct Ran {
    /// Its report.
    pub report: Report,
    /// Latencies of its operations by kind, in ns; of those kinds that occurred.
    pub latencies: Vec<(&'static str, Histogram)>,
    /// Whether somebody had it stop.
    pub is_stopped: bool,
}

/// As [`run_faulty`], with somebody who looks on and may end it.
pub fn run_watched(document: &Document, rules: &[Rule], watch: &Watch<'_>) -> anyhow::Result<Ran> {
    let (mut ran, _) = run_all(std::slice::from_ref(document), rules, watch)?;
    Ok(ran.pop().expect("a report for the run"))
}

/// As [`run`], and says how many events of the simulation it took, from power-on to the end.
pub fn run_counted(document: &Document, progress: Progress<'_>) -> anyhow::Result<(Report, u64)> {
    let (mut ran, events) = run_all(std::slice::from_ref(document), &[], &Watch::progress(progress))?;
    Ok((ran.pop().expect("a report for the run").report, events))
}

/// Runs what `documents` describe, behind each other on one drive. It is loaded as the first of them says.
///
/// # Errors
/// Two of them describe different drives or hosts, or a run fails.
pub fn run_session(documents: &[Document], progress: Progress<'_>) -> anyhow::Result<Vec<Report>> {
    let (ran, _) = run_all(documents, &[], &Watch::progress(progress))?;
    Ok(ran.into_iter().map(|ran| ran.report).collect())
}

fn run_all(documents: &[Document], rules: &[Rule], watch: &Watch<'_>) -> anyhow::Result<(Vec<Ran>, u64)> {
    let configs = documents.iter().map(Document::config).collect::<Result<Vec<_>, _>>()?;
    for config in &configs[1..] {
        let same = Config { workload: configs[0].workload.clone(), ..config.clone() } == configs[0];
        anyhow::ensure!(same, "{}: runs of one session share all but their workload", config.workload.name);
    }
    let stopwatch = Stopwatch::start();
    let bench = Bench::new(&configs[0])?;
    let outcomes = bench.sim.block_on(|| bench.measure(&configs, rules, watch))?;
    let mut all = Vec::with_capacity(outcomes.len());
    for ((outcome, document), config) in outcomes.into_iter().zip(documents).zip(&configs) {
        let latencies = outcome.seen.latencies();
        let report = outcome.into_report(document, config)?;
        all.push(Ran { report, latencies, is_stopped: watch.is_stopped() });
    }
    // Of the whole session: who runs several things at once cannot say which took the machine's time.
    all.iter_mut().for_each(|ran| ran.report.time.wall_s = stopwatch.seconds() / documents.len() as f64);
    let events = bench.sim.events();
    bench.sim.clear();
    Ok((all, events))
}

/// Operations of a run, those that load included.
///
/// # Errors
/// The workload cannot be built.
pub fn operations(config: &Config) -> anyhow::Result<u64> {
    if config.workload.name == workload::TRACE.name {
        // How many a trace has nobody knows before its end.
        return Ok(config.workload.ops);
    }
    let workload = workload::build(&config.workload, config.run.seed).map_err(anyhow::Error::msg)?;
    Ok(workload.preload() + config.workload.ops)
}

/// What all tasks of a run share: the operations still to do, and what came of those done.
struct Stream {
    sim: Sim,
    think_ns: Ns,
    drive: Rc<Drive>,
    workload: TaskCell<Box<dyn Workload>>,
    /// Operations that were drawn, each with the moment it is to begin if it does not wait for others.
    drawn: TaskCell<VecDeque<(Op, Option<Ns>)>>,
    /// When operations are to begin, and when the measured ones began; none begins at `until` or later.
    arrivals: TaskCell<Option<Arrivals>>,
    start: Cell<Ns>,
    until: Cell<Ns>,
    /// Operations begin when a trace says.
    at_recorded_times: Cell<bool>,
    is_over: Cell<bool>,
    stop: Arc<AtomicBool>,
    /// What the workload could not go on for.
    failure: TaskCell<Option<String>>,
    /// Where values are checked.
    verifier: Option<Rc<TaskCell<Verifier>>>,
    /// Pairs that are loaded already, and where loading ends.
    loaded: Cell<u64>,
    load_end: Cell<u64>,
    left: Cell<u64>,
    /// Does the first store that does not fit end the run, and has there been one?
    until_full: bool,
    full: Cell<bool>,
    done: Cell<u64>,
    seen: TaskCell<Seen>,
    /// Tasks that have not ended, and where the run waits for them and for word of their progress.
    running: Cell<usize>,
    news: WaitQueue,
}

struct Bench {
    sim: Sim,
    link: Rc<Link>,
    memory: Rc<LocalMemory>,
    /// One that all drivers share, or one for each thread of a store.
    cores: Vec<Rc<Resource>>,
    /// A store that runs on the host.
    kv: OnceCell<Rc<HostKv>>,
}

/// Whom operations are asked of.
enum Clients {
    /// The drive, over one queue pair each.
    Drive(Vec<Rc<Driver>>),
    /// A store on the host, one a thread.
    Store(Vec<Rc<HostKvClient>>),
}

impl Clients {
    /// Makes durable what a store on the host has in memory.
    fn sync(&self) -> anyhow::Result<()> {
        match self {
            Clients::Drive(_) => Ok(()),
            Clients::Store(clients) => Ok(clients[0].sync()?),
        }
    }
}

pub(crate) struct Outcome {
    pub seen: Seen,
    pub began: Snapshot,
    /// Behind the last operation: what throughput and resources are of.
    pub ended: Snapshot,
    /// Behind the drain as well: what is counted.
    pub drained: Snapshot,
    pub notes: Vec<String>,
    pub loading: Option<Loading>,
    /// What came of checking values, and the first that was wrong.
    pub verified: Option<(report::Verified, Option<String>)>,
}

/// What it took to load a drive and to overwrite its pairs.
#[derive(Clone)]
pub(crate) struct Loading {
    pub began: Snapshot,
    pub ended: Snapshot,
    pub stores: u64,
    pub stored_bytes: u64,
}

/// Everything a report takes the difference of: counted or modelled, from power-on.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Model time.
    pub at: Ns,
    /// Bytes over the link as the papers count them.
    pub payload: Traffic,
    /// Bytes over the link with what the layers below add.
    pub wire: Traffic,
    /// Of the drive.
    pub counters: Counters,
    /// What its engine counts by names of its own.
    pub details: Vec<(&'static str, u64)>,
    /// What a store on the host counts by names of its own.
    pub stored: Vec<(String, u64)>,
    /// What its structures take of the DRAM, bytes.
    pub dram: Vec<(&'static str, u64)>,
    /// Host core, link, firmware cores, channels and dies with what they did.
    pub resources: Vec<(String, kvdrive_sim::ResourceStatistics)>,
    /// Model time that power-on took.
    pub recovery_ns: Ns,
    /// Fault rules with how often they matched and struck.
    pub faults: Vec<FaultCount>,
    /// How its flash holds out.
    pub flash_health: FlashHealth,
}

impl Bench {
    fn new(config: &Config) -> anyhow::Result<Bench> {
        let sim = Sim::new();
        let memory = Rc::new(LocalMemory::new());
        let link = Link::new(&sim, config.link.clone(), memory.clone());
        let core = |name: String, servers| Rc::new(Resource::new(&sim, name, servers));
        let cores = match config.has_store_on_host() {
            true => (0..config.host.threads).map(|thread| core(format!("host.core.{thread}"), 1)).collect(),
            false => vec![core("host.core".into(), config.host.cores)],
        };
        Ok(Bench { sim, link, memory, cores, kv: OnceCell::new() })
    }

    fn connect(&self, config: &Config) -> anyhow::Result<Clients> {
        let (link, memory) = (&self.link, &self.memory);
        if config.has_store_on_host() {
            let kv = setup::store_on_host(config, link, memory, &self.cores)?;
            let client = |thread| Rc::new(kv.client(thread));
            let clients = (0..config.host.threads).map(client).collect();
            assert!(self.kv.set(kv).is_ok(), "there is one store");
            return Ok(Clients::Store(clients));
        }
        let core = self.cores[0].clone();
        let host = Host::connect(link.clone(), memory.clone(), core, config.host.costs)?;
        Ok(Clients::Drive(setup::drivers(config, &host)?.into_iter().map(Rc::new).collect()))
    }

    fn measure(&self, configs: &[Config], rules: &[Rule], watch: &Watch<'_>) -> anyhow::Result<Vec<Outcome>> {
        let (config, progress) = (&configs[0], watch.progress);
        let has_past = config.media.file().is_some_and(|path| std::fs::exists(path).unwrap_or(true));
        let verifier = Rc::new(TaskCell::new(Verifier::new(has_past)));
        let drive = Rc::new(Drive::power_on(&self.sim, &self.link, &setup::drive(config), None)?);
        let clients = self.connect(config)?;
        let total = operations(config)? + configs[1..].iter().map(|config| config.workload.ops).sum::<u64>();
        let (mut outcomes, mut done, mut loading) = (Vec::new(), 0, None);
        let mut before: Option<WorkloadParams> = None;
        for (index, config) in configs.iter().enumerate() {
            let mut params = config.workload.clone();
            if let Some(before) = &before {
                follow(&mut params, before);
            }
            let mut ops = config.workload.ops;
            let mut source =
                workload::open(&params, config.run.seed + index as u64).map_err(anyhow::Error::msg)?;
            if params.verify == "only" {
                let read_back = ReadBack::of(source, ops, config.host.depth, &mut verifier.borrow_mut());
                let read_back = read_back.map_err(anyhow::Error::msg)?;
                ops = read_back.keys();
                source = Box::new(read_back);
            }
            let checks = (params.verify != "off").then(|| verifier.clone());
            let stream = self.stream(config, &drive, source, checks, watch);
            let mut notes = Vec::new();
            let tell = |now| match stream.workload.borrow().read_share().filter(|share| *share > 0.0) {
                Some(share) => progress(done + now, total.min(done + (now as f64 / share) as u64)),
                None => progress(done + now, total),
            };
            match &before {
                None => {
                    loading = self.load(&stream, config, &clients, &tell)?;
                    drive.faults().set(rules, config.run.seed);
                }
                Some(before) => {
                    notes.push(format!("behind {} {} on the same drive", before.name, before.distribution));
                }
            }
            let began = self.snapshot(&drive);
            stream.begin(config, ops, began.at);
            let slices = self.cut_into_slices(&stream, watch, &began);
            let loaded = stream.done.get();
            self.run_tasks(&stream, config, &clients, &tell);
            let ended = self.snapshot(&drive);
            if let Some(slices) = slices {
                slices.borrow_mut().end(ended.clone(), &mut stream.seen.borrow_mut());
            }
            done += stream.done.get();
            if let Some(failure) = stream.failure.take() {
                anyhow::bail!(failure);
            }
            // A trace has some to add as it is read.
            notes.splice(0..0, stream.workload.borrow().notes().iter().cloned());
            notes.extend(stream.notes_at_end(&config.workload, ops, stream.done.get() - loaded));
            clients.sync()?;
            drive.drain();
            // Flash without a spare block is what a run may be about: its report says so.
            if let Some(failure) = drive.write_failure().filter(|failure| failure.path.is_some()) {
                return Err(failure.into());
            }
            params.num += stream.workload.borrow().inserted();
            before = Some(params);
            let (seen, drained) = (stream.seen.take(), self.snapshot(&drive));
            let verified = stream.verifier.as_ref().map(|verifier| verifier.borrow_mut().take());
            let loading = loading.clone();
            outcomes.push(Outcome { seen, began, ended, drained, notes, loading, verified });
        }
        progress(total, total);
        Ok(outcomes)
    }

    /// Has the run that begins told in intervals, if anybody wants to hear of them. Its last one ends with it.
    fn cut_into_slices(
        &self,
        stream: &Rc<Stream>,
        watch: &Watch<'_>,
        began: &Snapshot,
    ) -> Option<Rc<TaskCell<Slices>>> {
        let (length_ns, tell) = watch.intervals.clone()?;
        stream.seen.borrow_mut().recent = Some(Box::default());
        let slices = Rc::new(TaskCell::new(Slices::new(length_ns, tell, began.clone())));
        let (sim, link, cores) = (self.sim.clone(), self.link.clone(), self.cores.clone());
        let (stream, cut) = (stream.clone(), slices.clone());
        self.sim.spawn(move || {
            loop {
                let end = cut.borrow().next_end();
                sim.sleep_until(end);
                if stream.is_over.get() {
                    return;
                }
                let now = Snapshot::of(&sim, &link, &stream.drive, &cores);
                cut.borrow_mut().end(now, &mut stream.seen.borrow_mut());
            }
        });
        Some(slices)
    }

    fn stream(
        &self,
        config: &Config,
        drive: &Rc<Drive>,
        source: Box<dyn Workload>,
        verifier: Option<Rc<TaskCell<Verifier>>>,
        watch: &Watch<'_>,
    ) -> Rc<Stream> {
        Rc::new(Stream {
            sim: self.sim.clone(),
            think_ns: config.host.think_ns,
            drive: drive.clone(),
            workload: TaskCell::new(source),
            drawn: TaskCell::default(),
            arrivals: TaskCell::default(),
            start: Cell::new(0),
            until: Cell::new(Ns::MAX),
            at_recorded_times: Cell::new(false),
            is_over: Cell::new(false),
            stop: watch.stop.clone(),
            failure: TaskCell::default(),
            verifier,
            loaded: Cell::new(0),
            load_end: Cell::new(0),
            left: Cell::new(0),
            until_full: config.workload.until_full,
            full: Cell::new(false),
            done: Cell::new(0),
            seen: TaskCell::default(),
            running: Cell::new(0),
            news: WaitQueue::new(&self.sim),
        })
    }

    /// Loads the pairs that the workload begins with.
    fn load(
        &self,
        stream: &Rc<Stream>,
        config: &Config,
        clients: &Clients,
        tell: &dyn Fn(u64),
    ) -> anyhow::Result<Option<Loading>> {
        let stores = stream.workload.borrow().preload();
        if stores == 0 {
            return Ok(None);
        }
        let began = self.snapshot(&stream.drive);
        stream.load_end.set(stores);
        if config.workload.timed_load {
            self.run_tasks(stream, config, clients, tell);
        } else {
            stream.load_at_once(tell);
        }
        tell(stream.done.get());
        let seen = stream.seen.take();
        if let Some(failure) = stream.drive.write_failure() {
            return Err(failure.into());
        }
        if let Some(error) = seen.first_error {
            let (name, done) = (&config.workload.name, stream.done.get());
            anyhow::bail!("workload.name = {name:?}: loading, {done} of {stores} stores done: {error}");
        }
        let done = stream.done.get();
        anyhow::ensure!(done == stores, "stopped while loading, with {done} of {stores} stores done");
        // What the load left in buffers is not the run's to program.
        clients.sync()?;
        stream.drive.drain();
        let ended = self.snapshot(&stream.drive);
        Ok(Some(Loading { began, ended, stores, stored_bytes: seen.stored_bytes }))
    }

    fn snapshot(&self, drive: &Drive) -> Snapshot {
        let stored = self.kv.get().map_or_else(Vec::new, |kv| kv.counters());
        Snapshot { stored, ..Snapshot::of(&self.sim, &self.link, drive, &self.cores) }
    }

    /// Does all operations, with as many tasks as may be under way at once.
    fn run_tasks(&self, stream: &Rc<Stream>, config: &Config, clients: &Clients, tell: &dyn Fn(u64)) {
        match clients {
            Clients::Drive(drivers) => {
                let tasks = setup::driver_of_each_task(config);
                let core = &self.cores[0];
                stream.run_tasks(tasks.map(|task| (drivers[task].clone(), core.clone())).collect(), tell);
            }
            Clients::Store(threads) => {
                stream.run_tasks(threads.iter().cloned().zip(self.cores.iter().cloned()).collect(), tell);
            }
        }
    }
}

/// A workload behind another on the same drive: the pairs that were inserted are there, and no version of a
/// value occurs twice.
fn follow(params: &mut WorkloadParams, before: &WorkloadParams) {
    params.num = before.num;
    params.overwrites = before.num + before.overwrites + before.ops;
}

impl Snapshot {
    /// Link and drive as they are now, and the host's cores if they are modelled ones.
    pub(crate) fn of(sim: &Sim, link: &Link, drive: &Drive, cores: &[Rc<Resource>]) -> Snapshot {
        let mut resources: Vec<_> =
            cores.iter().map(|core| (core.name().to_owned(), core.statistics())).collect();
        resources.extend(link.resources().map(|r| (r.name().to_owned(), r.statistics())));
        resources.extend(drive.resources());
        Snapshot {
            at: sim.now(),
            payload: link.meter().payload(),
            wire: link.meter().wire(),
            counters: drive.counters(),
            details: drive.engine_details(),
            stored: Vec::new(),
            dram: drive.dram(),
            resources,
            recovery_ns: drive.recovery_ns(),
            faults: drive.faults().counts(),
            flash_health: drive.flash_health(),
        }
    }
}

impl Stream {
    /// The next operation: a store of the next pair while there is one to be loaded. Nothing more is loaded
    /// behind an error.
    fn next(&self) -> Option<(Op, Option<Ns>)> {
        if self.stop.load(Ordering::Relaxed) {
            return None;
        }
        if self.seen.borrow().errors == 0
            && let Some((key, value)) = self.next_to_load()
        {
            return Some((Op::Store { key, value }, None));
        }
        if self.full.get() || self.sim.now() >= self.until.get() {
            return None;
        }
        let mut drawn = self.drawn.borrow_mut();
        if drawn.is_empty() {
            self.draw(&mut drawn);
        }
        // Who is late does not wait; who is too late does not begin.
        let (_, at) = drawn.front()?;
        if at.is_some_and(|at| at >= self.until.get()) {
            return None;
        }
        drawn.pop_front()
    }

    /// Draws the next operations and tells the drive of them. One at a time where the run may end before them:
    /// they have not been drawn then.
    fn draw(&self, drawn: &mut VecDeque<(Op, Option<Ns>)>) {
        let may_end = self.until_full || self.until.get() < Ns::MAX;
        let count = self.left.get().min(if may_end { 1 } else { KNOWN_AHEAD as u64 });
        self.left.set(self.left.get() - count);
        let (mut workload, mut arrivals) = (self.workload.borrow_mut(), self.arrivals.borrow_mut());
        for _ in 0..count {
            match workload.draw() {
                Ok(Some((op, recorded))) => {
                    let at = match &mut *arrivals {
                        Some(arrivals) => Some(arrivals.next()),
                        None => recorded.filter(|_| self.at_recorded_times.get()),
                    };
                    let at = at.map(|at| self.start.get().saturating_add(at));
                    drawn.push_back((op, at));
                }
                Ok(None) => {
                    self.left.set(0);
                    break;
                }
                Err(problem) => {
                    self.left.set(0);
                    self.failure.borrow_mut().get_or_insert(problem);
                    break;
                }
            }
        }
        self.drive.expect(&mut drawn.iter().map(|(op, _)| op.key()));
    }

    /// From now on operations are measured.
    fn begin(&self, config: &Config, ops: u64, now: Ns) {
        let params = &config.workload;
        self.left.set(ops);
        self.start.set(now);
        self.at_recorded_times.set(params.arrivals == "trace");
        *self.arrivals.borrow_mut() = Arrivals::of(params, config.run.seed);
        if params.duration_ns > 0 {
            self.until.set(now.saturating_add(params.duration_ns));
        }
    }

    /// What there is to say of how operations began and why they ended, `done` of `ops` being done.
    fn notes_at_end(&self, params: &WorkloadParams, ops: u64, done: u64) -> Vec<String> {
        let mut notes = Vec::new();
        if params.rate_per_s > 0 {
            let how = if params.arrivals == "poisson" { "at random" } else { "equally spaced" };
            notes.push(format!(
                "operations began at {}/s, {how}; latency counts from when one was to begin",
                grouped(params.rate_per_s)
            ));
        }
        let (is_stopped, is_timed) = (self.stop.load(Ordering::Relaxed), params.duration_ns > 0);
        let is_out_of_time = self.sim.now() >= self.until.get() || self.left.get() > 0;
        notes.extend(note_of_end(is_stopped, is_timed && !self.full.get(), is_out_of_time, done, ops));
        notes
    }

    fn next_to_load(&self) -> Option<(Key, ValueSpec)> {
        let index = self.loaded.get();
        if index == self.load_end.get() {
            return None;
        }
        self.loaded.set(index + 1);
        Some(self.workload.borrow().preload_pair(index))
    }

    /// One more is done; `true` when that is worth a word.
    fn note_done(&self) -> bool {
        let done = self.done.get() + 1;
        self.done.set(done);
        done.is_multiple_of(PROGRESS_STEP)
    }

    /// Puts the pairs to be loaded into the drive, in no time.
    fn load_at_once(&self, tell: &dyn Fn(u64)) {
        let mut pairs = std::iter::from_fn(|| {
            let (key, value) = self.next_to_load()?;
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            self.seen.borrow_mut().stored_bytes += u64::from(value.bytes);
            if let Some(verifier) = &self.verifier {
                verifier.borrow_mut().settle(key, Some(value));
            }
            if self.note_done() {
                tell(self.done.get());
            }
            Some((key, content(&key, &value)))
        });
        if let Err((key, status)) = self.drive.load(&mut pairs) {
            self.seen.borrow_mut().note_error(STORE, &key, &status);
        }
    }

    /// Does all operations: one task in the place of its caller, several as tasks of their own.
    /// Each task has a client and a core for what it does between two operations.
    fn run_tasks<C: 'static>(self: &Rc<Self>, tasks: Vec<(Rc<C>, Rc<Resource>)>, tell: &dyn Fn(u64))
    where
        for<'c> &'c C: Client,
    {
        self.is_over.set(false);
        if let [(client, core)] = &tasks[..] {
            self.application(&**client, core, tell);
            return self.is_over.set(true);
        }
        for (client, core) in tasks {
            let stream = self.clone();
            self.running.set(self.running.get() + 1);
            self.sim.spawn(move || {
                stream.application(&*client, &core, &|_| stream.news.wake_all());
                stream.running.set(stream.running.get() - 1);
                stream.news.wake_all();
            });
        }
        while self.running.get() > 0 {
            self.news.wait();
            tell(self.done.get());
        }
        self.is_over.set(true);
    }

    fn application<C>(&self, client: &C, core: &Resource, tell: &dyn Fn(u64))
    where
        for<'c> &'c C: Client,
    {
        let mut buffer = Region::new();
        while let Some((op, mut at)) = self.next() {
            if let Some(at) = at {
                self.sim.sleep_until(at);
            }
            for step in op.steps() {
                let began = at.take().unwrap_or_else(|| self.sim.now());
                self.perform(client, &step, began, &mut buffer);
            }
            if self.note_done() {
                tell(self.done.get());
            }
            if self.think_ns > 0 {
                core.run(self.think_ns);
            }
        }
    }

    /// Does one step, which was to begin at `began`.
    fn perform<C>(&self, mut client: &C, op: &Op, began: Ns, buffer: &mut Region)
    where
        for<'c> &'c C: Client,
    {
        let seen = &self.seen;
        let writing = self.begin_write(op);
        let reading = self.begin_read(op);
        let (kind, result) = match *op {
            Op::Store { key, value } => {
                let result = in_model(client.store(key, content(&key, &value)));
                if result.is_ok() {
                    seen.borrow_mut().stored_bytes += u64::from(value.bytes);
                }
                (STORE, result)
            }
            Op::Retrieve { key } => {
                let result = in_model(client.retrieve(key, buffer));
                if let Ok(bytes) = result {
                    seen.borrow_mut().read_bytes[RETRIEVE] += u64::from(bytes);
                }
                self.check(reading, &key, result, buffer);
                (RETRIEVE, result.map(|_| ()))
            }
            Op::Delete { key } => (DELETE, in_model(client.delete(key))),
            Op::Exist { key } => (EXIST, in_model(client.exist(key)).map(|_| ())),
            Op::List { key, host_buffer_bytes } => {
                (LIST, in_model(client.list(Some(key), host_buffer_bytes)).map(|_| ()))
            }
            Op::Seek { key, nexts } => {
                let clock = &|| self.sim.now();
                let scanned = Scan { from: key, nexts, began, clock, seen }.run(
                    client,
                    buffer,
                    &mut |pair, content| self.check_pair(reading, pair, content),
                );
                scanned.expect(ALWAYS_A_WAY);
                return self.end_read(reading);
            }
            Op::Modify { .. } => unreachable!("it has steps"),
        };
        self.end_write(op, writing, result);
        self.end_read(reading);
        if self.until_full
            && result == Err(Status::CAPACITY_EXCEEDED)
            && self.load_end.get() <= self.loaded.get()
        {
            self.full.set(true);
            return;
        }
        seen.borrow_mut().note(kind, &op.key(), self.sim.now() - began, result);
    }
}

const ALWAYS_A_WAY: &str = "there is always a way to a modelled drive";

/// What a modelled drive, or a store over one, answered.
fn in_model<T>(result: Result<T, Error>) -> Result<T, Status> {
    answered(result).expect(ALWAYS_A_WAY)
}

/// What there is to say where a run of so many operations did not end behind the last of them, or where it did
/// although its time was not over.
pub(crate) fn note_of_end(
    is_stopped: bool,
    is_timed: bool,
    is_out_of_time: bool,
    done: u64,
    ops: u64,
) -> Option<String> {
    let of_all = format!("{} of {} operations", grouped(done), grouped(ops));
    match (is_stopped, is_timed, is_out_of_time) {
        (true, ..) => Some(format!("stopped from outside with {of_all} done: this is the report so far")),
        (false, true, true) => Some(format!("ended at workload.duration_ns with {of_all} done")),
        (false, true, false) => {
            Some("ended before workload.duration_ns: workload.ops has no more".to_owned())
        }
        (false, false, _) => None,
    }
}

/// Values that are read back, held against what was stored, where that is asked for.
impl Stream {
    fn begin_write(&self, op: &Op) -> Option<Writing> {
        let verifier = self.verifier.as_ref()?;
        match *op {
            Op::Store { key, value } => Some(verifier.borrow_mut().begin_write(key, Some(value))),
            Op::Delete { key } => Some(verifier.borrow_mut().begin_write(key, None)),
            _ => None,
        }
    }

    fn end_write(&self, op: &Op, writing: Option<Writing>, result: Result<(), Status>) {
        if let Some((verifier, writing)) = self.verifier.as_ref().zip(writing) {
            verifier.borrow_mut().end_write(&op.key(), writing, result);
        }
    }

    fn begin_read(&self, op: &Op) -> Option<Reading> {
        let is_read = matches!(op, Op::Retrieve { .. } | Op::Seek { .. });
        self.verifier.as_ref().filter(|_| is_read).map(|verifier| verifier.borrow_mut().begin_read())
    }

    fn end_read(&self, reading: Option<Reading>) {
        if let Some((verifier, reading)) = self.verifier.as_ref().zip(reading) {
            verifier.borrow_mut().end_read(reading);
        }
    }

    fn check(&self, reading: Option<Reading>, key: &Key, found: Result<u32, Status>, buffer: &Region) {
        let Some((verifier, reading)) = self.verifier.as_ref().zip(reading) else { return };
        let mut verifier = verifier.borrow_mut();
        match found {
            Ok(bytes) => verifier.check(reading, key, Some(bytes), buffer),
            Err(Status::KEY_NOT_FOUND) => verifier.check(reading, key, None, buffer),
            Err(_) => verifier.unread(),
        }
    }

    fn check_pair(&self, reading: Option<Reading>, pair: Pair, buffer: &Region) {
        self.check(reading, &pair.key, Ok(pair.value_bytes), buffer);
    }
}

/// The content that generated workloads give to a version of a key.
pub(crate) fn content(key: &Key, value: &ValueSpec) -> Piece<'static> {
    Piece::Pattern(Pattern::of_value(key, value.version, value.bytes))
}
