//! Runs in model time, with the reports of the command.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvdrive::Error;
use kvdrive_config::Document;
use kvdrive_results::{ResultCache, folder_of_user};
use kvdrive_run::many::{check, in_model_time, run_sessions, sessions};
use kvdrive_run::report::{self, Report};
use kvdrive_run::{Progress, Watch, operations, run_watched};
use pyo3::prelude::*;

use crate::failure::exception;
use crate::settings::{self, Argument};

/// How often a thread that waits for a run looks whether Ctrl-C was pressed.
const LOOK: Duration = Duration::from_millis(50);

/// A report as JSON, as a flat record in JSON, and as tables.
type Texts = (String, String, String);

/// Runs one workload on one drive in model time, unless its report is remembered.
#[pyfunction]
pub fn run(
    py: Python<'_>,
    profile: Option<&str>,
    arguments: Vec<Argument>,
    remember: bool,
) -> PyResult<Texts> {
    let document = py.detach(|| of_one(profile, &arguments)).map_err(|error| exception(py, &error))?;
    let report = wait(py, move |stop| {
        let run = |documents: &[Document], progress: Progress<'_>| {
            let watch = Watch { stop: stop.clone(), ..Watch::progress(progress) };
            let ran = run_watched(&documents[0], &[], &watch)?;
            // What was stopped is no result of this configuration.
            anyhow::ensure!(!ran.is_stopped, "stopped");
            Ok(vec![ran.report])
        };
        let mut reports = cache(remember).reports(&[document], &|_, _| (), run)?;
        Ok(reports.pop().expect("a report for the run"))
    })?;
    Ok(texts(&report))
}

/// The results of this user: those of the command, too, if it is of the same revision. The file of a module that is not as
/// committed may be another one by now than the one that runs, so nothing is remembered of its results.
fn cache(remember: bool) -> ResultCache {
    match folder_of_user().filter(|_| remember && kvdrive_revision::is_committed()) {
        Some(folder) => ResultCache::open(folder, kvdrive_revision::REVISION.to_owned()),
        None => ResultCache::none(),
    }
}

/// Runs several, those that may share a drive after each other on it, and the others on all cores. Returns the
/// reports, and the table that compares them.
#[pyfunction]
pub fn compare(
    py: Python<'_>,
    profile: Option<&str>,
    runs: Vec<Vec<Argument>>,
    remember: bool,
) -> PyResult<(Vec<Texts>, String)> {
    let documents = py.detach(|| of_several(profile, &runs)).map_err(|error| exception(py, &error))?;
    let reports = wait(py, move |_| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let cache = cache(remember);
        let ahead = cache.ahead(&documents, &sessions(&documents)?)?;
        let run = |runs: &[Document], progress: Progress<'_>| cache.run_session(runs, progress);
        run_sessions(&documents, &ahead.sessions, threads, &run, &|_, _, _| ())
    })?;
    Ok((reports.iter().map(texts).collect(), report::compare(&reports)))
}

fn of_one(profile: Option<&str>, arguments: &[Argument]) -> Result<Document, Error> {
    let (document, assigned) = settings::document(profile, &settings::of(arguments)?)?;
    let config = document.config()?;
    in_model_time(&config).map_err(refused)?;
    // A workload that there is none of is the setting's fault.
    operations(&config).map_err(refused)?;
    settings::check_looked_at(&assigned, &[config])?;
    Ok(document)
}

fn of_several(profile: Option<&str>, runs: &[Vec<Argument>]) -> Result<Vec<Document>, Error> {
    let mut documents = Vec::with_capacity(runs.len());
    let (mut configs, mut all_assigned) = (Vec::new(), Vec::new());
    for arguments in runs {
        let (document, assigned) = settings::document(profile, &settings::of(arguments)?)?;
        let config = document.config()?;
        operations(&config).map_err(refused)?;
        configs.push(config);
        documents.push(document);
        all_assigned.push(assigned);
    }
    // A setting may be for some of the runs alone.
    all_assigned.iter().try_for_each(|assigned| settings::check_looked_at(assigned, &configs))?;
    check(&documents).map_err(refused)?;
    Ok(documents)
}

fn refused(error: anyhow::Error) -> Error {
    Error::Configuration(format!("{error:#}"))
}

/// Runs `work` on a thread of its own, so that this one hears of Ctrl-C: then the run is told to stop, and no longer
/// waited for once it has. A run also calls from stacks of its own, which the interpreter must not meet.
fn wait<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(Arc<AtomicBool>) -> anyhow::Result<T> + Send + 'static,
) -> PyResult<T> {
    let (stop, (end, ended)) = (Arc::new(AtomicBool::new(false)), channel());
    let stopping = stop.clone();
    let thread = std::thread::Builder::new().name("kvdrive run".into());
    // The interpreter's lock is let go of by what is `Sync` alone.
    let ended = Mutex::new(ended);
    thread.spawn(move || _ = end.send(work(stopping)))?;
    loop {
        match py.detach(|| ended.lock().expect("one thread waits").recv_timeout(LOOK)) {
            Ok(result) => return result.map_err(|error| exception(py, &Error::Run(format!("{error:#}")))),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(interrupt) = py.check_signals() {
                    stop.store(true, Ordering::Relaxed);
                    return Err(interrupt);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(exception(py, &Error::Run("the run has panicked; its message is above".into())));
            }
        }
    }
}

fn texts(report: &Report) -> Texts {
    let json = serde_json::to_string(report).expect("a report is JSON");
    let record = serde_json::to_string(&report::record(report)).expect("a record is JSON");
    (json, record, report.to_string())
}
