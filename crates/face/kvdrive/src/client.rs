//! [`AsyncClient`] and [`Client`]: one queue pair, for futures and for blocking threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvdrive_config::Config;
use kvdrive_content::{Piece, Region};
use kvdrive_host::threaded::{Connector, Driver, block_on};
use kvdrive_host::{Answer, Call, Content, tcp};
use kvdrive_link::transfer;
use kvdrive_spec::{Key, Status, StoreOptions};

use crate::error::{Error, key};
use crate::pairs::{AsyncPairs, OwnedPairs, Pairs};
use crate::pipeline::Pipeline;
use crate::saker::Neighbour;

/// A call without a value.
pub(crate) type NoValue = Call<&'static [u8]>;

/// Calls that were submitted and whose answers were not returned: their futures or pipelines were dropped, or the
/// drive went away.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unanswered(Arc<AtomicU64>);

impl Unanswered {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, calls: u64) {
        self.0.fetch_add(calls, Ordering::Relaxed);
    }

    /// Counts a call until it is answered.
    fn begin(&self) -> Counted<'_> {
        Counted { unanswered: self, is_answered: false }
    }
}

/// A call that is waited for.
struct Counted<'a> {
    unanswered: &'a Unanswered,
    is_answered: bool,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.unanswered.add(1);
        }
    }
}

/// The route of calls to a drive.
pub(crate) enum Route {
    /// To a drive of this program.
    Own(Driver),
    /// To one on a network, with the size of its largest value. A call waits on the socket, in its first poll.
    Network(tcp::Client, u32),
}

impl Route {
    pub(crate) async fn call<V: Content>(
        &self,
        call: Call<V>,
        into: &mut Region,
    ) -> Result<Answer, kvdrive_host::Error> {
        match self {
            Route::Own(driver) => driver.call(call, into).await,
            Route::Network(client, _) => kvdrive_host::Client::call(&mut client.clone(), call, into),
        }
    }

    pub(crate) fn max_value_bytes(&self) -> u32 {
        match self {
            Route::Own(driver) => driver.max_value_bytes(),
            Route::Network(_, most) => *most,
        }
    }
}

/// One queue pair of a drive, for futures on any executor. Several tasks may use it at once: up to
/// `host.depth` commands are in flight, the others wait for a slot.
///
/// A future may be dropped at any time; a command that it had submitted is executed all the same, and counted
/// in [`Closed::unanswered`](crate::Closed::unanswered).
pub struct AsyncClient {
    route: Route,
    unanswered: Unanswered,
    neighbour: Neighbour,
}

impl AsyncClient {
    pub(crate) fn connect(
        connector: &Connector,
        config: &Config,
        unanswered: &Unanswered,
        neighbour: &Neighbour,
    ) -> Result<AsyncClient, Error> {
        let host = &config.host;
        let method = transfer::method(&host.transfer).expect("the configuration was checked");
        let driver = connector
            .connect(method, host.queue_entries, host.depth)
            .map_err(|error| Error::of("connect", None, error))?;
        Ok(AsyncClient {
            route: Route::Own(driver),
            unanswered: unanswered.clone(),
            neighbour: neighbour.clone(),
        })
    }

    /// The caller waits for its futures on a thread of their own: see [`Route::Network`].
    pub(crate) fn on_network(
        client: tcp::Client,
        max_value_bytes: u32,
        unanswered: &Unanswered,
        neighbour: &Neighbour,
    ) -> AsyncClient {
        let route = Route::Network(client, max_value_bytes);
        AsyncClient { route, unanswered: unanswered.clone(), neighbour: neighbour.clone() }
    }

    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    /// Counts a call until it is answered.
    pub(crate) async fn counted<T>(
        &self,
        call: &'static str,
        key: Option<Key>,
        answer: impl Future<Output = Result<T, kvdrive_host::Error>>,
    ) -> Result<T, Error> {
        let mut begun = self.unanswered.begin();
        let answer = answer.await;
        begun.is_answered = matches!(&answer, Ok(_) | Err(kvdrive_host::Error::Status(_)));
        answer.map_err(|error| Error::of(call, key, error))
    }

    /// Makes a call that stores nothing, and counts it until it is answered.
    pub(crate) async fn call(
        &self,
        name: &'static str,
        call: NoValue,
        into: &mut Region,
    ) -> Result<Answer, Error> {
        self.counted(name, call.key(), self.route.call(call, into)).await
    }

    /// Checks that a command can carry the key and value of a store.
    pub(crate) fn checked(&self, of: &[u8], value: &[u8]) -> Result<Key, Error> {
        let (key, most) = (key(of)?, self.route.max_value_bytes());
        match value.len() {
            bytes if bytes > most as usize => Err(Error::ValueSize { key, bytes, most }),
            _ => Ok(key),
        }
    }

