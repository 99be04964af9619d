//! Module `kvdrive._native`: drives and runs for package `kvdrive` of Python, which is in folder `python/`.
//!
//! Every call lets go of the interpreter's lock before it waits for a drive or computes a run. Reports cross as
//! JSON text, the same that the command writes.

mod drive;
mod failure;
mod pairs;
mod runs;
mod settings;

use pyo3::prelude::*;

/// What package `kvdrive` is made of; not for programs.
#[pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use crate::drive::Drive;
    #[pymodule_export]
    use crate::pairs::Pairs;
    #[pymodule_export]
    use crate::runs::{compare, run};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        kvdrive_run::revision::set(kvdrive_revision::REVISION);
        module.add("REVISION", kvdrive_revision::REVISION)
    }
}
