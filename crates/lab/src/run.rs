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
//! `host.queues` queue pairs; each does its next operation when its last one has completed and the host's own
//! work between two is done. The same tasks load the pairs that a workload begins with, and overwrite them as
//! often as it asks, or they are put into the drive in no time (`workload.timed_load`); what that took is in
//! the report, too.

mod outcome;
mod seen;

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_device::{Counters, Drive};
use kvdrive_engines::KNOWN_AHEAD;
use kvdrive_flash::FlashHealth;
use kvdrive_flash::faults::{FaultCount, Rule};
use kvdrive_host::modelled::{Driver, Host};
use kvdrive_link::{Link, LocalMemory, Traffic};
use kvdrive_sim::wall::Stopwatch;
use kvdrive_sim::{Ns, Resource, Sim, TaskCell, WaitQueue};
use kvdrive_spec::{Key, Status};

use crate::config::{Config, Document};
use crate::report::Report;
use crate::setup;
use crate::workload::{self, Op, ValueSpec, Workload, WorkloadParams};
pub(crate) use seen::{DELETE, EXIST, KINDS, LIST, NEXT, RETRIEVE, SEEK, STORE, Seen};

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
    let (mut reports, _) = run_all(std::slice::from_ref(document), rules, progress)?;
    Ok(reports.pop().expect("a report for the run"))
}

/// As [`run`], and says how many events of the simulation it took, from power-on to the end.
pub fn run_counted(document: &Document, progress: Progress<'_>) -> anyhow::Result<(Report, u64)> {
    let (mut reports, events) = run_all(std::slice::from_ref(document), &[], progress)?;
    Ok((reports.pop().expect("a report for the run"), events))
}

/// Runs what `documents` describe, behind each other on one drive. It is loaded as the first of them says.
///
/// # Errors
/// Two of them describe different drives or hosts, or a run fails.
pub fn run_session(documents: &[Document], progress: Progress<'_>) -> anyhow::Result<Vec<Report>> {
    run_all(documents, &[], progress).map(|(reports, _)| reports)
}

fn run_all(
    documents: &[Document],
    rules: &[Rule],
    progress: Progress<'_>,
) -> anyhow::Result<(Vec<Report>, u64)> {
    let configs = documents.iter().map(Document::config).collect::<Result<Vec<_>, _>>()?;
    for config in &configs[1..] {
        let same = Config { workload: configs[0].workload.clone(), ..config.clone() } == configs[0];
        anyhow::ensure!(same, "{}: runs of one session share all but their workload", config.workload.name);
    }
    let stopwatch = Stopwatch::start();
    let bench = Bench::new(&configs[0])?;
    let outcomes = bench.sim.block_on(|| bench.measure(&configs, rules, progress))?;
    let mut reports = Vec::with_capacity(outcomes.len());
    for ((outcome, document), config) in outcomes.into_iter().zip(documents).zip(&configs) {
        reports.push(outcome.into_report(document, config)?);
    }
    // Of the whole session: who runs several things at once cannot say which took the machine's time.
    reports.iter_mut().for_each(|report| report.time.wall_s = stopwatch.seconds() / documents.len() as f64);
    let events = bench.sim.events();
    bench.sim.clear();
    Ok((reports, events))
}

/// Operations of a run, those that load included.
///
/// # Errors
/// The workload cannot be built.
pub fn operations(config: &Config) -> anyhow::Result<u64> {
    let workload = workload::build(&config.workload, config.run.seed).map_err(anyhow::Error::msg)?;
    Ok(workload.preload() + config.workload.ops)
}

/// What all tasks of a run share: the operations still to do, and what came of those done.
struct Stream {
    sim: Sim,
    core: Rc<Resource>,
    think_ns: Ns,
    drive: Rc<Drive>,
    workload: TaskCell<Box<dyn Workload>>,
    /// Operations that were drawn.
    drawn: TaskCell<VecDeque<Op>>,
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
    core: Rc<Resource>,
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
}

/// What it took to load a drive and to overwrite its pairs.
#[derive(Clone)]
pub(crate) struct Loading {
    pub began: Snapshot,
    pub ended: Snapshot,
    pub stores: u64,
    pub stored_bytes: u64,
}

