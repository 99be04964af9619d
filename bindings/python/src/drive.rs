//! Class `Drive`: what `kvdrive.Drive` of Python inherits.
//!
//! Calls on one pair share a queue pair; a call on a list has a queue pair of its own from a pool while it lasts. No
//! lock is held while a call waits for the drive, so that one thread can cut the power while others store.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};

use kvdrive::{Client, Done, Ended, Error, Pace, PoweredOff};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use serde_json::json;

use crate::failure::{exception, exception_at, forked};
use crate::items::Items;
use crate::pairs::{Pairs, Part};
use crate::settings::{self, Argument};

/// Commands of a list between two looks whether Ctrl-C was pressed.
const LOOK_COMMANDS: usize = 4096;

/// A drive of pairs on threads of this process.
#[pyclass(subclass, frozen, module = "kvdrive._native")]
pub struct Drive {
    process: u32,
    is_ordered: bool,
    state: Mutex<State>,
}

enum State {
    On(On),
    Off(PoweredOff),
    Closed,
}

/// A drive that has power.
struct On {
    drive: kvdrive::Drive,
    /// For calls on one pair, of all threads.
    client: Arc<Client>,
    /// For calls on lists, one for each that is under way; these wait for the next such call.
    idle: Vec<Client>,
}

impl On {
    fn new(drive: kvdrive::Drive) -> Result<On, Error> {
        let client = Arc::new(drive.client()?);
        Ok(On { drive, client, idle: Vec::new() })
    }
}

