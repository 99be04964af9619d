//! Sweeps: their points, the line of each, and the file of lines. The executor that computes them is
//! Python's.

use std::path::PathBuf;
use std::sync::Mutex;

use kvdrive::Error;
use kvdrive_experiments::sweep::{self, Point, Row};
use pyo3::prelude::*;

use crate::failure::{self, exception};
use crate::runs::run_alone;
use crate::settings::{self, Argument};
use crate::waiting::{Stop, wait};

/// The rows of a sweep.
#[pyclass(frozen, module = "kvdrive._native")]
pub struct Sweep {
    rows: Vec<Row>,
}

#[pymethods]
impl Sweep {
    /// A sweep from text in the form of the files of `kvdrive sweep`; messages refer to it as `name`.
    #[new]
    fn new(py: Python<'_>, name: &str, text: &str) -> PyResult<Sweep> {
        let rows = py.detach(|| sweep::rows(name, text)).map_err(|error| refused(py, &error))?;
        Ok(Sweep { rows })
    }

    /// Every row as JSON, for [`run_point`].
    fn points(&self) -> Vec<String> {
        let json = |row: &Row| serde_json::to_string(&row.point()).expect("a point is JSON");
        self.rows.iter().map(json).collect()
    }

    /// Opens a file of its lines.
    fn open(&self, py: Python<'_>, path: PathBuf) -> PyResult<SweepFile> {
        let file = sweep::SweepFile::open(&path, &self.rows).map_err(|error| failed(py, &error))?;
        Ok(SweepFile(Mutex::new(Some(file))))
    }
}

/// A file of lines, to which no other sweep writes until it is closed.
#[pyclass(frozen, module = "kvdrive._native")]
pub struct SweepFile(Mutex<Option<sweep::SweepFile>>);

#[pymethods]
impl SweepFile {
    /// Remarks for the user on the lines that the file had.
    fn remarks(&self) -> Vec<String> {
        let file = self.0.lock().expect("no call panicked");
        file.as_ref().map_or_else(Vec::new, |file| file.remarks(kvdrive_revision::REVISION))
    }

    /// Adds a line of [`run_point`].
    fn add(&self, py: Python<'_>, line: &str) -> PyResult<()> {
        let mut file = self.0.lock().expect("no call panicked");
        file.as_mut().map_or(Ok(()), |file| file.add(line)).map_err(|error| failed(py, &error))
    }

    /// Closes it: other sweeps may write to it.
    fn close(&self) {
        self.0.lock().expect("no call panicked").take();
    }
}

/// Runs one point, and returns its line.
#[pyfunction]
#[pyo3(signature = (point, remember, stop=None))]
pub fn run_point(py: Python<'_>, point: &str, remember: bool, stop: Option<&Stop>) -> PyResult<String> {
    let point = serde_json::from_str::<Point>(point).map_err(anyhow::Error::from).and_then(Point::row);
    let row = point.map_err(|error| refused(py, &error))?;
    wait(py, stop.cloned().unwrap_or_default(), None, move |stop, _| {
        row.line(&run_alone(row.document.clone(), remember, stop)?)
    })
}

/// The `KEY=VALUE` of keyword arguments.
#[pyfunction]
pub fn assignments(py: Python<'_>, arguments: Vec<Argument>) -> PyResult<Vec<String>> {
    settings::of_all_runs(&arguments).map_err(|error| exception(py, &error))
}

/// The key of a keyword argument.
#[pyfunction]
pub fn key(py: Python<'_>, argument: &str) -> PyResult<&'static str> {
    settings::key(argument).map_err(|error| exception(py, &error))
}

fn refused(py: Python<'_>, error: &anyhow::Error) -> PyErr {
    exception(py, &failure::refused(error))
}

fn failed(py: Python<'_>, error: &anyhow::Error) -> PyErr {
    exception(py, &Error::Run(format!("{error:#}")))
}
