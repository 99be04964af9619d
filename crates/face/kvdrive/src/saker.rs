//! SAKER in front of a drive: small writes are collected and travel as one command, small reads are served
//! from pending writes or from a cache ([`kvdrive_saker`] explains how).
//!
//! Writes of a [`Handle`] are volatile until its [`Handle::sync`] returns.
//!
//! A drive has one SAKER at a time. Calls of the same program that go past it ([`Drive`](crate::Drive),
//! [`Client`](crate::Client), [`Pipeline`](crate::Pipeline)) work beside it:
//!
//! | | |
//! |---|---|
//! | a write past SAKER that has returned | handles read it, not an older value of the cache; a transaction that has read its key ends in a conflict |
//! | a write of a handle that is not synced | reads past SAKER do not see it; when it is sent, it replaces what was written past SAKER meanwhile |
//! | a call past SAKER whose future or pipeline was dropped | it may be carried out later, and handles may go on to read the older value from the cache |

use std::sync::Arc;

use kvdrive_config::Config;
use kvdrive_content::{Piece, Region};
use kvdrive_declare::Counts;
use kvdrive_host::saker::Queues;
use kvdrive_host::threaded::{Connector, block_on};
use kvdrive_link::transfer;
use kvdrive_nvme::batch::BATCH_BYTES_MAX;
use kvdrive_nvme::{Key, Status};
use kvdrive_saker::range::{Merged, View};
pub use kvdrive_saker::{BatchSize, CacheConfig, Charge, Containers, Ending, Failure, SakerConfig};
use kvdrive_saker::{Runner, Saker as Core, threaded};
use kvdrive_sim::wall::Stopwatch;

use crate::client::AsyncClient;
use crate::error::{Error, bytes_of, key, whole};
use crate::network::Network;
use crate::pairs::{self, AsyncPairs, Pair};

/// SAKER in front of one drive: the state shared by its threads.
pub struct Saker {
    threaded: Arc<threaded::Threaded<Queues>>,
    /// Past SAKER, for the iterators of ranges.
    below: Arc<AsyncClient>,
}

impl Saker {
    pub(crate) fn new(
        connector: &Connector,
        drive: &Config,
        config: SakerConfig,
        below: AsyncClient,
    ) -> Result<Saker, Error> {
        let most_bytes = drive.controller.max_value_bytes.min(BATCH_BYTES_MAX);
        check_container(&config, most_bytes, " (controller.max_value_bytes)")?;
        let (connector, host) = (connector.clone(), drive.host.clone());
        let queues = Queues::new(move || {
            let method = transfer::method(&host.transfer).expect("the configuration was checked");
            connector.connect(method, host.queue_entries, host.depth)
        });
        Saker::over(queues, config, below)
    }

    /// In front of a drive that is not in this program.
    pub(crate) fn on_network(
        network: &Network,
        config: SakerConfig,
        below: AsyncClient,
    ) -> Result<Saker, Error> {
        let most_bytes = network.batches().map_or(below.driver().max_value_bytes(), |limits| limits.bytes);
        if network.batches().is_none() && config.batch != BatchSize::Fixed(1) {
            let problem = "this drive takes no batches; 1 sends every write as a command of its own";
            return Err(Error::configuration("saker.batch", problem));
        }
        check_container(&config, most_bytes, "")?;
        let network = network.clone();
        let failed = |error: Error| kvdrive_host::Error::Io {
            kind: std::io::ErrorKind::NotConnected,
            what: error.to_string(),
        };
        Saker::over(Queues::new(move || network.driver().map_err(failed)), config, below)
    }

    fn over(queues: Queues, config: SakerConfig, below: AsyncClient) -> Result<Saker, Error> {
        let core = Core::new(config)
            .map_err(|error| Error::Configuration { at: None, problem: error.to_string() })?;
        below.context().neighbour.settle(&core)?;
        let clock = Stopwatch::start();
        let threaded = threaded::Threaded::new(core, queues, Arc::new(move || clock.ns()));
        Ok(Saker { threaded, below: Arc::new(below) })
    }

    /// A handle with a queue pair of its own, for one thread.
    ///
    /// # Errors
    /// [`Error::Off`].
    pub fn handle(&self) -> Result<Handle, Error> {
        self.below.context().check_process("saker")?;
        let handle = self.threaded.connect().map_err(|_| Error::Off)?;
        Ok(Handle { handle, below: self.below.clone() })
    }

    /// The counters of all handles ([`kvdrive_saker::counters`]): batches sent, requests in them, reads answered from
    /// pending writes and from the cache, and so on.
    pub fn counts(&self) -> Counts {
        self.threaded.saker().counts()
    }

