//! Calls on lists: a pipeline carries them out without the interpreter's lock, and answers are put in the
//! order of the list as they come.

use std::collections::BTreeMap;
use std::time::Duration;

use kvdrive::{Client, Done, Ended, Error, Pipeline};
use kvdrive_sim::wall::Stopwatch;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::buffer::Buffer;
use crate::failure::{exception, exception_at};

/// Commands of a list between two checks for Ctrl-C.
const LOOK_COMMANDS: usize = 4096;

/// Bytes of values that are collected, at first, before the call takes the interpreter's lock: at most half a
/// queue of 4 KiB values, so that the drive has work while they are copied.
const STAGED_BYTES: usize = 64 << 10;

/// After each wait for the lock that was at least this long, twice as many bytes are collected: other threads
/// of Python compute, and release the lock only some times a second.
const LONG_WAIT: Duration = Duration::from_millis(1);

/// Begins the call of a number.
pub type Begin<'a> = &'a (dyn Fn(&mut Pipeline<'_>, usize) -> Result<Option<Ended>, Error> + Send + Sync);

/// What is done with the answers of calls that have succeeded.
pub trait Ending: Send {
    /// The buffer to which values are appended.
    fn memory(&mut self) -> &mut Vec<u8>;

    /// The call of this number has ended; its value has been appended.
    fn ended(&mut self, call: usize, done: Done) -> PyResult<()>;

    /// All calls have ended.
    fn finish(&mut self) -> PyResult<()> {
        Ok(())
    }
}

/// Stores bring nothing.
#[derive(Default)]
pub struct Stored(Vec<u8>);

impl Ending for Stored {
    fn memory(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    fn ended(&mut self, _: usize, _: Done) -> PyResult<()> {
        Ok(())
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
    fn memory(&mut self) -> &mut Vec<u8> {
        &mut self.values.data
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
    fn memory(&mut self) -> &mut Vec<u8> {
        &mut self.values.data
    }

    fn ended(&mut self, call: usize, done: Done) -> PyResult<()> {
        self.values.came(call, bytes_of(&done), |end| self.ends.push(end));
        if self.values.data.len() < self.staged_bytes && self.ends.len() < LOOK_COMMANDS {
            return Ok(());
        }
        self.finish()
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

/// Has a pipeline carry out `count` calls, which `begin` begins by their number; `ending` gets each that
/// succeeded. After a failure or Ctrl-C no further call begins, and those under way are waited for.
pub fn carry_out(
    client: &mut Client,
    count: usize,
    begin: Begin<'_>,
    ending: &mut impl Ending,
) -> Result<(), Failure> {
    let mut calls = Calls { pipeline: client.pipeline()?, failed: None, ending };
    for call in 0..count {
        while !calls.pipeline.has_room() {
            calls.take()?;
        }
        match begin(&mut calls.pipeline, call) {
            Ok(none) => assert!(none.is_none(), "there was room"),
            Err(error @ (Error::KeySize(_) | Error::ValueSize { .. })) => {
                calls.fail(call, Failure::Call(call, error))
            }
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
    /// The first call that failed, with its failure.
    failed: Option<(usize, Failure)>,
    ending: &'c mut E,
}

impl<E: Ending> Calls<'_, E> {
    /// Waits for the next completion. Every call that was begun has a number; a call with a wrong size was
    /// not begun.
    fn take(&mut self) -> Result<(), Failure> {
        let memory = self.ending.memory();
        let Some(Ended { number, result, .. }) = self.pipeline.next_ended_into(memory)? else {
            return Ok(());
        };
        let call = number as usize;
        match result {
            Err(error) => self.fail(call, Failure::Call(call, error)),
            Ok(done) if self.failed.is_none() => {
                if let Err(error) = self.ending.ended(call, done) {
                    self.fail(call, error.into());
                }
            }
            Ok(_) => {}
        }
        Ok(())
    }

    fn fail(&mut self, call: usize, failure: Failure) {
        if self.failed.as_ref().is_none_or(|(first, _)| call < *first) {
            self.failed = Some((call, failure));
        }
    }
}
