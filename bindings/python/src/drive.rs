//! Class `Drive`, from which `kvdrive.Drive` of Python inherits.
//!
//! Calls on one pair share a queue pair; a call on a list has a queue pair of its own from a pool while it
//! lasts. No lock is held while a call waits for the drive, so that one thread can cut the power while others
//! store.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};

use kvdrive::{Client, Error, ForkCount, Pace, Pipeline, PoweredOff};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};
use serde_json::json;

use crate::bulk::{self, Begin, Ending, Failure, FoundBuffer, FoundList, FoundParts, Stored};
use crate::failure::{exception, forked, missing};
use crate::items::Items;
use crate::pairs::{Pairs, Part};
use crate::saker::Saker;
use crate::settings::{self, Argument};

/// A drive of pairs on threads of this process.
#[pyclass(subclass, frozen, module = "kvdrive._native")]
pub struct Drive {
    forks: ForkCount,
    is_ordered: bool,
    state: Mutex<DriveState>,
}

enum DriveState {
    On(On),
    Off(PoweredOff),
    Closed,
}

/// A drive that has power.
struct On {
    drive: kvdrive::Drive,
    /// For calls on one pair, of all threads.
    client: Arc<Client>,
    /// For calls on lists: clients that no call uses at the moment.
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
        Ok(Drive { forks: ForkCount::now(), is_ordered, state: Mutex::new(DriveState::On(on)) })
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
        let is_there = self.call(py, |client| client.remove(&key))?;
        if is_there { Ok(()) } else { Err(missing(py, &key)) }
    }

    fn __contains__(&self, py: Python<'_>, key: PyBackedBytes) -> PyResult<bool> {
        self.call(py, |client| client.exist(&key))
    }

    /// Removes a pair with one command; an absent pair is no error.
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
        self.pairs(py, Part::Key, &prefix)
    }

    #[pyo3(signature = (prefix=vec![]))]
    fn values(&self, py: Python<'_>, prefix: Vec<u8>) -> PyResult<Pairs> {
        self.pairs(py, Part::Value, &prefix)
    }

    #[pyo3(signature = (prefix=vec![]))]
    fn items(&self, py: Python<'_>, prefix: Vec<u8>) -> PyResult<Pairs> {
        self.pairs(py, Part::Pair, &prefix)
    }

    /// Stores value `i` under key `i`, many commands at once.
    fn store_items(&self, py: Python<'_>, keys: Items, values: Items) -> PyResult<()> {
        if keys.len() != values.len() {
            let line = format!("{} keys and {} values", keys.len(), values.len());
            return Err(pyo3::exceptions::PyValueError::new_err(line));
        }
        let calls = py.detach(|| last_of_each(&keys));
        let begin = |pipeline: &mut Pipeline<'_>, call: usize| {
            pipeline.store(keys.get(calls[call]), values.get(calls[call]))
        };
        let stored = self.carry_out(py, calls.len(), &begin, &mut Stored::default());
        stored.map_err(|failure| failure.into_exception(py, |call| calls[call]))
    }

    /// The values of `keys`, many commands at once; `None` if there is no pair.
    fn retrieve_list(&self, py: Python<'_>, keys: Items) -> PyResult<Py<PyList>> {
        let mut found = FoundList::new(py);
        self.retrieve(py, &keys, &mut found)?;
        Ok(found.list)
    }

    /// The values of `keys` in one buffer without gaps, their offsets as `int64`, and for each whether there
    /// is a pair.
    fn retrieve_buffer<'py>(&self, py: Python<'py>, keys: Items) -> PyResult<FoundParts<'py>> {
        let mut found = FoundBuffer::new(keys.len());
        self.retrieve(py, &keys, &mut found)?;
        found.into_parts(py)
    }

    /// Bytes `at` to `at + size` of a value, and the size of the whole value; `None`: there is no pair.
    fn retrieve_part_of<'py>(
        &self,
        py: Python<'py>,
        key: PyBackedBytes,
        at: u32,
        size: u32,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, u32)>> {
        let part = self.call(py, |client| client.get_part(&key, at, size))?;
        Ok(part.map(|part| (PyBytes::new(py, &part.bytes), part.value_bytes)))
    }

    /// Number of keys that begin with `prefix`.
    #[pyo3(signature = (prefix=vec![]))]
    fn count(&self, py: Python<'_>, prefix: Vec<u8>) -> PyResult<u64> {
        self.call(py, |client| client.count(&prefix))
    }

    /// The namespace's sizes, as JSON.
    fn namespace_json(&self, py: Python<'_>) -> PyResult<String> {
        self.change(py, |state| Ok(json!(state.on()?.drive.namespace()?).to_string()))
    }

    /// Are keys and pairs returned in the order of keys?
    #[getter]
    fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// SAKER in front of the drive, with these keys of its section of the configuration.
    fn open_saker(&self, py: Python<'_>, arguments: Vec<Argument>) -> PyResult<Saker> {
        let saker = self.change(py, |state| {
            let config = settings::of_saker(&arguments)?;
            state.on()?.drive.saker(config)
        });
        Ok(Saker::new(saker?))
    }

    #[pyo3(signature = (*, torn=false))]
    fn power_cut(&self, py: Python<'_>, torn: bool) -> PyResult<()> {
        self.change(py, |state| match std::mem::replace(state, DriveState::Closed) {
            DriveState::On(on) if on.drive.is_on_network() => {
                *state = DriveState::On(on);
                let line =
                    "power_cut: the power of a drive on a network is controlled by its server (kvdrive ctl)";
                Err(Error::Refused(line.into()))
            }
            DriveState::On(on) => {
                *state = DriveState::Off(on.drive.cut_power(torn)?);
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
            DriveState::On(_) => Err(Error::Refused("power_on: the drive has power".into())),
            DriveState::Closed => Err(Error::Off),
            DriveState::Off(off) => {
                // The survivors are kept until the drive is powered on.
                *state = DriveState::On(On::new(off.clone().power_on()?)?);
                Ok(())
            }
        })
    }

    /// The drive's counters since power-on, as JSON.
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
        self.change(py, |state| Ok(matches!(state, DriveState::On(_))))
    }

    /// Ends the drive; returns how it ended, as JSON; `None` for a drive that had no power.
    fn close_json(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.change(py, |state| match std::mem::replace(state, DriveState::Closed) {
            DriveState::Off(_) | DriveState::Closed => Ok(None),
            DriveState::On(on) => {
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
    fn state(&self) -> MutexGuard<'_, DriveState> {
        self.state.lock().expect("no call panicked")
    }

    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.forks.is_forked() { Err(forked(py, "drive")) } else { Ok(()) }
    }

    /// A call on the drive as a whole: other calls wait.
    fn change<T: Send>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut DriveState) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        self.check_process(py)?;
        py.detach(|| change(&mut self.state())).map_err(|error| exception(py, &error))
    }

    /// A call on pairs: other calls continue.
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

    fn retrieve(&self, py: Python<'_>, keys: &Items, found: &mut impl Ending) -> PyResult<()> {
        let begin = |pipeline: &mut Pipeline<'_>, call: usize| pipeline.get(keys.get(call));
        let retrieved = self.carry_out(py, keys.len(), &begin, found);
        retrieved.map_err(|failure| failure.into_exception(py, |call| call))
    }

    /// Has a pipeline carry out `count` calls, without the interpreter's lock; see [`bulk::carry_out`].
    fn carry_out(
        &self,
        py: Python<'_>,
        count: usize,
        begin: Begin<'_>,
        ending: &mut impl Ending,
    ) -> Result<(), Failure> {
        self.check_process(py)?;
        py.detach(|| {
            let mut client = {
                let mut state = self.state();
                let on = state.on()?;
                on.idle.pop().map_or_else(|| on.drive.client(), Ok)?
            };
            let result = bulk::carry_out(&mut client, count, begin, ending);
            // If the drive has lost its power meanwhile, the client cannot be reused.
            if let (true, Ok(on)) = (result.is_ok(), self.state().on()) {
                on.idle.push(client);
            }
            result
        })
    }

    fn pairs(&self, py: Python<'_>, part: Part, prefix: &[u8]) -> PyResult<Pairs> {
        self.call(py, |client| Pairs::open(client, part, prefix))
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        if self.forks.is_forked() {
            // The drive's threads belong to the parent process: ending it here would wait for them.
            let state = self.state.get_mut().map(|state| std::mem::replace(state, DriveState::Closed));
            std::mem::forget(state);
        }
    }
}

