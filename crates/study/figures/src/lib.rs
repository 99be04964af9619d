//! Drawing of figures: from the runs of an experiment to charts, and from charts to a terminal
//! ([`terminal`]), to SVG ([`svg`]) and to a table of numbers ([`numbers`]).
//!
//! A [`Chart`] is plain data, one per panel. Published values are part of it, as separate marks: they are
//! never mixed into the lines of measured or modelled values.

pub mod numbers;
mod over_time;
mod parts;
pub mod svg;
pub mod terminal;

use libm::log10;
use serde::Serialize;

use kvdrive_experiments::runs::{Results, RunId, StudyPlan};
use kvdrive_experiments::{Figure, Grid, Kind, Panel, Statement, Style, missing};
use kvdrive_text::{grouped, with_decimals};

/// One panel, ready to be drawn.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// `bandslim-8a`.
    pub id: String,
    /// Letter of the panel.
    pub letter: String,
    /// What it shows.
    pub title: String,
    /// Unit of the quantity.
    pub unit: String,
    /// How the numbers were obtained.
    pub kind: Kind,
    /// Label of the axis of points.
    pub axis: String,
    /// Labels of the points.
    pub points: Vec<String>,
    /// One point in this many has its label and sign drawn, and its numbers in tables: 1, unless there are
    /// many points.
    pub every: usize,
    /// Lines, bars, or bars of parts.
    pub style: Style,
    /// Is the axis of the quantity logarithmic?
    pub log: bool,
    /// Values of this program: for each series a value at each point, `None` if this build lacks a part.
    pub series: Vec<Line>,
    /// Published values.
    pub marks: Vec<Mark>,
    /// Operations of each run, in words.
    pub counts: String,
}

/// One series.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// As in the legend.
    pub name: String,
    /// One value for each point, the mean if there are several seeds.
    pub values: Vec<Option<f64>>,
    /// Least and greatest value over several seeds, a pair for each point; empty with one seed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<Option<(f64, f64)>>,
}

/// One published value.
#[derive(Clone, Debug, Serialize)]
pub struct Mark {
    /// Index of the series it was published for.
    pub series: usize,
    /// Index of the point.
    pub point: usize,
    /// In the unit of the chart.
    pub value: f64,
    /// In the words of the source.
    pub says: String,
}

impl Chart {
    /// Indices of the points that are labelled.
    pub fn labelled(&self) -> impl Iterator<Item = usize> + use<> {
        let every = self.every.max(1);
        (every - 1..self.points.len()).step_by(every)
    }

    /// One chart of the means over the charts of several seeds. Published values are means, too.
    fn mean(charts: Vec<Chart>) -> Chart {
        let count = charts.len() as f64;
        let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / count;
        let mut first = charts[0].clone();
        if charts.len() == 1 {
            return first;
        }
        for (index, line) in first.series.iter_mut().enumerate() {
            for point in 0..line.values.len() {
                let all: Option<Vec<f64>> = charts
                    .iter()
                    .map(|chart| chart.series[index].values.get(point).copied().flatten())
                    .collect();
                line.values[point] = all.as_ref().map(|all| mean(&mut all.iter().copied()));
                line.spread.push(all.map(|all| {
                    all.iter().fold((f64::MAX, f64::MIN), |(low, high), one| (low.min(*one), high.max(*one)))
                }));
            }
        }
        for (index, mark) in first.marks.iter_mut().enumerate() {
            mark.value = mean(&mut charts.iter().map(|chart| chart.marks[index].value));
        }
        first
    }

    /// The seeds of a mean, and the point with the largest spread.
    fn spread_text(&self, seeds: &[u64]) -> String {
        let names = seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let places = self.series.iter().flat_map(|line| {
            let points = line.values.iter().zip(&line.spread).zip(&self.points);
            points.filter_map(move |((mean, spread), point)| {
                let ((low, high), mean) = ((*spread)?, (*mean)?);
                Some(((high - low) / mean.abs().max(f64::MIN_POSITIVE), low, high, line, point))
            })
        });
        let farthest = places.max_by(|(a, ..), (b, ..)| a.total_cmp(b));
        match farthest {
            None => format!("seed {names}"),
            Some((apart, low, high, line, point)) => format!(
                "mean of the seeds {names}, farthest apart {} at {point}: {} to {}, {:.1} %",
                line.name,
                precise(low),
                precise(high),
                100.0 * apart
            ),
        }
    }

