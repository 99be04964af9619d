//! One run: a drive, a host and a workload in model time, and the report of what happened.
//!
//! ```text
//!   power on ─► connect ─► preload ─► ┌ measured: tasks take operations, each waits for its own ┐ ─► drain ─► report
//! ```
//!
//! Counters of the report cover the measured operations and the drain behind them; latency and throughput cover the
//! operations alone. As many tasks run as `host.depth` says, spread over `host.queues` queue pairs; each does its
//! next operation when its last one has completed and the host's own work between two is done.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use kvdrive_device::{Counters, Drive};
use kvdrive_host::modelled::{Driver, Host};
use kvdrive_link::{Link, LocalMemory, Pattern, Piece, Region, Traffic};
use kvdrive_sim::wall::Stopwatch;
use kvdrive_sim::{Histogram, Ns, Resource, Sim, Summary, WaitQueue};
use kvdrive_spec::{Key, Status};

use crate::config::{Config, Document};
use crate::report::{self, Named, Report};
use crate::setup;
use crate::workload::{self, Op, ValueSpec, Workload};

/// Operations between two calls of a progress hook.
const PROGRESS_STEP: u64 = 8192;

/// Who wants to know how far a run is: operations done (preloading included) and in all.
pub type Progress<'a> = &'a dyn Fn(u64, u64);

/// Runs what `document` describes.
pub fn run(document: &Document, progress: Progress<'_>) -> anyhow::Result<Report> {
    run_counted(document, progress).map(|(report, _)| report)
}

/// As [`run`], and says how many events of the simulation it took, from power-on to the end.
pub fn run_counted(document: &Document, progress: Progress<'_>) -> anyhow::Result<(Report, u64)> {
    let config = document.config()?;
    let stopwatch = Stopwatch::start();
    let bench = Bench::new(&config)?;
    let outcome = bench.sim.block_on(bench.measure(&config, progress))?;
    let mut report = outcome.into_report(document, &config)?;
    report.time.wall_s = stopwatch.seconds();
    let events = bench.sim.events();
    bench.sim.clear();
    Ok((report, events))
}

/// Kinds of operation, in the order of reports.
pub(crate) const KINDS: [&str; 7] = ["store", "retrieve", "delete", "exist", "list", "seek", "next"];
pub(crate) const STORE: usize = 0;
pub(crate) const RETRIEVE: usize = 1;
pub(crate) const DELETE: usize = 2;
pub(crate) const EXIST: usize = 3;
pub(crate) const LIST: usize = 4;
pub(crate) const SEEK: usize = 5;
pub(crate) const NEXT: usize = 6;

/// What applications saw.
#[derive(Default)]
pub(crate) struct Seen {
    pub latency: [Histogram; KINDS.len()],
    pub errors: u64,
    pub first_error: Option<String>,
    pub stored_bytes: u64,
    pub retrieved_bytes: u64,
}

/// What all tasks of a run share: the operations still to do, and what came of those done.
struct Stream {
    sim: Sim,
    core: Rc<Resource>,
    think_ns: Ns,
    workload: RefCell<Box<dyn Workload>>,
    left: Cell<u64>,
    done: Cell<u64>,
    seen: RefCell<Seen>,
    /// Tasks that have not ended, and where the run waits for them and for word of their progress.
    running: Cell<usize>,
    news: WaitQueue,
}

impl Stream {
    fn next(&self) -> Option<Op> {
        self.left.set(self.left.get().checked_sub(1)?);
        Some(self.workload.borrow_mut().next())
    }

    /// One more is done; `true` when that is worth a word.
    fn note_done(&self) -> bool {
        let done = self.done.get() + 1;
        self.done.set(done);
        done.is_multiple_of(PROGRESS_STEP)
    }
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
    pub ended_ns: Ns,
    pub drained: Snapshot,
    pub notes: Vec<String>,
}

/// Everything a report takes the difference of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub at: Ns,
    pub payload: Traffic,
    pub wire: Traffic,
    pub counters: Counters,
    pub resources: Vec<(String, kvdrive_sim::ResourceStatistics)>,
}

impl Bench {
    fn new(config: &Config) -> anyhow::Result<Bench> {
        let sim = Sim::new();
        let memory = Rc::new(LocalMemory::new());
        let link = Link::new(&sim, setup::link(config), memory.clone());
        let core = Rc::new(Resource::new(&sim, "host.core", config.host.cores));
        Ok(Bench { sim, link, memory, core })
    }

