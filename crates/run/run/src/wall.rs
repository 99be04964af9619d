//! Runs in wall time, and recordings of them that can be replayed in model time. The drive runs on a thread
//! of its own and the application on others; or, if the drive is unpaced and the application has one thread,
//! calls of that thread carry the drive out.
//!
//! The observations of the application (latency, throughput) are measured on this machine. The work of the drive is
//! counted and modelled as always: after loading, or from power-on if nothing is loaded. A served drive is not drained,
//! so pages that loading left in buffers are programmed during the run. A recording holds the configuration, every
//! arrival with its model time and every byte that DMA read, so a replay has the same counters and the same model
//! times, loading included.

pub mod connected;
mod control;
mod lanes;
mod late_file;
mod on_host;
mod threads;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use kvdrive_declare::{Counts, Sections};
use kvdrive_device::Drive;
use kvdrive_flash::power::Survivors;
use kvdrive_flash::power::machine_file::WriteFailure;
use kvdrive_host::saker::{self, Queues};
use kvdrive_host::threaded::{Connector, serve_here, serve_thread};
use kvdrive_host::{Driver, Error, Pipelined};
use kvdrive_link::recording::{Recorder, Recording, replay as play};
use kvdrive_link::shared::{self, BuildError, Built, Control, ServerConfig};
use kvdrive_link::{HostMemory, Link, transfer};
use kvdrive_nvme::{nvm, opcode};
use kvdrive_saker::Saker;
use kvdrive_saker::threaded::Threaded;
use kvdrive_sim::wall::{Pace, Stopwatch};
use kvdrive_sim::{Buckets, Ns, Rng, Sim, Summary, TaskCell};

use crate::memory::Spending;
use crate::modelled::{FinishedRun, check_value_size, operations};
use crate::outcome::{Loading, Outcome};
use crate::report::{Commands, Report, Series, Verified};
use crate::seen::Seen;
use crate::snapshot::DriveSnapshot;
use crate::watch::{Progress, Watch};
pub use control::{Change, Running};
use kvdrive_config::{Config, Document};
use kvdrive_text::output::check_writable;
use kvdrive_text::scaled::time;
use lanes::Sent;
use late_file::LateFile;
use threads::{Measured, ThreadDriver, Threads};

/// First line of a recorded configuration; the profile's name follows.
const PROFILE_LINE: &str = "# recorded with profile ";

/// Options of a run in wall time.
pub struct WallOptions<'a> {
    /// Pace of the model, or as fast as the machine can.
    pub pace: Pace,
    /// File for the recording.
    pub record: Option<&'a Path>,
    /// Gives the drive a thread of its own even if it could run in the calls of the only application thread
    /// ([`kvdrive_host::threaded::serve_here`]), because it is unpaced and not recorded.
    pub own_thread: bool,
}

impl WallOptions<'_> {
    /// Do calls of the application's thread carry out the drive of `config`?
    fn is_here(&self, config: &Config) -> bool {
        let is_unpaced = self.pace != Pace::Model && self.record.is_none();
        // The thread of a store on the host calls the drive, besides that which makes it.
        is_unpaced && !self.own_thread && config.queue_pairs() == 1 && !config.has_store_on_host()
    }
}

/// The state of the drive at the end of its run, as its thread returns it.
struct DriveEnd {
    write_failure: Option<WriteFailure>,
    ended: DriveSnapshot,
    drained: DriveSnapshot,
    lateness: Summary,
    sleeps: u64,
    recording: Result<(), std::io::Error>,
    ignored_bytes: u64,
    /// Latencies of commands of I/O queues, by opcode.
    latencies: BTreeMap<u8, Buckets>,
}

impl DriveEnd {
    fn record_failure(&self) -> Option<String> {
        self.recording.as_ref().err().map(|error| format!("{error}: the recording ends before its run"))
    }
}

