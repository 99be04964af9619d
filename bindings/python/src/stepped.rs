//! Classes `Stepped`, from which `kvdrive.Stepped` of Python inherits, and `Image`: drives inside a simulator.
//!
//! A stepped drive belongs to the thread that made it, and computes with the interpreter's lock held. The class of Python
//! refuses calls of other threads before they come here.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kvdrive::stepped::{Completion, Op, Value};
use kvdrive::{Error, Image as DriveImage};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyInt};
use serde_json::json;

use crate::buffer::Source;
use crate::failure::{exception, exception_at};
use crate::items::Items;
use crate::settings::{self, Argument};

/// Commands that have ended: number, time in ns, and status.
type Ended = Vec<(u64, u64, u16)>;

/// What is left of a stepped drive without power.
#[pyclass(frozen, module = "kvdrive._native")]
pub struct Image(DriveImage);

#[pymethods]
impl Image {
    /// The image in these bytes.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: Source) -> PyResult<Image> {
        DriveImage::from_bytes(bytes.bytes()).map(Image).map_err(|error| exception(py, &error))
    }

    /// The image in this file.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Image> {
        py.detach(|| DriveImage::read(path)).map(Image).map_err(|error| exception(py, &error))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.0.to_bytes()).map_err(|error| exception(py, &error))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Writes it to this file.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.save(path)).map_err(|error| exception(py, &error))
    }

    /// For `pickle`: a sweep over processes sends it as bytes.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        Ok((py.get_type::<Image>().getattr("from_bytes")?, (self.to_bytes(py)?,)))
    }
}

/// A number for all commands of a list, or one for each.
enum Each {
    All(u64),
    Of(Vec<u64>),
}

impl<'py> FromPyObject<'_, 'py> for Each {
    type Error = PyErr;

    /// From an integer, a buffer of `int64` (an array of NumPy), or a list.
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Each> {
        if object.is_instance_of::<PyInt>() {
            return Ok(Each::All(object.extract()?));
        }
        let Ok(buffer) = PyBuffer::<i64>::get(&object) else { return Ok(Each::Of(object.extract()?)) };
        let given = buffer.to_vec(object.py())?;
        let wrong = |_| PyValueError::new_err("times and sizes are not negative");
        Ok(Each::Of(given.into_iter().map(u64::try_from).collect::<Result<_, _>>().map_err(wrong)?))
    }
}

impl Each {
    fn check(&self, what: &str, keys: usize) -> PyResult<()> {
        match self {
            Each::Of(each) if each.len() != keys => {
                Err(PyValueError::new_err(format!("{keys} keys and {} {what}", each.len())))
            }
            _ => Ok(()),
        }
    }

    fn get(&self, place: usize) -> u64 {
        match self {
            Each::All(number) => *number,
            Each::Of(each) => each[place],
        }
    }
}

/// Values of stores: sizes, or the values themselves.
enum Values {
    None,
    Sizes(Each),
    Bytes(Items),
}

impl Values {
    fn of(given: Option<&Bound<'_, PyAny>>, sizes: bool) -> PyResult<Values> {
        match (given, sizes) {
            (None, _) => Ok(Values::None),
            (Some(given), true) => Ok(Values::Sizes(given.extract()?)),
            (Some(given), false) => Ok(Values::Bytes(given.extract()?)),
        }
    }

    fn check(&self, keys: usize) -> PyResult<()> {
        match self {
            Values::None => Ok(()),
            Values::Sizes(sizes) => sizes.check("sizes", keys),
            Values::Bytes(values) if values.len() != keys => {
                Err(PyValueError::new_err(format!("{keys} keys and {} values", values.len())))
            }
            Values::Bytes(_) => Ok(()),
        }
    }
}

/// Which command a name is.
#[derive(Clone, Copy)]
enum Kind {
    Store,
    Retrieve { keep: bool },
    Delete,
    Exist,
}

fn kind(op: &str, keep: bool, has_values: bool) -> PyResult<Kind> {
    let kind = match op {
        "store" => Kind::Store,
        "retrieve" => Kind::Retrieve { keep },
        "delete" => Kind::Delete,
        "exist" => Kind::Exist,
        _ => {
            let line = format!("op: {op:?}; allowed: store, retrieve, delete, exist");
            return Err(PyValueError::new_err(line));
        }
    };
    let is_store = matches!(kind, Kind::Store);
    match (is_store, has_values, keep && op != "retrieve") {
        (true, false, _) => Err(PyValueError::new_err("store: a size or a value is missing")),
        (false, true, _) => Err(PyValueError::new_err(format!("{op}: only a store has a value"))),
        (.., true) => Err(PyValueError::new_err(format!("{op}: only a retrieve keeps a value"))),
        _ => Ok(kind),
    }
}

