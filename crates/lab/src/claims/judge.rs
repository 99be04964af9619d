//! The verdict on a claim, computed from the reports of its runs.

use std::fmt;

use anyhow::anyhow;
use serde::{Serialize, Serializer};

use super::{Claim, Planned, Test};
use crate::experiments::Kind;
use crate::experiments::runs::{Results, RunId};

/// Whether a claim comes true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The published number comes out, within the tolerance of the claim.
    Reproduced,
    /// The order holds.
    Holds,
    /// It does not come true.
    NotReproduced,
    /// This build lacks what the claim needs, named here.
    Skipped(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Holds => "holds",
            Verdict::NotReproduced => "not reproduced",
            Verdict::Skipped(_) => "skipped",
        })
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The same value under other conditions, shown beside ours.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// What is different.
    pub name: String,
    /// Ours then, as text.
    pub ours: String,
}

/// A claim and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Name of the claim.
    pub id: String,
    /// Where it stands.
    pub source: String,
    /// In half a line.
    pub title: String,
    /// In a sentence.
    pub statement: String,
    /// How our number comes about.
    pub kind: Kind,
    /// The published number, as text; `order` for an order.
    pub published: String,
    /// The published number.
    pub published_value: Option<f64>,
    /// Ours, as text: one, a range over the points, or how many points an order holds at.
    pub ours: String,
    /// Ours, a value a point; empty for an order.
    pub values: Vec<f64>,
    /// Points the values belong to; empty if there is but one.
    pub points: Vec<String>,
    /// Computed.
    pub verdict: Verdict,
    /// What differs from what is expected of this claim; none: nothing.
    pub regressed: Option<String>,
    /// How the source is understood.
    pub reading: String,
    /// Why it is not reproduced, or not judged.
    pub because: String,
    /// Ours under other conditions.
    pub beside: Vec<Beside>,
}

/// Values at every point, or whether the order holds there.
enum Found {
    Values(Vec<f64>),
    Holds(Vec<bool>),
}

/// Judges a claim.
///
/// # Errors
/// A quantity that a report has no number for.
pub(super) fn judge(planned: &Planned, results: &Results) -> anyhow::Result<Outcome> {
    let claim = &planned.claim;
    let runs = match &planned.runs {
        Ok(runs) => runs,
        Err(lacks) => {
            let mut skipped =
                outcome(claim, "-".into(), Vec::new(), Verdict::Skipped(lacks.clone()), Vec::new());
            skipped.because = format!("This build lacks {lacks}.");
            return Ok(skipped);
        }
    };
    let mut found = runs.iter().map(|points| find(claim, points, results));
    let ours = found.next().ok_or_else(|| anyhow!("no runs"))??;
    let verdict = verdict(claim, &ours);
    let beside = claim
        .beside
        .iter()
        .zip(found)
        .map(|(condition, found)| Ok(Beside { name: condition.name.clone(), ours: found?.text(claim) }));
    let beside = beside.collect::<anyhow::Result<_>>()?;
    let text = ours.text(claim);
    let values = match ours {
        Found::Values(values) => values,
        Found::Holds(_) => Vec::new(),
    };
    let mut outcome = outcome(claim, text, values, verdict, beside);
    outcome.regressed = regression(planned, &outcome);
    Ok(outcome)
}

fn outcome(claim: &Claim, ours: String, values: Vec<f64>, verdict: Verdict, beside: Vec<Beside>) -> Outcome {
    let published_value = match &claim.test {
        Test::Value { published, .. } => Some(*published),
        Test::Order(_) => None,
    };
    Outcome {
        id: claim.id.clone(),
        source: claim.source.clone(),
        title: claim.title.clone(),
        statement: claim.statement.clone(),
        kind: claim.kind,
        published: claim.test.to_string(),
        published_value,
        ours,
        values,
        points: claim.each.clone(),
        verdict,
        regressed: None,
        reading: claim.reading.clone(),
        because: claim.expected.because.clone(),
        beside,
    }
}

