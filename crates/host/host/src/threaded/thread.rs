//! A drive on a thread of its own, or carried out by the calls of the current thread, and the connector to
//! it.

use std::rc::Rc;

use kvdrive_link::HostMemory;
use kvdrive_link::shared::{self, BuildError, Built, Controlled, RunEnd, ServerConfig, Serving};
use kvdrive_sim::Sim;

use super::connector::Connector;

/// Builds a drive on a thread of its own and serves it there, until all connectors and drivers are dropped.
/// `build` gets the executor and the host memory.
///
/// # Errors
/// What `build` returns, after the thread has ended.
pub fn serve_thread<D, R, F>(
    config: ServerConfig,
    build: impl FnOnce(&Sim, Rc<dyn HostMemory>) -> Result<Built<D, F>, BuildError> + Send + 'static,
) -> Result<(Connector, Serving<D, R>), BuildError>
where
    D: Controlled,
    F: FnOnce(RunEnd) -> R + 'static,
    R: Send + 'static,
{
    let connector = Connector::new();
    let serving = shared::serve_thread(connector.link(), config, build)?;
    Ok((connector, serving))
}

/// Builds a drive that calls of this thread carry out: [`kvdrive_link::shared::serve_here`]. Calls of other
/// threads are refused with [`crate::Error::OtherThread`].
///
/// # Errors
/// What `build` returns.
pub fn serve_here<D, R, F>(
    config: ServerConfig,
    build: impl FnOnce(&Sim, Rc<dyn HostMemory>) -> Result<Built<D, F>, BuildError>,
) -> Result<(Connector, Serving<D, R>), BuildError>
where
    D: Controlled,
    F: FnOnce(RunEnd) -> R + 'static,
    R: Send + 'static,
{
    let connector = Connector::new();
    let serving = shared::serve_here(connector.link(), config, build)?;
    Ok((connector, serving))
}
