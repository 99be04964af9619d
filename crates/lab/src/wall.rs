//! Runs in wall time: the drive on a thread of its own, the application on another, and recordings of them
//! that can be replayed in virtual time.
//!
//! What the application sees (latency, throughput) is measured on this machine. What the drive does is
//! counted and modelled as ever: behind the loading of pairs, or from power-on where none are. What loading
//! left in buffers is programmed in the run: nobody drains a drive that is served. A recording holds the
//! configuration, every arrival with its model time and every byte that DMA read, so a replay has the same
//! counters and the same model times, loading included.

mod control;
mod late_file;

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_device::Drive;
use kvdrive_flash::power::Survivors;
use kvdrive_flash::power::machine_file::WriteFailure;
use kvdrive_host::threaded::{Completion, Connector, Driver, Outcome as Ended, Pipeline, serve_thread};
use kvdrive_host::{Client, Content, Error};
use kvdrive_link::recording::{Recorder, Recording, replay as play};
use kvdrive_link::shared::{self, BuildError, Built, Control, ServerConfig};
use kvdrive_link::{HostMemory, Link, transfer};
use kvdrive_sim::wall::{Pace, Stopwatch};
use kvdrive_sim::{Ns, Rng, Sim, Summary, TaskCell};
use kvdrive_spec::Key;

use crate::config::{Config, Document};
use crate::output::check_writable;
use crate::report::Report;
pub use crate::run::Snapshot as DriveSnapshot;
use crate::run::{DELETE, EXIST, LIST, Loading, Outcome, Progress, RETRIEVE, Ran, STORE, Seen};
use crate::run::{Scan, Snapshot, Watch, answered, content, note_of_end, operations};
use crate::setup;
use crate::workload::{self, Op, ValueSpec, Workload};
pub use control::{Change, Running};
use late_file::LateFile;

/// Operations between two calls of a progress hook.
const PROGRESS_STEP: u64 = 8192;

/// First line of a recorded configuration; the profile's name follows.
const PROFILE_LINE: &str = "# recorded with profile ";

/// How to run in wall time.
pub struct WallOptions<'a> {
    /// Paced by the model, or as fast as the machine can.
    pub pace: Pace,
    /// File for a recording.
    pub record: Option<&'a Path>,
}

/// The drive at the end of its run, as it leaves its thread.
struct DriveEnd {
    write_failure: Option<WriteFailure>,
    ended: Snapshot,
    drained: Snapshot,
    lateness: Summary,
    sleeps: u64,
    recording: Result<(), std::io::Error>,
    ignored_bytes: u64,
}

/// Builds the drive of `config`, from what survived of it if anything did, on the thread that serves it.
fn build(
    config: &Config,
    survivors: Option<&Survivors>,
    sim: &Sim,
    memory: Rc<dyn HostMemory>,
) -> Result<Built<Running, impl FnOnce(shared::Ended) -> DriveEnd + use<>>, BuildError> {
    let link = Link::new(sim, config.link.clone(), memory);
    let drive_config = setup::drive(config);
    let drive = sim.block_on(|| Drive::power_on(sim, &link, &drive_config, survivors))?;
    drive.faults().halt_at_power_cut();
    drive.defer_settling();
    let drive = Rc::new(drive);
    let (sim, drive_link) = (sim.clone(), link.clone());
    let running = Running {
        sim: sim.clone(),
        link: link.clone(),
        drive: drive.clone(),
        geometry: drive_config.flash.geometry(),
        seed: config.run.seed,
    };
    let finish = move |ended: shared::Ended| {
        let at_end = Snapshot::of(&sim, &drive_link, &drive, &[]);
        if !ended.power_cut {
            sim.block_on(|| drive.drain());
        }
        DriveEnd {
            write_failure: drive.write_failure(),
            ended: at_end,
            drained: Snapshot::of(&sim, &drive_link, &drive, &[]),
            lateness: ended.lateness.summary(),
            sleeps: ended.sleeps,
            recording: ended.recording,
            ignored_bytes: ended.ignored_bytes,
        }
    };
    Ok(Built { link, drive: running, finish })
}

/// A drive that was served, at its end.
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

    /// What the next power-on of a drive in memory begins with, if the power was cut; what a drive on files
    /// begins with is on its files.
    pub fn take_survivors(&mut self) -> Option<Survivors> {
        self.survivors.take()
    }

    /// The report of a drive that `document` describes and that others than a workload used for `seconds`. Like
    /// a replay's it has what the drive did; what hosts saw they know themselves.
    pub fn into_report(self, document: &Document, seconds: f64) -> anyhow::Result<Report> {
        self.end.recording.as_ref().map_err(|error| anyhow::anyhow!("the recording: {error}"))?;
        let notes = vec!["served: what the drive did; what its hosts saw is not in here".to_owned()];
        let mut report = report(document, &document.config()?, Seen::default(), None, self.end, notes)?;
        report.clock = "wall".into();
        report.time.wall_s = seconds;
        Ok(report)
    }
}

