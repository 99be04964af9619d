//! `kvdrive bench`: how fast and how small this program is on this machine.
//!
//! Memory and instructions are those of a whole process, so this one starts itself again for them.

use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};
use kvdrive_lab::bench::{self, Figures};

use crate::output;
use crate::progress::Bars;

/// Options of `bench`.
#[derive(Args)]
pub struct Bench {
    /// Stores of each run in virtual time, and of each in wall time
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    stores: u64,
    /// Pairs whose memory is measured
    #[arg(long, default_value_t = 10_000_000, value_name = "N")]
    pairs: u64,
    /// A few seconds: a tenth of the stores and a fiftieth of the pairs, once
    #[arg(long)]
    quick: bool,
    /// Writes the figures as JSON to a file, or to standard output (-) instead of the table
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
    /// Only this part, in this process
    #[arg(long, hide = true)]
    part: Option<Part>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
    Simulate,
    Memory,
}

impl Bench {
    /// Measures and prints.
    pub fn run(&self) -> anyhow::Result<()> {
        match self.part {
            Some(Part::Simulate) => return bench::simulated(self.stores, 1, &|_, _| {}).map(drop),
            Some(Part::Memory) => {
                let bars = Bars::new(&["memory".to_owned()]);
                let memory = bench::memory(self.pairs, &|done, total| bars.update(0, done, total))?;
                return output::write_json("-", &memory);
            }
            None => {}
        }
        let (stores, pairs, runs) =
            if self.quick { (self.stores / 10, self.pairs / 50, 1) } else { (self.stores, self.pairs, 3) };
        let (stores, pairs) = (stores.max(1), pairs.max(1));
        let executable = std::env::current_exe()?;
        let part = |part: &str, option: &str, count: u64| {
            let mut command = Command::new(&executable);
            command.args(["bench", "--part", part, option]).arg(count.to_string());
            command
        };
        let bars = Bars::new(&["simulated", "served", "instructions"].map(str::to_owned));
        let simulated = bench::simulated(stores, runs, &|done, total| bars.update(0, done, total))?;
        let wall = bench::wall(stores, runs, &|done, total| bars.update(1, done, total))?;
        bars.update(2, 0, 1);
        let instructions = bench::instructions(stores, &|count| part("simulate", "--stores", count));
        bars.update(2, 1, 1);
        let child = part("memory", "--pairs", pairs).stderr(Stdio::inherit()).output()?;
        anyhow::ensure!(child.status.success(), "measuring the memory of {pairs} pairs failed");
        let memory = serde_json::from_slice(&child.stdout)?;
        let figures = Figures::new(simulated, instructions, memory, wall);
        if self.json.as_deref() != Some("-") {
            output::print(&figures.to_string());
        }
        match &self.json {
            Some(path) => output::write_json(path, &figures),
            None => Ok(()),
        }
    }
}
