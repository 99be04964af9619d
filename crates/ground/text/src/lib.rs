//! Text that people read and write: numbers with grouped digits, wrapped lines, quantities with units,
//! suggestions for misspelt names, and the files that contain all of it.

pub mod input;
pub mod names;
pub mod output;
pub mod quantity;
pub mod scaled;
mod unit;

pub use unit::Unit;

/// Columns of a line, where the width of the terminal is unknown.
pub const WIDTH: usize = 100;

/// A count with grouped digits: 1234567 as `1 234 567`.
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

/// A count and what is counted, in the singular or plural: `1 pair`, `1 346 pairs`, `2 entries`.
pub fn number_of(count: u64, one: &str) -> String {
    let plural = match one.strip_suffix('y') {
        _ if count == 1 => one.to_owned(),
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ => format!("{one}s"),
    };
    format!("{} {plural}", grouped(count))
}

/// A number with this many decimals, its whole part grouped as by [`grouped`]: 1234.56 as `1 234.6`.
pub fn with_decimals(number: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", number.abs());
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let sign = if number < 0.0 { "-" } else { "" };
    // A value that is not a number, or does not fit a `u64`, stays as it is.
    format!("{sign}{}{rest}", whole.parse().map_or_else(|_| whole.to_owned(), grouped))
}

/// Words that stay on the line of the number before them.
const UNITS: &[&str] = &[
    "%", "x", "ns", "us", "ms", "s", "min", "B", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "k/s", "M/s",
    "k", "M",
];

/// Is a space between these two words within a number, or before its unit?
fn is_one_number(before: &str, word: &str) -> bool {
    let plain = word.trim_end_matches(['.', ',', ';', ':', ')']);
    let whole = plain.split('.').next().unwrap_or(plain);
    let is_group = whole.len() == 3 && whole.bytes().all(|byte| byte.is_ascii_digit());
    before.ends_with(|c: char| c.is_ascii_digit()) && (is_group || UNITS.contains(&plain))
}

/// Wraps `text` at `columns` columns, but within no number; all lines but the first are indented.
pub fn wrap(text: &str, columns: usize) -> String {
    let mut lines = String::new();
    let mut length = 0;
    let words: Vec<&str> = text.split_whitespace().collect();
    for numbers in words.chunk_by(|before, word| is_one_number(before, word)) {
        let word = &numbers.join(" ");
        let longer = word.chars().count() + 1;
        if length > 0 && length + longer > columns {
            lines.push_str("\n   ");
            length = 3;
        }
        if length > 0 {
            lines.push(' ');
        }
        lines.push_str(word);
        length += longer;
    }
    lines + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_in_the_singular_or_plural() {
        let of = |count, one| number_of(count, one);
        assert_eq!([of(0, "pair"), of(1, "pair"), of(1346, "pair")], ["0 pairs", "1 pair", "1 346 pairs"]);
        assert_eq!(
            [of(1, "recovery"), of(2, "recovery"), of(3, "key")],
            ["1 recovery", "2 recoveries", "3 keys"]
        );
        assert_eq!([of(1, "I/O command"), of(2, "retry")], ["1 I/O command", "2 retries"]);
    }

    #[test]
    fn numbers_stay_with_their_groups_and_units() {
        assert_eq!(wrap("takes 1 275 ns.", 9), "takes\n    1 275 ns.\n");
        assert_eq!(wrap("is 211.71 % more", 9), "is\n    211.71 %\n    more\n");
        assert_eq!(wrap("of 12 345 678.5 B", 12), "of\n    12 345 678.5 B\n");
        assert_eq!(wrap("128 1024 and 100 wait", 10), "128 1024\n    and\n    100\n    wait\n");
    }

    #[test]
    fn long_paragraphs_are_wrapped() {
        let text = wrap(&"word ".repeat(40), 60);
        assert!(text.lines().count() > 1 && text.lines().all(|line| line.chars().count() <= 60));
        assert_eq!(text.split_whitespace().count(), 40);
    }
}
