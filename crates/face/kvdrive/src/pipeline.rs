//! [`Pipeline`]: many commands at once from one thread.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use kvdrive_content::{Piece, Region};
use kvdrive_host::{Answer, Call, Completion, Driver, Pipelined};
use kvdrive_nvme::{Key, Status, StoreOptions};

use crate::client::Client;
use crate::context::{ClientContext, Spare};
use crate::error::{Error, bytes_of};
use crate::names::{Named, has_front};

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
    /// Answer to a get whose value was offered to the caller's [`Places`] ([`Pipeline::next_ended_to`]): its size in bytes;
    /// `None` if there is no pair.
    Placed(Option<u32>),
}

/// Memory of a caller for values.
pub trait Places {
    /// The memory, of exactly `bytes` bytes, for the value of the get with this number ([`Ended::number`]); `None`: the
    /// value is not wanted, and its [`Done::Placed`] has its size alone.
    fn place(&mut self, number: u64, bytes: u32) -> Option<&mut [u8]>;
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

/// Memory of values that a pipeline keeps for further ones, bytes each.
const KEPT_BYTES: u32 = 4 << 20;

/// A queue pair used as a queue of commands. Commands gather, cross with one doorbell, and end in any order;
/// commands in flight when it is dropped are counted in [`Closed::unanswered`](crate::Closed::unanswered).
pub struct Pipeline<'c> {
    pipeline: kvdrive_host::driver::Pipeline<'c, Value<'c>>,
    most: u32,
    begun: u64,
    context: &'c ClientContext,
    /// Second commands of calls on names that wait for room.
    further: VecDeque<(Call<()>, Value<'c>, Region)>,
    spare: &'c mut Spare,
}

/// State kept for a call: its number, the value of a store, and how far it is.
struct Value<'c> {
    number: u64,
    bytes: Cow<'c, [u8]>,
    kind: Kind,
    /// The name, if the key on the drive is a digest.
    name: Option<Name>,
}

/// A name, with what stands before its value.
struct Name {
    given: Vec<u8>,
    step: Step,
}

/// The command of a call on a name that is under way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// A store that adds the pair only.
    Add,
    /// The front of the value is read, to compare the name.
    Look,
    /// The call itself.
    Last,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Store,
    Get,
    Delete,
    Remove,
    Exist,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Store => "store",
            Kind::Get => "get",
            Kind::Delete => "delete",
            Kind::Remove => "remove",
            Kind::Exist => "exist",
        }
    }

    fn call(self, key: Key, options: StoreOptions) -> Call<()> {
        match self {
            Kind::Store => Call::Store { key, value: (), options },
            Kind::Get => Call::Retrieve { key },
            Kind::Delete => Call::Delete { key },
            Kind::Remove => Call::Remove { key },
            Kind::Exist => Call::Exist { key },
        }
    }

    /// The first command of such a call on a name.
    fn first_step(self) -> Step {
        match self {
            Kind::Store => Step::Add,
            Kind::Delete | Kind::Remove => Step::Look,
            Kind::Get | Kind::Exist => Step::Last,
        }
    }
}

impl kvdrive_host::Content for Value<'_> {
    fn piece(&self) -> Piece<'_> {
        Piece::Bytes(&self.bytes)
    }
}

