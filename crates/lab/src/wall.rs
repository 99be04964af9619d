//! Runs in wall time: the drive on a thread of its own, the application on another, and recordings of them
//! that can be replayed in virtual time.
//!
//! What the application sees (latency, throughput) is measured on this machine. What the drive does is
//! counted and modelled as ever: behind the loading of pairs, or from power-on where none are. What loading
//! left in buffers is programmed in the run: nobody drains a drive that is served. A recording holds the
//! configuration, every arrival with its model time and every byte that DMA read, so a replay has the same
//! counters and the same model times, loading included.

mod late_file;
mod witness;

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_device::Drive;
use kvdrive_flash::power::machine_file::WriteFailure;
use kvdrive_host::threaded::{
    Completion, Connector, Content, Driver, Error, Outcome as Ended, Pipeline, serve_thread,
};
use kvdrive_link::recording::{Recorder, Recording, replay as play};
use kvdrive_link::shared::{self, BuildError, PowerOff, ServerConfig};
use kvdrive_link::{HostMemory, Link, transfer};
use kvdrive_sim::wall::{Pace, Stopwatch};
use kvdrive_sim::{Ns, Sim, Summary};
use kvdrive_spec::{Key, Status};

use crate::config::{Config, Document};
use crate::output::check_writable;
use crate::report::Report;
use crate::run::{DELETE, EXIST, LIST, Loading, NEXT, Outcome, Progress, RETRIEVE, SEEK, STORE, Seen};
use crate::run::{Snapshot, content, operations};
use crate::setup;
use crate::workload::{self, Op, ValueSpec, Workload};
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
    recording: Result<(), std::io::Error>,
    ignored_bytes: u64,
}

/// Builds the drive of `config` on the thread that serves it; the second part ends it.
fn build(
    config: &Config,
    sim: &Sim,
    memory: Rc<dyn HostMemory>,
) -> Result<(Rc<Link>, impl FnOnce(shared::Ended) -> DriveEnd + use<>), BuildError> {
    let link = Link::new(sim, config.link.clone(), memory);
    let drive = sim.block_on(|| Drive::power_on(sim, &link, &setup::drive(config), None))?;
    let drive = Rc::new(drive);
    let (sim, drive_link) = (sim.clone(), link.clone());
    let (look_sim, look_link, look_drive) = (sim.clone(), link.clone(), drive.clone());
    witness::show(move || Snapshot::of(&look_sim, &look_link, &look_drive, None));
    let finish = move |ended: shared::Ended| {
        witness::hide();
        let at_end = Snapshot::of(&sim, &drive_link, &drive, None);
        if !ended.power_cut {
            sim.block_on(|| drive.drain());
        }
        DriveEnd {
            write_failure: drive.write_failure(),
            ended: at_end,
            drained: Snapshot::of(&sim, &drive_link, &drive, None),
            lateness: ended.lateness.summary(),
            recording: ended.recording,
            ignored_bytes: ended.ignored_bytes,
        }
    };
    Ok((link, finish))
}

/// A drive that was served, at its end.
pub struct ServedDrive(DriveEnd);

impl ServedDrive {
    /// The report of a drive that `document` describes and that others than a workload used for `seconds`. Like
    /// a replay's it has what the drive did; what hosts saw they know themselves.
    pub fn into_report(self, document: &Document, seconds: f64) -> anyhow::Result<Report> {
        let notes = vec!["served: what the drive did; what its hosts saw is not in here".to_owned()];
        let mut report = report(document, &document.config()?, Seen::default(), None, self.0, notes)?;
        report.clock = "wall".into();
        report.time.wall_s = seconds;
        Ok(report)
    }
}

/// What builds the drive of `config` on the thread that is to serve it. Its namespace is the same as that of a
/// run; there is no workload.
pub fn served(config: Config) -> impl FnOnce(&Sim, Rc<dyn HostMemory>) -> ServedBuild + Send + 'static {
    move |sim, memory| {
        let (link, finish) = build(&config, sim, memory)?;
        let finish: Finish = Box::new(move |ended| ServedDrive(finish(ended)));
        Ok((link, finish))
    }
}

/// Ends a served drive.
pub type Finish = Box<dyn FnOnce(shared::Ended) -> ServedDrive>;
/// A served drive, or why there is none.
pub type ServedBuild = Result<(Rc<Link>, Finish), BuildError>;

