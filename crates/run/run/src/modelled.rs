//! A run in model time: drive, link and host on one executor, from power-on to the last report.

use std::rc::Rc;
use std::sync::{Arc, Mutex};

use kvdrive_device::Drive;
use kvdrive_flash::faults::Rule;
use kvdrive_link::{Link, LocalMemory};
use kvdrive_sim::wall::{Stopwatch, lock};
use kvdrive_sim::{Histogram, Ns, Sim, TaskCell};

use kvdrive_config::{Config, Document};
use kvdrive_workload::{self as workload, Workload, WorkloadParams};

use crate::intervals::Slices;
use crate::memory::Spending;
use crate::outcome::{Loading, Outcome};
use crate::places::HostSide;
use crate::report::{Report, Series};
use crate::snapshot::DriveSnapshot;
use crate::stream::{Clock, Stream};
use crate::verify::{ReadBack, Verifier};
use crate::watch::{Progress, RunProgress, Watch};
use crate::work::Work;

/// Runs `document`.
///
/// # Errors
/// The configuration is invalid, its values have more bytes than the flash, or the run cannot be carried out.
pub fn run(document: &Document, progress: Progress<'_>) -> anyhow::Result<Report> {
    run_counted(document, &Watch::progress(progress)).map(|(report, _)| report)
}

/// As [`run`], with fault rules. They are active from the first measured operation on; loading happens
/// without them.
pub fn run_faulty(document: &Document, rules: &[Rule], progress: Progress<'_>) -> anyhow::Result<Report> {
    run_watched(document, rules, &Watch::progress(progress))?.whole()
}

/// A run that has ended.
pub struct FinishedRun {
    /// Its report.
    pub report: Report,
    /// Latencies of its operations in ns, by kind; only kinds that occurred.
    pub latencies: Vec<(&'static str, Histogram)>,
    /// Why it is not whole, although there was no request to stop it. The file of the workload is damaged, or over a
    /// network the connection was lost: the report covers the operations that were done. In wall time, its recording could
    /// not be written: the report covers all.
    pub failure: Option<anyhow::Error>,
}

impl FinishedRun {
    /// The report of a run that is whole.
    ///
    /// # Errors
    /// Why it is not.
    pub fn whole(self) -> anyhow::Result<Report> {
        self.failure.map_or(Ok(self.report), Err)
    }
}

/// As [`run_faulty`]; `watch` observes the run and may stop it.
pub fn run_watched(document: &Document, rules: &[Rule], watch: &Watch<'_>) -> anyhow::Result<FinishedRun> {
    let (mut ran, _) = run_all(std::slice::from_ref(document), rules, watch)?;
    Ok(ran.pop().expect("a report for the run"))
}

/// As [`run`]; also returns the number of simulation events from power-on to the end. `watch` observes the run and may
/// stop it.
pub fn run_counted(document: &Document, watch: &Watch<'_>) -> anyhow::Result<(Report, u64)> {
    let (mut ran, events) = run_all(std::slice::from_ref(document), &[], watch)?;
    Ok((ran.pop().expect("a report for the run").whole()?, events))
}

/// Runs `documents` in sequence on one drive, which is loaded by the settings of the first one.
///
/// # Errors
/// Two of them describe different drives or hosts, or a run fails.
pub fn run_session(documents: &[Document], progress: Progress<'_>) -> anyhow::Result<Vec<Report>> {
    let ran = run_session_watched(documents, &Watch::progress(progress))?;
    ran.into_iter().map(FinishedRun::whole).collect()
}

/// As [`run_session`]; `watch` observes the runs and may stop them.
pub fn run_session_watched(documents: &[Document], watch: &Watch<'_>) -> anyhow::Result<Vec<FinishedRun>> {
    run_all(documents, &[], watch).map(|(ran, _)| ran)
}

fn run_all(
    documents: &[Document],
    rules: &[Rule],
    watch: &Watch<'_>,
) -> anyhow::Result<(Vec<FinishedRun>, u64)> {
    let configs = documents.iter().map(Document::config).collect::<Result<Vec<_>, _>>()?;
    configs[0].check_room()?;
    for config in &configs[1..] {
        let same = Config { workload: configs[0].workload.clone(), ..config.clone() } == configs[0];
        anyhow::ensure!(same, "{}: runs of one session share all but their workload", config.workload.name);
    }
    let stopwatch = Stopwatch::start();
    let bench = Bench::new(&configs[0])?;
    let outcomes = bench.sim.block_on(|| bench.measure(&configs, rules, watch))?;
    let mut all = Vec::with_capacity(outcomes.len());
    for (((outcome, failure), document), config) in outcomes.into_iter().zip(documents).zip(&configs) {
        let latencies = outcome.seen.latencies();
        let report = outcome.into_report(document, config)?;
        all.push(FinishedRun { report, latencies, failure });
    }
    // The wall time of the session is shared evenly: it cannot be attributed to single runs while several
    // sessions run.
    all.iter_mut().for_each(|ran| ran.report.time.wall_s = stopwatch.seconds() / documents.len() as f64);
    let events = bench.sim.events();
    bench.sim.clear();
    Ok((all, events))
}

/// Number of operations of a run, loading included.
///
/// # Errors
/// The workload cannot be built.
pub fn operations(config: &Config) -> anyhow::Result<u64> {
    if config.workload.ends() {
        // The length of a trace is unknown until its end.
        return Ok(config.workload.ops);
    }
    let workload =
        workload::precondition::build(&config.workload, config.run.seed).map_err(anyhow::Error::msg)?;
    Ok(workload.preload() + config.workload.ops)
}

/// Approximate model time of an operation, ns: used if a run ends by its time, so that its number of
/// operations is not known before.
const OPERATION_NS: Ns = 10_000;

/// Number of operations of runs that follow each other on one drive, which is loaded once; for runs that end
/// by their time, an estimate.
///
/// # Errors
/// The workload cannot be built.
pub fn operations_of_session(documents: &[Document]) -> anyhow::Result<u64> {
    let (mut loaded, mut all) = (0, 0);
    for (number, document) in documents.iter().enumerate() {
        let config = document.config()?;
        let (ops, duration_ns) = (config.workload.ops, config.workload.duration_ns);
        if number == 0 {
            loaded = operations(&config)? - ops;
        }
        let at_once = u64::from(config.host.threads.max(config.host.depth));
        let in_time = (duration_ns / OPERATION_NS).saturating_mul(at_once);
        all += if duration_ns > 0 { ops.min(in_time) } else { ops };
    }
    Ok(loaded + all)
}

/// The measured operations of one workload, from their beginning to their end.
struct Measured {
    began: DriveSnapshot,
    ended: DriveSnapshot,
    series: Option<Series>,
    /// Operations of loading, which came before.
    loaded: u64,
}

struct Bench {
    sim: Sim,
    link: Rc<Link>,
    memory: Rc<LocalMemory>,
}

impl Bench {
    fn new(config: &Config) -> anyhow::Result<Bench> {
        let sim = Sim::new();
        let memory = Rc::new(LocalMemory::new());
        let link = Link::new(&sim, config.link.clone(), memory.clone());
        Ok(Bench { sim, link, memory })
    }