    async fn measure(&self, config: &Config, progress: Progress<'_>) -> anyhow::Result<Outcome> {
        let drive = Drive::power_on(&self.sim, &self.link, &setup::drive(config), None).await?;
        let host = Host::connect(
            self.link.clone(),
            self.memory.clone(),
            self.core.clone(),
            setup::host_costs(config),
        )
        .await?;
        let drivers = setup::drivers(config, &host)?;
        let source = workload::build(&config.workload, config.run.seed).map_err(anyhow::Error::msg)?;
        let preload = source.preload();
        let notes = source.notes().to_vec();
        let total = preload + config.workload.ops;
        let stream = Rc::new(Stream {
            sim: self.sim.clone(),
            core: self.core.clone(),
            think_ns: config.host.think_ns,
            workload: RefCell::new(source),
            left: Cell::new(config.workload.ops),
            done: Cell::new(0),
            seen: RefCell::default(),
            running: Cell::new(0),
            news: WaitQueue::new(&self.sim),
        });
        stream.preload(&drivers[0], preload, &|done| progress(done, total)).await?;
        let began = self.snapshot(&drive);
        stream.run_tasks(config, drivers, &|done| progress(done, total)).await;
        let ended_ns = self.sim.now();
        progress(total, total);
        drive.drain().await;
        let seen = stream.seen.take();
        Ok(Outcome { seen, began, ended_ns, drained: self.snapshot(&drive), notes })
    }

    fn snapshot(&self, drive: &Drive) -> Snapshot {
        Snapshot::of(&self.sim, &self.link, drive, Some(&self.core))
    }
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
            resources,
        }
    }
}

impl Stream {
    async fn preload(&self, driver: &Driver, pairs: u64, tell: &dyn Fn(u64)) -> anyhow::Result<()> {
        for index in 0..pairs {
            let (key, value) = self.workload.borrow().preload_pair(index);
            let stored = driver.store(key, content(&key, &value)).await;
            stored.map_err(|status| anyhow::anyhow!("preloading pair {index} ({key}): {status}"))?;
            if self.note_done() {
                tell(self.done.get());
            }
        }
        Ok(())
    }

    /// Does all operations: one task in the place of its caller, several as tasks of their own.
    async fn run_tasks(self: &Rc<Self>, config: &Config, drivers: Vec<Driver>, tell: &dyn Fn(u64)) {
        if config.host.depth == 1 {
            return self.application(&drivers[0], tell).await;
        }
        let drivers: Vec<Rc<Driver>> = drivers.into_iter().map(Rc::new).collect();
        for driver in setup::driver_of_each_task(config) {
            let (stream, driver) = (self.clone(), drivers[driver].clone());
            self.running.set(self.running.get() + 1);
            self.sim.spawn(async move {
                stream.application(&driver, &|_| stream.news.wake_all()).await;
                stream.running.set(stream.running.get() - 1);
                stream.news.wake_all();
            });
        }
        while self.running.get() > 0 {
            self.news.wait().await;
            tell(self.done.get());
        }
    }

    async fn application(&self, driver: &Driver, tell: &dyn Fn(u64)) {
        let mut buffer = Region::new();
        while let Some(op) = self.next() {
            self.perform(driver, &op, &mut buffer).await;
            if self.note_done() {
                tell(self.done.get());
            }
            self.core.run(self.think_ns).await;
        }
    }

    async fn perform(&self, driver: &Driver, op: &Op, buffer: &mut Region) {
        let seen = &self.seen;
        let began = self.sim.now();
        let (kind, result) = match *op {
            Op::Store { key, value } => {
                let result = driver.store(key, content(&key, &value)).await;
                if result.is_ok() {
                    seen.borrow_mut().stored_bytes += u64::from(value.bytes);
                }
                (STORE, result)
            }
            Op::Retrieve { key } => {
                let result = driver.retrieve(key, buffer).await;
                if let Ok(bytes) = result {
                    seen.borrow_mut().retrieved_bytes += u64::from(bytes);
                }
                (RETRIEVE, result.map(|_| ()))
            }
            Op::Delete { key } => (DELETE, driver.delete(key).await),
            Op::Exist { key } => (EXIST, driver.exist(key).await.map(|_| ())),
            Op::List { key, host_buffer_bytes } => {
                (LIST, driver.list(Some(key), host_buffer_bytes).await.map(|_| ()))
            }
            Op::Seek { key, nexts } => (SEEK, self.scan(driver, key, nexts, buffer).await),
        };
        let mut seen = seen.borrow_mut();
        if kind != SEEK {
            seen.latency[kind].record(self.sim.now() - began);
        }
        // Not finding a key is an answer, not an error.
        if let Err(status) = result
            && status != Status::KEY_NOT_FOUND
        {
            seen.errors += 1;
            seen.first_error.get_or_insert_with(|| format!("{op:?}: {status}"));
        }
    }

