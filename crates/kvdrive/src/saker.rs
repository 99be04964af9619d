//! SAKER in front of a drive: small writes are collected and travel as one command, small reads come from what is
//! pending, or from a cache ([`kvdrive_saker`] has how).
//!
//! What a [`Handle`] writes is volatile until its [`Handle::sync`] returns.

use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_host::threaded::Connector;
use kvdrive_host::threaded::saker::Queues;
pub use kvdrive_saker::{BatchSize, CacheConfig, Config, Containers, Ending, Failure};
use kvdrive_saker::{Saker as Core, threaded};
use kvdrive_sim::wall::Stopwatch;
use kvdrive_spec::Status;

use crate::client::Unanswered;
use crate::error::{Error, key};

/// SAKER in front of one drive: what its threads share.
pub struct Saker {
    threaded: Arc<threaded::Threaded<Queues>>,
    unanswered: Unanswered,
}

impl Saker {
    pub(crate) fn new(
        connector: &Connector,
        drive: &kvdrive_lab::config::Config,
        config: Config,
        unanswered: &Unanswered,
    ) -> Result<Saker, Error> {
        let host = &drive.host;
        let queues = Queues::new(connector.clone(), host.transfer.clone(), host.queue_entries, host.depth);
        let core = Core::new(config).map_err(|error| Error::Configuration(error.to_string()))?;
        let clock = Stopwatch::start();
        let threaded = threaded::Threaded::new(core, queues, Arc::new(move || clock.ns()));
        Ok(Saker { threaded, unanswered: unanswered.clone() })
    }

    /// A handle with a queue pair of its own, for one thread.
    ///
    /// # Errors
    /// [`Error::Off`].
    pub fn handle(&self) -> Result<Handle, Error> {
        let handle = self.threaded.connect().map_err(|_| Error::Off)?;
        Ok(Handle { handle, unanswered: self.unanswered.clone() })
    }
}

/// One thread's way to the drive. Dropping it without a sync leaves what was not synced to the other threads, and
/// counts it in [`Closed::unanswered`](crate::Closed::unanswered).
pub struct Handle {
    handle: threaded::Handle<Queues>,
    unanswered: Unanswered,
}

impl Handle {
    /// Writes a pair; volatile until [`Handle::sync`].
    ///
    /// # Errors
    /// Of a value that fits no container, what the drive answered; [`Error::Off`].
    pub fn store(&mut self, of: &[u8], value: &[u8]) -> Result<(), Error> {
        let key = key(of)?;
        let stored = self.handle.store(key, Piece::Bytes(value));
        stored.map_err(|error| Error::of_saker("store", Some(key), error))
    }

    /// The value of a key, pending or not; `None` if there is none.
    ///
    /// # Errors
    /// What the drive answered; [`Error::Off`].
    pub fn get(&mut self, of: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let (key, mut value) = (key(of)?, Region::new());
        match self.handle.retrieve(key, &mut value) {
            Ok(bytes) => Ok(Some(value.to_bytes(bytes))),
            Err(threaded::Error::Status(Status::KEY_NOT_FOUND)) => Ok(None),
            Err(error) => Err(Error::of_saker("get", Some(key), error)),
        }
    }

    /// Removes a pair; volatile until [`Handle::sync`].
    ///
    /// # Errors
    /// As [`Handle::store`].
    pub fn delete(&mut self, of: &[u8]) -> Result<(), Error> {
        let key = key(of)?;
        self.handle.delete(key).map_err(|error| Error::of_saker("delete", Some(key), error))
    }

    /// Is there a pair, pending or not?
    ///
    /// # Errors
    /// As [`Handle::get`].
    pub fn exist(&mut self, of: &[u8]) -> Result<bool, Error> {
        let key = key(of)?;
        self.handle.exist(key).map_err(|error| Error::of_saker("exist", Some(key), error))
    }

    /// A transaction: what it writes is carried out wholly or not at all, and only if no other handle of this
    /// [`Saker`] has written what it read. Drives whose engine is a store take it (`hashlog`, `lsmtree`, `btree`).
    pub fn transaction(&mut self) -> Transaction<'_> {
        Transaction(self.handle.transaction())
    }

    /// Waits until all that this handle wrote before is durable.
    ///
    /// # Errors
    /// [`Error::Unsynced`]: which writes have failed since the last sync; [`Error::Off`].
    pub fn sync(&mut self) -> Result<(), Error> {
        self.handle.sync().map_err(|error| Error::of_saker("sync", None, error))
    }

    /// Writes that are not known to be durable.
    pub fn unsynced(&self) -> u64 {
        self.handle.unsynced()
    }
}

/// A transaction of a [`Handle`]. Dropping it leaves everything as it was.
pub struct Transaction<'h>(threaded::InTransaction<'h, Queues>);

impl Transaction<'_> {
    /// The value of a key, as the transaction itself has written it or as it is now; `None` if there is none.
    ///
    /// # Errors
    /// As [`Handle::get`].
    pub fn get(&mut self, of: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let (key, mut value) = (key(of)?, Region::new());
        match self.0.retrieve(key, &mut value) {
            Ok(bytes) => Ok(Some(value.to_bytes(bytes))),
            Err(threaded::Error::Status(Status::KEY_NOT_FOUND)) => Ok(None),
            Err(error) => Err(Error::of_saker("get", Some(key), error)),
        }
    }

    /// Writes a pair, with the commit.
    ///
    /// # Errors
    /// All that is written would not fit one batch.
    pub fn store(&mut self, of: &[u8], value: &[u8]) -> Result<(), Error> {
        let key = key(of)?;
        let stored = self.0.store(key, Piece::Bytes(value));
        stored.map_err(|error| Error::of_saker("store", Some(key), error))
    }

    /// Removes a pair, with the commit.
    ///
    /// # Errors
    /// As [`Transaction::store`].
    pub fn delete(&mut self, of: &[u8]) -> Result<(), Error> {
        let key = key(of)?;
        self.0.delete(key).map_err(|error| Error::of_saker("delete", Some(key), error))
    }

    /// Ends it. What it wrote is durable when this says [`Ending::Committed`]; behind [`Ending::Conflict`] nothing
    /// of it has happened.
    ///
    /// # Errors
    /// What the drive answered, and nothing of it was carried out; [`Error::Off`].
    pub fn commit(self) -> Result<Ending, Error> {
        self.0.commit().map_err(|error| Error::of_saker("commit", None, error))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.unanswered.add(self.handle.unsynced());
    }
}
