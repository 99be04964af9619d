//! A configuration as the values of its keys, and back.

use kvdrive_declare::{GivenValues, Problem as ConfigError, Section, Value, Values, read};

use super::Config;
use crate::rules::setting;

impl Config {
    /// The configuration with the values of a document or of a report.
    ///
    /// # Errors
    /// A key is missing or unknown, or its value is not allowed.
    pub fn of_values(values: &Value) -> Result<Config, ConfigError> {
        let mut keys = Vec::new();
        collect_keys(values, "", &mut keys);
        if let Some(key) = keys.into_iter().find(|key| setting(key).is_none()) {
            return Err(ConfigError::new(key, "unknown key"));
        }
        read(&Values::new(values))
    }

    /// The value of every setting, by its key.
    pub fn values(&self) -> Value {
        let mut given = GivenValues::default();
        self.give(&mut given);
        given.into()
    }
}

/// The keys of all values below `values` that are not objects.
fn collect_keys(values: &Value, path: &str, keys: &mut Vec<String>) {
    for (name, value) in values.as_object().into_iter().flatten() {
        let key = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match value.is_object() {
            true => collect_keys(value, &key, keys),
            false => keys.push(key),
        }
    }
}
