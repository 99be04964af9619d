//! What the names in a claim's comparisons stand for: its runs, and the quantities of their reports.

use serde::Serialize;

use super::claim::{Claim, Source};
use kvdrive_experiments::runs::Assignments;

/// A name, and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Name {
    /// The name of a run; `each` for the quantity that all runs are compared by, `each.NAME` for a further one.
    pub name: String,
    /// `figure / grid / series / point` of a run, or its profile and settings; of a quantity, the names in a report.
    pub is: String,
}

fn words(set: &Assignments) -> String {
    set.iter().map(|(key, value)| format!(" {key}={value}")).collect()
}

impl Source {
    fn in_words(&self) -> String {
        match self {
            Source::Place(place, set) if set.is_empty() => place.to_string(),
            Source::Place(place, set) => format!("{place}, with{}", words(set)),
            Source::Own(found) => {
                let asked = found.asked();
                format!("a run on {}, with{}", asked.profile, words(&asked.settings))
            }
        }
    }
}

impl Claim {
    /// Its names: those of the runs, then those of the quantities.
    pub(super) fn names(&self) -> Vec<Name> {
        let runs = self.runs.iter().map(|(name, source)| Name { name: name.clone(), is: source.in_words() });
        let quantities = self.quantities.iter().map(|(name, quantity)| {
            let dot = if name.is_empty() { "" } else { "." };
            Name { name: format!("each{dot}{name}"), is: quantity.to_string() }
        });
        runs.chain(quantities).collect()
    }
}
