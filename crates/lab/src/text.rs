//! Text for people: numbers with their digits in groups, and words in lines.

/// Columns of a line, where nothing says how much room there is.
pub const WIDTH: usize = 100;

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

/// `text` in lines of at most so many columns, all but the first indented.
pub fn wrap(text: &str, columns: usize) -> String {
    let mut lines = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
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
    fn long_paragraphs_are_wrapped() {
        let text = wrap(&"word ".repeat(40), 60);
        assert!(text.lines().count() > 1 && text.lines().all(|line| line.chars().count() <= 60));
        assert_eq!(text.split_whitespace().count(), 40);
    }
}
