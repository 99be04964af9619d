//! Computes the verdict on a claim from the reports of its runs.

use std::fmt;

use anyhow::anyhow;
use serde::{Serialize, Serializer};

use super::claim::{Claim, Condition, Test};
use super::full_size;
use super::names::Name;
use super::plan::Planned;
use super::points::{self, AtPoint};
use super::prose::Prose;
use super::standing::Standing;
use kvdrive_experiments::Kind;
use kvdrive_experiments::expression::{Comparison, Expression};
use kvdrive_experiments::runs::{Results, RunId};
use kvdrive_text::grouped;
use kvdrive_text::with_decimals;

/// The verdict on a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The published number is reproduced, within the tolerance of the claim.
    Reproduced,
    /// The order holds.
    Holds,
    /// It is not reproduced here, where all costs are charged, but with the costs of the source's emulator.
    Emulated,
    /// It is not reproduced.
    NotReproduced,
    /// This build lacks the named part, which the claim needs.
    Skipped(String),
    /// A quick run has too few operations to decide it: its verdict with the usual number is another one.
    NeedsMore,
}

impl Verdict {
    /// Does the claim hold?
    pub fn holds(&self) -> bool {
        matches!(self, Verdict::Reproduced | Verdict::Holds)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Holds => "holds",
            Verdict::Emulated => "emulator's accounting",
            Verdict::NotReproduced => "not reproduced",
            Verdict::Skipped(_) => "skipped",
            Verdict::NeedsMore => "needs more operations",
        })
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The same value under other conditions, shown beside the claim's own.
#[derive(Clone, Debug, Serialize)]
pub struct OtherCondition {
    /// The condition that differs.
    pub name: String,
    /// Our value under these conditions, as text.
    pub ours: String,
    /// The result at each point; empty if `ours` leaves nothing open.
    pub at_points: Vec<AtPoint>,
}

impl fmt::Display for OtherCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}", self.ours, self.name)?;
        if self.at_points.is_empty() { Ok(()) } else { write!(f, "; {}", points::listed(&self.at_points)) }
    }
}

/// One comparison of an order at a point, with its numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The point, with the seed if it is not that of the claim's runs; empty if there is only one point.
    pub at: String,
    /// The numbers.
    #[serde(flatten)]
    pub comparison: Comparison,
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison { left, sign, right, margin, .. } = &self.comparison;
        if !self.at.is_empty() {
            write!(f, "at {}, ", self.at)?;
        }
        let side = |(text, value): &(String, f64)| match text.parse::<f64>() {
            Ok(_) => text.clone(),
            Err(_) => format!("{text} = {}", significant(*value)),
        };
        write!(f, "{} {sign} {}", side(left), side(right))?;
        if *margin == 0.0 { f.write_str(", equal") } else { write!(f, ", by {}", percent(*margin)) }
    }
}

/// The value with four significant digits, and all digits of its whole part.
fn significant(value: f64) -> String {
    let whole = value.abs().max(1e-9).log10().floor() as i32;
    let decimals = (3 - whole).clamp(0, 9) as usize;
    let text = with_decimals(value, decimals);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A margin in percent; a small one is not rounded to 0.
fn percent(margin: f64) -> String {
    let percent = 100.0 * margin;
    if percent.abs() < 0.095 { format!("{percent:.3} %") } else { format!("{percent:.1} %") }
}

/// A claim and its result.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Name of the claim.
    pub id: String,
    /// Figure, table or section of the source.
    pub source: String,
    /// Title: half a line.
    pub title: String,
    /// The statement: one sentence.
    pub statement: String,
    /// How our number was obtained.
    pub kind: Kind,
    /// The standing of the verdict.
    pub standing: Standing,
    /// The published number, as text; `order` for an order.
    pub published: String,
    /// The published number, of a range the lower end.
    pub published_value: Option<f64>,
    /// How far our value may be from it, as text: `10 %` of it, `2 points` of a percentage; empty if no distance is
    /// allowed, and for an order.
    pub tolerance: String,
    /// Our value, as text: one value, a range over the points, or the margin of an order where it is
    /// smallest.
    pub ours: String,
    /// Our values, one for each point, means if there are several seeds; empty for an order.
    pub values: Vec<f64>,
    /// Every comparison of an order at every point; empty for a number.
    pub comparisons: Vec<Compared>,
    /// Smallest and largest value over several seeds and all points, as text; empty with one seed.
    pub seeds: String,
    /// Points of the values; empty if there is only one.
    pub points: Vec<String>,
    /// The result at each point; empty if there is only one.
    pub at_points: Vec<AtPoint>,
    /// The verdict, computed.
    pub verdict: Verdict,
    /// Difference from the expected result; `None`: there is none.
    pub regressed: Option<String>,
    /// How the source was interpreted.
    pub reading: String,
    /// Why it is not reproduced, or not judged.
    pub because: String,
    /// Our value under other conditions.
    pub beside: Vec<OtherCondition>,
    /// What the names in `comparisons` stand for.
    pub names: Vec<Name>,
}