/// Builds the drive of `config` on the thread that serves it, from `survivors` if there are any.
fn build(
    config: &Config,
    survivors: Option<&Survivors>,
    sim: &Sim,
    memory: Rc<dyn HostMemory>,
) -> Result<Built<Running, impl FnOnce(shared::RunEnd) -> DriveEnd + use<>>, BuildError> {
    let link = Link::new(sim, config.link.clone(), memory);
    let drive_config = config.drive();
    let drive = sim.block_on(|| Drive::power_on(sim, &link, &drive_config, survivors))?;
    drive.faults().halt_at_power_cut();
    drive.defer_settling();
    let drive = Rc::new(drive);
    let (sim, drive_link) = (sim.clone(), link.clone());
    let latencies = Rc::<TaskCell<BTreeMap<u8, Buckets>>>::default();
    let running = Running {
        sim: sim.clone(),
        link: link.clone(),
        drive: drive.clone(),
        geometry: drive_config.flash.geometry(),
        seed: config.run.seed,
        latencies: latencies.clone(),
        lateness: TaskCell::default(),
    };
    let finish = move |ended: shared::RunEnd| {
        let at_end = DriveSnapshot::of(&sim, &drive_link, &drive, &[]);
        if !ended.power_cut {
            sim.block_on(|| drive.drain());
        }
        DriveEnd {
            write_failure: drive.write_failure(),
            ended: at_end,
            drained: DriveSnapshot::of(&sim, &drive_link, &drive, &[]),
            lateness: ended.lateness.summary(),
            sleeps: ended.sleeps,
            recording: ended.recording,
            ignored_bytes: ended.ignored_bytes,
            latencies: latencies.take(),
        }
    };
    Ok(Built { link, drive: running, finish })
}

/// A drive that was served, after its end.
pub struct ServedDrive {
    end: DriveEnd,
    survivors: Option<Survivors>,
}

impl ServedDrive {
    /// How often its thread slept.
    pub fn sleeps(&self) -> u64 {
        self.end.sleeps
    }

    /// Why it was read-only, if it was.
    pub fn write_failure(&self) -> Option<&WriteFailure> {
        self.end.write_failure.as_ref()
    }

    /// Why its recording is not whole, if it has one.
    pub fn record_failure(&self) -> Option<String> {
        self.end.record_failure()
    }

    /// The state from which a drive in memory can be powered on again after a power cut; a drive on files has
    /// its state in its files.
    pub fn take_survivors(&mut self) -> Option<Survivors> {
        self.survivors.take()
    }

    /// The report of a drive that `document` describes and that hosts used for `seconds`. Like the report of a replay
    /// it contains the work of the drive, not the observations of hosts.
    ///
    /// # Errors
    /// `document` is invalid.
    pub fn into_report(self, document: &Document, seconds: f64) -> anyhow::Result<Report> {
        let notes = vec!["served: the work of the drive, without the times of its hosts".to_owned()];
        let application = Application { notes, ..Application::default() };
        let mut report = report(document, &document.config()?, application, self.end)?;
        report.clock = "wall".into();
        report.time.wall_s = seconds;
        Ok(report)
    }
}

/// Returns a closure that builds the drive of `config` on the thread that serves it, from the survivors of a
/// power cut if there was one. The namespace is that of a run; there is no workload.
pub fn served(
    config: Config,
    survivors: Option<Survivors>,
) -> impl FnOnce(&Sim, Rc<dyn HostMemory>) -> ServedBuild + Send + 'static {
    move |sim, memory| {
        let Built { link, drive, finish } = build(&config, survivors.as_ref(), sim, memory)?;
        let powered = drive.drive.clone();
        powered.faults().has_door();
        let finish: Finish = Box::new(move |ended| {
            let survivors = (ended.power_cut && !config.media.has_file()).then(|| {
                let mut rng = Rng::stream(config.run.seed, "power cut");
                let torn = powered.faults().take_power_cut().unwrap_or(true);
                if torn { powered.survivors(&mut rng) } else { powered.survivors_untorn(&mut rng) }
            });
            ServedDrive { end: finish(ended), survivors }
        });
        Ok(Built { link, drive, finish })
    }
}

/// Ends a served drive.
pub type Finish = Box<dyn FnOnce(shared::RunEnd) -> ServedDrive>;
/// A served drive, or the error of building it.
pub type ServedBuild = Result<Built<Running, Finish>, BuildError>;

/// Runs `document` in wall time.
///
/// # Errors
/// As `run` in model time; a file of the image or the recording cannot be written.
pub fn run_wall(
    document: &Document,
    options: &WallOptions<'_>,
    progress: Progress<'_>,
) -> anyhow::Result<Report> {
    run_wall_watched(document, options, &Watch::progress(progress))?.whole()
}

