//! `kvdrive figure`: the experiment of one figure, every panel as a plot and as numbers.

use std::path::Path;
use std::sync::LazyLock;

use clap::Args;
use kvdrive_experiments as experiments;
use kvdrive_experiments::runs::StudyPlan;
use kvdrive_figures::{Planned, svg, terminal};
use kvdrive_text::input::read_text;
use kvdrive_text::output::{check_apart, check_writable};
use kvdrive_text::{WIDTH, wrap};

use crate::batch::Batch;
use crate::output;
use crate::settings::Known;

/// Options of `figure`.
#[derive(Args)]
pub struct Figure {
    /// Name of a figure, or a TOML file that describes one; without it, all figures are listed
    #[arg(value_parser = Known(names), hide_possible_values = true)]
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

/// Names of all figures.
fn names() -> Vec<&'static str> {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let figures = experiments::figures().unwrap_or_default();
        figures.into_iter().map(|figure| figure.id).collect()
    });
    NAMES.iter().map(String::as_str).collect()
}

impl Figure {
    /// Runs and prints.
    pub fn run(&self) -> anyhow::Result<()> {
        let Some(name) = &self.figure else { return list() };
        let file = Some(Path::new(name)).filter(|_| name.ends_with(".toml"));
        let json = output::json_file(self.json.as_ref());
        check_apart(&[("the figure", file), ("--svg", self.svg.as_deref()), ("--json", json)])?;
        output::check_json(self.json.as_ref())?;
        self.svg.iter().try_for_each(|path| check_writable(path))?;
        let mut plan = StudyPlan::new(self.batch.options());
        let planned = Planned::new(read(name)?, &mut plan)?;
        let (results, interrupted) = self.batch.run_so_far(plan)?;
        let charts = planned.charts(&results)?;
        if self.json.as_deref() != Some("-") && !charts.is_empty() {
            let figure = planned.figure();
            let mut text = format!("{}\n", figure.heading());
            for note in &figure.notes {
                text.push_str(&wrap(note, WIDTH));
            }
            for (series, lacks) in planned.left_out() {
                text.push_str(&format!("  {series} is left out: this build lacks {lacks}.\n"));
            }
            for chart in &charts {
                text.push_str(&format!("\n{}  {}\n", terminal::text(chart), chart.counts));
            }
            output::print(&text);
        }
        if let Some(path) = self.svg.as_ref().filter(|_| !charts.is_empty()) {
            output::write(path, &svg::file(&planned.figure().heading(), &charts))?;
        }
        if let Some(path) = &self.json {
            output::write_json(path, &charts)?;
        }
        if let Some(interrupted) = interrupted {
            let (ended, all) = planned.ended(&results);
            interrupted.end(&format!("{ended} of {all} series are drawn, whose runs have ended; "));
        }
        Ok(())
    }
}

fn read(name: &str) -> anyhow::Result<experiments::Figure> {
    if !name.ends_with(".toml") {
        return experiments::figure(name);
    }
    experiments::parse(name, &read_text(Path::new(name))?)
}

fn list() -> anyhow::Result<()> {
    let figures = experiments::figures()?;
    let width = figures.iter().map(|figure| figure.id.len()).max().unwrap_or(0);
    let lines =
        figures.iter().map(|figure| format!("{:width$}  {}: {}\n", figure.id, figure.source, figure.title));
    output::print(&lines.collect::<String>());
    Ok(())
}
