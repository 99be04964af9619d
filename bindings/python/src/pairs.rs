//! Iterators over keys, values and pairs.

use std::sync::{Arc, Mutex};

use kvdrive::{Client, OwnedPairs};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::failure::{exception, forked};

/// Which part of a pair an iterator hands out.
#[derive(Clone, Copy)]
pub enum Part {
    /// The key.
    Key,
    /// The value.
    Value,
    /// Both.
    Pair,
}

/// Goes through the pairs of a drive as they were when it was made.
#[pyclass(frozen, module = "kvdrive._native")]
pub struct Pairs {
    process: u32,
    part: Part,
    prefix: Vec<u8>,
    is_ordered: bool,
    /// `None`: it has ended.
    pairs: Mutex<Option<OwnedPairs>>,
}

impl Pairs {
    /// The pairs whose keys begin with `prefix`. A drive that keeps keys in order begins and ends there; another
    /// one goes through all.
    pub fn open(
        client: &Arc<Client>,
        part: Part,
        prefix: Vec<u8>,
        is_ordered: bool,
    ) -> Result<Pairs, kvdrive::Error> {
        let start = Some(&prefix[..]).filter(|prefix| is_ordered && !prefix.is_empty());
        let pairs = Mutex::new(Some(client.owned_pairs(start)?));
        Ok(Pairs { process: std::process::id(), part, prefix, is_ordered, pairs })
    }

    fn next(&self) -> Option<Result<kvdrive::Pair, kvdrive::Error>> {
        let mut pairs = self.pairs.lock().expect("no call panicked");
        loop {
            let next = pairs.as_mut()?.next();
            match &next {
                Some(Ok((key, _))) if key.starts_with(&self.prefix) => return next,
                Some(Ok(_)) if !self.is_ordered => continue,
                Some(Err(_)) => return next,
                Some(Ok(_)) | None => *pairs = None,
            }
        }
    }
}

#[pymethods]
impl Pairs {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if std::process::id() != self.process {
            return Err(forked(py));
        }
        let Some(next) = py.detach(|| self.next()) else { return Ok(None) };
        let (key, value) = next.map_err(|error| exception(py, &error))?;
        let [key, value] = [key, value].map(|bytes| PyBytes::new(py, &bytes).into_any());
        Ok(Some(match self.part {
            Part::Key => key,
            Part::Value => value,
            Part::Pair => PyTuple::new(py, [key, value])?.into_any(),
        }))
    }
}

impl Drop for Pairs {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // The drive's threads are the parent's: closing would wait for them.
            std::mem::forget(self.pairs.get_mut().ok().and_then(Option::take));
        }
    }
}