/// As [`run_wall`]; `watch` observes the run and may stop it. A recording that cannot be written to its end is a
/// [`FinishedRun::failure`]: the report is of the whole run.
pub fn run_wall_watched(
    document: &Document,
    options: &WallOptions<'_>,
    watch: &Watch<'_>,
) -> anyhow::Result<FinishedRun> {
    let config = document.config()?;
    config.check_room()?;
    anyhow::ensure!(
        config.host.threads > 0 || config.host.queues == 1,
        "host.queues: {}; in wall time each thread has a queue pair: host.threads says how many",
        config.host.queues
    );
    let has_past = config.media.file().is_some_and(|path| std::fs::exists(path).unwrap_or(true));
    let (recorder, started) = open_recorder(document, options.record)?;
    let drive_config = config.clone();
    let server = ServerConfig { pace: options.pace, recorder };
    let build = move |sim: &Sim, memory| {
        let built = build(&drive_config, None, sim, memory)?;
        check_value_size(&drive_config, &built.drive.drive)?;
        Ok(built)
    };
    let is_here = options.is_here(&config);
    let (connector, serving) = if is_here { serve_here(server, build) } else { serve_thread(server, build) }
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    let outcome = run_application(&config, &connector, serving.control(), &started, has_past, watch);
    drop(connector);
    let end = serving.join();
    end.write_failure.clone().filter(|_| !config.media.read_only).map_or(Ok(()), Err)?;
    let mut application = outcome?;
    if application.loading.is_some() {
        application.notes.push(
            "pages that loading left in buffers are programmed in the run, and counted there".to_owned(),
        );
    }
    let lateness = end.lateness;
    let failure = end.record_failure().map(anyhow::Error::msg).or(application.bad_end.take());
    let latencies = application.seen.latencies();
    let mut report = report(document, &config, application, end)?;
    if options.pace == Pace::Off && options.record.is_none() {
        report.notes.push("pace off: model time stood still, so no time of the drive is modelled".to_owned());
    }
    if config.has_store_on_host() {
        report.notes.push(on_host::NOTE.to_owned());
    }
    if is_here {
        report.notes.push("the drive ran in the calls of the application's thread".to_owned());
    }
    if options.pace == Pace::Model {
        let Summary { p50, p99, max, .. } = lateness;
        let [p50, p99, max] = [p50, p99, max].map(|ns| time(ns as f64));
        report.notes.push(format!("events ran late by {p50} (median), {p99} (p99), {max} (most): measured"));
    }
    Ok(FinishedRun { report, latencies, failure })
}

/// What the application of a run saw.
#[derive(Default)]
struct Application {
    seen: Seen,
    loading: Option<Loading>,
    /// Duration of the measured part, ns; `None`: it was not measured.
    wall_ns: Option<Ns>,
    notes: Vec<String>,
    /// Whether the run was stopped from outside before its end.
    is_stopped: bool,
    /// Counters of the workload.
    workload: Counts,
    series: Option<Series>,
    verified: Option<(Verified, Option<String>)>,
    /// Counters of SAKER and of a store on the host, by section.
    of_host: Sections,
    /// The file of the workload is damaged behind the operations that were done.
    bad_end: Option<anyhow::Error>,
}

/// Loads pairs and runs the operations. A recording starts here.
fn run_application(
    config: &Config,
    connector: &Connector,
    control: &Control<Running>,
    started: &AtomicBool,
    has_past: bool,
    watch: &Watch<'_>,
) -> anyhow::Result<Application> {
    let store = on_host::store(config, connector)?;
    let mut drivers = if store.is_some() { Vec::new() } else { drivers(config, connector)? };
    let saker = threaded_saker(config, connector)?;
    let count = |counts: &mut Sections| {
        if let Some((saker, _)) = &saker {
            counts.set("saker", saker.saker().counts());
        }
        if let Some(store) = &store {
            let (of_store, memory) = store.counts();
            counts.set("store", of_store);
            counts.set("store_memory", memory);
        }
    };
    let drivers: Vec<_> = match &store {
        Some(store) => {
            let thread = |_| ThreadDriver { pipeline: Box::new(store.pipeline(1)) as _, tasks: 1 };
            (0..config.queue_pairs()).map(thread).collect()
        }
        None => {
            drivers.iter_mut().map(|driver| pipelined(driver, saker.as_ref())).collect::<Result<_, _>>()?
        }
    };
    let memory = Spending::of(config);
    let mut threads = Threads::new(config, drivers, has_past, memory, watch)?;
    let (pairs, bytes) = threads.load_size();
    config.check_load(pairs, bytes)?;
    started.store(true, Ordering::Release);
    let (stores, stored_bytes) = threads.load(config, watch)?;
    let loading = (stores > 0).then(|| {
        let mut ended = control.look(|_, running| running.snapshot())?;
        count(&mut ended.counts);
        anyhow::Ok(Loading { began: DriveSnapshot::default(), ended, stores, stored_bytes })
    });
    let seeing = control.clone();
    // If the drive is off, no counts can be read; the run then ends.
    let look = Rc::new(move || seeing.look(|_, running| running.snapshot()).unwrap_or_default());
    let Measured { seen, wall_ns, notes, workload, series, verified, failure, bad_end } =
        threads.measure(config, look, watch)?;
    failure.map_or(Ok(()), Err)?;
    let (loading, is_stopped, wall_ns) = (loading.transpose()?, watch.is_stopped(), Some(wall_ns));
    let mut of_host = Sections::default();
    count(&mut of_host);
    Ok(Application {
        seen,
        loading,
        wall_ns,
        notes,
        is_stopped,
        workload,
        series,
        verified,
        of_host,
        bad_end,
    })
}

