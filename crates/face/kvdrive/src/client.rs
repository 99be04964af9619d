//! [`AsyncClient`] and [`Client`]: one queue pair, for futures and for blocking threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvdrive_config::Config;
use kvdrive_content::{Piece, Region};
use kvdrive_host::threaded::{Connector, Driver, block_on};
use kvdrive_host::{Answer, Call, Content, tcp};
use kvdrive_link::transfer;
use kvdrive_sim::ForkCount;
use kvdrive_spec::{Key, Status, StoreOptions};

use crate::error::{Error, key, whole};
use crate::keys::{AsyncKeys, Keys, OwnedKeys};
use crate::owned_pipeline::OwnedPipeline;
use crate::pairs::{AsyncPairs, OwnedPairs, Pairs};
use crate::pipeline::Pipeline;
use crate::saker::Neighbour;

/// Longest part that one command brings, in bytes.
const PART_MAX_BYTES: u32 = 2 << 20;

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

/// What all clients of a drive have in common.
#[derive(Clone)]
pub(crate) struct ClientContext {
    pub(crate) unanswered: Unanswered,
    pub(crate) neighbour: Neighbour,
    pub(crate) forks: ForkCount,
    /// Are Lists and iterators in order of keys?
    pub(crate) is_ordered: bool,
    /// Can a Delete say whether there was a pair?
    pub(crate) delete_says: bool,
}

impl ClientContext {
    pub(crate) fn new(is_ordered: bool, delete_says: bool) -> ClientContext {
        let (unanswered, neighbour) = (Unanswered::default(), Neighbour::default());
        ClientContext { unanswered, neighbour, forks: ForkCount::now(), is_ordered, delete_says }
    }

    /// May this process ask the drive?
    pub(crate) fn check_process(&self, call: &'static str) -> Result<(), Error> {
        if self.forks.is_forked() { Err(Error::ForkedChild { call }) } else { Ok(()) }
    }
}

/// A part of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its bytes: fewer than were asked for where the value ends.
    pub bytes: Vec<u8>,
    /// Size of the whole value in bytes.
    pub value_bytes: u32,
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
    context: ClientContext,
}

impl AsyncClient {
    pub(crate) fn connect(
        connector: &Connector,
        config: &Config,
        context: &ClientContext,
    ) -> Result<AsyncClient, Error> {
        let host = &config.host;
        let method = transfer::method(&host.transfer).expect("the configuration was checked");
        let driver = connector
            .connect(method, host.queue_entries, host.depth)
            .map_err(|error| Error::of("connect", None, error))?;
        Ok(AsyncClient { route: Route::Own(driver), context: context.clone() })
    }

    /// The caller waits for its futures on a thread of their own: see [`Route::Network`].
    pub(crate) fn on_network(
        client: tcp::Client,
        max_value_bytes: u32,
        context: &ClientContext,
    ) -> AsyncClient {
        AsyncClient { route: Route::Network(client, max_value_bytes), context: context.clone() }
    }

    pub(crate) fn context(&self) -> &ClientContext {
        &self.context
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
        self.context.check_process(call)?;
        let mut begun = self.context.unanswered.begin();
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
        let _writing = self.context.neighbour.writing(key);
        let store = Call::Store { key, value: Piece::Bytes(value), options };
        self.counted("store", Some(key), self.route.call(store, &mut Region::new())).await.map(|_| ())
    }

    /// The value of a key; `None` if there is none.
    ///
    /// # Errors
    /// [`Status::UNRECOVERED_ERROR`]: the pair exists and cannot be read any more; [`Error::ValueCutShort`].
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let key = crate::error::key(key)?;
        let mut value = Region::new();
        match self.call("get", Call::Retrieve { key }, &mut value).await {
            Ok(answer) => whole("get", key, answer.value(), &value).map(Some),
            Err(error) if error.status() == Some(Status::KEY_NOT_FOUND) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A part of the value of a key, from byte `at` on; `None` if there is no pair. It has `bytes` bytes, or fewer where the
    /// value ends, and 2 MiB at most. Two parts may be of two values, if another call stores one meanwhile.
    ///
    /// # Errors
    /// [`Status::INVALID_FIELD`]: the value ends before byte `at`; [`Status::INVALID_OPCODE`]: a drive on a network that
    /// is no kvdrive; as [`AsyncClient::get`].
    pub async fn get_part(&self, key: &[u8], at: u32, bytes: u32) -> Result<Option<Part>, Error> {
        let key = crate::error::key(key)?;
        let mut part = Region::new();
        match self.call("get part", Call::RetrievePart { key, at, bytes }, &mut part).await {
            Ok(answer) => {
                let value_bytes = answer.value();
                let came = bytes.min(value_bytes.saturating_sub(at)).min(PART_MAX_BYTES);
                Ok(Some(Part { bytes: whole("get part", key, came, &part)?, value_bytes }))
            }
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
        let _writing = self.context.neighbour.writing(key);
        self.call("delete", Call::Delete { key }, &mut Region::new()).await.map(|_| ())
    }

    /// Removes a pair, and says whether there was one: of several callers that remove the same one, one hears so.
    ///
    /// A drive on a network that is no kvdrive is asked before: another host may come in between.
    ///
    /// # Errors
    /// As [`AsyncClient::delete`] and [`AsyncClient::get`]: the drive has to look.
    pub async fn remove(&self, key: &[u8]) -> Result<bool, Error> {
        if !self.context.delete_says {
            let is_there = self.exist(key).await?;
            self.delete(key).await?;
            return Ok(is_there);
        }
        let key = crate::error::key(key)?;
        let _writing = self.context.neighbour.writing(key);
        self.call("remove", Call::Remove { key }, &mut Region::new()).await.map(Answer::exists)
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
    /// Values of more than 2 MiB are those of a later moment ([`AsyncPairs`]).
    ///
    /// # Errors
    /// [`Status::TOO_MANY_ITERATORS`]: all iterators of the drive are in use.
    pub async fn pairs(&self) -> Result<AsyncPairs<'_>, Error> {
        AsyncPairs::open(self, None, &[]).await
    }

    /// The pairs from `start` on.
    ///
    /// # Errors
    /// As [`AsyncClient::pairs`].
    pub async fn pairs_from(&self, start: &[u8]) -> Result<AsyncPairs<'_>, Error> {
        AsyncPairs::open(self, Some(key(start)?), &[]).await
    }

    /// The pairs whose keys begin with `prefix`; an empty one: all. A drive that keeps keys in order
    /// ([`Drive::is_ordered`](crate::Drive::is_ordered)) is asked for these alone, another one goes through all.
    ///
    /// # Errors
    /// As [`AsyncClient::pairs`]; a prefix is no longer than a key.
    pub async fn pairs_with_prefix(&self, prefix: &[u8]) -> Result<AsyncPairs<'_>, Error> {
        AsyncPairs::open(self, None, prefix).await
    }