fn size(bytes: u64) -> u32 {
    // What is larger is refused with its size by every drive.
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A drive whose time the caller moves.
#[pyclass(subclass, unsendable, module = "kvdrive._native")]
pub struct Stepped {
    drive: kvdrive::stepped::Stepped,
    note: Option<String>,
    /// Values of retrieves that keep them.
    kept: BTreeMap<u64, Vec<u8>>,
}

#[pymethods]
impl Stepped {
    #[new]
    #[pyo3(signature = (profile, arguments, image, /))]
    fn new(
        py: Python<'_>,
        profile: Vec<String>,
        arguments: Vec<Argument>,
        image: Option<PyRef<'_, Image>>,
    ) -> PyResult<Stepped> {
        let open = || -> Result<_, Error> {
            let builder = kvdrive::build().options(settings::options(&profile, &arguments)?);
            match &image {
                Some(image) => builder.stepped_from(&image.0),
                None => builder.stepped(),
            }
        };
        let drive = open().map_err(|error| exception(py, &error))?;
        let note = drive.capacity_note().map(str::to_owned);
        Ok(Stepped { drive, note, kept: BTreeMap::new() })
    }

    /// A command arrives at `at_ns`.
    fn submit_one(
        &mut self,
        py: Python<'_>,
        at_ns: u64,
        op: &str,
        key: PyBackedBytes,
        value: Option<Bound<'_, PyAny>>,
        keep: bool,
    ) -> PyResult<u64> {
        let op = match kind(op, keep, value.is_some())? {
            Kind::Store => Op::Store(match value.expect("a store has one") {
                given if given.is_instance_of::<PyInt>() => Value::Size(size(given.extract()?)),
                given => Value::Bytes(given.extract::<Source>()?.bytes().to_vec()),
            }),
            Kind::Retrieve { keep } => Op::Retrieve { keep },
            Kind::Delete => Op::Delete,
            Kind::Exist => Op::Exist,
        };
        self.drive.submit(at_ns, op, &key).map_err(|error| exception(py, &error))
    }

    /// Commands of one kind arrive; `sizes`: `values` has sizes. Returns the number of the first one; the others follow it.
    #[expect(clippy::too_many_arguments, reason = "called by package kvdrive only")]
    fn submit_list(
        &mut self,
        py: Python<'_>,
        at_ns: Each,
        op: &str,
        keys: Items,
        values: Option<Bound<'_, PyAny>>,
        sizes: bool,
        keep: bool,
    ) -> PyResult<u64> {
        let kind = kind(op, keep, values.is_some())?;
        let values = Values::of(values.as_ref(), sizes)?;
        at_ns.check("times", keys.len())?;
        values.check(keys.len())?;
        let first = self.drive.submitted();
        for place in 0..keys.len() {
            let op = match (kind, &values) {
                (Kind::Store, Values::Sizes(sizes)) => Op::Store(Value::Size(size(sizes.get(place)))),
                (Kind::Store, Values::Bytes(values)) => Op::Store(Value::Bytes(values.get(place).to_vec())),
                (Kind::Store, Values::None) => unreachable!("a store has values"),
                (Kind::Retrieve { keep }, _) => Op::Retrieve { keep },
                (Kind::Delete, _) => Op::Delete,
                (Kind::Exist, _) => Op::Exist,
            };
            let submitted = self.drive.submit(at_ns.get(place), op, keys.get(place));
            submitted.map_err(|error| exception_at(py, place, &error))?;
        }
        Ok(first)
    }

    /// Moves the time to `until_ns`; `to_next`: at most, and only to the first end of a command.
    fn advance_to(&mut self, py: Python<'_>, until_ns: u64, to_next: bool) -> PyResult<Ended> {
        let ended = match to_next {
            true => self.drive.advance_to_next(until_ns),
            false => self.drive.advance(until_ns),
        };
        let mut told = Vec::new();
        for Completion { id, ended_at_ns, status, value, .. } in
            ended.map_err(|error| exception(py, &error))?
        {
            told.push((id, ended_at_ns, status.raw()));
            if let Some(value) = value {
                self.kept.insert(id, value);
            }
        }
        Ok(told)
    }

    /// The value of a retrieve that kept it, once.
    fn take<'py>(&mut self, py: Python<'py>, id: u64) -> Option<Bound<'py, PyBytes>> {
        self.kept.remove(&id).map(|value| PyBytes::new(py, &value))
    }

    fn load_items(&mut self, py: Python<'_>, keys: Items, value_bytes: u32) -> PyResult<()> {
        let all = (0..keys.len()).map(|place| keys.get(place));
        self.drive.load(all, value_bytes).map_err(|error| exception(py, &error))
    }

    fn fill_to(&mut self, py: Python<'_>, share: f64, value_bytes: u32) -> PyResult<u64> {
        self.drive.fill(share, value_bytes).map_err(|error| exception(py, &error))
    }

    fn make_image(&self, py: Python<'_>) -> PyResult<Image> {
        self.drive.image().map(Image).map_err(|error| exception(py, &error))
    }

    fn inject_rules(&mut self, py: Python<'_>, rules: &str) -> PyResult<Vec<String>> {
        self.drive.inject(rules).map_err(|error| exception(py, &error))
    }

    fn clear_rules(&mut self, py: Python<'_>, name: Option<&str>) -> PyResult<()> {
        self.drive.clear_faults(name).map_err(|error| exception(py, &error))
    }

    #[getter]
    fn now(&self) -> u64 {
        self.drive.now_ns()
    }

    #[getter]
    fn next_event(&self) -> Option<u64> {
        self.drive.next_event_ns()
    }

    #[getter]
    fn not_ended(&self) -> u64 {
        self.drive.under_way()
    }

    /// A line that says that the drive has a part of the machine's memory instead of its profile's capacity, if it has.
    #[getter]
    fn capacity_note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    fn namespace_json(&self) -> String {
        json!(self.drive.namespace()).to_string()
    }

    fn numbers_json(&self) -> String {
        json!(self.drive.numbers()).to_string()
    }
}
