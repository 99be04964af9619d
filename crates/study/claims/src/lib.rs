//! Published claims as data, and whether they are reproduced here.
//!
//! A claim is a row of a TOML file of `files/`: its place in the source, its statement, its runs, how its
//! number is computed from their reports, and how the number has to compare with the published one. Runs are
//! named by their place in a figure, so that a claim and its figure share them.
//!
//! The verdict is always computed. The *expected* verdict is in the file: some claims cannot be reproduced
//! from what their papers say, and contain the reason and our value. A claim [regresses](Outcome::regressed)
//! when its verdict, or our value of it, differs from the expected one.
//!
//! ```toml
//! [[claim]]
//! id = "traffic-32"
//! source = "Fig. 8"
//! title = "Piggyback saves traffic, 4 to 32 B"
//! statement = "Inside the command, values of 4 to 32 B take 97.9 % less traffic than by PRP."
//! kind = "counted"
//! runs = { base = "bandslim-8 / Baseline / *", piggy = "bandslim-8 / Piggyback / *" }
//! each = ["4", "8", "16", "32"]                               # in place of the stars, one after the other
//! quantity = "traffic.payload_bytes.total / ops.store"        # of each run
//! value = "1 - piggy / base"                                  # of the claim
//! show = "percent"
//! published = 0.979
//! relation = "="
//! tolerance = 0.0005
//! ours = 0.97897                                              # what we get; a drift from it is a regression
//! drift = 0.00001
//! ```
//!
//! `standing = "set"` says that a constant or a switch was chosen by this very claim, where its kind does
//! not.
//!
//! `order = ["piggy < base"]` in place of `value` and its keys either holds or does not; the distance of its
//! sides is shown. `reading` and `because` contain numbers of the run between braces ([`prose`]); `also`
//! names quantities for them that the test does not use. `full.` in front of a name is the same number at the
//! published size, if a script has run it ([`full_size`]). With `seeds = [2, 3]` the claim is also run with
//! these seeds: its verdict is that of the mean, and its spread is shown. `emulator = "PROFILE"` is for
//! claims about times whose source was measured on an emulator that leaves costs out: a claim that fails here
//! and is reproduced with that profile gets a verdict of its own.
//!
//! A quick run leaves a claim open ([`Verdict::NeedsMore`]) if its verdict with so few operations is not the
//! expected one; a quick run has no further seeds and no other conditions.

mod full_size;
mod judge;
pub mod mutants;
mod parse;
mod prose;
mod standing;
mod table;

use std::fmt;

use serde::{Deserialize, Serialize};

use kvdrive_experiments::expression::{Expression, Order};
use kvdrive_experiments::runs::{Asked, Assignments, Extent, Options, Plan, Results, RunId};
use kvdrive_experiments::{Figure, Kind, Place, PlacedRun, missing};
use kvdrive_text::names::meant;
use kvdrive_text::with_decimals;

pub use judge::{Compared, OtherCondition, Outcome, Verdict};
pub use parse::parse;
use prose::Prose;
pub use standing::{Standing, counts};
pub use table::text;

/// The embedded files with their names.
pub static FILES: &[(&str, &str)] = &[
    ("bandslim.toml", include_str!("../files/bandslim.toml")),
    ("bandslim-cxl.toml", include_str!("../files/bandslim-cxl.toml")),
    ("kvcache.toml", include_str!("../files/kvcache.toml")),
    ("plus.toml", include_str!("../files/plus.toml")),
    ("plus2.toml", include_str!("../files/plus2.toml")),
    ("pm983.toml", include_str!("../files/pm983.toml")),
    ("saker.toml", include_str!("../files/saker.toml")),
];

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
    standing: Standing,
    runs: Vec<(String, Source)>,
    each: Vec<String>,
    quantities: Vec<(String, Expression)>,
    /// How the source is interpreted, if it is ambiguous.
    reading: Prose,
    /// Why it is not reproduced, with the arithmetic that shows it.
    because: Prose,
    /// Further seeds, besides that of its runs.
    seeds: Vec<Condition>,
    /// Costs of the source's own emulator, if the claim is also judged with them.
    emulator: Option<Condition>,
    beside: Vec<Condition>,
}