    /// Every number in it, ours and published.
    fn all(&self) -> impl Iterator<Item = f64> {
        let ours = self.series.iter().flat_map(|line| line.values.iter().flatten());
        ours.copied().chain(self.marks.iter().map(|mark| mark.value))
    }

    /// The largest sum of the values at a point.
    fn highest_stack(&self) -> f64 {
        let sum = |point: usize| self.series.iter().filter_map(|line| line.values[point]).sum::<f64>();
        (0..self.points.len()).map(sum).fold(0.0, f64::max)
    }

    /// The range of the axis: from zero, or from the next lower power of ten to the next higher 1, 2 or 5. If
    /// not all numbers are above zero, a logarithmic axis is drawn as a linear one.
    fn scale(&self) -> Scale {
        let (low, high) = self.all().fold((f64::MAX, 0.0f64), |(low, high), y| (low.min(y), high.max(y)));
        let high = if self.style == Style::Stacked { self.highest_stack() } else { high };
        if high <= 0.0 {
            return Scale { log: false, low: low.min(0.0), high: 1.0 };
        }
        if !self.log || low <= 0.0 {
            return Scale { log: false, low: low.min(0.0), high: high * 1.05 };
        }
        let below = 10f64.powi(log10(low).floor() as i32);
        let lows = [5.0, 2.0, 1.0].map(|digit| digit * below);
        let above = 10f64.powi(log10(high).floor() as i32);
        let highs = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * above);
        // A little room on both sides, so that no point lies on the frame.
        let low = lows.into_iter().find(|&bound| bound <= low / 1.05).unwrap_or(below / 2.0);
        let high = highs.into_iter().find(|&bound| bound >= high * 1.05).unwrap_or(above * 20.0);
        Scale { log: true, low, high }
    }
}

/// The axis of a quantity.
#[derive(Clone, Copy, Debug)]
struct Scale {
    log: bool,
    low: f64,
    high: f64,
}

impl Scale {
    /// The position of a value on the axis, 0 to 1.
    fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            log10(value.max(self.low) / self.low) / log10(self.high / self.low)
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }

    /// Values that get a label.
    fn ticks(&self) -> Vec<f64> {
        if self.log { self.log_ticks() } else { self.linear_ticks() }
    }

    fn log_ticks(&self) -> Vec<f64> {
        let decades = log10(self.high / self.low);
        let digits: &[f64] = if decades > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let first = log10(self.low).floor() as i32;
        let last = log10(self.high).ceil() as i32;
        let all = (first..=last).flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)));
        all.filter(|tick| (self.low * 0.999..=self.high * 1.001).contains(tick)).collect()
    }

    fn linear_ticks(&self) -> Vec<f64> {
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powi(log10(rough).floor() as i32);
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|digit| digit * power);
        let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last).map(|tick| tick as f64 * step).collect()
    }
}

/// A figure whose runs have been added to a plan.
#[derive(Debug)]
pub struct Planned {
    figure: Figure,
    /// For each grid with a scale, the scale that it runs at.
    scales: Vec<Option<kvdrive_config::Scale>>,
    /// Requested seeds; empty for the usual one.
    seeds: Vec<u64>,
    /// For each seed, the runs of the figure.
    runs: Vec<FigureRuns>,
}

/// Runs by grid, series and point.
type FigureRuns = Vec<GridRuns>;
type GridRuns = Vec<Vec<Option<RunId>>>;

/// What is known of a series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// This build cannot run it.
    LeftOut,
    /// A run of it has not ended.
    Unfinished,
    Ended,
}