/// What builds the drive of `config` on the thread that is to serve it, from what survived a power cut if it
/// had one. Its namespace is the same as that of a run; there is no workload.
pub fn served(
    config: Config,
    survivors: Option<Survivors>,
) -> impl FnOnce(&Sim, Rc<dyn HostMemory>) -> ServedBuild + Send + 'static {
    move |sim, memory| {
        let Built { link, drive, finish } = build(&config, survivors.as_ref(), sim, memory)?;
        let powered = drive.drive.clone();
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
pub type Finish = Box<dyn FnOnce(shared::Ended) -> ServedDrive>;
/// A served drive, or why there is none.
pub type ServedBuild = Result<Built<Running, Finish>, BuildError>;

/// Runs what `document` describes in wall time.
pub fn run_wall(
    document: &Document,
    options: &WallOptions<'_>,
    progress: Progress<'_>,
) -> anyhow::Result<Report> {
    run_wall_watched(document, options, &Watch::progress(progress)).map(|ran| ran.report)
}

/// As [`run_wall`], with somebody who looks on and may end it.
pub fn run_wall_watched(
    document: &Document,
    options: &WallOptions<'_>,
    watch: &Watch<'_>,
) -> anyhow::Result<Ran> {
    anyhow::ensure!(watch.intervals.is_none(), "--interval: only in model time (--clock virtual)");
    let config = document.config()?;
    let pairs = config.queue_pairs();
    anyhow::ensure!(
        pairs == 1,
        "queue pairs: {pairs}; a wall-time run uses 1: --threads 1, or 0 and --queues 1"
    );
    anyhow::ensure!(
        !config.workload.until_full,
        "workload.until_full: true; a wall-time run does all of its ops"
    );
    let (recorder, started) = open_recorder(document, options.record)?;
    let drive_config = config.clone();
    let server = ServerConfig { pace: options.pace, recorder };
    let (connector, serving) =
        serve_thread(server, move |sim, memory| build(&drive_config, None, sim, memory))
            .map_err(|error| anyhow::anyhow!("{error}"))?;
    let outcome =
        Application::new(&config, &connector, serving.control().clone()).and_then(|mut application| {
            started.store(true, Ordering::Release);
            application.run(watch)
        });
    drop(connector);
    let end = serving.join();
    end.write_failure.clone().map_or(Ok(()), Err)?;
    let (seen, loading, seconds, mut notes) = outcome?;
    if loading.is_some() {
        notes.push("what loading left in buffers is programmed in the run, and counted there".to_owned());
    }
    let lateness = end.lateness;
    end.recording.as_ref().map_err(|error| anyhow::anyhow!("the recording: {error}"))?;
    let latencies = seen.latencies();
    let mut report = report(document, &config, seen, loading, end, notes)?;
    report.clock = "wall".into();
    report.time.wall_s = seconds;
    report.throughput_ops_per_s = report.ops.total() as f64 / seconds;
    if options.pace == Pace::Model {
        let Summary { p50, p99, max, .. } = lateness;
        report
            .notes
            .push(format!("events ran late by {p50} ns (median), {p99} ns (p99), {max} ns (most): measured"));
    }
    Ok(Ran { report, latencies, is_stopped: watch.is_stopped() })
}

/// A recorder of what happens to the drive of `document`, if a file is wanted. The file is not touched before
/// the flag beside it is raised.
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
    let error = |error| anyhow::anyhow!("{}: {error}", path.display());
    let text = format!("{PROFILE_LINE}{}\n{}", document.profile_name(), document);
    check_writable(path)?;
    let file = LateFile::new(path, started.clone());
    let recorder = Recorder::new(Box::new(BufWriter::new(file)), &text).map_err(error)?;
    Ok((Some(recorder), started))
}

/// An image stays where it is; and whoever replays a recording chooses no path by it.
fn check_medium(config: &Config) -> anyhow::Result<()> {
    anyhow::ensure!(
        !config.media.has_file(),
        "media.kind: a recording cannot bring an image file along; use ram"
    );
    Ok(())
}