    /// The outcome of each run, and why it is not whole.
    fn measure(
        &self,
        configs: &[Config],
        rules: &[Rule],
        watch: &Watch<'_>,
    ) -> anyhow::Result<Vec<(Outcome, Option<anyhow::Error>)>> {
        let (config, progress) = (&configs[0], watch.progress);
        let has_past = config.media.file().is_some_and(|path| std::fs::exists(path).unwrap_or(true));
        let verifier = Arc::new(Mutex::new(Verifier::new(has_past)));
        let drive = Rc::new(Drive::power_on(&self.sim, &self.link, &config.drive(), None)?);
        configs.iter().try_for_each(|config| check_value_size(config, &drive))?;
        let host = Rc::new(HostSide::connect(config, &self.link, &self.memory)?);
        let total = operations(config)? + configs[1..].iter().map(|config| config.workload.ops).sum::<u64>();
        let (mut outcomes, mut done, mut loading) = (Vec::new(), 0, None);
        let mut before: Option<WorkloadParams> = None;
        for (index, config) in configs.iter().enumerate() {
            let mut params = params_after(before.as_ref(), config);
            let seed = config.run.seed + index as u64;
            let (source, ops) = open_workload(config, &params, seed, &verifier)?;
            let sees_all = !config.saker.enabled || host.places.len() == 1;
            let (memory, stop) = (Spending::of(config), watch.stop.clone());
            let work = Arc::new(Work::new(source, &params, verifier.clone(), sees_all, memory, stop));
            let clock = Clock::Model(self.sim.clone());
            let stream = Stream::new(work.clone(), &self.sim, clock, Some(drive.clone()));
            let mut notes = Vec::new();
            let tell = teller(&work, progress, done, total);
            match &before {
                None => {
                    loading = self.load(&stream, config, &drive, &host, &tell)?;
                    drive.faults().set(rules, config.run.seed);
                }
                Some(before) => {
                    notes.push(format!("after {} {} on the same drive", before.name, before.distribution));
                }
            }
            let measured = self.run_measured(&stream, config, ops, (&drive, &host), watch, &tell);
            let Measured { began, ended, series, loaded } = measured;
            done += work.done();
            let (run_ops, span_ns) = (work.done() - loaded, ended.at - began.at);
            notes_of_work(&work, config, (ops, run_ops, span_ns, ended.at), &mut notes);
            let failure = work.end(run_ops)?;
            host.sync()?;
            drive.drain();
            check_file(&drive, config)?;
            params.num += work.of_workload(|workload| workload.inserted());
            before = Some(params);
            let workload = work.of_workload(|workload| workload.counts());
            let (seen, drained) = (stream.seen.take(), self.snapshot(&drive, &host));
            notes.extend(stream.check_units(&host.places[0], seen.errors)?);
            let outcome = Outcome {
                seen,
                began,
                ended,
                drained,
                wall_ns: None,
                notes,
                is_stopped: watch.is_stopped(),
                is_behind: work.is_behind(span_ns),
                workload,
                loading: loading.clone(),
                series,
                verified: work.verified(),
            };
            outcomes.push((outcome, failure));
        }
        progress(total, total);
        Ok(outcomes)
    }