/// The runs of a grid without those of unfinished series.
fn whole(runs: &GridRuns, states: &[State]) -> GridRuns {
    let of_series = runs.iter().zip(states).map(|(runs, state)| match state {
        State::Unfinished => vec![None; runs.len()],
        _ => runs.clone(),
    });
    of_series.collect()
}

/// Would a panel show a value, or is it without one because this build lacks a part?
fn has_values(panel: &Panel, states: &[State]) -> bool {
    let base_is_known = panel.relative_to.is_none_or(|base| states[base] != State::Unfinished);
    states.iter().all(|state| *state != State::Unfinished) || base_is_known && states.contains(&State::Ended)
}

impl Planned {
    /// Adds the runs of `figure` to `plan`.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn new(figure: Figure, plan: &mut StudyPlan) -> anyhow::Result<Planned> {
        let seeds = plan.options().seeds.clone();
        let each = if seeds.is_empty() { vec![None] } else { seeds.iter().copied().map(Some).collect() };
        let mut runs = Vec::new();
        for seed in each {
            plan.seed(seed);
            let of_seed =
                figure.grids.iter().map(|grid| grid.plan(plan)).collect::<anyhow::Result<FigureRuns>>();
            runs.push(of_seed.map_err(|problem| anyhow::anyhow!("{}: {problem}", figure.id))?);
        }
        plan.seed(seeds.first().copied());
        let scale = |grid: &Grid| grid.scale.map(|usual| plan.options().scale(usual));
        let scales = figure.grids.iter().map(scale).collect();
        Ok(Planned { figure, scales, seeds, runs })
    }

    /// The figure that is drawn.
    pub fn figure(&self) -> &Figure {
        &self.figure
    }

    /// Series that are left out, with the part that each needs.
    pub fn left_out(&self) -> Vec<(&str, &str)> {
        let series = self.figure.grids.iter().flat_map(|grid| &grid.series);
        let mut left_out: Vec<_> =
            series.filter_map(|series| Some((series.name.as_str(), missing(&series.needs)?))).collect();
        left_out.sort();
        left_out.dedup();
        left_out
    }

    /// The runs it needs, each once.
    pub fn runs(&self) -> Vec<RunId> {
        let mut runs: Vec<_> = self.runs.iter().flatten().flatten().flatten().flatten().copied().collect();
        runs.sort();
        runs.dedup();
        runs
    }

    /// Number of its series whose runs have all ended, and of all that this build can run. A series counts once for
    /// each grid.
    pub fn ended(&self, results: &Results) -> (usize, usize) {
        let grids = 0..self.figure.grids.len();
        let states: Vec<_> = grids.flat_map(|grid| self.states(grid, results)).collect();
        let count = |of: &dyn Fn(&State) -> bool| states.iter().filter(|state| of(state)).count();
        (count(&|state| *state == State::Ended), count(&|state| *state != State::LeftOut))
    }

    /// The state of each series of a grid.
    fn states(&self, grid: usize, results: &Results) -> Vec<State> {
        let of_series = (0..self.figure.grids[grid].series.len()).map(|series| {
            let mut runs = self.runs.iter().flat_map(|of_seed| of_seed[grid][series].iter().flatten());
            let state =
                runs.try_fold(State::LeftOut, |_, run| results.has_ended(*run).then_some(State::Ended));
            state.unwrap_or(State::Unfinished)
        });
        of_series.collect()
    }

    /// Its panels, drawn from `results`. A series of which a run has not ended has no values, and a panel without any
    /// values for that reason is left out.
    ///
    /// # Errors
    /// A report lacks a number that a quantity needs.
    pub fn charts(&self, results: &Results) -> anyhow::Result<Vec<Chart>> {
        let mut charts = Vec::new();
        for (index, (grid, scale)) in self.figure.grids.iter().zip(&self.scales).enumerate() {
            let states = self.states(index, results);
            let ended: Vec<GridRuns> = self.runs.iter().map(|runs| whole(&runs[index], &states)).collect();
            for panel in grid.panels.iter().filter(|panel| has_values(panel, &states)) {
                let of_seeds = ended.iter().map(|runs| self.chart(grid, runs, panel, (results, *scale)));
                let mut chart = Chart::mean(of_seeds.collect::<anyhow::Result<_>>()?);
                if !self.seeds.is_empty() {
                    chart.counts = format!("{}; {}", chart.counts, chart.spread_text(&self.seeds));
                }
                if let Some(scale) = scale {
                    chart.counts = format!("scale {scale}: {}", chart.counts);
                }
                charts.push(chart);
            }
        }
        Ok(charts)
    }

    fn chart(
        &self,
        grid: &Grid,
        runs: &[Vec<Option<RunId>>],
        panel: &Panel,
        (results, scale): (&Results, Option<kvdrive_config::Scale>),
    ) -> anyhow::Result<Chart> {
        if panel.over_time {
            return self.over_time(grid, runs, panel, (results, scale));
        }
        if !panel.parts.is_empty() {
            return self.parts(grid, runs, panel, results);
        }
        let value = |run: &Option<RunId>| run.map(|run| results.number(run, &panel.y)).transpose();
        let series = grid.series.iter().zip(runs).map(|(series, runs)| {
            let values = runs.iter().map(value).collect::<anyhow::Result<_>>()?;
            Ok(Line { name: series.name.clone(), values, spread: Vec::new() })
        });
        let series = series.collect::<anyhow::Result<Vec<Line>>>();
        let mut series =
            series.map_err(|problem| anyhow::anyhow!("{}{}: {problem}", self.figure.id, panel.id))?;
        if let Some(base) = panel.relative_to {
            divide(&mut series, base);
        }
        let mut marks = Vec::new();
        for published in &panel.published {
            for &point in &published.points {
                let value = match published.value {
                    Statement::Absolute(value) => Some(value),
                    Statement::Times(factor, of) => series[of].values[point].map(|value| value * factor),
                };
                let says = published.says.clone();
                marks.extend(value.map(|value| Mark { series: published.series, point, value, says }));
            }
        }
        Ok(Chart { series, marks, ..self.frame(grid, runs, panel, results) })
    }

    /// A panel over the grid's points, without lines or bars.
    fn frame(&self, grid: &Grid, runs: &[Vec<Option<RunId>>], panel: &Panel, results: &Results) -> Chart {
        Chart {
            id: format!("{}{}", self.figure.id, panel.id),
            letter: panel.id.clone(),
            title: panel.title.clone(),
            unit: panel.unit.clone(),
            kind: panel.kind,
            axis: grid.axis.clone(),
            points: grid.points.iter().map(|point| point.label.clone()).collect(),
            every: 1,
            style: grid.style(),
            log: panel.log,
            series: Vec::new(),
            marks: Vec::new(),
            counts: self.counts(grid, runs, results),
        }
    }

    /// Numbers of operations of the runs: `20 000 operations a point, 1 000 from 4K on`.
    fn counts(&self, grid: &Grid, runs: &[Vec<Option<RunId>>], results: &Results) -> String {
        let mut text = String::new();
        let mut last = None;
        for (index, point) in grid.points.iter().enumerate() {
            let Some(run) = runs.iter().find_map(|runs| runs[index]) else { continue };
            // The operations of the workload: a read-modify-write is one of them, and two of the drive's.
            let report = results.report(run);
            let asked = report.config.pointer("/workload/ops").and_then(|ops| ops.as_u64());
            let now = report.ops.total().min(asked.unwrap_or(u64::MAX));
            match last {
                None => text.push_str(&format!("{} operations a point", grouped(now))),
                Some(before) if before != now => {
                    text.push_str(&format!(", {} from {} on", grouped(now), point.label));
                }
                _ => {}
            }
            last = Some(now);
        }
        text
    }
}