/// Replays a recording in virtual time. The report has what the drive did; what applications saw is not
/// recorded.
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
    let mut notes =
        vec!["a replay: what the drive did; what applications saw is not in a recording".to_owned()];
    if operations(&config)? > config.workload.ops {
        notes.push("its loading is part of it: a recording does not say where that ended".to_owned());
    }
    if let Err(error) = &end.recording {
        notes.push(format!(
            "{error}; this is the drive when the last command that was kept arrived, not drained"
        ));
    }
    if end.ignored_bytes > 0 {
        notes.push(format!("{} bytes behind the end of the recording are ignored", end.ignored_bytes));
    }
    let mut report = report(&document, &config, Seen::default(), None, end, notes)?;
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
    seen: Seen,
    loading: Option<Loading>,
    end: DriveEnd,
    notes: Vec<String>,
) -> anyhow::Result<Report> {
    let DriveEnd { ended, drained, .. } = end;
    let resources = drained.resources.iter().map(|(name, _)| (name.clone(), Default::default())).collect();
    let power_on = Snapshot { resources, ..Snapshot::default() };
    let began = loading.as_ref().map_or(power_on, |loading| loading.ended.clone());
    Outcome { seen, began, ended, drained, notes, loading, verified: None }.into_report(document, config)
}

/// What goes through a pipeline with a command: the value, when it began, and what its client stores behind
/// it.
struct Timed {
    pattern: Pattern,
    kind: usize,
    began_ns: Ns,
    behind: Option<ValueSpec>,
}

impl Timed {
    fn store(key: &Key, value: &ValueSpec, clock: &Stopwatch) -> Timed {
        let pattern = Pattern::of_value(key, value.version, value.bytes);
        Timed { pattern, ..Timed::without_value(STORE, clock) }
    }

    fn without_value(kind: usize, clock: &Stopwatch) -> Timed {
        let pattern = Pattern { seed: 0, offset: 0, bytes: 0 };
        Timed { pattern, kind, began_ns: clock.ns(), behind: None }
    }
}

impl Content for Timed {
    fn piece(&self) -> Piece<'_> {
        Piece::Pattern(self.pattern)
    }
}

/// The application: one thread, one queue pair for what a pipeline does, one for the rest.
struct Application {
    workload: Box<dyn Workload>,
    ops: u64,
    /// No operation begins later than so long behind the first.
    duration_ns: Ns,
    piped: Driver,
    single: Driver,
    control: Control<Running>,
    clock: Stopwatch,
    seen: TaskCell<Seen>,
}

impl Application {
    fn new(config: &Config, connector: &Connector, control: Control<Running>) -> anyhow::Result<Application> {
        let connect = |depth| {
            let method = transfer::method(&config.host.transfer).ok_or_else(|| {
                anyhow::anyhow!("host.transfer: no method {:?}", config.host.transfer.method)
            })?;
            anyhow::Ok(connector.connect(method, config.host.queue_entries, depth)?)
        };
        Ok(Application {
            workload: workload::open(&config.workload, config.run.seed).map_err(anyhow::Error::msg)?,
            ops: config.workload.ops,
            duration_ns: match config.workload.duration_ns {
                0 => Ns::MAX,
                duration_ns => duration_ns,
            },
            piped: connect(config.host.depth)?,
            single: connect(1)?,
            control,
            clock: Stopwatch::start(),
            seen: TaskCell::default(),
        })
    }

    /// Loads the pairs that the workload begins with.
    fn load(&mut self, watch: &Watch<'_>) -> anyhow::Result<Option<Loading>> {
        let stores = self.workload.preload();
        let mut stored_bytes = 0;
        for index in 0..stores {
            anyhow::ensure!(
                !watch.is_stopped(),
                "stopped while loading, with {index} of {stores} stores done"
            );
            let (key, value) = self.workload.preload_pair(index);
            self.single.blocking().store(key, content(&key, &value))?;
            stored_bytes += u64::from(value.bytes);
            report_progress(watch.progress, index + 1, stores + self.ops);
        }
        if stores == 0 {
            return Ok(None);
        }
        let ended = self.control.look(|_, running| running.snapshot())?;
        Ok(Some(Loading { began: Snapshot::default(), ended, stores, stored_bytes }))
    }

