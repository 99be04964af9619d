//! Class `Buffer`: memory of values that were retrieved, which Python reads where it is.

use std::ffi::c_int;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Bytes that nothing changes any more.
#[pyclass(frozen, module = "kvdrive._native")]
pub struct Buffer(Vec<u8>);

impl Buffer {
    /// Of these bytes.
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
        // SAFETY: the interpreter hands in a view to be filled, which keeps `slf`, and with it the bytes, alive until it is
        // released. They are read-only there, and nothing changes them here.
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
