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

use kvdrive_config::{Assigned, DEFAULT_PROFILE, Document, default_profile};
use kvdrive_run::many::check;

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
    let in_every_row = Plan::in_every_row(&toml);
    let plan = in_every_row.map_err(|problem| placed(problem, [places::of_file(&toml), Places::new()]))?;
    let rows = plan.with_grid(&toml).and_then(|plan| plan.rows());
    rows.map_err(|problem| placed(problem, [places::of_grid(&toml), places::of_file(&toml)]))
}

/// The content of a sweep's file.
struct Plan {
    base: Document,
    /// Settings of every row.
    set: Assigned,
    /// The same settings, as `KEY=VALUE`.
    assignments: Arc<[String]>,
    /// Keys with their values.
    grid: Vec<(String, Vec<toml_edit::Value>)>,
}

impl Plan {
    /// What all rows have in common.
    fn in_every_row(toml: &Table) -> anyhow::Result<Plan> {
        let set = toml.get("set").map(read_set).transpose()?.unwrap_or_default();
        let profile = match toml.get("profile") {
            Some(profile) => profile.as_str().ok_or_else(|| anyhow!("profile: expected text"))?,
            None => default_profile(document(DEFAULT_PROFILE, &set)?.0.engine()),
        };
        let assignments = set.iter().map(|line| (*line).to_owned()).collect();
        let (base, set) = document(profile, &set)?;
        Ok(Plan { base, set, assignments, grid: Vec::new() })
    }

    fn with_grid(self, toml: &Table) -> anyhow::Result<Plan> {
        let mut plan = self;
        for (key, item) in toml.iter() {
            match key {
                "profile" | "set" => {}
                "grid" => plan.read_grid(item)?,
                _ => bail!("{key}: unknown key; a sweep has profile, set and [grid]"),
            }
        }
        ensure!(!plan.grid.is_empty(), "[grid]: missing or empty; expected KEY = [VALUE, ...]");
        let rows = plan.grid.iter().try_fold(1usize, |rows, (_, values)| rows.checked_mul(values.len()));
        let rows = rows.unwrap_or(usize::MAX);
        ensure!(rows <= MOST_ROWS, "[grid]: {rows} combinations; at most {MOST_ROWS}");
        Ok(plan)
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
        let mut partial = vec![(Map::new(), self.base.clone())];
        for (key, values) in &self.grid {
            let mut next = Vec::with_capacity(partial.len() * values.len());
            for (settings, document) in &partial {
                for value in values {
                    let (mut settings, mut document) = (settings.clone(), document.clone());
                    document.set(&format!("{key}={value}"))?;
                    settings.insert(key.clone(), json(value));
                    next.push((settings, document));
                }
            }
            partial = next;
        }
        let mut seen = BTreeSet::new();
        let mut rows = Vec::with_capacity(partial.len());
        for (settings, document) in partial {
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
        check(rows.iter().map(|row| &row.document))?;
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