    /// Bytes of the pairs in the cache, counted as [`CacheConfig::charge`] says.
    pub fn cache_bytes(&self) -> u64 {
        self.threaded.saker().cache_bytes()
    }

    /// Bytes of writes that are pending, in containers and in batches that are not answered.
    pub fn pending_bytes(&self) -> u64 {
        self.threaded.saker().pending_bytes()
    }
}

/// Refuses containers that are larger than the drive's largest value; `of` says whose setting that is.
fn check_container(config: &SakerConfig, most_bytes: u32, of: &str) -> Result<(), Error> {
    if config.container_bytes <= most_bytes {
        return Ok(());
    }
    let bytes = config.container_bytes;
    let problem = format!("is {bytes}; a value of this drive has at most {most_bytes} bytes{of}");
    Err(Error::configuration("saker.container_bytes", problem))
}

/// One thread's access to the drive. Dropping it without a sync leaves unsynced writes to the other threads,
/// and counts them in [`Closed::unanswered`](crate::Closed::unanswered).
pub struct Handle {
    handle: threaded::Handle<Queues>,
    below: Arc<AsyncClient>,
}

impl Handle {
    /// Writes a pair; volatile until [`Handle::sync`].
    ///
    /// # Errors
    /// For a value that fits no container, the drive's answer; [`Error::Off`].
    pub fn store(&mut self, of: &[u8], value: &[u8]) -> Result<(), Error> {
        self.below.context().check_process("store")?;
        let key = key(of)?;
        let stored = self.handle.store(key, Piece::Bytes(value));
        stored.map_err(|error| Error::of_saker("store", Some(key), error))
    }

    /// The value of a key, pending or not; `None` if there is none.
    ///
    /// # Errors
    /// The drive's answer; [`Error::Off`].
    pub fn get(&mut self, of: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.below.context().check_process("get")?;
        let (key, mut value) = (key(of)?, Region::new());
        match self.handle.retrieve(key, &mut value) {
            Ok(bytes) => whole("get", key, bytes, &value).map(Some),
            Err(threaded::Error::Status(Status::KEY_NOT_FOUND)) => Ok(None),
            Err(error) => Err(Error::of_saker("get", Some(key), error)),
        }
    }

    /// Removes a pair; volatile until [`Handle::sync`].
    ///
    /// # Errors
    /// As [`Handle::store`].
    pub fn delete(&mut self, of: &[u8]) -> Result<(), Error> {
        self.below.context().check_process("delete")?;
        let key = key(of)?;
        self.handle.delete(key).map_err(|error| Error::of_saker("delete", Some(key), error))
    }

    /// Does the pair exist, pending or not?
    ///
    /// # Errors
    /// As [`Handle::get`].
    pub fn exist(&mut self, of: &[u8]) -> Result<bool, Error> {
        self.below.context().check_process("exist")?;
        let key = key(of)?;
        self.handle.exist(key).map_err(|error| Error::of_saker("exist", Some(key), error))
    }

    /// A transaction: its writes are executed wholly or not at all, and only if no other handle of this [`Saker`] has
    /// written a pair that it read. Every engine takes its writes as one atomic batch, up to the size that Identify
    /// reports.
    pub fn transaction(&mut self) -> Transaction<'_> {
        Transaction(self.handle.transaction())
    }

    /// All pairs as they are now, pending writes of all handles included: by key with an engine that is ordered by
    /// key, else in the drive's order, pending pairs last.
    ///
    /// # Errors
    /// [`Status::TOO_MANY_ITERATORS`]: the drive has no more; [`Error::Off`].
    pub fn pairs(&mut self) -> Result<Pairs<'_>, Error> {
        self.pairs_at(None)
    }

    /// The pairs from `start` on.
    ///
    /// # Errors
    /// [`Error::Refused`]: the engine is not ordered by key; as [`Handle::pairs`].
    pub fn pairs_from(&mut self, start: &[u8]) -> Result<Pairs<'_>, Error> {
        if !self.below.context().is_ordered {
            let what = "pairs_from: this engine has an order of its own, in which pending pairs have no place; pairs \
                        returns all of them";
            return Err(Error::Refused(what.to_owned()));
        }
        self.pairs_at(Some(key(start)?))
    }

    fn pairs_at(&mut self, start: Option<Key>) -> Result<Pairs<'_>, Error> {
        let below = &*self.below;
        loop {
            let range = self.handle.ask(|client, _| client.begin_range());
            let cursor = block_on(AsyncPairs::open(below, start, &[]))?;
            // A bypass was answered meanwhile: it is not known whether the cursor contains it.
            let Some(view) = self.handle.ask(|client, steps| client.view(range, start, steps)) else {
                continue;
            };
            let (below, is_ordered) = (pairs::Pairs(cursor), below.context().is_ordered);
            return Ok(Pairs { below, view, ahead: None, is_over: false, is_ordered, pending: 0 });
        }
    }

    /// Waits until all earlier writes of this handle are durable.
    ///
    /// # Errors
    /// [`Error::Unsynced`]: which writes have failed since the last sync; [`Error::Off`].
    pub fn sync(&mut self) -> Result<(), Error> {
        self.below.context().check_process("sync")?;
        self.handle.sync().map_err(|error| Error::of_saker("sync", None, error))
    }

    /// Number of writes that are not known to be durable.
    pub fn unsynced(&self) -> u64 {
        self.handle.unsynced()
    }
}