/// Values at every point, or comparisons at every point.
enum AtPoints {
    Values(Vec<f64>),
    Compared(Vec<Vec<Comparison>>),
}

/// The reason if a quick run leaves a claim open.
const NEEDS_MORE: &str =
    "With so few operations the result differs from that with the usual number, which decides.";

/// Runs of one condition: for each point, run by name.
type Points = [Vec<(String, RunId)>];

impl Planned {
    /// Have all runs of the claim ended? A verdict is of whole runs.
    pub fn has_ended(&self, results: &Results) -> bool {
        if self.needs.is_some() {
            return true;
        }
        let mut runs = self.runs.iter().flatten().flatten().flatten();
        runs.all(|(_, run)| results.has_ended(*run))
    }

    /// Judges the claim by `results`.
    ///
    /// # Errors
    /// A report lacks a number that a quantity needs.
    pub fn judge(&self, results: &Results) -> anyhow::Result<Outcome> {
        judge(self, results).map_err(|problem| anyhow::anyhow!("claim {}: {problem}", self.claim.id))
    }
}

fn judge(planned: &Planned, results: &Results) -> anyhow::Result<Outcome> {
    let claim = &planned.claim;
    if let Some(operations) = planned.needs {
        return Ok(left_out(claim, operations));
    }
    let runs = match &planned.runs {
        Ok(runs) => runs,
        Err(lacks) => return Ok(skipped(claim, lacks)),
    };
    let mut conditions = runs.iter();
    let own = conditions.next().ok_or_else(|| anyhow!("no runs"))?;
    let first = find(claim, own, results)?;
    let seeds = conditions.by_ref().take(claim.seeds.len()).map(|points| find(claim, points, results));
    let all: Vec<AtPoints> =
        std::iter::once(Ok(first)).chain(seeds).collect::<anyhow::Result<Vec<AtPoints>>>()?;
    let beside_of = |condition: &Condition, found: &AtPoints| OtherCondition {
        name: condition.name.clone(),
        ours: found.text(claim),
        at_points: points::differing(&found.each(claim), matches!(claim.test, Test::Order(_))).to_vec(),
    };
    let mut beside = Vec::new();
    let mut comes_out_emulated = false;
    if let (Some(emulator), Some(points)) =
        (&claim.emulator, claim.emulator.as_ref().and_then(|_| conditions.next()))
    {
        let found = find(claim, points, results)?;
        comes_out_emulated = verdict(claim, &found).holds();
        beside.push(beside_of(emulator, &found));
    }
    for (condition, points) in claim.beside.iter().zip(conditions) {
        beside.push(beside_of(condition, &find(claim, points, results)?));
    }
    let seeds = if all.len() > 1 { spread(planned, &all) } else { String::new() };
    let comparisons = compared(claim, &all);
    let ours = together(all);
    let (text, at_points) = (ours.text(claim), ours.each(claim));
    let verdict = match verdict(claim, &ours) {
        Verdict::NotReproduced if comes_out_emulated => Verdict::Emulated,
        verdict => verdict,
    };
    let values = match ours {
        AtPoints::Values(values) => values,
        AtPoints::Compared(_) => Vec::new(),
    };
    let prose = |prose: &Prose| {
        prose.text(&|expression: &Expression, point: Option<&str>| {
            let at = |index: &usize| {
                point.is_none_or(|point| claim.each.get(*index).is_some_and(|it| it == point))
            };
            let values = (0..own.len()).filter(at).map(|index| {
                let point = claim.each.get(index).map(String::as_str);
                let names = |name: &str| match full_size::own_name(name) {
                    Some(name) => claim.at_full_size(name, point),
                    None => number(claim, &own[index], results, name),
                };
                expression.value(&names).map_err(anyhow::Error::msg)
            });
            values.collect()
        })
    };
    let (reading, because) = (prose(&claim.reading)?, prose(&claim.because)?);
    let numbers = Numbers { ours: text, values, at_points, comparisons, seeds, beside };
    let mut outcome = outcome(claim, numbers, verdict, reading, because);
    outcome.regressed = regression(planned, &outcome);
    if planned.is_quick && outcome.regressed.take().is_some() {
        outcome.verdict = Verdict::NeedsMore;
        outcome.because = NEEDS_MORE.to_owned();
    }
    Ok(outcome)
}