#[pymethods]
impl Drive {
    #[new]
    #[pyo3(signature = (profile, arguments, pace, /))]
    fn new(
        py: Python<'_>,
        profile: Vec<String>,
        arguments: Vec<Argument>,
        pace: Option<&str>,
    ) -> PyResult<Drive> {
        let on = py.detach(|| open(&profile, &arguments, pace)).map_err(|error| exception(py, &error))?;
        let is_ordered = on.drive.is_ordered();
        Ok(Drive { process: std::process::id(), is_ordered, state: Mutex::new(State::On(on)) })
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: PyBackedBytes) -> PyResult<Bound<'py, PyBytes>> {
        match self.call(py, |client| client.get(&key))? {
            Some(value) => Ok(PyBytes::new(py, &value)),
            None => Err(missing(py, &key)),
        }
    }

    fn __setitem__(&self, py: Python<'_>, key: PyBackedBytes, value: PyBackedBytes) -> PyResult<()> {
        self.call(py, |client| client.store(&key, &value))
    }

    fn __delitem__(&self, py: Python<'_>, key: PyBackedBytes) -> PyResult<()> {
        let is_there = self.call(py, |client| {
            let is_there = client.exist(&key)?;
            if is_there {
                client.delete(&key)?;
            }
            Ok(is_there)
        })?;
        if is_there { Ok(()) } else { Err(missing(py, &key)) }
    }

    fn __contains__(&self, py: Python<'_>, key: PyBackedBytes) -> PyResult<bool> {
        self.call(py, |client| client.exist(&key))
    }

    /// Removes a pair with one command; of a key that is not there nothing happens.
    fn discard(&self, py: Python<'_>, key: PyBackedBytes) -> PyResult<()> {
        self.call(py, |client| client.delete(&key))
    }

    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: PyBackedBytes,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = self.call(py, |client| client.get(&key))?;
        Ok(value.map(|value| PyBytes::new(py, &value).into_any()).or(default))
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Pairs> {
        self.keys(py, Vec::new())
    }

    #[pyo3(signature = (prefix=vec![]))]
    fn keys(&self, py: Python<'_>, prefix: Vec<u8>) -> PyResult<Pairs> {
        self.pairs(py, Part::Key, prefix)
    }

    #[pyo3(signature = (prefix=vec![]))]
    fn values(&self, py: Python<'_>, prefix: Vec<u8>) -> PyResult<Pairs> {
        self.pairs(py, Part::Value, prefix)
    }

    #[pyo3(signature = (prefix=vec![]))]
    fn items(&self, py: Python<'_>, prefix: Vec<u8>) -> PyResult<Pairs> {
        self.pairs(py, Part::Pair, prefix)
    }

    /// Stores value `i` under key `i`, many commands at once.
    fn store_items(&self, py: Python<'_>, keys: Items, values: Items) -> PyResult<()> {
        if keys.len() != values.len() {
            let line = format!("{} keys and {} values", keys.len(), values.len());
            return Err(pyo3::exceptions::PyValueError::new_err(line));
        }
        let calls = py.detach(|| last_of_each(&keys));
        self.pipelined(
            py,
            calls.len(),
            |pipeline, call| pipeline.store(keys.get(calls[call]), values.get(calls[call])),
            |_, _| (),
        )
        .map_err(|failure| failure.into_exception(py, |call| calls[call]))
    }

    /// The values of `keys`, many commands at once; `None` where there is no pair.
    fn retrieve_list<'py>(&self, py: Python<'py>, keys: Items) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let found = self.found(py, &keys)?;
        Ok(found.into_iter().map(|value| value.map(|value| PyBytes::new(py, &value))).collect())
    }

    /// The values of `keys` behind each other, where they begin as `int64`, and whether each is there.
    fn retrieve_buffer<'py>(
        &self,
        py: Python<'py>,
        keys: Items,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let found = self.found(py, &keys)?;
        let mut offsets: Vec<u8> = Vec::with_capacity(8 * (found.len() + 1));
        let mut end = 0;
        offsets.extend(i64::to_ne_bytes(0));
        for value in &found {
            end += value.as_ref().map_or(0, Vec::len);
            offsets.extend((end as i64).to_ne_bytes());
        }
        let data = PyBytes::new_with(py, end, |data| {
            let mut rest = data;
            for value in found.iter().flatten() {
                let (here, behind) = rest.split_at_mut(value.len());
                here.copy_from_slice(value);
                rest = behind;
            }
            Ok(())
        })?;
        let is_there: Vec<u8> = found.iter().map(|value| u8::from(value.is_some())).collect();
        Ok((data, PyBytes::new(py, &offsets), PyBytes::new(py, &is_there)))
    }

    #[pyo3(signature = (*, torn=false))]
    fn power_cut(&self, py: Python<'_>, torn: bool) -> PyResult<()> {
        self.change(py, |state| match std::mem::replace(state, State::Closed) {
            State::On(on) if on.drive.is_on_network() => {
                *state = State::On(on);
                let line = "power_cut: a drive on a network has its power where it is served (kvdrive ctl)";
                Err(Error::Refused(line.into()))
            }
            State::On(on) => {
                *state = State::Off(on.drive.cut_power(torn)?);
                Ok(())
            }
            other => {
                *state = other;
                Err(Error::Off)
            }
        })
    }

    fn power_on(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, |state| match state {
            State::On(_) => Err(Error::Refused("power_on: the drive has power".into())),
            State::Closed => Err(Error::Off),
            State::Off(off) => {
                // What survived is kept until the drive is up.
                *state = State::On(On::new(off.clone().power_on()?)?);
                Ok(())
            }
        })
    }

    /// What the drive has done since power-on, as JSON.
    fn numbers_json(&self, py: Python<'_>) -> PyResult<String> {
        self.change(py, |state| Ok(json!(state.on()?.drive.numbers()?).to_string()))
    }

    fn write_failure(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.change(py, |state| state.on()?.drive.write_failure())
    }

    fn inject_rules(&self, py: Python<'_>, rules: &str) -> PyResult<Vec<String>> {
        self.change(py, |state| state.on()?.drive.inject(rules))
    }

    #[pyo3(signature = (name=None))]
    fn clear_faults(&self, py: Python<'_>, name: Option<&str>) -> PyResult<()> {
        self.change(py, |state| state.on()?.drive.clear_faults(name))
    }

    #[getter]
    fn has_power(&self, py: Python<'_>) -> PyResult<bool> {
        self.change(py, |state| Ok(matches!(state, State::On(_))))
    }

    /// Ends the drive; how it ended, as JSON; `None` for one that had no power.
    fn close_json(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.change(py, |state| match std::mem::replace(state, State::Closed) {
            State::Off(_) | State::Closed => Ok(None),
            State::On(on) => {
                let closed = on.drive.close()?;
                let json = json!({
                    "lasting": format!("{:?}", closed.lasting).to_lowercase(),
                    "unanswered": closed.unanswered,
                    "write_failure": closed.write_failure,
                    "report": closed.report(),
                });
                Ok(Some(json.to_string()))
            }
        })
    }
}

impl Drive {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no call panicked")
    }

    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if std::process::id() == self.process { Ok(()) } else { Err(forked(py)) }
    }

    /// A call on the drive as a whole: others wait.
    fn change<T: Send>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut State) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        self.check_process(py)?;
        py.detach(|| change(&mut self.state())).map_err(|error| exception(py, &error))
    }

    /// A call on pairs: others go on.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Arc<Client>) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        self.check_process(py)?;
        let answer = py.detach(|| {
            let client = self.state().on()?.client.clone();
            call(&client)
        });
        answer.map_err(|error| exception(py, &error))
    }

    /// The values of `keys`.
    fn found(&self, py: Python<'_>, keys: &Items) -> PyResult<Vec<Option<Vec<u8>>>> {
        let mut found: Vec<Option<Vec<u8>>> = vec![None; keys.len()];
        let is_done = self.pipelined(
            py,
            keys.len(),
            |pipeline, call| pipeline.get(keys.get(call)),
            |call, done| {
                if let Done::Got(value) = done {
                    found[call] = value;
                }
            },
        );
        is_done.map_err(|failure| failure.into_exception(py, |call| call))?;
        Ok(found)
    }

    fn pairs(&self, py: Python<'_>, part: Part, prefix: Vec<u8>) -> PyResult<Pairs> {
        self.call(py, |client| Pairs::open(client, part, prefix, self.is_ordered))
    }

    /// Has a pipeline carry out `count` calls, which `begin` begins by their number; `end` hears of each that
    /// succeeded. After a failure or Ctrl-C no further call begins, and those under way are waited for.
    fn pipelined(
        &self,
        py: Python<'_>,
        count: usize,
        begin: impl Fn(&mut kvdrive::Pipeline<'_>, usize) -> Result<Option<Ended>, Error> + Send + Sync,
        mut end: impl FnMut(usize, Done) + Send,
    ) -> Result<(), Failure> {
        self.check_process(py)?;
        let carry_out = || {
            let mut client = {
                let mut state = self.state();
                let on = state.on()?;
                on.idle.pop().map_or_else(|| on.drive.client(), Ok)?
            };
            let result = carry_out(&mut client, count, begin, &mut end);
            // A client of a drive that has lost its power meanwhile is of no use to the next one.
            if let (true, Ok(on)) = (result.is_ok(), self.state().on()) {
                on.idle.push(client);
            }
            result
        };
        py.detach(carry_out)
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // The drive's threads are the parent's: ending it would wait for them.
            let state = self.state.get_mut().map(|state| std::mem::replace(state, State::Closed));
            std::mem::forget(state);
        }
    }
}

