//! A row as plain data, for another process or machine, which builds the same row from it or refuses it.

use std::sync::Arc;

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::row::{Row, config_hash, document};

/// A row as plain data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// The profile that it begins with.
    pub profile: String,
    /// `KEY=VALUE` of all rows of its sweep.
    pub set: Vec<String>,
    /// Its own settings.
    pub grid: Map<String, Value>,
    /// [`Row::config_hash`].
    pub config_hash: String,
}

impl Row {
    /// The row as plain data.
    pub fn point(&self) -> Point {
        Point {
            profile: self.document.profile_name().to_owned(),
            set: self.set.to_vec(),
            grid: self.settings.clone(),
            config_hash: self.config_hash.clone(),
        }
    }
}

impl Point {
    /// The row of this point.
    ///
    /// # Errors
    /// One line: it is no valid configuration here, or not the configuration from which it was made. Both happen if
    /// another program made it.
    pub fn row(self) -> anyhow::Result<Row> {
        let Point { profile, set, grid, config_hash: wanted } = self;
        let lines: Vec<&str> = set.iter().map(String::as_str).collect();
        let (mut document, _) = document(&profile, &lines)?;
        for (key, value) in &grid {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            document.set(&format!("{key}={text}"))?;
        }
        let found = config_hash(&document)?;
        ensure!(
            found == wanted,
            "{}: is configuration {found} here and was {wanted} where the sweep began; is the program the same?",
            Value::from(grid)
        );
        Ok(Row { settings: grid, document, config_hash: found, set: Arc::from(set) })
    }
}