/// A condition that the source did not have, under which a claim is also run.
#[derive(Clone, Debug)]
struct Condition {
    /// Its name in results.
    name: String,
    /// A profile in place of that of the runs.
    profile: Option<String>,
    /// Settings that override those of the runs.
    set: Assignments,
}

impl Condition {
    /// Another seed.
    fn seed(seed: u64) -> Condition {
        let set = vec![("run.seed".into(), seed.to_string())];
        Condition { name: format!("run.seed = {seed}"), profile: None, set }
    }

    /// Does it set the key of `assignment`?
    fn sets_as(&self, assignment: &str) -> bool {
        let key = assignment.split_once('=').map_or(assignment, |(key, _)| key).trim();
        self.set.iter().any(|(known, _)| known == key)
    }

    /// Applies the condition to a run, and to the other runs of its drive.
    fn lay_over(&self, found: &mut PlacedRun) {
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
    /// Whether the claim comes true.
    pub comes_true: bool,
    /// Does it at least come true with the costs of the source's emulator?
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
        /// The published number.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
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
}

impl Relation {
    fn holds(self, ours: f64, published: f64, tolerance: f64) -> bool {
        match self {
            Relation::Equal => (ours - published).abs() <= tolerance,
            Relation::About => (ours / published - 1.0).abs() <= tolerance,
            Relation::AtMost => ours <= published + tolerance,
            Relation::AtLeast => ours >= published - tolerance,
        }
    }

