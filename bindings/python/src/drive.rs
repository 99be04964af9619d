//! Class `Drive`, from which `kvdrive.Drive` of Python inherits.
//!
//! Calls on one pair share a queue pair; a call on a list has a queue pair of its own from a pool while it
//! lasts. No lock is held while a call waits for the drive, so that one thread can cut the power while others
//! store.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};

use kvdrive::{Client, Error, ForkCount, Pace, PoweredOff};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};
use serde_json::json;

use crate::buffer::{Source, Target};
use crate::bulk::{
    self, Each, Ending, Failure, Flags, FoundBuffer, FoundList, FoundParts, Placed, Stored, Work,
};
use crate::failure::{exception, exception_at, forked, missing, too_small};
use crate::items::Items;
use crate::pairs::{Pairs, Part};
use crate::saker::Saker;
use crate::settings::{self, Argument};

/// The calls of a list that have failed, with their places and exceptions.
type Errors = Vec<(usize, Py<PyAny>)>;

/// A drive of pairs on threads of this process.
#[pyclass(subclass, frozen, module = "kvdrive._native")]
pub struct Drive {
    forks: ForkCount,
    is_ordered: bool,
    delete_says: bool,
    state: Mutex<DriveState>,
}

enum DriveState {
    On(Box<On>),
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
        let (is_ordered, delete_says) = (on.drive.is_ordered(), on.drive.delete_says());
        Ok(Drive {
            forks: ForkCount::now(),
            is_ordered,
            delete_says,
            state: Mutex::new(DriveState::On(Box::new(on))),
        })
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: PyBackedBytes) -> PyResult<Bound<'py, PyBytes>> {
        match self.call(py, |client| client.get(&key))? {
            Some(value) => Ok(PyBytes::new(py, &value)),
            None => Err(missing(py, &key)),
        }
    }

    fn __setitem__(&self, py: Python<'_>, key: PyBackedBytes, value: Source) -> PyResult<()> {
        self.call(py, |client| client.store(&key, value.bytes()))
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

    /// Stores value `i` under key `i`, many commands at once. With `each`, all are carried out, and the errors of those
    /// that failed are returned with their places.
    fn store_items(&self, py: Python<'_>, keys: Items, values: Items, each: bool) -> PyResult<Errors> {
        if keys.len() != values.len() {
            let line = format!("{} keys and {} values", keys.len(), values.len());
            return Err(pyo3::exceptions::PyValueError::new_err(line));
        }
        let places = py.detach(|| last_of_each(&keys));
        let work = Work::Store { keys, values, places };
        let Work::Store { places, .. } = &work else { unreachable!("it was just made") };
        Ok(self.carried_out(py, &work, Stored, each, |call| places[call])?.1)
    }

    /// The values of `keys`, many commands at once; `None` if there is no pair. Errors as those of `store_items`.
    fn retrieve_list(&self, py: Python<'_>, keys: Items, each: bool) -> PyResult<(Py<PyList>, Errors)> {
        let (found, errors) =
            self.carried_out(py, &Work::Get(keys), FoundList::new(py), each, |call| call)?;
        Ok((found.list, errors))
    }

    /// Writes the values of `keys` to memory of the caller; returns their sizes, `None` if there is no pair. A value
    /// that is larger than its memory is not written. Errors as those of `store_items`.
    fn retrieve_into_items(
        &self,
        py: Python<'_>,
        keys: Items,
        targets: Vec<Target>,
        each: bool,
    ) -> PyResult<(Vec<Option<u32>>, Errors)> {
        if keys.len() != targets.len() {
            let line = format!("{} keys and {} buffers", keys.len(), targets.len());
            return Err(pyo3::exceptions::PyValueError::new_err(line));
        }
        let work = Work::GetInto(keys, targets.iter().map(Target::len).collect());
        let sizes = vec![None; targets.len()];
        let (placed, mut errors) =
            self.carried_out(py, &work, Placed { targets, sizes }, each, |call| call)?;
        let Work::GetInto(keys, rooms) = &work else { unreachable!("it was made above") };
        for (place, room) in rooms.iter().enumerate() {
            match placed.sizes[place] {
                Some(bytes) if bytes as usize > *room => {
                    let error = too_small(py, place, keys.get(place), bytes, *room);
                    if !each {
                        return Err(error);
                    }
                    errors.push((place, error.into_value(py).into_any()));
                }
                _ => {}
            }
        }
        Ok((placed.sizes, errors))
    }

    /// For each key: is there a pair? Errors as those of `store_items`.
    fn exist_items(&self, py: Python<'_>, keys: Items, each: bool) -> PyResult<(Vec<bool>, Errors)> {
        let flags = Flags(vec![false; keys.len()]);
        let (flags, errors) = self.carried_out(py, &Work::Exist(keys), flags, each, |call| call)?;
        Ok((flags.0, errors))
    }

    /// Removes the pairs of `keys`; returns for each whether there was one, if the drive says so, and otherwise
    /// nothing. Errors as those of `store_items`.
    fn delete_items(&self, py: Python<'_>, keys: Items, each: bool) -> PyResult<(Vec<bool>, Errors)> {
        let (flags, says) = (Flags(vec![false; keys.len()]), self.delete_says);
        let work = if says { Work::Remove(keys) } else { Work::Delete(keys) };
        let (flags, errors) = self.carried_out(py, &work, flags, each, |call| call)?;
        Ok((if says { flags.0 } else { Vec::new() }, errors))
    }

    /// The values of `keys` in one buffer without gaps, their offsets as `int64`, and for each whether there
    /// is a pair.
    fn retrieve_buffer<'py>(&self, py: Python<'py>, keys: Items) -> PyResult<FoundParts<'py>> {
        let found = FoundBuffer::new(keys.len());
        self.carried_out(py, &Work::Get(keys), found, false, |call| call)?.0.into_parts(py)
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

    /// Does the drive say of a removed key whether there was a pair?
    #[getter]
    fn delete_says(&self) -> bool {
        self.delete_says
    }

    /// Are keys and pairs returned in the order of keys?
    #[getter]
    fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// A line that says that the drive has a part of the machine's memory instead of its profile's capacity, if it has.
    #[getter]
    fn capacity_note(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.change(py, |state| Ok(state.on()?.drive.capacity_note().map(str::to_owned)))
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
                *state = DriveState::On(Box::new(On::new(off.clone().power_on()?)?));
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

    /// Carries out a list. With `each`, all calls of it, and returns the errors of those that failed; `place` maps the
    /// number of a call to its place in the list.
    fn carried_out<E: Ending>(
        &self,
        py: Python<'_>,
        work: &Work,
        mut ending: E,
        each: bool,
        place: impl Fn(usize) -> usize,
    ) -> PyResult<(E, Errors)> {
        let failed = |failure: Failure| failure.into_exception(py, &place);
        if !each {
            self.carry_out(py, work, &mut ending).map_err(failed)?;
            return Ok((ending, Vec::new()));
        }
        let mut each = Each::of(ending);
        self.carry_out(py, work, &mut each).map_err(failed)?;
        each.errors.sort_unstable_by_key(|(call, _)| *call);
        let errors = each.errors.iter().map(|(call, error)| {
            let place = place(*call);
            (place, exception_at(py, place, error).into_value(py).into_any())
        });
        Ok((each.ending, errors.collect()))
    }

    /// Has a pipeline carry out a list, without the interpreter's lock; see [`bulk::carry_out`].
    fn carry_out(&self, py: Python<'_>, work: &Work, ending: &mut impl Ending) -> Result<(), Failure> {
        self.check_process(py)?;
        py.detach(|| {
            let (mut client, of) = {
                let mut state = self.state();
                let on = state.on()?;
                (on.idle.pop().map_or_else(|| on.drive.client(), Ok)?, on.client.clone())
            };
            let result = bulk::carry_out(&mut client, work, ending);
            // A client of a drive that was powered off meanwhile is of no use to the one that was powered on.
            if let (true, Ok(on)) = (result.is_ok(), self.state().on())
                && Arc::ptr_eq(&on.client, &of)
            {
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
        && is_address(address)
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

/// Does a text name a drive that is not in this program, and not a profile or its file?
pub fn is_address(text: &str) -> bool {
    text.starts_with("tcp://") || text.starts_with("/dev/")
}

/// Places of the keys, ascending, but only the last place of a key that occurs several times: commands of a
/// pipeline end in any order, and the last value must be the one that stays.
fn last_of_each(keys: &Items) -> Vec<usize> {
    let mut seen: HashSet<&[u8]> = HashSet::with_capacity(keys.len());
    let mut places: Vec<_> = (0..keys.len()).rev().filter(|place| seen.insert(keys.get(*place))).collect();
    places.reverse();
    places
}
