//! One run, or several behind each other: a drive, a host and workloads in model time, and the reports of
//! what happened.
//!
//! ```text
//!   power on ─► connect ─► load ─► drain ─► ┌ measured: tasks take operations, each waits for its own ┐ ─► drain ─► report
//!                                            └──────────────── a session: once for each of its runs ◄──────────────────┘
//! ```
//!
//! Counters of the report cover the measured operations and the drain behind them; latency, throughput and
//! how busy resources were cover the operations alone. Whom tasks ask, and how many there are, says the host
//! ([`seats`]); each does its next operation when its last one has completed and the host's own work between
//! two is done. The same tasks load the pairs that a workload begins with, and overwrite them as often as it
//! asks, or they are put into the drive in no time (`workload.timed_load`); what that took is in the report,
//! too.

mod arrivals;
mod histogram_log;
mod intervals;
mod outcome;
mod scan;
mod seats;
mod seen;
mod series;
mod stream;
mod units;
pub(crate) mod verify;
mod watch;

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_content::{Pattern, Piece};
use kvdrive_device::{Counters, Drive};
use kvdrive_flash::FlashHealth;
use kvdrive_flash::faults::{FaultCount, Rule};
use kvdrive_link::{Link, LocalMemory, Traffic};
use kvdrive_sim::wall::Stopwatch;
use kvdrive_sim::{Histogram, Ns, Resource, Sim, TaskCell, WaitQueue};
use kvdrive_spec::Key;

use crate::config::{Config, Document};
use crate::report::{self, Report};
use crate::workload::{self, ValueSpec, Workload, WorkloadParams};
pub use histogram_log::HistogramLog;
pub use intervals::Interval;
use intervals::Slices;
pub(crate) use scan::{Scan, answered};
use seats::HostSide;
pub(crate) use seats::saker_counts;
pub(crate) use seen::{DELETE, EXIST, KINDS, LIST, RETRIEVE, STORE, Seen};
use series::Sampler;
use stream::Stream;
pub(crate) use stream::note_of_end;
use units::RowLocks;
use verify::{ReadBack, Verifier};
pub use watch::{Going, OnInterval, Watch};

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

