//! Aligned tables and numbers for people, in 100 columns.

/// Width of a report in columns.
pub(super) const WIDTH: usize = 100;

/// Least width of the first column of a [`Table`].
const LABEL: usize = 15;
/// Least width of every other column, the space in front of it not counted.
const COLUMN: usize = 10;

/// A table with a title, headings over right-aligned columns, and how its figures came about at the right
/// edge.
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

    /// The table as text, with an empty line behind it.
    pub(super) fn finish(self) -> String {
        let longest = self.rows.iter().map(|(label, _)| label.chars().count() + 1);
        let width = longest.max().unwrap_or(0).max(LABEL);
        let mut columns: Vec<usize> = Vec::new();
        for cells in std::iter::once(&self.headings).chain(self.rows.iter().map(|(_, cells)| cells)) {
            columns.resize(columns.len().max(cells.len()), COLUMN);
            for (column, cell) in columns.iter_mut().zip(cells) {
                *column = cell.chars().count().max(*column);
            }
        }
        let line = |label: &str, cells: &[String]| {
            let mut line = format!("{label:<width$}");
            for (cell, column) in cells.iter().zip(&columns) {
                line.push_str(&format!(" {cell:>column$}"));
            }
            line
        };
        let heading = line(self.title, &self.headings);
        let mut text = if heading.chars().count() + 2 + self.kind.chars().count() <= WIDTH {
            edges(&heading, &self.kind) + "\n"
        } else {
            // There is no room behind the headings.
            edges(self.title, &self.kind) + "\n" + &line("", &self.headings) + "\n"
        };
        for (label, cells) in &self.rows {
            text.push_str(line(label, cells).trim_end());
            text.push('\n');
        }
        text + "\n"
    }
}

/// Two texts, one at each edge of the report. Where both do not fit, the right one follows behind two spaces.
pub(super) fn edges(left: &str, right: &str) -> String {
    let gap = WIDTH.saturating_sub(left.chars().count() + right.chars().count()).max(2);
    format!("{left}{:gap$}{right}", "").trim_end().to_string()
}

/// A count as people read it: 1234567 as `1 234 567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A number with so many decimals, its whole part as [`grouped`] has it: 1234.56 as `1 234.6`.
pub(crate) fn with_decimals(number: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", number.abs());
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let sign = if number < 0.0 { "-" } else { "" };
    // What is no number, or a larger one than can be counted, stays as it is.
    format!("{sign}{}{rest}", whole.parse().map_or_else(|_| whole.to_owned(), grouped))
}

/// A number with as many decimals as make four significant digits.
pub(super) fn short(number: f64) -> String {
    let decimals = match number.abs() {
        n if n >= 100.0 => 1,
        n if n >= 10.0 => 2,
        _ => 3,
    };
    with_decimals(number, decimals)
}

fn scaled(number: f64, units: &[(&str, f64)]) -> String {
    let (unit, size) = units.iter().rev().find(|(_, size)| number.abs() >= *size).unwrap_or(&units[0]);
    if *size == 1.0 && number.fract() == 0.0 {
        return format!("{number:.0} {unit}");
    }
    format!("{} {unit}", short(number / size))
}

/// A time: `10.80 us`.
pub(super) fn time(ns: f64) -> String {
    scaled(ns, &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)])
}

/// A number of bytes: `34.87 MB`, decimal as the papers count.
pub(super) fn bytes(bytes: f64) -> String {
    scaled(bytes, &[("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12)])
}

/// A share: `97.90 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// A rate: `57.4 k/s`.
pub(super) fn rate(per_s: f64) -> String {
    scaled(per_s, &[("/s", 1.0), ("k/s", 1e3), ("M/s", 1e6)])
}

/// `part / whole`, zero when there is no whole.
pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { part / whole }
}