/// A thread's way to the drive: by SAKER if it is there.
fn pipelined<'d>(driver: &'d mut Driver, saker: Option<&InFront>) -> anyhow::Result<ThreadDriver<'d>> {
    let (tasks, pipeline): (_, Box<dyn Pipelined<Sent> + Send>) = match saker {
        Some((saker, failure)) => {
            let front = saker::Front::new(saker.connect()?, failure.clone());
            (1, Box::new(saker::Pipeline::new(front, driver)))
        }
        None => (driver.depth(), Box::new(driver.pipeline()?)),
    };
    Ok(ThreadDriver { pipeline, tasks })
}

/// A queue pair for each thread. With SAKER in front, it is for the calls that SAKER does not send.
fn drivers(config: &Config, connector: &Connector) -> anyhow::Result<Vec<Driver>> {
    let threads = config.queue_pairs();
    let connect = |thread: u32| {
        let method = transfer::method(&config.host.transfer)
            .ok_or_else(|| anyhow::anyhow!("host.transfer: no method {:?}", config.host.transfer.method))?;
        // Operations under way are spread evenly.
        let more = u32::from(thread < config.host.depth % threads);
        let depth = if config.saker.enabled { 1 } else { (config.host.depth / threads + more).max(1) };
        Ok(connector.connect(method, config.host.queue_entries, depth)?)
    };
    (0..threads).map(connect).collect()
}

/// SAKER, and where its queues keep why they failed.
type InFront = (Arc<Threaded<Queues>>, Arc<OnceLock<Error>>);

/// SAKER, if it is on.
fn threaded_saker(config: &Config, connector: &Connector) -> anyhow::Result<Option<InFront>> {
    let (host, depth) = (&config.host, config.saker.in_flight + 1);
    if !config.saker.enabled {
        return Ok(None);
    }
    let (connector, transfer, entries) = (connector.clone(), host.transfer.clone(), host.queue_entries);
    let queues = Queues::new(move || {
        let method = transfer::method(&transfer).expect("its name was looked up before");
        connector.connect(method, entries, depth)
    });
    let (failure, clock) = (queues.failure(), Stopwatch::start());
    let saker = Saker::new(config.saker.settings())?;
    Ok(Some((Threaded::new(saker, queues, Arc::new(move || clock.ns())), failure)))
}

/// A recorder for the drive of `document`, if there is a path. The file is not touched before the returned
/// flag is set.
///
/// # Errors
/// The drive has an image file, or the recording cannot be written.
pub fn open_recorder(
    document: &Document,
    path: Option<&Path>,
) -> anyhow::Result<(Option<Recorder>, Arc<AtomicBool>)> {
    let started = Arc::new(AtomicBool::new(false));
    let Some(path) = path else { return Ok((None, started)) };
    check_medium(&document.config()?)?;
    let text = format!("{PROFILE_LINE}{}\n{}", document.profile_name(), document);
    check_writable(path)?;
    let file = LateFile::new(path, started.clone());
    let recorder = Recorder::new(Box::new(BufWriter::new(file)), &text)?;
    Ok((Some(recorder), started))
}