    /// Runs the measured operations of a workload, and reports them in intervals.
    fn run_measured(
        &self,
        stream: &Rc<Stream>,
        config: &Config,
        ops: u64,
        (drive, host): (&Rc<Drive>, &Rc<HostSide>),
        watch: &Watch<'_>,
        tell: &dyn Fn(u64),
    ) -> Measured {
        let work = &stream.work;
        let began = self.snapshot(drive, host);
        work.begin(&config.workload, config.run.seed, ops, began.at, 1);
        let slices = self.cut_into_slices(stream, drive, host, watch, &began);
        let sampler = stream.sample(config.run.interval_ns, began.at);
        let loaded = work.done();
        let tell = |now| {
            tell(now);
            if let Some(going) = watch.going {
                going(self.going(drive, &began, now - loaded));
            }
        };
        stream.run_tasks(&host.places, &tell);
        let ended = self.snapshot(drive, host);
        if let Some(slices) = slices {
            slices.borrow_mut().end(ended.clone(), stream.seen.borrow_mut().tally());
        }
        let series = sampler.map(|sampler| {
            let mut sampler = sampler.borrow_mut();
            sampler.end(ended.at, &stream.seen.borrow().sums());
            sampler.take()
        });
        Measured { began, ended, series, loaded }
    }

    /// Progress of the operations since `began`, of which `ops` have been answered.
    fn going(&self, drive: &Drive, began: &DriveSnapshot, ops: u64) -> RunProgress {
        RunProgress {
            ops,
            model_ns: self.sim.now() - began.at,
            programs: drive.counts().of("nand.programs") - began.counts.of("nand.programs"),
            payload_bytes: self.link.meter().payload().total() - began.counts.of("traffic.payload_bytes"),
        }
    }

    /// Reports the run in intervals if `watch` asks for that. The last interval ends with the run.
    fn cut_into_slices(
        &self,
        stream: &Rc<Stream>,
        drive: &Rc<Drive>,
        host: &Rc<HostSide>,
        watch: &Watch<'_>,
        began: &DriveSnapshot,
    ) -> Option<Rc<TaskCell<Slices>>> {
        let (link, drive, host) = (self.link.clone(), drive.clone(), host.clone());
        let now = move |sim: &Sim, _| DriveSnapshot::of(sim, &link, &drive, &host.cores);
        stream.cut_into_slices(watch, began, now)
    }

