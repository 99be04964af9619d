//! Aligned tables and numbers for people, fitted to the available width.
//!
//! If a table is too wide, it first loses the space between its columns; columns that still do not fit go
//! below the rest, with the labels of the rows again. Table crates break the cells instead, which separates a
//! number from its unit.

use std::ops::Range;

use kvdrive_text::wrap;

pub(super) use kvdrive_text::scaled::{bytes, percent, rate, short, time};

/// Minimum width of the first column of a [`Table`].
const LABEL: usize = 15;
/// Minimum width of every other column, without the space in front of it.
const COLUMN: usize = 10;

/// A table with a title, headings over right-aligned columns, and the kind of its figures (counted, modelled,
/// measured) at the right edge.
pub(super) struct Table {
    title: &'static str,
    headings: Vec<String>,
    kind: String,
    rows: Vec<(String, Vec<String>)>,
}

impl Table {
    pub(super) fn new(title: &'static str, headings: &[&str], kind: &str) -> Table {
        Table {
            title,
            headings: headings.iter().map(|heading| heading.to_string()).collect(),
            kind: kind.to_string(),
            rows: Vec::new(),
        }
    }

    pub(super) fn row(&mut self, label: &str, cells: &[String]) {
        self.rows.push((format!("  {label}"), cells.to_vec()));
    }

    /// The table as text of `room` columns, followed by an empty line.
    pub(super) fn finish(self, room: usize) -> String {
        let longest = self.rows.iter().map(|(label, _)| label.chars().count() + 1).max().unwrap_or(0);
        let (mut width, mut columns) = (longest.max(LABEL), self.columns(COLUMN));
        if width + columns.iter().map(|column| column + 1).sum::<usize>() > room {
            (width, columns) = (longest.max(self.title.len() + 1), self.columns(0));
        }
        let mut text = String::new();
        for block in fold(width, &columns, 1, room) {
            let line = |label: &str, cells: &[String]| {
                let mut line = format!("{label:<width$}");
                for column in block.clone() {
                    let cell = cells.get(column).map_or("", String::as_str);
                    line.push_str(&format!(" {cell:>width$}", width = columns[column]));
                }
                line.trim_end().to_owned() + "\n"
            };
            let heading = line(self.title, &self.headings);
            if block.start > 0 {
                text.push_str(&line("", &self.headings));
            } else if heading.chars().count() + 1 + self.kind.chars().count() <= room {
                text.push_str(&(edges(heading.trim_end(), &self.kind, room) + "\n"));
            } else {
                // The headings leave no room at their right.
                text.push_str(&(edges(self.title, &self.kind, room) + "\n"));
                text.push_str(&line("", &self.headings));
            }
            for (label, cells) in &self.rows {
                text.push_str(&line(label, cells));
            }
        }
        text + "\n"
    }

    /// Width of each column, at least `least`.
    fn columns(&self, least: usize) -> Vec<usize> {
        let mut columns: Vec<usize> = Vec::new();
        for cells in std::iter::once(&self.headings).chain(self.rows.iter().map(|(_, cells)| cells)) {
            columns.resize(columns.len().max(cells.len()), least);
            for (column, cell) in columns.iter_mut().zip(cells) {
                *column = cell.chars().count().max(*column);
            }
        }
        columns
    }
}

/// Groups columns that fit side by side, `gap` apart, to the right of labels of a width; at least one in each
/// group.
pub(super) fn fold(labels: usize, columns: &[usize], gap: usize, room: usize) -> Vec<Range<usize>> {
    let (mut blocks, mut begin, mut used) = (Vec::new(), 0, labels);
    for (column, width) in columns.iter().enumerate() {
        if column > begin && used + gap + width > room {
            blocks.push(begin..column);
            (begin, used) = (column, labels);
        }
        used += gap + width;
    }
    blocks.push(begin..columns.len());
    blocks
}

/// Bytes per second: `2.270 GB/s`, decimal.
pub(super) fn bandwidth(bytes_per_s: f64) -> String {
    bytes(bytes_per_s) + "/s"
}

/// Two texts, one at each edge of `room` columns. If both do not fit, the right one goes to the next line.
pub(super) fn edges(left: &str, right: &str, room: usize) -> String {
    let (before, behind) = (left.chars().count(), right.chars().count());
    if before > 0 && before + 2 + behind > room {
        let left = if before > room { wrap(left, room).trim_end().to_owned() } else { left.to_owned() };
        return format!("{left}\n{:gap$}{right}", "", gap = room.saturating_sub(behind));
    }
    let gap = room.saturating_sub(before + behind).max(2);
    format!("{left}{:gap$}{right}", "").trim_end().to_string()
}

/// `part / whole`; 0 if `whole` is 0.
pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { part / whole }
}
