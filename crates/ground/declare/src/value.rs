//! Values of settings, on their way between structs and documents.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::{Problem, Rule};

/// Values by key: nested objects, as a document or a report has them.
pub struct Values<'a>(&'a Value);

impl<'a> Values<'a> {
    /// The values in this object: `{"flash": {"channels": 8}}`.
    pub fn new(values: &'a Value) -> Values<'a> {
        Values(values)
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        key.split('.').try_fold(self.0, |values, name| values.get(name))
    }

    /// The value of a key, for its field.
    ///
    /// # Errors
    /// It is missing, or the field cannot hold it.
    pub fn field<T: Field>(&self, key: &str) -> Result<T, Problem> {
        let value = self.get(key).ok_or_else(|| Problem::new(key, "is missing"))?;
        T::of_value(value)
            .ok_or_else(|| Problem::new(key, format!("{value} is of a wrong type or too large")))
    }
}

/// Values of settings, in the order in which they were put.
#[derive(Default)]
pub struct GivenValues(Vec<(&'static str, Value)>);

impl GivenValues {
    /// Adds a value.
    pub fn put(&mut self, key: &'static str, value: Value) {
        self.0.push((key, value));
    }
}

impl IntoIterator for GivenValues {
    type Item = (&'static str, Value);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// As nested objects.
impl From<GivenValues> for Value {
    fn from(given: GivenValues) -> Value {
        let mut root = Value::Object(Map::new());
        for (key, value) in given {
            let place = key.split('.').fold(&mut root, |place, name| {
                let object = place.as_object_mut().expect("no key is the beginning of another");
                object.entry(name).or_insert_with(|| Value::Object(Map::new()))
            });
            *place = value;
        }
        root
    }
}

/// A type of a field, and its form in documents.
pub trait Field: Sized {
    /// The field's value; `None`: the value has another type or does not fit.
    fn of_value(value: &Value) -> Option<Self>;
    /// The value in its form in documents.
    fn to_value(&self) -> Value;
}

/// A type that determines its own rule.
pub trait Natural: Field {
    /// The rule of the type.
    const RULE: Rule;
}

impl Field for bool {
    fn of_value(value: &Value) -> Option<bool> {
        value.as_bool()
    }
    fn to_value(&self) -> Value {
        (*self).into()
    }
}

impl Natural for bool {
    const RULE: Rule = Rule::Flag;
}

impl Field for u32 {
    fn of_value(value: &Value) -> Option<u32> {
        value.as_u64()?.try_into().ok()
    }
    fn to_value(&self) -> Value {
        (*self).into()
    }
}

impl Field for u64 {
    fn of_value(value: &Value) -> Option<u64> {
        value.as_u64()
    }
    fn to_value(&self) -> Value {
        (*self).into()
    }
}

impl Field for usize {
    fn of_value(value: &Value) -> Option<usize> {
        value.as_u64()?.try_into().ok()
    }
    fn to_value(&self) -> Value {
        (*self).into()
    }
}

impl Field for f64 {
    fn of_value(value: &Value) -> Option<f64> {
        value.as_f64()
    }
    fn to_value(&self) -> Value {
        (*self).into()
    }
}

impl Field for String {
    fn of_value(value: &Value) -> Option<String> {
        value.as_str().map(str::to_owned)
    }
    fn to_value(&self) -> Value {
        self.as_str().into()
    }
}

/// A path; the empty text is `None`.
impl Field for Option<PathBuf> {
    fn of_value(value: &Value) -> Option<Option<PathBuf>> {
        let path = value.as_str()?;
        Some((!path.is_empty()).then(|| path.into()))
    }
    fn to_value(&self) -> Value {
        self.as_deref().unwrap_or("".as_ref()).to_string_lossy().into()
    }
}

impl<T: Field> Field for Vec<T> {
    fn of_value(value: &Value) -> Option<Vec<T>> {
        value.as_array()?.iter().map(T::of_value).collect()
    }
    fn to_value(&self) -> Value {
        self.iter().map(T::to_value).collect()
    }
}

/// An enum whose variants are words of a document. Derived, with its [`Field`] and [`Natural`].
pub trait Words: Copy + PartialEq + 'static {
    /// Every variant with its word.
    const WORDS: &'static [(&'static str, Self)];

    /// Its word.
    fn word(self) -> &'static str {
        let row = Self::WORDS.iter().find(|(_, variant)| *variant == self);
        row.expect("every variant has a row (derived)").0
    }
}

/// The variant of that word.
pub fn of_word<T: Words>(word: &str) -> Option<T> {
    T::WORDS.iter().find(|(known, _)| *known == word).map(|(_, variant)| *variant)
}

/// All words of an enum.
pub fn words<T: Words>() -> Vec<&'static str> {
    T::WORDS.iter().map(|(word, _)| *word).collect()
}