/// The results of a claim's runs.
#[derive(Default)]
struct Numbers {
    ours: String,
    values: Vec<f64>,
    at_points: Vec<AtPoint>,
    comparisons: Vec<Compared>,
    seeds: String,
    beside: Vec<OtherCondition>,
}

/// The outcome of a claim whose runs are too many for a quick suite.
fn left_out(claim: &Claim, operations: u64) -> Outcome {
    let numbers = Numbers { ours: "-".into(), ..Numbers::default() };
    let operations = grouped(operations);
    let because =
        format!("Its runs need {operations} operations, loads included, more than a quick suite has left.");
    outcome(claim, numbers, Verdict::NeedsMore, claim.reading.without_numbers(), because)
}

fn skipped(claim: &Claim, lacks: &str) -> Outcome {
    let numbers = Numbers { ours: "-".into(), ..Numbers::default() };
    let because = format!("This build lacks {lacks}.");
    outcome(claim, numbers, Verdict::Skipped(lacks.to_owned()), claim.reading.without_numbers(), because)
}

fn outcome(claim: &Claim, numbers: Numbers, verdict: Verdict, reading: String, because: String) -> Outcome {
    let published_value = match &claim.test {
        Test::Value { published, .. } => Some(*published),
        Test::Order(_) => None,
    };
    let Numbers { ours, values, at_points, comparisons, seeds, beside } = numbers;
    Outcome {
        id: claim.id.clone(),
        source: claim.source.clone(),
        title: claim.title.clone(),
        statement: claim.statement.clone(),
        kind: claim.kind,
        standing: claim.standing(),
        published: claim.test.to_string(),
        published_value,
        tolerance: claim.test.tolerance(),
        ours,
        values,
        comparisons,
        seeds,
        points: claim.each.clone(),
        at_points,
        verdict,
        regressed: None,
        reading,
        because,
        beside,
        names: claim.names(),
    }
}

/// Values of the claim at every point.
fn find(claim: &Claim, points: &Points, results: &Results) -> anyhow::Result<AtPoints> {
    let mut values = Vec::new();
    let mut compared = Vec::new();
    for runs in points {
        let names = |name: &str| number(claim, runs, results, name);
        match &claim.test {
            Test::Value { value, .. } => values.push(value.value(&names).map_err(anyhow::Error::msg)?),
            Test::Order(orders) => {
                let mut all = Vec::new();
                for order in orders {
                    all.extend(order.compare(&names).map_err(anyhow::Error::msg)?);
                }
                compared.push(all);
            }
        }
    }
    Ok(if compared.is_empty() { AtPoints::Values(values) } else { AtPoints::Compared(compared) })
}

/// The number that `run` or `run.quantity` names.
fn number(claim: &Claim, runs: &[(String, RunId)], results: &Results, name: &str) -> Result<f64, String> {
    let (run, quantity) = name.split_once('.').unwrap_or((name, ""));
    let (_, run) = runs.iter().find(|(known, _)| known == run).ok_or_else(|| format!("no run {run}"))?;
    let quantity = claim.quantities.iter().find(|(known, _)| known == quantity);
    let (_, quantity) = quantity.ok_or_else(|| format!("no quantity {name}"))?;
    results.number(*run, quantity).map_err(|problem| problem.to_string())
}

/// Combines several seeds: the mean at every point, and every comparison, all of which must hold.
fn together(seeds: Vec<AtPoints>) -> AtPoints {
    let count = seeds.len() as f64;
    let mut seeds = seeds.into_iter();
    let first = seeds.next().unwrap_or(AtPoints::Values(Vec::new()));
    let mut sum = seeds.fold(first, |mut sum, more| {
        match (&mut sum, more) {
            (AtPoints::Values(sums), AtPoints::Values(values)) => {
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            }
            (AtPoints::Compared(points), AtPoints::Compared(more)) => {
                points.iter_mut().zip(more).for_each(|(point, more)| point.extend(more));
            }
            _ => {}
        }
        sum
    });
    if let AtPoints::Values(sums) = &mut sum {
        sums.iter_mut().for_each(|sum| *sum /= count);
    }
    sum
}

/// The range over several seeds.
fn spread(planned: &Planned, seeds: &[AtPoints]) -> String {
    let claim = &planned.claim;
    let each = seeds.iter().map(|found| found.text(claim)).collect::<Vec<_>>().join(", ");
    let others = claim.seeds.iter().flat_map(|condition| &condition.set).map(|(_, seed)| seed.as_str());
    let mut names: Vec<_> = std::iter::once(planned.first_seed.as_str()).chain(others).collect();
    let last = names.pop().expect("there are several seeds");
    format!("{each} with {} and {last}", names.join(", "))
}

