//! `kvdrive run`: one workload on one drive.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use kvdrive_lab::output::check_apart;
use kvdrive_lab::run::run_faulty;
use kvdrive_lab::wall::{WallOptions, run_wall};
use kvdrive_sim::wall::Pace;

use crate::output;
use crate::progress::Bars;
use crate::settings::{Settings, fault_rules};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PaceName {
    Model,
    Off,
}

/// Options of `run`.
#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    settings: Settings,
    /// Wall clock: `model` paces the drive by its model times, `off` lets it run as fast as the machine can
    /// [default: model]
    #[arg(long, value_name = "model|off")]
    pace: Option<PaceName>,
    /// Wall clock: records the run for `kvdrive replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Rules by which the drive fails, a TOML file (`kvdrive list faults`); in model time
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// Writes the report as JSON to a file, or to standard output (-) instead of the tables
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
}

impl Run {
    /// Runs it and prints.
    pub fn run(&self) -> anyhow::Result<()> {
        let document = self.settings.document_of_run()?;
        let mut files: Vec<_> =
            self.settings.config.iter().map(|path| ("--config", Some(path.as_path()))).collect();
        files.push(("--faults", self.faults.as_deref()));
        files.push(("--record", self.record.as_deref()));
        files.push(("--json", output::json_file(self.json.as_ref())));
        check_apart(&files)?;
        output::check_json(self.json.as_ref())?;
        let rules = fault_rules(self.faults.as_ref(), &document)?;
        let bars = Bars::new(&["running".to_owned()]);
        let progress = |done, total| bars.update(0, done, total);
        let report = if document.config()?.run.clock == "wall" {
            anyhow::ensure!(self.faults.is_none(), "--faults: only in model time (--clock virtual)");
            let pace = match self.pace {
                None | Some(PaceName::Model) => Pace::Model,
                Some(PaceName::Off) => Pace::Off,
            };
            run_wall(&document, &WallOptions { pace, record: self.record.as_deref() }, &progress)?
        } else {
            anyhow::ensure!(
                self.record.is_none(),
                "--record: only a wall-time run can be recorded (--clock wall)"
            );
            anyhow::ensure!(self.pace.is_none(), "--pace: only a wall-time run has one (--clock wall)");
            run_faulty(&document, &rules, &progress)?
        };
        if self.json.as_deref() != Some("-") {
            output::print(&report.to_string());
        }
        match &self.json {
            Some(path) => output::write_json(path, &report),
            None => Ok(()),
        }
    }
}
