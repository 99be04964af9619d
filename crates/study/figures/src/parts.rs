//! Panels whose bars are sums of parts: a bar for each run, a part for each quantity.

use kvdrive_experiments::runs::{Results, RunId};
use kvdrive_experiments::{Grid, Panel, Style};

use super::{Chart, Line, Planned};

impl Planned {
    /// The runs of a grid as bars, series by series at each point.
    pub(super) fn parts(
        &self,
        grid: &Grid,
        runs: &[Vec<Option<RunId>>],
        panel: &Panel,
        results: &Results,
    ) -> anyhow::Result<Chart> {
        let bars = |point: usize| (0..grid.series.len()).map(move |series| (series, point));
        let bars: Vec<(usize, usize)> = (0..grid.points.len()).flat_map(bars).collect();
        let mut series = Vec::new();
        for (name, quantity) in &panel.parts {
            let of = |(series, point): &(usize, usize)| {
                runs[*series][*point].map(|run| results.number(run, quantity)).transpose()
            };
            let values = bars.iter().map(of).collect::<anyhow::Result<Vec<_>>>();
            let values = values
                .map_err(|problem| anyhow::anyhow!("{}{}: {name}: {problem}", self.figure.id, panel.id))?;
            series.push(Line { name: name.clone(), values, spread: Vec::new() });
        }
        let label = |(series, point): &(usize, usize)| {
            format!("{}, {}", grid.points[*point].label, grid.series[*series].name)
        };
        let points = bars.iter().map(label).collect();
        Ok(Chart { points, series, style: Style::Stacked, ..self.frame(grid, runs, panel, results) })
    }
}
