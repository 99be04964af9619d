//! Module `kvdrive._native`: drives and runs for package `kvdrive` of Python, which is in folder `python/`.
//!
//! Every call releases the interpreter's lock before it waits for a drive or computes a run. Reports cross as
//! JSON text, as the command writes it.

mod buffer;
mod bulk;
mod drive;
mod failure;
mod items;
mod pairs;
mod runs;
mod saker;
mod settings;
mod speed;
mod spread;
mod stepped;
mod studies;
mod sweeps;
mod waiting;

use pyo3::prelude::*;

/// The native parts of package `kvdrive`; not for programs.
#[pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use crate::buffer::Buffer;
    #[pymodule_export]
    use crate::drive::Drive;
    #[pymodule_export]
    use crate::items::listed;
    #[pymodule_export]
    use crate::pairs::Pairs;
    #[pymodule_export]
    use crate::runs::{compare, kind, run};
    #[pymodule_export]
    use crate::saker::{Saker, SakerHandle};
    #[pymodule_export]
    use crate::speed::RustCalls;
    #[pymodule_export]
    use crate::spread::Spread;
    #[pymodule_export]
    use crate::stepped::{Image, Stepped};
    #[pymodule_export]
    use crate::studies::{claims_of, figure_of, figures};
    #[pymodule_export]
    use crate::sweeps::{Sweep, SweepFile, assignments, key, run_point};
    #[pymodule_export]
    use crate::waiting::Stop;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        kvdrive_run::revision::set(kvdrive_revision::REVISION);
        module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
        module.add("REVISION", kvdrive_revision::REVISION)
    }
}
