//! Many runs at once: each is single-threaded and knows nothing of the others, so they spread over the
//! machine's cores and every report is the same as alone. Runs of one session follow each other on one drive,
//! on one core.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{bail, ensure};

use crate::config::{Config, Document};
use crate::output::spelled_out;
use crate::report::Report;
use crate::run::{run, run_session};
use crate::workload::is_preconditioned;

/// Runs every document on up to `threads` threads; reports in the order of the documents.
///
/// `progress` is called with the number of the run, operations done and operations in all, from several
/// threads.
pub fn run_many(
    documents: &[Document],
    threads: usize,
    progress: &(dyn Fn(usize, u64, u64) + Sync),
) -> anyhow::Result<Vec<Report>> {
    let sessions: Vec<_> = (0..documents.len()).map(|index| vec![index]).collect();
    run_sessions(documents, &sessions, threads, progress)
}

/// As [`run_many`], for documents of which those of a session, by their numbers, follow each other on one
/// drive ([`run_session`]). Every document is in one session. Progress is that of a session, under the number
/// of its first run.
///
/// # Errors
/// [`check`] refuses one, or one fails.
pub fn run_sessions(
    documents: &[Document],
    sessions: &[Vec<usize>],
    threads: usize,
    progress: &(dyn Fn(usize, u64, u64) + Sync),
) -> anyhow::Result<Vec<Report>> {
    check(sessions.iter().map(|session| &documents[session[0]]))?;
    let ended: Vec<Mutex<Option<anyhow::Result<Vec<Report>>>>> =
        sessions.iter().map(|_| Mutex::new(None)).collect();
    spread(sessions.len(), threads, &|index| {
        let session = &sessions[index];
        let runs: Vec<Document> = session.iter().map(|run| documents[*run].clone()).collect();
        let reports = run_session(&runs, &|done, total| progress(session[0], done, total));
        *ended[index].lock().expect("a run that panics ends the program") = Some(reports);
        true
    });
    let mut reports: Vec<Option<Report>> = documents.iter().map(|_| None).collect();
    for (session, slot) in sessions.iter().zip(ended) {
        let ended = slot.into_inner().expect("no run panicked").expect("every session has ended")?;
        for (run, report) in session.iter().zip(ended) {
            reports[*run] = Some(report);
        }
    }
    Ok(reports.into_iter().map(|report| report.expect("every run is in a session")).collect())
}

/// Refuses drives, by the first run of each, that cannot be had beside each other: with a clock that only
/// `kvdrive run` has, or with one image file for several, each of which would begin with what another one
/// left.
///
/// # Errors
/// One line that names the key.
pub fn check<'a>(drives: impl IntoIterator<Item = &'a Document>) -> anyhow::Result<()> {
    let mut images: BTreeMap<PathBuf, (PathBuf, u64)> = BTreeMap::new();
    for document in drives {
        let config = document.config()?;
        in_model_time(&config)?;
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
/// It is that.
pub fn in_model_time(config: &Config) -> anyhow::Result<()> {
    ensure!(config.run.clock != "wall", "run.clock: \"wall\" is for kvdrive run alone");
    Ok(())
}

/// Which documents may share a drive: those whose drives are preconditioned alike follow each other on one,
/// in their order; every other one has its own.
///
/// # Errors
/// A document is no configuration.
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

/// Drive, host and load alone: what is asked after that is the same for all.
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

/// As [`run_many`], but hands each report to `ended` with the number of its run as soon as there is one, from
/// several threads. No further run begins once `ended` has said false. Who calls it has had the drives
/// [checked](check).
pub fn run_each(
    documents: &[Document],
    threads: usize,
    progress: &(dyn Fn(usize, u64, u64) + Sync),
    ended: &(dyn Fn(usize, anyhow::Result<Report>) -> bool + Sync),
) {
    spread(documents.len(), threads, &|index| {
        ended(index, run(&documents[index], &|done, total| progress(index, done, total)))
    });
}

/// Calls `work` with every number below `count`, on up to `threads` threads, until it says false.
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
