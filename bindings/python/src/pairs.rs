//! Iterators over keys, values and pairs.

use std::sync::{Arc, Mutex};

use kvdrive::{Client, Error, ForkCount, OwnedKeys, OwnedPairs, Pair};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::failure::{exception, forked};

/// The part of a pair that an iterator returns.
#[derive(Clone, Copy)]
pub enum Part {
    /// The key.
    Key,
    /// The value.
    Value,
    /// Both.
    Pair,
}

/// The drive's iteration.
enum Source {
    /// Keys alone.
    Keys(OwnedKeys),
    /// Pairs as they were at the first call.
    Pairs(OwnedPairs),
}

/// Iterates over a drive's pairs.
#[pyclass(frozen, module = "kvdrive._native")]
pub struct Pairs {
    forks: ForkCount,
    part: Part,
    /// `None`: it has ended.
    source: Mutex<Option<Source>>,
}

impl Pairs {
    /// Iterates over the pairs whose keys begin with `prefix`.
    pub fn open(client: &Arc<Client>, part: Part, prefix: &[u8]) -> Result<Pairs, Error> {
        let source = match part {
            Part::Key => Source::Keys(client.owned_keys(prefix)?),
            Part::Value | Part::Pair => Source::Pairs(client.owned_pairs(prefix)?),
        };
        Ok(Pairs { forks: ForkCount::now(), part, source: Mutex::new(Some(source)) })
    }

    /// The next key, with its value if the iterator reads values.
    fn next(&self) -> Option<Result<Pair, Error>> {
        let mut source = self.source.lock().expect("no call panicked");
        let next = match source.as_mut()? {
            Source::Keys(keys) => keys.next().map(|key| key.map(|key| (key, Vec::new()))),
            Source::Pairs(pairs) => pairs.next(),
        };
        if next.is_none() {
            *source = None;
        }
        next
    }
}

#[pymethods]
impl Pairs {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.forks.is_forked() {
            return Err(forked(py, "next"));
        }
        let Some(next) = py.detach(|| self.next()) else { return Ok(None) };
        let (key, value) = next.map_err(|error| exception(py, &error))?;
        Ok(Some(match self.part {
            Part::Key => PyBytes::new(py, &key).into_any(),
            Part::Value => PyBytes::new(py, &value).into_any(),
            Part::Pair => PyTuple::new(py, [PyBytes::new(py, &key), PyBytes::new(py, &value)])?.into_any(),
        }))
    }
}

impl Drop for Pairs {
    fn drop(&mut self) {
        if self.forks.is_forked() {
            // The drive's threads belong to the parent process: closing would wait for them.
            std::mem::forget(self.source.get_mut().ok().and_then(Option::take));
        }
    }
}
