//! The drive's thread, and the connector to it.

use std::rc::Rc;

use kvdrive_link::shared::{self, BuildError, Ended, ServerConfig, Serving};
use kvdrive_link::{HostMemory, Link};
use kvdrive_sim::Sim;

use super::Connector;

/// Builds a drive on a thread of its own and serves it there, until all connectors and drivers are dropped.
/// `build` gets the executor and the host memory, and returns the drive's link and a function that is called
/// at the end, with the drive drained of commands, to collect counters.
///
/// Errors: what `build` returns; the thread has ended then.
pub fn serve_thread<R, F>(
    config: ServerConfig,
    build: impl FnOnce(&Sim, Rc<dyn HostMemory>) -> Result<(Rc<Link>, F), BuildError> + Send + 'static,
) -> Result<(Connector, Serving<R>), BuildError>
where
    F: FnOnce(Ended) -> R + 'static,
    R: Send + 'static,
{
    let connector = Connector::new();
    let serving = shared::serve_thread(connector.link(), config, build)?;
    Ok((connector, serving))
}