/// Every comparison of an order with the point it is at.
fn compared(claim: &Claim, seeds: &[AtPoints]) -> Vec<Compared> {
    let mut all = Vec::new();
    for (seed, found) in seeds.iter().enumerate() {
        let AtPoints::Compared(points) = found else { continue };
        for (index, comparisons) in points.iter().enumerate() {
            let mut at = claim.each.get(index).cloned().unwrap_or_default();
            if let Some(condition) = seed.checked_sub(1).and_then(|seed| claim.seeds.get(seed)) {
                at = format!("{at} {}", condition.name).trim().to_owned();
            }
            let with_point = |one: &Comparison| Compared { at: at.clone(), comparison: one.clone() };
            all.extend(comparisons.iter().map(with_point));
        }
    }
    all
}

impl AtPoints {
    /// The result at each point; empty if there is only one.
    fn each(&self, claim: &Claim) -> Vec<AtPoint> {
        let points = if claim.each.len() > 1 { claim.each.as_slice() } else { &[] };
        let at = |(index, point): (usize, &String)| {
            let found = match self {
                AtPoints::Values(values) => AtPoints::Values(vec![values[index]]),
                AtPoints::Compared(points) => AtPoints::Compared(vec![points[index].clone()]),
            };
            let holds = verdict(claim, &found).holds();
            AtPoint { point: point.clone(), ours: found.text(claim), holds }
        };
        points.iter().enumerate().map(at).collect()
    }

    fn text(&self, claim: &Claim) -> String {
        match (self, &claim.test) {
            (AtPoints::Values(values), Test::Value { show, .. }) => {
                let (low, high) =
                    values.iter().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
                let (low, high) = (show.text(low), show.text(high));
                if low == high {
                    high
                } else {
                    format!("{} .. {high}", low.trim_end_matches([' ', '%', 'x']))
                }
            }
            (AtPoints::Compared(points), _) => {
                let all = points.iter().flatten();
                let least = all.map(|one| one.margin).fold(f64::INFINITY, f64::min);
                let by = if least == 0.0 { "equal".to_owned() } else { format!("by {}", percent(least)) };
                let holding = points.iter().filter(|point| point.iter().all(|one| one.holds)).count();
                match points.len() {
                    1 => by,
                    all if all == holding => by,
                    all => format!("at {holding} of {all}, {by}"),
                }
            }
            (AtPoints::Values(_), Test::Order(_)) => String::new(),
        }
    }
}

fn verdict(claim: &Claim, found: &AtPoints) -> Verdict {
    let holds = match (found, &claim.test) {
        (AtPoints::Values(values), Test::Value { published, relation, tolerance, .. }) => {
            values.iter().all(|ours| relation.holds(*ours, *published, *tolerance))
        }
        (AtPoints::Compared(points), _) => points.iter().flatten().all(|one| one.holds),
        (AtPoints::Values(_), Test::Order(_)) => false,
    };
    match (holds, &claim.test) {
        (false, _) => Verdict::NotReproduced,
        (true, Test::Order(_)) => Verdict::Holds,
        (true, Test::Value { .. }) => Verdict::Reproduced,
    }
}

impl Outcome {
    /// The comparison of an order with the smallest margin, or with the largest one in the wrong direction.
    pub fn tightest(&self) -> Option<&Compared> {
        self.comparisons.iter().min_by(|a, b| a.comparison.margin.total_cmp(&b.comparison.margin))
    }

    /// The results at the points, if their range leaves open which of them has which value, or fails.
    pub fn by_point(&self) -> &[AtPoint] {
        points::differing(&self.at_points, self.published_value.is_none())
    }
}

/// The difference from the expected result, if there is any. Our own values are compared only for the runs from which
/// they were taken.
fn regression(planned: &Planned, outcome: &Outcome) -> Option<String> {
    if planned.is_altered {
        return None;
    }
    let expected = &planned.claim.expected;
    let as_expected = match outcome.verdict {
        // Without the emulator's runs its verdict is unknown.
        Verdict::NotReproduced if planned.claim.emulator.is_none() => !expected.holds,
        Verdict::NotReproduced => !expected.holds && !expected.is_emulated,
        Verdict::Emulated => expected.is_emulated,
        _ => expected.holds,
    };
    if !as_expected {
        let should = match (expected.holds, expected.is_emulated) {
            (true, _) => "held",
            (_, true) => "held under the emulator's accounting",
            _ => "was not reproduced",
        };
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
