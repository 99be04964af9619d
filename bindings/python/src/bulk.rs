//! Calls on lists: a pipeline carries them out without the interpreter's lock, and answers are put in the
//! order of the list as they come.

use std::collections::BTreeMap;
use std::time::Duration;

use kvdrive::{Client, Done, Ended, Error, Pipeline, Places};
use kvdrive_sim::wall::Stopwatch;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::buffer::{Buffer, Target};
use crate::failure::{exception, exception_at};
use crate::items::Items;

/// Commands of a list between two checks for Ctrl-C.
const LOOK_COMMANDS: usize = 4096;

/// Bytes of values that are collected, at first, before the call takes the interpreter's lock: at most half a
/// queue of 4 KiB values, so that the drive has work while they are copied.
const STAGED_BYTES: usize = 64 << 10;

/// After each wait for the lock that was at least this long, twice as many bytes are collected: other threads
/// of Python compute, and release the lock only some times a second.
const LONG_WAIT: Duration = Duration::from_millis(1);

/// Bytes of values under way at once, unless one alone is larger: as much as stays in a processor's cache while it is
/// copied from the caller's memory to the drive's.
const AT_ONCE_BYTES: usize = 8 << 20;

/// The calls of a list.
pub enum Work {
    /// Stores `values[i]` under `keys[i]` for each of these places.
    Store {
        /// All keys.
        keys: Items,
        /// Their values.
        values: Items,
        /// The places that are stored.
        places: Vec<usize>,
    },
    /// Gets each value.
    Get(Items),
    /// Gets each value, of which so many bytes are wanted at most.
    GetInto(Items, Vec<usize>),
    /// Asks for each pair whether it is there.
    Exist(Items),
    /// Removes each pair.
    Remove(Items),
    /// Removes each pair from a drive that does not say whether it was there.
    Delete(Items),
}

impl Work {
    fn count(&self) -> usize {
        match self {
            Work::Store { places, .. } => places.len(),
            Work::Get(keys)
            | Work::GetInto(keys, _)
            | Work::Exist(keys)
            | Work::Remove(keys)
            | Work::Delete(keys) => keys.len(),
        }
    }

    /// Bytes of the value of a call, if they are known.
    fn bytes(&self, call: usize) -> usize {
        match self {
            Work::Store { values, places, .. } => values.get(places[call]).len(),
            Work::GetInto(_, sizes) => sizes[call],
            _ => 0,
        }
    }

    fn begin<'c>(&'c self, pipeline: &mut Pipeline<'c>, call: usize) -> Result<Option<Ended>, Error> {
        match self {
            Work::Store { keys, values, places } => {
                pipeline.store_borrowed(keys.get(places[call]), values.get(places[call]))
            }
            Work::Get(keys) | Work::GetInto(keys, _) => pipeline.get(keys.get(call)),
            Work::Exist(keys) => pipeline.exist(keys.get(call)),
            Work::Remove(keys) => pipeline.remove(keys.get(call)),
            Work::Delete(keys) => pipeline.delete(keys.get(call)),
        }
    }
}

/// What is done with the answers of calls.
pub trait Ending: Send {
    /// Waits for the next command to end.
    fn next(&mut self, pipeline: &mut Pipeline<'_>) -> Result<Option<Ended>, Error> {
        pipeline.next_ended()
    }

    /// The call of this number has ended; its value is where [`Ending::next`] puts it.
    fn ended(&mut self, call: usize, done: Done) -> PyResult<()>;

    /// The call of this number has failed; the error is given back if it ends the list.
    fn failed(&mut self, _call: usize, error: Error) -> Option<Error> {
        Some(error)
    }

    /// All calls have ended.
    fn finish(&mut self) -> PyResult<()> {
        Ok(())
    }
}

/// Stores bring nothing.
pub struct Stored;

impl Ending for Stored {
    fn ended(&mut self, _: usize, _: Done) -> PyResult<()> {
        Ok(())
    }
}

/// An answer of yes or no for each call.
pub struct Flags(pub Vec<bool>);

impl Ending for Flags {
    fn ended(&mut self, call: usize, done: Done) -> PyResult<()> {
        self.0[call] = matches!(done, Done::Exists(true) | Done::Removed(true));
        Ok(())
    }
}

/// Values that go to memory of the caller, and their sizes; `None`: there is no pair.
pub struct Placed {
    /// By call.
    pub targets: Vec<Target>,
    /// By call.
    pub sizes: Vec<Option<u32>>,
}

impl Places for Placed {
    fn place(&mut self, number: u64, bytes: u32) -> Option<&mut [u8]> {
        self.targets[number as usize].bytes().get_mut(..bytes as usize)
    }
}

impl Ending for Placed {
    fn next(&mut self, pipeline: &mut Pipeline<'_>) -> Result<Option<Ended>, Error> {
        pipeline.next_ended_to(self)
    }

    fn ended(&mut self, call: usize, done: Done) -> PyResult<()> {
        let Done::Placed(bytes) = done else { unreachable!("a get was begun, and not {done:?}") };
        self.sizes[call] = bytes;
        Ok(())
    }
}

