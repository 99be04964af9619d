//! Sweeps: every combination of some settings, one JSON object per line; an interrupted sweep can be resumed.
//!
//! ```toml
//! profile = "cosmos-plus"
//! set = ["workload.ops=100000", "nand.enabled=false"]
//!
//! [grid]
//! "host.transfer" = ["prp", "piggyback"]
//! "workload.value_size" = [4, 32, 128]
//! ```
//!
//! A line is flat: the settings of the grid under their keys, then every number of the report under its
//! dotted name (`latency_ns.store.mean`), so that `pandas.read_json(path, lines=True)` has a column for each.
//! Lines are in the order in which runs ended.
//!
//! | item | what |
//! |---|---|
//! | [`Row`] | one combination, and its line |
//! | [`Point`] | a row as plain data, for another process or machine |
//! | [`SweepFile`] | the file of lines, which shows the rows that earlier calls have finished |
//! | [`Shard`] | a part of the rows, for a separate call |
//! | [`merge`] | the lines of several files as one, in the order of the rows |

mod file;
mod line;
mod merge;
mod places;
mod point;
mod row;
mod shard;

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{anyhow, bail, ensure};
use serde_json::{Map, Value};
use toml_edit::{Item, Table};

use kvdrive_config::grid::{Axis, combine};
use kvdrive_config::{Assigned, DEFAULT_PROFILE, Document, default_profile};
use kvdrive_run::plan::Plan;

pub use file::{Finished, SweepFile};
pub use merge::{MEASURED, merge};
use places::Places;
pub use point::Point;
pub use row::Row;
use row::{config_hash, document};
pub use shard::Shard;

/// Most rows of a sweep; a larger number is taken for a mistake in the file.
const MOST_ROWS: usize = 1_000_000;

/// Every combination that `text` describes, the last key changing fastest.
///
/// # Errors
/// One line: the text is not TOML, a key is unknown, a setting is wrong or a row would ignore it, or there
/// are too many rows. Messages begin with `name`.
pub fn rows(name: &str, text: &str) -> anyhow::Result<Vec<Row>> {
    let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    let toml = toml_edit::Document::parse(text).map_err(|error| {
        let line = line(error.span().map_or(0, |span| span.start));
        anyhow!("{name}:{line}: {}", error.message().replace('\n', "; "))
    })?;
    let placed = |problem: anyhow::Error, places: [Places; 2]| {
        let problem = problem.to_string();
        let named = problem.split_once(": ").map_or("", |(named, _)| named);
        match places.iter().find_map(|places| places.get(named)) {
            Some(at) => anyhow!("{name}:{}: {problem}", line(*at)),
            // It is of several keys, or of one that is not in the file.
            None => anyhow!("{name}: {problem}"),
        }
    };
    let in_every_row = Content::in_every_row(&toml);
    let content = in_every_row.map_err(|problem| placed(problem, [places::of_file(&toml), Places::new()]))?;
    let rows = content.with_grid(&toml).and_then(|content| content.rows());
    rows.map_err(|problem| placed(problem, [places::of_grid(&toml), places::of_file(&toml)]))
}

/// The content of a sweep's file.
struct Content {
    base: Document,
    /// Settings of every row.
    set: Assigned,
    /// The same settings, as `KEY=VALUE`.
    assignments: Arc<[String]>,
    /// Keys with their values.
    grid: Vec<Axis<String, toml_edit::Value>>,
}

impl Content {
    /// What all rows have in common.
    fn in_every_row(toml: &Table) -> anyhow::Result<Content> {
        let set = toml.get("set").map(read_set).transpose()?.unwrap_or_default();
        let profile = match toml.get("profile") {
            Some(profile) => profile.as_str().ok_or_else(|| anyhow!("profile: expected text"))?,
            None => default_profile(document(DEFAULT_PROFILE, &set)?.0.engine()),
        };
        let assignments = set.iter().map(|line| (*line).to_owned()).collect();
        let (base, set) = document(profile, &set)?;
        Ok(Content { base, set, assignments, grid: Vec::new() })
    }