    /// Loads the pairs that the workload starts with.
    fn load(
        &self,
        stream: &Rc<Stream>,
        config: &Config,
        drive: &Drive,
        host: &HostSide,
        tell: &dyn Fn(u64),
    ) -> anyhow::Result<Option<Loading>> {
        let work = &stream.work;
        let (stores, bytes) = work.load_size();
        config.check_load(stores, bytes)?;
        if stores == 0 {
            return Ok(None);
        }
        let began = self.snapshot(drive, host);
        work.begin_loading(stores);
        if config.workload.timed_load {
            stream.run_tasks(&host.places, tell);
        } else {
            stream.load_at_once(tell);
        }
        tell(work.done());
        let seen = stream.seen.take();
        if let Some(failure) = drive.write_failure() {
            return Err(failure.into());
        }
        work.check_loaded(&config.workload.name, stores, &seen)?;
        // Pages that loading left in buffers are programmed before the run is measured.
        host.sync()?;
        drive.drain();
        let ended = self.snapshot(drive, host);
        Ok(Some(Loading { began, ended, stores, stored_bytes: seen.stored_bytes }))
    }

    fn snapshot(&self, drive: &Drive, host: &HostSide) -> DriveSnapshot {
        let mut now = DriveSnapshot::of(&self.sim, &self.link, drive, &host.cores);
        host.count(&mut now.counts);
        now
    }
}

/// Adds the notes of a run that did `run_ops` of `ops` operations in `span_ns`, until `now`: those of its workload, which a
/// trace adds while it is read, before those of the run.
fn notes_of_work(
    work: &Work,
    config: &Config,
    (ops, run_ops, span_ns, now): (u64, u64, Ns, Ns),
    notes: &mut Vec<String>,
) {
    notes.splice(0..0, work.of_workload(|workload| workload.notes().to_vec()));
    notes.extend(work.notes_at_end(&config.workload, ops, run_ops, span_ns, now));
}

/// A function that tells the progress of a run of `total` operations after `done` earlier ones, by the share of its file that
/// was read if that is known.
fn teller<'a>(work: &'a Work, progress: Progress<'a>, done: u64, total: u64) -> impl Fn(u64) + 'a {
    move |now| {
        let share = work.of_workload(|workload| workload.read_share());
        match share.filter(|share| *share > 0.0) {
            Some(share) => progress(done + now, total.min(done + (now as f64 / share) as u64)),
            None => progress(done + now, total),
        }
    }
}

/// Refuses a workload whose values are too large for the engine, or for the part of this drive that one value may take.
///
/// # Errors
/// The setting, with both sizes.
pub(crate) fn check_value_size(config: &Config, drive: &Drive) -> anyhow::Result<()> {
    let most_bytes = drive.value_max_bytes().unwrap_or(u32::MAX);
    fits(&config.workload, most_bytes, &format!("engine {} on this drive", config.engine.name))
}

/// The same, for a receiver of values of up to `most_bytes`.
pub(crate) fn fits(params: &WorkloadParams, most_bytes: u32, what: &str) -> anyhow::Result<()> {
    let has_size = params.verify != "only" && params.row().is_some_and(|row| !row.own_sizes);
    anyhow::ensure!(
        !has_size || params.value_size <= most_bytes,
        "workload.value_size: {}; {what} takes values to {most_bytes}",
        params.value_size
    );
    Ok(())
}

/// The workload of `params`, and the number of its operations. With `workload.verify=only` it reads the pairs that an
/// earlier run left, and `verifier` gets their expected values.
pub(crate) fn open_workload(
    config: &Config,
    params: &WorkloadParams,
    seed: u64,
    verifier: &Mutex<Verifier>,
) -> anyhow::Result<(Box<dyn Workload>, u64)> {
    let source = workload::precondition::build(params, seed).map_err(anyhow::Error::msg)?;
    if params.verify != "only" {
        return Ok((source, params.ops));
    }
    let read_back = ReadBack::of(source, params.ops, config.host.depth, &mut lock(verifier));
    let read_back = read_back.map_err(anyhow::Error::msg)?;
    let ops = read_back.keys();
    Ok((Box::new(read_back), ops))
}

/// The workload of `config`, on the same drive after another one: it knows the pairs that were inserted before, and no
/// version of a value occurs twice.
fn params_after(before: Option<&WorkloadParams>, config: &Config) -> WorkloadParams {
    let mut params = config.workload.clone();
    if let Some(before) = before {
        params.num = before.num;
        params.overwrites = before.num + before.overwrites + before.ops;
    }
    params
}

/// If a file cannot be written, the run fails. Flash without a spare block (a failure without a path) may be the subject
/// of the run: its report says so.
fn check_file(drive: &Drive, config: &Config) -> anyhow::Result<()> {
    let failure = drive.write_failure().filter(|failure| failure.path.is_some() && !config.media.read_only);
    failure.map_or(Ok(()), |failure| Err(failure.into()))
}
