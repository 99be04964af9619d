//! Rust's own calls on a drive, for `examples/speed.py`: Python's calls are compared with them, in one run.

use std::sync::Mutex;

use kvdrive::{Client, Drive, Error};
use pyo3::prelude::*;

use crate::failure::exception;

/// A drive whose calls are made here, without objects of Python.
#[pyclass(frozen, module = "kvdrive._native")]
pub struct RustCalls(Mutex<(Drive, Client)>);

#[pymethods]
impl RustCalls {
    #[new]
    fn new(py: Python<'_>) -> PyResult<RustCalls> {
        let opened = || {
            let drive = kvdrive::build().set("media.kind", "ram").open()?;
            let client = drive.client()?;
            Ok(RustCalls(Mutex::new((drive, client))))
        };
        py.detach(opened).map_err(|error: Error| exception(py, &error))
    }

    /// Stores `count` values by a pipeline.
    fn store_many(&self, py: Python<'_>, count: u32, value_bytes: usize) -> PyResult<()> {
        let value = vec![7; value_bytes];
        self.pipelined(py, count, |pipeline, key| pipeline.store(key, &value[..]))
    }

    /// Retrieves them by a pipeline.
    fn retrieve_many(&self, py: Python<'_>, count: u32) -> PyResult<()> {
        self.pipelined(py, count, |pipeline, key| pipeline.get(key))
    }

    /// Retrieves them one after the other.
    fn retrieve_each(&self, py: Python<'_>, count: u32) -> PyResult<()> {
        let work = || {
            let calls = self.0.lock().expect("no call panicked");
            (0..count).try_for_each(|number| calls.1.get(&number.to_be_bytes()).map(drop))
        };
        py.detach(work).map_err(|error| exception(py, &error))
    }
}

impl RustCalls {
    fn pipelined(
        &self,
        py: Python<'_>,
        count: u32,
        begin: impl Fn(&mut kvdrive::Pipeline<'_>, &[u8]) -> Result<Option<kvdrive::Ended>, Error> + Sync,
    ) -> PyResult<()> {
        let work = || {
            let mut calls = self.0.lock().expect("no call panicked");
            let mut pipeline = calls.1.pipeline()?;
            // Values are kept until the end, as in a list of Python.
            let mut answers = Vec::with_capacity(count as usize);
            for number in 0..count {
                answers.extend(begin(&mut pipeline, &number.to_be_bytes())?);
            }
            while let Some(ended) = pipeline.next_ended()? {
                answers.push(ended);
            }
            answers.into_iter().try_for_each(|ended| ended.result.map(drop))
        };
        py.detach(work).map_err(|error| exception(py, &error))
    }
}