    /// The sign in front of a published number.
    fn sign(self) -> &'static str {
        match self {
            Relation::Equal => "",
            Relation::About => "~ ",
            Relation::AtMost => "<= ",
            Relation::AtLeast => ">= ",
        }
    }
}

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
    fn published(self, value: f64) -> String {
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

/// The origin of a claim's run.
#[derive(Clone, Debug)]
enum Source {
    /// A run of a figure, with settings that override the figure's.
    Place(Place, Assignments),
    /// A run of its own.
    Own(PlacedRun),
}

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

/// Names of all suites.
///
/// # Errors
/// An embedded file is wrong (a test reads them all).
pub fn suite_names() -> anyhow::Result<Vec<String>> {
    Ok(names(&parsed()?))
}

/// Every embedded file.
fn parsed() -> anyhow::Result<Vec<Suite>> {
    FILES.iter().map(|(file, text)| parse(file, text)).collect()
}

/// Names of the suites that these are parts of, each once.
fn names(files: &[Suite]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for suite in files {
        if !names.contains(&suite.name) {
            names.push(suite.name.clone());
        }
    }
    names
}

/// The suite of that name, from every embedded file that belongs to it.
///
/// # Errors
/// There is no such suite, or an embedded file is wrong (a test reads them all).
pub fn suite(name: &str) -> anyhow::Result<Suite> {
    let mut files = parsed()?;
    let names = names(&files);
    files.retain(|suite| suite.name == name);
    let mut files = files.into_iter();
    let Some(mut suite) = files.next() else {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        anyhow::bail!(
            "{name}: no such suite of claims; there are {}{}",
            names.join(", "),
            meant(name, &names)
        )
    };
    for more in files {
        suite.titles.extend(more.titles);
        suite.notes.extend(more.notes);
        suite.claims.extend(more.claims);
    }
    Ok(suite)
}

/// A claim whose runs have been added to a plan.
#[derive(Debug)]
pub struct Planned {
    claim: Claim,
    /// Whether the runs are those the expected values were taken from.
    as_usual: bool,
    /// Whether the runs have fewer operations than the expected verdict needs.
    is_quick: bool,
    /// Were settings altered for all runs? Then no result is expected.
    is_altered: bool,
    /// The seed of its own runs, in words.
    first_seed: String,
    runs: Result<Runs, String>,
}

/// Runs of a claim: by condition (the claim's own first, then its seeds, the emulator, and those beside), by
/// point, by name.
type Runs = Vec<Vec<Vec<(String, RunId)>>>;

impl Planned {
    /// Asks `plan` for the runs of `claim`, which are places among `figures`.
    ///
    /// # Errors
    /// No figure has the place, or a setting is wrong.
    pub fn new(
        mut claim: Claim,
        figures: &[Figure],
        plan: &mut Plan,
        options: &Options,
    ) -> anyhow::Result<Planned> {
        let (as_usual, is_altered) = (options.as_usual(), options.is_altered());
        let is_quick = options.extent == Extent::Quick;
        if is_quick {
            claim.seeds.clear();
            claim.beside.clear();
        }
        if let Some((_, others)) = options.seeds.split_first() {
            claim.seeds = others.iter().map(|seed| Condition::seed(*seed)).collect();
        }
        let first_seed =
            options.seeds.first().map_or("the usual seed".to_owned(), |seed| format!("seed {seed}"));
        // A setting that is made for all runs is not another condition.
        let is_free = |condition: &Condition| !options.set.iter().any(|set| condition.sets_as(set));
        claim.seeds.retain(is_free);
        claim.emulator = claim.emulator.filter(is_free);
        claim.beside.retain(is_free);
        let runs =
            claim.plan(figures, plan).map_err(|problem| anyhow::anyhow!("claim {}: {problem}", claim.id))?;
        Ok(Planned { claim, as_usual, is_quick, is_altered, first_seed, runs })
    }

    /// The claim itself.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Judges the claim by `results`.
    ///
    /// # Errors
    /// A report lacks a number that a quantity needs.
    pub fn judge(&self, results: &Results) -> anyhow::Result<Outcome> {
        judge::judge(self, results).map_err(|problem| anyhow::anyhow!("claim {}: {problem}", self.claim.id))
    }
}

impl Claim {
    /// The standing of a verdict on it.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Points of the claim; one point without a name if it has none.
    fn points(&self) -> Vec<Option<&str>> {
        if self.each.is_empty() {
            vec![None]
        } else {
            self.each.iter().map(|point| Some(point.as_str())).collect()
        }
    }

    /// The conditions of its runs besides its own, in the order of [`Runs`].
    fn conditions(&self) -> impl Iterator<Item = &Condition> {
        self.seeds.iter().chain(&self.emulator).chain(&self.beside)
    }

    /// Adds the runs to `plan`; or returns the part that this build lacks for them.
    fn plan(&self, figures: &[Figure], plan: &mut Plan) -> anyhow::Result<Result<Runs, String>> {
        let mut all = Vec::new();
        for condition in std::iter::once(None).chain(self.conditions().map(Some)) {
            let mut points = Vec::new();
            for point in self.points() {
                let mut runs = Vec::new();
                for (name, source) in &self.runs {
                    let mut found = source.at(point, figures)?;
                    if let Some(lacks) = missing(&found.needs) {
                        return Ok(Err(lacks.to_owned()));
                    }
                    if let Some(condition) = condition {
                        condition.lay_over(&mut found);
                    }
                    runs.push((name.clone(), found.plan(plan)?));
                }
                points.push(runs);
            }
            all.push(points);
        }
        Ok(Ok(all))
    }
}

impl Source {
    /// The run at a point.
    fn at(&self, point: Option<&str>, figures: &[Figure]) -> anyhow::Result<PlacedRun> {
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

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Test::Value { show, published, relation, .. } => {
                write!(f, "{}{}", relation.sign(), show.published(*published))
            }
            Test::Order(_) => f.write_str("order"),
        }
    }
}