/// Carries all calls out whatever becomes of some, and keeps their errors.
pub struct Each<E> {
    /// What is done with the others.
    pub ending: E,
    /// The calls that have failed.
    pub errors: Vec<(usize, Error)>,
}

impl<E> Each<E> {
    /// As `ending`, for each call.
    pub fn of(ending: E) -> Each<E> {
        Each { ending, errors: Vec::new() }
    }
}

impl<E: Ending> Ending for Each<E> {
    fn next(&mut self, pipeline: &mut Pipeline<'_>) -> Result<Option<Ended>, Error> {
        self.ending.next(pipeline)
    }

    fn ended(&mut self, call: usize, done: Done) -> PyResult<()> {
        self.ending.ended(call, done)
    }

    fn failed(&mut self, call: usize, error: Error) -> Option<Error> {
        let unwanted = self.ending.failed(call, error)?;
        self.errors.push((call, unwanted));
        None
    }

    fn finish(&mut self) -> PyResult<()> {
        self.ending.finish()
    }
}

/// Values in the order of their calls, in one buffer. Commands end in any order, mostly in that of their
/// calls: a value that comes before its turn is put aside.
#[derive(Default)]
struct InOrder {
    data: Vec<u8>,
    /// Number of values that are in their place, and the values that came before their turn.
    placed: usize,
    aside: BTreeMap<usize, Option<Vec<u8>>>,
}

impl InOrder {
    /// A value of `bytes` bytes is at the end of the data. Calls `place` for each call whose turn has come,
    /// with the end of its value, if it has one.
    fn came(&mut self, call: usize, bytes: Option<u32>, mut place: impl FnMut(Option<usize>)) {
        if call != self.placed {
            let from = self.data.len() - bytes.unwrap_or(0) as usize;
            self.aside.insert(call, bytes.map(|_| self.data.split_off(from)));
            return;
        }
        self.placed += 1;
        place(bytes.map(|_| self.data.len()));
        while let Some(value) = self.aside.remove(&self.placed) {
            self.placed += 1;
            place(value.map(|value| {
                self.data.extend_from_slice(&value);
                self.data.len()
            }));
        }
    }
}

/// Number of bytes of an answer; `None`: there is no pair.
fn bytes_of(done: &Done) -> Option<u32> {
    let Done::Appended(bytes) = done else { unreachable!("a get was begun, and not {done:?}") };
    *bytes
}

/// Values that stay in one buffer.
pub struct FoundBuffer {
    values: InOrder,
    offsets: Vec<u8>,
    is_there: Vec<u8>,
}

/// The values in one buffer, their offsets as `int64`, and for each whether there is a pair.
pub type FoundParts<'py> = (Bound<'py, Buffer>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

impl FoundBuffer {
    /// Room for the values of `keys` keys.
    pub fn new(keys: usize) -> FoundBuffer {
        let mut offsets = Vec::with_capacity(8 * (keys + 1));
        offsets.extend(i64::to_ne_bytes(0));
        FoundBuffer { values: InOrder::default(), offsets, is_there: Vec::with_capacity(keys) }
    }

    /// The parts as objects of Python.
    pub fn into_parts(self, py: Python<'_>) -> PyResult<FoundParts<'_>> {
        let data = Bound::new(py, Buffer::new(self.values.data))?;
        Ok((data, PyBytes::new(py, &self.offsets), PyBytes::new(py, &self.is_there)))
    }
}

impl Ending for FoundBuffer {
    fn next(&mut self, pipeline: &mut Pipeline<'_>) -> Result<Option<Ended>, Error> {
        pipeline.next_ended_into(&mut self.values.data)
    }

    fn ended(&mut self, call: usize, done: Done) -> PyResult<()> {
        let FoundBuffer { values, offsets, is_there } = self;
        let mut last = offsets.last_chunk().map_or(0, |last| i64::from_ne_bytes(*last));
        values.came(call, bytes_of(&done), |end| {
            last = end.map_or(last, |end| end as i64);
            offsets.extend(last.to_ne_bytes());
            is_there.push(u8::from(end.is_some()));
        });
        Ok(())
    }
}

/// Values that become a list of `bytes`, some at a time, in memory that is reused for the next ones.
pub struct FoundList {
    values: InOrder,
    /// Ends of the values that are not in the list yet; `None`: there is no pair.
    ends: Vec<Option<usize>>,
    staged_bytes: usize,
    /// The values before these.
    pub list: Py<PyList>,
}

impl FoundList {
    /// An empty list.
    pub fn new(py: Python<'_>) -> FoundList {
        let (values, list) = (InOrder::default(), PyList::empty(py).unbind());
        FoundList { values, ends: Vec::new(), staged_bytes: STAGED_BYTES, list }
    }
}

impl Ending for FoundList {
    fn next(&mut self, pipeline: &mut Pipeline<'_>) -> Result<Option<Ended>, Error> {
        pipeline.next_ended_into(&mut self.values.data)
    }