struct Bench {
    sim: Sim,
    link: Rc<Link>,
    memory: Rc<LocalMemory>,
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
    /// What was done over time, if that is asked for.
    pub series: Option<report::Series>,
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
    /// What SAKER counts.
    pub saker: Vec<(String, u64)>,
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
        Ok(Bench { sim, link, memory })
    }

    fn measure(&self, configs: &[Config], rules: &[Rule], watch: &Watch<'_>) -> anyhow::Result<Vec<Outcome>> {
        let (config, progress) = (&configs[0], watch.progress);
        let has_past = config.media.file().is_some_and(|path| std::fs::exists(path).unwrap_or(true));
        let verifier = Rc::new(TaskCell::new(Verifier::new(has_past)));
        let drive = Rc::new(Drive::power_on(&self.sim, &self.link, &config.drive(), None)?);
        let host = Rc::new(HostSide::connect(config, &self.link, &self.memory)?);
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
            let stream = self.stream(config, &drive, &host, source, checks, watch);
            let mut notes = Vec::new();
            let tell = |now| match stream.workload.borrow().read_share().filter(|share| *share > 0.0) {
                Some(share) => progress(done + now, total.min(done + (now as f64 / share) as u64)),
                None => progress(done + now, total),
            };
            match &before {
                None => {
                    loading = self.load(&stream, config, &host, &tell)?;
                    drive.faults().set(rules, config.run.seed);
                }
                Some(before) => {
                    notes.push(format!("behind {} {} on the same drive", before.name, before.distribution));
                }
            }
            let began = self.snapshot(&drive, &host);
            stream.begin(config, ops, began.at);
            let slices = self.cut_into_slices(&stream, &host, watch, &began);
            let sampler = self.sample(&stream, config.run.interval_ns, began.at);
            let loaded = stream.done.get();
            let tell = |now| {
                tell(now);
                if let Some(going) = watch.going {
                    going(self.going(&drive, &began, now - loaded));
                }
            };
            stream.run_tasks(&host.seats, &tell);
            let ended = self.snapshot(&drive, &host);
            if let Some(slices) = slices {
                slices.borrow_mut().end(ended.clone(), &mut stream.seen.borrow_mut());
            }
            let series = sampler.map(|sampler| {
                let mut sampler = sampler.borrow_mut();
                sampler.end(ended.at, &stream.seen.borrow());
                sampler.take()
            });
            done += stream.done.get();
            if let Some(failure) = stream.failure.take() {
                anyhow::bail!(failure);
            }
            // A trace has some to add as it is read.
            notes.splice(0..0, stream.workload.borrow().notes().iter().cloned());
            let (run_ops, span_ns) = (stream.done.get() - loaded, ended.at - began.at);
            notes.extend(stream.notes_at_end(&config.workload, ops, run_ops, span_ns));
            host.sync()?;
            drive.drain();
            // Flash without a spare block is what a run may be about: its report says so.
            if let Some(failure) = drive.write_failure().filter(|failure| failure.path.is_some()) {
                return Err(failure.into());
            }
            params.num += stream.workload.borrow().inserted();
            before = Some(params);
            let (seen, drained) = (stream.seen.take(), self.snapshot(&drive, &host));
            notes.extend(stream.check_units(&host.seats[0], seen.errors)?);
            let verified = stream.verifier.as_ref().map(|verifier| verifier.borrow_mut().take());
            let loading = loading.clone();
            outcomes.push(Outcome { seen, began, ended, drained, notes, loading, series, verified });
        }
        progress(total, total);
        Ok(outcomes)
    }

    /// How the operations since `began` go, `ops` of which have been answered.
    fn going(&self, drive: &Drive, began: &Snapshot, ops: u64) -> Going {
        let counters = drive.counters().since(&began.counters);
        Going {
            ops,
            model_ns: self.sim.now() - began.at,
            programs: counters.programs().map(|(_, pages)| pages).sum(),
            payload_bytes: self.link.meter().payload().since(&began.payload).total(),
        }
    }

    /// Has the run that begins told in intervals, if anybody wants to hear of them. Its last one ends with it.
    fn cut_into_slices(
        &self,
        stream: &Rc<Stream>,
        host: &Rc<HostSide>,
        watch: &Watch<'_>,
        began: &Snapshot,
    ) -> Option<Rc<TaskCell<Slices>>> {
        let (length_ns, tell) = watch.intervals.clone()?;
        stream.seen.borrow_mut().recent = Some(Box::default());
        let slices = Rc::new(TaskCell::new(Slices::new(length_ns, tell, began.clone())));
        let (sim, link, host) = (self.sim.clone(), self.link.clone(), host.clone());
        let (stream, cut) = (stream.clone(), slices.clone());
        self.sim.spawn(move || {
            loop {
                let end = cut.borrow().next_end();
                sim.sleep_until(end);
                if stream.is_over.get() {
                    return;
                }
                let now = Snapshot::of(&sim, &link, &stream.drive, &host.cores);
                cut.borrow_mut().end(now, &mut stream.seen.borrow_mut());
            }
        });
        Some(slices)
    }

    /// Has the run that begins counted in intervals of so many ns; 0: nobody wants that. Its last one ends with it.
    fn sample(&self, stream: &Rc<Stream>, interval_ns: Ns, began: Ns) -> Option<Rc<TaskCell<Sampler>>> {
        let has_units = stream.units.is_some();
        let sampler = (interval_ns > 0).then(|| Sampler::new(interval_ns, began, has_units))?;
        let sampler = Rc::new(TaskCell::new(sampler));
        let (sim, stream, ours) = (self.sim.clone(), stream.clone(), sampler.clone());
        self.sim.spawn(move || {
            loop {
                let end = ours.borrow().next_end();
                sim.sleep_until(end);
                if stream.is_over.get() {
                    return;
                }
                ours.borrow_mut().end(sim.now(), &stream.seen.borrow());
            }
        });
        Some(sampler)
    }

    fn stream(
        &self,
        config: &Config,
        drive: &Rc<Drive>,
        host: &HostSide,
        source: Box<dyn Workload>,
        verifier: Option<Rc<TaskCell<Verifier>>>,
        watch: &Watch<'_>,
    ) -> Rc<Stream> {
        let units = source.units();
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
            sync_every: config.workload.sync_every,
            sees_all: !config.saker.enabled || host.seats.len() == 1,
            loaded: Cell::new(0),
            load_end: Cell::new(0),
            left: Cell::new(0),
            until_full: config.workload.until_full,
            full: Cell::new(false),
            done: Cell::new(0),
            seen: TaskCell::default(),
            units,
            units_begun: Cell::new(0),
            rows: RowLocks::new(&self.sim),
            running: Cell::new(0),
            news: WaitQueue::new(&self.sim),
        })
    }

    /// Loads the pairs that the workload begins with.
    fn load(
        &self,
        stream: &Rc<Stream>,
        config: &Config,
        host: &HostSide,
        tell: &dyn Fn(u64),
    ) -> anyhow::Result<Option<Loading>> {
        let stores = stream.workload.borrow().preload();
        if stores == 0 {
            return Ok(None);
        }
        let began = self.snapshot(&stream.drive, host);
        stream.load_end.set(stores);
        if config.workload.timed_load {
            stream.run_tasks(&host.seats, tell);
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
        host.sync()?;
        stream.drive.drain();
        let ended = self.snapshot(&stream.drive, host);
        Ok(Some(Loading { began, ended, stores, stored_bytes: seen.stored_bytes }))
    }

    fn snapshot(&self, drive: &Drive, host: &HostSide) -> Snapshot {
        Snapshot {
            stored: host.store_counts(),
            saker: host.saker_counts(),
            ..Snapshot::of(&self.sim, &self.link, drive, &host.cores)
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
            saker: Vec::new(),
            dram: drive.dram(),
            resources,
            recovery_ns: drive.recovery_ns(),
            faults: drive.faults().counts(),
            flash_health: drive.flash_health(),
        }
    }
}

/// The content that generated workloads give to a version of a key.
pub(crate) fn content(key: &Key, value: &ValueSpec) -> Piece<'static> {
    Piece::Pattern(Pattern::of_value(key, value.version, value.bytes))
}
