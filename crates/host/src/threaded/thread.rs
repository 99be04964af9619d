//! The drive's thread, and the connector to it.

use std::rc::Rc;

use kvdrive_link::HostMemory;
use kvdrive_link::shared::{self, BuildError, Built, Controlled, Ended, ServerConfig, Serving};
use kvdrive_sim::Sim;

use super::Connector;

/// Builds a drive on a thread of its own and serves it there, until all connectors and drivers are dropped.
/// `build` gets the executor and the host memory.
///
/// Errors: what `build` returns; the thread has ended then.
pub fn serve_thread<D, R, F>(
    config: ServerConfig,
    build: impl FnOnce(&Sim, Rc<dyn HostMemory>) -> Result<Built<D, F>, BuildError> + Send + 'static,
) -> Result<(Connector, Serving<D, R>), BuildError>
where
    D: Controlled,
    F: FnOnce(Ended) -> R + 'static,
    R: Send + 'static,
{
    let connector = Connector::new();
    let serving = shared::serve_thread(connector.link(), config, build)?;
    Ok((connector, serving))
}
