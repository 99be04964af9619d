//! How a counter is declared, at its field, and the values of counters.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use kvdrive_text::Unit;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// A counter.
#[derive(Debug)]
pub struct Counter {
    /// Its name within its section: `erases` of section `nand`.
    pub name: &'static str,
    /// Unit of its values.
    pub unit: Unit,
    /// How exact it is: counted, modelled or measured.
    pub kind: Kind,
    /// What its value says.
    pub form: Form,
    /// The labels of its values, if it has one value for each label.
    pub by: Option<&'static By>,
    /// Help text: one or more sentences.
    pub help: &'static str,
}

/// The kinds of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Exact.
    Counted,
    /// A time of the model; a report names the sources of its constants.
    Modelled,
    /// By the clock of this machine.
    Measured,
}

/// What the value of a counter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A count of events so far. It never falls; the events of an interval are a difference.
    Sum,
    /// A present state.
    State,
    /// The highest value of a state so far.
    Maximum,
}

/// The labels of a counter that has one value for each label.
#[derive(Debug)]
pub struct By {
    /// Their common name: `purpose`.
    pub label: &'static str,
    /// Number of values.
    pub places: usize,
    /// The label of each value, by its index. Values with the same label are added.
    pub name_of: fn(usize) -> &'static str,
    /// Labels whose value is 0 are not shown.
    pub is_sparse: bool,
}

impl Kind {
    /// `counted`, `modelled` or `measured`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counted => "counted",
            Kind::Modelled => "modelled",
            Kind::Measured => "measured",
        }
    }
}

impl Form {
    /// Joins the values of two parts; `None` if the result does not fit.
    fn join(self, a: u64, b: u64) -> Option<u64> {
        match self {
            Form::Sum | Form::State => a.checked_add(b),
            Form::Maximum => Some(a.max(b)),
        }
    }
}

impl Counter {
    /// `sum`, `state` or `maximum`.
    pub fn form_name(&self) -> &'static str {
        match self.form {
            Form::Sum => "sum",
            Form::State => "state",
            Form::Maximum => "maximum",
        }
    }
}

/// A struct whose fields are counters. Derived.
pub trait Counters {
    /// Its counters, in order.
    const COUNTERS: &'static [Counter];

    /// Appends the value of each. Fields that are `None` are left out.
    fn read(&self, into: &mut Counts);

    /// The value of each.
    fn counts(&self) -> Counts {
        Counts::default().and(self)
    }
}

/// A type that a field of a counter may have.
pub trait Reading {
    /// Its value; `None`: this drive or run has no such counter.
    fn reading(&self) -> Option<u64>;
}

impl Reading for u64 {
    fn reading(&self) -> Option<u64> {
        Some(*self)
    }
}

impl Reading for u32 {
    fn reading(&self) -> Option<u64> {
        Some((*self).into())
    }
}

impl Reading for usize {
    fn reading(&self) -> Option<u64> {
        Some(*self as u64)
    }
}

impl Reading for bool {
    fn reading(&self) -> Option<u64> {
        Some((*self).into())
    }
}

impl Reading for Cell<u64> {
    fn reading(&self) -> Option<u64> {
        Some(self.get())
    }
}

impl Reading for AtomicU64 {
    fn reading(&self) -> Option<u64> {
        Some(self.load(Ordering::Relaxed))
    }
}

impl<T: Reading> Reading for Option<T> {
    fn reading(&self) -> Option<u64> {
        self.as_ref().and_then(T::reading)
    }
}

/// The value of a counter, or of one of its labels.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// Its declaration.
    pub counter: &'static Counter,
    /// The label, if the counter has labels ([`Counter::by`]).
    pub label: Option<&'static str>,
    /// Its value.
    pub value: u64,
}

impl Count {
    fn is_of(&self, other: &Count) -> bool {
        (self.counter.name, self.label) == (other.counter.name, other.label)
    }

    /// Is it left out of tables and documents?
    pub fn is_hidden(&self) -> bool {
        self.value == 0 && self.counter.by.is_some_and(|by| by.is_sparse)
    }
}

impl PartialEq for Count {
    fn eq(&self, other: &Count) -> bool {
        self.is_of(other) && self.value == other.value
    }
}

