//! Experiments as data: every figure that is reproduced is one TOML file of `files/`.
//!
//! A [`Figure`] has grids; a [`Grid`] is series times points, and each pair is one run; its [`Panel`]s draw
//! quantities of these runs. Settings are the `KEY=VALUE` of the command line. Values stated in the source's
//! text are [`Published`]. A new figure is one file and one row in [`FILES`]; `kvdrive figure` and `kvdrive
//! report` find it there.
//!
//! ```toml
//! id = "bandslim-8"
//! source = "BandSlim, ICPP'24, Figure 8"
//! title = "Traffic and response time by value size"
//! group = "paper"
//!
//! [[grid]]
//! name = "sizes"
//! ops = 20_000                        # a point
//! full_ops = 1_000_000                # as published
//! set = ["workload.name=w-a", "nand.enabled=false"]
//! points = { key = "workload.value_size", values = [4, 32], label = "value size [B]" }
//! series = [{ name = "Baseline", set = ["host.transfer=prp"] }]
//! panel = [{ id = "a", title = "Traffic", y = "traffic.payload_bytes.total / ops.store", unit = "B/store", kind = "counted" }]
//! ```
//!
//! A grid with `scale = "1/64"` states everything at full size and is run at that fraction; `--scale`
//! overrides it. In a grid with `sequence = true` the points of a series follow each other on one drive,
//! which is loaded by the settings of the first point.
//!
//! A panel with `over_time = true` draws a quantity for each interval (`run.interval_ns`) of the runs of a
//! grid with one point: `y = "ops / interval_ns"`.
//!
//! A series that needs a part which this build lacks (`needs = ["transfer:cxl"]`) is left out, and the figure
//! says so.

mod available;
mod chapters;
pub mod expression;
mod parse;
pub mod runs;
pub mod sweep;

use std::fmt;

use anyhow::{anyhow, bail};
use serde::{Deserialize, Serialize};

use expression::Expression;
use kvdrive_config::Scale;
use kvdrive_text::names::meant;
use runs::{Asked, Assignments, Counts, Plan, RunId};

pub use available::missing;
pub use chapters::{CHAPTERS, Chapter};
pub use parse::parse;
pub use parse::{assignments, check_needs, from_toml};

/// The embedded files with their names.
pub static FILES: &[(&str, &str)] = &[
    ("bandslim-3.toml", include_str!("../files/bandslim-3.toml")),
    ("bandslim-4.toml", include_str!("../files/bandslim-4.toml")),
    ("bandslim-8.toml", include_str!("../files/bandslim-8.toml")),
    ("bandslim-9.toml", include_str!("../files/bandslim-9.toml")),
    ("bandslim-10.toml", include_str!("../files/bandslim-10.toml")),
    ("bandslim-11.toml", include_str!("../files/bandslim-11.toml")),
    ("bandslim-12.toml", include_str!("../files/bandslim-12.toml")),
    ("bandslim-cxl-2.toml", include_str!("../files/bandslim-cxl-2.toml")),
    ("bandslim-cxl-5.toml", include_str!("../files/bandslim-cxl-5.toml")),
    ("beyond-transfers.toml", include_str!("../files/beyond-transfers.toml")),
    ("beyond-cxl-pages.toml", include_str!("../files/beyond-cxl-pages.toml")),
    ("beyond-blend.toml", include_str!("../files/beyond-blend.toml")),
    ("beyond-build.toml", include_str!("../files/beyond-build.toml")),
    ("beyond-saker-cache.toml", include_str!("../files/beyond-saker-cache.toml")),
    ("beyond-saker-mix.toml", include_str!("../files/beyond-saker-mix.toml")),
    ("beyond-saker-traffic.toml", include_str!("../files/beyond-saker-traffic.toml")),
    ("kvcache-hits.toml", include_str!("../files/kvcache-hits.toml")),
    ("kvcache-wear.toml", include_str!("../files/kvcache-wear.toml")),
    ("kvcache-deletes.toml", include_str!("../files/kvcache-deletes.toml")),
    ("kvcache-retrieve.toml", include_str!("../files/kvcache-retrieve.toml")),
    ("kvcache-manifests.toml", include_str!("../files/kvcache-manifests.toml")),
    ("kvcache-first-token.toml", include_str!("../files/kvcache-first-token.toml")),
    ("plus-2.toml", include_str!("../files/plus-2.toml")),
    ("plus-3.toml", include_str!("../files/plus-3.toml")),
    ("plus-capacity.toml", include_str!("../files/plus-capacity.toml")),
    ("plus-dram.toml", include_str!("../files/plus-dram.toml")),
    ("plus-firmware.toml", include_str!("../files/plus-firmware.toml")),
    ("plus-fitted.toml", include_str!("../files/plus-fitted.toml")),
    ("plus-memory.toml", include_str!("../files/plus-memory.toml")),
    ("plus-published.toml", include_str!("../files/plus-published.toml")),
    ("plus2.toml", include_str!("../files/plus2.toml")),
    ("pm983.toml", include_str!("../files/pm983.toml")),
    ("saker-1.toml", include_str!("../files/saker-1.toml")),
    ("saker-4.toml", include_str!("../files/saker-4.toml")),
    ("saker-5.toml", include_str!("../files/saker-5.toml")),
    ("saker-6.toml", include_str!("../files/saker-6.toml")),
    ("saker-8.toml", include_str!("../files/saker-8.toml")),
];