/// Divides every series by that of index `base`, point by point; a point has no value if the divisor is zero
/// or missing.
fn divide(series: &mut [Line], base: usize) {
    let base = series[base].values.clone();
    for line in series {
        for (value, base) in line.values.iter_mut().zip(&base) {
            *value = value.zip(*base).map(|(value, base)| value / base).filter(|ratio| ratio.is_finite());
        }
    }
}

/// A number with four digits, or all digits of a whole number, for tables: `4 184`, `10.24`, `0.5403`.
pub fn precise(value: f64) -> String {
    let decimals = match value.abs() {
        _ if value.fract() == 0.0 => 0,
        n if n >= 999.95 => 0,
        n if n >= 99.995 => 1,
        n if n >= 9.9995 => 2,
        n if n >= 0.1 => 3,
        _ => 6,
    };
    with_decimals(value, decimals)
}

/// A number with few digits, for the axis of a plot: `4.18 k`, `0.54`, `12`.
pub fn number(value: f64) -> String {
    const PREFIXES: &[(f64, &str)] = &[(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, "")];
    let size = value.abs();
    let (unit, prefix) =
        PREFIXES.iter().find(|(unit, _)| size >= *unit * 0.999_5).copied().unwrap_or((1.0, ""));
    let scaled = value / unit;
    let decimals = match scaled.abs() {
        n if n >= 99.95 => 0,
        n if n >= 9.995 => 1,
        n if n >= 0.099_95 || n == 0.0 => 2,
        _ => 4,
    };
    let mut text = format!("{scaled:.decimals$}");
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    format!("{text}{prefix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn with_points(points: Vec<String>, every: usize) -> Chart {
        Chart { points, every, ..chart(false, &[1.0]) }
    }

    fn scale(log: bool, values: &[f64]) -> Scale {
        chart(log, values).scale()
    }

    fn chart(log: bool, values: &[f64]) -> Chart {
        let line = Line {
            name: "a".into(),
            values: values.iter().map(|value| Some(*value)).collect(),
            spread: vec![],
        };
        Chart {
            id: "x".into(),
            letter: "a".into(),
            title: "x".into(),
            unit: "B".into(),
            kind: Kind::Counted,
            axis: "x".into(),
            points: values.iter().map(f64::to_string).collect(),
            every: 1,
            style: Style::Lines,
            log,
            series: vec![line],
            marks: vec![],
            counts: String::new(),
        }
    }

    #[test]
    fn numbers_are_short_and_true() {
        let cases = [
            (4184.0, "4.18 k"),
            (0.0, "0"),
            (88.0, "88"),
            (97.9, "97.9"),
            (999.96, "1 k"),
            (130.75, "131"),
            (0.5, "0.5"),
            (0.0034, "0.0034"),
            (-0.25, "-0.25"),
            (12_345_678.0, "12.3 M"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn tables_have_four_digits_and_whole_numbers_all() {
        let cases = [
            (4184.0, "4 184"),
            (10.2419, "10.24"),
            (205.36, "205.4"),
            (0.000_123, "0.000123"),
            (1_234.5, "1 234"),
            (12_345.6, "12 346"),
            (-4_184.0, "-4 184"),
            (-2.0, "-2"),
            (0.0, "0"),
        ];
        for (value, text) in cases {
            assert_eq!(precise(value), text);
        }
    }

    #[test]
    fn linear_axes_begin_at_zero_and_have_round_ticks() {
        let scale = scale(false, &[0.3, 97.0]);
        assert_eq!(scale.at(0.0), 0.0);
        assert_eq!(scale.ticks(), [0.0, 25.0, 50.0, 75.0, 100.0]);
        assert!(scale.at(97.0) < 1.0);
    }

    #[test]
    fn logarithmic_axes_hold_every_value() {
        let wide = scale(true, &[88.0, 17_000.0]);
        assert_eq!(wide.ticks(), [100.0, 1_000.0, 10_000.0]);
        assert!(wide.at(88.0) > 0.0 && wide.at(17_000.0) < 1.0);
        assert!((wide.at(1_000.0) - wide.at(100.0) - (wide.at(10_000.0) - wide.at(1_000.0))).abs() < 1e-9);
        assert_eq!(scale(true, &[11.0, 40.0]).ticks(), [10.0, 20.0, 50.0]);
        assert!(!scale(true, &[0.0, 40.0]).log, "zero has no logarithm");
        assert_eq!(scale(true, &[]).at(3.0), 1.0);
    }
}