    /// Stores a value and replaces an earlier one of the key. When this returns the pair is durable, to the
    /// extent of [`Lasting`](crate::Lasting).
    ///
    /// # Errors
    /// [`Status::CAPACITY_EXCEEDED`], [`Status::NAMESPACE_WRITE_PROTECTED`]
    /// ([`Drive::write_failure`](crate::Drive::write_failure) says why); a key or value of a wrong size.
    pub async fn store(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.store_with(key, value, StoreOptions::default()).await
    }

    /// Stores a value under a condition.
    ///
    /// # Errors
    /// [`Status::KEY_EXISTS`], [`Status::KEY_NOT_FOUND`]; as [`AsyncClient::store`].
    pub async fn store_with(&self, key: &[u8], value: &[u8], options: StoreOptions) -> Result<(), Error> {
        let key = self.checked(key, value)?;
        let _writing = self.neighbour.writing(key);
        let store = Call::Store { key, value: Piece::Bytes(value), options };
        self.counted("store", Some(key), self.route.call(store, &mut Region::new())).await.map(|_| ())
    }

    /// The value of a key; `None` if there is none.
    ///
    /// # Errors
    /// [`Status::UNRECOVERED_ERROR`]: the pair exists and cannot be read any more.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let key = crate::error::key(key)?;
        let mut value = Region::new();
        match self.call("get", Call::Retrieve { key }, &mut value).await {
            Ok(answer) => Ok(Some(value.to_bytes(answer.value()))),
            Err(error) if error.status() == Some(Status::KEY_NOT_FOUND) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes a pair; removing a missing pair succeeds.
    ///
    /// # Errors
    /// [`Status::NAMESPACE_WRITE_PROTECTED`].
    pub async fn delete(&self, key: &[u8]) -> Result<(), Error> {
        let key = crate::error::key(key)?;
        let _writing = self.neighbour.writing(key);
        self.call("delete", Call::Delete { key }, &mut Region::new()).await.map(|_| ())
    }

    /// Does the pair exist?
    ///
    /// # Errors
    /// As [`AsyncClient::get`].
    pub async fn exist(&self, key: &[u8]) -> Result<bool, Error> {
        let key = crate::error::key(key)?;
        self.call("exist", Call::Exist { key }, &mut Region::new()).await.map(Answer::exists)
    }

    /// All pairs as they are now, in the order of the drive: by key with engine `lsm`, by table with hash engines.
    ///
    /// # Errors
    /// [`Status::TOO_MANY_ITERATORS`]: all iterators of the drive are in use.
    pub async fn pairs(&self) -> Result<AsyncPairs<'_>, Error> {
        AsyncPairs::open(self, None).await
    }

    /// The pairs from `start` on.
    ///
    /// # Errors
    /// As [`AsyncClient::pairs`].
    pub async fn pairs_from(&self, start: &[u8]) -> Result<AsyncPairs<'_>, Error> {
        AsyncPairs::open(self, Some(key(start)?)).await
    }
}

/// One queue pair of a drive, for threads that wait for their answers. Several threads may use it at once.
pub struct Client(pub(crate) AsyncClient);

impl Client {
    /// [`AsyncClient::store`].
    ///
    /// # Errors
    /// As there; so have the calls below.
    pub fn store(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        block_on(self.0.store(key, value))
    }

    /// [`AsyncClient::store_with`].
    pub fn store_with(&self, key: &[u8], value: &[u8], options: StoreOptions) -> Result<(), Error> {
        block_on(self.0.store_with(key, value, options))
    }

    /// [`AsyncClient::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        block_on(self.0.get(key))
    }

    /// [`AsyncClient::delete`].
    pub fn delete(&self, key: &[u8]) -> Result<(), Error> {
        block_on(self.0.delete(key))
    }

    /// [`AsyncClient::exist`].
    pub fn exist(&self, key: &[u8]) -> Result<bool, Error> {
        block_on(self.0.exist(key))
    }

    /// [`AsyncClient::pairs`].
    pub fn pairs(&self) -> Result<Pairs<'_>, Error> {
        block_on(self.0.pairs()).map(Pairs)
    }

    /// [`AsyncClient::pairs_from`].
    pub fn pairs_from(&self, start: &[u8]) -> Result<Pairs<'_>, Error> {
        block_on(self.0.pairs_from(start)).map(Pairs)
    }

    /// As [`Client::pairs`], or from `start` on, in an iterator that borrows nothing.
    pub fn owned_pairs(self: &Arc<Self>, start: Option<&[u8]>) -> Result<OwnedPairs, Error> {
        OwnedPairs::open(self, start.map(key).transpose()?)
    }

    /// Many commands at once from one thread, with few doorbells.
    ///
    /// # Errors
    /// [`Error::Off`].
    pub fn pipeline(&mut self) -> Result<Pipeline<'_>, Error> {
        Pipeline::new(&mut self.0.route, &self.0.unanswered, &self.0.neighbour)
    }
}
