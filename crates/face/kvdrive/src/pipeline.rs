//! [`Pipeline`]: many commands at once from one thread.

use kvdrive_content::Region;
use kvdrive_host::{Call, Completion, Pipelined};
use kvdrive_spec::Status;

use crate::client::{Route, Unanswered};
use crate::error::{Error, key};
use crate::pairs::bytes_of;
use crate::saker::Neighbour;

/// The result of a command of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The value is stored.
    Stored,
    /// The pair, if it existed, is removed.
    Deleted,
    /// Answer to an exist: is there a pair?
    Exists(bool),
    /// Answer to a get: the value; `None` if there is no pair.
    Got(Option<Vec<u8>>),
}

/// A command that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How many commands of the pipeline were begun before this one: commands of one key differ in it.
    pub number: u64,
    /// The key.
    pub key: Vec<u8>,
    /// Its result.
    pub result: Result<Done, Error>,
}

/// A queue pair used as a queue of commands. Commands gather, cross with one doorbell, and end in any order;
/// commands in flight when it is dropped are counted in [`Closed::unanswered`](crate::Closed::unanswered).
pub struct Pipeline<'c> {
    pipeline: Box<dyn Pipelined<Value> + 'c>,
    most: u32,
    begun: u64,
    unanswered: &'c Unanswered,
    neighbour: &'c Neighbour,
}

/// State kept for a command: its number, the value of a store, and the kind of call.
struct Value {
    number: u64,
    bytes: Vec<u8>,
    call: &'static str,
}

impl kvdrive_host::Content for Value {
    fn piece(&self) -> kvdrive_content::Piece<'_> {
        kvdrive_content::Piece::Bytes(&self.bytes)
    }
}

impl<'c> Pipeline<'c> {
    pub(crate) fn new(
        route: &'c mut Route,
        unanswered: &'c Unanswered,
        neighbour: &'c Neighbour,
    ) -> Result<Pipeline<'c>, Error> {
        let most = route.max_value_bytes();
        let pipeline: Box<dyn Pipelined<Value> + 'c> = match route {
            Route::Own(driver) => {
                Box::new(driver.pipeline().map_err(|error| Error::of("pipeline", None, error))?)
            }
            Route::Network(client, _) => Box::new(client.pipeline()),
        };
        Ok(Pipeline { pipeline, most, begun: 0, unanswered, neighbour })
    }

    /// Starts a store. If all slots are taken, it waits for a command to end and returns that command's
    /// result.
    ///
    /// # Errors
    /// A key or value of a wrong size; the drive is off. The result of a command is in its [`Ended`].
    pub fn store(&mut self, of: &[u8], value: impl Into<Vec<u8>>) -> Result<Option<Ended>, Error> {
        let (key, bytes) = (key(of)?, value.into());
        if bytes.len() > self.most as usize {
            return Err(Error::ValueSize { key, bytes: bytes.len(), most: self.most });
        }
        let ended = self.make_room()?;
        let value = self.numbered(bytes, "store");
        begun(self.pipeline.store(key, value));
        Ok(ended)
    }

    /// Starts a get; as [`Pipeline::store`].
    ///
    /// # Errors
    /// As [`Pipeline::store`].
    pub fn get(&mut self, of: &[u8]) -> Result<Option<Ended>, Error> {
        let (key, ended) = (key(of)?, self.make_room()?);
        let value = self.numbered(Vec::new(), "get");
        begun(self.pipeline.retrieve(key, value, Region::new()));
        Ok(ended)
    }

    /// Starts a delete; as [`Pipeline::store`].
    ///
    /// # Errors
    /// As [`Pipeline::store`].
    pub fn delete(&mut self, of: &[u8]) -> Result<Option<Ended>, Error> {
        let (key, ended) = (key(of)?, self.make_room()?);
        let value = self.numbered(Vec::new(), "delete");
        begun(self.pipeline.delete(key, value));
        Ok(ended)
    }

    /// Starts an exist; as [`Pipeline::store`].
    ///
    /// # Errors
    /// As [`Pipeline::store`].
    pub fn exist(&mut self, of: &[u8]) -> Result<Option<Ended>, Error> {
        let (key, ended) = (key(of)?, self.make_room()?);
        let value = self.numbered(Vec::new(), "exist");
        begun(self.pipeline.exist(key, value));
        Ok(ended)
    }

    /// Commands whose end has not been returned.
    pub fn under_way(&self) -> u32 {
        self.pipeline.under_way()
    }

    /// Waits for the next command to end and returns it. `None` if none is in flight.
    ///
    /// # Errors
    /// The drive is off; commands in flight are not answered.
    pub fn next_ended(&mut self) -> Result<Option<Ended>, Error> {
        let completion =
            self.pipeline.next_completion().map_err(|error| Error::of("pipeline", None, error))?;
        if let Some(Completion { call: Call::Store { key, .. } | Call::Delete { key }, .. }) = &completion {
            self.neighbour.written(key);
        }
        Ok(completion.map(ended))
    }

    fn numbered(&mut self, bytes: Vec<u8>, call: &'static str) -> Value {
        self.begun += 1;
        Value { number: self.begun - 1, bytes, call }
    }

    fn make_room(&mut self) -> Result<Option<Ended>, Error> {
        if self.pipeline.has_room() { Ok(None) } else { self.next_ended() }
    }
}

fn begun(begun: Result<(), Value>) {
    assert!(begun.is_ok(), "a pipeline that has room takes a command");
}

impl Drop for Pipeline<'_> {
    fn drop(&mut self) {
        self.unanswered.add(u64::from(self.under_way()));
    }
}

fn ended(completion: Completion<Value>) -> Ended {
    let Completion { call, value, result, content } = completion;
    let key = call.key().expect("calls of this pipeline name keys");
    let result = match (call, result) {
        (Call::Store { .. }, Ok(_)) => Ok(Done::Stored),
        (Call::Delete { .. }, Ok(_)) => Ok(Done::Deleted),
        (Call::Exist { .. }, Ok(answer)) => Ok(Done::Exists(answer.exists())),
        (_, Ok(answer)) => Ok(Done::Got(Some(content.to_bytes(answer.value())))),
        (Call::Retrieve { .. }, Err(Status::KEY_NOT_FOUND)) => Ok(Done::Got(None)),
        (_, Err(status)) => Err(Error::Status { call: value.call, key: Some(key), status }),
    };
    Ended { number: value.number, key: bytes_of(&key), result }
}
