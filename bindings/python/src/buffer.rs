//! Memory that crosses between Rust and Python without a copy: [`Buffer`], retrieved values that Python reads in place;
//! [`Source`] and [`Target`], memory of Python's that calls read and write in place.

use std::ffi::c_int;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

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

/// The bytes of an object, in place. The caller of the package keeps them unchanged until its call has ended.
pub enum Source {
    /// Of a `bytes` object, which cannot change.
    Kept(PyBackedBytes),
    /// Of any other object; its buffer is exported, so that the object keeps its memory.
    Held(PyUntypedBuffer),
}

impl<'py> FromPyObject<'_, 'py> for Source {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Source> {
        match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(Source::Kept(bytes.to_owned().into())),
            Err(_) => in_place(&object).map(Source::Held),
        }
    }
}

impl Source {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Source::Kept(bytes) => bytes,
            Source::Held(held) if held.len_bytes() == 0 => &[],
            // SAFETY: the memory has this size, is C-contiguous and is not freed while the buffer is exported. No code
            // writes to it meanwhile: that is what the package's documentation asks of its caller.
            Source::Held(held) => unsafe {
                std::slice::from_raw_parts(held.buf_ptr().cast_const().cast(), held.len_bytes())
            },
        }
    }
}

/// Memory of an object, to which a value is written in place. No other code uses it until the call has ended.
pub struct Target(PyUntypedBuffer);

impl<'py> FromPyObject<'_, 'py> for Target {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Target> {
        let held = in_place(&object)?;
        match held.readonly() {
            true => Err(PyTypeError::new_err(format!(
                "{} is read-only: no value can be written to it",
                class(&object)
            ))),
            false => Ok(Target(held)),
        }
    }
}

impl Target {
    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.0.len_bytes()
    }

    /// The memory.
    pub fn bytes(&mut self) -> &mut [u8] {
        match self.len() {
            0 => &mut [],
            // SAFETY: as in `Source::bytes`; the memory is writable, and no code reads or writes it meanwhile: that is what
            // the package's documentation asks of its caller.
            bytes => unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), bytes) },
        }
    }
}

fn in_place(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let Ok(held) = PyUntypedBuffer::get(object) else {
        let line = format!(
            "{} has no bytes in place: pass bytes, bytearray, or a C-contiguous memoryview or NumPy array; a tensor of torch \
             as tensor.view(torch.uint8).numpy()",
            class(object)
        );
        return Err(PyTypeError::new_err(line));
    };
    match held.is_c_contiguous() {
        true => Ok(held),
        false => {
            Err(PyValueError::new_err(format!("{} is not C-contiguous: pass a copy of it", class(object))))
        }
    }
}

/// The name of an object's class.
fn class(object: &Bound<'_, PyAny>) -> String {
    object.get_type().fully_qualified_name().map_or_else(|_| "the object".to_owned(), |name| name.to_string())
}