/// Values of the claim at every point.
fn find(claim: &Claim, points: &[Vec<(String, RunId)>], results: &Results) -> anyhow::Result<Found> {
    let mut values = Vec::new();
    let mut holds = Vec::new();
    for runs in points {
        let names = |name: &str| number(claim, runs, results, name);
        match &claim.test {
            Test::Value { value, .. } => values.push(value.value(&names).map_err(anyhow::Error::msg)?),
            Test::Order(orders) => {
                let all = orders.iter().map(|order| order.holds(&names).map_err(anyhow::Error::msg));
                let all = all.collect::<anyhow::Result<Vec<bool>>>()?;
                holds.push(all.into_iter().all(|holds| holds));
            }
        }
    }
    Ok(if holds.is_empty() { Found::Values(values) } else { Found::Holds(holds) })
}

/// The number behind `run` or `run.quantity`.
fn number(claim: &Claim, runs: &[(String, RunId)], results: &Results, name: &str) -> Result<f64, String> {
    let (run, quantity) = name.split_once('.').unwrap_or((name, ""));
    let (_, run) = runs.iter().find(|(known, _)| known == run).ok_or_else(|| format!("no run {run}"))?;
    let quantity = claim.quantities.iter().find(|(known, _)| known == quantity);
    let (_, quantity) = quantity.ok_or_else(|| format!("no quantity {name}"))?;
    results.number(*run, quantity).map_err(|problem| problem.to_string())
}

impl Found {
    fn text(&self, claim: &Claim) -> String {
        match (self, &claim.test) {
            (Found::Values(values), Test::Value { show, .. }) => {
                let (low, high) =
                    values.iter().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
                let (low, high) = (show.text(low), show.text(high));
                if low == high {
                    high
                } else {
                    format!("{} .. {high}", low.trim_end_matches([' ', '%', 'x']))
                }
            }
            (Found::Holds(holds), _) if holds.len() == 1 => {
                if holds[0] {
                    "holds".into()
                } else {
                    "does not".into()
                }
            }
            (Found::Holds(holds), _) => {
                format!("at {} of {}", holds.iter().filter(|holds| **holds).count(), holds.len())
            }
            (Found::Values(_), Test::Order(_)) => String::new(),
        }
    }
}

fn verdict(claim: &Claim, found: &Found) -> Verdict {
    let comes_true = match (found, &claim.test) {
        (Found::Values(values), Test::Value { published, relation, tolerance, .. }) => {
            values.iter().all(|ours| relation.holds(*ours, *published, *tolerance))
        }
        (Found::Holds(holds), _) => holds.iter().all(|holds| *holds),
        (Found::Values(_), Test::Order(_)) => false,
    };
    match (comes_true, &claim.test) {
        (false, _) => Verdict::NotReproduced,
        (true, Test::Order(_)) => Verdict::Holds,
        (true, Test::Value { .. }) => Verdict::Reproduced,
    }
}

/// What differs from what is expected. Our own values are only expected of the runs they were taken from.
fn regression(planned: &Planned, outcome: &Outcome) -> Option<String> {
    if planned.is_altered {
        return None;
    }
    let expected = &planned.claim.expected;
    let comes_true = matches!(outcome.verdict, Verdict::Reproduced | Verdict::Holds);
    if comes_true != expected.comes_true {
        let should = if expected.comes_true { "came true" } else { "was not reproduced" };
        return Some(format!("{}; this {should} before", outcome.verdict));
    }
    let Test::Value { show, .. } = &planned.claim.test else { return None };
    if !planned.as_usual {
        return None;
    }
    let pairs = outcome.values.iter().zip(&expected.ours);
    let mut moved = pairs.filter(|(now, before)| (**now - **before).abs() > expected.drift);
    moved.next().map(|(now, before)| format!("{}; this was {} before", show.text(*now), show.text(*before)))
}
