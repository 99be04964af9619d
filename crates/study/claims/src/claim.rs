//! A claim as in its file: the runs, the quantity computed from them, and the expected value.

use std::fmt;

use kvdrive_experiments::expression::{Expression, Order};
use kvdrive_experiments::runs::{Asked, Assignments};
use kvdrive_experiments::{Figure, Kind, PlacedRun, RunPlace};
use serde::Deserialize;

use super::full_size;
use super::prose::Prose;
use super::show::Show;
use super::standing::Standing;

/// Claims of one suite.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Name on the command line.
    pub name: String,
    /// Its subject, one title for each file.
    pub titles: Vec<String>,
    /// Notes for readers of its numbers, a paragraph each.
    pub notes: Vec<String>,
    /// The claims in the order of the files.
    pub claims: Vec<Claim>,
}

/// A published claim.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Name, unique within its suite.
    pub id: String,
    /// Its place in the source: figure, table or section.
    pub source: String,
    /// Its title: half a line.
    pub title: String,
    /// The statement: one sentence in our words.
    pub statement: String,
    /// How our number is obtained.
    pub kind: Kind,
    /// The computation and the comparison.
    pub test: Test,
    /// The expected verdict.
    pub expected: Expected,
    pub(super) standing: Standing,
    pub(super) runs: Vec<(String, Source)>,
    pub(super) each: Vec<String>,
    pub(super) quantities: Vec<(String, Expression)>,
    /// How the source is interpreted, if it is ambiguous.
    pub(super) reading: Prose,
    /// Why it is not reproduced, with the arithmetic that shows it.
    pub(super) because: Prose,
    /// Further seeds, besides that of its runs.
    pub(super) seeds: Vec<Condition>,
    /// Costs of the source's own emulator, if the claim is also judged with them.
    pub(super) emulator: Option<Condition>,
    pub(super) beside: Vec<Condition>,
}

/// A condition that the source did not have, under which a claim is also run.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    /// Its name in results.
    pub(super) name: String,
    /// A profile in place of that of the runs.
    pub(super) profile: Option<String>,
    /// Settings that override those of the runs.
    pub(super) set: Assignments,
}

impl Condition {
    /// Another seed.
    pub(super) fn seed(seed: u64) -> Condition {
        let set = vec![("run.seed".into(), seed.to_string())];
        Condition { name: format!("run.seed = {seed}"), profile: None, set }
    }

    /// Does it set the key of `assignment`?
    pub(super) fn sets_as(&self, assignment: &str) -> bool {
        let key = assignment.split_once('=').map_or(assignment, |(key, _)| key).trim();
        self.set.iter().any(|(known, _)| known == key)
    }

    /// Applies the condition to a run, and to the other runs of its drive.
    pub(super) fn lay_over(&self, found: &mut PlacedRun) {
        for asked in &mut found.session {
            if let Some(profile) = &self.profile {
                asked.profile.clone_from(profile);
            }
            lay_over(asked, &self.set, &format!("the condition {} of the claim", self.name));
        }
    }
}

/// Applies settings of a claim to a run; they then count as the run's own.
fn lay_over(asked: &mut Asked, set: &Assignments, what: &str) {
    asked.settings.extend(set.iter().cloned());
    asked.own.extend(set.iter().map(|(key, _)| (key.clone(), what.to_owned())));
}

/// The expected verdict.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Whether the claim holds.
    pub holds: bool,
    /// Does it at least hold with the costs of the source's emulator?
    pub is_emulated: bool,
    /// Our value, or one for each point; empty: only the verdict counts.
    pub ours: Vec<f64>,
    /// How far our value may be from that, in the unit of the value.
    pub drift: f64,
}

/// The computation of a claim, and the comparison of its result.
#[derive(Clone, Debug)]
pub enum Test {
    /// A number that is compared with a published one.
    Value {
        /// The number, over quantities of the runs.
        value: Expression,
        /// How it is printed.
        show: Show,
        /// The published number, or the lower end of a published range.
        published: f64,
        /// The required relation of our number to the published one.
        relation: Relation,
        /// The tolerance: absolute, or relative for [`Relation::About`].
        tolerance: f64,
    },
    /// An order, all of which must hold.
    Order(Vec<Order>),
}

