//! [`Network`]: the connection of a host to a drive on a network.

use std::sync::{Mutex, PoisonError};

use kvdrive_host::tcp::{self, Initiator};
use kvdrive_run::wall::connected::{Reached, Remote, reach};
use kvdrive_sim::wall::lock;

use crate::client::AsyncClient;
use crate::context::ClientContext;
use crate::error::Error;
use crate::namespace::Namespace;

/// Commands of one client at once, as for a drive in this program.
const DEPTH: u16 = 32;
/// Clients at once, if the drive grants a host that many queues.
const CLIENTS: u16 = 64;

pub(crate) struct Network {
    at: String,
    nsid: u32,
    namespace: Namespace,
    transfer_max_bytes: u32,
    host: Mutex<Host>,
}

/// The initiator, and how many connections it has made.
struct Host {
    initiator: Initiator,
    /// How many there may be, and how many there have been.
    granted: u16,
    connected: u16,
}

impl Network {
    pub fn new(remote: &Remote) -> Result<Network, Error> {
        let at = format!("tcp://{}", remote.address);
        let reached = reach(remote).map_err(|error| Error::Network(format!("{at}: {error:#}")))?;
        let Reached { mut initiator, nsid, namespace, transfer_max_bytes, .. } = reached;
        let granted =
            initiator.ask_for_queues(CLIENTS).map_err(|error| Error::Network(format!("{at}: {error}")))?;
        let host = Mutex::new(Host { initiator, granted, connected: 0 });
        Ok(Network { at, nsid, namespace: Namespace::of(&namespace), transfer_max_bytes, host })
    }

    /// The context of its clients.
    pub fn context(&self) -> ClientContext {
        ClientContext::new(self.namespace.is_ordered, self.namespace.delete_says)
    }

    /// The present Identify data of the namespace.
    pub fn namespace(&self) -> Result<Namespace, Error> {
        let mut host = lock(&self.host);
        let identified = host.initiator.identify_namespace(self.nsid);
        identified.map(|now| Namespace::of(&now)).map_err(|error| Error::of("identify", None, error))
    }

    /// Opens another connection.
    pub fn connect(&self, context: &ClientContext) -> Result<AsyncClient, Error> {
        let mut host = lock(&self.host);
        if host.connected == host.granted {
            return Err(Error::NoQueue(format!("{}: it gives a host {} queues", self.at, host.granted)));
        }
        // A ring keeps one entry empty.
        let number = host.connected + 1;
        let queue = host.initiator.io_queue(number, DEPTH + 1);
        let mut queue = queue.map_err(|error| Error::Network(format!("{}: {error}", self.at)))?;
        host.connected = number;
        queue.nsid = self.nsid;
        let value_max_bytes = self.namespace.value_max_bytes;
        let client = tcp::Client::new(queue, DEPTH.into(), value_max_bytes, self.transfer_max_bytes);
        Ok(AsyncClient::on_network(client, value_max_bytes, context))
    }

    /// Says that this host goes.
    pub fn leave(&mut self) -> Result<(), Error> {
        let host = self.host.get_mut().unwrap_or_else(PoisonError::into_inner);
        host.initiator.shut_down().map_err(|error| Error::Network(format!("{}: {error}", self.at)))
    }

    /// Why a call on the inside of the drive fails.
    pub fn refused(&self, call: &str) -> Error {
        Error::Refused(format!(
            "{call}: this drive is served at {}; only its server can do this (kvdrive ctl)",
            self.at
        ))
    }
}
