//! Errors of the library as exceptions of Python. Their classes are in `python/kvdrive/_errors.py`.

use anyhow::Error as Reason;
use kvdrive::Error;
use kvdrive_config::ConfigError;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyType};

static DRIVE_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static CONFIGURATION_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static SIZE_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static DRIVE_OFF: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The exception for `error`, with its parts.
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let (class, name) = match error {
        Error::Configuration { .. } => (&CONFIGURATION_ERROR, "ConfigurationError"),
        Error::KeySize(_) | Error::ValueSize { .. } => (&SIZE_ERROR, "SizeError"),
        Error::Off => (&DRIVE_OFF, "DriveOff"),
        _ => (&DRIVE_ERROR, "DriveError"),
    };
    let status = error.status();
    let key = error.pair().map(|key| PyBytes::new(py, &key.to_vec()).unbind());
    let parts = (
        error.to_string(),
        status.map(|status| status.raw()),
        status.and_then(|status| status.name()),
        error.call(),
        key,
        error.setting(),
        error.allowed(),
    );
    let made = class.import(py, "kvdrive._errors", name).and_then(|class| class.call1(parts));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// The exception for `error` of the call at place `index` of a list of calls.
pub fn exception_at(py: Python<'_>, index: usize, error: &Error) -> PyErr {
    let exception = exception(py, error);
    match exception.value(py).setattr("index", index) {
        Ok(()) => exception,
        Err(error) => error,
    }
}

/// The exception for a value that does not fit in the memory at place `index` of a list.
pub fn too_small(py: Python<'_>, index: usize, key: &[u8], bytes: u32, room: usize) -> PyErr {
    let line = format!("get: buffer {index} has room for {room} bytes, and the value has {bytes}");
    let parts = (line, None::<u16>, None::<&str>, "get", PyBytes::new(py, key));
    let made = SIZE_ERROR.import(py, "kvdrive._errors", "SizeError").and_then(|class| class.call1(parts));
    made.and_then(|error| error.setattr("index", index).map(|()| PyErr::from_value(error)))
        .unwrap_or_else(|error| error)
}

/// The exception for an invalid configuration, with this reason.
pub fn refused(reason: &Reason) -> Error {
    match reason.downcast_ref::<ConfigError>() {
        Some(ConfigError { key, problem }) => Error::configuration(key, problem),
        None => Error::Configuration { at: None, problem: format!("{reason:#}") },
    }
}

/// The exception for a handle that a forked child has inherited: the threads of the drive stayed with the
/// parent.
pub fn forked(py: Python<'_>, call: &'static str) -> PyErr {
    exception(py, &Error::ForkedChild { call })
}

/// The exception for a key without a pair.
pub fn missing(py: Python<'_>, key: &[u8]) -> PyErr {
    PyKeyError::new_err(PyBytes::new(py, key).unbind())
}