    /// All keys, without their values: many of them cross with each command.
    ///
    /// They are not those of one moment: a key that is stored or deleted meanwhile may come or not.
    pub fn keys(&self) -> AsyncKeys<'_> {
        AsyncKeys::new(self, &[]).expect("no prefix is longer than a key")
    }

    /// The keys that begin with `prefix`, as [`AsyncClient::keys`] has all.
    ///
    /// # Errors
    /// [`Error::KeySize`]: a prefix is no longer than a key.
    pub fn keys_with_prefix(&self, prefix: &[u8]) -> Result<AsyncKeys<'_>, Error> {
        AsyncKeys::new(self, prefix)
    }

    /// How many keys begin with `prefix`; an empty one: all. It goes through them, without their values.
    ///
    /// # Errors
    /// As [`AsyncKeys::next`].
    pub async fn count(&self, prefix: &[u8]) -> Result<u64, Error> {
        let (mut keys, mut count) = (AsyncKeys::new(self, prefix)?, 0);
        while keys.next().await?.is_some() {
            count += 1;
        }
        Ok(count)
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

    /// [`AsyncClient::get_part`].
    pub fn get_part(&self, key: &[u8], at: u32, bytes: u32) -> Result<Option<Part>, Error> {
        block_on(self.0.get_part(key, at, bytes))
    }

    /// [`AsyncClient::remove`].
    pub fn remove(&self, key: &[u8]) -> Result<bool, Error> {
        block_on(self.0.remove(key))
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

    /// [`AsyncClient::pairs_with_prefix`].
    pub fn pairs_with_prefix(&self, prefix: &[u8]) -> Result<Pairs<'_>, Error> {
        block_on(self.0.pairs_with_prefix(prefix)).map(Pairs)
    }

    /// [`AsyncClient::keys`].
    pub fn keys(&self) -> Keys<'_> {
        Keys(self.0.keys())
    }

    /// [`AsyncClient::keys_with_prefix`].
    pub fn keys_with_prefix(&self, prefix: &[u8]) -> Result<Keys<'_>, Error> {
        self.0.keys_with_prefix(prefix).map(Keys)
    }

    /// [`AsyncClient::count`].
    pub fn count(&self, prefix: &[u8]) -> Result<u64, Error> {
        block_on(self.0.count(prefix))
    }

    /// As [`Client::pairs_with_prefix`], in an iterator that borrows nothing.
    pub fn owned_pairs(self: &Arc<Self>, prefix: &[u8]) -> Result<OwnedPairs, Error> {
        OwnedPairs::open(self, prefix)
    }

    /// As [`Client::keys_with_prefix`], in an iterator that borrows nothing.
    pub fn owned_keys(self: &Arc<Self>, prefix: &[u8]) -> Result<OwnedKeys, Error> {
        OwnedKeys::new(self, prefix)
    }

    /// Many commands at once from one thread, with few doorbells.
    ///
    /// # Errors
    /// [`Error::Off`].
    pub fn pipeline(&mut self) -> Result<Pipeline<'_>, Error> {
        Pipeline::new(&mut self.0.route, &self.0.context)
    }

    /// As [`Client::pipeline`], in a value that borrows nothing and may go from thread to thread.
    ///
    /// # Errors
    /// [`Error::Off`].
    pub fn into_pipeline(self) -> Result<OwnedPipeline, Error> {
        OwnedPipeline::new(self)
    }
}
