//! A part of the rows of a sweep, for a separate call.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::row::Row;

/// Part `number` of `of` parts; each row is in exactly one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number of the part, from 1 on.
    number: usize,
    of: usize,
}

impl FromStr for Shard {
    type Err = String;

    /// `I/N`.
    fn from_str(text: &str) -> Result<Shard, String> {
        let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        let parts = parts.filter(|(number, of)| (1..=*of).contains(number));
        let (number, of) = parts.ok_or("allowed: I/N with I from 1 to N, as 1/8")?;
        Ok(Shard { number, of })
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl Shard {
    /// Its rows: every N-th, so that parts take about equally long if a setting makes runs longer.
    pub fn of(self, rows: Vec<Row>) -> Vec<Row> {
        rows.into_iter().skip(self.number - 1).step_by(self.of).collect()
    }

    /// Its file in the folder of the sweep's file: `grid.1-of-8.jsonl`.
    pub fn file(self, sweep: &Path) -> PathBuf {
        sweep.with_extension(format!("{}-of-{}.jsonl", self.number, self.of))
    }
}
