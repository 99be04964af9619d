//! Numbers of runs that take too long for `claims`, for sentences of a claim: those at the published size.
//!
//! `scripts/full-size` does the runs and writes `full-size/SUITE.toml`: for each place of a figure the values
//! of the quantities that sentences use. Sentences name them like those of the claim's own runs, with `full.`
//! in front, and `{full.size}` is the size of the runs. No verdict depends on them.

use std::collections::BTreeMap;

use serde::Deserialize;

use kvdrive_experiments::from_toml;
use once_cell::race::OnceBox;

/// The beginning of such a number's name.
pub(super) const PREFIX: &str = "full.";
/// Name of the size in a sentence.
pub const SIZE: &str = "full.size";

/// The content of a file: all runs are of one size.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbers {
    scale: String,
    /// By the place of each run: its quantities, as claims write them, with their values.
    runs: BTreeMap<String, BTreeMap<String, f64>>,
    /// The program that did the runs, by place.
    #[serde(rename = "revisions")]
    _revisions: BTreeMap<String, String>,
}

fn numbers() -> &'static Numbers {
    static NUMBERS: OnceBox<Numbers> = OnceBox::new();
    NUMBERS.get_or_init(|| {
        let text = include_str!("../full-size/plus.toml");
        let read = from_toml("full-size/plus.toml", text);
        Box::new(read.expect("an embedded file, which scripts/full-size wrote"))
    })
}

/// The name after [`PREFIX`], if `name` begins with it.
pub fn own_name(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)
}

/// The size of the runs, in words.
pub fn size_in_words() -> String {
    match numbers().scale.as_str() {
        "1" => "full size".into(),
        scale => format!("{scale} of the size"),
    }
}

/// The number of `quantity` at `place`. Only for runs with the settings of the figure.
pub(super) fn number(place: &str, quantity: &str, as_in_figure: bool) -> Result<f64, String> {
    let found = numbers().runs.get(place).filter(|_| as_in_figure);
    found
        .and_then(|numbers| numbers.get(quantity))
        .copied()
        .ok_or_else(|| format!("{place}: full-size/plus.toml has no {quantity}; scripts/full-size writes it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{suite, suite_names};

    #[test]
    fn the_file_has_every_number_that_a_sentence_asks_for() {
        let mut asked = 0;
        for suite in suite_names().unwrap().iter().map(|name| suite(name).unwrap()) {
            for claim in &suite.claims {
                let names = claim.reading.names().into_iter().chain(claim.because.names());
                for name in names.filter_map(own_name) {
                    for point in claim.points() {
                        claim
                            .at_full_size(name, point)
                            .unwrap_or_else(|problem| panic!("{}: {problem}", claim.id));
                        asked += 1;
                    }
                }
            }
        }
        assert!(asked > 10, "{asked}");
    }

    #[test]
    fn what_was_not_run_is_said() {
        let suite = suite("plus").unwrap();
        let claim = suite.claims.iter().find(|claim| claim.id == "write-uniform").unwrap();
        assert!(claim.at_full_size("a1", None).is_ok());
        assert!(
            claim.at_full_size("a1.programmed", None).unwrap_err().contains("scripts/full-size writes it")
        );
        assert!(claim.at_full_size("a2", None).unwrap_err().contains("no run of a figure"));
    }
}
