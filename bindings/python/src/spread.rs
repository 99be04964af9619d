//! Which of several drives has a key: by crate `host`, as in the command.

use kvdrive::Error;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::drive::is_address;
use crate::failure::exception;

/// Keys over drives with these names; an address is named as in `kvdrive run --connect`.
#[pyclass(frozen, module = "kvdrive._native")]
pub struct Spread(kvdrive::Spread);

#[pymethods]
impl Spread {
    #[new]
    fn new(py: Python<'_>, names: Vec<String>) -> PyResult<Spread> {
        let refused = |problem: String| exception(py, &Error::configuration("profile", problem));
        let named = |name: String| match is_address(&name) {
            true => kvdrive_run::wall::connected::address(&name),
            false => Ok(name),
        };
        let names: Vec<String> = names.into_iter().map(named).collect::<Result<_, _>>().map_err(refused)?;
        kvdrive::Spread::new(&names).map(Spread).map_err(refused)
    }

    /// The number of the drive that has this key.
    fn place(&self, key: PyBackedBytes) -> usize {
        self.0.place(&key)
    }

    /// The numbers of the drives that have these keys.
    fn places(&self, keys: Vec<PyBackedBytes>) -> Vec<usize> {
        keys.iter().map(|key| self.0.place(key)).collect()
    }
}
