//! Lists of keys or values as Python passes them: a list of `bytes` and other buffers, or one buffer with the offset of
//! each item. None of them is copied.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::buffer::Source;

/// Keys or values of a bulk call.
pub enum Items {
    /// Each item by itself.
    List(Vec<Source>),
    /// All items in one buffer.
    Buffer(Slices),
}

/// Items in one buffer, without gaps.
pub struct Slices {
    data: Source,
    ends: Ends,
}

enum Ends {
    /// All items have this size in bytes.
    Width(usize),
    /// Item `i` is from offset `i` to offset `i + 1`.
    Offsets(Vec<usize>),
}

impl<'py> FromPyObject<'_, 'py> for Items {
    type Error = PyErr;

    /// From a list, `(buffer, width)` or `(buffer, offsets)`, with offsets as a buffer of `int64`.
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Items> {
        match object.is_instance_of::<PyTuple>() {
            true => Ok(Items::Buffer(Slices::extract(object)?)),
            false => Ok(Items::List(object.extract()?)),
        }
    }
}

impl Slices {
    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Slices> {
        let (buffer, ends): (Bound<'_, PyAny>, Bound<'_, PyAny>) = object.extract()?;
        let data: Source = buffer.extract()?;
        let bytes = data.bytes().len();
        let ends = match ends.extract::<usize>() {
            Ok(width) if width > 0 && bytes.is_multiple_of(width) => Ends::Width(width),
            Ok(width) => {
                let line = format!("{bytes} bytes are no whole number of items of {width}");
                return Err(PyValueError::new_err(line));
            }
            Err(_) => Ends::Offsets(offsets(&PyBuffer::<i64>::get(&ends)?.to_vec(object.py())?, bytes)?),
        };
        Ok(Slices { data, ends })
    }
}

fn offsets(given: &[i64], bytes: usize) -> PyResult<Vec<usize>> {
    let is_ascending = given.is_sorted() && given.first().is_some_and(|first| *first >= 0);
    match given.last() {
        Some(last) if is_ascending && *last <= bytes as i64 => {
            Ok(given.iter().map(|offset| *offset as usize).collect())
        }
        _ => {
            let line =
                format!("offsets: expected one more than items, ascending, from 0 on to at most {bytes}");
            Err(PyValueError::new_err(line))
        }
    }
}

impl Items {
    /// Number of items.
    pub fn len(&self) -> usize {
        match self {
            Items::List(items) => items.len(),
            Items::Buffer(Slices { data, ends: Ends::Width(width) }) => data.bytes().len() / width,
            Items::Buffer(Slices { ends: Ends::Offsets(offsets), .. }) => offsets.len() - 1,
        }
    }

    /// The item at `place`.
    pub fn get(&self, place: usize) -> &[u8] {
        match self {
            Items::List(items) => items[place].bytes(),
            Items::Buffer(Slices { data, ends: Ends::Width(width) }) => {
                &data.bytes()[place * width..][..*width]
            }
            Items::Buffer(Slices { data, ends: Ends::Offsets(offsets) }) => {
                &data.bytes()[offsets[place]..offsets[place + 1]]
            }
        }
    }
}

/// The items as a list of `bytes`.
#[pyfunction]
pub fn listed<'py>(py: Python<'py>, items: Items) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, (0..items.len()).map(|place| PyBytes::new(py, items.get(place))))
}
