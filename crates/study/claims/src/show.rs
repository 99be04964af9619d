//! Numbers of a claim as text.

use kvdrive_text::with_decimals;
use serde::{Deserialize, Serialize};

/// How a number of a claim is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Show {
    /// 0.979 as 97.90 %.
    Percent,
    /// 13.04 as 13.04 x.
    Times,
    /// The number itself.
    #[default]
    Plain,
}

impl Show {
    /// A published number as text, with only the digits that it has.
    pub(super) fn published(self, value: f64) -> String {
        // As many digits as make 100 times 0.979 print as 97.9.
        let short =
            |value: f64| format!("{value:.10}").trim_end_matches('0').trim_end_matches('.').to_owned();
        match self {
            Show::Percent => format!("{} %", short(100.0 * value)),
            Show::Times => format!("{} x", short(value)),
            Show::Plain => short(value),
        }
    }

    /// The number as text.
    pub fn text(self, value: f64) -> String {
        match self {
            Show::Percent => format!("{:.2} %", 100.0 * value),
            Show::Times => match value.abs() {
                n if n < 9.9995 => format!("{value:.3} x"),
                n if n < 99.95 => format!("{value:.2} x"),
                _ => format!("{value:.1} x"),
            },
            Show::Plain => with_decimals(value, if value.fract() == 0.0 { 0 } else { 2 }),
        }
    }
}
