//! `kvdrive run`: one workload on one drive.

use clap::Args;

use crate::output;
use crate::progress::Bars;
use crate::settings::Settings;

/// Options of `run`.
#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    settings: Settings,
    /// Writes the report as JSON to a file, or to standard output (-) instead of the tables
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
}

impl Run {
    /// Runs it and prints.
    pub fn run(&self) -> anyhow::Result<()> {
        let document = self.settings.document()?;
        let bars = Bars::new(&["running".to_owned()]);
        let report = kvdrive_lab::run::run(&document, &|done, total| bars.update(0, done, total))?;
        if self.json.as_deref() != Some("-") {
            output::print(&report.to_string());
        }
        match &self.json {
            Some(path) => output::write_json(path, &report),
            None => Ok(()),
        }
    }
}
