//! [`Pipeline`]: many commands at once from one thread.

use std::time::Duration;

use kvdrive_content::{Piece, Region};
use kvdrive_host::{Call, Completion, Pipelined};
use kvdrive_nvme::Status;

use crate::client::Client;
use crate::context::{ClientContext, Route};
use crate::error::{Error, bytes_of, key, whole};

/// The result of a command of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The value is stored.
    Stored,
    /// The pair, if it existed, is removed.
    Deleted,
    /// The pair is removed; was there one?
    Removed(bool),
    /// Answer to an exist: is there a pair?
    Exists(bool),
    /// Answer to a get: the value; `None` if there is no pair.
    Got(Option<Vec<u8>>),
    /// Answer to a get whose value was appended to the caller's memory ([`Pipeline::next_ended_into`]): its size in bytes;
    /// `None` if there is no pair.
    Appended(Option<u32>),
}

/// A command that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How many commands of the pipeline were begun before this one ([`Pipeline::begun`]): commands of one key differ in
    /// it.
    pub number: u64,
    /// The key.
    pub key: Vec<u8>,
    /// Its result.
    pub result: Result<Done, Error>,
}

/// A queue pair used as a queue of commands. Commands gather, cross with one doorbell, and end in any order;
/// commands in flight when it is dropped are counted in [`Closed::unanswered`](crate::Closed::unanswered).
pub struct Pipeline<'c> {
    pipeline: Box<dyn Pipelined<Value> + Send + 'c>,
    most: u32,
    begun: u64,
    context: &'c ClientContext,
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
    pub(crate) fn new(route: &'c mut Route, context: &'c ClientContext) -> Result<Pipeline<'c>, Error> {
        context.check_process("pipeline")?;
        let most = route.max_value_bytes();
        let pipeline: Box<dyn Pipelined<Value> + Send + 'c> = match route {
            Route::Own(driver) => {
                Box::new(driver.pipeline().map_err(|error| Error::of("pipeline", None, error))?)
            }
            Route::Network(client, _) => Box::new(client.pipeline()),
        };
        Ok(Pipeline { pipeline, most, begun: 0, context })
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

    /// Starts a removal, whose answer says whether there was a pair ([`Client::remove`](crate::Client::remove)); as
    /// [`Pipeline::store`].
    ///
    /// # Errors
    /// [`Error::Refused`]: a drive on a network that is no kvdrive; as [`Pipeline::store`].
    pub fn remove(&mut self, of: &[u8]) -> Result<Option<Ended>, Error> {
        if !self.context.delete_says {
            let line =
                "remove: the Delete of this drive does not say whether there was a pair; exist and delete do";
            return Err(Error::Refused(line.into()));
        }
        let (key, ended) = (key(of)?, self.make_room()?);
        let value = self.numbered(Vec::new(), "remove");
        begun(self.pipeline.begin(Call::Remove { key }, value, Region::new()));
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

    /// Commands begun so far: the [`Ended::number`] of the next one.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Can one more command begin without waiting for another to end?
    pub fn has_room(&self) -> bool {
        self.pipeline.has_room()
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
        self.ended_within(None, None)
    }

    /// A command that has ended, without waiting for one; gathered commands are sent. `None` if none has; then
    /// [`Pipeline::under_way`] says whether any is in flight.
    ///
    /// # Errors
    /// As [`Pipeline::next_ended`].
    pub fn try_next_ended(&mut self) -> Result<Option<Ended>, Error> {
        self.ended_within(Some(Duration::ZERO), None)
    }

    /// As [`Pipeline::next_ended`]; the value of a get is appended to `values`, and its answer is [`Done::Appended`]. Where
    /// values have one memory, they are copied once.
    ///
    /// # Errors
    /// As [`Pipeline::next_ended`].
    pub fn next_ended_into(&mut self, values: &mut Vec<u8>) -> Result<Option<Ended>, Error> {
        self.ended_within(None, Some(values))
    }

    fn ended_within(
        &mut self,
        timeout: Option<Duration>,
        values: Option<&mut Vec<u8>>,
    ) -> Result<Option<Ended>, Error> {
        self.context.check_process("pipeline")?;
        let completion = self.pipeline.next_completion_within(timeout);
        let completion = completion.map_err(|error| Error::of("pipeline", None, error))?;
        if let Some(Completion {
            call: Call::Store { key, .. } | Call::Delete { key } | Call::Remove { key },
            ..
        }) = &completion
        {
            self.context.neighbour.written(key);
        }
        Ok(completion.map(|completion| ended(completion, values)))
    }

    fn numbered(&mut self, bytes: Vec<u8>, call: &'static str) -> Value {
        self.begun += 1;
        Value { number: self.begun - 1, bytes, call }
    }

    fn make_room(&mut self) -> Result<Option<Ended>, Error> {
        if self.pipeline.has_room() { Ok(None) } else { self.next_ended() }
    }
}

impl Client {
    /// Many commands at once from one thread, with few doorbells.
    ///
    /// # Errors
    /// [`Error::Off`].
    pub fn pipeline(&mut self) -> Result<Pipeline<'_>, Error> {
        Pipeline::new(&mut self.0.route, &self.0.context)
    }
}

fn begun(begun: Result<(), Value>) {
    assert!(begun.is_ok(), "a pipeline that has room takes a command");
}

impl Drop for Pipeline<'_> {
    fn drop(&mut self) {
        self.context.unanswered.add(u64::from(self.under_way()));
    }
}

fn ended(completion: Completion<Value>, values: Option<&mut Vec<u8>>) -> Ended {
    let Completion { call, value, result, content } = completion;
    let key = call.key().expect("calls of this pipeline name keys");
    let result = match (call, result) {
        (Call::Store { .. }, Ok(_)) => Ok(Done::Stored),
        (Call::Delete { .. }, Ok(_)) => Ok(Done::Deleted),
        (Call::Remove { .. }, Ok(answer)) => Ok(Done::Removed(answer.exists())),
        (Call::Exist { .. }, Ok(answer)) => Ok(Done::Exists(answer.exists())),
        (_, Ok(answer)) => {
            let (bytes, came) = (answer.value(), content.written_end());
            match values {
                None => whole(value.call, key, bytes, &content).map(|value| Done::Got(Some(value))),
                Some(_) if came < bytes => Err(Error::ValueCutShort { call: value.call, key, bytes, came }),
                Some(values) => {
                    append(&content, bytes, values);
                    Ok(Done::Appended(Some(bytes)))
                }
            }
        }
        (Call::Retrieve { .. }, Err(Status::KEY_NOT_FOUND)) => {
            Ok(if values.is_some() { Done::Appended(None) } else { Done::Got(None) })
        }
        (_, Err(status)) => Err(Error::Status { call: value.call, key: Some(key), status }),
    };
    Ended { number: value.number, key: bytes_of(&key), result }
}

/// Appends the first `bytes` bytes of a value.
fn append(content: &Region, bytes: u32, values: &mut Vec<u8>) {
    content.read(0, bytes, &mut |piece| match piece {
        Piece::Bytes(bytes) => values.extend_from_slice(bytes),
        piece => {
            let from = values.len();
            values.resize(from + piece.bytes() as usize, 0);
            piece.expand(&mut values[from..]);
        }
    });
}