    fn with_grid(self, toml: &Table) -> anyhow::Result<Content> {
        let mut content = self;
        for (key, item) in toml.iter() {
            match key {
                "profile" | "set" => {}
                "grid" => content.read_grid(item)?,
                _ => bail!("{key}: unknown key; a sweep has profile, set and [grid]"),
            }
        }
        ensure!(!content.grid.is_empty(), "[grid]: missing or empty; expected KEY = [VALUE, ...]");
        let rows = content.grid.iter().try_fold(1usize, |rows, (_, values)| rows.checked_mul(values.len()));
        let rows = rows.unwrap_or(usize::MAX);
        ensure!(rows <= MOST_ROWS, "[grid]: {rows} combinations; at most {MOST_ROWS}");
        Ok(content)
    }

    fn read_grid(&mut self, item: &Item) -> anyhow::Result<()> {
        let table = item.as_table_like().ok_or_else(|| anyhow!("[grid]: expected a table"))?;
        for (key, item) in table.iter() {
            // `host.transfer = [...]` without quotes is a table `host`.
            if let Some(section) = item.as_table_like() {
                for (name, item) in section.iter() {
                    self.read_axis(&format!("{key}.{name}"), item)?;
                }
            } else {
                self.read_axis(key, item)?;
            }
        }
        Ok(())
    }

    fn read_axis(&mut self, key: &str, item: &Item) -> anyhow::Result<()> {
        let values = item.as_array().ok_or_else(|| anyhow!("{key}: expected [VALUE, ...]"))?;
        ensure!(!values.is_empty(), "{key}: expected at least one value");
        let values = values.iter().map(|value| value.clone().decorated("", "")).collect();
        self.grid.push((key.to_owned(), values));
        Ok(())
    }

    fn rows(&self) -> anyhow::Result<Vec<Row>> {
        let lay_over = |row: &mut (Map<String, Value>, Document), key: &String, value: &_| {
            row.0.insert(key.clone(), json(value));
            row.1.set(&format!("{key}={value}"))
        };
        let combined = combine((Map::new(), self.base.clone()), &self.grid, lay_over)?;
        let mut seen = BTreeSet::new();
        let mut rows = Vec::with_capacity(combined.len());
        for (settings, document) in combined {
            let config = document.config()?;
            for (key, _) in &self.grid {
                if let Some(why) = config.ignores(key) {
                    bail!("{key}: {why}");
                }
            }
            let config_hash = config_hash(&document)?;
            ensure!(
                seen.insert(config_hash.clone()),
                "two combinations are the same run: {}",
                Value::from(settings)
            );
            rows.push(Row { settings, document, config_hash, set: self.assignments.clone() });
        }
        let configs = rows.iter().map(|row| row.document.config()).collect::<Result<Vec<_>, _>>()?;
        self.set.check_looked_at(&configs)?;
        // All rows are checked, finished ones included: if rows shared an image, it would hold what a
        // finished row wrote.
        Plan::apart(rows.iter().map(|row| row.document.clone()).collect()).check()?;
        Ok(rows)
    }
}

fn read_set(item: &Item) -> anyhow::Result<Vec<&str>> {
    let wrong = || anyhow!("set: expected [\"KEY=VALUE\", ...]");
    item.as_array().ok_or_else(wrong)?.iter().map(|line| line.as_str().ok_or_else(wrong)).collect()
}

fn json(value: &toml_edit::Value) -> Value {
    use toml_edit::Value as Toml;
    match value {
        Toml::Integer(number) => Value::from(*number.value()),
        Toml::Float(number) => Value::from(*number.value()),
        Toml::Boolean(flag) => Value::from(*flag.value()),
        Toml::String(text) => Value::from(text.value().as_str()),
        other => Value::from(other.to_string()),
    }
}