impl State {
    fn on(&mut self) -> Result<&mut On, Error> {
        match self {
            State::On(on) => Ok(on),
            State::Off(_) | State::Closed => Err(Error::Off),
        }
    }
}

/// Why a list of calls was not carried out.
enum Failure {
    /// The call of this number has failed, and none of a lower number that was begun.
    Call(usize, Error),
    /// The drive is off, or has no queue pair.
    Drive(Error),
    /// Of Python: Ctrl-C.
    Python(PyErr),
}

impl Failure {
    fn into_exception(self, py: Python<'_>, place: impl Fn(usize) -> usize) -> PyErr {
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

fn carry_out(
    client: &mut Client,
    count: usize,
    begin: impl Fn(&mut kvdrive::Pipeline<'_>, usize) -> Result<Option<Ended>, Error>,
    end: &mut impl FnMut(usize, Done),
) -> Result<(), Failure> {
    let mut pipeline = client.pipeline()?;
    let mut failed: Option<(usize, Error)> = None;
    let mut take = |ended: Ended| {
        let call = ended.number as usize;
        match ended.result {
            Ok(done) => end(call, done),
            Err(error) => {
                if failed.as_ref().is_none_or(|(first, _)| call < *first) {
                    failed = Some((call, error));
                }
                return false;
            }
        }
        true
    };
    let mut interrupt = None;
    for call in 0..count {
        let is_going_on = match begin(&mut pipeline, call) {
            Ok(ended) => ended.is_none_or(&mut take),
            Err(error @ (Error::KeySize(_) | Error::ValueSize { .. })) => {
                take(Ended { number: call as u64, key: Vec::new(), result: Err(error) })
            }
            Err(error) => return Err(error.into()),
        };
        if call % LOOK_COMMANDS == LOOK_COMMANDS - 1 {
            interrupt = Python::attach(|py| py.check_signals()).err();
        }
        if !is_going_on || interrupt.is_some() {
            break;
        }
    }
    while let Some(ended) = pipeline.next_ended()? {
        take(ended);
    }
    match (interrupt, failed) {
        (Some(interrupt), _) => Err(interrupt.into()),
        (None, Some((call, error))) => Err(Failure::Call(call, error)),
        (None, None) => Ok(()),
    }
}

fn open(profile: &[String], arguments: &[Argument], pace: Option<&str>) -> Result<On, Error> {
    if let [address] = profile
        && address.starts_with("tcp://")
    {
        let given = arguments.first().map(|(name, _)| name.as_str()).or(pace.map(|_| "pace"));
        return match given {
            Some(name) => Err(Error::Configuration(format!("{name}: {address} is what it is; leave it out"))),
            None => On::new(kvdrive::connect(address)?),
        };
    }
    let builder = kvdrive::build().options(settings::options(profile, arguments)?);
    let pace = match pace.unwrap_or("off") {
        "off" => Pace::Off,
        "model" => Pace::Model,
        other => return Err(Error::Configuration(format!("pace: {other:?}; there are off, model"))),
    };
    On::new(builder.pace(pace).open()?)
}

/// Places of the keys, ascending, but of a key that is there several times only the last: commands of a pipeline end
/// in any order, and the last value is to stay.
fn last_of_each(keys: &Items) -> Vec<usize> {
    let mut seen: HashSet<&[u8]> = HashSet::with_capacity(keys.len());
    let mut places: Vec<_> = (0..keys.len()).rev().filter(|place| seen.insert(keys.get(*place))).collect();
    places.reverse();
    places
}

fn missing(py: Python<'_>, key: &[u8]) -> PyErr {
    PyKeyError::new_err(PyBytes::new(py, key).unbind())
}
