//! The place of a run among the figures, by which claims name it.

use std::fmt;

use anyhow::{anyhow, bail};

use super::figure::Figure;
use super::runs::{Asked, RunId, StudyPlan};

/// A run by its place in a figure: `bandslim-8 / Piggyback / 32`, or with the grid's name after the figure's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPlace {
    figure: String,
    grid: Option<String>,
    series: String,
    point: String,
}

impl fmt::Display for RunPlace {
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
    pub fn plan(&self, plan: &mut StudyPlan) -> anyhow::Result<RunId> {
        Ok(plan.add_session(&self.session)?[self.place])
    }
}

impl RunPlace {
    /// Parses `FIGURE / [GRID /] SERIES / POINT`.
    ///
    /// # Errors
    /// The text has another number of parts.
    pub fn parse(text: &str) -> anyhow::Result<RunPlace> {
        let parts: Vec<String> = text.split(" / ").map(|part| part.trim().to_owned()).collect();
        let (figure, grid, series, point) = match parts.as_slice() {
            [figure, series, point] => (figure, None, series, point),
            [figure, grid, series, point] => (figure, Some(grid.clone()), series, point),
            _ => bail!("\"{text}\": expected FIGURE / [GRID /] SERIES / POINT"),
        };
        Ok(RunPlace { figure: figure.clone(), grid, series: series.clone(), point: point.clone() })
    }

    /// The same place at another point.
    pub fn at(&self, point: &str) -> RunPlace {
        RunPlace { point: point.to_owned(), ..self.clone() }
    }

    /// Is the point left open (`*`), for [`RunPlace::at`]?
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
