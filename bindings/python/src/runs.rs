//! Runs in model time, with the reports of the command.

use std::sync::Mutex;

use kvdrive::Error;
use kvdrive_config::Document;
use kvdrive_results::{Conduct, ResultCache, folder_of_user};
use kvdrive_run::plan::{Plan, in_model_time};
use kvdrive_run::report::{self, Report};
use kvdrive_run::{Watch, operations};
use pyo3::prelude::*;

use crate::failure::{exception, refused};
use crate::settings::{self, Argument};
use crate::waiting::{RunsProgress, Stop, wait};

/// A report as JSON, as a flat record in JSON, and as tables.
type Texts = (String, String, String);

/// Runs one workload on one drive in model time, unless its report is remembered.
#[pyfunction]
pub fn run(
    py: Python<'_>,
    profile: Vec<String>,
    arguments: Vec<Argument>,
    remember: bool,
) -> PyResult<Texts> {
    let document = py.detach(|| of_one(&profile, &arguments)).map_err(|error| exception(py, &error))?;
    let report = wait(py, Stop::default(), None, move |stop, _| run_alone(document, remember, stop))?;
    Ok(texts(&report))
}

/// The kind of a number of a report, by its name in a flat record: `counted`, `modelled` or `measured`.
#[pyfunction]
pub fn kind(name: &str) -> &'static str {
    kvdrive_run::report::kind_of(name).name()
}

/// The report of one run, unless it is stopped.
pub fn run_alone(document: Document, remember: bool, stop: &Stop) -> anyhow::Result<Report> {
    let watch = Watch { stop: stop.flag().clone(), ..Watch::progress(&|_, _| ()) };
    let ran = cache(remember).run_session(&[document], &watch)?.pop().expect("a report for the run");
    // A stopped run is no result of this configuration.
    anyhow::ensure!(!ran.report.is_stopped, "stopped");
    ran.whole()
}

/// The results of this user, shared with the command if it has the same revision. If a module is not as
/// committed, its file may differ from the running one by now, so nothing is remembered.
pub fn cache(remember: bool) -> ResultCache {
    match folder_of_user().filter(|_| remember && kvdrive_revision::is_committed()) {
        Some(folder) => ResultCache::open(folder, kvdrive_revision::REVISION.to_owned()),
        None => ResultCache::none(),
    }
}

/// Runs several: those that may share a drive run on it one after another, and the others on all cores.
/// Returns the reports, and the table that compares them. `tell` is called with their progress, as in
/// [`wait`].
#[pyfunction]
pub fn compare(
    py: Python<'_>,
    profile: Vec<String>,
    arguments: Vec<Argument>,
    remember: bool,
    tell: Option<Py<PyAny>>,
) -> PyResult<(Vec<Texts>, String)> {
    let plan = py.detach(|| of_several(&profile, &arguments)).map_err(|error| exception(py, &error))?;
    let reports =
        wait(py, Stop::default(), tell.as_ref(), move |stop, going| run_all(&plan, remember, stop, going))?;
    let reports: Vec<_> = reports.into_iter().flatten().collect();
    Ok((reports.iter().map(texts).collect(), report::compare(&reports)))
}

/// The reports of all runs of `plan`; `stop` ends them. Runs that have ended by then are remembered.
pub fn run_all(
    plan: &Plan,
    remember: bool,
    stop: &Stop,
    going: &RunsProgress,
) -> anyhow::Result<Vec<Option<Report>>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let cache = cache(remember);
    let order = cache.ahead(plan)?;
    going.begin(order.in_words(threads), plan.documents().len());
    let ended: Vec<_> = plan.documents().iter().map(|_| Mutex::new(None)).collect();
    let conduct = Conduct { threads, stop: stop.flag().clone(), progress: &|_, _, _| () };
    cache.carry_out(plan, &order, &conduct, &|run, ran| {
        *ended[run].lock().expect("nothing panics under it") = Some(ran?.whole()?);
        going.end(1);
        Ok(())
    })?;
    // Verdicts, curves and tables need complete runs.
    stop.check()?;
    Ok(ended.into_iter().map(|report| report.into_inner().expect("no run panicked")).collect())
}

fn of_one(profile: &[String], arguments: &[Argument]) -> Result<Document, Error> {
    let options = settings::options(profile, arguments)?;
    if let Some(list) = options.first_list() {
        return Err(Error::configuration(list, "a run takes one value of each setting; compare takes lists"));
    }
    let document = options.document_of_run()?;
    let config = document.config()?;
    in_model_time(&config).map_err(|reason| refused(&reason))?;
    // If there is no such workload, the error names the setting.
    operations(&config).map_err(|reason| refused(&reason))?;
    Ok(document)
}

fn of_several(profile: &[String], arguments: &[Argument]) -> Result<Plan, Error> {
    let documents = settings::options(profile, arguments)?.documents()?;
    for document in &documents {
        operations(&document.config()?).map_err(|reason| refused(&reason))?;
    }
    let plan = Plan::sharing(documents).map_err(|reason| refused(&reason))?;
    plan.check().map_err(|reason| refused(&reason))?;
    Ok(plan)
}

fn texts(report: &Report) -> Texts {
    let json = serde_json::to_string(report).expect("a report is JSON");
    let record = serde_json::to_string(&report::record(report)).expect("a record is JSON");
    (json, record, report.to_string())
}