impl<'c> Pipeline<'c> {
    pub(crate) fn new(
        driver: &'c mut Driver,
        spare: &'c mut Spare,
        context: &'c ClientContext,
    ) -> Result<Pipeline<'c>, Error> {
        context.check_process("pipeline")?;
        let most = driver.max_value_bytes();
        let pipeline = driver.pipeline().map_err(|error| Error::of("pipeline", None, error))?;
        Ok(Pipeline { pipeline, most, begun: 0, context, further: VecDeque::new(), spare })
    }

    /// Starts a store. If all slots are taken, it waits for a command to end and returns that command's
    /// result.
    ///
    /// # Errors
    /// A key or value of a wrong size; the drive is off. The result of a command is in its [`Ended`].
    pub fn store(&mut self, of: &[u8], value: impl Into<Vec<u8>>) -> Result<Option<Ended>, Error> {
        let (named, mut bytes) = (Named::of(of)?, value.into());
        named.check_size(bytes.len(), self.most)?;
        if named.is_digest() {
            bytes.splice(..0, named.front());
        }
        self.start(Kind::Store, of, &named, Cow::Owned(bytes))
    }

    /// As [`Pipeline::store`], of a value that stays where it is until the pipeline is dropped, and is not copied before
    /// the driver takes it. A value under a name is copied.
    ///
    /// # Errors
    /// As [`Pipeline::store`].
    pub fn store_borrowed(&mut self, of: &[u8], value: &'c [u8]) -> Result<Option<Ended>, Error> {
        let named = Named::of(of)?;
        named.check_size(value.len(), self.most)?;
        let bytes = if named.is_digest() {
            let mut bytes = self.spare.buffers.pop().unwrap_or_default();
            bytes.clear();
            named.put_front(&mut bytes);
            bytes.extend_from_slice(value);
            Cow::Owned(bytes)
        } else {
            Cow::Borrowed(value)
        };
        self.start(Kind::Store, of, &named, bytes)
    }

    /// Starts a get; as [`Pipeline::store`].
    ///
    /// # Errors
    /// As [`Pipeline::store`].
    pub fn get(&mut self, of: &[u8]) -> Result<Option<Ended>, Error> {
        self.start(Kind::Get, of, &Named::of(of)?, Cow::Borrowed(&[]))
    }

    /// Starts a delete; as [`Pipeline::store`].
    ///
    /// # Errors
    /// As [`Pipeline::store`].
    pub fn delete(&mut self, of: &[u8]) -> Result<Option<Ended>, Error> {
        self.start(Kind::Delete, of, &Named::of(of)?, Cow::Borrowed(&[]))
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
        self.start(Kind::Remove, of, &Named::of(of)?, Cow::Borrowed(&[]))
    }

    /// Starts an exist; as [`Pipeline::store`].
    ///
    /// # Errors
    /// As [`Pipeline::store`].
    pub fn exist(&mut self, of: &[u8]) -> Result<Option<Ended>, Error> {
        self.start(Kind::Exist, of, &Named::of(of)?, Cow::Borrowed(&[]))
    }

    fn start(
        &mut self,
        kind: Kind,
        of: &[u8],
        named: &Named<'_>,
        bytes: Cow<'c, [u8]>,
    ) -> Result<Option<Ended>, Error> {
        let ended = if self.has_room() { None } else { self.next_ended()? };
        let step = kind.first_step();
        let name = named.is_digest().then(|| Name { given: of.to_vec(), step });
        let step = name.as_ref().map_or(Step::Last, |name| name.step);
        let value = Value { number: self.begun, bytes, kind, name };
        self.begun += 1;
        let into = if value.brings() { self.spare.regions.pop().unwrap_or_default() } else { Region::new() };
        begun(self.pipeline.begin(value.command(named.key, step), value, into));
        Ok(ended)
    }

    /// Commands begun so far: the [`Ended::number`] of the next one.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Can one more command begin without waiting for another to end?
    pub fn has_room(&self) -> bool {
        self.further.is_empty() && self.pipeline.has_room()
    }

    /// Commands whose end has not been returned.
    pub fn under_way(&self) -> u32 {
        self.pipeline.under_way() + self.further.len() as u32
    }

    /// Waits for the next command to end and returns it. `None` if none is in flight.
    ///
    /// # Errors
    /// The drive is off; commands in flight are not answered.
    pub fn next_ended(&mut self) -> Result<Option<Ended>, Error> {
        self.ended_within(None, Taking::Alone)
    }

    /// A command that has ended, without waiting for one; gathered commands are sent. `None` if none has; then
    /// [`Pipeline::under_way`] says whether any is in flight.
    ///
    /// # Errors
    /// As [`Pipeline::next_ended`].
    pub fn try_next_ended(&mut self) -> Result<Option<Ended>, Error> {
        self.ended_within(Some(Duration::ZERO), Taking::Alone)
    }

    /// As [`Pipeline::next_ended`]; the value of a get is appended to `values`, and its answer is [`Done::Appended`]. Where
    /// values have one memory, they are copied once.
    ///
    /// # Errors
    /// As [`Pipeline::next_ended`].
    pub fn next_ended_into(&mut self, values: &mut Vec<u8>) -> Result<Option<Ended>, Error> {
        self.ended_within(None, Taking::Appended(values))
    }

    /// As [`Pipeline::next_ended`]; the value of a get is copied, once, to the memory that `places` has for it, and its
    /// answer is [`Done::Placed`].
    ///
    /// # Errors
    /// As [`Pipeline::next_ended`].
    pub fn next_ended_to(&mut self, places: &mut dyn Places) -> Result<Option<Ended>, Error> {
        self.ended_within(None, Taking::Placed(places))
    }

    fn ended_within(
        &mut self,
        timeout: Option<Duration>,
        mut taking: Taking<'_>,
    ) -> Result<Option<Ended>, Error> {
        self.context.check_process("pipeline")?;
        loop {
            while self.pipeline.has_room()
                && let Some((call, value, into)) = self.further.pop_front()
            {
                begun(self.pipeline.begin(call, value, into));
            }
            let completion = self.pipeline.next_completion_within(timeout);
            let completion = completion.map_err(|error| Error::of("pipeline", None, error))?;
            let Some(completion) = completion else { return Ok(None) };
            if let Call::Store { key, .. } | Call::Delete { key } | Call::Remove { key } = &completion.call {
                self.context.neighbour.written(key);
            }
            match next_step(&completion) {
                Some((step, call)) => {
                    let Completion { mut value, content: mut into, .. } = completion;
                    value.name.iter_mut().for_each(|name| name.step = step);
                    into.clear();
                    self.further.push_back((call, value, into));
                }
                None => {
                    let Completion { call, value, result, content } = completion;
                    let ended = ended(&call, &value, result, &content, &mut taking);
                    self.keep(value, content);
                    return Ok(Some(ended));
                }
            }
        }
    }

    /// Keeps the memory of a call that has ended.
    fn keep(&mut self, value: Value<'c>, mut content: Region) {
        if value.brings() {
            content.clear_to(KEPT_BYTES);
            self.spare.regions.push(content);
        }
        if let Cow::Owned(bytes) = value.bytes
            && value.name.is_some()
            && bytes.capacity() <= KEPT_BYTES as usize
        {
            self.spare.buffers.push(bytes);
        }
    }
}

