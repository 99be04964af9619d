//! `kvdrive tune`: exploratory runs that find the thresholds of the adaptive transfer method.

use std::path::PathBuf;

use clap::Args;
use kvdrive_text::output::{check_apart, check_writable};
use kvdrive_tune::Tolerances;

use crate::output;
use crate::runs::jobs;
use crate::settings::{Settings, at_least_one, tell_capacity};

/// Stores of one exploratory run, unless --ops says otherwise: fewer than fill a memtable.
const DEFAULT_OPS: u64 = 400;

/// Options of `tune`.
#[derive(Args)]
pub struct Tune {
    #[command(flatten)]
    settings: Settings,
    /// By how much a small value in commands may be slower than by PRP: 0.05 is the 5 % that the paper seems to accept
    #[arg(long, default_value_t = 0.05, value_name = "FRACTION", allow_negative_numbers = true)]
    tolerance1: f64,
    /// By how much a store with a tail in transfer commands may be slower than by PRP: 0.02 is 2 %
    #[arg(long, default_value_t = 0.02, value_name = "FRACTION", allow_negative_numbers = true)]
    tolerance: f64,
    /// Writes the thresholds as TOML for --config
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Runs at once [default: one for each core]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    jobs: Option<u64>,
}

impl Tune {
    /// Runs, prints and writes.
    pub fn run(&self) -> anyhow::Result<()> {
        let tolerances = Tolerances { value: self.tolerance1, tail: self.tolerance };
        for (option, given) in [("--tolerance1", tolerances.value), ("--tolerance", tolerances.tail)] {
            anyhow::ensure!(given.is_finite() && given >= 0.0, "{option}: {given}; allowed: 0 or more");
        }
        let options = self.settings.options()?;
        options.refuse_load("tune")?;
        let document = options.document_of_drive("tune")?;
        tell_capacity([&document]);
        let runs = kvdrive_tune::configs(&document)?;
        options.check_looked_at(&runs)?;
        let out = ("--out", self.out.as_deref());
        let read = self.settings.config.iter().map(|path| ("--config", Some(path.as_path())));
        check_apart(&read.chain([out]).collect::<Vec<_>>())?;
        self.out.iter().try_for_each(|path| check_writable(path))?;
        let ops = match options.get("ops") {
            Some(_) => document.config()?.workload.ops,
            None => DEFAULT_OPS,
        };
        let tuning = kvdrive_tune::tune(&document, ops, tolerances, jobs(self.jobs))?;
        output::print(&tuning.to_text());
        match &self.out {
            Some(path) => output::write(path, &tuning.to_toml()),
            None => Ok(()),
        }
    }
}
