//! [`Network`]: the connection of a host to a drive that is not in this program.

use std::sync::{Arc, Mutex};

use kvdrive_host::Driver;
use kvdrive_host::reach::{Reached, Remote, reach};
use kvdrive_nvme::identify::{BatchLimits, KvNamespace};
use kvdrive_sim::wall::lock;

use crate::client::AsyncClient;
use crate::context::ClientContext;
use crate::error::Error;
use crate::granted::Granted;
use crate::namespace::Namespace;

/// Clones are the same connection.
#[derive(Clone)]
pub(crate) struct Network {
    namespace: Namespace,
    batches: Option<BatchLimits>,
    granted: Arc<Mutex<Granted<KvNamespace>>>,
}

impl Network {
    pub fn new(remote: &Remote) -> Result<Network, Error> {
        let granted = Granted::connect(remote, reach)?;
        let identified = &granted.reached.namespace;
        let (namespace, batches) = (Namespace::of(identified), identified.vendor.batches());
        Ok(Network { namespace, batches, granted: Arc::new(Mutex::new(granted)) })
    }

    /// The context of its clients.
    pub fn context(&self) -> ClientContext {
        ClientContext::new(self.namespace.is_ordered, self.namespace.delete_says)
    }

    /// The present Identify data of the namespace.
    pub fn namespace(&self) -> Result<Namespace, Error> {
        let identified = lock(&self.granted).reached.identify_namespace();
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
        lock(&self.granted).next(Reached::<KvNamespace>::driver)
    }

    /// Says that this host goes.
    pub fn leave(&self) -> Result<(), Error> {
        let mut granted = lock(&self.granted);
        let left = granted.reached.leave();
        left.map_err(|error| Error::Network(format!("{}: {error}", granted.at)))
    }

    /// Why a call on the inside of the drive fails.
    pub fn refused(&self, call: &str) -> Error {
        Error::Refused(format!(
            "{call}: this drive is served at {}; only its server can do this (kvdrive ctl)",
            lock(&self.granted).at
        ))
    }
}