    async fn scan(&self, driver: &Driver, from: Key, nexts: u32, buffer: &mut Region) -> Result<(), Status> {
        let seen = &self.seen;
        let began = self.sim.now();
        let (iterator, mut pair) = driver.seek(Some(from), buffer).await?;
        seen.borrow_mut().latency[SEEK].record(self.sim.now() - began);
        for _ in 0..nexts {
            if pair.is_none() {
                break;
            }
            let began = self.sim.now();
            pair = driver.next(iterator, buffer).await?;
            let mut seen = seen.borrow_mut();
            seen.latency[NEXT].record(self.sim.now() - began);
            seen.retrieved_bytes += pair.map_or(0, |pair| u64::from(pair.value_bytes));
        }
        driver.close(iterator).await
    }
}

/// The content that generated workloads give to a version of a key.
pub(crate) fn content(key: &Key, value: &ValueSpec) -> Piece<'static> {
    Piece::Pattern(Pattern::of_value(key, value.version, value.bytes))
}

impl Outcome {
    pub(crate) fn into_report(self, document: &Document, config: &Config) -> anyhow::Result<Report> {
        let Outcome { seen, began, ended_ns, drained, mut notes } = self;
        notes.extend(seen.first_error.map(|error| format!("first of {} errors: {error}", seen.errors)));
        let counts = seen.latency.each_ref().map(|histogram| histogram.summary().count);
        let ops = report::Ops {
            store: counts[STORE],
            retrieve: counts[RETRIEVE],
            delete: counts[DELETE],
            exist: counts[EXIST],
            list: counts[LIST],
            seek: counts[SEEK],
            next: counts[NEXT],
            errors: seen.errors,
        };
        let span_ns = ended_ns - began.at;
        let counters = drained.counters.since(&began.counters);
        let payload = traffic(&drained.payload.since(&began.payload));
        let programs: report::ByPurpose = counters.programs().collect();
        let stored = seen.stored_bytes;
        let per_value_byte = |bytes: u64| if stored == 0 { 0.0 } else { bytes as f64 / stored as f64 };
        let resources = resources(&began, &drained);
        Ok(Report {
            profile: document.profile_name().to_owned(),
            config: serde_json::to_value(config)?,
            seed: config.run.seed,
            clock: "virtual".into(),
            revision: crate::REVISION.to_owned(),
            time_sources: document.time_sources(),
            notes,
            throughput_ops_per_s: ops.total() as f64 * 1e9 / span_ns.max(1) as f64,
            latency_ns: latencies(&seen.latency),
            amplification: report::Amplification {
                traffic: per_value_byte(payload.total()),
                write: per_value_byte(programs.total() * u64::from(config.flash.page_bytes)),
            },
            traffic: report::Traffic {
                payload_bytes: payload,
                wire_bytes: traffic(&drained.wire.since(&began.wire)),
            },
            nand: report::Nand { programs, reads: counters.reads().collect(), erases: counters.erases },
            pages: report::Pages { value_opened: counters.engine.value_pages_opened },
            memcpy: report::Memcpy { bytes: counters.engine.memcpy_bytes, ns: counters.engine.memcpy_ns },
            resources,
            value_bytes: report::ValueBytes { stored, retrieved: seen.retrieved_bytes },
            time: report::Time { virtual_ns: span_ns, wall_s: 0.0 },
            ops,
        })
    }
}

fn latencies(histograms: &[Histogram; KINDS.len()]) -> Named<report::Latency> {
    let latency = |Summary { mean, p50, p99, p999, max, .. }| report::Latency { mean, p50, p99, p999, max };
    let pairs = KINDS.iter().zip(histograms).map(|(name, histogram)| (*name, histogram.summary()));
    pairs.filter(|(_, summary)| summary.count > 0).map(|(name, summary)| (name, latency(summary))).collect()
}

fn traffic(traffic: &Traffic) -> report::TrafficBytes {
    use kvdrive_link::Class;
    report::TrafficBytes {
        mmio: traffic.of(Class::Mmio),
        sqe: traffic.of(Class::Sqe),
        cqe: traffic.of(Class::Cqe),
        list: traffic.of(Class::List),
        to_drive: traffic.of(Class::ToDrive),
        to_host: traffic.of(Class::ToHost),
        interrupt: traffic.of(Class::Interrupt),
        cxl: traffic.of(Class::Cxl),
    }
}

fn resources(began: &Snapshot, ended: &Snapshot) -> Named<report::Resource> {
    let span_ns = (ended.at - began.at).max(1) as f64;
    let pairs = began.resources.iter().zip(&ended.resources);
    pairs
        .map(|((name, before), (_, after))| {
            let servers = f64::from(after.servers.max(1));
            let uses = (after.uses - before.uses).max(1) as f64;
            let resource = report::Resource {
                busy_fraction: (after.busy_ns - before.busy_ns) as f64 / (span_ns * servers),
                queue_ns_mean: (after.queue_ns - before.queue_ns) as f64 / uses,
            };
            (name.clone(), resource)
        })
        .collect()
}
