//! [`Pipeline`]: many commands at once from one thread.

use kvdrive_content::Region;
use kvdrive_host::Pipelined;
use kvdrive_host::threaded::{self, Driver, Outcome};
use kvdrive_spec::{Key, Status};

use crate::client::Unanswered;
use crate::error::{Error, key};

/// What a command of a pipeline came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The value is stored.
    Stored,
    /// The pair, if there was one, is gone.
    Deleted,
    /// To an exist: is there a pair?
    Exists(bool),
    /// To a get: the value; `None` if there is no pair.
    Got(Option<Vec<u8>>),
}

/// A command that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The key.
    pub key: Vec<u8>,
    /// What it came to.
    pub result: Result<Done, Error>,
}

/// A queue pair used as a queue of commands. Commands gather, cross with one doorbell, and end in any order; those
/// that are under way when it is dropped are in [`Closed::unanswered`](crate::Closed::unanswered).
pub struct Pipeline<'c> {
    pipeline: threaded::Pipeline<'c, Value>,
    most: u32,
    unanswered: &'c Unanswered,
}

/// What travels with a command: the value of a store, and what was asked for.
struct Value {
    bytes: Vec<u8>,
    call: &'static str,
}

impl kvdrive_host::Content for Value {
    fn piece(&self) -> kvdrive_content::Piece<'_> {
        kvdrive_content::Piece::Bytes(&self.bytes)
    }
}

impl<'c> Pipeline<'c> {
    pub(crate) fn new(driver: &'c mut Driver, unanswered: &'c Unanswered) -> Result<Pipeline<'c>, Error> {
        let most = driver.max_value_bytes();
        let pipeline = driver.pipeline().map_err(|error| Error::of("pipeline", None, error))?;
        Ok(Pipeline { pipeline, most, unanswered })
    }

    /// Begins a store. With all of its slots taken it waits for one to end, and returns what has.
    ///
    /// # Errors
    /// A key or value of a wrong size; the drive is off. What a command came to is in its [`Ended`].
    pub fn store(&mut self, of: &[u8], value: impl Into<Vec<u8>>) -> Result<Option<Ended>, Error> {
        let (key, bytes) = (key(of)?, value.into());
        if bytes.len() > self.most as usize {
            return Err(Error::ValueSize { key, bytes: bytes.len(), most: self.most });
        }
        let ended = self.make_room()?;
        begun(self.pipeline.store(key, Value { bytes, call: "store" }));
        Ok(ended)
    }

    /// Begins a get; as [`Pipeline::store`].
    ///
    /// # Errors
    /// As [`Pipeline::store`].
    pub fn get(&mut self, of: &[u8]) -> Result<Option<Ended>, Error> {
        let (key, ended) = (key(of)?, self.make_room()?);
        begun(self.pipeline.retrieve(key, Value::none("get"), Region::new()));
        Ok(ended)
    }

    /// Begins a delete; as [`Pipeline::store`].
    ///
    /// # Errors
    /// As [`Pipeline::store`].
    pub fn delete(&mut self, of: &[u8]) -> Result<Option<Ended>, Error> {
        let (key, ended) = (key(of)?, self.make_room()?);
        begun(self.pipeline.delete(key, Value::none("delete")));
        Ok(ended)
    }

    /// Begins an exist; as [`Pipeline::store`].
    ///
    /// # Errors
    /// As [`Pipeline::store`].
    pub fn exist(&mut self, of: &[u8]) -> Result<Option<Ended>, Error> {
        let (key, ended) = (key(of)?, self.make_room()?);
        begun(self.pipeline.exist(key, Value::none("exist")));
        Ok(ended)
    }

    /// Commands whose end nobody has been told.
    pub fn under_way(&self) -> u32 {
        self.pipeline.under_way()
    }

    /// The next command that has ended; waits for it. `None` with nothing under way.
    ///
    /// # Errors
    /// The drive is off; what is under way is not answered.
    pub fn next_ended(&mut self) -> Result<Option<Ended>, Error> {
        let completion =
            self.pipeline.next_completion().map_err(|error| Error::of("pipeline", None, error))?;
        Ok(completion.map(ended))
    }

    fn make_room(&mut self) -> Result<Option<Ended>, Error> {
        if self.pipeline.has_room() { Ok(None) } else { self.next_ended() }
    }
}

fn begun(begun: Result<(), Value>) {
    assert!(begun.is_ok(), "a pipeline that has room takes a command");
}

impl Value {
    fn none(call: &'static str) -> Value {
        Value { bytes: Vec::new(), call }
    }
}

impl Drop for Pipeline<'_> {
    fn drop(&mut self) {
        self.unanswered.add(u64::from(self.under_way()));
    }
}

fn ended(completion: threaded::Completion<Value>) -> Ended {
    let threaded::Completion { key, value, result } = completion;
    let result = match result {
        Ok(Outcome::Stored) => Ok(Done::Stored),
        Ok(Outcome::Deleted) => Ok(Done::Deleted),
        Ok(Outcome::Exists(exists)) => Ok(Done::Exists(exists)),
        Ok(Outcome::Retrieved(bytes, region)) => Ok(Done::Got(Some(region.to_bytes(bytes)))),
        Err(Status::KEY_NOT_FOUND) if value.call == "get" => Ok(Done::Got(None)),
        Err(status) => Err(Error::Status { call: value.call, key: Some(key), status }),
    };
    Ended { key: bytes_of(&key), result }
}

fn bytes_of(key: &Key) -> Vec<u8> {
    key.to_array()[..key.len()].to_vec()
}
