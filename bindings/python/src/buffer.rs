//! Class `Buffer`: memory of retrieved values, which Python reads in place.

use std::ffi::c_int;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Bytes that do not change any more.
#[pyclass(frozen, module = "kvdrive._native")]
pub struct Buffer(Vec<u8>);

impl Buffer {
    /// A buffer of these bytes.
    pub fn new(bytes: Vec<u8>) -> Buffer {
        Buffer(bytes)
    }
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = &slf.get().0;
        // SAFETY: the interpreter passes a view to be filled; the view keeps `slf`, and with it the bytes,
        // alive until it is released. The view is read-only, and no code changes the bytes.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                bytes.as_ptr().cast_mut().cast(),
                bytes.len() as ffi::Py_ssize_t,
                1,
                flags,
            )
        };
        if filled == 0 { Ok(()) } else { Err(PyBufferError::new_err("values are read-only")) }
    }
}
