//! [`AsyncClient`] and [`Client`]: one queue pair, for futures and for blocking threads. The functions that make
//! iterators and pipelines are in the files of those types.

use kvdrive_config::Config;
use kvdrive_content::{Piece, Region};
use kvdrive_host::threaded::{Connector, block_on};
use kvdrive_host::{Answer, Call, Driver};
use kvdrive_link::transfer;
use kvdrive_nvme::{Key, Status, StoreOptions};

use crate::context::{ClientContext, NoValue, Spare};
use crate::error::{Error, whole};
use crate::names::{Named, has_front};

/// Longest part of a value that one command returns, in bytes.
const PART_MAX_BYTES: u32 = 2 << 20;

/// A part of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its bytes: fewer than were asked for where the value ends.
    pub bytes: Vec<u8>,
    /// Size of the whole value in bytes.
    pub value_bytes: u32,
}

/// One queue pair of a drive, for futures on any executor. Several tasks may use it at once: up to
/// `host.depth` commands are in flight, the others wait for a slot.
///
/// A future may be dropped at any time; a command that it had submitted is executed all the same, and counted
/// in [`Closed::unanswered`](crate::Closed::unanswered).
pub struct AsyncClient {
    pub(crate) driver: Driver,
    pub(crate) context: ClientContext,
    pub(crate) spare: Spare,
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
        Ok(AsyncClient::new(driver, context))
    }

    pub(crate) fn new(driver: Driver, context: &ClientContext) -> AsyncClient {
        AsyncClient { driver, context: context.clone(), spare: Spare::default() }
    }

    pub(crate) fn context(&self) -> &ClientContext {
        &self.context
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.driver
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
        self.counted(name, call.key(), self.driver.call(call, into)).await
    }

    /// Checks that a command can carry the key and value of a store.
    pub(crate) fn checked<'n>(&self, of: &'n [u8], value: &[u8]) -> Result<Named<'n>, Error> {
        let named = Named::of(of)?;
        named.check_size(value.len(), self.driver.max_value_bytes())?;
        Ok(named)
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
        let named = self.checked(key, value)?;
        let _writing = self.context.neighbour.writing(named.key);
        if !named.is_digest() {
            return self.store_as_is(named.key, value, options).await;
        }
        let value = [&named.front()[..], value].concat();
        if !options.update_only {
            let adding = StoreOptions { add_only: true, ..options };
            match self.store_as_is(named.key, &value, adding).await {
                Err(error) if error.status() == Some(Status::KEY_EXISTS) && !options.add_only => {}
                ended => return ended,
            }
        }
        self.has_pair("store", &named).await?;
        self.store_as_is(named.key, &value, options).await
    }

    async fn store_as_is(&self, key: Key, value: &[u8], options: StoreOptions) -> Result<(), Error> {
        let store = Call::Store { key, value: Piece::Bytes(value), options };
        self.counted("store", Some(key), self.driver.call(store, &mut Region::new())).await.map(|_| ())
    }

    /// Is there a pair of this name?
    ///
    /// # Errors
    /// [`Error::OtherName`]; as [`AsyncClient::get`].
    async fn has_pair(&self, call: &'static str, named: &Named<'_>) -> Result<bool, Error> {
        let (key, mut value) = (named.key, Region::new());
        let front = Call::RetrievePart { key, at: 0, bytes: named.front_bytes() };
        let mut read = self.call(call, front, &mut value).await;
        if matches!(&read, Err(error) if error.status() == Some(Status::INVALID_OPCODE)) {
            // Other drives return values as a whole.
            read = self.call(call, Call::Retrieve { key }, &mut value).await;
        }
        match read {
            Ok(_) if has_front(&value, &named.front()) => Ok(true),
            Ok(_) => Err(Error::OtherName { call, key }),
            Err(error) if error.status() == Some(Status::KEY_NOT_FOUND) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The value of a key; `None` if there is none.
    ///
    /// # Errors
    /// [`Status::UNRECOVERED_ERROR`]: the pair exists and cannot be read any more; [`Error::ValueCutShort`].
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let (named, mut value) = (Named::of(key)?, Region::new());
        match self.call("get", Call::Retrieve { key: named.key }, &mut value).await {
            Ok(answer) => named.value_of("get", answer.value(), &value).map(Some),
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
        let named = Named::of(key)?;
        if named.is_digest() && !self.has_pair("get part", &named).await? {
            return Ok(None);
        }
        let (key, front, mut part) = (named.key, named.front_bytes(), Region::new());
        let at = at.saturating_add(front);
        match self.call("get part", Call::RetrievePart { key, at, bytes }, &mut part).await {
            Ok(answer) => {
                let value_bytes = answer.value();
                let came = bytes.min(value_bytes.saturating_sub(at)).min(PART_MAX_BYTES);
                let bytes = whole("get part", key, came, &part)?;
                Ok(Some(Part { bytes, value_bytes: value_bytes.saturating_sub(front) }))
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
        let named = Named::of(key)?;
        let (key, _writing) = (named.key, self.context.neighbour.writing(named.key));
        if named.is_digest() && !self.has_pair("delete", &named).await? {
            return Ok(());
        }
        self.call("delete", Call::Delete { key }, &mut Region::new()).await.map(|_| ())
    }

    /// Removes a pair, and returns whether there was one. If several callers remove the same pair, exactly one of them
    /// gets `true`.
    ///
    /// A drive on a network that is not a kvdrive is first asked whether the pair exists, so another host may remove it
    /// in between.
    ///
    /// # Errors
    /// As [`AsyncClient::delete`] and [`AsyncClient::get`]: the drive has to look.
    pub async fn remove(&self, key: &[u8]) -> Result<bool, Error> {
        if !self.context.delete_says {
            let is_there = self.exist(key).await?;
            self.delete(key).await?;
            return Ok(is_there);
        }
        let named = Named::of(key)?;
        let (key, _writing) = (named.key, self.context.neighbour.writing(named.key));
        if named.is_digest() && !self.has_pair("remove", &named).await? {
            return Ok(false);
        }
        self.call("remove", Call::Remove { key }, &mut Region::new()).await.map(Answer::exists)
    }

    /// Does the pair exist?
    ///
    /// # Errors
    /// As [`AsyncClient::get`].
    pub async fn exist(&self, key: &[u8]) -> Result<bool, Error> {
        let key = Named::of(key)?.key;
        self.call("exist", Call::Exist { key }, &mut Region::new()).await.map(Answer::exists)
    }
}

/// One queue pair of a drive, for threads that wait for their answers. Several threads may use it at once.
pub struct Client(pub(crate) AsyncClient);

impl Client {
    /// [`AsyncClient::store`].
    ///
    /// # Errors
    /// Those of that call; this also holds for the calls below.
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
}