/// The pairs of a drive, with the pending writes over them, as of the moment when it was made.
///
/// It keeps an iterator of the drive open until it is dropped.
pub struct Pairs<'h> {
    below: pairs::Pairs<'h>,
    view: View,
    /// Read from the drive and not returned yet.
    ahead: Option<Pair>,
    /// The drive has no more.
    is_over: bool,
    is_ordered: bool,
    /// Pending pairs that were returned; they come last.
    pending: usize,
}

impl Pairs<'_> {
    fn next_of_drive(&mut self) -> Result<Option<Key>, Error> {
        if self.ahead.is_none() && !self.is_over {
            self.ahead = self.below.next().transpose()?;
            self.is_over = self.ahead.is_none();
        }
        let known = |pair: &Pair| Key::new(&pair.0).expect("a drive's keys are keys");
        Ok(self.ahead.as_ref().map(known))
    }

    fn next_by_key(&mut self) -> Result<Option<Pair>, Error> {
        loop {
            let at = self.next_of_drive()?;
            match self.view.merge(at) {
                Merged::End => return Ok(None),
                Merged::Drive => return Ok(self.ahead.take()),
                Merged::Deleted => self.ahead = None,
                Merged::Here(key, value) => {
                    if at == Some(key) {
                        self.ahead = None;
                    }
                    return Ok(Some((bytes_of(&key), value.to_vec())));
                }
            }
        }
    }

    fn next_of_drive_then_pending(&mut self) -> Result<Option<Pair>, Error> {
        while let Some(key) = self.next_of_drive()? {
            let pair = self.ahead.take();
            if self.view.get(&key).is_none() {
                return Ok(pair);
            }
        }
        while let Some((key, value)) = self.view.entries().get(self.pending) {
            self.pending += 1;
            if let Some(value) = value {
                return Ok(Some((bytes_of(key), value.to_vec())));
            }
        }
        Ok(None)
    }
}

/// Ends after the first error.
impl Iterator for Pairs<'_> {
    type Item = Result<Pair, Error>;

    fn next(&mut self) -> Option<Result<Pair, Error>> {
        match self.is_ordered {
            true => self.next_by_key(),
            false => self.next_of_drive_then_pending(),
        }
        .transpose()
    }
}

/// A transaction of a [`Handle`]. Dropping it changes nothing.
pub struct Transaction<'h>(threaded::InTransaction<'h, Queues>);

impl Transaction<'_> {
    /// The value of a key: the one that the transaction itself has written, or else the present one; `None` if there is
    /// none.
    ///
    /// # Errors
    /// As [`Handle::get`].
    pub fn get(&mut self, of: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let (key, mut value) = (key(of)?, Region::new());
        match self.0.retrieve(key, &mut value) {
            Ok(bytes) => whole("get", key, bytes, &value).map(Some),
            Err(threaded::Error::Status(Status::KEY_NOT_FOUND)) => Ok(None),
            Err(error) => Err(Error::of_saker("get", Some(key), error)),
        }
    }

    /// Writes a pair at the commit.
    ///
    /// # Errors
    /// The writes do not fit one batch.
    pub fn store(&mut self, of: &[u8], value: &[u8]) -> Result<(), Error> {
        let key = key(of)?;
        let stored = self.0.store(key, Piece::Bytes(value));
        stored.map_err(|error| Error::of_saker("store", Some(key), error))
    }

    /// Removes a pair at the commit.
    ///
    /// # Errors
    /// As [`Transaction::store`].
    pub fn delete(&mut self, of: &[u8]) -> Result<(), Error> {
        let key = key(of)?;
        self.0.delete(key).map_err(|error| Error::of_saker("delete", Some(key), error))
    }

    /// Ends the transaction. After [`Ending::Committed`] its writes are durable; after [`Ending::Conflict`] none of
    /// them has taken effect.
    ///
    /// # Errors
    /// The status that the drive answered: no write was carried out; [`Error::Off`].
    pub fn commit(self) -> Result<Ending, Error> {
        self.0.commit().map_err(|error| Error::of_saker("commit", None, error))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.below.context().unanswered.add(self.handle.unsynced());
    }
}