impl Value<'_> {
    /// Does a command of the call bring bytes?
    fn brings(&self) -> bool {
        self.kind == Kind::Get || self.name.is_some()
    }

    /// The command of a step of the call.
    fn command(&self, key: Key, step: Step) -> Call<()> {
        match step {
            Step::Add => self.kind.call(key, StoreOptions { add_only: true, ..StoreOptions::default() }),
            Step::Look => Call::RetrievePart { key, at: 0, bytes: self.named().front_bytes() },
            Step::Last => self.kind.call(key, StoreOptions::default()),
        }
    }

    fn named(&self) -> Named<'_> {
        let name = self.name.as_ref().expect("only calls on names have steps");
        Named::of(&name.given).expect("it was checked when the call began")
    }
}

/// The next command of a call on a name, after the one that has ended; `None`: the call has ended.
fn next_step(ended: &Completion<Value<'_>>) -> Option<(Step, Call<()>)> {
    let Completion { call, value, result, content } = ended;
    let (key, step) = (call.key()?, value.name.as_ref()?.step);
    let next = match (step, result) {
        (Step::Add, Err(Status::KEY_EXISTS)) => Step::Look,
        (Step::Look, Ok(_)) if has_front(content, &value.named().front()) => Step::Last,
        // Another host has removed it meanwhile.
        (Step::Look, Err(Status::KEY_NOT_FOUND)) if value.kind == Kind::Store => Step::Last,
        // Other drives return values as a whole.
        (Step::Look, Err(Status::INVALID_OPCODE)) if !matches!(call, Call::Retrieve { .. }) => {
            return Some((Step::Look, Call::Retrieve { key }));
        }
        _ => return None,
    };
    Some((next, value.command(key, next)))
}