/// How a number was obtained. Every number is printed with its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Bytes, pages, commands: exact, whatever the times.
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
        "bytes, pages and commands that cross or are written: exact, whatever the times are",
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
    figure: String,
    profile: String,
    set: Assignments,
    sequence: bool,
    drawn_as: Style,
}

/// How a panel is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Style {
    /// Points have an order, such as sizes.
    Lines,
    /// Points have no order, such as workloads.
    Bars,
}

/// A place on the axis of points.
#[derive(Clone, Debug)]
pub struct Point {
    /// As drawn, `4K+32` or `W(M)`; claims use it as a name.
    pub label: String,
    /// Operations of each run here.
    pub counts: Counts,
    profile: Option<String>,
    set: Assignments,
}

/// A line, or a bar at each point.
#[derive(Clone, Debug)]
pub struct Series {
    /// As in the legend; claims use it as a name.
    pub name: String,
    /// Parts that the build must have: `transfer:cxl`.
    pub needs: Vec<String>,
    profile: Option<String>,
    set: Assignments,
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
    fn session(&self, series: usize, point: usize) -> (Vec<Asked>, usize) {
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
    pub fn plan(&self, plan: &mut Plan) -> anyhow::Result<Vec<Vec<Option<RunId>>>> {
        let all = 0..self.series.len();
        all.map(|series| (0..self.points.len()).map(|point| self.plan_one(plan, series, point)).collect())
            .collect()
    }

    fn plan_one(&self, plan: &mut Plan, series: usize, point: usize) -> anyhow::Result<Option<RunId>> {
        if missing(&self.series[series].needs).is_some() {
            return Ok(None);
        }
        let (session, place) = self.session(series, point);
        Ok(Some(plan.add_session(&session)?[place]))
    }
}

/// The figures of the embedded files, in their order.
///
/// # Errors
/// One line that names the file: an embedded file is wrong (a test reads them all).
pub fn figures() -> anyhow::Result<Vec<Figure>> {
    FILES.iter().map(|(name, text)| parse(name, text)).collect()
}

/// The embedded figure of that name.
///
/// # Errors
/// There is no such figure; the message lists all names.
pub fn figure(id: &str) -> anyhow::Result<Figure> {
    let all = figures()?;
    let ids: Vec<&str> = all.iter().map(|figure| figure.id.as_str()).collect();
    let problem = format!("{id}: no such figure; there are {}{}", ids.join(", "), meant(id, &ids));
    all.into_iter().find(|figure| figure.id == id).ok_or_else(|| anyhow!(problem))
}

/// A run by its place in a figure: `bandslim-8 / Piggyback / 32`, or with the grid's name after the figure's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    figure: String,
    grid: Option<String>,
    series: String,
    point: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grid = self.grid.as_ref().map_or(String::new(), |grid| format!("{grid} / "));
        write!(f, "{} / {grid}{} / {}", self.figure, self.series, self.point)
    }
}

/// A run of a figure, ready to be added to a plan.
#[derive(Clone, Debug)]
pub struct PlacedRun {
    /// The runs that follow each other on its drive.
    pub session: Vec<Asked>,
    /// Its index among them.
    pub place: usize,
    /// Parts that the build must have.
    pub needs: Vec<String>,
}

impl PlacedRun {
    /// The run itself.
    pub fn asked(&self) -> &Asked {
        &self.session[self.place]
    }

    /// Adds it to `plan`.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn plan(&self, plan: &mut Plan) -> anyhow::Result<RunId> {
        Ok(plan.add_session(&self.session)?[self.place])
    }
}

impl Place {
    /// Parses `FIGURE / [GRID /] SERIES / POINT`.
    ///
    /// # Errors
    /// The text has another number of parts.
    pub fn parse(text: &str) -> anyhow::Result<Place> {
        let parts: Vec<String> = text.split(" / ").map(|part| part.trim().to_owned()).collect();
        let (figure, grid, series, point) = match parts.as_slice() {
            [figure, series, point] => (figure, None, series, point),
            [figure, grid, series, point] => (figure, Some(grid.clone()), series, point),
            _ => bail!("\"{text}\": expected FIGURE / [GRID /] SERIES / POINT"),
        };
        Ok(Place { figure: figure.clone(), grid, series: series.clone(), point: point.clone() })
    }

    /// The same place at another point.
    pub fn at(&self, point: &str) -> Place {
        Place { point: point.to_owned(), ..self.clone() }
    }

    /// Is the point left open (`*`), for [`Place::at`]?
    pub fn is_open(&self) -> bool {
        self.point == "*"
    }

    /// Finds it among `figures`.
    ///
    /// # Errors
    /// There is no such run, or only the grid's name distinguishes two.
    pub fn find(&self, figures: &[Figure]) -> anyhow::Result<PlacedRun> {
        let figure = figures.iter().find(|figure| figure.id == self.figure);
        let figure = figure.ok_or_else(|| anyhow!("{self}: no such figure"))?;
        let grids =
            figure.grids.iter().filter(|grid| self.grid.as_ref().is_none_or(|name| *name == grid.name));
        let mut found = grids.filter_map(|grid| {
            let series = grid.series.iter().position(|series| series.name == self.series)?;
            let point = grid.points.iter().position(|point| point.label == self.point)?;
            Some((grid, series, point))
        });
        let Some((grid, series, point)) = found.next() else { bail!("{self}: no such series or point") };
        if found.next().is_some() {
            bail!("{self}: several grids have such a run; name one of them");
        }
        let (session, place) = grid.session(series, point);
        Ok(PlacedRun { session, place, needs: grid.series[series].needs.clone() })
    }
}