    fn ended(&mut self, call: usize, done: Done) -> PyResult<()> {
        self.values.came(call, bytes_of(&done), |end| self.ends.push(end));
        if self.values.data.len() < self.staged_bytes && self.ends.len() < LOOK_COMMANDS {
            return Ok(());
        }
        self.finish()
    }

    /// Its place is kept.
    fn failed(&mut self, call: usize, error: Error) -> Option<Error> {
        self.values.came(call, None, |end| self.ends.push(end));
        Some(error)
    }

    fn finish(&mut self) -> PyResult<()> {
        let (mut from, asked) = (0, Stopwatch::start());
        Python::attach(|py| {
            if Duration::from_nanos(asked.ns()) > LONG_WAIT {
                self.staged_bytes = self.staged_bytes.saturating_mul(2);
            }
            let list = self.list.bind(py);
            for end in self.ends.drain(..) {
                let value = end
                    .map(|end| PyBytes::new(py, &self.values.data[std::mem::replace(&mut from, end)..end]));
                list.append(value)?;
            }
            self.values.data.clear();
            Ok(())
        })
    }
}

/// The reason why a list of calls was not carried out.
pub enum Failure {
    /// The call of this number has failed, and no begun call with a lower number has.
    Call(usize, Error),
    /// The drive is off, or has no queue pair.
    Drive(Error),
    /// An exception of Python: Ctrl-C.
    Python(PyErr),
}

impl Failure {
    /// The exception; `place` maps the number of a call to its place in the list.
    pub fn into_exception(self, py: Python<'_>, place: impl Fn(usize) -> usize) -> PyErr {
        match self {
            Failure::Call(call, error) => exception_at(py, place(call), &error),
            Failure::Drive(error) => exception(py, &error),
            Failure::Python(error) => error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Drive(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Failure {
        Failure::Python(error)
    }
}

/// Has a pipeline carry out the calls of a list; `ending` gets each that has ended. After a failure that ends the list,
/// or Ctrl-C, no further call begins, and those under way are waited for.
pub fn carry_out<'c>(
    client: &'c mut Client,
    work: &'c Work,
    ending: &'c mut impl Ending,
) -> Result<(), Failure> {
    let pipeline = client.pipeline()?;
    let mut calls =
        Calls { pipeline, work, begun: Vec::with_capacity(work.count()), bytes: 0, failed: None, ending };
    for call in 0..work.count() {
        calls.make_room(work.bytes(call))?;
        // The number of a command is its place among those that were begun.
        match work.begin(&mut calls.pipeline, call) {
            Ok(none) => {
                assert!(none.is_none(), "there was room");
                calls.begun.push(call);
                calls.bytes += work.bytes(call);
            }
            Err(error @ (Error::KeySize(_) | Error::ValueSize { .. })) => calls.ended(call, Err(error)),
            Err(error) => return Err(error.into()),
        }
        if call % LOOK_COMMANDS == LOOK_COMMANDS - 1
            && let Err(interrupt) = Python::attach(|py| py.check_signals())
        {
            calls.failed = Some((0, interrupt.into()));
        }
        if calls.failed.is_some() {
            break;
        }
    }
    while calls.pipeline.under_way() > 0 {
        calls.take()?;
    }
    match calls.failed {
        Some((_, failure)) => Err(failure),
        None => Ok(calls.ending.finish()?),
    }
}

/// Calls under way.
struct Calls<'c, E> {
    pipeline: Pipeline<'c>,
    work: &'c Work,
    /// The call of each command, by the command's number: a call with a wrong size has none.
    begun: Vec<usize>,
    /// Bytes of values under way.
    bytes: usize,
    /// The first call whose failure ends the list.
    failed: Option<(usize, Failure)>,
    ending: &'c mut E,
}

impl<E: Ending> Calls<'_, E> {
    /// Waits until a call with a value of `bytes` bytes can begin.
    fn make_room(&mut self, bytes: usize) -> Result<(), Failure> {
        while !self.pipeline.has_room() || (self.bytes > 0 && self.bytes + bytes > AT_ONCE_BYTES) {
            self.take()?;
        }
        Ok(())
    }

    /// Waits for the next completion.
    fn take(&mut self) -> Result<(), Failure> {
        let Some(Ended { number, result, .. }) = self.ending.next(&mut self.pipeline)? else {
            return Ok(());
        };
        let call = self.begun[number as usize];
        self.bytes -= self.work.bytes(call);
        self.ended(call, result);
        Ok(())
    }

    fn ended(&mut self, call: usize, result: Result<Done, Error>) {
        let failure = match result {
            Err(error) => self.ending.failed(call, error).map(|error| Failure::Call(call, error)),
            Ok(done) if self.failed.is_none() => self.ending.ended(call, done).err().map(Failure::Python),
            Ok(_) => None,
        };
        if let Some(failure) = failure
            && self.failed.as_ref().is_none_or(|(first, _)| call < *first)
        {
            self.failed = Some((call, failure));
        }
    }
}
