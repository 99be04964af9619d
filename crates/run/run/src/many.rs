//! Many runs at once. Each run is single-threaded and independent of the others, so runs spread over the
//! machine's cores, and every report is the same as if its run were alone. The runs of one session follow
//! each other on one drive, on one core.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{bail, ensure};

use crate::modelled::run_session;
use crate::report::Report;
use crate::watch::Progress;
use kvdrive_config::{Config, Document};
use kvdrive_text::output::spelled_out;
use kvdrive_workload::is_preconditioned;

/// Yields the reports of runs that follow each other on one drive: [`run_session`], or a cache in front of
/// it.
pub type RunSession<'a> = &'a (dyn Fn(&[Document], Progress<'_>) -> anyhow::Result<Vec<Report>> + Sync);

/// Runs every document, on up to `threads` threads; reports are in the order of the documents.
///
/// `progress` is called from several threads with the index of the run, operations done and operations in
/// all.
///
/// # Errors
/// As [`run_sessions`].
pub fn run_many(
    documents: &[Document],
    threads: usize,
    progress: &(dyn Fn(usize, u64, u64) + Sync),
) -> anyhow::Result<Vec<Report>> {
    let sessions: Vec<_> = (0..documents.len()).map(|index| vec![index]).collect();
    run_sessions(documents, &sessions, threads, &run_session, progress)
}

/// As [`run_many`], for documents grouped into sessions by index; the runs of a session follow each other on
/// one drive, by `run`. Every document belongs to one session; sessions begin in their order. Progress is
/// reported for a session as a whole, under the index of its first run.
///
/// # Errors
/// [`check`] refuses a document, or a run fails.
pub fn run_sessions(
    documents: &[Document],
    sessions: &[Vec<usize>],
    threads: usize,
    run: RunSession<'_>,
    progress: &(dyn Fn(usize, u64, u64) + Sync),
) -> anyhow::Result<Vec<Report>> {
    let reports = run_sessions_until(documents, sessions, threads, run, progress, &AtomicBool::new(false))?;
    Ok(reports.into_iter().map(|report| report.expect("every run is in a session")).collect())
}

/// As [`run_sessions`]; after `stop` is set, no session begins. A run has no report if its session had not
/// begun then, or failed after that: `run` may end early by the same flag.
///
/// # Errors
/// As [`run_sessions`].
pub fn run_sessions_until(
    documents: &[Document],
    sessions: &[Vec<usize>],
    threads: usize,
    run: RunSession<'_>,
    progress: &(dyn Fn(usize, u64, u64) + Sync),
    stop: &AtomicBool,
) -> anyhow::Result<Vec<Option<Report>>> {
    check(sessions.iter().map(|session| &documents[session[0]]))?;
    let is_stopped = || stop.load(Ordering::Relaxed);
    let ended: Vec<Mutex<Option<anyhow::Result<Vec<Report>>>>> =
        sessions.iter().map(|_| Mutex::new(None)).collect();
    spread(sessions.len(), threads, &|index| {
        if is_stopped() {
            return false;
        }
        let session = &sessions[index];
        let runs: Vec<Document> = session.iter().map(|run| documents[*run].clone()).collect();
        let reports = run(&runs, &|done, total| progress(session[0], done, total));
        *ended[index].lock().expect("a run that panics ends the program") = Some(reports);
        true
    });
    let mut reports: Vec<Option<Report>> = documents.iter().map(|_| None).collect();
    for (session, slot) in sessions.iter().zip(ended) {
        let ended = match slot.into_inner().expect("no run panicked") {
            Some(Err(_)) | None if is_stopped() => continue,
            ended => ended.expect("every session has ended")?,
        };
        for (run, report) in session.iter().zip(ended) {
            reports[*run] = Some(report);
        }
    }
    Ok(reports)
}

/// Refuses drives (each given by its first run) that cannot run side by side: with a clock that only `kvdrive
/// run` has, or with one image file for several drives, each of which would start from the state that another
/// one left.
///
/// # Errors
/// One line that names the key.
pub fn check<'a>(drives: impl IntoIterator<Item = &'a Document>) -> anyhow::Result<()> {
    let mut images: BTreeMap<PathBuf, (PathBuf, u64)> = BTreeMap::new();
    for document in drives {
        let config = document.config()?;
        in_model_time(&config)?;
        config.check_room()?;
        config.check_scans()?;
        if let (true, Some(path)) = (config.media.has_file(), &config.media.path) {
            images.entry(spelled_out(path)).or_insert((path.clone(), 0)).1 += 1;
        }
    }
    match images.into_values().find(|(_, drives)| *drives > 1) {
        Some((path, drives)) => {
            bail!("media.kind: {drives} drives on one image file, {}; take ram or tags", path.display())
        }
        None => Ok(()),
    }
}

/// Refuses a clock that only `kvdrive run` has.
///
/// # Errors
/// The configuration has such a clock.
pub fn in_model_time(config: &Config) -> anyhow::Result<()> {
    ensure!(config.run.clock != "wall", "run.clock: \"wall\" is for kvdrive run alone");
    Ok(())
}

/// Groups documents that may share a drive: those whose drives are preconditioned alike run in sequence on
/// one drive, in their order; every other one has its own.
///
/// # Errors
/// A document is no valid configuration.
pub fn sessions(documents: &[Document]) -> anyhow::Result<Vec<Vec<usize>>> {
    let mut sessions: Vec<(Option<Config>, Vec<usize>)> = Vec::new();
    for (index, document) in documents.iter().enumerate() {
        let config = document.config()?;
        let drive = is_preconditioned(&config.workload).then(|| without_measured(config));
        match sessions.iter_mut().find(|(known, _)| drive.is_some() && *known == drive) {
            Some((_, session)) => session.push(index),
            None => sessions.push((drive, vec![index])),
        }
    }
    Ok(sessions.into_iter().map(|(_, session)| session).collect())
}

/// Drive, host and load alone; settings of the measured part are set to equal values.
fn without_measured(mut config: Config) -> Config {
    let workload = &mut config.workload;
    workload.name.clear();
    workload.distribution.clear();
    workload.arrivals.clear();
    (workload.rate_per_s, workload.duration_ns) = (0, 0);
    (workload.ops, workload.scramble, workload.zipf_theta, workload.scan_length_max) = (0, false, 0.0, 0);
    workload.replayed_by = 1;
    config
}

/// Runs the documents with the indices in `order`, in that order, by `run`, and passes each report with the
/// index of its run to `ended` as soon as it is made, from several threads. After `ended` has returned false,
/// no further run begins. The caller has [checked](check) the drives.
pub fn run_each(
    documents: &[Document],
    order: &[usize],
    threads: usize,
    run: RunSession<'_>,
    progress: &(dyn Fn(usize, u64, u64) + Sync),
    ended: &(dyn Fn(usize, anyhow::Result<Report>) -> bool + Sync),
) {
    spread(order.len(), threads, &|next| {
        let index = order[next];
        let one = std::slice::from_ref(&documents[index]);
        let reports = run(one, &|done, total| progress(index, done, total));
        ended(index, reports.map(|mut reports| reports.pop().expect("a report for the run")))
    });
}

/// Calls `work` with every number below `count`, on up to `threads` threads, until it returns false.
fn spread(count: usize, threads: usize, work: &(dyn Fn(usize) -> bool + Sync)) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    if !work(index) {
                        next.store(count, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}