/// Runs what `document` describes in wall time.
pub fn run_wall(
    document: &Document,
    options: &WallOptions<'_>,
    progress: Progress<'_>,
) -> anyhow::Result<Report> {
    let config = document.config()?;
    anyhow::ensure!(config.host.queues == 1, "host.queues: {}; a wall-time run uses 1", config.host.queues);
    anyhow::ensure!(
        !config.workload.until_full,
        "workload.until_full: true; a wall-time run does all of its ops"
    );
    let started = Arc::new(AtomicBool::new(false));
    let recorder = options.record.map(|path| open_recorder(document, &config, path, &started)).transpose()?;
    let drive_config = config.clone();
    let server = ServerConfig { pace: options.pace, recorder };
    let (connector, serving) = serve_thread(server, move |sim, memory| build(&drive_config, sim, memory))
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    let outcome = Application::new(&config, &connector).and_then(|mut application| {
        started.store(true, Ordering::Release);
        application.run(progress)
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
    Ok(report)
}

fn open_recorder(
    document: &Document,
    config: &Config,
    path: &Path,
    started: &Arc<AtomicBool>,
) -> anyhow::Result<Recorder> {
    check_medium(config)?;
    let error = |error| anyhow::anyhow!("{}: {error}", path.display());
    let text = format!("{PROFILE_LINE}{}\n{}", document.profile_name(), document);
    check_writable(path)?;
    let file = LateFile::new(path, started.clone());
    Recorder::new(Box::new(BufWriter::new(file)), &text).map_err(error)
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
    let end = play(recording, |sim, memory| build(&config, sim, memory)).map_err(|error| at_path(&error))?;
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
    Outcome { seen, began, ended, drained, notes, loading }.into_report(document, config)
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
    piped: Driver,
    single: Driver,
    clock: Stopwatch,
    seen: Seen,
}

impl Application {
    fn new(config: &Config, connector: &Connector) -> anyhow::Result<Application> {
        let connect = |depth| {
            let method = transfer::method(&config.host.transfer).ok_or_else(|| {
                anyhow::anyhow!("host.transfer: no method {:?}", config.host.transfer.method)
            })?;
            anyhow::Ok(connector.connect(method, config.host.queue_entries, depth)?)
        };
        Ok(Application {
            workload: workload::build(&config.workload, config.run.seed).map_err(anyhow::Error::msg)?,
            ops: config.workload.ops,
            piped: connect(config.host.depth)?,
            single: connect(1)?,
            clock: Stopwatch::start(),
            seen: Seen::default(),
        })
    }

    /// Loads the pairs that the workload begins with.
    fn load(&mut self, progress: Progress<'_>) -> anyhow::Result<Option<Loading>> {
        let stores = self.workload.preload();
        let mut stored_bytes = 0;
        for index in 0..stores {
            let (key, value) = self.workload.preload_pair(index);
            self.single.blocking().store(key, content(&key, &value))?;
            stored_bytes += u64::from(value.bytes);
            report_progress(progress, index + 1, stores + self.ops);
        }
        if stores == 0 {
            return Ok(None);
        }
        let ended = witness::look(self.single.connector())?;
        Ok(Some(Loading { began: Snapshot::default(), ended, stores, stored_bytes }))
    }

    /// Loads, runs and returns what was seen, what loading took, the seconds of the run proper, and the
    /// workload's notes.
    fn run(&mut self, progress: Progress<'_>) -> anyhow::Result<(Seen, Option<Loading>, f64, Vec<String>)> {
        let loading = self.load(progress)?;
        let preload = self.workload.preload();
        let total = preload + self.ops;
        self.clock = Stopwatch::start();
        let Application { workload, ops, piped, single, clock, seen } = self;
        let mut pipeline = piped.pipeline()?;
        for done in 0..*ops {
            let op = workload.next();
            while !pipeline.has_room() {
                take_one(&mut pipeline, clock, seen)?;
            }
            begin(&mut pipeline, single, &op, clock, seen)?;
            report_progress(progress, preload + done + 1, total);
        }
        while pipeline.under_way() > 0 {
            take_one(&mut pipeline, clock, seen)?;
        }
        drop(pipeline);
        Ok((std::mem::take(seen), loading, clock.seconds(), workload.notes().to_vec()))
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
    seen: &mut Seen,
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
fn go_through(driver: &Driver, op: &Op, clock: &Stopwatch, seen: &mut Seen) -> Result<(), PowerOff> {
    match *op {
        Op::Seek { key, nexts } => scan(driver, key, nexts, clock, seen),
        Op::List { key, host_buffer_bytes } => {
            let began_ns = clock.ns();
            let listed = answer(driver.blocking().list(Some(key), host_buffer_bytes))?;
            seen.note(LIST, &key, clock.ns() - began_ns, listed.map(|_| ()));
            Ok(())
        }
        _ => unreachable!("the pipeline takes the others"),
    }
}

/// What the drive answered; behind a drive that is off there is no run to go on with.
fn answer<T>(result: Result<T, Error>) -> Result<Result<T, Status>, PowerOff> {
    match result {
        Ok(answer) => Ok(Ok(answer)),
        Err(Error::Status(status)) => Ok(Err(status)),
        Err(Error::PowerOff(off)) => Err(off),
        Err(Error::NoQueue(_)) => unreachable!("a command has its queue"),
    }
}

fn scan(driver: &Driver, from: Key, nexts: u32, clock: &Stopwatch, seen: &mut Seen) -> Result<(), PowerOff> {
    let mut region = Region::new();
    let began_ns = clock.ns();
    let opened = answer(driver.blocking().seek(Some(from), &mut region))?;
    seen.note(SEEK, &from, clock.ns() - began_ns, opened.as_ref().map(|_| ()).map_err(|status| *status));
    let Ok((iterator, mut pair)) = opened else { return Ok(()) };
    seen.note_pair(SEEK, pair);
    let mut refused = false;
    for _ in 0..nexts {
        if pair.is_none() {
            break;
        }
        let began_ns = clock.ns();
        let next = answer(driver.blocking().next(iterator, &mut region))?;
        seen.note(NEXT, &from, clock.ns() - began_ns, next.map(|_| ()));
        let Ok(next) = next else {
            refused = true;
            break;
        };
        pair = next;
        seen.note_pair(NEXT, pair);
    }
    // Whatever became of it: the drive has few iterators. Of one scan, one error is enough.
    let closed = answer(driver.blocking().close(iterator))?;
    if let Err(status) = closed
        && !refused
    {
        seen.note_error(SEEK, &from, &status);
    }
    Ok(())
}

fn take_one(pipeline: &mut Pipeline<'_, Timed>, clock: &Stopwatch, seen: &mut Seen) -> anyhow::Result<()> {
    let Some(Completion { key, value, result }) = pipeline.next_completion()? else { return Ok(()) };
    let answered = result.as_ref().map(|_| ()).map_err(|status| *status);
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