/// The required relation of our number to the published one.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub enum Relation {
    /// The same, up to an absolute tolerance.
    #[serde(rename = "=")]
    Equal,
    /// The same, up to a relative tolerance.
    #[serde(rename = "~")]
    About,
    /// At most the published number.
    #[serde(rename = "<=")]
    AtMost,
    /// At least the published number.
    #[serde(rename = ">=")]
    AtLeast,
    /// From the published number to this one: a published range.
    #[serde(skip)]
    UpTo(f64),
}

impl Relation {
    pub(super) fn holds(self, ours: f64, published: f64, tolerance: f64) -> bool {
        match self {
            Relation::Equal => (ours - published).abs() <= tolerance,
            Relation::About => (ours / published - 1.0).abs() <= tolerance,
            Relation::AtMost => ours <= published + tolerance,
            Relation::AtLeast => ours >= published - tolerance,
            Relation::UpTo(most) => (published - tolerance..=most + tolerance).contains(&ours),
        }
    }

    /// The sign in front of a published number.
    pub(super) fn sign(self) -> &'static str {
        match self {
            Relation::Equal | Relation::UpTo(_) => "",
            Relation::About => "~ ",
            Relation::AtMost => "<= ",
            Relation::AtLeast => ">= ",
        }
    }
}

/// The origin of a claim's run.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// A run of a figure, with settings that override the figure's.
    Place(RunPlace, Assignments),
    /// A run of its own.
    Own(PlacedRun),
}

impl Claim {
    /// The standing of a verdict on it.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Points of the claim; one point without a name if it has none.
    pub(super) fn points(&self) -> Vec<Option<&str>> {
        if self.each.is_empty() {
            vec![None]
        } else {
            self.each.iter().map(|point| Some(point.as_str())).collect()
        }
    }

    /// The conditions of its runs besides its own, in the order of [`Runs`].
    pub(super) fn conditions(&self) -> impl Iterator<Item = &Condition> {
        self.seeds.iter().chain(&self.emulator).chain(&self.beside)
    }

    /// The number that `run` or `run.quantity` names, of the run at `point` at the published size.
    pub(super) fn at_full_size(&self, name: &str, point: Option<&str>) -> Result<f64, String> {
        let (run, quantity) = name.split_once('.').unwrap_or((name, ""));
        let source = self.runs.iter().find(|(known, _)| known == run);
        let quantity = self.quantities.iter().find(|(known, _)| known == quantity);
        let (Some((_, Source::Place(place, set))), Some((_, quantity))) = (source, quantity) else {
            return Err(format!("{}{name}: no run of a figure", full_size::PREFIX));
        };
        let place = point.filter(|_| place.is_open()).map_or(place.clone(), |point| place.at(point));
        full_size::number(&place.to_string(), &quantity.to_string(), set.is_empty())
    }
}

impl Source {
    /// The run at a point.
    pub(super) fn at(&self, point: Option<&str>, figures: &[Figure]) -> anyhow::Result<PlacedRun> {
        match self {
            Source::Own(found) => Ok(found.clone()),
            Source::Place(place, set) => {
                let mut found = match point {
                    Some(point) if place.is_open() => place.at(point).find(figures)?,
                    _ => place.find(figures)?,
                };
                found.session.iter_mut().for_each(|asked| lay_over(asked, set, "a setting of the claim"));
                Ok(found)
            }
        }
    }
}

impl Test {
    /// How far our number may be from the published one, as text; empty for an order, and where no distance is allowed.
    pub fn tolerance(&self) -> String {
        match self {
            Test::Order(_) => String::new(),
            Test::Value { tolerance, .. } if *tolerance == 0.0 => String::new(),
            Test::Value { relation: Relation::About, tolerance, .. } => Show::Percent.published(*tolerance),
            Test::Value { show: Show::Percent, tolerance, .. } => {
                format!("{} points", Show::Plain.published(100.0 * tolerance))
            }
            Test::Value { show, tolerance, .. } => show.published(*tolerance),
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Test::Value { show, published, relation: Relation::UpTo(most), .. } => {
                let least = show.published(*published);
                write!(f, "{} to {}", least.trim_end_matches([' ', '%', 'x']), show.published(*most))
            }
            Test::Value { show, published, relation, .. } => {
                write!(f, "{}{}", relation.sign(), show.published(*published))
            }
            Test::Order(_) => f.write_str("order"),
        }
    }
}