    /// Loads, runs and returns what was seen, what loading took, the seconds of the run proper, and the
    /// workload's notes.
    fn run(&mut self, watch: &Watch<'_>) -> anyhow::Result<(Seen, Option<Loading>, f64, Vec<String>)> {
        let loading = self.load(watch)?;
        let preload = self.workload.preload();
        let total = preload + self.ops;
        self.clock = Stopwatch::start();
        let Application { workload, ops, duration_ns, piped, single, clock, seen, .. } = self;
        let mut pipeline = piped.pipeline()?;
        let mut begun = 0;
        while begun < *ops && clock.ns() < *duration_ns && !watch.is_stopped() {
            let Some((op, _)) = workload.draw().map_err(anyhow::Error::msg)? else { break };
            while !pipeline.has_room() {
                take_one(&mut pipeline, clock, seen)?;
            }
            begin(&mut pipeline, single, &op, clock, seen)?;
            begun += 1;
            report_progress(watch.progress, preload + begun, total);
        }
        let is_timed = *duration_ns < Ns::MAX;
        let is_out_of_time = clock.ns() >= *duration_ns;
        while pipeline.under_way() > 0 {
            take_one(&mut pipeline, clock, seen)?;
        }
        drop(pipeline);
        (watch.progress)(total, total);
        let mut notes = workload.notes().to_vec();
        notes.extend(note_of_end(watch.is_stopped(), is_timed, is_out_of_time, begun, *ops));
        Ok((seen.take(), loading, clock.seconds(), notes))
    }
}

fn report_progress(progress: Progress<'_>, done: u64, total: u64) {
    if done.is_multiple_of(PROGRESS_STEP) || done == total {
        progress(done, total);
    }
}

fn begin(
    pipeline: &mut Pipeline<'_, Timed>,
    single: &Driver,
    op: &Op,
    clock: &Stopwatch,
    seen: &TaskCell<Seen>,
) -> anyhow::Result<()> {
    let begun = match *op {
        Op::Store { key, value } => pipeline.store(key, Timed::store(&key, &value, clock)),
        Op::Retrieve { key } => pipeline.retrieve(key, Timed::without_value(RETRIEVE, clock), Region::new()),
        Op::Modify { key, value } => {
            let timed = Timed { behind: Some(value), ..Timed::without_value(RETRIEVE, clock) };
            pipeline.retrieve(key, timed, Region::new())
        }
        Op::Delete { key } => pipeline.delete(key, Timed::without_value(DELETE, clock)),
        Op::Exist { key } => pipeline.exist(key, Timed::without_value(EXIST, clock)),
        Op::Unit { .. } => unreachable!("units are for model time"),
        Op::Seek { .. } | Op::List { .. } => {
            // It waits on this thread. What is under way ends first, and is seen by it: nobody would take its
            // completions meanwhile, nor ring the doorbell for what has only gathered.
            while pipeline.under_way() > 0 {
                take_one(pipeline, clock, seen)?;
            }
            go_through(single, op, clock, seen)?;
            Ok(())
        }
    };
    begun.map_err(|_| anyhow::anyhow!("the pipeline had room and took nothing"))
}

/// A scan or a list, waiting on this thread.
fn go_through(driver: &Driver, op: &Op, clock: &Stopwatch, seen: &TaskCell<Seen>) -> Result<(), Error> {
    let began = clock.ns();
    let mut client = driver.blocking();
    match *op {
        Op::Seek { key, nexts } => {
            let scan = Scan { from: key, nexts, began, clock: &|| clock.ns(), seen };
            scan.run(&mut client, &mut Region::new(), &mut |_, _| ())
        }
        Op::List { key, host_buffer_bytes } => {
            let listed = answered(Client::list(&mut client, Some(key), host_buffer_bytes))?;
            seen.borrow_mut().note(LIST, &key, clock.ns() - began, listed.map(|_| ()));
            Ok(())
        }
        _ => unreachable!("the pipeline takes the others"),
    }
}

fn take_one(
    pipeline: &mut Pipeline<'_, Timed>,
    clock: &Stopwatch,
    seen: &TaskCell<Seen>,
) -> anyhow::Result<()> {
    let Some(Completion { key, value, result }) = pipeline.next_completion()? else { return Ok(()) };
    let answered = result.as_ref().map(|_| ()).map_err(|status| *status);
    let mut seen = seen.borrow_mut();
    seen.note(value.kind, &key, clock.ns() - value.began_ns, answered);
    if let Some(behind) = &value.behind {
        let begun = pipeline.store(key, Timed::store(&key, behind, clock));
        begun.map_err(|_| anyhow::anyhow!("a command has ended and left no room"))?;
    }
    match result {
        Ok(Ended::Stored) => seen.stored_bytes += u64::from(value.pattern.bytes),
        Ok(Ended::Retrieved(bytes, _)) => seen.read_bytes[RETRIEVE] += u64::from(bytes),
        Ok(Ended::Deleted | Ended::Exists(_)) | Err(_) => {}
    }
    Ok(())
}
