//! The standing of a verdict, and the tally that separates evidence from the rest.

use serde::{Deserialize, Serialize};

use super::{Outcome, Verdict};
use kvdrive_experiments::Kind;

/// The evidence that a reproduced claim gives for the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// A published claim for which no constant was chosen: it could have failed.
    Evidence,
    /// A published claim to which constants were fitted, or that follows from such a claim.
    Fit,
    /// A published claim from which a constant was solved, or that follows from such a claim.
    Set,
    /// A statement of ours, not published.
    Ours,
}

/// The place of an unpublished claim: in our findings, or in our goals.
const NOT_PUBLISHED: [&str; 2] = ["ours", "goal"];

/// In the order of the tally.
const STANDINGS: [(Standing, &str); 4] = [
    (Standing::Evidence, "evidence"),
    (Standing::Fit, "fit"),
    (Standing::Set, "set"),
    (Standing::Ours, "ours"),
];

impl Standing {
    /// The standing of a claim of this kind and source.
    pub(super) fn of(kind: Kind, source: &str) -> Standing {
        match kind {
            _ if NOT_PUBLISHED.contains(&source) => Standing::Ours,
            Kind::ModelledFit => Standing::Fit,
            Kind::ModelledSet => Standing::Set,
            Kind::Counted | Kind::Modelled | Kind::ModelledCheck | Kind::Measured => Standing::Evidence,
        }
    }
}

/// How many outcomes of each standing come true, in words, regressions last.
pub fn counts(outcomes: &[Outcome]) -> String {
    let is_skipped = |outcome: &Outcome| matches!(outcome.verdict, Verdict::Skipped(_));
    let is_open = |outcome: &Outcome| outcome.verdict == Verdict::NeedsMore;
    // The number of claims that come true, and of all.
    let count = |belongs: &dyn Fn(&Outcome) -> bool| {
        let all: Vec<_> =
            outcomes.iter().filter(|one| belongs(one) && !is_skipped(one) && !is_open(one)).collect();
        (all.iter().filter(|one| one.verdict.comes_true()).count(), all.len())
    };
    let mut parts = Vec::new();
    for (standing, name) in STANDINGS {
        let (good, all) = count(&|one| one.standing == standing);
        if all == 0 {
            continue;
        }
        let mut part = format!("{name}: {good} of {all} come true");
        if standing == Standing::Evidence {
            let (counted, of) = count(&|one| one.standing == standing && one.kind == Kind::Counted);
            part += &format!(" ({counted} of {of} counted, {} of {} modelled)", good - counted, all - of);
        }
        let emulated =
            outcomes.iter().filter(|one| one.standing == standing && one.verdict == Verdict::Emulated);
        match emulated.count() {
            0 => {}
            more => part += &format!(", {more} more under the emulator's accounting"),
        }
        parts.push(part);
    }
    let skipped = outcomes.iter().filter(|one| is_skipped(one)).count();
    if skipped > 0 {
        parts.push(format!("{skipped} skipped"));
    }
    let open = outcomes.iter().filter(|one| is_open(one)).count();
    if open > 0 {
        parts.push(format!("{open} need more operations"));
    }
    parts.push(match outcomes.iter().filter(|outcome| outcome.regressed.is_some()).count() {
        0 => "none regressed".to_owned(),
        some => format!("{some} REGRESSED"),
    });
    format!("{} claims; {}", outcomes.len(), parts.join("; "))
}