impl DriveState {
    fn on(&mut self) -> Result<&mut On, Error> {
        match self {
            DriveState::On(on) => Ok(on),
            DriveState::Off(_) | DriveState::Closed => Err(Error::Off),
        }
    }
}

fn open(profile: &[String], arguments: &[Argument], pace: Option<&str>) -> Result<On, Error> {
    if let [address] = profile
        && address.starts_with("tcp://")
    {
        let given = arguments.first().map(|(name, _)| name.as_str()).or(pace.map(|_| "pace"));
        return match given {
            Some(name) => Err(Error::configuration(
                name,
                format!("the drive at {address} is configured by its server; leave it out"),
            )),
            None => On::new(kvdrive::connect(address)?),
        };
    }
    let builder = kvdrive::build().options(settings::options(profile, arguments)?);
    let pace = match pace.unwrap_or("off") {
        "off" => Pace::Off,
        "model" => Pace::Model,
        other => return Err(Error::configuration("pace", format!("{other:?}; allowed: off, model"))),
    };
    On::new(builder.pace(pace).open()?)
}

/// Places of the keys, ascending, but only the last place of a key that occurs several times: commands of a
/// pipeline end in any order, and the last value must be the one that stays.
fn last_of_each(keys: &Items) -> Vec<usize> {
    let mut seen: HashSet<&[u8]> = HashSet::with_capacity(keys.len());
    let mut places: Vec<_> = (0..keys.len()).rev().filter(|place| seen.insert(keys.get(*place))).collect();
    places.reverse();
    places
}