/// A recording cannot contain an image file, and replaying one must not open a path that the recording names.
fn check_medium(config: &Config) -> anyhow::Result<()> {
    anyhow::ensure!(
        !config.media.has_file(),
        "media.kind: a recording does not contain the image file; use ram"
    );
    Ok(())
}

/// Replays a recording in virtual time. The report contains the work of the drive; observations of applications are not
/// recorded.
///
/// # Errors
/// A line with the path: the file cannot be read, or is no recording of a drive in memory.
pub fn replay(path: &Path) -> anyhow::Result<Report> {
    let stopwatch = Stopwatch::start();
    let at_path = |error: &dyn std::fmt::Display| anyhow::anyhow!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| at_path(&error))?;
    let recording = Recording::open(Box::new(BufReader::new(file))).map_err(|error| at_path(&error))?;
    let document = recorded_document(recording.configuration()).map_err(|error| at_path(&error))?;
    let config = document.config()?;
    check_medium(&config).map_err(|error| at_path(&error))?;
    let end =
        play(recording, |sim, memory| build(&config, None, sim, memory)).map_err(|error| at_path(&error))?;
    let mut notes = vec![
        "a replay: the work of the drive; a recording does not contain the times of applications".to_owned(),
    ];
    if operations(&config)? > config.workload.ops {
        notes.push("loading is part of it: a recording does not contain the end of loading".to_owned());
    }
    if let Err(error) = &end.recording {
        notes.push(format!(
            "{error}; this is the drive at the arrival of the last recorded command, not drained"
        ));
    }
    if end.ignored_bytes > 0 {
        notes.push(format!("{} bytes after the end of the recording are ignored", end.ignored_bytes));
    }
    let application = Application { notes, ..Application::default() };
    let mut report = report(&document, &config, application, end)?;
    report.time.wall_s = stopwatch.seconds();
    Ok(report)
}

fn recorded_document(text: &str) -> anyhow::Result<Document> {
    let first = text.lines().next().unwrap_or_default();
    let profile = first.strip_prefix(PROFILE_LINE).ok_or_else(|| anyhow::anyhow!("it names no profile"))?;
    let mut document = Document::profile(profile)?;
    document.merge_text("recorded configuration", text)?;
    Ok(document)
}

fn report(
    document: &Document,
    config: &Config,
    application: Application,
    end: DriveEnd,
) -> anyhow::Result<Report> {
    let Application {
        seen, loading, wall_ns, notes, is_stopped, workload, series, verified, of_host, ..
    } = application;
    let DriveEnd { ended, mut drained, latencies, .. } = end;
    let is_hosts_unknown = seen.latencies().is_empty();
    of_host.iter().for_each(|(section, counts)| drained.counts.set(section, counts.clone()));
    let resources = drained.resources.iter().map(|(name, _)| (name.clone(), Default::default())).collect();
    let power_on = DriveSnapshot { resources, ..DriveSnapshot::default() };
    let began = loading.as_ref().map_or(power_on, |loading| loading.ended.clone());
    let outcome = Outcome {
        seen,
        began,
        ended,
        drained,
        wall_ns,
        notes,
        is_stopped,
        is_behind: false,
        workload,
        loading,
        series,
        verified,
    };
    let mut report = outcome.into_report(document, config)?;
    if is_hosts_unknown {
        let name = if config.has_store_on_host() { block_command } else { opcode::name };
        report.commands = latencies.iter().map(|of| commands(of, name)).collect();
    }
    Ok(report)
}

/// The name of an opcode of the NVM command set.
fn block_command(code: u8) -> Option<&'static str> {
    Some(match code {
        nvm::FLUSH => "flush",
        nvm::WRITE => "write",
        nvm::READ => "read",
        nvm::WRITE_ZEROES => "write-zeroes",
        nvm::DATASET_MANAGEMENT => "deallocate",
        _ => return None,
    })
}

/// Count and latencies of one opcode on the drive.
fn commands((code, spans): (&u8, &Buckets), name: fn(u8) -> Option<&'static str>) -> (String, Commands) {
    let name = name(*code).map_or_else(|| format!("{code:02X}h"), str::to_owned);
    let mean_ns = spans.sum_ns() as f64 / spans.count().max(1) as f64;
    let [p50_ns, p99_ns, p999_ns, max_ns] = [0.5, 0.99, 0.999, 1.0].map(|part| spans.quantile(part));
    (name, Commands { count: spans.count(), mean_ns, p50_ns, p99_ns, p999_ns, max_ns })
}