/// Everything a report takes the difference of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub at: Ns,
    pub payload: Traffic,
    pub wire: Traffic,
    pub counters: Counters,
    pub details: Vec<(&'static str, u64)>,
    pub dram: Vec<(&'static str, u64)>,
    pub resources: Vec<(String, kvdrive_sim::ResourceStatistics)>,
    pub recovery_ns: Ns,
    pub faults: Vec<FaultCount>,
    pub flash_health: FlashHealth,
}

impl Bench {
    fn new(config: &Config) -> anyhow::Result<Bench> {
        let sim = Sim::new();
        let memory = Rc::new(LocalMemory::new());
        let link = Link::new(&sim, setup::link(config), memory.clone());
        let core = Rc::new(Resource::new(&sim, "host.core", config.host.cores));
        Ok(Bench { sim, link, memory, core })
    }

    fn measure(
        &self,
        configs: &[Config],
        rules: &[Rule],
        progress: Progress<'_>,
    ) -> anyhow::Result<Vec<Outcome>> {
        let config = &configs[0];
        let drive = Rc::new(Drive::power_on(&self.sim, &self.link, &setup::drive(config), None)?);
        let host = Host::connect(
            self.link.clone(),
            self.memory.clone(),
            self.core.clone(),
            setup::host_costs(config),
        )?;
        let drivers: Vec<Rc<Driver>> = setup::drivers(config, &host)?.into_iter().map(Rc::new).collect();
        let total = operations(config)? + configs[1..].iter().map(|config| config.workload.ops).sum::<u64>();
        let (mut outcomes, mut done, mut loading) = (Vec::new(), 0, None);
        let mut before: Option<WorkloadParams> = None;
        for (index, config) in configs.iter().enumerate() {
            let mut params = config.workload.clone();
            if let Some(before) = &before {
                follow(&mut params, before);
            }
            let stream = self.stream(config, &drive, &params, config.run.seed + index as u64)?;
            let mut notes = stream.workload.borrow().notes().to_vec();
            let tell = |now| progress(done + now, total);
            match &before {
                None => {
                    loading = self.load(&stream, config, &drivers, &tell)?;
                    drive.faults().set(rules, config.run.seed);
                }
                Some(before) => {
                    notes.push(format!("behind {} {} on the same drive", before.name, before.distribution));
                }
            }
            let began = self.snapshot(&drive);
            stream.left.set(config.workload.ops);
            stream.run_tasks(config, &drivers, &tell);
            let ended = self.snapshot(&drive);
            done += stream.done.get();
            drive.drain();
            // Flash without a spare block is what a run may be about: its report says so.
            if let Some(failure) = drive.write_failure().filter(|failure| failure.path.is_some()) {
                return Err(failure.into());
            }
            params.num += stream.workload.borrow().inserted();
            before = Some(params);
            let (seen, drained) = (stream.seen.take(), self.snapshot(&drive));
            outcomes.push(Outcome { seen, began, ended, drained, notes, loading: loading.clone() });
        }
        progress(total, total);
        Ok(outcomes)
    }

    fn stream(
        &self,
        config: &Config,
        drive: &Rc<Drive>,
        params: &WorkloadParams,
        seed: u64,
    ) -> anyhow::Result<Rc<Stream>> {
        let source = workload::build(params, seed).map_err(anyhow::Error::msg)?;
        Ok(Rc::new(Stream {
            sim: self.sim.clone(),
            core: self.core.clone(),
            think_ns: config.host.think_ns,
            drive: drive.clone(),
            workload: TaskCell::new(source),
            drawn: TaskCell::default(),
            loaded: Cell::new(0),
            load_end: Cell::new(0),
            left: Cell::new(0),
            until_full: config.workload.until_full,
            full: Cell::new(false),
            done: Cell::new(0),
            seen: TaskCell::default(),
            running: Cell::new(0),
            news: WaitQueue::new(&self.sim),
        }))
    }

    /// Loads the pairs that the workload begins with.
    fn load(
        &self,
        stream: &Rc<Stream>,
        config: &Config,
        drivers: &[Rc<Driver>],
        tell: &dyn Fn(u64),
    ) -> anyhow::Result<Option<Loading>> {
        let stores = stream.workload.borrow().preload();
        if stores == 0 {
            return Ok(None);
        }
        let began = self.snapshot(&stream.drive);
        stream.load_end.set(stores);
        if config.workload.timed_load {
            stream.run_tasks(config, drivers, tell);
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
        // What the load left in buffers is not the run's to program.
        stream.drive.drain();
        let ended = self.snapshot(&stream.drive);
        Ok(Some(Loading { began, ended, stores, stored_bytes: seen.stored_bytes }))
    }

    fn snapshot(&self, drive: &Drive) -> Snapshot {
        Snapshot::of(&self.sim, &self.link, drive, Some(&self.core))
    }
}

/// A workload behind another on the same drive: the pairs that were inserted are there, and no version of a
/// value occurs twice.
fn follow(params: &mut WorkloadParams, before: &WorkloadParams) {
    params.num = before.num;
    params.overwrites = before.num + before.overwrites + before.ops;
}

impl Snapshot {
    /// Link and drive as they are now, and the host's core if it is a modelled one.
    pub(crate) fn of(sim: &Sim, link: &Link, drive: &Drive, core: Option<&Resource>) -> Snapshot {
        let mut resources: Vec<_> =
            core.iter().map(|core| (core.name().to_owned(), core.statistics())).collect();
        resources.extend(link.resources().map(|r| (r.name().to_owned(), r.statistics())));
        resources.extend(drive.resources());
        Snapshot {
            at: sim.now(),
            payload: link.meter().payload(),
            wire: link.meter().wire(),
            counters: drive.counters(),
            details: drive.engine_details(),
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
    fn next(&self) -> Option<Op> {
        if self.seen.borrow().errors == 0
            && let Some((key, value)) = self.next_to_load()
        {
            return Some(Op::Store { key, value });
        }
        if self.full.get() {
            return None;
        }
        let mut drawn = self.drawn.borrow_mut();
        if drawn.is_empty() {
            self.draw(&mut drawn);
        }
        drawn.pop_front()
    }

    /// Draws the next operations and tells the drive of them. One at a time where the drive may be full
    /// before them: they have not been drawn then.
    fn draw(&self, drawn: &mut VecDeque<Op>) {
        let count = self.left.get().min(if self.until_full { 1 } else { KNOWN_AHEAD as u64 });
        self.left.set(self.left.get() - count);
        let mut workload = self.workload.borrow_mut();
        drawn.extend((0..count).map(|_| workload.next()));
        self.drive.expect(&mut drawn.iter().map(Op::key));
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
            self.seen.borrow_mut().stored_bytes += u64::from(value.bytes);
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
    fn run_tasks(self: &Rc<Self>, config: &Config, drivers: &[Rc<Driver>], tell: &dyn Fn(u64)) {
        if config.host.depth == 1 {
            return self.application(&drivers[0], tell);
        }
        for driver in setup::driver_of_each_task(config) {
            let (stream, driver) = (self.clone(), drivers[driver].clone());
            self.running.set(self.running.get() + 1);
            self.sim.spawn(move || {
                stream.application(&driver, &|_| stream.news.wake_all());
                stream.running.set(stream.running.get() - 1);
                stream.news.wake_all();
            });
        }
        while self.running.get() > 0 {
            self.news.wait();
            tell(self.done.get());
        }
    }

    fn application(&self, driver: &Driver, tell: &dyn Fn(u64)) {
        let mut buffer = Region::new();
        while let Some(op) = self.next() {
            for step in op.steps() {
                self.perform(driver, &step, &mut buffer);
            }
            if self.note_done() {
                tell(self.done.get());
            }
            if self.think_ns > 0 {
                self.core.run(self.think_ns);
            }
        }
    }

    fn perform(&self, driver: &Driver, op: &Op, buffer: &mut Region) {
        let seen = &self.seen;
        let began = self.sim.now();
        let (kind, result) = match *op {
            Op::Store { key, value } => {
                let result = driver.store(key, content(&key, &value));
                if result.is_ok() {
                    seen.borrow_mut().stored_bytes += u64::from(value.bytes);
                }
                (STORE, result)
            }
            Op::Retrieve { key } => {
                let result = driver.retrieve(key, buffer);
                if let Ok(bytes) = result {
                    seen.borrow_mut().read_bytes[RETRIEVE] += u64::from(bytes);
                }
                (RETRIEVE, result.map(|_| ()))
            }
            Op::Delete { key } => (DELETE, driver.delete(key)),
            Op::Exist { key } => (EXIST, driver.exist(key).map(|_| ())),
            Op::List { key, host_buffer_bytes } => {
                (LIST, driver.list(Some(key), host_buffer_bytes).map(|_| ()))
            }
            Op::Seek { key, nexts } => return self.scan(driver, key, nexts, buffer),
            Op::Modify { .. } => unreachable!("it has steps"),
        };
        if self.until_full
            && result == Err(Status::CAPACITY_EXCEEDED)
            && self.load_end.get() <= self.loaded.get()
        {
            self.full.set(true);
            return;
        }
        seen.borrow_mut().note(kind, &op.key(), self.sim.now() - began, result);
    }

    fn scan(&self, driver: &Driver, from: Key, nexts: u32, buffer: &mut Region) {
        let seen = &self.seen;
        let began = self.sim.now();
        let opened = driver.seek(Some(from), buffer);
        seen.borrow_mut().note(SEEK, &from, self.sim.now() - began, opened.map(|_| ()));
        let Ok((iterator, mut pair)) = opened else { return };
        seen.borrow_mut().note_pair(SEEK, pair);
        let mut refused = false;
        for _ in 0..nexts {
            if pair.is_none() {
                break;
            }
            let began = self.sim.now();
            let next = driver.next(iterator, buffer);
            seen.borrow_mut().note(NEXT, &from, self.sim.now() - began, next.map(|_| ()));
            let Ok(next) = next else {
                refused = true;
                break;
            };
            pair = next;
            seen.borrow_mut().note_pair(NEXT, pair);
        }
        // Whatever became of it: the drive has few iterators. Of one scan, one error is enough.
        let closed = driver.close(iterator);
        if let Err(status) = closed
            && !refused
        {
            seen.borrow_mut().note_error(SEEK, &from, &status);
        }
    }
}

/// The content that generated workloads give to a version of a key.
pub(crate) fn content(key: &Key, value: &ValueSpec) -> Piece<'static> {
    Piece::Pattern(Pattern::of_value(key, value.version, value.bytes))
}
