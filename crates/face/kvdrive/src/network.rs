//! [`Network`]: the connection of a host to a drive that is not in this program.

use std::sync::{Arc, Mutex};

use kvdrive_host::Driver;
use kvdrive_host::reach::{Reached, Remote, reach};
use kvdrive_nvme::identify::BatchLimits;
use kvdrive_sim::wall::lock;

use crate::client::AsyncClient;
use crate::context::ClientContext;
use crate::error::Error;
use crate::namespace::Namespace;

/// Commands of one client at once, as for a drive in this program.
const DEPTH: u16 = 32;
/// Clients at once, if the drive grants a host that many queues.
const CLIENTS: u16 = 64;

/// Clones are the same connection.
#[derive(Clone)]
pub(crate) struct Network {
    at: String,
    namespace: Namespace,
    batches: Option<BatchLimits>,
    host: Arc<Mutex<Host>>,
}

/// The controller, and how many queues it has given.
struct Host {
    reached: Reached,
    /// How many there may be, and how many there have been.
    granted: u16,
    connected: u16,
}

impl Network {
    pub fn new(remote: &Remote) -> Result<Network, Error> {
        let at = remote.name();
        let reached = reach(remote).map_err(|error| Error::Network(format!("{at}: {}", error.line())));
        let mut reached = reached?;
        let granted =
            reached.ask_for_queues(CLIENTS).map_err(|error| Error::Network(format!("{at}: {error}")))?;
        let (namespace, batches) = (Namespace::of(&reached.namespace), reached.namespace.vendor.batches());
        let host = Arc::new(Mutex::new(Host { reached, granted, connected: 0 }));
        Ok(Network { at, namespace, batches, host })
    }

    /// The context of its clients.
    pub fn context(&self) -> ClientContext {
        ClientContext::new(self.namespace.is_ordered, self.namespace.delete_says)
    }

    /// The present Identify data of the namespace.
    pub fn namespace(&self) -> Result<Namespace, Error> {
        let identified = lock(&self.host).reached.identify_namespace();
        identified.map(|now| Namespace::of(&now)).map_err(|error| Error::of("identify", None, error))
    }

    /// Limits of its batches; `None`: it takes none.
    pub fn batches(&self) -> Option<BatchLimits> {
        self.batches
    }

    /// Opens another connection.
    pub fn connect(&self, context: &ClientContext) -> Result<AsyncClient, Error> {
        Ok(AsyncClient::new(self.driver()?, context))
    }

    /// The driver on another queue.
    pub fn driver(&self) -> Result<Driver, Error> {
        let mut host = lock(&self.host);
        if host.connected == host.granted {
            return Err(Error::NoQueue(format!("{}: it gives a host {} queues", self.at, host.granted)));
        }
        // A ring keeps one entry empty.
        let number = host.connected + 1;
        let driver = host.reached.driver(number, DEPTH + 1, DEPTH.into());
        let driver = driver.map_err(|error| Error::Network(format!("{}: {error}", self.at)))?;
        host.connected = number;
        Ok(driver)
    }

    /// Says that this host goes.
    pub fn leave(&self) -> Result<(), Error> {
        let left = lock(&self.host).reached.leave();
        left.map_err(|error| Error::Network(format!("{}: {error}", self.at)))
    }

    /// Why a call on the inside of the drive fails.
    pub fn refused(&self, call: &str) -> Error {
        Error::Refused(format!(
            "{call}: this drive is served at {}; only its server can do this (kvdrive ctl)",
            self.at
        ))
    }
}