/// The values of some counters, in the order of their declarations. Those of one counter are next to each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts(Vec<Count>);

impl Counts {
    /// Adds the counters of another struct.
    ///
    /// # Panics
    /// Both have a counter of the same name.
    pub fn and<C: Counters + ?Sized>(mut self, counters: &C) -> Counts {
        for counter in C::COUNTERS {
            assert!(self.get(counter.name).is_none(), "two counters are called {}", counter.name);
        }
        counters.read(&mut self);
        self
    }

    /// With other values.
    pub fn chain(mut self, other: Counts) -> Counts {
        self.0.extend(other.0);
        self
    }

    /// Appends the value of a counter without labels.
    pub fn put(&mut self, counter: &'static Counter, field: &impl Reading) {
        self.0.extend(field.reading().map(|value| Count { counter, label: None, value }));
    }

    /// Appends the values of a counter with labels, in the order of their places.
    ///
    /// # Panics
    /// There are not as many as the declaration says, or places of one label have more together than a counter holds.
    pub fn put_each<'a, R: Reading + 'a>(
        &mut self,
        counter: &'static Counter,
        fields: impl IntoIterator<Item = &'a R>,
    ) {
        let By { name_of, places, .. } = *counter.by.expect("it has labels (derived)");
        let (first, mut place) = (self.0.len(), 0);
        for field in fields {
            let (label, value) = (Some(name_of(place)), field.reading().unwrap_or(0));
            match self.0[first..].iter_mut().find(|known| known.label == label) {
                Some(known) => known.value = counter.form.join(known.value, value).expect(FITS),
                None => self.0.push(Count { counter, label, value }),
            }
            place += 1;
        }
        assert_eq!(place, places, "values of {}", counter.name);
    }

    /// Appends the values of a counter from their JSON, in which labels of value 0 may be left out.
    ///
    /// # Errors
    /// One line: a value that is no number, a label that the counter does not have, values whose sum exceeds a counter,
    /// or a wrong total.
    pub fn put_json(&mut self, counter: &'static Counter, json: &Value) -> Result<(), String> {
        let number =
            |json: &Value| json.as_u64().ok_or_else(|| format!("{}: {json} is no number", counter.name));
        let Some(by) = counter.by else {
            self.put(counter, &number(json)?);
            return Ok(());
        };
        let labelled = json.as_object().ok_or_else(|| format!("{}: {json} has no labels", counter.name))?;
        let mut of = Counts::default();
        of.put_each(counter, &vec![0_u64; by.places]);
        for (label, json) in labelled.iter().filter(|(label, _)| *label != TOTAL) {
            let count = of.0.iter_mut().find(|count| count.label == Some(label));
            let count = count.ok_or_else(|| format!("{} has no {} {label}", counter.name, by.label))?;
            count.value = number(json)?;
        }
        let total = total(&of.0)
            .ok_or_else(|| format!("{}: {json} is more together than a counter holds", counter.name))?;
        if labelled.get(TOTAL).and_then(Value::as_u64) != Some(total) {
            return Err(format!("{}: {json} has another {TOTAL}", counter.name));
        }
        self.0.extend(of.0);
        Ok(())
    }

    /// Every value.
    pub fn iter(&self) -> impl Iterator<Item = &Count> {
        self.0.iter()
    }

    /// The values of each counter.
    pub fn by_counter(&self) -> impl Iterator<Item = &[Count]> {
        self.0.chunk_by(|a, b| a.counter.name == b.counter.name)
    }

    /// The value of `programs` (joined over its labels, if it has any) or of `programs.index`; `None`: there is no
    /// counter or label of that name.
    pub fn get(&self, path: &str) -> Option<u64> {
        let (name, label) = path.split_once('.').map_or((path, None), |(name, label)| (name, Some(label)));
        let of = self.by_counter().find(|of| of[0].counter.name == name)?;
        match label {
            None => Some(total(of).expect(FITS)),
            label => of.iter().find(|count| count.label == label).map(|count| count.value),
        }
    }

