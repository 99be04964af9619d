//! Classes `Saker` and `SakerHandle`: small writes that are batched, small reads from memory.

use std::sync::{Mutex, MutexGuard};

use kvdrive::Error;
use kvdrive::saker::{Handle, Saker as Shared};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use serde_json::json;

use crate::failure::{exception, missing};

/// SAKER in front of one drive: the state that its handles share.
#[pyclass(frozen, module = "kvdrive._native")]
pub struct Saker(Shared);

impl Saker {
    /// Wraps the library's SAKER.
    pub fn new(saker: Shared) -> Saker {
        Saker(saker)
    }
}

#[pymethods]
impl Saker {
    /// A handle for one thread.
    fn handle(&self, py: Python<'_>) -> PyResult<SakerHandle> {
        let handle = py.detach(|| self.0.handle()).map_err(|error| exception(py, &error))?;
        Ok(SakerHandle(Mutex::new(handle)))
    }

    /// The counts of all handles, as JSON.
    fn counts_json(&self) -> String {
        let (cache_bytes, pending_bytes) = (self.0.cache_bytes(), self.0.pending_bytes());
        let mut json = json!(self.0.counts());
        json["cache_bytes"] = cache_bytes.into();
        json["pending_bytes"] = pending_bytes.into();
        json.to_string()
    }
}

/// One thread's handle.
#[pyclass(frozen, module = "kvdrive._native")]
pub struct SakerHandle(Mutex<Handle>);

#[pymethods]
impl SakerHandle {
    fn store(&self, py: Python<'_>, key: PyBackedBytes, value: PyBackedBytes) -> PyResult<()> {
        self.call(py, |handle| handle.store(&key, &value))
    }

    fn get<'py>(&self, py: Python<'py>, key: PyBackedBytes) -> PyResult<Bound<'py, PyBytes>> {
        match self.call(py, |handle| handle.get(&key))? {
            Some(value) => Ok(PyBytes::new(py, &value)),
            None => Err(missing(py, &key)),
        }
    }

    fn delete(&self, py: Python<'_>, key: PyBackedBytes) -> PyResult<()> {
        self.call(py, |handle| handle.delete(&key))
    }

    fn exist(&self, py: Python<'_>, key: PyBackedBytes) -> PyResult<bool> {
        self.call(py, |handle| handle.exist(&key))
    }

    /// Waits until earlier writes of this handle are durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, Handle::sync)
    }

    /// Number of writes that are not known to be durable.
    fn unsynced(&self) -> u64 {
        self.handle().unsynced()
    }
}

impl SakerHandle {
    fn handle(&self) -> MutexGuard<'_, Handle> {
        self.0.lock().expect("no call panicked")
    }

    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Handle) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        py.detach(|| call(&mut self.handle())).map_err(|error| exception(py, &error))
    }
}