/// What becomes of the value of a get.
enum Taking<'v> {
    /// It is returned by itself.
    Alone,
    Appended(&'v mut Vec<u8>),
    Placed(&'v mut dyn Places),
}

fn begun(begun: Result<(), Value<'_>>) {
    assert!(begun.is_ok(), "a pipeline that has room takes a command");
}

impl Drop for Pipeline<'_> {
    fn drop(&mut self) {
        self.context.unanswered.add(u64::from(self.under_way()));
    }
}

fn ended(
    call: &Call<()>,
    value: &Value<'_>,
    result: Result<Answer, Status>,
    content: &Region,
    taking: &mut Taking<'_>,
) -> Ended {
    let key = call.key().expect("calls of this pipeline name keys");
    let (call, step) = (value.kind.name(), value.name.as_ref().map_or(Step::Last, |name| name.step));
    let given = value.name.as_ref().map_or_else(|| bytes_of(&key), |name| name.given.clone());
    let result = match (result, value.kind) {
        (Err(Status::KEY_NOT_FOUND), Kind::Delete) if step == Step::Look => Ok(Done::Deleted),
        (Err(Status::KEY_NOT_FOUND), Kind::Remove) if step == Step::Look => Ok(Done::Removed(false)),
        (Err(Status::KEY_NOT_FOUND), Kind::Get) => Ok(match taking {
            Taking::Alone => Done::Got(None),
            Taking::Appended(_) => Done::Appended(None),
            Taking::Placed(_) => Done::Placed(None),
        }),
        (Err(status), _) => Err(Error::Status { call, key: Some(key), status }),
        (Ok(_), _) if step == Step::Look => Err(Error::OtherName { call, key }),
        (Ok(_), Kind::Store) => Ok(Done::Stored),
        (Ok(_), Kind::Delete) => Ok(Done::Deleted),
        (Ok(answer), Kind::Remove) => Ok(Done::Removed(answer.exists())),
        (Ok(answer), Kind::Exist) => Ok(Done::Exists(answer.exists())),
        (Ok(answer), Kind::Get) => {
            let named = Named::of(&given).expect("it was checked when the call began");
            taken(&named, answer.value(), content, value.number, taking)
        }
    };
    Ended { number: value.number, key: given, result }
}

/// Takes the value of a get.
fn taken(
    named: &Named<'_>,
    bytes: u32,
    content: &Region,
    number: u64,
    taking: &mut Taking<'_>,
) -> Result<Done, Error> {
    let (front, came, key) = (named.front_bytes(), content.written_end(), named.key);
    if let Taking::Alone = taking {
        return named.value_of("get", bytes, content).map(|value| Done::Got(Some(value)));
    }
    if came < bytes {
        return Err(Error::ValueCutShort { call: "get", key, bytes, came });
    }
    if named.is_digest() && (bytes < front || !has_front(content, &named.front())) {
        return Err(Error::OtherName { call: "get", key });
    }
    let bytes = bytes - front;
    match taking {
        Taking::Alone => unreachable!("it is returned above"),
        Taking::Appended(values) => {
            append(content, front, bytes, values);
            Ok(Done::Appended(Some(bytes)))
        }
        Taking::Placed(places) => {
            if let Some(place) = places.place(number, bytes) {
                assert_eq!(place.len(), bytes as usize, "memory of the value's size");
                content.copy_to(front, place);
            }
            Ok(Done::Placed(Some(bytes)))
        }
    }
}

/// Appends `bytes` bytes of a value from `at` on.
fn append(content: &Region, at: u32, bytes: u32, values: &mut Vec<u8>) {
    content.read(at, bytes, &mut |piece| match piece {
        Piece::Bytes(bytes) => values.extend_from_slice(bytes),
        piece => {
            let from = values.len();
            values.resize(from + piece.bytes() as usize, 0);
            piece.expand(&mut values[from..]);
        }
    });
}

impl Client {
    /// Many commands at once from one thread, with few doorbells.
    ///
    /// # Errors
    /// [`Error::Off`].
    pub fn pipeline(&mut self) -> Result<Pipeline<'_>, Error> {
        Pipeline::new(&mut self.0.driver, &mut self.0.spare, &self.0.context)
    }
}