    /// As [`Counts::get`].
    ///
    /// # Panics
    /// There is nothing of that name.
    pub fn of(&self, path: &str) -> u64 {
        let names = || self.by_counter().map(|of| of[0].counter.name).collect::<Vec<_>>().join(", ");
        self.get(path).unwrap_or_else(|| panic!("{path}: no such counter; there are {}", names()))
    }

    /// The value of each label of a counter, in order; nothing if there is no such counter.
    pub fn labels(&self, name: &str) -> impl Iterator<Item = (&'static str, u64)> {
        let of = self.0.iter().filter(move |count| count.counter.name == name);
        of.filter_map(|count| Some((count.label?, count.value)))
    }

    /// Differences of sums since `earlier`; states and maxima keep their present values.
    ///
    /// # Panics
    /// A sum has fallen.
    pub fn since(&self, earlier: &Counts) -> Counts {
        let mut counts = self.clone();
        for count in counts.0.iter_mut().filter(|count| count.counter.form == Form::Sum) {
            let past = earlier.0.iter().find(|past| past.is_of(count)).map_or(0, |past| past.value);
            assert!(past <= count.value, "{} fell from {past} to {}", count.counter.name, count.value);
            count.value -= past;
        }
        counts
    }

    /// Is nothing counted?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// In JSON, the key of the value joined over all labels.
const TOTAL: &str = "total";

/// Counts of this program fit; counts from outside were checked on arrival ([`Counts::put_json`]).
const FITS: &str = "the values of a counter fit together";

/// The value of a counter joined over its labels; `None` if it does not fit.
fn total(of: &[Count]) -> Option<u64> {
    of.iter().try_fold(0, |joined, count| count.counter.form.join(joined, count.value))
}

/// An object: `{"erases": 3, "programs": {"total": 5, "value": 4, "index": 1}}`.
impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for of in self.by_counter() {
            map.serialize_entry(of[0].counter.name, &OfOne(of))?;
        }
        map.end()
    }
}

/// The values of one counter.
struct OfOne<'a>(&'a [Count]);

impl Serialize for OfOne<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0[0].label.is_none() {
            return serializer.serialize_u64(self.0[0].value);
        }
        let shown = self.0.iter().filter(|count| !count.is_hidden());
        let labelled = shown.filter_map(|count| Some((count.label?, count.value)));
        let total = total(self.0).expect(FITS);
        serializer.collect_map([(TOTAL, total)].into_iter().chain(labelled))
    }
}

/// Counts of several parts of the program, by section.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sections(Vec<(&'static str, Counts)>);

impl Sections {
    /// With a section, unless nothing is counted there.
    pub fn with(mut self, section: &'static str, counts: Counts) -> Sections {
        self.set(section, counts);
        self
    }

    /// Replaces the section of this name, or adds it. A section without counters is removed.
    pub fn set(&mut self, section: &'static str, counts: Counts) {
        match self.0.iter().position(|(known, _)| *known == section) {
            Some(place) => self.0[place].1 = counts,
            None => self.0.push((section, counts)),
        }
        self.0.retain(|(_, counts)| !counts.is_empty());
    }

    /// One section; nothing if there is none of that name.
    pub fn section(&self, name: &str) -> &Counts {
        const NONE: &Counts = &Counts(Vec::new());
        self.0.iter().find(|(known, _)| *known == name).map_or(NONE, |(_, counts)| counts)
    }

    /// Every section with its name, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Counts)> {
        self.0.iter().map(|(name, counts)| (*name, counts))
    }

    /// The value of `nand.programs`, over its labels, or of `nand.programs.index`; `None`: nothing of that name.
    pub fn get(&self, path: &str) -> Option<u64> {
        let (section, path) = path.split_once('.')?;
        self.section(section).get(path)
    }

    /// As [`Sections::get`].
    ///
    /// # Panics
    /// There is nothing of that name.
    pub fn of(&self, path: &str) -> u64 {
        self.get(path).unwrap_or_else(|| panic!("{path}: no such counter"))
    }

    /// [`Counts::since`] of each section.
    pub fn since(&self, earlier: &Sections) -> Sections {
        let since = |(name, counts): &(&'static str, Counts)| (*name, counts.since(earlier.section(name)));
        Sections(self.0.iter().map(since).collect())
    }
}

/// An object of objects.
impl Serialize for Sections {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}
