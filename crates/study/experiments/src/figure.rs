//! A figure as in its file: grids of runs, and panels that draw quantities of them.

use std::fmt;

use kvdrive_config::Scale;
use serde::{Deserialize, Serialize};

use super::available::missing;
use super::chapters::Chapter;
use super::expression::Expression;
use super::runs::{Asked, Assignments, Counts, RunId, StudyPlan};

/// How a number was obtained. Every number is printed with its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Bytes, pages, commands: exact. Times matter only where they decide an order or a policy's choice.
    Counted,
    /// Times of the model. Some of its constants are fitted, others are not.
    Modelled,
    /// A time whose constants were fitted to this very result: agreement shows that the results are
    /// compatible.
    ModelledFit,
    /// A time from which a constant was solved: agreement is by construction.
    ModelledSet,
    /// A time that was not used to choose any constant: agreement is evidence.
    ModelledCheck,
    /// A time of this machine's clock.
    Measured,
}

/// Every kind, with its name and its meaning for readers.
pub static KINDS: &[(Kind, &str, &str)] = &[
    (
        Kind::Counted,
        "counted",
        "bytes, pages and commands that cross or are written: exact, and the same on every machine. Times of the model matter only where they decide the order of several commands in flight, or a choice that weighs them",
    ),
    (Kind::Modelled, "modelled", "model time, from the constants of the profile"),
    (
        Kind::ModelledFit,
        "modelled-fit",
        "model time whose constants were fitted to this very result: shows that the published results agree with each other",
    ),
    (
        Kind::ModelledSet,
        "modelled-set",
        "model time from which a constant was solved: agrees by construction",
    ),
    (
        Kind::ModelledCheck,
        "modelled-check",
        "model time that no constant was chosen by: evidence for the model",
    ),
    (Kind::Measured, "measured", "time of the machine that ran this"),
];

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = KINDS.iter().find(|(kind, ..)| kind == self);
        f.pad(row.map_or("", |(_, name, _)| name))
    }
}

/// A figure of a paper, or one of this project.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Name on the command line.
    pub id: String,
    /// The publication.
    pub source: String,
    /// What it shows.
    pub title: String,
    /// Chapter of the report.
    pub chapter: &'static Chapter,
    /// Notes for the reader, a sentence each.
    pub notes: Vec<String>,
    /// The runs and how they are drawn.
    pub grids: Vec<Grid>,
}

impl Figure {
    /// The line above the figure, with the source if it has one.
    pub fn heading(&self) -> String {
        match self.source.as_str() {
            "ours" => self.title.clone(),
            source => format!("{source}: {}", self.title),
        }
    }
}

/// Series times points.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Name within the figure.
    pub name: String,
    /// Label of the axis of points.
    pub axis: String,
    /// Points along the axis, in order.
    pub points: Vec<Point>,
    /// One run at each point.
    pub series: Vec<Series>,
    /// The panels that are drawn from the runs.
    pub panels: Vec<Panel>,
    /// Default scale of its runs, if they can be shrunk.
    pub scale: Option<Scale>,
    /// Name of its figure.
    pub(super) figure: String,
    pub(super) profile: String,
    pub(super) set: Assignments,
    pub(super) sequence: bool,
    pub(super) drawn_as: Style,
}

/// How a panel is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Style {
    /// Points have an order, such as sizes.
    Lines,
    /// Points have no order, such as workloads.
    Bars,
    /// Bars whose parts add up; a panel with `parts` is drawn so, whatever its grid has.
    #[serde(skip_deserializing)]
    Stacked,
}

/// A place on the axis of points.
#[derive(Clone, Debug)]
pub struct Point {
    /// As drawn, `4K+32` or `W(M)`; claims use it as a name.
    pub label: String,
    /// Operations of each run here.
    pub counts: Counts,
    pub(super) profile: Option<String>,
    pub(super) set: Assignments,
}

/// A line, or a bar at each point.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend, which claims use, too.
    pub name: String,
    /// Parts that the build must have: `transfer:cxl`.
    pub needs: Vec<String>,
    pub(super) profile: Option<String>,
    pub(super) set: Assignments,
}

/// One quantity over all runs of a grid.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Letter.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// Computed from each report; in a panel over time, from each interval of a run.
    pub y: Expression,
    /// Is it drawn over the time of the runs of the grid's one point?
    pub over_time: bool,
    /// Quantities that add up to the bar of a run, with their names; none: bars or lines of `y`.
    pub parts: Vec<(String, Expression)>,
    /// Index of the series whose value at the same point is 1.
    pub relative_to: Option<usize>,
    /// Unit of the quantity, `B/store`.
    pub unit: String,
    /// Is the axis of the quantity logarithmic?
    pub log: bool,
    /// How the numbers were obtained.
    pub kind: Kind,
    /// Values that the source states in its text.
    pub published: Vec<Published>,
}

/// A value that the source states in its text, for some points of a series.
#[derive(Clone, Debug)]
pub struct Published {
    /// Index of the series.
    pub series: usize,
    /// Indices of the points.
    pub points: Vec<usize>,
    /// The value.
    pub value: Statement,
    /// In the source's words, `97.9 % less than Baseline`.
    pub says: String,
}

/// A published number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statement {
    /// In the unit of the panel.
    Absolute(f64),
    /// A multiple of the value that the series with this index has at the same point.
    Times(f64, usize),
}

impl Grid {
    /// Whether panels are lines or bars.
    pub fn style(&self) -> Style {
        self.drawn_as
    }

    /// The run of a series at a point; more specific settings come later.
    fn asked(&self, series: usize, point: usize) -> Asked {
        let (series, point) = (&self.series[series], &self.points[point]);
        let profile = point.profile.as_ref().or(series.profile.as_ref()).unwrap_or(&self.profile);
        let settings = [&self.set, &series.set, &point.set].into_iter().flatten().cloned().collect();
        let made = |series: &Series| format!("what makes series {} of {}", series.name, self.figure);
        let own = point.set.iter().map(|(key, _)| (key.clone(), format!("the axis of {}", self.figure)));
        let own = own.chain(series.set.iter().map(|(key, _)| (key.clone(), made(series)))).collect();
        Asked { profile: profile.clone(), counts: point.counts, settings, scale: self.scale, own }
    }

    /// The runs that follow each other on the drive of this series and point, and the index of the run at the
    /// point.
    pub(super) fn session(&self, series: usize, point: usize) -> (Vec<Asked>, usize) {
        if self.sequence {
            ((0..self.points.len()).map(|point| self.asked(series, point)).collect(), point)
        } else {
            (vec![self.asked(series, point)], 0)
        }
    }

    /// Adds every run to `plan`. A series that needs a part which this build lacks has no runs.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn plan(&self, plan: &mut StudyPlan) -> anyhow::Result<Vec<Vec<Option<RunId>>>> {
        let all = 0..self.series.len();
        all.map(|series| (0..self.points.len()).map(|point| self.plan_one(plan, series, point)).collect())
            .collect()
    }

    fn plan_one(&self, plan: &mut StudyPlan, series: usize, point: usize) -> anyhow::Result<Option<RunId>> {
        if missing(&self.series[series].needs).is_some() {
            return Ok(None);
        }
        let (session, place) = self.session(series, point);
        Ok(Some(plan.add_session(&session)?[place]))
    }
}
