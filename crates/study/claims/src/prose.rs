//! Sentences of a claim that contain numbers of its runs, so that the text matches the runs.
//!
//! ```text
//!   Backfill opens {backfill.pages | 0} pages, All {all.pages | 0}.
//!   Commands are {piggy.sqe at 128 | 0} B, {1 - piggy / base | 1 %} less.
//! ```
//!
//! The braces contain an expression over the names that the claim's own test may use, then the point at which
//! it is evaluated if the claim has several (without one: the range over all of them), then its format:
//! decimals, and `%` or `x` for a share or a ratio. A name with `full.` in front is of the same run at the
//! published size ([`super::full_size`]). Numbers of sources are plain text.

use std::fmt::Write;

use super::full_size;
use super::show::Show;
use kvdrive_experiments::expression::Expression;
use kvdrive_text::with_decimals;

/// Text with expressions in it.
#[derive(Clone, Debug, Default)]
pub struct Prose(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    Number(Number),
}

#[derive(Clone, Debug)]
struct Number {
    value: Expression,
    point: Option<String>,
    decimals: usize,
    show: Show,
}

/// Gives an expression's values: at the point of that name, or at every point.
pub type Values<'a> = &'a dyn Fn(&Expression, Option<&str>) -> anyhow::Result<Vec<f64>>;

impl Prose {
    /// Parses `text`.
    ///
    /// # Errors
    /// A few words: an unmatched brace, a wrong expression, or no decimals.
    pub fn parse(text: &str) -> Result<Prose, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            let (inside, after) = behind.split_once('}').ok_or("a { without its }")?;
            parts.push(Part::Text(before.to_owned()));
            parts.push(match inside.trim() {
                full_size::SIZE => Part::Text(full_size::size_in_words()),
                _ => Part::Number(Number::parse(inside)?),
            });
            rest = after;
        }
        if rest.contains('}') {
            return Err("a } without its {".into());
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Prose(parts))
    }

    fn numbers(&self) -> impl Iterator<Item = &Number> {
        self.0.iter().filter_map(|part| match part {
            Part::Number(number) => Some(number),
            Part::Text(_) => None,
        })
    }

    /// Every name in its expressions.
    pub fn names(&self) -> Vec<&str> {
        self.numbers().flat_map(|number| number.value.names()).collect()
    }

    /// Every point that it names.
    pub fn points(&self) -> Vec<&str> {
        self.numbers().filter_map(|number| number.point.as_deref()).collect()
    }

    /// The text with the numbers of `values`.
    ///
    /// # Errors
    /// As `values`.
    pub fn text(&self, values: Values<'_>) -> anyhow::Result<String> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Number(number) => {
                    text.push_str(&number.text(&values(&number.value, number.point.as_deref())?));
                }
            }
        }
        Ok(text)
    }

    /// The text if nothing was run.
    pub fn without_numbers(&self) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Number(_) => "-".into(),
        };
        self.0.iter().map(part).collect()
    }
}

impl Number {
    fn parse(text: &str) -> Result<Number, String> {
        let (what, how) = text.rsplit_once('|').ok_or_else(|| format!("{{{text}}}: no | and decimals"))?;
        let (value, point) = match what.rsplit_once(" at ") {
            Some((value, point)) => (value, Some(point.trim().to_owned())),
            None => (what, None),
        };
        let how = how.trim();
        let (decimals, show) = match (how.strip_suffix('%'), how.strip_suffix('x')) {
            (Some(decimals), _) => (decimals, Show::Percent),
            (_, Some(decimals)) => (decimals, Show::Times),
            _ => (how, Show::Plain),
        };
        let decimals = decimals.trim().parse().ok().filter(|decimals| *decimals <= 9);
        let decimals = decimals.ok_or_else(|| format!("{{{text}}}: \"{how}\" is no number of decimals"))?;
        Ok(Number { value: Expression::parse(value)?, point, decimals, show })
    }

    /// One value, or the range of several.
    fn text(&self, values: &[f64]) -> String {
        let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
        let factor = if self.show == Show::Percent { 100.0 } else { 1.0 };
        let digits = |value: f64| with_decimals(factor * value, self.decimals);
        let mut text = digits(low);
        if digits(high) != text {
            let _ = write!(text, " to {}", digits(high));
        }
        match self.show {
            Show::Percent => text + " %",
            Show::Times => text + " x",
            Show::Plain => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(expression: &Expression, point: Option<&str>) -> anyhow::Result<Vec<f64>> {
        let at = |factor: f64| {
            let names = |name: &str| if name == "a" { Ok(1234.5 * factor) } else { Err(name.to_owned()) };
            expression.value(&names).map_err(anyhow::Error::msg)
        };
        match point {
            Some("big") => Ok(vec![at(10.0)?]),
            _ => Ok(vec![at(1.0)?, at(10.0)?]),
        }
    }

    fn text(text: &str) -> String {
        Prose::parse(text).unwrap().text(&values).unwrap()
    }

    #[test]
    fn numbers_stand_in_the_text() {
        assert_eq!(text("no number"), "no number");
        assert_eq!(text("{a at big | 0} pages"), "12 345 pages");
        assert_eq!(text("from {a | 1}"), "from 1 234.5 to 12 345.0");
        assert_eq!(text("{1 - a / (2 * a) | 1 %}, {2 * a / a | 2 x}"), "50.0 %, 2.00 x");
        let prose = Prose::parse("{a at big | 0} and {a.b | 1}").unwrap();
        assert_eq!((prose.names(), prose.points()), (vec!["a", "a.b"], vec!["big"]));
        assert_eq!(prose.without_numbers(), "- and -");
        assert!(prose.text(&values).is_err(), "a.b has no number");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |text| Prose::parse(text).unwrap_err();
        assert_eq!(wrong("{a | 1"), "a { without its }");
        assert_eq!(wrong("a }"), "a } without its {");
        assert_eq!(wrong("{a}"), "{a}: no | and decimals");
        assert_eq!(wrong("{a | much}"), "{a | much}: \"much\" is no number of decimals");
        assert!(wrong("{a + | 1}").contains("expected a number or a name"));
    }
}
