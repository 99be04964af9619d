//! `kvdrive figure`: the experiment of one figure, every panel as a plot and as numbers.

use clap::Args;
use kvdrive_lab::experiments;
use kvdrive_lab::experiments::runs::Plan;
use kvdrive_lab::figure::{Planned, svg, terminal};
use kvdrive_lab::output::check_writable;

use crate::batch::Batch;
use crate::output;

/// Options of `figure`.
#[derive(Args)]
pub struct Figure {
    /// Name of a figure, or a TOML file that describes one; without it, the figures there are
    figure: Option<String>,
    /// Draws the panels into an SVG file as well
    #[arg(long, value_name = "FILE")]
    svg: Option<std::path::PathBuf>,
    #[command(flatten)]
    batch: Batch,
    /// Writes the numbers of the panels as JSON to a file, or to standard output (-) instead of the plots
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
}

impl Figure {
    /// Runs and prints.
    pub fn run(&self) -> anyhow::Result<()> {
        let Some(name) = &self.figure else { return list() };
        output::check_json(self.json.as_ref())?;
        self.svg.iter().try_for_each(|path| check_writable(path))?;
        let mut plan = Plan::new(self.batch.options());
        let planned = Planned::new(read(name)?, &mut plan)?;
        let results = self.batch.run(plan)?;
        let charts = planned.charts(&results)?;
        let figure = planned.figure();
        if self.json.as_deref() != Some("-") {
            let mut text = format!("{}: {}\n", figure.source, figure.title);
            for note in &figure.notes {
                text.push_str(&terminal::wrap(note));
            }
            for (series, lacks) in planned.left_out() {
                text.push_str(&format!("  {series} is left out: this build lacks {lacks}.\n"));
            }
            for chart in &charts {
                text.push_str(&format!("\n{}  {}\n", terminal::text(chart), chart.counts));
            }
            output::print(&text);
        }
        if let Some(path) = &self.svg {
            let title = format!("{}: {}", figure.source, figure.title);
            write(path, &svg::file(&title, &charts))?;
        }
        match &self.json {
            Some(path) => output::write_json(path, &charts),
            None => Ok(()),
        }
    }
}

/// Writes a text file; the error names it.
pub fn write(path: &std::path::Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
}

fn read(name: &str) -> anyhow::Result<experiments::Figure> {
    if !name.ends_with(".toml") {
        return experiments::figure(name);
    }
    let text = std::fs::read_to_string(name).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
    experiments::parse(name, &text)
}

fn list() -> anyhow::Result<()> {
    let figures = experiments::figures()?;
    let width = figures.iter().map(|figure| figure.id.len()).max().unwrap_or(0);
    let lines =
        figures.iter().map(|figure| format!("{:width$}  {}: {}\n", figure.id, figure.source, figure.title));
    output::print(&lines.collect::<String>());
    Ok(())
}
