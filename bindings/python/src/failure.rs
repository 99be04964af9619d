//! Errors of the library as exceptions of Python. Their classes are in `python/kvdrive/_errors.py`.

use kvdrive::Error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

static DRIVE_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static CONFIGURATION_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static SIZE_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static DRIVE_OFF: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The exception for `error`.
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let (class, name) = match error {
        Error::Configuration(_) => (&CONFIGURATION_ERROR, "ConfigurationError"),
        Error::KeySize(_) | Error::ValueSize { .. } => (&SIZE_ERROR, "SizeError"),
        Error::Off => (&DRIVE_OFF, "DriveOff"),
        _ => (&DRIVE_ERROR, "DriveError"),
    };
    let status = error.status();
    let arguments = (error.to_string(), status.map(|status| status.raw()), status.and_then(|s| s.name()));
    let made = class.import(py, "kvdrive._errors", name).and_then(|class| class.call1(arguments));
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

/// The exception for a handle that a forked child has inherited: the threads of the drive stayed with the parent.
pub fn forked(py: Python<'_>) -> PyErr {
    let line =
        "this drive was opened by the parent process, and its threads stayed there; open one in this process";
    exception(py, &Error::Refused(line.to_owned()))
}
