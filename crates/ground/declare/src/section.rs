//! Sections: structs whose fields are settings.

use serde_json::Value;

use crate::setting::settings;
use crate::{Entry, GivenValues, Problem, Values};

/// A struct whose fields are settings. Derived.
pub trait Section: Sized {
    /// Its settings, in order.
    const ENTRIES: &'static [Entry];

    /// The struct with these values.
    ///
    /// # Errors
    /// A value is missing, or does not fit its field. Whether the rule allows it is checked by [`read`].
    fn take(values: &Values<'_>) -> Result<Self, Problem>;

    /// Puts the value of every setting under its key.
    fn give(&self, values: &mut GivenValues);
}

/// The struct with these values, each of which its rule allows.
///
/// # Errors
/// The first key whose value is missing or not allowed.
pub fn read<T: Section>(values: &Values<'_>) -> Result<T, Problem> {
    for (setting, _) in settings(T::ENTRIES) {
        let value = values.get(setting.key).ok_or_else(|| Problem::new(setting.key, "is missing"))?;
        setting.rule.check(setting.key, value)?;
    }
    T::take(values)
}

/// The struct in which every setting has its declared default, or else the smallest value that its rule allows: flash,
/// for example, has one channel with one die, and no operation takes time. For tests, which set only the fields that
/// matter to them, and for `Default` where a struct has one.
///
/// # Panics
/// A declared default does not fit its field.
pub fn default_of<T: Section>() -> T {
    let mut given = GivenValues::default();
    for (setting, _) in settings(T::ENTRIES) {
        given.put(setting.key, setting.least.map_or_else(|| setting.rule.least(), |least| least()));
    }
    let values = Value::from(given);
    T::take(&Values::new(&values)).unwrap_or_else(|problem| panic!("{problem}"))
}

/// The settings, with their values, in which two drives must agree to read each other's images.
pub fn image_keys<T: Section>(section: &T) -> Vec<(&'static str, String)> {
    let mut given = GivenValues::default();
    section.give(&mut given);
    let declared = settings(T::ENTRIES);
    let in_image = |key: &str| declared.iter().any(|(setting, _)| setting.key == key && setting.in_image);
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    given.into_iter().filter(|(key, _)| in_image(key)).map(|(key, value)| (key, text(value))).collect()
}
