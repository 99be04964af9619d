//! `kvdrive replay`: a recorded wall-time run again, in virtual time.

use std::path::PathBuf;

use clap::Args;
use kvdrive_text::output::check_apart;

use crate::output;

/// Options of `replay`.
#[derive(Args)]
pub struct Replay {
    /// A recording (`kvdrive run --clock wall --record FILE`)
    file: PathBuf,
    /// Writes the report as JSON to a file, or to standard output (-) instead of the tables
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
}

impl Replay {
    /// Replays, and prints the report of the drive.
    pub fn run(&self) -> anyhow::Result<()> {
        let json = output::json_file(self.json.as_ref());
        check_apart(&[("the recording", Some(&self.file)), ("--json", json)])?;
        output::check_json(self.json.as_ref())?;
        let report = kvdrive_run::wall::replay(&self.file)?;
        if self.json.as_deref() != Some("-") {
            output::print(&report.in_columns(output::columns()));
        }
        match &self.json {
            Some(path) => output::write_json(path, &report),
            None => Ok(()),
        }
    }
}
