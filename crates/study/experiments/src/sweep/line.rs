//! The line of a row: every number of its report, flat.

use anyhow::bail;
use serde_json::{Map, Value};

use kvdrive_run::report::Report;

use super::row::Row;

impl Row {
    /// The line of this row, with its end.
    ///
    /// # Errors
    /// The report cannot be written as JSON.
    pub fn line(&self, report: &Report) -> anyhow::Result<String> {
        let mut line = self.settings.clone();
        let Value::Object(mut tree) = serde_json::to_value(report)? else { bail!("a report is no object") };
        // The line already has the settings of the grid, and a hash of all others.
        tree.remove("config");
        flatten(Value::Object(tree), String::new(), &mut line);
        line.insert("config_hash".into(), Value::from(self.config_hash.as_str()));
        Ok(Value::Object(line).to_string() + "\n")
    }
}

/// Numbers and texts under their dotted names. A list becomes one text: lists are of no use in a column.
fn flatten(value: Value, name: String, line: &mut Map<String, Value>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let name = if name.is_empty() { key } else { format!("{name}.{key}") };
                flatten(value, name, line);
            }
        }
        Value::Array(list) => {
            let texts = list.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned));
            line.insert(name, Value::from(texts.collect::<Vec<_>>().join("; ")));
        }
        other => {
            line.insert(name, other);
        }
    }
}
