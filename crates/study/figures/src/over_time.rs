//! Panels over the time of runs.

use kvdrive_config::Scale;
use kvdrive_experiments::runs::{Results, RunId};
use kvdrive_experiments::{Grid, Panel, Style};

use super::{Chart, Line, Planned, precise};

impl Planned {
    /// A panel over the time of the runs of the grid's one point.
    pub(super) fn over_time(
        &self,
        grid: &Grid,
        runs: &[Vec<Option<RunId>>],
        panel: &Panel,
        (results, scale): (&Results, Option<Scale>),
    ) -> anyhow::Result<Chart> {
        let (mut series, mut length_ns, mut intervals) = (Vec::new(), 1, 0);
        for (line, runs) in grid.series.iter().zip(runs) {
            let Some(run) = runs[0] else { continue };
            let of_run = results.over_time(run, &panel.y);
            let (values, span_ns) =
                of_run.map_err(|problem| anyhow::anyhow!("{}{}: {problem}", self.figure.id, panel.id))?;
            (length_ns, intervals) = (span_ns, intervals.max(values.len()));
            series.push(Line {
                name: line.name.clone(),
                values: values.into_iter().map(Some).collect(),
                spread: Vec::new(),
            });
        }
        // A run may end before others do.
        series.iter_mut().for_each(|line: &mut Line| line.values.resize(intervals, None));
        // The axis has the times of the published run, of which this one is a part.
        let length_ns = length_ns * scale.map_or(1, Scale::divisor);
        let all_ns = length_ns * intervals as u64;
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")];
        let (unit_ns, unit) = units.into_iter().find(|(ns, _)| all_ns >= 10 * ns).unwrap_or((1, "ns"));
        let label = |interval: u64| precise(((interval + 1) * length_ns) as f64 / unit_ns as f64);
        Ok(Chart {
            axis: format!("time [{unit}]"),
            points: (0..intervals as u64).map(label).collect(),
            every: every_so_many(intervals),
            style: Style::Lines,
            series,
            ..self.frame(grid, runs, panel, results)
        })
    }
}

/// The distance between labelled points, so that at most 12 of `points` have a label.
fn every_so_many(points: usize) -> usize {
    let steps = (0..6u32).flat_map(|power| [1, 2, 5].map(|digit| digit * 10usize.pow(power)));
    steps.into_iter().find(|every| points / every <= 12).unwrap_or(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_points_a_few_have_labels() {
        assert_eq!([1, 12, 13, 60, 150, 300].map(every_so_many), [1, 1, 2, 5, 20, 50]);
        let of = |points: usize| {
            let points: Vec<String> = (1..=points).map(|point| point.to_string()).collect();
            let every = every_so_many(points.len());
            crate::tests::with_points(points, every)
        };
        assert_eq!(of(60).labelled().map(|point| of(60).points[point].clone()).last().unwrap(), "60");
        assert_eq!((of(60).labelled().count(), of(3).labelled().count()), (12, 3));
    }
}
